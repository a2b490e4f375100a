//! Identifiers that look alike and mean different things, each a type of its own.

use std::fmt;

/// A port of the datapath, unique over all bridges of the process. 0 is never a port: it means "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct PortNo(pub u32);

impl PortNo {
    /// No port: the input port of a packet that the control thread created.
    pub const NONE: PortNo = PortNo(0);
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A port's OpenFlow number, unique within its bridge. It has 16 bits in OpenFlow 1.0, with 0xff00 and above
/// reserved; later versions map the reserved ones to 0xffffff00 and above on the wire (OpenFlow 1.1 section
/// A.2.1). The switch uses the 16-bit form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OfPort(pub u16);

impl OfPort {
    /// Highest number that a real port can have is one below this.
    pub const MAX: OfPort = OfPort(0xff00);
    /// OpenFlow 1.5's "this output port is not set in the action set".
    pub const UNSET: OfPort = OfPort(0xfff7);
    /// Send back out of the input port.
    pub const IN_PORT: OfPort = OfPort(0xfff8);
    /// Submit to the flow tables (packet-out only).
    pub const TABLE: OfPort = OfPort(0xfff9);
    /// Process as a learning switch would.
    pub const NORMAL: OfPort = OfPort(0xfffa);
    /// All ports but the input port and those that forbid flooding.
    pub const FLOOD: OfPort = OfPort(0xfffb);
    /// All ports but the input port.
    pub const ALL: OfPort = OfPort(0xfffc);
    /// Send to the controllers.
    pub const CONTROLLER: OfPort = OfPort(0xfffd);
    /// The bridge's own port.
    pub const LOCAL: OfPort = OfPort(0xfffe);
    /// No port, or any port in a request.
    pub const NONE: OfPort = OfPort(0xffff);

    /// The 32-bit form of OpenFlow 1.1 and later.
    pub fn to_u32(self) -> u32 {
        if self.0 >= Self::MAX.0 { u32::from(self.0) | 0xffff_0000 } else { u32::from(self.0) }
    }

    /// From the 32-bit form; `None` for the numbers between, which the 16-bit form cannot represent.
    pub fn from_u32(number: u32) -> Option<OfPort> {
        match number {
            0..0xff00 => Some(OfPort(number as u16)),
            0xffff_ff00.. => Some(OfPort(number as u16)),
            _ => None,
        }
    }
}

/// The number of a worker (a PMD thread in Open vSwitch), from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WorkerIdx(pub u16);

/// A point in the history of the forwarding state: rules, MAC entries, port sets, bridge settings.
///
/// The control thread counts it up with each change that takes effect (a bundle is one). A packet is
/// translated at one version, and what appears or vanishes later is invisible to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Version(pub u64);

impl Version {
    /// Later than any version: the end of what has not been removed.
    pub const NEVER: Version = Version(u64::MAX);

    /// The version after this one.
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_widen_and_narrow_without_loss() {
        for p in [0u16, 1, 0xfeff, 0xff00, 0xfff8, 0xffff] {
            assert_eq!(OfPort::from_u32(OfPort(p).to_u32()), Some(OfPort(p)));
        }
        assert_eq!(OfPort::LOCAL.to_u32(), 0xffff_fffe);
        assert_eq!(OfPort::from_u32(0xff00), None);
        assert_eq!(OfPort::from_u32(0xffff_feff), None);
    }
}
