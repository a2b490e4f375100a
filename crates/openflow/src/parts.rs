//! Multipart requests that come in several messages: held until the last has come, then handled as one.
//!
//! Requests of lists (table features, flow monitors) grow by each part; of others, which fit one message, the
//! last part says all. What waits is bounded in bytes and in time. Since OpenFlow 1.3; before, requests have
//! no such flag. Source: OpenFlow 1.3 section 7.3.5.

use crate::error::ErrorKind::{self, *};
use crate::message::{FlowStatsRequest, StatsRequest};
use crate::request::RequestHead;
use std::mem::discriminant;
use std::time::{Duration, Instant};

/// How long the next part may take. That of the standard's least, and of Open vSwitch.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of all parts that wait: more than the features of all tables, which clients send back as a whole.
const BYTES_MAX: usize = 2 << 20;
/// Requests that wait: each part looks at all of them.
const REQUESTS_MAX: usize = 64;

/// The requests of which parts are missing.
#[derive(Default, Debug)]
pub(crate) struct Parts {
    waiting: Vec<Waiting>,
    /// Memory is: no part may wait for others.
    pub(crate) is_scarce: bool,
}

#[derive(Debug)]
struct Waiting {
    xid: u32,
    request: StatsRequest,
    bytes: usize,
    deadline: Instant,
    head: RequestHead,
}

/// What a part makes of its request.
#[derive(PartialEq, Debug)]
pub(crate) enum Joined {
    /// Not whole yet.
    Waits,
    /// Whole.
    Whole(StatsRequest),
    /// Nothing: all of it is forgotten.
    Refused(ErrorKind),
}

impl Parts {
    /// Takes a part, of which `bytes` are the whole message.
    pub(crate) fn join(&mut self, now: Instant, xid: u32, bytes: &[u8], part: StatsRequest) -> Joined {
        let more = bytes.get(crate::codec::STATS_FLAGS_AT + 1).is_some_and(|flags| flags & 1 != 0);
        let beyond_bytes = match &part {
            StatsRequest::FlowMonitor(monitors) => size_of_val(&**monitors),
            StatsRequest::Flow(_) | StatsRequest::Aggregate(_) => size_of::<FlowStatsRequest>(),
            _ => 0,
        };
        let known = self.waiting.iter().position(|w| w.xid == xid).map(|at| self.waiting.swap_remove(at));
        let mut whole = match known {
            None if !more => return Joined::Whole(part),
            None => Waiting { xid, request: part, bytes: 0, deadline: now, head: RequestHead::new(bytes) },
            Some(known) if discriminant(&known.request) != discriminant(&part) => {
                return Joined::Refused(OFPBRC_BAD_STAT);
            }
            Some(known) => Waiting { request: joined(known.request, part), ..known },
        };
        if !more {
            return Joined::Whole(whole.request);
        }
        whole.bytes += bytes.len() + beyond_bytes;
        whole.deadline = now + TIMEOUT;
        self.waiting.push(whole);
        if self.is_scarce || self.bytes() > BYTES_MAX || self.waiting.len() > REQUESTS_MAX {
            self.waiting.pop();
            return Joined::Refused(OFPBRC_MULTIPART_BUFFER_OVERFLOW);
        }
        Joined::Waits
    }

    /// Those of messages, and of the matches in them, which take far more memory.
    fn bytes(&self) -> usize {
        self.waiting.iter().map(|w| w.bytes).sum()
    }

    /// Bytes of memory that they take: once read, about twice those of the messages.
    pub(crate) fn held_bytes(&self) -> usize {
        2 * self.bytes()
    }

    /// When the first of them has waited long enough.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|w| w.deadline).min()
    }

    /// Forgets one that has: its transaction id and its beginning.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<(u32, RequestHead)> {
        let at = self.waiting.iter().position(|w| w.deadline <= now)?;
        let Waiting { xid, head, .. } = self.waiting.swap_remove(at);
        Some((xid, head))
    }
}

fn joined(first: StatsRequest, next: StatsRequest) -> StatsRequest {
    match (first, next) {
        (
            StatsRequest::TableFeatures { mut features, .. },
            StatsRequest::TableFeatures { features: rest, more },
        ) => {
            features.extend(rest);
            StatsRequest::TableFeatures { features, more }
        }
        (StatsRequest::FlowMonitor(mut monitors), StatsRequest::FlowMonitor(rest)) => {
            monitors.extend(rest);
            StatsRequest::FlowMonitor(monitors)
        }
        (_, last) => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FlowMonitorFlags, FlowMonitorRequest};

    fn message(more: bool) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[11] = more.into();
        bytes
    }

    fn monitors(ids: &[u32]) -> StatsRequest {
        let flags = FlowMonitorFlags::INITIAL;
        let monitor = |id: &u32| FlowMonitorRequest {
            id: *id,
            flags,
            out_port: None,
            out_group: None,
            table_id: 0,
            matching: flow::Match::any(),
            command: Default::default(),
        };
        StatsRequest::FlowMonitor(ids.iter().map(monitor).collect())
    }

    #[test]
    fn parts_of_several_requests_come_together_and_only_of_one_kind() {
        let now = Instant::now();
        let mut parts = Parts::default();
        assert_eq!(parts.join(now, 1, &message(true), monitors(&[1])), Joined::Waits);
        assert_eq!(parts.join(now, 2, &message(true), StatsRequest::Desc), Joined::Waits);
        assert_eq!(
            parts.join(now, 3, &message(false), StatsRequest::Table),
            Joined::Whole(StatsRequest::Table)
        );
        assert_eq!(parts.join(now, 1, &message(true), monitors(&[2, 3])), Joined::Waits);
        assert_eq!(
            parts.join(now, 1, &message(false), monitors(&[4])),
            Joined::Whole(monitors(&[1, 2, 3, 4]))
        );
        assert_eq!(
            parts.join(now, 2, &message(false), StatsRequest::Table),
            Joined::Refused(OFPBRC_BAD_STAT)
        );
        assert_eq!(parts.deadline(), None);
    }

    #[test]
    fn what_waits_is_bounded_in_time_and_bytes() {
        let now = Instant::now();
        let mut parts = Parts::default();
        assert_eq!(parts.join(now, 1, &message(true), StatsRequest::Desc), Joined::Waits);
        assert_eq!(parts.join(now + TIMEOUT / 2, 2, &message(true), StatsRequest::Desc), Joined::Waits);
        assert_eq!(parts.deadline(), Some(now + TIMEOUT));
        assert!(parts.expire(now).is_none());
        assert_eq!(parts.expire(now + TIMEOUT).map(|(xid, _)| xid), Some(1));
        assert!(parts.expire(now + TIMEOUT).is_none());
        let mut long = message(true);
        long.resize(0xffff, 0);
        let refused = (0..40).map(|xid| parts.join(now, xid, &long, StatsRequest::Desc));
        let refused = refused.filter(|r| *r == Joined::Refused(OFPBRC_MULTIPART_BUFFER_OVERFLOW)).count();
        assert!((1..40).contains(&refused), "{refused}");
        assert!((BYTES_MAX..=2 * BYTES_MAX).contains(&parts.held_bytes()), "{}", parts.held_bytes());
        let mut many = Parts::default();
        let refused = (0..100).map(|xid| many.join(now, xid, &message(true), StatsRequest::Desc));
        let refused = refused.filter(|r| *r == Joined::Refused(OFPBRC_MULTIPART_BUFFER_OVERFLOW)).count();
        assert_eq!(refused, 100 - REQUESTS_MAX);
        let mut wide = Parts::default();
        let refused = (0..2_000).any(|_| wide.join(now, 1, &message(true), monitors(&[1])) != Joined::Waits);
        assert!(refused, "a match takes more than its message");
        let mut scarce = Parts { is_scarce: true, ..Parts::default() };
        let refused = Joined::Refused(OFPBRC_MULTIPART_BUFFER_OVERFLOW);
        assert_eq!(scarce.join(now, 1, &message(true), StatsRequest::Desc), refused);
        assert_eq!(scarce.held_bytes(), 0);
        assert_eq!(
            scarce.join(now, 1, &message(false), StatsRequest::Desc),
            Joined::Whole(StatsRequest::Desc)
        );
    }
}
