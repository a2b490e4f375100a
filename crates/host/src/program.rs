//! Under which name this process runs, and the version that it reports.
//!
//! Called through a symbolic link the program is `ovs-vswitchd`, `ovsdb-server` and so on; its messages begin
//! with that name.

use std::sync::OnceLock;

/// The release of Open vSwitch whose commands, texts and schema these programs follow. `--version` says it
/// where scripts look for it.
pub const OVS_VERSION: &str = "3.1.0";
/// Crosspoint's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

static NAME: OnceLock<String> = OnceLock::new();

/// Sets the name, once, at the start of the process.
pub fn set_name(name: &str) {
    let _ = NAME.set(name.to_string());
}

/// The name, by default `crosspoint`.
pub fn name() -> &'static str {
    NAME.get().map_or("crosspoint", String::as_str)
}

static DAEMON: OnceLock<&'static str> = OnceLock::new();

/// Sets the daemon's name by which the stock tools find it, used for pid file and control socket.
pub fn set_daemon_name(name: &'static str) {
    let _ = DAEMON.set(name);
}

/// The daemon's name, by default the program's.
pub fn daemon_name() -> &'static str {
    DAEMON.get().copied().unwrap_or(name())
}

/// The first line of `--version`, as scripts parse it: its last word is the release of Open vSwitch that is
/// followed.
pub fn version_line(program: &str) -> String {
    format!("{program} (Open vSwitch) {OVS_VERSION}")
}

/// The whole text of `--version`. `more` are lines that the stock program has after its first.
pub fn version_text(program: &str, more: &[&str]) -> String {
    let mut text = version_line(program) + "\n";
    for line in more {
        text.push_str(line);
        text.push('\n');
    }
    text + &format!("Crosspoint {VERSION}\n")
}

/// A directory that an environment variable names, or its default.
pub fn directory(variable: &str, default: &str) -> std::path::PathBuf {
    match std::env::var_os(variable) {
        Some(dir) if !dir.is_empty() => dir.into(),
        _ => default.into(),
    }
}

/// `$OVS_LOGDIR`.
pub fn log_directory() -> std::path::PathBuf {
    directory("OVS_LOGDIR", "/var/log/openvswitch")
}

/// `openvswitch` in `$OVS_SYSCONFDIR`, by default in `/etc`.
pub fn configuration_directory() -> std::path::PathBuf {
    directory("OVS_SYSCONFDIR", "/etc").join("openvswitch")
}

/// `$OVS_DBDIR`, by default the directory of the configuration.
pub fn database_directory() -> std::path::PathBuf {
    directory("OVS_DBDIR", configuration_directory().to_str().unwrap_or("/etc/openvswitch"))
}
