//! Guests: they listen on a socket for a switch with vhost-user, and send back what comes.

pub mod builtin;
pub mod list;
pub mod testpmd;

use crate::process::Process;
use std::path::Path;

/// Descriptors of each ring, in every guest.
pub const DESCRIPTORS: u32 = 256;

/// A kind of guest.
pub trait Guest: Sync {
    /// As it is typed and stored.
    fn name(&self) -> &'static str;

    /// Why it cannot be used here, if it cannot.
    fn refuses(&self) -> Option<String>;

    /// Starts one that listens on this socket. Dropped, it is gone.
    fn start(&self, socket: &Path) -> Result<Process, String>;
}
