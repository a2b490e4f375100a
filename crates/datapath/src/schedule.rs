//! When a worker polls which receive queue, when it leaves one alone, and when it sleeps.
//!
//! - **Fairness.** Queues are served by the cycles that they cost. One that is ahead of the others (its
//!   bursts need translation, which counts double) is passed over until they have caught up: who opens new
//!   flows at full speed takes its own share of the worker alone, and what it is too late for waits, or is
//!   lost, in its own device.
//! - **Idle queues** are polled in turn, at the price of a small share of the time that the others take.
//! - **Coalescing.** A guest's queue is left alone for a moment after a short burst ([`coalescing`]).
//! - **Back-pressure.** A queue that feeds one full output alone is held back until there is room
//!   ([`back_pressure`]).
//! - **Sleep** comes after some time without a packet: the shorter the longer the last sleep was, and longer
//!   after packets from guests (linger).
//!
//! Pure: times are cycles of the time stamp counter, and arguments. The worker asks and tells, in this order:
//! [`Schedule::begin`]; [`Schedule::next_busy`] until there is none; [`Schedule::idle_group`] and in each
//! [`Schedule::next_idle`]; for each queue [`Schedule::admits`], then [`Schedule::came_empty`] or
//! [`Schedule::received`]; [`Schedule::moved`] where packets came, else [`Schedule::may_sleep`] and
//! [`Schedule::woke`].

mod back_pressure;
mod coalescing;
#[cfg(test)]
mod tests;

use back_pressure::BackPressure;
use base::PortNo;
use coalescing::Coalescing;

/// The policy's numbers, each with what it was measured by (`bench/runs/` has the runs).
mod policy {
    /// How far a queue may be ahead of the least served one before it is passed over, in cycles: some bursts
    /// of hits. `bench fairness`: neighbours of a queue of new flows alone keep their share of the worker.
    pub const AHEAD_CYCLES_MAX: u64 = 20_000;
    /// A queue that was polled in vain so often is idle, and is polled in turn with the other idle ones.
    pub const QUIET_POLLS: u32 = 64;
    /// Idle queues take one part in so many of the busy ones' time at most. `bench ports`: two busy ports
    /// among 512 cost 1.02 times what they cost alone.
    pub const IDLE_SHARE: i64 = 64;
    /// Idle queues are polled in groups of so many, between which the clock is read (25 cycles).
    pub const IDLE_GROUP: usize = 8;
    /// Time for idle queues saved up at most, in cycles: a look at each of some hundreds.
    pub const IDLE_CREDIT_MAX: i64 = 100_000;
    /// Polls in vain for this long before it sleeps: about what a sleep and the wake-up cost those who wait
    /// for it. `bench wake`: 105 us through the switch, of which 92 are a bare wake.
    pub const SPIN_US: u64 = 60;
    /// The same where the last sleep was a long one. Packets that come in bursts far apart are not met by
    /// polling: each burst paid for 60 us of it, several times what its packets cost.
    pub const SHORT_SPIN_US: u64 = 10;
    /// Nothing came for this long, the wake-up included: a long sleep.
    pub const LONG_IDLE_US: u64 = 2 * SPIN_US;
    /// After packets from guests it polls longer, for one part in so many of the time that they took, in all:
    /// a guest may lose its processor for milliseconds, and what it then sends at once fills its ring before
    /// a sleeper has woken. Rates without loss, `bench pvp`: 1.5 million a second without this and without
    /// coalescing, 1.8 with both.
    pub const LINGER_SHARE: u64 = 8;
    /// And no longer than this at once.
    pub const LINGER_MAX_US: u64 = 5_000;
    /// Without a packet for this long, the caches are swept a good piece at a time. Not sooner: in the gap
    /// between two bursts of a guest's the lines that the next one needs would go for it.
    pub const SWEEP_IDLE_US: u64 = SHORT_SPIN_US;
    /// How long a queue is left alone to coalesce: what a guest that sends two million packets a second needs
    /// for half a burst. The worker took 660 busy cycles per packet in place of 1,550, which met packets one
    /// by one.
    pub const COALESCE_US: u64 = 8;
    /// A burst of so many packets is worth its poll.
    pub const SHORT_BURST: u64 = 16;
    /// A wait after which fewer have come was in vain.
    pub const GATHERED_MIN: u64 = 4;
    /// Short bursts that go by without a wait after one in vain, at the most.
    pub const COALESCE_SKIP_MAX: u32 = 1_024;
    /// The longest that a queue is held back at once: what a guest of a million packets a second takes for a
    /// burst.
    pub const HOLD_US: u64 = 30;
    /// A full port is asked again after this time: its ring's index lies in a line that the guest writes, and
    /// each look takes that line away from it.
    pub const ASK_NS: u64 = 500;
    /// Bursts in a row for the full port alone, before a queue is held back for the first time. Of a source
    /// that offers three times what a guest takes, two of three packets were received and classified in vain.
    pub const PROOF_BURSTS: u32 = 64;
    /// How much more proof is asked for after an error, and the most: some seconds at full speed. `bench
    /// fairness` with a guest that has stopped: another port of the same source keeps its rate.
    pub const PROOF_FACTOR: u32 = 8;
    pub const PROOF_BURSTS_MAX: u32 = 1 << 20;
    /// After so many bursts for which there was room at once, the output is no bottleneck any more.
    pub const CALM_BURSTS: u32 = 256;
}
use policy::*;

/// One receive queue.
struct Queue {
    /// Its packets come from a guest's memory.
    is_guests: bool,
    /// Cycles that it has cost, on a scale shared by the worker's queues.
    served: u64,
    /// Packets came at the last poll.
    active: bool,
    gone: bool,
    /// Whether it is polled in every pass.
    is_busy: bool,
    /// Polls in vain since its last packet.
    quiet: u32,
    back_pressure: BackPressure,
    coalescing: Coalescing,
}

/// Whether a queue may be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Yes,
    No,
    /// If this port has room: [`Schedule::asked`] is to be told.
    IfRoom(PortNo),
}

/// A burst that was received and processed.
pub(crate) struct Burst {
    pub packets: u64,
    /// When it was received and when it was done.
    pub start: u64,
    pub end: u64,
    /// Cycles that translation took.
    pub translation: u64,
    /// All its packets went to the port that [`Schedule::suspect`] has named, and nowhere else.
    pub is_sole: bool,
}

/// One pass over the queues.
pub(crate) struct Pass {
    start: u64,
    /// When the last burst was done.
    pub now: u64,
    /// Packets came.
    pub moved: bool,
    /// What the least served active queue has cost.
    floor: u64,
    /// The place in `busy` of the queue that is polled.
    at: Option<usize>,
    /// Places that are still to be looked at in turn; `None` before the first idle group.
    left: Option<usize>,
}

/// See the module's text.
pub(crate) struct Schedule {
    cycles_per_us: u64,
    queues: Vec<Queue>,
    /// Those that are polled in every pass.
    busy: Vec<usize>,
    /// The last one looked at in turn.
    idle_next: usize,
    /// Cycles that may be spent on looking at idle queues; negative for what was spent too much.
    idle_credit: i64,
    /// A queue, maybe with packets, was left alone in this pass.
    left_alone: bool,
    /// When the last packets were done, or the last sleep.
    idle_since: u64,
    /// How long it polls in vain before it sleeps, and how much longer.
    spin: u64,
    linger: u64,
}

impl Schedule {
    pub fn new(cycles_per_us: u64, now: u64) -> Schedule {
        Schedule {
            cycles_per_us,
            queues: Vec::with_capacity(64),
            busy: Vec::with_capacity(64),
            idle_next: 0,
            idle_credit: 0,
            left_alone: false,
            idle_since: now,
            spin: SPIN_US * cycles_per_us,
            linger: 0,
        }
    }

    /// A queue more, behind the others.
    pub fn add(&mut self, is_guests: bool) {
        let served = self.queues.iter().map(|q| q.served).min().unwrap_or(0);
        self.queues.push(Queue {
            is_guests,
            served,
            active: false,
            gone: false,
            is_busy: true,
            quiet: 0,
            back_pressure: BackPressure::default(),
            coalescing: Coalescing::default(),
        });
        self.list_busy();
    }

    /// Queue `n` goes; those behind it move up.
    pub fn remove(&mut self, n: usize) {
        self.queues.remove(n);
        self.list_busy();
    }

    fn list_busy(&mut self) {
        self.busy.clear();
        self.busy.extend((0..self.queues.len()).filter(|&n| self.queues[n].is_busy));
        // Room for all, so that a queue that wakes up allocates nothing.
        self.busy.reserve(self.queues.len() - self.busy.len());
    }

    pub fn is_gone(&self, n: usize) -> bool {
        self.queues[n].gone
    }

    /// The queues that are polled in every pass.
    #[inline(always)]
    pub fn busy(&self) -> &[usize] {
        &self.busy
    }

    /// Begins a pass.
    #[inline(always)]
    pub fn begin(&self, start: u64) -> Pass {
        let busy = self.busy.iter().map(|&n| &self.queues[n]);
        let floor = busy.filter(|q| q.active).map(|q| q.served).min().unwrap_or(0);
        Pass { start, now: start, moved: false, floor, at: None, left: None }
    }

    /// The next busy queue. One that has become idle with its last poll is busy no more.
    #[inline(always)]
    pub fn next_busy(&mut self, pass: &mut Pass) -> Option<usize> {
        let at = match pass.at {
            None => 0,
            Some(at) => {
                let q = &mut self.queues[self.busy[at]];
                if q.gone || q.quiet >= QUIET_POLLS {
                    q.is_busy = false;
                    self.busy.swap_remove(at);
                    at
                } else {
                    at + 1
                }
            }
        };
        pass.at = Some(at);
        self.busy.get(at).copied()
    }

    /// How many queues to look at in turn, by [`Self::next_idle`], before this is asked again; `None` when it
    /// is enough. All at once where the busy ones had nothing: hundreds of idle ports must not slow two busy
    /// ones, but nothing else is to be done.
    #[inline(always)]
    pub fn idle_group(&mut self, pass: &mut Pass) -> Option<usize> {
        let all = self.queues.len();
        if all == self.busy.len() {
            return None;
        }
        let left = match pass.left {
            Some(left) => left,
            None if !pass.moved => {
                pass.left = Some(0);
                return Some(all);
            }
            None => {
                let share = (pass.now - pass.start) as i64 / IDLE_SHARE;
                self.idle_credit = (self.idle_credit + share).min(IDLE_CREDIT_MAX);
                all
            }
        };
        if self.idle_credit <= 0 || left == 0 {
            return None;
        }
        let some = left.min(IDLE_GROUP);
        pass.left = Some(left - some);
        Some(some)
    }

    /// The next queue in turn, if it is an idle one.
    #[inline(always)]
    pub fn next_idle(&mut self) -> Option<usize> {
        self.idle_next = if self.idle_next + 1 < self.queues.len() { self.idle_next + 1 } else { 0 };
        let is_idle = self.queues.get(self.idle_next).is_some_and(|q| !q.is_busy);
        is_idle.then_some(self.idle_next)
    }

    /// A group of idle queues has been looked at; `had_any` where packets came, whose time is not charged to
    /// the idle.
    #[inline(always)]
    pub fn idle_group_ended(&mut self, pass: &mut Pass, had_any: bool, now: u64) {
        if !had_any {
            self.idle_credit -= (now - pass.now) as i64;
        }
        pass.now = now;
    }

    /// Whether queue `n` may be polled. `now` is 0 for an idle one, whose time is not known: it has been
    /// looked at in vain since it was left alone.
    #[inline(always)]
    pub fn admits(&mut self, n: usize, pass: &Pass, now: u64) -> Admission {
        let q = &mut self.queues[n];
        if q.gone || (q.active && q.served > pass.floor + AHEAD_CYCLES_MAX) {
            return Admission::No;
        }
        if q.coalescing.is_on(now) || q.back_pressure.is_held(now) {
            return self.leave_alone(n);
        }
        if let Some(port) = q.back_pressure.needs_room() {
            return Admission::IfRoom(port);
        }
        self.let_in(n, pass);
        Admission::Yes
    }

    /// The answer to [`Admission::IfRoom`]: whether the queue may be polled, and whether it is held back
    /// anew.
    #[inline(never)]
    pub fn asked(&mut self, n: usize, pass: &Pass, has_room: bool, now: u64) -> (bool, bool) {
        let was_held = self.queues[n].back_pressure.is_holding();
        if !self.queues[n].back_pressure.may_receive(has_room, now, self.cycles_per_us) {
            self.leave_alone(n);
            return (false, !was_held);
        }
        self.let_in(n, pass);
        (true, false)
    }

    fn leave_alone(&mut self, n: usize) -> Admission {
        // It must not hold back the others by its old account.
        self.queues[n].active = false;
        self.left_alone = true;
        Admission::No
    }

    #[inline(always)]
    fn let_in(&mut self, n: usize, pass: &Pass) {
        let q = &mut self.queues[n];
        if !q.active {
            // An idle queue has no credit from the past.
            q.served = q.served.max(pass.floor);
        }
    }

    /// Queue `n` had nothing; `gone` where its device is no more.
    #[inline(always)]
    pub fn came_empty(&mut self, n: usize, gone: bool) {
        let q = &mut self.queues[n];
        q.active = false;
        q.quiet = q.quiet.saturating_add(1);
        q.gone |= gone;
    }

    /// The port to which a burst of queue `n` is suspected to go alone.
    #[inline(always)]
    pub fn suspect(&self, n: usize) -> Option<PortNo> {
        self.queues[n].back_pressure.output()
    }

    /// Queue `n` had packets.
    #[inline(always)]
    pub fn received(&mut self, n: usize, pass: &mut Pass, burst: Burst) {
        let q = &mut self.queues[n];
        let cost = burst.end - burst.start;
        (q.active, q.quiet) = (true, 0);
        q.served += cost + burst.translation;
        if q.back_pressure.output().is_some() {
            q.back_pressure.received(burst.is_sole);
        }
        if q.is_guests {
            q.coalescing.received(burst.packets, burst.end, self.cycles_per_us);
            self.linger = (self.linger + cost / LINGER_SHARE).min(LINGER_MAX_US * self.cycles_per_us);
        }
        if !q.is_busy {
            q.is_busy = true;
            self.busy.push(n);
        }
        pass.moved = true;
        pass.now = burst.end;
    }

    /// A port did not take all that it was sent.
    #[cold]
    pub fn refused_at(&mut self, output: PortNo) {
        for &n in &self.busy {
            self.queues[n].back_pressure.refused_at(output);
        }
    }

    /// Packets came in the pass that began at `start` and is over at `end`.
    #[inline(always)]
    pub fn moved(&mut self, start: u64, end: u64) {
        // What it polled in vain beyond its time came out of what it may linger.
        self.linger = self.linger.saturating_sub(start.saturating_sub(self.idle_since + self.spin));
        self.idle_since = end;
    }

    /// Whether a queue was left alone in the pass: there is more to do in a moment, too short to sleep in.
    #[inline(always)]
    pub fn take_left_alone(&mut self) -> bool {
        std::mem::take(&mut self.left_alone)
    }

    /// Whether nothing has come for so long that the caches may be swept a good piece at a time.
    #[inline(always)]
    pub fn is_idle(&self, now: u64) -> bool {
        now - self.idle_since > SWEEP_IDLE_US * self.cycles_per_us
    }

    /// Whether it has polled in vain for long enough.
    #[inline(always)]
    pub fn may_sleep(&self, now: u64) -> bool {
        now - self.idle_since > self.spin + self.linger
    }

    /// The worker has slept.
    pub fn woke(&mut self, now: u64) {
        let was_long = now - self.idle_since > LONG_IDLE_US * self.cycles_per_us;
        self.spin = self.cycles_per_us * if was_long { SHORT_SPIN_US } else { SPIN_US };
        (self.linger, self.idle_since) = (0, now);
    }

    /// As if nothing had come for ever, for a worker whose passes are taken one by one.
    pub fn assume_idle(&mut self) {
        self.idle_since = 0;
    }
}
