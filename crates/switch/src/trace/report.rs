//! The text of `ofproto/trace`: what a translation did, step by step.
//!
//! Steps form a tree: bridges have tables; tables and buckets have actions, each followed by what became of
//! it and by the tables, buckets and bridges that it led to. As in Open vSwitch, the last step of a level is
//! not indented further, so that a chain of tables reads as a list.

use super::{Found, Sink};
use crate::BridgeIdx;
use crate::rule::Rule;
use crate::switch::{Effect, Switch};
use crate::topology::Topology;
use base::rcu::Reader;
use base::{OfPort, PortNo, Version};
use datapath::{DpAction, Translation};
use flow::key::B_TUN_META;
use flow::options::{OptionTable, Wide};
use flow::{Action, FieldId, Key, Mask, Match};
use openflow::text::{PortNames, actions_text, match_text};
use std::fmt::Write;

#[derive(PartialEq)]
enum Kind {
    Bridge,
    Table,
    Bucket,
    Action,
    Detail,
    Warning,
    Error,
}

struct Node {
    kind: Kind,
    text: String,
    below: Vec<Node>,
}

/// Listens and remembers.
struct Listener<'a> {
    ports: &'a PortNames,
    topology: &'a Topology,
    /// Nodes that are not finished, outermost first; the first is the root.
    open: Vec<Node>,
    /// The packet as the last action left it, once that is known.
    after: Option<Key>,
    /// Why the translation failed, if it did.
    failure: Option<&'static str>,
}

impl Listener<'_> {
    fn enter(&mut self, kind: Kind, text: String) {
        self.open.push(Node { kind, text, below: vec![] });
    }

    fn rule_text(&self, rule: &Rule) -> String {
        let mut matching = rule.matching.to_match();
        if let Some(bridge) = self.topology.bridge(rule.bridge) {
            bridge.options().lift(&mut matching);
        }
        let matched = match_text(&matching, self.ports);
        let comma = if matched.is_empty() { "" } else { ", " };
        let mut text = format!("{matched}{comma}priority {}", rule.priority);
        if rule.cookie != 0 {
            let _ = write!(text, ", cookie {:#x}", rule.cookie);
        }
        text
    }

    fn leaf(&mut self, kind: Kind, text: String) {
        let parent = self.open.last_mut().expect("the root is never left");
        parent.below.push(Node { kind, text, below: vec![] });
    }
}

impl Sink for Listener<'_> {
    const LEARNS: bool = false;

    fn bridge(&mut self, name: &str) {
        self.enter(Kind::Bridge, format!("bridge(\"{name}\")"));
    }

    fn enter_table(&mut self, table_id: u8, found: Found<'_>) {
        let (text, does_nothing) = match found {
            Found::Rule(rule) => (self.rule_text(rule), rule.actions.list.is_empty()),
            Found::Nothing => ("No match.".to_string(), true),
            Found::Miss => ("No match, and a \"packet-in\" is called for.".to_string(), false),
            Found::Fragment => {
                let why = "Packets are IP fragments and the fragment handling mode is \"drop\".";
                (why.to_string(), true)
            }
        };
        self.enter(Kind::Table, format!("{table_id:2}. {text}"));
        if does_nothing {
            self.leaf(Kind::Action, "drop".to_string());
        }
        if let Found::Miss = found {
            self.leaf(Kind::Action, "controller(reason=no_match)".to_string());
        }
    }

    fn enter_bucket(&mut self, bucket_id: u32) {
        self.enter(Kind::Bucket, format!("bucket {bucket_id}"));
    }

    fn begin_action(&mut self, action: &Action) {
        let version = openflow::Version::V13;
        self.leaf(Kind::Action, actions_text(std::slice::from_ref(action), version, self.ports));
    }

    fn leave(&mut self) {
        if self.open.len() > 1 {
            let node = self.open.pop().expect("more than one");
            self.open.last_mut().expect("the root is never left").below.push(node);
        }
    }

    fn detail(&mut self, text: impl FnOnce() -> String) {
        self.leaf(Kind::Detail, text());
    }

    fn warn(&mut self, text: impl FnOnce() -> String) {
        self.leaf(Kind::Warning, text());
    }

    fn error(&mut self, text: impl FnOnce() -> String) {
        self.leaf(Kind::Error, text());
    }

    fn failed(&mut self, why: &'static str) {
        self.failure = Some(why);
    }

    fn end(&mut self, key: &Key) {
        let mut after = key.clone();
        // What every packet has, is not shown.
        if after.get(FieldId::ActsetOutput) == u128::from(OfPort::UNSET.0) {
            after.set(FieldId::ActsetOutput, 0);
        }
        self.after = Some(after);
    }
}

/// What is traced.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The version of the switch's state.
    pub version: Version,
    /// The packet, with its input port's numbers.
    pub key: &'a Key,
    /// Of a packet that comes from no port of the switch: the bridge that it comes to.
    pub bridge: Option<BridgeIdx>,
    /// Of a packet that a controller sends there: its actions.
    pub actions: Option<&'a [Action]>,
}

/// How what is found is shown.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    /// Names of ports.
    pub ports: &'a PortNames,
    /// The datapath's actions on the packet.
    pub actions: &'a dyn Fn(&[DpAction]) -> String,
}

/// Traces a packet as `ofproto/trace` does, and returns the text with what the translation found out.
pub fn trace(
    switch: &Switch,
    start: Start<'_>,
    texts: Texts<'_>,
    reader: &Reader,
) -> (String, Translation<Effect>) {
    let (Start { version, key, bridge, actions: given }, Texts { ports, actions }) = (start, texts);
    let root = Node { kind: Kind::Table, text: String::new(), below: vec![] };
    let topology = switch.topology(version, reader);
    let mut listener = Listener { ports, topology, open: vec![root], after: None, failure: None };
    let mut out = Translation::default();
    match bridge.zip(given) {
        Some(sent) => {
            switch.translate_packet_out_watched(version, key, sent, reader, &mut out, &mut listener);
        }
        None => match bridge {
            None => switch.translate_watched(version, key, reader, &mut out, &mut listener),
            Some(bridge) => {
                switch.translate_in_bridge(version, key, bridge, reader, &mut out, &mut listener);
            }
        },
    }
    while listener.open.len() > 1 {
        listener.leave();
    }
    let port = topology.port(PortNo(key.get64(FieldId::DpPort) as u32));
    let bridge = bridge.or(port.map(|port| port.bridge)).and_then(|idx| topology.bridge(idx));
    let none = OptionTable::default();
    let options = bridge.map_or(&none, |b| b.options());
    let flow_text = |key: &Key, mask: &Mask| flow_text(key, mask, ports, options);
    let mut text = format!("Flow: {}\n", flow_text(key, &everything(key, options)));
    let root = listener.open.pop().expect("the root is left");
    print(&mut text, &root.below, 0);
    let changed = match &listener.after {
        Some(after) if after != key => flow_text(after, &everything(after, options)),
        _ => "unchanged".to_string(),
    };
    let _ = writeln!(text, "\nFinal flow: {changed}");
    let recirc_id = match key.get64(FieldId::RecircId) {
        0 => "0".to_string(),
        id => format!("{id:#x}"),
    };
    let matched = flow_text(key, &out.mask);
    let _ = writeln!(text, "Megaflow: recirc_id={recirc_id},eth,{matched}");
    let _ = writeln!(text, "Datapath actions: {}", actions(&out.actions));
    if let Some(why) = listener.failure {
        let _ = writeln!(text, "Translation failed ({why}), packet is dropped.");
    }
    (text, out)
}

fn print(text: &mut String, nodes: &[Node], level: usize) {
    for (i, node) in nodes.iter().enumerate() {
        let ends_a_line = !matches!(node.kind, Kind::Bridge | Kind::Table);
        let more = usize::from(i + 1 < nodes.len() || ends_a_line);
        let indent = " ".repeat((level + more) * 4);
        let _ = match node.kind {
            Kind::Bridge => {
                let line = "-".repeat(node.text.len());
                writeln!(text, "\n{indent}{}\n{indent}{line}", node.text)
            }
            Kind::Table | Kind::Bucket | Kind::Action => writeln!(text, "{indent}{}", node.text),
            Kind::Detail => writeln!(text, "{indent} -> {}", node.text),
            Kind::Warning => writeln!(text, "{indent} >> {}", node.text),
            Kind::Error => writeln!(text, "{indent} >>>> {} <<<<", node.text),
        };
        print(text, &node.below, level + 2 * more);
    }
}

/// The mask under which a packet is shown whole: every field that a packet of its kind has, zero or not, and
/// of metadata what is not zero.
fn everything(key: &Key, options: &OptionTable) -> Mask {
    let mut mask = Mask::wild();
    let shown = |f: &&FieldId| {
        usize::from(f.place().block) < B_TUN_META && !matches!(f, FieldId::DpPort | FieldId::RecircId)
    };
    for f in FieldId::ALL.iter().filter(shown).filter(|f| key.get(**f) != 0) {
        mask.add_exact(*f);
    }
    for f in fields_of(key) {
        mask.add_exact(f);
    }
    for option in options.of_packet(key).iter() {
        for (block, word, bits, _) in options.words(option.idx, &Wide::ZERO, &Wide::ONES) {
            mask.add_word(block, word, bits);
        }
    }
    mask
}

/// The fields of headers that a packet has.
fn fields_of(key: &Key) -> Vec<FieldId> {
    use FieldId as F;
    let mut fields = vec![F::VlanTci, F::EthSrc, F::EthDst, F::EthType];
    if key.get64(F::VlanTci) != 0 {
        fields.push(F::VlanTci2);
    }
    let ip = [F::NwProto, F::NwTos, F::NwTtl, F::NwFrag];
    match key.get64(F::EthType) {
        0x0800 => fields.extend([F::NwSrc, F::NwDst].into_iter().chain(ip)),
        0x86dd => fields.extend([F::Ipv6Src, F::Ipv6Dst, F::Ipv6Label].into_iter().chain(ip)),
        0x0806 | 0x8035 => fields.extend([F::NwSrc, F::NwDst, F::NwProto, F::ArpSha, F::ArpTha]),
        0x8847 | 0x8848 => fields.extend([F::Mpls0, F::Mpls1, F::Mpls2]),
        _ => {}
    }
    let is_ip = matches!(key.get64(F::EthType), 0x0800 | 0x86dd);
    // A later fragment has no ports.
    if is_ip && key.get64(F::NwFrag) & 2 == 0 {
        match key.get64(F::NwProto) {
            6 => fields.extend([F::TpSrc, F::TpDst, F::TcpFlags]),
            1 | 2 | 17 | 58 | 132 => fields.extend([F::TpSrc, F::TpDst]),
            _ => {}
        }
    }
    fields
}

fn flow_text(key: &Key, mask: &Mask, ports: &PortNames, options: &OptionTable) -> String {
    let mut mask = mask.clone();
    for internal in [FieldId::DpPort, FieldId::RecircId, FieldId::PacketType] {
        mask.set(internal, 0);
    }
    let mut matching = Match::new(key, mask.canonical());
    options.lift(&mut matching);
    match_text(&matching, ports)
}
