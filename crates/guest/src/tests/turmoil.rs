//! A guest that changes everything at once (its rings, its buffers, what its monitor says of both) while a
//! worker receives from it and sends to it.
//!
//! Whatever comes of it costs its own port alone: nothing panics, no chunk is lost, and the next guest is
//! served.

use super::attacks::{Attacker, Victim};
use super::lending::pass_to_all;
use crate::memory::{GUEST_BASE, GuestRam};
use crate::{Guest, GuestConfig, RingLayout};
use packet::{Batch, LinkState, Pool, PoolConfig, Port};
use ports::vhost_user::features::device as d;
use ports::vhost_user::message::{Region, VringAddr, request};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use testkit::lab::wait_for;

const RING_SIZE: u16 = 64;
const CHUNKS: usize = 16_384;
/// Guests that come one after the other, and what the monitor of each says.
const GUESTS: u64 = 30;
const MESSAGES: u64 = 40;

/// Numbers that depend on a seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

/// Writes something that makes sense, while others use what was there, and seldom something that does not.
fn scribble(ram: &GuestRam, layout: RingLayout, rings: &[[usize; 3]; 2], random: &mut Random) {
    let to_guest = random.below(2);
    let [table, avail, used] = rings[to_guest as usize];
    let size = u64::from(RING_SIZE);
    if random.below(20_000) == 0 {
        match random.below(4) {
            0 => ram.u16(used + 2).store(random.below(1 << 16) as u16, Relaxed),
            1 => _ = ram.u16(avail + 2).fetch_add(random.below(90) as u16, Relaxed),
            2 => ram.u16(avail + 4 + 2 * random.below(size) as usize).store(random.below(70) as u16, Relaxed),
            _ => ram.u64(8 * random.below(ram.len() / 8) as usize).store(random.below(u64::MAX), Relaxed),
        }
        return;
    }
    let idx = random.below(size - 1);
    let at = table + 16 * idx as usize;
    // A buffer to write for the one ring, to read for the other; the next one is part of it now and then.
    let flags = (2 * to_guest as u16) | u16::from(random.below(4) == 0);
    ram.u64(at).store(GUEST_BASE + random.below(ram.len() - 4_000), Relaxed);
    // A buffer to write has room for a header at least.
    let len = [0, 12, 60, 64, 600, 2_000, 3_000][random.below(7) as usize];
    ram.u32(at + 8).store(len.max(12 * to_guest as u32), Relaxed);
    if layout == RingLayout::Packed {
        ram.u16(at + 12).store(idx as u16, Relaxed);
        ram.u16(at + 14).store(flags | [0x80, 0x8000][random.below(2) as usize], Relaxed);
        return;
    }
    ram.u16(at + 12).store(flags, Relaxed);
    ram.u16(at + 14).store(idx as u16 + 1, Relaxed);
    let waiting = ram.u16(avail + 2).load(Relaxed).wrapping_sub(ram.u16(used + 2).load(Relaxed));
    if waiting < RING_SIZE / 2 {
        ram.u16(avail + 4 + 2 * random.below(size) as usize).store(idx as u16, Relaxed);
        ram.u16(avail + 2).fetch_add(1, Relaxed);
    }
}

/// Has the monitor say something. False where the switch has had enough.
fn say(attacker: &mut Attacker<'_>, random: &mut Random) -> bool {
    let ram = attacker.ram.clone();
    let places = [attacker.rx, attacker.tx];
    let front_end = &mut attacker.guest.front_end;
    let ring = random.below(4) as u32;
    let whole = Region { guest: GUEST_BASE, len: ram.len(), user: ram.user(0), offset: 0 };
    let table = |regions: &[Region]| -> Vec<u8> {
        let count = (regions.len() as u64).to_le_bytes();
        count.into_iter().chain(regions.iter().flat_map(Region::encode)).collect()
    };
    let fd = ram.fd().as_fd();
    let said = match random.below(40) {
        0 => front_end.say(request::SET_MEM_TABLE, &table(&[whole]), &[fd]),
        1 => {
            let half = Region { len: ram.len() / 2, ..whole };
            let at = half.len;
            let rest = Region { guest: GUEST_BASE + at, user: ram.user(at as usize), offset: at, ..half };
            front_end.say(request::SET_MEM_TABLE, &table(&[half, rest]), &[fd, fd])
        }
        2 => front_end.say(request::ADD_MEM_REG, &table(&[whole]), &[fd]),
        3 => {
            let other = Region { guest: 1 << 50, user: 1 << 51, ..whole };
            front_end.say(request::ADD_MEM_REG, &table(&[other]), &[fd])
        }
        4 => front_end.say(request::REM_MEM_REG, &table(&[Region { guest: 1 << 50, ..whole }]), &[]),
        5 => front_end.stop_ring(ring).map(|_| ()),
        6 => front_end.say(request::SET_VRING_KICK, &(u64::from(ring) | 0x100).to_le_bytes(), &[]),
        7 => front_end.say_state(request::SET_VRING_NUM, ring, 1 << random.below(8)),
        8 => {
            let at = |n: u64| ram.user(16 * n as usize);
            let [desc, used, avail] = [random.below(600), random.below(600), random.below(600)].map(at);
            let addr = VringAddr { index: ring, is_logged: false, desc, used, avail, log: 0 };
            front_end.say(request::SET_VRING_ADDR, &addr.encode(), &[])
        }
        9 => front_end.say_state(request::SET_VRING_BASE, ring, random.below(200) as u32),
        10 | 11 => front_end.say_state(request::SET_VRING_ENABLE, ring, random.below(2) as u32),
        12 => {
            let own = d::VERSION_1 | d::PROTOCOL_FEATURES;
            let others =
                [d::MRG_RXBUF, d::EVENT_IDX, d::RING_PACKED, d::GUEST_CSUM | d::GUEST_TSO4, d::LOG_ALL];
            let chosen = others.iter().filter(|_| random.below(2) == 0).fold(own, |all, one| all | one);
            front_end.say(request::SET_FEATURES, &chosen.to_le_bytes(), &[])
        }
        13 => front_end.say(request::SET_VRING_CALL, &(u64::from(ring) | 0x100).to_le_bytes(), &[]),
        14 => front_end.say(request::SET_LOG_BASE, &[[0, 0, 1, 0, 0, 0, 0, 0], [0; 8]].concat(), &[fd]),
        15 => front_end.reset_status(),
        // As it should be.
        _ => {
            let ring = ring & 1;
            let [desc, avail, used] = places[ring as usize].map(|at| ram.user(at));
            let addr = VringAddr { index: ring, is_logged: false, desc, used, avail, log: 0 };
            let told = front_end.say_state(request::SET_VRING_NUM, ring, RING_SIZE.into());
            let told = told.and_then(|()| front_end.say(request::SET_VRING_ADDR, &addr.encode(), &[]));
            let kick = (u64::from(ring) | 0x100).to_le_bytes();
            let told = told.and_then(|()| front_end.say(request::SET_VRING_KICK, &kick, &[]));
            told.and_then(|()| front_end.say_state(request::SET_VRING_ENABLE, ring, 1))
        }
    };
    said.is_ok()
}

#[test]
fn a_guest_that_changes_everything_at_once_costs_its_own_port_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { chunks: CHUNKS, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let (mut victim, mut other) = (Victim::new(dir.path(), "victim"), Victim::new(dir.path(), "other"));
    let path = victim.path.clone();
    let config = |layout| GuestConfig {
        layout,
        ring_size: RING_SIZE,
        features: d::MRG_RXBUF | d::INDIRECT_DESC | d::LOG_ALL | d::EVENT_IDX,
        ..GuestConfig::default()
    };
    let mut honest = Guest::connect(&other.path, &config(RingLayout::Split)).unwrap();
    honest.synchronise().unwrap();
    let mut honest_pair = honest.take_pairs().remove(0);
    let (is_over, said) = (&AtomicBool::new(false), &mut 0u64);
    let received = std::thread::scope(|scope| {
        // What a worker does: all that comes from the one goes to the other, and back.
        let worker = scope.spawn(|| {
            let (mut cache, mut received) = (pool.cache(), 0);
            let mut ways = [other.tx.remove(0), victim.tx.remove(0)];
            while !is_over.load(Relaxed) {
                pass_to_all(&mut cache, &mut victim.rx[0], &mut ways, &mut || ());
                received += honest_pair.discard(64);
                let mut batch = Batch::from_iter([cache.alloc_frame(&[0x55; 1_000]).unwrap()]);
                ways[1].tx_burst(&mut cache, &mut batch);
                cache.free_all(&mut batch);
                ways[1].flush(&mut cache);
                victim.rx[0].arm();
                victim.rx[0].disarm();
            }
            received
        });
        for n in 0..GUESTS {
            let layout = if n % 2 == 0 { RingLayout::Split } else { RingLayout::Packed };
            let mut guest = Guest::connect(&path, &config(layout)).unwrap();
            if guest.synchronise().is_err() {
                continue;
            }
            let mut attacker = Attacker::new(&mut guest, RING_SIZE);
            let (ram, rings, is_gone) =
                (attacker.ram.clone(), [attacker.tx, attacker.rx], AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut random = Random(n);
                    while !is_gone.load(Relaxed) {
                        scribble(&ram, layout, &rings, &mut random);
                    }
                });
                let mut random = Random(n + GUESTS);
                *said += (0..MESSAGES).take_while(|_| say(&mut attacker, &mut random)).count() as u64;
                is_gone.store(true, Relaxed);
            });
        }
        is_over.store(true, Relaxed);
        worker.join().unwrap()
    });
    assert!(received > 20 && *said > GUESTS, "{received} frames, {said} messages");
    wait_for("the last one to be gone", || victim.port.status().link == LinkState::Down);
    // The next guest is served.
    let mut cache = pool.cache();
    let mut next = Guest::connect(&path, &config(RingLayout::Split)).unwrap();
    next.synchronise().unwrap();
    let mut pair = next.take_pairs().remove(0);
    assert!(pair.send(&[0x66; 60]));
    let mut batch = Batch::new();
    wait_for("its frame", || {
        victim.rx[0].rx_burst(&mut cache, &mut batch);
        !batch.is_empty()
    });
    assert_eq!(batch[0].data(), [0x66; 60]);
    cache.free_all(&mut batch);
    drop((victim.rx, other.rx, cache));
    assert_eq!(pool.stats().free, CHUNKS);
}
