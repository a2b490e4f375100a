//! Packets that the control thread translates in place of a worker: those from which `learn` makes a rule
//! that is not there yet. The rule is in force before the packet goes on.

use crate::state::Vswitch;
use datapath::conntrack::Tracking;
use datapath::{PacketIn, Pipeline, Translation};
use flow::{FieldId, extract_keeping_metadata};

impl Vswitch {
    /// Translates a packet, learns from it and carries out the rest.
    pub(crate) fn slow_path(&mut self, packet_in: PacketIn) {
        self.counts.slow_path += 1;
        let mut key = packet_in.metadata();
        let data = packet_in.packet.data().to_vec();
        let dp_port = packet_in.packet.in_port;
        self.dp.free(packet_in.packet);
        let in_port = base::OfPort(key.get64(FieldId::InPort) as u16);
        let ingress = self.ingress(in_port, dp_port);
        if extract_keeping_metadata(&data, data.len(), &ingress, &mut key).is_none() {
            return;
        }
        let mut translation = Translation::default();
        let reader = self.domain.register();
        let control = &self.control;
        let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
        self.switch.translate_for_control(self.switch.version(), &key, &reader, &learned, &mut translation);
        drop(reader);
        translation.say_packet_type(&key);
        self.carry_out_tracked(&data, dp_port, Tracking::of(&key), translation);
    }
}
