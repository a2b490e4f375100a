//! The control thread's side of the datapath: workers started, ports added and removed, counters read,
//! effects and packet-ins collected.
//!
//! Commands go to a worker through a bounded ring and are carried out between two bursts. Nothing here makes a worker wait.
//! What a worker gives up (a queue, a driver's buffers) comes back through its ring of replies and is dropped here.

use crate::action::DpAction;
use crate::awaited::{Awaited, Overdue, PATIENCE};
use crate::cache::{CacheConfig, DumpedFlow, FlowCache};
use crate::context::{Context, PacketIn};
use crate::pipeline::Pipeline;
use crate::process::Process;
use crate::stats::{PortCounters, QueueLoad, WorkerStats};
use crate::transmission::TxHandle;
use crate::tuner::ExactTier;
use crate::worker::{Clock, Command, Reply, Shared, SteppedWorker, Worker};
use base::hash::HashKey;
use base::rcu::Domain;
use base::slots::SlotTable;
use base::{DropReason, PortNo};
use packet::thread::CpuSet;
use packet::wait::{Bell, Waiter};
use packet::{Pool, PoolCache, Port, PortStats, RxQueue, SharedTx, TxQueue};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Effects that a worker can have under way.
const EFFECTS_RING: usize = 4096;
/// Packet-ins that a worker can have under way.
const PACKET_INS_RING: usize = 1024;
/// Commands that a worker can have under way, and their answers.
const COMMANDS_RING: usize = 4096;

/// What a datapath shall be.
#[derive(Clone, Copy, Default, Debug)]
pub struct Config {
    /// Limits of each worker's caches.
    pub cache: CacheConfig,
    /// Seed of the hashes; `None` takes the operating system's randomness. For replays.
    pub hash_seed: Option<u64>,
    /// Who decides whether the exact-match tier is used.
    pub exact_tier: ExactTier,
    /// Whether workers measure the CPU time of their longest pass (see [`WorkerStats::longest_pass_ns`]): ten thousand
    /// system calls per second. For benchmarks.
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
    /// Workers did not answer within a second: they are stuck in a driver. Their numbers.
    Timeout(Vec<usize>),
}

impl std::fmt::Display for DatapathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatapathError::Os(e) => write!(f, "{e}"),
            DatapathError::PortNumber(n) => {
                write!(f, "datapath port number {n} is in use or not in 1 to 65535")
            }
            DatapathError::NoPort(n) => write!(f, "no datapath port {n}"),
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

/// Totals of a counter slot over all workers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SlotTotals {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time of the last use on the datapath's clock, 0 for never.
    pub last_used_ms: u64,
}

/// A piece of a worker's flows, and where to go on; `None` at the end.
pub type FlowPiece = (Vec<DumpedFlow>, Option<u32>);

struct WorkerHandle<P: Pipeline> {
    commands: rtrb::Producer<Command>,
    replies: rtrb::Consumer<Reply>,
    effects: rtrb::Consumer<P::Effect>,
    packet_ins: rtrb::Consumer<PacketIn>,
    backlog: VecDeque<Command>,
    shared: Arc<Shared>,
    stats: Arc<WorkerStats>,
    slots: Arc<SlotTable>,
    bell: Arc<Bell>,
    thread: Option<std::thread::JoinHandle<()>>,
    thread_id: Arc<std::sync::atomic::AtomicI32>,
    queues: usize,
    cpus: CpuSet,
}

impl<P: Pipeline> WorkerHandle<P> {
    /// Its thread's id. Where the thread does not run yet, that is waited for: the system starts it in a moment.
    fn started(&self) -> i32 {
        loop {
            match self.thread_id.load(std::sync::atomic::Ordering::Acquire) {
                0 => std::thread::yield_now(),
                id => return id,
            }
        }
    }
}

struct PortEntry {
    port: Box<dyn Port>,
    /// One set per worker that there is or was.
    counters: Vec<Arc<PortCounters>>,
    /// The worker of each receive queue.
    rx_queues: Vec<usize>,
    /// What each has cost.
    loads: Vec<Arc<QueueLoad>>,
    /// Transmit queues beyond the number of workers.
    spare_tx: Vec<Box<dyn TxQueue>>,
}

/// Ports that leave: what is waited for, and what is given back then.
pub struct Removal {
    tickets: Vec<u64>,
    entries: Vec<PortEntry>,
}

/// What a worker that ended has counted. The next worker of its number counts on.
struct Retired {
    stats: Arc<WorkerStats>,
    slots: Arc<SlotTable>,
}

/// A port's queues, given up by a worker.
struct Released {
    worker: usize,
    port: PortNo,
    rx: VecDeque<Box<dyn packet::RxQueue>>,
    tx: Option<TxHandle>,
}

/// A driver's count of the packets that it dropped for one reason.
type DriverDrops = fn(&PortStats) -> u64;

/// Reasons for which drivers drop: packets that no worker sees any more, or yet.
const BY_DRIVERS: [(DropReason, DriverDrops); 7] = [
    // What has a counter of its own is counted as dropped too.
    (DropReason::TxError, |s| {
        s.tx_dropped.saturating_sub(s.tx_mtu_drops + s.tx_quota_drops + s.tx_down_drops)
    }),
    (DropReason::TxPortDown, |s| s.tx_down_drops),
    (DropReason::TxMtuExceeded, |s| s.tx_mtu_drops),
    (DropReason::TxQuota, |s| s.tx_quota_drops),
    (DropReason::RxDropped, |s| s.rx_dropped.saturating_sub(s.rx_gso_size_drops + s.rx_gso_segments_drops)),
    (DropReason::RxGsoSize, |s| s.rx_gso_size_drops),
    (DropReason::RxGsoSegments, |s| s.rx_gso_segments_drops),
];

/// A driver's count of packets dropped for a reason. Only where drivers have one are they asked.
fn dropped_by_driver(port: &dyn Port, reason: DropReason) -> u64 {
    BY_DRIVERS.iter().find(|(by, _)| *by == reason).map_or(0, |(_, of)| of(&port.stats()))
}

/// Flows that a worker writes down at once, between two bursts.
const FLOWS_PER_PIECE: usize = 64;
/// Slots that are kept ready beyond those given out.
const SLOTS_AHEAD: u32 = 4096;

/// See the module's text. One thread at a time uses it.
pub struct Datapath<P: Pipeline> {
    pool: &'static Pool,
    pipeline: Arc<P>,
    domain: Arc<Domain>,
    config: Config,
    clock: Clock,
    workers: Vec<WorkerHandle<P>>,
    /// Those of the highest numbers first.
    retired: Vec<Retired>,
    /// What ended workers had sent.
    left: VecDeque<Event<P::Effect>>,
    released: Vec<Released>,
    /// The one queue that was last asked for.
    released_rx: Option<Option<Box<dyn RxQueue>>>,
    /// The command whose answer is waited for there.
    awaited_rx: Option<u64>,
    awaited: Awaited,
    ports: BTreeMap<PortNo, PortEntry>,
    cache: PoolCache,
    event_bell: Arc<Bell>,
    folds: u64,
    gone: VecDeque<PortNo>,
    /// Pieces of flows that were asked for, by ticket; `None` until the worker has answered.
    dumped: BTreeMap<u64, Option<FlowPiece>>,
    /// What drivers of ports that are gone had dropped, by the reasons' names.
    dropped_by_gone: BTreeMap<&'static str, u64>,
    slots_reserved: u32,
}

impl<P: Pipeline> Datapath<P> {
    /// A datapath without workers and ports. `domain` is the one in which the pipeline defers what it frees.
    pub fn new(
        pool: &'static Pool,
        pipeline: Arc<P>,
        domain: Arc<Domain>,
        config: Config,
    ) -> Result<Datapath<P>, DatapathError> {
        Ok(Datapath {
            pool,
            pipeline,
            domain,
            config,
            clock: Clock::start(),
            workers: Vec::new(),
            retired: Vec::new(),
            left: VecDeque::new(),
            released: Vec::new(),
            released_rx: None,
            awaited_rx: None,
            awaited: Awaited::default(),
            ports: BTreeMap::new(),
            cache: pool.cache(),
            event_bell: Arc::new(Bell::new()?),
            folds: 0,
            gone: VecDeque::new(),
            dumped: BTreeMap::new(),
            dropped_by_gone: BTreeMap::new(),
            slots_reserved: 0,
        })
    }

    /// Starts a worker, pinned to a processor or not. Start workers before ports: queues are given to the workers
    /// that there are.
    pub fn start_worker(&mut self, cpu: Option<usize>) -> Result<usize, DatapathError> {
        self.start_worker_on(CpuSet::from(cpu))
    }

    /// The same, on any of these processors.
    pub fn start_worker_on(&mut self, cpus: CpuSet) -> Result<usize, DatapathError> {
        let n = self.workers.len();
        let (worker, mut handle) = self.make_worker()?;
        let its_id = handle.thread_id.clone();
        handle.cpus = cpus.clone();
        handle.thread = Some(std::thread::Builder::new().name(worker_name(n)).spawn(move || {
            // Before anybody can bind it elsewhere.
            if cpus != CpuSet::all() {
                packet::thread::bind(0, &cpus);
            }
            its_id.store(packet::thread::id(), std::sync::atomic::Ordering::Release);
            worker.run();
        })?);
        self.workers.push(handle);
        Ok(n)
    }

    /// Adds a worker whose turns the caller takes, see [`SteppedWorker`]. What waits for workers ([`Self::remove_port`],
    /// [`Self::fold`], [`Self::dump_flows`]) would wait in vain for it.
    pub fn stepped_worker(&mut self) -> Result<SteppedWorker<P>, DatapathError> {
        let (worker, handle) = self.make_worker()?;
        self.workers.push(handle);
        Ok(SteppedWorker::new(worker))
    }

    fn make_worker(&mut self) -> Result<(Worker<P>, WorkerHandle<P>), DatapathError> {
        let (commands, commands_rx) = rtrb::RingBuffer::new(COMMANDS_RING);
        let (replies_tx, replies) = rtrb::RingBuffer::new(COMMANDS_RING + 256);
        let (effects_tx, effects) = rtrb::RingBuffer::new(EFFECTS_RING);
        let (packet_ins_tx, packet_ins) = rtrb::RingBuffer::new(PACKET_INS_RING);
        let Retired { stats, slots } =
            self.retired.pop().unwrap_or_else(|| Retired { stats: Arc::default(), slots: Arc::default() });
        slots.reserve(self.slots_reserved);
        let shared = Arc::new(Shared::default());
        let secret = self.config.hash_seed.map_or_else(HashKey::random, HashKey::from_seed);
        let cache = FlowCache::new(self.config.cache, secret)?;
        let out = Context::new(self.pool.cache(), stats.clone(), packet_ins_tx, self.event_bell.clone());
        let mut process = Process::new(
            self.pipeline.clone(),
            self.domain.register(),
            cache,
            slots.clone(),
            out,
            effects_tx,
            self.event_bell.clone(),
        );
        process.exact_tier = self.config.exact_tier;
        let waiter = Waiter::new()?;
        let mut worker = Worker::new(process, commands_rx, replies_tx, shared.clone(), waiter, self.clock);
        worker.measures_passes = self.config.measure_passes;
        let handle = WorkerHandle {
            commands,
            replies,
            effects,
            packet_ins,
            backlog: VecDeque::new(),
            shared,
            stats,
            slots,
            bell: worker.bell(),
            thread: None,
            thread_id: Arc::default(),
            queues: 0,
            cpus: CpuSet::all(),
        };
        Ok((worker, handle))
    }

    /// Adds a port under a number. Its receive queues go to the workers with the fewest; each worker gets a transmit
    /// queue, shared where the port has too few. In force when the workers have taken their next turn.
    pub fn add_port(&mut self, no: PortNo, mut port: Box<dyn Port>) -> Result<(), DatapathError> {
        if no.0 == 0 || no.0 > 0xffff || self.ports.contains_key(&no) {
            return Err(DatapathError::PortNumber(no));
        }
        if self.workers.is_empty() {
            return Err(DatapathError::NoWorker);
        }
        let (tx, rx) = (port.take_tx_queues(self.workers.len()), port.take_rx_queues());
        let entry = PortEntry {
            port,
            counters: Vec::new(),
            rx_queues: Vec::new(),
            loads: Vec::new(),
            spare_tx: Vec::new(),
        };
        self.ports.insert(no, entry);
        self.give_queues(no, rx, tx);
        Ok(())
    }

    /// Gives a port's queues to the workers.
    fn give_queues(
        &mut self,
        no: PortNo,
        rx: Vec<Box<dyn packet::RxQueue>>,
        mut tx: Vec<Box<dyn packet::TxQueue>>,
    ) {
        let workers = self.workers.len();
        let Some(entry) = self.ports.get_mut(&no) else { return };
        entry.counters.resize_with(entry.counters.len().max(workers), Arc::default);
        let counters = entry.counters.clone();
        entry.spare_tx = tx.split_off(tx.len().min(workers));
        for (n, handle) in tx_handles(tx, workers).into_iter().enumerate() {
            self.send(n, Command::AddTx { port: no, handle, counters: counters[n].clone() });
        }
        self.assign(no, rx);
    }

    /// Gives each queue to the worker with the fewest.
    fn assign(&mut self, no: PortNo, queues: Vec<Box<dyn RxQueue>>) {
        for queue in queues {
            let fewest = (0..self.workers.len()).min_by_key(|&n| self.workers[n].queues);
            let n = fewest.expect("ports are added where there are workers");
            self.workers[n].queues += 1;
            let entry = self.ports.get_mut(&no).expect("its queues are being added");
            let idx = entry.rx_queues.len();
            entry.rx_queues.push(n);
            // A queue that changes hands with its worker counts on.
            entry.loads.resize_with(entry.loads.len().max(idx + 1), Arc::default);
            let load = entry.loads[idx].clone();
            self.send(n, Command::AddRx { port: no, idx, queue, load });
        }
    }

    /// Takes up receive queues that a port has got since it was added, and gives up those that it has lost: a guest decides how many it
    /// uses. Returns how many there are now.
    pub fn adopt_queues(&mut self, no: PortNo) -> usize {
        let Some(entry) = self.ports.get_mut(&no) else { return 0 };
        for _ in 0..entry.port.give_up_rx_queues() {
            self.drop_last_rx(no);
        }
        let Some(entry) = self.ports.get_mut(&no) else { return 0 };
        let queues = entry.port.take_rx_queues();
        self.assign(no, queues);
        self.rx_workers(no).len()
    }

    /// Has the last of a port's receive queues polled by nobody.
    fn drop_last_rx(&mut self, no: PortNo) {
        let Some(entry) = self.ports.get_mut(&no) else { return };
        let Some(worker) = entry.rx_queues.pop() else { return };
        let idx = entry.rx_queues.len();
        self.workers[worker].queues -= 1;
        // Where the worker does not answer in time, its late answer finds nobody who polls the queue, and ends it then.
        drop(self.release_rx(worker, no, idx));
    }

    /// Takes a receive queue out of a worker; `None` where the worker does not have it.
    fn release_rx(
        &mut self,
        worker: usize,
        port: PortNo,
        idx: usize,
    ) -> Result<Option<Box<dyn RxQueue>>, DatapathError> {
        let ticket = self.ask(worker, "a queue", |ticket| Command::ReleaseRx { port, idx, ticket });
        (self.awaited_rx, self.released_rx) = (Some(ticket), None);
        let waited = self.wait_for(&[ticket]);
        self.awaited_rx = None;
        waited.map(|()| self.released_rx.take().flatten())
    }

    /// What each of the port's receive queues has cost, in their order.
    pub fn rx_loads(&self, no: PortNo) -> &[Arc<QueueLoad>] {
        self.ports.get(&no).map_or(&[], |e| &e.loads)
    }

    /// Has a port's receive queue polled by another worker from now on. What the one has received it has sent before it gives
    /// the queue up, so no packet is lost and none overtakes another of its flow; what comes meanwhile waits in the device.
    pub fn move_queue(&mut self, no: PortNo, idx: usize, worker: usize) -> Result<(), DatapathError> {
        let entry = self.ports.get(&no).ok_or(DatapathError::NoPort(no))?;
        let (Some(&from), true) = (entry.rx_queues.get(idx), worker < self.workers.len()) else {
            return Err(DatapathError::NoWorker);
        };
        if from == worker {
            return Ok(());
        }
        let Some(queue) = self.release_rx(from, no, idx)? else { return Ok(()) };
        let entry = self.ports.get_mut(&no).ok_or(DatapathError::NoPort(no))?;
        entry.rx_queues[idx] = worker;
        let load = entry.loads[idx].clone();
        self.workers[from].queues -= 1;
        self.workers[worker].queues += 1;
        self.send(worker, Command::AddRx { port: no, idx, queue, load });
        Ok(())
    }

    /// From now on there is one worker per element, each on these processors, with caches of these limits. Ports stay; their packets wait in the devices while queues change hands. Workers that stay keep their
    /// flows, unless the limits change; what those that end have counted stays counted. At least one worker.
    pub fn set_workers(&mut self, places: &[CpuSet], cache: CacheConfig) -> Result<(), DatapathError> {
        if places.is_empty() {
            return Err(DatapathError::NoWorker);
        }
        let stay = if cache == self.config.cache { self.workers.len().min(places.len()) } else { 0 };
        self.config.cache = cache;
        if stay < self.workers.len() || stay < places.len() {
            self.exchange_workers(stay, places)?;
        }
        for (worker, place) in self.workers.iter_mut().zip(places) {
            if worker.cpus == *place {
                continue;
            }
            worker.cpus = place.clone();
            if worker.thread.is_some() {
                packet::thread::bind(worker.started(), place);
            }
        }
        Ok(())
    }

    fn exchange_workers(&mut self, stay: usize, places: &[CpuSet]) -> Result<(), DatapathError> {
        // 1. All queues come back.
        let ports: Vec<PortNo> = self.ports.keys().copied().collect();
        let mut tickets = Vec::new();
        for &port in &ports {
            for n in 0..self.workers.len() {
                tickets.push(self.ask(n, "a port's queues", |ticket| Command::ReleasePort { port, ticket }));
            }
        }
        self.wait_for(&tickets)?;
        // 2. Who is not to stay ends, its counters folded.
        self.fold(Duration::from_secs(1));
        while self.workers.len() > stay {
            self.end_last_worker();
        }
        self.workers.iter_mut().for_each(|w| w.queues = 0);
        for place in &places[stay..] {
            self.start_worker_on(place.clone())?;
        }
        // 3. Queues go out again.
        let mut released: BTreeMap<PortNo, Vec<Released>> = BTreeMap::new();
        for r in self.released.drain(..) {
            released.entry(r.port).or_default().push(r);
        }
        for (no, mut by_worker) in released {
            let Some(entry) = self.ports.get_mut(&no) else { continue };
            let order = std::mem::take(&mut entry.rx_queues);
            let mut next = |n: usize| by_worker.iter_mut().find(|r| r.worker == n)?.rx.pop_front();
            let rx = order.into_iter().filter_map(&mut next).collect();
            let mut tx: Vec<_> = by_worker.into_iter().filter_map(|r| r.tx?.into_queue()).collect();
            tx.append(&mut entry.spare_tx);
            self.give_queues(no, rx, tx);
        }
        Ok(())
    }

    fn end_last_worker(&mut self) {
        let n = self.workers.len() - 1;
        self.send(n, Command::Stop);
        let Some(mut w) = self.workers.pop() else { return };
        self.awaited.ended(n);
        while !w.backlog.is_empty() {
            w.push_backlog();
            std::thread::sleep(Duration::from_millis(1));
        }
        // A worker that panicked has already said so on stderr.
        let _ = w.thread.take().map(std::thread::JoinHandle::join);
        while let Ok(effect) = w.effects.pop() {
            self.left.push_back(Event::Effect(effect));
        }
        while let Ok(packet_in) = w.packet_ins.pop() {
            self.left.push_back(Event::PacketIn(packet_in));
        }
        self.retired.push(Retired { stats: w.stats, slots: w.slots });
    }

    /// Takes a port away from all workers, see [`Self::remove_ports`].
    pub fn remove_port(&mut self, no: PortNo) -> Result<Box<dyn Port>, DatapathError> {
        let mut removed = self.remove_ports(&[no])?;
        removed.pop().ok_or(DatapathError::NoPort(no))
    }

    /// Takes ports away from all workers, and gives them back in their order; dropping one removes what it made in the kernel.
    /// Waits until every worker has given up their queues: for many ports no longer than for one.
    pub fn remove_ports(&mut self, numbers: &[PortNo]) -> Result<Vec<Box<dyn Port>>, DatapathError> {
        let removal = self.begin_removal(numbers)?;
        self.wait_for(&removal.tickets)?;
        Ok(self.finish_removal(removal).unwrap_or_else(|_| unreachable!("all have answered")))
    }

    /// Has all workers give up the queues of ports, which are ports no longer. See [`Self::finish_removal`].
    pub fn begin_removal(&mut self, numbers: &[PortNo]) -> Result<Removal, DatapathError> {
        if let Some(&none) = numbers.iter().find(|no| !self.ports.contains_key(no)) {
            return Err(DatapathError::NoPort(none));
        }
        let entries: Vec<PortEntry> = numbers.iter().filter_map(|no| self.ports.remove(no)).collect();
        for n in entries.iter().flat_map(|entry| &entry.rx_queues) {
            self.workers[*n].queues -= 1;
        }
        let mut tickets = Vec::new();
        for n in 0..self.workers.len() {
            for &port in numbers {
                tickets.push(self.ask(n, "a port's queues", |ticket| Command::RemovePort { port, ticket }));
            }
        }
        Ok(Removal { tickets, entries })
    }

    /// The ports in their order, once every worker has given up their queues; until then what is waited for.
    pub fn finish_removal(&mut self, removal: Removal) -> Result<Vec<Box<dyn Port>>, Removal> {
        self.collect();
        if !self.awaited.have_answered(&removal.tickets) {
            return Err(removal);
        }
        for entry in &removal.entries {
            let stats = entry.port.stats();
            for (reason, of) in BY_DRIVERS {
                *self.dropped_by_gone.entry(reason.name()).or_default() += of(&stats);
            }
        }
        Ok(removal.entries.into_iter().map(|entry| entry.port).collect())
    }

    /// The port under a number.
    pub fn port(&self, no: PortNo) -> Option<&dyn Port> {
        self.ports.get(&no).map(|e| e.port.as_ref())
    }

    /// The port, to change its settings.
    pub fn port_mut(&mut self, no: PortNo) -> Option<&mut Box<dyn Port>> {
        self.ports.get_mut(&no).map(|e| &mut e.port)
    }

    /// Numbers of all ports.
    pub fn port_numbers(&self) -> impl Iterator<Item = PortNo> {
        self.ports.keys().copied()
    }

    /// What a port has moved, as its driver counts it, and in `tx_dropped` also what it did not take when a worker had it to send
    /// ([`DropReason::TxQueueFull`]). Zeros where there is no such port.
    pub fn port_stats(&self, no: PortNo) -> PortStats {
        let mut stats = self.port(no).map(|port| port.stats()).unwrap_or_default();
        stats.tx_dropped += self.port_counters(no).iter().map(|c| c.tx_drops.get()).sum::<u64>();
        stats
    }

    /// A port's counters, one set per worker.
    pub fn port_counters(&self, no: PortNo) -> &[Arc<PortCounters>] {
        self.ports.get(&no).map_or(&[], |e| &e.counters)
    }

    /// The worker of each of the port's receive queues, in their order.
    pub fn rx_workers(&self, no: PortNo) -> &[usize] {
        self.ports.get(&no).map_or(&[], |e| &e.rx_queues)
    }

    /// How many workers run.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// A worker's counters.
    pub fn worker_stats(&self, n: usize) -> &WorkerStats {
        &self.workers[n].stats
    }

    /// The same, for another thread to read.
    pub fn shared_worker_stats(&self, n: usize) -> Arc<WorkerStats> {
        self.workers[n].stats.clone()
    }

    /// The processor that a worker is pinned to.
    pub fn worker_cpu(&self, n: usize) -> Option<usize> {
        self.workers[n].cpus.single()
    }

    /// The operating system's id of a worker's thread, for its CPU time; 0 before it runs.
    pub fn worker_thread_id(&self, n: usize) -> i32 {
        self.workers[n].thread_id.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Packets dropped for a reason, over all workers, and by the drivers of ports that are there or were.
    pub fn drops(&self, reason: DropReason) -> u64 {
        let by_drivers: u64 =
            self.ports.values().map(|entry| dropped_by_driver(entry.port.as_ref(), reason)).sum();
        self.drops_but_by_drivers(reason) + by_drivers
    }

    /// [`Self::drops`] for each reason, with each driver asked once: that may be a system call.
    pub fn all_drops(&self) -> Vec<(DropReason, u64)> {
        let of_drivers: Vec<PortStats> = self.ports.values().map(|entry| entry.port.stats()).collect();
        let with_drivers = |reason: DropReason| {
            let count = BY_DRIVERS.iter().find(|(by, _)| *by == reason).map(|(_, of)| of);
            let by_drivers: u64 = count.map_or(0, |of| of_drivers.iter().map(of).sum());
            (reason, self.drops_but_by_drivers(reason) + by_drivers)
        };
        DropReason::ALL.iter().copied().map(with_drivers).collect()
    }

    /// What workers have dropped, and drivers of ports that are gone.
    fn drops_but_by_drivers(&self, reason: DropReason) -> u64 {
        let ended = self.retired.iter().map(|r| r.stats.drops.get(reason));
        let by_workers: u64 = self.workers.iter().map(|w| w.stats.drops.get(reason)).chain(ended).sum();
        by_workers + self.dropped_by_gone.get(&reason.name()).copied().unwrap_or(0)
    }

    /// Packets that came in at a port and were dropped for a reason, and those that its driver dropped.
    pub fn port_drops(&self, no: PortNo, reason: DropReason) -> u64 {
        let by_workers: u64 = self.port_counters(no).iter().map(|c| c.drops.get(reason)).sum();
        by_workers + self.port(no).map_or(0, |port| dropped_by_driver(port, reason))
    }

    /// The packet pool.
    pub fn pool(&self) -> &'static Pool {
        self.pool
    }

    /// The datapath's clock, in milliseconds; it starts at [`Clock::START_MS`].
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    // ---- counters

    /// Makes sure that crediting slots below `count`, and some thousand more, allocates nothing and waits for no page. The
    /// pipeline's owner calls it after each change, and before one that may take more slots than that.
    pub fn reserve_slots(&mut self, count: u32) {
        let count = count.saturating_add(SLOTS_AHEAD);
        for w in &self.workers {
            w.slots.reserve(count);
        }
        self.slots_reserved = self.slots_reserved.max(count);
    }

    /// What a slot has seen so far: all that was folded, see [`Self::request_fold`].
    pub fn slot(&self, idx: u32) -> SlotTotals {
        let mut sum = SlotTotals::default();
        let tables = self.workers.iter().map(|w| &w.slots).chain(self.retired.iter().map(|r| &r.slots));
        for slot in tables.filter_map(|slots| slots.peek(idx)) {
            sum.packets += slot.packets.get();
            sum.bytes += slot.bytes.get();
            sum.last_used_ms = sum.last_used_ms.max(slot.last_used_ms.get());
        }
        sum
    }

    /// Zeroes a slot to be given out again. Only after a fold that was requested when no flow could credit it any more.
    pub fn clear_slot(&self, idx: u32) {
        for slots in self.workers.iter().map(|w| &w.slots).chain(self.retired.iter().map(|r| &r.slots)) {
            slots.clear(idx);
        }
    }

    /// Asks every worker to fold all flows' counters into their slots. See [`Self::fold_done`].
    pub fn request_fold(&mut self) -> u64 {
        self.folds += 1;
        for w in &self.workers {
            w.shared.fold_wanted.raise(self.folds);
            w.bell.ring();
        }
        self.folds
    }

    /// Whether every worker has folded since that request.
    pub fn fold_done(&self, ticket: u64) -> bool {
        self.workers.iter().all(|w| w.shared.fold_done.reached() >= ticket)
    }

    /// Requests a fold and waits for it. False when the time ran out.
    pub fn fold(&mut self, timeout: Duration) -> bool {
        let ticket = self.request_fold();
        let end = Instant::now() + timeout;
        while !self.fold_done(ticket) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    // ---- events

    /// Rung when events may wait.
    pub fn event_bell(&self) -> &Arc<Bell> {
        &self.event_bell
    }

    /// Takes up to `max` waiting events.
    pub fn events(&mut self, max: usize) -> Vec<Event<P::Effect>> {
        self.event_bell.clear();
        self.collect();
        let mut events: Vec<_> = self.gone.drain(..).map(Event::PortGone).collect();
        events.extend(self.left.drain(..));
        for w in &mut self.workers {
            while events.len() < max
                && let Ok(effect) = w.effects.pop()
            {
                events.push(Event::Effect(effect));
            }
            while events.len() < max
                && let Ok(packet_in) = w.packet_ins.pop()
            {
                events.push(Event::PacketIn(packet_in));
            }
        }
        events
    }

    /// Gives a packet back that came with an event.
    pub fn free(&mut self, packet: packet::Packet) {
        self.cache.free(packet);
    }

    // ---- commands

    /// Executes actions on a packet of these bytes, as if it had come in at `in_port`. False when no buffer is
    /// free or the frame is longer than one.
    pub fn execute(&mut self, frame: &[u8], in_port: PortNo, actions: Vec<DpAction>) -> bool {
        if self.workers.is_empty() {
            return false;
        }
        let Some(mut packet) = self.cache.alloc() else { return false };
        if packet.fill(frame).is_none() {
            self.cache.free(packet);
            return false;
        }
        packet.in_port = in_port;
        self.send(0, Command::Execute { packet, actions });
        true
    }

    /// Forgets all cached flows. For `dpctl/del-flows` and `revalidator/purge`.
    pub fn flush_flows(&mut self) {
        for n in 0..self.workers.len() {
            self.send(n, Command::Flush);
        }
    }

    /// Asks a worker for some of its megaflows from a place on, 0 at first: see [`Self::take_flows`]. `None` where there is no such
    /// worker.
    pub fn request_flows(&mut self, worker: usize, from: u32) -> Option<u64> {
        if worker >= self.workers.len() {
            return None;
        }
        let out = Vec::with_capacity(FLOWS_PER_PIECE);
        let ticket = self.ask(worker, "flows", |ticket| Command::Dump { ticket, from, out });
        self.dumped.insert(ticket, None);
        Some(ticket)
    }

    /// What the worker has answered, if it has.
    pub fn take_flows(&mut self, ticket: u64) -> Option<FlowPiece> {
        self.collect();
        let piece = self.dumped.get_mut(&ticket)?.take()?;
        self.dumped.remove(&ticket);
        Some(piece)
    }

    /// Nobody waits for the answer any more.
    pub fn forget_flows(&mut self, ticket: u64) {
        self.dumped.remove(&ticket);
    }

    /// Workers that have not answered a command for a second, each command once.
    pub fn overdue(&mut self, now: Instant) -> Vec<Overdue> {
        self.collect();
        self.awaited.overdue(now)
    }

    /// Sends a command that has an answer. The ticket that both carry.
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

    /// Takes in replies, and pushes commands that had found no room.
    fn collect(&mut self) {
        let mut late = Vec::new();
        for (n, w) in self.workers.iter_mut().enumerate() {
            w.push_backlog();
            while let Ok(reply) = w.replies.pop() {
                match reply {
                    Reply::ReleasedRx { ticket, queue, .. } if self.awaited_rx == Some(ticket) => {
                        self.awaited.answered(ticket);
                        self.released_rx = Some(queue);
                    }
                    Reply::ReleasedRx { ticket, port, idx, queue } => {
                        self.awaited.answered(ticket);
                        late.push((port, idx, queue));
                    }
                    Reply::Released { ticket, port, rx, tx } => {
                        self.awaited.answered(ticket);
                        self.released.push(Released { worker: n, port, rx: rx.into(), tx });
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
                    Reply::Spent(actions) => drop(actions),
                }
            }
        }
        // Nobody waits any more for a queue whose worker took too long: it goes on where it is said to be, if anywhere.
        for (port, idx, queue) in late {
            let entry = self.ports.get(&port);
            let place = entry.and_then(|e| Some((*e.rx_queues.get(idx)?, e.loads[idx].clone())));
            if let (Some(queue), Some((worker, load))) = (queue, place) {
                self.send(worker, Command::AddRx { port, idx, queue, load });
            }
        }
    }

    /// Waits for the answers to commands, no longer than [`PATIENCE`].
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

/// The name of a worker's thread.
pub fn worker_name(n: usize) -> String {
    format!("pmd-{n}")
}

impl<P: Pipeline> WorkerHandle<P> {
    fn push_backlog(&mut self) {
        while let Some(command) = self.backlog.pop_front() {
            if let Err(rtrb::PushError::Full(command)) = self.commands.push(command) {
                self.backlog.push_front(command);
                return;
            }
        }
    }
}

impl<P: Pipeline> Drop for Datapath<P> {
    fn drop(&mut self) {
        for n in 0..self.workers.len() {
            self.send(n, Command::Stop);
        }
        for w in &mut self.workers {
            while !w.backlog.is_empty() {
                w.push_backlog();
                std::thread::sleep(Duration::from_millis(1));
            }
            // A worker that panicked has already said so on stderr.
            let _ = w.thread.take().map(std::thread::JoinHandle::join);
            while let Ok(packet_in) = w.packet_ins.pop() {
                self.cache.free(packet_in.packet);
            }
        }
    }
}

/// One handle per worker out of the queues that the port has.
fn tx_handles(queues: Vec<Box<dyn packet::TxQueue>>, workers: usize) -> Vec<TxHandle> {
    if queues.len() >= workers {
        return queues.into_iter().take(workers).map(TxHandle::Own).collect();
    }
    let count = queues.len();
    if count == 0 {
        return Vec::new();
    }
    let users = |n: usize| (n..workers).step_by(count).len();
    let shared: Vec<_> =
        queues.into_iter().enumerate().map(|(n, q)| Arc::new(SharedTx::new(q, users(n)))).collect();
    (0..workers).map(|n| TxHandle::Shared(shared[n % shared.len()].clone())).collect()
}
