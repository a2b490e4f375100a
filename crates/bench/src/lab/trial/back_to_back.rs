//! The longest burst of back-to-back frames that is forwarded without loss (RFC 9004), by halving.

use super::rfc2544::halve;
use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::{Judged, Question};

/// Longer bursts are not looked for.
const BURST_MAX: f64 = 65_536.0;

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
        for _ in 0..times.turns {
            let (longest, last) = halve(BURST_MAX, 1.0, |frames| {
                // Longer than any burst takes.
                let burst =
                    Load { burst: Some(frames.max(1.0) as u64), rate: None, seconds: 10.0, ..load.clone() };
                let offered = bed.offer(&burst)?;
                Ok((offered.sent.account.lost() == 0, offered))
            })?;
            match longest < BURST_MAX {
                true => outcome.push("burst_frames", "frames", Better::Higher, longest),
                false => outcome.push("burst_at_least_frames", "frames", Better::Neither, longest),
            }
            outcome.turn(&last);
            // A burst comes as fast as the generator can send it, which is what is asked for.
            outcome.limit = None;
        }
        Ok(outcome)
    }
}
