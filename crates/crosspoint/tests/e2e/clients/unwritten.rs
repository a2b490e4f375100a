//! Output that cannot be written, and log files of clients.

use super::rig::{Server, link, words};
use crate::common::{Said, run, wait_for};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// `ovs-vsctl` of ours by a shell, which ends its line with `redirection`.
fn by_shell(server: &Server, vsctl: &Path, line: &str, redirection: &str) -> Said {
    let mut shell = server.command("sh");
    shell.args(["-c", &format!("\"$0\" \"$@\" {redirection}")]).arg(vsctl);
    run(shell.arg(format!("--db={}", server.method())).args(words(line)))
}

#[test]
fn a_closed_output_matters_only_to_what_prints() {
    let server = Server::start();
    let vsctl = link(server.dir(), "ovs-vsctl");
    for (line, printed) in [("--no-wait add-br br0", false), ("list-br", true), ("br-exists br0", false)] {
        let said = by_shell(&server, &vsctl, line, ">&-");
        let error = if printed { "ovs-vsctl: stdout: Bad file descriptor\n" } else { "" };
        assert_eq!((said.code, said.err.as_str()), (Some(i32::from(printed)), error), "{line}");
    }
}

/// The change is stored by then, and what the switch says of it is not lost with the output.
#[test]
fn vsctl_waits_for_the_switch_though_its_output_is_lost() {
    for (redirection, code, error) in
        [(">/dev/full", 1, "ovs-vsctl: stdout: No space left on device\n"), ("| true", 0, "")]
    {
        let server = Server::start();
        let vsctl = link(server.dir(), "ovs-vsctl");
        let own = |line: &str| by_shell(&server, &vsctl, &format!("--no-wait {line}"), "");
        own("add-br br0").ok();
        let result = std::thread::scope(|scope| {
            let line = "-t 60 add-port br0 p1 -- list-ports br0";
            let adding = scope.spawn(|| by_shell(&server, &vsctl, line, redirection));
            wait_for("the transaction", || own("list-ports br0").out == "p1\n");
            let next = own("get open . next_cfg").out;
            let done =
                format!("set interface p1 ofport=-1 error='\"no such thing\"' -- set open . cur_cfg={next}");
            own(done.trim()).ok();
            adding.join().unwrap()
        });
        let mut lines = result.err.lines();
        assert_eq!(result.code, Some(code), "{redirection}: {result:?}");
        assert!(
            lines.next().is_some_and(|line| line.contains("setting up 'p1': no such thing.")),
            "{result:?}"
        );
        assert!(lines.next().is_some_and(|line| line.contains("default log directory")), "{result:?}");
        assert_eq!(lines.next().unwrap_or_default(), error.trim_end(), "{redirection}: {result:?}");
    }
}

#[test]
fn vsctl_opens_its_log_file_as_the_stock_program_does() {
    let server = Server::start();
    let ours = link(server.dir(), "ovs-vsctl");
    let log = server.dir().join("x.log");
    let [theirs, own] = [PathBuf::from("ovs-vsctl"), ours].map(|program| {
        let call = |line: &str| {
            let args: Vec<String> = [format!("--db={}", server.method()), "--no-wait".into()]
                .into_iter()
                .chain(words(line))
                .collect();
            server.run(&program, &args, "")
        };
        let file = format!("--log-file={} -vfile:dbg list-br", log.display());
        let called = (call(&file), std::fs::read_to_string(&log).unwrap().contains("|vsctl|DBG|Called as "));
        std::fs::remove_file(&log).unwrap();
        // The stock program's line begins as one of the log.
        let refused = call("--log-file=/nope/x list-br");
        let is_told = refused.err.contains("failed to open /nope/x for logging: No such file or directory\n");
        (called, refused.code, is_told)
    });
    assert_eq!(own, theirs);
    assert_eq!((own.0.1, own.1, own.2), (true, Some(1), true), "{own:?}");
}

/// A daemon that answers neither with a result nor with an error, or that hangs up.
#[test]
fn an_answer_that_says_nothing_is_an_error() {
    let server = Server::start();
    let path = server.dir().join("mute");
    let listener = UnixListener::bind(&path).unwrap();
    for (name, line) in [
        ("ovs-appctl", "-t PATH version"),
        ("ovs-vsctl", "-t 60 --db=unix:PATH list-br"),
        ("ovsdb-client", "-t 60 list-dbs unix:PATH"),
    ] {
        let args = words(&line.replace("PATH", &path.to_string_lossy()));
        for answer in ["{\"id\":0,\"result\":null,\"error\":null}", ""] {
            let ends = [PathBuf::from(name), link(server.dir(), name)].map(|program| {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        use std::io::{Read, Write};
                        let mut stream = crate::common::accept(&listener);
                        let _ = stream.read(&mut [0; 512]).unwrap();
                        stream.write_all(answer.as_bytes()).unwrap();
                    });
                    let said = server.run(&program, &args, "");
                    let last = said.err.lines().last().unwrap_or_default();
                    // Why is told in other words.
                    (said.code, last.split('(').next().unwrap().to_owned())
                })
            });
            assert_eq!(ends[1], ends[0], "{name} {answer}");
            assert_eq!(ends[1].0, Some(1), "{name} {answer}");
        }
    }
}
