//! All generators.

use super::Generator;
use super::builtin::Builtin;
use super::testpmd::Testpmd;

/// The first one is the default.
pub const GENERATORS: &[&dyn Generator] = &[&Builtin, &Testpmd];

/// The generator of this name.
pub fn find(name: &str) -> Option<&'static dyn Generator> {
    GENERATORS.iter().copied().find(|g| g.name() == name)
}
