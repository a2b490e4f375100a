//! The longest burst of back-to-back frames that is forwarded without loss, by halving, and the time for
//! which it was buffered (RFC 9004, section 6). Each turn is one search: as many turns are the repetitions
//! whose average the RFC asks for. The buffer time takes the switch's own throughput, so there is none where
//! another part limited that.

use super::mlr::highest;
use super::rfc2544::{halve, lossless};
use super::{Outcome, Times, Trial, of_loss, offer_in_time};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::{Judged, Question};

/// Longer bursts are not looked for.
const BURST_MAX: f64 = 65_536.0;
/// The figure that is there only where a burst came in faster than it went out.
pub const BUFFER: &str = "buffer_us";
/// The limit of one that passed.
const LONGEST: &str = "the longest burst that is offered";

/// See the module documentation.
pub struct BackToBack;

impl Trial for BackToBack {
    fn name(&self) -> &'static str {
        "back-to-back"
    }

    fn is_search(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<Judged> {
        vec![Judged::new(Question::Rate, "burst_frames", "burst without loss")]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let mut limit = None;
        for _ in 0..times.turns {
            let mut of_burst = None;
            let (top, of_top) = highest(bed, load, times.seconds)?;
            let steady = Load { seconds: times.seconds, ..load.clone() };
            let (throughput, _, of_search) = lossless(bed, &steady, top)?;
            let throughput = of_search.or(of_top).is_none().then_some(throughput);
            let (longest, last) = halve(BURST_MAX, BURST_MAX, 1.0, |frames| {
                // Longer than any burst takes.
                let burst =
                    Load { burst: Some(frames.max(1.0) as u64), rate: None, seconds: 10.0, ..load.clone() };
                let offered = offer_in_time(bed, &burst)?;
                let is_good = offered.sent.account.lost() == 0;
                // The last bad try is of the burst that is just longer.
                if !is_good {
                    of_burst = of_loss(&offered, 0.0);
                }
                Ok((is_good, offered))
            })?;
            outcome.push("burst_frames", "frames", Better::Higher, longest);
            let buffer_us = throughput.and_then(|pps| buffer_us(longest, last.sent.sent_pps, pps));
            if let Some(buffer_us) = buffer_us {
                outcome.push(BUFFER, "us", Better::Neither, buffer_us);
            }
            let of_burst = if longest >= BURST_MAX { Some(LONGEST.into()) } else { of_burst };
            limit = limit.or(of_burst);
            outcome.turn(&last);
        }
        // A burst comes as fast as the generator can send it, which is what is asked for.
        outcome.limit = limit;
        Ok(outcome)
    }
}

/// The corrected buffer time of RFC 9004: for how long a switch with this throughput, in frames per second,
/// buffers the longest burst that it forwards without loss, which comes in at a higher rate. `None` if the
/// burst was none, was cut, or did not come in faster than it went out: then nothing is known of buffers.
fn buffer_us(burst: f64, burst_pps: f64, throughput_pps: f64) -> Option<f64> {
    let is_known = (1.0..BURST_MAX).contains(&burst) && throughput_pps < burst_pps;
    is_known.then(|| burst / burst_pps * (1.0 - throughput_pps / burst_pps) * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_buffered_for_as_long_as_it_comes_in_faster_than_it_goes_out() {
        // 1,000 frames in 1 ms, of which half are forwarded meanwhile.
        assert_eq!(buffer_us(1_000.0, 1e6, 5e5), Some(500.0));
        assert_eq!(buffer_us(1_000.0, 1e6, 1e6), None);
        assert_eq!((buffer_us(0.0, 1e6, 5e5), buffer_us(BURST_MAX, 1e6, 5e5)), (None, None));
        assert_eq!(buffer_us(1_000.0, 0.0, 5e5), None);
    }
}
