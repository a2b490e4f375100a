//! Packets that the control thread translates instead of a worker: those from which `learn` derives a rule
//! that does not exist yet. The rule takes effect before the packet continues.

use crate::plane::ForwardingPlane;
use base::{DropReason, PortNo};
use datapath::conntrack::{Tracking, tuple::Tuple};
use datapath::{DpAction, PacketIn, Pipeline, Translation};
use flow::{FieldId, extract_keeping_metadata};
use packet::Packet;
use ports::offload;
use switch::{BridgeIdx, Effect};

impl ForwardingPlane {
    /// Translates a packet, learns from it and carries out the rest.
    pub(crate) fn slow_path(&mut self, packet_in: PacketIn) {
        let mut key = packet_in.metadata();
        let (bridge, recirc_depth) = (packet_in.spec.bridge, packet_in.metadata.recirc_depth);
        let packet = packet_in.packet;
        let in_port = base::OfPort(key.get64(FieldId::InPort) as u16);
        let ingress = self.ingress(in_port, packet.in_port);
        if extract_keeping_metadata(packet.data(), packet.len(), &ingress, &mut key).is_none() {
            // By a worker, since those have the counters.
            let drop = vec![DpAction::Drop(DropReason::RxTruncated)];
            self.dp.execute_tracked(bridge, packet, None, drop);
            return;
        }
        let mut translation = Translation { packet_len: Some(packet.len()), ..Translation::default() };
        let reader = self.domain.register();
        let control = &self.control;
        let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
        self.switch.translate_for_control(self.switch.version(), &key, &reader, &learned, &mut translation);
        drop(reader);
        translation.say_metadata(&key);
        self.carry_out_packet(BridgeIdx(bridge), (packet, recirc_depth), Tracking::of(&key), translation);
    }

    /// Executes the translation of a packet of a bridge's controller.
    pub(crate) fn carry_out(
        &mut self,
        bridge: BridgeIdx,
        data: &[u8],
        dp_port: PortNo,
        translation: Translation<Effect>,
    ) {
        self.carry_out_tracked(bridge, data, dp_port, None, translation);
    }

    /// The same for a packet with a connection tracking result.
    pub(crate) fn carry_out_tracked(
        &mut self,
        bridge: BridgeIdx,
        data: &[u8],
        dp_port: PortNo,
        tracked: Option<(Tracking, Tuple)>,
        translation: Translation<Effect>,
    ) {
        let Some(mut packet) = self.dp.packet(data) else {
            tracing::debug!(target: "ofproto", "a packet-out was dropped: no packet buffer is free");
            return;
        };
        packet.in_port = dp_port;
        self.carry_out_packet(bridge, (packet, 0), tracked, translation);
    }

    /// The same for a packet that may have been recirculated before.
    fn carry_out_packet(
        &mut self,
        bridge: BridgeIdx,
        (packet, recirc_depth): (Packet, u8),
        tracked: Option<(Tracking, Tuple)>,
        translation: Translation<Effect>,
    ) {
        let now_ms = self.now_ms();
        for &slot in &translation.credits {
            let own = self.own_credits.entry(slot).or_default();
            own.packets += 1;
            own.bytes += packet.len() as u64;
            own.last_used_ms = now_ms;
        }
        self.apply(&translation.effects);
        if !self.dp.execute_again(bridge.0, (packet, recirc_depth), tracked, translation.actions) {
            tracing::debug!(target: "ofproto", "a packet-out was dropped: there is no worker");
        }
    }

    /// The bytes of a packet as they would appear on a wire, for consumers that see only bytes: checksums are
    /// finished, and a large segment is cut into frames, the first `most` of them.
    pub(crate) fn wire_frames(&mut self, packet: &mut Packet, most: usize) -> Vec<Vec<u8>> {
        let bytes = |packet: &Packet| packet.segments().flatten().copied().collect();
        let mut cut = Vec::new();
        if offload::is_segmentation_pending(packet)
            && offload::segment_some(packet, most, self.dp.cache(), &mut cut)
        {
            let finished = cut.drain(..).map(|mut frame| {
                offload::complete_checksum(&mut frame);
                let bytes = bytes(&frame);
                self.dp.free(frame);
                bytes
            });
            return finished.collect();
        }
        offload::complete_checksum(packet);
        vec![bytes(packet)]
    }
}

/// How many frames a packet is on a wire.
pub(crate) fn wire_frame_count(packet: &Packet) -> usize {
    let is_large = offload::is_segmentation_pending(packet);
    is_large.then(|| offload::frames_of(packet)).flatten().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use datapath::{CacheConfig, PacketInSpec};
    use flow::action::PacketInReason;
    use std::sync::Arc;

    #[test]
    fn a_packet_that_cannot_be_read_is_counted() {
        let flags = DatapathFlags { pool_packets: 64, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        plane.dp.start_worker(None).unwrap();
        let spec = PacketInSpec {
            bridge: 0,
            table_id: 0,
            cookie: 0,
            reason: PacketInReason::Action,
            is_table_miss: false,
            is_without_rule: false,
            max_len: 0,
            controller_id: 0,
            userdata: Vec::new(),
            continuation: None,
            slow_path: true,
            is_tracked: false,
            state_id: 0,
            metadata: flow::Key::default(),
        };
        let mut packet = plane.dp.cache().alloc_frame(&[0; 60]).unwrap();
        packet.set_len(4).unwrap();
        let spec = Arc::new(spec);
        plane.slow_path(PacketIn { spec, metadata: Default::default(), original: None, packet });
        let dropped = |plane: &ForwardingPlane| {
            let drops = plane.dp.all_drops();
            drops.into_iter().find(|(reason, _)| *reason == DropReason::RxTruncated).unwrap().1
        };
        testkit::lab::wait_for("the worker to count it", || dropped(&plane) == 1);
    }

    #[test]
    fn a_packet_out_without_a_buffer_or_a_worker_is_counted() {
        let flags = DatapathFlags { pool_packets: 64, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        let count = |plane: &ForwardingPlane, wanted| {
            plane.dp.all_drops().into_iter().find(|(reason, _)| *reason == wanted).unwrap().1
        };
        let send = |plane: &mut ForwardingPlane| {
            plane.carry_out(BridgeIdx(0), &[0; 60], PortNo(1), Translation::default());
        };
        send(&mut plane);
        assert_eq!(count(&plane, DropReason::WorkerStopped), 1);
        let mut held = Vec::new();
        while let Some(packet) = plane.dp.cache().alloc_frame(&[0; 60]) {
            held.push(packet);
        }
        send(&mut plane);
        assert_eq!(count(&plane, DropReason::PoolExhausted), 1);
        held.into_iter().for_each(|packet| plane.dp.cache().free(packet));
    }
}
