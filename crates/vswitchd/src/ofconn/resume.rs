//! Packets that wait for a controller: `controller(pause)` and NXT_RESUME.
//!
//! The controller gets the rest of the pipeline's work as a continuation, and sends it back with the packet
//! whenever it likes. It may have changed the packet and its metadata. The continuation identifies the bridge
//! by its datapath id, so that it stays valid when the switch restarts; one for another bridge, or an invalid
//! one, is NXR_STALE.
//!
//! Source: ovs-actions(7), "The controller action".

use super::request::Handled;
use crate::ofproto::head;
use crate::state::Vswitch;
use datapath::conntrack::Tracking;
use datapath::{Pipeline, Translation};
use flow::{FieldId, Key, Match, extract_keeping_metadata};
use openflow::message::PacketIn;
use openflow::{ErrorKind, Version};
use switch::BridgeIdx;

impl Vswitch {
    /// Goes on with a packet.
    pub(super) fn resume(&mut self, bridge: BridgeIdx, packet: &PacketIn) -> Handled {
        let datapath_id = self.bridges.get(&bridge).map_or(0, |bridge| bridge.datapath_id);
        let rest = packet.continuation.strip_prefix(&head(datapath_id)[..]).ok_or(ErrorKind::NXR_STALE)?;
        let rest = switch::read_continuation(rest)?;
        let in_port = packet.in_port();
        let dp_port = self.source_port(bridge, in_port)?;
        let mut metadata = packet.metadata.clone();
        self.plane.control.place_options(bridge, &mut metadata).map_err(|e| super::flow_mods::refusal(&e))?;
        let mut key: Key = metadata.key;
        key.set(FieldId::InPort, in_port.0.into());
        key.set(FieldId::DpPort, dp_port.0.into());
        key.set(FieldId::RecircId, 0);
        let ingress = self.plane.ingress(in_port, dp_port);
        if extract_keeping_metadata(&packet.data, packet.data.len(), &ingress, &mut key).is_none() {
            return Err(ErrorKind::OFPBRC_BAD_PACKET);
        }
        let matching = Match { key: key.clone(), ..Match::any() };
        let actions: Vec<_> = rest.actions().cloned().collect();
        self.plane
            .control
            .check_actions(bridge, Version::V13, &matching, &actions)
            .map_err(|e| super::flow_mods::refusal(&e))?;
        let mut translation = Translation::default();
        let reader = self.plane.domain.register();
        let version = self.plane.switch.version();
        let is_known =
            self.plane.switch.translate_resumed(version, &key, bridge, &rest, &reader, &mut translation);
        drop(reader);
        if !is_known {
            return Err(ErrorKind::NXR_STALE);
        }
        // The packet continues with the mark that the controller set.
        translation.say_metadata(&key);
        self.plane.carry_out_tracked(bridge, &packet.data, dp_port, Tracking::of(&key), translation);
        Ok(())
    }
}
