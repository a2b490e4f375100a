//! The process: one thread sends frames on time and takes what comes back. Frames that were not sent when the
//! time was over are offered and not sent.

use super::ends::End;
use super::pattern::{Pattern, Protocol};
use super::receive::{Expected, Receiver, stamp};
use super::{Load, Request, Sent};
use crate::lab::meter::{Meter, Used, now_ns};
use crate::units::Failure;
use packet::{BURST, Pool, PoolCache, PoolConfig};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

/// After the last frame was sent, what comes within this time is waited for, from the last one that came.
const DRAIN: Duration = Duration::from_millis(200);
/// The same if all have arrived: then only duplicates can follow.
const DRAIN_OF_ALL: Duration = Duration::from_millis(10);
/// However many come, late frames are waited for no longer than this.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Flows at most: a stamp has 24 bits for them, and each takes a frame of memory.
const FLOWS_MAX: u32 = 1 << 20;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The ends, as DRIVER:NAME with driver packet, xdp, tap, vhost or backend.
    #[arg(long, value_delimiter = ',', required = true)]
    ends: Vec<String>,
    /// Places in --ends of those that send, in turn; `-` in front of one sends the other way.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, required = true)]
    tx: Vec<String>,
    /// Places in --ends of those where frames come back.
    #[arg(long, value_delimiter = ',', required = true)]
    rx: Vec<usize>,
    /// How often each frame comes back.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    copies: u64,
    /// Descriptors of a guest's rings.
    #[arg(long, default_value_t = 256)]
    descriptors: u16,
    /// Frames sent before looking for received ones.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
}

/// A place that sends.
struct Source {
    end: usize,
    is_back: bool,
}

/// The frames of a load, and the position of its flows.
struct Frames {
    /// By source and flow: one frame, or a mix of sizes.
    templates: Vec<Vec<Vec<Vec<u8>>>>,
    /// By source.
    is_back: Vec<bool>,
    numbers: Vec<Vec<u32>>,
    picks: Vec<u32>,
    is_capture: bool,
}

impl Frames {
    fn of(load: &Load, sources: &[Source]) -> Result<Frames, String> {
        let is_back = sources.iter().map(|source| source.is_back).collect();
        if let Protocol::Pcap(path) = &load.pattern.protocol {
            let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let records = ports::pcap::file::parse(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            if records.is_empty() {
                return Err(format!("{}: no frame in it", path.display()));
            }
            let flows: Vec<Vec<Vec<u8>>> = records.iter().map(|r| vec![r.frame.to_vec()]).collect();
            let picks = load.pattern.picks(flows.len());
            let numbers = vec![vec![0; flows.len()]; sources.len()];
            let templates = vec![flows; sources.len()];
            return Ok(Frames { templates, is_back, numbers, picks, is_capture: true });
        }
        let flows = load.flows.clamp(1, FLOWS_MAX) as usize;
        let of = |source: &Source| -> Result<Vec<Vec<Vec<u8>>>, String> {
            (0..flows).map(|n| load.pattern.frames(n, load.size, source.is_back)).collect()
        };
        let templates = sources.iter().map(of).collect::<Result<Vec<_>, String>>()?;
        let (numbers, picks) = (vec![vec![0; flows]; sources.len()], load.pattern.picks(flows));
        Ok(Frames { templates, is_back, numbers, picks, is_capture: false })
    }

    fn expected(&self) -> Option<Expected> {
        let all = || self.templates[0].iter().flatten().map(|frame| (frame.clone(), 0));
        self.is_capture.then(|| all().collect())
    }

    /// The `n`-th frame of a source, stamped.
    fn next(&mut self, source: usize, n: u64, trial: u16, due_ns: u64) -> &[u8] {
        let flow = self.picks[(n % self.picks.len() as u64) as usize] as usize;
        let number = &mut self.numbers[source][flow];
        let mix = &mut self.templates[source][flow];
        // Sizes take turns within a flow; flows begin at different ones.
        let at = (*number as usize + flow) % mix.len();
        let frame = &mut mix[at];
        if !self.is_capture {
            stamp(frame, trial, (flow as u32, self.is_back[source]), *number, due_ns);
        }
        *number = number.wrapping_add(1);
        frame
    }
}

/// Frames sent, and when.
#[derive(Default)]
struct Progress {
    offered: u64,
    seconds: f64,
    received_in_time: u64,
    cpu_s: f64,
    used: Used,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// The wait for frames that are late. Frames of others, and those that come twice, do not prolong it: they
/// may come for ever.
struct Drain {
    all: u64,
    received: u64,
    begun: Instant,
    /// When the last one of the trial came.
    last: Instant,
}

impl Drain {
    fn of(all: u64, received: u64, now: Instant) -> Drain {
        Drain { all, received, begun: now, last: now }
    }

    fn is_over(&mut self, received: u64, now: Instant) -> bool {
        if received > self.received {
            (self.received, self.last) = (received, now);
        }
        let quiet = if received < self.all { DRAIN } else { DRAIN_OF_ALL };
        now - self.last >= quiet || now - self.begun >= DRAIN_MAX
    }
}

struct Trial {
    receiver: Receiver,
    start: Instant,
    /// The same on the clock that other processes read.
    start_ns: u64,
    sent_before: u64,
    refused_before: Vec<u64>,
    missed_before: Vec<u64>,
    progress: Progress,
}

struct Generator {
    ends: Vec<End>,
    sources: Vec<Source>,
    rx: Vec<usize>,
    copies: u64,
    burst: u64,
    cache: PoolCache,
    trial: u16,
    last: Option<Trial>,
}

/// Serves requests until there are no more.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = PoolConfig { chunks: 16_384, ..PoolConfig::default() };
    let pool = Pool::new(config).map_err(|e| e.to_string())?;
    let ends = open_all(args, pool)?;
    let source = |text: &String| -> Result<Source, Failure> {
        let place = text.trim_start_matches('-');
        let end = place.parse().ok().filter(|n| *n < ends.len());
        let end = end.ok_or_else(|| Failure::Usage(format!("--tx {text}: expected a place in --ends")))?;
        Ok(Source { end, is_back: place != text })
    };
    let sources = args.tx.iter().map(source).collect::<Result<Vec<_>, _>>()?;
    if let Some(place) = args.rx.iter().find(|n| **n >= ends.len()) {
        return Err(Failure::Usage(format!("--rx {place}: expected a place in --ends")));
    }
    let trial = std::process::id() as u16;
    let (rx, copies) = (args.rx.clone(), args.copies);
    let burst = args.burst.into();
    let mut generator =
        Generator { ends, sources, rx, copies, burst, cache: pool.cache(), trial, last: None };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let request = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"));
        let answer: Result<Sent, String> = request.and_then(|request| match request {
            Request::Offer(load, pids) => generator.offer(&load, &pids),
            Request::Again => generator.again(),
        });
        println!("{}", serde_json::to_string(&answer).map_err(|e| e.to_string())?);
        std::io::stdout().flush().map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// All at once: each guest waits until the switch connects, which it does once all listen.
fn open_all(args: &Args, pool: &'static Pool) -> Result<Vec<End>, String> {
    std::thread::scope(|scope| {
        let open = |(n, text): (usize, &'_ String)| {
            let text = text.clone();
            scope.spawn(move || End::open(&text, pool, n as u32 + 1, args.descriptors))
        };
        let threads: Vec<_> = args.ends.iter().enumerate().map(open).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<End, String>>| {
            thread.join().unwrap_or_else(|_| Err("an end's thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    })
}

impl Generator {
    fn offer(&mut self, load: &Load, pids: &[u32]) -> Result<Sent, String> {
        if let Some(end) = self.ends.iter().find(|end| !end.is_connected()) {
            return Err(format!("{}: the switch has gone", end.name));
        }
        self.trial = self.trial.wrapping_add(1);
        let mut frames = Frames::of(load, &self.sources)?;
        let flows = frames.templates[0].len();
        // Packets still in flight belong to an earlier trial.
        let receiver = Receiver::new(self.trial, self.ways(), flows, frames.expected())?;
        let mut trial = Trial {
            receiver,
            start: Instant::now(),
            start_ns: now_ns(),
            sent_before: self.sent(),
            refused_before: self.ends.iter().map(End::refused).collect(),
            missed_before: self.ends.iter().map(End::missed).collect(),
            progress: Progress::default(),
        };
        self.send(load, &mut frames, &mut trial, pids);
        self.drain(&mut trial);
        let sent = self.account(&trial);
        self.last = Some(trial);
        Ok(sent)
    }

    fn again(&mut self) -> Result<Sent, String> {
        let mut trial = self.last.take().ok_or("nothing was offered yet")?;
        self.drain(&mut trial);
        let sent = self.account(&trial);
        self.last = Some(trial);
        Ok(sent)
    }

    fn sent(&self) -> u64 {
        let mut ends: Vec<usize> = self.sources.iter().map(|s| s.end).collect();
        ends.sort_unstable();
        ends.dedup();
        ends.iter().map(|n| self.ends[*n].sent()).sum()
    }

    /// By end: in two directions, an end that sends one takes the other alone.
    fn ways(&self) -> Vec<Option<bool>> {
        let mut ways = vec![None; self.ends.len()];
        if self.sources.iter().any(|source| source.is_back) {
            self.sources.iter().for_each(|source| ways[source.end] = Some(!source.is_back));
        }
        ways
    }

    fn send(&mut self, load: &Load, frames: &mut Frames, trial: &mut Trial, pids: &[u32]) {
        let me = packet::thread::id();
        let cpu_ns = || base::clock::cpu_time_ns(me).unwrap_or(0);
        let (length, cpu_before) = (Duration::from_secs_f64(load.seconds), cpu_ns());
        let paced = load.rate.filter(|_| load.burst.is_none());
        // The intended load, known before the first frame.
        let intended = load.burst.or(paced.map(|rate| (rate as f64 * load.seconds).round() as u64));
        let sources = self.sources.len() as u64;
        let mut burst = vec![Vec::new(); self.burst as usize];
        let mut next = 0u64;
        let meter = Meter::start(pids);
        (trial.start, trial.start_ns) = (Instant::now(), now_ns());
        loop {
            let elapsed = trial.start.elapsed();
            if elapsed >= length || intended.is_some_and(|all| next >= all) {
                break;
            }
            let due = match paced {
                Some(rate) => (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64 + 1,
                None => u64::MAX,
            };
            // Bursts from a source at full speed, single frames at a given rate: sources take turns.
            let count = due.min(intended.unwrap_or(u64::MAX)).saturating_sub(next).min(self.burst);
            let turn = if paced.is_some() && sources > 1 { 1 } else { count };
            let count = count.min(turn);
            if count > 0 {
                let (source, first) = match paced {
                    Some(_) => ((next % sources) as usize, next / sources),
                    None => {
                        ((next / self.burst % sources) as usize, next / (self.burst * sources) * self.burst)
                    }
                };
                let at = |n: u64| match paced {
                    Some(rate) => (u128::from(next + n) * 1_000_000_000 / u128::from(rate)) as u64,
                    None => elapsed.as_nanos() as u64,
                };
                for (place, n) in burst.iter_mut().zip(0..count) {
                    place.clear();
                    place.extend_from_slice(frames.next(source, first + n, self.trial, at(n)));
                    trial.receiver.expect(place, self.copies as i64);
                }
                let end = self.sources[source].end;
                self.ends[end].send(&mut self.cache, burst[..count as usize].iter().map(Vec::as_slice));
                let now = Instant::now();
                trial.progress.first.get_or_insert(now);
                trial.progress.last = Some(now);
                next += count;
            }
            let came = self.poll_burst(trial);
            if !came && count == 0 {
                std::thread::yield_now();
            }
        }
        trial.progress.seconds = trial.start.elapsed().as_secs_f64();
        trial.progress.used = meter.end();
        trial.progress.offered = intended.unwrap_or(next);
        trial.progress.received_in_time = trial.receiver.account.received;
        trial.progress.cpu_s = (cpu_ns() - cpu_before) as f64 / 1e9;
    }

    /// Takes what came, as many batches as a burst has: what is sent faster than it is taken fills the queue.
    fn poll_burst(&mut self, trial: &mut Trial) -> bool {
        let batches = self.burst.div_ceil(BURST as u64);
        (0..batches).take_while(|_| self.poll(trial)).count() > 0
    }

    fn poll(&mut self, trial: &mut Trial) -> bool {
        let now_ns = trial.start.elapsed().as_nanos() as u64;
        let mut some = false;
        for at in &self.rx {
            some |= self.ends[*at].receive(&mut self.cache, |frame| trial.receiver.see(*at, frame, now_ns));
        }
        some
    }

    fn drain(&mut self, trial: &mut Trial) {
        let all = (self.sent() - trial.sent_before) * self.copies;
        let mut drain = Drain::of(all, trial.receiver.account.received, Instant::now());
        while !drain.is_over(trial.receiver.account.received, Instant::now()) {
            if !self.poll(trial) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn account(&self, trial: &Trial) -> Sent {
        let progress = &trial.progress;
        let went = self.sent() - trial.sent_before;
        let mut account = trial.receiver.account.clone();
        account.offered = progress.offered;
        account.not_sent = progress.offered.saturating_sub(went);
        account.copies = self.copies;
        let (mut refused, mut begun_ns) = (BTreeMap::new(), BTreeMap::new());
        for (n, end) in self.ends.iter().enumerate() {
            let missed = end.missed() - trial.missed_before[n];
            if missed > 0 && self.rx.contains(&n) {
                account.missed(&end.name, missed);
            }
            let begun = trial.receiver.begun_ns[n].iter().map(|at| trial.start_ns + at).collect::<Vec<_>>();
            if !begun.is_empty() {
                begun_ns.insert(end.name.clone(), begun);
            }
            let count = end.refused() - trial.refused_before[n];
            if count > 0 {
                refused.insert(end.name.clone(), count);
            }
        }
        let between = progress.first.zip(progress.last).map(|(a, b)| b.duration_since(a).as_secs_f64());
        let between = between.filter(|s| *s > 0.0);
        Sent {
            account,
            seconds: progress.seconds,
            received_in_time: progress.received_in_time,
            cpu_s: progress.cpu_s,
            used: progress.used.clone(),
            latency_us: latencies(&trial.receiver),
            sent_pps: between.map_or(0.0, |s| went.saturating_sub(1) as f64 / s),
            gap_max_ms: trial.receiver.gap_max_ns as f64 / 1e6,
            refused,
            begun_ns,
        }
    }
}

fn latencies(receiver: &Receiver) -> BTreeMap<String, f64> {
    let latency = &receiver.latency;
    let mut us = BTreeMap::new();
    if latency.is_empty() {
        return us;
    }
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
        us.insert(name.to_string(), latency.value_at_quantile(share) as f64 / 1e3);
    }
    us.insert("jitter".into(), latency.stdev() / 1e3);
    us
}

/// The pattern's name for a flow count that a stamp can hold, or why not.
pub fn check(pattern: &Pattern, size: u16, flows: u32) -> Result<(), String> {
    if flows > FLOWS_MAX {
        return Err(format!("{flows} flows: at most {FLOWS_MAX}"));
    }
    match pattern.protocol {
        Protocol::Pcap(_) => Ok(()),
        _ => pattern.frames(0, size, false).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Process, TempDir};
    use std::process::Command;

    /// A generator whose frames go from the switch's side of a guest's socket to the guest's.
    fn straight(dir: &TempDir, burst: u16) -> Generator {
        let socket = dir.0.join("vm0");
        let ends = ["backend", "vhost"].map(|kind| format!("{kind}:{}", socket.display())).to_vec();
        let args = Args { ends, tx: Vec::new(), rx: Vec::new(), copies: 1, descriptors: 256, burst };
        let config = PoolConfig { chunks: 16_384, huge_pages: false, ..PoolConfig::default() };
        let pool = Pool::new(config).unwrap();
        let ends = open_all(&args, pool).unwrap();
        let sources = vec![Source { end: 0, is_back: false }];
        Generator {
            ends,
            sources,
            rx: vec![1],
            copies: 1,
            burst: burst.into(),
            cache: pool.cache(),
            trial: 1,
            last: None,
        }
    }

    #[test]
    fn late_frames_are_waited_for_while_some_of_the_trial_come_and_not_for_ever() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut drain = Drain::of(10, 5, start);
        assert!(!drain.is_over(5, at(199)));
        // Nothing of the trial came, whatever others sent.
        assert!(drain.is_over(5, at(200)));
        assert!(!drain.is_over(6, at(200)) && !drain.is_over(6, at(399)));
        assert!(!drain.is_over(10, at(400)) && drain.is_over(10, at(410)), "all have come");
        let mut drain = Drain::of(1_000, 0, start);
        let ends = (0..1_000).find(|n| drain.is_over(*n, at(n * 100)));
        assert_eq!(ends, Some(100));
    }

    #[test]
    fn as_much_is_taken_as_a_burst_sends() {
        let dir = TempDir::new("bursts").unwrap();
        let mut generator = straight(&dir, 256);
        let load =
            Load { size: 64, flows: 10, rate: None, seconds: 0.1, burst: None, pattern: Pattern::default() };
        let sent = generator.offer(&load, &[]).unwrap();
        // A ring of 256 has room for each burst once the one before was taken.
        let loss = sent.account.loss();
        assert!(sent.account.offered > 10_000 && loss < 0.1, "{loss} lost: {}", sent.account.text());
    }

    #[test]
    fn a_switch_that_always_polls_pays_for_no_more_than_the_time_from_the_first_frame_to_the_last() {
        let dir = TempDir::new("straight").unwrap();
        let mut generator = straight(&dir, 32);
        let mut poller = Process::spawn(Command::new("sh").args(["-c", "while :; do :; done"])).unwrap();
        // Of so many flows the frames take as long to prepare as to send.
        let load = Load {
            size: 64,
            flows: 500_000,
            rate: Some(20_000),
            seconds: 0.3,
            burst: None,
            pattern: Pattern::default(),
        };
        let start = Instant::now();
        let sent = generator.offer(&load, &[poller.id()]);
        let took = start.elapsed().as_secs_f64();
        poller.kill().unwrap();
        let sent = sent.unwrap();
        let cpu_s = sent.used.by(poller.id()).unwrap().cpu_s;
        // Its clock is as much as two ticks of the kernel off, of 0.3 s; ours waits where others run.
        assert!(cpu_s > 0.0 && cpu_s <= sent.seconds * 1.15, "{cpu_s} s of CPU time in {} s", sent.seconds);
        // It may have had less of a busy processor.
        let metered = sent.used.seconds();
        assert!((sent.seconds..sent.seconds + 0.05).contains(&metered), "{metered} s of {}", sent.seconds);
        assert!(took > sent.seconds * 1.2 && sent.received_in_time > 0, "{took} s, {sent:?}");
    }
}
