//! The guest's memory: a memfd that is shared with the switch, rings first, then buffers.

use ports::PortError;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Where guest physical addresses begin: not at zero, so that an address mistaken for an offset is detected.
pub(crate) const GUEST_BASE: u64 = 0x1_0000_0000;

pub(crate) struct GuestRam {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: shared memory whose words are accessed atomically, and whose buffers belong to one queue each.
unsafe impl Send for GuestRam {}
// SAFETY: as above.
unsafe impl Sync for GuestRam {}

impl GuestRam {
    pub(crate) fn new(len: usize) -> Result<GuestRam, PortError> {
        let len = len.next_multiple_of(2 << 20);
        let os = |e: rustix::io::Errno| PortError::os("make a guest's memory", &e.into());
        let fd = memfd_create("crosspoint-guest", MemfdFlags::CLOEXEC).map_err(os)?;
        ftruncate(&fd, len as u64).map_err(os)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, &fd, 0) }.map_err(os)?;
        let base = NonNull::new(base.cast()).expect("mmap never returns null for a null hint");
        Ok(GuestRam { base, len, fd })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// The address in this process of an offset, as the protocol names rings.
    pub(crate) fn user(&self, offset: usize) -> u64 {
        self.base.as_ptr() as u64 + offset as u64
    }

    fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "inside the guest's memory");
        // SAFETY: checked on the line above.
        unsafe { self.base.add(offset) }
    }

    pub(crate) fn u16(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2), "aligned");
        // SAFETY: inside the mapping, aligned, only accessed atomically.
        unsafe { self.at(offset, 2).cast().as_ref() }
    }

    pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "aligned");
        // SAFETY: as above.
        unsafe { self.at(offset, 4).cast().as_ref() }
    }

    pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "aligned");
        // SAFETY: as above.
        unsafe { self.at(offset, 8).cast().as_ref() }
    }

    /// A buffer that the caller owns: no ring offers it to the switch at the moment.
    pub(crate) fn buffer(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: inside the mapping; only the caller writes the buffer while it is not offered.
        unsafe { std::slice::from_raw_parts(self.at(offset, len).as_ptr(), len) }
    }

    /// The same, to write.
    #[allow(clippy::mut_from_ref)] // Each buffer has one owner, which is the queue that calls this.
    pub(crate) fn buffer_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        // SAFETY: as above; queues own disjoint buffers and never ask for one twice at a time.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, len).as_ptr(), len) }
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; every user held an `Arc` of this. A failure is ignored.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
