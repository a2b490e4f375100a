//! `crosspoint check`: what in a database the switch would not implement; run it before a migration.

use crate::config::wanted::{Interface, PATCH};
use crate::config::{EnableDummy, rows};
use base::PortNo;
use host::database_file::{ids, open_to_read};
use host::log::os_text;
use host::rundir::RunDir;
use ovsdb::{Schema, storage};
use ports::{PortError, PortSpec};
use std::collections::BTreeSet;
use std::path::Path;

/// What is ignored, refused or wrong in the configuration in the file at `path`; each is a sentence that
/// names its place. The file is not changed; one with another version of the schema is read as the switch
/// would convert it.
///
/// # Errors
/// A sentence: the file cannot be read, or contains another database.
pub fn check(path: &Path) -> Result<BTreeSet<String>, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = open_to_read(path).map_err(|e| wrong(&os_text(&e)))?;
    let found = storage::read_schema(&file).map_err(|e| wrong(&e))?;
    let schema = Schema::open_vswitch();
    if found.name != schema.name {
        return Err(wrong(&format!("it holds the database {}, not {}", found.name, schema.name)));
    }
    let file = open_to_read(path).map_err(|e| wrong(&os_text(&e)))?;
    let mut ids = ids();
    let contents = storage::read(&file, &mut ids).map_err(|e| wrong(&e))?;
    let database = contents.database.convert(schema, &mut ids).map_err(|e| wrong(&e))?;
    let run_dir = RunDir::from_env();
    let reading = rows::read(rows::Rows::of(&database), &Default::default(), EnableDummy::No, run_dir.path());
    // Without its first row it configures nothing.
    let Some(reading) = reading else { return Ok(BTreeSet::new()) };
    let mut remarks = reading.complaints;
    // About a bridge that is refused there is a complaint with the reason. These are in words for scripts.
    let about_bridge =
        |said: &String| said.starts_with("failed to create bridge") || said.starts_with("ignoring bridge");
    remarks.extend(reading.warnings.into_iter().chain(reading.errors).filter(|said| !about_bridge(said)));
    let interfaces = reading.wanted.bridges.values().flat_map(|bridge| bridge.interfaces());
    remarks.extend(interfaces.filter_map(|(_, interface)| refusal(interface)));
    Ok(remarks)
}

/// Why a port would not be opened, unless only its device can say.
fn refusal(interface: &Interface) -> Option<String> {
    let Interface { name, kind, options, .. } = interface;
    if kind == PATCH {
        return interface.patch_error().map(|why| format!("interface {why}"));
    }
    let spec = PortSpec { options: options.clone(), ..PortSpec::new(name, kind, PortNo(1)) };
    match ports::check(&spec) {
        // Devices may come later.
        Ok(()) | Err(PortError::NoSuchInterface { .. } | PortError::Os { .. }) => None,
        Err(PortError::UnknownKind { .. }) => {
            Some(format!("interface {name}: type {kind} is unknown or not implemented"))
        }
        Err(why) => Some(format!("interface {name}: {why}")),
    }
}
