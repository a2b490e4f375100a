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
//!
//! Packets of one flow that leave by one megaflow leave together, and the way of any other is in [`follow`].

mod follow;

use super::*;
use crate::cache::trails::Trail;
use crate::conntrack::run::was_read;
use crate::conntrack::{nat, seen};
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
