//! What workers do with their time, side by side with a stock `ovs-vswitchd --enable-dummy`.

use crate::common::{UDP, wait_for};
use crate::pair::Pair;

/// A line without what its numbers are: each digit run becomes one `0`, blanks one blank, and none behind a
/// parenthesis.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }) {
        let repeats = shape.ends_with(c) && (c == '0' || c == ' ') || shape.ends_with('(') && c == ' ';
        if !repeats {
            shape.push(c);
        }
    }
    shape
}

#[test]
fn what_workers_do_with_their_time_is_shown_in_the_stock_switchs_layout() {
    let (ours, stock) = (Pair::ours(), Pair::stock());
    for pair in [&ours, &stock] {
        // Dummies of this type are polled by workers.
        let added = "add-port br0 p9 -- set interface p9 type=dummy-pmd ofport_request=9";
        let added: Vec<&str> = added.split(' ').collect();
        pair.run("ovs-vsctl", &added).ok();
        pair.ofctl(&["add-flow", "br0", "in_port=9,actions=1"]).ok();
    }
    let show = |pair: &Pair, args: &[&str]| {
        let (text, code) = pair.appctl(&[&["dpif-netdev/pmd-perf-show"], args].concat());
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let found = |text: &str, label: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.trim_start().starts_with(label))?;
        Some(line[label.len() + 2..].split_whitespace().next().unwrap().parse().unwrap())
    };
    let value = |text: &str, label| found(text, label).unwrap_or_else(|| panic!("{label}: {text}"));
    // Before there are packets most lines are left out.
    for pair in [&ours, &stock] {
        assert_eq!(pair.appctl(&["dpif-netdev/pmd-stats-clear"]), (String::new(), Some(0)));
    }
    let shapes = |text: &str| text.lines().map(shape).collect::<Vec<_>>();
    let without_numbers = |text: &str| {
        let lines = shapes(text).into_iter().map(|l| l.split(" (").next().unwrap().to_string());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(without_numbers(&show(&ours, &[])), without_numbers(&show(&stock, &[])));
    for pair in [&ours, &stock] {
        for _ in 0..6 {
            assert_eq!(
                pair.appctl(&["netdev-dummy/receive", "p9", &UDP.replace("in_port(1)", "in_port(9)")]).1,
                Some(0)
            );
        }
        // Each of these is counted at another moment of a packet's way.
        wait_for("the packets", || {
            let text = show(pair, &[]);
            let value = |label| found(&text, label).unwrap_or(0);
            let ways =
                ["- Simple Match hits:", "- EMC hits:", "- SMC hits:", "- Megaflow hits:", "- Upcalls:"];
            let looked_up: u64 = ways.map(value).iter().sum();
            (value("Rx packets:"), looked_up, value("Tx packets:")) == (6, 6, 6)
        });
    }
    let (mine, theirs) = (show(&ours, &["-nh"]), show(&stock, &["-nh"]));
    // What is not measured here is left out: how long an upcall takes, and output batches.
    let expected: Vec<String> = shapes(&theirs)
        .into_iter()
        .filter(|line| !line.contains("Tx batches:"))
        .map(|line| line.replace(", 0.0 us/upcall", ""))
        .collect();
    assert_eq!(shapes(&mine), expected, "{mine}{theirs}");
    let columns = |text: &str| {
        let end = |l: &str| l.find("  (").unwrap_or(l.len());
        let ends = text.lines().filter(|l| l.starts_with("  ")).map(end);
        ends.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((columns(&mine), columns(&theirs)), ([34].into(), [34].into()), "{mine}{theirs}");
    // What it says hangs together.
    let loops = value(&mine, "Iterations:");
    assert_eq!(loops, value(&mine, "- idle iterations:") + value(&mine, "- busy iterations:"));
    let hits = value(&mine, "- EMC hits:") + value(&mine, "- Megaflow hits:") + value(&mine, "- Upcalls:");
    assert_eq!((hits, value(&mine, "- Upcalls:"), value(&mine, "Tx packets:")), (6, 1, 6), "{mine}");
    assert!(value(&mine, "- Used TSC cycles:") > 0 && value(&mine, "- busy iterations:") > 0);
    wait_for("a sleep, as there is nothing to do", || {
        let text = show(&ours, &["-pmd", "0"]);
        value(&text, "- sleep iterations:") > 0 && value(&text, "Sleep time (us):") > 0
    });
    assert_eq!(show(&ours, &["-pmd", "77"]), "");
    // Histories are taken, and are not there; the same words as with the stock switch.
    for history in [&["-it", "3"][..], &["-ms", "3", "-nh"], &["-pmd", "0", "-it", "1000", "-ms", "7"]] {
        assert_eq!(stock.appctl(&[&["dpif-netdev/pmd-perf-show"], history].concat()).1, Some(0));
        let text = show(&ours, history);
        assert!(text.contains("Iterations:") && text.contains("History: none is kept\n"), "{text}");
    }
    assert!(!show(&ours, &["-it", "0", "-ms", "0"]).contains("History"));
    for bad in [&["-it", "x"][..], &["-ms"], &["-pmd"], &["-pmd", "x"], &["nope"]] {
        assert_eq!(ours.appctl(&[&["dpif-netdev/pmd-perf-show"], bad].concat()).1, Some(2), "{bad:?}");
    }
    assert_eq!(ours.appctl(&["dpif-netdev/pmd-stats-clear"]), (String::new(), Some(0)));
    assert_eq!(value(&show(&ours, &[]), "Rx packets:"), 0);

    // What a worker does beside its queues, where it has some.
    let overheads = |pair: &Pair| {
        let text = pair.appctl(&["dpif-netdev/pmd-rxq-show"]).0;
        let workers: Vec<&str> = text.split("pmd thread ").skip(1).collect();
        assert!(!workers.is_empty(), "{text}");
        for worker in workers {
            let last = worker.trim_end().lines().last().unwrap();
            assert_eq!(worker.contains("queue-id:"), last.starts_with("  overhead: "), "{text}");
        }
        text
    };
    overheads(&stock);
    let text = overheads(&ours);
    let overhead = text.lines().find_map(|l| l.strip_prefix("  overhead: ")?.strip_suffix(" %"));
    assert!(overhead.is_some_and(|n| n.trim().parse::<u8>().is_ok_and(|n| n <= 100)), "{text}");
    // A queue's usage over the last seconds, in steps of five.
    let usage = |pair: &Pair, args: &[&str]| {
        let (text, code) = pair.appctl(&[&["dpif-netdev/pmd-rxq-show"], args].concat());
        (text.lines().next().unwrap_or_default().to_string(), code)
    };
    for args in
        [&[][..], &["-secs", "1"], &["-secs", "10"], &["-secs", "11"], &["-secs", "600"], &["-secs", "0"]]
    {
        assert_eq!(usage(&ours, args), usage(&stock, args), "{args:?}");
    }
    for args in [&["-secs", "11", "-pmd", "0"], &["-pmd", "0", "-secs", "11"]] {
        assert_eq!(usage(&ours, args).0, "Displaying last 15 seconds pmd usage %");
    }
    for bad in [&["-secs", "x"][..], &["-secs"]] {
        assert_eq!(usage(&ours, bad).1, Some(2), "{bad:?}");
    }
}
