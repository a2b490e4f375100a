//! The server's own: monitors, locks, waiting, `_Server`. What operations do is tested where they are.

mod budget;
mod shares;

use super::*;
use crate::{Database, Datum, Schema};
use serde_json::json;
use std::time::{Duration, Instant};

struct Rig {
    server: Server,
    now: Now,
}

impl Rig {
    fn new() -> Rig {
        let now = Now { at: Instant::now(), date_ms: 0 };
        let mut server = Server::new(now, UuidGenerator::from_seed(5));
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": {
            "i": {"type": "integer"}, "s": {"type": "string"},
            "o": {"type": {"key": "integer", "min": 0}},
            "m": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
            "U": {"columns": {"i": {"type": "integer"}}}}});
        server.add_in_memory(Database::new(Schema::from_json(&schema).unwrap()), Model::Standalone);
        Rig { server, now }
    }

    fn say(&mut self, session: SessionId, method: &str, params: Value, id: impl Into<Value>) -> Vec<Value> {
        self.send(session, &Message::request(method, &params, id));
        self.server.flush(self.now);
        self.hear(session)
    }

    fn send(&mut self, session: SessionId, message: &Message) {
        let text = String::from_utf8(message.to_bytes()).unwrap();
        self.server.handle_text(self.now, session, &text).unwrap();
    }

    fn hear(&mut self, session: SessionId) -> Vec<Value> {
        let mut text = Vec::new();
        let output = self.server.output(session);
        while let Some(front) = output.front() {
            text.extend_from_slice(front);
            let sent = front.len();
            output.advance(sent);
        }
        serde_json::Deserializer::from_slice(&text).into_iter().map(Result::unwrap).collect()
    }

    /// The result of a request that is answered with nothing else.
    #[track_caller]
    fn ask(&mut self, session: SessionId, method: &str, params: Value) -> Value {
        let said = self.say(session, method, params, 1);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0]["error"].is_null(), "{said:?}");
        said[0]["result"].clone()
    }

    #[track_caller]
    fn refused(&mut self, session: SessionId, method: &str, params: Value) -> String {
        let said = self.say(session, method, params, 1);
        let error = &said[0]["error"];
        error.as_str().map_or_else(|| error["details"].as_str().unwrap().to_owned(), str::to_owned)
    }

    /// Changes the database behind the sessions' backs, as a transaction of the server's own does.
    fn put(&mut self, i: i64, s: &str) -> Uuid {
        let mut uuid = Uuid::ZERO;
        self.server
            .commit_own(self.now, "D", |transaction, ids| {
                let table = transaction.database().schema().find("T").unwrap();
                let schema = transaction.database().schema().table(table).clone();
                let mut row = transaction.new_row(table, ids.next_uuid());
                row.set(schema.find("i").unwrap(), Datum::scalar(i));
                row.set(schema.find("s").unwrap(), Datum::scalar(s));
                uuid = row.uuid();
                transaction.insert(table, row)
            })
            .unwrap();
        self.server.flush(self.now);
        uuid
    }

    fn delete(&mut self, uuid: Uuid) {
        self.server
            .commit_own(self.now, "D", |transaction, _| {
                let table = transaction.database().schema().find("T").unwrap();
                assert!(transaction.delete(table, uuid));
                Ok(())
            })
            .unwrap();
        self.server.flush(self.now);
    }
}

#[test]
fn databases_schemas_and_the_servers_id_are_told() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    assert_eq!(rig.ask(session, "list_dbs", json!([])), json!(["D", "_Server"]));
    assert_eq!(rig.ask(session, "get_schema", json!(["_Server"])), Schema::server().to_json());
    let id = rig.server.id().to_string();
    assert_eq!(rig.ask(session, "get_server_id", json!([])), json!(id));
    assert_eq!(rig.ask(session, "echo", json!([1, {"a": null}])), json!([1, {"a": null}]));
    assert_eq!(rig.refused(session, "nope", json!([])), "unknown method");
    let unknown = rig.refused(session, "get_schema", json!(["X"]));
    assert_eq!(unknown, "get_schema request specifies unknown database X");
}

#[test]
fn the_three_kinds_of_monitors_tell_of_inserts_changes_and_deletions() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let first = rig.put(1, "a");
    let columns = json!({"T": [{"columns": ["i", "s"]}]});
    let initial = rig.ask(session, "monitor", json!(["D", "plain", columns]));
    assert_eq!(initial, json!({"T": {first.to_string(): {"new": {"i": 1, "s": "a"}}}}));
    let initial = rig.ask(session, "monitor_cond", json!(["D", 2, columns]));
    assert_eq!(initial, json!({"T": {first.to_string(): {"initial": {"i": 1, "s": "a"}}}}));
    let initial = rig.ask(session, "monitor_cond_since", json!(["D", [3], columns, Uuid::ZERO.to_string()]));
    assert_eq!(initial[0], json!(false));
    let txn = initial[1].clone();

    let second = rig.put(0, "b");
    let told = rig.hear(session);
    assert_eq!(told[0]["params"], json!(["plain", {"T": {second.to_string(): {"new": {"i": 0, "s": "b"}}}}]));
    assert_eq!((&told[1]["method"], &told[2]["method"]), (&json!("update2"), &json!("update3")));
    // The default of "i" is left out.
    assert_eq!(told[1]["params"], json!([2, {"T": {second.to_string(): {"insert": {"s": "b"}}}}]));
    let newer = told[2]["params"][1].clone();
    assert_ne!(newer, txn);

    rig.delete(first);
    let told = rig.hear(session);
    assert_eq!(told[0]["params"][1]["T"][first.to_string()], json!({"old": {"i": 1, "s": "a"}}));
    assert_eq!(told[1]["params"][1]["T"][first.to_string()], json!({"delete": null}));

    // Who comes back gets what it has missed.
    let back = rig.server.connect(false);
    let initial = rig.ask(back, "monitor_cond_since", json!(["D", 1, columns, newer]));
    assert_eq!(initial[0], json!(true));
    assert_eq!(initial[2], json!({"T": {first.to_string(): {"delete": null}}}));

    assert_eq!(rig.ask(session, "monitor_cancel", json!([2])), json!({}));
    assert_eq!(rig.refused(session, "monitor_cancel", json!([2])), "unknown monitor");
    rig.put(5, "c");
    assert_eq!(rig.hear(session).len(), 2);
}

#[test]
fn a_change_of_conditions_shows_and_hides_rows_before_its_reply() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let rows: Vec<String> = (0..4).map(|i| rig.put(i, "x").to_string()).collect();
    let asked = json!({"T": [{"columns": ["i"], "where": [["i", "==", 1], ["i", "==", 2]]}]});
    let initial = rig.ask(session, "monitor_cond", json!(["D", "m", asked]));
    assert_eq!(initial["T"].as_object().unwrap().len(), 2);
    let change = json!({"T": [{"where": [["i", "<", 2]]}]});
    let said = rig.say(session, "monitor_cond_change", json!(["m", "n", change]), 9);
    let expected = json!({rows[0].clone(): {"insert": {}}, rows[2].clone(): {"delete": null}});
    assert_eq!(said[0]["params"], json!(["n", {"T": expected}]));
    assert_eq!(said[1]["id"], json!(9));
    assert_eq!(rig.refused(session, "monitor_cond_change", json!(["m", "m", {}])), "unknown monitor session");
    rig.put(7, "x");
    assert!(rig.hear(session).is_empty());
    rig.put(-7, "x");
    assert_eq!(rig.hear(session).len(), 1);
}

#[test]
fn changes_of_conditions_mean_what_they_mean_to_the_stock_server() {
    let below_2 = json!({"T": [{"columns": ["i"], "where": [["i", "<", 2]]}]});
    let of = |i: i64| json!({"where": [["i", "==", i]]});
    let told = |method: &str, change: Value| {
        let mut rig = Rig::new();
        let session = rig.server.connect(false);
        for i in 0..4 {
            rig.put(i, "x");
        }
        let asked = if method == "monitor" { json!({"T": [{"columns": ["i"]}]}) } else { below_2.clone() };
        rig.ask(session, method, json!(["D", "m", asked]));
        let said = rig.say(session, "monitor_cond_change", json!(["m", "m", change]), 9);
        if let Some(details) = said[0]["error"]["details"].as_str() {
            return Err(details.to_owned());
        }
        let rows =
            |m: &Value| m["params"][1]["T"].as_object().expect("an update").values().cloned().collect();
        Ok(if said.len() > 1 { rows(&said[0]) } else { Vec::new() })
    };
    let rows = |change: Value| {
        let mut rows = told("monitor_cond", change).unwrap();
        rows.sort_by_key(Value::to_string);
        rows
    };
    assert!(rows(json!({})).is_empty());
    assert!(rows(json!({"T": []})).is_empty(), "no request changes nothing");
    let hidden = json!({"delete": null});
    let expected = json!([hidden, hidden, {"insert": {"i": 3}}]);
    assert_eq!(json!(rows(json!({"T": [of(1), of(3)]}))), expected, "the last one counts");
    assert_eq!(json!(rows(json!({"T": [{"where": []}, of(3)]}))), expected);
    assert_eq!(rows(json!({"T": [of(3), {"where": []}]})).len(), 2, "and shows all");
    // Plain updates know no conditions.
    for i in ["i", "no_such_column"] {
        assert_eq!(told("monitor", json!({"T": [{"where": [[i, "==", 1]]}]})), Ok(Vec::new()));
    }
    for (change, expected) in [
        (json!([]), "monitor-cond-change-requests must be object"),
        (json!({"Z": []}), "no table named Z"),
        (json!({"T": {"where": []}}), "table T no monitor-cond-change JSON array"),
        (json!({"T": [{"columns": [], "where": []}]}), "changing columns is unsupported"),
        (
            json!({"T": [{"select": {"initial": false}}]}),
            "Parsing table T failed: Member 'select' is present but not allowed here.",
        ),
    ] {
        assert_eq!(told("monitor_cond", change), Err(expected.to_owned()));
    }
}

#[test]
fn requests_for_monitors_are_refused_in_the_stock_servers_words() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    for (method, rest, expected) in [
        ("monitor", json!([1, 2]), "monitor-requests must be object"),
        ("monitor", json!([]), "invalid parameters"),
        ("monitor", json!([1, {"Z": {}}]), "no table named Z"),
        ("monitor", json!([1, {"T": {"columns": ["z"]}}]), "z is not a valid column name"),
        ("monitor", json!([1, {"T": {"columns": ["i", "i"]}}]), "column i mentioned more than once"),
        (
            "monitor",
            json!([1, {"T": {"select": {"initial": 1}}}]),
            "Parsing table T select failed: Type mismatch for member 'initial'.",
        ),
        (
            "monitor",
            json!([1, {"T": {"where": []}}]),
            "Parsing table T failed: Member 'where' is present but not allowed here.",
        ),
        ("monitor_cond", json!([1, {"T": [{"where": [["z", "==", 1]]}]}]), "No column z in table T."),
        ("monitor_cond", json!([1, {"T": [{"where": [["i", "=", 1]]}]}]), "No function named =."),
        ("monitor_cond", json!([1, {"T": [{"where": [1]}]}]), "Parse error in condition."),
        ("monitor_cond_since", json!([1, {}, "x"]), "last-txn-id must be UUID format."),
        ("monitor_cond_since", json!([1, {}, 3]), "last-txn-id must be string"),
        ("monitor_cond_since", json!([1, {}]), "invalid parameters"),
    ] {
        let mut params = vec![json!("D")];
        params.extend(rest.as_array().unwrap().iter().cloned());
        assert_eq!(rig.refused(session, method, Value::Array(params)), expected);
    }
    rig.ask(session, "monitor", json!(["D", 1, {}]));
    assert_eq!(rig.refused(session, "monitor", json!(["D", 1, {}])), "duplicate monitor ID");
}

#[test]
fn who_does_not_take_its_output_gets_one_update_of_all_it_missed() {
    let mut rig = Rig::new();
    let slow = rig.server.connect(false);
    rig.ask(slow, "monitor_cond", json!(["D", 1, {"T": [{"columns": ["i", "s"]}]}]));
    let text = "x".repeat(1000);
    let mut uuids = Vec::new();
    for i in 0..2_000 {
        uuids.push(rig.put(i, &text));
    }
    let full = rig.server.output(slow).len();
    assert!((OUTPUT_BYTES_FULL..OUTPUT_BYTES_FULL + 2_000).contains(&full), "{full}");
    assert!(!rig.server.may_read(slow));
    uuids.drain(1..).for_each(|uuid| rig.delete(uuid));
    let told = rig.hear(slow);
    rig.server.drained(slow);
    let rest = rig.hear(slow);
    assert_eq!(rest.len(), 1, "what came and went meanwhile is not told");
    let deleted = rest[0]["params"][1]["T"].as_object().unwrap();
    assert_eq!(deleted.len(), told.len() - 1);
    assert!(deleted.values().all(|row| row.get("delete").is_some()));
}

#[test]
fn who_is_too_far_behind_is_ended_at_once() {
    let mut rig = Rig::new();
    let text = "x".repeat(1 << 20);
    // These take more than may be kept of them once they are gone.
    let uuids: Vec<Uuid> = (0..340).map(|i| rig.put(i, &text)).collect();
    let slow = rig.server.connect(false);
    let asked = json!({"T": [{"columns": ["i", "s"], "select": {"initial": false}}]});
    rig.ask(slow, "monitor_cond", json!(["D", 1, asked]));
    rig.put(340, &text);
    assert!(!rig.server.is_closing(slow));
    uuids.into_iter().for_each(|uuid| rig.delete(uuid));
    assert!(rig.server.is_closing(slow) && rig.server.output(slow).is_empty());
    assert_eq!(rig.server.counters().sessions_too_far_behind, 1);
}

#[test]
fn many_monitors_of_a_long_value_are_told_one_by_one_and_the_reply_comes_after_them() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let uuid = rig.put(1, "").to_string();
    let monitors = 50;
    for n in 0..monitors {
        // Each is unlike the others, so that none shares another's text.
        let request = json!({"columns": ["s"], "select": {"initial": false}, "where": [["i", "!=", -1 - n]]});
        let asked = json!({"T": [request]});
        rig.ask(session, "monitor_cond", json!(["D", n, asked]));
    }
    let kept = rig.server.kept_bytes();
    let text = "x".repeat(100_000);
    let set = json!({"op": "update", "table": "T", "where": [["i", "==", 1]], "row": {"s": text}});
    rig.send(session, &Message::request("transact", &json!(["D", set]), 7));
    rig.send(session, &Message::request("transact", &json!(["D", {"op": "comment", "comment": ""}]), 8));
    rig.server.flush(rig.now);
    let mut told = Vec::new();
    loop {
        let pending = rig.server.output(session).len();
        assert!(pending < OUTPUT_BYTES_FULL + text.len() + 1_000, "{pending} bytes wait");
        assert_eq!(rig.server.may_read(session), pending < OUTPUT_BYTES_FULL);
        let heard = rig.hear(session);
        if heard.is_empty() {
            break;
        }
        told.extend(heard);
        assert!(told.len() < 10 * monitors as usize, "others' changes keep the reply back");
        if told.iter().all(|m| m["id"] != json!(8)) {
            rig.put(2, "");
        }
        rig.server.drained(session);
    }
    let of_change = |m: &Value| m["params"][1]["T"][&uuid]["modify"]["s"].is_string();
    let replied = told.iter().position(|m| m["id"] == json!(7)).expect("it is answered");
    assert_eq!(told[replied]["result"], json!([{"count": 1}]));
    assert_eq!(told[..replied].iter().filter(|m| of_change(m)).count(), monitors as usize);
    assert_eq!(told.iter().filter(|m| m["id"] == json!(8)).count(), 1);
    assert!(replied < told.iter().position(|m| m["id"] == json!(8)).unwrap(), "replies stay in order");
    assert_eq!(rig.server.kept_bytes(), kept, "a reply is charged only while it waits");
}

#[test]
fn many_monitors_are_told_some_at_a_time_while_others_are_served() {
    let mut rig = Rig::new();
    let [watches, other] = [(); 2].map(|()| rig.server.connect(false));
    let monitors = 100;
    for n in 0..monitors {
        let request = json!({"columns": ["i"], "where": [["i", "<", -1 - n], ["i", "==", 7]]});
        rig.ask(watches, "monitor_cond", json!(["D", n, {"T": [request]}]));
    }
    let insert = |i: i64| json!({"op": "insert", "table": "T", "row": {"i": i}});
    let mut operations = vec![json!("D"), insert(7)];
    operations.extend((0..10_000).map(|_| insert(1)));
    rig.send(watches, &Message::request("transact", &json!(operations), 1));
    let (mut told, mut turns) = (Vec::new(), 0);
    loop {
        rig.server.flush(rig.now);
        told.extend(rig.hear(watches));
        turns += 1;
        let is_answered = told.iter().any(|m: &Value| m["id"] == json!(1));
        assert_eq!(rig.server.may_read(watches), is_answered, "its next request waits");
        if !rig.server.has_stale() {
            break;
        }
        assert!(turns < 100);
        assert_eq!(rig.ask(other, "echo", json!([turns])), json!([turns]));
        // Others' transactions do not keep the reply back.
        rig.ask(other, "transact", json!(["D", insert(7)]));
    }
    assert!(turns > 5, "{turns}");
    let replied = told.iter().position(|m| m["id"] == json!(1)).expect("it is answered");
    let first = told[..replied].iter().filter(|m| m["method"] == json!("update2"));
    let of_monitors: BTreeSet<String> = first.map(|m| m["params"][0].to_string()).collect();
    assert_eq!(of_monitors.len(), monitors as usize, "after every monitor was told");
}

#[test]
fn locks_are_told_to_those_who_get_and_lose_them() {
    let mut rig = Rig::new();
    let [a, b] = [(); 2].map(|()| rig.server.connect(false));
    assert_eq!(rig.ask(a, "lock", json!(["l"])), json!({"locked": true}));
    assert_eq!(rig.refused(a, "lock", json!(["l"])), "must issue \"unlock\" before new \"lock\"");
    assert_eq!(rig.refused(a, "lock", json!(["1 2"])), "lock request params must be <id>");
    assert_eq!(rig.ask(b, "steal", json!(["l"])), json!({"locked": true}));
    assert_eq!(rig.hear(a), [json!({"id": null, "method": "stolen", "params": ["l"]})]);
    assert_eq!(rig.ask(b, "unlock", json!(["l"])), json!({}));
    assert_eq!(rig.hear(a), [json!({"id": null, "method": "locked", "params": ["l"]})]);
    assert_eq!(rig.ask(b, "lock", json!(["l"])), json!({"locked": false}));
    rig.server.disconnect(a);
    assert_eq!(rig.hear(b), [json!({"id": null, "method": "locked", "params": ["l"]})]);
    assert!(rig.refused(b, "unlock", json!(["m"])).starts_with("unlock: \"unlock\" without"));
}

#[test]
fn the_servers_own_database_follows_the_others() {
    let mut rig = Rig::new();
    let [aware, unaware] = [(); 2].map(|()| rig.server.connect(false));
    assert_eq!(rig.ask(aware, "set_db_change_aware", json!([true])), json!({}));
    let asked = json!(["_Server", "s", {"Database": [{"columns": ["name", "model", "leader"]}]}]);
    let initial = rig.ask(aware, "monitor_cond", asked);
    let names: Vec<&str> = initial["Database"]
        .as_object()
        .unwrap()
        .values()
        .map(|r| r["initial"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"D") && names.contains(&SERVER_DATABASE));
    rig.ask(aware, "monitor_cond", json!(["D", "d", {"T": [{}]}]));

    let waiting = json!(["D", {
        "op": "wait", "table": "T", "where": [["i", "==", 1]], "columns": ["i"], "until": "==", "rows": [{"i": 1}]
    }]);
    for session in [aware, unaware] {
        assert!(rig.say(session, "transact", waiting.clone(), 7).is_empty());
    }

    rig.server.remove_database("D").unwrap();
    rig.server.flush(rig.now);
    let told = rig.hear(aware);
    assert_eq!(told[0], json!({"id": 7, "error": "canceled"}));
    assert!(rig.hear(unaware).is_empty(), "the connection ends instead");
    assert_eq!(told[1], json!({"id": null, "method": "monitor_canceled", "params": ["d"]}));
    assert_eq!(told[2]["method"], json!("update2"));
    assert!(!rig.server.is_closing(aware));
    assert!(rig.server.is_closing(unaware), "so that it looks again");
    assert!(rig.server.take_ready().contains(&unaware));
    assert_eq!(rig.server.remove_database(SERVER_DATABASE).unwrap_err(), NoSuchDatabase);
}

#[test]
fn a_converted_database_keeps_its_rows_and_starts_its_clients_anew() {
    let mut rig = Rig::new();
    rig.put(3, "x");
    let [aware, unaware, reader] = [(); 3].map(|()| rig.server.connect(false));
    rig.ask(aware, "set_db_change_aware", json!([true]));
    rig.ask(aware, "monitor", json!(["D", 1, {"T": {}}]));
    rig.ask(reader, "set_db_change_aware", json!([true]));
    let mut schema = rig.server.database("D").unwrap().schema().to_json();
    schema["version"] = json!("2.0.0");
    schema["tables"]["T"]["columns"].as_object_mut().unwrap().remove("s");
    let said = rig.say(aware, "convert", json!(["D", schema]), 5);
    assert_eq!(said[0]["method"], json!("monitor_canceled"));
    assert_eq!(said[1], json!({"error": null, "id": 5, "result": {}}));
    assert!(rig.server.is_closing(unaware));
    assert_eq!(rig.ask(reader, "get_schema", json!(["D"]))["version"], json!("2.0.0"));
    assert_eq!(rig.server.database("D").unwrap().row_count(crate::TableIdx(0)), 1);
    let wrong = rig.refused(reader, "convert", json!(["D", {"name": "E", "version": "1.0.0", "tables": {}}]));
    assert!(wrong.contains("does not match database name (D)"), "{wrong}");
    assert!(rig.refused(reader, "convert", json!(["D", {}])).contains("name"));
}

#[test]
fn a_backup_refuses_locks_and_conversions() {
    let mut rig = Rig::new();
    rig.server.set_read_only(true);
    let session = rig.server.connect(false);
    for method in ["lock", "steal", "unlock"] {
        let error = rig.say(session, method, json!(["l"]), 1)[0]["error"].take();
        assert_eq!(error, "lock and unlock methods not allowed, DB server is read only.");
    }
    assert!(rig.refused(session, "convert", json!(["D", Schema::server().to_json()])).contains("read only"));
    rig.server.set_read_only(false);
    assert!(rig.server.is_closing(session));
}

#[test]
fn who_may_only_read_converts_nothing() {
    let mut rig = Rig::new();
    rig.put(3, "x");
    let [reader, writer] = [true, false].map(|read_only| rig.server.connect(read_only));
    let schema =
        json!({"name": "D", "version": "2.0.0", "tables": {"V": {"columns": {"i": {"type": "integer"}}}}});
    assert!(rig.refused(reader, "convert", json!(["D", schema])).contains("read only mode"));
    rig.server.set_session_read_only(writer, true);
    assert!(rig.refused(writer, "convert", json!(["D", schema])).contains("read only mode"));
    assert_eq!(rig.server.database("D").unwrap().row_count(crate::TableIdx(0)), 1);
    assert!(!rig.server.is_closing(reader));
    rig.server.set_session_read_only(writer, false);
    rig.ask(writer, "convert", json!(["D", schema]));
}

#[test]
fn what_no_file_of_the_stock_server_may_hold_is_refused() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let comment = json!(["D", {"op": "comment", "comment": "a\u{0}b"}]);
    let result = rig.ask(session, "transact", comment);
    assert_eq!(result[0]["details"], "null bytes not supported in strings");
    let schema = json!({"name": "D", "version": "2.0.0", "cksum": "1\u{0}2", "tables": {}});
    let refused = rig.refused(session, "convert", json!(["D", schema]));
    assert_eq!(refused, "null bytes not supported in strings");
}

#[test]
fn what_is_not_utf_8_is_refused_except_in_comments() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let mut say = |method: &str, params: Value| {
        let text = String::from_utf8(Message::request(method, &params, 1).to_bytes()).unwrap();
        let bytes = text.split('?').map(str::as_bytes).collect::<Vec<_>>().join(&b'\xff');
        rig.server.handle_bytes(rig.now, session, &bytes).unwrap();
        rig.server.flush(rig.now);
        let mut said = rig.hear(session);
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    };
    let error = json!({"error": "constraint violation",
        "details": "not a valid UTF-8 string: invalid UTF-8 sequence 0xff"});
    let insert = |s: &str| json!({"op": "insert", "table": "T", "row": {"s": s}});
    let said = say("transact", json!(["D", {"op": "comment", "comment": "br?"}, insert("br?"), insert("")]));
    assert_eq!(said["result"], json!([null, error, null]));
    let said = say("transact", json!(["D", insert("a"), insert("?")]));
    assert_eq!(said["result"], json!([null, error]));
    for (method, params) in [
        ("lock", json!(["l?"])),
        ("monitor_cond", json!(["D", 1, {"T": [{"where": [["s", "==", "?"]]}]}])),
        ("get_schema", json!(["?"])),
    ] {
        assert_eq!(say(method, params)["error"], error, "{method}");
    }
    assert_eq!(say("echo", json!(["?"]))["result"], json!(["\u{fffd}"]));
    assert_eq!(say("transact", json!(["?"]))["error"]["error"], "unknown database");
    let said = say("transact", json!(["D", {"op": "comment", "comment": "br?"}, insert("b")]));
    assert!(said["result"][1]["uuid"].is_array(), "{said}");
    let long = |len| {
        let text = [vec![b'x'; len], vec![0xff]].concat();
        [&b"{\"method\":\"echo\",\"id\":1,\"params\":[\""[..], &text, b"\"]}"].concat()
    };
    assert!(rig.server.handle_bytes(rig.now, session, &long(1 << 20)).is_ok());
    assert!(rig.server.handle_bytes(rig.now, session, &long(16 << 20)).is_err());
    assert_eq!(rig.server.database("D").unwrap().row_count(crate::TableIdx(0)), 1);
}

#[test]
fn time_passes_without_anything_to_do() {
    let mut rig = Rig::new();
    assert_eq!(rig.server.next_timeout(), None);
    rig.now.at += Duration::from_secs(1);
    rig.server.handle_timeout(rig.now);
}

#[test]
fn an_answer_that_nobody_asked_for_ends_the_connection_and_one_to_a_probe_does_not() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    for (text, expected) in [
        (r#"{"id":"echo","result":[],"error":null}"#, None),
        (r#"{"id":7,"result":{},"error":null}"#, Some("received unexpected reply message")),
        (r#"{"id":7,"result":null}"#, Some("received bad JSON-RPC message: neither a result nor an error")),
        (r#"{"id":7,"result":null,"error":"x"}"#, Some("received unexpected error message")),
    ] {
        let result = rig.server.handle_text(rig.now, session, text);
        assert_eq!(result.err().map(|e| e.to_string()).as_deref(), expected, "{text}");
    }
    assert!(rig.hear(session).is_empty());
}

#[test]
fn errors_are_those_of_the_stock_server() {
    let mut rig = Rig::new();
    let session = rig.server.connect(false);
    let mut error = |method: &str, params: Value| {
        let said = rig.say(session, method, params, 1);
        // An error has no "result".
        assert_eq!(said[0].as_object().unwrap().len(), 2, "{said:?}");
        said[0]["error"].clone()
    };
    let of = |name: &str| json!({"name": name, "version": "1.0.0", "tables": {}});
    assert_eq!(
        error("convert", json!(["D", of("E")])),
        json!({"error": "invalid parameters", "details": "new schema name (E) does not match database name (D)"})
    );
    assert_eq!(
        error("convert", json!(["D"])),
        json!({"error": "syntax error", "details": "array expected", "syntax": "[\"D\"]"})
    );
    let twice = json!({"m": ["map", [["a", "1"], ["a", "2"]]]});
    let result = rig.ask(session, "transact", json!(["D", {"op": "insert", "table": "T", "row": twice}]));
    assert_eq!(result[0], json!({"error": "ovsdb error", "details": "map contains duplicate key"}));
}
