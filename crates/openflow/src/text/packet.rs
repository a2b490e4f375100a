//! The fields of one packet (`ofproto/trace`): a match in which each field has one value.
//!
//! Stricter than a match: a field occurs once, after its prerequisites, and without a mask. The errors use
//! Open vSwitch's words, with the field and what is wrong with it.

use super::PortNames;
use super::lex::KeyValues;
use super::matching::{SHORTHANDS, field_named, item_names, normalized, parse_field};
use base::suggest;
use flow::mf::{Format, Maskable};
use flow::{Match, Mf};

/// Reads a packet's fields.
///
/// # Errors
/// What is wrong, without the text that it is wrong in.
pub fn parse_packet(text: &str, ports: &PortNames) -> Result<Match, String> {
    let mut m = Match::any();
    for (key, value) in KeyValues::new(text) {
        if let Some(&(_, eth_type, proto)) = SHORTHANDS.iter().find(|s| s.0 == key) {
            if m.get_mf(Mf::EthType).1 != 0 {
                return Err("Ethernet type set multiple times".into());
            }
            m.set_mf(Mf::EthType, eth_type.into(), 0xffff);
            if proto != 0 {
                m.set_mf(Mf::NwProto, proto.into(), 0xff);
            }
            continue;
        }
        let unknown = || format!("unknown field {key}{}", suggest::line(key, item_names()));
        let mf = field_named(key).ok_or_else(unknown)?;
        if !m.has_prereq(mf) {
            return Err(format!("prerequisites not met for setting {key}"));
        }
        if m.get_mf(mf).1 != 0 {
            return Err(format!("field {key} set multiple times"));
        }
        let bad = |why: &str| format!("bad value for {key} ({why})");
        if value.is_empty() && mf != Mf::InPort {
            return Err(bad(&empty(mf)));
        }
        parse_field(&mut m, key, value, ports).map_err(|e| bad(&e.message))?;
        let is_whole = match mf {
            // A tag's fields are a part of one that is wider.
            Mf::DlVlan | Mf::DlVlanPcp | Mf::VlanVid | Mf::VlanPcp | Mf::TunMetadata(_) => true,
            _ if mf.row().maskable == Maskable::No => true,
            _ if matches!(mf.row().format, Format::TunFlags | Format::TcpFlags | Format::CtState) => {
                !value.contains(['+', '-', '/'])
            }
            _ => m.get_mf(mf).1 == mf.ones(),
        };
        if !is_whole {
            return Err(bad(&format!("{value}: wildcards not allowed here")));
        }
    }
    Ok(normalized(&m))
}

/// The text for a missing value, by the kind of field.
fn empty(mf: Mf) -> String {
    match mf.row().format {
        Format::Ethernet => ": invalid Ethernet address".into(),
        Format::Ipv4 => ": invalid IP address".into(),
        Format::Ipv6 => ": invalid IPv6 address".into(),
        _ => format!(": bad syntax for {} value", mf.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_each_field_once_after_what_it_requires_and_whole() {
        // As ovs-appctl ofproto/trace of Open vSwitch 3.1 answers.
        for (text, error) in [
            ("in_port", "bad value for in_port (: invalid or unknown port for in_port)"),
            ("nw_src=1.2.3.4", "prerequisites not met for setting nw_src"),
            ("arp,nw_src=1.2.3.4", "prerequisites not met for setting nw_src"),
            ("udp,tp_src=5", "prerequisites not met for setting tp_src"),
            ("icmp6,icmp_type=8", "prerequisites not met for setting icmp_type"),
            ("tcp_flags=zz", "prerequisites not met for setting tcp_flags"),
            ("tcp,,,udp", "Ethernet type set multiple times"),
            ("tcp,tp_src=5,tp_src=5", "field tp_src set multiple times"),
            ("tcp,nw_proto=17", "field nw_proto set multiple times"),
            ("in_port=1,in_port=2", "field in_port set multiple times"),
            ("tcp,nw_src=1.2.3.4/24", "bad value for nw_src (1.2.3.4/24: wildcards not allowed here)"),
            ("metadata=5/3", "bad value for metadata (5/3: wildcards not allowed here)"),
            ("ct_state=+trk", "bad value for ct_state (+trk: wildcards not allowed here)"),
            ("tcp,tcp_flags=+syn", "bad value for tcp_flags (+syn: wildcards not allowed here)"),
            ("tcp tp_dst", "bad value for tp_dst (: bad syntax for tcp_dst value)"),
            ("tcp,nw_src=", "bad value for nw_src (: invalid IP address)"),
            ("dl_src=", "bad value for dl_src (: invalid Ethernet address)"),
            ("reg0[0..3]=1", "unknown field reg0[0..3]"),
            ("tcp,actions=drop", "unknown field actions"),
            ("eth,tcp", "unknown field eth"),
        ] {
            assert_eq!(parse_packet(text, PortNames::none()).unwrap_err(), error, "{text}");
        }
        for text in [
            "",
            "udp,udp_src=5",
            "ip,nw_proto=6,tp_dst=5",
            "arp,arp_spa=1.2.3.4",
            "dl_vlan=3,dl_vlan_pcp=3",
            "dl_vlan_pcp=3",
            "vlan_tci=0x1005",
            "tcp,nw_src=1.2.3.4/32,nw_tos=4,nw_frag=no,tcp_flags=syn",
            "ct_state=trk,ct_mark=3,tun_id=5,pkt_mark=1",
            "mpls,mpls_label=5",
        ] {
            parse_packet(text, PortNames::none()).unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }
}
