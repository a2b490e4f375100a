//! Opening the databases of a server.

use super::state::{State, now};
use crate::conffile;
use host::database_file::{DatabaseFile, now_ms};
use ovsdb::log::transaction::Note;
use ovsdb::storage::Storage;
use std::path::Path;
use std::rc::Rc;

/// Opens a database from its file and serves it. Adds the first row if it should have one and does not. The
/// error is a sentence in the stock server's words, with the file's name as given.
pub(super) fn open(state: &Rc<State>, given: &Path, path: &Path, first_row: bool) -> Result<String, String> {
    let shown = given.display();
    if let Err(error) = std::fs::metadata(path) {
        // Before locking, which would leave a lock file behind if there is a directory with that name.
        let why = transport::reason(&error);
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let what = match directory.map(std::fs::metadata) {
            Some(Err(_)) => "failed to lock lockfile",
            _ => "open failed",
        };
        return Err(format!("I/O error: {shown}: {what} ({why})"));
    }
    if is_open(state, path) {
        return Err(format!("ovsdb error: {shown}: already open"));
    }
    let file = DatabaseFile::lock(path)
        .map_err(|e| format!("I/O error: {shown}: failed to lock lockfile ({})", transport::reason(&e)))?;
    let mut server = state.server.borrow_mut();
    let mut opened =
        Storage::open(file, server.ids(), 0).map_err(|e| format!("{}: {shown}: {e}", e.kind()))?;
    if let Some(cut) = &opened.cut {
        tracing::warn!(target: "ovsdb_file", "syntax error: {shown}: {cut}");
    }
    if state.whole_values.get() {
        opened.storage.write_whole_values();
    }
    if first_row {
        let added = conffile::add_first_row(&mut opened.database, server.ids());
        if let Some(changes) = added.map_err(|e| format!("{shown}: {e}"))? {
            let note = Note { date_ms: now_ms(), comment: Some("crosspoint: first row") };
            let written = opened.storage.commit(&changes, note);
            written.map_err(|e| format!("I/O error: {shown}: {}", transport::reason(&e)))?;
        }
    }
    let name = opened.database.schema().name.clone();
    if !server.add_stored(opened.database, opened.storage) {
        return Err(format!("ovsdb error: {name}: duplicate database name"));
    }
    drop(server);
    state.files.borrow_mut().insert(name.clone(), path.to_owned());
    state.server.borrow_mut().flush(now());
    Ok(name)
}

fn is_open(state: &State, path: &Path) -> bool {
    let canonical = |path: &Path| path.canonicalize().ok();
    let path = canonical(path);
    path.is_some() && state.files.borrow().values().any(|open| canonical(open) == path)
}
