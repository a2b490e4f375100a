//! A guest's memory as it is mapped here.
//!
//! The front end names memory in two ways: rings by addresses in its own process, buffers by guest physical
//! addresses. Both are looked up in the regions that it provided; an address outside all of them is invalid.
//! A lookup yields pointers that are used only for copies of raw bytes and for atomic words, never
//! references: the guest may write there at any time.
//!
//! A region whose file is too short is refused; one that shrinks later is caught by [`super::sigbus`], and
//! then [`GuestMemory::is_broken`] returns true.
//!
//! A file in memory may be far longer than the memory that there is, so a guest could take all addresses of
//! this process, and the next allocation would fail. Hence a guest's mappings together ([`Extent`]) are
//! limited, and so are those of all guests, without which one or a few could lock the others out.

use super::message::Region;
use super::sigbus::{self, Watch};
use crate::PortError;
use crate::wait::refused;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Maximum number of regions of one guest, reported to front ends that ask.
pub const REGIONS_MAX: usize = 32;
/// Maximum number of bytes of all mappings of one guest, its log included.
pub const GUEST_BYTES_MAX: u64 = 16 << 40;
/// Number of bytes per bit in the dirty log.
const LOG_PAGE_SHIFT: u32 = 12;

/// Half of the addresses of a process.
static ADDRESSES: Common = Common { used: AtomicU64::new(0), most: 64 << 40 };
/// What the kernel allows of a process's mappings leaves room for more, and so does everything else.
static MAPPINGS: Common = Common { used: AtomicU64::new(0), most: sigbus::SLOTS as u64 };

/// What all guests have in common. One of them may take as much as it likes of the first half; beyond that,
/// an eighth of what the others leave. So a few leave enough for one more, whatever they take.
struct Common {
    used: AtomicU64,
    most: u64,
}

impl Common {
    /// Takes some for a guest that has `own`, which is counted there. False if that is more than its share.
    fn take(&self, own: &AtomicU64, amount: u64) -> bool {
        let own_after = own.load(Ordering::Relaxed).saturating_add(amount);
        let is_taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let after = used.checked_add(amount).filter(|after| *after <= self.most)?;
            let left_by_others = self.most - after.saturating_sub(own_after);
            (after <= self.most / 2 || own_after <= left_by_others / 8).then_some(after)
        });
        if is_taken.is_ok() {
            own.fetch_add(amount, Ordering::Relaxed);
        }
        is_taken.is_ok()
    }

    fn give_back(&self, own: &AtomicU64, amount: u64) {
        own.fetch_sub(amount, Ordering::Relaxed);
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// What one guest has mapped, and whether some of it has vanished.
#[derive(Clone, Default)]
pub(super) struct Extent {
    held: Arc<Held>,
    broken: Arc<AtomicBool>,
}

#[derive(Default)]
struct Held {
    bytes: AtomicU64,
    mappings: AtomicU64,
}

/// A mapping that counts until this is dropped.
struct Charge {
    len: u64,
    held: Arc<Held>,
}

impl Extent {
    /// Counts a mapping. An error if it is one too many.
    fn charge(&self, len: u64) -> Result<Charge, PortError> {
        let refuse = |what: &str| Err(PortError::Unsupported(what.into()));
        if self.held.bytes.load(Ordering::Relaxed).saturating_add(len) > GUEST_BYTES_MAX {
            return refuse(&format!("more than {} TB of memory", GUEST_BYTES_MAX >> 40));
        }
        if !MAPPINGS.take(&self.held.mappings, 1) {
            return refuse("more than its share of the memory regions of all guests");
        }
        if !ADDRESSES.take(&self.held.bytes, len) {
            MAPPINGS.give_back(&self.held.mappings, 1);
            return refuse("more than its share of the addresses for the memory of all guests");
        }
        Ok(Charge { len, held: self.held.clone() })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        ADDRESSES.give_back(&self.held.bytes, self.len);
        MAPPINGS.give_back(&self.held.mappings, 1);
    }
}

/// A shared mapping of part of a file in memory ([`super::descriptor::Given::memory`]) that another process
/// may shrink.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Device and inode of the file.
    file: (u64, u64),
    /// Dropped before the range is unmapped, in `drop`.
    watch: Option<Watch>,
    _charge: Charge,
}

// SAFETY: the mapping is memory shared with another process, and code that uses its pointers treats it as
// such.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from the start of the file on, which count in `extent` and are noted there if they
    /// vanish.
    fn new(fd: &OwnedFd, len: u64, extent: &Extent) -> Result<Mapping, PortError> {
        let stat = stat(fd)?;
        if len == 0 || len > stat.st_size as u64 {
            let what = format!("a memory region of {len} bytes in a file of {}", stat.st_size);
            return Err(PortError::Unsupported(what));
        }
        // Files on huge pages are mapped by whole pages.
        let page = (stat.st_blksize as usize).max(4096).next_power_of_two();
        let page = if page > 1 << 30 { 4096 } else { page };
        let len = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(page));
        let len = len.ok_or_else(|| PortError::Unsupported("a memory region of an invalid size".into()))?;
        let charge = extent.charge(len as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(PortError::last_os("map a guest's memory"));
        }
        let base = NonNull::new(base.cast()).expect("mmap never returns null for a null hint");
        let file = (stat.st_dev, stat.st_ino);
        let mut mapping = Mapping { base, len, file, watch: None, _charge: charge };
        mapping.watch = Watch::new(base.as_ptr() as usize, len, page, extent.broken.clone());
        if mapping.watch.is_none() {
            return Err(PortError::Unsupported("too many guests' memory regions at once".into()));
        }
        // What the guest's monitor keeps in that memory does not belong into a core dump.
        // SAFETY: the range was mapped above.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
        Ok(mapping)
    }
}

fn stat(fd: &OwnedFd) -> Result<rustix::fs::Stat, PortError> {
    rustix::fs::fstat(fd).map_err(refused("look at a guest's memory"))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watch = None;
        // SAFETY: the range was mapped in `new`, and every holder of pointers into it held an `Arc` of its
        // owner.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A region with its mapping.
pub(super) struct Mapped {
    pub(super) region: Region,
    /// The address of its first byte.
    host: NonNull<u8>,
    mapping: Mapping,
}

// SAFETY: as for `Mapping`.
unsafe impl Send for Mapped {}
// SAFETY: as for `Mapping`.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a region of `fd`.
    pub(super) fn new(region: Region, fd: &OwnedFd, extent: &Extent) -> Result<Mapped, PortError> {
        let end = region.offset.checked_add(region.len);
        let wraps = |start: u64| start.checked_add(region.len).is_none();
        let (Some(end), false) = (end, region.len == 0 || wraps(region.guest) || wraps(region.user)) else {
            return Err(PortError::Unsupported("a memory region that wraps around".into()));
        };
        let mapping = Mapping::new(fd, end, extent)?;
        // SAFETY: `offset < end <= len` of the mapping.
        let host = unsafe { mapping.base.add(region.offset as usize) };
        Ok(Mapped { region, host, mapping })
    }

    /// Whether it is this region of this file.
    pub(super) fn is(&self, region: Region, fd: &OwnedFd) -> Result<bool, PortError> {
        let stat = stat(fd)?;
        Ok(self.region == region && self.mapping.file == (stat.st_dev, stat.st_ino))
    }

    #[inline(always)]
    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.region.len);
        // SAFETY: every caller has checked that the offset is below the region's length.
        unsafe { self.host.add(offset as usize) }
    }
}

/// All regions of a guest at one moment.
pub(super) struct GuestMemory {
    regions: Vec<Arc<Mapped>>,
    extent: Extent,
}

impl GuestMemory {
    /// From these regions. Errors: two regions overlap in guest addresses, or there are too many.
    pub(super) fn new(regions: Vec<Arc<Mapped>>, extent: Extent) -> Result<GuestMemory, PortError> {
        if regions.len() > REGIONS_MAX {
            return Err(PortError::Unsupported(format!("more than {REGIONS_MAX} memory regions")));
        }
        for (i, a) in regions.iter().map(|m| m.region).enumerate() {
            for b in regions[..i].iter().map(|m| m.region) {
                if a.guest < b.guest + b.len && b.guest < a.guest + a.len {
                    return Err(PortError::Unsupported("memory regions that overlap".into()));
                }
            }
        }
        Ok(GuestMemory { regions, extent })
    }

    /// The regions, to make another set of.
    pub(super) fn regions(&self) -> &[Arc<Mapped>] {
        &self.regions
    }

    /// Whether some of it has vanished.
    #[inline(always)]
    pub(super) fn is_broken(&self) -> bool {
        self.extent.broken.load(Ordering::Relaxed)
    }

    /// The location of `len` bytes at guest address `guest`, if they are in a single region.
    #[inline(always)]
    pub(super) fn at_guest(&self, guest: u64, len: u32) -> Option<NonNull<u8>> {
        for mapped in &self.regions {
            let offset = guest.wrapping_sub(mapped.region.guest);
            if offset < mapped.region.len && u64::from(len) <= mapped.region.len - offset {
                return Some(mapped.at(offset));
            }
        }
        None
    }

    /// The location of the bytes at a guest address, and how many of the `len` are contiguous: the rest may
    /// be in another region.
    pub(super) fn some_at_guest(&self, guest: u64, len: u32) -> Option<(NonNull<u8>, u32)> {
        self.regions.iter().find_map(|mapped| {
            let offset = guest.wrapping_sub(mapped.region.guest);
            let left = mapped
                .region
                .len
                .checked_sub(offset)
                .filter(|left| *left > 0 && offset < mapped.region.len)?;
            Some((mapped.at(offset), u64::from(len).min(left) as u32))
        })
    }

    /// The location of `len` bytes at an address in the front end's process, aligned to `align`.
    pub(super) fn at_user(&self, user: u64, len: usize, align: usize) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|mapped| {
            let offset = user.wrapping_sub(mapped.region.user);
            let fits = offset < mapped.region.len && len as u64 <= mapped.region.len - offset;
            let at = fits.then(|| mapped.at(offset))?;
            (at.as_ptr() as usize).is_multiple_of(align).then_some(at)
        })
    }

    /// The guest address of an address in the front end's process.
    pub(super) fn guest_of_user(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|mapped| {
            let offset = user.wrapping_sub(mapped.region.user);
            (offset < mapped.region.len).then(|| mapped.region.guest + offset)
        })
    }
}

/// The NUMA node of the page at one of our addresses, if it is mapped, was touched before, and the kernel can
/// tell. The page is not touched for that, so there is no wait, and an address that is no longer mapped does
/// no harm.
pub(super) fn node_of(at: usize) -> Option<usize> {
    let page = at as *const libc::c_void;
    let (mut status, own, no_nodes) = (-1 as libc::c_int, 0, std::ptr::null::<libc::c_int>());
    // SAFETY: one address, which the kernel looks up and does not follow, and room for one answer, which
    // outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_move_pages, own, 1usize, &raw const page, no_nodes, &raw mut status, 0)
    };
    // Errors are negative, in the answer too.
    if result == 0 { usize::try_from(status).ok() } else { None }
}

/// The pages that the switch has written, for a guest that is migrated meanwhile: one bit each.
pub(super) struct DirtyLog {
    bits: NonNull<AtomicU8>,
    len: u64,
    _mapping: Mapping,
}

// SAFETY: the bits are only touched atomically, and live as long as the mapping.
unsafe impl Send for DirtyLog {}
// SAFETY: as above.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// For `len` bytes at `offset` of a file.
    pub(super) fn new(fd: &OwnedFd, len: u64, offset: u64, extent: &Extent) -> Result<DirtyLog, PortError> {
        let end = offset.checked_add(len).filter(|_| len > 0);
        let end = end.ok_or_else(|| PortError::Unsupported("a dirty log of an invalid size".into()))?;
        let mapping = Mapping::new(fd, end, extent)?;
        // SAFETY: `offset < end <= len` of the mapping.
        let bits = unsafe { mapping.base.add(offset as usize) }.cast();
        Ok(DirtyLog { bits, len, _mapping: mapping })
    }

    /// Records that `len` bytes at guest address `guest` were written. Addresses beyond the log's end do not
    /// belong to the guest.
    pub(super) fn mark(&self, guest: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = guest.saturating_add(len - 1) >> LOG_PAGE_SHIFT;
        for page in guest >> LOG_PAGE_SHIFT..=last {
            if page / 8 >= self.len {
                return;
            }
            // SAFETY: `page / 8 < len` of the log.
            let byte = unsafe { self.bits.add((page / 8) as usize) };
            // SAFETY: the byte lies in the mapping, which lives as long as we do.
            // Release: whoever finds the bit finds what was written.
            unsafe { byte.as_ref() }.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn guests_that_take_what_they_can_leave_something_for_one_more() {
        for (most, each_most, count) in [(64u64 << 40, 16u64 << 40, 20), (32_768, 66, 480)] {
            let common = Common { used: AtomicU64::new(0), most };
            let guests: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let mut amount = each_most;
            while amount > 0 {
                for own in &guests {
                    while own.load(Ordering::Relaxed) + amount <= each_most && common.take(own, amount) {}
                }
                amount /= 2;
            }
            let left = most - common.used.load(Ordering::Relaxed);
            assert!(common.take(&AtomicU64::new(0), left / 8), "{left} of {most}");
            assert!(left > most / 100, "{left} of {most}");
            for own in guests {
                common.give_back(&own, own.load(Ordering::Relaxed));
            }
        }
        // Those who need what is usual are not limited by shares.
        let common = Common { used: AtomicU64::new(0), most: 32_768 };
        assert!((0..490).all(|_| (0..33).all(|_| common.take(&AtomicU64::new(0), 1))));
    }

    #[test]
    fn touched_memory_is_on_a_node_of_the_machine_and_what_is_no_memory_on_none() {
        let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(&[1; 8192]).unwrap();
        let extent = Extent::default();
        let region = Region { guest: 0, len: 8192, user: 0x1000, offset: 0 };
        let mapped = Mapped::new(region, &file.into(), &extent).unwrap();
        let memory = GuestMemory::new(vec![Arc::new(mapped)], extent).unwrap();
        let at = memory.at_user(0x2000, 8, 8).unwrap();
        assert_eq!(node_of(at.as_ptr() as usize), None, "nobody has touched it");
        // SAFETY: the eight bytes are in the region, aligned, and not written meanwhile.
        assert_eq!(unsafe { at.cast::<u64>().read_volatile() }, 0x0101_0101_0101_0101);
        let is_there =
            |node: usize| std::path::Path::new(&format!("/sys/devices/system/node/node{node}")).exists();
        // Where the machine has no nodes the kernel does not tell.
        assert_eq!(node_of(at.as_ptr() as usize).is_some_and(is_there), is_there(0) || is_there(1));
        drop(memory);
        assert_eq!(node_of(at.as_ptr() as usize), None);
    }
}
