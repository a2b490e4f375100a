//! The scheduler: decides which worker polls which receive queue, by what queues cost. A state machine: it
//! gets events ([`Event`]) and the current situation ([`Seen`]), and answers with [`Order`]s. It does no I/O,
//! reads no clock, and knows neither drivers nor the rest of the daemon.
//!
//! A new queue goes to the worker with the fewest, and no running queue is moved for it. Queues are moved: if
//! one is polled from another NUMA node than its device's although its own has a worker; if a setting binds
//! one to a processor (`pmd-rxq-affinity`); if the settings or the workers change; on the command
//! `dpif-netdev/pmd-rxq-rebalance`; and, with `pmd-auto-lb`, if a worker is overloaded and another placement
//! would be sufficiently better. The cost of a queue is measured over the last minute.
//!
//! Source: ovs-vswitchd.conf.db(5), pmd-rxq-assign, pmd-rxq-isolate, pmd-auto-lb and what belongs to it,
//! pmd-rxq-affinity.

use crate::config::wanted::{AutoBalance, WorkerSettings};
use base::PortNo;
use datapath::placement::{
    Demand, Place, Placement, Policy, Remark, improvement_percent, loads, place, variance,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Costs are kept in steps of this length.
const STEP_MS: u64 = 5_000;
/// So many steps are looked at.
const STEPS: usize = 12;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A queue came, went, or is bound otherwise.
    Queues,
    /// The workers are others.
    Workers,
    /// How queues are spread changed.
    Policy,
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Order {
    /// Unbound queues will be placed by this policy. Report it to the operator.
    Begin(Policy),
    /// Give a queue to a worker. Report it to the operator.
    Place(Placed),
    /// Report this to the operator, once as long as it holds.
    Tell(Remark),
    /// `pmd-auto-lb` has looked at the workers.
    Balance(Balance),
}

/// Where a queue goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Whose queue.
    pub port: PortNo,
    /// Its number.
    pub queue: usize,
    /// The worker's number.
    pub worker: usize,
    /// Cycles that it has cost.
    pub cycles: u64,
    /// Whether it is bound to that worker's processor.
    pub is_bound: bool,
    /// Another worker has it.
    pub moves: bool,
}

/// The result of `pmd-auto-lb`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Balance {
    /// Nothing to do, as when it looked before.
    Unchanged,
    /// Nothing to do: the policy does not ask for costs.
    RoundRobin,
    /// Nothing to do: fewer than two workers have no reservation, or none of them polls several queues.
    TooFew,
    /// Another placement is compared with this one.
    DryRun,
    /// Queues are polled from other nodes than their own, and there are several: costs cannot be compared.
    CrossNuma,
    /// A node's variances of the workers' loads, in percent points.
    Variance {
        /// The node.
        numa: usize,
        /// The present variance.
        current: f64,
        /// The variance of the other placement.
        estimated: f64,
    },
    /// Whether the improvement is sufficient.
    Threshold {
        /// The required improvement.
        percent: u32,
        /// Whether it is reached.
        is_met: bool,
    },
    /// Place all queues again.
    Rebalance,
}

/// How the operator wants it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rules {
    /// `pmd-rxq-assign`.
    pub policy: Policy,
    /// `pmd-rxq-isolate`: a worker with a bound queue takes no others.
    pub isolate: bool,
    /// `pmd-auto-lb`.
    pub balance: AutoBalance,
}

impl Rules {
    /// Only the policy `group` weighs bound queues with the others.
    pub fn of(wanted: &WorkerSettings) -> Rules {
        let isolate = wanted.rxq_isolate || wanted.rxq_policy != Policy::Group;
        Rules { policy: wanted.rxq_policy, isolate, balance: wanted.auto_balance }
    }
}

/// A receive queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Whose.
    pub port: PortNo,
    /// Its number.
    pub queue: usize,
    /// The NUMA node of its device.
    pub numa: Option<usize>,
    /// The processor that it is bound to.
    pub bound: Option<usize>,
    /// The worker that polls it.
    pub worker: usize,
    /// Cycles that it has cost since it came.
    pub cycles: u64,
}

/// The situation at a moment.
#[derive(Debug)]
pub struct Seen {
    /// On the datapath's clock.
    pub now_ms: u64,
    /// Processor cycles per millisecond.
    pub cycles_per_ms: u64,
    /// Where each worker runs.
    pub workers: Vec<Place>,
    /// Busy cycles of each since it was started.
    pub busy: Vec<u64>,
    /// All queues.
    pub queues: Vec<Queue>,
}

/// See the module documentation.
#[derive(Default, Debug)]
pub struct Scheduler {
    /// Cycles of each queue, by steps, the newest last.
    costs: BTreeMap<(PortNo, usize), Costs>,
    /// Busy cycles of each worker, likewise.
    busy: Vec<Costs>,
    /// The workers' busy cycles at the beginning of the interval of `pmd-auto-lb`.
    busy_at_start: Vec<u64>,
    interval_began_ms: u64,
    step_began_ms: u64,
    /// Check for queues that must move.
    is_due: bool,
    /// Place all queues.
    is_full_due: bool,
    /// Remarks that the operator has read.
    told: Vec<Remark>,
    /// The workers that the operator knows queues to be with.
    placed: BTreeMap<(PortNo, usize), usize>,
    /// Queues or settings have changed since `pmd-auto-lb` last looked.
    is_changed: bool,
    /// That check found that another placement may be better.
    may_improve: bool,
}

#[derive(Default, Debug)]
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

impl Scheduler {
    /// Takes note of what happened; see [`Self::handle`].
    pub fn note(&mut self, event: Event) {
        match event {
            Event::Queues => self.is_due = true,
            Event::Workers | Event::Policy => self.is_full_due = true,
        }
    }

    /// Whether an event requires placing queues.
    pub fn is_due(&self) -> bool {
        self.is_due || self.is_full_due
    }

    /// Whether [`Self::handle`] has anything to do.
    pub fn wants_turn(&self, now_ms: u64, rules: Rules) -> bool {
        let auto = rules.balance;
        let is_balance_due = auto.is_on && now_ms >= self.interval_began_ms + auto.interval_ms;
        self.is_due() || now_ms >= self.step_began_ms + STEP_MS || is_balance_due
    }

    /// Does what is due by time or by what happened.
    pub fn handle(&mut self, seen: &Seen, rules: Rules) -> Vec<Order> {
        if seen.now_ms >= self.step_began_ms + STEP_MS {
            self.step_began_ms = seen.now_ms;
            self.measure(seen);
        }
        let mut orders = self.place_due(seen, rules);
        if rules.balance.is_on {
            orders.extend(self.balance(seen, rules));
        } else {
            self.busy_at_start.clear();
        }
        orders
    }

    /// Places queues if an event requires it.
    pub fn place_due(&mut self, seen: &Seen, rules: Rules) -> Vec<Order> {
        if !self.is_due() {
            return Vec::new();
        }
        let full = std::mem::take(&mut self.is_full_due);
        self.is_due = false;
        self.place(seen, rules, full)
    }

    /// Moves what must move: bound queues to their processors, others away from reserved workers and to their
    /// NUMA nodes; all queues if `full`. Reports what is new about this.
    pub fn place(&mut self, seen: &Seen, rules: Rules, full: bool) -> Vec<Order> {
        self.is_changed = true;
        if seen.workers.is_empty() {
            return Vec::new();
        }
        if full {
            self.told.clear();
            self.placed.clear();
        }
        let Placement { workers, remarks } = self.placement(seen, rules);
        let kept = kept(seen, rules);
        let mut orders = Vec::new();
        for (queue, wanted) in seen.queues.iter().zip(workers) {
            let node = |worker: usize| seen.workers.get(worker).map(|place| place.numa);
            // It is not on its own node, although that has a worker.
            let is_away = node(queue.worker) != node(wanted) && node(wanted) == queue.numa;
            let must = full || queue.bound.is_some() || kept.contains(&queue.worker) || is_away;
            let worker = if must { wanted } else { queue.worker };
            if self.placed.insert((queue.port, queue.queue), worker) != Some(worker) {
                let cpu = seen.workers.get(worker).and_then(|place| place.cpu);
                orders.push(Placed {
                    port: queue.port,
                    queue: queue.queue,
                    worker,
                    cycles: self.queue_cost(queue),
                    is_bound: queue.bound.is_some() && queue.bound == cpu,
                    moves: queue.worker != worker,
                });
            }
        }
        let there: BTreeSet<_> = seen.queues.iter().map(|queue| (queue.port, queue.queue)).collect();
        self.placed.retain(|queue, _| there.contains(queue));
        let news = remarks.iter().filter(|remark| !self.told.contains(remark)).copied().map(Order::Tell);
        let begin = orders.iter().any(|placed| !placed.is_bound).then_some(Order::Begin(rules.policy));
        let told = begin.into_iter().chain(news).chain(orders.iter().copied().map(Order::Place)).collect();
        self.told = remarks;
        told
    }

    /// A port goes. Another one may get its number.
    pub fn forget(&mut self, port: PortNo) {
        self.costs.retain(|(of, _), _| *of != port);
        self.placed.retain(|(of, _), _| *of != port);
    }

    /// Cycles that a queue has cost in the last minute, those since the last step included.
    pub fn queue_cost(&self, queue: &Queue) -> u64 {
        match self.costs.get(&(queue.port, queue.queue)) {
            Some(costs) => costs.steps.iter().sum::<u64>() + queue.cycles.saturating_sub(costs.total),
            None => queue.cycles,
        }
    }

    /// What a queue has cost its worker in the last `seconds`, or slightly more, as a percentage of that
    /// time. Costs are recorded in steps of five seconds, for a minute. `None`: it has cost nothing yet, and
    /// the first step is not over.
    pub fn queue_usage(&self, queue: &Queue, seen: &Seen, seconds: u64) -> Option<u64> {
        let costs = self.costs.get(&(queue.port, queue.queue));
        if queue.cycles == 0 && costs.is_none_or(|costs| costs.steps.is_empty()) {
            return None;
        }
        let (cycles, ms) = self.recent(costs, queue.cycles, seen.now_ms, seconds);
        Some(percent(cycles, seen.cycles_per_ms * ms))
    }

    /// The same for a worker's other work: passes of its loop, deferred sending, changes of rules. `None`
    /// while nothing is known about its queues.
    pub fn overhead(&self, worker: usize, seen: &Seen, seconds: u64) -> Option<u64> {
        let mut of_worker = seen.queues.iter().filter(|queue| queue.worker == worker);
        if of_worker.all(|queue| self.queue_usage(queue, seen, seconds).is_none()) {
            return None;
        }
        let now = seen.busy.get(worker).copied().unwrap_or_default();
        let (busy, ms) = self.recent(self.busy.get(worker), now, seen.now_ms, seconds);
        let of_queues = seen.queues.iter().filter(|queue| queue.worker == worker).map(|queue| {
            let costs = self.costs.get(&(queue.port, queue.queue));
            self.recent(costs, queue.cycles, seen.now_ms, seconds).0
        });
        Some(percent(busy.saturating_sub(of_queues.sum()), seen.cycles_per_ms * ms))
    }

    fn measure(&mut self, seen: &Seen) {
        let ports: BTreeSet<PortNo> = seen.queues.iter().map(|queue| queue.port).collect();
        self.costs.retain(|(port, _), _| ports.contains(port));
        for queue in &seen.queues {
            self.costs.entry((queue.port, queue.queue)).or_default().step(queue.cycles);
        }
        self.busy.resize_with(seen.busy.len(), Costs::default);
        for (costs, total) in self.busy.iter_mut().zip(&seen.busy) {
            costs.step(*total);
        }
    }

    /// The cycles of the last `seconds`, or slightly more, on a counter that is at `now`; and the number of
    /// milliseconds that this covers.
    fn recent(&self, costs: Option<&Costs>, now: u64, now_ms: u64, seconds: u64) -> (u64, u64) {
        let mut cycles = now.saturating_sub(costs.map_or(0, |costs| costs.total));
        let mut ms = now_ms.saturating_sub(self.step_began_ms).clamp(1, STEP_MS);
        for step in costs.iter().flat_map(|costs| costs.steps.iter().rev()) {
            if ms >= seconds * 1_000 {
                break;
            }
            cycles += step;
            ms += STEP_MS;
        }
        (cycles, ms)
    }

    fn demands(&self, seen: &Seen) -> Vec<Demand> {
        let demand = |queue: &Queue| Demand {
            port: queue.port,
            queue: queue.queue,
            numa: queue.numa,
            cycles: self.queue_cost(queue),
            bound: queue.bound,
        };
        seen.queues.iter().map(demand).collect()
    }

    fn placement(&self, seen: &Seen, rules: Rules) -> Placement {
        place(&self.demands(seen), &seen.workers, rules.policy, rules.isolate)
    }

    /// Moves queues where a worker has been overloaded for the interval, and it helps.
    fn balance(&mut self, seen: &Seen, rules: Rules) -> Vec<Order> {
        let auto = rules.balance;
        let elapsed_ms = seen.now_ms.saturating_sub(self.interval_began_ms);
        if elapsed_ms < auto.interval_ms && self.busy_at_start.len() == seen.busy.len() {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.busy_at_start, seen.busy.clone());
        self.interval_began_ms = seen.now_ms;
        if before.len() != seen.busy.len() || elapsed_ms > 2 * auto.interval_ms {
            return Vec::new();
        }
        let cycles = seen.cycles_per_ms * elapsed_ms.max(1);
        let is_overloaded = |(now, before): (&u64, &u64)| {
            now.saturating_sub(*before) as f64 * 100.0 >= cycles as f64 * f64::from(auto.load_percent)
        };
        if !seen.busy.iter().zip(&before).any(is_overloaded) {
            return Vec::new();
        }
        let mut found = Vec::new();
        if let Some(nothing) = self.nothing_to_do(seen, rules) {
            found.push(nothing);
        } else {
            found.push(Balance::DryRun);
            found.extend(self.dry_run(seen, rules));
        }
        let is_better = found.contains(&Balance::Rebalance);
        let mut orders: Vec<Order> = found.into_iter().map(Order::Balance).collect();
        if is_better {
            orders.extend(self.place(seen, rules, true));
        }
        orders
    }

    /// Why no placement can be better.
    fn nothing_to_do(&mut self, seen: &Seen, rules: Rules) -> Option<Balance> {
        if !std::mem::take(&mut self.is_changed) {
            return (!self.may_improve).then_some(Balance::Unchanged);
        }
        self.may_improve = false;
        if rules.policy == Policy::RoundRobin {
            return Some(Balance::RoundRobin);
        }
        let kept = kept(seen, rules);
        let free: Vec<usize> = (0..seen.workers.len()).filter(|worker| !kept.contains(worker)).collect();
        let polls_several = |worker: &usize| seen.queues.iter().filter(|q| q.worker == *worker).count() > 1;
        self.may_improve = free.len() > 1 && free.iter().any(polls_several);
        (!self.may_improve).then_some(Balance::TooFew)
    }

    /// Compares the placement that the policy would make with what there is.
    fn dry_run(&self, seen: &Seen, rules: Rules) -> Vec<Balance> {
        let wanted = self.placement(seen, rules);
        let nodes: BTreeSet<usize> = seen.workers.iter().map(|place| place.numa).collect();
        let crosses = wanted.remarks.iter().any(|remark| matches!(remark, Remark::OtherNode { .. }));
        if crosses && nodes.len() > 1 {
            return vec![Balance::CrossNuma];
        }
        let demands = self.demands(seen);
        let now: Vec<usize> = seen.queues.iter().map(|queue| queue.worker).collect();
        let variance_on = |numa: usize, workers: &[usize]| {
            let loads = loads(&demands, workers, seen.workers.len());
            let on_node = loads.iter().zip(&seen.workers).filter(|(_, place)| place.numa == numa);
            variance(&on_node.map(|(load, _)| *load).collect::<Vec<u64>>())
        };
        // Costs cover one minute.
        let percent_points = 100.0 / (seen.cycles_per_ms.max(1) * STEP_MS * STEPS as u64) as f64;
        let (mut found, mut best) = (Vec::new(), 0);
        for numa in nodes {
            let (current, estimated) = (variance_on(numa, &now), variance_on(numa, &wanted.workers));
            best = best.max(improvement_percent(current, estimated));
            let [current, estimated] = [current, estimated].map(|v| v * percent_points.powi(2));
            found.push(Balance::Variance { numa, current, estimated });
        }
        let percent = rules.balance.improvement_percent;
        found.push(Balance::Threshold { percent, is_met: best >= percent });
        // A placement that is not better is never made, however low the threshold.
        if best >= percent && best > 0 {
            found.push(Balance::Rebalance);
        }
        found
    }
}

/// The workers that are kept for queues that are bound to them.
pub fn kept(seen: &Seen, rules: Rules) -> BTreeSet<usize> {
    let bound: BTreeSet<usize> = seen.queues.iter().filter_map(|queue| queue.bound).collect();
    let binds = |place: &Place| place.cpu.is_some_and(|cpu| bound.contains(&cpu));
    let workers = seen.workers.iter().enumerate().filter(|(_, place)| rules.isolate && binds(place));
    workers.map(|(worker, _)| worker).collect()
}

/// Cycles as a share of `most`, in percent.
fn percent(cycles: u64, most: u64) -> u64 {
    (u128::from(cycles) * 100 / u128::from(most.max(1))).min(100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(now_ms: u64, queues: &[(u32, usize, u64)]) -> Seen {
        let queue = |&(port, worker, cycles): &(u32, usize, u64)| Queue {
            port: PortNo(port),
            queue: 0,
            numa: Some(0),
            bound: None,
            worker,
            cycles,
        };
        let workers = vec![Place { cpu: Some(0), numa: 0 }, Place { cpu: Some(1), numa: 0 }];
        let busy_of = |n: usize| queues.iter().filter(|q| q.1 == n).map(|q| q.2).sum();
        let busy = (0..workers.len()).map(busy_of).collect();
        Seen { now_ms, cycles_per_ms: 1_000, workers, busy, queues: queues.iter().map(queue).collect() }
    }

    const OFF: AutoBalance =
        AutoBalance { is_on: false, interval_ms: 1_000, load_percent: 90, improvement_percent: 20 };
    const RULES: Rules = Rules { policy: Policy::Cycles, isolate: true, balance: OFF };

    /// Queue, worker, whether it is bound, whether it moves.
    fn placed(orders: &[Order]) -> Vec<(u32, usize, bool, bool)> {
        let of = |order: &Order| match order {
            Order::Place(p) => Some((p.port.0, p.worker, p.is_bound, p.moves)),
            _ => None,
        };
        orders.iter().filter_map(of).collect()
    }

    #[test]
    fn what_runs_stays_where_it_is_until_something_happens() {
        let mut scheduler = Scheduler::default();
        let both_on_one = seen(10_000, &[(1, 0, 500), (2, 0, 400)]);
        assert!(scheduler.wants_turn(10_000, RULES), "a step is due");
        assert_eq!(scheduler.handle(&both_on_one, RULES), []);
        assert!(!scheduler.wants_turn(10_001, RULES));
        scheduler.note(Event::Queues);
        let orders = scheduler.handle(&both_on_one, RULES);
        assert_eq!(orders[0], Order::Begin(Policy::Cycles));
        assert_eq!(placed(&orders), [(1, 0, false, false), (2, 0, false, false)], "nothing must move");
        scheduler.note(Event::Queues);
        assert_eq!(scheduler.handle(&both_on_one, RULES), [], "all is known");
        for event in [Event::Policy, Event::Workers] {
            scheduler.note(event);
            let orders = scheduler.handle(&both_on_one, RULES);
            assert_eq!(placed(&orders), [(1, 0, false, false), (2, 1, false, true)], "{event:?}");
            assert!(!scheduler.is_due());
        }
    }

    #[test]
    fn a_bound_queue_has_its_worker_to_itself_and_one_bound_to_nothing_is_told_of_once() {
        let mut scheduler = Scheduler::default();
        let mut now = seen(0, &[(1, 1, 0), (2, 1, 0), (3, 0, 0)]);
        now.queues[0].bound = Some(1);
        now.queues[2].bound = Some(7);
        assert_eq!(kept(&now, RULES), [1].into());
        let remark = Remark::NoWorkerThere { port: PortNo(3), queue: 0, cpu: 7 };
        let orders = scheduler.place(&now, RULES, false);
        assert_eq!(orders[..2], [Order::Begin(Policy::Cycles), Order::Tell(remark)]);
        let expected = [(1, 1, true, false), (2, 0, false, true), (3, 0, false, false)];
        assert_eq!(placed(&orders), expected);
        assert!(!scheduler.place(&now, RULES, false).contains(&Order::Tell(remark)));
    }

    #[test]
    fn an_overloaded_worker_gives_queues_up_when_the_interval_is_over() {
        let rules = Rules { balance: AutoBalance { is_on: true, ..OFF }, ..RULES };
        let mut scheduler = Scheduler::default();
        scheduler.handle(&seen(1_000, &[(1, 0, 0), (2, 0, 0)]), rules);
        scheduler.note(Event::Queues);
        let busy = [(1, 0, 600_000), (2, 0, 400_000)];
        let told = scheduler.handle(&seen(1_900, &busy), rules);
        assert_eq!(placed(&told).len(), 2, "the interval is not over: {told:?}");
        let orders = scheduler.handle(&seen(2_000, &busy), rules);
        assert_eq!(orders[0], Order::Balance(Balance::DryRun));
        assert!(orders.contains(&Order::Balance(Balance::Rebalance)), "{orders:?}");
        assert_eq!(placed(&orders), [(1, 0, false, false), (2, 1, false, true)]);
    }

    #[test]
    fn why_an_overloaded_worker_keeps_its_queues_is_said() {
        let balance = AutoBalance { is_on: true, load_percent: 0, ..OFF };
        let rules = Rules { balance, ..RULES };
        let mut scheduler = Scheduler::default();
        let mut now_ms = 1_000;
        let mut look = |queues: &[(u32, usize, u64)], rules: Rules, change: fn(&mut Seen), event| {
            let mut now = seen(now_ms, queues);
            change(&mut now);
            if let Some(event) = event {
                scheduler.note(event);
                scheduler.place_due(&now, rules);
            }
            now_ms += 1_000;
            let orders = scheduler.handle(&Seen { now_ms, ..now }, rules);
            let found = orders.into_iter().filter_map(|order| match order {
                Order::Balance(found) => Some(found),
                _ => None,
            });
            found.collect::<Vec<_>>()
        };
        let (one_each, three) = ([(1, 0, 0), (2, 1, 0)], [(1, 0, 0), (2, 1, 0), (3, 0, 0)]);
        let changed = Some(Event::Queues);
        look(&one_each, rules, |_| (), changed);
        assert_eq!(look(&one_each, rules, |_| (), changed), [Balance::TooFew]);
        assert_eq!(look(&one_each, rules, |_| (), None), [Balance::Unchanged]);
        let in_turn = Rules { policy: Policy::RoundRobin, ..rules };
        assert_eq!(look(&three, in_turn, |_| (), changed), [Balance::RoundRobin]);
        let found = look(&three, rules, |_| (), changed);
        let not_met = Balance::Threshold { percent: 20, is_met: false };
        assert_eq!((found[0], *found.last().unwrap()), (Balance::DryRun, not_met));
        let nodes = |now: &mut Seen| {
            now.workers[1].numa = 1;
            now.queues[2].numa = Some(2);
        };
        assert_eq!(look(&three, rules, nodes, changed), [Balance::DryRun, Balance::CrossNuma]);
        // Every worker is kept but one.
        let bound = |now: &mut Seen| now.queues[1].bound = Some(1);
        assert_eq!(look(&three, rules, bound, changed), [Balance::TooFew]);
    }

    #[test]
    fn usage_is_that_of_the_time_asked_for() {
        let mut scheduler = Scheduler::default();
        for step in 1..=3u64 {
            scheduler.handle(&seen(step * STEP_MS, &[(1, 0, step * 2_500_000)]), RULES);
        }
        let now = seen(3 * STEP_MS + STEP_MS, &[(1, 0, 4 * 2_500_000)]);
        assert_eq!(scheduler.queue_usage(&now.queues[0], &now, 10), Some(50));
        assert_eq!(scheduler.overhead(0, &now, 10), Some(0));
        assert_eq!(scheduler.queue_cost(&now.queues[0]), 10_000_000);
        scheduler.forget(PortNo(1));
        let again = seen(now.now_ms, &[(1, 0, 0)]);
        assert_eq!(scheduler.queue_usage(&again.queues[0], &again, 10), None, "another has its number");
        // Nothing is known of a queue that came just now.
        let new = seen(now.now_ms, &[(9, 1, 0)]);
        assert_eq!(scheduler.queue_usage(&new.queues[0], &new, 10), None);
        assert_eq!(scheduler.overhead(1, &new, 10), None);
    }
}
