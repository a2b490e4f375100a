//! The context of a command of `ovsdb-client`.

use super::rpc::Server;
use crate::ctl::json::to_text;
use crate::ctl::table::{Printer, Style, Table};
use host::daemonize::Daemon;
use serde_json::Value;
use std::sync::Arc;
use transport::Tls;

/// Values of the options.
pub(super) struct Global {
    pub(super) style: Style,
    pub(super) timestamp: bool,
    pub(super) force: bool,
    /// The value of `--db-change-aware`. By default, long-running commands are aware.
    pub(super) change_aware: Option<bool>,
    pub(super) tls: Option<Arc<Tls>>,
}

/// The context of a command.
pub(super) struct Call<'a> {
    pub(super) global: &'a Global,
    pub(super) server: Server,
    pub(super) database: String,
    pub(super) args: &'a [String],
    pub(super) printer: Printer,
    pub(super) daemon: Daemon,
    /// Whether it runs in the background.
    pub(super) detached: bool,
}

impl Call<'_> {
    /// Prints a table now.
    pub(super) fn print_table(&mut self, table: &Table) {
        let text = self.printer.print(table, &self.global.style);
        print(&text);
    }

    /// Prints JSON now.
    pub(super) fn print_json(&self, json: &Value) {
        print(&(to_text(json, self.global.style.pretty) + "\n"));
    }
}

/// Prints text at once; a reader that has gone ends the program.
pub(super) fn print(text: &str) {
    print!("{text}");
    host::output::flush();
}
