//! `crosspoint ovsdb-server` is killed with `kill -9` at any moment, over and over, while a client sends
//! transactions: what it answered is there when it starts again, whole transactions only.

use serde_json::{Value, json};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCHEMA: &str = r#"{"name":"Count","version":"1.0.0","tables":{
  "Left":{"columns":{"n":{"type":"integer"},"pad":{"type":"string"}},"maxRows":1},
  "Right":{"columns":{"n":{"type":"integer"}},"maxRows":1}}}"#;

fn crosspoint() -> Command {
    Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")))
}

/// Killed when dropped, also by a test that fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> (Server, UnixStream) {
    let socket = dir.join("db.sock");
    let mut command = crosspoint();
    command.args(["ovsdb-server", "count.db", "--unixctl=ctl", "-vconsole:off", "--remote"]);
    command.arg(format!("punix:{}", socket.display())).current_dir(dir).env("OVS_RUNDIR", dir);
    let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => return (server, stream),
            Err(error) if Instant::now() > deadline => panic!("the server does not listen: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
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
fn read(dir: &Path) -> (i64, i64) {
    let select = |table: &str| json!({"op": "select", "table": table, "where": [], "columns": ["n"]});
    let query = json!(["Count", select("Left"), select("Right")]).to_string();
    let output =
        crosspoint().args(["ovsdb-tool", "query", "count.db", &query]).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    let n = |table: usize| reply[table]["rows"][0]["n"].as_i64().unwrap();
    (n(0), n(1))
}

#[test]
fn what_a_killed_server_had_answered_is_there_when_it_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let tool = |args: &[&str]| {
        let output = crosspoint().arg("ovsdb-tool").args(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(dir.path().join("count.ovsschema"), SCHEMA).unwrap();
    tool(&["create", "count.db", "count.ovsschema"]);
    let rows =
        r#"["Count",{"op":"insert","table":"Left","row":{}},{"op":"insert","table":"Right","row":{}}]"#;
    tool(&["transact", "count.db", rows]);

    let rounds =
        testkit::cases("crosspoint::what_a_killed_server_had_answered_is_there_when_it_starts_again", 30);
    let mut n = 0;
    for round in 0..rounds {
        let (server, mut stream) = start(dir.path());
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
        let (left, right) = read(dir.path());
        assert_eq!(left, right, "round {round}: half a transaction");
        assert!(left == answered || left == n, "round {round}: {answered} answered, {n} sent, {left} there");
        n = left;
    }
    assert!(n > i64::from(rounds), "it hardly ever lived: {n}");
}
