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
            let v = self.scratch.verdicts[first];
            let count = self.scratch.counts[first] as usize;
            let Process { cache, scratch, out, tx, loan, .. } = self;
            if v.kind == kind::OUTPUT
                && let Some(straight) = loan.bind(v.port, tx)
            {
                runs.move_to(count, straight);
            } else if v.kind == kind::LIST && loan.may_take(cache.actions(v.body), count, tx) {
                let mut run = scratch.run(first, first + count, metadata, &mut runs);
                execute(cache.actions(v.body), &mut run, &mut Lending { context: out, tx, lent, loan });
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
            let count = scratch.counts[first] as usize;
            let v = scratch.verdicts[first];
            let is_straight = match v.kind {
                kind::OUTPUT => loan.bind(v.port, tx).is_some(),
                kind::LIST => loan.may_take(cache.actions(v.body), count, tx),
                _ => false,
            };
            if is_straight && batch[first..first + count].iter().any(Packet::is_lent) {
                return true;
            }
            first += count;
        }
        false
    }

    // 4. Hits leave, in the order in which they came, runs with the same destination or list together; misses wait in
    // `scratch.missed`.
    #[inline(never)]
    pub(super) fn hits_leave(&mut self, batch: &mut Batch, metadata: Metadata) {
        let len = batch.len();
        let mut runs = Runs::new(batch);
        let mut i = 0;
        while i < len {
            let v = self.scratch.verdicts[i];
            let count = self.scratch.counts[i] as usize;
            let first = i;
            i += count;
            if matches!(v.kind, kind::OUTPUT | kind::LIST) {
                while i < len && self.scratch.verdicts[i].is_same_way(v) {
                    i += self.scratch.counts[i] as usize;
                }
                if v.kind == kind::OUTPUT {
                    self.tx.send_run(&mut self.out, v.port, &mut runs, i - first);
                } else {
                    let mut run = self.scratch.run(first, i, metadata, &mut runs);
                    execute(
                        self.cache.actions(v.body),
                        &mut run,
                        &mut Leaving { context: &mut self.out, tx: &mut self.tx },
                    );
                }
                continue;
            }
            for _ in 0..count {
                let Some(packet) = runs.take() else { break };
                self.leave(first, packet, metadata);
            }
        }
    }

    /// A packet of the run that begins with packet `first` goes where its verdict says.
    #[inline(always)]
    fn leave(&mut self, first: usize, packet: Packet, metadata: Metadata) {
        let v = self.scratch.verdicts[first];
        match v.kind {
            kind::OUTPUT => self.tx.send(&mut self.out, v.port, packet),
            kind::DROP => self.out.drop(packet, DropReason::ALL[v.port as usize]),
            kind::LIST => {
                let mut run = Run::new(metadata);
                run.push(packet, self.scratch.layers(first));
                execute(
                    self.cache.actions(v.body),
                    &mut run,
                    &mut Leaving { context: &mut self.out, tx: &mut self.tx },
                );
            }
            TRUNCATED => self.out.drop(packet, DropReason::RxTruncated),
            _ => self.scratch.missed.push((first as u8, packet)),
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
            for packet in (0..self.counts[next]).map_while(|_| from.take()) {
                run.push(packet, layers);
            }
            next += self.counts[next] as usize;
        }
        run
    }
}

impl Verdict {
    /// Whether it sends to the same port, or by the same list.
    #[inline(always)]
    fn is_same_way(self, other: Verdict) -> bool {
        self.kind == other.kind
            && self.port == other.port
            && (self.kind == kind::OUTPUT || self.body == other.body)
    }
}
