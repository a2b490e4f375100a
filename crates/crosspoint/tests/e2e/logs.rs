//! What the switch logs, beside the stock one.

use crate::common::{Switch, wait_for};
use crate::pair::Pair;

/// What a log says at INFO and above, without times, numbers and the run directory.
fn told(log: &str, dir: &str) -> std::collections::BTreeSet<String> {
    let important = |line: &&str| ["|INFO|", "|WARN|", "|ERR|", "|EMER|"].iter().any(|l| line.contains(l));
    let plain = |line: &str| {
        let text = line.splitn(3, '|').nth(2).unwrap_or_default().replace(dir, "DIR");
        let mut words = String::new();
        for c in text.chars() {
            match c {
                '0'..='9' if words.ends_with('N') => {}
                '0'..='9' => words.push('N'),
                _ => words.push(c),
            }
        }
        // A bridge without one has a datapath ID by chance.
        match words.split_once("using datapath ID ") {
            Some((head, _)) => head.to_owned() + "using datapath ID",
            None => words,
        }
    };
    log.lines().filter(important).map(plain).collect()
}

#[test]
fn at_info_and_above_the_log_says_what_the_stock_switch_says() {
    let log_of = |pair: &Pair| {
        let vsctl = |words: &str| {
            let words: Vec<&str> = ["--timeout=30"].into_iter().chain(words.split(' ')).collect();
            let done = pair.run("ovs-vsctl", &words);
            assert!(done.succeeded(), "{done:?}");
        };
        vsctl("del-port p2");
        // Configuration that is ignored shows in the database, not here.
        vsctl("set bridge br0 other_config:nonsense=1 -- set interface p1 options:nonsense=1");
        vsctl("add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure -- del-br br0");
        let done = pair.run("ovs-appctl", &["exit", "--cleanup"]);
        assert!(done.succeeded(), "{done:?}");
        let log = || std::fs::read_to_string(pair.file("log")).unwrap();
        wait_for("the bridge to be gone", || log().contains("bridge br0: deleted interface br0"));
        told(&log(), &format!("{}/", pair.path().display()))
    };
    let (ours, stock) = (log_of(&Pair::ours()), log_of(&Pair::stock()));
    let more: Vec<_> = ours.difference(&stock).collect();
    assert!(more.is_empty(), "we say {more:#?}\nthe stock switch says {stock:#?}");
    let first =
        |set: &std::collections::BTreeSet<String>| set.iter().any(|l| l.contains("ovs-vswitchd (Open"));
    assert!(first(&ours) && first(&stock));
}

#[test]
fn messages_of_controllers_are_logged_while_vconn_is_at_debug() {
    let switch = Switch::dummy();
    switch.add_flow("priority=7,actions=drop");
    assert!(!switch.log().contains("OFPT_FLOW_MOD"), "{}", switch.log());
    switch.appctl(&["vlog/set", "vconn:dbg"]).ok();
    switch.add_flow("priority=8,actions=drop");
    let has = |text: &str| wait_for(text, || switch.log().contains(text));
    has("|vconn|DBG|unix#");
    has(
        ": negotiated OpenFlow version 0x01 (we support version 0x06 and earlier, peer supports version 0x01)\n",
    );
    has("ADD priority=8 actions=drop\n");
    has("sent (Success): OFPT_BARRIER_REPLY (xid=0x");
    switch.appctl(&["vlog/set", "vconn:info"]).ok();
    switch.add_flow("priority=9,actions=drop");
    switch.appctl(&["version"]).ok();
    assert!(!switch.log().contains("ADD priority=9"), "{}", switch.log());
}
