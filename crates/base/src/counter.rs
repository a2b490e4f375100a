//! Counters with one writer: plain words that the writing worker adds to without a locked instruction
//! and that any thread may read in place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A 64-bit counter with exactly one writing thread. Readers may see a value slightly late, but never a torn
/// one. It wraps after 2^64.
#[derive(Default, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n`. Only the owning thread may call this: the load and the store are separate, so a
    /// second writer would lose counts (it would not be unsound).
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The current value, from any thread.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Overwrites the value. For the owning thread, and for gauges.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_the_writer_added() {
        let c = Counter::new();
        c.add(2);
        c.add(3);
        assert_eq!(c.get(), 5);
    }
}
