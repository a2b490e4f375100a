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

/// CPU time of a thread of this process in nanoseconds, user and system together; `None` where it is gone.
pub fn cpu_time_ns(thread_id: i32) -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        if thread_id <= 0 {
            return None;
        }
        // The clock of a thread by its id: the complement in the high bits, 6 for "a thread's scheduled time"
        // (linux/posix-timers.h).
        let clock = (!thread_id << 3) | 6;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` lives through the call; an id that is no thread of ours is an error, not a fault.
        let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
        (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = thread_id;
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_uses_time_and_a_missing_one_has_none() {
        let before = cpu_time_ns(id()).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(5);
        while std::time::Instant::now() < end {
            std::hint::spin_loop();
        }
        assert!(cpu_time_ns(id()).unwrap() > before);
        assert_eq!(cpu_time_ns(0), None);
    }
}
