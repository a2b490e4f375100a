//! All switches.

use super::Switch;
use super::bridge::Bridge;
use super::crosspoint::{Crosspoint, is_program};
use super::ip_forward::IpForward;
use super::ovs::Ovs;
use super::testpmd::Testpmd;

/// Names of the switches of trials; `crosspoint@PATH` stands for another version.
pub const NAMES: &[&str] = &[
    "crosspoint",
    "crosspoint-af_packet",
    "ovs-netdev",
    "ovs-afxdp",
    "bridge",
    "ip-forward",
    "testpmd-io",
    "testpmd-mac",
    "testpmd-macswap",
];

/// The switch of this name.
pub fn find(name: &str) -> Result<Box<dyn Switch>, String> {
    if let Some(path) = name.strip_prefix("crosspoint@") {
        return match is_program(path) {
            true => Ok(Box::new(Crosspoint::other(path))),
            false => Err(format!("{name}: {path} is no program")),
        };
    }
    Ok(match name {
        "crosspoint" => Box::new(Crosspoint::this("crosspoint", "afxdp")?),
        "crosspoint-af_packet" => {
            Box::new(Crosspoint::this("crosspoint-af_packet", "system,driver=af_packet")?)
        }
        "ovs-netdev" => Box::new(Ovs { name: "ovs-netdev", port_type: "system" }),
        "ovs-afxdp" => Box::new(Ovs { name: "ovs-afxdp", port_type: "afxdp-nonpmd" }),
        "bridge" => Box::new(Bridge),
        "ip-forward" => Box::new(IpForward),
        "testpmd-io" => Box::new(Testpmd { name: "testpmd-io", mode: "io" }),
        "testpmd-mac" => Box::new(Testpmd { name: "testpmd-mac", mode: "mac" }),
        "testpmd-macswap" => Box::new(Testpmd { name: "testpmd-macswap", mode: "macswap" }),
        _ => return Err(format!("unknown switch {name}; known: {}, crosspoint@PATH", NAMES.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_switch_s_own() {
        for name in NAMES {
            assert_eq!(find(name).unwrap().name(), *name);
        }
        assert!(find("abacus").is_err() && find("crosspoint@/nonexistent").is_err());
    }
}
