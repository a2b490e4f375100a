//! All suites, as data. docs/benchmarking.md says how to add one.

use super::{Grid, Limit, Measure, Peer, Plot, Step, Suite};

const OVS_DPDK: Option<Peer> = Some(Peer {
    switch: "ovs-dpdk",
    argument: "--peer ovs-dpdk",
    program: "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
    package: "openvswitch-switch-dpdk",
});
const OVS_VSWITCHD: Option<Peer> = Some(Peer {
    switch: "ovs",
    argument: "--peer ovs-vswitchd",
    program: "/usr/lib/openvswitch-switch/ovs-vswitchd",
    package: "openvswitch-switch",
});
const OVSDB_SERVER: Option<Peer> = Some(Peer {
    switch: "ovsdb-server",
    argument: "--peer ovsdb-server",
    program: "/usr/sbin/ovsdb-server",
    package: "openvswitch-switch",
});

/// A step that is one measurement.
const fn measure(
    step: &'static str,
    what: &'static str,
    normal: &'static str,
    quick: &'static str,
    peer: Option<Peer>,
) -> Step {
    Step::Measure(Measure { step, what, normal, quick, peer })
}

/// Switches between kernel interfaces.
const KERNEL: &[&str] =
    &["crosspoint", "crosspoint-af_packet", "ovs-netdev", "bridge", "ip-forward", "testpmd-macswap"];

/// A step on test beds with the built-in generator and guest; the rest is set by what differs.
const GRID: Grid = Grid {
    step: "",
    topologies: &["P2P"],
    switches: KERNEL,
    guests: &["builtin"],
    generator: "builtin",
    sizes: &[64],
    flows: &[100],
    rates: &[0],
    trials: &["max-rate"],
};

/// The same with every mode.
const ALL: &[&str] = crate::lab::switch::list::NAMES;

const KERNEL_PATHS: &str = "Between kernel interfaces";
const RULES: &str = "Rules, new flows and changes";
const MEMORY: &str = "Datapath in memory";
const GUESTS: &str = "Through guests";
const IO: &str = "Ports, batches and I/O loops";
const CONTROL: &str = "Control plane and memory";

/// See the module's text.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "p2p",
        group: MEMORY,
        question: "What does a packet cost from port to port, by rules and number of flows?",
        steps: &[
            measure(
                "in_port",
                "p2p --rules in_port --flows 1,10,1k,10k,100k,250k,1m",
                "--runs 3",
                "--rules in_port --flows 1,1k --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "exact",
                "p2p --rules exact --flows 1,10,1k,10k,100k,250k,1m",
                "--runs 3",
                "--rules exact --flows 10,1k --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "normal",
                "p2p --rules normal --flows 1,10,1k,10k,100k,250k,1m",
                "--runs 3",
                "--rules normal --flows 1,1k --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
        ],
        plots: &[
            Plot::new(
                "Cycles per packet, source and sink subtracted",
                "switching_cycles_per_packet",
                "flows",
            )
            .by(&["rules"])
            .only(&[("order", "shuffled")])
            .log(),
            Plot::new("Cycles per packet in all", "cycles_per_packet", "flows")
                .by(&["rules"])
                .only(&[("order", "shuffled")])
                .log(),
        ],
    },
    Suite {
        name: "pvp",
        group: GUESTS,
        question: "What does a packet cost through a guest and back, or from guest to guest?",
        steps: &[
            measure(
                "testpmd",
                "pvp --guest testpmd",
                "--runs 3",
                "--guest testpmd --sizes 64 --flows 10 --runs 2 --turn-ms 300",
                OVS_DPDK,
            ),
            measure(
                "builtin",
                "pvp --guest builtin",
                "--runs 3",
                "--guest builtin --sizes 64 --flows 10 --runs 2 --turn-ms 300",
                OVS_DPDK,
            ),
            measure(
                "guest-to-guest",
                "pvp --path guest-to-guest",
                "--runs 3",
                "--path guest-to-guest --sizes 64 --flows 10 --runs 2 --turn-ms 300",
                OVS_DPDK,
            ),
            measure(
                "lossless",
                "pvp --loss 0",
                "--runs 3",
                "--sizes 64 --flows 10 --loss 0.01 --runs 1 --turn-ms 100",
                OVS_DPDK,
            ),
            measure(
                "guest-to-guest-lossless",
                "pvp --path guest-to-guest --loss 0",
                "--runs 3",
                "--path guest-to-guest --sizes 64 --flows 10 --loss 0.01 --runs 1 --turn-ms 100",
                OVS_DPDK,
            ),
        ],
        plots: &[
            Plot::new("Busy cycles per packet delivered, 64 bytes", "cycles_per_packet", "flows")
                .by(&["path", "guest"])
                .only(&[("size", "64")])
                .log(),
            Plot::new("Busy cycles per packet delivered, 1518 bytes", "cycles_per_packet", "flows")
                .by(&["path", "guest"])
                .only(&[("size", "1518")])
                .log(),
        ],
    },
    Suite {
        name: "masks",
        group: RULES,
        question: "Many distinct masks: what does a packet cost, and which tier serves it?",
        steps: &[measure(
            "masks",
            "masks",
            "--turn-ms 500",
            "--masks 1,8 --flows 1k --runs 1 --turn-ms 200",
            None,
        )],
        plots: &[Plot::new("Cycles per packet by number of masks", "cycles_per_packet", "masks")
            .by(&["exact_tier", "megaflows"])
            .only(&[("flows", "1000")])
            .log()],
    },
    Suite {
        name: "misses",
        group: RULES,
        question: "How many new flows per second can one worker translate and install?",
        steps: &[measure("misses", "misses", "--runs 5", "--rules 10 --flows 50k --runs 2", None)],
        plots: &[Plot::new("New flows per CPU-second", "packets_per_cpu_second", "rules")
            .by(&["memory"])
            .log()],
    },
    Suite {
        name: "flow-mod",
        group: RULES,
        question: "All rules replaced at once under traffic: how much throughput stays, and does a worker stall?",
        steps: &[measure(
            "replace",
            "replace",
            "--runs 3",
            "--rules 20k --flows 5k --runs 1 --turn-ms 200",
            None,
        )],
        plots: &[],
    },
    Suite {
        name: "coupling",
        group: RULES,
        question: "How much throughput stays while rules of other flows are added and deleted?",
        steps: &[
            measure(
                "rate-1k",
                "churn --rate 1k",
                "--runs 7 --turn-ms 2000",
                "--flows 5k --runs 2 --turn-ms 300",
                None,
            ),
            measure(
                "rate-100",
                "churn --rate 100",
                "--runs 7 --turn-ms 2000",
                "--rate 100 --flows 5k --runs 2 --turn-ms 300",
                None,
            ),
            measure(
                "rate-10k",
                "churn --rate 10k",
                "--runs 7 --turn-ms 2000",
                "--rate 10k --flows 5k --runs 2 --turn-ms 300",
                None,
            ),
        ],
        plots: &[Plot::new("Throughput in ratio to no changes", "throughput_ratio", "flow_mods_per_s").log()],
    },
    Suite {
        name: "expiry",
        group: RULES,
        question: "A full cache whose idle flows expire: how much does it disturb the others?",
        steps: &[measure(
            "expiry",
            "expiry",
            "--runs 3",
            "--flows 20k --active 2k --max-idle-ms 1500 --runs 1 --turn-ms 200",
            None,
        )],
        plots: &[],
    },
    Suite {
        name: "fairness",
        group: RULES,
        question: "A port that opens flows as fast as it can, or a guest that stops reading: what do others keep?",
        steps: &[
            measure("new-flows", "fairness", "--runs 7", "--flows 50k --runs 2 --turn-ms 200", None),
            measure(
                "stopped-guest",
                "fairness --beside stopped-guest",
                "--runs 7",
                "--beside stopped-guest --runs 2 --turn-ms 200",
                None,
            ),
        ],
        plots: &[],
    },
    Suite {
        name: "collide",
        group: RULES,
        question: "Flows that collide under a CRC: does anything degrade?",
        steps: &[measure("collide", "collide", "--runs 7", "--flows 1k --runs 2 --turn-ms 100", None)],
        plots: &[],
    },
    Suite {
        name: "cores",
        group: MEMORY,
        question: "How much more do two workers do than one, with shared and with separate flows?",
        steps: &[measure("scale", "scale", "--runs 5", "--flows 5k --runs 2 --turn-ms 200", None)],
        plots: &[Plot::new("Rate of two workers in ratio to one", "scaling", "load")],
    },
    Suite {
        name: "ports-and-batches",
        group: IO,
        question: "Many idle ports beside two that carry traffic: does a packet cost more?",
        steps: &[measure(
            "ports",
            "ports --ports 2,4,6,8,16,32,64,128,256,512",
            "--runs 7",
            "--ports 2,8 --runs 2 --turn-ms 100",
            None,
        )],
        plots: &[Plot::new("Cycles per packet by number of ports", "cycles_per_packet", "ports").log()],
    },
    Suite {
        name: "io-loop",
        group: IO,
        question: "Between kernel interfaces, beside Open vSwitch and the Linux bridge: what does a packet cost the machine?",
        steps: &[measure(
            "veth",
            "afxdp",
            "--runs 5 --turn-ms 2000",
            "--rates 10k --runs 1 --turn-ms 300",
            None,
        )],
        plots: &[Plot::new(
            "Cycles of the whole machine per packet",
            "machine_cycles_per_packet",
            "offered_per_s",
        )
        .by(&["port_type"])
        .log()],
    },
    Suite {
        name: "wake",
        group: IO,
        question: "What does waking a sleeping worker add, and what does an idle switch cost?",
        steps: &[measure("wake", "wake", "--runs 5", "--runs 1 --turn-ms 200", None)],
        plots: &[],
    },
    Suite {
        name: "memory",
        group: CONTROL,
        question: "How many bytes does a rule take, and an active flow?",
        steps: &[measure("memory", "memory", "--runs 1", "--rules 10k --flows 10k --runs 1", None)],
        plots: &[],
    },
    Suite {
        name: "counts",
        group: CONTROL,
        question: "How late are the counters of rules under traffic?",
        steps: &[measure("counts", "counts", "--runs 3", "--flows 2k --runs 1", None)],
        plots: &[Plot::new("Lateness of counters in ms", "wait_ms", "flows").log()],
    },
    Suite {
        name: "load-rules",
        group: CONTROL,
        question: "How long does the stock ovs-ofctl take to load rules, and how much memory do they take?",
        steps: &[measure("load-rules", "load-rules", "--runs 1", "--rules 1k --runs 1", OVS_VSWITCHD)],
        plots: &[],
    },
    Suite {
        name: "ovsdb",
        group: CONTROL,
        question: "The database server: transactions, monitors, start with a large file, memory, compaction?",
        steps: &[measure(
            "ovsdb",
            "ovsdb",
            "--runs 7",
            "--monitors 1,10 --rows 1k --runs 1 --turn-ms 200",
            OVSDB_SERVER,
        )],
        plots: &[],
    },
    Suite {
        name: "ports-config",
        group: CONTROL,
        question: "How long until a configuration with many ports is in force, and one more port?",
        steps: &[measure(
            "ports-config",
            "ports-config",
            "--runs 3",
            "--ports 20 --afxdp-ports 2 --runs 1",
            None,
        )],
        plots: &[],
    },
    Suite {
        name: "calibration",
        group: KERNEL_PATHS,
        question: "What can the generator alone do here, with no switch between?",
        steps: &[
            Step::Grid(Grid { step: "max", topologies: &["direct"], sizes: &[64, 512, 1518], ..GRID }),
            Step::Grid(Grid {
                step: "fixed",
                topologies: &["direct"],
                rates: &[1_000, 10_000, 50_000],
                trials: &["fixed"],
                ..GRID
            }),
        ],
        plots: &[Plot::new("Packets per second", "rate_pps", "size")],
    },
    Suite {
        name: "forwarding-table",
        group: KERNEL_PATHS,
        question: "How much does each switch forward from NIC to NIC, and through guests (Emmerich, Table I)?",
        steps: &[
            Step::Grid(Grid { step: "nic", switches: ALL, ..GRID }),
            Step::Grid(Grid { step: "guests", topologies: &["PVP", "PVVP"], ..GRID }),
        ],
        plots: &[],
    },
    Suite {
        name: "load-curve",
        group: KERNEL_PATHS,
        question: "Offered load against throughput, loss, latency and CPU (Emmerich, Fig. 9 and 10): where does it break?",
        steps: &[Step::Grid(Grid {
            step: "nic",
            rates: &[10_000, 20_000, 50_000, 100_000, 200_000, 400_000],
            trials: &["fixed"],
            ..GRID
        })],
        plots: &[
            Plot::new("Packets per second", "rate_pps", "offered_pps").limit(Limit::Offered),
            Plot::new("Latency in microseconds, p99", "latency_p99_us", "offered_pps"),
            Plot::new(
                "Cycles of the machine per packet, the generator's subtracted",
                "machine_cycles_per_packet",
                "offered_pps",
            ),
            Plot::new("Processors that the switch uses", "cpu_switch", "offered_pps"),
        ],
    },
    Suite {
        name: "packet-size",
        group: KERNEL_PATHS,
        question: "How do throughput and cost depend on the size of packets (Emmerich, Fig. 5 and 11)?",
        steps: &[
            Step::Grid(Grid { step: "nic", sizes: &[64, 128, 256, 512, 1024, 1280, 1518], ..GRID }),
            Step::Grid(Grid {
                step: "guest",
                topologies: &["PVP"],
                sizes: &[64, 128, 256, 512, 1024, 1280, 1518],
                ..GRID
            }),
        ],
        plots: &[Plot::new("Packets per second", "rate_pps", "size").by(&["topology"])],
    },
    Suite {
        name: "flows-and-caches",
        group: KERNEL_PATHS,
        question: "How does throughput depend on the number of flows (Emmerich, Fig. 7)?",
        steps: &[Step::Grid(Grid {
            step: "nic",
            flows: &[1, 10, 100, 500, 1_000, 2_000, 10_000, 100_000],
            ..GRID
        })],
        plots: &[Plot::new("Packets per second", "rate_pps", "flows").log()],
    },
    Suite {
        name: "clone",
        group: KERNEL_PATHS,
        question: "What does a copy to 1, 2, 3 and 8 outputs cost (Emmerich, Fig. 8)?",
        steps: &[Step::Grid(Grid {
            step: "copies",
            topologies: &["P2P", "clone-2", "clone-3", "clone-8"],
            switches: &["crosspoint", "crosspoint-af_packet", "ovs-netdev"],
            rates: &[10_000],
            trials: &["fixed"],
            ..GRID
        })],
        plots: &[Plot::new("Cycles of the switch per packet received", "cycles_per_packet", "copies")],
    },
    Suite {
        name: "native-vs-poll-mode",
        group: KERNEL_PATHS,
        question: "The kernel's forwarding against datapaths in user space at 256 bytes without loss (Intel, Fig. 6 and 7)?",
        steps: &[
            Step::Grid(Grid { step: "nic", switches: ALL, sizes: &[256], trials: &["mlrsearch"], ..GRID }),
            Step::Grid(Grid {
                step: "guest",
                topologies: &["PVP"],
                sizes: &[256],
                trials: &["mlrsearch"],
                ..GRID
            }),
        ],
        plots: &[],
    },
    Suite {
        name: "latency",
        group: KERNEL_PATHS,
        question: "How long does a packet take at rest, and at 10, 50 and 90 % of the rate without loss?",
        steps: &[Step::Grid(Grid { step: "nic", trials: &["latency"], ..GRID })],
        plots: &[],
    },
    Suite {
        name: "back-to-back",
        group: KERNEL_PATHS,
        question: "How long a burst is forwarded without loss (RFC 9004)?",
        steps: &[Step::Grid(Grid { step: "nic", trials: &["back-to-back"], ..GRID })],
        plots: &[],
    },
    Suite {
        name: "zero-loss",
        group: KERNEL_PATHS,
        question: "Which rate is forwarded without loss, by RFC 2544's search and by MLRsearch?",
        steps: &[Step::Grid(Grid { step: "nic", trials: &["rfc2544", "mlrsearch"], ..GRID })],
        plots: &[],
    },
    Suite {
        name: "pvp-matrix",
        group: GUESTS,
        question: "Through a guest at wire speed with loss allowed, by packet size and number of flows (Red Hat)?",
        steps: &[Step::Grid(Grid {
            step: "matrix",
            topologies: &["PVP"],
            switches: &["crosspoint", "crosspoint-af_packet"],
            guests: &["builtin", "testpmd"],
            sizes: &[64, 128, 256, 512, 1024, 1280, 1518],
            flows: &[10, 1_000, 10_000, 100_000, 1_000_000],
            ..GRID
        })],
        plots: &[
            Plot::new("Packets per second", "rate_pps", "size")
                .by(&["flows", "guest"])
                .limit(Limit::TenGigabitPps),
            Plot::new("Processors that the switch uses", "cpu_switch", "size").by(&["flows", "guest"]),
        ],
    },
];

/// The suite of this name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_suites_and_of_their_steps_are_unique() {
        let names: BTreeSet<_> = SUITES.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SUITES.len());
        for suite in SUITES {
            let steps: BTreeSet<_> = suite.steps.iter().map(Step::name).collect();
            assert_eq!(steps.len(), suite.steps.len(), "{}", suite.name);
            for grid in suite.steps.iter().filter_map(|s| if let Step::Grid(g) = s { Some(g) } else { None })
            {
                assert!(grid.topologies.iter().all(|t| crate::lab::topology::find(t).is_some()));
                assert!(grid.trials.iter().all(|t| crate::lab::trial::list::find(t).is_some()));
                assert!(grid.guests.iter().all(|g| crate::lab::guest::list::find(g).is_some()));
                assert!(grid.switches.iter().all(|s| crate::lab::switch::list::NAMES.contains(s)));
                assert!(crate::lab::generator::list::find(grid.generator).is_some());
            }
            assert!(suite.question.ends_with('?') && !suite.steps.is_empty());
        }
    }
}
