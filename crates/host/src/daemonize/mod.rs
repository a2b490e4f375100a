//! What all daemons have in common: `--detach`, `--pidfile`, `--monitor`, `--user`, the log's options, with
//! Open vSwitch's semantics and texts.
//!
//! Going to the background is done by starting this program again, not by forking it: the parent waits on a
//! pipe until the child says that it serves, so that `--detach` returns when the pid file is there and
//! sockets answer. The child knows its part from the environment, and the pipe is its standard input. All of
//! it happens in [`Options::begin`], before the program has any other thread.
//!
//! ```text
//! first ──starts──► daemon                       (--detach)
//! first ──starts──► monitor ──starts──► daemon   (--detach --monitor)
//! monitor ──starts──► daemon                     (--monitor)
//! ```
//!
//! A daemon calls [`Options::begin`] once its options are read, and [`Daemon::complete`] when it serves.

mod monitor;
mod outputs;
mod pid_file;
mod stage;
mod user;

pub use outputs::{Kept, fatal};
pub use pid_file::{PidFile, PidFileError, pid_of_running, remove_own_pid_files};
pub use stage::{describe, signal_name};

use crate::getopt::{Opt, flag, optional, value};
use crate::log::{self, Change, SyslogMethod};
use crate::{program, rundir::RunDir};
use stage::{Ready, Stage};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use user::User;

/// Options of every daemon.
pub const DAEMON: &[Opt] = &[
    flag("detach").help("run in the background; return once the daemon serves"),
    flag("no-self-confinement").help("accepted for compatibility: the daemon is never confined"),
    flag("no-chdir").help("with --detach, stay in the current directory"),
    optional("pidfile").arg("FILE").help("write a pid file (default: {run}/{name}.pid)"),
    flag("overwrite-pidfile").help("start even if another process holds the pid file"),
    flag("monitor").help("restart the daemon if it crashes"),
    value("user").arg("USER[:GROUP]").help("give up root and run as this user"),
];

/// Options of every program that logs.
pub const LOGGING: &[Opt] = &[
    optional("verbose").short('v').arg("SPEC").help(
        "set log levels: [MODULE][:DESTINATION][:LEVEL], or PATTERN:DESTINATION:PATTERN; everything without SPEC",
    ),
    optional("log-file").arg("FILE").help("log to a file too (default: {log}/{name}.log)"),
    value("syslog-method")
        .arg("METHOD")
        .help("how messages reach the system log: libc, unix:FILE, udp:IP:PORT or null (default: $OVS_SYSLOG_METHOD, or libc)"),
    value("syslog-target").arg("HOST:PORT").help("also send system log messages to this collector over UDP"),
];

/// The values of the options in [`DAEMON`] and [`LOGGING`].
#[derive(Debug)]
pub struct Options {
    detach: bool,
    monitor: bool,
    chdir: bool,
    pid_file: Option<PathBuf>,
    overwrite_pid_file: bool,
    user: Option<User>,
    /// The log file's name as it was given, if it was, and its path.
    log_file: Option<(String, PathBuf)>,
    datapath: bool,
    kept: Kept,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            detach: false,
            monitor: false,
            chdir: true,
            pid_file: None,
            overwrite_pid_file: false,
            user: None,
            log_file: None,
            datapath: false,
            kept: Kept::Nothing,
        }
    }
}

impl Options {
    /// Options of a daemon that forwards packets: as another user it keeps the necessary capabilities.
    pub fn with_datapath() -> Options {
        Options { datapath: true, ..Options::default() }
    }

    /// Handles an option if it is one of [`DAEMON`] or [`LOGGING`]; false if it is another option. Levels and
    /// patterns take effect at once. The error ends the program.
    pub fn take(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let given = value.unwrap_or_default();
        match name {
            "detach" => self.detach = true,
            "monitor" => self.monitor = true,
            "no-chdir" => self.chdir = false,
            // It would confine the daemon to certain directories; ours opens any path that it is given.
            "no-self-confinement" => {}
            "pidfile" => self.pid_file = Some(pid_path(given)),
            "overwrite-pidfile" => self.overwrite_pid_file = true,
            "user" => self.user = Some(User::parse(given)?),
            "log-file" => self.log_file = Some((given.into(), log_path(given))),
            "verbose" => verbose(value)?,
            "syslog-method" => log::set_syslog_method(SyslogMethod::parse(given)?),
            "syslog-target" => log::set_syslog_target(given),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a pid file at its usual place if no option says another: for `crosspoint switch`, which always
    /// has one.
    pub fn always_with_pid_file(&mut self, path: PathBuf) {
        self.pid_file.get_or_insert(path);
    }

    /// Keeps an output in the background.
    pub fn keep(&mut self, output: Kept) {
        self.kept = output;
    }

    /// Whether the daemon will go to the background.
    pub fn detaches(&self) -> bool {
        self.detach
    }

    /// Becomes the daemon, in another process if it detaches or is monitored. An exit code: this process has
    /// done its part. Errors are reported on stderr and in the log.
    pub fn begin(self) -> Result<Daemon, ExitCode> {
        log::start();
        match stage::of_this_process() {
            Stage::First if self.detach => Err(stage::start_in_background(self.monitor)),
            Stage::First if self.monitor => Err(self.run_monitor(Ready::nobody())),
            Stage::Monitor(ready) => Err(self.run_monitor(ready)),
            Stage::First => self.become_daemon(Ready::nobody(), None, false),
            Stage::Daemon(ready, memory) => {
                let monitored = self.monitor;
                self.become_daemon(ready, memory, monitored)
            }
        }
    }

    /// Opens the log file, if options ask for one; returns it. The error is a sentence, and the end of the
    /// program. Without a file at the usual place (its disk is full or read-only) the program runs, as Open
    /// vSwitch's do.
    pub fn open_log(&self) -> Result<Option<&Path>, String> {
        let Some((given, path)) = &self.log_file else { return Ok(None) };
        // That user may own the directory. A link there could lead root, who opens the file, to any file.
        if self.user.is_some() {
            log::follow_no_link();
        }
        let Err(error) = log::open_file(path) else { return Ok(Some(path)) };
        let why = log::os_text(&error);
        if !given.is_empty() {
            return Err(format!("failed to open {given} for logging: {why}"));
        }
        log::open_file_later(path);
        tracing::warn!(target: "vlog", "failed to open {} for logging: {why}", path.display());
        Ok(None)
    }

    fn run_monitor(self, ready: Ready) -> ExitCode {
        if self.detach {
            stage::lead_a_session();
        }
        if let Some((_, path)) = &self.log_file {
            // The daemon says what is wrong with it.
            if self.user.is_some() {
                log::follow_no_link();
            }
            let _ = log::open_file_quietly(path);
        }
        monitor::run(ready, self.detach, self.kept)
    }

    fn become_daemon(self, ready: Ready, memory: Option<File>, monitored: bool) -> Result<Daemon, ExitCode> {
        if self.detach && !monitored {
            stage::lead_a_session();
        }
        stage::name_this_process(program::name());
        stage::end_on_panic();
        // A file that reaches the limit of its size (`ulimit -f`) is an error of writing, and not the end. It
        // cannot fail for a signal that may be caught.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
        let log = self.open_log().map_err(|e| fatal("vlog", &e))?;
        if self.detach || monitored {
            ports::crash::end_at_once();
        }
        if let Some(user) = &self.user {
            if let Some(path) = log {
                // That user must be able to reopen it.
                user.give_file(path).map_err(|e| fatal("vlog", &e))?;
            }
            user.become_it(self.datapath).map_err(|e| fatal("daemon_unix", &e))?;
        }
        let pid_file = match &self.pid_file {
            Some(path) => {
                let made = PidFile::create(path, self.overwrite_pid_file);
                Some(made.map_err(|e| fatal("daemon_unix", &e.to_string()))?)
            }
            None => None,
        };
        let (detached, kept) = (self.detach, self.kept);
        Ok(Daemon { ready, detached, chdir: self.chdir && detached, kept, pid_file, memory })
    }
}

/// A daemon that starts up, then runs. Its pid file goes when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    ready: Ready,
    detached: bool,
    chdir: bool,
    kept: Kept,
    #[expect(dead_code, reason = "removes the file when dropped")]
    pid_file: Option<PidFile>,
    memory: Option<File>,
}

impl Daemon {
    /// A daemon without any of the options: for tests and embedding.
    pub fn plain() -> Daemon {
        Daemon {
            ready: Ready::nobody(),
            detached: false,
            chdir: false,
            kept: Kept::Nothing,
            pid_file: None,
            memory: None,
        }
    }

    /// A file that outlives the daemon as long as its monitor lives, empty at the first start. `None`: it has
    /// no monitor.
    pub fn memory(&mut self) -> Option<File> {
        self.memory.take()
    }

    /// Reports that it is ready: leaves the terminal and the starting directory, and lets `--detach` return.
    /// A second call does nothing.
    pub fn complete(&mut self) {
        if std::mem::take(&mut self.chdir) {
            let _ = std::env::set_current_dir("/");
        }
        if std::mem::take(&mut self.detached) {
            stage::leave_terminal(self.kept);
        }
        self.ready.tell();
    }
}

fn verbose(spec: Option<&str>) -> Result<(), String> {
    let change = match spec {
        Some(text) => Change::parse(text).map_err(|e| format!("processing \"{text}\": {e}"))?,
        None => Change::parse("any:any:dbg")?,
    };
    log::apply(&change);
    Ok(())
}

/// The default of `--pidfile`, and a name without a directory, are in the run directory.
fn pid_path(given: &str) -> PathBuf {
    match given {
        "" => RunDir::from_env().file(&format!("{}.pid", program::daemon_name())),
        name => absolute(&RunDir::from_env().path().join(name)),
    }
}

/// The default of `--log-file` is in the log directory; any other name is that of the file.
fn log_path(given: &str) -> PathBuf {
    match given {
        "" => program::log_directory().join(format!("{}.log", program::daemon_name())),
        name => absolute(Path::new(name)),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_tables_are_taken_and_others_are_left() {
        for opt in DAEMON.iter().chain(LOGGING) {
            let value = match opt.name {
                "user" => Some("root"),
                "verbose" => Some("bridge:file:info"),
                "syslog-method" => Some("libc"),
                "syslog-target" => Some("127.0.0.1:1"),
                _ => None,
            };
            assert_eq!(Options::default().take(opt.name, value), Ok(true), "{}", opt.name);
        }
        let mut options = Options::default();
        assert_eq!(options.take("remote", Some("x")), Ok(false));
        assert_eq!(
            options.take("verbose", Some("nonesuch")).unwrap_err(),
            "processing \"nonesuch\": no destination, level, or module \"nonesuch\""
        );
        assert!(options.take("user", Some("no-such-user")).unwrap_err().contains("no-such-user"));
    }

    #[test]
    fn pid_files_are_in_the_run_directory_and_log_files_where_their_names_say() {
        assert_eq!(pid_path("/x/y.pid"), Path::new("/x/y.pid"));
        assert!(pid_path("y.pid").ends_with("y.pid") && pid_path("y.pid").is_absolute());
        assert_eq!(log_path(""), program::log_directory().join("crosspoint.log"));
        assert_eq!(log_path("x.log"), std::env::current_dir().unwrap().join("x.log"));
    }
}
