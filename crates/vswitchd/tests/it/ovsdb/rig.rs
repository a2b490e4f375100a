//! A server in a directory of its own, and ways to speak to it.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use vswitchd::ovsdb::{Handle, Options, serve};

/// A server that has the database `D`, made by the stock `ovsdb-tool`, and listens on `db.sock`.
pub struct Rig {
    pub dir: TempDir,
    pub server: Handle,
}

/// A schema that is nothing like the switch's.
pub fn schema() -> Value {
    let reference =
        json!({"type": {"key": {"type": "uuid", "refTable": "Logical_Port"}, "min": 0, "max": "unlimited"}});
    json!({"name": "D", "version": "1.2.3", "tables": {
        "Logical_Switch": {"isRoot": true, "indexes": [["name"]], "columns": {
            "name": {"type": "string"}, "ports": reference,
            "external_ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
        "Logical_Port": {"columns": {
            "name": {"type": "string"}, "tag": {"type": {"key": "integer", "min": 0}},
            "addresses": {"type": {"key": "string", "min": 0, "max": "unlimited"}}}},
        "Connection": {"isRoot": true, "columns": {
            "target": {"type": "string"}, "max_backoff": {"type": {"key": "integer", "min": 0}},
            "inactivity_probe": {"type": {"key": "integer", "min": 0}},
            "read_only": {"type": "boolean"},
            "other_config": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            "is_connected": {"type": "boolean", "ephemeral": true},
            "status": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}, "ephemeral": true}}},
        "Global": {"isRoot": true, "maxRows": 1, "columns": {
            "connections": {"type": {"key": {"type": "uuid", "refTable": "Connection"}, "min": 0, "max": "unlimited"}},
            "key": {"type": "string"}, "certificate": {"type": "string"}, "ca": {"type": "string"}}},
        "Counter": {"isRoot": true, "columns": {"n": {"type": "integer"}, "text": {"type": "string"}}}}})
}

/// Runs a stock program in `dir`.
pub fn run(dir: &Path, program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env("OVS_RUNDIR", dir)
        .env("OVS_DBDIR", dir)
        .env("OVS_LOGDIR", dir)
        .output();
    output.unwrap_or_else(|e| panic!("{program}, of the packages openvswitch-common and -switch: {e}"))
}

/// The same where it must succeed; what it says.
#[track_caller]
pub fn ok(dir: &Path, program: &str, arguments: &[&str]) -> String {
    let output = run(dir, program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn create(dir: &Path) -> PathBuf {
    std::fs::write(dir.join("d.ovsschema"), schema().to_string()).unwrap();
    ok(dir, "ovsdb-tool", &["create", "d.db", "d.ovsschema"]);
    dir.join("d.db")
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let database = create(dir.path());
        let mut options = Options {
            databases: vec![database],
            remotes: vec![format!("punix:{}", dir.path().join("db.sock").display())],
            control: Some(dir.path().join("ctl")),
            ..Options::default()
        };
        change(&mut options);
        let server = serve(options).unwrap();
        Rig { dir, server }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn remote(&self) -> String {
        format!("unix:{}", self.path("db.sock").display())
    }

    /// Runs the stock `ovsdb-client`, its server's name in the place of `S`.
    #[track_caller]
    pub fn client(&self, arguments: &[&str]) -> String {
        let remote = self.remote();
        let arguments: Vec<&str> = arguments.iter().map(|a| if *a == "S" { &remote } else { *a }).collect();
        ok(self.dir.path(), "ovsdb-client", &arguments)
    }

    #[track_caller]
    pub fn appctl(&self, arguments: &[&str]) -> String {
        let ctl = self.path("ctl");
        let arguments = [&["-t", ctl.to_str().unwrap()], arguments].concat();
        ok(self.dir.path(), "ovs-appctl", &arguments)
    }

    pub fn appctl_fails(&self, arguments: &[&str]) -> String {
        let ctl = self.path("ctl");
        let arguments = [&["-t", ctl.to_str().unwrap()], arguments].concat();
        let output = run(self.dir.path(), "ovs-appctl", &arguments);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap().lines().next().unwrap_or_default().to_owned()
    }

    /// Runs operations by the stock client; their results.
    #[track_caller]
    pub fn transact(&self, operations: Value) -> Value {
        let mut transaction = vec![json!("D")];
        transaction.extend(operations.as_array().unwrap().iter().cloned());
        let text = self.client(&["transact", "S", &Value::Array(transaction).to_string()]);
        serde_json::from_str(&text).unwrap()
    }

    pub fn connect(&self) -> Client {
        Client::new(UnixStream::connect(self.path("db.sock")).unwrap())
    }
}

/// A client of our own, which says what it is told to say.
pub struct Client {
    pub stream: UnixStream,
    heard: Vec<u8>,
}

impl Client {
    pub fn new(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream, heard: Vec::new() }
    }

    pub fn say(&mut self, method: &str, params: Value, id: impl Into<Value>) {
        let message = json!({"method": method, "params": params, "id": id.into()});
        self.stream.write_all(message.to_string().as_bytes()).unwrap();
    }

    /// The next message. `None`: the server has closed the connection.
    pub fn hear(&mut self) -> Option<Value> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.heard).into_iter::<Value>();
            match values.next() {
                Some(Ok(value)) => {
                    let taken = values.byte_offset();
                    self.heard.drain(..taken);
                    return Some(value);
                }
                Some(Err(e)) if !e.is_eof() => panic!("{e}: {:?}", String::from_utf8_lossy(&self.heard)),
                _ => {}
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(n) => self.heard.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// The answer to a request, other messages passed over.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(method, params, "asked");
        loop {
            let message = self.hear().expect("the connection lives");
            if message["id"] == json!("asked") {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
        }
    }
}
