//! Ports on the kernel's own interfaces other than AF_XDP's: taps moved into the hosts' namespaces, packet
//! sockets on veth pairs.
#![allow(unsafe_code)]

use crate::rig::{Forwarder, Net};
use base::PortNo;
use packet::{Batch, LinkState, Pool, PoolConfig, Port};
use ports::{PortMemory, PortSpec, netlink};
use std::sync::atomic::Ordering;
use testkit::lab::{try_run_line, wait_for};

/// Tests take the machine's two cores one after another: their figures and time-outs mean something then.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pool() -> &'static Pool {
    Pool::new(PoolConfig { chunks: 8 * 1024, chunk_bytes: 2048, huge_pages: false }).unwrap()
}

fn open(name: &str, kind: &str, number: u32, pool: &'static Pool) -> Box<dyn Port> {
    ports::open(&PortSpec::new(name, kind, PortNo(number)), pool).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Two taps, moved to the hosts as `tap0` with 10.8.0.1 and 10.8.0.2.
fn tap_pair(net: &Net, pool: &'static Pool, queues: &str) -> [Box<dyn Port>; 2] {
    [("a", 1), ("b", 2)].map(|(host, n)| {
        let spec = PortSpec::new(&format!("tap{host}"), "tap", PortNo(n)).with("n_rxq", queues);
        let port = ports::open(&spec, pool).unwrap_or_else(|e| panic!("tap{host}: {e}"));
        net.on("s", &format!("ip link set tap{host} netns {} name tap0", net.name(host)));
        net.on(host, &format!("ip addr add 10.8.0.{n}/24 dev tap0"));
        net.on(host, &format!("ip addr add fd08::{n}/64 dev tap0 nodad"));
        net.on(host, "ip link set tap0 up");
        port
    })
}

/// Mbit/s that iperf3 reports as received at `address`, which is host `b`'s.
fn iperf(net: &Net, address: &str, options: &str) -> f64 {
    let _server = net.spawn_on("b", "iperf3 -s -1 -p 5201");
    wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
    let text = net.on("a", &format!("iperf3 -c {address} -p 5201 -f m {options}"));
    let line = text.lines().rev().find(|line| line.contains("receiver")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "Mbits/sec").unwrap_or_else(|| panic!("{text}"));
    words[at - 1].parse().unwrap()
}

fn assert_whole(pool: &Pool) {
    assert_eq!(pool.stats().free, pool.stats().total, "chunks are missing");
}

#[test]
fn tcp_from_tap_to_tap_crosses_in_whole_segments() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut a, mut b] = tap_pair(&net, pool, "1");
    let forwarder = Forwarder::start(pool, [&mut *a, &mut *b]);
    net.on("a", "ping -c 3 -i 0.2 -W 2 10.8.0.2");
    net.on("a", "ping -c 3 -i 0.2 -W 2 fd08::2");
    let there = iperf(&net, "10.8.0.2", "-t 2");
    let six = iperf(&net, "fd08::2", "-t 1");
    let udp = iperf(&net, "10.8.0.2", "-t 1 -u -b 200M");
    eprintln!("TCP {there}, over IPv6 {six}, UDP {udp} Mbit/s");
    let report = forwarder.stop();
    eprintln!("{report:?}\n{:?}\n{:?}", a.stats(), b.stats());
    assert!(report.chained.load(Ordering::Relaxed) > 100, "segments were cut up: {report:?}");
    assert!(there > 500.0 && six > 500.0 && udp > 150.0, "{there} {six} {udp} Mbit/s");
    assert_eq!(a.stats().rx_packets, b.stats().tx_packets + b.stats().tx_dropped + b.stats().tx_errors);
    assert_eq!((a.stats().rx_errors, b.stats().tx_errors, b.stats().tx_mtu_drops), (0, 0, 0));
    let status = a.status();
    assert_eq!((status.link, status.admin_up, status.error), (LinkState::Up, true, None));
    assert_whole(pool);
}

#[test]
fn a_tap_has_several_queues() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut a, mut b] = tap_pair(&net, pool, "3");
    let forwarder = Forwarder::start(pool, [&mut *a, &mut *b]);
    net.on("a", "ping -c 3 -i 0.2 -W 2 10.8.0.2");
    let four = iperf(&net, "10.8.0.2", "-t 1 -P 4");
    assert!(four > 300.0, "{four}");
    forwarder.stop();
    assert_whole(pool);
}

#[test]
fn an_interface_deleted_under_traffic_is_a_state_and_leaks_nothing() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut a, mut b] = tap_pair(&net, pool, "1");
    let forwarder = Forwarder::start(pool, [&mut *a, &mut *b]);
    let _server = net.spawn_on("b", "iperf3 -s -1 -p 5201");
    wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
    let _client = net.spawn_on("a", "iperf3 -c 10.8.0.2 -p 5201 -t 20");
    wait_for("traffic", || b.stats().tx_packets > 1000);
    net.on("b", "ip link set tap0 down");
    wait_for("drops while the interface is down", || b.stats().tx_dropped > 0);
    assert!(b.stats().tx_down_drops > 0, "for a reason of their own: {:?}", b.stats());
    net.on("b", "ip link set tap0 up");
    let before = b.stats().tx_packets;
    wait_for("traffic again", || b.stats().tx_packets > before + 100);
    net.on("b", "ip link set tap0 mtu 1000");
    wait_for("the new MTU", || b.status().mtu == 1000);
    net.on("b", "ip link del tap0");
    let report = forwarder.report.clone();
    wait_for("the queue to say so", || report.gone.load(Ordering::Relaxed) == 1);
    wait_for("the reason in the status", || b.status().error.is_some());
    assert!(b.status().error.unwrap().contains("tapb"));
    assert_eq!(b.status().link, LinkState::Down);
    forwarder.stop();
    assert_whole(pool);
}

#[test]
fn the_bridges_own_port_is_there_while_the_switch_runs_and_gone_afterwards() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut spec = PortSpec::new("br0", "internal", PortNo(1));
    (spec.mac, spec.mtu) = (Some([2, 0, 0, 0, 9, 9]), Some(1400));
    let mut port = ports::open(&spec, pool).unwrap();
    let status = port.status();
    assert_eq!((port.kind(), status.mac, status.mtu), ("internal", [2, 0, 0, 0, 9, 9], 1400));
    assert_eq!((status.link, status.admin_up, status.error), (LinkState::Down, false, None));
    port.set_admin_up(true).unwrap();
    assert_eq!((port.status().link, port.status().admin_up), (LinkState::Up, true));
    port.set_mtu(9000).unwrap();
    assert_eq!(netlink::link_by_name("br0").unwrap().mtu, 9000);
    assert!(port.set_mtu(70_000).is_err());
    port.set_admin_up(false).unwrap();
    assert_eq!((port.status().link, port.status().admin_up), (LinkState::Down, false));
    let queues = (port.take_rx_queues(), port.take_tx_queues(1));
    drop(port);
    assert!(netlink::link_by_name("br0").is_err(), "it goes with the port, not with the last queue");
    drop(queues);
    assert_whole(pool);
}

#[test]
fn a_tap_that_was_there_before_stays_and_a_name_that_is_taken_is_an_error() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    net.on("s", "ip tuntap add dev old mode tap");
    drop(open("old", "tap", 1, pool));
    assert!(netlink::link_by_name("old").is_ok());
    let taken = ports::open(&PortSpec::new("p0", "tap", PortNo(2)), pool).err().expect("p0 is a veth");
    assert!(taken.to_string().contains("p0"), "{taken}");
    assert!(ports::open(&PortSpec::new("much-too-long-a-name", "tap", PortNo(2)), pool).is_err());
}

#[test]
fn a_device_with_an_owner_outlives_its_port_and_is_taken_up_again_by_the_same_owner_only() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let spec = |kind: &str, owner: Option<&str>| PortSpec {
        owner: owner.map(String::from),
        ..PortSpec::new("br0", kind, PortNo(1))
    };
    let open = |spec: PortSpec| ports::open(&spec, pool).unwrap_or_else(|e| panic!("{e}"));
    drop(open(spec("internal", Some("ours"))));
    let made = netlink::link_by_name("br0").unwrap();
    assert_eq!((made.alias.as_str(), made.admin_up), ("ours", false));
    net.on("s", "ip addr add 192.0.2.1/24 dev br0");
    net.on("s", "ip link set br0 up");

    let port = open(spec("internal", Some("ours")));
    assert_eq!(port.own_device(), Some(made.ifindex));
    assert!(port.status().admin_up, "whoever administers the machine has set it up");
    drop(port);
    assert!(net.on("s", "ip addr show br0").contains("192.0.2.1"));

    // Several queues cannot be had on a device that was made with one: it is made anew.
    let port = open(spec("internal", Some("ours")).with("n_rxq", "2"));
    let remade = netlink::link_by_name("br0").unwrap();
    assert_ne!(remade.ifindex, made.ifindex);
    assert_eq!(port.own_device(), Some(remade.ifindex));
    drop(port);
    netlink::delete_links(&[remade.ifindex]).unwrap();

    // Somebody else's stays whose it is.
    drop(open(spec("internal", Some("theirs"))));
    let port = open(spec("internal", Some("ours")));
    assert_eq!(port.own_device(), None);
    drop(port);
    let theirs = netlink::link_by_name("br0").unwrap();
    assert_eq!(theirs.alias, "theirs");
    netlink::delete_link(theirs.ifindex).unwrap();

    // In another namespace the next process would not find it: it goes with this one.
    let port = open(spec("tap", Some("ours")));
    net.on("s", &format!("ip link set br0 netns {}", net.name("a")));
    let status = port.status();
    assert_eq!(status.error, None);
    assert_eq!(port.own_device(), None);
    drop(port);
    wait_for("it to go", || !net.try_on("a", "ip link show br0").succeeded());
}

#[test]
fn many_links_are_removed_at_once_and_nobody_elses() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let count = || netlink::links().unwrap().len();
    let before = count();
    for n in 0..10 {
        netlink::create_veth(&format!("v{n}"), &format!("w{n}")).unwrap();
    }
    net.on("s", "ip link set v9 group 5");
    let index = |n: usize| netlink::link_by_name(&format!("v{n}")).unwrap().ifindex;
    let mut indexes: Vec<u32> = (0..8).map(index).collect();
    netlink::delete_link(indexes[3]).unwrap();
    // Gone already, and never there: no error.
    indexes.push(u32::MAX >> 1);
    netlink::delete_links(&indexes).unwrap();
    assert_eq!(count(), before + 4);
    assert!(net.on("s", "ip link show v9").contains("group 5"));
    netlink::delete_links(&[index(8)]).unwrap();
    assert_eq!(count(), before + 2);
    netlink::delete_links(&[]).unwrap();
}

#[test]
fn links_are_made_changed_watched_and_removed_over_netlink() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let mut events = netlink::LinkEvents::new().unwrap();
    netlink::create_veth("v0", "v1").unwrap();
    let link = netlink::link_by_name("v0").unwrap();
    assert!(!link.admin_up && !link.is_running);
    let change = netlink::LinkChange {
        up: Some(true),
        mtu: Some(1300),
        mac: Some([2, 1, 2, 3, 4, 5]),
        ..Default::default()
    };
    netlink::set_link(link.ifindex, &change).unwrap();
    let changed = netlink::link_by_index(link.ifindex).unwrap();
    assert_eq!((changed.admin_up, changed.mtu, changed.mac), (true, 1300, [2, 1, 2, 3, 4, 5]));
    assert!(!changed.is_running, "the other end is down");
    let host = std::fs::File::open(format!("/run/netns/{}", net.name("a"))).unwrap();
    let other = netlink::link_by_name("v1").unwrap();
    let netns = Some(std::os::fd::AsRawFd::as_raw_fd(&host));
    netlink::set_link(other.ifindex, &netlink::LinkChange { netns, ..Default::default() }).unwrap();
    net.on("a", "ip link show dev v1");
    netlink::delete_link(link.ifindex).unwrap();
    assert_eq!(netlink::link_by_index(link.ifindex).unwrap_err().errno(), Some(libc::ENODEV));
    let mut seen = Vec::new();
    wait_for("the event of the removal", || {
        seen.extend(events.take());
        seen.contains(&netlink::LinkEvent::Gone { ifindex: link.ifindex })
    });
    let is_the_change = |e: &netlink::LinkEvent| matches!(e, netlink::LinkEvent::Changed(l) if l.mtu == 1300);
    assert!(seen.iter().any(is_the_change));
    assert!(!try_run_line("ip link show dev v0").succeeded());
}

fn packet_socket(name: &str, number: u32) -> PortSpec {
    PortSpec::new(name, "system", PortNo(number)).with("driver", "af_packet")
}

/// Packet sockets on both ends of a new veth pair; `settings` are of `ip link set`.
fn veth_pair(net: &Net, pool: &'static Pool, settings: &str) -> [Box<dyn Port>; 2] {
    netlink::create_veth("v0", "v1").unwrap();
    for name in ["v0", "v1"] {
        net.on("s", &format!("ip link set {name} {settings}"));
    }
    [("v0", 1), ("v1", 2)].map(|(name, n)| ports::open(&packet_socket(name, n), pool).unwrap())
}

fn detail(port: &dyn Port, key: &str) -> String {
    let details = port.status().details;
    details.into_iter().find(|(k, _)| k == key).map(|(_, value)| value).unwrap_or_default()
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

#[test]
fn a_renamed_interface_serves_its_port_which_tells_the_new_name() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    for spec in [packet_socket("p0", 1), PortSpec::new("p0", "afxdp", PortNo(1))] {
        let port = ports::open(&spec, pool()).unwrap();
        for (from, to, told) in [("p0", "q0", "q0"), ("q0", "p0", "")] {
            net.on("s", &format!("ip link set {from} name {to}"));
            assert_eq!((detail(&*port, "renamed_to"), port.status().error), (told.into(), None));
        }
    }
}

#[test]
fn a_system_port_takes_the_best_driver_and_says_which_and_why() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    // Between containers TCP is to cross in segments of 64 KB, which AF_XDP cannot do.
    let veth = PortSpec::new("p0", "system", PortNo(1));
    let whole = ports::open(&veth, pool).unwrap();
    assert_eq!(detail(&*whole, "driver"), "af_packet (the veth passes TCP segments whole)");
    assert_eq!(detail(&*whole, "kernel-stack"), "blocked");
    drop(whole);
    let asked = ports::open(&veth.clone().with("xdp-mode", "generic"), pool).unwrap();
    assert_eq!(detail(&*asked, "driver"), "af_xdp");
    drop(asked);
    net.on("s", "ethtool -K p0 tso off");
    let best = ports::open(&veth, pool).unwrap();
    assert_eq!((best.kind(), detail(&*best, "driver").as_str()), ("system", "af_xdp"));
    // Its program is in the way of a second one.
    let second = ports::open(&PortSpec::new("p0", "system", PortNo(2)), pool).unwrap();
    assert_eq!(detail(&*second, "driver"), "af_packet");
    assert!(!detail(&*second, "af_xdp-error").is_empty());
    let error = |spec: &PortSpec| ports::open(spec, pool).err().unwrap().to_string();
    assert_eq!(error(&PortSpec::new("none", "system", PortNo(3))), "no interface is named none");
    assert!(error(&packet_socket("p1", 3).with("driver", "xdp")).contains("af_xdp or af_packet"));
    drop((best, second));
    assert_whole(pool);
}

#[test]
fn eight_idle_tap_queues_cost_next_to_nothing_and_wake_for_each_packet() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let [mut a, mut b] = tap_pair(&net, pool, "4");
    let forwarder = Forwarder::start(pool, [&mut *a, &mut *b]);
    net.on("a", "ping -c 5 -i 0.2 -W 2 10.8.0.2");
    let start = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let report = forwarder.stop();
    let cpu_ms = report.cpu_ns.load(Ordering::Relaxed) / 1_000_000;
    eprintln!("{cpu_ms} ms of CPU time in {:?}: {report:?}", start.elapsed());
    // Start, neighbour discovery, ten packets of ping, and three idle seconds.
    assert!(cpu_ms < 60 && report.sleeps.load(Ordering::Relaxed) > 10, "{cpu_ms} ms: {report:?}");
    assert_whole(pool);
}

/// Of a host in the same network, and of one behind a router: once the kernel knows the address.
#[test]
fn the_first_host_on_the_way_is_that_of_the_kernels_routes_and_neighbours() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    for words in [
        "link add hop0 type veth peer name hop1",
        "addr add 10.55.0.1/24 dev hop0",
        "link set hop0 up",
        "link set hop1 up",
        "route add 10.66.0.0/16 via 10.55.0.254",
        "neigh add 10.55.0.254 lladdr 02:00:00:00:00:fe dev hop0 nud permanent",
        "neigh add 10.55.0.7 lladdr 02:00:00:00:00:07 dev hop0 nud permanent",
    ] {
        net.on("s", &format!("ip {words}"));
    }
    let hop = |address: &str| netlink::next_hop(address.parse().unwrap());
    assert_eq!(hop("10.66.0.5"), Some([2, 0, 0, 0, 0, 0xfe]), "a router's");
    assert_eq!(hop("10.55.0.7"), Some([2, 0, 0, 0, 0, 7]), "its own");
    assert_eq!((hop("10.55.0.8"), hop("10.77.0.1")), (None, None), "unknown, and without a route");
    net.on("s", "ip neigh del 10.55.0.254 dev hop0");
    assert_eq!(hop("10.66.0.5"), None);
}

#[test]
fn a_receive_queue_gives_no_more_packets_at_once_than_the_pool_allows() {
    let _alone = alone();
    for kind in ["system", "afxdp"] {
        let net = Net::new("");
        net.enter("s");
        let pool = pool();
        pool.limit_bursts(3);
        let mut port = open("p0", kind, 1, pool);
        let mut queues = port.take_rx_queues();
        net.on("a", "ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent");
        // Nobody answers.
        net.try_on("a", "ping -c 20 -l 20 -W 1 10.9.0.2");
        let mut cache = pool.cache();
        let (mut bursts, mut batch) = (Vec::new(), Batch::new());
        wait_for("the frames", || {
            queues[0].rx_burst(&mut cache, &mut batch);
            bursts.push(batch.len());
            cache.free_all(&mut batch);
            bursts.iter().sum::<usize>() >= 20
        });
        assert_eq!(bursts.iter().max(), Some(&3), "{kind}: {bursts:?}");
        queues[0].close(&mut cache);
        drop((cache, port));
    }
}
