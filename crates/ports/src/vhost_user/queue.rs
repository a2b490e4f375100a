//! The queues of a vhost-user port, as workers see them.
//!
//! A receive queue polls the transmit ring of one of the guest's queue pairs. A transmit queue belongs to a
//! worker and sends to the receive ring assigned to it: worker *n* of a guest with *m* rings sends to ring
//! *n* modulo *m*. If several workers share a ring, each tries its lock for a moment and otherwise keeps its
//! packets for the next pass.

use super::chain::{Fault, Sent};
use super::features::{self, device as d};
use super::shared::{Held, Shared};
use crate::QueueStats;
use crate::offload;
use crate::virtio_net::reports_congestion;
use crate::virtual_link::is_longer_than;
use base::PortNo;
use packet::lent::Tails;
use packet::{Batch, Lent, Packet, PacketFlags, Pool, PoolCache, RxOutcome, RxQueue, TxQueue};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a worker tries a ring that another one holds before it continues.
const LOCK_TRIES: u32 = 64;

/// Maximum number of bursts received without lent tails after a burst all of whose tails had to be fetched.
const PAUSE_MAX: u32 = 32;

pub(super) struct VhostRx {
    shared: Arc<Shared>,
    pair: usize,
    port_no: PortNo,
    /// Bursts still to come without lent tails.
    pause: u32,
    /// How long the last pause was: each in vain doubles it, for tails that are fetched cost more than frames
    /// that are copied whole.
    last_pause: u32,
    /// Where the tails of a burst are; empty between bursts.
    tails: Box<Tails>,
}

impl Drop for VhostRx {
    fn drop(&mut self) {
        self.rx_end();
    }
}

impl VhostRx {
    pub(super) fn new(shared: Arc<Shared>, pair: usize, port_no: PortNo) -> VhostRx {
        VhostRx { shared, pair, port_no, pause: 0, last_pause: 0, tails: Box::new(Tails::new()) }
    }

    fn ring(&self) -> usize {
        2 * self.pair + 1
    }

    #[cold]
    fn announce(&self, cache: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full()
            && let Some(mac) = self.shared.take_announcement()
        {
            let Some(mut packet) = cache.alloc_frame(&reverse_arp(mac)) else {
                self.shared.rx_stats[0].dropped.add(1);
                continue;
            };
            packet.in_port = self.port_no;
            self.shared.rx_stats[0].passed(1, packet.len() as u64);
            batch.push(packet);
        }
    }
}

impl VhostRx {
    /// Receives a burst; where `may_lend` its tails may be lent, and the ring is kept then.
    #[inline(always)]
    fn receive(&mut self, cache: &mut PoolCache, batch: &mut Batch, may_lend: bool) -> RxOutcome {
        if self.pair == 0 && self.shared.has_announcements() {
            self.announce(cache, batch);
        }
        let Some(mut slot) = self.shared.try_ring(self.ring()) else { return RxOutcome::Ok };
        if !self.shared.admin_up.load(Ordering::Relaxed) {
            return RxOutcome::Ok;
        }
        let Some(ring) = &mut slot.ring else { return RxOutcome::Ok };
        if ring.is_disabled {
            return self.discard(slot);
        }
        let tails = may_lend.then_some(&mut *self.tails);
        let received = ring.receive(self.port_no, &self.shared.rx_stats[self.pair], cache, batch, tails);
        // Nothing is lent if all frames were refused, and without a packet nobody would end the loan.
        if received.is_ok() && may_lend && !self.tails.is_empty() && !batch.is_empty() {
            slot.keep();
            return RxOutcome::Ok;
        }
        let is_refused = batch.is_empty() && ring.has_received();
        self.tails.clear();
        self.finish(slot, received);
        if is_refused { RxOutcome::Refused } else { RxOutcome::Ok }
    }

    /// Discards a burst from a ring that the guest has disabled (QEMU's docs/interop/vhost-user.rst, "Ring
    /// states").
    #[cold]
    fn discard(&self, mut slot: Held<'_>) -> RxOutcome {
        let Some(ring) = &mut slot.ring else { return RxOutcome::Ok };
        match ring.discard_burst() {
            Ok(0) => RxOutcome::Ok,
            Ok(count) => {
                self.shared.rx_stats[self.pair].dropped.add(count);
                slot.call();
                RxOutcome::Refused
            }
            Err(fault) => {
                self.shared.fail(self.ring(), &mut slot, fault);
                RxOutcome::Ok
            }
        }
    }

    /// Returns the buffers of a burst, and with them the ring.
    #[inline(always)]
    fn finish(&self, mut slot: Held<'_>, received: Result<(), Fault>) {
        let given_back = match &mut slot.ring {
            Some(ring) => received.and_then(|()| ring.give_back()),
            None => Ok(()),
        };
        match given_back {
            Ok(()) => slot.call(),
            Err(fault) => self.shared.fail(self.ring(), &mut slot, fault),
        }
    }
}

impl RxQueue for VhostRx {
    #[inline]
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        self.receive(cache, batch, false)
    }

    fn lends(&self) -> bool {
        true
    }

    #[inline]
    fn rx_begin(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        let may_lend = self.pause == 0;
        let outcome = self.receive(cache, batch, may_lend);
        self.pause -= u32::from(!may_lend && !batch.is_empty());
        outcome
    }

    #[inline]
    fn tails(&mut self) -> Option<&mut Tails> {
        (!self.tails.is_empty()).then_some(&mut self.tails)
    }

    fn rx_end(&mut self) {
        if self.tails.is_empty() {
            return;
        }
        let straight = self.tails.straight_packets();
        self.tails.clear();
        self.shared.rx_stats[self.pair].lent.add(straight);
        self.last_pause = if straight == 0 { (2 * self.last_pause).clamp(1, PAUSE_MAX) } else { 0 };
        self.pause = self.last_pause;
        // SAFETY: the ring is kept from when tails are noted in `receive` until here, where they were just
        // forgotten.
        let slot = unsafe { self.shared.take_up(self.ring()) };
        self.finish(slot, Ok(()));
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.shared.wait_fd(self.pair)
    }

    fn arm(&mut self) -> bool {
        self.shared.drain(self.pair);
        if self.pair == 0 && self.shared.has_announcements() {
            return false;
        }
        let Some(mut slot) = self.shared.try_ring(self.ring()) else { return true };
        let has_kick = slot.has_kick();
        let Some(ring) = &mut slot.ring else { return true };
        if !self.shared.admin_up.load(Ordering::Relaxed) {
            return true;
        }
        ring.want_notifications(true);
        // Packets that arrived before the guest could see that are found here; a fault is found again by the
        // next burst.
        has_kick && !ring.has_available().unwrap_or(true)
    }

    fn disarm(&mut self) {
        if let Some(mut slot) = self.shared.try_ring(self.ring())
            && let Some(ring) = &mut slot.ring
        {
            ring.want_notifications(false);
        }
    }
}

/// RFC 903: a broadcast that tells bridges where the address is now.
fn reverse_arp(mac: [u8; 6]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    // Ethernet type; hardware Ethernet, protocol IPv4, lengths 6 and 4, operation 3 (request reverse).
    frame[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

pub(super) struct VhostTx {
    pub(super) shared: Arc<Shared>,
    /// The index of its worker.
    idx: u32,
    stats: Arc<QueueStats>,
    /// Frames cut from a segment that the guest cannot take whole, which wait here for its buffers.
    cut: Vec<Packet>,
    /// Chunks of the port's share of the pool that `cut` holds: as many as its packets took when all of them
    /// were there.
    charged: usize,
    /// The ring whose guest must be notified.
    due: Option<usize>,
    /// The ring that is held until its guest may see what was written.
    written: Option<(usize, Sent, Result<(), Fault>)>,
}

/// How one packet can be sent to this guest.
#[derive(PartialEq, Eq)]
enum Way {
    AsItIs,
    /// It is longer than the MTU.
    Never,
    /// It must be segmented first.
    InPieces,
}

/// Whether the guest can receive the packet without any changes.
fn is_taken_as_it_is(packet: &Packet, features: u64, mtu: usize) -> bool {
    !is_longer_than(packet, mtu)
        && (packet.flags.is_empty()
            || features & d::GUEST_CSUM != 0
                && (!offload::is_segmentation_pending(packet) || knows_segments(packet, features)))
}

/// Whether the guest accepts segments of the packet's kind unsegmented.
fn knows_segments(packet: &Packet, features: u64) -> bool {
    if offload::is_segmentation_ours(packet) {
        return false;
    }
    let needed = if !packet.flags.has(PacketFlags::GSO_TCP) {
        features::GUEST_USO
    } else if reports_congestion(packet) {
        features::GUEST_TSO | d::GUEST_ECN
    } else {
        features::GUEST_TSO
    };
    features & needed == needed
}

impl VhostTx {
    pub(super) fn new(shared: Arc<Shared>, idx: u32, stats: Arc<QueueStats>) -> VhostTx {
        VhostTx { shared, idx, stats, cut: Vec::new(), charged: 0, due: None, written: None }
    }

    /// The guest's ring assigned to this worker. `None` if no guest is active, or the port is down.
    #[inline(always)]
    fn ring(&self) -> Option<usize> {
        let rings = self.shared.tx_rings();
        (rings > 0 && self.shared.admin_up.load(Ordering::Relaxed)).then(|| (self.idx % rings) as usize * 2)
    }

    /// Sends from the front of `packets`; returns how many are done with.
    #[inline]
    fn send(&mut self, index: usize, packets: &[Packet]) -> usize {
        let mut tries = 0;
        let mut slot = loop {
            match self.shared.try_ring(index) {
                Some(slot) => break slot,
                None if tries == LOCK_TRIES => return 0,
                None => tries += 1,
            }
            std::hint::spin_loop();
        };
        let mut done = 0;
        let retries_max = self.shared.retries_max.load(Ordering::Relaxed);
        for retry in 0..=retries_max {
            let Some(ring) = &mut slot.ring else { return done };
            let taken = match ring.send(&packets[done..]) {
                Ok(sent) => {
                    done += sent.taken;
                    self.stats.passed(sent.packets, sent.bytes);
                    self.stats.dropped.add(sent.refused);
                    sent.taken
                }
                Err(fault) => {
                    self.shared.fail(index, &mut slot, fault);
                    return done;
                }
            };
            // A guest that took none is not about to make room, as for Open vSwitch.
            if done == packets.len() || taken == 0 {
                break;
            }
            if retry < retries_max {
                self.stats.retries.add(1);
                // A guest that sleeps makes no room meanwhile.
                slot.call();
                std::hint::spin_loop();
            }
        }
        if slot.ring.as_ref().is_some_and(|ring| ring.is_call_due) {
            self.due = Some(index);
        }
        done
    }

    /// Sends the segments. True if none is left.
    fn send_cut(&mut self, index: usize, cache: &mut PoolCache) -> bool {
        if !self.cut.is_empty() {
            let cut = std::mem::take(&mut self.cut);
            let done = self.send(index, &cut);
            self.cut = cut;
            for packet in self.cut.drain(..done) {
                cache.free(packet);
            }
            if self.cut.is_empty() {
                self.discharge(cache.pool());
            }
        }
        self.cut.is_empty()
    }

    /// Makes a packet one that the guest can take, and says how.
    fn prepare(&self, packet: &mut Packet, features: u64) -> Way {
        let mtu = self.shared.mtu.load(Ordering::Relaxed) as usize;
        if is_taken_as_it_is(packet, features, mtu) {
            return Way::AsItIs;
        }
        if is_longer_than(packet, mtu) {
            return Way::Never;
        }
        if offload::is_segmentation_pending(packet) && !knows_segments(packet, features) {
            return Way::InPieces;
        }
        offload::complete_checksum(packet);
        packet.flags.clear(PacketFlags::CSUM_VALID);
        Way::AsItIs
    }

    /// Sends a batch in order, some of whose packets must be changed.
    #[cold]
    fn send_with_work(&mut self, index: usize, cache: &mut PoolCache, batch: &mut Batch) {
        let features = self.shared.features();
        while !batch.is_empty() {
            let mut ready = 0;
            let mut way = Way::AsItIs;
            for packet in batch.iter_mut() {
                way = self.prepare(packet, features);
                if way != Way::AsItIs {
                    break;
                }
                ready += 1;
            }
            let done = self.send(index, &batch[..ready]);
            for packet in batch.drain(..done) {
                cache.free(packet);
            }
            if done < ready || way == Way::AsItIs {
                return;
            }
            let packet = batch.remove(0);
            if way == Way::Never {
                self.stats.too_long();
                cache.free(packet);
                continue;
            }
            self.cut_up(packet, cache, features);
            if !self.send_cut(index, cache) {
                return;
            }
        }
    }

    /// Gives back what of the port's share the frames took that were cut.
    fn discharge(&mut self, pool: &Pool) {
        self.shared.waiting.give_back(pool, std::mem::take(&mut self.charged));
    }

    /// Segments a packet. Without chunks for the segments, in the pool or in the port's share of it, the
    /// packet is dropped and counted, and so are segments that are longer than the MTU.
    fn cut_up(&mut self, packet: Packet, cache: &mut PoolCache, features: u64) {
        let chunks = offload::chunks_after_segmentation(&packet);
        if !self.shared.waiting.take(cache.pool(), chunks) {
            self.stats.over_quota();
            return cache.free(packet);
        }
        self.charged += chunks;
        if let Err(packet) = offload::segment(packet, cache, &mut self.cut) {
            self.stats.dropped.add(1);
            cache.free(packet);
        }
        let mtu = self.shared.mtu.load(Ordering::Relaxed) as usize;
        for frame in self.cut.extract_if(.., |frame| is_longer_than(frame, mtu)) {
            self.stats.too_long();
            cache.free(frame);
        }
        if self.cut.is_empty() {
            self.discharge(cache.pool());
        }
        if features & d::GUEST_CSUM == 0 {
            self.cut.iter_mut().for_each(offload::complete_checksum);
        }
    }
}

impl Drop for VhostTx {
    fn drop(&mut self) {
        self.tx_publish();
        // A queue that no worker had was closed by none, and a packet that is only dropped keeps its chunk.
        if let Some(pool) = self.cut.first().map(Packet::pool) {
            self.close(&mut pool.cache());
        }
    }
}

impl TxQueue for VhostTx {
    #[inline]
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let Some(index) = self.ring() else {
            // There is no receiver, now or soon.
            self.stats.dropped.add(batch.len() as u64);
            return cache.free_all(batch);
        };
        if !self.send_cut(index, cache) {
            return;
        }
        let plain_max = self.shared.mtu.load(Ordering::Relaxed) as usize + 14;
        if batch.iter().any(|packet| !packet.flags.is_empty() || packet.len() > plain_max) {
            return self.send_with_work(index, cache, batch);
        }
        let done = self.send(index, batch);
        if done == batch.len() {
            cache.free_all(batch);
        } else {
            for packet in batch.drain(..done) {
                cache.free(packet);
            }
        }
    }

    fn takes_lent(&self) -> bool {
        true
    }

    #[inline]
    fn tx_write(&mut self, batch: &[Packet], lent: &mut Lent<'_>) -> usize {
        let Some(index) = self.ring() else { return 0 };
        let (features, mtu) = (self.shared.features(), self.shared.mtu.load(Ordering::Relaxed) as usize);
        let needs_work = |packet: &Packet| {
            (packet.len() > mtu + 14 || !packet.flags.is_empty()) && !is_taken_as_it_is(packet, features, mtu)
        };
        if !self.cut.is_empty() || batch.iter().any(needs_work) {
            return 0;
        }
        let Some(mut slot) = self.shared.try_ring(index) else { return 0 };
        let Some(ring) = &mut slot.ring else { return 0 };
        let mut sent = Sent::default();
        let result = ring.write_lent(batch, lent, &mut sent);
        let taken = sent.taken;
        slot.keep();
        self.written = Some((index, sent, result));
        if taken == 0 {
            self.tx_publish();
        }
        taken
    }

    fn tx_publish(&mut self) {
        let Some((index, sent, result)) = self.written.take() else { return };
        // SAFETY: `tx_write` has kept it, and says so in `written`.
        let mut slot = unsafe { self.shared.take_up(index) };
        let Some(ring) = &mut slot.ring else { return };
        match result.and_then(|()| if sent.taken > 0 { ring.show() } else { Ok(()) }) {
            Ok(()) => self.stats.passed(sent.packets, sent.bytes),
            Err(fault) => {
                // What was written is lost with the ring.
                self.stats.dropped.add(sent.packets);
                self.shared.fail(index, &mut slot, fault);
            }
        }
        if slot.ring.as_ref().is_some_and(|ring| ring.is_call_due) {
            self.due = Some(index);
        }
    }

    fn has_room(&mut self, packets: usize) -> bool {
        // Without a guest, packets are dropped at once; and a ring that another worker holds right now tells
        // nothing.
        let Some(index) = self.ring() else { return true };
        let Some(mut slot) = self.shared.try_ring(index) else { return true };
        if slot.ring.as_mut().is_none_or(|ring| ring.has_room(packets)) {
            return true;
        }
        // A guest that sleeps makes no room.
        slot.call();
        false
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        match self.ring() {
            Some(index) => {
                self.send_cut(index, cache);
            }
            None => self.close(cache),
        }
        if let Some(index) = self.due {
            match self.shared.try_ring(index) {
                Some(mut slot) => slot.call(),
                // Another worker holds it, who need not notify the guest.
                None if self.shared.is_there(index) => return,
                None => {}
            }
            self.due = None;
        }
    }

    fn has_pending(&self) -> bool {
        !self.cut.is_empty() || self.due.is_some()
    }

    fn set_aside(&mut self, cache: &mut PoolCache) {
        self.close(cache);
        // A notification may still be due.
        self.flush(cache);
    }

    fn close(&mut self, cache: &mut PoolCache) {
        self.stats.dropped.add(self.cut.len() as u64);
        for packet in self.cut.drain(..) {
            cache.free(packet);
        }
        self.discharge(cache.pool());
    }
}
