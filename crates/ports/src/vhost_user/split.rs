//! The split layout: a table of descriptors, a ring of available heads, and a ring of used ones.
//!
//! Source: virtio 1.2 section 2.7.

use super::chain::{Chain, Fault, Gather, Layout};
use super::copy::{prefetch_to_write, read_once};
use super::memory::{DirtyLog, GuestMemory};
use super::message::VringAddr;
use base::region::prefetch_ptr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the available ring's flags: the guest wants no notifications.
const NO_INTERRUPT: u16 = 1;
/// In the used ring's flags: we want no notifications.
const NO_NOTIFY: u16 = 1;

/// A descriptor in guest memory: two words, read once.
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) guest: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    pub(super) const BYTES: usize = 16;

    /// Reads entry `idx` of a table.
    ///
    /// # Safety
    /// The table must have more than `idx` entries, all mapped.
    #[inline(always)]
    pub(super) unsafe fn read(table: NonNull<u8>, idx: usize) -> Descriptor {
        // SAFETY: the entry lies in the table, as the caller vouches.
        let at = unsafe { table.add(idx * Descriptor::BYTES) };
        // SAFETY: its 16 bytes are mapped. The guest may write them meanwhile: whatever is read is checked.
        let guest = unsafe { read_once::<u64>(at) };
        // SAFETY: as above.
        let rest = unsafe { at.add(8) };
        // SAFETY: as above.
        let word = u64::from_le(unsafe { read_once(rest) });
        let (len, flags, next) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        Descriptor { guest: u64::from_le(guest), len, flags, next }
    }
}

pub(super) struct Split {
    size: u16,
    descriptors: NonNull<u8>,
    avail: NonNull<u8>,
    used: NonNull<u8>,
    /// The next available entry to take.
    next_avail: u16,
    /// The guest's index when it was last read.
    seen_avail: u16,
    /// The next used entry to write, and the part that the guest sees.
    next_used: u16,
    published: u16,
    /// The last used entry was the same as in the ring's last round, as with drivers that offer their buffers
    /// in a fixed order. Such entries are not written again, so that their lines stay in the caches of both
    /// processors.
    used_repeats: bool,
    /// Notifications are controlled by index, not by flag.
    has_event_idx: bool,
    /// The used ring's guest address, where its writes are logged.
    used_log: Option<u64>,
}

impl Split {
    /// A ring whose parts are in `memory`. It continues where the used ring says: no buffer is ever held
    /// beyond a burst, so buffers that a predecessor had taken and not returned are taken again.
    pub(super) fn new(
        memory: &GuestMemory,
        addr: &VringAddr,
        size: u16,
        has_event_idx: bool,
    ) -> Result<Split, Fault> {
        let n = usize::from(size);
        let descriptors = memory.at_user(addr.desc, n * Descriptor::BYTES, 16);
        let avail = memory.at_user(addr.avail, 6 + 2 * n, 2);
        let used = memory.at_user(addr.used, 6 + 8 * n, 4);
        let (Some(descriptors), Some(avail), Some(used)) = (descriptors, avail, used) else {
            return Err(Fault::RING_OUTSIDE);
        };
        let mut split = Split {
            size,
            descriptors,
            avail,
            used,
            next_avail: 0,
            seen_avail: 0,
            next_used: 0,
            published: 0,
            used_repeats: false,
            has_event_idx,
            used_log: addr.is_logged.then_some(addr.log),
        };
        split.next_used = split.used_idx().load(Ordering::Acquire);
        split.published = split.next_used;
        split.next_avail = split.next_used;
        split.seen_avail = split.next_used;
        Ok(split)
    }

    /// A 16-bit word at byte `at` of the available or used ring, whose extent `new` has checked.
    #[inline(always)]
    fn word(ring: NonNull<u8>, at: usize) -> &'static AtomicU16 {
        // SAFETY: `at` lies in the ring (at most 6 + 8 * size - 2 bytes from its start).
        let place = unsafe { ring.add(at) }.cast::<AtomicU16>();
        // SAFETY: mapped as long as the ring is used, even, and only accessed atomically.
        unsafe { place.as_ref() }
    }

    fn used_idx(&self) -> &AtomicU16 {
        Split::word(self.used, 2)
    }

    #[inline(always)]
    fn mask(&self) -> u16 {
        self.size - 1
    }

    #[inline(always)]
    fn waiting(&self) -> u16 {
        self.seen_avail.wrapping_sub(self.next_avail)
    }

    /// The head at a position of the available ring.
    #[inline(always)]
    fn head(&self, position: u16) -> u16 {
        let slot = usize::from(position & self.mask());
        Split::word(self.avail, 4 + 2 * slot).load(Ordering::Relaxed)
    }

    fn take_indirect(&self, table: Descriptor, out: &mut Gather<'_>) -> Result<(), Fault> {
        let count = table.len as usize / Descriptor::BYTES;
        if !(table.len as usize).is_multiple_of(Descriptor::BYTES)
            || count == 0
            || count > usize::from(self.size)
        {
            return Err(Fault("an indirect table of a wrong length"));
        }
        let at = out.memory().at_guest(table.guest, table.len);
        let at = at.ok_or(Fault::TABLE_OUTSIDE)?;
        let mut idx = 0;
        for _ in 0..count {
            // SAFETY: `idx < count`, and the table was found to be mapped with that many entries.
            let descriptor = unsafe { Descriptor::read(at, idx) };
            if descriptor.flags & INDIRECT != 0 {
                return Err(Fault("an indirect table within another"));
            }
            out.add(descriptor.guest, descriptor.len, descriptor.flags & WRITE != 0)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            idx = usize::from(descriptor.next);
            if idx >= count {
                return Err(Fault("a descriptor outside the table"));
            }
        }
        Err(Fault("a chain of descriptors that never ends"))
    }
}

impl Layout for Split {
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> Result<usize, Fault> {
        if usize::from(self.waiting()) < wanted {
            self.seen_avail = Split::word(self.avail, 2).load(Ordering::Acquire);
            if self.waiting() > self.size {
                return Err(Fault("an available index further ahead than the ring is long"));
            }
        }
        let count = wanted.min(usize::from(self.waiting()));
        for n in 0..count {
            let head = self.head(self.next_avail.wrapping_add(n as u16)) & self.mask();
            // SAFETY: masked, so the entry lies in the table.
            let at = unsafe { self.descriptors.add(usize::from(head) * Descriptor::BYTES) };
            prefetch_ptr(at.as_ptr());
        }
        // The used entries to be written, eight to a line.
        for n in (0..count).step_by(8) {
            let slot = usize::from(self.next_used.wrapping_add(n as u16) & self.mask());
            let at = self.used.as_ptr().wrapping_add(4 + 8 * slot);
            if self.used_repeats {
                prefetch_ptr(at);
            } else {
                prefetch_to_write(at);
            }
        }
        Ok(count)
    }

    fn has_available(&mut self, wanted: usize) -> bool {
        let wanted = wanted.min(usize::from(self.size) / 2).max(1);
        // The guest's index is not stored: `available` must check it.
        usize::from(self.waiting()) >= wanted || {
            let seen = Split::word(self.avail, 2).load(Ordering::Relaxed);
            usize::from(seen.wrapping_sub(self.next_avail)) >= wanted
        }
    }

    #[inline(always)]
    fn take(&mut self, out: &mut Gather<'_>) -> Result<Option<(u16, u16)>, Fault> {
        if self.waiting() == 0 && self.available(1)? == 0 {
            return Ok(None);
        }
        let head = self.head(self.next_avail);
        let mut idx = head;
        for _ in 0..self.size {
            if idx >= self.size {
                return Err(Fault("a descriptor outside the table"));
            }
            // SAFETY: `idx < size`, checked on the line above.
            let descriptor = unsafe { Descriptor::read(self.descriptors, usize::from(idx)) };
            if descriptor.flags & INDIRECT != 0 {
                out.check_is_last(descriptor.flags & NEXT)?;
                self.take_indirect(descriptor, out)?;
            } else {
                out.add(descriptor.guest, descriptor.len, descriptor.flags & WRITE != 0)?;
            }
            if descriptor.flags & NEXT == 0 {
                self.next_avail = self.next_avail.wrapping_add(1);
                return Ok(Some((head, 1)));
            }
            idx = descriptor.next;
        }
        Err(Fault("a chain of descriptors that never ends"))
    }

    fn untake(&mut self, chains: &[Chain]) {
        self.next_avail = self.next_avail.wrapping_sub(chains.len() as u16);
    }

    #[inline(always)]
    fn give_back(&mut self, chain: Chain, written: u32, log: Option<&DirtyLog>) {
        let at = 4 + 8 * usize::from(self.next_used & self.mask());
        let entry = [(0, u32::from(chain.id)), (4, written)].map(|(n, word)| {
            // SAFETY: within the used ring, whose length `new` has checked.
            let place = unsafe { self.used.add(at + n) }.cast::<AtomicU32>();
            // SAFETY: mapped, a multiple of 4 from an aligned start, only accessed atomically.
            (unsafe { place.as_ref() }, word)
        });
        self.used_repeats = entry.iter().all(|(place, word)| place.load(Ordering::Relaxed) == *word);
        if !self.used_repeats {
            entry.iter().for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
        }
        if let (Some(log), Some(used)) = (log, self.used_log) {
            log.mark(used.wrapping_add(at as u64), 8);
        }
        self.next_used = self.next_used.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&mut self, log: Option<&DirtyLog>) -> bool {
        let old = std::mem::replace(&mut self.published, self.next_used);
        self.used_idx().store(self.next_used, Ordering::Release);
        if let (Some(log), Some(used)) = (log, self.used_log) {
            log.mark(used.wrapping_add(2), 2);
        }
        // The guest's wishes must be read after it could have seen the index.
        fence(Ordering::SeqCst);
        if self.has_event_idx {
            let event = Split::word(self.avail, 4 + 2 * usize::from(self.size)).load(Ordering::Relaxed);
            self.next_used.wrapping_sub(event).wrapping_sub(1) < self.next_used.wrapping_sub(old)
        } else {
            Split::word(self.avail, 0).load(Ordering::Relaxed) & NO_INTERRUPT == 0
        }
    }

    fn want_notifications(&mut self, wanted: bool) {
        if self.has_event_idx {
            if wanted {
                let event = Split::word(self.used, 4 + 8 * usize::from(self.size));
                event.store(self.next_avail, Ordering::Relaxed);
            }
            // Without: an event index that is left behind asks for nothing until the indices have gone round.
        } else {
            let flags = if wanted { 0 } else { NO_NOTIFY };
            Split::word(self.used, 0).store(flags, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    fn base(&self) -> u32 {
        u32::from(self.next_avail)
    }
}
