//! Tells the [scheduler](crate::scheduler) what exists, and executes its orders.

use crate::plane::ForwardingPlane;
use crate::port_record::Ports;
use crate::scheduler::{self, Balance, Order, Placed, Queue, Rules, Seen};
use crate::workers::Workers;
use base::PortNo;
use datapath::placement::{Place, Policy, Remark, improvement_percent};
use host::numa::WorkerPlace;

impl Workers {
    /// Called with the periodic work.
    pub fn look_after_queues(&mut self, plane: &mut ForwardingPlane, ports: &Ports) {
        let rules = self.rules();
        if !plane.dp.is_exchanging() && self.scheduler.wants_turn(plane.now_ms(), rules) {
            let orders = self.scheduler.handle(&self.seen(plane, ports), rules);
            self.obey(orders, plane, ports);
        }
    }

    /// Places queues if an event requires it.
    pub fn place_due_queues(&mut self, plane: &mut ForwardingPlane, ports: &Ports) {
        if !plane.dp.is_exchanging() && self.scheduler.is_due() {
            let orders = self.scheduler.place_due(&self.seen(plane, ports), self.rules());
            self.obey(orders, plane, ports);
        }
    }

    /// Places all queues again. If workers are being exchanged, that happens afterwards.
    pub fn place_all_queues(&mut self, plane: &mut ForwardingPlane, ports: &Ports) {
        if !plane.dp.is_exchanging() {
            let orders = self.scheduler.place(&self.seen(plane, ports), self.rules(), true);
            self.obey(orders, plane, ports);
        }
    }

    fn rules(&self) -> Rules {
        Rules::of(&self.settings)
    }

    /// Logs the placement rules when they change, and all of them the first time: scripts wait for these
    /// lines.
    pub fn tell_rules(&mut self) {
        let rules = self.rules();
        let before = self.told_rules.replace(rules);
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
        let (auto, is_first) = (rules.balance, before.is_none());
        if is_first || old.isolate != rules.isolate {
            let does = if rules.isolate { "isolates" } else { "does not isolate" };
            tracing::info!(target: "dpif_netdev", "pmd-rxq-affinity {does} PMD core");
        }
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

    /// All workers and queues at present.
    pub fn seen(&self, plane: &ForwardingPlane, ports: &Ports) -> Seen {
        let place = |place: &WorkerPlace| Place { cpu: Some(place.core), numa: place.node };
        let workers = if plane.dp.workers() == 0 { &[][..] } else { self.places() };
        Seen {
            now_ms: plane.now_ms(),
            cycles_per_ms: base::clock::tsc_hz() / 1_000,
            workers: workers.iter().map(place).collect(),
            busy: (0..plane.dp.workers()).map(|n| plane.dp.worker_stats(n).busy_cycles.get()).collect(),
            // Plain dummies stay with the worker that got them: their places are to them what the main thread
            // is in Open vSwitch, and its tests count on workers without their queues.
            queues: (ports.values().filter(|record| !record.interface.is_by_main()))
                .flat_map(|record| self.queues_of(plane, ports, record.port_no))
                .collect(),
        }
    }

    /// The receive queues of a port.
    pub fn queues_of(&self, plane: &ForwardingPlane, ports: &Ports, port: PortNo) -> Vec<Queue> {
        let record = ports.get(&port);
        let workers = plane.dp.rx_workers(port);
        let of_queue = move |(queue, worker): (usize, &usize)| Queue {
            port,
            queue,
            numa: record.and_then(|record| record.numa),
            bound: record.and_then(|record| record.interface.rxq_affinity.get(&queue).copied()),
            worker: *worker,
            cycles: plane.dp.rx_loads(port).get(queue).map_or(0, |load| load.cycles.get()),
        };
        workers.iter().enumerate().map(of_queue).collect()
    }

    /// Whether a worker is reserved for queues that are bound to it.
    pub fn is_kept(&self, seen: &Seen, worker: usize) -> bool {
        scheduler::kept(seen, self.rules()).contains(&worker)
    }

    fn obey(&self, orders: Vec<Order>, plane: &mut ForwardingPlane, ports: &Ports) {
        for order in orders {
            match order {
                Order::Begin(policy) => tracing::info!(
                    target: "dpif_netdev",
                    "Performing pmd to rx queue assignment using {} algorithm.", policy.name()
                ),
                Order::Tell(remark) => tell_remark(remark, ports),
                Order::Balance(found) => tell_balance(found),
                Order::Place(placed) => self.place_queue(placed, plane, ports),
            }
        }
    }

    fn place_queue(&self, placed: Placed, plane: &mut ForwardingPlane, ports: &Ports) {
        let Placed { port, queue, worker, cycles, is_bound, moves } = placed;
        if moves && let Err(error) = plane.dp.move_queue(port, queue, worker) {
            tracing::error!(target: "dpif_netdev", "a queue could not be moved: {error}");
            return;
        }
        let name = port_name(ports, port);
        let (core, node) = self.place(worker);
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
}

fn port_name(ports: &Ports, port: PortNo) -> &str {
    ports.get(&port).map_or("", |record| &record.name)
}

fn tell_remark(remark: Remark, ports: &Ports) {
    match remark {
        Remark::NoWorkerThere { port, queue, cpu } => tracing::warn!(
            target: "dpif_netdev",
            "Core {cpu:2} cannot be pinned with port '{}' rx queue {queue}. Use pmd-cpu-mask to enable a pmd \
             on core {cpu}. An alternative core will be assigned.",
            port_name(ports, port)
        ),
        Remark::AllKept => tracing::warn!(
            target: "dpif_netdev",
            "every worker is kept for queues that are bound to it; the others share them"
        ),
        Remark::OtherNode { port, queue, numa, polled_on } => tracing::info!(
            target: "dpif_netdev",
            "There's no available (non-isolated) pmd thread on numa node {numa}. Port '{}' rx queue {queue} \
             will be assigned to a pmd on numa node {polled_on}. This may lead to reduced performance.",
            port_name(ports, port)
        ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use crate::config::wanted::{Interface, WorkerSettings};
    use crate::port_record::PortRecord;
    use crate::scheduler::Event;
    use crate::workers::Given;
    use base::OfPort;
    use datapath::CacheConfig;
    use host::numa::Topology;
    use switch::BridgeIdx;

    /// Two workers, one on each of two made-up processors, and a port with four queues.
    fn rig() -> (Workers, ForwardingPlane, Ports) {
        let flags = DatapathFlags { pool_packets: 1024, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        let given = Given { count: Some(2), cache: CacheConfig::default(), never_sleep: false };
        let workers = Workers::new(given, Topology::simulated("0,0").unwrap());
        (0..2).map(|_| plane.dp.start_worker(None).unwrap()).for_each(drop);
        let port_no = PortNo(1);
        let options = [("size".to_string(), "60".to_string()), ("n_rxq".into(), "4".into())].into();
        let spec = ports::PortSpec { options, ..ports::PortSpec::new("src", "null", port_no) };
        let device = ports::open(&spec, plane.dp.pool()).unwrap();
        let interface = Interface::new("src", "null");
        let record = PortRecord::new((BridgeIdx(0), port_no, OfPort(1)), &interface, device.status());
        plane.dp.add_port(port_no, device).unwrap();
        (workers, plane, [(port_no, record)].into())
    }

    #[test]
    fn queues_move_to_the_worker_of_the_processor_that_a_setting_binds_them_to_and_others_leave_it() {
        let (mut workers, mut plane, mut ports) = rig();
        let port_no = PortNo(1);
        ports.get_mut(&port_no).unwrap().interface.rxq_affinity = [(0, 1), (2, 1)].into();
        workers.place_due_queues(&mut plane, &ports);
        let fewest = plane.dp.rx_workers(port_no).to_vec();
        assert_eq!(
            fewest.iter().filter(|worker| **worker == 0).count(),
            2,
            "nothing has happened: {fewest:?}"
        );
        workers.scheduler.note(Event::Queues);
        workers.place_due_queues(&mut plane, &ports);
        assert_eq!(plane.dp.rx_workers(port_no), [1, 0, 1, 0]);
        let seen = workers.seen(&plane, &ports);
        assert!(workers.is_kept(&seen, 1) && !workers.is_kept(&seen, 0));
    }

    #[test]
    fn another_policy_places_all_queues_anew() {
        let (mut workers, mut plane, ports) = rig();
        let port_no = PortNo(1);
        (0..4).for_each(|queue| plane.dp.move_queue(port_no, queue, 0).unwrap());
        workers.look_after_queues(&mut plane, &ports);
        assert_eq!(plane.dp.rx_workers(port_no), [0; 4], "what runs stays where it is");
        let wanted = WorkerSettings { rxq_policy: Policy::RoundRobin, ..WorkerSettings::default() };
        workers.set(&mut plane, &wanted);
        workers.look_after_queues(&mut plane, &ports);
        let spread = plane.dp.rx_workers(port_no);
        assert_eq!(spread.iter().filter(|worker| **worker == 0).count(), 2, "{spread:?}");
    }
}
