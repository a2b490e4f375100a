//! Frames, rings and queues of `dpdkvhostuser` against the built-in guest, through the traits that workers
//! use.

use crate::rig::{LAYOUTS, Rig, frame, rig, rig_with, told};
use base::PortNo;
use guest::{Guest, GuestConfig, RingLayout};
use packet::{BURST, Batch, LinkState, PacketFlags, Port, RxOutcome};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use ports::vhost_user::features::device as d;
use std::time::Duration;
use testkit::lab::wait_for;
#[test]
fn frames_of_every_size_cross_whole_and_in_order_in_both_layouts_and_directions() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ring_size: 64, ..GuestConfig::default() });
        rig.port.set_mtu(9000).unwrap();
        let mut by_size = [0; 8];
        // Odd counts, so that positions and wrap counters meet in every way.
        for round in 0..700u32 {
            let sizes = [60, 61, 1518, 64, 2036, 2037, 9000, 128];
            let wanted: Vec<Vec<u8>> =
                (0..1 + round % 5).map(|n| frame(round * 8 + n, sizes[((round + n) % 8) as usize])).collect();
            for frame in &wanted {
                let ends = [63, 64, 127, 255, 511, 1023, 1518];
                by_size[ends.iter().filter(|end| frame.len() > **end).count()] += 1;
            }
            assert_eq!(rig.send(&wanted), wanted.len(), "{layout:?}, round {round}");
            assert_eq!(rig.guest_receives(0), wanted, "{layout:?} to the guest, round {round}");
            for frame in &wanted {
                assert!(rig.pairs[0].send(frame));
            }
            assert_eq!(rig.receive(0), wanted, "{layout:?} from the guest, round {round}");
        }
        let stats = rig.port.stats();
        assert_eq!((stats.rx_packets, stats.tx_packets), (stats.tx_packets, rig.pairs[0].stats().rx_packets));
        assert_eq!((stats.rx_errors, stats.tx_dropped), (0, 0));
        let counts = rig.port.queue_counts();
        assert_eq!(counts.len(), 1, "one pair");
        for (counted, bytes) in [(counts[0].rx, stats.rx_bytes), (counts[0].tx, stats.tx_bytes)] {
            assert_eq!((counted.packets, counted.bytes), (stats.rx_packets, bytes));
            assert_eq!(counted.sizes, by_size, "{layout:?}");
        }
        rig.assert_no_chunk_is_lost();
    }
}

#[test]
fn a_guest_that_loops_back_returns_every_frame() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ..GuestConfig::default() });
        let mut returned = 0;
        for round in 0..500u32 {
            let frames: Vec<_> = (0..32).map(|n| frame(round * 32 + n, 60)).collect();
            assert_eq!(rig.send(&frames), 32);
            assert_eq!(rig.pairs[0].loop_back(32), 32);
            assert_eq!(rig.receive(0), frames);
            returned += 32;
        }
        assert_eq!(rig.port.stats().rx_packets, returned);
        rig.assert_no_chunk_is_lost();
    }
}

/// A header that a buffer has already is not written again.
#[test]
fn every_frame_has_its_own_header_whatever_its_buffer_had_before() {
    for layout in LAYOUTS {
        let features = d::MRG_RXBUF | d::GUEST_CSUM;
        let mut rig = rig(&GuestConfig { layout, features, ring_size: 64, ..GuestConfig::default() });
        let mut seen = [0; 2];
        for round in 0..600u32 {
            // Long the same, then any mixture; and of what the guest sends, the headers have no buffers.
            let is_vouched = |n: u32| round % 200 > 100 && (round * 7 + n * n).is_multiple_of(5);
            if round % 200 > 150 {
                assert!(rig.pairs[0].send(&frame(round, 60)));
                assert_eq!(rig.receive(0).len(), 1);
            }
            let mut batch = Batch::new();
            for n in 0..32 {
                let mut packet = rig.cache.alloc_frame(&frame(n, 60)).unwrap();
                if is_vouched(n) {
                    packet.flags.set(PacketFlags::CSUM_VALID);
                }
                batch.push(packet);
            }
            rig.tx[0].tx_burst(&mut rig.cache, &mut batch);
            rig.tx[0].flush(&mut rig.cache);
            let mut n = 0;
            rig.pairs[0].receive_with_headers(32, |header, received| {
                let mut wanted = [0; 12];
                (wanted[0], wanted[10]) = (2 * u8::from(is_vouched(n)), 1);
                assert_eq!((header, received), (&wanted[..], &frame(n, 60)[..]), "{layout:?}, {round}");
                seen[usize::from(is_vouched(n))] += 1;
                n += 1;
            });
            assert_eq!(n, 32);
        }
        assert!(seen[0] > 15_000 && seen[1] > 1_000, "{seen:?}");
    }
}

#[test]
fn what_a_full_ring_does_not_take_stays_with_the_sender() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ring_size: 64, ..GuestConfig::default() });
        let frames: Vec<_> = (0..32).map(|n| frame(n, 60)).collect();
        assert_eq!((rig.send(&frames), rig.send(&frames), rig.send(&frames)), (32, 32, 0));
        assert_eq!(rig.guest_receives(0).len(), 64);
        assert_eq!(rig.send(&frames), 32);
    }
}

#[test]
fn a_burst_all_of_whose_frames_are_refused_is_told_from_none() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ..GuestConfig::default() });
        let mut batch = Batch::new();
        assert_eq!(rig.rx[0].rx_begin(&mut rig.cache, &mut batch), RxOutcome::Ok, "nothing has come");
        // A frame of no bytes, and one with a header that contradicts it.
        let mut header = [0; 12];
        (header[0], header[6]) = (1, 255);
        assert!(rig.pairs[0].send(&[]) && rig.pairs[0].send_with_header(&header, &frame(0, 60)));
        assert_eq!(rig.rx[0].rx_begin(&mut rig.cache, &mut batch), RxOutcome::Refused, "{layout:?}");
        assert_eq!((batch.len(), rig.port.stats().rx_errors), (0, 2), "{layout:?}");
        assert_eq!(rig.rx[0].rx_begin(&mut rig.cache, &mut batch), RxOutcome::Ok, "they are done with");
        assert!(rig.pairs[0].send(&[]) && rig.pairs[0].send(&frame(1, 60)));
        assert_eq!(rig.rx[0].rx_begin(&mut rig.cache, &mut batch), RxOutcome::Ok);
        assert_eq!(batch.len(), 1, "{layout:?}");
        rig.rx[0].rx_end();
        rig.cache.free_all(&mut batch);
    }
}

#[test]
fn a_guest_vouches_for_no_checksum() {
    let mut rig = rig(&GuestConfig::default());
    let mut header = [0; 12];
    header[0] = 2; // VIRTIO_NET_HDR_F_DATA_VALID
    assert!(rig.pairs[0].send_with_header(&header, &frame(0, 60)));
    let mut batch = Batch::new();
    rig.rx[0].rx_burst(&mut rig.cache, &mut batch);
    assert!(batch.len() == 1 && batch[0].flags.is_empty());
    rig.cache.free_all(&mut batch);
}

/// A rule that matches an address holds for what is delivered: a guest that has the checksum written over one
/// chooses the rest of its frame such that the sum is another address.
#[test]
fn what_rules_see_of_a_packet_is_what_is_delivered_wherever_the_guest_has_its_checksum_written() {
    for (len, layout) in [60, 400, 1000, 3000].into_iter().zip(LAYOUTS.into_iter().cycle()) {
        for features in [d::MRG_RXBUF, d::MRG_RXBUF | d::GUEST_CSUM] {
            let mut rig = rig(&GuestConfig { layout, features, ..GuestConfig::default() });
            rig.port.set_mtu(9000).unwrap();
            let mut bytes = frame(7, len);
            bytes[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
            bytes[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
            bytes[20..24].copy_from_slice(&[0, 0, 64, 17]);
            for (start, offset) in [(0, 26u8), (0, 6), (14, 12), (30, 0), (34, 0), (34, 2)] {
                let mut header = [0; 12];
                (header[0], header[6], header[8]) = (1, start, offset);
                assert!(rig.pairs[0].send_with_header(&header, &bytes));
                let mut batch = Batch::new();
                rig.rx[0].rx_burst(&mut rig.cache, &mut batch);
                let seen = batch[0].data()[..42].to_vec();
                rig.tx[0].tx_burst(&mut rig.cache, &mut batch);
                rig.tx[0].flush(&mut rig.cache);
                let mut received = Vec::new();
                rig.pairs[0].receive_with_headers(8, |header, frame| {
                    received.push((header[0], frame[..42].to_vec()));
                });
                assert_eq!(received, [(0, seen)], "{len}, {start}, {offset}");
            }
        }
    }
}

/// As Open vSwitch does and counts it: a guest that has just taken some may make room for the rest, one that
/// took none is left.
#[test]
fn a_ring_that_took_some_of_a_burst_is_looked_at_again_and_one_that_took_none_is_not() {
    let config = GuestConfig { ring_size: 64, ..GuestConfig::default() };
    let frames: Vec<_> = (0..32).map(|n| frame(n, 60)).collect();
    for (options, retries) in
        [(&[][..], 1), (&[("tx-retries-max", "0")], 0), (&[("tx-retries-max", "32")], 1)]
    {
        let mut rig = rig_with(&config, options);
        assert_eq!((rig.send(&frames), rig.send(&frames[..16])), (32, 16));
        assert_eq!(rig.port.stats().tx_retries, 0, "there was room");
        assert_eq!(rig.send(&frames), 16);
        assert_eq!(rig.port.stats().tx_retries, retries, "{options:?}");
        assert_eq!(rig.send(&frames), 0);
        assert_eq!(rig.port.stats().tx_retries, retries, "{options:?}");
    }
}

#[test]
fn a_frame_that_no_buffer_holds_is_dropped_and_counted() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, features: 0, ..GuestConfig::default() });
        rig.port.set_mtu(9000).unwrap();
        assert_eq!(rig.send(&[frame(0, 3000), frame(1, 60)]), 2);
        assert_eq!(rig.guest_receives(0), [frame(1, 60)]);
        assert_eq!(rig.port.stats().tx_dropped, 1);
        rig.port.set_mtu(1500).unwrap();
        assert_eq!(rig.send(&[frame(0, 1600)]), 1);
        assert_eq!(rig.port.stats().tx_mtu_drops, 1);
        rig.assert_no_chunk_is_lost();
    }
}

#[test]
fn a_sleeping_side_is_woken_and_a_polling_one_is_left_alone() {
    let readable = |fd| {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        #[allow(unsafe_code)]
        unsafe {
            libc::poll(&raw mut poll, 1, 0) == 1
        }
    };
    for (layout, features) in [
        (RingLayout::Split, 0),
        (RingLayout::Split, d::EVENT_IDX),
        (RingLayout::Packed, 0),
        (RingLayout::Packed, d::EVENT_IDX),
    ] {
        let mut rig = rig(&GuestConfig { layout, features, ..GuestConfig::default() });
        let fd = rig.rx[0].wait_fd().unwrap();
        assert!(rig.rx[0].arm());
        for n in 0..300 {
            assert!(!readable(fd), "{layout:?} {features:#x} {n}: nothing has come yet");
            assert!(rig.pairs[0].send(&frame(n, 60)));
            assert!(readable(fd), "{layout:?} {features:#x} {n}: the sleeper is woken");
            rig.rx[0].disarm();
            assert_eq!(rig.receive(0).len(), 1);
            // While it polls, nobody wakes it.
            assert!(rig.pairs[0].send(&frame(n, 60)));
            assert_eq!(rig.receive(0).len(), 1);
            assert!(rig.pairs[0].send(&frame(n, 60)));
            assert!(!rig.rx[0].arm(), "what waits already is said");
            rig.rx[0].disarm();
            assert_eq!(rig.receive(0).len(), 1);
            assert!(rig.rx[0].arm());
        }
        let mut pair = rig.pairs.remove(0);
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(packet::thread::id()).unwrap();
            pair.wait(Duration::from_secs(10))
        });
        let thread = told.recv().unwrap();
        let stat = format!("/proc/self/task/{thread}/stat");
        wait_for("the guest sleeps", || std::fs::read_to_string(&stat).unwrap().contains(") S "));
        assert_eq!(rig.send(&[frame(0, 60)]), 1);
        assert!(sleeper.join().unwrap(), "{layout:?} {features:#x}: the guest is woken");
    }
}

#[test]
fn a_polling_switch_is_never_notified_and_a_sleeping_one_misses_nothing() {
    const FRAMES: u64 = 20_000;
    for (layout, features) in
        [(RingLayout::Split, 0), (RingLayout::Split, d::EVENT_IDX), (RingLayout::Packed, 0)]
    {
        let mut rig = rig(&GuestConfig { layout, features, ..GuestConfig::default() });
        rig.rx[0].disarm();
        // Both sides notify once when they find each other.
        assert!(rig.pairs[0].send(&frame(0, 60)));
        assert_eq!(rig.receive(0).len(), 1);
        let kicks_before = rig.pairs[0].stats().kicks;
        // Over the end of the ring, but not of its indices: there an event index that was left behind asks
        // once for nothing.
        for n in 0..1_000 {
            assert!(rig.pairs[0].send(&frame(n, 60)));
            assert_eq!(rig.receive(0).len(), 1);
        }
        assert_eq!(rig.pairs[0].stats().kicks, kicks_before, "{layout:?} {features:#x}: nobody asked");
        // A guest that sends now and then, and a worker that sleeps whenever nothing waits: were a
        // notification lost between its last look and its sleep, it would sleep on.
        let mut pair = rig.pairs.remove(0);
        let guest = std::thread::spawn(move || {
            let mut sent = 0;
            while sent < FRAMES {
                sent += u64::from(pair.send(&frame(sent as u32, 60)));
                for _ in 0..sent * 7 % 300 {
                    std::hint::spin_loop();
                }
            }
            pair.stats().kicks
        });
        let fd = rig.rx[0].wait_fd().unwrap();
        let (mut received, mut sleeps) = (0, 0);
        while received < FRAMES {
            let came = rig.receive(0).len() as u64;
            received += came;
            if came == 0 && rig.rx[0].arm() {
                sleeps += 1;
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry, which outlives the call.
                #[allow(unsafe_code)]
                let woken = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
                assert_eq!(woken, 1, "{layout:?} {features:#x}: asleep after {received} of {FRAMES} frames");
            }
            if came == 0 {
                rig.rx[0].disarm();
            }
        }
        let kicks = guest.join().unwrap();
        println!("{layout:?} {features:#x}: {sleeps} sleeps, {kicks} notifications");
        assert!(kicks > kicks_before && sleeps > 0);
    }
}

#[test]
fn a_ring_says_whether_it_has_room_for_a_burst() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ring_size: 64, ..GuestConfig::default() });
        for round in 0..100 {
            assert!(rig.tx[0].has_room(32), "{layout:?} {round}: 64 buffers wait");
            assert_eq!(rig.send(&vec![frame(1, 60); 32]), 32);
            assert!(rig.tx[0].has_room(32), "{layout:?} {round}: 32 buffers wait");
            assert_eq!(rig.send(&[frame(1, 60)]), 1);
            assert!(!rig.tx[0].has_room(32), "{layout:?} {round}: 31 buffers wait");
            assert_eq!(rig.guest_receives(0).len(), 33);
        }
        // Where nobody is, packets are dropped at once, and need not wait.
        rig.pairs.clear();
        rig.guest = None;
        let (port, tx) = (&rig.port, &mut rig.tx);
        wait_for("the link goes down", || port.status().link == LinkState::Down);
        assert!(tx[0].has_room(32));
    }
}

#[test]
fn queue_pairs_appear_as_the_guest_uses_them_and_can_be_switched_off() {
    let mut rig = rig(&GuestConfig { pairs: 4, ..GuestConfig::default() });
    rig.rx.extend(rig.port.take_rx_queues());
    assert_eq!(rig.rx.len(), 4);
    for pair in 0..4 {
        assert!(rig.pairs[pair].send(&frame(pair as u32, 60)));
        assert_eq!(rig.receive(pair), [frame(pair as u32, 60)]);
    }
    // Four workers send to four rings, each to its own.
    rig.tx.extend(rig.port.take_tx_queues(3));
    for worker in 0..4 {
        let mut batch = Batch::new();
        batch.push(rig.cache.alloc_frame(&frame(worker as u32, 60)).unwrap());
        rig.tx[worker].tx_burst(&mut rig.cache, &mut batch);
        assert!(batch.is_empty());
        assert_eq!(rig.guest_receives(worker), [frame(worker as u32, 60)]);
    }
    let packets = |rig: &Rig| {
        let counts = rig.port.queue_counts();
        counts.iter().map(|pair| (pair.rx.packets, pair.tx.packets)).collect::<Vec<_>>()
    };
    assert_eq!(packets(&rig), [(1, 1); 4]);
    for pair in 1..4 {
        rig.guest.as_mut().unwrap().enable_pair(pair, false).unwrap();
    }
    rig.guest.as_mut().unwrap().synchronise().unwrap();
    assert!(rig.pairs[1].send(&frame(9, 60)));
    assert_eq!(rig.receive(1), Vec::<Vec<u8>>::new());
    for worker in 0..4 {
        let mut batch = Batch::new();
        batch.push(rig.cache.alloc_frame(&frame(9, 60)).unwrap());
        rig.tx[worker].tx_burst(&mut rig.cache, &mut batch);
        assert!(batch.is_empty());
    }
    assert_eq!(rig.guest_receives(0).len(), 4, "all workers send to the one ring that is left");
    assert_eq!(packets(&rig), [(1, 5), (1, 1), (1, 1), (1, 1)], "by the ring, not by the worker");
    rig.guest.as_mut().unwrap().enable_pair(1, true).unwrap();
    rig.guest.as_mut().unwrap().synchronise().unwrap();
    assert_eq!(rig.receive(1), Vec::<Vec<u8>>::new(), "what waited is discarded");
}

#[test]
fn one_worker_spreads_flows_over_the_rings_that_the_guest_has_enabled() {
    let mut rig = rig_with(&GuestConfig { pairs: 2, ..GuestConfig::default() }, &[("tx-steering", "hash")]);
    let flows: Vec<_> = (0..32).map(|flow| ports::null::udp_frame(60, flow)).collect();
    assert_eq!(rig.send(&flows), 32);
    let got = [rig.guest_receives(0), rig.guest_receives(1)];
    assert!(got[0].len() > 4 && got[1].len() > 4 && got[0].len() + got[1].len() == 32, "{got:?}");
    rig.guest.as_mut().unwrap().enable_pair(1, false).unwrap();
    rig.guest.as_mut().unwrap().synchronise().unwrap();
    assert_eq!(rig.send(&flows), 32);
    assert_eq!(rig.guest_receives(0), flows);
    rig.assert_no_chunk_is_lost();
}

#[test]
fn a_disabled_queue_is_told_as_such_and_those_of_a_guest_that_is_gone_are_given_up() {
    let mut rig = rig(&GuestConfig { pairs: 4, ring_size: 64, ..GuestConfig::default() });
    rig.rx.extend(rig.port.take_rx_queues());
    let enabled = |port: &VhostUserPort| (0..4).map(|pair| port.is_rx_enabled(pair)).collect::<Vec<_>>();
    assert_eq!(enabled(&rig.port), [true; 4]);
    let guest = rig.guest.as_mut().unwrap();
    guest.enable_pair(2, false).unwrap();
    guest.enable_pair(3, false).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(enabled(&rig.port), [true, true, false, false]);
    assert_eq!(rig.port.give_up_rx_queues(), 0, "the guest may enable them again");
    // Rings keep their place and size while they are disabled.
    assert_eq!(told(&rig.port, "num_of_vrings").as_deref(), Some("8"));
    assert_eq!(told(&rig.port, "vring_7_size").as_deref(), Some("64"));
    rig.pairs.clear();
    rig.guest = None;
    let mut given_up = 0;
    wait_for("queues are given up", || {
        given_up += rig.port.give_up_rx_queues();
        given_up > 0
    });
    assert_eq!(given_up, 3);
    rig.rx.truncate(1);
    assert_eq!(enabled(&rig.port), [false; 4]);
    let mut guest = Guest::connect(&rig.path, &GuestConfig { pairs: 2, ..GuestConfig::default() }).unwrap();
    guest.synchronise().unwrap();
    rig.rx.extend(rig.port.take_rx_queues());
    assert_eq!(rig.rx.len(), 2);
    assert_eq!(told(&rig.port, "num_of_vrings").as_deref(), Some("4"));
    rig.pairs = guest.take_pairs();
    assert!(rig.pairs[1].send(&frame(1, 60)));
    assert_eq!(rig.receive(1), [frame(1, 60)]);
}

#[test]
fn an_announcement_comes_in_as_a_reverse_arp() {
    let mut rig = rig(&GuestConfig::default());
    let mac = [2, 0, 0, 0, 0, 9];
    rig.guest.as_mut().unwrap().announce(mac).unwrap();
    let frames = rig.receive(0);
    assert_eq!(frames.len(), 1);
    assert_eq!(
        (&frames[0][..6], &frames[0][6..12], &frames[0][12..14]),
        (&[0xff; 6][..], &mac[..], &[0x80, 0x35][..])
    );
    // There is an end to how many wait, which the guest's monitor is told.
    for _ in 0..64 {
        rig.guest.as_mut().unwrap().announce(mac).unwrap();
    }
    let refusal = rig.guest.as_mut().unwrap().announce(mac).unwrap_err();
    assert!(refusal.to_string().contains("refused"), "{refusal}");
    assert_eq!((rig.receive(0).len(), rig.receive(0).len()), (BURST, 64 - BURST));
    // One that finds no memory is counted.
    rig.guest.as_mut().unwrap().announce(mac).unwrap();
    let mut all: Vec<_> = std::iter::from_fn(|| rig.cache.alloc()).collect();
    assert_eq!(rig.receive(0).len(), 0);
    assert_eq!(rig.port.stats().rx_dropped, 1);
    all.drain(..).for_each(|packet| rig.cache.free(packet));
    assert_eq!(rig.receive(0).len(), 0);
}

#[test]
fn a_guest_that_is_paused_learns_where_its_rings_stopped() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ..GuestConfig::default() });
        let frames: Vec<_> = (0..5).map(|n| frame(n, 60)).collect();
        assert!(frames[..3].iter().all(|frame| rig.pairs[0].send(frame)));
        assert_eq!(rig.receive(0).len(), 3);
        assert_eq!(rig.send(&frames), 5);
        let bases = if layout == RingLayout::Packed { [0x8005_8005, 0x8003_8003] } else { [5, 3] };
        assert_eq!(rig.guest.as_mut().unwrap().stop(2).unwrap(), bases);
        assert_eq!(rig.port.status().link, LinkState::Down);
    }
}

#[test]
fn a_guest_knows_whether_the_switch_has_taken_what_it_sent() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, ..GuestConfig::default() });
        assert!(!rig.pairs[0].is_sending());
        for n in 0..BURST as u32 + 8 {
            assert!(rig.pairs[0].send(&frame(n, 60)));
        }
        assert!(rig.pairs[0].is_sending());
        assert_eq!(rig.receive(0).len(), BURST);
        assert!(rig.pairs[0].is_sending(), "eight are left");
        assert_eq!(rig.receive(0).len(), 8);
        assert!(!rig.pairs[0].is_sending());
        rig.assert_no_chunk_is_lost();
    }
}

#[test]
fn a_number_of_queues_makes_sense_though_the_guest_has_as_many_as_it_likes() {
    let dir = tempfile::tempdir().unwrap();
    for kind in ["dpdkvhostuser", "dpdkvhostuserclient"] {
        let open = |count: &str| {
            let spec = PortSpec::new("vhost1", kind, PortNo(8)).with("n_rxq", count);
            let server = kind == "dpdkvhostuser";
            VhostUserPort::open(&if server {
                spec.with("vhost-sock-dir", dir.path().to_str().unwrap())
            } else {
                spec
            })
        };
        for bad in ["abc", "0", "-1", "65", "1000", ""] {
            let Err(error) = open(bad) else { panic!("n_rxq={bad} is taken") };
            assert!(error.to_string().starts_with(&format!("option n_rxq={bad}: expected")), "{error}");
        }
        let mut port = open("4").unwrap();
        assert_eq!(port.take_rx_queues().len(), 1, "there is no guest");
    }
}

#[test]
fn a_segment_that_reports_congestion_goes_whole_only_to_a_guest_that_knows_such() {
    const CWR: u8 = 0x80;
    let tso = d::MRG_RXBUF | d::GUEST_CSUM | d::GUEST_TSO4 | d::GUEST_TSO6;
    for (tcp_flags, features, kinds) in
        [(0, tso, &[1u8][..]), (CWR, tso | d::GUEST_ECN, &[0x81]), (CWR, tso, &[0, 0, 0])]
    {
        let mut rig = rig(&GuestConfig { features, ..GuestConfig::default() });
        let mut bytes = frame(0, 54 + 3000);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14..24].copy_from_slice(&[0x45, 0, 0x0b, 0xe0, 0, 0, 0, 0, 64, 6]);
        (bytes[46], bytes[47]) = (0x50, tcp_flags);
        let mut packet = rig.cache.alloc_frame(&bytes).unwrap();
        packet.flags.set(PacketFlags::CSUM_PARTIAL);
        packet.flags.set(PacketFlags::GSO_TCP);
        (packet.csum_start, packet.csum_offset, packet.gso_size) = (34, 16, 1000);
        let mut batch = Batch::new();
        batch.push(packet);
        rig.tx[0].tx_burst(&mut rig.cache, &mut batch);
        rig.tx[0].flush(&mut rig.cache);
        let mut received = Vec::new();
        rig.pairs[0].receive_with_headers(8, |header, _| received.push(header[1]));
        assert_eq!(received, kinds, "{tcp_flags:#x}, {features:#x}");
    }
}

#[test]
fn what_a_guest_sends_on_queues_that_it_has_disabled_is_discarded() {
    for layout in LAYOUTS {
        let mut rig = rig(&GuestConfig { layout, pairs: 2, ..GuestConfig::default() });
        let enable = |rig: &mut Rig, enable: bool| {
            let guest = rig.guest.as_mut().unwrap();
            guest.enable_pair(1, enable).unwrap();
            guest.synchronise().unwrap();
        };
        for n in 0..100 {
            assert!(rig.pairs[1].send(&frame(n, 60)));
        }
        enable(&mut rig, false);
        assert!(!rig.pairs[1].is_sending(), "{layout:?}: its buffers came back");
        // Its worker does so from then on, and is charged for it.
        assert!(rig.rx[1].arm());
        for n in 100..200 {
            assert!(rig.pairs[1].send(&frame(n, 60)));
        }
        let mut batch = Batch::new();
        for outcome in [RxOutcome::Refused, RxOutcome::Refused, RxOutcome::Ok] {
            assert_eq!(rig.rx[1].rx_burst(&mut rig.cache, &mut batch), outcome, "{layout:?}");
            assert!(batch.is_empty());
        }
        assert!(!rig.pairs[1].is_sending(), "{layout:?}");
        assert!(!rig.port.is_rx_enabled(1), "{layout:?}");
        assert!(rig.pairs[1].send(&frame(200, 60)));
        enable(&mut rig, true);
        assert!(!rig.pairs[1].is_sending(), "{layout:?}: what waited is discarded, too");
        assert!(rig.pairs[1].send(&frame(201, 60)));
        assert_eq!(rig.receive(1), [frame(201, 60)]);
        assert_eq!(rig.port.stats().rx_dropped, 201);
    }
}
