//! Random histories of the journal over the faulty disk, against a model that is a list of numbers.
//!
//! A commit is a number; a snapshot is the list of them. After each life the next process must find every
//! acknowledged commit in order, and at most the one that was being written besides; after a power cut, some
//! beginning of that which holds every commit that was acknowledged as durable.

use crate::durability::chance::Chance;
use crate::durability::disk::{Disk, Faults};
use ovsdb::log::{Found, LogDirectory, ReadError, Reader, Writer};
use ovsdb::storage::journal::{Base, Done, Event, Job, Journal, Snapshot};
use serde_json::{Value, json};
use std::sync::Arc;

/// What is made wrong on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutation {
    None,
    /// Acknowledges a commit whose write failed.
    WriteErrorIgnored,
    /// Calls a commit durable when it is written.
    DurableWithoutSync,
    /// Believes that a sync that failed succeeded.
    SyncErrorIgnored,
    /// Leaves out of a snapshot what was committed last.
    SnapshotTooOld,
    /// Does not sync the cut behind a failed write.
    CutNotSynced,
}

const EVERY_MUTATION: [Mutation; 5] = [
    Mutation::WriteErrorIgnored,
    Mutation::DurableWithoutSync,
    Mutation::SyncErrorIgnored,
    Mutation::SnapshotTooOld,
    Mutation::CutNotSynced,
];

/// What the clients of the journal know.
#[derive(Default)]
struct Known {
    /// Acknowledged commits, in order.
    committed: Vec<u64>,
    /// So many of them are known to be durable.
    durable: usize,
    /// Any one of these may be there: the one whose outcome nobody was told, or one that failed and could not
    /// be cut off.
    doubtful: Vec<u64>,
    /// Ones that failed and could not be cut off for certain: until the file is replaced a power cut may
    /// bring them back.
    uncut: Vec<u64>,
    /// The first so many of those are not in the file that replaced theirs, whose directory is not synced
    /// yet.
    replaced: usize,
}

fn body(number: u64) -> Vec<u8> {
    // Lengths differ, so that torn ones do.
    format!("{}\n", json!({"n": number, "pad": "x".repeat((number * 7 % 200) as usize)})).into_bytes()
}

fn snapshot(numbers: &[u64]) -> Snapshot {
    let body = format!("{}\n", json!({"all": numbers})).into_bytes();
    Box::new(move |write| {
        write(b"{\"schema\":true}\n")?;
        write(&body)
    })
}

/// Reads the file as a new process does; the numbers in it, and the writer behind them.
fn open(disk: &Disk) -> Result<(Vec<u64>, Writer), String> {
    let mut numbers = Vec::new();
    read(disk, &mut numbers).map(|writer| (numbers, writer))
}

/// Leaves in `numbers` what is before the damage where there is some.
fn read(disk: &Disk, numbers: &mut Vec<u64>) -> Result<Writer, String> {
    let file = LogDirectory::open(disk).map_err(|e| format!("open: {e}"))?;
    let mut torn = false;
    let size = {
        let reading = file.clone();
        let mut reader = Reader::new(&*reading).map_err(|e| e.to_string())?;
        loop {
            match reader.next_record() {
                Ok(None) => break,
                Ok(Some(record)) => {
                    let value: Value = serde_json::from_slice(record.body).map_err(|e| e.to_string())?;
                    if let Some(all) = value["all"].as_array() {
                        *numbers = all.iter().filter_map(Value::as_u64).collect();
                    } else if let Some(number) = value["n"].as_u64() {
                        numbers.push(number);
                    }
                }
                Err(ReadError::Io { error, .. }) => return Err(error.to_string()),
                Err(ReadError::Damaged(damage)) => {
                    match reader.record_behind().map_err(|e| e.to_string())? {
                        Found::Nothing => torn = true,
                        found => return Err(format!("{damage}, and behind it {found:?}")),
                    }
                    break;
                }
            }
        }
        reader.offset()
    };
    Ok(Writer::new(file, size, torn))
}

/// One process: opens the file, commits, waits for durability, compacts, and dies. What its clients know at
/// the end.
fn live(
    disk: &Disk,
    found: Vec<u64>,
    uncut: Vec<u64>,
    writer: Writer,
    chance: &mut Chance,
    mutation: Mutation,
) -> Known {
    let mut journal = Journal::new(Arc::new(disk.clone()), writer, Base::default(), 0);
    // What was found is not known to be durable until a sync says so: nobody of this life was told.
    let mut known = Known { committed: found.clone(), uncut, ..Known::default() };
    let before = found.len();
    let mut next = found.iter().max().map_or(0, |n| n + 1);
    let mut out: Vec<Job> = Vec::new();
    let mut results: Vec<Done> = Vec::new();
    let steps = 20 + chance.below(120);
    for now_ms in 0..steps {
        match chance.below(10) {
            0..=4 => {
                let number = next;
                next += 1;
                disk.set_syncs_lie(mutation == Mutation::CutNotSynced);
                let appended = journal.append(&body(number));
                disk.set_syncs_lie(false);
                match appended {
                    Ok(_) => known.committed.push(number),
                    Err(_) if mutation == Mutation::WriteErrorIgnored => known.committed.push(number),
                    Err(_) => {
                        if disk.is_dead() || disk.cut_failed() {
                            known.uncut.push(number);
                        }
                        // A truncation that failed too leaves perhaps the whole record behind.
                        if disk.is_dead() || disk.truncate_failed() {
                            known.doubtful.push(number);
                        } else {
                            known.doubtful.clear();
                        }
                    }
                }
                if known.committed.last() == Some(&number) {
                    known.doubtful.clear();
                    if mutation == Mutation::DurableWithoutSync && chance.one_in(8) {
                        known.durable = known.committed.len();
                    }
                }
                if chance.one_in(3) {
                    journal.want_durable(journal.committed());
                }
            }
            5 if chance.one_in(3) => journal.compact(),
            6 | 7 if !out.is_empty() => {
                let job = out.swap_remove(chance.below(out.len() as u64) as usize);
                let was_sync = format!("{job:?}") == "Sync";
                let failed_before = disk.is_dead();
                let done = job.run();
                if !failed_before && was_sync && mutation == Mutation::SyncErrorIgnored && !disk.is_dead() {
                    known.durable = known.committed.len();
                }
                results.push(done);
            }
            _ if !results.is_empty() => {
                let at = chance.below(results.len() as u64) as usize;
                journal.handle_done(now_ms, results.swap_remove(at));
            }
            _ => {}
        }
        let all = known.committed.clone();
        let seen = match mutation {
            Mutation::SnapshotTooOld => &all[..all.len().saturating_sub(1)],
            _ => &all[..],
        };
        if let Some(job) = journal.poll_job(now_ms, || snapshot(seen)) {
            out.push(job);
        }
        while let Some(event) = journal.poll_event() {
            match event {
                Event::Durable(number) => {
                    known.uncut.drain(..std::mem::take(&mut known.replaced));
                    if mutation != Mutation::WriteErrorIgnored {
                        known.durable = known.durable.max(before + number as usize - 1);
                    }
                }
                Event::Compacted { .. } => known.replaced = known.uncut.len(),
                Event::NotDurable { .. } | Event::NotCompacted { .. } => {}
            }
        }
        if disk.is_dead() {
            break;
        }
    }
    assert!(journal.committed() as usize - 1 + before >= known.durable || mutation != Mutation::None);
    known
}

/// What the next process must find, against what it found.
fn check(known: &Known, found: &[u64], was_power_cut: bool) -> Result<(), String> {
    let told = || {
        format!(
            "acknowledged {:?}, {} durable, doubtful {:?}, found {found:?}",
            known.committed, known.durable, known.doubtful
        )
    };
    let common = known.committed.iter().zip(found).take_while(|(a, b)| a == b).count();
    let least = if was_power_cut { known.durable } else { known.committed.len() };
    if common < least {
        return Err(format!("lost: {}", told()));
    }
    match &found[common..] {
        [] => Ok(()),
        [extra] if common == known.committed.len() && known.doubtful.contains(extra) => Ok(()),
        [extra] if was_power_cut && known.uncut.contains(extra) => Ok(()),
        _ => Err(format!("made up: {}", told())),
    }
}

/// Several lives on one disk.
fn history(seed: u64, mutation: Mutation) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let disk = Disk::new(seed);
    let mut start = Vec::new();
    snapshot(&[])(&mut |body| {
        start.extend(ovsdb::log::frame::record(ovsdb::log::Magic::Standalone, body));
        Ok(())
    })
    .unwrap();
    disk.set_file(&start);
    let mut disk = disk;
    let (mut found, mut writer) = open(&disk)?;
    let mut uncut = Vec::new();
    for life in 0..4 {
        disk.set_faults(faults(&mut chance));
        disk.die_in(chance.one_in(2).then(|| 1 + chance.below(60)));
        let known = live(&disk, found, uncut, writer, &mut chance, mutation);
        let was_power_cut = chance.one_in(2);
        let forgot = disk.forgot();
        disk =
            if was_power_cut { disk.after_power_cut(chance.next()) } else { disk.after_kill(chance.next()) };
        found = Vec::new();
        writer = match read(&disk, &mut found) {
            Ok(writer) => writer,
            // A page that the disk lost, with later ones that it kept behind it: a corrupt middle, which is
            // refused. What was acknowledged as durable is before it nevertheless.
            Err(_) if was_power_cut && forgot => return check(&known, &found, true),
            Err(error) => return Err(format!("life {life}: {error}")),
        };
        check(&known, &found, was_power_cut)
            .map_err(|e| format!("life {life}, power cut: {was_power_cut}: {e}"))?;
        uncut = if was_power_cut { Vec::new() } else { known.uncut };
    }
    Ok(())
}

fn faults(chance: &mut Chance) -> Faults {
    let mut rate = |usual: u64| if chance.one_in(2) { 0 } else { 1 + chance.below(usual) };
    Faults {
        short_write: rate(10),
        write_error: rate(20),
        truncate_error: rate(10),
        sync_error: rate(6),
        write_back: rate(6),
        directory_error: rate(6),
        capacity: if rate(3) == 1 { 4_000 + chance.below(30_000) } else { 0 },
    }
}

#[test]
fn whatever_the_disk_does_what_was_acknowledged_is_there_and_nothing_else() {
    let cases = testkit::cases(
        "ovsdb::whatever_the_disk_does_what_was_acknowledged_is_there_and_nothing_else",
        6_000,
    );
    for seed in 0..u64::from(cases) {
        if let Err(error) = history(seed, Mutation::None) {
            panic!("seed {seed}: {error}");
        }
    }
}

#[test]
fn each_mutation_of_the_journal_is_found() {
    for mutation in EVERY_MUTATION {
        let found = (0..3_000).find(|&seed| history(seed, mutation).is_err());
        assert!(found.is_some(), "{mutation:?} went unnoticed");
    }
}

/// Runs jobs until there are none.
fn drain(journal: &mut Journal, numbers: &[u64]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(job) = journal.poll_job(0, || snapshot(numbers)) {
        journal.handle_done(0, job.run());
        events.extend(std::iter::from_fn(|| journal.poll_event()));
    }
    events
}

fn journal_of(disk: &Disk) -> Journal {
    let (_, writer) = open(disk).unwrap();
    Journal::new(Arc::new(disk.clone()), writer, Base::default(), 0)
}

#[test]
fn many_commits_share_one_sync() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    for n in 1..=100 {
        let number = journal.append(&body(n)).unwrap();
        journal.want_durable(number);
    }
    let numbers: Vec<u64> = (1..=100).collect();
    let events = drain(&mut journal, &numbers);
    // Another process may have written the file, so it is written anew for the first who asks.
    assert!(matches!(events[..], [Event::Compacted { .. }, Event::Durable(101)]), "{events:?}");
    for n in 101..=200 {
        let number = journal.append(&body(n)).unwrap();
        journal.want_durable(number);
    }
    let events = drain(&mut journal, &[]);
    assert!(matches!(events[..], [Event::Durable(201)]), "{events:?}");
}

#[test]
fn a_full_disk_fails_the_commit_and_the_next_one_succeeds_when_there_is_room() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(1)).unwrap();
    disk.set_faults(Faults { capacity: disk.content().len() as u64 + 10, ..Faults::default() });
    let before = disk.content();
    assert_eq!(journal.append(&body(2)).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(disk.content(), before);
    disk.set_faults(Faults::default());
    journal.append(&body(3)).unwrap();
    assert_eq!(open(&disk).unwrap().0, [1, 3]);
}

/// What a write did that reported an error was put on the disk by a sync that was under way, in a file of one
/// commit: whether a later power cut can bring it back. `faults` are in force from that write on, until it is
/// reported.
fn a_failed_commit_comes_back(seed: u64, faults: Faults) -> bool {
    let disk = Disk::new(seed);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(1)).unwrap();
    journal.want_durable(2);
    drain(&mut journal, &[1]);
    journal.append(&body(2)).unwrap();
    journal.want_durable(3);
    let sync = journal.poll_job(0, || unreachable!("a sync is enough")).unwrap();
    disk.set_faults(Faults { write_error: 1, ..faults });
    journal.append(&body(3)).unwrap_err();
    disk.set_faults(Faults::default());
    journal.handle_done(0, sync.run());
    drain(&mut journal, &[1, 2]);
    assert_eq!(journal.durable(), 3);
    assert_eq!(open(&disk).unwrap().0, [1, 2], "seed {seed}");
    (0..20).any(|seed| open(&disk.after_power_cut(seed)).unwrap().0 != [1, 2])
}

#[test]
fn a_failed_commit_does_not_come_back_after_a_power_cut() {
    // How much is written before the error depends on the seed: everything in one of four.
    for seed in 0..100 {
        for faults in [
            Faults { write_back: 1, ..Faults::default() },
            Faults { truncate_error: 1, ..Faults::default() },
            Faults { write_back: 1, sync_error: 1, ..Faults::default() },
        ] {
            assert!(!a_failed_commit_comes_back(seed, faults), "seed {seed}: {faults:?}");
        }
    }
}

#[test]
fn where_failed_commits_may_come_back_the_file_is_written_anew_until_that_succeeds_and_not_all_the_time() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(1)).unwrap();
    disk.set_faults(Faults { write_error: 1, truncate_error: 1, directory_error: 1, ..Faults::default() });
    journal.append(&body(2)).unwrap_err();
    assert!(matches!(drain(&mut journal, &[1])[..], [Event::NotCompacted { .. }]));
    disk.set_faults(Faults::default());
    assert!(journal.poll_job(59_999, || snapshot(&[1])).is_none(), "nobody waits, so the next try can");
    let write = journal.poll_job(60_000, || snapshot(&[1])).unwrap();
    journal.handle_done(60_000, write.run());
    let events = drain(&mut journal, &[1]);
    assert!(matches!(events[..], [Event::Compacted { .. }, Event::Durable(2)]), "{events:?}");
    assert!(journal.poll_job(1_000_000, || snapshot(&[1])).is_none());
}

/// A file that nothing can be written to any more, on a disk where another can be made: one that was mounted
/// again.
#[test]
fn who_commits_to_a_file_that_is_lost_need_not_wait_for_long_until_another_is_written() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(1)).unwrap();
    let lost = Faults { write_error: 1, truncate_error: 1, ..Faults::default() };
    disk.set_faults(Faults { directory_error: 1, ..lost });
    journal.append(&body(2)).unwrap_err();
    assert!(matches!(drain(&mut journal, &[1])[..], [Event::NotCompacted { .. }]));
    disk.set_faults(lost);
    journal.append(&body(3)).unwrap_err();
    disk.set_faults(Faults::default());
    assert!(journal.poll_job(999, || snapshot(&[1])).is_none(), "at most every second");
    let write = journal.poll_job(1_000, || snapshot(&[1])).expect("a commit has failed again");
    journal.handle_done(1_000, write.run());
    let events = drain(&mut journal, &[1]);
    assert!(matches!(events[..], [Event::Compacted { .. }, Event::Durable(2)]), "{events:?}");
    journal.append(&body(4)).unwrap();
    assert_eq!(open(&disk).unwrap().0, [1, 4]);
}

#[test]
fn after_a_failed_sync_the_file_is_written_anew_and_only_then_are_commits_durable() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(0)).unwrap();
    journal.want_durable(2);
    drain(&mut journal, &[0]);
    assert_eq!(journal.durable(), 2);
    journal.append(&body(1)).unwrap();
    journal.want_durable(3);
    disk.set_faults(Faults { sync_error: 1, ..Faults::default() });
    let sync = journal.poll_job(0, || unreachable!("a sync comes first")).unwrap();
    journal.handle_done(0, sync.run());
    assert!(journal.poll_event().is_none());
    disk.set_faults(Faults::default());
    let events = drain(&mut journal, &[0, 1]);
    assert!(matches!(events[..], [Event::Compacted { .. }, Event::Durable(3)]), "{events:?}");
    assert_eq!(open(&disk.after_power_cut(2)).unwrap().0, [0, 1]);
}

#[test]
fn a_sync_that_fails_for_good_is_reported_and_tried_again_for_the_next_who_asks() {
    let disk = Disk::new(1);
    disk.set_file(b"");
    let mut journal = journal_of(&disk);
    journal.append(&body(1)).unwrap();
    journal.want_durable(2);
    disk.set_faults(Faults { sync_error: 1, ..Faults::default() });
    let events = drain(&mut journal, &[1]);
    assert!(
        matches!(events[..], [Event::NotDurable { upto: 2, .. }, Event::NotCompacted { .. }]),
        "{events:?}"
    );
    disk.set_faults(Faults::default());
    assert!(drain(&mut journal, &[1]).is_empty());
    journal.want_durable(2);
    let events = drain(&mut journal, &[1]);
    assert!(matches!(events[..], [Event::Compacted { .. }, Event::Durable(2)]), "{events:?}");
}

#[test]
fn a_file_is_compacted_by_itself_as_ovsdb_server_does() {
    let minute = 60_000;
    let compacts = |commits: u64, bytes_each: usize, now_ms: u64| {
        let disk = Disk::new(1);
        disk.set_file(b"");
        let mut journal = journal_of(&disk);
        let body = format!("{}\n", json!({"n": 1, "pad": "x".repeat(bytes_each)})).into_bytes();
        for _ in 0..commits {
            journal.append(&body).unwrap();
        }
        journal.poll_job(now_ms, || snapshot(&[])).is_some()
    };
    assert!(compacts(110, 100_000, 11 * minute));
    assert!(!compacts(110, 100_000, 9 * minute), "not within ten minutes");
    assert!(!compacts(90, 120_000, 11 * minute), "not for fewer than a hundred commits");
    assert!(!compacts(110, 50_000, 11 * minute), "not below 10 MB");
    assert!(compacts(110, 10, 25 * 60 * minute), "once a day whatever the size");
    assert!(compacts(300, 1_000_000, 1), "a file that grows without bound does not wait");
}
