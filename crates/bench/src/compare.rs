//! `crosspoint bench compare A B`: two runs, or two builds run in turns for the purpose; is B worse than A?
//!
//! Each figure of each point that both have is judged by Welch's test on the logarithms of its turns, so that
//! what is bounded is the ratio. The level is 5 % for the whole comparison: it is divided by the number of
//! figures, or a hundred figures of the same program would show a regression in most runs. A figure with one
//! turn has no spread and no verdict. One that fell to nothing, or rose from it, has no ratio, and is judged
//! without one.

use crate::lab::switch::Forwards;
use crate::lab::switch::crosspoint::is_program;
use crate::lab::switch::list::forwards;
use crate::lab::trial;
use crate::result::store;
use crate::result::{BATCH, Better, GENERATOR_TIME, HUGE_PAGES, MISSES_MAX, Metric, Point, Run};
use crate::session::Session;
use crate::stats::{short, student_quantile};
use crate::turns::{ROUNDS, builds};
use crate::units::Failure;
use std::path::Path;

/// Chance that a comparison of equals names a regression at all.
const LEVEL: f64 = 0.05;
/// One figure in both.
#[derive(Debug)]
pub struct Compared {
    /// Suite, switch, load and figure.
    pub what: String,
    /// Medians.
    pub a: f64,
    /// The value for B.
    pub b: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// See [`beside_ratio`].
    differs: Vec<String>,
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The ratio of B to A, with its bounds, excludes 1 to the worse.
    Worse(f64, f64),
    /// To the better.
    Better(f64, f64),
    /// Does not exclude 1.
    Same(f64, f64),
    /// No statement is possible, for this reason.
    None(String),
}

/// Compares; a failure of kind `Check` where B is worse, and one of usage where the two say nothing of each
/// other.
pub fn run(a: &Path, b: &Path) -> Result<(), Failure> {
    let (a, b) = match (a.is_file(), b.is_file()) {
        (true, true) => {
            let refused = [a, b].into_iter().find(|path| !is_program(&path.to_string_lossy()));
            if let Some(path) = refused {
                let path = path.display();
                return Err(Failure::Usage(format!("{path} is not a program: give two runs or two builds")));
            }
            builds(&Session::open()?, a, b, ROUNDS)?
        }
        (false, false) => (store::read(a).map_err(Failure::Usage)?, store::read(b).map_err(Failure::Usage)?),
        _ => return Err(Failure::Usage("give two runs (directories) or two builds (programs)".into())),
    };
    let compared = compare(&a, &b);
    if compared.is_empty() {
        return Err(Failure::Usage(format!("{} and {} have no point in common", a.name, b.name)));
    }
    print(&compared, &a, &b);
    let mut found: Vec<String> =
        worse(&compared).into_iter().map(|what| format!("worse in B: {what}")).collect();
    let failed = b.info.failed.iter().filter(|(step, _)| !a.info.failed.contains_key(*step));
    found.extend(failed.map(|(step, why)| format!("failed in B alone: {step}: {why}")));
    if !found.is_empty() {
        return Err(Failure::Check(found.join("; ")));
    }
    if compared.iter().all(|one| matches!(one.verdict, Verdict::None(_))) {
        let why = "no figure has a verdict, each for the reason beside it";
        return Err(Failure::Usage(format!("nothing was judged: {why}")));
    }
    Ok(())
}

/// The points that B lacks.
fn only_in_a<'a>(a: &'a Run, b: &Run) -> Vec<&'a Point> {
    a.points.iter().filter(|point| !b.points.iter().any(|other| other.key() == point.key())).collect()
}

/// The figures that B lacks at points that it has, each with its point.
fn figures_only_in_a(a: &Run, b: &Run) -> Vec<String> {
    let mut lacking = Vec::new();
    for point in &a.points {
        let Some(other) = b.points.iter().find(|p| p.key() == point.key()) else { continue };
        let judged = point.metrics.iter().filter(|(_, metric)| metric.better != Better::Neither);
        let of_a = judged.filter(|(name, _)| !other.metrics.contains_key(*name));
        lacking.extend(of_a.map(|(name, _)| what(point, name)));
    }
    lacking
}

/// The figures that are worse in B.
pub fn worse(compared: &[Compared]) -> Vec<&str> {
    let is_worse = |c: &&Compared| matches!(c.verdict, Verdict::Worse(..));
    compared.iter().filter(is_worse).map(|c| c.what.as_str()).collect()
}

fn print(compared: &[Compared], a: &Run, b: &Run) {
    println!("A: {}\nB: {}", a.name, b.name);
    if a.info.machine != b.info.machine {
        println!("The machines differ, or their states: see `run.json` of both.");
    }
    let differ: std::collections::BTreeSet<String> =
        compared.iter().flat_map(|one| one.differs.clone()).collect();
    for one in differ {
        println!("Differs, and refuses no ratio: {one}.");
    }
    for point in only_in_a(a, b) {
        println!("{} {} {}: only in A", point.suite, point.switch, point.load());
    }
    for what in figures_only_in_a(a, b) {
        println!("{what}: only in A");
    }
    for one in compared {
        let verdict = match &one.verdict {
            Verdict::Worse(low, high) => format!("WORSE, B/A {low:.3} to {high:.3}"),
            Verdict::Better(low, high) => format!("better, B/A {low:.3} to {high:.3}"),
            Verdict::Same(low, high) => format!("no difference shown, B/A {low:.3} to {high:.3}"),
            Verdict::None(why) => format!("no verdict: {why}"),
        };
        println!("{}: {} -> {}: {verdict}", one.what, short(one.a), short(one.b));
    }
}

/// Suite, switch, load and figure.
fn what(point: &Point, figure: &str) -> String {
    format!("{} {} {} {figure}", point.suite, point.switch, point.load())
}

/// Every figure with a better direction of every point that both runs have.
pub fn compare(a: &Run, b: &Run) -> Vec<Compared> {
    let mut pairs = Vec::new();
    for point in &a.points {
        let Some(other) = b.points.iter().find(|p| p.key() == point.key()) else { continue };
        for (name, metric) in point.metrics.iter().filter(|(_, m)| m.better != Better::Neither) {
            let Some(of_b) = other.metrics.get(name) else { continue };
            pairs.push((point, other, name, metric, of_b));
        }
    }
    let judged = pairs.iter().filter(|(.., a, b)| a.values.len() > 1 && b.values.len() > 1).count();
    let level = LEVEL / judged.max(1) as f64;
    let compared = |(point, other, name, a, b): &(&Point, &Point, &String, &Metric, &Metric)| Compared {
        what: what(point, name),
        a: a.median(),
        b: b.median(),
        verdict: match refusal_of(point, other, name) {
            Some(why) => Verdict::None(why),
            None => judge(a, b, level),
        },
        differs: beside_ratio(point, other),
    };
    pairs.iter().map(compared).collect()
}

/// Two switches under the same load, by one figure that both have: the verdict on `b`.
pub fn between(a: &Point, b: &Point, figure: &str) -> Verdict {
    match (refusal_of(a, b, figure), a.metrics.get(figure), b.metrics.get(figure)) {
        (Some(why), ..) => Verdict::None(why),
        (None, Some(of_a), Some(of_b)) => judge(of_a, of_b, LEVEL),
        (None, ..) => Verdict::None(format!("one has no {figure}")),
    }
}

/// Why two points allow no ratio of this figure.
///
/// Where another part was the limit of the rate, the cost of a packet that a measurement takes from the
/// switch's own busy cycles stands. A trial divides time by packets: the processors are busy anyway, so that
/// its cost is the rate turned round, unless both rates are alike. Where the kernel forwards, it does so on
/// the time of the sender, which is the generator here: what the machine spent less all of the generator's
/// time is then no cost of the switch. A trial that searches offers each switch another load.
pub fn refusal_of(a: &Point, b: &Point, figure: &str) -> Option<String> {
    if is_at_own_rate(a, figure) && (figure == "rate_pps" || !have_like_rates(a, b)) {
        return Some("each was offered the rate that a search found for it".into());
    }
    let is_of_machine = figure == "machine_cycles_per_packet" && has_kernel(a, b);
    let is_known = [a, b].iter().all(|point| point.conditions.contains_key(GENERATOR_TIME));
    if is_of_machine && !is_known {
        return Some("the kernel forwards on the generator's time, so its cost is not known".into());
    }
    let is_measured = !a.labels.contains_key("trial") || have_like_rates(a, b);
    let of_time = || {
        let limit = [a, b].iter().find_map(|point| point.limit_of(figure))?;
        Some(format!("the limit was {limit}"))
    };
    let is_of_cost = figure.contains("cycles") && is_measured;
    let refused = match refusal(a, b) {
        Some(why) if is_of_cost && why.starts_with("the limit") => None,
        None => of_time(),
        why => why,
    };
    refused.or_else(|| misses(a, b))
}

/// Suites whose flows are all known before a turn begins.
const OF_KNOWN_FLOWS: [&str; 4] = ["p2p", "prefix-vs-exact", "pvp", "conntrack"];

/// Why two switches allow no ratio of what they do with packets of known flows: one of them knew some no
/// more. Of two builds of one switch, the cost of that is a difference like any other.
fn misses(a: &Point, b: &Point) -> Option<String> {
    let are_known = |point: &Point| {
        let is_new = point.labels.get("what").is_some_and(|what| what == "new");
        OF_KNOWN_FLOWS.contains(&&*point.suite) && !is_new
    };
    if a.switch == b.switch || !are_known(a) {
        return None;
    }
    [a, b].into_iter().find_map(|point| {
        let share = point.metrics.get("miss_ratio")?.median();
        let percent = share * 100.0;
        (share > MISSES_MAX)
            .then(|| format!("{} missed its caches for {percent:.1} % of the packets", point.switch))
    })
}

/// Whether a figure was taken at a rate that a search found, and is not what the search was for.
fn is_at_own_rate(point: &Point, figure: &str) -> bool {
    let trial = point.labels.get("trial").and_then(|name| trial::list::find(name));
    trial.is_some_and(|trial| trial.is_search()) && trial::JUDGED.iter().any(|judged| judged.name == figure)
}

/// Whether the kernel forwards in one of them, not a thread of the switch.
fn has_kernel(a: &Point, b: &Point) -> bool {
    [a, b].iter().any(|point| is_kernel(point))
}

fn is_kernel(point: &Point) -> bool {
    forwards(&point.switch) == Forwards::Kernel
}

/// Whether as many packets came through both, within a tenth.
fn have_like_rates(a: &Point, b: &Point) -> bool {
    let rate = |point: &Point| point.metrics.get("rate_pps").map_or(f64::NAN, Metric::median);
    (rate(a) / rate(b)).ln().abs() < 1.1_f64.ln()
}

/// Why two points allow no ratio: other conditions, or figures that are not the switch's.
pub fn refusal(a: &Point, b: &Point) -> Option<String> {
    let mut differ = differences(a, b);
    differ.retain(|(name, _)| !refuses_none(a, b, name));
    if !differ.is_empty() {
        let differ: Vec<String> = differ.into_iter().map(|(_, text)| text).collect();
        return Some(format!("conditions differ: {}", differ.join(", ")));
    }
    for point in [a, b] {
        if let Some(limit) = &point.limit {
            return Some(format!("the limit was {limit}"));
        }
        if !point.is_of_switch() {
            return Some("the account of packets does not add up".into());
        }
    }
    None
}

/// Every condition in which two points differ, with both values: `batch 64 and 32`.
fn differences<'a>(a: &'a Point, b: &'a Point) -> Vec<(&'a str, String)> {
    let maps = [&a.conditions, &b.conditions, &a.inherent, &b.inherent];
    let names: std::collections::BTreeSet<&str> =
        maps.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
    let of = |point: &Point, name: &str| {
        let told = point.conditions.get(name).or_else(|| point.inherent.get(name));
        let none = if is_of_process(name) && is_kernel(point) { "the kernel's own" } else { "unknown" };
        told.cloned().unwrap_or(none.into())
    };
    let pairs = names.into_iter().map(|name| (name, of(a, name), of(b, name)));
    pairs.filter(|(_, a, b)| a != b).map(|(name, a, b)| (name, format!("{name} {a} and {b}"))).collect()
}

/// Conditions of a process that forwards. The kernel, which does so on the sender's thread and in its own
/// memory, a packet at a time, has none of them that could differ.
fn is_of_process(name: &str) -> bool {
    matches!(name, "workers" | "queues" | BATCH | HUGE_PAGES)
}

/// Whether a difference in this condition stands beside a ratio, and does not refuse it.
fn refuses_none(a: &Point, b: &Point, name: &str) -> bool {
    is_of_process(name) && has_kernel(a, b)
}

/// Differences that stand beside a ratio.
pub fn beside_ratio(a: &Point, b: &Point) -> Vec<String> {
    let all = differences(a, b).into_iter();
    all.filter(|(name, _)| refuses_none(a, b, name)).map(|(_, text)| text).collect()
}

fn judge(a: &Metric, b: &Metric, level: f64) -> Verdict {
    if a.values.len() < 2 || b.values.len() < 2 {
        return Verdict::None("one turn has no spread".into());
    }
    if let Some(verdict) = judge_nothing(a, b) {
        return verdict;
    }
    if a.values.iter().chain(&b.values).any(|v| *v <= 0.0 || !v.is_finite()) {
        return Verdict::None("values that are not above 0 have no ratio".into());
    }
    let (low, high) = ratio_bounds(&a.values, &b.values, level);
    // A figure that is read in steps is known to one of them, however often it comes out the same.
    let unsure = 1.0 + step(a.values.iter().chain(&b.values));
    let (low, high) = (low / unsure, high * unsure);
    let (is_less, is_more) = (high < 1.0, low > 1.0);
    match a.better {
        Better::Lower if is_more => Verdict::Worse(low, high),
        Better::Higher if is_less => Verdict::Worse(low, high),
        Better::Lower if is_less => Verdict::Better(low, high),
        Better::Higher if is_more => Verdict::Better(low, high),
        _ => Verdict::Same(low, high),
    }
}

/// The verdict where a rate fell to nothing in any turn, or a cost rose from nothing in all; and the other
/// way round. No test is needed to see either.
fn judge_nothing(a: &Metric, b: &Metric) -> Option<Verdict> {
    let has_some = |of: &Metric| of.values.iter().all(|v| *v > 0.0 && v.is_finite());
    let fails = |of: &Metric| of.values.contains(&0.0);
    let is_nothing = |of: &Metric| of.values.iter().all(|v| *v == 0.0);
    let (to_nothing, from_nothing) = (0.0, f64::INFINITY);
    match a.better {
        Better::Higher if has_some(a) && fails(b) => Some(Verdict::Worse(to_nothing, to_nothing)),
        Better::Higher if fails(a) && has_some(b) => Some(Verdict::Better(from_nothing, from_nothing)),
        Better::Lower if is_nothing(a) && has_some(b) => Some(Verdict::Worse(from_nothing, from_nothing)),
        Better::Lower if has_some(a) && is_nothing(b) => Some(Verdict::Better(to_nothing, to_nothing)),
        _ => None,
    }
}

/// The decimal step in which all values are written, in ratio to the least of them.
fn step<'a>(values: impl Iterator<Item = &'a f64> + Clone) -> f64 {
    let places = values.clone().map(|v| v.to_string().split_once('.').map_or(0, |(_, places)| places.len()));
    let least = values.copied().fold(f64::INFINITY, f64::min);
    0.1_f64.powi(places.max().unwrap_or(0) as i32) / least
}

/// Bounds of the ratio of the geometric means of `b` and `a`, by Welch's test at this level.
fn ratio_bounds(a: &[f64], b: &[f64], level: f64) -> (f64, f64) {
    let moments = |values: &[f64]| {
        let n = values.len() as f64;
        let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n, n)
    };
    let ((mean_a, var_a, n_a), (mean_b, var_b, n_b)) = (moments(a), moments(b));
    let variance = var_a + var_b;
    let difference = mean_b - mean_a;
    if variance == 0.0 {
        return (difference.exp(), difference.exp());
    }
    let freedom = variance.powi(2) / (var_a.powi(2) / (n_a - 1.0) + var_b.powi(2) / (n_b - 1.0));
    let half = student_quantile(freedom.max(1.0), level) * variance.sqrt();
    ((difference - half).exp(), (difference + half).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;
    use crate::result::{OWN_WORK, RunInfo, SCHEMA};
    use std::process::Command;

    fn run_of(values: &[f64], better: Better) -> Run {
        let mut point = Point { suite: "p2p".into(), switch: "crosspoint".into(), ..Point::default() };
        point.metrics.insert("cost".into(), Metric::new("cycles", better, values.to_vec()));
        Run { points: vec![point], ..Run::default() }
    }

    /// A run on disk, with steps that failed.
    fn write(dir: &TempDir, name: &str, points: &[Point], failed: &[&str]) -> std::path::PathBuf {
        let path = dir.0.join(name);
        let info = RunInfo { schema: SCHEMA.into(), ..RunInfo::default() };
        let mut store = store::Store::open(&path, false, info).unwrap();
        store.put("p2p.exact", points, &Default::default()).unwrap();
        failed.iter().for_each(|step| store.fail(step, "it died").unwrap());
        path
    }

    fn verdict(a: &[f64], b: &[f64], better: Better) -> Verdict {
        compare(&run_of(a, better), &run_of(b, better)).remove(0).verdict
    }

    #[test]
    fn a_loss_beyond_the_noise_is_worse_and_one_within_it_is_not() {
        let a = [100.0, 101.0, 99.0, 100.5];
        assert!(matches!(verdict(&a, &[110.0, 111.0, 109.5, 110.0], Better::Lower), Verdict::Worse(..)));
        assert!(matches!(verdict(&a, &[110.0, 111.0, 109.5, 110.0], Better::Higher), Verdict::Better(..)));
        assert!(matches!(verdict(&a, &[90.0, 130.0, 95.0, 105.0], Better::Lower), Verdict::Same(..)));
        assert!(matches!(verdict(&a, &a, Better::Lower), Verdict::Same(..)));
        assert!(matches!(verdict(&[1.0], &[9.0], Better::Lower), Verdict::None(_)));
    }

    #[test]
    fn a_rate_that_fell_to_nothing_and_a_cost_that_rose_from_it_are_worse() {
        let judged = |a: [f64; 3], b: [f64; 3], better| verdict(&a, &b, better);
        let (some, none, once) = ([9e4, 1e5, 1.1e5], [0.0; 3], [9e4, 0.0, 1.1e5]);
        assert!(matches!(judged(some, none, Better::Higher), Verdict::Worse(..)));
        assert!(matches!(judged(some, once, Better::Higher), Verdict::Worse(..)));
        assert!(matches!(judged(once, some, Better::Higher), Verdict::Better(..)));
        assert!(matches!(judged(none, some, Better::Lower), Verdict::Worse(..)));
        assert!(matches!(judged(some, none, Better::Lower), Verdict::Better(..)));
        assert!(matches!(judged(none, none, Better::Higher), Verdict::None(_)));
        assert!(matches!(judged(none, once, Better::Lower), Verdict::None(_)), "one turn may be chance");
    }

    #[test]
    fn figures_that_b_lacks_are_named_and_where_nothing_was_judged_there_is_no_success() {
        let dir = TempDir::new("lacking").unwrap();
        let a = run_of(&[100.0, 101.0], Better::Lower);
        let mut b = a.clone();
        b.points[0].metrics.clear();
        b.points[0].metrics.insert("other".into(), Metric::new("", Better::Lower, vec![1.0, 1.1]));
        assert_eq!(figures_only_in_a(&a, &b), ["p2p crosspoint  cost"]);
        assert!(figures_only_in_a(&a, &a).is_empty());
        let once = write(&dir, "once", &run_of(&[100.0], Better::Lower).points, &[]);
        let error = run(&once, &once).unwrap_err();
        assert!(error.code() == 2 && error.to_string().contains("nothing was judged"), "{error}");
    }

    /// It runs itself once more: there nobody reads standard output.
    #[test]
    fn a_reader_that_goes_away_makes_no_success_of_a_regression() {
        const RUNS: &str = "CROSSPOINT_BENCH_TEST_RUNS";
        if let Some(runs) = std::env::var_os(RUNS) {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            rustix::stdio::dup2_stdout(&writer).unwrap();
            let code = run(&Path::new(&runs).join("a"), &Path::new(&runs).join("b"));
            std::process::exit(code.map_or_else(|failure| failure.code().into(), |()| 0));
        }
        let dir = TempDir::new("unread").unwrap();
        for (name, values) in [("a", [100.0, 101.0]), ("b", [200.0, 201.0])] {
            write(&dir, name, &run_of(&values, Better::Lower).points, &[]);
        }
        let name = "compare::tests::a_reader_that_goes_away_makes_no_success_of_a_regression";
        let mut itself = Command::new(std::env::current_exe().unwrap());
        let output = itself.args(["--exact", name]).env(RUNS, &dir.0).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }

    #[test]
    fn a_difference_of_one_step_of_a_figure_is_none_however_often_it_is_read() {
        let judged = |a: f64, b: f64| verdict(&[a; 7], &[b; 7], Better::Lower);
        assert!(matches!(judged(12.0, 13.0), Verdict::Same(..)), "of 12.4 and 12.6");
        assert!(matches!(judged(0.03, 0.02), Verdict::Same(..)));
        assert!(matches!(judged(12.0, 14.0), Verdict::Worse(..)));
        assert!(matches!(judged(12.5, 12.0), Verdict::Better(..)));
        assert!(matches!(judged(1_000_000.0, 1_000_100.0), Verdict::Worse(..)));
    }

    #[test]
    fn a_step_that_fails_in_b_alone_is_a_failure_and_what_b_lacks_is_named() {
        let dir = TempDir::new("compared").unwrap();
        let write = |name: &str, points: &[Point], failed: &[&str]| write(&dir, name, points, failed);
        let points = run_of(&[100.0, 101.0], Better::Lower).points;
        let (a, b) = (write("a", &points, &["pvp"]), write("b", &points, &["pvp"]));
        assert!(run(&a, &b).is_ok());
        let worse = write("worse", &points, &["pvp", "misses"]);
        let error = run(&a, &worse).unwrap_err();
        assert!(
            error.code() == 1 && error.to_string().contains("failed in B alone: misses: it died"),
            "{error}"
        );
        assert!(run(&worse, &a).is_ok());
        let mut more = Run { points: points.clone(), ..Run::default() };
        more.points.push(Point { suite: "pvp".into(), ..Point::default() });
        let only: Vec<&str> =
            only_in_a(&more, &run_of(&[1.0], Better::Lower)).iter().map(|p| &*p.suite).collect();
        assert_eq!(only, ["pvp"]);
    }

    #[test]
    fn other_conditions_yield_no_ratio_but_the_difference() {
        let (mut a, mut b) = (run_of(&[1.0, 1.1], Better::Lower), run_of(&[2.0, 2.1], Better::Lower));
        a.points[0].conditions.insert("descriptors".into(), "256".into());
        b.points[0].conditions.insert("descriptors".into(), "1024".into());
        let Verdict::None(why) = compare(&a, &b).remove(0).verdict else { panic!() };
        assert_eq!(why, "conditions differ: descriptors 256 and 1024");
        // A run from before a condition was recorded has none of it.
        b.points[0].conditions.clear();
        let Verdict::None(why) = compare(&a, &b).remove(0).verdict else { panic!() };
        assert_eq!(why, "conditions differ: descriptors 256 and unknown");
    }

    #[test]
    fn a_batch_or_pages_that_differ_refuse_the_ratio_in_older_runs_too() {
        let point = |switch: &str, conditions: &[(&str, &str)], inherent: &[(&str, &str)]| {
            let text =
                |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let (conditions, inherent) = (text(conditions), text(inherent));
            Point { switch: switch.into(), conditions, inherent, ..Point::default() }
        };
        let judged = |a: &Point, b: &Point| (refusal(a, b), beside_ratio(a, b));
        let ours = point("crosspoint", &[("batch", "32"), ("huge pages", "2 MB")], &[]);
        let alike = point("ovs-dpdk", &[("batch", "32"), ("huge pages", "2 MB")], &[]);
        let unlike = point("vpp", &[("batch", "256"), ("huge pages", "none")], &[]);
        assert_eq!(judged(&ours, &alike), (None, vec![]));
        let why = "conditions differ: batch 32 and 256, huge pages 2 MB and none";
        assert_eq!(judged(&ours, &unlike), (Some(why.into()), vec![]));
        // The kernel has neither.
        let differ = ["batch 32 and the kernel's own", "huge pages 2 MB and the kernel's own"];
        assert_eq!(judged(&ours, &point("bridge", &[], &[])), (None, differ.map(str::to_string).into()));
        // Before 2026-11-29, what a switch could not be given was not among its conditions.
        let older = point("crosspoint", &[("huge pages", "2 MB")], &[("batch", "64")]);
        let of_peer = point("ovs-netdev", &[], &[("batch", "32"), ("huge pages", "takes none")]);
        let why = "conditions differ: batch 64 and 32, huge pages 2 MB and takes none";
        assert_eq!(judged(&older, &of_peer), (Some(why.into()), vec![]));
        let why = judged(&older, &ours).0.unwrap();
        assert_eq!(why, "conditions differ: batch 64 and 32");
    }

    #[test]
    fn the_cost_under_a_foreign_limit_is_judged_where_it_is_not_the_rate_turned_round() {
        let point = |rate: f64, trial: Option<&str>| {
            let mut point = Point { limit: Some("a guest".into()), ..Point::default() };
            point.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, vec![rate]));
            point.labels.extend(trial.map(|trial| ("trial".to_string(), trial.to_string())));
            point
        };
        let refused = |a: f64, b: f64, trial: Option<&str>| {
            refusal_of(&point(a, trial), &point(b, trial), "machine_cycles_per_packet").is_some()
        };
        assert!(refused(100.0, 150.0, Some("max-rate")) && !refused(100.0, 105.0, Some("max-rate")));
        assert!(refused(0.0, 0.0, Some("max-rate")) && !refused(100.0, 150.0, None));
        // A wait for a processor is none of the switch's latency, though nothing was lost.
        let why = "a processor: the switch waited for one for 3 % of the time";
        let late = Point { latency_limit: Some(why.into()), ..Point::default() };
        let refusal = |figure| refusal_of(&Point::default(), &late, figure);
        assert_eq!(refusal("at_10_latency_p99_us"), Some(format!("the limit was {why}")));
        assert_eq!(refusal("cycles_per_packet"), None);
        let of = |figure| refusal_of(&point(1.0, None), &point(1.0, None), figure);
        assert_eq!(of("rate_pps").as_deref(), Some("the limit was a guest"));
    }

    #[test]
    fn the_cost_of_the_kernel_s_forwarding_is_known_where_the_generator_s_own_part_is() {
        let point = |switch: &str, is_known: bool| {
            let mut point = Point { switch: switch.into(), ..Point::default() };
            let known = is_known.then(|| (GENERATOR_TIME.to_string(), OWN_WORK.to_string()));
            point.conditions.extend(known);
            point
        };
        let refused = |a: &Point, b: &Point| refusal_of(a, b, "machine_cycles_per_packet").is_some();
        let of = |is_known| (point("crosspoint", is_known), point("bridge", is_known));
        let ((ours, bridge), (older, older_bridge)) = (of(true), of(false));
        assert!(!refused(&ours, &bridge) && refused(&older, &older_bridge) && refused(&older, &bridge));
        let ovs = |is_known| point("ovs-dpdk", is_known);
        assert!(!refused(&ours, &ovs(true)) && !refused(&older, &ovs(false)) && refused(&ours, &ovs(false)));
    }

    #[test]
    fn a_switch_that_missed_its_caches_has_no_cost_of_switching_beside_another() {
        let point = |suite: &str, switch: &str, what: &str, missed: f64| {
            let mut point = Point { suite: suite.into(), switch: switch.into(), ..Point::default() };
            point.labels.insert("what".into(), what.into());
            point.metrics.insert("miss_ratio".into(), Metric::new("ratio", Better::Neither, vec![missed]));
            point
        };
        let refused = |suite: &str, what: &str, (a, of_a): (&str, f64), (b, of_b): (&str, f64)| {
            let (a, b) = (point(suite, a, what, of_a), point(suite, b, what, of_b));
            refusal_of(&a, &b, "switching_cycles_per_packet")
        };
        let why = refused("p2p", "", ("crosspoint", 0.0), ("ovs-dpdk", 0.047)).unwrap();
        assert_eq!(why, "ovs-dpdk missed its caches for 4.7 % of the packets");
        assert!(refused("pvp", "", ("crosspoint", 0.002), ("ovs-dpdk", 0.0)).is_some());
        assert!(refused("p2p", "", ("crosspoint", 0.0), ("ovs-dpdk", 0.001)).is_none());
        // These are about misses, or of one switch.
        assert!(refused("masks", "", ("crosspoint", 0.0), ("ovs-dpdk", 0.5)).is_none());
        assert!(refused("conntrack", "new", ("crosspoint", 0.0), ("ovs-dpdk", 0.5)).is_none());
        assert!(refused("conntrack", "established", ("crosspoint", 0.0), ("ovs-dpdk", 0.5)).is_some());
        assert!(refused("p2p", "", ("crosspoint", 0.0), ("crosspoint", 0.5)).is_none());
    }

    #[test]
    fn what_was_taken_at_the_rate_that_a_search_found_is_compared_at_like_rates_alone() {
        let point = |rate: f64, trial: &str| {
            let mut point = Point::default();
            point.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, vec![rate]));
            point.labels.insert("trial".into(), trial.into());
            point
        };
        let refused = |rate: f64, trial: &str, figure: &str| {
            refusal_of(&point(158_000.0, trial), &point(rate, trial), figure).is_some()
        };
        for trial in ["latency", "rfc2544", "mlrsearch", "back-to-back"] {
            let cost = "machine_cycles_per_packet";
            assert!(refused(34_000.0, trial, cost) && !refused(157_000.0, trial, cost), "{trial}");
            assert!(refused(157_000.0, trial, "rate_pps") && !refused(34_000.0, trial, "lossless_pps"));
        }
        assert!(!refused(34_000.0, "max-rate", "machine_cycles_per_packet"));
        assert!(!refused(34_000.0, "latency", "at_50_latency_p99_us"));
    }

    #[test]
    fn what_is_no_program_is_no_build() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let error = run(file, file).unwrap_err();
        assert!(error.code() == 2 && error.to_string().contains("is not a program"), "{error}");
    }
}
