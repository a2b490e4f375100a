//! A flag that threads change in place: the processor's, or a model's.

use std::sync::atomic::Ordering;

/// What the protocols require of a flag.
pub(crate) trait Flag {
    /// Sets it, and says what it was.
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

impl Flag for std::sync::atomic::AtomicBool {
    #[inline(always)]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}

#[cfg(test)]
impl Flag for loom::sync::atomic::AtomicBool {
    fn swap(&self, value: bool, order: Ordering) -> bool {
        self.swap(value, order)
    }
}
