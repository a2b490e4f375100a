//! A burst's buffers: chains of descriptors, checked and copied, whatever their layout.

use super::copy;
use super::counts::{RingCounts, Tally};
use super::memory::{DirtyLog, GuestMemory};
use arrayvec::ArrayVec;
use base::region::prefetch_ptr;
use packet::BURST;
use packet::lent::HEAD_BYTES;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// No frame is longer: 64 KB of network packet and its link header.
pub(super) const FRAME_MAX: usize = 65_536 + 64;
/// A burst takes no more buffers once those that it has consist of more segments than this. Receive buffers
/// of some guests have up to 47 segments each.
pub(super) const BURST_SEGMENTS: usize = 48 * BURST;
/// From this length on, it pays to leave a frame's tail in place. More than half of a shorter frame is head,
/// and the second copy, which is read from the first-level cache, costs less than keeping account of a tail.
pub(super) const LENT_FRAME_MIN: usize = 2 * HEAD_BYTES;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Why a ring cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault(pub &'static str);

impl Fault {
    pub(super) const BUFFER_OUTSIDE: Fault = Fault("a buffer outside the guest's memory");
    pub(super) const TABLE_OUTSIDE: Fault = Fault("an indirect table outside the guest's memory");
    pub(super) const RING_OUTSIDE: Fault = Fault("a ring outside the guest's memory, or not aligned");
}

/// In which direction the buffers of a ring are used.
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
    /// Its identifier when it is returned.
    pub(super) id: u16,
    /// Slots of the ring that it took (packed layout).
    pub(super) slots: u16,
    /// Its segments in the scratch list.
    pub(super) first: u32,
    pub(super) segments: u32,
    /// Bytes of all segments.
    pub(super) len: u32,
}

/// The differences between the two layouts.
pub(super) trait Layout {
    /// The number of waiting buffers, as far as this layout can tell cheaply, at most `wanted`. Prefetches
    /// their descriptors.
    fn available(&mut self, wanted: usize) -> Result<usize, Fault>;
    /// Whether `wanted` buffers wait, or half of the ring's size if that is less; true if the ring is faulty.
    fn has_available(&mut self, wanted: usize) -> bool;
    /// Takes the next buffer and appends its segments to `out`. `None` if there is none.
    fn take(&mut self, out: &mut Gather<'_>) -> Result<Option<(u16, u16)>, Fault>;
    /// Undoes the taking of `chains`, which were the last ones taken.
    fn untake(&mut self, chains: &[Chain]);
    /// Returns a buffer with `written` bytes written. The guest sees it after [`Self::publish`].
    fn give_back(&mut self, chain: Chain, written: u32, log: Option<&DirtyLog>);
    /// Shows the returned buffers to the guest. True if it wants a notification.
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
    /// The maximum number of segments after this chain.
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

    /// A segment of no bytes counts as well, so the cost of a chain is bounded.
    #[cold]
    fn add_in_pieces(&mut self, mut guest: u64, mut len: u32) -> Result<(), Fault> {
        loop {
            let piece = self.memory.some_at_guest(guest, len);
            let (at, piece_len) = piece.ok_or(Fault::BUFFER_OUTSIDE)?;
            self.push(Segment { at, len: piece_len, guest })?;
            guest = guest.wrapping_add(u64::from(piece_len));
            len -= piece_len;
            if len == 0 {
                return Ok(());
            }
        }
    }

    /// Refuses an indirect table that a descriptor follows (virtio 1.2 section 2.7.5.3.1): a chain would be
    /// as long as the square of the ring's size.
    #[inline(always)]
    pub(super) fn check_is_last(&self, next: u16) -> Result<(), Fault> {
        if next == 0 { Ok(()) } else { Err(Fault("an indirect table that a descriptor follows")) }
    }

    #[inline(always)]
    fn push(&mut self, segment: Segment) -> Result<(), Fault> {
        if self.segments.len() == self.segments_max {
            return Err(Fault("a chain of too many descriptors"));
        }
        self.segments.push(segment);
        Ok(())
    }

    /// The memory, to look an indirect table up in.
    pub(super) fn memory(&self) -> &GuestMemory {
        self.memory
    }
}

/// The segments of a burst's buffers, in memory allocated before the first burst.
pub(super) struct Segments {
    pub(super) list: Vec<Segment>,
    /// Maximum for one buffer.
    pub(super) chain_max: usize,
}

/// The components of a ring.
pub(super) struct RingParts {
    pub(super) memory: Arc<GuestMemory>,
    /// Some memory was removed, and may be added again: buffers there are not there yet.
    pub(super) lacks_memory: bool,
    pub(super) log: Option<Arc<DirtyLog>>,
    pub(super) direction: Direction,
    /// The frame's header has the number of buffers, and a frame may take several.
    pub(super) is_mergeable: bool,
    /// Bytes of the frame's header: 12, or 10 for old guests.
    pub(super) header_len: usize,
    pub(super) counts: Arc<RingCounts>,
    pub(super) kept_headers: KeptHeaders,
}

impl RingParts {
    /// Prefetches the first bytes of a buffer: header and frame of a small packet span two lines.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: NonNull<u8>) {
        let (first, second) = (at.as_ptr(), at.as_ptr().wrapping_add(LINE));
        match self.direction {
            Direction::FromGuest => {
                prefetch_ptr(first);
                prefetch_ptr(second);
            }
            Direction::ToGuest => {
                if self.may_keep_header(at) {
                    prefetch_ptr(first);
                } else {
                    copy::prefetch_to_write(first);
                }
                copy::prefetch_to_write(second);
            }
        }
    }

    /// Whether this is for want of memory that may be added again.
    pub(super) fn waits_for(&self, fault: Fault) -> bool {
        self.lacks_memory && [Fault::BUFFER_OUTSIDE, Fault::TABLE_OUTSIDE].contains(&fault)
    }

    /// Whether a buffer is likely to have the right header, on a line that has nothing of the frame.
    #[inline(always)]
    pub(super) fn may_keep_header(&self, at: NonNull<u8>) -> bool {
        self.kept_headers.is_likely.get() && self.is_header_apart(at)
    }

    /// Whether the frame begins on another line than its header.
    #[inline(always)]
    fn is_header_apart(&self, at: NonNull<u8>) -> bool {
        (at.addr().get() + self.header_len).is_multiple_of(LINE)
    }
}

/// Whether the guest leaves the headers in its buffers as they were written, and offers the same buffers
/// again, as DPDK's driver does. Then a header that is right already is not written again. Its line, which
/// the guest only reads, stays in the caches of both processors; each write would take it from the guest's
/// and back, which is most of what a small packet for such a guest costs where processors are far apart.
///
/// Reading first costs more where nearly all headers have to be written, so it is tried now and then.
#[derive(Default)]
pub(super) struct KeptHeaders {
    /// It was so for the last one.
    is_likely: Cell<bool>,
    /// Bursts since the last trial.
    bursts: Cell<u8>,
}

impl KeptHeaders {
    /// Bursts from one trial to the next. In each, one header is read before it is written.
    const TRIAL_INTERVAL: u8 = 32;

    /// A burst begins. Returns whether to try.
    #[inline(always)]
    pub(super) fn is_trial_due(&self) -> bool {
        let bursts = self.bursts.get() + 1;
        let is_due = bursts >= KeptHeaders::TRIAL_INTERVAL && !self.is_likely.get();
        self.bursts.set(if bursts >= KeptHeaders::TRIAL_INTERVAL { 0 } else { bursts });
        is_due
    }

    /// A header was right already, or not.
    #[inline(always)]
    pub(super) fn found(&self, is_right: bool) {
        self.is_likely.set(is_right);
    }
}

/// Buffers that were taken for a burst.
pub(super) type Taken = ArrayVec<Chain, BURST>;

/// The result of a burst to a guest.
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
    pub(super) fn add(&mut self, tally: Tally) {
        self.taken += tally.packets as usize;
        self.packets += tally.packets;
        self.bytes += tally.bytes;
    }
}

/// Takes up to `wanted` buffers and prefetches the first bytes of each.
#[inline(always)]
pub(super) fn take_chains<L: Layout>(
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
        let chain = match take_one(layout, parts, segments) {
            Ok(Some(chain)) => chain,
            Ok(None) => break,
            // It is found again once it is the first.
            Err(fault) if parts.waits_for(fault) && !chains.is_empty() => break,
            Err(fault) => return Err(fault),
        };
        if let Some(first) = segments.list.get(chain.first as usize) {
            parts.prefetch(first.at);
        }
        chains.push(chain);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn take_one<L: Layout>(
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
    pub(super) fn segments<'a>(&self, all: &'a [Segment]) -> &'a [Segment] {
        &all[self.first as usize..(self.first + self.segments) as usize]
    }
}

#[inline(always)]
pub(super) fn copy_in(from: NonNull<u8>, to: &mut [u8]) {
    // SAFETY: the caller has checked that as many bytes of guest memory lie at `from`; private and guest
    // memory never overlap.
    unsafe { copy::bytes(from.as_ptr(), to.as_mut_ptr(), to.len()) };
}

#[inline(always)]
pub(super) fn copy_out(from: &[u8], to: NonNull<u8>) {
    // SAFETY: as in `copy_in`.
    unsafe { copy::bytes(from.as_ptr(), to.as_ptr(), from.len()) };
}

/// Copies to a guest from anywhere, also from a guest: then both may be the same memory.
#[inline(always)]
pub(super) fn copy_across(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    // SAFETY: the caller has checked that so many bytes lie at each; they may overlap.
    unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), len) };
}
