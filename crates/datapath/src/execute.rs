//! Execution of a flow's action list on one packet.
//!
//! The single output and the drop, which nearly all flows consist of, do not come here: the entry itself says them
//! (see [`crate::cache::entry::kind`]).

use crate::action::DpAction;
use crate::edit;
use crate::output::{Outputs, Recirculated};
use base::DropReason;
use flow::FieldId;
use packet::Packet;
use wire::Layers;

/// What a packet carries through the list beside its bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Carried {
    /// The packet mark.
    pub pkt_mark: u32,
    /// Rounds of recirculation so far.
    pub recirc_depth: u8,
    /// Where its headers are, if extraction has found out.
    pub layers: Layers,
}

/// Where a list's packets go.
pub trait Ends {
    /// Where those go that are not sent.
    fn out(&mut self) -> &mut Outputs;

    /// Sends a packet to a port, now or when all of its burst may go.
    fn send(&mut self, port: u32, packet: Packet);

    /// Has a packet whose tail is lent be like any other. False where the pool has no room for it.
    fn make_whole(&mut self, packet: &mut Packet) -> bool;
}

impl Ends for Outputs {
    #[inline(always)]
    fn out(&mut self) -> &mut Outputs {
        self
    }

    #[inline(always)]
    fn send(&mut self, port: u32, packet: Packet) {
        Outputs::send(self, port, packet);
    }

    #[inline(always)]
    fn make_whole(&mut self, packet: &mut Packet) -> bool {
        !packet.is_lent()
    }
}

/// Executes a list. The packet ends somewhere: sent, dropped, handed over, or queued for another round.
pub fn execute<E: Ends>(actions: &[DpAction], mut packet: Packet, mut carried: Carried, to: &mut E) {
    // The last action that takes the packet gets it, those before a copy each.
    let last_taker = actions.iter().rposition(takes);
    let mut delivered = false;
    for (n, action) in actions.iter().enumerate() {
        match action {
            DpAction::Drop(reason) if !delivered => return to.out().drop(packet, *reason),
            DpAction::Drop(_) => break,
            DpAction::Recirc(recirc_id) => {
                return to.out().recirculate(Recirculated {
                    packet,
                    recirc_id: *recirc_id,
                    pkt_mark: carried.pkt_mark,
                    depth: carried.recirc_depth + 1,
                });
            }
            DpAction::Set { field: FieldId::PktMark, value, mask } => {
                carried.pkt_mark = carried.pkt_mark & !(*mask as u32) | (*value & *mask) as u32;
            }
            // Queues hang on the priority; no port has any so far, so it ends here.
            DpAction::Set { field: FieldId::SkbPriority, .. } => {}
            DpAction::Sample { probability, .. } if !chosen(*probability, to.out()) => {}
            taker if takes(taker) => {
                delivered = true;
                if last_taker == Some(n) {
                    return give(taker, packet, carried, to);
                }
                if let Some(copy) = to.out().copy(&packet) {
                    give(taker, copy, carried, to);
                }
            }
            change => {
                let layers = &mut carried.layers;
                let is_head_enough = !packet.is_lent() || !edit::reads_payload(&packet, layers, change);
                if !is_head_enough && !to.make_whole(&mut packet) {
                    return to.out().drop(packet, DropReason::PoolExhausted);
                }
                if let Err(reason) = edit::apply(&mut packet, layers, change) {
                    return to.out().drop(packet, reason);
                }
            }
        }
    }
    if delivered {
        to.out().surplus(packet);
    } else {
        to.out().drop(packet, DropReason::ActionDrop);
    }
}

fn chosen(probability: u32, out: &mut Outputs) -> bool {
    probability == u32::MAX || out.random() < probability
}

/// Whether the action takes a packet (a copy, unless nobody takes one after it). Changes and drops do not.
fn takes(action: &DpAction) -> bool {
    matches!(
        action,
        DpAction::Output(_)
            | DpAction::OutputTrunc { .. }
            | DpAction::Sample { .. }
            | DpAction::Clone(_)
            | DpAction::PacketIn(_)
            | DpAction::Recirc(_)
    )
}

fn give<E: Ends>(action: &DpAction, packet: Packet, carried: Carried, to: &mut E) {
    match action {
        DpAction::Output(port) => to.send(port.0, packet),
        DpAction::OutputTrunc { port, max_bytes } => {
            let cut = edit::truncate(packet, *max_bytes as usize, &mut to.out().cache);
            to.send(port.0, cut);
        }
        DpAction::Sample { actions, .. } | DpAction::Clone(actions) => {
            execute(actions, packet, carried, to);
        }
        DpAction::PacketIn(spec) => to.out().packet_in(spec, packet, carried.pkt_mark),
        _ => unreachable!("`takes` names the actions that come here"),
    }
}
