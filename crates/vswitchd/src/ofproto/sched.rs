//! The limit on packets to a controller: a rate with a burst, and after it a queue for each input port. The
//! queues are served in turn, so that one port's packets do not crowd out those of the others.
//!
//! Packets and the time are arguments, packets are results. Source: ovs-vswitchd.conf.db(5),
//! `controller_rate_limit`.
//!
//! A network fills the queues, and the configuration may allow any number of packets. So all queues have a
//! budget in bytes too, of which none can take all. Where it ends, packets are lost, and no connection is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes that all queues hold.
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Of which this is the maximum.
const ALL_BYTES_MAX: usize = 256 << 20;
/// Those of one connection's packets of one kind may hold this part of what the others leave.
const PARTS: usize = 8;

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
    /// By input port, each packet with its size in memory.
    queues: BTreeMap<u16, VecDeque<(T, usize)>>,
    queued: usize,
    bytes: usize,
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
            bytes: 0,
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

    /// Accepts a packet from a port, which takes so many bytes of memory; returns it if it may be sent at
    /// once.
    pub fn submit(&mut self, now: Instant, port: u16, packet: T, bytes: usize) -> Option<T> {
        self.fill(now);
        if self.queued == 0 && self.tokens >= PACKET {
            self.tokens -= PACKET;
            self.counts.bypassed += 1;
            return Some(packet);
        }
        if self.queued >= self.limits.burst as usize {
            self.drop_longest();
        }
        // One packet may wait in any case.
        while self.queued > 0 && self.bytes + bytes > self.bytes_max() {
            self.drop_longest();
        }
        self.queues.entry(port).or_default().push_back((packet, bytes));
        self.queued += 1;
        self.bytes += bytes;
        ALL_BYTES.fetch_add(bytes, Ordering::Relaxed);
        self.counts.queued += 1;
        None
    }

    fn bytes_max(&self) -> usize {
        let of_others = ALL_BYTES.load(Ordering::Relaxed).saturating_sub(self.bytes);
        ALL_BYTES_MAX.saturating_sub(of_others) / PARTS
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
        self.take(port)
    }

    /// The oldest packet of a port.
    fn take(&mut self, port: u16) -> Option<T> {
        let queue = self.queues.get_mut(&port)?;
        let (packet, bytes) = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&port);
        }
        self.queued -= 1;
        self.bytes -= bytes;
        ALL_BYTES.fetch_sub(bytes, Ordering::Relaxed);
        Some(packet)
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
        if longest.and_then(|port| self.take(port)).is_some() {
            self.counts.dropped += 1;
        }
    }
}

impl<T> Drop for Sched<T> {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(100, Some(25)), start);
        let sent = (0..40).filter(|n| sched.submit(start, 1, *n, 1).is_some()).count();
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
        assert_eq!((0..40).filter(|n| sched.submit(later, 1, *n, 1).is_some()).count(), 25);
    }

    #[test]
    fn a_flood_at_one_port_does_not_keep_others_away() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(100, Some(25)), start);
        assert_eq!((0..1_000).filter(|_| sched.submit(start, 1, 1, 1).is_some()).count(), 25);
        assert_eq!(sched.submit(start, 2, 2, 1), None);
        assert_eq!(sched.backlog(), 25);
        let later = start + Duration::from_millis(20);
        assert_eq!([sched.poll(later), sched.poll(later), sched.poll(later)], [Some(1), Some(2), None]);
        assert_eq!(sched.counts.dropped, 1_001 - 25 - 25);
    }

    #[test]
    fn lower_limits_drop_what_is_too_much() {
        let start = Instant::now();
        let mut sched = Sched::new(Limits::new(1_000, Some(100)), start);
        assert_eq!((0..200).filter(|n| sched.submit(start, n % 4, *n, 1).is_some()).count(), 100);
        sched.set_limits(Limits::new(100, None));
        assert_eq!((sched.backlog(), sched.counts.dropped), (25, 75));
    }

    #[test]
    fn a_queue_is_bounded_in_bytes_and_leaves_room_for_those_of_others() {
        let start = Instant::now();
        let many = Limits::new(1, Some(4_000_000));
        let flooded = |bytes: usize| {
            let mut sched = Sched::new(many, start);
            // Nothing is saved up any more.
            sched.tokens = 0;
            (0..10_000).for_each(|n| assert_eq!(sched.submit(start, n % 4, n, bytes), None));
            assert_eq!(sched.counts.dropped, 10_000 - sched.backlog() as u64);
            sched
        };
        // Other tests hold some bytes.
        const SOME: usize = 1 << 20;
        let first = flooded(10_000);
        let expected = ALL_BYTES_MAX / PARTS;
        assert!((expected - SOME..=expected).contains(&first.bytes), "{}", first.bytes);
        let others: Vec<Sched<u16>> = (0..20).map(|_| flooded(10_000)).collect();
        assert!(others.iter().all(|sched| sched.backlog() > 100));
        assert!(ALL_BYTES.load(Ordering::Relaxed) < ALL_BYTES_MAX);
        let mut large = flooded(4 << 20);
        assert_eq!(large.backlog(), 1, "one packet may wait in any case");
        assert!(large.poll(start + Duration::from_secs(1)).is_some());
        drop((first, others, large));
        assert!(ALL_BYTES.load(Ordering::Relaxed) < SOME, "all that they held");
    }
}
