//! `qos/*`. No port shapes its traffic, and both commands say so.

use crate::state::Vswitch;

fn check(vswitch: &Vswitch, name: &str) -> Result<(), String> {
    vswitch.devices.port_named(name).map(|_| ()).ok_or_else(|| "no such interface".into())
}

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    check(vswitch, &args[0]).map(|()| format!("QoS not configured on {}", args[0]))
}

pub fn show_types(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    check(vswitch, &args[0]).map(|()| format!("No QoS types supported for interface: {}", args[0]))
}
