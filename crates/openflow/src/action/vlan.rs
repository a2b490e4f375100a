//! VLAN tags.

use super::row::{Row, lenient, of10, of11, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::{u8_named, u16_named};
use crate::text::{Protocols, TextError, bad, put};
use crate::version::Version;
use flow::{Action, Mf};

/// A number in range, or OFPBAC_BAD_ARGUMENT.
pub(super) fn in_range<T: PartialOrd>(n: T, max: T) -> Result<T, ErrorKind> {
    if n <= max { Ok(n) } else { Err(OFPBAC_BAD_ARGUMENT) }
}

/// A field set to a value exactly.
pub(super) fn set_exactly(field: Mf, value: u128) -> Action {
    Action::SetField { field, value, mask: field.ones() }
}

pub(super) static SET_VLAN_VID: Row = Row {
    name: "mod_vlan_vid",
    syntax: "mod_vlan_vid:VLAN",
    summary: "Sets the VLAN's id, and adds a tag if there is none.",
    forms: &[
        of10(
            1,
            |b| Ok(Action::SetVlanVid { vid: in_range(b.u16()?, 0xfff)?, push_vlan_if_needed: true }),
            |a, e| with!(a, Action::SetVlanVid { vid, .. } => e.out.u16(*vid)),
        ),
        of11(
            1,
            |b| Ok(Action::SetVlanVid { vid: in_range(b.u16()?, 0xfff)?, push_vlan_if_needed: false }),
            |a, e| with!(a, Action::SetVlanVid { vid, .. } => e.out.u16(*vid)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[
        lenient("mod_vlan_vid", |_, _, value| parse_vid(value, true)),
        lenient("set_vlan_vid", |_, _, value| parse_vid(value, false)),
    ],
    stand_in: |a, e| {
        with!(a, Action::SetVlanVid { vid, .. } => {
            e.action(&set_exactly(Mf::VlanVid, u128::from(vid | 0x1000)));
        })
    },
    print: |a, p| {
        with!(a, Action::SetVlanVid { vid, push_vlan_if_needed } => {
            put!(p.out, "{}_vlan_vid:{vid}", if *push_vlan_if_needed { "mod" } else { "set" });
        })
    },
    check: |a, c| {
        let Action::SetVlanVid { push_vlan_if_needed, .. } = *a else { return Ok(()) };
        c.needs(push_vlan_if_needed || c.has_vlan())?;
        c.has_tag_now();
        Ok(())
    },
    ..Row::PLAIN
};

fn parse_vid(value: &str, push_vlan_if_needed: bool) -> Result<Action, TextError> {
    match u16_named(value, "VLAN VID")? {
        vid @ 0..=0xfff => Ok(Action::SetVlanVid { vid, push_vlan_if_needed }),
        _ => bad!("{value}: not a valid VLAN VID"),
    }
}

pub(super) static SET_VLAN_PCP: Row = Row {
    name: "mod_vlan_pcp",
    syntax: "mod_vlan_pcp:PRIORITY",
    summary: "Sets the VLAN's priority, and adds a tag if there is none.",
    forms: &[
        of10(
            2,
            |b| Ok(Action::SetVlanPcp { pcp: in_range(b.u8()?, 7)?, push_vlan_if_needed: true }),
            |a, e| with!(a, Action::SetVlanPcp { pcp, .. } => e.out.u8(*pcp)),
        ),
        of11(
            2,
            |b| Ok(Action::SetVlanPcp { pcp: in_range(b.u8()?, 7)?, push_vlan_if_needed: false }),
            |a, e| with!(a, Action::SetVlanPcp { pcp, .. } => e.out.u8(*pcp)),
        )
        .deprecated_after(Version::V11),
    ],
    words: &[
        lenient("mod_vlan_pcp", |_, _, value| parse_pcp(value, true)),
        lenient("set_vlan_pcp", |_, _, value| parse_pcp(value, false)),
    ],
    stand_in: |a, e| {
        with!(a, Action::SetVlanPcp { pcp, .. } => {
            e.action(&set_exactly(Mf::VlanPcp, u128::from(*pcp)));
        })
    },
    print: |a, p| {
        with!(a, Action::SetVlanPcp { pcp, push_vlan_if_needed } => {
            put!(p.out, "{}_vlan_pcp:{pcp}", if *push_vlan_if_needed { "mod" } else { "set" });
        })
    },
    check: |a, c| {
        let Action::SetVlanPcp { push_vlan_if_needed, .. } = *a else { return Ok(()) };
        c.needs(push_vlan_if_needed || c.has_vlan())?;
        c.has_tag_now();
        Ok(())
    },
    ..Row::PLAIN
};

fn parse_pcp(value: &str, push_vlan_if_needed: bool) -> Result<Action, TextError> {
    match u8_named(value, "VLAN PCP")? {
        pcp @ 0..=7 => Ok(Action::SetVlanPcp { pcp, push_vlan_if_needed }),
        _ => bad!("{value}: not a valid VLAN PCP"),
    }
}

/// In OpenFlow 1.0 a tag is pushed by setting its contents.
pub(super) static PUSH_VLAN: Row = Row {
    name: "push_vlan",
    syntax: "push_vlan:ETHERTYPE",
    summary: "Pushes a VLAN tag of type 0x8100 or 0x88a8.",
    forms: &[of11(
        17,
        |b| match b.u16()? {
            tpid @ (0x8100 | 0x88a8) => Ok(Action::PushVlan(tpid)),
            _ => Err(OFPBAC_BAD_ARGUMENT),
        },
        |a, e| with!(a, Action::PushVlan(tpid) => e.out.u16(*tpid)),
    )],
    words: &[lenient("push_vlan", |p, _, value| {
        p.only_in(Protocols::OF11_UP);
        match u16_named(value, "ethertype")? {
            tpid @ (0x8100 | 0x88a8) => Ok(Action::PushVlan(tpid)),
            _ => bad!("{value}: not a valid VLAN ethertype"),
        }
    })],
    print: |a, p| with!(a, Action::PushVlan(tpid) => put!(p.out, "push_vlan:{tpid:#x}")),
    check: |_, c| c.pushes_tag(),
    ..Row::PLAIN
};

pub(super) static POP_VLAN: Row = Row {
    name: "pop_vlan",
    syntax: "pop_vlan, or strip_vlan",
    summary: "Removes the outermost VLAN tag.",
    forms: &[
        of10(3, |_| Ok(Action::PopVlan), |a, e| with!(a, Action::PopVlan => e.out.zeros(4))),
        of11(18, |_| Ok(Action::PopVlan), |a, e| with!(a, Action::PopVlan => e.out.zeros(4))),
    ],
    words: &[
        word("pop_vlan", |_, _, _| Ok(Action::PopVlan)),
        word("strip_vlan", |_, _, _| Ok(Action::PopVlan)),
    ],
    print: |_, p| {
        p.word(if p.version == Version::V10 { "strip_vlan" } else { "pop_vlan" });
        true
    },
    check: |_, c| {
        c.needs(c.has_vlan())?;
        c.pops_tag();
        Ok(())
    },
    ..Row::PLAIN
};
