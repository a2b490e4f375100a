//! Setting, copying and deleting fields of any kind.

use super::body::{Body, Encoder};
use super::parser::Parser;
use super::row::{Form, Place, Row, Space, lenient, nicira, of10, of11, with, word};
use super::subfield::{checked, ones, read_field};
use super::vlan::{in_range, set_exactly};
use crate::codec::bytes::Put;
use crate::codec::matching::{AnyEntry, read_entry, value_to_wire, write_entry, write_option};
use crate::error::ErrorKind::{self, *};
use crate::text::value::{self, u8_named, u16_named, u64_of, write_ethernet, write_hex};
use crate::text::{
    Protocols, TextError, bad, display_name, field_named, field_names, parse_subfield, parse_value, put,
    split_subfield, write_value,
};
use crate::version::Version;
use flow::action::SubField;
use flow::mf::Format;
use flow::options::{OptionMatch, Wide};
use flow::{Action, Mf};
use std::net::Ipv4Addr;

/// The value, if an action sets exactly one of these fields.
fn exact(action: &Action, fields: &[Mf]) -> Option<u128> {
    match *action {
        Action::SetField { field, value, mask } if mask == field.ones() && fields.contains(&field) => {
            Some(value)
        }
        _ => None,
    }
}

macro_rules! exact {
    ($action:expr, $encoder:expr, $fields:expr, $value:ident => $put:expr) => {
        match exact($action, &$fields) {
            Some($value) => {
                $put;
                true
            }
            None => false,
        }
    };
}

/// OpenFlow 1.0 and 1.1 have an action for each of some fields; 1.1's have numbers of their own.
pub(super) static SET_FIELD: Row = Row {
    name: "set_field",
    syntax: "set_field:VALUE/MASK->FIELD; mod_dl_src, mod_dl_dst, mod_nw_src, mod_nw_dst, mod_nw_tos, mod_nw_ecn",
    summary: "Sets bits of a field.",
    forms: &[
        of10(
            4,
            |b| read_number(b, Mf::EthSrc, 6),
            |a, e| exact!(a, e, [Mf::EthSrc], v => put_ethernet(e, v)),
        )
        .of_length(16),
        of10(
            5,
            |b| read_number(b, Mf::EthDst, 6),
            |a, e| exact!(a, e, [Mf::EthDst], v => put_ethernet(e, v)),
        )
        .of_length(16),
        of10(6, |b| read_number(b, Mf::NwSrc, 4), |a, e| exact!(a, e, [Mf::NwSrc], v => e.out.u32(v as u32))),
        of10(7, |b| read_number(b, Mf::NwDst, 4), |a, e| exact!(a, e, [Mf::NwDst], v => e.out.u32(v as u32))),
        of10(8, read_tos, write_tos),
        of11(
            3,
            |b| read_number(b, Mf::EthSrc, 6),
            |a, e| exact!(a, e, [Mf::EthSrc], v => put_ethernet(e, v)),
        )
        .of_length(16)
        .deprecated_after(Version::V11),
        of11(
            4,
            |b| read_number(b, Mf::EthDst, 6),
            |a, e| exact!(a, e, [Mf::EthDst], v => put_ethernet(e, v)),
        )
        .of_length(16)
        .deprecated_after(Version::V11),
        of11(5, |b| read_number(b, Mf::NwSrc, 4), |a, e| exact!(a, e, [Mf::NwSrc], v => e.out.u32(v as u32)))
            .deprecated_after(Version::V11),
        of11(6, |b| read_number(b, Mf::NwDst, 4), |a, e| exact!(a, e, [Mf::NwDst], v => e.out.u32(v as u32)))
            .deprecated_after(Version::V11),
        of11(7, read_tos, write_tos).deprecated_after(Version::V11),
        of11(
            8,
            |b| Ok(set_exactly(Mf::NwEcn, in_range(b.u8()?, 3)?.into())),
            |a, e| exact!(a, e, [Mf::NwEcn], v => e.out.u8(v as u8)),
        )
        .deprecated_after(Version::V11),
        of11(25, |b| read_set_field(b, false), |a, e| write_set_field(a, e, false))
            .of_length_from(8)
            .only(Version::V12, Version::V14),
        of11(25, |b| read_set_field(b, true), |a, e| write_set_field(a, e, true))
            .of_length_from(8)
            .only(Version::V15, Version::V15),
        nicira(
            33,
            |b| read_set_field(b, true),
            |a, e| match *a {
                Action::SetField { field, .. } => e.is_long(field) && write_set_field(a, e, false),
                _ => false,
            },
        )
        .of_length_from(16)
        .only(Version::V10, Version::V11)
        .never_read(),
    ],
    words: &[
        word("set_field", |p, _, value| parse_set_field(p, value)),
        lenient("mod_dl_src", |_, _, value| parse_ethernet(Mf::EthSrc, value)),
        lenient("set_dl_src", |_, _, value| parse_ethernet(Mf::EthSrc, value)),
        lenient("mod_dl_dst", |_, _, value| parse_ethernet(Mf::EthDst, value)),
        lenient("set_dl_dst", |_, _, value| parse_ethernet(Mf::EthDst, value)),
        lenient("mod_nw_src", |_, _, value| parse_ipv4(Mf::NwSrc, value)),
        lenient("set_nw_src", |_, _, value| parse_ipv4(Mf::NwSrc, value)),
        lenient("mod_nw_dst", |_, _, value| parse_ipv4(Mf::NwDst, value)),
        lenient("set_nw_dst", |_, _, value| parse_ipv4(Mf::NwDst, value)),
        lenient("mod_nw_tos", |_, _, value| parse_tos(value)),
        lenient("set_nw_tos", |_, _, value| parse_tos(value)),
        lenient("mod_nw_ecn", |_, _, value| parse_ecn(value)),
        lenient("set_nw_ecn", |_, _, value| parse_ecn(value)),
    ],
    stand_in: |a, e| {
        let Action::SetField { field, value, mask } = *a else { return false };
        if mask == field.ones() && e.version <= Version::V11 {
            let as_other = match field {
                Mf::IpDscp => Some(set_exactly(Mf::NwTos, value << 2)),
                Mf::TcpSrc | Mf::UdpSrc => Some(Action::SetTpSrc(value as u16)),
                Mf::TcpDst | Mf::UdpDst => Some(Action::SetTpDst(value as u16)),
                Mf::SctpSrc if e.version == Version::V11 => Some(Action::SetTpSrc(value as u16)),
                Mf::SctpDst if e.version == Version::V11 => Some(Action::SetTpDst(value as u16)),
                Mf::MplsLabel if e.version == Version::V11 => Some(Action::SetMplsLabel(value as u32)),
                Mf::MplsTc if e.version == Version::V11 => Some(Action::SetMplsTc(value as u8)),
                Mf::VlanVid => {
                    Some(Action::SetVlanVid { vid: value as u16 & 0xfff, push_vlan_if_needed: false })
                }
                Mf::VlanPcp => Some(Action::SetVlanPcp { pcp: value as u8, push_vlan_if_needed: false }),
                _ => None,
            };
            if let Some(other) = as_other {
                e.action(&other);
                return true;
            }
        }
        e.set_as_loads(field, value, mask);
        true
    },
    print: |a, p| {
        let Action::SetField { field, value, mask } = *a else { return false };
        let out = &mut *p.out;
        if p.version <= Version::V11 && mask == field.ones() {
            match field {
                Mf::EthSrc | Mf::EthDst => {
                    out.push_str(if field == Mf::EthSrc { "mod_dl_src:" } else { "mod_dl_dst:" });
                    write_ethernet(out, value as u64);
                    return true;
                }
                Mf::NwSrc | Mf::NwDst => {
                    let name = if field == Mf::NwSrc { "mod_nw_src" } else { "mod_nw_dst" };
                    put!(out, "{name}:{}", Ipv4Addr::from_bits(value as u32));
                    return true;
                }
                Mf::NwTos | Mf::IpDscp => {
                    put!(out, "mod_nw_tos:{}", if field == Mf::NwTos { value } else { value << 2 });
                    return true;
                }
                Mf::NwEcn if p.version == Version::V11 => {
                    put!(out, "mod_nw_ecn:{value}");
                    return true;
                }
                _ => {}
            }
        }
        out.push_str("set_field:");
        write_value(out, field, value, mask, p.ports);
        put!(out, "->{}", display_name(if field == Mf::InPortOxm { Mf::InPort } else { field }));
        true
    },
    check: |a, c| {
        let Action::SetField { field, value, .. } = *a else { return Ok(()) };
        c.sets(field)?;
        if field == Mf::VlanTci {
            c.set_tci(value);
        }
        Ok(())
    },
    ..Row::PLAIN
};

fn read_number(b: &mut Body, field: Mf, bytes: usize) -> Result<Action, ErrorKind> {
    Ok(set_exactly(field, b.number(bytes)?))
}

fn put_ethernet(e: &mut Encoder, address: u128) {
    e.out.number(address, 6);
}

fn read_tos(b: &mut Body) -> Result<Action, ErrorKind> {
    match b.u8()? {
        tos if tos & 3 != 0 => Err(OFPBAC_BAD_ARGUMENT),
        tos => Ok(set_exactly(Mf::NwTos, tos.into())),
    }
}

fn write_tos(a: &Action, e: &mut Encoder) -> bool {
    exact!(a, e, [Mf::NwTos], tos => e.out.u8(tos as u8))
}

/// An OXM entry and its padding: OFPAT_SET_FIELD and NXAST_REG_LOAD2.
pub(super) fn read_set_field(b: &mut Body, may_mask: bool) -> Result<Action, ErrorKind> {
    let as_set_error = |error| match error {
        OFPBMC_BAD_MASK => OFPBAC_BAD_SET_MASK,
        OFPBMC_BAD_VALUE => OFPBAC_BAD_SET_ARGUMENT,
        other => other,
    };
    let entry = match read_entry(b, may_mask).map_err(as_set_error)? {
        AnyEntry::Field(entry) => entry,
        AnyEntry::Option(option) => {
            let len = b.len();
            b.zeros(len, OFPBAC_BAD_SET_ARGUMENT)?;
            let (value, mask) = (Box::new(option.value), Box::new(option.mask));
            return Ok(Action::SetOption { idx: option.idx, value, mask });
        }
    };
    let no_tag = entry.mf == Mf::VlanVid && (entry.value & 0x1000 == 0 || entry.mask & 0x1000 == 0);
    if !entry.mf.row().writable || entry.mf == Mf::InPortOxm || no_tag {
        return Err(OFPBAC_BAD_SET_ARGUMENT);
    }
    let len = b.len();
    b.zeros(len, OFPBAC_BAD_SET_ARGUMENT)?;
    // It remains a load, and is written as one.
    if entry.masked && entry.mask == entry.mf.ones() && is_narrow(entry.mf) {
        let target = SubField { field: entry.mf, offset: 0, count: entry.mf.row().subfield_bits };
        return Ok(Action::Load { target, value: entry.value as u64, as_set_field: true });
    }
    Ok(Action::SetField { field: entry.mf, value: entry.value, mask: entry.mask })
}

/// Whether a mask of all the field's bits differs from all the bits of its bytes, so that it is not a
/// set-field without a mask. (Named flags are shown without a mask either way.)
pub(super) fn is_narrow(field: Mf) -> bool {
    let row = field.row();
    let has_unused = row.subfield_bits == u16::from(row.bits) && row.bits < 8 * row.bytes;
    has_unused && row.format != Format::TunFlags
}

fn write_set_field(a: &Action, e: &mut Encoder, may_mask: bool) -> bool {
    let Action::SetField { field, value, mask } = *a else { return write_set_option(a, e, may_mask) };
    if mask != field.ones() && !may_mask {
        return false;
    }
    // Fields that only NXM has (nw_tos) have an equivalent in OXM.
    let (field, value, mask) = match field {
        Mf::NwTos => (Mf::IpDscp, value >> 2, Mf::IpDscp.ones()),
        field => (field, value, mask),
    };
    write_entry(e.out, field, e.version.minor(), value, mask);
    true
}

fn write_set_option(a: &Action, e: &mut Encoder, may_mask: bool) -> bool {
    with!(a, Action::SetOption { idx, value, mask } if may_mask || **mask == Wide::ONES => {
        let option = OptionMatch { idx: *idx, value: **value, mask: **mask, bytes: None };
        write_option(e.out, e.version.minor(), &option);
    })
}

impl Encoder<'_> {
    /// Writes a set-field as loads of its runs of mask bits, from the lowest, at most 64 bits each; for an
    /// experimenter's field, for which NXAST_REG_LOAD has no room, as NXAST_REG_LOAD2.
    pub(super) fn set_as_loads(&mut self, field: Mf, value: u128, mask: u128) {
        // A load has the number on the wire.
        let value = if mask == field.ones() { value_to_wire(field, value) } else { value };
        // The bit for a tag's presence cannot be set, and is.
        let mut left = mask & ones(field.row().subfield_bits);
        while left != 0 {
            let offset = left.trailing_zeros() as u16;
            let count = ((left >> offset).trailing_ones() as u16).min(64);
            left &= !(ones(count) << offset);
            // Some have more bits on the wire than can be set (`arp_op`).
            let is_whole = (offset, count) == (0, field.row().bits.into());
            let count = if is_whole { field.row().subfield_bits.min(64) } else { count };
            let value = (value >> offset & ones(count)) as u64;
            let target = SubField { field, offset, count };
            self.action(&Action::Load { target, value, as_set_field: false });
        }
    }
}

fn parse_set_field(p: &mut Parser, text: &str) -> Result<Action, TextError> {
    let Some((value, name)) = text.split_once("->") else { return bad!("{text}: missing `->'") };
    if name.trim().is_empty() {
        return bad!("{text}: missing field name following `->'");
    }
    let name = name.trim();
    let unknown = || TextError::unknown(format!("{name} is not a valid OXM field name"), name, field_names());
    let field = field_named(name).ok_or_else(unknown)?;
    if !field.row().writable {
        return bad!("{} is read-only", display_name(field));
    }
    let text = value.trim();
    if let Mf::TunMetadata(idx) = field {
        let (value, mask) = value::wide_masked(text, &display_name(field))?;
        p.only_in(Protocols::NXM_OXM);
        return Ok(Action::SetOption { idx, value: Box::new(value.and(&mask)), mask: Box::new(mask) });
    }
    let (value, mask) = parse_value(field, text, p.ports)?;
    if !field.is_valid(value) {
        return bad!("{text} is not a valid value for field {}", display_name(field));
    }
    p.only_in(Protocols::of_field(field, value, mask));
    Ok(Action::SetField { field, value: value & mask, mask })
}

fn parse_ethernet(field: Mf, text: &str) -> Result<Action, TextError> {
    match value::parse_ethernet(text) {
        Some(address) => Ok(set_exactly(field, address.into())),
        None => bad!("invalid mac address {text}"),
    }
}

fn parse_ipv4(field: Mf, text: &str) -> Result<Action, TextError> {
    match text.parse::<Ipv4Addr>() {
        Ok(address) => Ok(set_exactly(field, address.to_bits().into())),
        Err(_) => bad!("{text}: could not convert to IP address"),
    }
}

fn parse_tos(text: &str) -> Result<Action, TextError> {
    match u8_named(text, "TOS")? {
        tos if tos & 3 == 0 => Ok(set_exactly(Mf::NwTos, tos.into())),
        _ => bad!("{text}: not a valid TOS"),
    }
}

fn parse_ecn(text: &str) -> Result<Action, TextError> {
    match u8_named(text, "ECN")? {
        ecn @ 0..=3 => Ok(set_exactly(Mf::NwEcn, ecn.into())),
        _ => bad!("{text}: not a valid ECN"),
    }
}

pub(super) static SET_OPTION: Row = Row {
    name: "set_field",
    syntax: "set_field:VALUE/MASK->tun_metadataN",
    summary: "Sets bits of a tunnel option.",
    forms: &[
        Form::new(
            Space::Standard,
            25,
            (Version::V12, Version::V15),
            |b| read_set_field(b, true),
            |a, e| write_set_option(a, e, e.version >= Version::V15),
        )
        .never_read(),
        Form::new(
            Space::Nicira,
            33,
            (Version::V10, Version::V14),
            |b| read_set_field(b, true),
            |a, e| write_set_option(a, e, true),
        )
        .never_read(),
    ],
    print: |a, p| {
        with!(a, Action::SetOption { idx, value, mask } => {
            put!(p.out, "set_field:{value}");
            if **mask != Wide::ONES {
                put!(p.out, "/{mask}");
            }
            put!(p.out, "->tun_metadata{idx}");
        })
    },
    ..Row::PLAIN
};

pub(super) static MOVE: Row = Row {
    name: "move",
    syntax: "move:FIELD[A..B]->FIELD[C..D]",
    summary: "Copies bits of a field to another.",
    forms: &[
        of11(28, read_copy_field, write_copy_field).of_length_from(16).only(Version::V15, Version::V15),
        nicira(
            6,
            |b| {
                let (count, source, target) = (b.u16()?, b.u16()?, b.u16()?);
                read_moved(b, source, target, count)
            },
            |a, e| {
                with!(a, Action::Move { source, target } => {
                    [source.count, source.offset, target.offset].into_iter().for_each(|n| e.out.u16(n));
                    e.field(source.field);
                    e.field(target.field);
                })
            },
        )
        .of_length_from(16)
        .only(Version::V10, Version::V14),
        // The same behind padding.
        Form::new(
            Space::Onf,
            3200,
            (Version::V13, Version::V14),
            |b| {
                b.skip(2)?;
                read_copy_field(b)
            },
            |a, e| {
                e.out.zeros(2);
                write_copy_field(a, e)
            },
        )
        .of_length_from(24),
    ],
    words: &[word("move", |_, _, value| parse_move(value))],
    print: |a, p| {
        with!(a, Action::Move { source, target } => {
            p.word("move:");
            p.subfield(*source);
            p.word("->");
            p.subfield(*target);
        })
    },
    check: |a, c| match a {
        Action::Move { source, target } => {
            c.reads(source.field)?;
            c.moves_to(target.field)
        }
        _ => Ok(()),
    },
    ..Row::PLAIN
};

/// OFPAT_COPY_FIELD: bits, offsets, two OXM headers.
fn read_copy_field(b: &mut Body) -> Result<Action, ErrorKind> {
    let (count, source, target) = (b.u16()?, b.u16()?, b.u16()?);
    b.skip(2)?;
    read_moved(b, source, target, count)
}

/// The headers of both fields, by which all forms of a move end.
fn read_moved(b: &mut Body, source: u16, target: u16, count: u16) -> Result<Action, ErrorKind> {
    let (from, to) = (read_field(b)?, read_field(b)?);
    b.zero_rest()?;
    Ok(Action::Move {
        source: checked(from, source, count, false)?,
        target: checked(to, target, count, true)?,
    })
}

fn write_copy_field(a: &Action, e: &mut Encoder) -> bool {
    with!(a, Action::Move { source, target } => {
        [source.count, source.offset, target.offset, 0].into_iter().for_each(|n| e.out.u16(n));
        e.oxm_field(source.field);
        e.oxm_field(target.field);
    })
}

fn parse_move(text: &str) -> Result<Action, TextError> {
    let (source, rest) = split_subfield(text)?;
    let Some(rest) = rest.strip_prefix("->") else { return bad!("{text}: missing `->' following source") };
    let target = match split_subfield(rest)? {
        (target, "") => target,
        _ => return bad!("{text}: trailing garbage following destination"),
    };
    if source.count != target.count {
        return bad!(
            "{text}: source field is {} bits wide but destination is {} bits wide",
            source.count,
            target.count
        );
    }
    Ok(Action::Move { source, target })
}

pub(super) static SET_TUNNEL: Row = Row {
    name: "set_tunnel",
    syntax: "set_tunnel:ID, or set_tunnel64:ID",
    summary: "Sets the key of the tunnel that the packet leaves by.",
    forms: &[
        nicira(
            2,
            |b| {
                b.skip(2)?;
                Ok(Action::SetTunnel { id: b.u32()?.into(), wide: false })
            },
            |a, e| {
                with!(a, Action::SetTunnel { id, wide: false } => {
                    e.out.zeros(2);
                    e.out.u32(*id as u32);
                })
            },
        )
        .deprecated_after(Version::V11),
        nicira(
            9,
            |b| {
                b.skip(6)?;
                Ok(Action::SetTunnel { id: b.u64()?, wide: true })
            },
            |a, e| {
                with!(a, Action::SetTunnel { id, .. } => {
                    e.out.zeros(6);
                    e.out.u64(*id);
                })
            },
        )
        .of_length(24)
        .deprecated_after(Version::V11),
    ],
    words: &[
        word("set_tunnel", |_, _, value| {
            let id = u64_of(value)?;
            Ok(Action::SetTunnel { id, wide: id > u32::MAX.into() })
        }),
        word("set_tunnel64", |_, _, value| Ok(Action::SetTunnel { id: u64_of(value)?, wide: true })),
    ],
    stand_in: |a, e| with!(a, Action::SetTunnel { id, .. } => e.action(&set_exactly(Mf::TunId, u128::from(*id)))),
    print: |a, p| {
        with!(a, Action::SetTunnel { id, wide } => {
            let wide = *wide || *id > u32::MAX.into();
            p.word(if wide { "set_tunnel64:" } else { "set_tunnel:" });
            write_hex(p.out, (*id).into());
        })
    },
    ..Row::PLAIN
};

pub(super) static DELETE_FIELD: Row = Row {
    name: "delete_field",
    syntax: "delete_field:FIELD",
    summary: "Removes a tunnel option.",
    place: Place::Lists,
    forms: &[nicira(
        50,
        |b| {
            let field = read_field(b)?;
            b.skip_rest()?;
            match field {
                Mf::TunMetadata(_) => Ok(Action::DeleteField(field)),
                _ => Err(OFPBAC_BAD_ARGUMENT),
            }
        },
        // Open vSwitch wants it padded to 24 bytes.
        |a, e| {
            with!(a, Action::DeleteField(field) => {
                e.field(*field);
                e.out.zeros(10);
            })
        },
    )
    .of_length(24)],
    words: &[word("delete_field", |_, _, value| match Mf::from_name(value) {
        Some(field) => Ok(Action::DeleteField(field)),
        None => Err(TextError::unknown(format!("unknown field `{value}'"), value, field_names())),
    })],
    print: |a, p| with!(a, Action::DeleteField(field) => put!(p.out, "delete_field:{}", field.name())),
    // Only what may be there or not can be deleted.
    check: |a, _| match a {
        Action::DeleteField(Mf::TunMetadata(_)) => Ok(()),
        _ => Err(OFPBAC_BAD_ARGUMENT),
    },
    ..Row::PLAIN
};

pub(super) static CHECK_PKT_LARGER: Row = Row {
    name: "check_pkt_larger",
    syntax: "check_pkt_larger(BYTES)->FIELD[BIT]",
    summary: "Sets a bit to whether the packet is longer.",
    place: Place::Lists,
    forms: &[nicira(
        49,
        |b| {
            let (length, offset) = (b.u16()?, b.u16()?);
            let field = read_field(b)?;
            b.zero_rest()?;
            Ok(Action::CheckPktLarger { length, target: checked(field, offset, 1, true)? })
        },
        |a, e| {
            with!(a, Action::CheckPktLarger { length, target } => {
                e.out.u16(*length);
                e.out.u16(target.offset);
                e.field(target.field);
            })
        },
    )
    .of_length_from(24)],
    words: &[word("check_pkt_larger", |_, _, value| {
        let Some((length, target)) = value.split_once(")->").or_else(|| value.split_once("->")) else {
            return bad!("{value}: missing `->'");
        };
        let length = u16_named(length, "length")?;
        let target = parse_subfield(target)?;
        if target.count != 1 {
            return bad!("Only 1-bit destination field is allowed");
        }
        Ok(Action::CheckPktLarger { length, target })
    })],
    print: |a, p| {
        with!(a, Action::CheckPktLarger { length, target } => {
            put!(p.out, "check_pkt_larger({length})->");
            p.subfield(*target);
        })
    },
    check: |a, c| match a {
        Action::CheckPktLarger { target, .. } => c.writes(target.field),
        _ => Ok(()),
    },
    ..Row::PLAIN
};
