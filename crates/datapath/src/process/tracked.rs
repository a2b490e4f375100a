//! Stage 4, of packets that are tracked and then go round again, with nothing between: `ct(table=...)`.
//!
//! Nearly all are of connections that are established, and of flows that the next round's exact tier knows.
//! Such a packet need not wait for that round: its connection is [followed](crate::conntrack), and it goes
//! where the exact entry of the next round says, which is counted as if it had come round; and so on, if that
//! tracks it again. From packet to packet of a flow both are the same, so the flow's
//! [trail](crate::cache::trails) tells where they were, and no table is looked into.
//!
//! Packets of one direction of a connection keep their order: once one of a burst goes round, those behind it
//! that may be of the same do so, too.

use super::*;
use crate::DpAction;
use crate::cache::trails::Trail;
use crate::conntrack::follow::Followed;
use crate::conntrack::run::was_read;
use crate::conntrack::{Found, nat, seen};
use crate::recirculation::may_go_round;

/// Which connections have packets of the burst that go round, by a bit of their addresses and ports.
pub(super) struct GoingRound(u64);

impl GoingRound {
    /// None so far.
    pub fn none() -> GoingRound {
        GoingRound(0)
    }

    /// Nobody knows which.
    pub fn any(&mut self) {
        self.0 = u64::MAX;
    }

    /// The bit of a plain packet's connection: of one direction, for order matters in each alone.
    #[inline(always)]
    fn bit(EntryKey([_, ports, addresses, _]): &EntryKey) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        1 << ((addresses ^ (ports >> 32).wrapping_mul(ODD)).wrapping_mul(ODD) >> 58)
    }
}

/// What the action of an entry asks the tracker for, and where packets come round then.
struct Asked {
    zone: u16,
    translates: bool,
    recirc_id: u32,
}

/// What became of a packet.
enum Fate {
    /// It is where it was to go.
    Left,
    /// It waits for another round.
    GoesRound,
    /// Nothing: it is to be tracked as any other.
    Untouched(Packet),
}

impl<P: Pipeline> Process<P> {
    /// Packets from run `first` up to `end`, next in the batch, which have one list, of the verdict
    /// [`Verdict::Track`].
    #[inline(never)]
    pub(super) fn tracked_leave(
        &mut self,
        burst: &Classified,
        (first, end): (usize, usize),
        runs: &mut Runs<'_>,
        round: &mut GoingRound,
    ) {
        let (Decision { body, .. }, _) = burst.verdict(first);
        self.fetch_trails(burst, (first, end), body);
        let mut at = first;
        while at < end {
            if let Some(entry) = self.followable(burst, at, round) {
                at = self.row_leaves(burst, at, entry, runs, round);
                continue;
            }
            let start = at;
            while at < end && self.followable(burst, at, round).is_none() {
                round.0 |= burst.plain(at).map_or(u64::MAX, |(key, _)| GoingRound::bit(key));
                (_, at) = burst.verdict(at);
            }
            let mut run = burst.run(start, at, runs);
            self.execute_list(body, &mut run);
        }
    }

    /// Has what is most likely needed fetched: trails, then what they lead to.
    fn fetch_trails(&self, burst: &Classified, (first, end): (usize, usize), body: u32) {
        let list = self.cache.actions(body);
        let translates = matches!(list.first(), Some(DpAction::Ct(request)) if request.nat.is_some());
        let each = || {
            let next = |at: usize| (at < end).then_some(at);
            let heads = std::iter::successors(next(first), move |at| next(burst.verdict(*at).1));
            heads.filter_map(|at| burst.plain(at))
        };
        each().for_each(|(_, entry)| self.cache.trails.prefetch(entry));
        for (_, entry) in each() {
            let trail = self.cache.trails.get(entry);
            self.context.tracker.fetch(trail.connection, translates);
            self.cache.exact_fetch(trail.next);
        }
    }

    /// The exact entry that answered for a run, where its packets may be followed.
    #[inline(always)]
    fn followable(&mut self, burst: &Classified, at: usize, round: &GoingRound) -> Option<u32> {
        let (key, entry) = burst.plain(at)?;
        let e = self.cache.entry(Which::Exact, entry);
        let is_its = e.key.equals(key) && e.decision.verdict == Verdict::Track;
        (is_its && round.0 & GoingRound::bit(key) == 0).then_some(entry)
    }

    /// The packets of one run leave, as far as they can be followed. Returns where the next one begins.
    #[inline(always)]
    fn row_leaves(
        &mut self,
        burst: &Classified,
        at: usize,
        entry: u32,
        runs: &mut Runs<'_>,
        round: &mut GoingRound,
    ) -> usize {
        let (Decision { body, .. }, behind) = burst.verdict(at);
        let mut is_followed = true;
        for packet in (at..behind).map_while(|_| runs.take()) {
            let fate = match is_followed {
                true => self.follow(burst, entry, body, packet),
                false => Fate::Untouched(packet),
            };
            if let Fate::Untouched(packet) = fate {
                let mut alone = Run::new(burst.metadata());
                alone.push(packet, burst.layers(at));
                alone.originals.extend(burst.original(at).copied());
                self.execute_list(body, &mut alone);
            } else if matches!(fate, Fate::Left) {
                continue;
            }
            is_followed = false;
            round.0 |= burst.plain(at).map_or(u64::MAX, |(key, _)| GoingRound::bit(key));
        }
        behind
    }

    /// Follows a packet of an exact entry with this body through one round after the other.
    fn follow(&mut self, burst: &Classified, mut entry: u32, mut body: u32, mut packet: Packet) -> Fate {
        let Arrival { input, of_port, at, .. } = *burst.arrival();
        let mut metadata = burst.metadata();
        let mut connection = None;
        loop {
            // What becomes of it is a list that has it tracked.
            let Process { cache, context, pipeline, reader, tx, now_ms, .. } = self;
            let followed = asked(cache.actions(body), &metadata).and_then(|asked| {
                let how = (&asked, was_read(&metadata));
                Some((follow_once(cache, context, entry, &packet, how, *now_ms)?, asked))
            });
            let Some(((found, Followed { tracking, translation }), asked)) = followed else {
                return match connection {
                    None => Fate::Untouched(packet),
                    Some(found) => self.carry_out(body, metadata, found, packet),
                };
            };
            connection = Some(found);
            metadata = Metadata {
                recirc_id: asked.recirc_id,
                recirc_depth: metadata.recirc_depth + 1,
                tracking,
                ..metadata
            };
            if let Some(to) = translation {
                nat::translate_plain(&mut packet, &to);
            }
            let trail = cache.trails.get(entry);
            let Some((origin, next)) =
                next_entry(cache, input, Origin::new(of_port, metadata), &packet, &trail)
            else {
                return self.goes_round(metadata, found, packet);
            };
            let version = ShortVersion::of(at.version);
            if cache.entry(Which::Exact, next).version != version
                && !cache.renew(Which::Exact, next, &mut Sights::new(&**pipeline, reader, at.version))
            {
                return self.goes_round(metadata, found, packet);
            }
            let new = Trail { connection: found, origin, next };
            if trail != new {
                cache.trails.set(entry, new);
            }
            let e = cache.entry(Which::Exact, next);
            let Decision { verdict, body: next_body } = e.decision;
            if !matches!(verdict, Verdict::Unknown | Verdict::Stale) {
                e.hit(1, packet.len() as u32, at.now);
                if e.is_alone != 0 {
                    context.input.met_alone(*now_ms);
                }
                if e.counts.is_full() {
                    cache.fold(Which::Exact, next);
                }
                context.stats.recirculations.add(1);
                context.stats.followed.add(1);
                context.stats.exact_hits.add(1);
            }
            match verdict {
                Verdict::Output(port) => tx.send(context, PortNo(port.into()), packet),
                Verdict::Drop(reason) => context.drop(packet, reason),
                Verdict::Track => {
                    (entry, body) = (next, next_body);
                    continue;
                }
                Verdict::Actions => return self.carry_out(next_body, metadata, found, packet),
                Verdict::Unknown | Verdict::Stale => return self.goes_round(metadata, found, packet),
            }
            return Fate::Left;
        }
    }

    /// Carries out an entry's list on a packet that was followed.
    #[inline(never)]
    fn carry_out(&mut self, body: u32, metadata: Metadata, found: Found, packet: Packet) -> Fate {
        let mut alone = Run::new(metadata);
        alone.push(packet, Layers::UNKNOWN);
        alone.originals.push(self.context.tracker.original(found));
        self.execute_list(body, &mut alone);
        if self.context.recirculation.is_empty() { Fate::Left } else { Fate::GoesRound }
    }

    /// Has a packet that was followed go round as others do.
    #[inline(never)]
    fn goes_round(&mut self, metadata: Metadata, found: Found, packet: Packet) -> Fate {
        let original = self.context.tracker.original(found);
        self.context.recirculate(metadata, Some(&original), packet);
        Fate::GoesRound
    }
}

/// What a list of the verdict [`Verdict::Track`] asks for, of packets that can be followed as far as what
/// goes with them says.
#[inline(always)]
fn asked(actions: &[DpAction], metadata: &Metadata) -> Option<Asked> {
    let [DpAction::Ct(request), DpAction::Recirc(recirc_id)] = actions else { return None };
    let Metadata { tracking, recirc_depth, .. } = metadata;
    let is_new_there = tracking.state == 0 || tracking.zone != request.zone;
    (is_new_there && may_go_round(recirc_depth + 1)).then_some(Asked {
        zone: request.zone,
        translates: request.nat.is_some(),
        recirc_id: *recirc_id,
    })
}

/// Follows a packet of an exact entry.
#[inline(always)]
fn follow_once(
    cache: &FlowCache,
    context: &Context,
    entry: u32,
    packet: &Packet,
    (asked, was_valid): (&Asked, bool),
    now_ms: u64,
) -> Option<(Found, Followed)> {
    if packet.is_lent() || packet.is_chained() {
        return None;
    }
    let seen = seen::read_plain(packet, was_valid)?;
    let wish = (asked.zone, asked.translates);
    let likely = cache.trails.get(entry).connection;
    if let Some(followed) = context.tracker.follow(likely, &seen, wish, now_ms) {
        return Some((likely, followed));
    }
    let found = context.tracker.known(&seen, asked.zone, now_ms)?;
    Some((found, context.tracker.follow(found, &seen, wish, now_ms)?))
}

/// The exact entry of a packet in its next round, and what that round's keys say of its origin.
#[inline(always)]
fn next_entry(
    cache: &mut FlowCache,
    input: InputIdx,
    origin: Origin,
    packet: &Packet,
    trail: &Trail,
) -> Option<(u64, u32)> {
    let said = match cache.is_origin(input, trail.origin, &origin) {
        true => trail.origin,
        false => cache.plain_origin(input, origin, Depth::Everything)?,
    };
    let key = plain_key(packet.data(), packet.len(), Depth::Everything, said)?;
    if cache.entry(Which::Exact, trail.next).key.equals(&EntryKey::plain(key)) {
        return Some((said, trail.next));
    }
    let key = ExactKey::Plain(key);
    let found = cache.exact_find(cache.exact_probe(&key), &key);
    (found != 0).then_some((said, found))
}
