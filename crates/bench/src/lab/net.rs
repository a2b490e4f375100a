//! Two namespaces: the switch's, with an end of a veth pair for each network interface of a topology (`p0`,
//! `p1` …), and the generator's, with the other ends (`e0`, `e1` …).

use crate::machine::lease::{self, Resource};
use crate::process::run;
use std::collections::BTreeMap;
use std::process::Command;

/// The address of `p0`, to which frames go, so that a switch that routes takes them.
pub const MAC: &str = "02:00:00:00:00:02";

/// See the module's text. Gone when dropped.
pub struct Net {
    /// The switch's namespace.
    pub switch: String,
    /// The generator's.
    pub outside: String,
}

impl Net {
    /// Makes both, with these pairs. None of them: one pair that leads from the generator to itself, `e0` and
    /// `e1`.
    pub fn new(pairs: &[usize]) -> Result<Net, String> {
        let prefix = format!("xpb{}", std::process::id());
        let (switch, outside) = (format!("{prefix}s"), format!("{prefix}o"));
        let net = Net { switch, outside };
        for name in [&net.switch, &net.outside] {
            lease::note(&Resource::Namespace(name))?;
            run(Command::new("ip").args(["netns", "add", name]))?;
        }
        if pairs.is_empty() {
            net.pair((&net.outside, "e0"), (&net.outside, "e1"))?;
        }
        for n in pairs {
            net.pair((&net.switch, &format!("p{n}")), (&net.outside, &format!("e{n}")))?;
        }
        if !pairs.is_empty() {
            net.on(&net.switch, &format!("ip link set p0 address {MAC}"))?;
        }
        Ok(net)
    }

    fn pair(&self, a: (&str, &str), b: (&str, &str)) -> Result<(), String> {
        run(Command::new("ip")
            .args(["link", "add", a.1, "netns", a.0, "type", "veth"])
            .args(["peer", "name", b.1, "netns", b.0]))?;
        for (namespace, interface) in [a, b] {
            // No neighbour discovery of the kernel's own between the packets that are counted.
            self.on(namespace, &format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1"))?;
            self.on(namespace, &format!("ip link set {interface} up"))?;
        }
        Ok(())
    }

    /// Runs a command in one of the namespaces.
    pub fn on(&self, namespace: &str, line: &str) -> Result<String, String> {
        run(Command::new("ip").args(["netns", "exec", namespace]).args(line.split_whitespace()))
    }

    /// Packets that the kernel counts as dropped at each end of each pair.
    pub fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut counts = BTreeMap::new();
        for namespace in [&self.switch, &self.outside] {
            let text = self.on(namespace, "ip -s -j link")?;
            let links: serde_json::Value =
                serde_json::from_str(&text).map_err(|e| format!("ip -s -j link: {e}"))?;
            for link in links.as_array().into_iter().flatten() {
                let name = link["ifname"].as_str().unwrap_or_default();
                if !name.starts_with(['p', 'e']) {
                    continue;
                }
                for direction in ["rx", "tx"] {
                    let count = link["stats64"][direction]["dropped"].as_u64().unwrap_or(0);
                    counts.insert(format!("kernel {name}: {direction}_dropped"), count);
                }
            }
        }
        Ok(counts)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.switch, &self.outside] {
            let _ = run(Command::new("ip").args(["netns", "del", name]));
        }
    }
}
