//! The database that the switch serves itself, and its start.

use super::*;

/// The switch that serves its database itself, in a directory and a namespace.
fn embedded(dir: &RunDir, log: &str) -> Process {
    let mut command = dir.command("unshare");
    command.arg("--net").arg(binary()).args(["switch", "--enable-dummy", "--pool-size", "4096"]);
    Process::logged(&mut command, dir.file(log))
}

#[test]
fn without_arguments_it_serves_its_own_database_and_takes_over_what_a_killed_one_left() {
    let dir = run_dir();
    let path = |name: &str| dir.file(name);
    let log = || dir.read("log");
    let run = |program: &str, args: &[&str]| dir.run(program, args);
    let switch = embedded(&dir, "log");
    wait_for("the switch to run", || log().contains("(Open vSwitch)"));
    let pid = switch.id();
    for name in ["conf.db", "db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid"] {
        assert!(path(name).exists(), "{name}");
    }
    assert!(
        path(&format!("ovs-vswitchd.{pid}.ctl")).exists()
            && path(&format!("ovsdb-server.{pid}.ctl")).exists()
    );
    let add = ["--timeout=30", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"];
    run("ovs-vsctl", &add).ok();
    let add = [
        "--timeout=30",
        "add-port",
        "br0",
        "p1",
        "--",
        "set",
        "interface",
        "p1",
        "type=dummy",
        "ofport_request=9",
    ];
    run("ovs-vsctl", &add).ok();
    assert!(run("ovs-ofctl", &["show", "br0"]).ok().contains(" 9(p1)"));
    run("ovs-appctl", &["-t", "ovsdb-server", "list-commands"]).ok();
    // A second one disturbs nothing.
    let second = embedded(&dir, "second.log").wait().unwrap();
    assert!(!second.success());
    run("ovs-vsctl", &["--timeout=30", "br-exists", "br0"]).ok();

    drop(switch);
    assert!(path("db.sock").exists());
    std::fs::write(path("log"), "").unwrap();
    let switch = embedded(&dir, "log");
    wait_for("the switch to run again", || log().contains("(Open vSwitch)"));
    wait_for("the port", || run("ovs-ofctl", &["show", "br0"]).out.contains(" 9(p1)"));
    assert!(switch.end_by("TERM").success());
    for name in ["db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid", "br0.mgmt"] {
        assert!(!path(name).exists(), "{name}");
    }
    // As the stock switch does, it warns that a signal ends it.
    let is_bad = |l: &str| {
        (l.contains("|WARN|") || l.contains("|ERR|"))
            && !l.contains("terminating with signal 15 (Terminated)")
    };
    assert!(!log().lines().any(is_bad), "{}", log());
}

#[test]
fn a_database_that_nobody_has_initialised_gets_its_first_row_and_the_switch_runs() {
    let dir = run_dir();
    dir.run("ovsdb-tool", &["create", "conf.db", SCHEMA]).ok();
    let mut command = dir.command("unshare");
    command.arg("--net").arg(binary()).args(["switch", "--detach", "--enable-dummy", "--pool-size", "4096"]);
    run(command.args([&format!("--log-file={}", dir.file("log").display()), "-vconsole:off"])).ok();
    let vsctl = |args: &[&str]| dir.run("ovs-vsctl", &[&["--timeout=30"], args].concat());
    assert_eq!(vsctl(&["get", "Open_vSwitch", ".", "cur_cfg"]).ok(), "0\n");

    // What it reads of daemons' pid files for its statistics costs it the locks of neither of its own.
    vsctl(&["set", "Open_vSwitch", ".", "other_config:enable-statistics=true"]).ok();
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let key = format!("statistics:process_{daemon}");
        wait_for(&key, || vsctl(&["--if-exists", "get", "Open_vSwitch", ".", &key]).out.contains(','));
    }
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        dir.run("ovs-appctl", &["-t", daemon, "version"]).ok();
    }
    dir.run("ovs-appctl", &["exit"]).ok();
    wait_for("its end", || !dir.file("ovs-vswitchd.pid").exists());
    let added = dir.run("ovsdb-tool", &["show-log", "conf.db"]).ok();
    assert!(added.contains("first row"), "{added}");
}

#[test]
fn an_argument_that_is_no_database_is_refused() {
    for argument in ["nonsense", "punix:/tmp/x", "unix:"] {
        let output = Command::new(binary()).args(["switch", argument]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

/// The switch with its own database in a directory, on this machine's network.
fn self_contained(dir: &RunDir, more: &[&str]) -> Process {
    let args = [&["--enable-dummy", "--pool-size", "4096"], more].concat();
    let child = Process::start(&mut daemon(dir, &args));
    wait_for("the database's socket", || testkit::listens(dir.file("db.sock")));
    child
}

#[test]
fn exit_to_the_embedded_server_ends_the_process_that_it_is_part_of() {
    let dir = run_dir();
    let mut switch = self_contained(&dir, &[]);
    let appctl = |args: &[&str]| dir.appctl(args);
    wait_for("the switch", || appctl(&["version"]).code == Some(0));
    assert_eq!(
        appctl(&["-t", "ovsdb-server", "version"]).ok(),
        "ovsdb-server (Open vSwitch) 3.1.0\nCrosspoint 0.1.0\n"
    );
    assert_eq!(
        appctl(&["-t", "ovs-vswitchd", "version"]).ok(),
        "ovs-vswitchd (Open vSwitch) 3.1.0\nCrosspoint 0.1.0\n"
    );
    // A manager that can be neither reached nor listened for says so in its row.
    let vsctl = |args: &[&str]| dir.run("ovs-vsctl", &[&["--timeout=30"], args].concat());
    vsctl(&["set-manager", "foo:x"]).ok();
    let status = |key: &str| vsctl(&["--if-exists", "get", "manager", "foo:x", &format!("status:{key}")]).out;
    wait_for("its status", || status("last_error").contains("foo:x"));
    assert_eq!(status("state"), "BACKOFF\n");
    assert_eq!(appctl(&["-t", "ovsdb-server", "exit"]).ok(), "");
    assert!(switch.wait().unwrap().success());
    for name in ["db.sock", "ovs-vswitchd.pid", "ovsdb-server.pid"] {
        assert!(!dir.file(name).exists(), "{name}");
    }
}

#[test]
fn managers_reach_the_embedded_server_over_tls() {
    let pki = run_dir();
    for words in
        [&["init"][..], &["-u", "req+sign", "ctl", "controller"], &["-u", "req+sign", "sc", "switch"]]
    {
        pki.run("ovs-pki", &[&["--dir=pki", "--log=log"], words].concat()).ok();
    }
    let file = |name: &str| pki.path().join(name).display().to_string();
    let keys = [file("ctl-privkey.pem"), file("ctl-cert.pem"), file("pki/switchca/cacert.pem")];
    let options = ["private-key", "certificate", "ca-cert"];
    let of_table = ["private_key", "certificate", "ca_cert"].map(|c| format!("db:Open_vSwitch,SSL,{c}"));
    let given = |values: &[String; 3]| -> Vec<String> {
        options.iter().zip(values).map(|(option, value)| format!("--{option}={value}")).collect()
    };
    // From the table without being told, and when told; from files.
    for (flags, is_in_table) in [(vec![], true), (given(&of_table), true), (given(&keys), false)] {
        let dir = run_dir();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let _switch = self_contained(&dir, &flags);
        let vsctl = |args: &[&str]| dir.run("ovs-vsctl", &[&["--timeout=30"], args].concat());
        if is_in_table {
            vsctl(&["set-ssl", &keys[0], &keys[1], &keys[2]]).ok();
        }
        let target = "pssl:0:127.0.0.1";
        vsctl(&["set-manager", target]).ok();
        let port = || {
            let port = vsctl(&["--if-exists", "get", "manager", target, "status:bound_port"]).out;
            port.trim().trim_matches('"').parse::<u16>().ok()
        };
        wait_for("the port", || port().is_some());
        let remote = format!("ssl:127.0.0.1:{}", port().unwrap());
        let (key, certificate) = (file("sc-privkey.pem"), file("sc-cert.pem"));
        let ca = file("pki/controllerca/cacert.pem");
        let list = ["-t", "20", "-p", &key, "-c", &certificate, "-C", &ca, "list-dbs", &remote];
        assert_eq!(dir.run("ovsdb-client", &list).ok(), "Open_vSwitch\n_Server\n");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_in_the_stock_servers_words() {
    let (ours, stock) = (run_dir(), run_dir());
    let _server = stock.serve_database();
    let _switch = self_contained(&ours, &[]);
    let socket = |dir: &Path| UnixStream::connect(dir.join("db.sock")).unwrap();
    // The first answers to come, as many as are asked for.
    let answers = |dir: &Path, requests: &str, count: usize| -> Vec<serde_json::Value> {
        let mut stream = socket(dir);
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        stream.write_all(requests.as_bytes()).unwrap();
        let messages = serde_json::Deserializer::from_reader(stream).into_iter();
        // The stock server leaves out a result that is none.
        messages
            .take(count)
            .map(|m| m.unwrap())
            .map(|m: serde_json::Value| serde_json::json!([m["id"], m["error"]]))
            .collect()
    };
    let insert = |more: &str| {
        format!(
            r#"{{"method":"transact","id":1,"params":["Open_vSwitch",{{"op":"insert","table":"Bridge",{more}}}]}}"#
        )
    };
    for more in [
        r#""row":{"name":"x"},"uuid-name":"i i""#,
        r#""row":{"name":"x"},"uuid-name":"1i""#,
        r#""row":{"name":"x"},"uuid-name":"""#,
        r#""row":{"ports":["named-uuid","a b"]}"#,
    ] {
        let request = insert(more);
        assert_eq!(answers(ours.path(), &request, 1), answers(stock.path(), &request, 1), "{more}");
    }
    let wait = r#"{"method":"transact","id":7,"params":["Open_vSwitch",{"op":"wait","table":"Bridge","timeout":60000,
        "columns":["name"],"until":"==","where":[],"rows":[{"name":"zz"}]}]}"#;
    let requests = format!("{wait}{wait}{{\"method\":\"echo\",\"id\":7,\"params\":[]}}");
    let (mine, theirs) = (answers(ours.path(), &requests, 2), answers(stock.path(), &requests, 2));
    assert_eq!(mine, theirs);
    assert!(mine[0].to_string().contains("duplicate request ID"), "{mine:?}");
}
