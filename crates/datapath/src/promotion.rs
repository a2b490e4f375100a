//! Which bursts use the exact tier: all, but for ports whose packets hardly ever hit it.
//!
//! An exact entry pays once further packets hit it. Most flows have many packets, so a flow gets its entry
//! by the first one that hits a megaflow. While most packets that come in at a port are the only ones of
//! their flow (a scan, a flood from random addresses, name lookups), this costs more than it saves: each
//! packet reads a cold bucket, and fills a place that a flow of another port may need. So of such a port's
//! bursts one in [`FEW`], by chance, looks its packets up in the exact tier and promotes them; the others
//! begin with megaflows. A flow of many packets then still has its entry soon, and that shows when the port
//! is judged again: also where a million flows take turns, so that a fixed choice of bursts would meet each
//! of them only once in [`FEW`] turns.
//!
//! `bench flood` shows what this is worth: see its flood that a rule drops.

use std::sync::atomic::{AtomicU32, Ordering};

/// Packets after which a port is judged: those that missed; of sparse flows, all that were looked up. More
/// than the first packets of thousands of flows.
const JUDGED_AFTER: u64 = 16_384;
/// Its flows are sparse if fewer packets than this hit meanwhile.
const HITS_MIN: u64 = JUDGED_AFTER / 4;
/// One in this many bursts of sparse flows uses the exact tier. A power of two.
const FEW: u32 = 16;

/// One input port's state.
pub struct Promotion {
    /// Of packets that were looked up in the exact tier since the port was last judged.
    hits: u64,
    missed: u64,
    is_sparse: bool,
    /// So many bursts have begun, from an arbitrary number on.
    bursts: u32,
}

impl Default for Promotion {
    /// Each port has chances of its own: one that is made anew while the caches still have its flows would
    /// otherwise choose the same bursts again, hit all that it looks up, and think that it knows all.
    fn default() -> Promotion {
        static START: AtomicU32 = AtomicU32::new(0);
        let bursts = START.fetch_add(0x9e37_79b9, Ordering::Relaxed);
        Promotion { hits: 0, missed: 0, is_sparse: false, bursts }
    }
}

impl Promotion {
    /// The next burst begins, with all its rounds.
    #[inline(always)]
    pub fn begin_burst(&mut self) {
        self.bursts = self.bursts.wrapping_add(1);
    }

    /// Whether this burst uses the exact tier.
    #[inline(always)]
    pub fn uses_exact(&self) -> bool {
        !self.is_sparse || mixed(self.bursts).is_multiple_of(FEW)
    }

    /// Records how packets of a burst fared in the exact tier.
    #[inline(always)]
    pub fn looked_up(&mut self, hits: u64, missed: u64) {
        self.hits += hits;
        self.missed += missed;
        let judged = if self.is_sparse { self.hits + self.missed } else { self.missed };
        if judged >= JUDGED_AFTER {
            self.is_sparse = self.hits < HITS_MIN;
            (self.hits, self.missed) = (0, 0);
        }
    }
}

/// A number as if by chance, the same for the same burst.
fn mixed(n: u32) -> u32 {
    let n = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35);
    n ^ n >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bursts_of_flows_that_are_hardly_ever_hit_use_the_exact_tier_until_they_are_hit() {
        let mut promotion = Promotion::default();
        let used = |promotion: &mut Promotion| {
            let burst = |promotion: &mut Promotion| {
                promotion.begin_burst();
                promotion.uses_exact() && promotion.uses_exact()
            };
            (0..BURSTS).filter(|_| burst(promotion)).count()
        };
        const BURSTS: usize = 16_000;
        let few = BURSTS / FEW as usize;
        let few = few * 8 / 10..few * 12 / 10;
        promotion.looked_up(0, JUDGED_AFTER - 1);
        assert_eq!(used(&mut promotion), BURSTS, "too little is known");
        promotion.looked_up(HITS_MIN - 1, 1);
        assert!(few.contains(&used(&mut promotion)));
        promotion.looked_up(HITS_MIN - 1, JUDGED_AFTER - HITS_MIN + 1);
        assert!(few.contains(&used(&mut promotion)));
        promotion.looked_up(JUDGED_AFTER, 0);
        assert_eq!(used(&mut promotion), BURSTS, "nearly all are hit now");
    }

    #[test]
    fn flows_that_take_turns_are_met_again_soon_however_many_bursts_they_fill() {
        let mut promotion = Promotion::default();
        promotion.looked_up(0, JUDGED_AFTER);
        for flows_bursts in [15_624, 15_625, 15_632] {
            let mut is_known = vec![false; flows_bursts];
            let mut turn = || {
                let mut again = 0;
                for known in &mut is_known {
                    promotion.begin_burst();
                    if promotion.uses_exact() {
                        again += usize::from(std::mem::replace(known, true));
                    }
                }
                again as f64 / (flows_bursts / FEW as usize) as f64
            };
            let shares: Vec<f64> = (0..8).map(|_| turn()).collect();
            assert!(shares[7] > HITS_MIN as f64 / JUDGED_AFTER as f64, "{flows_bursts}: {shares:?}");
        }
    }
}
