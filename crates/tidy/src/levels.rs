//! Levels of log messages: what the daemons log at INFO and above is Open vSwitch's, or stands in [`OWN`].
//!
//! Scripts and monitoring know Open vSwitch's messages, and count warnings. A message of our own is at DBG,
//! unless an operator must see it: the switch falls short of its configuration, or loses something that no
//! counter shows.

use crate::Problems;
use crate::source::without_tests;
use crate::tree::File;

/// Crates whose code runs in daemons.
const CRATES: &[&str] =
    &["crosspoint", "datapath", "host", "openflow", "ovsdb", "ports", "switch", "transport", "vswitchd"];

/// Texts that Open vSwitch's programs do not contain as they are, with their targets and why they are at INFO
/// or above all the same. `AS_THERE`: the text is Open vSwitch's, but is put together from parts.
pub const OWN: &[(&str, &str, &str)] = &[
    ("bridge", "{}", AS_THERE),
    ("connmgr", "{name}: added service controller \"{target}\"", AS_THERE),
    ("connmgr", "{why}", AS_THERE),
    ("connmgr", "{}<->{}: {text}", AS_THERE),
    ("dpif_netdev", "failed to put flow: in_port is not an exact match", AS_THERE),
    ("dpif_netdev_extract", "Default MFEX Extract implementation is scalar.", AS_THERE),
    ("dpif_netdev_impl", "Default DPIF implementation is dpif_scalar.", AS_THERE),
    ("jsonrpc", "unix: {why}", AS_THERE),
    ("jsonrpc", "{}: {why}", AS_THERE),
    ("memory", "{text}", AS_THERE),
    ("memory", "{}", AS_THERE),
    ("ofproto_dpif", "{name}: {told}", AS_THERE),
    (
        "ovsdb_error",
        "unexpected ovsdb error: Server ID check failed: Self replicating is not allowed",
        AS_THERE,
    ),
    ("ovsdb_file", "syntax error: {shown}: {cut}", AS_THERE),
    ("ovsdb_jsonrpc_server", "{}: {why}", AS_THERE),
    ("ovsdb_server", "{}", AS_THERE),
    ("rconn", "{}<->{}: connection dropped (Protocol error)", AS_THERE),
    (
        "reconnect",
        "{name}: continuing to reconnect in the background but suppressing further logging",
        AS_THERE,
    ),
    ("reconnect", "{}: connection attempt failed ({why})", AS_THERE),
    ("reconnect", "{}: connection dropped (Protocol error)", AS_THERE),
    ("replication", "Table {} is not in the local schema.", AS_THERE),
    ("socket_util", "{target}: {}", AS_THERE),
    ("stream_ssl", "{name}: {why}", AS_THERE),
    ("stream_ssl", "{why}", AS_THERE),
    ("transaction", "{line}", AS_THERE),
    ("bridge", "bridge {bridge}: interface {name}: {why}", "a port is missing"),
    ("bridge", "devices cannot be listed: {error}", "ports are missing"),
    ("bridge", "the database refused a status update: {why}", "rows do not show what runs"),
    (
        "bridge",
        "the kernel does not report new devices ({why}): ports are retried with the next change",
        "ports are missing",
    ),
    ("bridge", "{error}", "a setting is not in force"),
    ("bridge", "{error}; it keeps its previous options", "a setting is not in force"),
    ("bridge", "{warning}", "a setting is not in force"),
    (
        "connmgr",
        "a rule of the switch's own could not be set: {error}",
        "fail-open or in-band control does not work",
    ),
    ("connmgr", "bridge {name} cannot be reached by OpenFlow: {error}", "a bridge has no socket"),
    ("connmgr", "{}: cannot listen: {why}", "no controller can connect"),
    ("daemon_unix", "{}: {why}; going on", "the pid file is not locked"),
    ("datapath", "cannot wait for the workers: {e}", "the control thread learns nothing from workers"),
    ("dpif", "failed to remove ports: {error}", "a worker is stuck"),
    ("dpif", "the workers did not release the ports: {error}", "a worker is stuck"),
    ("dpif_netdev", "a queue could not be moved: {error}", "a setting is not in force"),
    (
        "dpif_netdev",
        "every worker is kept for queues that are bound to it; the others share them",
        "queues share workers against the configuration",
    ),
    ("dpif_netdev", "the workers could not be changed: {error}", "a setting is not in force"),
    ("dpif_netdev", "{name}: was asked for {} {seconds:.1} s ago and has not answered", "a worker is stuck"),
    ("dpif_netdev", "{note}", "a setting is not in force"),
    (
        "jsonrpc",
        "{}: closed: requests take too much memory",
        "a client is disconnected, as for a message that cannot be parsed",
    ),
    ("netdev", "devices could not be removed: {error}", "devices are left in the kernel"),
    ("netdev", "cannot look for devices of an earlier process: {error}", "devices are left in the kernel"),
    ("netdev", "{name}: could not be set {}: {why}", "a device is not up, or not down"),
    ("netdev", "{name}: {error}", "a device does not work"),
    ("netdev", "{}: the device is gone", "a port has no device"),
    (
        "ofproto_dpif_upcall",
        "a packet's translation failed; of further ones, one a minute is logged:\n{}",
        "rules are wrong, in Open vSwitch's words",
    ),
    (
        "ovsdb",
        "{}: converted from schema version {} to {}; as it was: {}",
        "a file was changed, and where its copy is",
    ),
    ("ovsdb_file", "work on a database file failed: {error}", "data may be lost"),
    ("ovsdb_file", "{name}: could not be compacted: {why}", "the file grows"),
    ("ovsdb_file", "{name}: could not be made durable: {why}", "data may be lost"),
    ("ovsdb_server", "a remote cannot be used: {why}", "no client can connect"),
    (
        "ovsdb_server",
        "could not report databases and remotes to the monitor process: {error}",
        "a restart serves less",
    ),
    ("ovsdb_server", "{name}: {error}", "a database is not served"),
    ("ovsdb_server", "{}: status not written: {why}", "rows do not show what runs"),
    ("replication", "{name} is not replicated: its schema is invalid", "data has no copy"),
    ("replication", "{target}: {why}; not replicating", "data has no copy"),
    ("stream_ssl", "keeping the old certificates: {why}", "a setting is not in force"),
    ("stream_ssl", "{list}: unsupported ciphers: {}", "a setting is not in force"),
    ("system_stats", "the statistics of this machine are not updated: {why}", "rows do not show what runs"),
    ("vswitchd", "the keepalive thread is gone", "controllers may be lost when the control thread is busy"),
];

const AS_THERE: &str = "Open vSwitch logs it";

/// A message in the source.
#[derive(PartialEq, Eq, Debug)]
struct Message {
    path: String,
    target: Option<String>,
    /// Its format, on one line.
    text: String,
}

/// Messages without a target, those that neither `stock` (the strings in Open vSwitch's programs) nor `own`
/// has, and rows of `own` that are not needed.
pub fn check(files: &[File], stock: &str, own: &[(&str, &str, &str)]) -> Problems {
    let mut problems = Problems::new();
    let mut used = vec![false; own.len()];
    let is_daemons = |file: &&File| {
        file.path.contains("/src/") && file.crate_name().is_some_and(|name| CRATES.contains(&name))
    };
    for message in files.iter().filter(is_daemons).filter(|file| !file.is_test()).flat_map(messages) {
        let Message { path, target, text } = &message;
        let Some(target) = target else {
            problems.push(format!("{path}: {text:?} has no target, and so no module of the log"));
            continue;
        };
        if is_in(stock, text) {
            continue;
        }
        match own.iter().position(|row| (row.0, row.1) == (target, text)) {
            Some(row) => used[row] = true,
            None => {
                problems.push(format!("{path}: Open vSwitch does not log {text:?}: DBG, or a row in OWN"))
            }
        }
    }
    let unused = own.iter().zip(used).filter(|(_, used)| !used);
    problems.extend(unused.map(|(row, _)| format!("{}, {:?} needs no row in OWN", row.0, row.1)));
    problems
}

/// Whether the longest literal part of a format is in Open vSwitch's programs. One that is shorter than a
/// word says nothing.
fn is_in(stock: &str, format: &str) -> bool {
    let literals = format.split('{').map(|part| part.split_once('}').map_or(part, |(_, literal)| literal));
    let longest = literals.max_by_key(|literal| literal.len()).unwrap_or_default();
    longest.trim().len() >= 6 && stock.contains(longest)
}

/// What a file logs at INFO and above.
fn messages(file: &File) -> Vec<Message> {
    // A backslash at the end of a line continues a text.
    let code: String = without_tests(&file.text).split("\\\n").map(str::trim_start).collect();
    let calls = ["info!(", "warn!(", "error!("];
    let mut found = Vec::new();
    for call in code.split("tracing::").skip(1) {
        let Some(arguments) = calls.iter().find_map(|name| call.strip_prefix(name)) else { continue };
        let (target, rest) = match arguments.trim_start().strip_prefix("target:") {
            Some(after) => {
                let (target, rest) = literal(after);
                (Some(target), rest)
            }
            None => (None, arguments),
        };
        found.push(Message { path: file.path.clone(), target, text: literal(rest).0 });
    }
    found
}

/// The next string literal, and what follows it.
fn literal(code: &str) -> (String, &str) {
    let from = code.split_once('"').map_or("", |(_, from)| from);
    let mut text = String::new();
    let mut is_escaped = false;
    for (at, c) in from.char_indices() {
        match c {
            '"' if !is_escaped => return (text, &from[at + 1..]),
            '\\' if !is_escaped => is_escaped = true,
            c => {
                text.push(if is_escaped && c == 'n' { '\n' } else { c });
                is_escaped = false;
            }
        }
    }
    (text, "")
}

/// The printable strings of a program.
pub fn strings(program: &[u8]) -> String {
    let texts = program.split(|byte| !matches!(byte, b' '..=b'~' | b'\n')).filter(|text| text.len() >= 6);
    texts.map(|text| String::from_utf8_lossy(text) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_open_vswitchs_nor_in_the_table_is_found() {
        let text = "fn f() {
            tracing::warn!(target: \"bridge\", \"{name}: not \\
                           there any {more}\");
            tracing::error!(target: \"bridge\", \"{error}\");
            tracing::info!(
                target: \"vconn\",
                \"said \\\"no\\\" {n} times\", n = 3
            );
            tracing::debug!(\"quiet\");
            tracing::warn!(\"whose\");
        }
        #[cfg(test)]
        mod tests { fn t() { tracing::warn!(\"in a test\") } }
";
        let text = text.replace("\n        #[cfg", "\n#[cfg");
        let files = [File::new("crates/vswitchd/src/a.rs", &text), File::new("crates/bench/src/b.rs", &text)];
        let stock = strings(b"\x00%s: not there any %s\x00\x01said \"no\" %d times\x00");
        let path = "crates/vswitchd/src/a.rs";
        let whose = format!("{path}: \"whose\" has no target, and so no module of the log");
        let rows = [("bridge", "{error}", "an option that is refused")];
        assert_eq!(check(&files, &stock, &rows), *std::slice::from_ref(&whose));
        let unknown = |text| format!("{path}: Open vSwitch does not log {text:?}: DBG, or a row in OWN");
        assert_eq!(check(&files, &stock, &[]), [unknown("{error}"), whose.clone()]);
        let rows = [rows[0], ("bridge", "gone", "it was")];
        assert_eq!(check(&files, "", &rows).len(), 4);
        assert_eq!(check(&files, &stock, &rows), [whose, "bridge, \"gone\" needs no row in OWN".into()]);
    }
}
