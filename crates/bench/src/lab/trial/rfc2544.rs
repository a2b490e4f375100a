//! The highest rate at which nothing is lost, by halving (RFC 2544, section 26.1).

use super::mlr::{HIGHEST, LEAST, RAISED_MAX, WIDTH, highest};
use super::{LOSSLESS, Outcome, Times, Trial, of_loss, offer_in_time};
use crate::lab::bed::{Bed, Offered};
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::Judged;

/// See the module documentation.
pub struct Rfc2544;

impl Trial for Rfc2544 {
    fn name(&self) -> &'static str {
        "rfc2544"
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
            let load = Load { seconds: times.seconds, ..load.clone() };
            let (low, last, of_search) = lossless(bed, &load, top)?;
            outcome.push("lossless_pps", "1/s", Better::Higher, low);
            let before = outcome.limit.take();
            // The last turn without loss; if there was none, one that shows the loss.
            outcome.turn(&last);
            outcome.limit = before.or(of_search).or(limit);
        }
        Ok(outcome)
    }
}

/// The highest rate at which nothing is lost, a load that shows it, and what was the limit if not the switch.
/// The search starts at `top`.
pub fn lossless(bed: &mut Bed, load: &Load, top: f64) -> Result<(f64, Offered, Option<String>), String> {
    let (mut limit, most) = (None, top * RAISED_MAX);
    let (low, last) = halve(top, most, LEAST * top, |rate| {
        let offered = offer_in_time(bed, &Load { rate: Some(rate.max(1.0) as u64), ..load.clone() })?;
        let is_good = offered.sent.account.lost() == 0;
        // The last bad try is the one just above the rate that is found.
        if !is_good {
            limit = of_loss(&offered, 0.0);
        }
        Ok((is_good, offered))
    })?;
    Ok((low, last, if low >= most { Some(HIGHEST.into()) } else { limit }))
}

/// The highest rate that `try_rate` calls good, with what the last good try gave (or the last try at all). It
/// starts at `top`, which it doubles up to `most` while that is good. An interval of `least` is not halved
/// again.
pub fn halve<T>(
    top: f64,
    most: f64,
    least: f64,
    mut try_rate: impl FnMut(f64) -> Result<(bool, T), String>,
) -> Result<(f64, T), String> {
    let (mut is_good, mut best) = try_rate(top)?;
    let (mut low, mut high, mut found) = (0.0, top, is_good);
    while is_good {
        low = high;
        if high >= most {
            return Ok((low, best));
        }
        high = (high * 2.0).min(most);
        let result;
        (is_good, result) = try_rate(high)?;
        if is_good {
            best = result;
        }
    }
    while high - low > least.max(WIDTH * high) {
        let middle = (low + high) / 2.0;
        let (is_good, result) = try_rate(middle)?;
        if is_good {
            (low, best, found) = (middle, result, true);
        } else {
            high = middle;
            if !found {
                best = result;
            }
        }
    }
    Ok((low, best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_ends_just_below_the_rate_that_loses() {
        let found = |capacity: f64| halve(1000.0, 4000.0, 1.0, |rate| Ok((rate <= capacity, rate))).unwrap();
        // Also above the rate at which it starts.
        for capacity in [613.0, 1_320.0, 2_000.0, 3_999.0] {
            let (rate, at) = found(capacity);
            assert!((capacity * 0.97..=capacity).contains(&rate) && at == rate, "{capacity}: {rate}");
        }
        assert_eq!((found(5_000.0), found(0.0).0), ((4000.0, 4000.0), 0.0));
        // A burst is a number of frames, which may be far below the longest, and is never above it.
        let burst = |longest: f64| halve(65_536.0, 65_536.0, 1.0, |n| Ok((n <= longest, n))).unwrap().0;
        assert!((502.0..=512.0).contains(&burst(512.0)), "{}", burst(512.0));
        assert_eq!(burst(1e6), 65_536.0);
    }
}
