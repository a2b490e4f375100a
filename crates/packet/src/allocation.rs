//! Packets out of a [pool](crate::pool) of chunks, and back.

use crate::pool::{HEADROOM_BYTES, LINE_BYTES, Line, Pool, PoolCache};
use crate::{Batch, Packet};
use base::PortNo;

impl Pool {
    /// Wraps chunk `idx`, whose bytes `data_off..data_off + len` a driver has filled, as a packet.
    ///
    /// For drivers that hand chunks to the kernel or to a device by index and get them back the same way.
    /// Panics if index or range lie outside the pool or chunk.
    ///
    /// # Safety
    /// The caller must own the chunk: it took it out of a [`Packet`] with [`Packet::into_chunk`] (or got it
    /// from [`PoolCache::take_chunk`]), has not wrapped it since, and no device writes to it any more.
    pub unsafe fn wrap(&'static self, idx: u32, data_off: usize, len: usize) -> Packet {
        Packet::from_parts(self, idx, data_off, len)
    }
}

/// Bytes by which a short frame starts behind the headroom, depending on its chunk. Chunks are a power of two
/// apart: without this the frames of a burst would fall into two sets of the first-level cache, which hold 16
/// to 24 lines, and evict each other (measured: 2.5 cycles per packet of 13 from a source straight into a
/// sink).
#[inline(always)]
fn stagger(idx: u32) -> usize {
    (idx as usize >> 1 & 7) * LINE_BYTES
}

impl PoolCache {
    /// An empty packet with the usual headroom, or `None` (counted) when the pool is exhausted.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let idx = self.take_chunk()?;
        Some(Packet::from_parts(self.pool(), idx, HEADROOM_BYTES, 0))
    }

    /// Gives a packet's chunks back.
    #[inline]
    pub fn free(&mut self, packet: Packet) {
        packet.free_into(self);
    }

    /// Gives back all packets of a batch and leaves it empty.
    #[inline]
    pub fn free_all<const N: usize>(&mut self, batch: &mut arrayvec::ArrayVec<Packet, N>) {
        if batch.iter().any(|packet| packet.is_chained() && !packet.is_lent()) {
            for packet in batch.drain(..) {
                self.free(packet);
            }
            return;
        }
        debug_assert!(batch.iter().all(|p| std::ptr::eq(p.pool(), self.pool())));
        self.give_chunks(batch.iter().map(Packet::chunk_idx));
        batch.clear();
    }

    /// A packet that holds a copy of `bytes`, in as many chunks as it takes. `None` (counted) when the pool
    /// is exhausted. Panics beyond 16 MB, which is no frame.
    pub fn alloc_frame(&mut self, bytes: &[u8]) -> Option<Packet> {
        assert!(bytes.len() < 16 << 20, "no frame is that long");
        let room = self.pool().config().chunk_bytes - HEADROOM_BYTES;
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        let mut packet = self.alloc()?;
        packet.fill(first).expect("not chained, and as long as there is room");
        for piece in rest.chunks(room) {
            let Some(mut tail) = self.alloc() else {
                self.free(packet);
                return None;
            };
            tail.fill(piece).expect("not chained, and as long as there is room");
            packet.append(tail);
        }
        Some(packet)
    }

    /// The loop of [`Self::alloc_copies`] for frames of one line: for each packet of the headline
    /// benchmark. One handle is made and copied, since three wide stores cost less than nine narrow ones.
    #[inline]
    fn copy_short(&self, batch: &mut Batch, in_port: PortNo, lines: &[Line], len: usize) {
        let Some(newest) = self.chunks().len().checked_sub(1) else { return };
        let mut made = batch.len();
        assert!(made + lines.len() <= batch.capacity() && lines.len() <= newest + 1, "room, and chunks");
        let (base, chunk_bytes) = (self.pool().base(), self.pool().config().chunk_bytes);
        let mut first = Packet::from_parts(self.pool(), self.chunks()[newest], HEADROOM_BYTES, len);
        first.in_port = in_port;
        // Out of the optimiser's sight, which would take it apart into its fields again.
        let first = std::hint::black_box(&first);
        let slots = batch.as_mut_ptr();
        for (line, &idx) in lines.iter().zip(self.chunks().iter().rev()) {
            // SAFETY: a free chunk's index is below `chunks`, so the offset lies within the mapping.
            let chunk = unsafe { base.add(idx as usize * chunk_bytes) };
            let data_off = HEADROOM_BYTES + stagger(idx);
            // SAFETY: a chunk has at least 2048 bytes, the largest `data_off` is 704.
            let frame = unsafe { chunk.add(data_off) }.cast::<[u8; LINE_BYTES]>();
            // SAFETY: the line lies within the chunk, as above, and a free chunk is ours alone.
            unsafe { frame.write(line.0) };
            // SAFETY: `made` is below the batch's capacity, asserted above.
            let slot = unsafe { slots.add(made) };
            // SAFETY: the slot lies within the batch and holds no live packet; the chunk is ours, and holds
            // `data_off` and a line.
            unsafe { first.write_sibling(slot, idx, chunk, data_off) };
            made += 1;
        }
        // SAFETY: the slots up to `made` were written above.
        unsafe { batch.set_len(made) };
    }

    /// Copies frames of equal length into fresh chunks and appends them to `batch`: for sources that replay
    /// from memory. Frame `i` is the first `len` bytes of `lines[i * lines_each..][..lines_each]`. Stops
    /// where the batch is full, the lines end, or the pool is exhausted (counted), and returns how many
    /// frames it made.
    ///
    /// Panics where `len` is more than `lines_each` lines hold, or a frame does not fit one chunk.
    #[inline]
    pub fn alloc_copies(
        &mut self,
        batch: &mut Batch,
        in_port: PortNo,
        lines: &[Line],
        lines_each: usize,
        len: usize,
    ) -> usize {
        assert!(len <= lines_each * LINE_BYTES && lines_each > 0, "a frame's lines hold it");
        assert!(HEADROOM_BYTES + lines_each * LINE_BYTES <= self.pool().config().chunk_bytes, "fits a chunk");
        let frames = if lines_each == 1 { lines.len() } else { lines.len() / lines_each };
        let wanted = frames.min(batch.remaining_capacity());
        let count = self.stock(wanted);
        let chunks = self.chunks().iter().rev();
        if lines_each == 1 {
            self.copy_short(batch, in_port, &lines[..count], len);
        } else {
            for (frame, &idx) in lines.chunks_exact(lines_each).take(count).zip(chunks) {
                let mut packet =
                    Packet::from_parts(self.pool(), idx, HEADROOM_BYTES, frame.len() * LINE_BYTES);
                packet.fill_lines(frame, len, in_port);
                batch.push(packet);
            }
        }
        self.take_chunks(count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BURST;
    use crate::pool::{PoolConfig, PoolStats};

    fn small() -> &'static Pool {
        Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap()
    }

    #[test]
    fn every_chunk_is_handed_out_once_and_then_it_is_exhausted() {
        let pool = small();
        let mut cache = pool.cache();
        let mut all: Vec<_> = std::iter::from_fn(|| cache.alloc()).collect();
        assert_eq!(all.len(), 64);
        assert_eq!(pool.stats(), PoolStats { total: 64, free: 0, exhausted: 1 });
        for p in all.drain(..) {
            cache.free(p);
        }
        assert_eq!(pool.stats().free, 64);
    }

    #[test]
    fn what_a_dropped_cache_held_is_free_again_for_others() {
        let pool = small();
        let mut first = pool.cache();
        let held: Vec<_> = (0..7).map(|_| first.alloc().unwrap()).collect();
        for p in held {
            first.free(p);
        }
        drop(first);
        assert_eq!(pool.stats().free, 64);
        let mut second = pool.cache();
        assert_eq!(std::iter::from_fn(|| second.alloc()).count(), 64);
    }

    #[test]
    fn copies_of_lines_are_whole_frames_and_stop_at_the_pools_end() {
        let pool = Pool::new(PoolConfig { chunks: 2 * BURST, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let lines: Vec<Line> = (0..80u8).map(|i| Line([i; LINE_BYTES])).collect();
        let mut seen = Vec::new();
        let mut batch = Batch::new();
        assert_eq!(cache.alloc_copies(&mut batch, PortNo(7), &lines[..3], 1, 60), 3);
        assert_eq!((batch[2].data(), batch[2].len(), batch[2].in_port), (&[2u8; 60][..], 60, PortNo(7)));
        assert_eq!(cache.alloc_copies(&mut batch, PortNo(7), &lines[..5], 2, 100), 2);
        assert_eq!((&batch[4].data()[..64], &batch[4].data()[64..]), (&[2u8; 64][..], &[3u8; 36][..]));
        assert_eq!(cache.alloc_copies(&mut batch, PortNo(7), &lines, 1, 64), BURST - 5, "the batch is full");
        seen.extend(batch.drain(..));
        assert_eq!(cache.alloc_copies(&mut batch, PortNo(7), &lines, 1, 64), BURST);
        seen.extend(batch.drain(..));
        assert_eq!(cache.alloc_copies(&mut batch, PortNo(7), &lines, 1, 64), 0, "the pool is exhausted");
        assert_eq!((pool.stats().free, pool.stats().exhausted), (0, 1));
        for p in seen {
            cache.free(p);
        }
        assert_eq!(pool.stats().free, 2 * BURST);
    }

    #[test]
    fn a_batch_with_chains_gives_every_chunk_back() {
        let pool = small();
        let mut cache = pool.cache();
        let mut batch = Batch::new();
        for _ in 0..8 {
            let mut packet = cache.alloc().unwrap();
            packet.append(cache.alloc().unwrap());
            batch.push(packet);
            batch.push(cache.alloc().unwrap());
        }
        assert_eq!(pool.stats().free, 40);
        cache.free_all(&mut batch);
        assert_eq!((pool.stats().free, batch.len()), (64, 0));
    }

    #[test]
    fn a_long_frame_becomes_a_chain_and_an_exhausted_pool_loses_nothing() {
        let pool = small();
        let mut cache = pool.cache();
        let bytes: Vec<u8> = (0..60_000u32).map(|i| i as u8).collect();
        let packet = cache.alloc_frame(&bytes).unwrap();
        assert_eq!(packet.segments().flatten().copied().collect::<Vec<_>>(), bytes);
        assert!(cache.alloc_frame(&bytes).is_none());
        cache.free(packet);
        assert_eq!(pool.stats().free, 64);
    }

    #[test]
    fn silly_sizes_are_refused() {
        assert!(Pool::new(PoolConfig { chunks: 1, chunk_bytes: 1000, huge_pages: false }).is_err());
    }
}
