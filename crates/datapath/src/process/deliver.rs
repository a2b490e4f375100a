//! Stage 4: hits leave, to where their flows say.

use super::*;

impl<P: Pipeline> Process<P> {
    // 4, for a burst with lent tails. Hits that only go to ports, changed or not, leave first if one of those copies from where the
    // tail is; what becomes anything else is whole before the sender has its buffers back. Only then does anybody see
    // a packet of the burst.
    #[inline(never)]
    pub(super) fn lent_leave(&mut self, batch: &mut Batch, metadata: Metadata, lent: &mut Lent<'_>) {
        if !self.goes_straight(batch) {
            lent.fetch_all(batch, &mut self.out.cache);
            if !batch.iter().any(Packet::is_lent) {
                self.loan.leave(&mut self.out, &mut self.tx, lent);
                return self.hits_leave(batch, metadata);
            }
        }
        // Bound: each packet leaves the batch once.
        let mut stay: ArrayVec<(usize, Packet), BURST> = ArrayVec::new();
        let mut runs = Runs::new(batch);
        let mut first = 0;
        while runs.left() > 0 {
            let Row { decision, count, .. } = self.scratch.rows[first];
            let count = count as usize;
            let Process { cache, scratch, out, tx, loan, .. } = self;
            if let Verdict::Output(port) = decision.verdict
                && let Some(straight) = loan.bind(port.into(), tx)
            {
                runs.move_to(count, straight);
            } else if decision.verdict == Verdict::Actions
                && loan.may_take(cache.actions(decision.body), count, tx)
            {
                let mut run = scratch.run(first, first + count, metadata, &mut runs);
                let actions = cache.actions(decision.body);
                execute(actions, &mut run, &mut Lending { context: out, tx, lent, loan });
            } else {
                for mut packet in (0..count).map_while(|_| runs.take()) {
                    if lent.fetch(&mut packet, &mut out.cache) {
                        stay.push((first, packet));
                    } else {
                        out.drop(packet, DropReason::PoolExhausted);
                    }
                }
            }
            first += count;
        }
        self.loan.leave(&mut self.out, &mut self.tx, lent);
        for (first, packet) in stay {
            self.leave(first, packet, metadata);
        }
    }

    /// Whether any packet of the burst with a lent tail goes where it is copied straight.
    fn goes_straight(&mut self, batch: &Batch) -> bool {
        let Process { cache, tx, loan, scratch, .. } = self;
        let mut first = 0;
        while first < batch.len() {
            let Row { decision, count, .. } = scratch.rows[first];
            let count = count as usize;
            let is_straight = match decision.verdict {
                Verdict::Output(port) => loan.bind(port.into(), tx).is_some(),
                Verdict::Actions => loan.may_take(cache.actions(decision.body), count, tx),
                _ => false,
            };
            if is_straight && batch[first..first + count].iter().any(Packet::is_lent) {
                return true;
            }
            first += count;
        }
        false
    }

    // 4. Hits leave, in the order in which they came, runs with the same destination or list together; misses
    //    wait in `scratch.missed`.
    #[inline(never)]
    pub(super) fn hits_leave(&mut self, batch: &mut Batch, metadata: Metadata) {
        let len = batch.len();
        let mut runs = Runs::new(batch);
        let mut i = 0;
        while i < len {
            let Row { decision, count, .. } = self.scratch.rows[i];
            let first = i;
            i += count as usize;
            let rows = &self.scratch.rows;
            match decision.verdict {
                Verdict::Output(port) => {
                    while i < len && matches!(rows[i].decision.verdict, Verdict::Output(p) if p == port) {
                        i += rows[i].count as usize;
                    }
                    self.tx.send_run(&mut self.out, port.into(), &mut runs, i - first);
                    continue;
                }
                Verdict::Actions => {
                    let is_next =
                        |next: Decision| next.verdict == Verdict::Actions && next.body == decision.body;
                    while i < len && is_next(rows[i].decision) {
                        i += rows[i].count as usize;
                    }
                    let mut run = self.scratch.run(first, i, metadata, &mut runs);
                    self.execute_list(decision.body, &mut run);
                    continue;
                }
                Verdict::Drop(reason) => {
                    self.out.drop_all((0..count).map_while(|_| runs.take()), reason);
                    continue;
                }
                _ => {}
            }
            for _ in 0..count {
                let Some(packet) = runs.take() else { break };
                self.leave(first, packet, metadata);
            }
        }
    }

    fn execute_list(&mut self, body: u32, run: &mut Run) {
        execute(self.cache.actions(body), run, &mut Leaving { context: &mut self.out, tx: &mut self.tx });
    }

    /// A packet of the run that begins with packet `first` goes where its verdict says.
    #[inline(always)]
    fn leave(&mut self, first: usize, packet: Packet, metadata: Metadata) {
        self.decided(self.scratch.rows[first].decision, first, packet, metadata);
    }

    /// A packet goes where a decision says, or waits for translation where none was made.
    #[inline(always)]
    pub(super) fn decided(
        &mut self,
        Decision { verdict, body }: Decision,
        first: usize,
        packet: Packet,
        metadata: Metadata,
    ) {
        match verdict {
            Verdict::Output(port) => self.tx.send(&mut self.out, port.into(), packet),
            Verdict::Drop(reason) => self.out.drop(packet, reason),
            Verdict::Actions => {
                let mut run = Run::new(metadata);
                run.push(packet, self.scratch.layers(first));
                self.execute_list(body, &mut run);
            }
            Verdict::Unknown | Verdict::Stale => self.scratch.missed.push((first as u8, packet)),
        }
    }
}

impl Scratch {
    /// Takes the packets from `first` up to `end`, which are next in the batch.
    fn run(&self, first: usize, end: usize, metadata: Metadata, from: &mut Runs<'_>) -> Run {
        let mut run = Run::new(metadata);
        let mut next = first;
        while next < end {
            let layers = self.layers(next);
            for packet in (0..self.rows[next].count).map_while(|_| from.take()) {
                run.push(packet, layers);
            }
            next += self.rows[next].count as usize;
        }
        run
    }
}
