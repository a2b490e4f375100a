//! A guest whose buffers are of many pieces each, as Linux makes them for large segments where it has no
//! mergeable buffers: a burst is of more descriptors than the ring, through indirect tables.

use super::attacks::{Attacker, INDIRECT, NEXT, Victim, WRITE};
use crate::memory::GUEST_BASE;
use crate::{BUFFER, Guest, GuestConfig};
use packet::{Batch, Port};
use ports::vhost_user::features::device as d;
use std::sync::atomic::Ordering::Acquire;

const RING_SIZE: u16 = 64;
/// Frames that are sent at once.
const BURST: usize = 32;
/// Linux has 17 for the segment, one for what it is that precedes them, and one for the header.
const PIECES: usize = 19;
const HEADER_LEN: usize = 12;
const PIECE_LEN: usize = 80;

/// Buffer `n`'s indirect table and first byte, behind each other from the spare place on.
fn places(of: &Attacker, n: usize) -> (usize, usize) {
    (of.spare + n * PIECES * 16, of.spare + (8 + n) * BUFFER)
}

/// Offers buffer `n`: the header, then pieces that lie apart, in reverse order.
fn offer(to: &Attacker, ring: [usize; 3], n: usize, direction: u16) {
    let (table, _) = places(to, n);
    for piece in 0..PIECES {
        let (at, len) = piece_of(to, n, piece);
        let next = if piece + 1 < PIECES { NEXT } else { 0 };
        to.descriptor(
            table,
            piece as u16,
            GUEST_BASE + at as u64,
            len as u32,
            [next | direction, piece as u16 + 1],
        );
    }
    to.descriptor(ring[0], n as u16, GUEST_BASE + table as u64, PIECES as u32 * 16, [INDIRECT, 0]);
    to.avail(ring, n as u16);
}

fn piece_of(of: &Attacker, n: usize, piece: usize) -> (usize, usize) {
    let (_, buffer) = places(of, n);
    if piece == 0 {
        (buffer, HEADER_LEN)
    } else {
        (buffer + HEADER_LEN + (PIECES - 1 - piece) * PIECE_LEN, PIECE_LEN)
    }
}

/// A frame that fills all pieces but half of the last one.
fn frame(n: usize) -> Vec<u8> {
    let len = (PIECES - 1) * PIECE_LEN - PIECE_LEN / 2;
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

#[test]
fn bursts_of_more_descriptors_than_the_ring_has_cross_whole_and_in_order() {
    let (_dir, mut cache, mut port) = Victim::alone();
    let config = GuestConfig { ring_size: RING_SIZE, features: d::INDIRECT_DESC, ..GuestConfig::default() };
    let mut guest = Guest::connect(&port.path, &config).unwrap();
    guest.synchronise().unwrap();
    let mut batch = Batch::new();
    // The buffers of one piece that it begins with.
    for _ in 0..usize::from(RING_SIZE) / BURST {
        batch.extend((0..BURST).map(|_| cache.alloc_frame(&[0; 60]).unwrap()));
        port.tx[0].tx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty());
    }
    let guest = Attacker::new(&mut guest, RING_SIZE);
    let used = |ring: [usize; 3]| guest.ram.u16(ring[2] + 2).load(Acquire);
    assert_eq!(used(guest.rx), RING_SIZE);

    // To the guest.
    (0..BURST).for_each(|n| offer(&guest, guest.rx, n, WRITE));
    batch.extend((0..BURST).map(|n| cache.alloc_frame(&frame(n)).unwrap()));
    port.tx[0].tx_burst(&mut cache, &mut batch);
    assert_eq!((batch.len(), port.port.status().error), (0, None));
    assert_eq!(used(guest.rx), RING_SIZE + BURST as u16);
    for n in 0..BURST {
        let pieces = (1..PIECES).map(|piece| piece_of(&guest, n, piece));
        let mut came: Vec<u8> = pieces.flat_map(|(at, len)| guest.ram.buffer(at, len).to_vec()).collect();
        came.truncate(frame(n).len());
        assert_eq!(came, frame(n), "frame {n}");
    }

    // From the guest, the same memory.
    for n in 0..BURST {
        guest.ram.buffer_mut(places(&guest, n).1, HEADER_LEN).fill(0);
        for (piece, bytes) in frame(BURST + n).chunks(PIECE_LEN).enumerate() {
            let (at, _) = piece_of(&guest, n, piece + 1);
            guest.ram.buffer_mut(at, bytes.len()).copy_from_slice(bytes);
        }
        offer(&guest, guest.tx, n, 0);
    }
    port.rx[0].rx_burst(&mut cache, &mut batch);
    assert_eq!((batch.len(), port.port.status().error), (BURST, None));
    for (n, packet) in batch.iter().enumerate() {
        let came: Vec<u8> = packet.segments().flatten().copied().collect();
        assert_eq!(came[..frame(0).len()], frame(BURST + n), "frame {n}");
    }
    cache.free_all(&mut batch);
}
