//! Clients that mean no good, and others that do not notice.

use crate::ovsdb::rig::{Client, Rig};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Memory of this process in bytes: the server is in it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Another client is served, and soon.
#[track_caller]
fn others_are_served(rig: &Rig) {
    let start = Instant::now();
    assert_eq!(rig.connect().ask("list_dbs", json!([])), json!(["D", "_Server"]));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

fn connect(rig: &Rig) -> UnixStream {
    let stream = UnixStream::connect(rig.path("db.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// What a connection gives before its end.
fn rest(stream: &mut UnixStream) -> usize {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("{e}"),
    }
    all.len()
}

/// Servers are in this process: what one test has them hold, another would measure.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn what_is_no_json_rpc_ends_its_connection_alone() {
    let rig = Rig::new();
    let mut good = rig.connect();
    for bad in [
        "hello",
        "[]",
        "{\"x\":1}",
        "{\"method\":1,\"params\":[],\"id\":1}",
        "{\"method\":\"echo\",\"id\":1}",
        "{\"method\" \"echo\"}",
        "{]",
    ] {
        let mut stream = connect(&rig);
        stream.write_all(bad.as_bytes()).unwrap();
        assert_eq!(rest(&mut stream), 0, "{bad}");
    }
    let mut deep = connect(&rig);
    // The server may have closed it before all of it is sent.
    let _ = deep.write_all("{\"a\":".repeat(100_000).as_bytes());
    assert_eq!(rest(&mut deep), 0);
    assert_eq!(good.ask("echo", json!([1])), json!([1]));
}

#[test]
fn a_request_of_a_gigabyte_is_refused_at_the_bound() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    let mut stream = connect(&rig);
    stream.write_all(b"{\"method\":\"").unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    let sent = (0..1024).take_while(|_| stream.write_all(&megabyte).is_ok()).count();
    assert!((250..300).contains(&sent), "{sent} MB");
    others_are_served(&rig);
}

#[test]
fn ten_thousand_half_requests_wait_in_little_memory() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    vswitchd::ovsdb::raise_descriptor_limit();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    // Both ends of each connection are in this process, and other tests run beside this one.
    let clients = 10_000.min((limit as usize).saturating_sub(1_000) / 2);
    assert!(clients >= 4_000, "the hard limit of open files is {limit}, which leaves too few to tell");
    let before = resident();
    let request = b"{\"method\":\"list_dbs\",\"params\":[],\"id\":1}";
    let mut streams: Vec<UnixStream> = (0..clients)
        .map(|_| {
            let mut stream = connect(&rig);
            stream.write_all(&request[..20]).unwrap();
            stream
        })
        .collect();
    others_are_served(&rig);
    let each = resident().saturating_sub(before) / clients;
    assert!(each < 16 << 10, "{each} bytes for each");
    for stream in &mut streams {
        stream.write_all(&request[20..]).unwrap();
    }
    for stream in &mut streams {
        let mut answer = [0; 200];
        let n = stream.read(&mut answer).unwrap();
        assert!(answer[..n].starts_with(b"{\"error\":null,\"id\":1,\"result\":[\"D\""));
    }
}

#[test]
fn a_client_that_never_reads_holds_up_nobody_and_costs_little() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    let text = "x".repeat(10_000);
    let rows: Vec<Value> = (0..100)
        .map(|n| json!({"op": "insert", "table": "Counter", "row": {"n": n, "text": text}}))
        .collect();
    let mut client = rig.connect();
    let mut params = vec![json!("D")];
    params.extend(rows);
    client.ask("transact", Value::Array(params));

    let before = resident();
    let mut silent: Vec<UnixStream> = (0..20).map(|_| connect(&rig)).collect();
    let select = json!(["D", {"op": "select", "table": "Counter", "where": []}]);
    let request = json!({"method": "transact", "params": select, "id": 1}).to_string();
    let monitor = json!({"method": "monitor", "params": ["D", 1, {"Counter": {}}], "id": 2}).to_string();
    for stream in &mut silent {
        stream.write_all(monitor.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        // Each answer is a megabyte; the requests are as many as the socket takes.
        while stream.write_all(request.as_bytes()).is_ok() {}
    }
    // What monitors miss meanwhile is kept once, however often it changes.
    let update = json!({"op": "update", "table": "Counter", "where": [], "row": {"text": "y".repeat(9_000)}});
    let other = json!({"op": "update", "table": "Counter", "where": [], "row": {"text": text}});
    for _ in 0..50 {
        client.ask("transact", json!(["D", update, other, {"op": "update", "table": "Counter", "where": [["n", "==", 0]], "row": {"n": 0}}]));
    }
    others_are_served(&rig);
    let more = resident().saturating_sub(before);
    assert!(more < 300 << 20, "{} MB more", more >> 20);
    let stuck = connect(&rig);
    drop(stuck);
}

#[test]
fn a_client_that_reads_nothing_is_gone_soon_after_the_server_ends_it() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    let text = "x".repeat(1 << 20);
    rig.connect().ask("transact", json!(["D", {"op": "insert", "table": "Counter", "row": {"text": text}}]));
    let mut deaf = connect(&rig);
    let select = json!(["D", {"op": "select", "table": "Counter", "where": []}]);
    deaf.write_all(json!({"method": "transact", "params": select, "id": 1}).to_string().as_bytes()).unwrap();
    // Its answer is longer than what a socket takes.
    deaf.read_exact(&mut [0; 100]).unwrap();
    let sessions = || rig.appctl(&["memory/show"]).contains("sessions:1");
    assert!(sessions());
    rig.appctl(&["ovsdb-server/reconnect"]);
    let start = Instant::now();
    while sessions() {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(rig.appctl(&["coverage/read-counter", "ovsdb_session_cut"]).trim(), "1");
}

#[test]
fn a_client_that_reads_slowly_gets_its_answer_though_the_server_ends_it() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    let text = "x".repeat(4 << 20);
    rig.connect().ask("transact", json!(["D", {"op": "insert", "table": "Counter", "row": {"text": text}}]));
    let mut slow = connect(&rig);
    let select = json!(["D", {"op": "select", "table": "Counter", "columns": ["text"], "where": []}]);
    slow.write_all(json!({"method": "transact", "params": select, "id": 1}).to_string().as_bytes()).unwrap();
    slow.read_exact(&mut [0; 100]).unwrap();
    rig.appctl(&["ovsdb-server/reconnect"]);
    let (start, mut got, mut buffer) = (Instant::now(), 100, vec![0; 128 << 10]);
    loop {
        match slow.read(&mut buffer).unwrap() {
            0 => break,
            n => got += n,
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(start.elapsed() > Duration::from_secs(2), "it took longer than one that reads nothing may");
    assert!(got > text.len(), "{got}");
}

#[test]
fn a_slow_monitor_is_told_of_all_at_once_and_correctly() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rig = Rig::new();
    let mut slow = Client::new(connect(&rig));
    slow.ask("monitor_cond", json!(["D", 1, {"Counter": [{"columns": ["n", "text"]}]}]));
    let mut client = rig.connect();
    let text = "x".repeat(5_000);
    for n in 0..500 {
        client.ask(
            "transact",
            json!(["D", {"op": "insert", "table": "Counter", "row": {"n": n, "text": text}}]),
        );
    }
    client.ask("transact", json!(["D", {"op": "delete", "table": "Counter", "where": [["n", ">=", 10]]}]));
    let (mut here, mut messages) = (std::collections::BTreeSet::new(), 0);
    while here.len() != 10 || messages == 0 {
        let message = slow.hear().unwrap();
        messages += 1;
        for (uuid, row) in message["params"][1]["Counter"].as_object().unwrap() {
            if row.get("insert").is_some() {
                assert!(here.insert(uuid.clone()));
            } else {
                assert!(here.remove(uuid));
            }
        }
        // Nine rows at the least were there at some time before the last message.
        assert!(messages < 600);
        if here.len() == 10 && messages < 11 {
            // The first ten inserts, one by one: go on.
            let more = slow.hear().unwrap();
            messages += 1;
            for uuid in more["params"][1]["Counter"].as_object().unwrap().keys() {
                here.insert(uuid.clone());
            }
        }
    }
    assert!(messages < 400, "{messages} messages: what came and went unseen was told of");
}
