//! A packet of an established connection whose entry is known, which is what nearly all packets are: the
//! tracker is asked for no more than the moves of its protocol.
//!
//! What this says of a packet, [`track`](super::track) would say, too. Where a packet asks for more (it opens
//! or closes a connection, is of one that has a helper, or does not belong to it) nothing was done, and it
//! goes by `track`.

use super::entry::Traits;
use super::seen::PlainSeen;
use super::tcp::{self, State, Verdict};
use super::timeouts::Phase;
use super::tuple::Tuple;
use super::{Found, Tracker, Tracking, state};
use std::sync::atomic::Ordering::Relaxed;

/// What the tracker says of a packet that it has followed.
pub(crate) struct Followed {
    pub tracking: Tracking,
    /// The packet is still to be translated to this tuple.
    pub translation: Option<Tuple>,
}

impl Tracker {
    /// The connection of a packet that was not tracked in this zone.
    pub(crate) fn known(&self, seen: &PlainSeen, zone: u16, now_ms: u64) -> Option<Found> {
        self.find(&seen.tuple(), zone, now_ms)
    }

    /// The tuple of the direction that opened a connection.
    pub(crate) fn original(&self, found: Found) -> Tuple {
        self.entry(found.entry).forward()
    }

    /// Follows a packet that was not tracked in this zone before, and whose tuple is that by which its
    /// connection was found. `None` where the connection is not what it was then, or the packet asks for more
    /// than to be followed. `translates` is whether the rule asks for the connection's translation.
    #[inline]
    pub(crate) fn follow(
        &self,
        found: Found,
        seen: &PlainSeen,
        (zone, translates): (u16, bool),
        now_ms: u64,
    ) -> Option<Followed> {
        let entry = self.entry(found.entry);
        if entry.generation() != Some(found.generation) || entry.expiry_ms() <= now_ms {
            return None;
        }
        let traits = entry.traits();
        if traits.has(Traits::RELATED | Traits::FTP | Traits::TFTP) {
            return None;
        }
        let is_shorter = match &seen.tcp {
            // Nobody opens, and nobody closes: options would matter, and the wheel.
            Some(segment) if segment.flags & tcp::SYN != 0 => return None,
            Some(segment) => {
                let held = entry.hold(found.generation)?;
                let before = held.peers();
                let mut peers = before;
                let verdict =
                    tcp::update(&mut peers, found.is_reply.into(), segment, self.is_liberal.load(Relaxed));
                let is_steady = peers.iter().all(|peer| peer.state == State::Established);
                let Verdict::Valid(phase) = verdict else { return None };
                if !is_steady {
                    return None;
                }
                if peers != before {
                    held.set_peers(&peers);
                }
                phase.is_some_and(|phase| self.renew(&held, phase, now_ms))
            }
            None if traits.has(Traits::ANSWERED) => self.renew(entry, Phase::UdpMultiple, now_ms),
            None => return None,
        };
        if is_shorter {
            self.look_earlier(found, now_ms);
        }
        let (mark, label) = (entry.mark(), entry.label());
        let mut tracking = Tracking { state: state::TRACKED | state::ESTABLISHED, zone, mark, label };
        if found.is_reply {
            tracking.state |= state::REPLY;
        }
        let mut translation = None;
        if translates && let Some(t) = self.translation_of(found) {
            tracking.state |= t.state();
            translation = Some(t.to);
        }
        // What was read is that connection's, if nobody has ended it meanwhile.
        entry.is_still(found.generation).then_some(Followed { tracking, translation })
    }
}
