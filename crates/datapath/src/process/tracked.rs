//! Stage 4, of packets that are tracked and then go round again, with nothing between: `ct(table=...)`.
//!
//! Nearly all are of connections that are established, and of flows that the next round's caches know. Such
//! a packet need not wait for that round: its connection is [followed](crate::conntrack), and it goes where
//! the megaflow of the next round says, which is counted as if it had come round; and so on, if that tracks
//! it again. From packet to packet of a flow both are the same, so the flow's [trail](crate::cache::trails)
//! tells where they were, and no table is looked into: a packet touches the trail, one line of the
//! connection, and the megaflow, which it shares with many.
//!
//! Packets of one direction of a connection keep their order: once one of a burst goes round, those behind it
//! that may be of the same do so, too.

use super::*;
use crate::DpAction;
use crate::cache::trails::Trail;
use crate::conntrack::follow::{Followed, Marked};
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

/// One round of a packet that did not wait for it.
struct Step {
    connection: Found,
    tracking: Tracking,
    /// What becomes of it then. [`Verdict::Unknown`] where it is to wait, after all.
    next: Decision,
}

/// Packets that were followed, still next in the batch, and the megaflow of the next round that says where
/// all of them leave. They are counted and sent at once: the processor would have to wait for a packet's
/// handle that is moved about by itself.
struct Together {
    flow: u32,
    serial: u64,
    decision: Decision,
    packets: u32,
    bytes: u32,
}

impl Together {
    /// No trail leads there.
    const NOWHERE: Together =
        Together { flow: 0, serial: u64::MAX, decision: Decision::UNKNOWN, packets: 0, bytes: 0 };
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
        self.fetch_ends(burst, (first, end));
        let mut together = Together::NOWHERE;
        let mut at = first;
        while at < end {
            if let Some(entry) = self.followable(burst, at, round) {
                at = self.row_leaves(burst, at, entry, (runs, &mut together), round);
                continue;
            }
            self.together_leave(burst.arrival(), runs, &mut together);
            let start = at;
            while at < end && self.followable(burst, at, round).is_none() {
                round.0 |= burst.plain(at).map_or(u64::MAX, |(key, _)| GoingRound::bit(key));
                (_, at) = burst.verdict(at);
            }
            let mut run = burst.run(start, at, runs);
            self.execute_list(body, &mut run);
        }
        self.together_leave(burst.arrival(), runs, &mut together);
    }

    /// Has what trails lead to fetched. They were asked for when the exact tier answered.
    #[inline(always)]
    fn fetch_ends(&self, burst: &Classified, (first, end): (usize, usize)) {
        let mut at = first;
        while at < end {
            if let Some((_, entry)) = burst.plain(at) {
                let trail = self.cache.trails.get(entry);
                self.context.tracker.fetch(trail.connection);
                self.cache.mega_fetch(trail.next);
            }
            (_, at) = burst.verdict(at);
        }
    }

    /// The exact entry that answered for a run, where its packets may be followed.
    #[inline(always)]
    fn followable(&mut self, burst: &Classified, at: usize, round: &GoingRound) -> Option<u32> {
        let (key, entry) = burst.plain(at)?;
        let e = self.cache.entry(Which::Exact, entry);
        let is_its = e.key.equals(key) && e.decision.verdict == Verdict::Track;
        (is_its && (round.0 == 0 || round.0 & GoingRound::bit(key) == 0)).then_some(entry)
    }

    /// The packets of one run leave, as far as they can be followed. Returns where the next one begins.
    #[inline(always)]
    fn row_leaves(
        &mut self,
        burst: &Classified,
        at: usize,
        entry: u32,
        (runs, together): (&mut Runs<'_>, &mut Together),
        round: &mut GoingRound,
    ) -> usize {
        let (Decision { body, .. }, behind) = burst.verdict(at);
        let mut is_followed = true;
        for _ in at..behind {
            if is_followed && self.joins(burst.arrival(), entry, runs, together) {
                continue;
            }
            self.together_leave(burst.arrival(), runs, together);
            let Some(packet) = runs.take() else { break };
            let fate = match is_followed {
                true => self.follow(burst.arrival(), (entry, body), packet),
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

    /// The next packet joins those that leave together, by its entry's trail. False where it is to go another
    /// way, and nothing was done that a second time would not do alike.
    #[inline(always)]
    fn joins(&mut self, arrival: &Arrival, entry: u32, runs: &mut Runs<'_>, together: &mut Together) -> bool {
        let &Trail { next, next_serial, .. } = self.cache.trails.get(entry);
        if (next, next_serial) != (together.flow, together.serial) {
            let decision = self.said_by((next, next_serial), arrival, &arrival.metadata);
            let Some(decision @ Decision { verdict: Verdict::Output(_) | Verdict::Drop(_), .. }) = decision
            else {
                return false;
            };
            self.together_leave(arrival, runs, together);
            *together = Together { flow: next, serial: next_serial, decision, packets: 0, bytes: 0 };
        }
        let Some(packet) = runs.behind(together.packets as usize) else { return false };
        if !self.passes(&arrival.metadata, entry, packet) {
            return false;
        }
        together.packets += 1;
        together.bytes += packet.len() as u32;
        true
    }

    /// Those that leave together do.
    #[inline(always)]
    fn together_leave(&mut self, arrival: &Arrival, runs: &mut Runs<'_>, together: &mut Together) {
        let Together { flow, decision, packets, bytes, .. } = *together;
        if packets == 0 {
            return;
        }
        (together.packets, together.bytes) = (0, 0);
        let Process { cache, context, tx, .. } = self;
        count_round(cache, context, (Which::Mega, flow), (packets, bytes), arrival.at.now);
        match decision.verdict {
            Verdict::Output(port) => tx.send_run(context, PortNo(port.into()), runs, packets as usize),
            Verdict::Drop(reason) => context.drop_all((0..packets).map_while(|_| runs.take()), reason),
            _ => unreachable!("nobody joins those"),
        }
    }

    /// Follows a packet of an exact entry with this body through one round after the other.
    #[inline(never)]
    fn follow(&mut self, arrival: &Arrival, (entry, body): (u32, u32), mut packet: Packet) -> Fate {
        let by_trail = self.by_trail(arrival, &arrival.metadata, entry, &mut packet);
        self.follow_on(arrival, by_trail, (entry, body), packet)
    }

    /// A packet of an exact entry goes one round by the entry's trail, and is translated and counted, unless
    /// it is to be tracked again. Returns what becomes of it then; `None` where it is to go another way, and
    /// nothing was done that a second time would not do alike.
    fn by_trail(
        &mut self,
        arrival: &Arrival,
        metadata: &Metadata,
        entry: u32,
        packet: &mut Packet,
    ) -> Option<Decision> {
        let &Trail { next, next_serial, .. } = self.cache.trails.get(entry);
        let decision = self.said_by((next, next_serial), arrival, metadata)?;
        if !self.passes(metadata, entry, packet) {
            return None;
        }
        if decision.verdict != Verdict::Track {
            let Process { cache, context, .. } = self;
            let len = packet.len() as u32;
            count_round(cache, context, (Which::Mega, next), (1, len), arrival.at.now);
        }
        Some(decision)
    }

    /// What a megaflow of the next round says, to which a trail leads. `None` where it is another by now, or
    /// is to be judged.
    #[inline(always)]
    fn said_by(
        &mut self,
        (next, next_serial): (u32, u64),
        arrival: &Arrival,
        metadata: &Metadata,
    ) -> Option<Decision> {
        let Process { cache, pipeline, reader, .. } = self;
        let e = cache.entry(Which::Mega, next);
        let (decision, found) = (e.decision, e.version);
        let is_known = e.key.serial() == next_serial
            && !matches!(decision.verdict, Verdict::Unknown | Verdict::Stale)
            && may_go_round(metadata.recirc_depth + 1);
        let version = arrival.at.version;
        let is_right = is_known
            && (found == ShortVersion::of(version)
                || cache.renew(Which::Mega, next, &mut Sights::new(&**pipeline, reader, version)));
        is_right.then_some(decision)
    }

    /// A packet of an exact entry passes by its connection as others did, and is translated. False where it
    /// is to go another way, and nothing was done that a second time would not do alike.
    #[inline(always)]
    fn passes(&mut self, metadata: &Metadata, entry: u32, packet: &mut Packet) -> bool {
        let Process { cache, context, now_ms, .. } = self;
        let key = cache.entry(Which::Exact, entry).key.0;
        let trail = cache.trails.get(entry);
        if packet.is_lent() || packet.is_chained() {
            return false;
        }
        let Some(seen) = seen::read_plain(packet, was_read(metadata)) else { return false };
        if context.tracker.pass(trail.connection, &seen, *now_ms) != Some(trail.marked()) {
            return false;
        }
        if trail.translates(&key) {
            nat::translate_plain(packet, trail.addresses_and_ports());
        }
        true
    }

    /// As [`Self::follow`], of a packet that has gone its first round by a trail, and is not where it is to
    /// go, or has to find its way.
    #[inline(never)]
    fn follow_on(
        &mut self,
        arrival: &Arrival,
        mut by_trail: Option<Decision>,
        (mut entry, mut body): (u32, u32),
        mut packet: Packet,
    ) -> Fate {
        let mut metadata = arrival.metadata;
        let mut connection = None;
        loop {
            // What becomes of it is a list that has it tracked.
            let step = asked(self.cache.actions(body), &metadata).and_then(|asked| {
                let step = match by_trail {
                    Some(decision) => self.step_by_trail(entry, &asked, decision),
                    None => self.by_lookup(arrival, &metadata, &asked, entry, &mut packet)?,
                };
                metadata = asked.behind(&metadata, step.tracking);
                Some(step)
            });
            let Some(Step { connection: found, next, .. }) = step else {
                return match connection {
                    None => Fate::Untouched(packet),
                    Some(found) => self.carry_out(body, metadata, found, packet),
                };
            };
            connection = Some(found);
            let Decision { verdict, body: next_body } = next;
            match verdict {
                Verdict::Output(port) => self.tx.send(&mut self.context, PortNo(port.into()), packet),
                Verdict::Drop(reason) => self.context.drop(packet, reason),
                Verdict::Track if let Some(next) = self.tracked_next(arrival, metadata, entry, &packet) => {
                    (entry, body) = (next, next_body);
                    by_trail = self.by_trail(arrival, &metadata, entry, &mut packet);
                    continue;
                }
                Verdict::Actions => return self.carry_out(next_body, metadata, found, packet),
                Verdict::Track | Verdict::Unknown | Verdict::Stale => {
                    return self.goes_round(metadata, found, packet);
                }
            }
            return Fate::Left;
        }
    }

    /// What goes with a packet that has gone a round by the trail of this entry.
    fn step_by_trail(&self, entry: u32, asked: &Asked, decision: Decision) -> Step {
        let trail = self.cache.trails.get(entry);
        let wish = (asked.zone, asked.translates);
        let followed = self.context.tracker.followed(trail.connection, trail.marked(), wish);
        Step { connection: trail.connection, tracking: followed.tracking, next: decision }
    }

    /// A packet of an exact entry goes one round, which the entry's trail tells the next one. `None` where it
    /// is to be tracked as any other.
    fn by_lookup(
        &mut self,
        arrival: &Arrival,
        metadata: &Metadata,
        asked: &Asked,
        entry: u32,
        packet: &mut Packet,
    ) -> Option<Step> {
        let Process { cache, context, now_ms, .. } = self;
        let trail = *cache.trails.get(entry);
        let how = (asked, was_read(metadata));
        let (found, Followed { tracking, translation }) = follow_once(&trail, context, packet, how, *now_ms)?;
        if let Some(to) = translation {
            nat::translate_plain(packet, to.plain());
        }
        let mut step = Step { connection: found, tracking, next: Decision::UNKNOWN };
        let metadata = asked.behind(metadata, tracking);
        let Some(next) = self.megaflow_of(arrival, &metadata, found, packet) else { return Some(step) };
        let Process { cache, context, .. } = self;
        let e = cache.entry(Which::Mega, next);
        let (decision, serial) = (e.decision, e.key.serial());
        let marked = Marked { mark: tracking.mark, label: tracking.label };
        let addresses_and_ports = seen::addresses_and_ports(packet);
        cache.trails.set(entry, Trail::new(found, marked, addresses_and_ports, (next, serial)));
        if decision.verdict != Verdict::Track {
            count_round(cache, context, (Which::Mega, next), (1, packet.len() as u32), arrival.at.now);
        }
        step.next = decision;
        Some(step)
    }

    /// The megaflow of a packet in its next round, to which it comes with this metadata.
    fn megaflow_of(
        &mut self,
        arrival: &Arrival,
        metadata: &Metadata,
        found: Found,
        packet: &Packet,
    ) -> Option<u32> {
        let Process { cache, context, pipeline, reader, stale_ahead, .. } = self;
        let Metadata { recirc_id, pkt_mark, dp_hash, tracking, .. } = *metadata;
        let ingress = arrival.ingress.with_depth(Depth::Everything).with_metadata(recirc_id, pkt_mark);
        let mut key = Key::default();
        extract(packet.data(), packet.len(), &ingress, &mut key)?;
        put_metadata(tracking, Some(&context.tracker.original(found)), dp_hash, &mut key);
        let next = cache.mega_search_any(arrival.input, &key);
        if next == 0 {
            return None;
        }
        let version = arrival.at.version;
        if cache.entry(Which::Mega, next).version != ShortVersion::of(version)
            && !cache.renew(Which::Mega, next, &mut Sights::new(&**pipeline, reader, version))
            && let Judged::Stale { is_new } =
                cache.judge(Which::Mega, next, &key, version, &**pipeline, reader)
        {
            if is_new {
                context.stats.touched.add(1);
                stale_ahead.push(next);
            }
            return None;
        }
        Some(next)
    }

    /// The exact entry of a packet in the round behind that of this entry, where it is tracked again, and is
    /// counted.
    fn tracked_next(
        &mut self,
        arrival: &Arrival,
        metadata: Metadata,
        entry: u32,
        packet: &Packet,
    ) -> Option<u32> {
        let Process { cache, context, pipeline, reader, .. } = self;
        let likely = cache.trails.get(entry).exact;
        let origin = Origin::new(arrival.of_port, metadata);
        let said = match cache.origin_of(likely, arrival.input, &origin) {
            Some(said) => said,
            None => cache.plain_origin(arrival.input, origin, Depth::Everything)?,
        };
        let key = plain_key(packet.data(), packet.len(), Depth::Everything, said)?;
        let next = if cache.entry(Which::Exact, likely).key.equals(&EntryKey::plain(key)) {
            likely
        } else {
            let key = ExactKey::Plain(key);
            let next = cache.exact_find(cache.exact_probe(&key), &key);
            cache.trails.set_exact(entry, next);
            next
        };
        let version = arrival.at.version;
        let e = cache.entry(Which::Exact, next);
        let is_right = e.decision.verdict == Verdict::Track
            && (e.version == ShortVersion::of(version)
                || cache.renew(Which::Exact, next, &mut Sights::new(&**pipeline, reader, version)));
        is_right.then(|| {
            count_round(cache, context, (Which::Exact, next), (1, packet.len() as u32), arrival.at.now)
        })?;
        Some(next)
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

impl Asked {
    /// What goes with a packet in the round that it comes to.
    fn behind(&self, metadata: &Metadata, tracking: Tracking) -> Metadata {
        let Metadata { recirc_depth, .. } = *metadata;
        Metadata { recirc_id: self.recirc_id, recirc_depth: recirc_depth + 1, tracking, ..*metadata }
    }
}

/// Packets of so many bytes were a flow's in a round that they did not wait for.
#[inline(always)]
fn count_round(
    cache: &mut FlowCache,
    context: &mut Context,
    (which, flow): (Which, u32),
    (packets, bytes): (u32, u32),
    now: Stamp,
) {
    let e = cache.entry(which, flow);
    e.hit(packets, bytes, now);
    if e.counts.is_full() {
        cache.fold(which, flow);
    }
    let packets = packets.into();
    context.stats.recirculations.add(packets);
    context.stats.followed.add(packets);
    match which {
        Which::Exact => context.stats.exact_hits.add(packets),
        Which::Mega => context.stats.megaflow_hits.add(packets),
    }
}

/// Follows a packet of an exact entry with this trail.
fn follow_once(
    trail: &Trail,
    context: &Context,
    packet: &Packet,
    (asked, was_valid): (&Asked, bool),
    now_ms: u64,
) -> Option<(Found, Followed)> {
    if packet.is_lent() || packet.is_chained() {
        return None;
    }
    let seen = seen::read_plain(packet, was_valid)?;
    let wish = (asked.zone, asked.translates);
    if let Some(followed) = context.tracker.follow(trail.connection, &seen, wish, now_ms) {
        return Some((trail.connection, followed));
    }
    let found = context.tracker.known(&seen, asked.zone, now_ms)?;
    Some((found, context.tracker.follow(found, &seen, wish, now_ms)?))
}
