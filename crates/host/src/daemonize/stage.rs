//! The processes of one daemon: which of them this is, how it starts the next, and how one tells the other
//! that it is ready.

use super::outputs::{Kept, fatal, silence_console};
use crate::log::{self, os_text};
use crate::program;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

/// Tells a process that this program started its role, `monitor` or `daemon`, with the number of the sender,
/// so that a program started by the daemon does not mistake it for its own. A monitor adds the descriptor of
/// its memory file.
const VARIABLE: &str = "CROSSPOINT_STAGE";

/// The role of this process.
#[derive(Debug)]
pub enum Stage {
    /// The one that the user started.
    First,
    /// The process that watches the daemon, and the process that it notifies.
    Monitor(Ready),
    /// The daemon, the process that it notifies, and the file that its monitor keeps for it.
    Daemon(Ready, Option<File>),
}

/// Reads the parent's message.
pub fn of_this_process() -> Stage {
    let Ok(text) = std::env::var(VARIABLE) else { return Stage::First };
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    let mut words = text.splitn(3, ':');
    let (Some(part), Some(pid), Some(parent)) = (words.next(), words.next(), parent) else {
        return Stage::First;
    };
    if pid != parent {
        return Stage::First;
    }
    match part {
        "monitor" => Stage::Monitor(Ready::of_parent()),
        "daemon" => Stage::Daemon(Ready::of_parent(), words.next().and_then(|fd| memory_of(pid, fd))),
        _ => Stage::First,
    }
}

/// A file that lives as long as its monitor, for what a daemon wants to know when it is started again.
pub fn new_memory() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("monitored", flags)?.into())
}

/// The one of this process's monitor.
fn memory_of(pid: &str, descriptor: &str) -> Option<File> {
    File::options().read(true).write(true).open(format!("/proc/{pid}/fd/{descriptor}")).ok()
}

/// The process that waits for this one to be ready.
#[derive(Debug)]
pub struct Ready(Option<File>);

impl Ready {
    /// No process.
    pub fn nobody() -> Ready {
        Ready(None)
    }

    /// The parent, over the pipe that is our standard input.
    fn of_parent() -> Ready {
        let pipe = io::stdin().as_fd().try_clone_to_owned().ok().map(File::from);
        // A pipe that stays open elsewhere would keep the parent waiting after our end.
        let _ = replace_stdin();
        Ready(pipe)
    }

    /// Tells it.
    pub fn tell(&mut self) {
        if let Some(mut pipe) = self.0.take() {
            let _ = pipe.write_all(b"1");
        }
    }
}

fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

fn replace_stdin() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(null()?)?)
}

/// A process that was started, until it is ready or gone.
pub struct Starting {
    pub child: Child,
    pipe: io::PipeReader,
}

/// Starts this program again, with its arguments, as another stage.
pub fn start(part: &str, memory: Option<&File>) -> io::Result<Starting> {
    let (reader, writer) = io::pipe()?;
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let memory = memory.map(|file| format!(":{}", file.as_raw_fd())).unwrap_or_default();
    let child = Command::new("/proc/self/exe")
        .arg0(name)
        .args(args)
        .env(VARIABLE, format!("{part}:{}{memory}", std::process::id()))
        .stdin(Stdio::from(writer))
        .spawn()?;
    Ok(Starting { child, pipe: reader })
}

impl Starting {
    /// Waits until it reports that it is ready; returns its exit status if it ends first.
    pub fn wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut byte = [0];
        loop {
            match self.pipe.read(&mut byte) {
                Ok(0) => return self.child.wait().map(Some),
                Ok(_) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Starts monitor or daemon, and waits until the daemon serves.
pub fn start_in_background(monitored: bool) -> ExitCode {
    let part = if monitored { "monitor" } else { "daemon" };
    let ended = start(part, None).and_then(|mut starting| starting.wait());
    match ended {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(status)) => convey(status),
        Err(e) => fatal("daemon_unix", &format!("could not start the daemon ({})", os_text(&e))),
    }
}

/// The exit code for a process that ended before it was ready. It has reported the reason itself, unless a
/// signal ended it.
pub fn convey(status: ExitStatus) -> ExitCode {
    match status.code() {
        Some(code) if code != 0 => ExitCode::from(code.clamp(1, 255) as u8),
        _ => {
            fatal("daemon_unix", &format!("fork child died before signaling startup ({})", describe(status)))
        }
    }
}

/// How a process ended, in Open vSwitch's words.
pub fn describe(status: ExitStatus) -> String {
    let core = if status.core_dumped() { ", core dumped" } else { "" };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}{core}"),
        (None, Some(signal)) => format!("killed ({}){core}", signal_name(signal)),
        _ => "status unknown".into(),
    }
}

/// The name of a signal in messages.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "Hangup",
        2 => "Interrupt",
        3 => "Quit",
        4 => "Illegal instruction",
        6 => "Aborted",
        7 => "Bus error",
        8 => "Floating point exception",
        9 => "Killed",
        11 => "Segmentation fault",
        13 => "Broken pipe",
        14 => "Alarm clock",
        15 => "Terminated",
        24 => "CPU time limit exceeded",
        25 => "File size limit exceeded",
        other => return format!("signal {other}"),
    };
    name.into()
}

/// Leaves the session of the process that started us, and with it the terminal.
pub fn lead_a_session() {
    // The only error is that we lead one already.
    let _ = rustix::process::setsid();
}

/// The name that `ps` and readers of `/proc/PID/comm` see.
pub fn name_this_process(name: &str) {
    let short: String = name.chars().take(15).collect();
    if let Ok(name) = CString::new(short) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Makes a panic in any thread end the process by a signal, after a last message in the log, since stderr may
/// be closed: a process that continued with one thread less would stop forwarding or answering. A monitor
/// restarts it.
pub fn end_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        log::emergency("daemon", &format!("{}: a bug, which ends the process: {panic}", program::name()));
        std::process::abort();
    }));
}

/// Nothing more comes from the terminal, or goes there but by the output that is kept.
pub fn leave_terminal(kept: Kept) {
    silence_console();
    let _ = null().and_then(|null| {
        rustix::stdio::dup2_stdin(&null)?;
        if !matches!(kept, Kept::Stdout | Kept::Both) {
            rustix::stdio::dup2_stdout(&null)?;
        }
        if !matches!(kept, Kept::Stderr | Kept::Both) {
            rustix::stdio::dup2_stderr(&null)?;
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_described_in_words() {
        let status = |raw| describe(ExitStatus::from_raw(raw));
        assert_eq!(status(3 << 8), "exit status 3");
        assert_eq!(status(11), "killed (Segmentation fault)");
        assert_eq!(status(6 | 0x80), "killed (Aborted), core dumped");
        assert_eq!(status(40), "killed (signal 40)");
    }

    /// Set in the process that is to panic.
    const VICTIM: &str = "CROSSPOINT_TEST_PANICS";

    #[test]
    fn a_panic_of_any_thread_ends_the_process_and_says_so() {
        if std::env::var_os(VICTIM).is_some() {
            end_on_panic();
            let thread = std::thread::spawn(|| panic!("something is wrong"));
            let _ = thread.join();
            std::process::exit(0);
        }
        let name = "daemonize::stage::tests::a_panic_of_any_thread_ends_the_process_and_says_so";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(VICTIM, "1");
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), Some(6), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("something is wrong"), "{said}");
    }
}
