//! What the kernel keeps beside a frame's bytes: the virtio header before it, and its VLAN tag.

use super::ring::VNET_LEN;
use crate::virtio_net;
use packet::{Packet, PacketFlags};

pub(super) fn padded(header: &[u8; VNET_LEN]) -> [u8; virtio_net::HEADER_LEN] {
    std::array::from_fn(|i| header.get(i).copied().unwrap_or(0))
}

/// Puts a tag back behind the addresses.
pub(super) fn push_tag(packet: &mut Packet, tag: [u8; 4]) {
    if packet.data().len() < 12 || packet.push_front(4).is_none() {
        return; // No Ethernet header, no tag.
    }
    let bytes = packet.data_mut();
    bytes.copy_within(4..16, 0);
    bytes[12..16].copy_from_slice(&tag);
    if packet.flags.has(PacketFlags::CSUM_PARTIAL) {
        packet.csum_start += 4;
    }
}
