//! Which receive queues are held back because the output that they feed is full.
//!
//! When a port refuses packets, every busy receive queue of the worker becomes a suspect: from then on the
//! worker notes whether all packets of the queue's bursts are destined to that port. The first burst with a
//! packet that is not (or is dropped, copied, or sent to the controller) clears the queue. A queue that has
//! sent `PROOF_BURSTS` bursts there and nothing elsewhere is held back while the port has no room for a
//! burst, but never longer than `HOLD_US`; then a burst is received in any case, and judged again.
//!
//! So a packet for another port that is queued after such bursts waits for a moment. For a queue with many
//! destinations this must stay rare, even while it is flooded with packets for a port that never makes room
//! (a paused machine): each time a queue was held back and then turned out to feed others, it needs eight
//! times as many bursts as proof, until it is practically never held back again.
//!
//! The queue is also cleared when the port has had room `CALM_BURSTS` times in a row.
//!
//! Cost if nothing is refused: one test of a flag per burst.

use super::policy::{ASK_NS, CALM_BURSTS, HOLD_US, PROOF_BURSTS, PROOF_BURSTS_MAX, PROOF_FACTOR};
use base::PortNo;

/// One receive queue's state.
pub(crate) struct BackPressure {
    /// The port that refused packets.
    output: Option<PortNo>,
    /// Consecutive bursts with all packets destined to it, and how many are proof.
    sole: u32,
    proof: u32,
    /// It has been held back since it became a suspect.
    was_held: bool,
    /// When it began to be held back, by the time stamp counter; 0 if it is not.
    held_since: u64,
    /// When to check the output again.
    ask_at: u64,
    /// Consecutive bursts for which there was room at once.
    calm: u32,
}

impl Default for BackPressure {
    fn default() -> Self {
        BackPressure::suspect(None, PROOF_BURSTS)
    }
}

impl BackPressure {
    fn suspect(output: Option<PortNo>, proof: u32) -> BackPressure {
        BackPressure { output, sole: 0, proof, was_held: false, held_since: 0, ask_at: 0, calm: 0 }
    }

    /// The output has refused packets, possibly from this queue.
    #[cold]
    pub(crate) fn refused_at(&mut self, output: PortNo) {
        if self.output == Some(output) {
            self.calm = 0;
        } else if self.sole == 0 {
            *self = BackPressure::suspect(Some(output), self.proof);
        }
    }

    /// The output that the queue is suspected to feed exclusively.
    #[inline(always)]
    pub(crate) fn output(&self) -> Option<PortNo> {
        self.output
    }

    /// Whether the queue is still held back at `now`, without checking the output. False if `now` is 0, which
    /// means unknown.
    #[inline(always)]
    pub(crate) fn is_held(&self, now: u64) -> bool {
        self.held_since != 0 && now != 0 && now < self.ask_at
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held_since != 0
    }

    /// The output that must have room before a burst is received, unless the time limit has passed. None for
    /// a queue without enough proof.
    #[inline(always)]
    pub(crate) fn needs_room(&mut self) -> Option<PortNo> {
        let output = self.output?;
        if self.sole >= self.proof {
            return Some(output);
        }
        self.calm += 1;
        None
    }

    /// Whether a burst may be received now.
    pub(crate) fn may_receive(&mut self, has_room: bool, now: u64, cycles_per_us: u64) -> bool {
        if !has_room {
            self.ask_at = now + cycles_per_us * ASK_NS / 1_000;
            if self.held_since == 0 {
                self.held_since = now;
                self.was_held = true;
                self.calm = 0;
            }
            if now - self.held_since < cycles_per_us * HOLD_US {
                return false;
            }
        } else if self.held_since == 0 {
            self.calm += 1;
        }
        self.held_since = 0;
        true
    }

    /// Judges a processed burst: whether it went to the output alone.
    #[inline(never)]
    pub(crate) fn received(&mut self, is_sole: bool) {
        if is_sole && self.calm <= CALM_BURSTS {
            self.sole = self.sole.saturating_add(1);
            return;
        }
        let was_wrong = self.was_held && !is_sole;
        let proof = if was_wrong { self.proof.saturating_mul(PROOF_FACTOR) } else { self.proof };
        *self = BackPressure::suspect(None, proof.min(PROOF_BURSTS_MAX));
    }
}
