//! Ports on the kernel's own interfaces other than AF_XDP's: taps moved into the hosts' namespaces, packet sockets on
//! veth pairs.
#![allow(unsafe_code)]

mod rig;

use base::PortNo;
use packet::{LinkState, Pool, PoolConfig, Port};
use ports::{PortSpec, netlink};
use rig::{Forwarder, Net, try_run, wait_for};
use std::sync::atomic::Ordering;

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
    std::thread::sleep(std::time::Duration::from_millis(300));
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
    std::thread::sleep(std::time::Duration::from_millis(300));
    let _client = net.spawn_on("a", "iperf3 -c 10.8.0.2 -p 5201 -t 20");
    wait_for("traffic", || b.stats().tx_packets > 1000);
    net.on("b", "ip link set tap0 down");
    wait_for("drops while the interface is down", || b.stats().tx_dropped > 0);
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
    assert_eq!((status.link, status.admin_up, status.error), (LinkState::Up, true, None));
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
fn links_are_made_changed_watched_and_removed_over_netlink() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let mut events = netlink::LinkEvents::new().unwrap();
    netlink::create_veth("v0", "v1").unwrap();
    let link = netlink::link_by_name("v0").unwrap();
    assert!(!link.admin_up && !link.is_running);
    let change =
        netlink::LinkChange { up: Some(true), mtu: Some(1300), mac: Some([2, 1, 2, 3, 4, 5]), netns: None };
    netlink::set_link(link.ifindex, &change).unwrap();
    let changed = netlink::link_by_index(link.ifindex).unwrap();
    assert_eq!((changed.admin_up, changed.mtu, changed.mac), (true, 1300, [2, 1, 2, 3, 4, 5]));
    assert!(!changed.is_running, "the other end is down");
    netlink::add_address(link.ifindex, "10.7.0.1".parse().unwrap(), 24).unwrap();
    netlink::add_address(link.ifindex, "fd07::1".parse().unwrap(), 64).unwrap();
    let shown = net.on("s", "ip addr show dev v0");
    assert!(shown.contains("10.7.0.1/24") && shown.contains("fd07::1/64"), "{shown}");
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
    assert!(!try_run("ip link show dev v0").status.success());
}
