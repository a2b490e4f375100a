//! A virtqueue from the device's side: what both layouts have in common.
//!
//! What a guest writes into its rings is read once, checked, and then used from private copies: an index
//! further ahead than the ring is long, a descriptor outside the table, a chain longer than the ring (which is what a loop
//! looks like), a buffer outside the guest's memory are a [`Fault`], which costs that port and nothing else.
//!
//! A burst is moved in three steps, so that the misses of a whole burst on guest memory overlap: take the chains and prefetch
//! their buffers; copy; give the chains back and publish them at once. Buffers are completed in the order in which they were
//! made available, and none is held beyond a burst: hence the used index alone says where to go on after a crash, and
//! a received packet is given back to the guest before anybody else sees it, so that none is delivered twice.
//!
//! Of a large frame only the head is copied at first ([`Ring::receive_lent`]): a packet that goes to other guests is copied from
//! memory to memory ([`Ring::write_lent`]), while the rings of all of them are held, and in this order: all is written, the sender gets
//! its buffers back, the receivers are shown what they got ([`Ring::show`]).
//!
//! Source: virtio 1.2, section 2.7 (split virtqueues), 2.8 (packed), 5.1.6 (network device).

use super::copy::{self, Header};
use super::counts::{RingCounts, Tally};
use super::memory::{DirtyLog, GuestMemory};
use super::packed::Packed;
use super::split::Split;
use crate::QueueStats;
use crate::virtio_net::{self, HEADER_LEN};
use arrayvec::ArrayVec;
use base::PortNo;
use packet::lent::{HEAD_BYTES, Piece, Tails};
use packet::{Batch, Lent, Packet, PoolCache};
use std::ptr::NonNull;
use std::sync::Arc;

/// The longest ring that virtio knows.
pub(super) const SIZE_MAX: u32 = 32_768;
/// Frames beyond this are nobody's: 64 KB of network packet and its link header.
const FRAME_MAX: usize = 65_536 + 64;
/// Packets per burst.
const BURST: usize = 32;
/// A burst takes no further buffers when those that it has are of more segments than this. Receive buffers of a guest without mergeable
/// buffers, but with large segments, are of 19 each, or up to 47 where the guest's kernel was built so.
const BURST_SEGMENTS: usize = 48 * BURST;
/// Frames from this length on are worth leaving their tails where they are. Of shorter ones the head is more than half, and the
/// second copy, which is read from the first-level cache, costs less than keeping account of a tail.
const LENT_FRAME_MIN: usize = 2 * HEAD_BYTES;

/// Why a ring cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault(pub &'static str);

/// Which way the buffers of a ring are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// The guest's transmit ring: buffers that we read.
    FromGuest,
    /// The guest's receive ring: buffers that we write.
    ToGuest,
}

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) at: NonNull<u8>,
    pub(super) len: u32,
    pub(super) guest: u64,
}

/// A buffer: a chain of descriptors.
#[derive(Clone, Copy, Default)]
pub(super) struct Chain {
    /// What identifies it when it is given back.
    pub(super) id: u16,
    /// Slots of the ring that it took (packed layout).
    pub(super) slots: u16,
    /// Its segments in the scratch list.
    first: u32,
    segments: u32,
    /// Bytes of all segments.
    pub(super) len: u32,
}

/// What the two layouts do differently.
pub(super) trait Layout {
    /// Buffers that wait, as far as this layout can tell cheaply, at most `wanted`. Prefetches their descriptors.
    fn available(&mut self, wanted: usize) -> Result<usize, Fault>;
    /// Whether `wanted` buffers wait, or half as many as the ring has where that is less; true where the ring is at fault.
    fn has_available(&mut self, wanted: usize) -> bool;
    /// Takes the next buffer, its segments appended to `out`. `None` where there is none.
    fn take(&mut self, out: &mut Gather<'_>) -> Result<Option<(u16, u16)>, Fault>;
    /// Undoes the taking of `chains`, which were the last ones taken.
    fn untake(&mut self, chains: &[Chain]);
    /// Gives a buffer back, of which `written` bytes were written. Seen by the guest after [`Self::publish`].
    fn give_back(&mut self, chain: Chain, written: u32, log: Option<&DirtyLog>);
    /// Lets the guest see what was given back. True where it wants to be notified.
    fn publish(&mut self, log: Option<&DirtyLog>) -> bool;
    /// Asks the guest to notify us, or not to. After asking, look again whether something came in between.
    fn want_notifications(&mut self, wanted: bool);
    /// The position to tell a front end that stops the ring (GET_VRING_BASE).
    fn base(&self) -> u32;
}

/// Collects the segments of a chain.
pub(super) struct Gather<'a> {
    memory: &'a GuestMemory,
    direction: Direction,
    segments: &'a mut Vec<Segment>,
    /// As many may there be after this chain.
    segments_max: usize,
    len: u64,
}

impl Gather<'_> {
    /// Adds a descriptor's buffer.
    #[inline(always)]
    pub(super) fn add(&mut self, guest: u64, len: u32, is_writable: bool) -> Result<(), Fault> {
        if is_writable != (self.direction == Direction::ToGuest) {
            return Err(Fault("a descriptor for the other direction"));
        }
        self.len += u64::from(len);
        match self.memory.at_guest(guest, len) {
            Some(at) => self.push(Segment { at, len, guest }),
            None => self.add_in_pieces(guest, len),
        }
    }

    #[cold]
    fn add_in_pieces(&mut self, mut guest: u64, mut len: u32) -> Result<(), Fault> {
        while len > 0 {
            let piece = self.memory.some_at_guest(guest, len);
            let (at, piece_len) = piece.ok_or(Fault("a buffer outside the guest's memory"))?;
            self.push(Segment { at, len: piece_len, guest })?;
            guest = guest.wrapping_add(u64::from(piece_len));
            len -= piece_len;
        }
        Ok(())
    }

    #[inline(always)]
    fn push(&mut self, segment: Segment) -> Result<(), Fault> {
        if self.segments.len() == self.segments_max {
            return Err(Fault("a chain of more descriptors than the ring has"));
        }
        self.segments.push(segment);
        Ok(())
    }

    /// The memory, to look an indirect table up in.
    pub(super) fn memory(&self) -> &GuestMemory {
        self.memory
    }
}

enum AnyLayout {
    Split(Split),
    Packed(Packed),
}

/// The segments of a burst's buffers, in memory that is there before the first burst.
struct Segments {
    list: Vec<Segment>,
    /// Of one buffer at most.
    chain_max: usize,
}

/// What a ring is made of.
pub(super) struct RingParts {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) log: Option<Arc<DirtyLog>>,
    pub(super) direction: Direction,
    /// The frame's header has the number of buffers, and a frame may take several.
    pub(super) is_mergeable: bool,
    /// Bytes of the frame's header: 12, or 10 for old guests.
    pub(super) header_len: usize,
    /// Tails may be lent from here, and copied straight to here. Not while memory may have to be waited for: who waits would
    /// hold up another guest.
    pub(super) lends: bool,
    pub(super) counts: Arc<RingCounts>,
}

/// Buffers that were taken for a burst.
type Taken = ArrayVec<Chain, BURST>;

/// A ring at work.
pub(super) struct Ring {
    layout: AnyLayout,
    parts: RingParts,
    segments: Segments,
    /// Received and not given back yet; none between bursts.
    taken: Taken,
    /// The guest is to be notified at the next occasion.
    pub(super) is_call_due: bool,
}

// SAFETY: the pointers in it go into guest memory, which `parts.memory` keeps mapped, and which is only copied from and to.
unsafe impl Send for Ring {}

/// What a burst to a guest did.
#[derive(Default)]
pub(super) struct Sent {
    /// Packets at the front of the batch that are done with.
    pub(super) taken: usize,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that no buffer of the guest can hold.
    pub(super) refused: u64,
}

impl Sent {
    fn add(&mut self, tally: Tally) {
        self.taken += tally.packets as usize;
        self.packets += tally.packets;
        self.bytes += tally.bytes;
    }
}

impl Ring {
    pub(super) fn split(split: Split, size: usize, parts: RingParts) -> Ring {
        Ring::new(AnyLayout::Split(split), size, parts)
    }

    pub(super) fn packed(packed: Packed, size: usize, parts: RingParts) -> Ring {
        Ring::new(AnyLayout::Packed(packed), size, parts)
    }

    fn new(layout: AnyLayout, size: usize, parts: RingParts) -> Ring {
        // A buffer may be in two regions, so one segment more for each descriptor of a chain, which has no more than the ring.
        let chain_max = size * 2 + 64;
        let segments = Segments { list: Vec::with_capacity(BURST_SEGMENTS + chain_max), chain_max };
        Ring { layout, parts, segments, taken: Taken::new(), is_call_due: false }
    }

    /// The position for GET_VRING_BASE.
    pub(super) fn base(&self) -> u32 {
        match &self.layout {
            AnyLayout::Split(split) => split.base(),
            AnyLayout::Packed(packed) => packed.base(),
        }
    }

    /// Whether buffers wait.
    pub(super) fn has_available(&mut self) -> Result<bool, Fault> {
        Ok(match &mut self.layout {
            AnyLayout::Split(split) => split.available(1)?,
            AnyLayout::Packed(packed) => packed.available(1)?,
        } > 0)
    }

    /// Whether `packets` buffers wait, or half as many as a short ring has. A fault is found by the next burst.
    pub(super) fn has_room(&mut self, packets: usize) -> bool {
        match &mut self.layout {
            AnyLayout::Split(split) => split.has_available(packets),
            AnyLayout::Packed(packed) => packed.has_available(packets),
        }
    }

    pub(super) fn want_notifications(&mut self, wanted: bool) {
        match &mut self.layout {
            AnyLayout::Split(split) => split.want_notifications(wanted),
            AnyLayout::Packed(packed) => packed.want_notifications(wanted),
        }
    }

    /// The guest is notified.
    pub(super) fn count_call(&self) {
        self.parts.counts.notifications.add(1);
    }

    /// Whether the guest's memory is still there.
    pub(super) fn check_memory(&self) -> Result<(), Fault> {
        if self.parts.memory.is_broken() { Err(Fault("the guest's memory vanished")) } else { Ok(()) }
    }

    /// Receives what the guest sent, as much as `batch` has room for.
    #[inline]
    pub(super) fn receive(
        &mut self,
        port: PortNo,
        stats: &QueueStats,
        cache: &mut PoolCache,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        self.take_in(port, stats, cache, batch, None)?;
        self.give_back();
        self.check_memory()
    }

    /// As [`Self::receive`], but frames' tails may stay where they are, noted in `tails` if those are given. The buffers are to be given back, by
    /// [`Self::give_back`], when nobody needs them any more; then the memory is to be checked.
    #[inline]
    pub(super) fn receive_lent(
        &mut self,
        port: PortNo,
        stats: &QueueStats,
        cache: &mut PoolCache,
        batch: &mut Batch,
        tails: Option<&mut Tails>,
    ) -> Result<(), Fault> {
        let tails = tails.filter(|_| self.parts.lends);
        self.take_in(port, stats, cache, batch, tails)
    }

    #[inline(always)]
    fn take_in(
        &mut self,
        port: PortNo,
        stats: &QueueStats,
        cache: &mut PoolCache,
        batch: &mut Batch,
        tails: Option<&mut Tails>,
    ) -> Result<(), Fault> {
        let Ring { layout, parts, segments, taken, .. } = self;
        let mut rx = Receive { parts, segments, taken, port, stats, tails };
        match layout {
            AnyLayout::Split(split) => rx.burst(split, cache, batch),
            AnyLayout::Packed(packed) => rx.burst(packed, cache, batch),
        }
    }

    /// Gives the buffers of the received burst back to the guest.
    #[inline(always)]
    pub(super) fn give_back(&mut self) {
        fn all<L: Layout>(layout: &mut L, taken: &Taken, log: Option<&DirtyLog>) -> bool {
            for chain in taken {
                layout.give_back(*chain, 0, log);
            }
            !taken.is_empty() && layout.publish(log)
        }
        let log = self.parts.log.as_deref();
        self.is_call_due |= match &mut self.layout {
            AnyLayout::Split(split) => all(split, &self.taken, log),
            AnyLayout::Packed(packed) => all(packed, &self.taken, log),
        };
        self.taken.clear();
    }

    /// Writes packets from the front of `batch`, of which some have lent tails, as far as the guest has buffers for them; they stay there,
    /// counted in `sent` whatever else happens. The guest sees them after [`Self::show`].
    #[inline]
    pub(super) fn write_lent(
        &mut self,
        batch: &[Packet],
        lent: &mut Lent<'_>,
        sent: &mut Sent,
    ) -> Result<(), Fault> {
        if !self.parts.lends {
            return Ok(());
        }
        let Ring { layout, parts, segments, .. } = self;
        let mut tx = Transmit { parts, segments, sent: Sent::default() };
        let result = match layout {
            AnyLayout::Split(split) => tx.burst_lent(split, batch, lent),
            AnyLayout::Packed(packed) => tx.burst_lent(packed, batch, lent),
        };
        *sent = tx.sent;
        result
    }

    /// Lets the guest see what was written.
    pub(super) fn show(&mut self) -> Result<(), Fault> {
        let log = self.parts.log.as_deref();
        self.is_call_due |= match &mut self.layout {
            AnyLayout::Split(split) => split.publish(log),
            AnyLayout::Packed(packed) => packed.publish(log),
        };
        self.check_memory()
    }

    /// Sends packets from the front of `batch`, which stay there: the caller frees those that `Sent` counts as taken.
    #[inline]
    pub(super) fn send(&mut self, batch: &[Packet]) -> Result<Sent, Fault> {
        let Ring { layout, parts, segments, is_call_due, .. } = self;
        let mut tx = Transmit { parts, segments, sent: Sent::default() };
        *is_call_due |= match layout {
            AnyLayout::Split(split) => tx.burst(split, batch)?,
            AnyLayout::Packed(packed) => tx.burst(packed, batch)?,
        };
        let sent = tx.sent;
        self.check_memory()?;
        Ok(sent)
    }
}

/// Takes up to `wanted` buffers and prefetches the first bytes of each.
#[inline(always)]
fn take_chains<L: Layout>(
    layout: &mut L,
    parts: &RingParts,
    segments: &mut Segments,
    wanted: usize,
    chains: &mut Taken,
) -> Result<(), Fault> {
    chains.clear();
    segments.list.clear();
    let count = layout.available(wanted.min(BURST))?;
    for _ in 0..count {
        if segments.list.len() > BURST_SEGMENTS {
            break;
        }
        let Some(chain) = take_one(layout, parts, segments)? else { break };
        if let Some(first) = segments.list.get(chain.first as usize) {
            prefetch(first.at, parts.direction);
        }
        chains.push(chain);
    }
    Ok(())
}

#[inline(always)]
fn take_one<L: Layout>(
    layout: &mut L,
    parts: &RingParts,
    segments: &mut Segments,
) -> Result<Option<Chain>, Fault> {
    let Segments { list: segments, chain_max } = segments;
    let first = segments.len();
    let segments_max = first + *chain_max;
    let mut gather =
        Gather { memory: &parts.memory, direction: parts.direction, segments, segments_max, len: 0 };
    let Some((id, slots)) = layout.take(&mut gather)? else { return Ok(None) };
    let len = u32::try_from(gather.len).map_err(|_| Fault("a chain of more than 4 GB"))?;
    let count = segments.len() - first;
    Ok(Some(Chain { id, slots, first: first as u32, segments: count as u32, len }))
}

impl Chain {
    #[inline(always)]
    fn segments<'a>(&self, all: &'a [Segment]) -> &'a [Segment] {
        &all[self.first as usize..(self.first + self.segments) as usize]
    }
}

/// The guest's packets on their way in.
struct Receive<'a> {
    parts: &'a RingParts,
    segments: &'a mut Segments,
    taken: &'a mut Taken,
    port: PortNo,
    stats: &'a QueueStats,
    /// Where tails may be left.
    tails: Option<&'a mut Tails>,
}

impl Receive<'_> {
    #[inline(always)]
    fn burst<L: Layout>(
        &mut self,
        layout: &mut L,
        cache: &mut PoolCache,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let wanted = batch.remaining_capacity();
        take_chains(layout, self.parts, self.segments, wanted, self.taken)?;
        if self.taken.is_empty() {
            return Ok(());
        }
        let (mut tally, first) = (Tally::default(), batch.len());
        let mut done = 0;
        for n in 0..self.taken.len() {
            // Without chunks the packets wait in the guest's ring.
            let Some(head) = cache.alloc() else { break };
            let chain = self.taken[n];
            if let Some(packet) = self.copy(&chain, head, cache) {
                tally.add(&packet);
                batch.push(packet);
            }
            done += 1;
        }
        layout.untake(&self.taken[done..]);
        self.taken.truncate(done);
        self.stats.passed(tally.packets, tally.bytes);
        self.parts.counts.add(tally, &batch[first..]);
        Ok(())
    }

    /// Copies one frame. `None` (counted) where it is none, or chunks ran out in the middle of a large one.
    #[inline(always)]
    fn copy(&mut self, chain: &Chain, mut head: Packet, cache: &mut PoolCache) -> Option<Packet> {
        let header_len = self.parts.header_len;
        let segments = chain.segments(&self.segments.list);
        let frame_len = (chain.len as usize).wrapping_sub(header_len);
        if frame_len == 0 || frame_len > FRAME_MAX {
            self.stats.errors.add(1);
            cache.free(head);
            return None;
        }
        let header;
        if frame_len >= LENT_FRAME_MIN
            && let Some(tails) = &mut self.tails
            && let Some(lent) = copy_head(segments, header_len, frame_len, &mut head, tails)
        {
            // The tail stays where it is.
            header = lent;
        } else if segments.len() == 1 && frame_len <= head.tailroom() {
            let at = segments[0].at;
            // SAFETY: the segment has `header_len + frame_len` bytes.
            header = unsafe { copy::header_from(at) };
            head.set_len(frame_len).expect("no longer than the room");
            // SAFETY: as above.
            let frame = unsafe { at.add(header_len) };
            copy_in(frame, head.data_mut());
        } else {
            (header, head) = self.copy_in_pieces(segments, frame_len, head, cache)?;
        }
        head.in_port = self.port;
        if !header.is_plain()
            && let Err(why) = virtio_net::apply(&header.bytes(), &mut head)
        {
            self.stats.refused(why);
            cache.free(head);
            return None;
        }
        Some(head)
    }

    #[cold]
    fn copy_in_pieces(
        &self,
        segments: &[Segment],
        frame_len: usize,
        mut head: Packet,
        cache: &mut PoolCache,
    ) -> Option<(Header, Packet)> {
        let mut reader = SegmentReader { segments, used: 0 };
        let header = reader.read_header(self.parts.header_len);
        let first_len = frame_len.min(head.tailroom());
        head.set_len(first_len).expect("no longer than the room");
        reader.read(head.data_mut());
        let mut left = frame_len - first_len;
        while left > 0 {
            let Some(mut tail) = cache.alloc() else {
                self.stats.dropped.add(1);
                cache.free(head);
                return None;
            };
            let len = left.min(tail.tailroom());
            tail.set_len(len).expect("no longer than the room");
            reader.read(tail.data_mut());
            head.append(tail);
            left -= len;
        }
        Some((header, head))
    }
}

/// Copies the head of a frame and leaves its tail where it is. `None`, and nothing done but some copying, where it is not as simple as that.
#[inline]
fn copy_head(
    segments: &[Segment],
    header_len: usize,
    frame_len: usize,
    head: &mut Packet,
    tails: &mut Tails,
) -> Option<Header> {
    let is_fit = |header: Header| header.is_plain() || virtio_net::is_for_head(&header.bytes(), HEAD_BYTES);
    head.set_len(HEAD_BYTES).expect("a chunk is longer");
    let mut left = frame_len - HEAD_BYTES;
    if let [segment] = segments {
        // SAFETY: the segment has `header_len + frame_len` bytes.
        let header = unsafe { copy::header_from(segment.at) };
        // SAFETY: as above.
        let frame = unsafe { segment.at.add(header_len) };
        copy_in(frame, &mut head.data_mut()[..HEAD_BYTES]);
        // SAFETY: as above.
        let piece = Piece { at: unsafe { frame.add(HEAD_BYTES) }, len: left };
        let is_lent = is_fit(header)
            && flow::extract::head_is_enough(head.data())
            && tails.lend(head, std::iter::once(piece));
        return is_lent.then_some(header);
    }
    let mut reader = SegmentReader { segments, used: 0 };
    let header = reader.read_header(header_len);
    if !is_fit(header) {
        return None;
    }
    reader.read(head.data_mut());
    let SegmentReader { segments, used } = reader;
    let pieces = segments.iter().enumerate().map_while(move |(n, segment)| {
        let skip = if n == 0 { used } else { 0 };
        // SAFETY: `used < segment.len` of the first one, or there is none.
        let at = unsafe { segment.at.add(skip as usize) };
        let len = left.min((segment.len - skip) as usize);
        let is_wanted = left > 0;
        left -= len;
        is_wanted.then_some(Piece { at, len })
    });
    (flow::extract::head_is_enough(head.data()) && tails.lend(head, pieces)).then_some(header)
}

/// Reads bytes across segments.
struct SegmentReader<'a> {
    segments: &'a [Segment],
    /// Bytes read of the first one.
    used: u32,
}

impl SegmentReader<'_> {
    /// The header at the chain's start.
    #[inline(always)]
    fn read_header(&mut self, header_len: usize) -> Header {
        if let Some(first) = self.segments.first().filter(|first| first.len as usize > HEADER_LEN) {
            self.used = header_len as u32;
            // SAFETY: the segment is longer than a header.
            return unsafe { copy::header_from(first.at) };
        }
        let mut bytes = [0; HEADER_LEN];
        self.read(&mut bytes[..header_len]);
        Header::from_bytes(bytes)
    }

    fn read(&mut self, mut to: &mut [u8]) {
        while !to.is_empty()
            && let Some(segment) = self.segments.first()
        {
            let len = to.len().min((segment.len - self.used) as usize);
            let (now, later) = to.split_at_mut(len);
            // SAFETY: `used + len <= segment.len`.
            copy_in(unsafe { segment.at.add(self.used as usize) }, now);
            to = later;
            self.used += len as u32;
            if self.used == segment.len {
                self.segments = &self.segments[1..];
                self.used = 0;
            }
        }
    }
}

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

/// Buffers of one packet. A frame of 64 KB in buffers of 1.5 KB takes 43; a guest that offers smaller ones than that gets no large frames.
type Many = ArrayVec<Chain, 128>;

/// Whether the guest's buffers hold a packet.
enum Room {
    Enough,
    /// It has not enough of them yet.
    TooFew,
    /// One buffer would have to hold it, and cannot.
    Never,
}

/// What became of a packet that one buffer does not hold.
#[derive(PartialEq, Eq)]
enum Long {
    Sent,
    /// One buffer would have to hold it, and cannot.
    Refused,
    /// The guest has not enough buffers yet.
    Waits,
}

/// Packets on their way to the guest.
struct Transmit<'a> {
    parts: &'a RingParts,
    segments: &'a mut Segments,
    sent: Sent,
}

impl Transmit<'_> {
    #[inline(always)]
    fn burst<L: Layout>(&mut self, layout: &mut L, batch: &[Packet]) -> Result<bool, Fault> {
        let log = self.parts.log.as_deref();
        let mut wants_call = false;
        let mut chains = Taken::new();
        while self.sent.taken < batch.len() {
            let waiting = &batch[self.sent.taken..];
            take_chains(layout, self.parts, self.segments, waiting.len(), &mut chains)?;
            let (mut used, mut tally) = (0, Tally::default());
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
            // What is left is taken again: the next packet needs more than one buffer.
            layout.untake(&chains[used..]);
            let long = if used < chains.len() {
                self.send_long(layout, &batch[self.sent.taken])?
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

    /// Writes packets, lent tails straight from where they are, and shows none. What no buffer can hold is left.
    fn burst_lent<L: Layout>(
        &mut self,
        layout: &mut L,
        batch: &[Packet],
        lent: &mut Lent<'_>,
    ) -> Result<(), Fault> {
        let mut chains = Taken::new();
        // The longest packet that one buffer is known to hold, so that no more are taken in vain.
        let mut short_max = usize::MAX;
        while self.sent.taken < batch.len() {
            let left = &batch[self.sent.taken..];
            let needed = |packet: &Packet| packet.len() + self.parts.header_len;
            let wanted = left.iter().take_while(|packet| needed(packet) <= short_max).count();
            take_chains(layout, self.parts, self.segments, wanted, &mut chains)?;
            let fit =
                left.iter().zip(&chains).take_while(|(p, chain)| needed(p) <= chain.len as usize).count();
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
                Some(short) => short_max = short.len as usize,
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
        unsafe { copy::header_to(self.header(packet, 1), header_len, segment.at) };
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
        unsafe { copy::header_to(self.header(packet, 1), header_len, segment.at) };
        // SAFETY: as above.
        let frame = unsafe { segment.at.add(header_len) };
        copy_out(packet.data(), frame);
        if let Some(log) = log {
            log.mark(segment.guest, (header_len + packet.len()) as u64);
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
    fn send_long<L: Layout>(&mut self, layout: &mut L, packet: &Packet) -> Result<Long, Fault> {
        let mut chains = Many::new();
        match self.take_for(layout, packet.len() + self.parts.header_len, &mut chains)? {
            Room::Enough => {
                self.write_chains(layout, packet, &chains, packet.segments().map(Piece::of));
                self.count(std::slice::from_ref(packet));
                Ok(Long::Sent)
            }
            Room::TooFew => Ok(Long::Waits),
            Room::Never => {
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
        while room < needed && !chains.is_full() && self.segments.list.len() <= BURST_SEGMENTS {
            let Some(chain) = take_one(layout, self.parts, self.segments)? else { break };
            room += chain.len as usize;
            chains.push(chain);
            if !self.parts.is_mergeable {
                break;
            }
        }
        if room >= needed {
            return Ok(Room::Enough);
        }
        let is_most = chains.is_full() || self.segments.list.len() > BURST_SEGMENTS;
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

    /// Writes `pieces`, which are the packet, to `chains`, whose segments follow each other and have the room.
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

#[inline(always)]
fn copy_in(from: NonNull<u8>, to: &mut [u8]) {
    // SAFETY: the caller has checked that as many bytes of guest memory lie at `from`; private and guest memory never overlap.
    unsafe { copy::bytes(from.as_ptr(), to.as_mut_ptr(), to.len()) };
}

#[inline(always)]
fn copy_out(from: &[u8], to: NonNull<u8>) {
    // SAFETY: as in `copy_in`.
    unsafe { copy::bytes(from.as_ptr(), to.as_ptr(), from.len()) };
}

/// Copies to a guest from anywhere, also from a guest: then both may be the same memory.
#[inline(always)]
fn copy_across(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    // SAFETY: the caller has checked that so many bytes lie at each; they may overlap.
    unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), len) };
}

#[inline(always)]
fn prefetch(at: NonNull<u8>, direction: Direction) {
    // Header and frame of a small packet cover two lines.
    for at in [at.as_ptr(), at.as_ptr().wrapping_add(64)] {
        match direction {
            Direction::FromGuest => copy::prefetch(at),
            Direction::ToGuest => copy::prefetch_to_write(at),
        }
    }
}
