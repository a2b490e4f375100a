//! Segments within tunnels, cut up where they come in, against a checker that knows nothing of the cutter.

use packet::{Packet, PacketFlags, Pool, PoolCache, PoolConfig};
use ports::offload::tunnel::cut_unfinished;
use ports::virtio_net::{self, BadHeader, HEADER_LEN};
use proptest::prelude::*;
use wire::checksum::{checksum, is_valid};

const IPIP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6: u8 = 41;
const GRE: u8 = 47;
const OPTIONS: u8 = 60;
const GRE_SUM: u8 = 0x80;
const GRE_KEY: u8 = 0x20;
const MAC: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn ethernet(eth_type: u16, body: &[u8]) -> Vec<u8> {
    [&MAC[..], &eth_type.to_be_bytes(), body].concat()
}

fn frame_of(network: &[u8]) -> Vec<u8> {
    ethernet(if network[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, network)
}

fn ipv4(protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[2..4].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    [&header, body].concat()
}

fn ipv6(protocol: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, len[0], len[1], protocol, 64][..], &[0xfd; 32], body].concat()
}

fn udp(port: u16, field: u16, body: &[u8]) -> Vec<u8> {
    let words = [50_000, port, 8 + body.len() as u16, field];
    [&words.map(u16::to_be_bytes).concat(), body].concat()
}

fn vxlan(field: u16, frame: &[u8]) -> Vec<u8> {
    udp(4789, field, &[&[8, 0, 0, 0, 0, 0, 7, 0], frame].concat())
}

fn gre(flags: u8, eth_type: u16, body: &[u8]) -> Vec<u8> {
    let fields = 4 * (flags & (GRE_SUM | GRE_KEY)).count_ones() as usize;
    [&[flags, 0][..], &eth_type.to_be_bytes(), &vec![0; fields], body].concat()
}

/// What the pseudo-header of the transport part of a network packet sums over.
fn pseudo(network: &[u8], protocol: u8, transport: &[u8]) -> Vec<u8> {
    let addresses = if network[0] >> 4 == 4 { &network[12..20] } else { &network[8..40] };
    [addresses, &(transport.len() as u32).to_be_bytes(), &[0, protocol]].concat()
}

/// An inner packet as its sender leaves it: the sum of the pseudo-header is in the checksum's field.
fn inner(is_v6: bool, is_tcp: bool, payload: &[u8]) -> Vec<u8> {
    let (protocol, at, header) = if is_tcp {
        (
            TCP,
            16,
            [&[0, 80, 0, 90, 0xff, 0xff, 0xff, 0][..], &[0, 0, 0, 9, 0x50, 0x99, 1, 0], &[0; 4]].concat(),
        )
    } else {
        (UDP, 6, [80, 90, 8 + payload.len() as u16, 0u16].map(u16::to_be_bytes).concat())
    };
    let transport = [&header[..], payload].concat();
    let mut network = if is_v6 { ipv6(protocol, &transport) } else { ipv4(protocol, &transport) };
    let sum = !checksum(&pseudo(&network, protocol, &transport));
    let at = network.len() - transport.len() + at;
    network[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    network
}

/// Checks all that a network packet holds; the transport header of the innermost one, and its payload.
fn check(network: &[u8]) -> (&[u8], &[u8]) {
    let word = |at: usize| usize::from(u16::from_be_bytes([network[at], network[at + 1]]));
    let (mut protocol, mut body) = if network[0] >> 4 == 4 {
        assert!(word(2) == network.len() && is_valid(&network[..20]));
        (network[9], &network[20..])
    } else {
        assert_eq!(word(4), network.len() - 40);
        (network[6], &network[40..])
    };
    if protocol == OPTIONS {
        (protocol, body) = (body[0], &body[8..]);
    }
    let is_right = || is_valid(&[&pseudo(network, protocol, body), body].concat());
    let port = u16::from_be_bytes([body[2], body[3]]);
    match protocol {
        IPIP | IPV6 => check(body),
        GRE => {
            assert!(body[0] & GRE_SUM == 0 || is_valid(body));
            let header_len = 4 + 4 * (body[0] & (GRE_SUM | GRE_KEY)).count_ones() as usize;
            check(&body[header_len + if port == 0x6558 { 14 } else { 0 }..])
        }
        TCP => {
            assert!(is_right());
            body.split_at(20)
        }
        UDP => {
            assert_eq!(usize::from(u16::from_be_bytes([body[4], body[5]])), body.len());
            assert!(body[6..8] == [0, 0] || is_right());
            match port {
                4789 => check(&body[8 + 8 + 14..]),
                6081 => check(&body[8 + 8 + 4 * usize::from(body[8]) + 14..]),
                5555 => check(&body[8..]),
                _ => body.split_at(8),
            }
        }
        other => panic!("protocol {other}"),
    }
}

/// All tunnels around an inner packet.
fn tunnels(inner: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let frame = frame_of(inner);
    let eth_type = u16::from_be_bytes([frame[12], frame[13]]);
    let ip_in_ip = if eth_type == 0x0800 { IPIP } else { IPV6 };
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let geneve = |frame: &[u8]| {
        let options = [&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0x45; 8]].concat();
        udp(6081, 0x1234, &[&options, frame].concat())
    };
    let encap_limit = [ip_in_ip, 0, 4, 1, 4, 1, 0, 0];
    vec![
        ("VXLAN", ipv4(UDP, &vxlan(0, &frame))),
        ("VXLAN with checksum", ipv4(UDP, &vxlan(0x1234, &frame))),
        ("VXLAN over IPv6", ipv6(UDP, &vxlan(0x1234, &frame))),
        ("Geneve with options", ipv6(UDP, &geneve(&frame))),
        ("IP over UDP", ipv4(UDP, &udp(5555, 1, inner))),
        ("GRE", ipv4(GRE, &gre(0, eth_type, inner))),
        ("GRE with key and checksum", ipv4(GRE, &gre(GRE_SUM | GRE_KEY, eth_type, inner))),
        ("Ethernet over GRE", ipv6(GRE, &gre(GRE_SUM, 0x6558, &frame))),
        ("IP in IPv4", ipv4(ip_in_ip, inner)),
        ("IP in IPv6", ipv6(ip_in_ip, inner)),
        ("IP in IPv6 with a limit", ipv6(OPTIONS, &[&encap_limit, inner].concat())),
        ("VXLAN in GRE in IP", ipv4(IPIP, &ipv4(GRE, &gre(0, 0x86dd, &ipv6(UDP, &vxlan(9, &frame)))))),
        ("tags in VXLAN", ipv4(UDP, &udp(4000, 0, &[&[8, 0, 0, 0, 0, 0, 7, 0], &tagged[..]].concat()))),
    ]
}

fn header(frame_len: usize, inner: &[u8], is_tcp: bool, gso_size: u16) -> [u8; HEADER_LEN] {
    let network_len = if inner[0] >> 4 == 4 { 20 } else { 40 };
    let start = (frame_len - inner.len() + network_len) as u16;
    let mut header = [0; HEADER_LEN];
    (header[0], header[1]) = (1, if is_tcp { 1 } else { 5 });
    for (at, value) in [(4, gso_size), (6, start), (8, if is_tcp { 16 } else { 6 })] {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    header
}

fn pool() -> &'static Pool {
    Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap()
}

/// Cuts it up, or says why not; either way nothing is lost.
fn cut(cache: &mut PoolCache, header: &[u8; HEADER_LEN], bytes: &[u8]) -> Result<Vec<Vec<u8>>, BadHeader> {
    let mut packet = cache.alloc_frame(bytes).unwrap();
    assert_eq!(virtio_net::apply(header, &mut packet), Err(BadHeader::Nonsense));
    let mut frames: Vec<Packet> = Vec::new();
    let result = virtio_net::cut_inner(header, &packet, cache, &mut frames);
    cache.free(packet);
    assert!(result == Ok(true) || frames.is_empty());
    let frames = frames.drain(..).map(|frame| {
        assert!(frame.flags == PacketFlags::default() && frame.gso_size == 0);
        let bytes = frame.segments().flatten().copied().collect();
        cache.free(frame);
        bytes
    });
    let frames = frames.collect();
    assert_eq!(cache.pool().stats().free, 512);
    result.map(|is_cut| {
        assert!(is_cut);
        frames
    })
}

#[test]
fn a_segment_within_a_tunnel_becomes_frames_that_are_right_in_every_layer() {
    let mut cache = pool().cache();
    let payload: Vec<u8> = (0..40_001u32).map(|n| (n * 7 + n / 8) as u8).collect();
    for (is_v6, is_tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        let inner = inner(is_v6, is_tcp, &payload);
        for (name, network) in tunnels(&inner) {
            for (tag, gso_size) in [(&[][..], 1399), (&[0x81, 0, 0, 9], 4000)] {
                let mut bytes = frame_of(&network);
                bytes.splice(12..12, tag.iter().copied());
                let header = header(bytes.len(), &inner, is_tcp, gso_size);
                let frames = cut(&mut cache, &header, &bytes).unwrap_or_else(|why| panic!("{name}: {why:?}"));
                assert_eq!(frames.len(), payload.len().div_ceil(gso_size.into()), "{name}");
                let mut done = Vec::new();
                for (n, frame) in frames.iter().enumerate() {
                    assert!(frame[..12] == MAC && frame[12..].starts_with(tag));
                    let network = &frame[14 + tag.len()..];
                    let (transport, part) =
                        if name.starts_with("tags") { check_tagged(network) } else { check(network) };
                    if is_tcp {
                        let sequence = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                        assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(done.len() as u32), "{name}");
                        let is_last = n + 1 == frames.len();
                        // CWR on the first, FIN and PSH on the last.
                        assert_eq!(
                            transport[13],
                            0x10 | if n == 0 { 0x80 } else { 0 } | if is_last { 9 } else { 0 }
                        );
                    }
                    if network[0] >> 4 == 4 {
                        assert_eq!(network[4..6], 0xfffeu16.wrapping_add(n as u16).to_be_bytes(), "{name}");
                    }
                    done.extend_from_slice(part);
                }
                assert!(done == payload, "{name}");
            }
        }
    }
}

/// The packet behind a tag in VXLAN at a port of its own.
fn check_tagged(network: &[u8]) -> (&[u8], &[u8]) {
    assert!(
        usize::from(u16::from_be_bytes([network[2], network[3]])) == network.len()
            && is_valid(&network[..20])
    );
    assert_eq!(usize::from(u16::from_be_bytes([network[24], network[25]])), network.len() - 20);
    check(&network[20 + 8 + 8 + 18..])
}

#[test]
fn tcp_within_a_tunnel_that_no_note_tells_of_is_cut_to_the_mtu() {
    let mut cache = pool().cache();
    let payload: Vec<u8> = (0..40_001u32).map(|n| (n * 7 + n / 8) as u8).collect();
    for (is_v6, is_tcp) in [(false, true), (true, true), (false, false)] {
        for (name, network) in tunnels(&inner(is_v6, is_tcp, &payload)) {
            let packet = cache.alloc_frame(&frame_of(&network)).unwrap();
            let mut frames = Vec::new();
            assert_eq!(cut_unfinished(&packet, 1514, &mut cache, &mut frames), is_tcp, "{name}");
            cache.free(packet);
            assert!(!is_tcp || frames[0].len() == 1514);
            let mut done = Vec::new();
            for frame in frames {
                let network = &frame.data()[14..];
                done.extend_from_slice(if name.starts_with("tags") {
                    check_tagged(network).1
                } else {
                    check(network).1
                });
                cache.free(frame);
            }
            assert!(!is_tcp || done == payload, "{name}");
        }
    }
}

#[test]
fn what_is_no_segment_within_a_tunnel_or_too_many_is_refused() {
    let mut cache = pool().cache();
    let inner = inner(false, true, &[7; 20_000]);
    let good = frame_of(&ipv4(UDP, &vxlan(0, &frame_of(&inner))));
    let right = header(good.len(), &inner, true, 1000);
    assert_eq!(cut(&mut cache, &right, &good).unwrap().len(), 20);
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let inner_at = good.len() - inner.len();
    let sequenced = frame_of(&ipv4(GRE, &gre(0x10, 0x0800, &inner)));
    let routed = frame_of(&ipv4(GRE, &gre(0x40, 0x0800, &inner)));
    let gre_start = |bytes: &[u8]| header(bytes.len(), &inner, true, 1000);
    for (name, header, bytes) in [
        ("another inner length", right, changed(inner_at + 3, 0)),
        ("an inner fragment", right, changed(inner_at + 6, 0x20)),
        ("an outer fragment", right, changed(14 + 6, 0x20)),
        ("another inner protocol", right, changed(inner_at + 9, UDP)),
        ("another outer protocol", right, changed(14 + 9, 50)),
        ("no inner packet", right, changed(inner_at, 0x55)),
        ("GRE that counts", gre_start(&sequenced), sequenced),
        ("GRE with a route", gre_start(&routed), routed),
        ("a checksum elsewhere", [1, 1, 0, 0, 232, 3, 60, 0, 16, 0, 0, 0], good.clone()),
        ("UDP's segmentation of TCP", [1, 5, 0, 0, 232, 3, right[6], 0, 6, 0, 0, 0], good.clone()),
        ("no size", [1, 1, 0, 0, 0, 0, right[6], 0, 16, 0, 0, 0], good.clone()),
    ] {
        assert_eq!(cut(&mut cache, &header, &bytes), Err(BadHeader::Nonsense), "{name}");
    }
    let sized = |size: u16| header(good.len(), &inner, true, size);
    assert_eq!(cut(&mut cache, &sized(70), &good), Err(BadHeader::GsoSegments));
    assert_eq!(cut(&mut cache, &sized(40), &good), Err(BadHeader::GsoSize));
    // What the kernel has merged of small segments.
    let small = inner_of_small(60);
    let bytes = frame_of(&ipv4(IPIP, &small));
    assert_eq!(cut(&mut cache, &header(bytes.len(), &small, true, 10), &bytes).unwrap().len(), 6);
}

fn inner_of_small(len: usize) -> Vec<u8> {
    inner(false, true, &vec![7; len])
}

#[test]
fn headers_that_are_made_up_cost_little_and_a_pool_without_room_loses_nothing() {
    let mut cache = pool().cache();
    // UDP in UDP, as often as it fits, and each place may lead to the next or to none.
    let mut network = inner(false, true, &[7; 60_000]);
    for _ in 0..15 {
        network = ipv4(UDP, &udp(9, 1, &network));
    }
    let bytes = frame_of(&network);
    let start = (bytes.len() - 60_000 - 20) as u16;
    let mut header = header(bytes.len(), &inner_of_small(1), true, 1000);
    header[6..8].copy_from_slice(&start.to_ne_bytes());
    assert_eq!(cut(&mut cache, &header, &bytes), Err(BadHeader::Nonsense));
    let tiny = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = tiny.cache();
    let inner = inner(false, true, &[7; 50_000]);
    let bytes = frame_of(&ipv4(IPIP, &inner));
    let packet = cache.alloc_frame(&bytes).unwrap();
    let mut frames = Vec::new();
    let header = self::header(bytes.len(), &inner, true, 500);
    assert_eq!(virtio_net::cut_inner(&header, &packet, &mut cache, &mut frames), Ok(false));
    assert!(frames.is_empty());
    cache.free(packet);
    assert_eq!(tiny.stats().free, 64);
}

proptest! {
    #[test]
    fn whatever_is_changed_in_a_segment_within_a_tunnel_nothing_is_lost(
        which in 0usize..13, is_v6: bool, is_tcp: bool, gso_size: u16, start in -2i32..3,
        changes in proptest::collection::vec((0usize..160, any::<u8>()), 0..5), cut_off in 0usize..400,
    ) {
        let pool = Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let inner = inner(is_v6, is_tcp, &[0x5a; 3000]);
        let mut bytes = frame_of(&tunnels(&inner)[which].1);
        let mut header = header(bytes.len(), &inner, is_tcp, gso_size);
        header[6] = header[6].wrapping_add_signed(start as i8);
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(if cut_off < 200 { bytes.len() } else { cut_off - 190 });
        let packet = cache.alloc_frame(&bytes).unwrap();
        let mut frames = Vec::new();
        let is_cut = virtio_net::cut_inner(&header, &packet, &mut cache, &mut frames) == Ok(true);
        assert_ne!(is_cut, frames.is_empty());
        let is_cut = cut_unfinished(&packet, 1514, &mut cache, &mut frames);
        assert!(!is_cut || frames.last().is_some_and(|frame| frame.len() <= 1514));
        frames.into_iter().chain([packet]).for_each(|packet| cache.free(packet));
        assert_eq!(pool.stats().free, 512);
    }
}
