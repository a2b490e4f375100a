//! `crosspoint guest`: the guest's side of vhost-user in a process, for tests and benchmarks.

use guest::{Guest, GuestConfig, QueuePair, RingLayout};
use ports::PortError;
use ports::vhost_user::features::device;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Attempts to connect are this far apart.
const RETRY: Duration = Duration::from_millis(500);
/// Empty polls after which a guest sleeps, unless it must not.
const POLLS_BEFORE_SLEEP: u32 = 10_000;
/// Frames per turn of a queue.
const BURST: usize = 32;
/// How long the switch has to accept frames already sent before a guest leaves.
const LAST_FRAMES_TIME: Duration = Duration::from_secs(5);
/// The first bytes of the payload of numbered frames.
const MAGIC: [u8; 4] = *b"XPSQ";
/// Where the payload begins: after the Ethernet, IPv4 and UDP headers.
const PAYLOAD: usize = 42;
/// The shortest frame that has a number.
const FRAME_MIN: usize = PAYLOAD + 16;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// Sockets of vhost-user ports, one guest for each.
    #[arg(required = true, value_name = "SOCKET")]
    sockets: Vec<PathBuf>,
    /// Listen on the sockets, for ports of type dpdkvhostuserclient.
    #[arg(long)]
    listen: bool,
    /// What to do with packets.
    #[arg(long, value_enum, default_value = "loopback")]
    mode: Mode,
    /// Number of queue pairs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// Descriptors per ring: a power of two.
    #[arg(long, default_value_t = 256, value_parser = ring_size)]
    ring_size: u16,
    /// Descriptors per transmit ring, if not the same: a power of two.
    #[arg(long, value_parser = ring_size)]
    tx_ring_size: Option<u16>,
    /// Frames moved at once.
    #[arg(long, default_value_t = BURST, value_parser = burst)]
    burst: usize,
    /// Use packed rings.
    #[arg(long)]
    packed: bool,
    /// Do not offer mergeable buffers: accept only frames that fit into one buffer of 2 KB.
    #[arg(long)]
    no_mergeable: bool,
    /// For source: size of the frames in bytes, without the frame check sequence.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(FRAME_MIN as i64..=9000))]
    size: u16,
    /// For source: exit after sending this many frames over all queues. For check: count the rest of this
    /// many frames as missing.
    #[arg(long)]
    count: Option<u64>,
    /// For source: limit on frames per second, over all queues.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Run on this processor.
    #[arg(long)]
    cpu: Option<usize>,
    /// Never sleep.
    #[arg(long)]
    poll: bool,
    /// Exit after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Send every packet back, in the buffer in which it came.
    Loopback,
    /// Count packets.
    Sink,
    /// Send numbered packets.
    Source,
    /// Count packets of a source, and report missing and reordered ones.
    Check,
}

fn burst(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=256).contains(&n) => Ok(n),
        _ => Err("expected 1 to 256".into()),
    }
}

fn ring_size(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        // A frame of 64 KB, looped back, takes more descriptors than a ring of 32 has.
        Ok(n) if n.is_power_of_two() && (64..=32_768).contains(&n) => Ok(n),
        _ => Err("expected a power of two from 64 to 32768".into()),
    }
}

/// Paces a sender. Time in which it could not send is not made up for.
struct Pace {
    rate: u64,
    looked: Instant,
    /// Frames that may be sent now.
    due: f64,
}

impl Pace {
    fn new(rate: u64, now: Instant) -> Pace {
        Pace { rate, looked: now, due: 0.0 }
    }

    /// How many frames may be sent now, one burst at most.
    fn due(&mut self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.looked).as_secs_f64();
        self.looked = now;
        self.due = (self.due + passed * self.rate as f64).min(BURST as f64);
        self.due as usize
    }

    fn sent(&mut self, count: usize) {
        self.due -= count as f64;
    }
}

/// Observations on one queue pair.
#[derive(Clone, Default)]
struct Seen {
    received: u64,
    sent: u64,
    /// By the sender's queue number: the next expected sequence number.
    next: std::collections::BTreeMap<u16, u64>,
    /// Frames that had a number.
    numbered: u64,
    missing: u64,
    reordered: u64,
}

impl Seen {
    /// Looks at a frame's number.
    fn check(&mut self, frame: &[u8]) {
        let Some(payload) = frame.get(PAYLOAD..FRAME_MIN) else { return };
        if payload[..4] != MAGIC {
            return;
        }
        self.numbered += 1;
        let queue = u16::from_be_bytes([payload[4], payload[5]]);
        let number = u64::from_be_bytes(payload[8..16].try_into().expect("eight bytes"));
        let next = self.next.entry(queue).or_insert(number);
        if number >= *next {
            self.missing += number - *next;
            *next = number + 1;
        } else {
            self.reordered += 1;
        }
    }
}

/// A UDP frame of a queue, with space for its number.
fn template(queue: u16, size: u16) -> Vec<u8> {
    use wire::compose::Compose;
    use wire::ethernet::EthAddr;
    let (from, to) = (EthAddr([2, 0, 0, 0, 1, 1]), EthAddr([2, 0, 0, 0, 1, 2]));
    let addresses = (std::net::Ipv4Addr::new(10, 1, 0, 1), std::net::Ipv4Addr::new(10, 1, 0, 2));
    let udp =
        Compose::ethernet(from, to).ipv4(addresses.0, addresses.1).udp(1024 + queue, 9).udp_checksum_zero();
    let mut frame = udp.frame_len(size.into()).build().expect("headers of 42 bytes fit");
    frame[PAYLOAD..PAYLOAD + 4].copy_from_slice(&MAGIC);
    frame[PAYLOAD + 4..PAYLOAD + 6].copy_from_slice(&queue.to_be_bytes());
    frame
}

/// Runs until SIGINT, SIGTERM, the end of its time or of its count.
pub fn run(args: &Args) -> ExitCode {
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        if let Err(e) = signal_hook::flag::register(signal, ending.clone()) {
            eprintln!("crosspoint guest: {e}");
            return ExitCode::FAILURE;
        }
    }
    if let Some(seconds) = args.seconds {
        let ending = ending.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            ending.store(true, Ordering::Relaxed);
        });
    }
    let results: Vec<_> = std::thread::scope(|scope| {
        let ending = &ending;
        let threads: Vec<_> =
            args.sockets.iter().map(|socket| scope.spawn(move || run_guest(args, socket, ending))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a guest's thread ends in order")).collect()
    });
    let mut code = ExitCode::SUCCESS;
    for (socket, result) in args.sockets.iter().zip(results) {
        match result {
            Ok(seen) => report(socket, &seen, args),
            Err(e) => {
                eprintln!("crosspoint guest: {}", explained(socket, &e));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// How many numbered frames are missing: of `count` if that is known, else between those that arrived.
fn missing(seen: &[Seen], count: Option<u64>) -> u64 {
    match count {
        Some(count) => count.saturating_sub(seen.iter().map(|s| s.numbered).sum()),
        None => seen.iter().map(|s| s.missing).sum(),
    }
}

fn report(socket: &Path, seen: &[Seen], args: &Args) {
    let sum = |f: fn(&Seen) -> u64| seen.iter().map(f).sum::<u64>();
    print!("{}: received {} sent {}", socket.display(), sum(|s| s.received), sum(|s| s.sent));
    if args.mode == Mode::Check {
        print!(" missing {} reordered {}", missing(seen, args.count), sum(|s| s.reordered));
    }
    println!();
}

/// One guest, which connects again whenever the switch goes. What it saw, by queue pair.
fn run_guest(args: &Args, socket: &Path, ending: &Arc<AtomicBool>) -> Result<Vec<Seen>, PortError> {
    if let Some(cpu) = args.cpu
        && !packet::thread::pin(cpu)
    {
        return Err(PortError::Unsupported(format!("processor {cpu} does not exist")));
    }
    let config = GuestConfig {
        pairs: args.queues.into(),
        ring_size: args.ring_size,
        tx_ring_size: args.tx_ring_size,
        layout: if args.packed { RingLayout::Packed } else { RingLayout::Split },
        features: if args.no_mergeable { 0 } else { device::MRG_RXBUF },
        ending: ending.clone(),
    };
    let mut seen = vec![Seen::default(); args.queues.into()];
    // The last complaint, so that it is printed only once.
    let mut complaint = String::new();
    while !ending.load(Ordering::Relaxed) {
        let guest =
            if args.listen { Guest::listen(socket, &config, RETRY) } else { Guest::connect(socket, &config) };
        match guest {
            Ok(guest) => {
                println!("{}: attached", socket.display());
                if !serve(args, guest, &mut seen, ending) {
                    return Ok(seen);
                }
                println!("{}: the switch is gone", socket.display());
            }
            Err(_) if ending.load(Ordering::Relaxed) => {}
            // The switch has not connected yet.
            Err(e) if args.listen && kind(&e) == Some(ErrorKind::TimedOut) => {}
            // Waiting does not help: a switch of another kind, or a path where no socket can be created or
            // where another one exists.
            Err(e @ PortError::Unsupported(_)) if !args.listen => return Err(e),
            Err(e @ (PortError::File { .. } | PortError::Os { .. })) if args.listen => return Err(e),
            Err(e) => {
                let e = explained(socket, &e);
                if e != complaint {
                    eprintln!("crosspoint guest: {e}; trying again");
                    complaint = e;
                }
                std::thread::sleep(RETRY);
            }
        }
    }
    Ok(seen)
}

/// An error with its socket, unless it names that itself.
fn explained(socket: &Path, e: &PortError) -> String {
    let socket = socket.display().to_string();
    match e {
        PortError::Os { call, .. } if call.ends_with(&socket) => e.to_string(),
        PortError::File { path, .. } if *path == socket => e.to_string(),
        _ => format!("{socket}: {e}"),
    }
}

/// The kind of the operating system's error, if it is one.
fn kind(e: &PortError) -> Option<ErrorKind> {
    match e {
        PortError::Os { errno, .. } => Some(std::io::Error::from_raw_os_error(*errno).kind()),
        _ => None,
    }
}

/// Moves packets until the switch goes (true) or the guest should end.
fn serve(args: &Args, mut guest: Guest, seen: &mut [Seen], ending: &AtomicBool) -> bool {
    let mut pairs = guest.take_pairs();
    let mut templates: Vec<_> = (0..args.queues).map(|queue| template(queue, args.size)).collect();
    let mut idle = 0u32;
    let mut looked = Instant::now();
    let mut pace = args.rate.map(|rate| Pace::new(rate, looked));
    loop {
        let mut moved = 0;
        let sent = || seen.iter().map(|s| s.sent).sum::<u64>();
        let mut left = args.count.map_or(u64::MAX, |count| count.saturating_sub(sent()));
        for ((pair, seen), template) in pairs.iter_mut().zip(&mut *seen).zip(&mut templates) {
            let due = pace.as_mut().map_or(args.burst, |pace| pace.due(Instant::now()));
            let count = turn(args, pair, seen, template, (due as u64).min(left) as usize);
            left = left.saturating_sub(count as u64);
            moved += count;
            if let Some(pace) = &mut pace {
                pace.sent(count);
            }
        }
        if pace.is_some() && moved == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // One that never sleeps has counted to the end within minutes.
        idle = if moved > 0 { 0 } else { idle.wrapping_add(1) };
        let sleeps = !args.poll && idle > POLLS_BEFORE_SLEEP && pairs.len() == 1 && args.mode != Mode::Source;
        if sleeps || idle % 1_000 == 999 || moved > 0 && looked.elapsed() > Duration::from_millis(20) {
            looked = Instant::now();
            let is_done = args.count.is_some_and(|count| seen.iter().map(|s| s.sent).sum::<u64>() >= count);
            if ending.load(Ordering::Relaxed) || args.mode == Mode::Source && is_done {
                if matches!(args.mode, Mode::Sink | Mode::Check) {
                    // Frames that have arrived by now count: at most a ring full, however many more arrive.
                    for _ in 0..usize::from(args.ring_size).div_ceil(args.burst) {
                        for ((pair, seen), template) in pairs.iter_mut().zip(&mut *seen).zip(&mut templates) {
                            turn(args, pair, seen, template, args.burst);
                        }
                    }
                }
                wait_for_last_frames(&guest, &mut pairs);
                return false;
            }
            if !guest.is_connected() {
                return true;
            }
        }
        // With several queues there are several descriptors to wait for; those poll.
        if sleeps {
            pairs[0].wait(Duration::from_millis(100));
        }
    }
}

/// Waits until the switch has taken what was sent: with the guest goes its memory. A switch that takes
/// nothing is not waited for for ever.
fn wait_for_last_frames(guest: &Guest, pairs: &mut [QueuePair]) {
    let end = Instant::now() + LAST_FRAMES_TIME;
    while pairs.iter_mut().any(QueuePair::is_sending) && guest.is_connected() {
        if Instant::now() >= end {
            eprintln!("crosspoint guest: the switch has not taken all that was sent");
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// One burst of one queue pair; a source sends at most `due`. Returns how many packets it moved.
fn turn(args: &Args, pair: &mut QueuePair, seen: &mut Seen, template: &mut [u8], due: usize) -> usize {
    match args.mode {
        Mode::Loopback => {
            let count = pair.loop_back(args.burst);
            seen.received += count as u64;
            seen.sent += count as u64;
            count
        }
        Mode::Sink | Mode::Check => {
            let check = args.mode == Mode::Check;
            let count = pair.receive(args.burst, |frame| {
                if check {
                    seen.check(frame);
                }
            });
            seen.received += count as u64;
            count
        }
        Mode::Source => {
            let mut count = 0;
            while count < due {
                template[PAYLOAD + 8..FRAME_MIN].copy_from_slice(&seen.sent.to_be_bytes());
                if !pair.send(template) {
                    break;
                }
                seen.sent += 1;
                count += 1;
            }
            seen.received += pair.receive(args.burst, |_| ()) as u64;
            count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_on_average_and_lost_time_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000, start);
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(pace.due(at(0)), 0);
        assert_eq!(pace.due(at(10)), 10);
        pace.sent(7);
        assert_eq!(pace.due(at(12)), 5);
        pace.sent(5);
        assert_eq!(pace.due(at(5_000)), BURST);
    }

    #[test]
    fn numbers_that_are_missing_or_late_are_counted() {
        let mut seen = Seen::default();
        let mut frame = template(3, 60);
        for number in [7u64, 8, 10, 9, 11, 15] {
            frame[PAYLOAD + 8..FRAME_MIN].copy_from_slice(&number.to_be_bytes());
            seen.check(&frame);
        }
        assert_eq!((seen.missing, seen.reordered), (1 + 3, 1));
        seen.check(&[0; 20]);
        seen.check(&[0; 100]);
        assert_eq!(seen.next.len(), 1);
        // Numbers 0 to 6 are before the first that came, 12 and up after the last but one.
        let seen = [seen, Seen::default()];
        assert_eq!((missing(&seen, None), missing(&seen, Some(20)), missing(&seen, Some(6))), (4, 14, 0));
    }
}
