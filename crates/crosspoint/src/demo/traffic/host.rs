//! An interface as the traffic's source and sink use it: one receive queue, one transmit queue, and sleep
//! between.

use packet::wait::Waiter;
use packet::{Batch, Pool, PoolCache, PoolConfig, Port, RxOutcome, RxQueue, TxQueue};
use ports::PortSpec;

/// Which interface.
#[derive(clap::Args)]
pub struct Interface {
    /// Name of the interface.
    #[arg(long, default_value = "eth0")]
    ifname: String,
}

/// The interface's queues. Everything it is given leaves or is freed.
pub struct Host {
    port: Box<dyn Port>,
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    waiter: Waiter,
    /// Where packets come from.
    pub cache: PoolCache,
}

impl Host {
    /// Opens an interface by packet sockets.
    pub fn open(interface: &Interface) -> Result<Host, String> {
        let config = PoolConfig { chunks: 4096, huge_pages: false, ..PoolConfig::default() };
        let pool = Pool::new(config).map_err(|e| format!("no memory for packets: {e}"))?;
        let spec = PortSpec::new(&interface.ifname, "system", base::PortNo(1)).with("driver", "af_packet");
        let mut port = ports::open(&spec, pool).map_err(|e| format!("{}: {e}", interface.ifname))?;
        let queues = (port.take_rx_queues().pop(), port.take_tx_queues(1).pop());
        let (Some(rx), Some(tx)) = queues else { return Err("the interface has no queues".into()) };
        let waiter = Waiter::new().map_err(|e| format!("cannot wait: {e}"))?;
        if let Some(fd) = rx.wait_fd() {
            waiter.add(fd).map_err(|e| format!("cannot wait for packets: {e}"))?;
        }
        Ok(Host { port, rx, tx, waiter, cache: pool.cache() })
    }

    /// Receives what has come, up to a burst. The error is the interface's end.
    pub fn receive(&mut self, batch: &mut Batch) -> Result<(), String> {
        match self.rx.rx_burst(&mut self.cache, batch) {
            RxOutcome::Ok | RxOutcome::Refused => Ok(()),
            RxOutcome::Gone => Err("the interface is gone".into()),
        }
    }

    /// Sends a batch. What the interface has no room for is dropped.
    pub fn send(&mut self, batch: &mut Batch) {
        self.tx.tx_burst(&mut self.cache, batch);
        self.cache.free_all(batch);
        self.tx.flush(&mut self.cache);
    }

    /// Sleeps until something comes, or the time is over.
    pub fn wait(&mut self, timeout_ms: u32) {
        if self.rx.arm() {
            self.waiter.wait(timeout_ms);
        }
        self.rx.disarm();
    }

    /// Frames that went out.
    pub fn sent(&self) -> u64 {
        self.port.stats().tx_packets
    }

    /// Frames that came and found no room.
    pub fn missed(&self) -> u64 {
        self.port.stats().rx_missed_errors
    }
}
