//! Memory from the operating system, shared by a region's owner and the thread that populates it.

use std::ptr::NonNull;

/// Memory from the operating system, unmapped when its last user is gone.
pub(crate) struct Mapping {
    pub start: NonNull<u8>,
    pub bytes: usize,
}

// SAFETY: a Mapping gives no access to its memory; it populates and unmaps it, which any thread may do.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first touch of a page takes a fraction of a millisecond, or several in a virtual machine whose
    /// host must find a page too. `bytes` are offsets from the start, within the region, which ends at a
    /// whole page.
    pub(crate) fn populate(&self, bytes: std::ops::Range<usize>) {
        const PAGE: usize = 4096;
        let (start, end) = (bytes.start / PAGE * PAGE, bytes.end.next_multiple_of(PAGE));
        assert!(end <= self.bytes, "within the mapping");
        if end <= start {
            return;
        }
        #[cfg(target_os = "linux")]
        {
            // SAFETY: `start < end <= self.bytes`, so it lies within the mapping.
            let from = unsafe { self.start.as_ptr().add(start) };
            // SAFETY: the range lies within our mapping; populating changes no byte of it.
            unsafe { libc::madvise(from.cast(), end - start, libc::MADV_POPULATE_WRITE) };
        }
    }

    /// Moves the memory into huge pages: existing pages are moved together, immediately or, by a kernel
    /// before 6.1, some time later; missing ones are allocated as huge pages. `bytes` are offsets from the
    /// start, at multiples of a huge page, within the region. Contents are preserved, including concurrent
    /// writes.
    pub(crate) fn gather(&self, bytes: std::ops::Range<usize>) {
        assert!(bytes.start < bytes.end && bytes.end <= self.bytes, "within the mapping");
        #[cfg(target_os = "linux")]
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_COLLAPSE] {
            // SAFETY: `start < end <= self.bytes`, so it lies within the mapping.
            let from = unsafe { self.start.as_ptr().add(bytes.start) };
            // Only a hint: small pages suffice if the kernel declines.
            // SAFETY: the range lies within our mapping; it is moved, and no byte of it changes.
            unsafe { libc::madvise(from.cast(), bytes.len(), advice) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: from the aligned start to the mapping's end, as its maker vouches; every region whose
        // memory it is holds it, so no borrow outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
