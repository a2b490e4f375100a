//! Large arrays that start as zeros and cost memory only where they are touched.
//!
//! A worker's caches may grow to millions of entries and usually hold a few; they must grow without an
//! allocation on the packet path. So the whole array is mapped at once, without reservation, with a hint for
//! huge pages, and grows when it is touched.

use crate::ahead::{self, Growth};
use crate::mapping::Mapping;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Costs nothing until it is touched: Linux must be asked, others do so anyway.
#[cfg(target_os = "linux")]
const MAP_LAZY: libc::c_int = libc::MAP_NORESERVE;
#[cfg(not(target_os = "linux"))]
const MAP_LAZY: libc::c_int = 0;

/// `len` elements of zero bytes, mapped when first touched. `T` must be valid as all zeros, which
/// [`zerocopy::FromZeros`] vouches for; elements are never dropped.
pub struct Region<T: zerocopy::FromZeros> {
    start: NonNull<T>,
    len: usize,
    mapping: Arc<Mapping>,
    /// Where the memory is populated ahead of use.
    growth: Option<Arc<Growth>>,
    /// It is in huge pages, or being moved into them.
    is_gathered: AtomicBool,
    _owns: PhantomData<T>,
}

// SAFETY: a Region owns its memory like a Box<[T]>.
unsafe impl<T: zerocopy::FromZeros + Send> Send for Region<T> {}
// SAFETY: as above: shared access gives only &T.
unsafe impl<T: zerocopy::FromZeros + Sync> Sync for Region<T> {}

impl<T: zerocopy::FromZeros> Region<T> {
    /// Maps room for `len` elements. Errors are the operating system's (address space exhausted).
    pub fn new(len: usize) -> std::io::Result<Region<T>> {
        Region::mapped(len, true)
    }

    /// Like [`Self::new`], for elements touched in random order, as in a hash table: in small pages, so that
    /// a few elements do not cost a huge page each.
    pub fn scattered(len: usize) -> std::io::Result<Region<T>> {
        Region::mapped(len, false)
    }

    fn mapped(len: usize, in_huge_pages: bool) -> std::io::Result<Region<T>> {
        assert!(!std::mem::needs_drop::<T>(), "elements of a region are never dropped");
        const HUGE: usize = 2 << 20;
        let wanted = len.checked_mul(size_of::<T>()).ok_or(std::io::ErrorKind::OutOfMemory)?.max(1);
        // One huge page more, so that the start can be aligned to one: only aligned ranges get huge pages.
        let bytes = wanted.next_multiple_of(4096) + if wanted >= HUGE { HUGE } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mode = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | MAP_LAZY;
        // SAFETY: a fresh mapping at an address of the kernel's choice cannot overlap ours.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, mode, -1, 0) };
        if raw == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let skip = if wanted >= HUGE { raw.cast::<u8>().align_offset(HUGE) } else { 0 };
        // SAFETY: `skip < HUGE`, and the mapping is HUGE longer than wanted where skip is not 0.
        let start = unsafe { raw.cast::<u8>().add(skip) };
        if skip > 0 {
            // What lies before the start belongs to nobody. If it stayed, it would cost a mapping for ever,
            // of which a process may have only so many.
            // SAFETY: `skip` bytes of the mapping made above, and the region begins behind them.
            unsafe { libc::munmap(raw, skip) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = in_huge_pages;
        #[cfg(target_os = "linux")]
        if wanted >= HUGE {
            let advice = if in_huge_pages { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            // Only a hint: plain pages suffice if the kernel declines.
            // SAFETY: the range lies within the mapping made above.
            unsafe { libc::madvise(start.cast(), wanted, advice) };
        }
        // The slack behind it stays mapped and untouched as long as the region: it costs address space only.
        let start = NonNull::new(start).expect("mmap never returns null for a null hint");
        let mapping = Arc::new(Mapping { start, bytes: bytes - skip });
        let is_gathered = AtomicBool::new(in_huge_pages);
        Ok(Region { start: start.cast(), len, mapping, growth: None, is_gathered, _owns: PhantomData })
    }

    /// Like [`Self::new`], for a region that is filled from the start: as it grows, its memory is populated
    /// in advance, so that the writer need not wait, see [`crate::ahead`]. Report how much is used with
    /// [`Self::in_use`].
    pub fn growing(len: usize) -> std::io::Result<Region<T>> {
        Region::kept(len, false)
    }

    /// Like [`Self::growing`], for a region that will probably stay unused: it uses memory from its first use
    /// on.
    pub fn growing_once_used(len: usize) -> std::io::Result<Region<T>> {
        Region::kept(len, true)
    }

    fn kept(len: usize, unused: bool) -> std::io::Result<Region<T>> {
        let mut region = Region::new(len)?;
        region.growth = Some(ahead::keep(&region.mapping, len * size_of::<T>(), unused));
        Ok(region)
    }

    /// The first `elements` are in use now, and soon those behind them.
    #[inline(always)]
    pub fn in_use(&self, elements: usize) {
        if let Some(growth) = &self.growth {
            growth.in_use(elements * size_of::<T>());
        }
    }

    /// Reports that most small pages of a [`Self::scattered`] region have been touched, so that huge ones
    /// cost little more memory: another thread moves it into these. Contents are preserved. A hint.
    #[cold]
    pub fn gather(&self) {
        if !self.is_gathered.swap(true, Relaxed) {
            ahead::gather(&self.mapping, self.len * size_of::<T>());
        }
    }

    /// Populates these elements in advance for accesses that must not wait. Contents are preserved. A hint:
    /// kernels before 5.14 do nothing.
    pub fn populate(&self, elements: std::ops::Range<usize>) {
        let bytes = |n: usize| n.min(self.len) * size_of::<T>();
        self.mapping.populate(bytes(elements.start)..bytes(elements.end));
    }
}

impl<T: zerocopy::FromZeros> Deref for Region<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements are mapped from an aligned start, zero bytes are a valid T, and we own them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: zerocopy::FromZeros> DerefMut for Region<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes us the only user.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Asks the processor to fetch the line of `target`. A hint; never faults.
#[inline(always)]
pub fn prefetch<T: ?Sized>(target: &T) {
    prefetch_ptr(std::ptr::from_ref(target).cast::<u8>());
}

/// Like [`prefetch`], for an element of a slice that may be out of range, in which case nothing happens.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], idx: usize) {
    prefetch_ptr(slice.as_ptr().wrapping_add(idx));
}

/// Like [`prefetch_at`], for the first `lines` cache lines of the element, which starts at one.
#[inline(always)]
pub fn prefetch_lines_at<T>(slice: &[T], idx: usize, lines: usize) {
    let start = slice.as_ptr().wrapping_add(idx).cast::<i8>();
    for line in 0..lines {
        prefetch_ptr(start.wrapping_add(line * 64));
    }
}

/// Like [`prefetch`], for what may not be there any more.
#[inline(always)]
pub fn prefetch_ptr<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, mapped or not, is a hint and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zero_keeps_what_is_written_and_is_aligned() {
        let mut r: Region<u64> = Region::new(1 << 20).unwrap();
        assert!((r.as_ptr() as usize).is_multiple_of(2 << 20));
        assert_eq!(r[(1 << 20) - 1], 0);
        r[(1 << 20) - 1] = 7;
        assert_eq!((r[0], r[(1 << 20) - 1]), (0, 7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_region_that_is_gone_leaves_no_mapping_behind() {
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let before = mappings();
        let sizes = [(4 << 20) + 4096, 2 << 20, (3 << 20) + 1, 5 << 20];
        let mut last = None;
        for size in sizes.into_iter().cycle().take(1000) {
            // The one before is dropped when the next one is there.
            last = Some(Region::<u8>::new(size).unwrap());
        }
        drop(last);
        assert!(mappings() < before + 50, "{} mappings, {before} before", mappings());
    }

    #[test]
    fn populating_changes_nothing_and_keeps_within_bounds() {
        let mut r: Region<u64> = Region::new(1 << 20).unwrap();
        r[5] = 7;
        r.populate(0..6);
        r.populate((1 << 20) - 1..usize::MAX >> 4);
        r.populate(9..9);
        assert_eq!((r[5], r[6], r[(1 << 20) - 1]), (7, 0, 0));
        Region::<u8>::new(0).unwrap().populate(0..10);
        Region::<u8>::new(4096).unwrap().populate(0..4096);
    }

    #[test]
    fn small_and_empty_regions_work() {
        assert_eq!(Region::<u8>::new(0).unwrap().len(), 0);
        assert_eq!(Region::<u16>::new(3).unwrap()[2], 0);
    }
}
