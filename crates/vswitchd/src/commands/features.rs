//! `dpif/show-dp-features`, `dpif/set-dp-features`, `dpif-netdev/dpif-impl-*`: what the datapath can do.
//!
//! In Open vSwitch translation avoids what a datapath cannot do, and tests make a datapath seem to lack
//! something. Here translation and the datapath are built together: what there is, is used, and cannot be
//! turned off.

use crate::state::Vswitch;
use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Is(bool),
    UpTo(usize),
}
use Value::{Is, UpTo};

/// Name, title and value of each feature, in the order in which they are shown.
const FEATURES: &[(&str, &str, Value)] = &[
    ("masked_set_action", "Masked set action", Is(true)),
    ("tnl_push_pop", "Tunnel push pop", Is(false)),
    ("ufid", "Ufid", Is(false)),
    ("trunc", "Truncate action", Is(true)),
    ("clone", "Clone action", Is(true)),
    ("sample_nesting", "Sample nesting", UpTo(switch::DEPTH_MAX as usize)),
    ("ct_eventmask", "Conntrack eventmask", Is(true)),
    ("ct_clear", "Conntrack clear", Is(true)),
    ("max_hash_alg", "Max dp_hash algorithm", UpTo(0)),
    ("check_pkt_len", "Check pkt length action", Is(true)),
    ("ct_timeout", "Conntrack timeout policy", Is(true)),
    ("explicit_drop_action", "Explicit Drop action", Is(true)),
    ("lb_output_action", "Optimized Balance TCP mode", Is(false)),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", Is(false)),
    ("add_mpls", "MPLS Label add", Is(false)),
    ("max_vlan_headers", "Max VLAN headers", UpTo(2)),
    ("max_mpls_depth", "Max MPLS depth", UpTo(3)),
    ("recirc", "Recirc", Is(true)),
    ("ct_state", "CT state", Is(true)),
    ("ct_zone", "CT zone", Is(true)),
    ("ct_mark", "CT mark", Is(true)),
    ("ct_label", "CT label", Is(true)),
    ("ct_state_nat", "CT state NAT", Is(true)),
    ("ct_orig_tuple", "CT orig tuple", Is(true)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", Is(true)),
    ("nd_ext", "IPv6 ND Extension", Is(false)),
];

fn shown(value: Value, yes: &str, no: &str) -> String {
    match value {
        Is(is) => if is { yes } else { no }.to_string(),
        UpTo(most) => most.to_string(),
    }
}

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let mut text = String::new();
    for (_, title, value) in FEATURES {
        let _ = writeln!(text, "{title}: {}", shown(*value, "Yes", "No"));
    }
    Ok(text)
}

/// Shows one feature or all. To set one to what it is succeeds; anything else is refused.
pub fn set(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    vswitch.bridge_named(&args[0]).ok_or("no such bridge")?;
    let line = |(name, title, value): &(&str, &str, Value)| {
        let value = shown(*value, "true", "false");
        format!("{name} (current) :{value}, (datapath) :{value}, {title}\n")
    };
    let Some(name) = args.get(1) else { return Ok(FEATURES.iter().map(line).collect()) };
    let found = FEATURES.iter().find(|(known, ..)| known == name).ok_or("Unexpected support field")?;
    let Some(asked) = args.get(2) else { return Ok(line(found)) };
    let value = match found.2 {
        Is(_) => Is(asked.to_lowercase().parse().map_err(|_| "Boolean value expected")?),
        UpTo(_) => UpTo(asked.parse().map_err(|_| "Integer number expected")?),
    };
    if value == found.2 {
        return Ok(String::new());
    }
    Err(format!("{name} is {} here, and cannot be changed", shown(found.2, "true", "false")))
}

/// There is one way of processing packets. Its workers are named by their cores.
pub fn impl_get(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let mut cores: Vec<String> =
        vswitch.workers.places().iter().map(|place| place.core.to_string()).collect();
    if cores.is_empty() {
        cores.push("none".into());
    }
    Ok(format!("Available DPIF implementations:\n  dpif_scalar (pmds: {})\n", cores.join(",")))
}

pub fn impl_set(_: &mut Vswitch, args: &[String]) -> Result<String, String> {
    match args[0].as_str() {
        "dpif_scalar" => Ok("DPIF implementation set to dpif_scalar.\n".into()),
        other => Err(format!("DPIF implementation {other} not found: there is dpif_scalar alone.\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_titles_are_unique() {
        let names: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.0).collect();
        let titles: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.1).collect();
        assert_eq!((names.len(), titles.len()), (FEATURES.len(), FEATURES.len()));
    }
}
