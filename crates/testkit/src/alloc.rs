//! An allocator that counts what each thread allocates, to prove that the packet path does not.
//!
//! A test binary installs it with `#[global_allocator] static ALLOCATOR: Counting = Counting;` and
//! compares [`allocations`] before and after the code in question. It counts per thread, so that tests
//! that run side by side do not see each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: the first use of it must not itself allocate.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub struct Counting;

/// How many times this thread has allocated or grown an allocation, provided that [`Counting`] is the
/// global allocator; 0 for ever otherwise.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread has allocated less those that it has freed, under the same condition. What one
/// thread allocates and another frees is counted by each.
pub fn live_bytes() -> i64 {
    LIVE_BYTES.get()
}

fn count(allocated: usize, freed: usize) {
    if allocated > 0 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    }
    LIVE_BYTES.set(LIVE_BYTES.get() + allocated as i64 - freed as i64);
}

// SAFETY: every method passes its arguments unchanged to `System` and returns what `System` returned.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: `pointer` came from `System` with `layout`, since every method here goes there.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
