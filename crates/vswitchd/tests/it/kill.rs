//! A real process that writes a real file is killed with `kill -9`, over and over, at any moment: what it had
//! acknowledged is there, whole transactions only, and the file goes on to be used.

use host::database_file::{DatabaseFile, open_to_read};
use ovsdb::log::transaction::{Note, encode_schema};
use ovsdb::storage::{self, Done, Storage};
use ovsdb::{Database, Datum, Schema, UuidGenerator};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const TEST: &str = "kill::what_was_acknowledged_before_kill_9_is_there_after_it";
/// Names the file to the process that writes it.
const FILE: &str = "CROSSPOINT_TEST_KILLED_WRITER_FILE";
/// So many rows are there at any time.
const ROWS: i64 = 20;

fn schema() -> Schema {
    let column = r#"{"columns":{"n":{"type":"integer"},"pad":{"type":"string"}}}"#;
    let text = format!(r#"{{"name":"Count","version":"1.0.0","tables":{{"Number":{column}}}}}"#);
    Schema::from_json(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// The numbers that are there, in order.
fn numbers(database: &Database) -> Vec<i64> {
    let table = database.schema().find("Number").unwrap();
    let n = database.schema().table(table).find("n").unwrap();
    let mut numbers: Vec<i64> = database.rows(table).map(|row| row.get(n).as_integer().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Counts on from where the file is until it is killed: each transaction adds the next number and takes the
/// oldest away, and is acknowledged by a line. Some are durable, and compactions come and go.
fn write_for_ever(path: &Path) -> ! {
    let file = DatabaseFile::lock(path).unwrap();
    if !path.exists() {
        file.create(&[encode_schema(&schema())]).unwrap();
    }
    let mut ids = UuidGenerator::from_seed(std::process::id().into());
    let opened = Storage::open(file, &mut ids, 0).unwrap();
    let (mut storage, mut database) = (opened.storage, opened.database);
    let table = database.schema().find("Number").unwrap();
    let n = database.schema().table(table).find("n").unwrap();
    let pad = database.schema().table(table).find("pad").unwrap();
    let (done, results) = mpsc::channel::<Done>();
    let mut next = numbers(&database).last().map_or(1, |last| last + 1);
    loop {
        let is_oldest = |row: &&ovsdb::Row| row.get(n).as_integer() == Some(next - ROWS);
        let oldest = database.rows(table).find(is_oldest).map(|row| row.uuid());
        let mut transaction = database.begin();
        let mut row = transaction.new_row(table, ids.next_uuid());
        row.set(n, Datum::scalar(next));
        row.set(pad, Datum::scalar("x".repeat(next as usize * 37 % 3000).as_str()));
        transaction.insert(table, row).unwrap();
        if let Some(oldest) = oldest {
            transaction.delete(table, oldest);
        }
        let changes = transaction.commit(&mut ids).unwrap();
        let number = storage.commit(&changes, Note { date_ms: 1, comment: None }).unwrap();
        // Not `println!`, which the test harness would capture.
        #[allow(clippy::explicit_write)]
        writeln!(std::io::stdout(), "ack {next}").unwrap();
        if next % 7 == 0 {
            storage.want_durable(number);
        }
        if next % 50 == 0 {
            storage.compact();
        }
        next += 1;
        while let Some(job) = storage.poll_job(0, 1, &database) {
            let done = done.clone();
            std::thread::spawn(move || done.send(job.run()));
        }
        for result in results.try_iter() {
            storage.handle_done(0, result);
        }
        while storage.poll_event().is_some() {}
    }
}

/// Runs the writer and kills it after so long. The last number that it acknowledged.
fn kill_a_writer(path: &Path, after: Duration) -> Option<i64> {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["--exact", TEST, "--nocapture"]).env(FILE, path).stdout(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap());
    let mut line = String::new();
    let mut last = None;
    let mut killed = false;
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // A last line that was cut short is none.
        if let Some(number) = line.strip_suffix('\n').and_then(|line| line.rsplit_once("ack ")) {
            last = Some(number.1.parse().unwrap());
        }
        // It has to have started; then it dies at any moment.
        if last.is_some() && !killed {
            std::thread::sleep(after);
            writer.kill().unwrap();
            killed = true;
        }
    }
    assert!(!writer.wait().unwrap().success());
    last
}

#[test]
fn what_was_acknowledged_before_kill_9_is_there_after_it() {
    if let Some(path) = std::env::var_os(FILE) {
        write_for_ever(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("count.db");
    let rounds = testkit::cases("vswitchd::what_was_acknowledged_before_kill_9_is_there_after_it", 50);
    let mut chance = UuidGenerator::from_seed(std::process::id().into());
    for round in 0..rounds {
        let after = Duration::from_micros(chance.next_u64() % 40_000);
        let last = kill_a_writer(&path, after).expect("it started");
        let file = open_to_read(&path).unwrap();
        let contents =
            storage::read(&file, &mut chance).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let found = numbers(&contents.database);
        let newest = *found.last().unwrap();
        // At most the one that was written and not acknowledged yet is there besides.
        assert!(newest == last || newest == last + 1, "round {round}: {last} acknowledged, {newest} there");
        let oldest = (newest - ROWS + 1).max(1);
        assert_eq!(found, (oldest..=newest).collect::<Vec<_>>(), "round {round}: whole transactions only");
    }
}
