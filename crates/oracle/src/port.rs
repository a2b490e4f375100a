//! Ports in memory: bursts are handed in as they are to be received, and what is sent is kept.
//!
//! Threads: the two sides meet at a lock, so the same ports serve stepped workers and workers on threads.

use base::PortNo;
use packet::wait::Bell;
use packet::{Batch, LinkState, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The test's end of a port.
pub struct Link {
    port: PortNo,
    bursts: Mutex<VecDeque<Vec<Vec<u8>>>>,
    sent: Mutex<Vec<Vec<u8>>>,
    /// Packets that one transmit call takes at most.
    room: AtomicUsize,
    /// Packets that all transmit calls together may still take.
    places: AtomicUsize,
    bell: Bell,
}

impl Link {
    /// A link whose port has this number.
    pub fn new(port: PortNo) -> Arc<Link> {
        Arc::new(Link {
            port,
            bursts: Mutex::default(),
            sent: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            places: AtomicUsize::new(usize::MAX),
            bell: Bell::new().expect("an eventfd"),
        })
    }

    /// The port to add to a datapath.
    pub fn port(self: &Arc<Self>) -> Box<dyn Port> {
        Box::new(MemoryPort { link: self.clone() })
    }

    /// Hands in frames, which are received in one burst (of 32 at most).
    pub fn receive(&self, burst: Vec<Vec<u8>>) {
        assert!(burst.len() <= packet::BURST);
        self.bursts.lock().expect("no panic while held").push_back(burst);
        self.bell.ring();
    }

    /// Whether a worker has taken all that was handed in.
    pub fn is_received(&self) -> bool {
        self.bursts.lock().expect("no panic while held").is_empty()
    }

    /// Takes the frames that were sent.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent.lock().expect("no panic while held"))
    }

    /// From now on a transmit call takes at most `room` packets.
    pub fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// From now on it takes no more than `places` packets in all, and can tell whether there is room for some.
    pub fn set_places(&self, places: usize) {
        self.places.store(places, Ordering::Relaxed);
    }
}

struct MemoryPort {
    link: Arc<Link>,
}

struct Rx(Arc<Link>);
struct Tx(Arc<Link>);

impl RxQueue for Rx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        let Some(burst) = self.0.bursts.lock().expect("no panic while held").pop_front() else {
            return RxOutcome::Ok;
        };
        for frame in burst {
            let mut packet = cache.alloc().expect("the pool is larger than what is under way");
            packet.fill(&frame).expect("frames fit a chunk");
            packet.in_port = self.0.port;
            batch.push(packet);
        }
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.0.bell.fd())
    }

    fn arm(&mut self) -> bool {
        self.0.bell.clear();
        self.0.bursts.lock().expect("no panic while held").is_empty()
    }
}

impl TxQueue for Tx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let places = self.0.places.load(Ordering::Relaxed);
        let taken = batch.len().min(self.0.room.load(Ordering::Relaxed)).min(places);
        if places != usize::MAX {
            self.0.places.store(places - taken, Ordering::Relaxed);
        }
        let mut sent = self.0.sent.lock().expect("no panic while held");
        for packet in batch.drain(..taken) {
            sent.push(packet.segments().flatten().copied().collect());
            cache.free(packet);
        }
    }

    fn has_room(&mut self, packets: usize) -> bool {
        self.0.places.load(Ordering::Relaxed) >= packets
    }
}

impl Port for MemoryPort {
    fn kind(&self) -> &'static str {
        "memory"
    }
    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        vec![Box::new(Rx(self.link.clone()))]
    }
    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        (0..count).map(|_| Box::new(Tx(self.link.clone())) as Box<dyn TxQueue>).collect()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn status(&self) -> PortStatus {
        PortStatus {
            link: LinkState::Up,
            admin_up: true,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            speed_bps: 0,
            ifindex: 0,
            details: Vec::new(),
            error: None,
        }
    }
    fn set_admin_up(&mut self, _up: bool) -> Result<(), String> {
        Ok(())
    }
    fn set_mtu(&mut self, _mtu: u32) -> Result<(), String> {
        Err("memory has none".to_owned())
    }
}
