//! Which flow gives way, and which is not cached, once a tier is full.
//!
//! Entries that nobody uses make room at once, and so do megaflows that live on in exact entries. If all are
//! in use, the tier is too small for the flows that are active: if each new one took the place of another, it
//! would be evicted before its own next packet, and all packets would pay for both a miss and an
//! installation. So only one in [`FEW`] gets a place then, and the flows that have one keep it long enough to
//! be hit. A flow of many packets soon gets one, too.
//!
//! `bench ablation` shows what this is worth: see its caches for fewer flows than there are.

use super::{FlowCache, Which};
use crate::stamp::Stamp;

/// How many entries are looked at for one that nobody uses.
const VICTIMS_TRIED: usize = 4;
/// An entry is in use if it was hit this lately. Exact entries mark their megaflow once a second.
const IN_USE_MS: u32 = 2_000;
/// One entry in this many gets a place if all are in use.
const FEW: u32 = 16;

impl FlowCache {
    /// Whether a tier has a place for another entry. Another one may be evicted for it.
    #[inline(always)]
    pub(super) fn has_place(&mut self, which: Which) -> bool {
        self.tier(which).has_free() || self.makes_room(which)
    }

    #[cold]
    #[inline(never)]
    fn makes_room(&mut self, which: Which) -> bool {
        let now = Stamp::of(self.now_ms);
        let mut victim = 0;
        for _ in 0..VICTIMS_TRIED {
            victim = self.tier_mut(which).victim();
            let e = self.entry(which, victim);
            let (is_idle, body) = (e.used.age_ms(now) > IN_USE_MS, e.decision.body);
            if is_idle || which == Which::Mega && self.bodies.get(body).refs > 1 {
                self.evict(which, victim);
                return true;
            }
        }
        let tier = self.tier_mut(which);
        tier.wanted = tier.wanted.wrapping_add(1);
        let is_admitted = tier.wanted.is_multiple_of(FEW);
        if is_admitted {
            self.evict(which, victim);
        }
        is_admitted
    }

    fn evict(&mut self, which: Which, victim: u32) {
        self.evictions += 1;
        self.remove(which, victim);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Translation;
    use crate::cache::entry::Entry;
    use crate::cache::{CacheConfig, ExactKey, FlowRef, Installed, Moment};
    use base::hash::HashKey;
    use base::{PortNo, Version};
    use flow::{FieldId, Key};

    /// Installs a flow of its own for a source address, as its first packet does. Whether there was a place.
    pub fn install(cache: &mut FlowCache, src: u32, now_ms: u64) -> bool {
        cache.set_now(now_ms);
        let input = cache.input_of(PortNo(1));
        let mut key = Key::default();
        key.set(FieldId::DpPort, 1);
        key.set(FieldId::NwSrc, src.into());
        let mut t = Translation::<()>::default();
        [FieldId::DpPort, FieldId::NwSrc].into_iter().for_each(|field| t.mask.add_exact(field));
        cache.begin_misses();
        let (_, probed) = cache.fresh_search(&key);
        let at = Moment { version: Version(1), now: Stamp::of(now_ms) };
        let installed = cache.install(input, (&key, &probed), || ExactKey::Whole(&key), &t, at);
        matches!(installed, Some(Installed::Megaflow(_)))
    }

    /// Makes an exact entry from a megaflow, for a packet from this address. Whether there was a place.
    pub fn promote(cache: &mut FlowCache, megaflow: u32, src: u32) -> bool {
        let Entry { decision, sort, set, marks, .. } = *cache.entry(Which::Mega, megaflow);
        let at = Moment { version: Version(1), now: Stamp::of(0) };
        let mask = cache.entry(Which::Mega, megaflow).key.mask();
        let mut key = Key::default();
        key.set(FieldId::NwSrc, src.into());
        let (hash, _) = cache.exact_probe(&ExactKey::Whole(&key));
        let from = FlowRef { decision, mask, sort, set, marks, at };
        cache.insert_exact(&ExactKey::Whole(&key), hash, &from).is_some()
    }

    #[test]
    fn a_flow_takes_the_place_of_an_idle_one_at_once_and_rarely_that_of_one_in_use() {
        const FLOWS: u32 = 64;
        let config = CacheConfig { flow_limit: FLOWS as usize, max_idle_ms: 10_000 };
        let mut cache = FlowCache::new(config, HashKey::from_seed(1), Default::default()).unwrap();
        let mut sources = 0..;
        let mut installed = |cache: &mut FlowCache, flows: u32, now_ms: u64| {
            let new = sources.by_ref().take(flows as usize);
            new.filter(|src| install(cache, *src, now_ms)).count() as u32
        };
        assert_eq!(installed(&mut cache, FLOWS, 0), FLOWS, "there is room");
        assert_eq!(installed(&mut cache, FEW, IN_USE_MS.into()), 1, "all are in use");
        assert_eq!((cache.size().megaflows, cache.size().evictions), (FLOWS as usize, 1));
        assert_eq!(installed(&mut cache, FLOWS - 1, u64::from(IN_USE_MS) + 1), FLOWS - 1, "these are idle");
        assert_eq!(installed(&mut cache, FEW, u64::from(IN_USE_MS) + 1), 1, "all are in use again");
        assert_eq!(cache.size().megaflows, FLOWS as usize);
        // Of a megaflow that has an exact entry, packets do not miss it.
        let megaflow = cache.mega.hand % FLOWS + 1;
        assert!(promote(&mut cache, megaflow, 0));
        assert_eq!(installed(&mut cache, 1, u64::from(IN_USE_MS) + 1), 1);
    }
}
