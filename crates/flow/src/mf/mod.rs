//! The fields as rules and actions name them ("match fields"): each is a slice of a key field, or of several.
//!
//! The key has one place for each piece of data, while OpenFlow names several views of it: `tp_src` in the
//! key is `tcp_src`, `udp_src`, `sctp_src`, `icmp_type` and `icmpv6_type`, each with its own prerequisites
//! and wire codes.

use crate::field::FieldId;
use crate::key::{B_REGS, Key, Mask};
use crate::matching::Match;
use std::collections::HashMap;
use std::sync::LazyLock;

mod row;
mod table;

pub use row::{Format, Maskable, Mf, Prereq, Row, Wire};

/// A header of NXM or OXM: class, number, has-mask bit, length, and the experimenter of class 0xffff.
///
/// The upper 32 bits are the header as on the wire, the lower 32 the experimenter, or 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NxmHeader(pub u64);

impl NxmHeader {
    /// From its parts. `payload` counts value and mask, without the experimenter.
    pub const fn new(wire: Wire, has_mask: bool, payload: usize) -> NxmHeader {
        let length = payload + if wire.class == 0xffff { 4 } else { 0 };
        let head =
            (wire.class as u64) << 16 | (wire.number as u64) << 9 | (has_mask as u64) << 8 | length as u64;
        NxmHeader(head << 32 | wire.experimenter as u64)
    }

    /// OXM class.
    pub const fn class(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Number in the class.
    pub const fn number(self) -> u8 {
        (self.0 >> 41) as u8 & 0x7f
    }

    /// Whether a mask follows the value.
    pub const fn has_mask(self) -> bool {
        self.0 >> 40 & 1 != 0
    }

    /// The length on the wire: what follows the first four bytes.
    pub const fn wire_length(self) -> usize {
        (self.0 >> 32) as usize & 0xff
    }

    /// Whether an experimenter follows the first four bytes.
    pub const fn is_experimenter(self) -> bool {
        self.class() == 0xffff
    }

    /// Bytes of the header itself: 4 or 8.
    pub const fn header_length(self) -> usize {
        if self.is_experimenter() { 8 } else { 4 }
    }

    /// Bytes of value and mask; `None` where the length leaves no room for the experimenter.
    pub const fn payload_length(self) -> Option<usize> {
        (4 + self.wire_length()).checked_sub(self.header_length())
    }

    /// Whose, with class 0xffff.
    pub const fn experimenter(self) -> u32 {
        self.0 as u32
    }
}

impl Mf {
    /// All fields that need no number.
    pub fn simple() -> impl Iterator<Item = Mf> {
        Self::SIMPLE.iter().copied()
    }

    /// All fields.
    pub fn all() -> impl Iterator<Item = Mf> {
        let numbered = (0..16).map(Mf::Reg).chain((0..8).map(Mf::XReg)).chain((0..4).map(Mf::XxReg));
        Mf::simple().chain(numbered).chain((0..64).map(Mf::TunMetadata))
    }

    /// Its properties. Numbered families share a row: see [`Self::family`].
    pub fn row(self) -> &'static Row {
        match self {
            Mf::Reg(_) => &table::REG,
            Mf::XReg(_) => &table::XREG,
            Mf::XxReg(_) => &table::XXREG,
            Mf::TunMetadata(_) => &table::TUN_METADATA,
            simple => &Self::ROWS[simple.simple_idx().expect("all others are simple")],
        }
    }

    /// Its number in its numbered family.
    pub fn family(self) -> Option<u8> {
        match self {
            Mf::Reg(n) | Mf::XReg(n) | Mf::XxReg(n) | Mf::TunMetadata(n) => Some(n),
            _ => None,
        }
    }

    /// Width in bits. 992 (124 bytes) at the most for tunnel options, whose width their table gives. A few
    /// fields count differently in actions: see [`Row::subfield_bits`].
    pub fn bits(self) -> u16 {
        if let Mf::TunMetadata(_) = self { 992 } else { self.row().bits.into() }
    }

    /// Its principal name.
    pub fn name(self) -> String {
        self.numbered(self.row().name)
    }

    fn numbered(self, name: &str) -> String {
        self.family().map_or_else(|| name.to_string(), |n| format!("{name}{n}"))
    }

    /// By its name, an alias, or a wire name (`NXM_OF_ETH_SRC`), the latter in any case.
    pub fn from_name(name: &str) -> Option<Mf> {
        static NAMES: LazyLock<HashMap<String, Mf>> = LazyLock::new(|| {
            let mut names = HashMap::new();
            for mf in Mf::all() {
                names.insert(mf.name(), mf);
                names.extend(mf.row().aliases.iter().map(|alias| (alias.to_string(), mf)));
                names.extend(mf.wires().map(|wire| (mf.numbered(wire.name), mf)));
            }
            names
        });
        NAMES.get(name).or_else(|| NAMES.get(&name.to_ascii_uppercase())).copied()
    }

    /// Its numbers on the wire.
    pub fn wires(self) -> impl Iterator<Item = Wire> {
        let n = self.family().unwrap_or(0);
        self.row().wires.into_iter().flatten().map(move |wire| Wire { number: wire.number + n, ..wire })
    }

    /// Its number in messages of OpenFlow 1.`minor` (0 for NXM): the newest of those in use there, the first
    /// of two equally old ones, and the first of those not yet in use. `None` if it has no number at all.
    pub fn wire(self, minor: u8) -> Option<Wire> {
        let newest = |best: Wire, wire: Wire| if wire.since > best.since { wire } else { best };
        self.wires().filter(|wire| wire.since <= minor).reduce(newest).or_else(|| self.wires().next())
    }

    /// The wire name with which actions are printed: `NXM_OF_ETH_SRC`, the NXM one if it exists.
    pub fn wire_name(self) -> Option<String> {
        self.wires().next().map(|wire| self.numbered(wire.name))
    }

    /// Every wire name, such as `NXM_OF_ETH_SRC`, and its field.
    pub fn wire_names() -> impl Iterator<Item = (String, Wire)> {
        Mf::all().flat_map(|mf| mf.wires().map(move |wire| (mf.numbered(wire.name), wire)))
    }

    /// The field for a header; its length and has-mask bit are ignored.
    pub fn from_nxm(header: NxmHeader) -> Option<Mf> {
        static CLASSES: LazyLock<[[Option<Mf>; 128]; 4]> = LazyLock::new(|| {
            let mut classes = [[None; 128]; 4];
            for mf in Mf::all() {
                for wire in mf.wires() {
                    if let Some(class) = class_idx(wire.class) {
                        classes[class][usize::from(wire.number)] = Some(mf);
                    }
                }
            }
            classes
        });
        if let Some(class) = class_idx(header.class()) {
            return CLASSES[class][usize::from(header.number())];
        }
        Mf::all().find(|mf| {
            mf.wires().any(|wire| {
                (wire.class, wire.number, wire.experimenter)
                    == (header.class(), header.number(), header.experimenter())
            })
        })
    }

    /// Its place in the key.
    fn place(self) -> MfPlace {
        match self {
            Mf::Reg(n) => {
                let shift = if n % 2 == 0 { 32 } else { 0 };
                MfPlace::Bits(Slice { block: B_REGS, word: usize::from(n / 2), shift, bits: 32 })
            }
            Mf::XReg(n) => MfPlace::Bits(Slice { block: B_REGS, word: n.into(), shift: 0, bits: 64 }),
            Mf::XxReg(n) => MfPlace::TwoWords { block: B_REGS, first: usize::from(n) * 2 },
            Mf::TunMetadata(_) => MfPlace::Nowhere,
            simple => {
                let Row { field, offset, bits, .. } = *simple.row();
                let p = field.place();
                let (block, word) = (usize::from(p.block), usize::from(p.word));
                match p.bits {
                    128 => MfPlace::TwoWords { block, first: word },
                    _ => MfPlace::Bits(Slice { block, word, shift: p.shift + offset, bits }),
                }
            }
        }
    }

    /// Its bits in the key, if they lie in one word.
    #[inline]
    pub fn in_one_word(self) -> Option<Slice> {
        match self.place() {
            MfPlace::Bits(slice) => Some(slice),
            MfPlace::Nowhere | MfPlace::TwoWords { .. } => None,
        }
    }

    /// The words of the key that contain some of its bits: block, word, mask, and the bits of a value.
    #[inline]
    pub fn for_words(self, bits: u128, value: u128, mut to: impl FnMut(usize, usize, u64, u64)) {
        match self.place() {
            MfPlace::Nowhere => {}
            MfPlace::Bits(s) => {
                let part = |v: u128| (v as u64) << s.shift & s.ones();
                to(s.block, s.word, part(bits), part(value));
            }
            MfPlace::TwoWords { block, first } => {
                to(block, first, (bits >> 64) as u64, (value >> 64) as u64);
                to(block, first + 1, bits as u64, value as u64);
            }
        }
    }

    /// All its bits that can be matched or set, as a number; for fields of at most 128 bits. For `nw_tos`
    /// these are the upper six.
    pub fn ones(self) -> u128 {
        if self == Mf::NwTos {
            return 0xfc;
        }
        let bits = self.bits().min(128);
        if bits == 128 { u128::MAX } else { (1 << bits) - 1 }
    }

    /// Whether the value is possible for the field.
    pub fn is_valid(self, value: u128) -> bool {
        value & !self.ones() == 0
    }
}

fn class_idx(class: u16) -> Option<usize> {
    match class {
        0 | 1 => Some(class.into()),
        0x8000 | 0x8001 => Some(usize::from(class - 0x8000) + 2),
        _ => None,
    }
}

/// A field's place in the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MfPlace {
    /// Their bridge's table determines the place of tunnel options.
    Nowhere,
    Bits(Slice),
    /// Two whole words of a block, the more significant one first.
    TwoWords {
        block: usize,
        first: usize,
    },
}

/// Some bits of one word of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Block of the key.
    pub block: usize,
    /// Word of the block.
    pub word: usize,
    /// Lowest bit.
    pub shift: u8,
    /// Number of bits, 1 to 64.
    pub bits: u8,
}

impl Slice {
    /// Its bits at their position in the word.
    fn ones(self) -> u64 {
        (u64::MAX >> (64 - self.bits)) << self.shift
    }
}

impl Key {
    /// The field's value. 0 for tunnel options.
    pub fn get_mf(&self, mf: Mf) -> u128 {
        let value = match mf.place() {
            MfPlace::Nowhere => 0,
            MfPlace::Bits(s) => u128::from((self.word(s.block, s.word) & s.ones()) >> s.shift),
            MfPlace::TwoWords { block, first } => {
                u128::from(self.word(block, first)) << 64 | u128::from(self.word(block, first + 1))
            }
        };
        value & mf.ones()
    }

    /// Sets the bits of `mask` of the field to those of `value`. Nothing happens for tunnel options.
    pub fn set_mf(&mut self, mf: Mf, value: u128, mask: u128) {
        let mask = mask & mf.ones();
        mf.for_words(mask, value, |block, word, bits, value| {
            let old = self.word(block, word);
            self.set_word(block, word, old & !bits | value & bits);
        });
    }
}

impl Mask {
    /// Makes the bits of `bits` of the field matter too.
    pub fn add_mf(&mut self, mf: Mf, bits: u128) {
        let old = self.0.get_mf(mf);
        self.0.set_mf(mf, old | bits, u128::MAX);
    }
}

impl Match {
    /// Replaces what is matched of the field.
    pub fn set_mf(&mut self, mf: Mf, value: u128, mask: u128) {
        self.key.set_mf(mf, value & mask, u128::MAX);
        self.mask.0.set_mf(mf, mask, u128::MAX);
    }

    /// Adds to what is matched of the field: these bits too.
    pub fn add_mf(&mut self, mf: Mf, value: u128, mask: u128) {
        let (before, matched) = self.get_mf(mf);
        self.set_mf(mf, before & !mask | value & mask, matched | mask);
    }

    /// Value and mask of the field.
    pub fn get_mf(&self, mf: Mf) -> (u128, u128) {
        (self.key.get_mf(mf), self.mask.0.get_mf(mf))
    }

    /// The Ethernet type of all packets that match, with or without an Ethernet header; 0 if the match leaves
    /// it open.
    pub fn eth_type(&self) -> u16 {
        let packet_type = self.key.get64(FieldId::PacketType) as u32;
        match packet_type >> 16 {
            0 => self.key.get64(FieldId::EthType) as u16,
            1 => packet_type as u16,
            _ => 0,
        }
    }

    /// Whether the match includes the field's prerequisites.
    pub fn has_prereq(&self, mf: Mf) -> bool {
        let eth_type = self.eth_type();
        let is_ip = eth_type == 0x800 || eth_type == 0x86dd;
        let proto = |number| is_ip && self.key.get64(FieldId::NwProto) == number;
        // First fragments and whole packets have ports, later ones do not. For ICMP this is not checked.
        let transport = |number| proto(number) && !self.is_later_fragment();
        let icmpv6 = eth_type == 0x86dd && proto(58);
        let nd =
            |kind| icmpv6 && self.key.get64(FieldId::TpDst) == 0 && self.key.get64(FieldId::TpSrc) == kind;
        match mf.row().prereq {
            Prereq::None => true,
            Prereq::Ethernet => self.key.get64(FieldId::PacketType) == 0,
            // A tag is a part of an Ethernet header.
            Prereq::Vlan => {
                self.key.get64(FieldId::PacketType) == 0 && self.key.get64(FieldId::VlanTci) & 0x1000 != 0
            }
            Prereq::Arp => eth_type == 0x806 || eth_type == 0x8035,
            Prereq::Ipv4 => eth_type == 0x800,
            Prereq::Ipv6 => eth_type == 0x86dd,
            Prereq::Ip => is_ip,
            Prereq::Mpls => eth_type == 0x8847 || eth_type == 0x8848,
            Prereq::Nsh => eth_type == 0x894f,
            Prereq::Ct => self.has_ct_prereq(mf, eth_type),
            Prereq::Tcp => transport(6),
            Prereq::Udp => transport(17),
            Prereq::Sctp => transport(132),
            Prereq::Icmpv4 => eth_type == 0x800 && proto(1),
            Prereq::Icmpv6 => icmpv6,
            Prereq::Nd => nd(135) || nd(136),
            Prereq::NdSolicit => nd(135),
            Prereq::NdAdvert => nd(136),
        }
    }

    fn is_later_fragment(&self) -> bool {
        self.key.get64(FieldId::NwFrag) & 2 != 0
    }

    /// Whether packets that match are known to have a connection: their state is that of a valid packet, or
    /// tracked and not invalid.
    pub fn has_connection(&self) -> bool {
        // New, established, related, a reply, translated at either end.
        const OF_VALID: u64 = 0b1100_1111;
        const INVALID: u64 = 1 << 4;
        const TRACKED: u64 = 1 << 5;
        let (state, mask) = (self.key.get64(FieldId::CtState), self.mask.get(FieldId::CtState) as u64);
        state & OF_VALID != 0 || state & TRACKED != 0 && mask & INVALID != 0 && state & INVALID == 0
    }

    fn has_ct_prereq(&self, mf: Mf, eth_type: u16) -> bool {
        self.has_connection()
            && match mf {
                Mf::CtNwSrc | Mf::CtNwDst => eth_type == 0x800,
                Mf::CtIpv6Src | Mf::CtIpv6Dst => eth_type == 0x86dd,
                _ => eth_type == 0x800 || eth_type == 0x86dd,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_alias_as_documented() {
        let mut key = Key::default();
        key.set_mf(Mf::XxReg(1), 0x0000_0004_0000_0005_0000_0006_0000_0007, u128::MAX);
        for n in 4..8u8 {
            assert_eq!(key.get_mf(Mf::Reg(n)), u128::from(n));
        }
        assert_eq!(key.get_mf(Mf::XReg(2)), 0x0000_0004_0000_0005);
        assert_eq!(key.get(FieldId::Reg5), 5);
    }

    #[test]
    fn set_then_get_gives_the_value_for_every_field() {
        for mf in Mf::all().filter(|mf| mf.bits() <= 128) {
            let mut key = Key::default();
            key.set_mf(mf, mf.ones(), mf.ones());
            assert_eq!(key.get_mf(mf), mf.ones(), "{mf:?}");
            let lowest = mf.ones() & mf.ones().wrapping_neg();
            key.set_mf(mf, 0, lowest);
            assert_eq!(key.get_mf(mf), mf.ones() - lowest, "{mf:?}");
        }
    }

    #[test]
    fn every_name_and_every_number_leads_to_its_field_alone() {
        for mf in Mf::all() {
            assert_eq!(Mf::from_name(&mf.name()), Some(mf));
            for alias in mf.row().aliases {
                assert_eq!(Mf::from_name(alias), Some(mf), "{alias}");
            }
            for wire in mf.wires() {
                assert_eq!(Mf::from_nxm(NxmHeader::new(wire, false, 1)), Some(mf), "{mf:?}");
                assert_eq!(Mf::from_nxm(NxmHeader::new(wire, true, 2)), Some(mf), "{mf:?}");
            }
            if let Some(name) = mf.wire_name() {
                assert_eq!(Mf::from_name(&name.to_lowercase()), Some(mf));
            }
            assert!(!mf.row().doc.is_empty());
            assert!(mf.row().bytes as usize * 8 >= usize::from(mf.row().bits), "{mf:?}");
        }
        assert_eq!(Mf::from_name("nxm_nx_reg16"), None);
        assert_eq!(Mf::from_nxm(NxmHeader(0x7fff_0004_0000_0000)), None);
    }

    #[test]
    fn newer_versions_use_newer_numbers() {
        let class = |mf: Mf, minor| mf.wire(minor).map(|w| (w.class, w.number));
        assert_eq!(class(Mf::EthSrc, 0), Some((0, 2)));
        assert_eq!(class(Mf::EthSrc, 3), Some((0x8000, 4)));
        assert_eq!(class(Mf::TcpFlags, 0), Some((1, 34)));
        assert_eq!(class(Mf::TcpFlags, 3), Some((0xffff, 42)));
        assert_eq!(class(Mf::TcpFlags, 5), Some((0x8000, 42)));
        assert_eq!(class(Mf::Reg(3), 3), Some((1, 3)));
        assert_eq!(class(Mf::DlVlan, 3), None);
    }

    #[test]
    fn prerequisites_follow_the_match() {
        let ip = Match::any().with(FieldId::EthType, 0x800);
        let udp = ip.clone().with(FieldId::NwProto, 17);
        assert!(ip.has_prereq(Mf::NwSrc) && !ip.has_prereq(Mf::Ipv6Src) && !ip.has_prereq(Mf::UdpSrc));
        assert!(udp.has_prereq(Mf::UdpSrc) && !udp.has_prereq(Mf::TcpSrc));
        let nd =
            Match::any().with(FieldId::EthType, 0x86dd).with(FieldId::NwProto, 58).with(FieldId::TpSrc, 135);
        assert!(nd.has_prereq(Mf::NdSll) && !nd.has_prereq(Mf::NdTll) && nd.has_prereq(Mf::NdTarget));
        let ct = ip.with_masked(FieldId::CtState, 1 << 5, 1 << 5);
        assert!(!ct.has_prereq(Mf::CtNwSrc));
        let known = ct.clone().with_masked(FieldId::CtState, 1 << 5, 1 << 5 | 1 << 4);
        assert!(known.has_prereq(Mf::CtNwSrc) && !known.has_prereq(Mf::CtIpv6Src));
        let bare = Match::any().with(FieldId::PacketType, 0x0001_0800);
        assert!(bare.has_prereq(Mf::NwSrc) && !bare.has_prereq(Mf::EthSrc));
    }
}
