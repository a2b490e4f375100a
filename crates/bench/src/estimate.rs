//! How long the rest of a run takes: what is planned for each part, corrected by how long parts of its kind
//! have taken.

use std::collections::BTreeMap;
use std::time::Duration;

/// Planned and spent seconds of parts that are over, by kind.
#[derive(Default)]
pub struct Estimate {
    spent: BTreeMap<String, (f64, f64)>,
}

impl Estimate {
    /// A part is over.
    pub fn add(&mut self, id: &str, planned: Duration, took: Duration) {
        for kind in kinds(id) {
            let spent = self.spent.entry(kind).or_default();
            *spent = (spent.0 + planned.as_secs_f64(), spent.1 + took.as_secs_f64());
        }
    }

    /// How long a part takes, as far as is known.
    pub fn of(&self, id: &str, planned: Duration) -> Duration {
        let factor = kinds(id).into_iter().find_map(|kind| {
            let (planned, took) = self.spent.get(&kind)?;
            (*planned > 0.0).then_some(took / planned)
        });
        planned.mul_f64(factor.unwrap_or(1.0))
    }
}

/// What a part is most like, from its name: parts of the same step; then those of the same trial in any step;
/// then any at all.
fn kinds(id: &str) -> [String; 3] {
    let mut words = id.splitn(3, '.');
    let step = format!("{}.{}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let trial = words.next().and_then(|rest| rest.rsplit('.').next()).unwrap_or("a measurement");
    [step, trial.to_string(), String::new()]
}

/// A duration for people.
pub fn words(time: Duration) -> String {
    match time.as_secs() {
        s @ ..=99 => format!("{s} s"),
        s @ ..=7_199 => format!("{} min", s.div_ceil(60)),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_parts_say_nothing_about_long_ones_but_how_far_plans_are_off() {
        let seconds = Duration::from_secs;
        let mut estimate = Estimate::default();
        // Before anything is over the plan stands.
        assert_eq!(estimate.of("p2p.exact", seconds(120)), seconds(120));
        estimate.add("load-curve.nic.P2P.none.64.100.10000.fixed", seconds(10), seconds(20));
        // Another load of the step, the same trial elsewhere, and something else: each by its own plan.
        assert_eq!(estimate.of("load-curve.nic.PV.none.64.100.20000.fixed", seconds(5)), seconds(10));
        assert_eq!(estimate.of("soak.nic.P2P.none.64.100.0.fixed", seconds(300)), seconds(600));
        assert_eq!(estimate.of("p2p.exact", seconds(120)), seconds(240));
        // The nearest kind decides.
        estimate.add("p2p.in_port", seconds(120), seconds(60));
        assert_eq!(estimate.of("p2p.exact", seconds(120)), seconds(60));
        assert_eq!(estimate.of("load-curve.nic.PV.none.64.100.1.fixed", seconds(10)), seconds(20));
    }

    #[test]
    fn a_time_is_told_in_the_unit_that_suits_it() {
        let of = |seconds| words(Duration::from_secs(seconds));
        assert_eq!([of(99), of(100), of(7_260), of(9_000)], ["99 s", "2 min", "2.0 h", "2.5 h"]);
    }
}
