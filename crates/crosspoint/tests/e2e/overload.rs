//! More traffic than one worker can take, and traffic that only one worker may take: what docs/workers.md
//! says of it, read from the counters.

use crate::common::{Namespace, Process, RunDir, binary, daemon_in, namespace, run_dir, wait_for};

/// A switch with its own database in a network namespace: bridge br0 with an interface `p0` of the kernel's,
/// whose other end is `far`, and with a port `sink` that takes everything.
struct Rig {
    dir: RunDir,
    namespace: Namespace,
    _switch: Process,
}

impl Rig {
    /// `p0` is what the words of `ovs-vsctl set interface` say.
    fn start(workers: u32, p0: &str) -> Rig {
        let (dir, namespace) = (run_dir(), namespace());
        // The kernel's own packets are not to be counted.
        namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        let args = ["--pool-size", "16384", "--workers", &workers.to_string()];
        let switch = Process::start(&mut daemon_in(&namespace, &dir, &args));
        let rig = Rig { dir, namespace, _switch: switch };
        rig.namespace.ip("link add p0 numrxqueues 2 numtxqueues 2 type veth peer name far");
        for device in ["p0", "far"] {
            rig.namespace.ip(&format!("link set {device} up"));
        }
        wait_for("the database", || testkit::listens(rig.dir.file("db.sock")));
        rig.dir.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
        rig.dir.vsctl(&format!("add-port br0 p0 -- set interface p0 ofport_request=1 {p0}"));
        rig.dir.vsctl("add-port br0 sink -- set interface sink ofport_request=2 type=null");
        assert_eq!(rig.dir.vsctl("get interface p0 error"), "[]");
        rig
    }

    #[track_caller]
    fn add_flow(&self, flow: &str) {
        self.dir.ofctl(&["add-flow", "br0", flow]).ok();
    }

    fn appctl(&self, command: &str) -> String {
        self.dir.appctl(&[command]).ok()
    }

    /// Sends UDP of so many flows into `p0` for a second, as fast as it goes; how many frames it were.
    fn send(&self, flows: u32) -> u64 {
        let words = format!(
            "{} bench generate --ifname far --rate 5m --flows {flows} --seconds 1",
            binary().display()
        );
        let said = self.namespace.run(&words);
        said.trim().parse().unwrap_or_else(|_| panic!("the generator said {said}"))
    }

    /// Packets received and dropped at a port, as `dump-ports` has them.
    fn received(&self, port: &str) -> (u64, u64) {
        let text = self.dir.ofctl(&["dump-ports", "br0", port]).ok();
        let rx = &text[text.find("rx pkts=").unwrap()..];
        (number(rx, "pkts="), number(rx, "drop="))
    }

    fn statistic(&self, name: &str) -> u64 {
        self.dir.vsctl(&format!("get interface p0 statistics:{name}")).parse().unwrap()
    }

    /// What `pmd-stats-show` has of each worker.
    fn workers(&self) -> Vec<String> {
        let text = self.appctl("dpif-netdev/pmd-stats-show");
        let parts = text.split("pmd thread ").skip(1).filter(|part| part.contains("packets received"));
        parts.map(str::to_owned).collect()
    }
}

/// So many of each packet leave.
const COPIES: usize = 200;

/// A packet that costs its worker as much as many, whatever the machine.
fn dear_flow() -> String {
    format!("in_port=1,actions={}", ["2"; COPIES].join(","))
}

/// The number behind a word.
#[track_caller]
fn number(text: &str, word: &str) -> u64 {
    let at = text.find(word).unwrap_or_else(|| panic!("no {word}: {text}")) + word.len();
    let digits: String = text[at..].trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind {word}: {text}"))
}

#[test]
fn what_an_overloaded_worker_does_not_take_is_lost_in_the_device_and_counted_at_its_port() {
    for p0 in ["type=afxdp", "type=system options:driver=af_packet"] {
        let rig = Rig::start(1, p0);
        rig.add_flow(&dear_flow());
        let mut sent = 0;
        wait_for("more than the worker takes", || {
            rig.appctl("dpif-netdev/pmd-stats-clear");
            sent += rig.send(100);
            let worker = &rig.workers()[0];
            let (busy, idle) = (number(worker, "processing cycles:"), number(worker, "idle cycles:"));
            // It had work all the while that the sender was at it, and that was most of the time.
            rig.received("p0").1 > 1_000 && busy > idle
        });
        let left = || number(&rig.dir.ofctl(&["dump-ports", "br0", "sink"]).ok(), "tx pkts=");
        // What waits in the ring is still taken, and what it sends is counted after that.
        wait_for("the worker to come to the end", || {
            let (received, dropped) = rig.received("p0");
            received + dropped == sent && left() == COPIES as u64 * received
        });
        let (received, dropped) = rig.received("p0");
        assert_eq!(sent, received + dropped, "{}", rig.namespace.ip("-s link"));
        wait_for("statistics", || rig.statistic("rx_dropped") == dropped);
        // A packet socket says that its ring was full; AF_XDP says only that there was no buffer.
        assert_eq!(rig.statistic("rx_missed_errors"), if p0.contains("af_packet") { dropped } else { 0 });
        println!("{p0}: {sent} sent, {received} received, {dropped} dropped");
        // All that it took it has sent.
        assert_eq!(left(), COPIES as u64 * received);
    }
}

#[test]
fn one_flow_is_one_queue_of_one_worker_and_many_are_shared() {
    let rig = Rig::start(2, "type=system options:driver=af_packet options:n_rxq=2");
    rig.add_flow(&dear_flow());
    let received = || -> Vec<u64> {
        let mut received: Vec<u64> = rig.workers().iter().map(|w| number(w, "packets received:")).collect();
        received.sort_unstable();
        received
    };
    // The flow's queue, by its worker's part of `pmd-rxq-show`; and how many queues there are.
    let usages = || -> Vec<u64> {
        let text = rig.appctl("dpif-netdev/pmd-rxq-show");
        assert!(text.split("pmd thread ").skip(1).all(|w| w.matches("port: p0 ").count() == 1), "{text}");
        let lines = text.lines().filter(|line| line.contains("port: p0 "));
        // Nothing is known of a queue that has been there for a moment.
        let usage = |line: &str| if line.contains("NOT AVAIL") { 0 } else { number(line, "pmd usage:") };
        let mut usages: Vec<u64> = lines.map(usage).collect();
        usages.sort_unstable();
        usages
    };
    let mut sent = 0;
    wait_for("one queue to be used", || {
        sent += rig.send(1);
        usages()[1] > 0
    });
    assert_eq!(usages()[0], 0, "the other queue has nothing to do");
    assert_eq!(received()[0], 0, "and neither has its worker");
    wait_for("the last packets", || {
        let (taken, dropped) = rig.received("p0");
        taken + dropped == sent && received()[1] == taken
    });
    assert_eq!(received()[1], rig.received("p0").0);
    wait_for("the other queue", || {
        rig.send(100);
        usages()[0] > 0
    });
    assert!(received()[0] > 0);
}
