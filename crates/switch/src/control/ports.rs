//! Bridges and ports.

use super::state::{BridgeControl, Control, Inner};
use super::store::RuleStore;
use crate::changelog::{rule_table, word_table};
use crate::group::GroupTable;
use crate::mac::MacTable;
use crate::meter::MeterTable;
use crate::table::Table;
use crate::topology::{Bridge, BridgeConfig, BridgeIdx, BridgeState, Port, PortKind, PortSpec};
use base::rcu::Reader;
use base::{OfPort, PortNo};
use flow::Depth;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Why a port or bridge could not be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortError {
    /// There is no such bridge.
    NoBridge(BridgeIdx),
    /// There is no such port.
    NoPort(PortNo),
    /// The datapath's number is 0, above 65,535, or taken.
    BadPortNo(PortNo),
    /// The OpenFlow number is 0, reserved, or taken.
    BadOfPort(OfPort),
}

impl std::fmt::Display for PortError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortError::NoBridge(b) => write!(f, "there is no bridge with number {}", b.0),
            PortError::NoPort(p) => write!(f, "there is no port {p}"),
            PortError::BadPortNo(p) => write!(f, "port number {p} is taken or out of range"),
            PortError::BadOfPort(p) => write!(f, "OpenFlow port number {} is taken or out of range", p.0),
        }
    }
}

impl std::error::Error for PortError {}

impl Control {
    /// Creates a bridge without ports and rules.
    pub fn add_bridge(&mut self, config: BridgeConfig) -> BridgeIdx {
        self.enter();
        let inner = &mut self.inner;
        let free = inner.bridges.iter().position(|b| b.is_none());
        let idx = BridgeIdx(free.unwrap_or(inner.bridges.len()) as u32);
        let state = Arc::new(BridgeState {
            tables: (0..256).map(|_| OnceLock::new()).collect(),
            macs: MacTable::new(inner.switch.domain.clone(), inner.switch.secret),
            groups: GroupTable::new(inner.switch.domain.clone(), inner.switch.secret),
            meters: MeterTable::new(inner.switch.domain.clone(), inner.switch.secret),
        });
        let control = BridgeControl {
            state: state.clone(),
            tables: BTreeMap::new(),
            macs: Default::default(),
            groups: Default::default(),
            meters: Default::default(),
            by_cookie: Default::default(),
        };
        if free.is_none() {
            inner.bridges.push(None);
            inner.topology.bridges.push(None);
        }
        inner.bridges[idx.0 as usize] = Some(control);
        inner.table(idx, 0);
        inner.topology.bridges[idx.0 as usize] = Some(Arc::new(Bridge::new(idx, config, state)));
        inner.topology_changed = true;
        inner.switch.frozen.update(|old| old.with_bridge(idx));
        // A reused number must not be mistaken for the bridge that had it before.
        let version = inner.coming();
        inner.log.everything(version);
        inner.publish();
        idx
    }

    /// Replaces the configuration of a bridge as a whole. If the set of flooded VLANs changes, all learned
    /// addresses are forgotten, in turns if they are many.
    pub fn set_bridge(&mut self, idx: BridgeIdx, config: BridgeConfig) -> Result<(), PortError> {
        self.enter();
        let inner = &mut self.inner;
        let old = inner.topology.bridge(idx).ok_or(PortError::NoBridge(idx))?;
        if old.config == config {
            return Ok(());
        }
        let mut new = Bridge::clone(old);
        let forgets = old.config.flood_vlans != config.flood_vlans;
        new.config = config;
        inner.topology.bridges[idx.0 as usize] = Some(Arc::new(new));
        inner.topology_changed = true;
        let version = inner.coming();
        inner.log.word(word_table::ports(idx.0), word_table::SETTINGS, version);
        if forgets {
            inner.flush_learned_macs(idx, &self.reader);
        }
        inner.shrink_macs(idx, &self.reader);
        inner.recompute_depths();
        inner.publish();
        Ok(())
    }

    /// Whether no worker sees any removed rule or address of a bridge, and all their memory is freed.
    pub fn is_drained(&self, idx: BridgeIdx) -> bool {
        let control = self.inner.bridge(idx);
        let is_drained =
            |c: &BridgeControl| c.tables.values().all(|store| store.vanishing == 0) && c.macs.is_drained();
        control.is_none_or(is_drained) && self.inner.depths.is_drained(idx)
    }

    /// Removes a bridge with its ports, rules and addresses.
    pub fn remove_bridge(&mut self, idx: BridgeIdx, now_ms: u64) -> Result<(), PortError> {
        self.enter_to_change();
        let inner = &mut self.inner;
        let bridge = inner.topology.bridge(idx).ok_or(PortError::NoBridge(idx))?.clone();
        let ports: Vec<PortNo> = bridge.ports().map(|p| p.spec.port_no).collect();
        for port in ports {
            inner.drop_port(port, &self.reader);
        }
        inner.remove_all_rules(idx, now_ms, &self.reader);
        inner.depths.remove_bridge(idx);
        inner.flush_all_macs(idx, &self.reader);
        inner.topology.bridges[idx.0 as usize] = None;
        inner.topology_changed = true;
        let version = inner.coming();
        inner.log.everything(version);
        inner.recompute_depths();
        inner.publish();
        let frozen = inner.switch.frozen.read(&self.reader).of(idx);
        inner.discard_frozen(frozen);
        inner.switch.frozen.update(|old| old.without_bridge(idx));
        // Rules and addresses that workers may still see are owned by the snapshots through which they see
        // them.
        let gone = inner.bridges[idx.0 as usize].take().expect("in the topology means here too");
        for store in gone.tables.values() {
            inner.slots.retire(store.matched_slot);
            inner.slots.retire(store.missed_slot);
        }
        gone.groups.by_id.values().for_each(|group| inner.retire_group(group, None));
        inner.forget_meters(&gone.meters);
        Ok(())
    }

    /// Whether packets that come in are forwarded; initially they are.
    pub fn set_forwarding(&mut self, forwards: bool) {
        self.enter();
        let inner = &mut self.inner;
        if inner.topology.is_paused == forwards {
            inner.topology.is_paused = !forwards;
            inner.topology_changed = true;
            let version = inner.coming();
            inner.log.everything(version);
            inner.publish();
        }
    }

    /// Adds a port to a bridge.
    pub fn add_port(&mut self, bridge: BridgeIdx, spec: PortSpec) -> Result<(), PortError> {
        self.enter();
        let inner = &mut self.inner;
        let found = inner.topology.bridge(bridge).ok_or(PortError::NoBridge(bridge))?;
        let in_range = (1..crate::switch::PORTS_MAX as u32).contains(&spec.port_no.0);
        if !in_range || inner.topology.port(spec.port_no).is_some() {
            return Err(PortError::BadPortNo(spec.port_no));
        }
        let number = spec.of_port.0;
        let reserved = number == 0 || number >= OfPort::MAX.0 && spec.of_port != OfPort::LOCAL;
        if reserved || found.port(spec.of_port).is_some() {
            return Err(PortError::BadOfPort(spec.of_port));
        }
        let is_patch = matches!(spec.kind, PortKind::Patch { .. });
        let mut slot = || if is_patch { inner.slots.allocate() } else { u32::MAX };
        let (rx_slot, tx_slot) = (slot(), slot());
        let port_no = spec.port_no;
        inner.put_port(Port { bridge, spec, rx_slot, tx_slot });
        inner.log_cables(&[port_no]);
        inner.recompute_depths();
        inner.publish();
        Ok(())
    }

    /// Replaces a port's configuration. Its two numbers must stay the same.
    pub fn modify_port(&mut self, spec: PortSpec) -> Result<(), PortError> {
        self.modify_ports(vec![spec])
    }

    /// The same of several ports, all in one version, or none of them if one cannot be. For many this costs
    /// far less than to change one after the other: each version has a list of all ports.
    pub fn modify_ports(&mut self, specs: Vec<PortSpec>) -> Result<(), PortError> {
        self.enter();
        let inner = &mut self.inner;
        for spec in &specs {
            let old = inner.topology.port(spec.port_no).ok_or(PortError::NoPort(spec.port_no))?;
            if old.spec.of_port != spec.of_port {
                return Err(PortError::BadOfPort(spec.of_port));
            }
        }
        let mut changed = Vec::new();
        for spec in specs {
            let port_no = spec.port_no;
            changed.extend(inner.replace_port(spec, &self.reader).then_some(port_no));
        }
        if !changed.is_empty() {
            inner.log_cables(&changed);
            inner.recompute_depths();
            inner.publish();
        }
        Ok(())
    }

    /// Removes a port and forgets the addresses behind it, in other bridges too: in turns if they are many.
    /// Until [`Self::is_remembered`] is false, no other port should have its number.
    pub fn remove_port(&mut self, port: PortNo) -> Result<(), PortError> {
        self.remove_ports(&[port])
    }

    /// Takes ports away, all in one version, or none of them if one does not exist. For many this costs far
    /// less than to take one after the other: each version has a list of all ports.
    pub fn remove_ports(&mut self, ports: &[PortNo]) -> Result<(), PortError> {
        self.enter();
        let inner = &mut self.inner;
        for port in ports {
            inner.port_bridge(*port).ok_or(PortError::NoPort(*port))?;
        }
        ports.iter().for_each(|port| inner.drop_port(*port, &self.reader));
        inner.log_cables(ports);
        inner.recompute_depths();
        inner.publish();
        Ok(())
    }
}

impl Inner {
    /// The table, created if it does not exist.
    pub(super) fn table(&mut self, bridge: BridgeIdx, table_id: u8) -> &mut RuleStore {
        let version = self.coming();
        let (switch, slots, log) = (&self.switch, &mut self.slots, &mut self.log);
        let has_new_table = &mut self.has_new_table;
        let control = self.bridges[bridge.0 as usize].as_mut().expect("the caller has looked it up");
        let state = &control.state;
        control.tables.entry(table_id).or_insert_with(|| {
            let (matched, missed) = (slots.allocate(), slots.allocate());
            state.tables[usize::from(table_id)]
                .get_or_init(|| Table::new(switch.domain.clone(), switch.secret, matched, missed));
            // Flows that found no table here have no slot to count misses.
            log.whole_table(rule_table(bridge.0, table_id), version);
            *has_new_table = true;
            let mut store = RuleStore::new(matched, missed);
            if control.by_cookie.contains(&table_id) {
                store.index_cookies();
            }
            store
        })
    }

    fn put_port(&mut self, port: Port) {
        let (port_no, of_port, bridge) = (port.spec.port_no, port.spec.of_port, port.bridge);
        let port = Arc::new(port);
        let ports = &mut self.topology.ports;
        if ports.len() <= port_no.0 as usize {
            ports.resize(port_no.0 as usize + 1, None);
        }
        ports[port_no.0 as usize] = Some(port.clone());
        self.change_bridge(bridge, of_port, Some(port));
        self.log_port(port_no, of_port, bridge);
        let depth = self.depths.of_bridge(bridge);
        self.switch.set_port(port_no, Some(of_port), depth);
    }

    /// Replaces the configuration of a port that is there. False if it is the same.
    fn replace_port(&mut self, spec: PortSpec, reader: &Reader) -> bool {
        let Some(old) = self.topology.port(spec.port_no).filter(|old| old.spec != spec).cloned() else {
            return false;
        };
        let is_patch = |kind| matches!(kind, PortKind::Patch { .. });
        let (mut rx_slot, mut tx_slot) = (old.rx_slot, old.tx_slot);
        if is_patch(spec.kind) && !is_patch(old.spec.kind) {
            (rx_slot, tx_slot) = (self.slots.allocate(), self.slots.allocate());
        }
        if old.spec.vlan != spec.vlan {
            self.flush_learned_macs_behind(old.bridge, spec.port_no, reader);
        }
        self.put_port(Port { bridge: old.bridge, spec, rx_slot, tx_slot });
        true
    }

    fn drop_port(&mut self, port_no: PortNo, reader: &Reader) {
        let Some(port) = self.topology.ports[port_no.0 as usize].take() else { return };
        self.flush_macs_of_gone(port.bridge, port_no, reader);
        self.change_bridge(port.bridge, port.spec.of_port, None);
        self.log_port(port_no, port.spec.of_port, port.bridge);
        self.switch.set_port(port_no, None, Depth::Metadata);
        if port.rx_slot != u32::MAX {
            self.slots.retire(port.rx_slot);
            self.slots.retire(port.tx_slot);
        }
    }

    fn change_bridge(&mut self, bridge: BridgeIdx, of_port: OfPort, port: Option<Arc<Port>>) {
        if let Some(slot) = &mut self.topology.bridges[bridge.0 as usize] {
            Arc::make_mut(slot).set_port(of_port, port);
        }
        self.topology_changed = true;
    }

    /// Logs that something about a port changed, for flows that came from it, go to it, or are flooded.
    fn log_port(&mut self, port_no: PortNo, of_port: OfPort, bridge: BridgeIdx) {
        let version = self.coming();
        self.log.word(word_table::DP_PORTS, u64::from(port_no.0), version);
        self.log.word(word_table::ports(bridge.0), word_table::port(of_port.0), version);
        self.log.word(word_table::ports(bridge.0), word_table::FLOOD, version);
    }

    /// Logs it too for flows that reach one of these ports through a patch port. All ports are looked at.
    fn log_cables(&mut self, changed: &[PortNo]) {
        let version = self.coming();
        let changed: HashSet<PortNo> = changed.iter().copied().collect();
        for port in self.topology.ports.iter().flatten() {
            let PortKind::Patch { peer: Some(peer) } = port.spec.kind else { continue };
            if !changed.contains(&peer) {
                continue;
            }
            let ports = word_table::ports(port.bridge.0);
            self.log.word(ports, word_table::port(port.spec.of_port.0), version);
            // A flood reaches it without looking up its number.
            self.log.word(ports, word_table::FLOOD, version);
        }
    }
}
