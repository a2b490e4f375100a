//! Ports on the kernel's own interfaces other than AF_XDP's: taps moved into the hosts' namespaces, links.
#![allow(unsafe_code)]

use crate::rig::{Forwarder, Net};
use base::PortNo;
use packet::{Batch, LinkState, Pool, PoolConfig, Port};
use ports::{PortSpec, netlink};
use std::sync::atomic::Ordering;
use testkit::lab::{try_run_line, wait_for};

/// Tests take the machine's two cores one after another: their figures and time-outs mean something then.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

pub(crate) fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(crate) fn pool() -> &'static Pool {
    Pool::new(PoolConfig { chunks: 8 * 1024, chunk_bytes: 2048, huge_pages: false }).unwrap()
}

pub(crate) fn open(name: &str, kind: &str, number: u32, pool: &'static Pool) -> Box<dyn Port> {
    ports::open(&PortSpec::new(name, kind, PortNo(number)), pool).unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub(crate) fn packet_socket(name: &str, number: u32) -> PortSpec {
    PortSpec::new(name, "system", PortNo(number)).with("driver", "af_packet")
}

pub(crate) fn detail(port: &dyn Port, key: &str) -> String {
    let details = port.status().details;
    details.into_iter().find(|(k, _)| k == key).map(|(_, value)| value).unwrap_or_default()
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
pub(crate) fn iperf(net: &Net, address: &str, options: &str) -> f64 {
    let _server = net.spawn_on("b", "iperf3 -s -1 -p 5201");
    wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
    let text = net.on("a", &format!("iperf3 -c {address} -p 5201 -f m {options}"));
    let line = text.lines().rev().find(|line| line.contains("receiver")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "Mbits/sec").unwrap_or_else(|| panic!("{text}"));
    words[at - 1].parse().unwrap()
}

pub(crate) fn assert_whole(pool: &Pool) {
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
