//! The workers that there are to be: how many, where each runs, with which limits, and what was said of them.
//!
//! Threads are the datapath's; here is what the configuration, commands and the machine make of them.

use crate::config::wanted::SwitchWide;
use crate::figures::WorkerCounters;
use datapath::CacheConfig;
use host::numa::{Topology, WorkerPlace};
use std::collections::BTreeMap;

/// What the switch was started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Workers, not pinned; `None`: one on each NUMA node.
    pub count: Option<usize>,
    /// Limits of each worker's caches.
    pub cache: CacheConfig,
}

/// See the module's text.
pub(crate) struct Workers {
    /// Where the configuration does not say otherwise.
    given: Given,
    /// Processors and NUMA nodes, as last looked at or as made up.
    pub topology: Topology,
    /// Where each worker runs.
    places: Vec<WorkerPlace>,
    /// The places of those that are on their way.
    to_come: Option<Vec<WorkerPlace>>,
    /// What is wrong with the mask of processors.
    pub mask_note: Option<String>,
    /// Whether it was logged how many there are.
    pub are_told: bool,
    /// Their counters when `pmd-stats-clear` was said.
    pub cleared: BTreeMap<usize, WorkerCounters>,
    /// What `upcall/set-flow-limit` set, until the configuration says another limit.
    pub flow_limit_by_hand: Option<usize>,
}

impl Workers {
    pub fn new(given: Given, topology: Topology) -> Workers {
        let places = topology.unpinned(given.count);
        Workers {
            given,
            topology,
            places,
            to_come: None,
            mask_note: None,
            are_told: false,
            cleared: BTreeMap::new(),
            flow_limit_by_hand: None,
        }
    }

    pub fn places(&self) -> &[WorkerPlace] {
        &self.places
    }

    /// A worker's processor and NUMA node.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        self.places.get(worker).map_or((worker, 0), |place| (place.core, place.node))
    }

    /// The number of workers of each NUMA node.
    pub fn by_node(&self) -> BTreeMap<usize, usize> {
        let mut by_node = BTreeMap::new();
        self.places.iter().for_each(|place| *by_node.entry(place.node).or_default() += 1);
        by_node
    }

    /// Megaflows per worker, and exact entries.
    pub fn flow_limit(&self, settings: &SwitchWide) -> usize {
        self.flow_limit_by_hand.or(settings.flow_limit).unwrap_or(self.given.cache.flow_limit)
    }

    /// Limits of each worker's caches.
    pub fn cache(&self, settings: &SwitchWide) -> CacheConfig {
        let max_idle_ms = settings.max_idle_ms.map(|ms| ms.min(u64::from(u32::MAX)) as u32);
        CacheConfig {
            flow_limit: self.flow_limit(settings),
            max_idle_ms: max_idle_ms.unwrap_or(self.given.cache.max_idle_ms),
        }
    }

    /// One worker on each processor of the mask that is there; those that the switch was started with where
    /// there is none. [`Self::arrived`] says that they run.
    pub fn choose(&mut self, mask: Option<&[usize]>) -> &[WorkerPlace] {
        let (present, missing): (Vec<usize>, Vec<usize>) =
            mask.iter().copied().flatten().partition(|cpu| self.topology.contains(**cpu));
        let missing = missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        self.mask_note = match (present.is_empty(), missing.is_empty()) {
            (_, true) => None,
            (true, _) => Some(format!(
                "pmd-cpu-mask names only processors that are not there ({missing}): the default workers run"
            )),
            (false, _) => Some(format!("pmd-cpu-mask names processors that are not there: {missing}")),
        };
        self.cleared.clear();
        let chosen = if present.is_empty() {
            self.topology.unpinned(self.given.count)
        } else {
            self.topology.pinned(&present)
        };
        self.to_come.insert(chosen)
    }

    /// Those that were chosen run, or cannot. Whether any were on their way.
    pub fn arrived(&mut self, run: bool) -> bool {
        let Some(places) = self.to_come.take() else { return false };
        if run {
            self.places = places;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_chooses_the_processors_that_are_there_and_says_which_are_not() {
        let given = Given { count: Some(3), cache: CacheConfig::default() };
        let mut workers = Workers::new(given, Topology::simulated("0,0,1,1").unwrap());
        assert_eq!(workers.places().len(), 3);
        let cores = |places: &[WorkerPlace]| places.iter().map(|place| place.core).collect::<Vec<_>>();
        assert_eq!(cores(workers.choose(Some(&[1, 3, 9]))), [1, 3]);
        assert!(workers.mask_note.as_ref().is_some_and(|note| note.ends_with("not there: 9")));
        assert_eq!(workers.places().len(), 3, "they are on their way");
        assert!(workers.arrived(true) && !workers.arrived(true));
        assert_eq!((workers.place(0), workers.place(1)), ((1, 0), (3, 1)));
        assert_eq!(workers.by_node(), BTreeMap::from([(0, 1), (1, 1)]));
        assert_eq!(workers.choose(Some(&[9])).len(), 3, "the default");
        assert!(workers.mask_note.is_some());
        assert!(workers.arrived(false));
        assert_eq!(workers.places().len(), 2, "they could not be changed");
        assert_eq!(workers.choose(None).len(), 3);
        assert_eq!(workers.mask_note, None);
    }

    #[test]
    fn a_command_limits_flows_over_the_configuration_and_that_over_the_start() {
        let cache = CacheConfig { flow_limit: 10, max_idle_ms: 20 };
        let topology = Topology::simulated("0").unwrap();
        let mut workers = Workers::new(Given { count: None, cache }, topology);
        let mut settings = SwitchWide::default();
        assert_eq!(workers.cache(&settings), cache);
        settings.flow_limit = Some(11);
        settings.max_idle_ms = Some(u64::MAX);
        assert_eq!(workers.cache(&settings), CacheConfig { flow_limit: 11, max_idle_ms: u32::MAX });
        workers.flow_limit_by_hand = Some(12);
        assert_eq!(workers.flow_limit(&settings), 12);
    }
}
