//! Processes and directories that a benchmark needs for a while. Each belongs to the
//! [lease](crate::machine::lease) of its run.

use crate::machine::lease;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory that goes when dropped, or with the run's lease.
pub struct TempDir(pub PathBuf);

impl TempDir {
    /// A fresh one, which no one else may enter.
    pub fn new(name: &str) -> Result<TempDir, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = std::process::id();
        let place = lease::current().unwrap_or_else(std::env::temp_dir);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = place.join(format!("crosspoint-{name}-{id}-{n}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(TempDir(path)),
                // That of a process with the same id, which was killed.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Part of the error about a program that is not installed.
pub const MISSING: &str = " is missing: install ";

/// Programs that benchmarks start by their names, and Debian's packages with them.
const PACKAGES: &[(&str, &str)] = &[
    ("dpdk-testpmd", "dpdk-dev"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("ovs-appctl", "openvswitch-common"),
    ("ovs-ofctl", "openvswitch-common"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-common"),
    ("ovsdb-tool", "openvswitch-common"),
    ("tc", "iproute2"),
    ("valgrind", "valgrind"),
];

/// Why a program cannot be used that is not there.
pub fn missing(program: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    let package = PACKAGES.iter().find(|(known, _)| *known == name);
    format!("{name}{MISSING}{}", package.map_or("the package that has it", |(_, package)| package))
}

/// The error of a command that could not be started.
fn not_started(command: &Command, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => missing(&command.get_program().to_string_lossy()),
        _ => format!("{command:?}: {error}"),
    }
}

/// The program that `ip netns exec` did not find, according to its output.
fn not_found_within(said: &str) -> Option<&str> {
    said.strip_prefix("exec of \"")?.strip_suffix("\" failed: No such file or directory")
}

/// Runs a command to its end and returns its output; an error with that output if it failed.
pub fn run(command: &mut Command) -> Result<String, String> {
    lease::mark(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| not_started(command, &e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        return Err(match not_found_within(said) {
            Some(program) => missing(program),
            None => format!("{command:?}: {}: {said}", output.status),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A child that is ended (by its id) when dropped.
pub struct Process(pub Child);

impl Process {
    /// Starts a command.
    pub fn spawn(command: &mut Command) -> Result<Process, String> {
        lease::mark(command);
        command.spawn().map(Process).map_err(|e| not_started(command, &e))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), String> {
        self.0.kill().and_then(|()| self.0.wait()).map(drop).map_err(|e| e.to_string())
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_none())
    }

    fn signal(&self, signal: i32) {
        let pid = self.0.id().to_string();
        let _ = run(Command::new("kill").args([format!("-{signal}"), pid]));
    }

    /// Stops it from running at all.
    pub fn pause(&self) {
        self.signal(19);
    }

    /// Asks it to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(2);
    }

    /// Lets it run on.
    pub fn resume(&self) {
        self.signal(18);
    }

    /// CPU time of its thread whose name begins so, in nanoseconds.
    pub fn thread_cpu_ns(&self, name: &str) -> Option<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).ok()?;
        for task in tasks.flatten() {
            let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if comm.starts_with(name) {
                let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
                return stat.split_whitespace().next()?.parse().ok();
            }
        }
        None
    }

    /// CPU time of all its threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.0.id())) else { return 0 };
        let cpu = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.flatten().filter_map(cpu).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.resume();
        let _ = self.kill();
    }
}

/// Waits up to 10 s for a file to appear.
pub fn wait_for(path: &Path) -> Result<(), String> {
    wait_until(|| if path.exists() { Ok(()) } else { Err(format!("{} did not appear", path.display())) })
}

/// Waits up to 10 s for a socket at which somebody listens: it appears a moment before.
pub fn wait_for_listener(path: &Path) -> Result<(), String> {
    wait_until(|| UnixStream::connect(path).map(drop).map_err(|e| format!("{}: {e}", path.display())))
}

/// Tries until it succeeds, and for 10 s at most.
fn wait_until(mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(_) if start.elapsed() <= Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_is_waited_for_until_somebody_listens() {
        let dir = TempDir::new("listener").unwrap();
        let path = dir.0.join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && UnixStream::connect(&path).is_err());
        let (late, at) = (path.clone(), Duration::from_millis(60));
        let listener = std::thread::spawn(move || {
            std::thread::sleep(at);
            std::fs::remove_file(&late).unwrap();
            UnixListener::bind(&late).unwrap()
        });
        wait_for_listener(&path).unwrap();
        listener.join().unwrap();
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let why = missing("/usr/sbin/ethtool");
        assert_eq!(why, "ethtool is missing: install ethtool");
        let absent = || Command::new("no-such-program-of-crosspoint");
        let text = "no-such-program-of-crosspoint is missing: install the package that has it";
        assert_eq!(run(&mut absent()), Err(text.into()));
        assert_eq!(Process::spawn(&mut absent()).map(|_| ()), Err(text.into()));
        let said = "exec of \"ethtool\" failed: No such file or directory";
        assert_eq!(not_found_within(said), Some("ethtool"));
        assert_eq!(not_found_within("exec of \"ethtool\" failed: Permission denied"), None);
    }
}
