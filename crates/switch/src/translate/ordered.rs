//! The contents of an action set, and the order in which they are executed.

use base::OfPort;
use flow::Action;

/// Actions in the order in which they were written.
#[derive(Clone, Default)]
pub(super) struct ActionSet<'a> {
    actions: Vec<&'a Action>,
    /// One of them is a group, which takes precedence over outputs. Remembered, because a pipeline may write
    /// to a large set thousands of times.
    has_group: bool,
}

impl<'a> ActionSet<'a> {
    pub(super) fn of(actions: &'a [Action]) -> ActionSet<'a> {
        let is_group = |action: &Action| matches!(action, Action::Group(_));
        ActionSet { actions: actions.iter().collect(), has_group: actions.iter().any(is_group) }
    }

    pub(super) fn len(&self) -> usize {
        self.actions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The actions as they are to be executed.
    pub(super) fn in_order(&self) -> Vec<&'a Action> {
        in_order(&self.actions)
    }

    pub(super) fn into_actions(self) -> Vec<Action> {
        self.actions.into_iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        *self = ActionSet::default();
    }

    /// Adds actions. Returns where the set sends the packet if that changes.
    pub(super) fn write(&mut self, list: &'a [Action]) -> Option<OfPort> {
        self.actions.extend(list);
        let mut to = None;
        for action in list {
            match action {
                _ if self.has_group => break,
                Action::Output { port, .. } => to = Some(*port),
                Action::Group(_) => (self.has_group, to) = (true, Some(OfPort::UNSET)),
                _ => {}
            }
        }
        to
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
