//! Translation by the switch: for workers as their [`Pipeline`], and for the control thread.

use crate::effect::Effect;
use crate::switch::Switch;
use crate::topology::BridgeIdx;
use crate::trace::Quiet;
use crate::translate::continuation::Rest;
use crate::translate::{self, Snapshot, frozen, learn};
use base::rcu::Reader;
use base::{PortNo, Version};
use datapath::pipeline::FlowView;
use datapath::watch::{Marks, Sight, Sort, Watch};
use datapath::{Pipeline, PortView, Translation};
use flow::{Action, Key};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Switch {
    /// Translates actions that arrive with their packet (a packet-out). `key` has the packet's fields and the
    /// input port's numbers. `false`: they failed, as too many resubmits do, and nothing is to be done.
    pub fn translate_packet_out(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        actions: &[Action],
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) -> bool {
        let at = Snapshot::new(self, version, reader);
        translate::packet_out(at, key, bridge, actions, out, &mut Quiet)
    }

    /// Continues with a packet that waited for a controller. `key` has the packet's fields as it came back,
    /// the input port's numbers, and the pipeline's fields as the controller set them. `false`: the bridge
    /// does not exist.
    pub fn translate_resumed(
        &self,
        version: Version,
        key: &Key,
        bridge: BridgeIdx,
        rest: &Rest,
        reader: &Reader,
        out: &mut Translation<Effect>,
    ) -> bool {
        let at = Snapshot::new(self, version, reader);
        frozen::resume(at, bridge, rest, key, out)
    }

    /// Translates, for a worker, a packet from which to learn. Apply the effects before the packet continues.
    /// `learned` counts a table's rules by cookie.
    pub fn translate_for_control(
        &self,
        version: Version,
        key: &Key,
        reader: &Reader,
        learned: &dyn Fn(BridgeIdx, u8, u64) -> u32,
        out: &mut Translation<Effect>,
    ) {
        let at = Snapshot { learned: Some(learned), ..Snapshot::new(self, version, reader) };
        translate::packet(at, key, out, &mut Quiet);
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
            let at = Snapshot { by_worker: true, ..Snapshot::new(self, version, reader) };
            translate::packet(at, key, out, &mut Quiet);
        });
        if !out.effects.is_empty() {
            learn::hand_over(key, out);
        }
    }

    fn prefetch<'k>(&self, version: Version, keys: impl Iterator<Item = &'k Key> + Clone, reader: &Reader) {
        translate::prefetch(Snapshot::new(self, version, reader), keys);
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
