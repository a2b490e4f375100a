//! MAC learning: where an address in a VLAN was last seen, per bridge.
//!
//! Workers look addresses up in a shared table. Each entry gives the versions between which it is valid. What
//! workers find out (an address is new, or has moved) they report as an effect, and the control thread
//! records it. Flows from an address credit the counter slot of its entry, so updating its age needs no
//! message.

use base::hash::HashKey;
use base::multimap::Multimap;
use base::rcu::{Domain, Reader};
use base::{PortNo, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where an address is.
#[derive(Debug)]
pub(crate) struct MacEntry {
    pub port: PortNo,
    pub slot: u32,
    from: Version,
    until: AtomicU64,
}

/// The shared table of one bridge.
pub(crate) struct MacTable {
    entries: Multimap<MacEntry>,
    secret: HashKey,
}

impl MacTable {
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> MacTable {
        MacTable { entries: Multimap::new(domain), secret }
    }

    fn hash(&self, word: u64) -> u32 {
        self.secret.word(0x3ac, word) as u32
    }

    /// The entry for a word (VLAN and address, [`crate::changelog::word_table::mac`]) at a version.
    #[inline]
    pub fn lookup<'g>(&'g self, word: u64, version: Version, reader: &'g Reader) -> Option<&'g MacEntry> {
        let found = self.entries.find(self.hash(word), reader).find(|e| {
            e.words[0] == word && e.value.from <= version && version.0 < e.value.until.load(Ordering::Relaxed)
        });
        found.map(|e| e.value)
    }

    /// Writer: adds an entry that is valid from `from` on.
    pub fn insert(&self, word: u64, port: PortNo, slot: u32, from: Version, reader: &Reader) {
        let entry = MacEntry { port, slot, from, until: AtomicU64::new(Version::NEVER.0) };
        self.entries.insert(self.hash(word), &[word], entry, reader);
    }

    /// Writer: ends a word's entry at `until`.
    pub fn end(&self, word: u64, until: Version, reader: &Reader) {
        for e in self.entries.find(self.hash(word), reader) {
            if e.words[0] == word && e.value.until.load(Ordering::Relaxed) == Version::NEVER.0 {
                e.value.until.store(until.0, Ordering::Relaxed);
            }
        }
    }

    /// Writer: unlinks what no version from `oldest` on shows.
    pub fn collect(&self, word: u64, oldest: Version, reader: &Reader) {
        let hash = self.hash(word);
        for e in self.entries.find(hash, reader) {
            if e.words[0] == word && e.value.until.load(Ordering::Relaxed) <= oldest.0 {
                self.entries.remove(hash, e.value);
            }
        }
    }
}
