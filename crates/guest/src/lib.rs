//! A guest without a virtual machine: the driver's and the front end's side of vhost-user in a process.
//!
//! For tests and benchmarks: it needs neither QEMU nor DPDK. It shares a piece of memory with the switch,
//! sets up its rings over the protocol, and from then on each [`QueuePair`] receives, sends, or loops packets
//! back (the buffer that a packet came in goes out again, as a guest's forwarder does).
//!
//! Threads: [`Guest`] holds the connection; queue pairs may be used by one thread each.
//!
//! Source: virtio 1.2; QEMU's docs/interop/vhost-user.rst.

#![allow(unsafe_code)]

mod front_end;
mod memory;
mod ring;
mod side;
#[cfg(test)]
mod tests;

pub use ring::RingLayout;

use arrayvec::ArrayVec;
use front_end::FrontEnd;
use memory::GuestRam;
use ports::PortError;
use ports::vhost_user::features::device as d;
use ring::{DriverRing, Part, ring_bytes};
use side::{Side, poll_for};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Bytes of the header in front of each frame.
const HEADER: usize = 12;
/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// Bytes before a buffer: so many that a frame begins on a cache line, as with DPDK's driver.
const LEAD: usize = 64 - HEADER;
/// Bytes from one buffer to the next.
const STRIDE: usize = BUFFER + 64;
/// Buffers of one frame at most: 64 KB and its headers take 33.
const FRAME_BUFFERS_MAX: usize = 48;

/// The buffers of a frame: their offsets, and the bytes in each.
type Buffers = ArrayVec<(usize, u32), FRAME_BUFFERS_MAX>;

/// The kind of guest.
#[derive(Clone, Debug)]
pub struct GuestConfig {
    /// Queue pairs, at least one.
    pub pairs: usize,
    /// Descriptors of each ring, a power of two.
    pub ring_size: u16,
    /// Descriptors of each transmit ring, if different: a power of two.
    pub tx_ring_size: Option<u16>,
    /// The layout of its rings.
    pub layout: RingLayout,
    /// Further features to ask for, where the switch has them.
    pub features: u64,
    /// Set when the guest shall not wait any longer for a switch that does not answer.
    pub ending: Arc<AtomicBool>,
}

impl Default for GuestConfig {
    fn default() -> Self {
        GuestConfig {
            pairs: 1,
            ring_size: 256,
            tx_ring_size: None,
            layout: RingLayout::Split,
            features: d::MRG_RXBUF,
            ending: Arc::default(),
        }
    }
}

impl GuestConfig {
    /// Descriptors of the receive and of the transmit ring of each pair.
    fn ring_sizes(&self) -> [u16; 2] {
        [self.ring_size, self.tx_ring_size.unwrap_or(self.ring_size)]
    }
}

/// A guest that is connected to a port.
pub struct Guest {
    front_end: FrontEnd,
    pairs: Vec<QueuePair>,
}

impl Guest {
    /// Connects to the socket of a `dpdkvhostuser` port.
    pub fn connect(path: &Path, config: &GuestConfig) -> Result<Guest, PortError> {
        Guest::set_up(FrontEnd::connect(path, config.ending.clone())?, config)
    }

    /// Listens on `path` for a `dpdkvhostuserclient` port, and waits until it connects or the time is over.
    /// An existing socket without a listener is replaced; one with a listener is an error.
    pub fn listen(path: &Path, config: &GuestConfig, time: Duration) -> Result<Guest, PortError> {
        Guest::set_up(FrontEnd::listen(path, time, config.ending.clone())?, config)
    }

    fn set_up(mut front_end: FrontEnd, config: &GuestConfig) -> Result<Guest, PortError> {
        if config.pairs == 0 || !config.ring_sizes().iter().all(|size| size.is_power_of_two()) {
            return Err(PortError::Unsupported(
                "a guest has queue pairs, and rings of a power of two".into(),
            ));
        }
        let layout = if config.layout == RingLayout::Packed { d::RING_PACKED } else { 0 };
        let features = front_end.negotiate(config.features | layout, config.pairs)?;
        if layout & !features != 0 {
            return Err(PortError::Unsupported("the switch does not know packed rings".into()));
        }
        let (ram, pairs) = queue_pairs(config, features)?;
        front_end.share(&ram)?;
        let base = if config.layout == RingLayout::Packed { 1 << 15 } else { 0 };
        Guest::start(front_end, config, &ram, pairs, &vec![base; 2 * config.pairs])
    }

    /// Fills the rings and hands them over, each with the place where it begins or goes on.
    fn start(
        mut front_end: FrontEnd,
        config: &GuestConfig,
        ram: &GuestRam,
        mut pairs: Vec<QueuePair>,
        bases: &[u32],
    ) -> Result<Guest, PortError> {
        for pair in &mut pairs {
            pair.rx.ring.want_calls(false);
            pair.tx.ring.want_calls(false);
            pair.fill();
        }
        let sides = pairs.iter().flat_map(|pair| [&pair.rx, &pair.tx]);
        let sizes = config.ring_sizes().into_iter().cycle();
        for (index, ((side, size), base)) in sides.zip(sizes).zip(bases).enumerate() {
            front_end.start_ring(index as u32, size, *base, ram, side)?;
        }
        for ring in 0..2 * config.pairs as u32 {
            front_end.enable_ring(ring, true)?;
        }
        Ok(Guest { front_end, pairs })
    }

    /// The queue pairs, once, to give to threads. They stop working when the guest is dropped.
    pub fn take_pairs(&mut self) -> Vec<QueuePair> {
        std::mem::take(&mut self.pairs)
    }

    /// Enables or disables a queue pair, as `ethtool -L` in a guest does.
    pub fn enable_pair(&mut self, pair: usize, enable: bool) -> Result<(), PortError> {
        self.front_end.enable_ring(2 * pair as u32, enable)?;
        self.front_end.enable_ring(2 * pair as u32 + 1, enable)
    }

    /// Asks the switch to announce an address, as after a migration.
    pub fn announce(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        self.front_end.announce(mac)
    }

    /// Stops the device as QEMU 7.2 does when a machine is paused or migrated: its status is set to 0, then
    /// each of `rings` is asked where it stopped. Returns their answers: the next descriptor to take; in the
    /// packed layout with its wrap counter in bit 15, and in the upper half the same of the next to return.
    pub fn stop(&mut self, rings: u32) -> Result<Vec<u32>, PortError> {
        self.front_end.reset_status()?;
        (0..rings).map(|ring| self.front_end.stop_ring(ring)).collect()
    }

    /// Whether the switch still holds its end of the connection.
    pub fn is_connected(&self) -> bool {
        self.front_end.is_connected()
    }

    /// Waits until the switch has executed all messages.
    pub fn synchronise(&mut self) -> Result<(), PortError> {
        self.front_end.synchronise()
    }
}

/// A guest's memory, and its queue pairs there, with all buffers free.
fn queue_pairs(config: &GuestConfig, features: u64) -> Result<(Arc<GuestRam>, Vec<QueuePair>), PortError> {
    let [rx_size, tx_size] = config.ring_sizes();
    let (rx_bytes, tx_bytes) = (ring_bytes(rx_size), ring_bytes(tx_size));
    let buffers_at = config.pairs * (rx_bytes + tx_bytes);
    let buffers_each = usize::from(rx_size) + usize::from(tx_size);
    let ram = Arc::new(GuestRam::new(buffers_at + config.pairs * buffers_each * STRIDE)?);
    let has_event_idx = features & d::EVENT_IDX != 0;
    let mut pairs = Vec::new();
    for pair in 0..config.pairs {
        let ring = |size, offset| DriverRing::new(ram.clone(), config.layout, size, offset, has_event_idx);
        let rx_at = pair * (rx_bytes + tx_bytes);
        let first = buffers_at + pair * buffers_each * STRIDE + LEAD;
        pairs.push(QueuePair {
            ram: ram.clone(),
            rx: Side::new(ring(rx_size, rx_at), rx_size)?,
            tx: Side::new(ring(tx_size, rx_at + rx_bytes), tx_size)?,
            free: (0..buffers_each).map(|n| first + n * STRIDE).collect(),
            is_mergeable: features & d::MRG_RXBUF != 0,
            frame: Vec::new(),
            stats: GuestStats::default(),
        });
    }
    Ok((ram, pairs))
}

/// Counters of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GuestStats {
    /// Frames that came.
    pub rx_packets: u64,
    /// Frames that were offered to the switch.
    pub tx_packets: u64,
    /// Times that the switch was notified, because it had asked for that.
    pub kicks: u64,
}

/// One queue pair of a guest.
pub struct QueuePair {
    ram: Arc<GuestRam>,
    rx: Side,
    tx: Side,
    /// Buffers that are on offer nowhere.
    free: Vec<usize>,
    is_mergeable: bool,
    frame: Vec<u8>,
    stats: GuestStats,
}

impl QueuePair {
    /// Its counters.
    pub fn stats(&self) -> GuestStats {
        self.stats
    }

    /// Offers the switch a buffer for each free descriptor of the receive ring.
    fn fill(&mut self) {
        // The buffers that remain are as many as the transmit ring can hold.
        while self.rx.ring.room() > 0
            && let Some(offset) = self.free.pop()
        {
            let part = Part { offset, len: BUFFER as u32, writable: true };
            let number = self.rx.ring.offer(&[part]).expect("there is room");
            self.rx.offered[usize::from(number)].push(offset);
        }
        self.stats.kicks += u64::from(self.rx.show());
    }

    /// Takes back what the switch has fetched.
    fn reap(&mut self) {
        while let Some((number, _)) = self.tx.ring.take_used() {
            self.free.append(&mut self.tx.offered[usize::from(number)]);
        }
    }

    /// Whether the switch has yet to take frames that were offered.
    pub fn is_sending(&mut self) -> bool {
        self.reap();
        self.tx.ring.has_offered()
    }

    /// The buffers and lengths of the next received frame, header included.
    fn next_received(&mut self) -> Option<Buffers> {
        let (number, len) = self.rx.ring.take_used()?;
        let first = self.rx.offered[usize::from(number)].pop().expect("one buffer for each number");
        let mut buffers = Buffers::from_iter([(first, len)]);
        if self.is_mergeable {
            let header = self.ram.buffer(first, HEADER);
            let count = u16::from_le_bytes([header[10], header[11]]);
            for _ in 1..count {
                // The switch publishes all buffers of a frame at once.
                let (number, len) = self.rx.ring.take_used().expect("all buffers of a frame come together");
                let next = self.rx.offered[usize::from(number)].pop().expect("one buffer for each number");
                buffers.push((next, len));
            }
        }
        self.stats.rx_packets += 1;
        Some(buffers)
    }

    /// Receives up to `max` frames; `see` gets each, without its header.
    pub fn receive(&mut self, max: usize, mut see: impl FnMut(&[u8])) -> usize {
        self.receive_with_headers(max, |_, frame| see(frame))
    }

    /// The same; `see` gets each frame's virtio-net header, and the frame.
    pub fn receive_with_headers(&mut self, max: usize, mut see: impl FnMut(&[u8], &[u8])) -> usize {
        let mut count = 0;
        while count < max
            && let Some(buffers) = self.next_received()
        {
            let mut frame = std::mem::take(&mut self.frame);
            frame.clear();
            for (offset, len) in &buffers {
                frame.extend_from_slice(self.ram.buffer(*offset, *len as usize));
            }
            let (header, rest) = frame.split_at(HEADER.min(frame.len()));
            see(header, rest);
            self.frame = frame;
            self.free.extend(buffers.iter().map(|(offset, _)| *offset));
            count += 1;
        }
        if count > 0 {
            self.fill();
        }
        count
    }

    /// Receives up to `max` frames without looking at them; how many.
    pub fn discard(&mut self, max: usize) -> usize {
        let mut count = 0;
        while count < max
            && let Some(buffers) = self.next_received()
        {
            self.free.extend(buffers.iter().map(|(offset, _)| *offset));
            count += 1;
        }
        if count > 0 {
            self.fill();
        }
        count
    }

    /// Offers a frame to the switch. False where the ring is full.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.send_with_header(&[0; HEADER], frame)
    }

    /// The same with a virtio-net header of the caller's.
    pub fn send_with_header(&mut self, header: &[u8; HEADER], frame: &[u8]) -> bool {
        self.reap();
        let is_offered = self.offer(header, frame);
        self.stats.kicks += u64::from(self.tx.show());
        is_offered
    }

    /// Offers frames until the ring is full, and shows them to the switch together; how many.
    pub fn send_all<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> usize {
        self.reap();
        let mut count = 0;
        for frame in frames {
            if !self.offer(&[0; HEADER], frame) {
                break;
            }
            count += 1;
        }
        self.stats.kicks += u64::from(self.tx.show());
        count
    }

    /// Offers a frame, not yet shown. False where the ring is full.
    fn offer(&mut self, header: &[u8; HEADER], frame: &[u8]) -> bool {
        let bytes = HEADER + frame.len();
        let needed = bytes.div_ceil(BUFFER);
        if needed > FRAME_BUFFERS_MAX || self.tx.ring.room() < needed || self.free.len() < needed {
            return false;
        }
        let mut parts: ArrayVec<Part, FRAME_BUFFERS_MAX> = ArrayVec::new();
        let mut rest = frame;
        for n in 0..needed {
            let offset = self.free.pop().expect("counted above");
            let start = if n == 0 { HEADER } else { 0 };
            let (now, later) = rest.split_at(rest.len().min(BUFFER - start));
            let buffer = self.ram.buffer_mut(offset, start + now.len());
            buffer[..start].copy_from_slice(&header[..start]);
            buffer[start..].copy_from_slice(now);
            parts.push(Part { offset, len: (start + now.len()) as u32, writable: false });
            rest = later;
        }
        let number = self.tx.ring.offer(&parts).expect("there is room");
        self.tx.offered[usize::from(number)].extend(parts.iter().map(|part| part.offset));
        self.stats.tx_packets += 1;
        true
    }

    /// Sends back up to `max` frames in the buffers that they arrived in; returns how many. Frames for which
    /// the transmit ring has no room wait in the receive ring.
    pub fn loop_back(&mut self, max: usize) -> usize {
        self.reap();
        let mut count = 0;
        // A frame takes few descriptors; if that many are free, there is room for it.
        while count < max
            && self.tx.ring.room() >= FRAME_BUFFERS_MAX
            && let Some(buffers) = self.next_received()
        {
            let part = |(offset, len): &(usize, u32)| Part { offset: *offset, len: *len, writable: false };
            let parts: ArrayVec<Part, FRAME_BUFFERS_MAX> = buffers.iter().map(part).collect();
            // The header stays as it came: the frame is complete, or the switch has said so there. Its number
            // of buffers means nothing in this direction, and DPDK's driver leaves it, too.
            let number = self.tx.ring.offer(&parts).expect("there is room");
            self.tx.offered[usize::from(number)].extend(buffers.iter().map(|(offset, _)| *offset));
            self.stats.tx_packets += 1;
            count += 1;
        }
        if count > 0 {
            self.stats.kicks += u64::from(self.tx.show());
        }
        self.fill();
        count
    }

    /// Sleeps until a frame arrives or the time is over; true if one arrived.
    pub fn wait(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        self.rx.ring.want_calls(true);
        // The switch may call without reason: a ring that it has just been given, for example.
        while !self.rx.ring.has_used() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            poll_for(&self.rx.call, left);
            // Nothing to read means that it was cleared already.
            let _ = rustix::io::read(&self.rx.call, &mut [0u8; 8]);
        }
        self.rx.ring.want_calls(false);
        self.rx.ring.has_used()
    }
}
