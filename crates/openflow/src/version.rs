//! Versions of OpenFlow and sets of versions, as negotiated by hello.

use std::fmt;

/// A version of the protocol; the number is that of the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Version {
    V10 = 1,
    V11 = 2,
    V12 = 3,
    V13 = 4,
    V14 = 5,
    V15 = 6,
}

impl Version {
    /// All, oldest first.
    pub const ALL: [Version; 6] =
        [Version::V10, Version::V11, Version::V12, Version::V13, Version::V14, Version::V15];

    /// From the number on the wire.
    pub fn from_wire(number: u8) -> Option<Version> {
        Self::ALL.into_iter().find(|&v| v as u8 == number)
    }

    /// N of OpenFlow 1.N.
    pub fn minor(self) -> u8 {
        self as u8 - 1
    }

    /// The name in options and the database: `OpenFlow13`.
    pub fn name(self) -> &'static str {
        match self {
            Version::V10 => "OpenFlow10",
            Version::V11 => "OpenFlow11",
            Version::V12 => "OpenFlow12",
            Version::V13 => "OpenFlow13",
            Version::V14 => "OpenFlow14",
            Version::V15 => "OpenFlow15",
        }
    }

    /// The name in messages printed by `ovs-ofctl`: `OF1.3`.
    pub fn short_name(self) -> &'static str {
        match self {
            Version::V10 => "OF1.0",
            Version::V11 => "OF1.1",
            Version::V12 => "OF1.2",
            Version::V13 => "OF1.3",
            Version::V14 => "OF1.4",
            Version::V15 => "OF1.5",
        }
    }

    /// From either name, in any case.
    pub fn from_name(name: &str) -> Option<Version> {
        Self::ALL
            .into_iter()
            .find(|v| name.eq_ignore_ascii_case(v.name()) || name.eq_ignore_ascii_case(v.short_name()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of version numbers, unknown ones included: bit N is set for number N on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct VersionSet(pub u64);

impl VersionSet {
    /// The versions that this crate encodes and decodes.
    pub const SUPPORTED: VersionSet = VersionSet::up_to(Version::V15 as u8);

    /// Just this one.
    pub const fn only(version: Version) -> VersionSet {
        VersionSet(1 << version as u8)
    }

    /// Every version up to this one: what a hello without a bitmap offers.
    pub const fn up_to(number: u8) -> VersionSet {
        let number = if number > 62 { 62 } else { number };
        VersionSet((2u64 << number) - 2)
    }

    /// Adds one.
    pub const fn with(self, version: Version) -> VersionSet {
        VersionSet(self.0 | 1 << version as u8)
    }

    /// Whether it is in the set.
    pub fn contains(self, version: Version) -> bool {
        self.0 & 1 << version as u8 != 0
    }

    /// Those in both.
    pub fn intersect(self, other: VersionSet) -> VersionSet {
        VersionSet(self.0 & other.0)
    }

    /// The greatest known version.
    pub fn greatest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|&v| self.contains(v))
    }

    /// In words, for hello's errors: `version 0x01`, `version 0x04 and earlier`, `versions 0x01, 0x04`.
    pub fn describe(self) -> String {
        let numbers: Vec<u32> = (0..64).filter(|n| self.0 >> n & 1 != 0).collect();
        match numbers[..] {
            [] => "no version".into(),
            [only] => format!("version 0x{only:02x}"),
            [1, .., last] if numbers.len() == last as usize => format!("version 0x{last:02x} and earlier"),
            _ => {
                let texts: Vec<String> = numbers.iter().map(|n| format!("0x{n:02x}")).collect();
                format!("versions {}", texts.join(", "))
            }
        }
    }

    /// The known versions, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Version> {
        Version::ALL.into_iter().filter(move |&v| self.contains(v))
    }
}

impl FromIterator<Version> for VersionSet {
    fn from_iter<I: IntoIterator<Item = Version>>(versions: I) -> Self {
        versions.into_iter().fold(VersionSet::default(), VersionSet::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_without_bitmap_offers_all_up_to_its_version() {
        assert_eq!(VersionSet::up_to(4).iter().count(), 4);
        assert_eq!(VersionSet::up_to(4).greatest(), Some(Version::V13));
        assert_eq!(VersionSet::up_to(255).greatest(), Some(Version::V15));
        assert_eq!(VersionSet::up_to(0).greatest(), None);
    }

    #[test]
    fn sets_are_described_as_in_hello_errors() {
        for (bits, text) in [
            (0, "no version"),
            (1 << 4, "version 0x04"),
            (0b110, "version 0x02 and earlier"),
            (0b1_0010, "versions 0x01, 0x04"),
            (0b11_1000_0000, "versions 0x07, 0x08, 0x09"),
        ] {
            assert_eq!(VersionSet(bits).describe(), text);
        }
    }

    #[test]
    fn names_are_read_back() {
        for v in Version::ALL {
            assert_eq!(Version::from_name(v.name()), Some(v));
            assert_eq!(Version::from_name(v.short_name()), Some(v));
            assert_eq!(Version::from_wire(v as u8), Some(v));
        }
    }
}
