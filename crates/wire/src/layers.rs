//! The only walk over a frame's headers: which layers it has and where they start.
//!
//! Extraction, edits, segmentation, checksums and the offloads offered to guests all use the [`Layers`] from
//! this walk, so that they never disagree about which headers exist. A packet carries its layers, which
//! follow its edits; code that has a packet without layers walks once.
//!
//! Semantics are Open vSwitch's (ovs-fields(7)): a header that is truncated or contradicts itself counts as
//! absent, and so does everything after it; the IP version is not checked against the Ethernet type; padding
//! after the IP payload belongs to no layer. Pure; it reads no byte outside the slice and never panics,
//! whatever the bytes.
//!
//! Source: IEEE 802.3, 802.1Q, 802.1ad; RFC 791, 8200, 4302, 6946.

/// An unlimited number of tags: for a walk that must look past all of them.
pub const ALL_TAGS: u8 = u8::MAX;
/// Means "no Ethernet type".
pub const NOT_ETH_TYPE: u16 = 0x5ff;
/// Lowest number that is a type; below, the field is the length of an 802.3 frame.
const ETH_TYPE_MIN: u16 = 0x600;
const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// Where a frame's layers start, in bytes from its start. An offset of 0 means that the layer is absent,
/// except for [`Self::l2_5`] and [`Self::l3`] in a frame without an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Layers {
    /// The type of what follows Ethernet addresses and VLAN tags; [`NOT_ETH_TYPE`] for none.
    pub eth_type: u16,
    /// What [`Self::eth_type`] names: MPLS labels, or the network layer.
    pub l2_5: u16,
    /// The header of IPv4 or IPv6, if [`Self::is_ip`].
    pub l3: u16,
    /// The transport layer, after all IPv6 extension headers, even if it is truncated. 0 in a later fragment.
    pub l4: u16,
    /// The start of the transport header's payload; 0 if that header is incomplete. Unknown protocols have no
    /// header.
    pub payload: u16,
    /// OpenFlow 1.3's bits of the extension headers that were passed (1.3.5, section 7.2.3.8).
    pub exthdr: u16,
    /// The transport protocol: IPv6's last next header; 44 for a later fragment of IPv6.
    pub protocol: u8,
    /// VLAN tags that were passed.
    pub tags: u8,
    bits: u8,
}

impl Layers {
    /// For a packet whose headers have not been parsed yet.
    pub const UNKNOWN: Layers =
        Layers { eth_type: 0, l2_5: 0, l3: 0, l4: 0, payload: 0, exthdr: 0, protocol: 0, tags: 0, bits: 0 };
    const KNOWN: u8 = 1;
    const IP: u8 = 1 << 1;
    const FRAGMENT: u8 = 1 << 2;
    const LATER: u8 = 1 << 3;
    const ROUTED: u8 = 1 << 4;
    const CUT: u8 = 1 << 5;
    const LINK: u8 = 1 << 6;

    /// Walks over a frame that begins with an Ethernet header, followed by at most `tags_max` VLAN tags.
    /// `head` is the frame or, if it is chained, the first segment; `frame_len` is the length of the whole.
    /// `None` if the Ethernet header is truncated.
    #[inline]
    pub fn of(head: &[u8], frame_len: usize, tags_max: u8) -> Option<Layers> {
        Some(Layers::of_link(head, tags_max)?.with_network(head, frame_len))
    }

    /// Only the link layer: type, tags and their end. A truncated tag is not a tag; its TPID is then the
    /// type.
    #[inline(always)]
    pub fn of_link(head: &[u8], tags_max: u8) -> Option<Layers> {
        let mut eth_type = be16(head, 12)?;
        let (mut at, mut tags) = (14, 0);
        while is_tag(eth_type)
            && tags < tags_max
            && let Some(inner) = be16(head, at + 2)
        {
            (eth_type, at, tags) = (inner, at + TAG_LEN, tags + 1);
        }
        let mut layers = Layers { eth_type, l2_5: at as u16, tags, bits: Layers::KNOWN, ..Layers::UNKNOWN };
        if eth_type < ETH_TYPE_MIN {
            layers.snap(head);
        }
        Some(layers)
    }

    /// For a frame that starts with the header named by `eth_type`.
    pub fn without_link(head: &[u8], frame_len: usize, eth_type: u16) -> Layers {
        Layers { eth_type, bits: Layers::KNOWN, ..Layers::UNKNOWN }.with_network(head, frame_len)
    }

    /// For a frame of this packet type (OpenFlow 1.5), which is not Ethernet. Namespace 1 contains Ethernet
    /// types; types in any other are unknown.
    pub fn of_type(head: &[u8], frame_len: usize, packet_type: u32) -> Layers {
        let eth_type = if packet_type >> 16 == 1 { packet_type as u16 } else { 0 };
        Layers::without_link(head, frame_len, eth_type)
    }

    /// For a frame in which another header, of this type, now follows the link layer: its layers are unknown
    /// until [`Self::know`] continues the walk from there.
    pub fn retyped(self, eth_type: u16) -> Layers {
        Layers { eth_type, l2_5: self.l2_5, tags: self.tags, bits: Layers::LINK, ..Layers::UNKNOWN }
    }

    /// Walks, unless that was done: from the end of the link layer if it is known, else as [`Self::of`] does.
    #[inline(always)]
    pub fn know(&mut self, head: &[u8], frame_len: usize, tags_max: u8) {
        if self.bits & Layers::KNOWN != 0 {
            return;
        }
        *self = if self.bits & Layers::LINK != 0 {
            Layers { bits: Layers::KNOWN, ..*self }.with_network(head, frame_len)
        } else {
            Layers::of(head, frame_len, tags_max).unwrap_or_default()
        };
    }

    /// For a frame that has gained `count` tags in front of its others, or lost that many.
    pub fn with_tags(self, count: i8) -> Layers {
        let by = isize::from(count) * TAG_LEN as isize;
        let tags = self.tags.saturating_add_signed(count);
        Layers { tags, ..self.shifted(by) }
    }

    /// For a frame in which all layers start `by` bytes later.
    pub fn shifted(self, by: isize) -> Layers {
        let moved = |at: u16| usize::from(at).checked_add_signed(by).and_then(|at| u16::try_from(at).ok());
        // In a frame without a link layer, the network layer starts at 0.
        let l3 = if self.is_ip() { moved(self.l3) } else { Some(self.l3) };
        let [l4, payload] = [self.l4, self.payload].map(|at| if at == 0 { Some(0) } else { moved(at) });
        match (moved(self.l2_5), l3, l4, payload) {
            (Some(l2_5), Some(l3), Some(l4), Some(payload)) => Layers { l2_5, l3, l4, payload, ..self },
            _ => Layers::UNKNOWN,
        }
    }

    /// For a frame that is known to start with a header other than Ethernet's.
    #[inline(always)]
    pub fn is_bare(&self) -> bool {
        self.bits & Layers::KNOWN != 0 && self.l2_5 == 0
    }

    /// For a frame that has lost its link layer.
    pub fn without_their_link(self) -> Layers {
        Layers { tags: 0, ..self.shifted(-isize::try_from(self.l2_5).unwrap_or(0)) }
    }

    /// Whether the headers have been parsed.
    #[inline(always)]
    pub fn are_known(&self) -> bool {
        self.bits & Layers::KNOWN != 0
    }

    /// Whether there is an IPv4 or IPv6 header of the full length that it states.
    #[inline(always)]
    pub fn is_ip(&self) -> bool {
        self.bits & Layers::IP != 0
    }

    /// Whether that is an IPv6 header.
    #[inline(always)]
    pub fn is_ipv6(&self) -> bool {
        self.is_ip() && self.eth_type == ETH_TYPE_IPV6
    }

    /// A fragment, the first or a later one.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.bits & Layers::FRAGMENT != 0
    }

    /// The length of a fragment's headers, from the network layer up to what is fragmented: in IPv6, the last
    /// of them is the fragment header.
    pub fn fragment_header_len(&self, head: &[u8]) -> Option<usize> {
        let ip = head.get(usize::from(self.l3)..)?;
        if !self.is_ipv6() {
            return Some(usize::from(ip.first()? & 0xf) * 4);
        }
        let (mut protocol, mut at) = (*ip.get(6)?, 40);
        while is_extension(protocol) {
            let h = ip.get(at..)?.first_chunk()?;
            at += extension_len(protocol, h);
            if fragment_word(protocol, h).is_some() {
                return Some(at);
            }
            protocol = h[0];
        }
        None
    }

    /// In the middle of a datagram: no transport header follows.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.bits & Layers::LATER != 0
    }

    /// An IPv6 routing header names the real destination, so that the one in the fixed header is not in
    /// checksums.
    #[inline(always)]
    pub fn is_routed(&self) -> bool {
        self.bits & Layers::ROUTED != 0
    }

    /// The chain of IPv6 extension headers is cut off: nothing is known but addresses.
    #[inline(always)]
    pub fn is_cut(&self) -> bool {
        self.bits & Layers::CUT != 0
    }

    /// Where the IP packet ends in the frame, which begins with these bytes: padding follows.
    #[inline]
    pub fn end(&self, head: &[u8]) -> usize {
        let l3 = usize::from(self.l3);
        let len_at = |at| be16(head, at).map_or(0, usize::from);
        if self.is_ipv6() { l3 + 40 + len_at(l3 + 4) } else { l3 + len_at(l3 + 2) }
    }

    /// An 802.3 frame: the type of a SNAP header with organisation 0, else none.
    #[cold]
    fn snap(&mut self, head: &[u8]) {
        self.eth_type = NOT_ETH_TYPE;
        // DSAP and SSAP 0xaa, control 3, organisation 0, then the type.
        let at = usize::from(self.l2_5);
        if let Some([0xaa, 0xaa, 3, 0, 0, 0, high, low]) = head.get(at..).and_then(|rest| rest.first_chunk())
        {
            self.l2_5 += 8;
            let eth_type = u16::from_be_bytes([*high, *low]);
            if eth_type >= ETH_TYPE_MIN {
                self.eth_type = eth_type;
            }
        }
    }

    #[inline(always)]
    fn with_network(self, head: &[u8], frame_len: usize) -> Layers {
        match self.eth_type {
            ETH_TYPE_IPV4 => self.with_ipv4(head, frame_len),
            ETH_TYPE_IPV6 => self.with_ipv6(head, frame_len),
            _ => self,
        }
    }

    #[inline(always)]
    fn with_ipv4(mut self, head: &[u8], frame_len: usize) -> Layers {
        let l3 = usize::from(self.l2_5);
        let Some(h) = head.get(l3..).and_then(|rest| rest.first_chunk::<20>()) else { return self };
        let header_len = usize::from(h[0] & 0xf) * 4;
        let total_len = usize::from(u16::from_be_bytes([h[2], h[3]]));
        if header_len < 20 || header_len > total_len || !ends_in(frame_len, l3 + total_len) {
            return self;
        }
        // Offset 13 bits, more fragments 1.
        let fragment = u16::from_be_bytes([h[6], h[7]]) & 0x3fff;
        self.bits |= Layers::IP;
        self.l3 = self.l2_5;
        self.protocol = h[9];
        if fragment != 0 {
            self.bits |= Layers::FRAGMENT;
            if fragment & 0x1fff != 0 {
                self.bits |= Layers::LATER;
                return self;
            }
        }
        self.with_transport(head, l3 + header_len, l3 + total_len)
    }

    #[inline(always)]
    fn with_ipv6(mut self, head: &[u8], frame_len: usize) -> Layers {
        let l3 = usize::from(self.l2_5);
        let Some(h) = head.get(l3..).and_then(|rest| rest.first_chunk::<40>()) else { return self };
        let end = l3 + 40 + usize::from(u16::from_be_bytes([h[4], h[5]]));
        if !ends_in(frame_len, end) {
            return self;
        }
        self.bits |= Layers::IP;
        self.l3 = self.l2_5;
        self.protocol = h[6];
        let mut l4 = l3 + 40;
        if is_extension(self.protocol) || matches!(self.protocol, NO_NEXT | ESP) {
            match self.pass_extensions(head, l4, end) {
                Some(behind) => l4 = behind,
                None => self.bits |= Layers::CUT,
            }
            if self.bits & (Layers::CUT | Layers::LATER) != 0 {
                return self;
            }
        }
        self.with_transport(head, l4, end)
    }

    /// Follows the extension headers from `at` on. `None` if one is truncated by the end of the payload (or
    /// of `head`).
    #[inline(never)]
    fn pass_extensions(&mut self, head: &[u8], mut at: usize, end: usize) -> Option<usize> {
        let mut seen = ExtensionBits::default();
        loop {
            seen.note(self.protocol);
            if !is_extension(self.protocol) {
                break;
            }
            let h = head.get(at..end.min(head.len()))?.first_chunk::<8>()?;
            let header_len = extension_len(self.protocol, h);
            if header_len > end - at {
                return None;
            }
            if self.protocol == ROUTING && h[3] > 0 {
                self.bits |= Layers::ROUTED;
            }
            at += header_len;
            if let Some(word) = fragment_word(self.protocol, h) {
                self.bits |= Layers::FRAGMENT;
                if word & 0xfff8 != 0 {
                    self.bits |= Layers::LATER;
                    break;
                }
            }
            self.protocol = h[0];
        }
        self.exthdr = seen.bits;
        Some(at)
    }

    #[inline(always)]
    fn with_transport(mut self, head: &[u8], l4: usize, end: usize) -> Layers {
        let Some(there) = head.get(l4..end.min(head.len())) else { return self };
        let header_len = match self.protocol {
            TCP => match there.first_chunk::<20>().map(|h| usize::from(h[12] >> 4) * 4) {
                Some(len) if len >= 20 && len <= end - l4 => Some(len),
                _ => None,
            },
            UDP | ICMP | IGMP | ICMPV6 => (there.len() >= 8).then_some(8),
            SCTP => (there.len() >= 12).then_some(12),
            _ => Some(0),
        };
        // Beyond 64 KB, where extension headers alone fill a packet, there is nothing to point at.
        if let Ok(l4) = u16::try_from(l4) {
            self.l4 = l4;
            self.payload = header_len.and_then(|len| u16::try_from(usize::from(l4) + len).ok()).unwrap_or(0);
        }
        self
    }
}

/// Straight paths of extraction: what they have found out by themselves.
impl Layers {
    /// For a frame with TCP or UDP over IP, without options or extension headers, not a fragment.
    #[inline(always)]
    pub fn plain(eth_type: u16, tags: u8, l3: u16, l4: u16, payload: u16, protocol: u8) -> Layers {
        let bits = Layers::KNOWN | Layers::IP;
        Layers { eth_type, l2_5: l3, l3, l4, payload, exthdr: 0, protocol, tags, bits }
    }
}

/// Whether a packet that ends at `end` is within the frame, followed by no more than padding.
#[inline(always)]
fn ends_in(frame_len: usize, end: usize) -> bool {
    frame_len.checked_sub(end).is_some_and(|padding| padding <= 0xffff)
}

/// Whether this Ethernet type is that of a VLAN tag.
#[inline(always)]
pub fn is_tag(eth_type: u16) -> bool {
    matches!(eth_type, 0x8100 | 0x88a8)
}

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AUTH: u8 = 51;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

/// The headers that are walked over. ESP and "no next header" end the walk like a transport protocol.
#[inline(always)]
fn is_extension(protocol: u8) -> bool {
    const SET: u64 = 1 << HOP_BY_HOP | 1 << ROUTING | 1 << FRAGMENT | 1 << AUTH | 1 << DESTINATION;
    protocol < 64 && SET >> protocol & 1 != 0
}

/// The length of an extension header that begins with these bytes.
#[inline(always)]
fn extension_len(protocol: u8, head: &[u8; 8]) -> usize {
    match protocol {
        FRAGMENT => 8,
        AUTH => (usize::from(head[1]) + 2) * 4,
        _ => (usize::from(head[1]) + 1) * 8,
    }
}

/// Of a fragment header: offset 13 bits, reserved 2, more fragments 1. All zero ("atomic", RFC 6946) is no
/// fragment.
#[inline(always)]
fn fragment_word(protocol: u8, head: &[u8; 8]) -> Option<u16> {
    Some(u16::from_be_bytes([head[2], head[3]])).filter(|word| protocol == FRAGMENT && *word != 0)
}

/// The bits of OpenFlow 1.3's `ipv6_exthdr`, and what is needed to judge repeats and order.
#[derive(Default)]
struct ExtensionBits {
    bits: u16,
    /// The kinds of header that came, by their bits.
    kinds: u16,
    last_rank: u8,
    destinations: u8,
}

impl ExtensionBits {
    const UNEXPECTED_REPEAT: u16 = 1 << 7;
    const UNEXPECTED_ORDER: u16 = 1 << 8;

    fn note(&mut self, protocol: u8) {
        // The bit, and the place in the order that RFC 8200 section 4.1 recommends.
        let (bit, rank) = match protocol {
            HOP_BY_HOP => (1 << 6, 0),
            ROUTING => (1 << 5, 2),
            FRAGMENT => (1 << 4, 3),
            AUTH => (1 << 2, 4),
            ESP => (1 << 1, 5),
            // Before a routing header or last: the one header that may come twice.
            DESTINATION => (1 << 3, if self.destinations == 0 && self.last_rank <= 1 { 1 } else { 6 }),
            NO_NEXT => (1, 7),
            _ => return,
        };
        self.destinations += u8::from(protocol == DESTINATION && self.destinations < 3);
        let repeated = if protocol == DESTINATION { self.destinations > 2 } else { self.kinds & bit != 0 };
        // Hop-by-hop options are only valid as the first header.
        let misplaced = protocol == HOP_BY_HOP && self.kinds != 0;
        if repeated {
            self.bits |= Self::UNEXPECTED_REPEAT;
        }
        if rank < self.last_rank || misplaced {
            self.bits |= Self::UNEXPECTED_ORDER;
        }
        if !misplaced {
            self.bits |= bit;
        }
        self.kinds |= bit;
        self.last_rank = self.last_rank.max(rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_fragment_end_with_the_header_that_makes_it_one() {
        let ip = [0x60, 0, 0, 0, 0, 64, HOP_BY_HOP, 64];
        let hop_by_hop = [FRAGMENT, 1, 1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 1, 0];
        let [atomic, first] = [[FRAGMENT, 0, 0, 0, 0, 0, 0, 7], [UDP, 0, 0, 1, 0, 0, 0, 7]];
        let udp = [0; 32];
        let packet = [&ip[..], &[0; 32], &hop_by_hop, &atomic, &first, &udp].concat();
        let layers = Layers::without_link(&packet, packet.len(), ETH_TYPE_IPV6);
        assert!(layers.is_fragment() && !layers.is_later_fragment());
        assert_eq!(usize::from(layers.l4), 40 + 16 + 8 + 8);
        assert_eq!(layers.fragment_header_len(&packet), Some(40 + 16 + 8 + 8));
        let atomic = [UDP, 0, 0, 0, 0, 0, 0, 7];
        let whole = [&ip[..], &[0; 32], &hop_by_hop, &atomic, &[0; 40]].concat();
        let layers = Layers::without_link(&whole, whole.len(), ETH_TYPE_IPV6);
        assert!(layers.is_ipv6() && !layers.is_fragment());
        assert_eq!(layers.fragment_header_len(&whole), None);
    }
}
