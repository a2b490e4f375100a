//! A network interface of the machine that a run borrows: it is moved into a namespace under another name,
//! and comes back with its own name, hardware address and MTU, and up if it was. Its addresses and routes,
//! and what was set by `ethtool`, do not survive that.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Where it is, and its name there.
    pub namespace: String,
    pub name: String,
    /// What it was.
    original: String,
    mac: String,
    mtu: u32,
    is_up: bool,
}

/// As a line of a journal, which [`Interface::parse`] reads.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interface { namespace, name, original, mac, mtu, is_up } = self;
        write!(f, "{namespace} {name} {original} {mac} {mtu} {is_up}")
    }
}

impl Interface {
    /// What is to be borrowed, as it is now.
    pub fn find(original: &str, namespace: &str, name: &str) -> Result<Interface, String> {
        let text = ip(&["-j", "link", "show", "dev", original])?;
        let links: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| format!("ip -j link show dev {original}: {e}"))?;
        let link = &links[0];
        let flags = link["flags"].as_array();
        Ok(Interface {
            namespace: namespace.into(),
            name: name.into(),
            original: original.into(),
            mac: link["address"].as_str().ok_or_else(|| format!("{original} has no address"))?.into(),
            mtu: link["mtu"].as_u64().and_then(|mtu| mtu.try_into().ok()).unwrap_or(1_500),
            is_up: flags.is_some_and(|flags| flags.iter().any(|flag| flag == "UP")),
        })
    }

    /// From a journal's line.
    pub fn parse(line: &str) -> Option<Interface> {
        let words: Vec<&str> = line.split(' ').collect();
        let [namespace, name, original, mac, mtu, is_up] = words[..] else { return None };
        Some(Interface {
            namespace: namespace.into(),
            name: name.into(),
            original: original.into(),
            mac: mac.into(),
            mtu: mtu.parse().ok()?,
            is_up: is_up.parse().ok()?,
        })
    }

    /// Moves it. It takes frames to any address there, as the end of a veth pair does, and has as many queues
    /// as are wanted, if its driver can.
    pub fn take(&self, mtu: u16, queues: usize) -> Result<(), String> {
        let Interface { namespace, name, original, .. } = self;
        ip(&["link", "set", "dev", original, "down"])?;
        ip(&["link", "set", "dev", original, "netns", namespace, "name", name])?;
        ip(&["-n", namespace, "link", "set", "dev", name, "mtu", &mtu.to_string(), "promisc", "on"])?;
        // Virtual devices cannot, and one that has this number says so by an error, too.
        let _ = self.ethtool(&["-L", name, "combined", &queues.to_string()]);
        Ok(())
    }

    /// The driver, once it was taken.
    pub fn driver(&self) -> Result<String, String> {
        let text = self.ethtool(&["-i", &self.name])?;
        let driver = text.lines().find_map(|line| line.strip_prefix("driver: "));
        Ok(driver.unwrap_or("unknown").trim().into())
    }

    fn ethtool(&self, args: &[&str]) -> Result<String, String> {
        ip(&[&["netns", "exec", &self.namespace, "ethtool"], args].concat())
    }

    /// Moves it back, into the namespace of this process, if it is away, and makes it what it was. Returns
    /// whether it was away. All is tried, whatever fails first.
    pub fn give_back(&self) -> Result<bool, String> {
        let Interface { namespace, name, original, mac, mtu, is_up } = self;
        let is_away = self.is_away();
        if is_away {
            let here = std::process::id().to_string();
            ip(&["-n", namespace, "link", "set", "dev", name, "down", "promisc", "off"])?;
            ip(&["-n", namespace, "link", "set", "dev", name, "netns", &here, "name", original])?;
        }
        let address = ip(&["link", "set", "dev", original, "address", mac]);
        let mtu = ip(&["link", "set", "dev", original, "mtu", &mtu.to_string()]);
        let up = if *is_up { ip(&["link", "set", "dev", original, "up"]) } else { Ok(String::new()) };
        address.and(mtu).and(up).map(|_| is_away)
    }

    /// What it was called.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Whether it is still in a namespace that a run had.
    fn is_away(&self) -> bool {
        Path::new("/run/netns").join(&self.namespace).exists()
            && ip(&["-n", &self.namespace, "link", "show", "dev", &self.name]).is_ok()
    }
}

/// Runs `ip`, which Ctrl-C at a terminal does not reach. Returns what it prints.
fn ip(args: &[&str]) -> Result<String, String> {
    let command = || format!("ip {}", args.join(" "));
    let output =
        Command::new("ip").args(args).process_group(0).output().map_err(|e| format!("{}: {e}", command()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{}: {}", command(), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_journal_says_is_read_as_it_was_written() {
        let interface = Interface {
            namespace: "xpb1s".into(),
            name: "p0".into(),
            original: "enp1s0".into(),
            mac: "02:00:00:00:00:07".into(),
            mtu: 9_000,
            is_up: true,
        };
        assert_eq!(Interface::parse(&interface.to_string()), Some(interface));
        assert_eq!(Interface::parse("xpb1s p0 enp1s0 02:00:00:00:00:07 many true"), None);
    }

    #[test]
    fn what_is_not_there_cannot_be_borrowed() {
        let why = Interface::find("no-such-device", "x", "p0").unwrap_err();
        assert!(why.contains("no-such-device"), "{why}");
    }
}
