//! Stage 3: the megaflow tier. Plain packets are compared with the megaflow that packets like them hit lately
//! before their keys are extracted ([`Lately`]); the rest are looked up under one mask after the other.

use super::super::*;
use super::todo::Todo;
use super::*;
use crate::cache::recent::{Recent, Shared};

/// The megaflow that packets like the burst's hit lately, and what it decides of the burst.
pub(super) struct Lately {
    /// `None`: nothing is known.
    pub recent: Option<Recent>,
    /// What the burst's packed keys say about their origin, if there is a megaflow.
    pub origin: u64,
    /// Rows that were compared, and those that belong to it.
    compared: u32,
    decided: u32,
    /// Packets of the latter.
    hits: Counts,
}

impl Lately {
    pub(super) const NOTHING: Lately =
        Lately { recent: None, origin: 0, compared: 0, decided: 0, hits: Counts::NONE };

    /// Whether the row, which has this packed key, belongs to the megaflow; if so, decides it.
    #[inline(always)]
    pub(super) fn decides(&mut self, key: &PlainKey, row: &mut Row) -> bool {
        self.compared += 1;
        let Some(recent) = self.recent.filter(|recent| recent.has(key)) else { return false };
        row.decision = recent.decision;
        self.decided += 1;
        self.hits.add(row.counts);
        true
    }
}

impl Arrival {
    fn shared(&self) -> Shared {
        let origin = Origin::new(self.of_port, self.metadata);
        Shared { input: self.input, origin, depth: self.ingress.depth() }
    }
}

impl<P: Pipeline> Process<P> {
    /// Before packets are compared.
    #[inline(never)]
    pub(super) fn lately(&mut self, arrival: &Arrival) -> Lately {
        let Some(origin) = arrival.origin else { return Lately::NOTHING };
        let Process { cache, pipeline, reader, .. } = self;
        let mut sights = Sights::new(&**pipeline, &*reader, arrival.at.version);
        let recent = cache.recent(&arrival.shared(), arrival.at, &mut sights);
        Lately { recent, origin, ..Lately::NOTHING }
    }

    /// When all packets are decided: counts those that belong to the megaflow that was hit lately, and
    /// remembers another one if only few do and others belong together.
    #[inline(never)]
    pub(super) fn remember(&mut self, memory: &Memory, arrival: &Arrival, batch: &Batch, lately: &Lately) {
        let Process { cache, context, .. } = self;
        if let Some(Recent { megaflow, .. }) = lately.recent {
            let e = cache.entry(Which::Mega, megaflow);
            if lately.decided > 0 {
                e.hit(lately.hits, arrival.at.now);
                if e.counts.is_full() {
                    cache.fold(Which::Mega, megaflow);
                }
                context.stats.megaflow_hits.add(lately.hits.packets());
                context.stats.masks_searched.add(lately.decided.into());
                cache.mask_of_megaflow_hit(arrival.input, megaflow, lately.decided);
            }
            if lately.decided * KEPT_BY >= lately.compared {
                return;
            }
            cache.hit_no_longer(&arrival.shared());
        }
        if let [.., (_, before), (i, megaflow)] = memory.promote[..]
            && before == megaflow
            && let Some(origin) = arrival.origin
        {
            let i = usize::from(i);
            let (packet, depth) = (&batch[i], arrival.ingress.depth());
            if let Some(key) = plain_key(packet.data(), packet.len(), depth, origin) {
                cache.hit_lately(arrival.shared(), key, megaflow);
            }
        }
    }
}

/// A megaflow is no longer tried first if fewer than one packet in this many belongs to it: the others are
/// compared in vain.
const KEPT_BY: u32 = 4;

impl<P: Pipeline> Process<P> {
    // 3. Megaflow tier. Returns the number of packets that hit.
    #[inline(never)]
    pub(super) fn megaflow_stage(&mut self, memory: &mut Memory, todo: &mut Todo, arrival: &Arrival) -> u64 {
        if todo.is_empty() {
            return 0;
        }
        let (mut lookup, mut sights) = self.lookup(Which::Mega, arrival.at);
        let Memory { keys, rows, masked, promote, stale_mega, .. } = memory;
        let (mut searched, mut packets) = (0, 0);
        for (n, id) in lookup.cache.port_masks(arrival.input, arrival.metadata.recirc_id) {
            if todo.is_empty() {
                break;
            }
            searched += todo.len();
            for i in todo.iter() {
                (rows[i].hash, rows[i].likely) = lookup.cache.mega_probe(id, &keys[i], &mut masked[i]);
            }
            for i in todo.iter() {
                rows[i].likely = lookup.cache.mega_prefetch(&rows[i].hash, rows[i].likely);
            }
            let before = todo.len();
            todo.retain(|i| {
                let row = &mut rows[i];
                let idx = lookup.cache.mega_find_likely(row.likely, id, row.hash, &keys[i], &masked[i]);
                let key = &mut keys[i];
                if !lookup.answers(&mut sights, idx, row, key, |_| (), |stale| stale_mega.push(stale)) {
                    return true;
                }
                packets += row.counts.packets();
                row.likely = 0;
                promote.push((i as u8, idx));
                false
            });
            lookup.cache.port_mask_hit(arrival.input, n, (before - todo.len()) as u32);
        }
        lookup.stats.masks_searched.add(searched as u64);
        packets
    }
}
