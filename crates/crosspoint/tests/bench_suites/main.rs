//! `crosspoint bench list | run | report | compare | goals`: suites run, are stored, drawn and judged; what
//! is wrong with a command line or a machine is said by sentence and exit code.

#[path = "../bench_rig/mod.rs"]
mod bench_rig;
mod interrupted;
mod named_interfaces;

use bench_rig::{ONE_AT_A_TIME, assert_adds_up, bench, json, points_in, run, run_with_id};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_list_names_each_suite_with_its_question() {
    let (code, out, _) = run(&["list"]);
    assert_eq!(code, 0);
    for suite in
        ["p2p", "pvp", "masks", "misses", "coupling", "ports-and-batches", "io-loop", "ovsdb", "wake"]
    {
        let line = out.lines().find(|l| l.trim().starts_with(&format!("{suite} ")));
        assert!(line.is_some_and(|l| l.ends_with('?')), "{suite} in\n{out}");
    }
}

#[test]
fn a_suite_of_each_group_runs_and_is_stored_drawn_and_resumed() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let out_text = out.to_str().unwrap();
    // One step of each: bench.rs runs the measurements of the others, and `make interop` all suites whole.
    let steps = ["p2p.exact", "pvp.builtin", "misses", "ablation", "counts"];
    let suites = steps.map(|step| step.split('.').next().unwrap());
    let args = [&["run"][..], &steps, &["--quick", "--switch", "crosspoint", "--out", out_text]].concat();
    let (code, printed, said) = run(&args);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cycles/packet"), "figures as they come: {said}");
    let page = out.join("report.html");
    assert!(printed.contains(&format!("report: {}", page.display())), "{printed}");
    let info = json(&out.join("run.json"));
    assert_eq!((info["schema"].as_str(), info["mode"].as_str()), (Some("crosspoint-bench/1"), Some("quick")));
    assert!(info["machine"]["cpus"].as_u64().unwrap() > 0 && info["warnings"][0].is_string(), "{info}");
    let points = json(&out.join("points/p2p.exact.json"));
    for point in points.as_array().unwrap() {
        assert_eq!((&point["suite"], &point["switch"]), (&"p2p".into(), &"crosspoint".into()));
        let values = point["metrics"]["cycles_per_packet"]["values"].as_array().unwrap();
        assert_eq!(values.len(), 2, "{point}");
        assert!(point["watched"]["seconds"].as_f64().unwrap() > 0.0, "{point}");
    }
    let csv = fs::read_to_string(out.join("points.csv")).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    for suite in suites {
        assert!(csv.contains(&format!(",{suite},crosspoint,")), "{suite}");
        assert!(html.contains(&format!("<section id=\"{suite}\">")), "{suite}");
    }
    assert!(html.contains("<svg role=\"img\"") && html.contains("data-points=\"2\""));
    // What is there is not measured again; what is not, is.
    fs::remove_file(out.join("points/misses.misses.json")).unwrap();
    let (code, _, said) = run(&[&args[..], &["--resume"]].concat());
    assert_eq!((code, said.matches("measured before").count()), (0, 5), "{said}");
    assert!(out.join("points/misses.misses.json").exists());
    let (code, _, said) = run(&args);
    assert!(code == 2 && said.contains("--resume"), "{said}");
}

#[test]
fn versions_take_turns_in_measurements_too() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let other = format!("crosspoint@{}", testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")).display());
    let args = ["run", "p2p.exact", "--quick", "--switch", "crosspoint", "--switch", &other, "--out"];
    let (code, _, said) = run(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{said}");
    let points = points_in(&out, "p2p.exact");
    for switch in ["crosspoint", &other] {
        let of: Vec<_> = points.iter().filter(|p| p["switch"] == switch).collect();
        assert_eq!(of.len(), 2, "{switch}: {points:?}");
        for point in of {
            let turns = point["metrics"]["cycles_per_packet"]["values"].as_array().unwrap();
            assert_eq!(turns.len(), 2, "{point}");
        }
    }
    // The rows of each turn are kept.
    assert_eq!(fs::read_dir(out.join("raw")).unwrap().count(), 4);
}

#[test]
fn switches_are_measured_in_turns_and_every_packet_is_accounted_for() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let switches = ["crosspoint", "ovs-netdev", "bridge", "ip-forward", "testpmd-macswap"];
    let mut args = vec!["run", "calibration.max", "load-curve.nic", "--quick"];
    args.extend(["--out", out.to_str().unwrap()]);
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let (first, code, _, said) = run_with_id(&args);
    assert_eq!(code, 0, "{said}");
    let points = |step: &str| points_in(&out, step);
    // At 10,000 packets/s nobody is the limit, but for a machine that is busy with something else.
    let mut curve = points("load-curve.nic.P2P");
    // Three loads make a curve.
    assert_eq!(curve.len(), 3 * switches.len(), "{curve:?}");
    curve.retain(|p| p["labels"]["offered_pps"] == "10000");
    let names: Vec<&str> = curve.iter().map(|p| p["switch"].as_str().unwrap()).collect();
    assert_eq!(names, switches);
    for point in curve {
        let account = &point["account"];
        let of = |field: &str| account[field].as_u64().unwrap();
        assert_eq!(of("offered"), 3_000, "{point}");
        assert!(of("received") > 0 && of("received") <= 3_000 && of("duplicated") == 0, "{point}");
        for figure in ["rate_pps", "loss", "latency_p99_us", "machine_cycles_per_packet"] {
            assert!(point["metrics"][figure]["values"][0].is_number(), "{figure} of {point}");
        }
    }
    let info = json(&out.join("run.json"));
    let alone = info["calibration"].as_object().unwrap();
    let names = [
        "generator builtin, 64 bytes, 100 flows",
        "generator builtin and guest builtin, 64 bytes, 100 flows",
    ];
    for name in names {
        assert!(alone[name].as_f64().unwrap() > 0.0, "{alone:?}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Generator and guest alone"), "{page}");
    let warnings = info["warnings"].to_string();
    assert!(warnings.contains("vhost-user needs Open vSwitch with DPDK"), "{warnings}");
    let forwarding = dir.path().join("forwarding");
    // Its third step, with the generator as a guest, is in the interop tests.
    let args =
        ["run", "forwarding-table.nic", "forwarding-table.guests", "--quick", "--switch", "crosspoint"];
    let (second, code, _, said) =
        run_with_id(&[&args[..], &["--switch", "bridge", "--out", forwarding.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{said}");
    let points = |step: &str| points_in(&forwarding, step);
    let mut guests = points("forwarding-table.guests");
    guests.retain(|p| p["switch"] == "crosspoint");
    let mut ways: Vec<&str> = guests.iter().map(|p| p["labels"]["topology"].as_str().unwrap()).collect();
    ways.sort_unstable();
    assert_eq!(ways, ["PVP", "PVP", "PVV", "PVV", "PVVP", "PVVP"], "{guests:?}");
    // What a guest's ring does not take is lost at the switch's port, and counted there.
    for point in &guests {
        assert_adds_up(point);
    }
    let nic = points("forwarding-table.nic");
    for name in ["crosspoint", "bridge"] {
        assert_adds_up(nic.iter().find(|p| p["switch"] == name).unwrap());
    }
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    // Other benchmarks of this machine keep theirs.
    for run in [first, second] {
        assert!(!left.contains(&format!("xpb{run}s")) && !left.contains(&format!("xpb{run}o")), "{left}");
    }
}

#[test]
fn rules_come_and_go_under_traffic_with_each_switch_that_takes_openflow() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let switches = ["crosspoint", "ovs-netdev"];
    let mut args = vec!["run", "coupling.latency", "--quick", "--out", out.to_str().unwrap()];
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let (code, _, said) = run(&args);
    assert_eq!(code, 0, "{said}");
    let points = points_in(&out, "coupling.latency");
    for switch in switches {
        for rate in ["0", "1", "100", "10000"] {
            let of = |p: &&Value| p["switch"] == switch && p["labels"]["flow_mods_per_s"] == rate;
            let point = points.iter().find(of).unwrap_or_else(|| panic!("{switch}, {rate}: {points:?}"));
            let figure = |name: &str| point["metrics"][name]["values"][0].as_f64();
            assert!(figure("latency_p99_us").unwrap() > 0.0 && figure("rate_pps").unwrap() > 0.0, "{point}");
            assert_eq!(point["labels"]["rules"], "10", "{point}");
            assert_adds_up(point);
            // Other tests may have the processors; a tenth of the changes is made all the same.
            let made = figure("flow_mods_made_per_s").unwrap_or(0.0);
            let asked: f64 = rate.parse().unwrap();
            assert!(made >= asked / 10.0 && made <= asked, "{made}: {point}");
        }
    }
    assert_eq!(points.len(), 8, "{points:?}");
}

#[test]
fn packets_obey_changed_rules_and_statistics_are_answered_with_each_switch_that_takes_openflow() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let switches = ["crosspoint", "ovs-netdev"];
    let mut args = vec!["run", "rule-to-effect.openflow", "--quick", "--out", out.to_str().unwrap()];
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let (code, _, said) = run(&args);
    assert_eq!(code, 0, "{said}");
    let points = points_in(&out, "rule-to-effect.openflow");
    assert_eq!(points.iter().map(|p| p["switch"].as_str().unwrap()).collect::<Vec<_>>(), switches);
    for point in &points {
        for figure in ["effect", "statistics", "barrier"] {
            let of = |name: String| point["metrics"][name]["values"][0].as_f64().unwrap();
            let (middle, p99) = (of(format!("{figure}_us")), of(format!("{figure}_p99_us")));
            assert!(0.0 < middle && middle <= p99 && p99 < 10e6, "{figure} of {point}");
        }
        assert_eq!(point["labels"]["rules"], "10", "{point}");
        assert_adds_up(point);
    }
}

/// It sends frames of its own, which no rule for a flow of ours would meet.
#[test]
fn testpmd_offers_its_frames_to_switches() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    for generator in ["testpmd-flowgen", "testpmd-txonly"] {
        let out = dir.path().join(generator);
        // Of one flow, and of a hundred.
        let step = if generator == "testpmd-txonly" { "flows-and-caches.nic" } else { "packet-size.nic" };
        let args = ["run", step, "--quick", "--generator", generator, "--switch", "crosspoint"];
        let args = [&args[..], &["--switch", "ovs-netdev", "--out", out.to_str().unwrap()]].concat();
        let (code, _, said) = run(&args);
        assert_eq!(code, 0, "{said}");
        let points = points_in(&out, step);
        assert_eq!(points.len(), 2, "{points:?}");
        for point in &points {
            assert!(point["account"]["received"].as_u64().unwrap() > 0, "{point}");
            assert_eq!(point["conditions"]["rules"], "per port", "{point}");
            assert_adds_up(point);
        }
    }
}

#[test]
fn what_a_generator_cannot_send_or_does_not_answer_exits_with_3() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let trex = format!("trex@127.0.0.1:{port}");
    for (generator, step, word) in [
        ("testpmd-txonly", "packet-size.nic", "testpmd-txonly sends one flow, not 100"),
        (&trex, "calibration.max", "no TRex server answers at 127.0.0.1"),
    ] {
        let out = dir.path().join(step);
        let args = ["run", step, "--quick", "--generator", generator, "--out", out.to_str().unwrap()];
        let (code, _, said) = run(&args);
        assert!(
            code == 3 && said.contains("nothing could be measured here: ") && said.contains(word),
            "{said}"
        );
    }
    let warnings = json(&dir.path().join("calibration.max/run.json"))["warnings"].to_string();
    assert!(warnings.contains("tried only with a stand-in"), "{warnings}");
}

#[test]
fn without_root_trials_are_left_out_and_a_run_of_nothing_else_exits_with_3() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // The user nobody may not be able to enter the build directory.
    let copy = dir.path().join("crosspoint");
    // By another process: what is open for writing here, or in a child of another test, does not run.
    let program = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
    let nobody = |steps: &[&str], out: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(["bench", "run"]);
        command.args(steps).args(["--quick", "--switch", "crosspoint", "--out"]).arg(dir.path().join(out));
        let output = command.env("TMPDIR", dir.path()).current_dir(dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let why = "load-curve was not measured, or in part: it takes network namespaces, which are root's";
    let (code, said) = nobody(&["load-curve", "ports-config", "wake"], "none");
    assert!(
        code == Some(3) && said.contains("nothing could be measured here: ") && said.contains(why),
        "{said}"
    );
    assert!(!dir.path().join("none").exists(), "nothing is written before anything is measured");
    let (code, said) = nobody(&["counts", "load-curve"], "some");
    assert_eq!(code, Some(0), "{said}");
    assert!(!points_in(&dir.path().join("some"), "counts").is_empty(), "{said}");
    let warnings = json(&dir.path().join("some/run.json"))["warnings"].to_string();
    assert!(warnings.contains(why), "{warnings}");
}

#[test]
fn committed_runs_are_reported_compared_and_held_to_the_goals() {
    let runs = testkit::root().join("bench/runs");
    let run_of = |name: &str| runs.join(name).to_str().unwrap().to_string();
    let (quiet, rest) = (run_of("2026-11-22-quiet"), run_of("2026-11-22-rest"));
    let dir = tempfile::tempdir().unwrap();
    let (code, printed, said) = run(&["report", &quiet, &rest, "--out", dir.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let html = fs::read_to_string(printed.trim()).unwrap();
    assert!(html.contains("2026-11-22-quiet") && html.contains("ovs-dpdk, rules exact (2026-11-22-rest)"));
    // With the same batch for both switches.
    let (code, out, said) = run(&["goals", &run_of("2026-11-29-pvp")]);
    assert!(code == 1 && said.contains("goals are missed"), "{said}");
    assert!(out.contains("goal at most 0.18") && out.contains("held: pvp"), "{out}");
    let (code, out, _) = run(&["compare", &rest, &rest]);
    assert!(code == 0 && out.contains("no difference shown") && !out.contains("WORSE"), "{out}");
}

#[test]
fn a_loss_beyond_the_noise_exits_with_1_and_other_conditions_give_no_ratio() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, values: &str, descriptors: u32| {
        let run = dir.path().join(name);
        fs::create_dir_all(run.join("points")).unwrap();
        fs::write(run.join("run.json"), r#"{"schema": "crosspoint-bench/1"}"#).unwrap();
        let point = format!(
            r#"[{{"suite": "p2p", "switch": "crosspoint", "conditions": {{"descriptors": "{descriptors}"}},
                "metrics": {{"cost": {{"unit": "cycles", "better": "lower", "values": {values}}}}}}}]"#
        );
        fs::write(run.join("points/p2p.x.json"), point).unwrap();
        run.to_str().unwrap().to_string()
    };
    let good = write("good", "[100, 101, 99]", 256);
    let (code, out, said) = run(&["compare", &good, &write("bad", "[120, 121, 119]", 256)]);
    assert!(code == 1 && out.contains("WORSE") && said.contains("worse in B: p2p crosspoint"), "{out}{said}");
    let (code, out, said) = run(&["compare", &good, &write("other", "[120, 121, 119]", 1024)]);
    assert!(code == 2 && out.contains("conditions differ: descriptors 256 and 1024"), "{out}");
    assert!(said.contains("nothing was judged"), "{said}");
    assert!(!out.contains("B/A"), "{out}");
}

#[test]
fn a_build_that_is_slower_at_misses_alone_is_worse_and_what_one_does_not_know_is_left_out() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    // What a build is asked: bench NAME ... --json FILE.
    let build = |name: &str, misses: u32, said: &str| {
        let path = dir.path().join(name);
        let text = format!(
            "#!/bin/sh\nfor file; do :; done\ncost=100\n[ $2 = conntrack ] && {{ echo '{said}' >&2; exit 2; }}\n\
             [ $2 = misses ] && cost={misses}\n\
             echo '{{\"command\": \"x bench '$2'\", \"rows\": [{{\"switch\": \"crosspoint\", \
             \"cycles_per_packet\": '$cost'}}]}}' > $file\n"
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let unknown = "error: unrecognized subcommand";
    let (good, bad) = (build("good", 100, unknown), build("bad", 120, unknown));
    let (code, out, said) = run(&["compare", &good, &bad]);
    assert!(code == 1 && said.contains("worse in B: misses crosspoint  cycles_per_packet"), "{out}{said}");
    assert!(
        out.contains("pvp crosspoint") && said.contains("good does not know `bench conntrack"),
        "{out}{said}"
    );
    assert_eq!(run(&["compare", &bad, &good]).0, 0);
    // One that fails for another reason is no build that does not know the bench.
    let broken = build("broken", 100, "no such file: x");
    let (code, _, said) = run(&["compare", &good, &broken]);
    assert!(
        code == 1 && said.contains("broken bench conntrack") && said.contains("no such file: x"),
        "{said}"
    );
}

#[test]
fn committed_runs_become_text_that_says_who_is_better() {
    let runs = testkit::root().join("bench/runs/2026-11-29-pvp");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("BENCHMARKS.md");
    let (code, _, said) = run(&["report", runs.to_str().unwrap(), "--markdown", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let text = fs::read_to_string(file).unwrap();
    let shown = text.contains("beside ovs-dpdk: **better** in") && text.contains("shown better, 7 turns");
    assert!(shown, "{text}");
}

#[test]
fn benchmarks_md_is_made_from_the_committed_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("BENCHMARKS.md");
    let mut runs: Vec<String> = fs::read_dir(testkit::root().join("bench/runs"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| format!("bench/runs/{}/", entry.file_name().to_string_lossy()))
        .collect();
    runs.sort();
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosspoint"));
    command.current_dir(testkit::root()).args(["bench", "report", "--markdown"]).arg(&file).args(&runs);
    let said = command.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let committed = fs::read_to_string(testkit::root().join("BENCHMARKS.md")).unwrap_or_default();
    assert!(
        fs::read_to_string(file).unwrap() == committed,
        "BENCHMARKS.md is out of date: crosspoint bench report --markdown BENCHMARKS.md bench/runs/*/"
    );
}

#[test]
fn wrong_usage_exits_with_2_and_a_machine_that_lacks_a_peer_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x");
    let out = out.to_str().unwrap();
    for (args, word) in [
        (&["run", "juggling"][..], "unknown suite juggling"),
        (&["run", "pvvp"][..], "(did you mean 'pvp'?)"),
        (&["run", "p2p", "--switch", "abacus", "--out", out], "unknown switch abacus"),
        (&["run", "p2p", "--switch", "ovs-dpkd", "--out", out], "(did you mean 'ovs-dpdk'?)"),
        (&["run", "pvp-matrix", "--generator", "bulitin", "--out", out], "(did you mean 'builtin'?)"),
        (&["run", "rss-skew", "--switch", "crosspoint@/bin/true", "--out", out], "no step that was named"),
        (&["run", "p2p", "--quick", "--full"], "--full"),
        (&["run", "p2p", "--resume"], "--out"),
        (&["run", "p2p", "--workers", "1000", "--out", out], "must be 1 to"),
        (
            &["run", "traffic", "--traffic", "pcap=/nonexistent", "--out", out],
            "--traffic pcap=/nonexistent: No such file or directory (os error 2): give a capture",
        ),
        (&["run", "traffic", "--traffic", "pcap=/etc/passwd", "--out", out], "--traffic pcap=/etc/passwd: "),
        (&["run", "p2p", "--quick", "--out", "/etc/passwd"], "--out /etc/passwd is a file: give a directory"),
        (&["run", "p2p", "--quick", "--out", "/proc/x"], "give a directory that you may write in"),
        (&["compare", "/bin/true", "/bin/true"], "/bin/true wrote no results"),
        (
            &["run", "p2p", "--switch", "crosspoint@/etc/passwd", "--out", out],
            "is not a program: give the path",
        ),
        (
            &["run", "p2p.exact", "pvp", "--switch", "bridge", "--out", out],
            "no step that was named measures bridge; suites that do: io-loop, forwarding-table, ",
        ),
        (
            &["run", "packet-size.nic", "--switch", "vpp", "--out", out],
            "measures vpp; suites that do: forwarding-table, native-vs-poll-mode",
        ),
        (&["masks", "--masks", "100", "--flows", "10"], "--masks: at most as many as --flows"),
        (&["run"], "NAME"),
        (&["report", "/nonexistent"], "no such directory"),
        (&["compare", "/nonexistent", out], "no such directory"),
        (&["goals", dir.path().to_str().unwrap()], "holds no results"),
    ] {
        let (code, _, said) = run(args);
        assert!(code == 2 && said.contains(word), "{args:?}: {code} {said}");
    }
    let dpdk = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    if !Path::new(dpdk).exists() {
        let (code, _, said) = run(&["run", "p2p", "--switch", "ovs-dpdk", "--out", out]);
        assert!(code == 3 && said.contains("openvswitch-switch-dpdk"), "{code} {said}");
    }
    assert!(!Path::new(out).exists(), "nothing is written before anything is measured");
}

#[test]
fn a_program_that_is_missing_is_named_with_its_package() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x");
    let args = ["run", "flows-and-caches.cache-misses", "--quick", "--out", out.to_str().unwrap()];
    let output = bench(&args).env("PATH", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && said.contains("valgrind is missing: install valgrind"),
        "{said}"
    );
}

#[test]
fn a_peer_that_fails_leaves_our_own_figures() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    // The peer's database cannot be made.
    std::os::unix::fs::symlink("/bin/false", dir.path().join("ovsdb-tool")).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let out = dir.path().join("run");
    let args = ["run", "flow-mod.rate", "--quick", "--out", out.to_str().unwrap()];
    let output = bench(&args).env("PATH", &path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 steps failed: flow-mod.rate.ovs-vswitchd: "), "{said}");
    assert!(points_in(&out, "flow-mod.rate").iter().any(|p| p["switch"] == "crosspoint"), "{said}");
    // The next run measures both.
    let output = bench(&[&args[..], &["--resume"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(points_in(&out, "flow-mod.rate").iter().any(|p| p["switch"] == "ovs-vswitchd"));
}

/// One that is not installed, or that this kernel has not, is refused with what it takes.
#[test]
fn a_run_of_which_nothing_can_be_measured_here_exits_with_3_and_says_what_is_missing() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("other");
    let (code, _, said) =
        run(&["run", "load-curve", "--quick", "--switch", "ovs-kernel", "--out", out.to_str().unwrap()]);
    assert!(code == 2 && said.contains("no step that was named measures ovs-kernel"), "{code} {said}");
    let out = dir.path().join("vpp");
    let args = ["run", "forwarding-table.nic", "native-vs-poll-mode.nic", "--quick", "--out"];
    let args = [&args[..], &[out.to_str().unwrap(), "--switch", "vpp", "--switch", "ovs-kernel"]].concat();
    let (code, printed, said) = run(&args);
    assert_eq!((code, printed.as_str()), (3, ""), "{said}");
    for switch in ["vpp", "ovs-kernel"] {
        let why = format!("{switch} was not measured with P2P: ");
        assert!(said.contains("nothing could be measured here: ") && said.contains(&why), "{said}");
        assert!(json(&out.join("run.json"))["warnings"].to_string().contains(&why), "{said}");
    }
    // Beside one that can be measured, a line of the warnings is enough. A run that is resumed keeps it.
    let out = dir.path().join("both");
    let args = ["run", "kernel-datapath.here", "--quick", "--switch", "ovs-kernel", "--switch", "bridge"];
    for more in [&[][..], &["--resume"]] {
        let (code, _, said) = run(&[&args[..], &["--out", out.to_str().unwrap()], more].concat());
        assert_eq!(code, 0, "{said}");
        let warnings = json(&out.join("run.json"))["warnings"].to_string();
        assert!(warnings.contains("ovs-kernel was not measured with P2P: "), "{warnings}");
        let page = fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains("ovs-kernel (kernel-datapath): the kernel "), "{page}");
    }
}

/// The report as a browser has it: what it logs, and the document after scripts have run.
#[test]
fn a_browser_shows_the_report_without_an_error_and_with_every_point() {
    // Single measurements of former days, and a run of all suites.
    let [rest, night] = ["2026-11-22-rest", "2026-11-27-night"]
        .map(|name| testkit::root().join("bench/runs").join(name).display().to_string());
    let dir = tempfile::tempdir().unwrap();
    let (code, printed, said) = run(&["report", &rest, &night, "--out", dir.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let html = fs::read_to_string(printed.trim()).unwrap();
    let page = format!("file://{}", printed.trim());
    let browser = |args: &[&str], page: &str| {
        let mut command = Command::new("chromium");
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
        let output = command.args(args).arg(page).output().expect("chromium: apt install chromium");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    let output = browser(&["--enable-logging=stderr", "--dump-dom"], &page);
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!log.contains("CONSOLE"), "{log}");
    let graphs: Vec<&str> = dom.split("data-points=\"").skip(1).collect();
    assert!(graphs.len() >= 3, "{} graphs", graphs.len());
    for graph in graphs {
        let points: usize = graph.split('"').next().unwrap().parse().unwrap();
        let drawn = graph.split("</figure>").next().unwrap().matches("<circle").count();
        assert_eq!(drawn, points);
    }
    // On a desk and on a phone, light and dark: each a picture of its own.
    let mut pictures = std::collections::BTreeSet::new();
    for (name, size, scheme) in [
        ("desk", "1200,1600", "--blink-settings=preferredColorScheme=1"),
        ("desk-dark", "1200,1600", "--blink-settings=preferredColorScheme=0"),
        ("phone", "500,1600", "--blink-settings=preferredColorScheme=1"),
        ("phone-dark", "500,1600", "--blink-settings=preferredColorScheme=0"),
    ] {
        let file = dir.path().join(format!("{name}.png"));
        let args = [&format!("--window-size={size}"), scheme, &format!("--screenshot={}", file.display())];
        browser(&args, &page);
        let picture = fs::read(&file).unwrap();
        assert!(picture.len() > 20_000, "{name}: {} bytes", picture.len());
        pictures.insert(picture);
    }
    assert_eq!(pictures.len(), 4);
    // On a phone the words in graphs are not smaller than on a desk, and nothing but what scrolls is wider.
    const MEASURE: &str = "<script>const heights = [...document.querySelectorAll('svg text')].map(t => \
        t.getBoundingClientRect().height); document.body.dataset.least = Math.min(...heights); \
        document.body.dataset.over = document.documentElement.scrollWidth - innerWidth;</script></body>";
    let measured = dir.path().join("measured.html");
    fs::write(&measured, html.replace("</body>", MEASURE)).unwrap();
    let output =
        browser(&["--window-size=500,1600", "--dump-dom"], &format!("file://{}", measured.display()));
    let dom = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| -> f64 {
        let value = dom.split(&format!("data-{name}=\"")).nth(1).unwrap_or_else(|| panic!("no {name}"));
        value.split('"').next().unwrap().parse().unwrap()
    };
    assert!(number("least") >= 10.5 && number("over") <= 0.0, "{} {}", number("least"), number("over"));
    // On paper, what is folded on a screen is there too.
    let pages = |of: &Path, name: &str| {
        let file = dir.path().join(name);
        browser(&[&format!("--print-to-pdf={}", file.display())], &format!("file://{}", of.display()));
        let paper = fs::read(&file).unwrap();
        assert!(paper.starts_with(b"%PDF-"), "{name}");
        paper.windows(12).filter(|bytes| bytes == b"/Type /Page\n").count()
    };
    let report = Path::new(printed.trim());
    let unfolded = dir.path().join("unfolded.html");
    fs::write(&unfolded, html.replace("<details", "<details open")).unwrap();
    let folded = dir.path().join("folded.html");
    fs::write(&folded, html.replace("beforeprint", "never")).unwrap();
    let (paper, all, few) = (pages(report, "paper"), pages(&unfolded, "all"), pages(&folded, "few"));
    assert!(paper == all && all > few && few > 0, "{paper}, {all}, {few} pages");
}

#[test]
fn a_demonstration_is_told_before_it_begins_that_its_report_would_replace_another_run() {
    let dir = tempfile::tempdir().unwrap();
    let info = r#"{"schema": "crosspoint-bench/1", "mode": "full"}"#;
    fs::write(dir.path().join("run.json"), info).unwrap();
    let mut demo = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")));
    let output = demo.args(["demo", "--quick", "--report"]).arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("was begun as a full run"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}
