//! The stock `ovsdb-server` as a counterpart: one of its own for a test, in a temporary directory.

pub mod model;
pub mod pair;
pub mod random;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A running stock server with one database; it ends with this value.
pub struct StockServer {
    child: Child,
    remote: String,
    _directory: tempfile::TempDir,
}

impl StockServer {
    /// A server of an empty database of the schema in the file `schema`.
    pub fn start(schema: impl AsRef<Path>) -> StockServer {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let created = Command::new("ovsdb-tool")
            .arg("create")
            .arg(path("db"))
            .arg(schema.as_ref())
            .output()
            .expect("ovsdb-tool of openvswitch-switch is installed");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let remote = format!("unix:{}", path("db.sock").display());
        let mut child = Command::new("ovsdb-server")
            .arg(format!("--remote=p{remote}"))
            .arg(format!("--unixctl={}", path("ctl").display()))
            .arg("--no-chdir")
            .arg(path("db"))
            .env("OVS_RUNDIR", directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ovsdb-server is installed");
        let mut stderr = child.stderr.take().unwrap();
        while UnixStream::connect(path("db.sock")).is_err() {
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                stderr.read_to_string(&mut said).unwrap();
                panic!("ovsdb-server ended: {said}");
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // What it says later must go somewhere.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        StockServer { child, remote, _directory: directory }
    }

    /// A server of an empty database of `schema`.
    pub fn with_schema(schema: &Value) -> StockServer {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), schema.to_string()).unwrap();
        StockServer::start(file.path())
    }

    /// Where it listens: `unix:PATH`.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// What `ovsdb-client` with these arguments prints; it must succeed.
    pub fn client(&self, arguments: &[&str]) -> String {
        let output = Command::new("ovsdb-client").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A connection.
    pub fn connect(&self) -> StockSession {
        StockSession::connect(&self.remote)
    }
}

impl Drop for StockServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A JSON-RPC connection to a server.
pub struct StockSession {
    stream: UnixStream,
    received: Vec<u8>,
    next_id: u64,
}

impl StockSession {
    pub fn connect(remote: &str) -> StockSession {
        let stream = UnixStream::connect(remote.strip_prefix("unix:").unwrap()).unwrap();
        StockSession { stream, received: Vec::new(), next_id: 0 }
    }

    /// Sends a request and waits for its reply: "result", or what "error" holds, null where the connection
    /// ends before.
    pub fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next_id += 1;
        let request = json!({"method": method, "params": params, "id": self.next_id});
        self.stream.write_all(request.to_string().as_bytes()).unwrap();
        loop {
            let Some(message) = self.receive() else { return Err(Value::Null) };
            if message["id"] == json!(self.next_id) {
                return if message["error"].is_null() {
                    Ok(message["result"].clone())
                } else {
                    Err(message["error"].clone())
                };
            }
        }
    }

    fn receive(&mut self) -> Option<Value> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.received).into_iter::<Value>();
            if let Some(Ok(value)) = values.next() {
                let used = values.byte_offset();
                self.received.drain(..used);
                return Some(value);
            }
            let mut bytes = [0; 65536];
            let count = self.stream.read(&mut bytes).unwrap();
            if count == 0 {
                return None;
            }
            self.received.extend_from_slice(&bytes[..count]);
        }
    }
}
