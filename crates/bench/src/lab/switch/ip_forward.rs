//! The kernel's IP forwarding: routes to the frames' destinations, with neighbours that are known.

use super::bridge::InKernel;
use super::{Ask, Running, Setup, Switch};
use crate::lab::traffic::pattern::Vary;

/// See the module documentation.
pub struct IpForward;

impl Switch for IpForward {
    fn name(&self) -> &str {
        "ip-forward"
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
        if ask.pattern.vlan || ask.pattern.ipv6 || ask.pattern.vary == Vary::L2 {
            return Some(format!("the routes are for untagged IPv4, not for {}", ask.pattern));
        }
        (!ask.topology.is_pair())
            .then(|| "a route leads to one interface: it takes two ports only".to_string())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let (net, a, b) = (setup.net, setup.port(0), setup.port(1));
        let lines = [
            format!("address add 192.168.1.1/24 dev {a}"),
            format!("address add 192.168.2.1/24 dev {b}"),
            format!("link set {a} address {}", crate::lab::net::MAC),
            format!("link set {b} address {}", crate::lab::net::MAC_BACK),
            format!("neigh add 192.168.1.2 lladdr 02:00:00:00:00:08 dev {a}"),
            format!("neigh add 192.168.2.2 lladdr 02:00:00:00:00:09 dev {b}"),
            format!("route add 10.0.0.0/8 via 192.168.1.2 dev {a}"),
            format!("route add 11.0.0.0/8 via 192.168.2.2 dev {b}"),
        ];
        net.batch(&net.switch, &lines.join("\n"))?;
        let filters = format!("net.ipv4.conf.{a}.rp_filter=0 net.ipv4.conf.{b}.rp_filter=0");
        net.on(
            &net.switch,
            &format!("sysctl -qw net.ipv4.conf.all.rp_filter=0 {filters} net.ipv4.ip_forward=1"),
        )?;
        Ok(Box::new(InKernel("IP forwarding")))
    }
}
