//! The handle of one packet.
//!
//! 48 bytes by value: where its bytes are, where it came from, and what the driver reported about its
//! checksums.
//!
//! Jumbo frames: a frame longer than a chunk is a chain of segments. The first segment contains at least the
//! headers (up to 256 bytes, or the whole frame); [`Packet::data`] is only the first segment, [`Packet::len`]
//! is that of the whole frame.

use crate::BURST;
use crate::pool::{HEADROOM_BYTES, LINE_BYTES, Line, Pool, PoolCache};
use base::PortNo;
use std::ptr::NonNull;

/// "No further segment".
const NO_SEGMENT: u32 = u32::MAX;
/// From here up to [`NO_SEGMENT`]: the rest of the frame is the burst's tail with this number (see
/// [`crate::lent`]). No chunk has such an index, so using it as one panics.
const LENT: u32 = NO_SEGMENT - BURST as u32;

/// What is known about a packet besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PacketFlags(u8);

impl PacketFlags {
    /// The transport checksum is not finished: the field holds the folded pseudo-header sum, and
    /// `csum_start`/`csum_offset` of the packet say where. A port that cannot offload it completes it.
    pub const CSUM_PARTIAL: PacketFlags = PacketFlags(1);
    /// The driver has verified the transport checksum.
    pub const CSUM_VALID: PacketFlags = PacketFlags(2);
    /// A segmentation offload is pending: `gso_size` is the segment's payload, TCP over IPv4 or IPv6.
    pub const GSO_TCP: PacketFlags = PacketFlags(8);
    /// Like `GSO_TCP`, for UDP segmentation offload.
    pub const GSO_UDP: PacketFlags = PacketFlags(16);

    /// Whether all bits of `other` are set.
    #[inline(always)]
    pub fn has(self, other: PacketFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether no flag is set.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Sets the bits of `other`.
    #[inline(always)]
    pub fn set(&mut self, other: PacketFlags) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    #[inline(always)]
    pub fn clear(&mut self, other: PacketFlags) {
        self.0 &= !other.0;
    }
}

/// The owner of one packet's bytes. Give it back with [`PoolCache::free`]; dropping it leaks its chunk.
#[derive(Debug)]
#[must_use = "a packet that is dropped leaks its chunk: free it into a PoolCache"]
pub struct Packet {
    chunk: NonNull<u8>,
    pool: &'static Pool,
    idx: u32,
    next: u32,
    /// The port it came in at.
    pub in_port: PortNo,
    /// Bytes of the whole frame.
    len: u32,
    data_off: u16,
    seg_len: u16,
    /// Payload per segment where a GSO flag is set, in bytes.
    pub gso_size: u16,
    /// Start of the bytes that the unfinished checksum covers, from the start of the frame.
    pub csum_start: u16,
    /// Position of the checksum, relative to `csum_start`.
    pub csum_offset: u8,
    /// What is known besides the bytes.
    pub flags: PacketFlags,
}

// SAFETY: the handle owns its chunk: exactly one thread holds it at a time.
unsafe impl Send for Packet {}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({:?})", self.stats())
    }
}

impl Packet {
    pub(crate) fn from_parts(pool: &'static Pool, idx: u32, data_off: usize, len: usize) -> Packet {
        assert!(data_off + len <= pool.config().chunk_bytes, "frame outside its chunk");
        Packet {
            chunk: pool.chunk(idx),
            pool,
            idx,
            next: NO_SEGMENT,
            in_port: PortNo::NONE,
            len: len as u32,
            data_off: data_off as u16,
            seg_len: len as u16,
            gso_size: 0,
            csum_start: 0,
            csum_offset: 0,
            flags: PacketFlags::default(),
        }
    }

    /// Writes a packet to `slot` that is like this one, but in chunk `idx`, which starts at `chunk`, with its
    /// frame from `data_off` on.
    ///
    /// # Safety
    /// `slot` can be written and holds no packet; the caller owns chunk `idx` of this packet's pool, and
    /// `data_off` and this packet's length together do not exceed a chunk.
    #[inline(always)]
    pub(crate) unsafe fn write_sibling(
        &self,
        slot: *mut Packet,
        idx: u32,
        chunk: NonNull<u8>,
        data_off: usize,
    ) {
        // SAFETY: `slot` is valid for writes, as the caller vouches; the copy becomes a packet of its own
        // below.
        unsafe { std::ptr::copy_nonoverlapping(self, slot, 1) };
        // SAFETY: `slot` was initialised on the line above.
        let sibling = unsafe { &mut *slot };
        sibling.idx = idx;
        sibling.chunk = chunk;
        sibling.data_off = data_off as u16;
    }

    /// Makes a fresh packet of several whole lines the first `len` bytes of `lines`.
    #[inline(always)]
    pub(crate) fn fill_lines(&mut self, lines: &[Line], len: usize, in_port: PortNo) {
        debug_assert!(len <= lines.len() * LINE_BYTES);
        for (to, line) in self.data_mut().chunks_exact_mut(LINE_BYTES).zip(lines) {
            to.copy_from_slice(&line.0);
        }
        self.seg_len = len as u16;
        self.len = len as u32;
        self.in_port = in_port;
    }

    /// The frame's bytes in the first segment, from the Ethernet header on.
    #[inline(always)]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `data_off <= chunk_bytes` holds from construction on, so the start lies in the chunk.
        let start = unsafe { self.chunk.add(self.data_off as usize) };
        // SAFETY: `data_off + seg_len <= chunk_bytes`, the mapping never goes away, and we own the chunk.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.seg_len as usize) }
    }

    /// The frame's bytes in the first segment, to change.
    #[inline(always)]
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `data`.
        let start = unsafe { self.chunk.add(self.data_off as usize) };
        // SAFETY: as in `data`; `&mut self` makes us the only user.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.seg_len as usize) }
    }

    /// Length of the whole frame in bytes, all segments together.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)] // An empty frame is truncated, nothing asks for it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The position of the unfinished checksum, if there is one: inside a tunnel it is not that of the outer
    /// transport layer.
    #[inline(always)]
    pub fn unfinished_checksum(&self) -> Option<usize> {
        let at = usize::from(self.csum_start) + usize::from(self.csum_offset);
        self.flags.has(PacketFlags::CSUM_PARTIAL).then_some(at)
    }

    /// Whether the frame spans more than one chunk, or its tail is lent.
    #[inline(always)]
    pub fn is_chained(&self) -> bool {
        self.next != NO_SEGMENT
    }

    /// Whether the tail is still in its sender's memory (see [`crate::lent`]).
    #[inline(always)]
    pub fn is_lent(&self) -> bool {
        self.lent_idx().is_some()
    }

    /// The number of the lent tail in its burst.
    #[inline(always)]
    pub(crate) fn lent_idx(&self) -> Option<usize> {
        let idx = self.next.wrapping_sub(LENT) as usize;
        (idx < BURST).then_some(idx)
    }

    /// Turns its contents into the head of a frame whose tail of `tail_len` bytes is lent under a number.
    #[inline(always)]
    pub(crate) fn lend(&mut self, idx: usize, tail_len: usize) {
        assert!(idx < BURST && !self.is_chained());
        self.next = LENT + idx as u32;
        self.len = u32::from(self.seg_len) + tail_len as u32;
    }

    /// Ends the loan of a packet's tail: returns the place for the first `len` bytes of the tail, which must
    /// fit into the packet's chunk. The packet then has only these bytes, and the rest of the tail must be
    /// appended. Panics on any other packet.
    #[inline(always)]
    pub(crate) fn take_over_tail(&mut self, len: usize) -> &mut [u8] {
        assert!(self.is_lent() && len <= self.tailroom());
        let head_len = self.seg_len as usize;
        self.next = NO_SEGMENT;
        self.seg_len += len as u16;
        self.len = u32::from(self.seg_len);
        &mut self.data_mut()[head_len..]
    }

    /// Bytes free in front of the frame.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        // The first 8 bytes hold the link between segments.
        (self.data_off as usize).saturating_sub(8)
    }

    /// Bytes free behind the last byte of the first segment.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        self.pool.config().chunk_bytes - self.data_off as usize - self.seg_len as usize
    }

    /// Extends the frame at its front by `n` bytes, with unspecified contents. `None` (and no change) without
    /// the headroom.
    pub fn push_front(&mut self, n: usize) -> Option<()> {
        if n > self.headroom() {
            return None;
        }
        self.data_off -= n as u16;
        self.seg_len += n as u16;
        self.len += n as u32;
        Some(())
    }

    /// Cuts `n` bytes off the front. `None` (and no change) where the first segment is shorter.
    pub fn pull_front(&mut self, n: usize) -> Option<()> {
        if n > self.seg_len as usize {
            return None;
        }
        self.data_off += n as u16;
        self.seg_len -= n as u16;
        self.len -= n as u32;
        Some(())
    }

    /// Replaces the content with `bytes`, at the usual headroom. `None` (and no change) if they do not fit
    /// into one chunk, or this packet is chained.
    #[inline(always)]
    pub fn fill(&mut self, bytes: &[u8]) -> Option<()> {
        if HEADROOM_BYTES + bytes.len() > self.pool.config().chunk_bytes || self.is_chained() {
            return None;
        }
        self.data_off = HEADROOM_BYTES as u16;
        self.seg_len = bytes.len() as u16;
        self.len = bytes.len() as u32;
        self.data_mut().copy_from_slice(bytes);
        Some(())
    }

    /// Sets the frame's length within its single segment: a shorter length cuts the end off, a longer one
    /// exposes existing bytes. `None` if it does not fit or the packet is chained.
    pub fn set_len(&mut self, len: usize) -> Option<()> {
        if self.is_chained() || self.data_off as usize + len > self.pool.config().chunk_bytes {
            return None;
        }
        self.seg_len = len as u16;
        self.len = len as u32;
        Some(())
    }

    /// Start of the frame in its chunk, in bytes.
    #[inline(always)]
    pub fn data_off(&self) -> usize {
        self.data_off as usize
    }

    /// Index of the (first) chunk in its pool.
    #[inline(always)]
    pub fn chunk_idx(&self) -> u32 {
        self.idx
    }

    /// The pool of the chunk.
    #[inline(always)]
    pub fn pool(&self) -> &'static Pool {
        self.pool
    }

    /// Gives up the handle for the chunk's index, to hand it to a device. Panics on a chained packet:
    /// take it apart first with [`Self::split_next`].
    #[inline(always)]
    pub fn into_chunk(self) -> u32 {
        assert!(!self.is_chained(), "a chained packet has several chunks");
        self.idx
    }

    /// Appends `tail` (itself possibly a chain) as further segments. The whole frame's length grows.
    pub fn append(&mut self, tail: Packet) {
        self.len += tail.len;
        // The tail's own length must survive as its segment's: store link, offset and length at its chunk's
        // front.
        tail.store_link(tail.next);
        let mut last = self.idx;
        let mut next = self.next;
        while next != NO_SEGMENT {
            last = next;
            next = self.pool.read_link(next).0;
        }
        if last == self.idx {
            self.next = tail.idx;
        } else {
            self.pool.set_next(last, tail.idx);
        }
    }

    /// Detaches the first segment: returns it alone, with the rest of the chain if there is one. The rest's
    /// [`Self::len`] is what remains.
    pub fn split_next(mut self) -> (Packet, Option<Packet>) {
        if self.next == NO_SEGMENT {
            return (self, None);
        }
        let rest_len = self.len - u32::from(self.seg_len);
        let (next, off, len) = self.pool.read_link(self.next);
        let mut rest = Packet::from_parts(self.pool, self.next, off as usize, len as usize);
        rest.next = next;
        rest.len = rest_len;
        rest.in_port = self.in_port;
        self.next = NO_SEGMENT;
        self.len = u32::from(self.seg_len);
        (self, Some(rest))
    }

    /// The bytes of each segment, in order.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let mut next = self.next;
        std::iter::once(self.data()).chain(std::iter::from_fn(move || {
            if next == NO_SEGMENT {
                return None;
            }
            let (link, off, len) = self.pool.read_link(next);
            let chunk = self.pool.chunk(next);
            next = link;
            // SAFETY: `append` stored offset and length of a live packet, so they lie within the chunk.
            let start = unsafe { chunk.add(off as usize) };
            // SAFETY: as above; the chain owns the chunk as long as `self` lives.
            Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) })
        }))
    }

    /// A copy in new chunks, including metadata; for a packet whose tail is lent, a copy of the head with the
    /// same tail. `None` if the pool is exhausted (counted there).
    pub fn copy(&self, cache: &mut PoolCache) -> Option<Packet> {
        let mut copy = cache.alloc()?;
        copy.data_off = self.data_off.max(HEADROOM_BYTES as u16);
        let first = self.data();
        if copy.data_off as usize + first.len() > copy.pool.config().chunk_bytes {
            copy.data_off = self.data_off;
        }
        copy.set_len(first.len()).expect("as long as its source, in a chunk of the same size");
        copy.data_mut().copy_from_slice(first);
        if self.is_lent() {
            copy.next = self.next;
            copy.len = self.len;
        } else if self.is_chained() {
            copy = self.copy_rest(copy, cache)?;
        }
        copy.in_port = self.in_port;
        copy.gso_size = self.gso_size;
        copy.csum_start = self.csum_start;
        copy.csum_offset = self.csum_offset;
        copy.flags = self.flags;
        Some(copy)
    }

    /// Appends copies of all segments but the first.
    fn copy_rest(&self, mut copy: Packet, cache: &mut PoolCache) -> Option<Packet> {
        for segment in self.segments().skip(1) {
            let Some(mut tail) = cache.alloc() else {
                cache.free(copy);
                return None;
            };
            if tail.fill(segment).is_none() {
                // A segment that also uses the headroom: keep it where it was.
                tail.data_off = 8;
                tail.set_len(segment.len()).expect("a segment leaves 8 bytes for its link");
                tail.data_mut().copy_from_slice(segment);
            }
            copy.append(tail);
        }
        Some(copy)
    }

    pub(crate) fn free_into(self, cache: &mut PoolCache) {
        debug_assert!(std::ptr::eq(self.pool, cache.pool()), "a packet returns to its own pool");
        let mut next = if self.is_lent() { NO_SEGMENT } else { self.next };
        cache.give_chunk(self.idx);
        while next != NO_SEGMENT {
            let link = self.pool.read_link(next).0;
            cache.give_chunk(next);
            next = link;
        }
    }

    fn store_link(&self, next: u32) {
        self.pool.write_link(self.idx, next, self.data_off, self.seg_len);
    }
}

impl Pool {
    /// Link, offset and length of a chained segment, from the first 8 bytes of its chunk.
    fn read_link(&self, idx: u32) -> (u32, u16, u16) {
        let at = self.chunk(idx).cast::<[u8; 8]>();
        // SAFETY: a chunk is at least 2048 bytes, and only the chain's owner reads or writes this one.
        let raw = unsafe { at.read_unaligned() };
        let word = |i: usize| u16::from_le_bytes([raw[i], raw[i + 1]]);
        (u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]), word(4), word(6))
    }

    fn write_link(&self, idx: u32, next: u32, off: u16, len: u16) {
        assert!(off >= 8, "a segment leaves its first 8 bytes to the link");
        let mut raw = [0u8; 8];
        raw[..4].copy_from_slice(&next.to_le_bytes());
        raw[4..6].copy_from_slice(&off.to_le_bytes());
        raw[6..].copy_from_slice(&len.to_le_bytes());
        let at = self.chunk(idx).cast::<[u8; 8]>();
        // SAFETY: as in `read_link`.
        unsafe { at.write_unaligned(raw) };
    }

    fn set_next(&self, idx: u32, next: u32) {
        let (_, off, len) = self.read_link(idx);
        self.write_link(idx, next, off, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolConfig;

    fn cache() -> PoolCache {
        Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
    }

    #[test]
    fn headers_are_pushed_and_pulled_at_the_front() {
        let mut cache = cache();
        let mut p = cache.alloc().unwrap();
        p.fill(b"payload").unwrap();
        p.push_front(4).unwrap();
        p.data_mut()[..4].copy_from_slice(b"head");
        assert_eq!(p.data(), b"headpayload");
        p.pull_front(4).unwrap();
        assert_eq!(p.data(), b"payload");
        assert!(p.push_front(249).is_none());
        assert!(p.pull_front(8).is_none());
        assert_eq!(p.len(), 7);
        cache.free(p);
    }

    #[test]
    fn a_chain_keeps_order_length_and_gives_every_chunk_back() {
        let mut cache = cache();
        let mut p = cache.alloc().unwrap();
        p.fill(&[1; 1000]).unwrap();
        for byte in [2u8, 3, 4] {
            let mut tail = cache.alloc().unwrap();
            tail.fill(&[byte; 500]).unwrap();
            p.append(tail);
        }
        assert_eq!(p.len(), 2500);
        let seen: Vec<(u8, usize)> = p.segments().map(|s| (s[0], s.len())).collect();
        assert_eq!(seen, [(1, 1000), (2, 500), (3, 500), (4, 500)]);
        let copy = p.copy(&mut cache).unwrap();
        assert_eq!(copy.segments().flatten().count(), 2500);
        let (first, rest) = p.split_next();
        assert_eq!((first.len(), rest.as_ref().unwrap().len()), (1000, 1500));
        cache.free(first);
        cache.free(rest.unwrap());
        cache.free(copy);
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn a_frame_that_does_not_fit_is_refused_unchanged() {
        let mut cache = cache();
        let mut p = cache.alloc().unwrap();
        p.fill(b"x").unwrap();
        assert!(p.fill(&[0; 1793]).is_none());
        assert_eq!(p.data(), b"x");
        cache.free(p);
    }
}
