//! What a server is started with.

use super::config_file::ConfigFile;
use super::tls_sources::TlsSources;
use ovsdb::Database;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// What a server is to serve, and where.
#[derive(Default, Debug)]
pub struct Options {
    /// A database that lives in memory alone.
    pub in_memory: Option<Database>,
    /// Files of databases, which must exist. Messages name them as they are named here.
    pub databases: Vec<PathBuf>,
    /// The directory of those whose names are relative; empty: the current one, if the process stays in it.
    pub directory: PathBuf,
    /// Whether a database of the switch that lacks its first row shall get it.
    pub first_row: bool,
    /// As `--remote` has them: `punix:PATH`, `ptcp:…`, `db:Open_vSwitch,Open_vSwitch,manager_options`.
    pub remotes: Vec<String>,
    /// For `ssl:` and `pssl:`.
    pub tls: TlsSources,
    /// `--sync-from`: the active server.
    pub sync_from: Option<String>,
    /// `--sync-exclude-tables`.
    pub sync_exclude_tables: Option<String>,
    /// `--active`: an active server that could become a backup of `sync_from`.
    pub active: bool,
    /// `--config-file`, in the place of databases and remotes.
    pub config_file: Option<ConfigFile>,
    /// The control socket, where there is to be one.
    pub control: Option<PathBuf>,
    /// Connections out wait for [`Handle::connect_out`](super::Handle::connect_out): a daemon has left its
    /// terminal by then, and what is said of them goes to the log alone.
    pub connects_later: bool,
    /// Where a monitor keeps what is served, for a server that is started again.
    pub memory: Option<Arc<File>>,
}
