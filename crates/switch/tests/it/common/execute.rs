//! The datapath's actions on a packet that is a key and a stack of tags.

use super::model::{Packet, Seen};
use datapath::DpAction;
use flow::{FieldId, Key};

/// What comes of a packet by these actions.
pub fn execute(key: &Key, actions: &[DpAction]) -> Vec<Seen> {
    let mut seen = vec![];
    run(&mut Packet::of(key), actions, &mut seen);
    seen
}

fn run(packet: &mut Packet, actions: &[DpAction], seen: &mut Vec<Seen>) {
    for action in actions {
        match action {
            DpAction::Output(port) | DpAction::OutputTrunc { port, .. } => {
                seen.push(Seen::Sent(*port, packet.wire()))
            }
            DpAction::Set { field: FieldId::VlanTci, value, mask } => {
                let tag = &mut packet.tags[0].1;
                *tag = *tag & !(*mask as u16) | *value as u16;
            }
            DpAction::Set { field, value, mask } => packet.key.set_masked(*field, *value, *mask),
            DpAction::PushVlan { tpid, tci } => packet.tags.insert(0, (*tpid, tci | 0x1000)),
            DpAction::PopVlan => drop(packet.tags.remove(0)),
            DpAction::Clone(inner) => run(&mut packet.clone(), inner, seen),
            DpAction::PacketIn(spec) => seen.push(Seen::Told(spec.reason as u8, packet.wire())),
            DpAction::Drop(_) => {}
            other => panic!("the generator leads to no {other:?}"),
        }
    }
}
