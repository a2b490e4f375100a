//! Switches that suites name and this machine lacks: each says what it takes.

use super::{Ask, Running, Setup, Switch};
use std::path::Path;

/// FD.io's VPP.
pub struct Vpp;

const UNTRIED: &str = "measuring VPP is not implemented: Debian 12 has no package to try it with";

impl Switch for Vpp {
    fn name(&self) -> &str {
        "vpp"
    }

    fn refuses(&self, _ask: &Ask) -> Option<String> {
        Some(match Path::new("/usr/bin/vpp").exists() {
            true => UNTRIED.into(),
            false => "/usr/bin/vpp is missing: Debian has no package, FD.io's repository has one".into(),
        })
    }

    fn start(&self, _setup: &Setup) -> Result<Box<dyn Running>, String> {
        Err(UNTRIED.into())
    }
}
