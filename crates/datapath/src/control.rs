//! The control thread's side of the datapath: it starts workers, adds and removes ports, reads counters, and
//! collects effects and packet-ins.
//!
//! A worker receives commands through a bounded ring and executes them between two bursts. Nothing here makes
//! a worker wait. What a worker gives up (a queue, a driver's buffers) comes back through its ring of replies
//! and is dropped here.

mod exchange;
mod figures;
mod handover;
mod held;
mod ports;
mod workers;

pub use figures::SlotTotals;
pub use workers::{WORKER_STACK_BYTES, worker_name};

use crate::action::DpAction;
use crate::awaited::{Awaited, Overdue, PATIENCE};
use crate::cache::{CacheConfig, DumpedFlow, FlowCache};
use crate::conntrack::Tracker;
use crate::conntrack::{Tracking, tuple::Tuple};
use crate::context::PacketIn;
use crate::input::{ExactTier, Input};
use crate::pipeline::Pipeline;
use crate::stats::{Drops, PortCounters, QueueLoad, WorkerStats};
use crate::transmission::TxHandle;
use crate::worker::{Clock, Command, PortQueues, Reply, Shared, SteppedWorker};
use base::hash::HashKey;
use base::rcu::Domain;
use base::slots::SlotTable;
use base::{DropReason, PortNo};
use held::Held;
use packet::thread::CpuSet;
use packet::wait::Bell;
use packet::{Packet, Pool, PoolCache, Port, PortStats, RxQueue, SharedTx, TxQueue};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Configuration of a datapath.
#[derive(Clone, Copy, Default, Debug)]
pub struct Config {
    /// Limits of each worker's caches.
    pub cache: CacheConfig,
    /// Seed of the hashes, for replays; `None` uses the operating system's random numbers.
    pub hash_seed: Option<u64>,
    /// Whether the exact-match tier is used.
    pub exact_tier: ExactTier,
    /// Whether workers do without the instructions that not all processors of this kind have. For tests.
    pub is_baseline: bool,
    /// Whether workers measure the CPU time of their longest pass (see [`WorkerStats::longest_pass_ns`]), at
    /// the cost of ten thousand system calls per second. For benchmarks.
    pub measure_passes: bool,
}

/// Why a datapath operation failed.
#[derive(Debug)]
pub enum DatapathError {
    /// The operating system refused memory, a descriptor or a thread.
    Os(std::io::Error),
    /// The port number is in use, is 0, or does not fit 16 bits.
    PortNumber(PortNo),
    /// There is no such port.
    NoPort(PortNo),
    /// There is no worker.
    NoWorker,
    /// These workers did not answer within a second: they are stuck in a driver.
    Timeout(Vec<usize>),
    /// Workers are being exchanged, and the port's queues are in transit.
    Exchanging,
}

impl std::fmt::Display for DatapathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatapathError::Os(e) if e.kind() == std::io::ErrorKind::OutOfMemory => write!(
                f,
                "{e}; the switch reserves 2 GiB of addresses and 3 GiB for each worker, and uses little of them: \
                 raise the limit of address space (ulimit -v, LimitAS= of systemd)"
            ),
            DatapathError::Os(e) => write!(f, "{e}"),
            DatapathError::PortNumber(n) => {
                write!(f, "datapath port number {n} is in use or not in 1 to 65535")
            }
            DatapathError::NoPort(n) => write!(f, "no datapath port {n}"),
            DatapathError::Exchanging => write!(f, "workers are being exchanged"),
            DatapathError::NoWorker => write!(f, "no worker is running"),
            DatapathError::Timeout(workers) => {
                let names: Vec<String> = workers.iter().map(|n| worker_name(*n)).collect();
                write!(f, "no answer within {} s from {}", PATIENCE.as_secs(), names.join(", "))
            }
        }
    }
}
impl std::error::Error for DatapathError {}
impl From<std::io::Error> for DatapathError {
    fn from(e: std::io::Error) -> Self {
        DatapathError::Os(e)
    }
}

/// What the control thread learns from the workers.
pub enum Event<E> {
    /// An effect of a translation.
    Effect(E),
    /// A packet for the controllers; free it with [`Datapath::free`].
    PacketIn(PacketIn),
    /// A port's device is gone.
    PortGone(PortNo),
}

/// A piece of a worker's flows, and where to continue; `None` at the end.
pub type FlowPiece = (Vec<DumpedFlow>, Option<u32>);

struct WorkerHandle<P: Pipeline> {
    commands: rtrb::Producer<Command>,
    replies: rtrb::Consumer<Reply>,
    effects: rtrb::Consumer<P::Effect>,
    packet_ins: rtrb::Consumer<PacketIn>,
    backlog: VecDeque<Command>,
    /// Chunks of packets that it is to execute actions on.
    handed_over: Held,
    /// Commands that were sent and whose answers, which must not be lost, have yet to come.
    unanswered: usize,
    shared: Arc<Shared>,
    stats: Arc<WorkerStats>,
    slots: Arc<SlotTable>,
    bell: Arc<Bell>,
    thread: Option<std::thread::JoinHandle<()>>,
    thread_id: Arc<std::sync::atomic::AtomicI32>,
    queues: usize,
    cpus: CpuSet,
}

struct PortEntry {
    port: Box<dyn Port>,
    /// One set per worker, past or present.
    counters: Vec<Arc<PortCounters>>,
    /// The worker of each receive queue.
    rx_queues: Vec<usize>,
    /// What each queue has cost.
    loads: Vec<Arc<QueueLoad>>,
    /// Transmit queues beyond the number of workers.
    spare_tx: Vec<Box<dyn TxQueue>>,
}

/// Ports that are being removed: the answers awaited, and what to return then.
pub struct Removal {
    tickets: Vec<u64>,
    numbers: Vec<PortNo>,
    entries: Vec<PortEntry>,
}

/// A receive queue that a worker has been asked to give up.
struct Moving {
    port: PortNo,
    idx: usize,
    /// The queue is closed on arrival. Otherwise it goes to the worker recorded for it.
    ends: bool,
}

/// A port's queues that no worker has at the moment.
struct Unassigned {
    port: PortNo,
    rx: Vec<Box<dyn RxQueue>>,
    tx: Vec<Box<dyn TxQueue>>,
}

/// A packet that waits for the end of an exchange of workers.
struct Handover {
    bridge: u32,
    packet: Packet,
    chunks: u64,
    recirc_depth: u8,
    tracked: Option<(Tracking, Tuple)>,
    actions: Vec<DpAction>,
}

/// An exchange of workers in progress, see [`exchange`].
struct Exchange {
    places: Vec<CpuSet>,
    cache: CacheConfig,
    /// How many workers keep their flows: the first ones.
    stay: usize,
    /// Those of the workers to come, made before a worker ends: there may be no room for them.
    caches: Vec<FlowCache>,
    step: Step,
    since: Instant,
}

/// How far it has got.
enum Step {
    Arriving,
    Releasing(Vec<u64>),
    Folding(u64),
    Ending,
}

/// What an ended worker has counted. The next worker with its number continues from there.
struct Retired {
    stats: Arc<WorkerStats>,
    slots: Arc<SlotTable>,
}

/// Queues that a worker has given up.
struct Released {
    worker: usize,
    queues: Vec<PortQueues>,
}

/// How many flows a worker writes at a time, between two bursts.
const FLOWS_PER_PIECE: usize = 64;

/// See the module documentation. Used by one thread at a time.
pub struct Datapath<P: Pipeline> {
    pool: &'static Pool,
    pipeline: Arc<P>,
    domain: Arc<Domain>,
    config: Config,
    tracker: Arc<Tracker>,
    clock: Clock,
    workers: Vec<WorkerHandle<P>>,
    /// Those with the highest numbers first.
    retired: Vec<Retired>,
    /// Events sent by workers that have ended.
    left: VecDeque<Event<P::Effect>>,
    released: Vec<Released>,
    /// By the tickets of their commands.
    moving: BTreeMap<u64, Moving>,
    exchange: Option<Exchange>,
    /// The ticket by which the first worker was to give up its queues for an exchange that was given up.
    late: Option<u64>,
    /// Packets for the first worker that wait until it has its outputs again, and their chunks.
    kept: VecDeque<Handover>,
    kept_chunks: Held,
    /// The workers wanted once the current exchange is over.
    workers_to_come: Option<(Vec<CpuSet>, CacheConfig)>,
    /// Queues of ports added meanwhile.
    newcomers: Vec<Unassigned>,
    awaited: Awaited,
    ports: BTreeMap<PortNo, PortEntry>,
    cache: PoolCache,
    event_bell: Arc<Bell>,
    folds: u64,
    gone: VecDeque<PortNo>,
    /// Requested pieces of flows, by ticket; `None` until the worker has answered.
    dumped: BTreeMap<u64, Option<FlowPiece>>,
    /// What drivers of removed ports had dropped, by name of the reason.
    dropped_by_gone: BTreeMap<&'static str, u64>,
    /// What no worker got.
    dropped_here: Drops,
    slots_reserved: u32,
    never_sleeps: bool,
}

impl<P: Pipeline> Datapath<P> {
    /// A datapath without workers and ports. The pipeline frees memory through `domain`.
    pub fn new(
        pool: &'static Pool,
        pipeline: Arc<P>,
        domain: Arc<Domain>,
        config: Config,
    ) -> Result<Datapath<P>, DatapathError> {
        let secret = config.hash_seed.map_or_else(HashKey::random, HashKey::from_seed);
        Ok(Datapath {
            tracker: Arc::new(Tracker::with_secret(secret)?),
            pool,
            pipeline,
            domain,
            config,
            clock: Clock::start(),
            workers: Vec::new(),
            retired: Vec::new(),
            left: VecDeque::new(),
            released: Vec::new(),
            moving: BTreeMap::new(),
            exchange: None,
            late: None,
            kept: VecDeque::new(),
            kept_chunks: Held::default(),
            workers_to_come: None,
            newcomers: Vec::new(),
            awaited: Awaited::default(),
            ports: BTreeMap::new(),
            cache: pool.cache(),
            event_bell: Arc::new(Bell::new()?),
            folds: 0,
            gone: VecDeque::new(),
            dumped: BTreeMap::new(),
            dropped_by_gone: BTreeMap::new(),
            dropped_here: Drops::default(),
            slots_reserved: 0,
            never_sleeps: false,
        })
    }

    /// The connection tracker.
    pub fn tracker(&self) -> &Arc<Tracker> {
        &self.tracker
    }

    /// The packet pool.
    pub fn pool(&self) -> &'static Pool {
        self.pool
    }

    /// The datapath's clock, in milliseconds; it starts at [`Clock::START_MS`].
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Rung when events may be waiting, and when a worker has completed a requested fold.
    pub fn event_bell(&self) -> &Arc<Bell> {
        &self.event_bell
    }

    /// Takes waiting events, some `max` at most, in equal shares from all workers.
    pub fn events(&mut self, max: usize) -> Vec<Event<P::Effect>> {
        self.event_bell.clear();
        self.collect();
        let mut events: Vec<_> = self.gone.drain(..).map(Event::PortGone).collect();
        events.extend(self.left.drain(..));
        // As many from each ring, so that no worker keeps another waiting.
        let each = max.div_ceil(2 * self.workers.len().max(1));
        for w in &mut self.workers {
            events.extend(std::iter::from_fn(|| w.effects.pop().ok()).take(each).map(Event::Effect));
            events.extend(std::iter::from_fn(|| w.packet_ins.pop().ok()).take(each).map(Event::PacketIn));
        }
        events
    }

    /// Whether more are waiting.
    pub fn has_events(&self) -> bool {
        self.workers.iter().any(|w| !w.effects.is_empty() || !w.packet_ins.is_empty())
    }

    /// Returns a packet that came with an event.
    pub fn free(&mut self, packet: Packet) {
        self.cache.free(packet);
    }

    /// The control thread's buffers.
    pub fn cache(&mut self) -> &mut PoolCache {
        &mut self.cache
    }

    // ---- commands

    /// Forgets all cached flows. For `dpctl/del-flows` and `revalidator/purge`.
    pub fn flush_flows(&mut self) {
        for n in 0..self.workers.len() {
            self.send(n, Command::Flush);
        }
    }

    /// Requests some of a worker's megaflows, starting at a position, 0 at first: see [`Self::take_flows`].
    /// `None` if there is no such worker.
    pub fn request_flows(&mut self, worker: usize, from: u32) -> Option<u64> {
        if worker >= self.workers.len() {
            return None;
        }
        let out = Vec::with_capacity(FLOWS_PER_PIECE);
        let ticket = self.ask(worker, "flows", |ticket| Command::Dump { ticket, from, out });
        self.dumped.insert(ticket, None);
        Some(ticket)
    }

    /// The worker's answer, if it has arrived.
    pub fn take_flows(&mut self, ticket: u64) -> Option<FlowPiece> {
        self.collect();
        let piece = self.dumped.get_mut(&ticket)?.take()?;
        self.dumped.remove(&ticket);
        Some(piece)
    }

    /// Discards the answer: the caller no longer needs it.
    pub fn forget_flows(&mut self, ticket: u64) {
        self.dumped.remove(&ticket);
    }

    /// Workers that have not answered a command for a second, each command reported once.
    pub fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        self.collect();
        self.awaited.overdue(now)
    }

    /// Sends a command that expects an answer, and returns the ticket that both carry.
    fn ask(&mut self, n: usize, what: &'static str, command: impl FnOnce(u64) -> Command) -> u64 {
        let ticket = self.awaited.ask(n, what, Instant::now());
        self.send(n, command(ticket));
        ticket
    }

    fn send(&mut self, n: usize, command: Command) {
        let w = &mut self.workers[n];
        w.backlog.push_back(command);
        w.push_backlog();
        w.bell.ring();
    }

    /// Processes replies, and sends commands for which there was no room before.
    fn collect(&mut self) {
        let (mut arrived, mut late, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (n, w) in self.workers.iter_mut().enumerate() {
            while let Ok(reply) = w.replies.pop() {
                w.unanswered -= usize::from(!matches!(reply, Reply::Gone(_) | Reply::Spent(..)));
                match reply {
                    Reply::ReleasedRx { ticket, queue } => {
                        self.awaited.answered(ticket);
                        let Some(moving) = self.moving.remove(&ticket) else { continue };
                        match queue {
                            Some(queue) => arrived.push((moving, queue)),
                            None if moving.ends => ended.push((moving.port, moving.idx)),
                            None => {}
                        }
                    }
                    Reply::Released { ticket, queues } => {
                        self.awaited.answered(ticket);
                        let list = if self.exchange.is_some() { &mut self.released } else { &mut late };
                        list.push(Released { worker: n, queues });
                    }
                    Reply::Removed { ticket, rx, tx } => {
                        drop((rx, tx));
                        self.awaited.answered(ticket);
                    }
                    Reply::Dump { ticket, flows, next } => {
                        self.awaited.answered(ticket);
                        if let Some(awaited) = self.dumped.get_mut(&ticket) {
                            *awaited = Some((flows, next));
                        }
                    }
                    Reply::Gone(port) => self.gone.push_back(port),
                    Reply::Spent(input, actions) => drop((input, actions)),
                }
            }
            if !w.backlog.is_empty() {
                w.push_backlog();
                w.bell.ring();
            }
        }
        for (Moving { port, idx, ends }, queue) in arrived {
            if ends { self.close_queues([queue], None) } else { self.arrived(port, idx, queue) }
        }
        // The exchange that wanted them has been given up.
        for mut released in late {
            for queues in &mut released.queues {
                let is_ended = |idx: &usize| ended.contains(&(queues.port, *idx));
                let over: Vec<_> = queues.rx.extract_if(.., |(idx, _)| is_ended(idx)).collect();
                self.close_queues(over.into_iter().map(|(_, queue)| queue), None);
            }
            self.give_back(released);
        }
        self.hand_over_kept();
    }

    /// Waits for answers to commands, at most [`PATIENCE`].
    fn wait_for(&mut self, tickets: &[u64]) -> Result<(), DatapathError> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.collect();
            if self.awaited.have_answered(tickets) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(DatapathError::Timeout(self.awaited.who_is_to_answer(tickets)));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl<P: Pipeline> Drop for Datapath<P> {
    fn drop(&mut self) {
        self.drop_kept();
        for n in 0..self.workers.len() {
            self.send(n, Command::Stop);
        }
        let end = Instant::now() + PATIENCE;
        while !self.workers.iter().all(WorkerHandle::has_ended) && Instant::now() < end {
            // The command to stop may wait for answers to others.
            self.collect();
            std::thread::sleep(Duration::from_millis(1));
        }
        for n in 0..self.workers.len() {
            let w = &mut self.workers[n];
            if !w.has_ended() {
                // The end of the process takes care of it. Removing the ports first tells the caller which
                // worker is stuck.
                continue;
            }
            // A worker that panicked has already said so on stderr.
            let _ = w.thread.take().map(std::thread::JoinHandle::join);
            while let Ok(packet_in) = w.packet_ins.pop() {
                self.cache.free(packet_in.packet);
            }
            let backlog = std::mem::take(&mut w.backlog);
            self.drop_unsent(backlog);
        }
    }
}
