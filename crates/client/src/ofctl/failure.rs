//! Why a command fails.

use std::fmt;

/// Why a command fails, as a sentence; empty if the switch's error has already been printed.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: std::error::Error> From<T> for Failure {
    fn from(error: T) -> Failure {
        Failure(error.to_string())
    }
}

/// Shorthand: an `Err` with a formatted sentence.
macro_rules! fail {
    ($($arg:tt)*) => { Err($crate::ofctl::failure::Failure(format!($($arg)*))) };
}
pub(crate) use fail;
