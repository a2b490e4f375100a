//! The heap, in a program of its own, since it is the whole program's.
#![allow(unsafe_code)]

/// Pieces that glibc has not merged with their neighbours after many were freed.
#[cfg(target_env = "gnu")]
fn unmerged() -> usize {
    let mut boxes: Vec<Box<[u8; 64]>> = (0..10_000).map(|n| Box::new([n as u8; 64])).collect();
    std::hint::black_box(&mut boxes).clear();
    // SAFETY: it takes nothing and returns a value.
    let pieces = unsafe { libc::mallinfo2() }.smblks;
    // Freeing something large merges them.
    drop(boxes);
    pieces
}

#[cfg(target_env = "gnu")]
#[test]
fn freed_pieces_are_merged_at_once() {
    let by_default = unmerged();
    base::heap::free_evenly();
    let pieces = unmerged();
    assert!(by_default > 5_000 && pieces < 100, "{by_default} by default, {pieces} then");
}
