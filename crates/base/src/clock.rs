//! The processor's time stamp counter, its rate, and time as tests control it: stopped, and warped.
//!
//! All timeouts in the switch use [`now`], or a count of milliseconds derived from [`stopped_tsc`] and
//! [`warped_ms`], so that a command moves all of them at once. In production [`stop`] and [`warp`] are never
//! called, and the cost is a load of a line that is never written.
//!
//! Threads: any reads; one thread stops and warps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How time is bent, in a cache line of its own.
#[repr(align(64))]
struct Bent {
    /// The value at which the time stamp counter was stopped; the maximum while it runs.
    stopped_tsc: AtomicU64,
    warped_ms: AtomicU64,
}

static BENT: Bent = Bent { stopped_tsc: AtomicU64::new(u64::MAX), warped_ms: AtomicU64::new(0) };
/// When time was stopped.
static STOPPED: OnceLock<Instant> = OnceLock::new();

/// Stops time, for good: from now on it moves by [`warp`] alone.
pub fn stop() {
    STOPPED.get_or_init(|| {
        BENT.stopped_tsc.store(tsc(), Ordering::Relaxed);
        Instant::now()
    });
}

/// Moves time forward.
pub fn warp(ms: u64) {
    BENT.warped_ms.fetch_add(ms, Ordering::Relaxed);
}

/// Milliseconds by which time was warped.
#[inline(always)]
pub fn warped_ms() -> u64 {
    BENT.warped_ms.load(Ordering::Relaxed)
}

/// The value at which the time stamp counter was stopped; `u64::MAX` while time runs.
#[inline(always)]
pub fn stopped_tsc() -> u64 {
    BENT.stopped_tsc.load(Ordering::Relaxed)
}

/// Now, as bent.
pub fn now() -> Instant {
    let real = match STOPPED.get() {
        Some(stopped) => *stopped,
        None => Instant::now(),
    };
    real + Duration::from_millis(warped_ms())
}

/// Ticks of the time stamp counter (TSC cycles on x86-64; the generic timer elsewhere, or nanoseconds).
#[inline(always)]
pub fn tsc() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC exists on every x86-64 processor and touches no memory.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Ticks of [`tsc`] per second, measured once against the monotonic clock over 20 ms.
pub fn tsc_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        let (t0, c0) = (Instant::now(), tsc());
        std::thread::sleep(Duration::from_millis(20));
        let (t1, c1) = (Instant::now(), tsc());
        ((c1 - c0) as u128 * 1_000_000_000 / (t1 - t0).as_nanos().max(1)) as u64
    })
}

/// Nanoseconds that this thread has spent on a processor: for measuring on machines that do other things too.
pub fn thread_cpu_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid place for a timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    assert_eq!(failed, 0, "every thread has a clock of its CPU time");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time of a thread of this process in nanoseconds, user and system together; `None` if it is gone.
pub fn cpu_time_ns(thread_id: i32) -> Option<u64> {
    time_of(thread_id, 6)
}

/// CPU time of all threads that a process has or had, in nanoseconds, user and system together; `None` if it
/// is gone. The time of a thread that runs is up to a tick of the kernel late.
pub fn process_cpu_time_ns(process_id: i32) -> Option<u64> {
    time_of(process_id, 2)
}

/// A clock by the id of a thread or a process: the complement in the high bits, and 6 for "a thread's
/// scheduled time" or 2 for that of a process (linux/posix-timers.h).
fn time_of(id: i32, kind: i32) -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        // Others have no room in the number of a clock.
        if !(1..1 << 28).contains(&id) {
            return None;
        }
        let clock = (!id << 3) | kind;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` lives through the call; an id that nobody has is an error, not a fault.
        let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
        (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (id, kind);
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_uses_time_and_a_missing_one_has_none() {
        // SAFETY: gettid takes nothing and cannot fail.
        let me = unsafe { libc::gettid() };
        let before = cpu_time_ns(me).unwrap();
        let end = Instant::now() + Duration::from_millis(5);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        assert!(cpu_time_ns(me).unwrap() > before);
        let of_thread = cpu_time_ns(me).unwrap();
        // SAFETY: getpid takes nothing and cannot fail.
        let process = unsafe { libc::getpid() };
        assert!(process_cpu_time_ns(process).unwrap() >= of_thread);
        assert_eq!((cpu_time_ns(0), process_cpu_time_ns(i32::MAX)), (None, None));
    }
}
