//! The longest burst of back-to-back frames that is forwarded without loss (RFC 9004), by halving.

use super::rfc2544::halve;
use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::{Judged, Question};

/// Longer bursts are not looked for.
const BURST_MAX: f64 = 65_536.0;
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
            let (longest, last) = halve(BURST_MAX, 1.0, |frames| {
                // Longer than any burst takes.
                let burst =
                    Load { burst: Some(frames.max(1.0) as u64), rate: None, seconds: 10.0, ..load.clone() };
                let offered = bed.offer(&burst)?;
                Ok((offered.sent.account.lost() == 0, offered))
            })?;
            outcome.push("burst_frames", "frames", Better::Higher, longest);
            is_cut |= longest >= BURST_MAX;
            outcome.turn(&last);
        }
        // A burst comes as fast as the generator can send it, which is what is asked for.
        outcome.limit = is_cut.then(|| LONGEST.into());
        Ok(outcome)
    }
}
