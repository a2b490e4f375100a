//! Guests: each has one interface, and sends back what comes.

pub mod builtin;
pub mod list;
pub mod tap;
pub mod testpmd;

use super::topology::Vnic;
use crate::process::Process;
use std::path::Path;

/// Descriptors of each ring, in every guest.
pub const DESCRIPTORS: u32 = 256;
/// Frames that a guest forwards at once, in every guest.
pub const BURST: u32 = 32;

/// What a guest is given.
pub struct Place<'a> {
    /// Where it listens, if it has a socket.
    pub socket: &'a Path,
    /// The name of its interface, if it has one in the switch's namespace.
    pub interface: &'a str,
    /// That namespace.
    pub namespace: &'a str,
}

/// A kind of guest.
pub trait Guest: Sync {
    /// As it is typed and stored.
    fn name(&self) -> &'static str;

    /// How it is attached.
    fn vnic(&self) -> Vnic {
        Vnic::VhostUser
    }

    /// Why it cannot be used here, if it cannot.
    fn refuses(&self) -> Option<String>;

    /// Starts one. Dropped, it is gone.
    fn start(&self, place: &Place) -> Result<Process, String>;
}
