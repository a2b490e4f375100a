//! Undecoded matches of OpenFlow 1.0 flow-mods, which the stock tools show at high verbosity.

use super::words::MessageStyle;
use crate::codec::bytes::Reader;
use crate::error::ErrorKind::{self, OFPBRC_BAD_LEN};
use crate::text::value::{write_ethernet, write_ipv4};
use crate::text::{PortNames, entries_text};
use crate::version::Version;
use base::OfPort;

/// The minimum verbosity.
const VERBOSITY: u8 = 2;
/// Where the match of OFPT_FLOW_MOD and the entries of NXT_FLOW_MOD begin, and the length of the latter is.
const FIXED_AT: usize = 8;
const ENTRIES_AT: usize = 48;
const ENTRIES_LEN_AT: usize = 40;

const ARP: u16 = 0x806;
const IP: u16 = 0x800;
const RARP: u16 = 0x8035;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;

/// The match of a flow-mod, if it is shown undecoded.
pub fn text(bytes: &[u8], name: &str, style: MessageStyle) -> Option<String> {
    if style.verbosity < VERBOSITY || style.version != Version::V10 {
        return None;
    }
    match name {
        "OFPT_FLOW_MOD" => fixed(Reader::new(bytes.get(FIXED_AT..)?, OFPBRC_BAD_LEN), style.ports).ok(),
        "NXT_FLOW_MOD" => {
            let length = bytes.get(ENTRIES_LEN_AT..ENTRIES_LEN_AT + 2)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            Some(entries_text(bytes.get(ENTRIES_AT..ENTRIES_AT + length)?))
        }
        _ => None,
    }
}

/// `ofp_match`. Source: OpenFlow 1.0 section 5.2.3.
fn fixed(mut r: Reader, ports: &PortNames) -> Result<String, ErrorKind> {
    let (wildcards, in_port) = (r.u32()?, OfPort(r.u16()?));
    let (dl_src, dl_dst) = (r.number(6)?, r.number(6)?);
    let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (dl_type, nw_tos, nw_proto) = (r.u16()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let (nw_src, nw_dst) = (r.u32()?, r.u32()?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);

    let has = |bit: u32| wildcards >> bit & 1 == 0;
    let (has_type, has_proto) = (has(4), has(5));
    let mut fields: Vec<String> = Vec::new();
    // A protocol is shown as a word, which replaces the fields that define it.
    let word = match (dl_type, nw_proto) {
        _ if !has_type => None,
        (IP, 1) if has_proto => Some("icmp"),
        (IP, 6) if has_proto => Some("tcp"),
        (IP, 17) if has_proto => Some("udp"),
        (IP, 132) if has_proto => Some("sctp"),
        (IP, _) => Some("ip"),
        (ARP, _) => Some("arp"),
        (RARP, _) => Some("rarp"),
        (MPLS, _) => Some("mpls"),
        (MPLS_MULTICAST, _) => Some("mplsm"),
        _ => None,
    };
    fields.extend(word.map(String::from));
    let mut put = |name: &str, value: Option<String>| {
        fields.push(format!("{name}={}", value.as_deref().unwrap_or("*")));
    };
    let number = |is_matched: bool, number: u16| is_matched.then(|| number.to_string());
    put("in_port", has(0).then(|| ports.text(in_port).to_string()));
    put("dl_vlan", number(has(1), dl_vlan));
    put("dl_vlan_pcp", number(has(20), dl_vlan_pcp.into()));
    for (bit, name, address) in [(2, "dl_src", dl_src), (3, "dl_dst", dl_dst)] {
        let mut text = String::new();
        write_ethernet(&mut text, address as u64);
        put(name, has(bit).then_some(text));
    }
    if word.is_none() {
        put("dl_type", has_type.then(|| format!("0x{dl_type:04x}")));
    }
    for (shift, name, address) in [(8, "nw_src", nw_src), (14, "nw_dst", nw_dst)] {
        let ignored = wildcards >> shift & 0x3f;
        let mut text = String::new();
        write_ipv4(&mut text, address, u32::MAX.checked_shl(ignored).unwrap_or(0));
        put(name, (ignored < 32).then_some(text));
    }
    match word {
        Some("arp" | "rarp") => put("arp_op", number(has_proto, nw_proto.into())),
        Some("icmp" | "tcp" | "udp" | "sctp") => {}
        _ => put("nw_proto", number(has_proto, nw_proto.into())),
    }
    put("nw_tos", number(has(21), nw_tos.into()));
    let names = if word == Some("icmp") { ["icmp_type", "icmp_code"] } else { ["tp_src", "tp_dst"] };
    put(names[0], number(has(6), tp_src));
    put(names[1], number(has(7), tp_dst));
    Ok(fields.join(","))
}

#[cfg(test)]
mod tests {
    use crate::message::{FlowForm, FlowMod};
    use crate::text::{PortNames, bytes_text, parse_flow_mod};
    use crate::{Codec, Message, Version};

    fn text(flow: &str, form: FlowForm, verbosity: u8) -> String {
        let parsed = parse_flow_mod(flow, crate::message::FlowModCommand::Add, PortNames::none()).unwrap();
        let flow_mod = FlowMod { form, table_id: 0, ..parsed.flow_mod };
        let bytes = Codec::new(Version::V10).encode(5, &Message::FlowMod(Box::new(flow_mod))).unwrap();
        bytes_text(&bytes, PortNames::none(), verbosity)
    }

    #[test]
    fn matches_stand_as_on_the_wire_from_a_verbosity_on() {
        let flow = "priority=7,tcp,in_port=3,nw_src=10.0.0.0/8,tp_dst=80,idle_timeout=9,actions=output:2";
        assert_eq!(
            text(flow, FlowForm::Standard, 1),
            "OFPT_FLOW_MOD (xid=0x5): ADD priority=7,tcp,in_port=3,nw_src=10.0.0.0/8,tp_dst=80 idle:9 \
             actions=output:2\n"
        );
        assert_eq!(
            text(flow, FlowForm::Standard, 2),
            "OFPT_FLOW_MOD (xid=0x5): ADD tcp,in_port=3,dl_vlan=*,dl_vlan_pcp=*,dl_src=*,dl_dst=*,\
             nw_src=10.0.0.0/8,nw_dst=*,nw_tos=*,tp_src=*,tp_dst=80 idle:9 pri:7 actions=output:2\n"
        );
        assert_eq!(
            text("reg1=5,actions=drop", FlowForm::Nxm, 2),
            "NXT_FLOW_MOD (xid=0x5): ADD NXM_NX_REG1(00000005) actions=drop\n"
        );
    }
}
