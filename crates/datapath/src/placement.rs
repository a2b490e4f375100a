//! Which worker polls which receive queue: a pure function of measurements and configuration.
//!
//! There are three policies, with Open vSwitch's names. `cycles`: the most expensive queues first, over the
//! workers in alternating directions. `group`: the most expensive queues first, each to the worker with the
//! least load so far; queues without measured cost are distributed by count, or all of them would go to the
//! first idle worker. `roundrobin`: in order, ignoring cost. A queue may be bound to a processor; the worker
//! there then takes no others, unless it is told to share. Queues go to workers on their own NUMA node if it
//! has any; those of devices without a node go to all.
//!
//! Source: ovs-vswitchd.conf.db(5), other_config:pmd-rxq-assign, pmd-rxq-isolate, pmd-auto-lb; Interface
//! other_config:pmd-rxq-affinity.

use base::PortNo;
use std::cmp::Reverse;

/// A worker, as a place for queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The worker's processor, to which a queue may be bound.
    pub cpu: Option<usize>,
    /// The NUMA node of that processor.
    pub numa: usize,
}

/// A receive queue to be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The port that it belongs to.
    pub port: PortNo,
    /// Its number there.
    pub queue: usize,
    /// The NUMA node of the device; `None` if it has none or it is unknown.
    pub numa: Option<usize>,
    /// Its cost in cycles over the period measured.
    pub cycles: u64,
    /// The processor to which it is bound.
    pub bound: Option<usize>,
}

/// How queues are spread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// By cost, in alternating directions.
    #[default]
    Cycles,
    /// In order.
    RoundRobin,
    /// By cost, each to the worker with the least load.
    Group,
}

impl Policy {
    /// The value of `pmd-rxq-assign`.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Cycles => "cycles",
            Policy::RoundRobin => "roundrobin",
            Policy::Group => "group",
        }
    }

    /// Parses a value of `pmd-rxq-assign`.
    pub fn parse(text: &str) -> Option<Policy> {
        match text {
            "cycles" => Some(Policy::Cycles),
            "roundrobin" => Some(Policy::RoundRobin),
            "group" => Some(Policy::Group),
            _ => None,
        }
    }
}

/// A remark about a placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remark {
    /// A queue is bound to a processor without a worker; it was placed as if it were not bound.
    NoWorkerThere {
        /// The queue's port.
        port: PortNo,
        /// The queue's number.
        queue: usize,
        /// The processor.
        cpu: usize,
    },
    /// Every worker is reserved for queues bound to it; the other queues share them all the same.
    AllKept,
    /// A queue is polled from another NUMA node, because its own has no worker.
    OtherNode {
        /// The queue's port.
        port: PortNo,
        /// The queue's number.
        queue: usize,
        /// The node of its device.
        numa: usize,
        /// The worker's node.
        polled_on: usize,
    },
}

/// Where each queue goes: `workers[i]` is the place of `demands[i]`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Placement {
    /// Indices of places.
    pub workers: Vec<usize>,
    /// What to tell the operator.
    pub remarks: Vec<Remark>,
}

/// Places every queue. `isolate`: a worker with a bound queue takes no others.
///
/// Panics without places.
pub fn place(demands: &[Demand], places: &[Place], policy: Policy, isolate: bool) -> Placement {
    assert!(!places.is_empty(), "there is a worker");
    let mut result = Placement { workers: vec![0; demands.len()], remarks: Vec::new() };
    let mut laden = vec![Laden::default(); places.len()];
    let mut kept = vec![false; places.len()];
    let mut free: Vec<usize> = Vec::new();
    // 1. Bound queues.
    for (i, demand) in demands.iter().enumerate() {
        let Some(cpu) = demand.bound else {
            free.push(i);
            continue;
        };
        match places.iter().position(|place| place.cpu == Some(cpu)) {
            Some(worker) => {
                result.workers[i] = worker;
                laden[worker].cycles += demand.cycles;
                laden[worker].queues += 1;
                kept[worker] |= isolate;
            }
            None => {
                result.remarks.push(Remark::NoWorkerThere { port: demand.port, queue: demand.queue, cpu });
                free.push(i);
            }
        }
    }
    if !free.is_empty() && kept.iter().all(|kept| *kept) {
        result.remarks.push(Remark::AllKept);
        kept.fill(false);
    }
    // 2. The others, on their own node if it has a worker.
    if policy != Policy::RoundRobin {
        free.sort_by_key(|&i| Reverse(demands[i].cycles));
    }
    for i in free {
        let demand = &demands[i];
        let open = |node: Option<usize>| -> Vec<usize> {
            let fits = |w: &usize| !kept[*w] && node.is_none_or(|node| places[*w].numa == node);
            (0..places.len()).filter(fits).collect()
        };
        let mut workers = open(demand.numa);
        let is_away = workers.is_empty();
        if is_away {
            workers = open(None);
        }
        let worker = choose(&workers, &laden, policy, demand.cycles);
        if let Some(numa) = demand.numa.filter(|_| is_away) {
            let (port, queue, polled_on) = (demand.port, demand.queue, places[worker].numa);
            result.remarks.push(Remark::OtherNode { port, queue, numa, polled_on });
        }
        laden[worker].cycles += demand.cycles;
        laden[worker].queues += 1;
        laden[worker].laps += 1;
        result.workers[i] = worker;
    }
    result
}

/// A worker's load so far.
#[derive(Clone, Copy, Default)]
struct Laden {
    cycles: u64,
    queues: usize,
    /// How many queues it has that are not bound to it.
    laps: usize,
}

/// Chooses a worker among the available ones for a queue of this cost.
fn choose(open: &[usize], laden: &[Laden], policy: Policy, cycles: u64) -> usize {
    let of = |&&worker: &&usize| laden[worker];
    let least = match policy {
        Policy::Group if cycles > 0 => open.iter().min_by_key(|w| (of(w).cycles, of(w).queues)),
        // Unknown cost: by number of queues.
        Policy::Group => open.iter().min_by_key(|w| (of(w).queues, of(w).cycles)),
        Policy::RoundRobin => open.iter().min_by_key(|w| of(w).laps),
        Policy::Cycles => {
            let lap = open.iter().map(|w| laden[*w].laps).min().unwrap_or(0);
            let mut behind = open.iter().filter(|w| of(w).laps == lap);
            if lap.is_multiple_of(2) { behind.next() } else { behind.next_back() }
        }
    };
    *least.expect("some are open")
}

/// The cycles that each worker would spend under a placement.
pub fn loads(demands: &[Demand], workers: &[usize], count: usize) -> Vec<u64> {
    let mut loads = vec![0; count];
    for (demand, &worker) in demands.iter().zip(workers) {
        loads[worker] += demand.cycles;
    }
    loads
}

/// By how many per cent the variance of the workers' loads falls; 0 if it does not.
pub fn improvement_percent(before: f64, after: f64) -> u32 {
    if before <= after || before <= 0.0 { 0 } else { ((before - after) * 100.0 / before) as u32 }
}

/// How unevenly workers are loaded.
pub fn variance(loads: &[u64]) -> f64 {
    let count = loads.len().max(1) as f64;
    let mean = loads.iter().map(|l| *l as f64).sum::<f64>() / count;
    loads.iter().map(|l| (*l as f64 - mean).powi(2)).sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize) -> Vec<Place> {
        (0..count).map(|cpu| Place { cpu: Some(cpu), numa: 0 }).collect()
    }

    fn demands(cycles: &[u64]) -> Vec<Demand> {
        let demand = |(n, &cycles): (usize, &u64)| Demand {
            port: PortNo(n as u32 + 1),
            queue: 0,
            numa: Some(0),
            cycles,
            bound: None,
        };
        cycles.iter().enumerate().map(demand).collect()
    }

    #[test]
    fn cycles_go_to_and_fro_and_group_fills_the_emptiest() {
        let demands = demands(&[80, 30, 90, 10, 20, 70]);
        let of = |policy| place(&demands, &places(3), policy, true).workers;
        // 90, 80, 70 forth; 30, 20, 10 back.
        assert_eq!(of(Policy::Cycles), [1, 2, 0, 0, 1, 2]);
        // 90, 80, 70, then 30 to the third, 20 to the second, 10 to the first.
        assert_eq!(of(Policy::Group), [1, 2, 0, 0, 1, 2]);
        assert_eq!(of(Policy::RoundRobin), [0, 1, 2, 0, 1, 2]);
        let uneven = super::tests::demands(&[100, 10, 10, 10]);
        assert_eq!(place(&uneven, &places(2), Policy::Group, true).workers, [0, 1, 1, 1]);
    }

    #[test]
    fn queues_that_have_cost_nothing_are_spread_by_their_number() {
        for policy in [Policy::Cycles, Policy::RoundRobin, Policy::Group] {
            let spread = |demands: &[Demand]| {
                let placed = place(demands, &places(2), policy, false).workers;
                [0, 1].map(|worker| placed.iter().filter(|w| **w == worker).count())
            };
            assert_eq!(spread(&demands(&[0; 8])), [4, 4], "{policy:?}");
            // One that has cost a little, and came first.
            assert_eq!(spread(&demands(&[7, 0, 0, 0, 0, 0, 0, 0])), [4, 4], "{policy:?}");
            // Those from another node are dealt with those that are at home.
            let mut mixed = demands(&[0; 6]);
            mixed[1].numa = Some(1);
            mixed[2].numa = Some(1);
            mixed[3].numa = None;
            assert_eq!(spread(&mixed), [3, 3], "{policy:?}");
        }
        // A queue that is bound counts with those that have cost nothing.
        let mut demands = demands(&[0; 4]);
        demands[0].bound = Some(0);
        assert_eq!(place(&demands, &places(2), Policy::Group, false).workers, [0, 1, 0, 1]);
    }

    #[test]
    fn a_bound_queue_has_its_worker_for_itself_unless_it_shares() {
        let mut demands = demands(&[50, 40, 30]);
        demands[2].bound = Some(1);
        let kept = place(&demands, &places(2), Policy::Cycles, true);
        assert_eq!(kept.workers, [0, 0, 1]);
        let shared = place(&demands, &places(2), Policy::Group, false);
        assert_eq!(shared.workers, [0, 1, 1]);
        assert!(kept.remarks.is_empty() && shared.remarks.is_empty());
    }

    #[test]
    fn what_cannot_be_as_asked_is_done_otherwise_and_said() {
        let mut demands = demands(&[50, 40]);
        demands[0].bound = Some(9);
        let placed = place(&demands, &places(2), Policy::Cycles, true);
        assert_eq!(placed.remarks, [Remark::NoWorkerThere { port: PortNo(1), queue: 0, cpu: 9 }]);
        demands[0].bound = Some(0);
        let placed = place(&demands, &places(1), Policy::Cycles, true);
        assert_eq!((placed.workers, placed.remarks), (vec![0, 0], vec![Remark::AllKept]));
    }

    #[test]
    fn queues_stay_on_their_node_where_it_has_workers() {
        let mut places = places(4);
        places[2].numa = 1;
        places[3].numa = 1;
        let mut demands = demands(&[90, 80, 70, 60, 50]);
        for (demand, numa) in demands.iter_mut().zip([0, 1, 1, 0, 2]) {
            demand.numa = Some(numa);
        }
        let placed = place(&demands, &places, Policy::Cycles, true);
        assert_eq!(placed.workers[..4], [0, 2, 3, 1]);
        let remark = Remark::OtherNode { port: PortNo(5), queue: 0, numa: 2, polled_on: 1 };
        assert_eq!(placed.remarks, [remark]);
        // Without a node of its own it goes anywhere, and there is nothing to say.
        demands[4].numa = None;
        assert_eq!(place(&demands, &places, Policy::Cycles, true).remarks, []);
    }

    #[test]
    fn a_better_placement_is_told_from_one_that_is_not() {
        let demands = demands(&[50, 50, 50, 50]);
        let before = loads(&demands, &[0, 0, 0, 1], 2);
        let after = loads(&demands, &place(&demands, &places(2), Policy::Group, true).workers, 2);
        assert_eq!((before.as_slice(), after.as_slice()), (&[150, 50][..], &[100, 100][..]));
        let (before, after) = (variance(&before), variance(&after));
        assert_eq!(improvement_percent(before, after), 100);
        assert_eq!(improvement_percent(after, before), 0);
        assert_eq!(improvement_percent(after, after), 0);
    }
}
