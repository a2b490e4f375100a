//! `ofproto/*` and `bridge/*`: a bridge's decisions, its rules, and its controllers.

use super::actions;
use super::waits;
use crate::odp::{self, ActionContext};
use crate::plane::ForwardingPlane;
use crate::state::{Shared, Vswitch};
use base::{OfPort, PortNo};
use datapath::{DpAction, Pipeline, Translation};
use flow::compose::{Payload, compose};
use flow::{Action, FieldId, Ingress, Key, extract};
use openflow::Version;
use openflow::text::{ActionsIn, PortNames, parse_actions, parse_packet, write_actions, write_match};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;
use switch::control::{Cursor, PacketOut, RuleFilter};
use switch::trace::Wrong;
use switch::{BridgeIdx, Effect, Rule, SlotStats};
use transport::clock;

/// Rules written in one turn: about a millisecond's work.
const RULES_PER_TURN: usize = 512;
/// Places of rules examined per turn, likewise.
const PLACES_PER_TURN: usize = 8_192;
/// Between two translations that failed, in the log.
const FAILURE_INTERVAL_MS: u64 = 60_000;
/// The priority that is not shown.
const DEFAULT_PRIORITY: u16 = 32_768;

/// Lists tunnel ports. There are none: interfaces of such types are refused.
pub fn list_tunnels(_: &mut Vswitch, _: &[String]) -> Result<String, String> {
    Ok(String::new())
}

pub fn list(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    Ok(vswitch.bridges.values().map(|b| format!("{}\n", b.name)).collect())
}

/// `bridge/dump-flows [--offload-stats] BRIDGE`: all rules, the switch's own among them.
pub fn dump_flows(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let name = args.last().expect("one at least, by the table of commands");
    let bridge = vswitch.bridge_named(name).ok_or("Unknown bridge")?.idx;
    // Nothing is offloaded: every packet is counted here.
    let offload = match &args[..args.len() - 1] {
        [] => "",
        [option] if option == "--offload-stats" => "n_offload_packets=0, n_offload_bytes=0, ",
        _ => return Err("expected [--offload-stats] BRIDGE".into()),
    };
    vswitch.begin(async move |shared| Ok(RuleDump { bridge, offload }.run(&shared).await));
    Ok(String::new())
}

/// A dump of all rules of a bridge.
pub(crate) struct RuleDump {
    bridge: BridgeIdx,
    /// What to show about each rule's counters in addition.
    offload: &'static str,
}

impl RuleDump {
    /// Writes all rules, a few hundred at a time, as they are before a long change or after it. If the bridge
    /// is removed meanwhile, its rules end there.
    pub async fn run(self, shared: &Shared) -> String {
        let mut text = String::new();
        let rules = self.rules(shared).await;
        for some in rules.chunks(RULES_PER_TURN) {
            {
                let vswitch = shared.borrow();
                some.iter().for_each(|(rule, counted)| {
                    write_rule(&mut text, &vswitch, rule, *counted, self.offload);
                });
            }
            tokio::task::yield_now().await;
        }
        text
    }

    /// All rules with their counters. Also collected in turns, and again from the start if a long change
    /// begins meanwhile.
    async fn rules(&self, shared: &Shared) -> Vec<(Arc<Rule>, SlotStats)> {
        let filter = RuleFilter { hidden: true, ..RuleFilter::default() };
        let asked_at = shared.borrow().plane.control.transactions();
        loop {
            waits::tables(shared).await;
            let before = shared.borrow().plane.control.transactions();
            let (mut rules, mut cursor) = (Vec::new(), Some(Cursor::default()));
            while let Some(from) = cursor {
                {
                    let mut vswitch = shared.borrow_mut();
                    vswitch.plane.reserve_tables(asked_at, Instant::now());
                    if vswitch.plane.control.transactions() != before {
                        break;
                    }
                    let find = |rule: &Arc<Rule>| rules.push((rule.clone(), vswitch.plane.slot(rule.slot)));
                    cursor = vswitch.plane.control.dump(self.bridge, &filter, from, PLACES_PER_TURN, find);
                }
                tokio::task::yield_now().await;
            }
            if cursor.is_none() {
                return rules;
            }
        }
    }
}

fn write_rule(text: &mut String, vswitch: &Vswitch, rule: &Rule, counted: SlotStats, offload: &str) {
    if rule.table_id != 0 {
        let _ = write!(text, "table_id={}, ", rule.table_id);
    }
    let _ = write!(
        text,
        "duration={}s, n_packets={}, n_bytes={}, {offload}",
        vswitch.plane.now_ms().saturating_sub(rule.created_ms) / 1000,
        counted.packets,
        counted.bytes
    );
    let matching = rule.matching.to_match();
    // The switch's own rules have priorities above OpenFlow's range.
    match u16::try_from(rule.priority) {
        Ok(priority) => write_match(text, &matching, priority, PortNames::none()),
        Err(_) => {
            let _ = write!(text, "priority={},", rule.priority);
            write_match(text, &matching, DEFAULT_PRIORITY, PortNames::none());
        }
    }
    let comma = if text.ends_with(',') { "" } else { "," };
    let _ = write!(text, "{comma}actions=");
    write_actions(text, &rule.actions.list, Version::V13, PortNames::none());
    text.push('\n');
}

/// `bridge/reconnect [BRIDGE]`: controllers' connections end, and those that are connected to are so again.
pub fn reconnect(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let bridges = match args.first() {
        Some(name) => vec![vswitch.bridge_named(name).ok_or("Unknown bridge")?.idx],
        None => vswitch.bridges.keys().copied().collect(),
    };
    for bridge in bridges {
        vswitch.reconnect_controllers(bridge, clock::now());
    }
    Ok(String::new())
}

/// `ofproto/trace BRIDGE FLOW [PACKET]`: FLOW in OpenFlow's syntax, and, where PACKET is given, only for its
/// metadata. `ofproto/trace [DATAPATH] FLOW [PACKET]`: FLOW in the datapath's syntax, whose input port says
/// which bridge. `--ct-next STATE` says what the connection tracker finds, for one `ct` after the other.
pub fn trace(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    trace_with(vswitch, args, None)
}

/// `ofproto/trace-packet-out ... ACTIONS`: the same for a packet that a controller sends with these actions.
pub fn trace_packet_out(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (actions, args) = args.split_last().expect("two at least, by the table of commands");
    if args.iter().any(|arg| arg == "-generate" || arg == "--generate") {
        return Err("-generate: a traced packet-out has no side effects".into());
    }
    let actions =
        parse_actions(actions, ActionsIn::List, PortNames::none()).map_err(|error| error.to_string())?;
    // Actions are checked as those of any packet-out; there is no stricter way.
    let args: Vec<String> = args.iter().filter(|a| !a.ends_with("-consistent")).cloned().collect();
    trace_with(vswitch, &args, Some(actions))
}

fn trace_with(vswitch: &mut Vswitch, args: &[String], given: Option<Vec<Action>>) -> Result<String, String> {
    let (ct_next, args) = ct_states(args)?;
    let (options, rest): (Vec<_>, Vec<_>) = args.into_iter().partition(|a| a.starts_with('-'));
    // If no packet is given, it is always generated from the flow.
    if let Some(unknown) = options.iter().find(|o| !["--names", "--no-names", "-generate"].contains(o)) {
        return Err(format!("{unknown}: unknown option"));
    }
    let (flow, packet) = match rest[..] {
        [flow] if is_datapath_flow(flow) => (from_datapath(vswitch, None, flow)?, None),
        [flow, packet] if is_datapath_flow(flow) => (from_datapath(vswitch, None, flow)?, Some(packet)),
        [name, flow] if is_datapath_flow(flow) => (from_datapath(vswitch, Some(name), flow)?, None),
        [name, flow, packet] if is_datapath_flow(flow) => {
            (from_datapath(vswitch, Some(name), flow)?, Some(packet))
        }
        // Two words may be a flow, without a bridge, and a packet.
        [flow, packet] if vswitch.bridge_named(flow).is_none() && is_packet(packet) => {
            return Err(format!("syntax error at {flow} (or the bridge name was omitted)"));
        }
        [name, text] => (from_bridge(vswitch, name, text)?, None),
        [name, text, packet] => (from_bridge(vswitch, name, text)?, Some(packet)),
        [one] => return Err(format!("syntax error at {one} (or the bridge name was omitted)")),
        _ => return Err("too many arguments".into()),
    };
    let Traced { bridge, in_port, port_no, mut key } = flow;
    let dp_port = port_no.unwrap_or(PortNo(0));
    let mut frame = None;
    if let Some(packet) = packet {
        let bytes = odp::frame(packet).map_err(|_| "Trailing garbage in packet data")?;
        // The packet has the headers, and the flow what goes with them.
        let metadata = [FieldId::SkbPriority, FieldId::PktMark].map(|field| (field, key.get(field)));
        key = key_of(&bytes, &vswitch.plane.ingress(in_port, dp_port))?;
        metadata.into_iter().for_each(|(field, value)| key.set(field, value));
        frame = Some(bytes);
    }
    key.set(FieldId::DpPort, u128::from(dp_port.0));
    if frame.is_none() && options.contains(&"-generate") {
        frame = Some(compose(&key, Payload::Usual).map_err(|e| e.to_string())?);
    }
    if let Some(actions) = &given {
        let out = PacketOut { key: &key, actions, version: Version::V13 };
        vswitch
            .plane
            .control
            .check_packet_out(bridge, out)
            .map_err(|error| format!("Bad actions: {error}"))?;
    }
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    let shown = if options.contains(&"--names") { &names } else { PortNames::none() };
    let reader = vswitch.plane.domain.register();
    let control = &vswitch.plane.control;
    let counts = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
    let start = switch::trace::Start {
        version: vswitch.plane.switch.version(),
        key: &key,
        bridge: (port_no.is_none() || given.is_some()).then_some(bridge),
        actions: given.as_deref(),
        learned: if frame.is_some() { Some(&counts) } else { None },
    };
    let name = |port: PortNo| {
        vswitch.devices.ports.get(&port).filter(|_| options.contains(&"--names")).map(|p| p.name.clone())
    };
    let actions = |list: &[DpAction], key: &Key| {
        let context = ActionContext { only_looks: start.learned.is_none(), ..ActionContext::of(key) };
        actions::text_in(&vswitch.plane, list, context, &name)
    };
    let texts = switch::trace::Texts { ports: shown, actions: &actions };
    let text = switch::trace::trace(&vswitch.plane.switch, start, &ct_next, texts, &reader).text;
    drop(reader);
    if let (Some(frame), Some(port_no), None) = (frame, port_no, given) {
        vswitch.plane.side_effects(&key, port_no, &frame);
    }
    Ok(text)
}

/// The states that `--ct-next` says, and the other arguments.
fn ct_states(args: &[String]) -> Result<(Vec<u32>, Vec<&str>), String> {
    let (mut states, mut rest, mut args) = (Vec::new(), Vec::new(), args.iter());
    while let Some(arg) = args.next() {
        if arg == "--ct-next" {
            let text = args.next().ok_or("Missing argument for option --ct-next")?;
            states.push(openflow::text::connection_state(text)?);
        } else {
            rest.push(arg.as_str());
        }
    }
    Ok((states, rest))
}

impl Vswitch {
    /// Makes workers report the next translation that fails, unless one was logged a moment ago.
    pub(crate) fn ask_for_failures(&self, now_ms: u64) {
        if self.commands.failure_told_ms.is_none_or(|told| now_ms >= told + FAILURE_INTERVAL_MS) {
            self.plane.switch.ask_for_failure();
        }
    }

    /// Logs why a packet's translation failed, with its trace. One per minute suffices to see the problem: a
    /// trace may have thousands of lines, and senders must not be able to fill the disk.
    pub(crate) fn tell_failed(&mut self, key: &Key) {
        let now_ms = self.plane.now_ms();
        if self.commands.failure_told_ms.is_some_and(|told| now_ms < told + FAILURE_INTERVAL_MS) {
            return;
        }
        self.commands.failure_told_ms = Some(now_ms);
        let reader = self.plane.domain.register();
        let version = self.plane.switch.version();
        let counts = |bridge, table_id, cookie| self.plane.control.learned_count(bridge, table_id, cookie);
        let learned: Option<&switch::LearnedCounts> = Some(&counts);
        let start = switch::trace::Start { version, key, bridge: None, actions: None, learned };
        let actions = |list: &[DpAction], key: &Key| actions::text(&self.plane, list, key, &|_| None);
        let texts = switch::trace::Texts { ports: PortNames::none(), actions: &actions };
        let traced = switch::trace::trace(&self.plane.switch, start, &[], texts, &reader);
        // Open vSwitch's line, which monitoring looks for, if there is a problem with the rules. If they need
        // something that this packet cannot have, such as a second Ethernet header, the sender is to blame,
        // not the rules.
        if let Some(Wrong { why, bridge, flow }) = traced.wrong {
            tracing::warn!(target: "ofproto_dpif_xlate", "{why} on bridge {bridge} while processing {flow}");
        }
        tracing::info!(
            target: "ofproto_dpif_upcall", has_lines = true,
            "a packet's translation failed; of further ones, one a minute is logged:\n{}",
            traced.text.trim_end()
        );
    }
}

impl ForwardingPlane {
    /// The side effects of a traced packet: what is learned, and what controllers are told.
    fn side_effects(&mut self, key: &Key, port_no: PortNo, frame: &[u8]) {
        let mut translation = Translation::default();
        let reader = self.domain.register();
        // Not as workers do, which hand over a packet that teaches a rule: it would be forwarded and counted.
        let control = &self.control;
        let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
        self.switch.translate_for_control(self.switch.version(), key, &reader, &learned, &mut translation);
        drop(reader);
        let now_ms = self.now_ms();
        for effect in &translation.effects {
            if let Effect::LearnedAgain(slot) = effect {
                self.own_credits.entry(*slot).or_default().last_used_ms = now_ms;
            }
        }
        self.control.apply(&translation.effects, now_ms);
        self.dp.reserve_slots(self.control.slot_count());
        translation.actions.retain(|action| matches!(action, DpAction::PacketIn(_)));
        if !translation.actions.is_empty() && !self.dp.execute(frame, port_no, translation.actions) {
            tracing::warn!(target: "ofproto", "a traced packet is not reported: no packet buffer is free");
        }
    }
}

/// The starting point of a trace.
struct Traced {
    bridge: BridgeIdx,
    in_port: OfPort,
    /// The datapath's, where the bridge has such a port.
    port_no: Option<PortNo>,
    key: Key,
}

/// A packet in hexadecimal, as opposed to a flow.
fn is_packet(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit() || c.is_ascii_whitespace())
}

/// `in_port(1),eth(...)`, as opposed to `in_port=1,...`.
fn is_datapath_flow(text: &str) -> bool {
    text.contains("in_port(") || text.starts_with("recirc_id(")
}

fn from_bridge(vswitch: &Vswitch, name: &str, text: &str) -> Result<Traced, String> {
    let bridge = vswitch.bridge_named(name).ok_or_else(|| format!("{name}: unknown bridge"))?.idx;
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    // An empty text is a datapath flow; Open vSwitch looks it up under the bridge's name.
    if text.trim_matches([',', ' ', '\t']).is_empty() {
        return Err("Cannot find the datapath".into());
    }
    let matching =
        parse_packet(text, &names).map_err(|e| format!("Bad openflow flow syntax: {text}: {e}"))?;
    let mut key = matching.key;
    // A packet for a match has the tag that the match requires, but a match cannot contain its TPID.
    for (tci, tpid) in [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)] {
        if key.get64(tci) & 0x1000 != 0 && key.get64(tpid) == 0 {
            key.set(tpid, 0x8100);
        }
    }
    if matching.mask.get(FieldId::InPort) == 0 {
        key.set(FieldId::InPort, OfPort::NONE.0.into());
    }
    let in_port = OfPort(key.get64(FieldId::InPort) as u16);
    let port_no = vswitch.port_numbered(bridge, in_port).map(|p| p.port_no);
    Ok(Traced { bridge, in_port, port_no, key })
}

/// `name` is the datapath's.
fn from_datapath(vswitch: &Vswitch, name: Option<&str>, text: &str) -> Result<Traced, String> {
    if name.is_some_and(|name| name != vswitch.plane.short_name()) {
        return Err("Cannot find the datapath".into());
    }
    let metadata = odp::metadata(text).map_err(|e| e.to_string())?;
    // A recirculated packet continues where its state says, and its trace begins there.
    let recirc_id =
        metadata.iter().find(|(field, _)| *field == FieldId::RecircId).map_or(0, |(_, id)| *id as u32);
    let reader = vswitch.plane.domain.register();
    if recirc_id != 0 && !vswitch.plane.switch.is_frozen(recirc_id, &reader) {
        return Err(format!("no recirculation data for recirc_id {recirc_id:#x}"));
    }
    let after = text.split("in_port(").nth(1).unwrap_or_default();
    let port = after.split(')').next().unwrap_or_default();
    let record = match port.parse() {
        Ok(number) => vswitch.devices.ports.get(&PortNo(number)),
        Err(_) => vswitch.devices.port_named(port),
    };
    let record = record.ok_or_else(|| format!("no OpenFlow port for datapath port {port}"))?;
    let frame = odp::frame(text).map_err(|e| e.to_string())?;
    let mut key = key_of(&frame, &vswitch.plane.ingress(record.of_port, record.port_no))?;
    metadata.into_iter().for_each(|(field, value)| key.set(field, value));
    Ok(Traced { bridge: record.bridge, in_port: record.of_port, port_no: Some(record.port_no), key })
}

fn key_of(frame: &[u8], ingress: &Ingress) -> Result<Key, String> {
    let mut key = Key::default();
    extract(frame, frame.len(), ingress, &mut key).ok_or("the packet is too short")?;
    Ok(key)
}
