//! The datapath's actions on a packet that is a key and a stack of tags.

use super::model::{Packet, Seen};
use datapath::DpAction;
use flow::{FieldId, Key};

/// What comes of a packet by these actions.
pub fn execute(key: &Key, actions: &[DpAction]) -> Vec<Seen> {
    let mut seen = vec![];
    run(&mut Packet::of(key), length(key), actions, &mut seen);
    seen
}

/// Keys have no length, so packets here have one that goes by an address, whatever masks hold of that.
pub fn length(key: &Key) -> u16 {
    100 + 50 * (key.get64(FieldId::EthSrc) as u16 & 3)
}

fn run(packet: &mut Packet, length: u16, actions: &[DpAction], seen: &mut Vec<Seen>) {
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
            DpAction::Clone(inner) => run(&mut packet.clone(), length, inner, seen),
            DpAction::CheckPktLen { length: limit, greater, others } => {
                let branch = if length > *limit { greater } else { others };
                run(&mut packet.clone(), length, branch, seen);
            }
            DpAction::PacketIn(spec) => seen.push(Seen::Told(spec.reason as u8, packet.wire())),
            DpAction::Meter(meter) => packet.meters.push(meter.clone()),
            DpAction::Drop(_) => {}
            other => panic!("the generator leads to no {other:?}"),
        }
    }
}
