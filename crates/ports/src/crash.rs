//! Signals of a crash.
//!
//! Rust's runtime catches SIGSEGV and SIGBUS, so that it can say of a stack that it has overflowed; any other
//! is left to the kernel, by a return to the instruction that raised it. One that somebody has sent
//! (`kill -SEGV`) is lost by that. A daemon has nobody to tell of its stack, and a monitor that waits for its
//! end.
//!
//! Source: signal(7), sigaction(2) (`si_code`).

/// The signals that the runtime catches.
const CAUGHT: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// From now on these signals end the process, whoever raised them.
pub fn end_at_once() {
    for signal in CAUGHT {
        // SAFETY: setting the default action takes no pointer of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
