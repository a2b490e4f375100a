//! Clients whose remote gives them a role, in ours and in the stock server, over TLS.

use crate::ovsdb::rig::ok;
use ovsdb::UuidGenerator;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use testkit::lab::{Process, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use transport::jsonrpc::{Framer, Limits};
use transport::{ActiveTarget, OVSDB_PORT, Stream, Target, Tls, TlsFiles};
use vswitchd::ovsdb::{Handle, Options, serve};

/// Remotes, and the role of whoever comes by them.
const REMOTES: &[(&str, &str)] = &[
    ("pssl:0:127.0.0.1", "tenant"),
    ("pssl:0:127.0.0.2", ""),
    ("pssl:0:127.0.0.3", "nonesuch"),
    ("ptcp:0:127.0.0.1", "tenant"),
];

/// Who comes by which remote. The one without a remote comes by the Unix socket.
const CLIENTS: &[(&str, Option<usize>)] = &[
    ("root", None),
    ("client-1", Some(0)),
    ("client-2", Some(0)),
    ("client-1 without a role", Some(1)),
    ("client-1 of an unknown role", Some(2)),
    ("somebody", Some(3)),
];

/// Tables with the same columns, which differ in what the role permits. It permits nothing with the last one.
const TABLES: &[&str] = &["T0", "T1", "T2", "T3"];

fn schema() -> Value {
    let set = |key: Value| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    let map = |max: Value| json!({"type": {"key": "string", "value": "string", "min": 0, "max": max}});
    let of_table = json!({"isRoot": true, "columns": {
        "id": {"type": "integer"}, "creator": {"type": "string"}, "value": {"type": "integer"},
        "owner": {"type": {"key": "string", "min": 0, "max": 1}},
        "owners": set(json!("string")), "labels": map(json!("unlimited")), "short": map(json!(2))}});
    let mut tables = json!({
        "Root": {"isRoot": true, "columns": {"connections": set(json!({"type": "uuid", "refTable": "Connection"}))}},
        "Connection": {"columns": {
            "target": {"type": "string"}, "role": {"type": "string"},
            "inactivity_probe": {"type": {"key": "integer", "min": 0}},
            "status": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}, "ephemeral": true}}},
        "RBAC_Role": {"isRoot": true, "indexes": [["name"]], "columns": {
            "name": {"type": "string"},
            "permissions": {"type": {"key": "string", "min": 0, "max": "unlimited",
                "value": {"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"}}}}},
        "RBAC_Permission": {"isRoot": true, "columns": {
            "table": {"type": "string"}, "authorization": set(json!("string")),
            "insert_delete": {"type": "boolean"}, "update": set(json!("string"))}}});
    for table in TABLES {
        tables[table] = of_table.clone();
    }
    json!({"name": "D", "version": "1.0.0", "tables": tables})
}

/// The database in `dir`, with the remotes and a role that has a permission for each table but the last.
fn create(dir: &Path) {
    let mut operations = vec![json!("D"), json!({"op": "insert", "table": "Root", "row": {}})];
    for (n, (target, role)) in REMOTES.iter().enumerate() {
        let name = format!("c{n}");
        operations.push(json!({"op": "insert", "table": "Connection", "uuid-name": name,
            "row": {"target": target, "role": role, "inactivity_probe": 0}}));
        operations.push(json!({"op": "mutate", "table": "Root", "where": [],
            "mutations": [["connections", "insert", ["named-uuid", name]]]}));
    }
    let mut permissions = Vec::new();
    for table in &TABLES[..3] {
        operations
            .push(json!({"op": "insert", "table": "RBAC_Permission", "uuid-name": format!("of_{table}"),
            "row": {"table": table, "authorization": "creator", "insert_delete": true, "update": "value"}}));
        permissions.push(json!([table, ["named-uuid", format!("of_{table}")]]));
    }
    operations.push(json!({"op": "insert", "table": "RBAC_Role",
        "row": {"name": "tenant", "permissions": ["map", permissions]}}));
    std::fs::write(dir.join("d.ovsschema"), schema().to_string()).unwrap();
    ok(dir, "ovsdb-tool", &["create", "d.db", "d.ovsschema"]);
    ok(dir, "ovsdb-tool", &["transact", "d.db", &Value::Array(operations).to_string()]);
}

/// Certificates of one authority, each with a name in it.
fn pki(dir: &Path) {
    ok(dir, "ovs-pki", &["--dir=pki", "--log=log", "init"]);
    for name in ["server", "client-1", "client-2"] {
        ok(dir, "ovs-pki", &["--dir=pki", "--log=log", "-u", "req+sign", name, "switch"]);
    }
}

/// The files of whoever has this certificate.
fn files(keys: &Path, name: &str) -> [String; 3] {
    let file = |name: String| keys.join(name).display().to_string();
    [
        file(format!("{name}-privkey.pem")),
        file(format!("{name}-cert.pem")),
        file("pki/switchca/cacert.pem".into()),
    ]
}

enum Program {
    Ours { _server: Handle },
    Stock { _process: Process },
}

/// A server, and a connection of each client.
struct Server {
    _program: Program,
    clients: BTreeMap<&'static str, Client>,
    _dir: TempDir,
}

struct Client {
    runtime: Arc<Runtime>,
    stream: Stream,
    framer: Framer,
}

impl Client {
    fn connect(runtime: &Arc<Runtime>, target: &str, tls: Option<&Tls>) -> Client {
        let Target::Active(target) = Target::parse(target, OVSDB_PORT).unwrap() else { panic!("{target}") };
        let stream = runtime.block_on(connect(&target, tls));
        Client { runtime: runtime.clone(), stream, framer: Framer::new(Limits::default()) }
    }

    fn say(&mut self, method: &str, params: &Value) {
        let message = json!({"method": method, "params": params, "id": "asked"}).to_string();
        let stream = &mut self.stream;
        let said = self.runtime.clone().block_on(async {
            stream.write_all(message.as_bytes()).await?;
            stream.flush().await
        });
        said.unwrap();
    }

    /// The next message.
    fn hear(&mut self) -> Value {
        loop {
            if let Some(text) = self.framer.next_object().unwrap() {
                return serde_json::from_str(text).unwrap();
            }
            let mut bytes = [0; 65_536];
            let stream = &mut self.stream;
            let read = self.runtime.clone().block_on(async {
                tokio::time::timeout(Duration::from_secs(20), stream.read(&mut bytes)).await
            });
            let read = read.expect("in time").unwrap();
            assert!(read > 0, "the server has closed the connection");
            self.framer.feed(&bytes[..read]);
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.say(method, params);
        self.hear()
    }
}

async fn connect(target: &ActiveTarget, tls: Option<&Tls>) -> Stream {
    Stream::connect(target, tls).await.unwrap_or_else(|error| panic!("{target}: {error}"))
}

impl Server {
    fn ours(runtime: &Arc<Runtime>, keys: &Path, more: &[&str]) -> Server {
        Server::start(runtime, keys, more, |dir, remotes| {
            let [key, certificate, ca] = files(keys, "server").map(|file| Some(file.into()));
            let options = Options {
                databases: vec![dir.join("d.db")],
                remotes,
                tls: TlsFiles { private_key: key, certificate, ca_cert: ca, ..TlsFiles::default() },
                ..Options::default()
            };
            Program::Ours { _server: serve(options).unwrap() }
        })
    }

    fn stock(runtime: &Arc<Runtime>, keys: &Path, more: &[&str]) -> Server {
        Server::start(runtime, keys, more, |dir, remotes| {
            let [key, certificate, ca] = files(keys, "server");
            let mut command = std::process::Command::new("ovsdb-server");
            command.args(remotes.iter().map(|remote| format!("--remote={remote}")));
            command.args([format!("-p{key}"), format!("-c{certificate}"), format!("-C{ca}")]);
            command.args(["-vconsole:off", "--unixctl=ctl", "d.db"]).current_dir(dir).env("OVS_RUNDIR", dir);
            Program::Stock { _process: Process::start(&mut command) }
        })
    }

    fn start(
        runtime: &Arc<Runtime>,
        keys: &Path,
        more: &[&str],
        program: impl FnOnce(&Path, Vec<String>) -> Program,
    ) -> Server {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path());
        let socket = dir.path().join("db.sock");
        let mut remotes = vec![format!("punix:{}", socket.display()), "db:D,Root,connections".into()];
        remotes.extend(more.iter().map(|remote| (*remote).to_owned()));
        let program = program(dir.path(), remotes);
        wait_for("it listens", || testkit::listens(&socket));
        let mut root = Client::connect(runtime, &format!("unix:{}", socket.display()), None);
        let ports: Vec<String> = REMOTES.iter().map(|(target, _)| port(&mut root, target)).collect();
        let mut clients = BTreeMap::from([("root", root)]);
        for (name, remote) in CLIENTS {
            let Some(remote) = remote else { continue };
            let (method, address) = REMOTES[*remote].0.trim_start_matches('p').split_once(":0:").unwrap();
            let [private_key, certificate, ca_cert] =
                files(keys, &name[.."client-1".len()]).map(|file| Some(file.into()));
            let tls = Tls::new(TlsFiles { private_key, certificate, ca_cert, ..TlsFiles::default() });
            let target = format!("{method}:{address}:{}", ports[*remote]);
            clients.insert(name, Client::connect(runtime, &target, Some(&tls)));
        }
        Server { _program: program, clients, _dir: dir }
    }

    fn ask(&mut self, who: &str, method: &str, params: &Value) -> Value {
        self.clients.get_mut(who).unwrap().ask(method, params)
    }
}

/// Where a remote listens.
fn port(root: &mut Client, target: &str) -> String {
    let select = json!(["D", {"op": "select", "table": "Connection", "where": [["target", "==", target]],
        "columns": ["status"]}]);
    let mut port = None;
    wait_for("it listens", || {
        let reply = root.ask("transact", &select);
        let pairs = reply["result"][0]["rows"][0]["status"][1].as_array().cloned().unwrap_or_default();
        let found = pairs.iter().find(|pair| pair[0] == "bound_port");
        port = found.and_then(|pair| pair[1].as_str()).map(str::to_owned);
        port.is_some()
    });
    port.unwrap()
}

/// Our server and the stock one.
struct Pair {
    servers: [Server; 2],
    _keys: TempDir,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(&[])
    }

    /// Which have these remotes too.
    fn with(remotes: &[&str]) -> Pair {
        let keys = tempfile::tempdir().unwrap();
        pki(keys.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let runtime = Arc::new(runtime);
        Pair {
            servers: [
                Server::ours(&runtime, keys.path(), remotes),
                Server::stock(&runtime, keys.path(), remotes),
            ],
            _keys: keys,
        }
    }

    /// What both answer, which is the same.
    #[track_caller]
    fn both(&mut self, who: &str, method: &str, params: &Value) -> Value {
        let [ours, stock] = self.servers.each_mut().map(|server| server.ask(who, method, params));
        assert_eq!(ours, stock, "{who}: {method} {params}");
        ours
    }
}

struct Random(UuidGenerator);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    fn set(&mut self, of: &[&str], max: usize) -> Value {
        let mut some: Vec<&str> = (0..self.below(max + 1)).map(|_| self.one(of)).collect();
        some.sort_unstable();
        some.dedup();
        json!(["set", some])
    }

    /// A client's name, or another.
    fn name(&mut self) -> &'static str {
        self.one(&["client-1", "client-1", "client-2", "client-", ""])
    }

    fn labels(&mut self) -> Value {
        let key = self.one(&["chassis", "chassis", "chassi", ""]);
        json!(["map", [[key, self.name()]]])
    }

    fn columns(&mut self) -> Value {
        let mut row = json!({});
        for _ in 0..=self.below(3) {
            match self.below(7) {
                0 => row["creator"] = json!(self.name()),
                1 => row["owner"] = json!(["set", [self.name()]]),
                2 => row["owners"] = json!(["set", [self.name()]]),
                3 => row["labels"] = self.labels(),
                4 => row["short"] = self.labels(),
                5 => row["id"] = json!(self.below(6)),
                _ => row["value"] = json!(self.below(100)),
            }
        }
        row
    }

    fn operation(&mut self) -> Value {
        let table = self.one(TABLES);
        let condition = match self.below(6) {
            0 => json!([]),
            _ => json!([["id", "==", self.below(6)]]),
        };
        match self.below(5) {
            0 | 1 => {
                let mut row = self.columns();
                row["id"] = json!(self.below(6));
                let uuid = self.0.next_uuid().to_string();
                json!({"op": "insert", "table": table, "row": row, "uuid": uuid})
            }
            2 => json!({"op": "update", "table": table, "where": condition, "row": self.columns()}),
            3 => {
                let mutations = match self.below(4) {
                    0 => json!([["labels", "insert", self.labels()]]),
                    1 => json!([["value", "+=", 1], ["id", "*=", 1]]),
                    2 => json!([]),
                    _ => json!([["value", "+=", 1]]),
                };
                json!({"op": "mutate", "table": table, "where": condition, "mutations": mutations})
            }
            _ => json!({"op": "delete", "table": table, "where": condition}),
        }
    }

    /// What the role may do with a table from now on.
    fn permission(&mut self) -> Value {
        let columns = &[
            "",
            "creator",
            "creator",
            "owner",
            "labels:chassis",
            "owners",
            "labels::chassis",
            ":labels:chassis:x",
            "labels:",
            ":",
            "labels:chassi",
            "short:chassis",
            "value",
            "labels",
            "nonesuch",
            "nonesuch:chassis",
            "_uuid",
        ];
        let update = &["value", "value", "id", "creator", "labels", "owner", "nonesuch", ""];
        json!({"op": "update", "table": "RBAC_Permission", "where": [["table", "==", self.one(TABLES)]], "row": {
            "authorization": self.set(columns, 2), "insert_delete": self.below(4) > 0, "update": self.set(update, 3)}})
    }
}

#[test]
fn random_clients_with_roles_may_do_what_the_stock_server_lets_them() {
    let mut pair = Pair::new();
    let mut random = Random(UuidGenerator::from_seed(7));
    let steps =
        testkit::cases("vswitchd::random_clients_with_roles_may_do_what_the_stock_server_lets_them", 3_000);
    let names: Vec<&str> = CLIENTS.iter().map(|(name, _)| *name).collect();
    let mut told = BTreeMap::<(&str, bool), u32>::new();
    for _ in 0..steps {
        if random.below(8) == 0 {
            let permission = random.permission();
            pair.both("root", "transact", &json!(["D", permission]));
        }
        let who = random.one(&[&names[..], &["client-1", "client-2"], &["client-1", "client-2"]].concat());
        let operations = (0..=random.below(2)).map(|_| random.operation());
        let params = std::iter::once(json!("D")).chain(operations).collect();
        let reply = pair.both(who, "transact", &params);
        let results = reply["result"].as_array().unwrap();
        let is_refused = results.iter().any(|result| result["error"] == "permission error");
        *told.entry((who, is_refused)).or_default() += 1;
    }
    for table in TABLES {
        let select = json!(["D", {"op": "select", "table": table, "where": []}]);
        let [ours, stock] = pair.servers.each_mut().map(|server| {
            let mut rows =
                server.ask("root", "transact", &select)["result"][0]["rows"].as_array().unwrap().clone();
            rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("_version")));
            rows.sort_by_key(|row| row["_uuid"].to_string());
            rows
        });
        assert_eq!(ours, stock, "{table}");
    }
    let count = |who, is_refused| told.get(&(who, is_refused)).copied().unwrap_or_default();
    for who in ["client-1", "client-2"] {
        let (let_do, refused) = (count(who, false), count(who, true));
        assert!(let_do > steps / 50 && refused > steps / 50, "{who}: {told:?}");
    }
    for who in ["root", "client-1 without a role"] {
        assert_eq!(count(who, true), 0, "{told:?}");
    }
    for who in ["client-1 of an unknown role", "somebody"] {
        assert_eq!(count(who, false), 0, "{told:?}");
    }
}

#[test]
fn a_role_lets_nobody_convert_a_database_and_everybody_read_and_lock_it() {
    let mut pair = Pair::new();
    for (who, _) in &CLIENTS[1..] {
        if *who == "client-1 without a role" {
            continue;
        }
        let refused = pair.both(who, "convert", &json!(["D", schema()]));
        assert_eq!(refused["error"]["error"], "permission error", "{refused}");
        let select = json!(["D", {"op": "select", "table": "RBAC_Role", "where": [], "columns": ["name"]}]);
        assert_eq!(pair.both(who, "transact", &select)["result"], json!([{"rows": [{"name": "tenant"}]}]));
        assert_eq!(
            pair.both(who, "lock", &json!([who.replace([' ', '-'], "_")]))["result"],
            json!({"locked": true})
        );
    }
}

#[test]
fn what_waits_is_judged_when_its_time_has_come() {
    let mut pair = Pair::new();
    let row = json!({"id": 1, "creator": "client-2"});
    let transaction = json!(["D",
        {"op": "wait", "table": "T0", "where": [], "columns": ["id"], "until": "!=", "rows": []},
        {"op": "delete", "table": "T0", "where": []}]);
    for (who, expected) in [("client-1", "permission error"), ("client-2", "")] {
        for server in &mut pair.servers {
            server.clients.get_mut(who).unwrap().say("transact", &transaction);
        }
        if who == "client-1" {
            // What one connection has said may be read after what another says later: here is the answer that
            // tells that it was read.
            for server in &mut pair.servers {
                server.clients.get_mut(who).unwrap().ask("echo", &json!([]));
            }
            let uuid = "00000000-0000-4000-8000-000000000001";
            pair.both(
                "root",
                "transact",
                &json!(["D", {"op": "insert", "table": "T0", "row": row, "uuid": uuid}]),
            );
        }
        let [ours, stock] = pair.servers.each_mut().map(|server| server.clients.get_mut(who).unwrap().hear());
        assert_eq!(ours, stock, "{who}");
        assert_eq!(ours["result"][1]["error"].as_str().unwrap_or_default(), expected, "{ours}");
    }
}

/// The stock server gives the role to a remote when it begins to listen, and changes it no more.
#[test]
fn a_role_that_changes_holds_for_those_who_are_connected() {
    let keys = tempfile::tempdir().unwrap();
    pki(keys.path());
    let runtime = Arc::new(tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let mut server = Server::ours(&runtime, keys.path(), &[]);
    let insert = json!(["D", {"op": "insert", "table": "T3", "row": {}}]);
    let who = "client-1 without a role";
    let is_refused = move |server: &mut Server| {
        server.ask(who, "transact", &insert)["result"][0]["error"] == "permission error"
    };
    assert!(!is_refused(&mut server));
    for role in ["tenant", ""] {
        let update = json!(["D", {"op": "update", "table": "Connection", "row": {"role": role},
            "where": [["target", "==", REMOTES[1].0]]}]);
        server.ask("root", "transact", &update);
        wait_for("the role holds", || is_refused(&mut server) != role.is_empty());
    }
}

#[test]
fn a_target_that_is_named_by_itself_too_has_the_role_of_its_row() {
    let mut pair = Pair::with(&[REMOTES[0].0]);
    let uuid = "00000000-0000-4000-8000-000000000001";
    let insert = json!(["D", {"op": "insert", "table": "T3", "row": {}, "uuid": uuid}]);
    let refused = pair.both("client-1", "transact", &insert);
    assert_eq!(refused["result"][0]["error"], "permission error", "{refused}");
}
