//! The kernel's IP forwarding: a route to the frames' destinations by `p1`, with a neighbour that is known.

use super::bridge::InKernel;
use super::{Running, Setup, Switch};
use crate::lab::topology::Topology;

/// See the module's text.
pub struct IpForward;

impl Switch for IpForward {
    fn name(&self) -> &str {
        "ip-forward"
    }

    fn refuses(&self, topology: &Topology) -> Option<String> {
        (topology.name != "P2P").then(|| "a route leads to one interface".to_string())
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let net = setup.net;
        for line in [
            "ip address add 192.168.1.1/24 dev p0",
            "ip address add 192.168.2.1/24 dev p1",
            "ip route add 10.0.0.0/8 dev p0",
            "ip neigh add 192.168.2.2 lladdr 02:00:00:00:00:09 dev p1",
            "ip route add 11.0.0.0/8 via 192.168.2.2 dev p1",
            "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.p0.rp_filter=0 net.ipv4.ip_forward=1",
        ] {
            net.on(&net.switch, line)?;
        }
        Ok(Box::new(InKernel("IP forwarding")))
    }
}
