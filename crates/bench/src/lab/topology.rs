//! The packets' way through a switch, as data.

/// What a port of the switch leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A network interface: one end of a veth pair, whose other end the generator has.
    Nic,
    /// A guest that sends back what comes, over vhost-user.
    Guest,
}

/// See the module's text. The generator sends into port 0 and receives at every other network interface.
#[derive(Debug)]
pub struct Topology {
    /// As it is typed and stored.
    pub name: &'static str,
    /// In words.
    pub what: &'static str,
    /// By index.
    pub ports: &'static [End],
    /// What comes in by a port goes out by these.
    pub rules: &'static [(usize, &'static [usize])],
}

use End::{Guest, Nic};

/// All of them; traffic goes one way.
pub const TOPOLOGIES: &[Topology] = &[
    Topology { name: "P2P", what: "NIC to NIC", ports: &[Nic, Nic], rules: &[(0, &[1])] },
    Topology {
        name: "PVP",
        what: "NIC to a guest, and back to another NIC",
        ports: &[Nic, Guest, Nic],
        rules: &[(0, &[1]), (1, &[2])],
    },
    Topology {
        name: "PVVP",
        what: "NIC through two guests to another NIC",
        ports: &[Nic, Guest, Guest, Nic],
        rules: &[(0, &[1]), (1, &[2]), (2, &[3])],
    },
    Topology {
        name: "clone-2",
        what: "NIC to two NICs, a copy each",
        ports: &[Nic, Nic, Nic],
        rules: &[(0, &[1, 2])],
    },
    Topology {
        name: "clone-3",
        what: "NIC to three NICs, a copy each",
        ports: &[Nic, Nic, Nic, Nic],
        rules: &[(0, &[1, 2, 3])],
    },
    Topology {
        name: "clone-8",
        what: "NIC to eight NICs, a copy each",
        ports: &[Nic, Nic, Nic, Nic, Nic, Nic, Nic, Nic, Nic],
        rules: &[(0, &[1, 2, 3, 4, 5, 6, 7, 8])],
    },
    Topology {
        name: "direct",
        what: "the generator to itself, with no switch between",
        ports: &[],
        rules: &[],
    },
];

/// The topology of this name.
pub fn find(name: &str) -> Option<&'static Topology> {
    TOPOLOGIES.iter().find(|t| t.name == name)
}

impl Topology {
    /// Indices of the ports by which packets come back to the generator.
    pub fn outputs(&self) -> Vec<usize> {
        (1..self.ports.len()).filter(|n| self.ports[*n] == Nic).collect()
    }

    /// How often each packet comes.
    pub fn copies(&self) -> u64 {
        self.outputs().len().max(1) as u64
    }

    /// Whether it has guests.
    pub fn has_guests(&self) -> bool {
        self.ports.contains(&Guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_reaches_each_output_once() {
        for topology in TOPOLOGIES.iter().filter(|t| t.name != "direct") {
            let mut at = vec![0];
            let mut arrived = Vec::new();
            while let Some(port) = at.pop() {
                let outputs = topology.rules.iter().find(|(from, _)| *from == port).unwrap().1;
                for &out in outputs {
                    if topology.ports[out] == Nic { arrived.push(out) } else { at.push(out) }
                }
            }
            arrived.sort_unstable();
            assert_eq!(arrived, topology.outputs(), "{}", topology.name);
        }
    }
}
