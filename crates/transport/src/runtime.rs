//! The executor that programs run their tasks on: one thread, with sockets, signals and time.

use std::io;
use std::os::unix::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors: more than a runtime takes.
const SPARE_PAIRS: usize = 5;

/// A runtime for this thread.
///
/// # Errors
/// Too few descriptors are left. Tokio panics if it has none for its signals, so that is found out before.
pub fn runtime() -> io::Result<Runtime> {
    let spare: io::Result<Vec<_>> = (0..SPARE_PAIRS).map(|_| UnixStream::pair()).collect();
    drop(spare?);
    Builder::new_current_thread().enable_all().build()
}
