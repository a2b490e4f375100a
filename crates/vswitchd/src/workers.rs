//! Which workers should exist: how many, where each runs, with which limits, [which queues each
//! polls](crate::placement), and what was reported about them.
//!
//! The threads belong to the datapath; this module decides about them from the configuration, commands and
//! the machine. It knows the forwarding plane and ports, and nothing of bridges, rules or connections.

use crate::config::wanted::{Interface, WorkerSettings};
use crate::figures::WorkerCounters;
use crate::plane::ForwardingPlane;
use crate::port_record::Ports;
use crate::scheduler::{Event, Rules, Scheduler};
use datapath::{CacheConfig, DatapathError, FLOW_LIMIT_MAX};
use host::numa::{Topology, WorkerPlace};
use packet::thread::CpuSet;
use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Instant;

/// The start-up options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Workers, not pinned; `None`: one on each NUMA node.
    pub count: Option<usize>,
    /// Limits of each worker's caches.
    pub cache: CacheConfig,
    /// They poll for ever.
    pub never_sleep: bool,
}

/// See the module documentation.
pub(crate) struct Workers {
    /// Used unless the configuration says otherwise.
    given: Given,
    /// The configuration.
    pub settings: WorkerSettings,
    /// Which worker polls which queue.
    pub scheduler: Scheduler,
    /// Processors and NUMA nodes, as last looked at or as made up.
    pub topology: Topology,
    /// Where each worker runs.
    places: Vec<WorkerPlace>,
    /// The places of workers that are being started.
    to_come: Option<Vec<WorkerPlace>>,
    /// A problem with the processor mask.
    pub mask_note: Option<String>,
    /// Whether their number has been logged.
    are_told: bool,
    /// The last report to the operator about how queues are placed.
    pub told_rules: Option<Rules>,
    /// Their counters at the last `pmd-stats-clear`.
    pub cleared: BTreeMap<usize, WorkerCounters>,
    /// The limit from `upcall/set-flow-limit`, until the configuration sets another.
    flow_limit_by_hand: Option<usize>,
    /// Caches with the wanted limits could not be had: the workers keep those that they have.
    are_limits_refused: bool,
    /// It was logged that the wanted workers cannot be had.
    is_refusal_told: bool,
}

impl Workers {
    pub fn new(given: Given, topology: Topology) -> Workers {
        let places = topology.unpinned(given.count);
        Workers {
            given,
            settings: WorkerSettings::default(),
            scheduler: Scheduler::default(),
            topology,
            places,
            to_come: None,
            mask_note: None,
            are_told: false,
            told_rules: None,
            cleared: BTreeMap::new(),
            flow_limit_by_hand: None,
            are_limits_refused: false,
            is_refusal_told: false,
        }
    }

    pub fn places(&self) -> &[WorkerPlace] {
        &self.places
    }

    /// A worker's processor and NUMA node.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        self.places.get(worker).map_or((worker, 0), |place| (place.core, place.node))
    }

    /// A worker's thread, as Open vSwitch shows it.
    pub fn thread_name(&self, worker: usize) -> String {
        let (core, node) = self.place(worker);
        format!("pmd thread numa_id {node} core_id {core}")
    }

    /// The number of workers of each NUMA node.
    fn by_node(&self) -> BTreeMap<usize, usize> {
        let mut by_node = BTreeMap::new();
        self.places.iter().for_each(|place| *by_node.entry(place.node).or_default() += 1);
        by_node
    }

    /// Makes them what the configuration says, and places queues by its rules. [`Self::finish`] brings it
    /// about.
    pub fn set(&mut self, plane: &mut ForwardingPlane, wanted: &WorkerSettings) {
        let old = std::mem::replace(&mut self.settings, wanted.clone());
        if old.flow_limit != wanted.flow_limit {
            self.flow_limit_by_hand = None;
        }
        if (&old.cpus, old.flow_limit, old.max_idle_ms)
            != (&wanted.cpus, wanted.flow_limit, wanted.max_idle_ms)
        {
            self.exchange(plane);
        }
        if old.sleep_max_us != wanted.sleep_max_us {
            // A worker wakes as soon as there is something to do: how long it may sleep matters only if it
            // may not.
            plane.dp.set_never_sleeps(wanted.sleep_max_us.map_or(self.given.never_sleep, |us| us == 0));
        }
        if (old.rxq_policy, old.rxq_isolate) != (wanted.rxq_policy, wanted.rxq_isolate) {
            self.scheduler.note(Event::Policy);
        }
    }

    /// Megaflows per worker, and exact entries: those in force, or about to be.
    pub fn flow_limit(&self, plane: &ForwardingPlane) -> usize {
        if self.are_limits_refused { plane.dp.cache_limits().flow_limit } else { self.cache().flow_limit }
    }

    /// The same, as wanted. As in Open vSwitch, it may be lower than what was asked for.
    fn flow_limit_wanted(&self) -> usize {
        let asked = self.flow_limit_by_hand.or(self.settings.flow_limit);
        asked.unwrap_or(self.given.cache.flow_limit).min(FLOW_LIMIT_MAX)
    }

    /// Sets that until the configuration says another.
    pub fn limit_flows(&mut self, plane: &mut ForwardingPlane, limit: usize) {
        self.flow_limit_by_hand = Some(limit);
        self.exchange(plane);
    }

    /// Limits of each worker's caches.
    fn cache(&self) -> CacheConfig {
        let max_idle_ms = self.settings.max_idle_ms.map(|ms| ms.min(u64::from(u32::MAX)) as u32);
        CacheConfig {
            flow_limit: self.flow_limit_wanted(),
            max_idle_ms: max_idle_ms.unwrap_or(self.given.cache.max_idle_ms),
        }
    }

    /// Requests the wanted workers, with these limits.
    fn exchange(&mut self, plane: &mut ForwardingPlane) {
        if !self.topology.is_simulated() {
            self.topology = Topology::of_machine();
        }
        let cpus: Vec<CpuSet> = self.choose().iter().map(|place| place.cpus.clone()).collect();
        if let Some(note) = &self.mask_note {
            tracing::warn!(target: "dpif_netdev", "{note}");
        }
        (self.are_limits_refused, self.is_refusal_told) = (false, false);
        if let Err(error) = plane.dp.begin_workers(&cpus, self.cache()) {
            self.to_come = None;
            self.tell_refusal(&error);
        }
    }

    /// Continues that. Returns whether the workers are as wanted, or cannot be for now.
    pub fn finish(&mut self, plane: &mut ForwardingPlane, ports: &Ports) -> bool {
        let Poll::Ready(result) = plane.dp.poll_workers(Instant::now()) else { return false };
        let Some(mut places) = self.to_come.take() else { return true };
        if let Err(error) = result {
            self.tell_refusal(&error);
            if plane.dp.is_exchanging() {
                // There is no worker at all; the datapath tries again.
                self.to_come = Some(places);
                return true;
            }
            // Perhaps the system has refused some of the threads.
            let started = &places[..places.len().min(plane.dp.workers())];
            let limits_are_right = self.are_limits_refused || self.cache() == plane.dp.cache_limits();
            if !limits_are_right || !are_there(plane, started) {
                return self.keep_limits(plane, places);
            }
            places.truncate(plane.dp.workers());
        }
        for (n, place) in places.iter().enumerate() {
            let (core, node) = (place.core, place.node);
            let which = match plane.dp.worker_cpu(n) {
                None => "any processor".into(),
                Some(_) => format!("processor {core}"),
            };
            tracing::debug!(target: "dpif_netdev", "worker {n} runs on {which} of NUMA node {node}");
        }
        self.places = places;
        self.are_told = false;
        self.tell(ports);
        self.scheduler.note(Event::Workers);
        true
    }

    /// The workers are as before. Where that may be because of their limits, those in the wanted places keep
    /// the limits that there are. Returns whether nothing more is to be tried.
    fn keep_limits(&mut self, plane: &mut ForwardingPlane, places: Vec<WorkerPlace>) -> bool {
        let limits = plane.dp.cache_limits();
        if self.cache() == limits || std::mem::replace(&mut self.are_limits_refused, true) {
            return true;
        }
        let cpus: Vec<CpuSet> = places.iter().map(|place| place.cpus.clone()).collect();
        if are_there(plane, &places) || plane.dp.begin_workers(&cpus, limits).is_err() {
            return true;
        }
        self.to_come = Some(places);
        false
    }

    /// Logs once why the wanted workers cannot be had.
    fn tell_refusal(&mut self, error: &DatapathError) {
        if !std::mem::replace(&mut self.is_refusal_told, true) {
            tracing::error!(target: "dpif_netdev", "the workers could not be changed: {error}");
        }
    }

    /// Logs how many there are, which scripts wait for: once there is a port that they alone poll, and
    /// whenever they change.
    pub fn tell(&mut self, ports: &Ports) {
        let is_theirs = |i: &Interface| i.driver().is_some_and(|driver| driver.is_pmd);
        if self.are_told || !ports.values().any(|port| is_theirs(&port.interface)) {
            return;
        }
        self.are_told = true;
        for (node, workers) in self.by_node() {
            tracing::info!(target: "dpif_netdev", "There are {workers} pmd threads on numa node {node}");
        }
    }

    /// One worker on each existing processor in the mask; without a mask, those given at start-up.
    fn choose(&mut self) -> &[WorkerPlace] {
        let mask = self.settings.cpus.iter().flatten();
        let (present, missing): (Vec<usize>, Vec<usize>) =
            mask.partition(|cpu| self.topology.contains(**cpu));
        let more = missing.len().saturating_sub(MISSING_TOLD);
        let missing = missing.iter().take(MISSING_TOLD).map(usize::to_string).collect::<Vec<_>>().join(", ");
        let missing = if more > 0 { format!("{missing} and {more} more") } else { missing };
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
}

/// How many of the processors that are not there are named.
const MISSING_TOLD: usize = 16;

/// Whether the workers are these.
fn are_there(plane: &ForwardingPlane, places: &[WorkerPlace]) -> bool {
    places.len() == plane.dp.workers()
        && places.iter().enumerate().all(|(n, place)| *plane.dp.worker_cpus(n) == place.cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_chooses_the_processors_that_are_there_and_says_which_are_not() {
        let given = Given { count: Some(3), cache: CacheConfig::default(), never_sleep: false };
        let mut workers = Workers::new(given, Topology::simulated("0,0,1,1").unwrap());
        assert_eq!(workers.places().len(), 3);
        let choose = |workers: &mut Workers, mask: Option<&[usize]>| {
            workers.settings.cpus = mask.map(<[usize]>::to_vec);
            workers.choose().iter().map(|place| place.core).collect::<Vec<_>>()
        };
        assert_eq!(choose(&mut workers, Some(&[1, 3, 9])), [1, 3]);
        assert!(workers.mask_note.as_ref().is_some_and(|note| note.ends_with("not there: 9")));
        assert_eq!(workers.places().len(), 3, "they are on their way");
        workers.places = workers.to_come.take().unwrap();
        assert_eq!((workers.place(0), workers.place(1)), ((1, 0), (3, 1)));
        assert_eq!(workers.by_node(), BTreeMap::from([(0, 1), (1, 1)]));
        assert_eq!(choose(&mut workers, Some(&[9])).len(), 3, "the default");
        assert!(workers.mask_note.is_some());
        workers.to_come = None;
        assert_eq!(workers.places().len(), 2, "they could not be changed");
        assert_eq!(choose(&mut workers, None).len(), 3);
        assert_eq!(workers.mask_note, None);
    }

    #[test]
    fn a_command_limits_flows_over_the_configuration_and_that_over_the_start() {
        let cache = CacheConfig { flow_limit: 10, max_idle_ms: 20 };
        let topology = Topology::simulated("0").unwrap();
        let mut workers = Workers::new(Given { count: None, cache, never_sleep: false }, topology);
        assert_eq!(workers.cache(), cache);
        workers.settings.flow_limit = Some(11);
        workers.settings.max_idle_ms = Some(u64::MAX);
        assert_eq!(workers.cache(), CacheConfig { flow_limit: 11, max_idle_ms: u32::MAX });
        workers.flow_limit_by_hand = Some(12);
        assert_eq!(workers.flow_limit_wanted(), 12);
    }
}
