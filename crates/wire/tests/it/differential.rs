//! Against an independent parser: what `Compose` builds is what etherparse reads, checksums included; and on
//! any bytes the views accept, refuse and read as etherparse does, but for the differences named here.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{
    ArpPacketSlice, Icmpv4Slice, Icmpv6Slice, IgmpSlice, IpNumber, Ipv4HeaderSlice, Ipv6ExtensionsSlice,
    Ipv6HeaderSlice, LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TcpSlice, TransportSlice, UdpSlice,
};
use proptest::prelude::*;
use wire::arp::{ArpPacket, ArpRepr};
use wire::checksum::Sum;
use wire::ethernet::EthernetFrame;
use wire::geneve::GeneveHeader;
use wire::gre::{GreHeader, GreRepr};
use wire::icmp::{IcmpMessage, IcmpRepr};
use wire::icmpv6::{Icmpv6Message, Icmpv6Repr};
use wire::igmp::{IgmpMessage, IgmpRepr};
use wire::ipv4::{Ipv4Packet, Ipv4Repr};
use wire::ipv6::{Ipv6Packet, Ipv6Repr};
use wire::ipv6_ext::{ExtRepr, FragmentRepr, walk};
use wire::mpls::LabelStack;
use wire::nd::{NdMessage, NdRepr};
use wire::nsh::{ContextTlvs, NshHeader};
use wire::sctp::SctpPacket;
use wire::tcp::{TcpFlags, TcpRepr, TcpSegment};
use wire::udp::UdpPacket;
use wire::vlan::{VlanHeader, VlanTag};
use wire::vxlan::{VxlanHeader, VxlanRepr};
use wire::{Compose, EthAddr, EtherType, IpProtocol, OptionBytes};

/// What a frame says, in terms that both parsers can fill in.
#[derive(Debug, Default, PartialEq)]
struct Summary {
    eth: ([u8; 6], [u8; 6]),
    vlans: Vec<u16>,
    ethertype: u16,
    net: Net,
    protocol: u8,
    fragment: bool,
    transport: Transport,
}

#[derive(Debug, Default, PartialEq)]
enum Net {
    #[default]
    None,
    Arp(Vec<u8>),
    /// Source, destination, tos, ttl, ident, don't fragment, more fragments, offset, options.
    Ipv4([u8; 4], [u8; 4], u8, u8, u16, bool, bool, u16, Vec<u8>),
    /// Source, destination, class, label, hop limit, length of extension headers.
    Ipv6([u8; 16], [u8; 16], u8, u32, u8, usize),
}

#[derive(Debug, Default, PartialEq)]
enum Transport {
    #[default]
    None,
    /// Ports, sequence numbers, flags, window, checksum, urgent, options, payload.
    Tcp(u16, u16, u32, u32, u16, u16, u16, u16, Vec<u8>, Vec<u8>),
    /// Ports, length, checksum, payload.
    Udp(u16, u16, u16, u16, Vec<u8>),
    /// Type, code, checksum, payload: ICMP, ICMPv6 and IGMP.
    Message(u8, u8, u16, Vec<u8>),
}

fn ours(frame: &[u8]) -> Summary {
    let eth = EthernetFrame::new(frame).unwrap();
    let mut out =
        Summary { eth: (eth.dst().0, eth.src().0), ethertype: eth.ethertype().0, ..Summary::default() };
    let mut rest = eth.payload();
    while EtherType(out.ethertype).is_vlan() {
        let tag = VlanHeader::new(rest).unwrap();
        out.vlans.push(tag.tci());
        out.ethertype = tag.ethertype().0;
        rest = &rest[4..];
    }
    let payload = match EtherType(out.ethertype) {
        EtherType::ARP => {
            let arp = ArpRepr::parse(&ArpPacket::new(rest).unwrap());
            let mut bytes = vec![0; arp.header_len()];
            arp.emit(&mut bytes).unwrap();
            out.net = Net::Arp(bytes);
            return out;
        }
        EtherType::IPV4 => ours_ipv4(rest, &mut out),
        EtherType::IPV6 => ours_ipv6(rest, &mut out),
        _ => return out,
    };
    if !out.fragment {
        out.transport = ours_transport(IpProtocol(out.protocol), payload);
    }
    out
}

fn ours_ipv4<'a>(rest: &'a [u8], out: &mut Summary) -> &'a [u8] {
    let view = Ipv4Packet::new(rest).unwrap();
    let repr = Ipv4Repr::parse(&view).unwrap();
    out.net = Net::Ipv4(
        repr.src.octets(),
        repr.dst.octets(),
        repr.tos,
        repr.ttl,
        repr.ident,
        repr.dont_fragment,
        repr.more_fragments,
        repr.fragment_offset,
        repr.options.as_bytes().to_vec(),
    );
    out.protocol = repr.protocol.0;
    out.fragment = view.is_fragment();
    &rest[view.header_len()..][..repr.payload_len]
}

fn ours_ipv6<'a>(rest: &'a [u8], out: &mut Summary) -> &'a [u8] {
    let view = Ipv6Packet::new(rest).unwrap();
    let repr = Ipv6Repr::parse(&view);
    let upper = view.upper().unwrap();
    out.net = Net::Ipv6(
        repr.src.octets(),
        repr.dst.octets(),
        repr.traffic_class,
        repr.flow_label,
        repr.hop_limit,
        upper.offset,
    );
    out.protocol = upper.protocol.0;
    out.fragment = upper.is_fragment();
    &rest[40..][upper.offset..repr.payload_len]
}

fn ours_transport(protocol: IpProtocol, bytes: &[u8]) -> Transport {
    match protocol {
        IpProtocol::TCP => {
            let view = TcpSegment::new(bytes).unwrap();
            let repr = TcpRepr::parse(&view).unwrap();
            Transport::Tcp(
                repr.src_port,
                repr.dst_port,
                repr.seq,
                repr.ack,
                repr.flags.bits(),
                repr.window,
                view.checksum(),
                repr.urgent,
                repr.options.as_bytes().to_vec(),
                view.payload().to_vec(),
            )
        }
        IpProtocol::UDP => {
            let view = UdpPacket::new(bytes).unwrap();
            let payload = view.payload().to_vec();
            Transport::Udp(view.src_port(), view.dst_port(), view.length(), view.checksum(), payload)
        }
        IpProtocol::ICMP => {
            let view = IcmpMessage::new(bytes).unwrap();
            Transport::Message(view.icmp_type(), view.code(), view.checksum(), bytes[4..].to_vec())
        }
        IpProtocol::ICMPV6 => {
            let view = Icmpv6Message::new(bytes).unwrap();
            Transport::Message(view.icmp_type(), view.code(), view.checksum(), view.body().to_vec())
        }
        IpProtocol::IGMP => {
            let view = IgmpMessage::new(bytes).unwrap();
            Transport::Message(view.igmp_type(), view.max_response(), view.checksum(), bytes[4..].to_vec())
        }
        _ => Transport::None,
    }
}

fn theirs(frame: &[u8]) -> Summary {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(LinkSlice::Ethernet2(eth)) = sliced.link else { panic!("no Ethernet in {frame:02x?}") };
    let mut out = Summary {
        eth: (eth.destination(), eth.source()),
        ethertype: eth.ether_type().0,
        ..Summary::default()
    };
    for ext in &sliced.link_exts {
        let LinkExtSlice::Vlan(tag) = ext else { panic!() };
        out.vlans.push(
            u16::from(tag.priority_code_point().value()) << 13
                | u16::from(tag.drop_eligible_indicator()) << 12
                | tag.vlan_identifier().value(),
        );
        out.ethertype = tag.ether_type().0;
    }
    match &sliced.net {
        Some(NetSlice::Arp(arp)) => out.net = Net::Arp(arp.slice().to_vec()),
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            out.net = Net::Ipv4(
                header.source(),
                header.destination(),
                header.dcp().value() << 2 | header.ecn().value(),
                header.ttl(),
                header.identification(),
                header.dont_fragment(),
                header.more_fragments(),
                header.fragments_offset().value(),
                header.options().to_vec(),
            );
            out.protocol = ip.payload().ip_number.0;
            out.fragment = ip.is_payload_fragmented();
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            out.net = Net::Ipv6(
                header.source(),
                header.destination(),
                header.traffic_class(),
                header.flow_label().value(),
                header.hop_limit(),
                ip.extensions().slice().len(),
            );
            out.protocol = ip.payload().ip_number.0;
            out.fragment = ip.is_payload_fragmented();
        }
        None => {}
    }
    if let Some(transport) = &sliced.transport {
        out.transport = theirs_transport(transport);
        check_transport_checksum(&out.net, transport);
    }
    out
}

fn theirs_transport(transport: &TransportSlice<'_>) -> Transport {
    match transport {
        TransportSlice::Tcp(tcp) => Transport::Tcp(
            tcp.source_port(),
            tcp.destination_port(),
            tcp.sequence_number(),
            tcp.acknowledgment_number(),
            u16::from_be_bytes([tcp.slice()[12] & 0xf, tcp.slice()[13]]),
            tcp.window_size(),
            tcp.checksum(),
            tcp.urgent_pointer(),
            tcp.options().to_vec(),
            tcp.payload().to_vec(),
        ),
        TransportSlice::Udp(udp) => Transport::Udp(
            udp.source_port(),
            udp.destination_port(),
            udp.length(),
            udp.checksum(),
            udp.payload().to_vec(),
        ),
        TransportSlice::Icmpv4(icmp) => {
            Transport::Message(icmp.type_u8(), icmp.code_u8(), icmp.checksum(), icmp.slice()[4..].to_vec())
        }
        TransportSlice::Icmpv6(icmp) => {
            Transport::Message(icmp.type_u8(), icmp.code_u8(), icmp.checksum(), icmp.slice()[4..].to_vec())
        }
        TransportSlice::Igmp(igmp) => Transport::Message(
            igmp.type_u8(),
            igmp.max_resp_code_or_reserved(),
            igmp.checksum(),
            igmp.slice()[4..].to_vec(),
        ),
    }
}

/// Our checksum is the one that etherparse computes.
fn check_transport_checksum(net: &Net, transport: &TransportSlice<'_>) {
    match (net, transport) {
        (Net::Ipv4(src, dst, ..), TransportSlice::Tcp(tcp)) if tcp.slice()[12] & 0xe == 0 => {
            assert_eq!(tcp.calc_checksum_ipv4(*src, *dst).unwrap(), tcp.checksum());
        }
        (Net::Ipv6(src, dst, ..), TransportSlice::Tcp(tcp)) if tcp.slice()[12] & 0xe == 0 => {
            assert_eq!(tcp.calc_checksum_ipv6(*src, *dst).unwrap(), tcp.checksum());
        }
        (Net::Ipv4(src, dst, ..), TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
            let header = udp.to_header();
            let sum = header.calc_checksum_ipv4_raw(*src, *dst, udp.payload());
            assert_eq!(sum.unwrap(), udp.checksum());
        }
        (Net::Ipv6(src, dst, ..), TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
            let header = udp.to_header();
            let sum = header.calc_checksum_ipv6_raw(*src, *dst, udp.payload());
            assert_eq!(sum.unwrap(), udp.checksum());
        }
        (Net::Ipv6(src, dst, ..), TransportSlice::Icmpv6(icmp)) => {
            assert!(icmp.is_checksum_valid(*src, *dst));
        }
        (_, TransportSlice::Igmp(igmp)) => assert!(igmp.is_checksum_valid()),
        (_, TransportSlice::Icmpv4(icmp)) => {
            let sum = etherparse::checksum::u32_16bit_word::ones_complement(
                etherparse::checksum::u32_16bit_word::add_slice(0, icmp.slice()),
            );
            assert_eq!(sum, 0);
        }
        _ => {}
    }
}

/// One or more calls on a frame under composition.
struct Step(Box<dyn Fn(Compose) -> Compose>);

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Step")
    }
}

fn step(f: impl Fn(Compose) -> Compose + 'static) -> Step {
    Step(Box::new(f))
}

prop_compose! {
    fn fragment()(offset in 0u16..8192, more in any::<bool>(), ident in any::<u32>()) -> FragmentRepr {
        FragmentRepr { fragment_offset: offset, more_fragments: more, ident }
    }
}

fn ipv4() -> impl Strategy<Value = Ipv4Repr> {
    let addrs = any::<([u8; 4], [u8; 4], u8, u8, u16)>();
    let fragment = prop::option::weighted(0.2, fragment());
    let options = prop::collection::vec(any::<u8>(), 0..=40);
    (addrs, any::<bool>(), fragment, options).prop_map(|(fields, df, fragment, options)| {
        let (src, dst, tos, ttl, ident) = fields;
        Ipv4Repr {
            tos,
            ttl,
            ident,
            dont_fragment: df,
            more_fragments: fragment.is_some_and(|f| f.more_fragments),
            fragment_offset: fragment.map_or(0, |f| f.fragment_offset),
            options: OptionBytes::new(&options).unwrap(),
            ..Ipv4Repr::new(src.into(), dst.into(), IpProtocol::NO_NEXT)
        }
    })
}

/// Extension headers in an order that both parsers take: hop-by-hop first, a fragment header last.
fn exts() -> impl Strategy<Value = Vec<ExtRepr>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let middle = prop_oneof![
        bytes().prop_map(ExtRepr::DestOpts),
        bytes().prop_map(ExtRepr::Routing),
        bytes().prop_map(ExtRepr::Auth),
    ];
    (
        prop::option::of(bytes().prop_map(ExtRepr::HopByHop)),
        prop::collection::vec(middle, 0..4),
        prop::option::weighted(0.3, fragment().prop_map(ExtRepr::Fragment)),
    )
        .prop_map(|(first, middle, last)| first.into_iter().chain(middle).chain(last).collect())
}

fn tcp() -> impl Strategy<Value = TcpRepr> {
    let fields = any::<(u16, u16, u32, u32, u16, u16, u16)>();
    (fields, prop::collection::vec(any::<u8>(), 0..=40)).prop_map(|(fields, options)| TcpRepr {
        seq: fields.2,
        ack: fields.3,
        flags: TcpFlags::from_bits(fields.4),
        window: fields.5,
        urgent: fields.6,
        options: OptionBytes::new(&options).unwrap(),
        ..TcpRepr::new(fields.0, fields.1)
    })
}

fn transport() -> impl Strategy<Value = Step> {
    let message = any::<(u8, u8, [u8; 4])>();
    let addr = any::<[u8; 6]>().prop_map(EthAddr);
    prop_oneof![
        tcp().prop_map(|tcp| step(move |c| c.tcp_repr(tcp))),
        any::<(u16, u16)>().prop_map(|(a, b)| step(move |c| c.udp(a, b))),
        any::<(u16, u16)>().prop_map(|(a, b)| step(move |c| c.udp(a, b).udp_checksum_zero())),
        any::<(u16, u16)>().prop_map(|(a, b)| step(move |c| c.sctp(a, b))),
        (any::<[u8; 16]>(), addr)
            .prop_map(|(target, addr)| { step(move |c| c.nd(NdRepr::solicit(target.into(), addr))) }),
        any::<(u16, u16)>().prop_map(|(a, b)| step(move |c| c.icmp(IcmpRepr::echo_request(a, b)))),
        message.prop_map(|(icmp_type, code, rest)| {
            step(move |c| c.icmpv6(Icmpv6Repr { icmp_type, code, rest }))
        }),
        any::<[u8; 4]>().prop_map(|group| {
            let group = group.into();
            step(move |c| c.igmp(IgmpRepr { igmp_type: 0x16, max_response: 0, group }))
        }),
        Just(()).prop_map(|()| step(|c| c.protocol(IpProtocol(89)))),
    ]
}

fn net() -> impl Strategy<Value = Step> {
    let arp = any::<(u16, [u8; 6], [u8; 4], [u8; 6], [u8; 4])>();
    let ipv6 = any::<([u8; 16], [u8; 16], u8, u32, u8)>();
    prop_oneof![
        1 => arp.prop_map(|(operation, sha, spa, tha, tpa)| {
            let (spa, tpa) = (Ipv4Addr::from(spa), Ipv4Addr::from(tpa));
            let arp = ArpRepr { operation, sha: EthAddr(sha), spa, tha: EthAddr(tha), tpa };
            step(move |c| c.arp(arp))
        }),
        4 => ipv4().prop_map(|ipv4| step(move |c| c.ipv4_repr(ipv4))),
        4 => (ipv6, exts()).prop_map(|((src, dst, traffic_class, label, hop_limit), exts)| {
            let ipv6 = Ipv6Repr {
                traffic_class,
                flow_label: label & 0xf_ffff,
                hop_limit,
                ..Ipv6Repr::new(Ipv6Addr::from(src), Ipv6Addr::from(dst), IpProtocol::NO_NEXT)
            };
            step(move |c| exts.iter().cloned().fold(c.ipv6_repr(ipv6), Compose::ext_header))
        }),
    ]
}

prop_compose! {
    fn frame()(
        eth in any::<([u8; 6], [u8; 6])>(),
        tags in prop::collection::vec(any::<(bool, u16)>(), 0..=2),
        net in net(),
        transport in transport(),
        payload in prop::collection::vec(any::<u8>(), 0..80),
        stretch in 0usize..200,
    ) -> Compose {
        let mut compose = Compose::ethernet(EthAddr(eth.0), EthAddr(eth.1)).payload(&payload);
        for (service, tci) in tags {
            let tpid = if service { EtherType::QINQ } else { EtherType::VLAN };
            compose = compose.vlan_tag(VlanTag::from_tci(tpid, tci));
        }
        let compose = (transport.0)((net.0)(compose));
        let len = compose.total_len() + stretch;
        compose.frame_len(len)
    }
}

/// Calls every view and iterator on `bytes` from every layer's point of view. Whether they accept is another
/// matter: nothing may panic.
fn touch_all(bytes: &[u8]) {
    let _ = EthernetFrame::new(bytes).map(|v| (v.snap_type(), v.payload().len()));
    let _ = VlanHeader::new(bytes).map(|v| (v.vid(), v.pcp(), v.payload().len()));
    let _ = LabelStack::new(bytes).count();
    let _ = ArpPacket::new(bytes).map(|v| ArpRepr::parse(&v));
    let _ =
        Ipv4Packet::new(bytes).map(|v| (Ipv4Repr::parse(&v).is_ok(), v.options().count(), v.payload().len()));
    let _ = Ipv6Packet::new(bytes).map(|v| (Ipv6Repr::parse(&v), v.upper(), v.ext_headers().count()));
    let _ =
        TcpSegment::new(bytes).map(|v| (TcpRepr::parse(&v).is_ok(), v.options().count(), v.payload().len()));
    let _ = UdpPacket::new(bytes).map(|v| (v.payload().len(), v.is_checksum_valid(Sum::new())));
    let _ = SctpPacket::new(bytes).map(|v| (v.payload().len(), v.is_checksum_valid()));
    let _ = IcmpMessage::new(bytes).map(|v| (v.payload().len(), IcmpRepr::parse(&v).echo()));
    let _ = Icmpv6Message::new(bytes).map(|v| (v.payload().len(), Icmpv6Repr::parse(&v)));
    let _ = NdMessage::new(bytes).map(|v| (NdRepr::parse(&v), v.options().count()));
    let _ = IgmpMessage::new(bytes).map(|v| v.records().filter_map(Result::ok).count());
    let _ = VxlanHeader::new(bytes).map(|v| (VxlanRepr::parse(&v), v.payload().len()));
    let _ = GeneveHeader::new(bytes).map(|v| (v.options().count(), v.payload().len()));
    let _ = GreHeader::new(bytes).map(|v| (GreRepr::parse(&v), v.is_checksum_valid()));
    let _ = NshHeader::new(bytes)
        .map(|v| (v.context(), ContextTlvs::new(v.context_bytes()).count(), v.payload().len()));
    for next in [0, 43, 44, 51, 60, 6] {
        let _ = walk(IpProtocol(next), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases("wire::composed_frames_read_alike", 2000)))]

    #[test]
    fn composed_frames_read_alike(compose in frame()) {
        let bytes = compose.build().unwrap();
        prop_assert_eq!(bytes.len(), compose.total_len());
        prop_assert_eq!(ours(&bytes), theirs(&bytes));
    }

    #[test]
    fn views_accept_and_read_any_bytes_as_etherparse_does(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120), low in any::<bool>(), next in any::<u8>(),
    ) {
        // Half of the time, small lengths and right versions: else almost nothing would be accepted.
        if let (true, [first, _, high, len, ..]) = (low, &mut bytes[..]) {
            (*first, *high, *len) = (0x45 + (*first & 3), 0, *len & 0x7f);
        }
        let ipv4 = Ipv4HeaderSlice::from_slice(&bytes).ok().filter(|v| {
            v.total_len() as usize >= v.slice().len() && v.total_len() as usize <= bytes.len()
        });
        prop_assert_eq!(Ipv4Packet::new(&bytes).is_ok(), ipv4.is_some());
        if let (Some(theirs), Ok(ours)) = (ipv4, Ipv4Packet::new(&bytes)) {
            prop_assert_eq!(ours.protocol().0, theirs.protocol().0);
            prop_assert_eq!(ours.option_bytes(), theirs.options());
            prop_assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
            let right = theirs.header_checksum() == theirs.to_header().calc_header_checksum();
            prop_assert!(ours.is_checksum_valid() == right || theirs.slice()[6] & 0x80 != 0);
        }
        let tcp = TcpSlice::from_slice(&bytes).ok();
        prop_assert_eq!(TcpSegment::new(&bytes).is_ok(), tcp.is_some());
        if let (Some(theirs), Ok(ours)) = (tcp, TcpSegment::new(&bytes)) {
            prop_assert_eq!((ours.seq(), ours.option_bytes(), ours.payload()),
                (theirs.sequence_number(), theirs.options(), theirs.payload()));
        }
        if let (Ok(theirs), Ok(ours)) = (UdpSlice::from_slice(&bytes), UdpPacket::new(&bytes)) {
            // Length 0: etherparse takes all there is, we take it for no payload.
            if ours.length() != 0 {
                prop_assert_eq!(ours.payload(), theirs.payload());
            }
        }
        prop_assert_eq!(IcmpMessage::new(&bytes).is_ok(), bytes.len() >= 8);
        // Timestamps have a fixed length there.
        if bytes.first().is_some_and(|t| ![13, 14].contains(t)) {
            prop_assert_eq!(Icmpv4Slice::from_slice(&bytes).is_ok(), IcmpMessage::new(&bytes).is_ok());
        }
        let icmpv6 = Icmpv6Message::new(&bytes).and_then(|v| Icmpv6Repr::parse(&v));
        prop_assert_eq!(Icmpv6Slice::from_slice(&bytes).is_ok(), icmpv6.is_ok());
        if let Ok(theirs) = IgmpSlice::from_slice(&bytes) {
            prop_assert_eq!(IgmpMessage::new(&bytes).unwrap().checksum(), theirs.checksum());
        }
        if let Ok(ours) = ArpPacket::new(&bytes) {
            prop_assert_eq!(ArpPacketSlice::from_slice(&bytes).unwrap().slice(), &ours.as_bytes()[..28]);
        }
        // Etherparse refuses hop-by-hop in the middle and walks on behind later fragments.
        if let (Ok((exts, protocol, _)), Ok(upper)) =
            (Ipv6ExtensionsSlice::from_slice(IpNumber(next), &bytes), walk(IpProtocol(next), &bytes))
            && !upper.is_later_fragment()
        {
            prop_assert_eq!((upper.protocol.0, upper.offset), (protocol.0, exts.slice().len()));
        }
        let mut packet = [0; 40];
        packet[..bytes.len().min(40)].copy_from_slice(&bytes[..bytes.len().min(40)]);
        let ipv6 = Ipv6HeaderSlice::from_slice(&packet).ok().filter(|v| v.payload_length() == 0);
        prop_assert_eq!(Ipv6Packet::new(&packet).is_ok(), ipv6.is_some());
    }

    #[test]
    fn any_bytes_and_any_cut_panic_nowhere(compose in frame(), flips in prop::collection::vec(any::<(u16, u8)>(), 0..6)) {
        let mut bytes = compose.build().unwrap();
        for (at, value) in flips {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        for start in [0, 14, 18, 34, 38, 54, 58] {
            touch_all(bytes.get(start..).unwrap_or(&[]));
        }
    }

    #[test]
    fn truncation_at_every_length_panics_nowhere(compose in frame()) {
        let bytes = compose.build().unwrap();
        let headers = compose.headers_len().min(bytes.len());
        for end in 0..=headers {
            touch_all(&bytes[..end]);
            touch_all(bytes.get(14..end).unwrap_or(&[]));
            touch_all(bytes.get(34..end).unwrap_or(&[]));
        }
    }

    #[test]
    fn what_is_parsed_is_emitted_again(compose in frame()) {
        let bytes = compose.build().unwrap();
        let eth = EthernetFrame::new(&bytes[..]).unwrap();
        let mut at = 14;
        let mut ethertype = eth.ethertype();
        while ethertype.is_vlan() {
            ethertype = VlanHeader::new(&bytes[at..]).unwrap().ethertype();
            at += 4;
        }
        let mut out = bytes.clone();
        match ethertype {
            EtherType::IPV4 => {
                let repr = Ipv4Repr::parse(&Ipv4Packet::new(&bytes[at..]).unwrap()).unwrap();
                out[at..at + repr.header_len()].fill(0xee);
                repr.emit(&mut out[at..]).unwrap();
            }
            EtherType::IPV6 => {
                let view = Ipv6Packet::new(&bytes[at..]).unwrap();
                out[at..at + 40 + view.upper().unwrap().offset].fill(0xee);
                Ipv6Repr::parse(&view).emit(&mut out[at..]).unwrap();
                for ext in view.ext_headers() {
                    let ext = ext.unwrap();
                    let repr = ExtRepr::parse(&ext).unwrap();
                    repr.emit(ext.next_header, &mut out[at + 40 + ext.offset..]).unwrap();
                }
            }
            _ => {
                let repr = ArpRepr::parse(&ArpPacket::new(&bytes[at..]).unwrap());
                out[at..at + 28].fill(0xee);
                repr.emit(&mut out[at..]).unwrap();
            }
        }
        prop_assert_eq!(out, bytes);
    }
}
