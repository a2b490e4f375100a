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
    pin_thread(0, Some(cpu))
}

/// Pins a thread of this process, by [`id`] (0: the calling one), to a processor, or with `None` lets it run on all. False where
/// there is no such processor or thread.
pub fn pin_thread(id: i32, cpu: Option<usize>) -> bool {
    #[cfg(target_os = "linux")]
    {
        let max = libc::CPU_SETSIZE as usize;
        if cpu.is_some_and(|cpu| cpu >= max) {
            return false;
        }
        // SAFETY: a cpu_set_t is a bit array, valid as zeros.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpu.map_or(0..max, |cpu| cpu..cpu + 1) {
            // SAFETY: `cpu < CPU_SETSIZE`, checked above.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: the set lives through the call.
        unsafe { libc::sched_setaffinity(id, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (id, cpu);
        false
    }
}
