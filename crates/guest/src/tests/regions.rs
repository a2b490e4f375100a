//! Memory that comes and goes while the rings work, as QEMU changes it with CONFIGURE_MEM_SLOTS: what grows
//! is removed first, and then added.

use super::attacks::{Attacker, Victim, WRITE};
use crate::memory::{GUEST_BASE, GuestRam};
use crate::{Guest, GuestConfig, RingLayout};
use packet::{Batch, LinkState, Port};
use ports::vhost_user::message::{Region, request};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::lab::wait_for;

const LAYOUTS: [RingLayout; 2] = [RingLayout::Split, RingLayout::Packed];
const RING_SIZE: u16 = 64;
/// AVAIL of a packed ring, in its first round.
const AVAIL: u16 = 1 << 7;
/// Where the second region is.
const MORE: u64 = 1 << 40;
const HEADER_LEN: usize = 12;

fn change(guest: &mut Guest, request: u32, ram: &GuestRam, at: u64) {
    let region = Region { guest: at, len: ram.len(), user: ram.user(0), offset: 0 };
    let payload = [[0; 8].to_vec(), region.encode().to_vec()].concat();
    let fds = [ram.fd().as_fd()];
    let fds = if request == request::ADD_MEM_REG { &fds[..] } else { &[] };
    guest.front_end.say(request, &payload, fds).unwrap();
    guest.synchronise().unwrap();
}

fn waits(port: &Victim) -> bool {
    port.port.status().error.is_some_and(|why| why.contains("waits for memory that was removed"))
}

#[test]
fn buffers_in_a_region_that_is_removed_and_added_again_wait_for_it() {
    for layout in LAYOUTS {
        let (_dir, mut cache, mut port) = Victim::alone();
        let config = GuestConfig { layout, ring_size: RING_SIZE, ..GuestConfig::default() };
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        let (ram, more) = (guest.pairs[0].ram.clone(), GuestRam::new(1 << 20).unwrap());
        change(&mut guest, request::ADD_MEM_REG, &more, MORE);
        // The second buffer of the receive ring, and the first one of the other.
        let attacker = Attacker::new(&mut guest, RING_SIZE);
        let words = |id, flags| match layout {
            RingLayout::Split => [flags, 0],
            RingLayout::Packed => [id, flags | AVAIL],
        };
        attacker.descriptor(attacker.rx[0], 1, MORE, 2048, words(1, WRITE));
        more.buffer_mut(4096, HEADER_LEN + 60).fill(0);
        more.buffer_mut(4096 + HEADER_LEN, 60).fill(0x66);
        attacker.descriptor(attacker.tx[0], 0, MORE + 4096, 12 + 60, words(0, 0));
        if layout == RingLayout::Split {
            attacker.avail(attacker.tx, 0);
        }
        change(&mut guest, request::REM_MEM_REG, &more, MORE);
        change(&mut guest, request::REM_MEM_REG, &ram, GUEST_BASE);
        assert_eq!(port.port.status().link, LinkState::Down, "{layout:?}");
        change(&mut guest, request::ADD_MEM_REG, &ram, GUEST_BASE);
        assert_eq!((port.port.status().link, port.port.status().error), (LinkState::Up, None), "{layout:?}");

        let mut sent = Batch::from_iter([0x11, 0x22].map(|byte| cache.alloc_frame(&[byte; 60]).unwrap()));
        port.tx[0].tx_burst(&mut cache, &mut sent);
        assert_eq!(sent.len(), 1, "{layout:?}: the first buffer is there");
        let mut received = Batch::new();
        port.rx[0].rx_burst(&mut cache, &mut received);
        assert_eq!(received.len(), 0, "{layout:?}");
        wait_for("its rings to rest", || waits(&port) && port.port.status().link == LinkState::Down);

        change(&mut guest, request::ADD_MEM_REG, &more, MORE);
        assert_eq!((port.port.status().link, port.port.status().error), (LinkState::Up, None), "{layout:?}");
        port.tx[0].tx_burst(&mut cache, &mut sent);
        assert_eq!((sent.len(), more.buffer(HEADER_LEN, 60)), (0, &[0x22; 60][..]), "{layout:?}");
        port.rx[0].rx_burst(&mut cache, &mut received);
        assert_eq!((received.len(), received[0].data()), (1, &[0x66; 60][..]), "{layout:?}");
        cache.free_all(&mut received);
        let stats = port.port.stats();
        assert_eq!((stats.tx_packets, stats.tx_dropped, stats.rx_packets), (2, 0, 1), "{layout:?}");
        assert!(guest.is_connected());
    }
}

#[test]
fn rings_in_a_region_that_is_removed_and_added_again_go_on_where_they_were() {
    for layout in LAYOUTS {
        let (_dir, mut cache, mut port) = Victim::alone();
        let config = GuestConfig { layout, ring_size: RING_SIZE, ..GuestConfig::default() };
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        guest.synchronise().unwrap();
        let mut pair = guest.take_pairs().remove(0);
        let ram = pair.ram.clone();
        let mut batch = Batch::new();
        for n in 0..2 * RING_SIZE as u8 {
            assert!(pair.send(&[n; 60]));
            if n % 7 == 0 {
                change(&mut guest, request::REM_MEM_REG, &ram, GUEST_BASE);
                port.rx[0].rx_burst(&mut cache, &mut batch);
                assert!(batch.is_empty() && waits(&port), "{layout:?}");
                change(&mut guest, request::ADD_MEM_REG, &ram, GUEST_BASE);
            }
            port.rx[0].rx_burst(&mut cache, &mut batch);
            assert_eq!((batch.len(), port.port.status().error), (1, None), "{layout:?}");
            port.tx[0].tx_burst(&mut cache, &mut batch);
            assert!(batch.is_empty());
            let mut seen = 0;
            pair.receive(2, |frame| {
                assert_eq!(frame, [n; 60], "{layout:?}");
                seen += 1;
            });
            assert_eq!(seen, 1, "{layout:?}");
        }
        assert!(guest.is_connected());
    }
}

#[test]
fn a_worker_that_meets_missing_memory_breaks_off_no_message() {
    for _ in 0..20 {
        let (_dir, mut cache, mut port) = Victim::alone();
        let config =
            GuestConfig { layout: RingLayout::Split, ring_size: RING_SIZE, ..GuestConfig::default() };
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        let more = GuestRam::new(1 << 20).unwrap();
        change(&mut guest, request::ADD_MEM_REG, &more, MORE);
        let attacker = Attacker::new(&mut guest, RING_SIZE);
        attacker.descriptor(attacker.tx[0], 0, MORE + 4096, 12 + 60, [0, 0]);
        (0..30).for_each(|_| attacker.avail(attacker.tx, 0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (rx, is_over) = (&mut port.rx[0], &is_over);
            let cache = &mut cache;
            scope.spawn(move || {
                let mut batch = Batch::new();
                while !is_over.load(Ordering::Relaxed) {
                    rx.rx_burst(cache, &mut batch);
                    cache.free_all(&mut batch);
                }
            });
            let region = Region { guest: MORE, len: more.len(), user: more.user(0), offset: 0 };
            let payload = [[0; 8].to_vec(), region.encode().to_vec()].concat();
            let mut said = attacker.guest.front_end.say(request::REM_MEM_REG, &payload, &[]).is_ok();
            for _ in 0..20 {
                attacker.avail(attacker.tx, 0);
                said &= attacker.guest.synchronise().is_ok();
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(said, "{:?}", port.port.status().error);
        });
    }
}
