//! Meters: packets that exceed a rate are dropped, or their drop precedence is raised.
//!
//! A band is a token bucket, stored as the time at which it would be full again: one word, which all workers
//! share without a lock. A packet of cost `c` (the time in which its tokens accumulate) conforms if the
//! bucket, filled up to now, has enough tokens:
//!
//! `max(full_at, now) + c <= now + depth`, and then `full_at` becomes the left side.
//!
//! Times are in 64ths of a nanosecond: at 100 Gb/s a frame of 64 bytes costs 328 of them, so rounding errors
//! are far below a percent; 64 bits last for nine years.
//!
//! Time is an argument. Sources: OpenFlow 1.3 section 5.7; RFC 2597 for drop precedences.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 64ths of a nanosecond in a second.
const SECOND: u64 = 64_000_000_000;

/// Configuration of one band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BandSpec {
    /// Kilobits or packets per second, at least 1.
    pub rate: u32,
    /// Burst size in kilobits or packets; 0 means one second at the rate.
    pub burst_size: u32,
    /// By how much to raise the drop precedence; `None` drops.
    pub prec_level: Option<u8>,
}

struct Band {
    spec: BandSpec,
    /// The time in which an empty bucket fills up.
    depth: u64,
    full_at: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// A meter's verdict on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metered {
    /// Pass it.
    Pass,
    /// Drop it.
    Drop,
    /// Raise its drop precedence by this much.
    Remark(u8),
}

/// Packets and bytes.
pub type Counts = (u64, u64);

/// A meter, shared by all flows that name it.
pub struct Meter {
    /// Its number in the datapath.
    pub number: u32,
    is_in_packets: bool,
    bands: Box<[Band]>,
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// A meter with full buckets. `is_in_packets`: rates count packets, not kilobits.
    pub fn new(number: u32, is_in_packets: bool, bands: &[BandSpec]) -> Meter {
        let band = |spec: &BandSpec| {
            let burst = if spec.burst_size == 0 { spec.rate } else { spec.burst_size };
            let depth = u128::from(burst) * u128::from(SECOND) / u128::from(spec.rate.max(1));
            Band {
                spec: *spec,
                depth: u64::try_from(depth).unwrap_or(u64::MAX).min(u64::MAX / 4),
                full_at: AtomicU64::new(0),
                packets: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            }
        };
        let bands = bands.iter().map(band).collect();
        Meter { number, is_in_packets, bands, packets: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Whether it raises drop precedences.
    pub fn remarks(&self) -> bool {
        self.bands.iter().any(|band| band.spec.prec_level.is_some())
    }

    /// Judges and counts one packet. If it exceeds several bands, the one with the highest rate decides.
    pub fn admit(&self, now_ns: u64, bytes: u64) -> Metered {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        let now = now_ns.saturating_mul(SECOND / 1_000_000_000).min(u64::MAX / 2);
        let mut decides: Option<&Band> = None;
        for band in &self.bands {
            let rate = u64::from(band.spec.rate.max(1));
            let cost = if self.is_in_packets { SECOND / rate } else { bytes * 8 * (SECOND / 1000) / rate };
            if !band.takes(now, cost) && decides.is_none_or(|other| band.spec.rate > other.spec.rate) {
                decides = Some(band);
            }
        }
        let Some(band) = decides else { return Metered::Pass };
        band.packets.fetch_add(1, Relaxed);
        band.bytes.fetch_add(bytes, Relaxed);
        band.spec.prec_level.map_or(Metered::Drop, Metered::Remark)
    }

    /// What came in.
    pub fn counts(&self) -> Counts {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// What each band has acted on.
    pub fn band_counts(&self) -> impl Iterator<Item = Counts> {
        self.bands.iter().map(|band| (band.packets.load(Relaxed), band.bytes.load(Relaxed)))
    }
}

impl Band {
    /// Takes these tokens from the bucket if it has them.
    fn takes(&self, now: u64, cost: u64) -> bool {
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            let next = full_at.max(now).saturating_add(cost);
            if next > now + self.depth {
                return false;
            }
            // A failure means that another worker has made progress.
            match self.full_at.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now_is) => full_at = now_is,
            }
        }
    }
}

/// A reference to a meter in an action list. Equal means the same meter.
#[derive(Clone)]
pub struct MeterRef(pub Arc<Meter>);

impl PartialEq for MeterRef {
    fn eq(&self, other: &MeterRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for MeterRef {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.0
    }
}

impl fmt::Debug for MeterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meter {}", self.number)
    }
}

/// The time for meters in nanoseconds: monotonic, and warped like [`base::clock`].
pub(crate) fn now_ns() -> u64 {
    let ticks = base::clock::tsc().min(base::clock::stopped_tsc());
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(base::clock::tsc_hz());
    ns as u64 + base::clock::warped_ms() * 1_000_000
}

/// The type of service with its drop precedence raised, for assured forwarding classes; others have none.
pub fn remarked(tos: u8, by: u8) -> u8 {
    let (class, precedence) = (tos >> 5, tos >> 3 & 3);
    let is_assured = (1..=4).contains(&class) && precedence != 0 && tos & 4 == 0;
    if is_assured { tos & 0b1110_0111 | precedence.saturating_add(by).min(3) << 3 } else { tos }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drop_band(rate: u32, burst_size: u32) -> BandSpec {
        BandSpec { rate, burst_size, prec_level: None }
    }

    /// A bucket in floating point, as the standard describes it.
    struct Model {
        tokens: f64,
        size: f64,
        per_ns: f64,
        last_ns: u64,
    }

    impl Model {
        fn takes(&mut self, now_ns: u64, cost: f64) -> bool {
            self.tokens = (self.tokens + (now_ns - self.last_ns) as f64 * self.per_ns).min(self.size);
            self.last_ns = now_ns;
            let takes = self.tokens >= cost;
            self.tokens -= if takes { cost } else { 0.0 };
            takes
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::meter", 200)))]
        #[test]
        fn what_passes_in_ten_seconds_is_the_rate_to_one_percent(
            packets in any::<bool>(),
            rate in 500u32..200_000,
            burst_ms in 20u64..2_000,
            load in 1.1f64..4.0,
            bytes in 64u64..1_500,
            jitter in 0u64..1_000_000,
        ) {
            let burst = (u64::from(rate) * burst_ms / 1000).max(2) as u32;
            let meter = Meter::new(1, packets, &[drop_band(rate, burst)]);
            let cost = if packets { 1.0 } else { bytes as f64 * 8.0 / 1000.0 };
            let size = f64::from(burst);
            prop_assume!(size > 2.0 * cost);
            let mut model = Model { tokens: size, size, per_ns: f64::from(rate) / 1e9, last_ns: 0 };
            let gap_ns = (cost / (f64::from(rate) * load) * 1e9).max(1.0);
            let (mut passed, mut expected, mut n) = (0u64, 0u64, 0u64);
            // As many as come in 10 s, or 200,000 of them.
            while n < 200_000 && n as f64 * gap_ns < 10e9 {
                let now_ns = (n as f64 * gap_ns) as u64 + jitter;
                passed += u64::from(meter.admit(now_ns, bytes) == Metered::Pass);
                expected += u64::from(model.takes(now_ns, cost));
                n += 1;
            }
            let off = passed.abs_diff(expected) as f64;
            prop_assert!(off <= 1.0 + 0.01 * expected as f64, "{passed} passed, {expected} should have");
            prop_assert_eq!(meter.counts(), (n, n * bytes));
            let dropped = n - passed;
            prop_assert_eq!(meter.band_counts().collect::<Vec<_>>(), [(dropped, dropped * bytes)]);
        }
    }

    #[test]
    fn a_rate_that_is_wrong_by_two_percent_is_found() {
        let meter = Meter::new(1, true, &[drop_band(10_200, 10)]);
        let passed = (0..200_000u64).filter(|n| meter.admit(n * 50_000, 64) == Metered::Pass).count();
        assert!(passed.abs_diff(100_000) > 1_000, "{passed}");
    }

    #[test]
    fn workers_that_share_a_meter_get_its_rate_together() {
        let meter = Meter::new(1, true, &[drop_band(1_000_000, 100)]);
        let clock = AtomicU64::new(0);
        let passed: u64 = std::thread::scope(|scope| {
            let work = || {
                let mut passed = 0;
                loop {
                    // Twice the rate, over 100 ms.
                    let now_ns = clock.fetch_add(500, Relaxed);
                    if now_ns >= 100_000_000 {
                        return passed;
                    }
                    passed += u64::from(meter.admit(now_ns, 64) == Metered::Pass);
                }
            };
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|w| w.join().unwrap()).sum()
        });
        assert!(passed.abs_diff(100_000) <= 1_100, "{passed} passed");
    }

    #[test]
    fn the_exceeded_band_of_the_highest_rate_decides() {
        let remark = BandSpec { prec_level: Some(1), ..drop_band(1, 1) };
        let meter = Meter::new(1, true, &[remark, drop_band(2, 2)]);
        let verdicts: Vec<_> = (0..3).map(|_| meter.admit(0, 100)).collect();
        assert_eq!(verdicts, [Metered::Pass, Metered::Remark(1), Metered::Drop]);
        assert_eq!(meter.admit(1_000_000_000, 100), Metered::Pass);
    }

    #[test]
    fn a_drop_precedence_rises_to_three_in_its_class_and_others_have_none() {
        // AF11, AF12, AF13.
        assert_eq!([0x28, 0x30, 0x38].map(|tos| remarked(tos, 1)), [0x30, 0x38, 0x38]);
        assert_eq!(remarked(0x28 | 3, 200), 0x38 | 3);
        // Best effort, EF, CS1.
        assert_eq!([0, 0xb8, 0x20].map(|tos| remarked(tos, 1)), [0, 0xb8, 0x20]);
    }
}
