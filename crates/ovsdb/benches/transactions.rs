//! How many small transactions a second does a database make, in process, from the request's text to the
//! reply's; and what do large ones cost, in time and memory?
//!
//! `cargo bench -p ovsdb --bench transactions [NAME]`: microseconds of the thread's CPU time per transaction,
//! the median of some runs, and transactions per second. Names are questions: `text/…` begins with parsing
//! JSON and ends with writing the reply, `ops/…` begins with parsed operations, `server/…` is a server with
//! sessions, monitors and a log, without the system's part. Instructions: `valgrind --tool=callgrind` on the
//! binary with one name and `runs=1`.

use std::hint::black_box;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::clock::thread_cpu_ns;
use ovsdb::log::{LogDirectory, LogFile, Magic, ReadAt, Temporary, frame, transaction};
use ovsdb::server::{Now, Server, SessionId};
use ovsdb::storage::Storage;
use ovsdb::{Changes, Context, Database, Datum, Execution, OpResult, Reply, Schema, UuidGenerator};
use serde_json::{Value, json};

const PER_RUN: usize = 10_000;

struct Bench {
    filter: Option<String>,
    runs: usize,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| name.contains(filter))
    }

    /// Times `work`, which does `count` transactions.
    fn time(&self, name: &str, count: usize, mut work: impl FnMut(usize)) {
        let mut times: Vec<f64> = (0..self.runs)
            .map(|run| {
                let started = thread_cpu_ns();
                work(run);
                (thread_cpu_ns() - started) as f64 / count as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let ns = times[times.len() / 2];
        println!("{name:<44} {:>9.2} us {:>11.0}/s", ns / 1e3, 1e9 / ns);
    }
}

struct Filled {
    database: Database,
    ids: UuidGenerator,
}

impl Filled {
    /// A switch with one bridge of `ports` ports, each with an interface that has what a running one has.
    fn new(ports: usize) -> Filled {
        let mut filled =
            Filled { database: Database::new(Schema::open_vswitch()), ids: UuidGenerator::from_seed(1) };
        for start in (0..ports).step_by(1000) {
            let mut operations = Vec::new();
            let mut names = Vec::new();
            for n in start..ports.min(start + 1000) {
                operations.push(json!({"op": "insert", "table": "Interface", "uuid-name": format!("i{n}"), "row": interface(n)}));
                operations.push(json!({"op": "insert", "table": "Port", "uuid-name": format!("p{n}"),
                    "row": {"name": format!("vport{n}"), "interfaces": ["named-uuid", format!("i{n}")], "tag": n % 4095}}));
                names.push(json!(["named-uuid", format!("p{n}")]));
            }
            if start == 0 {
                operations.push(json!({"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "br0", "ports": ["set", names]}}));
                operations.push(
                    json!({"op": "insert", "table": "Open_vSwitch", "row": {"bridges": ["named-uuid", "b"]}}),
                );
            } else {
                operations.push(json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "br0"]],
                    "mutations": [["ports", "insert", ["set", names]]]}));
            }
            filled.run(&operations);
        }
        filled
    }

    fn run(&mut self, operations: &[Value]) -> (Reply, Changes) {
        let mut context = Context {
            ids: &mut self.ids,
            has_lock: &|_| false,
            elapsed_ms: 0,
            read_only: false,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        match self.database.execute(operations, &mut context) {
            Execution::Done(outcome) => {
                let failed = outcome.reply.0.iter().find(|result| matches!(result, OpResult::Failed(_)));
                assert!(failed.is_none(), "{failed:?}");
                (outcome.reply, outcome.changes)
            }
            Execution::Pending { .. } => panic!("waits"),
        }
    }
}

fn interface(n: usize) -> Value {
    let statistics: Vec<Value> = [
        "collisions",
        "rx_bytes",
        "rx_crc_err",
        "rx_dropped",
        "rx_errors",
        "rx_frame_err",
        "rx_missed_errors",
        "rx_over_err",
        "rx_packets",
        "tx_bytes",
        "tx_dropped",
        "tx_errors",
        "tx_packets",
    ]
    .iter()
    .map(|name| json!([name, n * 1000]))
    .collect();
    json!({"name": format!("vport{n}"), "type": "internal", "ofport": n + 1, "admin_state": "up", "link_state": "up", "mtu": 1500,
        "mac_in_use": format!("aa:55:aa:55:{:02x}:{:02x}", n / 256 % 256, n % 256), "ifindex": n + 10, "link_resets": 1,
        "external_ids": ["map", [["iface-id", format!("{n:08x}-1111-4222-8333-444455556666")], ["attached-mac", "fa:16:3e:00:00:01"]]],
        "status": ["map", [["driver_name", "veth"], ["driver_version", "1.0"]]], "statistics": ["map", statistics]})
}

fn update_text(n: usize, value: usize) -> String {
    format!(
        "[\"Open_vSwitch\",{{\"op\":\"update\",\"table\":\"Interface\",\"where\":[[\"name\",\"==\",\"vport{n}\"]],\
         \"row\":{{\"ofport\":{value},\"external_ids\":[\"map\",[[\"iface-id\",\"if{value}\"]]]}}}}]"
    )
}

fn small(bench: &Bench, rows: usize) {
    let wanted = [
        "text/update_by_name",
        "ops/update_by_name",
        "ops/mutate_by_uuid",
        "ops/add_and_delete_a_port",
        "ops/failing",
        "rows/snapshot_and_update",
        "rows/memory",
    ]
    .iter()
    .any(|name| bench.wants(&format!("{name}/{rows}_rows")));
    if !wanted {
        return;
    }
    let mut filled = Filled::new(rows);
    let name = format!("text/update_by_name/{rows}_rows");
    if bench.wants(&name) {
        bench.time(&name, PER_RUN, |run| {
            for i in 0..PER_RUN {
                let text = update_text(i * 7919 % rows, run * PER_RUN + i);
                let request: Value = serde_json::from_str(&text).unwrap();
                let (reply, changes) = filled.run(&request.as_array().unwrap()[1..]);
                black_box((serde_json::to_string(&reply).unwrap(), changes));
            }
        });
    }
    let name = format!("ops/update_by_name/{rows}_rows");
    if bench.wants(&name) {
        let requests: Vec<Value> =
            (0..PER_RUN).map(|i| serde_json::from_str(&update_text(i * 7919 % rows, i)).unwrap()).collect();
        bench.time(&name, PER_RUN, |_| {
            for request in &requests {
                black_box(filled.run(&request.as_array().unwrap()[1..]));
            }
        });
    }
    let table = filled.database.schema().find("Port").unwrap();
    let ports: Vec<String> = filled.database.rows(table).map(|row| row.uuid().to_string()).collect();
    let name = format!("ops/mutate_by_uuid/{rows}_rows");
    if bench.wants(&name) {
        let requests: Vec<Value> = (0..PER_RUN)
            .map(|i| json!([{"op": "mutate", "table": "Port", "where": [["_uuid", "==", ["uuid", ports[i * 7919 % rows]]]],
                "mutations": [["bond_updelay", "+=", 1]]}]))
            .collect();
        bench.time(&name, PER_RUN, |_| {
            for request in &requests {
                black_box(filled.run(request.as_array().unwrap()));
            }
        });
    }
    let name = format!("ops/add_and_delete_a_port/{rows}_rows");
    if bench.wants(&name) {
        bench.time(&name, PER_RUN / 10, |_| {
            for i in 0..PER_RUN / 20 {
                add_and_delete(&mut filled, i);
            }
        });
    }
    let name = format!("ops/failing/{rows}_rows");
    if bench.wants(&name) {
        let request = json!([{"op": "insert", "table": "Interface", "row": {"name": "x", "mtu_request": 0}}]);
        let mut ids = UuidGenerator::from_seed(2);
        bench.time(&name, PER_RUN, |_| {
            for _ in 0..PER_RUN {
                let mut context = Context {
                    ids: &mut ids,
                    has_lock: &|_| false,
                    elapsed_ms: 0,
                    read_only: false,
                    principal: ovsdb::Principal::ROOT,
                    room: None,
                };
                black_box(filled.database.execute(request.as_array().unwrap(), &mut context));
            }
        });
    }
    let name = format!("rows/snapshot_and_update/{rows}_rows");
    if bench.wants(&name) {
        bench.time(&name, 100, |run| {
            for i in 0..100 {
                let snapshot = filled.database.snapshot();
                let request: Value =
                    serde_json::from_str(&update_text(i * 7919 % rows, run * 100 + i)).unwrap();
                black_box(filled.run(&request.as_array().unwrap()[1..]));
                drop(snapshot);
            }
        });
    }
    let name = format!("rows/memory/{rows}_rows");
    if bench.wants(&name) {
        let table = filled.database.schema().find("Interface").unwrap();
        let bytes: usize = filled.database.rows(table).map(ovsdb::Row::heap_bytes).sum();
        println!("{name:<44} {:>9} bytes an Interface row ({} a datum)", bytes / rows, size_of::<Datum>());
    }
}

fn add_and_delete(filled: &mut Filled, i: usize) {
    let name = format!("extra{i}");
    let (reply, _) = filled.run(&[
        json!({"op": "insert", "table": "Interface", "uuid-name": "i", "row": {"name": name, "type": "internal"}}),
        json!({"op": "insert", "table": "Port", "uuid-name": "p", "row": {"name": name, "interfaces": ["named-uuid", "i"]}}),
        json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "br0"]], "mutations": [["ports", "insert", ["named-uuid", "p"]]]}),
    ]);
    let port = reply.to_json()[1]["uuid"].clone();
    filled.run(&[json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "br0"]], "mutations": [["ports", "delete", port]]})]);
}

/// A file that takes what is written and keeps its first record, all that is ever read.
struct Sink(Mutex<Vec<u8>>);

impl ReadAt for Sink {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let held = self.0.lock().unwrap();
        let rest = held.get(offset as usize..).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

impl LogFile for Sink {
    fn write_at(&self, _: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(black_box(bytes).len())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

struct Directory(Arc<Sink>);

impl LogDirectory for Directory {
    fn open(&self) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.0.clone())
    }

    fn create_temporary(&self) -> io::Result<Box<dyn Temporary>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A server without sockets, with a log that goes nowhere.
struct Served {
    server: Server,
    now: Now,
}

impl Served {
    fn new() -> Served {
        let now = Now { at: Instant::now(), date_ms: 0 };
        let mut server = Server::new(now, UuidGenerator::from_seed(3));
        let schema = transaction::encode_schema(&Schema::open_vswitch());
        let file = Sink(Mutex::new(frame::record(Magic::Standalone, &schema)));
        let opened =
            Storage::open(Arc::new(Directory(Arc::new(file))), &mut UuidGenerator::from_seed(4), 0).unwrap();
        assert!(server.add_stored(opened.database, opened.storage));
        Served { server, now }
    }

    /// As a connection does it.
    fn say(&mut self, session: SessionId, text: &str) {
        self.server.handle_text(self.now, session, text).unwrap();
        self.send(session);
    }

    /// As the flusher does it, and the connections that it wakes.
    fn flush(&mut self) {
        self.server.flush(self.now);
        for session in self.server.take_ready() {
            assert!(self.send(session) > 0);
        }
    }

    /// Bytes that a client is sent.
    fn send(&mut self, session: SessionId) -> usize {
        let output = self.server.output(session);
        let mut sent = 0;
        while let Some(front) = output.front() {
            let n = black_box(front).len();
            output.advance(n);
            sent += n;
        }
        self.server.drained(session);
        sent
    }

    fn insert(&mut self, session: SessionId) -> String {
        self.say(session, r#"{"id":0,"method":"transact","params":["Open_vSwitch",{"op":"insert","table":"QoS","row":{"type":"x"}}]}"#);
        self.flush();
        let database = self.server.database("Open_vSwitch").unwrap();
        let table = database.schema().find("QoS").unwrap();
        database.rows(table).next().unwrap().uuid().to_string()
    }
}

fn change(uuid: &str, value: usize) -> String {
    format!(
        r#"{{"id":{value},"method":"transact","params":["Open_vSwitch",{{"op":"update","table":"QoS","where":[["_uuid","==",["uuid","{uuid}"]]],"row":{{"external_ids":["map",[["n","{value}"]]]}}}}]}}"#
    )
}

/// The way of a small transaction through a server, without the system: eight clients with one request each
/// between flushes, and changes that 100 monitors are told of, as time per monitor.
fn served(bench: &Bench) {
    if bench.wants("server/eight_clients") {
        let mut served = Served::new();
        let clients: Vec<SessionId> = (0..8).map(|_| served.server.connect(false)).collect();
        let uuid = served.insert(clients[0]);
        bench.time("server/eight_clients", PER_RUN, |run| {
            for i in 0..PER_RUN {
                served.say(clients[i % 8], &change(&uuid, run * PER_RUN + i));
                if i % 8 == 7 {
                    served.flush();
                }
            }
        });
    }
    if bench.wants("server/tell_100_monitors") {
        let mut served = Served::new();
        let writer = served.server.connect(false);
        let uuid = served.insert(writer);
        let watchers: Vec<SessionId> = (0..100).map(|_| served.server.connect(false)).collect();
        for &watcher in &watchers {
            served.say(watcher, r#"{"id":1,"method":"monitor","params":["Open_vSwitch","m",{"QoS":[{"columns":["external_ids","type"]}]}]}"#);
        }
        bench.time("server/tell_100_monitors", PER_RUN, |run| {
            for i in 0..PER_RUN / watchers.len() {
                served.say(writer, &change(&uuid, run * PER_RUN + i));
                served.flush();
            }
        });
    }
}

fn main() {
    let mut bench = Bench { filter: None, runs: 11 };
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        match argument.strip_prefix("runs=") {
            Some(runs) => bench.runs = runs.parse().expect("runs=N"),
            None => bench.filter = Some(argument),
        }
    }
    for rows in [100, 10_000, 100_000] {
        small(&bench, rows);
    }
    served(&bench);
    if bench.wants("rows/load_1000_ports") {
        bench.time("rows/load_1000_ports", 1, |_| drop(black_box(Filled::new(1000))));
    }
}
