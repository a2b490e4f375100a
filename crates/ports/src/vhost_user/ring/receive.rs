//! Receiving from a ring: a burst is taken, copied or its tails recorded, and its buffers returned by the
//! ring.

use crate::QueueStats;
use crate::vhost_user::chain::*;
use crate::vhost_user::copy::{self, Header};
use crate::vhost_user::counts::Tally;
use crate::virtio_net::{self, HEADER_LEN};
use base::PortNo;
use packet::lent::{HEAD_BYTES, Piece, Tails};
use packet::{Batch, Packet, PacketFlags, PoolCache};

/// The guest's packets on their way in.
pub(super) struct Receive<'a> {
    pub(super) parts: &'a RingParts,
    pub(super) segments: &'a mut Segments,
    pub(super) taken: &'a mut Taken,
    pub(super) port: PortNo,
    pub(super) stats: &'a QueueStats,
    /// Where lent tails are recorded.
    pub(super) tails: Option<&'a mut Tails>,
}

impl Receive<'_> {
    #[inline(always)]
    pub(super) fn burst<L: Layout>(
        &mut self,
        layout: &mut L,
        cache: &mut PoolCache,
        batch: &mut Batch,
    ) -> Result<(), Fault> {
        let wanted = cache.room(batch);
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

    /// Copies one frame. `None` (counted) if it is invalid, or chunks ran out in the middle of a large one.
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
        // A guest vouches for no checksum of its own (virtio 1.2 section 5.1.6.2.1).
        head.flags.clear(PacketFlags::CSUM_VALID);
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

/// Copies the head of a frame and leaves its tail in place. `None`, after no more than some copying, if the
/// case is not that simple.
#[inline]
fn copy_head(
    segments: &[Segment],
    header_len: usize,
    frame_len: usize,
    head: &mut Packet,
    tails: &mut Tails,
) -> Option<Header> {
    let is_fit = |header: Header, head: &Packet| {
        header.is_plain() || virtio_net::is_for_head(&header.bytes(), head.data(), frame_len)
    };
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
        if !is_fit(header, head) || !flow::extract::head_is_enough(head.data()) {
            return None;
        }
        // SAFETY: the piece lies in a buffer that was taken, in memory that the ring keeps mapped, and the
        // ring is kept until the tails are cleared.
        return unsafe { tails.lend(head, std::iter::once(piece)) }.then_some(header);
    }
    let mut reader = SegmentReader { segments, used: 0 };
    let header = reader.read_header(header_len);
    reader.read(head.data_mut());
    if !is_fit(header, head) {
        return None;
    }
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
    if !flow::extract::head_is_enough(head.data()) {
        return None;
    }
    // SAFETY: as above.
    unsafe { tails.lend(head, pieces) }.then_some(header)
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
