//! `dpdkvhostuser` and `dpdkvhostuserclient`: a port whose other end is a virtual machine's network card.
//!
//! The machine's monitor (QEMU, or a process that plays one) and the switch speak the vhost-user protocol
//! over a Unix socket: it hands over the guest's memory and the locations of its rings. From then on packets
//! are copied between guest memory and the switch's pool, once in each direction (large ones between guests
//! once in all, see [`packet::lent`]), without system calls except notifications when the other side sleeps.
//! For `dpdkvhostuser` the switch listens on the socket; for `dpdkvhostuserclient` it connects, and
//! reconnects as long as the port exists.
//!
//! Reading order: [`message`] (the protocol's messages), [`descriptor`] (what accompanies them), [`device`]
//! (what they do), [`ring`] with [`split`] and [`packed`] (how packets pass), [`queue`] (the workers' view),
//! [`memory`] and [`sigbus`] (the guest's memory).
//!
//! A guest is hostile until proven otherwise. All its input is checked; invalid input ends the connection,
//! with the reason in the port's status, and affects no other port.
//!
//! Threads: each port has one for the protocol, which sleeps between messages; workers poll the rings.
//!
//! Source: QEMU's docs/interop/vhost-user.rst; virtio 1.2.

mod chain;
mod connection;
mod copy;
mod counts;
mod descriptor;
mod device;
mod doorbell;
pub mod features;
pub mod fuzz;
mod memory;
pub mod message;
mod packed;
mod pending;
mod queue;
mod ring;
mod shared;
mod sigbus;
mod split;

use crate::driver::{Backing, DUMMY, Driver};
use crate::options::{KeyRow, OptionRow, Values};
use crate::spread::Spread;
use crate::virtual_link::{check_mtu, local_mac};
use crate::{PortError, PortSpec, QueueStats};
use connection::{Connection, Ended};
use descriptor::Closer;
use device::{Answer, Device, DeviceError};
use packet::{LinkState, Port, PortStats, PortStatus, QueueCounts, RxQueue, TxQueue};
use pending::{Heard, Pending};
use queue::{VhostRx, VhostTx};
use shared::{RETRIES_DEFAULT, Shared};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unix_socket::Socket;

pub use shared::QUEUE_PAIRS_MAX;

/// How long a client waits to retry when nothing listens.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);
/// The same within [`SOON`] after its guest has left: a guest that restarts should not have to wait for the
/// switch.
const RECONNECT_SOON: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_secs(2);
/// How long a front end without a device may pause in the middle of a message: others may be waiting.
const MESSAGE_TIME: Duration = Duration::from_secs(2);
/// The maximum delay before a closed descriptor is noticed.
const CLOSED_AFTER: Duration = Duration::from_millis(5);
/// How often a client without a path wakes up; nothing but its end matters to it.
const NO_PATH_WAIT: Duration = Duration::from_secs(60);
/// The largest `tx-retries-max`.
const RETRIES_MAX: u32 = 32;
/// Default MTU of a port.
const MTU_DEFAULT: u32 = 1500;

/// Whether we listen or connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Server,
    Client,
}

/// The row of `dpdkvhostuserclient` in the table of drivers.
pub(crate) const CLIENT: Driver = Driver {
    kind: "dpdkvhostuserclient",
    options: CLIENT_OPTIONS,
    // It decides itself, see `Port::set_options`.
    ..SERVER
};

/// The row of `dpdkvhostuser`.
pub(crate) const SERVER: Driver = Driver {
    kind: "dpdkvhostuser",
    aliases: &[],
    dummy: DUMMY,
    other_end: "a virtual machine's network card",
    needs: "nothing",
    section: "dpdkvhostuser-and-dpdkvhostuserclient",
    options: SERVER_OPTIONS,
    status: &[
        KeyRow { name: "mode", meaning: "`client` or `server`" },
        KeyRow { name: "status", meaning: "`connected`: a guest is attached; `disconnected`" },
        KeyRow { name: "socket", meaning: "its path" },
        KeyRow { name: "features", meaning: "what was agreed on with the guest, as virtio numbers it" },
        KeyRow { name: "num_of_vrings", meaning: "rings that the guest has set up" },
        KeyRow { name: "vring_N_size", meaning: "slots of ring N" },
        KeyRow { name: "numa", meaning: "the NUMA node of its workers" },
        KeyRow { name: "guest_mtu", meaning: "the MTU that the guest was told" },
    ],
    statistics: &[
        KeyRow { name: "ovs_tx_retries", meaning: "retries on a ring that had room for some of a burst" },
        KeyRow {
            name: "ovs_tx_invalid_hwol_drops",
            meaning: "always 0: what a guest cannot take is done in software",
        },
        KeyRow {
            name: "rx_lent_packets",
            meaning: "packets whose payload was copied from guest to guest once",
        },
        KeyRow {
            name: "rx_1_to_64_packets",
            meaning: "frames by size without the checksum; and so on by `65_to_127`, `128_to_255`, `256_to_511`, \
                      `512_to_1023`, `1024_to_1522` (up to 1518 bytes, as in Open vSwitch), `1523_to_max`; \
                      the same with `tx`",
        },
        KeyRow { name: "rx_multicast_packets", meaning: "frames to groups; the same with `tx`" },
        KeyRow { name: "rx_broadcast_packets", meaning: "frames to all; the same with `tx`" },
        KeyRow {
            name: "rx_qN_good_packets",
            meaning: "frames of queue pair N; the same with `tx`, and with `good_bytes`, `multicast_packets`, \
                      `broadcast_packets`, `undersize_packets`, `size_64_packets`, `size_65_127_packets` and \
                      so on to `size_1519_max_packets`",
        },
        KeyRow { name: "rx_qN_guest_notifications", meaning: "how often the guest was notified" },
        KeyRow {
            name: "rx_qN_iotlb_hits",
            meaning: "always 0, as `iotlb_misses`, `inflight_submitted` and `inflight_completed`: no guest \
                      IOMMU, no asynchronous copies",
        },
    ],
    backing: Backing::Guest,
    is_strict: false,
    is_pmd: true,
    spreads_flows: true,
    open: |spec, _| Ok(Box::new(VhostUserPort::open(spec)?)),
    check: |spec| settings(spec).map(drop),
    have_same_effect: |_, _| false,
};

const CLIENT_OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "vhost-server-path",
        values: Values::Text("a path"),
        default: "none: the port exists, its link is down",
        is_live: false,
        meaning: "the socket to connect to",
    },
    TX_RETRIES_MAX,
    VHOST_OFFLOADS,
];
const SERVER_OPTIONS: &[OptionRow] = &[
    OptionRow {
        name: "vhost-sock-dir",
        values: Values::Text("a directory"),
        default: "the run directory",
        is_live: false,
        meaning: "where the socket lies; the switch sets it by `other_config:vhost-sock-dir`, a port's own is ignored",
    },
    TX_RETRIES_MAX,
    VHOST_OFFLOADS,
];
const TX_RETRIES_MAX: OptionRow = OptionRow {
    name: "tx-retries-max",
    values: Values::Number { least: 0, most: RETRIES_MAX as u64 },
    default: "8",
    is_live: true,
    meaning: "retries on a full ring before packets are dropped, each after one that sent some",
};
const VHOST_OFFLOADS: OptionRow = OptionRow {
    name: "vhost-offloads",
    values: Values::Flag,
    default: "`true`",
    is_live: false,
    meaning: "offer the guest checksum and segmentation offload",
};

/// A port of type `dpdkvhostuser` or `dpdkvhostuserclient`.
pub struct VhostUserPort {
    mode: Mode,
    mac: [u8; 6],
    spec: PortSpec,
    shared: Arc<Shared>,
    /// Receive queues given out so far.
    rx_queues: u32,
    thread: Option<JoinHandle<()>>,
}

impl VhostUserPort {
    /// Creates the port and starts to listen or to connect. Options:
    ///
    /// * `vhost-server-path`: the socket to connect to (`dpdkvhostuserclient`; without it the link is down).
    /// * `vhost-sock-dir`: the directory of the socket, which is named after the port (`dpdkvhostuser`); the
    ///   run directory by default.
    /// * `tx-retries-max`: how often a full ring is polled again before a packet is dropped, as long as each
    ///   time some are sent, 0 to 32, 8 by default.
    /// * `vhost-offloads`: `false` offers a guest neither checksum nor segmentation offload.
    ///
    /// `n_rxq`, from 1 to 64, is allowed but has no effect: a guest has as many queues as it enables.
    ///
    /// Errors: an invalid value; a path that is not a socket, or on which another process already listens.
    pub fn open(spec: &PortSpec) -> Result<VhostUserPort, PortError> {
        let Settings { mode, path, retries_max, offloads } = settings(spec)?;
        let offered = if offloads { features::OFFERED } else { features::OFFERED & !features::OFFLOADS };
        let pending = match (mode, &path) {
            (Mode::Server, Some(path)) => {
                Some(Pending::new(Socket::listen_by_umask(path).map_err(|e| PortError::file(path, &e))?))
            }
            _ => None,
        };
        let shared = Arc::new(Shared::new(spec.mtu.unwrap_or(MTU_DEFAULT))?);
        shared.retries_max.store(retries_max, Ordering::Relaxed);
        shared.facts().path = path;
        let session = Session {
            shared: shared.clone(),
            offered,
            pending,
            next: None,
            connected_to: None,
            closer: Closer::default(),
        };
        let thread = std::thread::Builder::new()
            .name(format!("vhost {}", spec.name))
            .spawn(move || session.run())
            .map_err(|e| PortError::os("start a port's protocol thread", &e))?;
        let mac = spec.mac.unwrap_or_else(|| local_mac(&spec.name));
        Ok(VhostUserPort { mode, mac, spec: spec.clone(), shared, rx_queues: 0, thread: Some(thread) })
    }

    /// How many receive queues there should be: one, and one for each pair that the guest has used.
    fn rx_queues_wanted(&self) -> u32 {
        self.shared.rx_rings_seen.load(Ordering::Relaxed).max(1)
    }

    /// The NUMA node of the guest's memory; without a guest, that of the last one.
    fn home(&self) -> usize {
        let mut facts = self.shared.facts();
        if let Some(node) = facts.ring_at.and_then(memory::node_of) {
            facts.numa_node = node;
        }
        facts.numa_node
    }
}

/// A substitute for the kernel's interface index: a number from 1 to 2^24 - 2 derived from the name alone, by
/// which collectors (RFC 2863 wants it small and not 0) distinguish ports.
fn number_of(name: &str) -> u32 {
    // FNV-1a, as for addresses.
    let hash = name.bytes().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash % 0x00ff_fffe + 1
}

/// The effective settings.
struct Settings {
    mode: Mode,
    path: Option<PathBuf>,
    retries_max: u32,
    offloads: bool,
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    let mode = if spec.kind == "dpdkvhostuserclient" { Mode::Client } else { Mode::Server };
    let path = match mode {
        Mode::Client => {
            spec.check_options(CLIENT_OPTIONS)?;
            spec.option("vhost-server-path").filter(|path| !path.is_empty()).map(PathBuf::from)
        }
        Mode::Server => {
            spec.check_options(SERVER_OPTIONS)?;
            if spec.name.contains('/') {
                return Err(PortError::Unsupported("its name is its socket's, which has no slash".into()));
            }
            let dir = spec.option("vhost-sock-dir").map(PathBuf::from);
            let dir = dir.or_else(|| std::env::var_os("OVS_RUNDIR").map(PathBuf::from));
            Some(dir.unwrap_or_else(|| PathBuf::from("/var/run/openvswitch")).join(&spec.name))
        }
    };
    // The guest has as many queues as it likes; a number of them is looked at all the same.
    spec.rx_queues()?;
    let retries_max = spec.parsed("tx-retries-max", "a number of retries")?.unwrap_or(RETRIES_DEFAULT);
    let offloads = spec.flag("vhost-offloads", true)?;
    Ok(Settings { mode, path, retries_max, offloads })
}

impl Port for VhostUserPort {
    fn kind(&self) -> &'static str {
        match self.mode {
            Mode::Server => "dpdkvhostuser",
            Mode::Client => "dpdkvhostuserclient",
        }
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        let wanted = self.rx_queues_wanted();
        let queues = self.rx_queues..wanted.max(self.rx_queues);
        self.rx_queues = queues.end;
        let queue = |pair: u32| {
            let shared = self.shared.clone();
            Box::new(VhostRx::new(shared, pair as usize, self.spec.port_no)) as Box<dyn RxQueue>
        };
        queues.map(queue).collect()
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let mut all = self.shared.tx_stats.lock().expect("no panic while held");
        let of_worker = |_| -> Box<dyn TxQueue> {
            let stats = Arc::new(QueueStats::default());
            let own = all.len() as u32;
            all.push(stats.clone());
            let queue = |idx| VhostTx::new(self.shared.clone(), idx, stats.clone());
            if !self.spec.spreads_flows {
                return Box::new(queue(own));
            }
            let shared = self.shared.clone();
            let queues = (0..QUEUE_PAIRS_MAX as u32).map(queue).collect();
            Box::new(Spread::new(queues, move || shared.tx_rings() as usize))
        };
        (0..count.max(1)).map(of_worker).collect()
    }

    fn numa_node(&self) -> Option<usize> {
        Some(self.home())
    }

    fn stats(&self) -> PortStats {
        self.shared.stats()
    }

    fn queue_counts(&self) -> Vec<QueueCounts> {
        self.shared.queue_counts()
    }

    fn is_rx_enabled(&self, queue: usize) -> bool {
        self.shared.is_enabled(2 * queue + 1)
    }

    fn give_up_rx_queues(&mut self) -> usize {
        let wanted = self.rx_queues_wanted().min(self.rx_queues);
        (std::mem::replace(&mut self.rx_queues, wanted) - wanted) as usize
    }

    fn status(&self) -> PortStatus {
        let numa_node = self.home();
        let facts = self.shared.facts().clone();
        let mut details: Vec<(String, String)> = Vec::new();
        let mut tell = |key: &str, value: String| details.push((key.into(), value));
        tell("mode", if self.mode == Mode::Server { "server" } else { "client" }.into());
        tell("status", if facts.is_connected { "connected" } else { "disconnected" }.into());
        if let Some(path) = &facts.path {
            tell("socket", path.display().to_string());
        }
        if facts.is_connected {
            tell("features", format!("{:#018x}", facts.features));
            tell("num_of_vrings", facts.ring_sizes.len().to_string());
            for (ring, size) in &facts.ring_sizes {
                tell(&format!("vring_{ring}_size"), size.to_string());
            }
            tell("numa", numa_node.to_string());
            if let Some(mtu) = facts.guest_mtu {
                tell("guest_mtu", mtu.to_string());
            }
        }
        let admin_up = self.shared.admin_up.load(Ordering::Relaxed);
        let link = if admin_up && self.shared.is_running() { LinkState::Up } else { LinkState::Down };
        PortStatus {
            link,
            admin_up,
            mac: self.mac,
            mtu: self.shared.mtu.load(Ordering::Relaxed),
            speed_bps: 0,
            ifindex: number_of(&self.spec.name),
            details,
            error: facts.unreachable.or(facts.error),
        }
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        self.shared.admin_up.store(up, Ordering::Relaxed);
        // While it was down, its guest was not asked to notify.
        self.shared.wake_all();
        Ok(())
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        check_mtu(mtu)?;
        self.shared.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    /// A connected guest stays connected unless the socket or the offloads change: `tx-retries-max` applies
    /// from the next burst on. A client switches to another socket within the same port; a listening port is
    /// recreated for that, as both kinds are for other offloads.
    fn set_options(&mut self, options: &BTreeMap<String, String>) -> Result<bool, String> {
        let spec = PortSpec { options: options.clone(), ..self.spec.clone() };
        let (new, old) = (settings(&spec), settings(&self.spec));
        let (new, old) = (new.map_err(|e| e.to_string())?, old.map_err(|e| e.to_string())?);
        if new.path != old.path && self.mode == Mode::Server || new.offloads != old.offloads {
            return Ok(false);
        }
        if new.path != old.path {
            let mut facts = self.shared.facts();
            (facts.path, facts.unreachable, facts.error) = (new.path, None, None);
            drop(facts);
            self.shared.event.signal();
        }
        self.shared.retries_max.store(new.retries_max, Ordering::Relaxed);
        self.spec = spec;
        Ok(true)
    }
}

impl Drop for VhostUserPort {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::Release);
        self.shared.event.signal();
        if let Some(thread) = self.thread.take() {
            // It ends at once, and the socket with it: it waits only for what the event interrupts. A panic
            // in it was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Why nothing can ever listen at `path` in the present situation, as opposed to nothing listening yet.
fn hopeless(path: &Path, error: &std::io::Error) -> Option<String> {
    use std::os::unix::fs::FileTypeExt;
    let shown = path.display();
    if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidFilename) {
        return Some(format!("{shown}: {}", base::os_text(error)));
    }
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.is_dir()) {
        return Some(format!("{shown}: there is no directory {}", dir.display()));
    }
    let is_other = std::fs::metadata(path).is_ok_and(|meta| !meta.file_type().is_socket());
    is_other.then(|| format!("{shown} is not a socket"))
}

/// The protocol thread's work.
struct Session {
    shared: Arc<Shared>,
    offered: u64,
    pending: Option<Pending>,
    /// The next front end, which has sent something while one without a device was served.
    next: Option<UnixStream>,
    /// The socket to which a client is connected.
    connected_to: Option<PathBuf>,
    closer: Closer,
}

impl Session {
    fn run(mut self) {
        while let Some(stream) = self.next_stream() {
            // A fault of the previous connection does not concern this one, and the event may still be set
            // for it.
            self.shared.take_fault();
            self.shared.event.clear();
            if self.shared.is_closing.load(Ordering::Acquire) {
                return;
            }
            if self.is_elsewhere() {
                continue;
            }
            {
                let mut facts = self.shared.facts();
                facts.ring_sizes.clear();
                facts.guest_mtu = None;
                facts.ring_at = None;
            }
            let end = self.serve(stream);
            self.shared.rx_rings_seen.store(0, Ordering::Relaxed);
            let mut facts = self.shared.facts();
            facts.error = end.err().map(|why| format!("the guest was disconnected: {why}"));
            let failed = facts.error.is_some();
            drop(facts);
            // A guest that keeps sending invalid messages must not keep a processor busy.
            if failed && !self.pause(RECONNECT_AFTER) || !self.closed_all() {
                return;
            }
        }
    }

    /// A connection to the next front end; `None` when the port goes.
    fn next_stream(&mut self) -> Option<UnixStream> {
        let left = Instant::now();
        loop {
            if self.shared.is_closing.load(Ordering::Acquire) {
                return None;
            }
            if let Some(stream) = self.next.take() {
                return Some(stream);
            }
            let path = self.shared.facts().path.clone();
            match (&mut self.pending, path) {
                (Some(pending), _) => match pending.wait(self.shared.event.fd(), None) {
                    Heard::Newcomer(stream) => return Some(stream),
                    Heard::Event | Heard::Present => self.shared.event.clear(),
                },
                (None, Some(path)) => {
                    let result = unix_socket::connect_now(&path);
                    let why = result.as_ref().err().and_then(|error| hopeless(&path, error));
                    self.shared.facts().unreachable = why;
                    self.connected_to = Some(path);
                    match result {
                        Ok(stream) => return Some(stream),
                        Err(_) => {
                            let is_soon = left.elapsed() < SOON;
                            if !self.pause(if is_soon { RECONNECT_SOON } else { RECONNECT_AFTER }) {
                                return None;
                            }
                        }
                    }
                }
                // New options will provide it, together with the event.
                (None, None) => _ = self.pause(NO_PATH_WAIT),
            }
        }
    }

    /// Whether a client must connect to another socket.
    fn is_elsewhere(&self) -> bool {
        self.pending.is_none() && self.shared.facts().path != self.connected_to
    }

    /// Waits until every unusable descriptor from the guest's monitor is closed. False if the port is being
    /// removed.
    fn closed_all(&self) -> bool {
        while self.closer.is_busy() {
            if !self.pause(CLOSED_AFTER) {
                return false;
            }
        }
        true
    }

    /// Waits. False when the port goes.
    fn pause(&self, time: Duration) -> bool {
        let never = self.shared.event.fd();
        let mut poll = libc::pollfd { fd: never, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, time.as_millis() as i32) };
        self.shared.event.clear();
        !self.shared.is_closing.load(Ordering::Acquire)
    }

    /// Speaks with one front end until it goes, or another takes its place. The error is why we have closed
    /// the connection.
    fn serve(&mut self, stream: UnixStream) -> Result<(), DeviceError> {
        let mut connection = Connection::new(stream, self.shared.event.fd(), self.closer.clone())?;
        let mut device = Device::new(self.shared.clone(), self.offered);
        loop {
            let is_device = self.shared.is_device();
            if let (Some(pending), false) = (&mut self.pending, is_device)
                && let Heard::Newcomer(stream) =
                    pending.wait(self.shared.event.fd(), Some(connection.stream()))
            {
                self.next = Some(stream);
                return Ok(());
            }
            let others_may_wait = self.pending.is_some() && !is_device;
            connection.deadline = others_may_wait.then(|| Instant::now() + MESSAGE_TIME);
            let incoming = match connection.receive() {
                Ok(incoming) => incoming,
                Err(Ended::Closed) => return Ok(()),
                Err(Ended::Bad(error)) => return Err(error.into()),
                Err(Ended::Woken) => {
                    self.shared.event.clear();
                    if self.shared.is_closing.load(Ordering::Acquire) || self.is_elsewhere() {
                        return Ok(());
                    }
                    match self.shared.take_fault() {
                        Some(fault) => return Err(fault.into()),
                        None => continue,
                    }
                }
            };
            let wants_answer = incoming.header.need_reply && device.acknowledges();
            let number = incoming.header.request;
            let answer = device.handle(incoming.request, incoming.fds)?;
            let sent = match answer {
                Answer::Payload(payload) => connection.send(number, &payload),
                Answer::Done if wants_answer => connection.send(number, &0u64.to_le_bytes()),
                Answer::Refused if wants_answer => connection.send(number, &1u64.to_le_bytes()),
                Answer::Done | Answer::Refused => Ok(()),
            };
            if sent.is_err() || !self.closed_all() || self.is_elsewhere() {
                return Ok(());
            }
            // Waiting has cleared the event.
            if let Some(fault) = self.shared.take_fault() {
                return Err(fault.into());
            }
        }
    }
}
