//! What does a lookup in an OpenFlow table cost, with few and many masks and rules, hit and miss; how fast do
//! rules load, and what memory do they take?
//!
//! `cargo bench -p flow --bench classifier [NAME]`: nanoseconds of the thread's CPU time, the median of 15
//! runs.

use base::Version;
use base::clock::thread_cpu_ns;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use flow::classifier::Clause;
use flow::{Classifier, FieldId, Key, Mask, Match};
use std::hint::black_box;

const RUNS: usize = 15;
const V: Version = Version(1);

fn mix(i: u64) -> u64 {
    let z = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Bench {
    filter: Option<String>,
    reader: Reader,
}

type Table = Classifier<u32>;

impl Bench {
    fn table(&self) -> Table {
        Classifier::new(self.reader.domain().clone(), HashKey::from_seed(1))
    }

    fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|f| name.contains(f))
    }

    fn lookups(&self, name: &str, table: &Table, lookups: u64, set: impl Fn(u64, &mut Key)) {
        let (mut key, mut wc) = (Key::default(), Mask::wild());
        self.timed(name, lookups, |r| {
            set(r, &mut key);
            wc.0.clear();
            wc.add_word(0, 0, 0xffff_ffff);
            wc.add_word(0, 1, 0xffff);
            let found = table.lookup(V, black_box(&key), &mut wc, &self.reader, &mut 0).is_some();
            black_box(&wc);
            found
        });
    }

    /// Times a lookup, which is given a random number and says whether it found anything.
    fn timed(&self, name: &str, lookups: u64, mut lookup: impl FnMut(u64) -> bool) {
        if !self.wants(name) {
            return;
        }
        let mut found = 0;
        let mut runs: Vec<f64> = (0..RUNS as u64)
            .map(|run| {
                let started = thread_cpu_ns();
                found += (0..lookups).filter(|i| lookup(mix(run * lookups + i))).count() as u64;
                (thread_cpu_ns() - started) as f64 / lookups as f64
            })
            .collect();
        runs.sort_by(f64::total_cmp);
        let hits = 100 * found / (RUNS as u64 * lookups);
        println!(
            "{name:40} {:8.1} ns ({:.1} to {:.1}), {hits} % hits",
            runs[RUNS / 2],
            runs[0],
            runs[RUNS - 1]
        );
    }

    /// A packet that meets 64 rules, each a clause of all of `conjunctions`.
    fn conjunctions(&self, conjunctions: u32) {
        let name = format!("lookup/64_rules_of_{conjunctions}_conjunctions");
        if !self.wants(&name) {
            return;
        }
        let table: Classifier<Vec<Clause>> =
            Classifier::new(self.reader.domain().clone(), HashKey::from_seed(1));
        for (number, field) in [FieldId::NwSrc, FieldId::NwDst].into_iter().enumerate() {
            for len in 1..=32 {
                let m = Match::any().with_masked(field, 0x0a00_0001, u128::from(u32::MAX << (32 - len)));
                let clause = |id| Clause { id, count: 2, number: number as u8 };
                table.insert(&m, 1, V, (0..conjunctions).map(clause).collect(), &self.reader);
            }
        }
        let mut key = Key::default();
        key.set(FieldId::NwSrc, 0x0a00_0001);
        key.set(FieldId::NwDst, 0x0a00_0001);
        self.timed(&name, 10, |_| {
            table
                .lookup_conjunctive(V, black_box(&key), &mut Mask::wild(), &self.reader, &mut 0, |c| c)
                .is_some()
        });
    }

    fn loading(&self, name: &str, rules: u64, value: impl Fn(u64) -> u64) {
        if !self.wants(name) {
            return;
        }
        let table = self.table();
        let rss = rss_bytes();
        let mut m = exact_rule(0);
        let started = thread_cpu_ns();
        for i in 0..rules {
            m.key.set_word(0, 3, value(i));
            if table.find_exact(&m, 0, V, &self.reader).is_none() {
                table.insert(&m, 0, V, i as u32, &self.reader);
            }
        }
        let ns = (thread_cpu_ns() - started) as f64 / rules as f64;
        self.reader.domain().reclaim();
        let n = table.len() as f64;
        let (own, rss) = (table.memory_bytes(&self.reader) as f64 / n, (rss_bytes() - rss) as f64 / n);
        println!(
            "{name:40} {ns:8.1} ns per rule; {own:.0} bytes per rule by its own account, {rss:.0} by the resident set"
        );
    }
}

fn rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("pages") * 4096
}

/// ip,in_port,nw_src,nw_dst
fn exact_rule(nw: u64) -> Match {
    Match::any()
        .with(FieldId::InPort, 1)
        .with(FieldId::EthType, 0x800)
        .with(FieldId::NwSrc, u128::from(nw >> 32))
        .with(FieldId::NwDst, u128::from(nw & 0xffff_ffff))
}

fn set_ipv4(key: &mut Key, nw: u64) {
    key.put(0, [1, 0x800, 0, nw, 17 << 8, 64 << 8, 0, 0]);
}

/// 10.0.0.0 + i to 10.128.0.0 + i, as traffic generators count.
fn counted(i: u64) -> u64 {
    (0x0a00_0000 + i) << 32 | (0x0a80_0000 + i)
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let reader = Domain::new().register();
    let mut bench = Bench { filter, reader };

    for (name, rules) in [("10", 10u64), ("1k", 1000), ("100k", 100_000), ("1m", 1_000_000)] {
        if !bench.wants(&format!("lookup/{name}_exact")) {
            continue;
        }
        let table = bench.table();
        for i in 0..rules {
            table.insert(&exact_rule(counted(i)), 0, V, i as u32, &bench.reader);
        }
        bench.lookups(&format!("lookup/{name}_exact/hit"), &table, 100_000, |r, k| {
            set_ipv4(k, counted(r % rules))
        });
        let miss = |r: u64, k: &mut Key| set_ipv4(k, counted(r % rules) ^ 1 << 63);
        bench.lookups(&format!("lookup/{name}_exact/miss"), &table, 100_000, miss);
        let mixed = |r: u64, k: &mut Key| {
            set_ipv4(k, counted(r % rules) & !0xffff_ffff | counted(r / 7 % rules) & 0xffff_ffff)
        };
        bench.lookups(&format!("lookup/{name}_exact/miss_jointly"), &table, 100_000, mixed);
    }
    for masks in [1u64, 10, 64, 256] {
        // One rule in each of many subtables: prefix lengths of source and destination.
        let table = bench.table();
        for i in 0..masks {
            let (s, d) = (32 - i % 16, 32 - i / 16);
            let ones = |len: u64| u128::from(u32::MAX << (32 - len));
            for j in 0..100 {
                let m = Match::any()
                    .with(FieldId::EthType, 0x800)
                    .with_masked(FieldId::NwSrc, u128::from(mix(j) as u32), ones(s))
                    .with_masked(FieldId::NwDst, u128::from(mix(j + 100) as u32), ones(d));
                if table.find_exact(&m, (masks - i) as i32, V, &bench.reader).is_none() {
                    table.insert(&m, (masks - i) as i32, V, 0, &bench.reader);
                }
            }
        }
        let last = |r: u64, k: &mut Key| {
            let (j, i) = (r % 100, masks - 1);
            // Off the longer prefixes, on the last mask's.
            let (s, d) =
                ((mix(j) as u32) ^ !(u32::MAX << (i % 16)), mix(j + 100) as u32 ^ !(u32::MAX << (i / 16)));
            set_ipv4(k, u64::from(s) << 32 | u64::from(d));
        };
        bench.lookups(&format!("lookup/{masks}_masks/hit_last"), &table, 20_000, last);
        bench.lookups(&format!("lookup/{masks}_masks/miss"), &table, 20_000, |r, k| set_ipv4(k, r));
    }
    for conjunctions in [1, 100, 4_000] {
        bench.conjunctions(conjunctions);
    }
    bench.loading("load/1m_exact_counted", 1_000_000, counted);
    bench.reader.quiescent();
    bench.reader.domain().reclaim();
    bench.loading("load/1m_exact_random", 1_000_000, mix);
}
