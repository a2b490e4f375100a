//! Read-copy-update by quiescent states (QSBR): readers run without any barrier, the one writer frees
//! what it unlinked only after every reader has passed a point where it holds no reference.
//!
//! Idea: each worker owns a slot in the [`Domain`]. Once per loop, holding no reference to protected
//! data, it copies the domain's epoch into its slot ([`Reader::quiescent`]: one load, one store). The
//! writer unlinks an object, counts the epoch up and keeps the object with that epoch; when every slot
//! has reached it, no reader can still see the object. A worker that sleeps goes offline first, so that
//! it never delays the writer.
//!
//! Threads: one writer (the control thread) at a time, enforced by `Mutex` around the deferred list;
//! any number of readers, each from one thread.
//!
//! Source: the scheme of liburcu's QSBR flavour.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A reader's slot says this while it holds no reference and needs none.
const OFFLINE: u64 = u64::MAX;

/// The set of readers, the epoch, and what waits to be freed.
pub struct Domain {
    epoch: AtomicU64,
    readers: Mutex<Vec<Arc<Slot>>>,
    deferred: Mutex<Vec<(u64, Box<dyn Send>)>>,
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
        let reader = Reader { domain: self.clone(), slot };
        reader.online();
        reader
    }

    /// Writer: frees `garbage`, which must already be unlinked, once no reader can see it.
    pub fn defer(&self, garbage: Box<dyn Send>) {
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst) + 1;
        self.deferred.lock().expect("no dropper panics").push((epoch, garbage));
    }

    /// Writer: frees all that has become free, and says how much still waits.
    pub fn reclaim(&self) -> usize {
        let safe = self.oldest_seen();
        let mut deferred = self.deferred.lock().expect("no dropper panics");
        let freed: Vec<_> = deferred.extract_if(.., |(epoch, _)| *epoch <= safe).collect();
        let left = deferred.len();
        drop(deferred);
        drop(freed);
        left
    }

    /// Writer: a ticket for [`Self::passed`]. What was published before it was taken is seen by every
    /// reader once `passed` says so.
    pub fn ticket(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether every reader has been quiescent since the ticket was taken.
    pub fn passed(&self, ticket: u64) -> bool {
        self.oldest_seen() >= ticket
    }

    fn oldest_seen(&self) -> u64 {
        let readers = self.readers.lock().expect("no reader panics here");
        // Acquire: what a reader did before its quiescent point happened before we free.
        readers.iter().map(|s| s.seen.load(Ordering::Acquire)).min().unwrap_or(OFFLINE)
    }
}

/// One reading thread's membership. Not `Clone`: a slot has one writer.
pub struct Reader {
    domain: Arc<Domain>,
    slot: Arc<Slot>,
}

impl Reader {
    /// Says: I hold no reference to protected data now. Call once per loop.
    #[inline]
    pub fn quiescent(&self) {
        let epoch = self.domain.epoch.load(Ordering::SeqCst);
        // Release: my reads of protected data stay before this store.
        self.slot.seen.store(epoch, Ordering::Release);
        // Reads after this point must not be satisfied from before the store (x86 may delay the store
        // past later loads): the writer would count us as having seen what we have not.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Before sleeping: holds no reference until [`Self::online`].
    pub fn offline(&self) {
        self.slot.seen.store(OFFLINE, Ordering::Release);
    }

    /// After sleeping.
    pub fn online(&self) {
        self.quiescent();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.offline();
        let mut readers = self.domain.readers.lock().expect("no reader panics here");
        readers.retain(|s| !Arc::ptr_eq(s, &self.slot));
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
        let (a, b) = (domain.register(), domain.register());
        let dropped = Arc::new(AtomicBool::new(false));
        domain.defer(Box::new(Flag(dropped.clone())));
        a.quiescent();
        assert_eq!(domain.reclaim(), 1);
        assert!(!dropped.load(Ordering::SeqCst));
        b.offline();
        assert_eq!(domain.reclaim(), 0);
        assert!(dropped.load(Ordering::SeqCst));
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
}
