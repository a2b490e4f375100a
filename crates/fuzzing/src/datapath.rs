//! Targets for `datapath`: any changes to any packet.

use ::datapath::edit::{apply, layers_of, reads_payload, remark, truncate, unpadded_len};
use ::datapath::{DpAction, packet_type};
use base::{DropReason, OfPort, PortNo};
use flow::{Depth, FieldId, Ingress, Key, extract, extract_without_link};
use packet::{Packet, PacketFlags, Pool, PoolCache, PoolConfig};
use std::sync::OnceLock;
use wire::Layers;
use wire::layers::is_tag;

/// Tags that changes look behind.
const TAGS_MAX: u8 = 2;
/// What a frame may begin with.
const TYPES: [u32; 8] = [
    packet_type::ETHERNET,
    packet_type::of_eth_type(0x0800),
    packet_type::of_eth_type(0x86dd),
    packet_type::of_eth_type(0x0806),
    packet_type::of_eth_type(0x8847),
    packet_type::of_eth_type(0x894f),
    // Not known.
    packet_type::of_eth_type(0x1234),
    2 << 16,
];
const ETH_TYPES: [u16; 6] = [0x0800, 0x86dd, 0x8847, 0x8848, 0x894f, packet_type::ETH_TYPE_TEB];
/// Fields that do not determine which other fields exist, so that changing one changes nothing else.
const ALONE: [FieldId; 8] = [
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::NwSrc,
    FieldId::NwDst,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
];

/// A packet, and changes to it: a byte for what it begins with, one that says how it lies in memory, two with
/// its length, its bytes; then changes of one byte each with what they need.
pub fn packet_edits(input: &[u8]) {
    let [begins, how, high, low, rest @ ..] = input else { return };
    let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()).min(1500);
    let (frame, changes) = rest.split_at(len);
    let mut cache = memory();
    let Some(mut packet) = packet_in_memory(frame, *how, &mut cache) else { return };
    let mut packet_type = TYPES[usize::from(*begins) % TYPES.len()];
    let mut layers = layers_of(&packet, packet_type);
    let mut changes = Changes(changes);
    while let Some(mut action) = changes.next() {
        layers.know(packet.data(), packet.len(), TAGS_MAX);
        if is_tag(layers.eth_type) {
            // What a popped tag lets come into sight is for the next round to read.
            layers = walked(&packet, packet_type);
        }
        if let DpAction::PopEth { eth_type } = &mut action {
            // An Ethernet header is always removed with the type that it names.
            *eth_type = layers.eth_type;
        }
        let before = bytes_of(&packet);
        let key = key_of(&packet, packet_type);
        reads_payload(&packet, &mut layers, &action);
        match apply(&mut packet, &mut layers, &action) {
            Err(reason) => {
                assert!(matches!(reason, DropReason::ActionNotApplicable | DropReason::NoHeadroom));
                assert_eq!(bytes_of(&packet), before, "refused, and changed by {action:?}");
            }
            Ok(()) => {
                packet_type = action.packet_type_after(packet_type);
                has_changed(&packet, (&before, &key), packet_type, &action);
            }
        }
        assert!(unpadded_len(&packet, &mut layers) <= packet.len());
        if !is_tag(layers.eth_type) {
            agree(&packet, layers, packet_type, &action);
        }
    }
    let len = packet.len();
    let _ = remark(&mut packet, &mut layers, *how);
    assert_eq!(packet.len(), len);
    let max = usize::from(*low);
    let cut = truncate(packet, &mut layers, max, &mut cache);
    assert_eq!(cut.len(), len.min(max.max(14)));
    cache.free(cut);
}

fn memory() -> PoolCache {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    let config = PoolConfig { chunks: 4096, chunk_bytes: 2048, huge_pages: false };
    POOL.get_or_init(|| Pool::new(config).expect("memory")).cache()
}

/// The frame in one chunk or in two, its checksum finished or not.
fn packet_in_memory(frame: &[u8], how: u8, cache: &mut PoolCache) -> Option<Packet> {
    let is_chained = how & 1 != 0 && frame.len() > 1;
    let head = if is_chained { (usize::from(how >> 2) * 4).clamp(1, frame.len() - 1) } else { frame.len() };
    let mut packet = cache.alloc()?;
    packet.fill(&frame[..head])?;
    if is_chained {
        let mut tail = cache.alloc()?;
        tail.fill(&frame[head..])?;
        packet.append(tail);
    }
    if how & 2 != 0 {
        packet.flags.set(PacketFlags::CSUM_PARTIAL);
    }
    Some(packet)
}

fn bytes_of(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// What extraction reads; `None` where it reads nothing.
fn key_of(packet: &Packet, packet_type: u32) -> Option<Key> {
    let mut key = Key::default();
    let ingress = Ingress::new(OfPort(1), PortNo(1), Depth::Everything).with_packet_type(packet_type);
    if packet_type == packet_type::ETHERNET {
        extract(packet.data(), packet.len(), &ingress, &mut key)?;
    } else {
        extract_without_link(packet.data(), packet.len(), &ingress, &mut key);
    }
    Some(key)
}

/// Whether the packet has changed as the action says, and not otherwise.
fn has_changed(packet: &Packet, (before, key): (&[u8], &Option<Key>), packet_type: u32, action: &DpAction) {
    let after = bytes_of(packet);
    match *action {
        DpAction::Set { field, value, mask } => {
            assert_eq!(after.len(), before.len());
            let (Some(old), Some(new)) = (key, key_of(packet, packet_type)) else { return };
            if !ALONE.contains(&field) {
                return;
            }
            for &f in FieldId::ALL.iter().filter(|f| **f != field) {
                assert_eq!(new.get(f), old.get(f), "{f:?} after {action:?}");
            }
            let wanted = old.get(field) & !mask | value & mask & field.ones();
            assert!([wanted, old.get(field)].contains(&new.get(field)), "{action:?}");
            // What was read is there, and so it is set; but not in a header that is cut off, or of IP that
            // Open vSwitch holds for unread.
            let layers = walked(packet, packet_type);
            let is_unread = layers.is_cut() || old.get(FieldId::NwProto) == 0 && !layers.is_ipv6();
            let is_set = new.get(field) == wanted;
            let is_link = matches!(field, FieldId::EthSrc | FieldId::EthDst);
            assert!(is_set || old.get(field) == 0 || is_unread && !is_link, "{action:?} left {old:?}");
        }
        DpAction::PushVlan { .. } | DpAction::PushMpls { .. } | DpAction::AddMpls { .. } => {
            assert_eq!(after.len(), before.len() + 4);
        }
        DpAction::PopVlan => assert!(after.len() == before.len() || after.len() + 4 == before.len()),
        DpAction::PopMpls { .. } => assert_eq!(after.len() + 4, before.len()),
        DpAction::PushEth { .. } => assert_eq!(after[14..], *before),
        DpAction::PushNsh(ref header) => assert_eq!(after, [header, before].concat()),
        DpAction::PopEth { .. } | DpAction::PopNsh { .. } => assert!(before.ends_with(&after)),
        _ => unreachable!("no change is drawn so"),
    }
}

/// The layers that a walk finds.
fn walked(packet: &Packet, packet_type: u32) -> Layers {
    let mut layers = layers_of(packet, packet_type);
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    layers
}

/// Whether the layers that travel with the packet are those that a walk finds.
fn agree(packet: &Packet, mut layers: Layers, packet_type: u32, action: &DpAction) {
    layers.know(packet.data(), packet.len(), TAGS_MAX);
    if !layers.are_known() || layers.tags > TAGS_MAX {
        return;
    }
    assert_eq!(layers, walked(packet, packet_type), "after {action:?}");
}

/// Changes as bytes.
struct Changes<'a>(&'a [u8]);

impl Changes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn next(&mut self) -> Option<DpAction> {
        let [which, low] = self.take()?;
        let eth_type = ETH_TYPES[usize::from(low) % ETH_TYPES.len()];
        let lse = u32::from(low) << 12 | u32::from(which & 0x80) << 1 | 64;
        Some(match which % 12 {
            0 => DpAction::PushVlan { tpid: if low & 1 == 0 { 0x8100 } else { 0x88a8 }, tci: low.into() },
            1 => DpAction::PopVlan,
            2 => DpAction::PushMpls { eth_type: 0x8847 + u16::from(low & 1), lse },
            3 => DpAction::PopMpls { eth_type },
            4 => DpAction::AddMpls { eth_type: 0x8847, lse },
            5 => DpAction::PushEth { src: low.into(), dst: u64::MAX, eth_type },
            6 => DpAction::PopEth { eth_type },
            7 => {
                // RFC 8300: context headers of a fixed length.
                let mut header = vec![0x0f, 0xc6, 1, low % 6, 0, 0, low, 0xff];
                header.resize(24, low);
                DpAction::PushNsh(header.into())
            }
            8 => DpAction::PopNsh { packet_type: TYPES[usize::from(low) % TYPES.len()] },
            _ => {
                let field = FieldId::ALL[usize::from(low) % FieldId::ALL.len()];
                let bytes: [u8; 4] = self.take()?;
                let value = u128::from(u32::from_be_bytes(bytes)) * 0x1_0000_0001_0000_0001_0000_0001;
                let mask = if which & 0x40 == 0 { field.ones() } else { field.ones() & value.rotate_left(3) };
                DpAction::Set { field, value, mask }
            }
        })
    }
}
