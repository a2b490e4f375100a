//! One packet through the tracker.
//!
//! 1. A packet that was last tracked in another zone has no state in this one yet.
//! 2. Find the connection by the packet's tuple; if the packet was translated before, by its present tuple.
//! 3. `force`: forget a connection that was opened from the other end.
//! 4. A known connection: the packet updates it and gets its state, and is translated as the connection says.
//! 5. Otherwise a new connection: committed if that was asked for and there is room.
//! 6. What the packet's rules will see: zone, mark, label, original tuple.

use super::entry::{Entry, Generation, Held, Traits};
use super::expect::Expected;
use super::index::{Place, Which};
use super::nat::Candidates;
use super::request::{Helper, Nat, Range, Request, Side};
use super::seen::Seen;
use super::tcp::{self, Peers, Verdict};
use super::timeouts::Phase;
use super::tuple::{TCP, Tuple, reversed};
use super::{CLEARED_PER_COMMIT, Found, SHARDS, Tracker, Tracking, state};
use base::DropReason;
use std::sync::atomic::Ordering::Relaxed;

/// How a packet's addresses change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The packet's new tuple.
    pub to: Tuple,
    pub side: Side,
    /// An ICMP error: only one of its addresses changes, and the packet that it quotes.
    pub is_error: bool,
}

impl Translation {
    /// The state bits for such a packet.
    pub(super) fn state(&self) -> u8 {
        match self.side {
            Side::Src => state::SRC_NAT,
            Side::Dst => state::DST_NAT,
        }
    }
}

/// A packet of a connection that has a helper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helped {
    pub entry: u32,
    pub generation: Generation,
    pub is_reply: bool,
    pub helper: Helper,
}

/// What the caller passes in about the moment, and what it gets back besides the packet's state.
pub struct Moment<'a> {
    pub now_ms: u64,
    /// The result of [`Tracker::fetch_bucket`] for the packet's tuple, if it was called.
    pub hash: Option<u64>,
    /// The result of [`Tracker::fetch_translated`], if it was called.
    pub preferred: Option<&'a Preferred>,
    /// For choosing ports at random.
    pub random: u64,
    /// How many tuples of translations were tried because others were taken.
    pub(super) tries: u32,
    /// Whether a packet of no known connection is dropped now, since a later `ct` would refuse it.
    pub refuses_unknown: bool,
    /// Whether the input port may begin another connection now.
    pub may_begin: &'a mut dyn FnMut() -> bool,
    /// The packet's connection was ended while it was tracked, so it is tracked once more.
    pub(super) is_again: bool,
    /// Set if the packet's connection has a helper, which must see the packet.
    pub(super) helped: Option<Helped>,
}

impl<'a> Moment<'a> {
    /// For a packet whose tuple has not been looked up yet.
    pub fn new(now_ms: u64, random: u64, may_begin: &'a mut dyn FnMut() -> bool) -> Moment<'a> {
        Moment {
            now_ms,
            hash: None,
            preferred: None,
            random,
            tries: 0,
            refuses_unknown: false,
            may_begin,
            is_again: false,
            helped: None,
        }
    }
}

/// A reverse tuple that a rule's range offers first, with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Preferred {
    pub(super) reverse: Tuple,
    pub(super) hash: u64,
}

/// The outcome for a packet of no known connection.
#[derive(Default)]
struct Begun {
    /// The connection, if one was committed.
    found: Option<Found>,
    translation: Option<Translation>,
    /// The entry of its parent, the connection that announced it.
    parent: Option<u32>,
}

/// How a packet affects a connection.
#[derive(PartialEq)]
enum Moved {
    Stays,
    /// It is over, and the packet is the first of a new one.
    Over,
}

/// The range from which a new connection gets its translation, if any: given by its parent's helper, or else
/// by the rule.
fn range_of(request: &Request, expected: Option<&Expected>, tuple: &Tuple) -> Option<Range> {
    match (expected, request.nat?) {
        (Some(expected), _) => expected.redirect.map(|redirect| redirect.range(tuple.is_ipv6)),
        (None, Nat::New(range)) => Some(range),
        (None, _) => None,
    }
}

const NATTED: u8 = state::SRC_NAT | state::DST_NAT;

impl Tracker {
    /// Tracks a packet that was read as `seen` (`None`: it is invalid). `tracking` and `original` (the tuple
    /// of the direction that opened the connection, with protocol 0 if there is none) belong to the packet.
    /// `Err` drops it.
    pub fn track(
        &self,
        seen: Option<&Seen>,
        request: &Request,
        tracking: &mut Tracking,
        original: &mut Tuple,
        moment: &mut Moment<'_>,
    ) -> Result<Option<Translation>, DropReason> {
        let zone = request.zone;
        let Some(seen) = seen else {
            let state = state::INVALID | state::TRACKED;
            (*tracking, *original) = (Tracking { state, zone, ..Tracking::default() }, Tuple::default());
            return Ok(None);
        };
        // 1.
        let (before, original_before) = (*tracking, *original);
        if tracking.zone != zone {
            tracking.state = 0;
        }
        // 2.
        let now_ms = moment.now_ms;
        let mut tuple = seen.tuple;
        // The hash is the same for both directions.
        let hash = moment.hash.unwrap_or_else(|| tuple.hash(zone, &self.secret));
        let find = |tuple: &Tuple| {
            let found = self.find_by(hash, tuple, zone, |_| true)?;
            let is_over = self.entry(found.entry).expiry_ms() <= now_ms;
            if is_over {
                self.end(found.entry, found.generation);
            }
            (!is_over).then_some(found)
        };
        let mut found = if tracking.state & NATTED != 0 {
            let found = find(&tuple.reversed());
            found.map(|found| {
                let found = Found { is_reply: !found.is_reply, ..found };
                let (forward, reverse, _) = self.entry(found.entry).tuples();
                tuple = if found.is_reply { reverse } else { forward };
                found
            })
        } else {
            find(&tuple)
        };
        // 3.
        if let Some(f) = found.filter(|f| request.force && f.is_reply) {
            self.end(f.entry, f.generation);
            found = None;
        }
        // 4.
        let is_known = found.is_some();
        let found = found.or_else(|| self.find_by_original(request, tracking, before, original, now_ms));
        let met = found.filter(|found| {
            let is_over = self.move_on(*found, seen, tracking, now_ms) == Moved::Over;
            if is_over {
                self.end(found.entry, found.generation);
            }
            !is_over
        });
        if let Some(met) = met {
            let translates = request.nat.is_some() && is_known;
            let translation = translates.then(|| self.as_it_has(met, seen, tracking, before, zone)).flatten();
            // 6.
            tracking.state |= state::TRACKED;
            tracking.zone = zone;
            self.tell(met, request, tracking, original);
            if !moment.is_again && !self.entry(met.entry).is_still(met.generation) {
                // Some of this may be another connection's, which has the entry by now.
                (*tracking, *original) = (before, original_before);
                return self.track_again(seen, request, tracking, original, moment);
            }
            // What its helper changes was changed when it was translated.
            if before.zone != zone || before.state & NATTED == 0 {
                moment.helped = self.helped(met, seen, tracking);
            }
            return Ok(translation);
        }
        // 5.
        let mut begun = Begun::default();
        if found.is_none() && seen.is_error {
            // An error belongs to an existing connection or is invalid.
            tracking.state = state::INVALID;
        } else {
            begun = self.begin(&tuple, seen, request, tracking, moment)?;
        }
        // 6.
        let Begun { found, translation, parent } = begun;
        tracking.state |= state::TRACKED;
        (tracking.zone, tracking.mark, tracking.label) = (zone, 0, 0);
        *original = tuple;
        if let Some(found) = found {
            // A connection starts without a mark, unless its rule or its parent gives it one.
            if parent.is_some() || request.mark.is_some() || request.label.is_some() {
                self.tell(found, request, tracking, original);
            }
            if request.helper.is_some() {
                moment.helped = self.helped(found, seen, tracking);
            }
        } else if let Some(parent) = parent {
            let entry = self.entry(parent);
            (tracking.mark, tracking.label, *original) = (entry.mark(), entry.label(), entry.forward());
        }
        Ok(translation)
    }

    /// Apart, so that [`Self::track`] can be compiled into its callers.
    #[cold]
    #[inline(never)]
    fn track_again(
        &self,
        seen: &Seen,
        request: &Request,
        tracking: &mut Tracking,
        original: &mut Tuple,
        moment: &mut Moment<'_>,
    ) -> Result<Option<Translation>, DropReason> {
        moment.is_again = true;
        self.track(Some(seen), request, tracking, original, moment)
    }

    /// Whether a helper must see a packet.
    fn helped(&self, found: Found, seen: &Seen, tracking: &Tracking) -> Option<Helped> {
        let traits = self.entry(found.entry).traits();
        if !traits.has(Traits::FTP | Traits::TFTP) || seen.is_error || tracking.state & state::INVALID != 0 {
            return None;
        }
        let helper = if traits.has(Traits::FTP) { Helper::Ftp } else { Helper::Tftp };
        let Found { entry, generation, is_reply } = found;
        Some(Helped { entry, generation, is_reply, helper })
    }

    /// Which end of a connection is translated.
    pub(super) fn side_of(&self, entry: u32) -> Option<Side> {
        let traits = self.entry(entry).traits();
        match (traits.has(Traits::SRC_NAT), traits.has(Traits::DST_NAT)) {
            (false, false) => None,
            (true, _) => Some(Side::Src),
            (false, true) => Some(Side::Dst),
        }
    }

    /// The connection of a packet that was translated before and whose tuple belongs to no connection in this
    /// zone.
    fn find_by_original(
        &self,
        request: &Request,
        tracking: &Tracking,
        before: Tracking,
        original: &Tuple,
        now_ms: u64,
    ) -> Option<Found> {
        let is_meant = tracking.state & NATTED != 0 && original.protocol != 0 && request.nat.is_none();
        let found = is_meant.then(|| self.find(original, before.zone, now_ms)).flatten()?;
        // The packet's own tuple would tell the direction, but it is unknown in this zone.
        Some(Found { is_reply: false, ..found })
    }

    /// Updates a known connection with a packet.
    fn move_on(&self, found: Found, seen: &Seen, tracking: &mut Tracking, now_ms: u64) -> Moved {
        let entry = self.entry(found.entry);
        if seen.is_error {
            tracking.state |= state::RELATED | if found.is_reply { state::REPLY } else { 0 };
            return Moved::Stays;
        }
        let traits = entry.traits();
        if traits.has(Traits::RELATED) {
            tracking.state |= state::RELATED;
        }
        let verdict = if seen.tuple.protocol == TCP {
            self.move_tcp(entry, found, seen, now_ms)
        } else {
            self.move_other(entry, found, seen, traits, now_ms)
        };
        match verdict {
            Verdict::Valid(_) => {
                tracking.state = tracking.state & !state::NEW | state::ESTABLISHED;
                if found.is_reply {
                    tracking.state |= state::REPLY;
                }
            }
            Verdict::StillNew(_) => tracking.state |= state::NEW,
            Verdict::Another => return Moved::Over,
            Verdict::Invalid => tracking.state = state::INVALID,
        }
        Moved::Stays
    }

    fn move_tcp(&self, entry: &Entry, found: Found, seen: &Seen, now_ms: u64) -> Verdict {
        // If other threads keep the connection locked, the packet is judged by it but changes nothing.
        let held: Option<Held<'_>> = entry.hold(found.generation);
        let mut peers = entry.peers();
        let from = usize::from(found.is_reply);
        let mut segment = seen.tcp;
        if entry.traits().has(Traits::FTP) {
            // What is acknowledged is what the other end appeared to send.
            segment.ack = self.adjustments(found.entry)[1 - from].acknowledged(segment.ack);
        }
        let verdict = tcp::update(&mut peers, from, &segment, self.is_liberal.load(Relaxed));
        let mut is_shorter = false;
        if let Some(held) = held {
            held.set_peers(&peers);
            if let Verdict::Valid(Some(phase)) | Verdict::StillNew(phase) = verdict {
                is_shorter = self.renew((entry, found.generation), phase, now_ms);
            }
        }
        if is_shorter {
            self.look_earlier(found, now_ms);
        }
        verdict
    }

    fn move_other(&self, entry: &Entry, found: Found, seen: &Seen, traits: Traits, now_ms: u64) -> Verdict {
        let is_icmp = seen.tuple.is_icmp();
        let mut now = traits;
        if found.is_reply {
            now.0 |= Traits::ANSWERED;
        }
        let phase = match (is_icmp, now.has(Traits::ANSWERED)) {
            (true, true) => Phase::IcmpReply,
            (true, false) => Phase::IcmpFirst,
            (false, true) => Phase::UdpMultiple,
            (false, false) => Phase::UdpSingle,
        };
        let is_shorter = if now == traits {
            // Nothing changes except the timeout.
            self.renew((entry, found.generation), phase, now_ms)
        } else {
            entry.hold(found.generation).is_some_and(|held| {
                // Other threads may have added traits meanwhile.
                held.set_traits(Traits(held.traits().0 | now.0));
                self.renew((entry, found.generation), phase, now_ms)
            })
        };
        if is_shorter {
            self.look_earlier(found, now_ms);
        }
        if now.has(Traits::ANSWERED) { Verdict::Valid(Some(phase)) } else { Verdict::StillNew(phase) }
    }

    /// True if the connection may now be silent for less time than before.
    #[inline(always)]
    pub(super) fn renew(&self, (entry, of): (&Entry, Generation), phase: Phase, now_ms: u64) -> bool {
        let (_, policy) = entry.annex();
        entry.expire_at(of, now_ms + self.timeouts.timeout_ms(policy, phase))
    }

    /// Schedules an earlier check of a connection whose timeout became shorter. Once per step of its life.
    #[cold]
    pub(super) fn look_earlier(&self, found: Found, now_ms: u64) {
        let mut lists = self.shard(Tracker::shard_of(found.entry));
        // An entry in use is in the lists; an unused one leaves them under this lock.
        if self.entry(found.entry).generation() == Some(found.generation) {
            lists.later(found.entry, now_ms, &self.entries);
        }
    }

    /// The connection's translation, for a packet that has not been translated in this zone yet.
    fn as_it_has(
        &self,
        found: Found,
        seen: &Seen,
        tracking: &mut Tracking,
        before: Tracking,
        zone: u16,
    ) -> Option<Translation> {
        self.side_of(found.entry)?;
        if tracking.state & NATTED != 0 {
            if before.zone == zone {
                return None;
            }
            tracking.state &= !NATTED;
        }
        let translation = Translation { is_error: seen.is_error, ..self.translation_of(found)? };
        tracking.state |= translation.state();
        Some(translation)
    }

    /// The translation of packets from one end of a connection, if it has one.
    pub(super) fn translation_of(&self, found: Found) -> Option<Translation> {
        let side = self.side_of(found.entry)?;
        let entry = self.entry(found.entry);
        let (to, side) = match (found.is_reply, side) {
            (false, side) => (entry.reverse().reversed(), side),
            (true, Side::Src) => (entry.forward().reversed(), Side::Dst),
            (true, Side::Dst) => (entry.forward().reversed(), Side::Src),
        };
        Some(Translation { to, side, is_error: false })
    }

    /// A packet of no known connection.
    fn begin(
        &self,
        tuple: &Tuple,
        seen: &Seen,
        request: &Request,
        tracking: &mut Tracking,
        moment: &mut Moment<'_>,
    ) -> Result<Begun, DropReason> {
        let may_be_first = match seen.tuple.protocol {
            TCP => tcp::may_be_first(&seen.tcp),
            _ if seen.tuple.is_icmp() => {
                matches!((tuple.is_ipv6, tuple.dst_port >> 8), (false, 8 | 13 | 15) | (true, 128))
            }
            _ => true,
        };
        if !may_be_first {
            tracking.state = state::INVALID;
            return Ok(Begun::default());
        }
        if moment.refuses_unknown {
            return Err(DropReason::CtPortShare);
        }
        tracking.state = state::NEW;
        let expected =
            self.expected.find(tuple, request.zone, &self.secret, moment.now_ms, |(idx, generation)| {
                self.entry(idx).is_still(generation)
            });
        let parent = expected.map(|expected| {
            tracking.state |= state::RELATED;
            expected.parent.0
        });
        let mut begun = Begun { parent, ..Begun::default() };
        if !request.commit {
            return Ok(begun);
        }
        if !(moment.may_begin)() {
            return Err(DropReason::CtPortShare);
        }
        let hash = moment.hash.filter(|_| *tuple == seen.tuple);
        let hash = hash.unwrap_or_else(|| tuple.hash(request.zone, &self.secret));
        if !self.has_room(hash, request.zone) {
            return Ok(begun);
        }
        let committed = self.put_down(hash, tuple, seen, request, expected.as_ref(), moment);
        let Some((found, translation)) = committed else { return Ok(begun) };
        (begun.found, begun.translation) = (Some(found), translation);
        tracking.state |= begun.translation.as_ref().map_or(0, Translation::state);
        Ok(begun)
    }

    /// Commits a connection, for which room has been counted. If it fails, gives that room back.
    fn put_down(
        &self,
        hash: u64,
        tuple: &Tuple,
        seen: &Seen,
        request: &Request,
        expected: Option<&Expected>,
        moment: &mut Moment<'_>,
    ) -> Option<(Found, Option<Translation>)> {
        let zone = request.zone;
        let (phase, peers) = match tuple.protocol {
            TCP => (Phase::TcpSynSent, tcp::open(&seen.tcp)),
            _ if tuple.is_icmp() => (Phase::IcmpFirst, Peers::default()),
            _ => (Phase::UdpFirst, Peers::default()),
        };
        let shard = hash as usize >> 20;
        let mut lists = self.shard(shard);
        self.turn(&mut lists, moment.now_ms, CLEARED_PER_COMMIT);
        let Some(idx) = lists.take(&self.entries, |number| self.block(shard, number)) else {
            self.figures.full.fetch_add(1, Relaxed);
            self.uncount(zone);
            return None;
        };
        if matches!(request.nat, Some(Nat::New(_))) {
            // Its third line is written soon.
            Entry::fetch(&self.entries, idx, true);
        }
        let entry = self.entry(idx);
        let policy = self.zones.policy(zone);
        entry.set_expiry(moment.now_ms + self.timeouts.timeout_ms(policy, phase));
        let annex = match expected {
            Some(_) => lists.take(&self.entries, |number| self.block(shard, number)).unwrap_or(0),
            None => 0,
        };
        let forward = tuple.packed(zone);
        entry.set_forward(&forward);
        lists.link(idx, moment.now_ms, &self.entries);
        let bit = 1 << (shard % SHARDS);
        if self.half_open.load(Relaxed) & bit == 0 {
            self.half_open.fetch_or(bit, Relaxed);
        }
        drop(lists);
        let inherited = expected.and_then(|expected| {
            let (entry, generation) = expected.parent;
            let parent = self.entry(entry);
            let inherited = (parent.mark(), parent.label(), parent.forward());
            // If the parent has ended meanwhile, that may be another connection's.
            parent.is_still(generation).then_some(inherited)
        });
        let (mark, label, announced_by) = inherited.unwrap_or((0, 0, *tuple));
        entry.set_new(&peers, (mark, label), annex, policy);
        if annex != 0 {
            self.entry(annex).set_forward(&announced_by.packed(zone));
            self.entry(annex).set_adjustments(&Default::default());
        }
        let give_up = || {
            let mut lists = self.shard(shard % SHARDS);
            self.give_back(&mut lists, idx);
            self.uncount(zone);
            None
        };
        let mut traits = Traits(match request.helper {
            Some(Helper::Ftp) => Traits::FTP,
            Some(Helper::Tftp) => Traits::TFTP,
            None => 0,
        });
        if expected.is_some() {
            traits.0 |= Traits::RELATED;
        }
        let (mut reverse, mut has_two_places) = (tuple.reversed(), false);
        if let Some(range) = range_of(request, expected, tuple) {
            // It was chosen for the packet as it came, and by the rule's range.
            let preferred = moment.preferred.filter(|_| expected.is_none() && *tuple == seen.tuple);
            let Some(taken) = self.take_one(idx, tuple, range, preferred, (zone, moment)) else {
                self.figures.exhausted.fetch_add(1, Relaxed);
                return give_up();
            };
            (reverse, has_two_places) = taken;
            traits.0 |= if range.side == Side::Src { Traits::SRC_NAT } else { Traits::DST_NAT };
            traits.0 |= if has_two_places { Traits::TWO_PLACES } else { 0 };
        }
        entry.set_traits(traits);
        let which = if has_two_places { Which::Forward } else { Which::Both };
        // Another's translation may lead to the tuple of the answers.
        let (answers, mut are_anothers) = (reversed(&forward), false);
        // Also matches an entry that has reserved a tuple but not yet begun.
        let is_same = |other: u32| {
            let has = |tuple| other != idx && self.entry(other).direction(tuple).is_some();
            let is_same = has(&forward);
            are_anothers = !is_same && which == Which::Both && has(&answers);
            is_same || are_anothers
        };
        let place = Place { entry: idx, of: which };
        if !self.index.insert(hash, place, &self.entries, is_same) {
            // Another worker has committed the same connection meanwhile, and under its rules the packet
            // belongs to that one.
            if are_anothers {
                self.figures.exhausted.fetch_add(1, Relaxed);
            }
            if has_two_places {
                let place = Place { entry: idx, of: Which::Reverse };
                self.index.remove(reverse.hash(zone, &self.secret), place, &self.entries);
            }
            return give_up();
        }
        // Only now can others end it: they remove it from the index.
        let generation = entry.begin();
        let translation = (has_two_places || traits.has(Traits::SRC_NAT | Traits::DST_NAT)).then(|| {
            let side = if traits.has(Traits::SRC_NAT) { Side::Src } else { Side::Dst };
            Translation { to: reverse.reversed(), side, is_error: false }
        });
        Some((Found { entry: idx, generation, is_reply: false }, translation))
    }

    /// Reserves the first free reverse tuple of a range, and says whether it has a place of its own.
    fn take_one(
        &self,
        idx: u32,
        forward: &Tuple,
        range: Range,
        preferred: Option<&Preferred>,
        (zone, moment): (u16, &mut Moment<'_>),
    ) -> Option<(Tuple, bool)> {
        let (now_ms, mut tries) = (moment.now_ms, 0);
        let mut takes = |reverse: Tuple, hash: u64| {
            let taken = self.take_reverse(idx, forward, &reverse, (zone, hash), now_ms);
            tries += u32::from(taken.is_none());
            taken.map(|has_two_places| (reverse, has_two_places))
        };
        let mut taken = preferred.and_then(|&Preferred { reverse, hash }| takes(reverse, hash));
        if taken.is_none() {
            let candidates = Candidates::new(range, forward, zone, &self.secret, moment.random);
            let best = preferred.is_none().then_some(candidates.best);
            let mut all = best.into_iter().chain(candidates.others());
            taken = all.find_map(|reverse| takes(reverse, reverse.hash(zone, &self.secret)));
        }
        moment.tries += tries;
        taken
    }

    /// Reserves a reverse tuple with this hash for a new connection whose entry has the forward one. Returns
    /// whether it has a place of its own; `None` if another connection has it, in either direction.
    pub(super) fn take_reverse(
        &self,
        idx: u32,
        forward: &Tuple,
        reverse: &Tuple,
        (zone, hash): (u16, u64),
        now_ms: u64,
    ) -> Option<bool> {
        if forward.is_same_either_way(reverse) {
            // The forward tuple's place covers this tuple too. Another connection may have it by its own
            // translation.
            let is_free = self.find(reverse, zone, now_ms).is_none_or(|found| found.entry == idx);
            return is_free.then_some(false);
        }
        // Where a range is used up, that is nearly always the case, and looking takes no lock.
        let is_live = |entry: &Entry| entry.expiry_ms() > now_ms;
        if self.find_by(hash, reverse, zone, is_live).is_some_and(|found| found.entry != idx) {
            return None;
        }
        let packed = reverse.packed(zone);
        // The entry has the tuple before any lookup can find it there; it does not answer before it begins.
        let entry = self.entry(idx);
        entry.set_reverse(&packed);
        entry.set_traits(Traits(Traits::TWO_PLACES));
        let is_same = |other: u32| other != idx && self.entry(other).direction(&packed).is_some();
        let takes =
            || self.index.insert(hash, Place { entry: idx, of: Which::Reverse }, &self.entries, is_same);
        if takes() {
            return Some(true);
        }
        // One whose time is over does not keep it.
        let over = self.find_by(hash, reverse, zone, |entry| entry.expiry_ms() <= now_ms)?;
        self.end(over.entry, over.generation);
        takes().then_some(true)
    }

    /// Writes mark and label to the connection, and what rules see of it to the packet's tracking result.
    fn tell(&self, found: Found, request: &Request, tracking: &mut Tracking, original: &mut Tuple) {
        let entry = self.entry(found.entry);
        let (traits, (annex, _)) = (entry.traits(), entry.annex());
        *original = entry.forward();
        if traits.has(Traits::RELATED) && annex != 0 {
            *original = self.entry(annex).forward();
        }
        // An expected connection inherits the mark and label of its parent.
        let is_own = !traits.has(Traits::RELATED);
        let wide = |(value, mask): (u32, u32)| (value.into(), mask.into());
        let (new_mark, new_label) = (request.mark.filter(|_| is_own), request.label.filter(|_| is_own));
        let (new_mark, new_label): (Option<(u128, u128)>, _) = (new_mark.map(wide), new_label);
        let has =
            |old: u128, new: Option<(u128, u128)>| new.is_none_or(|(value, mask)| old & mask == value & mask);
        let merged = |old: u128, (value, mask): (u128, u128)| old & !mask | value & mask;
        let mut now = entry.label_at_rest().map(|label| (entry.mark(), label));
        if now.is_none_or(|(mark, label)| !has(mark.into(), new_mark) || !has(label, new_label))
            && let Some(held) = entry.hold(found.generation)
        {
            // Only now, and only what was asked for: another thread may have set other bits meanwhile.
            if let Some(new) = new_mark {
                held.set_mark(merged(held.mark().into(), new) as u32);
            }
            if let Some(new) = new_label {
                held.set_label(merged(held.label(), new));
            }
            now = Some((held.mark(), held.label()));
        }
        (tracking.mark, tracking.label) = now.unwrap_or_else(|| (entry.mark(), entry.label()));
    }
}
