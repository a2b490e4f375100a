use super::*;
use crate::{ColumnIdx, Datum};
use serde_json::json;

const BR: &str = "550e8400-e29b-41d4-a716-446655440000";
const PORT: &str = "550e8400-e29b-41d4-a716-446655440001";
const TXN: &str = "aaaaaaaa-0000-4000-8000-000000000001";

fn schema_json() -> Value {
    json!({"name": "Zoo", "version": "1.0.0", "tables": {
        "Bridge": {"isRoot": true, "columns": {
            "name": {"type": "string"},
            "tag": {"type": {"key": "integer", "min": 0}},
            "cfg": {"type": "integer"},
            "ports": {"type": {"key": {"type": "uuid", "refTable": "Port"}, "min": 0, "max": "unlimited"}},
            "ids": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
        "Port": {"columns": {"name": {"type": "string"}}}}})
}

/// What the replica wants to send, as (method, params, id).
fn sent(replica: &mut Replica) -> Vec<(String, Value, Value)> {
    std::iter::from_fn(|| replica.poll_transmit())
        .filter_map(|message| match message {
            Message::Request { method, params, id } => {
                Some((method, serde_json::from_str(params.get()).unwrap(), id))
            }
            _ => None,
        })
        .collect()
}

fn request(replica: &mut Replica, method: &str) -> (Value, Value) {
    let sent = sent(replica);
    let found = sent.iter().find(|(name, ..)| name == method);
    let (_, params, id) = found.unwrap_or_else(|| panic!("no {method} among {sent:?}"));
    (params.clone(), id.clone())
}

fn reply(replica: &mut Replica, id: Value, result: Value) -> Result<(), Error> {
    replica.handle(Message::reply(&result, id))
}

fn notify(replica: &mut Replica, method: &str, params: Value) -> Result<(), Error> {
    replica.handle(Message::notification(method, &params))
}

fn first_rows() -> Value {
    json!({"Bridge": {BR: {"initial": {"name": "br0", "ids": ["map", [["a", "1"]]], "tag": 7}}}})
}

/// A replica that has its first rows.
fn synced() -> Replica {
    let mut replica = Replica::new("Zoo", Selection::everything());
    replica.connected();
    let (params, id) = request(&mut replica, "get_schema");
    assert_eq!(params, json!(["Zoo"]));
    reply(&mut replica, id, schema_json()).unwrap();
    let (params, id) = request(&mut replica, "monitor_cond_since");
    assert_eq!(params[3], json!("00000000-0000-0000-0000-000000000000"));
    assert_eq!(params[2]["Port"], json!([{"columns": ["name"]}]));
    assert!(!replica.is_synced());
    reply(&mut replica, id, json!([false, TXN, first_rows()])).unwrap();
    assert!(replica.is_synced());
    replica
}

fn bridge(replica: &Replica) -> (TableIdx, Uuid) {
    (replica.schema().unwrap().find("Bridge").unwrap(), Uuid::parse(BR).unwrap())
}

fn column(replica: &Replica, name: &str) -> ColumnIdx {
    let schema = replica.schema().unwrap();
    schema.table(schema.find("Bridge").unwrap()).find(name).unwrap()
}

#[test]
fn rows_follow_the_server_and_each_change_is_told_once() {
    let mut replica = synced();
    let (table, uuid) = bridge(&replica);
    let changes = replica.take_changes();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].old.is_none() && changes[0].new.is_some());

    let update = |modify: Value| json!(["replica", TXN, {"Bridge": {BR: {"modify": modify}}}]);
    let modify = update(json!({"ids": ["map", [["a", "2"], ["b", "x"]]], "tag": ["set", []]}));
    notify(&mut replica, "update3", modify).unwrap();
    let ids = column(&replica, "ids");
    let row = replica.row(table, uuid).unwrap();
    assert_eq!(*row.get(ids), Datum::map([("a", "2"), ("b", "x")]));
    assert!(row.get(column(&replica, "tag")).is_empty());
    let changes = replica.take_changes();
    let columns: Vec<_> =
        changes[0].old.as_ref().unwrap().changed_columns(changes[0].new.as_ref().unwrap()).collect();
    assert_eq!(columns, [ids, column(&replica, "tag")]);

    // There and back again is no change.
    notify(&mut replica, "update3", update(json!({"cfg": 5}))).unwrap();
    notify(&mut replica, "update3", update(json!({"cfg": 0}))).unwrap();
    assert_eq!(replica.take_changes(), []);

    let delete = json!(["replica", TXN, {"Bridge": {BR: {"delete": null}}}]);
    notify(&mut replica, "update3", delete).unwrap();
    assert!(replica.row(table, uuid).is_none());
    assert!(replica.take_changes()[0].new.is_none());
}

#[test]
fn the_next_connection_continues_and_where_it_cannot_the_difference_is_told() {
    let mut replica = synced();
    replica.take_changes();
    replica.disconnected();
    let (table, uuid) = bridge(&replica);
    assert!(replica.row(table, uuid).is_some(), "rows stay over a lost connection");

    replica.connected();
    let (_, id) = request(&mut replica, "get_schema");
    reply(&mut replica, id, schema_json()).unwrap();
    let (params, id) = request(&mut replica, "monitor_cond_since");
    assert_eq!(params[3], json!(TXN));
    let changed = json!({"Bridge": {BR: {"modify": {"cfg": 3}}}});
    reply(&mut replica, id, json!([true, TXN, changed])).unwrap();
    assert_eq!(replica.take_changes().len(), 1);

    replica.disconnected();
    replica.connected();
    let (_, id) = request(&mut replica, "get_schema");
    reply(&mut replica, id, schema_json()).unwrap();
    let (_, id) = request(&mut replica, "monitor_cond_since");
    let other = json!({"Bridge": {PORT: {"initial": {"name": "br1"}}}});
    reply(&mut replica, id, json!([false, TXN, other])).unwrap();
    let changes = replica.take_changes();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(replica.row(table, uuid).is_none());
}

#[test]
fn old_servers_are_followed_by_what_they_know() {
    let mut replica = Replica::new("Zoo", Selection::everything());
    replica.connected();
    let (_, id) = request(&mut replica, "get_schema");
    reply(&mut replica, id, schema_json()).unwrap();
    for (method, older) in [("monitor_cond_since", "monitor_cond"), ("monitor_cond", "monitor")] {
        let id = match method {
            "monitor_cond_since" => request(&mut replica, method).1,
            _ => json!(replica.next_id),
        };
        replica.handle(Message::error(&json!("unknown method"), id)).unwrap();
        if older == "monitor" {
            let (_, id) = request(&mut replica, older);
            let rows = json!({"Bridge": {BR: {"new": {"name": "br0", "tag": ["set", []]}}}});
            reply(&mut replica, id, rows).unwrap();
        } else {
            assert_eq!(sent(&mut replica)[0].0, older);
        }
    }
    assert!(replica.is_synced());
    let (table, uuid) = bridge(&replica);
    let change = json!({"Bridge": {BR: {"old": {"name": "br0"}, "new": {"name": "br9", "tag": 4}}}});
    notify(&mut replica, "update", json!(["replica", change])).unwrap();
    let row = replica.row(table, uuid).unwrap();
    assert_eq!(row.get(column(&replica, "name")).as_str(), Some("br9"));
    let gone = json!({"Bridge": {BR: {"old": {"name": "br9"}}}});
    notify(&mut replica, "update", json!(["replica", gone])).unwrap();
    assert!(replica.row(table, uuid).is_none());
}

#[test]
fn an_update_that_does_not_fit_is_an_error_changes_nothing_and_has_everything_fetched_anew() {
    for update in [
        json!({"Bridge": {PORT: {"modify": {"cfg": 1}}}}),
        json!({"Bridge": {BR: {"modify": {"cfg": 1}}, PORT: {"delete": null}}}),
        json!({"Bridge": {BR: {"modify": {"nope": 1}}}}),
        json!({"Bridge": {BR: {"modify": {"cfg": "x"}}}}),
        json!({"Bridge": {BR: {"modify": {}, "delete": null}}}),
        json!({"Bridge": {"no uuid": {"insert": {}}}}),
        json!({"Nope": {}}),
        json!([]),
    ] {
        let mut replica = synced();
        let (table, uuid) = bridge(&replica);
        let before = replica.row(table, uuid).cloned();
        let result = notify(&mut replica, "update3", json!(["replica", TXN, update]));
        assert!(matches!(result, Err(Error::Protocol(_))), "{update}: {result:?}");
        assert_eq!(replica.row(table, uuid).cloned(), before, "{update}");
        replica.disconnected();
        replica.connected();
        let (_, id) = request(&mut replica, "get_schema");
        reply(&mut replica, id, schema_json()).unwrap();
        let (params, _) = request(&mut replica, "monitor_cond_since");
        assert_eq!(params[3], json!(Uuid::ZERO.to_string()));
    }
}

#[test]
fn a_canceled_monitor_is_begun_anew_with_the_new_schema() {
    let mut replica = synced();
    let generation = replica.generation();
    notify(&mut replica, "monitor_canceled", json!(["replica"])).unwrap();
    let (_, id) = request(&mut replica, "get_schema");
    let mut schema = schema_json();
    schema["tables"]["Animal"] = json!({"columns": {"name": {"type": "string"}}});
    reply(&mut replica, id, schema).unwrap();
    let (_, id) = request(&mut replica, "monitor_cond_since");
    reply(&mut replica, id, json!([false, TXN, first_rows()])).unwrap();
    assert_eq!(replica.generation(), generation + 1);
    assert_eq!(replica.schema().unwrap().tables().len(), 3);
    assert_eq!(replica.take_changes().len(), 1);
}

#[test]
fn a_transaction_is_seen_through_it_and_sent_as_operations() {
    let mut replica = synced();
    let (table, uuid) = bridge(&replica);
    let [ports, ids, tag, cfg, name] =
        ["ports", "ids", "tag", "cfg", "name"].map(|name| column(&replica, name));
    let port_table = replica.schema().unwrap().find("Port").unwrap();
    let new = Uuid::parse(PORT).unwrap();
    let mut transaction = replica.begin();
    assert!(transaction.is_unchanged());
    transaction.insert(port_table, new);
    transaction.write(port_table, new, ColumnIdx::FIRST, Datum::scalar("p0"));
    transaction.verify(table, uuid, ports);
    transaction.write(table, uuid, ports, Datum::scalar(new));
    transaction.set_pairs(table, uuid, ids, Datum::map([("a", "9")]));
    transaction.remove(table, uuid, tag, Datum::scalar(7));
    transaction.set(table, uuid, name, Datum::scalar("br0"));
    transaction.increment(table, uuid, cfg);
    transaction.comment("one");
    transaction.comment("two");
    assert_eq!(transaction.get(table, uuid, ids).get("a"), Some("9"));
    assert!(transaction.get(table, uuid, tag).is_empty());
    assert!(transaction.is_referenced(port_table, new, crate::RefKind::Strong));
    assert!(replica.table(port_table).is_empty(), "the replica itself changes with the server only");

    let ticket = replica.commit(&transaction);
    assert_eq!(replica.take_outcome(ticket), None);
    let (params, id) = request(&mut replica, "transact");
    let this = json!([["_uuid", "==", ["uuid", BR]]]);
    let symbol = format!("row{}", PORT.replace('-', "_"));
    let expected = json!(["Zoo",
        {"op": "wait", "table": "Bridge", "timeout": 0, "where": this, "columns": ["ports"], "until": "==",
         "rows": [{"ports": ["set", []]}]},
        {"op": "update", "table": "Bridge", "where": this, "row": {"ports": ["named-uuid", symbol]}},
        {"op": "mutate", "table": "Bridge", "where": this, "mutations": [
            ["ids", "delete", ["set", ["a"]]], ["ids", "insert", ["map", [["a", "9"]]]],
            ["tag", "delete", ["set", [7]]]]},
        {"op": "insert", "table": "Port", "uuid-name": symbol, "row": {"name": "p0"}},
        {"op": "mutate", "table": "Bridge", "where": this, "mutations": [["cfg", "+=", 1]]},
        {"op": "select", "table": "Bridge", "where": this, "columns": ["cfg"]},
        {"op": "comment", "comment": "one\ntwo"}]);
    assert_eq!(params, expected);
    let made = json!({"uuid": ["uuid", BR]});
    let results = json!([{}, {"count": 1}, {"count": 1}, made, {"count": 1}, {"rows": [{"cfg": 8}]}, {}]);
    reply(&mut replica, id, results).unwrap();
    let Some(Outcome::Success(committed)) = replica.take_outcome(ticket) else { panic!("no success") };
    assert_eq!((committed.incremented, committed.uuid_of(new)), (Some(8), Some(uuid)));
}

#[test]
fn outcomes_tell_errors_from_what_is_worth_another_try() {
    let cases = [
        (json!([{"error": "timed out"}, null]), Outcome::TryAgain),
        (json!([null, {"error": "not owner"}]), Outcome::NotLocked),
        (
            json!([{"count": 1}, {"error": "constraint violation", "details": "no"}]),
            Outcome::Error(r#"{"details":"no","error":"constraint violation"}"#.into()),
        ),
        (json!([]), Outcome::Error("0 results for 1 operations".into())),
    ];
    for (results, outcome) in cases {
        let mut replica = synced();
        let (table, uuid) = bridge(&replica);
        let mut transaction = replica.begin();
        transaction.delete(table, uuid);
        let ticket = replica.commit(&transaction);
        let (_, id) = request(&mut replica, "transact");
        reply(&mut replica, id, results).unwrap();
        assert_eq!(replica.take_outcome(ticket), Some(outcome));
    }
    let mut replica = synced();
    let unchanged = replica.begin();
    let ticket = replica.commit(&unchanged);
    assert_eq!(replica.take_outcome(ticket), Some(Outcome::Unchanged));
    let (table, uuid) = bridge(&replica);
    let mut transaction = replica.begin();
    transaction.delete(table, uuid);
    let ticket = replica.commit(&transaction);
    replica.disconnected();
    assert_eq!(replica.take_outcome(ticket), Some(Outcome::TryAgain));
}

#[test]
fn a_lock_is_asked_for_on_each_connection_and_transactions_require_it() {
    let mut replica = synced();
    replica.request_lock("leader");
    let (params, id) = request(&mut replica, "lock");
    assert_eq!(params, json!(["leader"]));
    reply(&mut replica, id, json!({"locked": false})).unwrap();
    assert!(replica.is_lock_contended() && !replica.has_lock());
    notify(&mut replica, "locked", json!(["leader"])).unwrap();
    assert!(replica.has_lock() && !replica.is_lock_contended());
    let (table, uuid) = bridge(&replica);
    let mut transaction = replica.begin();
    transaction.delete(table, uuid);
    replica.commit(&transaction);
    let (params, _) = request(&mut replica, "transact");
    assert_eq!(params[1], json!({"op": "assert", "lock": "leader"}));
    notify(&mut replica, "stolen", json!(["leader"])).unwrap();
    assert!(!replica.has_lock());
    replica.connected();
    request(&mut replica, "lock");
}

#[test]
fn a_selection_leaves_the_rest_out_and_names_what_the_server_lacks() {
    let mut selection = Selection::new();
    selection.add_column("Bridge", "name");
    selection.add_column("Bridge", "nope");
    selection.add_table("Moon");
    let mut replica = Replica::new("Zoo", selection);
    replica.connected();
    let (_, id) = request(&mut replica, "get_schema");
    reply(&mut replica, id, schema_json()).unwrap();
    let (params, _) = request(&mut replica, "monitor_cond_since");
    assert_eq!(params[2], json!({"Bridge": [{"columns": ["name"]}]}));
    assert_eq!(replica.missing(), [("Bridge".into(), Some("nope".into())), ("Moon".into(), None)]);
}

#[test]
fn a_server_that_asks_whether_we_live_gets_its_answer() {
    let mut replica = synced();
    replica.handle(Message::request("echo", &json!(["x"]), "echo")).unwrap();
    let Some(Message::Reply { result, id }) = replica.poll_transmit() else { panic!("no reply") };
    assert_eq!((result.get(), id), (r#"["x"]"#, json!("echo")));
}
