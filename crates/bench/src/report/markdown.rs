//! BENCHMARKS.md: the results as text. First in plain words where Crosspoint is worse than a peer and where it
//! is better, and by how much; then every figure, with its run.

use super::beside::{Beside, JUDGED, Outcome, Shown, compared, is_floor, newest};
use super::reasons;
use crate::documents;
use crate::result::{Better, Metric, Point, Run};
use crate::stats::short;
use crate::suite::Suite;
use crate::suite::list::suites;
use std::collections::BTreeMap;
use std::fmt::Write;

const HEAD: &str = "# Benchmarks

Made from the committed runs by `crosspoint bench report --markdown BENCHMARKS.md bench/runs/*/`: do not edit.
[docs/benchmarking.md](docs/benchmarking.md) says how to measure on your machine; `crosspoint doctor` says
what would make its figures better.

## How to read it

- **times as good**: 2.00 is twice as good as the peer, be it half the cost or twice the rate; 0.50 is half as
  good. Both were measured in the same run, in turns, on the same machine, under the same load.
- **shown** means that the 95 % confidence interval of the ratio over the turns excludes 1. **by one turn**
  means that each was measured once: an indication, which the next run may turn round. Two such figures that
  differ by less than 10 % are *alike*.
- Costs are in cycles of the time stamp counter (TSC). `cycles_per_packet` are those of the switch's threads,
  `machine_cycles_per_packet` those of the whole machine less the generator's own, `switching_cycles_per_packet`
  those of the switch's thread less what the same source and sink cost with no switch between.
- A load is shown once: by the newest of the runs that has more than one turn of it, or else the newest.
- Runs before 2026-11-26 are of older versions of Crosspoint.
";

/// The whole text. Each run's name is the path of a link from where the text lies.
pub fn text(runs: &[Run]) -> String {
    let mut text = String::from(HEAD);
    of_runs(&mut text, runs);
    let suites: Vec<(&Suite, Vec<Beside>)> =
        suites().map(|suite| (suite, compared(runs, suite.name))).collect();
    let of =
        |floor: bool| suites.iter().flat_map(|(_, b)| b).filter(move |b| is_floor(&b.peer.switch) == floor);
    text += "\n## Where Crosspoint loses and where it wins\n\n";
    counts(&mut text, "other switches", of(false));
    by_peer(&mut text, of(false));
    worse(&mut text, of(false));
    text += "\n### By suite, with the question that it asks\n\n";
    for (suite, beside) in &suites {
        sentences(&mut text, suite, beside);
    }
    text += "\n### Beside forwarders that look nothing up\n\n\
             `testpmd` moves packets from port to port without a rule, and the `loop-` programs are one table under \
             four\nloops: they are the practical limit of this machine, not a choice that a user has.\n\n";
    counts(&mut text, "them", of(true));
    no_verdict(&mut text, &suites);
    text += "\n# Figures\n";
    for (suite, beside) in &suites {
        of_suite(&mut text, suite, beside, runs);
    }
    not_measured(&mut text, runs);
    text
}

fn name(run: &Run) -> &str {
    run.name.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn of_runs(text: &mut String, runs: &[Run]) {
    *text += "\n## Runs\n\n| run | begun | how long | machine | command |\n|---|---|---|---|---|\n";
    let mut sorted: Vec<&Run> = runs.iter().collect();
    sorted.sort_by_key(|run| std::cmp::Reverse((&run.info.started, &run.name)));
    for run in sorted {
        let machine = &run.info.machine;
        let mode = match run.info.mode.as_str() {
            "quick" => "quick: seconds for each load, mostly one turn",
            "committed" => "by single commands, several turns",
            mode => mode,
        };
        let command = match run.info.command.lines().count() {
            0 | 1 => format!("`{}`", short_command(run.info.command.trim())),
            _ => format!("[commands.txt]({}/commands.txt)", run.name.trim_end_matches('/')),
        };
        let _ = writeln!(
            text,
            "| [{}]({}) | {} | {mode} | {}, {} processors, Linux {} | {command} |",
            name(run),
            run.name.trim_end_matches('/'),
            run.info.started.split(',').next().unwrap_or_default(),
            machine.cpu,
            machine.cpus,
            machine.kernel,
        );
    }
    *text += "\nWhat speaks against trusting these figures:\n\n";
    super::warnings(runs).iter().for_each(|warning| *text += &format!("- {warning}\n"));
    let failed = |run: &&Run| !run.info.failed.is_empty();
    for run in runs.iter().filter(failed) {
        let _ = writeln!(text, "\nSteps of {} that failed:\n", name(run));
        run.info.failed.iter().for_each(|(step, why)| *text += &format!("- {step}: {why}\n"));
    }
}

/// The program's path says nothing.
fn short_command(command: &str) -> String {
    let mut words: Vec<&str> = command.split(' ').collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default();
    }
    let out = words.iter().position(|word| *word == "--out");
    if let Some(out) = out {
        words.drain(out..(out + 2).min(words.len()));
    }
    words.join(" ")
}

/// How many comparisons came out how.
#[derive(Default)]
struct Tally {
    better: Vec<f64>,
    worse: Vec<f64>,
    alike: usize,
    surely: [usize; 2],
    none: usize,
}

impl Tally {
    fn of<'a>(beside: impl Iterator<Item = &'a Beside<'a>>) -> Tally {
        let mut tally = Tally::default();
        for one in beside {
            match &one.outcome {
                Outcome::Better(shown) => {
                    tally.better.push(one.factor);
                    tally.surely[0] += usize::from(*shown == Shown::Surely);
                }
                Outcome::Worse(shown) => {
                    tally.worse.push(one.factor);
                    tally.surely[1] += usize::from(*shown == Shown::Surely);
                }
                Outcome::Alike => tally.alike += 1,
                Outcome::None(_) => tally.none += 1,
            }
        }
        tally
    }

    /// `better in 3 (1.20 to 4.00 times as good; 1 shown), worse in 1 (0.80), alike in 2`.
    fn words(&self) -> String {
        let mut parts = Vec::new();
        let sides = [("better", &self.better, self.surely[0]), ("worse", &self.worse, self.surely[1])];
        for (word, factors, surely) in sides.into_iter().filter(|(_, factors, _)| !factors.is_empty()) {
            let low = factors.iter().copied().fold(f64::INFINITY, f64::min);
            let high = factors.iter().copied().fold(0.0, f64::max);
            let range =
                if factors.len() == 1 { times(low) } else { format!("{} to {}", times(low), times(high)) };
            let shown = match surely {
                0 => "by one turn".into(),
                n if n == factors.len() => "shown".into(),
                n => format!("{n} shown, the others by one turn"),
            };
            parts.push(format!("**{word}** in {} ({range} times as good; {shown})", factors.len()));
        }
        if self.alike > 0 {
            parts.push(format!("alike in {}", self.alike));
        }
        parts.join(", ")
    }
}

fn times(factor: f64) -> String {
    if factor >= 10.0 { format!("{factor:.0}") } else { format!("{factor:.2}") }
}

fn counts<'a>(text: &mut String, whom: &str, beside: impl Iterator<Item = &'a Beside<'a>>) {
    let tally = Tally::of(beside);
    let all = tally.better.len() + tally.worse.len() + tally.alike + tally.none;
    let _ = writeln!(
        text,
        "Of {all} comparisons with {whom}, Crosspoint is better in {} ({} of them shown), worse in {} ({} shown), and\n\
         alike in {}; {} have no verdict.",
        tally.better.len(),
        tally.surely[0],
        tally.worse.len(),
        tally.surely[1],
        tally.alike,
        tally.none,
    );
}

/// A line for each peer.
fn by_peer<'a>(text: &mut String, beside: impl Iterator<Item = &'a Beside<'a>>) {
    let mut peers: BTreeMap<&str, Vec<&Beside>> = BTreeMap::new();
    for one in beside {
        peers.entry(&one.peer.switch).or_default().push(one);
    }
    *text += "\n| beside | Crosspoint is better in | worse in | alike in | no verdict |\n|---|---|---|---:|---:|\n";
    for (peer, beside) in peers {
        let tally = Tally::of(beside.into_iter());
        let shown = |count: usize, surely: usize| match (count, surely) {
            (0, _) => "0".into(),
            (count, surely) => format!("{count} ({surely} shown)"),
        };
        let (better, worse) = (tally.better.len(), tally.worse.len());
        let (better, worse) = (shown(better, tally.surely[0]), shown(worse, tally.surely[1]));
        let _ = writeln!(text, "| {peer} | {better} | {worse} | {} | {} |", tally.alike, tally.none);
    }
}

/// What a figure is, for readers who do not know its name.
fn plainly(figure: &str) -> &str {
    match figure {
        "switching_cycles_per_packet" => "cost of switching a packet",
        "machine_cycles_per_packet" => "cost of a packet to the machine",
        "machine_cycles_per_packet_with_generator" => "cost of a packet to the machine, generator included",
        "cycles_per_packet" => "cost of a packet to the switch",
        "lossless_pps" => "rate without loss",
        "burst_frames" => "burst without loss",
        "rate_pps" | "mpps" | "packets_per_s" => "packets per second",
        "rules_per_second" => "rules per second",
        "learned_per_s" => "addresses learned per second",
        "reset_ms" => "time without packets",
        "latency_p99_us" => "latency of the slowest of a hundred packets",
        "effect_us" => "time until a rule has effect",
        "seconds" => "time",
        "bytes_per_rule" => "memory of a rule",
        "bytes_per_cached_flow" => "memory of a cached flow",
        figure => figure,
    }
}

/// One sentence for each figure and peer of a suite.
fn sentences(text: &mut String, suite: &Suite, beside: &[Beside]) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Beside>> = BTreeMap::new();
    let judged = |b: &&Beside| !is_floor(&b.peer.switch) && !matches!(b.outcome, Outcome::None(_));
    for one in beside.iter().filter(judged) {
        groups.entry((&one.peer.switch, one.figure)).or_default().push(one);
    }
    if groups.is_empty() {
        return;
    }
    let _ = writeln!(text, "- **[{0}](#{0})**: {1}", suite.name, suite.question);
    for ((peer, figure), beside) in groups {
        let words = Tally::of(beside.iter().copied()).words();
        let figure = plainly(figure);
        let _ = writeln!(text, "  - {figure}, beside {peer}: {words}.");
    }
}

/// A table of every figure in which a peer is better.
fn worse<'a>(text: &mut String, beside: impl Iterator<Item = &'a Beside<'a>>) {
    let mut rows: Vec<&Beside> = beside.filter(|b| matches!(b.outcome, Outcome::Worse(_))).collect();
    if rows.is_empty() {
        return;
    }
    // The shown ones first, then the worst.
    rows.sort_by(|a, b| {
        let once = |x: &Beside| matches!(x.outcome, Outcome::Worse(Shown::Once));
        once(a).cmp(&once(b)).then(a.factor.total_cmp(&b.factor))
    });
    *text += "\n### Every figure in which a peer is better\n\n\
              | suite | load | figure | Crosspoint | peer | times as good | evidence | why |\n\
              |---|---|---|---:|---:|---:|---|---|\n";
    for b in rows {
        let why = reasons::why(&b.ours.suite, &b.peer.switch, b.figure);
        let _ = writeln!(text, "| {} | {} | {} | {why} |", b.ours.suite, b.ours.load(), pair(b));
    }
}

/// `figure | Crosspoint | peer | times as good | evidence`.
fn pair(b: &Beside) -> String {
    let metric = &b.ours.metrics[b.figure];
    let evidence = match &b.outcome {
        Outcome::Better(Shown::Surely) => format!("shown better, {} turns", b.turns()),
        Outcome::Worse(Shown::Surely) => format!("shown worse, {} turns", b.turns()),
        Outcome::Alike if b.turns() > 1 => format!("no difference shown, {} turns", b.turns()),
        Outcome::Better(_) | Outcome::Worse(_) => "by one turn".into(),
        Outcome::Alike => "alike by one turn".into(),
        Outcome::None(why) => format!("no verdict: {why}"),
    };
    let factor = if matches!(b.outcome, Outcome::None(_)) { String::new() } else { times(b.factor) };
    let unit = if metric.unit == "cycles" { "" } else { metric.unit.as_str() };
    format!(
        "{} | {} {unit} | {} {unit} ({}) | {factor} | {evidence}, [{}]({})",
        b.figure,
        short(metric.median()),
        short(b.peer.metrics[b.figure].median()),
        b.peer.switch,
        name(b.run),
        b.run.name.trim_end_matches('/'),
    )
}

fn no_verdict(text: &mut String, suites: &[(&Suite, Vec<Beside>)]) {
    let mut none: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for b in suites.iter().flat_map(|(_, beside)| beside) {
        if let Outcome::None(why) = &b.outcome {
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

fn of_suite(text: &mut String, suite: &Suite, beside: &[Beside], runs: &[Run]) {
    let points = newest(runs, suite.name);
    if points.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {}\n\n{}\n", suite.name, suite.question);
    if !beside.is_empty() {
        *text += "\n| load | figure | Crosspoint | peer | times as good | evidence |\n|---|---|---:|---:|---:|---|\n";
        for b in beside {
            let _ = writeln!(text, "| {} | {} |", b.ours.load(), pair(b));
        }
    }
    let is_beside =
        |point: &Point| beside.iter().any(|b| std::ptr::eq(b.ours, point) || std::ptr::eq(b.peer, point));
    let alone: Vec<_> = points.into_iter().filter(|(_, point)| !is_beside(point)).collect();
    if !alone.is_empty() {
        *text += "\n| load | switch | figures | remarks | run |\n|---|---|---|---|---|\n";
    }
    for (run, point) in alone {
        let mut remarks = Vec::new();
        remarks.extend(point.limit.as_ref().map(|limit| format!("the limit was {limit}")));
        let is_off = point.account.as_ref().is_some_and(|account| !account.adds_up());
        remarks.extend(is_off.then(|| "the account of packets does not add up".to_string()));
        let (load, figures, remarks) = (point.load(), figures(point), remarks.join("; "));
        let (run_name, link) = (name(run), run.name.trim_end_matches('/'));
        let switch = &point.switch;
        let _ = writeln!(text, "| {load} | {switch} | {figures} | {remarks} | [{run_name}]({link}) |");
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

fn not_measured(text: &mut String, runs: &[Run]) {
    let left_out = super::left_out(runs);
    if !left_out.is_empty() {
        *text += "\n# Not measured\n\n";
    }
    for (switch, suites, why) in left_out {
        let _ = writeln!(text, "- {switch} ({}): {why}", suites.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(switch: &str, figure: &str, better: Better, values: &[f64]) -> Point {
        let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
        point.metrics.insert(figure.into(), Metric::new("cycles", better, values.to_vec()));
        point
    }

    #[test]
    fn a_peer_that_is_cheaper_is_named_with_by_how_much() {
        let cost = |switch: &str, values: &[f64]| point(switch, "cycles_per_packet", Better::Lower, values);
        let mut points = vec![
            cost("crosspoint", &[200.0, 201.0, 199.0]),
            cost("ovs-dpdk", &[100.0, 101.0, 99.0]),
            cost("ovs", &[400.0, 401.0, 399.0]),
            cost("testpmd", &[50.0, 51.0, 49.0]),
        ];
        // Cheaper than this peer, and slower too: one figure does not hide the other.
        for (n, rate) in [(0, 500.0), (2, 1_000.0)] {
            let values = vec![rate, rate + 1.0, rate - 1.0];
            points[n].metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, values));
        }
        let text = text(&[Run { name: "bench/runs/x/".into(), points, ..Run::default() }]);
        // Two by cost, and one by speed; the program that looks nothing up is counted apart.
        let expected =
            "Of 3 comparisons with other switches, Crosspoint is better in 1 (1 of them shown), worse in 2";
        assert!(text.contains(expected), "{text}");
        let worse = text.split("### Every figure").nth(1).unwrap().split("###").next().unwrap();
        assert!(
            worse.contains("| cycles_per_packet | 200  | 100  (ovs-dpdk) | 0.50 | shown worse"),
            "{worse}"
        );
        assert!(worse.contains("(ovs) | 0.50") && worse.contains("not known yet"), "{worse}");
        assert!(!worse.contains("testpmd"), "{worse}");
        assert!(text.contains("| [x](bench/runs/x) |"), "{text}");
        assert!(text.contains("| ovs | 1 (1 shown) | 1 (1 shown) | 0 | 0 |"), "{text}");
        assert!(
            text.contains("- cost of a packet to the switch, beside ovs-dpdk: **worse** in 1 (0.50 times"),
            "{text}"
        );
        assert!(text.contains("Of 1 comparisons with them"), "{text}");
    }

    #[test]
    fn one_turn_is_an_indication_and_a_run_with_enough_turns_stands_before_it() {
        let cost = |switch: &str, values: &[f64]| point(switch, "cycles_per_packet", Better::Lower, values);
        let run = |name: &str, points| {
            let mut run = Run { name: name.into(), points, ..Run::default() };
            run.info.started = name.into();
            run
        };
        let newer = run("2", vec![cost("crosspoint", &[300.0]), cost("ovs", &[100.0])]);
        let once = text(std::slice::from_ref(&newer));
        assert!(once.contains("worse in 1 (0 shown)") && once.contains("by one turn, [2](2)"), "{once}");
        let older =
            run("1", vec![cost("crosspoint", &[50.0, 51.0, 50.5]), cost("ovs", &[100.0, 99.0, 101.0])]);
        let both = text(&[newer, older]);
        assert!(both.contains("better in 1 (1 of them shown), worse in 0"), "{both}");
    }

    #[test]
    fn a_limit_leaves_the_cost_a_verdict_and_the_kernels_cost_has_none() {
        let mut ours = point("crosspoint", "cycles_per_packet", Better::Lower, &[100.0]);
        ours.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, vec![10.0]));
        let mut ovs = point("ovs", "cycles_per_packet", Better::Lower, &[300.0]);
        ovs.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, vec![20.0]));
        ovs.limit = Some("the generator".into());
        ours.metrics
            .insert("machine_cycles_per_packet".into(), Metric::new("cycles", Better::Lower, vec![9.0]));
        let bridge = point("bridge", "machine_cycles_per_packet", Better::Lower, &[1.0]);
        let text = text(&[Run { name: "x".into(), points: vec![ours, ovs, bridge], ..Run::default() }]);
        assert!(
            text.contains("better in 1 (0 of them shown), worse in 0 (0 shown), and\nalike in 0; 2 have"),
            "{text}"
        );
        assert!(text.contains("p2p, bridge (1): the kernel forwards on the generator's time"), "{text}");
        assert!(text.contains("p2p, ovs (1): the limit was the generator"), "{text}");
    }
}
