//! Runs on disk: written step by step, so that an aborted run loses at most the current step, and read again,
//! including runs from before suites existed.

use super::account::UNPACED_LOSS_MIN;
use super::rows::RowFile;
use super::{Point, Run, RunInfo, SCHEMA};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What a step's failure is called whose points are complete: they have been judged.
pub const VERDICT: &str = "verdict";

/// The warning of a run in which handing over a cache line did not always cost the same.
const HANDOVER_VARIES: &str = "The hypervisor moved the processors: handing a cache line from one to the other and \
                               back took more than twice as many cycles at some times as at others, and packets of \
                               guests cost more with it. Compare switches within one load only.";

/// A run that is being written.
pub struct Store {
    dir: PathBuf,
    /// Open as long as nobody else may write there.
    _lock: fs::File,
    /// `run.json`.
    pub info: RunInfo,
}

impl Store {
    /// A new run in a directory that is empty or not there; or, to `resume` it, one that is there.
    pub fn open(dir: &Path, resume: bool, info: RunInfo) -> Result<Store, String> {
        if dir.exists() && !dir.is_dir() {
            return Err(format!("--out {} is a file: give a directory, which need not exist", dir.display()));
        }
        let there = dir.join("run.json").exists();
        if resume && !there {
            let dir = dir.display();
            return Err(format!("{dir} holds no run to go on with: give its --out, or leave out --resume"));
        }
        for part in ["points", "raw"] {
            let path = dir.join(part);
            fs::create_dir_all(&path).map_err(|e| {
                format!("--out: cannot make {} ({e}): give a directory that you may write in", path.display())
            })?;
        }
        let lock = fs::File::open(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // Some file systems have no locks.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let dir = dir.display();
            return Err(format!("another run writes in {dir}: wait for its end, or give another --out"));
        }
        if there && !resume {
            return Err(format!(
                "{} holds a run: give --resume to go on with it, or another --out",
                dir.display()
            ));
        }
        let mut store = Store { dir: dir.to_path_buf(), _lock: lock, info };
        if there {
            let before = read_info(dir)?;
            let machine = |info: &RunInfo| {
                let machine = &info.machine;
                format!("{}, {} processors, {}", machine.cpu, machine.cpus, machine.kernel)
            };
            if machine(&before) != machine(&store.info) {
                return Err(format!(
                    "{} was begun on another machine ({}): resume it there, or give another --out",
                    dir.display(),
                    machine(&before)
                ));
            }
            let is_other = |(name, build): &(&String, &String)| before.builds.get(*name) != Some(*build);
            if let Some((name, _)) = store.info.builds.iter().find(is_other) {
                return Err(format!(
                    "{name} is another build by now than when {} was begun: give another --out",
                    dir.display()
                ));
            }
            if before.capture.is_some() && before.capture != store.info.capture {
                return Err(format!(
                    "the capture has other frames by now than when {} was begun: give another --out",
                    dir.display()
                ));
            }
            if before.mode != store.info.mode {
                return Err(format!(
                    "{} was begun as a {} run: resume it as such",
                    dir.display(),
                    before.mode
                ));
            }
            if options(&before.command) != options(&store.info.command) {
                return Err(format!(
                    "{} was begun with other options ({}): resume it with the same, or give another --out",
                    dir.display(),
                    before.command
                ));
            }
            for (what, was, is) in before.machine.differences(&store.info.machine) {
                store.info.warnings.push(format!(
                    "Some steps were measured with another {what} ({is}) than the first ones ({was}): the run was \
                     resumed with it. Compare switches within one load only."
                ));
            }
            // That of the steps that are there.
            store.info.machine = before.machine;
            store.info.started = before.started;
            store.info.command = before.command;
            store.info.calibration = before.calibration;
            store.info.failed = before.failed;
            // Steps that are not measured again do not warn again.
            for warning in before.warnings {
                if !store.info.warnings.contains(&warning) {
                    store.info.warnings.push(warning);
                }
            }
        }
        store.write_info()?;
        Ok(store)
    }

    /// A new run, in place of one of the same mode if there is one.
    pub fn replace(dir: &Path, info: RunInfo) -> Result<Store, String> {
        check_replaceable(dir, &info.mode)?;
        let _ = fs::remove_file(dir.join("run.json"));
        Store::open(dir, false, info)
    }

    /// The directory of the run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file for a step's rows as the measurement writes them.
    pub fn raw(&self, step: &str) -> PathBuf {
        self.dir.join("raw").join(format!("{step}.json"))
    }

    /// Whether a step has points, and no part of it failed.
    pub fn has(&self, step: &str) -> bool {
        let verdict = format!("{step}.{VERDICT}");
        let is_whole = !self.failed_of(step).any(|(key, _)| *key != verdict);
        is_whole && self.points_file(step).exists()
    }

    /// What failed in a step, and why.
    pub fn failed_of(&self, step: &str) -> impl Iterator<Item = (&String, &String)> {
        self.info.failed.iter().filter(move |(key, _)| is_of(key, step))
    }

    /// Stores a step's points, and the parts of it that failed.
    pub fn put(
        &mut self,
        step: &str,
        points: &[Point],
        failed: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        self.info.failed.retain(|key, _| !is_of(key, step));
        let failed = failed.iter().map(|(part, why)| (format!("{step}.{part}"), why.clone()));
        self.info.failed.extend(failed);
        // First, since a step without points is measured again.
        self.write_info()?;
        if points.is_empty() {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(points).map_err(|e| e.to_string())?;
        write_whole(&self.points_file(step), text.as_bytes())
    }

    /// Notes why a step has no points.
    pub fn fail(&mut self, step: &str, why: &str) -> Result<(), String> {
        self.info.failed.insert(step.into(), why.into());
        self.write_info()
    }

    /// Adds what readers must know, once.
    pub fn warn(&mut self, warning: String) -> Result<(), String> {
        if !self.info.warnings.contains(&warning) {
            self.info.warnings.push(warning);
        }
        self.write_info()
    }

    /// Notes what generator or guest can do alone, in packets per second.
    pub fn calibrate(&mut self, alone: String, pps: f64) -> Result<(), String> {
        self.info.calibration.insert(alone, pps);
        self.write_info()
    }

    /// The points of a step; none if it has not been measured.
    pub fn points_of(&self, step: &str) -> Result<Vec<Point>, String> {
        let path = self.points_file(step);
        if path.exists() { read_points(&path) } else { Ok(Vec::new()) }
    }

    /// All points so far, also those from before it was resumed.
    pub fn points(&self) -> Result<Vec<Point>, String> {
        Ok(read_run(&self.dir)?.points)
    }

    fn points_file(&self, step: &str) -> PathBuf {
        self.dir.join("points").join(format!("{step}.json"))
    }

    fn write_info(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.info).map_err(|e| e.to_string())?;
        write_whole(&self.dir.join("run.json"), text.as_bytes())
    }
}

/// Fails if a directory holds a run of another mode.
pub fn check_replaceable(dir: &Path, mode: &str) -> Result<(), String> {
    if !dir.join("run.json").exists() {
        return Ok(());
    }
    match read_info(dir)?.mode {
        before if before == mode => Ok(()),
        before => Err(format!("{} was begun as a {before} run: give another directory", dir.display())),
    }
}

/// Whether a failure's key is that of a step, or of a part of it.
fn is_of(key: &str, step: &str) -> bool {
    key.strip_prefix(step).is_some_and(|part| part.is_empty() || part.starts_with('.'))
}

/// The options of a command that say what is measured, in the order of their text.
fn options(command: &str) -> BTreeSet<String> {
    const NAMES: [&str; 6] = ["--switch", "--generator", "--traffic", "--workers", "--turns", "--nic"];
    // `--traffic=pcap=FILE`: only what is an option has a value behind the first sign.
    let parts = |word: &'_ str| -> Vec<String> {
        match word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
            Some((name, value)) => vec![name.into(), value.into()],
            None => vec![word.into()],
        }
    };
    let words: Vec<String> = command.split_whitespace().flat_map(parts).collect();
    let pairs = words.windows(2).filter(|pair| NAMES.contains(&&*pair[0]));
    pairs.map(|pair| pair.join(" ")).collect()
}

/// What a step writes at least.
const ROOM: usize = 64 << 10;

/// Whether a directory's disk has no room for a step's results. Found by writing, since a quota or reserved
/// blocks leave less than the disk reports.
pub fn is_full(dir: &Path) -> bool {
    let probe = dir.join(format!("crosspoint-room-{}", std::process::id()));
    let write = || {
        let mut file = fs::File::create(&probe)?;
        file.write_all(&[0xff; ROOM])?;
        file.sync_all()
    };
    let written = write();
    // It may not exist.
    let _ = fs::remove_file(&probe);
    written.is_err_and(|e| matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Writes a file of a run whole or not at all.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), String> {
    replace(path, bytes).map_err(|e| {
        let room = if e.kind() == ErrorKind::StorageFull { "make room, then " } else { "" };
        format!("{}: {e}; what was measured before is kept, {room}go on with --resume", path.display())
    })
}

/// Writes a file whole or not at all. What is no regular file, such as a device, a pipe or a link to one, is
/// written to as it is: renamed over, it would be gone.
pub fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::File::options().write(true).truncate(true).open(path)?.write_all(bytes);
    }
    let beside = path.with_extension("part");
    let write = || {
        let mut file = fs::File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// Reads a run: a directory with `run.json`, or one with files of rows from before there were suites.
pub fn read(dir: &Path) -> Result<Run, String> {
    if !dir.is_dir() {
        return Err(format!(
            "{}: no such directory; give one that `crosspoint bench run` wrote",
            dir.display()
        ));
    }
    let run = if dir.join("run.json").exists() { read_run(dir) } else { read_committed(dir) }?;
    if run.points.is_empty() && run.info.failed.is_empty() {
        return Err(format!("{}: holds no results of `crosspoint bench`", dir.display()));
    }
    Ok(run)
}

fn read_info(dir: &Path) -> Result<RunInfo, String> {
    let path = dir.join("run.json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let info: RunInfo = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if info.schema != SCHEMA {
        return Err(format!(
            "{}: its format is {:?}, this program reads {SCHEMA}",
            path.display(),
            info.schema
        ));
    }
    Ok(info)
}

fn read_run(dir: &Path) -> Result<Run, String> {
    let mut run = Run { name: dir.display().to_string(), info: read_info(dir)?, points: Vec::new() };
    for path in json_files(&dir.join("points"))? {
        run.points.extend(read_points(&path)?);
    }
    if run.handover_cycles().is_some_and(|(least, most)| most > 2.0 * least) {
        run.info.warnings.push(HANDOVER_VARIES.into());
    }
    Ok(run)
}

fn read_points(path: &Path) -> Result<Vec<Point>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let points: Vec<Point> = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(points.into_iter().map(with_limits).collect())
}

/// Points of older versions do not say that the generator's receiving side was their limit, or its sending
/// one where only few packets were lost.
fn with_limits(mut point: Point) -> Point {
    let Some(account) = &point.account else { return point };
    let is_unpaced = point.labels.get("trial").is_some_and(|trial| trial == "max-rate");
    let of_sender = (is_unpaced && account.loss() < UNPACED_LOSS_MIN).then_some("the generator");
    let limit = account.limit_of_receiver().or(of_sender);
    point.limit = point.limit.or(limit.map(str::to_string));
    point
}

/// The name of a file (`masks-1k.json`) distinguishes repetitions of one measurement.
fn read_committed(dir: &Path) -> Result<Run, String> {
    let mut run = Run { name: dir.display().to_string(), ..Run::default() };
    run.info.mode = "committed".into();
    for path in json_files(dir)? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let file = RowFile::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let points = file.points().map_err(|e| format!("{}: {e}", path.display()))?;
        run.info.machine = file.machine;
        for mut point in points {
            let taken = run.points.iter().any(|p| p.key() == point.key());
            if taken {
                let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                point.labels.insert("file".into(), name);
            }
            run.points.push(point);
        }
    }
    let machine = fs::read_to_string(dir.join("machine.txt")).unwrap_or_default();
    let field = |name: &str| machine.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_string());
    run.info.started = field("date:").unwrap_or_default();
    run.info.command = fs::read_to_string(dir.join("commands.txt")).unwrap_or_default();
    run.info
        .warnings
        .push("A run from before there were suites: steal and packet accounts were not recorded.".into());
    Ok(run)
}

fn json_files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fingerprint::Fingerprint;
    use crate::machine::watch::Watched;
    use crate::process::TempDir;
    use crate::result::account::Account;
    use crate::result::account::RECEIVING_SIDE;

    fn info(mode: &str) -> RunInfo {
        RunInfo { schema: SCHEMA.into(), mode: mode.into(), ..RunInfo::default() }
    }

    #[test]
    fn a_run_is_read_as_it_was_written_and_resumed_only_as_what_it_was() {
        let dir = TempDir::new("store").unwrap();
        let none = Store::open(&dir.0.join("mistyped"), true, info("quick")).map(|_| ());
        assert!(none.unwrap_err().contains("no run to go on with") && !dir.0.join("mistyped").exists());
        let mut store = Store::open(&dir.0, false, info("quick")).unwrap();
        let point = Point { suite: "p2p".into(), switch: "crosspoint".into(), ..Point::default() };
        store.put("p2p-1", &[point], &BTreeMap::new()).unwrap();
        store.fail("pvp-1", "no guest").unwrap();
        let run = read(&dir.0).unwrap();
        assert_eq!((run.points.len(), run.info.failed["pvp-1"].as_str()), (1, "no guest"));
        let beside = Store::open(&dir.0, true, info("quick")).map(|_| ());
        assert!(beside.unwrap_err().contains("another run writes in"));
        drop(store);
        let again = |resume, mode| Store::open(&dir.0, resume, info(mode)).map(|s| s.has("p2p-1"));
        assert!(again(false, "quick").unwrap_err().contains("--resume"));
        assert!(again(true, "full").unwrap_err().contains("quick run"));
        assert_eq!(again(true, "quick"), Ok(true));
        // What it has of one switch says nothing of another; where it lies is no option of the measurement.
        let by = |command: &str| {
            let info = RunInfo { command: command.into(), ..info("quick") };
            Store::open(&dir.0, true, info).map(|s| s.has("p2p-1"))
        };
        assert!(by("crosspoint bench run p2p --switch bridge").unwrap_err().contains("other options"));
        assert_eq!(by("crosspoint bench run p2p pvp --quick --out x --resume"), Ok(true));
        assert_eq!(options("x --turns=3 --switch a --switch b"), options("--switch b --turns 3 --switch a"));
    }

    #[test]
    fn a_run_is_not_resumed_with_another_capture() {
        let captures = ["--traffic pcap=a", "--traffic pcap=b", "--traffic=pcap=a"].map(options);
        assert!(captures[0] != captures[1] && captures[0] == captures[2], "{captures:?}");
        let dir = TempDir::new("capture").unwrap();
        let open = |resume, digest: &str| {
            let info = RunInfo { capture: Some(digest.into()), ..info("quick") };
            Store::open(&dir.0, resume, info).map(|_| ())
        };
        assert_eq!(open(false, "1"), Ok(()));
        assert!(open(true, "2").unwrap_err().contains("the capture has other frames"));
        assert_eq!(open(true, "1"), Ok(()));
    }

    #[test]
    fn a_run_that_is_resumed_on_a_changed_machine_keeps_the_first_and_warns() {
        let dir = TempDir::new("changed").unwrap();
        let open = |resume, governor: &str, memory_bytes| {
            let machine = Fingerprint { governor: governor.into(), memory_bytes, ..Fingerprint::default() };
            Store::open(&dir.0, resume, RunInfo { machine, ..info("quick") }).unwrap().info
        };
        open(false, "powersave", 1_000_000);
        assert!(open(true, "powersave", 1_001_000).warnings.is_empty());
        let resumed = open(true, "performance", 1_000_000);
        assert_eq!(resumed.machine.governor, "powersave");
        let [warning] = &resumed.warnings[..] else { panic!("{:?}", resumed.warnings) };
        assert!(
            warning.contains("another governor (performance) than the first ones (powersave)"),
            "{warning}"
        );
    }

    #[test]
    fn a_run_in_which_processors_moved_warns_of_it() {
        let dir = TempDir::new("handover").unwrap();
        let mut store = Store::open(&dir.0, false, info("quick")).unwrap();
        let mut put = |cycles| {
            let watched = Some(Watched { handover_cycles: Some((cycles, cycles)), ..Watched::default() });
            let point = Point { watched, ..Point::default() };
            store.put(&format!("p2p.{cycles}"), &[point], &BTreeMap::new()).unwrap();
            let run = read(&dir.0).unwrap();
            let warns = run.info.warnings.iter().any(|warning| warning == HANDOVER_VARIES);
            (run.handover_cycles().unwrap(), warns)
        };
        assert_eq!(put(200.0), ((200.0, 200.0), false));
        assert_eq!(put(130.0), ((130.0, 200.0), false));
        assert_eq!(put(870.0), ((130.0, 870.0), true));
    }

    #[test]
    fn a_stored_point_whose_loss_was_at_the_generator_s_receiving_side_has_that_limit() {
        let lost_at = |interface: &str, n| {
            let mut account = Account { offered: 1_000, received: 1_000 - n, ..Account::default() };
            account.missed(interface, n);
            with_limits(Point { account: Some(account), ..Point::default() }).limit
        };
        assert_eq!((lost_at("e1", 700).as_deref(), lost_at("e1", 0)), (Some(RECEIVING_SIDE), None));
        // A generator that sends all it can, of which little is lost, cannot send much more.
        let unpaced = |lost: u64| {
            let account = Some(Account { offered: 1_000, received: 1_000 - lost, ..Account::default() });
            let labels = [("trial".into(), "max-rate".into())].into();
            with_limits(Point { account, labels, ..Point::default() }).limit
        };
        assert_eq!((unpaced(49).as_deref(), unpaced(50)), (Some("the generator"), None));
    }

    #[test]
    fn a_format_of_another_version_is_refused() {
        let dir = TempDir::new("schema").unwrap();
        fs::write(dir.0.join("run.json"), r#"{"schema": "crosspoint-bench/2"}"#).unwrap();
        assert!(read(&dir.0).unwrap_err().contains("crosspoint-bench/2"));
    }

    #[test]
    fn a_full_disk_is_named_and_leaves_no_half_of_a_file() {
        let error = write_whole(Path::new("/dev/full/x.json"), b"x").unwrap_err();
        assert!(error.contains("--resume"), "{error}");
    }

    #[test]
    fn a_device_and_a_link_are_written_to_and_not_replaced() {
        assert_eq!(replace(Path::new("/dev/full"), b"x").unwrap_err().kind(), ErrorKind::StorageFull);
        let dir = TempDir::new("replace").unwrap();
        let [file, link] = ["file", "link"].map(|name| dir.0.join(name));
        fs::write(&file, "longer than the new text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn every_committed_run_is_read() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let mut read_runs = 0;
        for entry in fs::read_dir(runs).unwrap().flatten().filter(|e| e.path().is_dir()) {
            let run = read(&entry.path()).unwrap();
            assert!(!run.points.is_empty(), "{}", run.name);
            for point in &run.points {
                assert!(!point.metrics.is_empty() && !point.switch.is_empty(), "{}: {point:?}", run.name);
            }
            // Readers repeat them, so they name no directory of the machine that made them.
            for command in run.points.iter().map(|point| &point.command).chain([&run.info.command]) {
                assert!(!command.starts_with('/') && !command.contains("/tmp/"), "{}: {command}", run.name);
            }
            read_runs += 1;
        }
        assert!(read_runs >= 9);
    }
}
