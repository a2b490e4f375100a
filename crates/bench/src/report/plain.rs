//! Where Crosspoint is behind and where it is ahead, in sentences: of each figure and peer, in how many loads
//! and by how much.

use super::beside::{Beside, Outcome, Shown, judged};
use crate::result::judged::Question;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where packets go, as a heading has it. What holds in memory, where nothing else takes time, may not hold
/// between interfaces, where the kernel's work is most of the cost.
pub fn place(beside: &Beside) -> &'static str {
    match &*beside.peer.switch {
        "ovs-vswitchd" | "ovsdb-server" => "in the control plane",
        _ if beside.ours.labels.contains_key("trial") => "between interfaces and guests",
        _ => "in memory",
    }
}

/// The comparisons of one figure with one peer, at one place.
type Groups<'a> = BTreeMap<(&'static str, &'a str, String), Vec<&'a Beside<'a>>>;

/// Both lists, the one with what a peer is better in first. `named` gives a switch the name for readers.
pub fn lists<'a>(
    text: &mut String,
    beside: impl Iterator<Item = &'a Beside<'a>>,
    named: impl Fn(&str) -> String,
) {
    let mut groups = Groups::new();
    for one in beside.filter(|one| !matches!(one.outcome, Outcome::None(_))) {
        let key = (place(one), one.figure, named(&one.peer.switch));
        groups.entry(key).or_default().push(one);
    }
    let is_worse = |one: &Beside| matches!(one.outcome, Outcome::Worse(_));
    let is_better = |one: &Beside| matches!(one.outcome, Outcome::Better(_));
    list(text, "Crosspoint is behind", &groups, is_worse, true);
    list(text, "Crosspoint is ahead", &groups, is_better, false);
}

/// The groups with such comparisons, those with the greatest factor first.
fn list(
    text: &mut String,
    heading: &str,
    groups: &Groups,
    is_such: impl Fn(&Beside) -> bool,
    is_behind: bool,
) {
    let factor = |one: &Beside| if is_behind { 1.0 / one.factor } else { one.factor };
    let mut lines: Vec<(f64, String)> = Vec::new();
    for ((place, figure, peer), all) in groups {
        let such: Vec<&Beside> = all.iter().copied().filter(|one| is_such(one)).collect();
        let Some(first) = such.first() else { continue };
        let low = such.iter().map(|one| factor(one)).fold(f64::INFINITY, f64::min);
        let high = such.iter().map(|one| factor(one)).fold(0.0, f64::max);
        let range = match such.len() {
            1 => times(low),
            _ => format!("{} to {}", times(low), times(high)),
        };
        let once = such.iter().filter(|one| once(one)).count();
        let evidence = match (once, such.len()) {
            (0, _) => "shown",
            (once, all) if once == all => "by one turn",
            _ => "some by one turn",
        };
        let (words, by) = (words(figure), by_how_much(first, is_behind));
        let by = by.replace("FACTOR", &range);
        let line = match all.len() {
            n if n == such.len() && n == 1 => format!("{words}, {place}, beside {peer}: {by} ({evidence})"),
            n if n == such.len() => {
                let all = if n == 2 { "both".to_string() } else { format!("all {n}") };
                format!("{words}, {place}, beside {peer}: in {all} loads {by} ({evidence})")
            }
            n => format!("{words}, {place}, beside {peer}: in {} of {n} loads {by} ({evidence})", such.len()),
        };
        lines.push((high, line));
    }
    if lines.is_empty() {
        return;
    }
    lines.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let _ = writeln!(text, "\n**{heading}**:\n");
    for (_, line) in lines {
        let _ = writeln!(text, "- {line}.");
    }
}

fn once(one: &Beside) -> bool {
    matches!(one.outcome, Outcome::Better(Shown::Once) | Outcome::Worse(Shown::Once))
}

/// What the factor says of this figure.
fn by_how_much(one: &Beside, is_behind: bool) -> &'static str {
    let question = judged().iter().flatten().find(|judged| judged.name == one.figure).map(|j| j.question);
    let is_time =
        one.ours.metrics.get(one.figure).is_some_and(|m| matches!(m.unit.as_str(), "s" | "ms" | "us"));
    let is_more = one.ours.metrics.get(one.figure).is_some_and(|m| m.better == crate::result::Better::Higher);
    match (question, is_behind) {
        // It stands for several, each with a direction of its own.
        (_, true) if one.figure == "value" => "the peer is FACTOR times as good",
        (_, false) if one.figure == "value" => "it is FACTOR times as good",
        (Some(Question::Cost), true) => "it costs FACTOR times as much",
        (Some(Question::Cost), false) => "the peer costs FACTOR times as much",
        _ if is_more && is_behind => "the peer has FACTOR times as many",
        _ if is_more => "it has FACTOR times as many",
        (_, true) if is_time => "it takes FACTOR times as long",
        (_, false) if is_time => "the peer takes FACTOR times as long",
        (_, true) => "it takes FACTOR times as much",
        (_, false) => "the peer takes FACTOR times as much",
    }
}

/// The description of a figure for readers who do not know its name.
pub fn words(figure: &str) -> &str {
    let found = judged().iter().flatten().find(|judged| judged.name == figure);
    found.map_or(figure, |judged| &judged.words)
}

/// A factor as readers see it.
pub fn times(factor: f64) -> String {
    // One of the two is nothing.
    if factor.is_infinite() {
        return "∞".into();
    }
    if factor >= 10.0 { format!("{factor:.0}") } else { format!("{factor:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::beside::compared;
    use crate::result::{Better, Metric, Point, Run};

    fn point(switch: &str, flows: u32, figure: (&str, &str, Better), values: &[f64]) -> Point {
        let (name, unit, better) = figure;
        let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
        point.labels.insert("flows".into(), flows.to_string());
        point.metrics.insert(name.into(), Metric::new(unit, better, values.to_vec()));
        point
    }

    fn said(points: Vec<Point>) -> String {
        let runs = [Run { name: "x".into(), points, ..Run::default() }];
        let mut text = String::new();
        lists(&mut text, compared(&runs, "p2p").iter(), |switch| format!("the {switch}"));
        text
    }

    #[test]
    fn losses_come_first_and_each_factor_says_of_what_it_is() {
        let cost = ("cycles_per_packet", "cycles", Better::Lower);
        let mut points = vec![
            point("crosspoint", 1, cost, &[200.0, 201.0]),
            point("ovs", 1, cost, &[100.0, 100.5]),
            point("crosspoint", 10, cost, &[200.0]),
            point("ovs", 10, cost, &[800.0]),
        ];
        let text = said(points.clone());
        let behind = "**Crosspoint is behind**:\n\n- cost of a packet to the switch, in memory, beside the ovs: \
                      in 1 of 2 loads it costs 2.00 times as much (shown).\n";
        let ahead = "**Crosspoint is ahead**:\n\n- cost of a packet to the switch, in memory, beside the ovs: \
                     in 1 of 2 loads the peer costs 4.00 times as much (by one turn).\n";
        assert_eq!(text, format!("\n{behind}\n{ahead}"));
        // Between interfaces it is another matter.
        points.iter_mut().for_each(|p| drop(p.labels.insert("trial".into(), "fixed".into())));
        points.truncate(2);
        assert!(said(points).contains("between interfaces and guests, beside the ovs: it costs 2.00"));
        let rate = ("learned_per_s", "1/s", Better::Higher);
        let text = said(vec![point("crosspoint", 1, rate, &[5.0]), point("ovs", 1, rate, &[60.0])]);
        assert!(text.contains("beside the ovs: the peer has 12 times as many (by one turn)"), "{text}");
        let time = ("effect_us", "us", Better::Lower);
        let text = said(vec![point("crosspoint", 1, time, &[5.0]), point("ovs", 1, time, &[60.0])]);
        assert!(text.contains("the peer takes 12 times as long"), "{text}");
    }
}
