//! The options of `vsctl`, and what they and its warnings say.

use super::commands::Warning;
use crate::ctl::table::Style;
use host::getopt::{Opt, flag, value};
use std::sync::Arc;
use transport::Tls;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("db").arg("METHOD").help("how to reach the database server (default: unix:{run}/db.sock)"),
    flag("no-syslog").help("do not record the call in the system log"),
    flag("no-wait").help("do not wait until the switch has applied the change"),
    flag("dry-run").help("check the commands and print their output, but change nothing"),
    flag("oneline").help("print the output of each command on one line"),
    value("timeout")
        .short('t')
        .arg("SECONDS")
        .help("give up after this many seconds (default: $OVS_CTL_TIMEOUT)"),
    flag("retry").help("keep trying to connect to the server"),
    flag("help").short('h').help("show this help"),
    flag("commands").help("list the commands, for completion"),
    flag("options").help("list the options, for completion"),
    flag("leader-only").help("no effect: there are no clusters"),
    flag("no-leader-only").help("no effect: there are no clusters"),
    flag("shuffle-remotes").help("no effect: there are no clusters"),
    flag("no-shuffle-remotes").help("no effect: there are no clusters"),
    flag("version").short('V').help("show the version"),
];

/// Values of the options.
pub(super) struct Global {
    pub db: String,
    pub waits: bool,
    pub retries: bool,
    pub is_dry_run: bool,
    pub oneline: bool,
    pub style: Style,
    pub tls: Option<Arc<Tls>>,
}

/// Why it ends early.
pub(super) enum End {
    /// The answer is an exit code.
    Exit(u8),
    /// An error.
    Fatal(String),
}

impl From<String> for End {
    fn from(text: String) -> End {
        End::Fatal(text)
    }
}

/// Logs warnings.
pub(super) fn say(warnings: &mut Vec<Warning>) {
    for warning in warnings.drain(..) {
        let text = warning.text;
        match warning.module {
            "db_ctl_base" => tracing::warn!(target: "db_ctl_base", "{text}"),
            _ => tracing::warn!(target: "vsctl", "{text}"),
        }
    }
}
