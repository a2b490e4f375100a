//! Which bursts use the exact tier: all, but for ports whose packets hardly ever hit it.
//!
//! An exact entry pays once further packets hit it. Most flows have many packets, so a flow gets its entry by
//! the first one that hits a megaflow. While most packets that come in at a port are the only ones of their
//! flow (a scan, a flood from random addresses, name lookups), this costs more than it saves: each packet
//! reads a cold bucket, and fills a place that a flow of another port may need. So of such a port's bursts
//! one in [`FEW`] looks its packets up in the exact tier and promotes them; the others begin with megaflows.
//! A flow of many packets then still has its entry soon, and that shows when the port is judged again.
//!
//! `bench flood` shows what this is worth: see its flood that a rule drops.

/// Packets after which a port is judged: those that missed; of sparse flows, all that were looked up. More
/// than the first packets of thousands of flows.
const JUDGED_AFTER: u64 = 16_384;
/// Its flows are sparse if fewer packets than this hit meanwhile.
const HITS_MIN: u64 = JUDGED_AFTER / 4;
/// One in this many bursts of sparse flows uses the exact tier.
const FEW: u32 = 16;

/// One input port's state.
#[derive(Default)]
pub struct Promotion {
    /// Of packets that were looked up in the exact tier since the port was last judged.
    hits: u64,
    missed: u64,
    is_sparse: bool,
    bursts: u32,
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
        !self.is_sparse || self.bursts.is_multiple_of(FEW)
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
            (0..160).filter(|_| burst(promotion)).count()
        };
        promotion.looked_up(0, JUDGED_AFTER - 1);
        assert_eq!(used(&mut promotion), 160, "too little is known");
        promotion.looked_up(HITS_MIN - 1, 1);
        assert_eq!(used(&mut promotion), 160 / FEW as usize);
        promotion.looked_up(HITS_MIN - 1, JUDGED_AFTER - HITS_MIN + 1);
        assert_eq!(used(&mut promotion), 160 / FEW as usize);
        promotion.looked_up(JUDGED_AFTER, 0);
        assert_eq!(used(&mut promotion), 160, "nearly all are hit now");
    }
}
