//! Guests whose chains of descriptors are longer than those of any driver: the switch reads every descriptor,
//! and the guest need not even have memory for them.

use super::attacks::{Attacker, NEXT, Victim};
use crate::memory::GUEST_BASE;
use crate::{Guest, GuestConfig, RingLayout};
use packet::Port;
use std::sync::atomic::Ordering::Relaxed;

/// AVAIL of a packed ring, in its first round.
const AVAIL: u16 = 1 << 7;

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
