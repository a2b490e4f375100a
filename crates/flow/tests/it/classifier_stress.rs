//! One writer replaces whole sets of rules, again and again, under readers: each lookup sees one set
//! entirely, finds rules that are alive, and gets a mask that holds at its version.

use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::{Classifier, FieldId, Key, Mask, Match};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const READERS: usize = 3;
/// Rules of each set that readers check.
const HOSTS: u64 = 12;
const ALIVE: u64 = 0x616c_6976_6521;

struct Data {
    host: u64,
    /// The version that brought it.
    set: u64,
    alive: Box<AtomicU64>,
}

impl Drop for Data {
    fn drop(&mut self) {
        self.alive.store(0, Ordering::Relaxed);
    }
}

struct World {
    classifier: Classifier<Data>,
    version: AtomicU64,
    stop: AtomicBool,
    /// What a reader found wrong.
    wrong: Mutex<Option<String>>,
}

/// Hosts alternate between masks from set to set, so that subtables come and go.
fn host_match(host: u64, set: u64) -> Match {
    let address = u128::from(0x0a00_0000 + host * 0x0010_1001);
    let len = [32, 32, 28, 24, 21][(set / 3 % 5) as usize];
    let mask = u128::from(u32::MAX << (32 - len));
    let m = Match::any().with(FieldId::EthType, 0x800).with_masked(FieldId::NwDst, address, mask);
    if set % 7 < 3 { m.with(FieldId::InPort, 1 + u128::from(host % 2)) } else { m }
}

fn host_key(host: u64) -> Key {
    let mut key = Key::default();
    key.set(FieldId::InPort, 1 + u128::from(host % 2));
    key.set(FieldId::EthType, 0x800);
    key.set(FieldId::NwDst, u128::from(0x0a00_0000 + host * 0x0010_1001));
    key.set(FieldId::NwSrc, u128::from(host));
    key.set(FieldId::TpDst, 80);
    key
}

/// Whose lookups fail the test.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// Waits until every reader was quiescent since a version was published before it retires for that
    /// version.
    Patient,
    /// Retires for the newest version at once.
    Hasty,
}

fn write(world: &World, writer: Writer, reader: &mut Reader, until: Instant) -> u64 {
    let mut waiting: Option<(u64, u64)> = None;
    let mut set = world.version.load(Ordering::Relaxed);
    while Instant::now() < until && world.wrong.lock().unwrap().is_none() {
        set += 1;
        let table = &world.classifier;
        for host in 0..HOSTS {
            // In the version to come: one rule out, another in, between rules that match nobody's packets.
            let old = host_match(host, set - 1);
            let old = table.find_exact(&old, 10, Version(set - 1), reader).expect("the set before is there");
            assert!(table.remove(old, Version(set)));
            let data = Data { host, set, alive: Box::new(AtomicU64::new(ALIVE)) };
            table.insert(&host_match(host, set), 10, Version(set), data, reader);
            let passer = Match::any()
                .with(FieldId::NwDst, u128::from(0x0b00_0000 + set * 64 + host))
                .with(FieldId::TpDst, 443);
            let data = Data { host: 99, set, alive: Box::new(AtomicU64::new(ALIVE)) };
            let passer = table.insert(&passer, 20, Version(set), data, reader);
            table.remove(passer, Version(set + 1));
        }
        world.version.store(set, Ordering::Release);
        reader.quiescent();
        let domain = reader.domain().clone();
        let (version, ticket) = *waiting.get_or_insert_with(|| (set, domain.ticket()));
        if writer == Writer::Hasty {
            table.retire(Version(set), usize::MAX, reader);
        } else if domain.passed(ticket) {
            table.retire(Version(version), usize::MAX, reader);
            waiting = None;
        }
        domain.reclaim();
        if set.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
    set
}

/// Looks all hosts up at one version, and again with other bits where the mask says that they do not matter.
fn look(world: &World, reader: &Reader, round: u64) -> Result<(), String> {
    let version = world.version.load(Ordering::Acquire);
    for host in 0..HOSTS {
        let key = host_key(host);
        let mut wc = Mask::wild();
        let found = world.classifier.lookup(Version(version), &key, &mut wc, reader, &mut 0);
        let found = found.ok_or_else(|| format!("no rule for host {host} at {version}"))?;
        let data = found.data();
        if (data.host, data.set, data.alive.load(Ordering::Relaxed)) != (host, version, ALIVE) {
            return Err(format!("host {host} at {version}: found {} of {}", data.host, data.set));
        }
        let mut other = host_key((host + round) % HOSTS);
        for w in 0..8 {
            let mask = wc.0.word(0, w);
            other.set_word(0, w, other.word(0, w) & !mask | key.word(0, w) & mask);
        }
        let again = world.classifier.lookup(Version(version), &other, &mut Mask::wild(), reader, &mut 0);
        if !again.is_some_and(|again| again.is(&found)) {
            return Err(format!("host {host} at {version}: mask {wc:?} is too wide for {other:?}"));
        }
    }
    Ok(())
}

fn run(writer: Writer, length: Duration) -> Result<u64, String> {
    let domain = Domain::new();
    let mut control = domain.register();
    let world = World {
        classifier: Classifier::new(domain.clone(), HashKey::from_seed(3)),
        version: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        wrong: Mutex::new(None),
    };
    for host in 0..HOSTS {
        let data = Data { host, set: 1, alive: Box::new(AtomicU64::new(ALIVE)) };
        world.classifier.insert(&host_match(host, 1), 10, Version(1), data, &control);
    }
    let sets = std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut reader = domain.register();
                for round in 0.. {
                    if let Err(error) = look(&world, &reader, round) {
                        *world.wrong.lock().unwrap() = Some(error);
                    }
                    reader.quiescent();
                    if round % 1000 == 999 {
                        reader.while_offline(std::thread::yield_now);
                    }
                    if world.stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let sets = write(&world, writer, &mut control, Instant::now() + length);
        world.stop.store(true, Ordering::Relaxed);
        sets
    });
    if let Some(wrong) = world.wrong.lock().unwrap().take() {
        return Err(wrong);
    }
    // All that was removed goes, once nobody reads.
    world.classifier.retire(Version(sets + 1), usize::MAX, &control);
    control.quiescent();
    domain.reclaim();
    control.quiescent();
    assert_eq!((domain.reclaim(), world.classifier.iter_all(&control).count()), (0, HOSTS as usize));
    Ok(sets)
}

#[test]
fn readers_see_each_version_whole_while_rules_are_replaced() {
    let seconds = u64::from(testkit::cases("flow::readers_see_each_version_whole (seconds)", 3)).min(600);
    let sets = run(Writer::Patient, Duration::from_secs(seconds)).unwrap();
    assert!(sets > 1000, "only {sets} versions");
}

#[test]
fn rules_retired_too_early_are_missed() {
    assert!(run(Writer::Hasty, Duration::from_secs(20)).is_err(), "the readers noticed nothing");
}
