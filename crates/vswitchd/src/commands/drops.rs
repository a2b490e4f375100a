//! `crosspoint/drops`: where packets were lost.

use crate::state::Vswitch;
use base::DropReason;
use std::fmt::Write;

/// Our own: packets dropped, by reason and input port; those that a driver dropped at its port.
pub fn drops(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let mut text = String::new();
    for &reason in DropReason::ALL {
        let total = vswitch.dp.drops(reason);
        if total == 0 {
            continue;
        }
        let _ = writeln!(text, "{}: {total}", reason.name());
        let mut elsewhere = total;
        for port in vswitch.ports.values() {
            let here = vswitch.dp.port_drops(port.port_no, reason);
            elsewhere = elsewhere.saturating_sub(here);
            if here > 0 {
                let _ = writeln!(text, "  {}: {here}", port.name);
            }
        }
        if elsewhere > 0 {
            let _ = writeln!(text, "  removed ports: {elsewhere}");
        }
    }
    Ok(text)
}
