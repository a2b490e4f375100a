//! What clients make the server keep or build is bounded.

use super::*;
use crate::monitor::history::{COMMITTED_BYTES_MAX, FOLDED_BYTES_MAX};

const MIB: usize = 1 << 20;

fn rig(limits: Limits) -> Rig {
    let mut rig = Rig::new();
    rig.server.set_limits(limits);
    rig
}

fn small() -> Limits {
    Limits {
        session_bytes: 4 * MIB,
        total_bytes: 16 * MIB,
        waiting_bytes: 64 << 10,
        locks: 100,
        waiting: 50,
        monitors: 100,
    }
}

/// The name of the error that one of the operations, or the request, was refused with.
#[track_caller]
fn error_of(said: &[Value]) -> String {
    let [reply] = said else { panic!("{} messages", said.len()) };
    if let Some(name) = reply["error"]["error"].as_str() {
        return name.to_owned();
    }
    let results = reply["result"].as_array().expect("the result of a transaction");
    let failed = results.iter().find_map(|result| result["error"].as_str());
    failed.unwrap_or_else(|| panic!("nothing failed")).to_owned()
}

/// A transaction that waits for a row with this number, and carries so many bytes.
fn wait_for(i: i64, bytes: usize) -> Value {
    json!(["D", {"op": "comment", "comment": "x".repeat(bytes)},
        {"op": "wait", "table": "T", "where": [["i", "==", i]], "columns": ["i"], "until": "==", "rows": [{"i": i}]}])
}

fn flush_all(rig: &mut Rig) {
    while rig.server.has_stale() {
        rig.server.flush(rig.now);
    }
}

#[test]
fn the_limits_are_those_that_the_documents_state() {
    let text = include_str!("../../../../../SECURITY.md");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(',', "");
    let limits = Limits::default();
    for figure in [
        format!("{} MiB of a session", limits.session_bytes >> 20),
        format!("{} GiB of all with the request", limits.total_bytes >> 30),
        format!("a transaction that waits | {} MiB;", limits.waiting_bytes >> 20),
        format!("locks of a session | {} |", limits.locks),
        format!("; {} of a session and {} of all", super::super::transactions::WAITING_MAX, limits.waiting),
        format!(
            "monitors | {} of a session {} of all",
            super::super::monitors::MONITORS_MAX,
            limits.monitors
        ),
        format!("clients that come back | {} MiB of a database", COMMITTED_BYTES_MAX >> 20),
        format!("| {} about a second |", crate::execute::WORK_MAX),
        format!("row that is looked at costs {} more", crate::execute::ROW_WORK),
        format!("one that is changed {}", crate::execute::CHANGE_WORK),
        format!("copied for that {} ", crate::execute::ELEMENT_WORK),
        format!("and {} bytes of what is compared or told 1", crate::execute::VALUE_BYTES),
        format!("tried again with each change | {} |", super::super::transactions::WAITING_WORK_MAX),
        format!("for each table | {} which share", crate::monitor::CLAUSES_MAX),
        format!("{} that exclude", crate::monitor::OTHERS_MAX),
        format!("clients do not read | {} MiB", FOLDED_BYTES_MAX >> 20),
    ] {
        assert!(text.contains(&figure), "SECURITY.md does not say {figure:?}");
    }
}

#[test]
fn results_beyond_the_budget_are_refused_and_nothing_is_changed() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    let text = "x".repeat(10_000);
    for i in 0..20 {
        rig.put(i, &text);
    }
    let select = json!({"op": "select", "table": "T", "where": []});
    let mut operations = vec![json!("D"), json!({"op": "insert", "table": "T", "row": {"i": 99}})];
    operations.extend(vec![select.clone(); 1_000]);
    assert_eq!(error_of(&rig.say(session, "transact", json!(operations), 1)), "resources exhausted");
    let one = rig.ask(session, "transact", json!(["D", select]));
    assert_eq!(one[0]["rows"].as_array().unwrap().len(), 20, "and the connection goes on");
}

#[test]
fn inserted_rows_count_beside_the_request_that_inserts_them() {
    let mut rig = rig(Limits { total_bytes: 48 * MIB, ..small() });
    let session = rig.server.connect(false);
    let insert = json!({"op": "insert", "table": "T", "row": {}});
    for (count, expected) in [(20_000, None), (60_000, Some("resources exhausted"))] {
        let mut operations = vec![insert.clone(); count];
        operations.insert(0, json!("D"));
        let said = rig.say(session, "transact", json!(operations), 1);
        let results = said[0]["result"].as_array().expect("it was read and executed");
        let failed = results.iter().find_map(|result| result["error"].as_str());
        assert_eq!(failed, expected, "{count}");
    }
    assert_eq!(rig.server.database("D").unwrap().row_count(crate::TableIdx(0)), 20_000);
}

#[test]
fn rows_that_are_waited_for_count_with_all_their_columns() {
    let mut rig = rig(Limits { session_bytes: MIB, ..small() });
    let session = rig.server.connect(false);
    for i in 0..100 {
        rig.put(i, "");
    }
    let mut wait = |count: usize| {
        let rows: Vec<Value> = (0..count).map(|i| json!({"i": i})).collect();
        let wait =
            json!({"op": "wait", "table": "T", "where": [], "until": "!=", "timeout": 0, "rows": rows});
        // What one of them takes is free again after it.
        rig.say(session, "transact", json!(["D", wait, wait, wait]), 1)
    };
    assert_eq!(wait(3_000)[0]["result"], json!([{}, {}, {}]));
    assert_eq!(error_of(&wait(6_000)), "resources exhausted");
}

#[test]
fn rows_that_grow_beyond_the_budget_are_refused() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    for i in 0..200 {
        rig.put(i, "");
    }
    for operation in [
        json!({"op": "update", "table": "T", "where": [], "row": {"s": "x".repeat(100_000)}}),
        json!({"op": "mutate", "table": "T", "where": [],
            "mutations": [["m", "insert", ["map", [["k", "x".repeat(100_000)]]]]]}),
    ] {
        let said = rig.say(session, "transact", json!(["D", operation]), 1);
        assert_eq!(error_of(&said), "resources exhausted", "{}", operation["op"]);
    }
}

#[test]
fn values_are_charged_as_long_as_they_are_in_the_log() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    rig.put(1, "");
    for (text, is_refused) in [("x", false), ("\u{1}", true)] {
        let row = json!({"s": text.repeat(MIB)});
        for operation in [
            json!({"op": "insert", "table": "T", "row": row}),
            json!({"op": "update", "table": "T", "where": [["i", "==", 1]], "row": row}),
        ] {
            let result = rig.ask(session, "transact", json!(["D", operation]));
            assert_eq!(result[0]["error"] == "resources exhausted", is_refused, "{}", operation["op"]);
        }
    }
}

#[test]
fn a_value_that_a_transaction_changes_often_is_charged_once() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    let pairs: Vec<Value> = (0..10_000).map(|n| json!([format!("{n:030}"), ""])).collect();
    let insert = json!({"op": "insert", "table": "T", "row": {"m": ["map", pairs]}});
    let change = |n: i64| {
        json!({"op": "mutate", "table": "T", "where": [],
            "mutations": [["m", "insert", ["map", [[format!("k{n}"), ""]]]]]})
    };
    rig.ask(session, "transact", json!(["D", insert]));
    let mut operations: Vec<Value> = (0..50).map(change).collect();
    operations.insert(0, json!("D"));
    let results = rig.ask(session, "transact", json!(operations));
    assert!(results.as_array().unwrap().iter().all(|result| *result == json!({"count": 1})), "{results}");
    // In many rows, it is kept as often.
    let mut operations = vec![json!("D")];
    operations.extend(vec![insert; 4]);
    operations.push(change(-1));
    operations.push(change(-2));
    assert_eq!(error_of(&rig.say(session, "transact", json!(operations), 1)), "resources exhausted");
}

#[test]
fn a_transaction_that_compares_too_much_is_refused() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let insert = json!({"op": "insert", "table": "T", "row": {"i": 1}});
    let mut operations = vec![json!("D")];
    operations.extend(vec![insert; 1_000]);
    rig.ask(session, "transact", json!(operations));
    let clauses = |count: usize| vec![json!(["i", "<", 0]); count];
    let select = |count: usize| json!(["D", {"op": "select", "table": "T", "where": clauses(count)}]);
    assert_eq!(rig.ask(session, "transact", select(63_000)), json!([{"rows": []}]));
    assert_eq!(error_of(&rig.say(session, "transact", select(65_000), 1)), "resources exhausted");
    let long = |n: usize| json!(["map", (0..n).map(|n| json!([n.to_string(), ""])).collect::<Vec<Value>>()]);
    let mutate = json!(["D", {"op": "mutate", "table": "T", "where": [["i", "!=", 0]],
        "mutations": vec![json!(["m", "delete", long(1)]); 5_000]}]);
    assert_eq!(error_of(&rig.say(session, "transact", mutate, 1)), "resources exhausted");
    let wait = |count: usize| {
        json!(["D", {"op": "wait", "table": "T", "where": clauses(count), "columns": ["i"], "until": "!=",
            "rows": []}])
    };
    assert!(rig.say(session, "transact", wait(900), 1).is_empty());
    assert_eq!(error_of(&rig.say(session, "transact", wait(1_100), 2)), "resources exhausted");
    let mut waits = json!(["D"]);
    let select = json!({"op": "select", "table": "T", "where": clauses(1), "columns": []});
    waits.as_array_mut().unwrap().extend(vec![select; 250]);
    waits.as_array_mut().unwrap().push(wait(1)[1].take());
    assert_eq!(error_of(&rig.say(session, "transact", waits, 3)), "resources exhausted", "rows are fetched");
}

#[test]
fn a_transaction_that_copies_too_much_is_refused() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let long: Vec<Value> = (0..50_000).map(|n| json!([n.to_string(), ""])).collect();
    rig.ask(session, "transact", json!(["D", {"op": "insert", "table": "T", "row": {"m": ["map", long]}}]));
    for (mutator, key) in [("delete", 0), ("insert", 0), ("insert", -1)] {
        let pair = json!(["map", [[key.to_string(), ""]]]);
        let mutate = |count: usize| {
            json!(["D", {"op": "mutate", "table": "T", "where": [],
                "mutations": vec![json!(["m", mutator, pair]); count]}])
        };
        assert_eq!(error_of(&rig.say(session, "transact", mutate(700), 1)), "resources exhausted");
        assert_eq!(rig.ask(session, "transact", mutate(600)), json!([{"count": 1}]));
    }
}

#[test]
fn a_transaction_that_compares_long_values_often_is_refused() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let pairs: Vec<Value> = (0..5_000).map(|n| json!([n.to_string(), ""])).collect();
    let insert = json!({"op": "insert", "table": "T", "row": {"m": ["map", pairs]}});
    let mut operations = vec![json!("D")];
    operations.extend(vec![insert; 20]);
    rig.ask(session, "transact", json!(operations));
    let wait = json!({"op": "wait", "table": "T", "where": [], "columns": ["m"], "until": "!=", "rows": [],
        "timeout": 0});
    let select = json!({"op": "select", "table": "T", "where": [], "columns": ["i"], "sort": ["m"]});
    let alike = json!({"op": "select", "table": "T", "where": [["i", "==", 0]], "columns": ["m", "i"]});
    let includes = json!({"op": "select", "table": "T", "columns": [],
        "where": [["m", "includes", ["map", pairs]], ["i", "!=", 0]]});
    for (operation, few, many) in [(wait, 40, 100), (select, 40, 100), (alike, 40, 100), (includes, 200, 400)]
    {
        let mut run = |count: usize| {
            let mut operations = vec![json!("D")];
            operations.extend(vec![operation.clone(); count]);
            rig.say(session, "transact", json!(operations), 1)
        };
        assert!(run(few)[0]["result"][few - 1]["error"].is_null(), "{} {few}", operation["op"]);
        assert_eq!(error_of(&run(many)), "resources exhausted", "{} {many}", operation["op"]);
    }
}

#[test]
fn a_request_whose_tree_would_be_too_large_is_refused_before_it_is_read() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    let values = json!(["D", {"op": "comment", "comment": vec![0; 500_000]}]);
    assert_eq!(error_of(&rig.say(session, "transact", values, 1)), "resources exhausted");
    // As many bytes, and one value.
    let said = rig.say(session, "transact", json!(["D", {"op": "comment", "comment": "[".repeat(MIB)}]), 2);
    assert_eq!(said[0]["result"], json!([{}]));
    // Of other methods, what is read are larger trees.
    for (objects, expected) in [(10_000, None), (40_000, Some("resources exhausted"))] {
        let said = rig.say(session, "list_dbs", json!(vec![json!({"": 0}); objects]), 3);
        assert_eq!(said[0]["error"]["error"].as_str(), expected, "{objects} objects");
    }
    let said = rig.say(session, "transact", json!(vec![json!({"": 0}); 40_000]), 4);
    assert_eq!(said[0]["error"]["error"], "syntax error", "and no such tree is made for an error");
}

#[test]
fn an_id_is_bounded_and_charged_as_what_it_becomes() {
    let mut rig = rig(Limits { waiting: 1_000, ..small() });
    let session = rig.server.connect(false);
    let objects = |count: usize| format!("[{}0]", "{\"\":0},".repeat(count));
    for (method, count) in [("echo", 150_000), ("echo", 150), ("transact", 150), ("list_dbs", 150)] {
        let text = format!("{{\"method\":\"{method}\",\"params\":[\"D\"],\"id\":{}}}", objects(count));
        rig.server.handle_text(rig.now, session, &text).unwrap_err();
    }
    rig.server
        .handle_text(
            rig.now,
            session,
            &format!("{{\"method\":\"cancel\",\"params\":{},\"id\":null}}", objects(150_000)),
        )
        .unwrap();
    let id = |n: usize| json!([vec![json!({"": 0}); 40], n]);
    let waiting = (0..).find(|n| !rig.say(session, "transact", wait_for(1, 0), id(*n)).is_empty()).unwrap();
    assert!((60..200).contains(&waiting), "{waiting} ids of some 30 kB in 4 MiB");
    rig.server.disconnect(session);
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn transactions_that_wait_are_charged_and_released() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    assert_eq!(error_of(&rig.say(session, "transact", wait_for(1, 70_000), 0)), "resources exhausted");
    assert_eq!(rig.server.kept_bytes(), 0);
    let waiting =
        (1..).find(|id| !rig.say(session, "transact", wait_for(1, 40_000), *id).is_empty()).unwrap() - 1;
    assert_eq!(waiting, small().waiting, "of all sessions together");
    assert!(rig.server.kept_bytes() > waiting * 40_000);
    rig.put(1, "");
    flush_all(&mut rig);
    assert_eq!(rig.server.kept_bytes(), 0, "all of them are answered");
    rig.hear(session);
    assert!(rig.say(session, "transact", wait_for(2, 40_000), 1).is_empty());
    rig.server.disconnect(session);
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn what_is_kept_is_bounded_of_a_session_and_of_all() {
    let mut rig = rig(Limits { locks: usize::MAX, ..small() });
    let mut kept = Vec::new();
    loop {
        let session = rig.server.connect(false);
        let name = |n: usize| format!("l{n:01000}");
        let got =
            (0..).find(|n| rig.say(session, "lock", json!([name(*n)]), 1)[0]["error"].is_object()).unwrap();
        assert!(got < 4 * 1024, "{got} names of 1 kB");
        if got == 0 {
            break;
        }
        kept.push(session);
    }
    assert!((2..=4).contains(&kept.len()), "{} sessions filled 8 MiB", kept.len());
    assert!(rig.server.kept_bytes() <= 8 * MIB);
    kept.into_iter().for_each(|session| rig.server.disconnect(session));
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn who_takes_most_is_ended_first_even_if_nothing_waits_to_be_sent_to_it() {
    let mut rig = rig(Limits { session_bytes: 8 * MIB, locks: usize::MAX, ..small() });
    let [keeps, also, reads] = [(); 3].map(|()| rig.server.connect(false));
    for (session, count) in [(keeps, 6_000), (also, 1_000)] {
        (0..count).for_each(|n| {
            rig.ask(session, "lock", json!([format!("l{}{n:0450}", session.0)]));
        });
    }
    rig.send(reads, &Message::request("echo", &json!(["x".repeat(2 * MIB)]), 1));
    assert_eq!(rig.server.keep_to_budget(), 0);
    let (kept, output) = (rig.server.kept_bytes(), rig.server.output_bytes());
    let mut ended_at = |total_bytes: usize| {
        rig.server.set_limits(Limits { total_bytes, ..small() });
        let ended = rig.server.keep_to_budget();
        (ended, [keeps, reads, also].map(|session| rig.server.is_closing(session)))
    };
    assert_eq!(ended_at(kept + output - 1), (1, [true, false, false]));
    assert_eq!(ended_at(kept / 7 + output - 1), (1, [true, true, false]), "what that keeps counts as gone");
    assert_eq!(ended_at(kept / 8), (1, [true, true, true]));
    assert_eq!(ended_at(0), (0, [true, true, true]));
}

#[test]
fn locks_are_bounded_and_those_of_one_go_without_a_look_at_those_of_others() {
    let mut rig = rig(Limits { locks: 4_096, ..Limits::default() });
    let lock = |rig: &mut Rig, session: SessionId, n: usize| {
        rig.say(session, "lock", json!([format!("l{}_{n}", session.0)]), 1)[0]["error"].is_null()
    };
    let sessions: Vec<SessionId> = (0..20).map(|_| rig.server.connect(false)).collect();
    for &session in &sessions {
        assert!((0..4_096).all(|n| lock(&mut rig, session, n)));
        assert!(!lock(&mut rig, session, 4_096), "one too many");
    }
    let single = rig.server.connect(false);
    assert!(lock(&mut rig, single, 0));
    let start = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(rig.server.lock_counts(single).held, 1);
    }
    rig.server.disconnect(single);
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    for session in sessions {
        assert_eq!(rig.ask(session, "unlock", json!([format!("l{}_0", session.0)])), json!({}));
        rig.server.disconnect(session);
    }
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn monitors_are_charged_for_what_they_ask() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    let condition = vec![json!(["s", "==", "x".repeat(10_000)]); 10];
    let spec = json!({"T": [{"columns": ["i"], "where": condition}]});
    let refused =
        (0..).find(|n| rig.say(session, "monitor_cond", json!(["D", n, spec]), 1)[0]["error"].is_object());
    assert!((5..20).contains(&refused.unwrap()), "{refused:?}");
    let before = rig.server.kept_bytes();
    assert_eq!(rig.ask(session, "monitor_cond_change", json!([0, 0, {"T": [{"where": [true]}]}])), json!({}));
    assert!(rig.server.kept_bytes() < before - 300_000, "{before}, then {}", rig.server.kept_bytes());
    (0..refused.unwrap()).for_each(|n| assert_eq!(rig.ask(session, "monitor_cancel", json!([n])), json!({})));
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn conditions_are_charged_for_each_table_and_only_those_that_it_has() {
    let mut rig = rig(small());
    let session = rig.server.connect(false);
    let none = json!([{"where": [false]}]);
    rig.ask(session, "monitor_cond", json!(["D", 0, {"T": none, "U": none}]));
    let first = rig.server.kept_bytes();
    let mut kept_after = |requests: Value| {
        rig.say(session, "monitor_cond_change", json!([0, 0, requests]), 1);
        rig.server.kept_bytes() - first
    };
    let clauses = [json!({"where": (0..3_000).map(|n| json!(["i", "==", n])).collect::<Vec<_>>()})];
    let of_one = kept_after(json!({"T": clauses}));
    assert!(of_one > 3_000 * 60, "{of_one}");
    let of_two = kept_after(json!({"U": clauses}));
    assert_eq!(of_two, 2 * of_one);
    for no_more in [json!({"T": clauses}), json!({"T": [], "U": []}), json!({"T": none, "V": none})] {
        assert_eq!(kept_after(no_more.clone()), of_two, "{no_more}");
    }
    assert_eq!(kept_after(json!({"T": none})), of_one);
    assert_eq!(kept_after(json!({"U": none})), 0);
    rig.ask(session, "monitor_cancel", json!([0]));
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn first_contents_of_monitors_find_room_or_are_refused() {
    let mut rig = rig(small());
    for i in 0..20 {
        rig.put(i, &"x".repeat(MIB / 20));
    }
    let sessions: Vec<SessionId> = (0..40).map(|_| rig.server.connect(false)).collect();
    for (n, session) in sessions.iter().enumerate() {
        let requests = json!({"T": [{"columns": ["s"], "where": [["i", "!=", 100 + n]]}]});
        rig.send(*session, &Message::request("monitor_cond", &json!(["D", 0, requests]), 1));
    }
    // Nobody has been ended yet.
    assert!(rig.server.output_bytes() < 18 * MIB, "{}", rig.server.output_bytes());
    let refused = sessions.iter().filter(|session| rig.hear(**session)[0]["error"].is_object()).count();
    assert!((20..30).contains(&refused), "{refused} of 40 with 1 MiB for each");
}

#[test]
fn what_changes_of_conditions_show_finds_room_or_is_refused_and_is_shared() {
    let mut rig = rig(small());
    for i in 0..20 {
        rig.put(i, &"x".repeat(MIB / 20));
    }
    let sessions: Vec<SessionId> = (0..40).map(|_| rig.server.connect(false)).collect();
    let rows_where = |clause: Value| json!({"T": [{"columns": ["s"], "where": [clause]}]});
    for session in &sessions {
        rig.ask(*session, "monitor_cond", json!(["D", 0, rows_where(json!(false))]));
    }
    let mut change = |clause: &dyn Fn(usize) -> Value| {
        for (n, session) in sessions.iter().enumerate() {
            let changes = json!({"T": [{"where": [clause(n)]}]});
            rig.send(*session, &Message::request("monitor_cond_change", &json!([0, 0, changes]), 1));
        }
        let (kept, output) = (rig.server.kept_bytes(), rig.server.output_bytes());
        let refused = sessions.iter().filter(|s| rig.hear(**s).last().unwrap()["error"].is_object());
        let refused = refused.count();
        assert_eq!(rig.server.kept_bytes(), kept);
        (refused, output)
    };
    let (refused, bytes) = change(&|_| json!(true));
    assert!(refused == 0 && bytes < 2 * MIB, "{refused} refused, {bytes} bytes");
    let (refused, _) = change(&|_| json!(false));
    assert_eq!(refused, 0);
    let (refused, bytes) = change(&|n| json!(["i", "!=", 100 + n]));
    assert!((20..30).contains(&refused) && bytes < 18 * MIB, "{refused} refused, {bytes} bytes");
}

#[test]
fn what_one_change_makes_to_tell_to_many_is_made_as_there_is_room() {
    let mut rig = rig(Limits { session_bytes: 8 * MIB, ..small() });
    for i in 0..20 {
        rig.put(i, "");
    }
    let sessions: Vec<SessionId> = (0..60).map(|_| rig.server.connect(false)).collect();
    for (n, session) in sessions.iter().enumerate() {
        let requests = json!({"T": [{"columns": ["s"], "where": [["i", "!=", 100 + n]]}]});
        rig.ask(*session, "monitor_cond", json!(["D", 0, requests]));
    }
    let writer = rig.server.connect(false);
    let update = json!({"op": "update", "table": "T", "where": [], "row": {"s": "x".repeat(MIB / 20)}});
    rig.send(writer, &Message::request("transact", &json!(["D", update]), 1));
    rig.server.flush(rig.now);
    let first = rig.server.output_bytes();
    assert!((10 * MIB..15 * MIB).contains(&first), "{first} bytes in one turn");
    assert!(rig.server.has_stale());
    for _ in 0..60 {
        rig.server.flush(rig.now);
        assert!(rig.server.output_bytes() < 30 * MIB, "{} bytes", rig.server.output_bytes());
    }
    // Those that take it make room for the others, and those that do not are ended.
    let mut told = 0;
    let mut over = 0;
    for _ in 0..60 {
        told += sessions.iter().filter(|s| !rig.hear(**s).is_empty()).count();
        over += rig.server.keep_to_budget();
        rig.server.flush(rig.now);
    }
    assert_eq!((told, over), (60, 0));
    assert!(!rig.server.has_stale());
}

#[test]
fn all_sessions_together_may_have_so_many_monitors() {
    let mut rig = rig(Limits { monitors: 3, ..small() });
    let [a, b] = [(); 2].map(|()| rig.server.connect(false));
    let monitor = |id: &str| json!(["D", id, {"T": [{"columns": ["i"]}]}]);
    for (session, id) in [(a, "1"), (a, "2"), (b, "1")] {
        rig.ask(session, "monitor", monitor(id));
    }
    for session in [a, b] {
        assert_eq!(error_of(&rig.say(session, "monitor", monitor("3"), 1)), "resources exhausted");
    }
    rig.ask(a, "monitor_cancel", json!(["1"]));
    rig.ask(b, "monitor", monitor("3"));
    rig.server.disconnect(b);
    rig.ask(a, "monitor", monitor("3"));
}

#[test]
fn transactions_that_wait_are_tried_again_some_at_a_time() {
    let mut rig = rig(Limits::default());
    let waits = rig.server.connect(false);
    // Each costs as much as some hundred rows.
    let count = 400;
    for id in 0..count {
        assert!(rig.say(waits, "transact", wait_for(1, 40_000), id).is_empty());
    }
    assert!(!rig.server.has_stale());
    rig.put(2, "");
    assert!(rig.server.has_stale(), "not all of them were tried again at once");
    let turns = (1..).find(|_| {
        rig.server.flush(rig.now);
        !rig.server.has_stale()
    });
    assert!((10..count).contains(&turns.unwrap()), "{turns:?}");
    rig.put(1, "");
    flush_all(&mut rig);
    assert_eq!(rig.hear(waits).len(), count, "and in the end each is answered");
}

#[test]
fn transactions_that_wait_cost_what_their_conditions_cost() {
    let mut rig = rig(Limits::default());
    let waits = rig.server.connect(false);
    for i in 0..100 {
        rig.put(i, "");
    }
    let condition = vec![json!(["i", "!=", -1]); 300];
    let wait = json!({"op": "wait", "table": "T", "where": condition, "columns": ["i"], "timeout": 1_000,
        "until": "==", "rows": []});
    // Each looks at 100 rows, 300 times.
    let count = 20;
    for id in 0..count {
        assert!(rig.say(waits, "transact", json!(["D", wait]), id).is_empty());
    }
    rig.put(-1, "");
    let turns = (1..).find(|_| {
        rig.server.flush(rig.now);
        !rig.server.has_stale()
    });
    assert!((count - 2..=count).contains(&turns.unwrap()), "{turns:?}");
    // The same when their time is over.
    rig.now.at += Duration::from_secs(2);
    let mut turns = 0;
    while rig.server.next_timeout().is_some_and(|due| due <= rig.now.at) {
        rig.server.handle_timeout(rig.now);
        turns += 1;
    }
    assert_eq!(turns, count);
    assert_eq!(rig.hear(waits).len(), count);
}
