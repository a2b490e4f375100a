//! The policy's numbers, each with the measurement behind it (`bench/runs/` has the runs).

/// How far a queue may be ahead of the least served one before it is skipped, in cycles: a few bursts of
/// hits. `bench fairness`: neighbours of a queue that carries only new flows keep their share of the worker.
pub const AHEAD_CYCLES_MAX: u64 = 20_000;
/// After this many fruitless polls a queue is idle, and is polled in turn with the other idle ones.
pub const QUIET_POLLS: u32 = 64;
/// Idle queues take at most one part in this many of the busy ones' time. `bench ports`: two busy ports among
/// 512 cost 1.02 times what they cost alone.
pub const IDLE_SHARE: i64 = 64;
/// Idle queues are polled in groups of this size; the clock is read between groups (25 cycles).
pub const IDLE_GROUP: usize = 8;
/// Maximum time saved up for idle queues, in cycles: enough to look at a few hundred.
pub const IDLE_CREDIT_MAX: i64 = 100_000;
/// How long to poll without packets before sleeping: about what a sleep and the wake-up cost a waiting
/// sender. `bench wake`: 105 us through the switch, of which 92 are a bare wake-up.
pub const SPIN_US: u64 = 60;
/// The same after a long sleep. Packets in bursts far apart are not caught by polling: each burst paid for 60
/// us of it, several times what its packets cost.
pub const SHORT_SPIN_US: u64 = 10;
/// A sleep is long if nothing came for this time, including the wake-up (some 25 us). With twice [`SPIN_US`]
/// here, the worker polled in vain and then slept for each of a stream of packets 100 us apart: they took
/// 132,000 cycles each (`bench run load-curve`, 10,000 packets a second), and now take 61,000.
pub const LONG_IDLE_US: u64 = SPIN_US * 3 / 2;
/// After packets from guests it polls longer, for one part in this many of the time that they took in total:
/// a guest may lose its processor for milliseconds, and what it then sends at once fills its ring before a
/// sleeping worker has woken. Rates without loss, `bench pvp`: 1.5 million a second without this and without
/// coalescing, 1.8 with both.
pub const LINGER_SHARE: u64 = 8;
/// The maximum of that time.
pub const LINGER_MAX_US: u64 = 5_000;
/// After this long without a packet, the caches are swept in large steps. Not sooner: between two bursts of a
/// guest, a sweep would evict the cache lines that the next burst needs.
pub const SWEEP_IDLE_US: u64 = SHORT_SPIN_US;
/// How long a queue is left alone to coalesce: the time in which a guest that sends two million packets a
/// second sends half a burst. The worker took 660 busy cycles per packet instead of the 1,550 that it took
/// when it received packets one by one.
pub const COALESCE_US: u64 = 8;
/// A burst of this many packets is worth its poll.
pub const SHORT_BURST: u64 = 16;
/// A wait that yields fewer was in vain.
pub const GATHERED_MIN: u64 = 4;
/// The most short bursts received without a wait after one in vain.
pub const COALESCE_SKIP_MAX: u32 = 1_024;
/// How long a queue is held back at once: the time in which a guest receives a burst at a million packets a
/// second.
pub const HOLD_US: u64 = 60;
/// How long until a full port is checked again: its ring's index is in a line that the guest writes, and each
/// look takes that line away from the guest.
pub const ASK_NS: u64 = 500;
/// How many consecutive bursts must go to the full port alone before a queue is first held back. From a
/// source that offered three times what a guest accepts, two of three packets were received and classified in
/// vain.
pub const PROOF_BURSTS: u32 = 64;
/// By how much the required proof grows after an error, and its maximum: some seconds at full speed. `bench
/// fairness` with a stopped guest: another port of the same source keeps its rate.
pub const PROOF_FACTOR: u32 = 8;
pub const PROOF_BURSTS_MAX: u32 = 1 << 20;
/// After this many bursts for which there was room at once, the output is no longer a bottleneck.
pub const CALM_BURSTS: u32 = 256;
