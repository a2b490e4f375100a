//! `upcall/*`: how flows get into the caches. Workers translate packets themselves, so there are no upcalls.

use crate::state::Vswitch;
use std::fmt::Write;
use switch::by_hand::ByHand;

type Answer = Result<String, String>;

/// Workers translate themselves, so there are no upcalls and no revalidators: what is shown are the cached
/// flows, and those of each worker in the revalidators' place.
pub fn show(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    let flows = |n: usize| vswitch.plane.dp.worker_stats(n).megaflows.get();
    let total: u64 = (0..vswitch.plane.dp.workers()).map(flows).sum();
    let limit = vswitch.workers.flow_limit(&vswitch.plane);
    let mut text =
        format!("{}:\n  flows         : (current {total}) (limit {limit})\n", vswitch.plane.name());
    text += "  ufid enabled : false\n\n";
    for n in 0..vswitch.plane.dp.workers() {
        let _ = writeln!(text, "  {n}: (keys {})", flows(n));
    }
    Ok(text)
}

/// Limits the flows of each worker's caches until the configuration sets another limit. Restarts the workers,
/// like `other_config:flow-limit`.
pub fn set_flow_limit(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let limit = args[0].parse().map_err(|_| format!("{}: not a number of flows", args[0]))?;
    vswitch.workers.limit_flows(&mut vswitch.plane, limit);
    Ok(format!("set flow_limit to {limit}\n"))
}

/// Makes flows match only what decided them, which is the default.
pub fn enable_megaflows(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    set_by_hand(vswitch, |by_hand| by_hand.is_exact = false);
    Ok("megaflows enabled\n".into())
}

/// Makes each flow match its whole packet.
pub fn disable_megaflows(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    set_by_hand(vswitch, |by_hand| by_hand.is_exact = true);
    Ok("megaflows disabled\n".into())
}

/// Changes the manual overrides, and flushes all cached flows if that changes anything.
pub(super) fn set_by_hand(vswitch: &mut Vswitch, change: impl FnOnce(&mut ByHand)) {
    let mut by_hand = vswitch.plane.control.by_hand().clone();
    change(&mut by_hand);
    if by_hand != *vswitch.plane.control.by_hand() {
        vswitch.plane.control.set_by_hand(by_hand);
        vswitch.counts.flow_flushes += 1;
        vswitch.plane.dp.flush_flows();
    }
}

pub fn enable_ufid(_: &mut Vswitch, _: &[String]) -> Answer {
    Err("dumps always have the keys of flows; -m shows UFIDs beside them".into())
}

/// They are never used, so this is true already.
pub fn disable_ufid(_: &mut Vswitch, _: &[String]) -> Answer {
    Ok("Datapath dumping tersely using UFID disabled\n".into())
}
