//! Suites of trials: a generator offers loads to switches.

use super::parts::*;
use super::{Grid, Limit, Measure, Plot, Step, Suite};
use crate::lab::guest::RED_HAT;

/// See the module documentation.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "calibration",
        group: KERNEL_PATHS,
        question: "What can generator and guest alone do here, with no switch between?",
        steps: &[
            Step::Grid(Grid {
                step: "max",
                topologies: &["loop", "direct"],
                sizes: &[64, 512, 1518],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "fixed",
                topologies: &["loop", "direct"],
                rates: &[1_000, 10_000, 50_000],
                trials: &["fixed"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("Packets per second as fast as they come", "rate_pps", "size")
                .by(&["topology"])
                .only(&[("trial", "max-rate")]),
            Plot::new("Latency in microseconds at fixed rates, p99", "latency_p99_us", "offered_pps")
                .by(&["topology"])
                .only(&[("trial", "fixed")])
                .log(),
        ],
    },
    Suite {
        name: "forwarding-table",
        group: KERNEL_PATHS,
        question: "How much does each switch forward from NIC to NIC, and through guests (Emmerich, Table I)?",
        steps: &[
            Step::Grid(Grid { step: "nic", switches: ALL, ..GRID }),
            Step::Grid(Grid {
                step: "guests",
                topologies: &["PVP", "PVVP", "PVV"],
                guests: &["builtin", "tap"],
                switches: ALL,
                ..GRID
            }),
            Step::Grid(Grid {
                step: "chain",
                topologies: &["chain-4"],
                switches: &["crosspoint", "ovs-dpdk"],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "vnic",
                topologies: &["PV", "VP", "VV"],
                guests: &["builtin", "tap"],
                switches: ALL,
                ..GRID
            }),
        ],
        plots: &[
            Plot::bars("From NIC to NIC, packets per second", "rate_pps").only(&[("topology", "P2P")]),
            Plot::bars("From NIC to guest to NIC, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "PVP")]),
            Plot::bars("Through two guests, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "PVVP")]),
            Plot::bars("From NIC through a guest to another one, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "PVV")]),
            Plot::bars("Through four guests, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "chain-4")]),
            Plot::bars("From NIC to guest, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "PV")]),
            Plot::bars("From guest to NIC, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "VP")]),
            Plot::bars("From guest to guest, packets per second", "rate_pps")
                .by(&["guest"])
                .only(&[("topology", "VV")]),
        ],
    },
    Suite {
        name: "load-curve",
        group: KERNEL_PATHS,
        question: "Offered load against throughput, loss, latency and CPU (Emmerich, Fig. 9 and 10): where does it break?",
        steps: &[
            Step::Grid(Grid {
                step: "nic",
                topologies: &["P2P", "PV"],
                rates: RATES,
                trials: &["fixed"],
                ..GRID
            }),
            // White-box: apart from the points above.
            Step::Grid(Grid {
                step: "shares",
                topologies: &["P2P", "PV"],
                switches: PROCESSES,
                guests: &["builtin", "tap"],
                rates: RATES,
                trials: &["profile"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("Packets per second", "rate_pps", "offered_pps")
                .by(&["topology"])
                .limit(Limit::Offered),
            Plot::new("Share that was lost", "loss", "offered_pps").by(&["topology"]),
            Plot::new("Latency in microseconds, p99", "latency_p99_us", "offered_pps").by(&["topology"]),
            Plot::new(
                "Cycles of the machine per packet, the generator's subtracted",
                "machine_cycles_per_packet",
                "offered_pps",
            )
            .by(&["topology"]),
            Plot::new("Processors that the switch uses", "cpu_switch", "offered_pps").by(&["topology"]),
            Plot::new("Context switches of the switch per second", "switches_per_s", "offered_pps")
                .by(&["topology"]),
            Plot::new(
                "White-box: context switches as a share of the switch's CPU time",
                "share_context_switches",
                "offered_pps",
            )
            .by(&["topology", "guest"]),
            Plot::new(
                "White-box: work on vNIC queues as a share of the switch's CPU time, at least",
                "share_vnic_queues",
                "offered_pps",
            )
            .by(&["topology", "guest"]),
        ],
    },
    Suite {
        name: "packet-size",
        group: KERNEL_PATHS,
        question: "How do throughput and cost depend on the size of packets (Emmerich, Fig. 5 and 11)?",
        steps: &[
            Step::Grid(Grid { step: "nic", sizes: SIZES, ..GRID }),
            Step::Grid(Grid { step: "guest", topologies: &["PV", "PVP"], sizes: SIZES, ..GRID }),
            Step::Grid(Grid { step: "mix", traffic: &["imix"], ..GRID }),
            Step::Grid(Grid {
                step: "bytes",
                topologies: &["P2P", "PV"],
                switches: &["crosspoint"],
                sizes: &BYTE_BY_BYTE,
                rates: &[20_000],
                trials: &["fixed"],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "shares",
                topologies: &["P2P", "PV"],
                switches: PROCESSES,
                sizes: SIZES,
                rates: &[20_000],
                trials: &["profile"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("From NIC to NIC, packets per second", "rate_pps", "size")
                .only(&[("topology", "P2P"), ("trial", "max-rate")])
                .limit(Limit::TenGigabitPps),
            Plot::new("From NIC to guest, packets per second", "rate_pps", "size")
                .only(&[("topology", "PV"), ("trial", "max-rate")])
                .limit(Limit::TenGigabitPps),
            Plot::new("From NIC to guest to NIC, packets per second", "rate_pps", "size")
                .only(&[("topology", "PVP"), ("trial", "max-rate")])
                .limit(Limit::TenGigabitPps),
            Plot::bars("A mix of sizes, packets per second", "rate_pps").only(&[("size", "imix")]),
            Plot::new(
                "White-box: copying as a share of the switch's CPU time, at least",
                "share_copying",
                "size",
            )
            .by(&["topology"]),
            Plot::new("Cycles of the switch per packet at 20,000 packets/s", "cycles_per_packet", "size")
                .by(&["topology"])
                .only(&[("trial", "fixed")]),
        ],
    },
    Suite {
        name: "flows-and-caches",
        group: KERNEL_PATHS,
        question: "How do throughput and cache hits depend on the number of flows (Emmerich, Fig. 7)?",
        steps: &[
            Step::Grid(Grid {
                step: "l2",
                traffic: &["udp+l2"],
                flows: &[1, 10, 100, 500, 1_000, 2_000],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "nic",
                traffic: &["udp", "udp+zipf"],
                flows: &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
                ..GRID
            }),
            measure(
                "cache-misses",
                "cache-misses --flows 1,10,100,1k,10k,100k,1m",
                "",
                "--flows 1,1k --simulate",
                None,
            ),
        ],
        plots: &[
            Plot::new("Packets per second, flows equally often", "rate_pps", "flows")
                .only(&[("traffic", "")])
                .log(),
            Plot::new("Packets per second, few flows often (Zipf)", "rate_pps", "flows")
                .only(&[("traffic", "udp+zipf")])
                .log(),
            Plot::new("Packets per second, flows that differ in MAC addresses", "rate_pps", "flows")
                .only(&[("traffic", "udp+l2")])
                .log(),
            Plot::new(
                "Misses of the processor's last cache per packet",
                "last_level_misses_per_packet",
                "flows",
            )
            .by(&["caches"])
            .log(),
            Plot::new("Misses of its first cache per packet", "first_level_misses_per_packet", "flows")
                .by(&["caches"])
                .log(),
            Plot::new("Share of lookups that the exact-match tier answers", "lookups_exact_ratio", "flows")
                .by(&["traffic"])
                .log(),
            Plot::new("Share of lookups that missed", "lookups_miss_ratio", "flows").by(&["traffic"]).log(),
        ],
    },
    Suite {
        name: "rss-skew",
        group: KERNEL_PATHS,
        question: "Two queues whose packets differ in MAC addresses alone: how unevenly do they fill (Red Hat)?",
        steps: &[Step::Grid(Grid {
            step: "queues",
            switches: &["crosspoint-2q"],
            traffic: &["udp+l2", "udp", "udp+l4"],
            rates: &[20_000],
            flows: &[1_000],
            trials: &["fixed"],
            ..GRID
        })],
        plots: &[Plot::bars(
            "Share of the packets that the busier of two workers has",
            "busiest_worker_ratio",
        )
        .by(&["traffic"])],
    },
    Suite {
        name: "traffic",
        group: KERNEL_PATHS,
        question: "What do tags, IPv6, connections that open and a mix of sizes cost?",
        steps: &[Step::Grid(Grid {
            step: "kinds",
            traffic: &["udp", "udp+vlan", "udp+ipv6", "tcp-syn+l4", "imix", "udp+zipf"],
            sizes: &[128],
            rates: &[20_000],
            trials: &["fixed"],
            ..GRID
        })],
        plots: &[
            Plot::bars(
                "Cycles of the machine per packet, the generator's subtracted",
                "machine_cycles_per_packet",
            )
            .by(&["traffic"]),
            Plot::bars("Latency in microseconds, p99", "latency_p99_us").by(&["traffic"]).log(),
        ],
    },
    Suite {
        name: "restart",
        group: KERNEL_PATHS,
        question: "How long do no packets pass when the switch restarts, is killed, a guest or a link goes (RFC 6201)?",
        steps: &[
            Step::Grid(Grid {
                step: "switch",
                switches: &["crosspoint", "crosspoint-af_packet", "ovs-netdev", "ovs-dpdk"],
                trials: &["reset-kill", "reset-restart"],
                ..GRID
            }),
            Step::Grid(Grid { step: "link", trials: &["reset-link"], ..GRID }),
            Step::Grid(Grid {
                step: "guest",
                topologies: &["PVP"],
                switches: &["crosspoint", "ovs-dpdk"],
                trials: &["reset-guest"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::bars("Milliseconds without packets", "reset_ms").by(&["trial"]),
            Plot::bars("Milliseconds until all rules are back", "rules_back_ms").by(&["trial"]),
        ],
    },
    Suite {
        name: "soak",
        group: KERNEL_PATHS,
        question: "Do cost, latency or memory drift while traffic runs on?",
        steps: &[Step::Grid(Grid { step: "nic", rates: &[20_000], trials: &["soak"], ..GRID })],
        plots: &[
            Plot::bars("Drift from the first window to the last, as a ratio to the mean", "drift_*_ratio")
                .family("*"),
            Plot::bars(
                "Cycles of the machine per packet, the generator's subtracted",
                "machine_cycles_per_packet",
            ),
        ],
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
            Step::Grid(Grid {
                step: "nic",
                topologies: &["P2P-both"],
                switches: ALL,
                sizes: &[256],
                trials: &["mlrsearch"],
                ..GRID
            }),
            Step::Grid(Grid {
                step: "guest",
                topologies: &["PVP-both"],
                guests: &["builtin", "tap"],
                switches: ALL,
                sizes: &[256],
                trials: &["mlrsearch"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::bars("NIC to NIC, both ways, packets per second without loss (Fig. 6)", "lossless_pps")
                .only(&[("topology", "P2P-both")]),
            Plot::bars(
                "Through a guest, both ways, packets per second without loss (Fig. 7)",
                "lossless_pps",
            )
            .by(&["guest"])
            .only(&[("topology", "PVP-both")]),
        ],
    },
    Suite {
        name: "latency",
        group: KERNEL_PATHS,
        question: "How long does a packet take at rest, and at 10, 50 and 90 % of the rate without loss?",
        steps: &[Step::Grid(Grid { step: "nic", switches: AWAKE_OR_NOT, trials: &["latency"], ..GRID })],
        plots: &[
            Plot::bars(
                "Latency in microseconds, median, at shares of the rate without loss",
                "at_*_latency_p50_us",
            )
            .family("at * %")
            .log(),
            Plot::bars(
                "Latency in microseconds, p99, at shares of the rate without loss",
                "at_*_latency_p99_us",
            )
            .family("at * %")
            .log(),
        ],
    },
    Suite {
        name: "back-to-back",
        group: KERNEL_PATHS,
        question: "How long a burst is forwarded without loss (RFC 9004)?",
        steps: &[Step::Grid(Grid { step: "nic", trials: &["back-to-back"], ..GRID })],
        plots: &[Plot::bars("Frames of the longest burst without loss", "burst_*frames").family("found *")],
    },
    Suite {
        name: "zero-loss",
        group: KERNEL_PATHS,
        question: "Which rate is forwarded without loss, by RFC 2544's search and by MLRsearch?",
        steps: &[Step::Grid(Grid { step: "nic", trials: &["rfc2544", "mlrsearch"], ..GRID })],
        plots: &[
            Plot::bars("Packets per second without loss", "lossless_pps").by(&["trial"]),
            Plot::bars("Packets per second with at most 0.5 % lost", "partial_drop_pps").by(&["trial"]),
        ],
    },
    Suite {
        name: "kernel-datapath",
        group: KERNEL_PATHS,
        question: "What does Open vSwitch's kernel datapath cost beside a veth pair, the bridge and IP forwarding?",
        steps: &[
            Step::Grid(Grid {
                step: "here",
                topologies: &["loop", "P2P"],
                switches: &["ovs-kernel", "bridge", "ip-forward"],
                generator: "builtin-256",
                ..GRID
            }),
            Step::Measure(Measure {
                step: "uml",
                what: "kernel-datapath",
                normal: "",
                quick: "--quick",
                peer: None,
                beside: &["ovs-kernel", "bridge", "ip-forward"],
            }),
        ],
        plots: &[
            Plot::bars("Here, packets per second", "rate_pps").by(&["topology"]),
            Plot::bars("In user-mode Linux on one processor, packets per second", "packets_per_s"),
            Plot::bars("In user-mode Linux, time of a packet in ratio to another's", "time_ratio_to_*")
                .family("to *"),
        ],
    },
    Suite {
        name: "pvp-matrix",
        group: GUESTS,
        question: "Through a guest at wire speed with loss allowed, by packet size and number of flows (Red Hat)?",
        steps: &[
            Step::Grid(Grid {
                step: "matrix",
                topologies: &["PVP"],
                switches: &["crosspoint", "crosspoint-af_packet", "ovs-dpdk"],
                guests: &["builtin", "testpmd"],
                rings: RED_HAT,
                workers: 4,
                sizes: &[64, 128, 256, 512, 1024, 1280, 1518, 9000],
                flows: &[10, 1_000, 10_000, 100_000, 1_000_000],
                ..GRID
            }),
            // A kernel in a virtual machine; emulated, it is the limit.
            Step::Grid(Grid {
                step: "machine",
                topologies: &["PVP"],
                switches: &["crosspoint", "ovs-dpdk"],
                guests: &["qemu"],
                rings: RED_HAT,
                sizes: &[64, 1518, 9000],
                flows: &[10, 1_000],
                rates: &[1_000],
                trials: &["fixed"],
                ..GRID
            }),
        ],
        plots: &[
            Plot::new("Packets per second, the generator's own guest", "rate_pps", "size")
                .by(&["flows"])
                .only(&[("guest", "builtin")])
                .limit(Limit::TenGigabitPps),
            Plot::new("Processors that the switch uses, the generator's own guest", "cpu_switch", "size")
                .by(&["flows"])
                .only(&[("guest", "builtin")]),
            Plot::new("Processors that the guest uses, the generator's own guest", "cpu_guest", "size")
                .by(&["flows"])
                .only(&[("guest", "builtin")]),
            Plot::new(
                "Processors that the generator uses, the generator's own guest",
                "cpu_generator",
                "size",
            )
            .by(&["flows"])
            .only(&[("guest", "builtin")]),
            Plot::new("Packets per second, testpmd as the guest", "rate_pps", "size")
                .by(&["flows"])
                .only(&[("guest", "testpmd")])
                .limit(Limit::TenGigabitPps),
            Plot::new("Processors that the switch uses, testpmd as the guest", "cpu_switch", "size")
                .by(&["flows"])
                .only(&[("guest", "testpmd")]),
            Plot::new("Processors that the guest uses, testpmd as the guest", "cpu_guest", "size")
                .by(&["flows"])
                .only(&[("guest", "testpmd")]),
            Plot::new("Processors that the generator uses, testpmd as the guest", "cpu_generator", "size")
                .by(&["flows"])
                .only(&[("guest", "testpmd")]),
            Plot::new(
                "A virtual machine at 1,000 packets/s: cycles of the switch per packet",
                "cycles_per_packet",
                "size",
            )
            .by(&["flows"])
            .only(&[("guest", "qemu")]),
            Plot::new(
                "A virtual machine at 1,000 packets/s: latency in microseconds, p99",
                "latency_p99_us",
                "size",
            )
            .by(&["flows"])
            .only(&[("guest", "qemu")]),
        ],
    },
];
