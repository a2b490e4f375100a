//! Suites of measurements of the control plane.

use super::parts::*;
use super::{Plot, Suite};

/// See the module documentation.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "memory",
        group: CONTROL,
        question: "How many bytes does a rule take, and an active flow?",
        steps: &[measure("memory", "memory", "--runs 1", "--rules 10k --flows 10k --runs 1", None)],
        plots: &[
            Plot::bars("Bytes of a rule", "bytes_per_rule").by(&["rules"]),
            Plot::bars("Bytes of an active flow", "bytes_per_cached_flow").by(&["flows"]),
            Plot::bars("Bytes of the switch in all", "rss_of_switch_bytes").by(&["rules", "flows"]),
        ],
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
        question: "How long does a client take to add, compare, replace, show and delete rules, and how long do others wait?",
        steps: &[
            measure("load-rules", "load-rules", "--runs 1", "--rules 1k --runs 1", OVS_VSWITCHD),
            measure(
                "own-client",
                "load-rules --client own",
                "--runs 1",
                "--client own --rules 1k --runs 1",
                OVS_VSWITCHD,
            ),
        ],
        plots: &[
            Plot::bars("Seconds with 1,000,000 rules", "seconds")
                .by(&["what", "client"])
                .only(&[("rules", "1000000")])
                .log(),
            Plot::bars("Seconds with 100,000 rules", "seconds")
                .by(&["what", "client"])
                .only(&[("rules", "100000")])
                .log(),
            Plot::bars("How long others wait with 1,000,000 rules, p99 in milliseconds", "echo_p99_ms")
                .by(&["what", "client"])
                .only(&[("rules", "1000000")])
                .log(),
        ],
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
        plots: &[
            Plot::bars("Transactions per second, and of how many clients", "value")
                .by(&["what", "n"])
                .only(&[("unit", "/s")]),
            Plot::new("Milliseconds until all monitors know a change", "value", "n")
                .by(&["unit"])
                .only(&[("what", "until all monitors know a change")])
                .log(),
            Plot::bars("Seconds to start, by interfaces in the database", "value")
                .by(&["n"])
                .only(&[("what", "start")]),
            Plot::bars("Megabytes then", "value").by(&["n"]).only(&[("what", "memory after start")]),
            Plot::bars("Milliseconds of the longest transaction", "value")
                .by(&["what", "n"])
                .only(&[("unit", "ms")])
                .log(),
        ],
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
        plots: &[
            Plot::bars("Milliseconds until all ports are there", "all_ms").by(&["kind", "ports"]).log(),
            Plot::bars("Milliseconds until one more is there", "one_ms").by(&["kind", "ports"]).log(),
        ],
    },
];
