//! Where packets go: ports, reserved ports, patch ports, controllers.

use super::bounds::COPY_STEPS;
use super::{DSCP_BITS, Dscp, Origin, Xlate};
use crate::changelog::word_table;
use crate::topology::{Bridge, Port, PortKind};
use crate::trace::Sink;
use base::{DropReason, OfPort, PortNo};
use datapath::{DpAction, PacketInSpec};
use flow::action::PacketInReason;
use flow::key::{B_CT, B_CT6, B_PIPELINE, B_REGS, B_TUN_META, B_TUNNEL};
use flow::{BLOCKS, FieldId, Key, Mask};
use openflow::message::METER_CONTROLLER;
use std::sync::Arc;

/// The packet as it was before an operation on a copy.
pub(super) struct Saved {
    pub(super) key: Key,
    pub(super) written: Mask,
    pub(super) base: Key,
    pub(super) base_known: Mask,
    any_written: bool,
    vlan_moved: bool,
    below: Vec<(u16, u16)>,
    base_below: Vec<(u16, u16)>,
    pushed: Vec<super::Beneath>,
    labels: usize,
    unread: bool,
    pending: super::Pending,
    pub(super) dscp: super::Dscp,
    irreversible: bool,
    is_tracked: bool,
    is_tracked_below: bool,
}

fn output_name(port: OfPort) -> String {
    openflow::text::PortNames::none().text(port)
}

impl<'a, S: Sink> Xlate<'a, S> {
    /// Whether the port's configuration lets the packet in.
    pub(super) fn may_receive(&mut self, port: &Port) -> bool {
        let config = port.spec.config;
        let mut refused = config.port_down;
        if config.no_recv != config.no_recv_stp {
            let is_stp = self.read(FieldId::EthDst) == 0x0180_c200_0000;
            refused |= if is_stp { config.no_recv_stp } else { config.no_recv };
        } else {
            refused |= config.no_recv;
        }
        if refused {
            self.drop_reason = DropReason::RxPortConfig;
            self.trace.detail(|| "the port's configuration forbids receiving, dropping".to_string());
        }
        !refused
    }

    #[inline(never)]
    pub(super) fn output_action(&mut self, port: OfPort, max_len: u16) {
        match port {
            OfPort::IN_PORT => self.output(self.in_port()),
            OfPort::TABLE => self.table(0, true),
            OfPort::NORMAL => self.normal(),
            OfPort::FLOOD => self.flood(false),
            OfPort::ALL => self.flood(true),
            OfPort::CONTROLLER => {
                let reason = match self.controller_reason {
                    PacketInReason::PacketOut => PacketInReason::PacketOut,
                    _ if self.in_bucket => PacketInReason::Group,
                    reason => reason,
                };
                self.packet_in(max_len, reason, 0, &[]);
            }
            OfPort::NONE => {}
            // The packet's real in_port is always in the mask; a rewritten one is the same for the whole
            // flow.
            port if port == self.in_port() => {
                self.drop_reason = DropReason::NoOutput;
                self.trace.warn(|| "skipping output to input port".to_string());
            }
            port => self.output(port),
        }
    }

    pub(super) fn output_trunc(&mut self, port: OfPort, max_len: u32) {
        match port {
            OfPort::NORMAL
            | OfPort::FLOOD
            | OfPort::ALL
            | OfPort::CONTROLLER
            | OfPort::TABLE
            | OfPort::NONE => {
                self.trace.warn(|| format!("output_trunc does not support port: {}", output_name(port)));
                return;
            }
            _ => {}
        }
        let to = if port == OfPort::IN_PORT { self.in_port() } else { port };
        let bridge: &'a Bridge = self.bridge;
        self.visit_word(word_table::ports(bridge.idx.0), word_table::port(to.0));
        // The bridge behind a patch port may do anything with the packet, which still has its length there.
        if bridge.port(to).is_some_and(|p| matches!(p.spec.kind, PortKind::Patch { .. })) {
            self.drop_reason = DropReason::NoOutput;
            self.trace.error(|| format!("output_trunc does not support patch port {}", output_name(port)));
            return;
        }
        let before = self.max_bytes.replace(max_len);
        self.output_action(port, 0);
        self.max_bytes = before;
    }

    fn flood(&mut self, all: bool) {
        let bridge: &'a Bridge = self.bridge;
        self.visit_word(word_table::ports(bridge.idx.0), word_table::FLOOD);
        let in_port = self.in_port();
        self.drop_reason = DropReason::NoOutput;
        for port in bridge.ports().filter(|p| p.spec.of_port != in_port) {
            if all || !port.spec.config.no_flood {
                self.output_to(port);
            }
        }
    }

    /// Sends to a port, even if it is the input port.
    pub(super) fn output(&mut self, of_port: OfPort) {
        let bridge: &'a Bridge = self.bridge;
        self.visit_word(word_table::ports(bridge.idx.0), word_table::port(of_port.0));
        match bridge.port(of_port) {
            Some(port) => self.output_to(port),
            None => {
                self.drop_reason = DropReason::OutputPortGone;
                self.trace.warn(|| "Nonexistent output port".to_string());
            }
        }
    }

    /// Sends to a port that this translation has already looked up.
    pub(super) fn output_to(&mut self, port: &'a Port) {
        let config = port.spec.config;
        if config.no_fwd || config.port_down {
            self.drop_reason = DropReason::TxPortDown;
            self.trace.detail(|| {
                let why = if config.no_fwd { "OFPPC_NO_FWD" } else { "OFPPC_PORT_DOWN" };
                format!("{why} set, skipping output")
            });
            return;
        }
        if port.spec.protected && self.comes_from_protected() {
            self.drop_reason = DropReason::NoOutput;
            self.trace.warn(|| "Flow is between protected ports, skipping output.".to_string());
            return;
        }
        match port.spec.kind {
            PortKind::Patch { peer } => self.output_to_peer(port, peer),
            PortKind::Normal | PortKind::Local if !self.is_ethernet() => {
                self.drop_reason = DropReason::UnsupportedPacketType;
                self.trace.warn(|| {
                    "Trying to send non-Ethernet packet through legacy L2 port. Dropping packet.".to_string()
                });
            }
            PortKind::Normal | PortKind::Local if !port.spec.queue_dscp.is_empty() => {
                self.output_marked(port);
            }
            PortKind::Normal | PortKind::Local => self.leave_at(port.spec.port_no),
        }
    }

    /// Whether the packet's input port is protected: from such a one, none is sent to another.
    #[inline(never)]
    fn comes_from_protected(&mut self) -> bool {
        let (bridge, in_port) = (self.bridge, self.in_port());
        self.visit_word(word_table::ports(bridge.idx.0), word_table::port(in_port.0));
        bridge.port(in_port).is_some_and(|port| port.spec.protected)
    }

    fn leave_at(&mut self, port: PortNo) {
        self.commit();
        self.out.actions.push(match self.max_bytes {
            Some(max_bytes) => DpAction::OutputTrunc { port, max_bytes },
            None => DpAction::Output(port),
        });
    }

    /// Sends an IP packet with the DSCP of its queue, if that has one. Later outputs use the packet's own.
    #[inline(never)]
    fn output_marked(&mut self, port: &'a Port) {
        let queue = self.read(FieldId::SkbPriority) as u32;
        let Some(dscp) = port.spec.queue_dscp.get(&queue).filter(|_| self.is_ip()) else {
            return self.leave_at(port.spec.port_no);
        };
        let place = FieldId::NwTos.place();
        let (b, w) = (usize::from(place.block), usize::from(place.word));
        let value = u64::from(*dscp) << 2 << place.shift;
        if !matches!(self.dscp, Dscp::Known | Dscp::SetAnew(DSCP_BITS)) {
            // What the meter has made of it cannot be set again, so a copy gets the queue's.
            self.out.steps += COPY_STEPS;
            return self.with_packet_restored(|x| {
                x.write(b, w, DSCP_BITS << place.shift, value);
                x.leave_at(port.spec.port_no);
            });
        }
        let before = (self.key.word(b, w), self.written.0.word(b, w));
        self.write(b, w, DSCP_BITS << place.shift, value);
        self.leave_at(port.spec.port_no);
        self.restore_word(b, w, before);
    }

    /// Continues in the bridge at the other end of a patch cable, as if the packet had come in there.
    #[inline(never)]
    fn output_to_peer(&mut self, port: &'a Port, peer: Option<PortNo>) {
        self.out.credits.push(port.tx_slot);
        // Both ends must name each other.
        let leads_back = PortKind::Patch { peer: Some(port.spec.port_no) };
        let found = peer.and_then(|p| self.topology.port(p)).filter(|p| p.spec.kind == leads_back);
        let Some((peer, bridge)) = found.and_then(|p| Some((p, self.topology.bridge(p.bridge)?))) else {
            // The cable's other end is part of the port's configuration, so changing it changes the port.
            self.drop_reason = DropReason::OutputPortGone;
            self.trace.detail(|| "Nonexistent patch port peer".to_string());
            return;
        };
        if self.is_exhausted() {
            return;
        }
        self.resubmits += 1;
        self.visit_word(word_table::ports(bridge.idx.0), word_table::port(peer.spec.of_port.0));
        self.out.credits.push(peer.rx_slot);
        self.trace.bridge(&bridge.config.name);
        let before = (self.bridge, self.origin, self.exit, std::mem::take(&mut self.stack));
        let set = std::mem::take(&mut self.action_set);
        self.depth += 1;
        self.with_packet_restored(|x| {
            x.bridge = bridge;
            x.origin = Origin::NONE;
            x.write_field(FieldId::InPort, u128::from(peer.spec.of_port.0));
            x.forget_pipeline_fields();
            x.is_tracked = false;
            if x.may_receive(peer) {
                x.pipeline();
            }
        });
        self.depth -= 1;
        (self.bridge, self.origin, self.exit, self.stack) = before;
        self.action_set = set;
        // What failed beyond the cable ended there. Whatever is exhausted stays so.
        if let Some(reason) = self.error.take() {
            self.drop_reason = reason;
        }
        self.trace.leave();
    }

    /// Registers and the like do not cross a cable: they become zero for all packets of the flow.
    fn forget_pipeline_fields(&mut self) {
        for b in [B_REGS, B_TUNNEL, B_CT, B_CT6].into_iter().chain(B_TUN_META..BLOCKS) {
            if self.key.has(b) || self.written.0.has(b) || b == B_REGS {
                for w in 0..8 {
                    self.write(b, w, u64::MAX, 0);
                }
            }
        }
        for field in [FieldId::Metadata, FieldId::ConjId] {
            self.write_field(field, 0);
        }
        self.set_actset_output(OfPort::UNSET);
        self.write(B_PIPELINE, 3, u64::MAX, 0);
        self.write_field(FieldId::CtState, 0);
        self.write_field(FieldId::CtZone, 0);
    }

    /// Does something on a copy: afterwards later actions see the packet as it was before.
    #[inline(never)]
    pub(super) fn with_packet_restored(&mut self, inner: impl FnOnce(&mut Self)) {
        let saved = self.save();
        let start = self.out.actions.len();
        let outer_start = std::mem::replace(&mut self.copy_start, start);
        inner(self);
        self.copy_start = outer_start;
        self.restore(saved, start);
    }

    /// The effect of an operation on a copy, none of which has reached the packet or the list yet.
    #[inline(never)]
    pub(super) fn translated_apart(&mut self, inner: impl FnOnce(&mut Self)) -> Vec<DpAction> {
        let saved = self.save();
        let start = self.out.actions.len();
        let outer_start = std::mem::replace(&mut self.copy_start, start);
        inner(self);
        self.copy_start = outer_start;
        self.irreversible = true;
        self.restore(saved, start);
        match self.out.actions.pop() {
            Some(DpAction::Clone(actions)) => actions,
            _ => unreachable!("what is irreversible is done to a copy"),
        }
    }

    #[inline(never)]
    fn save(&mut self) -> Box<Saved> {
        Box::new(Saved {
            key: self.key.clone(),
            written: self.written.clone(),
            base: self.base.clone(),
            base_known: self.base_known.clone(),
            any_written: self.any_written,
            vlan_moved: self.vlan_moved,
            below: self.below.clone(),
            base_below: self.base_below.clone(),
            pushed: self.pushed.clone(),
            labels: self.labels,
            unread: self.unread,
            pending: self.pending.clone(),
            dscp: self.dscp,
            irreversible: std::mem::replace(&mut self.irreversible, false),
            is_tracked: self.is_tracked,
            is_tracked_below: self.is_tracked_below,
        })
    }

    #[inline(never)]
    fn restore(&mut self, saved: Box<Saved>, start: usize) {
        let mut saved = *saved;
        if self.irreversible {
            // The change to the packet cannot be undone, so it is made to a copy.
            let start = self.set_for_both(start, &mut saved);
            let actions = self.out.actions.split_off(start);
            self.out.actions.push(DpAction::Clone(actions));
            *self.base = saved.base;
            *self.base_known = saved.base_known;
            self.base_below = saved.base_below;
            self.pushed = saved.pushed;
            self.vlan_moved = saved.vlan_moved;
            self.is_tracked_below = saved.is_tracked_below;
        }
        self.is_tracked = saved.is_tracked;
        // Otherwise `commit` reverts what it must at the next output.
        self.irreversible = saved.irreversible;
        *self.key = saved.key;
        self.below = saved.below;
        self.labels = saved.labels;
        *self.written = saved.written;
        self.any_written = saved.any_written || !self.base_known.is_wild();
        self.unread = saved.unread;
        self.pending = saved.pending;
        self.dscp = saved.dscp;
        self.noted = None;
    }

    /// Passes the packet, in its present form, to the control thread.
    #[inline(never)]
    pub(super) fn packet_in(&mut self, max_len: u16, reason: PacketInReason, id: u16, userdata: &[u8]) {
        self.packet_in_metered(max_len, reason, id, userdata, None);
    }

    /// The same, with a meter of the action's own instead of the one for all packet-ins.
    #[inline(never)]
    pub(super) fn packet_in_metered(
        &mut self,
        max_len: u16,
        reason: PacketInReason,
        id: u16,
        userdata: &[u8],
        meter_id: Option<u32>,
    ) {
        self.commit();
        let spec = self.packet_in_spec(max_len, reason, id, userdata);
        let told = DpAction::PacketIn(Arc::new(spec));
        // Packets over the meter's rate are lost only to the controllers.
        let meter = self.find_meter(meter_id.unwrap_or(METER_CONTROLLER));
        self.out.actions.push(match meter {
            Some(meter) => {
                DpAction::Sample { probability: u32::MAX, actions: vec![DpAction::Meter(meter), told] }
            }
            None => told,
        });
    }

    /// The packet's metadata, and why it is sent.
    pub(super) fn packet_in_spec(
        &self,
        max_len: u16,
        reason: PacketInReason,
        id: u16,
        userdata: &[u8],
    ) -> PacketInSpec {
        let mut metadata = Key::default();
        for b in [B_REGS, B_PIPELINE, B_TUNNEL, B_CT, B_CT6].into_iter().chain(B_TUN_META..BLOCKS) {
            if self.key.has(b) {
                metadata.put(b, self.key.block(b).0);
            }
        }
        if metadata.get(FieldId::ActsetOutput) == u128::from(OfPort::UNSET.0) {
            metadata.set(FieldId::ActsetOutput, 0);
        }
        for f in [FieldId::InPort, FieldId::CtState, FieldId::CtZone, FieldId::PktMark, FieldId::PacketType] {
            metadata.set(f, self.key.get(f));
        }
        if self.is_tracked {
            // Tells which addresses of a connection apply.
            metadata.set(FieldId::EthType, self.key.get(FieldId::EthType));
        }
        PacketInSpec {
            bridge: self.bridge.idx.0,
            table_id: self.origin.table_id,
            cookie: self.origin.cookie.get(),
            reason,
            is_table_miss: self.origin.is_table_miss(),
            is_without_rule: self.origin.is_without_rule(),
            max_len,
            controller_id: id,
            userdata: userdata.to_vec(),
            continuation: None,
            slow_path: false,
            is_tracked: self.is_tracked,
            state_id: 0,
            metadata,
        }
    }
}
