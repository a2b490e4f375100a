//! Packet sockets: any kernel interface, when AF_XDP does not work. The driver behind `system`'s second
//! choice.
//!
//! Receives from a ring that the kernel fills (see [`ring`]), several queues by fanout on the flow's hash;
//! sends by `sendmmsg`, a burst per system call. Both directions carry the virtio-net header, so checksums
//! stay unfinished and segments whole, as between taps. A VLAN tag that the kernel took out of a frame is put
//! back.
//!
//! The kernel's own stack sees a copy of everything that a packet socket receives. If the switch owns the
//! interface, the stack would answer, forward or reset connections on its own account. So a program at the
//! interface's ingress drops what comes in, after the packet sockets have seen it (tcx, Linux 6.6 and later;
//! it goes when the port does, even if the switch is killed). `kernel-stack=true` leaves it out;
//! `status:kernel-stack` shows which applies.
//!
//! Threads: each queue has its own socket. The port has another one for its requests to the kernel.

mod header;
mod ingress;
mod ring;
mod transmit;

use crate::af_xdp::device::{Device, OffloadsOff};
use crate::af_xdp::sys;
use crate::cut::CutFrames;
use crate::options::{OptionRow, Values};
use crate::port_memory::Reserved;
use crate::tails::{Places, Tails, first_place};
use crate::virtio_net::{self, BadHeader};
use crate::wait::last_errno;
use crate::{PortError, PortSpec, QueueStats, stats};
use base::{PortNo, clock};
use header::{padded, push_tag};
use ingress::{Ingress, block_ingress};
use packet::{
    Batch, LinkState, Packet, Pool, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue,
};
use ring::{RxRing, Slot, VNET_LEN, ring_bytes};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use transmit::PacketTx;

const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_STATISTICS: i32 = 6;
const PACKET_COPY_THRESH: i32 = 7;
const PACKET_VERSION: i32 = 10;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_FANOUT: i32 = 18;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const TPACKET_V2: i32 = 1;
const FANOUT_HASH: u32 = 0;
const FANOUT_FLAG_IGNORE_OUTGOING: u32 = 0x4000;
const FANOUT_FLAG_UNIQUE_ID: u32 = 0x2000;
/// Slots of a ring.
const SLOTS_DEFAULT: usize = 2048;
/// Bytes that the rings of a port may take: all 64 queues with the default number of slots.
const RINGS_BYTES_MAX: usize = 256 << 20;
/// Bytes that large frames may take in a socket's queue, and in those of all receive queues.
const RECEIVE_BUFFER: usize = 32 << 20;
const RECEIVE_BUFFERS: usize = 256 << 20;
/// Bytes that a transmit socket may have on the way.
const SEND_BUFFER: i32 = 8 << 20;
/// An idle queue asks whether its interface is still there this often per second.
const CHECKS_PER_S: u64 = 20;

/// A port on a kernel interface by packet sockets.
pub struct AfPacketPort {
    device: Arc<Device>,
    rx_sockets: Vec<Arc<OwnedFd>>,
    rx_stats: Vec<Arc<QueueStats>>,
    tx_stats: Vec<Arc<QueueStats>>,
    rx_queues: Vec<Box<dyn RxQueue>>,
    tx_spare: Vec<OwnedFd>,
    ingress: Ingress,
    missed: Mutex<u64>,
    numa_node: Option<usize>,
    offloads_off: OffloadsOff,
    /// For the rings beyond one of the default size.
    memory: Arc<Reserved>,
}

impl Drop for AfPacketPort {
    fn drop(&mut self) {
        self.device.restore_offloads(self.offloads_off);
    }
}

/// Further transmit sockets than this are not made: more workers share.
const TX_SOCKETS_MAX: usize = 64;

impl AfPacketPort {
    /// Options:
    ///
    /// * `ifname`: the interface's name, if it differs from the port's.
    /// * `n_rxq_desc`: slots of a receive ring, 128 to 65536 (2048).
    /// * `kernel-stack`: let the kernel's own stack receive what the switch receives as well (`false`).
    ///
    /// Needs CAP_NET_RAW and CAP_NET_ADMIN. The interface keeps its administrative state, and is promiscuous
    /// as long as the port exists.
    pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<AfPacketPort, PortError> {
        let Settings { queues, slots, wants_stack } = settings(spec)?;
        let bytes = rings_bytes(spec, queues, slots)?;
        let refused = |why| PortError::Unsupported(format!("rings of packet sockets: {why}"));
        // Each interface may have a ring of the default size: a host may have thousands of them.
        let beyond = bytes.saturating_sub(ring_bytes(SLOTS_DEFAULT));
        let memory = Arc::new(spec.memory.reserve(beyond).map_err(refused)?);
        let device = Device::find(spec.option("ifname").unwrap_or(&spec.name))?;
        let os = |call: &str, errno| PortError::Os { call: call.into(), errno };
        if let Some(mtu) = spec.mtu {
            device.set_mtu(mtu).map_err(|errno| os("set the MTU", errno))?;
        }
        if let Some(mac) = spec.mac {
            device.set_mac(mac).map_err(|errno| os("set the Ethernet address", errno))?;
        }
        let numa_node = device.numa_node();
        let ingress = if wants_stack { Ingress::Open } else { block_ingress(device.ifindex) };
        let mut port = AfPacketPort {
            offloads_off: device.turn_off_lro(),
            device: Arc::new(device),
            rx_sockets: Vec::new(),
            rx_stats: Vec::new(),
            tx_stats: Vec::new(),
            rx_queues: Vec::new(),
            tx_spare: Vec::new(),
            ingress,
            missed: Mutex::default(),
            numa_node,
            memory,
        };
        port.tx_spare.push(tx_socket(port.device.ifindex)?);
        let mut fanout = None;
        for _ in 0..queues {
            port.add_rx_queue(spec.port_no, slots, queues, &mut fanout, pool)?;
        }
        Ok(port)
    }

    fn add_rx_queue(
        &mut self,
        port_no: PortNo,
        slots: usize,
        queues: usize,
        fanout: &mut Option<u32>,
        pool: &'static Pool,
    ) -> Result<(), PortError> {
        let socket = rx_socket(RECEIVE_BUFFER.min(RECEIVE_BUFFERS / queues))?;
        let ring = RxRing::new(&socket, slots)?;
        let ifindex = self.device.ifindex;
        bind(&socket, ifindex, libc::ETH_P_ALL as u16)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: ifindex as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, PACKET_ADD_MEMBERSHIP, &promiscuous, "make an interface promiscuous")?;
        if queues > 1 {
            join_fanout(&socket, fanout)?;
        }
        let (socket, stats) = (Arc::new(socket), Arc::<QueueStats>::default());
        self.rx_sockets.push(socket.clone());
        self.rx_stats.push(stats.clone());
        self.rx_queues.push(Box::new(PacketRx {
            ring,
            socket,
            device: self.device.clone(),
            stats,
            port_no,
            tails: Tails::new(pool),
            cut: CutFrames::default(),
            next_check_tsc: 0,
            check_interval_tsc: clock::tsc_hz() / CHECKS_PER_S,
            _memory: self.memory.clone(),
        }));
        Ok(())
    }
}

/// The effective settings.
#[derive(PartialEq, Eq)]
pub(crate) struct Settings {
    queues: usize,
    slots: usize,
    wants_stack: bool,
}

/// See [`crate::check`].
pub(crate) fn check(spec: &PortSpec) -> Result<(), PortError> {
    let Settings { queues, slots, .. } = settings(spec)?;
    rings_bytes(spec, queues, slots)?;
    Device::find(spec.option("ifname").unwrap_or(&spec.name)).map(drop)
}

/// Everything that the options determine.
pub(crate) fn effect(spec: &PortSpec) -> Result<(Settings, String), PortError> {
    Ok((settings(spec)?, spec.option("ifname").unwrap_or(&spec.name).to_string()))
}

fn settings(spec: &PortSpec) -> Result<Settings, PortError> {
    spec.check_options(OPTIONS)?;
    let queues = spec.rx_queues()?;
    let slots: usize = spec.parsed("n_rxq_desc", "a number of slots")?.unwrap_or(SLOTS_DEFAULT);
    Ok(Settings { queues, slots, wants_stack: spec.flag("kernel-stack", false)? })
}

/// The memory of a port's rings.
fn rings_bytes(spec: &PortSpec, queues: usize, slots: usize) -> Result<usize, PortError> {
    match queues * ring_bytes(slots) {
        bytes @ 0..=RINGS_BYTES_MAX => Ok(bytes),
        bytes => Err(spec.bad(
            "n_rxq_desc",
            format!(
                "{queues} rings of packet sockets take {} MB, but those of a port may take only {} MB",
                bytes.div_ceil(1 << 20),
                RINGS_BYTES_MAX >> 20
            ),
        )),
    }
}

/// Those of `system`'s options that packet sockets use.
pub(crate) const OPTIONS: &[OptionRow] = &[crate::options::IFNAME, N_RXQ_DESC, KERNEL_STACK];

pub(crate) const N_RXQ_DESC: OptionRow = OptionRow {
    name: "n_rxq_desc",
    values: Values::Number { least: 128, most: 65_536 },
    default: "2048",
    is_live: false,
    meaning: "slots of a receive queue's ring; with AF_XDP powers of two to 4096",
};
pub(crate) const KERNEL_STACK: OptionRow = OptionRow {
    name: "kernel-stack",
    values: Values::Flag,
    default: "`false`",
    is_live: false,
    meaning: "packet sockets: let the kernel's own stack receive too",
};

fn set<T: Copy>(socket: &OwnedFd, option: i32, value: &T, call: &str) -> Result<(), PortError> {
    sys::set_option(socket.as_raw_fd(), libc::SOL_PACKET, option, value, call)
}

/// A socket that is bound to nothing yet and so receives nothing.
fn rx_socket(buffer_bytes: usize) -> Result<OwnedFd, PortError> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let socket = sys::socket(libc::AF_PACKET, kind, 0, "open a packet socket")?;
    set(&socket, PACKET_IGNORE_OUTGOING, &1, "leave out what is sent")?;
    set(&socket, PACKET_VNET_HDR, &1, "ask for virtio-net headers")?;
    set(&socket, PACKET_VERSION, &TPACKET_V2, "choose the ring's format")?;
    set(&socket, PACKET_COPY_THRESH, &1, "ask for whole frames")?;
    buffer_size(&socket, libc::SO_RCVBUFFORCE, buffer_bytes as i32)?;
    Ok(socket)
}

fn tx_socket(ifindex: u32) -> Result<OwnedFd, PortError> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let socket = sys::socket(libc::AF_PACKET, kind, 0, "open a packet socket")?;
    set(&socket, PACKET_VNET_HDR, &1, "ask for virtio-net headers")?;
    buffer_size(&socket, libc::SO_SNDBUFFORCE, SEND_BUFFER)?;
    bind(&socket, ifindex, 0)?;
    Ok(socket)
}

fn buffer_size(socket: &OwnedFd, option: i32, bytes: i32) -> Result<(), PortError> {
    sys::set_option(socket.as_raw_fd(), libc::SOL_SOCKET, option, &bytes, "set a socket's buffer")
}

fn bind(socket: &OwnedFd, ifindex: u32, protocol: u16) -> Result<(), PortError> {
    // SAFETY: zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as i32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is initialised, of the length given, and outlives the call.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } {
        0 => Ok(()),
        _ => Err(PortError::last_os("bind a packet socket")),
    }
}

/// Makes the socket a member of the port's fanout group; the first one founds it.
fn join_fanout(socket: &OwnedFd, group: &mut Option<u32>) -> Result<(), PortError> {
    let mode = FANOUT_HASH | FANOUT_FLAG_IGNORE_OUTGOING;
    let value = match *group {
        Some(id) => id | mode << 16,
        None => (mode | FANOUT_FLAG_UNIQUE_ID) << 16,
    };
    set(socket, PACKET_FANOUT, &value, "share an interface among packet sockets (fanout)")?;
    if group.is_none() {
        let id: u32 = get(socket, PACKET_FANOUT)?;
        *group = Some(id & 0xffff);
    }
    Ok(())
}

/// An option of a packet socket whose value is plain integers.
fn get<T: Copy + Default>(socket: &OwnedFd, option: i32) -> Result<T, PortError> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = (&raw mut value).cast();
    // SAFETY: `value` has room for `len` bytes and outlives the call; it is made of integers.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, at, &mut len) } {
        0 => Ok(value),
        _ => Err(PortError::last_os("ask a packet socket")),
    }
}

impl AfPacketPort {
    /// Whether the kernel's own stack is kept from receiving what the switch receives.
    pub(crate) fn is_kernels_stack_blocked(&self) -> bool {
        matches!(self.ingress, Ingress::Blocked { .. })
    }
}

impl Port for AfPacketPort {
    fn kind(&self) -> &'static str {
        "system"
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        std::mem::take(&mut self.rx_queues)
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let count = count.clamp(1, TX_SOCKETS_MAX);
        while self.tx_spare.len() < count {
            // The first one was made when the port was; without another, workers share.
            let Ok(socket) = tx_socket(self.device.ifindex) else { break };
            self.tx_spare.push(socket);
        }
        let mut queues: Vec<Box<dyn TxQueue>> = Vec::new();
        for socket in self.tx_spare.drain(..) {
            let stats = Arc::<QueueStats>::default();
            self.tx_stats.push(stats.clone());
            queues.push(Box::new(PacketTx { socket, stats }));
        }
        queues
    }

    fn numa_node(&self) -> Option<usize> {
        self.numa_node
    }

    fn stats(&self) -> PortStats {
        let mut total = stats::sum(self.rx_stats.iter().map(|q| &**q), self.tx_stats.iter().map(|q| &**q));
        let mut missed = self.missed.lock().expect("no panic while held");
        for socket in &self.rx_sockets {
            // Frames and drops since the last time it was asked.
            if let Ok([_, drops]) = get::<[u32; 2]>(socket, PACKET_STATISTICS) {
                *missed += u64::from(drops);
            }
        }
        total.rx_missed_errors += *missed;
        total.rx_dropped += *missed;
        total
    }

    fn status(&self) -> PortStatus {
        let stack = match &self.ingress {
            Ingress::Blocked { .. } => "blocked".to_string(),
            Ingress::Open => "receives too".to_string(),
            Ingress::Unblocked(why) => format!("receives too ({why})"),
        };
        let mut details = vec![
            ("datapath".to_string(), "af_packet".to_string()),
            ("kernel-stack".to_string(), stack),
            ("offloads".to_string(), "csum tso4 tso6 uso".to_string()),
        ];
        details.extend(self.device.driver_details());
        let state = self.device.state().ok();
        details.extend(state.as_ref().and_then(|state| self.device.renamed_to(state)));
        PortStatus {
            link: state.as_ref().map_or(LinkState::Down, |s| s.link),
            admin_up: state.as_ref().is_some_and(|s| s.admin_up),
            mac: state.as_ref().map(|s| s.mac).unwrap_or_default(),
            mtu: state.as_ref().map_or(0, |s| s.mtu),
            speed_bps: self.device.speed_bps(),
            ifindex: self.device.ifindex,
            details,
            error: state.is_none().then(|| "the interface is gone".to_string()),
        }
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        let set = self.device.set_admin_up(up);
        set.map_err(|errno| PortError::Os { call: "set the interface up or down".into(), errno }.to_string())
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        let set = self.device.set_mtu(mtu);
        set.map_err(|errno| PortError::Os { call: "set the MTU".into(), errno }.to_string())
    }
}

struct PacketRx {
    // The mapping goes before the socket.
    ring: RxRing,
    socket: Arc<OwnedFd>,
    device: Arc<Device>,
    stats: Arc<QueueStats>,
    port_no: PortNo,
    tails: Tails,
    cut: CutFrames,
    next_check_tsc: u64,
    check_interval_tsc: u64,
    _memory: Arc<Reserved>,
}

impl PacketRx {
    /// The frame in the next slot as a packet. `Err` if there is no buffer: it then stays in the ring.
    fn receive(&mut self, cache: &mut PoolCache) -> Result<Option<Packet>, ()> {
        let Some(Slot { bytes, is_copied, vlan }) = self.ring.peek() else { return Ok(None) };
        let packet = match bytes {
            Some((header, frame)) => {
                let (packet, header) = (cache.alloc_frame(frame).ok_or(())?, padded(header));
                self.noted(packet, &header, cache)
            }
            None if is_copied => self.receive_large(cache)?,
            // Cut off, and the socket's queue had no room for the whole.
            None => Received::Lost,
        };
        Ok(match packet {
            Received::Frame(mut packet) => {
                if let Some(tag) = vlan {
                    push_tag(&mut packet, tag);
                }
                packet.in_port = self.port_no;
                Some(packet)
            }
            Received::Bad(packet, why) => {
                self.stats.refused(why);
                cache.free(packet);
                None
            }
            Received::Cut => {
                for frame in self.cut.iter_mut() {
                    if let Some(tag) = vlan {
                        push_tag(frame, tag);
                    }
                    frame.in_port = self.port_no;
                }
                None
            }
            Received::Lost => {
                self.stats.dropped.add(1);
                None
            }
        })
    }

    /// Fetches a frame that is too long for a slot from the socket's queue.
    fn receive_large(&mut self, cache: &mut PoolCache) -> Result<Received, ()> {
        if !self.tails.fill(cache) {
            return Err(());
        }
        let mut head = cache.alloc().ok_or(())?;
        let mut places = Places::new();
        places.push(first_place(&mut head, VNET_LEN));
        self.tails.add_places(&mut places);
        // SAFETY: zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = places.as_mut_ptr();
        message.msg_iovlen = places.len();
        let mut received = Err(());
        for _ in 0..LARGE_TRIES {
            // SAFETY: the places lie in chunks that this queue owns, and outlive the call.
            let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
            received = usize::try_from(len).map_err(drop);
            // Any other error is the socket's own, such as a link that went down, and is over now. The frame
            // still waits; if it were left there, each later one would be taken for the one before it.
            if received.is_ok() || last_errno() == libc::EAGAIN {
                break;
            }
        }
        let Ok(len) = received else {
            cache.free(head);
            return Ok(Received::Lost);
        };
        let first_len = len.min(head.len());
        head.set_len(first_len).expect("shorter than it was");
        let header = head.data().first_chunk::<VNET_LEN>().map(padded);
        let Some(header) = header.filter(|_| message.msg_flags & libc::MSG_TRUNC == 0) else {
            return Ok(Received::Bad(head, BadHeader::Nonsense));
        };
        head.pull_front(VNET_LEN).expect("as long as the header, checked above");
        self.tails.append_to(&mut head, len - first_len);
        Ok(self.noted(head, &header, cache))
    }

    /// The packet with what its header says.
    fn noted(
        &mut self,
        mut packet: Packet,
        header: &[u8; virtio_net::HEADER_LEN],
        cache: &mut PoolCache,
    ) -> Received {
        let cut = match virtio_net::apply(header, &mut packet) {
            Ok(()) => return Received::Frame(packet),
            Err(BadHeader::Nonsense) => {
                self.cut.fill(|frames| virtio_net::cut_inner(header, &packet, cache, frames))
            }
            Err(why) => Err(why),
        };
        match cut {
            Err(why) => Received::Bad(packet, why),
            Ok(is_cut) => {
                cache.free(packet);
                if is_cut { Received::Cut } else { Received::Lost }
            }
        }
    }

    /// Finds out whether the interface is still there.
    #[cold]
    fn check(&mut self) -> RxOutcome {
        // Clears the pending error (link down, interface gone), which would otherwise keep the descriptor
        // readable.
        let mut error = 0i32;
        let mut len = size_of::<i32>() as libc::socklen_t;
        let at = (&raw mut error).cast();
        // SAFETY: `error` has room for `len` bytes and outlives the call.
        unsafe { libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, at, &mut len) };
        match self.device.state() {
            Err(libc::ENODEV | libc::ENXIO) => RxOutcome::Gone,
            _ => RxOutcome::Ok,
        }
    }
}

/// How often a frame is asked for: errors of the socket come first, each once.
const LARGE_TRIES: usize = 8;

enum Received {
    Frame(Packet),
    /// It is refused because of its header.
    Bad(Packet, BadHeader),
    /// It has become the frames in `cut`.
    Cut,
    /// There was no room for it, the kernel's or the pool's.
    Lost,
}

impl RxQueue for PacketRx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        let before = batch.len();
        if !self.cut.is_empty() {
            self.cut.hand_over(&self.stats, cache, batch);
        }
        while cache.room(batch) > 0 && self.ring.has_next() {
            match self.receive(cache) {
                Err(()) => break,
                Ok(None) => self.cut.hand_over(&self.stats, cache, batch),
                Ok(Some(packet)) => {
                    self.stats.passed(1, packet.len() as u64);
                    batch.push(packet);
                }
            }
            self.ring.release();
        }
        if batch.len() > before {
            return RxOutcome::Ok;
        }
        let now = clock::tsc();
        if now < self.next_check_tsc {
            return RxOutcome::Ok;
        }
        self.next_check_tsc = now + self.check_interval_tsc;
        self.check()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.socket.as_raw_fd())
    }

    fn arm(&mut self) -> bool {
        // The descriptor is readable as long as a slot is ours; asking for it here saves the sleep's system
        // calls.
        self.cut.is_empty() && !self.ring.has_next()
    }

    fn disarm(&mut self) {
        // The worker may have been woken by an error without a frame.
        self.next_check_tsc = 0;
    }

    fn close(&mut self, cache: &mut PoolCache) {
        self.tails.close(cache);
        self.cut.close(&self.stats, cache);
    }
}
