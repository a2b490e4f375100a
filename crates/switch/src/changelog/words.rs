//! Changes of the word tables: ports, groups and settings, and the MAC addresses of each bridge.
//!
//! A table is an array of versions indexed by a keyed hash of the word. Ports, groups and settings of all
//! bridges share one. Each bridge's addresses have an array and a last version of their own, so that a flood
//! of new addresses on one bridge affects no flow of another. A flow that looked up an address keeps the
//! address's hash (see [`word_table::visit`]): the address itself would not fit, and is not needed.

use super::word_table;
use base::Version;
use base::hash::HashKey;
use base::rcu::{Domain, RcuCell, Reader};
use datapath::Visit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements of the array that ports and settings share; 512 KiB.
const PORT_BUCKETS: usize = 65_536;
/// Elements of the array of one bridge's addresses; 32 KiB.
const MAC_BUCKETS: usize = 4_096;

pub(super) fn zeros(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

/// The changes of one table of words.
pub(super) struct WordLog {
    pub last: AtomicU64,
    buckets: Box<[AtomicU64]>,
}

impl WordLog {
    fn new(buckets: usize) -> WordLog {
        WordLog { last: AtomicU64::new(0), buckets: zeros(buckets) }
    }

    fn bucket(&self, hash: u32) -> &AtomicU64 {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    fn touched(&self, since: u64, hash: impl FnOnce() -> u32) -> bool {
        self.last.load(Ordering::Relaxed) > since && self.bucket(hash()).load(Ordering::Relaxed) > since
    }

    /// Versions may arrive out of order: a transaction's version is ahead of those published meanwhile.
    fn push(&self, hash: u32, version: Version) {
        for of in [self.bucket(hash), &self.last] {
            of.store(version.0.max(of.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }
}

/// The changes of all tables of words. One writer, any number of readers.
pub(super) struct WordLogs {
    secret: HashKey,
    ports: WordLog,
    /// By bridge number; the writer creates one with the bridge's first address.
    macs: RcuCell<Vec<Option<Arc<WordLog>>>>,
}

impl WordLogs {
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> WordLogs {
        WordLogs { secret, ports: WordLog::new(PORT_BUCKETS), macs: RcuCell::new(domain, Vec::new()) }
    }

    /// The hash of a word, which a flow keeps for a MAC address.
    pub fn hash(&self, table: u32, word: u64) -> u32 {
        self.secret.word(u64::from(table), word) as u32
    }

    /// The log of a table; `None` if it never changed.
    pub fn of<'g>(&'g self, table: u32, reader: &'g Reader) -> Option<&'g WordLog> {
        match word_table::mac_bridge(table) {
            Some(bridge) => self.macs.read(reader).get(bridge as usize)?.as_deref(),
            None => Some(&self.ports),
        }
    }

    /// Whether what a visit to such a table saw has changed since.
    #[inline]
    pub fn touched(&self, visit: &Visit, since: u64, reader: &Reader) -> bool {
        let held = word_table::word_of(visit);
        let Some(log) = self.of(visit.table, reader) else { return false };
        let is_mac = word_table::mac_bridge(visit.table).is_some();
        log.touched(since, || if is_mac { held as u32 } else { self.hash(visit.table, held) })
    }
}

/// The writer's half: it tracks the logs without reading back what it has published.
#[derive(Default)]
pub(super) struct WordWriter {
    macs: Vec<Option<Arc<WordLog>>>,
}

impl WordWriter {
    /// The meaning of a word changes in `version`.
    pub fn push(&mut self, logs: &WordLogs, table: u32, word: u64, version: Version) {
        let hash = logs.hash(table, word);
        let Some(bridge) = word_table::mac_bridge(table) else { return logs.ports.push(hash, version) };
        let bridge = bridge as usize;
        if let Some(Some(log)) = self.macs.get(bridge) {
            return log.push(hash, version);
        }
        self.macs.resize(self.macs.len().max(bridge + 1), None);
        let log = Arc::new(WordLog::new(MAC_BUCKETS));
        log.push(hash, version);
        self.macs[bridge] = Some(log);
        logs.macs.publish(self.macs.clone());
    }
}
