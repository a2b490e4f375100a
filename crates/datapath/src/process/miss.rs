//! Stages 5 and 6: the caches learn from the burst, and packets of flows that they do not know are translated.

use super::*;

impl<P: Pipeline> Process<P> {
    // 5. Promotion, and the end of what is out of date.
    pub(super) fn promote(&mut self, use_exact: bool, at: Moment) {
        for idx in self.scratch.stale_exact.drain(..) {
            self.cache.remove(Which::Exact, idx, &self.slots);
        }
        let mut promote = std::mem::take(&mut self.scratch.promote);
        if use_exact {
            for (i, idx) in promote.drain(..) {
                let e = self.cache.entry(Which::Mega, idx);
                if matches!(e.decision.verdict, Verdict::Unknown | Verdict::Stale) {
                    continue;
                }
                let from = FlowRef {
                    decision: e.decision,
                    mask: e.key.mask(),
                    sort: e.sort,
                    set: e.set,
                    marks: e.marks,
                    at,
                };
                let key = self.scratch.exact_key(usize::from(i));
                let hash = self.cache.exact_probe(&key);
                // The same flow may stand in the burst twice.
                if self.cache.exact_find(hash, &key) == 0 {
                    self.cache.insert_exact(&key, hash, &from, &self.slots);
                }
            }
        }
        for idx in self.scratch.stale_mega.drain(..) {
            self.cache.remove(Which::Mega, idx, &self.slots);
        }
    }

    // 6. Misses. Returns the cycles that they took.
    #[inline(never)]
    pub(super) fn misses(&mut self, metadata: Metadata, at: Moment) -> u64 {
        let start = tsc();
        let mut missed = std::mem::take(&mut self.scratch.missed);
        for (i, packet) in missed.drain(..) {
            let i = usize::from(i);
            let idx = self.cache.mega_search(self.out.input.port, &self.scratch.keys[i], at.version);
            if idx != 0 {
                let e = self.cache.entry(Which::Mega, idx);
                e.hit(1, packet.len() as u32, at.now);
                let decision = e.decision;
                self.out.stats.megaflow_hits.add(1);
                self.decided(decision, i, packet, metadata);
                continue;
            }
            self.scratch.exact_key_of(i, &packet);
            let idx = self.cache.alone_search(&self.scratch.exact_key(i), at.version);
            if idx != 0 {
                let e = self.cache.entry(Which::Exact, idx);
                e.hit(1, packet.len() as u32, at.now);
                let decision = e.decision;
                self.out.input.tuner.alone_hit();
                self.out.stats.exact_hits.add(1);
                self.decided(decision, i, packet, metadata);
                continue;
            }
            self.miss(i, packet, metadata, at);
        }
        tsc() - start
    }

    fn miss(&mut self, i: usize, packet: Packet, metadata: Metadata, at: Moment) {
        self.out.stats.misses.add(1);
        let t = &mut self.translation;
        t.clear();
        self.pipeline.translate(at.version, &self.scratch.keys[i], &self.reader, t);
        let mut cacheable = !t.uncacheable;
        if !deep_enough(&self.scratch.keys[i], &t.mask) {
            // The pipeline said a depth that its rules exceed: right the packet, and do not remember it.
            self.out.stats.depth_misses.add(1);
            let port = packet.in_port;
            let of_port = OfPort(self.pipeline.of_port(port));
            let ingress = Ingress::new(of_port, port, Depth::Everything);
            let key = &mut self.scratch.keys[i];
            if extract_keeping_metadata(packet.data(), packet.len(), &ingress, key).is_none() {
                return self.out.drop(packet, DropReason::RxTruncated);
            }
            t.clear();
            self.pipeline.translate(at.version, &self.scratch.keys[i], &self.reader, t);
            cacheable = false;
        }
        let has_effects = !t.effects.is_empty();
        for effect in t.effects.drain(..) {
            if self.effects.push(effect).is_err() {
                self.out.stats.effects_refused.add(1);
                cacheable = false;
            }
        }
        if has_effects {
            self.event_bell.ring();
        }
        let installed = if cacheable {
            let (key, exact) = (&self.scratch.keys[i], self.scratch.exact_key(i));
            self.cache.install(key, &exact, t, at, &self.slots)
        } else {
            None
        };
        let bytes = packet.len() as u64;
        let entry = match installed {
            Some(Installed::Megaflow(idx)) => Some(self.cache.entry(Which::Mega, idx)),
            Some(Installed::Exact(idx)) => {
                self.out.input.tuner.alone_hit();
                Some(self.cache.entry(Which::Exact, idx))
            }
            None => None,
        };
        match entry {
            Some(e) => {
                e.counts.add(1, bytes as u32);
                let body = e.decision.body;
                self.cache.made_by(body, packet.len());
            }
            None => {
                self.out.stats.not_cached.add(1);
                for &slot in &self.translation.credits {
                    self.slots.credit(slot, 1, bytes, self.now_ms);
                }
            }
        }
        let mut run = Run::new(metadata);
        run.push(packet, self.scratch.layers(i));
        execute(
            &self.translation.actions,
            &mut run,
            &mut Leaving { context: &mut self.out, tx: &mut self.tx },
        );
    }
}

/// Whether extraction went as deep as the mask asks. The fields of each depth that extraction skips are known by their bits.
fn deep_enough(key: &Key, mask: &flow::Mask) -> bool {
    let depth = (key.common().0[7] >> 16 & 0xff) as u8;
    if depth == Depth::Everything as u8 {
        return true;
    }
    crate::depths::beyond(depth).intersect_is_empty(mask)
}
