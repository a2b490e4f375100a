//! Stage 4: hits leave as their flows say.

use super::tracked::GoingRound;
use super::*;
use crate::conntrack::tuple::Tuple;

impl<P: Pipeline> Process<P> {
    /// Stage 4.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        mut burst: Classified,
        batch: &mut Batch,
        lent: Option<&mut Lent<'_>>,
    ) -> Delivered {
        match lent {
            None => self.hits_leave(&mut burst, batch),
            Some(lent) => self.lent_leave(&mut burst, batch, lent),
        }
        burst.delivered()
    }

    // 4, for a burst with lent tails. Hits that only go to ports, changed or not, leave first if one of those
    // ports copies from the sender's memory. All other packets fetch their tails before the sender gets its
    // buffers back. Only then is any packet of the burst visible to receivers.
    #[inline(never)]
    fn lent_leave(&mut self, burst: &mut Classified, batch: &mut Batch, lent: &mut Lent<'_>) {
        if !self.goes_straight(burst, batch) {
            lent.fetch_all(batch, &mut self.context.cache);
            if !batch.iter().any(Packet::is_lent) {
                self.loan.leave(&mut self.context, &mut self.tx, lent);
                return self.hits_leave(burst, batch);
            }
        }
        // Bound: each packet leaves the batch once.
        let mut stay: ArrayVec<(usize, Packet), BURST> = ArrayVec::new();
        let mut runs = Runs::new(batch);
        let mut first = 0;
        while runs.left() > 0 {
            let (decision, end) = burst.verdict(first);
            let count = end - first;
            let Process { cache, context, tx, loan, .. } = self;
            if let Verdict::Output(port) = decision.verdict
                && let Some(straight) = loan.bind(PortNo(port.into()), tx)
            {
                runs.move_to(count, straight);
            } else if decision.verdict.is_list() && loan.may_take(cache.actions(decision.body), count, tx) {
                let mut run = Run::new(burst.metadata());
                burst.take_run(first, end, &mut runs, &mut run);
                let actions = cache.actions(decision.body);
                execute(actions, &mut run, &mut Lending { context, tx, lent, loan });
            } else {
                for mut packet in (0..count).map_while(|_| runs.take()) {
                    if lent.fetch(&mut packet, &mut context.cache) {
                        stay.push((first, packet));
                    } else {
                        context.drop(packet, DropReason::PoolExhausted);
                    }
                }
            }
            first = end;
        }
        self.loan.leave(&mut self.context, &mut self.tx, lent);
        for (first, packet) in stay {
            self.leave(burst, first, packet);
        }
    }

    /// Whether any packet of the burst with a lent tail goes to a port that copies it directly.
    fn goes_straight(&mut self, burst: &Classified, batch: &Batch) -> bool {
        let Process { cache, tx, loan, .. } = self;
        let mut first = 0;
        while first < batch.len() {
            let (decision, end) = burst.verdict(first);
            let is_straight = match decision.verdict {
                Verdict::Output(port) => loan.bind(PortNo(port.into()), tx).is_some(),
                Verdict::Actions | Verdict::Track => {
                    loan.may_take(cache.actions(decision.body), end - first, tx)
                }
                _ => false,
            };
            if is_straight && batch[first..end].iter().any(Packet::is_lent) {
                return true;
            }
            first = end;
        }
        false
    }

    // 4. Hits leave, in order of arrival, runs with the same destination or list together; misses wait.
    #[inline(never)]
    fn hits_leave(&mut self, burst: &mut Classified, batch: &mut Batch) {
        if let Some(port) = burst.to_port() {
            return self.tx.send_all(&mut self.context, port, batch);
        }
        let len = batch.len();
        let mut runs = Runs::new(batch);
        let mut round = GoingRound::none();
        if !self.context.recirculation.is_empty() {
            round.any();
        }
        let mut first = 0;
        while first < len {
            let (decision, mut end) = burst.verdict(first);
            let is_alike = |next: Decision| next.verdict == decision.verdict && next.body == decision.body;
            match decision.verdict {
                Verdict::Output(port) => {
                    end =
                        burst.alike(end, len, |next| matches!(next.verdict, Verdict::Output(p) if p == port));
                    self.tx.send_run(&mut self.context, PortNo(port.into()), &mut runs, end - first);
                }
                Verdict::Actions => {
                    end = burst.alike(end, len, is_alike);
                    let mut run = Run::new(burst.metadata());
                    burst.take_run(first, end, &mut runs, &mut run);
                    self.execute_list(decision.body, &mut run);
                    if !self.context.recirculation.is_empty() {
                        round.any();
                    }
                }
                Verdict::Track => {
                    end = burst.alike(end, len, is_alike);
                    self.tracked_leave(burst, (first, end), &mut runs, &mut round);
                }
                Verdict::Drop(reason) => {
                    self.context.drop_all((first..end).map_while(|_| runs.take()), reason);
                }
                Verdict::Unknown | Verdict::Stale => {
                    for packet in (first..end).map_while(|_| runs.take()) {
                        burst.missed(first, packet);
                    }
                }
            }
            first = end;
        }
    }

    pub(super) fn execute_list(&mut self, body: u32, run: &mut Run) {
        execute(self.cache.actions(body), run, &mut Leaving { context: &mut self.context, tx: &mut self.tx });
    }

    /// Sends a packet of the run that starts with packet `first` where its verdict says.
    fn leave(&mut self, burst: &mut Classified, first: usize, packet: Packet) {
        let (decision, _) = burst.verdict(first);
        if let Err(packet) =
            self.decided(decision, packet, burst.layers(first), burst.metadata(), burst.original(first))
        {
            burst.missed(first, packet);
        }
    }

    /// Sends a packet where a decision says. Returns the packet if there is no decision.
    pub(super) fn decided(
        &mut self,
        Decision { verdict, body }: Decision,
        packet: Packet,
        layers: Layers,
        metadata: Metadata,
        original: Option<&Tuple>,
    ) -> Result<(), Packet> {
        match verdict {
            Verdict::Output(port) => self.tx.send(&mut self.context, PortNo(port.into()), packet),
            Verdict::Drop(reason) => self.context.drop(packet, reason),
            Verdict::Actions | Verdict::Track => {
                let mut run = Run::new(metadata);
                run.push(packet, layers);
                run.originals.extend(original.copied());
                self.execute_list(body, &mut run);
            }
            Verdict::Unknown | Verdict::Stale => return Err(packet),
        }
        Ok(())
    }
}
