//! Shows the [scheduler](crate::scheduler) what there is, and carries out what it orders.

use crate::scheduler::{self, Order, Queue, Rules, Seen};
use crate::state::Vswitch;
use base::PortNo;
use datapath::placement::{Place, Remark};
use host::numa::WorkerPlace;

impl Vswitch {
    /// Called with the periodic work.
    pub(crate) fn look_after_queues(&mut self, now_ms: u64) {
        let rules = self.rules();
        if self.scheduler.wants_turn(now_ms, rules) {
            let orders = self.scheduler.handle(&self.seen(), rules);
            self.obey(orders);
        }
    }

    /// Places queues if something has changed that says where they go.
    pub(crate) fn place_due_queues(&mut self) {
        if self.scheduler.is_due() {
            let orders = self.scheduler.place_due(&self.seen(), self.rules());
            self.obey(orders);
        }
    }

    /// Places all queues anew.
    pub(crate) fn place_all_queues(&mut self) {
        let orders = self.scheduler.place(&self.seen(), self.rules(), true);
        self.obey(orders);
    }

    /// How the operator wants queues placed.
    pub(crate) fn rules(&self) -> Rules {
        let wanted = &self.settings;
        Rules { policy: wanted.rxq_policy, isolate: wanted.rxq_isolate, balance: wanted.auto_balance }
    }

    /// All workers and queues as they are now.
    pub(crate) fn seen(&self) -> Seen {
        let place = |place: &WorkerPlace| Place { cpu: Some(place.core), numa: place.node };
        let workers = if self.dp.workers() == 0 { &[][..] } else { &self.places[..] };
        Seen {
            now_ms: self.now_ms(),
            cycles_per_ms: base::clock::tsc_hz() / 1_000,
            workers: workers.iter().map(place).collect(),
            busy: (0..self.dp.workers()).map(|n| self.dp.worker_stats(n).busy_cycles.get()).collect(),
            queues: self.ports.keys().flat_map(|port| self.queues_of(*port)).collect(),
        }
    }

    /// The receive queues of a port.
    pub(crate) fn queues_of(&self, port: PortNo) -> Vec<Queue> {
        let record = self.ports.get(&port);
        let workers = self.dp.rx_workers(port);
        let of_queue = move |(queue, worker): (usize, &usize)| Queue {
            port,
            queue,
            numa: record.and_then(|record| record.numa),
            bound: record.and_then(|record| record.interface.rxq_affinity.get(&queue).copied()),
            worker: *worker,
            cycles: self.dp.rx_loads(port).get(queue).map_or(0, |load| load.cycles.get()),
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
                Order::Tell(remark) => self.tell_remark(remark),
                Order::Rebalance(better) => tracing::debug!(
                    target: "dpif_netdev",
                    "pmd-auto-lb: another placement is better by {better} %"
                ),
                Order::Move { port, queue, worker } => match self.dp.move_queue(port, queue, worker) {
                    Ok(()) => tracing::debug!(
                        target: "dpif_netdev",
                        "queue {queue} of {} goes to worker {worker}", self.port_name(port)
                    ),
                    Err(error) => {
                        tracing::error!(target: "dpif_netdev", "a queue could not be moved: {error}");
                    }
                },
            }
        }
    }

    fn port_name(&self, port: PortNo) -> &str {
        self.ports.get(&port).map_or("", |record| &record.name)
    }

    fn tell_remark(&self, remark: Remark) {
        match remark {
            Remark::NoWorkerThere { port, queue, cpu } => tracing::warn!(
                target: "dpif_netdev",
                "pmd-rxq-affinity: no worker runs on processor {cpu}; queue {queue} of {} is placed like others",
                self.port_name(port)
            ),
            Remark::AllKept => tracing::warn!(
                target: "dpif_netdev",
                "every worker is kept for queues that are bound to it; the others share them"
            ),
            Remark::OtherNode { port, queue } => tracing::warn!(
                target: "dpif_netdev",
                "queue {queue} of {} is polled from another NUMA node: there is no worker on its own",
                self.port_name(port)
            ),
        }
    }
}
