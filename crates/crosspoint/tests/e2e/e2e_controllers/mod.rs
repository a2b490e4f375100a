//! The switch and its controllers, which others wrote: os-ken and Open vSwitch's `ovs-testcontroller`, over
//! TCP, TLS and Unix sockets; what the switch does while there is none; and the stock `ovs-ofctl` where the
//! switch listens.
//!
//! Needs root for network namespaces.

mod database;
mod reading;

use crate::common::{Process, RunDir, Switch, UDP, free_port, links, run_dir, wait_for};
use crate::controller::Controller;
use openflow::message::{Message, Role};
use openflow::{Event, Version};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `ovs-testcontroller` on a connection method. It speaks OpenFlow 1.3: at the first packet-in of 1.5 it
/// crashes, whichever switch it comes from.
fn testcontroller(dir: &RunDir, args: &[&str]) -> Process {
    let mut command = dir.command("ovs-testcontroller");
    Process::logged(command.args(OF13).args(args), dir.file("testcontroller.log"))
}

/// The learning switch on os-ken.
fn os_ken(dir: &RunDir, port: u16, version: &str, tls: Option<&Pki>) -> Process {
    let script = testkit::root().join("crates/crosspoint/tests/e2e/e2e_controllers/learning_switch.py");
    let mut command = dir.command(testkit::python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).args([&port.to_string(), version]);
    if let Some(pki) = tls {
        command.env("CONTROLLER_KEY", pki.file("ctl-privkey.pem"));
        command.env("CONTROLLER_CERT", pki.file("ctl-cert.pem"));
        command.env("CONTROLLER_CA", pki.file("pki/switchca/cacert.pem"));
    }
    Process::logged(&mut command, dir.file("os-ken.log"))
}

/// Keys and certificates by `ovs-pki`.
struct Pki(PathBuf);

impl Pki {
    fn new(dir: &Path) -> Pki {
        let pki = Pki(dir.join("keys"));
        std::fs::create_dir(&pki.0).unwrap();
        let root = format!("--dir={}", pki.0.join("pki").display());
        for args in [vec!["init"], vec!["req+sign", "ctl", "controller"], vec!["req+sign", "sc", "switch"]] {
            let output = Command::new("ovs-pki")
                .args([&root, "--force"])
                .arg(format!("--log={}", pki.0.join("log").display()))
                .args(&args)
                .current_dir(&pki.0)
                .output()
                .expect("ovs-pki, of openvswitch-common");
            assert!(output.status.success(), "{args:?}: {output:?}");
        }
        pki
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// For the switch.
    fn flags(&self) -> [String; 6] {
        let flag = |name: &str| name.to_string();
        [
            flag("--private-key"),
            self.file("sc-privkey.pem"),
            flag("--certificate"),
            self.file("sc-cert.pem"),
            flag("--ca-cert"),
            self.file("pki/controllerca/cacert.pem"),
        ]
    }
}

/// A switch with dummy ports p1 to p3, and the bridge's flags.
fn switch_with(dir: RunDir, bridge: &str, more: &[&str]) -> Switch {
    let bridge = format!("br0,{bridge}");
    let mut args = vec!["--bridge", &bridge];
    for port in ["p1,type=dummy,ofport=1", "p2,type=dummy,ofport=2", "p3,type=dummy,ofport=3"] {
        args.extend(["--port", port]);
    }
    args.extend(more);
    Switch::start_in(dir, &args)
}

/// A stock database server, and a switch that it configures.
pub fn configured_by_database() -> (Process, Switch) {
    let dir = run_dir();
    let server = dir.serve_database();
    // Without its first row the switch waits.
    dir.vsctl("--no-wait init");
    let remote = dir.database();
    (server, Switch::start_in(dir, &[&remote, "--enable-dummy"]))
}

fn connected(switch: &Switch) {
    wait_for("the controller's connection", || switch.log().contains(": connected"));
}

/// What `ovs-ofctl` speaks where nothing else is said. (Its flows look alike in both versions.)
const OF13: &[&str] = &["-O", "OpenFlow13"];

/// The packet that comes back.
const BACK: &str = "in_port(2),eth(src=50:54:00:00:00:07,dst=50:54:00:00:00:05),eth_type(0x0800),\
    ipv4(src=10.0.0.2,dst=10.0.0.1,proto=17,tos=0,ttl=64,frag=no),udp(src=2,dst=1)";

/// Two hosts speak, and a controller learns where they are.
fn learns_and_forwards(switch: &Switch, ofctl: &[&str]) {
    connected(switch);
    // A controller that has just connected may still be busy with itself: until it floods, ask again.
    let mut flooded = Vec::new();
    wait_for("a flooded packet", || {
        switch.receive("p1", UDP);
        let text = switch.appctl(&["netdev-dummy/sent", "p3"]).ok();
        flooded.extend(text.lines().map(str::to_string));
        !flooded.is_empty()
    });
    switch.receive("p2", BACK);
    wait_for("a flow for the way back", || {
        let flows = switch.run("ovs-ofctl", &[ofctl, &["dump-flows", "br0"]].concat()).ok();
        if !flows.contains("dl_dst=50:54:00:00:00:05") {
            switch.receive("p2", BACK);
            return false;
        }
        true
    });
    wait_for("a flow for the way there", || {
        switch.receive("p1", UDP);
        let flows = switch.run("ovs-ofctl", &[ofctl, &["dump-flows", "br0"]].concat()).ok();
        flows.contains("dl_dst=50:54:00:00:00:07")
    });
    // From now on nothing is flooded any more. Another payload tells the packet from earlier ones, which a
    // controller that was held up may still send out.
    let marked = format!("{}feedface", &flooded[0][..flooded[0].len() - 8]);
    switch.receive("p1", &marked);
    let mut sent = [0; 2];
    wait_for("the packet at its port", || {
        for (port, sent) in ["p2", "p3"].into_iter().zip(&mut sent) {
            let text = switch.appctl(&["netdev-dummy/sent", port]).ok();
            *sent += text.lines().filter(|frame| *frame == marked).count();
        }
        sent[0] > 0
    });
    assert_eq!(sent, [1, 0]);
}

#[test]
fn ovs_testcontroller_learns_and_forwards_over_tcp() {
    let dir = run_dir();
    let port = free_port();
    let _controller = testcontroller(&dir, &[&format!("ptcp:{port}:127.0.0.1")]);
    let flags = format!("fail-mode=secure,controller=tcp:127.0.0.1:{port}");
    learns_and_forwards(&switch_with(dir, &flags, &[]), OF13);
}

#[test]
fn ovs_testcontroller_learns_and_forwards_over_a_unix_socket() {
    let dir = run_dir();
    let path = dir.path().join("controller");
    let _controller = testcontroller(&dir, &[&format!("punix:{}", path.display())]);
    let flags = format!("fail-mode=secure,controller=unix:{}", path.display());
    learns_and_forwards(&switch_with(dir, &flags, &[]), OF13);
}

#[test]
fn ovs_testcontroller_learns_and_forwards_over_tls() {
    let dir = run_dir();
    let pki = Pki::new(dir.path());
    let port = free_port();
    let _controller = testcontroller(
        &dir,
        &[
            "-p",
            &pki.file("ctl-privkey.pem"),
            "-c",
            &pki.file("ctl-cert.pem"),
            "-C",
            &pki.file("pki/switchca/cacert.pem"),
            &format!("pssl:{port}:127.0.0.1"),
        ],
    );
    let flags = format!("fail-mode=secure,controller=ssl:127.0.0.1:{port}");
    let tls = pki.flags();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    learns_and_forwards(&switch_with(dir, &flags, &tls), OF13);
}

#[test]
fn the_switch_listens_for_clients_over_tcp() {
    let dir = run_dir();
    let port = free_port();
    let bridge = format!("fail-mode=secure,controller=ptcp:{port}:127.0.0.1,inactivity-probe=0");
    let switch = switch_with(dir, &bridge, &[]);
    let target = format!("tcp:127.0.0.1:{port}");
    wait_for("the switch to listen", || switch.ofctl(&["show", &target]).code == Some(0));
    switch.ofctl(&["add-flow", &target, "in_port=1,actions=2"]).ok();
    assert!(switch.ofctl(&["dump-flows", &target]).ok().contains("in_port=1 actions=output:2"));

    // Of more than it has room for, who says nothing gives way, and so does who watches flows.
    let hello: &[u8] = &[1, 0, 0, 8, 0, 0, 0, 1];
    let watch = [
        &[1, 16, 0, 40, 0, 0, 0, 2, 0xff, 0xff, 0, 0, 0, 0, 0x23, 0x20, 0, 0, 0, 2, 0, 0, 0, 0][..],
        &[0, 0, 0, 1, 0, 7, 0xff, 0xff, 0, 0, 0xff, 0, 0, 0, 0, 0],
    ];
    let silent = |n: usize| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&if n < 250 { [hello, &watch.concat()].concat() } else { hello.to_vec() }).unwrap();
        stream
    };
    let mut silent_ones: Vec<TcpStream> = (0..250).map(silent).collect();
    switch.ofctl(&["-t", "30", "show", &target]).ok();
    silent_ones.extend((250..500).map(silent));
    switch.ofctl(&["-t", "30", "show", &target]).ok();
}

#[test]
fn the_switch_listens_over_tls_for_those_with_a_certificate() {
    let dir = run_dir();
    let pki = Pki::new(dir.path());
    let port = free_port();
    let tls = pki.flags();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let switch = switch_with(dir, &format!("fail-mode=secure,controller=pssl:{port}:127.0.0.1"), &tls);
    let target = format!("ssl:127.0.0.1:{port}");
    let keys = [
        "-p",
        &pki.file("ctl-privkey.pem"),
        "-c",
        &pki.file("ctl-cert.pem"),
        "-C",
        &pki.file("pki/switchca/cacert.pem"),
    ];
    let show = [&keys[..], &["show", &target]].concat();
    wait_for("the switch to listen", || switch.ofctl(&show).code == Some(0));
    assert!(switch.ofctl(&["show", &format!("tcp:127.0.0.1:{port}")]).code != Some(0), "not without TLS");
    // Our own client does as the stock one.
    let ours = |args: &[&str]| switch.run(crate::common::binary(), &[&["ofctl"], args].concat());
    ours(&[&keys[..], &["add-flow", &target, "in_port=1,actions=2"]].concat()).ok();
    let many: String = (0..5_000).map(|n| format!("tcp,tp_dst={n},actions=3\n")).collect();
    let file = switch.dir.path().join("many");
    std::fs::write(&file, many).unwrap();
    ours(&[&keys[..], &["add-flows", &target, file.to_str().unwrap()]].concat()).ok();
    let flows = ours(&[&keys[..], &["--no-stats", "dump-flows", &target]].concat()).ok();
    assert!(
        flows.contains("in_port=1 actions=output:2") && flows.lines().count() >= 5_001,
        "{}",
        flows.len()
    );
    let without = ours(&["show", &target]).failed();
    assert!(without.contains("failed to connect to socket (Protocol not available)"), "{without}");
    let other_authority = pki.file("pki/controllerca/cacert.pem");
    let stranger = [&keys[..4], &["-C", &other_authority, "show", &target]].concat();
    let stranger = ours(&stranger).failed();
    assert!(
        stranger.contains("failed to connect to socket"),
        "a certificate of another authority: {stranger}"
    );
    assert!(ours(&["show", "ssl:127.0.0.1:1"]).code != Some(0));
}

#[test]
fn os_ken_learns_and_forwards_in_both_versions() {
    for (version, name) in [("1.0", "OpenFlow10"), ("1.3", "OpenFlow13")] {
        let dir = run_dir();
        let port = free_port();
        let _controller = os_ken(&dir, port, version, None);
        let flags = format!("fail-mode=secure,protocols={name},controller=tcp:127.0.0.1:{port}");
        let switch = switch_with(dir, &flags, &[]);
        learns_and_forwards(&switch, &["-O", name]);
        let log = std::fs::read_to_string(switch.dir.path().join("os-ken.log")).unwrap();
        assert!(log.contains("switch ") && !log.contains("error"), "{log}");
    }
}

#[test]
fn os_ken_learns_and_forwards_over_tls() {
    let dir = run_dir();
    let pki = Pki::new(dir.path());
    let port = free_port();
    let _controller = os_ken(&dir, port, "1.3", Some(&pki));
    let flags = format!("fail-mode=secure,controller=ssl:127.0.0.1:{port}");
    let tls = pki.flags();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    learns_and_forwards(&switch_with(dir, &flags, &tls), OF13);
}

pub fn packet_ins(events: &[Event]) -> usize {
    events.iter().filter(|e| matches!(e, Event::Message { message: Message::PacketIn(_), .. })).count()
}

#[test]
fn packets_without_a_rule_go_to_a_controller_whole_and_no_faster_than_its_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let flags = format!(
        "fail-mode=secure,controller=tcp:127.0.0.1:{port},controller-rate-limit=100,controller-burst-limit=25"
    );
    let switch = switch_with(run_dir(), &flags, &[]);
    let mut controller = Controller::accept(&listener, Version::V10);
    connected(&switch);
    controller.ask(&Message::BarrierRequest);
    // While time stands still the rate lets none pass but what was saved up.
    switch.appctl(&["time/stop"]).ok();
    let burst = vec![UDP; 60];
    switch.appctl(&[&["netdev-dummy/receive", "p1"][..], &burst].concat()).ok();
    let looked_at = || switch.appctl(&["coverage/read-counter", "ofproto_packet_in"]).ok();
    wait_for("all to be looked at", || looked_at().trim() == "60");
    let moment = Duration::from_millis(1_500);
    let mut events = controller.events_for(moment);
    assert_eq!(packet_ins(&events), 25);
    // 25 were queued, and no more.
    assert_eq!(switch.appctl(&["time/warp", "1000"]).ok(), "warped\n");
    wait_for("those that were queued", || {
        events.extend(controller.events_for(Duration::from_millis(100)));
        packet_ins(&events) >= 50
    });
    events.extend(controller.events_for(moment));
    assert_eq!(packet_ins(&events), 50);
    let whole = events.iter().all(|e| match e {
        Event::Message { message: Message::PacketIn(p), .. } => {
            p.data.len() == 106 && p.total_len == 106 && p.buffer_id.is_none()
        }
        _ => true,
    });
    assert!(whole, "{events:?}");
}

/// The types of the OpenFlow messages that come within this time, and whether the stream ends; nothing is
/// answered.
fn unanswered(controller: &mut Controller, time: Duration) -> (Vec<u8>, bool) {
    let end = Instant::now() + time;
    let mut bytes = Vec::new();
    let mut ended = false;
    while Instant::now() < end && !ended {
        let mut buffer = [0; 65_536];
        match controller.stream.read(&mut buffer) {
            Ok(0) => ended = true,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(_) => {}
        }
    }
    let mut types = Vec::new();
    let mut rest = &bytes[..];
    while let [_, kind, high, low, ..] = *rest {
        types.push(kind);
        rest = &rest[usize::from(u16::from_be_bytes([high, low]))..];
    }
    (types, ended)
}

#[test]
fn limits_probes_and_retries_of_a_controller_follow_time_that_is_moved_by_hand() {
    const ECHO_REQUEST: u8 = 2;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let flags = format!(
        "fail-mode=secure,controller=tcp:127.0.0.1:{port},controller-rate-limit=100,controller-burst-limit=25"
    );
    let switch = switch_with(run_dir(), &flags, &[]);
    let mut controller = Controller::accept(&listener, Version::V13);
    connected(&switch);
    switch.add_flow("in_port=1,actions=controller");
    let warp = |ms: &str| assert_eq!(switch.appctl(&["time/warp", ms]).ok(), "warped\n");
    switch.appctl(&["time/stop"]).ok();
    let moment = Duration::from_millis(1_500);

    // No tokens come while time stands still, and all that waits passes in the next second.
    let burst = vec![UDP; 40];
    switch.appctl(&[&["netdev-dummy/receive", "p1"][..], &burst].concat()).ok();
    assert_eq!(packet_ins(&controller.events_for(moment)), 25);
    warp("1000");
    let mut told = 0;
    wait_for("the packets held back", || {
        told += packet_ins(&controller.events_for(Duration::from_millis(100)));
        told == 15
    });

    controller.ask(&Message::BarrierRequest);
    warp("4000");
    assert_eq!(unanswered(&mut controller, moment), (vec![], false), "heard of 4 s ago");
    warp("1500");
    let mut probes = Vec::new();
    wait_for("a probe", || {
        probes.extend(unanswered(&mut controller, Duration::from_millis(100)).0);
        !probes.is_empty()
    });
    assert_eq!(probes, [ECHO_REQUEST]);
    assert!(!unanswered(&mut controller, moment).1, "it has all the time to answer");
    warp("5000");
    wait_for("the end of the silent connection", || {
        unanswered(&mut controller, Duration::from_millis(100)).1
    });

    listener.set_nonblocking(true).unwrap();
    warp("900");
    assert!(listener.accept().is_err(), "it waits a second before it tries again");
    listener.set_nonblocking(false).unwrap();
    warp("2000");
    let mut controller = Controller::accept(&listener, Version::V13);
    controller.ask(&Message::BarrierRequest);
}

#[test]
fn a_controller_is_answered_probed_and_given_up_in_time_while_the_control_thread_is_held() {
    const HELD: &str = "16000";
    const ECHO_REQUEST: u8 = 2;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let flags = format!("fail-mode=secure,controller=tcp:127.0.0.1:{port}");
    let switch = switch_with(run_dir(), &flags, &[]);
    let mut controller = Controller::accept(&listener, Version::V13);
    connected(&switch);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            switch.appctl(&["crosspoint/block", HELD]).ok();
            done.store(true, Ordering::Relaxed);
        });
        wait_for("the control thread to be held", || {
            let xid = controller.connection.new_xid();
            controller.connection.send(xid, &Message::FeaturesRequest).unwrap();
            controller.events_for(Duration::from_millis(300)).is_empty()
        });
        let echo = b"there?".to_vec();
        assert_eq!(controller.ask(&Message::EchoRequest(echo.clone())), Message::EchoReply(echo));
        // From now on the controller is silent. It is probed, and then given up.
        let (mut heard, mut ended) = (Vec::new(), false);
        wait_for("the end of the silent connection", || {
            let (types, end) = unanswered(&mut controller, Duration::from_millis(100));
            heard.extend(types);
            ended |= end;
            ended
        });
        assert_eq!(heard, [ECHO_REQUEST], "what it has asked for waits");
        assert!(!done.load(Ordering::Relaxed), "all of that was in time");
    });
    wait_for("the switch to tell of it", || {
        let log = switch.log();
        log.contains("no response to inactivity probe after")
    });
    Controller::accept(&listener, Version::V13);
}

#[test]
fn of_two_controllers_one_is_in_charge_when_it_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Two targets that are one listener.
    let flags = format!("fail-mode=secure,controller=tcp:127.0.0.1:{port};tcp:localhost:{port}");
    let switch = switch_with(run_dir(), &flags, &[]);
    let (mut one, mut two) =
        (Controller::accept(&listener, Version::V13), Controller::accept(&listener, Version::V13));
    let role = |role, generation_id| {
        Message::RoleRequest(openflow::message::RoleRequest { role, generation_id, nicira: false })
    };
    let primary = one.ask(&role(Role::Primary, Some(1)));
    assert!(matches!(primary, Message::RoleReply(r) if r.role == Role::Primary), "{primary:?}");
    let other = two.ask(&role(Role::Primary, Some(2)));
    assert!(matches!(other, Message::RoleReply(r) if r.role == Role::Primary), "{other:?}");
    // Who was in charge is told that it no longer is.
    let told = one.events_until(|e| matches!(e, Event::Message { message: Message::RoleStatus(_), .. }));
    let lost = openflow::message::RoleStatus {
        role: Role::Secondary,
        reason: openflow::message::RoleReason::PrimaryRequest,
        generation_id: Some(2),
    };
    let is_it = |e: &Event| matches!(e, Event::Message { message: Message::RoleStatus(s), .. } if *s == lost);
    assert!(told.iter().any(is_it), "{told:?}");
    let now = one.ask(&role(Role::NoChange, None));
    assert!(matches!(now, Message::RoleReply(r) if r.role == Role::Secondary), "{now:?}");
    // Who only watches may not change anything, and is told of ports alone.
    switch.add_flow("actions=controller");
    let flow_mod = openflow::message::FlowMod { table_id: 0, ..openflow::message::FlowMod::add() };
    let flow_mod = Message::FlowMod(Box::new(flow_mod));
    let refused = one.ask(&flow_mod);
    let expected = Some(openflow::ErrorKind::OFPBRC_IS_SECONDARY);
    assert!(matches!(&refused, Message::Error(e) if e.kind() == expected), "{refused:?}");
    switch.receive("p1", UDP);
    switch.ofctl(&["mod-port", "br0", "1", "no-forward"]).ok();
    let ports = |events: &[Event]| {
        events.iter().filter(|e| matches!(e, Event::Message { message: Message::PortStatus(_), .. })).count()
    };
    let (mut seen_by_one, mut seen_by_two) = (vec![], vec![]);
    let mut listen = |time| {
        seen_by_one.extend(one.events_for(time));
        seen_by_two.extend(two.events_for(time));
        ports(&seen_by_one) > 0 && ports(&seen_by_two) > 0 && packet_ins(&seen_by_two) > 0
    };
    wait_for("the news", || listen(Duration::from_millis(50)));
    // And nothing else.
    listen(Duration::from_millis(500));
    assert_eq!((packet_ins(&seen_by_one), ports(&seen_by_one)), (0, 1), "{seen_by_one:?}");
    assert_eq!((packet_ins(&seen_by_two), ports(&seen_by_two)), (1, 1), "{seen_by_two:?}");
}

#[test]
fn without_its_controller_a_standalone_bridge_switches_by_itself_until_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let flags = format!("controller=tcp:127.0.0.1:{port},max-backoff=1000");
    let switch = switch_with(run_dir(), &flags, &[]);
    let mut controller = Controller::accept(&listener, Version::V13);
    connected(&switch);
    assert_eq!(switch.flows(&[]), Vec::<String>::new(), "a controller is in charge");
    switch.add_flow("in_port=3,actions=drop");
    // It admits the switch: time counts from this message.
    controller.ask(&Message::BarrierRequest);
    drop(controller);
    drop(listener);
    let start = Instant::now();
    wait_for("the switch to take over", || switch.log().contains("failing open"));
    assert!(start.elapsed() > Duration::from_secs(12), "{:?}", start.elapsed());
    assert_eq!(switch.flows(&[]), Vec::<String>::new(), "rules are gone, its own is not shown");
    switch.receive("p3", UDP);
    assert_eq!(switch.sent("p1", 1).len(), 1);
    // Somebody else's connection may have the number for a while.
    let mut listener = None;
    wait_for("the port to be free", || {
        listener = TcpListener::bind(("127.0.0.1", port)).ok();
        listener.is_some()
    });
    let listener = listener.unwrap();
    let mut controller = Controller::accept(&listener, Version::V13);
    // It is connected, and may not want the switch: nothing changes until it does.
    let hello =
        controller.events_until(|e| matches!(e, Event::Message { message: Message::PacketIn(_), .. }));
    assert_eq!(packet_ins(&hello), 1, "{hello:?}");
    assert!(!switch.log().contains("No longer in fail-open mode"));
    controller.ask(&Message::BarrierRequest);
    wait_for("the switch to give up", || switch.log().contains("No longer in fail-open mode"));
    // What comes through after it shows that the first has been dealt with.
    switch.add_flow("in_port=3,ip,nw_src=10.0.0.2,actions=output:1");
    switch.receive("p3", UDP);
    switch.receive("p3", BACK);
    assert_eq!(switch.sent("p1", 1).len(), 1);
    assert_eq!(switch.appctl(&["netdev-dummy/sent", "p2"]).ok().lines().count(), 1, "only the one of before");
}

/// A controller that wants nothing of packets without a rule still gets those that rules send it.
#[test]
fn a_miss_send_len_of_0_keeps_packet_ins_from_clients_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let switch = switch_with(run_dir(), &format!("fail-mode=secure,controller=tcp:127.0.0.1:{port}"), &[]);
    let mut controller = Controller::accept(&listener, Version::V13);
    connected(&switch);
    let config = openflow::message::SwitchConfig {
        frag: openflow::message::FragHandling::Normal,
        invalid_ttl_to_controller: None,
        miss_send_len: 0,
    };
    let xid = controller.connection.new_xid();
    controller.connection.send(xid, &Message::SetConfig(config)).unwrap();
    controller.ask(&Message::BarrierRequest);
    switch.add_flow("in_port=1,actions=controller");
    switch.receive("p1", UDP);
    let events =
        controller.events_until(|e| matches!(e, Event::Message { message: Message::PacketIn(_), .. }));
    assert_eq!(packet_ins(&events), 1);
}

#[test]
fn a_bridge_speaks_no_version_but_those_that_it_is_to_speak() {
    let (_server, switch) = configured_by_database();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure protocols=OpenFlow10,OpenFlow13",
    );
    switch.ofctl(&["show", "br0"]).ok();
    switch.vsctl("set bridge br0 protocols=OpenFlow15");
    let said = switch.ofctl(&["-O", "OpenFlow10,OpenFlow13", "show", "br0"]).failed();
    assert!(said.contains("version negotiation failed"), "{said}");
    let mut stream = UnixStream::connect(switch.dir.path().join("br0.mgmt")).unwrap();
    stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 9]).unwrap();
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[0], 6, "the hello offers OpenFlow 1.5 and nothing else: {bytes:02x?}");
    let error = b"We support version 0x06, you support version 0x01, no common versions.";
    assert!(bytes.ends_with(error), "{bytes:02x?}");
    for version in ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        switch.vsctl(&format!("set bridge br0 protocols={version}"));
        assert!(
            switch.ofctl(&["-O", version, "show", "br0"]).ok().contains("OFPT_FEATURES_REPLY"),
            "{version}"
        );
        switch.ofctl(&["-O", version, "add-flow", "br0", "in_port=1,actions=2"]).ok();
        let flows = switch.ofctl(&["-O", version, "dump-flows", "br0"]).ok();
        assert!(flows.contains(" in_port=1 actions=output:2"), "{version}: {flows}");
    }
}

#[test]
fn versions_that_a_bridge_does_not_speak_are_refused_in_open_vswitchs_words() {
    let switch = switch_with(run_dir(), "fail-mode=secure,protocols=OpenFlow13", &[]);
    switch.ofctl(&["-O", "OpenFlow13", "show", "br0"]).ok();
    // Both clients log why, with the second in which they did.
    let said = |program: &Path| {
        let said = switch.dir.run(program, &["show", "br0"]).failed();
        let (first, rest) = said.split_once('\n').unwrap();
        (first.split_once('|').unwrap().1.to_owned(), rest.to_owned())
    };
    let theirs = said(Path::new("ovs-ofctl"));
    assert!(
        theirs
            .0
            .ends_with("version negotiation failed (we support version 0x01, peer supports version 0x04)"),
        "{theirs:?}"
    );
    let ours = said(&links(switch.dir.path()).join("ovs-ofctl"));
    // The stock one may find its connection gone before it has read why.
    let end = "ovs-ofctl: br0: failed to connect to socket (Protocol error)\n";
    assert_eq!((ours.0, ours.1.as_str()), (theirs.0, end));
    // As it stands on the wire, byte by byte from Open vSwitch 3.1.
    let mut stream = UnixStream::connect(switch.dir.path().join("br0.mgmt")).unwrap();
    stream.write_all(&[1, 0, 0, 8, 0, 0, 0, 9]).unwrap();
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).unwrap();
    let error = [
        &[1, 1, 0, 82, 0, 0, 0, 0, 0, 0, 0, 0][..],
        b"We support version 0x04, you support version 0x01, no common versions.",
    ]
    .concat();
    assert!(bytes.ends_with(&error), "{bytes:02x?}");
}
