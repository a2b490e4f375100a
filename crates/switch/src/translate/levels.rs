//! How deep a worker recurses to execute actions. Each level has a burst of packets in its frames, so rules
//! could overflow the stack if there were no bound.

use datapath::DpAction;

/// Maximum depth. A worker's stack has 64 kB for each level; a test executes as many in half of that.
pub(super) const LEVELS_MAX: usize = 128;

/// How deep executing a list recurses. Tracking and hashing execute the rest of the list within themselves,
/// since packets may go on apart.
pub(super) fn levels(actions: &[DpAction]) -> usize {
    let (mut rests, mut deepest) = (0, 0);
    for action in actions {
        let within = match action {
            DpAction::Clone(list) | DpAction::Sample { actions: list, .. } => 1 + levels(list),
            DpAction::CheckPktLen { greater, others, .. } => 1 + levels(greater).max(levels(others)),
            DpAction::Ct(_) | DpAction::Hash(_) => {
                rests += 1;
                0
            }
            _ => 0,
        };
        deepest = deepest.max(rests + within);
    }
    deepest
}
