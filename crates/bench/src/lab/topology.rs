//! The packets' way through a switch, as data.

/// The peer of a port of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A network interface: one end of a veth pair, whose other end the generator has.
    Nic,
    /// A guest that sends back what comes.
    Guest,
    /// A guest that the generator plays: it sends or receives there.
    Station,
    /// A network interface without traffic.
    Idle,
}

/// How a guest is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vnic {
    /// Over a socket, in shared memory.
    VhostUser,
    /// Through a tap device: a kernel interface for the switch.
    Tap,
}

impl Vnic {
    /// Its name in stored results.
    pub fn name(self) -> &'static str {
        match self {
            Vnic::VhostUser => "vhost-user",
            Vnic::Tap => "tap",
        }
    }
}

/// A step of the way: what comes in by a port goes out by others.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Index of the port.
    pub from: usize,
    /// Indices of the ports.
    pub to: &'static [usize],
    /// For frames in the other direction.
    pub is_back: bool,
}

const fn there(from: usize, to: &'static [usize]) -> Hop {
    Hop { from, to, is_back: false }
}

const fn back(from: usize, to: &'static [usize]) -> Hop {
    Hop { from, to, is_back: true }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Topology {
    /// Its name on the command line and in stored results.
    pub name: &'static str,
    /// A description.
    pub what: &'static str,
    /// Its ports, by index.
    pub ports: &'static [End],
    /// All steps.
    pub hops: &'static [Hop],
    /// The ports that the generator sends into.
    pub sources: &'static [usize],
    /// Those of them that it sends into with source and destination swapped.
    pub backward: &'static [usize],
    /// Ports by which packets return only if a trial changes the rules.
    pub others: &'static [usize],
}

use End::{Guest, Idle, Nic, Station};

/// One way, from port 0.
const ONE: Topology =
    Topology { name: "", what: "", ports: &[], hops: &[], sources: &[0], backward: &[], others: &[] };

/// All topologies.
pub const TOPOLOGIES: &[Topology] = &[
    Topology { name: "P2P", what: "NIC to NIC", ports: &[Nic, Nic], hops: &[there(0, &[1])], ..ONE },
    Topology {
        name: "P2P-both",
        what: "NIC to NIC and back",
        ports: &[Nic, Nic],
        hops: &[there(0, &[1]), back(1, &[0])],
        sources: &[0, 1],
        backward: &[1],
        ..ONE
    },
    Topology {
        name: "P2P-turned",
        what: "NIC to NIC, or to another one where a rule says so",
        ports: &[Nic, Nic, Nic],
        hops: &[there(0, &[1])],
        others: &[2],
        ..ONE
    },
    Topology { name: "PV", what: "NIC to a guest", ports: &[Nic, Station], hops: &[there(0, &[1])], ..ONE },
    Topology { name: "VP", what: "guest to a NIC", ports: &[Station, Nic], hops: &[there(0, &[1])], ..ONE },
    Topology {
        name: "VV",
        what: "guest to guest",
        ports: &[Station, Station],
        hops: &[there(0, &[1])],
        ..ONE
    },
    Topology {
        name: "PVP",
        what: "NIC to a guest, and back to another NIC",
        ports: &[Nic, Guest, Nic],
        hops: &[there(0, &[1]), there(1, &[2])],
        ..ONE
    },
    Topology {
        name: "PVP-both",
        what: "NIC to a guest, and back to another NIC, in both directions",
        ports: &[Nic, Guest, Nic],
        hops: &[there(0, &[1]), there(1, &[2]), back(2, &[1]), back(1, &[0])],
        sources: &[0, 2],
        backward: &[2],
        ..ONE
    },
    Topology {
        name: "PVVP",
        what: "NIC through two guests to another NIC",
        ports: &[Nic, Guest, Guest, Nic],
        hops: &[there(0, &[1]), there(1, &[2]), there(2, &[3])],
        ..ONE
    },
    Topology {
        name: "PVV",
        what: "NIC through a guest to another guest",
        ports: &[Nic, Guest, Station],
        hops: &[there(0, &[1]), there(1, &[2])],
        ..ONE
    },
    Topology {
        name: "chain-4",
        what: "NIC through four guests to another NIC",
        ports: &[Nic, Guest, Guest, Guest, Guest, Nic],
        hops: &[there(0, &[1]), there(1, &[2]), there(2, &[3]), there(3, &[4]), there(4, &[5])],
        ..ONE
    },
    Topology {
        name: "clone-2",
        what: "NIC to two NICs, a copy each",
        ports: &[Nic, Nic, Nic],
        hops: &[there(0, &[1, 2])],
        ..ONE
    },
    Topology {
        name: "clone-3",
        what: "NIC to three NICs, a copy each",
        ports: &[Nic, Nic, Nic, Nic],
        hops: &[there(0, &[1, 2, 3])],
        ..ONE
    },
    Topology {
        name: "clone-8",
        what: "NIC to eight NICs, a copy each",
        ports: &[Nic, Nic, Nic, Nic, Nic, Nic, Nic, Nic, Nic],
        hops: &[there(0, &[1, 2, 3, 4, 5, 6, 7, 8])],
        ..ONE
    },
    Topology {
        name: "2-of-8",
        what: "NIC to NIC beside six idle ones",
        ports: &[Nic, Nic, Idle, Idle, Idle, Idle, Idle, Idle],
        hops: &[there(0, &[1])],
        ..ONE
    },
    Topology {
        name: "4-of-4",
        what: "two pairs of NICs, all busy",
        ports: &[Nic, Nic, Nic, Nic],
        hops: &[there(0, &[1]), there(2, &[3])],
        sources: &[0, 2],
        ..ONE
    },
    Topology {
        name: "6-of-6",
        what: "three pairs of NICs, all busy",
        ports: &[Nic, Nic, Nic, Nic, Nic, Nic],
        hops: &[there(0, &[1]), there(2, &[3]), there(4, &[5])],
        sources: &[0, 2, 4],
        ..ONE
    },
    Topology {
        name: "8-of-8",
        what: "four pairs of NICs, all busy",
        ports: &[Nic, Nic, Nic, Nic, Nic, Nic, Nic, Nic],
        hops: &[there(0, &[1]), there(2, &[3]), there(4, &[5]), there(6, &[7])],
        sources: &[0, 2, 4, 6],
        ..ONE
    },
    Topology {
        name: "direct",
        what: "the generator to a guest and back, with no switch between",
        ports: &[Guest],
        ..ONE
    },
    Topology { name: "loop", what: "the generator to itself, with neither switch nor guest between", ..ONE },
];

/// The topology of this name.
pub fn find(name: &str) -> Option<&'static Topology> {
    TOPOLOGIES.iter().find(|t| t.name == name)
}

impl Topology {
    /// Indices of the ports by which packets return to the generator.
    pub fn outputs(&self) -> Vec<usize> {
        let is_led_to = |n: &usize| self.hops.iter().any(|hop| hop.to.contains(n)) || self.others.contains(n);
        (0..self.ports.len()).filter(|n| self.ports[*n] != Guest && is_led_to(n)).collect()
    }

    /// How often each packet comes.
    pub fn copies(&self) -> u64 {
        let of = |source: &usize| self.hops.iter().find(|h| h.from == *source).map_or(1, |h| h.to.len());
        self.sources.iter().map(of).max().unwrap_or(1) as u64
    }

    /// Whether it has guests.
    pub fn has_guests(&self) -> bool {
        self.ports.iter().any(|end| matches!(end, Guest | Station))
    }

    /// Whether a switch is part of it.
    pub fn has_switch(&self) -> bool {
        !self.hops.is_empty()
    }

    /// Whether its traffic goes one way or both.
    pub fn direction(&self) -> &'static str {
        if self.backward.is_empty() { "one way" } else { "both ways" }
    }

    /// Whether forwarding each port to the next one, and back, suffices.
    pub fn is_pair(&self) -> bool {
        self.ports.len() == 2 && self.has_switch()
    }

    /// Whether each port forwards to the next.
    pub fn is_chain(&self) -> bool {
        self.hops.iter().all(|hop| hop.to == [hop.from + 1])
            && self.sources == [0]
            && self.others.is_empty()
            && !self.ports.contains(&Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_reaches_each_output_once() {
        for topology in TOPOLOGIES.iter().filter(|t| t.has_switch()) {
            let mut arrived = Vec::new();
            for source in topology.sources {
                let is_back = topology.backward.contains(source);
                let mut at = vec![*source];
                while let Some(port) = at.pop() {
                    let hops = topology.hops.iter().filter(|h| h.from == port && h.is_back == is_back);
                    for next in hops.flat_map(|h| h.to) {
                        match topology.ports[*next] {
                            Guest => at.push(*next),
                            _ => arrived.push(*next),
                        }
                    }
                }
            }
            let expected = topology.copies() as usize * topology.sources.len();
            assert_eq!(arrived.len(), expected, "{}", topology.name);
            arrived.extend(topology.others);
            arrived.sort_unstable();
            assert_eq!(arrived, topology.outputs(), "{}", topology.name);
        }
        assert_eq!(find("P2P-both").map(|t| (t.direction(), t.copies())), Some(("both ways", 1)));
        let is_chain = ["PVVP", "clone-2", "P2P-turned"].map(|name| find(name).unwrap().is_chain());
        assert_eq!(is_chain, [true, false, false]);
    }
}
