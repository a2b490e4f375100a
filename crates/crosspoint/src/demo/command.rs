//! Commands: shown as a user would type them, then run.
//!
//! The word `crosspoint` means this binary. Children run in their own process groups, so that Ctrl-C reaches
//! only the demo, which then ends them in order; long-lived ones end with the demo, however it ends.

use super::error::DemoError;
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The switch's run directory, and its database's. Below /run, where only root makes names.
pub const RUN_DIR: &str = "/run/cp-demo";

/// How often a wait looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a child that was asked to end may take.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Stages of the demo.
const STAGES: u32 = 8;

/// Runs commands, and shows them.
pub struct Shell {
    exe: PathBuf,
    stop: Arc<AtomicBool>,
    stage: Cell<u32>,
}

impl Shell {
    /// `stop` is set when the demo should end.
    pub fn new(stop: Arc<AtomicBool>) -> Result<Shell, DemoError> {
        let exe = std::env::current_exe()
            .map_err(|e| DemoError::new(format!("cannot find this program's file: {e}")))?;
        Ok(Shell { exe, stop, stage: Cell::new(0) })
    }

    /// Says how to read what follows.
    pub fn introduce(&self) {
        println!("Each command that follows can be typed; crosspoint stands for {}", self.exe.display());
        println!("   $ export OVS_RUNDIR={RUN_DIR} OVS_DBDIR={RUN_DIR}");
    }

    /// The stock program with that name if it is installed, else this binary's own.
    pub fn stock_or_own(&self, stock: &'static str, own: &'static str) -> &'static str {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = std::env::split_paths(&path).any(|dir| dir.join(stock).is_file());
        if is_there { stock } else { own }
    }

    /// Announces a stage.
    pub fn stage(&self, what: &str) {
        self.stage.set(self.stage.get() + 1);
        println!("\n== {}/{STAGES} {what}", self.stage.get());
    }

    /// Shows a command.
    pub fn show(&self, command: &str) {
        println!("   $ {command}");
    }

    /// Shows a result.
    pub fn say(&self, line: &str) {
        println!("   {line}");
    }

    /// `Err` once the demo should end.
    pub fn check(&self) -> Result<(), DemoError> {
        if self.stop.load(Ordering::Relaxed) { Err(DemoError::Interrupted) } else { Ok(()) }
    }

    /// Sleeps for one iteration of a polling loop.
    pub fn nap(&self) -> Result<(), DemoError> {
        self.check()?;
        std::thread::sleep(LOOK_EVERY);
        Ok(())
    }

    /// Shows a command and runs it to its end. Returns what it printed.
    pub fn run(&self, command: &str) -> Result<String, DemoError> {
        self.show(command);
        self.run_quietly(command)
    }

    /// Runs a command to its end. Returns what it printed.
    pub fn run_quietly(&self, command: &str) -> Result<String, DemoError> {
        self.finish(self.spawn(command)?)
    }

    /// Starts a command. Its standard input stays open until [`Shell::finish`] or its end.
    pub fn spawn(&self, command: &str) -> Result<Child, DemoError> {
        let (reader, writer) = std::io::pipe()?;
        let mut child =
            self.spawn_with(command, Stdio::piped(), (writer.try_clone()?.into(), writer.into()))?;
        child.output = Some(Lines::of(reader));
        Ok(child)
    }

    /// Starts a command whose output goes to a file.
    pub fn spawn_logging(&self, command: &str, log: File) -> Result<Child, DemoError> {
        self.spawn_with(command, Stdio::null(), (log.try_clone()?.into(), log.into()))
    }

    fn spawn_with(
        &self,
        command: &str,
        stdin: Stdio,
        (stdout, stderr): (Stdio, Stdio),
    ) -> Result<Child, DemoError> {
        self.check()?;
        let mut guarded = Command::new(&self.exe);
        guarded.args(["demo-traffic", "guard", "--parent"]).arg(std::process::id().to_string()).arg("--");
        for word in command.split_whitespace() {
            if word == "crosspoint" {
                guarded.arg(&self.exe)
            } else {
                guarded.arg(word)
            };
        }
        guarded.env("OVS_RUNDIR", RUN_DIR).env("OVS_DBDIR", RUN_DIR);
        guarded.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
        let inner = guarded.spawn().map_err(|e| DemoError::new(format!("{}: {e}", self.exe.display())))?;
        Ok(Child { inner, command: command.into(), output: None, seen: String::new() })
    }

    /// Closes a command's standard input and waits for its end. Returns what it printed and was not read yet;
    /// the error has all that it printed.
    pub fn finish(&self, mut child: Child) -> Result<String, DemoError> {
        drop(child.inner.stdin.take());
        let status = loop {
            match child.inner.try_wait()? {
                Some(status) => break status,
                None => self.nap()?,
            }
        };
        let text = child.output.take().map(|lines| lines.rest()).unwrap_or_default();
        if status.success() {
            return Ok(text);
        }
        Err(DemoError::new(format!("{}: {status}\n{}{}", child.command, child.seen, text.trim_end())))
    }
}

/// A child process. Killed when dropped.
pub struct Child {
    inner: std::process::Child,
    command: String,
    output: Option<Lines>,
    /// Lines that were read while it ran.
    seen: String,
}

impl Child {
    /// Its process number. The guard becomes the command, so it is the command's too.
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> Result<bool, DemoError> {
        Ok(self.inner.try_wait()?.is_none())
    }

    /// The next line of its output; `None` if there is none yet.
    pub fn line(&mut self) -> Option<String> {
        let line = self.output.as_ref()?.lines.try_recv().ok()?;
        self.seen += &line;
        self.seen.push('\n');
        Some(line)
    }

    /// Asks it to end, and waits. If it takes too long, it is killed.
    pub fn terminate(mut self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.inner.try_wait(), pid) {
            // It has not been waited for, so its process id has not been reused.
            let _ = kill_process(pid, Signal::TERM);
        }
        let start = Instant::now();
        while matches!(self.inner.try_wait(), Ok(None)) && start.elapsed() < END_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

/// What a child prints, read by a thread so that no pipe fills up.
struct Lines {
    lines: Receiver<String>,
}

impl Lines {
    fn of(reader: PipeReader) -> Lines {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Lines { lines }
    }

    /// The lines that are left, once the child has ended.
    fn rest(&self) -> String {
        self.lines.iter().map(|line| line + "\n").collect()
    }
}
