//! The guest's memory: a memfd that is shared with the switch, rings first, then buffers.

use crate::PortError;
use crate::wait::owned;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Where guest physical addresses begin: not at zero, so that an address that was mixed up with an offset is found.
pub(super) const GUEST_BASE: u64 = 0x1_0000_0000;

pub(super) struct GuestRam {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: shared memory whose words are accessed atomically, and whose buffers belong to one queue each.
unsafe impl Send for GuestRam {}
// SAFETY: as above.
unsafe impl Sync for GuestRam {}

impl GuestRam {
    pub(super) fn new(len: usize) -> Result<GuestRam, PortError> {
        let len = len.next_multiple_of(2 << 20);
        // SAFETY: the name is a literal with a terminating zero.
        let fd = unsafe { libc::memfd_create(c"crosspoint-guest".as_ptr(), libc::MFD_CLOEXEC) };
        let fd = owned(fd, "make a guest's memory")?;
        // SAFETY: the descriptor is ours; the call takes no pointer.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(PortError::last_os("size a guest's memory"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(PortError::last_os("map a guest's memory"));
        }
        let base = NonNull::new(base.cast()).expect("mmap never returns null for a null hint");
        Ok(GuestRam { base, len, fd })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// The address in this process of an offset, by which the protocol names rings.
    pub(super) fn user(&self, offset: usize) -> u64 {
        self.base.as_ptr() as u64 + offset as u64
    }

    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "inside the guest's memory");
        // SAFETY: checked on the line above.
        unsafe { self.base.add(offset) }
    }

    pub(super) fn u16(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2), "aligned");
        // SAFETY: inside the mapping, aligned, only accessed atomically.
        unsafe { self.at(offset, 2).cast().as_ref() }
    }

    pub(super) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "aligned");
        // SAFETY: as above.
        unsafe { self.at(offset, 4).cast().as_ref() }
    }

    pub(super) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "aligned");
        // SAFETY: as above.
        unsafe { self.at(offset, 8).cast().as_ref() }
    }

    /// A buffer that the caller owns: no ring offers it to the switch at the moment.
    pub(super) fn buffer(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: inside the mapping; the caller's buffer is written by nobody else while it is not offered.
        unsafe { std::slice::from_raw_parts(self.at(offset, len).as_ptr(), len) }
    }

    /// The same, to write.
    #[allow(clippy::mut_from_ref)] // Each buffer has one owner, which is the queue that calls this.
    pub(super) fn buffer_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: as above; queues own disjoint buffers and never ask for one twice at a time.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, len).as_ptr(), len) }
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; whoever used it held an `Arc` of this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
