//! A packet's headers in text.

use crate::text::PortNames;
use crate::text::matching::write_match;
use base::{OfPort, PortNo};
use flow::depth::Depth;
use flow::extract::{Ingress, extract_keeping_metadata};
use flow::{FieldId, Key, Match, Mf};
use wire::EtherType;

/// The headers of a frame, as a match on each of its fields.
pub fn packet_text(frame: &[u8]) -> String {
    text_of(frame, 0, false)
}

/// The same for a packet of a type other than Ethernet (OpenFlow 1.5).
pub fn typed_packet_text(packet: &[u8], packet_type: u32) -> String {
    text_of(packet, packet_type, false)
}

/// The fields of a packet of unknown origin, as a flow: `arp,in_port=ANY,...`.
pub fn packet_flow_text(frame: &[u8]) -> String {
    text_of(frame, 0, true)
}

/// A flow and what a frame made for it says, both in text, if the two differ.
pub fn packet_differences(flow: &Match, frame: &[u8]) -> Option<[String; 2]> {
    let mut key = flow.key.clone();
    if key.get(FieldId::VlanTci) != 0 {
        key.set(FieldId::VlanTpid, EtherType::VLAN.0.into());
    }
    let mut specified = all_fields(&key);
    if flow.get_mf(Mf::InPort).1 == 0 {
        specified.set_mf(Mf::InPort, OfPort::NONE.0.into(), Mf::InPort.ones());
    }
    // Removes fields that no frame has, if the flow contains them.
    for mf in Mf::all().filter(|mf| flow.get_mf(*mf).1 != 0) {
        if specified.get_mf(mf).1 == 0 {
            specified.set_mf(mf, flow.get_mf(mf).0, flow.get_mf(mf).1);
        }
    }
    let mut text = String::new();
    write_match(&mut text, &specified, crate::message::DEFAULT_PRIORITY, PortNames::none());
    let texts = [text, packet_flow_text(frame)];
    (texts[0] != texts[1]).then_some(texts)
}

fn text_of(frame: &[u8], packet_type: u32, is_flow: bool) -> String {
    let mut key = Key::default();
    let ingress = Ingress::new(OfPort::NONE, PortNo(0), Depth::Everything);
    key.set(FieldId::PacketType, packet_type.into());
    // If a packet is too short for its first header, nothing is known about it.
    let layers = extract_keeping_metadata(frame, frame.len(), &ingress, &mut key).unwrap_or_default();
    let mut m = all_fields(&key);
    if is_flow {
        m.set_mf(Mf::InPort, OfPort::NONE.0.into(), Mf::InPort.ones());
    }
    let mut out = String::new();
    write_match(&mut out, &m, crate::message::DEFAULT_PRIORITY, PortNames::none());
    if is_flow {
        return out;
    }
    // The transport checksum, which no field has.
    let at = |offset: usize| {
        let start = usize::from(layers.l4) + offset;
        frame.get(start..start + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    };
    if layers.payload != 0 && key.get64(FieldId::NwProto) == 132 {
        let start = usize::from(layers.l4) + 8;
        if let Some(sum) = frame.get(start..start + 4).and_then(|sum| sum.try_into().ok()) {
            out += &format!(" sctp_csum:{:x}", u32::from_be_bytes(sum));
        }
    } else if layers.payload != 0 {
        let (name, offset) = match (m.eth_type(), key.get64(FieldId::NwProto)) {
            (0x800 | 0x86dd, 6) => ("tcp", 16),
            (0x800 | 0x86dd, 17) => ("udp", 6),
            (0x800, 1) => ("icmp", 2),
            (0x86dd, 58) => ("icmp6", 2),
            _ => return out,
        };
        if let Some(sum) = at(offset) {
            out += &format!(" {name}_csum:{sum:x}");
        }
    }
    out
}

/// A match on every field that the packet has.
fn all_fields(key: &Key) -> Match {
    let mut m = Match::any();
    let has_labels = matches!(key.get64(FieldId::EthType), 0x8847 | 0x8848);
    let take = |m: &mut Match, mf: Mf| m.set_mf(mf, key.get_mf(mf), mf.ones());
    let is_ethernet = key.get(FieldId::PacketType) == 0;
    for mf in if is_ethernet { &[Mf::EthSrc, Mf::EthDst, Mf::EthType][..] } else { &[Mf::PacketType] } {
        take(&mut m, *mf);
    }
    for (tci, tpid) in [(FieldId::VlanTci, FieldId::VlanTpid), (FieldId::VlanTci2, FieldId::VlanTpid2)] {
        if !is_ethernet {
            break;
        }
        m.set_masked(tci, key.get(tci), 0xffff);
        // If there are no tags, the first is shown as absent.
        if key.get(tpid) == 0 {
            break;
        }
    }
    let is_later_fragment = key.get64(FieldId::NwFrag) & 2 != 0;
    let optional = Mf::simple().filter(|mf| {
        // A later fragment has no header of the transport layer.
        let is_absent = is_later_fragment && mf.row().prereq == flow::mf::Prereq::Icmpv4;
        let excluded = is_absent
            || matches!(
                mf.row().field,
                FieldId::EthSrc | FieldId::EthDst | FieldId::EthType | FieldId::VlanTci | FieldId::InPort
            );
        // Extension headers are not in the stock tool's text, nor most times worth a word.
        !excluded
            && !matches!(mf, Mf::Ipv6ExtHdr | Mf::NdReserved | Mf::NdOptionsType)
            && mf.row().prereq != flow::mf::Prereq::None
            && mf.row().prereq != flow::mf::Prereq::Ct
    });
    for mf in optional {
        // In the table's order, so that the prerequisites of a field come before it. Neighbour discovery is
        // shown with both link-layer addresses.
        let is_nd =
            matches!(mf, Mf::NdSll | Mf::NdTll) && (m.has_prereq(Mf::NdSll) || m.has_prereq(Mf::NdTll));
        if m.has_prereq(mf) || is_nd {
            take(&mut m, mf);
        }
    }
    // Labels down to the bottom of the stack, as far as they were parsed.
    let labels = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2];
    for pair in labels.windows(2).take_while(|pair| has_labels && key.get64(pair[0]) & 0x100 == 0) {
        m.set_masked(pair[1], key.get(pair[1]), pair[1].ones());
    }
    if m.get_mf(Mf::NdTarget).1 != 0 {
        // Both addresses are shown, be they there or not.
        for field in [FieldId::ArpSha, FieldId::ArpTha] {
            m.set_masked(field, key.get(field), field.ones());
        }
    }
    m
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_fragment_has_no_type_of_icmp() {
        let text = |fragment: [u8; 2]| {
            let mut frame = vec![2; 12];
            frame.extend([8, 0, 0x45, 0, 0, 28, 0, 1, fragment[0], fragment[1], 64, 1, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 0]);
            packet_text(&frame)
        };
        assert!(text([0x20, 0]).contains("nw_frag=first,icmp_type=8,icmp_code=0"), "{}", text([0x20, 0]));
        assert!(text([0, 1]).ends_with("nw_frag=later"), "{}", text([0, 1]));
    }

    #[test]
    fn labels_are_shown_down_to_the_bottom_of_the_stack() {
        let frame = |labels: &[u32]| {
            let mut frame = vec![0x50, 0x54, 0, 0, 0, 7, 0x40, 0x44, 0x44, 0x44, 0x44, 0x43, 0x88, 0x47];
            labels.iter().for_each(|lse| frame.extend(lse.to_be_bytes()));
            frame.extend([0x45; 20]);
            packet_text(&frame)
        };
        let head = "mpls,vlan_tci=0x0000,dl_src=40:44:44:44:44:43,dl_dst=50:54:00:00:00:07,";
        let first = "mpls_label=10,mpls_tc=3,mpls_ttl=64,mpls_bos=";
        assert_eq!(frame(&[0xa740]), format!("{head}{first}1"));
        assert_eq!(frame(&[0xa640, 0xb740]), format!("{head}{first}0,mpls_lse1=46912"));
        let three = frame(&[0xa640, 0xb640, 0xc740]);
        assert_eq!(three, format!("{head}{first}0,mpls_lse1=46656,mpls_lse2=51008"));
    }
}
