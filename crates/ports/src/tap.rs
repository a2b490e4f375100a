//! `tap` and `internal`: an interface of the kernel whose other end is the switch.
//!
//! It uses /dev/net/tun with a virtio-net header in front of each frame, so that neither checksums are
//! finished nor segments cut between the host's TCP and the packet's destination: a segment of 64 KB is read
//! into a chain of chunks and written from one. `internal` is the same under the bridge's name: its local
//! port.
//!
//! Cost: no system call moves several frames, so each frame is one read or write. Hence: (1) an empty queue
//! is left alone for a few microseconds ([`idle`]), since polling it costs as much as switching two packets;
//! (2) a read has two places, the new chunk and a scratch buffer that is copied from, because a list of 34
//! chunks costs 0.1 µs even if only one is used; when large frames arrive, the list is used for a while.
//!
//! The interface is created with the port and removed with it, unless it existed before (someone else made it
//! persistent: then it stays). With [`PortSpec::owner`] it outlives the process instead, however that ends,
//! with its index, addresses and routes, and the next process that opens it under the same mark adopts it. If
//! it is deleted while in use, the queues return [`RxOutcome::Gone`]. It may be moved to another network
//! namespace; its state is then queried there, and it goes with the process, since the next one would not
//! find it.
//!
//! Threads: a receive queue and a transmit queue share a file descriptor, which the kernel allows.
//!
//! Source: Linux's Documentation/networking/tuntap.rst, linux/if_tun.h.

mod idle;
mod row;

pub(crate) use row::{INTERNAL, TAP};

use crate::af_xdp::device::Device;
use crate::netlink::{self, Link, LinkChange};
use crate::options::{IFNAME, OptionRow, RENAMED_TO, Values};
use crate::spread::{QUEUES_MAX, Spread};
use crate::tails::{FRAME_MAX, Places, Tails, first_place};
use crate::virtio_net::{self, HEADER_LEN};
use crate::virtual_link::{is_longer_than, local_mac};
use crate::wait::{last_errno, owned};
use crate::{PortError, PortSpec, QueueStats, offload, stats};
use base::region::Region;
use base::{PortNo, clock};
use idle::IdleBackoff;
use packet::{
    Batch, LinkState, Packet, Pool, PoolCache, Port, PortStats, PortStatus, RxOutcome, RxQueue, TxQueue,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNGETDEVNETNS: libc::c_ulong = 0x54e3;
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

/// A frame in more pieces than this cannot be sent (64 KB in chunks of 2 KB are 37).
const SEGMENTS_MAX: usize = 128;
/// After a large frame this many reads expect another.
const LARGE_READS: u32 = 64;
/// A frame that seems too long makes us query the MTU again, at most this many times per second.
const ASKS_PER_S: u64 = 20;

/// A port of type `tap` or `internal`.
pub struct TapPort {
    kind: &'static str,
    shared: Arc<Shared>,
    origin: Origin,
    /// The unchanging part of its status.
    details: Vec<(String, String)>,
    speed_bps: u64,
    rx_stats: Vec<Arc<QueueStats>>,
    tx_stats: Vec<Arc<QueueStats>>,
    rx_queues: Vec<Box<dyn RxQueue>>,
    spreads_flows: bool,
}

/// Whose the interface is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    /// It existed before.
    Foreign,
    /// Made by this port.
    Made,
    /// Made by an earlier process with the same mark.
    Adopted,
}

struct Shared {
    name: String,
    /// The interface, in the namespace in which it was opened.
    device: Device,
    /// Whether it should outlive the process, as last set in the kernel.
    outlives: bool,
    is_persistent: AtomicBool,
    /// One per queue.
    files: Vec<OwnedFd>,
    mtu: AtomicU32,
    error: Mutex<Option<String>>,
}

impl TapPort {
    /// Creates the interface and the port. Options:
    ///
    /// * `ifname`: the interface's name, if it differs from the port's.
    ///
    /// Needs CAP_NET_ADMIN. A new interface is down until an administrator sets it up. MTU and address are
    /// those of the specification; the default address is a local one derived from the name.
    pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<TapPort, PortError> {
        let (name, queues) = settings(spec)?;
        let kind = if spec.kind == "internal" { "internal" } else { "tap" };
        let before = match Device::find(&name) {
            Ok(_) => netlink::link_by_name(&name).ok(),
            Err(_) => None,
        };
        let mut origin = match (&before, &spec.owner) {
            (Some(link), Some(owner)) if link.alias == *owner => Origin::Adopted,
            (Some(_), _) => Origin::Foreign,
            (None, _) => Origin::Made,
        };
        let open_queues =
            || (0..queues).map(|_| open_queue(&name, queues > 1)).collect::<Result<Vec<_>, _>>();
        let files = match (open_queues(), &before) {
            // It was created with one queue and should have several, or vice versa: that cannot be changed.
            (Err(e), Some(link)) if origin == Origin::Adopted && e.errno() == Some(libc::EINVAL) => {
                netlink::delete_link(link.ifindex)?;
                origin = Origin::Made;
                open_queues()?
            }
            (files, _) => files?,
        };
        let features = files.iter().map(set_offloads).collect::<Result<Vec<_>, PortError>>()?[0];
        let device = Device::find(&name)?;
        let found =
            device.state().map_err(|errno| PortError::Os { call: "ask for a tap's state".into(), errno })?;
        let mac = spec.mac.or((origin == Origin::Made).then(|| local_mac(&name)));
        let outlives = spec.owner.is_some() && origin != Origin::Foreign;
        let change = LinkChange {
            // The administrator of the machine sets it up, as with Open vSwitch.
            up: None,
            mtu: spec.mtu.filter(|mtu| *mtu != found.mtu),
            mac: mac.filter(|mac| *mac != found.mac),
            // Before it is made persistent: a persistent interface without the mark would have no owner.
            alias: spec.owner.clone().filter(|_| origin == Origin::Made),
            netns: None,
        };
        if change.is_any() {
            netlink::set_link(device.ifindex, &change)?;
        }
        if outlives {
            set_persistent(&files[0], true)?;
        }
        let mut details = device.driver_details();
        details.push(("offloads".into(), features.into()));
        let speed_bps = device.speed_bps();
        let shared = Arc::new(Shared {
            name,
            device,
            outlives,
            is_persistent: AtomicBool::new(outlives),
            files,
            mtu: AtomicU32::new(spec.mtu.unwrap_or(found.mtu)),
            error: Mutex::default(),
        });
        let rx_stats: Vec<Arc<QueueStats>> = (0..queues).map(|_| Arc::default()).collect();
        let rx_queues = rx_stats
            .iter()
            .enumerate()
            .map(|(idx, stats)| {
                let queue = TapRx::new(shared.clone(), idx, stats.clone(), spec.port_no, pool)?;
                Ok(Box::new(queue) as Box<dyn RxQueue>)
            })
            .collect::<io::Result<_>>()
            .map_err(|e| PortError::os("map a buffer for large frames", &e))?;
        let (tx_stats, spreads_flows) = (Vec::new(), spec.spreads_flows);
        Ok(TapPort { kind, shared, origin, details, speed_bps, rx_stats, tx_stats, rx_queues, spreads_flows })
    }
}

const OPTIONS: &[OptionRow] = &[OptionRow { values: Values::Text("1 to 15 bytes"), ..IFNAME }];

/// The device's name, and receive queues.
fn settings(spec: &PortSpec) -> Result<(String, usize), PortError> {
    spec.check_options(OPTIONS)?;
    let name = spec.option("ifname").unwrap_or(&spec.name).to_string();
    netlink::check_name(&name)?;
    Ok((name, spec.rx_queues()?))
}

fn open_queue(name: &str, is_one_of_many: bool) -> Result<OwnedFd, PortError> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path is a literal with a terminating zero.
    let fd = owned(unsafe { libc::open(c"/dev/net/tun".as_ptr(), flags) }, "open /dev/net/tun")?;
    // SAFETY: zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let many = if is_one_of_many { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | many) as i16;
    // SAFETY: the request is initialised and outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut request) } != 0 {
        return Err(PortError::last_os(format!("make the tap interface {name}")));
    }
    let header_len = HEADER_LEN as libc::c_int;
    // SAFETY: the kernel reads one int, which outlives the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &raw const header_len) } != 0 {
        return Err(PortError::last_os(format!("set the header size of the tap interface {name}")));
    }
    Ok(fd)
}

/// Sets whether the interface persists when no process has it open.
fn set_persistent(fd: &OwnedFd, stays: bool) -> Result<(), PortError> {
    // SAFETY: the argument is a number, not a pointer.
    if unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETPERSIST, libc::c_ulong::from(stays)) } != 0 {
        return Err(PortError::last_os("make a tap interface stay or go"));
    }
    Ok(())
}

/// Tells the kernel what it may leave to the reader; returns that as text.
fn set_offloads(fd: &OwnedFd) -> Result<&'static str, PortError> {
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    for (flags, text) in [(tcp | TUN_F_USO4 | TUN_F_USO6, "csum tso4 tso6 uso"), (tcp, "csum tso4 tso6")] {
        // SAFETY: the argument is a number, not a pointer.
        if unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, libc::c_ulong::from(flags)) } == 0 {
            return Ok(text);
        }
    }
    Err(PortError::last_os("set a tap interface's offloads"))
}

impl Shared {
    /// The interface's state, in whichever namespace it is now.
    fn link(&self) -> Result<Link, PortError> {
        if let Some(link) = self.link_at_home() {
            self.make_persistent(self.outlives);
            return Ok(link);
        }
        let link = match netlink::link_by_index(self.device.ifindex) {
            // Renamed.
            Ok(link) if link.name == self.current_name() => link,
            _ => {
                let link = self.in_its_netns(netlink::link_by_name)?;
                self.make_persistent(false);
                link
            }
        };
        Ok(link)
    }

    /// Its state if it is in its original namespace, read without waiting for the kernel's lock on all
    /// devices.
    fn link_at_home(&self) -> Option<Link> {
        let state = self.device.state().ok().filter(|state| state.name == self.name)?;
        Some(Link {
            ifindex: self.device.ifindex,
            name: state.name,
            mtu: state.mtu,
            mac: state.mac,
            admin_up: state.admin_up,
            is_running: state.link == LinkState::Up,
            is_promiscuous: false,
            alias: String::new(),
        })
    }

    fn make_persistent(&self, stays: bool) {
        if self.outlives
            && self.is_persistent.load(Ordering::Relaxed) != stays
            && set_persistent(&self.files[0], stays).is_ok()
        {
            self.is_persistent.store(stays, Ordering::Relaxed);
        }
    }

    fn change(&self, change: &LinkChange) -> Result<(), PortError> {
        if self.link_at_home().is_some() {
            return netlink::set_link(self.device.ifindex, change);
        }
        match netlink::link_by_index(self.device.ifindex) {
            Ok(link) if link.name == self.current_name() => netlink::set_link(self.device.ifindex, change),
            _ => {
                self.in_its_netns(|ifname| netlink::set_link(netlink::link_by_name(ifname)?.ifindex, change))
            }
        }
    }

    /// The present name of the interface; empty if it is gone.
    fn current_name(&self) -> String {
        // SAFETY: zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one ifreq, which outlives the call.
        unsafe { libc::ioctl(self.files[0].as_raw_fd(), TUNGETIFF, &raw mut request) };
        request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect()
    }

    fn in_its_netns<T: Send>(
        &self,
        f: impl FnOnce(&str) -> Result<T, PortError> + Send,
    ) -> Result<T, PortError> {
        let gone = || PortError::NoSuchInterface { name: self.name.clone() };
        let name = self.current_name();
        // SAFETY: the call takes no argument and returns a descriptor.
        let fd = unsafe { libc::ioctl(self.files[0].as_raw_fd(), TUNGETDEVNETNS) };
        let netns = owned(fd, "ask for a tap's namespace").map_err(|_| gone())?;
        netlink::in_netns(netns.as_raw_fd(), || f(&name))
    }

    fn fail(&self, why: &str) {
        *self.error.lock().expect("no panic while held") = Some(format!("{}: {why}", self.name));
    }
}

impl Port for TapPort {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        std::mem::take(&mut self.rx_queues)
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        let first = self.tx_stats.len();
        self.tx_stats.extend((0..count.max(1)).map(|_| Arc::default()));
        let files = self.shared.files.len();
        let of_worker = |(i, stats): (usize, &Arc<QueueStats>)| -> Box<dyn TxQueue> {
            let queue =
                |idx| TapTx { shared: self.shared.clone(), idx, stats: stats.clone(), next_ask_tsc: 0 };
            if !self.spreads_flows {
                return Box::new(queue(i % files));
            }
            let live = files.min(QUEUES_MAX);
            Box::new(Spread::new((0..live).map(queue).collect(), move || live))
        };
        self.tx_stats[first..].iter().enumerate().map(of_worker).collect()
    }

    fn stats(&self) -> PortStats {
        stats::sum(self.rx_stats.iter().map(|q| &**q), self.tx_stats.iter().map(|q| &**q))
    }

    fn status(&self) -> PortStatus {
        let mut details = self.details.clone();
        let mut error = self.shared.error.lock().expect("no panic while held").clone();
        let link = match self.shared.link() {
            Ok(link) => Some(link),
            Err(e) => {
                error.get_or_insert(e.to_string());
                None
            }
        };
        if let Some(link) = &link {
            // Another program may have changed it, and the transmit side must know.
            self.shared.mtu.store(link.mtu, Ordering::Relaxed);
            if link.name != self.shared.name {
                details.push((RENAMED_TO.name.into(), link.name.clone()));
            }
        }
        let is_running = link.as_ref().is_some_and(|l| l.is_running);
        PortStatus {
            link: if is_running { LinkState::Up } else { LinkState::Down },
            admin_up: link.as_ref().is_some_and(|l| l.admin_up),
            mac: link.as_ref().map(|l| l.mac).unwrap_or_default(),
            mtu: link.as_ref().map_or(self.shared.mtu.load(Ordering::Relaxed), |l| l.mtu),
            speed_bps: self.speed_bps,
            ifindex: link.as_ref().map_or(0, |l| l.ifindex),
            details,
            error,
        }
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        self.shared.change(&LinkChange { up: Some(up), ..Default::default() }).map_err(|e| e.to_string())
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        self.shared
            .change(&LinkChange { mtu: Some(mtu), ..Default::default() })
            .map_err(|e| e.to_string())?;
        self.shared.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), String> {
        self.shared.change(&LinkChange { mac: Some(mac), ..Default::default() }).map_err(|e| e.to_string())
    }

    fn own_device(&self) -> Option<u32> {
        let is_there = || match self.shared.link_at_home() {
            Some(_) => true,
            None => netlink::link_by_index(self.shared.device.ifindex)
                .is_ok_and(|link| link.name == self.shared.current_name()),
        };
        // One that is in another namespace goes when its descriptors are closed.
        (self.origin != Origin::Foreign && is_there()).then_some(self.shared.device.ifindex)
    }
}

impl Drop for TapPort {
    fn drop(&mut self) {
        // Queues may still hold descriptors; without this the interface would stay until they are closed.
        if !self.shared.outlives
            && let Some(ifindex) = self.own_device()
        {
            // Gone in the meantime is as good.
            let _ = netlink::delete_link(ifindex);
        }
    }
}

/// The result of one read: bytes including the header, and whether the rest is in the list of chunks.
#[derive(Clone, Copy)]
struct Read {
    len: usize,
    from_list: bool,
}

struct TapRx {
    shared: Arc<Shared>,
    idx: usize,
    stats: Arc<QueueStats>,
    port_no: PortNo,
    /// Reads that still use the list of chunks.
    large_reads: u32,
    tails: Tails,
    /// For the rest of an unexpectedly large frame. Most queues never touch it.
    scratch: Region<u8>,
    is_gone: bool,
    idle: IdleBackoff,
}

impl TapRx {
    fn new(
        shared: Arc<Shared>,
        idx: usize,
        stats: Arc<QueueStats>,
        port_no: PortNo,
        pool: &'static Pool,
    ) -> io::Result<TapRx> {
        Ok(TapRx {
            shared,
            idx,
            stats,
            port_no,
            large_reads: 0,
            tails: Tails::new(pool),
            scratch: Region::new(FRAME_MAX)?,
            is_gone: false,
            idle: IdleBackoff::new(),
        })
    }

    /// Reads one frame into the chunks of `head` and `self.tails`, or of `head` and the scratch buffer.
    fn read(&mut self, head: &mut Packet, cache: &mut PoolCache) -> Result<Read, i32> {
        let mut places = Places::new();
        places.push(first_place(head, HEADER_LEN));
        let from_list = self.large_reads > 0 && self.tails.fill(cache);
        if from_list {
            self.large_reads -= 1;
            self.tails.add_places(&mut places);
        } else {
            self.large_reads = 0;
            places.push(libc::iovec {
                iov_base: self.scratch.as_mut_ptr().cast(),
                iov_len: self.scratch.len(),
            });
        }
        let fd = self.shared.files[self.idx].as_raw_fd();
        // SAFETY: the places lie in chunks and a buffer that this queue owns, and outlive the call.
        let len = unsafe { libc::readv(fd, places.as_ptr(), places.len() as libc::c_int) };
        let len = usize::try_from(len).map_err(|_| last_errno())?;
        Ok(Read { len, from_list })
    }

    /// Makes a packet from the result of `read`. `None` (counted) if it is invalid, or the pool is exhausted.
    fn finish(&mut self, mut head: Packet, read: Read, cache: &mut PoolCache) -> Option<Packet> {
        let Read { len, from_list } = read;
        let first_len = len.min(head.len());
        head.set_len(first_len).expect("shorter than it was");
        let header = head.data().first_chunk::<HEADER_LEN>().copied();
        if header.is_none() || head.pull_front(HEADER_LEN).is_none() {
            self.stats.errors.add(1);
            cache.free(head);
            return None;
        }
        let rest = len - first_len;
        if rest > 0 {
            self.large_reads = LARGE_READS;
            let is_whole = if from_list {
                self.tails.append_to(&mut head, rest);
                true
            } else {
                self.append_scratch(&mut head, rest, cache)
            };
            if !is_whole {
                self.stats.dropped.add(1);
                cache.free(head);
                return None;
            }
        }
        head.in_port = self.port_no;
        if let Err(why) = virtio_net::apply(&header.expect("checked above"), &mut head) {
            self.stats.refused(why);
            cache.free(head);
            return None;
        }
        Some(head)
    }

    fn append_scratch(&self, head: &mut Packet, rest: usize, cache: &mut PoolCache) -> bool {
        let Some(tail) = cache.alloc_frame(&self.scratch[..rest]) else { return false };
        head.append(tail);
        true
    }
}

impl RxQueue for TapRx {
    fn rx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) -> RxOutcome {
        if self.is_gone {
            return RxOutcome::Gone;
        }
        if !self.idle.is_time() {
            return RxOutcome::Ok;
        }
        let before = batch.len();
        while cache.room(batch) > 0 {
            // Without a buffer the frames wait in the interface's own queue.
            let Some(mut head) = cache.alloc() else { break };
            match self.read(&mut head, cache) {
                Ok(read) => {
                    if let Some(packet) = self.finish(head, read, cache) {
                        self.stats.passed(1, packet.len() as u64);
                        batch.push(packet);
                    }
                }
                Err(errno) => {
                    cache.free(head);
                    match errno {
                        libc::EAGAIN | libc::EINTR => {}
                        // The interface is gone. (EBADFD: the file has no device any more.)
                        libc::EBADFD | libc::ENODEV | libc::EFAULT => {
                            self.is_gone = true;
                            self.shared.fail("the interface was deleted");
                            return RxOutcome::Gone;
                        }
                        _ => self.stats.errors.add(1),
                    }
                    break;
                }
            }
        }
        self.idle.saw(batch.len() > before);
        RxOutcome::Ok
    }

    fn wait_fd(&self) -> Option<RawFd> {
        Some(self.shared.files[self.idx].as_raw_fd())
    }

    fn arm(&mut self) -> bool {
        // The descriptor is readable as long as a frame waits, so nothing that came before is missed.
        self.idle.reset();
        true
    }

    fn disarm(&mut self) {
        self.idle.reset();
    }

    fn close(&mut self, cache: &mut PoolCache) {
        self.tails.close(cache);
    }
}

struct TapTx {
    shared: Arc<Shared>,
    idx: usize,
    stats: Arc<QueueStats>,
    next_ask_tsc: u64,
}

impl TapTx {
    /// The MTU, queried again if the last value is old: another program may have raised it.
    #[cold]
    fn current_mtu(&mut self) -> usize {
        let now = clock::tsc();
        if now >= self.next_ask_tsc {
            self.next_ask_tsc = now + clock::tsc_hz() / ASKS_PER_S;
            // A worker asks: never for what takes the kernel long.
            if let Some(link) = self.shared.link_at_home() {
                self.shared.mtu.store(link.mtu, Ordering::Relaxed);
            }
        }
        self.shared.mtu.load(Ordering::Relaxed) as usize
    }

    /// Writes one frame. `Err` is the error number.
    fn write(&self, packet: &mut Packet) -> Result<(), i32> {
        let header = virtio_net::header_of(packet);
        let fd = self.shared.files[self.idx].as_raw_fd();
        let written = if !packet.is_chained() && packet.push_front(HEADER_LEN).is_some() {
            packet.data_mut()[..HEADER_LEN].copy_from_slice(&header);
            let bytes = packet.data();
            // SAFETY: the packet's bytes outlive the call.
            let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
            let errno = last_errno();
            packet.pull_front(HEADER_LEN).expect("pushed above");
            (written, errno)
        } else {
            let mut places = arrayvec::ArrayVec::<libc::iovec, SEGMENTS_MAX>::new();
            for segment in std::iter::once(&header[..]).chain(packet.segments()) {
                let place =
                    libc::iovec { iov_base: segment.as_ptr().cast_mut().cast(), iov_len: segment.len() };
                places.try_push(place).map_err(|_| libc::EMSGSIZE)?;
            }
            // SAFETY: header and segments outlive the call, which only reads them.
            let written = unsafe { libc::writev(fd, places.as_ptr(), places.len() as libc::c_int) };
            (written, last_errno())
        };
        if written.0 < 0 { Err(written.1) } else { Ok(()) }
    }

    /// Writes one frame and counts the result. False if there is no memory for it at the moment.
    fn write_counted(&self, packet: &mut Packet) -> bool {
        match self.write(packet) {
            Ok(()) => self.stats.passed(1, packet.len() as u64),
            Err(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return false,
            Err(libc::EIO) => self.stats.to_down(),
            // Gone: it will never be received.
            Err(libc::EBADFD | libc::ENODEV) => self.stats.dropped.add(1),
            Err(_) => self.stats.errors.add(1),
        }
        true
    }

    /// Whether the frame is longer than the MTU.
    fn is_too_long(&mut self, packet: &Packet) -> bool {
        let mtu = self.shared.mtu.load(Ordering::Relaxed) as usize;
        is_longer_than(packet, mtu) && is_longer_than(packet, self.current_mtu())
    }

    /// Cuts up a packet that the kernel would not, and writes what it becomes. What finds no room is dropped.
    #[cold]
    fn write_in_segments(&mut self, packet: &Packet, cache: &mut PoolCache) {
        let mut frames = Vec::new();
        if !offload::segment_copied(packet, cache, &mut frames) {
            self.stats.dropped.add(1);
        }
        for mut frame in frames {
            if self.is_too_long(&frame) {
                self.stats.too_long();
            } else if !self.write_counted(&mut frame) {
                self.stats.dropped.add(1);
            }
            cache.free(frame);
        }
    }
}

impl TxQueue for TapTx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let mut sent = 0;
        for packet in batch.iter_mut() {
            if self.is_too_long(packet) {
                self.stats.too_long();
                sent += 1;
                continue;
            }
            if offload::is_segmentation_ours(packet) {
                self.write_in_segments(packet, cache);
            } else if !self.write_counted(packet) {
                // The caller keeps the rest.
                break;
            }
            sent += 1;
        }
        if sent == batch.len() {
            cache.free_all(batch);
        } else {
            for packet in batch.drain(..sent) {
                cache.free(packet);
            }
        }
    }
}
