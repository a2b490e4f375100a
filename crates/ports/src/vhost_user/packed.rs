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

    /// One side's half of what SET_VRING_BASE says.
    fn of(base: u16) -> Position {
        Position { idx: base & 0x7fff, wrap: base & 0x8000 != 0 }
    }

    /// The flags of a descriptor that is given back there.
    #[inline(always)]
    fn used_flags(self, written: u32) -> u16 {
        let bits = if self.wrap { AVAIL | USED } else { 0 };
        bits | if written > 0 { WRITE } else { 0 }
    }

    fn base(self) -> u32 {
        u32::from(self.idx) | u32::from(self.wrap) << 15
    }
}

/// A descriptor as the guest or a predecessor of ours has left it.
struct Entry {
    /// It was given back: its bits are equal.
    is_used: bool,
    /// It is on offer, or was, and another one of its chain follows.
    has_next: bool,
    id: u16,
}

/// What a ring tells of its past. The guest offers descriptors in order, so the AVAIL bits change where it
/// will go on. Of a chain of several descriptors only the first is given back: the others stay as they were
/// on offer.
struct History {
    /// Where the guest will go on, but a round ago.
    oldest: Position,
    /// All descriptors from there on.
    entries: Vec<Entry>,
}

/// How often a ring is looked at that its guest is changing.
const HISTORY_TRIES: usize = 100;

impl History {
    /// The end of the chain to which `from` and all before it belong: `from` if that begins another one.
    fn end_of_chain(&self, from: usize) -> usize {
        let all = &self.entries;
        let Some(last) = all.iter().skip(from).position(|entry| !entry.has_next) else { return from };
        let last = from + last;
        // The identifier of a chain is in its last descriptor, and was given back in its first one. Without
        // that one, the guest has reused the identifier.
        let is_same = |other: &Entry| other.id == all[last].id;
        let is_rest = match from.checked_sub(1) {
            Some(first) => is_same(&all[first]),
            None => all[last + 1..].iter().any(|entry| !entry.has_next && is_same(entry)),
        };
        if is_rest && !all[last].is_used { last + 1 } else { from }
    }

    /// The place behind the descriptor that was given back last. Its chain may go on there.
    fn behind_used(&self) -> usize {
        self.entries.iter().rposition(|entry| entry.is_used).map_or(0, |last| last + 1)
    }

    /// Whether both may be where the ring stopped.
    fn allows(&self, avail: Position, used: Position) -> bool {
        let size = self.entries.len();
        let slots = |at: Position| {
            let round = if at.wrap == self.oldest.wrap { 0 } else { size };
            (usize::from(at.idx) + round + 2 * size - usize::from(self.oldest.idx)) % (2 * size)
        };
        let behind = self.behind_used();
        let is_end = slots(used) == behind || slots(used) == self.end_of_chain(behind);
        // The distance is one modulo two rounds, which a place beyond the end may have as well.
        let are_within = [avail, used].iter().all(|at| usize::from(at.idx) < size);
        are_within && is_end && slots(used) <= slots(avail) && slots(avail) <= size
    }

    /// Whether there are chains of several descriptors for certain: other than those, only the one that is
    /// written last in a burst can be unused while one behind it is used.
    fn has_long_chains(&self) -> bool {
        let unused = self.entries[..self.behind_used()].iter().filter(|entry| !entry.is_used).count();
        unused > 1 || self.entries.iter().any(|entry| entry.has_next)
    }

    /// Where a predecessor was killed, and the first descriptor of its last burst if that was not shown to
    /// the guest yet: it is the last one that is written. If chains of one descriptor and of several
    /// alternate, and the guest reuses an identifier at once, this may be wrong.
    fn of_killed(&self) -> (usize, Option<usize>) {
        let behind = self.behind_used();
        if !self.has_long_chains() {
            return (behind, self.entries[..behind].iter().position(|entry| !entry.is_used));
        }
        let begins_unused = |idx: &usize| self.entries[*idx - 1].is_used && !self.entries[*idx].is_used;
        let mut ends = (1..behind).filter(begins_unused).map(|idx| self.end_of_chain(idx));
        (self.end_of_chain(behind), ends.find(|idx| !self.entries[*idx].is_used))
    }
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
    /// A ring whose parts are in `memory`, continuing at `base` (of SET_VRING_BASE), or, if that may be out
    /// of date, where the ring itself says.
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
            return Err(Fault::RING_OUTSIDE);
        };
        let [start, used] = [base as u16, (base >> 16) as u16].map(Position::of);
        if start.idx >= size || used.idx >= size {
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
        if !is_base_known && let Some(history) = packed.history() {
            packed.resume(&history, used);
        }
        Ok(packed)
    }

    /// Goes on where the front end says, if the ring can have stopped there. After a predecessor was killed,
    /// QEMU names the place where the ring once began.
    fn resume(&mut self, history: &History, used: Position) {
        let place = |slots: usize| {
            let mut at = history.oldest;
            at.advance(slots as u16, self.size);
            at
        };
        let (end, unshown) = history.of_killed();
        if let Some(at) = unshown.map(place) {
            // SAFETY: a position's index is below the size.
            let descriptor = unsafe { Packed::read(self.ring, usize::from(at.idx)) };
            self.flags(at.idx).store(at.used_flags(descriptor.len), Ordering::Release);
        }
        let is_known = self.avail != Position::of(1 << 15);
        if is_known && history.allows(self.avail, self.avail) {
            return;
        }
        // A predecessor may have taken what is between the two, and kept it.
        let is_kept = is_known && history.allows(self.avail, used);
        (self.avail, self.used) = if is_kept { (self.avail, used) } else { (place(end), place(end)) };
        self.signalled = self.used.idx;
    }

    /// `None` if the guest never ceases to change it.
    fn history(&self) -> Option<History> {
        (0..HISTORY_TRIES).find_map(|_| {
            // Downwards, so that what the guest adds meanwhile is seen without gaps, but for the ring's end.
            let mut flags: Vec<u16> =
                (0..self.size).rev().map(|idx| self.flags(idx).load(Ordering::Acquire)).collect();
            flags.reverse();
            let last = flags.last()? & AVAIL;
            let end = flags.iter().position(|flags| flags & AVAIL == last)?;
            if flags[end..].iter().any(|flags| flags & AVAIL != last) {
                return None;
            }
            let entry = |idx: usize| {
                let is_used = (flags[idx] & AVAIL != 0) == (flags[idx] & USED != 0);
                // SAFETY: `idx < size`.
                let id = unsafe { Packed::read(self.ring, idx) }.next;
                Entry { is_used, has_next: !is_used && flags[idx] & NEXT != 0, id }
            };
            let entries = (end..flags.len()).chain(0..end).map(entry).collect();
            Some(History { oldest: Position { idx: end as u16, wrap: last != 0 }, entries })
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
        let at = at.ok_or(Fault::TABLE_OUTSIDE)?;
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
        let flags = self.used.used_flags(written);
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
        self.avail.base() | self.used.base() << 16
    }
}
