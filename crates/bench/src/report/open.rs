//! Figures in which a peer's median is better, and of which nothing is concluded: no difference is shown, or
//! the two cannot be compared. So that no loss hides behind a missing verdict.

use super::beside::{ALIKE, Beside, Outcome, is_floor};
use super::plain::times;
use super::reasons;
use crate::lab::switch::Forwards;
use crate::lab::switch::list::forwards;
use crate::result::GENERATOR_TIME;
use std::collections::{BTreeMap, BTreeSet};

/// One figure of one suite beside one peer.
pub struct Open<'a> {
    /// See there.
    pub suite: &'a str,
    /// Its name.
    pub figure: &'static str,
    /// The switch.
    pub peer: &'a str,
    /// Loads in which the peer's median is better.
    pub loads: usize,
    /// Of so many with this figure of both.
    pub of: usize,
    /// The least and the greatest number of times as bad; none where the figure itself is not known.
    pub factors: Option<(f64, f64)>,
    /// Why nothing is concluded.
    pub why: BTreeSet<&'a str>,
    /// Why the peer may be better, if that is known of all of them.
    pub reason: &'static str,
}

/// All of them, the greatest factor first.
pub fn open<'a>(beside: impl Iterator<Item = &'a Beside<'a>>) -> Vec<Open<'a>> {
    let mut groups: BTreeMap<(&str, &'static str, &str), Vec<&Beside>> = BTreeMap::new();
    for one in beside.filter(|one| !is_floor(&one.peer.switch)) {
        groups.entry((&one.ours.suite, one.figure, &one.peer.switch)).or_default().push(one);
    }
    let mut all: Vec<Open> = groups.into_iter().filter_map(|(key, all)| of_group(key, &all)).collect();
    let worst = |open: &Open| open.factors.map_or(0.0, |(_, high)| high);
    all.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
    all
}

fn of_group<'a>(
    (suite, figure, peer): (&'a str, &'static str, &'a str),
    all: &[&'a Beside<'a>],
) -> Option<Open<'a>> {
    let is_such = |one: &&&Beside| {
        let is_open = matches!(one.outcome, Outcome::Alike | Outcome::None(_));
        is_open && one.factor <= 1.0 / ALIKE && !is_unknown(one)
    };
    let such: Vec<&Beside> = all.iter().filter(is_such).copied().collect();
    let first = such.first()?;
    let reason_of = |one: &Beside| reasons::why(suite, peer, figure, &one.ours.load());
    let reason = Some(reason_of(first)).filter(|reason| such.iter().all(|one| reason_of(one) == *reason));
    let factor = |one: &&&Beside| (!is_unknown(one)).then(|| 1.0 / one.factor);
    let factors: Vec<f64> = such.iter().filter_map(|one| factor(&one)).collect();
    let low = factors.iter().copied().reduce(f64::min);
    Some(Open {
        suite,
        figure,
        peer,
        loads: such.len(),
        of: all.len(),
        factors: low.zip(factors.iter().copied().reduce(f64::max)),
        why: such.iter().map(|one| why(one)).collect(),
        reason: reason.unwrap_or(reasons::UNKNOWN),
    })
}

/// Whether the figure has a value that says nothing: the cost of forwarding by the kernel is not in it.
fn is_unknown(one: &Beside) -> bool {
    let has_forwarding = one.peer.conditions.contains_key(GENERATOR_TIME);
    let is_of_kernel = forwards(&one.peer.switch) == Forwards::Kernel;
    is_of_kernel && !has_forwarding && one.figure == "machine_cycles_per_packet"
}

fn why<'a>(one: &'a Beside) -> &'a str {
    match &one.outcome {
        Outcome::None(why) => without_share(why),
        _ if one.turns() < 2 => "alike by one turn",
        _ => "no difference is shown",
    }
}

/// A reason without how much of the time it held, which differs from figure to figure.
pub fn without_share(why: &str) -> &str {
    why.strip_suffix(" % of the time").and_then(|rest| rest.rsplit_once(" for ")).map_or(why, |(why, _)| why)
}

impl Open<'_> {
    /// `1.20 to 3.00`, or one of them.
    pub fn times(&self) -> String {
        match self.factors {
            None => "not known".into(),
            Some((low, high)) if times(low) == times(high) => times(low),
            Some((low, high)) => format!("{} to {}", times(low), times(high)),
        }
    }

    /// In how many loads.
    pub fn count(&self) -> String {
        format!("{} of {}", self.loads, self.of)
    }

    /// Why nothing is concluded, in one line.
    pub fn why(&self) -> String {
        self.why.iter().copied().collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::beside::compared;
    use crate::result::{Better, Metric, Point, Run};

    fn point(switch: &str, rules: u32, figure: &str, values: &[f64]) -> Point {
        let mut point = Point { suite: "rule-to-effect".into(), switch: switch.into(), ..Point::default() };
        point.labels.insert("rules".into(), rules.to_string());
        point.metrics.insert(figure.into(), Metric::new("us", Better::Lower, values.to_vec()));
        point
    }

    #[test]
    fn a_better_median_of_a_peer_is_listed_also_where_nothing_is_concluded_from_it() {
        let mut limited = point("ovs-dpdk", 1_000, "statistics_us", &[50.0, 51.0]);
        limited.limit = Some("the generator".into());
        let points = vec![
            point("crosspoint", 10, "statistics_us", &[100.0, 300.0]),
            point("ovs-dpdk", 10, "statistics_us", &[100.0, 50.0]),
            point("crosspoint", 1_000, "statistics_us", &[200.0, 200.0]),
            limited,
            // A difference of a few percent is no loss.
            point("crosspoint", 100, "statistics_us", &[100.0, 100.1]),
            point("ovs-dpdk", 100, "statistics_us", &[99.0, 99.9]),
            // A loss with a verdict stands elsewhere.
            point("crosspoint", 5, "effect_us", &[100.0, 101.0]),
            point("ovs-netdev", 5, "effect_us", &[50.0, 51.0]),
        ];
        let runs = [Run { points, ..Run::default() }];
        let beside = compared(&runs, "rule-to-effect");
        let open = open(beside.iter());
        let [one] = open.as_slice() else { panic!("{}", open.len()) };
        assert_eq!((one.suite, one.figure, one.peer), ("rule-to-effect", "statistics_us", "ovs-dpdk"));
        assert_eq!((one.count(), one.times()), ("2 of 3".to_string(), "2.67 to 3.96".to_string()));
        assert_eq!(one.why(), "no difference is shown; the limit was the generator");
        assert!(one.reason.contains("so it is exact"));
    }

    #[test]
    fn limits_that_differ_by_their_share_are_one_reason() {
        let of =
            |share| format!("the limit was a processor: the switch waited for one for {share} % of the time");
        assert_eq!(without_share(&of(16)), "the limit was a processor: the switch waited for one");
        assert_eq!(without_share(&of(16)), without_share(&of(7)));
        assert_eq!(without_share("a value is not above 0"), "a value is not above 0");
    }
}
