//! Stock database servers, and programs run on them.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of an empty database.
pub struct Server {
    dir: tempfile::TempDir,
    child: Child,
}

/// What a program said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

impl Server {
    pub fn start() -> Server {
        let dir = tempfile::Builder::new().prefix("crosspoint-db-").tempdir().unwrap();
        let file = dir.path().join("conf.db");
        let created = Command::new("ovsdb-tool").arg("create").arg(&file).arg(SCHEMA).status();
        assert!(created.expect("the package openvswitch-switch is installed").success());
        let child = Command::new("ovsdb-server")
            .arg(format!("--remote=punix:{}", dir.path().join("db.sock").display()))
            .arg(format!("--unixctl={}", dir.path().join("ctl").display()))
            .arg(file)
            .env("OVS_RUNDIR", dir.path())
            .env("OVS_LOGDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { dir, child };
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(server.socket()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }

    /// The connection method of its socket.
    pub fn method(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// Runs a program with words to this server; what it reads is `input`.
    pub fn run(&self, program: &Path, args: &[String], input: &str) -> Said {
        // From a file, since the stock program seeks in what it restores.
        let mut stdin = tempfile::tempfile().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        stdin.rewind().unwrap();
        let output = Command::new(program)
            .args(args)
            .env("OVS_RUNDIR", self.dir.path())
            .env("OVS_LOGDIR", self.dir.path())
            .env("OVS_SYSLOG_METHOD", "null")
            .current_dir(self.dir.path())
            .stdin(stdin)
            .output()
            .unwrap();
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with the binary under test under the name of a stock program.
pub fn link(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    if !path.exists() {
        std::os::unix::fs::symlink(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")), &path).unwrap();
    }
    path
}

/// The words of a line, quoted as for a shell.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, ' ') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What differs from run to run is replaced: UUIDs, times, directories.
pub fn canonical(text: &str, server: &Server) -> String {
    let text = text.replace(&*server.dir().to_string_lossy(), "DIR");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if rest.get(..36).is_some_and(is_uuid) {
            out.push_str("UUIDUUID-UUID-UUID-UUID-UUIDUUIDUUID");
            rest = &rest[36..];
        } else if rest.get(..20).is_some_and(is_time) {
            out.push_str("TIME");
            let end = rest.find(['Z', ' ']).map_or(rest.len(), |at| at + 1);
            rest = &rest[end..];
        } else if out.ends_with("\">") && rest.get(..9).is_some_and(is_short_uuid) {
            out.push_str("UUIDUUID");
            rest = &rest[8..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// The text of a link in HTML.
fn is_short_uuid(text: &str) -> bool {
    text.ends_with('<') && text[..8].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `2026-01-31T12:00:00`, the head of a log line.
fn is_time(text: &str) -> bool {
    text.bytes().zip(*b"0000-00-00T00:00:00").all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    })
}

/// Rows come in no particular order: records, lines or elements are sorted, whatever the format.
pub fn sorted(text: &str) -> Vec<String> {
    if let Ok(mut json) = serde_json::from_str::<serde_json::Value>(text) {
        sort_json(&mut json);
        return vec![json.to_string()];
    }
    let separator = if text.contains("\n\n") { "\n\n" } else { "\n" };
    let mut parts: Vec<String> = text.trim_end().split(separator).map(str::to_owned).collect();
    parts.sort();
    parts
}

fn sort_json(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Array(elements) => {
            elements.iter_mut().for_each(sort_json);
            elements.sort_by_key(|element| element.to_string());
        }
        serde_json::Value::Object(members) => members.values_mut().for_each(sort_json),
        _ => {}
    }
}
