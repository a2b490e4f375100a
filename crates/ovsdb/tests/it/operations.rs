//! Every operation of `transact`, in all its forms, against the stock server: the same replies and the same
//! rows.

use crate::common::pair::Pair;
use serde_json::{Value, json};

/// A schema with one of everything: every type and constraint, references of both kinds, tables in and
/// outside the root set.
fn schema() -> Value {
    json!({"name": "Everything", "version": "1.0.0", "tables": {
        "Root": {"isRoot": true, "indexes": [["name"], ["zone", "number"]], "columns": {
            "name": {"type": "string"},
            "zone": {"type": {"key": {"type": "string", "maxLength": 5}}},
            "number": {"type": {"key": {"type": "integer", "minInteger": -10, "maxInteger": 1000}}},
            "ratio": {"type": {"key": {"type": "real", "minReal": -1.5, "maxReal": 1e9}, "min": 0, "max": 1}},
            "flag": {"type": "boolean"},
            "fixed": {"type": "integer", "mutable": false},
            "mode": {"type": {"key": {"type": "string", "enum": ["set", ["on", "off"]]}, "min": 0, "max": 1}},
            "tags": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 4095}, "min": 0, "max": 4}},
            "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
            "counts": {"type": {"key": "string", "value": "integer", "min": 0, "max": 3}},
            "id": {"type": {"key": "uuid", "min": 0, "max": 1}},
            "kids": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
            "slots": {"type": {"key": "integer", "value": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}},
            "friends": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "min": 0, "max": "unlimited"}},
            "both": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"},
                "value": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": "unlimited"}}}},
        "Kid": {"columns": {
            "name": {"type": "string"},
            "next": {"type": {"key": {"type": "uuid", "refTable": "Kid"}, "min": 0, "max": 1}},
            "peer": {"type": {"key": {"type": "uuid", "refTable": "Kid", "refType": "weak"}, "min": 0, "max": 1}}}},
        "Single": {"isRoot": true, "maxRows": 1, "columns": {"x": {"type": "integer"}}},
        "Needy": {"isRoot": true, "columns": {
            "mode": {"type": {"key": {"type": "string", "enum": ["set", ["on", "off"]]}}},
            "must": {"type": {"key": {"type": "uuid", "refTable": "Root", "refType": "weak"}, "min": 1, "max": 2}}}},
        "Strong": {"isRoot": true, "columns": {"root": {"type": {"key": {"type": "uuid", "refTable": "Root"}}}}}}})
}

fn uuid(n: u32) -> String {
    format!("{n:08x}-0000-4000-8000-000000000000")
}

fn insert(table: &str, n: u32, row: Value) -> Value {
    json!({"op": "insert", "table": table, "uuid": uuid(n), "row": row})
}

fn r(n: u32) -> Value {
    json!(["uuid", uuid(n)])
}

fn set(elements: Value) -> Value {
    json!(["set", elements])
}

fn map(pairs: Value) -> Value {
    json!(["map", pairs])
}

/// A pair with two rows in Root that refer to kids.
fn filled() -> Pair {
    let mut pair = Pair::new(&schema());
    pair.both(json!([
        insert("Kid", 0x10, json!({"name": "a", "next": r(0x11)})),
        insert("Kid", 0x11, json!({"name": "b", "peer": r(0x10)})),
        insert("Kid", 0x12, json!({"name": "c"})),
        insert(
            "Root",
            1,
            json!({"name": "one", "number": 1, "ratio": 0.5, "tags": set(json!([1, 2])), "mode": "on",
            "options": map(json!([["k", "v"], ["l", "w"]])), "counts": map(json!([["n", 1]])),
            "kids": set(json!([r(0x10), r(0x12)])), "friends": set(json!([r(0x11), r(0x12)]))})
        ),
        insert(
            "Root",
            2,
            json!({"name": "two", "number": 2, "slots": map(json!([[7, r(0x12)]])), "flag": true,
            "both": map(json!([[r(0x11), r(0x10)]]))})
        ),
    ]));
    pair
}

fn error_of(reply: &Value) -> Option<&str> {
    reply.as_array().unwrap().iter().find_map(|result| result["error"].as_str())
}

#[test]
fn insertions_and_their_refusals_are_those_of_the_stock_server() {
    let mut pair = filled();
    for (operation, error) in [
        (insert("Root", 3, json!({"name": "three", "number": 3})), None),
        (insert("Root", 3, json!({"name": "again"})), Some("duplicate uuid")),
        (insert("Root", 4, json!({"name": "one"})), Some("constraint violation")),
        (insert("Root", 4, json!({"name": "four", "zone": "toolong"})), Some("constraint violation")),
        (insert("Root", 4, json!({"name": "four", "zone": "äöüßé"})), None),
        (insert("Root", 5, json!({"name": "five", "number": 1001})), Some("constraint violation")),
        (insert("Root", 5, json!({"name": "five", "number": -11})), Some("constraint violation")),
        (insert("Root", 5, json!({"name": "five", "ratio": 2e9})), Some("constraint violation")),
        (insert("Root", 5, json!({"name": "five", "ratio": -1.6})), Some("constraint violation")),
        (insert("Root", 5, json!({"name": "five", "mode": "dim"})), Some("constraint violation")),
        (
            insert("Root", 5, json!({"name": "five", "tags": set(json!([1, 2, 3, 4, 5]))})),
            Some("syntax error"),
        ),
        (insert("Root", 5, json!({"name": "five", "tags": set(json!([1, 1]))})), Some("ovsdb error")),
        (
            insert("Root", 5, json!({"name": "five", "counts": map(json!([["a", 1], ["a", 2]]))})),
            Some("ovsdb error"),
        ),
        (insert("Root", 5, json!({"name": "five", "number": 1.5})), Some("syntax error")),
        (insert("Root", 5, json!({"name": 5})), Some("syntax error")),
        (insert("Root", 5, json!({"name": "five", "colour": 5})), Some("unknown column")),
        (insert("Root", 5, json!({"name": "five", "_uuid": r(9), "_version": r(8), "number": 5})), None),
        (
            insert("Root", 6, json!({"name": "six", "number": 6, "kids": r(0x99)})),
            Some("referential integrity violation"),
        ),
        (insert("Root", 6, json!({"name": "six", "number": 6, "friends": r(0x99)})), None),
        (insert("Kid", 0x20, json!({"name": "nobody's"})), None),
        (insert("Nobody", 7, json!({})), Some("syntax error")),
        (insert("Single", 1, json!({})), None),
        (insert("Single", 2, json!({})), Some("constraint violation")),
        (insert("Needy", 1, json!({})), Some("constraint violation")),
        (insert("Needy", 1, json!({"mode": "on"})), Some("constraint violation")),
        (insert("Needy", 1, json!({"mode": "on", "must": r(0x99)})), Some("constraint violation")),
        (insert("Needy", 1, json!({"mode": "on", "must": set(json!([r(1), r(0x99)]))})), None),
        (insert("Strong", 1, json!({})), Some("referential integrity violation")),
        (insert("Strong", 1, json!({"root": r(2)})), None),
        (json!({"op": "insert", "table": "Single"}), Some("syntax error")),
        (json!({"op": "insert", "table": "Single", "row": [], "uuid": uuid(9)}), Some("syntax error")),
        (json!({"op": "insert", "table": "Single", "row": {}, "uuid": "9"}), Some("syntax error")),
        (
            json!({"op": "insert", "table": "Single", "row": {}, "uuid": uuid(9), "extra": 1}),
            Some("syntax error"),
        ),
    ] {
        let reply = pair.both(json!([operation]));
        assert_eq!(error_of(&reply), error, "{operation}");
    }
}

#[test]
fn names_of_rows_may_be_used_before_they_are_defined() {
    let mut pair = filled();
    let named = |name: &str, n: u32, row: Value| json!({"op": "insert", "table": "Kid", "uuid": uuid(n), "uuid-name": name, "row": row});
    let kids = json!({"op": "update", "table": "Root", "where": [["name", "==", "one"]],
        "row": {"kids": set(json!([["named-uuid", "x"], ["named-uuid", "y"]]))}});
    let reply = pair.both(json!([
        named("x", 0x20, json!({"name": "x"})),
        named("y", 0x21, json!({"name": "y"})),
        kids
    ]));
    assert_eq!(error_of(&reply), None);
    // Without a definition it is a row that is not there.
    let reply = pair.both(json!([kids]));
    assert_eq!(error_of(&reply), Some("referential integrity violation"));
    let twice = json!([named("x", 0x22, json!({})), named("x", 0x23, json!({}))]);
    assert_eq!(error_of(&pair.both(twice)), Some("duplicate uuid-name"));
    let in_condition = json!([named("x", 0x24, json!({"name": "z"})), {"op": "select", "table": "Kid", "columns": ["name"],
        "where": [["_uuid", "==", ["named-uuid", "x"]]]}]);
    assert_eq!(pair.both(in_condition)[1]["rows"], json!([{"name": "z"}]));
}

#[test]
fn conditions_are_those_of_the_stock_server() {
    let mut pair = filled();
    let mut found = 0;
    for (column, functions, values) in [
        (
            "name",
            vec!["==", "!=", "includes", "excludes", "<"],
            vec![json!("one"), json!("none"), json!(1), set(json!(["one"]))],
        ),
        (
            "number",
            vec!["==", "!=", "<", "<=", ">", ">=", "includes", "excludes"],
            vec![json!(1), json!(2), json!(1.5), json!(2000), set(json!([]))],
        ),
        (
            "ratio",
            vec!["==", "!=", "<", "<=", ">", ">=", "includes", "excludes"],
            vec![json!(0.5), json!(1), set(json!([])), set(json!([0.5, 1]))],
        ),
        (
            "mode",
            vec!["==", "!=", "<", "includes", "excludes"],
            vec![json!("on"), json!("dim"), set(json!([]))],
        ),
        ("flag", vec!["==", "!=", "<", "includes", "excludes"], vec![json!(true), json!(false)]),
        (
            "tags",
            vec!["==", "!=", "<", "includes", "excludes"],
            vec![
                json!(1),
                set(json!([])),
                set(json!([2, 1])),
                set(json!([1, 3])),
                set(json!([1, 2, 3, 4, 5])),
                json!(5000),
            ],
        ),
        (
            "options",
            vec!["==", "!=", ">", "includes", "excludes"],
            vec![
                map(json!([])),
                map(json!([["k", "v"]])),
                map(json!([["k", "x"]])),
                map(json!([["l", "w"], ["k", "v"]])),
                set(json!(["k"])),
                json!("k"),
            ],
        ),
        ("_uuid", vec!["==", "!=", "includes", "excludes", "<"], vec![r(1), r(9), json!("1")]),
        ("kids", vec!["==", "includes", "excludes"], vec![r(0x10), set(json!([r(0x12), r(0x10)]))]),
        ("colour", vec!["=="], vec![json!(1)]),
        ("name", vec!["like", "~"], vec![json!("one")]),
    ] {
        for function in &functions {
            for value in &values {
                let reply = pair.both(json!([{"op": "select", "table": "Root", "columns": ["name"], "where": [[column, function, value]]}]));
                found += reply[0]["rows"].as_array().map_or(0, Vec::len);
            }
        }
    }
    assert!(found > 40, "{found}");
    for condition in [
        json!([]),
        json!([true]),
        json!([false]),
        json!([true, ["number", "==", 1]]),
        json!([["name", "==", "one"], ["number", "==", 2]]),
        json!([["zone", "==", ""], ["number", "==", 2]]),
        json!([["zone", "==", ""], ["number", "==", 2], ["flag", "==", false]]),
        json!([1]),
        json!([["name", "=="]]),
        json!([["name", "==", "one", 1]]),
        json!([[1, "==", "one"]]),
        json!("x"),
        json!({}),
        json!(true),
    ] {
        pair.both(
            json!([{"op": "select", "table": "Root", "columns": ["name", "number"], "where": condition}]),
        );
    }
}

#[test]
fn selects_updates_and_deletions_are_those_of_the_stock_server() {
    let mut pair = filled();
    for operation in [
        json!({"op": "select", "table": "Root", "where": []}),
        json!({"op": "select", "table": "Root", "where": [], "columns": []}),
        json!({"op": "select", "table": "Root", "where": [], "columns": ["fixed", "zone"]}),
        json!({"op": "select", "table": "Root", "where": [], "columns": ["fixed", "fixed"]}),
        json!({"op": "select", "table": "Root", "where": [], "columns": ["colour"]}),
        json!({"op": "select", "table": "Root", "where": [], "columns": "name"}),
        json!({"op": "select", "table": "Root", "where": [], "columns": [1]}),
        json!({"op": "select", "table": "Root"}),
        json!({"op": "update", "table": "Root", "where": [["name", "==", "one"]], "row": {"flag": true, "mode": set(json!([]))}}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"ratio": 1}}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"name": "same"}}),
        json!({"op": "update", "table": "Root", "where": [["name", "==", "one"]], "row": {"fixed": 0}}),
        json!({"op": "update", "table": "Root", "where": [["name", "==", "none"]], "row": {"fixed": 0}}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"_uuid": r(5)}}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"_version": r(5)}}),
        json!({"op": "update", "table": "Root", "where": [], "row": {}}),
        json!({"op": "update", "table": "Root", "where": []}),
        json!({"op": "update", "table": "Root", "where": [["name", "==", "one"]], "row": {"kids": set(json!([]))}}),
        json!({"op": "update", "table": "Root", "where": [["name", "==", "two"]], "row": {"slots": map(json!([]))}}),
        json!({"op": "delete", "table": "Kid", "where": [["name", "==", "a"]]}),
        json!({"op": "delete", "table": "Root", "where": [["name", "==", "none"]]}),
        json!({"op": "delete", "table": "Root", "where": [["name", "==", "two"]]}),
        json!({"op": "delete", "table": "Root", "where": []}),
        json!({"op": "delete"}),
        json!({"op": "sing"}),
        json!({}),
        json!(5),
        json!({"op": 5}),
    ] {
        pair.both(json!([operation]));
    }
}

#[test]
fn mutations_are_those_of_the_stock_server() {
    let mut pair = filled();
    let mut good = 0;
    for (column, mutators, values) in [
        (
            "number",
            vec!["+=", "-=", "*=", "/=", "%=", "insert", "delete"],
            vec![json!(3), json!(0), json!(-1), json!(i64::MAX), json!(0.5), json!("x"), json!(999)],
        ),
        ("ratio", vec!["+=", "-=", "*=", "/=", "%="], vec![json!(0.25), json!(0), json!(1e308)]),
        (
            "tags",
            vec!["+=", "*=", "/=", "%=", "insert", "delete"],
            vec![
                json!(1),
                json!(2),
                set(json!([7, 8])),
                set(json!([9, 10, 11])),
                set(json!([])),
                json!(4096),
            ],
        ),
        (
            "options",
            vec!["insert", "delete", "+="],
            vec![
                map(json!([["k", "x"], ["m", "y"]])),
                map(json!([["k", "v"]])),
                set(json!(["l"])),
                json!("m"),
                json!(5),
            ],
        ),
        (
            "counts",
            vec!["+=", "insert", "delete"],
            vec![
                json!(1),
                map(json!([["a", 1], ["b", 2]])),
                map(json!([["c", 1], ["d", 2]])),
                map(json!([])),
            ],
        ),
        (
            "mode",
            vec!["insert", "delete"],
            vec![json!("on"), json!("off"), json!("dim"), set(json!(["on", "off"]))],
        ),
        ("name", vec!["+=", "insert", "delete"], vec![json!("x")]),
        ("fixed", vec!["+="], vec![json!(1)]),
        ("kids", vec!["insert", "delete"], vec![r(0x11), r(0x12), r(0x99), set(json!([r(0x10)]))]),
        ("colour", vec!["+="], vec![json!(1)]),
        ("number", vec!["^="], vec![json!(1)]),
    ] {
        for mutator in &mutators {
            for value in &values {
                let reply = pair.both(json!([{"op": "mutate", "table": "Root", "where": [["name", "==", "one"]], "mutations": [[column, mutator, value]]}]));
                good += usize::from(error_of(&reply).is_none());
            }
        }
    }
    assert!(good > 30, "{good}");
    for mutations in [
        json!([]),
        json!([1]),
        json!([["number"]]),
        json!("x"),
        json!([["number", "+=", 1], ["number", "*=", 2]]),
    ] {
        pair.both(json!([{"op": "mutate", "table": "Root", "where": [], "mutations": mutations}]));
    }
    pair.both(json!([{"op": "mutate", "table": "Root", "where": []}]));
}

#[test]
fn waits_that_hold_or_have_no_time_are_those_of_the_stock_server() {
    let mut pair = filled();
    let rows = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    for (until, rows) in [
        ("==", rows(&["one", "two"])),
        ("==", rows(&["two", "one", "one"])),
        ("==", rows(&["one"])),
        ("!=", rows(&["one"])),
        ("!=", rows(&["two", "one"])),
        ("==", rows(&[])),
        ("<", rows(&[])),
        ("==", json!(5)),
        ("==", json!([5])),
        ("==", json!([{"colour": 5}])),
        ("==", json!([{}])),
    ] {
        pair.both(json!([{"op": "wait", "timeout": 0, "table": "Root", "where": [], "columns": ["name"], "until": until, "rows": rows}]));
    }
    pair.both(json!([{"op": "wait", "timeout": -1, "table": "Root", "where": [], "columns": ["name"], "until": "==", "rows": []}]));
    pair.both(json!([{"op": "wait", "timeout": 0, "table": "Root", "where": [["name", "==", "none"]], "until": "==", "rows": []}]));
    pair.both(json!([{"op": "wait", "timeout": 0, "table": "Root", "where": []}]));
}

#[test]
fn a_failure_undoes_everything_and_the_rest_is_null() {
    let mut pair = filled();
    let good = insert("Root", 5, json!({"name": "five", "number": 5}));
    for bad in [
        json!({"op": "abort"}),
        json!({"op": "abort", "x": 1}),
        json!({"op": "assert", "lock": "mine"}),
        json!({"op": "assert"}),
        json!({"op": "commit"}),
        json!({"op": "commit", "durable": 1}),
        json!({"op": "comment", "comment": 1}),
        json!({"op": "insert", "table": "Root", "row": {"number": "x"}}),
    ] {
        let reply = pair.both(json!([good, bad, good]));
        assert_eq!((reply.as_array().unwrap().len(), &reply[2]), (3, &Value::Null));
    }
    // What only the commit finds comes after all results.
    let reply = pair.both(json!([good, {"op": "delete", "table": "Kid", "where": [["name", "==", "b"]]}]));
    assert_eq!(reply[2]["error"], "referential integrity violation");
    assert_eq!(reply.as_array().unwrap().len(), 3);
    let reply =
        pair.both(json!([good, {"op": "comment", "comment": "hello"}, {"op": "commit", "durable": false}]));
    assert_eq!(error_of(&reply), None);
    assert_eq!(pair.both(json!([])), json!([]));
}

#[test]
fn references_keep_rows_and_lose_them_as_in_the_stock_server() {
    let mut pair = filled();
    let update = |table: &str, name: &str, row: Value| json!({"op": "update", "table": table, "where": [["name", "==", name]], "row": row});
    // A chain of kids on two, then the chain is let go.
    pair.both(json!([
        insert("Kid", 0x30, json!({"name": "x", "next": r(0x31)})),
        insert("Kid", 0x31, json!({"name": "y", "next": r(0x32), "peer": r(0x30)})),
        insert("Kid", 0x32, json!({"name": "z", "peer": r(0x31)})),
        update("Root", "two", json!({"slots": map(json!([[1, r(0x30)], [2, r(0x12)]])), "friends": set(json!([r(0x32), r(0x31), r(0x99)]))})),
    ]));
    pair.both(json!([update("Root", "two", json!({"slots": map(json!([[2, r(0x31)]]))}))]));
    pair.both(json!([update("Root", "two", json!({"slots": map(json!([]))}))]));
    // A ring keeps itself.
    pair.both(json!([
        insert("Kid", 0x40, json!({"name": "p", "next": r(0x41)})),
        insert("Kid", 0x41, json!({"name": "q", "next": r(0x40)})),
    ]));
    pair.both(json!([insert("Kid", 0x42, json!({"name": "self", "next": r(0x42)}))]));
    // Of a pair of a weak and a strong reference the death of the first lets the second go.
    pair.both(json!([update("Root", "one", json!({"kids": set(json!([]))}))]));
    pair.both(json!([update("Root", "two", json!({"both": map(json!([]))}))]));
    // Rows swap their names, and a name passes to another row, within one transaction.
    pair.both(json!([
        update("Root", "one", json!({"name": "tmp"})),
        update("Root", "two", json!({"name": "one"})),
        update("Root", "tmp", json!({"name": "two"}))
    ]));
    pair.both(json!([{"op": "delete", "table": "Root", "where": [["name", "==", "one"]]}, insert("Root", 7, json!({"name": "one", "number": 2}))]));
    pair.both(json!([{"op": "delete", "table": "Root", "where": []}]));
    // A row cannot come again under the name of one that this transaction deleted.
    pair.both(json!([insert("Root", 8, json!({"name": "eight"}))]));
    let reply = pair.both(
        json!([{"op": "delete", "table": "Root", "where": []}, insert("Root", 8, json!({"name": "eight"}))]),
    );
    assert_eq!(error_of(&reply), Some("duplicate uuid"));
}

#[test]
fn refusals_say_what_they_are_about_as_the_stock_server_does() {
    let mut pair = filled();
    let wait = |more: Value| {
        let mut operation = json!({"op": "wait", "table": "Single", "where": [], "columns": ["x"], "until": "==", "rows": []});
        operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        operation
    };
    for operation in [
        json!({"op": "assert", "lock": "9foo"}),
        json!({"op": "assert", "lock": ""}),
        json!({"op": "assert", "lock": "foo"}),
        json!({"op": "select", "table": "Root", "where": [["name", "=~", "x"]]}),
        json!({"op": "select", "table": "Root", "where": [["name", "=~"]]}),
        json!({"op": "mutate", "table": "Root", "where": [], "mutations": [["number", "**=", 1]]}),
        json!({"op": "mutate", "table": "Root", "where": [], "mutations": [["fixed", "+=", 1]]}),
        json!({"op": "insert", "table": "Single", "row": {}, "uuid": "xyz"}),
        json!({"op": "update", "table": "Root", "where": [], "row": {"fixed": 3}}),
        wait(json!({"until": "xx"})),
        wait(json!({"until": 3})),
        wait(json!({"timeout": "x"})),
        wait(json!({"timeout": -1})),
        wait(json!({"columns": ["x", "x"]})),
        json!({"op": "select", "table": "Single", "where": [], "columns": ["x", 3]}),
        json!({"op": "select", "table": "Single", "where": [], "columns": ["zz"]}),
        json!(3),
        json!([]),
        json!({}),
    ] {
        let (ours, stock) = pair.replies(&json!([operation.clone()]));
        assert_eq!(ours, stock, "{operation}");
        assert!(error_of(&ours).is_some(), "{operation}");
    }
    // The least integer has no opposite.
    let least = json!({"op": "insert", "table": "Single", "uuid": uuid(90), "row": {"x": i64::MIN}});
    let mutate = |number: i64| json!({"op": "mutate", "table": "Single", "where": [], "mutations": [["x", "%=", number]]});
    let results = pair.both(json!([least, mutate(-1)]));
    assert_eq!(results[1]["error"], json!("range error"));
    let seven = json!({"op": "insert", "table": "Single", "uuid": uuid(91), "row": {"x": 7}});
    pair.both(json!([seven, mutate(-1)]));
}

#[test]
fn errors_are_told_in_the_stock_servers_words() {
    let columns = |names: &[&str]| {
        let columns: Vec<(String, Value)> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
        Value::Object(columns.into_iter().collect())
    };
    let schema = json!({"name": "D", "version": "1.0.0", "tables": {
        "One": {"columns": columns(&["a"]), "isRoot": true, "indexes": [["a"]]},
        "Two": {"columns": columns(&["a", "b"]), "isRoot": true, "indexes": [["a", "b"]]},
        "Four": {"columns": columns(&["a", "b", "c", "d"]), "isRoot": true, "indexes": [["d", "a", "c", "b"]]}}});
    let mut pair = Pair::new(&schema);
    let insert = |table: &str, n: u32| json!({"op": "insert", "table": table, "uuid": uuid(n), "row": {}});
    for table in ["One", "Two", "Four"] {
        assert_eq!(error_of(&pair.both(json!([insert(table, 1)]))), None);
    }
    for operations in [
        json!([insert("One", 2)]),
        json!([insert("Two", 2)]),
        json!([insert("Four", 2)]),
        json!([{"op": "insert", "table": "One", "uuid": uuid(2), "uuid-name": "x", "row": {"a": 1}},
            {"op": "insert", "table": "One", "uuid": uuid(3), "uuid-name": "x", "row": {"a": 2}}]),
    ] {
        let (ours, stock) = pair.replies(&operations);
        assert!(error_of(&ours).is_some(), "{ours}");
        // The stock server names the two rows in any order.
        let of_index = |reply: &Value| reply.to_string().split("  First row").next().map(str::to_owned);
        assert_eq!(of_index(&ours), of_index(&stock), "{operations}");
    }
}
