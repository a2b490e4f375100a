//! What a test needs to run programs: a directory of their own, namespaces, processes that end with the test,
//! and one way to wait.
//!
//! Everything goes with its value, also when the test fails. Nothing here is waited for by a fixed sleep:
//! [`wait_for`] looks until it is so.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest that anything may take on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The schema of Open vSwitch's configuration, of Debian's package openvswitch-switch.
pub const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Waits until something is so; panics with its name after [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, done: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, done);
}

/// Waits as [`wait_for`] does, for `longest`.
#[track_caller]
pub fn wait_within(longest: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    // What comes soon is seen soon; what takes long is not asked for a thousand times.
    let mut pause = Duration::from_millis(1);
    while !done() {
        assert!(Instant::now() < end, "waited {longest:?} in vain for {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Something that accepts connections.
pub trait Listener {
    /// One end of a connection.
    type Stream;

    /// A pending connection; `WouldBlock` if there is none. The listener does not block from then on.
    fn try_accept(&self) -> std::io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn try_accept(&self) -> std::io::Result<TcpStream> {
        self.set_nonblocking(true)?;
        self.accept().map(|(stream, _)| stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn try_accept(&self) -> std::io::Result<UnixStream> {
        self.set_nonblocking(true)?;
        self.accept().map(|(stream, _)| stream)
    }
}

/// Waits for a connection.
#[track_caller]
pub fn accept<L: Listener>(listener: &L) -> L::Stream {
    let mut come = None;
    wait_for("a connection", || {
        come = match listener.try_accept() {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => None,
            other => Some(other.unwrap()),
        };
        come.is_some()
    });
    come.expect("it was waited for")
}

/// A TCP port of this machine on which nothing listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a signal, such as `TERM`, to a process that the test has started.
#[track_caller]
pub fn kill(signal: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -s {signal} {pid}: {status}");
}

/// What a program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// On standard output.
    pub out: String,
    /// On standard error.
    pub err: String,
    /// None if a signal ended it.
    pub code: Option<i32>,
}

impl Said {
    /// Whether it ended with 0.
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Its standard output; panics if it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Both outputs; panics if it did not fail.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.code, Some(0), "{self:?}");
        self.out + &self.err
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).expect("programs speak UTF-8");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Longest that a program may take whose end is waited for.
const LONGEST_RUN: Duration = Duration::from_secs(300);

/// Runs a command to its end; panics if that does not come. It reads what the command says, by default what
/// the test reads.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    crate::watch::this_test();
    run_within(LONGEST_RUN, command)
}

#[track_caller]
fn run_within(longest: Duration, command: &mut Command) -> Said {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("{command:?}: {e} (is its package installed?)"));
    let pid = child.id();
    let (sender, ended) = std::sync::mpsc::channel();
    // A thread of its own, which nobody waits for: what the program has started may keep its outputs open.
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(longest) {
        Ok(output) => output.unwrap().into(),
        Err(_) => {
            kill("KILL", pid);
            panic!("{command:?} has not ended after {longest:?}");
        }
    }
}

/// Runs a line of words to its end.
#[track_caller]
pub fn try_run_line(line: &str) -> Said {
    let words: Vec<&str> = line.split_whitespace().collect();
    run(Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()))
}

/// Runs a line of words to its end; panics if it fails.
#[track_caller]
pub fn run_line(line: &str) -> String {
    let said = try_run_line(line);
    assert!(said.succeeded(), "{line}: {said:?}");
    said.out
}

/// A child process, killed by its id with the value.
pub struct Process(Child);

impl Process {
    /// Starts a program that reads nothing and says nothing.
    #[track_caller]
    pub fn silent(command: &mut Command) -> Process {
        Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts a program that reads nothing and appends what it says to a file.
    #[track_caller]
    pub fn logged(command: &mut Command, log: impl AsRef<Path>) -> Process {
        let log = appended(log.as_ref());
        Process::start(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log))
    }

    /// Starts a program with the standard streams that its command has.
    #[track_caller]
    pub fn start(command: &mut Command) -> Process {
        Process(command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e} (is its package installed?)")))
    }

    /// Waits for its end, which must come within [`LONGEST_RUN`].
    #[track_caller]
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        wait_within(LONGEST_RUN, "the end of a program", || !matches!(self.0.try_wait(), Ok(None)));
        self.0.wait()
    }

    /// Sends a signal, such as `TERM`, and waits for the end.
    #[track_caller]
    pub fn end_by(mut self, signal: &str) -> ExitStatus {
        kill(signal, self.id());
        self.wait().unwrap()
    }
}

impl From<Child> for Process {
    fn from(child: Child) -> Process {
        Process(child)
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn appended(file: &Path) -> File {
    File::options().append(true).create(true).open(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// A network namespace with `lo` up, so that device names cannot clash. Needs root.
pub struct Namespace(String);

/// Panics if the test was started by a user who is not root.
#[track_caller]
fn need_root(uid: u32) {
    assert_eq!(uid, 0, "this test makes network namespaces: run it as root (the user's id is {uid})");
}

/// A new one.
#[track_caller]
pub fn namespace() -> Namespace {
    crate::watch::this_test();
    need_root(std::fs::metadata("/proc/self").expect("/proc is mounted").uid());
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("lab-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    run_line(&format!("ip netns add {name}"));
    let namespace = Namespace(name);
    namespace.ip("link set lo up");
    namespace
}

impl Namespace {
    /// As `ip netns` and `ip link … netns` know it.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// `ip` within it, words separated by blanks.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        run_line(&format!("ip -n {} {words}", self.0))
    }

    /// A command within it. Its process replaces that of `nsenter`, so its id is the child's.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0)).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a line of words within it; panics if it fails.
    #[track_caller]
    pub fn run(&self, line: &str) -> String {
        self.try_run(line).ok()
    }

    /// Runs a line of words within it.
    #[track_caller]
    pub fn try_run(&self, line: &str) -> Said {
        let words: Vec<&str> = line.split_whitespace().collect();
        run(self.command(words[0]).args(&words[1..]))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What fails here shows in the next `ip netns`.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A directory in which programs find their sockets, databases and logs: `OVS_RUNDIR` and the like. If the
/// test fails, the logs in it are printed before it goes.
pub struct RunDir(tempfile::TempDir);

impl Drop for RunDir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for entry in self.path().read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "log" || name.ends_with(".log") {
                eprintln!("{name}:\n{}", self.read(&name));
            }
        }
    }
}

/// An empty one.
pub fn run_dir() -> RunDir {
    crate::watch::this_test();
    RunDir(tempfile::Builder::new().prefix("crosspoint-lab-").tempdir().unwrap())
}

impl RunDir {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// The text of a file in it; nothing if it is not there yet.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The file `log` in it, to append to.
    pub fn log(&self) -> File {
        appended(&self.file("log"))
    }

    /// A program that works in this directory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.lead(&mut command);
        command
    }

    /// Leads a command, such as one in a namespace, to this directory.
    pub fn lead<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"] {
            command.env(variable, self.path());
        }
        command.current_dir(self.path()).stdin(Stdio::null())
    }

    /// Runs a program to its end.
    #[track_caller]
    pub fn run(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Said {
        run(self.command(program).args(args))
    }

    /// The connection method of the database in it.
    pub fn database(&self) -> String {
        format!("unix:{}", self.file("db.sock").display())
    }

    /// Serves `conf.db`, which is made if it is not there, by the stock `ovsdb-server` on `db.sock`.
    #[track_caller]
    pub fn serve_database(&self) -> Process {
        if !self.file("conf.db").exists() {
            self.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).ok();
        }
        let mut server = self.command("ovsdb-server");
        server.args(["conf.db", "--remote=punix:db.sock", "--unixctl=server.ctl", "--no-chdir"]);
        let server = Process::logged(&mut server, self.file("server.log"));
        wait_for("the database", || crate::listens(self.file("db.sock")));
        server
    }

    /// `ovs-vsctl` on the database in it, words separated by blanks; what it says, without the last line
    /// feed. The database is that of [`Self::serve_database`], or of a switch without flags for bridges and
    /// ports.
    #[track_caller]
    pub fn vsctl(&self, words: &str) -> String {
        assert!(
            self.file("db.sock").exists(),
            "ovs-vsctl {words}: nobody serves a database here. A switch does so if it is started without \
             --bridge, --port and a database's address; `serve_database` starts a server of its own."
        );
        let said = self.try_vsctl(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(said.code, Some(0), "ovs-vsctl {words}: {said:?}");
        said.out.trim_end().to_owned()
    }

    /// The same, for arguments with blanks in them and for commands that fail.
    pub fn try_vsctl(&self, args: &[&str]) -> Said {
        let db = format!("--db={}", self.database());
        self.run("ovs-vsctl", &[&[db.as_str(), "--timeout=60"], args].concat())
    }

    /// The stock `ovs-appctl` to the switch in it.
    #[track_caller]
    pub fn appctl(&self, args: &[&str]) -> Said {
        self.run("ovs-appctl", args)
    }

    /// The stock `ovs-ofctl` to the bridges in it.
    #[track_caller]
    pub fn ofctl(&self, args: &[&str]) -> Said {
        self.run("ovs-ofctl", args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "has not ended after 10ms")]
    fn a_program_that_never_ends_fails_its_test() {
        run_within(Duration::from_millis(10), Command::new("sleep").arg("1000"));
    }

    #[test]
    #[should_panic(expected = "run it as root (the user's id is 65534)")]
    fn who_may_not_make_namespaces_is_told_so() {
        need_root(65534);
    }

    #[test]
    #[should_panic(
        expected = "nobody serves a database here. A switch does so if it is started without --bridge"
    )]
    fn a_run_directory_without_a_database_says_what_serves_one() {
        run_dir().vsctl("get interface p1 status");
    }
}
