//! Groups and meters by the stock `ovs-ofctl`, from messages to packets.

use crate::common::{self, Process, Switch, UDP, wait_for};

fn ofctl(switch: &Switch, command: &str, group: &str) -> common::Said {
    switch.ofctl(&["-O", "OpenFlow15", command, "br0", group])
}

/// `dump-group-stats` without the duration.
fn stats(switch: &Switch, version: &str) -> String {
    let said = switch.ofctl(&["-O", version, "dump-group-stats", "br0"]).ok();
    let line = said.lines().find(|line| line.starts_with(' ')).expect("a group").trim().to_string();
    line.split(',').filter(|word| !word.starts_with("duration")).collect::<Vec<_>>().join(",")
}

#[test]
fn packets_go_where_buckets_say_and_are_counted_by_group_and_bucket() {
    let switch = Switch::dummy();
    ofctl(&switch, "add-group", "group_id=1,type=all,bucket=output:2,bucket=output:3").ok();
    switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:1"]).ok();
    switch.receive("p1", UDP);
    let frames = switch.sent("p2", 1);
    assert_eq!(frames, switch.sent("p3", 1));
    let bytes = frames[0].len() / 2;
    let counted = |n: usize| format!("packet_count={n},byte_count={}", n * bytes);
    let expected =
        |n| format!("group_id=1,ref_count=1,{},bucket0:{},bucket1:{}", counted(n), counted(n), counted(n));
    for version in ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        assert_eq!(stats(&switch, version), expected(1), "{version}");
    }
    // A change holds with the next packet. The group's counters begin anew, those of buckets that stay go on.
    ofctl(&switch, "insert-buckets", "group_id=1,command_bucket_id=last,bucket=bucket_id=9,actions=in_port")
        .ok();
    ofctl(&switch, "remove-buckets", "group_id=1,command_bucket_id=first").ok();
    switch.receive("p1", UDP);
    assert_eq!(switch.sent("p3", 1), switch.sent("p1", 1));
    let of_both = format!("bucket0:{},bucket1:{}", counted(2), counted(1));
    assert_eq!(stats(&switch, "OpenFlow15"), format!("group_id=1,ref_count=1,{},{of_both}", counted(1)));
    let desc = ofctl(&switch, "dump-groups", "1").ok();
    assert!(
        desc.ends_with("type=all,bucket=bucket_id:1,actions=output:3,bucket=bucket_id:9,actions=IN_PORT\n"),
        "{desc}"
    );
    // With the group goes the flow that refers to it.
    ofctl(&switch, "del-groups", "group_id=1").ok();
    assert!(switch.flows(&[]).is_empty());
    assert!(switch.sent("p2", 0).is_empty());
}

#[test]
fn a_trace_names_the_buckets_and_why_they_are_chosen() {
    let switch = Switch::dummy();
    ofctl(&switch, "add-group", "group_id=7,type=all,bucket=output:2,bucket=group:8").ok();
    ofctl(
        &switch,
        "add-group",
        "group_id=8,type=ff,bucket=watch_port=9,output:1,bucket=watch_port=3,output:3",
    )
    .ok();
    switch.add_flow("table=1,actions=4");
    switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:7,resubmit(,1)"]).ok();
    let trace = switch.appctl(&["ofproto/trace", "br0", "in_port=1"]).ok();
    let expected = " 0. in_port=1, priority 32768
    group:7
    bucket 0
            output:2
    bucket 1
            group:8
             -> bucket 0: not live due to port 9
             -> using bucket 1
            bucket 1
                    output:3
    resubmit(,1)
";
    assert!(trace.contains(expected), "{trace}");
    // Where there is none, the list ends.
    let switch = Switch::dummy();
    ofctl(&switch, "add-group", "group_id=7,type=indirect,bucket=group:8").ok();
    switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=group:7"]).ok();
    let trace = switch.appctl(&["ofproto/trace", "br0", "in_port=1"]).ok();
    assert!(trace.contains(" >> output to nonexistent group 8\n"), "{trace}");
}

#[test]
fn other_controllers_are_told_of_changes_in_the_form_of_their_version() {
    let switch = Switch::dummy();
    let log = switch.dir.path().join("monitor");
    let monitor = |version: &str, log: &std::path::Path| {
        let out = std::fs::File::create(log).unwrap();
        let mut command = std::process::Command::new("ovs-ofctl");
        command.args(["-O", version, "monitor", "br0", "100"]).env("OVS_RUNDIR", switch.dir.path());
        Process::start(command.stdout(out.try_clone().unwrap()).stderr(out))
    };
    let _monitor = monitor("OpenFlow14", &log);
    // Asking for what others do is a matter of the asynchronous configuration, so the default is silence.
    ofctl(&switch, "add-group", "group_id=1,type=all").ok();
    switch.add_flow("in_port=1,actions=controller");
    wait_for("the monitor", || {
        switch.receive("p1", UDP);
        std::fs::read_to_string(&log).unwrap().contains("PACKET_IN")
    });
    assert!(!std::fs::read_to_string(&log).unwrap().contains("REQUESTFORWARD"));
}

#[test]
fn a_bundle_changes_groups_flows_and_sends_packets_as_one() {
    let switch = Switch::dummy();
    let file = |name: &str, text: &str| {
        let path = switch.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let packet = "ffffffffffff0102030405060800450000140000000040110000";
    let good = file(
        "good",
        &format!(
            "group add group_id=1,type=all,bucket=output:2\n\
             flow add in_port=1,actions=group:1\n\
             packet-out in_port=1 packet={packet} actions=table\n\
             group mod group_id=1,type=all,bucket=output:3\n\
             packet-out in_port=1 packet={packet} actions=group:1\n"
        ),
    );
    switch.ofctl(&["-O", "OpenFlow14", "bundle", "br0", &good]).ok();
    assert_eq!((switch.sent("p2", 1).len(), switch.sent("p3", 1).len()), (1, 1));
    let bad = file(
        "bad",
        &format!(
            "group del group_id=1\n\
             packet-out in_port=1 packet={packet} actions=output:2\n\
             flow add udp,actions=group:1\n"
        ),
    );
    let said = switch.ofctl(&["-O", "OpenFlow14", "bundle", "br0", &bad]).failed();
    assert!(said.contains("OFPBAC_BAD_OUT_GROUP") && said.contains("OFPBFC_MSG_FAILED"), "{said}");
    assert_eq!(switch.flows(&[]).len(), 1);
    assert!(switch.sent("p2", 0).is_empty());
}

#[test]
fn a_meter_drops_what_is_over_its_rate_and_counts_it() {
    let switch = Switch::dummy();
    let ofctl = |args: &[&str]| switch.ofctl(&[&["-O", "OpenFlow13"], args].concat());
    ofctl(&["add-meter", "br0", "meter=1 pktps burst stats bands=type=drop rate=1 burst_size=2"]).ok();
    ofctl(&["add-flow", "br0", "in_port=1,actions=meter:1,2"]).ok();
    (0..5).for_each(|_| switch.receive("p1", UDP));
    let stats = || ofctl(&["meter-stats", "br0", "meter=1"]).ok();
    wait_for("the packets", || stats().contains("packet_in_count:5 "));
    // Two at once, and perhaps one more if this takes a second.
    let dropped: u64 =
        stats().rsplit("packet_count:").next().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((2..=3).contains(&dropped), "{}", stats());
    assert_eq!(switch.sent("p2", 5 - dropped as usize).len() as u64, 5 - dropped);
    let drops = switch.appctl(&["crosspoint/drops"]).ok();
    assert!(drops.contains(&format!("meter: {dropped}")), "{drops}");
    assert!(stats().contains("flow_count:1 "));
    let config = ofctl(&["dump-meters", "br0"]).ok();
    assert!(config.contains("meter=1 pktps burst stats bands=\ntype=drop rate=1 burst_size=2\n"), "{config}");
    let features = ofctl(&["meter-features", "br0"]).ok();
    assert!(features.contains("max_meter:1000000 max_bands:8 max_color:0"), "{features}");
    assert!(
        features.contains("band_types: drop dscp_remark\ncapabilities: kbps pktps burst stats"),
        "{features}"
    );
    let said = ofctl(&["meter-stats", "br0", "meter=2"]);
    assert!(format!("{}{}", said.out, said.err).contains("OFPMMFC_UNKNOWN_METER"));
    // Remarked packets keep their class: AF11 becomes AF12.
    ofctl(&[
        "mod-meter",
        "br0",
        "meter=1 pktps burst bands=type=dscp_remark rate=1 burst_size=1 prec_level=1",
    ])
    .ok();
    let af11 = UDP.replace("tos=0", "tos=40");
    (0..2).for_each(|_| switch.receive("p1", &af11));
    let frames = switch.sent("p2", 2);
    assert_eq!(frames.iter().map(|f| &f[30..32]).collect::<Vec<_>>(), ["28", "30"]);
    // Either name of the command takes one meter or all of them.
    ofctl(&["add-meter", "br0", "meter=2 pktps bands=type=drop rate=7"]).ok();
    assert!(ofctl(&["dump-meters", "br0", "meter=2"]).ok().contains("meter=2"));
    assert!(ofctl(&["dump-meter", "br0"]).ok().contains("meter=1"));
    ofctl(&["del-meters", "br0", "meter=2"]).ok();
    let left = ofctl(&["dump-meters", "br0"]).ok();
    assert!(left.contains("meter=1") && !left.contains("meter=2"), "{left}");
    ofctl(&["del-meter", "br0"]).ok();
    assert!(switch.flows(&[]).is_empty());
}
