//! Where the kernel puts a frame that does not fit into one chunk: chunks kept ready as further segments.
//!
//! Shared by the drivers that read with a system call per frame (`tap`, and large frames of packet sockets).

use packet::{Packet, Pool, PoolCache};

/// The longest frame that the kernel gives: 64 KB of network packet, the Ethernet header, tags.
pub(crate) const FRAME_MAX: usize = 65536 + 64;
/// Where a further segment starts in its chunk: after the link, with some room for headers.
const OFFSET: usize = 64;
/// Places for a first chunk and [`FRAME_MAX`] bytes in chunks of the smallest size.
pub(crate) const PLACES_MAX: usize = 48;

/// A list of places for `readv` and `recvmsg`.
pub(crate) type Places = arrayvec::ArrayVec<libc::iovec, PLACES_MAX>;

/// Chunks ready for the rest of a large frame.
pub(crate) struct Tails {
    pool: &'static Pool,
    chunks: Vec<u32>,
}

impl Tails {
    pub(crate) fn new(pool: &'static Pool) -> Tails {
        Tails { pool, chunks: Vec::with_capacity(PLACES_MAX) }
    }

    fn room(&self) -> usize {
        self.pool.config().chunk_bytes - OFFSET
    }

    /// Makes sure that a frame of any length finds chunks. False where the pool has too few.
    pub(crate) fn fill(&mut self, cache: &mut PoolCache) -> bool {
        let needed = FRAME_MAX.div_ceil(self.room());
        while self.chunks.len() < needed {
            let Some(idx) = cache.take_chunk() else { return false };
            self.chunks.push(idx);
        }
        true
    }

    /// Appends the places of all chunks.
    pub(crate) fn add_places(&self, places: &mut Places) {
        let chunk_bytes = self.pool.config().chunk_bytes;
        for &idx in &self.chunks {
            // SAFETY: `idx < chunks`, as the pool gave it, so the offset lies within the mapping.
            let at = unsafe { self.pool.base().add(idx as usize * chunk_bytes + OFFSET) };
            places.push(libc::iovec { iov_base: at.as_ptr().cast(), iov_len: self.room() });
        }
    }

    /// Makes the first `rest` bytes in the places further segments of `head`.
    pub(crate) fn append_to(&mut self, head: &mut Packet, mut rest: usize) {
        let room = self.room();
        for idx in self.chunks.drain(..rest.div_ceil(room)) {
            let len = rest.min(room);
            rest -= len;
            // SAFETY: the chunk came from `take_chunk`, and only this list has had it since.
            head.append(unsafe { self.pool.wrap(idx, OFFSET, len) });
        }
    }

    pub(crate) fn close(&mut self, cache: &mut PoolCache) {
        for idx in self.chunks.drain(..) {
            cache.give_chunk(idx);
        }
    }
}

/// The room of a new packet, including `header_len` bytes of its headroom.
pub(crate) fn first_place(head: &mut Packet, header_len: usize) -> libc::iovec {
    head.set_len(head.tailroom()).expect("as long as there is room");
    head.push_front(header_len).expect("an empty packet has headroom");
    let bytes = head.data_mut();
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}
