//! Starting workers, and what is known about each.

use super::*;
use crate::context::Context;
use crate::process::Process;
use crate::worker::Worker;
use crate::worker::commands::{ANSWERS_AWAITED, TOLD_UNASKED};
use base::hash::HashKey;
use base::wide::Wide;
use packet::wait::Waiter;
use std::sync::atomic::Ordering;

/// The stack of a worker's thread. Translation and execution recurse in it as deep as rules nest; what bounds
/// them is in `switch::translate`. Only what is used takes memory.
pub const WORKER_STACK_BYTES: usize = 8 << 20;
/// Effects that a worker can have in flight.
const EFFECTS_RING: usize = 4096;
/// Packet-ins that a worker can have in flight.
const PACKET_INS_RING: usize = 1024;
/// Commands, and their answers, that a worker can have in flight.
const COMMANDS_RING: usize = 4096;

impl<P: Pipeline> WorkerHandle<P> {
    /// Its thread's id. If the thread is not running yet, waits: the system starts it in a moment.
    pub(super) fn started(&self) -> i32 {
        loop {
            match self.thread_id.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                id => return id,
            }
        }
    }
}

impl<P: Pipeline> WorkerHandle<P> {
    /// Whether its thread has ended; a worker without a thread ends when told to.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Sends what waits, as far as the ring of commands has room, and that of replies for the answers that
    /// must not be lost.
    pub(super) fn push_backlog(&mut self) {
        while self.unanswered < ANSWERS_AWAITED
            && let Some(command) = self.backlog.pop_front()
        {
            let is_answered = command.is_answered();
            if let Err(rtrb::PushError::Full(command)) = self.commands.push(command) {
                self.backlog.push_front(command);
                return;
            }
            self.unanswered += usize::from(is_answered);
        }
    }
}

/// The name of a worker's thread.
pub fn worker_name(n: usize) -> String {
    format!("pmd-{n}")
}

impl<P: Pipeline> Datapath<P> {
    /// Starts a worker, optionally pinned to a processor. Start workers before adding ports: queues are given
    /// to existing workers.
    pub fn start_worker(&mut self, cpu: Option<usize>) -> Result<usize, DatapathError> {
        self.start_worker_on(CpuSet::from(cpu))
    }

    /// The same, on any of these processors.
    pub fn start_worker_on(&mut self, cpus: CpuSet) -> Result<usize, DatapathError> {
        let cache = self.make_cache(self.config.cache)?;
        self.start_worker_with(cpus, cache)
    }

    /// The same, with a cache from [`Self::make_cache`].
    pub(super) fn start_worker_with(
        &mut self,
        cpus: CpuSet,
        cache: FlowCache,
    ) -> Result<usize, DatapathError> {
        let n = self.workers.len();
        let (worker, mut handle) = self.make_worker(cache)?;
        let its_id = handle.thread_id.clone();
        handle.cpus = cpus.clone();
        let thread = std::thread::Builder::new().name(worker_name(n)).stack_size(WORKER_STACK_BYTES);
        let spawned = thread.spawn(move || {
            // Before other code can bind it elsewhere.
            if cpus != CpuSet::all() {
                packet::thread::bind(0, &cpus);
            }
            its_id.store(packet::thread::id(), Ordering::Release);
            worker.run();
        });
        match spawned {
            Ok(thread) => handle.thread = Some(thread),
            Err(error) => {
                self.retired.push(Retired { stats: handle.stats, slots: handle.slots });
                return Err(error.into());
            }
        }
        self.workers.push(handle);
        Ok(n)
    }

    /// Adds a worker whose passes the caller runs, see [`SteppedWorker`]. Functions that wait for workers
    /// ([`Self::remove_port`], [`Self::fold`], [`Self::dump_flows`]) would wait in vain for it.
    pub fn stepped_worker(&mut self) -> Result<SteppedWorker<P>, DatapathError> {
        let cache = self.make_cache(self.config.cache)?;
        let (worker, handle) = self.make_worker(cache)?;
        self.workers.push(handle);
        Ok(SteppedWorker::new(worker))
    }

    /// The caches of a worker to come.
    pub(super) fn make_cache(&self, limits: CacheConfig) -> Result<FlowCache, DatapathError> {
        let wide = if self.config.is_baseline { None } else { Wide::here() };
        Ok(FlowCache::new(limits, self.secret(), wide)?)
    }

    /// A new one each time, unless the configuration fixes it.
    fn secret(&self) -> HashKey {
        self.config.hash_seed.map_or_else(HashKey::random, HashKey::from_seed)
    }

    fn make_worker(&mut self, mut cache: FlowCache) -> Result<(Worker<P>, WorkerHandle<P>), DatapathError> {
        let waiter = Waiter::new()?;
        let (commands, commands_rx) = rtrb::RingBuffer::new(COMMANDS_RING);
        let (replies_tx, replies) = rtrb::RingBuffer::new(COMMANDS_RING + TOLD_UNASKED);
        let (effects_tx, effects) = rtrb::RingBuffer::new(EFFECTS_RING);
        let (packet_ins_tx, packet_ins) = rtrb::RingBuffer::new(PACKET_INS_RING);
        let Retired { stats, slots } =
            self.retired.pop().unwrap_or_else(|| Retired { stats: Arc::default(), slots: Arc::default() });
        slots.reserve(self.slots_reserved);
        let shared = Arc::new(Shared::default());
        // It has nothing to fold for those who asked before it came.
        shared.fold_wanted.raise(self.folds);
        shared.fold_done.raise(self.folds);
        shared.never_sleeps.store(self.never_sleeps, Ordering::Relaxed);
        cache.count_in(slots.clone());
        let (bell, tracker) = (self.event_bell.clone(), self.tracker.clone());
        // Translated ports and samples must not be foretold, nor the same on all workers.
        let seed = self.secret().word(0, self.workers.len() as u64);
        let context = Context::new(self.pool.cache(), stats.clone(), packet_ins_tx, bell, tracker, seed);
        let process = Process::new(
            self.pipeline.clone(),
            self.domain.register(),
            cache,
            context,
            effects_tx,
            self.event_bell.clone(),
        );
        let mut worker = Worker::new(process, commands_rx, replies_tx, shared.clone(), waiter, self.clock);
        worker.measures_passes = self.config.measure_passes;
        let handle = WorkerHandle {
            commands,
            replies,
            effects,
            packet_ins,
            backlog: VecDeque::new(),
            handed_over: Held::default(),
            unanswered: 0,
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

    /// Whether workers poll for ever. By default they sleep while nothing comes.
    pub fn set_never_sleeps(&mut self, never_sleeps: bool) {
        self.never_sleeps = never_sleeps;
        for w in &self.workers {
            w.shared.never_sleeps.store(never_sleeps, Ordering::Relaxed);
            w.bell.ring();
        }
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

    /// The same, shared with another thread.
    pub fn shared_worker_stats(&self, n: usize) -> Arc<WorkerStats> {
        self.workers[n].stats.clone()
    }

    /// The processors that a worker runs on.
    pub fn worker_cpus(&self, n: usize) -> &CpuSet {
        &self.workers[n].cpus
    }

    /// The processor to which a worker is pinned.
    pub fn worker_cpu(&self, n: usize) -> Option<usize> {
        self.workers[n].cpus.single()
    }

    /// The limits of each worker's caches.
    pub fn cache_limits(&self) -> CacheConfig {
        self.config.cache
    }

    /// The operating system's id of a worker's thread, for its CPU time; 0 before it runs.
    pub fn worker_thread_id(&self, n: usize) -> i32 {
        self.workers[n].thread_id.load(std::sync::atomic::Ordering::Relaxed)
    }
}
