//! The worker's loop: poll, process, send, look after the caches, sleep.
//!
//! One pass, as numbered in [`Worker::turn`] and [`Worker::run`]:
//! 1. a quiescent point, and commands of the control thread;
//! 2. each receive queue in turn, one burst;
//! 3. what was gathered for the outputs leaves;
//! 4. the clock, and the caches' sweep;
//! 5. after some time without a packet, the shorter the longer the last sleep was, and longer after packets from guests: sleep until a
//!    descriptor is readable.
//!
//! Fairness: queues are served by the cycles that they cost. A queue that is ahead of the others (its bursts
//! need translation, which counts double) is passed over until they have caught up, so who opens new flows at full speed
//! takes only its own share of the worker, and what it is too late for waits, or is lost, in its own device.
//!
//! A guest's queue is left alone for a moment after a short burst, so that the packets of that time come together (`rest` says why).
//!
//! Back-pressure: work on a packet that its output then refuses is lost. Where an output has refused packets, a queue that has fed nothing
//! else for a good while is held back until there is room again, for a moment at most: what is too much for the output
//! waits, or is lost, in the device that it came from, before it has cost anything. A queue whose packets go to several
//! outputs is not held back, so none suffers for another's receiver (`backlog` has the rules).

use crate::backlog::Backlog;
use crate::cache::DumpedFlow;
use crate::pipeline::Pipeline;
use crate::process::Process;
use crate::rest::Rest;
use crate::rounds::{Now, Rounds, Sweep};
use crate::stats::{PortCounters, QueueLoad, WorkerStats};
use crate::transmission::TxHandle;
use base::clock::tsc;
use base::{PortNo, Watermark};
use packet::wait::{Bell, Waiter};
use packet::{Batch, Lent, Packet, RxOutcome, RxQueue};
use std::sync::Arc;

/// How far a queue may be ahead of the least served one, in cycles, before it is passed over.
const AHEAD_CYCLES_MAX: u64 = 20_000;
/// A queue that was polled in vain so often is idle: it is looked at in turn with the other idle ones.
const QUIET_POLLS: u32 = 64;
/// Idle queues take one part in so many of the busy ones' time at most.
const IDLE_SHARE: i64 = 64;
/// Idle queues are looked at in groups of so many, between which the clock is read.
const IDLE_GROUP: usize = 8;
/// Time for idle queues saved up at most, in cycles.
const IDLE_CREDIT_MAX: i64 = 100_000;
/// Polls in vain for this long before it sleeps: about what a sleep and the wake-up cost those who wait for it.
const SPIN_US: u64 = 60;
/// The same where the last sleep was a long one: packets that come in bursts far apart are not met by polling, and what
/// polling costs is then lost on each of them.
const SHORT_SPIN_US: u64 = 10;
/// Nothing came for this long, the wake-up included: a long sleep.
const LONG_IDLE_US: u64 = 2 * SPIN_US;
/// After packets from guests it polls longer, for one part in so many of the time that they took, in all. A guest or whoever sends through it
/// may lose its processor for milliseconds; what it then sends at once fills its ring before a sleeper has woken.
const LINGER_SHARE: u64 = 8;
/// And no longer than this at once.
const LINGER_MAX_US: u64 = 5_000;
/// Without a packet for this long, the caches are swept a good piece at a time. Not sooner: in the gap between two bursts of a guest's
/// the lines that the next one needs would go for it.
const SWEEP_IDLE_US: u64 = SHORT_SPIN_US;
/// What the control thread asks of a worker.
pub enum Command {
    /// Poll this queue.
    AddRx {
        /// Whose queue.
        port: PortNo,
        /// Its number there.
        idx: usize,
        /// It.
        queue: Box<dyn RxQueue>,
        /// Where to count what it costs.
        load: Arc<QueueLoad>,
    },
    /// Give up one receive queue, to be polled by another worker; the answer is [`Reply::ReleasedRx`].
    ReleaseRx {
        /// Whose queue.
        port: PortNo,
        /// Its number there.
        idx: usize,
        /// The command's number, which the answer carries; likewise below.
        ticket: u64,
    },
    /// Use this to send to the port.
    AddTx {
        /// Which port.
        port: PortNo,
        /// How.
        handle: TxHandle,
        /// Where to count.
        counters: Arc<PortCounters>,
    },
    /// Give up all queues of the port; the answer is [`Reply::Removed`].
    RemovePort {
        /// Which port.
        port: PortNo,
        /// See above.
        ticket: u64,
    },
    /// Give up all queues of the port as they are, to be used by other workers; the answer is [`Reply::Released`].
    ReleasePort {
        /// Which port.
        port: PortNo,
        /// See above.
        ticket: u64,
    },
    /// Execute actions on a packet of the control thread's.
    Execute {
        /// The packet, allocated by the control thread from the same pool.
        packet: Packet,
        /// What to do.
        actions: Vec<crate::DpAction>,
    },
    /// Write megaflows into `out`, up to its capacity; the answer is [`Reply::Dump`].
    Dump {
        /// See above.
        ticket: u64,
        /// Where to go on.
        from: u32,
        /// With room reserved.
        out: Vec<DumpedFlow>,
    },
    /// Forget all flows.
    Flush,
    /// End the thread.
    Stop,
}

/// What a worker answers.
pub enum Reply {
    /// The port's queues, closed, to be dropped by the control thread.
    Removed {
        /// The number of the command; likewise below.
        ticket: u64,
        /// Receive queues.
        rx: Vec<Box<dyn RxQueue>>,
        /// Transmit queue.
        tx: Option<TxHandle>,
    },
    /// The port's queues, open.
    Released {
        /// See above.
        ticket: u64,
        /// Which port.
        port: PortNo,
        /// Receive queues, in the order in which they were given.
        rx: Vec<Box<dyn RxQueue>>,
        /// Transmit queue.
        tx: Option<TxHandle>,
    },
    /// One receive queue, open.
    ReleasedRx {
        /// See above.
        ticket: u64,
        /// Whose queue.
        port: PortNo,
        /// Its number there.
        idx: usize,
        /// `None` where this worker does not have it.
        queue: Option<Box<dyn RxQueue>>,
    },
    /// Flows, and where to go on.
    Dump {
        /// See above.
        ticket: u64,
        /// The flows.
        flows: Vec<DumpedFlow>,
        /// `None` at the end.
        next: Option<u32>,
    },
    /// The port's device is gone.
    Gone(PortNo),
    /// A used command's memory, to be freed off the packet path.
    Spent(Vec<crate::DpAction>),
}

/// What both sides of a worker see.
#[derive(Default)]
pub struct Shared {
    /// The control thread wants a full fold: it counts this up.
    pub fold_wanted: Watermark,
    /// The last wish that was fulfilled.
    pub fold_done: Watermark,
}

/// Milliseconds since the datapath started, from the time stamp counter; offset so that no time of use is 0 or lies before it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: u64,
    ticks_per_ms: u64,
}

impl Clock {
    /// Where the clock starts.
    pub const START_MS: u64 = 1 << 32;

    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { start: tsc(), ticks_per_ms: (base::clock::tsc_hz() / 1000).max(1) }
    }

    /// Now, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.at_ms(tsc())
    }

    fn at_ms(&self, tsc: u64) -> u64 {
        let tsc = tsc.min(base::clock::stopped_tsc());
        Clock::START_MS + tsc.saturating_sub(self.start) / self.ticks_per_ms + base::clock::warped_ms()
    }
}

struct Rx {
    port: PortNo,
    /// Its number there.
    idx: usize,
    queue: Box<dyn RxQueue>,
    /// Whether its packets' tails may stay with their sender until the burst has gone: it is memory that a guest writes.
    lends: bool,
    load: Arc<QueueLoad>,
    counters: Option<Arc<PortCounters>>,
    /// Cycles that it has cost, on a scale shared by the worker's queues.
    served: u64,
    active: bool,
    gone: bool,
    /// Whether it is polled in every pass.
    is_busy: bool,
    /// Polls in vain since its last packet.
    quiet: u32,
    /// Packets of this pass, whose sending is not charged to it yet.
    in_pass: u64,
    backlog: Backlog,
    rest: Rest,
}

/// How a pass went.
enum Turn {
    /// The control thread says to stop.
    Stop,
    /// Packets came.
    Moved { start: u64, end: u64 },
    /// None came; `rest` where nothing else is to be done either.
    Idle { end: u64, rest: bool },
}

/// One worker, to be run on a thread of its own.
pub struct Worker<P: Pipeline> {
    pub process: Process<P>,
    pub commands: rtrb::Consumer<Command>,
    pub replies: rtrb::Producer<Reply>,
    pub shared: Arc<Shared>,
    pub waiter: Waiter,
    pub clock: Clock,
    rx: Vec<Rx>,
    /// Those that are polled in every pass, by their places in `rx`.
    busy: Vec<usize>,
    /// The last one looked at in turn.
    idle_next: usize,
    /// Cycles that may be spent on looking at idle queues; negative for what was spent too much.
    idle_credit: i64,
    /// A queue with packets was held back in this pass.
    holds: bool,
    next_tick: u64,
    rounds: Rounds,
    last_rank_ms: u64,
    pub measures_passes: bool,
    /// How much longer it polls in vain before it sleeps, in cycles, and the most.
    linger: u64,
    linger_max: u64,
    /// When the last pass began, and whether packets came in it.
    pass_start: u64,
    was_busy: bool,
    /// When the thread's CPU time was last read, on both clocks.
    cpu_read: (u64, u64),
}

impl<P: Pipeline> Worker<P> {
    pub fn new(
        process: Process<P>,
        commands: rtrb::Consumer<Command>,
        replies: rtrb::Producer<Reply>,
        shared: Arc<Shared>,
        waiter: Waiter,
        clock: Clock,
    ) -> Self {
        Worker {
            process,
            commands,
            replies,
            shared,
            waiter,
            clock,
            rx: Vec::with_capacity(64),
            busy: Vec::with_capacity(64),
            idle_next: 0,
            idle_credit: 0,
            holds: false,
            next_tick: 0,
            rounds: Rounds::default(),
            last_rank_ms: 0,
            measures_passes: false,
            linger: 0,
            linger_max: base::clock::tsc_hz() / 1_000_000 * LINGER_MAX_US,
            pass_start: 0,
            was_busy: false,
            cpu_read: (0, 0),
        }
    }

    /// The bell that wakes it.
    pub fn bell(&self) -> Arc<Bell> {
        self.waiter.bell()
    }

    fn stats(&self) -> &WorkerStats {
        &self.process.out.stats
    }

    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        let us = base::clock::tsc_hz() / 1_000_000;
        let mut spin = SPIN_US * us;
        let mut batch = Batch::new();
        let mut idle_since = tsc();
        self.stats().began.set(idle_since);
        self.pass_start = idle_since;
        self.tick(tsc());
        loop {
            match self.turn(&mut batch, idle_since) {
                Turn::Stop => break,
                Turn::Moved { start, end } => {
                    self.linger = self.linger.saturating_sub(start.saturating_sub(idle_since + spin));
                    idle_since = end;
                }
                // 5. Sleep.
                Turn::Idle { end, rest } => {
                    if rest && end - idle_since > spin + self.linger {
                        self.linger = 0;
                        self.account(end);
                        self.sleep();
                        let now = tsc();
                        self.pass_start = now;
                        let was_long = now - idle_since > LONG_IDLE_US * us;
                        spin = us * if was_long { SHORT_SPIN_US } else { SPIN_US };
                        idle_since = now;
                    }
                }
            }
        }
        self.close();
    }

    /// Ends the last pass's account at `now`: what it did after its packets, sweeping above all, was its work too.
    #[inline(always)]
    fn account(&mut self, now: u64) {
        let stats = &self.process.out.stats;
        let cycles = if self.was_busy { &stats.busy_cycles } else { &stats.idle_cycles };
        cycles.add(now - self.pass_start);
        self.pass_start = now;
    }

    /// One pass but for the sleep. The last packet came at `idle_since`.
    #[inline(always)]
    fn turn(&mut self, batch: &mut Batch, idle_since: u64) -> Turn {
        // 1. A quiescent point, and commands.
        self.process.reader_mut().quiescent();
        if !self.commands.is_empty() && !self.obey() {
            return Turn::Stop;
        }
        // 2. Receive queues.
        let start = tsc();
        self.account(start);
        let moved = self.poll(start, batch);
        // 3. Outputs.
        let polled = if moved { tsc() } else { start };
        self.process.tx.flush(&mut self.process.out);
        let end = tsc();
        if moved {
            self.charge(end - polled);
        }
        if let Some(output) = self.process.tx.refusing.take() {
            for &n in &self.busy {
                self.rx[n].backlog.refused_at(output);
            }
        }
        // 4. The clock and the sweep.
        if end >= self.next_tick {
            self.tick(end);
        }
        if self.measures_passes {
            self.measure_pass(end);
        }
        self.was_busy = moved;
        if moved {
            self.stats().busy_loops.add(1);
            self.sweep(false);
            return Turn::Moved { start, end };
        }
        self.stats().idle_loops.add(1);
        if std::mem::take(&mut self.holds) {
            // There is room again in a moment, which is too short to sleep or to sweep a good piece.
            self.sweep(false);
            return Turn::Idle { end, rest: false };
        }
        // Folds come before sleep, so that counters are exact when traffic has stopped.
        let is_idle = end - idle_since > self.clock.ticks_per_ms * SWEEP_IDLE_US / 1_000;
        Turn::Idle { end, rest: self.sweep(is_idle) }
    }

    /// Charges what it cost to send the pass's last packets to the queues that they came from, by their numbers: a system call for
    /// them is work of theirs, which queues are placed by.
    #[inline(always)]
    fn charge(&mut self, cycles: u64) {
        let packets: u64 = self.busy.iter().map(|&n| self.rx[n].in_pass).sum();
        for &n in &self.busy {
            let q = &mut self.rx[n];
            if q.in_pass > 0 {
                q.load.cycles.add(cycles * q.in_pass / packets);
                q.in_pass = 0;
            }
        }
    }

    fn close(&mut self) {
        for slot in 0..self.rx.len() {
            self.rx[slot].queue.close(&mut self.process.out.cache);
        }
    }

    /// One burst from each queue that is not ahead of the others. True if anything came.
    ///
    /// Queues that have given nothing for a while are looked at in turn, at the price of a small share of the time that the
    /// others take: hundreds of idle ports must not slow two busy ones. When nothing else is to be done, all are.
    fn poll(&mut self, start: u64, batch: &mut Batch) -> bool {
        let busy = self.busy.iter().map(|&n| &self.rx[n]);
        let floor = busy.filter(|q| q.active).map(|q| q.served).min().unwrap_or(0);
        // The clock is read once for each queue: the end of one is the beginning of the next.
        let mut now = start;
        let mut moved = false;
        let mut at = 0;
        while let Some(&n) = self.busy.get(at) {
            if let Some(end) = self.poll_queue(n, floor, now, batch) {
                (moved, now) = (true, end);
            }
            let q = &mut self.rx[n];
            if q.gone || q.quiet >= QUIET_POLLS {
                q.is_busy = false;
                self.busy.swap_remove(at);
            } else {
                at += 1;
            }
        }
        let idle = self.rx.len() - self.busy.len();
        if idle == 0 {
            return moved;
        }
        if !moved {
            return self.poll_idle(self.rx.len(), floor, batch);
        }
        self.idle_credit = (self.idle_credit + (now - start) as i64 / IDLE_SHARE).min(IDLE_CREDIT_MAX);
        let mut left = self.rx.len();
        while self.idle_credit > 0 && left > 0 {
            let some = left.min(IDLE_GROUP);
            left -= some;
            if !self.poll_idle(some, floor, batch) {
                let end = tsc();
                self.idle_credit -= (end - now) as i64;
                now = end;
            } else {
                now = tsc();
            }
        }
        true
    }

    /// Looks at the next so many queues, those that are idle among them. True if anything came.
    #[inline(never)]
    fn poll_idle(&mut self, count: usize, floor: u64, batch: &mut Batch) -> bool {
        let mut moved = false;
        for _ in 0..count {
            self.idle_next = if self.idle_next + 1 < self.rx.len() { self.idle_next + 1 } else { 0 };
            let n = self.idle_next;
            if self.rx[n].is_busy {
                continue;
            }
            if self.poll_queue(n, floor, 0, batch).is_some() {
                moved = true;
                self.rx[n].is_busy = true;
                self.busy.push(n);
            }
        }
        moved
    }

    /// One burst from a queue, if it is not ahead of the others. When it was done, if anything came. `start` is the time now, or 0
    /// for an idle queue, which gets its first burst's reception for nothing, and saves the clock when there is none.
    #[inline(always)]
    fn poll_queue(&mut self, n: usize, floor: u64, start: u64, batch: &mut Batch) -> Option<u64> {
        let q = &mut self.rx[n];
        if q.gone || (q.active && q.served > floor + AHEAD_CYCLES_MAX) {
            return None;
        }
        let is_left_alone = q.lends && q.rest.is_on(start)
            || q.backlog.is_open()
                && (q.backlog.is_held(start)
                    || !q.backlog.may_receive(&self.process.out, &mut self.process.tx));
        if is_left_alone {
            // It must not hold back the others by its old account.
            q.active = false;
            self.holds = true;
            return None;
        }
        if !q.active {
            // An idle queue has no credit from the past.
            q.served = q.served.max(floor);
        }
        let outcome = q.queue.rx_begin(&mut self.process.out.cache, batch);
        if batch.is_empty() {
            q.active = false;
            q.quiet = q.quiet.saturating_add(1);
            if outcome == RxOutcome::Gone {
                q.gone = true;
                // Full means that the control thread is far behind; it finds out by the port's status then.
                let _ = self.replies.push(Reply::Gone(q.port));
            }
            return None;
        }
        let start = if start == 0 { tsc() } else { start };
        let packets = batch.len() as u64;
        if let Some(c) = &q.counters {
            c.rx_packets.add(packets);
            c.rx_bytes.add(batch.iter().map(Packet::len).sum::<usize>() as u64);
        }
        let translation = self.process.burst(q.port, batch, Lent::of(q.queue.as_mut()).as_mut());
        q.active = true;
        q.quiet = 0;
        let end = tsc();
        let cost = end - start;
        if q.backlog.is_open() {
            q.backlog.received(packets, &self.process.out, &self.process.tx);
        }
        if q.lends {
            q.rest.received(packets, end);
            self.linger = (self.linger + cost / LINGER_SHARE).min(self.linger_max);
        }
        q.served += cost + translation;
        q.load.cycles.add(cost);
        q.load.packets.add(packets);
        q.in_pass = packets;
        Some(end)
    }

    /// Reads the thread's CPU time every 100 us: a pass that took longer shows as a long interval.
    fn measure_pass(&mut self, now: u64) {
        let (read_at, cpu_ns) = self.cpu_read;
        if now - read_at < self.clock.ticks_per_ms / 10 {
            return;
        }
        let now_ns = base::clock::cpu_time_ns(packet::thread::id()).unwrap_or(0);
        let longest = &self.stats().longest_pass_ns;
        if cpu_ns > 0 && now_ns - cpu_ns > longest.get() {
            longest.set(now_ns - cpu_ns);
        }
        self.cpu_read = (now, now_ns);
    }

    fn tell_sizes(&self) {
        let (size, stats) = (self.process.cache.size(), self.stats());
        stats.megaflows.set(size.megaflows as u64);
        stats.exact_entries.set(size.exact as u64);
        stats.masks.set(size.masks as u64);
        stats.cache_bytes.set(size.bytes as u64);
        stats.evictions.set(size.evictions);
    }

    fn tick(&mut self, now: u64) {
        self.next_tick = now + self.clock.ticks_per_ms;
        let now_ms = self.clock.at_ms(now);
        self.process.now_ms = now_ms;
        self.process.cache.set_now(now_ms);
        if now_ms - self.last_rank_ms >= 100 {
            self.last_rank_ms = now_ms;
            self.process.cache.rank_masks();
            self.tell_sizes();
        }
        let is_asked = self.shared.fold_wanted.reached() != self.shared.fold_done.reached();
        self.rounds.tick(self.process.cache.round_len().into(), is_asked);
    }

    /// Sweeps the caches as [`Rounds`] says. True when there is nothing to do before the next round.
    fn sweep(&mut self, is_idle: bool) -> bool {
        let (now_ms, received) = (self.process.now_ms, self.stats().rx.get());
        let (wanted, served) = (self.shared.fold_wanted.reached(), self.shared.fold_done.reached());
        let (count, begins) = match self.rounds.next(Now { now_ms, received, wanted, served, is_idle }) {
            Sweep::Rest => return true,
            Sweep::Later => return false,
            Sweep::Go { count, begins } => (count, begins),
        };
        if begins {
            self.process.cache.start_round();
        }
        let mut unbounded = u32::MAX;
        let is_pressing = is_idle || self.process.cache.is_crowded();
        let removals = if is_pressing { &mut unbounded } else { &mut self.rounds.removals_due };
        if self.process.cache.sweep(count, removals, &self.process.slots)
            && let Some(request) = self.rounds.ended()
        {
            // Who waits for the counters of flows wants to know how many there are, too.
            self.tell_sizes();
            self.shared.fold_done.raise(request);
        }
        false
    }

    fn sleep(&mut self) {
        if self.rx.iter_mut().all(|q| q.gone || q.queue.arm()) && self.commands.is_empty() {
            let timeout_ms = self.sleep_ms();
            self.stats().sleeps.add(1);
            let waiter = &self.waiter;
            let start = tsc();
            self.process.reader_mut().while_offline(|| waiter.wait(timeout_ms));
            self.stats().sleep_cycles.add(tsc().saturating_sub(start));
        }
        for q in &mut self.rx {
            q.queue.disarm();
        }
        self.tick(tsc());
    }

    fn sleep_ms(&self) -> u32 {
        let blind = self.rx.iter().any(|q| !q.gone && q.queue.wait_fd().is_none());
        if blind || self.process.tx.has_pending() {
            return 1;
        }
        // Idle flows are to expire; without any there is nothing to wake up for.
        if self.process.cache.is_empty() {
            return 60_000;
        }
        self.rounds.rest_ms(self.process.now_ms) as u32
    }

    /// Carries out waiting commands. False when one says to stop.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.commands.pop() {
            match command {
                Command::AddRx { port, idx, queue, load } => self.add_rx(port, idx, queue, load),
                Command::ReleaseRx { port, idx, ticket } => self.release_rx(port, idx, ticket),
                Command::AddTx { port, handle, counters } => {
                    self.process.out.set_input(port, Some(counters.clone()));
                    self.process.tx.add_port(port, handle, counters.clone());
                    for q in self.rx.iter_mut().filter(|q| q.port == port) {
                        q.counters = Some(counters.clone());
                    }
                }
                Command::RemovePort { port, ticket } => self.remove_port(port, ticket),
                Command::ReleasePort { port, ticket } => self.release_port(port, ticket),
                Command::Execute { packet, actions } => {
                    self.process.execute_now(packet, &actions);
                    self.answer(Reply::Spent(actions));
                }
                Command::Dump { ticket, from, mut out } => {
                    let next = self.process.cache.dump(from, out.capacity(), &mut out);
                    self.answer(Reply::Dump { ticket, flows: out, next });
                }
                Command::Flush => self.process.cache.flush(&self.process.slots),
                Command::Stop => return false,
            }
        }
        true
    }

    /// The ring of answers has room for one per command, so this never fails; a full ring would leak into the drop here.
    fn answer(&mut self, reply: Reply) {
        let _ = self.replies.push(reply);
    }

    fn add_rx(&mut self, port: PortNo, idx: usize, queue: Box<dyn RxQueue>, load: Arc<QueueLoad>) {
        if let Some(fd) = queue.wait_fd() {
            // A descriptor that epoll refuses is polled like one that is not there.
            let _ = self.waiter.add(fd);
        }
        let counters = self.process.out.input(port).cloned();
        let served = self.rx.iter().map(|q| q.served).min().unwrap_or(0);
        self.rx.push(Rx {
            port,
            idx,
            lends: queue.lends(),
            queue,
            load,
            counters,
            served,
            active: false,
            gone: false,
            is_busy: true,
            quiet: 0,
            in_pass: 0,
            backlog: Backlog::default(),
            rest: Rest::default(),
        });
        self.list_busy();
    }

    /// Places in `rx` have changed, or queues have come.
    fn list_busy(&mut self) {
        self.busy.clear();
        self.busy.extend((0..self.rx.len()).filter(|&n| self.rx[n].is_busy));
        // Room for all, so that a queue that wakes up allocates nothing.
        self.busy.reserve(self.rx.len() - self.busy.len());
    }

    fn remove_port(&mut self, port: PortNo, ticket: u64) {
        let mut rx = self.take_rx(port);
        rx.iter_mut().for_each(|q| q.close(&mut self.process.out.cache));
        let tx = self.process.tx.remove_port(&mut self.process.out, port);
        self.process.out.set_input(port, None);
        self.answer(Reply::Removed { ticket, rx, tx });
    }

    fn release_port(&mut self, port: PortNo, ticket: u64) {
        let mut rx = self.take_rx(port);
        rx.iter_mut().for_each(|q| q.disarm());
        let tx = self.process.tx.release_port(&mut self.process.out, port);
        self.process.out.set_input(port, None);
        self.answer(Reply::Released { ticket, port, rx, tx });
    }

    fn release_rx(&mut self, port: PortNo, idx: usize, ticket: u64) {
        let at = self.rx.iter().position(|q| q.port == port && q.idx == idx);
        let released = at.map(|n| {
            let mut q = self.rx.remove(n);
            if let Some(fd) = q.queue.wait_fd() {
                self.waiter.remove(fd);
            }
            q.queue.disarm();
            q.queue
        });
        self.list_busy();
        self.answer(Reply::ReleasedRx { ticket, port, idx, queue: released });
    }

    /// Takes a port's receive queues out, in their order.
    fn take_rx(&mut self, port: PortNo) -> Vec<Box<dyn RxQueue>> {
        let mut taken = Vec::new();
        while let Some(n) = self.rx.iter().position(|q| q.port == port) {
            let q = self.rx.remove(n);
            if let Some(fd) = q.queue.wait_fd() {
                self.waiter.remove(fd);
            }
            taken.push((q.idx, q.queue));
        }
        // One that came from another worker came last.
        taken.sort_by_key(|(idx, _)| *idx);
        let taken = taken.into_iter().map(|(_, queue)| queue).collect();
        self.list_busy();
        taken
    }
}

/// A worker without a thread: who holds it takes its turns. For tests that are to replay, and for measuring what a
/// turn does (allocations, say) from within its thread. It never sleeps.
pub struct SteppedWorker<P: Pipeline> {
    worker: Worker<P>,
    batch: Box<Batch>,
}

impl<P: Pipeline> SteppedWorker<P> {
    pub(crate) fn new(mut worker: Worker<P>) -> Self {
        worker.pass_start = tsc();
        worker.tick(worker.pass_start);
        SteppedWorker { worker, batch: Box::new(Batch::new()) }
    }

    /// One pass of the loop. True when packets came, or the caches' counters are not all folded yet.
    pub fn turn(&mut self) -> bool {
        !matches!(self.worker.turn(&mut self.batch, 0), Turn::Stop | Turn::Idle { rest: true, .. })
    }
}

impl<P: Pipeline> Drop for SteppedWorker<P> {
    fn drop(&mut self) {
        self.worker.close();
    }
}
