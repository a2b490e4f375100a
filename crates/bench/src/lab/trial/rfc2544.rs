//! The highest rate at which nothing is lost, by halving (RFC 2544, section 26.1).

use super::mlr::{LEAST, WIDTH, highest};
use super::{LATE, LOSSLESS, Outcome, Times, Trial, is_late, offer_in_time};
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
            let (low, last, late) = lossless(bed, &load, top)?;
            outcome.push("lossless_pps", "1/s", Better::Higher, low);
            let before = outcome.limit.take();
            // The last turn without loss; if there was none, one that shows the loss.
            outcome.turn(&last);
            outcome.limit = before.or(late).or(limit);
        }
        Ok(outcome)
    }
}

/// The highest rate below `top` at which nothing is lost, a load that shows it, and what was the limit if not
/// the switch.
pub fn lossless(bed: &mut Bed, load: &Load, top: f64) -> Result<(f64, Offered, Option<String>), String> {
    let mut late = None;
    let (low, last) = halve(top, LEAST * top, |rate| {
        let offered = offer_in_time(bed, &Load { rate: Some(rate.max(1.0) as u64), ..load.clone() })?;
        let is_good = offered.sent.account.lost() == 0;
        // The last bad try is the one just above the rate that is found.
        if !is_good {
            late = is_late(&offered.sent, 0.0).then(|| LATE.to_string());
        }
        Ok((is_good, offered))
    })?;
    Ok((low, last, late))
}

/// The highest rate that `try_rate` calls good below `top`, with what the last good try gave (or the last try
/// at all). An interval of `least` is not halved again.
pub fn halve<T>(
    top: f64,
    least: f64,
    mut try_rate: impl FnMut(f64) -> Result<(bool, T), String>,
) -> Result<(f64, T), String> {
    let (is_good, first) = try_rate(top)?;
    if is_good {
        return Ok((top, first));
    }
    let (mut low, mut high, mut best, mut found) = (0.0, top, first, false);
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
        let (rate, at) = halve(1000.0, 20.0, |rate| Ok((rate <= 613.0, rate))).unwrap();
        assert!((593.0..=613.0).contains(&rate) && at == rate, "{rate}");
        assert_eq!(halve(1000.0, 20.0, |rate| Ok((true, rate))).unwrap().0, 1000.0);
        assert_eq!(halve(1000.0, 20.0, |rate| Ok((false, rate))).unwrap().0, 0.0);
        // A burst is a number of frames, which may be far below the longest.
        let (frames, _) = halve(65_536.0, 1.0, |frames| Ok((frames <= 512.0, frames))).unwrap();
        assert!((502.0..=512.0).contains(&frames), "{frames}");
    }
}
