//! The contract between the fast path and whoever decides: one question, "what happens to a packet with
//! this key, at this version of the state?", and one check, "has anything changed since that this flow saw?".
//!
//! A translation is a pure function of (version, key). Beside actions it yields the mask of the bits that
//! decided, so that the worker may cache it for every packet that agrees on those bits; the slots whose
//! counters each such packet adds to; the tables that it visited, so that a later change can be judged on
//! the flow; and effects as data.
//!
//! Versions: the control thread makes a change invisible, logs it, publishes it by counting the version up. A
//! worker reads the version once per burst, before it reads the depth of extraction; whatever it looks up in
//! that burst, it looks up at that version.

use crate::action::DpAction;
use crate::input::PortView;
use crate::watch::{Marks, Sight, Sort, Visit, Watch};
use base::{OfPort, PortNo, Version, rcu};
use flow::{Depth, FieldId, Key, Mask};
use std::sync::Arc;

/// One word of the key in which earlier actions had set the bits `mask` to `value` before a lookup. Such bits
/// count as held by the flow's mask, with this value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// Bits that had been set.
    pub mask: u64,
    /// To what (zero outside `mask`).
    pub value: u64,
    /// Block of the key.
    pub block: u8,
    /// Word of the block.
    pub word: u8,
}

/// A flow as the change log judges it.
#[derive(Clone, Copy)]
pub struct FlowView<'a> {
    /// The key of any packet of the flow. Only bits under `mask` mean anything.
    pub key: &'a Key,
    /// The flow's mask.
    pub mask: &'a Mask,
    /// Tables it visited.
    pub visits: &'a [Visit],
    /// What had been rewritten before.
    pub rewrites: &'a [Rewrite],
}

/// What a translation found out. Reused from packet to packet: its vectors keep their room, so a warm miss
/// does not allocate.
#[derive(Clone, Debug)]
pub struct Translation<E> {
    /// What to do.
    pub actions: Vec<DpAction>,
    /// Which bits of the key decided that. Always holds the input port (both numbers), recirculation id,
    /// Ethernet type, and the fragment bits of IP.
    pub mask: Mask,
    /// Counter slots (rules, tables, patch ports, MAC entries) to which every packet of the flow counts.
    pub credits: Vec<u32>,
    /// Tables looked into, in order.
    pub visits: Vec<Visit>,
    /// Rewritten words, which `visits` refer to.
    pub rewrites: Vec<Rewrite>,
    /// Effects of the translation itself (learn this MAC). If one of them is refused, the flow is not cached.
    pub effects: Vec<E>,
    /// The result depends on more than the key (or must be asked for each packet): do not cache it.
    pub uncacheable: bool,
    /// Told to who translates: how long the packet is, where it is at hand. What depends on it is not cached.
    pub packet_len: Option<usize>,
    /// Taken by who translates, and put back.
    pub scratch: Option<Box<Scratch>>,
}

/// Keys and masks for a pipeline to work on. Whatever they hold is of the packet before: each has a kilobyte,
/// which would else be made and moved for every packet.
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
            uncacheable: false,
            packet_len: None,
            scratch: None,
        }
    }
}

impl<E> Translation<E> {
    /// Empties it, keeping the vectors' room.
    pub fn clear(&mut self) {
        self.actions.clear();
        self.mask.0.clear();
        self.credits.clear();
        self.visits.clear();
        self.rewrites.clear();
        self.effects.clear();
        self.uncacheable = false;
        self.packet_len = None;
    }

    /// Has the actions begin with the type of their packet, which has this key and comes from the control
    /// thread: workers take those for Ethernet frames.
    pub fn say_packet_type(&mut self, key: &Key) {
        let (field, value) = (FieldId::PacketType, key.get(FieldId::PacketType));
        if value != 0 {
            self.actions.insert(0, DpAction::Set { field, value, mask: field.ones() });
        }
    }
}

/// Decides the fate of packets. Shared by all workers; see the module's text for the order of events.
pub trait Pipeline: Send + Sync + 'static {
    /// Effects of a translation, sent to the control thread through a bounded ring.
    type Effect: Send + Clone + std::fmt::Debug;

    /// The newest version. Acquire: what that version contains is visible after this call.
    fn version(&self) -> Version;

    /// What workers are told of a port for as long as they read its packets. For the control thread: it may
    /// lock.
    fn port_view(&self, port: PortNo) -> Arc<PortView>;

    /// The OpenFlow number of a port in its bridge, and how deep extraction must read for packets from there,
    /// at any version up to the one read before.
    #[inline(always)]
    fn ingress(&self, view: &PortView) -> (OfPort, Depth) {
        view.get()
    }

    /// VLAN tags that extraction looks behind, 1 or 2; the type of a frame with more is the protocol id of
    /// the next.
    #[inline(always)]
    fn vlan_limit(&self) -> u8 {
        2
    }

    /// Translates. `out` is empty at the call. `reader` guards what the lookup walks over. `key` was
    /// extracted at least as deep as [`Self::ingress`] says; the worker asks again with a deeper one where
    /// the mask turns out to hold deeper fields.
    fn translate(
        &self,
        version: Version,
        key: &Key,
        reader: &rcu::Reader,
        out: &mut Translation<Self::Effect>,
    );

    /// Whether a change in `(since, now]` may touch the flow, so that it must be translated again. True is
    /// always right, false must be.
    fn touched(&self, flow: FlowView<'_>, since: Version, now: Version, reader: &rcu::Reader) -> bool;

    /// What is to be watched for a sort of flows, brought up to `now` and remembered in `watch`, which is as
    /// the last such call for the sort left it. The reader's domain is the one that guards what is returned.
    ///
    /// By itself this watches nothing, and each flow is asked about.
    fn sight<'g>(
        &'g self,
        _sort: Sort<'_>,
        _watch: &mut Watch,
        _now: Version,
        _reader: &'g rcu::Reader,
    ) -> Sight<'g> {
        Sight::NONE
    }

    /// The marks of a flow for the kinds that are watched for its sort.
    fn marks(&self, _watch: &Watch, _flow: FlowView<'_>, _reader: &rcu::Reader) -> Marks {
        Marks::default()
    }
}
