//! Sleeping until a packet comes: a set of descriptors, and a bell that other threads ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The descriptors that a worker sleeps on.
pub struct Waiter {
    set: Set,
    bell: Arc<Bell>,
}

/// Wakes a [`Waiter`] from any thread. Ringing it again before it is cleared costs one atomic exchange and no
/// system call.
///
/// Clear it *before* looking for work: what is published before a ring is then seen after the clear.
pub struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    /// A bell on its own, for a thread that waits by other means.
    pub fn new() -> io::Result<Bell> {
        // SAFETY: eventfd takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor, and nothing else owns it.
        Ok(Bell { fd: unsafe { OwnedFd::from_raw_fd(fd) }, rung: AtomicBool::new(false) })
    }

    /// Wakes the waiter, or lets its next wait return at once.
    pub fn ring(&self) {
        protocol::ring(&self.rung, || {
            let one = 1u64.to_ne_bytes();
            // A full counter (2^64 - 2 rings) would refuse: it is readable then, which is all we want.
            // SAFETY: the buffer is 8 bytes long and lives through the call.
            unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        });
    }

    /// Silences it.
    pub fn clear(&self) {
        protocol::clear(&self.rung, || {
            let mut count = [0u8; 8];
            // SAFETY: the buffer is 8 bytes long and lives through the call; the descriptor does not block.
            unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        });
    }

    /// Readable when it has been rung.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Waiter {
    /// A set that holds only its bell.
    pub fn new() -> io::Result<Waiter> {
        let waiter = Waiter { set: Set::new()?, bell: Arc::new(Bell::new()?) };
        waiter.add(waiter.bell.fd())?;
        Ok(waiter)
    }

    /// The bell, to give to others.
    pub fn bell(&self) -> Arc<Bell> {
        self.bell.clone()
    }

    /// Adds a descriptor: [`Self::wait`] returns while it is readable or in error.
    pub fn add(&self, fd: RawFd) -> io::Result<()> {
        self.set.add(fd)
    }

    /// Takes a descriptor out. One that is not in, or closed already, is no error.
    pub fn remove(&self, fd: RawFd) {
        self.set.remove(fd);
    }

    /// Sleeps until a descriptor is readable, the bell rings, or the time is over. Whatever happened, the
    /// caller polls all its queues then.
    pub fn wait(&self, timeout_ms: u32) {
        self.set.wait(timeout_ms.min(i32::MAX as u32) as i32);
        self.bell.clear();
    }
}

/// The descriptors, which Linux keeps for us: a sleep costs the same whatever their number.
#[cfg(target_os = "linux")]
struct Set(OwnedFd);

#[cfg(target_os = "linux")]
impl Set {
    fn new() -> io::Result<Set> {
        // SAFETY: epoll_create1 takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: epoll_create1 just returned this descriptor, and nothing else owns it.
        Ok(Set(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn add(&self, fd: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are the caller's and ours; `event` lives through the call.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn remove(&self, fd: RawFd) {
        // SAFETY: EPOLL_CTL_DEL ignores the event pointer.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    fn wait(&self, timeout_ms: i32) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: `events` has room for the number given and lives through the call.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, timeout_ms) };
    }
}

/// The descriptors, listed again at each sleep.
#[cfg(not(target_os = "linux"))]
struct Set(std::sync::Mutex<Vec<RawFd>>);

#[cfg(not(target_os = "linux"))]
impl Set {
    fn new() -> io::Result<Set> {
        Ok(Set(std::sync::Mutex::default()))
    }

    fn fds(&self) -> std::sync::MutexGuard<'_, Vec<RawFd>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn add(&self, fd: RawFd) -> io::Result<()> {
        self.fds().push(fd);
        Ok(())
    }

    fn remove(&self, fd: RawFd) {
        self.fds().retain(|&other| other != fd);
    }

    fn wait(&self, timeout_ms: i32) {
        let waits = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = self.fds().iter().map(waits).collect();
        // SAFETY: `polled` has as many elements as are named, and lives through the call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
    }
}

/// The orderings on which no ring is lost, apart from the descriptor, so that a model can check them.
mod protocol {
    use crate::flag::Flag;
    use std::sync::atomic::Ordering::AcqRel;

    /// `signal` makes the descriptor readable.
    #[inline]
    pub(super) fn ring(rung: &impl Flag, signal: impl FnOnce()) {
        // Release, even if it was rung already and nothing is written: a thread that clears it later sees
        // what was published before.
        if !rung.swap(true, AcqRel) {
            signal();
        }
    }

    /// `drain` makes it unreadable.
    #[inline]
    pub(super) fn clear(rung: &impl Flag, drain: impl FnOnce()) {
        drain();
        // After the draining: were it before, a ring in between would be eaten by it and leave `rung` set,
        // and no later one would write. In place: a ring that found it set, and wrote nothing, comes before
        // this; Acquire shows what was published before that ring. A plain store would not.
        rung.swap(false, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_bell_wakes_a_sleeper_and_a_ring_before_is_not_lost() {
        let waiter = Waiter::new().unwrap();
        waiter.bell().ring();
        let start = Instant::now();
        waiter.wait(5_000);
        let bell = waiter.bell();
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            bell.ring();
        });
        waiter.wait(5_000);
        assert!(start.elapsed() < Duration::from_secs(4));
        ringer.join().unwrap();
    }

    #[test]
    fn without_a_ring_the_time_runs_out() {
        let start = Instant::now();
        Waiter::new().unwrap().wait(15);
        assert!(start.elapsed() >= Duration::from_millis(14));
    }
}

/// All interleavings, and all that the memory model lets each load see, of a thread that publishes and rings
/// twice and one that clears and looks; with twins that lack one ordering each and must be found out.
#[cfg(test)]
mod model {
    use super::protocol;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

    #[derive(Clone, Copy, PartialEq)]
    enum Twin {
        Faithful,
        /// Rings without Release.
        RingsWithoutRelease,
        /// Clears by a plain store, as strong as one can be.
        ClearsByStore,
        /// Clears without Acquire.
        ClearsWithoutAcquire,
        /// Clears before it drains.
        ClearsFirst,
    }

    #[derive(Default)]
    struct World {
        rung: AtomicBool,
        /// The descriptor is readable. The kernel orders writing and reading it.
        readable: AtomicBool,
        published: [AtomicU64; 2],
    }

    fn ring(world: &World, twin: Twin) {
        let signal = || _ = world.readable.swap(true, AcqRel);
        match twin {
            Twin::RingsWithoutRelease if world.rung.swap(true, Acquire) => {}
            Twin::RingsWithoutRelease => signal(),
            _ => protocol::ring(&world.rung, signal),
        }
    }

    fn clear(world: &World, twin: Twin) {
        let drain = || _ = world.readable.swap(false, AcqRel);
        match twin {
            Twin::ClearsByStore => {
                drain();
                world.rung.store(false, std::sync::atomic::Ordering::SeqCst);
            }
            Twin::ClearsWithoutAcquire => {
                drain();
                world.rung.swap(false, Release);
            }
            Twin::ClearsFirst => {
                world.rung.swap(false, AcqRel);
                drain();
            }
            _ => protocol::clear(&world.rung, drain),
        }
    }

    fn run(twin: Twin) {
        loom::model(move || {
            let world = Arc::new(World::default());
            let shared = world.clone();
            let ringer = loom::thread::spawn(move || {
                for published in &shared.published {
                    published.store(1, Relaxed);
                    ring(&shared, twin);
                }
            });
            // What each of two wake-ups finds.
            let mut seen = [0; 2];
            for _ in 0..2 {
                clear(&world, twin);
                for (seen, published) in seen.iter_mut().zip(&world.published) {
                    *seen |= published.load(Relaxed);
                }
            }
            ringer.join().unwrap();
            assert!(seen == [1; 2] || world.readable.load(Relaxed), "it sleeps, and work waits");
        });
    }

    fn is_found_out(twin: Twin) -> bool {
        std::panic::catch_unwind(|| run(twin)).is_err()
    }

    #[test]
    fn who_clears_the_bell_sees_what_was_published_or_wakes_again() {
        run(Twin::Faithful);
    }

    #[test]
    fn a_bell_without_one_of_its_orderings_is_found_out() {
        assert!(is_found_out(Twin::RingsWithoutRelease));
        assert!(is_found_out(Twin::ClearsByStore));
        assert!(is_found_out(Twin::ClearsWithoutAcquire));
        assert!(is_found_out(Twin::ClearsFirst));
    }
}
