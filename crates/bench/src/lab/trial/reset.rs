//! Reset and recovery (RFC 6201): a fixed rate is offered while the switch, a guest or a link goes away and
//! comes back. The reset time is derived from the lost frames. Besides it, the longest time without a packet
//! is given, which is shorter if some frames arrive in between, and, if the switch itself was restarted, the
//! time until it had all its rules.

use super::{Outcome, Times, Trial};
use crate::lab::bed::{Bed, Upset, Upsetting};
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::account::UNCOUNTED;
use crate::result::judged::{Judged, Question};

/// Frames per second if the load gives no rate: enough to resolve a millisecond.
const RATE: u64 = 10_000;
/// Minimum duration of a trial: forwarding must have recovered before its end.
const SECONDS_MIN: f64 = 8.0;
/// The same where loads of less than a second show no more than that all runs.
const SECONDS_MIN_QUICK: f64 = 4.0;
/// If forwarding has not recovered by the end of a trial, it has no reset time: then the last of this share
/// of it was lost.
const NOT_BACK: f64 = 0.85;

/// See the module documentation.
pub struct Reset {
    /// Its name in stored results.
    pub name: &'static str,
    /// The disturbance.
    pub upset: Upset,
}

impl Trial for Reset {
    fn name(&self) -> &'static str {
        self.name
    }

    fn judged(&self) -> Vec<Judged> {
        vec![
            Judged::new(Question::Time, "reset_ms", "time without packets"),
            Judged::new(Question::Own, "rules_back_ms", "time until all rules are back"),
        ]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        if let Some(why) = bed.refuses_upset(self.upset) {
            return Err(why);
        }
        let rate = load.rate.unwrap_or(RATE);
        let least = if times.seconds < 1.0 { SECONDS_MIN_QUICK } else { SECONDS_MIN };
        let seconds = times.seconds.max(least);
        let load = Load { rate: Some(rate), seconds, burst: None, ..load.clone() };
        for _ in 0..times.turns {
            let Upsetting { sent, took, limit } = bed.offer_while(&load, self.upset)?;
            let account = &sent.account;
            let lost = account.lost().saturating_sub(account.not_sent * account.copies.max(1));
            if account.loss() > NOT_BACK {
                return Err(format!("nothing came back within {seconds} s: {}", account.text()));
            }
            let reset_ms = lost as f64 / account.copies.max(1) as f64 / rate as f64 * 1e3;
            outcome.push("reset_ms", "ms", Better::Lower, reset_ms);
            outcome.push("gap_max_ms", "ms", Better::Lower, sent.gap_max_ms);
            if matches!(self.upset, Upset::Restart | Upset::Kill) {
                outcome.push("rules_back_ms", "ms", Better::Lower, took.as_secs_f64() * 1e3);
            }
            outcome.limit = outcome.limit.take().or(limit);
            outcome.account = sent.account;
            // If nobody is left to say why the rest was lost, that it was is the figure. Counters that live
            // on must tell.
            if self.upset.ends_counters() {
                let rest = u64::try_from(outcome.account.unexplained()).unwrap_or(0);
                outcome.account.dropped.insert(UNCOUNTED.into(), rest);
            }
        }
        Ok(outcome)
    }
}
