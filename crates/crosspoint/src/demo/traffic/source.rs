//! The sending end: a stream as fast as it comes out at the other end, then probes one at a time.
//!
//! The last packet of each burst comes back, and the number of bursts in flight is limited, as in TCP. So the
//! figure is what passes through, and no core is spent on packets that some queue in the kernel drops.

use super::frame::{self, Kind};
use super::host::{Host, Interface};
use super::report::report;
use hdrhistogram::Histogram;
use packet::{BURST, Batch};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Bursts on their way at a time. 512 packets keep three threads busy and fit every queue between them.
const WINDOW: u32 = 16;
/// Time after which a burst or probe that has not come back is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// Bytes of the frame check sequence, which the devices add.
const FCS: usize = 4;
const HIGHEST_NS: u64 = 10_000_000_000;

/// Options of `source`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    interface: Interface,
    /// Bytes of a frame, frame check sequence included.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1518))]
    size: u16,
    /// Flows, each with addresses of its own.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    /// Number of the first flow.
    #[arg(long, default_value_t = 0)]
    first: u16,
    /// How long to stream, in seconds.
    #[arg(long, default_value_t = 4.0)]
    stream_s: f64,
    /// How long to probe, in seconds.
    #[arg(long, default_value_t = 2.0)]
    probe_s: f64,
    /// Send this many packets without waiting for replies, and exit.
    #[arg(long, value_name = "PACKETS")]
    blind: Option<u64>,
}

/// The stream as its source saw it.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct StreamReport {
    /// Packets sent.
    pub sent: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Round trips of probes, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Probes that came back.
    pub answered: u64,
    /// Probes that did not.
    pub lost: u64,
    /// p50.
    pub p50_ns: u64,
    /// p99.
    pub p99_ns: u64,
    /// p99.9.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// Sends the stream, prints its report, sends the probes, prints theirs.
pub fn run(args: &Args) -> Result<(), String> {
    let mut source = Source::new(args)?;
    if let Some(packets) = args.blind {
        return report(&source.blind(packets));
    }
    report(&source.stream(Duration::from_secs_f64(args.stream_s))?)?;
    report(&source.probe(Duration::from_secs_f64(args.probe_s))?)
}

struct Source {
    host: Host,
    frames: Vec<Vec<u8>>,
    next: usize,
    start: Instant,
    batch: Batch,
}

impl Source {
    fn new(args: &Args) -> Result<Source, String> {
        let len = usize::from(args.size) - FCS;
        let numbers = (0..args.flows).map(|n| args.first.wrapping_add(n));
        let frames = numbers.map(|n| frame::compose(n, len)).collect::<Result<Vec<_>, _>>()?;
        let host = Host::open(&args.interface)?;
        Ok(Source { host, frames, next: 0, start: Instant::now(), batch: Batch::new() })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Adds the next flow's packet to the batch.
    fn push(&mut self, kind: Kind, stamp: u64) {
        let flows = self.frames.len();
        let frame = &mut self.frames[self.next];
        self.next = if self.next + 1 == flows { 0 } else { self.next + 1 };
        frame::mark(frame, kind, stamp);
        // An exhausted pool means that the interface holds every packet: the window closes, and the next try
        // succeeds.
        if let Some(packet) = self.host.cache.alloc_frame(frame) {
            self.batch.push(packet);
        }
    }

    fn send(&mut self) {
        self.host.send(&mut self.batch);
    }

    /// Receives returned frames: calls `reply` with each stamp of that kind.
    fn replies(&mut self, wanted: Kind, mut reply: impl FnMut(u64)) -> Result<(), String> {
        self.host.receive(&mut self.batch)?;
        for packet in self.batch.drain(..) {
            if let Some((kind, stamp)) = frame::read(packet.data())
                && kind == wanted
            {
                reply(stamp);
            }
            self.host.cache.free(packet);
        }
        Ok(())
    }

    fn stream(&mut self, time: Duration) -> Result<StreamReport, String> {
        let (start, before) = (Instant::now(), self.host.sent());
        let (mut on_their_way, mut last_reply) = (0u32, Instant::now());
        while start.elapsed() < time {
            let mut came = 0;
            self.replies(Kind::StreamEcho, |_| came += 1)?;
            if came > 0 {
                on_their_way = on_their_way.saturating_sub(came);
                last_reply = Instant::now();
            } else if last_reply.elapsed() > LOST_AFTER {
                on_their_way = 0;
                last_reply = Instant::now();
            }
            if on_their_way >= WINDOW {
                self.host.wait(5);
                continue;
            }
            for n in 1..=BURST {
                let kind = if n == BURST { Kind::StreamEcho } else { Kind::Stream };
                self.push(kind, 0);
            }
            self.send();
            on_their_way += 1;
        }
        Ok(StreamReport { sent: self.host.sent() - before, seconds: start.elapsed().as_secs_f64() })
    }

    fn probe(&mut self, time: Duration) -> Result<ProbeReport, String> {
        let mut round_trips =
            Histogram::<u64>::new_with_bounds(1, HIGHEST_NS, 3).map_err(|e| e.to_string())?;
        let mut lost = 0;
        let start = Instant::now();
        while start.elapsed() < time {
            let sent_ns = self.now_ns();
            self.push(Kind::Probe, sent_ns);
            self.send();
            match self.await_probe(sent_ns)? {
                Some(ns) => round_trips.saturating_record(ns),
                None => lost += 1,
            }
        }
        let at = |quantile| round_trips.value_at_quantile(quantile);
        Ok(ProbeReport {
            answered: round_trips.len(),
            lost,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: round_trips.max(),
        })
    }

    /// The round trip of the probe sent at that time; `None` if it is lost.
    fn await_probe(&mut self, sent_ns: u64) -> Result<Option<u64>, String> {
        loop {
            let mut is_back = false;
            self.replies(Kind::Probe, |stamp| is_back |= stamp == sent_ns)?;
            let ns = self.now_ns() - sent_ns;
            if is_back {
                return Ok(Some(ns));
            }
            if ns > LOST_AFTER.as_nanos() as u64 {
                return Ok(None);
            }
            self.host.wait(5);
        }
    }

    fn blind(&mut self, packets: u64) -> StreamReport {
        let (start, before) = (Instant::now(), self.host.sent());
        for n in 0..packets {
            self.push(Kind::Stream, 0);
            if self.batch.is_full() || n + 1 == packets {
                self.send();
                // No queue on the path may overflow: this measures what the switch does with them.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        StreamReport { sent: self.host.sent() - before, seconds: start.elapsed().as_secs_f64() }
    }
}
