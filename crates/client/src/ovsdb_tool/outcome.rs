//! Input and outcome of commands of `ovsdb-tool`.

use host::program;
use std::path::PathBuf;

/// Values of the options that commands read.
#[derive(Default)]
pub(super) struct Settings {
    /// The number of `-m` options.
    pub(super) verbosity: u32,
    /// `--rbac-role`.
    pub(super) role: Option<String>,
}

/// Why a command fails.
pub(super) enum Failure {
    /// A message, and exit code 1.
    Error(String),
    /// An answer by exit code.
    Code(u8),
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Error(text)
    }
}

pub(super) type Outcome = Result<(), Failure>;

/// Prints a text; a reader that has gone is no error.
pub(super) fn show(text: &str) -> Outcome {
    print!("{text}");
    Ok(())
}

/// Prints a line.
pub(super) fn line(what: impl std::fmt::Display) -> Outcome {
    show(&format!("{what}\n"))
}

pub(super) fn default_db() -> PathBuf {
    program::database_directory().join("conf.db")
}

pub(super) fn default_schema() -> PathBuf {
    program::directory("OVS_PKGDATADIR", "/usr/share/openvswitch").join("vswitch.ovsschema")
}
