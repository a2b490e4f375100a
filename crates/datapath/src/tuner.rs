//! Whether an input port's packets go through the exact-match tier: decided by measurement.
//!
//! The tier saves the search through the masks and costs memory, and its misses cost too. Where one or two masks serve all flows
//! it is cheaper without. So each input port tries the other way from time to time: for some hundred bursts, against
//! as many just before, and keeps the cheaper. A trial of the exact tier first waits until the tier holds the flows.
//! The longer nothing changes, the rarer the trials.
//!
//! Flows that are cached alone (see [`crate::cache`]) live in the exact tier only: while there are any, it stays on.

use base::clock::tsc;

/// Bursts to measure each way.
const BURSTS: u32 = 256;
/// The other way must be cheaper by this much (in 64ths) to be taken, or noise would flip it to and fro.
const GAIN_64THS: u64 = 62;
const FIRST_TRIAL_MS: u64 = 100;
const INTERVAL_MIN_MS: u64 = 2_000;
const INTERVAL_MAX_MS: u64 = 60_000;
/// A trial of the exact tier is given up when its flows are not in it after so long. A million flows that are first searched for
/// in 32 masks need more than a second of a processor to get there; judged before, the tier would never be taken.
const WARM_MS_MAX: u64 = 10_000;
const ALONE_MS: u64 = 10_000;

/// Who decides whether the exact-match tier is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ExactTier {
    /// Measurement, per input port.
    #[default]
    Auto,
    /// It is always used.
    On,
    /// It is not used, as long as no flow lives in it alone. For comparison.
    Off,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Steady,
    /// Measuring the way in use.
    Before {
        since_ms: u64,
    },
    /// Letting the exact tier fill.
    Warm {
        since_ms: u64,
    },
    /// Measuring the other way.
    Other,
}

/// One input port's choice.
pub struct Tuner {
    policy: ExactTier,
    use_exact: bool,
    phase: Phase,
    next_ms: u64,
    interval_ms: u64,
    now_ms: u64,
    bursts: u32,
    cycles: u64,
    packets: u64,
    /// Masks searched: with the exact tier in use, how many packets it did not know.
    unknown: u64,
    before: f64,
    alone_until_ms: u64,
}

impl Default for Tuner {
    fn default() -> Self {
        Tuner {
            policy: ExactTier::Auto,
            use_exact: true,
            phase: Phase::Steady,
            next_ms: 0,
            interval_ms: INTERVAL_MIN_MS,
            now_ms: 0,
            bursts: 0,
            cycles: 0,
            packets: 0,
            unknown: 0,
            before: 0.0,
            alone_until_ms: 0,
        }
    }
}

impl Tuner {
    /// One that measures, or one whose choice is made.
    pub fn new(policy: ExactTier) -> Tuner {
        Tuner { policy, use_exact: policy != ExactTier::Off, ..Tuner::default() }
    }

    /// Whether this burst goes through the exact tier.
    #[inline]
    pub fn use_exact(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        if self.phase == Phase::Steady && now_ms >= self.next_ms && self.policy == ExactTier::Auto {
            if self.next_ms == 0 {
                self.next_ms = now_ms + FIRST_TRIAL_MS;
            } else {
                self.enter(Phase::Before { since_ms: now_ms });
            }
        }
        let other = matches!(self.phase, Phase::Warm { .. } | Phase::Other);
        if now_ms < self.alone_until_ms {
            return true;
        }
        self.use_exact != other
    }

    /// The choice in force, trials aside.
    #[cfg(test)]
    pub fn chosen(&self) -> bool {
        self.use_exact
    }

    /// A flow that lives in the exact tier alone was installed or hit.
    #[inline]
    pub fn alone_hit(&mut self) {
        self.alone_until_ms = self.now_ms + ALONE_MS;
        self.phase = Phase::Steady;
    }

    /// Before a burst's lookups.
    #[inline]
    pub fn start(&self) -> u64 {
        if self.phase == Phase::Steady { 0 } else { tsc() }
    }

    /// After its hits have left: how many packets were looked up, how many missed, and how many masks were searched.
    #[inline]
    pub fn finish(&mut self, started: u64, packets: usize, missed: usize, masks_searched: usize) {
        if self.phase == Phase::Steady || started == 0 || packets == 0 {
            return;
        }
        self.measure(tsc() - started, packets, missed, masks_searched);
    }

    fn measure(&mut self, cycles: u64, packets: usize, missed: usize, masks_searched: usize) {
        if let Phase::Warm { since_ms } = self.phase {
            self.bursts += 1;
            self.packets += packets as u64;
            // Counts masks here, not cycles: how many packets the tier did not know yet.
            self.cycles += masks_searched as u64;
            if self.bursts >= BURSTS {
                if self.cycles * 50 <= self.packets {
                    return self.enter(Phase::Other);
                }
                self.enter(Phase::Warm { since_ms });
            }
            if self.now_ms - since_ms > WARM_MS_MAX {
                self.settle(false);
            }
            return;
        }
        // A burst that the scheduler interrupted, or that missed, says nothing about lookups.
        if missed > 0 || cycles > 1_000_000 {
            return;
        }
        self.bursts += 1;
        self.cycles += cycles;
        self.packets += packets as u64;
        self.unknown += masks_searched as u64;
        if self.bursts < BURSTS {
            return;
        }
        let per_packet = self.cycles as f64 / self.packets as f64;
        match self.phase {
            // While the exact tier fills it costs more than it will.
            Phase::Before { since_ms }
                if self.use_exact
                    && self.unknown * 50 > self.packets
                    && self.now_ms - since_ms <= WARM_MS_MAX =>
            {
                self.enter(Phase::Before { since_ms });
            }
            Phase::Before { .. } => {
                self.before = per_packet;
                self.enter(if self.use_exact { Phase::Other } else { Phase::Warm { since_ms: self.now_ms } });
            }
            Phase::Other => self.settle(per_packet * 64.0 < self.before * GAIN_64THS as f64),
            Phase::Steady | Phase::Warm { .. } => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        (self.bursts, self.cycles, self.packets, self.unknown) = (0, 0, 0, 0);
    }

    fn settle(&mut self, change: bool) {
        if change {
            self.use_exact = !self.use_exact;
            self.interval_ms = INTERVAL_MIN_MS;
        } else {
            self.interval_ms = (self.interval_ms * 2).min(INTERVAL_MAX_MS);
        }
        self.next_ms = self.now_ms + self.interval_ms;
        self.enter(Phase::Steady);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs bursts for `ms` milliseconds, ten a millisecond, with these costs with and without the exact tier.
    fn run(tuner: &mut Tuner, from_ms: u64, ms: u64, exact_cycles: u64, mega_cycles: u64) {
        for now in from_ms..from_ms + ms {
            for _ in 0..10 {
                let exact = tuner.use_exact(now);
                if tuner.phase != Phase::Steady {
                    let cost = if exact { exact_cycles } else { mega_cycles };
                    tuner.measure(cost * 32, 32, 0, if exact { 0 } else { 32 });
                }
            }
        }
    }

    #[test]
    fn it_settles_on_the_cheaper_way_and_follows_when_that_changes() {
        let mut tuner = Tuner::default();
        run(&mut tuner, 1, 5_000, 80, 50);
        assert!(!tuner.chosen());
        run(&mut tuner, 5_001, 130_000, 50, 300);
        assert!(tuner.chosen());
    }

    /// A million flows of 32 masks take seconds to get there.
    #[test]
    fn an_exact_tier_that_is_filling_is_not_judged_yet() {
        for filled_ms in [400, 6_000] {
            let mut tuner = Tuner::default();
            for now in 1..filled_ms + 300 {
                for _ in 0..10 {
                    let exact = tuner.use_exact(now);
                    if tuner.phase == Phase::Steady {
                        continue;
                    }
                    let (cost, masks_searched) = match (exact, now < filled_ms) {
                        (true, true) => (350, 32),
                        (true, false) => (80, 0),
                        (false, _) => (300, 32),
                    };
                    tuner.measure(cost * 32, 32, 0, masks_searched);
                }
            }
            assert!(tuner.chosen(), "filled after {filled_ms} ms");
        }
    }

    #[test]
    fn a_choice_that_was_made_stands_whatever_it_costs() {
        for (policy, used) in [(ExactTier::On, true), (ExactTier::Off, false)] {
            let mut tuner = Tuner::new(policy);
            run(&mut tuner, 1, 130_000, if used { 300 } else { 50 }, if used { 50 } else { 300 });
            assert_eq!((tuner.chosen(), tuner.phase), (used, Phase::Steady));
        }
    }

    #[test]
    fn flows_that_are_cached_alone_keep_the_exact_tier_on() {
        let mut tuner = Tuner::default();
        run(&mut tuner, 1, 5_000, 80, 50);
        tuner.use_exact(5_001);
        tuner.alone_hit();
        assert!(tuner.use_exact(5_002));
        assert!(!tuner.use_exact(5_001 + ALONE_MS + 1));
        // A time that is over does not come back when 31 bits of milliseconds have passed.
        assert!(!tuner.use_exact(5_001 + ALONE_MS + (3 << 30)));
    }
}
