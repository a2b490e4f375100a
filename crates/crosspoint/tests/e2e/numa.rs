//! Workers and queues on a machine of several NUMA nodes that is made up (`--dummy-numa`), beside the stock
//! switch with the same.

use crate::common::{PATIENCE, Process, RunDir, Switch, UDP, daemon, run_dir, wait_for};
use std::time::Instant;

/// A switch on a stock database, to which both switches' options are the same.
struct Side {
    dir: RunDir,
    _children: [Process; 2],
    /// Whose switch it is, for messages.
    name: &'static str,
}

impl Side {
    fn start(is_stock: bool, nodes: &str) -> Side {
        let dir = run_dir();
        let server = dir.serve_database();
        dir.vsctl("--no-wait init");
        let (remote, numa) = (dir.database(), format!("--dummy-numa={nodes}"));
        let switch = if is_stock {
            let args = [&remote, "--enable-dummy", "--disable-system", "--pidfile", &numa];
            Process::silent(dir.command("ovs-vswitchd").args(args))
        } else {
            Process::start(&mut daemon(&dir, &[&remote, "--enable-dummy", "--pool-size", "4096", &numa]))
        };
        let name = if is_stock { "stock" } else { "ours" };
        let side = Side { name, dir, _children: [server, switch] };
        side.dir.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
        side
    }

    fn add_port(&self, name: &str, options: &str) {
        self.dir.vsctl(&format!("add-port br0 {name} -- set interface {name} type=dummy-pmd {options}"));
    }

    /// Workers by their headings in `pmd-rxq-show`, each with whether it is isolated and the queues of the
    /// tests' ports.
    fn workers(&self) -> Vec<String> {
        let text = self.dir.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
        let mut workers: Vec<String> = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match (&words[..], workers.last_mut()) {
                (["pmd", ..], _) => workers.push(line.to_string()),
                (["isolated", _, isolated], Some(worker)) => *worker += &format!(" isolated {isolated}"),
                (["port:", port, "queue-id:", queue, ..], Some(worker)) if port.starts_with('p') => {
                    *worker += &format!(" {port}/{queue}");
                }
                _ => {}
            }
        }
        workers
    }

    /// The headings of `pmd-stats-show`.
    fn headings(&self) -> Vec<String> {
        let text = self.dir.appctl(&["dpif-netdev/pmd-stats-show"]).ok();
        text.lines().filter(|line| line.starts_with("pmd thread")).map(str::to_string).collect()
    }
}

#[test]
fn workers_and_queues_are_where_the_stock_switch_has_them() {
    // Cores 0 and 1 are on node 0, 2 and 3 on node 1, 4 on node 3.
    let sides = [true, false].map(|is_stock| Side::start(is_stock, "0,0,1,,1,-1,3"));
    let both = |f: &dyn Fn(&Side)| sides.iter().for_each(f);
    let agree = |what: &str, expected: &[&str]| {
        for side in &sides {
            let mut workers = Vec::new();
            let end = Instant::now() + PATIENCE;
            while workers != expected {
                assert!(Instant::now() < end, "{what}, {}: {workers:#?}", side.name);
                workers = side.workers();
            }
        }
    };
    both(&|side| {
        side.add_port("p0", "options:n_rxq=4");
        side.add_port("p1", "options:n_rxq=2 options:numa_id=1");
        side.add_port("p3", "options:numa_id=3");
    });
    let at_home = "p0/0 p0/1 p0/2 p0/3";
    agree(
        "one on each node",
        &[
            &format!("pmd thread numa_id 0 core_id 0: isolated false {at_home}"),
            "pmd thread numa_id 1 core_id 2: isolated false p1/0 p1/1",
            "pmd thread numa_id 3 core_id 4: isolated false p3/0",
        ],
    );
    both(&|side| {
        assert_eq!(
            side.headings(),
            [(0, 0), (1, 2), (3, 4)].map(|(node, core)| format!("pmd thread numa_id {node} core_id {core}:"))
        );
    });
    both(&|side| drop(side.dir.vsctl("set open_vswitch . other_config:pmd-cpu-mask=0x1a")));
    agree(
        "cores of the mask",
        &[
            &format!("pmd thread numa_id 0 core_id 1: isolated false {at_home}"),
            "pmd thread numa_id 1 core_id 3: isolated false p1/0 p1/1",
            "pmd thread numa_id 3 core_id 4: isolated false p3/0",
        ],
    );
    both(&|side| drop(side.dir.vsctl("set interface p1 options:numa_id=3")));
    agree(
        "a device that moves",
        &[
            &format!("pmd thread numa_id 0 core_id 1: isolated false {at_home}"),
            "pmd thread numa_id 1 core_id 3: isolated false",
            "pmd thread numa_id 3 core_id 4: isolated false p1/0 p1/1 p3/0",
        ],
    );
    both(&|side| drop(side.dir.vsctl("set interface p3 other_config:pmd-rxq-affinity=0:3")));
    agree(
        "a queue bound to a core of another node",
        &[
            &format!("pmd thread numa_id 0 core_id 1: isolated false {at_home}"),
            "pmd thread numa_id 1 core_id 3: isolated true p3/0",
            "pmd thread numa_id 3 core_id 4: isolated false p1/0 p1/1",
        ],
    );
    both(&|side| {
        side.dir.vsctl("remove interface p3 other_config pmd-rxq-affinity");
        side.dir.vsctl("set open_vswitch . other_config:pmd-cpu-mask=0x4");
    });
    agree(
        "nodes without a worker",
        &["pmd thread numa_id 1 core_id 2: isolated false p0/0 p0/1 p0/2 p0/3 p1/0 p1/1 p3/0"],
    );
    both(&|side| drop(side.dir.vsctl("remove open_vswitch . other_config pmd-cpu-mask")));
    both(&|side| drop(side.dir.vsctl("set interface p1 options:numa_id=1")));
    agree(
        "one on each node again",
        &[
            &format!("pmd thread numa_id 0 core_id 0: isolated false {at_home}"),
            "pmd thread numa_id 1 core_id 2: isolated false p1/0 p1/1",
            "pmd thread numa_id 3 core_id 4: isolated false p3/0",
        ],
    );
    // Packets that came through all that come out, and workers of several nodes forward.
    let ours = &sides[1];
    ours.dir.ofctl(&["add-flow", "br0", "actions=output:1,output:2,output:3"]).ok();
    for port in ["p0", "p1", "p3"] {
        ours.dir.appctl(&["netdev-dummy/receive", port, UDP]).ok();
    }
    for port in ["p0", "p1", "p3"] {
        let mut sent = 0;
        wait_for("packets of the other two", || {
            sent += ours.dir.appctl(&["netdev-dummy/sent", port]).ok().lines().count();
            sent == 2
        });
    }
    let stats = ours.dir.appctl(&["dpif-netdev/pmd-stats-show"]).ok();
    assert_eq!(stats.matches("packets received: 1\n").count(), 3, "{stats}");
}

#[test]
fn idle_queues_are_spread_over_the_workers_by_every_way_as_with_the_stock_switch() {
    let sides = [true, false].map(|is_stock| Side::start(is_stock, "0,0,1,1"));
    for side in &sides {
        let queues = || side.workers().iter().map(|w| w.matches('/').count()).collect::<Vec<_>>();
        let expect = |what: &str, expected: &[usize]| {
            let end = Instant::now() + PATIENCE;
            while queues() != expected {
                assert!(Instant::now() < end, "{what}, {}: {:#?}", side.name, side.workers());
            }
        };
        for n in 0..4 {
            side.add_port(&format!("p{n}"), &format!("options:n_rxq=2 options:numa_id={}", n % 2));
        }
        for way in ["group", "cycles", "roundrobin", "group"] {
            side.dir.vsctl(&format!("set open_vswitch . other_config:pmd-rxq-assign={way}"));
            side.dir.vsctl("set open_vswitch . other_config:pmd-cpu-mask=f");
            expect(&format!("{way}, two cores on each node"), &[2, 2, 2, 2]);
            side.dir.appctl(&["dpif-netdev/pmd-rxq-rebalance"]).ok();
            expect(&format!("{way}, placed anew"), &[2, 2, 2, 2]);
            side.dir.vsctl("set open_vswitch . other_config:pmd-cpu-mask=3");
            expect(&format!("{way}, both cores on one node"), &[4, 4]);
        }
    }
}

#[test]
fn workers_by_number_are_spread_over_the_nodes_and_a_list_of_nonsense_is_refused() {
    let switch = Switch::start(&["--bridge", "br0", "--workers", "5", "--dummy-numa", "1,0,1"]);
    let shown = switch.appctl(&["dpif-netdev/pmd-stats-show"]).ok();
    let workers: Vec<&str> = shown.lines().filter(|line| line.starts_with("pmd")).collect();
    let place = |(node, core): (u32, u32)| format!("pmd thread numa_id {node} core_id {core}:");
    assert_eq!(workers, [(1, 0), (0, 1), (1, 2), (0, 3), (0, 4)].map(place));
    for line in ["Discovered 2 CPU cores on NUMA node 1", "Discovered 2 NUMA nodes and 3 CPU cores"] {
        assert!(switch.log().contains(line), "{}", switch.log());
    }
    let dir = run_dir();
    let status = daemon(&dir, &["--bridge", "br0", "--dummy-numa", "0;1"]).status().unwrap();
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(!status.success() && log.contains("--dummy-numa=0;1: expected the NUMA node"), "{log}");
}
