//! Shows the [scheduler](crate::scheduler) what there is, and carries out what it orders.

use crate::scheduler::{self, Balance, Order, Placed, Queue, Rules, Seen};
use crate::state::{PortRecord, Vswitch};
use base::PortNo;
use datapath::placement::{Place, Policy, Remark, improvement_percent};
use host::numa::WorkerPlace;

impl Vswitch {
    /// Called with the periodic work.
    pub(crate) fn look_after_queues(&mut self, now_ms: u64) {
        let rules = self.rules();
        if !self.plane.dp.is_exchanging() && self.scheduler.wants_turn(now_ms, rules) {
            let orders = self.scheduler.handle(&self.seen(), rules);
            self.obey(orders);
        }
    }

    /// Places queues if something has changed that says where they go.
    pub(crate) fn place_due_queues(&mut self) {
        if !self.plane.dp.is_exchanging() && self.scheduler.is_due() {
            let orders = self.scheduler.place_due(&self.seen(), self.rules());
            self.obey(orders);
        }
    }

    /// Places all queues anew. Where workers are being exchanged, that is done when they have been.
    pub(crate) fn place_all_queues(&mut self) {
        if self.plane.dp.is_exchanging() {
            return;
        }
        let orders = self.scheduler.place(&self.seen(), self.rules(), true);
        self.obey(orders);
    }

    /// How the operator wants queues placed.
    pub(crate) fn rules(&self) -> Rules {
        let wanted = &self.settings;
        // Only this policy weighs bound queues with the others.
        let isolate = wanted.rxq_isolate || wanted.rxq_policy != Policy::Group;
        Rules { policy: wanted.rxq_policy, isolate, balance: wanted.auto_balance }
    }

    /// Logs how queues are placed where that changed, and all of it once there is a bridge: scripts wait for
    /// these lines.
    pub(crate) fn tell_rules(&mut self) {
        if self.bridges.is_empty() {
            return;
        }
        let rules = self.rules();
        let before = self.scheduler.told_rules.replace(rules);
        if before == Some(rules) && rules.isolate == self.settings.rxq_isolate {
            return;
        }
        let old = before.unwrap_or(Rules { isolate: true, ..Rules::default() });
        if old.policy != rules.policy {
            let mode = rules.policy.name();
            tracing::info!(target: "dpif_netdev", "Rxq to PMD assignment mode changed to: '{mode}'.");
        }
        if rules.isolate != self.settings.rxq_isolate {
            tracing::warn!(
                target: "dpif_netdev",
                "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group"
            );
        }
        if old.isolate != rules.isolate {
            let does = if rules.isolate { "isolates" } else { "does not isolate" };
            tracing::info!(target: "dpif_netdev", "pmd-rxq-affinity {does} PMD core");
        }
        let (auto, is_first) = (rules.balance, before.is_none());
        let (minutes, load, improvement) =
            (auto.interval_ms / 60_000, auto.load_percent, auto.improvement_percent);
        if is_first || old.balance.interval_ms != auto.interval_ms {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance interval set to {minutes} mins");
        }
        if is_first || old.balance.improvement_percent != improvement {
            tracing::info!(
                target: "dpif_netdev",
                "PMD auto load balance improvement threshold set to {improvement}%"
            );
        }
        if is_first || old.balance.load_percent != load {
            tracing::info!(target: "dpif_netdev", "PMD auto load balance load threshold set to {load}%");
        }
        if is_first || old.balance.is_on != auto.is_on {
            if auto.is_on {
                tracing::info!(
                    target: "dpif_netdev",
                    "PMD auto load balance is enabled, interval {minutes} mins, pmd load threshold {load}%, \
                     improvement threshold {improvement}%."
                );
            } else {
                tracing::info!(target: "dpif_netdev", "PMD auto load balance is disabled.");
            }
        }
    }

    /// All workers and queues as they are now.
    pub(crate) fn seen(&self) -> Seen {
        let place = |place: &WorkerPlace| Place { cpu: Some(place.core), numa: place.node };
        let workers = if self.plane.dp.workers() == 0 { &[][..] } else { self.workers.places() };
        Seen {
            now_ms: self.plane.now_ms(),
            cycles_per_ms: base::clock::tsc_hz() / 1_000,
            workers: workers.iter().map(place).collect(),
            busy: (0..self.plane.dp.workers())
                .map(|n| self.plane.dp.worker_stats(n).busy_cycles.get())
                .collect(),
            queues: self.placed_ports().flat_map(|record| self.queues_of(record.port_no)).collect(),
        }
    }

    /// The ports whose queues are placed. Plain dummies stay with the worker that got them: their places are
    /// to them what the main thread is in Open vSwitch, and its tests count on workers without their queues.
    fn placed_ports(&self) -> impl Iterator<Item = &PortRecord> {
        self.devices.ports.values().filter(|record| !record.is_by_main())
    }

    /// The receive queues of a port.
    pub(crate) fn queues_of(&self, port: PortNo) -> Vec<Queue> {
        let record = self.devices.ports.get(&port);
        let workers = self.plane.dp.rx_workers(port);
        let of_queue = move |(queue, worker): (usize, &usize)| Queue {
            port,
            queue,
            numa: record.and_then(|record| record.numa),
            bound: record.and_then(|record| record.interface.rxq_affinity.get(&queue).copied()),
            worker: *worker,
            cycles: self.plane.dp.rx_loads(port).get(queue).map_or(0, |load| load.cycles.get()),
        };
        workers.iter().enumerate().map(of_queue).collect()
    }

    /// Whether a worker is kept for queues that are bound to it.
    pub(crate) fn is_kept(&self, worker: usize) -> bool {
        scheduler::kept(&self.seen(), self.rules()).contains(&worker)
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Begin(policy) => tracing::info!(
                    target: "dpif_netdev",
                    "Performing pmd to rx queue assignment using {} algorithm.", policy.name()
                ),
                Order::Tell(remark) => self.tell_remark(remark),
                Order::Balance(found) => tell_balance(found),
                Order::Place(placed) => self.place_queue(placed),
            }
        }
    }

    fn place_queue(&mut self, placed: Placed) {
        let Placed { port, queue, worker, cycles, is_bound, moves } = placed;
        if moves && let Err(error) = self.plane.dp.move_queue(port, queue, worker) {
            tracing::error!(target: "dpif_netdev", "a queue could not be moved: {error}");
            return;
        }
        let name = self.port_name(port);
        let (core, node) = self.workers.place(worker);
        if is_bound {
            tracing::info!(
                target: "dpif_netdev",
                "Core {core:2} on numa node {node} is pinned with port '{name}' rx queue {queue}."
            );
        } else {
            let cost = match self.settings.rxq_policy {
                Policy::RoundRobin => String::new(),
                _ => format!(" (measured processing cycles {cycles})"),
            };
            tracing::info!(
                target: "dpif_netdev",
                "Core {core:2} on numa node {node} assigned port '{name}' rx queue {queue}{cost}."
            );
        }
    }

    fn port_name(&self, port: PortNo) -> &str {
        self.devices.ports.get(&port).map_or("", |record| &record.name)
    }

    fn tell_remark(&self, remark: Remark) {
        match remark {
            Remark::NoWorkerThere { port, queue, cpu } => tracing::warn!(
                target: "dpif_netdev",
                "Core {cpu:2} cannot be pinned with port '{}' rx queue {queue}. Use pmd-cpu-mask to enable a pmd \
                 on core {cpu}. An alternative core will be assigned.",
                self.port_name(port)
            ),
            Remark::AllKept => tracing::warn!(
                target: "dpif_netdev",
                "every worker is kept for queues that are bound to it; the others share them"
            ),
            Remark::OtherNode { port, queue, numa, polled_on } => tracing::info!(
                target: "dpif_netdev",
                "There's no available (non-isolated) pmd thread on numa node {numa}. Port '{}' rx queue {queue} \
                 will be assigned to a pmd on numa node {polled_on}. This may lead to reduced performance.",
                self.port_name(port)
            ),
        }
    }
}

/// Logs what `pmd-auto-lb` found.
fn tell_balance(found: Balance) {
    let text = match found {
        Balance::Unchanged => {
            "PMD auto load balance nothing to do, no configuration changes since last check.".to_string()
        }
        Balance::RoundRobin => {
            "PMD auto load balance nothing to do, pmd-rxq-assign=roundrobin assignment type \
                                configured."
                .to_string()
        }
        Balance::TooFew => {
            "PMD auto load balance nothing to do, not enough non-isolated PMDs or RxQs.".to_string()
        }
        Balance::DryRun => "PMD auto load balance performing dry run.".to_string(),
        Balance::CrossNuma => "PMD auto load balance detected cross-numa polling with multiple numa nodes. \
                               Unable to accurately estimate."
            .to_string(),
        Balance::Variance { numa, current, estimated } => format!(
            "Numa node {numa}. Current variance {current:.0} Estimated variance {estimated:.0}. Variance \
             improvement {}%.",
            improvement_percent(current, estimated)
        ),
        Balance::Threshold { percent, is_met } => format!(
            "PMD load variance improvement threshold {percent}% is {}.",
            if is_met { "met" } else { "not met" }
        ),
        Balance::Rebalance => {
            tracing::info!(
                target: "dpif_netdev",
                "PMD auto load balance dry run. Requesting datapath reconfigure."
            );
            return;
        }
    };
    tracing::debug!(target: "dpif_netdev", "{text}");
}
