//! Conversion to another schema, against the stock server's.

use crate::common::pair::{Pair, comparable};
use ovsdb::Schema;
use serde_json::{Value, json};

fn schema() -> Value {
    json!({"name": "Conv", "version": "1.0.0", "tables": {
        "T": {"isRoot": true, "columns": {
            "name": {"type": "string"},
            "n": {"type": {"key": "integer", "min": 0, "max": 3}},
            "m": {"type": {"key": "string", "value": "integer", "min": 0, "max": "unlimited"}},
            "r": {"type": "real"},
            "k": {"type": {"key": {"type": "uuid", "refTable": "K"}, "min": 0, "max": "unlimited"}}}},
        "K": {"columns": {"x": {"type": "integer"}}},
        "Gone": {"isRoot": true, "columns": {"x": {"type": "integer"}}}}})
}

fn filled() -> Pair {
    let mut pair = Pair::new(&schema());
    let uuid = |n: u32| format!("{n:08x}-0000-4000-8000-000000000000");
    pair.both(json!([
        {"op": "insert", "table": "K", "uuid": uuid(0x10), "row": {"x": 1}},
        {"op": "insert", "table": "K", "uuid": uuid(0x11), "row": {"x": 2}},
        {"op": "insert", "table": "T", "uuid": uuid(1), "row": {"name": "one", "n": 5, "m": ["map", [["a", 1]]], "r": 1.5,
            "k": ["set", [["uuid", uuid(0x10)], ["uuid", uuid(0x11)]]]}},
        {"op": "insert", "table": "T", "uuid": uuid(2), "row": {"name": "two", "n": 7, "r": 2}},
        {"op": "insert", "table": "Gone", "uuid": uuid(3), "row": {"x": 2}},
    ]));
    pair
}

/// The schema with one column of T as given, or without it where that is null.
fn with(column: &str, schema_of: Value) -> Value {
    let mut new = schema();
    new["version"] = json!("2.0.0");
    let columns = new["tables"]["T"]["columns"].as_object_mut().unwrap();
    if schema_of.is_null() {
        columns.remove(column);
    } else {
        columns.insert(column.to_owned(), schema_of);
    }
    new
}

#[test]
fn conversions_and_their_refusals_are_those_of_the_stock_server() {
    let mut without_table = schema();
    without_table["tables"].as_object_mut().unwrap().remove("Gone");
    let mut all_roots = schema();
    all_roots["tables"]["K"]["isRoot"] = json!(true);
    let mut indexed = schema();
    indexed["tables"]["T"]["indexes"] = json!([["name"]]);
    let mut limited = schema();
    limited["tables"]["T"]["maxRows"] = json!(1);
    let mut duplicate = with("same", json!({"type": "string"}));
    duplicate["tables"]["T"]["indexes"] = json!([["same"]]);
    let cases = [
        (schema(), true),
        (without_table, true),
        (all_roots, true),
        (indexed, true),
        (limited, false),
        (duplicate, false),
        (with("r", Value::Null), true),
        (with("k", Value::Null), true),
        (with("new", json!({"type": {"key": "integer", "min": 0}})), true),
        (with("new", json!({"type": {"key": {"type": "string", "enum": ["set", ["a"]]}}})), true),
        (with("n", json!({"type": "integer"})), true),
        (with("n", json!({"type": {"key": "real", "min": 0, "max": 3}})), true),
        (with("n", json!({"type": {"key": {"type": "integer", "maxInteger": 6}}})), false),
        (with("n", json!({"type": "string"})), false),
        (with("m", json!({"type": {"key": "string", "value": "real", "min": 0, "max": "unlimited"}})), true),
        (with("m", json!({"type": {"key": "string", "min": 0, "max": "unlimited"}})), false),
        (with("m", json!({"type": {"key": "string", "value": "integer"}})), false),
        (with("r", json!({"type": "integer"})), false),
        (
            with(
                "k",
                json!({"type": {"key": {"type": "uuid", "refTable": "K", "refType": "weak"}, "min": 0, "max": "unlimited"}}),
            ),
            true,
        ),
        (
            with(
                "k",
                json!({"type": {"key": {"type": "uuid", "refTable": "Gone"}, "min": 0, "max": "unlimited"}}),
            ),
            false,
        ),
    ];
    let mut pair = filled();
    let mut dead = 0;
    for (new, succeeds) in cases {
        let mut fresh = filled();
        let stock = fresh.convert_stock(&new);
        let ours = pair.ours.convert(Schema::from_json(&new).unwrap(), &mut pair.ids);
        assert_eq!(ours.is_ok(), stock.is_ok(), "{new:#}\nours: {:?}\nstock: {stock:?}", ours.as_ref().err());
        assert_eq!(ours.is_ok(), succeeds, "{new:#}");
        match ours {
            Ok(database) => {
                fresh.ours = database;
                fresh.set_schema(&new);
                let (ours_rows, stock_rows) = fresh.rows();
                assert_eq!(ours_rows, stock_rows, "{new:#}");
            }
            // The stock server 3.1 ends where a column's value does not fit its new type: then there is
            // nothing to compare.
            Err(error) => match stock.unwrap_err() {
                Value::Null => dead += 1,
                stock => assert_eq!(comparable(&error.to_json()), comparable(&stock), "{new:#}"),
            },
        }
    }
    assert!(dead < 6, "{dead}");
}

#[test]
fn a_conversion_that_is_refused_leaves_the_database_alone() {
    let mut pair = filled();
    let (before, _) = pair.rows();
    let new = Schema::from_json(&with("n", json!({"type": "string"}))).unwrap();
    assert!(pair.ours.convert(new, &mut pair.ids).is_err());
    assert_eq!(pair.rows().0, before);
}
