//! Execution of a flow's action list on a run of its packets.
//!
//! Single outputs and drops, which make up nearly all flows, do not come here: the entry itself contains them
//! (see [`crate::cache::entry::Verdict`]).
//!
//! Each action is executed on all packets of the run before the next action, so that what it needs is fetched
//! once; except if a port would then get the packets out of order.

use crate::action::DpAction;
use crate::conntrack::run::{Readings, track_all, track_read};
use crate::conntrack::{Tracking, tuple::Tuple};
use crate::context::Context;
use crate::edit;
use crate::hash::PacketHash;
use crate::meter::{self, Meter, Metered};
use crate::recirculation::Metadata;
use crate::run::{Ends, Run};
use crate::transmission::Transmission;
use arrayvec::ArrayVec;
use base::{DropReason, PortNo};
use flow::FieldId;
use packet::batch::Runs;
use packet::{BURST, Batch, Packet};
use wire::Layers;

/// The ends for packets that may leave at once.
pub struct Leaving<'a> {
    pub context: &'a mut Context,
    pub tx: &'a mut Transmission,
}

impl Ends for Leaving<'_> {
    #[inline(always)]
    fn context(&mut self) -> &mut Context {
        self.context
    }

    #[inline(always)]
    fn send(&mut self, port: PortNo, packets: &mut Batch) {
        let count = packets.len();
        self.tx.send_run(self.context, port, &mut Runs::new(packets), count);
    }

    #[inline(always)]
    fn make_whole(&mut self, packet: &mut Packet) -> bool {
        !packet.is_lent()
    }
}

/// Executes a list. Every packet is sent, dropped, handed over, or queued for another round; the run is empty
/// afterwards.
pub fn execute<E: Ends>(actions: &[DpAction], run: &mut Run, to: &mut E) {
    if run.packets.len() > 1 && !keeps_order(actions, &mut 0) {
        return each_by_itself(actions, run, to);
    }
    execute_rest(actions, false, run, to);
}

/// Like [`execute`], for packets of a run that the tracker has read, and that only it may have changed since.
pub fn execute_on_read<E: Ends>(actions: &[DpAction], run: &mut Run, read: &Readings, to: &mut E) {
    match actions {
        [DpAction::Ct(request), rest @ ..] if read.are_of(run, request) && keeps_order(actions, &mut 0) => {
            let go_on = &mut |run: &mut Run, to: &mut E| execute_rest(rest, false, run, to);
            track_read((request, rest), run, read, to, go_on);
        }
        _ => execute(actions, run, to),
    }
}

/// Like [`execute`], but copies may have been delivered before.
fn execute_rest<E: Ends>(actions: &[DpAction], mut delivered: bool, run: &mut Run, to: &mut E) {
    // The last action that takes the packets gets the originals, those before it a copy of each; a copy, too,
    // if something behind it needs the packets.
    let last = actions.iter().rposition(|action| takes(action) || acts(action));
    let last_taker = last.filter(|n| takes(&actions[*n]));
    for (n, action) in actions.iter().enumerate() {
        if run.metadata.recirc_depth > 0 && !to.context().recirculation.may_act(run.packets.len()) {
            return drop_all(run, DropReason::RecircQueueFull, to);
        }
        match action {
            DpAction::Drop(reason) if !delivered => return drop_all(run, *reason, to),
            DpAction::Drop(_) => break,
            DpAction::Set { field: FieldId::PktMark, value, mask } => {
                let mark = &mut run.metadata.pkt_mark;
                *mark = *mark & !(*mask as u32) | (*value & *mask) as u32;
            }
            // These two for a packet from the control thread.
            DpAction::Set { field: FieldId::DpHash, value, .. } => run.metadata.dp_hash = *value as u32,
            DpAction::Set { field: FieldId::PacketType, value, .. } => run.set_packet_type(*value as u32),
            // Queues depend on the priority, but no port has queues yet, so it has no effect.
            DpAction::Set { field: FieldId::SkbPriority, .. } => {}
            DpAction::Meter(meter) => meter_all(meter, run, to),
            DpAction::Ct(request) => {
                let rest = &actions[n + 1..];
                let go_on = &mut |run: &mut Run, to: &mut E| execute_rest(rest, delivered, run, to);
                return track_all((request, rest), run, to, go_on);
            }
            DpAction::Hash(hash) => {
                let rest = &actions[n + 1..];
                return hash_all(*hash, run, |run| execute_rest(rest, delivered, run, to));
            }
            DpAction::CtClear => {
                run.metadata.tracking = Tracking::default();
                run.originals.clear();
            }
            DpAction::CheckPktLen { length, greater, others } => {
                let by_length = ByLength { length: (*length).into(), greater, others };
                if last_taker == Some(n) {
                    return by_length.execute(delivered, run, to);
                }
                by_length.execute(true, &mut run.copy(to.context()), to);
            }
            DpAction::Sample { probability, .. } if !chosen(*probability, to.context()) => {}
            taker if takes(taker) => {
                delivered = true;
                if last_taker == Some(n) {
                    return give(taker, run, to);
                }
                give(taker, &mut run.copy(to.context()), to);
            }
            change => {
                change_all(change, run, to);
                run.metadata.packet_type = change.packet_type_after(run.metadata.packet_type);
            }
        }
    }
    if delivered {
        run.drain().for_each(|packet| to.context().surplus(packet));
    } else {
        drop_all(run, DropReason::ActionDrop, to);
    }
}

fn drop_all<E: Ends>(run: &mut Run, reason: DropReason, to: &mut E) {
    to.context().drop_all(run.drain(), reason);
}

/// Whether each port gets all of a run's packets in order. False if a port gets each packet twice, or if only
/// some packets are chosen. Also false if it cannot tell, since several ports share a bit of `seen`.
fn keeps_order(actions: &[DpAction], seen: &mut u64) -> bool {
    actions.iter().all(|action| {
        let end = match action {
            DpAction::Output(port) | DpAction::OutputTrunc { port, .. } => port.0 % 62,
            DpAction::PacketIn(_) => 62,
            DpAction::Recirc(_) => 63,
            DpAction::Clone(actions) => return keeps_order(actions, seen),
            // A packet goes one way only.
            DpAction::CheckPktLen { greater, others, .. } => {
                let mut seen_by_others = *seen;
                let keeps = keeps_order(greater, seen) && keeps_order(others, &mut seen_by_others);
                *seen |= seen_by_others;
                return keeps;
            }
            DpAction::Sample { probability, actions } => {
                return *probability == u32::MAX && keeps_order(actions, seen);
            }
            _ => return true,
        };
        let is_new = *seen & 1 << end == 0;
        *seen |= 1 << end;
        is_new
    })
}

fn chosen(probability: u32, context: &mut Context) -> bool {
    probability == u32::MAX || context.random() < probability
}

fn each_by_itself<E: Ends>(actions: &[DpAction], run: &mut Run, to: &mut E) {
    let mut originals = std::mem::take(&mut run.originals).into_iter();
    for (packet, layers) in run.packets.drain(..).zip(run.layers.drain(..)) {
        let mut alone = Run::new(run.metadata);
        alone.push(packet, layers);
        alone.originals.extend(originals.next());
        execute(actions, &mut alone, to);
    }
}

/// Whether the action takes packets (copies, unless it is the last that does). Changes and drops do not.
fn takes(action: &DpAction) -> bool {
    matches!(
        action,
        DpAction::Output(_)
            | DpAction::OutputTrunc { .. }
            | DpAction::Sample { .. }
            | DpAction::CheckPktLen { .. }
            | DpAction::Clone(_)
            | DpAction::PacketIn(_)
            | DpAction::Recirc(_)
    )
}

/// Whether the action has an effect even if nothing takes the packets afterwards.
fn acts(action: &DpAction) -> bool {
    matches!(action, DpAction::Ct(_) | DpAction::Meter(_))
}

/// The lists for packets of different lengths, without padding.
struct ByLength<'a> {
    length: usize,
    greater: &'a [DpAction],
    others: &'a [DpAction],
}

impl ByLength<'_> {
    /// Executes on each stretch of packets that take the same list, so that their order is kept.
    #[inline(never)]
    fn execute<E: Ends>(&self, delivered: bool, run: &mut Run, to: &mut E) {
        while !run.packets.is_empty() {
            let each = run.packets.iter().zip(&mut run.layers);
            let mut are_greater = each.map(|(p, layers)| edit::unpadded_len(p, layers) > self.length);
            let first = are_greater.next().expect("there is a packet");
            let count = 1 + are_greater.take_while(|is_greater| *is_greater == first).count();
            let mut stretch = run.split(count);
            execute_rest(if first { self.greater } else { self.others }, delivered, &mut stretch, to);
        }
    }
}

fn give<E: Ends>(action: &DpAction, run: &mut Run, to: &mut E) {
    match action {
        DpAction::Output(port) => {
            run.layers.clear();
            run.originals.clear();
            to.send(*port, &mut run.packets);
        }
        DpAction::OutputTrunc { port, max_bytes } => {
            let cache = &mut to.context().cache;
            run.originals.clear();
            let each = run.packets.drain(..).zip(run.layers.drain(..));
            let mut cut: Batch = each
                .map(|(packet, mut layers)| edit::truncate(packet, &mut layers, *max_bytes as usize, cache))
                .collect();
            to.send(*port, &mut cut);
        }
        DpAction::Sample { actions, .. } | DpAction::Clone(actions) => execute(actions, run, to),
        DpAction::PacketIn(spec) => {
            let metadata = run.metadata;
            let each = run.drain_with_originals();
            each.for_each(|(packet, original)| to.context().packet_in(spec, packet, metadata, original));
        }
        DpAction::Recirc(recirc_id) => {
            let recirc_depth = run.metadata.recirc_depth + 1;
            let metadata = Metadata { recirc_id: *recirc_id, recirc_depth, ..run.metadata };
            run.layers.clear();
            to.context().recirculate_all(metadata, &mut run.packets, &mut run.originals);
        }
        _ => unreachable!("`takes` names the actions that come here"),
    }
}

/// Computes the packets' hashes. Packets with the same hash continue together, one such run after the other.
#[inline(never)]
fn hash_all(hash: PacketHash, run: &mut Run, mut go_on: impl FnMut(&mut Run)) {
    let mut originals = std::mem::take(&mut run.originals).into_iter();
    // Bound: each packet of the run once.
    let mut waiting: ArrayVec<(u32, Packet, Layers, Option<Tuple>), BURST> = ArrayVec::new();
    for (packet, layers) in run.packets.drain(..).zip(run.layers.drain(..)) {
        waiting.push((hash.of(&packet, run.metadata.packet_type), packet, layers, originals.next()));
    }
    while let Some((dp_hash, ..)) = waiting.first() {
        let dp_hash = *dp_hash;
        let mut alike = Run::new(Metadata { dp_hash, ..run.metadata });
        let mut others = ArrayVec::new();
        for (hash, packet, layers, original) in waiting {
            if hash == dp_hash {
                alike.push(packet, layers);
                alike.originals.extend(original);
            } else {
                others.push((hash, packet, layers, original));
            }
        }
        waiting = others;
        go_on(&mut alike);
    }
}

/// Applies a meter to all packets of a run, at one time.
#[inline(never)]
fn meter_all<E: Ends>(meter: &Meter, run: &mut Run, to: &mut E) {
    let now_ns = meter::now_ns();
    let mut n = 0;
    while let (Some(packet), Some(layers)) = (run.packets.get_mut(n), run.layers.get_mut(n)) {
        let verdict = match meter.admit(now_ns, packet.len() as u64) {
            Metered::Pass => Ok(()),
            Metered::Drop => Err(DropReason::MeterDrop),
            Metered::Remark(by) => edit::remark(packet, layers, by),
        };
        match verdict {
            Ok(()) => n += 1,
            Err(reason) => {
                let packet = run.remove(n);
                to.context().drop(packet, reason);
            }
        }
    }
}

/// Applies a change to all packets; drops those to which it cannot be applied.
fn change_all<E: Ends>(change: &DpAction, run: &mut Run, to: &mut E) {
    let mut n = 0;
    while let (Some(packet), Some(layers)) = (run.packets.get_mut(n), run.layers.get_mut(n)) {
        let is_head_enough = !packet.is_lent() || !edit::reads_payload(packet, layers, change);
        let changed = if is_head_enough || to.make_whole(packet) {
            edit::apply(packet, layers, change)
        } else {
            Err(DropReason::PoolExhausted)
        };
        match changed {
            Ok(()) => n += 1,
            Err(reason) => {
                let packet = run.remove(n);
                to.context().drop(packet, reason);
            }
        }
    }
}
