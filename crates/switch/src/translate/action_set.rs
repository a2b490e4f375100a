//! The action set: what is written to it, and when it is executed.
//!
//! A packet has one set. Copies differ, as in Open vSwitch: a clone gets a copy of the set, executes it at
//! its end, and what it writes is lost; a bucket executes no set, but tables to which it resubmits write to
//! that of the packet. What comes back after tracking has a copy.

use super::Xlate;
use super::ordered::ActionSet;
use crate::trace::Sink;
use base::{DropReason, OfPort};
use flow::action::PacketInReason;
use flow::{Action, FieldId};
use openflow::text::{PortNames, actions_text};

/// Maximum number of actions in the action set: twice as many as an instruction has room for. (There is no
/// such bound in Open vSwitch.)
const ACTION_SET_MAX: usize = 8192;
/// Maximum number of actions in all copies of the set of one translation.
const COPIED_MAX: usize = 1 << 20;

impl<'a, S: Sink> Xlate<'a, S> {
    /// The set, for a copy of the packet that goes its own way.
    pub(super) fn copied_action_set(&mut self) -> ActionSet<'a> {
        self.set_copied += self.action_set.len();
        if self.set_copied > COPIED_MAX {
            self.trace.error(|| format!("over {COPIED_MAX} actions in copies of the action set"));
            self.fail(DropReason::TranslationError, "Too many actions in the action set");
            return ActionSet::default();
        }
        self.action_set.clone()
    }

    #[inline(never)]
    pub(super) fn write_actions(&mut self, list: &'a [Action]) {
        if self.action_set.len() + list.len() > ACTION_SET_MAX {
            self.trace.error(|| format!("over {ACTION_SET_MAX} actions in the action set"));
            self.fail(DropReason::TranslationError, "Too many actions in the action set");
            return;
        }
        if let Some(port) = self.action_set.write(list) {
            self.set_actset_output(port);
        }
    }

    /// No packet arrives with an action set, so this needs no bit of the flow's mask. Kept out of `new`, so
    /// that `new` constructs the translation in place.
    #[inline(always)]
    pub(super) fn without_action_set(&mut self) {
        self.key.set(FieldId::ActsetOutput, OfPort::UNSET.0.into());
    }

    /// Where the action set would send the packet.
    pub(super) fn set_actset_output(&mut self, port: OfPort) {
        self.write_field(FieldId::ActsetOutput, port.0.into());
    }

    /// Executes the action set.
    #[inline(never)]
    pub(super) fn execute_action_set(&mut self) {
        if self.action_set.is_empty() || self.exit || self.error.is_some() {
            return;
        }
        let ordered = std::mem::take(&mut self.action_set).in_order();
        if ordered.is_empty() {
            return;
        }
        self.trace.enter_action_set();
        // After a patch port, other lists follow this one.
        let reason = self.controller_reason;
        if reason == PacketInReason::Action {
            self.controller_reason = PacketInReason::ActionSet;
        }
        for (i, action) in ordered.iter().enumerate() {
            if !self.actions(std::slice::from_ref(*action)) {
                break;
            }
            // What is left is one list with the action that froze, which may end it.
            if let Some(step) = self.freezing.as_mut().and_then(|steps| steps.last_mut()) {
                step.actions.extend(ordered[i + 1..].iter().map(|action| (*action).clone()));
                break;
            }
        }
        self.controller_reason = reason;
        self.trace.leave_action_set();
    }

    /// Reports the contents of the action set.
    pub(super) fn report_action_set(&mut self, verb: &str) {
        let set = &self.action_set;
        self.trace.detail(|| {
            let ordered: Vec<Action> = set.in_order().into_iter().cloned().collect();
            match ordered.is_empty() {
                true => format!("action set {verb} empty"),
                false => {
                    let text = actions_text(&ordered, openflow::Version::V13, PortNames::none());
                    format!("action set {verb}: {text}")
                }
            }
        });
    }
}
