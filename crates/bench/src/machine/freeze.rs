//! One thread of another process is kept from running, by the kernel's freezer: signals would stop them all.

use crate::machine::lease::{self, Resource, thaw};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mount point of the version 1 cgroup freezer, which can freeze single threads.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// A process's first thread, frozen until this is dropped.
pub struct Frozen {
    /// The group that is frozen, the file that says so, and what to write there to thaw it.
    group: PathBuf,
    state: (&'static str, &'static str),
    /// The file that takes the thread back, and the thread's id.
    home: (PathBuf, u32),
    /// The group around it, where the freezer needs one.
    around: Option<PathBuf>,
}

/// Freezes the first thread of a process. The error says what the machine lacks.
pub fn first_thread(pid: u32) -> Result<Frozen, String> {
    let name = format!("crosspoint-{pid}");
    let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|e| format!("process {pid}: {e}"))?;
    let of = |controller: &str| {
        let line = own.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(controller));
        line.unwrap_or("/").trim_start_matches('/').to_string()
    };
    let frozen = if Path::new(FREEZER).is_dir() {
        let group = Path::new(FREEZER).join(name);
        make(&group)?;
        let home = (Path::new(FREEZER).join(of("freezer:")).join("tasks"), pid);
        let frozen = Frozen { group, state: ("freezer.state", "THAWED"), home, around: None };
        write(&frozen.group.join("tasks"), &pid.to_string())?;
        write(&frozen.group.join("freezer.state"), "FROZEN")?;
        wait_for(&frozen.group.join("freezer.state"), "FROZEN")?;
        frozen
    } else {
        let root = unified().ok_or("the machine has no control groups, which freeze single threads")?;
        let (around, home) = (root.join(name), (root.join(of(":")).join("cgroup.procs"), pid));
        let group = around.join("thread");
        make(&around)?;
        let frozen = Frozen { group, state: ("cgroup.freeze", "0"), home, around: Some(around.clone()) };
        write(&around.join("cgroup.procs"), &pid.to_string())?;
        make(&frozen.group)?;
        write(&frozen.group.join("cgroup.type"), "threaded")?;
        write(&frozen.group.join("cgroup.threads"), &pid.to_string())?;
        write(&frozen.group.join("cgroup.freeze"), "1")?;
        wait_for(&frozen.group.join("cgroup.events"), "frozen 1")?;
        frozen
    };
    Ok(frozen)
}

/// The mount point of version 2.
fn unified() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' '));
    fields.find_map(|mut line| {
        let (_, place, kind) = (line.next()?, line.next()?, line.next()?);
        (kind == "cgroup2").then(|| place.into())
    })
}

fn make(group: &Path) -> Result<(), String> {
    lease::note(&Resource::ControlGroup(group))?;
    fs::create_dir(group).map_err(|e| format!("{}: {e}", group.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// A thread stops at its next return from the kernel, which on a busy processor may be some time away.
fn wait_for(path: &Path, line: &str) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let state = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        if state.lines().any(|is| is == line) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{}: no '{line}' within 10 s", path.display()))
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let (file, thawed) = self.state;
        let _ = fs::write(self.group.join(file), thawed);
        let (home, thread) = &self.home;
        let _ = fs::write(home, thread.to_string());
        thaw(&self.group);
        if let Some(around) = &self.around {
            thaw(around);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use std::process::{Command, Stdio};

    #[test]
    fn a_frozen_thread_does_not_run_and_then_goes_on() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // It ends when dropped: if the test fails, nobody who reads our output to its end waits for it.
        let mut busy = Command::new("sh");
        let mut busy = Process::spawn(busy.args(["-c", "while :; do :; done"]).stdin(Stdio::null())).unwrap();
        let ran_for = |busy: &Process, time: u64| {
            let before = busy.cpu_ns();
            std::thread::sleep(Duration::from_millis(time));
            busy.cpu_ns() - before
        };
        let frozen = first_thread(busy.id()).unwrap();
        let group = frozen.group.clone();
        assert_eq!(ran_for(&busy, 200), 0);
        drop(frozen);
        assert!(ran_for(&busy, 1_000) > 0 && !group.exists());
        // A run that is killed leaves it frozen; the run that finds the note thaws it.
        std::mem::forget(first_thread(busy.id()).unwrap());
        busy.0.kill().unwrap();
        assert!(thaw(&group));
    }
}
