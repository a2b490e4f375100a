//! Signals of a crash.
//!
//! Rust's runtime catches SIGSEGV and SIGBUS in order to report stack overflows; any other case is left to
//! the kernel, by returning to the instruction that raised the signal. A signal sent by a process (`kill
//! -SEGV`) gets lost that way. A daemon has no one to report a stack overflow to, but a monitor that waits
//! for it to end.
//!
//! Source: signal(7), sigaction(2) (`si_code`).

/// The signals that the runtime catches.
const CAUGHT: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// From now on these signals end the process, whatever raised them.
pub fn end_at_once() {
    for signal in CAUGHT {
        // SAFETY: setting the default action takes no pointer of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
