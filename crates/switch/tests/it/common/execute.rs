//! The datapath's actions on a packet that is a key and a stack of tags.

use super::model::{Packet, Seen};
use datapath::DpAction;
use datapath::meter::{self, Metered};
use flow::{FieldId, Key};

/// What comes of a packet by these actions, which no meter judges.
pub fn execute(key: &Key, actions: &[DpAction]) -> Vec<Seen> {
    let mut run = Run { length: length(key), now_ns: None, seen: vec![] };
    run.list(&mut Packet::of(key), actions);
    run.seen
}

/// What comes of a packet at this time.
pub fn execute_at(key: &Key, actions: &[DpAction], now_ns: u64) -> Vec<Seen> {
    let mut run = Run { length: length(key), now_ns: Some(now_ns), seen: vec![] };
    run.list(&mut Packet::of(key), actions);
    run.seen
}

/// Keys have no length, so packets here have one that goes by an address, whatever masks hold of that.
pub fn length(key: &Key) -> u16 {
    100 + 50 * (key.get64(FieldId::EthSrc) as u16 & 3)
}

struct Run {
    /// Of the packet, in bytes.
    length: u16,
    /// The clock of meters.
    now_ns: Option<u64>,
    seen: Vec<Seen>,
}

impl Run {
    fn list(&mut self, packet: &mut Packet, actions: &[DpAction]) {
        for action in actions {
            match action {
                DpAction::Output(port) | DpAction::OutputTrunc { port, .. } => {
                    self.seen.push(Seen::Sent(*port, packet.wire()));
                }
                DpAction::Set { field: FieldId::VlanTci, value, mask } => {
                    let tag = &mut packet.tags[0].1;
                    *tag = *tag & !(*mask as u16) | *value as u16;
                }
                DpAction::Set { field, value, mask } => packet.key.set_masked(*field, *value, *mask),
                DpAction::PushVlan { tpid, tci } => packet.tags.insert(0, (*tpid, tci | 0x1000)),
                DpAction::PopVlan => drop(packet.tags.remove(0)),
                DpAction::Clone(inner) => self.list(&mut packet.clone(), inner),
                DpAction::CheckPktLen { length: limit, greater, others } => {
                    let branch = if self.length > *limit { greater } else { others };
                    self.list(&mut packet.clone(), branch);
                }
                DpAction::PacketIn(spec) => self.seen.push(Seen::Told(spec.reason as u8, packet.wire())),
                DpAction::Meter(meter) => {
                    packet.meters.push(meter.clone());
                    let verdict = self.now_ns.map(|now| meter.admit(now, self.length.into()));
                    match verdict.unwrap_or(Metered::Pass) {
                        Metered::Pass => {}
                        Metered::Drop => return,
                        Metered::Remark(by) => remark(packet, by),
                    }
                }
                DpAction::Drop(_) => {}
                other => panic!("the generator leads to no {other:?}"),
            }
        }
    }
}

/// As the datapath does it on the packet's bytes.
fn remark(packet: &mut Packet, by: u8) {
    if matches!(packet.key.get64(FieldId::EthType), 0x800 | 0x86dd) {
        let tos = packet.key.get64(FieldId::NwTos) as u8;
        packet.key.set(FieldId::NwTos, meter::remarked(tos, by).into());
    }
}
