//! The hot loops: receive and transmit queues over the rings of one socket.
//!
//! Both work on bursts: one look at the kernel's index, one publication of ours, and no system call on the
//! receiving side. Transmitting in copy mode takes one system call per flush, which is where the kernel does
//! its part of the work; in zero-copy mode it is made where the driver asks.
//!
//! A chunk's path: pool cache → fill ring → kernel → RX ring → [`Packet`] → (another port's) TX ring → kernel
//! → completion ring → pool cache. It is not copied between two AF_XDP ports of one pool.

use super::lent::Lent;
use super::program::XskMap;
use super::socket::{DRAIN_GRACE, RxRings, Socket, TX_METADATA_BYTES, TxRings};
use super::sys;
use crate::cut::CutFrames;
use crate::offload::{self, tunnel::cut_unfinished};
use crate::{PortError, QueueStats};
use base::PortNo;
use base::region::prefetch_ptr;
use packet::pool::HEADROOM_BYTES;
use packet::{Batch, Packet, PacketFlags, Pool, PoolCache, RxOutcome, RxQueue, TxQueue};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Chunks go to the fill ring in blocks of at least this many, so that its index is published rarely.
const FILL_BLOCK: u32 = 32;

/// After this many polls without packets, the receiver asks the kernel whether the device still exists.
const POLLS_PER_PROBE: u32 = 4096;

/// Flushes without a completion after which frames in flight are no reason to stay awake: they wait in
/// a receiver's queue, and come back with a later flush.
const PATIENCE_FLUSHES: u32 = 64;

/// Most segments that the kernel takes for one frame (MAX_SKB_FRAGS, and the linear part).
const SEGMENTS_MAX: u32 = 18;

/// What a port tells its running queues.
pub(super) struct PortShared {
    /// Longest frame in bytes, without VLAN tag.
    pub(super) frame_max: AtomicU32,
    /// The map that steers packets to our sockets.
    pub(super) map: XskMap,
}

/// Where chunks are: shift and mask for the kernel's addresses.
#[derive(Clone, Copy)]
struct Geometry {
    shift: u32,
    mask: u64,
}

impl Geometry {
    fn of(pool: &Pool) -> Geometry {
        let bytes = pool.config().chunk_bytes;
        Geometry { shift: bytes.trailing_zeros(), mask: bytes as u64 - 1 }
    }
}

/// One receive queue of an AF_XDP port.
pub(super) struct XskRxQueue {
    socket: Arc<Socket>,
    shared: Arc<PortShared>,
    stats: Arc<QueueStats>,
    rings: Option<RxRings>,
    geometry: Geometry,
    queue_id: u32,
    port_no: PortNo,
    /// The first segments of a frame whose last segment has not arrived yet.
    partial: Option<Packet>,
    cut: CutFrames,
    polls_idle: u32,
}

impl XskRxQueue {
    pub(super) fn new(
        socket: Arc<Socket>,
        shared: Arc<PortShared>,
        rings: RxRings,
        queue_id: u32,
        port_no: PortNo,
        stats: Arc<QueueStats>,
    ) -> XskRxQueue {
        let geometry = Geometry::of(socket.pool);
        XskRxQueue {
            socket,
            shared,
            stats,
            rings: Some(rings),
            geometry,
            queue_id,
            port_no,
            partial: None,
            cut: CutFrames::default(),
            polls_idle: 0,
        }
    }

    /// Lends chunks to the kernel, and lets packets come.
    pub(super) fn start(&mut self, cache: &mut PoolCache) -> Result<(), PortError> {
        if let Some(rings) = &mut self.rings {
            refill(rings, cache, self.geometry);
        }
        self.shared.map.insert(self.queue_id, self.socket.fd())
    }

    #[cold]
    fn idle(&mut self, cache: &mut PoolCache) -> RxOutcome {
        let Some(rings) = &mut self.rings else { return RxOutcome::Gone };
        self.polls_idle += 1;
        if self.polls_idle.is_multiple_of(64) && rings.lent.count() + FILL_BLOCK <= rings.fill.size() {
            refill(rings, cache, self.geometry);
        }
        let asleep = self.socket.kind.zero_copy && rings.fill.needs_wakeup();
        if asleep || self.polls_idle.is_multiple_of(POLLS_PER_PROBE) {
            self.probe();
        }
        if self.socket.is_gone() { RxOutcome::Gone } else { RxOutcome::Ok }
    }

    /// Wakes the driver if it sleeps, and notices when the device is gone.
    fn probe(&self) {
        if sys::kick_rx(self.socket.fd()) == Err(libc::ENXIO) {
            self.socket.set_gone();
        }
    }
}

/// Lends the kernel enough chunks to fill its fill ring.
#[inline]
fn refill(rings: &mut RxRings, cache: &mut PoolCache, geometry: Geometry) {
    let wanted = rings.fill.size() - rings.lent.count();
    let room = rings.fill.free(wanted).min(wanted);
    let mut pushed = 0;
    while pushed < room {
        let Some(idx) = cache.take_chunk() else { break };
        rings.lent.add(idx);
        rings.fill.push(u64::from(idx) << geometry.shift);
        pushed += 1;
    }
    if pushed > 0 {
        rings.fill.publish();
    }
}

impl RxQueue for XskRxQueue {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        // 1. Look what came. 2. Wrap each descriptor's chunk; segments of one frame chain. 3. Give the slots
        //    back, and lend new chunks once a block is missing.
        let pool = self.socket.pool;
        assert!(std::ptr::eq(cache.pool(), pool), "a port's worker allocates from the port's pool");
        let Some(rings) = &mut self.rings else { return RxOutcome::Gone };
        if !self.cut.is_empty() {
            self.cut.hand_over(&self.stats, cache, batch);
        }
        let available = rings.rx.available();
        if available == 0 {
            return self.idle(cache);
        }
        self.polls_idle = 0;
        let (mut used, mut packets, mut bytes) = (0, 0, 0);
        let base = pool.base();
        let frame_max = self.shared.frame_max.load(Ordering::Relaxed);
        for n in 0..available.min(cache.room(batch) as u32) {
            prefetch_ptr(base.as_ptr().wrapping_add(rings.rx.peek(n).addr as usize));
        }
        while used < available && cache.room(batch) > 0 {
            let desc = rings.rx.peek(used);
            used += 1;
            let Some(segment) = wrap(pool, &mut rings.lent, self.geometry, &desc) else {
                self.stats.errors.add(1);
                continue;
            };
            let more = desc.options & libc::XDP_PKT_CONTD != 0;
            let mut packet = if more || self.partial.is_some() {
                let Some(whole) = chain(&mut self.partial, segment, more) else { continue };
                whole
            } else {
                segment
            };
            packet.in_port = self.port_no;
            offload::recognise_unfinished(&mut packet, frame_max);
            if packet.len() > frame_max as usize
                && !offload::is_segmentation_pending(&packet)
                && self.cut.fill(|frames| cut_unfinished(&packet, frame_max as usize, cache, frames))
            {
                cache.free(packet);
                self.cut.hand_over(&self.stats, cache, batch);
                continue;
            }
            packets += 1;
            bytes += packet.len() as u64;
            batch.push(packet);
        }
        rings.rx.release(used);
        self.stats.passed(packets, bytes);
        if rings.lent.count() + FILL_BLOCK <= rings.fill.size() {
            refill(rings, cache, self.geometry);
        }
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        // Readable as long as the RX ring is not empty, and when the device disappears: no wake-up can be
        // lost.
        self.rings.as_ref().map(|_| self.socket.fd())
    }

    fn arm(&mut self) -> bool {
        let Some(rings) = &mut self.rings else { return false };
        // A queue that has lent nothing (the pool was exhausted) gets nothing: it must try again.
        if rings.rx.available() > 0 || !self.cut.is_empty() || rings.lent.count() == 0 {
            return false;
        }
        self.probe();
        !self.socket.is_gone()
    }

    fn disarm(&mut self) {
        // It may have been woken because the device disappeared: check soon.
        self.polls_idle = POLLS_PER_PROBE - 1;
    }

    fn close(&mut self, cache: &mut PoolCache) {
        let Some(mut rings) = self.rings.take() else { return };
        self.shared.map.remove(self.queue_id);
        if let Some(partial) = self.partial.take() {
            cache.free(partial);
        }
        self.cut.close(&self.stats, cache);
        // What was received but not fetched is dropped, and counted as such.
        let waiting = rings.rx.available();
        rings.rx.release(waiting);
        self.stats.dropped.add(u64::from(waiting));
        self.socket.park_rx(rings);
    }
}

impl Drop for XskRxQueue {
    fn drop(&mut self) {
        if self.rings.is_some() {
            self.close(&mut self.socket.pool.cache());
        }
    }
}

/// The packet in a chunk that the kernel returns. `None` if it was not lent, or the range is not within a
/// chunk.
#[inline(always)]
fn wrap(pool: &'static Pool, lent: &mut Lent, geometry: Geometry, desc: &libc::xdp_desc) -> Option<Packet> {
    let idx = (desc.addr >> geometry.shift) as u32;
    let offset = desc.addr & geometry.mask;
    if !lent.take(idx) || offset + u64::from(desc.len) > geometry.mask + 1 {
        return None;
    }
    // SAFETY: we lent the chunk (`lent` had it) and the kernel gave it back by this descriptor, so it is ours
    // alone.
    Some(unsafe { pool.wrap(idx, offset as usize, desc.len as usize) })
}

/// Adds a segment to the current frame. Returns the whole frame once the last segment is there.
#[cold]
fn chain(partial: &mut Option<Packet>, segment: Packet, more: bool) -> Option<Packet> {
    let whole = match partial.take() {
        Some(mut first) => {
            first.append(segment);
            first
        }
        None => segment,
    };
    if more {
        *partial = Some(whole);
        return None;
    }
    Some(whole)
}

/// One transmit queue of an AF_XDP port.
pub(super) struct XskTxQueue {
    socket: Arc<Socket>,
    shared: Arc<PortShared>,
    stats: Arc<QueueStats>,
    rings: Option<TxRings>,
    geometry: Geometry,
    /// Room for what a packet is cut into, kept so that the packet path allocates nothing.
    segments: Vec<Packet>,
    /// Frames were pushed, or not all consumed, since the kernel was last notified.
    kick: bool,
    /// The kernel reported that the interface is down.
    down: bool,
    flushes_in_vain: u32,
}

/// What happens to one packet.
enum Verdict {
    /// Sent, or freed and counted.
    Taken,
    /// It does not fit at the moment.
    Full(Packet),
}

impl XskTxQueue {
    pub(super) fn new(
        socket: Arc<Socket>,
        shared: Arc<PortShared>,
        rings: TxRings,
        stats: Arc<QueueStats>,
    ) -> XskTxQueue {
        let geometry = Geometry::of(socket.pool);
        XskTxQueue {
            socket,
            shared,
            stats,
            rings: Some(rings),
            geometry,
            segments: Vec::with_capacity(64),
            kick: false,
            down: false,
            flushes_in_vain: 0,
        }
    }

    /// Frees and counts everything: the device is gone, or down.
    #[cold]
    fn drop_all(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        self.stats.dropped.add(batch.len() as u64);
        cache.free_all(batch);
    }

    /// Frees one packet that cannot be sent; the caller has counted it.
    #[cold]
    fn refuse(&self, cache: &mut PoolCache, packet: Packet) -> Verdict {
        if std::ptr::eq(packet.pool(), cache.pool()) {
            cache.free(packet);
        } else {
            packet.pool().cache().free(packet);
        }
        Verdict::Taken
    }

    /// The way of packets that are not one segment of the right length, ready to go.
    #[cold]
    fn send_unusual(&mut self, cache: &mut PoolCache, packet: Packet, frame_max: usize) -> Verdict {
        if packet.len() == 0 || !std::ptr::eq(packet.pool(), self.socket.pool) {
            self.stats.errors.add(1);
            return self.refuse(cache, packet);
        }
        if offload::is_segmentation_pending(&packet) {
            return self.send_in_segments(cache, packet, frame_max);
        }
        if packet.len() > frame_max && offload::is_longer_than(&packet, frame_max) {
            self.stats.too_long();
            return self.refuse(cache, packet);
        }
        let count = packet.segments().count() as u32;
        if count > SEGMENTS_MAX || (count > 1 && !self.socket.kind.multi_buffer) {
            self.stats.errors.add(1);
            return self.refuse(cache, packet);
        }
        if self.room(cache, count) < count {
            return Verdict::Full(packet);
        }
        // The kernel wants room for its metadata in front of every segment, used or not.
        let metadata = if self.socket.tx_metadata { TX_METADATA_BYTES } else { 0 };
        match with_front_room(packet, cache, metadata) {
            Ok(packet) => self.push_chain(packet),
            Err(packet) => {
                self.stats.dropped.add(1);
                return self.refuse(cache, packet);
            }
        }
        Verdict::Taken
    }

    /// Segments a packet, and sends all of its segments or none.
    fn send_in_segments(&mut self, cache: &mut PoolCache, packet: Packet, frame_max: usize) -> Verdict {
        let needed = offload::chunks_after_segmentation(&packet) as u32;
        let size = self.rings.as_ref().map_or(0, |r| r.tx.size());
        if needed <= size && self.room(cache, needed) < needed {
            return Verdict::Full(packet);
        }
        let mut segments = std::mem::take(&mut self.segments);
        let cut = if needed <= size { offload::segment(packet, cache, &mut segments) } else { Err(packet) };
        if let Err(packet) = cut {
            self.stats.dropped.add(1);
            self.refuse(cache, packet);
        }
        for segment in segments.drain(..) {
            if let Verdict::Full(segment) = self.send_unusual(cache, segment, frame_max) {
                // Unreachable as long as the estimate of the room is right; if it is not, the segment must
                // not leak.
                self.stats.dropped.add(1);
                self.refuse(cache, segment);
            }
        }
        self.segments = segments;
        Verdict::Taken
    }

    /// The number of free slots, after making room if there are fewer than `wanted`.
    fn room(&mut self, cache: &mut PoolCache, wanted: u32) -> u32 {
        let Some(rings) = &mut self.rings else { return 0 };
        let free = rings.tx.free(wanted);
        if free >= wanted {
            return free;
        }
        rings.tx.publish();
        self.ring_doorbell();
        self.reap(cache);
        self.rings.as_mut().map_or(0, |rings| rings.tx.free(wanted))
    }

    /// Pushes every segment of a packet. The ring must have room.
    fn push_chain(&mut self, mut packet: Packet) {
        let mut options = self.checksum_options(&mut packet);
        self.stats.passed(1, packet.len() as u64);
        let mut rest = Some(packet);
        while let Some(packet) = rest.take() {
            let (segment, tail) = packet.split_next();
            rest = tail;
            options |= if rest.is_some() { libc::XDP_PKT_CONTD } else { 0 };
            self.push(segment, options);
            options = 0;
        }
    }

    /// Lets the device finish an unfinished checksum, or finishes it here. Returns the descriptor's options.
    #[inline(always)]
    fn checksum_options(&self, packet: &mut Packet) -> u32 {
        if !packet.flags.has(PacketFlags::CSUM_PARTIAL) {
            return 0;
        }
        if self.request_checksum(packet) {
            return libc::XDP_TX_METADATA;
        }
        offload::complete_checksum(packet);
        0
    }

    /// Writes the request for a checksum in front of the frame. False where the device cannot do it. The
    /// kernel looks for the field in the first segment, and stops at a packet without it for good.
    #[inline]
    fn request_checksum(&self, packet: &mut Packet) -> bool {
        if !self.socket.tx_metadata
            || self.socket.kind.zero_copy
            || packet.unfinished_checksum().is_none_or(|at| at + 2 > packet.data().len())
            || packet.push_front(TX_METADATA_BYTES).is_none()
        {
            return false;
        }
        let (start, offset) = (packet.csum_start, u16::from(packet.csum_offset));
        let metadata = &mut packet.data_mut()[..TX_METADATA_BYTES];
        metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
        metadata[8..10].copy_from_slice(&start.to_ne_bytes());
        metadata[10..12].copy_from_slice(&offset.to_ne_bytes());
        metadata[12..].fill(0);
        packet.pull_front(TX_METADATA_BYTES).is_some()
    }

    /// Hands one segment to the kernel; the ring has room.
    #[inline(always)]
    fn push(&mut self, segment: Packet, options: u32) {
        let Some(rings) = &mut self.rings else { return };
        let (len, offset) = (segment.data().len() as u32, segment.data_off() as u64);
        let idx = segment.into_chunk();
        rings.lent.add(idx);
        rings.tx.push(libc::xdp_desc {
            addr: (u64::from(idx) << self.geometry.shift) + offset,
            len,
            options,
        });
    }

    /// Takes back what was transmitted.
    #[inline]
    fn reap(&mut self, cache: &mut PoolCache) {
        let Some(rings) = &mut self.rings else { return };
        let done = rings.completion.available();
        for n in 0..done {
            let idx = (rings.completion.peek(n) >> self.geometry.shift) as u32;
            if rings.lent.take(idx) {
                cache.give_chunk(idx);
            }
        }
        if done > 0 {
            rings.completion.release(done);
            self.flushes_in_vain = 0;
        }
    }

    /// Tells the kernel to transmit, as often as it makes progress.
    fn ring_doorbell(&mut self) {
        let Some(rings) = &mut self.rings else { return };
        let kind = self.socket.kind;
        if kind.zero_copy && kind.need_wakeup && !rings.tx.needs_wakeup() {
            self.kick = false;
            return;
        }
        let mut left = rings.tx.unconsumed();
        self.kick = left > 0;
        // The kernel sends from poll(2) as well: an empty ring is proof that the interface works again.
        self.down &= self.kick;
        while self.kick {
            let result = sys::kick_tx(self.socket.fd());
            self.down = result == Err(libc::ENETDOWN);
            if result == Err(libc::ENXIO) {
                self.socket.set_gone();
            }
            let before = std::mem::replace(&mut left, rings.tx.unconsumed());
            // A zero-copy driver consumes when it likes: one notification is enough.
            self.kick = left > 0 && !(kind.zero_copy && result.is_ok());
            if left == before || result == Err(libc::ENXIO) {
                break;
            }
        }
    }
}

impl TxQueue for XskTxQueue {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        // 1. Make room where there is none. 2. Count the packets from the front that are plain: one segment,
        //    no longer than a frame. 3. Push those; the others one by one. 4. Publish.
        if batch.is_empty() {
            return;
        }
        if self.down {
            self.ring_doorbell();
        }
        if self.rings.is_none() || self.socket.is_gone() || self.down {
            return self.drop_all(cache, batch);
        }
        let frame_max = self.shared.frame_max.load(Ordering::Relaxed) as usize;
        let wanted = batch.len() as u32;
        let free = self.room(cache, wanted);
        let pool = self.socket.pool;
        let plain = |p: &Packet| {
            let room = p.data_off() >= TX_METADATA_BYTES + 8;
            let ours = std::ptr::eq(p.pool(), pool);
            (p.len().wrapping_sub(1) < frame_max) & !p.is_chained() & (p.gso_size == 0) & room & ours
        };
        let fitting = wanted.min(free) as usize;
        let count = batch.iter().take(fitting).take_while(|p| plain(p)).count();
        let mut bytes = 0;
        for mut packet in batch.drain(..count) {
            bytes += packet.len() as u64;
            let options = self.checksum_options(&mut packet);
            self.push(packet, options);
        }
        self.stats.passed(count as u64, bytes);
        if count < fitting {
            self.send_rest(cache, batch, frame_max);
        }
        if let Some(rings) = &mut self.rings {
            rings.tx.publish();
        }
        self.kick = true;
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        if self.kick {
            self.ring_doorbell();
        }
        self.flushes_in_vain = self.flushes_in_vain.saturating_add(1);
        self.reap(cache);
    }

    fn has_pending(&self) -> bool {
        let in_flight = self.rings.as_ref().is_some_and(|r| r.lent.count() > 0);
        // What the kernel has not taken yet needs another notification, however long that takes.
        let is_hopeful = self.kick || self.flushes_in_vain < PATIENCE_FLUSHES;
        in_flight && is_hopeful && !self.down && !self.socket.is_gone()
    }

    fn close(&mut self, cache: &mut PoolCache) {
        let deadline = Instant::now() + DRAIN_GRACE;
        while self.rings.as_ref().is_some_and(|r| r.lent.count() > 0) && !self.down && !self.socket.is_gone()
        {
            self.kick = true;
            self.flush(cache);
            if Instant::now() > deadline {
                break;
            }
            std::thread::yield_now();
        }
        if let Some(rings) = self.rings.take() {
            self.socket.park_tx(rings);
        }
    }
}

impl XskTxQueue {
    /// Sends from the front of `batch`, one by one, until one does not fit.
    #[cold]
    fn send_rest(&mut self, cache: &mut PoolCache, batch: &mut Batch, frame_max: usize) {
        let mut left = Batch::new();
        for packet in std::mem::take(batch) {
            if !left.is_empty() {
                left.push(packet);
                continue;
            }
            if let Verdict::Full(packet) = self.send_unusual(cache, packet, frame_max) {
                left.push(packet);
            }
        }
        *batch = left;
    }
}

impl Drop for XskTxQueue {
    fn drop(&mut self) {
        if self.rings.is_some() {
            self.close(&mut self.socket.pool.cache());
        }
    }
}

/// The same packet with at least `bytes` free in front of every segment (without the link's 8), copied if it
/// has less. Returns the packet itself if the pool is exhausted.
fn with_front_room(mut packet: Packet, cache: &mut PoolCache, bytes: usize) -> Result<Packet, Packet> {
    let base = packet.pool().base().as_ptr() as usize;
    let chunk_bytes = packet.pool().config().chunk_bytes;
    let roomy = packet.segments().all(|s| (s.as_ptr() as usize - base) % chunk_bytes >= bytes + 8);
    if roomy {
        return Ok(packet);
    }
    // The copy's first segment may be shorter, and what is unfinished must lie in it.
    if packet.unfinished_checksum().is_some_and(|at| at + 2 > chunk_bytes - HEADROOM_BYTES) {
        offload::complete_checksum(&mut packet);
    }
    let Some(copy) = offload::copy_linear(&packet, cache) else { return Err(packet) };
    cache.free(packet);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::PoolConfig;

    #[test]
    fn a_copy_has_its_unfinished_checksum_in_its_first_segment_or_it_is_finished() {
        let config = PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false };
        let pool = Pool::new(config).unwrap();
        let mut cache = pool.cache();
        // What four bytes of a tag are pushed in front of, and a segment that leaves no room in front.
        let head: Vec<u8> = (0..1796u32).map(|n| n as u8).collect();
        let tail = [0x5a; 1984];
        for (field, is_finished) in [(50, false), (1790, false), (1791, true), (1794, true)] {
            let mut packet = cache.alloc_frame(&head[4..]).unwrap();
            packet.push_front(4).unwrap();
            packet.data_mut().copy_from_slice(&head);
            let mut second = cache.alloc_frame(&tail[..1792]).unwrap();
            second.push_front(192).unwrap();
            second.data_mut().fill(0x5a);
            packet.append(second);
            packet.flags.set(PacketFlags::CSUM_PARTIAL);
            (packet.csum_start, packet.csum_offset) = (field - 16, 16);
            let copy = packet.copy(&mut cache).unwrap();
            cache.free(packet);
            let mut sent = with_front_room(copy, &mut cache, TX_METADATA_BYTES).unwrap();
            assert!(sent.segments().all(|segment| {
                let at = segment.as_ptr() as usize - pool.base().as_ptr() as usize;
                at % 2048 >= TX_METADATA_BYTES + 8
            }));
            let at = usize::from(field);
            assert!(sent.unfinished_checksum().is_none_or(|at| at + 2 <= sent.data().len()));
            assert_eq!(sent.unfinished_checksum().is_none(), is_finished, "{field}");
            offload::complete_checksum(&mut sent);
            let frame = [&head[..], &tail].concat();
            let sum = wire::checksum::nonzero(wire::checksum::checksum(&frame[at - 16..]));
            let wanted = [&frame[..at], &sum.to_be_bytes(), &frame[at + 2..]].concat();
            assert!(sent.segments().flatten().copied().eq(wanted), "{field}");
            cache.free(sent);
        }
        drop(cache);
        assert_eq!(pool.stats().free, config.chunks);
    }
}
