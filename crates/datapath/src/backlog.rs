//! Which receive queues are held back because the output that they feed is full.
//!
//! When a port refuses packets, every busy receive queue of the worker becomes a suspect: from then on it is noted whether all packets of
//! its bursts are destined to that port. The first burst of which one packet is not (or is dropped, copied, or goes
//! to the controller) clears the queue. One that has sent [`PROOF_BURSTS`] bursts there and nothing elsewhere is held back while the port
//! has no room for a burst, but never for longer than [`HOLD_US`]; then a burst is received whatever becomes of it, and
//! judged anew.
//!
//! So a packet for somebody else that stands behind such bursts waits for a moment. For a queue of many destinations that must stay
//! rare, even where somebody floods it with packets for a port that never makes room (a machine that is paused): each time that a queue
//! was held back and then turned out to feed others, it needs eight times as many bursts as proof, until it is practically
//! never believed again.
//!
//! The queue is cleared too when the port has had room [`CALM_BURSTS`] times in a row.
//!
//! Cost where nothing is refused: one test of a flag per burst.

use crate::context::Context;
use crate::transmission::Transmission;
use base::PortNo;
use base::clock::tsc;

/// The longest that a queue is held back at once. A guest that takes a million packets per second takes a burst in this time.
const HOLD_US: u64 = 30;
/// A full port is asked again after this time: its ring's index lies in a line that the guest writes, and each look at it takes that
/// line away from the guest, which has no burst's room ready sooner anyway.
const ASK_NS: u64 = 500;
/// Bursts in a row for the full port alone, before a queue is held back for the first time.
const PROOF_BURSTS: u32 = 64;
/// How much more proof is asked for after an error, and the most: some seconds at full speed.
const PROOF_FACTOR: u32 = 8;
const PROOF_BURSTS_MAX: u32 = 1 << 20;
/// After so many bursts for which there was room at once, the output is no bottleneck any more.
const CALM_BURSTS: u32 = 256;

/// One receive queue's state.
pub(crate) struct Backlog {
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
    /// What had been destined to the output before the burst.
    destined_before: u64,
    /// Copies that had been made before the burst.
    copies_before: u64,
}

impl Default for Backlog {
    fn default() -> Self {
        Backlog::suspect(None, PROOF_BURSTS)
    }
}

impl Backlog {
    fn suspect(output: Option<PortNo>, proof: u32) -> Backlog {
        Backlog {
            output,
            sole: 0,
            proof,
            was_held: false,
            held_since: 0,
            ask_at: 0,
            calm: 0,
            destined_before: 0,
            copies_before: 0,
        }
    }

    /// The output has refused packets, maybe of this queue's.
    #[cold]
    pub(crate) fn refused_at(&mut self, output: PortNo) {
        if self.output == Some(output) {
            self.calm = 0;
        } else if self.sole == 0 {
            *self = Backlog::suspect(Some(output), self.proof);
        }
    }

    /// Whether the queue is a suspect at all.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.output.is_some()
    }

    /// Whether the queue is still held back at `now` without asking anybody. False where `now` is 0, which is no time.
    #[inline(always)]
    pub(crate) fn is_held(&self, now: u64) -> bool {
        self.held_since != 0 && now != 0 && now < self.ask_at
    }

    /// Whether a burst may be received now. True makes ready for [`Self::received`].
    #[inline(never)]
    pub(crate) fn may_receive(&mut self, context: &Context, tx: &mut Transmission) -> bool {
        let Some(output) = self.output else { return true };
        if self.sole >= self.proof && !tx.has_room(output) {
            let now = tsc();
            self.ask_at = now + base::clock::tsc_hz() * ASK_NS / 1_000_000_000;
            if self.held_since == 0 {
                self.held_since = now;
                self.was_held = true;
                self.calm = 0;
                context.stats.held_back.add(1);
            }
            if now - self.held_since < base::clock::tsc_hz() / 1_000_000 * HOLD_US {
                return false;
            }
        } else if self.held_since == 0 {
            self.calm += 1;
        }
        self.held_since = 0;
        self.destined_before = tx.destined_to(output);
        self.copies_before = context.stats.copies.get();
        true
    }

    /// Judges a burst of `packets` that [`Self::may_receive`] has let in and that has been processed.
    #[inline(never)]
    pub(crate) fn received(&mut self, packets: u64, context: &Context, tx: &Transmission) {
        let Some(output) = self.output else { return };
        // A packet that was copied went elsewhere too.
        let is_sole = tx.destined_to(output).wrapping_sub(self.destined_before) == packets
            && context.stats.copies.get() == self.copies_before;
        if is_sole && self.calm <= CALM_BURSTS {
            self.sole = self.sole.saturating_add(1);
            return;
        }
        let was_wrong = self.was_held && !is_sole;
        let proof = if was_wrong { self.proof.saturating_mul(PROOF_FACTOR) } else { self.proof };
        *self = Backlog::suspect(None, proof.min(PROOF_BURSTS_MAX));
    }
}
