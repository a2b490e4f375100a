//! The switch as workers share it: published state, read without a lock, and the [`Pipeline`] on it.

use crate::changelog::ChangeLog;
use crate::topology::{self, BridgeIdx, History, Topology};
use crate::trace::{Quiet, Sink};
use crate::translate::frozen::{self, Generations};
use crate::translate::{self, Snapshot};
use base::hash::HashKey;
use base::rcu::{Domain, RcuCell, Reader};
use base::{OfPort, PortNo, Version};
use datapath::pipeline::FlowView;
use datapath::watch::{Marks, Sight, Sort, Watch};
use datapath::{Pipeline, Translation};
use flow::{Action, Depth, Key};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a translation wants written down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// An address was seen at a port where it was not known to be.
    Learn {
        /// Of which bridge.
        bridge: BridgeIdx,
        /// In which VLAN.
        vlan: u16,
        /// The address, in the low 48 bits.
        mac: u64,
        /// Where.
        port: PortNo,
    },
    /// A rule's timeouts are to be lowered.
    FinTimeout(FinTimeout),
}

/// A packet with FIN or RST has passed a rule with `fin_timeout`: which rule, and to how many seconds, 0 for as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct FinTimeout {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub idx: u32,
    pub serial: u64,
    pub idle_s: u16,
    pub hard_s: u16,
}

/// Ports have 16 bits in the key.
pub(crate) const PORTS_MAX: usize = 1 << 16;

/// The shared half of the switch.
pub struct Switch {
    pub(crate) domain: Arc<Domain>,
    pub(crate) secret: HashKey,
    pub(crate) version: AtomicU64,
    pub(crate) history: RcuCell<History>,
    pub(crate) log: Arc<ChangeLog>,
    pub(crate) frozen: RcuCell<Generations>,
    /// Per port of the datapath: its OpenFlow number, and above that the depth of extraction.
    pub(crate) ports: Box<[AtomicU32]>,
}

/// A port that is in no bridge.
const NO_PORT: u32 = 0xffff;

impl Switch {
    pub(crate) fn new(domain: Arc<Domain>, secret: HashKey) -> Switch {
        let history = vec![(Version(0), Arc::new(Topology::default()))];
        Switch {
            history: RcuCell::new(domain.clone(), history),
            log: Arc::new(ChangeLog::new(domain.clone(), secret)),
            frozen: RcuCell::new(domain.clone(), Generations::default()),
            ports: (0..PORTS_MAX).map(|_| AtomicU32::new(NO_PORT)).collect(),
            version: AtomicU64::new(1),
            domain,
            secret,
        }
    }

    /// The domain whose readers may ask.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn set_port(&self, port: PortNo, of_port: Option<OfPort>, depth: Depth) {
        if let Some(cell) = self.ports.get(port.0 as usize) {
            let number = of_port.map_or(NO_PORT, |p| u32::from(p.0));
            cell.store((depth as u32) << 16 | number, Ordering::Release);
        }
    }

    /// Bridges and ports as they are at a version.
    pub fn topology<'g>(&'g self, version: Version, reader: &'g Reader) -> &'g Topology {
        topology::at(self.history.read(reader), version)
    }

    /// Translates actions that come with their packet (a packet-out). `key` holds the packet and the input port's numbers.
    pub fn translate_packet_out(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        actions: &[Action],
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) {
        let at = Snapshot { switch: self, version, reader };
        translate::packet_out(at, key, bridge, actions, out, &mut Quiet);
    }

    /// Goes on with a packet that waited for a controller. `key` holds the packet as it came back, the input port's
    /// numbers, and the pipeline's fields as the controller wants them. `false`: what was left to do is forgotten.
    pub fn translate_resumed(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        continuation: u32,
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) -> bool {
        if !frozen::is_known(self.frozen.read(reader), continuation, bridge) {
            return false;
        }
        let at = Snapshot { switch: self, version, reader };
        frozen::resume(at, continuation, key, out, &mut Quiet);
        true
    }

    pub(crate) fn translate_watched<S: Sink>(
        &self,
        version: Version,
        key: &Key,
        reader: &Reader,
        out: &mut Translation<Effect>,
        sink: &mut S,
    ) {
        translate::packet(Snapshot { switch: self, version, reader }, key, out, sink);
    }

    /// As [`Self::translate_watched`], of a packet from a port that the bridge does not have.
    pub(crate) fn translate_in_bridge<S: Sink>(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        reader: &Reader,
        out: &mut Translation<Effect>,
        sink: &mut S,
    ) {
        translate::packet_in_bridge(Snapshot { switch: self, version, reader }, key, bridge, out, sink);
    }
}

impl Pipeline for Switch {
    type Effect = Effect;

    #[inline]
    fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    #[inline]
    fn depth(&self, port: PortNo) -> Depth {
        let Some(cell) = self.ports.get(port.0 as usize) else { return Depth::Everything };
        Depth::ALL[(cell.load(Ordering::Acquire) >> 16) as usize % Depth::ALL.len()]
    }

    #[inline]
    fn of_port(&self, port: PortNo) -> u16 {
        self.ports.get(port.0 as usize).map_or(NO_PORT as u16, |cell| cell.load(Ordering::Acquire) as u16)
    }

    fn translate(&self, version: Version, key: &Key, reader: &Reader, out: &mut Translation<Effect>) {
        self.translate_watched(version, key, reader, out, &mut Quiet);
    }

    #[inline]
    fn touched(&self, flow: FlowView<'_>, since: Version, _now: Version, reader: &Reader) -> bool {
        self.log.touched(&flow, since, reader)
    }

    #[inline]
    fn sight<'g>(&'g self, sort: Sort<'_>, watch: &mut Watch, now: Version, reader: &'g Reader) -> Sight<'g> {
        self.log.sight(sort, watch, now, reader)
    }

    fn marks(&self, watch: &Watch, flow: FlowView<'_>, reader: &Reader) -> Marks {
        self.log.marks(watch, &flow, reader)
    }
}
