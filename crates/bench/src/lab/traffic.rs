//! `crosspoint bench traffic`: the built-in generator's process. One thread sends numbered frames through a
//! packet socket on time and takes what comes back, and prints an account as JSON.
//!
//! A frame's payload has a mark of the trial, its number within its flow, and the time at which it was due.
//! Latency counts from that time, not from when it was sent: a generator or a switch that is held up does not
//! hide the wait (no coordinated omission). Frames that were not sent when the time was over are offered and
//! not sent.

use crate::measure::frames;
use crate::result::account::Account;
use base::PortNo;
use hdrhistogram::Histogram;
use packet::{BURST, Batch, Packet, Pool, PoolConfig, RxQueue};
use ports::PortSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Behind Ethernet, IPv4 and UDP headers.
const PAYLOAD: usize = 42;
/// Ethernet and the source address's place in IPv4.
const SOURCE: usize = 26;
const MARK: u16 = 0x5870;
/// After the last frame was sent, what comes within this time is waited for, from the last one that came.
const DRAIN: Duration = Duration::from_millis(200);
/// Latencies up to this are told apart.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The interface to send on.
    #[arg(long)]
    tx: String,
    /// The interfaces to receive at.
    #[arg(long, value_delimiter = ',')]
    rx: Vec<String>,
    /// Bytes of a frame with its check sequence.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=9018))]
    size: u16,
    /// Flows: source and destination address change.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    flows: u32,
    /// Frames per second; as many as go where it is not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// For how long.
    #[arg(long)]
    seconds: f64,
    /// End after so many frames, sent at once: a burst.
    #[arg(long)]
    count: Option<u64>,
}

/// What the process prints.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sent {
    /// Every packet's whereabouts, as far as the generator knows.
    pub account: Account,
    /// From the first frame's time to the last one's.
    pub seconds: f64,
    /// Packets that came within these seconds.
    pub received_in_time: u64,
    /// CPU time of the process.
    pub cpu_s: f64,
    /// Latency in microseconds by percentile; empty where nothing came.
    pub latency_us: BTreeMap<String, f64>,
}

/// What came of one flow at one interface.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// The number that is expected next.
    next: u32,
    /// Which of the 64 before it came: bit 0 is `next - 1`.
    came: u64,
}

#[derive(PartialEq, Eq, Debug)]
enum Came {
    InOrder,
    Late,
    Again,
}

impl Flow {
    fn see(&mut self, number: u32) -> Came {
        if number >= self.next {
            let ahead = number - self.next + 1;
            self.came = self.came.checked_shl(ahead).unwrap_or(0) | 1;
            self.next = number + 1;
            return Came::InOrder;
        }
        let bit = 1u64.checked_shl(self.next - 1 - number).unwrap_or(0);
        if self.came & bit != 0 {
            return Came::Again;
        }
        self.came |= bit;
        Came::Late
    }
}

struct Receiver {
    queues: Vec<(Box<dyn RxQueue>, Vec<Flow>)>,
    flows: usize,
    trial: u16,
    account: Account,
    latency: Histogram<u64>,
}

impl Receiver {
    /// Takes what has come. True where something had.
    fn poll(&mut self, cache: &mut packet::PoolCache, start: Instant) -> bool {
        let mut some = false;
        for at in 0..self.queues.len() {
            let mut batch = Batch::new();
            self.queues[at].0.rx_burst(cache, &mut batch);
            some |= !batch.is_empty();
            let now = start.elapsed().as_nanos() as u64;
            for packet in &batch {
                self.see(at, packet, now);
            }
            cache.free_all(&mut batch);
        }
        some
    }

    fn see(&mut self, at: usize, packet: &Packet, now: u64) {
        let data = packet.data();
        let (Some(stamp), Some(source)) = (data.get(PAYLOAD..PAYLOAD + 16), data.get(SOURCE..SOURCE + 4))
        else {
            self.account.foreign += 1;
            return;
        };
        let source = u32::from_be_bytes([source[0], source[1], source[2], source[3]]);
        let flow = source.wrapping_sub(frames::addresses(0).0.to_bits()) as usize;
        let mark = u16::from_be_bytes([stamp[0], stamp[1]]);
        let trial = u16::from_be_bytes([stamp[2], stamp[3]]);
        if mark != MARK || trial != self.trial || flow >= self.flows {
            self.account.foreign += 1;
            return;
        }
        let number = u32::from_be_bytes([stamp[4], stamp[5], stamp[6], stamp[7]]);
        let mut due = [0; 8];
        due.copy_from_slice(&stamp[8..]);
        match self.queues[at].1[flow].see(number) {
            Came::InOrder => self.account.received += 1,
            Came::Late => {
                self.account.received += 1;
                self.account.reordered += 1;
            }
            Came::Again => self.account.duplicated += 1,
        }
        self.latency.saturating_record(now.saturating_sub(u64::from_be_bytes(due)));
    }
}

/// Sends, receives, prints.
pub fn run(args: &Args) -> Result<(), String> {
    let pool =
        Pool::new(PoolConfig { chunks: 16_384, ..PoolConfig::default() }).map_err(|e| e.to_string())?;
    let open = |name: &str, no: u32| {
        let spec = PortSpec::new(name, "system", PortNo(no)).with("driver", "af_packet");
        ports::open(&spec, pool).map_err(|e| e.to_string())
    };
    let mut port = open(&args.tx, 1)?;
    let mut tx = port.take_tx_queues(1).into_iter().next().ok_or("no transmit queue")?;
    let flows = args.flows as usize;
    let mut receiving = Vec::new();
    let mut queues = Vec::new();
    for (n, name) in args.rx.iter().enumerate() {
        let mut port = open(name, n as u32 + 2)?;
        let queue = port.take_rx_queues().into_iter().next().ok_or("no receive queue")?;
        queues.push((queue, vec![Flow::default(); flows]));
        receiving.push(port);
    }
    let trial = std::process::id() as u16;
    let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).map_err(|e| e.to_string())?;
    let mut receiver = Receiver { queues, flows, trial, account: Account::default(), latency };
    let mut cache = pool.cache();
    let templates: Vec<Vec<u8>> =
        (0..flows).map(|n| frames::frame_of(n, usize::from(args.size) - 4)).collect();
    let mut numbers = vec![0u32; flows];
    let before = port.stats();
    let (length, start) = (Duration::from_secs_f64(args.seconds), Instant::now());
    // The intended load, known before the first frame.
    let intended = args.count.or(args.rate.map(|rate| (rate as f64 * args.seconds).round() as u64));
    let (mut next, mut batch) = (0u64, Batch::new());
    loop {
        let elapsed = start.elapsed();
        if elapsed >= length || intended.is_some_and(|all| next >= all) {
            break;
        }
        let due = match (args.count, args.rate) {
            (None, Some(rate)) => (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64 + 1,
            _ => u64::MAX,
        };
        let count = due.min(intended.unwrap_or(u64::MAX)).saturating_sub(next).min(BURST as u64);
        for n in next..next + count {
            let flow = (n % flows as u64) as usize;
            let Some(mut packet) = cache.alloc_frame(&templates[flow]) else { break };
            let at = match args.rate.filter(|_| args.count.is_none()) {
                Some(rate) => (u128::from(n) * 1_000_000_000 / u128::from(rate)) as u64,
                None => elapsed.as_nanos() as u64,
            };
            stamp(&mut packet.data_mut()[PAYLOAD..PAYLOAD + 16], trial, numbers[flow], at);
            numbers[flow] += 1;
            batch.push(packet);
        }
        next += count;
        if count > 0 {
            tx.tx_burst(&mut cache, &mut batch);
            cache.free_all(&mut batch);
            tx.flush(&mut cache);
        }
        let came = receiver.poll(&mut cache, start);
        if !came && count == 0 {
            std::thread::yield_now();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let received_in_time = receiver.account.received;
    let mut last = Instant::now();
    while last.elapsed() < DRAIN {
        if receiver.poll(&mut cache, start) {
            last = Instant::now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let sent = port.stats().tx_packets - before.tx_packets;
    let mut account = receiver.account;
    account.offered = intended.unwrap_or(next);
    account.not_sent = account.offered.saturating_sub(sent);
    account.copies = args.rx.len() as u64;
    for (name, port) in args.rx.iter().zip(&receiving) {
        let stats = port.stats();
        let missed = stats.rx_missed_errors + stats.rx_dropped + stats.rx_over_errors;
        if missed > 0 {
            account.dropped.insert(format!("generator {name}: receive queue full"), missed);
        }
    }
    let latency = &receiver.latency;
    let us = |share: f64| latency.value_at_quantile(share) as f64 / 1e3;
    let mut latency_us = BTreeMap::new();
    if !latency.is_empty() {
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            latency_us.insert(name.to_string(), us(share));
        }
        latency_us.insert("jitter".into(), latency.stdev() / 1e3);
    }
    let cpu_ns = base::clock::cpu_time_ns(packet::thread::id()).unwrap_or(0);
    let sent = Sent { account, seconds, received_in_time, cpu_s: cpu_ns as f64 / 1e9, latency_us };
    println!("{}", serde_json::to_string(&sent).map_err(|e| e.to_string())?);
    Ok(())
}

fn stamp(payload: &mut [u8], trial: u16, number: u32, due_ns: u64) {
    payload[..2].copy_from_slice(&MARK.to_be_bytes());
    payload[2..4].copy_from_slice(&trial.to_be_bytes());
    payload[4..8].copy_from_slice(&number.to_be_bytes());
    payload[8..16].copy_from_slice(&due_ns.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_reordering_and_duplicates_are_told_apart() {
        let mut flow = Flow::default();
        let seen: Vec<Came> = [0, 1, 3, 2, 2, 3, 200, 199].into_iter().map(|n| flow.see(n)).collect();
        use Came::{Again, InOrder, Late};
        assert_eq!(seen, [InOrder, InOrder, InOrder, Late, Again, Again, InOrder, Late]);
        // So far behind that nobody remembers: it counts as late, once.
        assert_eq!(flow.see(5), Late);
    }
}
