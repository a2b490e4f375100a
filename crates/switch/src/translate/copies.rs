//! Actions on copies of a packet: which copies are made, and by which datapath action.

use super::output::Saved;
use super::{Dscp, Xlate};
use crate::trace::Sink;
use datapath::DpAction;
use flow::FieldId;

impl<S: Sink> Xlate<'_, S> {
    /// Makes copies only if something follows them, or if they are unavoidable.
    pub(super) fn finish_copies(&mut self) {
        // The last copy becomes the packet itself.
        while let Some(DpAction::Clone(last)) = self.out.actions.pop_if(|a| matches!(a, DpAction::Clone(_))) {
            self.out.actions.extend(last);
        }
        // A recirculation ends a list, so if other actions follow, it works on a copy.
        let last = self.out.actions.len() - 1;
        let mut is_tracked = false;
        for a in &mut self.out.actions[..last] {
            // After tracking it does so anyway.
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

    /// If a copy, which begins at `start`, first sets fields to values that the packet itself also needs,
    /// they are set on the packet, once for both. Returns where the copy then begins.
    pub(super) fn set_for_both(&self, start: usize, packet: &mut Saved) -> usize {
        let set = self.out.actions[start..].iter().take_while(|action| {
            let &&DpAction::Set { field, value, mask } = action else { return false };
            // Tags and labels are tracked as stacks.
            if matches!(field, FieldId::VlanTci | FieldId::Mpls0) {
                return false;
            }
            // The packet keeps what a meter has made of it.
            if field == FieldId::NwTos && packet.dscp != Dscp::Known {
                return false;
            }
            // True for every packet of the flow: rules have set the bits before, or the flow matches them.
            let is_of_all = mask & !(packet.written.get(field) | self.out.mask.get(field)) == 0;
            let is_shared = is_of_all && (packet.key.get(field) ^ value) & mask == 0;
            if is_shared {
                packet.base.set_masked(field, value, mask);
                packet.base_known.add(field, mask);
            }
            is_shared
        });
        start + set.count()
    }

    /// If the datapath must not clone, a sample with probability 1 replaces the clone; without sampling,
    /// nothing does.
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

/// Replaces clones, including nested ones, by samples with probability 1.
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
