//! Targets for `wire`: what was parsed is written back, and parsed again gives the same.

use wire::arp::{ArpPacket, ArpRepr};
use wire::ethernet::{EthernetFrame, EthernetRepr};
use wire::ipv4::{Ipv4Packet, Ipv4Repr};
use wire::mpls::{LabelStack, MplsHeader};
use wire::tcp::{TcpRepr, TcpSegment};
use wire::udp::{UdpPacket, UdpRepr};
use wire::vlan::{VlanHeader, VlanRepr};
use wire::{EtherType, IpProtocol};

/// Writes `$repr` in front of `$payload_len` zeros, reads it again and compares.
macro_rules! assert_round_trip {
    ($repr:expr, $payload_len:expr, $read:expr) => {{
        let repr = $repr;
        let mut bytes = vec![0; repr.header_len() + $payload_len];
        repr.emit(&mut bytes).expect("what was parsed can be written");
        #[allow(clippy::redundant_closure_call)] // The closure keeps the call sites to one line.
        let again = ($read)(&bytes[..]);
        assert_eq!(again, repr);
    }};
}

/// The headers of an Ethernet frame: VLAN tags and labels, ARP, IPv4, TCP, UDP.
pub fn wire_frame(input: &[u8]) {
    let Ok(frame) = EthernetFrame::new(input) else { return };
    assert_round_trip!(EthernetRepr::parse(&frame), 0, |b| EthernetRepr::parse(
        &EthernetFrame::new(b).unwrap()
    ));
    let mut ethertype = frame.snap_type().unwrap_or(frame.ethertype());
    let mut rest = frame.payload();
    while ethertype.is_vlan() {
        let Ok(header) = VlanHeader::new(rest) else { return };
        assert_round_trip!(VlanRepr::parse(&header), 0, |b| VlanRepr::parse(&VlanHeader::new(b).unwrap()));
        ethertype = header.ethertype();
        rest = &rest[header.as_bytes().len() - header.payload().len()..];
    }
    if ethertype.is_mpls() {
        let mut stack = LabelStack::new(rest);
        for label in &mut stack {
            assert_round_trip!(label, 0, |b| wire::mpls::MplsRepr::parse(&MplsHeader::new(b).unwrap()));
        }
        assert!(rest.ends_with(stack.rest()));
        return;
    }
    if ethertype == EtherType::IPV4 {
        ipv4(rest);
    } else if let Ok(packet) = ArpPacket::new(rest) {
        assert_round_trip!(ArpRepr::parse(&packet), 0, |b| ArpRepr::parse(&ArpPacket::new(b).unwrap()));
    }
}

fn ipv4(bytes: &[u8]) {
    let Ok(packet) = Ipv4Packet::new(bytes) else { return };
    assert!(packet.header_len() + packet.payload().len() <= bytes.len());
    // Each option takes at least a byte, so an iterator that makes progress ends by then.
    assert!(packet.options().count() <= packet.option_bytes().len() + 1);
    if let Ok(repr) = Ipv4Repr::parse(&packet) {
        assert_round_trip!(repr, packet.payload().len(), |b| Ipv4Repr::parse(&Ipv4Packet::new(b).unwrap())
            .unwrap());
    }
    if packet.fragment_offset() != 0 {
        return;
    }
    match packet.protocol() {
        IpProtocol::TCP => {
            let Ok(segment) = TcpSegment::new(packet.payload()) else { return };
            assert!(segment.options().count() <= segment.option_bytes().len() + 1);
            if let Ok(repr) = TcpRepr::parse(&segment) {
                assert_round_trip!(repr, 0, |b| TcpRepr::parse(&TcpSegment::new(b).unwrap()).unwrap());
            }
        }
        IpProtocol::UDP => {
            let Ok(datagram) = UdpPacket::new(packet.payload()) else { return };
            if let Ok(repr) = UdpRepr::parse(&datagram) {
                assert_round_trip!(repr, datagram.payload().len(), |b| UdpRepr::parse(
                    &UdpPacket::new(b).unwrap()
                )
                .unwrap());
            }
        }
        _ => {}
    }
}
