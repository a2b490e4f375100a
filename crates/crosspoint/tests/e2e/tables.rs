//! Tables as controllers configure them: by the stock `ovs-ofctl`, and by our own.

use crate::common::{Switch, UDP};
use crate::controller::Controller;
use openflow::Version;
use openflow::message::{StatsBody, StatsRequest, TableFeatures};
use std::path::Path;
use testkit::stock::Stock;

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
fn of_each_table_the_oldest_flows_are_dumped_first() {
    let switch = Switch::dummy();
    let change = |how: &str, flow: &str| drop(switch.ofctl(&[how, "br0", flow]).ok());
    for port in 1..=3 {
        change("add-flow", &format!("in_port={port},actions=drop"));
    }
    change("del-flows", "in_port=1");
    change("del-flows", "in_port=2");
    change("add-flow", "table=1,actions=drop");
    for port in [4, 1] {
        change("add-flow", &format!("in_port={port},actions=drop"));
    }
    // One that is changed is as old as before.
    change("mod-flows", "in_port=3,actions=1");
    let shown = switch.ofctl(&["--no-names", "--no-stats", "dump-flows", "br0"]).ok();
    let flows: Vec<_> = shown.lines().map(|line| line.trim().split(" actions").next().unwrap()).collect();
    assert_eq!(flows, ["in_port=3", "in_port=4", "in_port=1", "table=1,"], "{shown}");
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
    // A table without a limit is never quite empty again, as in Open vSwitch.
    switch.ofctl(&["-O", "OpenFlow14", "mod-table", "br0", "0", "vacancy:20,80"]).ok();
    switch.add_flow("actions=drop");
    assert!(describe()[1].ends_with("vacancy=99%"));
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

/// What a switch says of its tables, fields in order of their numbers.
fn features(dir: &Path, version: Version) -> Vec<TableFeatures> {
    let mut client = Controller::connect(&dir.join("br0.mgmt"), version);
    let bodies = client.ask_for(StatsRequest::TableFeatures { features: vec![], more: false });
    let tables = bodies.into_iter().flat_map(|body| match body {
        StatsBody::TableFeatures(tables) => tables,
        other => panic!("{other:?}"),
    });
    let in_order = |mut table: TableFeatures| {
        let flows = [Some(&mut table.nonmiss), table.miss.as_mut()].into_iter().flatten();
        let fields = flows.flat_map(|f| [&mut f.write_set_fields, &mut f.apply_set_fields]);
        fields.chain([&mut table.matchable, &mut table.wildcards]).for_each(|list| list.sort_unstable());
        table
    };
    tables.map(in_order).collect()
}

#[test]
fn features_of_tables_are_the_stock_switchs() {
    let stock = Stock::start();
    stock.vsctl(
        "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure \
         protocols=OpenFlow13,OpenFlow14,OpenFlow15",
    );
    let ours = Switch::dummy();
    for version in [Version::V13, Version::V14, Version::V15] {
        let (ours, stock) = (features(ours.path(), version), features(stock.dir(), version));
        assert_eq!(ours.len(), stock.len(), "{version:?}");
        for (ours, stock) in ours.iter().zip(&stock) {
            assert!(stock.miss.is_some(), "the stock switch says what flows for a miss can do");
            let (ours, stock) = (format!("{ours:#?}"), format!("{stock:#?}"));
            let mut lines = ours.lines().zip(stock.lines());
            let first = lines.find(|(ours, stock)| ours != stock);
            assert!(ours == stock, "{version:?}: ours and the stock switch's: {first:?}");
        }
    }
}
