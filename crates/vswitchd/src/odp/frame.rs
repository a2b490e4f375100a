//! Frames from text: hexadecimal digits, or a flow from whose fields a frame is built.

use super::attributes::{BadFrame, bad, flatten, without_ufid};
use super::read::{Flow, LABELS};
use ::flow::FieldId;
use ::flow::compose::{Payload, compose};

/// In a label stack entry.
const BOTTOM_OF_STACK: u128 = 0x100;
/// The default TTL.
const TTL_DEFAULT: u128 = 64;
/// Longest frame.
const FRAME_BYTES_MAX: usize = 65_535;

/// A frame of the bytes that hexadecimal `text` names, or of the flow that it describes
/// (`in_port(1),eth(src=..,dst=..),eth_type(0x0800),ipv4(...),udp(...)`).
pub fn frame(text: &str) -> Result<Vec<u8>, BadFrame> {
    if text.contains('(') {
        return described(text, Payload::Usual);
    }
    match payload(text) {
        Some(bytes) if (14..=FRAME_BYTES_MAX).contains(&bytes.len()) => Ok(bytes),
        _ => bad(text),
    }
}

/// Bytes in hexadecimal, with blanks anywhere.
pub fn payload(text: &str) -> Option<Vec<u8>> {
    let digits = text.chars().filter(|c| !c.is_ascii_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8));
    let digits: Vec<u8> = digits.collect::<Option<_>>()?;
    let bytes = || digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect();
    digits.len().is_multiple_of(2).then(bytes)
}

/// The same with a given length: a flow's frame gets a payload of zeros to reach it, other bytes are padded
/// with zeros. A longer frame stays as it is.
pub fn frame_of_len(text: &str, len: usize) -> Result<Vec<u8>, BadFrame> {
    if text.contains('(') {
        return described(text, Payload::FrameLen(len));
    }
    let mut frame = frame(text)?;
    if len > frame.len() {
        frame.resize(len, 0);
    }
    Ok(frame)
}

/// Attributes that a frame does not carry.
const METADATA: &[&str] = &[
    "in_port",
    "recirc_id",
    "dp_hash",
    "skb_priority",
    "skb_mark",
    "packet_type",
    "ct_state",
    "ct_zone",
    "ct_mark",
    "ct_label",
    "ct_tuple4",
    "ct_tuple6",
];

/// The Ethernet type of headers behind no type.
const IMPLIED: [(&str, u128); 3] = [("ipv4", 0x0800), ("ipv6", 0x86dd), ("arp", 0x0806)];

/// A mask says which bits a flow looks at; a frame has them all.
fn described(text: &str, payload: Payload<'_>) -> Result<Vec<u8>, BadFrame> {
    let mut all = Vec::new();
    flatten(without_ufid(text), 0, &mut all)?;
    all.retain(|attribute| !METADATA.contains(&attribute.name));
    let mut flow = Flow::new(TTL_DEFAULT, &|_| None);
    for attribute in &all {
        flow.add(attribute)?;
    }
    let implied = || all.iter().find_map(|a| Some(IMPLIED.iter().find(|(name, _)| *name == a.name)?.1));
    let eth_type = Some(flow.eth_type.0).filter(|eth_type| *eth_type != 0).or_else(implied);
    flow.key.set(FieldId::EthType, eth_type.unwrap_or(0));
    for (n, label) in LABELS[..flow.labels].iter().enumerate() {
        let bottom = if n + 1 == flow.labels { BOTTOM_OF_STACK } else { 0 };
        flow.key.set_masked(*label, bottom, BOTTOM_OF_STACK);
    }
    compose(&flow.key, payload).map_err(|e| BadFrame(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::flow::extract::{Ingress, extract};
    use ::flow::{Depth, Key};
    use base::{OfPort, PortNo};

    fn key(text: &str) -> Key {
        let frame = frame(text).unwrap();
        let mut key = Key::default();
        let ingress = Ingress::new(OfPort(1), PortNo(1), Depth::Everything);
        extract(&frame, frame.len(), &ingress, &mut key).unwrap();
        key
    }

    #[test]
    fn headers_behind_no_type_are_of_their_own() {
        for (text, eth_type) in [
            (
                "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1)",
                0x800,
            ),
            ("eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),ipv6(src=::1,dst=::2,proto=17)", 0x86dd),
            ("eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),arp(sip=10.0.0.1,tip=10.0.0.2,op=1)", 0x806),
        ] {
            assert_eq!(key(text).get(FieldId::EthType), eth_type, "{text}");
        }
    }

    #[test]
    fn a_flow_becomes_a_frame_that_has_its_fields() {
        let key = key("in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x8100),\
                       vlan(vid=9,pcp=3),encap(eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x10,\
                       ttl=64,frag=no),tcp(src=1,dst=0x50),tcp_flags(0x2))");
        for (field, value) in [
            (FieldId::EthSrc, 0x5054_0000_0005),
            (FieldId::VlanTci, 0x7009),
            (FieldId::EthType, 0x800),
            (FieldId::NwDst, 0x0a00_0002),
            (FieldId::NwTos, 0x10),
            (FieldId::TpDst, 80),
            (FieldId::TcpFlags, 2),
        ] {
            assert_eq!(key.get(field), value, "{field:?}");
        }
    }

    #[test]
    fn what_a_dump_prints_of_a_flow_becomes_a_frame_with_its_values() {
        let frag = |text: &str| {
            let v4 = "in_port(1),eth_type(0x0800/0xffff),ipv4(src=10.0.0.1/255.0.0.0,proto=17/0,tos=0/0,ttl=64/0,frag=";
            key(&format!("{v4}{text}),udp(src=1/0,dst=53)")).get(FieldId::NwFrag)
        };
        assert_eq!((frag("no"), frag("first"), frag("later")), (0, 1, 3));
        assert!(frame("eth_type(0x0800),ipv4(proto=17,frag=some)").is_err());
        let tcp = |flags: &str| {
            let ip = "in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1/0.0.0.0,proto=6,tos=0/0x3,frag=no),tcp(src=1,dst=2)";
            key(&format!("skb_mark(0/0),ct_state(0/0),{ip},tcp_flags({flags})")).get(FieldId::TcpFlags)
        };
        assert_eq!((tcp("syn|ack"), tcp("ack"), tcp("-fin+syn"), tcp("0x2/0x3")), (0x12, 0x10, 2, 2));
        let v6 = key(
            "in_port(1),eth_type(0x86dd),ipv6(src=fc00::1/::,dst=fc00::2,proto=17,frag=later),udp(src=1,dst=2)",
        );
        assert_eq!((v6.get(FieldId::Ipv6Dst) as u16, v6.get(FieldId::NwFrag)), (2, 3));
    }

    #[test]
    fn a_udp_flow_has_the_length_that_open_vswitch_gives_it() {
        let text = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
                    ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
        assert_eq!(frame(text).unwrap().len(), 106);
        let lens = |ip: &str| frame(&format!("eth_type(0x0800),ipv4(ttl=64,{ip}")).unwrap().len();
        // Headers alone, where Open vSwitch knows of no payload.
        assert_eq!(
            [lens("proto=16)"), lens("proto=6)"), lens("proto=6),tcp(),tcp_flags(rst)")],
            [34, 118, 54]
        );
        assert_eq!([lens("proto=1),icmp(type=8)"), lens("proto=1),icmp(type=3)")], [106, 42]);
        assert_eq!(frame("eth(),eth_type(0x1234)").unwrap().len(), 14);
        assert_eq!(frame_of_len(text, 60).unwrap().len(), 60);
    }

    #[test]
    fn hexadecimal_is_taken_as_it_is_and_nonsense_is_refused() {
        assert_eq!(frame("5054 00000007 505400000005 0800 4500").unwrap().len(), 16);
        for text in
            ["zz", "", "505", "50540000000750540000000508", "eth(", "eth(src=1)", "nosuch(1)", "éth(x)", ")("]
        {
            assert!(frame(text).is_err(), "{text}");
        }
        assert_eq!(frame("zz").unwrap_err().to_string(), "syntax error at zz");
        assert!(frame(&"encap(".repeat(1000)).is_err());
    }
}
