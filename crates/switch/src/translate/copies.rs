//! What is done to copies of a packet: which of them are made, and by which action of the datapath.

use super::Xlate;
use crate::trace::Sink;
use datapath::DpAction;

impl<S: Sink> Xlate<'_, S> {
    /// Makes copies only where something comes after them, or where it has to.
    pub(super) fn finish_copies(&mut self) {
        // The last copy is the packet itself.
        while let Some(DpAction::Clone(last)) = self.out.actions.pop_if(|a| matches!(a, DpAction::Clone(_))) {
            self.out.actions.extend(last);
        }
        // A recirculation ends a list, so one that others follow works on a copy.
        let last = self.out.actions.len() - 1;
        let mut is_tracked = false;
        for a in &mut self.out.actions[..last] {
            // One that goes on tracked does so anyway.
            if matches!(a, DpAction::Recirc(_)) && !is_tracked {
                let recirc = std::mem::replace(a, DpAction::PopVlan);
                *a = DpAction::Clone(vec![recirc]);
            }
            is_tracked = matches!(a, DpAction::Ct(_));
        }
        if !self.switch.in_use.clone_action() {
            self.without_clones();
        }
    }

    /// Where the datapath is not to clone, a sample of all packets does; or nothing, where it cannot either.
    #[cold]
    fn without_clones(&mut self) {
        let is_clone = |action: &DpAction| matches!(action, DpAction::Clone(_));
        if self.switch.in_use.samples_clone() {
            sample_for_clone(&mut self.out.actions);
        } else if self.out.actions.iter().any(is_clone) {
            self.trace.error(|| "Failed to compose clone action".to_string());
            self.out.actions.retain(|action| !is_clone(action));
        }
    }
}

/// Puts samples of all packets in the place of clones, also of those within others.
fn sample_for_clone(actions: &mut [DpAction]) {
    for action in actions {
        match action {
            DpAction::Clone(list) => {
                let mut actions = std::mem::take(list);
                sample_for_clone(&mut actions);
                *action = DpAction::Sample { probability: u32::MAX, actions };
            }
            DpAction::Sample { actions, .. } => sample_for_clone(actions),
            DpAction::CheckPktLen { greater, others, .. } => {
                sample_for_clone(greater);
                sample_for_clone(others);
            }
            _ => {}
        }
    }
}
