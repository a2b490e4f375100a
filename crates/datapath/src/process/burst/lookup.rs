//! Stages 2 and 3: whether an entry that was found applies to a packet.

use super::super::*;
use super::*;

impl<P: Pipeline> Process<P> {
    #[inline(always)]
    pub(super) fn lookup(&mut self, which: Which, at: Moment) -> (Lookup<'_, P>, Sights<'_, P>) {
        let Process { pipeline, reader, cache, context, .. } = self;
        let (pipeline, reader) = (&**pipeline, &*reader);
        let lookup = Lookup { which, at, pipeline, reader, cache, stats: &context.stats };
        (lookup, Sights::new(pipeline, reader, at.version))
    }
}

/// What is needed to decide whether a found entry applies to a packet.
pub(super) struct Lookup<'a, P: Pipeline> {
    which: Which,
    at: Moment,
    pipeline: &'a P,
    reader: &'a rcu::Reader,
    pub cache: &'a mut FlowCache,
    pub stats: &'a WorkerStats,
}

impl<P: Pipeline> Lookup<'_, P> {
    /// Whether entry `idx` (0: none was found) is right for the row: of this version, or affected by no later
    /// change. If so, counts and decides the row. `extract` completes the packet's `key` if the flow must be
    /// judged in full; `stale` is called with an entry that is out of date.
    #[inline(always)]
    pub(super) fn answers(
        &mut self,
        sights: &mut Sights<'_, P>,
        idx: u32,
        row: &mut Row,
        key: &mut Key,
        extract: impl FnOnce(&mut Key),
        stale: impl FnOnce(u32),
    ) -> bool {
        if idx == 0 {
            return false;
        }
        let (which, now) = (self.which, self.at.version);
        if self.cache.entry(which, idx).version != ShortVersion::of(now)
            && !self.cache.renew(which, idx, sights)
        {
            extract(key);
            let judged = self.cache.judge(which, idx, key, now, self.pipeline, self.reader);
            if let Judged::Stale { is_new } = judged {
                if is_new {
                    self.stats.touched.add(1);
                    stale(idx);
                }
                return false;
            }
        }
        let e = self.cache.entry(which, idx);
        e.hit(row.counts, self.at.now);
        row.decision = e.decision;
        if e.counts.is_full() {
            self.cache.fold(which, idx);
        }
        true
    }
}
