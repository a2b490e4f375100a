//! Transport ports, whatever the packet's protocol: OpenFlow 1.0 and 1.1 only.

use super::body::Encoder;
use super::row::{Row, lenient, of10, of11, with};
use super::vlan::set_exactly;
use crate::codec::bytes::Put;
use crate::text::put;
use crate::text::value::u16_named;
use crate::version::Version;
use flow::{Action, FieldId, Mf};

/// Sets the port of the protocol in the match. If the match names none, as in a group, OpenFlow 1.1's action
/// is the only one that applies to any protocol.
fn set_port(e: &mut Encoder, source: bool, port: u16) {
    let (src, dst) = match e.matching.map(|m| m.key.get64(FieldId::NwProto)) {
        Some(6) => (Mf::TcpSrc, Mf::TcpDst),
        Some(17) => (Mf::UdpSrc, Mf::UdpDst),
        Some(132) => (Mf::SctpSrc, Mf::SctpDst),
        _ => {
            e.out.u16(if source { 9 } else { 10 });
            e.out.u16(8);
            e.out.u16(port);
            return e.out.zeros(2);
        }
    };
    e.action(&set_exactly(if source { src } else { dst }, port.into()));
}

pub(super) static SET_TP_SRC: Row = Row {
    name: "mod_tp_src",
    syntax: "mod_tp_src:PORT",
    summary: "Sets the source port of TCP, UDP or SCTP.",
    forms: &[
        of10(
            9,
            |b| Ok(Action::SetTpSrc(b.u16()?)),
            |a, e| with!(a, Action::SetTpSrc(port) => e.out.u16(*port)),
        ),
        of11(
            9,
            |b| Ok(Action::SetTpSrc(b.u16()?)),
            |a, e| with!(a, Action::SetTpSrc(port) => e.out.u16(*port)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[
        lenient("mod_tp_src", |_, _, value| Ok(Action::SetTpSrc(u16_named(value, "source port")?))),
        lenient("set_tp_src", |_, _, value| Ok(Action::SetTpSrc(u16_named(value, "source port")?))),
    ],
    stand_in: |a, e| with!(a, Action::SetTpSrc(port) => set_port(e, true, *port)),
    print: |a, p| with!(a, Action::SetTpSrc(port) => put!(p.out, "mod_tp_src:{port}")),
    check: |_, c| c.needs(matches!(c.nw_proto(), 6 | 17 | 132)),
    ..Row::PLAIN
};

pub(super) static SET_TP_DST: Row = Row {
    name: "mod_tp_dst",
    syntax: "mod_tp_dst:PORT",
    summary: "Sets the destination port of TCP, UDP or SCTP.",
    forms: &[
        of10(
            10,
            |b| Ok(Action::SetTpDst(b.u16()?)),
            |a, e| with!(a, Action::SetTpDst(port) => e.out.u16(*port)),
        ),
        of11(
            10,
            |b| Ok(Action::SetTpDst(b.u16()?)),
            |a, e| with!(a, Action::SetTpDst(port) => e.out.u16(*port)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[
        lenient("mod_tp_dst", |_, _, value| Ok(Action::SetTpDst(u16_named(value, "destination port")?))),
        lenient("set_tp_dst", |_, _, value| Ok(Action::SetTpDst(u16_named(value, "destination port")?))),
    ],
    stand_in: |a, e| with!(a, Action::SetTpDst(port) => set_port(e, false, *port)),
    print: |a, p| with!(a, Action::SetTpDst(port) => put!(p.out, "mod_tp_dst:{port}")),
    check: |_, c| c.needs(matches!(c.nw_proto(), 6 | 17 | 132)),
    ..Row::PLAIN
};
