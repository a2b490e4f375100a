//! A port that floods: frames at full speed from memory, of a given number of flows or ever new ones, and a
//! sink. Nothing in it allocates once it is made, so that what is counted is the worker's.

use base::PortNo;
use packet::{Batch, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes of an untagged IPv4 frame that tell flows apart: the source address.
const SOURCE_AT: usize = 26;

/// The test's end of a port that floods.
#[derive(Default)]
pub struct Flood {
    /// Bursts that are still to be received.
    bursts: AtomicU64,
    /// Packets received so far.
    received: AtomicU64,
    /// Packets sent so far.
    sent: AtomicU64,
    /// Number of flows.
    flows: AtomicU64,
}

impl Flood {
    /// A port that has `flows` flows, which differ from `frame` (untagged IPv4) in their source addresses.
    /// `u64::MAX` for flows that never come again.
    pub fn new(no: PortNo, frame: Vec<u8>, flows: u64) -> (Arc<Flood>, Box<dyn Port>) {
        let flood = Arc::new(Flood { flows: AtomicU64::new(flows), ..Flood::default() });
        let port = FloodPort { no, frame, flood: flood.clone() };
        (flood, Box::new(port))
    }

    /// So many bursts come in from now on.
    pub fn set_bursts(&self, bursts: u64) {
        self.bursts.store(bursts, Relaxed);
    }

    /// Sets the number of flows from now on.
    pub fn set_flows(&self, flows: u64) {
        self.flows.store(flows, Relaxed);
    }

    /// Bursts that were asked for and have not come in yet.
    pub fn bursts_left(&self) -> u64 {
        self.bursts.load(Relaxed)
    }

    /// Packets received at this port.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Packets sent out of this port.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
}

struct FloodPort {
    no: PortNo,
    frame: Vec<u8>,
    flood: Arc<Flood>,
}

struct Rx {
    no: PortNo,
    frame: Vec<u8>,
    flood: Arc<Flood>,
}

struct Tx(Arc<Flood>);

impl RxQueue for Rx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        let left = self.flood.bursts.load(Relaxed);
        if left == 0 {
            return RxOutcome::Ok;
        }
        self.flood.bursts.store(left - 1, Relaxed);
        let mut number = self.flood.received.load(Relaxed);
        let flows = self.flood.flows.load(Relaxed);
        while !batch.is_full() {
            let mut packet = cache.alloc().expect("the pool is larger than what is under way");
            packet.fill(&self.frame).expect("frames fit a chunk");
            let source = 0x0b00_0000 + (number % flows) as u32;
            packet.data_mut()[SOURCE_AT..SOURCE_AT + 4].copy_from_slice(&source.to_be_bytes());
            packet.in_port = self.no;
            batch.push(packet);
            number += 1;
        }
        self.flood.received.store(number, Relaxed);
        RxOutcome::Ok
    }
}

impl TxQueue for Tx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        self.0.sent.fetch_add(batch.len() as u64, Relaxed);
        cache.free_all(batch);
    }
}

impl Port for FloodPort {
    fn kind(&self) -> &'static str {
        "flood"
    }
    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        let (frame, flood) = (std::mem::take(&mut self.frame), self.flood.clone());
        vec![Box::new(Rx { no: self.no, frame, flood })]
    }
    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        (0..count).map(|_| Box::new(Tx(self.flood.clone())) as Box<dyn TxQueue>).collect()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn status(&self) -> PortStatus {
        PortStatus::up([2, 0, 0, 0, 0, 2], 1500)
    }
    fn set_admin_up(&mut self, _up: bool) -> Result<(), String> {
        Ok(())
    }
    fn set_mtu(&mut self, _mtu: u32) -> Result<(), String> {
        Err("memory has none".to_owned())
    }
}
