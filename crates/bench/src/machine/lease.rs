//! Records what a run has taken from the machine, so that the next run can release it if this one was killed.
//!
//! A run that calls [`open`] gets a directory in the system's directory for temporary files, named after its
//! process and the time at which that started (a process id alone may be reused). Everything a benchmark
//! takes is recorded in the directory's journal before it is created, or for processes as soon as they have
//! an id. A run that ends removes the directory; [`sweep`] finds the directories of runs that no longer exist
//! and releases what they record, and nothing else: a process must still be the one that started at the
//! recorded time, a namespace must have the recorded name.
//!
//! Processes that a run starts find its lease through the environment, so that what they take is in the same
//! record.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = "crosspoint-bench-lease-";
/// The directory of the run's lease, for the processes that it starts.
const VARIABLE: &str = "CROSSPOINT_BENCH_LEASE";

/// Where to tell the kernel how many huge pages to provide.
pub const NR_HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Something that outlives a process which is killed.
pub enum Resource<'a> {
    /// A process, by its id.
    Process(u32),
    /// A directory with all that is in it.
    Dir(&'a Path),
    /// A network namespace, with the devices in it.
    Namespace(&'a str),
    /// The number of huge pages before it was raised.
    HugePages(&'a str),
    /// A file system that was mounted here.
    Mount(&'a str),
    /// A control group and the processes frozen in it.
    ControlGroup(&'a Path),
}

/// The run's own lease. Dropped, it is over.
pub struct Lease {
    dir: PathBuf,
}

/// Opens this process's lease.
pub fn open() -> Result<Lease, String> {
    let pid = std::process::id();
    let started = started(pid).ok_or("this process is not in /proc")?;
    let dir = std::env::temp_dir().join(format!("{PREFIX}{pid}-{started}"));
    // What others could write in, nobody would obey.
    (fs::DirBuilder::new().mode(0o700).create(&dir))
        .map_err(|e| format!("{}: {e}; name a directory that you may write in by TMPDIR", dir.display()))?;
    *CURRENT.lock().expect("no panic while held") = Some(dir.clone());
    Ok(Lease { dir })
}

impl Lease {
    /// Hands the lease on to a process that is about to be started.
    pub fn pass_to(&self, command: &mut Command) {
        command.env(VARIABLE, &self.dir);
    }

    /// The directory, by which another thread finds what the run has started.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Interrupts what a run has started, as a terminal's Ctrl-C does: the processes after the first `told` of
/// its journal. Returns how many there are by now.
pub fn interrupt(dir: &Path, told: usize) -> usize {
    let journal = fs::read_to_string(dir.join("journal")).unwrap_or_default();
    let processes: Vec<&str> = journal.lines().filter_map(|line| line.strip_prefix("process ")).collect();
    for process in processes.iter().skip(told) {
        signal_noted(process, "-2");
    }
    processes.len()
}

impl Drop for Lease {
    fn drop(&mut self) {
        *CURRENT.lock().expect("no panic while held") = None;
        // Processes that it started may have been interrupted.
        give_back(&self.dir, &mut Vec::new());
    }
}

static CURRENT: std::sync::Mutex<Option<PathBuf>> = std::sync::Mutex::new(None);

/// Records a resource for the run that this process belongs to. Without a run nothing is recorded: then the
/// creator releases it.
pub fn note(resource: &Resource) -> Result<(), String> {
    let own = CURRENT.lock().expect("no panic while held").clone();
    let Some(dir) = own.or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from)) else { return Ok(()) };
    let line = match resource {
        Resource::Process(pid) => match started(*pid) {
            Some(started) => format!("process {pid} {started}\n"),
            // It has ended already.
            None => return Ok(()),
        },
        Resource::Dir(path) => format!("dir {}\n", path.display()),
        Resource::Namespace(name) => format!("namespace {name}\n"),
        Resource::HugePages(before) => format!("hugepages {before}\n"),
        Resource::Mount(path) => format!("mount {path}\n"),
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

/// Gives back what runs that were killed have left. Returns a line for each thing that was given back.
pub fn sweep() -> Vec<String> {
    let mut done = Vec::new();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, since)) = name.strip_prefix(PREFIX).and_then(|owner| owner.split_once('-')) else {
            continue;
        };
        let (Ok(pid), Ok(since)) = (pid.parse::<u32>(), since.parse::<u64>()) else { continue };
        if started(pid) != Some(since) && is_trusted(&entry.path()) {
            give_back(&entry.path(), &mut done);
        }
    }
    done
}

/// Processes first, those that started others before those, until no new one has been noted meanwhile; then
/// the rest, in the reverse order of how it was taken.
fn give_back(dir: &Path, done: &mut Vec<String>) {
    let read = || fs::read_to_string(dir.join("journal")).unwrap_or_default();
    let mut ended = 0;
    loop {
        let journal = read();
        let processes: Vec<&str> = journal.lines().filter(|line| line.starts_with("process ")).collect();
        if processes.len() == ended {
            break;
        }
        done.extend(processes[ended..].iter().filter_map(|line| undo(line)));
        ended = processes.len();
    }
    let journal = read();
    done.extend(journal.lines().rev().filter(|line| !line.starts_with("process ")).filter_map(undo));
    let _ = fs::remove_dir_all(dir);
}

fn undo(line: &str) -> Option<String> {
    let (kind, what) = line.split_once(' ')?;
    let command = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|o| o.status.success())
    };
    let is_done = match kind {
        "process" => signal_noted(what, "-9"),
        // Only below the benchmarks' own directories.
        "dir" => {
            let path = Path::new(what);
            let is_ours = path.starts_with(std::env::temp_dir())
                && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("crosspoint-"));
            is_ours && path.is_dir() && fs::remove_dir_all(path).is_ok()
        }
        "namespace" => {
            let exists = Path::new("/run/netns").join(what).exists();
            exists && command("ip", &["netns", "del", what])
        }
        "hugepages" => fs::write(NR_HUGE_PAGES, what).is_ok(),
        // Only below the directory of control groups.
        "cgroup" => {
            let path = Path::new(what);
            let is_ours = path.starts_with("/sys/fs/cgroup") && what.contains("/crosspoint-");
            is_ours && path.is_dir() && thaw(path)
        }
        "mount" => command("umount", &[what]),
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

/// Sends a signal to a noted process, `PID SINCE`, if it is still that one. Whether it was sent.
fn signal_noted(process: &str, signal: &str) -> bool {
    let Some((pid, since)) = process.split_once(' ') else { return false };
    let (Ok(id), Ok(since)) = (pid.parse(), since.parse::<u64>()) else { return false };
    let send = || Command::new("kill").args([signal, pid]).output().is_ok_and(|o| o.status.success());
    started(id) == Some(since) && send()
}

/// When a process started, in clock ticks since boot; `None` if it does not exist, or has ended and waits for
/// its parent.
fn started(pid: u32) -> Option<u64> {
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
    use std::process::Stdio;

    #[test]
    fn what_a_killed_run_noted_is_given_back_and_nothing_else() {
        let mut noted = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let mut other = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let dir = std::env::temp_dir().join(format!("crosspoint-lease-test-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // A run whose process id is in use again, by this test, but did not start then.
        let lease = std::env::temp_dir().join(format!("{PREFIX}{}-1", std::process::id()));
        fs::create_dir_all(&lease).unwrap();
        let since = started(noted.id()).unwrap();
        append(&lease, &format!("process {} {since}\n", noted.id())).unwrap();
        // This id is another process's by now.
        append(&lease, &format!("process {} 1\n", other.id())).unwrap();
        append(&lease, &format!("dir {}\n", dir.display())).unwrap();
        append(&lease, "dir /usr\n").unwrap();
        let done = sweep();
        let noted_line = format!("process {} {since}", noted.id());
        assert!(done.contains(&noted_line) && done.contains(&format!("dir {}", dir.display())), "{done:?}");
        assert!(!noted.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        assert!(!dir.exists() && !lease.exists() && Path::new("/usr").exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_journal_that_others_may_have_written_is_not_obeyed() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let mut other = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let line = format!("process {} {}\n", other.id(), started(other.id()).unwrap());
        let lease = |n: u32| std::env::temp_dir().join(format!("{PREFIX}{}-{n}", std::process::id()));
        for n in 2..5 {
            let dir = std::env::temp_dir().join(format!("crosspoint-not-a-lease-{}-{n}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            append(&dir, &line).unwrap();
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
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        fs::remove_dir_all(fs::read_link(lease(2)).unwrap()).unwrap();
        fs::remove_file(lease(2)).unwrap();
        (3..5).for_each(|n| fs::remove_dir_all(lease(n)).unwrap());
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
