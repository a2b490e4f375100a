//! The process: one thread sends frames on time and takes what comes back. Frames that were not sent when the
//! time was over are offered and not sent.

use super::ends::End;
use super::frames::{Frames, Source};
use super::receive::{Receiver, SOURCES_MAX};
use super::schedule::{Schedule, Turn, pace};
use super::{Load, Request, Sending, Sent};
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

/// Frames sent, and when.
#[derive(Default)]
struct Progress {
    offered: u64,
    seconds: f64,
    received_in_time: u64,
    cpu_s: f64,
    stopwatch: Stopwatch,
    used: Used,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Times each seventh burst, since to read the clock takes half a microsecond. Sources take turns, so each of
/// them comes up, unless there are seven.
#[derive(Default)]
struct Stopwatch {
    bursts: u64,
    frames: u64,
    timed: u64,
    timed_ns: u64,
}

impl Stopwatch {
    /// When this burst began, if it is one of those that are timed.
    fn begin(&mut self, frames: u64) -> Option<u64> {
        (self.bursts, self.frames) = (self.bursts + 1, self.frames + frames);
        self.bursts.is_multiple_of(7).then(base::clock::thread_cpu_ns)
    }

    fn end(&mut self, begun_ns: Option<u64>) {
        let Some(begun_ns) = begun_ns else { return };
        (self.timed, self.timed_ns) =
            (self.timed + 1, self.timed_ns + base::clock::thread_cpu_ns() - begun_ns);
    }

    /// Of all bursts; `None` if none was timed.
    fn sending(&self) -> Option<Sending> {
        let (bursts, frames) = (self.bursts as f64, self.frames as f64);
        let seconds = self.timed_ns as f64 / 1e9 * bursts / self.timed as f64;
        (self.timed > 0).then_some(Sending { seconds, bursts, frames })
    }
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
    if sources.len() > SOURCES_MAX {
        return Err(Failure::Usage(format!("--tx: at most {SOURCES_MAX} places")));
    }
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

/// By end: the source whose frames alone come there, if it is one. In two directions an end that sends one
/// takes the other. Several sources one way have an end each, in their order.
fn origins(ends: usize, sources: &[Source], rx: &[usize]) -> Vec<Option<usize>> {
    let mut origins = vec![None; ends];
    match sources {
        [there, back] if there.is_back != back.is_back => {
            (origins[there.end], origins[back.end]) = (Some(1), Some(0));
        }
        [_, _, ..] if sources.len() == rx.len() => {
            rx.iter().enumerate().for_each(|(source, end)| origins[*end] = Some(source));
        }
        _ => {}
    }
    origins
}

impl Generator {
    fn offer(&mut self, load: &Load, pids: &[u32]) -> Result<Sent, String> {
        if let Some(end) = self.ends.iter().find(|end| !end.is_connected()) {
            return Err(format!("{}: the switch has gone", end.name));
        }
        self.trial = self.trial.wrapping_add(1);
        let mut frames = Frames::of(load, &self.sources)?;
        let flows = frames.flows();
        // Packets still in flight belong to an earlier trial.
        let receiver = Receiver::new(
            self.trial,
            origins(self.ends.len(), &self.sources, &self.rx),
            flows,
            frames.expected(),
        )?;
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

    fn send(&mut self, load: &Load, frames: &mut Frames, trial: &mut Trial, pids: &[u32]) {
        let me = packet::thread::id();
        let cpu_ns = || base::clock::cpu_time_ns(me).unwrap_or(0);
        let cpu_before = cpu_ns();
        let mut schedule = Schedule::of(load, self.burst, self.sources.len() as u64);
        let mut burst = vec![Vec::new(); self.burst as usize];
        let meter = Meter::start(pids);
        (trial.start, trial.start_ns) = (Instant::now(), now_ns());
        loop {
            let elapsed = trial.start.elapsed();
            if schedule.is_over(elapsed) {
                break;
            }
            let turn = schedule.turn(elapsed);
            if let Some(Turn { source, first, count, n }) = &turn {
                let begun_ns = trial.progress.stopwatch.begin(*count);
                for (place, at) in burst.iter_mut().zip(0..*count) {
                    let due_ns = schedule.due_ns(n + at, elapsed);
                    frames.next(place, *source, first + at, self.trial, due_ns);
                    trial.receiver.expect(place, self.copies as i64);
                }
                let end = self.sources[*source].end;
                self.ends[end].send(&mut self.cache, burst[..*count as usize].iter().map(Vec::as_slice));
                let now = Instant::now();
                trial.progress.first.get_or_insert(now);
                trial.progress.last = Some(now);
                trial.progress.stopwatch.end(begun_ns);
            }
            let came = self.poll_burst(trial);
            if !came && turn.is_none() {
                std::thread::yield_now();
            }
        }
        trial.progress.seconds = trial.start.elapsed().as_secs_f64();
        trial.progress.used = meter.end();
        trial.progress.offered = schedule.offered();
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
        let between = progress.first.zip(progress.last).map(|(a, b)| b.duration_since(a));
        Sent {
            account,
            seconds: progress.seconds,
            received_in_time: progress.received_in_time,
            cpu_s: progress.cpu_s,
            sending: progress.stopwatch.sending(),
            used: progress.used.clone(),
            latency_us: latencies(&trial.receiver),
            sent_pps: between.map_or(0.0, |between| pace(went, between)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::traffic::pattern::Pattern;
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
    fn every_end_knows_whose_frames_come_there() {
        let of = |sources: &[(usize, bool)], rx: &[usize]| {
            let sources: Vec<Source> =
                sources.iter().map(|(end, is_back)| Source { end: *end, is_back: *is_back }).collect();
            origins(4, &sources, rx)
        };
        assert_eq!(of(&[(0, false), (2, false)], &[1, 3]), [None, Some(0), None, Some(1)]);
        assert_eq!(of(&[(0, false), (1, true)], &[0, 1]), [Some(1), Some(0), None, None]);
        // Copies, and an output where rules may send them.
        assert_eq!(of(&[(0, false)], &[1, 2, 3]), [None; 4]);
        for topology in crate::lab::topology::TOPOLOGIES.iter().filter(|t| t.sources.len() > 2) {
            let led_to = |source: &usize| topology.hops.iter().find(|hop| hop.from == *source).unwrap().to[0];
            let outputs: Vec<usize> = topology.sources.iter().map(led_to).collect();
            assert!(outputs == topology.outputs() && topology.backward.is_empty(), "{}", topology.name);
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
