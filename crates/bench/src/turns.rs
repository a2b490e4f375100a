//! Two builds measured in turns, and the points of turns put together.

use crate::process::TempDir;
use crate::result::account::Account;
use crate::result::rows::RowFile;
use crate::result::{BATCH, HUGE_PAGES, Point, Run};
use crate::session::{Ended, Session};
use crate::units::Failure;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a program ends that is used wrongly, and what every build so far says if it does not know a command,
/// an option or a value.
const USAGE: i32 = 2;
const UNKNOWN: [&str; 3] = ["unrecognized subcommand", "unexpected argument", "invalid value"];
/// Turns of each of two builds.
pub const ROUNDS: usize = 7;
/// The same in the full form: half an hour and more.
pub const ROUNDS_FULL: usize = 70;
/// What two builds are compared by: short, and in the options of every build so far. One that a build does
/// not know is left out.
const BUILD_BENCHES: &[&str] = &[
    "p2p --rules in_port --flows 1,1k --order shuffled --runs 1 --turn-ms 300",
    "p2p --rules exact --flows 10,10k --order shuffled --runs 1 --turn-ms 300",
    "p2p --rules normal --flows 1k --order shuffled --runs 1 --turn-ms 300",
    "misses --rules 10 --flows 50k --runs 1",
    "conntrack --connections 1k --new 20k --runs 1 --turn-ms 200",
    "pvp --guest builtin --sizes 64 --flows 10 --runs 1 --turn-ms 300",
];

/// Runs the benches of [`BUILD_BENCHES`] on two programs in turns.
pub fn builds(session: &Session, a: &Path, b: &Path, rounds: usize) -> Result<(Run, Run), Failure> {
    let dir = TempDir::new("builds")?;
    let named = |path: &Path| Run { name: path.display().to_string(), ..Run::default() };
    let mut runs = [named(a), named(b)];
    let mut benches = BUILD_BENCHES.to_vec();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let mut unknown = Vec::new();
        for bench in &benches {
            // The order alternates, so that neither is always the one after a pause.
            for n in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                match measure(session, [a, b][n], bench, &dir.0.join("rows.json"))? {
                    Some(points) => merge(&mut runs[n].points, points),
                    None => {
                        eprintln!("{} does not know `bench {bench}`, which is left out", runs[n].name);
                        unknown.push(*bench);
                    }
                }
            }
        }
        benches.retain(|bench| !unknown.contains(bench));
    }
    // The same machine at the same time: a value that an older build does not report is no difference.
    for name in [HUGE_PAGES, BATCH] {
        let told = |run: &Run| run.points.iter().all(|p| p.conditions.contains_key(name));
        if !runs.iter().all(told) {
            for point in runs.iter_mut().flat_map(|run| &mut run.points) {
                point.conditions.remove(name);
                point.inherent.remove(name);
            }
        }
    }
    let [a, b] = runs;
    Ok((a, b))
}

/// `None` if the program does not know the bench, or an option of it.
fn measure(
    session: &Session,
    program: &Path,
    bench: &str,
    json: &Path,
) -> Result<Option<Vec<Point>>, Failure> {
    let _ = std::fs::remove_file(json);
    // A bare name would be looked up in PATH.
    let path = std::fs::canonicalize(program).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut command = Command::new(path);
    command.arg("bench").args(bench.split(' ')).arg("--json").arg(json).stdout(Stdio::null());
    let Ended { status, said, .. } = session.run(&mut command)?;
    if status.code() == Some(USAGE) && UNKNOWN.iter().any(|unknown| said.contains(unknown)) {
        return Ok(None);
    }
    if !status.success() {
        let (program, said) = (program.display(), said.trim());
        return Err(Failure::Check(format!("{program} bench {bench}: {status}: {said}")));
    }
    let text = std::fs::read_to_string(json).map_err(|_| {
        let program = program.display();
        Failure::Usage(format!("{program} wrote no results of `bench {bench}`: is it a build of Crosspoint?"))
    })?;
    Ok(Some(RowFile::parse(&text)?.points()?))
}

/// Adds the turns of points to those that are there.
pub fn merge(all: &mut Vec<Point>, points: Vec<Point>) {
    for mut point in points {
        match all.iter_mut().find(|p| p.key() == point.key()) {
            Some(there) => {
                for (name, metric) in std::mem::take(&mut point.metrics) {
                    match there.metrics.get_mut(&name) {
                        Some(all) => all.values.extend(metric.values),
                        None => drop(there.metrics.insert(name, metric)),
                    }
                }
                // What speaks against one turn speaks against all.
                there.limit = there.limit.take().or(point.limit);
                there.latency_limit = there.latency_limit.take().or(point.latency_limit);
                if there.account.as_ref().is_none_or(Account::adds_up) {
                    there.account = point.account.or(there.account.take());
                }
                there.watched = match (there.watched, point.watched) {
                    (Some(a), Some(b)) => Some(a.and(b)),
                    (a, b) => a.or(b),
                };
                let new: Vec<String> =
                    point.warnings.into_iter().filter(|warning| !there.warnings.contains(warning)).collect();
                there.warnings.extend(new);
            }
            None => all.push(point),
        }
    }
}

/// How many turns arguments ask for, and the same arguments for one.
pub fn one_turn<'a>(arguments: &[&'a str]) -> (u32, Vec<&'a str>) {
    let mut arguments = arguments.to_vec();
    let at = arguments.iter().position(|word| *word == "--runs").map(|at| at + 1);
    let runs = at.and_then(|at| arguments.get(at)?.parse().ok());
    match (at, runs) {
        (Some(at), Some(runs)) => {
            arguments[at] = "1";
            (runs, arguments)
        }
        // One that has no turns, such as a count of cache misses.
        _ => (1, arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_take_turns_of_one_each() {
        let (runs, one) = one_turn(&["scale", "--runs", "5", "--flows", "5k"]);
        assert_eq!((runs, one), (5, vec!["scale", "--runs", "1", "--flows", "5k"]));
        assert_eq!(one_turn(&["cache-misses"]), (1, vec!["cache-misses"]));
    }
    use crate::machine::watch::Watched;
    use crate::result::{Better, Metric};

    #[test]
    fn what_speaks_against_a_later_turn_is_kept_with_the_turns_of_all() {
        let turn = |value: f64| {
            let metric = Metric::new("cycles", Better::Lower, vec![value]);
            Point { metrics: [("cost".into(), metric)].into(), ..Point::default() }
        };
        let mut all = Vec::new();
        merge(&mut all, vec![turn(1.0)]);
        let mut late = turn(2.0);
        late.limit = Some("a guest".into());
        late.account = Some(Account { offered: 10, ..Account::default() });
        late.watched = Some(Watched { seconds: 1.0, steal: 0.2, ..Watched::default() });
        late.warnings = vec!["stolen".into()];
        late.metrics.insert("loss".into(), Metric::new("ratio", Better::Lower, vec![1.0]));
        merge(&mut all, vec![late.clone()]);
        let sane = Account { offered: 10, received: 10, ..Account::default() };
        let watched = Some(Watched { seconds: 3.0, ..Watched::default() });
        merge(&mut all, vec![Point { account: Some(sane), watched, limit: None, ..late }]);
        let [point] = &all[..] else { panic!("{all:?}") };
        assert_eq!(point.metrics["cost"].values, [1.0, 2.0, 2.0]);
        assert_eq!(point.metrics["loss"].values, [1.0, 1.0]);
        assert_eq!(
            (point.limit.as_deref(), &point.warnings[..]),
            (Some("a guest"), &["stolen".to_string()][..])
        );
        assert!(!point.account.as_ref().unwrap().adds_up());
        assert!((point.watched.unwrap().steal - 0.05).abs() < 1e-9);
    }
}
