//! Searches for several rates at once with short trials first, after MLRsearch of the IETF's benchmarking
//! working group: the rate without loss and the rate that loses at most 0.5 %. Trials grow from a quarter of
//! the full length to all of it, and each phase starts from the interval of the one before, which it widens
//! if longer trials contradict it. In the last phase two of three tries of a rate decide, so that one lost
//! frame moves no bound.
//!
//! Left out of MLRsearch are the sum of the trials' durations for each load, goals with lengths, widths and
//! exceed ratios of their own, and the conditional throughput.

use super::{LOSSLESS, Outcome, Times, Trial, of_loss, offer_in_time};
use crate::lab::bed::{Bed, Offered};
use crate::lab::generator::Load;
use crate::lab::limit::is_sender;
use crate::result::Better;
use crate::result::judged::Judged;

/// Loss ratios that are looked for, and the figure of each.
const GOALS: [(f64, &str); 2] = [(0.0, "lossless_pps"), (0.005, "partial_drop_pps")];
/// An interval ends at this share of its upper end,
pub const WIDTH: f64 = 0.02;
/// or at this share of the highest rate: otherwise the search for a rate of nothing would never end.
pub const LEAST: f64 = 0.001;
/// A search goes on above the rate at which it starts, to this many times that rate at most,
pub const RAISED_MAX: f64 = 1024.0;
/// which then is the limit of what it finds.
pub const HIGHEST: &str = "the highest rate that the search tries";
/// Of each phase: the length of its trials as a share of the full length, and how many tries of a rate must
/// agree.
const PHASES: [(f64, u32); 3] = [(0.25, 1), (0.5, 1), (1.0, 2)];

/// See the module documentation.
pub struct Mlr;

impl Trial for Mlr {
    fn name(&self) -> &'static str {
        "mlrsearch"
    }

    fn is_search(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<Judged> {
        vec![LOSSLESS]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        for _ in 0..times.turns {
            let (top, limit) = highest(bed, load, times.seconds)?;
            let mut bounds = [(0.0, top); GOALS.len()];
            let (mut best, mut limits): (Option<Offered>, _) = (None, [None, None]);
            for (share, tries) in PHASES {
                for (n, (allowed, _)) in GOALS.iter().enumerate() {
                    let try_once = |rate: f64| -> Result<(bool, Offered), String> {
                        let seconds = times.seconds * share;
                        let rate = Some(rate.max(1.0) as u64);
                        let offered = offer_in_time(bed, &Load { rate, seconds, ..load.clone() })?;
                        Ok((offered.sent.account.loss() <= *allowed, offered))
                    };
                    let mut decided = agreed(tries, try_once);
                    let is_good = |rate: f64| -> Result<bool, String> {
                        let (is_good, offered) = decided(rate)?;
                        // The last rate that is not good is the one just above the rate that is found.
                        if !is_good {
                            limits[n] = of_loss(&offered, *allowed);
                        }
                        if *allowed == 0.0 && is_good || best.is_none() {
                            best = Some(offered);
                        }
                        Ok(is_good)
                    };
                    bounds[n] = narrow(bounds[n], top, is_good)?;
                    if bounds[n].0 >= top * RAISED_MAX {
                        limits[n] = Some(HIGHEST.into());
                    }
                }
            }
            let mut found = 0.0_f64;
            for ((_, name), (low, _)) in GOALS.iter().zip(bounds) {
                // What loses nothing loses no more than a little.
                found = found.max(low);
                outcome.push(name, "1/s", Better::Higher, found);
            }
            let before = outcome.limit.take();
            if let Some(best) = best {
                outcome.turn(&best);
            }
            outcome.limit = before.or(limits.into_iter().flatten().next()).or(limit);
        }
        Ok(outcome)
    }
}

/// The rate at which a search starts: what comes through when all is offered, and some more. Where generator
/// and switch share processors a lower load may let more through, so the search goes on above it.
///
/// With it comes what was the limit, if not the switch. That the generator could send no more is for the
/// search to find: it ends where a try loses, or is late.
pub fn highest(bed: &mut Bed, load: &Load, seconds: f64) -> Result<(f64, Option<String>), String> {
    let most = bed.offer(&Load { rate: None, seconds, ..load.clone() })?;
    match most.rate() {
        0.0 => Err(format!("nothing came through: {}", most.sent.account.text())),
        rate => Ok((rate * 1.1, most.limit.filter(|limit| !is_sender(limit)))),
    }
}

/// A rate is tried until so many tries of it agree: whether they were good, and the last of them.
fn agreed<T>(
    tries: u32,
    mut try_once: impl FnMut(f64) -> Result<(bool, T), String>,
) -> impl FnMut(f64) -> Result<(bool, T), String> {
    move |rate| {
        let mut counts = [0, 0];
        loop {
            let (is_good, tried) = try_once(rate)?;
            let count = &mut counts[usize::from(is_good)];
            *count += 1;
            if *count >= tries {
                return Ok((is_good, tried));
            }
        }
    }
}

/// An interval whose lower end is good and whose upper end is not. `top` is the rate at which the search
/// started; only at [`RAISED_MAX`] times that rate may the upper end be good too.
fn narrow(
    (low, high): (f64, f64),
    top: f64,
    mut is_good: impl FnMut(f64) -> Result<bool, String>,
) -> Result<(f64, f64), String> {
    let (mut low, mut high) = (low, high);
    // If a longer trial contradicts a bound, the interval is widened past it.
    if low > 0.0 && !is_good(low)? {
        (low, high) = (low / 2.0, low);
        while low > top * LEAST && !is_good(low)? {
            (low, high) = (low / 2.0, low);
        }
        if low <= top * LEAST {
            low = 0.0;
        }
    } else {
        while is_good(high)? {
            low = high;
            if high >= top * RAISED_MAX {
                return Ok((low, high));
            }
            high *= 2.0;
        }
    }
    while high - low > (WIDTH * high).max(LEAST * top) {
        let middle = (low + high) / 2.0;
        if is_good(middle)? { low = middle } else { high = middle }
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(interval: (f64, f64), capacity: f64) -> (f64, f64) {
        narrow(interval, 1000.0, |rate| Ok(rate <= capacity)).unwrap()
    }

    #[test]
    fn an_interval_closes_around_the_capacity_also_where_shorter_trials_were_wrong() {
        for (interval, capacity) in [((0.0, 1000.0), 613.0), ((700.0, 720.0), 613.0), ((300.0, 320.0), 613.0)]
        {
            let (low, high) = search(interval, capacity);
            assert!(low <= capacity && capacity <= high && high - low <= 20.0, "{interval:?}: {low} {high}");
        }
        assert_eq!(search((500.0, 520.0), 0.0).0, 0.0);
    }

    #[test]
    fn a_rate_far_below_the_highest_is_found_as_exactly() {
        for capacity in [30.0, 60.0, 613.0] {
            for interval in [(0.0, 1000.0), (700.0, 720.0)] {
                let (low, high) = search(interval, capacity);
                assert!(low <= capacity && capacity <= high, "{low} {high}");
                assert!(high - low <= (WIDTH * high).max(1.0), "{low} {high}");
            }
        }
    }

    #[test]
    fn a_share_that_may_be_lost_raises_the_rate() {
        let loss = |rate: f64| if rate <= 600.0 { 0.0 } else { 1.0 - 600.0 / rate };
        let (low, _) = narrow((0.0, 1000.0), 1000.0, |rate| Ok(loss(rate) <= 0.1)).unwrap();
        assert!((646.0..=667.0).contains(&low), "{low}");
    }

    #[test]
    fn a_rate_above_the_one_at_which_the_search_starts_is_found() {
        for capacity in [1_320.0, 5_000.0, 100_000.0] {
            for interval in [(0.0, 1000.0), (700.0, 720.0), (300.0, 1000.0)] {
                let (low, high) = search(interval, capacity);
                assert!(low <= capacity && capacity <= high && high - low <= WIDTH * high, "{low} {high}");
            }
        }
        // One that loses at no rate at all ends the search too.
        let most = 1000.0 * RAISED_MAX;
        assert_eq!(search((0.0, 1000.0), f64::INFINITY), (most, most));
    }

    #[test]
    fn one_try_in_three_that_is_bad_moves_no_bound() {
        let mut tries = 0;
        // Every third try loses a frame whatever the rate, and every fifth beyond the capacity loses none.
        let unsteady = |rate: f64| {
            tries += 1;
            Ok((if rate <= 613.0 { tries % 3 != 0 } else { tries % 5 == 0 }, ()))
        };
        let mut decided = agreed(2, unsteady);
        let (low, high) = narrow((600.0, 620.0), 1000.0, |rate| Ok(decided(rate)?.0)).unwrap();
        assert!(low <= 613.0 && 613.0 <= high && high - low <= WIDTH * high, "{low} {high}");
        // The try that is told is one of those that agree.
        let mut tries = [true, false, true, false, true, false].into_iter().zip(0..);
        let mut decided = agreed(2, |_| Ok(tries.next().unwrap()));
        assert_eq!([decided(1.0), decided(1.0)], [Ok((true, 2)), Ok((false, 5))]);
    }
}
