//! Stock database servers, and programs run on them.

use crate::common::{Process, RunDir, Said, binary, run, run_dir};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server of an empty database.
pub struct Server {
    dir: RunDir,
    _child: Process,
}

impl Server {
    pub fn start() -> Server {
        let dir = run_dir();
        let child = dir.serve_database();
        Server { dir, _child: child }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The connection method of its socket.
    pub fn method(&self) -> String {
        self.dir.database()
    }

    /// A program in its directory.
    pub fn command(&self, program: &str) -> Command {
        self.dir.command(program)
    }

    /// Runs a program with words to this server; what it reads is `input`.
    pub fn run(&self, program: &Path, args: &[String], input: &str) -> Said {
        // From a file, since the stock program seeks in what it restores.
        let mut stdin = tempfile::tempfile().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        stdin.rewind().unwrap();
        run(self.dir.command(program).env("OVS_SYSLOG_METHOD", "null").args(args).stdin(stdin))
    }
}

/// A directory with the binary under test under the name of a stock program.
pub fn link(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    if !path.exists() {
        std::os::unix::fs::symlink(binary(), &path).unwrap();
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
