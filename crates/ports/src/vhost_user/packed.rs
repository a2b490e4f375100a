//! The packed layout: one ring of descriptors, which the guest makes available and the device overwrites as
//! used.
//!
//! Two wrap counters, one for each side, are inverted each time that side passes the ring's end; a descriptor
//! is available if its AVAIL bit equals the guest's counter and its USED bit does not.
//!
//! Source: virtio 1.2 section 2.8.

use super::chain::{Chain, Fault, Gather, Layout};
use super::copy::prefetch_to_write;
use super::memory::{DirtyLog, GuestMemory};
use super::message::VringAddr;
use super::split::Descriptor;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Values of an event area's flags.
const EVENTS_ON: u16 = 0;
const EVENTS_OFF: u16 = 1;
const EVENTS_BY_POSITION: u16 = 2;

/// A position in the ring, with the counter of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    idx: u16,
    wrap: bool,
}

impl Position {
    fn advance(&mut self, slots: u16, size: u16) {
        self.idx += slots;
        if self.idx >= size {
            self.idx -= size;
            self.wrap = !self.wrap;
        }
    }

    fn retreat(&mut self, slots: u16, size: u16) {
        if self.idx < slots {
            self.idx += size;
            self.wrap = !self.wrap;
        }
        self.idx -= slots;
    }
}

/// The place up to which all USED bits are equal, and behind which they are the opposite.
fn boundary(bits: &[bool]) -> Option<Position> {
    let last = *bits.last()?;
    let idx = bits.iter().position(|bit| *bit == last)?;
    let is_clean = bits[idx..].iter().all(|bit| *bit == last);
    is_clean.then_some(Position { idx: idx as u16, wrap: !last })
}

pub(super) struct Packed {
    size: u16,
    ring: NonNull<u8>,
    /// Which notifications the guest wants.
    driver_event: NonNull<u8>,
    /// Which notifications we want.
    device_event: NonNull<u8>,
    avail: Position,
    used: Position,
    /// The first descriptor given back since the last publication, and its flags, which are written last.
    unpublished: Option<(u16, u16)>,
    /// The end of the last publication.
    signalled: u16,
    /// The ring's guest address, if writes are logged. The front end names the device's event area instead
    /// (QEMU 7.2), which nobody reads after a migration.
    ring_log: Option<u64>,
}

impl Packed {
    /// A ring whose parts are in `memory`, continuing at `base` (index and counter of SET_VRING_BASE), or, if
    /// `base` may be out of date, where the ring itself says.
    pub(super) fn new(
        memory: &GuestMemory,
        addr: &VringAddr,
        size: u16,
        base: u32,
        is_base_known: bool,
    ) -> Result<Packed, Fault> {
        let ring = memory.at_user(addr.desc, usize::from(size) * Descriptor::BYTES, 16);
        let driver_event = memory.at_user(addr.avail, 4, 4);
        let device_event = memory.at_user(addr.used, 4, 4);
        let (Some(ring), Some(driver_event), Some(device_event)) = (ring, driver_event, device_event) else {
            return Err(Fault("a ring outside the guest's memory, or not aligned"));
        };
        let start = Position { idx: (base & 0x7fff) as u16, wrap: base & 0x8000 != 0 };
        if start.idx >= size {
            return Err(Fault("a ring that starts beyond its end"));
        }
        let mut packed = Packed {
            size,
            ring,
            driver_event,
            device_event,
            avail: start,
            used: start,
            unpublished: None,
            signalled: start.idx,
            ring_log: memory.guest_of_user(addr.desc).filter(|_| addr.is_logged),
        };
        if !is_base_known && let Some(found) = packed.find_position() {
            (packed.avail, packed.used, packed.signalled) = (found, found, found.idx);
        }
        Ok(packed)
    }

    /// Where a predecessor that was killed has stopped. After such an end QEMU names the place where the ring
    /// once began, so the descriptors must tell: what was given back in this round has the round's counter as
    /// its USED bit, and all behind it the opposite, from the round before. If the predecessor was killed
    /// within a burst, only the first descriptor that it gave back is not shown to the guest yet; it is now.
    ///
    /// `None` if the bits tell nothing: of a chain of several descriptors, only the first is marked as used.
    /// (Linux sends such chains in indirect tables, which take one.)
    fn find_position(&self) -> Option<Position> {
        let bits: Vec<bool> =
            (0..self.size).map(|idx| self.flags(idx).load(Ordering::Acquire) & USED != 0).collect();
        if let Some(found) = boundary(&bits) {
            return Some(found);
        }
        let differs = |a: usize, b: usize| bits.get(a) != bits.get(b);
        let is_alone = |idx: &usize| (*idx == 0 || differs(*idx, idx - 1)) && differs(*idx, idx + 1);
        let mut alone: Vec<usize> = (0..bits.len()).filter(is_alone).take(4).collect();
        if alone.len() > 3 {
            return None;
        }
        // A burst across the ring's end, rather than one of nearly the whole ring.
        if alone.first() == Some(&0) && alone.last() == Some(&(bits.len() - 1)) {
            alone.reverse();
        }
        alone.into_iter().find_map(|idx| {
            let mut complete = bits.clone();
            complete[idx] ^= true;
            let found = boundary(&complete)?;
            let bits = if complete[idx] { AVAIL | USED } else { 0 };
            // SAFETY: the index is below the size.
            let descriptor = unsafe { Packed::read(self.ring, idx) };
            let flags = bits | if descriptor.len > 0 { WRITE } else { 0 };
            self.flags(idx as u16).store(flags, Ordering::Release);
            Some(found)
        })
    }

    /// The flags of entry `idx`.
    #[inline(always)]
    fn flags(&self, idx: u16) -> &AtomicU16 {
        debug_assert!(idx < self.size);
        // SAFETY: `idx < size`, and the ring was found to be mapped with that many entries.
        let at = unsafe { self.ring.add(usize::from(idx) * Descriptor::BYTES + 14) }.cast::<AtomicU16>();
        // SAFETY: mapped as long as the ring is used, even, only accessed atomically.
        unsafe { at.as_ref() }
    }

    /// Logs that entry `idx` was written.
    #[inline(always)]
    fn mark(&self, idx: u16, log: Option<&DirtyLog>) {
        if let (Some(log), Some(ring)) = (log, self.ring_log) {
            let at = ring.wrapping_add(u64::from(idx) * Descriptor::BYTES as u64);
            log.mark(at, Descriptor::BYTES as u64);
        }
    }

    fn event(area: NonNull<u8>, at: usize) -> &'static AtomicU16 {
        // SAFETY: an event area has four bytes, `at` is 0 or 2.
        let at = unsafe { area.add(at) }.cast::<AtomicU16>();
        // SAFETY: as in `flags`.
        unsafe { at.as_ref() }
    }

    #[inline(always)]
    fn is_available(&self, at: Position) -> bool {
        let flags = self.flags(at.idx).load(Ordering::Acquire);
        (flags & AVAIL != 0) == at.wrap && (flags & USED != 0) != at.wrap
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
        let at = at.ok_or(Fault("an indirect table outside the guest's memory"))?;
        for idx in 0..count {
            // SAFETY: `idx < count`, and the table was found to be mapped with that many entries.
            let descriptor = unsafe { Packed::read(at, idx) };
            if descriptor.flags & INDIRECT != 0 {
                return Err(Fault("an indirect table within another"));
            }
            out.add(descriptor.guest, descriptor.len, descriptor.flags & WRITE != 0)?;
        }
        Ok(())
    }

    /// The layouts' descriptors differ in their last two words: here the identifier comes before the flags.
    ///
    /// # Safety
    /// As for [`Descriptor::read`].
    #[inline(always)]
    unsafe fn read(table: NonNull<u8>, idx: usize) -> Descriptor {
        // SAFETY: the caller's promise is the one that `read` asks for.
        let raw = unsafe { Descriptor::read(table, idx) };
        Descriptor { flags: raw.next, next: raw.flags, ..raw }
    }
}

impl Layout for Packed {
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> Result<usize, Fault> {
        // A guest that has nothing to send keeps its lines.
        if !self.is_available(self.avail) {
            return Ok(0);
        }
        // Their number is known only by walking the chain, which `take` does.
        for line in 0..wanted.div_ceil(4) as u16 {
            let idx = (u32::from(self.avail.idx) + u32::from(line) * 4) % u32::from(self.size);
            prefetch_to_write(self.ring.as_ptr().wrapping_add(idx as usize * Descriptor::BYTES));
        }
        Ok(wanted)
    }

    fn has_available(&mut self, wanted: usize) -> bool {
        // A driver makes descriptors available in order, so the last one implies all before it.
        let wanted = wanted.min(usize::from(self.size) / 2).max(1);
        let mut last = self.avail;
        last.advance(wanted as u16 - 1, self.size);
        self.is_available(last)
    }

    #[inline(always)]
    fn take(&mut self, out: &mut Gather<'_>) -> Result<Option<(u16, u16)>, Fault> {
        if !self.is_available(self.avail) {
            return Ok(None);
        }
        let mut at = self.avail;
        for slots in 1..=self.size {
            // SAFETY: a position's index is below the size.
            let descriptor = unsafe { Packed::read(self.ring, usize::from(at.idx)) };
            if descriptor.flags & INDIRECT != 0 {
                out.check_is_last(descriptor.flags & NEXT)?;
                self.take_indirect(descriptor, out)?;
            } else {
                out.add(descriptor.guest, descriptor.len, descriptor.flags & WRITE != 0)?;
            }
            at.advance(1, self.size);
            if descriptor.flags & NEXT == 0 {
                self.avail = at;
                return Ok(Some((descriptor.next, slots)));
            }
        }
        Err(Fault("a chain of descriptors that never ends"))
    }

    fn untake(&mut self, chains: &[Chain]) {
        for chain in chains {
            self.avail.retreat(chain.slots, self.size);
        }
    }

    #[inline(always)]
    fn give_back(&mut self, chain: Chain, written: u32, log: Option<&DirtyLog>) {
        let at = usize::from(self.used.idx) * Descriptor::BYTES;
        // SAFETY: a position's index is below the size.
        let len = unsafe { self.ring.add(at + 8) }.cast::<AtomicU32>();
        // SAFETY: mapped, a multiple of 4 from an aligned start, only accessed atomically.
        unsafe { len.as_ref() }.store(written, Ordering::Relaxed);
        // SAFETY: as above.
        let id = unsafe { self.ring.add(at + 12) }.cast::<AtomicU16>();
        // SAFETY: as above.
        unsafe { id.as_ref() }.store(chain.id, Ordering::Relaxed);
        let bits = if self.used.wrap { AVAIL | USED } else { 0 };
        let flags = bits | if written > 0 { WRITE } else { 0 };
        if self.unpublished.is_none() {
            self.unpublished = Some((self.used.idx, flags));
        } else {
            self.flags(self.used.idx).store(flags, Ordering::Release);
        }
        self.mark(self.used.idx, log);
        self.used.advance(chain.slots, self.size);
    }

    #[inline(always)]
    fn publish(&mut self, log: Option<&DirtyLog>) -> bool {
        if let Some((idx, flags)) = self.unpublished.take() {
            self.flags(idx).store(flags, Ordering::Release);
            // Once more: the page may have been copied since it was marked.
            self.mark(idx, log);
        }
        fence(Ordering::SeqCst);
        let new = self.used.idx;
        let old = std::mem::replace(&mut self.signalled, new);
        match Packed::event(self.driver_event, 2).load(Ordering::Relaxed) {
            EVENTS_OFF => false,
            EVENTS_BY_POSITION => {
                let wanted = Packed::event(self.driver_event, 0).load(Ordering::Relaxed);
                let size = i32::from(self.size);
                let mut event = i32::from(wanted & 0x7fff);
                if (wanted & 0x8000 != 0) != self.used.wrap {
                    event -= size;
                }
                let old = if new <= old { i32::from(old) - size } else { i32::from(old) };
                // Whether the position is between the end of the last publication and that of this one.
                ((i32::from(new) - event - 1) as u16) < ((i32::from(new) - old) as u16)
            }
            _ => true,
        }
    }

    fn want_notifications(&mut self, wanted: bool) {
        let flags = if wanted { EVENTS_ON } else { EVENTS_OFF };
        Packed::event(self.device_event, 2).store(flags, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn base(&self) -> u32 {
        u32::from(self.avail.idx) | u32::from(self.avail.wrap) << 15
    }
}
