//! Connections that helpers announce: from where to where they may be opened, and how they relate to their
//! parent.
//!
//! They are kept in buckets chosen by a keyed hash of both addresses, of [`WAYS`] places each, so two hosts
//! can have that many pending. In a full bucket an expectation of the same parent gives way; failing that,
//! one of the same hosts; failing that, one of the zone that has most in the bucket, so that a zone that
//! announces much takes the places of no other. Among several, the one that expires first gives way. Each is
//! good for any number of connections, until [`TIMEOUT_MS`] have passed or its parent is gone.
//!
//! Threads: any. Each bucket has its own lock. It is taken by packets that announce something, and by packets
//! of no known connection while anything is pending in their bucket.

use super::entry::Generation;
use super::request::{Range, Side};
use super::tuple::Tuple;
use arrayvec::ArrayVec;
use base::hash::HashKey;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

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

#[derive(Default)]
struct Bucket {
    /// The number of its expectations, to be read without its lock.
    pending: AtomicU32,
    all: Mutex<ArrayVec<Expected, WAYS>>,
}

/// See the module documentation.
pub(crate) struct Expectations {
    buckets: Box<[Bucket]>,
    /// The number of expectations in all buckets: without any, no bucket need be found.
    pending: AtomicU32,
}

impl Expectations {
    pub fn new() -> Expectations {
        let buckets = std::iter::repeat_with(Bucket::default).take(BUCKETS).collect();
        Expectations { buckets, pending: AtomicU32::new(0) }
    }

    fn bucket(&self, tuple: &Tuple, zone: u16, secret: &HashKey) -> &Bucket {
        let hosts = Tuple { src_port: 0, dst_port: 0, ..*tuple };
        &self.buckets[hosts.hash(zone, secret) as usize % BUCKETS]
    }

    fn change<T>(&self, bucket: &Bucket, change: impl FnOnce(&mut ArrayVec<Expected, WAYS>) -> T) -> T {
        // No code panics while it holds this lock.
        let mut all = bucket.all.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.len() as u32;
        let result = change(&mut all);
        let after = all.len() as u32;
        if after != before {
            bucket.pending.store(after, Relaxed);
            self.pending.fetch_add(after.wrapping_sub(before), Relaxed);
        }
        result
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
        self.change(self.bucket(&new.tuple, new.zone, secret), |all| {
            all.retain(|old| old.expires_ms > now_ms && is_there(old.parent));
            if let Some(same) = all.iter_mut().find(|old| (old.tuple, old.zone) == (new.tuple, new.zone)) {
                let is_ours = same.parent == new.parent;
                if is_ours {
                    *same = new;
                }
                return is_ours;
            }
            let hosts = |e: &Expected| (e.tuple.src, e.tuple.dst, e.zone);
            let of_zone = |zone| all.iter().chain([&new]).filter(|e| e.zone == zone).count();
            if all.is_full()
                && let Some((first, _)) = all.iter().enumerate().min_by_key(|(_, old)| {
                    let is_of_others = (old.parent != new.parent, hosts(old) != hosts(&new));
                    (is_of_others, Reverse(of_zone(old.zone)), old.expires_ms)
                })
            {
                all.remove(first);
            }
            all.push(new);
            true
        })
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
        let bucket = self.bucket(tuple, zone, secret);
        if bucket.pending.load(Relaxed) == 0 {
            return None;
        }
        let wanted = Tuple { src_port: 0, ..*tuple };
        self.change(bucket, |all| {
            all.retain(|old| old.expires_ms > now_ms && is_there(old.parent));
            all.iter().find(|old| (old.tuple, old.zone) == (wanted, zone)).copied()
        })
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

    #[test]
    fn a_zone_that_announces_much_takes_the_places_of_no_other() {
        let (all, secret) = (Expectations::new(), HashKey::from_seed(3));
        let parent = (7, Entry::new_zeroed().begin());
        let tuple = |dst| Tuple {
            src: 1,
            dst,
            src_port: 0,
            dst_port: 20,
            protocol: super::super::tuple::TCP,
            is_ipv6: false,
        };
        let put = |zone, dst: u128| {
            // Each connection is another's.
            let parent = (dst as u32, parent.1);
            let new = Expected { tuple: tuple(dst), zone, parent, redirect: None, expires_ms: 0 };
            assert!(all.put(new, &secret, dst as u64, |_| true));
        };
        let flood = |hosts: std::ops::Range<u128>| hosts.for_each(|dst| put(3, dst));
        flood(0..20_000);
        (0..100).for_each(|dst| put(4, dst));
        flood(20_000..40_000);
        let left = |dst| all.find(&tuple(dst), 4, &secret, 40_000, |_| true).is_some();
        assert_eq!((0..100).filter(|dst| left(*dst)).count(), 100);
        assert_eq!(all.pending() as usize, BUCKETS * WAYS);
    }

    #[test]
    fn packets_wait_for_no_lock_of_a_bucket_without_expectations() {
        let (all, secret) = (Expectations::new(), HashKey::from_seed(3));
        let tuple = |dst| Tuple {
            src: 1,
            dst,
            src_port: 0,
            dst_port: 20,
            protocol: super::super::tuple::TCP,
            is_ipv6: false,
        };
        let parent = (7, Entry::new_zeroed().begin());
        let put = |dst| {
            let new = Expected { tuple: tuple(dst), zone: 3, parent, redirect: None, expires_ms: 0 };
            all.put(new, &secret, 0, |_| true)
        };
        assert!(put(2));
        let bucket = |dst| std::ptr::from_ref(all.bucket(&tuple(dst), 3, &secret));
        let elsewhere = (3..).find(|&dst| bucket(dst) != bucket(2)).unwrap();
        let (all, secret) = (&all, &secret);
        std::thread::scope(|scope| {
            let lock = all.bucket(&tuple(elsewhere), 3, secret).all.lock().unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(move || tell.send(all.find(&tuple(elsewhere), 3, secret, 0, |_| true)));
            let found = told.recv_timeout(std::time::Duration::from_secs(20));
            drop(lock);
            assert_eq!(found, Ok(None));
        });
        assert!(put(elsewhere));
        assert!(all.find(&tuple(elsewhere), 3, secret, 0, |_| true).is_some());
    }
}
