//! A topology's rules: one for each flow and hop, by what tells flows apart. The first of each hop is written
//! as `ovs-ofctl` has it. All are sent as OpenFlow, since that program takes a minute for a million.

use super::Setup;
use crate::connection::{Connection, with_barrier};
use crate::daemon::Daemon;
use crate::lab::topology::Hop;
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

/// Rules of each hop.
fn per_hop(setup: &Setup) -> usize {
    match kind(setup.pattern, setup.is_foreign) {
        "per port" => 1,
        _ => setup.flows as usize,
    }
}

/// The first rule of a hop as text. Ports have the numbers of their indices, plus 1.
fn first(setup: &Setup, hop: &Hop) -> String {
    let outputs: Vec<String> = hop.to.iter().map(|port| format!("output:{}", port + 1)).collect();
    let (in_port, outputs) = (hop.from + 1, outputs.join(","));
    if kind(setup.pattern, setup.is_foreign) == "per flow" {
        let flow = setup.pattern.match_text(hop.is_back);
        return format!("{flow},in_port={in_port},actions={outputs}");
    }
    // A port that both directions come in by tells them apart by their addresses.
    let is_shared = setup.topology.hops.iter().filter(|h| h.from == hop.from).count() > 1;
    let way = if is_shared { format!(",{}", setup.pattern.way_text(hop.is_back)) } else { String::new() };
    format!("in_port={in_port}{way},actions={outputs}")
}

/// All rules.
fn rules<'s>(setup: &'s Setup) -> impl Iterator<Item = Result<FlowMod, String>> + use<'s> {
    setup.topology.hops.iter().flat_map(move |hop| {
        let first = parsed(&first(setup, hop));
        let nth = move |n: usize| {
            let first = first.clone()?;
            let matching = match n {
                0 => first.matching,
                _ => setup.pattern.matching(first.matching, n, hop.is_back),
            };
            Ok(FlowMod { matching, ..first })
        };
        (0..per_hop(setup)).map(nth)
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
    send(daemon, rules(setup))
}

fn send(daemon: &Daemon, mut rules: impl Iterator<Item = Result<FlowMod, String>>) -> Result<(), String> {
    let (start, mut loaded, mut connection) = (Instant::now(), 0, Connection::open(daemon)?);
    loop {
        let some = rules.by_ref().take(AT_ONCE).collect::<Result<Vec<FlowMod>, String>>()?;
        if some.is_empty() {
            return Ok(());
        }
        loaded += some.len() as u64;
        connection.until_barrier(&with_barrier(some.into_iter())?)?;
        let taken = start.elapsed();
        if taken > TIME {
            let (loaded, seconds) = (grouped(loaded), taken.as_secs());
            return Err(format!("it has {loaded} of its rules after {seconds} s, and is given up"));
        }
    }
}

/// Flows without traffic: those that fill a table begin here, those that come and go further on.
const FILLED: usize = 2_000_000;
const CHANGED: usize = 4_000_000;

/// Additions of rules for other flows, from the first port to the second, that fill the table up to this many
/// rules. No packet of the traffic matches one.
fn others(setup: &Setup, rules: u32) -> impl Iterator<Item = FlowMod> {
    let there = per_hop(setup) * setup.topology.hops.len();
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
        let line = |rule: Result<FlowMod, String>| {
            let rule = rule.unwrap();
            let matching = openflow::text::match_text(&rule.matching, PortNames::none());
            format!("{matching} {:?}\n", rule.actions)
        };
        with_setup(topology, flows, is_foreign, |setup| rules(setup).map(line).collect())
    }

    fn with_setup<T>(topology: &str, flows: u32, is_foreign: bool, then: impl Fn(&Setup) -> T) -> T {
        let net = Net::nowhere();
        let (sockets, pattern) = (BTreeMap::new(), Pattern::default());
        let topology = find(topology).unwrap();
        let (net, sockets, pattern) = (&net, &sockets, &pattern);
        let (mtu, workers, has_processors) = (1500, 1, false);
        then(&Setup { net, topology, sockets, flows, pattern, is_foreign, mtu, workers, has_processors })
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

    /// The action in the words of a debug text.
    fn to(port: u16) -> String {
        format!("{:?}", [flow::Action::Output { port: base::OfPort(port), max_len: 0 }])
    }

    #[test]
    fn each_flow_has_a_rule_for_each_hop() {
        let text = text_of("PVP", 2);
        let last = format!("ip,in_port=2,nw_src=10.0.0.1,nw_dst=11.0.0.84 {}", to(3));
        assert_eq!((text.lines().count(), text.lines().last()), (4, Some(&*last)));
    }

    #[test]
    fn frames_of_a_generator_s_own_have_a_rule_for_each_port() {
        assert_eq!(text_for("P2P", 100, true), format!("in_port=1 {}\n", to(2)));
        assert_eq!(kind(&Pattern::default(), true), "per port");
        assert_eq!(kind(&"pcap=x".parse().unwrap(), false), "per port");
        assert_eq!(kind(&Pattern::default(), false), "per flow");
    }

    #[test]
    fn directions_that_share_a_port_are_told_apart_also_without_a_rule_for_each_flow() {
        let text = text_for("PVP-both", 100, true);
        assert!(text.contains(&format!("ip,in_port=2,nw_src=10.0.0.0/8 {}\n", to(3))), "{text}");
        assert!(text.contains(&format!("ip,in_port=2,nw_dst=10.0.0.0/8 {}\n", to(1))), "{text}");
    }

    #[test]
    fn frames_of_every_kind_of_traffic_match_the_rule_of_their_flow_alone() {
        let kinds = ["udp", "udp+l2", "udp+l4", "udp+ipv6", "udp+ipv6+l4", "udp+vlan", "tcp-syn+l4", "imix"];
        for kind in kinds {
            let pattern: Pattern = kind.parse().unwrap();
            for is_back in [false, true] {
                let first = parsed(&format!("{},actions=drop", pattern.match_text(is_back))).unwrap();
                with_barrier([first.clone()].into_iter()).unwrap();
                let rule = |n| pattern.matching(first.matching.clone(), n, is_back);
                assert_eq!(rule(0), first.matching, "{kind}");
                for n in [0, 1, 999_999] {
                    let frame = pattern.frames(n, 128, is_back).unwrap().remove(0);
                    let ingress =
                        flow::Ingress::new(base::OfPort(1), base::PortNo(1), flow::Depth::Everything);
                    let mut key = flow::Key::default();
                    flow::extract(&frame, frame.len(), &ingress, &mut key).unwrap();
                    let matched = [0, 1, 999_999].map(|m| rule(m).matches(&key));
                    assert_eq!(matched, [n == 0, n == 1, n == 999_999], "{kind}, flow {n}");
                }
            }
        }
    }
}
