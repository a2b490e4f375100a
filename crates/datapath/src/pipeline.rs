//! The contract between the fast path and the pipeline: one question, "what happens to a packet with this
//! key, at this version of the state?", and one check, "has anything that this flow depends on changed
//! since?".
//!
//! A translation is a pure function of (version, key). Besides actions it yields the mask of the bits that
//! decided, so that the worker may cache it for every packet that agrees on those bits; the slots whose
//! counters each such packet adds to; the tables that it visited, so that a later change can be checked
//! against the flow; and effects as data.
//!
//! Versions: the control thread prepares a change invisibly, logs it, and publishes it by incrementing the
//! version. A worker reads the version once per burst, before it reads the depth of extraction; every lookup
//! in that burst uses that version.

use crate::action::DpAction;
use crate::input::PortView;
use crate::watch::{Marks, Sight, Sort, Visit, Watch};
use base::{OfPort, PortNo, Version, rcu};
use flow::{Depth, FieldId, Key, Mask};
use std::sync::Arc;

/// One word of the key in which earlier actions had set the bits `mask` to `value` before a lookup. The
/// flow's mask includes such bits, with this value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// Bits that were set.
    pub mask: u64,
    /// Their value (zero outside `mask`).
    pub value: u64,
    /// Block of the key.
    pub block: u8,
    /// Word of the block.
    pub word: u8,
}

/// A flow as the change log sees it.
#[derive(Clone, Copy)]
pub struct FlowView<'a> {
    /// The key of any packet of the flow. Only bits under `mask` mean anything.
    pub key: &'a Key,
    /// The flow's mask.
    pub mask: &'a Mask,
    /// Tables it visited.
    pub visits: &'a [Visit],
    /// What had been rewritten before those visits.
    pub rewrites: &'a [Rewrite],
}

/// The result of a translation. Reused from packet to packet: its vectors keep their capacity, so a warm miss
/// does not allocate.
#[derive(Clone, Debug)]
pub struct Translation<E> {
    /// What to do.
    pub actions: Vec<DpAction>,
    /// Which bits of the key decided. Always includes the input port (both numbers), recirculation id,
    /// Ethernet type, and the fragment bits of IP.
    pub mask: Mask,
    /// Counter slots (of rules, tables, patch ports, MAC entries) that every packet of the flow adds to.
    pub credits: Vec<u32>,
    /// Tables looked into, in order.
    pub visits: Vec<Visit>,
    /// Rewritten words, which `visits` refer to.
    pub rewrites: Vec<Rewrite>,
    /// Effects of the translation itself (learn this MAC). If one of them is refused, the flow is not cached.
    pub effects: Vec<E>,
    /// How many steps it took, of some 10 to 50 ns each.
    pub steps: u32,
    /// The result depends on more than the key (or must be computed for each packet), so it must not be
    /// cached.
    pub uncacheable: bool,
    /// Input to the translator: the packet's length, if known. A result that depends on it is not cached.
    pub packet_len: Option<usize>,
    /// Taken by the translator, and put back.
    pub scratch: Option<Box<Scratch>>,
}

/// Keys and masks for a pipeline to work on. They still hold data of the previous packet: each is a kilobyte,
/// too expensive to create for every packet.
#[derive(Clone, Default, Debug)]
pub struct Scratch {
    /// Two keys.
    pub keys: [Key; 2],
    /// Two masks.
    pub masks: [Mask; 2],
}

impl<E> Default for Translation<E> {
    fn default() -> Self {
        Translation {
            actions: Vec::new(),
            mask: Mask::wild(),
            credits: Vec::new(),
            visits: Vec::new(),
            rewrites: Vec::new(),
            effects: Vec::new(),
            steps: 0,
            uncacheable: false,
            packet_len: None,
            scratch: None,
        }
    }
}

impl<E> Translation<E> {
    /// Clears it but keeps the vectors' capacity.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.mask.0.clear();
        self.credits.clear();
        self.visits.clear();
        self.rewrites.clear();
        self.effects.clear();
        self.steps = 0;
        self.uncacheable = false;
        self.packet_len = None;
    }

    /// How long it took, in steps, with what it has listed.
    pub(crate) fn steps_and_lists(&self) -> u32 {
        self.steps + (self.visits.len() + self.rewrites.len() / 8) as u32
    }

    /// Prepends actions that set what the packet of this key carries besides its bytes. For packets from the
    /// control thread, which workers would take for new Ethernet frames.
    pub fn say_metadata(&mut self, key: &Key) {
        for field in [FieldId::PktMark, FieldId::DpHash, FieldId::PacketType] {
            let value = key.get(field);
            if value != 0 {
                self.actions.insert(0, DpAction::Set { field, value, mask: field.ones() });
            }
        }
    }
}

/// Decides what happens to packets. Shared by all workers; see the module documentation for the order of
/// events.
pub trait Pipeline: Send + Sync + 'static {
    /// Effects of a translation, sent to the control thread through a bounded ring.
    type Effect: Send + Clone + std::fmt::Debug;

    /// The newest version. Acquire: everything that the version includes is visible after this call.
    fn version(&self) -> Version;

    /// What workers are told about a port as long as they read its packets. For the control thread, because
    /// it may lock.
    fn port_view(&self, port: PortNo) -> Arc<PortView>;

    /// The OpenFlow number of a port in its bridge, and how deep extraction must read its packets, at any
    /// version up to the one read before.
    #[inline(always)]
    fn ingress(&self, view: &PortView) -> (OfPort, Depth) {
        view.get()
    }

    /// How many VLAN tags extraction looks past, 1 or 2; the type of a frame with more is the TPID of the
    /// next tag.
    #[inline(always)]
    fn vlan_limit(&self) -> u8 {
        2
    }

    /// Translates. `out` is empty at the call. `reader` guards the structures that the lookup traverses.
    /// `key` was extracted at least as deep as [`Self::ingress`] says. If the mask turns out to include
    /// deeper fields, the worker asks again with a deeper key.
    fn translate(
        &self,
        version: Version,
        key: &Key,
        reader: &rcu::Reader,
        out: &mut Translation<Self::Effect>,
    );

    /// Prefetches what [`Self::translate`] will probably need for keys of one input port and round.
    fn prefetch<'k>(
        &self,
        _version: Version,
        _keys: impl Iterator<Item = &'k Key> + Clone,
        _reader: &rcu::Reader,
    ) {
    }

    /// Whether a change in `(since, now]` may affect the flow, so that it must be translated again. True is
    /// always safe; false must be correct.
    fn touched(&self, flow: FlowView<'_>, since: Version, now: Version, reader: &rcu::Reader) -> bool;

    /// What to watch for a sort of flows, up to `now`. It is remembered in `watch`, which is as the last such
    /// call for the sort left it. The reader's domain guards what is returned.
    ///
    /// By default nothing is watched, and each flow is judged individually.
    fn sight<'g>(
        &'g self,
        _sort: Sort<'_>,
        _watch: &mut Watch,
        _now: Version,
        _reader: &'g rcu::Reader,
    ) -> Sight<'g> {
        Sight::NONE
    }

    /// A flow's marks for the kinds of change watched for its sort.
    fn marks(&self, _watch: &Watch, _flow: FlowView<'_>, _reader: &rcu::Reader) -> Marks {
        Marks::default()
    }
}
