//! Trials of the benchmark that take longest: resets, and every kind of traffic.

use crate::bench_rig::{ONE_AT_A_TIME, assert_adds_up, bench, points_in, points_of};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use testkit::lab::wait_for;

#[test]
fn a_switch_that_is_killed_comes_back_and_a_blocked_control_thread_stops_loops_that_share_it() {
    let points = points_of(&["restart.switch", "restart.guest", "--switch", "crosspoint"]);
    for point in &points {
        let reset_ms = point["metrics"]["reset_ms"]["values"][0].as_f64().unwrap();
        assert!(reset_ms > 0.0 && reset_ms < 4_000.0, "{point}");
        // The machine was watched while the rate was offered.
        assert!(point["watched"]["seconds"].as_f64().unwrap() > 3.9, "{point}");
    }
    assert_eq!(points.len(), 3, "{points:?}");
    let points = points_of(&["io-loop.blocked", "--switch", "loop-kept", "--switch", "loop-fifty"]);
    let reset_ms = |switch: &str| {
        let of = |p: &&Value| p["switch"] == switch && p["labels"]["trial"] == "blocked";
        points.iter().find(of).unwrap()["metrics"]["reset_ms"]["values"][0].as_f64().unwrap()
    };
    assert!(reset_ms("loop-kept") > 1_500.0 && reset_ms("loop-fifty") < 1_500.0, "{points:?}");
    // Open vSwitch's default netdev forwards on the thread that does everything else.
    let switches = ["--switch", "crosspoint-af_packet", "--switch", "ovs-netdev"];
    let points = points_of(&[&["io-loop.blocked"], &switches[..]].concat());
    assert_eq!(points.len(), 8, "two switches with 2, 4, 6 and 8 ports: {points:?}");
    for point in &points {
        let reset_ms = point["metrics"]["reset_ms"]["values"][0].as_f64().unwrap();
        assert_eq!(reset_ms > 1_500.0, point["switch"] == "ovs-netdev", "{point}");
    }
}

#[test]
fn every_kind_of_traffic_comes_back_and_is_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let pcap = dir.path().join("two.pcap");
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for n in 0..2u8 {
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 70, 0, 0, 0, 70, 0, 0, 0]);
        bytes.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        bytes.extend([n; 56]);
    }
    fs::write(&pcap, bytes).unwrap();
    let capture = format!("pcap={}", pcap.display());
    for traffic in ["tcp-syn+l4+zipf", "imix+random", "udp+vlan+ipv6", "udp+l2", &capture] {
        let points = points_of(&["traffic", "--switch", "crosspoint", "--traffic", traffic]);
        let point = &points[0];
        assert_eq!(point["labels"]["traffic"], traffic, "{point}");
        assert!(point["account"]["received"].as_u64().unwrap() > 5_000, "{point}");
        assert!(point["account"]["foreign"] == 0 && point["account"]["duplicated"] == 0, "{point}");
        assert_adds_up(point);
    }
}

#[test]
fn the_generator_sends_and_receives_by_af_xdp_too() {
    let points = points_of(&["traffic", "--switch", "crosspoint", "--generator", "builtin-xdp"]);
    assert_eq!(points.len(), 1, "{points:?}");
    let point = &points[0];
    assert_eq!(point["conditions"]["generator"], "builtin-xdp", "{point}");
    assert!(point["account"]["received"].as_u64().unwrap() > 1_000, "{point}");
    assert!(point["account"]["foreign"] == 0 && point["account"]["duplicated"] == 0, "{point}");
    assert_adds_up(point);
}

/// What testpmd drops it tells at its prompt alone, be it the guest or the switch.
#[test]
fn accounts_add_up_with_testpmd_as_the_guest_and_as_the_switch() {
    let guests = points_of(&["pvp-matrix.matrix", "--switch", "crosspoint"]);
    let guest = |p: &&Value| p["labels"]["guest"] == "testpmd";
    let point = guests.iter().find(guest).unwrap_or_else(|| panic!("{guests:?}"));
    assert_adds_up(point);
    let switches = points_of(&["forwarding-table.guests", "--switch", "testpmd-io"]);
    let builtin: Vec<_> = switches.iter().filter(|p| p["labels"]["guest"] == "builtin").collect();
    assert_eq!(builtin.len(), 3, "P2V, PVP and PVV: {switches:?}");
    for point in builtin {
        // Wire speed is more than it takes.
        assert!(!point["account"]["dropped"].as_object().unwrap().is_empty(), "{point}");
        assert_adds_up(point);
    }
}

/// Rings that hold or refuse frames in front of a tap are counted by the switch alone.
#[test]
fn accounts_of_guests_behind_taps_add_up_for_every_kind_of_switch() {
    let switches = ["ovs-afxdp", "ovs-dpdk", "testpmd-macswap", "crosspoint"];
    let mut args = vec!["forwarding-table.guests"];
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let points = points_of(&args);
    let taps: Vec<&Value> = points.iter().filter(|p| p["labels"]["guest"] == "tap").collect();
    assert_eq!(taps.len(), 3 * switches.len(), "P2V, PVP and PVV: {points:?}");
    taps.into_iter().for_each(assert_adds_up);
}

/// The ends of the bridge and the routes tell apart what the guest sends back on one interface.
#[test]
fn the_kernel_forwards_through_a_guest_in_both_directions_and_its_accounts_add_up() {
    let switches = ["bridge", "ip-forward"];
    let points = points_of(&["native-vs-poll-mode.guest", "--switch", switches[0], "--switch", switches[1]]);
    let of: Vec<_> = points.iter().map(|p| p["switch"].as_str().unwrap()).collect();
    assert_eq!(of, switches, "{points:?}");
    for point in &points {
        assert_eq!(point["labels"]["guest"], "tap", "{point}");
        assert!(point["account"]["received"].as_u64().unwrap() > 0, "{point}");
        // One that came back to where it was sent from would be foreign.
        assert!(point["account"]["foreign"] == 0 && point["account"]["duplicated"] == 0, "{point}");
        assert_adds_up(point);
    }
}

/// Where the hardware lends a machine that it does not run, emulation runs it.
#[test]
fn a_virtual_machine_with_a_kernel_forwards_for_each_switch() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let switches = ["crosspoint", "ovs-dpdk"];
    let mut args = vec!["run", "pvp-matrix.machine", "--quick", "--out", out.to_str().unwrap()];
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let output = bench(&args).env("CROSSPOINT_GUEST_KERNEL", testkit::guest_kernel()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let points = points_in(&out, "pvp-matrix");
    assert_eq!(points.len(), 2, "{points:?}");
    for switch in switches {
        let point = points.iter().find(|p| p["switch"] == switch).unwrap();
        assert_eq!(point["conditions"]["guest"], "qemu", "{point}");
        let accelerator = point["conditions"]["guest accelerator"].as_str().unwrap();
        assert!(["kvm", "tcg"].contains(&accelerator), "{point}");
        // 0.3 s of 1,000 a second, by an emulated processor that others may need too.
        assert!(point["account"]["received"].as_u64().unwrap() > 30, "{point}");
    }
}

/// Two workers, two queues of each port, two pairs of the guest's rings: the same for both switches.
#[test]
fn workers_and_queues_are_those_asked_for_in_every_switch_and_guest() {
    let switches = ["crosspoint", "crosspoint-af_packet", "ovs-dpdk"];
    let mut args = vec!["pvp-matrix.matrix", "--workers", "2"];
    switches.iter().for_each(|s| args.extend(["--switch", s]));
    let points = points_of(&args);
    for guest in ["builtin", "testpmd"] {
        for switch in switches {
            let is_it = |p: &&Value| p["switch"] == switch && p["labels"]["guest"] == guest;
            let point = points.iter().find(is_it).unwrap_or_else(|| panic!("{switch} {guest}"));
            let conditions = &point["conditions"];
            for what in ["workers", "queues", "guest queues"] {
                assert_eq!(conditions[what], "2", "{what} of {point}");
            }
            // What a comparison needs equal is asked of each switch, or of the kernel, and is.
            assert_eq!(conditions["offloads"], "none", "{point}");
            for what in ["huge pages", "guest offloads", "batch"] {
                let first = points.iter().find(|p| p["labels"]["guest"] == guest).unwrap();
                let told = conditions[what].as_str().unwrap_or_else(|| panic!("{what} of {point}"));
                assert_eq!(first["conditions"][what], told, "{point}");
            }
            assert_eq!((&conditions["batch"], &point["inherent"]), (&"32".into(), &Value::Null), "{point}");
            assert!(point["account"]["received"].as_u64().unwrap() > 0, "{point}");
            if switch != "ovs-dpdk" {
                // All ten flows on one worker would be 1.
                let most = point["metrics"]["busiest_worker_ratio"]["values"][0].as_f64().unwrap();
                assert!(most < 0.98, "{point}");
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let out = out.to_str().unwrap();
    let args = ["run", "pvp-matrix.matrix", "--quick", "--switch", "crosspoint", "--out", out];
    let output = bench(&args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cpus = std::thread::available_parallelism().unwrap().get();
    let info = fs::read_to_string(Path::new(out).join("run.json")).unwrap();
    let note = format!("in place of 4, since this machine has {cpus} processors");
    assert_eq!(info.contains(&note), cpus < 6, "{info}");
}

#[test]
fn the_generator_plays_guests_behind_both_kinds_of_interfaces() {
    let vnics = points_of(&["forwarding-table.vnic", "--switch", "crosspoint", "--switch", "bridge"]);
    for (topology, switch, guest, vnic) in [
        ("PV", "crosspoint", "builtin", "vhost-user"),
        ("VP", "crosspoint", "builtin", "vhost-user"),
        ("VV", "crosspoint", "builtin", "vhost-user"),
        ("PV", "bridge", "tap", "tap"),
        ("VV", "crosspoint", "tap", "tap"),
    ] {
        let is_it = |p: &&Value| {
            let labels = &p["labels"];
            p["switch"] == switch && labels["topology"] == topology && labels["guest"] == guest
        };
        let point = vnics.iter().find(is_it).unwrap_or_else(|| panic!("{topology} {switch} {guest}"));
        assert!(point["account"]["received"].as_u64().unwrap() > 0, "{point}");
        assert_eq!(point["conditions"]["vnic"], vnic);
    }
}

#[test]
fn a_copy_to_each_of_two_interfaces_is_two_packets_received() {
    let points = points_of(&["clone", "--switch", "crosspoint"]);
    let is_it = |p: &&Value| p["labels"]["topology"] == "clone-2";
    let point = points.iter().find(is_it).unwrap_or_else(|| panic!("{points:?}"));
    assert_eq!(point["account"]["copies"], 2, "{point}");
    assert_adds_up(point);
}

/// Runs suites with results on a disk of so many bytes. The script has the disk as `$0`, the command as `$@`.
fn on_a_disk_of(size: &str, script: &str, args: &[&str]) -> (String, String) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let run = bench(&[&["run", "--quick"], args].concat());
    let words = [run.get_program()].into_iter().chain(run.get_args()).map(|w| w.to_str().unwrap());
    let words: Vec<&str> = words.collect();
    // The disk is gone with the namespace, so what it holds is listed there.
    let script = format!("mount -t tmpfs -o size={size} none $0 && {{ {script}; ls $0/run/points; }}");
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).arg(&disk).args(words).output();
    let output = output.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// White-box trials have shares alone, and say what cannot be named.
#[test]
fn shares_of_context_switches_queues_and_copying_are_measured_apart_from_other_figures() {
    let args =
        ["load-curve.shares", "packet-size.shares", "--switch", "crosspoint", "--switch", "ovs-netdev"];
    let points = points_of(&args);
    let share = |point: &Value, name: &str| point["metrics"][name]["values"][0].as_f64().unwrap();
    for point in &points {
        assert_eq!(point["labels"]["trial"], "profile", "{point}");
        let metrics: Vec<&String> = point["metrics"].as_object().unwrap().keys().collect();
        let wanted = ["share_context_switches", "share_copying", "share_unnamed", "share_vnic_queues"];
        assert_eq!(metrics, wanted);
        let sampled = ["share_copying", "share_unnamed", "share_vnic_queues"].map(|name| share(point, name));
        assert!(sampled.iter().all(|s| *s >= 0.0) && sampled.iter().sum::<f64>() <= 1.0, "{point}");
        assert!(share(point, "share_context_switches") > 0.0, "{point}");
    }
    let of = |switch: &str, topology: &str, guest: &str| {
        let is_it = |p: &&Value| {
            let (labels, size) = (&p["labels"], &p["labels"]["size"]);
            p["switch"] == switch
                && labels["topology"] == topology
                && size == "64"
                && (topology == "P2P" || labels["guest"] == guest)
        };
        points.iter().find(is_it).unwrap_or_else(|| panic!("{switch} {topology} {guest}: {points:?}"))
    };
    // A port at a guest has queues to work on, one at a network interface has none.
    assert_eq!(share(of("crosspoint", "P2P", ""), "share_vnic_queues"), 0.0);
    assert!(share(of("crosspoint", "PV", "builtin"), "share_vnic_queues") > 0.0, "{points:?}");
    // A quick run takes some 200 samples, of which a tap's queue has two or three; copying adds to them.
    let at_tap = of("ovs-netdev", "PV", "tap");
    assert!(share(at_tap, "share_vnic_queues") + share(at_tap, "share_copying") > 0.0, "{points:?}");
}

/// The disk is full when the report is drawn: results take less than 16 KiB, the report more.
#[test]
fn on_a_full_disk_what_was_measured_is_kept_and_the_run_fails() {
    let args = ["forwarding-table.nic", "--switch", "crosspoint"];
    let (out, said) = on_a_disk_of("16k", "\"$@\" --out $0/run; echo code $?", &args);
    assert!(out.contains("code 1\n") && out.contains("forwarding-table.nic.P2P.builtin.64"), "{out}{said}");
    assert!(said.contains("No space left on device") && said.contains("go on with --resume"), "{said}");
}

#[test]
fn a_disk_that_fills_in_the_middle_of_a_step_ends_the_run_which_can_go_on_when_there_is_room() {
    let script = "\"$@\" --out $0/run & runner=$!
        until [ -e $0/run/points/p2p.exact.json ]; do sleep 0.02; done
        cat /dev/zero >$0/fill 2>/dev/null; wait $runner; echo code $?; ls $0/run/points
        rm $0/fill; \"$@\" --out $0/run --resume; echo then $?";
    let args = ["p2p.exact", "misses", "counts", "--switch", "crosspoint"];
    let (out, said) = on_a_disk_of("1m", script, &args);
    let (full, resumed) = out.split_once("then 0\n").unwrap_or_else(|| panic!("{out}{said}"));
    assert!(full.contains("code 1\np2p.exact.json\n") && !full.contains("counts.counts.json"), "{out}{said}");
    assert!(said.contains("Make room, then go on with --resume; what was measured before is kept"), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(resumed.lines().collect::<Vec<_>>().len(), 3, "{out}{said}");
    assert_eq!(said.matches(": measured before").count(), 1, "{said}");
}

#[test]
fn an_interrupted_run_keeps_what_was_measured_and_gives_everything_back() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = dir.path().join("run");
    let mut args = vec!["run", "p2p.exact", "load-curve.nic", "--quick", "--switch", "crosspoint"];
    args.extend(["--out", out.to_str().unwrap()]);
    let mut command = bench(&args);
    command.env("TMPDIR", tmp.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A terminal's Ctrl-C reaches what the run has started as well.
    let runner = command.process_group(0).spawn().unwrap();
    let group = format!("-{}", runner.id());
    wait_for("a bed", || {
        let journal = journal(tmp.path()).unwrap_or_default();
        let made = journal.lines().filter_map(|l| l.strip_prefix("namespace "));
        out.join("points/p2p.exact.json").exists()
            && made.filter(|n| Path::new("/run/netns").join(n).exists()).count() == 2
    });
    let noted = journal(tmp.path()).unwrap();
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let output = runner.wait_with_output().unwrap();
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; what was measured is in") && said.contains("--resume"), "{said}");
    assert!(printed.contains("report: ") && out.join("report.html").exists(), "{printed}");
    let points = fs::read_dir(out.join("points")).unwrap().flatten().map(|e| e.file_name());
    assert_eq!(points.collect::<Vec<_>>(), ["p2p.exact.json"]);
    // What the signal ended has not failed.
    let info = crate::bench_rig::json(&out.join("run.json"));
    assert_eq!(info["failed"], serde_json::json!({}), "{said}");
    for name in noted.lines().filter_map(|l| l.strip_prefix("namespace ")) {
        assert!(!Path::new("/run/netns").join(name).exists(), "{name} is still there\n{said}");
    }
    let left: Vec<_> = fs::read_dir(tmp.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    let output = bench(&[&args[..], &["--resume"]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.matches("measured before").count() == 1, "{said}");
    assert_eq!(points_in(&out, "load-curve").len(), 6, "{said}");
}

/// Also where the signal does not reach what the runner has started.
#[test]
fn an_interruption_of_the_runner_alone_ends_its_turn() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = dir.path().join("run");
    // Each turn offers traffic for eight seconds.
    let mut command = bench(&["run", "restart.link", "--switch", "crosspoint", "--out"]);
    command.arg(&out).env("TMPDIR", tmp.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let runner = command.spawn().unwrap();
    wait_for("packets on their way", || packets_pass(tmp.path()));
    let start = Instant::now();
    assert!(Command::new("kill").args(["-INT", &runner.id().to_string()]).status().unwrap().success());
    let output = runner.wait_with_output().unwrap();
    let (took, said) = (start.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; what was measured is in"), "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}: {said}");
    assert_eq!(crate::bench_rig::json(&out.join("run.json"))["failed"], serde_json::json!({}), "{said}");
    let left: Vec<_> = fs::read_dir(tmp.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The process id of the switch that a run has started: its environment names the run's directory.
fn running_switch(tmp: &Path) -> Option<String> {
    let lease = lease(tmp)?;
    let is_switch = |pid: &String| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let (words, environment) = (read("cmdline"), read("environ"));
        String::from_utf8_lossy(&words).contains("\0switch\0")
            && String::from_utf8_lossy(&environment).contains(&*lease.to_string_lossy())
    };
    let names =
        fs::read_dir("/proc").unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<u32>().is_ok()).find(is_switch)
}

/// What a run has on record of what it took.
fn journal(tmp: &Path) -> Option<String> {
    fs::read_to_string(lease(tmp)?.join("journal")).ok()
}

/// The directory of a run's lease.
fn lease(tmp: &Path) -> Option<std::path::PathBuf> {
    let mut entries = fs::read_dir(tmp).unwrap().flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().contains("crosspoint-bench-lease-"))
}

/// Whether the switch of a run that has its files there has counted packets.
fn packets_pass(tmp: &Path) -> bool {
    let Some(lease) = lease(tmp) else { return false };
    let dirs = fs::read_dir(lease).into_iter().flatten().flatten();
    let sockets = dirs.map(|dir| dir.path().join("br0.mgmt")).filter(|socket| socket.exists());
    sockets.map(|socket| format!("unix:{}", socket.display())).any(|socket| {
        let asked = Command::new("ovs-ofctl").args(["dump-aggregate", &socket]).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stdout);
        said.contains("packet_count=") && !said.contains("packet_count=0")
    })
}

#[test]
fn a_switch_that_dies_fails_its_load_and_the_others_go_on() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (dir, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let out = dir.path().join("run");
    let mut command = bench(&["run", "load-curve.nic", "--quick", "--switch", "crosspoint", "--out"]);
    command.arg(&out).env("TMPDIR", tmp.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let runner = command.spawn().unwrap();
    let switch = || running_switch(tmp.path());
    wait_for("packets on their way", || packets_pass(tmp.path()));
    let killed = Command::new("kill").args(["-9", &switch().unwrap()]).status().unwrap();
    assert!(killed.success());
    let output = runner.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 steps failed: load-curve.nic.P2P"), "{said}");
    assert!(said.contains("the switch has died: signal: 9") && said.contains("--resume"), "{said}");
    assert_eq!(points_in(&out, "load-curve.nic.PV").len(), 3, "{said}");
    assert!(out.join("report.html").exists(), "{said}");
}
