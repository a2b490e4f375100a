//! How long a fast failover group takes to leave a port whose link goes down.

use crate::common::{Process, daemon_in, namespace, run, run_dir, wait_for};
use std::time::Duration;

/// Sends a frame every 250 µs into `far0`. Once frames come out at `far1`, takes that down, and prints the
/// microseconds until the first one comes out at `far2`; five times, between which `far1` is up again.
const MEASURE: &str = include_str!("failover.py");

#[test]
fn a_fast_failover_group_leaves_a_dead_link_within_10_ms() {
    let (dir, namespace) = (run_dir(), namespace());
    namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    let _switch = Process::start(&mut daemon_in(&namespace, &dir, &["--pool-size", "16384"]));
    wait_for("the database", || testkit::listens(dir.file("db.sock")));
    dir.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
    for n in ["0", "1", "2"] {
        let (near, far) = (format!("p{n}"), format!("far{n}"));
        namespace.ip(&format!("link add {near} type veth peer name {far}"));
        namespace.ip(&format!("link set {near} up"));
        namespace.ip(&format!("link set {far} up"));
        dir.vsctl(&format!(
            "add-port br0 {near} -- set interface {near} ofport_request={}",
            1 + near.as_bytes()[1] - b'0'
        ));
    }
    let group =
        "group_id=1,type=ff,bucket=watch_port:2,actions=output:2,bucket=watch_port:3,actions=output:3";
    dir.ofctl(&["-O", "OpenFlow13", "add-group", "br0", group]).ok();
    dir.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:1"]).ok();

    let text = run(namespace.command("timeout").args(["60", "python3", "-c", MEASURE])).ok();
    let mut took: Vec<Duration> =
        text.lines().map(|line| Duration::from_micros(line.parse().expect("microseconds"))).collect();
    assert_eq!(took.len(), 5, "{text}");
    took.sort();
    // A busy machine delays any one: it is the switch's own delay that is bounded.
    assert!(took[1] < Duration::from_millis(10), "it took {took:?}");
}
