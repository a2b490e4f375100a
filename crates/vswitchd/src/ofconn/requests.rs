//! The requests of a connection, message by message.

use super::ct_flush::filter_of;
use super::flow_mods::refusal;
use super::request::{Handled, Request};
use crate::ofproto::{INVALID_TTL, OfConn, Pending, Purpose, Source};
use crate::state::Vswitch;
use base::{OfPort, PortNo};
use datapath::conntrack::dump::Filter;
use datapath::{Pipeline, Translation};
use flow::key::{B_TUN_META, BLOCKS};
use flow::{Depth, FieldId, Key, Match, extract_keeping_metadata};
use openflow::message::{
    Capabilities, CtFlush, DEFAULT_MISS_SEND_LEN, FragHandling, Message, PacketOut, PortConfig, PortMod,
    Role, RoleRequest, SwitchConfig, SwitchFeatures,
};
use openflow::text::ct_flush_text;
use openflow::{ErrorKind, Version};
use switch::{BridgeConfig, BridgeIdx, Fragments};

/// The actions of OpenFlow 1.0 that the switch has: output, VLAN, addresses, ports, enqueue.
const ACTIONS_OF10: u32 = 0xfff;

impl Vswitch {
    /// Handles one message. The error is answered to it.
    pub(super) fn handle(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        message: Message,
    ) -> Handled {
        let xid = request.xid;
        match message {
            Message::FeaturesRequest => {
                let reply = self.features(bridge, conn.version());
                conn.send(xid, &Message::FeaturesReply(reply));
            }
            Message::GetConfigRequest => {
                let fragments = self.plane.control.topology().bridge(bridge).map(|b| b.config.fragments);
                let reply = SwitchConfig {
                    frag: match fragments.unwrap_or_default() {
                        Fragments::Normal => FragHandling::Normal,
                        Fragments::Drop => FragHandling::Drop,
                        Fragments::NxMatch => FragHandling::NxMatch,
                    },
                    invalid_ttl_to_controller: Some(conn.async_config().packet_in[0] & INVALID_TTL != 0),
                    miss_send_len: conn.miss_send_len,
                };
                conn.send(xid, &Message::GetConfigReply(reply));
            }
            Message::SetConfig(config) => return self.set_config(bridge, conn, config),
            Message::BarrierRequest => {
                // A bundle of its own is not waited for: what is in it has not happened.
                conn.pending = Some(Pending::Barrier { xid, ticket: self.plane.control.ticket() });
            }
            Message::FlowMod(mut fm) => {
                not_secondary(conn)?;
                let handled = self.flow_mod(bridge, conn, request, &mut fm);
                fm.recycle();
                return handled;
            }
            Message::PortMod(pm) => {
                not_secondary(conn)?;
                pm.unknown.map_or(Ok(()), Err)?;
                return self.port_mod(bridge, &pm, Some(conn.line.clone()));
            }
            Message::PacketOut(out) => {
                not_secondary(conn)?;
                return self.packet_out(bridge, conn.version(), *out);
            }
            Message::TableMod(change) => {
                not_secondary(conn)?;
                return self.table_mod(bridge, conn.version(), &change);
            }
            Message::GroupMod(change) => {
                not_secondary(conn)?;
                return self.group_mod(bridge, conn, request, *change);
            }
            Message::MeterMod(change) => {
                not_secondary(conn)?;
                return self.meter_mod(bridge, conn, request, change);
            }
            Message::StatsRequest(stats) => return self.stats_request(bridge, conn, xid, stats),
            Message::QueueGetConfigRequest { port } => {
                let queues = self.queues(bridge, port, None)?;
                conn.send(xid, &Message::QueueGetConfigReply { port, queues });
            }
            Message::RoleRequest(role) => return self.role_request(bridge, conn, xid, role),
            Message::GetAsyncRequest => {
                let config = conn.async_config();
                conn.send(xid, &Message::GetAsyncReply(config));
            }
            Message::SetAsync(change) => {
                conn.keep_wanted(self.plane.control.version());
                conn.async_config = Some(conn.async_config().with(&change));
                // A connection that configures its asynchronous messages wants to receive them.
                if conn.purpose == Purpose::Service && conn.miss_send_len == 0 {
                    conn.miss_send_len = DEFAULT_MISS_SEND_LEN;
                }
                let wants = conn.wants_misses();
                self.set_misses(bridge, wants);
            }
            Message::FlowModTableId(_) => {} // The connection itself decodes by it from now on.
            Message::SetFlowFormat(form) => conn.flow_form = form,
            Message::SetPacketInFormat(form) => conn.packet_in_form = form,
            Message::SetControllerId(id) => conn.controller_id = id,
            Message::FlowAge => {}
            Message::TlvTableRequest => {
                let table = self.plane.tlv_table(bridge);
                conn.send(xid, &Message::TlvTableReply(table));
            }
            Message::TlvTableMod(change) => {
                not_secondary(conn)?;
                return self.plane.tlv_table_mod(bridge, &change);
            }
            Message::Resume(packet) => return self.resume(bridge, &packet),
            Message::CtFlushZone(zone) => {
                tracing::debug!(target: "ct_dpif", "netdev@ovs-netdev: ct_flush: zone {zone}");
                self.ct_flush(conn, Filter { zone: Some(zone), ..Filter::default() });
            }
            Message::CtFlush(flush) => {
                let what = if *flush == CtFlush::default() { "<all>".into() } else { ct_flush_text(&flush) };
                tracing::debug!(target: "ct_dpif", "netdev@ovs-netdev: ct_flush: {what}");
                self.ct_flush(conn, filter_of(&flush));
            }
            Message::FlowMonitorCancel(id) => return self.cancel_monitor(bridge, conn, id),
            Message::BundleControl(control) => {
                not_secondary(conn)?;
                return self.bundle_control(bridge, conn, request, control);
            }
            Message::BundleAdd(add) => {
                not_secondary(conn)?;
                return self.bundle_add(bridge, conn, request, add);
            }
            // An error in response to the switch, or an echo reply: nothing to do.
            Message::Error(error) => tracing::debug!(target: "ofproto", "a peer says {error}"),
            Message::EchoReply(_) => {}
            // The connection handles hellos and echo requests, and answers replies with an error.
            _ => return Err(ErrorKind::OFPBRC_BAD_TYPE),
        }
        Ok(())
    }

    fn features(&self, bridge: BridgeIdx, version: Version) -> SwitchFeatures {
        let mut capabilities = Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::QUEUE_STATS;
        if version <= Version::V11 {
            capabilities |= Capabilities::ARP_MATCH_IP;
        }
        if version >= Version::V11 {
            capabilities |= Capabilities::GROUP_STATS;
        }
        if version >= Version::V14 {
            capabilities |= Capabilities::BUNDLES;
        }
        SwitchFeatures {
            datapath_id: self.bridges[&bridge].datapath_id,
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities,
            actions: ACTIONS_OF10,
            ports: self.ports_of(bridge).filter_map(|p| self.plane.port_desc(p)).collect(),
        }
    }

    fn set_config(&mut self, bridge: BridgeIdx, conn: &mut OfConn, config: SwitchConfig) -> Handled {
        conn.keep_wanted(self.plane.control.version());
        conn.miss_send_len = config.miss_send_len;
        if let Some(set) = config.invalid_ttl_to_controller {
            conn.invalid_ttl_to_controller = set;
            if let Some(chosen) = &mut conn.async_config {
                chosen.packet_in[0] &= !INVALID_TTL;
                chosen.packet_in[0] |= u32::from(set) * INVALID_TTL;
            }
        }
        let wants = conn.wants_misses();
        self.set_misses(bridge, wants);
        // A secondary has a say in what it gets itself, and in nothing that others see.
        if conn.purpose == Purpose::Primary && conn.role() == Role::Secondary {
            return Ok(());
        }
        let fragments = match config.frag {
            FragHandling::Normal => Fragments::Normal,
            FragHandling::Drop => Fragments::Drop,
            FragHandling::NxMatch => Fragments::NxMatch,
            // Ignored without an error, as in Open vSwitch: a client that asks for the setting finds out.
            FragHandling::Reassemble => return Ok(()),
        };
        if let Some(found) = self.plane.control.topology().bridge(bridge)
            && found.config.fragments != fragments
        {
            let config = BridgeConfig { fragments, ..found.config.clone() };
            self.plane.control.set_bridge(bridge, config).expect("it is there, looked up above");
        }
        Ok(())
    }

    fn role_request(&mut self, bridge: BridgeIdx, conn: &mut OfConn, xid: u32, role: RoleRequest) -> Handled {
        let changes = matches!(role.role, Role::Primary | Role::Secondary);
        if changes && let Some(new) = role.generation_id {
            let known = &mut self.bridges.get_mut(&bridge).expect("the caller's bridge").generation_id;
            // Distances that wrap around, as OpenFlow 1.3 section 6.3.5 has it.
            if known.is_some_and(|known| (new.wrapping_sub(known) as i64) < 0) {
                return Err(ErrorKind::OFPRRFC_STALE);
            }
            *known = Some(new);
        }
        let until = self.plane.control.version();
        if role.role == Role::Primary {
            let generation_id = self.bridges[&bridge].generation_id;
            let others = self.bridges.get_mut(&bridge).into_iter().flat_map(|b| b.conns.values_mut());
            others.filter(|c| c.role == Role::Primary).for_each(|c| c.lose_role(generation_id, until));
        }
        if role.role != Role::NoChange {
            conn.keep_wanted(until);
            conn.role = role.role;
        }
        let generation_id = self.bridges[&bridge].generation_id;
        let reply = RoleRequest { role: conn.role, generation_id, nicira: role.nicira };
        conn.send(xid, &Message::RoleReply(reply));
        Ok(())
    }

    /// The port that a change is of.
    pub(super) fn port_of_mod(&self, bridge: BridgeIdx, pm: &PortMod) -> Result<PortNo, ErrorKind> {
        let record = self.port_numbered(bridge, pm.port).ok_or(ErrorKind::OFPPMFC_BAD_PORT)?;
        if record.status.mac != pm.hw_addr {
            return Err(ErrorKind::OFPPMFC_BAD_HW_ADDR);
        }
        Ok(record.port_no)
    }

    /// Changes a port, as a connection has asked.
    pub(super) fn port_mod(&mut self, bridge: BridgeIdx, pm: &PortMod, source: Option<Source>) -> Handled {
        let port_no = self.port_of_mod(bridge, pm)?;
        let before = self.devices.ports.get(&port_no).and_then(|record| self.plane.port_desc(record));
        if pm.mask.contains(PortConfig::PORT_DOWN) {
            let up = !pm.config.contains(PortConfig::PORT_DOWN);
            if let Some(port) = self.plane.dp.port_mut(port_no)
                && let Err(why) = port.set_admin_up(up)
            {
                let name = &self.devices.ports[&port_no].name;
                tracing::warn!(target: "netdev", "{name}: could not be set {}: {why}", if up { "up" } else { "down" });
                return Err(ErrorKind::OFPPMFC_EPERM);
            }
            if let (Some(port), Some(record)) =
                (self.plane.dp.port(port_no), self.devices.ports.get_mut(&port_no))
            {
                record.status = port.status();
            }
        }
        let link_up = self.devices.ports[&port_no].status.link == packet::LinkState::Up;
        self.plane.update_port(port_no, |spec| {
            let c = &mut spec.config;
            for (bit, field) in [
                (PortConfig::PORT_DOWN, &mut c.port_down),
                (PortConfig::NO_STP, &mut c.no_stp),
                (PortConfig::NO_RECV, &mut c.no_recv),
                (PortConfig::NO_RECV_STP, &mut c.no_recv_stp),
                (PortConfig::NO_FLOOD, &mut c.no_flood),
                (PortConfig::NO_FWD, &mut c.no_fwd),
                (PortConfig::NO_PACKET_IN, &mut c.no_packet_in),
            ] {
                if pm.mask.contains(bit) {
                    *field = pm.config.contains(bit);
                }
            }
            spec.link_up = link_up;
        });
        if let Some(before) = before {
            self.tell_port_set(port_no, before, source);
        }
        Ok(())
    }

    fn packet_out(&mut self, bridge: BridgeIdx, version: Version, out: PacketOut) -> Handled {
        let (key, dp_port) = self.packet_of(bridge, &out)?;
        let packet = Match { key: key.clone(), ..Match::any() };
        self.plane.control.check_actions(bridge, version, &packet, &out.actions).map_err(|e| refusal(&e))?;
        let mut translation = Translation::default();
        let reader = self.plane.domain.register();
        let state = self.plane.switch.version();
        let switch = &self.plane.switch;
        let is_done =
            switch.translate_packet_out(state, &key, bridge, &out.actions, &reader, &mut translation);
        drop(reader);
        if !is_done {
            return Err(ErrorKind::OFPFMFC_UNKNOWN);
        }
        translation.say_metadata(&key);
        self.plane.carry_out(bridge, &out.data, dp_port, translation);
        Ok(())
    }

    /// The key of a packet-out's packet, and the datapath number of its input port.
    pub(super) fn packet_of(
        &mut self,
        bridge: BridgeIdx,
        out: &PacketOut,
    ) -> Result<(Key, PortNo), ErrorKind> {
        self.counts.packet_outs += 1;
        if out.buffer_id.is_some() {
            return Err(ErrorKind::OFPBRC_BUFFER_UNKNOWN);
        }
        let dp_port = self.source_port(bridge, out.in_port)?;
        let mut key = Key::default();
        let ingress = self.plane.ingress(out.in_port, dp_port);
        // Extraction obeys the packet's type.
        key.set(FieldId::InPort, out.in_port.0.into());
        key.set(FieldId::DpPort, dp_port.0.into());
        key.set(FieldId::PacketType, out.metadata.key.get(FieldId::PacketType));
        if extract_keeping_metadata(&out.data, out.data.len(), &ingress, &mut key).is_none() {
            return Err(ErrorKind::OFPBRC_BAD_PACKET);
        }
        // The pipeline's fields that accompany it in OpenFlow 1.5. (The input port is separate, whatever
        // these fields say.)
        let mut metadata = out.metadata.clone();
        self.plane.control.place_options(bridge, &mut metadata).map_err(|e| refusal(&e))?;
        let Match { key: given, mask, .. } = &metadata;
        for field in FieldId::ALL.iter().filter(|field| field.depth() == Depth::Metadata) {
            if !matches!(field, FieldId::InPort | FieldId::DpPort | FieldId::RecircId) {
                key.set_masked(*field, given.get(*field), mask.get(*field));
            }
        }
        for (block, word) in (B_TUN_META..BLOCKS).flat_map(|block| (0..8).map(move |word| (block, word))) {
            key.set_word(block, word, given.word(block, word) & mask.0.word(block, word));
        }
        Ok((key, dp_port))
    }

    /// The datapath number of the input port for a packet from a controller.
    pub(super) fn source_port(&self, bridge: BridgeIdx, port: OfPort) -> Result<PortNo, ErrorKind> {
        match port {
            OfPort::NONE | OfPort::CONTROLLER => Ok(PortNo::NONE),
            port if port >= OfPort::MAX && port != OfPort::LOCAL => Err(ErrorKind::OFPBRC_BAD_PORT),
            port => Ok(self.port_numbered(bridge, port).map_or(PortNo::NONE, |p| p.port_no)),
        }
    }
}

/// A secondary only watches.
pub(super) fn not_secondary(conn: &OfConn) -> Handled {
    if conn.role == Role::Secondary { Err(ErrorKind::OFPBRC_IS_SECONDARY) } else { Ok(()) }
}
