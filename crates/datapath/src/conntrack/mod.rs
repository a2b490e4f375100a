//! Connection tracking: which packets belong to one connection, what state it is in, and how its addresses
//! are translated.
//!
//! One tracker serves all workers. Its parts are built for that: an [`index`] whose lookups touch one cache
//! line and write nothing; entries ([`entry`]) that change under a lock of their own, contended only by
//! packets of one connection; and shards with [`lists`] for new connections, ended ones and timeouts. A
//! packet of an existing connection takes no shard's lock.
//!
//! [`seen`] reads packets, [`tcp`] judges segments, [`nat`] chooses addresses and writes them, [`track`]
//! combines these for one packet, and [`follow`] is the fast path for packets of known, established
//! connections. [`fragments`] holds fragments until their datagram is complete. [`help`] reads what
//! [`helper`] knows of FTP and TFTP, [`expect`] has the connections that they announce, and [`adjust`] the
//! sequence numbers that follow. [`zones`] and [`timeouts`] are what an operator sets, [`dump`] is what one
//! asks for.
//!
//! Under attack: there is a ceiling for all connections and one for each zone. At a zone's ceiling, its
//! oldest half-open connections give way; at the overall ceiling, those of the zone that has the most.
//! Established ones stay. The worker bounds how much time an input port may spend on new connections (see
//! [`crate::input`]).
//!
//! Threads: any. Time is an argument: milliseconds of the datapath's clock. Source: ovs-actions(7) and
//! ovs-fields(7) for what the actions and fields mean.

mod adjust;
pub mod dump;
mod entry;
mod expect;
pub(crate) mod follow;
pub mod fragments;
mod help;
pub mod helper;
mod index;
mod lists;
pub mod nat;
mod request;
pub(crate) mod run;
pub mod seen;
pub mod share;
pub mod tcp;
pub mod timeouts;
mod track;
pub mod tuple;
mod zones;

use self::entry::{Entry, Generation, Traits};
use self::expect::Expectations;
use self::fragments::Fragments;
use self::index::{Entries, Index, Place, Which};
use self::lists::Lists;
pub use self::request::{Helper, Nat, Request};
use self::tcp::State;
use self::timeouts::{Phase, Timeouts};
pub use self::track::{Moment, Preferred, Translation};
use self::tuple::Tuple;
use self::zones::Zones;
use base::hash::HashKey;
use base::region::Region;
use flow::key::B_CT;
use flow::{FieldId, Key, Mask};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of entries: each connection takes one, or two if it has a helper.
const ENTRIES: usize = 1 << 22;
const BUCKETS: usize = 1 << 19;
/// More than there are workers, so that two rarely need the same one.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS <= u64::BITS as usize);
/// The same as Open vSwitch's.
const LIMIT_DEFAULT: u32 = 3_000_000;
/// How many half-open connections are examined to find one to evict.
const EVICTION_TRIES: u32 = 64;
/// How many ended connections each new one cleans up.
const CLEARED_PER_COMMIT: u32 = 2;

/// The state of a packet (`ct_state`).
pub mod state {
    pub const NEW: u8 = 0x01;
    pub const ESTABLISHED: u8 = 0x02;
    pub const RELATED: u8 = 0x04;
    pub const REPLY: u8 = 0x08;
    pub const INVALID: u8 = 0x10;
    pub const TRACKED: u8 = 0x20;
    pub const SRC_NAT: u8 = 0x40;
    pub const DST_NAT: u8 = 0x80;
}

/// The tracker's result for a packet, which the packet carries along.
#[derive(Clone, Copy, Eq, Default, Debug)]
pub struct Tracking {
    /// Bits of [`state`]; 0 for a packet that was not tracked.
    pub state: u8,
    pub zone: u16,
    pub mark: u32,
    pub label: u128,
}

impl PartialEq for Tracking {
    /// Two packets that were not tracked are equal, whatever the other fields hold.
    #[inline(always)]
    fn eq(&self, other: &Tracking) -> bool {
        let rest = |t: &Tracking| (t.zone, t.mark, t.label);
        self.state == other.state && (self.state == 0 || rest(self) == rest(other))
    }
}

impl Tracking {
    /// The tracking result in this key, and the tuple that opened the connection; `None` if the packet was
    /// not tracked.
    pub fn of(key: &Key) -> Option<(Tracking, Tuple)> {
        let tracking = Tracking {
            state: key.get(FieldId::CtState) as u8,
            zone: key.get(FieldId::CtZone) as u16,
            mark: key.get(FieldId::CtMark) as u32,
            label: key.get(FieldId::CtLabel),
        };
        let is_ipv6 = key.get(FieldId::EthType) == 0x86dd;
        let (src, dst) = if is_ipv6 {
            (FieldId::CtIpv6Src, FieldId::CtIpv6Dst)
        } else {
            (FieldId::CtNwSrc, FieldId::CtNwDst)
        };
        let original = Tuple::of_fields(
            (key.get(src), key.get(dst)),
            (key.get(FieldId::CtTpSrc) as u16, key.get(FieldId::CtTpDst) as u16),
            key.get(FieldId::CtNwProto) as u8,
            is_ipv6,
        );
        (tracking.state != 0).then_some((tracking, original))
    }

    /// Puts what rules can match into a packet's key. `original` is the tuple that opened the connection.
    #[inline(always)]
    pub(crate) fn put(&self, original: Option<&Tuple>, key: &mut Key) {
        if self.state != 0 {
            self.put_tracked(original, key);
        }
    }

    #[inline(never)]
    fn put_tracked(&self, original: Option<&Tuple>, key: &mut Key) {
        key.set(FieldId::CtState, self.state.into());
        key.set(FieldId::CtZone, self.zone.into());
        // Everything except IPv6 addresses shares a block, and nothing else is in that block.
        let mut block = [0; 8];
        let mut put = |field: FieldId, value: u64| {
            let place = field.place();
            block[usize::from(place.word)] |= value << place.shift;
        };
        put(FieldId::CtMark, self.mark.into());
        if let Some(tuple) = original.filter(|tuple| tuple.protocol != 0) {
            if tuple.is_ipv6 {
                key.set(FieldId::CtIpv6Src, tuple.src);
                key.set(FieldId::CtIpv6Dst, tuple.dst);
            } else {
                put(FieldId::CtNwSrc, tuple.src as u64);
                put(FieldId::CtNwDst, tuple.dst as u64);
            }
            let ports = tuple.of_ports();
            put(FieldId::CtNwProto, tuple.protocol.into());
            put(FieldId::CtTpSrc, ports.0.into());
            put(FieldId::CtTpDst, ports.1.into());
        }
        if block != [0; 8] {
            key.put(B_CT, block);
        }
        if self.label != 0 {
            key.set(FieldId::CtLabel, self.label);
        }
    }
}

/// Whether a mask includes bits of the tuple that opened a packet's connection.
pub(crate) fn reads_original(mask: &Mask) -> bool {
    use FieldId::*;
    [CtNwProto, CtNwSrc, CtNwDst, CtTpSrc, CtTpDst, CtIpv6Src, CtIpv6Dst]
        .iter()
        .any(|&field| mask.get(field) != 0)
}

/// On a cache line of its own, so that workers that use different ones do not share lines.
#[repr(align(64))]
struct Shard(Mutex<Lists>);

/// See the module documentation.
pub struct Tracker {
    secret: HashKey,
    index: Index,
    entries: Entries,
    shards: Box<[Shard]>,
    /// One bit for each shard that may have half-open connections. Changed under the shard's lock.
    half_open: AtomicU64,
    /// The highest number of blocks that any shard has allocated.
    rounds: AtomicU32,
    count: AtomicU32,
    limit: AtomicU32,
    zones: Zones,
    timeouts: Timeouts,
    expected: Expectations,
    fragments: Fragments,
    is_liberal: AtomicBool,
    sweep_interval_ms: AtomicU32,
    figures: Figures,
}

/// What has happened so far, for `coverage/show` and tests.
#[derive(Default)]
struct Figures {
    full: AtomicU64,
    zone_full: AtomicU64,
    evicted: AtomicU64,
    exhausted: AtomicU64,
    lines: AtomicU64,
}

/// A connection that was found, and from which of its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
pub(crate) struct Found {
    entry: u32,
    is_reply: bool,
    generation: Generation,
}

impl Tracker {
    pub fn new() -> std::io::Result<Tracker> {
        Tracker::with_secret(HashKey::random())
    }

    /// Like [`Self::new`], with hashes known to a test.
    pub fn with_secret(secret: HashKey) -> std::io::Result<Tracker> {
        Ok(Tracker {
            secret,
            index: Index::new(BUCKETS)?,
            entries: Region::growing_once_used(ENTRIES)?,
            shards: (0..SHARDS).map(|_| Shard(Mutex::new(Lists::new()))).collect(),
            half_open: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            count: AtomicU32::new(0),
            limit: AtomicU32::new(LIMIT_DEFAULT),
            zones: Zones::new()?,
            timeouts: Timeouts::default(),
            expected: Expectations::new(),
            fragments: Fragments::default(),
            is_liberal: AtomicBool::new(false),
            sweep_interval_ms: AtomicU32::new(30_000),
            figures: Figures::default(),
        })
    }

    // ---- what an operator sets and asks for

    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Fragments that wait for the rest of their datagram.
    pub fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// Number of connections.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    pub fn limit(&self) -> u32 {
        self.limit.load(Relaxed)
    }

    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
    }

    pub fn zone_count(&self, zone: u16) -> u32 {
        self.zones.count(zone)
    }

    /// The limit that applies to a zone: its own, or the default.
    pub fn zone_limit(&self, zone: u16) -> Option<u32> {
        self.zones.limit(zone).or_else(|| self.zones.default_limit())
    }

    pub fn default_zone_limit(&self) -> Option<u32> {
        self.zones.default_limit()
    }

    pub fn set_zone_limit(&self, zone: u16, limit: Option<u32>) {
        self.zones.set_limit(zone, limit);
    }

    pub fn set_default_zone_limit(&self, limit: Option<u32>) {
        self.zones.set_default_limit(limit);
    }

    /// Zones with limits of their own.
    pub fn limited_zones(&self) -> impl Iterator<Item = (u16, u32)> {
        self.zones.limited()
    }

    /// Whether TCP's sequence numbers are checked.
    pub fn checks_sequence(&self) -> bool {
        !self.is_liberal.load(Relaxed)
    }

    pub fn set_checks_sequence(&self, checks: bool) {
        self.is_liberal.store(!checks, Relaxed);
    }

    /// Open vSwitch's interval between two sweeps. It has no effect here: connections expire by a wheel.
    pub fn sweep_interval_ms(&self) -> u32 {
        self.sweep_interval_ms.load(Relaxed)
    }

    pub fn set_sweep_interval_ms(&self, ms: u32) {
        self.sweep_interval_ms.store(ms, Relaxed);
    }

    /// New connections that were refused: at the overall ceiling, at a zone's, or because no address was
    /// left; and half-open connections that were evicted. Fragments that were refused because there was no
    /// room or because their datagram had too many, and lines that a helper refused.
    pub fn refused(&self) -> [(&'static str, u64); 7] {
        let f = &self.figures;
        let [v4, v6] = &self.fragments.figures;
        let of_both = |of: fn(&fragments::Figures) -> &AtomicU64| of(v4).load(Relaxed) + of(v6).load(Relaxed);
        [
            ("conntrack_fragments_full", of_both(|figures| &figures.no_room)),
            ("conntrack_fragments_too_many", of_both(|figures| &figures.too_many)),
            ("conntrack_full", f.full.load(Relaxed)),
            ("conntrack_zone_full", f.zone_full.load(Relaxed)),
            ("conntrack_nat_exhausted", f.exhausted.load(Relaxed)),
            ("conntrack_evicted", f.evicted.load(Relaxed)),
            ("conntrack_helper_refused", f.lines.load(Relaxed)),
        ]
    }

    /// Sets the timeouts of a zone's connections, in seconds; missing ones have the default. `None`: new
    /// connections have the default timeouts, and so do the existing ones from their next packet on.
    pub fn set_zone_timeouts(&self, zone: u16, timeouts_s: Option<&[(Phase, u32)]>) {
        let policy = u32::from(zone) + 1;
        self.timeouts.set(policy, timeouts_s.unwrap_or_default().iter().copied());
        self.zones.set_policy(zone, if timeouts_s.is_some() { policy } else { 0 });
    }

    // ---- lookups

    /// Prefetches the line that a lookup of this tuple touches first, and returns the hash that
    /// [`Self::fetch_entry`] needs.
    #[inline(always)]
    pub fn fetch_bucket(&self, tuple: &Tuple, zone: u16) -> u64 {
        let hash = tuple.hash(zone, &self.secret);
        self.index.prefetch(hash);
        hash
    }

    /// Prefetches the lines of the entry that most likely has this hash.
    #[inline(always)]
    pub fn fetch_entry(&self, hash: u64) {
        if let Some(place) = self.index.likely(hash) {
            Entry::fetch(&self.entries, place.entry, place.of != Which::Both);
        }
    }

    /// For a connection that will probably be committed and translated: the reverse tuple that it gets if
    /// that is free, whose line of the index is prefetched.
    fn fetch_translated(&self, tuple: &Tuple, hash: u64, request: &Request) -> Option<Preferred> {
        let Some(Nat::New(range)) = request.nat else { return None };
        if range.is_random || self.index.likely(hash).is_some() {
            return None;
        }
        let reverse = nat::Candidates::new(range, tuple, request.zone, &self.secret, 0).best;
        let hash = reverse.hash(request.zone, &self.secret);
        self.index.prefetch(hash);
        Some(Preferred { reverse, hash })
    }

    /// Prefetches the line that [`Self::pass`] touches.
    #[inline(always)]
    pub(crate) fn fetch(&self, found: Found) {
        Entry::fetch_first(&self.entries, found.entry);
    }

    #[inline(always)]
    fn entry(&self, idx: u32) -> &Entry {
        &self.entries[idx as usize]
    }

    /// The connection of a tuple, in either direction. An expired one is not found.
    pub(crate) fn find(&self, tuple: &Tuple, zone: u16, now_ms: u64) -> Option<Found> {
        self.find_by(tuple.hash(zone, &self.secret), tuple, zone, |entry| entry.expiry_ms() > now_ms)
    }

    fn find_by(&self, hash: u64, tuple: &Tuple, zone: u16, wanted: impl Fn(&Entry) -> bool) -> Option<Found> {
        if !self.index.may_have(hash) {
            return None;
        }
        let packed = tuple.packed(zone);
        self.index.find(hash, &self.entries, |idx| {
            let entry = self.entry(idx);
            let (is_reply, generation) = entry.is_reply(&packed)?;
            wanted(entry).then_some(Found { entry: idx, generation, is_reply })
        })
    }

    // ---- connections come and go

    fn shard(&self, n: usize) -> MutexGuard<'_, Lists> {
        // No code panics while it holds this lock; if one did, the lists would still be valid.
        self.shards[n % SHARDS].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry belongs to the shard that allocated its block.
    fn shard_of(entry: u32) -> usize {
        (entry / Lists::BLOCK) as usize % SHARDS
    }

    /// The first entry of a shard's block with this number. Blocks are dealt out in turn, so an entry's
    /// number tells which shard owns it.
    fn block(&self, shard: usize, number: u32) -> Option<u32> {
        let first = (number as usize * SHARDS + shard % SHARDS) * Lists::BLOCK as usize;
        (first < ENTRIES).then(|| {
            if self.rounds.fetch_max(number + 1, Relaxed) <= number {
                self.entries.in_use(first + Lists::BLOCK as usize);
            }
            first as u32
        })
    }

    /// Numbers of all entries allocated by any shard so far.
    fn taken(&self) -> std::ops::Range<u32> {
        1..self.rounds.load(Relaxed) * SHARDS as u32 * Lists::BLOCK
    }

    /// Whether the connection has not been answered yet; or, for TCP, is over: a reset from the end that
    /// opened it needs no answer.
    fn is_half_open(&self, entry: &Entry) -> bool {
        if entry.forward().protocol == tuple::TCP {
            let ends = entry.peers().map(|peer| peer.state);
            return ends.iter().any(|state| *state < State::Established) || ends == [State::TimeWait; 2];
        }
        !entry.traits().has(Traits::ANSWERED)
    }

    /// Ends a connection. False if another thread does so.
    fn end(&self, entry: u32, generation: Generation) -> bool {
        self.end_in(entry, generation, None)
    }

    fn end_in(&self, idx: u32, generation: Generation, lists: Option<&mut Lists>) -> bool {
        let entry = self.entry(idx);
        if !entry.end(generation) {
            return false;
        }
        let (forward, reverse, zone) = entry.tuples();
        let has_two_places = entry.traits().has(Traits::TWO_PLACES);
        let remove = |tuple: Tuple, of| {
            self.index.remove(tuple.hash(zone, &self.secret), Place { entry: idx, of }, &self.entries);
        };
        remove(forward, if has_two_places { Which::Forward } else { Which::Both });
        if has_two_places {
            remove(reverse, Which::Reverse);
        }
        self.uncount(zone);
        match lists {
            Some(lists) => self.give_back(lists, idx),
            None => self.give_back(&mut self.shard(Tracker::shard_of(idx)), idx),
        }
        true
    }

    fn give_back(&self, lists: &mut Lists, idx: u32) {
        lists.unlink(idx, &self.entries);
        let (annex, _) = self.entry(idx).annex();
        if annex != 0 {
            lists.give_back(annex, &self.entries);
        }
        lists.give_back(idx, &self.entries);
    }

    /// Ends connections whose time is over; looks at no more than `budget`. False if none is left.
    fn turn(&self, lists: &mut Lists, now_ms: u64, budget: u32) -> bool {
        for _ in 0..budget {
            let Some(idx) = lists.due(now_ms) else { return false };
            let entry = self.entry(idx);
            match entry.generation() {
                Some(generation) if entry.expiry_ms() <= now_ms => {
                    if !self.end_in(idx, generation, Some(lists)) {
                        lists.later(idx, now_ms, &self.entries);
                    }
                }
                _ => lists.later(idx, now_ms, &self.entries),
            }
        }
        true
    }

    /// Ends connections whose time is over in all shards; looks at about `budget`. For idle workers: new
    /// connections clean up old ones, too. True if more may be left.
    pub fn expire(&self, now_ms: u64, budget: u32) -> bool {
        let each = budget.div_ceil(SHARDS as u32);
        let mut has_more = false;
        for n in 0..SHARDS {
            // If another thread holds the lock, that thread cleans up.
            if let Ok(mut lists) = self.shards[n].0.try_lock() {
                has_more |= self.turn(&mut lists, now_ms, each);
            }
        }
        has_more
    }

    /// Counts one more connection, if there is room or room can be made.
    fn has_room(&self, hash: u64, zone: u16) -> bool {
        let shard = hash as usize >> 20;
        let has_room = self.zones.enter(zone) || self.make_room(shard, Some(zone)) && self.zones.enter(zone);
        if !has_room {
            self.figures.zone_full.fetch_add(1, Relaxed);
            return false;
        }
        let before = self.count.fetch_add(1, Relaxed);
        self.index.in_use(before);
        if before < self.limit() {
            return true;
        }
        // Two, so that their number falls if the limit was lowered.
        for _ in 0..2 {
            if self.make_room(shard, None) && self.count.load(Relaxed) <= self.limit() {
                return true;
            }
        }
        self.uncount(zone);
        self.figures.full.fetch_add(1, Relaxed);
        false
    }

    /// Counts one connection less.
    fn uncount(&self, zone: u16) {
        self.zones.leave(zone);
        self.count.fetch_sub(1, Relaxed);
    }

    /// Evicts a half-open connection, the oldest of the first shard that has one: from `zone` if that is
    /// full, else from the zone that has the most. Shards without any are passed over without their lock.
    fn make_room(&self, first_shard: usize, zone: Option<u16>) -> bool {
        let mut tries = EVICTION_TRIES;
        for n in 0..SHARDS {
            let bit = 1 << ((first_shard + n) % SHARDS);
            if self.half_open.load(Relaxed) & bit == 0 {
                continue;
            }
            let mut lists = self.shard(first_shard + n);
            if !lists.has_half_open() {
                self.half_open.fetch_and(!bit, Relaxed);
                continue;
            }
            let mut at = 0;
            while let Some(idx) = lists.half_open_after(at, zone, &self.entries) {
                if tries == 0 {
                    return false;
                }
                tries -= 1;
                let entry = self.entry(idx);
                let Some(generation) = entry.generation() else {
                    at = idx;
                    continue;
                };
                if !self.is_half_open(entry) {
                    lists.leave_half_open(idx, &self.entries);
                } else if zone.is_some_and(|zone| entry.zone() != zone)
                    || !self.end_in(idx, generation, Some(&mut lists))
                {
                    at = idx;
                } else {
                    self.figures.evicted.fetch_add(1, Relaxed);
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
