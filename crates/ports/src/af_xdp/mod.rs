//! AF_XDP: packets straight from a kernel interface's receive path into the pool, and back.
//!
//! A small XDP program ([`program`]) passes each packet of a device's receive queue to a socket ([`socket`])
//! whose memory is the packet pool; [`queue`] has the loops. It works on any interface: natively in the
//! driver if that supports it (with zero-copy if that is supported too), otherwise in the network stack.
//!
//! Invariants: nothing that we create in the kernel outlives the process, killed or not (the program depends
//! on a link, the sockets on descriptors), except that device offloads we turned off are turned on again only
//! by a clean exit; every chunk lent to the kernel comes back with the end of the port and of its queues.
//!
//! Threads: [`AfXdpPort`] belongs to the control thread, each queue to one worker; they share counters, the
//! longest frame, and the map that steers packets.
//!
//! Source: Documentation/networking/af_xdp.rst, linux/if_xdp.h; options and status keys as in
//! ovs-vswitchd.conf.db(5).

mod btf;
pub(crate) mod busy;
pub(crate) mod device;
mod lent;
mod program;
mod queue;
mod ring;
mod rtnetlink;
mod socket;
pub(crate) mod sys;

use crate::driver::{Backing, DUMMY, Driver};
use crate::options::{KeyRow, N_RXQ, OptionRow, Values};
use crate::{PortError, PortSpec, QueueStats};
use busy::while_busy;
use device::{Channels, Device, OffloadsOff};
use packet::pool::HEADROOM_BYTES;
use packet::{LinkState, Pool, Port, PortStats, PortStatus, RxQueue, TxQueue};
use program::{AttachMode, Link, Program, XskMap, os};
use queue::{PortShared, XskRxQueue, XskTxQueue};
use socket::{BindKind, Socket, SocketSpec};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const ETHERNET_HEADER: u32 = 14;
const VLAN_TAG: u32 = 4;

/// Most receive queues that a port opens.
const QUEUES_MAX: u32 = 64;

/// Default ring size.
const RING_SLOTS: u32 = 2048;

/// What `options:xdp-mode` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum XdpMode {
    BestEffort,
    NativeZeroCopy,
    Native,
    Generic,
}

impl XdpMode {
    /// The mode of an option that was checked.
    fn of(spec: &PortSpec) -> XdpMode {
        match spec.option("xdp-mode") {
            Some("native-with-zerocopy") => XdpMode::NativeZeroCopy,
            Some("native") => XdpMode::Native,
            Some("generic") => XdpMode::Generic,
            _ => XdpMode::BestEffort,
        }
    }

    /// Where to attach the program and whether to bind with zero-copy, in the order in which to try.
    fn attempts(self) -> &'static [(AttachMode, bool)] {
        use AttachMode::{Generic, Native};
        match self {
            XdpMode::BestEffort => &[(Native, true), (Native, false), (Generic, false)],
            XdpMode::NativeZeroCopy => &[(Native, true)],
            XdpMode::Native => &[(Native, false)],
            XdpMode::Generic => &[(Generic, false)],
        }
    }
}

/// Its row of the table of drivers.
pub(crate) const DRIVER: Driver = Driver {
    kind: "afxdp",
    aliases: &["afxdp-nonpmd"],
    dummy: DUMMY,
    other_end: "any interface of the kernel, by AF_XDP",
    needs: "root (or `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF` and `CAP_IPC_LOCK`)",
    section: "afxdp",
    options: OPTIONS,
    status: STATUS,
    statistics: &[],
    backing: Backing::Kernels,
    is_strict: true,
    is_pmd: true,
    spreads_flows: false,
    open: |spec, pool| Ok(Box::new(AfXdpPort::open(spec, pool)?)),
    check,
    have_same_effect: |a, b| crate::driver::are_equal(effect, a, b),
};

const OPTIONS: &[OptionRow] = &[
    crate::options::IFNAME,
    XDP_MODE,
    USE_NEED_WAKEUP,
    OptionRow {
        default: "as many as the interface has",
        meaning: "receive queues; sets the interface's channels, and restores them on a clean exit",
        ..N_RXQ
    },
    OptionRow {
        name: "n_rxq_desc",
        values: RING_SIZES,
        default: "2048",
        is_live: false,
        meaning: "slots of a receive queue's ring; the queue gives the kernel as many buffers",
    },
    N_TXQ_DESC,
];

pub(crate) const XDP_MODE: OptionRow = OptionRow {
    name: "xdp-mode",
    values: Values::OneOf(&["best-effort", "native-with-zerocopy", "native", "generic"]),
    default: "`best-effort`",
    is_live: false,
    meaning: "the mode; `best-effort` tries the others in this order",
};
pub(crate) const USE_NEED_WAKEUP: OptionRow = OptionRow {
    name: "use-need-wakeup",
    values: Values::Flag,
    default: "`true`",
    is_live: false,
    meaning: "the kernel says when it needs a system call; no effect in copy mode, which always needs one",
};
pub(crate) const N_TXQ_DESC: OptionRow = OptionRow {
    name: "n_txq_desc",
    values: RING_SIZES,
    default: "2048",
    is_live: false,
    meaning: "slots of a transmit queue's ring",
};
const RING_SIZES: Values = Values::PowerOfTwo { least: 64, most: 4096 };

/// Keys of `status`.
pub(crate) const STATUS: &[KeyRow] = &[
    KeyRow { name: "xdp-mode", meaning: "the mode in use: `native-with-zerocopy`, `native`, `generic`" },
    KeyRow { name: "use-need-wakeup", meaning: "whether it is used" },
    KeyRow { name: "xdp-multi-buffer", meaning: "whether frames longer than a buffer pass (jumbo frames)" },
    KeyRow {
        name: "xdp-vlan-tags",
        meaning: "`restored`: VLAN tags that the kernel keeps outside the frame are put back; \
                  `in-frame-only`: they are lost, see below",
    },
    KeyRow {
        name: "xdp-umem",
        meaning: "`registered`: the first port that uses the pool as AF_XDP memory; `shared`: a later one; \
                  forwarding between them copies nothing in between",
    },
    KeyRow { name: "n_rxq", meaning: "receive queues in use" },
    crate::options::DRIVER_NAME,
    crate::options::DRIVER_VERSION,
    crate::options::FIRMWARE_VERSION,
    crate::options::RENAMED_TO,
];

/// A port on a kernel interface by AF_XDP.
pub struct AfXdpPort {
    // Fields drop in this order: the program goes before the sockets that no queue has taken.
    _link: Link,
    rx: Vec<XskRxQueue>,
    tx: Vec<XskTxQueue>,
    sockets: Vec<Arc<Socket>>,
    shared: Arc<PortShared>,
    rx_stats: Vec<Arc<QueueStats>>,
    tx_stats: Vec<Arc<QueueStats>>,
    device: Prepared,
    attach_mode: AttachMode,
    restores_tags: bool,
    kind: BindKind,
    /// The unchanging part of its status.
    driver: Vec<(String, String)>,
    numa_node: Option<usize>,
    /// The link's speed, with the link state for which it was read: reading it waits for the kernel's lock on
    /// all devices.
    speed: Mutex<Option<(LinkState, u64)>>,
}

/// A program attached and sockets bound, in one of the modes.
struct Bound {
    link: Link,
    attach_mode: AttachMode,
    restores_tags: bool,
    kind: BindKind,
    sockets: Vec<(Arc<Socket>, socket::RxRings, socket::TxRings)>,
}

impl AfXdpPort {
    /// Opens the port that `spec` describes. Its interface is the option `ifname`, or else the port's name.
    ///
    /// Errors: no such interface, a bad option, another program attached, or an error from the kernel;
    /// [`PortError::Busy`] without having waited. Nothing is left behind in that case.
    pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<AfXdpPort, PortError> {
        let Settings { mode, need_wakeup, rx_slots, tx_slots } = settings(spec)?;
        let found = Device::find(spec.option("ifname").unwrap_or(&spec.name))?;
        let mut device =
            Prepared { device: found, offloads_off: OffloadsOff::default(), channels_before: None };
        let queues = device.choose_queues(spec)?;
        apply_requests(spec, &device)?;
        let mtu = device.state().map_err(|errno| os("ask for the interface's state", errno))?.mtu;
        device.offloads_off = device.turn_off_offloads(true);
        let map = XskMap::new(queues)?;
        let slots = SocketSpec { pool, ifindex: device.ifindex, queue_id: 0, rx_slots, tx_slots };
        let frame_fits =
            (mtu + ETHERNET_HEADER + VLAN_TAG) as usize <= pool.config().chunk_bytes - HEADROOM_BYTES;
        let wanted = Wanted { queues, need_wakeup, frame_fits, retries_busy: spec.retries_busy };
        let bound = bind_best(&map, mode, &slots, wanted)?;
        let frame_max = AtomicU32::new(mtu + ETHERNET_HEADER);
        let mut port = AfXdpPort {
            _link: bound.link,
            rx: Vec::new(),
            tx: Vec::new(),
            sockets: Vec::new(),
            shared: Arc::new(PortShared { frame_max, map }),
            rx_stats: Vec::new(),
            tx_stats: Vec::new(),
            device,
            attach_mode: bound.attach_mode,
            restores_tags: bound.restores_tags,
            kind: bound.kind,
            driver: Vec::new(),
            numa_node: None,
            speed: Mutex::default(),
        };
        port.driver = port.device.driver_details();
        port.numa_node = port.device.numa_node();
        let mut cache = pool.cache();
        for (queue_id, (socket, rx_rings, tx_rings)) in bound.sockets.into_iter().enumerate() {
            let (rx_stats, tx_stats) = (Arc::new(QueueStats::default()), Arc::new(QueueStats::default()));
            port.rx_stats.push(rx_stats.clone());
            port.tx_stats.push(tx_stats.clone());
            port.sockets.push(socket.clone());
            let shared = port.shared.clone();
            port.tx.push(XskTxQueue::new(socket.clone(), shared.clone(), tx_rings, tx_stats));
            let queue = XskRxQueue::new(socket, shared, rx_rings, queue_id as u32, spec.port_no, rx_stats);
            port.rx.push(queue);
        }
        for queue in &mut port.rx {
            queue.start(&mut cache)?;
        }
        Ok(port)
    }

    fn mode_name(&self) -> &'static str {
        match (self.attach_mode, self.kind.zero_copy) {
            (AttachMode::Native, true) => "native-with-zerocopy",
            (AttachMode::Native, false) => "native",
            (AttachMode::Generic, _) => "generic",
        }
    }

    fn speed_bps(&self, link: LinkState) -> u64 {
        let mut known = self.speed.lock().expect("no panic while held");
        match *known {
            Some((then, speed_bps)) if then == link => speed_bps,
            _ => known.insert((link, self.device.speed_bps())).1,
        }
    }

    fn details(&self) -> Vec<(String, String)> {
        // If an earlier port registered the memory that a later one uses, forwarding between them copies
        // nothing.
        let shared = self.sockets.iter().all(|socket| socket.shares_umem);
        let mut details = vec![
            ("xdp-mode".to_string(), self.mode_name().to_string()),
            ("use-need-wakeup".into(), self.kind.need_wakeup.to_string()),
            ("xdp-multi-buffer".into(), self.kind.multi_buffer.to_string()),
            ("xdp-vlan-tags".into(), if self.restores_tags { "restored" } else { "in-frame-only" }.into()),
            ("xdp-umem".into(), if shared { "shared" } else { "registered" }.into()),
            ("n_rxq".into(), self.sockets.len().to_string()),
        ];
        details.extend(self.driver.iter().cloned());
        details
    }
}

/// The kernel's minimum for a port: a program loaded and attached in the driver, and a socket bound to each
/// queue. For measuring what a port costs beyond that. Dropping it removes everything.
pub struct Bare {
    _bound: Bound,
    _map: XskMap,
}

impl Bare {
    /// Attaches to an interface, with rings of `slots` slots. Errors: as [`AfXdpPort::open`].
    pub fn attach(ifname: &str, pool: &'static Pool, slots: u32) -> Result<Bare, PortError> {
        let device = Device::find(ifname)?;
        let queues = device.channels().rx_queues().min(QUEUES_MAX);
        let map = XskMap::new(queues)?;
        let slots =
            SocketSpec { pool, ifindex: device.ifindex, queue_id: 0, rx_slots: slots, tx_slots: slots };
        let bound = while_busy(busy::GRACE, |retries_busy| {
            let wanted = Wanted { queues, need_wakeup: true, frame_fits: true, retries_busy };
            bind_best(&map, XdpMode::Native, &slots, wanted)
        })?;
        Ok(Bare { _bound: bound, _map: map })
    }
}

/// A device and what we changed at it, which dropping this puts back.
struct Prepared {
    device: Device,
    offloads_off: OffloadsOff,
    channels_before: Option<Channels>,
}

impl std::ops::Deref for Prepared {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.device.restore_offloads(self.offloads_off);
        if let Some(channels) = self.channels_before {
            // Best effort: the device may be gone, or its queues in other use by now.
            let _ = self.device.set_channels(channels);
        }
    }
}

impl Prepared {
    /// How many queues the port opens: all queues of the device if those are not too many, or `n_rxq`. The
    /// device's channels are set to that: one with more queues would lose packets to the kernel's stack.
    fn choose_queues(&mut self, spec: &PortSpec) -> Result<u32, PortError> {
        let channels = self.channels();
        let has = channels.rx_queues();
        let wanted = match spec.option("n_rxq") {
            Some(_) => spec.rx_queues()? as u32,
            None => has.min(QUEUES_MAX),
        };
        if wanted == has {
            return Ok(has);
        }
        match channels.with_rx_queues(wanted) {
            Some(changed) if self.set_channels(changed).is_ok() => {
                self.channels_before = Some(channels);
                Ok(wanted)
            }
            // More than the device has: use all of them. The port's status says how many are in use.
            _ if wanted > has => Ok(has),
            _ => {
                let why = format!("the interface has {has} receive queues and cannot be given {wanted}");
                Err(PortError::BadOption { option: "n_rxq".into(), value: wanted.to_string(), why })
            }
        }
    }
}

/// The effective settings.
#[derive(PartialEq, Eq)]
pub(crate) struct Settings {
    mode: XdpMode,
    need_wakeup: bool,
    rx_slots: u32,
    tx_slots: u32,
}

/// See [`crate::check`].
pub(crate) fn check(spec: &PortSpec) -> Result<(), PortError> {
    settings(spec)?;
    Device::find(spec.option("ifname").unwrap_or(&spec.name)).map(drop)
}

/// Everything that the options determine. Without `n_rxq` the device determines the number of queues.
pub(crate) fn effect(spec: &PortSpec) -> Result<(Settings, String, Option<usize>), PortError> {
    let device = spec.option("ifname").unwrap_or(&spec.name).to_string();
    let queues = spec.option("n_rxq").map(|_| spec.rx_queues()).transpose()?;
    Ok((settings(spec)?, device, queues))
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    // How many there will be depends on the device, see `choose_queues`.
    spec.rx_queues()?;
    Ok(Settings {
        mode: XdpMode::of(spec),
        need_wakeup: spec.flag("use-need-wakeup", true)?,
        rx_slots: ring_slots(spec, "n_rxq_desc")?,
        tx_slots: ring_slots(spec, "n_txq_desc")?,
    })
}

fn ring_slots(spec: &PortSpec, option: &str) -> Result<u32, PortError> {
    Ok(spec.parsed(option, "a number of slots")?.unwrap_or(RING_SLOTS))
}

fn apply_requests(spec: &PortSpec, device: &Device) -> Result<(), PortError> {
    if let Some(mac) = spec.mac {
        device.set_mac(mac).map_err(|errno| os("set the Ethernet address", errno))?;
    }
    if let Some(mtu) = spec.mtu {
        device.set_mtu(mtu).map_err(|errno| os("set the MTU", errno))?;
    }
    Ok(())
}

/// The wanted configuration of a port's sockets.
#[derive(Clone, Copy)]
struct Wanted {
    queues: u32,
    need_wakeup: bool,
    /// Whether the longest frame fits into one buffer.
    frame_fits: bool,
    /// Whether a busy interface is tried again: then in the best mode, not in one that would work now.
    retries_busy: bool,
}

/// Attaches the program and binds a socket to each queue, in the best mode that works. The error is that of
/// the last way tried.
fn bind_best(map: &XskMap, mode: XdpMode, slots: &SocketSpec, wanted: Wanted) -> Result<Bound, PortError> {
    let Wanted { queues, need_wakeup, frame_fits, retries_busy } = wanted;
    let is_final = |error: &PortError| match error {
        PortError::Busy { .. } => retries_busy,
        error => matches!(error, PortError::Unsupported(_)),
    };
    let mut last = None;
    let mut attached: Option<(AttachMode, Program, Link)> = None;
    for (attach_mode, zero_copy) in mode.attempts() {
        let (program, link) = match attached.take() {
            Some((mode, program, link)) if mode == *attach_mode => (program, link),
            other => {
                drop(other);
                let program = Program::load(map, slots.ifindex, *attach_mode)?;
                match program.attach(slots.ifindex, *attach_mode) {
                    Ok(link) => (program, link),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => {
                        last = Some(error);
                        continue;
                    }
                }
            }
        };
        let restores_tags = program.restores_tags;
        for multi_buffer in [true, false] {
            // Without multi-buffer support, jumbo frames are lost: accepted only if nothing else works, not
            // for the sake of zero-copy.
            if (multi_buffer && !program.multi_buffer) || (!multi_buffer && *zero_copy && !frame_fits) {
                continue;
            }
            let kind = BindKind { zero_copy: *zero_copy, need_wakeup, multi_buffer };
            let open = |queue_id| socket::open(&SocketSpec { queue_id, ..*slots }, kind);
            match (0..queues).map(open).collect::<Result<Vec<_>, _>>() {
                Ok(sockets) => {
                    return Ok(Bound { link, attach_mode: *attach_mode, restores_tags, kind, sockets });
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        attached = Some((*attach_mode, program, link));
    }
    Err(last.unwrap_or_else(|| PortError::Unsupported("no XDP mode to try".into())))
}

impl Port for AfXdpPort {
    fn kind(&self) -> &'static str {
        "afxdp"
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        self.rx.drain(..).map(|queue| Box::new(queue) as Box<dyn RxQueue>).collect()
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let count = count.clamp(1, self.tx.len().max(1)).min(self.tx.len());
        self.tx.drain(..count).map(|queue| Box::new(queue) as Box<dyn TxQueue>).collect()
    }

    fn numa_node(&self) -> Option<usize> {
        self.numa_node
    }

    fn stats(&self) -> PortStats {
        let rx = self.rx_stats.iter().map(|q| &**q);
        let tx = self.tx_stats.iter().map(|q| &**q);
        let mut stats = crate::stats::sum(rx, tx);
        for socket in &self.sockets {
            let kernel = socket.statistics();
            stats.rx_dropped += kernel.rx_dropped + kernel.rx_ring_full;
            stats.rx_missed_errors += kernel.rx_ring_full;
            stats.rx_errors += kernel.rx_invalid_descs;
            stats.tx_errors += kernel.tx_invalid_descs;
        }
        stats
    }

    fn status(&self) -> PortStatus {
        let mut details = self.details();
        match self.device.state() {
            Ok(state) => {
                details.extend(self.device.renamed_to(&state));
                self.shared.frame_max.store(state.mtu + ETHERNET_HEADER, Ordering::Relaxed);
                PortStatus {
                    link: state.link,
                    admin_up: state.admin_up,
                    mac: state.mac,
                    mtu: state.mtu,
                    speed_bps: self.speed_bps(state.link),
                    ifindex: self.device.ifindex,
                    details,
                    error: None,
                }
            }
            Err(errno) => {
                if errno == libc::ENODEV || errno == libc::ENXIO {
                    self.sockets.iter().for_each(|socket| socket.set_gone());
                }
                PortStatus {
                    link: LinkState::Down,
                    admin_up: false,
                    mac: [0; 6],
                    mtu: 0,
                    speed_bps: 0,
                    ifindex: self.device.ifindex,
                    details,
                    error: Some("the interface is gone".into()),
                }
            }
        }
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        let set = self.device.set_admin_up(up);
        set.map_err(|errno| os("set the interface up or down", errno).to_string())
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        self.device.set_mtu(mtu).map_err(|errno| os("set the MTU", errno).to_string())?;
        self.shared.frame_max.store(mtu + ETHERNET_HEADER, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;
    use packet::{Batch, PoolConfig};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};
    use wire::{Compose, EthAddr};

    /// Sends a frame out of a device by its index.
    fn send(ifindex: u32, frame: &[u8]) {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0, "make a packet socket").unwrap();
        // SAFETY: an address is plain bytes and integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, ifindex as i32);
        let (to, len) = ((&raw const address).cast(), size_of_val(&address) as u32);
        // SAFETY: frame and address are of the lengths given and outlive the call.
        let sent =
            unsafe { libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, len) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn a_vlan_tag_that_the_sender_left_to_its_device_is_in_the_frame() {
        let ifindex = program::tests::veth();
        for name in ["p0", "veth0"] {
            assert!(
                std::process::Command::new("ip")
                    .args(["link", "set", name, "up"])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let peer = Device::find("veth0").unwrap().ifindex;
        assert_ne!(peer, ifindex);
        let _tagger = program::tests::push_tags_on_egress(peer);
        let pool = Pool::new(PoolConfig { chunks: 8192, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut port = AfXdpPort::open(&PortSpec::new("p0", "afxdp", PortNo(1)), pool).unwrap();
        let mut cache = pool.cache();
        let frame = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]))
            .ipv4("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
            .udp(1, 2)
            .frame_len(100)
            .build()
            .unwrap();
        let mut queues = port.take_rx_queues();
        send(peer, &frame);
        let (mut batch, start) = (Batch::new(), Instant::now());
        let tagged = loop {
            assert!(start.elapsed() < Duration::from_secs(5), "the frame did not come");
            queues[0].rx_burst(&mut cache, &mut batch);
            // The device's own chatter (neighbour discovery) comes too.
            let ours = |p: &packet::Packet| p.data()[..6] == frame[..6];
            if let Some(p) = batch.iter().find(|p| ours(p)) {
                break p.data().to_vec();
            }
            cache.free_all(&mut batch);
        };
        cache.free_all(&mut batch);
        let expected = [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
        assert_eq!(tagged, expected);
    }

    #[test]
    fn a_queue_that_another_socket_has_is_told_at_once_and_not_in_every_mode() {
        let ifindex = program::tests::veth();
        let theirs = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let theirs = SocketSpec { pool: theirs, ifindex, queue_id: 0, rx_slots: 64, tx_slots: 64 };
        let kind = BindKind { zero_copy: false, need_wakeup: true, multi_buffer: true };
        let held = socket::open(&theirs, kind).unwrap();
        let pool = Pool::new(PoolConfig { chunks: 8192, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let start = Instant::now();
        let open = |kind, retries_busy| {
            let spec = PortSpec { retries_busy, ..PortSpec::new("p0", kind, PortNo(1)) };
            crate::open_now(&spec.with("xdp-mode", "best-effort"), pool)
        };
        let by = crate::Blocker { ifindex, queue_id: Some(0) };
        for kind in ["afxdp", "system"] {
            let Err(PortError::Busy { by: found, .. }) = open(kind, true) else { panic!("{kind}") };
            assert_eq!((found, crate::is_gone(by)), (by, false));
        }
        // The last attempt: one driver gives up, and the other one has a substitute.
        let why = "bind an AF_XDP socket to receive queue 0: Device or resource busy";
        assert_eq!(open("afxdp", false).err().unwrap().to_string(), why);
        let instead = open("system", false).unwrap().status().details;
        assert!(instead.contains(&("af_xdp-error".into(), why.into())), "{instead:?}");
        assert!(start.elapsed() < busy::GRACE, "nothing has waited: {:?}", start.elapsed());
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        drop(crate::open(&PortSpec::new("p0", "afxdp", PortNo(1)), pool).unwrap());
        release.join().unwrap();
    }
}
