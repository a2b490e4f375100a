//! State shared by ports without a device: administrative state, MTU, counters, and the events that wake
//! their queues.
//!
//! Threads: the control thread writes, workers read; each queue has its own event, so that waking one worker
//! does not consume another's.

use crate::wait::Event;
use crate::{PortError, PortSpec, QueueStats, offload, stats};
use packet::{Batch, LinkState, Packet, PoolCache, PortStats, PortStatus, QueueCounts};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of an Ethernet header.
const ETHERNET_HEADER: usize = 14;

/// The state of a port without a device, shared with its queues.
pub(crate) struct VirtualLink {
    mac: Mutex<[u8; 6]>,
    up: AtomicBool,
    /// What the port will replay is not in memory yet, or could not be loaded.
    is_loading: AtomicBool,
    mtu: AtomicU32,
    pub error: Mutex<Option<String>>,
    pub rx: Vec<RxSide>,
    tx: Mutex<Vec<Arc<QueueStats>>>,
}

/// One receive queue's shared half.
pub(crate) struct RxSide {
    pub stats: QueueStats,
    pub event: Event,
}

impl VirtualLink {
    /// With `rx_queues` queues, up, with the MTU of the specification or `mtu_default`.
    pub(crate) fn new(
        spec: &PortSpec,
        rx_queues: usize,
        mtu_default: u32,
    ) -> Result<Arc<VirtualLink>, PortError> {
        let rx = (0..rx_queues)
            .map(|_| Ok(RxSide { stats: QueueStats::default(), event: Event::new()? }))
            .collect::<Result<_, PortError>>()?;
        if let Some(mtu) = spec.mtu {
            check_mtu(mtu).map_err(|why| PortError::BadOption {
                option: "mtu_request".into(),
                value: mtu.to_string(),
                why,
            })?;
        }
        Ok(Arc::new(VirtualLink {
            mac: Mutex::new(spec.mac.unwrap_or_else(|| local_mac(&spec.name))),
            up: AtomicBool::new(true),
            is_loading: AtomicBool::new(false),
            mtu: AtomicU32::new(spec.mtu.unwrap_or(mtu_default)),
            error: Mutex::default(),
            rx,
            tx: Mutex::default(),
        }))
    }

    #[inline(always)]
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn set_up(&self, up: bool) {
        self.up.store(up, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn set_loading(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Ordering::Release);
        self.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        for side in &self.rx {
            side.event.signal();
        }
    }

    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<(), String> {
        check_mtu(mtu)?;
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn set_mac(&self, mac: [u8; 6]) {
        *self.mac.lock().expect("no panic while held") = mac;
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    pub(crate) fn add_tx_queue(&self) -> Arc<QueueStats> {
        let stats = Arc::new(QueueStats::default());
        self.tx.lock().expect("no panic while held").push(stats.clone());
        stats
    }

    pub(crate) fn stats(&self) -> PortStats {
        let tx = self.tx.lock().expect("no panic while held");
        stats::sum(self.rx.iter().map(|side| &side.stats), tx.iter().map(|q| &**q))
    }

    /// The frames of each receive queue, and of `tx_queues` that the workers' own are dealt out to.
    pub(crate) fn queue_counts(&self, tx_queues: usize) -> Vec<QueueCounts> {
        let of = |q: &QueueStats| (q.packets.get(), q.bytes.get());
        let mut pairs = vec![QueueCounts::default(); self.rx.len().max(tx_queues)];
        for (pair, side) in pairs.iter_mut().zip(&self.rx) {
            (pair.rx.packets, pair.rx.bytes) = of(&side.stats);
        }
        for (n, queue) in self.tx.lock().expect("no panic while held").iter().enumerate() {
            let (packets, bytes) = of(queue);
            let tx = &mut pairs[n % tx_queues].tx;
            (tx.packets, tx.bytes) = (tx.packets + packets, tx.bytes + bytes);
        }
        pairs
    }

    pub(crate) fn status(&self, details: Vec<(String, String)>) -> PortStatus {
        let up = self.is_up();
        let is_loading = self.is_loading.load(Ordering::Acquire);
        PortStatus {
            link: if up && !is_loading { LinkState::Up } else { LinkState::Down },
            admin_up: up,
            mac: *self.mac.lock().expect("no panic while held"),
            mtu: self.mtu(),
            speed_bps: 0,
            ifindex: 0,
            details,
            error: self.error.lock().expect("no panic while held").clone(),
        }
    }
}

/// What ports do whose device is a [`VirtualLink`].
macro_rules! port_on_link {
    ($($link:ident).+) => {
        fn take_rx_queues(&mut self) -> Vec<Box<dyn packet::RxQueue>> {
            std::mem::take(&mut self.rx_queues)
        }

        fn stats(&self) -> packet::PortStats {
            self.$($link).+.stats()
        }

        fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
            self.$($link).+.set_up(up);
            Ok(())
        }

        fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
            self.$($link).+.set_mtu(mtu)
        }

        fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), String> {
            self.$($link).+.set_mac(mac);
            Ok(())
        }
    };
}
pub(crate) use port_on_link;

pub(crate) fn check_mtu(mtu: u32) -> Result<(), String> {
    match mtu {
        68..=65535 => Ok(()),
        _ => Err(format!("MTU {mtu} is outside 68 to 65535")),
    }
}

/// Frees and counts what cannot be sent: everything while the port is down, and frames longer than its MTU.
/// What remains in `batch` may go out; returns its bytes.
#[inline]
pub(crate) fn refuse_unsendable(
    link: &VirtualLink,
    stats: &QueueStats,
    cache: &mut PoolCache,
    batch: &mut Batch,
) -> u64 {
    let (mut bytes, mut longest) = (0, 0);
    for packet in batch.iter() {
        bytes += packet.len();
        longest = longest.max(packet.len());
    }
    if longest > link.mtu() as usize + ETHERNET_HEADER || !link.is_up() {
        refuse_each(link, stats, cache, batch);
        bytes = batch.iter().map(Packet::len).sum();
    }
    bytes as u64
}

#[cold]
fn refuse_each(link: &VirtualLink, stats: &QueueStats, cache: &mut PoolCache, batch: &mut Batch) {
    for packet in std::mem::take(batch) {
        if let Some(packet) = refuse(link, stats, cache, packet) {
            batch.push(packet);
        }
    }
}

fn refuse(link: &VirtualLink, stats: &QueueStats, cache: &mut PoolCache, packet: Packet) -> Option<Packet> {
    if !link.is_up() {
        stats.dropped.add(1);
    } else if is_longer_than(&packet, link.mtu() as usize) {
        stats.too_long();
    } else {
        return Some(packet);
    }
    cache.free(packet);
    None
}

/// Moves packets that may be sent from `batch` to `frames`, in their wire form: segmented, with finished
/// checksums. For ports that show frames to an observer. Other packets are freed and counted.
pub(crate) fn to_wire_frames(
    link: &VirtualLink,
    stats: &QueueStats,
    cache: &mut PoolCache,
    batch: &mut Batch,
    frames: &mut Vec<Packet>,
) {
    let mut cut = Vec::new();
    for packet in batch.drain(..) {
        if !offload::is_segmentation_pending(&packet) {
            cut.push(packet);
        } else if let Err(packet) = offload::segment(packet, cache, &mut cut) {
            stats.dropped.add(1);
            cache.free(packet);
        }
        for mut frame in cut.drain(..) {
            offload::complete_checksum(&mut frame);
            frames.extend(refuse(link, stats, cache, frame));
        }
    }
}

/// Whether the frame, or each of its segments if segmentation is pending, exceeds the MTU. One VLAN tag does
/// not count, as with the kernel's devices.
pub(crate) fn is_longer_than(packet: &Packet, mtu: usize) -> bool {
    let max = mtu + ETHERNET_HEADER;
    packet.len() > max && packet.gso_size == 0 && offload::is_longer_than(packet, max)
}

/// A locally administered address that depends on the port's name alone.
pub(crate) fn local_mac(name: &str) -> [u8; 6] {
    // FNV-1a: the address must be the same in each run, it need not be hard to guess.
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let b = hash.to_be_bytes();
    [0x02, b[3], b[4], b[5], b[6], b[7]]
}
