//! The action set: what is written to it, and when it is executed.
//!
//! A packet has one set. Copies differ, as in Open vSwitch: a clone gets a copy of the set, executes it at
//! its end, and what it writes is lost; a bucket executes no set, but tables to which it resubmits write to
//! that of the packet. What comes back after tracking has a copy.

use super::Xlate;
use crate::trace::Sink;
use base::{DropReason, OfPort};
use flow::action::PacketInReason;
use flow::{Action, FieldId};
use openflow::text::{PortNames, actions_text};

/// Maximum number of actions in the action set: twice as many as an instruction has room for. (There is no
/// such bound in Open vSwitch.) Each further instruction looks at all of them.
const ACTION_SET_MAX: usize = 8192;
/// Maximum number of actions in all copies of the set of one translation.
const COPIED_MAX: usize = 1 << 20;

impl<'a, S: Sink> Xlate<'a, S> {
    /// The set, for a copy of the packet that goes its own way.
    pub(super) fn copied_action_set(&mut self) -> Vec<&'a Action> {
        self.set_copied += self.action_set.len();
        if self.set_copied > COPIED_MAX {
            self.trace.error(|| format!("over {COPIED_MAX} actions in copies of the action set"));
            self.fail(DropReason::TranslationError, "Too many actions in the action set");
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
        self.action_set.extend(list);
        // A group takes precedence over outputs.
        let is_group = |action: &&Action| matches!(action, Action::Group(_));
        let port = self.action_set.iter().rev().find_map(|action| match action {
            Action::Output { port, .. } => Some(*port),
            _ => None,
        });
        let port = port.filter(|_| !self.action_set.iter().any(is_group));
        self.set_actset_output(port.unwrap_or(OfPort::UNSET));
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
        let ordered = in_order(&std::mem::take(&mut self.action_set));
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
            if self.freezing.is_none() {
                if !self.actions(std::slice::from_ref(*action)) {
                    break;
                }
            } else if i < ordered.len() {
                self.leave_for_later(std::slice::from_ref(*action));
            }
        }
        self.controller_reason = reason;
        self.trace.leave_action_set();
    }

    /// Reports the contents of the action set.
    pub(super) fn report_action_set(&mut self, verb: &str) {
        let set = &self.action_set;
        self.trace.detail(|| {
            let ordered: Vec<Action> = in_order(set).into_iter().cloned().collect();
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

/// The actions of a set in the order of OpenFlow 1.3 section 5.10: the last one written of each kind. Empty
/// if the set does not say where the packet goes.
fn in_order<'a>(set: &[&'a Action]) -> Vec<&'a Action> {
    let last = |test: fn(&Action) -> bool| set.iter().rev().copied().find(|a| test(a));
    let ends: [fn(&Action) -> bool; 5] = [
        |a| matches!(a, Action::Group(_)),
        // Other output actions, such as Open vSwitch's output to a register's port, are not allowed in a set.
        |a| matches!(a, Action::Output { .. }),
        |a| matches!(a, Action::Resubmit { .. }),
        |a| matches!(a, Action::CtClear),
        |a| matches!(a, Action::Ct(_)),
    ];
    let Some(end) = ends.into_iter().find_map(last) else { return Vec::new() };
    let kinds: [fn(&Action) -> bool; 9] = [
        |a| matches!(a, Action::PopVlan),
        |a| matches!(a, Action::PopMpls(_)),
        |a| matches!(a, Action::Decap { .. }),
        |a| matches!(a, Action::Encap { .. }),
        |a| matches!(a, Action::PushMpls(_)),
        |a| matches!(a, Action::PushVlan(_)),
        |a| matches!(a, Action::DecTtl(_)),
        |a| matches!(a, Action::DecMplsTtl),
        |a| matches!(a, Action::DecNshTtl),
    ];
    let mut ordered: Vec<&'a Action> = kinds.into_iter().filter_map(last).collect();
    ordered.extend(set.iter().copied().filter(|a| is_set(a)));
    ordered.push(end);
    ordered
}

/// The same for a bucket, which is an action set of its own.
pub(crate) fn action_set_order(set: &[Action]) -> Box<[Action]> {
    in_order(&set.iter().collect::<Vec<_>>()).into_iter().cloned().collect()
}

fn is_set(action: &Action) -> bool {
    matches!(
        action,
        Action::SetField { .. }
            | Action::SetOption { .. }
            | Action::Load { .. }
            | Action::Move { .. }
            | Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::SetNwTtl(_)
            | Action::SetTunnel { .. }
            | Action::SetQueue(_)
    )
}
