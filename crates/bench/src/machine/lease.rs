//! Records what a run has taken from the machine, so that the next run can release it if this one was killed.
//!
//! A run that calls [`open`] gets a directory in the system's directory for temporary files, named after
//! its process and the time at which that started (a process id alone may be reused). Files of benchmarks
//! are made below it. Namespaces, interfaces and control groups are recorded in the directory's journal
//! before they are taken. Processes need no record: each that the run starts, and each that those start,
//! has the directory in its environment from its first instruction on. The run has its directory locked. A
//! run that ends releases all of that; [`sweep`] finds the directories of runs that no longer exist, and
//! releases what belongs to them and nothing else.

use super::interface::Interface;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PREFIX: &str = "crosspoint-bench-lease-";
/// The directory of the run's lease, in the environment of all that it starts.
const VARIABLE: &str = "CROSSPOINT_BENCH_LEASE";
/// Where DPDK puts files that it does not remove when it is killed.
const DPDK_FILES: &str = "RUNTIME_DIRECTORY";

/// How long killed processes may take to end: they hold namespaces and pages of memory until then.
const END_OF_PROCESSES: Duration = Duration::from_secs(5);

/// Something besides processes and files that outlives a process which is killed.
pub enum Resource<'a> {
    /// A network namespace, with the devices in it.
    Namespace(&'a str),
    /// An interface that is moved into a namespace, recorded behind that: it comes back before that goes.
    Interface(&'a Interface),
    /// A control group and the processes frozen in it.
    ControlGroup(&'a Path),
}

/// The run's own lease.
pub struct Lease {
    dir: PathBuf,
    /// The directory, locked as long as the run lives.
    _held: File,
}

/// Opens this process's lease.
pub fn open() -> Result<Lease, String> {
    let pid = std::process::id();
    let started = started(pid).ok_or("this process is not in /proc")?;
    let dir = std::env::temp_dir().join(format!("{PREFIX}{pid}-{started}"));
    // What others could write in, nobody would obey.
    (fs::DirBuilder::new().mode(0o700).create(&dir))
        .map_err(|e| format!("{}: {e}; name a directory that you may write in by TMPDIR", dir.display()))?;
    let held = File::open(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    // Some file systems have no locks.
    let _ = held.try_lock();
    *CURRENT.lock().expect("no panic while held") = Some(dir.clone());
    Ok(Lease { dir, _held: held })
}

impl Lease {
    /// The directory, by which another thread finds what the run has started.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Releases everything: a run that was interrupted has ended its processes before their time.
    pub fn give_back(&self) {
        *CURRENT.lock().expect("no panic while held") = None;
        give_back(&self.dir, &mut Vec::new());
    }
}

static CURRENT: std::sync::Mutex<Option<PathBuf>> = std::sync::Mutex::new(None);

/// The directory of the run that this process belongs to.
pub fn current() -> Option<PathBuf> {
    let own = CURRENT.lock().expect("no panic while held").clone();
    own.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from))
}

/// Makes a command's process one of the run's, if this one is.
pub fn mark(command: &mut Command) {
    if let Some(dir) = current() {
        command.env(VARIABLE, &dir).env(DPDK_FILES, dir);
    }
}

/// Makes DPDK put its files in a directory that goes with the process, unless that is [one of the
/// run's](mark).
pub fn keep_dpdk_files_in(dir: &Path, command: &mut Command) {
    command.env(DPDK_FILES, dir);
}

/// Interrupts what a run has started, as a terminal's Ctrl-C does, but not those in `told`.
pub fn interrupt(dir: &Path, told: &mut BTreeSet<Marked>) {
    signal_new(dir, told, Signal::INT);
}

/// Records a resource for the run that this process belongs to. Without a run nothing is recorded: then the
/// creator releases it.
pub fn note(resource: &Resource) -> Result<(), String> {
    let Some(dir) = current() else { return Ok(()) };
    let line = match resource {
        Resource::Namespace(name) => format!("namespace {name}\n"),
        Resource::Interface(interface) => format!("interface {interface}\n"),
        Resource::ControlGroup(path) => format!("cgroup {}\n", path.display()),
    };
    append(&dir, &line).map_err(|e| format!("the record of what this run takes, {}: {e}", dir.display()))
}

fn append(dir: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(dir.join("journal"))?.write_all(line.as_bytes())
}

/// Whether a directory is this user's, and nobody else may write in it: what a journal says is done, by root
/// as a rule.
fn is_trusted(dir: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == own && m.mode() & OTHERS_WRITE == 0)
}

/// All leases: the process that each was made by, when that started, and the directory.
fn leases() -> impl Iterator<Item = (u32, u64, PathBuf)> {
    fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (pid, since) = name.strip_prefix(PREFIX)?.split_once('-')?;
        Some((pid.parse().ok()?, since.parse().ok()?, entry.path()))
    })
}

/// Whether the run lives that a directory belongs to. A run in another container, with the same directory for
/// temporary files, has a process that cannot be seen from here, but its lock can.
fn is_alive(pid: u32, since: u64, dir: &Path) -> bool {
    started(pid) == Some(since) || is_held(dir)
}

/// Whether a run has locked this directory.
pub fn is_held(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|dir| matches!(dir.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Processes of other runs that are under way on this machine.
pub fn others() -> Vec<u32> {
    let own = std::process::id();
    leases()
        .filter(|(pid, since, dir)| *pid != own && is_alive(*pid, *since, dir))
        .map(|(pid, ..)| pid)
        .collect()
}

/// Gives back what runs that were killed have left. Returns a line for each thing that was given back.
pub fn sweep() -> Vec<String> {
    let mut done = Vec::new();
    for (pid, since, dir) in leases() {
        if !is_alive(pid, since, &dir) && is_trusted(&dir) {
            give_back(&dir, &mut done);
            done.push(format!("directory {}", dir.display()));
        }
    }
    done
}

/// Processes first, until there is none that others have started meanwhile; then the rest, in the reverse
/// order of how it was taken.
fn give_back(dir: &Path, done: &mut Vec<String>) {
    let mut killed = BTreeSet::new();
    let start = Instant::now();
    while !signal_new(dir, &mut killed, Signal::KILL).is_empty() && start.elapsed() < END_OF_PROCESSES {
        sleep(Duration::from_millis(5));
    }
    done.extend(killed.iter().map(|(pid, _)| format!("process {pid}")));
    let journal = fs::read_to_string(dir.join("journal")).unwrap_or_default();
    done.extend(journal.lines().rev().filter_map(undo));
    let _ = fs::remove_dir_all(dir);
}

fn undo(line: &str) -> Option<String> {
    let (kind, what) = line.split_once(' ')?;
    let is_done = match kind {
        "namespace" if Path::new("/run/netns").join(what).exists() => {
            let output = Command::new("ip").args(["netns", "del", what]).output();
            output.is_ok_and(|output| output.status.success())
        }
        "interface" => {
            let interface = Interface::parse(what)?;
            let is_back = interface.give_back().inspect_err(|why| eprintln!("crosspoint bench: {why}"));
            return is_back
                .is_ok_and(|was_away| was_away)
                .then(|| format!("{kind} {}", interface.original()));
        }
        // Only below the directory of control groups.
        "cgroup" => {
            let path = Path::new(what);
            let is_ours = path.starts_with("/sys/fs/cgroup") && what.contains("/crosspoint-");
            is_ours && path.is_dir() && thaw(path)
        }
        _ => false,
    };
    is_done.then(|| format!("{kind} {what}"))
}

/// Thaws the processes in a group, and removes it. Returns whether it is gone.
pub fn thaw(group: &Path) -> bool {
    for (file, thawed) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        if group.join(file).exists() {
            let _ = fs::write(group.join(file), thawed);
        }
    }
    // Processes that were killed while frozen end now.
    for _ in 0..50 {
        if fs::remove_dir(group).is_ok() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    false
}

/// A process by its id and the time at which it started.
pub type Marked = (u32, u64);

/// Sends a signal to each process of a run that is not in `told`. Returns all that there are.
fn signal_new(dir: &Path, told: &mut BTreeSet<Marked>, signal: Signal) -> Vec<Marked> {
    let mut all = Vec::new();
    for (process, handle) in processes_of(dir) {
        if told.insert(process) {
            // It may have ended.
            let _ = pidfd_send_signal(handle, signal);
        }
        all.push(process);
    }
    all
}

/// The processes that have a run's directory in their environment, besides this one.
fn processes_of(dir: &Path) -> Vec<(Marked, OwnedFd)> {
    let mark = [VARIABLE.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
    let one = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let is_marked = || {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark)
        };
        if pid == std::process::id() || !is_marked() {
            return None;
        }
        let handle = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
        // Looked at again: the handle may be that of a later process with the same id.
        is_marked().then_some(())?;
        Some(((pid, started(pid)?), handle))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(one).collect()
}

/// When a process started, in clock ticks since boot; `None` if it does not exist, or has ended and waits for
/// its parent.
pub fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state is the first field behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    // Field 22 of the file; the state was field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::process::{Child, Stdio};

    fn lease(n: u32) -> PathBuf {
        std::env::temp_dir().join(format!("{PREFIX}{}-{n}", std::process::id()))
    }

    /// A process that a run with this lease may have started.
    fn process_of(lease: &Path) -> Child {
        Command::new("sleep").arg("600").env(VARIABLE, lease).stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn what_a_killed_run_has_taken_is_given_back_and_nothing_else() {
        // A run whose process id is in use again, by this test, but did not start then.
        let dir = lease(1);
        let (mut own, mut other) = (process_of(&dir), process_of(&lease(10)));
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        fs::create_dir(dir.join("p2p-1-0")).unwrap();
        append(&dir, "cgroup /sys/fs/cgroup/system\nnamespace ../x\n").unwrap();
        let done = sweep();
        assert!(done.contains(&format!("process {}", own.id())), "{done:?}");
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        assert!(!dir.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_directory_that_others_may_have_written_is_not_obeyed() {
        let mut processes = Vec::new();
        for n in 2..5 {
            processes.push(process_of(&lease(n)));
            let dir = std::env::temp_dir().join(format!("crosspoint-not-a-lease-{}-{n}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            match n {
                2 => symlink(&dir, lease(n)).unwrap(),
                _ => fs::rename(&dir, lease(n)).unwrap(),
            }
            match n {
                3 => chown(lease(n), Some(65_534), None).unwrap(),
                4 => fs::set_permissions(lease(n), fs::Permissions::from_mode(0o777)).unwrap(),
                _ => {}
            }
        }
        sweep();
        for mut process in processes {
            assert!(process.try_wait().unwrap().is_none());
            process.kill().unwrap();
            process.wait().unwrap();
        }
        fs::remove_dir_all(fs::read_link(lease(2)).unwrap()).unwrap();
        fs::remove_file(lease(2)).unwrap();
        (3..5).for_each(|n| fs::remove_dir_all(lease(n)).unwrap());
    }

    #[test]
    fn other_runs_are_those_whose_process_lives() {
        let mut process = process_of(Path::new("none"));
        let since = started(process.id()).unwrap();
        let leases = [since, since + 1]
            .map(|since| std::env::temp_dir().join(format!("{PREFIX}{}-{since}", process.id())));
        let is_other = |pid| others().contains(&pid);
        fs::create_dir(&leases[1]).unwrap();
        assert!(!is_other(process.id()), "another process had this number");
        fs::create_dir(&leases[0]).unwrap();
        assert!(is_other(process.id()) && !is_other(std::process::id()));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!is_other(process.id()));
        leases.iter().for_each(|lease| drop(fs::remove_dir(lease)));
    }

    #[test]
    fn a_run_whose_process_cannot_be_seen_keeps_what_it_has_while_it_holds_its_directory() {
        let dir = lease(11);
        let mut process = process_of(&dir);
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let held = File::open(&dir).unwrap();
        held.lock().unwrap();
        sweep();
        assert!(dir.exists() && process.try_wait().unwrap().is_none());
        drop(held);
        sweep();
        assert!(!dir.exists() && !process.wait().unwrap().success());
    }

    #[test]
    fn a_run_that_lives_keeps_what_it_has() {
        let since = started(std::process::id()).unwrap();
        let lease = std::env::temp_dir().join(format!("{PREFIX}{}-{since}", std::process::id()));
        fs::create_dir_all(&lease).unwrap();
        sweep();
        assert!(lease.exists());
        fs::remove_dir_all(lease).unwrap();
    }
}
