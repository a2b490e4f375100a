//! The reference: tables searched from end to end, packets with all their fields, no mask anywhere. Written
//! for plainness, from OpenFlow 1.3 and ovs-actions(7), and sharing nothing with the translator.

mod normal;

use super::meters::{Clocked, Verdict};
use base::{OfPort, PortNo};
use datapath::meter::MeterRef;
use flow::action::{PacketInReason, SubField};
use flow::mf::Prereq;
use flow::{Action, FieldId, Key, Match, Mf};
use openflow::message::{Bucket, GroupDesc, GroupType};
use std::collections::{BTreeMap, HashMap};
use switch::{Effect, Fragments, PortKind, PortSpec, PriorityTags, VlanMode};

#[derive(Clone, Debug)]
pub struct ModelRule {
    pub priority: i32,
    pub matching: Match,
    pub actions: Vec<Action>,
}

#[derive(Clone, Default, Debug)]
pub struct ModelBridge {
    pub ports: BTreeMap<u16, PortSpec>,
    pub tables: BTreeMap<u8, Vec<ModelRule>>,
    pub groups: BTreeMap<u32, GroupDesc>,
    /// What the datapath has of each meter: another one after each change.
    pub meters: BTreeMap<u32, MeterRef>,
    pub macs: HashMap<(u16, u64), PortNo>,
    pub flood_vlans: Vec<u16>,
    pub forward_bpdu: bool,
    /// Tags that NORMAL looks at.
    pub vlan_limit: usize,
    pub fragments: Fragments,
}

#[derive(Clone, Default, Debug)]
pub struct Model {
    pub bridges: Vec<ModelBridge>,
}

/// A packet on its way: the fields, and all its tags, outermost first.
#[derive(Clone, PartialEq, Debug)]
pub struct Packet {
    pub key: Key,
    pub tags: Vec<(u16, u16)>,
    /// Meters that have judged it.
    pub meters: Vec<MeterRef>,
}

impl Packet {
    pub fn of(key: &Key) -> Packet {
        let tag = |tpid, tci| (key.get64(tpid) as u16, key.get64(tci) as u16);
        let both = [tag(FieldId::VlanTpid, FieldId::VlanTci), tag(FieldId::VlanTpid2, FieldId::VlanTci2)];
        let tags = both.into_iter().filter(|t| t.1 & 0x1000 != 0).collect();
        Packet { key: key.clone(), tags, meters: vec![] }
    }

    /// Makes the key's tags those of the list.
    pub fn show_tags(&mut self) {
        let mut show = |i: usize, tpid, tci| {
            let (p, t) = self.tags.get(i).copied().unwrap_or((0, 0));
            self.key.set(tpid, p.into());
            self.key.set(tci, t.into());
        };
        show(0, FieldId::VlanTpid, FieldId::VlanTci);
        show(1, FieldId::VlanTpid2, FieldId::VlanTci2);
    }

    /// What is on the wire, and the marks that go with it: the pipeline's own fields do not.
    pub fn wire(&self) -> Packet {
        let mut packet = self.clone();
        packet.show_tags();
        let key = &packet.key;
        let mut wire = Key::default();
        for &f in WIRE {
            wire.set(f, key.get(f));
        }
        Packet { key: wire, ..packet }
    }
}

const WIRE: &[FieldId] = &[
    FieldId::EthType,
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::NwSrc,
    FieldId::NwDst,
    FieldId::NwProto,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::NwFrag,
    FieldId::TpSrc,
    FieldId::TpDst,
    FieldId::TcpFlags,
    FieldId::ArpSha,
    FieldId::ArpTha,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::Ipv6ExtHdr,
    FieldId::PktMark,
    FieldId::SkbPriority,
];

/// What comes of a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// Sent out of a port.
    Sent(PortNo, Packet),
    /// Handed to the controllers, for this reason.
    Told(u8, Packet),
}

/// All that comes of a packet, and what is learned.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Fate {
    pub seen: Vec<Seen>,
    pub learned: Vec<Effect>,
}

impl ModelRule {
    fn matches(&self, key: &Key) -> bool {
        let agrees =
            |f: &FieldId| (key.get(*f) ^ self.matching.key.get(*f)) & self.matching.mask.get(*f) == 0;
        // Rules that name a header, but no type of packets, mean Ethernet frames.
        let names = |mf: &Mf| mf.row().prereq != Prereq::None && self.matching.get_mf(*mf).1 != 0;
        let is_of_frames = self.matching.mask.get(FieldId::PacketType) == 0 && Mf::all().any(|mf| names(&mf));
        FieldId::ALL.iter().all(agrees) && (!is_of_frames || key.get(FieldId::PacketType) == 0)
    }

    fn clauses(&self) -> Vec<(u32, u8, u8)> {
        let clause = |action: &Action| match *action {
            Action::Conjunction { id, clause, n_clauses } => Some((id, n_clauses, clause)),
            _ => None,
        };
        self.actions.iter().filter_map(clause).collect()
    }
}

/// The rule that a packet gets, of a table with conjunctive matches: ovs-fields(7), "Conjunctive Match
/// Fields". Rules that are clauses of a conjunction hide those of their match and a lower priority until they
/// are of no use.
fn best_rule<'a>(rules: &'a [ModelRule], key: &Key) -> Option<&'a ModelRule> {
    let mut hidden: Vec<&ModelRule> = rules.iter().filter(|r| r.matches(key)).collect();
    hidden.sort_by_key(|r| r.priority);
    let mut shown: Vec<&ModelRule> = vec![];
    for rule in std::mem::take(&mut hidden).into_iter().rev() {
        let is_first = !shown.iter().any(|s| s.matching == rule.matching);
        if is_first { &mut shown } else { &mut hidden }.push(rule);
    }
    loop {
        let plain = shown.iter().copied().filter(|r| r.clauses().is_empty()).max_by_key(|r| r.priority);
        let soft = shown.iter().filter(|r| !r.clauses().is_empty()).map(|r| r.priority).max();
        let Some(soft) = soft.filter(|soft| plain.is_none_or(|plain| plain.priority < *soft)) else {
            return plain;
        };
        let of_top = |r: &&ModelRule| r.priority == soft && !r.clauses().is_empty();
        let clauses: Vec<_> = shown.iter().copied().filter(of_top).flat_map(ModelRule::clauses).collect();
        let is_met = |id: &u32| (2..=3).any(|n| (0..n).all(|clause| clauses.contains(&(*id, n, clause))));
        let met: Vec<u32> = (0..8).filter(is_met).collect();
        for id in &met {
            let mut key = key.clone();
            key.set(FieldId::ConjId, (*id).into());
            let asks = |r: &&ModelRule| {
                r.matching.mask.get(FieldId::ConjId) != 0 && r.clauses().is_empty() && r.matches(&key)
            };
            if let Some(rule) = rules.iter().filter(asks).max_by_key(|r| r.priority) {
                return plain.filter(|plain| plain.priority > rule.priority).or(Some(rule));
            }
        }
        if !met.is_empty() && plain.is_some() {
            return plain;
        }
        let (gone, mut left): (Vec<&ModelRule>, Vec<_>) = shown.into_iter().partition(of_top);
        for rule in gone {
            if let Some(at) = hidden.iter().position(|h| h.matching == rule.matching) {
                left.push(hidden.remove(at));
            }
        }
        shown = left;
    }
}

struct Run<'a> {
    model: &'a Model,
    fate: Fate,
    /// Of the packet, in bytes.
    length: u16,
    /// Meters that judge it, if time matters.
    clocked: Option<&'a mut Clocked>,
    resubmits: u32,
    failed: bool,
}

/// Where a packet is.
struct Place {
    bridge: usize,
    in_port: u16,
    packet: Packet,
    stack: Vec<u128>,
    set: Vec<Action>,
    /// The action set is being executed.
    in_set: bool,
    /// A bucket is being executed.
    in_bucket: bool,
    /// All lists end.
    stopped: bool,
    /// The list ends that is being executed.
    list_ends: bool,
    /// A meter has dropped the packet.
    dropped: bool,
    depth: u32,
}

impl Model {
    pub fn port(&self, port_no: PortNo) -> Option<(usize, &PortSpec)> {
        let all = self.bridges.iter().enumerate();
        all.flat_map(|(i, b)| b.ports.values().map(move |p| (i, p))).find(|(_, p)| p.port_no == port_no)
    }

    /// For reading what went wrong.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (i, bridge) in self.bridges.iter().enumerate() {
            for p in bridge.ports.values() {
                text += &format!(
                    "\nbr{i} port {} {:?} {:?} tag {} protected {} trunks {}",
                    p.of_port.0,
                    p.kind,
                    p.vlan.mode,
                    p.vlan.tag,
                    p.protected,
                    p.vlan.trunks.is_some()
                );
            }
            for group in bridge.groups.values() {
                text += &format!("\nbr{i} {group:?}");
            }
            for (table, rules) in &bridge.tables {
                for r in rules {
                    let held = FieldId::ALL.iter().filter(|f| r.matching.mask.get(**f) != 0);
                    let fields: Vec<String> = held
                        .map(|f| {
                            format!("{}={:x}/{:x}", f.name(), r.matching.key.get(*f), r.matching.mask.get(*f))
                        })
                        .collect();
                    text += &format!("\nbr{i} {table} {} {fields:?} {:?}", r.priority, r.actions);
                }
            }
            text += &format!("\nbr{i} {:?} flood {:?}", bridge.macs, bridge.flood_vlans);
        }
        text
    }

    /// What becomes of a packet of so many bytes.
    pub fn fate(&self, key: &Key, length: u16) -> Fate {
        self.run(key, length, None).unwrap_or_default()
    }

    /// What becomes of it now, by meters too. `None`: it is resubmitted too often.
    pub fn fate_now(&self, key: &Key, length: u16, clocked: &mut Clocked) -> Option<Fate> {
        self.run(key, length, Some(clocked))
    }

    fn run(&self, key: &Key, length: u16, clocked: Option<&mut Clocked>) -> Option<Fate> {
        let port_no = PortNo(key.get64(FieldId::DpPort) as u32);
        let Some((bridge, port)) = self.port(port_no) else { return Some(Fate::default()) };
        let mut packet = Packet::of(key);
        packet.key.set(FieldId::InPort, port.of_port.0.into());
        let mut run =
            Run { model: self, fate: Fate::default(), length, clocked, resubmits: 0, failed: false };
        run.enter_bridge(bridge, port, packet, 0);
        (!run.failed).then_some(run.fate)
    }
}

impl Run<'_> {
    fn enter_bridge(&mut self, bridge: usize, port: &PortSpec, packet: Packet, depth: u32) {
        let stp = packet.key.get64(FieldId::EthDst) == 0x0180_c200_0000;
        let config = port.config;
        if config.port_down || (if stp { config.no_recv_stp } else { config.no_recv }) {
            return;
        }
        let mut place = Place {
            bridge,
            in_port: port.of_port.0,
            packet,
            stack: vec![],
            set: vec![],
            in_set: false,
            in_bucket: false,
            stopped: false,
            list_ends: false,
            dropped: false,
            depth,
        };
        self.table(&mut place, 0, None);
        self.execute_set(&mut place, 0);
    }

    fn execute_set(&mut self, at: &mut Place, table: u8) {
        if !at.set.is_empty() && !at.stopped && !at.dropped {
            at.in_set = true;
            let ordered = in_order(&std::mem::take(&mut at.set));
            self.list(at, &ordered, table);
        }
    }

    fn table(&mut self, at: &mut Place, table: u8, in_port: Option<u16>) {
        let rules = self.model.bridges[at.bridge].tables.get(&table);
        at.packet.show_tags();
        let mut key = at.packet.key.clone();
        if let Some(port) = in_port {
            key.set(FieldId::InPort, port.into());
        }
        if key.get64(FieldId::NwFrag) != 0 {
            match self.model.bridges[at.bridge].fragments {
                Fragments::Normal => [FieldId::TpSrc, FieldId::TpDst].iter().for_each(|f| key.set(*f, 0)),
                Fragments::Drop => return,
                Fragments::NxMatch => {}
            }
        }
        let best = rules.and_then(|rules| best_rule(rules, &key));
        if let Some(rule) = best {
            let actions = rule.actions.clone();
            let in_bucket = std::mem::take(&mut at.in_bucket);
            self.list(at, &actions, table);
            at.in_bucket = in_bucket;
        }
    }

    fn list(&mut self, at: &mut Place, actions: &[Action], table: u8) {
        for (n, action) in actions.iter().enumerate() {
            if at.stopped || at.dropped || self.failed {
                return;
            }
            if let Action::CheckPktLarger { length, target } = action {
                return self.by_length(at, *length, *target, &actions[n + 1..], table);
            }
            self.action(at, action, table);
            if std::mem::take(&mut at.list_ends) {
                return;
            }
        }
    }

    /// Goes both ways, to learn what is learned and whether both exit, and remembers the one that is the
    /// packet's.
    fn by_length(&mut self, at: &mut Place, limit: u16, bit: SubField, rest: &[Action], table: u8) {
        let mut exits = true;
        for is_larger in [true, false] {
            let mut copy = Place {
                packet: at.packet.clone(),
                stack: at.stack.clone(),
                set: at.set.clone(),
                depth: at.depth + 1,
                ..*at
            };
            let (seen, clocked) = (self.fate.seen.clone(), self.clocked.as_deref().cloned());
            set(&mut copy, bit.field, u128::from(is_larger) << bit.offset, 1 << bit.offset);
            self.list(&mut copy, rest, table);
            exits &= copy.stopped;
            self.execute_set(&mut copy, table);
            if (self.length > limit) != is_larger {
                self.fate.seen = seen;
                if let (Some(now), Some(before)) = (&mut self.clocked, clocked) {
                    **now = before;
                }
            }
        }
        at.set.clear();
        at.stopped = exits;
    }

    fn action(&mut self, at: &mut Place, action: &Action, table: u8) {
        match action {
            Action::Output { port, .. } | Action::OutputTrunc { port, .. } => self.output(at, *port),
            Action::OutputReg { source, .. } => {
                let port = at.packet.key.get_mf(source.field) >> source.offset & bits(source.count);
                self.output(at, OfPort(port as u16));
            }
            Action::Controller { reason, .. } => {
                self.fate.seen.push(Seen::Told(*reason as u8, at.packet.wire()));
            }
            Action::Enqueue { port, queue } => {
                let before = at.packet.key.get(FieldId::SkbPriority);
                at.packet.key.set(FieldId::SkbPriority, (*queue).into());
                self.output(at, *port);
                at.packet.key.set(FieldId::SkbPriority, before);
            }
            Action::PopQueue => at.packet.key.set(FieldId::SkbPriority, 0),
            Action::SetTunnel { id, .. } => at.packet.key.set(FieldId::TunId, (*id).into()),
            Action::Sample { .. } | Action::Note(_) => {}
            Action::Resubmit { in_port, table: to, .. } => {
                self.resubmit(at, to.unwrap_or(table), in_port.map(|port| port.0));
            }
            Action::GotoTable(to) => self.resubmit(at, *to, None),
            Action::SetField { field, value, mask } => set(at, *field, *value, *mask),
            Action::Load { target, value, .. } => {
                let ones = bits(target.count);
                set(at, target.field, u128::from(*value) << target.offset, ones << target.offset);
            }
            Action::Move { source, target } => {
                if has(at, source.field) && has(at, target.field) {
                    let value = at.packet.key.get_mf(source.field) >> source.offset & bits(source.count);
                    set(at, target.field, value << target.offset, bits(target.count) << target.offset);
                }
            }
            Action::StackPush(s) => at.stack.push(at.packet.key.get_mf(s.field) >> s.offset & bits(s.count)),
            Action::StackPop(t) => {
                if let Some(value) = at.stack.pop() {
                    set(at, t.field, value << t.offset, bits(t.count) << t.offset);
                }
            }
            Action::WriteMetadata { value, mask } => {
                at.packet.key.set_masked(FieldId::Metadata, (*value).into(), (*mask).into());
            }
            Action::WriteActions(list) => at.set.extend(list.iter().cloned()),
            Action::ClearActions => at.set.clear(),
            Action::Exit => at.stopped = true,
            Action::PushVlan(tpid) => at.packet.tags.insert(0, (*tpid, 0x1000)),
            Action::PopVlan => {
                if !at.packet.tags.is_empty() {
                    at.packet.tags.remove(0);
                }
            }
            Action::SetVlanVid { vid, .. } => set_tag(at, *vid, 0xfff),
            Action::SetVlanPcp { pcp, .. } => set_tag(at, u16::from(*pcp) << 13, 0xe000),
            Action::SetQueue(q) => at.packet.key.set(FieldId::SkbPriority, (*q).into()),
            Action::SetTpSrc(port) => set_port(at, FieldId::TpSrc, *port),
            Action::SetTpDst(port) => set_port(at, FieldId::TpDst, *port),
            Action::SetNwTtl(ttl) => set(at, Mf::NwTtl, (*ttl).into(), 0xff),
            Action::CtClear => at.packet.key.set(FieldId::CtMark, 0),
            Action::DecTtl(_) => {
                let ttl = at.packet.key.get64(FieldId::NwTtl);
                if !matches!(at.packet.key.get64(FieldId::EthType), 0x800 | 0x86dd) {
                } else if ttl > 1 {
                    at.packet.key.set(FieldId::NwTtl, (ttl - 1).into());
                } else {
                    self.fate.seen.push(Seen::Told(2, at.packet.wire()));
                    at.list_ends = true;
                }
            }
            Action::Clone(list) => {
                let (stack, set) = (at.stack.clone(), at.set.clone());
                let mut copy = Place { packet: at.packet.clone(), stack, set, ..*at };
                self.list(&mut copy, list, table);
                self.execute_set(&mut copy, table);
                at.stopped = copy.stopped;
            }
            Action::Group(id) => self.group(at, *id, table),
            Action::Meter(id) => {
                let meter = self.model.bridges[at.bridge].meters.get(id);
                at.packet.meters.extend(meter.cloned());
                self.judge(at, *id);
            }
            other => panic!("the generator makes no {other:?}"),
        }
        at.packet.show_tags();
    }

    fn judge(&mut self, at: &mut Place, meter_id: u32) {
        let Some(clocked) = &mut self.clocked else { return };
        let tos = at.packet.key.get64(FieldId::NwTos) as u8;
        match clocked.judge(at.bridge, meter_id, tos, self.length) {
            Verdict::Pass => {}
            Verdict::Drop => at.dropped = true,
            Verdict::Tos(tos) => set(at, Mf::NwTos, tos.into(), 0xff),
        }
    }

    fn group(&mut self, at: &mut Place, id: u32, table: u8) {
        if at.depth >= switch::DEPTH_MAX || self.resubmits >= switch::RESUBMITS_MAX {
            self.failed = true;
            return;
        }
        let model = self.model;
        let Some(group) = model.bridges[at.bridge].groups.get(&id) else {
            at.list_ends = true;
            return;
        };
        let live = |bucket: &&Bucket| is_live(&model.bridges[at.bridge], group.kind, bucket);
        let chosen: Vec<&Bucket> = match group.kind {
            GroupType::All | GroupType::Indirect => group.buckets.iter().collect(),
            // All buckets of a select group do the same here: which of them it is, counters tell.
            GroupType::Select | GroupType::FastFailover => {
                group.buckets.iter().find(live).into_iter().collect()
            }
        };
        for bucket in chosen {
            let mut copy = Place {
                packet: at.packet.clone(),
                stack: std::mem::take(&mut at.stack),
                set: std::mem::take(&mut at.set),
                in_bucket: true,
                depth: at.depth + 1,
                ..*at
            };
            self.list(&mut copy, &in_order(&bucket.actions), table);
            (at.stack, at.set) = (copy.stack, copy.set);
        }
    }

    fn resubmit(&mut self, at: &mut Place, table: u8, in_port: Option<u16>) {
        self.resubmits += 1;
        if self.resubmits > switch::RESUBMITS_MAX {
            self.failed = true;
        }
        if !self.failed {
            self.table(at, table, in_port);
        }
    }

    fn output(&mut self, at: &mut Place, port: OfPort) {
        let bridge = &self.model.bridges[at.bridge];
        match port {
            OfPort::IN_PORT => self.send(at, OfPort(at.in_port)),
            OfPort::CONTROLLER => {
                let reason = match at.in_bucket {
                    true => PacketInReason::Group,
                    false if at.in_set => PacketInReason::ActionSet,
                    false => PacketInReason::Action,
                };
                self.fate.seen.push(Seen::Told(reason as u8, at.packet.wire()));
            }
            OfPort::NORMAL => self.normal(at),
            OfPort::FLOOD | OfPort::ALL => {
                let all = bridge.ports.values().filter(|p| p.of_port.0 != at.in_port);
                let wanted = all.filter(|p| port == OfPort::ALL || !p.config.no_flood);
                for p in wanted.map(|p| p.of_port).collect::<Vec<_>>() {
                    self.send(at, p);
                }
            }
            port if port.0 == at.in_port => {}
            port => self.send(at, port),
        }
    }

    fn send(&mut self, at: &mut Place, port: OfPort) {
        let Some(spec) = self.model.bridges[at.bridge].ports.get(&port.0) else { return };
        let from = self.model.bridges[at.bridge].ports.get(&at.in_port);
        let isolated = spec.protected && from.is_some_and(|from| from.protected);
        if self.failed || spec.config.no_fwd || spec.config.port_down || isolated {
            return;
        }
        let PortKind::Patch { peer } = spec.kind else {
            return self.fate.seen.push(Seen::Sent(spec.port_no, at.packet.wire()));
        };
        let Some((bridge, far)) = peer.and_then(|p| self.model.port(p)) else { return };
        if far.kind != (PortKind::Patch { peer: Some(spec.port_no) }) {
            return;
        }
        if at.depth >= switch::DEPTH_MAX {
            self.failed = true;
            return;
        }
        let mut packet = at.packet.clone();
        for &f in FieldId::ALL {
            let own = f.name().starts_with("reg") || matches!(f, FieldId::Metadata | FieldId::CtMark);
            if own {
                packet.key.set(f, 0);
            }
        }
        packet.key.set(FieldId::InPort, far.of_port.0.into());
        self.enter_bridge(bridge, far, packet, at.depth + 1);
    }
}

fn bits(count: u16) -> u128 {
    if count == 128 { u128::MAX } else { (1 << count) - 1 }
}

/// Whether the packet has the field.
fn has(at: &Place, field: Mf) -> bool {
    let key = &at.packet.key;
    let (eth_type, proto) = (key.get64(FieldId::EthType), key.get64(FieldId::NwProto));
    let first = key.get64(FieldId::NwFrag) & 2 == 0;
    match field {
        Mf::NwSrc | Mf::NwDst => eth_type == 0x800,
        Mf::NwTtl | Mf::IpDscp | Mf::NwTos | Mf::NwProto => eth_type == 0x800 || eth_type == 0x86dd,
        Mf::TcpSrc | Mf::TcpDst => eth_type == 0x800 && proto == 6 && first,
        Mf::UdpSrc | Mf::UdpDst => eth_type == 0x800 && proto == 17 && first,
        Mf::IcmpType => eth_type == 0x800 && proto == 1 && first,
        Mf::ArpSpa | Mf::ArpTpa | Mf::ArpOp => eth_type == 0x806,
        Mf::VlanVid | Mf::VlanPcp => !at.packet.tags.is_empty(),
        _ => true,
    }
}

fn set(at: &mut Place, field: Mf, value: u128, mask: u128) {
    if !has(at, field) {
        return;
    }
    match field {
        Mf::VlanTci => {
            let (tpid, tci) = at.packet.tags.first().copied().unwrap_or((0x8100, 0));
            let tci = tci & !(mask as u16) | value as u16 & mask as u16;
            let had = !at.packet.tags.is_empty();
            match (had, tci & 0x1000 != 0) {
                (true, true) => at.packet.tags[0] = (tpid, tci),
                (false, true) => at.packet.tags.insert(0, (0x8100, tci)),
                (true, false) => drop(at.packet.tags.remove(0)),
                (false, false) => {}
            }
        }
        Mf::VlanVid => {
            let tag = &mut at.packet.tags[0].1;
            *tag = *tag & !(mask as u16) | value as u16 & mask as u16;
            *tag |= 0x1000;
        }
        _ => at.packet.key.set_mf(field, value, mask),
    }
}

fn set_port(at: &mut Place, field: FieldId, port: u16) {
    if [Mf::TcpSrc, Mf::UdpSrc, Mf::IcmpType].into_iter().any(|f| has(at, f)) {
        at.packet.key.set(field, port.into());
    }
}

fn set_tag(at: &mut Place, value: u16, mask: u16) {
    match at.packet.tags.first_mut() {
        Some(tag) => tag.1 = tag.1 & !mask | value,
        None => at.packet.tags.push((0x8100, 0x1000 | value)),
    }
}

/// An action set in the order in which it is executed.
fn in_order(set: &[Action]) -> Vec<Action> {
    let kind = |a: &Action| match a {
        Action::PopVlan => 0,
        Action::PushVlan(_) => 1,
        Action::DecTtl(_) => 2,
        Action::SetField { .. } | Action::Load { .. } | Action::Move { .. } => 3,
        Action::SetVlanVid { .. } | Action::SetVlanPcp { .. } => 3,
        Action::SetTpSrc(_) | Action::SetTpDst(_) | Action::SetNwTtl(_) => 3,
        Action::SetQueue(_) => 4,
        // Of where the packet goes, the first of these says it.
        Action::Group(_) => 5,
        Action::Output { .. } => 6,
        Action::Resubmit { .. } => 7,
        Action::CtClear => 8,
        other => panic!("the generator puts no {other:?} into a set"),
    };
    let mut ordered = vec![];
    let Some(end) = set.iter().map(kind).filter(|k| *k >= 5).min() else { return ordered };
    for k in (0..5).chain([end]) {
        let of_kind: Vec<&Action> = set.iter().filter(|a| kind(a) == k).collect();
        match k {
            3 => ordered.extend(of_kind.into_iter().cloned()),
            _ => ordered.extend(of_kind.last().map(|a| (*a).clone())),
        }
    }
    ordered
}

/// Whether a bucket of a group of this type is to be used.
fn is_live(bridge: &ModelBridge, kind: GroupType, bucket: &Bucket) -> bool {
    if kind == GroupType::Select && bucket.weight == 0 {
        return false;
    }
    let watches_nothing = bucket.watch_port.is_none() && bucket.watch_group.is_none();
    let port = bucket.watch_port.and_then(|port| bridge.ports.get(&port.0));
    let watched = bucket.watch_group.and_then(|id| bridge.groups.get(&id));
    watches_nothing
        || port.is_some_and(|port| port.link_up && !port.config.port_down)
        || watched.is_some_and(|group| group.buckets.iter().any(|b| is_live(bridge, group.kind, b)))
}
