//! Worlds: a real switch and its model, made and changed alike, and packets that live near their rules.
//!
//! Values come from small pools, so that rules overlap, packets hit them, and changes hit flows.

use super::chance::Chance;
use super::meters::{Clocked, Rates};
use super::model::{Model, ModelBridge, ModelRule};
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo, Version};
use datapath::{Pipeline, Translation};
use flow::action::SubField;
use flow::{Action, FieldId, Key, Match, Mf};
use openflow::message::{BUCKET_ALL, Bucket, GroupCommand, GroupDesc, GroupMod, GroupSelection, GroupType};
use std::sync::Arc;
use switch::control::{Command, FlowMod};
use switch::{
    BridgeConfig, BridgeIdx, Control, Effect, Fragments, PortKind, PortSpec, PriorityTags, Switch,
    VlanColumns, VlanConfig, VlanMode,
};

pub const TABLES: u64 = 4;
const PORTS: u64 = 4;

pub struct World {
    pub control: Control,
    pub switch: Arc<Switch>,
    pub reader: Reader,
    pub model: Model,
    pub clocked: Clocked,
    pub(super) rates: Rates,
    pub bridges: Vec<BridgeIdx>,
    /// Matches of the last changes: packets near them are worth trying.
    pub changed: Vec<Match>,
    pub now_ms: u64,
    /// A mistake put in on purpose: the parts of a bundle are done one by one, up to one that is refused.
    pub are_bundles_torn: bool,
}

fn port_no(bridge: usize, of_port: u16) -> PortNo {
    PortNo(100 * (bridge as u32 + 1) + u32::from(of_port))
}

impl World {
    /// Two bridges of four ports, joined by a patch cable at port 9, and some rules.
    pub fn new(chance: &mut Chance, rates: Rates) -> World {
        let domain = Domain::new();
        let (switch, control) = Control::new(domain.clone(), HashKey::from_seed(chance.next()));
        let reader = domain.register();
        let mut world = World {
            control,
            switch,
            reader,
            model: Model::default(),
            clocked: Clocked::default(),
            rates,
            bridges: vec![],
            changed: vec![],
            now_ms: 0,
            are_bundles_torn: false,
        };
        for b in 0..2 {
            let idx = world.control.add_bridge(BridgeConfig::new(&format!("br{b}")));
            assert_eq!(idx.0 as usize, b);
            world.bridges.push(idx);
            world.model.bridges.push(ModelBridge { vlan_limit: 1, ..ModelBridge::default() });
            for p in 1..=PORTS as u16 {
                world.put_port(b, world.port_spec(b, p, chance));
            }
            let peer = PortKind::Patch { peer: Some(port_no(1 - b, 9)) };
            world.put_port(b, PortSpec { kind: peer, ..PortSpec::new(port_no(b, 9), OfPort(9), "patch") });
        }
        for _ in 0..chance.below(4) {
            world.change_groups(chance);
        }
        for _ in 0..chance.below(4) {
            world.change_meters(chance);
        }
        for _ in 0..chance.below(25) + 3 {
            world.add_rule(chance);
        }
        world
    }

    fn port_spec(&self, bridge: usize, of_port: u16, chance: &mut Chance) -> PortSpec {
        let mut spec = PortSpec::new(port_no(bridge, of_port), OfPort(of_port), "p");
        spec.config.no_flood = chance.one_in(8);
        spec.config.no_fwd = chance.one_in(12);
        spec.config.no_recv = chance.one_in(16);
        spec.config.no_recv_stp = chance.one_in(16);
        spec.protected = chance.one_in(4);
        spec.link_up = !chance.one_in(4);
        let some = |chance: &mut Chance, vlans: Vec<u16>| if chance.one_in(3) { vlans } else { vec![] };
        spec.vlan = VlanConfig::new(&VlanColumns {
            mode: Some(*chance.pick(&[
                VlanMode::Trunk,
                VlanMode::Trunk,
                VlanMode::Access,
                VlanMode::NativeTagged,
                VlanMode::NativeUntagged,
                VlanMode::Dot1qTunnel,
            ])),
            tag: Some(*chance.pick(&[10, 10, 20, 20, 0])),
            trunks: some(chance, vec![0, 10]),
            cvlans: some(chance, vec![0, 30]),
            qinq_tpid: *chance.pick(&[0x88a8, 0x8100]),
            priority_tags: *chance.pick(&[
                PriorityTags::Never,
                PriorityTags::IfNonzero,
                PriorityTags::Always,
            ]),
        });
        spec
    }

    fn put_port(&mut self, bridge: usize, spec: PortSpec) {
        let new = self.model.bridges[bridge].ports.insert(spec.of_port.0, spec.clone());
        match new {
            None => self.control.add_port(self.bridges[bridge], spec).unwrap(),
            Some(old) => {
                if old.vlan != spec.vlan {
                    self.model.bridges[bridge].macs.retain(|_, p| *p != spec.port_no);
                }
                self.control.modify_port(spec).unwrap();
            }
        }
    }

    fn remove_port(&mut self, bridge: usize, of_port: u16) {
        if let Some(old) = self.model.bridges[bridge].ports.remove(&of_port) {
            let macs = &self.model.bridges[bridge].macs;
            let gone: Vec<_> = macs.iter().filter(|(_, p)| **p == old.port_no).map(|(k, _)| *k).collect();
            for b in &mut self.model.bridges {
                b.macs.retain(|k, _| !gone.contains(k));
            }
            self.control.remove_port(old.port_no).unwrap();
        }
    }

    /// A rule, which may replace one of the same match and priority.
    pub fn add_rule(&mut self, chance: &mut Chance) {
        let bridge = usize::from(chance.one_in(3));
        let (table, rule) = random_rule(&self.model.bridges[bridge], chance, bridge);
        self.add(bridge, table, rule.priority, rule.matching, rule.actions);
    }

    pub fn add(&mut self, bridge: usize, table: u8, priority: i32, matching: Match, actions: Vec<Action>) {
        let rule = ModelRule { priority, matching, actions };
        let fm = addition(table, &rule);
        if self.control.flow_mod(self.bridges[bridge], &fm, self.now_ms).is_ok() {
            self.changed.push(rule.matching.clone());
            self.model.bridges[bridge].put(table, rule);
        }
    }

    fn delete(&mut self, chance: &mut Chance) {
        let bridge = usize::from(chance.one_in(3));
        let Some((fm, gone)) = self.model.bridges[bridge].delete(chance) else { return };
        self.control.flow_mod(self.bridges[bridge], &fm, self.now_ms).unwrap();
        self.changed.extend(gone);
    }

    fn modify(&mut self, chance: &mut Chance) {
        let bridge = usize::from(chance.one_in(3));
        let tables = &self.model.bridges[bridge].tables;
        let all: Vec<(u8, ModelRule)> =
            tables.iter().flat_map(|(t, rules)| rules.iter().map(|r| (*t, r.clone()))).collect();
        if all.is_empty() {
            return;
        }
        let (table, rule) = chance.pick(&all).clone();
        // A plain rule made of a clause might overlap others.
        let actions = match is_clause(&rule.actions) {
            true => random_clauses(chance),
            false => random_plain_actions(chance, table, &rule.matching),
        };
        let fm = FlowMod {
            command: Command::ModifyStrict,
            table_id: table,
            priority: rule.priority,
            version: openflow::Version::V10,
            ..FlowMod::add(rule.matching.clone(), actions.clone())
        };
        // Actions that do not go together are refused, and nothing is changed.
        if self.control.flow_mod(self.bridges[bridge], &fm, self.now_ms).is_err() {
            return;
        }
        let rules = self.model.bridges[bridge].tables.get_mut(&table).unwrap();
        for r in rules.iter_mut().filter(|r| r.matching == rule.matching && r.priority == rule.priority) {
            r.actions.clone_from(&actions);
        }
        self.changed.push(rule.matching);
    }

    /// Something changes.
    pub fn change(&mut self, chance: &mut Chance) {
        self.now_ms += 10;
        let bridge = usize::from(chance.one_in(3));
        match chance.below(16) {
            15 => self.bundle(chance),
            14 => self.change_meters(chance),
            12..=13 => self.change_groups(chance),
            0..=4 => self.add_rule(chance),
            5..=6 => self.delete(chance),
            7..=8 => self.modify(chance),
            9 => {
                let of_port = chance.below(PORTS) as u16 + 1;
                let spec = self.port_spec(bridge, of_port, chance);
                self.put_port(bridge, spec);
            }
            10 => {
                let of_port = *chance.pick(&[1, 2, 3, 4, 9]);
                if chance.one_in(3) {
                    self.remove_port(bridge, of_port);
                } else if of_port == 9 {
                    let far = [Some(port_no(1 - bridge, 9)), None];
                    let kind = PortKind::Patch { peer: *chance.pick(&far) };
                    self.put_port(
                        bridge,
                        PortSpec { kind, ..PortSpec::new(port_no(bridge, 9), OfPort(9), "patch") },
                    );
                }
            }
            _ => {
                if chance.one_in(2) {
                    let model = &mut self.model.bridges[bridge];
                    let vlans: Vec<u16> =
                        if chance.one_in(2) { vec![] } else { vec![*chance.pick(&[0, 10])] };
                    if vlans != model.flood_vlans {
                        model.macs.clear();
                    }
                    model.flood_vlans = vlans;
                    model.forward_bpdu = chance.one_in(3);
                    model.vlan_limit = chance.below(2) as usize + 1;
                    model.fragments = *chance.pick(&[
                        Fragments::Normal,
                        Fragments::NxMatch,
                        Fragments::Normal,
                        Fragments::Drop,
                    ]);
                    let mut config = BridgeConfig::new(&format!("br{bridge}"));
                    config.flood_vlans = model.flood_vlans.iter().copied().collect();
                    config.forward_bpdu = model.forward_bpdu;
                    config.vlan_limit = model.vlan_limit as u8;
                    config.fragments = model.fragments;
                    self.control.set_bridge(self.bridges[bridge], config).unwrap();
                } else {
                    self.model.bridges[bridge].macs.clear();
                    self.control.fdb_flush(self.bridges[bridge]);
                }
            }
        }
        if chance.one_in(4) {
            self.control.tick(self.now_ms);
            self.reader.quiescent();
        }
    }

    /// A group is added, replaced or deleted, with the rules that refer to it.
    fn change_groups(&mut self, chance: &mut Chance) {
        let bridge = usize::from(chance.one_in(3));
        let change = self.model.bridges[bridge].change_group(chance);
        self.control.group_mod(self.bridges[bridge], &change, self.now_ms).unwrap();
        // What such rules match is where packets find out.
        let of_groups = |r: &&ModelRule| r.actions.iter().any(|a| matches!(a, Action::Group(_)));
        let tables = &self.model.bridges[bridge].tables;
        self.changed.extend(tables.values().flatten().find(of_groups).map(|r| r.matching.clone()));
    }

    /// What was learned is written down.
    pub fn learn(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Learn { bridge, vlan, mac, port } = effect.clone() else { continue };
            let model = &mut self.model.bridges[bridge.0 as usize];
            // Not of a port that went while the effect was on its way.
            if model.ports.values().any(|p| p.port_no == port) {
                model.macs.insert((vlan, mac), port);
            }
        }
        self.control.apply(effects, self.now_ms);
    }

    pub fn version(&self) -> Version {
        self.switch.version()
    }

    pub fn translate(&self, key: &Key) -> Translation<Effect> {
        let mut out = Translation::default();
        self.switch.translate(self.version(), key, &self.reader, &mut out);
        out
    }

    /// A packet, likely one that some rule matches or nearly does.
    pub fn packet(&self, chance: &mut Chance) -> Key {
        let bridge = usize::from(chance.one_in(3));
        let mut key = random_packet(chance, bridge);
        let near = match chance.below(3) {
            0 => None,
            1 => self.changed.last().cloned(),
            _ => {
                let rules: Vec<&ModelRule> = self.model.bridges[bridge].tables.values().flatten().collect();
                if rules.is_empty() { None } else { Some(chance.pick(&rules).matching.clone()) }
            }
        };
        if let Some(near) = near {
            draw_near(&mut key, &near);
        }
        // Conjunctions are met by what several rules match.
        let clauses = self.model.bridges[bridge].tables.values().flatten().filter(|r| is_clause(&r.actions));
        let clauses: Vec<&ModelRule> = clauses.collect();
        for _ in 0..if clauses.is_empty() { 0 } else { chance.below(3) } {
            draw_near(&mut key, &chance.pick(&clauses).matching);
        }
        if !is_possible(&key) {
            return self.packet(chance);
        }
        self.number_port(&mut key);
        key
    }

    /// Gives the key the OpenFlow number of its port, as extraction does.
    pub fn number_port(&self, key: &mut Key) {
        let port = PortNo(key.get64(FieldId::DpPort) as u32);
        key.set(FieldId::InPort, self.switch.port_view(port).get().0.0.into());
    }
}

/// What changes the model as the switch is asked to.
impl ModelBridge {
    pub(super) fn put(&mut self, table: u8, rule: ModelRule) {
        let rules = self.tables.entry(table).or_default();
        rules.retain(|r| r.matching != rule.matching || r.priority != rule.priority);
        rules.push(rule);
    }

    /// Some rule goes, and others with it where the deletion is a loose one. What those that went matched.
    pub(super) fn delete(&mut self, chance: &mut Chance) -> Option<(FlowMod, Vec<Match>)> {
        let all: Vec<(u8, ModelRule)> =
            self.tables.iter().flat_map(|(t, rules)| rules.iter().map(|r| (*t, r.clone()))).collect();
        if all.is_empty() {
            return None;
        }
        let (table, rule) = chance.pick(&all).clone();
        let is_loose = chance.one_in(4);
        let fm = FlowMod {
            command: if is_loose { Command::Delete } else { Command::DeleteStrict },
            table_id: table,
            priority: rule.priority,
            ..FlowMod::delete(rule.matching.clone())
        };
        let rules = self.tables.get_mut(&table).expect("the rule is in it");
        let gone = |r: &ModelRule| match is_loose {
            true => r.matching.is_within(&rule.matching),
            false => r.matching == rule.matching && r.priority == rule.priority,
        };
        let matched = rules.iter().filter(|r| gone(r)).map(|r| r.matching.clone()).collect();
        rules.retain(|r| !gone(r));
        Some((fm, matched))
    }

    /// A group comes, is replaced, or goes with the rules that refer to it.
    pub(super) fn change_group(&mut self, chance: &mut Chance) -> GroupMod {
        let group = random_group(chance);
        let id = group.group_id;
        let command = if chance.one_in(4) { GroupCommand::Delete } else { GroupCommand::AddOrModify };
        let change = GroupMod { command, command_bucket_id: BUCKET_ALL, group };
        if command == GroupCommand::AddOrModify {
            self.groups.insert(id, change.group.clone());
        } else if self.groups.remove(&id).is_some() {
            let refers = |a: &Action| match a {
                Action::Group(group) => *group == id,
                Action::WriteActions(list) => list.contains(&Action::Group(id)),
                _ => false,
            };
            self.tables.values_mut().for_each(|rules| rules.retain(|r| !r.actions.iter().any(refers)));
        }
        change
    }
}

pub(super) fn random_rule(of_bridge: &ModelBridge, chance: &mut Chance, bridge: usize) -> (u8, ModelRule) {
    let table = if chance.one_in(2) { 0 } else { chance.below(TABLES) as u8 };
    let old = of_bridge.tables.get(&table).and_then(|t| t.first().cloned());
    let matching = match old {
        Some(old) if chance.one_in(8) => old.matching,
        _ => random_match(chance, bridge),
    };
    let actions = random_actions(chance, table, &matching);
    let priority = if is_clause(&actions) { 4 + chance.below(3) as i32 } else { chance.below(8) as i32 };
    (table, ModelRule { priority, matching, actions })
}

/// What asks for a rule.
pub(super) fn addition(table_id: u8, rule: &ModelRule) -> FlowMod {
    let ModelRule { priority, matching, actions } = rule.clone();
    let mut fm = FlowMod { table_id, priority, ..FlowMod::add(matching, actions) };
    // Which of two overlapping rules of one priority wins is open, so there are none.
    // But rules that are clauses must overlap, and a plain one of their priority goes before them.
    fm.flags.check_overlap = !is_clause(&rule.actions);
    fm.version = openflow::Version::V10;
    fm
}

/// Takes over what the match says of the packet itself.
pub fn draw_near(key: &mut Key, near: &Match) {
    for &f in HEADER {
        key.set_masked(f, near.key.get(f), near.mask.get(f));
    }
}

/// Fields of the packet itself that worlds use.
pub const HEADER: &[FieldId] = &[
    FieldId::EthType,
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::VlanTci,
    FieldId::VlanTpid,
    FieldId::VlanTci2,
    FieldId::VlanTpid2,
    FieldId::NwSrc,
    FieldId::NwDst,
    FieldId::NwProto,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::NwFrag,
    FieldId::TpSrc,
    FieldId::TpDst,
    FieldId::TcpFlags,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::Ipv6ExtHdr,
];

/// The protocols of IPv6 here: no next header, and one for experiments, which has no header to be read.
const PROTOCOLS6: [u64; 2] = [59, 253];

/// The extension headers that come, as OpenFlow's bits: none, hop-by-hop and destination options, both, and
/// both the other way round. "No next header" is a matter of the protocol.
const EXTENSIONS: [u64; 5] = [0, 1 << 6, 1 << 3, 1 << 6 | 1 << 3, 1 << 8 | 1 << 3];

/// Whether extraction could have made this key.
pub fn is_possible(key: &Key) -> bool {
    let tag = |tci, tpid| {
        let (tci, tpid) = (key.get64(tci), key.get64(tpid));
        if tci & 0x1000 == 0 { tci == 0 && tpid == 0 } else { tpid == 0x8100 || tpid == 0x88a8 }
    };
    let outer = tag(FieldId::VlanTci, FieldId::VlanTpid);
    let inner = tag(FieldId::VlanTci2, FieldId::VlanTpid2)
        && (key.get64(FieldId::VlanTci) != 0 || key.get64(FieldId::VlanTci2) == 0);
    let zero = |fields: &[FieldId]| fields.iter().all(|f| key.get(*f) == 0);
    // Protocol and opcode 0 say that the header was not read, and then nothing in it is set: another test's
    // affair.
    let is_read = key.get64(FieldId::NwProto) != 0;
    let is_ipv6 = key.get64(FieldId::EthType) == 0x86dd;
    let network = match key.get64(FieldId::EthType) {
        0x800 | 0x806 if !is_read => false,
        _ if !is_ipv6 && !zero(&[FieldId::Ipv6Src, FieldId::Ipv6Dst, FieldId::Ipv6ExtHdr]) => false,
        0x86dd => {
            let (proto, bits) = (key.get64(FieldId::NwProto), key.get64(FieldId::Ipv6ExtHdr));
            PROTOCOLS6.contains(&proto)
                && bits & 1 == u64::from(proto == 59)
                && EXTENSIONS.contains(&(bits & !1))
                && zero(&[FieldId::NwSrc, FieldId::NwDst, FieldId::NwFrag])
                && zero(&[FieldId::TpSrc, FieldId::TpDst, FieldId::TcpFlags])
        }
        0x800 => {
            let proto = key.get64(FieldId::NwProto);
            let later = key.get64(FieldId::NwFrag) & 2 != 0;
            matches!(key.get64(FieldId::NwFrag), 0 | 1 | 3)
                && (matches!(proto, 6 | 17) && !later || zero(&[FieldId::TpSrc, FieldId::TpDst]))
                && (proto == 6 && !later || zero(&[FieldId::TcpFlags]))
        }
        0x806 => zero(&[
            FieldId::NwTos,
            FieldId::NwTtl,
            FieldId::NwFrag,
            FieldId::TpSrc,
            FieldId::TpDst,
            FieldId::TcpFlags,
        ]),
        _ => zero(&HEADER[7..]),
    };
    outer && inner && network
}

pub fn random_packet(chance: &mut Chance, bridge: usize) -> Key {
    let mut key = Key::default();
    let mut set = |f: FieldId, v: u64| key.set(f, v.into());
    let of_port = if chance.one_in(30) { 77 } else { chance.below(PORTS) as u16 + 1 };
    set(FieldId::DpPort, port_no(bridge, of_port).0.into());
    set(FieldId::EthSrc, *chance.pick(MACS));
    set(FieldId::EthDst, *chance.pick(MACS));
    if chance.one_in(3) {
        set(FieldId::VlanTpid, 0x8100);
        set(FieldId::VlanTci, 0x1000 | *chance.pick(&[0, 10, 20, 0x600a]));
        if chance.one_in(3) {
            set(FieldId::VlanTpid2, 0x8100);
            set(FieldId::VlanTci2, 0x1000 | *chance.pick(&[10, 30]));
        }
    }
    match chance.below(9) {
        8 => {
            set(FieldId::EthType, 0x86dd);
            set(FieldId::Ipv6Src, chance.below(4));
            set(FieldId::Ipv6Dst, chance.below(4));
            set(FieldId::NwTtl, *chance.pick(&[0, 1, 2, 64]));
            let proto = *chance.pick(&PROTOCOLS6);
            set(FieldId::NwProto, proto);
            set(FieldId::Ipv6ExtHdr, *chance.pick(&EXTENSIONS) | u64::from(proto == 59));
        }
        0 => {
            set(FieldId::EthType, 0x806);
            set(FieldId::NwProto, chance.below(2) + 1);
            set(FieldId::NwSrc, 0x0a00_0000 + chance.below(8));
            set(FieldId::NwDst, 0x0a00_0000 + chance.below(8));
        }
        1 => set(FieldId::EthType, 0x88cc),
        _ => {
            set(FieldId::EthType, 0x800);
            set(FieldId::NwSrc, *chance.pick(&[0x0a00_0000, 0x0a01_0000, 0xc0a8_0100]) + chance.below(8));
            set(FieldId::NwDst, *chance.pick(&[0x0a00_0000, 0x0a01_0000, 0xc0a8_0100]) + chance.below(8));
            set(FieldId::NwTtl, *chance.pick(&[0, 1, 2, 64]));
            set(FieldId::NwTos, *chance.pick(&[0, 0x28, 0x90, 0xb8]));
            let proto = *chance.pick(&[6, 17, 17, 1]);
            set(FieldId::NwProto, proto);
            let frag = *chance.pick(&[0, 0, 0, 0, 1, 3]);
            set(FieldId::NwFrag, frag);
            if frag != 3 && proto != 1 {
                set(FieldId::TpSrc, *chance.pick(&[53, 80, 1000]));
                set(FieldId::TpDst, *chance.pick(&[53, 80, 1000]));
                set(FieldId::TcpFlags, if proto == 6 { chance.below(4) } else { 0 });
            }
        }
    }
    key
}

const MACS: &[u64] = &[
    0x0200_0000_0001,
    0x0200_0000_0002,
    0x0200_0000_0003,
    0x0200_0000_0004,
    0x0100_5e00_0001,
    0xffff_ffff_ffff,
    0x0180_c200_0000,
    0x0180_c200_000e,
];

fn random_match(chance: &mut Chance, bridge: usize) -> Match {
    let like = random_packet(chance, bridge);
    let mut m = Match::any();
    let mut take = |f: FieldId, mask: u128| m.set_masked(f, like.get(f), mask & f.ones());
    let prefix = |chance: &mut Chance| u128::from(u32::MAX << chance.below(25));
    if chance.one_in(2) {
        take(FieldId::EthType, 0xffff);
        if like.get64(FieldId::EthType) == 0x86dd {
            if chance.one_in(2) {
                take(FieldId::Ipv6ExtHdr, *chance.pick(&[1, 1 << 3, 1 << 6, 0x140, 0x1ff]));
            }
            if chance.one_in(4) {
                take(FieldId::NwProto, 0xff);
            }
            if chance.one_in(4) {
                take(FieldId::Ipv6Dst, *chance.pick(&[u128::MAX, u128::MAX << 1]));
            }
            if chance.one_in(6) {
                take(FieldId::NwTtl, 0xff);
            }
        }
        if like.get64(FieldId::EthType) == 0x800 {
            let exact = chance.one_in(2);
            for f in [FieldId::NwSrc, FieldId::NwDst] {
                if chance.one_in(2) {
                    let mask = if exact { u128::MAX } else { prefix(chance) };
                    take(f, mask);
                }
            }
            if chance.one_in(4) {
                take(FieldId::NwFrag, *chance.pick(&[1, 2, 3]));
            }
            if chance.one_in(6) {
                take(FieldId::NwTtl, 0xff);
            }
            if chance.one_in(3) {
                take(FieldId::NwProto, 0xff);
                if like.get64(FieldId::NwProto) != 1 {
                    if chance.one_in(2) {
                        let mask = *chance.pick(&[0xffff, 0xfff0]);
                        take(FieldId::TpDst, mask);
                    }
                    if chance.one_in(3) {
                        take(FieldId::TpSrc, 0xffff);
                    }
                }
            }
        }
    }
    if chance.one_in(4) {
        take(FieldId::EthDst, *chance.pick(&[u128::MAX, 0x0100_0000_0000]));
    }
    if chance.one_in(6) {
        take(FieldId::EthSrc, u128::MAX);
    }
    if chance.one_in(5) {
        take(FieldId::VlanTci, *chance.pick(&[0x1fff, 0x1000, 0xffff, 0xf000]));
    }
    if chance.one_in(3) {
        m.set_masked(FieldId::InPort, *chance.pick(&[1, 2, 3, 4, 9]), 0xffff);
    }
    if chance.one_in(4) {
        m.set_masked(FieldId::Reg0, chance.below(3).into(), *chance.pick(&[1, 3, 0xffff_ffff]));
    }
    if chance.one_in(8) {
        m.set_masked(FieldId::Metadata, chance.below(3).into(), *chance.pick(&[1, 3]));
    }
    if chance.one_in(8) {
        m.set_masked(FieldId::CtMark, chance.below(3).into(), 3);
    }
    if chance.one_in(8) {
        // With little else, so that what meets the clauses meets this.
        m = Match::any();
        m.set_masked(FieldId::ConjId, chance.below(CONJUNCTIONS).into(), u32::MAX.into());
        if chance.one_in(4) {
            m.set_masked(FieldId::InPort, *chance.pick(&[1, 2, 3, 4, 9]), 0xffff);
        }
    }
    m
}

fn output(port: OfPort) -> Action {
    Action::Output { port, max_len: 0 }
}

fn is_clause(actions: &[Action]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Conjunction { .. }))
}

/// Few ids, so that clauses meet.
const CONJUNCTIONS: u64 = 2;

fn random_clauses(chance: &mut Chance) -> Vec<Action> {
    let clause = |chance: &mut Chance| Action::Conjunction {
        id: chance.below(CONJUNCTIONS) as u32,
        clause: chance.below(2) as u8,
        n_clauses: 2,
    };
    (0..chance.below(2) + 1).map(|_| clause(chance)).collect()
}

fn random_actions(chance: &mut Chance, table: u8, m: &Match) -> Vec<Action> {
    let asks_for_conjunction = m.mask.get(FieldId::ConjId) != 0;
    if !asks_for_conjunction && chance.one_in(4) {
        return random_clauses(chance);
    }
    random_plain_actions(chance, table, m)
}

fn random_plain_actions(chance: &mut Chance, table: u8, m: &Match) -> Vec<Action> {
    let mut list: Vec<Action> = (0..chance.below(5)).map(|_| random_action(chance, table, true)).collect();
    if chance.one_in(6) {
        list.insert(0, Action::Meter(chance.below(METERS) as u32 + 1));
    }
    if chance.one_in(3) && u64::from(table) + 1 < TABLES {
        list.push(Action::GotoTable(table + 1 + chance.below(TABLES - u64::from(table) - 1) as u8));
    }
    // Some do not fit the match, which the switch refuses: then the rest.
    list.retain(|a| fits(a, m));
    list
}

fn fits(action: &Action, m: &Match) -> bool {
    let sub_ok = |s: &SubField| m.has_prereq(s.field);
    match action {
        // Of OpenFlow 1.0's own actions, nothing is asked.
        Action::SetField { field: Mf::NwSrc | Mf::NwDst, .. } => true,
        Action::SetField { field, .. } => m.has_prereq(*field),
        Action::Load { target, .. } | Action::StackPop(target) => sub_ok(target),
        Action::Move { source, target } => sub_ok(source) && sub_ok(target),
        Action::StackPush(s) => sub_ok(s),
        Action::WriteActions(list) | Action::Clone(list) => list.iter().all(|a| fits(a, m)),
        _ => true,
    }
}

fn sub(field: Mf, offset: u16, count: u16) -> SubField {
    SubField { field, offset, count }
}

fn random_set(chance: &mut Chance) -> Action {
    let set = |field: Mf, value: u64, mask: u128| Action::SetField {
        field,
        value: u128::from(value) & mask,
        mask: mask & field.ones(),
    };
    match chance.below(20) {
        11 => Action::SetTpSrc(*chance.pick(&[53, 80])),
        12 => Action::SetTpDst(*chance.pick(&[53, 80])),
        13 => Action::SetNwTtl(*chance.pick(&[1, 9])),
        14 => Action::CtClear,
        15 => set(Mf::CtMark, chance.below(3), u128::MAX),
        0 => set(Mf::EthDst, *chance.pick(MACS), u128::MAX),
        1 => set(Mf::EthSrc, *chance.pick(MACS), u128::MAX),
        2 => set(Mf::NwDst, 0x0a00_0000 + chance.below(8), u128::MAX),
        3 => set(Mf::NwSrc, 0x0a01_0000, 0xffff_0000),
        4 => set(Mf::UdpDst, *chance.pick(&[53, 80]), u128::MAX),
        5 => set(Mf::TcpDst, *chance.pick(&[53, 80]), u128::MAX),
        6 => set(Mf::Reg(0), chance.below(4), u128::MAX),
        7 => set(Mf::PktMark, chance.below(3), u128::MAX),
        8 => set(Mf::VlanTci, *chance.pick(&[0, 0x100a, 0x1014]), u128::MAX),
        9 => set(Mf::VlanVid, *chance.pick(&[0x100a, 0x1014]), 0x1fff),
        10 => set(Mf::IpDscp, 12, u128::MAX),
        _ => Action::Load { target: sub(Mf::Reg(0), 0, 1), value: chance.below(2) },
    }
}

/// Actions that are rarer in rules.
/// Groups refer to such of greater numbers only, so that there are no loops.
const GROUPS: u64 = 4;

pub const METERS: u64 = 2;

fn random_group(chance: &mut Chance) -> GroupDesc {
    let group_id = chance.below(GROUPS) as u32 + 1;
    let kind = GroupType::ALL[chance.below(4) as usize].0;
    let count = if kind == GroupType::Indirect { 1 } else { chance.below(4) };
    let mut buckets: Vec<Bucket> = (0..count).map(|n| random_bucket(chance, n as u32, group_id)).collect();
    let mut selection = GroupSelection::default();
    match kind {
        GroupType::Select => {
            let actions = buckets.first().map(|b| b.actions.clone()).unwrap_or_default();
            buckets.iter_mut().for_each(|b| b.actions.clone_from(&actions));
            // Not by the datapath's hash: there is no second round here.
            selection.method = "hash".to_string();
            if chance.one_in(2) {
                let fields = [
                    (Mf::EthSrc, Mf::EthSrc.ones()),
                    (Mf::NwDst, 0xff),
                    (Mf::TcpSrc, 0xffff),
                    (Mf::Reg(0), 3),
                ];
                selection.fields = fields.into_iter().filter(|_| chance.one_in(2)).collect();
            }
        }
        GroupType::FastFailover => {
            let watch = |b: &mut Bucket| b.watch_port = b.watch_port.or(Some(OfPort(1 + b.id as u16)));
            buckets.iter_mut().for_each(watch);
        }
        GroupType::All | GroupType::Indirect => {}
    }
    GroupDesc { group_id, kind, buckets, selection }
}

fn random_bucket(chance: &mut Chance, id: u32, group_id: u32) -> Bucket {
    let watched = |chance: &mut Chance| group_id + 1 + chance.below(2) as u32;
    let mut actions: Vec<Action> = (0..chance.below(3)).map(|_| random_set(chance)).collect();
    actions.push(match chance.below(8) {
        0 => Action::Group(group_id + 1),
        1 => Action::Resubmit { in_port: None, table: Some(GROUP_TABLES + chance.below(2) as u8), ct: false },
        2 => output(*chance.pick(&[OfPort::CONTROLLER, OfPort::IN_PORT, OfPort::NORMAL])),
        3 => Action::PopVlan,
        _ => output(OfPort(*chance.pick(&[1, 2, 3, 4, 9]))),
    });
    if chance.one_in(3) {
        actions.insert(0, output(OfPort(3)));
    }
    Bucket {
        id,
        weight: *chance.pick(&[1, 1, 0, 7]),
        watch_port: chance.one_in(3).then(|| OfPort(chance.below(PORTS) as u16 + 1)),
        watch_group: chance.one_in(6).then(|| watched(chance)),
        actions,
    }
}

/// Rules of the tables before this one refer to groups, whose buckets resubmit to it and those behind it.
const GROUP_TABLES: u8 = 2;

fn rare_action(chance: &mut Chance) -> Action {
    let port = OfPort(chance.below(5) as u16);
    match chance.below(8) {
        0 => Action::OutputReg { source: sub(Mf::Reg(0), 0, 16), max_len: 0 },
        1 => Action::OutputTrunc { port, max_len: 0xffff },
        2 => Action::Controller {
            max_len: 0xffff,
            reason: flow::action::PacketInReason::Action,
            id: 0,
            userdata: vec![],
            meter_id: None,
            pause: false,
        },
        3 => Action::Enqueue { port, queue: chance.below(3) as u32 },
        4 => Action::PopQueue,
        5 => Action::SetTunnel { id: chance.below(3), wide: true },
        6 => Action::Sample {
            probability: 0xffff,
            collector_set_id: 1,
            obs_domain_id: 2,
            obs_point_id: 3,
            sampling_port: OfPort::NONE,
            direction: flow::action::SampleDirection::Default,
        },
        _ => Action::Note(vec![1, 2]),
    }
}

fn random_action(chance: &mut Chance, table: u8, nest: bool) -> Action {
    match chance.below(34) {
        32..=33 if table < GROUP_TABLES => {
            let group = Action::Group(chance.below(GROUPS) as u32 + 1);
            if nest && chance.one_in(3) { Action::WriteActions(vec![group]) } else { group }
        }
        30..=31 => rare_action(chance),
        0..=8 => output(OfPort(*chance.pick(&[1, 2, 3, 4, 5, 9, 9]))),
        9 => output(*chance.pick(&[OfPort::FLOOD, OfPort::ALL, OfPort::IN_PORT, OfPort::CONTROLLER])),
        10..=11 => output(OfPort::NORMAL),
        12..=16 => random_set(chance),
        17 => Action::Move { source: sub(Mf::NwSrc, 0, 2), target: sub(Mf::Reg(0), 0, 2) },
        18 => Action::Move { source: sub(Mf::EthSrc, 0, 48), target: sub(Mf::EthDst, 0, 48) },
        19 => Action::Move { source: sub(Mf::InPort, 0, 16), target: sub(Mf::Reg(0), 0, 16) },
        20 => Action::StackPush(sub(Mf::EthDst, 0, 3)),
        21 => Action::StackPop(sub(Mf::Reg(0), 0, 3)),
        22 => Action::PushVlan(*chance.pick(&[0x8100, 0x88a8])),
        23 => Action::PopVlan,
        24 => match chance.below(3) {
            0 => Action::SetVlanVid { vid: *chance.pick(&[0, 10, 20]), push_vlan_if_needed: true },
            1 => Action::SetVlanPcp { pcp: chance.below(8) as u8, push_vlan_if_needed: true },
            _ => Action::SetQueue(chance.below(3) as u32),
        },
        25 => Action::DecTtl(vec![]),
        26 if nest => {
            let list = (0..2).map(|_| random_action(chance, table, false));
            Action::Clone(list.filter(|a| !matches!(a, Action::Group(_))).collect())
        }
        27 if nest => {
            let ordinary = [output(OfPort(*chance.pick(&[1, 2, 3]))), random_set(chance), Action::PopVlan];
            Action::WriteActions(vec![chance.pick(&ordinary).clone()])
        }
        29 if nest => Action::CheckPktLarger {
            length: *chance.pick(&[99, 149, 150, 200]),
            target: sub(Mf::Reg(0), *chance.pick(&[0, 0, 1]), 1),
        },
        28 => Action::WriteMetadata { value: chance.below(4), mask: 3 },
        _ if u64::from(table) + 1 < TABLES => {
            let to = table + 1 + chance.below(TABLES - u64::from(table) - 1) as u8;
            let in_port = chance.one_in(4).then(|| OfPort(chance.below(4) as u16 + 1));
            Action::Resubmit { in_port, table: Some(to), ct: false }
        }
        _ => Action::Exit,
    }
}
