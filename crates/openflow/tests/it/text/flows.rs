//! Tables of flows, and flows at random.

use crate::text::oracle::{ours, stock};
use openflow::Version;
use openflow::text::{PortNames, parse_list};

/// Matches, one a line.
const MATCHES: &str = include_str!("matches.txt");
/// Flows that are mostly wrong, one a line.
const ERRORS: &str = include_str!("errors.txt");
/// Actions, one list a line.
const ACTIONS: &str = include_str!("actions.txt");

fn check(flows: impl Iterator<Item = String>) {
    let mut differences = Vec::new();
    for flow in flows {
        for version in [Version::V10, Version::V13] {
            let (stock, ours) = (stock(version, &flow), ours(version, &flow));
            // What the stock tool encodes and cannot decode again is no example.
            if stock != ours && stock.as_ref().is_ok_and(|s| s.starts_with("***")) {
                continue;
            }
            if stock != ours {
                differences.push(format!("{version} {flow}\n  stock {stock:?}\n  ours  {ours:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn matches_are_read_and_written_as_the_stock_tool_does() {
    check(MATCHES.lines().map(|m| format!("{m},actions=drop")));
}

#[test]
fn errors_are_worded_as_the_stock_tool_words_them() {
    check(ERRORS.lines().map(str::to_string));
}

#[test]
fn actions_are_read_and_written_as_the_stock_tool_does() {
    check(ACTIONS.lines().flat_map(|a| [format!("actions={a}"), format!("tcp,actions={a}")]));
}

#[test]
fn a_resubmit_by_the_connection_needs_one_of_any_protocol() {
    let states = ["+trk", "+trk+new", "+trk-inv", "+trk+inv", "+trk-new", "+rpl", "+trk+snat"];
    let matches = states.iter().flat_map(|state| {
        ["", ",arp", ",ip", ",tcp", ",ipv6"]
            .map(|more| format!("ct_state={state}{more},actions=resubmit(,1,ct)"))
    });
    check(matches);
}

#[test]
fn actions_nest_as_deep_as_the_stock_tool_lets_them() {
    let nested = |depth: usize| format!("actions={}output:1{}", "clone(".repeat(depth), ")".repeat(depth));
    check([98, 99, 100].into_iter().map(nested));
}

#[test]
fn loads_of_ports_and_flags_are_shown_as_the_stock_tool_shows_them_in_openflow_1_5() {
    for actions in
        ["load:3->in_port[0..3]", "load:3->in_port[]", "load:1->tun_flags[]", "load:0->tun_flags[]"]
    {
        let flow = format!("actions={actions}");
        assert_eq!(ours(Version::V15, &flow), stock(Version::V15, &flow), "{flow}");
    }
}

#[test]
fn a_list_may_begin_with_a_meter_that_openflow_1_5_alone_has() {
    let usable = |text| parse_list(text, PortNames::none()).map(|(_, usable)| usable.to_string());
    let refused = |text| usable(text).unwrap_err().message;
    assert_eq!(usable("output:2"), Ok("any".to_string()));
    assert_eq!(usable("meter:1,output:2"), Ok("OXM-OpenFlow15".to_string()));
    assert_eq!(usable("encap(ethernet)"), Ok("OXM-OpenFlow13,OXM-OpenFlow14,OXM-OpenFlow15".to_string()));
    assert_eq!(usable("push_vlan:0x8100"), Ok("OXM,OpenFlow11".to_string()));
    assert_eq!(refused("clone(meter:1)"), "clone action doesn't support nested action meter");
    assert_eq!(refused("goto_table:1"), "goto_table instruction not allowed here");
    let late = "invalid instruction ordering: meter must appear before apply_actions";
    assert!(refused("output:2,meter:1").starts_with(late));
}
