//! Follows one packet through one round after the other, until it leaves or has to wait.

use super::*;
use crate::DpAction;
use crate::conntrack::Found;
use crate::conntrack::follow::{Followed, Marked};

/// What the action of an entry asks of the tracker, and where packets recirculate to.
struct Asked {
    zone: u16,
    translates: bool,
    recirc_id: u32,
}

/// One round that a packet passed without waiting.
struct Step {
    connection: Found,
    tracking: Tracking,
    /// The verdict after it. [`Verdict::Unknown`] if the packet must wait after all.
    next: Decision,
}

impl<P: Pipeline> Process<P> {
    /// Takes a packet of an exact entry through one round by the entry's trail, and translates and counts it,
    /// unless it is tracked again. Returns the verdict after that round; `None` if the packet must take
    /// another way, in which case nothing was done that cannot be repeated.
    fn by_trail(
        &mut self,
        arrival: &Arrival,
        metadata: &Metadata,
        entry: u32,
        packet: &mut Packet,
    ) -> Option<Decision> {
        let &Trail { next, next_serial, .. } = self.cache.trails.get(entry);
        let decision = self.said_by((next, next_serial), arrival, metadata)?;
        let key = self.cache.entry(Which::Exact, entry).key;
        if !self.passes(was_read(metadata), (&key, self.cache.trails.get(entry)), packet) {
            return None;
        }
        if decision.verdict != Verdict::Track {
            let Process { cache, context, .. } = self;
            count_round(cache, context, (Which::Mega, next), Counts::one(packet), arrival.at.now);
        }
        Some(decision)
    }

    /// Follows a packet of an exact entry with this body through one round after the other.
    #[inline(never)]
    pub(super) fn follow(
        &mut self,
        arrival: &Arrival,
        (mut entry, mut body): (u32, u32),
        mut packet: Packet,
    ) -> Fate {
        let mut metadata = arrival.metadata;
        let mut by_trail = self.by_trail(arrival, &metadata, entry, &mut packet);
        let mut connection = None;
        loop {
            // The verdict is a list that tracks it again.
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
                    let original = self.context.tracker.original(found);
                    self.context.recirculate(metadata, Some(&original), packet);
                    return Fate::GoesRound;
                }
            }
            return Fate::Left;
        }
    }

    /// The packet's metadata after a round by the trail of this entry.
    fn step_by_trail(&self, entry: u32, asked: &Asked, decision: Decision) -> Step {
        let trail = self.cache.trails.get(entry);
        let wish = (asked.zone, asked.translates);
        let followed = self.context.tracker.followed(trail.connection, trail.marked(), wish);
        Step { connection: trail.connection, tracking: followed.tracking, next: decision }
    }

    /// Takes a packet of an exact entry through one round by lookup, and records that in the entry's trail
    /// for the next packet. `None` if it must be tracked normally.
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
            count_round(cache, context, (Which::Mega, next), Counts::one(packet), arrival.at.now);
        }
        step.next = decision;
        Some(step)
    }

    /// The megaflow of a packet in its next round, in which it has this metadata.
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
        let next = cache.mega_search(arrival.input, &key);
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

    /// The exact entry of a packet in the round after that of this entry, if it is tracked again there;
    /// counts the packet.
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
            let next = cache.exact_find(cache.exact_probe(&key).0, &key);
            cache.trails.set_exact(entry, next);
            next
        };
        let version = arrival.at.version;
        let e = cache.entry(Which::Exact, next);
        let is_right = e.decision.verdict == Verdict::Track
            && (e.version == ShortVersion::of(version)
                || cache.renew(Which::Exact, next, &mut Sights::new(&**pipeline, reader, version)));
        is_right.then(|| {
            count_round(cache, context, (Which::Exact, next), Counts::one(packet), arrival.at.now)
        })?;
        Some(next)
    }

    /// Executes an entry's list on a packet that was followed.
    #[inline(never)]
    fn carry_out(&mut self, body: u32, metadata: Metadata, found: Found, packet: Packet) -> Fate {
        let mut alone = Run::new(metadata);
        alone.push(packet, Layers::UNKNOWN);
        alone.originals.push(self.context.tracker.original(found));
        self.execute_list(body, &mut alone);
        if self.context.recirculation.is_empty() { Fate::Left } else { Fate::GoesRound }
    }
}

/// What a list with the verdict [`Verdict::Track`] asks for, if its packets can be followed as far as their
/// metadata tells.
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
    /// The packet's metadata in the next round.
    fn behind(&self, metadata: &Metadata, tracking: Tracking) -> Metadata {
        let Metadata { recirc_depth, .. } = *metadata;
        Metadata { recirc_id: self.recirc_id, recirc_depth: recirc_depth + 1, tracking, ..*metadata }
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
    let found = context.tracker.find(&seen.tuple(), asked.zone, now_ms)?;
    Some((found, context.tracker.follow(found, &seen, wish, now_ms)?))
}
