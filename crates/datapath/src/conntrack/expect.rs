//! Connections that helpers announce: from where to where they may be opened, and how they relate to their
//! parent.
//!
//! They are kept in buckets chosen by a keyed hash of both addresses, of [`WAYS`] places each, so two hosts
//! can have that many pending. In a full bucket an expectation of the same parent gives way; failing that,
//! one of the same hosts; failing that, one of other hosts that share the bucket. Among several, the one that
//! expires first gives way. Each is good for any number of connections, until [`TIMEOUT_MS`] have passed or
//! its parent is gone.
//!
//! Threads: any. Each bucket has its own lock. It is taken by packets that announce something, and by packets
//! of no known connection while anything at all is pending.

use super::entry::Generation;
use super::request::{Range, Side};
use super::tuple::Tuple;
use arrayvec::ArrayVec;
use base::hash::HashKey;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BUCKETS: usize = 256;
/// How many connections two hosts may have pending.
pub(crate) const WAYS: usize = 16;
const TIMEOUT_MS: u64 = 300_000;

/// What the addresses of an expected connection are translated to, if the rules translate them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Redirect {
    pub side: Side,
    pub address: u128,
    pub port: Option<u16>,
}

impl Redirect {
    /// The same as a range of one address.
    pub fn range(&self, is_ipv6: bool) -> Range {
        Range {
            side: self.side,
            addresses: Some((self.address, self.address)),
            is_ipv6,
            ports: self.port.map(|port| (port, port)),
            is_persistent: false,
            is_hash: false,
            is_random: false,
        }
    }
}

/// An expected connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    /// The tuple of its first packet. The source port is 0, which stands for any.
    pub tuple: Tuple,
    pub zone: u16,
    /// Its parent, the connection that announced it.
    pub parent: (u32, Generation),
    pub redirect: Option<Redirect>,
    pub expires_ms: u64,
}

type Bucket = ArrayVec<Expected, WAYS>;

/// See the module documentation.
pub(crate) struct Expectations {
    buckets: Box<[Mutex<Bucket>]>,
    /// The number of expectations in all buckets.
    pending: AtomicU32,
}

impl Expectations {
    pub fn new() -> Expectations {
        let buckets = (0..BUCKETS).map(|_| Mutex::new(Bucket::new())).collect();
        Expectations { buckets, pending: AtomicU32::new(0) }
    }

    fn bucket(&self, tuple: &Tuple, zone: u16, secret: &HashKey) -> MutexGuard<'_, Bucket> {
        let hosts = Tuple { src_port: 0, dst_port: 0, ..*tuple };
        let n = hosts.hash(zone, secret) as usize % BUCKETS;
        // No code panics while it holds this lock.
        self.buckets[n].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an expectation. False if another connection that still exists expects the same.
    pub fn put(
        &self,
        mut new: Expected,
        secret: &HashKey,
        now_ms: u64,
        is_there: impl Fn((u32, Generation)) -> bool,
    ) -> bool {
        new.tuple.src_port = 0;
        new.expires_ms = now_ms + TIMEOUT_MS;
        let mut bucket = self.bucket(&new.tuple, new.zone, secret);
        self.forget(&mut bucket, |old| old.expires_ms <= now_ms || !is_there(old.parent));
        if let Some(same) = bucket.iter_mut().find(|old| (old.tuple, old.zone) == (new.tuple, new.zone)) {
            if same.parent != new.parent {
                return false;
            }
            *same = new;
            return true;
        }
        if bucket.is_full()
            && let Some((first, _)) = bucket.iter().enumerate().min_by_key(|(_, old)| {
                let hosts = |e: &Expected| (e.tuple.src, e.tuple.dst, e.zone);
                (old.parent != new.parent, hosts(old) != hosts(&new), old.expires_ms)
            })
        {
            bucket.remove(first);
            self.pending.fetch_sub(1, Relaxed);
        }
        bucket.push(new);
        self.pending.fetch_add(1, Relaxed);
        true
    }

    fn forget(&self, bucket: &mut Bucket, is_over: impl Fn(&Expected) -> bool) {
        let before = bucket.len();
        bucket.retain(|old| !is_over(old));
        self.pending.fetch_sub((before - bucket.len()) as u32, Relaxed);
    }

    /// The expectation that matches a packet of no known connection. Forgets expectations whose parent is
    /// gone.
    pub fn find(
        &self,
        tuple: &Tuple,
        zone: u16,
        secret: &HashKey,
        now_ms: u64,
        is_there: impl Fn((u32, Generation)) -> bool,
    ) -> Option<Expected> {
        if self.pending.load(Relaxed) == 0 {
            return None;
        }
        let mut bucket = self.bucket(tuple, zone, secret);
        self.forget(&mut bucket, |old| old.expires_ms <= now_ms || !is_there(old.parent));
        let wanted = Tuple { src_port: 0, ..*tuple };
        bucket.iter().find(|old| (old.tuple, old.zone) == (wanted, zone)).copied()
    }

    #[cfg(test)]
    pub fn pending(&self) -> u32 {
        self.pending.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conntrack::entry::Entry;
    use zerocopy::FromZeros;

    #[test]
    fn two_hosts_have_a_bounded_number_pending() {
        let (all, secret) = (Expectations::new(), HashKey::from_seed(3));
        let entry = Entry::new_zeroed();
        let parent = (7, entry.begin());
        let tuple = |port| Tuple {
            src: 1,
            dst: 2,
            src_port: 0,
            dst_port: port,
            protocol: super::super::tuple::TCP,
            is_ipv6: false,
        };
        let expected = |port| Expected { tuple: tuple(port), zone: 3, parent, redirect: None, expires_ms: 0 };
        let last = WAYS as u16 + 2;
        for port in 1..=last {
            assert!(all.put(expected(port), &secret, port.into(), |_| true));
        }
        assert_eq!(all.pending(), WAYS as u32);
        let find = |port, now_ms| {
            let packet = Tuple { src_port: 999, ..tuple(port) };
            all.find(&packet, 3, &secret, now_ms, |_| true)
        };
        assert_eq!(find(2, 10), None, "gave way");
        let found = find(last, 20).unwrap();
        assert_eq!(find(last, 20), Some(found), "it is good for several");
        // Another connection's is not replaced, its own is.
        assert!(!all.put(Expected { parent: (8, parent.1), ..expected(6) }, &secret, 10, |_| true));
        assert!(all.put(expected(6), &secret, 10, |_| true));
        // One that is gone leaves its place to a client that connects anew and offers the same port.
        let anew = Expected { parent: (9, parent.1), ..expected(6) };
        assert!(all.put(anew, &secret, 10, |(idx, _)| idx != parent.0));
        assert_eq!(find(6, 10).map(|found| found.parent), Some(anew.parent));
        for port in [3, 4, 6] {
            assert!(all.put(expected(port), &secret, 10, |(idx, _)| idx == parent.0));
        }
        assert_eq!(find(6, TIMEOUT_MS + 10), None, "too late");
        assert_eq!(all.find(&tuple(3), 3, &secret, 20, |_| false), None, "its parent is gone");
        // Who announces much takes the places of its own first.
        assert!(all.put(Expected { parent: (8, parent.1), ..expected(1) }, &secret, 0, |_| true));
        for port in 10..30 {
            assert!(all.put(expected(port), &secret, port.into(), |_| true));
        }
        assert_eq!(find(1, 40).map(|found| found.parent), Some((8, parent.1)));
        all.find(&tuple(3), 3, &secret, 40, |_| false);
        assert_eq!(all.pending(), 0);
    }
}
