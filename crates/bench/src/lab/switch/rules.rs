//! A topology's rules: one for each flow and hop, by what tells flows apart. They are written as `ovs-ofctl`
//! has them, and sent as OpenFlow, since that program takes a minute for a million.

use super::Setup;
use crate::connection::{Connection, with_barrier};
use crate::daemon::Daemon;
use crate::lab::traffic::pattern::{Pattern, Protocol};
use crate::measure::frames::exact_match;
use crate::measure::trial::to_sink;
use crate::units::grouped;
use openflow::message::{FlowMod, FlowModCommand};
use openflow::text::{PortNames, Protocol as Form, parse_flow_mod};
use std::time::{Duration, Instant};

/// Rules that are sent before the switch is asked whether it has them.
const AT_ONCE: usize = 50_000;
/// A switch that takes longer to load its rules is given up.
const TIME: Duration = Duration::from_secs(180);

/// `per flow`, or `per port` for frames that no pattern describes.
pub fn kind(pattern: &Pattern, is_foreign: bool) -> &'static str {
    let is_known = !is_foreign && !matches!(pattern.protocol, Protocol::Pcap(_));
    if is_known { "per flow" } else { "per port" }
}

/// The rules as text. Ports have the numbers of their indices, plus 1.
fn lines<'s>(setup: &'s Setup) -> impl Iterator<Item = String> + use<'s> {
    let is_per_port = kind(setup.pattern, setup.is_foreign) == "per port";
    let flows = if is_per_port { 1 } else { setup.flows as usize };
    setup.topology.hops.iter().flat_map(move |hop| {
        let outputs: Vec<String> = hop.to.iter().map(|port| format!("output:{}", port + 1)).collect();
        let (in_port, outputs) = (hop.from + 1, outputs.join(","));
        // A port that both directions come in by tells them apart by their addresses.
        let is_shared = setup.topology.hops.iter().filter(|h| h.from == hop.from).count() > 1;
        let way = if is_shared { format!(",{}", setup.pattern.way_text(hop.is_back)) } else { String::new() };
        (0..flows).map(move |n| match is_per_port {
            true => format!("in_port={in_port}{way},actions={outputs}"),
            false => {
                let flow = setup.pattern.match_text(n, hop.is_back);
                format!("{flow},in_port={in_port},actions={outputs}")
            }
        })
    })
}

fn parsed(line: &str) -> Result<FlowMod, String> {
    let parsed = parse_flow_mod(line, FlowModCommand::Add, PortNames::none());
    parsed.map(|rule| rule.in_protocol(Form::Of13)).map_err(|e| format!("{line}: {e}"))
}

/// Loads a switch with its rules.
///
/// # Errors
/// A sentence, if it refuses one, or takes too long.
pub fn load(daemon: &Daemon, setup: &Setup) -> Result<(), String> {
    send(daemon, lines(setup).map(|line| parsed(&line)))
}

fn send(daemon: &Daemon, mut rules: impl Iterator<Item = Result<FlowMod, String>>) -> Result<(), String> {
    let (start, mut loaded, mut connection) = (Instant::now(), 0, Connection::open(daemon)?);
    loop {
        let some = rules.by_ref().take(AT_ONCE).collect::<Result<Vec<FlowMod>, String>>()?;
        if some.is_empty() {
            return Ok(());
        }
        if start.elapsed() > TIME {
            let (loaded, seconds) = (grouped(loaded), TIME.as_secs());
            return Err(format!("it has {loaded} of its rules after {seconds} s, and is given up"));
        }
        loaded += some.len() as u64;
        connection.until_barrier(&with_barrier(some.into_iter())?)?;
    }
}

/// Flows without traffic: those that fill a table begin here, those that come and go further on.
const FILLED: usize = 2_000_000;
const CHANGED: usize = 4_000_000;

/// Additions of rules for other flows, from the first port to the second, that fill the table up to this many
/// rules. No packet of the traffic matches one.
fn others(setup: &Setup, rules: u32) -> impl Iterator<Item = FlowMod> {
    let there = lines(setup).count();
    (there..rules as usize).map(|n| add(FILLED + n))
}

/// Loads them.
pub fn load_others(daemon: &Daemon, setup: &Setup, rules: u32) -> Result<(), String> {
    send(daemon, others(setup, rules).map(Ok))
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
        with_setup(topology, flows, is_foreign, |setup| lines(setup).map(|line| line + "\n").collect())
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
        assert_eq!(kind(&Pattern::default(), true), "per port");
        assert_eq!(kind(&"pcap=x".parse().unwrap(), false), "per port");
        assert_eq!(kind(&Pattern::default(), false), "per flow");
    }

    #[test]
    fn directions_that_share_a_port_are_told_apart_also_without_a_rule_for_each_flow() {
        let text = text_for("PVP-both", 100, true);
        assert!(text.contains("in_port=2,ip,nw_src=10.0.0.0/8,actions=output:3\n"), "{text}");
        assert!(text.contains("in_port=2,ip,nw_dst=10.0.0.0/8,actions=output:1\n"), "{text}");
    }

    #[test]
    fn every_rule_of_every_kind_of_traffic_is_one_that_openflow_has() {
        let kinds = ["udp", "udp+l2", "udp+l4", "udp+ipv6", "udp+ipv6+l4", "udp+vlan", "tcp-syn+l4", "imix"];
        for kind in kinds {
            let pattern: Pattern = kind.parse().unwrap();
            for n in [0, 999_999] {
                for is_back in [false, true] {
                    let line = format!("{},in_port=1,actions=output:2", pattern.match_text(n, is_back));
                    let rule = parsed(&line).unwrap();
                    assert_eq!((rule.priority, rule.table_id), (32_768, 0), "{line}");
                    with_barrier([rule].into_iter()).unwrap();
                }
            }
        }
    }
}
