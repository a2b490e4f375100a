//! MPLS labels.

use super::row::{Row, nicira, of11, with, word};
use super::vlan::{in_range, set_exactly};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::{self, u8_named, u16_named};
use crate::text::{bad, put};
use crate::version::Version;
use flow::{Action, Mf};

fn mpls_type(eth_type: u16) -> Result<u16, ErrorKind> {
    if eth_type == 0x8847 || eth_type == 0x8848 { Ok(eth_type) } else { Err(OFPBAC_BAD_ARGUMENT) }
}

pub(super) static PUSH_MPLS: Row = Row {
    name: "push_mpls",
    syntax: "push_mpls:ETHERTYPE",
    summary: "Pushes an MPLS label of type 0x8847 or 0x8848.",
    forms: &[
        nicira(
            23,
            |b| Ok(Action::PushMpls(mpls_type(b.u16()?)?)),
            |a, e| with!(a, Action::PushMpls(eth_type) => e.out.u16(*eth_type)),
        )
        .only(Version::V10, Version::V10),
        of11(
            19,
            |b| Ok(Action::PushMpls(mpls_type(b.u16()?)?)),
            |a, e| with!(a, Action::PushMpls(eth_type) => e.out.u16(*eth_type)),
        ),
    ],
    words: &[word("push_mpls", |_, _, value| Ok(Action::PushMpls(u16_named(value, "push_mpls")?)))],
    print: |a, p| with!(a, Action::PushMpls(eth_type) => put!(p.out, "push_mpls:0x{eth_type:04x}")),
    check: |a, c| {
        c.needs(c.is_ethernet())?;
        if let Action::PushMpls(eth_type) = *a {
            c.eth_type(eth_type);
        }
        Ok(())
    },
    ..Row::PLAIN
};

pub(super) static POP_MPLS: Row = Row {
    name: "pop_mpls",
    syntax: "pop_mpls:ETHERTYPE",
    summary: "Removes the outermost MPLS label; the packet's type is then as given.",
    forms: &[
        nicira(
            24,
            |b| Ok(Action::PopMpls(b.u16()?)),
            |a, e| with!(a, Action::PopMpls(eth_type) => e.out.u16(*eth_type)),
        )
        .only(Version::V10, Version::V10),
        of11(
            20,
            |b| Ok(Action::PopMpls(b.u16()?)),
            |a, e| with!(a, Action::PopMpls(eth_type) => e.out.u16(*eth_type)),
        ),
    ],
    words: &[word("pop_mpls", |_, _, value| Ok(Action::PopMpls(u16_named(value, "pop_mpls")?)))],
    print: |a, p| with!(a, Action::PopMpls(eth_type) => put!(p.out, "pop_mpls:0x{eth_type:04x}")),
    check: |a, c| {
        c.needs(c.is_ethernet() && c.is_mpls())?;
        if let Action::PopMpls(eth_type) = *a {
            c.eth_type(eth_type);
        }
        Ok(())
    },
    ..Row::PLAIN
};

pub(super) static SET_MPLS_LABEL: Row = Row {
    name: "set_mpls_label",
    syntax: "set_mpls_label:LABEL",
    summary: "Sets the outermost MPLS label.",
    forms: &[
        nicira(
            30,
            |b| {
                b.skip(2)?;
                Ok(Action::SetMplsLabel(in_range(b.u32()?, 0xf_ffff)?))
            },
            |a, e| {
                with!(a, Action::SetMplsLabel(label) => {
                    e.out.zeros(2);
                    e.out.u32(*label);
                })
            },
        )
        .only(Version::V10, Version::V10),
        of11(
            13,
            |b| Ok(Action::SetMplsLabel(in_range(b.u32()?, 0xf_ffff)?)),
            |a, e| with!(a, Action::SetMplsLabel(label) => e.out.u32(*label)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[word("set_mpls_label", |_, _, value| match value::number(value, 0xfffff) {
        _ if value.is_empty() => bad!("set_mpls_label: expected label."),
        Some(label) => Ok(Action::SetMplsLabel(label as u32)),
        None => bad!("{value}: not a valid MPLS label"),
    })],
    stand_in: |a, e| with!(a, Action::SetMplsLabel(label) => e.action(&set_exactly(Mf::MplsLabel, u128::from(*label)))),
    print: |a, p| with!(a, Action::SetMplsLabel(label) => put!(p.out, "set_mpls_label({label})")),
    check: |_, c| c.needs(c.is_mpls()),
    ..Row::PLAIN
};

pub(super) static SET_MPLS_TC: Row = Row {
    name: "set_mpls_tc",
    syntax: "set_mpls_tc:TC",
    summary: "Sets the traffic class of the outermost MPLS label.",
    forms: &[
        nicira(
            31,
            |b| Ok(Action::SetMplsTc(in_range(b.u8()?, 7)?)),
            |a, e| with!(a, Action::SetMplsTc(tc) => e.out.u8(*tc)),
        )
        .only(Version::V10, Version::V10),
        of11(
            14,
            |b| Ok(Action::SetMplsTc(in_range(b.u8()?, 7)?)),
            |a, e| with!(a, Action::SetMplsTc(tc) => e.out.u8(*tc)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[word("set_mpls_tc", |_, _, value| match value::number(value, 7) {
        _ if value.is_empty() => bad!("set_mpls_tc: expected tc."),
        Some(tc) => Ok(Action::SetMplsTc(tc as u8)),
        None => bad!("{value}: not a valid MPLS TC"),
    })],
    stand_in: |a, e| with!(a, Action::SetMplsTc(tc) => e.action(&set_exactly(Mf::MplsTc, u128::from(*tc)))),
    print: |a, p| with!(a, Action::SetMplsTc(tc) => put!(p.out, "set_mpls_tc({tc})")),
    check: |_, c| c.needs(c.is_mpls()),
    ..Row::PLAIN
};

pub(super) static SET_MPLS_TTL: Row = Row {
    name: "set_mpls_ttl",
    syntax: "set_mpls_ttl:TTL",
    summary: "Sets the TTL of the outermost MPLS label.",
    forms: &[
        nicira(
            25,
            |b| Ok(Action::SetMplsTtl(b.u8()?)),
            |a, e| with!(a, Action::SetMplsTtl(ttl) => e.out.u8(*ttl)),
        )
        .only(Version::V10, Version::V10),
        of11(
            15,
            |b| Ok(Action::SetMplsTtl(b.u8()?)),
            |a, e| with!(a, Action::SetMplsTtl(ttl) => e.out.u8(*ttl)),
        ),
    ],
    words: &[word("set_mpls_ttl", |_, _, value| match value {
        "" => bad!("set_mpls_ttl: expected ttl."),
        value => Ok(Action::SetMplsTtl(u8_named(value, "MPLS TTL")?)),
    })],
    print: |a, p| with!(a, Action::SetMplsTtl(ttl) => put!(p.out, "set_mpls_ttl({ttl})")),
    check: |_, c| c.needs(c.is_mpls()),
    ..Row::PLAIN
};

pub(super) static DEC_MPLS_TTL: Row = Row {
    name: "dec_mpls_ttl",
    syntax: "dec_mpls_ttl",
    summary: "Decrements the TTL of the outermost MPLS label; a packet whose TTL expires goes to the controllers.",
    forms: &[
        nicira(26, |_| Ok(Action::DecMplsTtl), |a, _| *a == Action::DecMplsTtl)
            .only(Version::V10, Version::V10),
        of11(16, |_| Ok(Action::DecMplsTtl), |a, e| with!(a, Action::DecMplsTtl => e.out.zeros(4))),
    ],
    words: &[word("dec_mpls_ttl", |_, _, _| Ok(Action::DecMplsTtl))],
    check: |_, c| c.needs(c.is_mpls()),
    ..Row::PLAIN
};
