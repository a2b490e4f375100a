//! Transactions of several clients that share a write of the log, through the whole [`Server`] over the
//! faulty disk: who was told that a transaction succeeded finds it in the file whatever happens then, who was
//! told that it failed does not find it, and nobody is shown what then was not.

use crate::durability::chance::Chance;
use crate::durability::disk::{Disk, Faults};
use ovsdb::jsonrpc::Message;
use ovsdb::log::transaction::encode_schema;
use ovsdb::log::{LogDirectory, Magic, frame};
use ovsdb::server::{Now, Server, SessionId};
use ovsdb::storage::{self, Opened, Storage};
use ovsdb::{Database, Schema, TableIdx, UuidGenerator};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

struct Rig {
    disk: Disk,
    server: Server,
    now: Now,
    sessions: Vec<SessionId>,
}

impl Rig {
    fn new(seed: u64, sessions: usize) -> Rig {
        let disk = Disk::new(seed);
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {
            "T": {"columns": {"name": {"type": "string"}}, "indexes": [["name"]]}}});
        let schema = Schema::from_json(&schema).unwrap();
        disk.set_file(&frame::record(Magic::Standalone, &encode_schema(&schema)));
        Rig::on(disk, seed, sessions)
    }

    fn on(disk: Disk, seed: u64, sessions: usize) -> Rig {
        let now = Now { at: Instant::now(), date_ms: 1 };
        let mut ids = UuidGenerator::from_seed(seed);
        let directory: Arc<dyn LogDirectory> = Arc::new(disk.clone());
        let Opened { storage, database, .. } = Storage::open(directory, &mut ids, 0).unwrap();
        let mut server = Server::new(now, ids);
        assert!(server.add_stored(database, storage));
        let sessions = (0..sessions).map(|_| server.connect(false)).collect();
        Rig { disk, server, now, sessions }
    }

    fn send(&mut self, session: usize, id: usize, operations: &[Value]) {
        let mut params = vec![json!("D")];
        params.extend_from_slice(operations);
        let message = Message::request("transact", &params, id);
        self.say(self.sessions[session], &message);
    }

    fn say(&mut self, session: SessionId, message: &Message) {
        let text = String::from_utf8(message.to_bytes()).unwrap();
        self.server.handle_text(self.now, session, &text).unwrap();
    }

    /// What a session was sent since the last call.
    fn heard(&mut self, session: usize) -> Vec<Value> {
        let output = self.server.output(self.sessions[session]);
        let mut text = Vec::new();
        while let Some(front) = output.front() {
            text.extend_from_slice(front);
            let sent = front.len();
            output.advance(sent);
        }
        serde_json::Deserializer::from_slice(&text).into_iter().map(Result::unwrap).collect()
    }

    /// The names in the file as a process finds it that opens it now.
    fn in_file(&self) -> BTreeSet<String> {
        let next = self.disk.after_kill(1);
        let file = next.open().unwrap();
        let contents = storage::read(&*file, &mut UuidGenerator::from_seed(9)).unwrap();
        names(&contents.database)
    }
}

fn names(database: &Database) -> BTreeSet<String> {
    let table = database.schema().table(TableIdx(0));
    let name = table.find("name").unwrap();
    database.rows(TableIdx(0)).map(|row| row.get(name).as_str().unwrap().to_owned()).collect()
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

fn select() -> Value {
    json!({"op": "select", "table": "T", "where": [], "columns": ["name"]})
}

/// Whether every operation of a transaction succeeded, and so did the whole.
fn succeeded(reply: &Value) -> bool {
    reply["error"].is_null()
        && reply["result"].as_array().unwrap().iter().all(|r| r.is_object() && r.get("error").is_none())
}

#[test]
fn transactions_of_one_turn_share_a_write_and_are_answered_after_it_in_their_order() {
    let mut rig = Rig::new(1, 8);
    let watcher = rig.server.connect(false);
    let monitor = Message::request("monitor", &json!(["D", null, {"T": {"columns": ["name"]}}]), 0);
    rig.say(watcher, &monitor);
    rig.sessions.push(watcher);
    rig.heard(8);
    let before = rig.disk.writes();
    for n in 0..64 {
        rig.send(n % 8, n, &[insert(&format!("row {n}"))]);
    }
    assert_eq!(rig.disk.writes(), before, "nothing is written before the turn ends");
    assert!((0..9).all(|session| rig.heard(session).is_empty()), "and nothing is told");
    rig.server.flush(rig.now);
    assert_eq!(rig.disk.writes(), before + 1);
    assert_eq!(rig.in_file().len(), 64);
    for session in 0..8 {
        let replies = rig.heard(session);
        let ids: Vec<_> = replies.iter().map(|r| r["id"].as_u64().unwrap() as usize).collect();
        assert_eq!(ids, (0..8).map(|n| 8 * n + session).collect::<Vec<_>>());
        assert!(replies.iter().all(succeeded), "{replies:?}");
    }
    let told = rig.heard(8);
    let rows: usize = told.iter().map(|u| u["params"][1]["T"].as_object().unwrap().len()).sum();
    assert_eq!(rows, 64);
    assert_eq!(rig.server.counters().commits, 64);
}

#[test]
fn what_is_no_change_of_the_same_database_finds_those_before_it_in_the_log() {
    let mut rig = Rig::new(1, 2);
    rig.send(0, 1, &[insert("a")]);
    // A transaction that only reads sees it, so it is written first.
    rig.send(1, 2, &[select()]);
    assert_eq!(rig.in_file(), BTreeSet::from(["a".to_owned()]));
    assert_eq!(rig.heard(1)[0]["result"][0]["rows"], json!([{"name": "a"}]));
    // As does one that fails because of it.
    rig.send(0, 3, &[insert("b")]);
    rig.send(1, 4, &[insert("b")]);
    assert_eq!(rig.in_file().len(), 2);
    assert!(!succeeded(&rig.heard(1)[0]));
    // And any other request.
    rig.send(0, 5, &[insert("c")]);
    rig.say(rig.sessions[0], &Message::request("echo", &json!([]), 6));
    assert_eq!(rig.in_file().len(), 3);
    let ids: Vec<Value> = rig.heard(0).iter().map(|r| r["id"].clone()).collect();
    assert_eq!(ids, [1, 3, 5, 6]);
    // A turn of very many is written in parts.
    let before = rig.disk.writes();
    (0..10_000).for_each(|n| rig.send(0, n, &[insert(&format!("row {n}"))]));
    assert!((10..=200).contains(&(rig.disk.writes() - before)), "{}", rig.disk.writes() - before);
}

#[test]
fn what_was_read_at_the_start_is_durable_only_once_it_is_on_the_disk() {
    let mut rig = Rig::new(1, 1);
    rig.send(0, 1, &[insert("a")]);
    rig.server.flush(rig.now);
    // The process is killed before a sync, and the next one finds the row in the page cache.
    let mut rig = Rig::on(rig.disk.after_kill(1), 1, 1);
    let durable = json!({"op": "commit", "durable": true});
    rig.send(0, 2, &[select(), durable.clone()]);
    rig.server.flush(rig.now);
    assert!(rig.heard(0).is_empty(), "it is not on the disk yet");
    while let Some((database, job)) = rig.server.poll_job(rig.now) {
        rig.server.handle_done(rig.now, database, job.run());
    }
    assert_eq!(rig.heard(0)[0]["result"][0]["rows"], json!([{"name": "a"}]));
    for seed in 0..20 {
        let file = rig.disk.after_power_cut(seed).open().unwrap();
        let contents = storage::read(&*file, &mut UuidGenerator::from_seed(9)).unwrap();
        assert_eq!(names(&contents.database), BTreeSet::from(["a".to_owned()]));
    }
    rig.send(0, 3, &[durable]);
    rig.server.flush(rig.now);
    assert_eq!(rig.heard(0).len(), 1, "it is now");
}

#[test]
fn what_was_not_durable_when_its_database_was_removed_is_not_called_so() {
    let mut rig = Rig::new(1, 1);
    rig.send(0, 1, &[insert("a"), json!({"op": "commit", "durable": true})]);
    rig.server.flush(rig.now);
    assert!(rig.heard(0).is_empty(), "it is not on the disk yet");
    rig.server.remove_database("D").unwrap();
    rig.server.flush(rig.now);
    let reply = &rig.heard(0)[0];
    assert_eq!(reply["result"][2]["error"], "I/O error", "{reply}");
    assert_eq!(rig.server.kept_bytes(), 0);
}

#[test]
fn a_default_outside_the_constraints_can_be_changed_and_the_file_can_be_read() {
    let mut rig = Rig::new(1, 1);
    rig.send(0, 1, &[insert("a"), insert("b")]);
    let least = json!({"type": "integer", "minInteger": 1});
    // Rows that are there get a default that the columns do not take, as with the stock server.
    let schema = json!({"name": "D", "version": "2.0.0", "tables": {"T": {"columns": {
        "name": {"type": "string"}, "one": {"type": {"key": least}},
        "set": {"type": {"key": least, "min": 1, "max": 2}},
        "map": {"type": {"key": least, "value": least, "min": 1, "max": 2}}}}}});
    rig.say(rig.sessions[0], &Message::request("convert", &json!(["D", schema]), 2));
    let at = |name: &str| json!([["name", "==", name]]);
    for (id, operation) in [
        json!({"op": "update", "table": "T", "where": at("a"),
            "row": {"set": 5, "map": ["map", [[5, 5]]], "one": 5}}),
        json!({"op": "mutate", "table": "T", "where": at("b"), "mutations": [["set", "insert", 5]]}),
        json!({"op": "mutate", "table": "T", "where": at("b"),
            "mutations": [["map", "insert", ["map", [[5, 5]]]]]}),
    ]
    .into_iter()
    .enumerate()
    {
        rig.send(0, id, &[operation]);
        rig.server.flush(rig.now);
        assert_eq!(rig.in_file().len(), 2);
        rig.server.compact("D").unwrap();
        while let Some((database, job)) = rig.server.poll_job(rig.now) {
            rig.server.handle_done(rig.now, database, job.run());
        }
        assert_eq!(rig.in_file().len(), 2);
    }
    assert!(rig.heard(0).iter().all(|reply| reply["error"].is_null()));
}

/// A life of random turns under random faults.
fn life(seed: u64) {
    let mut chance = Chance::new(seed);
    let mut rig = Rig::new(seed, 6);
    let mut rate = |usual: u64| if chance.one_in(3) { 0 } else { 1 + chance.below(usual) };
    let faults = Faults {
        short_write: rate(5),
        write_error: rate(5),
        capacity: if rate(3) == 1 { 1_000 + chance.below(6_000) } else { 0 },
        ..Faults::default()
    };
    rig.disk.set_faults(faults);
    rig.disk.die_in(chance.one_in(2).then(|| 1 + chance.below(40)));
    let mut kept = BTreeSet::new();
    for turn in 0..20 {
        let mut asked: Vec<(usize, String)> = Vec::new();
        for n in 0..chance.below(12) as usize {
            let session = chance.below(6) as usize;
            // Some want the same name, of whom one can have it.
            let name = format!("{turn}.{}", chance.below(9));
            match chance.below(8) {
                0 => rig.send(session, n, &[select()]),
                1 => rig.send(session, n, &[insert(&name), select()]),
                2 => rig.send(
                    session,
                    n,
                    &[
                        insert(&name),
                        json!({"op": "commit", "durable": false}),
                        json!({"op": "comment", "comment": "why"}),
                    ],
                ),
                _ => rig.send(session, n, &[insert(&name)]),
            }
            asked.push((session, name));
        }
        rig.server.flush(rig.now);
        let (mut seen, mut answered) = (BTreeSet::new(), 0);
        for session in 0..rig.sessions.len() {
            for reply in rig.heard(session) {
                answered += 1;
                let n = reply["id"].as_u64().unwrap() as usize;
                let results = reply["result"].as_array().unwrap();
                if !succeeded(&reply) {
                    continue;
                }
                if results[0].get("uuid").is_some() {
                    assert!(kept.insert(asked[n].1.clone()), "seed {seed}: {} was there twice", asked[n].1);
                }
                let rows = results.iter().filter_map(|r| r["rows"].as_array()).flatten();
                seen.extend(rows.map(|row| row["name"].as_str().unwrap().to_owned()));
            }
        }
        assert_eq!(answered, asked.len(), "seed {seed}: everybody is answered");
        assert!(seen.is_subset(&kept), "seed {seed}: {seen:?} was shown, {kept:?} is");
        assert_eq!(names(rig.server.database("D").unwrap()), kept, "seed {seed}: in memory");
        let in_file = rig.in_file();
        if rig.disk.is_dead() {
            let asked: BTreeSet<String> = asked.into_iter().map(|(_, name)| name).collect();
            assert!(
                in_file.is_superset(&kept),
                "seed {seed}: {kept:?} was acknowledged, {in_file:?} is there"
            );
            let more: BTreeSet<String> = in_file.difference(&kept).cloned().collect();
            assert!(more.is_subset(&asked), "seed {seed}: {more:?} was asked for earlier, and refused");
            return;
        }
        assert_eq!(in_file, kept, "seed {seed}: in the file");
    }
}

#[test]
fn clients_are_told_the_truth_of_transactions_that_share_a_write() {
    let cases = testkit::cases("ovsdb::clients_are_told_the_truth_of_transactions_that_share_a_write", 1_000);
    (0..u64::from(cases)).for_each(life);
}
