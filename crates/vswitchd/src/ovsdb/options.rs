//! Start-up options of a server.

use super::config_file::ConfigFile;
use ovsdb::Database;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use transport::TlsFiles;

/// What a server serves, and where.
#[derive(Default, Debug)]
pub struct Options {
    /// A database that lives in memory alone.
    pub in_memory: Option<Database>,
    /// Database files, which must exist. Messages name them as given here.
    pub databases: Vec<PathBuf>,
    /// The directory for relative names; empty means the current one, if the process stays in it.
    pub directory: PathBuf,
    /// `--disable-file-column-diff`: files get whole values, which versions before 2.16 read too.
    pub whole_values: bool,
    /// Whether a database of the switch that lacks its first row should get it.
    pub first_row: bool,
    /// In the form of `--remote`: `punix:PATH`, `ptcp:…`, `db:Open_vSwitch,Open_vSwitch,manager_options`.
    pub remotes: Vec<String>,
    /// For `ssl:` and `pssl:`.
    pub tls: TlsFiles,
    /// `--sync-from`: the active server.
    pub sync_from: Option<String>,
    /// `--sync-exclude-tables`.
    pub sync_exclude_tables: Option<String>,
    /// `--active`: an active server that could become a backup of `sync_from`.
    pub active: bool,
    /// `--config-file`, instead of databases and remotes.
    pub config_file: Option<ConfigFile>,
    /// The control socket, if there should be one.
    pub control: Option<PathBuf>,
    /// Outgoing connections wait for [`Handle::connect_out`](super::Handle::connect_out): by then a daemon
    /// has left its terminal, and messages about them go only to the log.
    pub connects_later: bool,
    /// Where a monitor remembers what is served, for a restarted server.
    pub memory: Option<Arc<File>>,
}
