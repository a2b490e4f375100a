//! A virtqueue from the device's side: what both layouts have in common. [`chain`](super::chain) defines
//! buffers.
//!
//! What a guest writes into its rings is read once, checked, and then used from private copies: an index
//! further ahead than the ring is long, a descriptor outside the table, a chain longer than the ring (the
//! sign of a loop) or than any driver's, a buffer outside the guest's memory, or one for reception that is
//! shorter than a header is a [`Fault`], which affects only that port.
//!
//! A burst is moved in three steps, so that the cache misses of a whole burst on guest memory overlap: take
//! the chains and prefetch their buffers; copy; return the chains and publish them all at once. Buffers are
//! completed in the order in which they were made available, and none is held beyond a burst. Hence the used
//! index alone tells where to continue after a crash; and a received packet's buffer is returned to the guest
//! before any receiver sees the packet, so none is delivered twice.
//!
//! Of a large frame only the head is copied at first ([`Ring::receive`]). A packet for other guests is copied
//! directly from memory to memory ([`Ring::write_lent`]) while the rings of all of them are held, in this
//! order: everything is written, the sender gets its buffers back, the receivers are shown what they got
//! ([`Ring::show`]).
//!
//! Source: virtio 1.2, section 2.7 (split virtqueues), 2.8 (packed), 5.1.6 (network device).

mod receive;
mod transmit;

use super::chain::{BURST_SEGMENTS, Direction, Fault, Layout, RingParts, Segments, Sent, Taken, take_chains};
use super::memory::{DirtyLog, REGIONS_MAX};
use super::packed::Packed;
use super::split::Split;
use crate::QueueStats;
use base::PortNo;
use packet::lent::Tails;
use packet::{BURST, Batch, Lent, Packet, PoolCache};
use receive::Receive;
use transmit::Transmit;

/// The longest ring that virtio knows.
pub(super) const SIZE_MAX: u32 = 32_768;
/// Descriptors of the longest chain that a guest sends, as for QEMU and vhost.
const SENT_CHAIN_MAX: usize = 1024;
/// Segments of the longest buffer that a guest offers for reception. Linux has 19 without mergeable buffers
/// but with large segments, or 47 if the guest's kernel was built that way; other systems have fewer than 40.
/// All of them are read for a packet that goes there, also for one that the buffer does not hold.
const RECEIVE_CHAIN_MAX: usize = 64;
/// Segments of buffers that are discarded at once, after which the rest waits on: enough for the longest ring
/// with buffers of two segments, as drivers have them. Many heads of a ring may begin the same long chain.
const DISCARDED_SEGMENTS_MAX: usize = 2 * SIZE_MAX as usize;

enum AnyLayout {
    Split(Split),
    Packed(Packed),
}

/// A ring at work.
pub(super) struct Ring {
    layout: AnyLayout,
    parts: RingParts,
    segments: Segments,
    /// Buffers received and not returned yet; empty between bursts.
    taken: Taken,
    /// The guest must be notified at the next opportunity.
    pub(super) is_call_due: bool,
    /// The guest has disabled it: what it sends there is discarded.
    pub(super) is_disabled: bool,
}

// SAFETY: the pointers in it go into guest memory, which `parts.memory` keeps mapped, and which is only
// copied from and to.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn split(split: Split, size: usize, parts: RingParts) -> Ring {
        Ring::new(AnyLayout::Split(split), size, parts)
    }

    pub(super) fn packed(packed: Packed, size: usize, parts: RingParts) -> Ring {
        Ring::new(AnyLayout::Packed(packed), size, parts)
    }

    fn new(layout: AnyLayout, size: usize, parts: RingParts) -> Ring {
        let chain_max = match parts.direction {
            // A chain has no more descriptors than the ring. A buffer that spans the end of a region is of
            // two segments.
            Direction::FromGuest => size.min(SENT_CHAIN_MAX) + REGIONS_MAX,
            Direction::ToGuest => RECEIVE_CHAIN_MAX,
        };
        let segments = Segments { list: Vec::with_capacity(BURST_SEGMENTS + chain_max), chain_max };
        Ring { layout, parts, segments, taken: Taken::new(), is_call_due: false, is_disabled: false }
    }

    /// The position for GET_VRING_BASE.
    pub(super) fn base(&self) -> u32 {
        match &self.layout {
            AnyLayout::Split(split) => split.base(),
            AnyLayout::Packed(packed) => packed.base(),
        }
    }

    /// Whether buffers are waiting.
    pub(super) fn has_available(&mut self) -> Result<bool, Fault> {
        Ok(match &mut self.layout {
            AnyLayout::Split(split) => split.available(1)?,
            AnyLayout::Packed(packed) => packed.available(1)?,
        } > 0)
    }

    /// Whether `packets` buffers wait, or half of a short ring's size. A fault is found by the next burst.
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

    /// Whether this fault is only for want of memory that may be added again. Then the ring is as it was
    /// before the buffer that lies there.
    pub(super) fn waits_for(&self, fault: Fault) -> bool {
        self.parts.waits_for(fault)
    }

    /// Checks that the guest's memory still exists.
    fn check_memory(&self) -> Result<(), Fault> {
        if self.parts.memory.is_broken() { Err(Fault("the guest's memory vanished")) } else { Ok(()) }
    }

    /// Receives what the guest has sent, as much as `batch` has room for. If `tails` is given, frames' tails
    /// may stay in place and are recorded there. Return the buffers with [`Self::give_back`] when they are no
    /// longer needed.
    #[inline]
    pub(super) fn receive(
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

    /// Whether buffers were received, with packets or not, and not returned yet.
    pub(super) fn has_received(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Returns the buffers of the received burst to the guest. An error if they have vanished meanwhile.
    #[inline(always)]
    pub(super) fn give_back(&mut self) -> Result<(), Fault> {
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
        self.check_memory()
    }

    /// Returns what waits, unread, up to [`DISCARDED_SEGMENTS_MAX`]. The number of buffers.
    pub(super) fn discard(&mut self) -> Result<u64, Fault> {
        let (mut count, mut segments_read) = (0, 0);
        while segments_read < DISCARDED_SEGMENTS_MAX {
            match self.discard_burst() {
                Ok(0) => break,
                Ok(buffers) => count += buffers,
                Err(fault) if self.parts.waits_for(fault) => break,
                Err(fault) => return Err(fault),
            }
            segments_read += self.segments.list.len();
        }
        Ok(count)
    }

    /// The same of one burst.
    pub(super) fn discard_burst(&mut self) -> Result<u64, Fault> {
        let Ring { layout, parts, segments, taken, .. } = self;
        match layout {
            AnyLayout::Split(split) => take_chains(split, parts, segments, BURST, taken)?,
            AnyLayout::Packed(packed) => take_chains(packed, parts, segments, BURST, taken)?,
        }
        let count = self.taken.len() as u64;
        if count > 0 {
            self.give_back()?;
        }
        Ok(count)
    }

    /// Writes packets from the front of `batch`, some of which have lent tails, as far as the guest has
    /// buffers for them. They stay in `batch`, counted in `sent` whatever else happens. The guest sees them
    /// after [`Self::show`].
    #[inline]
    pub(super) fn write_lent(
        &mut self,
        batch: &[Packet],
        lent: &mut Lent<'_>,
        sent: &mut Sent,
    ) -> Result<(), Fault> {
        let Ring { layout, parts, segments, .. } = self;
        let mut tx = Transmit { parts, segments, sent: Sent::default() };
        let result = match layout {
            AnyLayout::Split(split) => tx.burst_lent(split, batch, lent),
            AnyLayout::Packed(packed) => tx.burst_lent(packed, batch, lent),
        };
        *sent = tx.sent;
        match result {
            // The guest gets these first.
            Err(fault) if parts.waits_for(fault) && sent.taken > 0 => Ok(()),
            result => result,
        }
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

    /// Sends packets from the front of `batch`, which stay there: the caller frees those that `Sent` counts
    /// as taken.
    #[inline]
    pub(super) fn send(&mut self, batch: &[Packet]) -> Result<Sent, Fault> {
        let Ring { layout, parts, segments, is_call_due, .. } = self;
        let mut tx = Transmit { parts, segments, sent: Sent::default() };
        let result = match layout {
            AnyLayout::Split(split) => tx.burst(split, batch),
            AnyLayout::Packed(packed) => tx.burst(packed, batch),
        };
        let sent = tx.sent;
        *is_call_due |= match result {
            // Whether it wants to hear of those that it got is not known.
            Err(fault) if parts.waits_for(fault) && sent.taken > 0 => true,
            result => result?,
        };
        self.check_memory()?;
        Ok(sent)
    }
}
