//! `ofproto/*` and `bridge/*`: a bridge's decisions, its rules, and its controllers.

use super::actions;
use super::waits;
use crate::odp::{self, ActionContext};
use crate::plane::ForwardingPlane;
use crate::state::{Shared, Vswitch};
use base::{OfPort, PortNo};
use datapath::{DpAction, Pipeline, Translation};
use flow::compose::{Payload, compose};
use flow::key::{B_CT, B_CT6, B_TUNNEL};
use flow::{Action, FieldId, Ingress, Key, extract};
use openflow::text::{PortNames, Protocols, parse_list, parse_packet, write_actions, write_match};
use openflow::{ErrorKind, Version};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;
use switch::control::{Cursor, FlowModError, PacketOut, RuleFilter};
use switch::trace::Wrong;
use switch::{BridgeIdx, Effect, Rule, SlotStats};
use transport::clock;
use transport::unixctl::Growing;

/// Rules written in one turn: about a millisecond's work.
const RULES_PER_TURN: usize = 512;
/// Places of rules examined per turn, likewise.
const PLACES_PER_TURN: usize = 8_192;
/// Between two translations that failed, in the log.
const FAILURE_INTERVAL_MS: u64 = 60_000;
/// The most that is logged of one's trace.
const FAILURE_BYTES_MAX: usize = 64 << 10;
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
    let name = name.clone();
    // Nothing is offloaded: every packet is counted here.
    let offload = match &args[..args.len() - 1] {
        [] => "",
        [option] if option == "--offload-stats" => "n_offload_packets=0, n_offload_bytes=0, ",
        _ => return Err("expected [--offload-stats] BRIDGE".into()),
    };
    vswitch.begin_long(async move |shared, growing| {
        Ok(RuleDump { bridge, name, offload }.run(&shared, &growing).await)
    });
    Ok(String::new())
}

/// A dump of all rules of a bridge.
pub(crate) struct RuleDump {
    bridge: BridgeIdx,
    name: String,
    /// What to show about each rule's counters in addition.
    offload: &'static str,
}

impl RuleDump {
    /// Writes all rules, a few hundred at a time, as they are before a long change or after it. If the bridge
    /// is removed meanwhile, its rules end there.
    pub async fn run(self, shared: &Shared, growing: &Growing) -> String {
        let mut text = String::new();
        let mut rules = self.rules(shared, growing).await.into_iter();
        while rules.len() > 0 {
            {
                let vswitch = shared.borrow();
                // Each is let go once it is written: a million at the end would take long.
                rules.by_ref().take(RULES_PER_TURN).for_each(|(rule, counted)| {
                    write_rule(&mut text, &vswitch, &rule, counted, self.offload);
                });
            }
            growing.reaches(text.capacity() + size_of_val(rules.as_slice()));
            tokio::task::yield_now().await;
        }
        text
    }

    /// All rules with their counters. Also collected in turns, and again from the start if a long change
    /// begins meanwhile.
    async fn rules(&self, shared: &Shared, growing: &Growing) -> Vec<(Arc<Rule>, SlotStats)> {
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
                    if !vswitch.plane.is_there(self.bridge, &self.name) {
                        return rules;
                    }
                    let find = |rule: &Arc<Rule>| rules.push((rule.clone(), vswitch.plane.slot(rule.slot)));
                    cursor = vswitch.plane.control.dump(self.bridge, &filter, from, PLACES_PER_TURN, find);
                }
                growing.reaches(size_of_val(rules.as_slice()));
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
/// which bridge. Options: [`TraceOptions`].
pub fn trace(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (options, rest) = TraceOptions::parse(args)?;
    if let Some(word) = options.consistent {
        return Err(format!("{word}: unknown option"));
    }
    trace_with(vswitch, &options, &rest, None)
}

/// `ofproto/trace-packet-out ... ACTIONS`: the same for a packet that a controller sends with these actions.
pub fn trace_packet_out(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let (options, mut rest) = TraceOptions::parse(args)?;
    let actions = rest.pop().ok_or("missing actions")?;
    let (actions, usable) = parse_list(actions, PortNames::none()).map_err(|error| error.to_string())?;
    // Only OpenFlow 1.0 takes actions that do not fit the packet.
    let is_strict = options.consistent.is_some() || usable.intersect(Protocols::OF10_ANY).is_empty();
    let version = if is_strict { Version::V13 } else { Version::V10 };
    trace_with(vswitch, &options, &rest, Some((actions, version)))
}

/// What the words with a hyphen say.
#[derive(Default)]
struct TraceOptions<'a> {
    /// Names of ports are shown.
    names: bool,
    /// A packet is made from the flow, so that side effects take place ...
    generates: bool,
    /// ... with this behind its headers, if it says so.
    payload: Option<Vec<u8>>,
    /// Actions that do not fit the packet are refused.
    consistent: Option<&'a str>,
    /// What the connection tracker finds, for one `ct` after the other.
    ct_next: Vec<u32>,
}

/// What a flow says of a packet whose bytes are given, besides its connection and its tunnel.
const BESIDE_A_PACKET: [FieldId; 5] =
    [FieldId::SkbPriority, FieldId::PktMark, FieldId::DpHash, FieldId::CtState, FieldId::CtZone];
/// Longest payload of a packet that is generated.
const L7_BYTES_MAX: usize = 64_000;

impl<'a> TraceOptions<'a> {
    /// Also returns the other arguments.
    fn parse(args: &'a [String]) -> Result<(TraceOptions<'a>, Vec<&'a str>), String> {
        let (mut options, mut rest, mut args) = (TraceOptions::default(), Vec::new(), args.iter());
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("Missing argument for option {arg}"));
            match arg.as_str() {
                "-generate" | "--generate" => options.generates = true,
                "-names" | "--names" => options.names = true,
                "--no-names" => options.names = false,
                "-consistent" | "--consistent" => options.consistent = Some(arg),
                "--ct-next" => options.ct_next.push(openflow::text::connection_state(value()?)?),
                "--l7" => {
                    let bytes = odp::payload(value()?).filter(|bytes| bytes.len() <= L7_BYTES_MAX);
                    options.payload = Some(bytes.ok_or("Trailing garbage in packet data")?);
                }
                "--l7-len" => {
                    let text = value()?;
                    let length = text.parse().ok().filter(|length| *length <= L7_BYTES_MAX);
                    let length = length.ok_or_else(|| format!("{text}: too much L7 data"))?;
                    options.payload = Some((0..length).map(|i| i as u8).collect());
                }
                unknown if unknown.starts_with('-') => return Err(format!("{unknown}: unknown option")),
                word => rest.push(word),
            }
        }
        Ok((options, rest))
    }
}

/// `given`: the actions of a packet-out, and the version whose rules they keep to.
fn trace_with(
    vswitch: &mut Vswitch,
    options: &TraceOptions,
    rest: &[&str],
    given: Option<(Vec<Action>, Version)>,
) -> Result<String, String> {
    let (flow, packet) = match *rest {
        [flow] if is_datapath_flow(flow) => {
            // What is no flow of a datapath may be one of OpenFlow.
            let hint = |error| format!("{error} (or the bridge name was omitted)");
            odp::frame(flow).map_err(hint)?;
            (from_datapath(vswitch, None, flow)?, None)
        }
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
        if options.generates {
            return Err("Syntax error".into());
        }
        if odp::payload(packet).is_some_and(|bytes| bytes.len() < wire::ethernet::HEADER_LEN) {
            return Err("Packet data too short for Ethernet".into());
        }
        let bytes = odp::frame(packet).map_err(|_| "Trailing garbage in packet data")?;
        // The packet has the headers, and the flow what goes with them.
        let mut whole = key_of(&bytes, &vswitch.plane.ingress(in_port, dp_port))?;
        for field in BESIDE_A_PACKET {
            whole.set(field, key.get(field));
        }
        // Without a destination it came through no tunnel.
        let is_tunneled = key.get(FieldId::TunDst) != 0 || key.get(FieldId::TunIpv6Dst) != 0;
        let blocks = if is_tunneled { &[B_CT, B_CT6, B_TUNNEL][..] } else { &[B_CT, B_CT6] };
        for (block, word) in blocks.iter().flat_map(|block| (0..8).map(move |word| (*block, word))) {
            whole.set_word(block, word, key.word(block, word));
        }
        key = whole;
        frame = Some(bytes);
    }
    key.set(FieldId::DpPort, u128::from(dp_port.0));
    if options.generates {
        let payload = options.payload.as_deref().map_or(Payload::Usual, Payload::Bytes);
        frame = Some(compose(&key, payload).map_err(|e| e.to_string())?);
    }
    if let Some((actions, version)) = &given {
        let out = PacketOut { key: &key, actions, version: *version };
        vswitch.plane.control.check_packet_out(bridge, out).map_err(|error| {
            let kind = match error {
                FlowModError::Actions(kind) | FlowModError::Refused(kind) => kind,
                FlowModError::BadOutGroup(_) => ErrorKind::OFPBAC_BAD_OUT_GROUP,
                FlowModError::BadMeter(_) => ErrorKind::OFPMMFC_INVALID_METER,
                other => return format!("Bad actions: {other}"),
            };
            format!("Bad actions: {kind}")
        })?;
    }
    let mut names = PortNames::default();
    vswitch.ports_of(bridge).for_each(|p| names.insert(p.of_port, &p.name));
    let shown = if options.names { &names } else { PortNames::none() };
    let reader = vswitch.plane.domain.register();
    let control = &vswitch.plane.control;
    let counts = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
    let start = switch::trace::Start {
        version: vswitch.plane.switch.version(),
        key: &key,
        bridge: (port_no.is_none() || given.is_some()).then_some(bridge),
        actions: given.as_ref().map(|(actions, _)| &**actions),
        learned: if frame.is_some() { Some(&counts) } else { None },
    };
    let name =
        |port: PortNo| vswitch.devices.ports.get(&port).filter(|_| options.names).map(|p| p.name.clone());
    let actions = |list: &[DpAction], key: &Key| {
        let context = ActionContext { only_looks: start.learned.is_none(), ..ActionContext::of(key) };
        actions::text_in(&vswitch.plane, list, context, &name)
    };
    let texts = switch::trace::Texts { ports: shown, actions: &actions };
    let text = switch::trace::trace(&vswitch.plane.switch, start, &options.ct_next, texts, &reader).text;
    drop(reader);
    if let (Some(frame), Some(port_no)) = (frame, port_no) {
        let actions = given.as_ref().map(|(actions, _)| (bridge, &**actions));
        vswitch.plane.side_effects(&key, port_no, &frame, actions);
    }
    Ok(text)
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
            both_ends(traced.text.trim_end(), FAILURE_BYTES_MAX)
        );
    }
}

impl ForwardingPlane {
    /// The side effects of a traced packet: what is learned, and what controllers are told.
    fn side_effects(
        &mut self,
        key: &Key,
        port_no: PortNo,
        frame: &[u8],
        given: Option<(BridgeIdx, &[Action])>,
    ) {
        let mut translation = Translation::default();
        let reader = self.domain.register();
        // Not as workers do, which hand over a packet that teaches a rule: it would be forwarded and counted.
        let control = &self.control;
        let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
        let version = self.switch.version();
        match given {
            Some((bridge, actions)) => {
                let switch = &self.switch;
                _ = switch.translate_packet_out(version, key, bridge, actions, &reader, &mut translation);
            }
            None => self.switch.translate_for_control(version, key, &reader, &learned, &mut translation),
        }
        drop(reader);
        let now_ms = self.now_ms();
        for effect in &translation.effects {
            if let Effect::LearnedAgain(slot) = effect {
                self.own_credits.entry(*slot).or_default().last_used_ms = now_ms;
            }
        }
        self.apply(&translation.effects);
        let tells = retain_reports(&mut translation.actions);
        if tells && !self.dp.execute(frame, port_no, translation.actions) {
            tracing::debug!(target: "ofproto", "a traced packet is not reported: no packet buffer is free");
        }
    }
}

/// Leaves what controllers are told, and what changes the packet before. Returns whether they are told
/// anything.
fn retain_reports(actions: &mut Vec<DpAction>) -> bool {
    let mut tells = false;
    actions.retain_mut(|action| match action {
        DpAction::PacketIn(_) => {
            tells = true;
            true
        }
        DpAction::Clone(inside) | DpAction::Sample { actions: inside, .. } => {
            let inside_tells = retain_reports(inside);
            tells |= inside_tells;
            inside_tells
        }
        DpAction::CheckPktLen { greater, others, .. } => {
            let each = [greater, others].map(retain_reports);
            tells |= each.contains(&true);
            each.contains(&true)
        }
        other => other.is_edit(),
    });
    tells
}

/// The starting point of a trace.
struct Traced {
    bridge: BridgeIdx,
    in_port: OfPort,
    /// The datapath's, where the bridge has such a port.
    port_no: Option<PortNo>,
    key: Key,
}

/// A text, or its first and last lines if it has more bytes.
fn both_ends(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let (first, last) = (&text.as_bytes()[..bytes_max / 2], &text.as_bytes()[text.len() - bytes_max / 2..]);
    let (first, last) = (String::from_utf8_lossy(first), String::from_utf8_lossy(last));
    let left_out = text.len() - 2 * (bytes_max / 2);
    format!("{first}\n... ({left_out} bytes are left out)\n{last}").into()
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
    let mut matching =
        parse_packet(text, &names).map_err(|e| format!("Bad openflow flow syntax: {text}: {e}"))?;
    // An option that the bridge has no place for is one that no rule sees.
    let _ = vswitch.plane.control.place_options(bridge, &mut matching);
    let mut key = matching.key;
    // A packet for a match has the tag that the match requires, but a match cannot contain its TPID.
    for (tci, tpid) in [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)] {
        if key.get64(tci) & 0x1000 != 0 && key.get64(tpid) == 0 {
            key.set(tpid, 0x8100);
        }
    }
    // A packet that begins with another header than Ethernet's has that header's type, as one that is read;
    // not so one with NSH, in Open vSwitch's traces.
    if let packet_type = key.get64(FieldId::PacketType)
        && packet_type >> 16 == 1
        && packet_type & 0xffff != u64::from(wire::EtherType::NSH.0)
    {
        key.set(FieldId::EthType, u128::from(packet_type & 0xffff));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use flow::{FieldId, Match};
    use host::rundir::RunDir;
    use std::cell::RefCell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};
    use switch::BridgeConfig;
    use switch::control::FlowMod;

    #[test]
    fn a_dump_lets_rules_go_as_it_writes_them() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let bridge = vswitch.plane.control.add_bridge(BridgeConfig::new("br0"));
        for address in 0..4 * RULES_PER_TURN as u64 {
            let matching = Match::any().with(FieldId::EthDst, address.into());
            vswitch.plane.control.flow_mod(bridge, &FlowMod::add(matching, Vec::new()), 0).unwrap();
        }
        let rules = vswitch.plane.control.rules(bridge, &RuleFilter::default());
        let held = || rules.iter().map(Arc::strong_count).sum::<usize>();
        let others = held();
        let (shared, growing) = (Rc::new(RefCell::new(vswitch)), Growing::default());
        let mut dump = pin!(RuleDump { bridge, name: "br0".into(), offload: "" }.run(&shared, &growing));
        let mut turns = Vec::new();
        let text = loop {
            match dump.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(text) => break text,
                Poll::Pending => turns.push(held() - others),
            }
        };
        assert_eq!(text.lines().count(), rules.len());
        let gone = turns.windows(2).map(|of| of[0].saturating_sub(of[1])).max();
        assert_eq!((turns.last(), gone), (Some(&0), Some(RULES_PER_TURN)), "{turns:?}");
    }

    #[test]
    fn a_long_trace_is_logged_with_its_beginning_and_its_end() {
        assert_eq!(both_ends("0123456789", 10), "0123456789");
        assert_eq!(both_ends("0123456789", 4), "01\n... (6 bytes are left out)\n89");
    }
}
