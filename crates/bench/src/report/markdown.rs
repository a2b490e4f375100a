//! BENCHMARKS.md: the same results as text, with a sentence for each figure in which a peer stands beside
//! Crosspoint: who is better, and by how much.

use crate::compare::{Verdict, between};
use crate::documents;
use crate::result::{Better, Metric, Point, Run};
use crate::stats::short;
use crate::suite::Suite;
use crate::suite::list::suites;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a switch is judged by: of each of these, the first figure that a point has. A switch that is cheaper
/// and slower is shown as both.
const JUDGED: &[&[&str]] = &[
    // What a packet costs.
    &[
        "switching_cycles_per_packet",
        "machine_cycles_per_packet",
        "cycles_per_packet",
        "machine_cycles_per_packet_with_generator",
    ],
    // How many.
    &[
        "lossless_pps",
        "burst_frames",
        "rate_pps",
        "mpps",
        "packets_per_s",
        "rules_per_second",
        "learned_per_s",
    ],
    // How long.
    &["reset_ms", "latency_p99_us", "effect_us", "seconds"],
    // How much memory.
    &["bytes_per_rule"],
    &["bytes_per_cached_flow"],
    &["value"],
];

/// One comparison with a peer.
struct Beside<'a> {
    ours: &'a Point,
    peer: &'a Point,
    figure: &'static str,
    verdict: Verdict,
}

/// The whole text. Each run's path is that of a link from where the text lies.
pub fn text(runs: &[Run]) -> String {
    let mut text = String::from(
        "# Benchmarks\n\nMade by `crosspoint bench report --markdown` from committed runs: do not edit.\n\
         [docs/benchmarking.md](docs/benchmarking.md) says how they are measured and how to read them; ratios have\n\
         their 95 % confidence interval. Costs are in cycles of the time stamp counter.\n\n## Runs\n\n",
    );
    for run in runs {
        let machine = &run.info.machine;
        let _ = writeln!(
            text,
            "- [{}]({}): {}, {} processors, Linux {}, {}",
            run.name.rsplit('/').next().unwrap_or_default(),
            run.name,
            machine.cpu,
            machine.cpus,
            machine.kernel,
            if run.info.mode.is_empty() { "committed" } else { &run.info.mode },
        );
        for warning in &run.info.warnings {
            let _ = writeln!(text, "  - {warning}");
        }
    }
    text += "\n`crosspoint doctor` says what would make a machine's figures better, and how.\n";
    let beside = compared(runs);
    summary(&mut text, &beside);
    for suite in suites() {
        of_suite(&mut text, suite, runs);
    }
    text
}

/// Every point of ours beside each peer's under the same load in the same run.
fn compared(runs: &[Run]) -> Vec<Beside<'_>> {
    let mut all = Vec::new();
    for run in runs {
        for ours in run.points.iter().filter(|p| p.switch == "crosspoint") {
            let peers = run.points.iter().filter(|p| {
                (&p.suite, &p.labels) == (&ours.suite, &ours.labels) && !p.switch.starts_with("crosspoint")
            });
            // Ports with no lookup between them are the floor of these suites, not a switch.
            let is_floor = |p: &&Point| p.switch == "none" || (p.suite == "p2p" && p.switch == "testpmd");
            for peer in peers.filter(|p| !is_floor(p)) {
                let has =
                    |name: &&&str| ours.metrics.contains_key(**name) && peer.metrics.contains_key(**name);
                let figures = JUDGED.iter().filter_map(|names| names.iter().find(has));
                all.extend(figures.map(|figure| {
                    let verdict = between(peer, ours, figure);
                    Beside { ours, peer, figure, verdict }
                }));
            }
        }
    }
    all
}

fn summary(text: &mut String, beside: &[Beside]) {
    let _ = write!(text, "\n## Where Crosspoint wins, and where it loses\n\n");
    let count = |f: fn(&Verdict) -> bool| beside.iter().filter(|b| f(&b.verdict)).count();
    let _ = writeln!(
        text,
        "Of {} comparisons with a peer under the same load, Crosspoint is better in {} and worse in {}; {} show no\n\
         difference beyond the noise, and {} have no verdict.",
        beside.len(),
        count(|v| matches!(v, Verdict::Better(..))),
        count(|v| matches!(v, Verdict::Worse(..))),
        count(|v| matches!(v, Verdict::Same(..))),
        count(|v| matches!(v, Verdict::None(_))),
    );
    for (title, wanted) in [("Worse", true), ("Better", false)] {
        let rows = beside.iter().filter_map(|b| match (&b.verdict, wanted) {
            (Verdict::Worse(low, high), true) | (Verdict::Better(low, high), false) => Some((b, low, high)),
            _ => None,
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n### {title}\n\n| suite | load | figure | peer | Crosspoint / peer |\n|---|---|---|---|---:|\n"
        );
        for (b, low, high) in rows {
            let (suite, load) = (&b.ours.suite, b.ours.load());
            let _ = writeln!(
                text,
                "| {suite} | {load} | {} | {} | {low:.2} to {high:.2} |",
                b.figure, b.peer.switch
            );
        }
    }
    let mut none: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for b in beside {
        if let Verdict::None(why) = &b.verdict {
            *none.entry((&b.ours.suite, &b.peer.switch, why)).or_default() += 1;
        }
    }
    if !none.is_empty() {
        let _ = write!(text, "\n### No verdict\n\n");
        for ((suite, peer, why), count) in none {
            let _ = writeln!(text, "- {suite}, {peer} ({count}): {why}");
        }
    }
}

fn of_suite(text: &mut String, suite: &Suite, runs: &[Run]) {
    let points: Vec<&Point> = runs.iter().flat_map(|r| &r.points).filter(|p| p.suite == suite.name).collect();
    if points.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {}\n\n{}\n\n", suite.name, suite.question);
    let _ = write!(text, "| load | switch | figures | remarks |\n|---|---|---|---|\n");
    for point in points {
        let mut remarks = Vec::new();
        remarks.extend(point.limit.as_ref().map(|limit| format!("the limit was {limit}")));
        let is_off = point.account.as_ref().is_some_and(|account| !account.adds_up());
        remarks.extend(is_off.then(|| "the account of packets does not add up".to_string()));
        let (load, figures) = (point.load(), figures(point));
        let _ = writeln!(text, "| {load} | {} | {figures} | {} |", point.switch, remarks.join("; "));
    }
    let mut document = "";
    for figure in documents::of_suite(suite.name) {
        if figure.document != document {
            document = figure.document;
            let _ = write!(text, "\nNot measured side by side: {document} ({}).\n\n", figure.hardware);
            let _ = write!(text, "| experiment | switch | load | value |\n|---|---|---|---:|\n");
        }
        let (switch, load, value) = (figure.switch, figure.load, figure.value);
        let _ = writeln!(text, "| {} | {switch} | {load} | {value} {} |", figure.experiment, figure.unit);
    }
}

/// The first figures of a point with a better direction.
fn figures(point: &Point) -> String {
    let judged = JUDGED.iter().copied().flatten().filter_map(|name| Some((*name, point.metrics.get(*name)?)));
    let others = point.metrics.iter().map(|(name, m)| (name.as_str(), m));
    let mut seen: Vec<(&str, &Metric)> = Vec::new();
    for (name, metric) in judged.chain(others) {
        if metric.better != Better::Neither && !seen.iter().any(|(n, _)| *n == name) {
            seen.push((name, metric));
        }
    }
    let one = |(name, metric): &(&str, &Metric)| {
        format!("{} {} {}", name.replace('_', " "), short(metric.median()), metric.unit)
    };
    seen.iter().take(4).map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_cheaper_is_named_with_by_how_much() {
        let point = |switch: &str, costs: &[f64]| {
            let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
            let metric = Metric::new("cycles", Better::Lower, costs.to_vec());
            point.metrics.insert("cycles_per_packet".into(), metric);
            point
        };
        let mut points = vec![
            point("crosspoint", &[200.0, 201.0, 199.0]),
            point("ovs-dpdk", &[100.0, 101.0, 99.0]),
            point("ovs", &[400.0, 401.0, 399.0]),
            point("testpmd", &[50.0, 51.0, 49.0]),
        ];
        // Cheaper than this peer, and slower too: one figure does not hide the other.
        for (n, rate) in [(0, 500.0), (2, 1_000.0)] {
            let values = vec![rate, rate + 1.0, rate - 1.0];
            points[n].metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, values));
        }
        let run = Run { name: "bench/runs/x".into(), points, ..Run::default() };
        let text = text(&[run]);
        // Two by cost, and one by speed.
        assert!(text.contains("Of 3 comparisons") && text.contains("better in 1 and worse in 2"), "{text}");
        assert!(text.contains("| rate_pps | ovs | 0.5"), "{text}");
        let worse = text.split("### Worse").nth(1).unwrap().split("###").next().unwrap();
        assert!(worse.contains("| ovs-dpdk | 1.9") && !worse.contains("testpmd"), "{worse}");
        assert!(text.contains("- [x](bench/runs/x)"));
    }
}
