//! A transmit queue that several workers share, because its port has fewer queues than there are workers.
//!
//! No worker waits for another: one that finds the queue in use leaves its packets beside it and continues,
//! and the worker that has the queue sends them before it continues itself. The number of packets waiting
//! there is bounded; beyond that the sender keeps its packets, and drops and counts them as if the device
//! were full.
//!
//! Invariant: no packet is left behind. A worker that releases the queue afterwards checks whether something
//! was left meanwhile, and a worker that leaves something afterwards tries the queue once more. One of the
//! two sees the other, since both change the same flag in place ([`protocol`]; modelled below, with twins
//! that each lack one ordering).
//!
//! A worker's packets keep their order: it leaves them where it left the previous ones, and what was left is
//! sent first.

use crate::{BURST, Batch, Packet, TxQueue};
use crossbeam_queue::ArrayQueue;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of packets waiting beside a queue in use.
const WAITING_MAX: usize = 4 * BURST;
/// How often a worker that has sent also sends what was left meanwhile, before it continues: its next flush
/// finds the rest.
const TURNS_MAX: usize = 4;

/// A transmit queue and the packets left beside it.
pub struct SharedTx {
    in_use: AtomicBool,
    queue: UnsafeCell<Box<dyn TxQueue>>,
    waiting: ArrayQueue<Packet>,
    /// Workers that may still use it.
    users: AtomicUsize,
}

// SAFETY: the queue may be sent between threads, and only the thread that has set `in_use` touches it.
unsafe impl Sync for SharedTx {}

impl SharedTx {
    /// A queue for `users` workers, each of which must finally call [`Self::leave`].
    pub fn new(queue: Box<dyn TxQueue>, users: usize) -> SharedTx {
        SharedTx {
            in_use: AtomicBool::new(false),
            queue: UnsafeCell::new(queue),
            waiting: ArrayQueue::new(WAITING_MAX),
            users: AtomicUsize::new(users),
        }
    }

    /// Sends `batch` with `send`, which must consume the whole batch, after what others left. If the queue is
    /// in use, the packets are left beside it, and those for which there is no room stay in `batch`.
    pub fn send(&self, batch: &mut Batch, mut send: impl FnMut(&mut dyn TxQueue, &mut Batch)) {
        for _ in 0..TURNS_MAX {
            let is_ours = self.try_with(|queue| {
                self.send_waiting(queue, &mut send);
                if !batch.is_empty() {
                    send(queue, batch);
                }
            });
            if is_ours.is_none() {
                if batch.is_empty() {
                    // The worker that has it will find what was left.
                    return;
                }
                self.leave_packets(batch);
                if !batch.is_empty() {
                    return;
                }
            } else if self.waiting.is_empty() {
                return;
            }
        }
    }

    /// Sends what others left, as much as may wait at once.
    fn send_waiting(&self, queue: &mut dyn TxQueue, send: &mut impl FnMut(&mut dyn TxQueue, &mut Batch)) {
        let mut batch = Batch::new();
        for _ in 0..WAITING_MAX / BURST {
            while !batch.is_full()
                && let Some(packet) = self.waiting.pop()
            {
                batch.push(packet);
            }
            if batch.is_empty() {
                return;
            }
            send(queue, &mut batch);
        }
    }

    fn leave_packets(&self, batch: &mut Batch) {
        let mut kept = Batch::new();
        for packet in batch.drain(..) {
            // One that has no room keeps those behind it from overtaking it.
            if !kept.is_empty() {
                kept.push(packet);
            } else if let Err(packet) = self.waiting.push(packet) {
                kept.push(packet);
            }
        }
        *batch = kept;
    }

    /// Whether packets wait beside the queue.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Does something with the queue. `None` where another worker has it.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut dyn TxQueue) -> R) -> Option<R> {
        if !protocol::try_take(&self.in_use) {
            return None;
        }
        /// Gives the queue back, also when `f` panics.
        struct Taken<'a>(&'a AtomicBool);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                protocol::give_back(self.0);
            }
        }
        let _taken = Taken(&self.in_use);
        // SAFETY: this call has set `in_use`, so no other reference exists until `_taken` is dropped, after
        // this one.
        let queue = unsafe { &mut *self.queue.get() };
        Some(f(queue.as_mut()))
    }

    /// Records that a worker that has left will use the queue again, and then leave once more.
    pub fn join(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a worker will not use the queue any more. The last one is passed the queue in `last`,
    /// after the packets left beside it, if any, were passed to `left`.
    pub fn leave(&self, left: impl FnMut(Packet), last: impl FnOnce(&mut dyn TxQueue)) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            std::iter::from_fn(|| self.waiting.pop()).for_each(left);
            let is_ours = self.try_with(last).is_some();
            debug_assert!(is_ours, "nobody else uses it any more");
        }
    }

    /// The queue, if this is the only reference.
    pub fn into_queue(self) -> Box<dyn TxQueue> {
        self.queue.into_inner()
    }
}

/// The orderings on which no packet is left behind, apart from what they order, so that a model can check
/// them.
///
/// Both sides change the flag in place, so one of the two comes first. If the attempt in vain does, giving
/// back reads what it wrote (or what another attempt wrote after it) and so sees what was left before it. If
/// giving back does, the attempt succeeds.
mod protocol {
    use crate::flag::Flag;
    use std::sync::atomic::Ordering::AcqRel;

    /// Takes what the flag guards. Release even if that fails: it makes what was left before visible to the
    /// holder.
    #[inline(always)]
    pub(super) fn try_take(flag: &impl Flag) -> bool {
        !flag.swap(true, AcqRel)
    }

    /// Gives it back. Acquire: what was left before attempts in vain is seen afterwards.
    #[inline(always)]
    pub(super) fn give_back(flag: &impl Flag) {
        flag.swap(false, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolCache, PoolConfig};
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Barrier, mpsc};

    /// Notes what it is given, and may be held up.
    struct Slow {
        seen: mpsc::Sender<u8>,
        gate: Option<(Arc<Barrier>, Arc<Barrier>)>,
    }

    impl TxQueue for Slow {
        fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
            if let Some((reached, go_on)) = self.gate.take() {
                reached.wait();
                go_on.wait();
            }
            batch.iter().for_each(|packet| self.seen.send(packet.data()[0]).unwrap());
            cache.free_all(batch);
        }
    }

    fn batch(cache: &mut PoolCache, numbers: std::ops::Range<u8>) -> Batch {
        numbers.map(|n| cache.alloc_frame(&[n; 60]).unwrap()).collect()
    }

    #[test]
    fn who_finds_the_queue_in_use_goes_on_and_its_packets_are_sent_in_order() {
        let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let (seen, sent) = mpsc::channel();
        let (reached, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let slow = Slow { seen, gate: Some((reached.clone(), go_on.clone())) };
        let shared = Arc::new(SharedTx::new(Box::new(slow), 2));
        let other = shared.clone();
        let holder = std::thread::spawn(move || {
            let mut cache = pool.cache();
            let mut own = batch(&mut cache, 0..2);
            other.send(&mut own, |q, b| q.tx_burst(&mut cache, b));
            assert!(own.is_empty());
        });
        reached.wait();
        let mut cache = pool.cache();
        // The queue is held up for as long as this takes, so a worker that waited would wait for ever.
        for first in (0..8).map(|n| 10 + n * 30) {
            let mut own = batch(&mut cache, first..first + 30);
            shared.send(&mut own, |q, b| q.tx_burst(&mut cache, b));
            assert_eq!(own.len(), 0, "{first}");
        }
        let mut own = batch(&mut cache, 0..32);
        shared.send(&mut own, |q, b| q.tx_burst(&mut cache, b));
        assert_eq!(own.len(), 32 - 16, "what has no room stays with its sender");
        assert_eq!(own[0].data()[0], 16);
        cache.free_all(&mut own);
        go_on.wait();
        holder.join().unwrap();
        let sent: Vec<u8> = sent.try_iter().collect();
        let wanted: Vec<u8> = (0..2).chain(10..250).chain(0..16).collect();
        assert_eq!(sent, wanted);
        drop(cache);
        assert_eq!(pool.stats().free, 2048);
    }

    #[test]
    fn workers_that_send_at_once_lose_nothing_and_the_last_one_gets_the_queue() {
        let pool = Pool::new(PoolConfig { chunks: 4096, chunk_bytes: 2048, huge_pages: false }).unwrap();
        const WORKERS: usize = 4;
        const ROUNDS: usize = 2_000;
        let (seen, sent) = mpsc::channel();
        let shared = Arc::new(SharedTx::new(Box::new(Slow { seen, gate: None }), WORKERS));
        // What a last turn leaves is found by the next flush, of which there is none here.
        let (unsent, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let workers: Vec<_> = (0..WORKERS as u8)
            .map(|n| {
                let (shared, unsent, last) = (shared.clone(), unsent.clone(), last.clone());
                std::thread::spawn(move || {
                    let mut cache = pool.cache();
                    for _ in 0..ROUNDS {
                        let mut own = batch(&mut cache, n..n + 1);
                        shared.send(&mut own, |q, b| q.tx_burst(&mut cache, b));
                        unsent.fetch_add(own.len(), Relaxed);
                        cache.free_all(&mut own);
                    }
                    let left = |packet| {
                        unsent.fetch_add(1, Relaxed);
                        cache.free(packet);
                    };
                    shared.leave(left, |_| _ = last.fetch_add(1, Relaxed));
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(last.load(Relaxed), 1);
        // Those that join later leave later.
        (0..2).for_each(|_| shared.join());
        (0..2).for_each(|_| shared.leave(|_| {}, |_| _ = last.fetch_add(1, Relaxed)));
        assert_eq!(last.load(Relaxed), 2);
        assert_eq!(sent.try_iter().count() + unsent.load(Relaxed), WORKERS * ROUNDS);
        assert_eq!(pool.stats().free, 4096);
    }
}

/// All interleavings, and all that the memory model lets each load see, of two workers that send; with twins
/// that lack one ordering each and must be found out.
#[cfg(test)]
mod model {
    use super::protocol;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

    #[derive(Clone, Copy, PartialEq)]
    enum Twin {
        Faithful,
        /// Takes the queue without Release.
        TakesWithoutRelease,
        /// Takes the queue without Acquire.
        TakesWithoutAcquire,
        /// Gives the queue back by a plain store.
        GivesBackByStore,
        /// Does not try the queue again after it has left packets.
        NoSecondTry,
    }

    struct World {
        in_use: AtomicBool,
        waiting: AtomicUsize,
        /// What was sent: the queue.
        sent: UnsafeCell<usize>,
    }

    // SAFETY: the cell is what the model checks: it panics where two threads may touch it at once.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    fn try_take(world: &World, twin: Twin) -> bool {
        match twin {
            Twin::TakesWithoutRelease => !world.in_use.swap(true, Acquire),
            Twin::TakesWithoutAcquire => !world.in_use.swap(true, Release),
            _ => protocol::try_take(&world.in_use),
        }
    }

    /// One packet.
    fn send(world: &World, twin: Twin) {
        let mut own = 1;
        loop {
            if try_take(world, twin) {
                let waiting = world.waiting.swap(0, AcqRel);
                // SAFETY: loom checks that access is exclusive.
                world.sent.with_mut(|sent| unsafe { *sent += waiting + own });
                own = 0;
                match twin {
                    Twin::GivesBackByStore => world.in_use.store(false, Release),
                    _ => protocol::give_back(&world.in_use),
                }
                // As weak as any look at the queue of packets may be.
                if world.waiting.load(Relaxed) == 0 {
                    return;
                }
            } else if own == 0 {
                return;
            } else {
                world.waiting.fetch_add(own, Relaxed);
                own = 0;
                if twin == Twin::NoSecondTry {
                    return;
                }
            }
        }
    }

    fn run(twin: Twin) {
        loom::model(move || {
            let (in_use, waiting) = (AtomicBool::new(false), AtomicUsize::new(0));
            let world = Arc::new(World { in_use, waiting, sent: UnsafeCell::new(0) });
            let shared = world.clone();
            let other = loom::thread::spawn(move || send(&shared, twin));
            send(&world, twin);
            other.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(world.sent.with(|sent| unsafe { *sent }), 2, "a packet was left behind");
        });
    }

    fn is_found_out(twin: Twin) -> bool {
        std::panic::catch_unwind(|| run(twin)).is_err()
    }

    #[test]
    fn no_packet_is_left_behind_and_one_worker_at_a_time_has_the_queue() {
        run(Twin::Faithful);
    }

    #[test]
    fn the_model_finds_out_each_missing_order() {
        assert!(is_found_out(Twin::TakesWithoutRelease));
        assert!(is_found_out(Twin::TakesWithoutAcquire));
        assert!(is_found_out(Twin::GivesBackByStore));
        assert!(is_found_out(Twin::NoSecondTry));
    }
}
