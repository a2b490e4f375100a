//! What connections are told without having asked at that moment: packets, ports, removed rules.
//!
//! A connection of the management socket is told nothing until it sets a miss-send length (so `ovs-ofctl` is not
//! disturbed, and `ovs-ofctl monitor` hears all); then its asynchronous configuration says what.

use super::{OfConn, Purpose};
use datapath::PacketInSpec;
use flow::action::PacketInReason;
use flow::{FieldId, Match};
use openflow::Version;
use openflow::message::{FlowForm, FlowRemoved, Message, PacketIn, PacketInForm, PortStatus, Role};
use packet::Packet;

/// Something that happened.
pub(crate) enum Asynchronous {
    /// A packet for controllers.
    Packet(Box<PacketNews>),
    /// A port was added, changed or removed.
    Port(PortStatus),
    /// A rule is gone, and its counters are final.
    Removed(Box<FlowRemoved>),
}

/// A packet for controllers.
pub(crate) struct PacketNews {
    controller_id: u16,
    max_len: u16,
    message: PacketIn,
}

impl Asynchronous {
    /// From what a worker sent.
    pub fn packet_in(spec: &PacketInSpec, packet: &Packet) -> Asynchronous {
        let mut metadata = Match::any();
        for &field in FieldId::ALL.iter().filter(|f| is_pipeline(**f)) {
            let value = spec.metadata.get(field);
            if value != 0 || field == FieldId::InPort {
                metadata.set_masked(field, value, field.ones());
            }
        }
        let data: Vec<u8> = packet.segments().flatten().copied().collect();
        let message = PacketIn {
            form: PacketInForm::Standard,
            buffer_id: None,
            total_len: data.len() as u32,
            reason: spec.reason,
            table_id: spec.table_id,
            cookie: spec.cookie,
            metadata,
            data,
            userdata: spec.userdata.clone(),
            continuation: Vec::new(),
        };
        let (controller_id, max_len) = (spec.controller_id, spec.max_len);
        Asynchronous::Packet(Box::new(PacketNews { controller_id, max_len, message }))
    }

    fn bit(&self) -> u32 {
        match self {
            Asynchronous::Packet(p) => 1 << p.message.reason as u32,
            Asynchronous::Port(p) => 1 << p.reason as u32,
            Asynchronous::Removed(r) => 1 << r.reason as u32,
        }
    }
}

/// The fields of a packet-in's metadata: what is not in the packet itself and no matter of the datapath alone.
fn is_pipeline(field: FieldId) -> bool {
    use FieldId::*;
    let is_register = (Reg0 as u8..=Reg15 as u8).contains(&(field as u8));
    let is_tunnel = (TunId as u8..=TunGtpuMsgtype as u8).contains(&(field as u8));
    let is_tracked = matches!(field, CtState | CtZone | CtMark | CtLabel);
    is_register || is_tunnel || is_tracked || matches!(field, InPort | Metadata | PktMark)
}

impl OfConn {
    fn wants(&self, news: &Asynchronous) -> bool {
        if self.purpose != Purpose::Service || self.miss_send_len == 0 || self.connection.version().is_none()
        {
            return false;
        }
        let config = self.async_config();
        let bits = match news {
            Asynchronous::Packet(_) => config.packet_in,
            Asynchronous::Port(_) => config.port_status,
            Asynchronous::Removed(_) => config.flow_removed,
        };
        let is_for_me = match news {
            Asynchronous::Packet(p) => p.controller_id == self.controller_id,
            _ => true,
        };
        is_for_me && bits[usize::from(self.role == Role::Secondary)] & news.bit() != 0
    }

    /// Tells the connection if it wants to know. False where it wants to and its queue is full.
    pub fn tell(&mut self, news: &Asynchronous) -> bool {
        if !self.wants(news) {
            return true;
        }
        let message = match news {
            Asynchronous::Port(status) => Message::PortStatus(status.clone()),
            Asynchronous::Removed(removed) => {
                // A match that OpenFlow 1.0 cannot say goes in the extension's form, if the peer has asked for that.
                let form = if self.version() == Version::V10 { self.flow_form } else { FlowForm::Standard };
                Message::FlowRemoved(Box::new(FlowRemoved { form, ..(**removed).clone() }))
            }
            Asynchronous::Packet(p) => {
                let max_len = match p.message.reason {
                    PacketInReason::NoMatch => self.miss_send_len,
                    _ => p.max_len,
                };
                let mut message = p.message.clone();
                message.form = self.packet_in_form;
                message.data.truncate(usize::from(max_len));
                Message::PacketIn(Box::new(message))
            }
        };
        match self.connection.send_unasked(&message) {
            Ok(sent) => {
                self.notify.notify_one();
                sent
            }
            Err(error) => {
                tracing::warn!(target: "connmgr", "{} was not sent: {error}", message.name());
                true
            }
        }
    }
}
