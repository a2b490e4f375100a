//! One client's demands do not keep the others waiting.

use super::*;

/// A monitor's request for rows of T that match any of these.
fn rows_where(clauses: &[Value]) -> Value {
    json!({"T": [{"columns": ["i"], "where": clauses}]})
}

#[test]
fn a_monitor_costs_as_much_with_many_clauses_as_with_few() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    for (id, clause) in [
        json!(["i", "==", 0]),
        json!(["i", "!=", 7]),
        json!(["i", "<", 0]),
        json!(["i", "<=", 0]),
        json!(["i", ">", 0]),
        json!(["i", ">=", 0]),
        json!(["o", "includes", 0]),
        json!(["m", "includes", ["map", [["k", "0"]]]]),
        json!(["i", "includes", 0]),
    ]
    .into_iter()
    .enumerate()
    {
        let clauses: Vec<Value> = (0..20_000)
            .map(|n| {
                let text = clause.to_string().replace('0', &(n + 100).to_string());
                serde_json::from_str(&text).unwrap()
            })
            .collect();
        rig.ask(session, "monitor_cond", json!(["D", id, rows_where(&clauses)]));
        let insert =
            json!({"op": "insert", "table": "T", "row": {"i": 101, "o": 101, "m": ["map", [["k", "102"]]]}});
        let mut operations = vec![insert; 10];
        operations.insert(0, json!("D"));
        let said = rig.say(session, "transact", json!(operations), 1);
        assert!(!rig.server.has_stale(), "{clause}: not all were told in one turn");
        assert_eq!(said.len(), id + 2, "{clause}: a notification of each monitor, and the reply");
        let change = json!({"T": [{"where": [["i", "==", 101]]}]});
        rig.ask(session, "monitor_cond_change", json!([id, id, change]));
    }
}

#[test]
fn clauses_that_each_row_must_be_compared_with_are_few() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let several = |n: usize| json!(["m", "includes", ["map", [["a", "1"], ["b", n.to_string()]]]]);
    let without = |n: usize| json!(["o", "excludes", n]);
    for clause in [&several as &dyn Fn(usize) -> Value, &without] {
        let clauses: Vec<Value> = (0..101).map(clause).collect();
        let said = rig.say(session, "monitor_cond", json!(["D", "m", rows_where(&clauses)]), 1);
        assert_eq!(said[0]["error"]["error"], "resources exhausted", "{said:?}");
        rig.ask(session, "monitor_cond", json!(["D", "m", rows_where(&clauses[1..])]));
        let change = json!({"T": [{"where": clauses}]});
        let said = rig.say(session, "monitor_cond_change", json!(["m", "m", change]), 1);
        assert_eq!(said[0]["error"]["error"], "resources exhausted", "{said:?}");
        rig.ask(session, "monitor_cancel", json!(["m"]));
    }
    let many: Vec<Value> = (0..100_001).map(|n| json!(["i", "==", n])).collect();
    let said = rig.say(session, "monitor_cond", json!(["D", "m", rows_where(&many)]), 1);
    assert_eq!(said[0]["error"]["error"], "resources exhausted");
    rig.ask(session, "monitor_cond", json!(["D", "m", rows_where(&many[1..])]));
    rig.ask(session, "monitor_cancel", json!(["m"]));
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn a_monitor_whose_contents_cost_too_much_is_refused() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let mut operations = vec![json!("D")];
    operations.extend(vec![json!({"op": "insert", "table": "T", "row": {}}); 1_000]);
    rig.ask(session, "transact", json!(operations));
    let pairs: Vec<Value> = (0..5_000).map(|n| json!([n.to_string(), ""])).collect();
    let clauses = vec![json!(["m", "includes", ["map", pairs]]); 10];
    let said = rig.say(session, "monitor_cond", json!(["D", "m", rows_where(&clauses)]), 1);
    assert_eq!(said[0]["error"]["error"], "resources exhausted");
    assert_eq!((rig.server.monitor_count(), rig.server.kept_bytes()), (0, 0));
    rig.ask(session, "monitor_cond", json!(["D", "m", rows_where(&clauses[..3])]));
    let kept = rig.server.kept_bytes();
    let change = json!({"T": [{"where": clauses}]});
    let said = rig.say(session, "monitor_cond_change", json!(["m", "m", change]), 1);
    assert_eq!(said[0]["error"]["error"], "resources exhausted");
    assert_eq!(rig.server.kept_bytes(), kept);
}

#[test]
fn a_session_with_many_monitors_keeps_no_other_waiting() {
    let mut rig = Rig::new();
    let [greedy, modest] = [(); 2].map(|()| rig.server.connect(true));
    // Each costs 100 comparisons a row, and selects nothing.
    for id in 0..100 {
        let without = |n: usize| json!(["o", "excludes", 10 * n + id]);
        let clauses: Vec<Value> = (0..100).map(|_| without(0)).collect();
        rig.ask(greedy, "monitor_cond", json!(["D", id, rows_where(&clauses)]));
    }
    rig.ask(modest, "monitor", json!(["D", "m", {"T": [{"columns": ["i"]}]}]));
    let writer = rig.server.connect(false);
    for i in 0..10 {
        let mut operations = vec![json!({"op": "insert", "table": "T", "row": {"i": i, "o": 0}}); 50];
        operations.insert(0, json!("D"));
        rig.send(writer, &Message::request("transact", &json!(operations), i));
        rig.server.flush(rig.now);
        // In the first turn after its own, at the latest.
        rig.server.flush(rig.now);
        let told = rig.hear(modest);
        assert_eq!(told.len(), 1, "of transaction {i}");
        assert!(rig.server.has_stale(), "the other has not been told all");
        rig.hear(greedy);
    }
}

#[test]
fn monitors_with_nothing_to_tell_do_not_hold_up_a_turn() {
    let mut rig = Rig::new();
    let [idle, writer] = [(); 2].map(|()| rig.server.connect(false));
    let monitors = 7_000;
    let request = rows_where(&[json!(["i", "==", 7])]);
    for id in 0..monitors {
        rig.send(idle, &Message::request("monitor_cond", &json!(["D", id, request]), id));
    }
    assert_eq!(rig.hear(idle).len(), monitors);
    let insert = json!(["D", {"op": "insert", "table": "T", "row": {}}]);
    rig.send(writer, &Message::request("transact", &insert, 1));
    rig.server.flush(rig.now);
    assert!(rig.server.has_stale(), "all monitors were looked at in one turn");
    assert_eq!(rig.hear(writer).len(), 1, "and yet the change is answered");
    rig.server.flush(rig.now);
    assert!(!rig.server.has_stale());
}
