//! When a worker polls which receive queue, when it leaves one alone, and when it sleeps.
//!
//! - **Fairness.** Queues are served by the cycles that they cost. A queue that is ahead of the others (its
//!   bursts need translation, which counts double) is skipped until they have caught up. So a port that opens
//!   new flows at full speed uses only its own share of the worker; its packets beyond that wait, or are
//!   lost, in its own device.
//! - **Idle queues** are polled in turn, in a small share of the time that the others take.
//! - **Coalescing.** A guest's queue is left alone for a moment after a short burst ([`coalescing`]).
//! - **Back-pressure.** A queue that feeds only one output is held back while that output is full
//!   ([`back_pressure`]).
//! - **Sleep** comes after some time without a packet. That time is shorter the longer the last sleep was,
//!   and longer after packets from guests (linger).
//!
//! Pure: times are cycles of the time stamp counter, passed as arguments. The worker calls, in this order:
//! [`Schedule::begin`]; [`Schedule::next_busy`] until there is none; [`Schedule::idle_group`] and in each
//! [`Schedule::next_idle`]; for each queue [`Schedule::admits`], then [`Schedule::came_empty`] or
//! [`Schedule::received`]; [`Schedule::charge`] and [`Schedule::moved`] where packets came, else
//! [`Schedule::may_sleep`] and [`Schedule::woke`].

mod back_pressure;
mod coalescing;
mod policy;
#[cfg(test)]
mod tests;

use back_pressure::BackPressure;
use base::PortNo;
use coalescing::Coalescing;

use policy::*;

/// One receive queue.
struct Queue {
    /// Its packets come from guest memory.
    is_guests: bool,
    /// Cycles that it has cost, on a scale common to the worker's queues.
    served: u64,
    /// Packets came at the last poll.
    active: bool,
    gone: bool,
    /// Whether it is polled in every pass.
    is_busy: bool,
    /// Fruitless polls since its last packet.
    quiet: u32,
    back_pressure: BackPressure,
    coalescing: Coalescing,
}

/// Whether a queue may be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Yes,
    No,
    /// Only if this port has room; pass the answer to [`Schedule::asked`].
    IfRoom(PortNo),
}

/// A burst that was received and processed.
pub(crate) struct Burst {
    pub packets: u64,
    /// When it was received and when its processing ended.
    pub start: u64,
    pub end: u64,
    /// Cycles spent on translation.
    pub translation: u64,
    /// All its packets went to the port that [`Schedule::suspect`] named, and nowhere else.
    pub is_sole: bool,
}

/// One pass over the queues.
pub(crate) struct Pass {
    start: u64,
    /// The end of the last burst.
    pub now: u64,
    /// Packets came.
    pub moved: bool,
    /// What the least served active queue has cost.
    floor: u64,
    /// The position in `busy` of the queue being polled.
    at: Option<usize>,
    /// Positions still to look at in turn; `None` before the first idle group.
    left: Option<usize>,
}

/// See the module documentation.
pub(crate) struct Schedule {
    cycles_per_us: u64,
    queues: Vec<Queue>,
    /// Queues polled in every pass.
    busy: Vec<usize>,
    /// The last queue looked at in turn.
    idle_next: usize,
    /// Cycles that may be spent on idle queues; negative after overspending.
    idle_credit: i64,
    /// A queue that may have packets was left alone in this pass.
    left_alone: bool,
    /// A queue was left alone in this pass because it is ahead of others.
    is_ahead: bool,
    /// The end of the last packets' processing, or of the last sleep.
    idle_since: u64,
    /// How long it polls without packets before it sleeps, and how much longer after packets from guests.
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
            is_ahead: false,
            idle_since: now,
            spin: SPIN_US * cycles_per_us,
            linger: 0,
        }
    }

    /// Adds a queue after the others.
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

    /// Removes queue `n`; later ones move up.
    pub fn remove(&mut self, n: usize) {
        self.queues.remove(n);
        self.list_busy();
    }

    fn list_busy(&mut self) {
        self.busy.clear();
        self.busy.extend((0..self.queues.len()).filter(|&n| self.queues[n].is_busy));
        // Room for all, so that a queue that becomes busy needs no allocation.
        self.busy.reserve(self.queues.len() - self.busy.len());
    }

    pub fn is_gone(&self, n: usize) -> bool {
        self.queues[n].gone
    }

    /// Begins a pass.
    #[inline(always)]
    pub fn begin(&mut self, start: u64) -> Pass {
        self.is_ahead = false;
        let busy = self.busy.iter().map(|&n| &self.queues[n]);
        let floor = busy.filter(|q| q.active).map(|q| q.served).min().unwrap_or(0);
        Pass { start, now: start, moved: false, floor, at: None, left: None }
    }

    /// The next busy queue. A queue whose last poll made it idle is removed.
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

    /// How many queues to look at in turn, by [`Self::next_idle`], before this is called again; `None` when
    /// that is enough. All at once if the busy ones had nothing: hundreds of idle ports must not slow two
    /// busy ones, but otherwise there is nothing else to do.
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

    /// A group of idle queues has been looked at. `had_any` if packets came, whose time is not charged to the
    /// idle queues.
    #[inline(always)]
    pub fn idle_group_ended(&mut self, pass: &mut Pass, had_any: bool, now: u64) {
        if !had_any {
            self.idle_credit -= (now - pass.now) as i64;
        }
        pass.now = now;
    }

    /// Whether queue `n` may be polled. `now` is 0 for an idle queue, for which the time is not read: it has
    /// been polled without success since it was left alone.
    #[inline(always)]
    pub fn admits(&mut self, n: usize, pass: &Pass, now: u64) -> Admission {
        let q = &mut self.queues[n];
        if q.gone {
            return Admission::No;
        }
        if q.active && q.served > pass.floor + AHEAD_CYCLES_MAX {
            self.is_ahead = true;
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

    /// The answer to [`Admission::IfRoom`]: whether the queue may be polled, and whether this begins to hold
    /// it back.
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
        // Its old account must not hold back the others.
        self.queues[n].active = false;
        self.left_alone = true;
        Admission::No
    }

    #[inline(always)]
    fn let_in(&mut self, n: usize, pass: &Pass) {
        let q = &mut self.queues[n];
        if !q.active {
            // An idle queue keeps no credit from the past.
            q.served = q.served.max(pass.floor);
        }
    }

    /// Queue `n` had nothing; `gone` if its device no longer exists.
    #[inline(always)]
    pub fn came_empty(&mut self, n: usize, gone: bool) {
        let q = &mut self.queues[n];
        q.active = false;
        q.quiet = q.quiet.saturating_add(1);
        q.gone |= gone;
    }

    /// The port to which the bursts of queue `n` are suspected to go exclusively.
    #[inline(always)]
    pub fn suspect(&self, n: usize) -> Option<PortNo> {
        self.queues[n].back_pressure.output()
    }

    /// Queue `n` had packets, if only such as were refused.
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

    /// Queue `n` has also cost this much since: sending what it had received.
    #[inline(always)]
    pub fn charge(&mut self, n: usize, cycles: u64) {
        self.queues[n].served += cycles;
    }

    /// A port did not accept everything sent to it.
    #[cold]
    pub fn refused_at(&mut self, output: PortNo) {
        for &n in &self.busy {
            self.queues[n].back_pressure.refused_at(output);
        }
    }

    /// Packets came in the pass from `start` to `end`.
    #[inline(always)]
    pub fn moved(&mut self, start: u64, end: u64) {
        // Fruitless polling beyond the normal time reduces the time left to linger.
        self.linger = self.linger.saturating_sub(start.saturating_sub(self.idle_since + self.spin));
        self.idle_since = end;
    }

    /// Whether a queue was left alone in the pass. Then there is more to do in a moment, too soon to sleep.
    #[inline(always)]
    pub fn take_left_alone(&mut self) -> bool {
        std::mem::take(&mut self.left_alone)
    }

    /// Whether a queue was left alone in the pass because it is ahead of others: it may have packets.
    #[inline(always)]
    pub fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Whether nothing has come for so long that the caches may be swept in large steps.
    #[inline(always)]
    pub fn is_idle(&self, now: u64) -> bool {
        now - self.idle_since > SWEEP_IDLE_US * self.cycles_per_us
    }

    /// Whether it has polled without packets for long enough.
    #[inline(always)]
    pub fn may_sleep(&self, now: u64) -> bool {
        now - self.idle_since > self.spin + self.linger
    }

    /// Records that the worker has slept.
    pub fn woke(&mut self, now: u64) {
        let was_long = now - self.idle_since > LONG_IDLE_US * self.cycles_per_us;
        self.spin = self.cycles_per_us * if was_long { SHORT_SPIN_US } else { SPIN_US };
        (self.linger, self.idle_since) = (0, now);
    }

    /// Pretends that nothing has come for a long time, for a worker whose passes are run one by one.
    pub fn assume_idle(&mut self) {
        self.idle_since = 0;
    }
}
