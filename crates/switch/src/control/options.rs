//! Which tunnel options map to which fields of a bridge (`tun_metadata0` to `tun_metadata63`).
//!
//! The table is part of the bridge's snapshot. Rules match bits at the places that it assigns, so a row that
//! a rule uses cannot be removed before the rule.

use super::state::{Control, Inner};
use super::validate::{self, Known};
use crate::flow_mod::FlowModError;
use crate::rule::options_of;
use crate::topology::{Bridge, BridgeIdx};
use flow::Match;
use flow::key::B_PIPELINE;
use flow::options::{Mapping, MappingError, OptionTable};
use flow::{Action, FieldId};
use std::sync::Arc;

/// Why a bridge's table of options was not changed. Each is one error of the extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionError {
    /// There is no such bridge.
    NoBridge(BridgeIdx),
    /// A row does not fit.
    Row(MappingError),
    /// NXTTMFC_INVALID_TLV_DEL: a rule uses the field.
    InUse(u8),
}

impl Control {
    /// The table of a bridge.
    pub fn options(&self, bridge: BridgeIdx) -> Option<&OptionTable> {
        self.inner.topology.bridge(bridge).map(|b| b.options())
    }

    /// Adds rows to a bridge's table: all of them or none.
    pub fn map_options(&mut self, bridge: BridgeIdx, new: &[Mapping]) -> Result<(), OptionError> {
        self.enter_to_change();
        let old = self.options(bridge).ok_or(OptionError::NoBridge(bridge))?;
        let table = old.with(new.iter().copied()).map_err(OptionError::Row)?;
        self.inner.set_options(bridge, table);
        Ok(())
    }

    /// Removes the rows of these fields, or all. Fields without a row are ignored. The cost is proportional
    /// to the bridge's rules.
    pub fn unmap_options(&mut self, bridge: BridgeIdx, gone: Option<&[u8]>) -> Result<(), OptionError> {
        self.enter_to_change();
        let old = self.options(bridge).ok_or(OptionError::NoBridge(bridge))?;
        let mapped: Vec<u8> = old.mappings().map(|m| m.idx).collect();
        let gone: Vec<u8> = mapped.into_iter().filter(|i| gone.is_none_or(|gone| gone.contains(i))).collect();
        let used = self.inner.used_options(bridge);
        if let Some(idx) = gone.iter().find(|idx| used >> **idx & 1 != 0) {
            return Err(OptionError::InUse(*idx));
        }
        let table = old.without(&gone);
        self.inner.set_options(bridge, table);
        Ok(())
    }

    /// Assigns the options of a match their places in the keys of a bridge, as in rules and filters.
    pub fn place_options(&self, bridge: BridgeIdx, m: &mut Match) -> Result<(), FlowModError> {
        let table = self.options(bridge).ok_or(FlowModError::NoBridge(bridge))?;
        table.place(m).map_err(FlowModError::in_match)
    }

    /// Whether a list is one that a rule may have, whatever groups and meters there are: what is asked of
    /// every flow-mod and packet-out before anything else, even of one that would change nothing.
    pub fn check_consistency(
        &self,
        bridge: BridgeIdx,
        version: openflow::Version,
        matching: &Match,
        actions: &[Action],
        table_id: u8,
    ) -> Result<(), FlowModError> {
        self.options(bridge).ok_or(FlowModError::NoBridge(bridge))?;
        let known = Known { numbered: None, ..self.inner.known(bridge) };
        validate::check(version, matching, actions, table_id, known)
    }

    /// Whether actions that a controller of this version sends with a packet can be executed.
    pub fn check_actions(
        &self,
        bridge: BridgeIdx,
        version: openflow::Version,
        packet: &Match,
        actions: &[Action],
    ) -> Result<(), FlowModError> {
        self.options(bridge).ok_or(FlowModError::NoBridge(bridge))?;
        validate::check(version, packet, actions, 0, self.inner.known(bridge))
    }
}

impl Inner {
    fn set_options(&mut self, bridge: BridgeIdx, table: OptionTable) {
        let Some(old) = self.topology.bridge(bridge) else { return };
        if *old.options() == table {
            return;
        }
        let new = Bridge::clone(old).with_options(table);
        self.topology.bridges[bridge.0 as usize] = Some(Arc::new(new));
        self.topology_changed = true;
        // The same bits of keys now mean something else. This is rare, so flows are not judged individually.
        let version = self.coming();
        self.log.everything(version);
        self.publish();
    }

    /// A bit for each field that a rule matches, or that actions of rules or groups use.
    fn used_options(&self, bridge: BridgeIdx) -> u64 {
        let place = FieldId::TunMetadataPresent.place();
        debug_assert_eq!(usize::from(place.block), B_PIPELINE);
        let Some(control) = self.bridge(bridge) else { return 0 };
        let buckets = control.groups.by_id.values().flat_map(|group| group.buckets());
        let in_groups = buckets.fold(0, |used, bucket| used | options_of(&bucket.actions));
        let rules = control.tables.values().flat_map(|store| store.rules.iter().flatten());
        rules.fold(in_groups, |used, rule| {
            let words = rule.matching.shape().words().iter();
            let matched = words.filter(|w| (w.block, w.word) == (place.block, place.word));
            used | matched.fold(0, |bits, w| bits | w.bits) | options_of(&rule.actions.list)
        })
    }
}
