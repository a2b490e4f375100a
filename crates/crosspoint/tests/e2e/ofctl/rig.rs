//! A switch to talk to: its processes, in a run directory of its own, ended with it.

use crate::common::{Process, RunDir, binary, run_dir, wait_for};
use std::process::Stdio;

/// Whose switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Open vSwitch's, with its dummy datapath.
    Stock,
    /// Crosspoint's.
    Ours,
}

/// A running switch with the bridge br0 and the dummy ports p1, p2 and 3x, numbered 1 to 3.
pub struct Rig {
    dir: RunDir,
    _children: Vec<Process>,
}

impl std::ops::Deref for Rig {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Rig {
    /// Starts the switch and waits for its socket.
    pub fn start(which: Which) -> Rig {
        let dir = run_dir();
        let children = match which {
            Which::Stock => Rig::start_stock(&dir),
            Which::Ours => Rig::start_ours(&dir),
        };
        wait_for("the bridge", || testkit::listens(dir.file("br0.mgmt")));
        Rig { dir, _children: children }
    }

    /// Runs a program, and panics if it fails.
    fn run(&self, program: &str, args: &[&str]) {
        self.dir.run(program, args).ok();
    }

    fn start_stock(dir: &RunDir) -> Vec<Process> {
        let server = dir.serve_database();
        dir.vsctl("--no-wait init");
        dir.vsctl(
            "--no-wait add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=secure \
             other-config:datapath-id=1234567890abcdef",
        );
        for (number, name) in [(1, "p1"), (2, "p2"), (3, "3x")] {
            dir.vsctl(&format!(
                "--no-wait add-port br0 {name} -- set interface {name} type=dummy ofport_request={number}"
            ));
        }
        let mut daemon = dir.command("/usr/lib/openvswitch-switch/ovs-vswitchd");
        daemon.args(["--enable-dummy=override", "--disable-system", "--pidfile", &dir.database()]);
        vec![server, Process::silent(&mut daemon)]
    }

    fn start_ours(dir: &RunDir) -> Vec<Process> {
        let args = [
            "switch",
            "--bridge",
            "br0,datapath-id=1234567890abcdef,fail-mode=secure,local=dummy",
            "--port",
            "p1,type=dummy,ofport=1,bridge=br0",
            "--port",
            "p2,type=dummy,ofport=2,bridge=br0",
            "--port",
            "3x,type=dummy,ofport=3,bridge=br0",
        ];
        vec![Process::silent(dir.command(binary()).args(args))]
    }

    /// A text without the Ethernet addresses, which a switch chooses anew each time.
    pub fn without_addresses(&self, text: &str) -> String {
        let mut out = String::new();
        for (i, part) in text.split("addr:").enumerate() {
            out += if i == 0 { part } else { "addr:XX:XX:XX:XX:XX:XX" };
            if i > 0 {
                out += part.get(17..).unwrap_or("");
            }
        }
        out
    }
}

/// What `monitor` prints while packets come in and flows go.
pub fn monitor(program: &[&str], version: &str) -> String {
    let rig = Rig::start(Which::Stock);
    let mut command = rig.command(program[0]);
    command.args(&program[1..]).args(["-O", version, "monitor", "br0", "65534"]);
    // Flow monitors have an encoding of their own in OpenFlow 1.3, which is not there yet.
    if version == "OpenFlow10" {
        command.arg("watch:");
    }
    let path = rig.file("said");
    let said = std::fs::File::options().create(true).append(true).open(&path).unwrap();
    let monitor = Process::start(command.stdout(Stdio::null()).stderr(said));
    let read = || std::fs::read_to_string(&path).unwrap();
    let wait = |what: &str, count: usize| {
        wait_for(what, || read().matches(what).count() >= count);
    };
    // A port is changed until the monitor tells of it. Then what is to be compared begins and ends with news
    // of another one.
    let mut change = ["no-forward", "forward"].into_iter().cycle();
    wait_for("news of a port", || {
        rig.run("ovs-ofctl", &["mod-port", "br0", "3", change.next().unwrap()]);
        read().contains(" MOD: 3(3x)")
    });
    let mark = " MOD: 2(p2)";
    rig.run("ovs-ofctl", &["mod-port", "br0", "2", "no-forward"]);
    wait(mark, 1);
    let daemon_pid = std::fs::read_to_string(rig.file("ovs-vswitchd.pid")).unwrap();
    let control = rig.file(format!("ovs-vswitchd.{}.ctl", daemon_pid.trim()));
    let ofctl = |args: &[&str]| rig.run("ovs-ofctl", &[&["-O", version][..], args].concat());
    ofctl(&["add-flow", "br0", "priority=9,in_port=1,actions=controller:100"]);
    let removed =
        "priority=9,in_port=2,send_flow_rem,actions=controller(id=0,userdata=01.02,reason=no_match)";
    ofctl(&["add-flow", "br0", removed]);
    let ethernet = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07)";
    let packets = [
        (
            "p1",
            format!(
                "in_port(1),{ethernet},eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=6,tos=0,ttl=64,frag=no),\
             tcp(src=8,dst=10),tcp_flags(syn)"
            ),
        ),
        (
            "p2",
            format!(
                "in_port(2),{ethernet},eth_type(0x0806),arp(sip=1.2.3.4,tip=2.3.4.5,op=1,sha=50:54:00:00:00:05,\
             tha=00:00:00:00:00:00)"
            ),
        ),
        (
            "p1",
            format!(
                "in_port(1),{ethernet},eth_type(0x8100),vlan(vid=99,pcp=7),encap(eth_type(0x0800),\
             ipv4(src=1.2.3.4,dst=2.3.4.5,proto=17,tos=4,ttl=1,frag=no),udp(src=53,dst=53))"
            ),
        ),
        (
            "p2",
            format!(
                "in_port(2),{ethernet},eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto=58,tclass=0x70,\
             hlimit=128,frag=no),icmpv6(type=128,code=0)"
            ),
        ),
    ];
    for (n, (port, packet)) in packets.iter().enumerate() {
        let target = control.to_str().unwrap();
        rig.run("ovs-appctl", &["-t", target, "netdev-dummy/receive", port, packet]);
        // The switch answers before it looks at the packet: the next one, or the end of the flows, would
        // overtake it.
        wait("PACKET_IN", n + 1);
    }
    ofctl(&["mod-port", "br0", "1", "no-flood"]);
    ofctl(&["del-flows", "br0"]);
    wait("FLOW_REMOVED", 1);
    if version == "OpenFlow10" {
        wait("event=DELETED", 2);
    }
    rig.run("ovs-ofctl", &["mod-port", "br0", "2", "forward"]);
    wait(mark, 2);
    drop(monitor);
    let text = rig.without_addresses(&read());
    // The first message of that port goes on for some lines, which begin with a blank.
    let text = text.lines().skip_while(|line| !line.contains(mark)).skip(1);
    let text = text.skip_while(|line| line.starts_with(' ')).take_while(|line| !line.contains(mark));
    // Lines of the log, and durations, are never the same twice.
    let lines = text.filter(|line| !line.contains("|WARN|") && !line.contains("|INFO|"));
    let lines = lines.map(|line| match line.split_once(" duration") {
        Some((before, after)) => format!("{before} {}", after.split_once(' ').map_or("", |(_, rest)| rest)),
        None => line.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What `monitor` prints of flows that come, change and go, some of them in a bundle.
pub fn watch(which: Which, program: &[&str], watches: &[&str]) -> String {
    let rig = Rig::start(which);
    let ofctl = |args: &[&str]| rig.run("ovs-ofctl", args);
    ofctl(&["add-flow", "br0", "priority=7,in_port=1,actions=2"]);
    ofctl(&["add-flow", "br0", "table=3,in_port=2,cookie=5,actions=3"]);
    // What there is at first goes to standard output, what happens then to standard error.
    let path = rig.file("said");
    let mut command = rig.command(program[0]);
    let monitor = Process::logged(command.args(&program[1..]).args(["monitor", "br0"]).args(watches), &path);
    let read = || std::fs::read_to_string(&path).unwrap();
    let wait = |what: &str| {
        wait_for(what, || read().contains(what));
    };
    // The last watch's reply; the first one's transaction id is 6.
    wait(&format!("(xid={:#x}):", 5 + watches.len()));
    let file = rig.file("bundle.txt");
    std::fs::write(&file, "in_port=5,actions=1\nin_port=6,actions=1\ndelete in_port=5\n").unwrap();
    for change in [
        "add-flow br0 in_port=1,idle_timeout=60,actions=2",
        "add-flow br0 in_port=2,actions=2",
        "add-flow br0 in_port=2,actions=3",
        "add-flow br0 in_port=2,actions=3",
        "mod-flows br0 in_port=2,actions=1",
        "mod-flows br0 in_port=2,actions=1",
        "mod-flows br0 in_port=2,cookie=9,actions=1",
        "add-flow br0 tcp,tp_dst=80,hard_timeout=100,cookie=3,actions=drop",
        "add-flow br0 priority=0,actions=drop",
        "del-flows br0 table=0,in_port=2",
        "--strict del-flows br0 priority=7,in_port=1",
    ] {
        ofctl(&change.split(' ').collect::<Vec<_>>());
    }
    ofctl(&["-O", "OpenFlow13", "--bundle", "add-flows", "br0", file.to_str().unwrap()]);
    for change in ["add-flow br0 table=9,in_port=2,actions=2", "mod-flows br0 table=9,actions=2,3"] {
        ofctl(&change.split(' ').collect::<Vec<_>>());
    }
    ofctl(&["del-flows", "br0", "table=9"]);
    ofctl(&["add-flow", "br0", "in_port=2,actions=2"]);
    ofctl(&["del-flows", "br0", "in_port=2,table=0"]);
    wait("DELETED reason=delete table=0 cookie=0 in_port=2");
    drop(monitor);
    let text = read();
    text.lines()
        .filter(|l| !l.contains("|WARN|") && !l.contains("|INFO|"))
        .map(|l| format!("{l}\n"))
        .collect()
}
