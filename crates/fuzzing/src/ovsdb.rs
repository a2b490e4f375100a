//! What clients of the database send: schemas, transactions, and values as text.

use std::sync::LazyLock;

use ovsdb::{Atom, Context, Database, Datum, Execution, OpResult, Row, Schema, Uuid, UuidGenerator, text};
use serde_json::Value;

/// A schema that is read is written back the same.
pub fn ovsdb_schema(input: &[u8]) {
    let Ok(json) = serde_json::from_slice::<Value>(input) else { return };
    if let Ok(schema) = Schema::from_json(&json) {
        assert_eq!(Schema::from_json(&schema.to_json()).as_ref(), Ok(&schema));
    }
}

/// Two tables that refer to each other, strongly and weakly, with an index, bounds and a table that holds one
/// row.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = serde_json::json!({"name": "Fuzz", "version": "1.0.0", "tables": {
        "R": {"isRoot": true, "indexes": [["s"]], "columns": {
            "s": {"type": {"key": {"type": "string", "maxLength": 8}}},
            "i": {"type": {"key": {"type": "integer", "minInteger": -9, "maxInteger": 9}, "min": 0, "max": 3}},
            "r": {"type": {"key": "real", "min": 0}},
            "m": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
            "k": {"type": {"key": {"type": "uuid", "refTable": "K"}, "min": 0, "max": "unlimited"}},
            "w": {"type": {"key": {"type": "uuid", "refTable": "K", "refType": "weak"},
                "value": {"type": "uuid", "refTable": "K"}, "min": 0, "max": "unlimited"}}}},
        "K": {"columns": {"b": {"type": "boolean"},
            "n": {"type": {"key": {"type": "uuid", "refTable": "K"}, "min": 0}}}},
        "S": {"isRoot": true, "maxRows": 1, "columns": {
            "e": {"type": {"key": {"type": "string", "enum": ["set", ["", "x"]]}}}}}}});
    Schema::from_json(&schema).expect("it is well-formed")
});

/// Every line is a transaction: refused ones change nothing, and those in force tell what they changed, and
/// can be taken back.
pub fn ovsdb_transaction(input: &[u8]) {
    let mut database = Database::new(SCHEMA.clone());
    let mut ids = UuidGenerator::from_seed(1);
    for line in input.split(|byte| *byte == b'\n').take(16) {
        let Ok(Value::Array(operations)) = serde_json::from_slice(line) else { continue };
        let before = rows(&database);
        let mut context = Context {
            ids: &mut ids,
            has_lock: &|lock| lock == "mine",
            elapsed_ms: 0,
            read_only: false,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        let Execution::Done(outcome) = database.execute(&operations, &mut context) else {
            assert_eq!(rows(&database), before);
            continue;
        };
        let after = rows(&database);
        let results = &outcome.reply.0;
        let failed = results.iter().any(|result| matches!(result, OpResult::Failed(_)));
        assert!(results.len() == operations.len() || failed && results.len() == operations.len() + 1);
        assert!(!failed || outcome.changes.is_empty());
        for change in &outcome.changes {
            assert_eq!(database.row(change.table, change.uuid), change.new.as_ref());
        }
        database.revert(&outcome.changes);
        assert_eq!(rows(&database), before);
        // Once more, by what was told.
        let mut transaction = database.begin();
        for change in &outcome.changes {
            match (&change.old, &change.new) {
                (None, Some(new)) => transaction.insert(change.table, new.clone()).expect("its name is free"),
                (Some(_), Some(new)) => transaction.replace(change.table, new.clone()),
                (_, None) => assert!(transaction.delete(change.table, change.uuid)),
            }
        }
        let again = transaction.commit(&mut ids).expect("it was in force before");
        assert_eq!(again.len(), outcome.changes.len());
        assert_eq!(without_versions(rows(&database)), without_versions(after));
    }
}

fn rows(database: &Database) -> Vec<Row> {
    let tables = database.schema().tables_with_idx().map(|(table, _)| table).collect::<Vec<_>>();
    tables.into_iter().flat_map(|table| database.rows(table).cloned().collect::<Vec<_>>()).collect()
}

fn without_versions(mut rows: Vec<Row>) -> Vec<Row> {
    rows.iter_mut().for_each(|row| row.set(ovsdb::ColumnIdx::VERSION, Datum::scalar(Uuid::ZERO)));
    rows
}

/// The text of a value: the first byte chooses a column of the schema `Open_vSwitch` or of the one above;
/// what is read is printed and read the same.
pub fn ovsdb_text(input: &[u8]) {
    let Some((choice, input)) = input.split_first() else { return };
    let Ok(input) = std::str::from_utf8(input) else { return };
    let _ = text::word(input);
    let schema = Schema::open_vswitch();
    let columns: Vec<_> = SCHEMA
        .tables()
        .iter()
        .chain(schema.tables())
        .flat_map(|table| table.named_columns())
        .map(|(_, column)| column)
        .collect();
    let of = &columns[usize::from(*choice) % columns.len()].kind;
    let Ok(datum) = text::Reader::new().datum(input, of) else { return };
    // Reals are printed with 15 digits, so not all are read back the same.
    if datum.keys().chain(datum.values()).any(|atom| matches!(atom, Atom::Real(_))) {
        return;
    }
    let printed = text::Printed(&datum, of).to_string();
    assert_eq!(text::Reader::new().datum(&printed, of).as_ref(), Ok(&datum), "{printed}");
}
