//! From a frame's bytes to its flow key.
//!
//! Idea: a block of the key is composed in registers and stored once; a block that the protocol does not need
//! is neither written nor cleared, since `present` says that it counts as zero. TCP and UDP over IPv4 or
//! IPv6, with at most one VLAN tag, and without options, extension headers or fragmentation, take a straight
//! path with constant offsets (untagged IPv4 inline in the caller); everything else, and everything that
//! looks wrong, takes the general path, which walks over the layers ([`wire::layers`]) and then reads their
//! fields.
//!
//! Semantics are Open vSwitch's (ovs-fields(7)): truncated, malformed or unknown headers leave their fields
//! zero and the packet is switched all the same; only a frame without a complete Ethernet header is refused.
//! UDP's length and all checksums are not checked. ND and IGMP fields are read only after the IP version that
//! they belong to.
//!
//! Invariants: no byte outside the slice is read and nothing panics, whatever the bytes; extraction at a
//! depth equals extraction of everything with the deeper fields zeroed (tests/extract/). Pure: any thread.

mod bytes;
mod head;
mod l3;
mod l4;
mod long;
mod plain;

use crate::depth::Depth;
use crate::key::{B_COMMON, B_CT, B_IPV6, B_RARE, Key};
use base::{OfPort, PortNo};
use bytes::{be16, be32, be64};
pub use head::head_is_enough;
pub use long::{LongKey, LongReader, long_key, origin_of_long};
pub use plain::{
    PLAIN_ORIGIN_BITS, PlainKey, begins_tcp, may_open_tcp, opens_tcp, origin_of_plain, plain_key,
    plain_key_by, plain_mask, plain_with_origin,
};
use wire::Layers;
use wire::layers::{TAG_LEN, is_tag};

/// Fragment bit: a fragment, the first or a later one.
const FRAG_ANY: u64 = 1;
/// Fragment bit: not the first fragment, so without a transport header.
const FRAG_LATER: u64 = 2;
/// Means that a tag is present: the bit of the old canonical format indicator, as in Open vSwitch.
const VLAN_PRESENT: u64 = 0x1000;

const ETH_TYPE_IPV4: u64 = 0x0800;
const ETH_TYPE_ARP: u64 = 0x0806;
const ETH_TYPE_RARP: u64 = 0x8035;
const ETH_TYPE_IPV6: u64 = 0x86dd;
const ETH_TYPE_MPLS: u64 = 0x8847;
const ETH_TYPE_MPLS_MULTICAST: u64 = 0x8848;
const ETH_TYPE_NSH: u64 = 0x894f;

/// How to extract: what is the same for all packets that come in at one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ingress {
    word0: u64,
    word7: u64,
    packet_type: u32,
    depth: Depth,
    vlan_limit: u8,
}

impl Ingress {
    /// Packets from a port, by both its numbers; `dp_port` fits 16 bits.
    pub fn new(in_port: OfPort, dp_port: PortNo, depth: Depth) -> Ingress {
        debug_assert!(dp_port.0 <= 0xffff, "datapath ports are numbered in 16 bits");
        let word0 = u64::from(in_port.0) | u64::from(dp_port.0 & 0xffff) << 16;
        Ingress { word0, word7: 0, packet_type: 0, depth, vlan_limit: 2 }
    }

    /// Packets that come round again, with what goes with them.
    pub fn with_metadata(self, recirc_id: u32, pkt_mark: u32) -> Ingress {
        let word0 = self.word0 & 0xffff_ffff | u64::from(recirc_id) << 32;
        Ingress { word0, word7: u64::from(pkt_mark) << 32, ..self }
    }

    /// Extraction looks past at most `tags` VLAN tags (0 to 2; default 2): the type of a frame with more is
    /// the TPID of the next tag. Open vSwitch's `other_config:vlan-limit`.
    pub fn with_vlan_limit(self, tags: u8) -> Ingress {
        Ingress { vlan_limit: tags, ..self }
    }

    /// The same, read so deep.
    pub fn with_depth(self, depth: Depth) -> Ingress {
        Ingress { depth, ..self }
    }

    /// Packets of this type (OpenFlow 1.5; default 0, which is Ethernet). For any other type, use
    /// [`extract_without_link`].
    pub fn with_packet_type(self, packet_type: u32) -> Ingress {
        Ingress { packet_type, ..self }
    }

    /// The type of all packets that come in so.
    #[inline(always)]
    pub fn packet_type(&self) -> u32 {
        self.packet_type
    }

    /// Word 0 of block 0 of all packets that come in so.
    #[inline(always)]
    pub fn word0(&self) -> u64 {
        self.word0
    }

    /// Word 7 of block 0, likewise.
    #[inline(always)]
    pub fn word7(&self) -> u64 {
        self.word7
    }

    /// How deep extraction goes.
    #[inline(always)]
    pub fn depth(&self) -> Depth {
        self.depth
    }
}

/// Fills `key` from the frame. `head` is the frame, or the first segment of a chained one; `frame_len` is the
/// length of the whole. Headers beyond `head` count as absent.
///
/// `None` for a frame too short for an Ethernet header: drop it as `RxTruncated`; the key is then empty.
/// Otherwise returns its layers, which are known from [`Depth::Transport`] on.
///
/// The key's previous contents do not matter; afterwards it contains the packet and nothing else.
#[inline]
#[must_use = "a truncated frame is to be dropped"]
pub fn extract(head: &[u8], frame_len: usize, ingress: &Ingress, key: &mut Key) -> Option<Layers> {
    plain_ipv4::<14>(head, frame_len, ingress, 0, 0, key)
        .or_else(|| extract_tagged_or_ipv6(head, frame_len, ingress, key))
}

/// Like [`extract`], for a packet that has been in the switch before or comes out of a tunnel: metadata
/// (ports, recirculation id, packet type, connection tracking, mark, registers, pipeline values, tunnel)
/// stays as it is in `key`, and only the packet's own fields are rewritten. The packet type is honoured: if
/// it is not Ethernet, the frame starts with the header that it names, and is never too short.
#[must_use = "a truncated frame is to be dropped"]
pub fn extract_keeping_metadata(
    head: &[u8],
    frame_len: usize,
    ingress: &Ingress,
    key: &mut Key,
) -> Option<Layers> {
    let kept_present = key.present() & !((1 << B_CT) - 1);
    let [word0, word6, word7] = [0, 6, 7].map(|w| key.word(B_COMMON, w));
    let ingress = Ingress { word0, ..*ingress };
    let packet_type = word6 as u32;
    let layers = if packet_type == 0 {
        extract(head, frame_len, &ingress, key)
    } else {
        Some(extract_without_link(head, frame_len, &ingress.with_packet_type(packet_type), key))
    };
    let common = key.block_mut(B_COMMON);
    (common.0[0], common.0[6], common.0[7]) = (word0, word6, word7);
    key.set_present(key.present() | kept_present);
    layers
}

/// Like [`extract`], for a packet whose type, according to the ingress, is not Ethernet: it starts with the
/// header that its type names, and is never too short. Its layers are known at every depth, since it could
/// not be parsed later without its type.
#[inline(never)]
pub fn extract_without_link(head: &[u8], frame_len: usize, ingress: &Ingress, key: &mut Key) -> Layers {
    let layers = Layers::of_type(head, frame_len, ingress.packet_type);
    fill(head, frame_len, layers, ingress, key);
    key.block_mut(B_COMMON).0[6] |= u64::from(ingress.packet_type);
    layers
}

/// The other two straight paths: one VLAN tag, IPv6.
#[inline(never)]
fn extract_tagged_or_ipv6(head: &[u8], frame_len: usize, ingress: &Ingress, key: &mut Key) -> Option<Layers> {
    let plain = match head.first_chunk::<18>() {
        Some(h) => match (be16::<12, 18>(h), be16::<16, 18>(h)) {
            (ETH_TYPE_IPV6, _) => plain_ipv6::<14>(head, frame_len, ingress, 0, 0, key),
            (tpid, inner) if is_tag(tpid as u16) && ingress.vlan_limit >= 1 => {
                let tci = be16::<14, 18>(h) | VLAN_PRESENT;
                match inner {
                    ETH_TYPE_IPV4 => plain_ipv4::<18>(head, frame_len, ingress, tci, tpid, key),
                    ETH_TYPE_IPV6 => plain_ipv6::<18>(head, frame_len, ingress, tci, tpid, key),
                    _ => None,
                }
            }
            _ => None,
        },
        None => None,
    };
    plain.or_else(|| extract_general(head, frame_len, ingress, key))
}

/// The network layer at `L3`: IPv4 without options, not a fragment, with a complete header of TCP or UDP. For
/// anything else `None`, with the key unchanged. `tci` and `tpid` are those of the preceding tag, or 0.
#[inline(always)]
fn plain_ipv4<const L3: usize>(
    head: &[u8],
    frame_len: usize,
    ingress: &Ingress,
    tci: u64,
    tpid: u64,
    key: &mut Key,
) -> Option<Layers> {
    // The two bytes of Ethernet type, the header, and TCP's, which is the longer one; Ethernet pads to 60
    // bytes.
    let h = head.get(L3 - 2..)?.first_chunk::<42>()?;
    // Ethernet type, version and header length, type of service, total length, identification.
    let w0 = be64::<0, 42>(h);
    // Fragment bits, time to live, protocol, checksum, half an address.
    let w8 = be64::<8, 42>(h);
    let total_len = (w0 >> 16 & 0xffff) as usize;
    // A room so large that the rest cannot be padding, or "negative", is left to the general path.
    let room = frame_len.wrapping_sub(L3);
    if w0 >> 40 != ETH_TYPE_IPV4 << 8 | 0x45 || w8 >> 48 & 0x3fff != 0 || total_len > room || room > 0xffff {
        return None;
    }
    let depth = ingress.depth;
    let mut words = [ingress.word0, ETH_TYPE_IPV4, 0, 0, 0, 0, 0, ingress.word7];
    let mut layers = Layers::UNKNOWN;
    let proto = w8 >> 32 & 0xff;
    if depth >= Depth::Transport {
        // TCP's length of the header in words 4 bits, flags 12.
        let w34 = be16::<34, 42>(h);
        let (header_len, flags) = match proto {
            l4::UDP => (8, 0),
            l4::TCP if w34 >= 5 << 12 => ((w34 >> 12) as usize * 4, w34 & 0xfff),
            _ => return None,
        };
        if total_len < 20 + header_len {
            return None;
        }
        words[4] = be32::<22, 42>(h) << 32 | flags << 16;
        layers = plain_layers::<L3>(ETH_TYPE_IPV4, L3 + 20, header_len, proto);
    } else if total_len < 20 {
        return None;
    }
    if depth >= Depth::Ethernet {
        let addresses = head.first_chunk::<14>()?;
        words[1] |= be64::<0, 14>(addresses) & !0xffff;
        words[2] = be64::<6, 14>(addresses) & !0xffff | tci;
        words[5] = tpid << 16;
    }
    if depth >= Depth::Network {
        words[3] = be64::<14, 42>(h);
        words[4] |= proto << 8;
        words[5] |= w0 >> 32 & 0xff | (w8 >> 40 & 0xff) << 8;
    }
    key.set_present(0);
    key.put(B_COMMON, words);
    Some(layers)
}

/// Like [`plain_ipv4`], for IPv6 without extension headers. The Ethernet type is known to be IPv6.
#[inline(always)]
fn plain_ipv6<const L3: usize>(
    head: &[u8],
    frame_len: usize,
    ingress: &Ingress,
    tci: u64,
    tpid: u64,
    key: &mut Key,
) -> Option<Layers> {
    let (h, behind) = head.get(L3..)?.split_first_chunk::<40>()?;
    // Version 4 bits, class 8, label 20, payload length 16, next header 8, hop limit 8.
    let w0 = be64::<0, 40>(h);
    let payload_len = (w0 >> 16 & 0xffff) as usize;
    let proto = w0 >> 8 & 0xff;
    let room = frame_len.wrapping_sub(L3 + 40);
    if payload_len > room || room > 0xffff {
        return None;
    }
    let (header_len, ports) = match proto {
        l4::UDP if payload_len >= 8 => (8, be32::<0, 8>(behind.first_chunk()?) << 32),
        l4::TCP => {
            let tcp = behind.first_chunk::<20>()?;
            // Length of the header in words 4 bits, flags 12.
            let w12 = be16::<12, 20>(tcp);
            let header_len = (w12 >> 12) as usize * 4;
            if header_len < 20 || header_len > payload_len {
                return None;
            }
            (header_len, be32::<0, 20>(tcp) << 32 | (w12 & 0xfff) << 16)
        }
        _ => return None,
    };
    let depth = ingress.depth;
    let mut words = [ingress.word0, ETH_TYPE_IPV6, 0, 0, 0, 0, 0, ingress.word7];
    let mut layers = Layers::UNKNOWN;
    if depth >= Depth::Transport {
        words[4] = ports;
        layers = plain_layers::<L3>(ETH_TYPE_IPV6, L3 + 40, header_len, proto);
    }
    if depth >= Depth::Ethernet {
        let addresses = head.first_chunk::<14>()?;
        words[1] |= be64::<0, 14>(addresses) & !0xffff;
        words[2] = be64::<6, 14>(addresses) & !0xffff | tci;
        words[5] = tpid << 16;
    }
    key.set_present(0);
    if depth >= Depth::Network {
        words[4] |= proto << 8;
        words[5] |= w0 >> 52 & 0xff | (w0 & 0xff) << 8;
        let label = w0 >> 32 & 0xf_ffff;
        let [s0, s1, d0, d1] = [be64::<8, 40>(h), be64::<16, 40>(h), be64::<24, 40>(h), be64::<32, 40>(h)];
        key.put(B_IPV6, [s0, s1, d0, d1, 0, 0, label, 0]);
    }
    key.put(B_COMMON, words);
    Some(layers)
}

/// The layers of a packet on a straight path; the position of its network header implies the tags.
#[inline(always)]
fn plain_layers<const L3: usize>(eth_type: u64, l4: usize, header_len: usize, proto: u64) -> Layers {
    let tags = (L3 - 14) / TAG_LEN;
    Layers::plain(eth_type as u16, tags as u8, L3 as u16, l4 as u16, (l4 + header_len) as u16, proto as u8)
}

#[inline(never)]
fn extract_general(head: &[u8], frame_len: usize, ingress: &Ingress, key: &mut Key) -> Option<Layers> {
    let Some(layers) = Layers::of(head, frame_len, ingress.vlan_limit) else {
        key.clear();
        return None;
    };
    Some(fill(head, frame_len, layers, ingress, key))
}

/// Reads the fields of all layers, and stores them.
#[inline(always)]
fn fill(head: &[u8], frame_len: usize, layers: Layers, ingress: &Ingress, key: &mut Key) -> Layers {
    let depth = ingress.depth;
    key.set_present(0);
    let l2_5 = usize::from(layers.l2_5);
    let eth_type = u64::from(layers.eth_type);
    let mut words = [ingress.word0, eth_type, 0, 0, 0, 0, 0, ingress.word7];
    if depth >= Depth::Ethernet && l2_5 > 0 {
        link(head, layers.tags, &mut words);
    }
    match eth_type {
        ETH_TYPE_IPV4 if layers.is_ip() => ipv4(head, &layers, depth, &mut words, key),
        ETH_TYPE_IPV6 if layers.is_ip() => ipv6(head, &layers, depth, &mut words, key),
        _ if depth < Depth::Network => {}
        ETH_TYPE_ARP | ETH_TYPE_RARP => {
            if let Some(arp) = l3::arp(head, l2_5) {
                words[3] = arp.addresses;
                words[4] = arp.opcode << 8;
                if depth >= Depth::Everything {
                    key.put(B_RARE, [arp.sha, arp.tha, 0, 0, 0, 0, 0, 0]);
                }
            }
        }
        ETH_TYPE_MPLS | ETH_TYPE_MPLS_MULTICAST => {
            let [first, second, third] = l3::mpls(head, l2_5);
            key.put(B_RARE, [0, 0, first << 32 | second, third << 32, 0, 0, 0, 0]);
        }
        ETH_TYPE_NSH => {
            if let Some([base, c12, c34]) = l3::nsh(head, l2_5, frame_len) {
                key.put(B_RARE, [0, 0, 0, 0, base, c12, c34, 0]);
            }
        }
        _ => {}
    }
    key.put(B_COMMON, words);
    if depth >= Depth::Transport { layers } else { Layers::UNKNOWN }
}

/// Addresses and up to two tags that were passed.
#[inline(always)]
fn link(head: &[u8], tags: u8, words: &mut [u64; 8]) {
    let Some(h) = head.first_chunk::<14>() else { return };
    words[1] |= be64::<0, 14>(h) & !0xffff;
    words[2] = be64::<6, 14>(h) & !0xffff;
    if tags >= 1
        && let Some(tag) = head.get(12..).and_then(|rest| rest.first_chunk::<4>())
    {
        words[2] |= be16::<2, 4>(tag) | VLAN_PRESENT;
        words[5] = be16::<0, 4>(tag) << 16;
    }
    if tags >= 2
        && let Some(tag) = head.get(16..).and_then(|rest| rest.first_chunk::<4>())
    {
        words[5] |= (be16::<2, 4>(tag) | VLAN_PRESENT) << 32 | be16::<0, 4>(tag) << 48;
    }
}

#[inline(always)]
fn ipv4(head: &[u8], layers: &Layers, depth: Depth, words: &mut [u64; 8], key: &mut Key) {
    let Some(h) = head.get(layers.l3.into()..).and_then(|rest| rest.first_chunk::<20>()) else { return };
    if depth >= Depth::Network {
        words[3] = be64::<12, 20>(h);
        words[5] |= u64::from(h[1]) | u64::from(h[8]) << 8;
    }
    let payload = transport(head, layers, depth, words);
    if depth >= Depth::Everything
        && u64::from(layers.protocol) == l4::IGMP
        && let Some(group) = l4::igmp_group(payload)
    {
        key.put(B_RARE, [0, 0, 0, group, 0, 0, 0, 0]);
    }
}

#[inline(always)]
fn ipv6(head: &[u8], layers: &Layers, depth: Depth, words: &mut [u64; 8], key: &mut Key) {
    let Some(h) = head.get(layers.l3.into()..).and_then(|rest| rest.first_chunk::<40>()) else { return };
    let [s0, s1, d0, d1] = [be64::<8, 40>(h), be64::<16, 40>(h), be64::<24, 40>(h), be64::<32, 40>(h)];
    let mut block = [s0, s1, d0, d1, 0, 0, 0, 0];
    if !layers.is_cut() {
        // Version 4 bits, class 8, label 20, payload length 16, next header 8, hop limit 8.
        let first = be64::<0, 40>(h);
        if depth >= Depth::Network {
            words[5] |= first >> 52 & 0xff | (first & 0xff) << 8;
        }
        let payload = transport(head, layers, depth, words);
        block[6] = first >> 32 & 0xf_ffff;
        if depth >= Depth::Everything {
            block[7] = layers.exthdr.into();
            if u64::from(layers.protocol) == l4::ICMPV6
                && let Some(nd) = l4::neighbour(payload)
            {
                [block[4], block[5]] = nd.target;
                block[6] |= nd.reserved << 32;
                block[7] |= nd.options_type << 16;
                key.put(B_RARE, [nd.sll, nd.tll, 0, 0, 0, 0, 0, 0]);
            }
        }
    }
    if depth >= Depth::Network {
        key.put(B_IPV6, block);
    }
}

/// What IPv4 and IPv6 share: fragment bits, protocol, transport. Returns the available part of the transport
/// layer, for deeper fields; nothing below [`Depth::Transport`] and for later fragments.
#[inline(always)]
fn transport<'a>(head: &'a [u8], layers: &Layers, depth: Depth, words: &mut [u64; 8]) -> &'a [u8] {
    words[4] = match (layers.is_fragment(), layers.is_later_fragment()) {
        (false, _) => 0,
        (true, false) => FRAG_ANY,
        (true, true) => FRAG_ANY | FRAG_LATER,
    };
    if depth >= Depth::Network {
        words[4] |= u64::from(layers.protocol) << 8;
    }
    if depth < Depth::Transport || layers.l4 == 0 {
        return &[];
    }
    let there = head.get(layers.l4.into()..layers.end(head).min(head.len())).unwrap_or_default();
    if layers.payload != 0 {
        words[4] |= l4::fields(there, layers.protocol.into());
    }
    there
}
