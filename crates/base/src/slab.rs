//! An array that grows without moving: for counters that many threads read in place, and nodes that lock-free
//! readers traverse.
//!
//! Idea: chunks, each as large as all before it together, are allocated when first needed and never freed or
//! moved while the slab lives. A reader needs no guard: what it once found stays where it is.
//!
//! Threads: any. Elements are shared, so their type brings its own way to change (atomics,
//! [`crate::Counter`]).

use crate::region::Region;
use std::ptr::NonNull;
use std::sync::OnceLock;
use zerocopy::FromZeros;

/// Elements of the first chunk.
const FIRST: usize = 16;
/// Enough for 2^31 elements.
const CHUNKS: usize = 28;
/// Chunks of at least this size are mapped, and use memory only where they are touched.
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// See the module documentation.
pub struct Slab<T: FromZeros> {
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
}

/// Zeroed elements, in huge pages if there are many.
pub(crate) struct Chunk<T: FromZeros> {
    /// The elements that the owner derefs to, accessible without checking the kind of owner.
    elements: NonNull<[T]>,
    owner: Owner<T>,
}

#[allow(dead_code)] // Held for the sake of being dropped.
enum Owner<T: FromZeros> {
    Small(Box<[T]>),
    Mapped(Region<T>),
}

// SAFETY: a chunk owns its elements as its owner does, and gives them out by shared reference only.
unsafe impl<T: FromZeros + Send> Send for Chunk<T> {}
// SAFETY: as above.
unsafe impl<T: FromZeros + Sync> Sync for Chunk<T> {}

impl<T: FromZeros> Chunk<T> {
    pub(crate) fn new(len: usize) -> Chunk<T> {
        let owner = if len * size_of::<T>() >= MAPPED_BYTES_MIN {
            // As with every other allocation, running out of memory cannot be handled here.
            Owner::Mapped(Region::new(len).expect("address space for a slab's chunk"))
        } else {
            Owner::Small((0..len).map(|_| T::new_zeroed()).collect())
        };
        let elements = NonNull::from(match &owner {
            Owner::Small(elements) => &elements[..],
            Owner::Mapped(elements) => &elements[..],
        });
        Chunk { elements, owner }
    }

    #[inline(always)]
    pub(crate) fn elements(&self) -> &[T] {
        // SAFETY: the owner's elements, which neither move nor go while it lives, and which are not mutably
        // borrowed.
        unsafe { self.elements.as_ref() }
    }
}

impl<T: FromZeros> Default for Slab<T> {
    fn default() -> Self {
        Slab { chunks: [const { OnceLock::new() }; CHUNKS] }
    }
}

/// Chunk and offset of an element.
#[inline(always)]
fn locate(idx: usize) -> (usize, usize) {
    // Chunk 0 has the elements 0..FIRST, chunk k > 0 those from FIRST << (k - 1) to FIRST << k.
    if idx < FIRST {
        return (0, idx);
    }
    let log = (idx / FIRST).ilog2() as usize;
    (log + 1, idx - (FIRST << log))
}

impl<T: FromZeros> Slab<T> {
    /// Elements that any slab can have.
    pub const LEN_MAX: usize = FIRST << (CHUNKS - 1);

    /// A slab with room for nothing.
    pub fn new() -> Slab<T> {
        Self::default()
    }

    /// Creates the elements `0..len`; new ones are zeroed. Allocates, so not for the packet path. Panics
    /// beyond [`Self::LEN_MAX`].
    pub fn reserve(&self, len: usize) {
        assert!(len <= Self::LEN_MAX, "a slab has at most {} elements", Self::LEN_MAX);
        if len == 0 {
            return;
        }
        let (last, _) = locate(len - 1);
        for k in 0..=last {
            let size = if k == 0 { FIRST } else { FIRST << (k - 1) };
            self.chunks[k].get_or_init(|| Chunk::new(size));
        }
    }

    /// Reserves room up to `elements.end`, and populates the memory of the elements in advance, see
    /// [`Region::populate`].
    pub fn populate(&self, elements: std::ops::Range<usize>) {
        self.reserve(elements.end);
        let mut first = 0;
        for chunk in self.chunks.iter().map_while(OnceLock::get) {
            let end = first + chunk.elements().len();
            if let (Owner::Mapped(region), true) = (&chunk.owner, elements.start < end) {
                let within = |at: usize| at.clamp(first, end) - first;
                region.populate(within(elements.start)..within(elements.end));
            }
            first = end;
        }
    }

    /// The element, if room was reserved for it.
    #[inline(always)]
    pub fn get(&self, idx: usize) -> Option<&T> {
        let (chunk, offset) = locate(idx);
        self.chunks.get(chunk)?.get()?.elements().get(offset)
    }

    /// For how many elements there is room.
    pub fn capacity(&self) -> usize {
        let chunks = self.chunks.iter().take_while(|c| c.get().is_some()).count();
        if chunks == 0 { 0 } else { FIRST << (chunks - 1) }
    }
}

impl<T: FromZeros> std::ops::Index<usize> for Slab<T> {
    type Output = T;

    /// Panics if no room was reserved.
    #[inline(always)]
    fn index(&self, idx: usize) -> &T {
        self.get(idx).expect("an element for which room was reserved")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn every_element_has_its_own_place_and_keeps_it() {
        let slab = Slab::<AtomicU32>::new();
        assert!(slab.get(0).is_none());
        slab.reserve(1);
        assert_eq!((slab.capacity(), slab.get(FIRST).is_none()), (FIRST, true));
        let first = &slab[0];
        slab.reserve(100_000);
        for i in 0..100_000 {
            assert_eq!(slab[i].swap(i as u32 + 1, Ordering::Relaxed), 0);
        }
        for i in 0..100_000 {
            assert_eq!(slab[i].load(Ordering::Relaxed), i as u32 + 1);
        }
        assert_eq!(first.load(Ordering::Relaxed), 1);
        assert!(slab.get(slab.capacity()).is_none());
    }

    #[test]
    fn no_index_is_out_of_reach() {
        let slab = Slab::<crate::slots::Slot>::new();
        slab.reserve(1);
        assert!(slab.get(Slab::<crate::slots::Slot>::LEN_MAX).is_none());
        assert!(slab.get(usize::MAX).is_none());
        slab[3].packets.add(2);
        assert_eq!(slab[3].packets.get(), 2);
    }
}
