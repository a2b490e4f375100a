//! `ovsdb-server` as a program: its options side by side with the stock one's, and TLS between servers and
//! clients of both kinds.

use crate::common::{Process, RunDir, SCHEMA, Said, links, run, run_dir, wait_for};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::lab::run_line;

/// A directory with databases, the binary under the stock programs' names in `bin`, and what was started
/// there.
struct Rig {
    dir: RunDir,
    children: Vec<Process>,
}

impl Rig {
    fn new() -> Rig {
        let rig = Rig { dir: run_dir(), children: Vec::new() };
        links(rig.dir.path());
        let schema = r#"{"name":"numbers","version":"1.0.0","tables":{"T":{"columns":{"n":{"type":"integer"}},"isRoot":true}}}"#;
        fs::write(rig.path("numbers.ovsschema"), schema).unwrap();
        for file in ["numbers.db", "backup.db", "active.db"] {
            rig.run("ovsdb-tool", &["create", file, "numbers.ovsschema"]).ok();
        }
        rig.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).ok();
        rig
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.file(name)
    }

    /// A program of the stock ones, or, with `bin/` before its name, ours. `DIR` in an argument is the
    /// directory.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let dir = self.dir.path().to_str().unwrap();
        let program = match program.strip_prefix("bin/") {
            Some(name) => self.path("bin").join(name),
            None => program.into(),
        };
        let mut command = self.dir.command(program);
        command.env("OVS_SYSLOG_METHOD", "null").args(args.iter().map(|arg| arg.replace("DIR", dir)));
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Said {
        run(&mut self.command(program, args))
    }

    /// A server in the foreground, once its control socket answers.
    fn serve(&mut self, program: &str, name: &str, args: &[&str]) {
        let control = format!("--unixctl=DIR/{name}.ctl");
        let log = format!("--log-file=DIR/{name}.log");
        let args = [&[control.as_str(), "-vconsole:off", &log], args].concat();
        let child = Process::silent(&mut self.command(program, &args));
        self.children.push(child);
        wait_for("the server", || self.appctl(name, &["version"]).succeeded());
    }

    fn appctl(&self, name: &str, args: &[&str]) -> Said {
        let target = format!("DIR/{name}.ctl");
        self.run("ovs-appctl", &[&["-T", "20", "-t", &target], args].concat())
    }
}

/// Without lines of the log, which carry the time, and blank ones.
fn without_log(err: &str) -> Vec<&str> {
    err.lines().filter(|l| !l.contains('|') && !l.is_empty()).collect()
}

#[test]
fn options_do_what_the_stock_servers_do_and_failures_are_told_in_its_words() {
    let rig = Rig::new();
    fs::write(rig.path("junk"), "{}").unwrap();
    fs::copy(rig.path("numbers.db"), rig.path("copy.db")).unwrap();
    let list = "--run=ovsdb-client list-dbs unix:DIR/db.sock";
    for args in [
        &["--run=true", "DIR/numbers.db"][..],
        &["--run=exit 3", "DIR/numbers.db"],
        &["--run=kill -9 $$", "DIR/numbers.db"],
        &[list, "--remote=punix:DIR/db.sock", "DIR/numbers.db", "DIR/conf.db"],
        &[list, "--remote=punix:DIR/db.sock", "--remote=punix:DIR/other.sock"],
        &[list, "--remote=punix:DIR/db.sock", "--no-dbs"],
        &[
            "--run=ovs-appctl -t DIR/c.ctl ovsdb-server/list-remotes",
            "--unixctl=DIR/c.ctl",
            "--remote=punix:DIR/r",
            "DIR/numbers.db",
        ],
        &["--run=ovs-appctl -t DIR/c.ctl ovsdb-server/sync-status", "--unixctl=DIR/c.ctl", "DIR/numbers.db"],
        &["--run=cat DIR/x.pid >/dev/null", "--pidfile=DIR/x.pid", "DIR/numbers.db"],
        &["--run=true", "--remote=db:nope,T,n", "DIR/numbers.db"],
        &["--run=true", "--remote=db:numbers,T,x", "DIR/numbers.db"],
        &["--run=true", "--private-key=db:numbers,T,zz", "DIR/numbers.db"],
        &["--run=true", "--ca-cert=db:numbers,Z,n", "DIR/numbers.db"],
        &["--run=true", "--certificate=db:nope,T,n", "DIR/numbers.db"],
        &["--run=true", "--certificate=db:numbers,T,n", "DIR/numbers.db"],
        &["--run=true", "--private-key=db:numbers,T", "DIR/numbers.db"],
        &["--run=true", "--unixctl=/nonexistent/x", "DIR/numbers.db"],
        &["--run=true", "--pidfile=DIR/no/x.pid", "DIR/numbers.db"],
        &["--run=true", "--log-file=DIR/no/x.log", "DIR/numbers.db"],
        &["--run=true", "--user=no-such-user", "DIR/numbers.db"],
        &["--run=true", "DIR/junk"],
        &["--run=true", "DIR/missing.db"],
        // Files are named as they were given.
        &["--run=true", "junk"],
        &["--run=true", "./junk"],
        &["--run=true", "missing.db"],
        &["--run=true", "bin/../missing.db"],
        &["--run=true", "no/missing.db"],
        &["--run=true", "numbers.db", "./numbers.db"],
        &["--run=true", "numbers.db", "copy.db"],
        &["--run=true", "--log-file=no/x.log", "numbers.db"],
    ] {
        let (theirs, ours) = (rig.run("ovsdb-server", args), rig.run("bin/ovsdb-server", args));
        assert_eq!((&ours.out, ours.code), (&theirs.out, theirs.code), "{args:?}: {ours:?} {theirs:?}");
        let text = |said: &Said| without_log(&said.err).join("\n").replace("x.pid.tmp", "x.pid");
        // The stock one says this in its log alone, or on another line.
        match args[1] {
            log if log.starts_with("--log-file=") => {
                let dir = rig.dir.path().to_str().unwrap();
                let file = log["--log-file=".len()..].replace("DIR", dir);
                let said = format!("failed to open {file} for logging: No such file or directory\n");
                assert!(ours.err.ends_with(&said) && theirs.err.ends_with(&said), "{ours:?} {theirs:?}");
            }
            "--user=no-such-user" => assert!(ours.err.contains("user no-such-user not found"), "{ours:?}"),
            _ => assert_eq!(text(&ours), text(&theirs), "{args:?}"),
        }
        // What it logs to the console on its way is for failures.
        if ours.code == Some(0) {
            assert_eq!(ours.err, "", "{args:?}");
        }
    }
    let config = r#"{"remotes": {"punix:db.sock": {}}, "databases": {"numbers.db": {}}}"#;
    fs::write(rig.path("config.json"), config).unwrap();
    let listed = rig.run("bin/ovsdb-server", &["--config-file=DIR/config.json", list]).ok();
    assert_eq!(listed, "_Server\nnumbers\n");
}

#[test]
fn clients_over_the_network_leave_descriptors_to_the_operator_and_idle_ones_give_way() {
    let mut rig = Rig::new();
    // Without the capability it cannot give itself more.
    let child = Process::silent(&mut rig.command(
        "setpriv",
        &[
            "--bounding-set=-sys_resource",
            "--inh-caps=-sys_resource",
            "prlimit",
            "--nofile=64:64",
            "DIR/bin/ovsdb-server",
            "--unixctl=DIR/few.ctl",
            "--log-file=DIR/few.log",
            "--remote=ptcp:0:127.0.0.1",
            "--remote=punix:DIR/db.sock",
            "DIR/numbers.db",
        ],
    ));
    rig.children.push(child);
    wait_for("the server", || rig.appctl("few", &["version"]).code == Some(0));
    let log = fs::read_to_string(rig.path("few.log")).unwrap();
    let port = log.split("listening on port ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let address = format!("127.0.0.1:{}", port.expect("the log names the port"));
    let connect = || TcpStream::connect(&address).unwrap();
    let operator_is_served = || {
        assert_eq!(rig.appctl("few", &["version"]).code, Some(0));
        assert_eq!(rig.run("ovsdb-client", &["-t", "20", "list-dbs", "unix:DIR/db.sock"]).code, Some(0));
    };

    let of_server = format!("/proc/{}/fd", rig.children.last().expect("it was started").id());
    let descriptors = || fs::read_dir(&of_server).unwrap().count();
    let before = descriptors();
    let idle: Vec<TcpStream> = (0..80).map(|_| connect()).collect();
    operator_is_served();
    let method = format!("tcp:{address}");
    wait_for("idle clients to give way", || {
        rig.run("ovsdb-client", &["-t", "5", "list-dbs", &method]).code == Some(0)
    });
    drop(idle);
    // The server has seen them go, lest one that comes now counts as another of too many.
    wait_for("the idle clients to be gone", || descriptors() <= before);

    // So do those that have a monitor.
    let monitor = br#"{"id":1,"method":"monitor","params":["numbers",1,{"T":{}}]}"#;
    let watching = || {
        let mut stream = connect();
        // It may have been refused, or had to give way already.
        let _ = stream.write_all(monitor);
        stream
    };
    let _watching: Vec<TcpStream> = (0..80).map(|_| watching()).collect();
    operator_is_served();
    wait_for("clients with monitors to give way", || {
        rig.run("ovsdb-client", &["-t", "5", "list-dbs", &method]).code == Some(0)
    });
    let log = fs::read_to_string(rig.path("few.log")).unwrap();
    assert!(log.contains("accept failed: the file descriptors that are left are reserved"), "{log}");
}

#[test]
fn what_cannot_be_written_is_told_to_clients_operators_and_the_log_and_a_deleted_file_comes_again() {
    let mut rig = Rig::new();
    rig.serve("bin/ovsdb-server", "s", &["--remote=punix:DIR/s.sock", "DIR/numbers.db"]);
    let pid = rig.children[0].id();
    let insert = |rows: usize| {
        let rows = vec![r#"{"op":"insert","table":"T","row":{"n":7}}"#; rows].join(",");
        rig.run("ovsdb-client", &["transact", "unix:DIR/s.sock", &format!("[\"numbers\",{rows}]")]).ok()
    };
    let file = rig.path("numbers.db");
    insert(1);
    // A disk that is full, for this process alone. The signal that comes with it ends nothing.
    run_line(&format!("prlimit --pid {pid} --fsize=20000"));
    let refused = insert(1000);
    assert!(refused.contains(r#""details":"File too large","error":"I/O error""#), "{refused}");
    let told = format!("|ovsdb_server|ERR|I/O error: {}: write failed (File too large)", file.display());
    wait_for("a line in the log", || rig.dir.read("s.log").contains(&told));
    // Each of several that share a write is told.
    let row = r#"{"op":"insert","table":"T","row":{"n":7}},"#.repeat(500);
    let request =
        format!(r#"{{"id":1,"method":"transact","params":["numbers",{}]}}"#, row.trim_end_matches(','));
    let mut client = UnixStream::connect(rig.path("s.sock")).unwrap();
    client.write_all(request.repeat(10).as_bytes()).unwrap();
    wait_for("a line for each", || rig.dir.read("s.log").matches(&told).count() == 11);
    insert(1);

    fs::remove_file(&file).unwrap();
    rig.appctl("s", &["ovsdb-server/compact"]).ok();
    insert(1);
    let query = r#"["numbers",{"op":"select","table":"T","where":[],"columns":["_uuid"]}]"#;
    let there = rig.run("ovsdb-tool", &["query", "numbers.db", query]).ok();
    assert_eq!(there.matches(r#""uuid""#).count(), 3, "{there}");

    run_line(&format!("prlimit --pid {pid} --fsize=100"));
    let failed = rig.appctl("s", &["ovsdb-server/compact"]).failed();
    assert!(failed.contains("I/O error: numbers could not be compacted (File too large)"), "{failed}");
    assert!(rig.children[0].try_wait().unwrap().is_none());
}

#[test]
fn whoever_holds_all_descriptors_idly_keeps_nobody_waiting() {
    let mut rig = Rig::new();
    rig.serve("bin/ovsdb-server", "s", &["--remote=punix:DIR/s.sock", "DIR/numbers.db"]);
    let of_server = format!("/proc/{}/fd", rig.children[0].id());
    let descriptors = || fs::read_dir(&of_server).unwrap().count();
    let before = descriptors();
    run_line(&format!("prlimit --pid {} --nofile=64", rig.children[0].id()));
    let connect = || UnixStream::connect(rig.path("s.sock")).unwrap();
    let half = br#"{"id":1,"method":"ec"#.to_vec();
    // Its replies fill any socket, and are not read.
    let schema = br#"{"id":1,"method":"get_schema","params":["_Server"]}"#.repeat(300);
    let monitor = br#"{"id":1,"method":"monitor","params":["numbers",1,{"T":{}}]}"#.to_vec();
    let lock = br#"{"id":1,"method":"lock","params":["l"]}"#.to_vec();
    for request in [vec![], half, schema, monitor, lock] {
        let idle = || {
            let mut stream = connect();
            // It may have had to give way already.
            let _ = stream.write_all(&request);
            stream
        };
        let idle: Vec<UnixStream> = (0..600).map(|_| idle()).collect();
        let since = Instant::now();
        rig.run("ovsdb-client", &["list-dbs", "unix:DIR/s.sock"]).ok();
        rig.appctl("s", &["version"]).ok();
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        drop(idle);
        wait_for("the idle clients to be gone", || descriptors() <= before);
    }
}

#[test]
fn in_the_background_it_serves_logs_nothing_to_worry_about_and_leaves_nothing_behind() {
    let rig = Rig::new();
    fs::set_permissions(rig.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    assert!(Command::new("chown").args(["-R", "nobody"]).arg(rig.dir.path()).status().unwrap().success());
    let args = [
        "--detach",
        "--monitor",
        "--no-chdir",
        "--user=nobody:nogroup",
        "--pidfile=DIR/a.pid",
        "--log-file=DIR/a.log",
        "--unixctl=DIR/a.ctl",
        "--remote=punix:DIR/a.sock",
        "-vconsole:off",
        "-vreconnect:file:dbg",
        "DIR/numbers.db",
    ];
    assert_eq!(rig.run("bin/ovsdb-server", &args).ok(), "");
    let pid = |file: &str| fs::read_to_string(rig.path(file)).unwrap().trim().to_string();
    let first = pid("a.pid");
    let status = fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    assert!(status.lines().any(|l| l.starts_with("Uid:") && l.contains("65534")), "{status}");
    assert!(
        rig.appctl("a", &["vlog/list"])
            .ok()
            .lines()
            .any(|l| l.starts_with("reconnect") && l.ends_with("DBG"))
    );
    assert_eq!(rig.run("ovsdb-client", &["list-dbs", "unix:DIR/a.sock"]).ok(), "_Server\nnumbers\n");

    // Its pid file is its own, unless the next one is told to take it.
    let second = ["--detach", "--pidfile=DIR/a.pid", "--unixctl=DIR/b.ctl", "-vconsole:off", "DIR/backup.db"];
    let refused = rig.run("bin/ovsdb-server", &second).failed();
    assert!(refused.ends_with(&format!("a.pid: already running as pid {first}, aborting\n")), "{refused}");
    rig.run("bin/ovsdb-server", &[&second[..], &["--overwrite-pidfile"]].concat()).ok();
    assert_ne!(pid("a.pid"), first);
    rig.appctl("b", &["exit"]).ok();
    rig.appctl("a", &["exit"]).ok();
    wait_for("both to end", || {
        !rig.path("a.sock").exists() && !rig.path("b.ctl").exists() && !rig.path("a.pid").exists()
    });
    wait_for("the process to end", || !Path::new(&format!("/proc/{first}")).exists());

    let log = || fs::read_to_string(rig.path("a.log")).unwrap();
    // The process that watches over it logs last.
    wait_for("the watcher to log the end", || log().contains("exit status 0, exiting"));
    let log = log();
    assert!(log.lines().count() >= 3, "{log}");
    for (n, line) in log.lines().enumerate() {
        let parts: Vec<&str> = line.splitn(5, '|').collect();
        let [time, number, module, level, _] = parts[..] else { panic!("{line}") };
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{line}");
        // The process that watches over it has numbers of its own.
        assert!(
            number.parse::<usize>().is_ok_and(|number| number.abs_diff(n + 1) <= 2 && !module.is_empty()),
            "{line}"
        );
        assert!(["INFO", "DBG"].contains(&level), "{line}");
    }
}

#[test]
fn a_backup_follows_its_source_and_one_that_is_active_waits_to_be_told() {
    let mut rig = Rig::new();
    rig.serve("ovsdb-server", "source", &["--remote=punix:DIR/source.sock", "DIR/numbers.db"]);
    let sync = "--sync-from=unix:DIR/source.sock";
    rig.serve("bin/ovsdb-server", "backup", &[sync, "--remote=punix:DIR/backup.sock", "DIR/backup.db"]);
    rig.serve(
        "bin/ovsdb-server",
        "active",
        &[sync, "--active", "--remote=punix:DIR/active.sock", "DIR/active.db"],
    );
    let insert = |name: &str| {
        let insert = r#"["numbers",{"op":"insert","table":"T","row":{"n":4711}}]"#;
        rig.run("ovsdb-client", &["-t", "20", "transact", &format!("unix:DIR/{name}.sock"), insert])
    };
    let rows = |name: &str| {
        rig.run("ovsdb-client", &["dump", &format!("unix:DIR/{name}.sock"), "numbers"])
            .ok()
            .matches("4711")
            .count()
    };
    insert("source").ok();
    wait_for("the row at the backup", || rows("backup") == 1);
    assert!(rig.appctl("backup", &["ovsdb-server/sync-status"]).ok().starts_with("state: backup\n"));
    assert!(insert("backup").ok().contains("\"error\""), "a backup is only read");
    assert!(rig.appctl("active", &["ovsdb-server/sync-status"]).ok().starts_with("state: active\n"));
    insert("active").ok();
    assert_eq!((rows("backup"), rows("active")), (1, 1), "whoever is active has its own");
}

/// Keys and certificates by `ovs-pki`, in `DIR/keys`.
fn pki(rig: &Rig) {
    let keys = rig.path("keys");
    fs::create_dir(&keys).unwrap();
    for args in [&["init"][..], &["req+sign", "server", "controller"], &["req+sign", "client", "switch"]] {
        let output = Command::new("ovs-pki")
            .args(["--dir", "pki", "--log", "log", "--force"])
            .args(args)
            .current_dir(&keys)
            .output()
            .expect("ovs-pki, of openvswitch-common");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
}

#[test]
fn clients_and_servers_of_both_kinds_speak_tls_with_each_other_and_refuse_strangers() {
    const CLIENTS_CA: &str = "DIR/keys/pki/switchca/cacert.pem";
    const SERVERS_CA: &str = "DIR/keys/pki/controllerca/cacert.pem";
    let mut rig = Rig::new();
    pki(&rig);
    for (server, name) in [("ovsdb-server", "stock"), ("bin/ovsdb-server", "ours")] {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let database = format!("DIR/{name}.db");
        rig.run("ovsdb-tool", &["create", &database, SCHEMA]).ok();
        let remote = format!("--remote=pssl:{port}:127.0.0.1");
        let mut args = vec![remote.as_str(), "--private-key=DIR/keys/server-privkey.pem"];
        args.extend(["--certificate=DIR/keys/server-cert.pem", "--ca-cert", CLIENTS_CA]);
        // Whose authority is another than its clients' must be told to them.
        args.extend(["--peer-ca-cert", SERVERS_CA, &database]);
        rig.serve(server, name, &args);
        let method = format!("ssl:127.0.0.1:{port}");
        let db = format!("--db={method}");
        let key = ["--private-key=DIR/keys/client-privkey.pem", "--certificate=DIR/keys/client-cert.pem"];
        for ours in [false, true] {
            let program = |name: &str| if ours { format!("bin/{name}") } else { name.to_string() };
            let vsctl = |tls: &[&str], words: &[&str]| {
                rig.run(&program("ovs-vsctl"), &[&["--timeout=20", "--no-wait", &db], tls, words].concat())
            };
            let client = |tls: &[&str]| {
                rig.run(&program("ovsdb-client"), &[&["--timeout=20", "list-dbs", &method], tls].concat())
            };
            let trusting = [&key[..], &["--ca-cert", SERVERS_CA]].concat();
            let set = [
                "init",
                "--",
                "set",
                "Open_vSwitch",
                ".",
                "ovs_version=5",
                "--",
                "get",
                "Open_vSwitch",
                ".",
                "ovs_version",
            ];
            assert_eq!(vsctl(&trusting, &set).ok(), "\"5\"\n");
            assert_eq!(client(&trusting).ok(), "Open_vSwitch\n_Server\n");

            // The first peer is believed, from the next connection on.
            let boot = rig.path("boot.pem");
            let _ = fs::remove_file(&boot);
            let bootstrapping = [&key[..], &["--bootstrap-ca-cert", "DIR/boot.pem"]].concat();
            let first = client(&bootstrapping);
            assert_eq!(first.code, Some(1), "{first:?}");
            assert!(boot.exists(), "{first:?}");
            assert_eq!(client(&bootstrapping).ok(), "Open_vSwitch\n_Server\n");
            assert_eq!(vsctl(&bootstrapping, &["get", "Open_vSwitch", ".", "ovs_version"]).ok(), "\"5\"\n");

            let protocol = format!("ovsdb-client: failed to connect to \"{method}\" (Protocol error)");
            let configuration =
                format!("ovsdb-client: failed to connect to \"{method}\" (Protocol not available)");
            for (tls, error) in [
                ([&key[..], &["--ca-cert", CLIENTS_CA]].concat(), &protocol),
                (vec![], &configuration),
                (key.to_vec(), &configuration),
                // The stock client finds that out when it verifies.
                (
                    [&key[..], &["--ca-cert=/nonexistent"]].concat(),
                    if ours { &configuration } else { &protocol },
                ),
            ] {
                let said = client(&tls);
                assert_eq!(
                    (said.code, without_log(&said.err)),
                    (Some(1), vec![error.as_str()]),
                    "{tls:?}: {said:?}"
                );
            }
            // Somebody with the key of a server is no client.
            let mut stranger = vec!["--private-key=DIR/keys/server-privkey.pem"];
            stranger.extend(["--certificate=DIR/keys/server-cert.pem", "--ca-cert", SERVERS_CA]);
            assert_ne!(client(&stranger).code, Some(0));
        }
    }
}

#[test]
fn a_server_sends_the_authority_along_that_it_shares_with_its_clients() {
    const CA: &str = "DIR/keys/pki/switchca/cacert.pem";
    let mut rig = Rig::new();
    pki(&rig);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let remote = format!("--remote=pssl:{port}:127.0.0.1");
    let key = ["--private-key=DIR/keys/client-privkey.pem", "--certificate=DIR/keys/client-cert.pem"];
    rig.serve(
        "bin/ovsdb-server",
        "ours",
        &[&[remote.as_str()], &key[..], &["--ca-cert", CA, "DIR/conf.db"]].concat(),
    );
    let list =
        ["--timeout=20", "list-dbs", &format!("ssl:127.0.0.1:{port}"), "--bootstrap-ca-cert=DIR/boot.pem"];
    rig.run("ovsdb-client", &[&list[..], &key].concat());
    assert_eq!(rig.run("ovsdb-client", &[&list[..], &key].concat()).ok(), "Open_vSwitch\n_Server\n");
}
