//! All guests.

use super::Guest;
use super::builtin::Builtin;
use super::qemu::Qemu;
use super::tap::Tap;
use super::testpmd::Testpmd;

/// The first one is the default.
pub const GUESTS: &[&dyn Guest] = &[&Builtin, &Testpmd, &Tap, &Qemu];

/// The guest of this name.
pub fn find(name: &str) -> Option<&'static dyn Guest> {
    GUESTS.iter().copied().find(|g| g.name() == name)
}
