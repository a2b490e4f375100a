//! Random packets of worlds: their header fields, and which of them go together.

use super::chance::Chance;
use base::PortNo;
use flow::{FieldId, Key, Match};

/// Ports of a bridge, beside the one with the patch cable.
pub(super) const PORTS: u64 = 4;

pub(super) fn port_no(bridge: usize, of_port: u16) -> PortNo {
    PortNo(100 * (bridge as u32 + 1) + u32::from(of_port))
}

/// Takes over what the match says of the packet itself.
pub fn draw_near(key: &mut Key, near: &Match) {
    for &f in HEADER {
        key.set_masked(f, near.key.get(f), near.mask.get(f));
    }
}

/// Fields of the packet itself that worlds use.
pub const HEADER: &[FieldId] = &[
    FieldId::EthType,
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::VlanTci,
    FieldId::VlanTpid,
    FieldId::VlanTci2,
    FieldId::VlanTpid2,
    FieldId::NwSrc,
    FieldId::NwDst,
    FieldId::NwProto,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::NwFrag,
    FieldId::TpSrc,
    FieldId::TpDst,
    FieldId::TcpFlags,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::Ipv6ExtHdr,
];

/// The protocols of IPv6 here: no next header, and one for experiments, which has no header to be read.
const PROTOCOLS6: [u64; 2] = [59, 253];

/// The extension headers that come, as OpenFlow's bits: none, hop-by-hop and destination options, both, and
/// both the other way round. "No next header" is a matter of the protocol.
const EXTENSIONS: [u64; 5] = [0, 1 << 6, 1 << 3, 1 << 6 | 1 << 3, 1 << 8 | 1 << 3];

/// Whether extraction could have made this key.
pub fn is_possible(key: &Key) -> bool {
    let tag = |tci, tpid| {
        let (tci, tpid) = (key.get64(tci), key.get64(tpid));
        if tci & 0x1000 == 0 { tci == 0 && tpid == 0 } else { tpid == 0x8100 || tpid == 0x88a8 }
    };
    let outer = tag(FieldId::VlanTci, FieldId::VlanTpid);
    let inner = tag(FieldId::VlanTci2, FieldId::VlanTpid2)
        && (key.get64(FieldId::VlanTci) != 0 || key.get64(FieldId::VlanTci2) == 0);
    let zero = |fields: &[FieldId]| fields.iter().all(|f| key.get(*f) == 0);
    // Protocol and opcode 0 say that the header was not read, and then nothing in it is set: another test's
    // affair.
    let is_read = key.get64(FieldId::NwProto) != 0;
    let is_ipv6 = key.get64(FieldId::EthType) == 0x86dd;
    let network = match key.get64(FieldId::EthType) {
        0x800 | 0x806 if !is_read => false,
        _ if !is_ipv6 && !zero(&[FieldId::Ipv6Src, FieldId::Ipv6Dst, FieldId::Ipv6ExtHdr]) => false,
        0x86dd => {
            let (proto, bits) = (key.get64(FieldId::NwProto), key.get64(FieldId::Ipv6ExtHdr));
            PROTOCOLS6.contains(&proto)
                && bits & 1 == u64::from(proto == 59)
                && EXTENSIONS.contains(&(bits & !1))
                && zero(&[FieldId::NwSrc, FieldId::NwDst, FieldId::NwFrag])
                && zero(&[FieldId::TpSrc, FieldId::TpDst, FieldId::TcpFlags])
        }
        0x800 => {
            let proto = key.get64(FieldId::NwProto);
            let later = key.get64(FieldId::NwFrag) & 2 != 0;
            matches!(key.get64(FieldId::NwFrag), 0 | 1 | 3)
                && (matches!(proto, 6 | 17) && !later || zero(&[FieldId::TpSrc, FieldId::TpDst]))
                && (proto == 6 && !later || zero(&[FieldId::TcpFlags]))
        }
        0x806 => zero(&[
            FieldId::NwTos,
            FieldId::NwTtl,
            FieldId::NwFrag,
            FieldId::TpSrc,
            FieldId::TpDst,
            FieldId::TcpFlags,
        ]),
        _ => zero(&HEADER[7..]),
    };
    outer && inner && network
}

pub fn random_packet(chance: &mut Chance, bridge: usize) -> Key {
    let mut key = Key::default();
    let mut set = |f: FieldId, v: u64| key.set(f, v.into());
    let of_port = if chance.one_in(30) { 77 } else { chance.below(PORTS) as u16 + 1 };
    set(FieldId::DpPort, port_no(bridge, of_port).0.into());
    set(FieldId::EthSrc, *chance.pick(MACS));
    set(FieldId::EthDst, *chance.pick(MACS));
    if chance.one_in(3) {
        set(FieldId::VlanTpid, 0x8100);
        set(FieldId::VlanTci, 0x1000 | *chance.pick(&[0, 10, 20, 0x600a]));
        if chance.one_in(3) {
            set(FieldId::VlanTpid2, 0x8100);
            set(FieldId::VlanTci2, 0x1000 | *chance.pick(&[10, 30]));
        }
    }
    match chance.below(9) {
        8 => {
            set(FieldId::EthType, 0x86dd);
            set(FieldId::Ipv6Src, chance.below(4));
            set(FieldId::Ipv6Dst, chance.below(4));
            set(FieldId::NwTtl, *chance.pick(&[0, 1, 2, 64]));
            let proto = *chance.pick(&PROTOCOLS6);
            set(FieldId::NwProto, proto);
            set(FieldId::Ipv6ExtHdr, *chance.pick(&EXTENSIONS) | u64::from(proto == 59));
        }
        0 => {
            set(FieldId::EthType, 0x806);
            set(FieldId::NwProto, chance.below(2) + 1);
            set(FieldId::NwSrc, 0x0a00_0000 + chance.below(8));
            set(FieldId::NwDst, 0x0a00_0000 + chance.below(8));
        }
        1 => set(FieldId::EthType, 0x88cc),
        _ => {
            set(FieldId::EthType, 0x800);
            set(FieldId::NwSrc, *chance.pick(&[0x0a00_0000, 0x0a01_0000, 0xc0a8_0100]) + chance.below(8));
            set(FieldId::NwDst, *chance.pick(&[0x0a00_0000, 0x0a01_0000, 0xc0a8_0100]) + chance.below(8));
            set(FieldId::NwTtl, *chance.pick(&[0, 1, 2, 64]));
            set(FieldId::NwTos, *chance.pick(&[0, 0x28, 0x90, 0xb8]));
            let proto = *chance.pick(&[6, 17, 17, 1]);
            set(FieldId::NwProto, proto);
            let frag = *chance.pick(&[0, 0, 0, 0, 1, 3]);
            set(FieldId::NwFrag, frag);
            if frag != 3 && proto != 1 {
                set(FieldId::TpSrc, *chance.pick(&[53, 80, 1000]));
                set(FieldId::TpDst, *chance.pick(&[53, 80, 1000]));
                set(FieldId::TcpFlags, if proto == 6 { chance.below(4) } else { 0 });
            }
        }
    }
    key
}

pub(super) const MACS: &[u64] = &[
    0x0200_0000_0001,
    0x0200_0000_0002,
    0x0200_0000_0003,
    0x0200_0000_0004,
    0x0100_5e00_0001,
    0xffff_ffff_ffff,
    0x0180_c200_0000,
    0x0180_c200_000e,
];
