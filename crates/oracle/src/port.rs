//! Ports in memory: tests supply the bursts to receive, and sent packets are kept. Long frames' tails are
//! lent while the worker has their burst, and the ports take such packets, as guests' do.
//!
//! Threads: the two sides meet at a lock, so the same ports serve stepped workers and workers on threads.

use base::PortNo;
use base::clock::tsc;
use packet::lent::{HEAD_BYTES, Lent, Tails};
use packet::wait::Bell;
use packet::{Batch, Packet, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue};
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a long frame that lie together in its sender's memory, behind the first [`HEAD_BYTES`].
const TAIL_PART: usize = 700;

thread_local! {
    /// A sender's buffers are held by this thread's worker.
    static IS_HELD: Cell<bool> = const { Cell::new(false) };
}

/// The test's end of a port.
pub struct Link {
    port: PortNo,
    /// It is like a guest's port.
    lends: bool,
    bursts: Mutex<VecDeque<Vec<Vec<u8>>>>,
    sent: Mutex<Vec<Vec<u8>>>,
    /// Packets that one transmit call takes at most.
    room: AtomicUsize,
    /// Packets that all transmit calls together may still take.
    places: AtomicUsize,
    /// Frames sent whose tails were copied from where their sender had them.
    straight: Mutex<Vec<Vec<u8>>>,
    /// Packets that one call takes at most while tails are lent.
    straight_max: AtomicUsize,
    /// Cycles that it takes at least to let go what transmit calls have taken.
    flush_cycles: AtomicU64,
    /// Cycles that a transmit call takes at least.
    transmit_cycles: AtomicU64,
    /// Cycles that a receive call takes at least, which refuses all that comes; 0: it does not.
    refuse_cycles: AtomicU64,
    /// The device is gone.
    is_gone: AtomicBool,
    is_found_gone: AtomicBool,
    bell: Bell,
}

impl Link {
    /// A link whose port has this number.
    pub fn new(port: PortNo) -> Arc<Link> {
        Link::of(port, true)
    }

    /// One that lends nothing, as ports of devices: the worker takes what has come without waiting for more.
    pub fn of_device(port: PortNo) -> Arc<Link> {
        Link::of(port, false)
    }

    fn of(port: PortNo, lends: bool) -> Arc<Link> {
        Arc::new(Link {
            port,
            lends,
            bursts: Mutex::default(),
            sent: Mutex::default(),
            room: AtomicUsize::new(usize::MAX),
            places: AtomicUsize::new(usize::MAX),
            straight: Mutex::default(),
            straight_max: AtomicUsize::new(usize::MAX),
            flush_cycles: AtomicU64::new(0),
            transmit_cycles: AtomicU64::new(0),
            refuse_cycles: AtomicU64::new(0),
            is_gone: AtomicBool::new(false),
            is_found_gone: AtomicBool::new(false),
            bell: Bell::new().expect("an eventfd"),
        })
    }

    /// The port to add to a datapath.
    pub fn port(self: &Arc<Self>) -> Box<dyn Port> {
        Box::new(MemoryPort { link: self.clone() })
    }

    /// Hands in frames, which are received in one burst (of [`packet::BURST`] at most).
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

    /// Takes those of the frames that were sent whose tails had never been copied into the pool.
    pub fn take_straight(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.straight.lock().expect("no panic while held"))
    }

    /// From now on a transmit call takes at most `room` packets.
    pub fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// From now on it copies at most `packets` of a burst straight, and takes the others when they are whole.
    pub fn set_straight_max(&self, packets: usize) {
        self.straight_max.store(packets, Ordering::Relaxed);
    }

    /// From now on it takes at least `cycles` to release what transmit calls have taken, as a system call
    /// does.
    pub fn set_flush_cycles(&self, cycles: u64) {
        self.flush_cycles.store(cycles, Ordering::Relaxed);
    }

    /// From now on a transmit call takes at least `cycles`, as one to memory that is far away.
    pub fn set_transmit_cycles(&self, cycles: u64) {
        self.transmit_cycles.store(cycles, Ordering::Relaxed);
    }

    /// From now on a receive call takes at least `cycles`, and refuses all packets that have come.
    pub fn set_refuse_cycles(&self, cycles: u64) {
        self.refuse_cycles.store(cycles, Ordering::Relaxed);
    }

    /// The device is gone from now on, as the worker finds out that polls the port.
    pub fn go(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Whether a worker has found out that the device is gone.
    pub fn is_found_gone(&self) -> bool {
        self.is_found_gone.load(Ordering::Relaxed)
    }

    fn outcome(&self) -> RxOutcome {
        if !self.is_gone.load(Ordering::Relaxed) {
            return RxOutcome::Ok;
        }
        self.is_found_gone.store(true, Ordering::Relaxed);
        RxOutcome::Gone
    }

    /// From now on it takes no more than `places` packets in all, and can tell whether there is room for
    /// some.
    pub fn set_places(&self, places: usize) {
        self.places.store(places, Ordering::Relaxed);
    }
}

struct MemoryPort {
    link: Arc<Link>,
}

struct Rx {
    link: Arc<Link>,
    tails: Box<Tails>,
}

struct Tx {
    link: Arc<Link>,
    /// Written, not yet published.
    written: Vec<Vec<u8>>,
}

impl RxQueue for Rx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        for frame in self.next_burst() {
            batch.push(self.packet(cache, &frame));
        }
        self.link.outcome()
    }

    fn lends(&self) -> bool {
        self.link.lends
    }

    fn rx_begin(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if self.link.refuse_cycles.load(Ordering::Relaxed) > 0 {
            take_cycles(&self.link.refuse_cycles);
            return RxOutcome::Refused;
        }
        for mut frame in self.next_burst() {
            let is_long = self.link.lends
                && frame.len() > HEAD_BYTES
                && flow::extract::head_is_enough(&frame[..HEAD_BYTES]);
            let tail = if is_long { frame.split_off(HEAD_BYTES) } else { Vec::new() };
            let mut packet = self.packet(cache, &frame);
            assert!(!is_long || self.tails.lend_owned(&mut packet, tail, TAIL_PART), "parts are few");
            batch.push(packet);
        }
        IS_HELD.set(!self.tails.is_empty());
        self.link.outcome()
    }

    fn tails(&mut self) -> Option<&mut Tails> {
        (!self.tails.is_empty()).then_some(&mut self.tails)
    }

    fn rx_end(&mut self) {
        if !self.tails.is_empty() {
            self.tails.clear();
            IS_HELD.set(false);
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.link.bell.fd())
    }

    fn arm(&mut self) -> bool {
        self.link.bell.clear();
        self.link.bursts.lock().expect("no panic while held").is_empty()
    }
}

impl Rx {
    fn next_burst(&self) -> Vec<Vec<u8>> {
        self.link.bursts.lock().expect("no panic while held").pop_front().unwrap_or_default()
    }

    fn packet(&self, cache: &mut PoolCache, bytes: &[u8]) -> Packet {
        let mut packet = cache.alloc_frame(bytes).expect("the pool is larger than what is under way");
        packet.in_port = self.link.port;
        packet
    }
}

impl TxQueue for Tx {
    fn takes_lent(&self) -> bool {
        true
    }

    fn tx_write(&mut self, batch: &[Packet], lent: &mut Lent<'_>) -> usize {
        if batch.len() > self.link.room.load(Ordering::Relaxed) {
            // One call for a burst, not two.
            return 0;
        }
        let taken = self.take(batch.len().min(self.link.straight_max.load(Ordering::Relaxed)));
        let frame = |packet: &Packet| {
            if !packet.is_lent() {
                return packet.segments().flatten().copied().collect();
            }
            let mut frame = packet.data().to_vec();
            lent.copy_straight(packet, &mut frame);
            frame
        };
        let frames: Vec<_> = batch[..taken].iter().map(frame).collect();
        let straight = batch.iter().zip(&frames).filter(|(packet, _)| packet.is_lent());
        self.link
            .straight
            .lock()
            .expect("no panic while held")
            .extend(straight.map(|(_, frame)| frame.clone()));
        self.written = frames;
        taken
    }

    fn tx_publish(&mut self) {
        assert!(!IS_HELD.get(), "seen before the sender had its buffers back");
        self.link.sent.lock().expect("no panic while held").append(&mut self.written);
    }

    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        take_cycles(&self.link.transmit_cycles);
        let taken = self.take(batch.len());
        assert!(self.written.is_empty(), "what was written is published first");
        let mut sent = self.link.sent.lock().expect("no panic while held");
        for packet in batch.drain(..taken) {
            sent.push(packet.segments().flatten().copied().collect());
            cache.free(packet);
        }
    }

    fn flush(&mut self, _cache: &mut PoolCache) {
        take_cycles(&self.link.flush_cycles);
    }

    fn has_room(&mut self, packets: usize) -> bool {
        self.link.places.load(Ordering::Relaxed) >= packets
    }
}

fn take_cycles(cycles: &AtomicU64) {
    let start = tsc();
    while tsc() - start < cycles.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

impl Tx {
    /// How many of `packets` are taken now.
    fn take(&self, packets: usize) -> usize {
        let places = self.link.places.load(Ordering::Relaxed);
        let taken = packets.min(self.link.room.load(Ordering::Relaxed)).min(places);
        if places != usize::MAX {
            self.link.places.store(places - taken, Ordering::Relaxed);
        }
        taken
    }
}

impl Port for MemoryPort {
    fn kind(&self) -> &'static str {
        "memory"
    }
    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        vec![Box::new(Rx { link: self.link.clone(), tails: Box::new(Tails::new()) })]
    }
    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let queue = |_| Box::new(Tx { link: self.link.clone(), written: Vec::new() }) as Box<dyn TxQueue>;
        (0..count).map(queue).collect()
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
    fn status(&self) -> PortStatus {
        PortStatus::up([2, 0, 0, 0, 0, 1], 1500)
    }
    fn set_admin_up(&mut self, _up: bool) -> Result<(), String> {
        Ok(())
    }
    fn set_mtu(&mut self, _mtu: u32) -> Result<(), String> {
        Err("memory has none".to_owned())
    }
}
