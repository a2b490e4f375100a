//! The kernel's bridge between two ports, as CONTRIBUTING shows how to add a switch.

use super::{Ask, Forwards, Running, Setup, Switch};
use std::collections::BTreeMap;

/// The kernel's bridge, between two ports.
pub struct Hub;

impl Switch for Hub {
    fn name(&self) -> &str {
        "hub"
    }

    /// Costs of what forwards on the sender's time are compared otherwise.
    fn forwards(&self) -> Forwards {
        Forwards::Kernel
    }

    /// Why it cannot do this here: what it lacks, or which package is not installed.
    fn refuses(&self, ask: &Ask) -> Option<String> {
        (ask.needs_vhost_user() || !ask.topology.is_pair())
            .then(|| "the hub takes two interfaces only".into())
    }

    /// The namespace has `p0`, `p1` ... already; guests listen on their sockets.
    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let ports = [setup.port(0), setup.port(1)].map(|port| format!("link set {port} master hub0\n"));
        let lines = format!("link add hub0 type bridge\nlink set hub0 up\n{}", ports.concat());
        setup.net.batch(&setup.net.switch, &lines)?;
        Ok(Box::new(Started))
    }
}

/// It goes with its namespace. A switch with a process has it as a field, and returns it from `process`.
struct Started;

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        [("version".to_string(), format!("Linux {}", kernel.trim()))].into()
    }

    /// What it counts as dropped. The kernel's counters are read by the test bed.
    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        Ok(BTreeMap::new())
    }
}

#[test]
fn the_page_of_contributing_is_this_code() {
    let code = include_str!("example.rs").split("\n#[test]").next().unwrap();
    assert!(include_str!("../../../../../CONTRIBUTING.md").contains(&format!("```rust\n{code}```\n")));
    assert_eq!((Hub.name(), Hub.forwards()), ("hub", Forwards::Kernel));
}
