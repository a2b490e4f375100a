//! Packet sockets on real interfaces.

use crate::kernel::{alone, assert_whole, detail, iperf, open, packet_socket, pool};
use crate::rig::{Forwarder, Net};
use packet::{LinkState, Pool, Port};
use ports::{PortMemory, PortSpec, netlink};
use std::sync::atomic::Ordering;
use testkit::lab::wait_for;

/// Packet sockets on both ends of a new veth pair; `settings` are of `ip link set`.
fn veth_pair(net: &Net, pool: &'static Pool, settings: &str) -> [Box<dyn Port>; 2] {
    netlink::create_veth("v0", "v1").unwrap();
    for name in ["v0", "v1"] {
        net.on("s", &format!("ip link set {name} {settings}"));
    }
    [("v0", 1), ("v1", 2)].map(|(name, n)| ports::open(&packet_socket(name, n), pool).unwrap())
}

#[test]
fn hosts_reach_each_other_through_packet_sockets_in_whole_segments() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = ports::open(&packet_socket("p0", 1), pool).unwrap();
    let mut p1 = ports::open(&packet_socket("p1", 2), pool).unwrap();
    let forwarder = Forwarder::start(pool, [&mut *p0, &mut *p1]);
    net.on("a", "ping -c 3 -i 0.2 -W 2 10.9.0.2");
    net.on("a", "ping -c 3 -i 0.2 -W 2 fd09::2");
    net.on("a", "ping -c 2 -i 0.2 -W 2 -s 20000 10.9.0.2");
    let there = iperf(&net, "10.9.0.2", "-t 2");
    let six = iperf(&net, "fd09::2", "-t 1");
    let udp = iperf(&net, "10.9.0.2", "-t 1 -u -b 200M");
    eprintln!("TCP {there}, over IPv6 {six}, UDP {udp} Mbit/s");
    net.set_mtu(9000);
    net.on("a", "ping -c 2 -i 0.2 -W 2 -M do -s 8900 10.9.0.2");
    let report = forwarder.stop();
    eprintln!("{report:?}\n{:?}\n{:?}\n{:?}", p0.stats(), p1.stats(), p0.status());
    assert!(report.chained.load(Ordering::Relaxed) > 100, "segments were cut up: {report:?}");
    assert!(there > 300.0 && six > 300.0 && udp > 100.0, "{there} {six} {udp} Mbit/s");
    let (s0, s1) = (p0.stats(), p1.stats());
    assert_eq!(s0.rx_packets, s1.tx_packets + s1.tx_dropped + s1.tx_errors);
    assert_eq!((s0.rx_errors, s1.rx_errors, s0.tx_errors, s1.tx_errors), (0, 0, 0, 0));
    assert_eq!((s0.tx_mtu_drops, s1.tx_mtu_drops, p0.status().mtu), (0, 0, 9000));
    assert_whole(pool);
}

/// The kernel hands over a segment within a tunnel whole, and says no more of it than of any other.
#[test]
fn hosts_reach_each_other_through_tunnels_of_their_own_through_packet_sockets() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = ports::open(&packet_socket("p0", 1), pool).unwrap();
    let mut p1 = ports::open(&packet_socket("p1", 2), pool).unwrap();
    let forwarder = Forwarder::start(pool, [&mut *p0, &mut *p1]);
    let without = "noudpcsum udp6zerocsumtx udp6zerocsumrx";
    let kinds = [without, "udpcsum"].into_iter().flat_map(|sums| [("10.9.0.", sums), ("fd09::", sums)]);
    for ((network, sums), n) in kinds.zip(1..) {
        for (host, own, other) in [("a", 1, 2), ("b", 2, 1)] {
            let way = format!("local {network}{own} remote {network}{other} dstport {}", 4000 + n);
            net.on(host, &format!("ip link add t{n} type vxlan id {n} {way} {sums}"));
            net.on(host, &format!("ip addr add 10.7.{n}.{own}/24 dev t{n}"));
            net.on(host, &format!("ip link set t{n} up"));
        }
        let address = format!("10.7.{n}.2");
        net.on("a", &format!("ping -c 1 -W 2 {address}"));
        let there = iperf(&net, &address, "-t 1");
        eprintln!("TCP in VXLAN over {network}, {sums}: {there} Mbit/s");
        assert!(there > 100.0, "{network} {sums}: {there} Mbit/s");
    }
    let report = forwarder.stop();
    let (s0, s1) = (p0.stats(), p1.stats());
    assert_eq!((s0.rx_errors, s1.rx_errors, s1.tx_errors), (0, 0, 0), "{report:?}");
    assert_eq!(s0.rx_packets, s1.tx_packets + s1.tx_dropped);
    assert_whole(pool);
}

#[test]
fn packet_sockets_share_an_interface_by_fanout() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = ports::open(&packet_socket("p0", 1).with("n_rxq", "3"), pool).unwrap();
    let mut p1 = ports::open(&packet_socket("p1", 2).with("n_rxq", "3"), pool).unwrap();
    let forwarder = Forwarder::start(pool, [&mut *p0, &mut *p1]);
    net.on("a", "ping -c 3 -i 0.2 -W 2 10.9.0.2");
    let four = iperf(&net, "10.9.0.2", "-t 1 -P 4");
    assert!(four > 200.0, "{four}");
    let sockets = || net.on("s", "cat /proc/net/packet").lines().count() - 1;
    assert_eq!(sockets(), 2 * 3 + 2 * 3, "a receiving and a sending one per queue");
    forwarder.stop();
    drop((p0, p1));
    assert_eq!(sockets(), 0);
    assert_whole(pool);
}

#[test]
fn larger_rings_of_packet_sockets_take_memory_that_all_ports_share() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let (pool, memory) = (pool(), PortMemory::new(4 << 20));
    let port = |name, n, slots| {
        let spec = packet_socket(name, n).with("n_rxq_desc", slots);
        ports::open(&PortSpec { memory: memory.clone(), ..spec }, pool)
    };
    let first = port("p0", 1, "4096").unwrap();
    assert!(port("p1", 2, "2048").is_ok(), "a ring of the default size is always to be had");
    let why =
        "rings of packet sockets: 1 MB of memory is needed, but only 0 MB of the 4 MB for all ports are left";
    assert_eq!(port("p1", 2, "2049").err().unwrap().to_string(), why);
    drop(first);
    assert!(port("p1", 2, "4096").is_ok());
}

#[test]
fn the_kernels_own_stack_gets_what_the_switch_receives_only_where_that_is_asked_for() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    net.on("s", "ip addr add 10.9.0.9/24 dev p0");
    net.on("a", "ping -c 1 -W 2 10.9.0.9");
    let port = ports::open(&packet_socket("p0", 1), pool).unwrap();
    assert_eq!(detail(&*port, "kernel-stack"), "blocked");
    assert!(!net.try_on("a", "ping -c 1 -W 1 10.9.0.9").succeeded(), "the kernel answered");
    drop(port);
    net.on("a", "ping -c 1 -W 2 10.9.0.9");
    let port = ports::open(&packet_socket("p0", 1).with("kernel-stack", "true"), pool).unwrap();
    assert_eq!(detail(&*port, "kernel-stack"), "receives too");
    net.on("a", "ping -c 1 -W 2 10.9.0.9");
}

#[test]
fn tags_that_the_kernel_took_out_are_put_back() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut v0, mut v1] = veth_pair(&net, pool, "up");
    let (mut tx, mut rx) = (v0.take_tx_queues(1).remove(0), v1.take_rx_queues().remove(0));
    let mut cache = pool.cache();
    for protocol in [[0x81, 0x00], [0x88, 0xa8]] {
        let mut frame = ports::null::udp_frame(100, 1);
        frame.splice(12..12, [protocol[0], protocol[1], 0x60, 0x05]);
        let mut batch = packet::Batch::new();
        batch.push(cache.alloc_frame(&frame).unwrap());
        tx.tx_burst(&mut cache, &mut batch);
        let mut seen = Vec::new();
        wait_for("the tagged frame", || {
            rx.rx_burst(&mut cache, &mut batch);
            seen.extend(batch.iter().map(|p| p.data().to_vec()));
            cache.free_all(&mut batch);
            seen.contains(&frame)
        });
    }
    rx.close(&mut cache);
    drop(cache);
    assert_whole(pool);
}

/// A TCP segment of `len` bytes of payload behind a label, which its sender left to segmentation.
fn labelled_segment(cache: &mut packet::PoolCache, len: usize) -> packet::Packet {
    let compose = wire::Compose::ethernet(wire::EthAddr([2; 6]), wire::EthAddr([4; 6]));
    let compose = compose.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).tcp(1, 2);
    let mut frame = compose.payload(&vec![7; len]).build().unwrap();
    let pseudo = wire::checksum::pseudo_v4(
        [10, 0, 0, 1].into(),
        [10, 0, 0, 2].into(),
        wire::ip::IpProtocol::TCP,
        (20 + len) as u16,
    );
    frame[50..52].copy_from_slice(&pseudo.fold().to_be_bytes());
    // Label 16, the bottom of the stack.
    frame.splice(12..14, [0x88, 0x47, 0, 1, 1, 64]);
    let mut packet = cache.alloc_frame(&frame).unwrap();
    packet.flags.set(packet::PacketFlags::CSUM_PARTIAL);
    packet.flags.set(packet::PacketFlags::GSO_TCP);
    (packet.csum_start, packet.csum_offset, packet.gso_size) = (38, 16, 1000);
    packet
}

/// A guest may claim anything of a packet: that the kernel cannot cut it costs nobody else's packets.
#[test]
fn a_segment_that_the_kernel_cannot_cut_holds_up_none_behind_it() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut v0, mut v1] = veth_pair(&net, pool, "up");
    let (mut tx, mut rx) = (v0.take_tx_queues(1).remove(0), v1.take_rx_queues().remove(0));
    let mut cache = pool.cache();
    let mut batch = packet::Batch::new();
    let frame = |kind: u8, len: usize| [&[2; 12][..], &[0x88, kind], &vec![7; len]].concat();
    for len in [1_500, 5_000] {
        // What no protocol segments, in one chunk and in several.
        let mut segment = cache.alloc_frame(&frame(0xb6, len)).unwrap();
        segment.flags.set(packet::PacketFlags::CSUM_PARTIAL);
        segment.flags.set(packet::PacketFlags::GSO_TCP);
        (segment.csum_start, segment.csum_offset, segment.gso_size) = (34, 16, 1000);
        batch.push(segment);
        batch.push(cache.alloc_frame(&frame(0xb5, 100)).unwrap());
    }
    tx.tx_burst(&mut cache, &mut batch);
    assert!(batch.is_empty(), "{} are left", batch.len());
    let stats = v0.stats();
    assert_eq!((stats.tx_packets, stats.tx_dropped + stats.tx_errors), (2, 2));
    let mut came = 0;
    wait_for("both others", || {
        rx.rx_burst(&mut cache, &mut batch);
        came += batch.iter().filter(|p| p.data()[12..14] == [0x88, 0xb5]).count();
        cache.free_all(&mut batch);
        came == 2
    });
    rx.close(&mut cache);
    tx.close(&mut cache);
    drop(cache);
    assert_whole(pool);
}

/// The socket tells of the link before it gives the frame that waits behind its slot of the ring.
#[test]
fn frames_that_came_before_the_link_went_down_are_received_as_they_are() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut v0, mut v1] = veth_pair(&net, pool, "mtu 9000 up");
    let (mut tx, mut rx) = (v0.take_tx_queues(1).remove(0), v1.take_rx_queues().remove(0));
    let mut cache = pool.cache();
    let mut batch = packet::Batch::new();
    let numbers = [1, 2, 3, 4u8];
    for n in numbers {
        let frame = [&[2; 12][..], &[0x88, 0xb5], &vec![n; 5_000]].concat();
        batch.push(cache.alloc_frame(&frame).unwrap());
    }
    tx.tx_burst(&mut cache, &mut batch);
    net.on("s", "ip link set v1 down");
    let mut came = Vec::new();
    wait_for("all of them", || {
        rx.rx_burst(&mut cache, &mut batch);
        let ours = batch.iter().filter(|p| p.data()[12..14] == [0x88, 0xb5]);
        came.extend(ours.map(|p| p.data()[14]));
        cache.free_all(&mut batch);
        came.len() == numbers.len()
    });
    assert_eq!((&came[..], v1.stats().rx_dropped), (&numbers[..], 0));
    rx.close(&mut cache);
    tx.close(&mut cache);
    drop(cache);
    assert_whole(pool);
}

#[test]
fn segments_behind_labels_are_cut_up_before_the_kernel_has_them() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    netlink::create_veth("v0", "v1").unwrap();
    let mut tap = open("t0", "tap", 1, pool);
    for name in ["v0", "v1", "t0"] {
        net.on("s", &format!("ip link set {name} up"));
    }
    let mut v0 = ports::open(&packet_socket("v0", 2), pool).unwrap();
    let mut cache = pool.cache();
    for (from, at) in [(&mut tap, "t0"), (&mut v0, "v1")] {
        let mut at = ports::open(&packet_socket(at, 3), pool).unwrap();
        let (mut tx, mut rx) = (from.take_tx_queues(1).remove(0), at.take_rx_queues().remove(0));
        let mut batch = packet::Batch::new();
        batch.push(labelled_segment(&mut cache, 9_500));
        tx.tx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty());
        let mut lens = Vec::new();
        wait_for("the segments", || {
            rx.rx_burst(&mut cache, &mut batch);
            let labelled = batch.iter().filter(|p| p.data()[12..14] == [0x88, 0x47]);
            lens.extend(labelled.map(|p| p.len()));
            cache.free_all(&mut batch);
            !lens.is_empty() && lens.iter().sum::<usize>() >= 9_500
        });
        assert_eq!(lens, [[1058; 9].to_vec(), vec![558]].concat());
        assert_eq!(from.stats().tx_packets, 10);
        rx.close(&mut cache);
        tx.close(&mut cache);
    }
    drop(cache);
    assert_whole(pool);
}

#[test]
fn a_packet_sockets_interface_goes_down_and_up_and_away_under_traffic() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = ports::open(&packet_socket("p0", 1), pool).unwrap();
    let mut p1 = ports::open(&packet_socket("p1", 2), pool).unwrap();
    let forwarder = Forwarder::start(pool, [&mut *p0, &mut *p1]);
    let _server = net.spawn_on("b", "iperf3 -s -1 -p 5201");
    wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
    let _client = net.spawn_on("a", "iperf3 -c 10.9.0.2 -p 5201 -t 30");
    wait_for("traffic", || p1.stats().tx_packets > 1000);
    net.on("s", "ip link set p1 down");
    wait_for("drops while the interface is down", || p1.stats().tx_dropped > 0);
    assert_eq!((p1.status().link, p1.status().admin_up), (LinkState::Down, false));
    p1.set_admin_up(true).unwrap();
    let before = p1.stats().tx_packets;
    wait_for("traffic again", || p1.stats().tx_packets > before + 100);
    net.on("s", "ip link del p1");
    let report = forwarder.report.clone();
    wait_for("the queue to say so", || report.gone.load(Ordering::Relaxed) == 1);
    assert_eq!(p1.status().error.as_deref(), Some("the interface is gone"));
    forwarder.stop();
    drop((p0, p1));
    assert_whole(pool);
}
