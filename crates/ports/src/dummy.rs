//! `dummy`: a port for tests. Frames are injected and observed by command; there is no device.
//!
//! Injected frames wait in a bounded queue until the worker polls; the queue's event wakes the worker if it
//! sleeps. Of sent frames, the last are kept, in a queue with the same bounds. A [`Cable`] connects two
//! dummies, of one switch or of two, and passing frames may be written to [capture files](Captures).
//!
//! Threads: injector, observer, cable and workers share locks. That is fine for a test port, and no example
//! for others.

mod cable;
mod captures;

use self::cable::{Cable, End};
use self::captures::Captures;
use crate::driver::{Backing, DUMMY, Driver};
use crate::options::{KeyRow, OptionRow, Values};
use crate::spread::{QUEUES_MAX, Spread};
use crate::virtual_link::{VirtualLink, port_on_link, to_wire_frames};
use crate::{PortError, PortSpec, QueueStats};
use base::PortNo;
use packet::{
    Batch, DummyControl, Packet, PoolCache, Port, PortStatus, QueueCounts, RxOutcome, RxQueue, TxQueue,
};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Frames kept in either direction ...
pub const KEPT_MAX: usize = 10_000;
/// ... and their bytes: so many frames of an Ethernet's length, and fewer of 64 KB.
pub const KEPT_BYTES_MAX: usize = 16 << 20;

/// Its row of the table of drivers.
pub(crate) const DRIVER: Driver = Driver {
    kind: DUMMY,
    aliases: &[],
    dummy: DUMMY,
    other_end: "commands, for tests",
    needs: "`--enable-dummy`, where a database configures it",
    section: "dummy",
    options: OPTIONS,
    status: &[
        KeyRow { name: "pstream", meaning: "the option's value" },
        KeyRow { name: "stream", meaning: "the option's value" },
    ],
    statistics: &[
        KeyRow {
            name: "rx_custom_packets_1",
            meaning: "`rx_packets` once more, in the place of what a device may count beside; likewise \
                      `rx_custom_packets_2`",
        },
        KeyRow {
            name: "rx_qN_packets",
            meaning: "frames of receive queue N, and `rx_qN_bytes`; the same with `tx`",
        },
    ],
    backing: Backing::Pretended,
    is_strict: false,
    is_pmd: false,
    spreads_flows: true,
    open: |spec, _| Ok(Box::new(DummyPort::open(spec)?)),
    check: |spec| settings(spec).map(drop),
    have_same_effect: |a, b| crate::driver::are_equal(settings, a, b),
};

/// One in the place of a bridge's own port, or of another that is internal.
pub(crate) const INTERNAL: Driver = Driver { kind: "dummy-internal", dummy: "dummy-internal", ..DRIVER };

/// One that Open vSwitch has a PMD thread poll.
pub(crate) const PMD: Driver = Driver { kind: "dummy-pmd", dummy: "dummy-pmd", is_pmd: true, ..DRIVER };

const OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "numa_id",
        values: Values::Number { least: 0, most: u64::MAX },
        default: "0",
        is_live: false,
        meaning: "the NUMA node that it pretends to be at",
    },
    OptionRow {
        name: "n_txq",
        values: Values::Number { least: 0, most: u16::MAX as u64 },
        default: "1",
        is_live: false,
        meaning: "transmit queues; flows are spread over them (`dpctl/show` lists those of `dummy-pmd`)",
    },
    file("rxq_pcap", "gets the frames that it receives"),
    file("tx_pcap", "gets the frames that are sent"),
    file("pcap", "gets both"),
    OptionRow {
        name: "pstream",
        values: Values::Text("`punix:FILE`"),
        default: "no cable",
        is_live: false,
        meaning: "listen for the other end of a cable",
    },
    OptionRow {
        name: "stream",
        values: Values::Text("`unix:FILE`"),
        default: "no cable",
        is_live: false,
        meaning: "connect to the other end of a cable",
    },
];

const fn file(name: &'static str, meaning: &'static str) -> OptionRow {
    OptionRow { name, values: Values::Text("a file"), default: "none", is_live: false, meaning }
}

/// A port of type `dummy`.
pub struct DummyPort {
    shared: Arc<Shared>,
    numa_node: usize,
    /// So many it says that it has; each worker sends by one of them, or by all.
    tx_queues: usize,
    spreads_flows: bool,
    /// The options that `dpif/show` displays.
    details: Vec<(String, String)>,
    rx_queues: Vec<Box<dyn RxQueue>>,
    /// Unplugged with the port.
    _cable: Option<Cable>,
}

struct Shared {
    link: Arc<VirtualLink>,
    /// For each receive queue.
    injected: Vec<Mutex<Kept>>,
    sent: Mutex<Kept>,
    captures: Captures,
    /// The near end of the cable.
    end: Option<Arc<End>>,
}

/// Frames that wait to be received or observed.
#[derive(Default)]
struct Kept {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Kept {
    fn has_room(&self, frame: &[u8]) -> bool {
        self.frames.len() < KEPT_MAX && self.bytes + frame.len() <= KEPT_BYTES_MAX
    }

    fn push(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some(frame)
    }
}

impl DummyPort {
    /// Makes the port. Its MTU is 1500 unless the specification says otherwise.
    pub fn open(spec: &PortSpec) -> Result<DummyPort, PortError> {
        let Settings { queues, numa_node, tx_queues, .. } = settings(spec)?;
        let mac = spec.mac.unwrap_or_else(next_mac);
        let link = VirtualLink::new(&PortSpec { mac: Some(mac), ..spec.clone() }, queues, 1500)?;
        let end = End::of(spec)?;
        let shared = Arc::new(Shared {
            link,
            injected: (0..queues).map(|_| Mutex::default()).collect(),
            sent: Mutex::default(),
            captures: Captures::open(spec)?,
            end,
        });
        let cable = match &shared.end {
            Some(end) => {
                let rx = shared.clone();
                Some(Cable::plug(end.clone(), move |frame| rx.receive(frame))?)
            }
            None => None,
        };
        let details = ["pstream", "stream"]
            .iter()
            .filter_map(|option| spec.option(option).map(|value| (option.to_string(), value.to_string())));
        let rx_queues = (0..queues)
            .map(|idx| {
                Box::new(DummyRx { shared: shared.clone(), idx, port_no: spec.port_no }) as Box<dyn RxQueue>
            })
            .collect();
        Ok(DummyPort {
            numa_node,
            tx_queues: usize::from(tx_queues).min(if spec.spreads_flows { QUEUES_MAX } else { usize::MAX }),
            spreads_flows: spec.spreads_flows,
            details: details.collect(),
            rx_queues,
            _cable: cable,
            shared,
        })
    }

    /// A handle to inject and observe frames that may outlive the port.
    pub fn control(&self) -> Arc<dyn DummyControl> {
        self.shared.clone()
    }
}

/// Addresses of dummies count from aa:55:aa:55:00:01, as Open vSwitch's: its tests know them.
fn next_mac() -> [u8; 6] {
    static COUNT: AtomicU32 = AtomicU32::new(0xaa55_0001);
    let [a, b, c, d] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [0xaa, 0x55, a, b, c, d]
}

/// The effective settings.
#[derive(PartialEq, Eq)]
struct Settings {
    queues: usize,
    numa_node: usize,
    tx_queues: u16,
    /// Files and ends of the cable, as given.
    names: Vec<Option<String>>,
}

/// The options' meaning. Files and sockets are looked at by [`DummyPort::open`] alone.
fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    let tx_queues = spec.parsed("n_txq", "a number of transmit queues")?.unwrap_or(1).max(1);
    let numa_node = spec.parsed("numa_id", "the number of a NUMA node")?.unwrap_or(0);
    let names = ["rxq_pcap", "tx_pcap", "pcap", "pstream", "stream"];
    let names = names.iter().map(|option| spec.option(option).map(str::to_string)).collect();
    Ok(Settings { queues: spec.rx_queues()?, numa_node, tx_queues, names })
}

impl Shared {
    /// A frame has come by the cable.
    fn receive(&self, frame: &[u8]) {
        if self.inject_at(0, frame) == Some(false) {
            self.link.rx[0].stats.dropped.add(1);
        }
    }
}

impl DummyControl for Shared {
    fn inject_at(&self, queue: usize, frame: &[u8]) -> Option<bool> {
        let mut injected = self.injected.get(queue)?.lock().expect("no panic while held");
        if !injected.has_room(frame) {
            return Some(false);
        }
        injected.push(frame.to_vec());
        drop(injected);
        self.link.rx[queue].event.signal();
        Some(true)
    }

    fn waiting(&self) -> usize {
        self.injected.iter().map(|queue| queue.lock().expect("no panic while held").frames.len()).sum()
    }

    fn is_connected(&self) -> Option<bool> {
        self.end.as_ref().and_then(|end| end.is_connected())
    }

    fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.sent.lock().expect("no panic while held")).frames.into()
    }
}

impl Port for DummyPort {
    fn kind(&self) -> &'static str {
        "dummy"
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let queue = || DummyTx {
            shared: self.shared.clone(),
            stats: self.shared.link.add_tx_queue(),
            frames: Vec::new(),
        };
        let of_worker = |_| -> Box<dyn TxQueue> {
            if !self.spreads_flows {
                return Box::new(queue());
            }
            let live = self.tx_queues;
            Box::new(Spread::new((0..live).map(|_| queue()).collect(), move || live))
        };
        (0..count.max(1)).map(of_worker).collect()
    }

    fn queue_counts(&self) -> Vec<QueueCounts> {
        self.shared.link.queue_counts(self.tx_queues)
    }

    fn numa_node(&self) -> Option<usize> {
        Some(self.numa_node)
    }

    fn status(&self) -> PortStatus {
        self.shared.link.status(self.details.clone())
    }

    port_on_link!(shared.link);

    fn as_dummy(&self) -> Option<&dyn DummyControl> {
        Some(&*self.shared)
    }
}

struct DummyRx {
    shared: Arc<Shared>,
    idx: usize,
    port_no: PortNo,
}

impl RxQueue for DummyRx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if !self.shared.link.is_up() {
            return RxOutcome::Ok;
        }
        let stats = &self.shared.link.rx[self.idx].stats;
        let mut injected = self.shared.injected[self.idx].lock().expect("no panic while held");
        while cache.room(batch) > 0
            && let Some(frame) = injected.frames.front()
        {
            // Without a buffer it stays queued: a test that waits for it must see it once there are some.
            let Some(mut packet) = cache.alloc_frame(frame) else { break };
            self.shared.captures.received(frame);
            injected.pop();
            packet.in_port = self.port_no;
            stats.passed(1, packet.len() as u64);
            batch.push(packet);
        }
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.shared.link.rx[self.idx].event.fd())
    }

    fn arm(&mut self) -> bool {
        self.shared.link.rx[self.idx].event.clear();
        let empty = self.shared.injected[self.idx].lock().expect("no panic while held").frames.is_empty();
        empty || !self.shared.link.is_up()
    }
}

struct DummyTx {
    shared: Arc<Shared>,
    stats: Arc<QueueStats>,
    frames: Vec<Packet>,
}

impl TxQueue for DummyTx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        to_wire_frames(&self.shared.link, &self.stats, cache, batch, &mut self.frames);
        let mut sent = self.shared.sent.lock().expect("no panic while held");
        for packet in self.frames.drain(..) {
            self.stats.passed(1, packet.len() as u64);
            let frame: Vec<u8> = packet.segments().flatten().copied().collect();
            cache.free(packet);
            self.shared.captures.sent(&frame);
            if let Some(end) = &self.shared.end
                && !end.send(&frame)
            {
                self.stats.dropped.add(1);
            }
            while !sent.has_room(&frame) && sent.pop().is_some() {}
            sent.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolConfig};

    fn open(spec: &PortSpec) -> (DummyPort, PoolCache) {
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        (DummyPort::open(spec).unwrap(), pool.cache())
    }

    fn is_readable(fd: RawFd) -> bool {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one initialised pollfd that outlives the call.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    }

    #[test]
    fn what_is_injected_is_received_and_what_is_sent_is_seen() {
        let (mut port, mut cache) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let mut rx = port.take_rx_queues().remove(0);
        let mut tx = port.take_tx_queues(1).remove(0);
        assert!(port.take_rx_queues().is_empty());
        let mut batch = Batch::new();
        assert!(port.as_dummy().unwrap().inject(&[5; 60]));
        rx.rx_burst(&mut cache, &mut batch);
        assert_eq!((batch.len(), batch[0].in_port), (1, PortNo(9)));
        tx.tx_burst(&mut cache, &mut batch);
        assert_eq!(port.as_dummy().unwrap().take_sent(), [[5; 60]]);
        let stats = port.stats();
        assert_eq!((stats.rx_packets, stats.rx_bytes, stats.tx_packets, stats.tx_bytes), (1, 60, 1, 60));
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn a_frame_that_arrives_before_or_after_arming_wakes_the_sleeper() {
        let (mut port, mut cache) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let mut rx = port.take_rx_queues().remove(0);
        assert!(rx.arm());
        assert!(!is_readable(rx.wait_fd().unwrap()));
        port.control().inject(&[0; 60]);
        assert!(is_readable(rx.wait_fd().unwrap()));
        assert!(!rx.arm(), "a frame waits");
        let mut batch = Batch::new();
        rx.rx_burst(&mut cache, &mut batch);
        assert!(rx.arm());
        assert!(!is_readable(rx.wait_fd().unwrap()));
        cache.free_all(&mut batch);
    }

    #[test]
    fn too_long_frames_and_frames_for_a_port_that_is_down_are_dropped_and_counted() {
        let (mut port, mut cache) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let mut tx = port.take_tx_queues(1).remove(0);
        let mut batch = Batch::new();
        let mut tagged = [0; 1518];
        tagged[12] = 0x81;
        for frame in [&[0; 1514][..], &[0; 1515], &tagged] {
            batch.push(cache.alloc_frame(frame).unwrap());
        }
        tx.tx_burst(&mut cache, &mut batch);
        let stats = port.stats();
        assert_eq!((stats.tx_packets, stats.tx_dropped, stats.tx_mtu_drops), (2, 1, 1));
        port.set_admin_up(false).unwrap();
        batch.push(cache.alloc_frame(&[0; 60]).unwrap());
        tx.tx_burst(&mut cache, &mut batch);
        assert_eq!(port.stats().tx_dropped, 2);
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn an_unfinished_segment_is_seen_as_the_frames_that_a_wire_would_carry() {
        let (mut port, mut cache) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let mut tx = port.take_tx_queues(1).remove(0);
        let mut packet = cache.alloc_frame(&crate::null::udp_frame(42 + 2500, 1)).unwrap();
        packet.flags.set(packet::PacketFlags::CSUM_PARTIAL);
        packet.flags.set(packet::PacketFlags::GSO_UDP);
        (packet.csum_start, packet.csum_offset, packet.gso_size) = (34, 6, 1000);
        let mut batch = Batch::new();
        batch.push(packet);
        tx.tx_burst(&mut cache, &mut batch);
        let sent = port.as_dummy().unwrap().take_sent();
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1042, 1042, 542]);
        assert!(sent.iter().all(|f| f[40..42] != [0, 0]), "without a checksum");
        assert_eq!((port.stats().tx_packets, cache.pool().stats().free), (3, 64));
    }

    #[test]
    fn one_file_for_both_directions_gets_all_frames() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("both");
        let name = file.to_str().unwrap();
        for other in [name, "both"] {
            let spec = PortSpec::new("d", "dummy", PortNo(9)).with("rxq_pcap", name).with("tx_pcap", other);
            let (mut port, mut cache) = open(&spec.with_files_beside([&*file]));
            let (mut rx, mut tx) = (port.take_rx_queues().remove(0), port.take_tx_queues(1).remove(0));
            let mut batch = Batch::new();
            for byte in [1, 2] {
                port.as_dummy().unwrap().inject(&[byte; 60]);
                rx.rx_burst(&mut cache, &mut batch);
                batch.push(cache.alloc_frame(&[byte + 2; 60]).unwrap());
                tx.tx_burst(&mut cache, &mut batch);
            }
            let bytes = std::fs::read(&file).unwrap();
            let records = crate::pcap::file::parse(&bytes).unwrap();
            let frames: Vec<&[u8]> = records.iter().map(|record| record.frame).collect();
            assert_eq!(frames, [[1; 60], [1; 60], [3; 60], [2; 60], [2; 60], [4; 60]], "{other}");
        }
    }

    /// The error of a dummy that shall listen at `path`.
    fn refusal_to_listen(path: &std::path::Path) -> String {
        let spec = PortSpec::new("d", "dummy", PortNo(9)).with_files_beside([path]);
        let spec = spec.with("pstream", &format!("punix:{}", path.display()));
        DummyPort::open(&spec).err().expect("a refusal").to_string()
    }

    #[test]
    fn a_cable_replaces_only_a_socket_that_nobody_uses() {
        use std::os::unix::net::{UnixDatagram, UnixListener};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        let stream = rustix::net::SocketType::STREAM;
        let full = rustix::net::socket(rustix::net::AddressFamily::UNIX, stream, None).unwrap();
        rustix::net::bind(&full, &rustix::net::SocketAddrUnix::new(path("full")).unwrap()).unwrap();
        rustix::net::listen(&full, 0).unwrap();
        // The one connection that its queue holds.
        let _first = std::os::unix::net::UnixStream::connect(path("full")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for (name, expected) in [
            ("datagrams", "another process listens there"),
            ("full", "another process listens there"),
            ("file", "it exists and is not a socket"),
        ] {
            let why = refusal_to_listen(&path(name));
            assert!(why.ends_with(&format!("/{name}: {expected}")), "{why}");
            assert!(path(name).exists(), "{name}");
        }
        drop(UnixListener::bind(path("left")).unwrap());
        let spec = PortSpec::new("d", "dummy", PortNo(9)).with_files_beside([&*path("left")]);
        let spec = spec.with("pstream", &format!("punix:{}", path("left").display()));
        let port = DummyPort::open(&spec).unwrap();
        std::fs::remove_file(path("left")).unwrap();
        let _successor = UnixListener::bind(path("left")).unwrap();
        drop(port);
        std::os::unix::net::UnixStream::connect(path("left")).expect("the successor's socket");
        let both = spec.with("stream", &format!("unix:{}", path("left").display()));
        let why = DummyPort::open(&both).err().expect("two cables").to_string();
        assert!(why.contains("pstream is the port's cable already"), "{why}");
    }

    #[test]
    fn the_queue_of_injected_frames_is_bounded() {
        let (port, _) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let control = port.control();
        assert!((0..KEPT_MAX).all(|_| control.inject(&[0; 14])));
        assert!(!control.inject(&[0; 14]));
        let (port, _) = open(&PortSpec::new("d", "dummy", PortNo(9)));
        let (control, long) = (port.control(), vec![0; KEPT_BYTES_MAX / 256]);
        assert!((0..256).all(|_| control.inject(&long)));
        assert!(!control.inject(&[0]));
    }

    #[test]
    fn of_sent_frames_the_last_are_kept_within_the_bound() {
        const BYTES: usize = 1900;
        let spec = PortSpec { mtu: Some(9000), ..PortSpec::new("d", "dummy", PortNo(9)) };
        let (mut port, mut cache) = open(&spec);
        let mut tx = port.take_tx_queues(1).remove(0);
        let mut batch = Batch::new();
        let frames = KEPT_BYTES_MAX.div_ceil(BYTES) as u32 + 5;
        for n in 0..frames {
            let mut frame = [0; BYTES];
            frame[..4].copy_from_slice(&n.to_be_bytes());
            batch.push(cache.alloc_frame(&frame).unwrap());
            tx.tx_burst(&mut cache, &mut batch);
        }
        let sent = port.control().take_sent();
        assert_eq!(sent.len(), KEPT_BYTES_MAX / BYTES);
        assert_eq!(sent.last().unwrap()[..4], (frames - 1).to_be_bytes());
        assert!(port.control().take_sent().is_empty());
    }
}
