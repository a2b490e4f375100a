//! The packet pool: one mapping cut into chunks of equal size, and the stacks of free ones.
//!
//! Each worker has a [`PoolCache`] of free chunks, and trades blocks of 32 with the shared lock-free queue
//! when it runs empty or full; in a steady state it never does. The size is a hard ceiling.
//!
//! Layout of a chunk of [`PoolConfig::chunk_bytes`]: first [`HEADROOM_BYTES`] (which include AF_XDP's own
//! headroom of 256 bytes), then room for the frame. The first 8 bytes of a chunk's headroom contain the link
//! to the next segment if a frame spans several chunks.
//!
//! Invariants: the mapping lives until the process ends (pools are leaked on purpose), so a pointer into it
//! never dangles; a chunk index is either in exactly one free stack or owned by exactly one
//! [`Packet`](crate::Packet) (or by a driver's ring on behalf of one).

use crate::{BURST, Batch};
use base::Counter;
use crossbeam_queue::ArrayQueue;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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

/// One cache line of a frame that is kept in memory to be copied into packets, with arbitrary padding at its
/// end.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

/// Configuration of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// Number of chunks; rounded up to a multiple of 32.
    pub chunks: usize,
    /// Size of a chunk in bytes: a power of two from 2048 to 65536 (AF_XDP takes 2048 and 4096).
    pub chunk_bytes: usize,
    /// Try explicit huge pages first; if there are none, ordinary pages with a hint for transparent ones.
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
    free: ArrayQueue<[u32; BLOCK]>,
    /// Chunks in the caches, each cache writing its own counter.
    caches: std::sync::Mutex<Vec<Arc<CacheAccount>>>,
    stray: std::sync::Mutex<Vec<u32>>,
    exhausted: AtomicU64,
    /// See [`Pool::limit_bursts`].
    burst_max: AtomicUsize,
    /// Chunks that packets hold which wait at ports, see [`crate::share`].
    pub(crate) waiting: AtomicUsize,
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
    /// Errors: the operating system's, if it refuses the memory; `InvalidInput` for a chunk size that is not
    /// a power of two from 2048 to 65536, or for more than 2^26 chunks.
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
            free,
            caches: Default::default(),
            stray: Default::default(),
            exhausted: AtomicU64::new(0),
            burst_max: AtomicUsize::new(BURST),
            waiting: AtomicUsize::new(0),
        })))
    }

    /// A cache of free chunks for one thread.
    pub fn cache(&'static self) -> PoolCache {
        let account = Arc::new(CacheAccount::default());
        self.caches.lock().expect("no panic while held").push(account.clone());
        PoolCache {
            pool: self,
            free: Vec::with_capacity(CACHE_MAX + BLOCK),
            account,
            burst_max: self.burst_max(),
        }
    }

    /// From now on, threads that get a cache receive at most this many packets at once: 1 to [`BURST`], which
    /// is the default. For measurements beside switches with other batches.
    pub fn limit_bursts(&self, packets: usize) {
        self.burst_max.store(packets.clamp(1, BURST), Ordering::Relaxed);
    }

    /// See [`Pool::limit_bursts`].
    pub fn burst_max(&self) -> usize {
        self.burst_max.load(Ordering::Relaxed)
    }

    /// The accounts. Exact while no worker runs, otherwise slightly out of date.
    pub fn stats(&self) -> PoolStats {
        let cached: u64 = self.caches.lock().expect("no panic while held").iter().map(|c| c.free.get()).sum();
        let stray = self.stray.lock().expect("no panic while held").len();
        PoolStats {
            total: self.config.chunks,
            free: self.free.len() * BLOCK + cached as usize + stray,
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    /// The requested configuration, rounded.
    pub fn config(&self) -> PoolConfig {
        self.config
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
}

/// Touches every page of a mapping at once, by the platform's own means.
#[cfg(target_os = "linux")]
const MAP_TOUCHED: libc::c_int = libc::MAP_POPULATE;
#[cfg(not(target_os = "linux"))]
const MAP_TOUCHED: libc::c_int = libc::MAP_PREFAULT_READ;

fn map_memfd(bytes: usize, huge: bool) -> io::Result<(NonNull<u8>, OwnedFd)> {
    let flags = libc::MFD_CLOEXEC | if huge { libc::MFD_HUGETLB } else { 0 };
    // SAFETY: the name is a literal with a terminating zero.
    let fd = unsafe { libc::memfd_create(c"crosspoint-pool".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create just returned this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // Touched at once, since huge pages that are not there must be missed here and not by a SIGBUS later.
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
    // The kernel maps pages that a control group or the node's memory then does not grant, without a word.
    if huge && blocks_bytes(&fd)? < bytes {
        // SAFETY: the range was mapped above, and nothing refers to it.
        unsafe { libc::munmap(memory, bytes) };
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok((NonNull::new(memory.cast()).expect("mmap never returns null for a null hint"), fd))
}

/// The memory that a file really has.
fn blocks_bytes(fd: &OwnedFd) -> io::Result<usize> {
    // SAFETY: zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and `stat` outlives the call.
    match unsafe { libc::fstat(fd.as_raw_fd(), &raw mut stat) } {
        0 => Ok(stat.st_blocks as usize * 512),
        _ => Err(io::Error::last_os_error()),
    }
}

/// One thread's stack of free chunks. The last one freed is the next one used: its lines are warm.
pub struct PoolCache {
    pool: &'static Pool,
    free: Vec<u32>,
    account: Arc<CacheAccount>,
    burst_max: usize,
}

impl PoolCache {
    /// How many more packets a receive queue may append to a batch.
    #[inline]
    pub fn room(&self, batch: &Batch) -> usize {
        self.burst_max.saturating_sub(batch.len())
    }

    /// The pool behind it.
    pub fn pool(&self) -> &'static Pool {
        self.pool
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

    /// Takes a block of free chunks from the pool. False (counted) if it has none left.
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

    /// The free chunks, the one that is next last.
    #[inline(always)]
    pub(crate) fn chunks(&self) -> &[u32] {
        &self.free
    }

    /// Ensures that `wanted` chunks are free if possible, and returns how many of these there are.
    #[inline(always)]
    pub(crate) fn stock(&mut self, wanted: usize) -> usize {
        while self.free.len() < wanted && self.grow() {}
        wanted.min(self.free.len())
    }

    /// Takes the last `count` of [`Self::chunks`].
    #[inline(always)]
    pub(crate) fn take_chunks(&mut self, count: usize) {
        self.free.truncate(self.free.len() - count);
        self.account.free.set(self.free.len() as u64);
    }

    /// Gives chunks back.
    #[inline(always)]
    pub(crate) fn give_chunks(&mut self, chunks: impl Iterator<Item = u32>) {
        self.free.extend(chunks);
        if self.free.len() > CACHE_MAX {
            self.spill();
        }
        self.account.free.set(self.free.len() as u64);
    }

    /// Gives a chunk back that [`Self::take_chunk`] or [`Packet::into_chunk`](crate::Packet::into_chunk)
    /// yielded.
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
