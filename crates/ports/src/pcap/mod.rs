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
mod load;
mod schedule;

use crate::driver::{Backing, DUMMY, Driver};
use crate::loading::{self, Coming, LOOK_AGAIN_NS};
use crate::options::{KeyRow, OptionRow, Values};
use crate::replay::{Moved, Replay};
use crate::virtual_link::{VirtualLink, port_on_link, refuse_unsendable, to_wire_frames};
use crate::wait::Timer;
use crate::{PortError, PortSpec, QueueStats};
use file::{FILE_HEADER_LEN, Records, Writer};
use load::{Settings, Source, load};
use packet::{Batch, Packet, PoolCache, Port, PortStatus, RxOutcome, RxQueue, TxQueue};
use schedule::Schedule;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};
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
    /// Held, so that no port writes what this one replays.
    _rx_file: Option<Arc<File>>,
    /// As options name them.
    rx_path: Option<String>,
    tx_path: Option<String>,
    /// Known once the file has been read.
    rx_frames: Arc<OnceLock<usize>>,
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
        let settings = settings(spec)?;
        let link = VirtualLink::new(spec, settings.queues, 65535)?;
        let bad = |why| spec.bad("rx_file", why);
        let hold = |path: &str| spec.files.hold(path).map_err(bad);
        let (rx_file, len) = spec.option("rx_file").map(hold).transpose()?.unzip();
        let (rx_file, len) = (rx_file.map(Arc::new), len.unwrap_or(0));
        let path = |option| spec.option(option).map(String::from);
        let (rx_path, tx_path) = (path("rx_file"), path("tx_file"));
        let rx_frames = Arc::<OnceLock<usize>>::default();

        let reserved = spec.memory.reserve(len).map_err(bad)?;
        let (file, path, frames) = (rx_file.clone(), rx_path.clone().unwrap_or_default(), rx_frames.clone());
        let (port_no, memory) = (spec.port_no, spec.memory.clone());
        let load = move || {
            let _until_read = reserved;
            let Some(file) = file else {
                return Ok((0..settings.queues).map(|_| Source::default()).collect());
            };
            let loaded = load(&file, len, settings, port_no, &memory);
            let (sources, count) = loaded.map_err(|why| PortError::File { path, why })?;
            frames.set(count).expect("it is read once");
            Ok(sources)
        };
        let mut rx_queues: Vec<Box<dyn RxQueue>> = Vec::new();
        for (idx, mut coming) in loading::load(spec, &link, len, load)?.into_iter().enumerate() {
            let (link, Source { replay, schedule }) = (link.clone(), coming.take().unwrap_or_default());
            rx_queues.push(match settings.timed {
                true => Box::new(TimedRx { link, idx, replay, schedule, coming, timer: Timer::new()? }),
                false => Box::new(FastRx { link, idx, replay, coming }),
            });
        }
        let capture = tx_path.as_deref().map(|path| Capture::create(spec, path)).transpose()?;
        Ok(PcapPort { link, rx_queues, capture, _rx_file: rx_file, rx_path, tx_path, rx_frames })
    }
}

/// See [`crate::check`]. Of the file to be replayed only the header is read. The file to be written is left
/// alone: it may be the one that the port writes now.
fn check(spec: &PortSpec) -> Result<(), PortError> {
    settings(spec)?;
    let Some(path) = spec.option("rx_file") else { return Ok(()) };
    let (file, _) = spec.files.read(path).map_err(|why| spec.bad("rx_file", why))?;
    let mut header = Vec::new();
    let read = file.take(FILE_HEADER_LEN as u64).read_to_end(&mut header);
    let found = read.map_err(|e| base::os_text(&e)).and_then(|_| Records::new(&header).map(drop));
    found.map_err(|why| PortError::File { path: path.into(), why })
}

/// Everything that the options determine. Files are compared by name, since both would be looked up now.
fn effect(spec: &PortSpec) -> Result<(Settings, [Option<String>; 2]), PortError> {
    Ok((settings(spec)?, ["rx_file", "tx_file"].map(|option| spec.option(option).map(String::from))))
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    let queues = spec.rx_queues()?;
    Ok(Settings { queues, repeats: spec.flag("loop", true)?, timed: spec.flag("timed", false)? })
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
        let frames = self.rx_frames.get().map(usize::to_string);
        let details =
            [("rx_file", self.rx_path.clone()), ("rx_frames", frames), ("tx_file", self.tx_path.clone())];
        let known = |(key, value): (&str, Option<String>)| Some((key.to_string(), value?));
        self.link.status(details.into_iter().filter_map(known).collect())
    }

    port_on_link!(link);
}

/// Replays as fast as it is polled.
struct FastRx {
    link: Arc<VirtualLink>,
    idx: usize,
    replay: Replay,
    coming: Coming<Source>,
}

impl FastRx {
    /// Begins with what has been loaded.
    #[cold]
    fn look_for_frames(&mut self) {
        if let Some(source) = self.coming.take() {
            self.replay = source.replay;
        }
    }
}

impl RxQueue for FastRx {
    #[inline]
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if self.link.is_up() {
            let Moved { packets, bytes } = self.replay.rx(cache, batch, usize::MAX);
            if packets == 0 {
                self.look_for_frames();
            }
            self.link.rx[self.idx].stats.passed(packets, bytes);
        }
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.link.rx[self.idx].event.fd())
    }

    fn arm(&mut self) -> bool {
        self.link.rx[self.idx].event.clear();
        // They may have come before the event was cleared.
        self.look_for_frames();
        self.replay.is_done() || !self.link.is_up()
    }
}

/// Replays each frame when its time has come.
struct TimedRx {
    link: Arc<VirtualLink>,
    idx: usize,
    replay: Replay,
    schedule: Schedule,
    coming: Coming<Source>,
    timer: Timer,
}

impl RxQueue for TimedRx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if !self.link.is_up() {
            return RxOutcome::Ok;
        }
        if let Some(source) = self.coming.take() {
            (self.replay, self.schedule) = (source.replay, source.schedule);
        }
        let due = self.schedule.due(Instant::now(), batch.remaining_capacity());
        let Moved { packets, bytes } = self.replay.rx(cache, batch, due);
        self.schedule.advance(packets);
        self.link.rx[self.idx].stats.passed(packets, bytes);
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.timer.fd())
    }

    fn arm(&mut self) -> bool {
        match self.schedule.due_in(Instant::now()) {
            None if !self.coming.is_awaited() => self.timer.clear(),
            _ if !self.link.is_up() => self.timer.set_after(LOOK_AGAIN_NS),
            None => self.timer.set_after(LOOK_AGAIN_NS),
            Some(0) => return false,
            Some(ns) => self.timer.set_after(ns),
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
    use crate::PortMemory;
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

    /// A port whose capture of 10 MB a thread loads, and its memory.
    fn large(dir: &tempfile::TempDir, end: usize) -> (PortSpec, PortMemory) {
        let path = dir.path().join("large.pcap");
        let file = File::create(&path).unwrap();
        let mut writer = Writer::new(BufWriter::new(&file)).unwrap();
        for n in 0..5_000u32 {
            let frame = [n as u8; 2_000];
            writer.write(u64::from(5_000 - n), std::iter::once(&frame[..])).unwrap();
        }
        writer.flush().unwrap();
        file.set_len(file.metadata().unwrap().len() - end as u64).unwrap();
        let memory = PortMemory::new(64 << 20);
        let spec = spec_in(dir).with("rx_file", path.to_str().unwrap()).with("loop", "false");
        (PortSpec { memory: memory.clone(), loads_in_background: true, ..spec }, memory)
    }

    #[test]
    fn a_large_file_is_loaded_while_the_link_is_down() {
        let dir = tempfile::tempdir().unwrap();
        let (spec, memory) = large(&dir, 0);
        for timed in ["false", "true"] {
            let mut port = PcapPort::open(&spec.clone().with("timed", timed)).unwrap();
            let (mut rx, mut cache) = (port.take_rx_queues().remove(0), cache());
            let start = Instant::now();
            let mut first = Vec::new();
            while first.is_empty() {
                assert!(start.elapsed() < Duration::from_secs(60));
                if rx.arm() {
                    let fd = rx.wait_fd().unwrap();
                    let mut poll_fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    // SAFETY: one initialised pollfd that outlives the call.
                    assert_eq!(unsafe { libc::poll(&mut poll_fd, 1, 60_000) }, 1);
                }
                first = poll(&mut *rx, &mut cache);
            }
            // With their timing, the last frame comes first.
            let last = 4_999u32 as u8;
            assert_eq!(first[0][0], if timed == "true" { last } else { 0 });
            while port.status().link != packet::LinkState::Up {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            let details = port.status().details;
            assert!(details.contains(&("rx_frames".into(), "5000".into())), "{details:?}");
            // The file is no longer in memory, the frames are.
            let times = if timed == "true" { 5_000 * 8 } else { 0 };
            assert_eq!(memory.used(), 5_000 * 32 * 64 + 32 + times);
            drop((port, rx));
            assert_eq!(memory.used(), 0);
        }
    }

    #[test]
    fn what_is_wrong_with_a_large_file_is_the_ports_error() {
        let dir = tempfile::tempdir().unwrap();
        let (cut_off, memory) = large(&dir, 1);
        let error = |spec: &PortSpec| {
            let (port, start) = (PcapPort::open(spec).unwrap(), Instant::now());
            while port.status().error.is_none() {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            assert_eq!(port.status().link, packet::LinkState::Down);
            port.status().error.unwrap()
        };
        let path = cut_off.option("rx_file").unwrap();
        assert_eq!(error(&cut_off), format!("{path}: record 5000 at byte 10078008: cut off"));
        // The file alone fits, with its frames it does not.
        let (whole, _) = large(&dir, 0);
        let why = error(&PortSpec { memory: PortMemory::new(12 << 20), ..whole.clone() });
        assert_eq!(
            why,
            format!("{path}: 10 MB of memory is needed, but only 2 MB of the 12 MB for all ports are left")
        );
        let refused = PcapPort::open(&PortSpec { memory: PortMemory::new(9 << 20), ..whole }).err().unwrap();
        let why = "10 MB of memory is needed, but only 9 MB of the 9 MB for all ports are left";
        assert_eq!(refused.to_string(), format!("option rx_file={path}: {why}"));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn options_are_checked_and_compared_without_the_files_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.pcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        writer.flush().unwrap();
        // A hole of 1 GB, which would take seconds to read.
        File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        let port = spec_in(&dir).with("rx_file", "in.pcap");
        let start = Instant::now();
        for _ in 0..100 {
            assert_eq!(check(&port), Ok(()));
            assert!(crate::have_same_effect(&port, &port.clone().with("loop", "true")));
            assert!(!crate::have_same_effect(&port, &port.clone().with("rx_file", "other")));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
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
