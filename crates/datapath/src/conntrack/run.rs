//! The `ct` action on a run of packets. Each step handles all packets before the next step begins, so that
//! lines of the index and entries are prefetched while other packets are processed.
//!
//! Packets of a run have the same metadata. The tracker's result may differ from packet to packet, so the run
//! is split: consecutive packets with the same result stay together, and the rest of the actions is executed
//! on each such run. Fragments are held until their datagram is complete, and are then a run of their own.

use super::fragments::{self, Fate, Whole};
use super::request::{Nat, Request};
use super::seen::{self, Seen};
use super::track::{Moment, Preferred};
use super::tuple::Tuple;
use super::{Tracker, Tracking, nat, state};
use crate::action::DpAction;
use crate::packet_type;
use crate::recirculation::Metadata;
use crate::run::{Ends, Run};
use arrayvec::ArrayVec;
use base::DropReason;
use packet::BURST;
use std::cell::Cell;

/// How many VLAN tags extraction looks past; the tracker does the same.
pub const TAGS_MAX: u8 = 2;

/// What the tracker has read of a run's packets, and the hashes of their tuples in a zone.
pub struct Readings {
    zone: u16,
    all: ArrayVec<(Option<Seen>, Option<u64>), BURST>,
    /// The tracker has changed a packet since.
    are_outdated: Cell<bool>,
}

impl Readings {
    /// Whether they serve another `ct`, which tracks packets of the run that was read. Only the tracker may
    /// have changed any of them since.
    pub fn are_of(&self, run: &Run, request: &Request) -> bool {
        self.zone == request.zone && self.all.len() == run.packets.len() && !self.are_outdated.get()
    }
}

/// Tracks all packets of a run and continues with the resulting runs, for which there is the rest of a list.
#[inline(never)]
pub fn track_all<E: Ends>(
    (request, rest): (&Request, &[DpAction]),
    run: &mut Run,
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) {
    let read = read_all((request, rest), run, to, go_on);
    track_read((request, rest), run, &read, to, go_on);
}

/// Reads the packets of a run, and prefetches what the tracker looks at. Fragments leave the run, and go on
/// when their datagram is complete.
#[inline(always)]
pub fn read_all<E: Ends>(
    (request, rest): (&Request, &[DpAction]),
    run: &mut Run,
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) -> Readings {
    let tracker = to.context().tracker.clone();
    // 1. Read packets, and prefetch lines of the index.
    let mut all: ArrayVec<(Option<Seen>, Option<u64>), BURST> = ArrayVec::new();
    let was_valid = was_read(&run.metadata);
    // Without an Ethernet header no other header is where it is in a plain packet.
    let may_be_plain = run.metadata.packet_type == packet_type::ETHERNET;
    let mut n = 0;
    while n < run.packets.len() {
        if run.packets[n].is_lent() && !to.make_whole(&mut run.packets[n]) {
            let packet = run.remove(n);
            to.context().drop(packet, DropReason::PoolExhausted);
            continue;
        }
        let plain = may_be_plain.then(|| seen::read_if_plain(&run.packets[n], was_valid)).flatten();
        let seen = match plain {
            Some(seen) => Some(seen),
            None => {
                let (packet, layers) = (&run.packets[n], &mut run.layers[n]);
                layers.know(packet.data(), packet.len(), TAGS_MAX);
                if layers.is_fragment() && wait((request, rest), run, n, to, go_on) {
                    continue;
                }
                seen::read(&run.packets[n], &run.layers[n], was_valid)
            }
        };
        let hash = seen.as_ref().map(|seen| tracker.fetch_bucket(&seen.tuple, request.zone));
        all.push((seen, hash));
        n += 1;
    }
    // 2. Prefetch entries, which new connections do not have, and what new translations look at.
    if run.metadata.tracking.state & state::NEW == 0 {
        all.iter().filter_map(|(_, hash)| *hash).for_each(|hash| tracker.fetch_entry(hash));
    }
    Readings { zone: request.zone, all, are_outdated: Cell::new(false) }
}

/// Tracks all packets of a run, of which these are the readings.
#[inline(never)]
pub fn track_read<E: Ends>(
    (request, rest): (&Request, &[DpAction]),
    run: &mut Run,
    Readings { all, are_outdated, .. }: &Readings,
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) {
    let tracker = to.context().tracker.clone();
    let chooses = request.commit && matches!(request.nat, Some(Nat::New(_)));
    let mut preferred: ArrayVec<Option<Preferred>, BURST> = ArrayVec::new();
    if chooses {
        fetch_translated(&tracker, request, all, &mut preferred);
    }
    // 3. Track, translate.
    let mut said: ArrayVec<Tracking, BURST> = ArrayVec::new();
    run.originals.truncate(run.packets.len());
    while run.originals.len() < run.packets.len() {
        run.originals.push(Default::default());
    }
    let refuses_unknown = to.context().refuses_unknown(rest);
    let recirc_id = run.metadata.recirc_id;
    let mut refused: ArrayVec<(usize, DropReason), BURST> = ArrayVec::new();
    for (n, (seen, hash)) in all.iter().enumerate() {
        let mut tracking = run.metadata.tracking;
        let context = to.context();
        let now_ms = context.now_ms;
        let random = if chooses { context.random64() } else { 0 };
        let mut moment = Moment {
            now_ms,
            hash: *hash,
            preferred: preferred.get(n).and_then(Option::as_ref),
            random,
            tries: 0,
            is_again: false,
            helped: None,
            refuses_unknown,
            may_begin: &mut || context.may_begin_connection(recirc_id),
        };
        let done = tracker.track(seen.as_ref(), request, &mut tracking, &mut run.originals[n], &mut moment);
        if !matches!((&done, &moment.helped), (Ok(None), None)) {
            are_outdated.set(true);
        }
        let done = done.and_then(|translation| match translation {
            Some(t) if seen.is_some_and(|seen| seen.is_plain) => {
                nat::translate_plain(&mut run.packets[n], t.to.plain());
                Ok(())
            }
            Some(t) => nat::translate(&mut run.packets[n], &mut run.layers[n], &t.to, t.side, t.is_error),
            None => Ok(()),
        });
        let tries = moment.tries;
        match done {
            Ok(()) => {
                if let Some(helped) = moment.helped {
                    let (packet, layers) = (&mut run.packets[n], &mut run.layers[n]);
                    layers.know(packet.data(), packet.len(), TAGS_MAX);
                    tracker.help(&helped, packet, layers, request, &mut tracking, &moment);
                }
                said.push(tracking);
            }
            Err(reason) => refused.push((n, reason)),
        }
        to.context().tried_tuples(tries);
    }
    if !refused.is_empty() {
        if refuses_unknown {
            // An earlier `ct` need not send such packets here either.
            to.context().refused_at(recirc_id);
        }
        run.remove_all(&refused, |packet, reason| to.context().drop(packet, reason));
    }
    go_on_by_what_was_said(run, &said, to, go_on);
}

/// For packets that open connections: chooses the tuples that they probably get, and prefetches the lines in
/// which those are looked up first.
#[inline(never)]
fn fetch_translated(
    tracker: &Tracker,
    request: &Request,
    all: &[(Option<Seen>, Option<u64>)],
    preferred: &mut ArrayVec<Option<Preferred>, BURST>,
) {
    preferred.extend(all.iter().map(|(seen, hash)| {
        let (seen, hash) = (seen.as_ref()?, (*hash)?);
        tracker.fetch_translated(&seen.tuple, hash, request)
    }));
}

/// Whether these packets were tracked, and valid, in an earlier round. False for packets that a controller
/// hands in with a tracking result: it may have changed their bytes.
pub(crate) fn was_read(metadata: &Metadata) -> bool {
    metadata.recirc_depth > 0 && metadata.tracking.state & (state::TRACKED | state::INVALID) == state::TRACKED
}

/// Holds a fragment until its datagram is complete, and then continues with the datagram. False if the
/// fragment is refused.
#[inline(never)]
fn wait<E: Ends>(
    (request, rest): (&Request, &[DpAction]),
    run: &mut Run,
    n: usize,
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) -> bool {
    let tracker = to.context().tracker.clone();
    let fragments = tracker.fragments();
    let recirc_id = run.metadata.recirc_id;
    let examined = fragments.examine(&run.packets[n], &run.layers[n], request.zone, recirc_id);
    let Some(piece) = examined else { return false };
    let original = run.originals.get(n).copied().unwrap_or_default();
    let mut whole = Whole::new();
    let context = to.context();
    let now_ms = context.now_ms;
    let purge = |packet| context.drop_late(packet, DropReason::CtFragmentPurged);
    match fragments.hold(&piece, now_ms, || run.remove(n), purge, &mut whole) {
        Fate::Refused => return false,
        Fate::Waits => {}
        Fate::Completes => track_whole((request, rest), whole, (run.metadata, original), to, go_on),
    }
    true
}

/// Tracks a complete datagram and continues with its fragments.
fn track_whole<E: Ends>(
    (request, rest): (&Request, &[DpAction]),
    whole: Whole,
    (metadata, mut original): (Metadata, Tuple),
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) {
    let context = to.context();
    let tracker = context.tracker.clone();
    let seen = fragments::read_whole(&whole, &mut context.datagram);
    let mut part = Run::new(metadata);
    whole.into_iter().for_each(|(packet, layers)| part.push(packet, layers));
    let (now_ms, random) = (context.now_ms, context.random64());
    let mut moment = Moment {
        now_ms,
        hash: None,
        preferred: None,
        random,
        tries: 0,
        is_again: false,
        helped: None,
        refuses_unknown: context.refuses_unknown(rest),
        may_begin: &mut || context.may_begin_connection(metadata.recirc_id),
    };
    let tracking = &mut part.metadata.tracking;
    let done = tracker.track(seen.as_ref(), request, tracking, &mut original, &mut moment);
    let done = done.and_then(|translation| {
        let Some(t) = translation else { return Ok(()) };
        let mut each = part.packets.iter_mut().zip(&mut part.layers);
        each.try_for_each(|(packet, layers)| nat::translate(packet, layers, &t.to, t.side, t.is_error))
    });
    let tries = moment.tries;
    match done {
        Ok(()) => {
            if let Some(helped) = moment.helped {
                let mut each = part.packets.iter_mut().zip(&part.layers);
                if let Some((first, layers)) = each.find(|(_, layers)| !layers.is_later_fragment()) {
                    tracker.help_unread(&helped, first, layers, request);
                }
            }
            to.context().tried_tuples(tries);
            part.originals.extend(std::iter::repeat_n(original, part.packets.len()));
            go_on(&mut part, to);
        }
        Err(reason) => to.context().drop_all(part.drain(), reason),
    }
}

/// Continues with the consecutive packets that have the same result, then with the next ones.
fn go_on_by_what_was_said<E: Ends>(
    run: &mut Run,
    said: &[Tracking],
    to: &mut E,
    go_on: &mut dyn FnMut(&mut Run, &mut E),
) {
    let Some(first) = said.first() else { return };
    if said.iter().all(|tracking| tracking == first) {
        run.metadata.tracking = *first;
        return go_on(run, to);
    }
    let mut packets = run.packets.drain(..).zip(run.layers.drain(..)).zip(run.originals.drain(..));
    for same in said.chunk_by(|a, b| a == b) {
        let mut part = Run::new(run.metadata);
        part.metadata.tracking = same[0];
        for ((packet, layers), original) in packets.by_ref().take(same.len()) {
            part.push(packet, layers);
            part.originals.push(original);
        }
        go_on(&mut part, to);
    }
}
