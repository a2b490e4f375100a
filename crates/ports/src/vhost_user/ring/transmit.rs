//! Sending to the guest: its buffers are taken, written, returned and published.

use crate::vhost_user::chain::*;
use crate::vhost_user::copy::{self, Header};
use crate::vhost_user::counts::Tally;
use crate::vhost_user::memory::DirtyLog;
use crate::virtio_net;
use arrayvec::ArrayVec;
use packet::lent::Piece;
use packet::{Lent, Packet};
use std::ptr::NonNull;

/// Writes bytes across segments.
struct SegmentWriter<'a> {
    segments: &'a [Segment],
    used: u32,
    log: Option<&'a DirtyLog>,
}

impl SegmentWriter<'_> {
    /// Writes the header at the chain's start.
    #[inline(always)]
    fn write_header(&mut self, header: Header, header_len: usize) {
        let first = self.segments.first().filter(|first| first.len as usize > header_len);
        let Some(first) = first else { return self.write(&header.bytes()[..header_len]) };
        // SAFETY: the segment is longer than a header.
        unsafe { copy::header_to(header, header_len, first.at) };
        if let Some(log) = self.log {
            log.mark(first.guest, header_len as u64);
        }
        self.used = header_len as u32;
    }

    fn write(&mut self, from: &[u8]) {
        self.write_piece(Piece::of(from));
    }

    /// Writes a piece of memory that all of can be read: private, or another guest's.
    fn write_piece(&mut self, mut from: Piece) {
        while from.len > 0
            && let Some(segment) = self.segments.first()
        {
            let len = from.len.min((segment.len - self.used) as usize);
            // SAFETY: `used + len <= segment.len`.
            copy_across(from.at, unsafe { segment.at.add(self.used as usize) }, len);
            if let Some(log) = self.log {
                log.mark(segment.guest + u64::from(self.used), len as u64);
            }
            // SAFETY: `len <= from.len`.
            from = Piece { at: unsafe { from.at.add(len) }, len: from.len - len };
            self.used += len as u32;
            if self.used == segment.len {
                self.segments = &self.segments[1..];
                self.used = 0;
            }
        }
    }
}

/// Buffers of one packet. A frame of 64 KB in buffers of 1.5 KB takes 43; a guest that offers smaller ones
/// than that gets no large frames.
type Many = ArrayVec<Chain, 128>;

/// Segments of the buffers of one packet, after which no more are taken: a guest whose buffers are in pieces
/// has long ones.
const PACKET_SEGMENTS: usize = 128;

/// What a burst has learned of the guest's next buffers, so that it reads none of them again and again: a
/// guest may make that expensive, and the sender pays for it.
struct Foresight {
    /// The longest packet, with its header, that the next buffer is believed to hold alone. 0 after that has
    /// been wrong twice: then buffers are taken for one packet at a time.
    short_max: usize,
    /// The next buffers hold no packet of this length.
    refused_min: usize,
}

impl Foresight {
    fn new() -> Foresight {
        Foresight { short_max: usize::MAX, refused_min: usize::MAX }
    }

    /// How many buffers to take at once: for the packets at the front that need one each.
    #[inline(always)]
    fn wanted(&self, packets: &[Packet], header_len: usize) -> usize {
        if self.short_max == usize::MAX {
            return packets.len();
        }
        packets.iter().take_while(|packet| packet.len() + header_len <= self.short_max).count()
    }

    /// A buffer was too short for the packet that should have gone there.
    fn was_wrong(&mut self, short: &Chain) {
        self.short_max = if self.short_max == usize::MAX { short.len as usize } else { 0 };
    }
}

/// Whether the guest's buffers have room for a packet.
enum Room {
    Enough,
    /// There are not enough of them yet.
    TooFew,
    /// It would have to fit into one buffer, and does not.
    Never,
}

/// The result for a packet that does not fit into one buffer.
#[derive(PartialEq, Eq)]
enum Long {
    Sent,
    /// It would have to fit into one buffer, and does not.
    Refused,
    /// The guest has not enough buffers yet.
    Waits,
}

/// Packets on their way to the guest.
pub(super) struct Transmit<'a> {
    pub(super) parts: &'a RingParts,
    pub(super) segments: &'a mut Segments,
    pub(super) sent: Sent,
}

impl Transmit<'_> {
    #[inline(always)]
    pub(super) fn burst<L: Layout>(&mut self, layout: &mut L, batch: &[Packet]) -> Result<bool, Fault> {
        let log = self.parts.log.as_deref();
        let mut wants_call = false;
        let mut chains = Taken::new();
        let mut foresight = Foresight::new();
        while self.sent.taken < batch.len() {
            let waiting = &batch[self.sent.taken..];
            let wanted = foresight.wanted(waiting, self.parts.header_len);
            take_chains(layout, self.parts, self.segments, wanted, &mut chains)?;
            let (mut used, mut tally) = (0, Tally::default());
            if let Some(first) = chains.first() {
                self.try_header(&waiting[0], first);
            }
            for (packet, chain) in waiting.iter().zip(&chains) {
                let needed = packet.len() + self.parts.header_len;
                if (chain.len as usize) < needed {
                    break;
                }
                if chain.segments == 1 && !packet.is_chained() {
                    let segment = self.segments.list[chain.first as usize];
                    self.write_short(packet, segment, log);
                    layout.give_back(*chain, needed as u32, log);
                } else {
                    let pieces = packet.segments().map(Piece::of);
                    self.write_chains(layout, packet, std::slice::from_ref(chain), pieces);
                }
                tally.add(packet);
                used += 1;
            }
            self.sent.add(tally);
            self.parts.counts.add(tally, &waiting[..used]);
            // The remaining ones are taken again later: the next packet needs more than one buffer.
            layout.untake(&chains[used..]);
            if used > 0 {
                foresight.refused_min = usize::MAX;
            }
            if let Some(short) = chains.get(used) {
                foresight.was_wrong(short);
            }
            let long = if used < chains.len() || used == wanted && used < waiting.len() {
                self.send_long(layout, &waiting[used], &mut foresight)?
            } else {
                Long::Waits
            };
            if used > 0 || long == Long::Sent {
                wants_call |= layout.publish(log);
            }
            if used == 0 && long == Long::Waits {
                break;
            }
        }
        Ok(wants_call)
    }

    /// Writes packets, copying lent tails directly, without showing any to the guest. Packets for which no
    /// buffer is large enough are left.
    pub(super) fn burst_lent<L: Layout>(
        &mut self,
        layout: &mut L,
        batch: &[Packet],
        lent: &mut Lent<'_>,
    ) -> Result<(), Fault> {
        let mut chains = Taken::new();
        let mut foresight = Foresight::new();
        while self.sent.taken < batch.len() {
            let left = &batch[self.sent.taken..];
            let needed = |packet: &Packet| packet.len() + self.parts.header_len;
            let wanted = foresight.wanted(left, self.parts.header_len);
            take_chains(layout, self.parts, self.segments, wanted, &mut chains)?;
            let fit =
                left.iter().zip(&chains).take_while(|(p, chain)| needed(p) <= chain.len as usize).count();
            if let Some(first) = chains.first() {
                self.try_header(&left[0], first);
            }
            for (packet, chain) in left.iter().zip(&chains).take(fit) {
                if chain.segments == 1 && (packet.is_lent() || !packet.is_chained()) {
                    let segment = self.segments.list[chain.first as usize];
                    self.write_pieces(packet, segment, lent.straight(packet));
                    layout.give_back(*chain, needed(packet) as u32, self.parts.log.as_deref());
                } else {
                    self.write_long(layout, packet, std::slice::from_ref(chain), lent);
                }
            }
            self.count(&left[..fit]);
            layout.untake(&chains[fit..]);
            match chains.get(fit) {
                Some(short) => foresight.was_wrong(short),
                // There are no more buffers.
                None if fit < wanted => break,
                None => {}
            }
            let Some(packet) = batch.get(self.sent.taken) else { break };
            let mut many = Many::new();
            let Room::Enough = self.take_for(layout, needed(packet), &mut many)? else { break };
            self.write_long(layout, packet, &many, lent);
            self.count(std::slice::from_ref(packet));
        }
        Ok(())
    }

    /// Writes a packet, and a tail in pieces, to one segment.
    #[inline(always)]
    fn write_pieces(&mut self, packet: &Packet, segment: Segment, tail: &[Piece]) {
        let header_len = self.parts.header_len;
        // SAFETY: the caller has seen that header and frame, the tail included, fit the segment.
        unsafe { self.put_header(packet, segment.at) };
        // SAFETY: as above.
        let frame = unsafe { segment.at.add(header_len) };
        copy_out(packet.data(), frame);
        let mut done = packet.data().len();
        for piece in tail {
            // SAFETY: as above.
            copy_across(piece.at, unsafe { frame.add(done) }, piece.len);
            done += piece.len;
        }
        if let Some(log) = &self.parts.log {
            log.mark(segment.guest, (header_len + packet.len()) as u64);
        }
    }

    /// Counts packets that were written.
    #[inline(always)]
    fn count(&mut self, packets: &[Packet]) {
        let mut tally = Tally::default();
        packets.iter().for_each(|packet| tally.add(packet));
        self.sent.add(tally);
        self.parts.counts.add(tally, packets);
    }

    #[inline(always)]
    fn write_short(&mut self, packet: &Packet, segment: Segment, log: Option<&DirtyLog>) {
        let header_len = self.parts.header_len;
        // SAFETY: the caller has seen that header and frame fit the segment.
        unsafe { self.put_header(packet, segment.at) };
        // SAFETY: as above.
        let frame = unsafe { segment.at.add(header_len) };
        copy_out(packet.data(), frame);
        if let Some(log) = log {
            log.mark(segment.guest, (header_len + packet.len()) as u64);
        }
    }

    /// Makes a packet's header the one in its buffer, which it may be already ([`KeptHeaders`]).
    ///
    /// # Safety
    /// The buffer must begin with a header's length of writable bytes.
    #[inline(always)]
    unsafe fn put_header(&self, packet: &Packet, at: NonNull<u8>) {
        let (header, len) = (self.header(packet, 1), self.parts.header_len);
        if self.parts.may_keep_header(at) {
            // SAFETY: as the caller vouches.
            let is_right = unsafe { copy::is_header_at(header, len, at) };
            self.parts.kept_headers.found(is_right);
            if is_right {
                return;
            }
        }
        // SAFETY: as the caller vouches.
        unsafe { copy::header_to(header, len, at) };
    }

    /// Finds out, now and then, whether the first buffer of a burst has the right header already.
    #[inline(always)]
    fn try_header(&self, packet: &Packet, chain: &Chain) {
        let kept = &self.parts.kept_headers;
        if kept.is_trial_due() && chain.segments == 1 {
            let segment = self.segments.list[chain.first as usize];
            let len = self.parts.header_len;
            // SAFETY: called for the start of a segment that is longer than a header.
            let is_there = |at| unsafe { copy::is_header_at(self.header(packet, 1), len, at) };
            kept.found(segment.len as usize > len && is_there(segment.at));
        }
    }

    #[inline(always)]
    fn header(&self, packet: &Packet, buffers: u16) -> Header {
        let plain = if packet.flags.is_empty() {
            Header::default()
        } else {
            Header::from_bytes(virtio_net::header_of(packet))
        };
        plain.with_buffers(buffers)
    }

    /// Sends one packet that takes several buffers.
    #[cold]
    fn send_long<L: Layout>(
        &mut self,
        layout: &mut L,
        packet: &Packet,
        foresight: &mut Foresight,
    ) -> Result<Long, Fault> {
        let mut chains = Many::new();
        let needed = packet.len() + self.parts.header_len;
        let is_hopeless = needed >= foresight.refused_min;
        match if is_hopeless { Room::Never } else { self.take_for(layout, needed, &mut chains)? } {
            Room::Enough => {
                foresight.refused_min = usize::MAX;
                self.write_chains(layout, packet, &chains, packet.segments().map(Piece::of));
                self.count(std::slice::from_ref(packet));
                Ok(Long::Sent)
            }
            Room::TooFew => Ok(Long::Waits),
            Room::Never => {
                foresight.refused_min = needed.min(foresight.refused_min);
                self.sent.taken += 1;
                self.sent.refused += 1;
                Ok(Long::Refused)
            }
        }
    }

    /// Takes the buffers for one packet, if there are enough.
    fn take_for<L: Layout>(
        &mut self,
        layout: &mut L,
        needed: usize,
        chains: &mut Many,
    ) -> Result<Room, Fault> {
        self.segments.list.clear();
        let mut room = 0usize;
        while room < needed && !chains.is_full() && self.segments.list.len() <= PACKET_SEGMENTS {
            let chain = match take_one(layout, self.parts, self.segments) {
                Ok(Some(chain)) => chain,
                Ok(None) => break,
                Err(fault) if self.parts.waits_for(fault) => break,
                Err(fault) => return Err(fault),
            };
            // Virtio 1.2 section 5.1.6.3.1: a driver offers none.
            if (chain.len as usize) < self.parts.header_len {
                return Err(Fault("a receive buffer shorter than a header"));
            }
            room += chain.len as usize;
            chains.push(chain);
            if !self.parts.is_mergeable {
                break;
            }
        }
        if room >= needed {
            return Ok(Room::Enough);
        }
        let is_most = chains.is_full() || self.segments.list.len() > PACKET_SEGMENTS;
        let never = is_most || (!self.parts.is_mergeable && !chains.is_empty());
        layout.untake(chains);
        Ok(if never { Room::Never } else { Room::TooFew })
    }

    /// Writes a packet, whose tail may be lent, to buffers that were just taken for it.
    fn write_long<L: Layout>(
        &mut self,
        layout: &mut L,
        packet: &Packet,
        chains: &[Chain],
        lent: &mut Lent<'_>,
    ) {
        if packet.is_lent() {
            let head = std::iter::once(Piece::of(packet.data()));
            self.write_chains(layout, packet, chains, head.chain(lent.straight(packet).iter().copied()));
        } else {
            self.write_chains(layout, packet, chains, packet.segments().map(Piece::of));
        }
    }

    /// Writes `pieces`, which are the packet, to `chains`, whose segments follow each other and have the
    /// room.
    #[inline(never)]
    fn write_chains<L: Layout>(
        &mut self,
        layout: &mut L,
        packet: &Packet,
        chains: &[Chain],
        pieces: impl Iterator<Item = Piece>,
    ) {
        let log = self.parts.log.as_deref();
        let header = self.header(packet, chains.len() as u16);
        let first = chains.first().map_or(0, |chain| chain.first as usize);
        let mut writer = SegmentWriter { segments: &self.segments.list[first..], used: 0, log };
        writer.write_header(header, self.parts.header_len);
        for piece in pieces {
            writer.write_piece(piece);
        }
        let mut left = packet.len() + self.parts.header_len;
        for chain in chains {
            let written = left.min(chain.len as usize);
            left -= written;
            layout.give_back(*chain, written as u32, log);
        }
    }
}

#[cfg(test)]
mod tests;
