//! A topology's rules in the syntax of `ovs-ofctl`: one for each flow and hop, by what tells flows apart.

use super::Setup;

/// Beyond this many flows one rule for each hop takes their place, which the conditions of the point say.
const RULES_MAX: u32 = 100_000;

/// `per flow`, or `per port`.
pub fn kind(flows: u32) -> &'static str {
    if flows <= RULES_MAX { "per flow" } else { "per port" }
}

/// The rules. Ports have the numbers of their indices, plus 1.
pub fn text(setup: &Setup) -> String {
    let mut text = String::new();
    let is_capture = matches!(setup.pattern.protocol, crate::lab::traffic::pattern::Protocol::Pcap(_));
    for hop in setup.topology.hops {
        let outputs: Vec<String> = hop.to.iter().map(|port| format!("output:{}", port + 1)).collect();
        let (in_port, outputs) = (hop.from + 1, outputs.join(","));
        if is_capture || kind(setup.flows) == "per port" {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::net::Net;
    use crate::lab::topology::find;
    use crate::lab::traffic::pattern::Pattern;
    use std::collections::BTreeMap;

    fn text_of(topology: &str, flows: u32) -> String {
        let net = std::mem::ManuallyDrop::new(Net { switch: String::new(), outside: String::new() });
        let (sockets, pattern) = (BTreeMap::new(), Pattern::default());
        let topology = find(topology).unwrap();
        let (pattern, mtu, workers) = (&pattern, 1500, 1);
        text(&Setup { net: &net, topology, sockets: &sockets, flows, pattern, mtu, workers })
    }

    #[test]
    fn each_flow_has_a_rule_for_each_hop() {
        let text = text_of("PVP", 2);
        let last = "ip,nw_src=10.0.0.1,nw_dst=11.0.0.84,in_port=2,actions=output:3";
        assert_eq!((text.lines().count(), text.lines().last()), (4, Some(last)));
    }

    #[test]
    fn directions_that_share_a_port_are_told_apart_also_without_a_rule_for_each_flow() {
        let text = text_of("PVP-both", 1_000_000);
        assert!(text.contains("in_port=2,ip,nw_src=10.0.0.0/8,actions=output:3\n"), "{text}");
        assert!(text.contains("in_port=2,ip,nw_dst=10.0.0.0/8,actions=output:1\n"), "{text}");
        assert_eq!(text_of("P2P", 1_000_000), "in_port=1,actions=output:2\n");
    }
}
