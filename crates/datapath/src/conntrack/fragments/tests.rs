//! Datagrams in pieces, and floods of them.

use super::*;
use packet::{Pool, PoolCache, PoolConfig};

/// A datagram of UDP, of 8 + `len` bytes, as frames of fragments with so many bytes of payload each.
fn fragments_of(id: u16, len: usize, part: usize, is_ipv6: bool) -> Vec<Vec<u8>> {
    let mut udp = [1000u16, 53, 8 + len as u16, 0].map(u16::to_be_bytes).concat();
    udp.extend((0..len).map(|n| n as u8));
    let src = |n: u8| if is_ipv6 { vec![n; 16] } else { vec![10, 0, 0, n] };
    if is_ipv6 {
        let address = |n: u8| std::net::Ipv6Addr::from([n; 16]);
        let sum =
            wire::checksum::pseudo_v6(address(1), address(2), wire::ip::IpProtocol::UDP, udp.len() as u32);
        let sum = sum.bytes(&udp).finish();
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    let count = udp.len().div_ceil(part);
    let frame = |(n, bytes): (usize, &[u8])| {
        let more = u16::from(n + 1 < count);
        let offset = (n * part) as u16;
        let mut frame = vec![2; 12];
        if is_ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((8 + bytes.len() as u16).to_be_bytes());
            frame.extend([44, 64]);
            frame.extend([src(1), src(2)].concat());
            frame.extend([17, 0]);
            frame.extend((offset | more).to_be_bytes());
            frame.extend(u32::from(id).to_be_bytes());
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes.len() as u16).to_be_bytes());
            frame.extend(id.to_be_bytes());
            frame.extend(((offset / 8) | (more << 13)).to_be_bytes());
            frame.extend([64, 17, 0, 0]);
            frame.extend([src(1), src(2)].concat());
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend(bytes);
        frame
    };
    udp.chunks(part).enumerate().map(frame).collect()
}

struct Rig {
    all: Fragments,
    cache: PoolCache,
    whole: Whole,
    purged: u64,
}

impl Rig {
    fn new() -> Rig {
        let config = PoolConfig { chunks: 1 << 14, chunk_bytes: 2048, huge_pages: false };
        let rig = Rig {
            all: Fragments::default(),
            cache: Pool::new(config).unwrap().cache(),
            whole: Whole::new(),
            purged: 0,
        };
        rig.all.settings.min_frag.iter().for_each(|min| min.store(100, Relaxed));
        rig
    }

    fn give(&mut self, frame: &[u8], port: u32, now_ms: u64) -> Fate {
        let mut packet = self.cache.alloc_frame(frame).unwrap();
        packet.in_port = PortNo(port);
        let layers = Layers::of(packet.data(), packet.len(), 2).unwrap();
        let Some(piece) = self.all.examine(&packet, &layers, 5, 0) else {
            self.cache.free(packet);
            return Fate::Refused;
        };
        let mut packet = Some(packet);
        let (cache, mut purged) = (&mut self.cache, 0);
        let take = || packet.take().unwrap();
        let drop = |packet| {
            cache.free(packet);
            purged += 1;
        };
        let fate = self.all.hold(&piece, now_ms, take, drop, &mut self.whole);
        self.purged += purged;
        packet.into_iter().for_each(|packet| self.cache.free(packet));
        fate
    }

    fn done(&mut self) -> Vec<Vec<u8>> {
        self.whole
            .drain(..)
            .map(|(packet, _)| {
                let bytes = packet.segments().collect::<Vec<_>>().concat();
                self.cache.free(packet);
                bytes
            })
            .collect()
    }

    fn expire(&mut self, now_ms: u64) -> usize {
        let mut count = 0;
        let cache = &mut self.cache;
        // Bound: what one call leaves, the next takes.
        for _ in 0..100 {
            self.all.expire(now_ms, |packet| {
                cache.free(packet);
                count += 1;
            });
        }
        count
    }
}

#[test]
fn a_datagram_is_whole_in_whatever_order_its_fragments_come_and_they_leave_as_they_came() {
    for is_ipv6 in [false, true] {
        let mut rig = Rig::new();
        // Large ones span chunks of the pool.
        for (len, part) in [(500, 104), (2000, 1000), (20_000, 4000)] {
            let frames = fragments_of(7, len, part, is_ipv6);
            for shift in 0..frames.len() {
                for step in [1, frames.len() - 1] {
                    let order = (0..frames.len()).map(|n| (shift + n * step) % frames.len());
                    let fates: Vec<Fate> = order.map(|n| rig.give(&frames[n], 1, 0)).collect();
                    assert!(fates[..fates.len() - 1].iter().all(|fate| *fate == Fate::Waits), "{fates:?}");
                    assert_eq!(fates.last(), Some(&Fate::Completes));
                    let mut buffer = vec![0; WHOLE_BYTES_MAX];
                    let seen = read_whole(&rig.whole, &mut buffer).expect("valid");
                    assert_eq!((seen.tuple.src_port, seen.tuple.dst_port), (1000, 53));
                    assert_eq!(rig.done(), frames);
                    assert_eq!(rig.all.held(), 0);
                }
            }
        }
    }
}

#[test]
fn what_overlaps_repeats_contradicts_or_is_tiny_is_refused_and_the_rest_still_completes() {
    for is_ipv6 in [false, true] {
        let mut rig = Rig::new();
        let frames = fragments_of(7, 500, 104, is_ipv6);
        let other = fragments_of(7, 500, 200, is_ipv6);
        assert_eq!(rig.give(&frames[1], 1, 0), Fate::Waits);
        assert_eq!(rig.give(&frames[1], 1, 0), Fate::Refused, "again");
        assert_eq!(rig.give(&other[0], 1, 0), Fate::Refused, "overlaps");
        assert_eq!(rig.give(&frames[4], 1, 0), Fate::Waits, "the last");
        assert_eq!(rig.give(fragments_of(7, 700, 600, is_ipv6).last().unwrap(), 1, 0), Fate::Refused);
        assert_eq!(rig.give(fragments_of(7, 250, 104, is_ipv6).last().unwrap(), 1, 0), Fate::Refused);
        assert_eq!(rig.give(&fragments_of(9, 500, 32, is_ipv6)[0], 1, 0), Fate::Refused, "too small");
        let version = usize::from(is_ipv6);
        assert_eq!(rig.all.figures[version].too_small.load(Relaxed), 1);
        assert_eq!(rig.all.figures[version].overlapped.load(Relaxed), 4);
        // Neither another port nor another identification can spoil it.
        assert_eq!(rig.give(&other[0], 2, 0), Fate::Waits);
        for n in [0, 2] {
            assert_eq!(rig.give(&frames[n], 1, 0), Fate::Waits);
        }
        assert_eq!(rig.give(&frames[3], 1, 0), Fate::Completes);
        assert_eq!(rig.done(), frames);
        assert_eq!(rig.expire(TIMEOUT_MS), 1);
        rig.all.settings.is_enabled[version].store(false, Relaxed);
        assert_eq!(rig.give(&frames[0], 1, 0), Fate::Refused, "switched off");
    }
}

#[test]
fn however_many_ports_flood_another_holds_its_share_and_its_datagrams_complete() {
    let mut rig = Rig::new();
    let first = |id| fragments_of(id, 500, 304, false).remove(0);
    for round in 0..3 {
        for port in 1..=40 {
            for id in 0..1_000 {
                rig.give(&first(round * 1_000 + id), port, 0);
            }
        }
    }
    let purged = || rig.all.figures[0].purged.load(Relaxed);
    assert!(rig.all.held() <= 1_000 && purged() == rig.purged && rig.purged > 0, "{}", rig.purged);
    // All at once, so that others would take what is free in between.
    let whole: Vec<_> = (0..10).map(|id| fragments_of(id, 1000, 504, false)).collect();
    for n in [0, 1] {
        for frames in &whole {
            let expected = [Fate::Waits, Fate::Completes][n];
            assert_eq!(rig.give(&frames[n], 99, 1), expected);
            rig.done();
            for id in 0..100 {
                rig.give(&first(9_000 + id), 1 + id as u32 % 40, 1);
            }
        }
    }
    // One that holds the most already gets nothing by it.
    let before = rig.purged;
    for id in 0..1_000 {
        rig.give(&first(20_000 + id), 1, 2);
    }
    assert!(rig.purged - before <= 40, "{}", rig.purged - before);
    rig.expire(TIMEOUT_MS + 2);
    assert_eq!((rig.all.held(), rig.all.waiting().len()), (0, 0));
}

#[test]
fn a_datagram_of_more_fragments_than_a_run_is_refused_by_a_name_of_its_own() {
    let mut rig = Rig::new();
    let frames = fragments_of(7, 104 * 80, 104, false);
    let waiting = frames.iter().filter(|frame| rig.give(frame, 1, 0) == Fate::Waits).count();
    let figures = &rig.all.figures[0];
    assert_eq!((waiting, figures.overlapped.load(Relaxed)), (PIECES_MAX, 0));
    assert_eq!(figures.too_many.load(Relaxed) as usize, frames.len() - PIECES_MAX);
}

#[test]
fn fragments_that_never_complete_starve_no_other_port_and_are_bounded() {
    let mut rig = Rig::new();
    let first = |id| fragments_of(id, 500, 304, false).remove(0);
    let accepted = (0..20_000).filter(|id| rig.give(&first(*id), 1, 0) == Fate::Waits).count();
    assert_eq!((accepted, rig.all.held()), (500, 500), "half of 1000");
    assert_eq!(rig.all.waiting().len(), 500);
    // One who has nothing to hold yet finds room, whatever the others do.
    for port in 2..6 {
        assert!((0..2_000).any(|id| rig.give(&first(id), port, 1) == Fate::Waits));
    }
    let frames = fragments_of(9, 1000, 504, false);
    assert_eq!(rig.give(&frames[0], 99, 2), Fate::Waits);
    assert_eq!(rig.give(&frames[1], 99, 2), Fate::Completes);
    assert_eq!(rig.done(), frames);
    assert!(rig.all.held() <= 1000);
    // Time gives everything back.
    assert_eq!(rig.expire(TIMEOUT_MS - 1), 0);
    assert_eq!(rig.expire(TIMEOUT_MS) + rig.purged as usize, 500);
    rig.expire(TIMEOUT_MS + 1);
    assert_eq!((rig.all.held(), rig.all.waiting().len()), (0, 0));
    assert_eq!(rig.give(&frames[0], 1, 20_000), Fate::Waits);
    // An eighth of a small pool is the bound there.
    let config = PoolConfig { chunks: 1024, chunk_bytes: 2048, huge_pages: false };
    rig.cache = Pool::new(config).unwrap().cache();
    let accepted = (0..1_000).filter(|id| rig.give(&first(*id), 3, 20_000) == Fate::Waits).count();
    assert_eq!(accepted, 64);
    assert!(rig.all.held() <= 128, "{}", rig.all.held());
}
