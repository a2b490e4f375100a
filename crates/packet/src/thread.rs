//! The few things that workers ask of their thread.

/// The operating system's id of the calling thread, as under /proc/self/task.
pub fn id() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: gettid takes nothing and cannot fail.
    return unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// Pins the calling thread to a processor. False where there is no such processor (the thread then stays unpinned).
pub fn pin(cpu: usize) -> bool {
    #[cfg(target_os = "linux")]
    {
        if cpu >= libc::CPU_SETSIZE as usize {
            return false;
        }
        // SAFETY: a cpu_set_t is a bit array, valid as zeros.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `cpu < CPU_SETSIZE`, checked above.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: the set lives through the call; 0 means this thread.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = cpu;
        false
    }
}
