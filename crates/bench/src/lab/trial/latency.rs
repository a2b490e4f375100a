//! Latency and jitter at 1, 10, 50 and 90 % of the rate at which nothing is lost; 1 % is the switch at rest.

use super::mlr::highest;
use super::rfc2544::halve;
use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;

const SHARES: [(f64, &str); 4] = [(0.01, "at_1_"), (0.1, "at_10_"), (0.5, "at_50_"), (0.9, "at_90_")];

/// See the module documentation.
pub struct Latency;

impl Trial for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let at = |rate: f64, bed: &mut Bed| {
            bed.offer(&Load { rate: Some(rate.max(1.0) as u64), seconds: times.seconds, ..load.clone() })
        };
        let (top, limit) = highest(bed, load, times.seconds)?;
        let (found, _) = halve(top, |rate| Ok((at(rate, bed)?.sent.account.lost() == 0, ())))?;
        // If every rate lost something, the shares refer to the rate that was received.
        let full = if found > 0.0 { found } else { top / 1.1 };
        // Of which the switch may forward more.
        match limit {
            None => outcome.push("lossless_pps", "1/s", Better::Higher, found),
            Some(_) => outcome.push("lossless_at_least_pps", "1/s", Better::Neither, found),
        }
        for _ in 0..times.turns {
            for (share, prefix) in SHARES {
                let offered = at(full * share, bed)?;
                // Where another part was the limit, the latency is that part's.
                if offered.limit.is_none() {
                    outcome.latency(prefix, &offered);
                }
                if share == 0.5 {
                    outcome.turn(&offered);
                } else if !offered.sent.account.adds_up() {
                    outcome.account = offered.sent.account.clone();
                }
            }
        }
        Ok(outcome)
    }
}
