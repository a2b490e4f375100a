//! Stage 4 for packets that are tracked and then recirculated, with nothing in between: `ct(table=...)`.
//!
//! Nearly all belong to established connections, and to flows that the next round's caches know. Such a
//! packet need not wait for that round: its connection is [followed](crate::conntrack), and it goes where the
//! megaflow of the next round says, which is counted as if the packet had been recirculated; and so on, if
//! that tracks it again. Connection and megaflow are the same for all packets of a flow, so the flow's
//! [trail](crate::cache::trails) records them, and no table is looked up: a packet touches the trail, one
//! line of the connection, and the megaflow, which it shares with many.
//!
//! Packets of one direction of a connection keep their order: once a packet of a burst is recirculated, later
//! ones that may belong to the same direction are, too.
//!
//! While a port exceeds its [share](crate::conntrack::share) of new connections, its opening segments that
//! would only be refused are dropped here, before they are tracked.
//!
//! Packets of one flow that leave by the same megaflow leave together; [`follow`] handles all others that are
//! followed, and [`open`] those that open connections.

mod follow;
mod open;

use super::*;
use crate::cache::trails::Trail;
use crate::conntrack::run::{TAGS_MAX, was_read};
use crate::conntrack::tuple::TCP;
use crate::conntrack::{nat, seen};
use crate::packet_type;
use crate::recirculation::may_go_round;
use flow::extract::begins_tcp;

/// Which connections have recirculating packets in the burst, by a bit derived from addresses and ports.
pub(super) struct GoingRound(u64);

impl GoingRound {
    /// None so far.
    pub fn none() -> GoingRound {
        GoingRound(0)
    }

    /// It is unknown which: assume any.
    pub fn any(&mut self) {
        self.0 = u64::MAX;
    }

    /// The bit of a plain packet's connection; for one direction, since order matters only within each.
    #[inline(always)]
    fn bit(EntryKey([first, behind, ..]): &EntryKey) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let src = first >> 32;
        1 << ((behind ^ src.wrapping_mul(ODD)).wrapping_mul(ODD) >> 58)
    }
}

/// Packets that were followed and are still next in the batch, and the megaflow of the next round by which
/// all of them leave. They are counted and sent together: moving each packet's handle separately would stall
/// the processor.
struct Together {
    flow: u32,
    serial: u64,
    decision: Decision,
    counts: Counts,
}

impl Together {
    /// No trail leads here.
    const NOWHERE: Together =
        Together { flow: 0, serial: u64::MAX, decision: Decision::UNKNOWN, counts: Counts::NONE };
}

/// What happened to a packet.
enum Fate {
    /// It has been sent where it was to go.
    Left,
    /// It waits for another round.
    GoesRound,
    /// Nothing: it must be tracked normally.
    Untouched(Packet),
}

impl<P: Pipeline> Process<P> {
    /// Packets from run `first` up to `end`, next in the batch, which share a list with the verdict
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
        let has_ports = burst.has_ports();
        if has_ports {
            self.fetch_ends(burst, (first, end));
        }
        let mut together = Together::NOWHERE;
        // Hardly any queue exceeds its share; only then is the list looked at.
        let sheds = self.context.exceeds_share()
            && matches!(self.cache.actions(body), [_, rest @ ..] if self.context.refuses_unknown(rest));
        let mut at = first;
        while at < end {
            if sheds {
                let behind = Self::shed_end(burst, (at, end), runs, together.counts.packets() as usize);
                if behind > at {
                    self.together_leave(burst.arrival(), runs, &mut together);
                    let shed = (at..behind).map_while(|_| runs.take());
                    self.context.drop_all(shed, DropReason::CtPortShare);
                    self.context.refused_at(burst.metadata().recirc_id);
                    at = behind;
                    continue;
                }
            }
            if has_ports && let Some(found) = Self::followable(burst, at, round) {
                at = self.row_leaves(burst, at, found, (runs, &mut together), round);
                continue;
            }
            self.together_leave(burst.arrival(), runs, &mut together);
            let start = at;
            while at < end && !(has_ports && Self::followable(burst, at, round).is_some()) {
                let plain = burst.plain(at).filter(|_| has_ports);
                round.0 |= plain.map_or(u64::MAX, |(key, _)| GoingRound::bit(key));
                (_, at) = burst.verdict(at);
            }
            let mut run = Run::new(burst.metadata());
            burst.take_run(start, at, runs, &mut run);
            self.track(burst.arrival(), body, &mut run);
        }
        self.together_leave(burst.arrival(), runs, &mut together);
    }

    /// The end of the consecutive runs from `at` on, behind `ahead` packets that leave first, that begin
    /// connections.
    #[inline(always)]
    fn shed_end(burst: &Classified, (at, end): (usize, usize), runs: &mut Runs<'_>, ahead: usize) -> usize {
        let mut behind = at;
        while behind < end {
            let is_ethernet = burst.metadata().packet_type == packet_type::ETHERNET;
            let begins = match burst.packed(behind) {
                Some(key) => begins_tcp(&key.0),
                None => runs
                    .behind(ahead + behind - at)
                    .is_some_and(|packet| begins_connection(packet, burst.layers(behind), is_ethernet)),
            };
            if !begins {
                break;
            }
            (_, behind) = burst.verdict(behind);
        }
        behind
    }

    /// Prefetches what trails lead to. The trails themselves were prefetched when the exact tier hit.
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

    /// The exact entry that a run hit, if its packets may be followed.
    #[inline(always)]
    fn followable<'b>(burst: &'b Classified, at: usize, round: &GoingRound) -> Option<(&'b EntryKey, u32)> {
        let (key, entry) = burst.plain(at)?;
        (entry != 0 && (round.0 == 0 || round.0 & GoingRound::bit(key) == 0)).then_some((key, entry))
    }

    /// Sends the packets of one run as far as they can be followed. Returns where the next run starts.
    #[inline(always)]
    fn row_leaves(
        &mut self,
        burst: &Classified,
        at: usize,
        (key, entry): (&EntryKey, u32),
        (runs, together): (&mut Runs<'_>, &mut Together),
        round: &mut GoingRound,
    ) -> usize {
        let (_, behind) = burst.verdict(at);
        let mut next = at;
        while next < behind && self.joins(burst.arrival(), (key, entry), runs, together) {
            next += 1;
        }
        if next < behind {
            self.rest_leaves(burst, (at, next), (key, entry), (runs, together), round);
        }
        behind
    }

    /// Sends the rest of a run whose next packet does not leave together with those before it.
    #[inline(never)]
    fn rest_leaves(
        &mut self,
        burst: &Classified,
        (at, next): (usize, usize),
        (key, entry): (&EntryKey, u32),
        (runs, together): (&mut Runs<'_>, &mut Together),
        round: &mut GoingRound,
    ) {
        let (Decision { body, .. }, behind) = burst.verdict(at);
        let mut is_followed = true;
        for n in next..behind {
            if is_followed && n > next && self.joins(burst.arrival(), (key, entry), runs, together) {
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
            round.0 |= GoingRound::bit(key);
        }
    }

    /// Adds the next packet to those that leave together, by its entry's trail. False if it must take another
    /// way; then nothing was done that cannot be repeated.
    #[inline(always)]
    fn joins(
        &mut self,
        arrival: &Arrival,
        (key, entry): (&EntryKey, u32),
        runs: &mut Runs<'_>,
        together: &mut Together,
    ) -> bool {
        let mut trail = self.cache.trails.get(entry);
        let &Trail { next, next_serial, .. } = trail;
        if (next, next_serial) != (together.flow, together.serial) {
            if !self.others_leave(arrival, (next, next_serial), runs, together) {
                return false;
            }
            trail = self.cache.trails.get(entry);
        }
        let Some(packet) = runs.behind(together.counts.packets() as usize) else { return false };
        if !self.passes(was_read(&arrival.metadata), (key, trail), packet) {
            return false;
        }
        together.counts.add(Counts::one(packet));
        true
    }

    /// Sends the packets that leave together, if those of another megaflow leave now. False if these cannot
    /// leave like them.
    #[inline(never)]
    fn others_leave(
        &mut self,
        arrival: &Arrival,
        (flow, serial): (u32, u64),
        runs: &mut Runs<'_>,
        together: &mut Together,
    ) -> bool {
        let decision = self.said_by((flow, serial), arrival, &arrival.metadata);
        let Some(decision @ Decision { verdict: Verdict::Output(_) | Verdict::Drop(_), .. }) = decision
        else {
            return false;
        };
        self.together_leave(arrival, runs, together);
        *together = Together { flow, serial, decision, counts: Counts::NONE };
        true
    }

    /// Sends the packets that leave together, if there are any.
    #[inline(always)]
    fn together_leave(&mut self, arrival: &Arrival, runs: &mut Runs<'_>, together: &mut Together) {
        if !together.counts.is_empty() {
            self.all_leave(arrival, runs, together);
        }
    }

    #[inline(never)]
    fn all_leave(&mut self, arrival: &Arrival, runs: &mut Runs<'_>, together: &mut Together) {
        let Together { flow, decision, counts, .. } = *together;
        let packets = counts.packets() as usize;
        together.counts = Counts::NONE;
        let Process { cache, context, tx, .. } = self;
        count_round(cache, context, (Which::Mega, flow), counts, arrival.at.now);
        match decision.verdict {
            Verdict::Output(port) => tx.send_run(context, PortNo(port.into()), runs, packets),
            Verdict::Drop(reason) => context.drop_all((0..packets).map_while(|_| runs.take()), reason),
            _ => unreachable!("nobody joins those"),
        }
    }

    /// The verdict of the next round's megaflow to which a trail leads. `None` if that place now holds
    /// another megaflow, or the flow must be judged.
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

    /// Passes a packet of an exact entry through its connection as earlier ones, and translates it. False if
    /// it must take another way; then nothing was done that cannot be repeated.
    ///
    /// Never inlined: it needs all registers, and so does the loop over packets.
    #[inline(never)]
    fn passes(&self, was_valid: bool, (key, trail): (&EntryKey, &Trail), packet: &mut Packet) -> bool {
        let Process { context, now_ms, .. } = self;
        if packet.is_lent() || packet.is_chained() {
            return false;
        }
        let Some(seen) = seen::read_plain(packet, was_valid) else { return false };
        if context.tracker.pass(&trail.connection, &seen, *now_ms) != Some(trail.marked()) {
            return false;
        }
        if trail.translates(&key.0) {
            nat::translate_plain(packet, trail.addresses_and_ports());
        }
        true
    }
}

/// Whether it is a TCP segment with SYN and without ACK. The answer to one belongs to a connection that
/// another port has begun. `layers` are known unless the packet is plain, long or not.
fn begins_connection(packet: &Packet, layers: Layers, is_ethernet: bool) -> bool {
    const FLAGS: usize = 13;
    if is_ethernet && let Some(key) = plain_key(packet.data(), packet.len(), Depth::Transport, 0) {
        return begins_tcp(&key);
    }
    let mut layers = layers;
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    let is_tcp = layers.l4 != 0 && layers.protocol == TCP && !layers.is_fragment();
    let flags = packet.data().get(usize::from(layers.l4) + FLAGS);
    is_tcp && flags.is_some_and(|flags| flags & 0x12 == 0x02)
}

/// Counts packets and bytes for a flow in a round that they passed without waiting.
#[inline(always)]
fn count_round(
    cache: &mut FlowCache,
    context: &mut Context,
    (which, flow): (Which, u32),
    counts: Counts,
    now: Stamp,
) {
    let e = cache.entry(which, flow);
    e.hit(counts, now);
    if e.counts.is_full() {
        cache.fold(which, flow);
    }
    let packets = counts.packets();
    context.stats.recirculations.add(packets);
    context.stats.followed.add(packets);
    match which {
        Which::Exact => context.stats.exact_hits.add(packets),
        Which::Mega => context.stats.megaflow_hits.add(packets),
    }
}
