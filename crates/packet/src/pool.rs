//! The packet pool: one mapping cut into chunks of equal size, and the stacks of free ones.
//!
//! Each worker keeps a [`PoolCache`] of free chunks, and trades blocks of 32 with the shared lock-free
//! queue when it runs empty or full; in a steady state it never does. The size is a hard ceiling.
//!
//! Layout of a chunk of [`PoolConfig::chunk_bytes`]: [`HEADROOM_BYTES`] in front (AF_XDP's
//! own headroom of 256 bytes lies in them), then room for the frame. The first 8 bytes of a chunk's headroom
//! hold the link to the next segment where a frame spans several chunks.
//!
//! Invariants: the mapping lives until the process ends (pools are leaked on purpose), so a pointer into it
//! never dangles; a chunk index is either in exactly one free stack or owned by exactly one [`Packet`]
//! (or by a driver's ring on behalf of one).

use crate::Batch;
use crate::buffer::Packet;
use base::{Counter, PortNo};
use crossbeam_queue::ArrayQueue;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes kept free in front of a received frame: AF_XDP asks for 256, tunnels and tags push into it.
pub const HEADROOM_BYTES: usize = 256;
/// The smallest chunk.
pub(crate) const CHUNK_BYTES_MIN: usize = 2048;

/// Free chunks move between the shared queue and a worker's cache in blocks of this many.
const BLOCK: usize = 32;

/// A worker's cache gives blocks back above this many free chunks.
const CACHE_MAX: usize = 512;

/// Bytes of a [`Line`].
pub const LINE_BYTES: usize = 64;

/// One cache line of a frame that waits in memory to be copied into packets, padded with anything at its end.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

/// What a pool shall be.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Number of chunks; rounded up to a multiple of 32.
    pub chunks: usize,
    /// Size of a chunk in bytes: a power of two from 2048 to 65536 (AF_XDP takes 2048 and 4096).
    pub chunk_bytes: usize,
    /// Try explicit huge pages first; where there are none, plain pages with a hint for transparent ones.
    pub huge_pages: bool,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { chunks: 32 * 1024, chunk_bytes: 2048, huge_pages: true }
    }
}

/// The accounts of a pool, in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolStats {
    /// All there are.
    pub total: usize,
    /// Free: in the shared queue or in a worker's cache.
    pub free: usize,
    /// How often an allocation found nothing, since the start.
    pub exhausted: u64,
}

/// One mapping of packet memory and its free chunks.
pub struct Pool {
    memory: NonNull<u8>,
    memory_fd: OwnedFd,
    config: PoolConfig,
    huge: bool,
    free: ArrayQueue<[u32; BLOCK]>,
    /// Chunks in the caches, each cache writing its own counter.
    caches: std::sync::Mutex<Vec<Arc<CacheAccount>>>,
    stray: std::sync::Mutex<Vec<u32>>,
    exhausted: AtomicU64,
}

// SAFETY: the mapping is plain memory; which thread may touch which chunk follows from owning its index.
unsafe impl Send for Pool {}
// SAFETY: as above; the free lists are concurrent containers.
unsafe impl Sync for Pool {}

#[derive(Default)]
struct CacheAccount {
    free: Counter,
}

impl Pool {
    /// Maps a pool. It lives until the process ends.
    ///
    /// Errors: the operating system's, when the memory cannot be had; `InvalidInput` for a chunk size that
    /// is no power of two from 2048 to 65536, or more than 2^26 chunks.
    pub fn new(mut config: PoolConfig) -> io::Result<&'static Pool> {
        config.chunks = config.chunks.max(BLOCK).next_multiple_of(BLOCK);
        let sizes_fit = config.chunk_bytes.is_power_of_two()
            && (CHUNK_BYTES_MIN..=65536).contains(&config.chunk_bytes)
            && config.chunks <= 1 << 26;
        if !sizes_fit {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "packet pool: chunk size or count"));
        }
        let bytes = (config.chunks * config.chunk_bytes).next_multiple_of(2 << 20);
        let huge = if config.huge_pages { map_memfd(bytes, true).ok() } else { None };
        let is_huge = huge.is_some();
        let (memory, memory_fd) = match huge {
            Some(mapping) => mapping,
            None => map_memfd(bytes, false)?,
        };
        let free = ArrayQueue::new(config.chunks / BLOCK);
        for block in 0..config.chunks / BLOCK {
            let first = (block * BLOCK) as u32;
            free.push(std::array::from_fn(|i| first + i as u32)).expect("the queue holds every block");
        }
        Ok(Box::leak(Box::new(Pool {
            memory,
            memory_fd,
            config,
            huge: is_huge,
            free,
            caches: Default::default(),
            stray: Default::default(),
            exhausted: AtomicU64::new(0),
        })))
    }

    /// A cache of free chunks for one thread.
    pub fn cache(&'static self) -> PoolCache {
        let account = Arc::new(CacheAccount::default());
        self.caches.lock().expect("no panic while held").push(account.clone());
        PoolCache { pool: self, free: Vec::with_capacity(CACHE_MAX + BLOCK), account }
    }

    /// The accounts. Exact while no worker runs, else a moment old.
    pub fn stats(&self) -> PoolStats {
        let cached: u64 = self.caches.lock().expect("no panic while held").iter().map(|c| c.free.get()).sum();
        let stray = self.stray.lock().expect("no panic while held").len();
        PoolStats {
            total: self.config.chunks,
            free: self.free.len() * BLOCK + cached as usize + stray,
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    /// What was asked for, rounded.
    pub fn config(&self) -> PoolConfig {
        self.config
    }

    /// Whether the memory is in explicit huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// Start of the mapping, for AF_XDP's UMEM registration. Chunk `i` starts at `i * chunk_bytes`.
    pub fn base(&self) -> NonNull<u8> {
        self.memory
    }

    /// Length of the chunks' part of the mapping in bytes.
    pub fn len_bytes(&self) -> usize {
        self.config.chunks * self.config.chunk_bytes
    }

    /// The memfd behind the mapping.
    pub fn memory_fd(&self) -> &OwnedFd {
        &self.memory_fd
    }

    /// Start of a chunk.
    #[inline(always)]
    pub(crate) fn chunk(&self, idx: u32) -> NonNull<u8> {
        assert!((idx as usize) < self.config.chunks, "chunk index out of the pool");
        // SAFETY: `idx < chunks`, asserted above, so the offset lies within the mapping.
        unsafe { self.memory.add(idx as usize * self.config.chunk_bytes) }
    }

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

/// Touches every page of a mapping at once, in the words of the platform.
#[cfg(target_os = "linux")]
const MAP_TOUCHED: libc::c_int = libc::MAP_POPULATE;
#[cfg(not(target_os = "linux"))]
const MAP_TOUCHED: libc::c_int = libc::MAP_PREFAULT_READ;

/// Bytes by which a short frame starts behind the headroom, depending on its chunk. Chunks are a power of two
/// apart: without this the frames of a burst would fall into two sets of the first-level cache, which hold 16
/// to 24 lines, and evict each other (measured: 2.5 cycles per packet of 13 from a source straight into a
/// sink).
#[inline(always)]
fn stagger(idx: u32) -> usize {
    (idx as usize >> 1 & 7) * LINE_BYTES
}

fn map_memfd(bytes: usize, huge: bool) -> io::Result<(NonNull<u8>, OwnedFd)> {
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: the name is a literal with a terminating zero.
    let fd = unsafe { libc::memfd_create(c"crosspoint-pool".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create just returned this descriptor and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // Touched at once: huge pages that are not there must fail here and not as SIGBUS on first touch.
    let mode = libc::MAP_SHARED | if huge { MAP_TOUCHED } else { 0 };
    // SAFETY: a fresh mapping at an address of the kernel's choice cannot overlap ours.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, mode, fd.as_raw_fd(), 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    #[cfg(target_os = "linux")]
    if !huge {
        // A hint only: where the kernel has no transparent huge pages for shared memory, plain ones serve.
        // SAFETY: the range was mapped above.
        unsafe { libc::madvise(memory, bytes, libc::MADV_HUGEPAGE) };
    }
    Ok((NonNull::new(memory.cast()).expect("mmap never returns null for a null hint"), fd))
}

/// One thread's stack of free chunks. The last one freed is the next one used: its lines are warm.
pub struct PoolCache {
    pool: &'static Pool,
    free: Vec<u32>,
    account: Arc<CacheAccount>,
}

impl PoolCache {
    /// The pool behind it.
    pub fn pool(&self) -> &'static Pool {
        self.pool
    }

    /// An empty packet with the usual headroom, or `None` (counted) when the pool is exhausted.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let idx = self.take_chunk()?;
        Some(Packet::from_parts(self.pool, idx, HEADROOM_BYTES, 0))
    }

    /// A free chunk by index, for a driver's fill ring. Give it back with [`Self::give_chunk`], or
    /// wrap it with [`Pool::wrap`].
    #[inline]
    pub fn take_chunk(&mut self) -> Option<u32> {
        if let Some(idx) = self.free.pop() {
            self.account.free.set(self.free.len() as u64);
            return Some(idx);
        }
        self.refill()
    }

    #[cold]
    fn refill(&mut self) -> Option<u32> {
        if !self.grow() {
            return None;
        }
        let idx = self.free.pop();
        self.account.free.set(self.free.len() as u64);
        idx
    }

    /// Takes a block of free chunks from the pool. False (counted) where it has none left.
    #[cold]
    fn grow(&mut self) -> bool {
        let before = self.free.len();
        if let Some(block) = self.pool.free.pop() {
            self.free.extend_from_slice(&block);
        } else if let Ok(mut stray) = self.pool.stray.try_lock() {
            let take = stray.len().min(BLOCK);
            let keep = stray.len() - take;
            self.free.extend(stray.drain(keep..));
        }
        self.account.free.set(self.free.len() as u64);
        if self.free.len() == before {
            self.pool.exhausted.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Gives a chunk back that [`Self::take_chunk`] or [`Packet::into_chunk`] yielded.
    #[inline]
    pub fn give_chunk(&mut self, idx: u32) {
        debug_assert!((idx as usize) < self.pool.config.chunks);
        self.free.push(idx);
        if self.free.len() > CACHE_MAX {
            self.spill();
        }
        self.account.free.set(self.free.len() as u64);
    }

    #[cold]
    fn spill(&mut self) {
        while self.free.len() > CACHE_MAX / 2 {
            let at = self.free.len() - BLOCK;
            let block: [u32; BLOCK] = self.free[at..].try_into().expect("BLOCK long by construction");
            if self.pool.free.push(block).is_err() {
                // Full means that every block is there already: strays from a dropped cache fill it up.
                break;
            }
            self.free.truncate(at);
        }
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
        debug_assert!(batch.iter().all(|p| std::ptr::eq(p.pool(), self.pool)));
        self.free.extend(batch.iter().map(Packet::chunk_idx));
        batch.clear();
        if self.free.len() > CACHE_MAX {
            self.spill();
        }
        self.account.free.set(self.free.len() as u64);
    }

    /// A packet that holds a copy of `bytes`, in as many chunks as it takes. `None` (counted) when the pool
    /// is exhausted. Panics beyond 16 MB, which is no frame.
    pub fn alloc_frame(&mut self, bytes: &[u8]) -> Option<Packet> {
        assert!(bytes.len() < 16 << 20, "no frame is that long");
        let room = self.pool.config.chunk_bytes - HEADROOM_BYTES;
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
        let Some(newest) = self.free.len().checked_sub(1) else { return };
        let mut made = batch.len();
        assert!(made + lines.len() <= batch.capacity() && lines.len() <= newest + 1, "room, and chunks");
        let (base, chunk_bytes) = (self.pool.memory, self.pool.config.chunk_bytes);
        let mut first = Packet::from_parts(self.pool, self.free[newest], HEADROOM_BYTES, len);
        first.in_port = in_port;
        // Out of the optimiser's sight, which would take it apart into its fields again.
        let first = std::hint::black_box(&first);
        let slots = batch.as_mut_ptr();
        for (line, &idx) in lines.iter().zip(self.free.iter().rev()) {
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
        assert!(HEADROOM_BYTES + lines_each * LINE_BYTES <= self.pool.config.chunk_bytes, "fits a chunk");
        let frames = if lines_each == 1 { lines.len() } else { lines.len() / lines_each };
        let wanted = frames.min(batch.remaining_capacity());
        while self.free.len() < wanted && self.grow() {}
        let count = wanted.min(self.free.len());
        let at = self.free.len() - count;
        let chunks = self.free[at..].iter().rev();
        if lines_each == 1 {
            self.copy_short(batch, in_port, &lines[..count], len);
        } else {
            for (frame, &idx) in lines.chunks_exact(lines_each).zip(chunks) {
                let mut packet = Packet::from_parts(self.pool, idx, HEADROOM_BYTES, frame.len() * LINE_BYTES);
                packet.fill_lines(frame, len, in_port);
                batch.push(packet);
            }
        }
        self.free.truncate(at);
        self.account.free.set(at as u64);
        count
    }
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        while self.free.len() >= BLOCK {
            self.spill_one();
        }
        self.pool.stray.lock().expect("no panic while held").append(&mut self.free);
        self.account.free.set(0);
        self.pool.caches.lock().expect("no panic while held").retain(|c| !Arc::ptr_eq(c, &self.account));
    }
}

impl PoolCache {
    fn spill_one(&mut self) {
        let at = self.free.len() - BLOCK;
        let block: [u32; BLOCK] = self.free[at..].try_into().expect("BLOCK long by construction");
        self.free.truncate(at);
        if self.pool.free.push(block).is_err() {
            self.pool.stray.lock().expect("no panic while held").extend_from_slice(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BURST;

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
