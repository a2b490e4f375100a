//! A stateful firewall by `ct` between two networks, and programs that others wrote, which talk through it.
//!
//! ```text
//! host ─ router ─ br0 ─ router ─ host          west (1), east (2): namespaces, joined by veth pairs
//! ```
//!
//! A host has an address that the other network has a route to, and a private one that it has none to. What
//! is to be translated has the private one, so that whatever leaves untranslated gets no answer. Each
//! router has a route to the other side's public addresses, which no host has: only translation leads on.
//! Not every program that uses this needs all of it.
#![allow(dead_code, unused_imports)]

mod programs;
mod rules;

pub use programs::{Program, Transfer};
pub use rules::{Fault, Nat, Policy};

use crate::common::{
    Namespace, PATIENCE, Process, RunDir, Said, daemon_in, namespace, run, run_dir, wait_for,
};

/// An IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    V4,
    V6,
}

/// One of the two networks: index 0 is west, 1 is east.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    West,
    East,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::West => Side::East,
            Side::East => Side::West,
        }
    }

    /// Its number in addresses, and that of its port.
    pub fn number(self) -> usize {
        self as usize + 1
    }
}

/// Of what kind an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Its host's; the other network has a route to it.
    Routed,
    /// Its host's; the other network has none.
    Private,
    /// Nobody's, routed to this side: its hosts are shown with it.
    Shown,
    /// Nobody's, routed to this side: a service is reached by it.
    Service,
    /// The router's at the firewall.
    Router,
    /// The router's at the host.
    Gateway,
}

pub fn address(family: Family, side: Side, kind: Kind) -> String {
    let n = side.number();
    let (v4, v6) = match kind {
        Kind::Routed => (format!("10.0.{n}.2"), format!("2001:db8:{n}::2")),
        Kind::Private => (format!("172.16.{n}.2"), format!("fd00:{n}::2")),
        Kind::Shown => (format!("198.51.{n}.9"), format!("2001:db8:f{n}::9")),
        Kind::Service => (format!("198.51.{n}.80"), format!("2001:db8:f{n}::80")),
        Kind::Router => (format!("192.0.2.{n}"), format!("2001:db8:ff::{n}")),
        Kind::Gateway => (format!("10.0.{n}.1"), format!("2001:db8:{n}::1")),
    };
    if family == Family::V4 { v4 } else { v6 }
}

struct Network {
    router: Namespace,
    host: Namespace,
}

/// See the module's text.
pub struct Rig {
    dir: RunDir,
    _switch: Process,
    servers: Vec<Process>,
    networks: [Network; 2],
    namespace: Namespace,
}

#[track_caller]
fn script(namespace: &Namespace, text: &str) {
    run(namespace.command("sh").args(["-ec", text])).ok();
}

/// Bytes that web and FTP servers give.
pub const FILE_BYTES: usize = 300_000;

fn file() -> String {
    (0..FILE_BYTES / 10).map(|n| format!("{n:09}\n")).collect()
}

impl Rig {
    pub fn start() -> Rig {
        let dir = run_dir();
        let networks = [(); 2].map(|()| Network { router: namespace(), host: namespace() });
        let namespace = namespace();
        for side in [Side::West, Side::East] {
            lay_out(&namespace, &networks[side as usize], side);
        }
        let served = dir.path().join("served");
        std::fs::create_dir(&served).unwrap();
        std::fs::write(served.join("file"), file()).unwrap();
        let bridge = ["--pool-size", "16384", "--bridge", "br0,fail-mode=secure"];
        let ports = ["--port", "west,type=system,ofport=1", "--port", "east,type=system,ofport=2"];
        let switch = Process::start(&mut daemon_in(&namespace, &dir, &[bridge, ports].concat()));
        let mut rig = Rig { dir, _switch: switch, servers: Vec::new(), networks, namespace };
        for side in [Side::West, Side::East] {
            let host = &rig.networks[side as usize].host;
            let served = served.to_str().unwrap();
            let mut serve = |words: &[&str]| {
                rig.servers.push(Process::silent(host.command(words[0]).args(&words[1..])));
            };
            serve(&["busybox", "httpd", "-f", "-p", "[::]:80", "-h", served]);
            // Debian's own Python has the server.
            serve(&["/usr/bin/python3", "-m", "pyftpdlib", "-i", "::", "-p", "21", "-w", "-d", served]);
            // One for each address: of several, it would answer UDP from the first.
            for (family, kind) in [Family::V4, Family::V6]
                .into_iter()
                .flat_map(|family| [(family, Kind::Routed), (family, Kind::Private)])
            {
                serve(&["iperf3", "--server", "--bind", &address(family, side, kind)]);
            }
        }
        wait_for("the switch to run", || rig.dir.read("log").contains("(Open vSwitch)"));
        for side in [Side::West, Side::East] {
            wait_for("the servers", || {
                let listening = rig.run(side, PATIENCE.as_secs(), &["ss", "-Hltn"]).out;
                let servers = |port| listening.matches(port).count();
                servers(":21 ") >= 1 && servers(":80 ") >= 1 && servers(":5201 ") == 4
            });
        }
        rig
    }

    /// Runs a program on a host, for so long at most.
    pub fn run(&self, side: Side, seconds: u64, words: &[&str]) -> Said {
        let output = self.networks[side as usize]
            .host
            .command("timeout")
            .args(["--kill-after=10", &seconds.to_string()])
            .args(words)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        // Not all of it need be UTF-8: some of these programs print what they fetch.
        Said {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    #[track_caller]
    pub fn appctl(&self, args: &[&str]) -> String {
        self.dir.appctl(args).ok()
    }

    /// Puts a policy into force, with a fault or without one. What was tracked before is forgotten.
    #[track_caller]
    pub fn put(&self, policy: Policy, fault: Fault) {
        let path = self.dir.path().join("rules");
        std::fs::write(&path, policy.rules(fault).join("\n")).unwrap();
        self.dir.ofctl(&["-O", "OpenFlow13", "replace-flows", "br0", path.to_str().unwrap()]).ok();
        let whether = if fault == Fault::Reassembly { "disabled" } else { "enabled" };
        for version in ["v4", "v6"] {
            self.appctl(&[&format!("dpctl/ipf-set-{whether}"), version]);
        }
        self.appctl(&["dpctl/flush-conntrack"]);
    }

    /// All of these programs pass the firewall.
    #[track_caller]
    pub fn passes(&self, policy: Policy, programs: &[Program]) {
        self.put(policy, Fault::None);
        for program in programs {
            if let Err(why) = program.run(self, policy.talk(), programs::Patience::Long) {
                let connections = self.appctl(&["dpctl/dump-conntrack", "-m"]);
                panic!("{policy:?}: {program:?}: {why}\nconnections:\n{connections}\n{}", self.flows());
            }
        }
        // And back, nobody begins anything.
        let connections = || self.appctl(&["dpctl/ct-stats-show"]);
        let before = connections();
        for program in [Program::Web, Program::Ping { bytes: 56 }] {
            let said = program.run(self, policy.intrusion(), programs::Patience::Short);
            assert!(said.is_err(), "{policy:?}: {program:?} from outside is let in");
        }
        assert_eq!(before.is_empty(), connections().is_empty());
    }

    /// The counter-test: with this fault, none of these programs passes.
    #[track_caller]
    pub fn fails(&self, policy: Policy, fault: Fault, programs: &[Program]) {
        self.put(policy, fault);
        std::thread::scope(|scope| {
            let each = programs.iter().map(|program| {
                let run = move || program.run(self, policy.talk(), programs::Patience::Short);
                (program, scope.spawn(run))
            });
            for (program, said) in each.collect::<Vec<_>>() {
                let said = said.join().unwrap();
                assert!(said.is_err(), "{policy:?}: {program:?} passes in spite of {fault:?}");
            }
        });
    }

    fn flows(&self) -> String {
        self.dir.ofctl(&["-O", "OpenFlow13", "dump-flows", "br0"]).ok()
    }
}

/// A side's router and host, with their addresses and routes.
fn lay_out(switch: &Namespace, network: &Network, side: Side) {
    let (n, other) = (side.number(), side.other().number());
    let port = ["west", "east"][side as usize];
    let settings = "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
        net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
        net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0";
    let quiet = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
    script(
        switch,
        &format!(
            "{quiet}; ip link add {port} type veth peer name wan netns {}; ip link set {port} up",
            network.router.name()
        ),
    );
    script(
        &network.router,
        &format!(
            "{settings}
             ip link add lan type veth peer name lan netns {host}
             ip addr add 192.0.2.{n}/24 dev wan
             ip addr add 2001:db8:ff::{n}/64 dev wan nodad
             ip addr add 10.0.{n}.1/24 dev lan
             ip addr add 172.16.{n}.1/24 dev lan
             ip addr add 2001:db8:{n}::1/64 dev lan nodad
             ip addr add fd00:{n}::1/64 dev lan nodad
             ip link set lo up; ip link set lan up; ip link set wan up
             for net in 10.0.{other}.0/24 198.51.{other}.0/24; do ip route add $net via 192.0.2.{other}; done
             for net in 2001:db8:{other}::/64 2001:db8:f{other}::/64; do
                 ip route add $net via 2001:db8:ff::{other}
             done",
            host = network.host.name()
        ),
    );
    script(
        &network.host,
        &format!(
            "{settings}
             ip addr add 10.0.{n}.2/24 dev lan
             ip addr add 172.16.{n}.2/24 dev lan
             ip addr add 2001:db8:{n}::2/64 dev lan nodad
             ip addr add fd00:{n}::2/64 dev lan nodad
             ip link set lo up; ip link set lan up
             ip route add default via 10.0.{n}.1
             ip route add default via 2001:db8:{n}::1"
        ),
    );
}
