//! `crosspoint/drops`: where packets were lost; `crosspoint/figures`: all counters.

use crate::state::Vswitch;
use std::fmt::Write;

/// Our own: packets dropped, by reason and input port; those that a driver dropped at its port.
pub fn drops(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let mut text = String::new();
    for drop in vswitch.drop_figures() {
        let _ = writeln!(text, "{}: {}", drop.reason, drop.packets);
        let mut elsewhere = drop.packets;
        for (port, packets) in &drop.ports {
            elsewhere = elsewhere.saturating_sub(*packets);
            let _ = writeln!(text, "  {port}: {packets}");
        }
        if elsewhere > 0 {
            let _ = writeln!(text, "  removed ports: {elsewhere}");
        }
    }
    Ok(text)
}

/// Our own: the snapshot of all [figures](crate::figures), as JSON.
pub fn figures(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    Ok(vswitch.figures().to_json())
}
