//! One AF_XDP socket: created, bound, and closed with every chunk accounted for.
//!
//! The packet pool is the UMEM. The first socket of a kind (zero-copy or not, with need_wakeup or not)
//! registers it, and later ones, on other queues and other devices, share that registration, so an address
//! received at one is valid for sending at another. Each has its own fill and completion rings.
//!
//! A socket has two sides, receive and transmit, which may belong to different threads. A closed side parks
//! its rings here. When the port as well lets go of the socket, the rings are unmapped and the descriptor is
//! closed, which the kernel may take long for: the port's end may wait for that, but no worker, which serves
//! other ports. Only when the kernel can no longer touch them do the chunks that it still held return to the
//! pool.
//!
//! When is that? In copy mode, once close returns: the kernel has waited for active receivers, and has copied
//! what it transmits. A zero-copy driver lets go later, on a work queue; the proof is that the queue can be
//! bound again ([`is_released`]). A chunk that is not proven free stays lent: a leak shows in the accounts,
//! but a device that writes into someone else's packet would not.
//!
//! Threads: opening and closing lock; the hot paths of [`super::queue`] do not come here.

use super::lent::Lent;
use super::ring::{Consumer, Producer, RingLayout};
use super::sys;
use crate::PortError;
use crate::spec::Blocker;
use packet::{Pool, PoolConfig};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Size of `struct xsk_tx_metadata`, which precedes a frame that requests a checksum.
pub(super) const TX_METADATA_BYTES: usize = 24;

/// XDP_MAX_TX_SKB_BUDGET: how many frames one system call sends in copy mode (default 32).
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// How long the kernel may take to release a queue whose socket is closed.
const RELEASE_GRACE: Duration = Duration::from_millis(1500);

/// How long a closing side waits for frames that the device still sends.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(50);

/// How a socket exchanges frames with its device. Sockets of one kind share a UMEM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BindKind {
    pub(super) zero_copy: bool,
    pub(super) need_wakeup: bool,
    pub(super) multi_buffer: bool,
}

/// The wanted configuration of a socket.
#[derive(Clone, Copy)]
pub(super) struct SocketSpec {
    pub(super) pool: &'static Pool,
    pub(super) ifindex: u32,
    pub(super) queue_id: u32,
    pub(super) rx_slots: u32,
    pub(super) tx_slots: u32,
}

/// The rings of the receiving side and what is in them.
pub(super) struct RxRings {
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) fill: Producer<u64>,
    pub(super) lent: Lent,
}

/// The rings of the transmitting side and what is in them.
pub(super) struct TxRings {
    pub(super) tx: Producer<libc::xdp_desc>,
    pub(super) completion: Consumer<u64>,
    pub(super) lent: Lent,
}

/// A bound socket.
pub(super) struct Socket {
    fd: RawFd,
    ifindex: u32,
    queue_id: u32,
    pub(super) pool: &'static Pool,
    pub(super) kind: BindKind,
    /// Whether it shares the UMEM that an earlier socket registered.
    pub(super) shares_umem: bool,
    /// Whether a frame may be preceded by a request for its checksum.
    pub(super) tx_metadata: bool,
    gone: AtomicBool,
    state: Mutex<State>,
}

struct State {
    owner: Option<OwnedFd>,
    rx: Option<RxRings>,
    tx: Option<TxRings>,
    /// The kernel's counters when last read.
    statistics: libc::xdp_statistics,
}

/// The sockets that later ones may share a UMEM with.
static UMEMS: Mutex<Vec<Weak<Socket>>> = Mutex::new(Vec::new());

/// Makes and binds a socket of the given kind.
///
/// Errors: among others [`PortError::Busy`] if another socket has the queue, or the kernel has not released
/// it yet.
pub(super) fn open(spec: &SocketSpec, kind: BindKind) -> Result<(Arc<Socket>, RxRings, TxRings), PortError> {
    // Held to the end: of two sockets that open at once, one registers and the other shares.
    let mut umems = UMEMS.lock().expect("no panic while held");
    umems.retain(|known| known.strong_count() > 0);
    let alike = umems.iter().filter_map(Weak::upgrade).filter(|s| s.is_umem_for(spec.pool, kind));
    for anchor in alike.collect::<Vec<_>>() {
        let fresh = Unbound::new(spec)?;
        let state = anchor.state.lock().expect("no panic while held");
        let Some(anchor_fd) = state.owner.as_ref() else { continue };
        match sys::bind(fresh.fd.as_raw_fd(), &address(spec, libc::XDP_SHARED_UMEM, Some(anchor_fd))) {
            Ok(()) => {
                drop(state);
                return Ok(fresh.into_socket(
                    spec,
                    kind,
                    Umem { shared: true, tx_metadata: anchor.tx_metadata },
                    &mut umems,
                ));
            }
            // The anchor's own device is gone, or is on its way: another may serve, or a registration of our
            // own.
            Err(libc::EBADF | libc::EINVAL | libc::ENXIO) => continue,
            Err(errno) => return Err(bind_error(spec, errno)),
        }
    }
    let fresh = Unbound::new(spec)?;
    let tx_metadata = register_umem(&fresh.fd, spec.pool)?;
    let mut flags = if kind.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
    if kind.need_wakeup {
        flags |= libc::XDP_USE_NEED_WAKEUP;
    }
    if kind.multi_buffer {
        flags |= libc::XDP_USE_SG;
    }
    sys::bind(fresh.fd.as_raw_fd(), &address(spec, flags, None)).map_err(|errno| bind_error(spec, errno))?;
    Ok(fresh.into_socket(spec, kind, Umem { shared: false, tx_metadata }, &mut umems))
}

fn bind_error(spec: &SocketSpec, errno: i32) -> PortError {
    let error =
        PortError::Os { call: format!("bind an AF_XDP socket to receive queue {}", spec.queue_id), errno };
    match errno {
        libc::EBUSY => {
            let by = Blocker { ifindex: spec.ifindex, queue_id: Some(spec.queue_id) };
            PortError::Busy { by, why: error.to_string() }
        }
        _ => error,
    }
}

fn address(spec: &SocketSpec, flags: u16, shared: Option<&OwnedFd>) -> libc::sockaddr_xdp {
    libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: spec.ifindex,
        sxdp_queue_id: spec.queue_id,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    }
}

/// Registers the pool's memory. Returns whether frames may carry metadata.
fn register_umem(fd: &OwnedFd, pool: &'static Pool) -> Result<bool, PortError> {
    let registration = |flags, tx_metadata_len| libc::xdp_umem_reg {
        addr: pool.base().as_ptr() as u64,
        len: pool.len_bytes() as u64,
        chunk_size: pool.config().chunk_bytes as u32,
        // The kernel's own 256 bytes in front of the frame are the pool's headroom.
        headroom: 0,
        flags,
        tx_metadata_len,
    };
    let call = "register the packet pool as AF_XDP memory (UMEM)";
    let set = |value| sys::set_option(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &value, call);
    match set(registration(libc::XDP_UMEM_TX_METADATA_LEN, TX_METADATA_BYTES as u32)) {
        Ok(()) => Ok(true),
        // Kernels before 6.8 know neither the flag nor the field.
        Err(error) if error.errno() == Some(libc::EINVAL) => set(registration(0, 0)).map(|()| false),
        Err(error) => Err(error),
    }
}

/// The source of a socket's UMEM.
struct Umem {
    shared: bool,
    tx_metadata: bool,
}

/// A socket with its rings made and mapped, before it is bound.
struct Unbound {
    fd: OwnedFd,
    rx: RxRings,
    tx: TxRings,
}

impl Unbound {
    fn new(spec: &SocketSpec) -> Result<Unbound, PortError> {
        let fd = sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0, "make an AF_XDP socket")?;
        let raw = fd.as_raw_fd();
        let rings = [
            (libc::XDP_RX_RING, spec.rx_slots),
            (libc::XDP_TX_RING, spec.tx_slots),
            (libc::XDP_UMEM_FILL_RING, spec.rx_slots),
            (libc::XDP_UMEM_COMPLETION_RING, spec.tx_slots),
        ];
        for (ring, slots) in rings {
            sys::set_option(raw, libc::SOL_XDP, ring, &slots, "size a ring of an AF_XDP socket")?;
        }
        // How much one system call may send, and how much memory it may use for that: at most a full ring.
        // Older kernels refuse the former, and send 32 frames per call.
        let budget = spec.tx_slots.min(1024);
        let _ = sys::set_option(raw, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget, "");
        let send_bytes = spec.tx_slots as i32 * 2048;
        let _ = sys::set_option(raw, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &send_bytes, "");
        let call = "ask for the ring offsets of an AF_XDP socket";
        // SAFETY: the structure is integers alone.
        let offsets =
            unsafe { sys::get_option::<libc::xdp_mmap_offsets>(raw, libc::XDP_MMAP_OFFSETS, call) }?;
        let layout = |offsets, page_offset, slots| RingLayout { offsets, page_offset, slots };
        let chunks = spec.pool.config().chunks;
        let rx = RxRings {
            rx: Consumer::map(&fd, &layout(offsets.rx, libc::XDP_PGOFF_RX_RING as u64, spec.rx_slots))?,
            fill: Producer::map(&fd, &layout(offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING, spec.rx_slots))?,
            lent: Lent::new(chunks),
        };
        let completion = layout(offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, spec.tx_slots);
        let tx = TxRings {
            tx: Producer::map(&fd, &layout(offsets.tx, libc::XDP_PGOFF_TX_RING as u64, spec.tx_slots))?,
            completion: Consumer::map(&fd, &completion)?,
            lent: Lent::new(chunks),
        };
        Ok(Unbound { fd, rx, tx })
    }

    fn into_socket(
        self,
        spec: &SocketSpec,
        kind: BindKind,
        umem: Umem,
        umems: &mut Vec<Weak<Socket>>,
    ) -> (Arc<Socket>, RxRings, TxRings) {
        let socket = Arc::new(Socket {
            fd: self.fd.as_raw_fd(),
            ifindex: spec.ifindex,
            queue_id: spec.queue_id,
            pool: spec.pool,
            kind,
            shares_umem: umem.shared,
            tx_metadata: umem.tx_metadata,
            gone: AtomicBool::new(false),
            state: Mutex::new(State {
                owner: Some(self.fd),
                rx: None,
                tx: None,
                statistics: no_statistics(),
            }),
        });
        umems.push(Arc::downgrade(&socket));
        (socket, self.rx, self.tx)
    }
}

fn no_statistics() -> libc::xdp_statistics {
    libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    }
}

impl Socket {
    fn is_umem_for(&self, pool: &'static Pool, kind: BindKind) -> bool {
        std::ptr::eq(self.pool, pool) && self.kind == kind && !self.is_gone()
    }

    /// The descriptor, good as long as this is.
    #[inline(always)]
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Whether the device is known to be gone.
    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Notes that the device is gone.
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// The kernel's counters for this socket.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        self.state.lock().expect("no panic while held").ask_statistics()
    }

    /// Parks the receiving side's rings until the socket ends.
    pub(super) fn park_rx(&self, rings: RxRings) {
        self.state.lock().expect("no panic while held").rx = Some(rings);
    }

    /// Parks the transmit side's rings, likewise.
    pub(super) fn park_tx(&self, rings: TxRings) {
        self.state.lock().expect("no panic while held").tx = Some(rings);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let state = self.state.get_mut().expect("no panic while held");
        // The mappings hold the socket as well: they go first, then the descriptor. When that is closed, the
        // kernel unbinds the socket and waits for active receivers.
        let lent = [state.rx.take().map(|rings| rings.lent), state.tx.take().map(|rings| rings.lent)];
        drop(state.owner.take());
        let mut lent: Vec<Lent> = lent.into_iter().flatten().filter(|lent| lent.count() > 0).collect();
        let holds = self.kind.zero_copy && !lent.is_empty();
        if holds && !wait_until_released(self.ifindex, self.queue_id) {
            return;
        }
        let mut cache = self.pool.cache();
        for idx in lent.iter_mut().flat_map(Lent::drain) {
            cache.give_chunk(idx);
        }
    }
}

/// Waits for a zero-copy driver to release a queue. False if it did not in ample time.
fn wait_until_released(ifindex: u32, queue_id: u32) -> bool {
    let deadline = Instant::now() + RELEASE_GRACE;
    while !is_released(ifindex, queue_id) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Whether no socket's memory is attached to the queue: that is so if another socket, of two pages, can be
/// bound to it, or if the device is gone. An error that proves neither counts as no.
pub(super) fn is_released(ifindex: u32, queue_id: u32) -> bool {
    static PROBE: Mutex<Option<&'static Pool>> = Mutex::new(None);
    let mut probe = PROBE.lock().expect("no panic while held");
    let pool = match *probe {
        Some(pool) => pool,
        None => {
            let config = PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false };
            let Ok(pool) = Pool::new(config) else { return false };
            *probe.insert(pool)
        }
    };
    let spec = SocketSpec { pool, ifindex, queue_id, rx_slots: 32, tx_slots: 32 };
    let bound = Unbound::new(&spec).and_then(|socket| {
        register_umem(&socket.fd, pool)?;
        sys::bind(socket.fd.as_raw_fd(), &address(&spec, libc::XDP_COPY, None))
            .map_err(|e| bind_error(&spec, e))
    });
    match bound {
        Ok(()) => true,
        Err(error) => matches!(error.errno(), Some(libc::ENODEV | libc::ENXIO)),
    }
}

impl State {
    fn ask_statistics(&mut self) -> libc::xdp_statistics {
        if let Some(fd) = &self.owner {
            let call = "ask for the statistics of an AF_XDP socket";
            // SAFETY: the structure is integers alone.
            if let Ok(now) = unsafe { sys::get_option(fd.as_raw_fd(), libc::XDP_STATISTICS, call) } {
                self.statistics = now;
            }
        }
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::busy::{GRACE, while_busy};

    #[test]
    fn a_queue_counts_as_released_once_the_kernel_has_let_go_of_it() {
        let ifindex = crate::af_xdp::program::tests::veth();
        assert!(wait_until_released(ifindex, 0));
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let spec = SocketSpec { pool, ifindex, queue_id: 0, rx_slots: 64, tx_slots: 64 };
        let kind = BindKind { zero_copy: false, need_wakeup: true, multi_buffer: true };
        let (socket, rx, tx) = while_busy(GRACE, |_| open(&spec, kind)).unwrap();
        assert!(!is_released(ifindex, 0));
        socket.park_rx(rx);
        socket.park_tx(tx);
        assert!(!is_released(ifindex, 0), "a worker that closes its sides does not wait for the kernel");
        drop(socket);
        assert!(wait_until_released(ifindex, 0));
        assert!(is_released(ifindex + 1000, 0), "a device that is gone holds nothing");
    }

    #[test]
    fn sockets_of_one_pool_share_its_registration_across_queues_and_devices() {
        let first = crate::af_xdp::program::tests::veth();
        let second = crate::af_xdp::device::Device::find("veth0").unwrap().ifindex;
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let kind = BindKind { zero_copy: false, need_wakeup: true, multi_buffer: true };
        let open = |ifindex| {
            let spec = SocketSpec { pool, ifindex, queue_id: 0, rx_slots: 64, tx_slots: 64 };
            while_busy(GRACE, |_| super::open(&spec, kind)).unwrap()
        };
        let (one, rx, tx) = open(first);
        let (two, ..) = open(second);
        assert_eq!((one.shares_umem, two.shares_umem), (false, true));
        // The registration outlives the socket that made it, and any that has it will do.
        one.park_rx(rx);
        one.park_tx(tx);
        drop(one);
        let (three, ..) = open(first);
        assert!(three.shares_umem);
        assert!(!two.is_umem_for(pool, BindKind { need_wakeup: false, ..kind }));
    }
}
