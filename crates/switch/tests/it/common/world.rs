//! Worlds: a real switch and its model, made and changed alike. Packets come near their rules.
//!
//! Values come from small pools, so that rules overlap, packets hit them, and changes hit flows.

use super::chance::Chance;
use super::meters::{Clocked, Rates};
use super::model::{Model, ModelBridge, ModelRule};
use super::packets::{PORTS, draw_near, is_possible, port_no, random_packet};
use super::rules::{addition, is_clause, random_clauses, random_group, random_plain_actions, random_rule};
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo, Version};
use datapath::{Pipeline, Translation};
use flow::{Action, FieldId, Key, Match};
use openflow::message::{BUCKET_ALL, GroupCommand, GroupMod};
use std::sync::Arc;
use switch::control::{Command, FlowMod};
use switch::{
    BridgeConfig, BridgeIdx, Control, Effect, Fragments, PortKind, PortSpec, PriorityTags, Switch,
    VlanColumns, VlanConfig, VlanMode,
};

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
