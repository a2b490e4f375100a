//! Lists that output nothing: the packet is dropped in the end, but still metered.

use base::DropReason;
use datapath::DpAction;

/// Whether the packet is sent, recirculated, or handed to the control thread.
pub(super) fn has_output(actions: &[DpAction]) -> bool {
    actions.iter().any(|a| match a {
        DpAction::Output(_) | DpAction::OutputTrunc { .. } | DpAction::Recirc(_) | DpAction::PacketIn(_) => {
            true
        }
        // Each branch adds a drop itself if it outputs nothing.
        DpAction::CheckPktLen { .. } => true,
        DpAction::Clone(inner) | DpAction::Sample { actions: inner, .. } => has_output(inner),
        // The tracker advances the packet's connection, or begins it.
        DpAction::Ct(_) => true,
        _ => false,
    })
}

/// Turns a list that outputs nothing into one that drops. The packet is still metered, also in other bridges.
pub(super) fn drop_at_last(actions: &mut Vec<DpAction>, reason: DropReason) {
    keep_up_to_meters(actions);
    while let Some(DpAction::Clone(last)) = actions.pop_if(|a| matches!(a, DpAction::Clone(_))) {
        actions.extend(last);
    }
    actions.push(DpAction::Drop(reason));
}

/// From a list that outputs nothing, removes what has no effect: everything after its last meter.
fn keep_up_to_meters(actions: &mut Vec<DpAction>) {
    actions.retain_mut(|action| match action {
        DpAction::Clone(inner) => {
            keep_up_to_meters(inner);
            !inner.is_empty()
        }
        _ => true,
    });
    let is_meter = |action: &DpAction| matches!(action, DpAction::Meter(_) | DpAction::Clone(_));
    actions.truncate(actions.iter().rposition(is_meter).map_or(0, |last| last + 1));
}
