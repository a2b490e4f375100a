//! What a monitored server serves, remembered by its monitor. A server that is restarted after a crash then
//! has the databases and remotes that commands gave it, rather than those of its command line.

use super::options::Options;
use super::remotes::Remotes;
use super::replication::Replication;
use super::state::State;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[derive(Serialize, Deserialize)]
struct Contents {
    databases: Vec<PathBuf>,
    remotes: Vec<String>,
    sync_from: Option<String>,
    sync_exclude_tables: Option<String>,
    active: bool,
}

/// Replaces the command line's settings by the remembered ones; does nothing on the first start.
pub(super) fn recall(file: &File, options: &mut Options) -> Result<(), String> {
    let mut text = vec![0; usize::try_from(file.metadata().map_err(unreadable)?.len()).unwrap_or(0)];
    file.read_exact_at(&mut text, 0).map_err(unreadable)?;
    if text.is_empty() {
        return Ok(());
    }
    let contents: Contents = serde_json::from_slice(&text).map_err(|e| unreadable(e.into()))?;
    options.databases = contents.databases;
    options.remotes = contents.remotes;
    options.sync_from = contents.sync_from;
    options.sync_exclude_tables = contents.sync_exclude_tables;
    options.active = contents.active;
    Ok(())
}

fn unreadable(error: io::Error) -> String {
    format!("what the monitor keeps cannot be read: {}", transport::reason(&error))
}

/// Writes down what is served now.
pub(super) fn keep(
    file: &File,
    state: &State,
    remotes: &Remotes,
    replication: &Replication,
) -> io::Result<()> {
    let mut databases: Vec<PathBuf> =
        state.files.borrow().values().map(std::path::absolute).collect::<Result<_, _>>()?;
    databases.sort();
    let contents = Contents {
        databases,
        remotes: remotes.list(),
        sync_from: replication.source(),
        sync_exclude_tables: Some(replication.exclude_text()).filter(|text| !text.is_empty()),
        active: !state.server.borrow().is_read_only(),
    };
    let text = serde_json::to_vec(&contents)?;
    file.set_len(0)?;
    file.write_all_at(&text, 0)
}
