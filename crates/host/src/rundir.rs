//! The run directory, and the control sockets that killed processes have left there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// `$OVS_RUNDIR`, or its default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDir(PathBuf);

impl RunDir {
    /// From the environment; `/var/run/openvswitch` by default.
    pub fn from_env() -> RunDir {
        RunDir(crate::program::directory("OVS_RUNDIR", "/var/run/openvswitch"))
    }

    /// A given directory.
    pub fn new(path: impl Into<PathBuf>) -> RunDir {
        RunDir(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates it if it does not exist.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
    }
}

/// Removes control sockets that killed processes have left beside `path`: those named `PROGRAM.PID.ctl` with
/// the same program, whose process is gone and which do not answer. Sockets that cannot be removed are left.
pub fn remove_stale_control_sockets(path: &Path) {
    let parts = |name: &OsStr| {
        let (program, pid) = name.to_str()?.strip_suffix(".ctl")?.rsplit_once('.')?;
        Some((program.to_owned(), pid.parse::<u32>().ok()?))
    };
    let Some((program, _)) = path.file_name().and_then(parts) else { return };
    let Some(Ok(entries)) = path.parent().map(fs::read_dir) else { return };
    for entry in entries.flatten() {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let Some((_, pid)) = parts(&entry.file_name()).filter(|(of, _)| *of == program) else { continue };
        if !is_socket || Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        if unix_socket::is_stale(&entry.path())
            && let Err(e) = fs::remove_file(entry.path())
        {
            tracing::debug!(target: "daemon", "{}: could not be removed: {e}", entry.path().display());
        }
    }
}
