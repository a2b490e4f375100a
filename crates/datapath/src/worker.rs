//! The worker's loop: poll, process, send, look after the caches, sleep.
//!
//! One pass, as numbered in [`Worker::turn`] and [`Worker::run`]:
//! 1. a quiescent point, and commands from the control thread;
//! 2. each receive queue in turn, one burst;
//! 3. packets collected for the outputs are sent;
//! 4. the clock, and the caches' sweep;
//! 5. after some time without a packet: sleep until a descriptor is readable, unless told never to.
//!
//! The [schedule](crate::schedule) decides which queue is polled when, which is left alone, and when the
//! worker sleeps.

pub(crate) mod commands;

use crate::input::Input;
use crate::pipeline::Pipeline;
use crate::process::Process;
use crate::rounds::{FLUSHED_AT_ONCE, FLUSHED_BESIDE_PACKETS, Now, Rounds, Sweep};
use crate::schedule::{Admission, Burst, Pass, Schedule};
use crate::stats::{QueueLoad, WorkerStats};
use base::clock::tsc;
use base::{Counter, Watermark};
use packet::wait::{Bell, Waiter};
use packet::{Batch, Lent, Packet, RxOutcome, RxQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use commands::{Command, PortQueues, Reply};

/// A burst of this many packets is sent as soon as it is processed: its queue is charged for what its packets
/// cost. Shorter bursts wait for the others of their pass, to go out together, and share the cost; a long one
/// sends them off before.
///
/// `bench pvp` with a guest's testpmd: while the source's 32 packets for the guest were sent when the pass
/// ended, the cost, most of what the worker did, was charged to nobody. The guest's queue counted as the
/// dearer one, was passed over two times of three, and the guest dropped 62 % for want of descriptors.
const SEND_AT: u64 = 32;

/// What both sides of a worker share.
#[derive(Default)]
pub struct Shared {
    /// The control thread increments this to request a full fold.
    pub fold_wanted: Watermark,
    /// The last request served.
    pub fold_done: Watermark,
    /// Chunks of packets of the control thread on which the worker has executed actions.
    pub executed: Counter,
    /// It polls for ever, and never sleeps.
    pub never_sleeps: AtomicBool,
}

/// Milliseconds since the datapath started, from the time stamp counter; with an offset, so that no time of
/// use is 0 or before it.
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
    /// The port that it belongs to.
    input: Box<Input>,
    /// Its number within the port.
    idx: usize,
    queue: Box<dyn RxQueue>,
    load: Arc<QueueLoad>,
    /// Packets of the last pass in which some came.
    in_pass: u64,
}

/// How a pass went.
enum Turn {
    /// The control thread told it to stop.
    Stop,
    /// Packets came.
    Moved,
    /// None came; `is_done` if there is nothing else to do either.
    Idle { end: u64, is_done: bool },
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
    /// For the queues in `rx`, by the same positions.
    schedule: Schedule,
    next_tick: u64,
    rounds: Rounds,
    last_rank_ms: u64,
    pub measures_passes: bool,
    /// When the last pass began, and whether packets came in it.
    pass_start: u64,
    was_busy: bool,
    /// While packets come, none of the control thread's has its turn before this time: they take half of the
    /// worker's time at most.
    next_execution: u64,
    /// The queues from which packets came in this pass.
    brought: Vec<usize>,
    /// How many of them, the first ones, have nothing left to send. The packets of the others wait for the
    /// pass's end, or for a long burst.
    sent: usize,
    /// When the thread's CPU time was last read, by both clocks.
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
            schedule: Schedule::new(base::clock::tsc_hz() / 1_000_000, tsc()),
            next_tick: 0,
            rounds: Rounds::default(),
            last_rank_ms: 0,
            measures_passes: false,
            pass_start: 0,
            was_busy: false,
            next_execution: 0,
            brought: Vec::new(),
            sent: 0,
            cpu_read: (0, 0),
        }
    }

    /// The bell that wakes it up.
    pub fn bell(&self) -> Arc<Bell> {
        self.waiter.bell()
    }

    fn stats(&self) -> &WorkerStats {
        &self.process.context.stats
    }

    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        let mut batch = Batch::new();
        self.pass_start = tsc();
        self.stats().began.set(self.pass_start);
        self.tick(self.pass_start);
        loop {
            match self.turn(&mut batch) {
                Turn::Stop => break,
                // 5. Sleep.
                Turn::Idle { end, is_done: true } if self.may_sleep(end) => {
                    self.account(end);
                    self.sleep();
                    self.pass_start = tsc();
                    self.schedule.woke(self.pass_start);
                }
                Turn::Moved | Turn::Idle { .. } => {}
            }
        }
        self.close();
    }

    fn may_sleep(&self, now: u64) -> bool {
        // One that has no queue has nothing to poll.
        let polls = !self.rx.is_empty() && self.shared.never_sleeps.load(Ordering::Relaxed);
        self.schedule.may_sleep(now) && !polls
    }

    /// Closes the last pass's account at `now`: what it did after its packets, mostly sweeping, was also
    /// work.
    #[inline(always)]
    fn account(&mut self, now: u64) {
        let stats = &self.process.context.stats;
        let cycles = if self.was_busy { &stats.busy_cycles } else { &stats.idle_cycles };
        cycles.add(now - self.pass_start);
        self.pass_start = now;
    }

    /// One pass except for the sleep.
    #[inline(always)]
    fn turn(&mut self, batch: &mut Batch) -> Turn {
        // 1. A quiescent point, and commands.
        self.process.reader_mut().quiescent();
        if !self.commands.is_empty() && !self.obey() {
            return Turn::Stop;
        }
        // 2. Receive queues.
        let start = tsc();
        self.account(start);
        let Pass { moved, now: polled, .. } = self.poll(start, batch);
        // 3. Outputs.
        let sent = if moved { self.send_waiting() } else { start };
        self.process.tx.flush(&mut self.process.context);
        let end = tsc();
        if moved {
            self.charge(sent - polled, end - sent);
        }
        if let Some(output) = self.process.tx.refusing.take() {
            self.schedule.refused_at(output);
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
            self.schedule.moved(start, end);
            return Turn::Moved;
        }
        self.stats().idle_loops.add(1);
        if !self.schedule.is_ahead() {
            self.process.context.share.begin_interval();
        }
        if self.schedule.take_left_alone() {
            self.sweep(false);
            return Turn::Idle { end, is_done: false };
        }
        // Folding comes before sleep, so that counters are exact once traffic has stopped.
        let is_swept = self.sweep(self.schedule.is_idle(end));
        Turn::Idle { end, is_done: is_swept && self.commands.is_empty() }
    }

    /// Sends what waits for the pass's end, and tells when that was done.
    #[inline(always)]
    fn send_waiting(&mut self) -> u64 {
        self.process.tx.send_waiting(&mut self.process.context);
        tsc()
    }

    /// Charges what the pass's end took to the queues that its packets came from, by number: `sending` to
    /// those whose packets had not been sent, `flushing` to all. A system call for them is their work, and
    /// queues are placed by their cost.
    #[inline(always)]
    fn charge(&mut self, sending: u64, flushing: u64) {
        if self.sent == 0 {
            // All packets of the pass have waited.
            self.charge_from(0, sending + flushing);
        } else {
            self.charge_from(self.sent, sending);
            self.charge_from(0, flushing);
        }
        self.brought.clear();
        self.sent = 0;
    }

    /// Charges cycles to the queues of the pass from this one on, by numbers of packets.
    #[inline(always)]
    fn charge_from(&mut self, first: usize, cycles: u64) {
        let all = self.brought[first..].iter().map(|&n| self.rx[n].in_pass).sum::<u64>();
        for &n in &self.brought[first..] {
            let q = &self.rx[n];
            let share = cycles * q.in_pass / all;
            q.load.cycles.add(share);
            self.schedule.charge(n, share);
        }
    }

    /// Sends what shorter bursts of the pass have left, at their queues' expense. Returns what that took.
    #[inline(never)]
    fn send_others(&mut self) -> u64 {
        let start = tsc();
        let took = self.send_waiting() - start;
        self.charge_from(self.sent, took);
        took
    }

    fn close(&mut self) {
        for slot in 0..self.rx.len() {
            self.rx[slot].queue.close(&mut self.process.context.cache);
        }
        self.drop_commands();
    }

    /// One burst from each queue that may be polled.
    fn poll(&mut self, start: u64, batch: &mut Batch) -> Pass {
        let mut pass = self.schedule.begin(start);
        let mut is_up_to_date = true;
        while let Some(n) = self.schedule.next_busy(&mut pass) {
            let now = pass.now;
            is_up_to_date = self.poll_queue(n, now, &mut pass, batch);
        }
        while let Some(count) = self.schedule.idle_group(&mut pass) {
            self.poll_idle(count, &mut pass, batch);
            is_up_to_date = true;
        }
        // What is sent at the end pays for no fruitless polls.
        if pass.moved && !is_up_to_date {
            pass.now = tsc();
        }
        pass
    }

    /// Looks at the next few queues, including idle ones.
    #[inline(never)]
    fn poll_idle(&mut self, count: usize, pass: &mut Pass, batch: &mut Batch) {
        let mut had_any = false;
        for _ in 0..count {
            if let Some(n) = self.schedule.next_idle() {
                had_any |= self.poll_queue(n, 0, pass, batch);
            }
        }
        self.schedule.idle_group_ended(pass, had_any, tsc());
    }

    /// One burst from a queue, if it may be polled. True if anything came. `now` is 0 for an idle queue:
    /// reception of its first burst is not charged, which saves reading the clock when there is none.
    #[inline(always)]
    fn poll_queue(&mut self, n: usize, now: u64, pass: &mut Pass, batch: &mut Batch) -> bool {
        let is_let_in = match self.schedule.admits(n, pass, now) {
            Admission::Yes => true,
            Admission::No => false,
            Admission::IfRoom(port) => {
                let has_room = self.process.tx.has_room(port);
                let (is_let_in, is_held_anew) = self.schedule.asked(n, pass, has_room, tsc());
                self.stats().held_back.add(u64::from(is_held_anew));
                is_let_in
            }
        };
        if !is_let_in {
            return false;
        }
        let q = &mut self.rx[n];
        let context = &mut self.process.context;
        let outcome = q.queue.rx_begin(&mut context.cache, batch);
        if batch.is_empty() {
            if outcome == RxOutcome::Refused {
                self.charge_refused(n, now, pass);
                return true;
            }
            self.schedule.came_empty(n, outcome == RxOutcome::Gone);
            if outcome == RxOutcome::Gone {
                // A full ring means that the control thread is far behind; it then finds out from the port's
                // status.
                let _ = self.replies.push(Reply::Gone(q.input.port));
            }
            return false;
        }
        let mut start = if now == 0 { tsc() } else { now };
        let packets = batch.len() as u64;
        if let Some(c) = &q.input.counters {
            c.rx_packets.add(packets);
            c.rx_bytes.add(batch.iter().map(Packet::len).sum::<usize>() as u64);
        }
        if packets >= SEND_AT && self.sent < self.brought.len() {
            start += self.send_others();
        }
        let q = &mut self.rx[n];
        let context = &mut self.process.context;
        let suspect = self.schedule.suspect(n);
        let before =
            suspect.map(|port| (port, self.process.tx.destined_to(port), context.stats.copies.get()));
        let translation = self.process.burst(&mut q.input, batch, Lent::of(q.queue.as_mut()).as_mut());
        self.brought.push(n);
        if packets >= SEND_AT {
            self.process.tx.send_waiting(&mut self.process.context);
            self.sent = self.brought.len();
        }
        let end = tsc();
        let is_sole = before.is_some_and(|(port, destined, copies)| {
            // A copied packet also went elsewhere.
            self.process.tx.destined_to(port).wrapping_sub(destined) == packets
                && self.process.context.stats.copies.get() == copies
        });
        q.load.cycles.add(end - start);
        q.load.packets.add(packets);
        q.in_pass = packets;
        self.schedule.received(n, pass, Burst { packets, start, end, translation, is_sole });
        true
    }

    /// A queue pays for packets that were refused as for others.
    #[cold]
    fn charge_refused(&mut self, n: usize, now: u64, pass: &mut Pass) {
        let end = tsc();
        let start = if now == 0 { end } else { now };
        self.rx[n].load.cycles.add(end - start);
        self.schedule.received(n, pass, Burst { packets: 0, start, end, translation: 0, is_sole: false });
    }

    /// Reads the thread's CPU time every 100 us: a pass that took longer appears as a long interval.
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
        let passed_ms = now_ms.saturating_sub(self.process.now_ms);
        self.process.now_ms = now_ms;
        self.process.context.tick(now_ms);
        self.process.cache.set_now(now_ms);
        if now_ms - self.last_rank_ms >= 100 {
            self.last_rank_ms = now_ms;
            self.process.cache.rank_masks();
            self.tell_sizes();
        }
        let is_asked = self.shared.fold_wanted.reached() != self.shared.fold_done.reached();
        self.rounds.tick(passed_ms, self.process.cache.round_len().into(), is_asked);
    }

    /// Sweeps the caches as [`Rounds`] says. True when there is nothing to do before the next round.
    fn sweep(&mut self, is_idle: bool) -> bool {
        let is_flushing = self.process.cache.is_flushing();
        if is_flushing {
            let count = if self.was_busy { FLUSHED_BESIDE_PACKETS } else { FLUSHED_AT_ONCE };
            self.process.cache.flush_some(count);
        }
        let (now_ms, received) = (self.process.now_ms, self.stats().rx.get());
        let (wanted, served) = (self.shared.fold_wanted.reached(), self.shared.fold_done.reached());
        let (count, begins) = match self.rounds.next(Now { now_ms, received, wanted, served, is_idle }) {
            Sweep::Done => return !is_flushing,
            Sweep::Later => return false,
            Sweep::Go { count, begins } => (count, begins),
        };
        if begins {
            self.process.note_version();
            self.process.cache.start_round();
        }
        let mut unbounded = u32::MAX;
        let is_pressing = is_idle || self.process.cache.is_crowded();
        let removals = if is_pressing { &mut unbounded } else { &mut self.rounds.removals_due };
        if self.process.cache.sweep(count, removals)
            && let Some(request) = self.rounds.ended()
        {
            // A waiter for flow counters also needs the number of flows.
            self.tell_sizes();
            self.shared.fold_done.raise(request);
            self.process.event_bell.ring();
        }
        false
    }

    fn sleep(&mut self) {
        let mut queues = self.rx.iter_mut().enumerate();
        if queues.all(|(n, q)| self.schedule.is_gone(n) || q.queue.arm()) && self.commands.is_empty() {
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
        let mut queues = self.rx.iter().enumerate();
        let blind = queues.any(|(n, q)| !self.schedule.is_gone(n) && q.queue.wait_fd().is_none());
        if blind || self.process.tx.has_pending() {
            return 1;
        }
        // Idle flows, connections and fragments must expire; without any, there is no reason to wake up.
        let of_tracker_ms = self.process.context.until_expiry_ms().unwrap_or(60_000);
        let of_flows_ms = match self.process.cache.is_empty() {
            true => 60_000,
            false => self.rounds.free_ms(self.process.now_ms),
        };
        of_tracker_ms.min(of_flows_ms) as u32
    }
}

/// A worker without a thread: its holder runs its passes. For tests that must be reproducible, and for
/// measuring what a pass does (allocations, for example) from within its thread. It never sleeps. While time
/// is stopped, its clock advances only when time is warped.
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

    /// One pass of the loop. True if packets came, or if not all counters of the caches are folded yet.
    pub fn turn(&mut self) -> bool {
        self.worker.schedule.assume_idle();
        if base::clock::stopped_tsc() != u64::MAX {
            let has_passed = self.worker.clock.now_ms() != self.worker.process.now_ms;
            self.worker.next_tick = if has_passed { 0 } else { u64::MAX };
        }
        !matches!(self.worker.turn(&mut self.batch), Turn::Stop | Turn::Idle { is_done: true, .. })
    }
}

impl<P: Pipeline> Drop for SteppedWorker<P> {
    fn drop(&mut self) {
        self.worker.close();
    }
}
