//! Setting bits of a field to a number. OpenFlow 1.5 has a masked set-field for that.

use super::body::Encoder;
use super::field::{is_narrow, read_set_field};
use super::row::{Row, nicira, of11, with, word};
use super::subfield::{checked, from_ofs_nbits, ofs_nbits, ones, short_field};
use crate::codec::bytes::Put;
use crate::codec::matching::{write_entry, write_masked};
use crate::error::ErrorKind::*;
use crate::text::value::{self, write_hex};
use crate::text::{PortNames, TextError, bad, display_name, parse_subfield, put, write_value};
use crate::version::Version;
use flow::action::SubField;
use flow::options::Wide;
use flow::{Action, Mf};

pub(super) static LOAD: Row = Row {
    name: "load",
    syntax: "load:VALUE->FIELD[A..B]",
    summary: "Sets bits of a field to a number.",
    forms: &[
        nicira(
            7,
            |b| {
                let (offset, count) = from_ofs_nbits(b.u16()?);
                let target = checked(short_field(b.u32()?)?, offset, count, true)?;
                let value = b.u64()?;
                if target.count < 64 && value >> target.count != 0 {
                    return Err(OFPBAC_BAD_ARGUMENT);
                }
                Ok(load(target, value))
            },
            |a, e| {
                with!(a, Action::Load { target, value, .. } if !e.is_long(target.field) && target.count <= 64 => {
                    e.out.u16(ofs_nbits(*target));
                    e.field(target.field);
                    e.out.u64(*value);
                })
            },
        ).of_length(24)
        .only(Version::V10, Version::V14),
        nicira(33, |b| read_set_field(b, true), write_long_load).of_length_from(16).only(Version::V10, Version::V14),
        of11(25, |b| read_set_field(b, true), write_load_as_set).of_length_from(8)
            .only(Version::V15, Version::V15)
            .never_read(),
    ],
    // For more than 64 bits.
    stand_in: |a, e| {
        with!(a, Action::Load { target, value, .. } => {
            let mask = ones(target.count) << target.offset;
            e.set_as_loads(target.field, u128::from(*value) << target.offset, mask);
        })
    },
    words: &[word("load", |_, _, value| parse_load(value))],
    print: |a, p| {
        with!(a, Action::Load { target, value, as_set_field } => {
            let shown = u128::from(*value);
            if *as_set_field {
                p.word("set_field:");
                write_value(p.out, target.field, shown, target.field.ones(), p.ports);
                // A mask of all bits, too.
                put!(p.out, "/{:#x}->{}", target.field.ones(), display_name(target.field));
            } else {
                p.word("load:");
                write_hex(p.out, shown);
                p.word("->");
                p.subfield(*target);
            }
        })
    },
    check: |a, c| {
        let Action::Load { target, value, .. } = *a else { return Ok(()) };
        c.sets(target.field)?;
        if target.field == Mf::VlanTci {
            c.set_tci(u128::from(value) << target.offset);
        }
        Ok(())
    },
    ..Row::PLAIN
};

/// A load, which into a tunnel option is a masked set-field.
fn load(target: SubField, value: u64) -> Action {
    match target.field {
        Mf::TunMetadata(idx) => Action::SetOption {
            idx,
            value: Box::new(Wide::from(u128::from(value)).shl(target.offset)),
            mask: Box::new(Wide::low(target.count).shl(target.offset)),
        },
        _ => Action::Load { target, value, as_set_field: false },
    }
}

/// A load into a field whose header has no room in NXAST_REG_LOAD.
fn write_long_load(a: &Action, e: &mut Encoder) -> bool {
    matches!(a, Action::Load { target, .. } if e.is_long(target.field)) && write_load_as_set(a, e)
}

fn write_load_as_set(a: &Action, e: &mut Encoder) -> bool {
    with!(a, Action::Load { target, value, .. } => {
        let (value, mask) = (u128::from(*value) << target.offset, ones(target.count) << target.offset);
        let minor = e.version.minor();
        if mask == target.field.ones() && is_narrow(target.field) {
            write_masked(e.out, target.field, minor, value, mask);
        } else {
            write_entry(e.out, target.field, minor, value, mask);
        }
    })
}

fn parse_load(text: &str) -> Result<Action, TextError> {
    let Some((value_text, target)) = text.split_once("->") else { return bad!("{text}: missing `->'") };
    let target = parse_subfield(target)?;
    if let Mf::TunMetadata(idx) = target.field {
        let value = match value::wide(value_text.trim()) {
            None => return bad!("{text}: cannot parse integer value"),
            Some(Some(value)) if value.is_within(&Wide::low(target.count)) => value,
            Some(Some(value)) => {
                return bad!("{text}: value {value} does not fit into {} bits", target.count);
            }
            Some(None) => return bad!("{text}: cannot parse integer value"),
        };
        let mask = Wide::low(target.count).shl(target.offset);
        return Ok(Action::SetOption {
            idx,
            value: Box::new(value.shl(target.offset)),
            mask: Box::new(mask),
        });
    }
    let bits = u32::from(target.field.row().bytes) * 8;
    let value = match value::number(value_text.trim(), u128::MAX) {
        Some(value) if bits >= 128 || value >> bits == 0 => value,
        _ => return bad!("{text}: cannot parse integer value"),
    };
    match u64::try_from(value) {
        Ok(value) if target.count >= 64 || value >> target.count == 0 => Ok(load(target, value)),
        // One such action carries 64 bits; a wider field is set by the other one.
        Err(_) if target.count > 64 && (target.count >= 128 || value >> target.count == 0) => {
            let mask = ones(target.count) << target.offset;
            Ok(Action::SetField { field: target.field, value: value << target.offset, mask })
        }
        _ => {
            let mut shown = String::new();
            write_value(&mut shown, target.field, value, target.field.ones(), PortNames::none());
            bad!("{text}: value {shown} does not fit into {} bits", target.count.min(64))
        }
    }
}
