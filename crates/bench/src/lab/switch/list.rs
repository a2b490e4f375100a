//! All switches.

use super::bridge::Bridge;
use super::crosspoint::{Crosspoint, is_program};
use super::ip_forward::IpForward;
use super::loops::{Kind as LoopKind, Loop};
use super::ovs::{Kind, Ovs};
use super::testpmd::Testpmd;
use super::vpp::Vpp;
use super::{Forwards, Switch};

/// Names of the switches of trials; `crosspoint@PATH` stands for another version.
pub const NAMES: &[&str] = &[
    "crosspoint",
    "crosspoint-af_packet",
    "crosspoint-2q",
    "crosspoint-no-retries",
    "crosspoint-never-sleeps",
    "loop-rebuilt",
    "loop-kept",
    "loop-one",
    "loop-fifty",
    "ovs-netdev",
    "ovs-afxdp",
    "ovs-afxdp-polled",
    "ovs-dpdk",
    "ovs-kernel",
    "bridge",
    "ip-forward",
    "testpmd-io",
    "testpmd-mac",
    "testpmd-macswap",
    "vpp",
];

/// The switch of this name.
pub fn find(name: &str) -> Result<Box<dyn Switch>, String> {
    if let Some(path) = name.strip_prefix("crosspoint@") {
        return match is_program(path) {
            true => Ok(Box::new(Crosspoint::other(path))),
            false => Err(format!("{name}: {path} is not a program: give the path of a crosspoint binary")),
        };
    }
    Ok(match name {
        "crosspoint" => Box::new(Crosspoint::this("crosspoint", true)?),
        "crosspoint-af_packet" => Box::new(Crosspoint::this("crosspoint-af_packet", false)?),
        "crosspoint-2q" => Box::new(Crosspoint::this(name, false)?.with_workers(2)),
        "crosspoint-no-retries" => {
            Box::new(Crosspoint::this(name, true)?.with_guest_options(",tx-retries-max=0"))
        }
        "crosspoint-never-sleeps" => Box::new(Crosspoint::this(name, true)?.with_flags(&["--never-sleep"])),
        "loop-rebuilt" => Box::new(Loop { name: "loop-rebuilt", kind: LoopKind::Rebuilt }),
        "loop-kept" => Box::new(Loop { name: "loop-kept", kind: LoopKind::Kept }),
        "loop-one" => Box::new(Loop { name: "loop-one", kind: LoopKind::One }),
        "loop-fifty" => Box::new(Loop { name: "loop-fifty", kind: LoopKind::Fifty }),
        "ovs-netdev" => Box::new(Ovs { name: "ovs-netdev", kind: Kind::System }),
        "ovs-afxdp" => Box::new(Ovs { name: "ovs-afxdp", kind: Kind::Afxdp }),
        "ovs-afxdp-polled" => Box::new(Ovs { name: "ovs-afxdp-polled", kind: Kind::AfxdpPolled }),
        "ovs-dpdk" => Box::new(Ovs { name: "ovs-dpdk", kind: Kind::Dpdk }),
        "ovs-kernel" => Box::new(Ovs { name: "ovs-kernel", kind: Kind::Kernel }),
        "bridge" => Box::new(Bridge),
        "ip-forward" => Box::new(IpForward),
        "testpmd-io" => Box::new(Testpmd { name: "testpmd-io", mode: "io" }),
        "testpmd-mac" => Box::new(Testpmd { name: "testpmd-mac", mode: "mac" }),
        "testpmd-macswap" => Box::new(Testpmd { name: "testpmd-macswap", mode: "macswap" }),
        "vpp" => Box::new(Vpp),
        _ => return Err(unknown(name, NAMES)),
    })
}

/// What is wrong with a name that is none of these.
pub fn unknown(name: &str, known: &[&str]) -> String {
    let hint = base::suggest::hint(name, known);
    format!("unknown switch {name}; known: {}, crosspoint@PATH{hint}", known.join(", "))
}

/// The switch that a stored result names: a measurement leaves out the mode (`testpmd`). `None` for another
/// version of ours, which may be gone, and for what is no switch of trials.
pub fn stored(name: &str) -> Option<Box<dyn Switch>> {
    let of_mode = |full: &&&str| full.strip_prefix(name).is_some_and(|mode| mode.starts_with('-'));
    let name = NAMES.iter().find(|full| **full == name).or_else(|| NAMES.iter().find(of_mode));
    find(name?).ok()
}

/// What forwards, by the name in stored results.
pub fn forwards(name: &str) -> Forwards {
    stored(name).map_or(Forwards::Process, |switch| switch.forwards())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forwards_is_the_switch_s_own_word() {
        let of = |names: &[&str]| names.iter().map(|name| forwards(name)).collect::<Vec<_>>();
        assert_eq!(of(&["bridge", "ip-forward", "ovs-kernel"]), [Forwards::Kernel; 3]);
        assert_eq!(of(&["testpmd", "testpmd-io", "testpmd-macswap", "loop-kept"]), [Forwards::Floor; 4]);
        assert_eq!(
            of(&["crosspoint", "crosspoint@/gone", "ovs", "ovs-dpdk", "veth"]),
            [Forwards::Process; 5]
        );
        assert_eq!(stored("ip-forward").unwrap().words(), "the kernel's IP forwarding");
    }

    #[test]
    fn every_name_is_a_switch_s_own() {
        for name in NAMES {
            assert_eq!(find(name).unwrap().name(), *name);
        }
        assert!(find("abacus").is_err());
        let refused = |name: &str| find(name).err().unwrap();
        assert!(refused("ovs-dpkd").ends_with(", crosspoint@PATH (did you mean 'ovs-dpdk'?)"));
        assert!(
            refused("crosspoint@/nonexistent")
                .ends_with("is not a program: give the path of a crosspoint binary")
        );
    }
}
