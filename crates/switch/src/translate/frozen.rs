//! Recirculation: the work that remains after the packet has been extracted again.
//!
//! Popping an MPLS label uncovers headers that have not been read. If a later action or table looks at them,
//! the rest of the translation is *frozen*: its state gets a number, the datapath extracts the packet again
//! with that number as its recirculation id, and the next translation thaws it.

use super::continuation::{self, Rest, Step, Tracked};
use super::ordered::ActionSet;
use super::{Cookie, Origin, Snapshot, Xlate, always_needed};
use crate::changelog::word_table;
use crate::effect::Effect;
use crate::frozen::Frozen;
use crate::switch::Switch;
use crate::topology::BridgeIdx;
use crate::trace::{Quiet, Sink};
use base::rcu::Reader;
use base::{DropReason, OfPort};
use datapath::hash::PacketHash;
use datapath::{DpAction, PacketInSpec, Translation};
use flow::action::PacketInReason;
use flow::key::{B_PIPELINE, B_REGS, B_TUN_META, B_TUNNEL};
use flow::{Action, BLOCKS, FieldId, Key};
use std::borrow::Cow;
use std::sync::Arc;

impl Switch {
    /// Actions as shown to an operator. The state in a packet-in to controllers gets its number here, under
    /// which a trace finds it: only traces ever ask for it.
    pub fn with_states<'a>(&self, actions: &'a [DpAction], reader: &Reader) -> Cow<'a, [DpAction]> {
        if !actions.iter().any(tells) {
            return Cow::Borrowed(actions);
        }
        let number = |list: &Vec<DpAction>| self.with_states(list, reader).into_owned();
        let shown = actions.iter().map(|action| match action {
            DpAction::PacketIn(spec) if !spec.slow_path => {
                let state_id = self.state_of(spec, reader);
                DpAction::PacketIn(Arc::new(PacketInSpec { state_id, ..PacketInSpec::clone(spec) }))
            }
            DpAction::Clone(list) => DpAction::Clone(number(list)),
            DpAction::Sample { probability, actions } => {
                DpAction::Sample { probability: *probability, actions: number(actions) }
            }
            DpAction::CheckPktLen { length, greater, others } => {
                DpAction::CheckPktLen { length: *length, greater: number(greater), others: number(others) }
            }
            other => other.clone(),
        });
        Cow::Owned(shown.collect())
    }

    fn state_of(&self, spec: &PacketInSpec, reader: &Reader) -> u32 {
        let bridge = BridgeIdx(spec.bridge);
        let generation = self.frozen.read(reader).newest(bridge);
        let generation = generation.filter(|g| g.may_show());
        let words = [B_REGS, B_PIPELINE, B_TUNNEL].into_iter().chain(B_TUN_META..BLOCKS);
        let words = words.flat_map(|b| (0..8).map(move |w| (b as u8, w as u8, spec.metadata.word(b, w))));
        let state = Frozen {
            bridge,
            rest: Rest::default(),
            in_port: spec.metadata.get(FieldId::InPort) as u16,
            trace: 0,
            hash_mask: 0,
            fields: words.filter(|(_, _, value)| *value != 0).collect(),
        };
        generation.and_then(|g| g.intern(state, &self.secret)).unwrap_or(0)
    }
}

/// Whether the action, or one inside it, sends a packet-in to controllers.
fn tells(action: &DpAction) -> bool {
    match action {
        DpAction::PacketIn(_) => true,
        DpAction::Clone(list) | DpAction::Sample { actions: list, .. } => list.iter().any(tells),
        DpAction::CheckPktLen { greater, others, .. } => greater.iter().chain(others).any(tells),
        _ => false,
    }
}

impl<'a, S: Sink> Xlate<'a, S> {
    /// The packet must be read before translation continues.
    pub(super) fn freeze(&mut self) {
        if self.freezing.is_none() {
            self.trace.detail(|| "the packet is read again before this".to_string());
            self.freezing = Some(Vec::new());
        }
    }

    /// Whether the datapath has provided all bits of a hash, whatever its algorithm.
    pub(super) fn is_hashed(&self, hash: PacketHash) -> bool {
        self.hash_mask & hash.mask == hash.mask
    }

    /// The packet must be hashed before translation continues.
    pub(super) fn freeze_to_hash(&mut self, hash: PacketHash) {
        self.freeze();
        self.hashing = Some(hash);
    }

    /// The rest waits until a controller sends the packet back.
    #[inline(never)]
    pub(super) fn pause(&mut self, max_len: u16, reason: PacketInReason, id: u16, userdata: &[u8]) {
        self.commit();
        self.pausing = Some(Box::new(self.packet_in_spec(max_len, reason, id, userdata)));
        self.freezing = Some(Vec::new());
    }

    /// Stores the rest of a list.
    pub(super) fn leave_for_later(&mut self, rest: &'a [Action]) {
        if !self.may_leave(rest) {
            return;
        }
        let step =
            Step { actions: rest.to_vec(), table_id: self.origin.table_id, cookie: self.origin.cookie.get() };
        self.freezing.get_or_insert_default().push(step);
    }

    /// Makes the datapath, or a controller, return the packet for the remaining work.
    pub(super) fn finish_freezing(&mut self) {
        self.finish_freezing_tracked(None);
    }

    /// The same; with `ct` the packet comes back after tracking.
    pub(super) fn finish_freezing_tracked(&mut self, ct: Option<&Tracked<'_>>) {
        let Some(steps) = self.freezing.take() else { return };
        self.commit();
        let rest = Rest {
            steps,
            action_set: std::mem::take(&mut self.action_set).into_actions(),
            stack: std::mem::take(&mut self.stack),
            is_tracked: self.is_tracked,
        };
        match self.pausing.take() {
            None => self.recirculate(rest, ct),
            // A translation of fields only has no packet to report.
            Some(_) if !self.trace.may_learn() => {}
            // The packet-in contains the packet as it is now: nothing comes between the action and the end of
            // its list.
            Some(spec) => match continuation::encode(&rest) {
                Some(bytes) => {
                    // Except for the rule: as in Open vSwitch, the rule at which the list began.
                    let (table_id, cookie) = (self.origin.table_id, self.origin.cookie.get());
                    let spec = PacketInSpec { continuation: Some(bytes), table_id, cookie, ..*spec };
                    self.out.actions.push(DpAction::PacketIn(Arc::new(spec)));
                }
                None => self.error = Some(DropReason::TranslationError),
            },
        }
    }

    /// Gives the state a number and makes the datapath recirculate with it.
    fn recirculate(&mut self, rest: Rest, ct: Option<&Tracked<'_>>) {
        let mut fields = Vec::new();
        // The datapath keeps it with the packet.
        self.key.set(FieldId::DpHash, 0);
        if self.key.get(FieldId::ActsetOutput) == u128::from(OfPort::UNSET.0) {
            self.key.set(FieldId::ActsetOutput, 0);
        }
        for b in [B_REGS, B_PIPELINE, B_TUNNEL].into_iter().chain(B_TUN_META..BLOCKS) {
            for w in 0..8 {
                if self.key.word(b, w) != 0 {
                    // It becomes part of the state, and thus of what the number stands for.
                    self.need(b, w, u64::MAX);
                    fields.push((b as u8, w as u8, self.key.word(b, w)));
                } else if self.orig_may_have(b, w) {
                    self.need(b, w, u64::MAX);
                }
            }
        }
        let bridge = self.bridge.idx;
        let generation = self.switch.frozen.read(self.reader).newest(bridge);
        let trace = match generation {
            Some(generation) if !S::LEARNS => generation.number_of_trace(),
            _ => 0,
        };
        let state = Frozen {
            bridge,
            rest,
            in_port: self.in_port().0,
            trace,
            hash_mask: self.hashing.map_or(self.hash_mask, |hash| hash.mask),
            fields,
        };
        // When the bridge's next generation begins, this flow is translated again and gets a new number.
        self.visit_word(word_table::ports(bridge.0), word_table::FROZEN);
        match generation.and_then(|g| g.intern(state, &self.switch.secret)) {
            Some(id) => {
                self.irreversible = true;
                self.hide_connection();
                self.out.actions.extend(self.hashing.take().map(DpAction::Hash));
                self.out.actions.push(DpAction::Recirc(id));
                self.trace.recirculates(id, self.key, ct);
            }
            None => {
                self.fail(DropReason::TranslationError, "No recirculation context");
            }
        }
    }

    /// Registers and metadata are zero in every packet from a port; tunnel fields are not if the port is a
    /// tunnel's. Whether it is, is the same for all packets of a port.
    fn orig_may_have(&self, block: usize, word: usize) -> bool {
        let addresses = [FieldId::TunSrc, FieldId::TunDst, FieldId::TunIpv6Src, FieldId::TunIpv6Dst];
        if addresses.into_iter().all(|field| self.base.get(field) == 0) {
            return false;
        }
        let present = FieldId::TunMetadataPresent.place();
        let is_present = (block, word) == (usize::from(present.block), usize::from(present.word));
        block == B_TUNNEL || block >= B_TUN_META || is_present && !self.bridge.options().is_empty()
    }
}

/// The bits in a word of the key that contain the datapath's hash.
fn hash_bits(block: usize, word: usize) -> u64 {
    let place = FieldId::DpHash.place();
    let is_there = (block, word) == (usize::from(place.block), usize::from(place.word));
    if is_there { (FieldId::DpHash.ones() as u64) << place.shift } else { 0 }
}

/// Continues where a translation was frozen.
pub(crate) fn thaw<S: Sink>(
    at: Snapshot<'_>,
    recirc_id: u32,
    key: &Key,
    out: &mut Translation<Effect>,
    trace: &mut S,
) {
    always_needed(out, key.get64(FieldId::EthType));
    let topology = at.topology();
    let found = at.switch.frozen.read(at.reader).find(recirc_id);
    let Some((state, bridge)) = found.and_then(|s| Some((s, topology.bridge(s.bridge)?))) else {
        out.actions.push(DpAction::Drop(DropReason::RecircUnknown));
        return;
    };
    let mut scratch = out.scratch.take().unwrap_or_default();
    let mut x = Xlate::new(at, bridge, key, &mut scratch, out, trace);
    x.without_action_set();
    for b in [B_REGS, B_PIPELINE, B_TUNNEL].into_iter().chain(B_TUN_META..BLOCKS) {
        if x.key.has(b) || state.fields.iter().any(|f| usize::from(f.0) == b) || b <= B_PIPELINE {
            for w in 0..8 {
                // The hash belongs to the packet.
                x.write(b, w, !hash_bits(b, w), 0);
            }
        }
    }
    for &(b, w, value) in &state.fields {
        x.write(b.into(), w.into(), !hash_bits(b.into(), w.into()), value);
    }
    x.write_field(FieldId::InPort, u128::from(state.in_port));
    x.hash_mask = state.hash_mask;
    x.go_on(&state.rest);
    x.finish_of(key);
    out.scratch = Some(scratch);
}

/// Continues where a translation was frozen for a controller, with the pipeline's fields as the controller
/// set them.
pub(crate) fn resume(
    at: Snapshot<'_>,
    bridge: BridgeIdx,
    rest: &Rest,
    key: &Key,
    out: &mut Translation<Effect>,
) -> bool {
    always_needed(out, key.get64(FieldId::EthType));
    let Some(bridge) = at.topology().bridge(bridge) else { return false };
    let mut scratch = out.scratch.take().unwrap_or_default();
    let mut quiet = Quiet;
    let mut x = Xlate::new(at, bridge, key, &mut scratch, out, &mut quiet);
    x.without_action_set();
    x.go_on(rest);
    x.finish();
    out.scratch = Some(scratch);
    true
}

impl<'a, S: Sink> Xlate<'a, S> {
    fn go_on(&mut self, rest: &'a Rest) {
        self.trace.thaw(&self.bridge.config.name, rest);
        self.visit_word(word_table::ports(self.bridge.idx.0), word_table::SETTINGS);
        if self.key.get(FieldId::ActsetOutput) == 0 {
            self.set_actset_output(OfPort::UNSET);
        }
        // The priority belongs to the datapath, and the packet still has it.
        self.base.set(FieldId::SkbPriority, self.key.get(FieldId::SkbPriority));
        self.base_known.add_exact(FieldId::SkbPriority);
        self.action_set = ActionSet::of(&rest.action_set);
        self.stack = rest.stack.clone();
        (self.is_tracked, self.is_tracked_below) = (rest.is_tracked, rest.is_tracked);
        for step in &rest.steps {
            // As it was: it belongs to its own rule.
            if let Some(steps) = &mut self.freezing {
                steps.push(step.clone());
                continue;
            }
            self.origin = Origin { table_id: step.table_id, cookie: Cookie::Is(step.cookie) };
            match step.table_to_begin_with() {
                Some(table) if !self.exit && self.error.is_none() => {
                    self.table(table, true);
                    self.origin = Origin { table_id: table, cookie: self.first_cookie };
                }
                _ => {
                    self.trace.restore(step.table_id, step.cookie);
                    self.actions(&step.actions);
                }
            }
        }
        self.finish_pipeline();
    }
}

/// Whether the action reads or changes what follows a popped label.
pub(super) fn needs_reading(action: &Action) -> bool {
    match action {
        Action::Output { .. }
        | Action::OutputTrunc { .. }
        | Action::Controller { .. }
        | Action::Enqueue { .. }
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::SetTunnel { .. }
        | Action::WriteMetadata { .. }
        | Action::WriteActions(_)
        | Action::ClearActions
        | Action::Sample { .. }
        // A group checks for itself.
        | Action::Group(_)
        | Action::Note(_)
        | Action::DebugRecirc
        | Action::DebugSlow
        | Action::Exit => false,
        Action::OutputReg { .. }
        | Action::SetField { .. }
        | Action::SetOption { .. }
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetNwTtl(_)
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::StackPush(_)
        | Action::StackPop(_)
        | Action::SetVlanVid { .. }
        | Action::SetVlanPcp { .. }
        | Action::PushVlan(_)
        | Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::DecTtl(_)
        | Action::DecNshTtl
        | Action::Resubmit { .. }
        | Action::GotoTable(_)
        | Action::Clone(_)
        | Action::Ct(_)
        | Action::Nat(_)
        | Action::CtClear
        | Action::DeleteField(_)
        | Action::FinTimeout { .. }
        | Action::CheckPktLarger { .. }
        | Action::Conjunction { .. }
        | Action::Learn(_)
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::Encap { .. }
        | Action::Decap { .. }
        | Action::Meter(_) => true,
    }
}
