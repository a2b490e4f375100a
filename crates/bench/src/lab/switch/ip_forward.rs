//! The kernel's IP forwarding: routes to the frames' destinations, with neighbours that are known. Beyond two
//! ports each has a table of its own, whose routes lead to where its hops end, one for each direction.

use super::bridge::InKernel;
use super::{Ask, Forwards, Running, Setup, Switch};
use crate::lab::net::{MAC, MAC_BACK};
use crate::lab::traffic::pattern::{Protocol, Vary};

/// See the module documentation.
pub struct IpForward;

impl Switch for IpForward {
    fn name(&self) -> &str {
        "ip-forward"
    }

    fn words(&self) -> &str {
        "the kernel's IP forwarding"
    }

    fn forwards(&self) -> Forwards {
        Forwards::Kernel
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        if ask.needs_vhost_user() {
            return Some("the kernel has no vhost-user; a guest behind a tap device it can have".into());
        }
        if ask.is_foreign {
            return Some(
                "the routes are for addresses of the built-in generator, which this one does not send".into(),
            );
        }
        let is_capture = matches!(ask.pattern.protocol, Protocol::Pcap(_));
        if is_capture || ask.pattern.vlan || ask.pattern.ipv6 || ask.pattern.vary == Vary::L2 {
            return Some(format!("the routes are for untagged IPv4, not for {}", ask.pattern));
        }
        let copies = ask.topology.hops.iter().any(|hop| hop.to.len() > 1);
        copies.then(|| "a route leads to one interface only, and makes no copies".into())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        match setup.topology.is_pair() {
            true => to_and_fro(setup)?,
            false => hop_by_hop(setup)?,
        }
        let net = setup.net;
        let ports = (0..setup.topology.ports.len()).map(|n| setup.port(n));
        let filters: String = ports.map(|port| format!(" net.ipv4.conf.{port}.rp_filter=0")).collect();
        net.on(
            &net.switch,
            &format!("sysctl -qw net.ipv4.conf.all.rp_filter=0{filters} net.ipv4.ip_forward=1"),
        )?;
        Ok(Box::new(InKernel("IP forwarding")))
    }
}

/// Routes to both directions' destinations.
fn to_and_fro(setup: &Setup) -> Result<(), String> {
    let (a, b) = (setup.port(0), setup.port(1));
    let lines = [
        format!("address add 192.168.1.1/24 dev {a}"),
        format!("address add 192.168.2.1/24 dev {b}"),
        format!("link set {a} address {MAC}"),
        format!("link set {b} address {MAC_BACK}"),
        format!("neigh add 192.168.1.2 lladdr 02:00:00:00:00:08 dev {a}"),
        format!("neigh add 192.168.2.2 lladdr 02:00:00:00:00:09 dev {b}"),
        format!("route add 10.0.0.0/8 via 192.168.1.2 dev {a}"),
        format!("route add 11.0.0.0/8 via 192.168.2.2 dev {b}"),
    ];
    setup.net.batch(&setup.net.switch, &lines.join("\n"))
}

/// A table for each port by which packets come in. What is sent to a guest has the address of the interface
/// that it comes back by, so that it is taken there.
fn hop_by_hop(setup: &Setup) -> Result<(), String> {
    let topology = setup.topology;
    let mut lines = String::new();
    for index in 0..topology.ports.len() {
        let address = match topology.sources.contains(&index) {
            true if topology.backward.contains(&index) => MAC_BACK.into(),
            true => MAC.into(),
            false => own_address(index),
        };
        let port = setup.port(index);
        lines += &format!("address add 192.168.{index}.1/24 dev {port}\nlink set {port} address {address}\n");
        if topology.hops.iter().any(|hop| hop.from == index) {
            lines += &format!("rule add iif {port} lookup {}\n", table(index));
        }
    }
    for hop in topology.hops {
        let (at, table) = (hop.to[0], table(hop.from));
        let (to, network) = (setup.port(at), if hop.is_back { "10.0.0.0/8" } else { "11.0.0.0/8" });
        lines += &format!("neigh replace 192.168.{at}.2 lladdr {} dev {to}\n", own_address(at));
        lines += &format!("route add {network} via 192.168.{at}.2 dev {to} table {table}\n");
    }
    setup.net.batch(&setup.net.switch, &lines)
}

/// The routes of what comes in by a port.
fn table(index: usize) -> usize {
    100 + index
}

fn own_address(index: usize) -> String {
    format!("02:00:00:00:0f:{index:02x}")
}
