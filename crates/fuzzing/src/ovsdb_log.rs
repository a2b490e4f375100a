//! The database's log file: what a disk, a backup or another program left of it.

use ovsdb::log::transaction::{Note, encode_schema};
use ovsdb::log::{Found, Magic, ReadAt, ReadError, Reader, frame};
use ovsdb::storage::{self, Contents, OpenError};
use ovsdb::{Datum, Schema, Snapshot, UuidGenerator};
use std::io;

/// For inputs that do not start with a schema of their own.
const SCHEMA: &str = r#"{"name":"Zoo","version":"1.0.0","tables":{
  "Animal":{"columns":{"name":{"type":"string"},"legs":{"type":{"key":"integer","min":0,"max":1}},
    "weight":{"type":"real"},"tame":{"type":"boolean"},"tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "notes":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "keeper":{"type":{"key":{"type":"uuid","refTable":"Keeper","refType":"weak"},"min":0,"max":1}}},"isRoot":true},
  "Keeper":{"columns":{"days":{"type":{"key":{"type":"integer","minInteger":0,"maxInteger":6},"min":0,"max":7}}},"isRoot":true}}}"#;

/// Reading a log never panics and does not depend on how its bytes arrive, and records before a damaged one
/// stay readable when the rest is cut off. Lines of the input, with generated headers, are records: decoding,
/// encoding and decoding again yields the same.
pub fn ovsdb_log(input: &[u8]) {
    let raw = records(&input);
    assert_eq!(records(&Dribble(input)), raw);
    if let Some(end) = raw.damaged_at {
        let (before, again) = (&raw.offsets, records(&&input[..end as usize]));
        assert_eq!((&again.offsets, again.damaged_at), (before, None));
    }
    let mut ids = UuidGenerator::from_seed(1);
    let _ = storage::read(&input, &mut ids).map(|contents| contents.size);

    let log = framed(input);
    let Ok(contents) = storage::read(&&log[..], &mut ids) else { return };
    assert_eq!(contents.cut, None);
    assert_eq!(contents.size, log.len() as u64);
    let snapshot = contents.database.snapshot();
    let note = Note { date_ms: 7, comment: Some("written again") };
    let again: Vec<u8> = storage::bodies(&snapshot, note)
        .iter()
        .flat_map(|body| frame::record(Magic::Standalone, body))
        .collect();
    let Contents { database, .. } = storage::read(&&again[..], &mut ids).expect("what we write, we read");
    assert_eq!(kept(&database.snapshot()), kept(&snapshot));
    // A write that stopped anywhere costs its record and no other.
    for cut in [
        log.len() - 1,
        log.len() - 1 - usize::from(input.first().copied().unwrap_or(0)) % 60.min(log.len() - 1),
    ] {
        match storage::read(&&log[..cut], &mut ids) {
            Ok(torn) => assert!(torn.size <= cut as u64),
            Err(OpenError::Corrupt { damage, next }) => {
                panic!("{damage} is not an interrupted write? {next}")
            }
            // Nothing of a first record, or not all of it.
            Err(_) => assert_eq!(raw_records(&log[..cut]), 0),
        }
    }
}

/// The input's lines as records, behind a schema.
fn framed(input: &[u8]) -> Vec<u8> {
    let is_schema =
        |line: &[u8]| serde_json::from_slice(line).is_ok_and(|json| Schema::from_json(&json).is_ok());
    let mut lines = input.split(|&c| c == b'\n').filter(|line| !line.is_empty()).peekable();
    let first = match lines.next_if(|line| is_schema(line)) {
        Some(schema) => [schema, b"\n"].concat(),
        None => {
            let json = serde_json::from_str(SCHEMA).expect("it is JSON");
            encode_schema(&Schema::from_json(&json).expect("it is a schema"))
        }
    };
    let mut log = frame::record(Magic::Standalone, &first);
    for line in lines {
        log.extend(frame::record(Magic::Standalone, &[line, b"\n"].concat()));
    }
    log
}

fn kept(snapshot: &Snapshot) -> Vec<Vec<Datum>> {
    let mut rows = Vec::new();
    for (idx, table) in snapshot.schema().tables_with_idx() {
        for row in snapshot.rows(idx) {
            let columns = table.named_columns().filter(|(_, column)| !column.is_ephemeral);
            rows.push(columns.map(|(column, _)| row.get(column).clone()).collect());
        }
    }
    rows
}

#[derive(Debug, PartialEq)]
struct Records {
    offsets: Vec<(u64, usize)>,
    damaged_at: Option<u64>,
    behind: Found,
}

fn raw_records(bytes: &[u8]) -> usize {
    records(&bytes).offsets.len()
}

fn records(file: &dyn ReadAt) -> Records {
    let mut reader = Reader::new(file).expect("memory has a size");
    let mut records = Records { offsets: Vec::new(), damaged_at: None, behind: Found::Nothing };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => records.offsets.push((record.offset, record.body.len())),
            Ok(None) => return records,
            Err(ReadError::Damaged(damage)) => {
                records.damaged_at = Some(damage.offset);
                records.behind = reader.record_behind().expect("memory is read");
                return records;
            }
            Err(ReadError::Io { error, .. }) => panic!("memory is read: {error}"),
        }
    }
}

/// Hands out a few bytes at a time.
struct Dribble<'a>(&'a [u8]);

impl ReadAt for Dribble<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(1 + offset as usize % 13);
        self.0.read_at(offset, &mut buffer[..n])
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}
