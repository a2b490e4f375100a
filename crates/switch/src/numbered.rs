//! Tables of objects that controllers number: the groups and meters of a bridge.
//!
//! Workers look them up in a shared table. Each entry gives the versions between which it is valid, so a
//! change takes effect with the next packet.
//!
//! Threads: one writer, and any number of readers, which neither wait nor write.

use base::Version;
use base::hash::HashKey;
use base::multimap::Multimap;
use base::rcu::{Domain, Reader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An object with a number in its bridge.
pub(crate) trait Numbered: Send + Sync + 'static {
    fn number(&self) -> u32;
}

struct Entry<T> {
    value: Arc<T>,
    from: Version,
    until: AtomicU64,
}

/// See the module documentation.
pub(crate) struct NumberedTable<T: Numbered> {
    entries: Multimap<Entry<T>>,
    secret: HashKey,
}

impl<T: Numbered> NumberedTable<T> {
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> NumberedTable<T> {
        NumberedTable { entries: Multimap::new(domain), secret }
    }

    fn hash(&self, number: u32) -> u32 {
        self.secret.word(0x6709, u64::from(number)) as u32
    }

    fn find<'g>(&'g self, number: u32, reader: &'g Reader) -> impl Iterator<Item = &'g Entry<T>> {
        let found = self.entries.find(self.hash(number), reader);
        found.map(|e| e.value).filter(move |e| e.value.number() == number)
    }

    /// The object with the number at a version.
    pub fn lookup<'g>(&'g self, number: u32, version: Version, reader: &'g Reader) -> Option<&'g T> {
        let mut found = self.find(number, reader);
        found.find(|e| e.from <= version && version.0 < e.until.load(Ordering::Relaxed)).map(|e| &*e.value)
    }

    /// Writer: adds an object that is valid from `from` on.
    pub fn insert(&self, value: Arc<T>, from: Version, reader: &Reader) {
        let hash = self.hash(value.number());
        let entry = Entry { value, from, until: AtomicU64::new(Version::NEVER.0) };
        self.entries.insert(hash, &[], entry, reader);
    }

    /// Writer: ends it at `until`. `false`: it was to be valid from that version on, so that none has shown
    /// it, and it is unlinked.
    pub fn end(&self, value: &Arc<T>, until: Version, reader: &Reader) -> bool {
        let mut found = self.find(value.number(), reader);
        let Some(entry) = found.find(|e| Arc::ptr_eq(&e.value, value)) else { return true };
        if entry.from == until {
            self.entries.remove(self.hash(value.number()), entry);
            return false;
        }
        entry.until.store(until.0, Ordering::Relaxed);
        true
    }

    /// Writer: takes back that it ends.
    pub fn restore(&self, value: &Arc<T>, reader: &Reader) {
        let mut found = self.find(value.number(), reader);
        if let Some(entry) = found.find(|e| Arc::ptr_eq(&e.value, value)) {
            entry.until.store(Version::NEVER.0, Ordering::Relaxed);
        }
    }

    /// How many objects with the number there are, whatever versions show them.
    #[cfg(test)]
    pub fn linked(&self, number: u32, reader: &Reader) -> usize {
        self.find(number, reader).count()
    }

    /// Writer: unlinks an object that no version shows.
    pub fn remove(&self, value: &Arc<T>, reader: &Reader) {
        let number = value.number();
        let entry = self.find(number, reader).find(|e| Arc::ptr_eq(&e.value, value)).map(std::ptr::from_ref);
        if let Some(entry) = entry {
            self.entries.remove(self.hash(number), entry);
        }
    }
}
