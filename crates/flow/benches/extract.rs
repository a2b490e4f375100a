//! What does extraction cost? TSC cycles per packet, for each kind of packet and each depth, bursts of 32 in
//! cache.
//!
//! `cargo bench -p flow --bench extract`; arguments are the kinds and the depths to run (all without), and
//! `runs=N`. Minimum and median over the runs: the minimum is the figure that other programs on the machine
//! do not reach. Instructions per packet: `valgrind --tool=callgrind` on the binary with two values of
//! `runs`, whose difference is N * 6,400 packets.

use base::{OfPort, PortNo, clock};
use flow::{Depth, Ingress, Key, extract};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::Layers;
use wire::ipv6_ext::ExtRepr;
use wire::{Compose, EthAddr, VlanId};

const BURST: usize = 32;
const BURSTS_PER_RUN: usize = 200;
const RUNS: usize = 2_000;

const _: () = assert!(BURST * BURSTS_PER_RUN == 6_400, "the module's text says so");

fn ethernet(i: usize) -> Compose {
    Compose::ethernet(EthAddr([2, 0, 0, 0, 0, i as u8]), EthAddr([2, 0, 0, 0, 1, i as u8]))
}

fn ipv4(compose: Compose, i: usize) -> Compose {
    compose.ipv4(Ipv4Addr::new(10, 0, 0, i as u8), Ipv4Addr::new(10, 1, 0, i as u8))
}

fn ipv6(compose: Compose, i: usize) -> Compose {
    let address = |net| Ipv6Addr::new(0xfd00, net, 0, 0, 0, 0, 0, i as u16);
    compose.ipv6(address(1), address(2))
}

fn vlan() -> VlanId {
    VlanId::new(100).expect("100 is below 4096")
}

type Kind = (&'static str, fn(usize) -> Compose);

/// Each kind with the composition of the i-th packet of a burst.
const KINDS: &[Kind] = &[
    ("ipv4_udp", |i| ipv4(ethernet(i), i).udp(1000 + i as u16, 53)),
    ("ipv4_tcp", |i| ipv4(ethernet(i), i).tcp(1000 + i as u16, 80)),
    ("ipv4_udp_tcp_mixed", |i| {
        let ip = ipv4(ethernet(i), i);
        // A pattern that a branch predictor learns only by heart.
        if 0x9d3a_51c6u32 >> i & 1 == 1 { ip.tcp(1000, 80) } else { ip.udp(1000, 53) }
    }),
    ("vlan_ipv4_udp", |i| ipv4(ethernet(i).vlan(vlan()), i).udp(1000 + i as u16, 53)),
    ("ipv6_udp", |i| ipv6(ethernet(i), i).udp(1000 + i as u16, 53)),
    ("vlan_ipv6_tcp", |i| ipv6(ethernet(i).vlan(vlan()), i).tcp(1000 + i as u16, 80)),
    ("qinq_ipv6_tcp", |i| ipv6(ethernet(i).service_vlan(vlan()).vlan(vlan()), i).tcp(1000 + i as u16, 80)),
    ("ipv6_extension_udp", |i| {
        ipv6(ethernet(i), i).ext_header(ExtRepr::HopByHop(vec![0; 6])).udp(1000 + i as u16, 53)
    }),
    ("mpls_ipv4_udp", |i| ipv4(ethernet(i).mpls(16).mpls(17), i).udp(1000 + i as u16, 53)),
];

fn main() {
    // Cargo itself passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let runs =
        wanted.iter().find_map(|arg| arg.strip_prefix("runs=")).map_or(RUNS, |n| n.parse().expect("runs=N"));
    let depth_name = |depth: Depth| format!("{depth:?}").to_lowercase();
    let is_kind = |arg: &&String| KINDS.iter().any(|(name, _)| name == arg);
    let is_depth = |arg: &&String| Depth::ALL.into_iter().any(|depth| depth_name(depth) == **arg);
    let chosen = |name: &str, all: bool| all || wanted.iter().any(|arg| arg == name);
    let (all_kinds, all_depths) = (!wanted.iter().any(|a| is_kind(&a)), !wanted.iter().any(|a| is_depth(&a)));
    println!("{:24} {:>10} {:>10} {:>10}", "extract: cycles/packet", "depth", "minimum", "median");
    for (name, compose) in KINDS.iter().filter(|(name, _)| chosen(name, all_kinds)) {
        // Behind one another in whole cache lines, as far apart as in a pool they would share a few sets of
        // the cache.
        let frames: Vec<Vec<u8>> = (0..BURST)
            .map(|i| compose(i).payload(&[0; 18]).build().expect("a frame within the limits"))
            .collect();
        for depth in Depth::ALL.into_iter().filter(|&depth| chosen(&depth_name(depth), all_depths)) {
            let (minimum, median) = measure(&frames, depth, runs);
            println!("{name:24} {:>10} {minimum:10.1} {median:10.1}", depth_name(depth));
        }
    }
}

fn measure(frames: &[Vec<u8>], depth: Depth, runs: usize) -> (f64, f64) {
    let ingress = black_box(Ingress::new(OfPort(1), PortNo(2), depth));
    let mut keys = vec![Key::default(); BURST];
    let mut offsets = [Layers::UNKNOWN; BURST];
    let mut cycles: Vec<u64> = (0..runs)
        .map(|_| {
            let started = clock::tsc();
            for _ in 0..BURSTS_PER_RUN {
                for ((frame, key), at) in frames.iter().zip(&mut keys).zip(&mut offsets) {
                    *at = extract(frame, frame.len(), &ingress, key).unwrap_or_default();
                }
                black_box((&keys, &offsets));
            }
            clock::tsc() - started
        })
        .collect();
    cycles.sort_unstable();
    let per_packet = |cycles: u64| cycles as f64 / (BURST * BURSTS_PER_RUN) as f64;
    (per_packet(cycles[0]), per_packet(cycles[runs / 2]))
}
