//! Packets to and from controllers.

use base::OfPort;
use flow::action::PacketInReason;
use flow::{Action, FieldId, Match};

/// The encoding of a packet-in (NXPIF_*, NXT_SET_PACKET_IN_FORMAT), with wire numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u32)]
pub enum PacketInForm {
    /// OFPT_PACKET_IN of the version.
    #[default]
    Standard = 0,
    /// NXT_PACKET_IN.
    Nxt = 1,
    /// NXT_PACKET_IN2.
    Nxt2 = 2,
}

/// OFPT_PACKET_IN, NXT_PACKET_IN, NXT_PACKET_IN2 and NXT_RESUME.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketIn {
    /// The encoding.
    pub form: PacketInForm,
    /// The packet's number in the switch's buffer.
    pub buffer_id: Option<u32>,
    /// Length of the whole packet; `data` may contain only its beginning.
    pub total_len: u32,
    /// Why.
    pub reason: PacketInReason,
    /// Table that sent it; 0 where the encoding does not say.
    pub table_id: u8,
    /// Cookie of the flow that sent it; `u64::MAX` if there is none.
    pub cookie: u64,
    /// The packet's metadata: input port, registers, tunnel, metadata, marks; exact where present.
    pub metadata: Match,
    /// The packet, or its beginning.
    pub data: Vec<u8>,
    /// From the `controller` action (NXT_PACKET_IN2).
    pub userdata: Vec<u8>,
    /// Opaque state of a paused packet (NXT_PACKET_IN2), sent back in NXT_RESUME.
    pub continuation: Vec<u8>,
}

impl PacketIn {
    /// The input port; NONE if unknown.
    pub fn in_port(&self) -> OfPort {
        if self.metadata.mask.get(FieldId::InPort) == 0 {
            return OfPort::NONE;
        }
        OfPort(self.metadata.key.get64(FieldId::InPort) as u16)
    }
}

/// OFPT_PACKET_OUT.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketOut {
    /// A buffered packet; then `data` is empty.
    pub buffer_id: Option<u32>,
    /// The input port to assume: a port, LOCAL, CONTROLLER or NONE.
    pub in_port: OfPort,
    /// Other fields of the pipeline to assume (1.5): exact where present, and without the input port.
    pub metadata: Match,
    /// What to do.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Vec<u8>,
}
