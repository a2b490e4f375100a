//! The page: warnings first, then the goals, then each suite with its graphs and figures, then the machine
//! and how to repeat it all.

use super::bars::Bars;
use super::beside::{Beside, compared};
use super::knee::Knee;
use super::plot::{Line, STYLES, lines, svg};
use super::style::{SCRIPT, STYLE};
use super::{left_out, open};
use crate::goals::{Held, summary};
use crate::result::{Point, Run};
use crate::stats::short;
use crate::suite::list::suites;
use crate::suite::notes;
use crate::suite::{Limit, Plot, Suite};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// What is said of points that are not the switch's own.
const FOREIGN: &str = "another part than the switch was the limit, or the packets do not add up.";

/// The whole page. `held` are the goals of each run.
pub fn page(runs: &[Run], held: &[Vec<Held>]) -> String {
    let suites: Vec<&Suite> =
        suites().filter(|s| runs.iter().any(|r| r.points.iter().any(|p| p.suite == s.name))).collect();
    let names: Vec<&str> = runs.iter().map(|r| r.name.as_str()).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Avoids a request for an icon.
                link rel="icon" href="data:,";
                title { "Crosspoint benchmarks: " (names.join(", ")) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Crosspoint benchmarks" }
                (warnings(runs))
                nav aria-label="Suites" {
                    @if is_calibrated(runs) { a href="#alone" { "Alone" } }
                    a href="#goals" { "Goals" }
                    @for suite in &suites { a href={ "#" (suite.name) } { (suite.name) } }
                    a href="#machine" { "Machine" }
                    a href="#repeat" { "Repeat" }
                }
                (calibration(runs))
                (goals(runs, held))
                (not_concluded(runs))
                @for suite in &suites { (of_suite(suite, runs)) }
                (machines(runs))
                (repeat(runs))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn warnings(runs: &[Run]) -> Markup {
    let limited = |run: &Run| run.points.iter().filter(|p| !p.is_of_switch()).count();
    html! {
        section.warnings aria-label="Warnings" {
            @for run in runs {
                p { strong { (run.name) } " (" (run.info.mode) ", " (run.info.started) ", " (run.points.len()) " points)" }
                ul {
                    @for warning in left_out::warnings(std::slice::from_ref(run)) { li { (warning) } }
                    @if limited(run) > 0 {
                        li { (limited(run)) " points are marked: the switch was not the limit, or the packets do not add up. "
                            "Their rates say nothing about the switch." }
                    }
                    @for point in &run.points {
                        @for said in point.verdicts.iter().filter(|said| point.warnings.contains(said)) {
                            li { (point.suite) ", " (point.switch) ": " (said) }
                        }
                    }
                    @for (step, why) in &run.info.failed { li.bad { (step) " failed: " (why) } }
                }
                @let reasons = left_out::left_out(std::slice::from_ref(run));
                @if !reasons.is_empty() {
                    details { summary { "What was left out, and why" } ul {
                        @for (switch, suites, why) in reasons {
                            li { (switch) " (" (suites.join(", ")) "): " (why) }
                        }
                    } }
                }
            }
            p { code { "crosspoint doctor" } " says what would make a machine's figures better, and how." }
        }
    }
}

fn is_calibrated(runs: &[Run]) -> bool {
    runs.iter().any(|run| !run.info.calibration.is_empty())
}

/// What generator and guest achieve alone: no figure of a switch can exceed it.
fn calibration(runs: &[Run]) -> Markup {
    html! { @if is_calibrated(runs) {
        section #alone {
            h2 { "Generator and guest alone" }
            p { "Measured first, for 0.3 s, with no switch between. A switch that comes near was not the limit." }
            @for run in runs.iter().filter(|run| !run.info.calibration.is_empty()) {
                @if runs.len() > 1 { h3 { (run.name) } }
                div.scroll { table {
                    (head(&["Alone", "Packets per second"]))
                    tbody { @for (alone, pps) in &run.info.calibration { tr { td { (alone) } (number(*pps)) } } }
                } }
            }
        }
    } }
}

fn goals(runs: &[Run], held: &[Vec<Held>]) -> Markup {
    html! {
        section #goals {
            h2 { "Goals" }
            p { "A goal is held where the bound of the 95 % confidence interval holds it."
                @if runs.iter().any(|run| run.info.mode == "quick") {
                    " The two turns of a quick run bound next to nothing: most of what it misses, a normal run holds."
                }
            }
            @for (run, held) in runs.iter().zip(held).filter(|(_, held)| !held.is_empty()) {
                h3 { (run.name) ": "
                    @for (n, (verdict, count)) in summary(held).into_iter().enumerate() {
                        @if n > 0 { ", " } (count) " " (verdict)
                    }
                }
                div.scroll { table {
                    (head(&["Load", "Figure", "Median", "Bound", "Goal", "Verdict"]))
                    tbody { @for one in held { tr {
                        td { (one.what) } td { (one.figure) } (number(one.value)) (number(one.bound)) td { (one.goal) }
                        td class=(class(&one.verdict)) { (one.verdict) }
                    } } }
                } }
            }
        }
    }
}

/// Where a peer's median is better, though nothing shows it.
fn not_concluded(runs: &[Run]) -> Markup {
    let beside: Vec<Beside> = suites().flat_map(|suite| compared(runs, suite.name)).collect();
    let all = open::open(beside.iter());
    html! { @if !all.is_empty() {
        section #open {
            h2 { "Where a peer's median is better, and nothing is concluded" }
            p { "By more than 10 %. These are neither proven losses nor figures to quote: they show where a loss may hide." }
            div.scroll { table {
                (head(&["Suite", "Figure", "Peer", "Loads", "Times as bad", "Why nothing is concluded", "Why it may be"]))
                tbody { @for one in &all { tr {
                    td { (one.suite) } td { (one.figure) } td { (one.peer) } td { (one.count()) } td { (one.times()) }
                    td { (one.why()) } td { (one.reason) }
                } } }
            } }
        }
    } }
}

fn class(verdict: &str) -> &'static str {
    match verdict {
        v if v.starts_with("held") => "good",
        v if v.starts_with("missed") => "bad",
        _ => "warn",
    }
}

fn of_suite(suite: &Suite, runs: &[Run]) -> Markup {
    html! {
        section #(suite.name) {
            h2 { (suite.name) }
            p { (suite.question) }
            @for note in notes::of_suite(suite.name) { p { (note) } }
            @for plot in suite.plots.iter().filter(|plot| plot.bars) { (bars(plot, suite, runs)) }
            @for plot in suite.plots.iter().filter(|plot| !plot.bars) {
                @for part in apart(plot, suite, runs) {
                    @let of_run = (part.len() < runs.len()).then(|| part[0].short_name(runs));
                    (graph(plot, of_run, &lines(plot, suite.name, part)))
                }
            }
            (documents(suite))
            (conditions(suite, runs))
            details open[suite.plots.is_empty()] { summary { "Figures" }
                @for run in runs.iter().filter(|r| r.points.iter().any(|p| p.suite == suite.name)) {
                    @if runs.len() > 1 { h3 { (run.name) } }
                    (figures(run, suite.name))
                }
            }
        }
    }
}

/// The runs that a graph shows together: each alone if their lines are more than can look different.
fn apart<'a>(plot: &Plot, suite: &Suite, runs: &'a [Run]) -> Vec<&'a [Run]> {
    match lines(plot, suite.name, runs).len() {
        count if count > STYLES => runs.chunks(1).collect(),
        _ => vec![runs],
    }
}

fn graph(plot: &Plot, of_run: Option<&str>, lines: &[Line]) -> Markup {
    html! { @if let Some(svg) = svg(plot, lines) {
        figure.graph data-points=(lines.iter().map(|l| l.points.len()).sum::<usize>()) {
            figcaption { (plot.title) @if let Some(run) = of_run { " (" (run) ")" } }
            div.scroll { (PreEscaped(svg)) }
            (legend(lines.iter().map(|line| line.name.as_str())))
            @if lines.iter().any(|line| !line.foreign.is_empty()) { p { "In a frame: " (FOREIGN) } }
            @if plot.limit == Some(Limit::Offered) { (knees(lines)) }
        }
    } }
}

/// The conditions of each switch that must be equal for a comparison.
fn conditions(suite: &Suite, runs: &[Run]) -> Markup {
    let mut sets: Vec<(&str, String, String)> = Vec::new();
    let text = |pairs: &BTreeMap<String, String>| {
        pairs.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
    };
    for point in runs.iter().flat_map(|run| &run.points).filter(|p| p.suite == suite.name) {
        let set = (point.switch.as_str(), text(&point.conditions), text(&point.inherent));
        let says_something = !set.1.is_empty() || !set.2.is_empty();
        if says_something && !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets.sort_unstable();
    html! { @if !sets.is_empty() {
        details { summary { "Conditions" }
            p { "Two switches are compared where all of these are equal. The kernel has no workers, queues, batch or "
                "huge pages of its own." }
            div.scroll { table {
                (head(&["Switch", "Conditions", "Built in"]))
                tbody { @for (switch, set, inherent) in sets { tr {
                    td { (switch) } td { (set) }
                    @if inherent.is_empty() { td.none { "not recorded" } } @else { td { (inherent) } }
                } } }
            } }
        }
    } }
}

/// The results of the documents that describe the experiment.
fn documents(suite: &Suite) -> Markup {
    let figures = crate::documents::of_suite(suite.name);
    html! { @if !figures.is_empty() {
        details { summary { "Figures of the documents" }
            p.warn { "Not measured side by side: other machines, years and versions." }
            div.scroll { table {
                (head(&["Document", "Experiment", "Hardware", "Switch", "Load", "Value", "Unit", "Read in"]))
                tbody { @for figure in figures { tr {
                    td { (figure.document) } td { (figure.experiment) } td { (figure.hardware) } td { (figure.switch) }
                    td { (figure.load) } (number(figure.value)) td { (figure.unit) } td { (figure.read_in) }
                } } }
            } }
        }
    } }
}

/// Where each line of a load curve breaks; the graph has a cross there.
fn knees(lines: &[Line]) -> Markup {
    let found: Vec<(&str, Knee)> =
        lines.iter().filter_map(|line| Some((line.name.as_str(), line.knee()?))).collect();
    html! { @if !found.is_empty() {
        p { "Inflection points (crosses): the highest load of which at least 99 % came through, where a higher one "
            "lost more." }
        ul { @for (name, knee) in found { li { (name) ": " (knee) } } }
    } }
}

/// A graph of bars, if there are any.
fn bars(plot: &Plot, suite: &Suite, runs: &[Run]) -> Markup {
    let bars = Bars::of(plot, suite.name, runs);
    html! { @if let Some(svg) = bars.svg(plot) {
        figure.graph data-points=(bars.count()) {
            figcaption { (plot.title) }
            div.scroll { (PreEscaped(svg)) }
            @if bars.series.len() > 1 { (legend(bars.series.iter().map(String::as_str))) }
            @if bars.has_hollow() { p { "Hollow: " (FOREIGN) } }
        }
    } }
}

fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    html! { ul.legend { @for (n, name) in names.enumerate() {
        @let colour = format!("var(--line{})", n % 8);
        @let fill = if n < 8 { colour.clone() } else {
            format!("repeating-linear-gradient(90deg, {colour} 0 6px, transparent 6px 10px)")
        };
        li { i style={ "background: " (fill) } {} (name) }
    } } }
}

fn figures(run: &Run, suite: &str) -> Markup {
    let rows = run.points.iter().filter(|p| p.suite == suite).flat_map(|point| {
        // Also those that are neither better nor worse: what used the processors, and how much.
        point.metrics.iter().map(move |(name, metric)| (point, name, metric))
    });
    html! {
        div.scroll { table {
            (head(&["Switch", "Load", "Figure", "Median", "Unit", "Low", "High", "Turns", "Remarks"]))
            tbody { @for (point, name, metric) in rows {
                @let (low, high) = metric.interval();
                tr {
                    td title=(identity(point)) { (point.switch) } td { (point.load_with_rules()) } td { (name) }
                    (number(metric.median())) td { (metric.unit) }
                    @if metric.values.len() > 1 { (number(low)) (number(high)) } @else {
                        td.none { "one turn" } td.none { "one turn" }
                    }
                    (number(metric.values.len() as f64))
                    @let remarks = remarks(point);
                    @if remarks.is_empty() { td.none { "none" } } @else { td.warn { (remarks) } }
                }
            } }
        } }
    }
}

fn remarks(point: &Point) -> String {
    let mut remarks = point.warnings.clone();
    remarks.extend(point.verdicts.iter().filter(|said| !point.warnings.contains(said)).cloned());
    remarks.extend(point.limit.as_ref().map(|limit| format!("the limit was {limit}")));
    remarks.extend(point.latency_limit.as_ref().map(|limit| format!("the limit of latency was {limit}")));
    if let Some(account) = &point.account {
        remarks.push(account.text());
    }
    remarks.join("; ")
}

fn identity(point: &Point) -> String {
    point.identity.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
}

fn number(value: f64) -> Markup {
    html! { td.n data-v=(value) { (short(value)) } }
}

fn head(names: &[&str]) -> Markup {
    html! { thead { tr { @for name in names { th scope="col" { button type="button" { (name) } } } } } }
}

fn machines(runs: &[Run]) -> Markup {
    html! {
        section #machine {
            h2 { "Machine" }
            @for run in runs { h3 { (run.name) } (machine(run)) }
        }
    }
}

fn machine(run: &Run) -> Markup {
    let machine = &run.info.machine;
    let handover = run.handover_cycles().map(|(least, most)| format!("{least:.0} to {most:.0} cycles"));
    let mitigations: Vec<String> = machine.mitigations.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    let fields = [
        ("Processor", format!("{}, {} online", machine.cpu, machine.cpus)),
        ("Caches", machine.caches.join(", ")),
        ("Threads of a core", machine.siblings.join("; ")),
        ("Time stamp counter", format!("{} Hz", short(machine.tsc_hz as f64))),
        (
            "Memory",
            format!("{} bytes, {} huge pages", short(machine.memory_bytes as f64), machine.huge_pages),
        ),
        ("Kernel", machine.kernel.clone()),
        ("Command line", machine.cmdline.clone()),
        ("Hypervisor", machine.hypervisor.clone().unwrap_or("none seen".into())),
        ("Stolen since boot", format!("{:.2} %", machine.steal_since_boot * 100.0)),
        ("A cache line to another processor and back", handover.unwrap_or_default()),
        ("Frequency policy", machine.governor.clone()),
        ("Isolated processors", machine.isolated.clone()),
        ("Mitigations", mitigations.join("; ")),
        ("Crosspoint", machine.crosspoint.clone()),
    ];
    html! { dl { @for (name, value) in fields.iter().filter(|(_, v)| !v.is_empty()) { dt { (name) } dd { (value) } } } }
}

fn repeat(runs: &[Run]) -> Markup {
    let commands = |run: &Run| {
        let mut commands: Vec<String> = run.points.iter().map(|p| p.command.clone()).collect();
        commands.dedup();
        commands.join("\n")
    };
    html! {
        section #repeat {
            h2 { "Repeat it" }
            @for run in runs {
                h3 { (run.name) }
                pre { (run.info.command.trim()) }
                details { summary { "Command of each point" } pre { (commands(run)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Better, Metric};

    #[test]
    fn a_load_curve_has_its_inflection_point_marked_and_what_generator_and_guest_do_alone_beside() {
        let point = |offered: u32, rate: f64| {
            let mut point = Point { suite: "load-curve".into(), switch: "ours".into(), ..Point::default() };
            point.labels.insert("offered_pps".into(), offered.to_string());
            point.labels.insert("topology".into(), "P2P".into());
            point.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, vec![rate]));
            point
        };
        let mut points = vec![point(10_000, 10_000.0), point(20_000, 19_990.0), point(50_000, 31_000.0)];
        points[0].limit = Some("the generator".into());
        let mut run = Run { name: "x".into(), points, ..Run::default() };
        let plain = page(std::slice::from_ref(&run), &[Vec::new()]);
        assert!(plain.contains("ours, topology P2P: 20,000 packets/s; 50,000 lost more"), "{plain}");
        assert!(plain.contains("In a frame: another part"), "{plain}");
        assert!(!plain.contains("Generator and guest alone"));
        run.info.calibration.insert("generator builtin, 64 bytes".into(), 250_000.0);
        let page = page(&[run], &[Vec::new()]);
        assert!(page.contains("id=\"alone\"") && page.contains("generator builtin, 64 bytes"), "{page}");
    }

    #[test]
    fn text_from_a_run_is_escaped_and_a_point_that_is_not_the_switch_s_is_marked() {
        let mut point = Point { suite: "p2p".into(), switch: "<script>".into(), ..Point::default() };
        point.metrics.insert("mpps".into(), Metric::new("Mpps", Better::Higher, vec![1.0, 2.0]));
        point.metrics.insert("cpu_guest".into(), Metric::new("processors", Better::Neither, vec![0.5]));
        point.limit = Some("the generator".into());
        let run = Run { name: "a & b".into(), points: vec![point], ..Run::default() };
        let page = page(&[run], &[Vec::new()]);
        assert!(page.contains("&lt;script&gt;") && page.contains("a &amp; b"));
        assert!(page.contains("<td>cpu_guest</td>"), "{page}");
        assert!(page.contains("1 points are marked") && page.contains("the limit was the generator"));
        assert!(!page.contains("http"), "the page needs nothing from elsewhere");
    }
}
