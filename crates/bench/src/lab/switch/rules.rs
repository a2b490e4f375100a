//! A topology's rules in the syntax of `ovs-ofctl`: one for each flow and hop, by what tells flows apart.

use super::Setup;
use crate::lab::traffic::pattern::{Pattern, Protocol};
use crate::measure::frames::exact_match;
use crate::measure::trial::to_sink;
use openflow::message::FlowMod;

/// Beyond this many flows one rule for each hop takes their place, which the conditions of the point say.
const RULES_MAX: u32 = 100_000;

/// `per flow`, or `per port`, as also for frames that no pattern describes.
pub fn kind(flows: u32, pattern: &Pattern, is_foreign: bool) -> &'static str {
    let is_known = !is_foreign && !matches!(pattern.protocol, Protocol::Pcap(_));
    if is_known && flows <= RULES_MAX { "per flow" } else { "per port" }
}

/// The rules. Ports have the numbers of their indices, plus 1.
pub fn text(setup: &Setup) -> String {
    let mut text = String::new();
    let kind = kind(setup.flows, setup.pattern, setup.is_foreign);
    for hop in setup.topology.hops {
        let outputs: Vec<String> = hop.to.iter().map(|port| format!("output:{}", port + 1)).collect();
        let (in_port, outputs) = (hop.from + 1, outputs.join(","));
        if kind == "per port" {
            // A port that both directions come in by tells them apart by their addresses.
            let is_shared = setup.topology.hops.iter().filter(|h| h.from == hop.from).count() > 1;
            let way =
                if is_shared { format!(",{}", setup.pattern.way_text(hop.is_back)) } else { String::new() };
            text += &format!("in_port={in_port}{way},actions={outputs}\n");
            continue;
        }
        for n in 0..setup.flows as usize {
            let flow = setup.pattern.match_text(n, hop.is_back);
            text += &format!("{flow},in_port={in_port},actions={outputs}\n");
        }
    }
    text
}

/// Flows without traffic: those that fill a table begin here, those that come and go further on.
const FILLED: usize = 2_000_000;
const CHANGED: usize = 4_000_000;

/// Additions of rules for other flows, from the first port to the second, that fill the table up to this many
/// rules. No packet of the traffic matches one.
pub fn others(setup: &Setup, rules: u32) -> impl Iterator<Item = FlowMod> {
    let there = text(setup).lines().count();
    (there..rules as usize).map(|n| add(FILLED + n))
}

/// The n-th rule that comes and goes: it matches the same fields as those of [`others`].
pub fn changed(n: usize) -> FlowMod {
    add(CHANGED + n)
}

fn add(n: usize) -> FlowMod {
    FlowMod { table_id: 0, matching: exact_match(n), actions: to_sink(), ..FlowMod::add() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::net::Net;
    use crate::lab::topology::find;
    use std::collections::BTreeMap;

    fn text_of(topology: &str, flows: u32) -> String {
        text_for(topology, flows, false)
    }

    fn text_for(topology: &str, flows: u32, is_foreign: bool) -> String {
        with_setup(topology, flows, is_foreign, text)
    }

    fn with_setup<T>(topology: &str, flows: u32, is_foreign: bool, then: impl Fn(&Setup) -> T) -> T {
        let net = std::mem::ManuallyDrop::new(Net { switch: String::new(), outside: String::new() });
        let (sockets, pattern) = (BTreeMap::new(), Pattern::default());
        let topology = find(topology).unwrap();
        let (pattern, mtu, workers) = (&pattern, 1500, 1);
        then(&Setup { net: &net, topology, sockets: &sockets, flows, pattern, is_foreign, mtu, workers })
    }

    #[test]
    fn rules_of_other_flows_fill_a_table_up() {
        let sources = |topology: &str, rules| -> Vec<u128> {
            let others = with_setup(topology, 10, false, |s| others(s, rules).collect::<Vec<_>>());
            others.iter().map(|add| add.matching.key.get(flow::FieldId::NwSrc)).collect()
        };
        // Ten flows have the addresses from 10.0.0.0 on.
        assert_eq!(sources("P2P", 12), [0x0a1e_848a, 0x0a1e_848b]);
        assert_eq!(sources("PVP", 20), []);
    }

    #[test]
    fn each_flow_has_a_rule_for_each_hop() {
        let text = text_of("PVP", 2);
        let last = "ip,nw_src=10.0.0.1,nw_dst=11.0.0.84,in_port=2,actions=output:3";
        assert_eq!((text.lines().count(), text.lines().last()), (4, Some(last)));
    }

    #[test]
    fn frames_of_a_generator_s_own_have_a_rule_for_each_port() {
        assert_eq!(text_for("P2P", 100, true), "in_port=1,actions=output:2\n");
        assert_eq!(kind(100, &Pattern::default(), true), "per port");
        assert_eq!(kind(100, &"pcap=x".parse().unwrap(), false), "per port");
        assert_eq!(kind(100, &Pattern::default(), false), "per flow");
    }

    #[test]
    fn directions_that_share_a_port_are_told_apart_also_without_a_rule_for_each_flow() {
        let text = text_of("PVP-both", 1_000_000);
        assert!(text.contains("in_port=2,ip,nw_src=10.0.0.0/8,actions=output:3\n"), "{text}");
        assert!(text.contains("in_port=2,ip,nw_dst=10.0.0.0/8,actions=output:1\n"), "{text}");
        assert_eq!(text_of("P2P", 1_000_000), "in_port=1,actions=output:2\n");
    }
}
