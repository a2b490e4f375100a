//! Headers that change what a packet begins with, on literal bytes, and on any bytes.

use super::super::*;
use packet::{Pool, PoolConfig};
use proptest::prelude::*;

const NSH: u32 = packet_type::of_eth_type(0x894f);
const IPV4: u32 = packet_type::of_eth_type(0x0800);
/// Time to live 63, metadata of variable length, none, Ethernet behind it, path 0x1234, index 255.
const HEADER: [u8; 8] = [0x0f, 0xc2, 2, 3, 0, 0x12, 0x34, 0xff];
/// From 02:..:02 to 02:..:01, and an IPv4 packet without a payload.
const FRAME: [u8; 34] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0x66, 0xe8, 10, 0, 0, 1,
    10, 0, 0, 2,
];

fn cache() -> PoolCache {
    Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
}

fn packet(cache: &mut PoolCache, bytes: &[u8]) -> Packet {
    let mut packet = cache.alloc().unwrap();
    packet.fill(bytes).unwrap();
    packet
}

fn push_nsh(header: &[u8]) -> DpAction {
    DpAction::PushNsh(header.into())
}

/// Applies actions to a packet of a type; after each, the layers are those that a walk finds.
fn apply(packet: &mut Packet, mut packet_type: u32, actions: &[DpAction]) -> Result<u32, DropReason> {
    let mut layers = layers_of(packet, packet_type);
    for action in actions {
        super::super::apply(packet, &mut layers, action)?;
        packet_type = action.packet_type_after(packet_type);
        layers.know(packet.data(), packet.len(), 2);
        let mut walked = layers_of(packet, packet_type);
        walked.know(packet.data(), packet.len(), 2);
        assert_eq!(layers, walked, "{action:?}");
    }
    Ok(packet_type)
}

#[test]
fn a_frame_goes_into_a_service_header_and_comes_out_of_it() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &FRAME);
    let out = [
        push_nsh(&HEADER),
        DpAction::PushEth { src: 0x0a0b_0c0d_0e0f, dst: 0x1122_3344_5566, eth_type: 0x894f },
        DpAction::Set { field: FieldId::NshSi, value: 254, mask: 0xff },
    ];
    assert_eq!(apply(&mut p, 0, &out), Ok(packet_type::ETHERNET));
    let link = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 10, 11, 12, 13, 14, 15, 0x89, 0x4f];
    let header = [0x0f, 0xc2, 2, 3, 0, 0x12, 0x34, 0xfe];
    assert_eq!(p.data(), [&link[..], &header, &FRAME].concat());
    let back = [DpAction::PopEth { eth_type: 0x894f }, DpAction::PopNsh { packet_type: 0 }];
    assert_eq!(apply(&mut p, 0, &back), Ok(packet_type::ETHERNET));
    assert_eq!(p.data(), FRAME);
    cache.free(p);
}

#[test]
fn a_packet_without_a_link_layer_is_edited_where_its_headers_are() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &FRAME);
    let edits = [
        DpAction::PopEth { eth_type: 0x0800 },
        DpAction::Set { field: FieldId::NwSrc, value: 0x0a00_0009, mask: 0xffff_ffff },
        // No such field is there.
        DpAction::Set { field: FieldId::EthSrc, value: 1, mask: FieldId::EthSrc.ones() },
    ];
    assert_eq!(apply(&mut p, 0, &edits), Ok(IPV4));
    let mut expected = FRAME[14..].to_vec();
    (expected[10], expected[11], expected[15]) = (0x66, 0xe0, 9);
    assert_eq!(p.data(), expected);
    for refused in [DpAction::PopVlan, DpAction::PushVlan { tpid: 0x8100, tci: 1 }] {
        assert_eq!(apply(&mut p, IPV4, &[refused]), Err(DropReason::ActionNotApplicable));
    }
    assert_eq!(p.data(), expected);
    cache.free(p);
}

#[test]
fn labels_go_around_whole_frames_and_off_again() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &FRAME);
    let add = [
        DpAction::AddMpls { eth_type: 0x8847, lse: 0x0000_5140 },
        DpAction::AddMpls { eth_type: 0x8847, lse: 0x0000_6040 },
    ];
    assert_eq!(apply(&mut p, 0, &add), Ok(packet_type::of_eth_type(0x8847)));
    assert_eq!(p.data(), [&[0, 0, 0x60, 0x40, 0, 0, 0x51, 0x40][..], &FRAME].concat());
    let pop = [DpAction::PopMpls { eth_type: 0x8847 }, DpAction::PopMpls { eth_type: 0x6558 }];
    assert_eq!(apply(&mut p, packet_type::of_eth_type(0x8847), &pop), Ok(packet_type::ETHERNET));
    assert_eq!(p.data(), FRAME);
    cache.free(p);
}

#[test]
fn headers_beyond_the_headroom_have_the_room_behind_the_frame() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &FRAME);
    p.csum_start = 14;
    let mut expected = FRAME.to_vec();
    // As much as a header of NSH may have, several times over, and a tag in the midst of the frame.
    for n in 0..6u8 {
        let header = [n; 252];
        room::insert(&mut p, 0, header.len()).unwrap();
        p.data_mut()[..header.len()].copy_from_slice(&header);
        expected.splice(0..0, header);
        room::insert(&mut p, 12, 4).unwrap();
        p.data_mut()[12..16].copy_from_slice(&[n + 100; 4]);
        expected.splice(12..12, [n + 100; 4]);
    }
    assert_eq!(p.data(), expected);
    assert_eq!(usize::from(p.csum_start), 14 + 6 * 256);
    cache.free(p);
}

#[test]
fn a_header_that_has_no_room_or_is_not_there_is_refused_and_the_packet_stays() {
    let mut cache = cache();
    let mut p = packet(&mut cache, &FRAME);
    // Room at neither end.
    while p.push_front(8).is_some() {}
    p.set_len(p.len() + p.tailroom()).unwrap();
    let before = p.data().to_vec();
    assert_eq!(apply(&mut p, 0, &[push_nsh(&HEADER)]), Err(DropReason::NoHeadroom));
    assert_eq!(apply(&mut p, NSH, &[DpAction::PopNsh { packet_type: 0 }]), Err(DOES_NOT_FIT));
    assert_eq!(apply(&mut p, 0, &[DpAction::PopNsh { packet_type: 0 }]), Err(DOES_NOT_FIT));
    assert_eq!(apply(&mut p, NSH, &[DpAction::PopEth { eth_type: 0 }]), Err(DOES_NOT_FIT));
    assert_eq!(p.data(), before);
    // Shorter than its header says.
    let mut short = packet(&mut cache, &[0x0f, 0xc6, 1, 3, 0, 0, 0, 0, 0]);
    assert_eq!(apply(&mut short, NSH, &[DpAction::PopNsh { packet_type: 0 }]), Err(DOES_NOT_FIT));
    [p, short].into_iter().for_each(|packet| cache.free(packet));
}

proptest! {
    #[test]
    fn no_bytes_of_any_type_make_an_edit_panic(
        bytes in prop::collection::vec(any::<u8>(), 1..90),
        packet_type in prop::sample::select(vec![0, NSH, IPV4, 0x1_86dd, 0x1_8847, 0x1_0806, 0x2_0001]),
        choices in prop::collection::vec(0..10usize, 1..8),
    ) {
        let mut cache = cache();
        let mut p = packet(&mut cache, &bytes);
        let all = [
            push_nsh(&HEADER),
            DpAction::PopNsh { packet_type: 0 },
            DpAction::PopNsh { packet_type: IPV4 },
            DpAction::PushEth { src: 1, dst: 2, eth_type: 0x0800 },
            DpAction::PopEth { eth_type: 0x894f },
            DpAction::AddMpls { eth_type: 0x8848, lse: 0x140 },
            DpAction::PopMpls { eth_type: 0x0800 },
            DpAction::PushMpls { eth_type: 0x8847, lse: 0x140 },
            DpAction::Set { field: FieldId::NshC4, value: 1, mask: 1 },
            DpAction::Set { field: FieldId::NwTtl, value: 1, mask: 0xff },
        ];
        let mut layers = layers_of(&p, packet_type);
        for choice in choices {
            let before = p.data().to_vec();
            if super::super::apply(&mut p, &mut layers, &all[choice]).is_err() {
                prop_assert_eq!(p.data(), &before[..]);
            }
        }
        cache.free(p);
    }
}
