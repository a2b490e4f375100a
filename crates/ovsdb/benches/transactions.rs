//! How many small transactions a second does a database make, in process, from the request's text to the reply's; and what do large
//! ones cost, in time and memory?
//!
//! `cargo bench -p ovsdb --bench transactions [NAME]`: microseconds of the thread's CPU time per transaction, the median of some
//! runs, and transactions per second. Names are questions: `text/…` begins with parsing JSON and ends with writing the reply, `ops/…` begins
//! with parsed operations. Instructions: `valgrind --tool=callgrind` on the binary with one name and `runs=1`.

use std::hint::black_box;

use base::clock::thread_cpu_ns;
use ovsdb::{Changes, Context, Database, Datum, Execution, Schema, UuidGenerator};
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

    fn run(&mut self, operations: &[Value]) -> (Value, Changes) {
        let mut context =
            Context { ids: &mut self.ids, has_lock: &|_| false, elapsed_ms: 0, read_only: false };
        match self.database.execute(operations, &mut context) {
            Execution::Done(outcome) => {
                let failed =
                    outcome.reply.as_array().unwrap().iter().find(|result| result.get("error").is_some());
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
                black_box((reply.to_string(), changes));
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
                let mut context =
                    Context { ids: &mut ids, has_lock: &|_| false, elapsed_ms: 0, read_only: false };
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
    let port = reply[1]["uuid"].clone();
    filled.run(&[json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "br0"]], "mutations": [["ports", "delete", port]]})]);
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
    if bench.wants("rows/load_1000_ports") {
        bench.time("rows/load_1000_ports", 1, |_| drop(black_box(Filled::new(1000))));
    }
}
