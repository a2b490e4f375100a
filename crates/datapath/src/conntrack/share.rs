//! A receive queue's share of a worker's time for new connections.
//!
//! Beginning a connection costs a worker many times what continuing one does. While packets come in at one
//! port only, it may begin as many as the worker has time for. While they come in at several ports, each of
//! their queues may begin [`SHARED`] in an interval, which lasts a millisecond, or until the worker finds no
//! packet: then all are served, and what time is left belongs to whoever has use for it. Packets that would
//! begin more are dropped and counted. So a flood of new connections at one port leaves time for the others.
//!
//! A firewall tracks a packet first, and what begins a connection goes round to a rule that commits it. Going
//! round to be refused costs nearly as much as beginning a connection. So for the rest of an interval in
//! which a queue has exceeded its share, its packets of unknown connections are dropped where they are
//! tracked first, and opening segments of TCP before that ([`crate::process`]), if they would go round to
//! where its packets were refused. Where nothing commits, packets of unknown connections are nobody's burden.
//!
//! Threads: one worker.

use base::PortNo;

/// How many connections one receive queue may begin in an interval while other ports have packets too.
pub const SHARED: u32 = 100;

/// Where a range of addresses and ports is used up, looking at so many tuples that others have costs as much
/// as beginning a connection.
const TRIES: u32 = 4;

/// Recirculation ids that a queue remembers.
const REMEMBERED: usize = 8;

/// Whether several ports have had packets, and the interval for which queues have shares.
#[derive(Default)]
pub struct Share {
    interval: u64,
    /// In this window and in the last one.
    now: Ports,
    last: Ports,
    window: u64,
}

/// Ports that have had packets in a window.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Ports {
    #[default]
    None,
    One(PortNo),
    Several,
}

impl Ports {
    #[inline(always)]
    fn with(self, port: PortNo) -> Ports {
        match self {
            Ports::None => Ports::One(port),
            Ports::One(other) if other == port => self,
            _ => Ports::Several,
        }
    }
}

/// How many connections a queue's packets have begun in an interval.
#[derive(Clone, Copy, Default)]
pub struct Begun {
    interval: u64,
    count: u32,
    is_share_exceeded: bool,
    /// The recirculation ids of packets that were refused, and the place for the next one.
    refused_at: [u32; REMEMBERED],
    next: u8,
}

impl Begun {
    /// Remembers the recirculation id of a packet that was refused, 0 of one that had not gone round.
    pub fn refused_at(&mut self, recirc_id: u32) {
        if recirc_id != 0 && !self.refused_at.contains(&recirc_id) {
            self.refused_at[usize::from(self.next)] = recirc_id;
            self.next = (self.next + 1) % REMEMBERED as u8;
        }
    }
}

/// How long a port counts as active after a packet.
const WINDOW_MS: u64 = 64;

impl Share {
    /// Records that a burst came in at the port.
    #[inline(always)]
    pub fn note(&mut self, port: PortNo) {
        self.now = self.now.with(port);
    }

    /// Begins the next interval: a millisecond is over, or the worker has found no packet.
    #[inline(always)]
    pub fn begin_interval(&mut self) {
        self.interval += 1;
    }

    /// Whether a queue has tried to begin more than its share in this interval.
    #[inline(always)]
    pub fn is_exceeded(&self, begun: &Begun) -> bool {
        begun.is_share_exceeded && begun.interval == self.interval
    }

    /// The same, and packets with this recirculation id were refused.
    #[inline(always)]
    pub fn refuses(&self, begun: &Begun, recirc_id: u32) -> bool {
        self.is_exceeded(begun) && begun.refused_at.contains(&recirc_id)
    }

    /// Counts tuples that a connection could not have, in the interval in which it was to begin.
    #[cold]
    pub fn tried(&self, begun: &mut Begun, tries: u32) {
        begun.count += tries / TRIES;
    }

    /// Whether a queue may begin one more connection, which is then counted, by a packet with this
    /// recirculation id.
    pub fn may_begin(&mut self, begun: &mut Begun, recirc_id: u32, now_ms: u64) -> bool {
        let window = now_ms / WINDOW_MS;
        if window != self.window {
            self.last = if window == self.window + 1 { self.now } else { Ports::None };
            (self.now, self.window) = (Ports::None, window);
        }
        if begun.interval != self.interval {
            *begun = Begun { interval: self.interval, count: 0, is_share_exceeded: false, ..*begun };
        }
        begun.count += 1;
        let both = match self.last {
            Ports::One(port) => self.now.with(port),
            Ports::None => self.now,
            Ports::Several => Ports::Several,
        };
        begun.is_share_exceeded = both == Ports::Several && begun.count > SHARED;
        if begun.is_share_exceeded {
            begun.refused_at(recirc_id);
        }
        !begun.is_share_exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIRC_ID: u32 = 7;

    #[test]
    fn a_port_alone_begins_what_it_likes_and_one_among_others_its_share_of_an_interval() {
        let (mut share, mut flood, mut other) = (Share::default(), Begun::default(), Begun::default());
        let begin = |share: &mut Share, begun: &mut Begun, port, n: u32, ms| {
            share.note(PortNo(port));
            (0..n).filter(|_| share.may_begin(begun, RECIRC_ID, ms)).count()
        };
        assert_eq!(begin(&mut share, &mut flood, 1, 5_000, 1), 5_000);
        assert_eq!(begin(&mut share, &mut other, 2, 1, 1), 1);
        share.begin_interval();
        assert_eq!(begin(&mut share, &mut flood, 1, 100, 1), 100);
        assert!(!share.refuses(&flood, RECIRC_ID));
        assert_eq!(begin(&mut share, &mut flood, 1, 1, 1), 0);
        assert!(share.refuses(&flood, RECIRC_ID) && !share.refuses(&other, RECIRC_ID));
        assert!(!share.refuses(&flood, RECIRC_ID + 1));
        for id in 1..=REMEMBERED as u32 {
            flood.refused_at(RECIRC_ID + id);
            flood.refused_at(RECIRC_ID + id);
        }
        assert!(!share.refuses(&flood, RECIRC_ID) && share.refuses(&flood, RECIRC_ID + 1), "the oldest goes");
        flood.refused_at(0);
        assert!(!share.refuses(&flood, 0), "no list leads there");
        assert_eq!(begin(&mut share, &mut other, 2, 50, 1), 50);
        share.begin_interval();
        assert!(!share.refuses(&flood, RECIRC_ID));
        assert_eq!(begin(&mut share, &mut flood, 1, 5_000, 1), 100);
        assert_eq!(begin(&mut share, &mut flood, 1, 5_000, 300), 5_000, "alone again");
        share.begin_interval();
        assert_eq!(begin(&mut share, &mut other, 2, 1, 300), 1);
        assert_eq!(begin(&mut share, &mut flood, 1, 1, 300), 1);
        share.tried(&mut flood, 50 * TRIES);
        assert_eq!(begin(&mut share, &mut flood, 1, 5_000, 300), 49, "what it has looked for in vain counts");
        share.begin_interval();
        // Whatever the other's number is.
        assert_eq!(begin(&mut share, &mut other, 65, 1, 300), 1);
        share.begin_interval();
        assert_eq!(begin(&mut share, &mut flood, 1, 5_000, 300), 100);
    }
}
