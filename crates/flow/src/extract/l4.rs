//! The transport layer: TCP (RFC 9293), UDP (RFC 768), SCTP (RFC 9260), ICMP (RFC 792, 4443), IGMP (RFC
//! 3376), and neighbour discovery (RFC 4861).

use super::bytes::{be16, be32, be48, be64};

pub(super) const ICMP: u64 = 1;
pub(super) const IGMP: u64 = 2;
pub(super) const TCP: u64 = 6;
pub(super) const UDP: u64 = 17;
pub(super) const ICMPV6: u64 = 58;
pub(super) const SCTP: u64 = 132;

/// The upper 48 bits of word 4: ports (or type and code) and TCP flags, if the header is complete; 0 for
/// other protocols.
#[inline(always)]
pub(super) fn fields(there: &[u8], proto: u64) -> u64 {
    match (proto, there.first_chunk::<20>(), there.first_chunk::<8>()) {
        (TCP, Some(h), _) => be32::<0, 20>(h) << 32 | (be16::<12, 20>(h) & 0xfff) << 16,
        (UDP | SCTP, _, Some(h)) => be32::<0, 8>(h) << 32,
        (ICMP | IGMP | ICMPV6, _, Some(h)) => u64::from(h[0]) << 48 | u64::from(h[1]) << 32,
        _ => 0,
    }
}

/// The group of an IGMP message. `None` if it is truncated.
pub(super) fn igmp_group(payload: &[u8]) -> Option<u64> {
    payload.first_chunk::<8>().map(be32::<4, 8>)
}

/// The contents of a neighbour solicitation or advertisement.
#[derive(Default)]
pub(super) struct Neighbour {
    /// The word behind the checksum: flags and reserved bits.
    pub reserved: u64,
    /// Target address.
    pub target: [u64; 2],
    /// Source link-layer address.
    pub sll: u64,
    /// Target link-layer address.
    pub tll: u64,
    /// Type of the first link-layer address option.
    pub options_type: u64,
}

/// `None` for other messages. An option given twice makes target and addresses count as absent.
#[inline(never)]
pub(super) fn neighbour(payload: &[u8]) -> Option<Neighbour> {
    let (h, rest) = payload.split_first_chunk::<8>()?;
    if !matches!(h[..2], [135 | 136, 0]) {
        return None;
    }
    let mut nd = Neighbour { reserved: be32::<4, 8>(h), ..Neighbour::default() };
    let Some((target, mut options)) = rest.split_first_chunk::<16>() else { return Some(nd) };
    nd.target = [be64::<0, 16>(target), be64::<8, 16>(target)];
    while let Some(option) = options.first_chunk::<8>() {
        let option_len = usize::from(option[1]) * 8;
        if option_len == 0 || option_len > options.len() {
            break;
        }
        if matches!(option[..2], [1 | 2, 1]) {
            let slot = if option[0] == 1 { &mut nd.sll } else { &mut nd.tll };
            if *slot != 0 {
                let Neighbour { reserved, options_type, .. } = nd;
                return Some(Neighbour { reserved, options_type, ..Neighbour::default() });
            }
            *slot = be48::<2, 8>(option);
            if nd.options_type == 0 {
                nd.options_type = u64::from(option[0]);
            }
        }
        options = &options[option_len..];
    }
    Some(nd)
}
