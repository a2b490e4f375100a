//! All commands except `show-log`.

use super::outcome::{Failure, Outcome, Settings, default_db, default_schema, line, show};
use host::database_file::{DatabaseFile, ids, now_ms, open_to_read};
use host::log::os_text;
use host::program::OVS_VERSION;
use ovsdb::log::transaction::{Note, encode_schema};
use ovsdb::log::{Magic, ReadAt, Reader};
use ovsdb::storage::{self, OpenError, Storage};
use ovsdb::{
    Context, Database, Error, Execution, OpResult, Outcome as Executed, Principal, Schema, UuidGenerator,
};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn path_or(args: &[String], index: usize, default: impl FnOnce() -> PathBuf) -> PathBuf {
    args.get(index).map_or_else(default, PathBuf::from)
}

/// The message for a file that cannot be used as a database, as the stock program words it.
pub(super) fn open_failure(path: &Path, error: &OpenError) -> Failure {
    format!("{}: {}: {error}", error.kind(), path.display()).into()
}

fn io_failure(path: &Path, what: &str, error: &std::io::Error) -> Failure {
    format!("I/O error: {}: {what} ({})", path.display(), os_text(error)).into()
}

/// Opens a database to read it, without a lock.
pub(super) fn open_db(path: &Path) -> Result<impl ReadAt + use<>, Failure> {
    open_to_read(path).map_err(|error| io_failure(path, "open failed", &error))
}

fn lock(path: &Path, kind: &str) -> Result<Arc<DatabaseFile>, Failure> {
    DatabaseFile::lock(path).map_err(|error| {
        let why = os_text(&error);
        format!("{kind}{}: failed to lock lockfile ({why})", path.display()).into()
    })
}

/// Reads a schema file. The default one is built in where it is not installed.
pub(super) fn read_schema(args: &[String], index: usize) -> Result<Schema, Failure> {
    let path = path_or(args, index, default_schema);
    let name = path.display();
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(_) if args.len() <= index => return Ok((*Schema::open_vswitch()).clone()),
        Err(error) => {
            let why = format!("error opening \"{name}\": {}", os_text(&error));
            return Err(format!("failed to read schema: \"{name}\" could not be read as JSON ({why})").into());
        }
    };
    let json: Value = serde_json::from_slice(&text)
        .map_err(|error| format!("failed to read schema: \"{name}\" could not be read as JSON ({error})"))?;
    Schema::from_json(&json).map_err(|mut error| {
        let details = error.details.unwrap_or_default();
        error.details = Some(format!("failed to parse \"{name}\" as ovsdb schema: {details}"));
        error.to_string().into()
    })
}

pub(super) fn db_schema(args: &[String]) -> Result<Schema, Failure> {
    let path = path_or(args, 0, default_db);
    storage::read_schema(&open_db(&path)?).map_err(|error| open_failure(&path, &error))
}

/// The contents, with a warning if the end of the file is torn.
fn checked(path: &Path, contents: Result<storage::Contents, OpenError>) -> Result<Database, Failure> {
    let contents = contents.map_err(|error| open_failure(path, &error))?;
    if let Some(cut) = &contents.cut {
        tracing::warn!(target: "ovsdb", "{}: {cut}", path.display());
    }
    Ok(contents.database)
}

pub(super) fn create(_: &Settings, args: &[String]) -> Outcome {
    let path = path_or(args, 0, default_db);
    let schema = read_schema(args, 1)?;
    let file = lock(&path, "I/O error: ")?;
    file.create(&[encode_schema(&schema)]).map_err(|error| io_failure(&path, "create failed", &error))
}

/// The first record of a database of either format.
fn first_record(path: &Path) -> Result<(Magic, Value), Failure> {
    let file = open_db(path)?;
    let mut reader = Reader::new(&file).map_err(|error| io_failure(path, "open failed", &error))?;
    let body = match reader.next_record() {
        Ok(Some(record)) => Some((record.magic, serde_json::from_slice(record.body).unwrap_or(Value::Null))),
        Ok(None) | Err(_) => None,
    };
    match body {
        Some(first) => Ok(first),
        // The error says what is wrong.
        None => Err(storage::read_schema(&file).map_or_else(
            |error| open_failure(path, &error),
            |_| format!("ovsdb error: {}: unexpected file format", path.display()).into(),
        )),
    }
}

pub(super) fn refuse_cluster(_: &Settings, args: &[String]) -> Outcome {
    Err(format!("{}: clustered databases are not supported", args[0]).into())
}

pub(super) fn check_cluster(_: &Settings, args: &[String]) -> Outcome {
    for path in args {
        if first_record(Path::new(path))?.0 == Magic::Standalone {
            return Err(format!("ovsdb error: {path}: cannot identify file type").into());
        }
    }
    Err(format!("{}: clustered databases are not supported", args[0]).into())
}

/// A member of a clustered database's first record.
pub(super) fn of_cluster(path: &str, member: &str) -> Result<Option<String>, Failure> {
    let (magic, first) = first_record(Path::new(path))?;
    if magic == Magic::Standalone {
        return Err(format!("{path}: not a clustered database").into());
    }
    Ok(first[member].as_str().map(str::to_owned))
}

pub(super) fn db_cid(_: &Settings, args: &[String]) -> Outcome {
    match of_cluster(&args[0], "cluster_id")? {
        Some(id) => line(id),
        None => {
            eprintln!("{}: cluster ID not yet known", args[0]);
            Err(Failure::Code(2))
        }
    }
}

pub(super) fn is(magic: Magic, args: &[String]) -> Outcome {
    if first_record(Path::new(&args[0]))?.0 == magic { Ok(()) } else { Err(Failure::Code(2)) }
}

pub(super) fn db_name(_: &Settings, args: &[String]) -> Outcome {
    let (_, first) = first_record(&path_or(args, 0, default_db))?;
    line(first["name"].as_str().unwrap_or_default())
}

pub(super) fn needs_conversion(_: &Settings, args: &[String]) -> Outcome {
    let schema = read_schema(args, 1)?;
    show(if db_schema(args)?.to_json() == schema.to_json() { "no\n" } else { "yes\n" })
}

pub(super) fn compact(_: &Settings, args: &[String]) -> Outcome {
    let path = path_or(args, 0, default_db);
    rewrite(&path, args.get(1), "compacted", |file| checked(&path, storage::read(file, &mut ids())))
}

pub(super) fn convert(_: &Settings, args: &[String]) -> Outcome {
    let path = path_or(args, 0, default_db);
    let schema = read_schema(args, 1)?;
    rewrite(&path, args.get(2), "converted", |file| {
        let mut ids = ids();
        let database = checked(&path, storage::read(file, &mut ids))?;
        database.convert(schema, &mut ids).map_err(|error| error.to_string().into())
    })
}

/// Writes `read`'s result for the database at `path` to `target`, or replaces the database with it.
fn rewrite(
    path: &Path,
    target: Option<&String>,
    done: &str,
    read: impl FnOnce(&dyn ReadAt) -> Result<Database, Failure>,
) -> Outcome {
    let comment = format!("{done} by ovsdb-tool {OVS_VERSION}");
    let bodies = |database: &Database| {
        let note = Note { date_ms: now_ms(), comment: Some(&comment) };
        storage::bodies(&database.snapshot(), note)
    };
    match target.map(Path::new) {
        Some(target) => {
            let database = read(&open_db(path)?)?;
            let created = lock(target, "")?.create(&bodies(&database));
            created.map_err(|error| io_failure(target, "create failed", &error))
        }
        None => {
            let file = lock(path, "")?;
            let database = read(&open_db(path)?)?;
            file.replace(&bodies(&database)).map_err(|error| io_failure(path, "write failed", &error))
        }
    }
}

/// Arguments of `query` and `transact`: the database, and the transaction as JSON.
fn transaction_of(args: &[String]) -> Result<(PathBuf, Value), Failure> {
    let (path, text) = match args {
        [text] => (default_db(), text),
        args => (PathBuf::from(&args[0]), &args[1]),
    };
    let json = serde_json::from_str(text).map_err(|error| format!("\"{text}\": {error}"))?;
    Ok((path, json))
}

/// The outcome of a transaction: its reply, and its changes if it was executed.
fn execute(
    settings: &Settings,
    database: &mut Database,
    params: &Value,
    ids: &mut UuidGenerator,
) -> (Value, Option<Executed>) {
    let wrong = |details: &str| ovsdb::syntax_error(params, details).to_json();
    let Some(params) = params.as_array() else { return (wrong("array expected"), None) };
    if params.first().and_then(Value::as_str) != Some(database.schema().name.as_str()) {
        return (wrong("database name expected as first parameter"), None);
    }
    // Nothing changes the database while this runs, so there is nothing to wait for.
    let mut operations = params[1..].to_vec();
    let waits = |operation: &Value| operation["op"] == "wait" && operation["timeout"] != 0;
    let waiting: Vec<bool> = operations.iter().map(waits).collect();
    for operation in operations.iter_mut().filter(|operation| waits(operation)) {
        operation["timeout"] = json!(0);
    }
    // There is no certificate to identify us, so a restricted role permits nothing.
    let principal = Principal { role: settings.role.as_deref().unwrap_or_default(), client: None };
    let mut context =
        Context { ids, has_lock: &|_| false, elapsed_ms: 0, read_only: false, principal, room: None };
    match database.execute(&operations, &mut context) {
        Execution::Done(mut executed) => {
            for (result, _) in executed.reply.0.iter_mut().zip(&waiting).filter(|(_, waiting)| **waiting) {
                if let OpResult::Failed(error) = result
                    && error.name == "timed out"
                {
                    *error = Error::new("not supported", "triggers not supported");
                }
            }
            (executed.reply.to_json(), Some(executed))
        }
        Execution::Pending { .. } => unreachable!("no operation waits"),
    }
}

pub(super) fn query(settings: &Settings, args: &[String]) -> Outcome {
    let (path, params) = transaction_of(args)?;
    let mut ids = ids();
    let mut database = checked(&path, storage::read(&open_db(&path)?, &mut ids))?;
    let (reply, _) = execute(settings, &mut database, &params, &mut ids);
    line(reply)
}

pub(super) fn transact(settings: &Settings, args: &[String]) -> Outcome {
    let (path, params) = transaction_of(args)?;
    let file = lock(&path, "I/O error: ")?;
    let mut ids = ids();
    let opened = Storage::open(file, &mut ids, 0).map_err(|error| open_failure(&path, &error))?;
    let (mut storage, mut database) = (opened.storage, opened.database);
    if let Some(cut) = opened.cut {
        tracing::warn!(target: "ovsdb", "{}: {cut}", path.display());
    }
    let (mut reply, executed) = execute(settings, &mut database, &params, &mut ids);
    if let Some(executed) = executed
        && let Err(error) = commit(&mut storage, &path, &executed)
    {
        let mut results = reply.as_array().cloned().unwrap_or_default();
        results.push(storage::io_error(&error).to_json());
        reply = Value::Array(results);
    }
    line(reply)
}

fn commit(storage: &mut Storage, path: &Path, executed: &Executed) -> std::io::Result<()> {
    let note = Note { date_ms: now_ms(), comment: executed.comment.as_deref() };
    storage.commit(&executed.changes, note)?;
    // A server would first rewrite the file, and so drop its history: it cannot know whether an earlier
    // process's syncs succeeded. Here a person is in charge.
    if executed.durable { std::fs::File::open(path)?.sync_all() } else { Ok(()) }
}

pub(super) fn compare_versions(_: &Settings, args: &[String]) -> Outcome {
    let (a, b) = (version(&args[0])?, version(&args[2])?);
    let order = a.cmp(&b);
    let holds = match args[1].as_str() {
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        "==" => order == Ordering::Equal,
        ">=" => order != Ordering::Less,
        ">" => order == Ordering::Greater,
        "!=" => order != Ordering::Equal,
        other => return Err(format!("{other}: not a relational operator").into()),
    };
    if holds { Ok(()) } else { Err(Failure::Code(2)) }
}

fn version(text: &str) -> Result<[u32; 3], Failure> {
    let parts: Vec<Option<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
    match parts[..] {
        [Some(x), Some(y), Some(z)] if !text.contains('+') => Ok([x, y, z]),
        _ => Err(format!("{text}: not an OVSDB version number in format x.y.z").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::{Datum, TableIdx};

    #[test]
    fn a_conversion_keeps_what_the_file_means_under_its_own_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let run = |outcome: Outcome| match outcome {
            Ok(()) => {}
            Err(Failure::Error(why)) => panic!("{why}"),
            Err(Failure::Code(code)) => panic!("exit code {code}"),
        };
        for (name, max) in [("one", json!(1)), ("many", json!("unlimited"))] {
            let schema = json!({"name": "Z", "version": "1.0.0", "tables": {"A": {"columns": {
                "q": {"type": {"key": "integer", "min": 0, "max": max}}}}}});
            std::fs::write(path(name), schema.to_string()).unwrap();
        }
        let settings = Settings::default();
        run(create(&settings, &[path("db"), path("one")]));
        let set = |q: Value| {
            let update = json!(["Z", {"op": "update", "table": "A", "where": [], "row": {"q": q}}]);
            run(transact(&settings, &[path("db"), update.to_string()]));
        };
        run(transact(
            &settings,
            &[path("db"), json!(["Z", {"op": "insert", "table": "A", "row": {}}]).to_string()],
        ));
        for schema in ["many", "one"] {
            set(json!(1));
            set(json!(2));
            run(convert(&settings, &[path("db"), path(schema)]));
            let file = open_to_read(Path::new(&path("db"))).unwrap();
            let database = storage::read(&file, &mut ids()).map_err(|e| e.to_string()).unwrap().database;
            let q = database.schema().table(TableIdx(0)).find("q").unwrap();
            let row = database.rows(TableIdx(0)).next().unwrap();
            assert_eq!(*row.get(q), Datum::scalar(2), "as {schema}");
        }
    }
}
