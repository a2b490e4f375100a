//! Frames made of keys: the generator's fields as bytes, with all lengths and checksums computed.
//!
//! Every frame ends in a number of eight bytes, by which it is recognised wherever it comes out.

use flow::{FieldId, Key};
use std::net::Ipv4Addr;
use wire::IpProtocol;
use wire::checksum::{checksum, pseudo_v4};

/// Payload before the number.
const FILLER: [u8; 10] = *b"crosspoint";

/// A frame with these fields, these tags (outermost first, the present bit set) and this number at its end.
pub fn build(key: &Key, tags: &[(u16, u16)], number: u64) -> Vec<u8> {
    let mut frame = Vec::with_capacity(96);
    frame.extend(&key.get64(FieldId::EthDst).to_be_bytes()[2..]);
    frame.extend(&key.get64(FieldId::EthSrc).to_be_bytes()[2..]);
    for (tpid, tci) in tags {
        frame.extend(tpid.to_be_bytes());
        frame.extend((tci & !0x1000).to_be_bytes());
    }
    let eth_type = key.get64(FieldId::EthType) as u16;
    frame.extend(eth_type.to_be_bytes());
    match eth_type {
        0x800 => ipv4(key, number, &mut frame),
        0x806 => arp(key, number, &mut frame),
        0x86dd => ipv6(key, number, &mut frame),
        _ => payload(number, &mut frame),
    }
    frame
}

/// The number at a frame's end.
pub fn number_of(frame: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*frame.last_chunk::<8>()?))
}

fn payload(number: u64, frame: &mut Vec<u8>) {
    // Some are long, with the number far behind the headers, and some longer than a chunk of the pool.
    let fillers = match number % 24 {
        9 => 850,
        21 => 180,
        n if n % 3 == 0 => 40,
        _ => 1,
    };
    for _ in 0..fillers {
        frame.extend(FILLER);
    }
    frame.extend(number.to_be_bytes());
}

fn arp(key: &Key, number: u64, frame: &mut Vec<u8>) {
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend((key.get64(FieldId::NwProto) as u16).to_be_bytes());
    frame.extend(&key.get64(FieldId::ArpSha).to_be_bytes()[2..]);
    frame.extend((key.get64(FieldId::NwSrc) as u32).to_be_bytes());
    frame.extend(&key.get64(FieldId::ArpTha).to_be_bytes()[2..]);
    frame.extend((key.get64(FieldId::NwDst) as u32).to_be_bytes());
    payload(number, frame);
}

fn ipv4(key: &Key, number: u64, frame: &mut Vec<u8>) {
    let (src, dst) = (key.get64(FieldId::NwSrc) as u32, key.get64(FieldId::NwDst) as u32);
    let (proto, frag) = (key.get64(FieldId::NwProto) as u8, key.get64(FieldId::NwFrag));
    let mut segment = Vec::new();
    if frag & 2 == 0 {
        transport(key, proto, &mut segment);
    }
    payload(number, &mut segment);
    if let Some((at, zero_is_none)) = checksum_at(proto).filter(|_| frag & 2 == 0) {
        let sum = match proto {
            1 => checksum(&segment),
            _ => {
                let pseudo = pseudo_v4(
                    Ipv4Addr::from(src),
                    Ipv4Addr::from(dst),
                    IpProtocol(proto),
                    segment.len() as u16,
                );
                pseudo.bytes(&segment).finish()
            }
        };
        let sum = if zero_is_none && sum == 0 { 0xffff } else { sum };
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let start = frame.len();
    frame.extend([0x45, key.get64(FieldId::NwTos) as u8]);
    frame.extend((20 + segment.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    let offset: u16 = match frag {
        0 => 0x4000,
        1 => 0x2000,
        _ => 0x2000 | 185,
    };
    frame.extend(offset.to_be_bytes());
    frame.extend([key.get64(FieldId::NwTtl) as u8, proto, 0, 0]);
    frame.extend(src.to_be_bytes());
    frame.extend(dst.to_be_bytes());
    let sum = checksum(&frame[start..]);
    frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(segment);
}

/// With hop-by-hop and destination options as the key's bits say: in that order, or the other way round.
fn ipv6(key: &Key, number: u64, frame: &mut Vec<u8>) {
    const HOP_BY_HOP: u8 = 0;
    const DESTINATION: u8 = 60;
    let extensions: &[u8] = match key.get64(FieldId::Ipv6ExtHdr) & !1 {
        0 => &[],
        0x40 => &[HOP_BY_HOP],
        0x08 => &[DESTINATION],
        0x48 => &[HOP_BY_HOP, DESTINATION],
        0x108 => &[DESTINATION, HOP_BY_HOP],
        other => panic!("no packet has the extension headers {other:#x}"),
    };
    let proto = key.get64(FieldId::NwProto) as u8;
    let next = |i: usize| extensions.get(i).copied().unwrap_or(proto);
    // Options are padding of four bytes (PadN).
    let mut segment: Vec<u8> =
        (0..extensions.len()).flat_map(|i| [next(i + 1), 0, 1, 4, 0, 0, 0, 0]).collect();
    payload(number, &mut segment);
    let tos = key.get64(FieldId::NwTos) as u32;
    frame.extend((6 << 28 | tos << 20).to_be_bytes());
    frame.extend((segment.len() as u16).to_be_bytes());
    frame.extend([next(0), key.get64(FieldId::NwTtl) as u8]);
    frame.extend(key.get(FieldId::Ipv6Src).to_be_bytes());
    frame.extend(key.get(FieldId::Ipv6Dst).to_be_bytes());
    frame.extend(segment);
}

fn checksum_at(proto: u8) -> Option<(usize, bool)> {
    match proto {
        1 => Some((2, false)),
        6 => Some((16, false)),
        17 => Some((6, true)),
        _ => None,
    }
}

fn transport(key: &Key, proto: u8, segment: &mut Vec<u8>) {
    let (src, dst) = (key.get64(FieldId::TpSrc) as u16, key.get64(FieldId::TpDst) as u16);
    match proto {
        1 => segment.extend([src as u8, dst as u8, 0, 0, 0, 1, 0, 1]),
        6 => {
            segment.extend(src.to_be_bytes());
            segment.extend(dst.to_be_bytes());
            segment.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            segment.extend((0x5000 | key.get64(FieldId::TcpFlags) as u16).to_be_bytes());
            segment.extend([0x10, 0, 0, 0, 0, 0]);
        }
        17 => {
            segment.extend(src.to_be_bytes());
            segment.extend(dst.to_be_bytes());
            segment.extend((8 + FILLER.len() as u16 + 8).to_be_bytes());
            segment.extend([0, 0]);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::chance::Chance;
    use crate::common::model::Packet;
    use crate::common::packets::{HEADER, is_possible, random_packet};
    use base::{OfPort, PortNo};
    use flow::Depth;
    use flow::extract::{Ingress, extract};

    #[test]
    fn a_frame_is_read_as_the_key_that_it_was_made_of() {
        let chance = &mut Chance::new(1);
        for number in 0..2_000 {
            let key = random_packet(chance, 0);
            if !is_possible(&key) {
                continue;
            }
            let frame = build(&key, &Packet::of(&key).tags, number);
            let mut read = Key::default();
            let ingress = Ingress::new(OfPort(1), PortNo(101), Depth::Everything);
            extract(&frame, frame.len(), &ingress, &mut read).unwrap();
            for f in HEADER {
                assert_eq!(read.get(*f), key.get(*f), "{f:?} of {key:?} in {frame:02x?}");
            }
            assert_eq!(number_of(&frame), Some(number));
        }
    }
}
