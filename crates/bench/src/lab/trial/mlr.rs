//! Searches for several rates at once with short trials first, after MLRsearch of the IETF's benchmarking
//! working group: the rate without loss and the rate that loses at most 0.5 %. Trials grow from a quarter of
//! the full length to all of it, and each phase starts from the interval of the one before, which it widens
//! if longer trials contradict it.

use super::{LATE, LOSSLESS, Outcome, Times, Trial, is_late, offer_in_time};
use crate::lab::bed::{Bed, Offered};
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::Judged;

/// Loss ratios that are looked for, and the figure of each.
const GOALS: [(f64, &str); 2] = [(0.0, "lossless_pps"), (0.005, "partial_drop_pps")];
/// An interval ends at this share of its upper end,
pub const WIDTH: f64 = 0.02;
/// or at this share of the highest rate: otherwise the search for a rate of nothing would never end.
pub const LEAST: f64 = 0.001;
/// Lengths of the trials of each phase, as shares of the full length.
const PHASES: [f64; 3] = [0.25, 0.5, 1.0];

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
            let (mut best, mut late): (Option<Offered>, _) = (None, [None, None]);
            for share in PHASES {
                for (n, (allowed, _)) in GOALS.iter().enumerate() {
                    let mut measure = |rate: f64| -> Result<f64, String> {
                        let seconds = times.seconds * share;
                        let rate = Some(rate.max(1.0) as u64);
                        let offered = offer_in_time(bed, &Load { rate, seconds, ..load.clone() })?;
                        let loss = offered.sent.account.loss();
                        // The last try that lost too much is the one just above the rate that is found.
                        if loss > *allowed {
                            late[n] = is_late(&offered.sent, *allowed).then(|| LATE.to_string());
                        }
                        if *allowed == 0.0 && loss == 0.0 || best.is_none() {
                            best = Some(offered);
                        }
                        Ok(loss)
                    };
                    bounds[n] = narrow(bounds[n], top, *allowed, &mut measure)?;
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
            outcome.limit = before.or(late.into_iter().flatten().next()).or(limit);
        }
        Ok(outcome)
    }
}

/// The rate above which no search looks: what comes through when all is offered, and some more.
///
/// With it comes what was the limit, if not the switch.
pub fn highest(bed: &mut Bed, load: &Load, seconds: f64) -> Result<(f64, Option<String>), String> {
    let most = bed.offer(&Load { rate: None, seconds, ..load.clone() })?;
    match most.rate() {
        0.0 => Err(format!("nothing came through: {}", most.sent.account.text())),
        rate => Ok((rate * 1.1, most.limit)),
    }
}

/// An interval whose lower end loses no more than is allowed and whose upper end does, or is `top`.
fn narrow(
    (low, high): (f64, f64),
    top: f64,
    allowed: f64,
    loss_at: &mut impl FnMut(f64) -> Result<f64, String>,
) -> Result<(f64, f64), String> {
    let (mut low, mut high) = (low, high);
    // If a longer trial contradicts a bound, the interval is widened past it.
    if low > 0.0 && loss_at(low)? > allowed {
        (low, high) = (low / 2.0, low);
        while low > top * LEAST && loss_at(low)? > allowed {
            (low, high) = (low / 2.0, low);
        }
        if low <= top * LEAST {
            low = 0.0;
        }
    } else if high < top && loss_at(high)? <= allowed {
        (low, high) = (high, top);
    }
    while high - low > (WIDTH * high).max(LEAST * top) {
        let middle = (low + high) / 2.0;
        if loss_at(middle)? <= allowed { low = middle } else { high = middle }
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(interval: (f64, f64), capacity: f64) -> (f64, f64) {
        let mut loss = |rate: f64| Ok(if rate <= capacity { 0.0 } else { 1.0 - capacity / rate });
        narrow(interval, 1000.0, 0.0, &mut loss).unwrap()
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
        let mut loss = |rate: f64| Ok(if rate <= 600.0 { 0.0 } else { 1.0 - 600.0 / rate });
        let (low, _) = narrow((0.0, 1000.0), 1000.0, 0.1, &mut loss).unwrap();
        assert!((646.0..=667.0).contains(&low), "{low}");
    }
}
