//! `pcap`: receives the frames of a capture file, sends into one.
//!
//! `rx_file` is read into memory when the port is created, and replayed as fast as it is polled (repeatedly,
//! or once with `loop=false`), or with its own timing (`timed=true`). With several receive queues, a frame's
//! addresses and ports choose its queue, like a network card's receive-side scaling, so that each flow keeps
//! its order. `tx_file` gets what is sent; without it the port is a sink.
//!
//! Both files must be where the administrator allowed it, see [`crate::files`]. A file that is written
//! belongs to one port: the records of two would mix, and a capture that is replayed would be lost.
//!
//! Threads: each queue replays its own part. If there is a file to write, there is only one transmit queue,
//! the file's only user.

pub mod file;

use crate::driver::{Backing, DUMMY, Driver};
use crate::options::{KeyRow, OptionRow, Values};
use crate::replay::{Moved, Replay};
use crate::virtual_link::{VirtualLink, port_on_link, refuse_unsendable, to_wire_frames};
use crate::wait::Timer;
use crate::{PortError, PortSpec, QueueStats};
use file::{Record, Writer};
use packet::{Batch, Packet, PoolCache, Port, PortStatus, RxOutcome, RxQueue, TxQueue};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Captured frames reach the file at the latest after this long.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Its row of the table of drivers.
pub(crate) const DRIVER: Driver = Driver {
    kind: "pcap",
    aliases: &[],
    dummy: DUMMY,
    other_end: "capture files",
    needs: "`--pcap-dir`, a directory for the files",
    section: "pcap",
    options: OPTIONS,
    status: &[
        KeyRow { name: "rx_file", meaning: "the capture that is replayed" },
        KeyRow { name: "rx_frames", meaning: "its number of frames" },
        KeyRow { name: "tx_file", meaning: "the capture that is written" },
    ],
    statistics: &[],
    backing: Backing::None,
    is_strict: false,
    is_pmd: false,
    spreads_flows: false,
    open: |spec, _| Ok(Box::new(PcapPort::open(spec)?)),
    check,
    have_same_effect: |a, b| crate::driver::are_equal(effect, a, b),
};

const OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "rx_file",
        values: Values::Text("a file"),
        default: "none: nothing is received",
        is_live: false,
        meaning: "the capture to replay, read into memory when the port is made",
    },
    OptionRow {
        name: "loop",
        values: Values::Flag,
        default: "`true`",
        is_live: false,
        meaning: "start again at the end",
    },
    OptionRow {
        name: "timed",
        values: Values::Flag,
        default: "`false`",
        is_live: false,
        meaning: "keep the capture's intervals; otherwise as fast as the switch takes them",
    },
    OptionRow {
        name: "tx_file",
        values: Values::Text("a file"),
        default: "none: what is sent is counted and dropped",
        is_live: false,
        meaning: "the capture to write; an existing file is replaced, unless a port reads or writes it",
    },
];

/// A port of type `pcap`.
pub struct PcapPort {
    link: Arc<VirtualLink>,
    rx_queues: Vec<Box<dyn RxQueue>>,
    /// Until the transmit queue is taken.
    capture: Option<Capture>,
    details: Vec<(String, String)>,
    /// Held, so that no port writes what this one replays.
    _rx_file: Option<File>,
}

/// The file that sent frames go to. After an error it is `None`, and what is sent counts as an error.
struct Capture {
    writer: Option<Writer<BufWriter<File>>>,
    path: String,
    written_at: Instant,
}

impl PcapPort {
    /// Opens the port. Options:
    ///
    /// * `rx_file`: the capture to replay; without it nothing is received.
    /// * `loop`: start again at the end (`true`).
    /// * `timed`: keep the capture's intervals between frames (`false`: as fast as it is polled).
    /// * `tx_file`: the capture to write, replacing what is there.
    pub fn open(spec: &PortSpec) -> Result<PcapPort, PortError> {
        let hold = |path| spec.files.hold(path).map_err(|why| spec.bad("rx_file", why));
        let rx_file = spec.option("rx_file").map(hold).transpose()?;
        let Settings { queues, repeats, timed, bytes } = settings(spec)?;
        let records = records(spec, &bytes)?;
        let mut details = Vec::new();
        if let Some(path) = spec.option("rx_file") {
            details.push(("rx_file".into(), path.into()));
            details.push(("rx_frames".into(), records.len().to_string()));
        }
        let link = VirtualLink::new(spec, queues, 65535)?;
        let mut rx_queues: Vec<Box<dyn RxQueue>> = Vec::new();
        for idx in 0..queues {
            let mut own: Vec<Record> =
                records.iter().filter(|r| queue_of(r.frame, queues) == idx).copied().collect();
            if timed {
                own.sort_by_key(|r| r.time_ns); // Stable. A merged capture may not be in order.
            }
            let replay = Replay::new(own.iter().map(|r| r.frame), repeats, spec.port_no);
            let schedule = timed.then(|| Schedule::new(&own, &records, repeats)).transpose()?;
            rx_queues.push(match schedule {
                Some(schedule) => Box::new(TimedRx { link: link.clone(), idx, replay, schedule }),
                None => Box::new(FastRx { link: link.clone(), idx, replay }),
            });
        }
        let capture = spec.option("tx_file").map(|path| Capture::create(spec, path)).transpose()?;
        if let Some(path) = spec.option("tx_file") {
            details.push(("tx_file".into(), path.into()));
        }
        Ok(PcapPort { link, rx_queues, capture, details, _rx_file: rx_file })
    }
}

/// The effective settings, and the contents of the file that they name.
#[derive(PartialEq, Eq)]
pub(crate) struct Settings {
    queues: usize,
    repeats: bool,
    timed: bool,
    bytes: Vec<u8>,
}

/// See [`crate::check`]. The file to be written is left alone: it may be the one that the port writes now.
fn check(spec: &PortSpec) -> Result<(), PortError> {
    let settings = settings(spec)?;
    records(spec, &settings.bytes).map(drop)
}

/// Everything that the options determine.
fn effect(spec: &PortSpec) -> Result<(Settings, Option<String>), PortError> {
    Ok((settings(spec)?, spec.option("tx_file").map(str::to_string)))
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    let queues = spec.rx_queues()?;
    let (repeats, timed) = (spec.flag("loop", true)?, spec.flag("timed", false)?);
    let bytes = match spec.option("rx_file") {
        Some(path) => spec.files.read(path).map_err(|why| spec.bad("rx_file", why))?,
        None => Vec::new(),
    };
    Ok(Settings { queues, repeats, timed, bytes })
}

/// The frames in the bytes of `rx_file`.
fn records<'a>(spec: &PortSpec, bytes: &'a [u8]) -> Result<Vec<Record<'a>>, PortError> {
    match spec.option("rx_file") {
        Some(path) => file::parse(bytes).map_err(|why| PortError::File { path: path.into(), why }),
        None => Ok(Vec::new()),
    }
}

/// The queue for a frame: a sum over its addresses and ports, or MAC addresses if it is not IPv4.
fn queue_of(frame: &[u8], queues: usize) -> usize {
    let fields: &[u8] = match frame {
        // IPv4 without options: protocol, addresses, and ports if it is no fragment.
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, _, _, _, _, _, flags, offset, ..]
            if frame.len() >= 38 =>
        {
            if flags & 0x3f == 0 && *offset == 0 {
                &frame[26..38]
            } else {
                &frame[26..34]
            }
        }
        _ => &frame[..frame.len().min(12)],
    };
    let sum = fields.iter().fold(0u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    ((sum >> 32) % queues as u64) as usize
}

impl Capture {
    fn create(spec: &PortSpec, path: &str) -> Result<Capture, PortError> {
        let file = spec.files.create_alone(path).map_err(|why| spec.bad("tx_file", why))?;
        Capture::begin(file, path).map_err(|e| PortError::os(format!("write {path}"), &e))
    }

    fn begin(file: File, path: &str) -> std::io::Result<Capture> {
        let writer = Writer::new(BufWriter::with_capacity(1 << 18, file))?;
        Ok(Capture { writer: Some(writer), path: path.into(), written_at: Instant::now() })
    }

    /// Runs one operation on the file; on an error gives the file up and says why in the port's status.
    fn attempt(
        &mut self,
        link: &VirtualLink,
        operation: impl FnOnce(&mut Writer<BufWriter<File>>) -> std::io::Result<()>,
    ) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        let Err(e) = operation(writer) else { return true };
        self.writer = None;
        *link.error.lock().expect("no panic while held") =
            Some(format!("write {}: {}", self.path, base::os_text(&e)));
        false
    }
}

impl Port for PcapPort {
    fn kind(&self) -> &'static str {
        "pcap"
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let queue = |capture| -> Box<dyn TxQueue> {
            let (link, stats) = (self.link.clone(), self.link.add_tx_queue());
            Box::new(PcapTx { link, stats, capture, frames: Vec::new(), pending: false })
        };
        match self.capture.take() {
            // Only one queue writes the file, whatever the number of workers.
            Some(capture) => vec![queue(Some(capture))],
            None => (0..count.max(1)).map(|_| queue(None)).collect(),
        }
    }

    fn status(&self) -> PortStatus {
        self.link.status(self.details.clone())
    }

    port_on_link!(link);
}

/// Replays as fast as it is polled.
struct FastRx {
    link: Arc<VirtualLink>,
    idx: usize,
    replay: Replay,
}

impl RxQueue for FastRx {
    #[inline]
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if self.link.is_up() {
            let Moved { packets, bytes } = self.replay.rx(cache, batch, usize::MAX);
            self.link.rx[self.idx].stats.passed(packets, bytes);
        }
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.link.rx[self.idx].event.fd())
    }

    fn arm(&mut self) -> bool {
        self.link.rx[self.idx].event.clear();
        self.replay.is_done() || !self.link.is_up()
    }
}

/// Replays each frame when its time has come.
struct TimedRx {
    link: Arc<VirtualLink>,
    idx: usize,
    replay: Replay,
    schedule: Schedule,
}

/// The time of each frame, relative to the first frame of the whole file.
struct Schedule {
    times_ns: Vec<u64>,
    /// Length of one round; `None` to end after the first.
    period_ns: Option<u64>,
    next: Turn,
    start: Option<Instant>,
    timer: Timer,
}

/// A frame, and when its round began.
#[derive(Clone, Copy, Default)]
struct Turn {
    frame: usize,
    round_ns: u64,
}

impl Schedule {
    /// For frames in the order of their times.
    fn new(own: &[Record], all: &[Record], repeats: bool) -> Result<Schedule, PortError> {
        let first_ns = all.iter().map(|r| r.time_ns).min().unwrap_or(0);
        let span_ns = all.iter().map(|r| r.time_ns).max().unwrap_or(0) - first_ns;
        // After the last frame the mean interval passes before the first comes again.
        let gap_ns = if all.len() > 1 { span_ns / (all.len() as u64 - 1) } else { 1_000_000_000 };
        Ok(Schedule {
            times_ns: own.iter().map(|r| r.time_ns - first_ns).collect(),
            period_ns: repeats.then_some((span_ns + gap_ns).max(1)),
            next: Turn::default(),
            start: None,
            timer: Timer::new()?,
        })
    }

    fn now_ns(&mut self, now: Instant) -> u64 {
        now.duration_since(*self.start.get_or_insert(now)).as_nanos() as u64
    }

    /// When a frame is due. `None` after the last one.
    fn time_of(&self, turn: Turn) -> Option<u64> {
        Some(turn.round_ns + self.times_ns.get(turn.frame)?)
    }

    fn after(&self, turn: Turn) -> Turn {
        match self.period_ns {
            Some(period_ns) if turn.frame + 1 == self.times_ns.len() => {
                Turn { frame: 0, round_ns: turn.round_ns + period_ns }
            }
            _ => Turn { frame: turn.frame + 1, ..turn },
        }
    }

    /// How many frames are due, up to `max`.
    fn due(&mut self, now: Instant, max: usize) -> usize {
        let now_ns = self.now_ns(now);
        let turns = std::iter::successors(Some(self.next), |turn| Some(self.after(*turn)));
        turns.take(max).take_while(|turn| self.time_of(*turn).is_some_and(|ns| ns <= now_ns)).count()
    }

    fn advance(&mut self, frames: u64) {
        for _ in 0..frames {
            self.next = self.after(self.next);
        }
    }

    /// Nanoseconds until the next frame is due, 0 if it is due, `None` if there is none.
    fn due_in(&mut self, now: Instant) -> Option<u64> {
        let now_ns = self.now_ns(now);
        Some(self.time_of(self.next)?.saturating_sub(now_ns))
    }
}

impl RxQueue for TimedRx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if !self.link.is_up() {
            return RxOutcome::Ok;
        }
        let due = self.schedule.due(Instant::now(), batch.remaining_capacity());
        let Moved { packets, bytes } = self.replay.rx(cache, batch, due);
        self.schedule.advance(packets);
        self.link.rx[self.idx].stats.passed(packets, bytes);
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.schedule.timer.fd())
    }

    fn arm(&mut self) -> bool {
        match self.schedule.due_in(Instant::now()) {
            None => self.schedule.timer.clear(),
            // While the port is down it looks again every 10 ms.
            Some(_) if !self.link.is_up() => self.schedule.timer.set_after(10_000_000),
            Some(0) => return false,
            Some(ns) => self.schedule.timer.set_after(ns),
        }
        true
    }
}

struct PcapTx {
    link: Arc<VirtualLink>,
    stats: Arc<QueueStats>,
    capture: Option<Capture>,
    frames: Vec<Packet>,
    /// Frames may be in the buffer that are not yet in the file.
    pending: bool,
}

impl TxQueue for PcapTx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let Some(capture) = &mut self.capture else {
            let bytes = refuse_unsendable(&self.link, &self.stats, cache, batch);
            self.stats.passed(batch.len() as u64, bytes);
            cache.free_all(batch);
            return;
        };
        to_wire_frames(&self.link, &self.stats, cache, batch, &mut self.frames);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.pending |= !self.frames.is_empty();
        for packet in self.frames.drain(..) {
            let written = {
                let pieces: Vec<&[u8]> = packet.segments().collect();
                capture.attempt(&self.link, |w| w.write(now.as_nanos() as u64, pieces.iter().copied()))
            };
            if written {
                self.stats.passed(1, packet.len() as u64);
            } else {
                self.stats.errors.add(1);
            }
            cache.free(packet);
        }
    }

    fn flush(&mut self, _cache: &mut PoolCache) {
        let Some(capture) = self.capture.as_mut().filter(|_| self.pending) else { return };
        let now = Instant::now();
        if now.duration_since(capture.written_at) >= WRITE_INTERVAL {
            capture.written_at = now;
            capture.attempt(&self.link, Writer::flush);
            self.pending = false;
        }
    }

    fn has_pending(&self) -> bool {
        self.pending
    }

    fn close(&mut self, _cache: &mut PoolCache) {
        if let Some(capture) = &mut self.capture {
            capture.attempt(&self.link, Writer::flush);
            self.pending = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::udp_frame;
    use base::PortNo;
    use packet::{BURST, Pool, PoolConfig};

    fn cache() -> PoolCache {
        Pool::new(PoolConfig { chunks: 128, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
    }

    fn spec() -> PortSpec {
        PortSpec::new("p", "pcap", PortNo(3))
    }

    fn spec_in(dir: &tempfile::TempDir) -> PortSpec {
        spec().with_files_beside([&*dir.path().join("any")])
    }

    /// A capture of UDP frames of 60 bytes, one per flow, `gap_ns` apart.
    fn capture_file(dir: &tempfile::TempDir, flows: u32, gap_ns: u64) -> String {
        let path = dir.path().join("in.pcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        for flow in 0..flows {
            let frame = udp_frame(60, flow);
            writer.write(1_000_000_000 + u64::from(flow) * gap_ns, std::iter::once(&frame[..])).unwrap();
        }
        path.to_str().unwrap().into()
    }

    fn poll(rx: &mut dyn RxQueue, cache: &mut PoolCache) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        assert_eq!(rx.rx_burst(cache, &mut batch), RxOutcome::Ok);
        let frames = batch.iter().map(|p| p.data().to_vec()).collect();
        cache.free_all(&mut batch);
        frames
    }

    #[test]
    fn a_file_is_received_again_and_again_and_what_is_sent_is_in_the_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (capture_file(&dir, 5, 0), dir.path().join("out.pcap"));
        let spec = spec_in(&dir).with("rx_file", &input).with("tx_file", output.to_str().unwrap());
        let mut port = PcapPort::open(&spec).unwrap();
        let (mut rx, mut tx) = (port.take_rx_queues().remove(0), port.take_tx_queues(1).remove(0));
        let mut cache = cache();
        assert!(!rx.arm());
        let mut batch = Batch::new();
        rx.rx_burst(&mut cache, &mut batch);
        tx.tx_burst(&mut cache, &mut batch);
        assert!(tx.has_pending());
        tx.close(&mut cache);
        let written = std::fs::read(&output).unwrap();
        let records = file::parse(&written).unwrap();
        assert_eq!(records.len(), BURST);
        for (i, record) in records.iter().enumerate() {
            assert_eq!(record.frame, udp_frame(60, i as u32 % 5));
        }
        let stats = port.stats();
        assert_eq!(
            (stats.rx_packets, stats.rx_bytes, stats.tx_packets, stats.tx_bytes),
            (BURST as u64, BURST as u64 * 60, BURST as u64, BURST as u64 * 60)
        );
        assert_eq!(cache.pool().stats().free, 128);
    }

    #[test]
    fn without_loop_it_ends_and_then_the_worker_may_sleep() {
        let dir = tempfile::tempdir().unwrap();
        let spec =
            spec_in(&dir).with("rx_file", &capture_file(&dir, BURST as u32 + 8, 0)).with("loop", "false");
        let mut port = PcapPort::open(&spec).unwrap();
        let mut rx = port.take_rx_queues().remove(0);
        let mut cache = cache();
        assert_eq!(poll(&mut *rx, &mut cache).len(), BURST);
        assert!(!rx.arm());
        assert_eq!(poll(&mut *rx, &mut cache).len(), 8);
        assert_eq!(poll(&mut *rx, &mut cache).len(), 0);
        assert!(rx.arm());
    }

    #[test]
    fn queues_share_the_flows_and_each_flow_stays_at_one() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec_in(&dir)
            .with("rx_file", &capture_file(&dir, 60, 0))
            .with("n_rxq", "3")
            .with("loop", "false");
        let mut port = PcapPort::open(&spec).unwrap();
        let mut cache = cache();
        let mut all = Vec::new();
        for mut rx in port.take_rx_queues() {
            let mut own = poll(&mut *rx, &mut cache);
            own.extend(poll(&mut *rx, &mut cache));
            assert!(own.len() > 8, "unevenly split: {}", own.len());
            all.extend(own);
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 60);
    }

    #[test]
    fn timed_frames_come_in_their_time_and_again_in_the_next_round() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(capture_file(&dir, 3, 1000)).unwrap();
        let records = file::parse(&bytes).unwrap();
        let mut schedule = Schedule::new(&records, &records, true).unwrap();
        let start = Instant::now();
        let mut seen = Vec::new();
        for ns in 0..6001 {
            while schedule.due_in(start + Duration::from_nanos(ns)) == Some(0) {
                seen.push(ns);
                schedule.advance(1);
            }
        }
        assert_eq!(seen, [0, 1000, 2000, 3000, 4000, 5000, 6000]);
        let late = start + Duration::from_nanos(9_500);
        assert_eq!((schedule.due(late, 2), schedule.due(late, 9)), (2, 3), "two rounds at once");
        let mut once = Schedule::new(&records, &records, false).unwrap();
        assert_eq!(once.due_in(start), Some(0));
        assert_eq!(once.due(late, 9), 3);
        once.advance(3);
        assert_eq!((once.due_in(late), once.due(late, 9)), (None, 0));
    }

    #[test]
    fn a_timed_queue_wakes_its_worker() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec_in(&dir).with("rx_file", &capture_file(&dir, 2, 20_000_000)).with("timed", "true");
        let mut port = PcapPort::open(&spec).unwrap();
        let mut rx = port.take_rx_queues().remove(0);
        let mut cache = cache();
        assert!(!rx.arm());
        assert_eq!(poll(&mut *rx, &mut cache).len(), 1);
        assert!(rx.arm());
        let mut poll_fd = libc::pollfd { fd: rx.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one initialised pollfd that outlives the call.
        assert_eq!(unsafe { libc::poll(&mut poll_fd, 1, 5000) }, 1);
        assert_eq!(poll(&mut *rx, &mut cache).len(), 1);
    }

    #[test]
    fn a_disk_that_is_full_is_a_state_and_an_error_count() {
        let mut port = PcapPort::open(&spec()).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        port.capture = Some(Capture::begin(full, "/dev/full").unwrap());
        let mut tx = port.take_tx_queues(1).remove(0);
        let mut cache = cache();
        for _ in 0..6 {
            let mut batch = Batch::new();
            while !batch.is_full() {
                batch.push(cache.alloc_frame(&[0; 1700]).unwrap());
            }
            tx.tx_burst(&mut cache, &mut batch);
        }
        assert!(port.status().error.unwrap().contains("/dev/full"));
        assert!(port.stats().tx_errors > 0);
        assert_eq!(cache.pool().stats().free, 128);
    }

    #[test]
    fn a_file_that_is_written_belongs_to_one_port() {
        let dir = tempfile::tempdir().unwrap();
        let (input, output) = (capture_file(&dir, 2, 0), dir.path().join("out.pcap"));
        let (capture, output) = (std::fs::read(&input).unwrap(), output.to_str().unwrap());
        std::fs::hard_link(&input, dir.path().join("alias")).unwrap();
        let refused = |spec: &PortSpec| {
            let why = PcapPort::open(spec).err().expect("a refusal").to_string();
            assert!(why.ends_with("is read or written by a port already"), "{why}");
            assert_eq!(std::fs::read(&input).unwrap(), capture);
        };
        let reader = spec_in(&dir).with("rx_file", &input);
        for name in [&*input, "alias"] {
            refused(&reader.clone().with("tx_file", name));
        }
        let replaying = PcapPort::open(&reader).unwrap();
        let again = PcapPort::open(&reader).unwrap();
        refused(&spec_in(&dir).with("tx_file", &input));
        drop((replaying, again));
        let writer = spec_in(&dir).with("tx_file", output);
        let mut writes = PcapPort::open(&writer).unwrap();
        refused(&writer);
        refused(&spec_in(&dir).with("rx_file", output));
        // It is the queue that writes.
        let queue = writes.take_tx_queues(1);
        drop(writes);
        refused(&writer);
        drop(queue);
        PcapPort::open(&writer).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_not_allowed_or_no_capture_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("text"), "no capture, but long enough for a header").unwrap();
        let error = |spec: &PortSpec| PcapPort::open(spec).err().unwrap().to_string();
        let named = |file: &str| spec_in(&dir).with("rx_file", file);
        assert_eq!(error(&named("none")), "option rx_file=none: No such file or directory");
        assert!(error(&named("text")).contains("not a capture file"));
        for option in ["rx_file", "tx_file"] {
            let refused = error(&spec().with(option, "/etc/passwd"));
            assert!(refused.starts_with(&format!("option {option}=/etc/passwd: ")), "{refused}");
            assert!(refused.contains("--pcap-dir"), "{refused}");
        }
        assert!(PcapPort::open(&spec().with("loop", "yes")).is_err());
    }
}
