//! A number that one thread raises, and that makes everything written before visible to others.
//!
//! A [`Counter`](crate::Counter) orders nothing: a thread that sees its new value may still see old values of
//! other words, on all processors except x86's. A number that means that something *was done* (a request was
//! made, or has been served) is one of these.

use std::sync::atomic::AtomicU64;

/// A number with one writing thread. A thread that sees it at `n` sees everything that the writer wrote
/// before raising it to `n`.
#[derive(Default, Debug)]
pub struct Watermark(AtomicU64);

impl Watermark {
    /// Raises it to `n`. Only the owning thread may call this.
    #[inline(always)]
    pub fn raise(&self, n: u64) {
        protocol::raise(&self.0, n);
    }

    /// The present value, from any thread.
    #[inline(always)]
    pub fn reached(&self) -> u64 {
        protocol::reached(&self.0)
    }
}

/// The orderings, apart from the processor's words, so that a model can check them.
mod protocol {
    use std::sync::atomic::Ordering::{self, Acquire, Release};

    pub(super) trait Word {
        fn load(&self, order: Ordering) -> u64;
        fn store(&self, value: u64, order: Ordering);
    }

    impl Word for std::sync::atomic::AtomicU64 {
        #[inline(always)]
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        #[inline(always)]
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
    }

    /// Release: a thread that sees `n` also sees what was written before.
    #[inline(always)]
    pub(super) fn raise(word: &impl Word, n: u64) {
        word.store(n, Release);
    }

    /// Acquire: what was written before the value that is seen is seen too.
    #[inline(always)]
    pub(super) fn reached(word: &impl Word) -> u64 {
        word.load(Acquire)
    }
}

/// A request and its answer, each told by a watermark, under all that the memory model allows; with twins
/// that lack one ordering each and must be found out.
#[cfg(test)]
mod model {
    use super::protocol::{self, Word};
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::{self, Relaxed};

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }
        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Twin {
        Faithful,
        RelaxedRaise,
        RelaxedReached,
    }

    impl Twin {
        fn raise(self, word: &AtomicU64) {
            if self == Twin::RelaxedRaise { word.store(1, Relaxed) } else { protocol::raise(word, 1) }
        }

        fn reached(self, word: &AtomicU64) -> u64 {
            if self == Twin::RelaxedReached { word.load(Relaxed) } else { protocol::reached(word) }
        }
    }

    #[derive(Default)]
    struct World {
        wanted: AtomicU64,
        done: AtomicU64,
        /// What the control thread changes before it asks.
        rules: AtomicU64,
        /// What the worker folds before it answers.
        folded: AtomicU64,
    }

    fn run(asks: Twin, answers: Twin) {
        loom::model(move || {
            let world = Arc::new(World::default());
            let shared = world.clone();
            let worker = loom::thread::spawn(move || {
                if asks.reached(&shared.wanted) == 1 {
                    assert_eq!(shared.rules.load(Relaxed), 1, "served before the change was seen");
                    shared.folded.store(7, Relaxed);
                    answers.raise(&shared.done);
                }
            });
            world.rules.store(1, Relaxed);
            asks.raise(&world.wanted);
            if answers.reached(&world.done) == 1 {
                assert_eq!(world.folded.load(Relaxed), 7, "read before the fold was seen");
            }
            worker.join().unwrap();
        });
    }

    fn is_found_out(asks: Twin, answers: Twin) -> bool {
        std::panic::catch_unwind(|| run(asks, answers)).is_err()
    }

    #[test]
    fn a_request_and_its_answer_show_what_was_written_before_them() {
        run(Twin::Faithful, Twin::Faithful);
    }

    #[test]
    fn a_watermark_without_one_of_its_orderings_is_found_out() {
        for flaw in [Twin::RelaxedRaise, Twin::RelaxedReached] {
            assert!(is_found_out(flaw, Twin::Faithful));
            assert!(is_found_out(Twin::Faithful, flaw));
        }
    }
}
