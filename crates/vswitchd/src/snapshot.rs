//! Takes a snapshot of the [figures](crate::figures), in one pass.

use crate::figures::{
    Buffers, Controllers, Database, Drop, Figures, Flows, Port, Queue, VERSION, Worker, WorkerCounters,
};
use crate::state::Vswitch;
use base::DropReason;

impl Vswitch {
    /// The current figures.
    pub(crate) fn figures(&self) -> Figures {
        let stats = || (0..self.plane.dp.workers()).map(|n| self.plane.dp.worker_stats(n));
        let sum = |of: fn(&datapath::WorkerStats) -> u64| stats().map(of).sum::<u64>();
        let tables = self.bridges.keys().flat_map(|bridge| self.plane.control.table_stats(*bridge));
        let pool = self.plane.dp.pool();
        let c = &self.counts;
        Figures {
            version: VERSION,
            now_ms: self.plane.now_ms(),
            workers: (0..self.plane.dp.workers()).map(|n| self.worker_figures(n)).collect(),
            queues: self.queue_figures(),
            ports: self.port_figures(),
            drops: self.drop_figures(),
            flows: Flows {
                rules: tables.map(|table| table.active as u64).sum(),
                megaflows: sum(|w| w.megaflows.get()),
                exact_entries: sum(|w| w.exact_entries.get()),
                cache_bytes: sum(|w| w.cache_bytes.get()),
            },
            buffers: Buffers { bytes: pool.len_bytes() as u64, free: pool.stats().free as u64 },
            burst: pool.burst_max(),
            controllers: Controllers {
                connections: self.bridges.values().map(|bridge| bridge.conns.len() as u64).sum(),
                received: c.openflow_received,
                refused: c.openflow_errors,
                packet_ins: c.packet_ins,
                packet_ins_lost: c.packet_ins_lost,
                cut: c.connections_cut,
            },
            database: Database {
                committed: c.txn_success,
                failed: c.txn_error + c.txn_not_locked + c.txn_try_again,
                reconfigurations: c.reconfigures,
            },
        }
    }

    /// A worker's.
    pub(crate) fn worker_figures(&self, n: usize) -> Worker {
        let (core, numa) = self.workers.place(n);
        Worker { worker: n, core, numa, counters: WorkerCounters::of(self.plane.dp.worker_stats(n)) }
    }

    fn queue_figures(&self) -> Vec<Queue> {
        let seen = self.workers.seen(&self.plane, &self.devices.ports);
        let of_port = |port: &base::PortNo| self.workers.queues_of(&self.plane, &self.devices.ports, *port);
        let queues: Vec<_> = self.devices.ports.keys().flat_map(of_port).collect();
        let named = queues.iter().filter_map(|queue| Some((queue, self.devices.ports.get(&queue.port)?)));
        let figures = named.map(|(queue, record)| Queue {
            port: record.name.clone(),
            queue: queue.queue,
            worker: queue.worker,
            usage_percent: self.workers.scheduler.queue_usage(queue, &seen, 60).unwrap_or(0),
        });
        figures.collect()
    }

    fn port_figures(&self) -> Vec<Port> {
        let with_device = self.devices.ports.values().filter(|port| !port.is_patch());
        let figures = with_device.map(|port| {
            let s = self.plane.dp.port_stats(port.port_no);
            Port {
                number: port.port_no.0,
                name: port.name.clone(),
                kind: port.interface.kind.clone(),
                status: port.status.details.iter().cloned().collect(),
                rx_packets: s.rx_packets,
                rx_bytes: s.rx_bytes,
                rx_dropped: s.rx_dropped,
                rx_errors: s.rx_errors,
                tx_packets: s.tx_packets,
                tx_bytes: s.tx_bytes,
                tx_dropped: s.tx_dropped,
                tx_errors: s.tx_errors,
            }
        });
        figures.collect()
    }

    /// Drops alone.
    pub(crate) fn drop_figures(&self) -> Vec<Drop> {
        let counted = DropReason::ALL.iter().map(|reason| (*reason, self.plane.dp.drops(*reason)));
        let figures = counted.filter(|(_, packets)| *packets > 0).map(|(reason, packets)| {
            let ports = self.devices.ports.values();
            let here = ports.map(|port| (port.name.clone(), self.plane.dp.port_drops(port.port_no, reason)));
            let ports = here.filter(|(_, packets)| *packets > 0).collect();
            Drop { reason: reason.name().into(), packets, ports }
        });
        figures.collect()
    }
}
