//! The encodings of flows in OpenFlow and its Nicira extension ("flow formats"), and which of them can
//! express a flow.

use super::{TextError, bad};
use crate::version::{Version, VersionSet};
use flow::Mf;
use std::fmt;

/// One encoding of flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Protocol {
    Of10,
    Of10TableId,
    Nxm,
    NxmTableId,
    Of11,
    Of12,
    Of13,
    Of14,
    Of15,
}

impl Protocol {
    const ALL: [Protocol; 9] = [
        Protocol::Of10,
        Protocol::Of10TableId,
        Protocol::Nxm,
        Protocol::NxmTableId,
        Protocol::Of11,
        Protocol::Of12,
        Protocol::Of13,
        Protocol::Of14,
        Protocol::Of15,
    ];

    /// The name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Of10 => "OpenFlow10-table_id",
            Protocol::Of10TableId => "OpenFlow10+table_id",
            Protocol::Nxm => "NXM-table_id",
            Protocol::NxmTableId => "NXM+table_id",
            Protocol::Of11 => "OpenFlow11",
            Protocol::Of12 => "OXM-OpenFlow12",
            Protocol::Of13 => "OXM-OpenFlow13",
            Protocol::Of14 => "OXM-OpenFlow14",
            Protocol::Of15 => "OXM-OpenFlow15",
        }
    }

    /// The version of its messages.
    pub fn version(self) -> Version {
        match self {
            Protocol::Of11 => Version::V11,
            Protocol::Of12 => Version::V12,
            Protocol::Of13 => Version::V13,
            Protocol::Of14 => Version::V14,
            Protocol::Of15 => Version::V15,
            _ => Version::V10,
        }
    }

    /// The plain encoding of a version.
    pub fn of_version(version: Version) -> Protocol {
        match version {
            Version::V10 => Protocol::Of10,
            Version::V11 => Protocol::Of11,
            Version::V12 => Protocol::Of12,
            Version::V13 => Protocol::Of13,
            Version::V14 => Protocol::Of14,
            Version::V15 => Protocol::Of15,
        }
    }

    /// Whether flow-mods contain a table through the extension NXT_FLOW_MOD_TABLE_ID.
    pub fn has_table_id_extension(self) -> bool {
        matches!(self, Protocol::Of10TableId | Protocol::NxmTableId)
    }

    /// Whether it is the Nicira extension's encoding.
    pub fn is_nxm(self) -> bool {
        matches!(self, Protocol::Nxm | Protocol::NxmTableId)
    }
}

/// A set of encodings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Protocols(u16);

impl Protocols {
    /// None.
    pub const NONE: Protocols = Protocols(0);
    /// All.
    pub const ANY: Protocols = Protocols(0x1ff);
    /// OpenFlow 1.0, in its own encoding.
    pub const OF10: Protocols = Protocols(0b11);
    /// OpenFlow 1.0 in either encoding.
    pub const OF10_ANY: Protocols = Protocols(0b1111);
    /// The extension's to 1.0.
    pub const NXM: Protocols = Protocols(0b1100);
    /// OpenFlow 1.1 and later.
    pub const OF11_UP: Protocols = Protocols(0b1_1111_0000);
    /// OpenFlow 1.2 and later.
    pub const OXM: Protocols = Protocols(0b1_1110_0000);
    /// OpenFlow 1.3 and later.
    pub const OF13_UP: Protocols = Protocols(0b1_1100_0000);
    /// NXM and OXM.
    pub const NXM_OXM: Protocols = Protocols(0b1_1110_1100);
    /// NXM, and OpenFlow 1.1 and later.
    pub const NXM_OF11_UP: Protocols = Protocols(0b1_1111_1100);
    /// Those in which a flow-mod contains its table.
    pub const WITH_TABLE: Protocols = Protocols(0b1_1111_1010);
    /// Those in which a modify or delete can select by cookie.
    pub const WITH_COOKIE_MASK: Protocols = Protocols::NXM_OF11_UP;
    const ABBREVIATIONS: [(&'static str, Protocols); 3] =
        [("OpenFlow10", Protocols::OF10), ("NXM", Protocols::NXM), ("OXM", Protocols::OXM)];

    /// Just one.
    pub fn only(protocol: Protocol) -> Protocols {
        Protocols(1 << protocol as u8)
    }

    /// Those of the versions' messages.
    pub fn of_versions(versions: VersionSet) -> Protocols {
        let of = Protocol::ALL.into_iter().filter(|p| versions.contains(p.version()));
        Protocols(of.fold(0, |acc, p| acc | 1 << p as u8))
    }

    /// Whether it is in the set.
    pub fn contains(self, protocol: Protocol) -> bool {
        self.0 & 1 << protocol as u8 != 0
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    pub fn intersect(self, other: Protocols) -> Protocols {
        Protocols(self.0 & other.0)
    }

    /// Those in either.
    pub fn union(self, other: Protocols) -> Protocols {
        Protocols(self.0 | other.0)
    }

    /// One after the other, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Protocol> {
        Protocol::ALL.into_iter().filter(move |&p| self.contains(p))
    }

    /// Those that can match a field with a mask.
    pub fn of_field(mf: Mf, value: u128, mask: u128) -> Protocols {
        let exact = mask == mf.ones();
        match mf {
            _ if mask == 0 => Protocols::ANY,
            // Fields that exist only in the datapath.
            _ if mf.wires().next().is_none() && !matches!(mf, Mf::DlVlan | Mf::DlVlanPcp) => Protocols::NONE,
            // The whole tag with or without it, as 1.0 has it.
            Mf::VlanTci if exact => Protocols::ANY,
            Mf::VlanVid if exact => Protocols::ANY,
            Mf::DlVlan | Mf::DlVlanPcp | Mf::VlanPcp => Protocols::ANY,
            Mf::EthSrc | Mf::EthDst if !exact => Protocols::NXM_OXM.union(Protocols::only(Protocol::Of11)),
            Mf::NwSrc | Mf::NwDst | Mf::ArpSpa | Mf::ArpTpa => {
                if is_prefix(mask as u32) {
                    Protocols::ANY
                } else {
                    Protocols::NXM_OXM.union(Protocols::only(Protocol::Of11))
                }
            }
            Mf::SctpSrc | Mf::SctpDst | Mf::MplsLabel | Mf::MplsTc | Mf::NwEcn if exact => {
                Protocols::NXM_OXM.union(Protocols::only(Protocol::Of11))
            }
            Mf::Metadata | Mf::InPortOxm => Protocols::NXM_OXM.union(Protocols::only(Protocol::Of11)),
            Mf::IpDscp if exact => Protocols::ANY,
            _ if exact && mf.row().of10 && value <= mf.ones() => Protocols::ANY,
            _ => Protocols::NXM_OXM,
        }
    }

    /// Reads what the option `--flow-format` takes: names and abbreviations with commas between.
    pub fn parse(text: &str) -> Result<Protocols, TextError> {
        let mut all = Protocols::NONE;
        for name in text.split([',', ' ']).filter(|name| !name.is_empty()) {
            let one =
                Protocol::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(name)).map(Protocols::only);
            let several = || {
                Self::ABBREVIATIONS.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, p)| p)
            };
            let any = || name.eq_ignore_ascii_case("any").then_some(Protocols::ANY);
            match one.or_else(several).or_else(any) {
                Some(protocols) => all = all.union(protocols),
                None => return bad!("{name}: unknown flow protocol"),
            }
        }
        if all.is_empty() { bad!("no flow protocol specified") } else { Ok(all) }
    }
}

fn is_prefix(mask: u32) -> bool {
    mask.leading_ones() + mask.trailing_zeros() >= 32
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        if *self == Protocols::ANY {
            return f.write_str("any");
        }
        let mut left = self.0;
        let mut names = Vec::new();
        for (name, protocols) in Self::ABBREVIATIONS {
            if left & protocols.0 == protocols.0 {
                names.push(name);
                left &= !protocols.0;
            }
        }
        names.extend(Protocols(left).iter().map(Protocol::name));
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_by_abbreviations_first() {
        let cases = [
            (Protocols::ANY, "any"),
            (Protocols::NXM_OXM, "NXM,OXM"),
            (Protocols::WITH_TABLE, "OXM,OpenFlow10+table_id,NXM+table_id,OpenFlow11"),
            (Protocols::OF10_ANY, "OpenFlow10,NXM"),
            (Protocols::OF13_UP, "OXM-OpenFlow13,OXM-OpenFlow14,OXM-OpenFlow15"),
            (Protocols::NONE, "none"),
        ];
        for (set, text) in cases {
            assert_eq!(set.to_string(), text);
            if !set.is_empty() {
                assert_eq!(Protocols::parse(text), Ok(set));
            }
        }
        assert!(Protocols::parse("foo").is_err());
    }
}
