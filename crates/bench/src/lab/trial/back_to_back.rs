//! The longest burst of back-to-back frames that is forwarded without loss, by halving, and the time for
//! which it was buffered (RFC 9004, section 6). Each turn is one search: as many turns are the repetitions
//! whose average the RFC asks for.

use super::mlr::highest;
use super::rfc2544::{halve, lossless};
use super::{Outcome, Times, Trial};
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
        let mut is_cut = false;
        for _ in 0..times.turns {
            let (top, _) = highest(bed, load, times.seconds)?;
            let steady = Load { seconds: times.seconds, ..load.clone() };
            let (throughput, ..) = lossless(bed, &steady, top)?;
            let (longest, last) = halve(BURST_MAX, 1.0, |frames| {
                // Longer than any burst takes.
                let burst =
                    Load { burst: Some(frames.max(1.0) as u64), rate: None, seconds: 10.0, ..load.clone() };
                let offered = bed.offer(&burst)?;
                Ok((offered.sent.account.lost() == 0, offered))
            })?;
            outcome.push("burst_frames", "frames", Better::Higher, longest);
            if let Some(buffer_us) = buffer_us(longest, last.sent.sent_pps, throughput) {
                outcome.push(BUFFER, "us", Better::Neither, buffer_us);
            }
            is_cut |= longest >= BURST_MAX;
            outcome.turn(&last);
        }
        // A burst comes as fast as the generator can send it, which is what is asked for.
        outcome.limit = is_cut.then(|| LONGEST.into());
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
