//! What `make install` installs: links, help, manual pages and completion, each tried as its reader does.

use crate::common::{PROGRAMS, Said, Switch, binary, run_dir};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn said(command: &mut Command) -> Said {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Said {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

fn crosspoint(args: &[&str]) -> Said {
    said(Command::new(binary()).args(args))
}

/// `make install` into a directory; what is below `PREFIX`.
fn install(dir: &Path) -> PathBuf {
    let make = said(
        Command::new("make")
            .args(["-s", "install", "PREFIX=/opt/cp", &format!("DESTDIR={}", dir.display())])
            .env("CROSSPOINT_BINARY", binary())
            .current_dir(testkit::root()),
    );
    make.ok();
    dir.join("opt/cp")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn help_groups_commands_and_help_of_a_command_is_its_own() {
    let main = crosspoint(&["--help"]).ok();
    for part in ["\nDaemons:\n", "\nDatabases:\n", "\n  vsctl ", "\n  top "] {
        assert!(main.contains(part), "{part:?} is missing:\n{main}");
    }
    assert_eq!(crosspoint(&["help"]).ok(), main);
    for command in ["vsctl", "ofctl", "appctl", "dpctl", "ovsdb-server", "ovsdb-client", "ovsdb-tool"] {
        let help = crosspoint(&["help", command]).ok();
        assert!(help.starts_with(&format!("crosspoint {command}: ")), "{help}");
        assert_eq!(help, crosspoint(&[command, "--help"]).ok());
        assert!(help.contains(&format!("\nExamples:\n  crosspoint {command} ")), "{help}");
    }
    for command in ["switch", "top", "demo", "guest", "bench", "generate"] {
        assert_eq!(crosspoint(&["help", command]).ok(), crosspoint(&[command, "--help"]).ok());
        assert!(crosspoint(&["help", command]).ok().contains("Examples:\n"), "{command}");
    }
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    for (args, expected) in [
        (&["vsctl", "ad-port", "br0", "eth1"][..], "did you mean 'add-port'?"),
        (&["vsctl", "--no-wiat", "show"], "did you mean '--no-wait'?"),
        (&["ofctl", "dumpflows", "br0"], "did you mean 'dump-flows'?"),
        (&["ofctl", "--bundel", "add-flows", "br0", "x"], "did you mean '--bundle'?"),
        (&["ovsdb-client", "list-tabels"], "did you mean 'list-tables'?"),
        (&["ovsdb-tool", "creat"], "did you mean 'create'?"),
        (&["swich"], "'switch'"),
        (&["help", "vsclt"], "'vsctl'"),
        (&["vsctl", "--no-wait", "list", "Brigde"], "\n(did you mean 'Bridge'?)\n"),
        (
            &["vsctl", "--no-wait", "set", "bridge", "x", "fail_mdoe=secure"],
            "\n(did you mean 'fail_mode'?)\n",
        ),
        (&["ofctl", "parse-flow", "tcp,tp_dts=80,actions=drop"], "tp_dts\n(did you mean 'tp_dst'?)\n"),
        (&["ofctl", "parse-flow", "pirority=1,actions=drop"], "pirority\n(did you mean 'priority'?)\n"),
        (&["ofctl", "parse-flow", "actions=outptu:1"], "unknown action outptu\n(did you mean 'output'?)\n"),
        (&["ofctl", "parse-flow", "actions=load:1->rge0[]"], "\n(did you mean 'reg0'?)\n"),
        (&["ofctl", "parse-flow", "actions=set_field:1->tcp_scr"], "\n(did you mean 'tcp_src'?)\n"),
        (&["switch", "--brigde", "br0"], "'--bridge'"),
    ] {
        let error = crosspoint(args).failed();
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let error = crosspoint(&["vsctl", "frobnicate"]).failed();
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn make_install_installs_links_that_run() {
    let dir = run_dir();
    let prefix = install(dir.path());
    for name in PROGRAMS {
        let directory = if matches!(name, "ovs-vswitchd" | "ovsdb-server") { "sbin" } else { "bin" };
        let version = said(Command::new(prefix.join(directory).join(name)).arg("--version")).ok();
        assert!(version.starts_with(&format!("{name} (Open vSwitch) ")), "{version}");
    }
    said(Command::new(prefix.join("bin/crosspoint")).arg("--version")).ok();
    // It needs mirrors, and says what to do without them, whatever it is told to capture.
    let refused = said(Command::new(prefix.join("bin/ovs-tcpdump")).args(["-i", "p1", "-nn", "tcp"]));
    assert_eq!(refused.code, Some(1));
    let first =
        "ovs-tcpdump: captures need mirrors, which are not implemented. Use instead\n  tcpdump -i IFACE: ";
    assert!(refused.err.starts_with(first), "{}", refused.err);
}

#[test]
fn every_name_and_subcommand_has_a_manual_page_that_man_shows_without_warnings() {
    let dir = run_dir();
    let prefix = install(dir.path());
    let pages: Vec<PathBuf> =
        ["man1", "man8"].iter().flat_map(|section| files(&prefix.join("share/man").join(section))).collect();
    let names: Vec<&str> = pages.iter().map(|page| page.file_stem().unwrap().to_str().unwrap()).collect();
    for name in PROGRAMS {
        assert!(names.contains(&name), "{name} has no page: {names:?}");
    }
    let subcommands = ["appctl", "bench", "demo", "dpctl", "generate", "guest", "ofctl", "ovsdb-client"];
    for name in subcommands.iter().chain(&["ovsdb-server", "ovsdb-tool", "switch", "top", "vsctl"]) {
        assert!(names.contains(&format!("crosspoint-{name}").as_str()), "{name} has no page: {names:?}");
    }
    for page in &pages {
        let shown = said(
            Command::new("man")
                .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
                .arg(page)
                .env("LC_ALL", "C.UTF-8")
                .env("MANROFFSEQ", "")
                .env("MANWIDTH", "80"),
        );
        assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""), "{}", page.display());
        let text = said(
            Command::new("man")
                .arg("-l")
                .arg(page)
                .env("LC_ALL", "C.UTF-8")
                .env("MANWIDTH", "100")
                .env("MAN_KEEP_FORMATTING", ""),
        )
        .ok();
        for part in ["NAME", "SYNOPSIS", "EXAMPLES"] {
            assert!(text.lines().any(|line| line.trim() == part), "{}: no {part}:\n{text}", page.display());
        }
    }
    // Where Open vSwitch has it.
    assert!(prefix.join("share/man/man1/ovs-pcap.1").exists() && names.contains(&"ovs-tcpdump"));
    // The page has what the help has.
    let page = std::fs::read_to_string(prefix.join("share/man/man8/ovs-vsctl.8")).unwrap();
    for part in ["add\\-port BRIDGE PORT", "\\-\\-no\\-wait", "emer\\-reset"] {
        assert!(page.contains(part), "{part} is missing:\n{page}");
    }
}

/// Candidates that bash offers, by the script of a name, for the last of the words.
fn bash_offers(script: &Path, words: &[&str]) -> Vec<String> {
    let name = words[0];
    let line = words.join(" ");
    let program = format!(
        ". '{}'; function=$(complete -p {name} | sed 's/.*-F \\([^ ]*\\) .*/\\1/'); COMP_WORDS=({line}); \
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
         $function {name} '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words[words.len() - 1],
        words[words.len() - 2],
    );
    // `compopt` works only while bash completes; without it the candidates are the same.
    let said = said(Command::new("bash").args(["--norc", "-c", &format!("compopt() {{ :; }}; {program}")]));
    said.ok().lines().map(str::to_string).collect()
}

#[test]
fn bash_completes_commands_and_options_of_every_name() {
    let dir = run_dir();
    let scripts = install(dir.path()).join("share/bash-completion/completions");
    for (words, expected) in [
        (&["ovs-vsctl", "add-p"][..], "add-port"),
        (&["ovs-vsctl", "--no-w"], "--no-wait"),
        (&["ovs-ofctl", "dump-fl"], "dump-flows"),
        (&["ovs-appctl", "ofproto/tr"], "ofproto/trace"),
        (&["ovs-dpctl", "dump-f"], "dump-flows"),
        (&["ovsdb-client", "list-t"], "list-tables"),
        (&["ovsdb-tool", "show"], "show-log"),
        (&["ovsdb-server", "--rem"], "--remote"),
        (&["ovs-vswitchd", "--mlo"], "--mlockall"),
        (&["crosspoint", "vs"], "vsctl"),
        (&["crosspoint", "vsctl", "add-p"], "add-port"),
        (&["crosspoint", "switch", "--pmd"], "--pmd-cpu-mask"),
        (&["crosspoint", "bench", "run", "pv"], "pvp-matrix"),
        (&["crosspoint", "bench", "run", "p2p", "load-c"], "load-curve"),
        (&["crosspoint", "bench", "run", "p2p", "--switch", "ovs-d"], "ovs-dpdk"),
    ] {
        let offers = bash_offers(&scripts.join(words[0]), words);
        assert!(offers.iter().any(|offer| offer == expected), "{words:?}: {offers:?}");
    }
    let offers = bash_offers(&scripts.join("crosspoint"), &["crosspoint", "demo"]);
    assert_eq!(offers, ["demo"], "and not what is hidden");
    let offers = bash_offers(&scripts.join("crosspoint"), &["crosspoint", "bench", "p"]);
    assert_eq!(offers, ["p2p", "pvp"], "and no measurement that suites run");
}

#[test]
fn zsh_and_fish_read_their_scripts() {
    let dir = run_dir();
    let share = install(dir.path()).join("share");
    let scripts = files(&share.join("zsh/site-functions"));
    // Beside them `crosspoint`, `ovs-pcap` and `ovs-tcpdump`.
    assert_eq!(scripts.len(), PROGRAMS.len() + 3);
    for script in scripts {
        said(Command::new("zsh").args(["-f", "-n"]).arg(&script)).ok();
    }
    for script in files(&share.join("fish/vendor_completions.d")) {
        said(Command::new("fish").args(["--no-config", "--no-execute"]).arg(&script)).ok();
    }
    // fish can be asked what it would offer.
    let fish = |name: &str, line: &str| {
        let script = share.join(format!("fish/vendor_completions.d/{name}.fish"));
        let program = format!("source {}; complete --do-complete '{line}'", script.display());
        said(Command::new("fish").args(["--no-config", "-c", &program]).env("HOME", dir.path())).ok()
    };
    assert!(fish("ovs-vsctl", "ovs-vsctl add-p").contains("add-port"));
    assert!(fish("crosspoint", "crosspoint vsctl add-p").contains("add-port"));
    assert!(fish("ovs-ofctl", "ovs-ofctl --bun").contains("--bundle"));
    assert!(fish("crosspoint", "crosspoint bench run pv").contains("pvp-matrix"));
    assert!(fish("crosspoint", "crosspoint bench run p2p load-c").contains("load-curve"));
    assert!(fish("crosspoint", "crosspoint bench run p2p --switch ovs-d").contains("ovs-dpdk"));
    assert!(fish("crosspoint", "crosspoint generate compl").contains("completion"));
    // zsh offers what its script lists.
    let zsh = std::fs::read_to_string(share.join("zsh/site-functions/_crosspoint")).unwrap();
    for (argument, value) in
        [("names", "pvp-matrix"), ("--switch", "ovs-dpdk"), ("--generator", "testpmd-txonly")]
    {
        let line = zsh.lines().find(|line| line.contains(argument) && line.contains(value));
        assert!(line.is_some(), "{argument}: no {value} in\n{zsh}");
    }
}

#[test]
fn the_stock_completion_scripts_work_with_our_programs() {
    let switch = Switch::dummy();
    let bin = switch.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in PROGRAMS {
        std::os::unix::fs::symlink(binary(), bin.join(name)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let bash = |script: &str, args: &[&str]| {
        let script = format!("/usr/share/bash-completion/completions/{script}");
        let said = said(
            Command::new("bash")
                .arg(script)
                .args(args)
                .env("OVS_RUNDIR", switch.dir.path())
                .env("PATH", &path),
        );
        said.out + &said.err
    };
    // It offers what `list-commands` of the daemon lists, with the options of the program.
    let offered = bash("ovs-appctl-bashcomp.bash", &["debug", "ovs-appctl", "fdb/sh"]);
    assert!(offered.contains("fdb/show"), "{offered}");
    let offered = bash("ovs-appctl-bashcomp.bash", &["debug", "ovs-appctl", "--tar"]);
    assert!(offered.contains("--target"), "{offered}");
    let offered = bash("ovs-appctl-bashcomp.bash", &["debug", "ovs-dpctl", "--stat"]);
    assert!(offered.contains("--statistics"), "{offered}");
}

#[test]
fn the_stock_completion_of_vsctl_works_with_a_database() {
    let dir = run_dir();
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("bin")).unwrap();
    for name in PROGRAMS {
        std::os::unix::fs::symlink(binary(), path("bin").join(name)).unwrap();
    }
    let environment = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap());
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    let run = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", script]).env("OVS_RUNDIR", dir.path()).env("PATH", &environment);
        said(command.env("OVS_LOGDIR", dir.path()).env("OVS_DBDIR", dir.path()))
    };
    let _server = Stop(path("ovsdb-server.pid"));
    run(&format!(
        "cd $OVS_DBDIR && ovsdb-tool create conf.db {schema} && \
         ovsdb-server --detach --pidfile --log-file --remote=punix:$OVS_RUNDIR/db.sock conf.db && \
         ovs-vsctl --no-wait add-br br0 -- add-br other"
    ))
    .ok();
    let offer = |line: &str| {
        let script = "/usr/share/bash-completion/completions/ovs-vsctl-bashcomp.bash";
        let said = run(&format!("bash {script} test '{line}'"));
        said.out + &said.err
    };
    assert_eq!(offer("add-por").trim(), "add-port");
    assert_eq!(offer("--no-wa").trim(), "--no-wait");
    let bridges = offer("del-br ");
    assert!(bridges.contains("br0") && bridges.contains("other"), "{bridges}");
}

/// Ends the process of a pid file.
struct Stop(PathBuf);

impl Drop for Stop {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.0) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}
