//! Addresses and types of Ethernet frames, which other protocols' headers have too.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address. Text form `aa:bb:cc:dd:ee:ff`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EthAddr(pub [u8; 6]);

impl EthAddr {
    /// `00:00:00:00:00:00`
    pub const ZERO: Self = Self([0; 6]);
    /// `ff:ff:ff:ff:ff:ff`
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it addresses all stations.
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether it addresses a group, including broadcast.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it addresses one station, not a group. The zero address counts as one.
    pub fn is_unicast(self) -> bool {
        !self.is_multicast()
    }

    /// `00:00:00:00:00:00`
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Locally administered (the second bit of the first byte).
    pub fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// `01:80:c2:00:00:00` to `01:80:c2:00:00:0f`: a bridge keeps these to itself (IEEE 802.1Q table 8-1).
    pub fn is_reserved(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, last] if last & 0xf0 == 0)
    }

    /// The address as a number below 2^48.
    pub fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// From a number; bits from 2^48 on are ignored.
    pub fn from_u64(value: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl fmt::Display for EthAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for EthAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not six groups of one or two hexadecimal digits with colons between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthAddrParseError;

impl fmt::Display for EthAddrParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid Ethernet address, want six hexadecimal bytes as in 0a:1b:2c:3d:4e:5f")
    }
}

impl std::error::Error for EthAddrParseError {}

impl FromStr for EthAddr {
    type Err = EthAddrParseError;

    fn from_str(text: &str) -> std::result::Result<Self, EthAddrParseError> {
        let mut groups = text.split(':');
        let mut out = [0; 6];
        for byte in &mut out {
            let group = groups.next().ok_or(EthAddrParseError)?;
            // from_str_radix would take a sign.
            if group.len() > 2 || !group.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(EthAddrParseError);
            }
            *byte = u8::from_str_radix(group, 16).map_err(|_| EthAddrParseError)?;
        }
        match groups.next() {
            None => Ok(Self(out)),
            Some(_) => Err(EthAddrParseError),
        }
    }
}

/// An Ethernet type, as a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EtherType(pub u16);

#[allow(missing_docs)] // Each constant is the protocol it names.
impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    pub const TEB: Self = Self(0x6558);
    pub const RARP: Self = Self(0x8035);
    pub const VLAN: Self = Self(0x8100);
    pub const IPV6: Self = Self(0x86dd);
    pub const SLOW: Self = Self(0x8809);
    pub const MPLS: Self = Self(0x8847);
    pub const MPLS_MULTICAST: Self = Self(0x8848);
    pub const QINQ: Self = Self(0x88a8);
    pub const LLDP: Self = Self(0x88cc);
    pub const NSH: Self = Self(0x894f);

    /// A length of an 802.3 frame rather than a type.
    pub fn is_length(self) -> bool {
        self.0 < 0x600
    }

    /// 802.1Q or 802.1ad: a VLAN tag follows.
    pub fn is_vlan(self) -> bool {
        self == Self::VLAN || self == Self::QINQ
    }

    /// Unicast or multicast MPLS: a label stack follows.
    pub fn is_mpls(self) -> bool {
        self == Self::MPLS || self == Self::MPLS_MULTICAST
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
