//! The sending side of a worker: one batch per output port, and when each is sent.

use crate::context::Context;
use crate::ports::PortTable;
use crate::stats::PortCounters;
use arrayvec::ArrayVec;
use base::{DropReason, PortNo};
use packet::batch::Runs;
use packet::{BURST, Batch, Lent, Packet, PoolCache, SharedTx, TxQueue};
use std::sync::Arc;

/// A transmit queue that belongs to this worker, or that it shares because the port has too few.
pub enum TxHandle {
    /// Only this worker uses it.
    Own(Box<dyn TxQueue>),
    /// Shared: a worker that finds it in use leaves its packets beside it.
    Shared(Arc<SharedTx>),
}

impl TxHandle {
    /// Sends a batch with `send`. Packets still in the batch afterwards found no room, neither in the queue
    /// nor beside one in use. `send` is also called with what other workers left beside a shared queue, and
    /// must consume all of that.
    #[inline(always)]
    fn send(&mut self, batch: &mut Batch, mut send: impl FnMut(&mut dyn TxQueue, &mut Batch)) {
        match self {
            TxHandle::Own(q) => send(q.as_mut(), batch),
            TxHandle::Shared(q) => q.send(batch, send),
        }
    }

    /// Rings the doorbell and reclaims transmitted packets. True if that must be done again.
    fn flush(&mut self, cache: &mut PoolCache) -> bool {
        let mut flush = |q: &mut dyn TxQueue| {
            q.flush(cache);
            q.has_pending()
        };
        match self {
            TxHandle::Own(q) => flush(q.as_mut()),
            TxHandle::Shared(q) => q.try_with(flush).unwrap_or(true) || q.has_waiting(),
        }
    }

    /// Whether it would accept a burst now. Not checked for a shared one, which others fill meanwhile.
    fn has_room(&mut self) -> bool {
        match self {
            TxHandle::Own(q) => q.has_room(BURST),
            TxHandle::Shared(_) => true,
        }
    }

    /// Whether other workers left packets beside it.
    #[inline(always)]
    fn has_waiting(&self) -> bool {
        matches!(self, TxHandle::Shared(q) if q.has_waiting())
    }

    /// The queue, if no other worker uses it.
    pub fn into_queue(self) -> Option<Box<dyn TxQueue>> {
        match self {
            TxHandle::Own(q) => Some(q),
            TxHandle::Shared(q) => Arc::into_inner(q).map(SharedTx::into_queue),
        }
    }
}

/// The most ports that copy directly from one burst. Their rings are held together.
pub const LENT_PORTS_MAX: usize = 8;

/// Packets for one port.
pub struct Bound {
    /// The port.
    pub port: PortNo,
    /// Its packets, in order.
    pub batch: Batch,
}

struct TxSlot {
    handle: TxHandle,
    batch: Batch,
    counters: Arc<PortCounters>,
    /// It is in [`Transmission::dirty`].
    is_dirty: bool,
    /// It is in [`Transmission::pending`].
    is_pending: bool,
}

/// All outputs of one worker.
pub struct Transmission {
    slots: PortTable<Box<TxSlot>>,
    /// Ports with packets in their batches since the last flush, possibly also some without. Bound: each once
    /// ([`TxSlot::is_dirty`]).
    dirty: Vec<PortNo>,
    /// Ports whose queues must be flushed. Bound: each once ([`TxSlot::is_pending`]).
    pending: Vec<PortNo>,
    /// The last port that did not accept a whole batch, until the caller takes note of it.
    pub refusing: Option<PortNo>,
}

impl Transmission {
    pub fn new() -> Transmission {
        Transmission { slots: PortTable::new(), dirty: Vec::new(), pending: Vec::new(), refusing: None }
    }

    /// Gives the worker a handle for sending to a port.
    pub fn add_port(&mut self, port: PortNo, handle: TxHandle, counters: Arc<PortCounters>) {
        let slot = TxSlot { handle, batch: Batch::new(), counters, is_dirty: false, is_pending: false };
        self.slots.insert(port, Box::new(slot));
        self.forget(port);
        // Room for every port, so that the packet path never allocates.
        for list in [&mut self.dirty, &mut self.pending] {
            list.reserve(self.slots.room() - list.len());
        }
    }

    /// Returns the handle after sending what waits there.
    pub fn release_port(&mut self, context: &mut Context, port: PortNo) -> Option<TxHandle> {
        let mut slot = self.slots.remove(port)?;
        transmit(&mut slot, context);
        slot.handle.flush(&mut context.cache);
        if let TxHandle::Shared(q) = &slot.handle {
            Transmission::leave(context, q, DropReason::TxQueueFull, |q, cache| q.flush(cache));
        }
        self.forget(port);
        Some(slot.handle)
    }

    /// Removes the port; packets waiting there are dropped.
    pub fn remove_port(&mut self, context: &mut Context, port: PortNo) -> Option<TxHandle> {
        let mut slot = self.slots.remove(port)?;
        for packet in slot.batch.drain(..) {
            context.stats.drops.add(DropReason::PortRemoved, 1);
            context.cache.free(packet);
        }
        match &mut slot.handle {
            TxHandle::Own(q) => q.close(&mut context.cache),
            TxHandle::Shared(q) => {
                Transmission::leave(context, q, DropReason::PortRemoved, |q, cache| q.close(cache))
            }
        }
        self.forget(port);
        Some(slot.handle)
    }

    /// Forgets the pending work for the port that had this number.
    fn forget(&mut self, port: PortNo) {
        self.dirty.retain(|&p| p != port);
        self.pending.retain(|&p| p != port);
    }

    /// This worker will no longer use a shared queue; `last` is called if it was the last one.
    fn leave(
        context: &mut Context,
        queue: &SharedTx,
        reason: DropReason,
        last: impl FnOnce(&mut dyn TxQueue, &mut PoolCache),
    ) {
        let mut left = Vec::new();
        queue.leave(|packet| left.push(packet), |queue| last(queue, &mut context.cache));
        left.into_iter().for_each(|packet| context.drop_late(packet, reason));
    }

    /// Appends a packet to a port's batch.
    #[inline(always)]
    pub fn send(&mut self, context: &mut Context, port: PortNo, packet: Packet) {
        let Some(slot) = self.slots.get_mut(port) else {
            return context.drop(packet, DropReason::OutputPortGone);
        };
        if !slot.is_dirty {
            slot.is_dirty = true;
            self.dirty.push(port);
        }
        slot.batch.push(packet);
        if slot.batch.is_full() {
            if transmit(slot, context) {
                self.refusing = Some(port);
            }
            note_sent(slot, &mut self.dirty, &mut self.pending, port);
        }
    }

    /// Appends the next `count` packets of `from` to a port's batch.
    #[inline(always)]
    pub fn send_run(&mut self, context: &mut Context, port: PortNo, from: &mut Runs<'_>, mut count: usize) {
        let Some(slot) = self.slots.get_mut(port) else {
            return context.drop_all((0..count).map_while(|_| from.take()), DropReason::OutputPortGone);
        };
        while count > 0 {
            if !slot.is_dirty {
                slot.is_dirty = true;
                self.dirty.push(port);
            }
            let n = count.min(slot.batch.remaining_capacity());
            from.move_to(n, &mut slot.batch);
            count -= n;
            if slot.batch.is_full() {
                if transmit(slot, context) {
                    self.refusing = Some(port);
                }
                note_sent(slot, &mut self.dirty, &mut self.pending, port);
            }
        }
    }

    /// Sends a whole batch to a port. A full one is transmitted from where it is, unless packets wait before
    /// it: its handles are not copied.
    #[inline(always)]
    pub fn send_all(&mut self, context: &mut Context, port: PortNo, batch: &mut Batch) {
        if batch.is_full()
            && let Some(slot) = self.slots.get_mut(port)
            && slot.batch.is_empty()
        {
            if transmit_from(batch, &mut slot.handle, &slot.counters, context) {
                self.refusing = Some(port);
            }
            return slot.await_flush(&mut self.pending, port);
        }
        let count = batch.len();
        self.send_run(context, port, &mut Runs::new(batch), count);
    }

    /// Whether a port copies lent tails directly. A port whose queue other workers share is not asked.
    pub fn takes_lent(&self, port: PortNo) -> bool {
        let slot = self.slots.get(port);
        slot.is_some_and(|slot| matches!(&slot.handle, TxHandle::Own(q) if q.takes_lent()))
    }

    /// Sends packets, some with lent tails, to each port after the packets already waiting for it, and
    /// settles `lent`. Afterwards nothing is lent; no packet was visible to a receiver before.
    pub fn send_lent(&mut self, context: &mut Context, bound: &mut [Bound], lent: &mut Lent<'_>) {
        for Bound { port, .. } in &*bound {
            let Some(slot) = self.slots.get_mut(*port) else { continue };
            if !slot.batch.is_empty() {
                if transmit(slot, context) {
                    self.refusing = Some(*port);
                }
                note_sent(slot, &mut self.dirty, &mut self.pending, *port);
            }
        }
        self.copy_lent(context, bound, lent);
        // What is left for these ports is sent normally, now that no ring is held.
        for Bound { port, batch } in bound {
            for packet in batch.drain(..) {
                if packet.is_lent() {
                    context.drop(packet, DropReason::PoolExhausted);
                } else {
                    self.send(context, *port, packet);
                }
            }
            if let Some(slot) = self.slots.get_mut(*port) {
                slot.await_flush(&mut self.pending, *port);
            }
        }
    }

    /// Each port copies what it can; then the sender gets its buffers back, and only then do receivers see
    /// anything. Packets left in the batches are whole, or still lent if the pool had no chunks.
    fn copy_lent(&mut self, context: &mut Context, bound: &mut [Bound], lent: &mut Lent<'_>) {
        let slots = &mut self.slots;
        let Context { cache, stats, .. } = context;
        let mut written: ArrayVec<usize, LENT_PORTS_MAX> = ArrayVec::new();
        for Bound { port, batch } in &mut *bound {
            let taken = match slots.get_mut(*port).map(|slot| &mut slot.handle) {
                Some(TxHandle::Own(q)) => q.tx_write(batch, lent),
                // A shared queue gets whole packets later.
                _ => 0,
            };
            lent.fetch_all(&mut batch[taken..], cache);
            written.push(taken);
        }
        lent.settle();
        for (Bound { port, batch }, taken) in bound.iter_mut().zip(written).filter(|(_, taken)| *taken > 0) {
            let Some(slot) = slots.get_mut(*port) else { continue };
            if let TxHandle::Own(q) = &mut slot.handle {
                q.tx_publish();
            }
            let bytes = batch[..taken].iter().map(Packet::len).sum::<usize>();
            slot.counters.tx_packets.add(taken as u64);
            slot.counters.tx_bytes.add(bytes as u64);
            stats.tx.add(taken as u64);
            if taken == batch.len() {
                cache.free_all(batch);
            } else {
                batch.drain(..taken).for_each(|packet| cache.free(packet));
            }
        }
    }

    /// Sends what is waiting; the doorbells are rung by [`Self::flush`].
    #[inline(always)]
    pub fn send_waiting(&mut self, context: &mut Context) {
        for port in self.dirty.drain(..) {
            let Some(slot) = self.slots.get_mut(port) else { continue };
            slot.is_dirty = false;
            if !slot.batch.is_empty() && transmit(slot, context) {
                self.refusing = Some(port);
            }
            slot.await_flush(&mut self.pending, port);
        }
    }

    /// Sends what is waiting and rings the doorbells. Once per loop.
    pub fn flush(&mut self, context: &mut Context) {
        self.send_waiting(context);
        let Transmission { slots, pending, .. } = self;
        pending.retain(|&port| {
            slots.get_mut(port).is_some_and(|slot| {
                if slot.handle.has_waiting() {
                    transmit(slot, context);
                }
                slot.is_pending = slot.handle.flush(&mut context.cache);
                slot.is_pending
            })
        });
    }

    /// Whether the port would accept a burst now, besides what waits for it already; true if it cannot tell
    /// or does not exist.
    pub fn has_room(&mut self, port: PortNo) -> bool {
        let slot = self.slots.get_mut(port);
        slot.is_none_or(|slot| slot.batch.is_empty() && slot.handle.has_room())
    }

    /// The number of packets ever destined to the port: sent, refused, or waiting in its batch. 0 if it does
    /// not exist.
    pub fn destined_to(&self, port: PortNo) -> u64 {
        let slot = self.slots.get(port);
        slot.map_or(0, |s| s.counters.tx_packets.get() + s.counters.tx_drops.get() + s.batch.len() as u64)
    }

    /// Whether drivers still hold buffers that only another flush reclaims.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// The port's batch has just been sent: it need not be flushed; only its doorbell must be rung.
#[inline(always)]
fn note_sent(slot: &mut TxSlot, dirty: &mut Vec<PortNo>, pending: &mut Vec<PortNo>, port: PortNo) {
    // If it is elsewhere in the list, it stays; flushing an empty batch costs nothing.
    if dirty.last() == Some(&port) {
        dirty.pop();
        slot.is_dirty = false;
        slot.await_flush(pending, port);
    }
}

impl TxSlot {
    /// Its queue has received packets and must be flushed.
    #[inline(always)]
    fn await_flush(&mut self, pending: &mut Vec<PortNo>, port: PortNo) {
        if !self.is_pending {
            self.is_pending = true;
            pending.push(port);
        }
    }
}

/// Sends a port's batch. True if the port did not accept all of it; the rest is dropped.
fn transmit(slot: &mut TxSlot, context: &mut Context) -> bool {
    transmit_from(&mut slot.batch, &mut slot.handle, &slot.counters, context)
}

/// Sends a batch, and packets that other workers left beside the port's queue, which are counted here by the
/// worker that sends them. True if the port did not accept all of it; the rest is dropped.
fn transmit_from(
    batch: &mut Batch,
    handle: &mut TxHandle,
    counters: &PortCounters,
    context: &mut Context,
) -> bool {
    let mut is_full = false;
    handle.send(batch, |queue, batch| {
        let offered = batch.len() as u64;
        let bytes: usize = batch.iter().map(Packet::len).sum();
        queue.tx_burst(&mut context.cache, batch);
        let left_bytes: usize = if batch.is_empty() { 0 } else { batch.iter().map(Packet::len).sum() };
        let packets = offered - batch.len() as u64;
        counters.tx_packets.add(packets);
        counters.tx_bytes.add((bytes - left_bytes) as u64);
        context.stats.tx.add(packets);
        is_full |= refuse(batch, counters, context);
    });
    // There was no room beside a queue in use, either.
    refuse(batch, counters, context) || is_full
}

/// Drops what the port did not accept. True if there was any.
#[inline(always)]
fn refuse(batch: &mut Batch, counters: &PortCounters, context: &mut Context) -> bool {
    if batch.is_empty() {
        return false;
    }
    counters.tx_drops.add(batch.len() as u64);
    batch.drain(..).for_each(|packet| context.drop_late(packet, DropReason::TxQueueFull));
    true
}
