//! Ethernet: addresses, up to two VLAN tags, and the Ethernet type behind them (LLC and SNAP included).
//! IEEE 802.3, 802.1Q, 802.1ad; the choice among them as ovs-fields(7) describes `eth_type`.

use super::bytes::{be16, be32, be64};

/// What stands for "no Ethernet type".
const NOT_ETH_TYPE: u64 = 0x5ff;
/// Lowest number that is a type; below, the field is the length of an 802.3 frame.
const ETH_TYPE_MIN: u64 = 0x600;
/// That a tag is there: the bit of the old canonical format indicator, as in Open vSwitch.
pub(super) const VLAN_PRESENT: u64 = 0x1000;

/// Where the link layer ends, and what it holds, at the places that it has in the key's words.
pub(super) struct L2 {
    /// Type behind all tags.
    pub eth_type: u64,
    /// Start of the header behind it.
    pub l3: usize,
    /// Word 1 but for the type: the destination.
    pub dst: u64,
    /// Word 2: source and outer tag.
    pub src_tci: u64,
    /// The upper 48 bits of word 5: outer protocol id, inner tag, inner protocol id.
    pub tpids: u64,
}

#[inline(always)]
pub(super) fn is_vlan(eth_type: u64) -> bool {
    eth_type == 0x8100 || eth_type == 0x88a8
}

/// `None` for a frame without a whole Ethernet header. A tag that is cut off is not a tag, its protocol id is
/// the type.
#[inline(always)]
pub(super) fn ethernet(head: &[u8], vlan_limit: u8) -> Option<L2> {
    let (h, mut rest) = head.split_first_chunk::<14>()?;
    let mut eth_type = be16::<12, 14>(h);
    let mut l2 = L2 {
        eth_type,
        l3: 14,
        dst: be64::<0, 14>(h) & !0xffff,
        src_tci: be64::<6, 14>(h) & !0xffff,
        tpids: 0,
    };
    if is_vlan(eth_type)
        && vlan_limit >= 1
        && let Some((tag, behind)) = rest.split_first_chunk::<4>()
    {
        l2.src_tci |= be16::<0, 4>(tag) | VLAN_PRESENT;
        l2.tpids = eth_type << 16;
        (eth_type, rest, l2.l3) = (be16::<2, 4>(tag), behind, 18);
        if is_vlan(eth_type)
            && vlan_limit >= 2
            && let Some((tag, behind)) = rest.split_first_chunk::<4>()
        {
            l2.tpids |= (be16::<0, 4>(tag) | VLAN_PRESENT) << 32 | eth_type << 48;
            (eth_type, rest, l2.l3) = (be16::<2, 4>(tag), behind, 22);
        }
    }
    l2.eth_type = eth_type;
    if eth_type < ETH_TYPE_MIN {
        snap(rest, &mut l2);
    }
    Some(l2)
}

/// An 802.3 frame: the type of a SNAP header with organisation 0, else none.
#[cold]
fn snap(rest: &[u8], l2: &mut L2) {
    l2.eth_type = NOT_ETH_TYPE;
    // DSAP and SSAP 0xaa, control 3, organisation 0, then the type.
    if let Some(h) = rest.first_chunk::<8>()
        && be32::<0, 8>(h) == 0xaaaa_0300
        && be16::<4, 8>(h) == 0
    {
        l2.l3 += 8;
        if be16::<6, 8>(h) >= ETH_TYPE_MIN {
            l2.eth_type = be16::<6, 8>(h);
        }
    }
}
