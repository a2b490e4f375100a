//! `crosspoint bench run`: the steps of suites, one after the other, each stored as soon as it is complete.

use crate::compare;
use crate::estimate::{self, Estimate};
use crate::lab::generator::trex::UNREACHABLE;
use crate::lab::switch::list::NAMES;
use crate::lab::traffic::pattern::Protocol;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::lease;
use crate::process::MISSING;
use crate::report::beside::first_figures;
use crate::result::rows::RowFile;
use crate::result::store::{self, Store, VERDICT};
use crate::result::{Point, RunInfo, SCHEMA};
use crate::session::{Ended, Session};
use crate::suite::list::{find, suites as all_suites};
use crate::suite::{Measure, Mode, Peer, Step, Suite};
use crate::trials::{self, Load, Wanted};
use crate::turns;
use crate::units::{Failure, now_utc};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many of the steps that took longest are named at the end.
const SLOWEST_SHOWN: usize = 10;

/// The suite of what generator and guest do alone, which needs no calibration before it.
const CALIBRATION: &str = "calibration";

/// The options of `run`.
pub struct Wish {
    /// Suites; `all` stands for every one.
    pub names: Vec<String>,
    /// How long.
    pub mode: Mode,
    /// Switches, generator and traffic, if they are not the suites' own.
    pub wanted: Wanted,
    /// The directory for results.
    pub out: PathBuf,
    /// Go on with a run.
    pub resume: bool,
}

/// The switches that some suite can measure.
pub fn known_switches() -> Vec<&'static str> {
    let mut names = vec!["crosspoint", "bridge"];
    names.extend(peers().map(|peer| peer.switch));
    names.extend(NAMES);
    names.sort_unstable();
    names.dedup();
    names
}

fn peers() -> impl Iterator<Item = Peer> {
    let peer = |step: &Step| if let Step::Measure(measure) = step { measure.peer } else { None };
    all_suites().flat_map(|suite| suite.steps).filter_map(peer)
}

/// Runs suites. Failed steps are recorded in the run, and the others continue; the result is then a failure
/// with their reasons.
pub fn run(wish: &Wish) -> Result<(), Failure> {
    let suites = suites(&wish.names)?;
    let known = known_switches();
    // Another version of ours is found, or refused, by its path.
    for version in wish.wanted.switches.iter().filter(|s| s.starts_with("crosspoint@")) {
        crate::lab::switch::list::find(version).map_err(Failure::Usage)?;
    }
    if let Some(generator) = &wish.wanted.generator {
        crate::lab::generator::list::find(generator).map_err(Failure::Usage)?;
    }
    let capture = match wish.wanted.traffic.as_ref().map(|pattern| &pattern.protocol) {
        Some(Protocol::Pcap(file)) => {
            let why = |why| {
                let file = file.display();
                Failure::Usage(format!(
                    "--traffic pcap={file}: {why}: give a capture, as `tcpdump -w` writes it"
                ))
            };
            Some(capture(file).map_err(why)?)
        }
        _ => None,
    };
    let is_known = |s: &str| s.starts_with("crosspoint@") || known.contains(&s);
    if let Some(unknown) = wish.wanted.switches.iter().find(|s| !is_known(s)) {
        return Err(Failure::Usage(crate::lab::switch::list::unknown(unknown, &known)));
    }
    is_any_measured(&suites, wish)?;
    is_any_of_trials(&suites, wish)?;
    // If others can be measured for comparison, the run's warnings name a missing peer.
    let missing = |switch: &String| peers().find(|peer| peer.switch == switch)?.missing();
    let missing: Vec<String> = wish.wanted.switches.iter().filter_map(missing).collect();
    if !missing.is_empty() && missing.len() == wish.wanted.switches.len() {
        return Err(Failure::Machine(missing.join("; ")));
    }
    let mut parts: Vec<(String, &Suite, Part)> = suites.iter().flat_map(|suite| parts(suite, wish)).collect();
    // Left out like a peer that is missing.
    let mut lacking = Vec::new();
    if !rustix::process::geteuid().is_root() {
        lacking = without_root(&mut parts);
        if parts.is_empty() {
            return Err(Failure::Machine(format!("nothing could be measured here: {}", lacking.join("; "))));
        }
    }
    let session = Session::open()?;
    let machine = Fingerprint::here();
    let info = RunInfo {
        schema: SCHEMA.into(),
        started: now_utc(),
        command: crate::result::command(),
        mode: wish.mode.name().into(),
        builds: builds(&wish.wanted.switches)?,
        capture,
        warnings: machine.warnings(),
        machine,
        ..RunInfo::default()
    };
    let mut store =
        Store::open(&wish.out, wish.resume, info).map_err(|why| match store::is_full(&wish.out) {
            true => Failure::Check(why),
            false => Failure::Usage(why),
        })?;
    if wish.mode == Mode::Quick {
        store.warn("A quick run: it shows that the suites run; do not quote its figures.".into())?;
    }
    for why in &lacking {
        eprintln!("{why}");
        store.warn(why.clone())?;
    }
    let runner = Runner { wish, session };
    runner.all(&mut store, &parts, &mut lacking)?;
    any_measured(&wish.wanted.switches, &store, lacking)
}

/// Measurements with network namespaces of their own.
const WITH_NAMESPACES: [&str; 2] = ["ports-config", "wake"];

/// Removes the parts that only root can measure, and says why.
fn without_root(parts: &mut Vec<(String, &Suite, Part)>) -> Vec<String> {
    let needs_root = |part: &Part| match part {
        Part::Load(_) => true,
        Part::Measure(measure) => WITH_NAMESPACES.contains(&measure.what),
        Part::Builds => false,
    };
    let mut suites: Vec<&str> =
        parts.iter().filter(|(.., part)| needs_root(part)).map(|(_, suite, _)| suite.name).collect();
    suites.dedup();
    parts.retain(|(.., part)| !needs_root(part));
    let why = |suite| {
        format!("{suite} was not measured, or in part: it takes network namespaces, which are root's")
    };
    suites.into_iter().map(why).collect()
}

/// Fails if no step that was named can have a point of a requested switch.
fn is_any_measured(suites: &[&Suite], wish: &Wish) -> Result<(), Failure> {
    let switches = &wish.wanted.switches;
    let measures = |suite: &&Suite, names: &[String]| {
        suite.steps.iter().any(|step| is_wanted(names, suite, step) && step.measures(switches))
    };
    if switches.is_empty() || suites.iter().any(|suite| measures(suite, &wish.names)) {
        return Ok(());
    }
    let all = ["all".to_string()];
    let others: Vec<&str> = all_suites()
        .filter(|suite| suite.name != CALIBRATION && measures(suite, &all))
        .map(|suite| suite.name)
        .collect();
    let (switches, others) = (switches.join(", "), others.join(", "));
    Err(Failure::Usage(format!("no step that was named measures {switches}; suites that do: {others}")))
}

/// Fails if an option that only trials obey was given, and no step that was named is made of them.
fn is_any_of_trials(suites: &[&Suite], wish: &Wish) -> Result<(), Failure> {
    let Wanted { generator, traffic, workers, turns, cables, .. } = &wish.wanted;
    let given = [
        ("--generator", generator.is_some()),
        ("--traffic", traffic.is_some()),
        ("--workers", workers.is_some()),
        ("--turns", turns.is_some()),
        ("--nic", !cables.is_empty()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let is_of_trials = |suite: &&Suite, names: &[String]| {
        suite.steps.iter().any(|step| matches!(step, Step::Grid(_)) && is_wanted(names, suite, step))
    };
    if suites.iter().any(|suite| is_of_trials(suite, &wish.names)) {
        return Ok(());
    }
    let all = ["all".to_string()];
    let others = all_suites().filter(|suite| is_of_trials(suite, &all)).map(|suite| suite.name);
    let others = others.collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!(
        "no step that was named has trials, which obey {option}; suites that do: {others}"
    )))
}

/// A digest of a capture that has frames.
fn capture(file: &Path) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|e| e.to_string())?;
    match ports::pcap::file::parse(&bytes).map_err(|e| e.to_string())?.len() {
        0 => Err("no frame in it".into()),
        _ => Ok(digest(&bytes)),
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

/// A digest of this program, and of each other version among the switches, by the switch's name.
fn builds(switches: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let this = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let versions =
        switches.iter().filter_map(|name| Some((name.as_str(), name.strip_prefix("crosspoint@")?)));
    let versions = versions.map(|(name, path)| (name, PathBuf::from(path)));
    let build = |(name, path): (&str, PathBuf)| {
        let program = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((name.to_string(), digest(&program)))
    };
    [("crosspoint", this)].into_iter().chain(versions).map(build).collect()
}

/// Fails if no requested switch has a point: this machine cannot do what was requested. If some have points,
/// the warnings of the run name the others.
fn any_measured(switches: &[String], store: &Store, mut lacking: Vec<String>) -> Result<(), Failure> {
    let points = store.points()?;
    if points.iter().any(|point| switches.is_empty() || switches.contains(&point.switch)) {
        return Ok(());
    }
    lacking.sort_unstable();
    lacking.dedup();
    match lacking.as_slice() {
        // Measured without a switch, as it should be.
        [] if !points.is_empty() => Ok(()),
        [] => Err(Failure::Usage(format!("no step that was named measures {}", switches.join(", ")))),
        why => Err(Failure::Machine(format!("nothing could be measured here: {}", why.join("; ")))),
    }
}

fn suites(names: &[String]) -> Result<Vec<&'static Suite>, Failure> {
    if names.iter().any(|name| name == "all") {
        return Ok(all_suites().collect());
    }
    let known = || all_suites().map(|s| s.name).collect::<Vec<_>>();
    let suite = |name: &String| {
        let (suite_name, step) =
            name.split_once('.').map_or((name.as_str(), None), |(s, step)| (s, Some(step)));
        let suite = find(suite_name);
        let suite = suite.ok_or_else(|| {
            let (known, hint) = (known().join(", "), base::suggest::hint(suite_name, known()));
            Failure::Usage(format!("unknown suite {name}; known: all, {known}{hint}"))
        })?;
        let steps = || suite.steps.iter().map(Step::name);
        if step.is_some_and(|step| !steps().any(|s| s == step)) {
            let hint = base::suggest::hint(step.unwrap_or_default(), steps());
            let steps = steps().collect::<Vec<_>>().join(", ");
            return Err(Failure::Usage(format!("unknown step {name}; steps of {suite_name}: {steps}{hint}")));
        }
        Ok(suite)
    };
    let mut suites: Vec<&'static Suite> = Vec::new();
    for name in names {
        let suite = suite(name)?;
        // Two steps of one suite are named by two names.
        if !suites.iter().any(|s| s.name == suite.name) {
            suites.push(suite);
        }
    }
    Ok(suites)
}

/// Whether a step was requested, or its suite as a whole.
fn is_wanted(names: &[String], suite: &Suite, step: &Step) -> bool {
    let id = format!("{}.{}", suite.name, step.name());
    names.iter().any(|name| name == "all" || name == suite.name || *name == id)
}

/// A part that is stored and resumed as a whole.
enum Part {
    Measure(&'static Measure),
    Load(Box<Load>),
    Builds,
}

fn parts(suite: &'static Suite, wish: &Wish) -> Vec<(String, &'static Suite, Part)> {
    let mut parts = Vec::new();
    for step in suite.steps.iter().filter(|step| is_wanted(&wish.names, suite, step)) {
        let id = format!("{}.{}", suite.name, step.name());
        match step {
            Step::Measure(measure) => parts.push((id, suite, Part::Measure(measure))),
            Step::Builds(_) => parts.push((id, suite, Part::Builds)),
            Step::Grid(grid) => {
                let loads = trials::loads(grid, wish.mode, &wish.wanted);
                parts.extend(
                    loads
                        .into_iter()
                        .map(|load| (format!("{id}.{}", load.id()), suite, Part::Load(Box::new(load)))),
                );
            }
        }
    }
    parts
}

impl Part {
    /// How long it takes if all goes as planned; for measurements, whose rows are many or few, a guess.
    fn planned(&self, mode: Mode) -> Duration {
        match (self, mode) {
            (Part::Load(load), _) => load.planned(mode),
            (_, Mode::Quick) => Duration::from_secs(5),
            (_, Mode::Normal) => Duration::from_secs(120),
            (_, Mode::Full) => Duration::from_secs(3600),
        }
    }
}

/// The points of a part, and what failed in it.
#[derive(Default)]
struct Measured {
    points: Vec<Point>,
    failed: BTreeMap<String, String>,
}

struct Runner<'a> {
    wish: &'a Wish,
    session: Session,
}

impl Runner<'_> {
    /// Runs all parts. Adds to `lacking` why switches were left out.
    fn all(
        &self,
        store: &mut Store,
        parts: &[(String, &Suite, Part)],
        lacking: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let mut took: Vec<(Duration, &str)> = Vec::new();
        let mut estimate = Estimate::default();
        for (n, (id, suite, part)) in parts.iter().enumerate() {
            let done = format!("[{}/{}] {id}", n + 1, parts.len());
            if self.is_measured(store, id, part)? {
                eprintln!("{done}: measured before");
                continue;
            }
            let rest = parts[n + 1..].iter().filter(|(id, ..)| !store.has(id));
            let rest = rest.map(|(id, _, part)| estimate.of(id, part.planned(self.wish.mode)));
            let planned = part.planned(self.wish.mode);
            let left = estimate.of(id, planned) + rest.sum::<Duration>();
            eprintln!("{done}, about {} left", estimate::words(left));
            if let Part::Load(load) = part
                && suite.name != CALIBRATION
                && load.is_measurable()
            {
                self.calibrate(store, load)?;
            }
            for process in lease::others() {
                let text =
                    "Another run of this benchmark shared the processors with some of this one's steps.";
                eprintln!(
                    "{id}: another run is under way, process {process}: it and this one disturb each other"
                );
                store.warn(text.into())?;
            }
            let start = Instant::now();
            let result = match part {
                Part::Measure(measure) => match self.measure(store, suite, measure, id, lacking) {
                    // It failed because a program is missing, which its last output names.
                    Err(why) if why.contains(MISSING) => {
                        let why = why.rsplit(": crosspoint bench: ").next().unwrap_or(&why);
                        let text = format!("crosspoint was not measured with {}: {why}", measure.step);
                        eprintln!("{text}");
                        store.warn(format!("{}: {text}", suite.name))?;
                        lacking.push(text);
                        Ok(Measured::default())
                    }
                    result => result,
                },
                Part::Load(load) => self.load(store, suite, load, id, lacking),
                Part::Builds => self.builds(store, suite),
            };
            match result {
                // An interruption leaves a load without its last turns.
                Ok(Measured { points, failed })
                    if !self.session.is_interrupted() || matches!(part, Part::Measure(_)) =>
                {
                    // Without points it is no step that is over: the next run may find what this one lacks.
                    store.put(id, &points, &failed)?;
                    // Now that it is kept: what cannot be printed is not lost.
                    points.iter().for_each(print);
                }
                _ if self.session.is_interrupted() => return Err(interrupted(store)),
                Ok(_) => {}
                Err(why) => {
                    // A step's programs report it in their own words, so the disk itself is checked. No later
                    // step would find room either.
                    if let Some(full) = full_disk(store) {
                        return Err(Failure::Check(format!(
                            "{id} failed: {why}\nThe disk of {} is full. Make room, then go on with --resume; \
                             what was measured before is kept in {}",
                            full.display(),
                            store.dir().display()
                        )));
                    }
                    eprintln!("{id} failed: {why}");
                    store.fail(id, &why)?;
                }
            }
            // One that was left out took no time, and says nothing about others.
            if store.has(id) {
                estimate.add(id, planned, start.elapsed());
            }
            took.push((start.elapsed(), id));
        }
        took.sort_by_key(|(time, _)| Reverse(*time));
        if took.len() > 1 {
            eprintln!("the slowest steps:");
            took.iter().take(SLOWEST_SHOWN).for_each(|(t, id)| eprintln!("{:>8.1} s  {id}", t.as_secs_f64()));
        }
        // Also those from before the run was resumed.
        let failed = parts.iter().flat_map(|(id, ..)| store.failed_of(id));
        let failed: Vec<String> = failed.map(|(step, why)| format!("{step}: {why}")).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::Check(format!(
            "{} steps failed: {}; the rest is kept, and --resume measures these again",
            failed.len(),
            failed.join("; ")
        )))
    }

    /// Whether a part has been measured with every switch that can be measured here. One that was missing
    /// then may have been installed since.
    fn is_measured(&self, store: &Store, id: &str, part: &Part) -> Result<bool, String> {
        if !store.has(id) {
            return Ok(false);
        }
        let switches = match part {
            Part::Load(load) => load.measurable(),
            Part::Measure(measure) => {
                let peer =
                    measure.peer.filter(|peer| self.is_wanted(peer.switch) && peer.missing().is_none());
                peer.map(|peer| peer.switch.to_string()).into_iter().collect()
            }
            Part::Builds => Vec::new(),
        };
        let points = store.points_of(id)?;
        Ok(switches.iter().all(|switch| points.iter().any(|point| point.switch == *switch)))
    }

    /// Whether a switch was requested, or none was named.
    fn is_wanted(&self, switch: &str) -> bool {
        let switches = &self.wish.wanted.switches;
        switches.is_empty() || switches.iter().any(|wanted| wanted == switch)
    }

    /// Measures what a load's generator and guest can do alone, once for each in a run: readers of the
    /// figures must know.
    fn calibrate(&self, store: &mut Store, load: &Load) -> Result<(), Failure> {
        for (name, alone) in load.alone() {
            if store.info.calibration.contains_key(&name) || self.session.is_interrupted() {
                continue;
            }
            eprintln!("calibration: {name}");
            let run = |interrupted: &_| alone.run(CALIBRATION, Mode::Quick, interrupted);
            let mut measured = self.session.until_interrupted(run);
            let pps = measured.points.pop().and_then(|point| Some(point.metrics.get("rate_pps")?.highest()));
            match pps {
                _ if self.session.is_interrupted() => {}
                Some(pps) => store.calibrate(name, pps)?,
                None => {
                    let why = measured.failed.into_values().chain(measured.refused).next();
                    store
                        .warn(format!("calibration of {name}: {}", why.unwrap_or("it has no rate".into())))?;
                }
            }
        }
        if self.session.is_interrupted() { Err(interrupted(store)) } else { Ok(()) }
    }

    fn load(
        &self,
        store: &mut Store,
        suite: &Suite,
        load: &Load,
        id: &str,
        lacking: &mut Vec<String>,
    ) -> Result<Measured, String> {
        let measured = self.session.until_interrupted(|flag| load.run(suite.name, self.wish.mode, flag));
        // The operator's interruption ends generators, guests and switches too: they have not failed.
        if self.session.is_interrupted() {
            return Err("interrupted".into());
        }
        for note in measured.notes {
            store.warn(format!("{}: {note}", suite.name))?;
        }
        for why in measured.refused {
            store.warn(format!("{}: {why}", suite.name))?;
            lacking.push(why);
        }
        let mut failed = BTreeMap::new();
        for (switch, why) in measured.failed {
            if why.contains(MISSING) || why.contains(UNREACHABLE) {
                let text = format!("{switch} was not measured with {}: {why}", load.topology());
                store.warn(format!("{}: {text}", suite.name))?;
                lacking.push(text);
                continue;
            }
            eprintln!("{id} failed with {switch}: {why}");
            failed.insert(switch, why);
        }
        Ok(Measured { points: measured.points, failed })
    }

    /// This build against others, in turns: points of both, and a failure where this one is worse.
    fn builds(&self, store: &mut Store, suite: &Suite) -> Result<Measured, String> {
        let this = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        let versions = self.wish.wanted.switches.iter().filter_map(|s| s.strip_prefix("crosspoint@"));
        let mut others: Vec<PathBuf> = versions.map(PathBuf::from).collect();
        if others.is_empty() {
            store.warn("regression: no other build was named (--switch crosspoint@PATH), so this one is compared with itself".into())?;
            others.push(this.clone());
        }
        let rounds = match self.wish.mode {
            Mode::Quick => 2,
            Mode::Normal => turns::ROUNDS,
            Mode::Full => turns::ROUNDS_FULL,
        };
        let (mut points, mut slower) = (Vec::new(), Vec::new());
        for other in &others {
            let (mut a, mut b) =
                turns::builds(&self.session, other, &this, rounds).map_err(|e| e.to_string())?;
            let compared = compare::compare(&a, &b);
            let worse = compare::worse(&compared);
            if !worse.is_empty() {
                slower.push(format!("slower than {}: {}", other.display(), worse.join("; ")));
            }
            for (run, name) in
                [(&mut a, format!("crosspoint@{}", other.display())), (&mut b, "crosspoint".into())]
            {
                for mut point in run.points.drain(..) {
                    (point.suite, point.switch) = (suite.name.into(), name.clone());
                    points.push(point);
                }
            }
        }
        let verdict = (!slower.is_empty()).then(|| (VERDICT.to_string(), slower.join("; ")));
        Ok(Measured { points, failed: verdict.into_iter().collect() })
    }

    fn measure(
        &self,
        store: &mut Store,
        suite: &Suite,
        measure: &Measure,
        id: &str,
        lacking: &mut Vec<String>,
    ) -> Result<Measured, String> {
        let wanted = |name: &str| self.is_wanted(name);
        let peer = measure.peer.filter(|peer| wanted(peer.switch));
        let missing = peer.and_then(|peer| peer.missing());
        let is_there = peer.is_some() && missing.is_none();
        if let Some(missing) = missing {
            eprintln!("{missing}");
            store.warn(missing.clone())?;
            lacking.push(missing);
        }
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        let versions: Vec<&str> =
            self.wish.wanted.switches.iter().filter_map(|s| s.strip_prefix("crosspoint@")).collect();
        let arguments = measure.arguments(self.wish.mode, is_there);
        let alone = measure.arguments(self.wish.mode, false);
        let (mut points, mut failed) = (Vec::new(), BTreeMap::new());
        if versions.is_empty() {
            let both = self.measure_once(&program, &arguments, &store.raw(id));
            points = match (both, peer) {
                // A peer that fails takes only its own figures with it.
                (Err(why), Some(peer))
                    if is_there
                        && wanted("crosspoint")
                        && !why.contains(MISSING)
                        && !self.session.is_interrupted() =>
                {
                    eprintln!("{id} failed with {}, and is measured without: {why}", peer.switch);
                    failed.insert(peer.switch.to_string(), why);
                    self.measure_once(&program, &alone, &store.raw(id))?
                }
                (both, _) => both?,
            };
        } else {
            // In turns, so that a slow minute of the machine hits all versions.
            let (runs, ours) = turns::one_turn(&arguments);
            let (_, alone) = turns::one_turn(&alone);
            for turn in 0..runs {
                if wanted("crosspoint") || is_there {
                    let raw = store.raw(&format!("{id}.turn-{turn}"));
                    turns::merge(&mut points, self.measure_once(&program, &ours, &raw)?);
                }
                for (n, version) in versions.iter().enumerate() {
                    let raw = store.raw(&format!("{id}.turn-{turn}.version-{n}"));
                    let mut of_version = self.measure_once(Path::new(version), &alone, &raw)?;
                    of_version.retain(|p| p.switch == "crosspoint");
                    for point in &mut of_version {
                        point.switch = format!("crosspoint@{version}");
                    }
                    turns::merge(&mut points, of_version);
                }
            }
        }
        points.retain(|p| p.switch == "testpmd" || p.switch == "none" || wanted(&p.switch));
        for point in &mut points {
            point.suite = suite.name.into();
        }
        Ok(Measured { points, failed })
    }

    /// Runs a measurement with a build of Crosspoint, and reads the rows that it writes.
    fn measure_once(&self, program: &Path, arguments: &[&str], raw: &Path) -> Result<Vec<Point>, String> {
        let mut command = Command::new(program);
        command.arg("bench").args(arguments).arg("--json").arg(raw).stdout(Stdio::piped());
        let Ended { status, said, watched } = self.session.run(&mut command)?;
        if !status.success() {
            let name = program.display();
            return Err(format!("{name} bench {}: {}", arguments.join(" "), said.trim()));
        }
        let text = std::fs::read_to_string(raw).map_err(|_| {
            let (program, bench) = (program.display(), arguments.join(" "));
            format!("{program} wrote no results of `bench {bench}`: is it a build of Crosspoint?")
        })?;
        let mut points = RowFile::parse(&text)?.points()?;
        // Builds from before rows were watched turn by turn say nothing.
        for point in points.iter_mut().filter(|point| point.watched.is_none()) {
            point.watched = Some(watched);
            point.warnings.extend(watched.warning());
        }
        Ok(points)
    }
}

fn interrupted(store: &Store) -> Failure {
    let dir = store.dir().display();
    Failure::Check(format!("interrupted; what was measured is in {dir}, go on with --resume"))
}

/// The directory of a run whose disk is full: its results, or the temporary files of steps.
fn full_disk(store: &Store) -> Option<PathBuf> {
    [store.dir().to_path_buf(), std::env::temp_dir()].into_iter().find(|dir| store::is_full(dir))
}

/// Prints a point's first figures in one line, as it is measured.
fn print(point: &Point) {
    let text: Vec<String> = first_figures(point)
        .iter()
        .take(3)
        .map(|(name, m)| format!("{name} {} {}", crate::stats::short(m.median()), m.unit))
        .collect();
    println!("{:<12} {}: {}", point.switch, point.load(), text.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_only_trials_obey_is_refused_where_there_are_none() {
        let refused = |name: &str, wanted: Wanted| {
            let (names, mode) = (vec![name.to_string()], Mode::Quick);
            let wish = Wish { names, mode, wanted, out: PathBuf::new(), resume: false };
            is_any_of_trials(&suites(&wish.names).unwrap(), &wish).err().map(|why| why.to_string())
        };
        let turns = || Wanted { turns: Some(3), ..Wanted::default() };
        let why = refused("p2p", turns()).unwrap();
        assert!(why.contains("--turns") && why.contains("load-curve") && !why.contains("p2p"), "{why}");
        assert_eq!((refused("load-curve", turns()), refused("p2p", Wanted::default())), (None, None));
    }

    #[test]
    fn an_unknown_suite_is_refused_with_those_that_are_known() {
        let error = suites(&["p2p".into(), "juggling".into()]).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("juggling") && error.to_string().contains("pvp"), "{error}");
        let error = suites(&["p2p.juggling".into()]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("steps of p2p: in_port, exact, normal"), "{error}");
        let suite = suites(&["p2p.exact".into()]).unwrap()[0];
        let wanted: Vec<bool> =
            suite.steps.iter().map(|step| is_wanted(&["p2p.exact".into()], suite, step)).collect();
        assert_eq!(wanted, [false, true, false]);
        assert_eq!(suites(&["all".into()]).unwrap().len(), all_suites().count());
    }
}
