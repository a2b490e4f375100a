//! What all daemons have in common, on the real binary: going to the background, pid files, the monitor, the
//! log's destinations.

use crate::common::{Process, RunDir, Said, Switch, binary, kill, links, namespace, run_dir, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn switch(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["switch", "--bridge", "br0", "--pool-size", "4096"])
        .args(args)
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .stdin(Stdio::null());
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    switch(dir, args).output().unwrap()
}

fn appctl(dir: &Path, args: &[&str]) -> Output {
    Command::new("ovs-appctl").args(args).env("OVS_RUNDIR", dir).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn pid(dir: &Path) -> u32 {
    fs::read_to_string(dir.join("ovs-vswitchd.pid")).unwrap().trim().parse().unwrap()
}

fn is_alive(pid: u32) -> bool {
    // A zombie of a process that was started elsewhere is gone.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

/// Ends what a test has left in a directory.
struct Cleanup<'a>(&'a Path);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if self.0.join("ovs-vswitchd.pid").exists() {
            let pid = pid(self.0);
            kill("TERM", pid);
            wait_for("the daemon to end", || !is_alive(pid));
        }
    }
}

#[test]
fn detach_returns_when_it_serves_and_leaves_nothing_on_the_terminal() {
    let dir = run_dir();
    let _cleanup = Cleanup(dir.path());
    // `output` waits for the end of both pipes: a daemon that kept them open would hold it for ever.
    let started = run(dir.path(), &["--detach", "--log-file", "-vconsole:off"]);
    assert!(
        started.status.success() && started.stdout.is_empty() && started.stderr.is_empty(),
        "{started:?}"
    );
    assert!(appctl(dir.path(), &["version"]).status.success());
    let pid = pid(dir.path());
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let null = Path::new("/dev/null");
    assert!((0..3).all(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap() == null));
    let session: u32 = {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().parse().unwrap()
    };
    assert_eq!(session, pid, "it leads a session of its own");
    let log = fs::read_to_string(dir.path().join("ovs-vswitchd.log")).unwrap();
    assert!(log.lines().next().unwrap().contains("|00001|vlog|INFO|opened log file "), "{log}");

    let second = run(dir.path(), &["--detach", "-vconsole:off"]);
    assert_eq!(second.status.code(), Some(1));
    let expected = format!("ovs-vswitchd.pid: already running as pid {pid}, aborting\n");
    assert!(text(&second.stderr).ends_with(&expected), "{second:?}");
    assert_eq!(pid, self::pid(dir.path()));
}

#[test]
fn a_start_in_the_background_that_fails_says_why_and_with_which_code() {
    let dir = run_dir();
    for args in [&["--detach"][..], &["--detach", "--monitor"], &["--monitor"]] {
        let failed = run(dir.path(), &[args, &["--port", "p1,type=nonesuch", "-vconsole:off"]].concat());
        assert_eq!(failed.status.code(), Some(1), "{failed:?}");
        assert!(text(&failed.stderr).contains("unknown port type \"nonesuch\""), "{failed:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn the_monitor_starts_it_again_after_a_crash_and_ends_with_it_otherwise() {
    let dir = run_dir();
    let _cleanup = Cleanup(dir.path());
    // Both names are relative, and the daemon leaves the directory: the second one must find them again.
    fs::create_dir(dir.path().join("caps")).unwrap();
    let args = ["--detach", "--monitor", "--log-file=log", "--pcap-dir=caps", "-vconsole:off"];
    let started = switch(dir.path(), &args).current_dir(dir.path()).output().unwrap();
    assert!(started.status.success() && started.stderr.is_empty(), "{started:?}");
    let first = pid(dir.path());
    let monitor: u32 = {
        let stat = fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(fs::read_link(format!("/proc/{first}/cwd")).unwrap(), Path::new("/"));
    // The monitor's line, too, goes to the file that has the name now.
    fs::rename(dir.path().join("log"), dir.path().join("log.1")).unwrap();
    // One that the runtime catches, to look for the end of a stack.
    kill("SEGV", first);
    let crashed = Instant::now();
    wait_for("a second daemon", || {
        dir.path().join("ovs-vswitchd.pid").exists()
            && pid(dir.path()) != first
            && appctl(dir.path(), &["version"]).status.success()
    });
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(
        log.contains(&format!("|daemon_unix|ERR|1 crashes: pid {first} died, killed (Segmentation fault)")),
        "{log}"
    );
    // The next one would wait for ten seconds.
    assert!(crashed.elapsed() < Duration::from_secs(8), "{log}");
    let second = pid(dir.path());
    assert!(appctl(dir.path(), &["exit"]).status.success());
    wait_for("daemon and monitor to end", || !is_alive(second) && !is_alive(monitor));
    assert!(!dir.path().join("ovs-vswitchd.pid").exists());
}

#[test]
fn another_user_runs_it_and_owns_what_it_makes() {
    let dir = run_dir();
    let _cleanup = Cleanup(dir.path());
    assert!(Command::new("chown").arg("nobody").arg(dir.path()).status().unwrap().success());
    let started = run(dir.path(), &["--detach", "--user=nobody:nogroup", "--log-file", "-vconsole:off"]);
    assert!(started.status.success() && started.stderr.is_empty(), "{started:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", pid(dir.path()))).unwrap();
    let line = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_string();
    assert!(line("Uid:").split_whitespace().all(|uid| uid == "65534"), "{status}");
    let effective = u64::from_str_radix(&line("CapEff:"), 16).unwrap();
    // CAP_NET_ADMIN is kept, CAP_SYS_ADMIN and CAP_DAC_OVERRIDE are not.
    assert_eq!((effective >> 12 & 1, effective >> 21 & 1, effective >> 1 & 1), (1, 0, 0));
    // The log file is its own too: it opens a new one after a rotation.
    let log = dir.path().join("ovs-vswitchd.log");
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&fs::metadata(path).unwrap());
    assert_eq!(owner(&log), 65534);
    assert!(appctl(dir.path(), &["vlog/reopen"]).status.success());
    let wrong = run(dir.path(), &["--user=no-such-user"]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("user no-such-user not found"));
    // Whoever owns the directory could lead root to any file.
    fs::write(dir.path().join("roots"), "").unwrap();
    std::os::unix::fs::symlink("roots", dir.path().join("link")).unwrap();
    let link = format!("--log-file={}", dir.path().join("link").display());
    let led = run(dir.path(), &["--user=nobody:nogroup", &link, "-vconsole:off"]);
    assert!(!led.status.success() && text(&led.stderr).contains("Too many levels of symbolic"), "{led:?}");
    assert_eq!(fs::read_to_string(dir.path().join("roots")).unwrap(), "");
}

#[test]
fn root_too_keeps_only_the_capabilities_that_are_needed_if_it_is_named() {
    let dir = run_dir();
    let _cleanup = Cleanup(dir.path());
    let started = run(dir.path(), &["--detach", "--user=root", "-vconsole:off"]);
    assert!(started.status.success() && started.stderr.is_empty(), "{started:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", pid(dir.path()))).unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let effective = u64::from_str_radix(effective, 16).unwrap();
    assert_eq!((effective >> 12 & 1, effective >> 21 & 1, effective >> 1 & 1), (1, 0, 0), "{status}");
}

/// A stock database server, and `ovs-vswitchd` on it, in the background.
struct OnDatabase {
    dir: RunDir,
    _server: Process,
}

impl OnDatabase {
    fn start(options: &[&str]) -> OnDatabase {
        OnDatabase::start_after(&["--no-wait", "--timeout=30", "init"], options)
    }

    /// Once `ovs-vsctl` has run with arguments of `first`.
    fn start_after(first: &[&str], options: &[&str]) -> OnDatabase {
        let dir = run_dir();
        let server = dir.serve_database();
        let on = OnDatabase { dir, _server: server };
        on.run("ovs-vsctl", first).ok();
        let program = on.dir.file("ovs-vswitchd");
        std::os::unix::fs::symlink(binary(), &program).unwrap();
        let program = program.to_str().unwrap();
        let started = on.run(
            "timeout",
            &[&["60", program, "--detach", "--pidfile", "--log-file", "-vconsole:off"], options].concat(),
        );
        assert!(started.code == Some(0) && started.err.is_empty(), "{started:?}");
        on
    }

    fn run(&self, program: &str, args: &[&str]) -> Said {
        self.dir.run(program, args)
    }

    /// A bridge with a port of a type; what the port's column `error` says of it.
    fn port_error(&self, datapath_type: &str, kind: &str) -> String {
        let set = format!(
            "--may-exist add-br br0 -- set bridge br0 datapath_type={datapath_type} -- --if-exists \
             del-port nodev -- add-port br0 nodev -- set interface nodev type={kind}"
        );
        self.dir.vsctl(&set);
        self.dir.vsctl("get interface nodev error")
    }
}

impl Drop for OnDatabase {
    fn drop(&mut self) {
        drop(Cleanup(self.dir.path()));
    }
}

#[test]
fn detach_returns_before_the_database_has_its_first_row() {
    let on = OnDatabase::start_after(&["--version"], &["--enable-dummy"]);
    let empty = on.run("ovsdb-client", &["dump", "Open_vSwitch", "Open_vSwitch", "next_cfg"]);
    assert!(!empty.out.contains('0'), "{empty:?}");
    on.dir.vsctl("add-br br0");
    let datapath = on.dir.vsctl("get bridge br0 datapath_id");
    assert_ne!(datapath, "[]", "the switch waited in the background");
}

#[test]
fn dummy_devices_take_the_places_that_the_option_says() {
    // In the plain form only ports that ask for it are dummies; a kernel's device of that name there is none.
    for (option, datapath, is_dummy) in [
        ("--enable-dummy", "netdev", false),
        ("--enable-dummy=system", "netdev", true),
        ("--enable-dummy=override", "netdev", true),
    ] {
        let on = OnDatabase::start(&[option]);
        assert_eq!(on.port_error(datapath, "dummy"), "[]", "{option}");
        assert_eq!(on.port_error(datapath, "system") == "[]", is_dummy, "{option}");
    }
    let on = OnDatabase::start(&[]);
    assert_ne!(on.port_error("netdev", "dummy"), "[]", "without the option there are none");
}

#[test]
fn options_of_the_switch_that_change_little_do_what_they_say() {
    let dir = run_dir();
    let control = dir.path().join("elsewhere.ctl");
    let unixctl = format!("--unixctl={}", control.display());
    let on = OnDatabase::start(&[
        "--mlockall",
        "--dummy-numa=0,0,1,1",
        "--disable-system",
        "--disable-system-route",
        "--enable-dummy=override",
        &unixctl,
    ]);
    let version = on.run("ovs-appctl", &["-t", control.to_str().unwrap(), "version"]);
    assert!(version.out.starts_with("ovs-vswitchd (Open vSwitch)"), "{version:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", pid(on.dir.path()))).unwrap();
    let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:")).unwrap();
    assert_ne!(locked.split_whitespace().next(), Some("0"), "{status}");
    assert_eq!(on.port_error("netdev", "system"), "[]");
    on.run("ovs-appctl", &["-t", control.to_str().unwrap(), "exit"]).ok();
    wait_for("its end", || !control.exists() && !on.dir.file("ovs-vswitchd.pid").exists());
    let log = fs::read_to_string(on.dir.file("ovs-vswitchd.log")).unwrap();
    let worried = |line: &&str| ["|WARN|", "|ERR|", "|EMER|"].iter().any(|level| line.contains(level));
    assert_eq!(log.lines().find(worried), None);
}

#[test]
fn the_next_daemon_takes_a_pid_file_only_where_it_is_told_to() {
    let dir = run_dir();
    let _cleanup = Cleanup(dir.path());
    assert!(run(dir.path(), &["--detach", "-vconsole:off"]).status.success());
    let first = pid(dir.path());
    let elsewhere = run_dir();
    let file = format!("--pidfile={}", dir.path().join("ovs-vswitchd.pid").display());
    let refused = run(elsewhere.path(), &["--detach", "-vconsole:off", &file]);
    assert!(
        text(&refused.stderr).contains(&format!("already running as pid {first}, aborting")),
        "{refused:?}"
    );
    let taken = run(elsewhere.path(), &["--detach", "-vconsole:off", &file, "--overwrite-pidfile"]);
    assert!(taken.status.success() && taken.stderr.is_empty(), "{taken:?}");
    let second = pid(dir.path());
    assert!(second != first && is_alive(second));
    kill("TERM", first);
    wait_for("the first to end", || !is_alive(first));
    kill("TERM", second);
    wait_for("the second to end", || !is_alive(second));
}

#[test]
fn levels_patterns_and_destinations_follow_their_commands() {
    let dir = run_dir();
    let syslog_path = dir.path().join("syslog");
    let syslog = UnixDatagram::bind(&syslog_path).unwrap();
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = collector.local_addr().unwrap().to_string();
    let switch = Switch::start_in(
        dir,
        &[
            "--bridge",
            "br0",
            "-vFACILITY:local1",
            "--syslog-method",
            &format!("unix:{}", syslog_path.display()),
            "--syslog-target",
            &target,
        ],
    );
    let mut buffer = [0; 2048];
    let n = syslog.recv(&mut buffer).unwrap();
    let first = text(&buffer[..n]);
    // local1 is 17; INFO is 5, notice, as in Open vSwitch.
    assert!(first.starts_with("<141> ") && first.contains("crosspoint switch: ovs|00001|"), "{first}");
    let n = collector.recv(&mut buffer).unwrap();
    assert!(text(&buffer[..n]).starts_with("<141>1 20"));
    let said = |args: &[&str]| switch.appctl(args).ok();
    let count = |line: &str| switch.log().lines().filter(|l| l.starts_with(line)).count();
    assert!(said(&["vlog/list-pattern"]).contains("\nCONSOLE  none  "));
    // A peer that floods the log: each of its connections is ended with a warning.
    let socket = switch.dir.path().join(format!("ovs-vswitchd.{}.ctl", switch.pid()));
    let flood = |connections: usize| {
        for _ in 0..connections {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(b"]").unwrap();
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "it is not answered");
        }
    };
    let warned = || count("WARN-jsonrpc-unix: ");
    said(&["vlog/set", "PATTERN:console:%p-%c-%m", "unixctl:console:dbg"]);
    said(&["vlog/disable-rate-limit", "jsonrpc"]);
    flood(80);
    assert_eq!(warned(), 80);
    said(&["vlog/enable-rate-limit"]);
    flood(200);
    assert!((80..280).contains(&warned()), "{}", warned());
    // Who asks for DBG gets all of it.
    for _ in 0..80 {
        said(&["vlog/list"]);
    }
    assert!(count("DBG-unixctl-received request vlog/list") >= 80);
    for (args, error) in [
        (&["vlog/set", "FACILITY:x"][..], "invalid facility\n"),
        (&["vlog/set", "PATTERN:x:y"], "unknown destination \"x\"\n"),
        (&["vlog/disable-rate-limit", "nosuch"], "unknown module\n"),
        (&["vlog/reopen"], "Logging to file not configured\n"),
    ] {
        assert!(switch.appctl(args).failed().starts_with(error));
    }
}

/// The binary under another name, in a directory.
fn named(dir: &Path, name: &str) -> Command {
    let link = dir.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(binary(), &link).unwrap();
    }
    let mut command = Command::new(link);
    command.env("OVS_RUNDIR", dir).env("OVS_LOGDIR", dir).env("OVS_DBDIR", dir).stdin(Stdio::null());
    command
}

#[test]
fn of_many_that_start_at_once_one_survives_and_has_the_pid_file() {
    let dir = run_dir();
    let pid_file = dir.path().join("x.pid");
    let mut starts: Vec<std::process::Child> = (0..40)
        .map(|n| {
            let control = format!("--unixctl={}", dir.path().join(format!("{n}.ctl")).display());
            let pid_file = format!("--pidfile={}", pid_file.display());
            let mut command = named(dir.path(), "ovsdb-server");
            command
                .args(["--no-dbs", "-vconsole:off", &control, &pid_file])
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    wait_for("all but one to end", || {
        starts.iter_mut().map(|child| child.try_wait().unwrap()).filter(Option::is_none).count() == 1
    });
    let survivor = starts.iter_mut().find_map(|c| c.try_wait().unwrap().is_none().then(|| c.id())).unwrap();
    wait_for("the survivor's pid file", || pid_file.exists());
    assert_eq!(fs::read_to_string(&pid_file).unwrap().trim(), survivor.to_string());
    kill("TERM", survivor);
    for child in &mut starts {
        child.wait().unwrap();
    }
    assert!(!pid_file.exists());
}

#[test]
fn an_output_that_cannot_be_written_is_no_panic() {
    let dir = run_dir();
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    for name in
        ["ovs-appctl", "ovs-vsctl", "ovs-ofctl", "ovs-dpctl", "ovsdb-client", "ovsdb-tool", "ovsdb-server"]
    {
        let failed = named(dir.path(), name).arg("--nonesuch").stderr(full()).status().unwrap();
        assert_eq!(failed.code(), Some(1), "{name}: an error that nobody sees");
        let closed = named(dir.path(), name).arg("--version").stdout(full()).output().unwrap();
        assert_eq!(closed.status.code(), Some(1), "{name}: {closed:?}");
        assert!(text(&closed.stderr).contains("stdout: No space left on device"), "{name}: {closed:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let gone = named(dir.path(), name).arg("--version").stdout(writer).output().unwrap();
        assert!(gone.status.success() && gone.stderr.is_empty(), "{name}: {gone:?}");
    }
}

/// Command lines that print something and end, of every subcommand that has one.
const PRINTING: &str = "\
--help
--version
switch --help
check --help
top --help
guest --help
demo --help
bench --help
bench list
doctor --help
generate --help
vsctl --help
vsctl --commands
vsctl --options
appctl --help
dpctl --help
ovsdb-client --help
ovsdb-tool --help
ovsdb-server --help
ofctl --help
ofctl list-commands
ofctl parse-flow actions=1
ofctl ofp-print 0105000800000000
ofctl check-vlan 0 0
ofctl parse-key-value a=b";

#[test]
fn lost_output_of_any_command_is_an_error_and_a_reader_that_left_is_none() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    for line in PRINTING.lines() {
        let command = || {
            let mut command = Command::new(&ours);
            command.args(line.split(' ')).stdin(Stdio::null());
            command
        };
        check_that_it_prints(line, command);
        check_lost_output(line, command);
    }
}

#[track_caller]
fn check_that_it_prints(line: &str, command: impl Fn() -> Command) {
    let printed = command().output().unwrap();
    assert!(printed.status.success() && !printed.stdout.is_empty(), "{line}: {printed:?}");
}

#[track_caller]
fn check_lost_output(line: &str, command: impl Fn() -> Command) {
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let lost = command().stdout(full()).output().unwrap();
    assert_eq!(lost.status.code(), Some(1), "{line}: {lost:?}");
    assert!(text(&lost.stderr).contains("stdout: No space left on device"), "{line}: {lost:?}");
    let unsaid = command().stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(unsaid.code(), Some(1), "{line}: an error that nobody sees");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = command().stdout(writer).output().unwrap();
    assert!(gone.status.success() && gone.stderr.is_empty(), "{line}: {gone:?}");
}

/// Command lines that print something of a running switch with a bridge, ports, flows, a group, a meter and a
/// queue, and end.
const SHOWING: &str = "\
top --once
appctl version
appctl list-commands
appctl coverage/show
appctl dpif/show
appctl fdb/show br0
appctl ofproto/trace br0 in_port=1
appctl vlog/list
dpctl dump-dps
dpctl show
dpctl -s show
dpctl dump-flows
ofctl show br0
ofctl dump-desc br0
ofctl dump-tables br0
ofctl -O OpenFlow14 dump-table-features br0
ofctl -O OpenFlow14 dump-table-desc br0
ofctl dump-ports br0
ofctl dump-ports-desc br0
ofctl queue-stats br0
ofctl queue-get-config br0
ofctl get-frags br0
ofctl dump-flows br0
ofctl --names --stats dump-flows br0
ofctl --color=always dump-flows br0
ofctl dump-aggregate br0
ofctl -O OpenFlow13 dump-groups br0
ofctl -O OpenFlow13 dump-group-stats br0
ofctl -O OpenFlow13 dump-group-features br0
ofctl -O OpenFlow13 dump-meters br0
ofctl -O OpenFlow13 meter-stats br0
ofctl -O OpenFlow13 meter-features br0
ofctl dump-tlv-map br0
ofctl ping br0
ofctl benchmark br0 8 2
vsctl show
vsctl list-br
vsctl list-ports br0
vsctl list-ifaces br0
vsctl port-to-br p1
vsctl br-to-vlan br0
vsctl list Interface
vsctl -f json list Bridge
vsctl find Interface name=p1
vsctl get Interface p1 ofport
ovsdb-client list-dbs
ovsdb-client get-schema
ovsdb-client get-schema-version
ovsdb-client get-schema-cksum
ovsdb-client list-tables
ovsdb-client list-columns
ovsdb-client dump
ovsdb-client -f csv dump Open_vSwitch Interface name
ovsdb-client backup
ovsdb-client query [\"Open_vSwitch\"]
ovsdb-client transact [\"Open_vSwitch\",{\"op\":\"comment\",\"comment\":\"x\"}]
ovsdb-tool show-log conf.db
ovsdb-tool db-name conf.db
ovsdb-tool query conf.db [\"Open_vSwitch\"]
generate pages
generate names
generate completion bash ovs-vsctl";

/// Those that go on until their output is lost, or end with an exit code of their own.
const FOLLOWING: &str = "\
top --batch -d 0.1
check conf.db
ofctl monitor br0 watch:
ovsdb-client monitor Interface
ovsdb-client monitor-cond [true] Interface name
ovsdb-client monitor-cond-since [true] Interface name
ovsdb-client lock one";

#[test]
fn what_commands_show_of_a_running_switch_is_lost_without_a_panic_on_either_side() {
    let switch = Switch::start(&[]);
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy",
    );
    switch.add_flow("in_port=1,actions=NORMAL");
    switch.receive("p1", crate::common::UDP);
    for more in [["add-group", "group_id=1,type=all"], ["add-meter", "meter=1,kbps,band=type=drop,rate=9"]] {
        switch.ofctl(&["-O", "OpenFlow13", more[0], "br0", more[1]]).ok();
    }
    let command = |line: &str| {
        let mut command = switch.command(binary());
        command.args(line.split(' ')).stdin(Stdio::null()).current_dir(switch.dir.path());
        command
    };
    for line in SHOWING.lines() {
        check_that_it_prints(line, || command(line));
        check_lost_output(line, || command(line));
    }
    FOLLOWING.lines().for_each(|line| check_lost_output(line, || command(line)));
    assert!(!switch.log().contains("panicked"), "{}", switch.log());
    switch.appctl(&["version"]).ok();
}

#[test]
fn a_server_keeps_to_its_log_file_and_serves_the_operator_whoever_is_connected() {
    let dir = run_dir();
    let (control, log) = (dir.path().join("ctl"), dir.path().join("log"));
    let mut server = named(dir.path(), "ovsdb-server")
        .args(["--no-dbs", "-vconsole:off"])
        .arg(format!("--unixctl={}", control.display()))
        .arg(format!("--log-file={}", log.display()))
        .spawn()
        .unwrap();
    wait_for("the control socket", || testkit::listens(&control));
    let ask = |command: &str| appctl(dir.path(), &["-T", "30", "-t", control.to_str().unwrap(), command]);

    assert!(ask("vlog/close").status.success());
    fs::rename(&log, dir.path().join("log.1")).unwrap();
    assert!(ask("vlog/reopen").status.success());
    assert!(fs::read_to_string(&log).unwrap().contains("|vlog|INFO|opened log file "));

    let idle: Vec<std::os::unix::net::UnixStream> =
        (0..120).map(|_| std::os::unix::net::UnixStream::connect(&control).unwrap()).collect();
    for _ in 0..3 {
        assert!(ask("version").status.success());
    }
    let closed = |stream: &std::os::unix::net::UnixStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(std::io::Read::read(&mut &*stream, &mut [0]), Ok(0))
    };
    assert!(closed(&idle[0]) && !closed(&idle[119]), "who was idle longest gave way");
    kill("TERM", server.id());
    server.wait().unwrap();
}

#[test]
fn neither_the_end_nor_a_timeout_waits_for_a_name_server_that_does_not_answer() {
    let dir = run_dir();
    let net = namespace();
    // Whatever goes there is lost.
    net.ip("link add void up type veth peer name beyond");
    net.ip("link set beyond up");
    net.ip("address add 192.0.2.2/24 dev void");
    net.ip("neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev void");
    fs::write(dir.file("resolv.conf"), "nameserver 192.0.2.1\n").unwrap();
    let command = |line: &str| {
        let mut command = net.command("unshare");
        let names = dir.file("resolv.conf");
        let line = format!("mount --bind {} /etc/resolv.conf && exec {line}", names.display());
        dir.lead(command.args(["--mount", "sh", "-c", &line]));
        command
    };
    let bin = links(dir.path());
    let program = |line: &str| command(&bin.join(line).display().to_string());
    let since = Instant::now();
    let asked = program("ovsdb-client --timeout=1 list-dbs tcp:nobody.example:6640").output().unwrap();
    assert!(!asked.status.success(), "{asked:?}");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());

    let mut switch =
        Process::logged(&mut program("ovs-vswitchd --pidfile tcp:nobody.example:6640"), dir.file("log"));
    wait_for("an attempt", || dir.read("log").contains("connecting..."));
    let since = Instant::now();
    appctl(dir.path(), &["exit"]);
    switch.wait().unwrap();
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}
