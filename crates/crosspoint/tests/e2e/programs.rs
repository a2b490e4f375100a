//! One binary, many names: through a symbolic link it takes the stock program's command line.

use crate::common::{PROGRAMS, Said, Switch, kill, links, run_dir, wait_for};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The options that a text of help names: long ones with whether they take an argument, and letters.
fn options(help: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = help.split(|c: char| c.is_whitespace() || ",()".contains(c));
    for word in words.map(|w| w.trim_end_matches(['.', ':', ';', '"'])) {
        let bare = word.trim_start_matches('[').trim_end_matches(']');
        if let Some(long) =
            bare.strip_prefix("--").filter(|l| l.starts_with(|c: char| c.is_ascii_lowercase()))
        {
            let name = long.split(['=', '[', '"']).next().unwrap();
            found.push(format!("--{name}"));
        } else if let Some(short) = bare.strip_prefix('-')
            && short.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            found.push(format!("-{}", &short[..1]));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn no_option_of_the_stock_programs_is_unknown() {
    let dir = run_dir();
    let bin = links(dir.path());
    // ovs-vsctl's options are its own tests' business: commands have options too there.
    for name in PROGRAMS.into_iter().filter(|n| *n != "ovs-vsctl") {
        let ours = bin.join(name);
        let mut wanted = options(&dir.run(name, &["--help"]).ok());
        assert!(wanted.len() >= 5, "{name}: {wanted:?}");
        // What `--option` lists is more than what the help names; the daemon has it not.
        let listed = dir.run(name, &["--option"]);
        if listed.code == Some(0) {
            let ours_listed = dir.run(&ours, &["--option"]).ok();
            let lines: Vec<&str> = ours_listed.lines().collect();
            for line in listed.out.lines() {
                assert!(lines.contains(&line), "{name}: --option does not list {line}");
                wanted.push(line.split(['=', ' ']).next().unwrap().to_string());
            }
        } else if name == "ovs-vswitchd" {
            let more = [
                "--mlockall",
                "--enable-dummy",
                "--disable-system",
                "--disable-system-route",
                "--dummy-numa",
            ];
            wanted.extend(
                more.iter().chain(&["--no-self-confinement", "--peer-ca-cert"]).map(|o| o.to_string()),
            );
        }
        for option in wanted {
            // The version ends it before anything is done; that an argument is missing is no matter.
            let said = dir.run(&ours, &["--version", &option]);
            assert!(
                said.code == Some(0) || said.err.contains("requires an argument"),
                "{name}: {option}: {said:?}"
            );
        }
    }
}

#[test]
fn versions_are_where_scripts_look_for_them() {
    let dir = run_dir();
    let bin = links(dir.path());
    for name in PROGRAMS {
        let theirs = dir.run(name, &["--version"]).ok();
        for option in ["--version", "-V"] {
            let ours = dir.run(bin.join(name), &[option]).ok();
            // ovs-ctl takes the last word of the line that says Open vSwitch; others the fourth of the first
            // line.
            assert_eq!(ours.lines().next(), theirs.lines().next());
            assert!(ours.lines().last().unwrap().starts_with("Crosspoint 0."), "{ours}");
        }
        let help = dir.run(bin.join(name), &["--help"]).ok();
        assert!(help.starts_with(&format!("{name}: ")) && help.contains("--version"), "{help}");
    }
}

#[test]
fn wrong_command_lines_are_refused_in_the_stock_programs_words() {
    let dir = run_dir();
    let bin = links(dir.path());
    for (name, args) in [
        ("ovs-vswitchd", &["--nonesuch"][..]),
        ("ovs-vswitchd", &["-Z"]),
        ("ovs-vswitchd", &["--detach=3"]),
        ("ovs-vswitchd", &["--user"]),
        ("ovs-vswitchd", &["--di"]),
        ("ovs-vswitchd", &["-p"]),
        ("ovs-vswitchd", &["a", "b"]),
        ("ovs-vswitchd", &["-vnonesuch"]),
        ("ovs-vswitchd", &["--dpdk"]),
        ("ovs-vswitchd", &["--enable-dummy=foo"]),
        ("ovs-vswitchd", &["--enable-dummy=foo", "--version"]),
        ("ovs-vswitchd", &["--pidfile=/nonexistent/x"]),
        ("ovs-appctl", &[]),
        ("ovs-appctl", &["-T", "0", "version"]),
        ("ovs-appctl", &["--nonesuch"]),
        ("ovs-appctl", &["-e"]),
        ("ovs-appctl", &["-e", "--execute", "version"]),
        ("ovs-dpctl", &[]),
        ("ovs-dpctl", &["--more=3"]),
        ("ovs-ofctl", &[]),
        ("ovs-ofctl", &["nonesuch"]),
        ("ovs-ofctl", &["--re=3", "show"]),
        ("ovs-ofctl", &["--help", "-Z"]),
        ("ovs-ofctl", &["--read-only", "del-flows", "br0"]),
        ("ovs-ofctl", &["-t", "x", "show", "br0"]),
        ("ovs-vsctl", &[]),
        ("ovs-vsctl", &["nonesuch"]),
        ("ovs-vsctl", &["--nonesuch"]),
        ("ovs-vsctl", &["-Z"]),
        ("ovs-vsctl", &["--nonesuch=3"]),
        ("ovs-vsctl", &["--version", "--nonesuch"]),
        ("ovs-vsctl", &["--timeout=x", "show"]),
        ("ovs-vsctl", &["-vnonesuch"]),
        ("ovsdb-client", &[]),
        ("ovsdb-client", &["nonesuch"]),
        ("ovsdb-client", &["--nonesuch"]),
        ("ovsdb-client", &["-Z"]),
        ("ovsdb-client", &["-vnonesuch"]),
        ("ovsdb-server", &["--nonesuch"]),
        ("ovsdb-server", &["-Z"]),
        ("ovsdb-server", &["-vnonesuch"]),
        ("ovsdb-tool", &[]),
        ("ovsdb-tool", &["nonesuch"]),
        ("ovsdb-tool", &["--nonesuch"]),
        ("ovsdb-tool", &["-Z"]),
    ] {
        let theirs = dir.run(name, args);
        let ours = dir.run(bin.join(name), args);
        assert_eq!(ours.code, theirs.code, "{name} {args:?}: {ours:?} {theirs:?}");
        // The stock one names a file that it makes first.
        let text = |s: &Said| s.err.replace("/nonexistent/x.tmp:", "/nonexistent/x:");
        assert_eq!(text(&ours), text(&theirs), "{name} {args:?}");
    }
}

#[test]
fn arguments_that_are_not_utf_8_are_refused_and_not_changed() {
    use std::os::unix::ffi::OsStrExt;
    let dir = run_dir();
    let bin = links(dir.path());
    let value = std::ffi::OsStr::from_bytes(b"external-ids:x=\xff");
    let said =
        Command::new(bin.join("ovs-vsctl")).args(["set", "bridge", "br0"]).arg(value).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("not UTF-8"), "{said:?}");
}

#[test]
fn the_links_serve_a_running_switch_as_the_stock_programs_do() {
    let switch = Switch::dummy();
    let bin = links(switch.dir.path());
    let ours = |name: &str, args: &[&str]| switch.run(bin.join(name), args);
    for (name, args) in [
        ("ovs-appctl", &["version"][..]),
        ("ovs-appctl", &["--target=ovs-vswitchd", "-T5", "dpctl/show"]),
        ("ovs-appctl", &["-t", "nonesuch", "version"]),
        ("ovs-appctl", &["-t", "/nonexistent", "version"]),
        ("ovs-appctl", &["--execute", "version"]),
        ("ovs-appctl", &["-e", "fdb/show", "br0"]),
        ("ovs-appctl", &["fdb/show", "nonesuch"]),
        ("ovs-ofctl", &["dump-flows", "br0"]),
        ("ovs-ofctl", &["-OOpenFlow13", "--names", "get-frags", "br0"]),
        ("ovs-ofctl", &["--sort", "dump-flows", "br0"]),
    ] {
        let (ours, theirs) = (ours(name, args), switch.run(name, args));
        assert_eq!((&ours.out, ours.code), (&theirs.out, theirs.code), "{name} {args:?}");
        assert_eq!(without_log(&ours.err), without_log(&theirs.err), "{name} {args:?}");
    }
    // Nobody holds this pid file.
    std::fs::write(switch.dir.path().join("stale.pid"), format!("{}\n", switch.pid())).unwrap();
    for args in [
        &["-vjsonrpc:dbg", "version"][..],
        &["-vjsonrpc:dbg", "fdb/show", "nonesuch", "a \"b\""],
        &["-t", "nonesuch", "version"],
        &["-t", "/nonexistent", "version"],
        &["-t", "stale", "version"],
    ] {
        let (ours, theirs) = (ours("ovs-appctl", args), switch.run("ovs-appctl", args));
        assert_eq!(ours.code, theirs.code, "{args:?}");
        assert_eq!(without_time(&ours.err), without_time(&theirs.err), "{args:?}");
        assert!(!ours.err.is_empty(), "{args:?}");
    }
    let show = switch.appctl(&["dpctl/show", "-s"]).ok();
    assert_eq!(ours("ovs-dpctl", &["-s", "show"]).ok(), show);
    assert_eq!(ours("ovs-dpctl", &["dump-dps"]).ok(), switch.appctl(&["dpctl/dump-dps"]).ok());
    // A datapath by hand is for dummies, which this switch has.
    ours("ovs-dpctl", &["add-dp", "dp0"]).ok();
    assert!(ours("ovs-dpctl", &["dump-dps"]).ok().contains("dp0\n"));
    ours("ovs-dpctl", &["del-dp", "dp0"]).ok();
    assert_eq!(
        ours("ovs-dpctl", &["nonesuch"]).failed(),
        "ovs-dpctl: unknown command 'nonesuch'; use --help for help\n"
    );
}

#[test]
fn ofctl_in_the_background_goes_on_printing_and_takes_its_pid_file_with_it() {
    let switch = Switch::dummy();
    let bin = links(switch.dir.path());
    for program in [PathBuf::from("ovs-ofctl"), bin.join("ovs-ofctl")] {
        let (heard, pid_file) = (switch.dir.path().join("heard"), switch.dir.path().join("ofctl.pid"));
        let status = Command::new(&program)
            .args(["monitor", "br0", "65534", "--detach", "--no-chdir"])
            .arg(format!("--pidfile={}", pid_file.display()))
            .env("OVS_RUNDIR", switch.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&heard).unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "{}", program.display());
        let pid = std::fs::read_to_string(&pid_file).unwrap().trim().to_string();
        switch
            .ofctl(&["packet-out", "br0", "in_port=1 packet=ffffffffffff0200000000010800 actions=controller"])
            .ok();
        wait_for("the packet to be told", || std::fs::read_to_string(&heard).unwrap().contains("PACKET_IN"));
        kill("TERM", pid.parse().unwrap());
        // Its parent is gone, and whoever has it now may not have heard of its end.
        wait_for("its end", || std::fs::read_link(format!("/proc/{pid}/exe")).is_err());
        assert!(!pid_file.exists(), "{}: the pid file is still there", program.display());
    }
}

/// Standard error with lines of the log from after their times on.
fn without_time(err: &str) -> Vec<&str> {
    let from = |line: &str| if line.starts_with("20") { line.find('|').unwrap_or(0) } else { 0 };
    err.lines().map(|line| &line[from(line)..]).collect()
}

/// Standard error without lines of the log, which carry the time.
fn without_log(err: &str) -> String {
    err.lines().filter(|l| !l.contains('|')).map(|l| format!("{l}\n")).collect()
}
