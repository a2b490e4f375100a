//! Every benchmark runs, briefly, and its JSON has the shape that bench/README.md describes. No ratio is
//! asserted here: that is `make bench`'s job, on a quiet machine.

use serde_json::Value;
use std::process::Command;
use std::sync::Mutex;

/// They pin their threads and read the machine's counters: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Fields of every row and what kind of value they hold: `n` number, `s` text, `a` array, `?` number or null.
type Shape = &'static [(&'static str, char)];

const P2P: Shape = &[
    ("switch", 's'),
    ("rules", 's'),
    ("order", 's'),
    ("flows", 'n'),
    ("cycles_per_packet", 'n'),
    ("io_cycles_per_packet", 'n'),
    ("packets_per_cpu_second", 'n'),
    ("packets_per_wall_second", 'n'),
    ("raw_packets_per_wall_second", 'a'),
    ("emc_hit_ratio", 'n'),
    ("megaflow_hit_ratio", 'n'),
    ("miss_ratio", 'n'),
    ("runs", 'n'),
];
const CHURN: Shape = &[
    ("switch", 's'),
    ("what", 's'),
    ("flows", 'n'),
    ("cycles_per_packet", 'n'),
    ("throughput_ratio", 'n'),
    ("worst_window_ratio", 'n'),
    ("longest_pass_ms", 'n'),
    ("runs", 'n'),
    ("raw", 'a'),
];

/// Runs `crosspoint bench` and returns its rows, each of which has the shape.
fn check(args: &str, shape: Shape) -> Vec<Value> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = args.split(' ').next().unwrap();
    let json = std::env::temp_dir().join(format!("crosspoint-bench-test-{name}-{}", std::process::id()));
    let output = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")))
        .arg("bench")
        .args(args.split(' '))
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "bench {args}: {}\n{said}", output.status);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    std::fs::remove_file(json).unwrap();
    assert!(report["command"].is_string() && report["machine"]["tsc_hz"].as_u64().unwrap() > 0);
    // The thread that writes this is bound to one of them.
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(report["machine"]["cpus"].as_u64().unwrap() >= cpus, "{}", report["machine"]);
    let rows = report["rows"].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "bench {args}: no rows");
    for row in &rows {
        for (field, kind) in shape {
            let value = &row[*field];
            let right = match kind {
                'n' => value.is_number(),
                's' => value.is_string(),
                'a' => value.as_array().is_some_and(|a| !a.is_empty() && a.iter().all(Value::is_number)),
                _ => value.is_number() || value.is_null(),
            };
            assert!(right, "bench {args}: field {field} of {row}");
        }
        assert!(row["runs"].is_u64());
        let watched = &row["watched"];
        assert!(watched["seconds"].as_f64().unwrap() > 0.0 && watched["preemptions"].is_u64(), "{row}");
    }
    rows
}

#[test]
fn p2p_measures_every_order_and_number_of_flows() {
    let start = std::time::Instant::now();
    let rows = check("p2p --rules exact --flows 1,10 --runs 1 --turn-ms 100", P2P);
    assert_eq!(rows.len(), 4);
    // Each was watched in its own turns: with the ports' alone they take 0.2 s, and no two at once.
    let watched: Vec<f64> = rows.iter().map(|row| row["watched"]["seconds"].as_f64().unwrap()).collect();
    assert!(watched.iter().all(|seconds| *seconds >= 0.2), "{watched:?}");
    assert!(watched.iter().sum::<f64>() < start.elapsed().as_secs_f64(), "{watched:?}");
    for row in &rows {
        assert!(row["flows"].is_u64() && row["cycles_per_packet"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["switch"], "crosspoint");
        assert!(["sequential", "shuffled"].contains(&row["order"].as_str().unwrap()));
    }
}

#[test]
fn packets_come_back_from_both_kinds_of_guests() {
    const SHAPE: Shape = &[
        ("switch", 's'),
        ("guest", 's'),
        ("size", 'n'),
        ("flows", 'n'),
        ("queues", 'n'),
        ("cycles_per_packet", 'n'),
        ("packets_per_cpu_second", 'n'),
        ("mpps", 'n'),
        ("loss", 'n'),
        ("cpu_switch", 'n'),
        ("cpu_guest", 'n'),
        ("runs", 'n'),
    ];
    for guest in ["builtin", "testpmd"] {
        let rows =
            check(&format!("pvp --sizes 64,1518 --flows 10 --guest {guest} --runs 1 --turn-ms 200"), SHAPE);
        assert_eq!(rows.len(), 2);
        for row in &rows {
            assert!(row["void"].is_boolean() && row["guest"] == guest, "{row}");
            assert!(row["mpps"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn from_guest_to_guest_nothing_comes_that_was_not_offered() {
    const SHAPE: Shape = &[("mpps", 'n'), ("loss", 'n'), ("raw_mpps", 'a')];
    // Short turns: what is under way at their ends would show.
    let rows = check("pvp --sizes 64 --flows 10 --path guest-to-guest --runs 5 --turn-ms 50", SHAPE);
    let loss = rows[0]["loss"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&loss), "{}", rows[0]);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_measured() {
    for bench in ["pvp", "p2p", "ports", "misses"] {
        let output = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")))
            .args(["bench", bench, "--runs", "1000", "--json", "/nonexistent/x.json"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("/nonexistent/x.json"), "{bench}: {said}");
        assert!(said.contains("No such file or directory") && output.stdout.is_empty(), "{bench}: {said}");
    }
}

#[test]
fn the_highest_rate_that_loses_little_is_found() {
    const SHAPE: Shape =
        &[("mpps", 'n'), ("raw_mpps", 'a'), ("loss", 'n'), ("loss_allowed", 'n'), ("raw", 'a')];
    for path in ["loopback", "guest-to-guest"] {
        // Half of it, since nobody else is to be disturbed for this one.
        let rows = check(
            &format!("pvp --sizes 64 --flows 10 --path {path} --loss 0.5 --runs 2 --turn-ms 50"),
            SHAPE,
        );
        let number = |name: &str| rows[0][name].as_f64().unwrap();
        assert!(number("mpps") > 0.0 && number("loss") <= 0.5, "{}", rows[0]);
        assert_eq!(rows[0]["raw_mpps"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn misses_are_misses_and_nothing_else() {
    const SHAPE: Shape = &[
        ("rules", 'n'),
        ("packets_per_cpu_second", 'n'),
        ("packets_per_wall_second", 'n'),
        ("raw_packets_per_wall_second", 'a'),
        ("miss_ratio", 'n'),
        ("raw", 'a'),
    ];
    for row in check("misses --rules 10,1k --flows 20k --runs 1", SHAPE) {
        assert!(row["miss_ratio"].as_f64().unwrap() > 0.999, "{row}");
    }
}

#[test]
fn masks_are_as_many_in_the_cache_as_in_the_rules_and_a_forced_tier_serves() {
    const SHAPE: Shape = &[
        ("exact_tier", 's'),
        ("masks", 'n'),
        ("flows", 'n'),
        ("megaflows", 's'),
        ("cycles_per_packet", 'n'),
        ("packets_per_cpu_second", 'n'),
        ("packets_per_wall_second", 'n'),
        ("raw_packets_per_wall_second", 'a'),
        ("emc_hit_ratio", 'n'),
        ("megaflow_hit_ratio", 'n'),
        ("cached_masks", 'n'),
        ("raw", 'a'),
    ];
    let rows = check("masks --masks 4 --flows 1k --runs 1 --turn-ms 300", SHAPE);
    assert_eq!(rows.len(), 4);
    for row in &rows {
        assert_eq!(row["cached_masks"], 4, "{row}");
        let ratio = |name: &str| row[name].as_f64().unwrap();
        match row["exact_tier"].as_str().unwrap() {
            "on" => assert!(ratio("emc_hit_ratio") > 0.9, "{row}"),
            _ => assert!(ratio("emc_hit_ratio") == 0.0 && ratio("megaflow_hit_ratio") > 0.9, "{row}"),
        }
    }
}

#[test]
fn idle_ports_are_measured_against_two() {
    const SHAPE: Shape = &[("ports", 'n'), ("cycles_per_packet", 'n'), ("ratio_to_two", 'n'), ("raw", 'a')];
    let rows = check("ports --ports 2,8 --runs 1 --turn-ms 100", SHAPE);
    assert_eq!(rows.iter().map(|r| r["ports"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 8]);
}

#[test]
fn flows_are_spread_over_workers_in_every_combination() {
    const SHAPE: Shape = &[("cycles_per_packet", 'n'), ("ratio_to_one", 'n'), ("raw", 'a')];
    let rows = check("core-grid --most 2 --runs 1 --turn-ms 100", SHAPE);
    let cell = |row: &Value| (row["workers"].as_u64().unwrap(), row["flows"].as_u64().unwrap());
    for megaflows in ["one", "per_flow"] {
        let of = rows.iter().filter(|row| row["megaflows"] == megaflows);
        assert_eq!(of.map(cell).collect::<Vec<_>>(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
    }
    assert_eq!((rows.len(), rows[0]["ratio_to_one"].as_f64()), (8, Some(1.0)));
}

#[test]
fn changes_under_traffic_are_measured() {
    let rows = check("churn --flows 1k --runs 1 --turn-ms 300", CHURN);
    assert!(rows[0]["flow_mods_made_per_s"].as_f64().unwrap() > 100.0, "{}", rows[0]);
    check("replace --rules 2k --flows 1k --runs 1 --turn-ms 100", CHURN);
    check("expiry --flows 10k --active 1k --max-idle-ms 1500 --runs 1 --turn-ms 100", CHURN);
}

#[test]
fn those_who_take_more_than_their_share_are_measured() {
    let fairness = check("fairness --flows 50k --runs 1 --turn-ms 200", &[("kept_ratio", 'n'), ("raw", 'a')]);
    assert!(fairness[0]["new_flows_per_s"].as_f64().unwrap() > 0.0, "{}", fairness[0]);
    let stopped = check(
        "fairness --beside stopped-guest --runs 1 --turn-ms 200",
        &[("kept_ratio", 'n'), ("stopped_packets_per_s", 'n'), ("raw", 'a')],
    );
    assert_eq!(stopped.iter().map(|r| &r["feeds"]).collect::<Vec<_>>(), ["guest", "guest_and_sink"]);
    for row in &stopped {
        assert!(row["dropped_per_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    let collide = check(
        "collide --flows 1k --runs 1 --turn-ms 100",
        &[("colliding_under", 's'), ("cycles_per_packet", 'n'), ("new_flow_cycles", 'n'), ("ratio", 'n')],
    );
    assert_eq!(collide.len(), 3);
}

#[test]
fn connections_are_tracked_and_every_packet_is_judged_as_it_should_be() {
    const SHAPE: Shape = &[
        ("switch", 's'),
        ("what", 's'),
        ("rules", 's'),
        ("connections", 'n'),
        ("cycles_per_packet", 'n'),
        ("packets_per_cpu_second", 'n'),
        ("packets_per_wall_second", 'n'),
        ("raw_packets_per_wall_second", 'a'),
        ("raw", 'a'),
        ("raw_cycles", 'a'),
    ];
    // The measurement fails where a packet is judged otherwise, or does not arrive.
    let rows = check("conntrack --connections 1,100 --new 2k --runs 1 --turn-ms 50", SHAPE);
    let loads: Vec<(&str, &str, u64)> = rows
        .iter()
        .map(|r| {
            let text = |field: &str| r[field].as_str().unwrap();
            (text("what"), text("rules"), r["connections"].as_u64().unwrap())
        })
        .collect();
    let each =
        |n| [("stateless", "stateless", n), ("established", "firewall", n), ("established", "snat", n)];
    let new = [("new", "firewall", 2_000), ("new", "snat", 2_000)];
    assert_eq!(loads, [&each(1)[..], &each(100), &new].concat());
    for row in rows.iter().filter(|row| row["what"] == "established") {
        let ratio = row["ratio_to_stateless"].as_f64().unwrap();
        assert!(ratio > 0.0 && ratio < 1.5, "tracking costs something: {row}");
    }
}

#[test]
fn a_flood_of_new_connections_is_measured_and_leaves_the_others_most() {
    const SHAPE: Shape = &[
        ("what", 's'),
        ("flood_pps", 'n'),
        ("kept_ratio", 'n'),
        ("opened_ratio", 'n'),
        ("refused_ratio", 'n'),
        ("raw", 'a'),
    ];
    let rows = check("flood --rates 300k --connections 100 --runs 1 --turn-ms 200", SHAPE);
    let figure = |name: &str| rows[0][name].as_f64().unwrap();
    // 100,000 of 300,000 are the port's share.
    assert!(figure("refused_ratio") > 0.0 && figure("refused_ratio") < 1.0, "{}", rows[0]);
    assert!(figure("opened_ratio") > 0.0 && figure("kept_ratio") > 0.0, "{}", rows[0]);
}

#[test]
fn how_late_counters_are_is_measured() {
    const SHAPE: Shape = &[("flows", 'n'), ("wait_ms", 'n'), ("longest_wait_ms", 'n'), ("raw", 'a')];
    let rows = check("counts --flows 2k --runs 1", SHAPE);
    assert_eq!(rows[0]["raw"].as_array().unwrap().len(), 10);
}

#[test]
fn memory_is_accounted_for_every_rule_and_flow() {
    const SHAPE: Shape =
        &[("bytes_per_rule", 'n'), ("bytes_per_cached_flow", 'n'), ("rss_of_switch_bytes", 'n')];
    let rows = check("memory --rules 5k --flows 5k", SHAPE);
    assert!(rows[0]["bytes_per_rule"].as_f64().unwrap() > 50.0, "{}", rows[0]);
}

#[test]
fn cache_misses_are_counted_by_the_processor_or_by_a_simulation_that_says_so() {
    const SHAPE: Shape = &[
        ("flows", 'n'),
        ("caches", 's'),
        ("first_level_misses_per_packet", 'n'),
        ("last_level_misses_per_packet", 'n'),
    ];
    let rows = check("cache-misses --simulate --flows 1,2k", SHAPE);
    let misses = |n: usize| rows[n]["first_level_misses_per_packet"].as_f64().unwrap();
    assert!(rows.iter().all(|row| row["caches"] == "simulated"), "{rows:?}");
    assert!(misses(1) > misses(0) + 1.0, "2,000 flows do not fit into the first level: {rows:?}");
}

#[test]
fn rules_are_loaded_shown_and_deleted_in_both_switches_by_the_stock_client() {
    const SHAPE: Shape = &[("switch", 's'), ("seconds", 'n'), ("rss_after_bytes", 'n'), ("echo_p99_ms", 'n')];
    let of = |rows: &[Value]| -> Vec<String> {
        rows.iter().map(|r| format!("{} {}", r["what"], r["switch"]).replace('"', "")).collect()
    };
    let both = |what: &str| ["crosspoint", "ovs-vswitchd"].map(|switch| format!("{what} {switch}"));
    let rows = check("load-rules --rules 1k --peer ovs-vswitchd --runs 1", SHAPE);
    assert_eq!(of(&rows), ["add", "bundle", "diff", "replace", "dump", "delete"].map(both).concat());
    // Of the other commands, growth is no memory of a rule.
    let of_rule: Vec<bool> = rows.iter().map(|row| row["bytes_per_rule"].is_number()).collect();
    assert_eq!(of_rule, [[true; 4].as_slice(), &[false; 8]].concat());
    let rows = check("load-rules --client own --what replace --rules 1k --runs 1", SHAPE);
    assert_eq!(of(&rows), ["replace crosspoint"]);
}

#[test]
fn sleep_is_measured_awake_and_asleep() {
    const SHAPE: Shape =
        &[("what", 's'), ("port_type", 's'), ("added_us", '?'), ("cpu_share", '?'), ("raw", 'a')];
    let rows = check("wake --idle afxdp --runs 1 --turn-ms 100", SHAPE);
    for row in rows {
        let measured = if row["what"] == "idle" { "cpu_share" } else { "added_us" };
        assert!(row[measured].is_number(), "{row}");
    }
}

#[test]
fn a_goal_that_is_missed_fails_when_it_is_asserted_and_the_rows_are_written_all_the_same() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let json = std::env::temp_dir().join(format!("crosspoint-bench-test-goal-{}", std::process::id()));
    // Nobody makes so many flow-mods per second.
    let output = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")))
        .args([
            "bench",
            "churn",
            "--flows",
            "100",
            "--rate",
            "100m",
            "--runs",
            "1",
            "--turn-ms",
            "100",
            "--assert",
            "--json",
        ])
        .arg(&json)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("goals missed: "));
    std::fs::remove_file(json).unwrap();
}

#[test]
fn ovsdb_measures_both_servers_in_every_respect() {
    const SHAPE: Shape = &[
        ("server", 's'),
        ("what", 's'),
        ("n", 'n'),
        ("unit", 's'),
        ("value", 'n'),
        ("runs", 'n'),
        ("raw", 'a'),
    ];
    let rows =
        check("ovsdb --peer ovsdb-server --clients 2 --monitors 3 --rows 200 --runs 1 --turn-ms 100", SHAPE);
    for server in ["crosspoint", "ovsdb-server"] {
        let of: Vec<&str> = rows
            .iter()
            .filter(|row| row["server"] == server)
            .map(|row| row["what"].as_str().unwrap())
            .collect();
        assert_eq!(of.len(), 9, "{of:?}");
    }
}

#[test]
fn parts_that_make_it_fast_are_taken_away_one_at_a_time() {
    const SHAPE: Shape = &[
        ("switch", 's'),
        ("what", 's'),
        ("setting", 's'),
        ("cycles_per_packet", 'n'),
        ("ratio", 'n'),
        ("raw", 'a'),
    ];
    let rows = check("ablation --flows 1k --runs 1 --turn-ms 50", SHAPE);
    let count = |what: &str| rows.iter().filter(|r| r["what"] == what).count();
    assert_eq!((count("cache"), count("exact_tier"), count("batch")), (5, 2, 3));
    // Without a cache every packet misses. One of 64 flows misses most of a thousand; one that holds them all
    // misses none.
    let misses = |flows: &str| {
        let row = rows.iter().find(|r| r["what"] == "cache" && r["setting"] == flows).unwrap();
        row["miss_ratio"].as_f64().unwrap()
    };
    assert!(misses("0") > 0.99 && misses("64") > 0.5 && misses("8000") < 0.1, "{rows:?}");
}

#[test]
fn workers_are_measured_bound_free_and_contended() {
    const SHAPE: Shape =
        &[("what", 's'), ("cycles_per_packet", 'n'), ("wall_cycles_per_packet", 'n'), ("cpu_switch", 'n')];
    let rows = check("pinning --runs 1 --turn-ms 50", SHAPE);
    let names: Vec<&str> = rows.iter().map(|r| r["what"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["pinned", "free", "contended"]);
}

#[test]
fn every_new_address_is_learned() {
    const SHAPE: Shape =
        &[("new_percent", 'n'), ("learned_per_s", 'n'), ("raw_learned_per_s", 'a'), ("raw", 'a')];
    let rows = check("mac-learning --frames 2k --new 0,100 --runs 1 --turn-ms 50", SHAPE);
    assert_eq!(
        (rows[0]["learned_per_s"].as_f64(), rows[1]["learned_ratio"].as_f64()),
        (Some(0.0), Some(1.0))
    );
}

#[test]
fn rules_are_learned_by_a_daemon_until_all_are_there() {
    const SHAPE: Shape =
        &[("switch", 's'), ("by", 's'), ("rules", 'n'), ("learned_per_s", 'n'), ("raw_learned_per_s", 'a')];
    let rows = check("learned-rules --rules 2k --runs 1", SHAPE);
    assert_eq!((rows[0]["switch"].as_str(), rows[0]["rules"].as_u64()), (Some("crosspoint"), Some(2_000)));
}

#[test]
fn changes_and_requests_are_timed_while_traffic_runs() {
    const SHAPE: Shape =
        &[("what", 's'), ("rules", 'n'), ("effect_us", 'n'), ("effect_p99_us", 'n'), ("raw", 'a')];
    let rows = check("rule-to-effect --rules 10 --flows 10 --runs 1 --turn-ms 50", SHAPE);
    assert_eq!((&rows[0]["what"], &rows[1]["what"]), (&"flow_mod".into(), &"statistics".into()));
}

#[test]
fn flow_mods_are_counted_singly_bundled_replacing_and_over_a_connection() {
    const SHAPE: Shape = &[("what", 's'), ("rules", 'n'), ("flow_mods_made_per_s", 'n'), ("raw", 'a')];
    let rows = check("flow-mods --rules 100 --runs 2 --peer ovs-vswitchd", SHAPE);
    let of = |n: usize| (rows[n]["switch"].as_str().unwrap(), rows[n]["what"].as_str().unwrap());
    assert_eq!((rows.len(), of(0), of(3)), (5, ("crosspoint", "single"), ("crosspoint", "pipelined")));
    assert_eq!(of(4), ("ovs-vswitchd", "pipelined"));
}

#[test]
fn packets_that_each_leave_a_mask_are_sent_beside_others() {
    const SHAPE: Shape = &[("attack_pps", 'n'), ("cached_masks", 'n'), ("kept_ratio", 'n'), ("raw", 'a')];
    let rows = check("explosion --rates 1k --flows 100 --runs 1 --turn-ms 200", SHAPE);
    // The trace makes masks: without it there is one for the flows.
    assert!(rows[0]["cached_masks"].as_f64().unwrap() > 10.0, "{}", rows[0]);
}
