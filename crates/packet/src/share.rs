//! How much of a pool may be held by packets that wait at ports for slow receivers.
//!
//! One port may hold a sixteenth, and all together half. Beyond that half, a port that holds nothing may
//! still take what one packet becomes, from another quarter: so a port whose receiver reads keeps working,
//! however many others do not. The last quarter is for packets that do not wait.

use crate::Pool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Chunks that packets of one port hold while they wait.
#[derive(Default, Debug)]
pub struct Share(AtomicUsize);

impl Share {
    /// Takes the chunks that a packet becomes. False if that is more than the port may hold.
    pub fn take(&self, pool: &Pool, chunks: usize) -> bool {
        let all = pool.config().chunks;
        // Others may take some at the same moment: it does not matter that they are seen a little late.
        let waiting = pool.waiting.load(Relaxed) + chunks;
        let take = |held: usize| {
            let is_within = match held {
                0 => waiting <= all / 4 * 3,
                _ => held + chunks <= all / 16 && waiting <= all / 2,
            };
            is_within.then_some(held + chunks)
        };
        let is_taken = self.0.fetch_update(Relaxed, Relaxed, take).is_ok();
        if is_taken {
            pool.waiting.fetch_add(chunks, Relaxed);
        }
        is_taken
    }

    /// Gives back chunks that were taken.
    pub fn give_back(&self, pool: &Pool, chunks: usize) {
        self.0.fetch_sub(chunks, Relaxed);
        pool.waiting.fetch_sub(chunks, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;

    const CHUNKS: usize = 65_536;

    #[test]
    fn many_ports_that_hold_what_they_can_leave_enough_for_one_that_holds_nothing() {
        let pool = Pool::new(PoolConfig { chunks: CHUNKS, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let fill = |share: &Share, chunks| while share.take(pool, chunks) {};
        let alone = Share::default();
        fill(&alone, 32);
        assert_eq!(pool.waiting.load(Relaxed), CHUNKS / 16);
        for each in [1, 32, 256] {
            let shares: Vec<Share> = (0..60).map(|_| Share::default()).collect();
            shares.iter().for_each(|share| fill(share, each));
            shares.iter().for_each(|share| fill(share, 1));
            let held = pool.waiting.load(Relaxed);
            assert!((CHUNKS / 2..=CHUNKS / 4 * 3).contains(&held), "{each}: {held}");
            let reader = Share::default();
            for _ in 0..1_000 {
                assert!(reader.take(pool, 46), "{each}: {held} wait");
                assert!(!reader.take(pool, 46), "{each}: others want it, too");
                reader.give_back(pool, 46);
            }
            shares.iter().for_each(|share| share.give_back(pool, share.0.load(Relaxed)));
        }
        alone.give_back(pool, CHUNKS / 16);
        assert_eq!(pool.waiting.load(Relaxed), 0);
    }
}
