//! Pushes headers in front of a whole packet and pops them, which changes its packet type (OpenFlow 1.5
//! section 7.2.3.11).
//!
//! The layers of a packet that does not start with an Ethernet header are always known: without its type it
//! cannot be parsed. Sources: RFC 8300 (NSH), RFC 3032 (MPLS).

use super::room::{DOES_NOT_FIT, Edit, LSE_LEN, MAC_LEN, insert, put, remove};
use crate::packet_type;
use packet::Packet;
use wire::Layers;
use wire::nsh::NshHeader;

const ETH_TYPE_NSH: u16 = 0x894f;
const ETH_LEN: usize = 2 * MAC_LEN + 2;

/// The layers of a packet of this type. For a frame they are left for the next change to find.
pub fn layers_of(packet: &Packet, packet_type: u32) -> Layers {
    match packet_type {
        packet_type::ETHERNET => Layers::UNKNOWN,
        _ => Layers::of_type(packet.data(), packet.len(), packet_type),
    }
}

pub(super) fn push_eth(packet: &mut Packet, layers: &mut Layers, src: u64, dst: u64, eth_type: u16) -> Edit {
    if !layers.is_bare() {
        return Err(DOES_NOT_FIT);
    }
    insert(packet, 0, ETH_LEN)?;
    let bytes = packet.data_mut();
    // Of 48 bits.
    put(bytes, 0, &dst.to_be_bytes()[2..]);
    put(bytes, MAC_LEN, &src.to_be_bytes()[2..]);
    put(bytes, 2 * MAC_LEN, &eth_type.to_be_bytes());
    *layers = if layers.eth_type == eth_type { layers.shifted(ETH_LEN as isize) } else { Layers::UNKNOWN };
    Ok(())
}

/// Removes the whole link layer, including that of an 802.3 frame. Refused with tags, which would be lost.
pub(super) fn pop_eth(packet: &mut Packet, layers: &mut Layers) -> Edit {
    if !layers.are_known() || layers.is_bare() || layers.tags > 0 {
        return Err(DOES_NOT_FIT);
    }
    remove(packet, 0, layers.l2_5.into())?;
    *layers = layers.without_their_link();
    Ok(())
}

pub(super) fn push_nsh(packet: &mut Packet, layers: &mut Layers, header: &[u8]) -> Edit {
    insert(packet, 0, header.len())?;
    put(packet.data_mut(), 0, header);
    *layers = layers_of(packet, packet_type::of_eth_type(ETH_TYPE_NSH));
    Ok(())
}

pub(super) fn pop_nsh(packet: &mut Packet, layers: &mut Layers, packet_type: u32) -> Edit {
    if layers.eth_type != ETH_TYPE_NSH || !layers.is_bare() {
        return Err(DOES_NOT_FIT);
    }
    let header_len = NshHeader::new(packet.data()).map_err(|_| DOES_NOT_FIT)?.header_len();
    remove(packet, 0, header_len)?;
    *layers = layers_of(packet, packet_type);
    Ok(())
}

pub(super) fn add_mpls(packet: &mut Packet, layers: &mut Layers, eth_type: u16, lse: u32) -> Edit {
    insert(packet, 0, LSE_LEN)?;
    put(packet.data_mut(), 0, &lse.to_be_bytes());
    *layers = layers_of(packet, packet_type::of_eth_type(eth_type));
    Ok(())
}
