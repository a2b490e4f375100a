//! The other end of the control socket: finds a daemon by its pid file or the socket's path, and runs one
//! command.

use crate::jsonrpc::{Framer, Limits};
use host::daemonize::pid_of_running;
use host::log::os_text;
use host::rundir::RunDir;
use serde::Deserialize;
use serde_json::json;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why there is no answer. The texts are those of `ovs-appctl`.
#[derive(Debug)]
pub enum ClientError {
    /// The daemon's pid file cannot be read.
    PidFile(PathBuf, io::Error),
    /// No connection.
    Connect(PathBuf, io::Error),
    /// The connection broke.
    Transact(PathBuf, io::Error),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::PidFile(path, e) => {
                write!(f, "cannot read pidfile \"{}\" ({})", path.display(), os_text(e))
            }
            ClientError::Connect(path, e) => {
                write!(f, "cannot connect to \"{}\" ({})", path.display(), os_text(e))
            }
            ClientError::Transact(path, e) => {
                write!(f, "{}: transaction error ({})", path.display(), os_text(e))
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// Longest reply: a dump of all flows there may be.
const REPLY_BYTES_MAX: usize = 1 << 30;

/// A connection to a daemon.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
}

impl Client {
    /// Connects to `target`: the path of a socket, or a daemon's name, whose pid file in the run directory
    /// says which. `timeout` bounds each wait for the daemon.
    pub fn connect(target: &str, timeout: Option<Duration>) -> Result<Client, ClientError> {
        let path = if target.starts_with('/') { PathBuf::from(target) } else { by_name(target)? };
        let connected = unix_socket::connect(&path).and_then(|stream| {
            stream.set_read_timeout(timeout)?;
            stream.set_write_timeout(timeout)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(Client { stream, path }),
            Err(e) => {
                tracing::warn!(target: "unixctl", "failed to connect to {}", path.display());
                Err(ClientError::Connect(path, e))
            }
        }
    }

    /// Where it is connected to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command. The inner result is the daemon's: its text, or its error's.
    pub fn run(&mut self, command: &str, args: &[String]) -> Result<Result<String, String>, ClientError> {
        self.exchange(command, args).map_err(|e| ClientError::Transact(self.path.clone(), e))
    }

    fn exchange(&mut self, command: &str, args: &[String]) -> io::Result<Result<String, String>> {
        #[derive(Deserialize)]
        struct Reply {
            result: Option<String>,
            error: Option<String>,
        }
        let name = self.path.display();
        let request = json!({"id": 0, "method": command, "params": args}).to_string();
        tracing::debug!(target: "jsonrpc",
            "unix:{name}: send request, method=\"{command}\", params={}, id=0", json!(args));
        self.stream.write_all(request.as_bytes())?;
        let mut framer = Framer::new(Limits { bytes_max: REPLY_BYTES_MAX, ..Limits::default() });
        let mut bytes = [0; 64 << 10];
        let bad = |why: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
        let reply: Reply = loop {
            if let Some(text) = framer.next_object().map_err(|e| bad(&e))? {
                break serde_json::from_str(text).map_err(|e| bad(&e))?;
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => framer.feed(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        Ok(match reply {
            Reply { error: Some(error), .. } => {
                tracing::debug!(target: "jsonrpc", "unix:{name}: received error, error={}, id=0", json!(error));
                Err(error)
            }
            Reply { result: None, .. } => return Err(rustix::io::Errno::PROTO.into()),
            Reply { result: Some(result), .. } => {
                tracing::debug!(target: "jsonrpc", "unix:{name}: received reply, result={}, id=0", json!(result));
                Ok(result)
            }
        })
    }
}

fn by_name(name: &str) -> Result<PathBuf, ClientError> {
    let dir = RunDir::from_env();
    let pid_file = dir.path().join(format!("{name}.pid"));
    match pid_of_running(&pid_file) {
        Ok(pid) => Ok(dir.path().join(format!("{name}.{pid}.ctl"))),
        Err(e) => {
            if e.kind() == io::ErrorKind::NotFound {
                tracing::warn!(target: "daemon_unix", "{}: open: {}", pid_file.display(), os_text(&e));
            }
            Err(ClientError::PidFile(pid_file, e))
        }
    }
}
