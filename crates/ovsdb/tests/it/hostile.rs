//! Requests that are meant to hurt: deep, long, many, contradictory.

use crate::common::pair::run;
use ovsdb::{Context, Database, Execution, Schema, UuidGenerator};
use serde_json::{Value, json};

fn switch() -> (Database, UuidGenerator) {
    (Database::new(Schema::open_vswitch()), UuidGenerator::from_seed(1))
}

#[test]
fn nesting_that_would_exhaust_the_stack_is_refused_where_it_is_parsed() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = format!("{}0{}", open.repeat(100_000), close.repeat(100_000));
        let error = serde_json::from_str::<Value>(&text).unwrap_err();
        assert!(error.to_string().contains("recursion limit exceeded"), "{error}");
    }
    // What still parses is refused with an excerpt.
    let (mut database, mut ids) = switch();
    let deep: Value = serde_json::from_str(&format!("{}{}", "[".repeat(120), "]".repeat(120))).unwrap();
    let outcome =
        run(&mut database, &mut ids, &json!([{"op": "insert", "table": "Bridge", "row": {"name": deep}}]));
    assert_eq!(outcome.reply.to_json()[0]["details"], "expected string");
}

#[test]
fn an_error_about_a_huge_value_is_short() {
    let (mut database, mut ids) = switch();
    let huge: Vec<Value> = (0..200_000).map(|n| json!(n)).collect();
    let outcome = run(
        &mut database,
        &mut ids,
        &json!([{"op": "insert", "table": "Port", "row": {"name": "p", "trunks": ["set", huge]}}]),
    );
    assert_eq!(
        outcome.reply.to_json()[0]["details"],
        "set must have 0 to 4096 members but 200000 are present"
    );
    assert!(outcome.reply.to_json().to_string().len() < 3000);
}

#[test]
fn ten_thousand_operations_and_a_set_of_a_hundred_thousand_take_no_more_than_their_share() {
    let (mut database, mut ids) = switch();
    let mut operations = Vec::new();
    let mut ports = Vec::new();
    for n in 0..5_000 {
        operations.push(json!({"op": "insert", "table": "Interface", "uuid-name": format!("i{n}"), "row": {"name": format!("p{n}")}}));
        operations.push(json!({"op": "insert", "table": "Port", "uuid-name": format!("p{n}"),
            "row": {"name": format!("p{n}"), "interfaces": ["named-uuid", format!("i{n}")]}}));
        ports.push(json!(["named-uuid", format!("p{n}")]));
    }
    operations.push(json!({"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "br0", "ports": ["set", ports]}}));
    operations
        .push(json!({"op": "insert", "table": "Open_vSwitch", "row": {"bridges": ["named-uuid", "b"]}}));
    let outcome = run(&mut database, &mut ids, &Value::Array(operations));
    assert_eq!(outcome.changes.len(), 10_002);
    let keys: Vec<Value> = (0..100_000).map(|n| json!([format!("key{n}"), "value"])).collect();
    let update =
        json!([{"op": "update", "table": "Bridge", "where": [], "row": {"other_config": ["map", keys]}}]);
    assert_eq!(run(&mut database, &mut ids, &update).changes.len(), 1);
    // Letting go of the root lets go of all.
    let outcome =
        run(&mut database, &mut ids, &json!([{"op": "delete", "table": "Open_vSwitch", "where": []}]));
    assert_eq!(outcome.changes.len(), 10_002);
}

#[test]
fn rows_that_agree_in_an_index_cost_as_much_as_others() {
    let (mut database, mut ids) = switch();
    let row = json!({"op": "insert", "table": "Interface", "row": {"name": "x"}});
    let mut operations = vec![row; 100_000];
    operations.push(json!({"op": "abort"}));
    let start = std::time::Instant::now();
    let outcome = run(&mut database, &mut ids, &Value::Array(operations));
    assert_eq!(outcome.reply.to_json()[100_000]["error"], "aborted");
    // Some 1.5 s; 35 where each looks at those before it.
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_long_chain_of_references_is_collected_without_recursion() {
    let schema = json!({"name": "Chain", "version": "1.0.0", "tables": {
        "Root": {"isRoot": true, "columns": {"first": {"type": {"key": {"type": "uuid", "refTable": "Link"}, "min": 0}}}},
        "Link": {"columns": {"next": {"type": {"key": {"type": "uuid", "refTable": "Link"}, "min": 0}}}}}});
    let mut database = Database::new(Schema::from_json(&schema).unwrap());
    let mut ids = UuidGenerator::from_seed(1);
    const LINKS: usize = 20_000;
    let mut operations =
        vec![json!({"op": "insert", "table": "Root", "row": {"first": ["named-uuid", "l0"]}})];
    for n in 0..LINKS {
        let next =
            if n + 1 < LINKS { json!({"next": ["named-uuid", format!("l{}", n + 1)]}) } else { json!({}) };
        operations.push(json!({"op": "insert", "table": "Link", "uuid-name": format!("l{n}"), "row": next}));
    }
    assert_eq!(run(&mut database, &mut ids, &Value::Array(operations)).changes.len(), LINKS + 1);
    let outcome = run(
        &mut database,
        &mut ids,
        &json!([{"op": "update", "table": "Root", "where": [], "row": {"first": ["set", []]}}]),
    );
    assert_eq!(outcome.changes.len(), LINKS + 1);
    assert_eq!(database.row_count(database.schema().find("Link").unwrap()), 0);
}

#[test]
fn a_wait_waits_until_its_time_is_over_and_changes_nothing_meanwhile() {
    let (mut database, mut ids) = switch();
    let operations = json!([
        {"op": "insert", "table": "Open_vSwitch", "row": {}},
        {"op": "wait", "timeout": 500, "table": "Bridge", "where": [["name", "==", "br0"]], "columns": ["name"],
            "until": "==", "rows": [{"name": "br0"}]},
    ]);
    let mut attempt = |database: &mut Database, elapsed_ms| {
        let mut context = Context {
            ids: &mut ids,
            has_lock: &|_| false,
            elapsed_ms,
            read_only: false,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        database.execute(operations.as_array().unwrap(), &mut context)
    };
    let root = database.schema().find("Open_vSwitch").unwrap();
    for elapsed_ms in [0, 499] {
        let execution = attempt(&mut database, elapsed_ms);
        assert!(matches!(execution, Execution::Pending { retry_at_ms: Some(500), .. }), "{execution:?}");
        assert_eq!(database.row_count(root), 0);
    }
    let Execution::Done(outcome) = attempt(&mut database, 500) else { panic!("it waits for ever") };
    assert_eq!(
        outcome.reply.to_json()[1],
        json!({"error": "timed out", "details": "\"wait\" timed out after 500 ms"})
    );
    assert_eq!(database.row_count(root), 0);
}

#[test]
fn a_read_only_database_answers_questions_and_refuses_changes() {
    let (mut database, mut ids) = switch();
    let mut attempt = |operation: Value| {
        let mut context = Context {
            ids: &mut ids,
            has_lock: &|lock| lock == "mine",
            elapsed_ms: 0,
            read_only: true,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        match database.execute(&[operation], &mut context) {
            Execution::Done(outcome) => outcome.reply.to_json()[0]["error"].as_str().map(str::to_owned),
            Execution::Pending { .. } => panic!("nothing waits here"),
        }
    };
    assert_eq!(attempt(json!({"op": "select", "table": "Bridge", "where": []})), None);
    assert_eq!(attempt(json!({"op": "assert", "lock": "mine"})), None);
    assert_eq!(attempt(json!({"op": "assert", "lock": "other"})).as_deref(), Some("not owner"));
    assert_eq!(
        attempt(json!({"op": "insert", "table": "Bridge", "row": {}})).as_deref(),
        Some("not allowed")
    );
    assert_eq!(
        attempt(json!({"op": "delete", "table": "Bridge", "where": []})).as_deref(),
        Some("not allowed")
    );
    assert_eq!(attempt(json!({"op": "commit", "durable": true})).as_deref(), Some("not allowed"));
}
