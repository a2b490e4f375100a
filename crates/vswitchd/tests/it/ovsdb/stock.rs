//! What the stock clients do with our server.

use crate::ovsdb::rig::{Client, Rig, create, ok, run, schema};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::lab::wait_for;

fn insert(name: &str) -> Value {
    json!([{"op": "insert", "table": "Logical_Port", "uuid-name": "p", "row": {"name": format!("{name}-port"), "tag": 5}},
        {"op": "insert", "table": "Logical_Switch", "row": {"name": name, "ports": ["named-uuid", "p"],
            "external_ids": ["map", [["a", "1"]]]}}])
}

#[test]
fn databases_schemas_and_rows_are_shown() {
    let rig = Rig::new();
    assert_eq!(rig.client(&["list-dbs", "S"]), "D\n_Server\n");
    let shown: Value = serde_json::from_str(&rig.client(&["get-schema", "S", "D"])).unwrap();
    assert_eq!(shown, schema());
    assert_eq!(rig.client(&["get-schema-version", "S", "D"]), "1.2.3\n");
    assert!(rig.client(&["list-columns", "S", "D", "Counter"]).contains("\"integer\""));
    rig.transact(insert("sw0"));
    let dump = rig.client(&["dump", "S", "D", "Logical_Switch", "name", "external_ids"]);
    assert_eq!(dump, "Logical_Switch table\nexternal_ids name\n------------ ----\n{a=\"1\"}      sw0\n");
    let query = json!(["D", {"op": "select", "table": "Logical_Port", "where": [], "columns": ["tag"]}]);
    let found: Value = serde_json::from_str(&rig.client(&["query", "S", &query.to_string()])).unwrap();
    assert_eq!(found, json!([{"rows": [{"tag": 5}]}]));
    let server = rig.client(&["dump", "S", "_Server", "Database", "name", "model", "connected", "leader"]);
    assert!(server.contains("true      true   standalone D\n"), "{server}");
}

#[test]
fn one_of_several_requests_for_a_table_that_has_no_condition_asks_for_all_rows() {
    let rig = Rig::new();
    for n in 0..3 {
        rig.transact(json!([{"op": "insert", "table": "Counter", "row": {"n": n, "text": format!("r{n}")}}]));
    }
    let one = json!([["text", "==", "r1"]]);
    for (all, n) in [(json!({"columns": ["n"]}), 7), (json!({"columns": ["n"], "where": []}), 8)] {
        let mut client = rig.connect();
        let requests = json!({"Counter": [all, {"columns": ["text"], "where": one.clone()}]});
        let initial = client.ask("monitor_cond", json!(["D", "m", requests]));
        assert_eq!(initial["Counter"].as_object().unwrap().len(), 3, "{initial}");
        rig.transact(
            json!([{"op": "update", "table": "Counter", "where": [["text", "==", "r2"]], "row": {"n": n}}]),
        );
        let update = client.hear().unwrap();
        assert!(update["params"][1].to_string().contains(&format!("{{\"n\":{n}}}")), "{update}");
        // A condition takes its place as a whole.
        client.say("monitor_cond_change", json!(["m", "m", {"Counter": [{"where": one.clone()}]}]), 1);
        let update = client.hear().unwrap();
        assert_eq!(update["params"][1]["Counter"].as_object().unwrap().len(), 2, "{update}");
        assert_eq!(client.hear().unwrap()["result"], json!({}));
        // Conditions come as a list here.
        client.say("monitor_cond_change", json!(["m", "m", {"Counter": {"where": one.clone()}}]), 2);
        let refused = client.hear().unwrap()["error"].clone();
        assert_eq!(refused["details"], json!("table Counter no monitor-cond-change JSON array"), "{refused}");
    }
}

/// Serves `r.db` there, which has one table T with one column r of this type.
fn serve_column(dir: &Path, column: Value) -> (vswitchd::ovsdb::Handle, Client) {
    let schema = json!({"name": "R", "version": "1.0.0", "tables": {"T": {"isRoot": true,
        "columns": {"r": column}}}});
    std::fs::write(dir.join("r.ovsschema"), schema.to_string()).unwrap();
    ok(dir, "ovsdb-tool", &["create", "r.db", "r.ovsschema"]);
    let options = vswitchd::ovsdb::Options {
        databases: vec![dir.join("r.db")],
        remotes: vec![format!("punix:{}", dir.join("r.sock").display())],
        ..Default::default()
    };
    let server = vswitchd::ovsdb::serve(options).unwrap();
    (server, Client::new(UnixStream::connect(dir.join("r.sock")).unwrap()))
}

#[test]
fn the_stock_tool_reads_a_change_of_more_elements_than_the_column_may_have() {
    let dir = tempfile::tempdir().unwrap();
    let column = json!({"type": {"key": "integer", "min": 0, "max": 3}});
    let (server, mut client) = serve_column(dir.path(), column);
    let value = |elements: &[i64]| json!({"r": ["set", elements]});
    client.ask("transact", json!(["R", {"op": "insert", "table": "T", "row": value(&[1, 2, 3])}]));
    for elements in [[3, 4, 5], [6, 7, 8]] {
        let update = json!({"op": "update", "table": "T", "where": [], "row": value(&elements)});
        assert_eq!(client.ask("transact", json!(["R", update])), json!([{"count": 1}]));
    }
    drop(server);
    let query = json!(["R", {"op": "select", "table": "T", "where": [], "columns": ["r"]}]).to_string();
    let read: Value =
        serde_json::from_str(&ok(dir.path(), "ovsdb-tool", &["query", "r.db", &query])).unwrap();
    assert_eq!(read, json!([{"rows": [value(&[6, 7, 8])]}]));
}

#[test]
fn a_number_that_the_stock_programs_do_not_read_is_refused_and_never_reaches_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client) = serve_column(dir.path(), json!({"type": "real"}));
    let mut insert = |r: f64| {
        let results = client.ask("transact", json!(["R", {"op": "insert", "table": "T", "row": {"r": r}}]));
        results[0]["error"].as_str().map(str::to_owned)
    };
    assert_eq!(insert(1e-320).as_deref(), Some("syntax error"));
    assert_eq!(insert(-5e-324).as_deref(), Some("syntax error"));
    let written = [f64::MIN_POSITIVE, 1e-307, -1e19, f64::MAX];
    assert!(written.into_iter().all(|r| insert(r).is_none()));
    let halve = json!(["R", {"op": "mutate", "table": "T", "where": [], "mutations": [["r", "/=", 2]]}]);
    assert_eq!(client.ask("transact", halve)[0]["error"], json!("range error"));
    drop(server);
    let query = json!(["R", {"op": "select", "table": "T", "where": [], "columns": ["r"]}]).to_string();
    // Shown with 15 digits, by which the least and the greatest one are out of range.
    let read = ok(dir.path(), "ovsdb-tool", &["query", "r.db", &query]);
    assert_eq!(read.matches("\"r\":").count(), written.len(), "{read}");
}

#[test]
fn every_kind_of_monitor_of_the_stock_client_follows() {
    let rig = Rig::new();
    rig.transact(insert("sw0"));
    let condition = json!([["name", "!=", "hidden"]]).to_string();
    let kinds: [(&str, Vec<&str>); 3] = [
        ("monitor", vec!["monitor", "S", "D", "Logical_Switch", "name"]),
        ("monitor-cond", vec!["monitor-cond", "S", "D", &condition, "Logical_Switch", "name"]),
        (
            "monitor-cond-since",
            vec![
                "monitor-cond-since",
                "S",
                "D",
                "00000000-0000-0000-0000-000000000000",
                &condition,
                "Logical_Switch",
                "name",
            ],
        ),
    ];
    let remote = rig.remote();
    let mut running: Vec<_> = kinds
        .iter()
        .map(|(name, arguments)| {
            let arguments = arguments.iter().map(|a| if *a == "S" { &remote } else { *a });
            let output = std::fs::File::create(rig.path(name)).unwrap();
            let child = Command::new("ovsdb-client")
                .args(["--format=csv", "--no-headings"])
                .args(arguments)
                .current_dir(rig.dir.path())
                .stdout(output)
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            (rig.path(name), child)
        })
        .collect();
    let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    for (path, _) in &running {
        wait_for("the initial rows come", || text(path).contains(",initial,sw0"));
    }
    rig.transact(insert("sw1"));
    rig.transact(json!([{"op": "update", "table": "Logical_Switch", "where": [["name", "==", "sw1"]], "row": {"name": "sw2"}}]));
    rig.transact(json!([{"op": "delete", "table": "Logical_Switch", "where": [["name", "==", "sw2"]]}]));
    for (path, child) in &mut running {
        // `update2` says no more of a row that is gone than that it is.
        wait_for("the deletion comes", || text(path).contains(",delete,"));
        let text = text(path);
        // A change is shown as the old and the new row, or as what is different, by the kind of monitor.
        let is_changed =
            text.contains(",old,sw1") && text.contains(",new,sw2") || text.contains(",modify,sw2");
        assert!(text.contains(",insert,sw1") && is_changed, "{text}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_backup_is_taken_and_restored() {
    let rig = Rig::new();
    for i in 0..20 {
        rig.transact(insert(&format!("sw{i}")));
    }
    let backup = rig.client(&["backup", "S", "D"]);
    std::fs::write(rig.path("backup.db"), &backup).unwrap();
    rig.transact(json!([{"op": "delete", "table": "Logical_Switch", "where": []}]));
    let remote = rig.remote();
    let restored = Command::new("ovsdb-client")
        .args(["restore", &remote, "D"])
        .stdin(std::fs::File::open(rig.path("backup.db")).unwrap())
        .output()
        .unwrap();
    assert!(restored.status.success(), "{restored:?}");
    let names = rig.client(&["--no-headings", "dump", "S", "D", "Logical_Switch", "name"]);
    assert_eq!(names.lines().filter(|line| line.starts_with("sw")).count(), 20);
    let ports = rig.client(&["--no-headings", "dump", "S", "D", "Logical_Port", "name"]);
    assert_eq!(ports.lines().filter(|line| line.ends_with("-port")).count(), 20, "{ports}");
}

#[test]
fn conversion_is_asked_about_and_done_while_clients_look_on() {
    let rig = Rig::new();
    rig.transact(insert("sw0"));
    let mut newer = schema();
    newer["version"] = json!("2.0.0");
    newer["tables"]["Logical_Switch"]["columns"]["more"] = json!({"type": "integer"});
    std::fs::write(rig.path("new.ovsschema"), newer.to_string()).unwrap();
    let new = rig.path("new.ovsschema");
    let new = new.to_str().unwrap();
    assert_eq!(rig.client(&["needs-conversion", "S", new]), "yes\n");
    rig.client(&["convert", "S", new]);
    assert_eq!(rig.client(&["needs-conversion", "S", new]), "no\n");
    assert!(rig.client(&["dump", "S", "D", "Logical_Switch", "more"]).contains('0'));
    rig.transact(json!([{"op": "update", "table": "Logical_Switch", "where": [], "row": {"more": 7}}]));
    // What the file holds is what the server has.
    drop(rig.server);
    let file = ok(rig.dir.path(), "ovsdb-tool", &["query", "d.db", &json!(["D", {"op": "select", "table": "Logical_Switch", "where": [], "columns": ["more", "name"]}]).to_string()]);
    assert_eq!(
        serde_json::from_str::<Value>(&file).unwrap(),
        json!([{"rows": [{"more": 7, "name": "sw0"}]}])
    );
}

#[test]
fn locks_and_waiting_for_states_work() {
    let rig = Rig::new();
    rig.client(&["wait", "S", "D", "connected"]);
    rig.client(&["wait", "S", "nonesuch", "removed"]);
    let remote = rig.remote();
    let output = std::fs::File::create(rig.path("lock")).unwrap();
    let mut owner = Command::new("ovsdb-client").args(["lock", &remote, "l"]).stdout(output).spawn().unwrap();
    let text = || std::fs::read_to_string(rig.path("lock")).unwrap();
    wait_for("the lock is got", || text().contains("locked"));
    let mut client = rig.connect();
    assert_eq!(client.ask("lock", json!(["l"])), json!({"locked": false}));
    assert_eq!(client.ask("unlock", json!(["l"])), json!({}));
    assert_eq!(client.ask("steal", json!(["l"])), json!({"locked": true}));
    wait_for("the owner hears of it", || text().contains("stolen"));
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[test]
fn what_was_committed_is_in_the_file_and_the_stock_tool_reads_it() {
    let rig = Rig::new();
    let mut client = rig.connect();
    for i in 0..50 {
        let insert = json!({"op": "insert", "table": "Counter", "row": {"n": i}});
        let durable = json!({"op": "commit", "durable": i % 2 == 0});
        let result =
            client.ask("transact", json!(["D", insert, durable, {"op": "comment", "comment": "counting"}]));
        assert_eq!(result[1], json!({}));
    }
    let log = ok(rig.dir.path(), "ovsdb-tool", &["-m", "show-log", "d.db"]);
    // To be sure that what it has found in the file is on the disk, the first durable transaction has it
    // written anew.
    assert_eq!(log.matches("\"counting\"").count(), 49, "{log}");
    rig.appctl(&["ovsdb-server/compact", "D"]);
    let log = ok(rig.dir.path(), "ovsdb-tool", &["show-log", "d.db"]);
    assert_eq!(log.matches("record ").count(), 2, "{log}");
    assert_eq!(
        client.ask(
            "transact",
            json!(["D", {"op": "select", "table": "Counter", "where": [], "columns": ["n"]}])
        )[0]["rows"]
            .as_array()
            .unwrap()
            .len(),
        50
    );
}

#[test]
fn commands_answer_as_the_stock_servers_do() {
    let rig = Rig::new();
    let socket = format!("punix:{}\n", rig.path("db.sock").display());
    assert_eq!(rig.appctl(&["ovsdb-server/list-dbs"]), "D\n_Server\n");
    assert_eq!(rig.appctl(&["ovsdb-server/list-remotes"]), socket);
    assert_eq!(rig.appctl_fails(&["ovsdb-server/remove-remote", "x"]), "no such remote");
    assert_eq!(
        rig.appctl_fails(&["ovsdb-server/add-db", "nope"]),
        "I/O error: nope: open failed (No such file or directory)"
    );
    let file = rig.path("d.db");
    let file = file.to_str().unwrap();
    assert_eq!(
        rig.appctl_fails(&["ovsdb-server/add-db", file]),
        format!("ovsdb error: {file}: already open")
    );
    assert_eq!(rig.appctl_fails(&["ovsdb-server/remove-db", "nope"]), "Failed to find the database.");
    assert_eq!(rig.appctl_fails(&["ovsdb-server/remove-db", "_Server"]), "Cannot remove reserved database.");
    assert_eq!(rig.appctl_fails(&["ovsdb-server/compact", "_Server"]), "cannot compact built-in databases");
    assert_eq!(rig.appctl_fails(&["ovsdb-server/compact", "X"]), "no database by that name");
    assert_eq!(rig.appctl(&["ovsdb-server/sync-status"]), "state: active\n");
    assert_eq!(rig.appctl(&["ovsdb-server/get-db-storage-status", "D"]), "status: ok\n");
    for (remote, why) in [
        ("db:X,Y,z", "no database named X"),
        ("db:D,Y,z", "no table named Y"),
        ("db:D,Global,z", "table \"Global\" has no column \"z\""),
        ("db:D", "invalid syntax"),
    ] {
        assert_eq!(rig.appctl_fails(&["ovsdb-server/add-remote", remote]), format!("\"{remote}\": {why}"));
    }
    rig.appctl(&["ovsdb-server/set-sync-exclude-tables", "D:Counter"]);
    assert_eq!(rig.appctl(&["ovsdb-server/get-sync-exclude-tables"]), "D:Counter\n");
    rig.appctl(&["ovsdb-server/set-active-ovsdb-server", "tcp:127.0.0.1:9"]);
    assert_eq!(rig.appctl(&["ovsdb-server/get-active-ovsdb-server"]), "tcp:127.0.0.1:9\n");
    assert_eq!(
        rig.appctl(&["ovsdb-server/perf-counters-show"]),
        "performance counter is not supported on this platform\n"
    );
    assert_eq!(rig.appctl_fails(&["ovsdb-server/tlog-set", "D:Z", "on"]), "no such table");
    rig.appctl(&["ovsdb-server/tlog-set", "D:Counter", "on"]);
    assert!(rig.appctl(&["ovsdb-server/tlog-list"]).contains("Counter                     ON"));
    let memory = rig.appctl(&["memory/show"]);
    assert!(memory.contains("monitors:0") && memory.contains("sessions:0"), "{memory}");
    // Every command of the stock server is there.
    let dir = tempfile::tempdir().unwrap();
    create(dir.path());
    let ctl = dir.path().join("ctl");
    let mut stock = Command::new("ovsdb-server")
        .args(["-vconsole:off", &format!("--unixctl={}", ctl.display()), "d.db"])
        .current_dir(dir.path())
        .env("OVS_RUNDIR", dir.path())
        .spawn()
        .unwrap();
    wait_for("the stock server runs", || testkit::listens(&ctl));
    let theirs = ok(dir.path(), "ovs-appctl", &["-t", ctl.to_str().unwrap(), "list-commands"]);
    stock.kill().unwrap();
    stock.wait().unwrap();
    let ours = rig.appctl(&["list-commands"]);
    let ours: Vec<&str> = ours.lines().collect();
    let missing: Vec<&str> = theirs
        .lines()
        .filter(|line| !ours.contains(line) && !line.contains("disable-monitor-cond"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn databases_come_and_go_while_it_runs() {
    let rig = Rig::new();
    let file = rig.path("d.db");
    rig.appctl(&["ovsdb-server/remove-db", "D"]);
    assert_eq!(rig.client(&["list-dbs", "S"]), "_Server\n");
    rig.appctl(&["ovsdb-server/add-db", file.to_str().unwrap()]);
    assert_eq!(rig.client(&["list-dbs", "S"]), "D\n_Server\n");
    let output = run(rig.dir.path(), "ovsdb-tool", &["compact", "d.db"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("lock"), "the file is locked: {output:?}");
}

#[test]
fn pythons_idl_and_ovsdbapp_configure_a_switch_by_it() {
    let rig = Rig::with(|options| {
        let dir = options.control.as_ref().unwrap().parent().unwrap();
        ok(dir, "ovsdb-tool", &["create", "conf.db", "/usr/share/openvswitch/vswitch.ovsschema"]);
        options.databases.push(dir.join("conf.db"));
    });
    ok(rig.dir.path(), "ovs-vsctl", &["--no-wait", &format!("--db={}", rig.remote()), "init"]);
    let script = testkit::root().join("crates/vswitchd/tests/it/ovsdb/idl.py");
    let output = Command::new(testkit::python()).arg(script).arg(rig.remote()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}
