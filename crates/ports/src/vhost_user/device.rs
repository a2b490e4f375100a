//! The device that a guest's monitor configures: what each message of the protocol does.
//!
//! The device owns what was negotiated, and passes rings that are complete (features, memory, size,
//! addresses, started, enabled) to [`Shared`], where workers find them. Before anything about a ring changes,
//! it is taken away, which waits for a worker in the middle of a burst, and no longer; it is returned when it
//! is complete again.
//!
//! Threads: only the port's protocol thread.
//!
//! Source: QEMU's docs/interop/vhost-user.rst.

use super::chain::{Direction, Fault, KeptHeaders, RingParts};
use super::descriptor::Given;
use super::features::{PROTOCOL_OFFERED, device as d, protocol as p};
use super::memory::{DirtyLog, Extent, GuestMemory, Mapped, REGIONS_MAX};
use super::message::{MessageError, Region, Request, VringAddr};
use super::packed::Packed;
use super::ring::{Ring, SIZE_MAX};
use super::shared::{QUEUE_PAIRS_MAX, RINGS_MAX, Shared};
use super::split::Split;
use crate::PortError;
use crate::wait::refused;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why the connection to a guest is given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceError {
    /// Bytes that are no message.
    Message(MessageError),
    /// A message that makes no sense here.
    Protocol(&'static str),
    /// Memory that cannot be had.
    Memory(String),
    /// A ring that makes no sense.
    Ring(Fault),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::Message(e) => e.fmt(f),
            DeviceError::Protocol(what) => f.write_str(what),
            DeviceError::Memory(what) => f.write_str(what),
            DeviceError::Ring(fault) => f.write_str(fault.0),
        }
    }
}

impl From<MessageError> for DeviceError {
    fn from(e: MessageError) -> Self {
        DeviceError::Message(e)
    }
}

impl From<PortError> for DeviceError {
    fn from(e: PortError) -> Self {
        DeviceError::Memory(e.to_string())
    }
}

impl From<Fault> for DeviceError {
    fn from(fault: Fault) -> Self {
        DeviceError::Ring(fault)
    }
}

/// The answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// Nothing, unless the front end asked for an acknowledgement.
    Done,
    /// It could not be done; sent only if an acknowledgement was requested.
    Refused,
    /// This payload.
    Payload(Vec<u8>),
}

/// The configuration of one ring.
#[derive(Default)]
struct RingConfig {
    num: u32,
    addr: Option<VringAddr>,
    base: u32,
    /// A kick descriptor has arrived, or the message that there is none.
    started: bool,
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    enabled: bool,
    /// The guest has disabled it: what it sends there is discarded, the last of it when it is enabled again.
    /// Not so before it is enabled for the first time: a guest whose switch has been restarted has frames in
    /// rings that work, and that its monitor enables a moment later.
    is_discarded: bool,
    /// It was at work on this connection, so where it stopped is known to both sides.
    has_run: bool,
}

/// Regions that are remembered once they are removed: as many as there can be.
const REMOVED_MAX: usize = 64;

/// See the module documentation.
pub(super) struct Device {
    shared: Arc<Shared>,
    /// The features that this port offers.
    offered: u64,
    features: u64,
    protocol_features: u64,
    memory: Option<Arc<GuestMemory>>,
    /// Regions that were removed and have not come back, the last [`REMOVED_MAX`] of them. QEMU changes
    /// memory while the rings work by removing all regions that change, and adding them again: until then,
    /// what is not there may come.
    removed: Vec<Region>,
    extent: Extent,
    log: Option<Arc<DirtyLog>>,
    rings: Vec<RingConfig>,
    status: u64,
    /// Kept as long as the connection lives; we have nothing to ask through it.
    _requests: Option<OwnedFd>,
}

impl Device {
    pub(super) fn new(shared: Arc<Shared>, offered: u64) -> Device {
        Device {
            shared,
            offered,
            features: 0,
            protocol_features: 0,
            memory: None,
            removed: Vec::new(),
            extent: Extent::default(),
            log: None,
            rings: (0..RINGS_MAX).map(|_| RingConfig::default()).collect(),
            status: 0,
            _requests: None,
        }
    }

    /// Whether acknowledgements may be requested.
    pub(super) fn acknowledges(&self) -> bool {
        self.protocol_features & p::REPLY_ACK != 0
    }

    /// Executes a message. The connection must be closed after an error.
    pub(super) fn handle(&mut self, request: Request, mut fds: Vec<Given>) -> Result<Answer, DeviceError> {
        let u64_answer = |value: u64| Ok(Answer::Payload(value.to_le_bytes().to_vec()));
        match request {
            Request::GetFeatures => return u64_answer(self.offered),
            Request::SetFeatures(features) => self.set_features(features)?,
            Request::GetProtocolFeatures => return u64_answer(PROTOCOL_OFFERED),
            Request::SetProtocolFeatures(features) => {
                if features & !PROTOCOL_OFFERED != 0 {
                    return Err(DeviceError::Protocol("protocol features that were not offered"));
                }
                self.protocol_features = features;
            }
            Request::SetOwner => {}
            // The protocol's advice: once it meant more, to some.
            Request::ResetOwner => (0..RINGS_MAX as u32).try_for_each(|ring| self.enable(ring, false))?,
            Request::ResetDevice => self.reset(),
            Request::GetQueueNum => return u64_answer(QUEUE_PAIRS_MAX as u64),
            Request::SetMemTable(regions) => self.set_mem_table(&regions, fds)?,
            Request::GetMaxMemSlots => return u64_answer(REGIONS_MAX as u64),
            Request::AddMemReg(region) => self.add_region(region, only(&mut fds)?)?,
            Request::RemMemReg(region) => self.remove_region(region)?,
            Request::SetLogBase { len, offset } => {
                let log = DirtyLog::new(&memory(only(&mut fds)?)?, len, offset, &self.extent)?;
                self.log = Some(Arc::new(log));
                self.rebuild_all()?;
                // The front end waits for this one whether it asks for an acknowledgement or not.
                if self.protocol_features & p::LOG_SHMFD != 0 {
                    return Ok(Answer::Payload(Vec::new()));
                }
            }
            Request::SetLogFd => {}
            Request::SetVringNum { index, num } => {
                if num == 0 || num > SIZE_MAX {
                    return Err(DeviceError::Protocol("a ring of no possible size"));
                }
                self.change_ring(index, |ring| ring.num = num)?;
                self.shared.facts().ring_sizes.insert(index as usize, num);
            }
            Request::SetVringAddr(addr) => self.change_ring(addr.index, |ring| ring.addr = Some(addr))?,
            Request::SetVringBase { index, base } => self.change_ring(index, |ring| ring.base = base)?,
            Request::GetVringBase { index } => return self.stop_ring(index),
            Request::SetVringKick { index, .. } => self.set_kick(index, fds.pop())?,
            Request::SetVringCall { index, .. } => self.set_call(index, fds.pop())?,
            Request::SetVringErr { index, .. } => {
                self.ring(index)?;
            }
            Request::SetVringEnable { index, enable } => self.enable(index, enable)?,
            Request::SendRarp(mac) => {
                if !self.shared.announce(mac) {
                    return Ok(Answer::Refused);
                }
            }
            Request::NetSetMtu(mtu) => {
                if !(68..=65535).contains(&mtu) {
                    return Ok(Answer::Refused);
                }
                self.shared.set_guest_mtu(mtu as u32);
            }
            Request::SetBackendReqFd => self._requests = Some(socket(only(&mut fds)?)?),
            Request::SetStatus(status) => {
                self.status = status & 0xff;
                if self.status == 0 {
                    self.stop();
                }
            }
            Request::GetStatus => return u64_answer(self.status),
            Request::Unknown(_) => return Ok(Answer::Refused),
        }
        Ok(Answer::Done)
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingConfig, DeviceError> {
        self.rings.get_mut(index as usize).ok_or(DeviceError::Protocol("a ring beyond the last"))
    }

    fn set_features(&mut self, wanted: u64) -> Result<(), DeviceError> {
        if wanted & !self.offered != 0 {
            return Err(DeviceError::Protocol("features that were not offered"));
        }
        self.take_all();
        self.features = wanted;
        if wanted & d::PROTOCOL_FEATURES == 0 {
            // Without them there is no message that enables a ring.
            self.rings.iter_mut().for_each(|ring| ring.enabled = true);
        }
        self.shared.set_features(wanted);
        self.rebuild_all()
    }

    fn set_mem_table(&mut self, regions: &[Region], fds: Vec<Given>) -> Result<(), DeviceError> {
        self.take_all();
        self.memory = None;
        self.removed.clear();
        let map =
            |(region, fd): (&Region, Given)| Ok(Arc::new(Mapped::new(*region, &memory(fd)?, &self.extent)?));
        let mapped = regions.iter().zip(fds).map(map).collect::<Result<Vec<_>, DeviceError>>()?;
        self.memory = Some(Arc::new(GuestMemory::new(mapped, self.extent.clone())?));
        // Rings keep their addresses, which are the front end's own: only their location has changed.
        self.rebuild_all()
    }

    /// Adds a region. An existing one is kept: QEMU before 8 adds (and removes) each of them again for every
    /// pair of queues.
    fn add_region(&mut self, region: Region, fd: Given) -> Result<(), DeviceError> {
        let mut regions = self.memory.as_ref().map_or_else(Vec::new, |memory| memory.regions().to_vec());
        let fd = memory(fd)?;
        for mapped in &regions {
            if mapped.is(region, &fd)? {
                return Ok(());
            }
        }
        regions.push(Arc::new(Mapped::new(region, &fd, &self.extent)?));
        let end = |of: &Region| of.guest.saturating_add(of.len);
        self.removed.retain(|gone| gone.guest >= end(&region) || region.guest >= end(gone));
        self.replace_memory(regions)
    }

    /// Removes a region. Removing one that does not exist, as QEMU before 8 does for its second pair of
    /// queues, is no error.
    fn remove_region(&mut self, region: Region) -> Result<(), DeviceError> {
        let mut regions = self.memory.as_ref().map_or_else(Vec::new, |memory| memory.regions().to_vec());
        let is_it = |m: &Arc<Mapped>| {
            (m.region.guest, m.region.user, m.region.len) == (region.guest, region.user, region.len)
        };
        let Some(at) = regions.iter().position(is_it) else { return Ok(()) };
        regions.remove(at);
        if self.removed.len() == REMOVED_MAX {
            self.removed.remove(0);
        }
        self.removed.push(region);
        self.replace_memory(regions)
    }

    fn replace_memory(&mut self, regions: Vec<Arc<Mapped>>) -> Result<(), DeviceError> {
        self.take_all();
        self.memory = Some(Arc::new(GuestMemory::new(regions, self.extent.clone())?));
        self.rebuild_all()
    }

    /// Changes the configuration of a ring. An active ring is taken away meanwhile.
    fn change_ring(&mut self, index: u32, change: impl FnOnce(&mut RingConfig)) -> Result<(), DeviceError> {
        self.ring(index)?;
        self.take(index as usize);
        change(self.ring(index)?);
        self.rebuild(index as usize)
    }

    fn enable(&mut self, index: u32, enable: bool) -> Result<(), DeviceError> {
        self.change_ring(index, |ring| {
            ring.is_discarded |= ring.enabled && !enable && !index.is_multiple_of(2);
            ring.enabled = enable;
        })
    }

    fn set_kick(&mut self, index: u32, fd: Option<Given>) -> Result<(), DeviceError> {
        let fd = notifier(fd)?;
        self.change_ring(index, |ring| {
            ring.started = true;
            ring.kick = fd;
        })
    }

    fn set_call(&mut self, index: u32, fd: Option<Given>) -> Result<(), DeviceError> {
        let fd = notifier(fd)?;
        self.ring(index)?.call = fd.clone();
        self.shared.set_call(index as usize, fd);
        Ok(())
    }

    fn stop_ring(&mut self, index: u32) -> Result<Answer, DeviceError> {
        self.ring(index)?;
        self.take(index as usize);
        // A guest that stops one pair of several is still there.
        if !self.shared.is_running() {
            self.shared.device_stopped();
        }
        let ring = self.ring(index)?;
        ring.started = false;
        ring.kick = None;
        let base = ring.base;
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(&base.to_le_bytes());
        Ok(Answer::Payload(payload))
    }

    /// Takes a ring away from the workers and records where it stopped.
    fn take(&mut self, index: usize) {
        if let Some(ring) = self.shared.take_ring(index) {
            self.rings[index].base = ring.base();
            self.rings[index].has_run = true;
        }
    }

    fn take_all(&mut self) {
        for index in 0..RINGS_MAX {
            self.take(index);
        }
    }

    /// Stops when the port is removed, which waits for this thread.
    fn rebuild_all(&mut self) -> Result<(), DeviceError> {
        let is_closing = |device: &Device| device.shared.is_closing.load(Ordering::Acquire);
        (0..RINGS_MAX).try_for_each(|index| if is_closing(self) { Ok(()) } else { self.rebuild(index) })
    }

    /// Gives a ring to the workers if all is known about it.
    fn rebuild(&mut self, index: usize) -> Result<(), DeviceError> {
        self.take(index);
        let config = &self.rings[index];
        let (Some(memory), Some(addr)) = (&self.memory, &config.addr) else { return Ok(()) };
        if !config.started || !(config.enabled || config.is_discarded) || config.num == 0 {
            return Ok(());
        }
        let is_modern = self.features & (d::VERSION_1 | d::MRG_RXBUF) != 0;
        let parts = RingParts {
            memory: memory.clone(),
            lacks_memory: !self.removed.is_empty(),
            log: self.log.clone().filter(|_| self.features & d::LOG_ALL != 0),
            direction: if index.is_multiple_of(2) { Direction::ToGuest } else { Direction::FromGuest },
            is_mergeable: self.features & d::MRG_RXBUF != 0,
            header_len: if is_modern { 12 } else { 10 },
            counts: self.shared.counts[index].clone(),
            kept_headers: KeptHeaders::default(),
        };
        let size = config.num as u16;
        let made = if self.features & d::RING_PACKED != 0 {
            Packed::new(memory, addr, size, config.base, config.has_run)
                .map(|packed| Ring::packed(packed, usize::from(size), parts))
        } else {
            if !config.num.is_power_of_two() {
                return Err(DeviceError::Protocol("a split ring whose size is not a power of two"));
            }
            let has_event_idx = self.features & d::EVENT_IDX != 0;
            Split::new(memory, addr, size, has_event_idx)
                .map(|split| Ring::split(split, usize::from(size), parts))
        };
        let mut ring = match made {
            Err(fault) if !self.removed.is_empty() && fault == Fault::RING_OUTSIDE => {
                self.shared.lacks_memory(fault);
                return Ok(());
            }
            made => made?,
        };
        if config.is_discarded {
            self.shared.rx_stats[index / 2].dropped.add(ring.discard()?);
        }
        let is_enabled = config.enabled;
        ring.is_disabled = !is_enabled;
        // The memory that workers look at constantly.
        let looked_at = if self.features & d::RING_PACKED != 0 { addr.desc } else { addr.avail };
        let ring_at = memory.at_user(looked_at, 1, 1).map(|at| at.as_ptr() as usize);
        self.shared.give_ring(index, ring, config.kick.clone(), config.call.clone())?;
        self.shared.facts().ring_at = ring_at;
        self.rings[index].is_discarded = !is_enabled;
        Ok(())
    }

    /// Handles a status of 0. QEMU 7.2 also sends it when a machine is paused or migrated, and only then asks
    /// where each ring stopped: so no ring forgets its position, and the log keeps what was written.
    fn stop(&mut self) {
        self.take_all();
        self.shared.device_stopped();
        for ring in &mut self.rings {
            ring.started = false;
            ring.kick = None;
        }
    }

    fn reset(&mut self) {
        self.take_all();
        self.shared.device_stopped();
        for ring in &mut self.rings {
            *ring = RingConfig::default();
        }
        self.features = 0;
        self.status = 0;
        self.log = None;
        self.shared.set_features(0);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.take_all();
        self.shared.device_stopped();
        self.shared.set_features(0);
    }
}

fn only(fds: &mut Vec<Given>) -> Result<Given, DeviceError> {
    fds.pop().ok_or(DeviceError::Protocol("a message without its file descriptor"))
}

/// Guest memory that workers touch. They must not depend on a process that serves a file.
fn memory(fd: Given) -> Result<OwnedFd, DeviceError> {
    fd.memory().ok_or(DeviceError::Protocol(
        "guest memory on a file system that may wait: only memfd, tmpfs and hugetlbfs",
    ))
}

fn socket(fd: Given) -> Result<OwnedFd, DeviceError> {
    fd.unix_socket().ok_or(DeviceError::Protocol("a channel for requests that is not a Unix socket"))
}

/// A descriptor for notifications in either direction. It must be an eventfd: a worker notifies through it,
/// and anything else might block that worker. It is made non-blocking for the case that a write is the only
/// way (see `doorbell`).
fn notifier(fd: Option<Given>) -> Result<Option<Arc<OwnedFd>>, DeviceError> {
    let Some(fd) = fd else { return Ok(None) };
    let fd = fd.eventfd().ok_or(DeviceError::Protocol("a notifier that is not an eventfd"))?;
    let made_so = fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
    made_so.map_err(refused("set up a guest's notifier"))?;
    Ok(Some(Arc::new(fd)))
}
