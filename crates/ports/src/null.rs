//! `null`: a source of frames generated from a template, a sink that counts, or both.
//!
//! Without options it is a sink and receives nothing. `size` or `template` makes it a source too, at full
//! speed or at `rate` packets per second; `flows` varies the addresses.

use crate::driver::{Backing, DUMMY, Driver};
use crate::loading::{self, Coming, LOOK_AGAIN_NS};
use crate::options::{OptionRow, Values};
use crate::port_memory::check_replay;
use crate::replay::{Layout, Moved, Replay};
use crate::virtual_link::{VirtualLink, port_on_link, refuse_unsendable};
use crate::wait::Timer;
use crate::{PortError, PortSpec, QueueStats};
use packet::{Batch, PoolCache, Port, PortStatus, RxOutcome, RxQueue, TxQueue};
use std::borrow::Cow;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the built-in frame's headers: Ethernet, IPv4, UDP.
const HEADERS_LEN: usize = 42;
/// Distinct address pairs that the built-in frame can have.
const FLOWS_MAX: usize = 1 << 22;
/// How much time a rate-limited source catches up on at most if it was not polled.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Its row of the table of drivers.
pub(crate) const DRIVER: Driver = Driver {
    kind: "null",
    aliases: &[],
    dummy: DUMMY,
    other_end: "nothing: a source of one kind of frame, a sink that counts",
    needs: "nothing",
    section: "null",
    options: OPTIONS,
    status: &[],
    statistics: &[],
    backing: Backing::None,
    is_strict: false,
    is_pmd: false,
    spreads_flows: false,
    open: |spec, _| Ok(Box::new(NullPort::open(spec)?)),
    check: |spec| settings(spec).map(drop),
    have_same_effect: |a, b| crate::driver::are_equal(settings, a, b),
};

const OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "size",
        values: Values::Number { least: 14, most: 65_535 },
        default: "none: a sink only",
        is_live: false,
        meaning: "bytes of the generated frames, at least 60 without `template`",
    },
    TEMPLATE,
    OptionRow {
        name: "flows",
        values: Values::Number { least: 1, most: FLOWS_MAX as u64 },
        default: "1",
        is_live: false,
        meaning: "number of address pairs of the built-in frame, used in turn",
    },
    OptionRow {
        name: "rate",
        values: Values::Number { least: 1, most: u64::MAX },
        default: "as fast as the switch polls",
        is_live: false,
        meaning: "packets per second, over all queues",
    },
];

const TEMPLATE: OptionRow = OptionRow {
    name: "template",
    values: Values::Text("14 to 65535 bytes as hexadecimal digits"),
    default: "UDP from 10.0.0.0 to 10.128.0.0, without a UDP checksum",
    is_live: false,
    meaning: "the frame; padded with zeros to `size`",
};

/// A port of type `null`.
pub struct NullPort {
    link: Arc<VirtualLink>,
    rx_queues: Vec<Box<dyn RxQueue>>,
}

impl NullPort {
    /// Makes the port. `OPTIONS` says what it takes.
    pub fn open(spec: &PortSpec) -> Result<NullPort, PortError> {
        let Settings { queues, frames, rate } = settings(spec)?;
        let link = VirtualLink::new(spec, queues, 65535)?;
        let layouts: Vec<Layout> = (0..queues).map(|queue| frames.layout(queue, queues)).collect();
        let bytes = layouts.iter().map(Layout::bytes).sum();
        let memory = Arc::new(spec.memory.reserve(bytes).map_err(|why| frames.refused(spec, why))?);
        let port_no = spec.port_no;
        let load = move || {
            let replay = |(queue, layout)| {
                let mut replay = Replay::new(layout, port_no, memory.clone());
                frames.of_queue(queue, queues).for_each(|n| replay.push(&frames.get(n)));
                replay.finish(layout)
            };
            Ok(layouts.iter().enumerate().map(replay).collect())
        };
        let mut rx_queues: Vec<Box<dyn RxQueue>> = Vec::new();
        for (idx, mut coming) in loading::load(spec, &link, bytes, load)?.into_iter().enumerate() {
            let replay = coming.take().unwrap_or_default();
            let pace = rate.map(|r| Pace::new(r as f64 / queues as f64)).transpose()?;
            rx_queues.push(Box::new(SourceRx { link: link.clone(), idx, replay, coming, pace }));
        }
        Ok(NullPort { link, rx_queues })
    }
}

/// The effective settings.
#[derive(PartialEq, Eq)]
pub(crate) struct Settings {
    queues: usize,
    frames: Frames,
    rate: Option<u64>,
}

/// What a port generates.
#[derive(PartialEq, Eq)]
enum Frames {
    None,
    One(Vec<u8>),
    Flows { size: usize, flows: usize },
}

impl Frames {
    fn count(&self) -> usize {
        match self {
            Frames::None => 0,
            Frames::One(_) => 1,
            Frames::Flows { flows, .. } => *flows,
        }
    }

    fn get(&self, n: usize) -> Cow<'_, [u8]> {
        match self {
            Frames::None => Cow::default(),
            Frames::One(frame) => frame.into(),
            Frames::Flows { size, .. } => udp_frame(*size, n as u32).into(),
        }
    }

    /// Which frames a queue generates.
    fn of_queue(&self, queue: usize, queues: usize) -> impl ExactSizeIterator<Item = usize> + use<> {
        // More queues than flows: the further queues repeat the first frame, all queues give packets.
        let first = if queue < self.count() { queue } else { 0 };
        (first..self.count()).step_by(queues)
    }

    fn layout(&self, queue: usize, queues: usize) -> Layout {
        let len = match self {
            Frames::None => 0,
            Frames::One(frame) => frame.len(),
            Frames::Flows { size, .. } => *size,
        };
        let mut layout = Layout::new(true, queues);
        layout.add(self.of_queue(queue, queues).len(), len);
        layout
    }

    /// The error if they take too much memory.
    fn refused(&self, spec: &PortSpec, why: String) -> PortError {
        let is_set = |option: &&str| spec.option(option).is_some();
        spec.bad(["flows", "size", "template"].into_iter().find(is_set).unwrap_or_default(), why)
    }
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    let queues = spec.rx_queues()?;
    let frames = frames(spec)?;
    let rate: Option<u64> = spec.parsed("rate", "packets per second")?;
    if rate.is_some() && frames == Frames::None {
        return Err(spec.bad("rate", "needs size or template: without them the port is only a sink".into()));
    }
    let bytes = (0..queues).map(|queue| frames.layout(queue, queues).bytes()).sum();
    check_replay(bytes).map_err(|why| frames.refused(spec, why))?;
    Ok(Settings { queues, frames, rate })
}

fn frames(spec: &PortSpec) -> Result<Frames, PortError> {
    let size: Option<usize> = spec.parsed("size", "a length in bytes")?;
    let flows: usize = spec.parsed("flows", "a number of flows")?.unwrap_or(1);
    if let Some(text) = spec.option("template") {
        let hex = parse_hex(text).filter(|f| (14..=65535).contains(&f.len()));
        let mut frame = hex.ok_or_else(|| spec.unlike(&TEMPLATE))?;
        if spec.option("flows").is_some() {
            return Err(spec.bad("flows", "varies the built-in frame only, not a template".into()));
        }
        let len = size.unwrap_or(frame.len());
        if !(frame.len()..=65535).contains(&len) {
            return Err(spec.bad("size", format!("expected {} (the template) to 65535", frame.len())));
        }
        frame.resize(len, 0);
        return Ok(Frames::One(frame));
    }
    let Some(size) = size else {
        return match spec.option("flows") {
            Some(_) => Err(spec.bad("flows", "needs size: without it the port is only a sink".into())),
            None => Ok(Frames::None),
        };
    };
    if size < 60 {
        return Err(spec.bad("size", "expected 60 to 65535 without template".into()));
    }
    Ok(Frames::Flows { size, flows })
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect())
}

/// A frame of `size` bytes, UDP over IPv4 from 10.0.0.0 + `flow` to 10.128.0.0 + `flow`, ports 1000 to 2000,
/// without a UDP checksum. `size` is at least [`HEADERS_LEN`].
pub fn udp_frame(size: usize, flow: u32) -> Vec<u8> {
    let mut f = vec![0u8; size];
    f[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 2]);
    f[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    f[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    f[14] = 0x45;
    f[16..18].copy_from_slice(&((size - 14) as u16).to_be_bytes());
    f[22] = 64; // time to live
    f[23] = 17; // UDP
    f[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    f[30..34].copy_from_slice(&(0x0a80_0000 + flow).to_be_bytes());
    let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    f[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    f[34..36].copy_from_slice(&1000u16.to_be_bytes());
    f[36..38].copy_from_slice(&2000u16.to_be_bytes());
    f[38..40].copy_from_slice(&((size - HEADERS_LEN + 8) as u16).to_be_bytes());
    f
}

impl Port for NullPort {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let queue = || SinkTx { link: self.link.clone(), stats: self.link.add_tx_queue() };
        (0..count.max(1)).map(|_| Box::new(queue()) as Box<dyn TxQueue>).collect()
    }

    fn status(&self) -> PortStatus {
        self.link.status(Vec::new())
    }

    port_on_link!(link);
}

/// A receive queue that replays frames from memory.
struct SourceRx {
    link: Arc<VirtualLink>,
    idx: usize,
    replay: Replay,
    coming: Coming<Replay>,
    pace: Option<Pace>,
}

impl SourceRx {
    /// Begins with what has been loaded.
    #[cold]
    fn look_for_frames(&mut self) {
        if let Some(replay) = self.coming.take() {
            self.replay = replay;
        }
    }
}

impl RxQueue for SourceRx {
    #[inline]
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if !self.link.is_up() {
            return RxOutcome::Ok;
        }
        let max = match &mut self.pace {
            None => usize::MAX,
            Some(pace) => pace.due(Instant::now()),
        };
        let Moved { packets, bytes } = self.replay.rx(cache, batch, max);
        if packets == 0 {
            self.look_for_frames();
        }
        if let Some(pace) = &mut self.pace {
            pace.took(packets);
        }
        self.link.rx[self.idx].stats.passed(packets, bytes);
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(match &self.pace {
            Some(pace) => pace.timer.fd(),
            None => self.link.rx[self.idx].event.fd(),
        })
    }

    fn arm(&mut self) -> bool {
        self.link.rx[self.idx].event.clear();
        // It may have come before the event was cleared.
        self.look_for_frames();
        if self.replay.is_done() {
            if let (true, Some(pace)) = (self.coming.is_awaited(), &self.pace) {
                pace.timer.set_after(LOOK_AGAIN_NS);
            }
            return true;
        }
        match &mut self.pace {
            // A paced queue looks again at the latest when its next packet is due, up or not.
            Some(pace) => pace.arm(Instant::now()),
            None => !self.link.is_up(),
        }
    }
}

/// How many packets are due by now.
struct Pace {
    timer: Timer,
    ns_per_packet: f64,
    next_ns: f64,
    start: Option<Instant>,
}

impl Pace {
    fn new(packets_per_s: f64) -> Result<Pace, PortError> {
        Ok(Pace { timer: Timer::new()?, ns_per_packet: 1e9 / packets_per_s, next_ns: 0.0, start: None })
    }

    fn due(&mut self, now: Instant) -> usize {
        let now_ns = now.duration_since(*self.start.get_or_insert(now)).as_nanos() as f64;
        self.next_ns = self.next_ns.max(now_ns - CATCH_UP.as_nanos() as f64);
        if now_ns < self.next_ns { 0 } else { ((now_ns - self.next_ns) / self.ns_per_packet) as usize + 1 }
    }

    fn took(&mut self, packets: u64) {
        self.next_ns += packets as f64 * self.ns_per_packet;
    }

    fn arm(&mut self, now: Instant) -> bool {
        if self.due(now) > 0 {
            return false;
        }
        let now_ns = now.duration_since(self.start.unwrap_or(now)).as_nanos() as f64;
        self.timer.set_after((self.next_ns - now_ns) as u64);
        true
    }
}

/// A transmit queue that counts and frees.
struct SinkTx {
    link: Arc<VirtualLink>,
    stats: Arc<QueueStats>,
}

impl TxQueue for SinkTx {
    #[inline]
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let bytes = refuse_unsendable(&self.link, &self.stats, cache, batch);
        self.stats.passed(batch.len() as u64, bytes);
        cache.free_all(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortMemory;
    use base::PortNo;
    use packet::{LinkState, Pool, PoolConfig};

    fn open(spec: &PortSpec) -> (NullPort, PoolCache) {
        let pool = Pool::new(PoolConfig { chunks: 128, chunk_bytes: 2048, huge_pages: false }).unwrap();
        (NullPort::open(spec).unwrap(), pool.cache())
    }

    fn spec() -> PortSpec {
        PortSpec::new("n", "null", PortNo(3))
    }

    #[test]
    fn without_options_it_is_a_sink_that_counts_and_lets_a_worker_sleep() {
        let (mut port, mut cache) = open(&spec());
        let (mut rx, mut tx) = (port.take_rx_queues().remove(0), port.take_tx_queues(1).remove(0));
        let mut batch = Batch::new();
        rx.rx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty() && rx.arm());
        for _ in 0..5 {
            batch.push(cache.alloc_frame(&[0; 100]).unwrap());
        }
        tx.tx_burst(&mut cache, &mut batch);
        assert_eq!((port.stats().tx_packets, port.stats().tx_bytes), (5, 500));
        assert_eq!(cache.pool().stats().free, 128);
    }

    #[test]
    fn flows_come_in_turn_over_all_queues_with_right_ip_checksums() {
        let (mut port, mut cache) = open(&spec().with("size", "60").with("flows", "4").with("n_rxq", "2"));
        let mut sources = Vec::new();
        for mut rx in port.take_rx_queues() {
            assert!(!rx.arm(), "a source never sleeps");
            let mut batch = Batch::new();
            rx.rx_burst(&mut cache, &mut batch);
            sources.push([batch[0].data()[29], batch[1].data()[29], batch[2].data()[29]]);
            for p in &batch {
                let sum: u32 =
                    p.data()[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
                assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            }
            cache.free_all(&mut batch);
        }
        assert_eq!(sources, [[0, 2, 0], [1, 3, 1]]);
        let received = 2 * packet::BURST as u64;
        assert_eq!((port.stats().rx_packets, port.stats().rx_bytes), (received, received * 60));
    }

    #[test]
    fn many_frames_are_loaded_while_the_link_is_down_and_their_memory_is_given_back() {
        let memory = PortMemory::new(32 << 20);
        let many = spec().with("size", "60").with("flows", "200000").with("n_rxq", "2");
        let many = PortSpec { memory: memory.clone(), loads_in_background: true, ..many };
        for rate in [None, Some("1000000000")] {
            let many = rate.into_iter().fold(many.clone(), |spec, rate| spec.with("rate", rate));
            let (mut port, mut cache) = open(&many);
            assert_eq!(memory.used(), 200_000 * 64 + 2 * 32);
            let mut queues = port.take_rx_queues();
            let start = Instant::now();
            for rx in &mut queues {
                let mut batch = Batch::new();
                while batch.is_empty() {
                    assert!(start.elapsed() < Duration::from_secs(60));
                    if rx.arm() {
                        let fd = rx.wait_fd().unwrap();
                        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                        // SAFETY: one initialised pollfd that outlives the call.
                        unsafe { libc::poll(&mut poll, 1, 60_000) };
                    }
                    rx.rx_burst(&mut cache, &mut batch);
                }
                cache.free_all(&mut batch);
            }
            while port.status().link != LinkState::Up {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            drop((port, queues));
            while memory.used() > 0 {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn memory_that_other_ports_have_taken_is_refused() {
        let memory = PortMemory::new(1 << 20);
        let spec = PortSpec { memory: memory.clone(), ..spec().with("size", "60") };
        let error = |spec: &PortSpec| NullPort::open(spec).err().unwrap().to_string();
        let first = NullPort::open(&spec.clone().with("flows", "8192")).unwrap();
        let why = "1 MB of memory is needed, but only 0 MB of the 1 MB for all ports are left";
        assert_eq!(error(&spec.clone().with("flows", "10000")), format!("option flows=10000: {why}"));
        assert!(error(&spec.clone().with("n_rxq", "3")).starts_with("option size=60: "));
        drop(first);
        NullPort::open(&spec.with("n_rxq", "3")).unwrap();
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_template_is_sent_as_it_is_and_padded() {
        let (mut port, mut cache) =
            open(&spec().with("template", "0102030405060708090a0b0c0d0e0F").with("size", "20"));
        let mut rx = port.take_rx_queues().remove(0);
        let mut batch = Batch::new();
        rx.rx_burst(&mut cache, &mut batch);
        assert_eq!(
            batch.last().unwrap().data(),
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0]
        );
        cache.free_all(&mut batch);
    }

    #[test]
    fn a_rate_is_kept() {
        let mut pace = Pace::new(1000.0).unwrap();
        let start = Instant::now();
        assert_eq!(pace.due(start), 1);
        pace.took(1);
        assert_eq!(pace.due(start + Duration::from_micros(999)), 0);
        assert!(pace.arm(start + Duration::from_micros(999)));
        assert_eq!(pace.due(start + Duration::from_micros(1000)), 1);
        assert!(!pace.arm(start + Duration::from_micros(1000)));
        assert_eq!(pace.due(start + Duration::from_secs(9)), 2, "it catches up for a millisecond alone");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for (option, value) in [
            ("size", "59"),
            ("size", "65536"),
            ("template", "0g"),
            ("template", "010"),
            ("template", "01"),
            ("flows", "2"),
            ("rate", "100"),
            ("n_rxq", "0"),
        ] {
            assert!(NullPort::open(&spec().with(option, value)).is_err(), "{option}={value}");
        }
        assert!(NullPort::open(&spec().with("size", "60").with("rate", "0")).is_err());
        assert!(NullPort::open(&spec().with("size", "60").with("flows", "0")).is_err());
    }
}
