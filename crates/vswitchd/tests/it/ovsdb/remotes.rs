//! Where it listens and connects, with and without TLS, by options and by columns; and backups.

use crate::ovsdb::rig::{Client, Rig, create, ok, run};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use testkit::lab::{accept, wait_for};
use transport::{Bootstrap, TlsFiles};
use vswitchd::ovsdb::{ConfigFile, Options, serve};

const COLUMN: &str = "db:D,Global,connections";

/// A server whose remotes are rows of Connection.
fn by_columns() -> Rig {
    let rig = Rig::with(|options| options.remotes.push(COLUMN.into()));
    rig.transact(json!([{"op": "insert", "table": "Global", "row": {}}]));
    rig
}

fn add(rig: &Rig, target: &str, more: Value) {
    let mut row = json!({"target": target});
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rig.transact(json!([
        {"op": "insert", "table": "Connection", "uuid-name": "c", "row": row},
        {"op": "mutate", "table": "Global", "where": [], "mutations": [["connections", "insert", ["named-uuid", "c"]]]}]));
}

fn connection(rig: &Rig, target: &str) -> Value {
    let select = json!([{"op": "select", "table": "Connection", "where": [["target", "==", target]],
        "columns": ["is_connected", "status"]}]);
    rig.transact(select)[0]["rows"][0].clone()
}

fn status(rig: &Rig, target: &str, key: &str) -> Option<String> {
    let row = connection(rig, target);
    let pairs = row["status"][1].as_array()?.clone();
    pairs.iter().find(|pair| pair[0] == json!(key)).map(|pair| pair[1].as_str().unwrap().to_owned())
}

fn port(rig: &Rig, target: &str) -> String {
    wait_for("it listens", || status(rig, target, "bound_port").is_some());
    status(rig, target, "bound_port").unwrap()
}

#[test]
fn rows_say_where_to_listen_and_are_told_who_is_there() {
    let rig = by_columns();
    let target = "ptcp:0:127.0.0.1";
    add(&rig, target, json!({}));
    let port = port(&rig, target);
    assert_eq!(connection(&rig, target)["is_connected"], json!(false));
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    wait_for("it is connected", || connection(&rig, target)["is_connected"] == json!(true));
    wait_for("it is active", || status(&rig, target, "state").as_deref() == Some("ACTIVE"));
    let second = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    wait_for("both are counted", || status(&rig, target, "n_connections").as_deref() == Some("2"));
    drop((stream, second));
    wait_for("they are gone", || connection(&rig, target)["is_connected"] == json!(false));
    rig.transact(
        json!([{"op": "update", "table": "Global", "where": [], "row": {"connections": ["set", []]}}]),
    );
    wait_for("it listens no more", || TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
}

#[test]
fn rows_say_which_service_class_connections_have() {
    let rig = by_columns();
    let target = "ptcp:0:127.0.0.1";
    add(&rig, target, json!({"other_config": ["map", [["dscp", "11"]]]}));
    let port = port(&rig, target);
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    // Of the server's end; the client's is its own affair.
    let class = || ok(rig.dir.path(), "ss", &["-Htn", "--tos", "sport", "=", &format!(":{port}")]);
    let set = |dscp: &str| {
        let row = json!({"other_config": ["map", [["dscp", dscp]]]});
        rig.transact(json!([{"op": "update", "table": "Connection", "where": [], "row": row}]));
    };
    let first = connect();
    wait_for("its class", || class().contains("tos:0x2c"));
    // Nonsense changes nothing, and costs nobody a connection.
    set("99");
    let second = connect();
    wait_for("both have it", || class().matches("tos:0x2c").count() == 2);
    drop(second);
    set("12");
    let mut rest = Vec::new();
    let mut first = first;
    first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    first.read_to_end(&mut rest).unwrap();
    let _third = connect();
    wait_for("the new class", || class().contains("tos:0x30"));
}

#[test]
fn rows_say_whom_to_connect_to_and_failures_are_told() {
    let rig = by_columns();
    let path = rig.path("manager.sock");
    let target = format!("unix:{}", path.display());
    add(&rig, &target, json!({"max_backoff": 1000}));
    wait_for("the failure shows", || {
        status(&rig, &target, "last_error").as_deref() == Some("No such file or directory")
    });
    assert_eq!(status(&rig, &target, "state").as_deref(), Some("BACKOFF"));
    let listener = UnixListener::bind(&path).unwrap();
    let stream = accept(&listener);
    let mut manager = Client::new(stream);
    assert_eq!(manager.ask("list_dbs", json!([])), json!(["D", "_Server"]));
    wait_for("it is connected", || status(&rig, &target, "state").as_deref() == Some("ACTIVE"));
    assert_eq!(connection(&rig, &target)["is_connected"], json!(true));
    assert!(status(&rig, &target, "sec_since_connect").is_some());
    // Its locks are counted, those that it waits for apart.
    let mut other = rig.connect();
    assert_eq!(other.ask("lock", json!(["theirs"])), json!({"locked": true}));
    assert_eq!(manager.ask("lock", json!(["mine"])), json!({"locked": true}));
    assert_eq!(manager.ask("lock", json!(["theirs"])), json!({"locked": false}));
    wait_for("the lock is counted", || status(&rig, &target, "locks_held").as_deref() == Some("1"));
    wait_for("the wait is counted", || status(&rig, &target, "locks_waiting").as_deref() == Some("1"));
    assert_eq!(manager.ask("steal", json!(["stolen"])), json!({"locked": true}));
    assert_eq!(other.ask("steal", json!(["stolen"])), json!({"locked": true}));
    wait_for("the loss is counted", || status(&rig, &target, "locks_lost").as_deref() == Some("1"));
    drop(manager);
    wait_for("the loss is told", || status(&rig, &target, "sec_since_disconnect").is_some());
    accept(&listener);
}

#[test]
fn a_silent_client_is_probed_and_disconnected() {
    let rig = by_columns();
    let target = "ptcp:0:127.0.0.1";
    add(&rig, target, json!({"inactivity_probe": 1000}));
    let port = port(&rig, target);
    let mut silent = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).unwrap();
    let probe: Value = serde_json::from_slice(&heard).unwrap();
    assert_eq!(probe, json!({"id": "echo", "method": "echo", "params": []}));
}

#[test]
fn a_read_only_remote_lets_nobody_write() {
    let rig = by_columns();
    let target = "ptcp:0:127.0.0.1";
    add(&rig, target, json!({"read_only": true}));
    let remote = format!("tcp:127.0.0.1:{}", port(&rig, target));
    let insert = json!(["D", {"op": "insert", "table": "Counter", "row": {}}]).to_string();
    let refused = ok(rig.dir.path(), "ovsdb-client", &["transact", &remote, &insert]);
    assert!(refused.contains("read only mode"), "{refused}");
    let select = json!(["D", {"op": "select", "table": "Counter", "where": []}]).to_string();
    assert_eq!(ok(rig.dir.path(), "ovsdb-client", &["transact", &remote, &select]).trim(), "[{\"rows\":[]}]");
}

/// Certificates by `ovs-pki` in `dir`: sc of the switches' authority, ctl of the controllers'.
fn pki(dir: &Path) {
    ok(dir, "ovs-pki", &["--dir=pki", "--log=log", "init"]);
    ok(dir, "ovs-pki", &["--dir=pki", "--log=log", "-u", "req+sign", "sc", "switch"]);
    ok(dir, "ovs-pki", &["--dir=pki", "--log=log", "-u", "req+sign", "ctl", "controller"]);
}

#[test]
fn the_stock_client_and_a_stock_server_speak_tls_with_it_by_the_certificates_of_ovs_pki() {
    let rig = Rig::with(|options| {
        options.remotes.push(COLUMN.into());
        // As in the SSL table of the switch's own database.
        options.tls = TlsFiles {
            private_key: Some("db:D,Global,key".into()),
            certificate: Some("db:D,Global,certificate".into()),
            ca_cert: Some("db:D,Global,ca".into()),
            ..TlsFiles::default()
        };
    });
    let dir = rig.dir.path();
    pki(dir);
    let file = |name: &str| dir.join(name).display().to_string();
    rig.transact(json!([{"op": "insert", "table": "Global", "row": {}}]));
    let target = "pssl:0:127.0.0.1";
    add(&rig, target, json!({}));
    wait_for("what is missing shows", || {
        status(&rig, target, "last_error").is_some_and(|e| e.starts_with("Private key must be configured"))
    });
    rig.transact(json!([{"op": "update", "table": "Global", "where": [], "row": {
        "key": file("ctl-privkey.pem"), "certificate": file("ctl-cert.pem"), "ca": file("pki/switchca/cacert.pem")}}]));
    let remote = format!("ssl:127.0.0.1:{}", port(&rig, target));
    let client = |who: &str| {
        let (key, certificate) = (file(&format!("{who}-privkey.pem")), file(&format!("{who}-cert.pem")));
        let ca = file("pki/controllerca/cacert.pem");
        run(
            dir,
            "ovsdb-client",
            &["-p", &key, "-c", &certificate, "-C", &ca, "-t", "10", "list-dbs", &remote],
        )
    };
    assert_eq!(String::from_utf8(client("sc").stdout).unwrap(), "D\n_Server\n");
    assert!(!client("ctl").status.success(), "its certificate is of another authority");

    // The other way: we are the client, a stock server's manager is what we connect to.
    let relay = tempfile::tempdir().unwrap();
    create(relay.path());
    let socket = relay.path().join("stock.ctl");
    let mut stock = std::process::Command::new("ovsdb-server")
        .args(["-vconsole:off", "--remote=pssl:0:127.0.0.1", "d.db", "--log-file=log"])
        .args([
            format!("--private-key={}", file("sc-privkey.pem")),
            format!("--certificate={}", file("sc-cert.pem")),
        ])
        .args([
            format!("--ca-cert={}", file("pki/controllerca/cacert.pem")),
            format!("--unixctl={}", socket.display()),
        ])
        .current_dir(relay.path())
        .env("OVS_RUNDIR", relay.path())
        .spawn()
        .unwrap();
    wait_for("the stock server runs", || testkit::listens(&socket));
    let bound = std::process::Command::new("ss").args(["-Hltnp"]).output().unwrap();
    let bound = String::from_utf8_lossy(&bound.stdout).into_owned();
    let line = bound.lines().find(|l| l.contains(&format!("pid={},", stock.id())));
    let their_port = line.and_then(|l| l.split_whitespace().nth(3)?.rsplit(':').next().map(str::to_owned));
    let their_port = their_port.unwrap_or_else(|| panic!("no port of the stock server in {bound}"));
    let source = format!("ssl:127.0.0.1:{their_port}");
    rig.appctl(&["ovsdb-server/set-active-ovsdb-server", &source]);
    rig.appctl(&["ovsdb-server/set-sync-exclude-tables", "D:Global,D:Connection"]);
    rig.appctl(&["ovsdb-server/connect-active-ovsdb-server"]);
    wait_for("it replicates over TLS", || rig.appctl(&["ovsdb-server/sync-status"]).contains("replicating"));
    stock.kill().unwrap();
    stock.wait().unwrap();
}

#[test]
fn a_backup_follows_a_stock_server_and_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path());
    let socket = dir.path().join("active.sock");
    let mut active = std::process::Command::new("ovsdb-server")
        .args(["-vconsole:off", &format!("--remote=punix:{}", socket.display()), "d.db"])
        .args([format!("--unixctl={}", dir.path().join("active.ctl").display())])
        .current_dir(dir.path())
        .env("OVS_RUNDIR", dir.path())
        .spawn()
        .unwrap();
    wait_for("the stock server runs", || testkit::listens(&socket));
    let remote = format!("unix:{}", socket.display());
    let insert = |n: i64| {
        let operation = json!(["D", {"op": "insert", "table": "Counter", "row": {"n": n}},
            {"op": "insert", "table": "Logical_Port", "uuid-name": "p", "row": {"name": "p"}},
            {"op": "insert", "table": "Logical_Switch", "row": {"name": n.to_string(), "ports": ["named-uuid", "p"]}}]);
        ok(dir.path(), "ovsdb-client", &["transact", &remote, &operation.to_string()])
    };
    insert(1);
    let rig = Rig::with(|options| {
        options.sync_from = Some(remote.clone());
        options.sync_exclude_tables = Some("D:Connection".into());
    });
    let here = || rig.client(&["--no-headings", "dump", "S", "D", "Counter", "n"]);
    wait_for("the rows are there", || here().contains('1'));
    insert(2);
    wait_for("and what comes later", || here().contains('2'));
    let told = rig.appctl(&["ovsdb-server/sync-status"]);
    assert_eq!(told, format!("state: backup\nreplicating: {remote}\ndatabase: D\nexclude: D:Connection\n"));
    let refused = rig.transact(json!([{"op": "insert", "table": "Counter", "row": {}}]));
    assert!(refused[0]["details"].as_str().unwrap().contains("read only mode"), "{refused}");
    active.kill().unwrap();
    active.wait().unwrap();
    rig.appctl(&["ovsdb-server/disconnect-active-ovsdb-server"]);
    assert_eq!(rig.appctl(&["ovsdb-server/sync-status"]), "state: active\n");
    wait_for("it takes transactions", || {
        rig.transact(json!([{"op": "insert", "table": "Counter", "row": {"n": 3}}]))[0].get("uuid").is_some()
    });
    assert!(rig.client(&["dump", "S", "D", "Logical_Switch", "name"]).contains('2'));
}

#[test]
fn files_that_clients_name_neither_block_the_server_nor_are_created_where_they_please() {
    let rig = Rig::with(|options| {
        options.remotes.push(COLUMN.into());
        options.tls = TlsFiles {
            private_key: Some("db:D,Global,key".into()),
            certificate: Some("db:D,Global,certificate".into()),
            ca_cert: Some("db:D,Global,ca".into()),
            // `ovs-ctl` says so.
            bootstrap: Bootstrap::Anywhere,
            ..TlsFiles::default()
        };
    });
    let dir = rig.dir.path();
    pki(dir);
    ok(dir, "mkfifo", &["fifo"]);
    let file = |name: &str| dir.join(name).display().to_string();
    rig.transact(json!([{"op": "insert", "table": "Global", "row": {
        "key": file("fifo"), "certificate": file("ctl-cert.pem"), "ca": file("new.pem")}}]));
    let target = "pssl:0:127.0.0.1";
    add(&rig, target, json!({}));
    let says =
        |why: &str| wait_for(why, || status(&rig, target, "last_error").is_some_and(|e| e.contains(why)));
    says("not a regular file");
    let key = file("ctl-privkey.pem");
    rig.transact(json!([{"op": "update", "table": "Global", "where": [], "row": {"key": key}}]));
    says("a database may have it created only below");
    assert!(!dir.join("new.pem").exists());
}

#[test]
fn a_socket_that_somebody_answers_at_is_not_taken_and_a_stale_one_is() {
    let rig = Rig::new();
    let other = tempfile::tempdir().unwrap();
    create(other.path());
    let options = |database: &Path| Options {
        databases: vec![database.to_owned()],
        remotes: vec![format!("punix:{}", rig.path("db.sock").display())],
        ..Options::default()
    };
    let error = serve(options(&other.path().join("d.db"))).unwrap_err();
    assert!(error.contains("listen failed: another process listens there"), "{error}");
    let error = serve(options(&rig.path("d.db"))).unwrap_err();
    assert!(error.contains("d.db") && error.contains("lock"), "{error}");
    let stale = other.path().join("db.sock");
    drop(UnixListener::bind(&stale).unwrap());
    let options = Options {
        remotes: vec![format!("punix:{}", stale.display())],
        ..options(&other.path().join("d.db"))
    };
    let server = serve(options).unwrap();
    assert_eq!(
        ok(other.path(), "ovsdb-client", &["list-dbs", &format!("unix:{}", stale.display())]),
        "D\n_Server\n"
    );
    drop(server);
    assert!(!stale.exists());
}

#[test]
fn a_configuration_file_says_what_is_served_and_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let database = create(dir.path());
    let file = dir.path().join("config.json");
    let write = |remotes: &[&str], databases: Value| {
        let remotes: serde_json::Map<String, Value> = remotes
            .iter()
            .map(|name| {
                (format!("punix:{}", dir.path().join(name).display()), json!({"inactivity-probe": 0}))
            })
            .collect();
        std::fs::write(&file, json!({"remotes": remotes, "databases": databases}).to_string()).unwrap();
    };
    write(&["one.sock"], json!({database.to_str().unwrap(): {"service-model": "standalone"}}));
    let control = dir.path().join("ctl");
    let options = Options {
        config_file: Some(ConfigFile::at(&file, dir.path()).unwrap()),
        control: Some(control.clone()),
        ..Options::default()
    };
    let _server = serve(options).unwrap();
    let list = |socket: &str| {
        let remote = format!("unix:{}", dir.path().join(socket).display());
        String::from_utf8(run(dir.path(), "ovsdb-client", &["list-dbs", &remote]).stdout).unwrap()
    };
    assert_eq!(list("one.sock"), "D\n_Server\n");
    // What the file says is changed there, as with Open vSwitch.
    for words in
        [&["add-db", "x.db"][..], &["remove-db", "D"], &["add-remote", "punix:x"], &["remove-remote", "x"]]
    {
        let command = format!("ovsdb-server/{}", words[0]);
        let args = ["-t", control.to_str().unwrap(), &command, words[1]];
        let said = String::from_utf8(run(dir.path(), "ovs-appctl", &args).stderr).unwrap();
        let expected = format!("Update the {} and use ovsdb-server/reload instead\n", file.display());
        assert!(said.starts_with(&expected), "{words:?}: {said}");
    }
    assert_eq!(list("one.sock"), "D\n_Server\n");
    write(&["two.sock"], json!({}));
    ok(dir.path(), "ovs-appctl", &["-t", control.to_str().unwrap(), "ovsdb-server/reload"]);
    assert_eq!(list("two.sock"), "_Server\n");
    wait_for("the first is gone", || list("one.sock").is_empty());
    write(&[], json!({"x": {"service-model": "clustered"}}));
    let failed = run(dir.path(), "ovs-appctl", &["-t", control.to_str().unwrap(), "ovsdb-server/reload"]);
    assert!(!failed.status.success());
    assert!(
        ConfigFile::at("nonesuch".as_ref(), dir.path()).unwrap_err() == "nonesuch: No such file or directory"
    );
}

#[test]
fn many_clients_pipeline_transactions_and_all_are_answered() {
    let rig = Rig::new();
    let count = 2_000;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = rig.connect();
            std::thread::spawn(move || {
                let mut writer = client.stream.try_clone().unwrap();
                let sender = std::thread::spawn(move || {
                    for n in 0..count {
                        let insert = json!({"op": "insert", "table": "Counter", "row": {"n": n}});
                        let request = json!({"method": "transact", "params": ["D", insert], "id": n});
                        writer.write_all(request.to_string().as_bytes()).unwrap();
                    }
                });
                for n in 0..count {
                    let reply = client.hear().unwrap();
                    assert_eq!(reply["id"], json!(n), "in order");
                    assert!(reply["result"][0].get("uuid").is_some(), "{reply}");
                }
                sender.join().unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // What is selected is a set: rows that look the same would count once.
    let select = json!(["D", {"op": "select", "table": "Counter", "where": [], "columns": ["_uuid"]}]);
    let rows = rig.connect().ask("transact", select);
    assert_eq!(rows[0]["rows"].as_array().unwrap().len(), 4 * count);
}

#[test]
fn the_switchs_own_connection_is_like_any_other() {
    let rig = Rig::new();
    let mut inside = Client::new(rig.server.connect("switch").unwrap());
    inside.stream.set_nonblocking(false).unwrap();
    assert_eq!(inside.ask("list_dbs", json!([])), json!(["D", "_Server"]));
    inside.ask(
        "monitor_cond_since",
        json!(["D", 1, {"Counter": [{}]}, "00000000-0000-0000-0000-000000000000"]),
    );
    rig.transact(json!([{"op": "insert", "table": "Counter", "row": {"n": 1}}]));
    assert_eq!(inside.hear().unwrap()["method"], json!("update3"));
}
