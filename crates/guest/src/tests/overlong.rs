//! Guests whose chains of descriptors are longer than those of any driver: the switch reads every descriptor,
//! and the guest need not even have memory for them.

use super::attacks::{Attacker, NEXT, Victim, WRITE};
use crate::memory::GUEST_BASE;
use crate::{Guest, GuestConfig, RingLayout};
use packet::{Batch, Port};
use std::sync::atomic::Ordering::Relaxed;
use testkit::lab::wait_for;

/// AVAIL of a packed ring, in its first round.
const AVAIL: u16 = 1 << 7;
const RING_SIZE: u16 = 4096;
/// Descriptors of the longest chain that QEMU and vhost take.
const LONG: u16 = 1024;
/// Descriptors of the longest buffer that is taken for reception.
const LONG_TO_RECEIVE: u16 = 64;
/// So many regions a guest may have: a buffer may span the end of each.
const REGIONS: u16 = 32;

/// Makes `count` descriptors from the start of a ring on one chain of `len` bytes each.
fn chain(on: &Attacker, layout: RingLayout, table: usize, [count, len, direction]: [u16; 3]) {
    // From the end: a packed chain is on offer as soon as its first descriptor is.
    for idx in (0..count).rev() {
        let flags = direction | if idx + 1 < count { NEXT } else { 0 };
        let at = GUEST_BASE + on.spare as u64 + u64::from(idx * len);
        let words = match layout {
            RingLayout::Split => [flags, idx + 1],
            RingLayout::Packed => [0, flags | AVAIL],
        };
        on.descriptor(table, idx, at, len.into(), words);
    }
}

#[test]
fn a_chain_longer_than_that_of_any_driver_costs_its_guest_alone() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        for is_receive_ring in [false, true] {
            let (_dir, mut cache, mut port) = Victim::alone();
            let config = GuestConfig { layout, ring_size: RING_SIZE, ..GuestConfig::default() };
            let mut guest = Guest::connect(&port.path, &config).unwrap();
            guest.synchronise().unwrap();
            let attacker = Attacker::new(&mut guest, RING_SIZE);
            if is_receive_ring {
                // All heads of this ring are on offer already.
                chain(&attacker, layout, attacker.rx[0], [LONG_TO_RECEIVE + 1, 1, WRITE]);
            } else {
                chain(&attacker, layout, attacker.tx[0], [LONG + REGIONS + 1, 0, 0]);
                if layout == RingLayout::Split {
                    attacker.avail(attacker.tx, 0);
                }
            }
            let mut batch = Batch::new();
            port.rx[0].rx_burst(&mut cache, &mut batch);
            assert!(batch.is_empty());
            batch.push(cache.alloc_frame(&[0x55; 60]).unwrap());
            port.tx[0].tx_burst(&mut cache, &mut batch);
            cache.free_all(&mut batch);
            let name = format!("{layout:?}, {is_receive_ring}");
            wait_for(&name, || {
                port.port.status().error.is_some_and(|why| why.contains("too many descriptors"))
            });
            drop(guest);
            let mut next = Guest::connect(&port.path, &config).unwrap();
            next.synchronise().unwrap();
            assert!(next.take_pairs()[0].send(&[0x66; 60]));
            wait_for(&name, || {
                port.rx[0].rx_burst(&mut cache, &mut batch);
                !batch.is_empty()
            });
            assert_eq!(batch[0].data(), [0x66; 60]);
            cache.free_all(&mut batch);
        }
    }
}

#[test]
fn a_chain_as_long_as_others_take_arrives_whole() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        let (_dir, mut cache, mut port) = Victim::alone();
        let config = GuestConfig { layout, ring_size: RING_SIZE, ..GuestConfig::default() };
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        guest.synchronise().unwrap();
        let attacker = Attacker::new(&mut guest, RING_SIZE);
        let bytes: Vec<u8> = (0..LONG).map(|n| if n < 12 { 0 } else { n as u8 }).collect();
        attacker.ram.buffer_mut(attacker.spare, bytes.len()).copy_from_slice(&bytes);
        chain(&attacker, layout, attacker.tx[0], [LONG, 1, 0]);
        if layout == RingLayout::Split {
            attacker.avail(attacker.tx, 0);
        }
        let mut batch = Batch::new();
        port.rx[0].rx_burst(&mut cache, &mut batch);
        assert_eq!((batch.len(), port.port.status().error), (1, None), "{layout:?}");
        assert_eq!(batch[0].data(), &bytes[12..], "{layout:?}");
        cache.free_all(&mut batch);
    }
}

#[test]
fn a_buffer_of_as_many_pieces_as_any_driver_has_receives_a_packet_whole() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        let (_dir, mut cache, mut port) = Victim::alone();
        let config = GuestConfig { layout, ring_size: RING_SIZE, ..GuestConfig::default() };
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        guest.synchronise().unwrap();
        let attacker = Attacker::new(&mut guest, RING_SIZE);
        chain(&attacker, layout, attacker.rx[0], [LONG_TO_RECEIVE, 2, WRITE]);
        let frame: Vec<u8> = (0..u8::try_from(2 * LONG_TO_RECEIVE - 12).unwrap()).collect();
        let mut batch = Batch::from_iter([cache.alloc_frame(&frame).unwrap()]);
        port.tx[0].tx_burst(&mut cache, &mut batch);
        assert_eq!((batch.len(), port.port.status().error), (0, None), "{layout:?}");
        assert_eq!(attacker.ram.buffer(attacker.spare + 12, frame.len()), frame, "{layout:?}");
    }
}

#[test]
fn what_is_discarded_at_once_has_an_end_however_long_its_chains_are() {
    /// The longest ring that there is.
    const RING_SIZE: u16 = 32_768;
    const CHAIN: u16 = 1000;
    let (_dir, _cache, port) = Victim::alone();
    let config = GuestConfig { ring_size: 64, tx_ring_size: Some(RING_SIZE), ..GuestConfig::default() };
    let mut guest = Guest::connect(&port.path, &config).unwrap();
    guest.synchronise().unwrap();
    let attacker = Attacker::new(&mut guest, RING_SIZE);
    chain(&attacker, RingLayout::Split, attacker.tx[0], [CHAIN, 0, 0]);
    // Every head is the same.
    for _ in 0..RING_SIZE {
        attacker.avail(attacker.tx, 0);
    }
    let (ram, used_idx) = (attacker.ram.clone(), attacker.tx[2] + 2);
    let mut before = 0;
    for enable in [false, true] {
        guest.enable_pair(0, enable).unwrap();
        guest.synchronise().unwrap();
        let dropped = port.port.stats().rx_dropped;
        assert!((before + 1..=before + 100).contains(&dropped), "{enable}: {dropped} chains at once");
        assert_eq!(u64::from(ram.u16(used_idx).load(Relaxed)), dropped, "each came back");
        before = dropped;
    }
    assert_eq!(port.port.status().error, None);
}
