//! The policy's numbers, each with what it was measured by (`bench/runs/` has the runs).

/// How far a queue may be ahead of the least served one before it is passed over, in cycles: some bursts
/// of hits. `bench fairness`: neighbours of a queue of new flows alone keep their share of the worker.
pub const AHEAD_CYCLES_MAX: u64 = 20_000;
/// A queue that was polled in vain so often is idle, and is polled in turn with the other idle ones.
pub const QUIET_POLLS: u32 = 64;
/// Idle queues take one part in so many of the busy ones' time at most. `bench ports`: two busy ports
/// among 512 cost 1.02 times what they cost alone.
pub const IDLE_SHARE: i64 = 64;
/// Idle queues are polled in groups of so many, between which the clock is read (25 cycles).
pub const IDLE_GROUP: usize = 8;
/// Time for idle queues saved up at most, in cycles: a look at each of some hundreds.
pub const IDLE_CREDIT_MAX: i64 = 100_000;
/// Polls in vain for this long before it sleeps: about what a sleep and the wake-up cost those who wait
/// for it. `bench wake`: 105 us through the switch, of which 92 are a bare wake.
pub const SPIN_US: u64 = 60;
/// The same where the last sleep was a long one. Packets that come in bursts far apart are not met by
/// polling: each burst paid for 60 us of it, several times what its packets cost.
pub const SHORT_SPIN_US: u64 = 10;
/// Nothing came for this long, the wake-up (some 25 us) included: a long sleep. With twice [`SPIN_US`]
/// here, packets that came one by one every 100 us were each polled for in vain before a sleep: they took
/// 132,000 cycles each (`bench run load-curve`, 10,000 packets a second), and now take 61,000.
pub const LONG_IDLE_US: u64 = SPIN_US * 3 / 2;
/// After packets from guests it polls longer, for one part in so many of the time that they took, in all:
/// a guest may lose its processor for milliseconds, and what it then sends at once fills its ring before
/// a sleeper has woken. Rates without loss, `bench pvp`: 1.5 million a second without this and without
/// coalescing, 1.8 with both.
pub const LINGER_SHARE: u64 = 8;
/// And no longer than this at once.
pub const LINGER_MAX_US: u64 = 5_000;
/// Without a packet for this long, the caches are swept a good piece at a time. Not sooner: in the gap
/// between two bursts of a guest's the lines that the next one needs would go for it.
pub const SWEEP_IDLE_US: u64 = SHORT_SPIN_US;
/// How long a queue is left alone to coalesce: what a guest that sends two million packets a second needs
/// for half a burst. The worker took 660 busy cycles per packet in place of 1,550, which met packets one
/// by one.
pub const COALESCE_US: u64 = 8;
/// A burst of so many packets is worth its poll.
pub const SHORT_BURST: u64 = 16;
/// A wait after which fewer have come was in vain.
pub const GATHERED_MIN: u64 = 4;
/// Short bursts that go by without a wait after one in vain, at the most.
pub const COALESCE_SKIP_MAX: u32 = 1_024;
/// The longest that a queue is held back at once: what a guest of a million packets a second takes for a
/// burst.
pub const HOLD_US: u64 = 60;
/// A full port is asked again after this time: its ring's index lies in a line that the guest writes, and
/// each look takes that line away from it.
pub const ASK_NS: u64 = 500;
/// Bursts in a row for the full port alone, before a queue is held back for the first time. Of a source
/// that offers three times what a guest takes, two of three packets were received and classified in vain.
pub const PROOF_BURSTS: u32 = 64;
/// How much more proof is asked for after an error, and the most: some seconds at full speed. `bench
/// fairness` with a guest that has stopped: another port of the same source keeps its rate.
pub const PROOF_FACTOR: u32 = 8;
pub const PROOF_BURSTS_MAX: u32 = 1 << 20;
/// After so many bursts for which there was room at once, the output is no bottleneck any more.
pub const CALM_BURSTS: u32 = 256;
