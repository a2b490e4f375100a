//! The limit on packets to a controller: a rate with a burst, and after it a queue for each input port. The
//! queues are served in turn, so that one port's packets do not crowd out those of the others.
//!
//! Pure: packets and the time are arguments, packets are results. Source: ovs-vswitchd.conf.db(5),
//! `controller_rate_limit`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A rate and a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Packets a second.
    rate: u32,
    /// Packets saved up, and packets queued.
    burst: u32,
}

impl Limits {
    /// At least one packet a second; the default burst is a quarter of the rate.
    pub fn new(rate: u32, burst: Option<u32>) -> Limits {
        let rate = rate.max(1);
        Limits { rate, burst: burst.unwrap_or(rate / 4).max(1) }
    }
}

/// What happened to packets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct SchedCounts {
    pub bypassed: u64,
    pub queued: u64,
    pub dropped: u64,
}

/// See the module documentation.
pub(crate) struct Sched<T> {
    limits: Limits,
    /// Thousandths of a packet that may be sent.
    tokens: u64,
    filled: Instant,
    /// By input port.
    queues: BTreeMap<u16, VecDeque<T>>,
    queued: usize,
    /// The port served last.
    last: u16,
    pub counts: SchedCounts,
}

const PACKET: u64 = 1_000;

impl<T> Sched<T> {
    /// With a full burst saved up.
    pub fn new(limits: Limits, now: Instant) -> Sched<T> {
        Sched {
            limits,
            tokens: u64::from(limits.burst) * PACKET,
            filled: now,
            queues: BTreeMap::new(),
            queued: 0,
            last: 0,
            counts: SchedCounts::default(),
        }
    }

    /// Other limits. What waits beyond them is dropped.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        while self.queued > limits.burst as usize {
            self.drop_longest();
        }
    }

    /// Packets that wait.
    pub fn backlog(&self) -> usize {
        self.queued
    }

    /// Accepts a packet from a port; returns it if it may be sent at once.
    pub fn submit(&mut self, now: Instant, port: u16, packet: T) -> Option<T> {
        self.fill(now);
        if self.queued == 0 && self.tokens >= PACKET {
            self.tokens -= PACKET;
            self.counts.bypassed += 1;
            return Some(packet);
        }
        if self.queued >= self.limits.burst as usize {
            self.drop_longest();
        }
        self.queues.entry(port).or_default().push_back(packet);
        self.queued += 1;
        self.counts.queued += 1;
        None
    }

    /// A packet that may be sent now.
    pub fn poll(&mut self, now: Instant) -> Option<T> {
        self.fill(now);
        if self.queued == 0 || self.tokens < PACKET {
            return None;
        }
        self.tokens -= PACKET;
        let after = (std::ops::Bound::Excluded(self.last), std::ops::Bound::Unbounded);
        let next = self.queues.range(after).next().or_else(|| self.queues.iter().next());
        let port = *next?.0;
        self.last = port;
        let queue = self.queues.get_mut(&port)?;
        let packet = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&port);
        }
        self.queued -= 1;
        packet
    }

    /// When [`Self::poll`] has something.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.queued == 0 {
            return None;
        }
        let missing = PACKET.saturating_sub(self.tokens);
        Some(self.filled + Duration::from_micros((missing * 1_000).div_ceil(u64::from(self.limits.rate))))
    }

    fn fill(&mut self, now: Instant) {
        let passed_us = now.saturating_duration_since(self.filled).as_micros() as u64;
        let rate = u64::from(self.limits.rate);
        // A packet has a thousand parts, a second a million microseconds.
        let parts = passed_us.saturating_mul(rate) / 1_000;
        if parts == 0 {
            return;
        }
        self.filled += Duration::from_micros((parts * 1_000).div_ceil(rate).min(passed_us));
        self.tokens = (self.tokens + parts).min(u64::from(self.limits.burst) * PACKET);
    }

    fn drop_longest(&mut self) {
        let longest = self.queues.iter().max_by_key(|(_, queue)| queue.len()).map(|(port, _)| *port);
        let Some(port) = longest else { return };
        if let Some(queue) = self.queues.get_mut(&port) {
            queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&port);
            }
            self.queued -= 1;
            self.counts.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(100, Some(25)), start);
        let sent = (0..40).filter(|n| sched.submit(start, 1, *n).is_some()).count();
        assert_eq!((sent, sched.backlog()), (25, 15));
        let mut times = vec![];
        while let Some(due) = sched.poll_timeout() {
            assert!(sched.poll(due - Duration::from_micros(1)).is_none());
            times.push((due - start).as_millis());
            assert!(sched.poll(due).is_some());
        }
        assert_eq!(times, (1..=15).map(|n| n * 10).collect::<Vec<_>>());
        assert_eq!(sched.counts, SchedCounts { bypassed: 25, queued: 15, dropped: 0 });
        // A second of silence saves up the burst again, and no more.
        let later = start + Duration::from_secs(10);
        assert_eq!((0..40).filter(|n| sched.submit(later, 1, *n).is_some()).count(), 25);
    }

    #[test]
    fn a_flood_at_one_port_does_not_keep_others_away() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(100, Some(25)), start);
        assert_eq!((0..1_000).filter(|_| sched.submit(start, 1, 1).is_some()).count(), 25);
        assert_eq!(sched.submit(start, 2, 2), None);
        assert_eq!(sched.backlog(), 25);
        let later = start + Duration::from_millis(20);
        assert_eq!([sched.poll(later), sched.poll(later), sched.poll(later)], [Some(1), Some(2), None]);
        assert_eq!(sched.counts.dropped, 1_001 - 25 - 25);
    }

    #[test]
    fn lower_limits_drop_what_is_too_much() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(1_000, Some(100)), start);
        assert_eq!((0..200).filter(|n| sched.submit(start, n % 4, *n).is_some()).count(), 100);
        sched.set_limits(Limits::new(100, None));
        assert_eq!((sched.backlog(), sched.counts.dropped), (25, 75));
    }
}
