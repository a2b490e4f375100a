//! A database server of either kind, as a process with a directory of its own.

use super::client::Client;
use crate::daemon::status_bytes;
use crate::process::{Process, TempDir, run};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This binary's `ovsdb-server`.
    Ours,
    /// Debian's.
    Stock,
}

impl Kind {
    /// As in rows.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ours => "crosspoint",
            Kind::Stock => "ovsdb-server",
        }
    }
}

/// Writes a database's contents into its file before the server opens it.
type Fill<'a> = dyn Fn(&Path) -> Result<(), String> + 'a;

/// A server that runs.
pub struct Server {
    process: Process,
    dir: TempDir,
    /// From the start of the process to its first answer.
    pub started_in: Duration,
}

impl Server {
    /// Starts one on a file that `fill` writes, or on an empty database of the schema Open_vSwitch, `nice`
    /// levels below this process.
    pub fn start(kind: Kind, nice: i32, fill: Option<&Fill<'_>>) -> Result<Server, String> {
        let dir = TempDir::new(&format!("ovsdb-{}-{}", kind.name(), next()))?;
        let db = dir.0.join("conf.db");
        match fill {
            Some(fill) => fill(&db)?,
            None => drop(run(Command::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA))?),
        }
        // `nice` executes the server, so this is the server's process.
        let mut command = Command::new("nice");
        command.arg("-n").arg(nice.to_string()).env("LC_ALL", "C");
        if kind == Kind::Ours {
            command.arg(std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?);
        }
        command.arg("ovsdb-server");
        command.arg(&db).arg(format!("--remote=punix:{}", dir.0.join("db.sock").display()));
        command.arg(format!("--unixctl={}", dir.0.join("ctl").display())).arg("-vconsole:off");
        command.env("OVS_RUNDIR", &dir.0).env("OVS_DBDIR", &dir.0).env("OVS_LOGDIR", &dir.0);
        let log = std::fs::File::create(dir.0.join("stderr")).map_err(|e| e.to_string())?;
        let begin = Instant::now();
        let mut process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))?;
        let socket = dir.0.join("db.sock");
        loop {
            if let Ok(mut client) = Client::connect(&socket) {
                client.call("echo", &serde_json::json!([]))?;
                // A process without permission for the niceness prints a message, and continues without it.
                let said = std::fs::read_to_string(dir.0.join("stderr")).unwrap_or_default();
                if said.contains("cannot set niceness") {
                    return Err(format!("{}: {}", kind.name(), said.trim()));
                }
                break;
            }
            if let Ok(Some(status)) = process.0.try_wait() {
                let said = std::fs::read_to_string(dir.0.join("stderr")).unwrap_or_default();
                return Err(format!("{}: {status}: {}", kind.name(), said.trim()));
            }
            if begin.elapsed() > Duration::from_secs(120) {
                return Err(format!("{}: it does not answer", kind.name()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Server { process, dir, started_in: begin.elapsed() })
    }

    /// Connects to it.
    pub fn connect(&self) -> Result<Client, String> {
        Client::connect(&self.dir.0.join("db.sock"))
    }

    /// Memory that it has in use, in bytes.
    pub fn rss_bytes(&self) -> Result<u64, String> {
        status_bytes(self.process.id(), "VmRSS:")
    }

    /// Asks it to compact its file; the process that waits for its answer.
    pub fn compact(&self) -> Result<Process, String> {
        let mut command = Command::new("ovs-appctl");
        command.arg("-t").arg(self.dir.0.join("ctl")).arg("ovsdb-server/compact");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        child.map(Process).map_err(|e| format!("{command:?}: {e}"))
    }

    /// The file that has the database's name now.
    pub fn file_id(&self) -> Result<u64, String> {
        let path: PathBuf = self.dir.0.join("conf.db");
        std::fs::metadata(&path).map(|m| m.ino()).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Names of directories differ.
fn next() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
