//! Software offloads against a word-by-word checksum and against frames that were composed finished.

use packet::{Packet, PacketFlags, Pool, PoolCache, PoolConfig};
use ports::offload::{
    complete_checksum, is_segmentation_ours, is_segmentation_pending, recognise_unfinished, segment,
};
use ports::virtio_net;
use proptest::prelude::*;
use std::cell::RefCell;
use wire::tcp::TcpFlags;
use wire::{Compose, EthAddr, VlanId};

const FRAME_MAX: u32 = 1514;

thread_local! {
    static CACHE: RefCell<PoolCache> = RefCell::new(
        Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap().cache(),
    );
}

fn with_cache<R>(work: impl FnOnce(&mut PoolCache) -> R) -> R {
    CACHE.with_borrow_mut(|cache| {
        let result = work(cache);
        assert_eq!(cache.pool().stats().free, 512, "no chunk is lost");
        result
    })
}

/// A packet of these bytes, cut into segments at most `cut` long (the first at least 256, as drivers have
/// it).
fn packet_of(cache: &mut PoolCache, bytes: &[u8], cut: usize) -> Packet {
    let first_len = bytes.len().min(cut.max(256));
    let mut packet = cache.alloc().unwrap();
    packet.fill(&bytes[..first_len]).unwrap();
    for piece in bytes[first_len..].chunks(cut) {
        let mut tail = cache.alloc().unwrap();
        tail.fill(piece).unwrap();
        packet.append(tail);
    }
    packet
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// What a test frame is made of.
#[derive(Clone, Debug)]
struct Shape {
    v6: bool,
    tcp: bool,
    tags: u16,
    options: bool,
    payload: Vec<u8>,
}

impl Shape {
    fn frame(&self) -> Vec<u8> {
        let mut frame = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        for tag in 0..self.tags {
            frame = frame.vlan(VlanId::new(100 + tag).unwrap());
        }
        frame = if self.v6 {
            frame.ipv6("fd09::1".parse().unwrap(), "fd09::2".parse().unwrap())
        } else {
            frame.ipv4("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap())
        };
        if self.options && !self.v6 {
            frame = frame.ipv4_options(&[1; 8]).unwrap();
        }
        let flags = TcpFlags::FIN | TcpFlags::PSH | TcpFlags::ACK | TcpFlags::CWR;
        frame = if self.tcp { frame.tcp(1000, 2000).tcp_flags(flags) } else { frame.udp(1000, 2000) };
        frame.payload(&self.payload).build().unwrap()
    }

    fn l3(&self) -> usize {
        14 + 4 * self.tags as usize
    }

    fn l4(&self) -> usize {
        self.l3() + if self.v6 { 40 } else { 20 + if self.options { 8 } else { 0 } }
    }

    fn field_at(&self) -> usize {
        self.l4() + if self.tcp { 16 } else { 6 }
    }

    fn payload_at(&self) -> usize {
        self.l4() + if self.tcp { 20 } else { 8 }
    }

    /// The folded pseudo-header sum, word by word.
    fn pseudo(&self, frame: &[u8]) -> u16 {
        let l3 = self.l3();
        let addresses = if self.v6 { &frame[l3 + 8..l3 + 40] } else { &frame[l3 + 12..l3 + 20] };
        let mut bytes = addresses.to_vec();
        bytes.extend_from_slice(&((frame.len() - self.l4()) as u32).to_be_bytes());
        bytes.extend_from_slice(&[0, if self.tcp { 6 } else { 17 }]);
        naive_sum(&bytes)
    }

    /// Whether the transport checksum is right, word by word.
    fn verifies(&self, frame: &[u8]) -> bool {
        let mut sum = u32::from(self.pseudo(frame)) + u32::from(naive_sum(&frame[self.l4()..]));
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    }

    fn unfinished(&self) -> Vec<u8> {
        let mut frame = self.frame();
        let pseudo = self.pseudo(&frame).to_be_bytes();
        frame[self.field_at()..self.field_at() + 2].copy_from_slice(&pseudo);
        frame
    }
}

fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn shapes(payload_max: usize) -> impl Strategy<Value = Shape> {
    let payload = proptest::collection::vec(any::<u8>(), 0..payload_max);
    (any::<bool>(), any::<bool>(), 0..3u16, any::<bool>(), payload)
        .prop_map(|(v6, tcp, tags, options, payload)| Shape { v6, tcp, tags, options, payload })
}

proptest! {
    #[test]
    fn an_unfinished_checksum_is_recognised_and_completed_to_what_the_sender_would_have_sent(
        shape in shapes(1400), cut in 200usize..700,
    ) {
        with_cache(|cache| {
            let mut packet = packet_of(cache, &shape.unfinished(), cut);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(packet.flags.has(PacketFlags::CSUM_PARTIAL));
            assert_eq!(packet.csum_start as usize, shape.l4());
            assert_eq!(packet.csum_start as usize + packet.csum_offset as usize, shape.field_at());
            complete_checksum(&mut packet);
            assert!(packet.flags.is_empty());
            assert_eq!(bytes_of(&packet), shape.frame());
            cache.free(packet);
        });
    }

    #[test]
    fn a_finished_checksum_survives_whatever_it_is_taken_for(shape in shapes(200)) {
        with_cache(|cache| {
            let finished = shape.frame();
            let mut packet = packet_of(cache, &finished, 256);
            recognise_unfinished(&mut packet, FRAME_MAX);
            let looks_unfinished = finished[shape.field_at()..][..2] == shape.pseudo(&finished).to_be_bytes();
            assert_eq!(packet.flags.has(PacketFlags::CSUM_PARTIAL), looks_unfinished);
            complete_checksum(&mut packet);
            assert_eq!(bytes_of(&packet), finished);
            cache.free(packet);
        });
    }

    #[test]
    fn a_corrupt_checksum_is_not_repaired(shape in shapes(200), flip in 1u16..) {
        with_cache(|cache| {
            let mut frame = shape.frame();
            let field = u16::from_be_bytes([frame[shape.field_at()], frame[shape.field_at() + 1]]) ^ flip;
            prop_assume!(field != shape.pseudo(&frame));
            frame[shape.field_at()..][..2].copy_from_slice(&field.to_be_bytes());
            let mut packet = packet_of(cache, &frame, 256);
            recognise_unfinished(&mut packet, FRAME_MAX);
            complete_checksum(&mut packet);
            assert_eq!(bytes_of(&packet), frame);
            cache.free(packet);
            Ok(())
        })?;
    }

    #[test]
    fn segments_are_cut_behind_labels_and_service_headers(
        mut shape in shapes(9_000), gso_size in 100u16..3000, cut in 500usize..1700, which in 0usize..6,
    ) {
        shape.payload.push(0);
        shape.tags = 0;
        let inner: u8 = if shape.v6 { 2 } else { 1 };
        let nsh = |next: u8| [&[0, 0x46, 1, next, 0, 0, 1, 255][..], &[9; 16]].concat();
        let (label, bottom) = ([0, 1, 0, 64], [0, 2, 1, 64]);
        // The type in front, the headers, and whether the frame's own Ethernet header lies behind them.
        let (eth_type, headers, is_bridged) = match which {
            0 => ([0x88, 0x47], bottom.to_vec(), false),
            1 => ([0x88, 0x48], [label, label, bottom].concat(), false),
            2 => ([0x88, 0x47], [label, bottom].concat(), true),
            3 => ([0x89, 0x4f], nsh(inner), false),
            4 => ([0x89, 0x4f], [nsh(4), nsh(3)].concat(), true),
            _ => ([0x89, 0x4f], [nsh(5), bottom.to_vec()].concat(), false),
        };
        with_cache(|cache| {
            let plain = shape.unfinished();
            let skipped = if is_bridged { 0 } else { 14 };
            let front = [&[4; 12][..], &eth_type, &headers].concat();
            let mut packet = packet_of(cache, &[&front, &plain[skipped..]].concat(), cut);
            packet.gso_size = gso_size;
            packet.flags.set(if shape.tcp { PacketFlags::GSO_TCP } else { PacketFlags::GSO_UDP });
            packet.flags.set(PacketFlags::CSUM_PARTIAL);
            packet.csum_start = (front.len() + shape.l4() - skipped) as u16;
            packet.csum_offset = if shape.tcp { 16 } else { 6 };
            assert!(is_segmentation_ours(&packet));
            let mut out = Vec::new();
            segment(packet, cache, &mut out).unwrap();
            assert_eq!(out.len(), shape.payload.len().div_ceil(gso_size as usize));
            let mut payload = Vec::new();
            for mut part in out.drain(..) {
                assert!(!is_segmentation_ours(&part));
                complete_checksum(&mut part);
                let bytes = bytes_of(&part);
                cache.free(part);
                assert_eq!(bytes[..front.len()], front);
                let inner = [&plain[..skipped], &bytes[front.len()..]].concat();
                assert!(shape.verifies(&inner));
                payload.extend_from_slice(&inner[shape.payload_at()..]);
            }
            assert_eq!(payload, shape.payload);
        });
    }

    #[test]
    fn segments_add_up_to_the_packet_and_each_is_right_by_itself(
        mut shape in shapes(30_000), gso_size in 100u16..9000, cut in 500usize..1700,
    ) {
        shape.payload.push(0);
        with_cache(|cache| {
            let whole = shape.unfinished();
            let mut packet = packet_of(cache, &whole, cut);
            packet.gso_size = gso_size;
            packet.flags.set(if shape.tcp { PacketFlags::GSO_TCP } else { PacketFlags::GSO_UDP });
            packet.csum_start = shape.l4() as u16;
            assert!(is_segmentation_pending(&packet));
            let bound = ports::offload::chunks_after_segmentation(&packet);
            let mut out = Vec::new();
            segment(packet, cache, &mut out).unwrap();
            assert_eq!(out.len(), shape.payload.len().div_ceil(gso_size as usize));
            assert!(out.iter().map(|p| p.segments().count()).sum::<usize>() <= bound);
            let mut payload = Vec::new();
            for (n, mut part) in out.drain(..).enumerate() {
                assert!(part.flags.has(PacketFlags::CSUM_PARTIAL) && !is_segmentation_pending(&part));
                complete_checksum(&mut part);
                let bytes = bytes_of(&part);
                cache.free(part);
                check_segment(&shape, &whole, &bytes, n, payload.len());
                payload.extend_from_slice(&bytes[shape.payload_at()..]);
            }
            assert_eq!(payload, shape.payload);
        });
    }

    #[test]
    fn bytes_from_a_network_never_panic(
        shape in shapes(600), len in 0usize..700, at in 0usize..120, value: u8, flags in 0u8..4, gso_size: u16,
        csum_start: u16, csum_offset: u8,
    ) {
        with_cache(|cache| {
            let mut frame = shape.unfinished();
            frame.truncate(len.max(1));
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
            let mut packet = packet_of(cache, &frame, 300);
            recognise_unfinished(&mut packet, 100);
            if flags & 1 != 0 {
                packet.flags.set(PacketFlags::CSUM_PARTIAL);
                (packet.csum_start, packet.csum_offset) = (csum_start, csum_offset);
            }
            if flags & 2 != 0 {
                packet.flags.set(PacketFlags::GSO_TCP);
                packet.gso_size = gso_size;
            }
            let mut out = Vec::new();
            if let Err(mut packet) = segment(packet, cache, &mut out) {
                complete_checksum(&mut packet);
                cache.free(packet);
            }
            out.into_iter().for_each(|mut part| {
                complete_checksum(&mut part);
                cache.free(part);
            });
        });
    }
}

/// One segment's lengths, checksums, identification, sequence number and flags.
fn check_segment(shape: &Shape, whole: &[u8], bytes: &[u8], n: usize, done: usize) {
    assert!(shape.verifies(bytes), "transport checksum of segment {n}");
    let (l3, l4) = (shape.l3(), shape.l4());
    let be16 = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if shape.v6 {
        assert_eq!(be16(bytes, l3 + 4) as usize, bytes.len() - l3 - 40);
    } else {
        assert_eq!(be16(bytes, l3 + 2) as usize, bytes.len() - l3);
        assert_eq!(be16(bytes, l3 + 4), be16(whole, l3 + 4).wrapping_add(n as u16));
        assert_eq!(naive_sum(&bytes[l3..l4]), 0xffff);
    }
    let last = done + bytes.len() - shape.payload_at() == shape.payload.len();
    if shape.tcp {
        let sequence = |frame: &[u8]| u32::from_be_bytes(frame[l4 + 4..l4 + 8].try_into().unwrap());
        assert_eq!(sequence(bytes), sequence(whole).wrapping_add(done as u32));
        let flags = bytes[l4 + 13];
        assert_eq!(flags & 0x09, if last { 0x09 } else { 0 }, "FIN and PSH on the last segment alone");
        assert_eq!(flags & 0x80, if n == 0 { 0x80 } else { 0 }, "CWR on the first alone");
        assert_eq!(flags & 0x10, 0x10);
    } else {
        assert_eq!(be16(bytes, l4 + 4) as usize, bytes.len() - l4);
    }
}

#[test]
fn the_one_finished_packet_in_65536_that_looks_unfinished_stays_as_it_is() {
    with_cache(|cache| {
        let mut alike = 0;
        for value in 0..=u16::MAX {
            let payload = value.to_be_bytes().to_vec();
            let shape = Shape { v6: false, tcp: true, tags: 0, options: false, payload };
            let finished = shape.frame();
            if finished[shape.field_at()..][..2] != shape.pseudo(&finished).to_be_bytes() {
                continue;
            }
            alike += 1;
            let mut packet = packet_of(cache, &finished, 256);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(packet.flags.has(PacketFlags::CSUM_PARTIAL));
            complete_checksum(&mut packet);
            assert_eq!(bytes_of(&packet), finished);
            cache.free(packet);
        }
        assert!(alike >= 1, "the search found none");
    });
}

#[test]
fn udp_without_a_checksum_is_left_alone() {
    with_cache(|cache| {
        let frame = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]))
            .ipv4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
            .udp(1, 2)
            .udp_checksum_zero()
            .payload(b"x")
            .build()
            .unwrap();
        let mut packet = packet_of(cache, &frame, 256);
        recognise_unfinished(&mut packet, FRAME_MAX);
        assert!(packet.flags.is_empty());
        cache.free(packet);
    });
}

#[test]
fn a_frame_that_no_link_would_take_is_marked_for_segments_that_fill_the_mtu() {
    with_cache(|cache| {
        for (v6, tags, expected) in [(false, 0, 1460), (true, 0, 1440), (false, 1, 1460)] {
            let shape = Shape { v6, tcp: true, tags, options: false, payload: vec![7; 20_000] };
            let mut packet = packet_of(cache, &shape.unfinished(), 1700);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(is_segmentation_pending(&packet));
            assert_eq!(packet.gso_size, expected);
            let mut out = Vec::new();
            segment(packet, cache, &mut out).unwrap();
            let longest = out.iter().map(Packet::len).max().unwrap();
            assert_eq!(longest, FRAME_MAX as usize + 4 * tags as usize);
            out.into_iter().for_each(|part| cache.free(part));
        }
    });
}

/// What Linux sends with `IPV6_RTHDR`: the checksum sums up the final destination, which is in the header.
#[test]
fn segments_on_a_route_keep_the_sum_of_the_final_destination() {
    with_cache(|cache| {
        for tcp in [true, false] {
            let shape = Shape { v6: true, tcp, tags: 0, options: false, payload: vec![0x5a; 4001] };
            let (plain, protocol) = (shape.unfinished(), if tcp { 6 } else { 17 });
            // The final destination goes into the header, and the next hop in its place.
            let route = [&[protocol, 2, 0, 1, 0, 0, 0, 0], &plain[38..54]].concat();
            let mut bytes = plain.clone();
            bytes[38..54].fill(0x11);
            bytes[20] = 43;
            bytes[18..20].copy_from_slice(&((plain.len() - 54 + 24) as u16).to_be_bytes());
            bytes.splice(54..54, route.iter().copied());
            let (gso_type, offset) = if tcp { (4, 16) } else { (5, 6) };
            for gso_type in [gso_type, 0] {
                let mut packet = packet_of(cache, &bytes, 1700);
                let [high, low] = 1000u16.to_ne_bytes();
                virtio_net::apply(&[1, gso_type, 0, 0, high, low, 78, 0, offset, 0, 0, 0], &mut packet)
                    .unwrap();
                let mut out = Vec::new();
                if is_segmentation_pending(&packet) {
                    segment(packet, cache, &mut out).unwrap();
                } else {
                    out.push(packet);
                }
                assert_eq!(out.len(), if gso_type == 0 { 1 } else { 5 });
                for mut part in out {
                    complete_checksum(&mut part);
                    let mut got = bytes_of(&part);
                    cache.free(part);
                    assert!(
                        got[54..78] == route
                            && usize::from(got[18]) << 8 | usize::from(got[19]) == got.len() - 54
                    );
                    // As it arrives.
                    got.drain(54..78);
                    got[38..54].copy_from_slice(&route[8..]);
                    assert!(shape.verifies(&got));
                }
            }
        }
    });
}

#[test]
fn segmentation_without_buffers_gives_the_packet_back_whole() {
    let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    let shape = Shape { v6: false, tcp: true, tags: 0, options: false, payload: vec![7; 20_000] };
    let mut packet = packet_of(&mut cache, &shape.unfinished(), 1700);
    packet.gso_size = 500;
    packet.flags.set(PacketFlags::GSO_TCP);
    let mut out = Vec::new();
    let packet = segment(packet, &mut cache, &mut out).unwrap_err();
    assert!(out.is_empty());
    assert_eq!(bytes_of(&packet), shape.unfinished());
    cache.free(packet);
    assert_eq!(pool.stats().free, 32);
}

/// A TCP segment over IPv6 behind `options_len` bytes of destination options and `tags` tags that were pushed
/// in front of a full chunk, and where its payload begins.
fn behind_options(cache: &mut PoolCache, options_len: usize, tags: usize) -> (Packet, usize) {
    const DESTINATION_OPTIONS: u8 = 60;
    const TCP: u8 = 6;
    let shape = Shape { v6: true, tcp: true, tags: 0, options: false, payload: vec![7; 2500] };
    let mut bytes = shape.unfinished();
    let payload_len = (bytes.len() - shape.l4() + options_len) as u16;
    bytes[18..20].copy_from_slice(&payload_len.to_be_bytes());
    bytes[20] = DESTINATION_OPTIONS;
    let mut options = vec![0; options_len];
    (options[0], options[1]) = (TCP, (options_len / 8 - 1) as u8);
    bytes.splice(shape.l4()..shape.l4(), options);
    let mut packet = packet_of(cache, &bytes, 1792);
    packet.push_front(4 * tags).unwrap();
    let front = packet.data_mut();
    front.copy_within(4 * tags..4 * tags + 12, 0);
    for tag in 0..tags {
        front[12 + 4 * tag..][..4].copy_from_slice(&[0x81, 0, 0, 100]);
    }
    packet.gso_size = 1000;
    packet.flags.set(PacketFlags::GSO_TCP);
    packet.flags.set(PacketFlags::CSUM_PARTIAL);
    packet.csum_start = (shape.l4() + options_len + 4 * tags) as u16;
    packet.csum_offset = 16;
    (packet, shape.payload_at() + options_len + 4 * tags)
}

#[test]
fn headers_too_long_to_be_copied_before_each_segment_give_the_packet_back_whole() {
    with_cache(|cache| {
        for options_len in [8, 432, 440, 1000, 1712] {
            for tags in 0..=3 {
                let (packet, headers_len) = behind_options(cache, options_len, tags);
                let bound = ports::offload::chunks_after_segmentation(&packet);
                let (before, mut out) = (bytes_of(&packet), Vec::new());
                let result = segment(packet, cache, &mut out);
                assert_eq!(result.is_ok(), headers_len <= 512, "{headers_len} bytes of headers");
                assert!(out.iter().map(|p| p.segments().count()).sum::<usize>() <= bound);
                out.into_iter().for_each(|part| cache.free(part));
                if let Err(packet) = result {
                    assert_eq!(bytes_of(&packet), before);
                    cache.free(packet);
                }
            }
        }
    });
}

#[test]
fn inside_a_tunnel_the_inner_checksum_is_the_one_to_finish() {
    with_cache(|cache| {
        let inner = Shape { v6: false, tcp: true, tags: 0, options: false, payload: vec![3; 100] };
        let geneve = [0x01, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 4];
        for (port, header) in [(4789u16, &[8u8, 0, 0, 0, 0, 0, 7, 0][..]), (6081, &geneve)] {
            let outer = |inner: &[u8]| {
                Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]))
                    .ipv4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
                    .udp(50_000, port)
                    .udp_checksum_zero()
                    .payload(&[header, inner].concat())
                    .build()
                    .unwrap()
            };
            let mut packet = packet_of(cache, &outer(&inner.unfinished()), 256);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(packet.flags.has(PacketFlags::CSUM_PARTIAL));
            assert_eq!(packet.csum_start as usize, 14 + 20 + 8 + header.len() + inner.l4());
            complete_checksum(&mut packet);
            assert_eq!(bytes_of(&packet), outer(&inner.frame()));
            cache.free(packet);
            let mut packet = packet_of(cache, &outer(&inner.frame()), 256);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(packet.flags.is_empty());
            cache.free(packet);
        }
    });
}

#[test]
fn an_sctp_checksum_left_as_zero_is_computed_on_the_spot() {
    with_cache(|cache| {
        let finished = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]))
            .ipv4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
            .sctp(1, 2)
            .payload(&[9; 700])
            .build()
            .unwrap();
        let mut unfinished = finished.clone();
        unfinished[42..46].fill(0);
        assert_ne!(unfinished, finished);
        for frame in [&unfinished, &finished] {
            let mut packet = packet_of(cache, frame, 300);
            recognise_unfinished(&mut packet, FRAME_MAX);
            assert!(packet.flags.is_empty());
            assert_eq!(bytes_of(&packet), finished);
            cache.free(packet);
        }
    });
}
