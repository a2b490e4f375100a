//! Suites of measurements in memory.

use super::parts::*;
use super::{Grid, Plot, Step, Suite};

/// See the module documentation.
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
                "--rules in_port --flows 1,1k --order shuffled --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "exact",
                "p2p --rules exact --flows 1,10,1k,10k,100k,250k,1m",
                "--runs 3",
                "--rules exact --flows 10,1k --order shuffled --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "normal",
                "p2p --rules normal --flows 1,10,1k,10k,100k,250k,1m",
                "--runs 3",
                "--rules normal --flows 1,1k --order shuffled --runs 2 --turn-ms 200",
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
                .only(&[("size", "64"), ("loss_allowed", "")])
                .log(),
            Plot::new("Busy cycles per packet delivered, 1518 bytes", "cycles_per_packet", "flows")
                .by(&["path", "guest"])
                .only(&[("size", "1518"), ("loss_allowed", "")])
                .log(),
        ],
    },
    Suite {
        name: "masks",
        group: RULES,
        question: "Many distinct masks, by rules or by an attacker: what does a packet cost, and what is left to others?",
        steps: &[
            measure(
                "masks",
                "masks",
                "--runs 3 --turn-ms 500",
                "--masks 1,8 --flows 1k --runs 1 --turn-ms 200",
                None,
            ),
            measure(
                "explosion",
                "explosion",
                "--runs 5",
                "--rates 1k --flows 100 --runs 1 --turn-ms 200",
                None,
            ),
        ],
        plots: &[
            Plot::new("Cycles per packet by number of masks, 1,000 flows", "cycles_per_packet", "masks")
                .by(&["exact_tier", "megaflows"])
                .only(&[("flows", "1000")])
                .log(),
            Plot::new("Cycles per packet by number of masks, 100,000 flows", "cycles_per_packet", "masks")
                .by(&["exact_tier", "megaflows"])
                .only(&[("flows", "100000")])
                .log(),
            Plot::new(
                "What other flows keep beside packets that each leave a mask",
                "kept_ratio",
                "attack_pps",
            )
            .by(&["flows"])
            .log(),
        ],
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
        name: "conntrack",
        group: RULES,
        question: "A stateful firewall, also with SNAT: what do established packets and new connections cost?",
        steps: &[
            measure(
                "firewall",
                "conntrack",
                "--runs 3",
                "--connections 1,1k --new 20k --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "flood",
                "flood --of tcp,tcp6,udp",
                "--runs 5",
                "--rates 100k --connections 1k --runs 1 --turn-ms 200",
                None,
            ),
        ],
        plots: &[
            Plot::new("Established packets per CPU-second", "packets_per_cpu_second", "connections")
                .by(&["rules"])
                .only(&[("what", "established")])
                .log(),
            Plot::new(
                "Packets per CPU-second without connection tracking",
                "packets_per_cpu_second",
                "connections",
            )
            .only(&[("what", "stateless")])
            .log(),
            Plot::bars("New connections per CPU-second", "packets_per_cpu_second")
                .by(&["rules", "connections"])
                .only(&[("what", "new")]),
        ],
    },
    Suite {
        name: "flow-mod",
        group: RULES,
        question: "How many flow-mods per second: singly, bundled, over a connection, and replacing all rules under traffic?",
        steps: &[
            measure("rate", "flow-mods", "--runs 5", "--rules 1k --runs 1", OVS_VSWITCHD),
            measure("replace", "replace", "--runs 3", "--rules 20k --flows 5k --runs 1 --turn-ms 200", None),
        ],
        plots: &[
            Plot::bars("Without traffic: flow-mods per second", "flow_mods_made_per_s")
                .by(&["what", "rules"])
                .only(&[("flows", "")]),
            Plot::bars("All rules replaced: throughput in ratio to no changes", "throughput_ratio")
                .by(&["rules"]),
            Plot::bars("All rules replaced: milliseconds of the worker's longest pass", "longest_pass_ms")
                .by(&["rules"]),
        ],
    },
    Suite {
        name: "coupling",
        group: RULES,
        question: "How much throughput stays, and how long do packets take, while rules of other flows are added and deleted?",
        steps: &[
            measure(
                "rate-1k",
                "churn --rate 1k",
                "--runs 7 --turn-ms 2000",
                "--flows 5k --runs 2 --turn-ms 300",
                None,
            ),
            // Two seconds hold one of them.
            measure(
                "rate-1",
                "churn --rate 1",
                "--runs 7 --turn-ms 2000",
                "--rate 1 --flows 5k --runs 1 --turn-ms 1200",
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
            measure(
                "few-rules",
                "churn --rate 1k --flows 10",
                "--runs 7 --turn-ms 2000",
                "--rate 1k --flows 10 --runs 2 --turn-ms 300",
                None,
            ),
            measure(
                "many-rules",
                "churn --rate 1k --flows 1m",
                "--runs 5 --turn-ms 2000",
                "--rate 1k --flows 20k --runs 2 --turn-ms 300",
                None,
            ),
            // Beside other switches, with what it does to latency.
            Step::Grid(Grid {
                step: "latency",
                switches: OPENFLOW,
                flows: &[10],
                rules: &[10, 10_000, 1_000_000],
                rates: &[20_000],
                trials: CHANGES,
                ..GRID
            }),
            Step::Grid(Grid {
                step: "throughput",
                switches: OPENFLOW,
                flows: &[10],
                rules: &[10, 10_000, 1_000_000],
                trials: CHANGES,
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("Throughput in ratio to no changes", "throughput_ratio", "flow_mods_per_s")
                .by(&["rules"])
                .log(),
            Plot::new(
                "Latency in microseconds at 20,000 packets/s, p99, 10 rules",
                "latency_p99_us",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", "20000"), ("rules", "10")])
            .log(),
            Plot::new(
                "Latency in microseconds at 20,000 packets/s, p99, 10,000 rules",
                "latency_p99_us",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", "20000"), ("rules", "10000")])
            .log(),
            Plot::new(
                "Latency in microseconds at 20,000 packets/s, p99, 1,000,000 rules",
                "latency_p99_us",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", "20000"), ("rules", "1000000")])
            .log(),
            Plot::new(
                "Packets per second as fast as they come while rules change, 10 rules",
                "rate_pps",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", ""), ("rules", "10")])
            .log(),
            Plot::new(
                "Packets per second as fast as they come while rules change, 10,000 rules",
                "rate_pps",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", ""), ("rules", "10000")])
            .log(),
            Plot::new(
                "Packets per second as fast as they come while rules change, 1,000,000 rules",
                "rate_pps",
                "flow_mods_per_s",
            )
            .only(&[("offered_pps", ""), ("rules", "1000000")])
            .log(),
        ],
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
        plots: &[Plot::bars(
            "Throughput while the caches shrink, in ratio to afterwards",
            "throughput_ratio",
        )
        .by(&["rules"])],
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
        plots: &[Plot::bars("What another port keeps, in ratio to the time before", "kept_ratio")
            .by(&["what", "feeds"])],
    },
    Suite {
        name: "collide",
        group: RULES,
        question: "Flows that collide under a CRC: does anything degrade?",
        steps: &[measure("collide", "collide", "--runs 7", "--flows 1k --runs 2 --turn-ms 100", None)],
        plots: &[
            Plot::bars("Cycles per packet of known flows", "cycles_per_packet").by(&["colliding_under"]),
            Plot::bars("Cycles of a new flow", "new_flow_cycles").by(&["colliding_under"]),
        ],
    },
    Suite {
        name: "prefix-vs-exact",
        group: RULES,
        question: "One rule of a /16 prefix, or 65,536 rules of one address each: what does a packet cost (Red Hat)?",
        steps: &[
            measure(
                "prefix",
                "p2p --rules prefix --flows 10,1k,65536 --order shuffled",
                "--runs 5",
                "--rules prefix --flows 1k --order shuffled --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
            measure(
                "exact",
                "p2p --rules per_source --flows 10,1k,65536 --order shuffled",
                "--runs 5",
                "--rules per_source --flows 1k --order shuffled --runs 2 --turn-ms 200",
                OVS_DPDK,
            ),
        ],
        plots: &[Plot::new("Cycles per packet in all", "cycles_per_packet", "flows").by(&["rules"]).log()],
    },
    Suite {
        name: "mac-learning",
        group: RULES,
        question: "How many addresses are learned per second, and how many of the new ones, by NORMAL and as rules by `learn`?",
        steps: &[
            measure("learning", "mac-learning", "--runs 5", "--frames 20k --new 0,50 --runs 1", None),
            measure("rules", "learned-rules", "--runs 5", "--rules 100k --runs 1", OVS_DPDK),
        ],
        plots: &[
            Plot::new("Cycles per packet", "cycles_per_packet", "new_percent"),
            Plot::new("Addresses learned per second", "learned_per_s", "new_percent"),
            Plot::new("Share of the new addresses that are learned", "learned_ratio", "new_percent"),
        ],
    },
    Suite {
        name: "rule-to-effect",
        group: RULES,
        question: "How long until a packet obeys a changed rule, and until counters are told (OFLOPS)?",
        steps: &[
            // Over OpenFlow, beside other switches.
            Step::Grid(Grid {
                step: "openflow",
                topologies: &["P2P-turned"],
                switches: OPENFLOW,
                flows: &[10],
                rules: &[10, 1_000, 100_000],
                rates: &[50_000],
                trials: &["effect"],
                ..GRID
            }),
            measure(
                "effect",
                "rule-to-effect",
                "--runs 5",
                "--rules 10 --flows 100 --runs 1 --turn-ms 100",
                None,
            ),
        ],
        plots: &[
            Plot::new(
                "Over OpenFlow: microseconds from a flow-mod to the first packet that obeys it, median",
                "effect_us",
                "rules",
            )
            .only(&[("trial", "effect"), ("what", "")])
            .log(),
            Plot::new("The same, p99", "effect_p99_us", "rules")
                .only(&[("trial", "effect"), ("what", "")])
                .log(),
            Plot::new(
                "Over OpenFlow: microseconds until the barrier behind the flow-mod is answered, median",
                "barrier_us",
                "rules",
            )
            .log(),
            Plot::new(
                "Over OpenFlow: microseconds until statistics of all rules are answered, median",
                "statistics_us",
                "rules",
            )
            .log(),
            Plot::new("In memory: microseconds, median", "effect_us", "rules")
                .by(&["what"])
                .only(&[("trial", "")])
                .log(),
        ],
    },
    Suite {
        name: "regression",
        group: MEMORY,
        question: "Is this build slower than another (--switch crosspoint@PATH), or than itself by noise?",
        steps: &[Step::Builds("builds")],
        plots: &[Plot::new("Cycles per packet", "cycles_per_packet", "flows").by(&["rules"]).log()],
    },
    Suite {
        name: "pinning",
        group: MEMORY,
        question: "A worker bound to a processor, free, contended, beside a busy neighbour: what does a packet cost?",
        steps: &[measure("worker", "pinning", "--runs 7", "--runs 1 --turn-ms 100", None)],
        plots: &[
            Plot::bars("Cycles per packet of the worker's CPU time", "cycles_per_packet").by(&["what"]),
            Plot::bars("Packets per second", "packets_per_s").by(&["what"]),
        ],
    },
    Suite {
        name: "ablation",
        group: IO,
        question: "What are caches, the exact-match tier, batches and transmit retries worth (Intel's list)?",
        steps: &[
            measure("memory", "ablation", "--runs 5", "--flows 1k --runs 1 --turn-ms 100", None),
            Step::Grid(Grid {
                step: "retries",
                topologies: &["PV"],
                switches: &["crosspoint", "crosspoint-no-retries"],
                trials: &["max-rate"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::bars("10,000 flows: cycles per packet by what differs from the usual", "cycles_per_packet")
                .by(&["what", "setting"])
                .only(&[("trial", ""), ("flows", "10000")])
                .log(),
            Plot::bars("To a guest, packets per second, with transmit retries and without", "rate_pps")
                .only(&[("trial", "max-rate")]),
        ],
    },
    Suite {
        name: "cores",
        group: MEMORY,
        question: "How much more do several workers do than one, by number and kind of flows (Emmerich, Fig. 6)?",
        steps: &[
            measure("grid", "core-grid", "--runs 5", "--runs 1 --turn-ms 100", None),
            measure("scale", "scale", "--runs 5", "--flows 5k --runs 2 --turn-ms 200", None),
            measure(
                "beyond",
                "scale --beyond --load four_flows",
                "--runs 3",
                "--beyond --load four_flows --runs 2 --turn-ms 200",
                None,
            ),
        ],
        plots: &[
            Plot::new("Rate of all workers in ratio to one worker with one flow", "ratio_to_one", "flows")
                .by(&["megaflows", "workers"]),
            Plot::new("Rate of all workers in ratio to one", "scaling", "workers").by(&["load"]),
        ],
    },
    Suite {
        name: "ports-and-batches",
        group: IO,
        question: "Many ports, batches of 1 and of 32: what does a packet cost?",
        steps: &[
            measure(
                "ports",
                "ports --ports 2,4,6,8,16,32,64,128,256,512",
                "--runs 7",
                "--ports 2,8 --runs 2 --turn-ms 100",
                None,
            ),
            measure(
                "batch-1",
                "ports --ports 2,4,6,8,16,32,64,128,256,512 --batch 1",
                "--runs 7",
                "--ports 2,8 --batch 1 --runs 1 --turn-ms 100",
                None,
            ),
            Step::Grid(Grid {
                step: "busy",
                topologies: &["P2P", "4-of-4", "6-of-6", "8-of-8", "2-of-8"],
                switches: &["crosspoint", "crosspoint-af_packet", "ovs-netdev"],
                rates: &[20_000],
                trials: &["fixed"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("In memory: cycles per packet by number of ports", "cycles_per_packet", "ports")
                .by(&["batch"])
                .only(&[("trial", "")])
                .log(),
            Plot::bars(
                "Between interfaces at 20,000 packets/s: cycles of the switch per packet",
                "cycles_per_packet",
            )
            .by(&["topology"])
            .only(&[("trial", "fixed")]),
        ],
    },
    Suite {
        name: "io-loop",
        group: IO,
        question: "Between kernel interfaces, and under four I/O loops (Carbone): what does a packet cost the machine?",
        steps: &[
            Step::Grid(Grid {
                step: "veth",
                switches: VETH,
                rates: &[10_000, 100_000, 200_000],
                trials: &["fixed"],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "loops",
                topologies: &["P2P", "4-of-4", "6-of-6", "8-of-8"],
                switches: LOOPS,
                rates: &[20_000, 0],
                trials: &["fixed"],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "blocked",
                topologies: &["P2P", "4-of-4", "6-of-6", "8-of-8"],
                switches: BLOCKABLE,
                trials: &["blocked"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new(
                "Cycles of the machine per packet between two interfaces, the generator's subtracted",
                "machine_cycles_per_packet",
                "offered_pps",
            )
            .only(&[("trial", "fixed"), ("topology", "P2P")])
            .log(),
            Plot::new(
                "Cycles of the machine per packet at 20,000 packets/s, the generator's subtracted",
                "machine_cycles_per_packet",
                "ports",
            )
            .only(&[("trial", "fixed"), ("offered_pps", "20000")]),
            Plot::new("Packets per second as fast as they come (Carbone, Fig. 3)", "rate_pps", "ports")
                .only(&[("trial", "fixed"), ("offered_pps", "")]),
            Plot::new(
                "Milliseconds without packets while the control thread is blocked",
                "reset_ms",
                "ports",
            )
            .only(&[("trial", "blocked")]),
        ],
    },
    Suite {
        name: "wake",
        group: IO,
        question: "What does waking a sleeping worker add, and what does an idle switch cost?",
        steps: &[measure("wake", "wake", "--runs 5", "--runs 1 --turn-ms 200", None)],
        plots: &[
            Plot::bars("Microseconds that waking adds to a bare wake, or to two", "added_us")
                .by(&["what", "port_type"]),
            Plot::bars("Processors that an idle switch uses", "cpu_share").by(&["what", "port_type"]),
        ],
    },
];
