//! Openings of connections go on to their next round at once.
//!
//! A firewall tracks an opening segment, and sends it round to a rule that commits its connection and lets it
//! pass. Where the megaflow of that round was [hit lately](crate::cache::recent) and nothing else goes round,
//! the segments need not wait, and what the tracker has read of them need not be read again.

use super::*;
use crate::DpAction;
use crate::cache::recent::{Recent, Shared};
use crate::conntrack::run::{read_all, track_read};
use crate::execute::execute_on_read;

impl<P: Pipeline> Process<P> {
    /// Executes a list with the verdict [`Verdict::Track`] on packets, which are not followed.
    #[inline(always)]
    pub(super) fn track(&mut self, arrival: &Arrival, body: u32, run: &mut Run) {
        let is_ethernet = run.metadata.packet_type == packet_type::ETHERNET;
        if is_ethernet && run.packets.iter().all(|packet| may_open_tcp(packet.data())) {
            self.open(arrival, body, run);
        } else {
            self.execute_list(body, run);
        }
    }

    #[inline(never)]
    fn open(&mut self, arrival: &Arrival, body: u32, run: &mut Run) {
        let Process { cache, context, tx, pipeline, reader, .. } = self;
        let [DpAction::Ct(request), DpAction::Recirc(recirc_id)] = cache.actions(body) else {
            unreachable!("such lists have that verdict");
        };
        let (request, recirc_id) = (**request, *recirc_id);
        let rest = &[DpAction::Recirc(recirc_id)];
        let to = &mut Leaving { context, tx };
        let go_round = &mut |run: &mut Run, to: &mut Leaving<'_>| execute(rest, run, to);
        let read = read_all((&request, rest), run, to, go_round);
        track_read((&request, rest), run, &read, to, &mut |run, to| {
            let mut sights = Sights::new(&**pipeline, &*reader, arrival.at.version);
            let Some((recent, metadata)) = ahead(cache, arrival, recirc_id, run, to.context, &mut sights)
            else {
                return execute(rest, run, to);
            };
            run.metadata = metadata;
            let actions = match recent.decision.verdict {
                Verdict::Output(port) => &[DpAction::Output(PortNo(port.into()))][..],
                Verdict::Drop(reason) => &[DpAction::Drop(reason)],
                _ => cache.actions(recent.decision.body),
            };
            execute_on_read(actions, run, &read, to);
        });
    }
}

/// The megaflow of the next round to which all packets of a run belong, and their metadata there; counts them
/// if there is one. `None` if they must wait for that round.
#[inline(never)]
fn ahead<P: Pipeline>(
    cache: &mut FlowCache,
    arrival: &Arrival,
    recirc_id: u32,
    run: &Run,
    context: &mut Context,
    sights: &mut Sights<'_, P>,
) -> Option<(Recent, Metadata)> {
    let Metadata { recirc_depth, tracking, .. } = run.metadata;
    let metadata = Metadata { recirc_id, recirc_depth: recirc_depth + 1, ..run.metadata };
    // In that round, openings of new connections skip the exact tier.
    let opens = tracking.state & state::NEW != 0;
    if !opens || !may_go_round(metadata.recirc_depth) || !context.recirculation.is_empty() {
        return None;
    }
    let origin = Origin::new(arrival.of_port, metadata);
    let shared = Shared { input: arrival.input, origin, depth: Depth::Everything };
    let recent = cache.recent(&shared, arrival.at, sights)?;
    let mut counts = Counts::NONE;
    for packet in &run.packets {
        let key = plain_key(packet.data(), packet.len(), Depth::Everything, 0)?;
        if !opens_tcp(&key) || !recent.has(&key) {
            return None;
        }
        counts.add(Counts::one(packet));
    }
    count_round(cache, context, (Which::Mega, recent.megaflow), counts, arrival.at.now);
    context.stats.masks_searched.add(counts.packets());
    cache.mask_of_megaflow_hit(arrival.input, recent.megaflow, counts.packets() as u32);
    Some((recent, metadata))
}
