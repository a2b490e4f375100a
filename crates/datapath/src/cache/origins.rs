//! Where plain packets come from, as a number that fits into their keys.
//!
//! Packets of one round have the same input port (both its numbers) and the same metadata. The key of a plain
//! packet encodes all that as the port's number and one of 256 *origin* numbers of the port. The number is
//! looked up once per round. It is not given to another origin while an entry of the cache has it.
//!
//! A port whose packets all have different metadata (rules may copy bits of a packet into its mark) runs out
//! of numbers. Packets of further origins are then looked up by their whole keys until entries of other
//! origins have gone. That slows down only this port, and not its packets in their first round.

use crate::recirculation::Metadata;
use base::OfPort;
use base::hash::HashKey;

/// Number of bits for an origin's number within its port.
pub const SLOT_BITS: u32 = 8;
const WAYS: usize = 8;
/// The first set is for packets in their first round.
const SETS: usize = (1 << SLOT_BITS) / WAYS;

/// What the packets of a round have in common besides their port.
#[derive(Clone, Copy, PartialEq)]
pub struct Origin {
    of_port: OfPort,
    metadata: Metadata,
}

impl Origin {
    /// The recirculation depth is not part of the key.
    #[inline(always)]
    pub fn new(of_port: OfPort, metadata: Metadata) -> Origin {
        Origin { of_port, metadata: Metadata { recirc_depth: 0, ..metadata } }
    }

    /// A number that hardly any two rounds of packets share.
    #[inline(always)]
    pub fn scattered(&self) -> u32 {
        self.metadata.recirc_id ^ u32::from(self.metadata.tracking.state) << 1
    }
}

/// One port's origins: the first set, and all sets once one of its packets has gone round, for which the port
/// allocates once in its life.
pub struct Origins(Vec<Place>);

/// A place for an origin.
#[derive(Clone, Copy)]
struct Place {
    origin: Origin,
    /// How many cache entries have its number.
    entries: u32,
}

impl Place {
    fn unused() -> Place {
        Place { origin: Origin::new(OfPort(0), Metadata::default()), entries: 0 }
    }
}

impl Default for Origins {
    fn default() -> Self {
        Origins(vec![Place::unused(); WAYS])
    }
}

impl Origins {
    /// The number of an origin; `None` if other origins use all the numbers that it may have.
    #[inline(always)]
    pub fn slot(&mut self, origin: Origin, secret: &HashKey) -> Option<u8> {
        if self.0[0].origin == origin { Some(0) } else { self.search(origin, secret) }
    }

    /// Whether that number belongs to this origin.
    pub fn is(&self, slot: u8, origin: &Origin) -> bool {
        self.0.get(usize::from(slot)).is_some_and(|place| place.origin == *origin)
    }

    #[inline(never)]
    fn search(&mut self, origin: Origin, secret: &HashKey) -> Option<u8> {
        let Metadata { recirc_id, pkt_mark, dp_hash, .. } = origin.metadata;
        let differs = u64::from(dp_hash) << 32 | u64::from(pkt_mark);
        let set = match recirc_id {
            0 => 0,
            id => 1 + secret.word(id.into(), differs) as usize % (SETS - 1),
        };
        if set > 0 && self.0.len() == WAYS {
            self.0.resize(SETS * WAYS, Place::unused());
        }
        let first = set * WAYS;
        let known = (first..first + WAYS).find(|&n| self.0[n].origin == origin);
        let n = known.or_else(|| (first..first + WAYS).find(|&n| self.0[n].entries == 0))?;
        self.0[n].origin = origin;
        Some(n as u8)
    }

    /// The number of entries with this origin.
    pub fn entries(&mut self, slot: u8) -> &mut u32 {
        &mut self.0[usize::from(slot)].entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Translation;
    use crate::cache::{CacheConfig, ExactKey, FlowCache, FlowRef, Installed, Moment, Which};
    use crate::stamp::Stamp;
    use crate::watch::Marks;
    use base::wide::Wide;
    use base::{PortNo, Version};
    use flow::extract::plain_with_origin;
    use flow::{Depth, Key};

    fn round(recirc_id: u32, pkt_mark: u32) -> Origin {
        Origin::new(OfPort(7), Metadata { recirc_id, pkt_mark, recirc_depth: 1, ..Metadata::default() })
    }

    #[test]
    fn a_number_that_an_entry_has_is_given_to_no_other_origin() {
        let (mut origins, secret) = (Origins::default(), HashKey::from_seed(3));
        let kept = round(1, 5);
        let slot = origins.slot(kept, &secret).unwrap();
        *origins.entries(slot) = 1;
        for mark in 6..10_000 {
            assert_ne!(origins.slot(round(1, mark), &secret), Some(slot));
            assert_eq!(origins.slot(kept, &secret), Some(slot));
        }
        *origins.entries(slot) = 0;
        assert!((6..10_000).any(|mark| origins.slot(round(1, mark), &secret) == Some(slot)));
    }

    /// A cache with one flow of this origin, in the exact tier.
    fn cache_with_a_flow(port: PortNo, origin: Origin) -> FlowCache {
        let config = CacheConfig { flow_limit: 1024, max_idle_ms: 10_000 };
        let mut cache = FlowCache::new(config, HashKey::from_seed(1), Wide::here()).unwrap();
        install(&mut cache, port, origin);
        assert_eq!(cache.size().exact, 1);
        cache
    }

    /// Puts a flow into the exact tier. False where its origin has no number.
    fn install(cache: &mut FlowCache, port: PortNo, origin: Origin) -> bool {
        let input = cache.input_of(port);
        let Some(number) = cache.plain_origin(input, origin, Depth::Everything) else { return false };
        let at = Moment { version: Version(1), now: Stamp::of(0) };
        let exact = ExactKey::Plain(plain_with_origin(number));
        let key = Key::default();
        cache.begin_misses();
        let (_, probed) = cache.fresh_search(&key);
        let translation = Translation::<()>::default();
        let installed = cache.install(input, (&key, &probed), || exact, &translation, at);
        let Some(Installed::Megaflow(mega)) = installed else { panic!("{installed:?}") };
        let e = cache.entry(Which::Mega, mega);
        let from = FlowRef {
            decision: e.decision,
            mask: e.key.mask(),
            sort: 0,
            set: 0,
            marks: Marks::default(),
            at,
        };
        let (hash, _) = cache.exact_probe(&exact);
        cache.insert_exact(&exact, hash, &from).expect("there is room");
        cache.remove(Which::Mega, mega);
        true
    }

    #[test]
    fn a_port_whose_packets_come_from_ever_new_origins_costs_no_other_port_a_flow() {
        let mut cache = cache_with_a_flow(PortNo(2), round(1, 0));
        let input = cache.input_of(PortNo(1));
        for mark in 0..(1 << 24) + 2 {
            cache.plain_origin(input, round(1, mark), Depth::Everything);
        }
        assert_eq!(cache.size().exact, 1, "the other port's flow is gone");
    }

    #[test]
    fn a_port_without_numbers_has_some_again_when_its_flows_have_gone_and_always_for_a_first_round() {
        let mut cache = cache_with_a_flow(PortNo(1), round(1, 0));
        let got = (0..10_000).filter(|&mark| install(&mut cache, PortNo(1), round(2, mark))).count();
        assert!((200..256).contains(&got), "{got} numbers");
        assert!(!install(&mut cache, PortNo(1), round(2, 10_000)));
        assert!(install(&mut cache, PortNo(1), round(0, 0)));
        assert!(install(&mut cache, PortNo(2), round(2, 10_000)));
        cache.flush_all();
        assert!(install(&mut cache, PortNo(1), round(2, 10_000)));
    }
}
