//! Switches that suites name and this machine lacks: each says what it takes.

use super::{Ask, Running, Setup, Switch};
use std::path::Path;

/// Open vSwitch's kernel datapath.
pub struct OvsKernel;

impl Switch for OvsKernel {
    fn name(&self) -> &str {
        "ovs-kernel"
    }

    fn refuses(&self, _ask: &Ask) -> Option<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim();
        let module = format!("/lib/modules/{release}/kernel/net/openvswitch");
        let is_there = Path::new("/sys/module/openvswitch").exists() || Path::new(&module).exists();
        Some(match is_there {
            true => "measuring the kernel datapath is not implemented".into(),
            false => format!("the kernel {release} has no openvswitch module (CONFIG_OPENVSWITCH)"),
        })
    }

    fn start(&self, _setup: &Setup) -> Result<Box<dyn Running>, String> {
        Err("measuring the kernel datapath is not implemented".into())
    }
}

/// FD.io's VPP.
pub struct Vpp;

impl Switch for Vpp {
    fn name(&self) -> &str {
        "vpp"
    }

    fn refuses(&self, _ask: &Ask) -> Option<String> {
        Some(match Path::new("/usr/bin/vpp").exists() {
            true => "measuring VPP is not implemented".into(),
            false => "/usr/bin/vpp is missing: Debian has no package, FD.io's repository has one".into(),
        })
    }

    fn start(&self, _setup: &Setup) -> Result<Box<dyn Running>, String> {
        Err("measuring VPP is not implemented".into())
    }
}
