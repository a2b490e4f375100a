//! `crosspoint ovsdb-server` is killed with `kill -9` at any moment, over and over, while a client sends
//! transactions: what it answered is there when it starts again, whole transactions only.

use crate::common::{Process, RunDir, binary, run_dir, wait_for};
use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SCHEMA: &str = r#"{"name":"Count","version":"1.0.0","tables":{
  "Left":{"columns":{"n":{"type":"integer"},"pad":{"type":"string"}},"maxRows":1},
  "Right":{"columns":{"n":{"type":"integer"}},"maxRows":1}}}"#;

fn start(dir: &RunDir) -> (Process, UnixStream) {
    let mut command = dir.command(binary());
    command.args(["ovsdb-server", "count.db", "--unixctl=ctl", "-vconsole:off", "--remote=punix:db.sock"]);
    let server = Process::silent(&mut command);
    let mut stream = None;
    wait_for("the server", || {
        stream = UnixStream::connect(dir.file("db.sock")).ok();
        stream.is_some()
    });
    (server, stream.unwrap())
}

fn count_to(n: i64) -> Value {
    let set = |table: &str, row: Value| json!({"op": "update", "table": table, "where": [], "row": row});
    let pad = "x".repeat(n as usize * 37 % 2000);
    let mut params =
        vec![json!("Count"), set("Left", json!({"n": n, "pad": pad})), set("Right", json!({"n": n}))];
    if n % 10 == 0 {
        params.push(json!({"op": "commit", "durable": true}));
    }
    json!({"id": n, "method": "transact", "params": params})
}

/// What both rows say in the file.
fn read(dir: &RunDir) -> (i64, i64) {
    let select = |table: &str| json!({"op": "select", "table": table, "where": [], "columns": ["n"]});
    let query = json!(["Count", select("Left"), select("Right")]).to_string();
    let said = dir.run(binary(), &["ovsdb-tool", "query", "count.db", &query]).ok();
    let reply: Value = serde_json::from_str(&said).unwrap();
    let n = |table: usize| reply[table]["rows"][0]["n"].as_i64().unwrap();
    (n(0), n(1))
}

#[test]
fn what_a_killed_server_had_answered_is_there_when_it_starts_again() {
    let dir = run_dir();
    let tool = |args: &[&str]| dir.run(binary(), &[&["ovsdb-tool"], args].concat()).ok();
    std::fs::write(dir.path().join("count.ovsschema"), SCHEMA).unwrap();
    tool(&["create", "count.db", "count.ovsschema"]);
    let rows =
        r#"["Count",{"op":"insert","table":"Left","row":{}},{"op":"insert","table":"Right","row":{}}]"#;
    tool(&["transact", "count.db", rows]);

    let rounds =
        testkit::cases("crosspoint::what_a_killed_server_had_answered_is_there_when_it_starts_again", 30);
    let mut n = 0;
    for round in 0..rounds {
        let (server, mut stream) = start(&dir);
        let mut replies = serde_json::Deserializer::from_reader(BufReader::new(stream.try_clone().unwrap()))
            .into_iter::<Value>();
        // From nothing to some dozen transactions, and then at any moment of one.
        let lifetime = Duration::from_micros(u64::from(round) * 7919 % 60_000);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(lifetime);
            drop(server);
        });
        let mut answered = n;
        loop {
            n += 1;
            if stream.write_all(count_to(n).to_string().as_bytes()).is_err() {
                break;
            }
            let Some(Ok(reply)) = replies.next() else { break };
            assert_eq!(reply["id"], n);
            assert!(reply["result"][1]["count"] == 1 && reply["error"].is_null(), "{reply}");
            answered = n;
        }
        killer.join().unwrap();
        let (left, right) = read(&dir);
        assert_eq!(left, right, "round {round}: half a transaction");
        assert!(left == answered || left == n, "round {round}: {answered} answered, {n} sent, {left} there");
        n = left;
    }
    assert!(n > i64::from(rounds), "it hardly ever lived: {n}");
}
