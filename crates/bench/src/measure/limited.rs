//! A port whose receive queues return only a few packets per poll, however many wait: the benefit of batches.

use packet::{Batch, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue};

/// See the module documentation.
pub struct Limited {
    port: Box<dyn Port>,
    batch: usize,
}

impl Limited {
    /// At most `batch` packets per poll.
    pub fn new(port: Box<dyn Port>, batch: usize) -> Limited {
        Limited { port, batch: batch.max(1) }
    }
}

struct Queue {
    queue: Box<dyn RxQueue>,
    waiting: Batch,
    batch: usize,
}

impl RxQueue for Queue {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        let mut outcome = RxOutcome::Ok;
        if self.waiting.is_empty() {
            outcome = self.queue.rx_burst(cache, &mut self.waiting);
            // First in, first out.
            self.waiting.reverse();
        }
        for _ in 0..self.batch.min(batch.remaining_capacity()) {
            batch.extend(self.waiting.pop());
        }
        outcome
    }

    fn close(&mut self, cache: &mut PoolCache) {
        cache.free_all(&mut self.waiting);
        self.queue.close(cache);
    }
}

impl Port for Limited {
    fn kind(&self) -> &'static str {
        self.port.kind()
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        let limit = |queue| -> Box<dyn RxQueue> {
            Box::new(Queue { queue, waiting: Batch::new(), batch: self.batch })
        };
        self.port.take_rx_queues().into_iter().map(limit).collect()
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        self.port.take_tx_queues(count)
    }

    fn stats(&self) -> PortStats {
        self.port.stats()
    }

    fn status(&self) -> PortStatus {
        self.port.status()
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        self.port.set_admin_up(up)
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        self.port.set_mtu(mtu)
    }
}
