//! What a driver says of itself: its row of the [table of drivers](crate::DRIVERS).
//!
//! The row is all that the rest of the switch knows of a type. Options are checked against it, the tables of
//! docs/ports.md are made of it, and whoever must know how ports of a type differ asks it.

use crate::options::{KeyRow, N_RXQ, OptionRow, option_names};
use crate::spec::{PortError, PortSpec};
use packet::{Pool, Port};

/// What is behind ports of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// A device of the kernel's that is there without the switch.
    Kernels,
    /// A device of the kernel's that the switch makes.
    Own,
    /// A virtual machine, which decides on its queues.
    Guest,
    /// Files, or nothing.
    None,
    /// Commands of tests.
    Pretended,
}

/// Opens a port of a driver.
pub(crate) type Open = fn(&PortSpec, &'static Pool) -> Result<Box<dyn Port>, PortError>;

/// A type of ports.
pub struct Driver {
    /// The type, as in the `type` column.
    pub kind: &'static str,
    /// What is at the other end, as docs/ports.md says it.
    pub other_end: &'static str,
    /// What it needs of the system.
    pub needs: &'static str,
    /// The heading of its section in docs/ports.md, as an anchor.
    pub section: &'static str,
    /// Its options. [`N_RXQ`], which all have, is among them where it means something else.
    pub options: &'static [OptionRow],
    /// Keys of `status`.
    pub status: &'static [KeyRow],
    /// Keys of `statistics`, besides those that all ports have.
    pub statistics: &'static [KeyRow],
    /// What is behind it.
    pub backing: Backing,
    /// Whether a number of queues that cannot be had costs the port, and not that option alone.
    pub is_strict: bool,
    /// Whether Open vSwitch has PMD threads poll such ports.
    pub is_pmd: bool,
    /// Whether it can spread flows over its transmit queues ([`PortSpec::spreads_flows`]).
    pub spreads_flows: bool,
    pub(crate) open: Open,
    pub(crate) check: fn(&PortSpec) -> Result<(), PortError>,
    pub(crate) have_same_effect: fn(&PortSpec, &PortSpec) -> bool,
}

impl Driver {
    /// The option of that name.
    pub fn option(&self, name: &str) -> Option<&'static OptionRow> {
        self.options.iter().chain([&N_RXQ]).find(|row| row.name == name)
    }

    /// The names of its options, sorted.
    pub fn option_names(&self) -> Vec<&'static str> {
        option_names(self.options)
    }
}

/// Whether both are right and come to equal settings.
pub(crate) fn are_equal<T: PartialEq>(
    settings: impl Fn(&PortSpec) -> Result<T, PortError>,
    a: &PortSpec,
    b: &PortSpec,
) -> bool {
    matches!((settings(a), settings(b)), (Ok(a), Ok(b)) if a == b)
}
