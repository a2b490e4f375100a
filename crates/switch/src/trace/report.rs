//! The text of `ofproto/trace`: what a translation did, step by step.

use super::steps::{Kind, LEFT_OUT, STEPS_BYTES_MAX, Steps};
use super::{Found, Sink};
use crate::BridgeIdx;
use crate::effect::Effect;
use crate::rule::Rule;
use crate::switch::Switch;
use crate::topology::Topology;
use crate::translate::continuation::{Rest, Step, Tracked};
use crate::translate::{self, LearnedCounts, Snapshot};
use base::rcu::Reader;
use base::{PortNo, Version};
use datapath::{DpAction, Translation};
use flow::action::{Nat, NatSide};
use flow::key::{B_REGS, B_TUN_META, B_TUNNEL, BLOCKS};
use flow::options::{OptionTable, Wide};
use flow::{Action, FieldId, Key, Mask, Match, Mf};
use openflow::text::{PortNames, actions_text, match_text};
use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A listener that records everything.
struct Listener<'a> {
    ports: &'a PortNames,
    topology: &'a Topology,
    steps: Steps,
    /// For each action set being executed: whether a table was entered again for it.
    has_reopened: Vec<bool>,
    /// The packet after the last action, once known.
    after: Option<Key>,
    /// Why the translation failed, if it did.
    failure: Option<&'static str>,
    /// The first problem with the rules.
    wrong: Option<Wrong>,
    is_slow: bool,
    /// Packets that will come back.
    coming: Vec<Coming>,
    /// See [`Start`].
    may_learn: bool,
    /// Table and cookie of the rule that frozen actions belong to, until a trace of them has said so.
    origin: Option<(u8, u64)>,
}

/// A problem with rules that a packet matched.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// What the problem is.
    pub why: String,
    /// The bridge with the rules.
    pub bridge: String,
    /// The packet at the end of its translation.
    pub flow: String,
}

/// A packet that comes back after tracking, under a recirculation id that is in its key.
struct Coming {
    key: Key,
    zone: u16,
    nat: Option<Nat>,
}

impl Listener<'_> {
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

    fn action_text(&self, action: &Action) -> String {
        actions_text(std::slice::from_ref(action), openflow::Version::V13, self.ports)
    }
}

/// Whether the action may tell a controller which rule it belongs to.
fn tells_origin(action: &Action) -> bool {
    use Action::*;
    matches!(
        action,
        Output { .. }
            | OutputReg { .. }
            | OutputTrunc { .. }
            | Controller { .. }
            | Group(_)
            | DecTtl(_)
            | DecMplsTtl
            | DecNshTtl
            | Resubmit { table: None, .. }
    )
}

/// Open vSwitch's action that restores which rule the next actions belong to.
fn origin_text(table_id: u8, cookie: u64) -> String {
    format!("unroll_xlate(table={table_id}, cookie={cookie})")
}

/// The action that replaces an instruction in a frozen list.
fn as_frozen(action: &Action) -> Option<Action> {
    match *action {
        Action::GotoTable(table) => Some(Action::Resubmit { in_port: None, table: Some(table), ct: false }),
        Action::WriteMetadata { value, mask } => {
            Some(Action::SetField { field: Mf::Metadata, value: value.into(), mask: mask.into() })
        }
        _ => None,
    }
}

impl Sink for Listener<'_> {
    const LEARNS: bool = false;

    fn bridge(&mut self, name: &str) {
        self.steps.enter(Kind::Bridge, name.to_string());
    }

    fn enter_table(&mut self, table_id: u8, found: Found<'_>) {
        if self.steps.is_full() {
            return self.steps.enter(Kind::Table, String::new());
        }
        let (text, does_nothing) = match found {
            Found::Rule(rule) => (self.rule_text(rule), rule.actions.list.is_empty()),
            Found::Nothing => ("No match.".to_string(), true),
            Found::Miss => ("No match, and a \"packet-in\" is called for.".to_string(), false),
            Found::Fragment => {
                let why = "Packets are IP fragments and the fragment handling mode is \"drop\".";
                (why.to_string(), true)
            }
        };
        self.steps.enter(Kind::Table, format!("{table_id:2}. {text}"));
        if does_nothing {
            self.steps.leaf(Kind::Action, "drop".to_string());
        }
        if let Found::Miss = found {
            self.steps.leaf(Kind::Action, "controller(reason=no_match)".to_string());
        }
    }

    fn enter_bucket(&mut self, bucket_id: u32) {
        let text = if self.steps.is_full() { String::new() } else { format!("bucket {bucket_id}") };
        self.steps.enter(Kind::Bucket, text);
    }

    fn begin_action(&mut self, action: &Action) {
        if self.steps.is_full() {
            return;
        }
        let is_frozen = self.steps.is_in(Kind::Bridge);
        if is_frozen
            && tells_origin(action)
            && let Some((table_id, cookie)) = self.origin.take()
        {
            self.steps.leaf(Kind::Action, origin_text(table_id, cookie));
            let cookie = if cookie == 0 { "0".to_string() } else { format!("{cookie:#x}") };
            self.steps.leaf(Kind::Action, format!("restored state: table={table_id}, cookie={cookie}"));
        }
        let text = match as_frozen(action) {
            Some(other) if is_frozen => self.action_text(&other),
            _ => self.action_text(action),
        };
        self.steps.leaf(Kind::Action, text);
    }

    fn nothing_to_do(&mut self) {
        self.steps.leaf_unless_full(Kind::Action, || "drop".to_string());
    }

    fn enter_action_set(&mut self) {
        let has_reopened = self.steps.reopen_first_table();
        self.has_reopened.push(has_reopened);
        self.steps.enter(Kind::Table, "--. Executing action set:".to_string());
    }

    fn leave_action_set(&mut self) {
        self.leave();
        if self.has_reopened.pop() == Some(true) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.steps.leave();
    }

    fn detail(&mut self, text: impl FnOnce() -> String) {
        self.steps.leaf_unless_full(Kind::Detail, text);
    }

    fn fate(&mut self, text: impl FnOnce() -> String) {
        self.steps.leaf_unless_full(Kind::Action, text);
    }

    fn may_learn(&self) -> bool {
        self.may_learn
    }

    fn warn(&mut self, text: impl FnOnce() -> String) {
        self.steps.leaf_unless_full(Kind::Warning, text);
    }

    fn error(&mut self, text: impl FnOnce() -> String) {
        let why = text();
        let bridge = self.steps.bridge();
        self.wrong.get_or_insert_with(|| Wrong { why: why.clone(), bridge, flow: String::new() });
        self.steps.leaf_unless_full(Kind::Error, || why);
    }

    fn slow(&mut self) {
        self.is_slow = true;
    }

    fn failed(&mut self, why: &'static str) {
        self.failure = Some(why);
    }

    fn thaw(&mut self, bridge: &str, rest: &Rest) {
        self.bridge(bridge);
        if self.steps.is_full() {
            return;
        }
        self.steps.enter(Kind::Thaw, "thaw".to_string());
        let table_id = rest.steps.first().and_then(Step::table_to_begin_with).unwrap_or(0);
        self.steps.leaf(Kind::Thaw, format!("Resuming from table {table_id}"));
        if !rest.action_set.is_empty() {
            let set = actions_text(&rest.action_set, openflow::Version::V13, self.ports);
            self.steps.leaf(Kind::Thaw, format!("Restoring action set: {set}"));
        }
        let mut last = None;
        let mut texts = Vec::new();
        for step in rest.steps.iter().filter(|step| step.table_to_begin_with().is_none()) {
            for action in &step.actions {
                let origin = (step.table_id, step.cookie);
                if tells_origin(action) && last.replace(origin) != Some(origin) {
                    texts.push(origin_text(step.table_id, step.cookie));
                }
                texts.push(self.action_text(as_frozen(action).as_ref().unwrap_or(action)));
            }
        }
        if !texts.is_empty() {
            self.steps.leaf(Kind::Thaw, format!("Restoring actions: {}", texts.join(",")));
        }
        self.leave();
    }

    fn restore(&mut self, table_id: u8, cookie: u64) {
        self.origin = Some((table_id, cookie));
    }

    fn recirculates(&mut self, id: u32, key: &Key, ct: Option<&Tracked<'_>>) {
        // A trace cannot know what follows a header that was removed.
        let Some(ct) = ct else { return };
        let mut key = key.clone();
        key.set(FieldId::RecircId, id.into());
        for (field, set) in [(FieldId::CtMark, ct.mark), (FieldId::CtLabel, ct.label)] {
            if let Some((value, mask)) = set {
                key.set(field, key.get(field) & !mask | value);
            }
        }
        self.coming.push(Coming { key, zone: ct.zone, nat: ct.nat.cloned() });
    }

    fn end(&mut self, key: &Key) {
        let mut after = key.clone();
        // The set has been executed.
        after.set(FieldId::ActsetOutput, 0);
        self.after = Some(after);
    }
}

/// What to trace.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The version of the switch's state.
    pub version: Version,
    /// The packet, with its input port's numbers.
    pub key: &'a Key,
    /// For a packet that comes from no port of the switch: the bridge that receives it.
    pub bridge: Option<BridgeIdx>,
    /// For a packet that a controller sends: its actions.
    pub actions: Option<&'a [Action]>,
    /// Set if there is a real packet from which rules may be learned: counts a table's rules by cookie.
    pub learned: Option<&'a LearnedCounts<'a>>,
}

/// How results are shown.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    /// Names of ports.
    pub ports: &'a PortNames,
    /// Formats the datapath's actions on a packet.
    pub actions: &'a dyn Fn(&[DpAction], &Key) -> String,
}

/// Maximum number of recirculated packets in one trace: rules may recirculate a packet for ever.
const ROUNDS_MAX: usize = 64;
/// The state of a new connection (`new|trk`).
const NEW: u32 = 0x21;

/// The result of a trace.
pub struct Traced {
    /// The text of `ofproto/trace`.
    pub text: String,
    /// The result of the first translation.
    pub first: Translation<Effect>,
    /// A problem with the rules that it matched.
    pub wrong: Option<Wrong>,
}

/// Traces a packet as `ofproto/trace` does. Recirculated packets are traced in turn; those that were tracked
/// have the states `ct_next`, and after these the state of a new connection.
pub fn trace(
    switch: &Switch,
    start: Start<'_>,
    ct_next: &[u32],
    texts: Texts<'_>,
    reader: &Reader,
) -> Traced {
    let (mut traced, coming) = trace_once(switch, start, texts, reader);
    let (mut queue, mut states) = (VecDeque::from(coming), ct_next.iter());
    for _ in 0..ROUNDS_MAX {
        let Some(mut next) = queue.pop_front() else { break };
        if traced.text.len() > STEPS_BYTES_MAX {
            traced.text += LEFT_OUT;
            break;
        }
        traced.text += &announce(&mut next, &mut states);
        let Coming { key, .. } = next;
        // It continues as its state says, whatever actions it was sent with.
        let start = Start { key: &key, bridge: None, actions: None, ..start };
        let (more, coming) = trace_once(switch, start, texts, reader);
        traced.text += &more.text;
        queue.extend(coming);
    }
    traced
}

/// The introduction to the trace of a recirculated packet, which gets its state here.
fn announce<'a>(next: &mut Coming, states: &mut impl Iterator<Item = &'a u32>) -> String {
    let rule = "=".repeat(79);
    let mut text = format!("\n{rule}\nrecirc({:#x})", next.key.get(FieldId::RecircId));
    let state = match states.next() {
        Some(state) => {
            let _ = write!(text, " - resume conntrack with ct_state={}", state_text(*state));
            *state
        }
        None => {
            text += " - resume conntrack with default ct_state=trk|new (use --ct-next to customize)";
            NEW
        }
    };
    next.key.set(FieldId::CtState, state.into());
    next.key.set(FieldId::CtZone, next.zone.into());
    text.push('\n');
    if let Some(nat) = &next.nat {
        text += "Replacing src/dst IP/ports to simulate NAT:\n";
        let _ = writeln!(text, " Initial flow: {}", addresses(&next.key, nat));
        translate(&mut next.key, nat);
        let _ = writeln!(text, " Modified flow: {}", addresses(&next.key, nat));
    }
    text + &rule + "\n\n"
}

/// `est|trk`.
fn state_text(state: u32) -> String {
    const NAMES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
    let set = NAMES.iter().enumerate().filter(|(bit, _)| state >> bit & 1 != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

/// Addresses and ports after address translation; empty if no address is given.
fn addresses(key: &Key, nat: &Nat) -> String {
    let get = |field| key.get(field);
    let (src_port, dst_port) = (get(FieldId::TpSrc), get(FieldId::TpDst));
    match (nat.addresses, nat.is_ipv6) {
        (None, _) => String::new(),
        (Some(_), false) => {
            let [src, dst] =
                [FieldId::NwSrc, FieldId::NwDst].map(|field| Ipv4Addr::from_bits(get(field) as u32));
            format!("nw_src={src},tp_src={src_port},nw_dst={dst},tp_dst={dst_port}")
        }
        (Some(_), true) => {
            let [src, dst] =
                [FieldId::Ipv6Src, FieldId::Ipv6Dst].map(|field| Ipv6Addr::from_bits(get(field)));
            format!("ipv6_src=[{src}],tp_src={src_port},ipv6_dst=[{dst}],tp_dst={dst_port}")
        }
    }
}

/// Gives a packet the first address and port of the range.
fn translate(key: &mut Key, nat: &Nat) {
    let (Some((address, _)), Some(side)) = (nat.addresses, nat.side) else { return };
    let (field, port) = match (side, nat.is_ipv6) {
        (NatSide::Src, false) => (FieldId::NwSrc, FieldId::TpSrc),
        (NatSide::Src, true) => (FieldId::Ipv6Src, FieldId::TpSrc),
        (NatSide::Dst, false) => (FieldId::NwDst, FieldId::TpDst),
        (NatSide::Dst, true) => (FieldId::Ipv6Dst, FieldId::TpDst),
    };
    key.set(field, address);
    if let Some((first, _)) = nat.ports {
        key.set(port, first.into());
    }
}

fn trace_once(switch: &Switch, start: Start<'_>, texts: Texts<'_>, reader: &Reader) -> (Traced, Vec<Coming>) {
    let Start { version, key, bridge, actions: given, learned } = start;
    let Texts { ports, actions } = texts;
    let topology = switch.topology(version, reader);
    let mut listener = Listener {
        ports,
        topology,
        steps: Steps::new(),
        has_reopened: vec![],
        after: None,
        failure: None,
        wrong: None,
        is_slow: false,
        coming: vec![],
        may_learn: learned.is_some(),
        origin: None,
    };
    let mut out = Translation::default();
    let at = Snapshot { learned, ..Snapshot::new(switch, version, reader) };
    match (bridge, given) {
        (Some(bridge), Some(actions)) => {
            translate::packet_out(at, key, bridge, actions, &mut out, &mut listener);
        }
        (Some(bridge), None) => translate::packet_in_bridge(at, key, bridge, &mut out, &mut listener),
        (None, _) => translate::packet(at, key, &mut out, &mut listener),
    }
    let port = topology.port(PortNo(key.get64(FieldId::DpPort) as u32));
    let bridge = bridge.or(port.map(|port| port.bridge)).and_then(|idx| topology.bridge(idx));
    let none = OptionTable::default();
    let options = bridge.map_or(&none, |b| b.options());
    let flow_text = |key: &Key, mask: &Mask| flow_text(key, mask, ports, options);
    let whole = |key: &Key| {
        let mut text = flow_text(key, &everything(key, options));
        if key.get64(FieldId::EthType) == 0x894f {
            // Open vSwitch also shows IP fields, although there are none.
            text += ",nw_proto=0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no";
        }
        match key.get64(FieldId::RecircId) {
            0 => text,
            id => with_recirculation(&format!("{id:#x}"), &with_type(&text, key)),
        }
    };
    let mut text = format!("Flow: {}\n", whole(key));
    listener.steps.print(&mut text);
    let changed = match &listener.after {
        Some(after) if after != key => whole(after),
        _ => "unchanged".to_string(),
    };
    let _ = writeln!(text, "\nFinal flow: {changed}");
    let recirc_id = match key.get64(FieldId::RecircId) {
        0 => "0".to_string(),
        id => format!("{id:#x}"),
    };
    let mut typed = key.clone();
    if let packet_type @ 1.. = key.get64(FieldId::PacketType) {
        typed.set(FieldId::EthType, u128::from(packet_type & 0xffff));
    }
    let matched = with_type(&flow_text(&typed, &shown(&out.mask, key)), key);
    let _ = writeln!(text, "Megaflow: {}", with_recirculation(&recirc_id, &matched));
    let _ = writeln!(text, "Datapath actions: {}", actions(&out.actions, key));
    if listener.is_slow {
        text += "This flow is handled by the userspace slow path because it:\n  \
                 - Uses action(s) not supported by datapath.\n";
    }
    if let Some(why) = listener.failure {
        let _ = writeln!(text, "Translation failed ({why}), packet is dropped.");
    }
    let flow = whole(listener.after.as_ref().unwrap_or(key));
    let wrong = listener.wrong.map(|wrong| Wrong { flow, ..wrong });
    (Traced { text, first: out, wrong }, listener.coming)
}

/// A match's text with `eth` at the position where Open vSwitch has it: after the metadata. The type of any
/// other packet is there already.
fn with_type(text: &str, key: &Key) -> String {
    if key.get64(FieldId::PacketType) != 0 {
        return text.to_string();
    }
    let is_metadata = |part: &&str| {
        ["ct_", "dp_hash=", "skb_priority=", "actset_output=", "pkt_mark="]
            .iter()
            .any(|p| part.starts_with(p))
    };
    let metadata: usize = text.split(',').take_while(is_metadata).map(|part| part.len() + 1).sum();
    let (metadata, rest) = text.split_at(metadata.min(text.len()));
    format!("{metadata}eth,{rest}")
}

/// A match's text with the recirculation id at the position where Open vSwitch has it.
fn with_recirculation(id: &str, text: &str) -> String {
    let mark = text.find(',').filter(|_| text.starts_with("pkt_mark=")).map_or(0, |comma| comma + 1);
    let (mark, rest) = text.split_at(mark);
    format!("{mark}recirc_id={id},{rest}")
}

/// A megaflow's mask without what is the same in all packets that it sees: registers and metadata, which are
/// zero or come from the frozen state, and tunnel fields if the packet came through no tunnel. Tags are shown
/// as in Open vSwitch: their presence with any of their bits, and nothing of absent ones.
fn shown(mask: &Mask, key: &Key) -> Mask {
    const PRESENT: u64 = 0x1000;
    let mut mask = mask.clone();
    for tag in [FieldId::VlanTci, FieldId::VlanTci2] {
        let is_there = key.get64(tag) & PRESENT != 0;
        let bits = if is_there && mask.get(tag) != 0 { mask.get(tag) | u128::from(PRESENT) } else { 0 };
        mask.set(tag, bits);
    }
    [FieldId::Metadata, FieldId::ActsetOutput].into_iter().for_each(|field| mask.set(field, 0));
    let mut constant = 1 << B_REGS;
    if !is_tunneled(key) {
        constant |= (B_TUNNEL..BLOCKS).fold(0, |blocks, block| blocks | 1 << block);
    }
    mask.0.set_present(mask.0.present() & !constant);
    mask.canonical()
}

/// The mask for showing a packet completely: every field that a packet of its kind has, zero or not, and
/// nonzero metadata.
fn everything(key: &Key, options: &OptionTable) -> Mask {
    let mut mask = Mask::wild();
    let hidden = [FieldId::DpPort, FieldId::RecircId, FieldId::NdReserved, FieldId::NdOptionsType];
    let shown = |f: &&FieldId| usize::from(f.place().block) < B_TUN_META && !hidden.contains(*f);
    // What only fields that are shown below can hold.
    let is_elsewhere = |f: &FieldId| {
        NSH.contains(f)
            || *f == FieldId::TunMetadataPresent && !is_tunneled(key)
            || key.get64(FieldId::PacketType) != 0 && LINK.contains(f)
    };
    let has = |f: &&FieldId| key.get(**f) != 0 && !is_elsewhere(f);
    for f in FieldId::ALL.iter().filter(shown).filter(has) {
        mask.add_exact(*f);
    }
    for f in fields_of(key) {
        mask.add_exact(f);
    }
    let shown_options = if is_tunneled(key) { options.of_packet(key) } else { Default::default() };
    for option in shown_options.iter() {
        for (block, word, bits, _) in options.words(option.idx, &Wide::ZERO, &Wide::ONES) {
            mask.add_word(block, word, bits);
        }
    }
    mask
}

/// Fields of an Ethernet header. The type of a packet without one implies its Ethernet type.
const LINK: [FieldId; 5] =
    [FieldId::EthSrc, FieldId::EthDst, FieldId::EthType, FieldId::VlanTci, FieldId::VlanTci2];

/// Fields of network service headers.
const NSH: [FieldId; 10] = [
    FieldId::NshFlags,
    FieldId::NshTtl,
    FieldId::NshMdtype,
    FieldId::NshNp,
    FieldId::NshSpi,
    FieldId::NshSi,
    FieldId::NshC1,
    FieldId::NshC2,
    FieldId::NshC3,
    FieldId::NshC4,
];

/// Whether the packet came or goes through a tunnel.
fn is_tunneled(key: &Key) -> bool {
    key.get(FieldId::TunDst) != 0 || key.get(FieldId::TunIpv6Dst) != 0
}

/// The fields of headers that a packet has.
fn fields_of(key: &Key) -> Vec<FieldId> {
    use FieldId as F;
    let mut fields = match key.get64(F::PacketType) {
        0 => vec![F::VlanTci, F::EthSrc, F::EthDst, F::EthType],
        _ => vec![],
    };
    if key.get64(F::VlanTci) != 0 && key.get64(F::PacketType) == 0 {
        fields.push(F::VlanTci2);
    }
    // A packet that came or goes through a tunnel has all tunnel fields except those that some kinds lack.
    if is_tunneled(key) {
        let lacking = [F::TunId, F::TunErspanIdx, F::TunErspanDir, F::TunErspanHwid];
        let is_of_any = |f: &&F| usize::from(f.place().block) == B_TUNNEL && !lacking.contains(*f);
        fields.extend(F::ALL.iter().filter(is_of_any));
    }
    let ip = [F::NwProto, F::NwTos, F::NwTtl, F::NwFrag];
    match key.get64(F::EthType) {
        0x0800 => fields.extend([F::NwSrc, F::NwDst].into_iter().chain(ip)),
        0x86dd => fields.extend([F::Ipv6Src, F::Ipv6Dst, F::Ipv6Label].into_iter().chain(ip)),
        0x0806 | 0x8035 => fields.extend([F::NwSrc, F::NwDst, F::NwProto, F::ArpSha, F::ArpTha]),
        0x8847 | 0x8848 => {
            // Down to the bottom of the stack.
            const BOTTOM: u64 = 0x100;
            let above = [F::Mpls0, F::Mpls1].iter().take_while(|label| key.get64(**label) & BOTTOM == 0);
            let count = 1 + above.count();
            fields.extend(&[F::Mpls0, F::Mpls1, F::Mpls2][..count]);
        }
        0x894f => {
            // Only type 1 has context headers at fixed positions.
            let count = if key.get64(F::NshMdtype) == 1 { NSH.len() } else { NSH.len() - 4 };
            fields.extend(&NSH[..count]);
        }
        _ => {}
    }
    let is_ip = matches!(key.get64(F::EthType), 0x0800 | 0x86dd);
    // A later fragment has no ports.
    if is_ip && key.get64(F::NwFrag) & 2 == 0 {
        match key.get64(F::NwProto) {
            6 => fields.extend([F::TpSrc, F::TpDst, F::TcpFlags]),
            // Neighbour discovery, whose options take the place of ARP's addresses.
            58 if matches!(key.get64(F::TpSrc), 135 | 136) && key.get64(F::TpDst) == 0 => {
                fields.extend([F::TpSrc, F::TpDst, F::NdTarget, F::ArpSha, F::ArpTha]);
            }
            1 | 2 | 17 | 58 | 132 => fields.extend([F::TpSrc, F::TpDst]),
            _ => {}
        }
    }
    fields
}

fn flow_text(key: &Key, mask: &Mask, ports: &PortNames, options: &OptionTable) -> String {
    let mut mask = mask.clone();
    for internal in [FieldId::DpPort, FieldId::RecircId] {
        mask.set(internal, 0);
    }
    if key.get64(FieldId::PacketType) == 0 {
        mask.set(FieldId::PacketType, 0);
    }
    let mut matching = Match::new(key, mask.canonical());
    options.lift(&mut matching);
    match_text(&matching, ports)
}
