//! Which worker polls which receive queue, kept as the settings want it.
//!
//! A new queue goes to the worker with the fewest, and nothing that runs is moved for it. Queues move where one is polled from another
//! NUMA node than its device's while there is a worker, where a setting binds one to a processor (`pmd-rxq-affinity`), where the settings or the workers change, on the command `dpif-netdev/pmd-rxq-rebalance`,
//! and, with `pmd-auto-lb`, when a worker is overloaded and another placement would be better by enough. What a queue costs is
//! looked at over the last minute.
//!
//! Source: ovs-vswitchd.conf.db(5), pmd-rxq-assign, pmd-rxq-isolate, pmd-auto-lb and what belongs to it, pmd-rxq-affinity.

use crate::config::wanted::AutoBalance;
use crate::numa::WorkerPlace;
use crate::state::Vswitch;
use base::PortNo;
use datapath::placement::{Demand, Place, Placement, Remark, improvement_percent, loads, place};
use std::collections::{BTreeMap, VecDeque};

/// Costs are kept in steps of this length.
const STEP_MS: u64 = 5_000;
/// So many steps are looked at.
const STEPS: usize = 12;

/// What was measured, and what is to be done.
#[derive(Default)]
pub(crate) struct Placing {
    /// Cycles of each queue, by steps, the newest last.
    costs: BTreeMap<(PortNo, usize), Costs>,
    /// Busy cycles of each worker, likewise.
    busy: Vec<Costs>,
    /// The workers' busy cycles at the beginning of the interval of `pmd-auto-lb`.
    busy_at_start: Vec<u64>,
    interval_began_ms: u64,
    step_began_ms: u64,
    /// Bound queues are to be looked at.
    pub is_due: bool,
    /// All queues are.
    pub is_full_due: bool,
    /// Remarks that the operator has read.
    told: Vec<Remark>,
}

#[derive(Default)]
struct Costs {
    total: u64,
    steps: VecDeque<u64>,
}

impl Costs {
    /// Ends a step, at this reading of the counter.
    fn step(&mut self, total: u64) {
        self.steps.push_back(total.saturating_sub(self.total));
        self.total = total;
        if self.steps.len() > STEPS {
            self.steps.pop_front();
        }
    }
}

impl Vswitch {
    /// Called with the periodic work.
    pub(crate) fn look_after_queues(&mut self, now_ms: u64) {
        if now_ms >= self.placing.step_began_ms + STEP_MS {
            self.placing.step_began_ms = now_ms;
            self.measure_queues();
        }
        self.place_due_queues();
        if let Some(auto) = self.settings.auto_balance {
            self.balance(auto, now_ms);
        }
    }

    /// Places queues if something has changed that says where they go.
    pub(crate) fn place_due_queues(&mut self) {
        if self.placing.is_due || self.placing.is_full_due {
            let full = std::mem::take(&mut self.placing.is_full_due);
            self.placing.is_due = false;
            self.place_queues(full);
        }
    }

    fn measure_queues(&mut self) {
        let mut costs = std::mem::take(&mut self.placing.costs);
        costs.retain(|(port, _), _| self.ports.contains_key(port));
        for &port in self.ports.keys() {
            for (queue, load) in self.dp.rx_loads(port).iter().enumerate() {
                costs.entry((port, queue)).or_default().step(load.cycles.get());
            }
        }
        self.placing.costs = costs;
        self.placing.busy.resize_with(self.dp.workers(), Costs::default);
        for (n, busy) in self.placing.busy.iter_mut().enumerate() {
            busy.step(self.dp.worker_stats(n).busy_cycles.get());
        }
    }

    /// Cycles that a queue has cost in the last minute, those since the last step included.
    pub(crate) fn queue_cost(&self, port: PortNo, queue: usize) -> u64 {
        let now = self.dp.rx_loads(port).get(queue).map_or(0, |load| load.cycles.get());
        match self.placing.costs.get(&(port, queue)) {
            Some(costs) => costs.steps.iter().sum::<u64>() + now.saturating_sub(costs.total),
            None => now,
        }
    }

    /// What a queue has cost its worker in the last `seconds`, or a little longer, as percent of that time. Costs are kept in steps of
    /// five seconds, for a minute.
    pub(crate) fn queue_usage(&self, port: PortNo, queue: usize, seconds: u64) -> u64 {
        let (cycles, ms) = self.queue_cycles(port, queue, seconds);
        percent(cycles, ms)
    }

    /// What a worker has been busy with in that time beside its queues, likewise: turns of its loop, what is sent late, news of rules.
    pub(crate) fn overhead(&self, worker: usize, seconds: u64) -> u64 {
        let now = self.dp.worker_stats(worker).busy_cycles.get();
        let (busy, ms) = self.recent(self.placing.busy.get(worker), now, seconds);
        let of_port = |port: &PortNo| {
            let queues = self.dp.rx_workers(*port).iter().enumerate().filter(|(_, w)| **w == worker);
            queues.map(|(queue, _)| self.queue_cycles(*port, queue, seconds).0).sum::<u64>()
        };
        let queues: u64 = self.ports.keys().map(of_port).sum();
        percent(busy.saturating_sub(queues), ms)
    }

    fn queue_cycles(&self, port: PortNo, queue: usize, seconds: u64) -> (u64, u64) {
        let now = self.dp.rx_loads(port).get(queue).map_or(0, |load| load.cycles.get());
        self.recent(self.placing.costs.get(&(port, queue)), now, seconds)
    }

    /// Cycles of the last `seconds`, or a little longer, of a counter that is at `now`; and how many milliseconds that is.
    fn recent(&self, costs: Option<&Costs>, now: u64, seconds: u64) -> (u64, u64) {
        let mut cycles = now.saturating_sub(costs.map_or(0, |costs| costs.total));
        let mut ms = self.now_ms().saturating_sub(self.placing.step_began_ms).clamp(1, STEP_MS);
        for step in costs.iter().flat_map(|costs| costs.steps.iter().rev()) {
            if ms >= seconds * 1_000 {
                break;
            }
            cycles += step;
            ms += STEP_MS;
        }
        (cycles, ms)
    }

    /// All receive queues, and the worker of each.
    fn demands(&self) -> (Vec<Demand>, Vec<usize>) {
        let mut demands = Vec::new();
        let mut workers = Vec::new();
        for (&port, record) in &self.ports {
            for (queue, &worker) in self.dp.rx_workers(port).iter().enumerate() {
                let bound = record.interface.rxq_affinity.get(&queue).copied();
                let cycles = self.queue_cost(port, queue);
                demands.push(Demand { port, queue, numa: record.numa, cycles, bound });
                workers.push(worker);
            }
        }
        (demands, workers)
    }

    fn placement(&self, demands: &[Demand]) -> Placement {
        let place_of = |place: &WorkerPlace| Place { cpu: Some(place.core), numa: place.node };
        let places: Vec<Place> = self.places.iter().map(place_of).collect();
        place(demands, &places, self.settings.rxq_policy, self.settings.rxq_isolate)
    }

    /// Whether a worker is kept for queues that are bound to it.
    pub(crate) fn is_kept(&self, worker: usize) -> bool {
        let Some(cpu) = self.places.get(worker).map(|place| place.core) else { return false };
        let binds =
            |record: &crate::state::PortRecord| record.interface.rxq_affinity.values().any(|c| *c == cpu);
        self.settings.rxq_isolate && self.ports.values().any(binds)
    }

    /// Moves what must move: bound queues to their processors, others away from workers that are kept, and to their NUMA nodes; all
    /// where `full`.
    pub(crate) fn place_queues(&mut self, full: bool) {
        if self.dp.workers() == 0 {
            return;
        }
        let (demands, now) = self.demands();
        let placement = self.placement(&demands);
        for remark in &placement.remarks {
            if !self.placing.told.contains(remark) {
                self.tell_remark(*remark);
            }
        }
        self.placing.told = placement.remarks;
        for ((demand, worker), wanted) in demands.iter().zip(now).zip(placement.workers) {
            let node = |worker: usize| self.places.get(worker).map(|place| place.node);
            // It has a worker at home, and is not there.
            let is_away = node(worker) != node(wanted) && node(wanted) == demand.numa;
            let must = full || demand.bound.is_some() || self.is_kept(worker) || is_away;
            if !must || worker == wanted {
                continue;
            }
            match self.dp.move_queue(demand.port, demand.queue, wanted) {
                Ok(()) => tracing::debug!(
                    target: "dpif_netdev",
                    "queue {} of {} goes to worker {wanted}",
                    demand.queue,
                    self.ports.get(&demand.port).map_or("", |r| &r.name)
                ),
                Err(error) => tracing::error!(target: "dpif_netdev", "a queue could not be moved: {error}"),
            }
        }
    }

    fn tell_remark(&self, remark: Remark) {
        let name = |port: PortNo| self.ports.get(&port).map_or("", |r| r.name.as_str()).to_string();
        match remark {
            Remark::NoWorkerThere { port, queue, cpu } => tracing::warn!(
                target: "dpif_netdev",
                "pmd-rxq-affinity: no worker runs on processor {cpu}; queue {queue} of {} is placed like others",
                name(port)
            ),
            Remark::AllKept => tracing::warn!(
                target: "dpif_netdev",
                "every worker is kept for queues that are bound to it; the others share them"
            ),
            Remark::OtherNode { port, queue } => tracing::warn!(
                target: "dpif_netdev",
                "queue {queue} of {} is polled from another NUMA node: there is no worker on its own",
                name(port)
            ),
        }
    }

    /// Moves queues where a worker has been overloaded for the interval, and it helps.
    fn balance(&mut self, auto: AutoBalance, now_ms: u64) {
        let busy: Vec<u64> =
            (0..self.dp.workers()).map(|n| self.dp.worker_stats(n).busy_cycles.get()).collect();
        let elapsed_ms = now_ms.saturating_sub(self.placing.interval_began_ms);
        if elapsed_ms < auto.interval_ms && self.placing.busy_at_start.len() == busy.len() {
            return;
        }
        let before = std::mem::replace(&mut self.placing.busy_at_start, busy.clone());
        self.placing.interval_began_ms = now_ms;
        if before.len() != busy.len() || busy.len() < 2 || elapsed_ms > 2 * auto.interval_ms {
            return;
        }
        let cycles = base::clock::tsc_hz() / 1000 * elapsed_ms.max(1);
        let is_overloaded = |(now, before): (&u64, &u64)| {
            now.saturating_sub(*before) as f64 * 100.0 >= cycles as f64 * f64::from(auto.load_percent)
        };
        if !busy.iter().zip(&before).any(is_overloaded) {
            return;
        }
        let (demands, now) = self.demands();
        let wanted = self.placement(&demands).workers;
        let load = |workers: &[usize]| loads(&demands, workers, busy.len());
        let better = improvement_percent(&load(&now), &load(&wanted));
        if better >= auto.improvement_percent {
            tracing::debug!(target: "dpif_netdev", "pmd-auto-lb: another placement is better by {better} %");
            self.place_queues(true);
        }
    }
}

/// Cycles as a share of the time, in percent.
fn percent(cycles: u64, ms: u64) -> u64 {
    let most = base::clock::tsc_hz() / 1_000 * ms;
    (u128::from(cycles) * 100 / u128::from(most.max(1))).min(100) as u64
}
