//! Prepares the embedded server's database file: creates it if it does not exist, and converts it if its
//! schema is older, after saving a backup beside it under the name that Open vSwitch's `ovs-ctl` uses for
//! backups.

use host::database_file::{DatabaseFile, ids, now_ms, open_to_read};
use host::log::os_text;
use ovsdb::log::transaction::Note;
use ovsdb::storage::{self, Storage};
use ovsdb::{Changes, Database, Schema, UuidGenerator};
use std::fs;
use std::path::{Path, PathBuf};

/// Prepares the file at `path` for serving.
///
/// # Errors
/// A sentence: the file contains another database, it cannot be read, or the system reported an
/// error. The file is then unchanged.
pub fn prepare(path: &Path) -> Result<(), String> {
    let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)
            .map_err(|e| format!("{}: {e}; OVS_DBDIR names another directory", dir.display()))?;
    }
    let lock = |path| {
        DatabaseFile::lock(path).map_err(|e| wrong(&format!("failed to lock lockfile ({})", os_text(&e))))
    };
    let schema = Schema::open_vswitch();
    let mut ids = ids();
    if !path.exists() {
        let file = lock(path)?;
        let mut database = Database::new(schema.clone());
        add_first_row(&mut database, &mut ids).map_err(|e| wrong(&e))?;
        let note = Note { date_ms: now_ms(), comment: Some("crosspoint: created") };
        file.create(&storage::bodies(&database.snapshot(), note)).map_err(|e| wrong(&e))?;
        tracing::debug!(target: "ovsdb", "{}: created, with schema version {}", path.display(), schema.version);
        return Ok(());
    }
    let found = {
        let file = open_to_read(path).map_err(|e| wrong(&e))?;
        storage::read_schema(&file).map_err(|e| wrong(&e))?
    };
    if found.name != schema.name {
        return Err(wrong(&format!("it holds the database {}, not {}", found.name, schema.name)));
    }
    if !is_older(&found.version, &schema.version) {
        return Ok(());
    }
    let file = lock(path)?;
    let backup = backup_of(path, &found);
    fs::copy(path, &backup).map_err(|e| format!("{}: {e}", backup.display()))?;
    let mut opened = Storage::open(file, &mut ids, 0).map_err(|e| wrong(&e))?;
    let converted = opened.database.convert(schema.clone(), &mut ids).map_err(|e| wrong(&e))?;
    opened.storage.convert(0, now_ms(), &converted).map_err(|e| wrong(&e))?;
    tracing::info!(
        target: "ovsdb",
        "{}: converted from schema version {} to {}; as it was: {}",
        path.display(), found.version, schema.version, backup.display()
    );
    Ok(())
}

/// Creates the only row of table Open_vSwitch, without which nothing can be configured. `None` if it exists
/// already.
pub fn add_first_row(
    database: &mut Database,
    ids: &mut UuidGenerator,
) -> Result<Option<Changes>, ovsdb::Error> {
    let Some(table) = database.schema().find("Open_vSwitch") else { return Ok(None) };
    if database.row_count(table) > 0 {
        return Ok(None);
    }
    let uuid = ids.next_uuid();
    let mut transaction = database.begin();
    let row = transaction.new_row(table, uuid);
    transaction.insert(table, row)?;
    transaction.commit(ids).map(Some)
}

fn backup_of(path: &Path, schema: &Schema) -> PathBuf {
    let cksum = schema.cksum.as_deref().and_then(|c| c.split_whitespace().next()).unwrap_or("0");
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".backup{}-{cksum}", schema.version));
    name.into()
}

/// Whether version `a` is older than `b`. One that cannot be parsed is older than any other.
fn is_older(a: &str, b: &str) -> bool {
    let parts = |v: &str| v.split('.').map(|p| p.parse::<u64>().ok()).collect::<Option<Vec<u64>>>();
    parts(a) < parts(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn tool(args: &[&str]) -> String {
        let output = Command::new("ovsdb-tool").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    #[test]
    fn a_missing_file_is_made_as_the_stock_tool_reads_it_and_then_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/conf.db");
        prepare(&path).unwrap();
        let text = path.to_str().unwrap();
        assert_eq!(tool(&["db-name", text]), "Open_vSwitch");
        assert_eq!(tool(&["db-version", text]), Schema::open_vswitch().version);
        let rows = tool(&[
            "query",
            text,
            r#"["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[],"columns":["cur_cfg"]}]"#,
        ]);
        assert_eq!(rows, r#"[{"rows":[{"cur_cfg":0}]}]"#);
        let before = fs::read(&path).unwrap();
        prepare(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn an_older_schema_is_converted_and_a_copy_kept_and_another_database_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("conf.db");
        let schema = dir.path().join("old.ovsschema");
        let old = r#"{"name":"Open_vSwitch","version":"1.0.3","cksum":"123 456","tables":{
            "Open_vSwitch":{"columns":{"next_cfg":{"type":"integer"},"cur_cfg":{"type":"integer"}},"isRoot":true}}}"#;
        fs::write(&schema, old).unwrap();
        let text = path.to_str().unwrap();
        tool(&["create", text, schema.to_str().unwrap()]);
        tool(&[
            "transact",
            text,
            r#"["Open_vSwitch",{"op":"insert","table":"Open_vSwitch","row":{"next_cfg":7}}]"#,
        ]);
        let before = fs::read(&path).unwrap();
        prepare(&path).unwrap();
        assert_eq!(tool(&["db-version", text]), Schema::open_vswitch().version);
        let rows = tool(&[
            "query",
            text,
            r#"["Open_vSwitch",{"op":"select","table":"Open_vSwitch","where":[],"columns":["next_cfg"]}]"#,
        ]);
        assert_eq!(rows, r#"[{"rows":[{"next_cfg":7}]}]"#);
        assert_eq!(fs::read(dir.path().join("conf.db.backup1.0.3-123")).unwrap(), before);

        let other = dir.path().join("other.db");
        fs::write(&schema, old.replace("\"name\":\"Open_vSwitch\"", "\"name\":\"Other\"")).unwrap();
        tool(&["create", other.to_str().unwrap(), schema.to_str().unwrap()]);
        assert!(prepare(&other).unwrap_err().contains("database Other, not Open_vSwitch"));
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        assert!(is_older("7.16.1", "8.3.1") && is_older("8.3.1", "8.10.0") && is_older("", "1.0.0"));
        assert!(!is_older("8.3.1", "8.3.1") && !is_older("9.0.0", "8.3.1"));
    }
}
