//! An input port as each of its receive queues holds it: what the packet path needs of the port without
//! looking it up by number. Made by the control side.

use crate::conntrack::share::Begun;
use crate::ports::InputIdx;
use crate::promotion::Promotion;
use crate::stats::PortCounters;
use base::{OfPort, PortNo};
use flow::Depth;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module documentation.
pub struct Input {
    /// Which port.
    pub port: PortNo,
    /// The port's index in the caches of its worker, which sets it.
    pub idx: InputIdx,
    /// What the pipeline says about it.
    pub view: Arc<PortView>,
    /// This worker's counters of packets that come in here; `None` if the port has no worker.
    pub counters: Option<Arc<PortCounters>>,
    exact_tier: ExactTier,
    /// Until when the exact tier is used regardless of the setting: a flow that lives only there was hit.
    alone_until_ms: u64,
    /// Until when bursts of TCP opening segments skip the exact tier, because such a segment was tracked
    /// lately.
    tracks_openings_until_ms: u64,
    /// Connections that its packets have begun lately.
    pub begun: Begun,
    /// Which of its bursts use the exact tier.
    pub promotion: Promotion,
}

/// Whether the exact-match tier is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ExactTier {
    /// It is.
    #[default]
    On,
    /// It is not used, as long as no flow is cached there alone. For comparisons.
    Off,
}

/// How long the exact tier stays in use after the last packet of a flow that is cached there alone.
const ALONE_MS: u64 = 10_000;

/// How long after an opening segment was tracked other opening segments are assumed to be tracked, too.
const TRACKS_OPENINGS_MS: u64 = 1_000;

impl Input {
    pub fn new(
        port: PortNo,
        view: Arc<PortView>,
        counters: Option<Arc<PortCounters>>,
        exact_tier: ExactTier,
    ) -> Box<Input> {
        let (idx, begun, promotion) = (InputIdx::default(), Begun::default(), Promotion::default());
        Box::new(Input {
            port,
            idx,
            view,
            counters,
            exact_tier,
            alone_until_ms: 0,
            tracks_openings_until_ms: 0,
            begun,
            promotion,
        })
    }

    /// No port.
    pub fn none() -> Box<Input> {
        Input::new(PortNo::NONE, Arc::default(), None, ExactTier::On)
    }

    /// Whether a burst that arrives now goes through the exact tier.
    #[inline(always)]
    pub fn use_exact(&self, now_ms: u64) -> bool {
        now_ms < self.alone_until_ms || self.exact_tier == ExactTier::On && self.promotion.uses_exact()
    }

    /// Whether opening segments are probably tracked. If so, the exact tier contains none of them.
    #[inline(always)]
    pub fn tracks_openings(&self, now_ms: u64) -> bool {
        now_ms < self.tracks_openings_until_ms
    }

    /// Records that an opening segment was tracked.
    #[inline(always)]
    pub fn tracked_opening(&mut self, now_ms: u64) {
        self.tracks_openings_until_ms = now_ms + TRACKS_OPENINGS_MS;
    }

    /// Records that a flow cached in the exact tier alone was installed or hit.
    #[inline(always)]
    pub fn met_alone(&mut self, now_ms: u64) {
        self.alone_until_ms = now_ms + ALONE_MS;
    }
}

/// What the pipeline tells all workers about a port whose packets they read: its number in its bridge, and
/// how deep to read. Both change together.
#[derive(Debug)]
pub struct PortView(AtomicU32);

impl Default for PortView {
    /// For a port that is in no bridge.
    fn default() -> PortView {
        PortView::new(OfPort::NONE, Depth::Metadata)
    }
}

impl PortView {
    /// A port with this number, whose packets are read to this depth.
    pub fn new(of_port: OfPort, depth: Depth) -> PortView {
        PortView(AtomicU32::new(word(of_port, depth)))
    }

    /// Changes both. Release: readers that see it also see what was done before.
    pub fn set(&self, of_port: OfPort, depth: Depth) {
        self.0.store(word(of_port, depth), Ordering::Release);
    }

    /// Its number in its bridge, [`OfPort::NONE`] if it is in none, and how deep to read its packets.
    #[inline(always)]
    pub fn get(&self) -> (OfPort, Depth) {
        let word = self.0.load(Ordering::Acquire);
        (OfPort(word as u16), Depth::ALL[(word >> 16) as usize % Depth::ALL.len()])
    }
}

fn word(of_port: OfPort, depth: Depth) -> u32 {
    u32::from(of_port.0) | (depth as u32) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_are_cached_alone_keep_the_exact_tier_on() {
        let mut input = Input::new(PortNo(1), Arc::default(), None, ExactTier::Off);
        assert!(!input.use_exact(5_000));
        input.met_alone(5_000);
        assert!(input.use_exact(5_001) && !input.use_exact(5_000 + ALONE_MS));
        // A time that is over does not come back when 32 bits of milliseconds have passed.
        assert!(!input.use_exact(5_001 + (1 << 32)));
        assert!(Input::none().use_exact(0));
    }
}
