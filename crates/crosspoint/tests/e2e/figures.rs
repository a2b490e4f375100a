//! The figures of the switch as JSON, and `crosspoint top`, which shows them.

use crate::common::{Switch, UDP, binary, wait_for};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_figures_are_one_snapshot_with_which_the_texts_agree() {
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=drop");
    (0..3).for_each(|_| switch.receive("p1", UDP));
    let figures = || -> serde_json::Value {
        serde_json::from_str(&switch.appctl(&["crosspoint/figures"]).ok()).unwrap()
    };
    wait_for("the drops", || figures()["drops"][0]["packets"] == 3);
    let figures = figures();
    assert_eq!(figures["version"], 1);
    assert_eq!(figures["drops"][0]["ports"][0], serde_json::json!(["p1", 3]));
    let port = figures["ports"].as_array().unwrap().iter().find(|port| port["name"] == "p1").unwrap();
    assert_eq!((&port["kind"], &port["rx_packets"]), (&"dummy".into(), &3.into()));
    assert_eq!(figures["workers"][0]["counters"]["rx"], 3);
    let drops = switch.appctl(&["crosspoint/drops"]).ok();
    let reason = figures["drops"][0]["reason"].as_str().unwrap();
    assert_eq!(drops, format!("{reason}: 3\n  p1: 3\n"));
}

#[test]
fn the_burst_of_the_workers_is_the_one_asked_for() {
    let burst = |args: &[&str]| {
        let args = [&["--bridge", "br0", "--enable-dummy"], args].concat();
        let switch = Switch::start(&args);
        let text = switch.appctl(&["crosspoint/figures"]).ok();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["burst"].as_u64()
    };
    assert_eq!((burst(&[]), burst(&["--rx-burst", "32"])), (Some(64), Some(32)));
    for wrong in ["0", "65", "many"] {
        let output = Command::new(binary()).args(["switch", "--rx-burst", wrong]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("expected a number from 1 to 64"), "{said}");
    }
}

#[test]
fn an_idle_worker_sleeps_unless_the_longest_sleep_is_none() {
    let idle_loops = |switch: &Switch| {
        let text = switch.appctl(&["crosspoint/figures"]).ok();
        let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
        figures["workers"][0]["counters"]["idle_loops"].as_u64().unwrap()
    };
    // One that sleeps makes a few dozen passes whenever it wakes.
    let polls = |switch: &Switch| {
        let before = idle_loops(switch);
        std::thread::sleep(Duration::from_millis(100));
        idle_loops(switch) - before > 1_000
    };
    let switch = Switch::start(&["--enable-dummy"]);
    switch.vsctl("add-br br0 -- add-port br0 p1 -- set interface p1 type=dummy");
    wait_for("the worker to sleep", || !polls(&switch));
    switch.vsctl("set open_vswitch . other_config:pmd-maxsleep=0");
    wait_for("the worker to poll", || polls(&switch));
    // Any other number: it sleeps until there is something to do.
    switch.vsctl("set open_vswitch . other_config:pmd-maxsleep=1");
    wait_for("the worker to sleep again", || !polls(&switch));
    switch.vsctl("set open_vswitch . other_config:pmd-maxsleep=0");
    switch.vsctl("remove open_vswitch . other_config pmd-maxsleep");
    wait_for("the worker to sleep by default", || !polls(&switch));
    let switch =
        Switch::start(&["--bridge", "br0", "--enable-dummy", "--never-sleep", "--port", "p1,type=dummy"]);
    wait_for("the worker to poll from the start", || polls(&switch));
}

/// `crosspoint top`, followed until it has shown what crosses the switch.
#[test]
fn top_shows_workers_queues_ports_and_drops_while_packets_cross() {
    use std::io::BufRead;
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=2");
    let mut top = Command::new(binary())
        .args(["top", "--batch", "--interval", "0.2"])
        .env("OVS_RUNDIR", switch.dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(top.stdout.take().unwrap()).lines();
    let mut missing = vec!["worker", "queue", "p1", "p2", "drops"];
    let mut looks = 0;
    for line in lines.map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Rates of a few packets per second are printed as whole numbers.
        let is_some = |n: usize| words.get(n).is_some_and(|w| w.parse::<u64>().is_ok_and(|n| n > 0));
        let shown = match words.first() {
            Some(&"crosspoint") => {
                looks += 1;
                assert!(looks < 500, "{missing:?} never came");
                for port in ["p1", "p3"] {
                    (0..5).for_each(|_| switch.receive(port, UDP));
                }
                continue;
            }
            Some(&"core") if is_some(3) && words[6] != "-" => "worker",
            Some(&"p1") if words.get(2) == Some(&"core") => "queue",
            Some(&"p1") if words.get(1) == Some(&"dummy") && is_some(2) => "p1",
            Some(&"p2") if words.get(1) == Some(&"dummy") && is_some(5) => "p2",
            Some(_) if words.len() == 3 && is_some(1) && is_some(2) => "drops",
            _ => continue,
        };
        missing.retain(|m| *m != shown);
        if missing.is_empty() {
            break;
        }
    }
    top.kill().unwrap();
    top.wait().unwrap();
    assert!(missing.is_empty(), "never shown: {missing:?}");
    // Once, and then it ends; and where nobody is, it says so.
    let once = switch.run(binary(), &["top", "--once", "--interval", "0.1"]).ok();
    assert_eq!(once.matches("WORKER").count(), 2, "a table of workers, and a column of queues: {once}");
    let nobody = switch.run(binary(), &["top", "--once", "--target", "/nowhere.ctl"]).failed();
    assert!(nobody.contains("crosspoint top: ") && nobody.contains("/nowhere.ctl"), "{nobody}");
}
