//! Every field of the table: what fits arrives at the switch, what does not is refused.

use crate::text::oracle::{stock, through_the_wire, usable_by_stock};
use flow::Mf;
use flow::mf::{Format, Prereq};
use openflow::message::FlowModCommand;
use openflow::text::{Parsed, PortNames, Protocols, parse_flow_mod};
use openflow::{Codec, Message, Version, VersionSet};

/// Fields that only the datapath has.
const OF_THE_DATAPATH: [Mf; 3] = [Mf::SkbPriority, Mf::TunTtl, Mf::TunTos];

/// Those that a match can name: tunnel options have tests of their own, their width being the bridge's
/// affair.
pub fn fields() -> impl Iterator<Item = Mf> {
    Mf::all().filter(|mf| !matches!(mf, Mf::TunMetadata(_)))
}

/// A match of what a field requires.
pub fn base(mf: Mf) -> &'static str {
    match mf.row().prereq {
        Prereq::None | Prereq::Ethernet => "",
        Prereq::Vlan => "vlan_vid=0x1000/0x1000,",
        Prereq::Arp => "arp,",
        Prereq::Ip | Prereq::Ipv4 => "ip,",
        Prereq::Ipv6 => "ipv6,",
        Prereq::Tcp => "tcp,",
        Prereq::Udp => "udp,",
        Prereq::Sctp => "sctp,",
        Prereq::Icmpv4 => "icmp,",
        Prereq::Icmpv6 => "icmp6,",
        Prereq::Nd | Prereq::NdSolicit => "icmp6,icmpv6_type=135,icmpv6_code=0,",
        Prereq::NdAdvert => "icmp6,icmpv6_type=136,icmpv6_code=0,",
        Prereq::Mpls => "mpls,",
        Prereq::Nsh => "dl_type=0x894f,",
        Prereq::Ct if matches!(mf, Mf::CtIpv6Src | Mf::CtIpv6Dst) => "tcp6,ct_state=+trk+est,",
        Prereq::Ct => "tcp,ct_state=+trk+est,",
    }
}

/// A text that the field holds, and the value and mask that it means.
fn fitting(mf: Mf) -> (String, u128, u128) {
    let ones = mf.ones();
    match mf.row().format {
        // A switch refuses others.
        _ if mf == Mf::NshMdtype => ("2".into(), 2, ones),
        Format::Decimal | Format::Hexadecimal => (format!("{ones:#x}"), ones, ones),
        Format::Ethernet => ("fe:dc:ba:98:76:54".into(), 0xfedc_ba98_7654, ones),
        Format::Ipv4 => ("1.2.3.4".into(), 0x0102_0304, ones),
        Format::Ipv6 => ("2001:db8::1".into(), 0x2001_0db8 << 96 | 1, ones),
        Format::Port => ("5".into(), 5, ones),
        Format::Frag => ("later".into(), 3, 3),
        Format::TunFlags => ("+oam".into(), 1, 1),
        Format::TcpFlags => ("0xfff".into(), 0xfff, 0xfff),
        Format::CtState => ("0xff".into(), 0xff, 0xff),
        Format::ExtHdr => ("0x1ff".into(), 0x1ff, 0x1ff),
        Format::PacketType => ("(1,0x800)".into(), 1 << 16 | 0x800, ones),
    }
}

fn read(flow: &str) -> Result<Parsed, String> {
    parse_flow_mod(flow, FlowModCommand::Add, PortNames::none()).map_err(|error| error.message)
}

/// The flow as a switch reads it that is spoken to in that version.
fn received(version: Version, parsed: &Parsed) -> flow::Match {
    let usable = parsed.protocols.intersect(Protocols::of_versions(VersionSet::only(version)));
    let protocol = usable.iter().next().expect("some encoding of the version can say it");
    let codec = Codec { flow_mod_table_id: true, ..Codec::new(version) };
    let bytes = codec.encode(1, &Message::FlowMod(Box::new(parsed.clone().in_protocol(protocol)))).unwrap();
    match codec.decode(&bytes) {
        Ok((_, Message::FlowMod(flow_mod))) => flow_mod.matching,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_accepted_of_a_field_arrives_at_the_switch() {
    for mf in fields() {
        let (text, value, mask) = fitting(mf);
        let flow = format!("{}{}={text},actions=drop", base(mf), mf.name());
        if OF_THE_DATAPATH.contains(&mf) {
            let error = "actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)";
            assert_eq!(read(&flow).unwrap_err(), error, "{flow}");
            continue;
        }
        let parsed = read(&flow).unwrap_or_else(|error| panic!("{flow}: {error}"));
        for version in [Version::V10, Version::V13] {
            let matching = received(version, &parsed);
            assert_eq!(matching.get_mf(mf), (value, mask), "{version} {flow}");
            assert_eq!(matching, parsed.flow_mod.matching, "{version} {flow}");
        }
    }
}

#[test]
fn a_value_with_a_bit_beyond_its_field_is_refused() {
    let mut checked = 0;
    for mf in fields() {
        // The others have no notation for such a value.
        if matches!(mf.row().format, Format::Ethernet | Format::Ipv4 | Format::Ipv6 | Format::PacketType) {
            continue;
        }
        let (bits, bytes) = (u32::from(mf.row().bits), u32::from(mf.row().bytes));
        for bit in bits..=bytes * 8 {
            // 2^128 is beyond what a u128 can say, and written by hand.
            let value =
                1u128.checked_shl(bit).map_or(format!("0x1{}", "0".repeat(32)), |n| format!("{n:#x}"));
            for text in [value.clone(), format!("{value}/{value}")] {
                let flow = format!("{}{}={text},actions=drop", base(mf), mf.name());
                let error = read(&flow).map(|parsed| parsed.flow_mod.matching);
                assert!(error.is_err(), "{flow}: {error:?}");
                checked += 1;
            }
            // Not even a bit of the value that is there may hide it.
            let flow = format!("{}{}={value},actions=drop", base(mf), mf.name()).replace("=0x1", "=0x9");
            assert!(read(&flow).is_err(), "{flow}");
        }
    }
    assert!(checked > 400, "only {checked}");
}

#[test]
fn a_field_in_no_encoding_or_without_what_it_requires_is_refused_where_the_rule_would_match_more() {
    for mf in fields().filter(|mf| matches!(mf.row().prereq, Prereq::Ct | Prereq::Nsh)) {
        let (text, ..) = fitting(mf);
        for base in ["", "ip,", "ct_state=+trk+est,", "dl_type=0x894e,"] {
            let flow = format!("{base}{}={text},actions=drop", mf.name());
            let error = read(&flow).unwrap_err();
            assert!(error.contains("OFPBMC_BAD_PREREQ"), "{flow}: {error}");
        }
    }
    // Where it stands among the others does not matter.
    assert!(read("ct_nw_src=1.2.3.4,ct_state=+trk+est,ip,actions=drop").is_ok());
}

#[test]
fn the_encodings_that_can_say_a_field_are_those_of_the_stock_tool() {
    let mut differences = Vec::new();
    // Of OpenFlow 1.3's extension headers the stock tool knows nothing.
    for mf in fields().filter(|mf| *mf != Mf::Ipv6ExtHdr) {
        let (text, ..) = fitting(mf);
        let flow = format!("{}{}={text},actions=drop", base(mf), mf.name());
        let ours = read(&flow).map(|parsed| parsed.protocols.to_string());
        let stock = usable_by_stock(&flow);
        if ours != stock {
            differences.push(format!("{flow}: stock {stock:?}, ours {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_slice_of_a_value_beyond_its_field_is_refused() {
    for mf in fields() {
        let (ones, width) = (mf.ones(), mf.row().subfield_bits);
        for bit in (0..width).filter(|bit| ones >> bit & 1 == 0) {
            let flow = format!("{}{}[{bit}]=1,actions=drop", base(mf), mf.name());
            assert!(read(&flow).is_err(), "{flow}");
        }
    }
    let error = read("arp,arp_op[]=0x100,actions=drop").unwrap_err();
    assert_eq!(error, "0x100 is not a valid value for field arp_op");
}

/// As the stock tool reads it, encodes it and prints it, in both versions.
fn is_as_stock(flow: &str) {
    for version in [Version::V10, Version::V13] {
        let ours = read(flow).and_then(|parsed| through_the_wire(version, parsed));
        assert_eq!(ours, stock(version, flow), "{version} {flow}");
    }
}

#[test]
fn slices_are_matched_as_the_stock_tool_matches_them() {
    for flow in [
        "NXM_NX_REG0[]=5",
        "NXM_NX_REG0[0..3]=5",
        "reg0[0..3]=5,reg0[4..7]=3",
        "OXM_OF_ETH_TYPE[]=0x800",
        "eth_src[0..3]=1",
        "in_port[]=1",
        "ip,nw_src[0..7]=5",
        "tcp,tcp_dst[0..7]=5",
        "vlan_tci[12]=1",
        "ct_state[5]=1",
        "NXM_NX_REG0=5",
        "OXM_OF_ETH_TYPE=0x800",
        "OXM_OF_ETH_TYPE",
        "NXM_OF_IP_SRC[]=1.2.3.4",
        "NXM_NX_REG0[0..3]=0x1f",
        "reg0[0..3]=0x1ffffffff",
        "OXM_OF_METADATA[]=0x5/0xff",
        "NXM_NX_REG0[",
        "NXM_NX_REG0[0..40]=1",
        "reg0[0..3]",
        "foo[]=5",
        "dl_vlan[]=5",
    ] {
        is_as_stock(&format!("{flow},actions=drop"));
    }
}

/// Clients tell their users what normalization has changed.
#[test]
fn a_packet_type_that_other_fields_imply_is_no_change_of_a_match() {
    let read = |text: &str| {
        let flow = format!("{text},actions=drop");
        parse_flow_mod(&flow, FlowModCommand::Add, PortNames::none()).unwrap()
    };
    for text in ["packet_type=(0,0),arp,arp_tpa=10.11.12.13", "packet_type=(0,0),dl_src=11:22:33:44:55:66"] {
        assert_eq!(read(text).before, None, "{text}");
    }
    assert!(read("nw_src=10.0.0.1").before.is_some());
}
