//! Tables as controllers configure them: by the stock `ovs-ofctl`, and by our own.

use crate::common::{Switch, UDP};

/// The lines that name tables.
fn headings(features: &str) -> Vec<&str> {
    features.lines().filter(|line| line.starts_with("  table")).collect()
}

#[test]
fn names_of_tables_are_set_by_controllers_and_shown_in_flows() {
    let switch = Switch::dummy();
    switch.ofctl(&["-O", "OpenFlow13", "mod-table", "br0", "0", "name:acl"]).ok();
    switch.ofctl(&["-O", "OpenFlow15", "mod-table", "br0", "1", "name:routes"]).ok();
    let features = switch.ofctl(&["-O", "OpenFlow15", "dump-table-features", "br0"]).ok();
    let expected =
        ["  table 0 (\"acl\"):", "  table 1 (\"routes\"): ditto", "  tables 2...252: ditto", "  table 253:"];
    assert_eq!(headings(&features), expected);
    switch.ofctl(&["add-flow", "br0", "table=acl,in_port=1,actions=resubmit(,routes)"]).ok();
    let shown = switch.ofctl(&["--names", "--no-stats", "dump-flows", "br0"]).ok();
    assert_eq!(shown.trim(), "table=acl, in_port=p1 actions=resubmit(,routes)");
    let ours = switch.own_ofctl(&["--names", "--no-stats", "dump-flows", "br0"]).ok();
    assert_eq!(ours, shown);
    let ours = switch.own_ofctl(&["-O", "OpenFlow15", "dump-table-features", "br0"]).ok();
    assert_eq!(ours, features);
}

#[test]
fn eviction_and_vacancy_are_described_as_they_were_set() {
    let switch = Switch::dummy();
    let describe = || {
        let text = switch.ofctl(&["-O", "OpenFlow14", "dump-table-desc", "br0"]).ok();
        let ours = switch.own_ofctl(&["-O", "OpenFlow14", "dump-table-desc", "br0"]).ok();
        assert_eq!(ours, text);
        text.lines().skip(2).take(2).map(|line| line.trim().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(describe(), ["eviction=off eviction_flags=OTHER|IMPORTANCE|LIFETIME", "vacancy=off"]);
    switch.own_ofctl(&["-O", "OpenFlow14", "mod-table", "br0", "0", "evict"]).ok();
    switch.ofctl(&["-O", "OpenFlow14", "mod-table", "br0", "0", "vacancy:20,80"]).ok();
    let expected = [
        "eviction=on eviction_flags=OTHER|IMPORTANCE|LIFETIME",
        "vacancy=on vacancy_down=20% vacancy_up=80% vacancy=100%",
    ];
    assert_eq!(describe(), expected);
    switch.own_ofctl(&["-O", "OpenFlow14", "mod-table", "br0", "0", "novacancy"]).ok();
    assert_eq!(describe()[1], "vacancy=off");
}

#[test]
fn a_table_without_a_flow_for_a_packet_goes_on_to_the_next_where_it_is_told_to() {
    let switch = Switch::dummy();
    switch.add_flow("table=2,in_port=1,actions=2");
    switch.receive("p1", UDP);
    assert_eq!(switch.packets("2", "tx"), 0);
    switch.ofctl(&["-O", "OpenFlow12", "mod-table", "br0", "all", "continue"]).ok();
    switch.receive("p1", UDP);
    assert_eq!(switch.sent("p2", 1).len(), 1);
    switch.ofctl(&["-O", "OpenFlow12", "mod-table", "br0", "1", "drop"]).ok();
    switch.receive("p1", UDP);
    assert_eq!(switch.packets("1", "rx"), 3);
    assert_eq!(switch.packets("2", "tx"), 1);
}
