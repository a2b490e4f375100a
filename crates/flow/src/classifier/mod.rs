//! The classifier: finds the rule of highest priority that a key matches, among up to millions, and says
//! which bits of the key decided that.
//!
//! Idea: tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999). The rules of one mask form a
//! subtable, a hash table of the masked words; a lookup tries subtables in the order of their highest
//! priority, and stops when what it found beats all the remaining ones. Within a subtable it proceeds in
//! stages (metadata, Ethernet, network, transport) and stops at the first whose values no rule has; and a
//! miss is proven with as few bits as possible (see `subtable`).
//!
//! The mask. A megaflow made from a lookup must not be too wide: flipping any bit that `lookup` did not add
//! to `wc` does not change its result at that version. A needless 1-bit costs speed, a missing one
//! misforwards.
//!
//! Versions. Each rule has a version at which it appears and one at which it vanishes. A lookup at one
//! version sees exactly the rules of that version, whatever the writer does meanwhile. Structures that narrow
//! a search may also include rules that are not yet or no longer visible: that makes megaflows narrower than
//! necessary for a moment, never wrong. So the life of a rule is: [`Classifier::insert`] with the coming
//! version; the owner publishes that version; [`Classifier::remove`] with a coming version, published
//! likewise; and [`Classifier::retire`] once no reader looks up at an older version, which unlinks it. The
//! [`Domain`] frees the memory after a grace period.
//!
//! Equal priorities: if several rules of the highest priority match a key, OpenFlow leaves the choice open.
//! Here it is one of them, the same for all keys that agree on the bits added to `wc`, as long as the rules
//! do not change.
//!
//! Conjunctive matches (`conj_id`) are looked up by [`Classifier::lookup_conjunctive`]; see `conjunction`.
//!
//! Threads: changes may come from any thread, one at a time (a mutex). Lookups neither wait, allocate nor
//! lock, and borrow from a [`Reader`] of the classifier's domain. The control thread needs a `Reader` too,
//! and must be quiescent now and then so that memory can be freed.

mod conjunction;
mod prefixes;
mod rule;
mod rule_ref;
mod subtable;
mod values;

pub use conjunction::{Clause, forget_conj_id};
pub use rule_ref::RuleRef;

use crate::field::FieldId;
use crate::key::{Key, Mask};
use crate::matching::Match;
use base::Version;
use base::hash::HashKey;
use base::multimap::Multimap;
use base::rcu::{Domain, RcuCell, Reader};
use rule::Rule;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use subtable::{Shared, Subtable};

/// Subtables for which lookups are prepared by [`Classifier::prefetch`].
const PREFETCHED: usize = 2;

/// To consider a mask takes as long as to look at some rules.
const LOOKS_OF_MASK: usize = 8;

/// One table's rules, each with data of type `R`. See the module documentation.
pub struct Classifier<R: Send + Sync + 'static> {
    shared: Shared,
    /// The subtables, highest priority first. Never misses one that holds a rule.
    ranking: RcuCell<Vec<Ranked<R>>>,
    /// The same by the hash of their masks.
    by_mask: Multimap<Arc<Subtable<R>>>,
    writer: Mutex<Writer<R>>,
}

struct Ranked<R: Send + Sync + 'static> {
    /// No rule of the subtable has a higher priority.
    priority_max: AtomicI32,
    subtable: Arc<Subtable<R>>,
}

struct Writer<R: Send + Sync + 'static> {
    /// Rules that vanish at some version, in the order of removal.
    vanishing: VecDeque<Vanishing<R>>,
    /// Rules that are not removed.
    live: usize,
    /// Rules that are linked.
    linked: usize,
}

/// What [`Classifier::retire`] has left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    /// Removed rules that are still linked.
    pub left: usize,
    /// Whether some of them can be unlinked right away.
    pub has_more: bool,
}

struct Vanishing<R: Send + Sync + 'static> {
    version: Version,
    subtable: Arc<Subtable<R>>,
    hash: u32,
    /// The rule's address, for comparison only. A linked rule's address is unique.
    address: usize,
}

/// Whether the packet begins with an Ethernet header, which all rules on fields of frames require.
#[inline]
fn is_frame(key: &Key, wc: &mut Mask) -> bool {
    wc.add_exact(FieldId::PacketType);
    key.get64(FieldId::PacketType) == 0
}

impl<R: Send + Sync + 'static> Classifier<R> {
    /// An empty classifier whose readers are those of `domain`. `secret` keys its hashes.
    pub fn new(domain: Arc<Domain>, secret: HashKey) -> Classifier<R> {
        Classifier {
            ranking: RcuCell::new(domain.clone(), Vec::new()),
            by_mask: Multimap::new(domain.clone()),
            writer: Mutex::new(Writer { vanishing: VecDeque::new(), live: 0, linked: 0 }),
            shared: Shared::new(domain, secret),
        }
    }

    /// The rule of highest priority that is visible at `version` and that `key` matches. Adds the bits that
    /// decided it to `wc`, and to `steps` how many subtables it has tried.
    ///
    /// The caller must have read `version` from where it is published (Acquire) since `reader` was last
    /// quiescent.
    #[inline]
    pub fn lookup<'g>(
        &'g self,
        version: Version,
        key: &Key,
        wc: &mut Mask,
        reader: &'g Reader,
        steps: &mut u32,
    ) -> Option<RuleRef<'g, R>> {
        let mut best: Option<RuleRef<'g, R>> = None;
        let is_frame = is_frame(key, wc);
        let ranking = self.ranking.read(reader);
        let mut left = ranking.iter();
        for ranked in left.by_ref() {
            if let Some(best) = &best
                && best.priority() >= ranked.priority_max.load(Ordering::Relaxed)
            {
                break;
            }
            let subtable = &*ranked.subtable;
            if !is_frame && subtable.implies_ethernet {
                continue;
            }
            let floor = best.map(|best| best.priority());
            if let Some(entry) = subtable.find(version, key, floor, wc, (&self.shared, reader)) {
                best = Some(RuleRef { entry, subtable });
            }
        }
        *steps += (ranking.len() - left.len()) as u32;
        best
    }

    /// Prefetches what lookups of some keys will probably wait for longest.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k Key> + Clone, reader: &Reader) {
        for ranked in self.ranking.read(reader).iter().take(PREFETCHED) {
            ranked.subtable.prefetch(keys.clone(), &self.shared, reader);
        }
    }

    /// The rule with exactly this match and priority that `version` sees: what strict commands act on. O(1).
    pub fn find_exact<'g>(
        &'g self,
        matching: &Match,
        priority: i32,
        version: Version,
        reader: &'g Reader,
    ) -> Option<RuleRef<'g, R>> {
        let subtable = self.subtable(&matching.mask, reader)?;
        let words = subtable.words(&matching.key);
        let hash = subtable.hash(&words, &self.shared.secret);
        subtable
            .rules
            .find(hash, reader)
            .find(|e| e.value.priority == priority && e.value.is_visible(version) && *e.words == *words)
            .map(|entry| RuleRef { entry, subtable })
    }

    /// The rule with this match and the wanted data, whatever versions see it.
    pub fn find_linked<'g>(
        &'g self,
        matching: &Match,
        reader: &'g Reader,
        is_wanted: impl Fn(&R) -> bool,
    ) -> Option<RuleRef<'g, R>> {
        let subtable = self.subtable(&matching.mask, reader)?;
        let words = subtable.words(&matching.key);
        let hash = subtable.hash(&words, &self.shared.secret);
        let mut same = subtable.rules.find(hash, reader);
        same.find(|entry| is_wanted(&entry.value.data)).map(|entry| RuleRef { entry, subtable })
    }

    /// How many linked rules have masks with all bits of `within`'s: no more agree with it.
    pub fn count_within(&self, within: &Match, reader: &Reader) -> usize {
        let fitting = self.ranking.read(reader).iter().filter(|r| r.subtable.covers(within));
        fitting.map(|ranked| ranked.subtable.rules.len()).sum()
    }

    /// All rules, including those that no version sees any more, in no particular order.
    pub fn iter_all<'g>(&'g self, reader: &'g Reader) -> impl Iterator<Item = RuleRef<'g, R>> {
        self.ranking.read(reader).iter().flat_map(move |ranked| {
            let subtable = &*ranked.subtable;
            subtable.rules.iter(reader).map(move |entry| RuleRef { entry, subtable })
        })
    }

    /// The rules that `version` sees, in no order.
    pub fn iter<'g>(&'g self, version: Version, reader: &'g Reader) -> impl Iterator<Item = RuleRef<'g, R>> {
        self.iter_all(reader).filter(move |rule| rule.is_visible(version))
    }

    /// The rules that `version` sees and whose keys all match `within`: what non-strict commands and
    /// statistics select. It walks over the subtables whose mask has all the bits of `within`'s.
    pub fn iter_within<'g>(
        &'g self,
        within: &'g Match,
        version: Version,
        reader: &'g Reader,
    ) -> impl Iterator<Item = RuleRef<'g, R>> {
        let fitting = self.ranking.read(reader).iter().filter(|r| r.subtable.covers(within));
        fitting
            .flat_map(move |ranked| {
                let subtable = &*ranked.subtable;
                subtable.rules.iter(reader).map(move |entry| RuleRef { entry, subtable })
            })
            .filter(move |rule| rule.is_visible(version) && rule.agrees(within))
    }

    /// A rule that `version` sees, of the same priority, that some key matches together with `matching`: what
    /// OpenFlow's CHECK_OVERLAP refuses. What it takes is known before ([`Self::overlap_looks`]).
    pub fn find_overlap<'g>(
        &'g self,
        matching: &Match,
        priority: i32,
        version: Version,
        reader: &'g Reader,
    ) -> Option<RuleRef<'g, R>> {
        let overlaps =
            |r: &RuleRef<'g, R>| r.priority() == priority && r.is_visible(version) && r.overlaps(matching);
        self.ranked_from(priority, reader).iter().find_map(|ranked| {
            let subtable = &*ranked.subtable;
            let rule = |entry| RuleRef { entry, subtable };
            if !subtable.has_priority(priority) {
                None
            } else if matching.mask.covers(&subtable.mask) {
                // Its rules match no bits but those that `matching` does: one that overlaps has its values.
                let hash = subtable.hash(&subtable.words(&matching.key), &self.shared.secret);
                subtable.rules.find(hash, reader).map(rule).find(overlaps)
            } else {
                subtable.rules.iter(reader).map(rule).find(overlaps)
            }
        })
    }

    /// At how many rules [`Self::find_overlap`] looks, at most, where a mask counts as some rules. Beyond
    /// `max` it is not counted to the end.
    pub fn overlap_looks(&self, matching: &Match, priority: i32, max: usize, reader: &Reader) -> usize {
        let ranked = self.ranked_from(priority, reader);
        let mut looks = ranked.len() * LOOKS_OF_MASK;
        for subtable in ranked.iter().map(|ranked| &*ranked.subtable) {
            if looks > max {
                break;
            }
            if subtable.has_priority(priority) && !matching.mask.covers(&subtable.mask) {
                looks += subtable.rules.len();
            }
        }
        looks
    }

    /// The subtables that may have rules of a priority.
    fn ranked_from<'g>(&'g self, priority: i32, reader: &'g Reader) -> &'g [Ranked<R>] {
        let ranking = self.ranking.read(reader);
        // Sorted by priority: those after the first that stays below hold no rule of this priority.
        &ranking[..ranking.partition_point(|r| r.priority_max.load(Ordering::Relaxed) >= priority)]
    }

    /// How many masks its rules have.
    pub fn count_masks(&self, reader: &Reader) -> usize {
        self.ranking.read(reader).len()
    }

    /// The masks of its rules, with the number of linked rules of each, highest priority first.
    pub fn masks<'g>(&'g self, reader: &'g Reader) -> impl Iterator<Item = (&'g Mask, usize)> {
        self.ranking.read(reader).iter().map(|r| (&r.subtable.mask, r.subtable.rules.len()))
    }

    /// Adds a rule that lookups see from version `appears` on, which must not be published yet. The caller
    /// has checked ([`Self::find_exact`]) that no rule with the same match and priority will be visible at
    /// the same time; otherwise lookups find either.
    pub fn insert<'g>(
        &'g self,
        matching: &Match,
        priority: i32,
        appears: Version,
        data: R,
        reader: &'g Reader,
    ) -> RuleRef<'g, R> {
        let mut writer = self.writer.lock().expect("no holder panics");
        let subtable = match self.subtable(&matching.mask, reader) {
            Some(found) => found,
            None => self.add_subtable(matching, reader),
        };
        let words = subtable.words(&matching.key);
        subtable.learn(&words, &self.shared, reader);
        let hash = subtable.hash(&words, &self.shared.secret);
        let vanishes = AtomicU64::new(Version::NEVER.0);
        let entry = subtable.rules.insert(hash, &words, Rule { appears, vanishes, priority, data }, reader);
        if subtable.add_priority(priority) {
            self.raise(subtable, priority, reader);
        }
        writer.live += 1;
        writer.linked += 1;
        RuleRef { entry, subtable }
    }

    /// Hides the rule from version `vanishes` on, which must not be published yet. With the version at which
    /// it appears, which no lookup has seen yet, this undoes the insertion. `false` if it was removed before.
    pub fn remove(&self, rule: RuleRef<'_, R>, vanishes: Version) -> bool {
        let mut writer = self.writer.lock().expect("no holder panics");
        if rule.vanishes() != Version::NEVER {
            return false;
        }
        rule.entry.value.vanishes.store(vanishes.0, Ordering::Relaxed);
        writer.live -= 1;
        writer.vanishing.push_back(Vanishing {
            version: vanishes,
            subtable: rule.subtable.shared(),
            hash: rule.entry.hash,
            address: std::ptr::from_ref(rule.entry.value).addr(),
        });
        true
    }

    /// Unlinks a rule that no lookup has seen, for its version is not published yet. `false` if it is
    /// removed.
    pub fn withdraw(&self, rule: RuleRef<'_, R>, reader: &Reader) -> bool {
        let mut writer = self.writer.lock().expect("no holder panics");
        if rule.vanishes() != Version::NEVER {
            return false;
        }
        let RuleRef { entry, subtable } = rule;
        let address = std::ptr::from_ref(entry.value).addr();
        let version = entry.value.appears;
        self.unlink(&Vanishing { version, subtable: subtable.shared(), hash: entry.hash, address }, reader);
        writer.live -= 1;
        writer.linked -= 1;
        true
    }

    /// Takes back a removal whose version is not published yet. `false` if it is not removed.
    pub fn restore(&self, rule: RuleRef<'_, R>) -> bool {
        let mut writer = self.writer.lock().expect("no holder panics");
        if rule.vanishes() == Version::NEVER {
            return false;
        }
        let address = std::ptr::from_ref(rule.entry.value).addr();
        // Removals are taken back soon after they were made: search from the end.
        if let Some(at) = writer.vanishing.iter().rposition(|v| v.address == address) {
            writer.vanishing.remove(at);
        }
        rule.entry.value.vanishes.store(Version::NEVER.0, Ordering::Relaxed);
        writer.live += 1;
        true
    }

    /// Unlinks up to `max` rules that vanished at `oldest` or before; no reader may look up at an older
    /// version any more. Returns what is left. The domain's `reclaim` frees the memory.
    ///
    /// How to determine `oldest`: publish a version, then take a [`Domain::ticket`]; once it has passed,
    /// every reader has been quiescent since, and reads that version or a newer one.
    pub fn retire(&self, oldest: Version, max: usize, reader: &Reader) -> Retired {
        let mut writer = self.writer.lock().expect("no holder panics");
        for _ in 0..max {
            if writer.vanishing.front().is_none_or(|v| v.version > oldest) {
                break;
            }
            let vanishing = writer.vanishing.pop_front().expect("there is a front");
            self.unlink(&vanishing, reader);
            writer.linked -= 1;
        }
        self.shared.arena.settle();
        let has_more = writer.vanishing.front().is_some_and(|v| v.version <= oldest);
        Retired { left: writer.vanishing.len(), has_more }
    }

    /// Number of rules that are not removed.
    pub fn len(&self) -> usize {
        self.writer.lock().expect("no holder panics").live
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, except for what the rules' data points to and what waits to be freed.
    pub fn memory_bytes(&self, reader: &Reader) -> usize {
        let writer = self.writer.lock().expect("no holder panics");
        let subtables: usize =
            self.ranking.read(reader).iter().map(|r| r.subtable.memory_bytes(reader)).sum();
        subtables
            + self.by_mask.memory_bytes()
            + writer.vanishing.capacity() * size_of::<Vanishing<R>>()
            + self.shared.memory_bytes()
    }

    fn hash_mask(&self, mask: &Mask) -> u32 {
        let mut hash = 0;
        for b in mask.0.present_blocks() {
            for (w, &bits) in mask.0.block(b).0.iter().enumerate() {
                if bits != 0 {
                    hash = self.shared.secret.word(self.shared.secret.word(hash, bits), (b * 8 + w) as u64);
                }
            }
        }
        hash as u32
    }

    fn subtable<'g>(&'g self, mask: &Mask, reader: &'g Reader) -> Option<&'g Subtable<R>> {
        let mut found = self.by_mask.find(self.hash_mask(mask), reader);
        found.find(|e| e.value.mask == *mask).map(|e| &**e.value)
    }

    fn add_subtable<'g>(&'g self, matching: &Match, reader: &'g Reader) -> &'g Subtable<R> {
        let mask = matching.mask.clone().canonical();
        let hash = self.hash_mask(&mask);
        let subtable = Subtable::new(mask, hash, &matching.key, &self.shared);
        self.by_mask.insert(hash, &[], subtable, reader).value
    }

    /// Publishes that the subtable has a rule of this priority, higher than all that it had.
    fn raise(&self, subtable: &Subtable<R>, priority: i32, reader: &Reader) {
        let ranking = self.ranking.read(reader);
        let is_it = |r: &Ranked<R>| std::ptr::eq(&*r.subtable, subtable);
        let at = ranking.iter().position(is_it);
        let before = |at: usize| at == 0 || ranking[at - 1].priority_max.load(Ordering::Relaxed) >= priority;
        if let Some(at) = at
            && before(at)
        {
            ranking[at].priority_max.store(priority, Ordering::Relaxed);
            return;
        }
        self.ranking.update(|old| {
            let mut new: Vec<_> = old.iter().filter(|r| !is_it(r)).map(Ranked::clone).collect();
            let at = new.partition_point(|r| r.priority_max.load(Ordering::Relaxed) >= priority);
            new.insert(at, Ranked { priority_max: AtomicI32::new(priority), subtable: subtable.shared() });
            new
        });
    }

    /// Publishes that the subtable's highest priority is lower than it was, or that it has no rule.
    fn lower(&self, subtable: &Subtable<R>, priority_max: Option<i32>) {
        self.ranking.update(|old| {
            let others = old.iter().filter(|r| !std::ptr::eq(&*r.subtable, subtable));
            let mut new: Vec<_> = others.map(Ranked::clone).collect();
            if let Some(priority) = priority_max {
                let at = new.partition_point(|r| r.priority_max.load(Ordering::Relaxed) >= priority);
                new.insert(
                    at,
                    Ranked { priority_max: AtomicI32::new(priority), subtable: subtable.shared() },
                );
            }
            new
        });
    }

    fn unlink(&self, vanishing: &Vanishing<R>, reader: &Reader) {
        let subtable = &*vanishing.subtable;
        let mut found = subtable.rules.find(vanishing.hash, reader);
        let rule = found
            .find(|e| std::ptr::from_ref(e.value).addr() == vanishing.address)
            .expect("only `retire` unlinks, and each removed rule is in the queue once");
        subtable.rules.remove(vanishing.hash, rule.value);
        subtable.forget(rule.words, &self.shared, reader);
        if let Some(priority_max) = subtable.remove_priority(rule.value.priority) {
            self.lower(subtable, priority_max);
            if priority_max.is_none() {
                let mut same = self.by_mask.find(subtable.mask_hash, reader);
                if let Some(entry) = same.find(|e| std::ptr::eq(&**e.value, subtable)) {
                    self.by_mask.remove(subtable.mask_hash, entry.value);
                }
            }
        }
    }
}

impl<R: Send + Sync + 'static> Clone for Ranked<R> {
    fn clone(&self) -> Self {
        let priority_max = AtomicI32::new(self.priority_max.load(Ordering::Relaxed));
        Ranked { priority_max, subtable: self.subtable.clone() }
    }
}
