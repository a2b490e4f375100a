//! Targets for `flow`: a key depends on the frame alone, a shallow one is a part of the deep one, and the
//! deep one is what a second, plain extraction finds.

use base::{OfPort, PortNo};
use flow::{Depth, FieldId, Ingress, Key, extract, extract_keeping_metadata, extract_without_link};
use wire::Layers;

// The same that flow's own tests compare with.
#[path = "../../flow/tests/it/extract/reference.rs"]
mod reference;

/// A frame at every depth, each key taken over from the depth before, as a worker does.
pub fn flow_extract(input: &[u8]) {
    let ingress = |depth| Ingress::new(OfPort(1), PortNo(2), depth);
    let mut metadata = Key::default();
    metadata.set(FieldId::InPort, 1);
    metadata.set(FieldId::DpPort, 2);
    let mut everything = Key::default();
    let whole = extract(input, input.len(), &ingress(Depth::Everything), &mut everything);
    let mut reused = everything.clone();
    for depth in Depth::ALL {
        let mut fresh = Key::default();
        let offsets = extract(input, input.len(), &ingress(depth), &mut fresh);
        assert_eq!(offsets, extract(input, input.len(), &ingress(depth), &mut reused), "{depth:?}");
        assert_eq!(fresh, reused, "what the key held before shows at {depth:?}");
        assert_eq!(offsets.is_some(), whole.is_some(), "{depth:?}");
        for &field in FieldId::ALL {
            let expected = if field.depth() <= depth { everything.get(field) } else { 0 };
            assert_eq!(fresh.get(field), expected, "{field:?} at {depth:?}");
        }
        let expected = reference::extract(input, depth, 2, &metadata);
        assert_eq!(expected, whole.map(|_| fresh), "the reference differs at {depth:?}");

        let mut kept = metadata.clone();
        kept.set(FieldId::Reg3, 3);
        assert_eq!(offsets, extract_keeping_metadata(input, input.len(), &ingress(depth), &mut kept));
        assert_eq!(kept.get(FieldId::Reg3), 3, "a register is lost at {depth:?}");
        kept.set(FieldId::Reg3, 0);
        assert_eq!(kept, expected.unwrap_or_else(|| metadata.clone()), "metadata matter at {depth:?}");
    }
    assert_eq!(whole, Layers::of(input, input.len(), 2), "extraction walks as everybody does");
    if let Some(Layers { l2_5, l3, l4, payload, .. }) = whole {
        let places = [l2_5, l3, l4, payload];
        assert!(places.iter().all(|at| usize::from(*at) <= input.len()), "{places:?}");
        assert!(places.iter().filter(|at| **at != 0).is_sorted(), "{places:?}");
    }
    without_link(input);
    // As the first segment of longer frames.
    for frame_len in [input.len() + 1, input.len() + 9000, usize::MAX] {
        let _ = extract(input, frame_len, &ingress(Depth::Everything), &mut reused);
    }
}

/// A packet without an Ethernet header has the fields and layers that it has behind one.
fn without_link(input: &[u8]) {
    for eth_type in [0x0800u16, 0x86dd, 0x0806, 0x8847, 0x894f] {
        let packet_type = 1 << 16 | u32::from(eth_type);
        let ingress = Ingress::new(OfPort(1), PortNo(2), Depth::Everything);
        let mut frame = vec![0; 12];
        frame.extend(eth_type.to_be_bytes());
        frame.extend(input);
        let (mut bare, mut framed) = (Key::default(), Key::default());
        let behind = extract(&frame, frame.len(), &ingress, &mut framed).expect("a whole frame");
        let ingress = ingress.with_packet_type(packet_type);
        let layers = extract_without_link(input, input.len(), &ingress, &mut bare);
        assert_eq!(layers, behind.without_their_link(), "{eth_type:#x}");
        framed.set(FieldId::PacketType, packet_type.into());
        assert_eq!(bare, framed, "{eth_type:#x}");
    }
}
