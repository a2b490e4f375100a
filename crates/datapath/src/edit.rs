//! Changes to a packet's headers that keep checksums correct.
//!
//! The packet's [`Layers`] say where its headers are; they travel with the packet and follow what is pushed
//! and popped. If they are not known yet, the first change walks the headers once. Checksums are updated
//! incrementally (RFC 1624), so a wrong one stays wrong; SCTP's CRC likewise, by the difference that a
//! correct one would make. If a checksum is still unfinished (`CSUM_PARTIAL`), the field holds the
//! pseudo-header's sum and is kept as that. A checksum that covers an unfinished one, in a tunnel, is
//! finished.
//!
//! A field that the packet does not have (a TCP port of a packet that is not TCP, an address in a header that
//! contradicts itself) is left alone: what extraction does not read is not set, as in Open vSwitch. A change
//! that is impossible (a tag or a label that cannot be pushed or popped, a field that has no bytes on the
//! wire) is refused with [`DropReason::ActionNotApplicable`], and the packet stays untouched. Nothing here
//! panics, whatever the bytes.

mod encap;
mod room;

use crate::action::DpAction;
use crate::packet_type;
use base::DropReason;
pub use encap::layers_of;
use flow::FieldId;
use packet::{Packet, PacketFlags, PoolCache};
use room::{DOES_NOT_FIT, Edit, LSE_LEN, MAC_LEN, insert, put, remove};
use wire::Layers;
use wire::checksum::{nonzero, update128};
use wire::crc32c::crc32c;
use wire::layers::{TAG_LEN, is_tag};

/// Bit of a TCI that the key uses for "present". On the wire it is the drop eligible indicator, which is not
/// changed.
const TCI_PRESENT: u16 = 0x1000;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// How many VLAN tags extraction looks past; changes do the same.
const TAGS_MAX: u8 = 2;

/// Applies one changing action to a packet. Walks its headers if `layers` are not known.
pub fn apply(packet: &mut Packet, layers: &mut Layers, action: &DpAction) -> Edit {
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    match *action {
        DpAction::PushNsh(ref header) => encap::push_nsh(packet, layers, header),
        DpAction::PopNsh { packet_type } => encap::pop_nsh(packet, layers, packet_type),
        DpAction::PushEth { src, dst, eth_type } => encap::push_eth(packet, layers, src, dst, eth_type),
        DpAction::PopEth { .. } => encap::pop_eth(packet, layers),
        DpAction::AddMpls { eth_type, lse } => encap::add_mpls(packet, layers, eth_type, lse),
        DpAction::Set { field, value, mask } => set(packet, layers, field, value, mask),
        DpAction::PushVlan { tpid, tci } => push_vlan(packet, layers, tpid, tci),
        DpAction::PopVlan => pop_vlan(packet, layers),
        DpAction::PushMpls { eth_type, lse } => push_mpls(packet, layers, eth_type, lse),
        DpAction::PopMpls { eth_type } => pop_mpls(packet, layers, eth_type),
        _ => Err(DOES_NOT_FIT),
    }
}

/// Raises the drop precedence of an IP packet; others are not changed.
pub fn remark(packet: &mut Packet, layers: &mut Layers, by: u8) -> Edit {
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    let l3 = usize::from(layers.l3);
    let tos = match (layers.eth_type, packet.data().get(l3..).unwrap_or(&[])) {
        (0x0800, [_, tos, ..]) => *tos,
        (0x86dd, [high, low, ..]) => high << 4 | low >> 4,
        _ => return Ok(()),
    };
    let value = crate::meter::remarked(tos, by);
    if value == tos {
        return Ok(());
    }
    set(packet, layers, FieldId::NwTos, value.into(), 0xfc)
}

/// Length of the frame without the padding of an IP packet. For a packet that will be segmented it is the
/// length of a segment, as in the kernel's datapath, since segments are what must fit an MTU.
pub fn unpadded_len(packet: &Packet, layers: &mut Layers) -> usize {
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    let end = ip(layers).map_or(usize::MAX, |_| layers.end(packet.data()));
    let len = packet.len().min(end);
    match (packet.gso_size, layers.payload) {
        (0, _) | (_, 0) => len,
        (size, payload) => len.min(usize::from(payload) + usize::from(size)),
    }
}

/// Whether the action reads more of the packet than its headers.
pub fn reads_payload(packet: &Packet, layers: &mut Layers, action: &DpAction) -> bool {
    if !matches!(action, DpAction::Set { field: FieldId::TpSrc | FieldId::TpDst, .. }) {
        return false;
    }
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    // SCTP's CRC covers the whole chunk stream.
    layers.protocol == SCTP && layers.payload != 0
}

/// Cuts the frame to at most `max_bytes`, but never below an Ethernet header. A packet whose segments are no
/// longer than that stays whole: it is what the sender would have sent without segmentation offload.
pub fn truncate(packet: Packet, layers: &mut Layers, max_bytes: usize, cache: &mut PoolCache) -> Packet {
    let max_bytes = max_bytes.max(wire::ethernet::HEADER_LEN);
    if packet.len() <= max_bytes || packet.gso_size > 0 && unpadded_len(&packet, layers) <= max_bytes {
        return packet;
    }
    let (mut kept, mut rest) = packet.split_next();
    let mut room = max_bytes.saturating_sub(kept.len());
    // A truncated frame needs no segmentation and no finished checksum.
    (kept.flags, kept.gso_size) = (PacketFlags::default(), 0);
    while let Some(segment) = rest.take() {
        if room == 0 {
            cache.free(segment);
            break;
        }
        let (mut head, tail) = segment.split_next();
        let len = head.len().min(room);
        head.set_len(len).expect("shorter than it is, and a single segment");
        room -= len;
        kept.append(head);
        rest = tail;
    }
    if !kept.is_chained() {
        let len = kept.len().min(max_bytes);
        kept.set_len(len).expect("shorter than it is, and a single segment");
    }
    kept
}

// ---- setting fields

fn set(packet: &mut Packet, layers: &Layers, field: FieldId, value: u128, mask: u128) -> Edit {
    let Some(place) = place(packet.data(), layers, field)? else { return Ok(()) };
    match place.covered {
        // SCTP's CRC covers all segments of the chain, and only the first is accessible here.
        Covered::Crc(_) if packet.is_chained() => return Err(DOES_NOT_FIT),
        Covered::Crc(sctp) => {
            let end = layers.end(packet.data());
            let Some(sctp) = packet.data_mut().get_mut(sctp..end) else { return Ok(()) };
            set_in_stream(sctp, place, value, mask);
        }
        _ => set_at(packet, layers, place, value, mask),
    }
    Ok(())
}

/// Where a field is in a packet.
#[derive(Clone, Copy)]
struct Place {
    /// The number that contains it: its first byte, and its length of at most 16 bytes.
    at: usize,
    len: usize,
    /// The field's shift within that number, and its width in bits.
    shift: u32,
    ones: u128,
    covered: Covered,
}

/// What checksum covers a field.
#[derive(Clone, Copy)]
enum Covered {
    Nothing,
    /// The checksum of the IPv4 header, and for an address also the transport checksum.
    Ipv4Header {
        is_address: bool,
    },
    /// The transport checksum, through its pseudo-header.
    PseudoHeader,
    /// The checksum at this offset in the transport header, which also contains the field.
    Transport(usize),
    /// The CRC of the SCTP packet that starts here.
    Crc(usize),
}

impl Place {
    /// A field of whole bytes that no checksum covers.
    fn whole(at: usize, len: usize) -> Place {
        Place { at, len, shift: 0, ones: u128::MAX >> (128 - 8 * len), covered: Covered::Nothing }
    }

    fn bits(self, shift: u32, width: u32) -> Place {
        Place { shift, ones: u128::MAX >> (128 - width), ..self }
    }

    fn covered(self, covered: Covered) -> Place {
        Place { covered, ..self }
    }
}

/// The position of a field; `None` if the packet does not have it. An error for a field without bytes on the
/// wire, which cannot be changed in any packet.
fn place(bytes: &[u8], layers: &Layers, field: FieldId) -> Result<Option<Place>, DropReason> {
    use FieldId::*;
    Ok(match field {
        EthDst | EthSrc | VlanTci if layers.is_bare() => None,
        EthDst => Some(Place::whole(0, MAC_LEN)),
        EthSrc => Some(Place::whole(MAC_LEN, MAC_LEN)),
        VlanTci => {
            let is_tagged = be16(bytes, 2 * MAC_LEN).is_some_and(is_tag);
            let tci = Place { ones: u128::from(!TCI_PRESENT), ..Place::whole(2 * MAC_LEN + 2, 2) };
            is_tagged.then_some(tci)
        }
        NwSrc | NwDst | NwProto | NwTos | NwTtl | ArpSha | ArpTha if is_arp(layers.eth_type) => {
            in_arp(bytes, layers.l2_5.into(), field)
        }
        NwSrc | NwDst | NwTos | NwTtl | Ipv6Src | Ipv6Dst | Ipv6Label => in_ip(layers, field),
        NwProto => None,
        TpSrc | TpDst => in_transport(layers, field == TpSrc),
        ArpSha | ArpTha | NdTarget | NdReserved | NdOptionsType => in_neighbour(bytes, layers, field),
        Mpls0 => in_labels(bytes, layers, 0),
        Mpls1 => in_labels(bytes, layers, 1),
        Mpls2 => in_labels(bytes, layers, 2),
        NshFlags | NshTtl | NshMdtype | NshNp | NshSpi | NshSi | NshC1 | NshC2 | NshC3 | NshC4 => {
            in_nsh(bytes, layers, field)
        }
        _ => return Err(DOES_NOT_FIT),
    })
}

fn is_arp(eth_type: u16) -> bool {
    matches!(eth_type, 0x0806 | 0x8035)
}

fn in_arp(bytes: &[u8], arp: usize, field: FieldId) -> Option<Place> {
    let bytes = bytes.get(arp..arp + 28)?;
    // Only ARP for Ethernet and IPv4 with an opcode that fits the key is read; the opcode itself can be set
    // in any.
    let is_read = bytes[..6] == [0, 1, 8, 0, 6, 4] && matches!(be16(bytes, 6)?, 1..=0xff);
    match field {
        FieldId::NwProto => Some(Place::whole(arp + 6, 2)),
        _ if !is_read => None,
        FieldId::ArpSha => Some(Place::whole(arp + 8, MAC_LEN)),
        FieldId::NwSrc => Some(Place::whole(arp + 14, 4)),
        FieldId::ArpTha => Some(Place::whole(arp + 18, MAC_LEN)),
        FieldId::NwDst => Some(Place::whole(arp + 24, 4)),
        _ => None,
    }
}

/// The IPv4 or IPv6 header, if all of its fields could be read.
fn ip(layers: &Layers) -> Option<usize> {
    // In Open vSwitch, IPv4 protocol 0 means that no header was read.
    let is_read = layers.is_ip() && !layers.is_cut() && (layers.protocol != 0 || layers.is_ipv6());
    is_read.then_some(layers.l3.into())
}

fn in_ip(layers: &Layers, field: FieldId) -> Option<Place> {
    use FieldId::*;
    // The TTL changes even with protocol 0. (Open vSwitch leaves it alone: such a packet can loop for ever.)
    let is_counted_down = field == NwTtl && layers.is_ip() && !layers.is_cut();
    let l3 = if is_counted_down { layers.l3.into() } else { ip(layers)? };
    let header = |is_address| Covered::Ipv4Header { is_address };
    match (field, layers.is_ipv6()) {
        (NwSrc, false) => Some(Place::whole(l3 + 12, 4).covered(header(true))),
        (NwDst, false) => Some(Place::whole(l3 + 16, 4).covered(header(true))),
        // Its checksum word includes the neighbouring byte.
        (NwTos, false) => Some(Place::whole(l3, 2).bits(0, 8).covered(header(false))),
        (NwTtl, false) => Some(Place::whole(l3 + 8, 2).bits(8, 8).covered(header(false))),
        // The traffic class spans the first bytes unaligned.
        (NwTos, true) => Some(Place::whole(l3, 4).bits(20, 8)),
        (NwTtl, true) => Some(Place::whole(l3 + 7, 1)),
        (Ipv6Label, true) => Some(Place::whole(l3, 4).bits(0, 20)),
        (Ipv6Src, true) => Some(Place::whole(l3 + 8, 16).covered(Covered::PseudoHeader)),
        (Ipv6Dst, true) if layers.is_routed() => Some(Place::whole(l3 + 24, 16)),
        (Ipv6Dst, true) => Some(Place::whole(l3 + 24, 16).covered(Covered::PseudoHeader)),
        _ => None,
    }
}

/// The transport header, if it is complete.
fn transport(layers: &Layers) -> Option<usize> {
    (ip(layers).is_some() && layers.payload != 0).then_some(layers.l4.into())
}

/// Transport ports; type and code of ICMP.
fn in_transport(layers: &Layers, src: bool) -> Option<Place> {
    let l4 = transport(layers)?;
    let port = Place::whole(l4 + if src { 0 } else { 2 }, 2);
    match layers.protocol {
        TCP => Some(port.covered(Covered::Transport(l4 + 16))),
        UDP => Some(port.covered(Covered::Transport(l4 + 6))),
        SCTP => Some(port.covered(Covered::Crc(l4))),
        ICMP | ICMPV6 => {
            let shift = if src { 8 } else { 0 };
            Some(Place::whole(l4, 2).bits(shift, 8).covered(Covered::Transport(l4 + 2)))
        }
        _ => None,
    }
}

/// Fields of neighbour solicitations and advertisements, and of their options.
fn in_neighbour(bytes: &[u8], layers: &Layers, field: FieldId) -> Option<Place> {
    let l4 = transport(layers).filter(|_| layers.is_ipv6() && layers.protocol == ICMPV6)?;
    // No field lies in the frame's padding, which the checksum does not cover.
    let bytes = &bytes[..layers.end(bytes).min(bytes.len())];
    let message = bytes.get(l4..l4 + 24)?;
    if !matches!(message[0], 135 | 136) {
        return None;
    }
    let option = |is_wanted: fn(&[u8; 2]) -> bool| {
        let mut at = l4 + 24;
        loop {
            let head: &[u8; 2] = bytes.get(at..)?.first_chunk()?;
            if is_wanted(head) {
                return Some(at);
            }
            at += if head[1] == 0 { return None } else { usize::from(head[1]) * 8 };
        }
    };
    let place = match field {
        FieldId::NdReserved => Place::whole(l4 + 4, 4),
        FieldId::NdTarget => Place::whole(l4 + 8, 16),
        // The type of the first link-layer address option.
        FieldId::NdOptionsType => Place::whole(option(|head| matches!(head, [1 | 2, 1]))?, 2).bits(8, 8),
        FieldId::ArpSha => Place::whole(option(|head| *head == [1, 1])? + 2, MAC_LEN),
        _ => Place::whole(option(|head| *head == [2, 1])? + 2, MAC_LEN),
    };
    Some(place.covered(Covered::Transport(l4 + 2)))
}

fn is_mpls(eth_type: u16) -> bool {
    matches!(eth_type, 0x8847 | 0x8848)
}

fn in_labels(bytes: &[u8], layers: &Layers, depth: usize) -> Option<Place> {
    let labels = is_mpls(layers.eth_type).then(|| bytes.get(layers.l2_5.into()..))??;
    let (entries, _) = labels.as_chunks::<LSE_LEN>();
    // No entry lies behind the bottom of the stack.
    let is_there = entries.get(..depth)?.iter().all(|entry| entry[2] & 1 == 0);
    is_there.then(|| Place::whole(usize::from(layers.l2_5) + depth * LSE_LEN, LSE_LEN))
}

fn in_nsh(bytes: &[u8], layers: &Layers, field: FieldId) -> Option<Place> {
    if layers.eth_type != 0x894f {
        return None;
    }
    let nsh = usize::from(layers.l2_5);
    // RFC 8300 section 2.2: version 2, O, U, TTL 6, length 6, unassigned 4, MD type 4, next protocol 8.
    let (at, shift, width) = match field {
        FieldId::NshFlags => (0, 28, 2),
        FieldId::NshTtl => (0, 22, 6),
        FieldId::NshMdtype => (0, 8, 4),
        FieldId::NshNp => (0, 0, 8),
        FieldId::NshSpi => (4, 8, 24),
        FieldId::NshSi => (4, 0, 8),
        FieldId::NshC1 => (8, 0, 32),
        FieldId::NshC2 => (12, 0, 32),
        FieldId::NshC3 => (16, 0, 32),
        _ => (20, 0, 32),
    };
    // Context headers exist only with MD type 1.
    let is_there = at < 8 || bytes.get(nsh + 2)? & 0xf == 1;
    is_there.then(|| Place::whole(nsh + at, 4).bits(shift, width))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Changes a field within its number. Returns the number before and after; `None` if it is cut off.
fn change(bytes: &mut [u8], place: Place, value: u128, mask: u128) -> Option<(u128, u128)> {
    let number = bytes.get_mut(place.at..place.at + place.len)?;
    let old = number.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
    let [mask, value] = [mask, value & mask].map(|bits| (bits & place.ones) << place.shift);
    let new = old & !mask | value;
    number.copy_from_slice(&new.to_be_bytes()[16 - place.len..]);
    Some((old, new))
}

fn set_at(packet: &mut Packet, layers: &Layers, place: Place, value: u128, mask: u128) {
    let unfinished = packet.unfinished_checksum();
    let bytes = packet.data_mut();
    let Some((old, new)) = change(bytes, place, value, mask) else { return };
    let update = |sum| update128(sum, old, new);
    let pseudo_header = match place.covered {
        Covered::Ipv4Header { is_address } => {
            let at = usize::from(layers.l3) + 10;
            if let Some(sum) = be16(bytes, at) {
                put(bytes, at, &update(sum).to_be_bytes());
            }
            is_address
        }
        Covered::PseudoHeader => true,
        Covered::Transport(at) if unfinished != Some(at) => return fix_transport(bytes, layers, at, update),
        // Unfinished: finishing it will sum the bytes as they are then.
        _ => return,
    };
    let Some(at) = pseudo_checksum_at(bytes, layers).filter(|_| pseudo_header) else { return };
    if unfinished != Some(at) {
        fix_transport(bytes, layers, at, update);
    } else if let Some(sum) = be16(bytes, at) {
        // The field holds the sum itself, not its complement.
        put(bytes, at, &(!update(!sum)).to_be_bytes());
    }
}

/// The position of the transport checksum that covers the addresses, if the fixed part of its header is
/// there. As in Open vSwitch, TCP's data offset does not matter.
fn pseudo_checksum_at(bytes: &[u8], layers: &Layers) -> Option<usize> {
    ip(layers)?;
    let l4 = Some(usize::from(layers.l4)).filter(|l4| *l4 != 0)?;
    let there = layers.end(bytes).checked_sub(l4)?;
    match layers.protocol {
        TCP if there >= 20 => Some(l4 + 16),
        UDP if there >= 8 => Some(l4 + 6),
        ICMPV6 if layers.is_ipv6() && there >= 4 => Some(l4 + 2),
        _ => None,
    }
}

fn fix_transport(bytes: &mut [u8], layers: &Layers, at: usize, update: impl Fn(u16) -> u16) {
    let Some(old) = be16(bytes, at) else { return };
    let new = match layers.protocol {
        // No checksum was computed.
        UDP if old == 0 => 0,
        UDP => nonzero(update(old)),
        _ => update(old),
    };
    put(bytes, at, &new.to_be_bytes());
}

/// Changes a field of an SCTP packet, and its CRC by the same difference: a wrong CRC stays wrong.
fn set_in_stream(sctp: &mut [u8], place: Place, value: u128, mask: u128) {
    let Covered::Crc(start) = place.covered else { return };
    let Some(&stored) = sctp.get(8..).and_then(|rest| rest.first_chunk()) else { return };
    put(sctp, 8, &[0; 4]);
    let before = crc32c(sctp);
    change(sctp, Place { at: place.at - start, ..place }, value, mask);
    let crc = u32::from_le_bytes(stored) ^ before ^ crc32c(sctp);
    put(sctp, 8, &crc.to_le_bytes());
}

// ---- tags and labels

fn push_vlan(packet: &mut Packet, layers: &mut Layers, tpid: u16, tci: u16) -> Edit {
    if layers.is_bare() {
        return Err(DOES_NOT_FIT);
    }
    insert(packet, 2 * MAC_LEN, TAG_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, 2 * MAC_LEN, &tpid.to_be_bytes());
    put(bytes, 2 * MAC_LEN + 2, &(tci & !TCI_PRESENT).to_be_bytes());
    *layers = layers.with_tags(1);
    Ok(())
}

fn pop_vlan(packet: &mut Packet, layers: &mut Layers) -> Edit {
    if layers.is_bare() {
        return Err(DOES_NOT_FIT);
    }
    match be16(packet.data(), 2 * MAC_LEN) {
        Some(tpid) if is_tag(tpid) => remove(packet, 2 * MAC_LEN, TAG_LEN)?,
        // Popping without a tag does nothing.
        Some(_) => return Ok(()),
        None => return Err(DOES_NOT_FIT),
    }
    // What follows a tag that was not parsed is unknown.
    *layers = if layers.tags > 0 { layers.with_tags(-1) } else { Layers::UNKNOWN };
    Ok(())
}

fn push_mpls(packet: &mut Packet, layers: &mut Layers, eth_type: u16, lse: u32) -> Edit {
    if layers.is_bare() {
        return encap::add_mpls(packet, layers, eth_type, lse);
    }
    let at = usize::from(layers.l2_5);
    if at < 2 * MAC_LEN + 2 {
        return Err(DOES_NOT_FIT);
    }
    insert(packet, at, LSE_LEN)?;
    let bytes = packet.data_mut();
    put(bytes, at - 2, &eth_type.to_be_bytes());
    put(bytes, at, &lse.to_be_bytes());
    *layers = layers.retyped(eth_type);
    Ok(())
}

fn pop_mpls(packet: &mut Packet, layers: &mut Layers, eth_type: u16) -> Edit {
    if !is_mpls(layers.eth_type) {
        return Err(DOES_NOT_FIT);
    }
    let at = usize::from(layers.l2_5);
    remove(packet, at, LSE_LEN)?;
    if at == 0 {
        *layers = encap::layers_of(packet, packet_type::behind_label(eth_type));
        return Ok(());
    }
    put(packet.data_mut(), at - 2, &eth_type.to_be_bytes());
    *layers = layers.retyped(eth_type);
    Ok(())
}

#[cfg(test)]
mod tests;
