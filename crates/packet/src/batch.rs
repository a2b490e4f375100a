//! Moving packets from batch to batch without passing them through registers.
//!
//! A packet's handle is 48 bytes. Taken out of one batch by value and pushed into another it goes through the
//! stack in pieces of another size than it is read back, which stalls the processor for longer than the
//! switching takes. Runs of packets with the same destination are copied from memory to memory here.

use crate::{Batch, Packet};

/// A batch that is being emptied from its front. Packets that are left when it is dropped are leaked.
pub struct Runs<'a> {
    batch: &'a mut Batch,
    next: usize,
    len: usize,
}

impl<'a> Runs<'a> {
    /// Starts to empty the batch.
    #[inline(always)]
    pub fn new(batch: &'a mut Batch) -> Runs<'a> {
        let len = batch.len();
        // SAFETY: 0 is within the capacity; what lies below `len` stays initialised and is moved out at most
        // once, since `next` only grows.
        unsafe { batch.set_len(0) };
        Runs { batch, next: 0, len }
    }

    /// Packets left.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.len - self.next
    }

    /// Moves the next `count` packets to the end of `to`. Panics if there are fewer, or no room for them.
    #[inline(always)]
    pub fn move_to(&mut self, count: usize, to: &mut Batch) {
        assert!(count <= self.left() && count <= to.remaining_capacity());
        // SAFETY: `next <= len <= capacity` of the batch's storage.
        let from = unsafe { self.batch.as_ptr().add(self.next) };
        // SAFETY: `to.len() <= capacity` of its storage.
        let end = unsafe { to.as_mut_ptr().add(to.len()) };
        // SAFETY: `count` initialised packets lie at `from` and as much room at `end`, both asserted above;
        // two batches never overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, end, count) };
        let len = to.len() + count;
        // SAFETY: within the capacity, asserted above, and initialised by the copy.
        unsafe { to.set_len(len) };
        self.next += count;
    }

    /// The packet after the next `n` ones, which stays in its place.
    #[inline(always)]
    pub fn behind(&mut self, n: usize) -> Option<&mut Packet> {
        if n >= self.left() {
            return None;
        }
        // SAFETY: `next + n < len` of the storage.
        let at = unsafe { self.batch.as_mut_ptr().add(self.next + n) };
        // SAFETY: initialised, not taken yet, and borrowed as long as `self` is.
        Some(unsafe { &mut *at })
    }

    /// Takes the next packet.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Packet> {
        if self.left() == 0 {
            return None;
        }
        // SAFETY: `next < len` of the storage.
        let at = unsafe { self.batch.as_ptr().add(self.next) };
        self.next += 1;
        // SAFETY: initialised, and passed by: it is not read again.
        Some(unsafe { at.read() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};

    #[test]
    fn runs_keep_order_and_lose_nobody() {
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut batch = Batch::new();
        for n in 0..32u8 {
            let mut p = cache.alloc().unwrap();
            p.fill(&[n]).unwrap();
            batch.push(p);
        }
        let (mut a, mut b) = (Batch::new(), Batch::new());
        let mut runs = Runs::new(&mut batch);
        runs.move_to(10, &mut a);
        assert_eq!(runs.behind(21).map(|p| p.data()[0]), Some(31));
        assert!(runs.behind(22).is_none());
        let single = runs.take().unwrap();
        runs.move_to(21, &mut b);
        assert!(runs.take().is_none());
        let bytes = |batch: &Batch| batch.iter().map(|p| p.data()[0]).collect::<Vec<_>>();
        assert_eq!(bytes(&a), (0..10).collect::<Vec<_>>());
        assert_eq!(single.data(), [10]);
        assert_eq!(bytes(&b), (11..32).collect::<Vec<_>>());
        assert!(batch.is_empty());
        cache.free(single);
        cache.free_all(&mut a);
        cache.free_all(&mut b);
        assert_eq!(pool.stats().free, 64);
    }
}
