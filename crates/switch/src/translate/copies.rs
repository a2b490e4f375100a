//! What is done to copies of a packet: which of them are made, and by which action of the datapath.

use super::Xlate;
use super::output::Saved;
use crate::trace::Sink;
use datapath::DpAction;
use flow::FieldId;

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

    /// Fields that are set first on a copy, which begins at `start`, to what the packet itself shall have
    /// too, are set on the packet, once for both. Where the copy begins then.
    pub(super) fn set_for_both(&self, start: usize, packet: &mut Saved) -> usize {
        let set = self.out.actions[start..].iter().take_while(|action| {
            let &&DpAction::Set { field, value, mask } = action else { return false };
            // Tags and labels are known as stacks.
            if matches!(field, FieldId::VlanTci | FieldId::Mpls0) {
                return false;
            }
            // Whatever packet of the flow it is: rules have set the bits before, or the flow matches them.
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
