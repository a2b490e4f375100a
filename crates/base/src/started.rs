//! The state of standard descriptors when the process was started.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of a closed standard descriptor, so that output
//! to it is lost without an error. Code that prints checks here.

use std::sync::atomic::{AtomicBool, Ordering};

static HAS_STDOUT: AtomicBool = AtomicBool::new(true);

/// Whether standard output was open.
pub fn has_stdout() -> bool {
    HAS_STDOUT.load(Ordering::Relaxed)
}

extern "C" fn look() {
    // SAFETY: the call touches no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    HAS_STDOUT.store(flags >= 0, Ordering::Relaxed);
}

// SAFETY: ELF's start-up code calls each entry of this section before `main`, on the one thread that there
// is, and `look` needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
