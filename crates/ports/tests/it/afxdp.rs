//! AF_XDP ports on real interfaces: two hosts in namespaces of their own, and between them two ports and a
//! forwarder.
#![allow(unsafe_code)]

use crate::rig::{Forwarder, Net};
use base::PortNo;
use packet::{Batch, Pool, PoolConfig, Port};
use ports::PortSpec;
use ports::af_xdp::AfXdpPort;
use std::sync::atomic::Ordering;
use testkit::lab::wait_for;

/// Tests take the machine's two cores one after another: their figures and time-outs mean something then.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn pool() -> &'static Pool {
    Pool::new(PoolConfig { chunks: 16 * 1024, chunk_bytes: 2048, huge_pages: false }).unwrap()
}

fn spec(name: &str, number: u32) -> PortSpec {
    PortSpec::new(name, "afxdp", PortNo(number))
}

fn detail(port: &dyn Port, key: &str) -> String {
    let details = port.status().details;
    details.into_iter().find(|(k, _)| k == key).map(|(_, value)| value).unwrap_or_default()
}

/// Below this rate TCP does not work, whatever else the machine does at the time: a lost or broken packet in
/// every window is what a wrong checksum looks like.
const MBITS_MIN: f64 = 50.0;

/// Mbit/s that iperf3 reports as received.
fn iperf(net: &Net, options: &str) -> f64 {
    iperf_to(net, "10.9.0.2", options)
}

fn iperf_to(net: &Net, address: &str, options: &str) -> f64 {
    let _server = net.spawn_on("b", "iperf3 -s -1 -p 5201");
    let mut text = String::new();
    wait_for("the server to listen, and a run of iperf3", || {
        let output = net.try_on("a", &format!("iperf3 -c {address} -p 5201 -f m {options}"));
        text = output.out.clone();
        output.succeeded()
    });
    let line = text.lines().rev().find(|line| line.contains("receiver")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "Mbits/sec").unwrap_or_else(|| panic!("{text}"));
    words[at - 1].parse().unwrap()
}

#[test]
fn hosts_reach_each_other_by_ping_tcp_and_udp_with_no_ethtool_step() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = AfXdpPort::open(&spec("p0", 1), pool).unwrap();
    let mut p1 = AfXdpPort::open(&spec("p1", 2), pool).unwrap();
    assert_eq!(detail(&p0, "xdp-mode"), "native");
    let forwarder = Forwarder::start(pool, [&mut p0, &mut p1]);
    net.on("a", "ping -c 3 -i 0.2 -W 2 10.9.0.2");
    net.on("a", "ping -c 3 -i 0.2 -W 2 fd09::2");
    let there = iperf(&net, "-t 2");
    let back = iperf(&net, "-t 2 -R");
    let udp = iperf(&net, "-t 1 -u -b 50M");
    eprintln!("TCP {there} and {back} Mbit/s, UDP {udp} Mbit/s");
    assert!(there > MBITS_MIN && back > MBITS_MIN && udp > 25.0, "{there} {back} {udp}");
    let report = forwarder.stop();
    assert!(report.unfinished.load(Ordering::Relaxed) > 1000, "veth left no checksum unfinished: {report:?}");
    drop((p0, p1));
    let stats = pool.stats();
    assert_eq!(stats.free, stats.total, "every chunk came back");
    wait_for("the programs go with the ports", || net.xdp_of("p0").is_none() && net.xdp_of("p1").is_none());
}

/// Two ports with `options`, and a forwarder between them; `work` runs while it forwards. Then everything
/// must be back: chunks in the pool, no program attached.
fn with_forwarder(
    net: &Net,
    options: &[(&str, &str)],
    work: impl FnOnce(&mut [AfXdpPort; 2], &crate::rig::Report),
) {
    net.enter("s");
    let pool = pool();
    let open = |name, number| {
        let spec = options.iter().fold(spec(name, number), |spec, (key, value)| spec.with(key, value));
        AfXdpPort::open(&spec, pool).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let mut ports = [open("p0", 1), open("p1", 2)];
    let [p0, p1] = &mut ports;
    let forwarder = Forwarder::start(pool, [p0, p1]);
    work(&mut ports, &forwarder.report);
    forwarder.stop();
    drop(ports);
    let stats = pool.stats();
    assert_eq!(stats.free, stats.total, "every chunk came back");
    let attached =
        |p| net.try_on("s", "true").succeeded() && has_interface(net, p) && net.xdp_of(p).is_some();
    wait_for("the programs go with the ports", || !attached("p0") && !attached("p1"));
}

fn has_interface(net: &Net, port: &str) -> bool {
    net.try_on("s", &format!("ip link show dev {port}")).succeeded()
}

/// How many frames an interface of the switch has sent.
fn transmitted(net: &Net, interface: &str) -> u64 {
    let shown = net.on("s", "cat /proc/net/dev");
    let line = shown.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{interface}:")));
    // Behind eight columns of what was received, and bytes.
    line.unwrap().split_whitespace().nth(9).unwrap().parse().unwrap()
}

#[test]
fn frames_that_the_kernel_has_not_taken_are_not_given_up_as_in_flight() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    // Behind a bridge, frames wait for a slow link: so long, the kernel takes no more than the ring holds.
    for line in [
        "ip link add out type veth peer name in",
        "ip link add slow type veth peer name far",
        "ip link add b0 type bridge",
        "ip link set in master b0",
        "ip link set slow master b0",
        "tc qdisc add dev slow root tbf rate 256kbit burst 1600 limit 1000000",
    ] {
        net.on("s", line);
    }
    for name in ["out", "in", "slow", "far", "b0"] {
        net.on("s", &format!("ip link set {name} up"));
    }
    wait_for("the bridge", || net.on("s", "bridge link").matches("state forwarding").count() == 2);
    let pool = pool();
    let mut cache = pool.cache();
    let mut port = AfXdpPort::open(&spec("out", 1).with("n_txq_desc", "64"), pool).unwrap();
    let rx = port.take_rx_queues();
    let mut tx = port.take_tx_queues(1);
    let before = transmitted(&net, "slow");
    for _ in 0..3 {
        let mut batch = Batch::new();
        let frame = [[2; 6], [4; 6], [0x88; 6], [0; 6]].concat().repeat(20);
        batch.extend((0..40).map(|_| cache.alloc_frame(&frame).unwrap()));
        tx[0].tx_burst(&mut cache, &mut batch);
        assert_eq!(batch.len(), 0);
        tx[0].flush(&mut cache);
    }
    while tx[0].has_pending() {
        tx[0].flush(&mut cache);
    }
    wait_for("all frames", || transmitted(&net, "slow") - before >= 120);
    tx[0].flush(&mut cache);
    drop((rx, tx, port));
}

#[test]
fn a_transmit_ring_holds_as_many_frames_as_the_option_says() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut cache = pool.cache();
    let transmitted = || transmitted(&net, "p0");
    for slots in [64, 128, 512] {
        let mut port = AfXdpPort::open(&spec("p0", 1).with("n_txq_desc", &slots.to_string()), pool).unwrap();
        let rx = port.take_rx_queues();
        let mut tx = port.take_tx_queues(1);
        let (before, mut pushed) = (transmitted(), 0);
        // Nothing leaves before the ring is full, as nothing is flushed; but for what the kernel says to its
        // neighbours by itself.
        while transmitted() < before + slots / 2 {
            assert!(pushed <= slots, "{pushed} frames are in {slots} slots");
            let mut batch = Batch::new();
            for _ in 0..32 {
                batch.push(cache.alloc_frame(&[0x88; 60]).unwrap());
            }
            tx[0].tx_burst(&mut cache, &mut batch);
            pushed += 32 - batch.len() as u64;
            cache.free_all(&mut batch);
        }
        assert_eq!(pushed, slots + 32, "the burst behind a full ring made room");
        drop((rx, tx, port));
    }
}

#[test]
fn jumbo_frames_pass_in_several_buffers() {
    let _alone = alone();
    let net = Net::new("");
    net.set_mtu(9000);
    with_forwarder(&net, &[], |ports, report| {
        assert_eq!(detail(&ports[0], "xdp-multi-buffer"), "true");
        net.on("a", "ping -c 3 -i 0.2 -W 2 -M do -s 8972 10.9.0.2");
        net.on("a", "ping -c 3 -i 0.2 -W 2 -M do -s 8952 fd09::2");
        let (there, back) = (iperf(&net, "-t 2"), iperf(&net, "-t 2 -R"));
        eprintln!("TCP at MTU 9000: {there} and {back} Mbit/s");
        assert!(there > MBITS_MIN && back > MBITS_MIN, "{there} {back}");
        assert!(report.chained.load(Ordering::Relaxed) > 1000, "{report:?}");
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_dropped_and_counted() {
    let _alone = alone();
    let net = Net::new("");
    net.on("s", "ip link set p0 mtu 9000");
    net.on("a", "ip link set eth0 mtu 9000");
    with_forwarder(&net, &[], |ports, _| {
        net.on("a", "ping -c 1 -W 2 10.9.0.2");
        assert!(!net.try_on("a", "ping -c 2 -i 0.2 -W 1 -M do -s 4000 10.9.0.2").succeeded());
        assert_eq!(ports[1].stats().tx_mtu_drops, 2);
        ports[1].set_mtu(9000).unwrap();
        net.on("b", "ip link set eth0 mtu 9000");
        net.on("a", "ping -c 1 -W 2 -M do -s 4000 10.9.0.2");
    });
}

#[test]
fn generic_mode_carries_tcp_with_the_senders_segmentation_left_on() {
    let _alone = alone();
    let net = Net::new("");
    with_forwarder(&net, &[("xdp-mode", "generic")], |ports, report| {
        assert_eq!(detail(&ports[0], "xdp-mode"), "generic");
        net.on("a", "ping -c 3 -i 0.2 -W 2 10.9.0.2");
        let (there, back) = (iperf(&net, "-t 2"), iperf(&net, "-t 2 -R"));
        eprintln!("TCP in generic mode: {there} and {back} Mbit/s {report:?} {:?}", ports[0].stats());
        assert!(there > MBITS_MIN && back > MBITS_MIN, "{there} {back}");
        for (n, sums) in [(1, "noudpcsum"), (2, "udpcsum")] {
            for (host, own, other) in [("a", 1, 2), ("b", 2, 1)] {
                let way = format!("local 10.9.0.{own} remote 10.9.0.{other} dstport 4789");
                net.on(host, &format!("ip link add t{n} type vxlan id {n} {way} {sums}"));
                net.on(host, &format!("ip addr add 10.7.{n}.{own}/24 dev t{n}"));
                net.on(host, &format!("ip link set t{n} up"));
            }
            let there = iperf_to(&net, &format!("10.7.{n}.2"), "-t 1");
            eprintln!("TCP in VXLAN, {sums}: {there} Mbit/s {:?}", ports[1].stats());
            assert!(there > MBITS_MIN, "{sums}: {there}");
        }
    });
}

#[test]
fn every_queue_of_a_device_is_served() {
    let _alone = alone();
    let net = Net::new("numrxqueues 2 numtxqueues 2");
    with_forwarder(&net, &[], |ports, _| {
        assert_eq!(detail(&ports[0], "n_rxq"), "2");
        let both = iperf(&net, "-t 2 -P 4");
        eprintln!("TCP on two queues: {both} Mbit/s");
        assert!(both > MBITS_MIN, "{both}");
    });
}

#[test]
fn a_device_of_more_queues_than_a_port_opens_is_left_no_others() {
    let _alone = alone();
    let net = Net::new("numrxqueues 70 numtxqueues 70");
    let rx_channels = || net.on("s", "ethtool -l p0").rsplit_once("RX:").unwrap().1[..4].trim().to_string();
    assert_eq!(rx_channels(), "70");
    net.on("a", "ethtool -L eth0 tx 1");
    net.enter("s");
    let pool = pool();
    let port = AfXdpPort::open(&spec("p0", 1).with("n_rxq_desc", "64"), pool).unwrap();
    assert_eq!((detail(&port, "n_rxq").as_str(), rx_channels().as_str()), ("64", "64"));
    drop(port);
    assert_eq!(rx_channels(), "70");
}

#[test]
fn n_rxq_sets_the_devices_channels_and_a_clean_end_sets_them_back() {
    let _alone = alone();
    let net = Net::new("numrxqueues 4 numtxqueues 4");
    let rx_channels = || net.on("s", "ethtool -l p0").rsplit_once("RX:").unwrap().1.trim().chars().next();
    for i in 0..2 {
        net.on("s", &format!("ethtool -L p{i} rx 4 tx 2"));
        net.on(["a", "b"][i], "ethtool -L eth0 rx 2 tx 2");
    }
    with_forwarder(&net, &[("n_rxq", "2")], |ports, _| {
        assert_eq!(detail(&ports[0], "n_rxq"), "2");
        assert_eq!(rx_channels(), Some('2'));
        net.on("a", "ping -c 2 -i 0.2 -W 2 10.9.0.2");
    });
    assert_eq!(rx_channels(), Some('4'));
    net.enter("s");
    // More than the device has: those that there are.
    let port = AfXdpPort::open(&spec("p0", 1).with("n_rxq", "5"), pool()).unwrap();
    assert!(port.status().details.contains(&("n_rxq".into(), "4".into())), "{:?}", port.status());
}

#[test]
fn an_interface_deleted_under_traffic_is_a_state_and_leaks_nothing() {
    let _alone = alone();
    let net = Net::new("");
    with_forwarder(&net, &[], |ports, report| {
        let _server = net.spawn_on("b", "iperf3 -s -p 5201");
        wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
        let _client = net.spawn_on("a", "iperf3 -c 10.9.0.2 -p 5201 -u -b 500M -t 30 --bidir");
        wait_for("traffic", || report.packets.load(Ordering::Relaxed) > 5000);
        net.on("s", "ip link del p1");
        wait_for("the receiver notices", || report.gone.load(Ordering::Relaxed) == 1);
        assert!(ports[1].status().error.is_some());
        assert!(ports[0].status().error.is_none());
        let seen = report.packets.load(Ordering::Relaxed);
        wait_for("more traffic", || report.packets.load(Ordering::Relaxed) > seen + 1000);
    });
}

#[test]
fn link_down_up_and_mtu_changes_under_traffic_do_no_harm() {
    let _alone = alone();
    let net = Net::new("");
    with_forwarder(&net, &[], |ports, report| {
        let _server = net.spawn_on("b", "iperf3 -s -p 5201");
        wait_for("iperf3 to listen", || net.on("b", "ss -Hltn").contains(":5201"));
        let _client = net.spawn_on("a", "iperf3 -c 10.9.0.2 -p 5201 -u -b 300M -t 30 --bidir");
        wait_for("traffic", || report.packets.load(Ordering::Relaxed) > 5000);
        for _ in 0..3 {
            ports[1].set_admin_up(false).unwrap();
            assert_eq!(ports[1].status().link, packet::LinkState::Down);
            let dropped = ports[1].stats().tx_dropped;
            wait_for("packets to be dropped", || ports[1].stats().tx_dropped > dropped);
            ports[1].set_admin_up(true).unwrap();
            ports[0].set_mtu(4000).unwrap();
            let seen = report.packets.load(Ordering::Relaxed);
            wait_for("traffic to go on", || report.packets.load(Ordering::Relaxed) > seen + 1000);
            ports[0].set_mtu(1500).unwrap();
        }
        assert_eq!(report.gone.load(Ordering::Relaxed), 0);
        assert!(ports[1].stats().tx_dropped > 0, "{:?}", ports[1].stats());
        net.on("a", "ping -c 5 -i 0.2 -W 2 10.9.0.2");
    });
}

#[test]
fn a_port_opens_again_at_once_after_it_was_closed() {
    let _alone = alone();
    let net = Net::new("");
    for _ in 0..5 {
        with_forwarder(&net, &[], |_, _| {
            net.on("a", "ping -c 2 -i 0.2 -W 2 10.9.0.2");
        });
    }
}

#[test]
fn a_killed_process_leaves_no_program_and_its_successor_starts_at_once() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    // A fork rather than a helper binary: the child is killed in the middle of forwarding, and never returns.
    // SAFETY: the child uses only this thread's own state, and the allocator, which glibc makes usable after
    // fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call touches no memory. The child must not outlive a test that failed.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let pool = pool();
        let (p0, p1) = (AfXdpPort::open(&spec("p0", 1), pool), AfXdpPort::open(&spec("p1", 2), pool));
        if let (Ok(mut p0), Ok(mut p1)) = (p0, p1) {
            let _forwarder = Forwarder::start(pool, [&mut p0, &mut p1]);
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(1) };
    }
    wait_for("the child forwards", || net.try_on("a", "ping -c 1 -W 1 10.9.0.2").succeeded());
    assert!(net.xdp_of("p0").is_some());
    // SAFETY: the calls touch no memory; the child is ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above; no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    with_forwarder(&net, &[], |_, _| {
        net.on("a", "ping -c 2 -i 0.2 -W 2 10.9.0.2");
    });
    assert!(net.xdp_of("p0").is_none());
}

#[test]
fn tcp_inside_a_hosts_vxlan_tunnel_passes() {
    let _alone = alone();
    let net = Net::new("");
    for (i, host) in ["a", "b"].iter().enumerate() {
        let (local, remote) = (i + 1, 2 - i);
        net.on(host, "ip addr flush dev eth0 scope global");
        net.on(host, &format!("ip addr add 10.8.0.{local}/24 dev eth0"));
        let tunnel = format!("id 5 local 10.8.0.{local} remote 10.8.0.{remote} dstport 4789");
        net.on(host, &format!("ip link add vx0 mtu 1400 type vxlan {tunnel}"));
        net.on(host, &format!("ip addr add 10.9.0.{local}/24 dev vx0"));
        net.on(host, "ip link set vx0 up");
    }
    with_forwarder(&net, &[], |_, report| {
        net.on("a", "ping -c 2 -i 0.2 -W 2 10.9.0.2");
        let rate = iperf(&net, "-t 2");
        eprintln!("TCP inside VXLAN: {rate} Mbit/s");
        assert!(rate > MBITS_MIN, "{rate} {report:?}");
        assert!(report.unfinished.load(Ordering::Relaxed) > 1000, "{report:?}");
    });
}

#[test]
fn queues_that_nobody_took_or_closed_give_their_chunks_back_with_the_port() {
    let _alone = alone();
    let net = Net::new("numrxqueues 2 numtxqueues 2");
    net.enter("s");
    let pool = pool();
    let mut port = AfXdpPort::open(&spec("p0", 1), pool).unwrap();
    let lent = pool.stats().total - pool.stats().free;
    assert!(lent >= 2 * 2048, "two queues lend as many chunks as their rings hold: {lent}");
    let mut rx = port.take_rx_queues();
    let tx = port.take_tx_queues(1);
    assert_eq!((rx.len(), tx.len()), (2, 1));
    rx[0].close(&mut pool.cache());
    drop((rx, tx));
    drop(port);
    assert_eq!(pool.stats().free, pool.stats().total);
    drop(ports::open(&spec("p0", 1), pool).unwrap());
    assert_eq!(pool.stats().free, pool.stats().total);
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let refusal = |spec: &PortSpec| match AfXdpPort::open(spec, pool) {
        Ok(_) => panic!("opened {spec:?}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(refusal(&spec("nosuch", 1)), "no interface is named nosuch");
    assert!(refusal(&spec("p0", 1).with("xdp-mode", "fast")).contains("best-effort, native"));
    assert!(refusal(&spec("p0", 1).with("n_rxq_desc", "100")).contains("power of two"));
    assert!(
        refusal(&spec("p0", 1).with("xdp-mode", "native-with-zerocopy")).contains("bind an AF_XDP socket")
    );
    assert!(net.xdp_of("p0").is_none(), "a refusal leaves nothing behind");
    let _first = AfXdpPort::open(&spec("p0", 1), pool).unwrap();
    assert!(refusal(&spec("p0", 2)).contains("another running switch"));
}

#[test]
fn an_idle_forwarder_sleeps_and_wakes_for_each_packet() {
    let _alone = alone();
    let net = Net::new("");
    net.enter("s");
    let pool = pool();
    let mut p0 = AfXdpPort::open(&spec("p0", 1), pool).unwrap();
    let mut p1 = AfXdpPort::open(&spec("p1", 2), pool).unwrap();
    let forwarder = Forwarder::start(pool, [&mut p0, &mut p1]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    net.on("a", "ping -c 5 -i 0.2 -W 1 10.9.0.2");
    let report = forwarder.stop();
    let (cpu_ms, sleeps) =
        (report.cpu_ns.load(Ordering::Relaxed) / 1_000_000, report.sleeps.load(Ordering::Relaxed));
    assert!(sleeps > 20, "it slept {sleeps} times");
    // Closing takes some milliseconds as well.
    assert!(cpu_ms < 40, "{cpu_ms} ms of CPU in 4 s");
}
