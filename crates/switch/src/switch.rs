//! The switch as workers share it: published state, read without a lock, and the [`Pipeline`] on it.

use crate::by_hand;
use crate::changelog::ChangeLog;
use crate::control::FlowMod;
use crate::topology::{self, BridgeIdx, History, Topology};
use crate::trace::{Quiet, Sink};
use crate::translate::continuation::Rest;
use crate::translate::frozen::{self, Generations};
use crate::translate::{self, Snapshot, learn};
use base::hash::HashKey;
use base::rcu::{Domain, RcuCell, Reader};
use base::{OfPort, PortNo, Version};
use datapath::pipeline::FlowView;
use datapath::watch::{Marks, Sight, Sort, Watch};
use datapath::{Pipeline, PortView, Translation};
use flow::{Action, Depth, Key};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a translation wants written down.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
    /// A rule is to be added or modified, before the packet goes on.
    LearnRule(Box<LearnedRule>),
    /// In its place in translations by workers: the packet goes to the control thread, which learns the
    /// bridge's rule. No worker hands it on.
    ToLearn(BridgeIdx),
    /// A rule was learned once more, which the slot says that it has for that. Only in translations for the
    /// control thread: workers credit the slot.
    LearnedAgain(u32),
    /// The translation of this packet failed, and the operator is to be told.
    Failed(Box<Key>),
}

/// What `learn` makes of a packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LearnedRule {
    /// Of which bridge.
    pub bridge: BridgeIdx,
    /// The change.
    pub flow_mod: FlowMod,
    /// Most rules with its cookie in its table; 0 for no limit.
    pub limit: u32,
}

/// A packet with FIN or RST has passed a rule with `fin_timeout`: which rule, and to how many seconds, 0 for
/// as it is.
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
    pub(crate) by_hand: by_hand::Shared,
    /// Whether the next translation that fails is told ([`Effect::Failed`]).
    tells_failure: AtomicBool,
    /// VLAN tags that extraction looks behind.
    vlan_limit: AtomicU8,
    /// What workers read of each port that they or the control side have asked about. They do not lock it.
    ports: Mutex<BTreeMap<PortNo, Arc<PortView>>>,
}

impl Switch {
    pub(crate) fn new(domain: Arc<Domain>, secret: HashKey) -> Switch {
        let history = vec![(Version(0), Arc::new(Topology::default()))];
        Switch {
            history: RcuCell::new(domain.clone(), history),
            log: Arc::new(ChangeLog::new(domain.clone(), secret)),
            frozen: RcuCell::new(domain.clone(), Generations::default()),
            by_hand: by_hand::Shared::new(domain.clone()),
            tells_failure: AtomicBool::new(true),
            vlan_limit: AtomicU8::new(2),
            ports: Mutex::default(),
            version: AtomicU64::new(1),
            domain,
            secret,
        }
    }

    /// Has the next translation that fails be told by [`Effect::Failed`]. One is, and then none until this is
    /// called again: packets that fail shall fill neither the ring of effects nor a log.
    pub fn ask_for_failure(&self) {
        self.tells_failure.store(true, Ordering::Relaxed);
    }

    /// From the next burst on rules match on so many VLAN tags, 1 or 2 (2 unless said); behind them is
    /// payload. A flow matches the Ethernet type always, so that none is taken for one of frames that were
    /// read differently.
    pub fn set_vlan_limit(&self, tags: u8) {
        self.vlan_limit.store(tags, Ordering::Relaxed);
    }

    /// Whether a translation that failed is the one to be told.
    #[cold]
    pub(crate) fn takes_failure(&self) -> bool {
        self.tells_failure.load(Ordering::Relaxed) && self.tells_failure.swap(false, Ordering::Relaxed)
    }

    /// Whether a packet can go on where the state of this number says.
    pub fn is_frozen(&self, recirc_id: u32, reader: &Reader) -> bool {
        self.frozen.read(reader).find(recirc_id).is_some()
    }

    /// The domain whose readers may ask.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn set_port(&self, port: PortNo, of_port: Option<OfPort>, depth: Depth) {
        self.port_view(port).set(of_port.unwrap_or(OfPort::NONE), depth);
    }

    /// Bridges and ports as they are at a version.
    pub fn topology<'g>(&'g self, version: Version, reader: &'g Reader) -> &'g Topology {
        topology::at(self.history.read(reader), version)
    }

    /// Translates actions that come with their packet (a packet-out). `key` holds the packet and the input
    /// port's numbers.
    pub fn translate_packet_out(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        actions: &[Action],
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) {
        let at = Snapshot { switch: self, version, reader, learned: None, by_worker: false };
        translate::packet_out(at, key, bridge, actions, out, &mut Quiet);
    }

    /// Goes on with a packet that waited for a controller. `key` holds the packet as it came back, the input
    /// port's numbers, and the pipeline's fields as the controller wants them. `false`: there is no such
    /// bridge.
    pub fn translate_resumed(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        rest: &Rest,
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) -> bool {
        let at = Snapshot { switch: self, version, reader, learned: None, by_worker: false };
        frozen::resume(at, bridge, rest, key, out)
    }

    /// Translates in place of a worker a packet that something is learned from. The effects must be applied
    /// before the packet goes on. `learned` counts a table's rules by cookie.
    pub fn translate_for_control(
        &self,
        version: Version,
        key: &Key,
        reader: &Reader,
        learned: &dyn Fn(BridgeIdx, u8, u64) -> u32,
        out: &mut Translation<Effect>,
    ) {
        let at = Snapshot { switch: self, version, reader, learned: Some(learned), by_worker: false };
        translate::packet(at, key, out, &mut Quiet);
    }

    pub(crate) fn translate_watched<S: Sink>(
        &self,
        version: Version,
        key: &Key,
        reader: &Reader,
        out: &mut Translation<Effect>,
        sink: &mut S,
    ) {
        translate::packet(
            Snapshot { switch: self, version, reader, learned: None, by_worker: false },
            key,
            out,
            sink,
        );
    }

    /// As [`Self::translate_packet_out`], watched.
    pub(crate) fn translate_packet_out_watched<S: Sink>(
        &self,
        version: Version,
        key: &Key,
        (bridge, actions): (BridgeIdx, &[Action]),
        reader: &Reader,
        out: &mut Translation<Effect>,
        sink: &mut S,
    ) {
        let at = Snapshot { switch: self, version, reader, learned: None, by_worker: false };
        translate::packet_out(at, key, bridge, actions, out, sink);
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
        translate::packet_in_bridge(
            Snapshot { switch: self, version, reader, learned: None, by_worker: false },
            key,
            bridge,
            out,
            sink,
        );
    }
}

impl Pipeline for Switch {
    type Effect = Effect;

    #[inline]
    fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    fn port_view(&self, port: PortNo) -> Arc<PortView> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.entry(port).or_default().clone()
    }

    #[inline]
    fn vlan_limit(&self) -> u8 {
        self.vlan_limit.load(Ordering::Relaxed)
    }

    fn translate(&self, version: Version, key: &Key, reader: &Reader, out: &mut Translation<Effect>) {
        self.by_hand.translate(key, reader, out, |out| {
            let at = Snapshot { switch: self, version, reader, learned: None, by_worker: true };
            translate::packet(at, key, out, &mut Quiet);
        });
        if !out.effects.is_empty() {
            learn::hand_over(key, out);
        }
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
