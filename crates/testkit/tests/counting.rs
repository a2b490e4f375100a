//! The counting allocator, in a binary of its own since there is one global allocator per binary.

use std::hint::black_box;

use testkit::alloc::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn counts_what_this_thread_allocates_and_nothing_else() {
    let before = allocations();
    black_box(1 + black_box(1));
    assert_eq!(allocations(), before, "arithmetic does not allocate");

    let mut grown = black_box(Vec::<u64>::with_capacity(1));
    assert_eq!(allocations(), before + 1);
    grown.extend([1, 2, 3]);
    assert_eq!(allocations(), before + 2, "growing counts");

    let here = allocations();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            black_box(vec![0u8; 100]);
            assert!(allocations() >= 1);
        });
    });
    // What it takes to start a thread is this thread's; what the thread did is not.
    let started = allocations() - here;
    assert!(started < 100, "{started}");
}
