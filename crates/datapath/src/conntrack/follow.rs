//! A packet of an established connection whose entry is known, as for nearly all packets: the tracker only
//! needs to advance the protocol's state.
//!
//! The result is what [`track`](super::track) would say. If a packet needs more (it opens or closes a
//! connection, its connection has a helper, or it does not belong to the connection), nothing has been
//! changed, and the caller uses `track`.

use super::entry::Traits;
use super::seen::PlainSeen;
use super::timeouts::Phase;
use super::tuple::Tuple;
use super::{Found, Tracker, Tracking, state};
use std::sync::atomic::Ordering::Relaxed;

/// The tracker's result for a packet that it has followed.
pub(crate) struct Followed {
    pub tracking: Tracking,
    /// If set, the packet has yet to be translated to this tuple.
    pub translation: Option<Tuple>,
}

/// A connection's mark and label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marked {
    pub mark: u32,
    pub label: u128,
}

impl Tracker {
    /// The tuple of the direction that opened a connection.
    pub(crate) fn original(&self, found: Found) -> Tuple {
        self.entry(found.entry).forward()
    }

    /// Follows a packet that has not been tracked in this zone before and whose tuple is the one under which
    /// its connection was found. `None` if the connection has changed since, or the packet needs more than to
    /// be followed. `translates` says whether the rule asks for the connection's translation.
    #[inline]
    pub(crate) fn follow(
        &self,
        found: Found,
        seen: &PlainSeen,
        (zone, translates): (u16, bool),
        now_ms: u64,
    ) -> Option<Followed> {
        let marked = self.pass(&found, seen, now_ms)?;
        let followed = self.followed(found, marked, (zone, translates));
        // What was read belongs to that connection, unless it has been ended meanwhile.
        self.entry(found.entry).is_still(found.generation).then_some(followed)
    }

    /// The result for a packet that [passes](Self::pass).
    pub(crate) fn followed(
        &self,
        found: Found,
        Marked { mark, label }: Marked,
        (zone, translates): (u16, bool),
    ) -> Followed {
        let mut tracking = Tracking { state: state::TRACKED | state::ESTABLISHED, zone, mark, label };
        if found.is_reply {
            tracking.state |= state::REPLY;
        }
        let mut translation = None;
        if translates && let Some(t) = self.translation_of(found) {
            tracking.state |= t.state();
            translation = Some(t.to);
        }
        Followed { tracking, translation }
    }

    /// Like [`Self::follow`], but returns only the connection's mark and label: the rest is the same as for
    /// earlier packets from this end.
    #[inline(always)]
    pub(crate) fn pass(&self, found: &Found, seen: &PlainSeen, now_ms: u64) -> Option<Marked> {
        let entry = self.entry(found.entry);
        if entry.generation() != Some(found.generation) {
            return None;
        }
        let expiry_ms = entry.expiry_ms();
        let standing = entry.standing();
        if expiry_ms <= now_ms || standing.has(Traits::RELATED | Traits::FTP | Traits::TFTP) {
            return None;
        }
        let label = if standing.is_labelled() { entry.label_at_rest()? } else { 0 };
        let phase = match &seen.tcp {
            Some(segment) => {
                let from = found.is_reply.into();
                let before = entry.ends_seen_from(from);
                if let Some(after) = before.pass(segment, || self.is_liberal.load(Relaxed))? {
                    // A copy, so that what was read stays in registers if nothing moves.
                    let read = before;
                    if !entry.replace_ends(found.generation, from, &read, &after) {
                        return None;
                    }
                }
                Phase::TcpEstablished
            }
            None if standing.has(Traits::ANSWERED) => Phase::UdpMultiple,
            None => return None,
        };
        let timeout_ms = self.timeouts.timeout_ms(standing.policy(), phase);
        if entry.expire_after(found.generation, expiry_ms, now_ms + timeout_ms) {
            self.look_earlier(*found, now_ms);
        }
        let marked = Marked { mark: entry.mark(), label };
        entry.is_still(found.generation).then_some(marked)
    }
}
