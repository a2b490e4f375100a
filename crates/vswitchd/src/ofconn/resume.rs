//! Packets that wait for a controller: `controller(pause)` and NXT_RESUME.
//!
//! The rest of the pipeline's work is kept by the switch under a number; the controller gets that number as
//! an opaque continuation and sends it back with the packet. It may have changed the packet and its metadata.
//! Numbers are forgotten as those of recirculation are, after some thousand newer ones of the bridge; then
//! the answer is NXR_STALE, as it is for what is no continuation of this bridge.
//!
//! Source: ovs-actions(7), "The controller action".

use super::Handled;
use crate::state::Vswitch;
use datapath::{DpAction, Pipeline, Translation};
use flow::{Depth, FieldId, Ingress, Key, extract_keeping_metadata};
use openflow::ErrorKind;
use openflow::message::PacketIn;
use switch::BridgeIdx;

/// The property that names the bridge, by which clients recognise a continuation (NXCPT_BRIDGE, ovs-ofctl
/// prints it).
const BRIDGE: u16 = 0x8000;
/// A UUID follows, of which the first four bytes are the number.
const LENGTH: u16 = 20;
/// The rest of it: what no other switch says.
const MARK: [u8; 12] = *b"\x40\0\x80\0crosspnt";

/// What a controller gets, to send it back.
pub(super) fn continuation(number: u32) -> Vec<u8> {
    // Properties begin at a multiple of 8, counted from the header of the one that they are in.
    let mut bytes = Vec::with_capacity(28);
    bytes.extend([0; 4]);
    bytes.extend(BRIDGE.to_be_bytes());
    bytes.extend(LENGTH.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(MARK);
    bytes.extend([0; 4]);
    bytes
}

/// The number again.
fn number(continuation: &[u8]) -> Option<u32> {
    let number = u32::from_be_bytes(*continuation.get(8..)?.first_chunk()?);
    (continuation == self::continuation(number)).then_some(number)
}

impl Vswitch {
    /// Goes on with a packet.
    pub(super) fn resume(&mut self, bridge: BridgeIdx, packet: &PacketIn) -> Handled {
        let number = number(&packet.continuation).ok_or(ErrorKind::NXR_STALE)?;
        let in_port = packet.in_port();
        let dp_port = self.source_port(bridge, in_port)?;
        let mut metadata = packet.metadata.clone();
        self.control.place_options(bridge, &mut metadata).map_err(|e| super::flow_mods::refusal(&e))?;
        let mut key: Key = metadata.key;
        key.set(FieldId::InPort, in_port.0.into());
        key.set(FieldId::DpPort, dp_port.0.into());
        key.set(FieldId::RecircId, 0);
        let ingress = Ingress::new(in_port, dp_port, Depth::Everything);
        if extract_keeping_metadata(&packet.data, packet.data.len(), &ingress, &mut key).is_none() {
            return Err(ErrorKind::OFPBRC_BAD_PACKET);
        }
        let mut translation = Translation::default();
        let reader = self.domain.register();
        let version = self.switch.version();
        let known = self.switch.translate_resumed(version, &key, bridge, number, &reader, &mut translation);
        drop(reader);
        if !known {
            return Err(ErrorKind::NXR_STALE);
        }
        // The packet goes on with the mark that the controller gives it.
        let value = key.get(FieldId::PktMark);
        if value != 0 {
            let set = DpAction::Set { field: FieldId::PktMark, value, mask: FieldId::PktMark.ones() };
            translation.actions.insert(0, set);
        }
        self.carry_out(&packet.data, dp_port, translation);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_is_read_back_and_nothing_else_is() {
        let bytes = continuation(0x1234_5678);
        assert_eq!(number(&bytes), Some(0x1234_5678));
        assert_eq!(number(&[]), None);
        assert_eq!(number(&bytes[..20]), None);
        for at in (0..bytes.len()).filter(|at| !(8..12).contains(at)) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(number(&other), None, "{at}");
        }
    }
}
