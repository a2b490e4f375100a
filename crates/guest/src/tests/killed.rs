//! Packed rings that another switch goes on with. The front end knows where they stopped only if it could ask
//! the first one; if that was killed, it names their start.

use super::attacks::Victim;
use crate::front_end::FrontEnd;
use crate::{Guest, GuestConfig, RingLayout};
use packet::{BURST, Batch, Port};
use ports::PortError;
use ports::vhost_user::features::device as d;
use std::sync::atomic::Ordering::Relaxed;
use testkit::lab::wait_for;

const SIZE: usize = 64;
/// Bytes of frames that take one descriptor, two, three, and five.
const SHORT: usize = 60;
const TWO: usize = 3000;
const LONG: usize = 5000;
const LONGER: usize = 8900;

/// How the first switch ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    /// Just before it would have shown a burst: the first descriptor comes last.
    KilledInBurst,
    /// It was asked where it stopped.
    Migrated,
    /// The same, but of the answer only the lower half is passed on.
    MigratedByHalf,
}
use End::*;

fn config() -> GuestConfig {
    let features = d::MRG_RXBUF | d::RING_PACKED;
    GuestConfig { layout: RingLayout::Packed, ring_size: SIZE as u16, features, ..GuestConfig::default() }
}

/// The next switch comes, and the front end says where the rings stopped.
fn reconnect(guest: Guest, to: &Victim, config: &GuestConfig, bases: &[u32]) -> Guest {
    let mut guest = try_reconnect(guest, to, config, bases).unwrap();
    guest.synchronise().unwrap();
    guest
}

fn try_reconnect(guest: Guest, to: &Victim, config: &GuestConfig, bases: &[u32]) -> Result<Guest, PortError> {
    let Guest { front_end, pairs } = guest;
    drop(front_end);
    let mut front_end = FrontEnd::connect(&to.path, Default::default()).unwrap();
    front_end.negotiate(config.features, 1).unwrap();
    let ram = pairs[0].ram.clone();
    front_end.share(&ram).unwrap();
    Guest::start(front_end, config, &ram, pairs, bases)
}

/// When the guest offers frames that are left to the next switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Before,
    /// With the identifiers of those that were returned.
    Meanwhile,
}

/// The guest's frames have these lengths in turn. After every burst there is another switch.
#[track_caller]
fn check(end: End, more: More, lens: &[usize]) {
    let (_dir, mut cache, mut victim) = Victim::alone();
    victim.port.set_mtu(9000).unwrap();
    let config = config();
    let mut guest = Guest::connect(&victim.path, &config).unwrap();
    let ram = guest.pairs[0].ram.clone();
    let mut frames = (0u32..).zip(lens.iter().cycle()).map(|(n, len)| vec![n as u8; *len]).peekable();
    let mut offer = |guest: &mut Guest, count: usize, to: &mut Vec<Vec<u8>>| {
        while to.len() < count && guest.pairs[0].send(frames.peek().unwrap()) {
            to.extend(frames.next());
        }
    };
    let mut waiting = Vec::new();
    // Bursts that end at and around the ring's end, in rounds of either counter.
    for (round, burst) in (0..100).zip([30, 33, 1, 62, 1, 2, 63, 64, 3, 60, 64, 64, 5, 1].iter().cycle()) {
        guest.synchronise().unwrap();
        offer(&mut guest, *burst, &mut waiting);
        let burst = waiting.len();
        if more == More::Before {
            offer(&mut guest, burst + round % 23, &mut waiting);
        }
        let pair = &guest.pairs[0];
        let flags = [&pair.tx.ring, &pair.rx.ring].map(|ring| ring.descriptors + 16 * ring.next_used() + 14);
        let before = flags.map(|at| ram.u16(at).load(Relaxed));
        let mut batch = Batch::new();
        batch.extend((burst..BURST).map(|_| cache.alloc_frame(&[0; SHORT]).unwrap()));
        victim.rx[0].rx_burst(&mut cache, &mut batch);
        batch.drain(..BURST - burst).for_each(|packet| cache.free(packet));
        let expected: Vec<Vec<u8>> = waiting.drain(..burst).collect();
        let bytes: Vec<Vec<u8>> =
            batch.iter().map(|packet| packet.segments().flatten().copied().collect()).collect();
        assert!(bytes == expected, "{end:?}, round {round}: from the guest");
        victim.tx[0].tx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty());
        victim.tx[0].flush(&mut cache);
        if end == KilledInBurst && burst > 1 {
            flags.iter().zip(before).for_each(|(at, was)| ram.u16(*at).store(was, Relaxed));
        }
        let mut bases = vec![0x8000_8000; 2];
        if let Migrated | MigratedByHalf = end {
            bases = guest.stop(2).unwrap();
            assert!(bases.iter().all(|base| base >> 16 == base & 0xffff), "{bases:x?}: nothing is in flight");
        }
        if end == MigratedByHalf {
            bases.iter_mut().for_each(|base| *base &= 0xffff);
        }
        if more == More::Meanwhile {
            offer(&mut guest, round % 23, &mut waiting);
        }
        guest = reconnect(guest, &victim, &config, &bases);
        let mut came = Vec::new();
        guest.pairs[0].receive(SIZE, |frame| came.push(frame.to_vec()));
        assert!(came == expected, "{end:?}, round {round}: {} of {}", came.len(), expected.len());
    }
}

const MIXED: [usize; 6] = [SHORT, LONG, SHORT, SHORT, LONGER, LONG];

#[test]
fn a_packed_ring_goes_on_where_its_switch_was_killed() {
    for end in [Killed, KilledInBurst] {
        for len in [SHORT, TWO, LONG, LONGER] {
            check(end, More::Before, &[len]);
            check(end, More::Meanwhile, &[len]);
        }
        check(end, More::Before, &MIXED);
    }
}

#[test]
fn a_packed_ring_goes_on_where_the_front_end_says() {
    for end in [Migrated, MigratedByHalf] {
        for lens in [&[SHORT] as &[usize], &[TWO], &[LONG], &[LONGER], &MIXED] {
            check(end, More::Before, lens);
            check(end, More::Meanwhile, lens);
        }
    }
}

#[test]
fn what_another_switch_has_taken_and_not_returned_is_not_taken_again() {
    let (_dir, mut cache, mut victim) = Victim::alone();
    let mut guest = Guest::connect(&victim.path, &config()).unwrap();
    for n in 0..5 {
        assert!(guest.pairs[0].send(&[n; SHORT]));
    }
    let mut guest = reconnect(guest, &victim, &config(), &[0x8000_8000, 0x8000_8003]);
    let mut batch = Batch::new();
    victim.rx[0].rx_burst(&mut cache, &mut batch);
    assert!(batch.iter().map(|packet| packet.data()[0]).eq([3, 4]));
    cache.free_all(&mut batch);
    let pair = &mut guest.pairs[0];
    pair.reap();
    assert_eq!(pair.tx.ring.room(), SIZE - 3);
    assert_eq!(guest.stop(2).unwrap()[1], 0x8002_8005);
}

#[test]
fn a_place_beyond_the_ring_is_refused_in_both_halves_of_a_base() {
    // A place in the first round is 0x8000 and up; the others are as far from the ring's start, modulo two
    // rounds.
    for base in [0x8000_8042, 0x8002_8082, 0x8040_8002, 0xff80_8002, 0x7fc0_8002, 0x0040_8002] {
        let (_dir, mut cache, mut victim) = Victim::alone();
        let mut guest = Guest::connect(&victim.path, &config()).unwrap();
        for n in 0..3 {
            assert!(guest.pairs[0].send(&[n; SHORT]));
        }
        assert!(try_reconnect(guest, &victim, &config(), &[0x8000_8000, base]).is_err(), "{base:x}");
        wait_for("the reason", || victim.port.status().error.is_some_and(|e| e.contains("beyond its end")));
        let mut batch = Batch::new();
        victim.rx[0].rx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty(), "{base:x}");
    }
}
