//! Stages 5 and 6: the caches learn from the burst, and packets of flows in no cache are translated.

use super::*;

impl<P: Pipeline> Process<P> {
    // 5. Promotion, and removal of what is out of date.
    pub(super) fn learn(&mut self, mut burst: Delivered) -> Missed {
        let Arrival { use_exact, at, metadata, .. } = burst.arrival;
        let is_tracked = metadata.tracking.state != 0;
        for idx in burst.stale_exact() {
            self.cache.remove(Which::Exact, idx);
        }
        let is_crowded = self.cache.is_exact_crowded();
        while use_exact && let Some((key, megaflow)) = burst.promoted() {
            let e = self.cache.entry(Which::Mega, megaflow);
            if matches!(e.decision.verdict, Verdict::Unknown | Verdict::Stale) {
                continue;
            }
            let Entry { decision, sort, set, marks, .. } = *e;
            // If there is little room, entries for packets after tracking give way to those for packets
            // before: from these, a trail leads to the megaflow.
            if is_tracked && decision.verdict != Verdict::Track && is_crowded {
                continue;
            }
            // Only a few of a tracked connection's segments open it, and a cache of them would hardly ever be
            // hit.
            if (is_tracked || decision.verdict == Verdict::Track)
                && matches!(&key, ExactKey::Plain(key) if opens_tcp(key))
            {
                self.context.input.tracked_opening(self.now_ms);
                continue;
            }
            // While a port exceeds its share of new connections, most packets that are tracked are refused,
            // and the only ones of their flows.
            if decision.verdict == Verdict::Track && self.context.exceeds_share() {
                continue;
            }
            let from = FlowRef { decision, mask: e.key.mask(), sort, set, marks, at };
            if is_tracked && self.cache.is_too_narrow_for(from.mask, &key) {
                continue;
            }
            let (hash, _) = self.cache.exact_probe(&key);
            // The same flow may be in the burst twice.
            if self.cache.exact_find(hash, &key) == 0 {
                self.cache.insert_exact(&key, hash, &from);
            }
        }
        self.cache.forget_stale_stats();
        for idx in burst.stale_megaflows().chain(self.stale_ahead.drain(..)) {
            self.cache.remove_stale(idx);
        }
        burst.learned()
    }

    // 6. Misses. Returns the cycles spent on them.
    #[inline(never)]
    pub(super) fn misses(&mut self, burst: &mut Missed) -> u64 {
        let start = tsc();
        let arrival = burst.arrival;
        let Arrival { metadata, at, .. } = arrival;
        self.cache.begin_misses();
        self.pipeline.prefetch(at.version, burst.keys(), &self.reader);
        while let Some((packet, miss)) = burst.next() {
            let (mega, probed) = self.cache.fresh_search(miss.key);
            let (which, idx, hits) = if mega != 0 {
                (Which::Mega, mega, &self.context.stats.megaflow_hits)
            } else {
                let alone = self.cache.alone_search(|| miss.exact_key(&packet), at.version);
                (Which::Exact, alone, &self.context.stats.exact_hits)
            };
            if idx == 0 {
                self.miss((miss, &probed), packet, &arrival);
                continue;
            }
            hits.add(1);
            let e = self.cache.entry(which, idx);
            e.hit(Counts::one(&packet), at.now);
            let decision = e.decision;
            if which == Which::Exact {
                self.context.input.met_alone(self.now_ms);
            }
            if let Err(packet) = self.decided(decision, packet, miss.layers, metadata, miss.original) {
                self.miss((miss, &probed), packet, &arrival);
            }
        }
        tsc() - start
    }

    fn miss(&mut self, (miss, probed): (Miss<'_>, &Probed), packet: Packet, arrival: &Arrival) {
        if self.steps_left == 0 {
            return self.context.drop(packet, DropReason::TranslationTime);
        }
        let at = arrival.at;
        self.context.stats.misses.add(1);
        let t = &mut self.translation;
        t.clear();
        t.packet_len = Some(packet.len());
        self.pipeline.translate(at.version, miss.key, &self.reader, t);
        let mut cacheable = !t.uncacheable;
        let mut steps = t.steps_and_lists();
        if !deep_enough(miss.key, &t.mask) {
            // The pipeline's rules exceed the depth that it gave: process the packet correctly, but do not
            // cache it.
            self.context.stats.depth_misses.add(1);
            let deep = arrival.ingress.with_depth(Depth::Everything);
            if extract_keeping_metadata(packet.data(), packet.len(), &deep, miss.key).is_none() {
                return self.context.drop(packet, DropReason::RxTruncated);
            }
            t.clear();
            t.packet_len = Some(packet.len());
            self.pipeline.translate(at.version, miss.key, &self.reader, t);
            cacheable = false;
            steps += t.steps_and_lists();
        }
        self.steps_left = self.steps_left.saturating_sub(steps);
        let has_effects = !t.effects.is_empty();
        for effect in t.effects.drain(..) {
            if self.effects.push(effect).is_err() {
                self.context.stats.effects_refused.add(1);
                cacheable = false;
            }
        }
        if has_effects {
            self.event_bell.ring();
        }
        let installed = if cacheable {
            self.cache.install(arrival.input, (miss.key, probed), || miss.exact_key(&packet), t, at)
        } else {
            None
        };
        let entry = match installed {
            Some(Installed::Megaflow(idx)) => {
                self.keep_first(idx, miss.key, &packet, &arrival.ingress);
                Some(self.cache.entry(Which::Mega, idx))
            }
            Some(Installed::Exact(idx)) => {
                self.context.input.met_alone(self.now_ms);
                Some(self.cache.entry(Which::Exact, idx))
            }
            None => None,
        };
        match entry {
            Some(e) => {
                e.counts.add(Counts::one(&packet));
                let body = e.decision.body;
                self.cache.made_by(body, packet.len());
            }
            None => {
                self.context.stats.not_cached.add(1);
                for &slot in &self.translation.credits {
                    self.cache.slots.credit(slot, 1, packet.len() as u64, self.now_ms);
                }
            }
        }
        let Process { context, tx, translation, .. } = self;
        match verdict_of(&translation.actions) {
            Verdict::Output(port) => tx.send(context, PortNo(port.into()), packet),
            Verdict::Drop(reason) => context.drop(packet, reason),
            _ => {
                let mut run = Run::new(arrival.metadata);
                run.push(packet, miss.layers);
                run.originals.extend(miss.original.copied());
                execute(&translation.actions, &mut run, &mut Leaving { context, tx });
            }
        }
    }

    /// Keeps the key of the packet that created a megaflow, including fields that no rule has asked for.
    #[inline(always)]
    fn keep_first(&mut self, megaflow: u32, key: &Key, packet: &Packet, ingress: &Ingress) {
        if ingress.depth() == Depth::Everything {
            return self.cache.keep_first(megaflow, key);
        }
        // It comes straight from a port, so it has no metadata beyond what the ingress says.
        let whole = &mut *self.whole;
        if extract(packet.data(), packet.len(), &ingress.with_depth(Depth::Everything), whole).is_some() {
            self.cache.keep_first(megaflow, whole);
        }
    }
}

/// Whether extraction went as deep as the mask needs. The fields of each depth that extraction skips are
/// known by their bits.
fn deep_enough(key: &Key, mask: &flow::Mask) -> bool {
    let depth = (key.common().0[7] >> 16 & 0xff) as u8;
    if depth == Depth::Everything as u8 {
        return true;
    }
    crate::depths::beyond(depth).intersect_is_empty(mask)
}
