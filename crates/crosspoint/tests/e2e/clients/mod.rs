//! `vsctl` and `ovsdb-client` beside the stock programs: the same command lines on servers of the same
//! contents, output, errors and exit codes compared.
//!
//! The command lines are data. A line `# …` begins a part, which begins with an empty database; each other
//! line is run by both programs, each on its own server.

mod rig;
mod time_out;
mod unwritten;

use crate::common::{Said, kill, wait_for};
use rig::{Server, canonical, link, sorted, words};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a line is compared by.
fn said(server: &Server, program: &Path, args: &[String]) -> Said {
    let said = server.run(program, args, "");
    Said { out: canonical(&said.out, server), err: canonical(&said.err, server), ..said }
}

/// Runs each line of `table` by the stock program and by ours, and complains of every difference.
fn compare(name: &str, table: &str, prefix: impl Fn(&Server) -> Vec<String> + Sync) {
    let links = tempfile::tempdir().unwrap();
    let ours = link(links.path(), name);
    let parts: Vec<&str> = table.split("\n# ").collect();
    let differences: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> =
            parts.iter().map(|part| scope.spawn(|| compare_part(name, &ours, part, &prefix))).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    assert!(differences.is_empty(), "{} lines differ:\n{}", differences.len(), differences.join("\n"));
}

fn compare_part(
    name: &str,
    ours: &Path,
    part: &str,
    prefix: &impl Fn(&Server) -> Vec<String>,
) -> Vec<String> {
    let (theirs_on, ours_on) = (Server::start(), Server::start());
    let mut lines = part.lines();
    let title = lines.next().unwrap_or_default();
    let mut differences = Vec::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let on = |server: &Server, program: &Path| {
            let mut args = prefix(server);
            args.extend(words(&line.replace("DIR", &server.dir().to_string_lossy())));
            said(server, program, &args)
        };
        let theirs = on(&theirs_on, &PathBuf::from(name));
        let ours = on(&ours_on, ours);
        let same_err = theirs.err == ours.err;
        // Within each of several tables, too, rows are in no particular order.
        let by_line = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let same_out = theirs.out == ours.out
            || sorted(&theirs.out) == sorted(&ours.out)
            || (line.ends_with("dump") && by_line(&theirs.out) == by_line(&ours.out));
        if theirs.code != ours.code || !same_err || !same_out {
            differences.push(format!("[{title}] {line}\n  stock: {theirs:?}\n  ours:  {ours:?}"));
        }
    }
    differences
}

#[test]
fn vsctl_says_what_the_stock_program_says() {
    compare("ovs-vsctl", include_str!("vsctl.txt"), |server| {
        vec!["--no-wait".into(), "--no-syslog".into(), format!("--db={}", server.method())]
    });
}

#[test]
fn ovsdb_client_says_what_the_stock_program_says() {
    compare("ovsdb-client", include_str!("client.txt"), |_| Vec::new());
}

#[test]
fn vsctl_waits_until_the_switch_has_done_it_and_tells_its_errors() {
    let links = tempfile::tempdir().unwrap();
    let ours = link(links.path(), "ovs-vsctl");
    for program in [PathBuf::from("ovs-vsctl"), ours] {
        let server = Server::start();
        let db = format!("--db={}", server.method());
        let run = |line: &str| {
            let args: Vec<String> = std::iter::once(db.clone()).chain(words(line)).collect();
            server.run(&program, &args, "")
        };
        assert_eq!(run("--no-wait add-br br0").code, Some(0));
        let start = Instant::now();
        let said = run("-t 1 add-port br0 p0");
        assert_eq!(said.code, None, "nobody answers, so it ends by the alarm: {said:?}");
        assert!(start.elapsed() >= Duration::from_secs(1) && said.err.contains("Alarm clock"), "{said:?}");

        // Now there is a switch, which cannot have the second port.
        let result = std::thread::scope(|scope| {
            let adding =
                scope.spawn(|| run("-t 30 add-port br0 p1 -- add-port br0 p2 -- set interface p2 type=x"));
            wait_for("the transaction", || run("--no-wait get interface p2 type").out == "x\n");
            // If it had returned by now, it would not report the error that follows.
            let next = run("--no-wait get open . next_cfg").out;
            let done = format!(
                "--no-wait set interface p1 ofport=1 -- set interface p2 ofport=-1 error='\"no such thing\"' -- set open . cur_cfg={next}"
            );
            assert_eq!(run(done.trim()).code, Some(0));
            adding.join().unwrap()
        });
        assert_eq!(result.code, Some(0), "{result:?}");
        let lines: Vec<&str> = result.err.lines().collect();
        assert_eq!(
            lines[0],
            "ovs-vsctl: Error detected while setting up 'p2': no such thing.  See ovs-vswitchd log for details."
        );
        assert!(lines[1].starts_with("ovs-vsctl: The default log directory is "), "{result:?}");
        assert_eq!(lines.len(), 2);
    }
}

/// What is reported of interfaces that the switch could not make is the same for every command that adds
/// some.
#[test]
fn what_could_not_be_set_up_is_told_by_whichever_command_it_was_asked_for() {
    let links = tempfile::tempdir().unwrap();
    let told = |program: &Path| {
        let server = Server::start();
        let run = |line: &str| {
            let db = format!("--db={}", server.method());
            let args: Vec<String> = std::iter::once(db).chain(words(line)).collect();
            server.run(program, &args, "")
        };
        let mut told = Vec::new();
        for line in [
            "add-br b1",
            "add-br f1 b1 7",
            "add-port b1 p1",
            "add-bond b1 bond0 e1 e2",
            "add-bond-iface bond0 e3",
            "add-br b2 -- del-br b2 -- add-br b4",
            "add-br b3 -- set bridge b3 datapath_type=bogus -- add-port b3 p2",
        ] {
            let before = run("--no-wait get open . next_cfg").out;
            let said = std::thread::scope(|scope| {
                let asking = scope.spawn(|| run(&format!("-t 60 {line}")));
                // The switch that there is not, which can make no interface.
                let mut next = before.clone();
                wait_for("the transaction", || {
                    next = run("--no-wait get open . next_cfg").out;
                    next != before
                });
                let names = run("--no-wait --bare --columns=name find interface").out;
                let mut answer = format!("--no-wait set open . cur_cfg={}", next.trim());
                for name in names.split_whitespace() {
                    answer += &format!(" -- set interface {name} ofport=-1 error=unusable");
                }
                assert_eq!(run(&answer).code, Some(0));
                asking.join().unwrap()
            });
            told.push((line, said.code, canonical(&said.err, &server)));
        }
        told
    };
    let (theirs, ours) = (told(Path::new("ovs-vsctl")), told(&link(links.path(), "ovs-vsctl")));
    assert_eq!(ours, theirs);
    assert!(ours[0].2.starts_with("ovs-vsctl: Error detected while setting up 'b1': unusable."), "{ours:?}");
}

/// A client ends by the signal, and says so; a signal that it was started to ignore does not end it.
#[test]
fn clients_that_are_ended_by_a_signal_say_so() {
    let links = tempfile::tempdir().unwrap();
    let server = Server::start();
    for (name, line) in [
        ("ovs-vsctl", "--no-wait --db=METHOD wait-until bridge nope name=x"),
        ("ovsdb-client", "monitor METHOD Bridge name"),
    ] {
        for (start, signals, number) in [
            ("--default-signal=TERM", &["TERM"][..], 15),
            ("--default-signal=INT", &["INT"], 2),
            ("--default-signal=HUP", &["HUP"], 1),
            ("--ignore-signal=HUP", &["HUP", "TERM"], 15),
        ] {
            let [theirs, ours] = [PathBuf::from(name), link(links.path(), name)].map(|program| {
                let child = Command::new("env")
                    .arg(start)
                    .arg(program)
                    .args(words(&line.replace("METHOD", &server.method())))
                    .env("OVS_SYSLOG_METHOD", "null")
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                wait_until_it_has_connected(child.id(), number);
                signals.iter().for_each(|signal| kill(signal, child.id()));
                let output = child.wait_with_output().unwrap();
                let err = String::from_utf8(output.stderr).unwrap();
                (output.status.signal(), canonical(&err, &server))
            });
            assert_eq!(ours, theirs, "{name} {start}");
            assert_eq!(ours.0, Some(number));
        }
    }
}

#[test]
fn the_environment_says_how_messages_reach_the_system_log_unless_an_option_does() {
    let links = tempfile::tempdir().unwrap();
    let [theirs, ours] = [PathBuf::from("ovs-vsctl"), link(links.path(), "ovs-vsctl")].map(|program| {
        let server = Server::start();
        let path = server.dir().join("log");
        let (here, db) = (format!("unix:{}", path.display()), format!("--db={}", server.method()));
        let log = UnixDatagram::bind(&path).unwrap();
        log.set_nonblocking(true).unwrap();
        let to_here = format!("--syslog-method={here}");
        let cases: [(&str, &[&str]); 7] = [
            (&here, &[]),
            ("null", &[]),
            ("null", &[&to_here]),
            (&here, &["--syslog-method=null"]),
            ("null", &[&to_here, "--syslog-method=null"]),
            ("nonesuch", &[]),
            ("nonesuch", &["--syslog-method=null"]),
        ];
        cases.map(|(method, options)| {
            let mut command = Command::new(&program);
            command.env("OVS_SYSLOG_METHOD", method).args(options).args([&db, "--no-wait", "init"]);
            let output = command.output().unwrap();
            let mut buffer = [0; 2048];
            let messages = std::iter::from_fn(|| log.recv(&mut buffer).ok().map(|n| buffer[..n].to_vec()));
            let calls = messages.filter(|m| String::from_utf8_lossy(m).contains("|INFO|Called as ")).count();
            (output.status.code(), String::from_utf8(output.stderr).unwrap(), calls)
        })
    });
    assert_eq!(ours, theirs);
    assert_eq!(ours.map(|(_, _, calls)| calls), [1, 0, 1, 0, 1, 0, 0]);
}

/// In the background a client goes on printing where it was told to print, and takes its pid file with it.
#[test]
fn what_a_client_in_the_background_prints_is_not_lost_and_its_pid_file_goes_with_it() {
    let links = tempfile::tempdir().unwrap();
    let [theirs, ours] = [PathBuf::from("ovsdb-client"), link(links.path(), "ovsdb-client")].map(|program| {
        let server = Server::start();
        let vsctl = |line: &str| {
            let args = [format!("--db={}", server.method()), "--no-wait".into()];
            let args: Vec<String> = args.into_iter().chain(words(line)).collect();
            assert_eq!(server.run(Path::new("ovs-vsctl"), &args, "").code, Some(0));
        };
        let (out, pid_file) = (server.dir().join("out"), server.dir().join("pid"));
        let printed = || std::fs::read_to_string(&out).unwrap();
        let start = |line: &str| {
            let status = Command::new(&program)
                .args(words(&line.replace("METHOD", &server.method())))
                .args(["--detach", "--no-chdir", &format!("--pidfile={}", pid_file.display())])
                .env("OVS_RUNDIR", server.dir())
                .stdin(Stdio::null())
                .stdout(std::fs::File::create(&out).unwrap())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(status.code(), Some(0), "{line}");
            std::fs::read_to_string(&pid_file).unwrap().trim().parse::<u32>().unwrap()
        };
        let end = |pid: u32| {
            kill("TERM", pid);
            // Its parent is gone, and whoever has it now may not have heard of its end.
            wait_for("it has ended", || std::fs::read_link(format!("/proc/{pid}/exe")).is_err());
            assert!(!pid_file.exists(), "{}: the pid file is still there", program.display());
        };
        vsctl("add-br br0");
        let pid = start("monitor METHOD Bridge name,fail_mode");
        let first = printed();
        vsctl("set-fail-mode br0 secure");
        wait_for("the change is printed", || printed().contains("secure"));
        end(pid);
        let monitored = (canonical(&first, &server), canonical(&printed(), &server));
        let pid = start("lock METHOD a");
        end(pid);
        (monitored, printed())
    });
    assert_eq!(ours, theirs);
}

/// Waits until a client has its connection and its handler for a signal, in whichever order it comes to them.
fn wait_until_it_has_connected(pid: u32, signal: i32) {
    let has_socket = || {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        files.flatten().any(|file| {
            std::fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
    };
    wait_for("it has connected", has_socket);
    // proc_pid_status(5): a bit for each signal, signal 1 lowest.
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    wait_for("it handles the signal", || caught() >> (signal - 1) & 1 == 1);
}

#[test]
fn a_condition_is_waited_for_and_then_the_rest_runs_on_what_is_there() {
    let server = Server::start();
    let ours = link(server.dir(), "ovs-vsctl");
    let db = format!("--db={}", server.method());
    let run = |line: &str| {
        let args: Vec<String> = [db.clone(), "--no-wait".into()].into_iter().chain(words(line)).collect();
        server.run(&ours, &args, "")
    };
    let control = server.dir().join("server.ctl").display().to_string();
    let monitors = || {
        let asked = ["-t", &control, "memory/show"].map(String::from);
        let shown = server.run(Path::new("ovs-appctl"), &asked, "").ok();
        shown.split(' ').any(|figure| figure.starts_with("monitors:") && figure != "monitors:0")
    };
    std::thread::scope(|scope| {
        let waiting = scope
            .spawn(|| run("-t 30 wait-until bridge br0 fail_mode=secure -- get bridge br0 external_ids:n"));
        assert_eq!(run("add-br br0 -- set bridge br0 external_ids:n=early").code, Some(0));
        wait_for("it to see the database", monitors);
        assert_eq!(run("set-fail-mode br0 secure -- set bridge br0 external_ids:n=late").code, Some(0));
        assert_eq!(waiting.join().unwrap(), Said { code: Some(0), out: "late\n".into(), err: String::new() });
    });
}

#[test]
fn calls_at_the_same_time_all_come_into_force() {
    let server = Server::start();
    let ours = link(server.dir(), "ovs-vsctl");
    let run = |line: &str| {
        let args: Vec<String> = [format!("--db={}", server.method()), "--no-wait".into()]
            .into_iter()
            .chain(words(line))
            .collect();
        server.run(&ours, &args, "")
    };
    assert_eq!(run("add-br br0").code, Some(0));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let run = &run;
            scope.spawn(move || {
                let said = run(&format!(
                    "add-port br0 a{n} -- add-port br0 b{n} -- set bridge br0 external_ids:k{n}=1"
                ));
                assert_eq!(said.code, Some(0), "{said:?}");
            });
        }
    });
    assert_eq!(run("list-ports br0").out.lines().count(), 16);
    assert_eq!(run("get bridge br0 external_ids").out.matches("=\"1\"").count(), 8);
}

#[test]
fn a_backup_is_restored_by_both_and_a_damaged_one_by_none() {
    let server = Server::start();
    let (vsctl, client) = (link(server.dir(), "ovs-vsctl"), link(server.dir(), "ovsdb-client"));
    let stock = PathBuf::from("ovsdb-client");
    let config = |line: &str| {
        let args: Vec<String> = [format!("--db={}", server.method()), "--no-wait".into()]
            .into_iter()
            .chain(words(line))
            .collect();
        let said = server.run(&vsctl, &args, "");
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out
    };
    let line =
        "add-br br0 -- add-port br0 p1 tag=7 -- --id=@q create qos type=linux-htb -- set port p1 qos=@q";
    config(line);
    let shown = config("show");
    for (backs_up, restores) in [(&client, &client), (&client, &stock), (&stock, &client)] {
        let args = ["backup".to_owned(), server.method()];
        let backup = server.run(backs_up, &args, "");
        assert_eq!((backup.code, backup.err.as_str()), (Some(0), ""));
        config("del-br br0 -- add-br other");
        let args = ["restore".to_owned(), server.method()];
        let said = server.run(restores, &args, &backup.out);
        assert_eq!(said, Said { code: Some(0), out: String::new(), err: String::new() });
        let tail = |text: &str| sorted(text.split_once('\n').unwrap().1);
        assert_eq!(tail(&config("show")), tail(&shown));
        assert_eq!(config("get port p1 tag"), "7\n");
        let damaged = backup.out.replacen("name", "nbme", 1);
        assert_eq!(server.run(&client, &args, &damaged).code, Some(1));
        assert_eq!(tail(&config("show")), tail(&shown));
    }
}

/// What a monitor prints of a change, by both programs.
#[test]
fn monitors_print_changes_as_the_stock_program_does() {
    let links = tempfile::tempdir().unwrap();
    let ours = link(links.path(), "ovsdb-client");
    for line in [
        "monitor METHOD Open_vSwitch Port name,tag",
        "monitor METHOD Port name tag,!initial",
        "-f csv monitor METHOD Port name,tag,!insert,!delete",
        "-f json monitor METHOD Port name,tag",
        "--no-headings -f list monitor-cond METHOD Open_vSwitch '[[\"name\",\"==\",\"p1\"]]' Port name,tag",
        "monitor-cond-since METHOD Open_vSwitch '[[\"name\",\"==\",\"p1\"]]' Port name,tag",
    ] {
        let [theirs, ours] = [Path::new("ovsdb-client"), &ours].map(|program| {
            let server = Server::start();
            let vsctl = |line: &str| {
                let args = [format!("--db={}", server.method()), "--no-wait".into()];
                let args: Vec<String> = args.into_iter().chain(words(line)).collect();
                assert_eq!(server.run(Path::new("ovs-vsctl"), &args, "").code, Some(0));
            };
            vsctl("add-br br0 -- add-port br0 p1");
            let out = server.dir().join("out");
            let mut monitor = Command::new(program)
                .args(["-t", "60"])
                .args(words(&line.replace("METHOD", &server.method())))
                .env("OVS_SYSLOG_METHOD", "null")
                .stdin(Stdio::null())
                .stdout(std::fs::File::create(&out).unwrap())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let printed = || std::fs::read_to_string(&out).unwrap();
            let memory = [
                "-t".to_owned(),
                server.dir().join("server.ctl").display().to_string(),
                "memory/show".into(),
            ];
            wait_for("the monitor", || {
                server.run(Path::new("ovs-appctl"), &memory, "").out.contains(" monitors:1 ")
            });
            vsctl("set port p1 tag=1234 -- add-port br0 p2");
            wait_for("the first change", || printed().contains("1234"));
            let seen = printed().len();
            vsctl("clear port p1 tag -- del-port p2");
            wait_for("the second change", || printed().len() > seen);
            // The end that -t brings, at a moment that is known.
            kill("ALRM", monitor.id());
            (monitor.wait().unwrap().signal(), canonical(&printed(), &server))
        });
        let lines = |text: &str| text.lines().map(sorted).collect::<Vec<_>>();
        let parts = |text: &str| text.split("\n\n").map(sorted).collect::<Vec<_>>();
        assert_eq!(theirs.0, ours.0, "{line}");
        let same = match line.contains("json") {
            true => lines(&theirs.1) == lines(&ours.1),
            false => parts(&theirs.1) == parts(&ours.1),
        };
        assert!(same, "{line}\nstock:\n{}\nours:\n{}", theirs.1, ours.1);
    }
}
