//! The four single-producer single-consumer rings of an AF_XDP socket, shared with the kernel.
//!
//! Indices are free-running 32-bit numbers; the slot is the index masked by the size, a power of two. Each
//! side keeps its own index in a local variable and a snapshot of the other's, so that a burst costs at most
//! one load of a line that the kernel writes and one store to a line that it reads.
//!
//! Invariants: a slot is written before the producer index that publishes it (release), and read after the
//! producer index was loaded (acquire). Reading or writing a slot beyond those available is memory-safe,
//! because the index is masked; the value would merely be stale.
//!
//! Source: linux/if_xdp.h, Documentation/networking/af_xdp.rst.

use super::sys::Mapping;
use crate::PortError;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the kernel put the parts of a ring within its mapping, and how large the ring is.
pub(super) struct RingLayout {
    pub(super) offsets: libc::xdp_ring_offset,
    pub(super) page_offset: u64,
    pub(super) slots: u32,
}

/// What both ends of a ring have in common.
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    mask: u32,
    _mapping: Mapping,
    _slot: PhantomData<T>,
}

// SAFETY: the pointers go into the mapping that the struct owns; one thread at a time has it.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn map(fd: &OwnedFd, layout: &RingLayout) -> Result<Shared<T>, PortError> {
        assert!(layout.slots.is_power_of_two(), "ring sizes are powers of two");
        let count = layout.slots as usize;
        let len = layout.offsets.desc as usize + count * size_of::<T>();
        let mapping = Mapping::new(fd, len, layout.page_offset as libc::off_t)?;
        Ok(Shared {
            producer: mapping.at(layout.offsets.producer, 1),
            consumer: mapping.at(layout.offsets.consumer, 1),
            flags: mapping.at(layout.offsets.flags, 1),
            slots: mapping.at(layout.offsets.desc, count),
            mask: layout.slots - 1,
            _mapping: mapping,
            _slot: PhantomData,
        })
    }

    #[inline(always)]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `Mapping::at` checked place and alignment; the mapping lives as long as we do.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: the index is masked by the number of slots, for which `Mapping::at` checked the room.
        unsafe { self.slots.add((index & self.mask) as usize) }
    }
}

/// The producing end of a ring: fill and TX.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// The next slot to write; those before it and after the published index are written, not yet seen.
    head: u32,
    /// The kernel's index as last seen.
    tail_seen: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(fd: &OwnedFd, layout: &RingLayout) -> Result<Producer<T>, PortError> {
        Ok(Producer { shared: Shared::map(fd, layout)?, head: 0, tail_seen: 0 })
    }

    /// Slots in all.
    #[inline(always)]
    pub(super) fn size(&self) -> u32 {
        self.shared.mask + 1
    }

    /// The number of free slots: exact if fewer than `wanted` seemed free, otherwise at least `wanted`.
    #[inline(always)]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.size() - self.head.wrapping_sub(self.tail_seen);
        if free >= wanted {
            return free;
        }
        self.tail_seen = self.shared.consumer().load(Ordering::Acquire);
        self.size() - self.head.wrapping_sub(self.tail_seen)
    }

    /// Writes the next slot. The caller knows from [`Self::free`] that it is free.
    #[inline(always)]
    pub(super) fn push(&mut self, value: T) {
        // SAFETY: the slot lies in the mapping, and the kernel does not look at it before `publish`.
        unsafe { self.shared.slot(self.head).write(value) };
        self.head = self.head.wrapping_add(1);
    }

    /// Lets the kernel see what was pushed.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.shared.producer().store(self.head, Ordering::Release);
    }

    /// How many pushed slots the kernel has not consumed yet.
    #[inline(always)]
    pub(super) fn unconsumed(&mut self) -> u32 {
        self.tail_seen = self.shared.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail_seen)
    }

    /// Whether the kernel wants a wake-up by system call. Only meaningful with need_wakeup.
    #[inline(always)]
    pub(super) fn needs_wakeup(&self) -> bool {
        // The driver sets the flag and then looks at the ring once more; we publish and then look at the
        // flag. Without a full barrier between, each could miss the other.
        std::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: as for `producer`.
        let flags = unsafe { self.shared.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The consuming end of a ring: RX and completion.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    /// The next slot to read.
    tail: u32,
    /// The kernel's index as last seen.
    head_seen: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(fd: &OwnedFd, layout: &RingLayout) -> Result<Consumer<T>, PortError> {
        Ok(Consumer { shared: Shared::map(fd, layout)?, tail: 0, head_seen: 0 })
    }

    /// The number of waiting entries. Reads the kernel's index only if none was left from the last time.
    #[inline(always)]
    pub(super) fn available(&mut self) -> u32 {
        if self.head_seen == self.tail {
            self.head_seen = self.shared.producer().load(Ordering::Acquire);
        }
        self.head_seen.wrapping_sub(self.tail)
    }

    /// The entry `n` after the next one; the caller knows from [`Self::available`] that it is there.
    #[inline(always)]
    pub(super) fn peek(&self, n: u32) -> T {
        // SAFETY: the slot lies in the mapping; any bytes are a valid descriptor or address.
        unsafe { self.shared.slot(self.tail.wrapping_add(n)).read() }
    }

    /// Gives `n` slots back to the kernel.
    #[inline(always)]
    pub(super) fn release(&mut self, n: u32) {
        self.tail = self.tail.wrapping_add(n);
        self.shared.consumer().store(self.tail, Ordering::Release);
    }
}
