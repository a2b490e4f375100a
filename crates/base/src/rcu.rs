//! Read-copy-update by quiescent states (QSBR): readers run without any barrier, and the single writer frees
//! what it unlinked only after every reader has passed a point where it holds no reference.
//!
//! Idea: each worker owns a slot in the [`Domain`]. Once per loop, holding no reference to protected data, it
//! copies the domain's epoch into its slot ([`Reader::quiescent`]: one load and a compare while the epoch
//! does not change). The writer unlinks objects, increments the epoch and keeps the objects with that epoch;
//! when every slot has reached it, no reader can still see them. A sleeping worker is offline
//! ([`Reader::while_offline`]), so that it never delays the writer.
//!
//! References from a container borrow the `Reader`, and `quiescent` takes it mutably: the compiler refuses a
//! reference that is kept across a quiescent point.
//!
//! Why it is sound. Let X be unlinked, then stamped with epoch e (the epoch is counted up to e after the
//! unlinking).
//! - A reader that announces e has loaded e from the epoch with Acquire. The writer's increment released the
//!   unlinking before it, so all that the reader loads later sees X unlinked. No fence is needed between the
//!   announcement and later reads: they are ordered behind the *load* of the epoch, and what they need (that
//!   X is unlinked) was true before the reader's announcement could be.
//! - The announcement is a Release store and the writer loads it with Acquire: what the reader read of X
//!   before happened before X is freed.
//! - An unchanged epoch needs no announcement: the slot says it already, and nothing stamped later waits for
//!   less.
//! - Coming online differs: until its slot is seen the writer does not wait for this reader at all. So the
//!   store of the slot must be visible before the first read (fence, SeqCst), and the writer must look at the
//!   slots after its unlinking is visible (fence, SeqCst): of these two fences one comes first, and either
//!   the writer sees the reader online, or the reader sees X unlinked.
//!
//! Threads: any thread may defer and reclaim (a mutex orders them; in practice the control thread); any
//! number of readers, each used by one thread at a time.
//!
//! Source: the scheme of liburcu's QSBR flavour.

use protocol::{announce, come_online, go_offline, next_epoch, oldest};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The value of a reader's slot while it holds no reference and needs none.
const OFFLINE: u64 = u64::MAX;

/// The accesses to epoch and slots, apart from the rest so that a model checker can run the very same ones.
mod protocol {
    use super::OFFLINE;
    use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

    /// A word shared between threads: the processor's, or a model's.
    pub(super) trait Word {
        fn load(&self, order: Ordering) -> u64;
        fn store(&self, value: u64, order: Ordering);
        fn fetch_add(&self, value: u64, order: Ordering) -> u64;
        fn fence(order: Ordering);
    }

    impl Word for std::sync::atomic::AtomicU64 {
        #[inline(always)]
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        #[inline(always)]
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
        #[inline(always)]
        fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.fetch_add(value, order)
        }
        #[inline(always)]
        fn fence(order: Ordering) {
            std::sync::atomic::fence(order);
        }
    }

    /// Reader: quiescent. `seen` is what the slot says.
    #[inline(always)]
    pub(super) fn announce<W: Word>(epoch: &W, slot: &W, seen: &mut u64) {
        // Acquire: what was unlinked before the epoch became this is unlinked for all my later reads.
        let now = epoch.load(Acquire);
        if now != *seen {
            *seen = now;
            // Release: my reads of protected data stay before this store.
            slot.store(now, Release);
        }
    }

    /// Reader: from now on the writer waits for me.
    pub(super) fn come_online<W: Word>(epoch: &W, slot: &W, seen: &mut u64) {
        *seen = epoch.load(Acquire);
        slot.store(*seen, Relaxed);
        // My reads come after this store is visible; pairs with the fence of `oldest`.
        W::fence(SeqCst);
    }

    /// Reader: holds nothing until `come_online`.
    pub(super) fn go_offline<W: Word>(slot: &W) {
        slot.store(OFFLINE, Release);
    }

    /// Writer: the stamp of what is unlinked already.
    pub(super) fn next_epoch<W: Word>(epoch: &W) -> u64 {
        // Release: the unlinking comes before.
        epoch.fetch_add(1, AcqRel) + 1
    }

    /// Writer: what is stamped with this or less is seen by no reader.
    pub(super) fn oldest<'a, W: Word + 'a>(slots: impl Iterator<Item = &'a W>) -> u64 {
        // Pairs with the fence of `come_online`.
        W::fence(SeqCst);
        // Acquire: what a reader did before its announcement happened before we free.
        slots.map(|slot| slot.load(Acquire)).min().unwrap_or(OFFLINE)
    }
}

/// Garbage that shares an epoch: a batch is closed when it has this many pieces, or at the next reclaim.
const BATCH_MAX: usize = 4096;

/// The set of readers, the epoch, and what waits to be freed.
pub struct Domain {
    epoch: AtomicU64,
    readers: Mutex<Vec<Arc<Slot>>>,
    deferred: Mutex<Deferred>,
}

/// What [`Domain::reclaim_some`] has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reclaimed {
    /// Objects that still wait.
    pub left: usize,
    /// Whether some of them can be freed already.
    pub has_more: bool,
}

#[derive(Default)]
struct Deferred {
    /// Unlinked, not yet stamped.
    open: Vec<Garbage>,
    /// Stamped, oldest first.
    closed: VecDeque<(u64, Vec<Garbage>)>,
    /// Pieces in `closed`.
    closed_len: usize,
}

impl Deferred {
    fn close(&mut self, epoch: &AtomicU64) {
        if !self.open.is_empty() {
            self.closed_len += self.open.len();
            let stamp = next_epoch(epoch);
            self.closed.push_back((stamp, std::mem::take(&mut self.open)));
        }
    }
}

/// One owned object and how to free it: a `Box<dyn Send>` without the box's own allocation for thin pointers.
#[allow(dead_code)] // Held for the sake of being dropped.
pub(crate) enum Garbage {
    Boxed(Box<dyn Send>),
    Raw(RawGarbage),
}

pub(crate) struct RawGarbage {
    object: NonNull<()>,
    free: unsafe fn(NonNull<()>),
}

// SAFETY: `Garbage::raw` demands an object that may be freed from any thread.
unsafe impl Send for RawGarbage {}

impl Drop for RawGarbage {
    fn drop(&mut self) {
        // SAFETY: `Garbage::raw`'s caller vouched for the pair, and this runs once.
        unsafe { (self.free)(self.object) }
    }
}

impl Garbage {
    /// `free(object)` will be called once, from any thread.
    ///
    /// # Safety
    /// `object` is owned by the caller, unlinked, of a `Send` type, and `free` is the function that frees it.
    pub(crate) unsafe fn raw(object: NonNull<()>, free: unsafe fn(NonNull<()>)) -> Garbage {
        Garbage::Raw(RawGarbage { object, free })
    }
}

#[repr(align(128))]
struct Slot {
    seen: AtomicU64,
}

impl Default for Domain {
    fn default() -> Self {
        Domain { epoch: AtomicU64::new(1), readers: Mutex::default(), deferred: Mutex::default() }
    }
}

impl Domain {
    /// A domain with no readers.
    pub fn new() -> Arc<Domain> {
        Arc::new(Domain::default())
    }

    /// Adds a reader, online at the current epoch. Dropping it takes it out.
    pub fn register(self: &Arc<Self>) -> Reader {
        let slot = Arc::new(Slot { seen: AtomicU64::new(OFFLINE) });
        self.readers.lock().expect("no reader panics here").push(slot.clone());
        let mut reader = Reader { domain: self.clone(), slot, seen: OFFLINE };
        reader.online();
        reader
    }

    /// Writer: frees `garbage`, which must already be unlinked, once no reader can see it. Takes effect with
    /// a later [`Self::reclaim`].
    pub fn defer(&self, garbage: Box<dyn Send>) {
        self.defer_garbage(Garbage::Boxed(garbage));
    }

    pub(crate) fn defer_garbage(&self, garbage: Garbage) {
        let mut deferred = self.deferred.lock().expect("no holder panics");
        deferred.open.push(garbage);
        if deferred.open.len() >= BATCH_MAX {
            deferred.close(&self.epoch);
        }
    }

    /// Writer: frees all that has become free, and says how many objects still wait. Call it regularly: what
    /// was deferred since the last call begins to wait for the readers now.
    pub fn reclaim(&self) -> usize {
        self.reclaim_up_to(usize::MAX).left
    }

    /// Writer: the same, but for at most a few thousand objects, so that the caller is not held up.
    pub fn reclaim_some(&self) -> Reclaimed {
        self.reclaim_up_to(BATCH_MAX)
    }

    fn reclaim_up_to(&self, max: usize) -> Reclaimed {
        self.deferred.lock().expect("no holder panics").close(&self.epoch);
        let safe = self.oldest_seen();
        let mut deferred = self.deferred.lock().expect("no holder panics");
        // At least the first batch, since no batch is larger.
        let mut pieces = 0;
        let mut fits = |batch: &[Garbage]| {
            pieces += batch.len();
            pieces <= max
        };
        let free = deferred.closed.iter().take_while(|(stamp, batch)| *stamp <= safe && fits(batch)).count();
        let freed: Vec<_> = deferred.closed.drain(..free).collect();
        deferred.closed_len -= freed.iter().map(|(_, batch)| batch.len()).sum::<usize>();
        let left = deferred.closed_len + deferred.open.len();
        let has_more = deferred.closed.front().is_some_and(|(stamp, _)| *stamp <= safe);
        // Objects may defer others when they are dropped, so not under the lock.
        drop(deferred);
        drop(freed);
        Reclaimed { left, has_more }
    }

    /// Writer, at its end: [`Self::reclaim`] until nothing more becomes free, with what the freed objects
    /// deferred.
    pub fn reclaim_all(&self) {
        let mut left = usize::MAX;
        loop {
            let before = std::mem::replace(&mut left, self.reclaim());
            if left == 0 || left >= before {
                return;
            }
        }
    }

    /// Writer: a ticket for [`Self::passed`]. What was published before it was taken is seen by every
    /// reader once `passed` says so.
    pub fn ticket(&self) -> u64 {
        next_epoch(&self.epoch)
    }

    /// Whether every reader has been quiescent since the ticket was taken.
    pub fn passed(&self, ticket: u64) -> bool {
        self.oldest_seen() >= ticket
    }

    fn oldest_seen(&self) -> u64 {
        let readers = self.readers.lock().expect("no reader panics here");
        oldest(readers.iter().map(|slot| &slot.seen))
    }
}

/// One reading thread's membership, and the proof that it is online: what containers hand out borrows it.
/// Not `Clone`: a slot has one writer.
pub struct Reader {
    domain: Arc<Domain>,
    slot: Arc<Slot>,
    /// The value of the slot.
    seen: u64,
}

impl Reader {
    /// Says: I hold no reference to protected data now (that it borrows mutably proves it). Call once per
    /// loop.
    #[inline]
    pub fn quiescent(&mut self) {
        announce(&self.domain.epoch, &self.slot.seen, &mut self.seen);
    }

    /// Runs `sleep` (waiting on file descriptors, say) while the writer waits for nothing from this reader.
    pub fn while_offline<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        struct Back<'a>(&'a mut Reader);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.online();
            }
        }
        go_offline(&self.slot.seen);
        let _back = Back(self);
        sleep()
    }

    /// Whether this reader protects objects of `domain`.
    #[inline(always)]
    pub fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    fn online(&mut self) {
        come_online(&self.domain.epoch, &self.slot.seen, &mut self.seen);
    }
}

impl Drop for Reader {
    /// The last reader takes all the garbage with it: what is deferred may itself hold the domain, which
    /// nothing would free then if no writer came by again.
    fn drop(&mut self) {
        go_offline(&self.slot.seen);
        let mut readers = self.domain.readers.lock().expect("no reader panics here");
        readers.retain(|s| !Arc::ptr_eq(s, &self.slot));
        let was_the_last = readers.is_empty();
        drop(readers);
        if was_the_last {
            self.domain.reclaim_all();
        }
    }
}

/// A value that is replaced as a whole: readers borrow the newest without waiting, replaced ones are freed
/// after a grace period.
pub struct RcuCell<T: Send + Sync + 'static> {
    domain: Arc<Domain>,
    /// From `Box::into_raw`; replaced and deferred only under `publisher`.
    value: AtomicPtr<T>,
    publisher: Mutex<()>,
}

impl<T: Send + Sync + 'static> RcuCell<T> {
    /// A cell whose readers are those of `domain`.
    pub fn new(domain: Arc<Domain>, value: T) -> RcuCell<T> {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        RcuCell { domain, value, publisher: Mutex::new(()) }
    }

    /// The newest value, for as long as the reader is not quiescent.
    ///
    /// Panics if `reader` is of another domain: that is a programming error.
    #[inline]
    pub fn read<'g>(&'g self, reader: &'g Reader) -> &'g T {
        assert!(reader.is_of(&self.domain), "the reader belongs to another domain");
        // SAFETY: the pointer came from a box; it is freed only after it was replaced and then every reader
        // of this domain was quiescent or offline, which `reader`, borrowed for 'g, cannot be; or by `Drop`
        // of the cell, which is borrowed for 'g too.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    /// Replaces the value.
    pub fn publish(&self, value: T) {
        self.update(|_| value);
    }

    /// Replaces the value with `next`'s result for it. Publishers wait for each other, so `next` must not
    /// publish to the same cell.
    pub fn update(&self, next: impl FnOnce(&T) -> T) {
        let _publisher = self.publisher.lock().expect("a publisher that panics leaves nothing half done");
        let old = self.value.load(Ordering::Relaxed);
        // SAFETY: only a publisher replaces the value, and we hold the publishers' lock.
        let new = next(unsafe { &*old });
        self.value.store(Box::into_raw(Box::new(new)), Ordering::Release);
        // SAFETY: the pointer came from `Box::into_raw` and is now unlinked; only this code frees it.
        let old = unsafe { Box::from_raw(old) };
        self.domain.defer(old);
    }
}

impl<T: Send + Sync + 'static> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw`, and `&mut self` proves that no borrow through the
        // cell exists.
        drop(unsafe { Box::from_raw(*self.value.get_mut()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn garbage_lives_until_every_reader_was_quiescent() {
        let domain = Domain::new();
        let (mut a, mut b) = (domain.register(), domain.register());
        let dropped = Arc::new(AtomicBool::new(false));
        domain.defer(Box::new(Flag(dropped.clone())));
        assert_eq!(domain.reclaim(), 1);
        a.quiescent();
        assert_eq!(domain.reclaim(), 1);
        assert!(!dropped.load(Ordering::SeqCst));
        b.while_offline(|| assert_eq!(domain.reclaim(), 0));
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn garbage_that_holds_its_domain_goes_with_the_last_reader() {
        let domain = Domain::new();
        let (first, last) = (domain.register(), domain.register());
        let inner = RcuCell::new(domain.clone(), 1);
        inner.publish(2);
        domain.defer(Box::new(inner));
        let gone = Arc::downgrade(&domain);
        drop((domain, first));
        assert!(gone.upgrade().is_some());
        drop(last);
        assert!(gone.upgrade().is_none());
    }

    #[test]
    fn a_reader_that_slept_protects_again() {
        let domain = Domain::new();
        let mut a = domain.register();
        a.while_offline(|| ());
        domain.defer(Box::new(1));
        assert_eq!(domain.reclaim(), 1);
        a.quiescent();
        assert_eq!(domain.reclaim(), 0);
    }

    #[test]
    fn a_ticket_passes_when_the_last_reader_leaves() {
        let domain = Domain::new();
        let reader = domain.register();
        let ticket = domain.ticket();
        assert!(!domain.passed(ticket));
        drop(reader);
        assert!(domain.passed(ticket));
    }

    #[test]
    fn a_replaced_value_stays_for_who_borrowed_it() {
        let domain = Domain::new();
        let dropped = Arc::new(AtomicBool::new(false));
        let cell = RcuCell::new(domain.clone(), Some(Flag(dropped.clone())));
        let mut reader = domain.register();
        let borrowed = cell.read(&reader);
        cell.publish(None);
        domain.reclaim();
        assert!(!borrowed.as_ref().unwrap().0.load(Ordering::SeqCst));
        assert!(cell.read(&reader).is_none());
        reader.quiescent();
        domain.reclaim();
        assert!(dropped.load(Ordering::SeqCst));
    }
}

/// All interleavings, and all that the memory model lets each load see, of one reader and the writer; with
/// twins that lack one ordering each and must be found out.
#[cfg(test)]
mod model {
    use super::OFFLINE;
    use super::protocol::{self, Word};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
        fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.fetch_add(value, order)
        }
        fn fence(order: Ordering) {
            loom::sync::atomic::fence(order);
        }
    }

    /// What a twin does in place of the protocol.
    #[derive(Clone, Copy, PartialEq)]
    enum Twin {
        Faithful,
        /// Announces an epoch that it loaded without Acquire.
        RelaxedEpoch,
        /// Announces without Release.
        RelaxedAnnouncement,
        /// Comes online without the fence.
        NoFence,
        /// The writer frees what it unlinked without waiting.
        NoWait,
    }

    struct World {
        epoch: AtomicU64,
        slot: AtomicU64,
        /// Which of the two objects is linked.
        linked: AtomicU64,
        objects: [UnsafeCell<u64>; 2],
    }

    // SAFETY: the cells are what the model checks: it panics where two threads may touch one at once.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    fn read(world: &World) {
        let at = world.linked.load(Acquire) as usize;
        // SAFETY: loom checks that there is no concurrent write; the value is a plain number.
        let value = world.objects[at].with(|object| unsafe { *object });
        assert_eq!(value, 7, "read what was freed");
    }

    fn run(twin: Twin, starts_offline: bool) {
        loom::model(move || {
            let slot = AtomicU64::new(if starts_offline { OFFLINE } else { 1 });
            let objects = [UnsafeCell::new(7), UnsafeCell::new(7)];
            let world =
                Arc::new(World { epoch: AtomicU64::new(1), slot, linked: AtomicU64::new(0), objects });
            let shared = world.clone();
            let reader = loom::thread::spawn(move || {
                let world = &*shared;
                let mut seen = 1;
                if starts_offline && twin == Twin::NoFence {
                    seen = world.epoch.load(Acquire);
                    world.slot.store(seen, Relaxed);
                } else if starts_offline {
                    protocol::come_online(&world.epoch, &world.slot, &mut seen);
                }
                read(world);
                match twin {
                    Twin::RelaxedEpoch => world.slot.store(world.epoch.load(Relaxed), Release),
                    Twin::RelaxedAnnouncement => world.slot.store(world.epoch.load(Acquire), Relaxed),
                    _ => protocol::announce(&world.epoch, &world.slot, &mut seen),
                }
                read(world);
            });
            world.linked.store(1, Release);
            let stamp = protocol::next_epoch(&world.epoch);
            if twin == Twin::NoWait || protocol::oldest([&world.slot].into_iter()) >= stamp {
                // SAFETY: loom checks that there is no concurrent read.
                world.objects[0].with_mut(|object| unsafe { *object = 0 });
            }
            reader.join().unwrap();
        });
    }

    fn is_found_out(twin: Twin, starts_offline: bool) -> bool {
        std::panic::catch_unwind(|| run(twin, starts_offline)).is_err()
    }

    #[test]
    fn nothing_is_freed_that_a_reader_sees() {
        run(Twin::Faithful, false);
        run(Twin::Faithful, true);
    }

    #[test]
    fn the_model_finds_out_each_missing_order() {
        assert!(is_found_out(Twin::NoWait, false));
        assert!(is_found_out(Twin::RelaxedEpoch, false));
        assert!(is_found_out(Twin::RelaxedAnnouncement, false));
        assert!(is_found_out(Twin::NoFence, true));
    }
}
