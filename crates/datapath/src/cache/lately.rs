//! What a cache knows of the megaflows that were [hit lately](super::recent).

use super::entry::{ShortVersion, Verdict};
use super::masks::MASK_EXACT;
use super::recent::{Place, Recent, Shared};
use super::sorts::Sights;
use super::{FlowCache, Moment, Which};
use crate::pipeline::Pipeline;
use crate::ports::InputIdx;
use flow::extract::PlainKey;

impl FlowCache {
    /// The megaflow that packets like those of a burst hit lately, if it is right at this version.
    #[inline(always)]
    pub fn recent<P: Pipeline>(
        &mut self,
        of: &Shared,
        at: Moment,
        sights: &mut Sights<'_, P>,
    ) -> Option<Recent> {
        let recent = self.still_there(of)?;
        let is_right = self.entry(Which::Mega, recent.megaflow).version == ShortVersion::of(at.version)
            || self.renew(Which::Mega, recent.megaflow, sights);
        is_right.then_some(recent)
    }

    /// The same, whatever its version.
    #[inline(always)]
    fn still_there(&mut self, of: &Shared) -> Option<Recent> {
        let place = self.recents.place(of);
        if place.of.as_ref() != Some(of) {
            return None;
        }
        let Place { key, mask, megaflow, serial, .. } = *place;
        let e = self.entry(Which::Mega, megaflow);
        let decision = e.decision;
        let is_there =
            e.key.serial() == serial && !matches!(decision.verdict, Verdict::Unknown | Verdict::Stale);
        is_there.then_some(Recent { key, mask, megaflow, decision })
    }

    /// Packets like these hit a megaflow; this is the packed key of one.
    #[inline(never)]
    pub fn hit_lately(&mut self, of: Shared, key: PlainKey, megaflow: u32) {
        let e = &self.mega.entries[megaflow as usize].key;
        let id = e.mask();
        debug_assert_ne!(id, MASK_EXACT, "no megaflow has it");
        if let Some(mask) = self.masks[usize::from(id)].packed {
            let serial = e.serial();
            *self.recents.place(&of) = Place { of: Some(of), key, mask, megaflow, serial };
        }
    }

    /// Hardly any packets like these belong to the megaflow that others hit.
    #[cold]
    pub fn hit_no_longer(&mut self, of: &Shared) {
        self.recents.place(of).of = None;
    }

    /// Counts hits of an input port's packets by a megaflow's mask that was not searched.
    #[inline(always)]
    pub fn mask_of_megaflow_hit(&mut self, input: InputIdx, megaflow: u32, hits: u32) {
        let id = self.mega.entries[megaflow as usize].key.mask();
        let masks = &mut self.inputs[input.0 as usize].masks.list;
        if let Some(mask) = masks.iter_mut().find(|m| m.id == id) {
            mask.hits = mask.hits.saturating_add(hits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Translation;
    use crate::cache::origins::Origin;
    use crate::cache::{CacheConfig, ExactKey, Installed};
    use crate::recirculation::Metadata;
    use crate::stamp::Stamp;
    use base::hash::HashKey;
    use base::{OfPort, PortNo, Version};
    use flow::extract::{Ingress, extract, plain_key};
    use flow::{Depth, FieldId, Key};
    use wire::compose::Compose;
    use wire::ethernet::EthAddr;

    const OF_PORT: OfPort = OfPort(7);

    fn frame(src: u32, port: u16) -> Vec<u8> {
        let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        compose.ipv4(src.into(), 9.into()).tcp(port, 80).frame_len(60).build().unwrap()
    }

    fn packed(frame: &[u8]) -> PlainKey {
        plain_key(frame, frame.len(), Depth::Everything, 0).expect("a plain packet")
    }

    fn shared(input: InputIdx) -> Shared {
        let origin = Origin::new(OF_PORT, Metadata::default());
        Shared { input, origin, depth: Depth::Everything }
    }

    /// Installs a megaflow of the frame that matches this field.
    fn install(cache: &mut FlowCache, frame: &[u8], field: FieldId) -> u32 {
        let input = cache.input_of(PortNo(1));
        let mut key = Key::default();
        let ingress = Ingress::new(OF_PORT, PortNo(1), Depth::Everything);
        let _ = extract(frame, frame.len(), &ingress, &mut key).expect("a whole frame");
        let mut t = Translation::<()>::default();
        [FieldId::DpPort, field].into_iter().for_each(|field| t.mask.add_exact(field));
        cache.begin_misses();
        let (_, probed) = cache.fresh_search(&key);
        let at = Moment { version: Version(1), now: Stamp::of(0) };
        let exact = || ExactKey::Plain(packed(frame));
        match cache.install(input, (&key, &probed), exact, &t, at) {
            Some(Installed::Megaflow(idx)) => idx,
            other => panic!("{other:?}"),
        }
    }

    fn cache() -> FlowCache {
        let config = CacheConfig { flow_limit: 1024, max_idle_ms: 10_000 };
        FlowCache::new(config, HashKey::from_seed(1), Default::default()).unwrap()
    }

    #[test]
    fn a_recent_megaflow_has_the_packets_that_agree_under_its_mask_and_come_from_its_origin() {
        let mut cache = cache();
        let megaflow = install(&mut cache, &frame(1, 1000), FieldId::NwSrc);
        let of = shared(cache.input_of(PortNo(1)));
        assert!(cache.still_there(&of).is_none());
        cache.hit_lately(of, packed(&frame(1, 1000)), megaflow);
        let recent = cache.still_there(&of).expect("hit lately");
        assert_eq!(recent.megaflow, megaflow);
        assert!(recent.has(&packed(&frame(1, 2000))) && !recent.has(&packed(&frame(2, 1000))));
        let others = [
            Shared { input: InputIdx(of.input.0 + 1), ..of },
            Shared { depth: Depth::Network, ..of },
            Shared { origin: Origin::new(OfPort(8), Metadata::default()), ..of },
            Shared { origin: Origin::new(OF_PORT, Metadata { pkt_mark: 1, ..Metadata::default() }), ..of },
        ];
        assert!(others.iter().all(|other| cache.still_there(other).is_none()));
        cache.hit_no_longer(&of);
        assert!(cache.still_there(&of).is_none());
    }

    #[test]
    fn another_megaflow_in_the_place_of_a_recent_one_is_not_taken_for_it() {
        let mut cache = cache();
        let megaflow = install(&mut cache, &frame(1, 1000), FieldId::NwSrc);
        let of = shared(cache.input_of(PortNo(1)));
        cache.hit_lately(of, packed(&frame(1, 1000)), megaflow);
        cache.remove(Which::Mega, megaflow);
        assert!(cache.still_there(&of).is_none(), "it is gone");
        assert_eq!(install(&mut cache, &frame(2, 1000), FieldId::NwSrc), megaflow, "the same place");
        assert!(cache.still_there(&of).is_none(), "another one");
    }

    #[test]
    fn a_megaflow_that_matches_the_original_tuple_of_a_connection_is_not_remembered() {
        let mut cache = cache();
        let megaflow = install(&mut cache, &frame(1, 1000), FieldId::CtNwSrc);
        let of = shared(cache.input_of(PortNo(1)));
        cache.hit_lately(of, packed(&frame(1, 1000)), megaflow);
        assert!(cache.still_there(&of).is_none());
    }
}
