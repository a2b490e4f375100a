//! Which receive queues are held back because the output that they feed is full.
//!
//! When a port refuses packets, every busy receive queue of the worker becomes a suspect: from then on it is
//! noted whether all packets of its bursts are destined to that port. The first burst of which one packet is
//! not (or is dropped, copied, or goes to the controller) clears the queue. One that has sent `PROOF_BURSTS`
//! bursts there and nothing elsewhere is held back while the port has no room for a burst, but never for
//! longer than `HOLD_US`; then a burst is received whatever becomes of it, and judged anew.
//!
//! So a packet for somebody else that stands behind such bursts waits for a moment. For a queue of many
//! destinations that must stay rare, even where somebody floods it with packets for a port that never makes
//! room (a machine that is paused): each time that a queue was held back and then turned out to feed others,
//! it needs eight times as many bursts as proof, until it is practically never believed again.
//!
//! The queue is cleared too when the port has had room `CALM_BURSTS` times in a row.
//!
//! Cost where nothing is refused: one test of a flag per burst.

use super::policy::{ASK_NS, CALM_BURSTS, HOLD_US, PROOF_BURSTS, PROOF_BURSTS_MAX, PROOF_FACTOR};
use base::PortNo;

/// One receive queue's state.
pub(crate) struct BackPressure {
    /// The port that refused packets.
    output: Option<PortNo>,
    /// Bursts in a row of which all packets were destined to it, and how many are proof.
    sole: u32,
    proof: u32,
    /// It has been held back since it is a suspect.
    was_held: bool,
    /// Since when it is held back, by the time stamp counter; 0: it is not.
    held_since: u64,
    /// When the output is asked again.
    ask_at: u64,
    /// Bursts in a row for which there was room at once.
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

    /// The output has refused packets, maybe of this queue's.
    #[cold]
    pub(crate) fn refused_at(&mut self, output: PortNo) {
        if self.output == Some(output) {
            self.calm = 0;
        } else if self.sole == 0 {
            *self = BackPressure::suspect(Some(output), self.proof);
        }
    }

    /// The output that the queue is suspected to feed alone.
    #[inline(always)]
    pub(crate) fn output(&self) -> Option<PortNo> {
        self.output
    }

    /// Whether the queue is still held back at `now` without asking anybody. False where `now` is 0, which is
    /// no time.
    #[inline(always)]
    pub(crate) fn is_held(&self, now: u64) -> bool {
        self.held_since != 0 && now != 0 && now < self.ask_at
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held_since != 0
    }

    /// The output that must have room before a burst is received, or the time of holding back be over. A
    /// queue that has not given enough proof needs none.
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

    /// Judges a burst that was let in and has been processed: whether it went to the output alone.
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
