//! Latency and jitter at 1, 10, 50 and 90 % of the rate at which nothing is lost; 1 % is the switch at rest.

use super::mlr::highest;
use super::rfc2544::lossless;
use super::{LOSSLESS, Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::{Judged, Question};

/// Rates, in percent of the one without loss.
const SHARES: [u8; 4] = [1, 10, 50, 90];
/// The percentiles by which switches are judged, for readers.
const PERCENTILES: [(&str, &str); 2] = [("p50", "median"), ("p99", "p99")];
/// The share whose rate, loss and cost are the trial's.
const SHARE_SHOWN: u8 = 50;

/// What the names of a share's latencies begin with.
fn prefix(share: u8) -> String {
    format!("at_{share}_")
}

/// See the module documentation.
pub struct Latency;

impl Trial for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn is_search(&self) -> bool {
        true
    }

    fn judged(&self) -> Vec<Judged> {
        let of_share = |share| {
            PERCENTILES.map(|(percentile, words)| Judged {
                question: Question::Own,
                name: format!("{}latency_{percentile}_us", prefix(share)).into(),
                words: format!("{words} latency at {share} % of its own rate without loss").into(),
            })
        };
        [LOSSLESS].into_iter().chain(SHARES.into_iter().flat_map(of_share)).collect()
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let at = |rate: f64, bed: &mut Bed| {
            bed.offer(&Load { rate: Some(rate.max(1.0) as u64), seconds: times.seconds, ..load.clone() })
        };
        let (top, limit) = highest(bed, load, times.seconds)?;
        let searched = Load { seconds: times.seconds, ..load.clone() };
        let (found, _, of_search) = lossless(bed, &searched, top)?;
        // If every rate lost something, the shares refer to the rate that was received.
        let full = if found > 0.0 { found } else { top / 1.1 };
        // Of which the switch may forward more.
        match of_search.or(limit) {
            None => outcome.push("lossless_pps", "1/s", Better::Higher, found),
            Some(_) => outcome.push("lossless_at_least_pps", "1/s", Better::Neither, found),
        }
        for _ in 0..times.turns {
            for share in SHARES {
                let offered = at(full * f64::from(share) / 100.0, bed)?;
                // Where another part was the limit, the latency is that part's.
                if offered.limit.is_none() {
                    outcome.latency(&prefix(share), &offered);
                }
                if share == SHARE_SHOWN {
                    outcome.turn(&offered);
                } else if !offered.sent.account.adds_up() {
                    outcome.account = offered.sent.account.clone();
                }
            }
        }
        Ok(outcome)
    }
}
