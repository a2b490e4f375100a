//! The time of a cached flow's last use, in four bytes: an entry has no room for eight.
//!
//! It is the low half of the datapath's clock in milliseconds, which wraps every 49.7 days. Stamps are
//! compared by their age, never by value. That is correct as long as each flow is visited once in that time,
//! and each entry is visited every second.

/// See the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct Stamp(u32);

impl Stamp {
    /// The stamp for this time.
    #[inline(always)]
    pub fn of(ms: u64) -> Stamp {
        Stamp(ms as u32)
    }

    /// Milliseconds since the stamp.
    #[inline(always)]
    pub fn age_ms(self, now: Stamp) -> u32 {
        now.0.wrapping_sub(self.0)
    }

    /// The full time of the stamp, given that it is `now_ms` now.
    pub fn at_ms(self, now_ms: u64) -> u64 {
        now_ms - u64::from(self.age_ms(Stamp::of(now_ms)))
    }

    /// The later of the two.
    pub fn later(self, other: Stamp, now: Stamp) -> Stamp {
        if self.age_ms(now) <= other.age_ms(now) { self } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_order_and_distance_over_the_wrap() {
        const WRAP_MS: u64 = 1 << 32;
        for before in [0, 1, 999] {
            let (old, new, now_ms) = (WRAP_MS - 1 - before, WRAP_MS + before, WRAP_MS + 5_000);
            let now = Stamp::of(now_ms);
            assert_eq!(Stamp::of(old).age_ms(now), 5_001 + before as u32);
            assert_eq!((Stamp::of(old).at_ms(now_ms), Stamp::of(new).at_ms(now_ms)), (old, new));
            assert_eq!(Stamp::of(old).later(Stamp::of(new), now), Stamp::of(new));
            assert_eq!(Stamp::of(new).later(Stamp::of(old), now), Stamp::of(new));
        }
    }
}
