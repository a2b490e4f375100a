//! The text of a flow's actions, the same in every command and log.

use crate::odp::{self, ActionContext, PortNames};
use crate::plane::ForwardingPlane;
use datapath::DpAction;
use flow::Key;

/// Actions on packets of this key.
pub(super) fn text(plane: &ForwardingPlane, actions: &[DpAction], key: &Key, names: PortNames<'_>) -> String {
    text_in(plane, actions, ActionContext::of(key), names)
}

/// The same in that context.
pub(super) fn text_in(
    plane: &ForwardingPlane,
    actions: &[DpAction],
    context: ActionContext,
    names: PortNames<'_>,
) -> String {
    let actions = plane.switch.with_states(actions, &plane.domain.register());
    odp::actions(&actions, context, names)
}
