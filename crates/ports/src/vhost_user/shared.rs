//! What a port's protocol thread and its queues share: the rings.
//!
//! A ring has at most one holder at a time ([`Held`]). A worker only ever *tries* to hold it, for one burst,
//! over several calls if tails are lent ([`Held::keep`]); if it fails (the protocol thread is changing the
//! ring, or another worker sends), it continues with something else. The protocol thread waits, at most one
//! burst long. A separate flag says whether there is a ring at all, so that polling a queue that the guest
//! does not use costs one load.
//!
//! A receive queue sleeps on a descriptor of its own that lasts as long as the port: an epoll set with the
//! kick descriptor that the guest provided.

use super::chain::Fault;
use super::counts::RingCounts;
use super::doorbell;
use super::ring::Ring;
use crate::wait::{Event, refused};
use crate::{PortError, QueueStats, stats};
use packet::{PortStats, QueueCounts, Share};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// How often a full ring is looked at again, unless `tx-retries-max` says otherwise.
pub(super) const RETRIES_DEFAULT: u32 = 8;

/// Maximum number of queue pairs of one guest.
pub const QUEUE_PAIRS_MAX: usize = 64;
/// Rings of one guest: two for each pair. The even ones are the guest's receive rings.
pub(super) const RINGS_MAX: usize = 2 * QUEUE_PAIRS_MAX;

/// Maximum number of addresses of one guest waiting to be announced.
pub(super) const ANNOUNCEMENTS_MAX: usize = 64;

/// How often the protocol thread looks whether a ring is still held.
const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(20);

/// A ring's place.
#[derive(Default)]
struct Place {
    is_there: AtomicBool,
    /// The guest has disabled the ring: what it sends there is discarded.
    is_disabled: AtomicBool,
    is_held: AtomicBool,
    slot: UnsafeCell<Slot>,
}

// SAFETY: the slot, which may go from thread to thread, is reached through `Held` alone, of which there is
// one at a time.
unsafe impl Sync for Place {}

/// A ring's place, held exclusively until this is dropped, or kept and taken up again.
pub(super) struct Held<'a> {
    place: &'a Place,
}

impl<'a> Held<'a> {
    #[inline(always)]
    fn try_new(place: &'a Place) -> Option<Held<'a>> {
        let is_free = place.is_held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Constructed only on success: dropping one would release another holder's place.
        if is_free.is_ok() { Some(Held { place }) } else { None }
    }

    /// Leaves the ring held, until [`Shared::take_up`].
    #[inline(always)]
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Deref for Held<'_> {
    type Target = Slot;

    #[inline(always)]
    fn deref(&self) -> &Slot {
        // SAFETY: the creator of this has set `is_held`, which no other finds clear before this is dropped.
        unsafe { &*self.place.slot.get() }
    }
}

impl DerefMut for Held<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Slot {
        // SAFETY: as above; this is borrowed for as long.
        unsafe { &mut *self.place.slot.get() }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.place.is_held.store(false, Ordering::Release);
    }
}

/// The protected contents.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) ring: Option<Ring>,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
}

/// What a receive queue sleeps on. Both descriptors in the set are edge-triggered, so that polling the set
/// consumes events and the guest's descriptor, which could be made to block, is never read.
struct Wait {
    epoll: OwnedFd,
    /// Signalled when the queue gets a ring, or something to announce.
    event: Event,
}

impl Wait {
    fn new() -> Result<Wait, PortError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused("make an epoll set"))?;
        let wait = Wait { epoll, event: Event::new()? };
        wait.add(wait.event.source())?;
        Ok(wait)
    }

    fn add(&self, fd: &OwnedFd) -> Result<(), PortError> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        match epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), events) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(refused("wait for a guest's notifications")(e)),
        }
    }

    fn remove(&self, fd: &OwnedFd) {
        // Absence is fine.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn drain(&self) {
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        // If polling fails, looking at the ring finds the packets.
        let _ = epoll::wait(&self.epoll, &mut [none; 2], Some(&Timespec::default()));
    }
}

/// A port's details for operators.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// The socket to which a client must connect; `None` as long as that is not known.
    pub(super) path: Option<PathBuf>,
    /// Why connecting is impossible, if the reason is other than that nothing listens yet.
    pub(super) unreachable: Option<String>,
    /// A guest's device is ready: its driver is at work, or was a moment ago.
    pub(super) is_connected: bool,
    pub(super) features: u64,
    /// Sizes of the rings that the front end has named, by number, including disabled ones.
    pub(super) ring_sizes: std::collections::BTreeMap<usize, u32>,
    /// Why the last connection ended, if it did not end normally, or why there is none.
    pub(super) error: Option<String>,
    pub(super) guest_mtu: Option<u32>,
    /// The address of a ring, for asking the kernel about its NUMA node. It may no longer be valid.
    pub(super) ring_at: Option<usize>,
    /// The kernel's last answer; 0 before the first.
    pub(super) numa_node: usize,
}

pub(super) struct Shared {
    places: Box<[Place]>,
    /// What each receive queue sleeps on, created with the queue.
    waits: Box<[OnceLock<Wait>]>,
    /// Which of the guest's receive rings are there, a bit for the ring of each pair. Only the ring's holder
    /// changes its bit, so the bit and `is_there` agree.
    to_guest: AtomicU64,
    /// Receive rings that have worked since the front end connected are below this.
    pub(super) rx_rings_seen: AtomicU32,
    features: AtomicU64,
    pub(super) admin_up: AtomicBool,
    pub(super) mtu: AtomicU32,
    /// How often a full ring is looked at again before its packets are left to the caller.
    pub(super) retries_max: AtomicU32,
    /// How much of the pool the packets that wait in transmit queues hold.
    pub(super) waiting: Share,
    pub(super) facts: Mutex<Facts>,
    /// Wakes the protocol thread: a ring is faulty, or the port is being removed or must connect elsewhere.
    pub(super) event: Event,
    pub(super) is_closing: AtomicBool,
    fault: Mutex<Option<Fault>>,
    /// Addresses that a guest which has just arrived wants announced.
    announcements: Mutex<Vec<[u8; 6]>>,
    has_announcements: AtomicBool,
    pub(super) rx_stats: Box<[QueueStats]>,
    /// Per ring, over all guests.
    pub(super) counts: Box<[Arc<RingCounts>]>,
    pub(super) tx_stats: Mutex<Vec<Arc<QueueStats>>>,
}

impl Shared {
    pub(super) fn new(mtu: u32) -> Result<Shared, PortError> {
        Ok(Shared {
            places: (0..RINGS_MAX).map(|_| Place::default()).collect(),
            waits: (0..QUEUE_PAIRS_MAX).map(|_| OnceLock::new()).collect(),
            to_guest: AtomicU64::new(0),
            rx_rings_seen: AtomicU32::new(0),
            features: AtomicU64::new(0),
            admin_up: AtomicBool::new(true),
            mtu: AtomicU32::new(mtu),
            retries_max: AtomicU32::new(RETRIES_DEFAULT),
            waiting: Share::default(),
            facts: Mutex::default(),
            event: Event::new()?,
            is_closing: AtomicBool::new(false),
            fault: Mutex::default(),
            announcements: Mutex::default(),
            has_announcements: AtomicBool::new(false),
            rx_stats: (0..QUEUE_PAIRS_MAX).map(|_| QueueStats::default()).collect(),
            tx_stats: Mutex::default(),
            counts: (0..RINGS_MAX).map(|_| Arc::default()).collect(),
        })
    }

    /// Whether the guest's driver is active.
    pub(super) fn is_running(&self) -> bool {
        self.tx_rings() > 0 && self.is_enabled(1)
    }

    #[inline(always)]
    pub(super) fn features(&self) -> u64 {
        self.features.load(Ordering::Relaxed)
    }

    pub(super) fn set_features(&self, features: u64) {
        self.features.store(features, Ordering::Relaxed);
        self.facts().features = features;
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("no panic while held")
    }

    pub(super) fn set_guest_mtu(&self, mtu: u32) {
        self.facts().guest_mtu = Some(mtu);
    }

    /// Over how many of the guest's receive rings transmit queues are spread: those up to the first that is
    /// not there.
    #[inline(always)]
    pub(super) fn tx_rings(&self) -> u32 {
        self.to_guest.load(Ordering::Relaxed).trailing_ones()
    }

    /// The ring, for one burst. `None` if there is none, or another thread holds it.
    #[inline(always)]
    pub(super) fn try_ring(&self, index: usize) -> Option<Held<'_>> {
        let place = &self.places[index];
        if place.is_there.load(Ordering::Relaxed) { Held::try_new(place) } else { None }
    }

    /// The ring that the caller has kept.
    ///
    /// # Safety
    /// The caller has called [`Held::keep`] for it, and not taken it up since.
    #[inline(always)]
    pub(super) unsafe fn take_up(&self, index: usize) -> Held<'_> {
        Held { place: &self.places[index] }
    }

    /// What the receive queue of a pair sleeps on.
    fn wait(&self, pair: usize) -> Result<&Wait, PortError> {
        if let Some(wait) = self.waits[pair].get() {
            return Ok(wait);
        }
        let wait = Wait::new()?;
        Ok(self.waits[pair].get_or_init(|| wait))
    }

    /// The descriptor that is readable when something happened to the pair's receive queue.
    pub(super) fn wait_fd(&self, pair: usize) -> Option<RawFd> {
        self.wait(pair).ok().map(|wait| wait.epoll.as_raw_fd())
    }

    /// Discards past events.
    pub(super) fn drain(&self, pair: usize) {
        if let Some(wait) = self.waits[pair].get() {
            wait.drain();
        }
    }

    /// The place, as soon as its holder releases it. For the protocol thread.
    fn wait_for(&self, index: usize) -> Held<'_> {
        loop {
            match Held::try_new(&self.places[index]) {
                Some(held) => return held,
                None => std::thread::sleep(LOOK_AGAIN_AFTER),
            }
        }
    }

    pub(super) fn give_ring(
        &self,
        index: usize,
        mut ring: Ring,
        kick: Option<Arc<OwnedFd>>,
        call: Option<Arc<OwnedFd>>,
    ) -> Result<(), PortError> {
        let is_rx = !index.is_multiple_of(2);
        if let (Some(kick), true) = (&kick, is_rx) {
            self.wait(index / 2)?.add(kick)?;
        }
        ring.want_notifications(false);
        // A guest that waits for buffers may have missed a predecessor's last notification.
        ring.is_call_due = true;
        let mut slot = self.wait_for(index);
        self.places[index].is_disabled.store(ring.is_disabled, Ordering::Relaxed);
        *slot = Slot { ring: Some(ring), kick, call };
        slot.call();
        self.places[index].is_there.store(true, Ordering::Release);
        self.note(index, true);
        drop(slot);
        if is_rx {
            self.rx_rings_seen.fetch_max(index as u32 / 2 + 1, Ordering::Relaxed);
            self.wake(index / 2);
        }
        if self.is_running() {
            let mut facts = self.facts();
            facts.is_connected = true;
            facts.error = None;
        }
        Ok(())
    }

    /// The guest's driver has stopped: there is no device until rings are given again.
    pub(super) fn device_stopped(&self) {
        self.facts().is_connected = false;
    }

    pub(super) fn is_device(&self) -> bool {
        self.facts().is_connected
    }

    /// Whether there is a ring, held or not.
    pub(super) fn is_there(&self, index: usize) -> bool {
        self.places.get(index).is_some_and(|place| place.is_there.load(Ordering::Relaxed))
    }

    /// Whether there is one, and the guest uses it.
    pub(super) fn is_enabled(&self, index: usize) -> bool {
        self.is_there(index) && !self.places[index].is_disabled.load(Ordering::Relaxed)
    }

    pub(super) fn take_ring(&self, index: usize) -> Option<Ring> {
        self.places[index].is_there.store(false, Ordering::Release);
        let taken = {
            let mut slot = self.wait_for(index);
            self.note(index, false);
            std::mem::take(&mut *slot)
        };
        // Also if the ring was faulty: the guest may keep the descriptor, which would then stay in the set.
        if let (Some(kick), Some(wait)) = (&taken.kick, self.waits[index / 2].get()) {
            wait.remove(kick);
        }
        taken.ring
    }

    pub(super) fn set_call(&self, index: usize, call: Option<Arc<OwnedFd>>) {
        let mut slot = self.wait_for(index);
        slot.call = call;
        if let Some(ring) = &mut slot.ring {
            // Events on the old descriptor may have been lost.
            ring.is_call_due = true;
        }
        slot.call();
        drop(slot);
        // It may have gone to sleep meanwhile, without the ring.
        self.wake(index / 2);
    }

    /// Notes in `to_guest` whether a ring is there. For its holder.
    fn note(&self, index: usize, is_there: bool) {
        let bit = if index.is_multiple_of(2) { 1 << (index / 2) } else { 0 };
        match is_there {
            true => self.to_guest.fetch_or(bit, Ordering::Relaxed),
            false => self.to_guest.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Lets the worker that sleeps on this pair look again.
    fn wake(&self, pair: usize) {
        if let Some(wait) = self.waits[pair].get() {
            wait.event.signal();
        }
    }

    /// The same for all pairs.
    pub(super) fn wake_all(&self) {
        (0..QUEUE_PAIRS_MAX).for_each(|pair| self.wake(pair));
    }

    /// Notes what a ring did wrong. The protocol thread closes the connection, and with it all its rings. A
    /// ring that only lacks memory rests until the front end adds some: no worker looks at it meanwhile.
    #[cold]
    pub(super) fn fail(&self, index: usize, slot: &mut Slot, fault: Fault) {
        self.places[index].is_there.store(false, Ordering::Relaxed);
        self.note(index, false);
        if slot.ring.as_ref().is_some_and(|ring| ring.waits_for(fault)) {
            // The protocol thread is not woken: it would break off the message that it is busy with.
            self.lacks_memory(fault);
        } else {
            slot.ring = None;
            self.fault.lock().expect("no panic while held").get_or_insert(fault);
            self.event.signal();
        }
    }

    /// Tells operators why a ring rests.
    pub(super) fn lacks_memory(&self, fault: Fault) {
        self.facts().error = Some(format!("the guest waits for memory that was removed: {}", fault.0));
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.lock().expect("no panic while held").take()
    }

    /// Queues a reverse ARP for this address to be sent into the switch, as a freshly migrated guest
    /// requests. False if the maximum number is already waiting.
    pub(super) fn announce(&self, mac: [u8; 6]) -> bool {
        let mut waiting = self.announcements.lock().expect("no panic while held");
        if waiting.len() == ANNOUNCEMENTS_MAX {
            return false;
        }
        waiting.push(mac);
        self.has_announcements.store(true, Ordering::Release);
        drop(waiting);
        self.wake(0);
        true
    }

    #[inline(always)]
    pub(super) fn has_announcements(&self) -> bool {
        self.has_announcements.load(Ordering::Relaxed)
    }

    pub(super) fn take_announcement(&self) -> Option<[u8; 6]> {
        let mut waiting = self.announcements.lock().expect("no panic while held");
        let mac = waiting.pop();
        self.has_announcements.store(!waiting.is_empty(), Ordering::Release);
        mac
    }

    pub(super) fn stats(&self) -> PortStats {
        let tx = self.tx_stats.lock().expect("no panic while held");
        stats::sum(self.rx_stats.iter(), tx.iter().map(|q| &**q))
    }

    /// The number of queue pairs that a guest has named or used, at least one.
    pub(super) fn queue_counts(&self) -> Vec<QueueCounts> {
        let of = |pair: &[Arc<RingCounts>]| QueueCounts { rx: pair[1].get(), tx: pair[0].get() };
        let mut all: Vec<QueueCounts> = self.counts.chunks_exact(2).map(of).collect();
        let named = self.facts().ring_sizes.keys().next_back().map_or(1, |ring| ring / 2 + 1);
        let used = all.iter().rposition(|pair| *pair != QueueCounts::default()).map_or(0, |last| last + 1);
        all.truncate(named.max(used));
        all
    }
}

impl Slot {
    /// Notifies the guest if that is due.
    #[inline(always)]
    pub(super) fn call(&mut self) {
        if let Some(ring) = &mut self.ring
            && ring.is_call_due
        {
            ring.is_call_due = false;
            if let Some(call) = &self.call {
                ring.count_call();
                doorbell::ring(call);
            }
        }
    }

    /// Whether the guest sends notifications; if not, it must be polled.
    pub(super) fn has_kick(&self) -> bool {
        self.kick.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost_user::chain::{Direction, KeptHeaders, RingParts};
    use crate::vhost_user::memory::{Extent, GuestMemory, Mapped};
    use crate::vhost_user::message::{Region, VringAddr};
    use crate::vhost_user::split::Split;

    /// A ring to the guest, of whose memory a part was removed.
    fn ring() -> Ring {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 16).unwrap();
        let extent = Extent::default();
        let region = Region { guest: 0x1000, len: 1 << 16, user: 0x10_0000, offset: 0 };
        let mapped = Arc::new(Mapped::new(region, &file, &extent).unwrap());
        let memory = Arc::new(GuestMemory::new(vec![mapped], extent).unwrap());
        let [desc, avail, used] = [0, 0x100, 0x180].map(|at| region.user + at);
        let addr = VringAddr { index: 0, is_logged: false, desc, used, avail, log: 0 };
        let split = Split::new(&memory, &addr, 16, false).unwrap();
        let parts = RingParts {
            memory,
            lacks_memory: true,
            log: None,
            direction: Direction::ToGuest,
            is_mergeable: true,
            header_len: 12,
            counts: Arc::default(),
            kept_headers: KeptHeaders::default(),
        };
        Ring::split(split, 16, parts)
    }

    #[test]
    fn rings_that_come_and_come_to_rest_at_once_are_counted_right() {
        const TURNS: u32 = 30_000;
        let shared = Shared::new(1500).unwrap();
        let give = |index, ring| shared.give_ring(index, ring, None, None).unwrap();
        let (mut first, mut second) = (Some(ring()), Some(ring()));
        // The turn that begins, and the one that the worker has ended.
        let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        let wait_for = |turn: u32, of: &AtomicU32| {
            let is_there = || of.load(Ordering::Acquire) >= turn;
            while !(0..1_000).any(|_| is_there()) {
                std::thread::yield_now();
            }
        };
        let mut wrong = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=TURNS {
                    wait_for(turn, &begun);
                    let mut slot = shared.try_ring(2).expect("nobody else holds it");
                    shared.fail(2, &mut slot, Fault::BUFFER_OUTSIDE);
                    drop(slot);
                    ended.store(turn, Ordering::Release);
                }
            });
            for turn in 1..=TURNS {
                give(2, second.take().unwrap());
                begun.store(turn, Ordering::Release);
                // Each time at another moment.
                (0..turn % 20).for_each(|_| std::hint::spin_loop());
                give(0, first.take().unwrap());
                wait_for(turn, &ended);
                wrong += u32::from(shared.tx_rings() != 1);
                (first, second) = (shared.take_ring(0), shared.take_ring(2));
            }
        });
        assert_eq!(wrong, 0, "of {TURNS}");
    }
}
