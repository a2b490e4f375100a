//! Guests: each has one interface, and sends back what comes.

pub mod builtin;
pub mod list;
pub mod qemu;
pub mod system;
pub mod tap;
pub mod testpmd;

use super::topology::Vnic;
use crate::process::Process;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A guest's ring sizes and how it forwards; the same for every switch of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rings {
    /// Descriptors of its receive ring.
    pub rx: u16,
    /// Descriptors of its transmit ring.
    pub tx: u16,
    /// Frames that it forwards at once.
    pub burst: u16,
}

/// The sizes of QEMU's devices, with the bursts of DPDK's examples.
pub const USUAL: Rings = Rings { rx: 256, tx: 256, burst: 32 };
/// The sizes of Red Hat's guest: `testpmd --rxd=4096 --txd=1024 --burst=64`.
pub const RED_HAT: Rings = Rings { rx: 4096, tx: 1024, burst: 64 };

/// The environment of a guest.
pub struct Place<'a> {
    /// The socket on which it listens, if it has one.
    pub socket: &'a Path,
    /// The name of its interface, if it has one in the switch's namespace.
    pub interface: &'a str,
    /// That namespace.
    pub namespace: &'a str,
    /// The configuration of its rings, if it has any.
    pub rings: Rings,
    /// How long a packet it must take.
    pub mtu: u16,
    /// The number of ring pairs, if it supports several.
    pub queues: usize,
    /// The processor that it has for itself.
    pub cpu: Option<usize>,
}

/// A kind of guest.
pub trait Guest: Sync {
    /// Its name on the command line and in stored results.
    fn name(&self) -> &'static str;

    /// How it is attached.
    fn vnic(&self) -> Vnic {
        Vnic::VhostUser
    }

    /// The rings that it has where these are wanted.
    fn rings(&self, wanted: Rings) -> Rings {
        wanted
    }

    /// The number of ring pairs that it has when this many are wanted.
    fn queues(&self, wanted: usize) -> usize {
        wanted
    }

    /// Maximum time until it forwards.
    fn boots_within(&self) -> Duration {
        Duration::ZERO
    }

    /// Why it cannot be used here, if it cannot.
    fn refuses(&self) -> Option<String>;

    /// Starts one. Dropped, it is gone.
    fn start(&self, place: &Place) -> Result<Process, String>;

    /// Other conditions that must be equal when a started guest is compared with others.
    fn conditions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Frames that a started guest has dropped so far, by reason. A guest that drops none reports nothing.
    fn dropped(&self, _started: &Process) -> Result<BTreeMap<&'static str, u64>, String> {
        Ok(BTreeMap::new())
    }
}
