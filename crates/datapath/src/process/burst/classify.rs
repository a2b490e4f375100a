//! Stages 1 to 3, one after the other: what the packets of a burst are (`extract`), and which cached flows
//! they belong to (`exact`, `megaflow`).

use super::super::*;
use super::megaflow::Lately;
use super::todo::Todo;
use super::*;
use base::wide::Baseline;

impl<P: Pipeline> Process<P> {
    /// Stages 1 to 3.
    #[inline(always)]
    pub(in crate::process) fn classify(
        &mut self,
        received: Received,
        batch: &Batch,
        clock: &mut StageClock,
    ) -> Classified {
        let Received { mut memory, arrival } = received;
        let Arrival { ingress, use_exact, .. } = arrival;
        let mut todo = Todo::new();
        memory.to_port = None;
        let mut lately = Lately::NOTHING;
        let mut has_long = false;
        match (use_exact, arrival.origin, ingress.depth()) {
            (true, Some(origin), depth) => {
                // If the first packet is not untagged IPv4, most are not.
                let plain_first = batch.first().is_none_or(|p| p.data().get(12..14) == Some(&[8, 0]));
                let others = match self.cache.wide {
                    _ if !plain_first => Todo::all(batch.len()),
                    Some(wide) => memory.prepare_plain(wide, depth, &self.cache, batch, origin),
                    None => memory.prepare_plain(Baseline, depth, &self.cache, batch, origin),
                };
                if !others.is_empty() {
                    let others = (others, plain_first);
                    has_long = memory.prepare_others(&self.cache, batch, &ingress, origin, others);
                }
            }
            (true, None, _) => {
                memory.prepare_keys(Some(&self.cache), batch, &ingress, &mut lately, &mut todo);
            }
            (false, ..) => {
                lately = self.lately(&arrival);
                memory.prepare_keys(None, batch, &ingress, &mut lately, &mut todo);
            }
        }
        clock.lap(Stage::Extract);
        if use_exact {
            let hits = self.exact_stage(&mut memory, &mut todo, &arrival, batch, has_long);
            self.context.stats.exact_hits.add(hits);
            self.context.input.promotion.looked_up(hits, batch.len() as u64 - hits);
            if !todo.is_empty() {
                lately = self.lately(&arrival);
                memory.extract_rest(batch, &ingress, &mut lately, &mut todo);
            }
        }
        clock.lap(Stage::Exact);
        let hits = self.megaflow_stage(&mut memory, &mut todo, &arrival);
        self.context.stats.megaflow_hits.add(hits);
        if lately.recent.is_some() || memory.promote.len() > 1 {
            self.remember(&memory, &arrival, batch, &lately);
        }
        clock.lap(Stage::Megaflow);
        Classified { memory, arrival }
    }
}
