//! The removal of tracked connections, of which there may be a million: in turns, one request at a time.

use crate::plane::ForwardingPlane;
use datapath::conntrack::dump::Filter;
use std::time::Instant;

/// Entries of the tracker that are looked at between two looks at the clock.
pub(crate) const ENTRIES_AT_ONCE: u32 = 256;

/// What is in progress.
#[derive(Default)]
pub(crate) struct CtFlushes {
    /// What to remove, and the entry where to continue.
    current: Option<(Filter, Option<u32>)>,
    /// How many requests are done.
    done: u64,
}

impl CtFlushes {
    /// Whether the next request may begin.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Whether the request of this number is done.
    pub fn is_done(&self, number: u64) -> bool {
        self.done >= number
    }

    /// Begins a request, when the one before is done. Its number.
    pub fn begin(&mut self, filter: Filter) -> u64 {
        debug_assert!(self.is_idle());
        self.current = Some((filter, Some(0)));
        self.done + 1
    }

    /// Does a turn, which ends soon after `until`. Returns whether there is more to do.
    pub fn go_on(&mut self, plane: &ForwardingPlane, until: Instant) -> bool {
        let Some((filter, at)) = &mut self.current else { return false };
        let (tracker, now_ms) = (plane.dp.tracker(), plane.dp.now_ms());
        while at.is_some() {
            tracker.flush_some(at, ENTRIES_AT_ONCE, filter, now_ms);
            if at.is_some() && Instant::now() >= until {
                return true;
            }
        }
        self.current = None;
        self.done += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DatapathFlags;
    use datapath::conntrack::Request;
    use datapath::{CacheConfig, DpAction};

    /// UDP over IPv4, without checksums.
    const FRAME: [u8; 42] = [
        0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0,
        1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0,
    ];

    #[test]
    fn connections_are_removed_in_turns() {
        let flags = DatapathFlags { pool_packets: 1_024, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        let mut worker = plane.dp.stepped_worker().unwrap();
        for zone in [1, 2] {
            let packet = plane.dp.cache().alloc_frame(&FRAME).unwrap();
            let commit = Request { zone, commit: true, ..Request::default() };
            assert!(plane.dp.execute_tracked(0, packet, None, vec![DpAction::Ct(commit.into())]));
        }
        while plane.dp.tracker().count() < 2 {
            worker.turn();
        }

        let mut flushes = CtFlushes::default();
        let first = flushes.begin(Filter { zone: Some(1), ..Filter::default() });
        let mut turns = 0;
        // Each is over at once.
        while flushes.go_on(&plane, Instant::now()) {
            assert!(!flushes.is_idle() && !flushes.is_done(first));
            turns += 1;
        }
        assert!(turns >= 3 && flushes.is_idle() && flushes.is_done(first), "{turns} turns");
        assert_eq!((plane.dp.tracker().zone_count(1), plane.dp.tracker().zone_count(2)), (0, 1));

        let second = flushes.begin(Filter::default());
        assert!(!flushes.is_done(second));
        while flushes.go_on(&plane, Instant::now()) {}
        assert!(flushes.is_done(second) && plane.dp.tracker().count() == 0);
    }
}
