//! Entry points of translation: for a packet from a port or from recirculation, and for one that arrives with
//! its actions.

use super::frozen::thaw;
use super::{Snapshot, Xlate, always_needed};
use crate::BridgeIdx;
use crate::changelog::word_table;
use crate::effect::Effect;
use crate::trace::Sink;
use base::{DropReason, PortNo};
use datapath::{DpAction, Translation};
use flow::action::PacketInReason;
use flow::{Action, FieldId, Key};

/// Translates a packet that came from a port or from recirculation.
pub(crate) fn packet<S: Sink>(at: Snapshot<'_>, key: &Key, out: &mut Translation<Effect>, trace: &mut S) {
    always_needed(out, key.get64(FieldId::EthType));
    let recirc_id = key.get64(FieldId::RecircId) as u32;
    if recirc_id != 0 {
        return thaw(at, recirc_id, key, out, trace);
    }
    let topology = at.topology();
    let port_no = PortNo(key.get64(FieldId::DpPort) as u32);
    let found = topology.port(port_no).and_then(|p| Some((p, topology.bridge(p.bridge)?)));
    let Some((port, bridge)) = found.filter(|_| !topology.is_paused) else {
        out.visits.push(word_table::visit(word_table::DP_PORTS, u64::from(port_no.0)));
        let reason = if found.is_some() { DropReason::FlowRestoreWait } else { DropReason::RxNoBridge };
        out.actions.push(DpAction::Drop(reason));
        return;
    };
    let mut scratch = out.scratch.take().unwrap_or_default();
    let mut x = Xlate::new(at, bridge, key, &mut scratch, out, trace);
    x.without_action_set();
    // The number in the key dates from the extraction; the translation uses this version's.
    for key in [&mut *x.key, &mut *x.base] {
        key.set(FieldId::InPort, port.spec.of_port.0.into());
    }
    x.trace.bridge(&bridge.config.name);
    x.visit_word(word_table::ports(bridge.idx.0), word_table::port(port.spec.of_port.0));
    if x.may_receive(port) {
        x.pipeline();
    }
    x.finish_of(key);
    out.scratch = Some(scratch);
}

/// Prefetches what the first lookups for packets from one port will probably need.
pub(crate) fn prefetch<'k>(at: Snapshot<'_>, keys: impl Iterator<Item = &'k Key> + Clone) {
    let Some(first) = keys.clone().next().filter(|key| key.get64(FieldId::RecircId) == 0) else { return };
    let (topology, port_no) = (at.topology(), PortNo(first.get64(FieldId::DpPort) as u32));
    let bridge = topology.port(port_no).and_then(|port| topology.bridge(port.bridge));
    if let Some(table) = bridge.and_then(|bridge| bridge.state.table(0)) {
        table.rules.prefetch(keys, at.reader);
    }
}

/// Translates a packet as if it had come to the bridge from the port in its key, which need not exist.
pub(crate) fn packet_in_bridge<S: Sink>(
    at: Snapshot<'_>,
    key: &Key,
    bridge: BridgeIdx,
    out: &mut Translation<Effect>,
    trace: &mut S,
) {
    always_needed(out, key.get64(FieldId::EthType));
    let Some(bridge) = at.topology().bridge(bridge) else {
        out.actions.push(DpAction::Drop(DropReason::RxNoBridge));
        return;
    };
    let mut scratch = out.scratch.take().unwrap_or_default();
    let mut x = Xlate::new(at, bridge, key, &mut scratch, out, trace);
    x.without_action_set();
    x.trace.bridge(&bridge.config.name);
    x.pipeline();
    x.finish();
    out.scratch = Some(scratch);
}

/// Translates actions that arrive with the packet (a packet-out). `false`: they failed, as too many resubmits
/// do.
pub(crate) fn packet_out<S: Sink>(
    at: Snapshot<'_>,
    key: &Key,
    bridge: BridgeIdx,
    actions: &[Action],
    out: &mut Translation<Effect>,
    trace: &mut S,
) -> bool {
    always_needed(out, key.get64(FieldId::EthType));
    let topology = at.topology();
    let Some(bridge) = topology.bridge(bridge) else {
        out.actions.push(DpAction::Drop(DropReason::RxNoBridge));
        return false;
    };
    let mut scratch = out.scratch.take().unwrap_or_default();
    let mut x = Xlate::new(at, bridge, key, &mut scratch, out, trace);
    x.without_action_set();
    x.trace.bridge(&bridge.config.name);
    x.controller_reason = PacketInReason::PacketOut;
    x.actions(actions);
    x.finish_pipeline();
    x.finish();
    let is_done = x.error.is_none();
    out.scratch = Some(scratch);
    is_done
}
