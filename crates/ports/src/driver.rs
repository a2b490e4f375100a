//! A driver's description of itself: its row in the [table of drivers](crate::DRIVERS).
//!
//! The row is all that the rest of the switch knows about a type. Options are checked against it, the tables
//! in docs/ports.md are generated from it, and code that needs to know how types of ports differ consults it.

use crate::options::{KeyRow, N_RXQ, OptionRow, option_names};
use crate::spec::{PortError, PortSpec};
use packet::{Pool, Port};

/// What backs ports of a type.
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

/// The type of dummies that takes the place of most others in tests.
pub(crate) const DUMMY: &str = "dummy";

/// Opens a port of a driver.
pub(crate) type Open = fn(&PortSpec, &'static Pool) -> Result<Box<dyn Port>, PortError>;

/// A type of ports.
pub struct Driver {
    /// The type, as in the `type` column.
    pub kind: &'static str,
    /// Other names of the type.
    pub aliases: &'static [&'static str],
    /// The type of dummies that takes its place in tests (`--enable-dummy=override`).
    pub dummy: &'static str,
    /// What is at the other end, as docs/ports.md says it.
    pub other_end: &'static str,
    /// What it needs from the system.
    pub needs: &'static str,
    /// The heading of its section in docs/ports.md, as an anchor.
    pub section: &'static str,
    /// Its options. [`N_RXQ`], which all have, is included if it has another meaning.
    pub options: &'static [OptionRow],
    /// Keys of `status`: all that [`packet::PortStatus::details`] may have.
    pub status: &'static [KeyRow],
    /// Keys of `statistics`, besides those that all ports have.
    pub statistics: &'static [KeyRow],
    /// What backs it.
    pub backing: Backing,
    /// Whether a number of queues that is not available makes the port fail, rather than that option alone.
    pub is_strict: bool,
    /// Whether such ports are polled by PMD threads in Open vSwitch.
    pub is_pmd: bool,
    /// Whether it can distribute flows over its transmit queues ([`PortSpec::spreads_flows`]).
    pub spreads_flows: bool,
    pub(crate) open: Open,
    pub(crate) check: fn(&PortSpec) -> Result<(), PortError>,
    pub(crate) have_same_effect: fn(&PortSpec, &PortSpec) -> bool,
}

impl Driver {
    /// The option with that name.
    pub fn option(&self, name: &str) -> Option<&'static OptionRow> {
        self.options.iter().chain([&N_RXQ]).find(|row| row.name == name)
    }

    /// Whether it has a row for a key of `status`.
    pub fn has_status(&self, key: &str) -> bool {
        self.status.iter().any(|row| row.is(key))
    }

    /// The names of its options, sorted.
    pub fn option_names(&self) -> Vec<&'static str> {
        option_names(self.options)
    }
}

/// Whether both are valid and lead to equal settings.
pub(crate) fn are_equal<T: PartialEq>(
    settings: impl Fn(&PortSpec) -> Result<T, PortError>,
    a: &PortSpec,
    b: &PortSpec,
) -> bool {
    matches!((settings(a), settings(b)), (Ok(a), Ok(b)) if a == b)
}
