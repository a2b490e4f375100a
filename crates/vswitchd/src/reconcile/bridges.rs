//! Creating, changing and removing bridges.

use crate::config::wanted::{self, BridgeSettings};
use crate::ofproto::Ofproto;
use crate::own_changes::OwnChange;
use crate::port_watch::PortEvent;
use crate::state::{Vswitch, stable_mac};
use base::{OfPort, PortNo};
use datapath::Pipeline;
use packet::{Port, PortStatus};
use std::collections::BTreeMap;
use std::time::Instant;
use switch::{BridgeConfig, BridgeIdx, PortKind, PortSpec};

/// MTU of a bridge without ports to take it from.
const MTU_DEFAULT: u32 = 1500;
/// The highest MTU that a tap device takes: ports that are no devices have higher ones.
const MTU_MAX: u32 = 65_521;

impl Vswitch {
    /// Makes a bridge without ports.
    pub(super) fn add_bridge(&mut self, name: &str, wanted: &wanted::Bridge) {
        if self.bridges.is_empty() {
            self.plane.tell_features();
        }
        let mut config = switch_settings(BridgeConfig::new(name), &wanted.settings);
        config.vlan_limit = self.plane.switch.vlan_limit();
        let idx = self.plane.control.add_bridge(config);
        let mac = wanted.settings.hwaddr.unwrap_or_else(|| stable_mac(name));
        let born = self.plane.control.version();
        self.bridges.insert(idx, Ofproto { born, ..Ofproto::new(idx, mac, wanted) });
        self.forget_events_of(idx);
        self.update_datapath_id(idx);
        self.limit_tables(idx, []);
        if let Some(rule) = self.standalone_rule(idx) {
            self.change_by_itself(idx, [OwnChange::Rule(rule)]);
        }
        self.set_controllers(idx, &wanted.controllers, false);
    }

    /// Removes a bridge. Its connections are closed.
    pub(super) fn remove_bridge(&mut self, name: &str) {
        let Some(idx) = self.bridge_named(name).map(|b| b.idx) else { return };
        let left: Vec<_> = self.ports_of(idx).map(|p| p.port_no).collect();
        self.remove_ports(&left);
        if let Some(bridge) = self.bridges.remove(&idx) {
            // Their tasks look for them, and end.
            bridge.conns.values().for_each(|c| c.wake());
        }
        // What is not complete is completed, but no packets of its bundles are sent.
        self.connections.abandoned.retain(|(bridge, _)| *bridge != idx);
        self.change_by_itself(idx, [OwnChange::Remove]);
        tracing::debug!(target: "bridge", "bridge {name}: removed");
    }

    /// Changes settings of a bridge.
    pub(super) fn set_bridge(&mut self, name: &str, wanted: &wanted::Bridge) {
        let Some(idx) = self.bridge_named(name).map(|b| b.idx) else { return };
        if let Some(found) = self.plane.control.topology().bridge(idx) {
            let config = switch_settings(found.config.clone(), &wanted.settings);
            self.plane.control.set_bridge(idx, config).expect("it is there, looked up above");
        }
        let Some(bridge) = self.bridges.get_mut(&idx) else { return };
        bridge.controllers = wanted.controllers.clone();
        let old = std::mem::replace(&mut bridge.settings, wanted.settings.clone());
        self.update_datapath_id(idx);
        if old.flow_tables != wanted.settings.flow_tables {
            self.limit_tables(idx, old.flow_tables.keys().copied());
        }
        let protocols_changed = old.protocols != wanted.settings.protocols;
        self.set_controllers(idx, &wanted.controllers, protocols_changed);
        let has_primary = self.bridges.get(&idx).is_some_and(|b| b.control.has_primary());
        if old.fail_mode != wanted.settings.fail_mode && !has_primary {
            // As in Open vSwitch: rules made under the other mode are removed.
            self.flush_rules(idx);
        }
        if protocols_changed {
            self.close_other_versions(idx);
        }
    }

    /// The requested datapath id, or the bridge's address.
    fn update_datapath_id(&mut self, idx: BridgeIdx) {
        let Some(bridge) = self.bridges.get_mut(&idx) else { return };
        let mut id = [0; 8];
        id[2..].copy_from_slice(&bridge.mac);
        let id = bridge.settings.datapath_id.unwrap_or(u64::from_be_bytes(id));
        bridge.datapath_id = id;
    }

    /// Logs the datapath id if it has changed: after the interfaces, as scripts expect.
    fn tell_datapath_id(&mut self, idx: BridgeIdx) {
        let Some(bridge) = self.bridges.get_mut(&idx) else { return };
        let id = bridge.datapath_id;
        if bridge.told_datapath_id.replace(id) != Some(id) {
            tracing::info!(target: "bridge", "bridge {}: using datapath ID {id:016x}", bridge.name);
        }
    }

    /// Updates what depends on all ports: patch cables, and each bridge's address and MTU.
    pub(crate) fn settle(&mut self) {
        self.plug_cables();
        let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
        for idx in bridges {
            self.choose_mac(idx);
            self.devices.behind_mtu.insert(idx, OfPort(0));
            self.tell_datapath_id(idx);
        }
    }

    /// Patch ports whose ends name each other are connected.
    fn plug_cables(&mut self) {
        let ends: BTreeMap<&str, _> = (self.devices.ports.values())
            .filter_map(|p| Some((p.name.as_str(), (p.port_no, p.interface.peer()?))))
            .collect();
        let peer_of = |name: &str, peer: &str| {
            let (port_no, back) = ends.get(peer)?;
            (*back == name).then_some(*port_no)
        };
        let changed = ends.iter().filter_map(|(name, (port_no, peer))| {
            let kind = PortKind::Patch { peer: peer_of(name, peer) };
            let spec = self.plane.port_spec(*port_no).filter(|spec| spec.kind != kind)?;
            Some(PortSpec { kind, ..spec.clone() })
        });
        let changed: Vec<_> = changed.collect();
        self.plane.control.modify_ports(changed).expect("their numbers stay");
    }

    /// The bridge's address: `hwaddr`; else the lowest address of its external ports; else one that is the
    /// same at every start.
    fn choose_mac(&mut self, idx: BridgeIdx) {
        let Some(bridge) = self.bridges.get(&idx) else { return };
        let of_ports = self.ports_of(idx).filter(|p| p.interface.is_others() && !p.gone);
        let lowest = of_ports.map(|p| p.status.mac).filter(|m| *m != [0; 6] && m[0] & 1 == 0).min();
        let mac = bridge.settings.hwaddr.or(lowest).unwrap_or_else(|| stable_mac(&bridge.name));
        let local = self.port_numbered(idx, OfPort::LOCAL).map(|p| (p.port_no, p.status.mac));
        if bridge.mac != mac {
            self.bridges.get_mut(&idx).expect("looked up above").mac = mac;
            self.update_datapath_id(idx);
        }
        if let Some((port_no, now)) = local {
            self.assimilate(port_no, "hwaddr", now == mac, |port| port.set_mac(mac));
        }
    }

    /// Internal ports that ask for no MTU take the smallest of the others', in a turn that ends soon after
    /// `until`: each is a device of the kernel. Returns whether there is more to do.
    pub(crate) fn follow_mtus(&mut self, until: Instant) -> bool {
        while let Some((idx, from)) = self.devices.behind_mtu.pop_first() {
            if let Some(next) = self.follow_mtu(idx, from, until) {
                self.devices.behind_mtu.insert(idx, next);
            }
            if Instant::now() >= until {
                break;
            }
        }
        !self.devices.behind_mtu.is_empty()
    }

    /// The same in one bridge, beginning at a port. Returns where to continue.
    fn follow_mtu(&mut self, idx: BridgeIdx, from: OfPort, until: Instant) -> Option<OfPort> {
        let mut smallest: Option<u32> = None;
        let mut followers = Vec::new();
        for port in self.ports_of(idx) {
            let is_internal = port.interface.makes_device() || port.of_port == OfPort::LOCAL;
            if is_internal && port.interface.mtu_request.is_none() {
                followers.push((port.of_port, port.port_no, port.status.mtu));
            } else if !port.is_patch() && !port.gone {
                let PortStatus { mtu, .. } = port.status;
                smallest = Some(smallest.map_or(mtu, |s| s.min(mtu)));
            }
        }
        let mtu = smallest.filter(|m| *m >= 68).unwrap_or(MTU_DEFAULT).min(MTU_MAX);
        followers.retain(|(of_port, ..)| *of_port >= from);
        followers.sort_unstable();
        for (n, &(_, port_no, now)) in followers.iter().enumerate() {
            self.assimilate(port_no, "mtu", now == mtu, |port| port.set_mtu(mtu));
            if Instant::now() >= until {
                return followers.get(n + 1).map(|(of_port, ..)| *of_port);
            }
        }
        None
    }

    /// Makes a device as others are. If it is so already, an earlier refusal is no longer true.
    fn assimilate(
        &mut self,
        port_no: PortNo,
        what: &'static str,
        is_so: bool,
        change: impl FnOnce(&mut dyn Port) -> Result<(), String>,
    ) {
        match is_so {
            true => self.devices.with_record(port_no, |record| drop(record.refused.remove(what))),
            false => {
                let mut events = self.devices.change(&mut self.plane, port_no, what, change);
                // Nobody follows those who follow.
                events.retain(|event| !matches!(event, PortEvent::Mtu(_)));
                self.follow_devices(events);
            }
        }
    }
}

fn switch_settings(mut config: BridgeConfig, wanted: &BridgeSettings) -> BridgeConfig {
    config.mac_aging_s = wanted.mac_aging_s;
    config.mac_table_size = wanted.mac_table_size;
    config.forward_bpdu = wanted.forward_bpdu;
    config.flood_vlans = wanted.flood_vlans.iter().copied().collect();
    config
}
