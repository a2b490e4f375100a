//! A virtqueue from the driver's side, in both layouts: buffers are offered, and returned as used.
//!
//! Each part of a buffer has a descriptor; parts that were offered together return together.
//!
//! Source: virtio 1.2 sections 2.7 and 2.8.

use super::memory::{GUEST_BASE, GuestRam};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
const DESCRIPTOR: usize = 16;

/// How descriptors are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingLayout {
    /// A table and two rings.
    Split,
    /// One ring.
    Packed,
}

/// A part of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Its place in the guest's memory.
    pub(crate) offset: usize,
    pub(crate) len: u32,
    /// The switch writes it.
    pub(crate) writable: bool,
}

pub(crate) struct DriverRing {
    ram: Arc<GuestRam>,
    layout: RingLayout,
    size: u16,
    /// Offsets of the three parts, in the protocol's order: descriptors, available (driver's events), used
    /// (device's events).
    pub(crate) descriptors: usize,
    pub(crate) avail: usize,
    pub(crate) used: usize,
    /// Numbers that no buffer on offer has.
    free: Vec<u16>,
    /// By buffer number: how many descriptors it uses, and which (split layout).
    taken: Vec<Vec<u16>>,
    next_avail: u16,
    avail_wrap: bool,
    next_used: u16,
    used_wrap: bool,
    /// Offered, not yet shown.
    unshown: u16,
    has_event_idx: bool,
}

/// Bytes that a ring takes.
pub(crate) fn ring_bytes(size: u16) -> usize {
    let n = usize::from(size);
    (n * DESCRIPTOR + 6 + 2 * n + 64 + 6 + 8 * n + 64).next_multiple_of(4096)
}

impl DriverRing {
    /// A ring of `size` descriptors at `offset`, empty.
    pub(crate) fn new(
        ram: Arc<GuestRam>,
        layout: RingLayout,
        size: u16,
        offset: usize,
        has_event_idx: bool,
    ) -> DriverRing {
        let n = usize::from(size);
        let avail = offset + n * DESCRIPTOR;
        let used = (avail + 6 + 2 * n).next_multiple_of(64);
        DriverRing {
            ram,
            layout,
            size,
            descriptors: offset,
            avail,
            used,
            free: (0..size).rev().collect(),
            taken: vec![Vec::new(); n],
            next_avail: 0,
            avail_wrap: true,
            next_used: 0,
            used_wrap: true,
            unshown: 0,
            has_event_idx,
        }
    }

    /// Descriptors that are free.
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Where the switch returns the next buffer.
    #[cfg(test)]
    pub(crate) fn next_used(&self) -> usize {
        usize::from(self.next_used)
    }

    /// Whether some buffers are offered.
    pub(crate) fn has_offered(&self) -> bool {
        self.free.len() < usize::from(self.size)
    }

    fn write_descriptor(&self, idx: u16, part: Part, words: [u16; 2]) {
        let at = self.descriptors + usize::from(idx) * DESCRIPTOR;
        self.ram.u64(at).store(GUEST_BASE + part.offset as u64, Ordering::Relaxed);
        self.ram.u32(at + 8).store(part.len, Ordering::Relaxed);
        self.ram.u16(at + 12).store(words[0], Ordering::Relaxed);
        self.ram.u16(at + 14).store(words[1], Ordering::Release);
    }

    /// Offers a buffer, and returns the number under which it comes back. `None` without room. The switch
    /// sees it after [`Self::show`].
    pub(crate) fn offer(&mut self, parts: &[Part]) -> Option<u16> {
        if parts.is_empty() || parts.len() > self.free.len() {
            return None;
        }
        match self.layout {
            RingLayout::Split => Some(self.offer_split(parts)),
            RingLayout::Packed => Some(self.offer_packed(parts)),
        }
    }

    /// Takes several numbers for one buffer, which the first of them identifies. The lists keep their memory,
    /// so a ring that has wrapped once allocates nothing.
    fn reserve(&mut self, count: usize) -> u16 {
        let at = self.free.len() - count;
        let first = self.free[at];
        self.taken[usize::from(first)].extend(self.free.drain(at..));
        first
    }

    fn offer_split(&mut self, parts: &[Part]) -> u16 {
        let head = self.reserve(parts.len());
        let numbers = &self.taken[usize::from(head)];
        for (n, part) in parts.iter().enumerate() {
            let write = if part.writable { WRITE } else { 0 };
            let (next, flag) = numbers.get(n + 1).map_or((0, 0), |next| (*next, NEXT));
            self.write_descriptor(numbers[n], *part, [write | flag, next]);
        }
        let slot = usize::from(self.next_avail & (self.size - 1));
        self.ram.u16(self.avail + 4 + 2 * slot).store(head, Ordering::Relaxed);
        self.next_avail = self.next_avail.wrapping_add(1);
        self.unshown += 1;
        head
    }

    fn offer_packed(&mut self, parts: &[Part]) -> u16 {
        let id = self.reserve(parts.len());
        let first = (self.next_avail, self.avail_wrap);
        let bits = |wrap: bool| if wrap { AVAIL } else { USED };
        for (n, part) in parts.iter().enumerate() {
            let write = if part.writable { WRITE } else { 0 };
            let next = if n + 1 < parts.len() { NEXT } else { 0 };
            // The first one's flags make all of them available, so they are written last.
            let flags = if n == 0 { self.flags(first.0) } else { bits(self.avail_wrap) | write | next };
            self.write_descriptor(self.next_avail, *part, [id, flags]);
            self.next_avail += 1;
            if self.next_avail == self.size {
                self.next_avail = 0;
                self.avail_wrap = !self.avail_wrap;
            }
        }
        let write = if parts[0].writable { WRITE } else { 0 };
        let next = if parts.len() > 1 { NEXT } else { 0 };
        let at = self.descriptors + usize::from(first.0) * DESCRIPTOR + 14;
        self.ram.u16(at).store(bits(first.1) | write | next, Ordering::Release);
        self.unshown += parts.len() as u16;
        id
    }

    fn flags(&self, idx: u16) -> u16 {
        self.ram.u16(self.descriptors + usize::from(idx) * DESCRIPTOR + 14).load(Ordering::Acquire)
    }

    /// Shows what was offered. True where the switch wants to be notified.
    pub(crate) fn show(&mut self) -> bool {
        let shown = std::mem::take(&mut self.unshown);
        if shown == 0 {
            return false;
        }
        match self.layout {
            RingLayout::Split => {
                let new = self.next_avail;
                self.ram.u16(self.avail + 2).store(new, Ordering::Release);
                fence(Ordering::SeqCst);
                if self.has_event_idx {
                    let at = self.used + 4 + 8 * usize::from(self.size);
                    let event = self.ram.u16(at).load(Ordering::Relaxed);
                    new.wrapping_sub(event).wrapping_sub(1) < shown
                } else {
                    self.ram.u16(self.used).load(Ordering::Relaxed) & 1 == 0
                }
            }
            RingLayout::Packed => {
                fence(Ordering::SeqCst);
                // This switch asks for all or none.
                self.ram.u16(self.used + 2).load(Ordering::Relaxed) != 1
            }
        }
    }

    /// The next buffer that came back: its number and how many bytes were written.
    pub(crate) fn take_used(&mut self) -> Option<(u16, u32)> {
        match self.layout {
            RingLayout::Split => {
                if self.ram.u16(self.used + 2).load(Ordering::Acquire) == self.next_used {
                    return None;
                }
                let at = self.used + 4 + 8 * usize::from(self.next_used & (self.size - 1));
                let id = self.ram.u32(at).load(Ordering::Relaxed) as u16;
                let len = self.ram.u32(at + 4).load(Ordering::Relaxed);
                self.next_used = self.next_used.wrapping_add(1);
                self.release(id);
                Some((id, len))
            }
            RingLayout::Packed => {
                let flags = self.flags(self.next_used);
                if (flags & AVAIL != 0) != self.used_wrap || (flags & USED != 0) != self.used_wrap {
                    return None;
                }
                let at = self.descriptors + usize::from(self.next_used) * DESCRIPTOR;
                let len = self.ram.u32(at + 8).load(Ordering::Relaxed);
                let id = self.ram.u16(at + 12).load(Ordering::Relaxed);
                self.next_used += self.release(id);
                if self.next_used >= self.size {
                    self.next_used -= self.size;
                    self.used_wrap = !self.used_wrap;
                }
                Some((id, len))
            }
        }
    }

    /// Frees the numbers of a buffer that came back; returns how many.
    fn release(&mut self, id: u16) -> u16 {
        let numbers = &mut self.taken[usize::from(id)];
        assert!(!numbers.is_empty(), "the switch gave back buffer {id}, which was not on offer");
        let count = numbers.len() as u16;
        self.free.append(numbers);
        count
    }

    /// Asks the switch to notify us of what comes back, or not to.
    pub(crate) fn want_calls(&self, wanted: bool) {
        match self.layout {
            RingLayout::Split if self.has_event_idx => {
                let behind = if wanted { self.next_used } else { self.next_used.wrapping_sub(1) };
                let at = self.avail + 4 + 2 * usize::from(self.size);
                self.ram.u16(at).store(behind, Ordering::Relaxed);
            }
            RingLayout::Split => self.ram.u16(self.avail).store(u16::from(!wanted), Ordering::Relaxed),
            RingLayout::Packed => self.ram.u16(self.avail + 2).store(u16::from(!wanted), Ordering::Relaxed),
        }
        fence(Ordering::SeqCst);
    }

    /// Whether a buffer has come back.
    pub(crate) fn has_used(&self) -> bool {
        match self.layout {
            RingLayout::Split => self.ram.u16(self.used + 2).load(Ordering::Acquire) != self.next_used,
            RingLayout::Packed => {
                let flags = self.flags(self.next_used);
                (flags & AVAIL != 0) == self.used_wrap && (flags & USED != 0) == self.used_wrap
            }
        }
    }
}
