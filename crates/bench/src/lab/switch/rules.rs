//! A topology's rules in the syntax of `ovs-ofctl`: one for each flow and hop. Only IPv4 source and
//! destination change, as in Red Hat's test.

use super::Setup;
use crate::measure::frames::addresses;

/// Beyond this many flows one rule for each hop takes their place, which the conditions of the point say.
const RULES_MAX: u32 = 100_000;

/// `per flow`, or `per port`.
pub fn kind(flows: u32) -> &'static str {
    if flows <= RULES_MAX { "per flow" } else { "per port" }
}

/// The rules. Ports have the numbers of their indices, plus 1.
pub fn text(setup: &Setup) -> String {
    let mut text = String::new();
    for (from, to) in setup.topology.rules {
        let outputs: Vec<String> = to.iter().map(|port| format!("output:{}", port + 1)).collect();
        let (in_port, outputs) = (from + 1, outputs.join(","));
        if kind(setup.flows) == "per port" {
            text += &format!("in_port={in_port},actions={outputs}\n");
            continue;
        }
        for n in 0..setup.flows as usize {
            let (src, dst) = addresses(n);
            text += &format!("ip,in_port={in_port},nw_src={src},nw_dst={dst},actions={outputs}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::net::Net;
    use crate::lab::topology::find;
    use std::collections::BTreeMap;

    #[test]
    fn each_flow_has_a_rule_for_each_hop() {
        let net = std::mem::ManuallyDrop::new(Net { switch: String::new(), outside: String::new() });
        let sockets = BTreeMap::new();
        let topology = find("PVP").unwrap();
        let setup = Setup { net: &net, topology, sockets: &sockets, flows: 2 };
        let text = text(&setup);
        let last = "ip,in_port=2,nw_src=10.0.0.1,nw_dst=11.0.0.84,actions=output:3";
        assert_eq!((text.lines().count(), text.lines().last()), (4, Some(last)));
    }
}
