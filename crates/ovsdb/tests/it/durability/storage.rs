//! Random transactions of a real database through [`Storage`] over the faulty disk. What the next process
//! reads must be the database as it was after the last acknowledged transaction, or after the one that was
//! being written; after a power cut, as it was at some moment since the last acknowledged durable one.

use crate::durability::chance::Chance;
use crate::durability::disk::{Disk, Faults};
use ovsdb::log::transaction::{Note, encode_schema};
use ovsdb::log::{LogDirectory, Magic, frame};
use ovsdb::storage::{Event, OpenError, Opened, Storage};
use ovsdb::{Changes, ColumnIdx, Database, Datum, Schema, Snapshot, TableIdx, Uuid, UuidGenerator};
use serde_json::json;
use std::sync::Arc;

fn schema() -> Schema {
    let set = |kind: &str| json!({"type": {"key": kind, "min": 0, "max": "unlimited"}});
    let map = json!({"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}});
    let animal = json!({"columns": {
        "name": {"type": "string"},
        "legs": {"type": {"key": "integer", "min": 0, "max": 1}},
        "weight": {"type": "real"},
        "tame": {"type": "boolean"},
        "tags": set("string"),
        "friends": set("uuid"),
        "notes": map,
        "seen": {"type": "integer", "ephemeral": true},
    }});
    let keeper = json!({"columns": {"name": {"type": "string"}, "days": set("integer")}});
    let json = json!({"name": "Zoo", "version": "1.0.0", "tables": {"Animal": animal, "Keeper": keeper}});
    Schema::from_json(&json).unwrap()
}

fn random_datum(name: &str, ids: &mut UuidGenerator, chance: &mut Chance) -> Datum {
    let text = |chance: &mut Chance| {
        let texts =
            ["", "a", "\"quoted\"\n\\", "ä\u{1}\u{7f}\u{2028}", "a text of more than twenty-three bytes"];
        texts[chance.below(5) as usize]
    };
    let many = 0..chance.below(5);
    match name {
        "name" => Datum::scalar(text(chance)),
        "legs" => Datum::optional((chance.below(3) > 0).then(|| chance.below(9) as i64)),
        "weight" => {
            let weights = [0.1, 1e300, -2.0, 0.0, 123_456_789.012_345_67];
            let real = ovsdb::Real::new(weights[chance.below(5) as usize]).unwrap();
            Datum::scalar(ovsdb::Atom::Real(real))
        }
        "tame" => Datum::scalar(chance.one_in(2)),
        "tags" => Datum::set(many.map(|_| text(chance)).collect::<Vec<_>>()),
        "friends" => Datum::set(many.map(|_| ids.next_uuid()).collect::<Vec<_>>()),
        "notes" => Datum::map(many.map(|_| (text(chance), text(chance))).collect::<Vec<_>>()),
        "days" => Datum::set(many.map(|_| chance.below(7) as i64 - 3).collect::<Vec<_>>()),
        "seen" => Datum::scalar(chance.next() as i64),
        other => panic!("no column {other}"),
    }
}

/// Inserts, changes and deletes some rows.
fn transact(database: &mut Database, ids: &mut UuidGenerator, chance: &mut Chance) -> Changes {
    let schema = Arc::clone(database.schema());
    let mut transaction = database.begin();
    for _ in 0..1 + chance.below(4) {
        let table = TableIdx(chance.below(2) as u16);
        let known: Vec<Uuid> = transaction.database().rows(table).map(|row| row.uuid()).collect();
        let victim = (!known.is_empty()).then(|| known[chance.below(known.len() as u64) as usize]);
        let columns: Vec<(ColumnIdx, &str)> =
            schema.table(table).named_columns().map(|(idx, column)| (idx, column.name.as_str())).collect();
        match (victim, chance.below(4)) {
            (Some(victim), 0) => assert!(transaction.delete(table, victim)),
            (Some(victim), 1 | 2) => {
                let mut row = transaction.database().row(table, victim).unwrap().clone();
                for _ in 0..1 + chance.below(3) {
                    let (idx, name) = columns[chance.below(columns.len() as u64) as usize];
                    row.set(idx, random_datum(name, ids, chance));
                }
                transaction.replace(table, row);
            }
            _ => {
                let mut row = transaction.new_row(table, ids.next_uuid());
                for &(idx, name) in &columns {
                    if chance.one_in(2) {
                        row.set(idx, random_datum(name, ids, chance));
                    }
                }
                transaction.insert(table, row).unwrap();
            }
        }
    }
    transaction.commit(ids).unwrap()
}

/// What of a database is kept in a file, to compare: everything but versions and ephemeral columns.
fn kept(snapshot: &Snapshot) -> Vec<(TableIdx, Uuid, Vec<Datum>)> {
    let mut all = Vec::new();
    for (idx, table) in snapshot.schema().tables_with_idx() {
        for row in snapshot.rows(idx) {
            let columns = table.named_columns().filter(|(_, column)| !column.is_ephemeral);
            all.push((idx, row.uuid(), columns.map(|(idx, _)| row.get(idx).clone()).collect()));
        }
    }
    all
}

/// What the clients know: the database after each acknowledged transaction since the last power cut, and how
/// far it is durable.
#[derive(Default)]
struct Known {
    states: Vec<Snapshot>,
    durable: usize,
    /// The database with a transaction whose fate nobody was told, or that could not be cut off.
    doubtful: Vec<Snapshot>,
}

fn live(
    disk: &Disk,
    opened: Opened,
    known: &mut Known,
    ids: &mut UuidGenerator,
    chance: &mut Chance,
    revert: bool,
) {
    let Opened { mut storage, mut database, .. } = opened;
    // Of transactions that shared the write in which the last process died, a power cut now may leave fewer
    // than were there.
    known.states.append(&mut known.doubtful);
    known.states.push(database.snapshot());
    // Number of a commit → place in the states; transactions that change nothing that is kept share a number.
    // What was found has the first.
    let mut state_of = vec![known.states.len() - 1; 2];
    let (mut jobs, mut results) = (Vec::new(), Vec::new());
    for now_ms in 0..30 + chance.below(60) {
        match chance.below(8) {
            0..=4 => {
                // Of several that share a write, all are in the file or none; a process that dies leaves some
                // of them.
                let batch: Vec<(Changes, Snapshot)> = (0..1 + chance.below(3))
                    .map(|_| (transact(&mut database, ids, chance), database.snapshot()))
                    .collect();
                let note = Note { date_ms: now_ms, comment: chance.one_in(3).then_some("why\nnot") };
                match storage.commit_all(batch.iter().map(|(changes, _)| (changes, note))) {
                    Ok(number) => {
                        // A power cut may leave the first of them.
                        known.states.extend(batch.iter().map(|(_, after)| after.clone()));
                        known.doubtful.clear();
                        state_of.resize(number as usize + 1, 0);
                        state_of[number as usize] = known.states.len() - 1;
                        if chance.one_in(3) {
                            storage.want_durable(number);
                        }
                    }
                    Err(_) => {
                        if disk.is_dead() || disk.truncate_failed() {
                            known.doubtful.extend(batch.iter().map(|(_, after)| after.clone()));
                        }
                        if revert {
                            batch.iter().rev().for_each(|(changes, _)| database.revert(changes));
                        }
                    }
                }
            }
            5 if chance.one_in(2) => storage.compact(),
            6 if !jobs.is_empty() => {
                let job: ovsdb::storage::Job = jobs.swap_remove(chance.below(jobs.len() as u64) as usize);
                results.push(job.run());
            }
            _ if !results.is_empty() => {
                storage.handle_done(now_ms, results.swap_remove(chance.below(results.len() as u64) as usize));
            }
            _ => {}
        }
        jobs.extend(storage.poll_job(now_ms, now_ms, &database));
        while let Some(event) = storage.poll_event() {
            if let Event::Durable(number) = event {
                known.durable = known.durable.max(state_of[number as usize]);
            }
        }
        if disk.is_dead() {
            break;
        }
    }
}

fn open(disk: &Disk, ids: &mut UuidGenerator) -> Result<Opened, OpenError> {
    let disk: Arc<dyn LogDirectory> = Arc::new(disk.clone());
    Storage::open(disk, ids, 0)
}

fn check(known: &Known, found: &Snapshot, was_power_cut: bool) -> Result<(), String> {
    let found = kept(found);
    let since = if was_power_cut { known.durable } else { known.states.len() - 1 };
    if known.states[since..].iter().chain(&known.doubtful).any(|state| kept(state) == found) {
        return Ok(());
    }
    let latest = kept(&known.states[known.states.len() - 1]);
    Err(format!(
        "none of the {} states since {since}: {latest:#?}\nfound: {found:#?}",
        known.states.len() - since
    ))
}

fn history(seed: u64, revert: bool) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let mut ids = UuidGenerator::from_seed(seed);
    let mut disk = Disk::new(seed);
    disk.set_file(&frame::record(Magic::Standalone, &encode_schema(&schema())));
    let mut known = Known::default();
    for life in 0..3 {
        let opened = open(&disk, &mut ids).map_err(|e| format!("life {life}: {e}"))?;
        let mut rate = |usual: u64| if chance.one_in(2) { 0 } else { 1 + chance.below(usual) };
        let faults = Faults {
            short_write: rate(10),
            write_error: rate(20),
            // A failed commit that cannot be cut off for certain is the journal's test; here it can.
            truncate_error: 0,
            sync_error: 0,
            write_back: rate(6),
            directory_error: rate(6),
            capacity: if rate(3) == 1 { 6_000 + chance.below(60_000) } else { 0 },
        };
        disk.set_faults(faults);
        disk.die_in(chance.one_in(2).then(|| 1 + chance.below(60)));
        live(&disk, opened, &mut known, &mut ids, &mut chance, revert);
        let was_power_cut = chance.one_in(2);
        disk =
            if was_power_cut { disk.after_power_cut(chance.next()) } else { disk.after_kill(chance.next()) };
        let again = open(&disk, &mut ids).map_err(|e| format!("life {life}: reopening: {e}"))?;
        check(&known, &again.database.snapshot(), was_power_cut)
            .map_err(|e| format!("life {life}, power cut: {was_power_cut}: {e}"))?;
        if was_power_cut {
            known = Known::default();
        }
    }
    Ok(())
}

#[test]
fn a_committed_transaction_survives_kill_9_and_a_torn_last_write() {
    let cases = testkit::cases("ovsdb::a_committed_transaction_survives_kill_9_and_a_torn_last_write", 1_500);
    for seed in 0..u64::from(cases) {
        if let Err(error) = history(seed, true) {
            panic!("seed {seed}: {error}");
        }
    }
}

#[test]
fn a_failed_transaction_that_is_not_taken_back_is_found() {
    assert!((0..1_000).any(|seed| history(seed, false).is_err()));
}

fn open_bytes(bytes: &[u8]) -> Result<Opened, OpenError> {
    let disk = Disk::new(0);
    disk.set_file(bytes);
    open(&disk, &mut UuidGenerator::from_seed(0))
}

fn log(bodies: &[&str]) -> Vec<u8> {
    let schema = encode_schema(&schema());
    let bodies = bodies.iter().map(|body| format!("{body}\n").into_bytes());
    std::iter::once(schema).chain(bodies).flat_map(|body| frame::record(Magic::Standalone, &body)).collect()
}

#[test]
fn both_forms_of_changes_are_read() {
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let insert = format!(
        r#"{{"Animal":{{"{uuid}":{{"tags":["set",["a","b"]],"notes":["map",[["k","v"]]],"legs":4}}}}}}"#
    );
    let change = r#"{"tags":["set",["b","c"]],"notes":["map",[["k","v"],["l","w"]]],"legs":2}"#;
    for (is_diff, tags) in [("", vec!["b", "c"]), (r#","_is_diff":true"#, vec!["a", "c"])] {
        let change = format!(r#"{{"_date":1795290969782,"Animal":{{"{uuid}":{change}}}{is_diff}}}"#);
        let database = open_bytes(&log(&[&insert, &change])).unwrap().database;
        let table = database.schema().find("Animal").unwrap();
        let column = |name| database.schema().table(table).find(name).unwrap();
        let row = database.row(table, Uuid::parse(uuid).unwrap()).unwrap();
        assert_eq!(*row.get(column("tags")), Datum::set(tags), "{is_diff}");
        // A difference of a map takes away the pair that is there already.
        let notes: &[(&str, &str)] =
            if is_diff.is_empty() { &[("k", "v"), ("l", "w")] } else { &[("l", "w")] };
        assert_eq!(*row.get(column("notes")), Datum::map(notes.iter().copied()), "{is_diff}");
        assert_eq!(row.get(column("legs")).as_integer(), Some(2), "a column of one element is told as it is");
    }
}

#[test]
fn whole_values_are_written_where_they_are_asked_for() {
    for whole in [false, true] {
        let disk = Disk::new(0);
        disk.set_file(&log(&[r#"{"Animal":{"550e8400-e29b-41d4-a716-446655440000":{"tags":"a"}}}"#]));
        let mut ids = UuidGenerator::from_seed(0);
        let Opened { mut storage, mut database, .. } = open(&disk, &mut ids).unwrap();
        if whole {
            storage.write_whole_values();
        }
        let tags = database.schema().table(TableIdx(0)).find("tags").unwrap();
        let mut row = database.rows(TableIdx(0)).next().unwrap().clone();
        row.set(tags, Datum::set(["a", "b"]));
        let mut transaction = database.begin();
        transaction.replace(TableIdx(0), row);
        let changes = transaction.commit(&mut ids).unwrap();
        storage.commit(&changes, Note::default()).unwrap();
        let text = String::from_utf8(disk.content()).unwrap();
        assert_eq!(text.contains(r#""_is_diff":true"#), !whole, "{text}");
        assert_eq!(text.contains(r#"["set",["a","b"]]"#), whole, "{text}");
        let again = open(&disk.after_kill(1), &mut ids).unwrap().database;
        assert_eq!(kept(&again.snapshot()), kept(&database.snapshot()));
    }
}

#[test]
fn a_comment_that_is_no_text_does_not_keep_the_rest_from_being_read() {
    // As the stock client takes it from a command line, and the stock server writes it.
    let body = b"{\"Animal\":{\"550e8400-e29b-41d4-a716-446655440000\":{\"tags\":\"\xc3\xa4\"}},\"_comment\":\"br\xff\"}\n";
    let bytes = [log(&[]), frame::record(Magic::Standalone, body)].concat();
    let database = open_bytes(&bytes).unwrap().database;
    let tags = database.schema().table(TableIdx(0)).find("tags").unwrap();
    let row = database.rows(TableIdx(0)).next().unwrap();
    assert_eq!(*row.get(tags), Datum::set(["ä"]));
    let summary = ovsdb::log::transaction::summary(body).unwrap();
    assert_eq!(summary.comment.as_deref(), Some("br\u{fffd}"));
}

#[test]
fn a_torn_end_is_cut_off_and_told_and_a_damaged_middle_is_refused_with_its_offset() {
    let animal = |n: u64| format!(r#"{{"Animal":{{"550e8400-e29b-41d4-a716-44665544000{n}":{{}}}}}}"#);
    let whole = log(&[&animal(1), &animal(2), &animal(3)]);
    let third = whole.len() - log(&[]).len();
    let third = whole.len() - third / 3;

    let disk = Disk::new(0);
    disk.set_file(&whole[..whole.len() - 5]);
    let opened = open(&disk, &mut UuidGenerator::from_seed(0)).unwrap();
    let cut = opened.cut.unwrap();
    assert_eq!((cut.damage.offset, cut.bytes), (third as u64, (whole.len() - 5 - third) as u64));
    assert_eq!(disk.content(), whole[..third]);
    assert_eq!(opened.database.row_count(TableIdx(0)), 2);

    let mut damaged = whole.clone();
    let second = whole.len() - 2 * (whole.len() - third);
    damaged[second + 70] ^= 1;
    let disk = Disk::new(0);
    disk.set_file(&damaged);
    let error = open(&disk, &mut UuidGenerator::from_seed(0)).err().unwrap();
    assert!(
        matches!(&error, OpenError::Corrupt { damage, next } if (damage.offset, *next) == (second as u64, third as u64)),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("cut a copy of the file off at offset {second}")), "{error}");
    assert_eq!(disk.content(), damaged, "what is refused is left as it is");
}

#[test]
fn records_that_make_no_sense_are_refused_with_their_place() {
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    for (record, expected) in [
        ("[]".to_owned(), "an object"),
        ("{\"Animal\":".to_owned(), "EOF"),
        (r#"{"Plant":{}}"#.to_owned(), "No table named Plant."),
        (format!(r#"{{"Animal":{{"{uuid}":{{"wings":2}}}}}}"#), "No column \"wings\" in table Animal."),
        (format!(r#"{{"Animal":{{"{uuid}":{{"_version":["uuid","{uuid}"]}}}}}}"#), "No column \"_version\""),
        (format!(r#"{{"Animal":{{"{uuid}":{{"legs":"four"}}}}}}"#), "expected integer"),
        (format!(r#"{{"Animal":{{"{uuid}":{{"legs":["set",[1,2]]}}}}}}"#), "does not take 2 members"),
        (format!(r#"{{"Animal":{{"{uuid}":{{"tags":["set",["a","a"]]}}}}}}"#), "something twice"),
        (format!(r#"{{"Animal":{{"{uuid}":{{"tags":["map",[]]}}}}}}"#), "expected a set"),
        (format!(r#"{{"Animal":{{"{uuid}":{{"notes":["set",[]]}}}}}}"#), "expected a set, a map or a UUID"),
        (format!(r#"{{"Animal":{{"{uuid}":null}}}}"#), "does not exist"),
        (r#"{"Animal":{"550e8400":{}}}"#.to_owned(), "not a valid UUID"),
    ] {
        let bytes = log(&[&record]);
        let error = open_bytes(&bytes).err().expect(&record);
        let first = log(&[]).len();
        assert!(
            matches!(error, OpenError::Record { index: 1, offset, .. } if offset == first as u64),
            "{error}"
        );
        assert!(error.to_string().contains(expected), "{record}: {error}");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_by_what_it_is() {
    let text = |bytes: &[u8]| open_bytes(bytes).err().unwrap().to_string();
    assert_eq!(text(b""), "cannot identify file type");
    assert_eq!(text(b"garbage\n"), "unexpected file format");
    let cluster = frame::record(Magic::Clustered, b"{}\n");
    assert!(text(&cluster).starts_with("cannot apply this operation to clustered database file"));
}

#[test]
fn a_conversion_replaces_the_file_and_later_commits_are_of_the_new_schema() {
    let disk = Disk::new(0);
    disk.set_file(&log(&[r#"{"Animal":{"550e8400-e29b-41d4-a716-446655440000":{"legs":4}}}"#]));
    let mut ids = UuidGenerator::from_seed(0);
    let Opened { mut storage, database, .. } = open(&disk, &mut ids).unwrap();
    // With a compaction in the middle, whose result must come to nothing.
    storage.compact();
    let other =
        r#"{"name":"Zoo","version":"2.0.0","tables":{"Animal":{"columns":{"eyes":{"type":"integer"}}}}}"#;
    let other = Arc::new(Schema::from_json(&serde_json::from_str(other).unwrap()).unwrap());
    let mut converted = database.convert(other.clone(), &mut ids).unwrap();
    let job = storage.poll_job(0, 0, &converted).unwrap();
    storage.convert(0, 7, &converted).unwrap();
    storage.handle_done(0, job.run());
    assert!(storage.poll_job(0, 0, &converted).is_some(), "the old file is to be freed");

    let table = converted.schema().find("Animal").unwrap();
    let eyes = converted.schema().table(table).find("eyes").unwrap();
    let mut transaction = converted.begin();
    let mut row = transaction.new_row(table, ids.next_uuid());
    row.set(eyes, Datum::scalar(2));
    transaction.insert(table, row).unwrap();
    let changes = transaction.commit(&mut ids).unwrap();
    storage.commit(&changes, Note::default()).unwrap();

    let again = open(&disk.after_kill(1), &mut ids).unwrap().database;
    assert_eq!(again.schema(), &other);
    assert_eq!(kept(&again.snapshot()), kept(&converted.snapshot()));
    assert_eq!(again.row_count(table), 2);
}

#[test]
fn references_count_in_a_file_that_was_read_as_in_the_database_that_wrote_it() {
    let schema = r#"{"name":"Tree","version":"1.0.0","tables":{
        "Root":{"columns":{"leaves":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}}},"isRoot":true},
        "Leaf":{"columns":{"n":{"type":"integer"}}}}}"#;
    let leaf = |n: u64| format!("550e8400-e29b-41d4-a716-44665544000{n}");
    let root = "550e8400-e29b-41d4-a716-4466554400ff";
    let uuid = |text: &str| json!(["uuid", text]);
    let leaves = |of: &[u64]| json!(["set", of.iter().map(|&n| uuid(&leaf(n))).collect::<Vec<_>>()]);
    let written = json!({
        "Root": {root: {"leaves": leaves(&[1, 2])}},
        "Leaf": {leaf(1): {"n": 1}, leaf(2): {"n": 2}},
    });
    // And as a difference: the first leaf goes from the root and with it from the file, a third comes.
    let changed = json!({
        "Root": {root: {"leaves": leaves(&[1, 3])}}, "Leaf": {leaf(1): null, leaf(3): {"n": 3}}, "_is_diff": true,
    });
    let schema = Schema::from_json(&serde_json::from_str(schema).unwrap()).unwrap();
    let bodies =
        [encode_schema(&schema), format!("{written}\n").into_bytes(), format!("{changed}\n").into_bytes()];
    let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame::record(Magic::Standalone, body)).collect();
    let mut database = open_bytes(&bytes).unwrap().database;
    let table = database.schema().find("Leaf").unwrap();
    let mut ids = UuidGenerator::from_seed(0);
    let mut run = |operation: serde_json::Value| {
        let mut context = ovsdb::Context {
            ids: &mut ids,
            has_lock: &|_| false,
            elapsed_ms: 0,
            read_only: false,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        match database.execute(&[operation], &mut context) {
            ovsdb::Execution::Done(outcome) => {
                (outcome.reply.to_json().to_string(), database.row_count(table))
            }
            ovsdb::Execution::Pending { .. } => panic!("nothing waits"),
        }
    };
    let (reply, count) = run(json!({"op": "update", "table": "Leaf", "where": [], "row": {"n": 7}}));
    assert_eq!((&reply[..], count), ("[{\"count\":2}]", 2), "what is referred to stays");
    let (reply, count) =
        run(json!({"op": "delete", "table": "Leaf", "where": [["_uuid", "==", uuid(&leaf(2))]]}));
    assert!(reply.contains("referential integrity violation") && count == 2, "{reply}");
    let (reply, count) =
        run(json!({"op": "update", "table": "Root", "where": [], "row": {"leaves": uuid(&leaf(3))}}));
    assert_eq!((&reply[..], count), ("[{\"count\":1}]", 1), "what is not any more, goes");
}
