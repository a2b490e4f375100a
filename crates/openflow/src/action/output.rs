//! Output to ports, and groups.

use super::body::output_port;
use super::parser::Parser;
use super::row::{Place, Row, nicira, of10, of11, with, word};
use super::subfield::{checked, from_ofs_nbits, ofs_nbits, read_field, short_field};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::*;
use crate::text::value::u32_of;
use crate::text::{KeyValues, TextError, bad, parse_subfield, put};
use crate::version::Version;
use base::OfPort;
use flow::Action;

pub(super) static OUTPUT: Row = Row {
    name: "output",
    syntax: "output:PORT, or PORT",
    summary: "Outputs the packet to a port, reserved ports included.",
    forms: &[
        of10(
            0,
            |b| Ok(Action::Output { port: b.output_port()?, max_len: b.u16()? }),
            |a, e| {
                with!(a, Action::Output { port, max_len } => {
                    e.out.u16(port.0);
                    e.out.u16(*max_len);
                })
            },
        ),
        of11(
            0,
            |b| {
                let port = OfPort::from_u32(b.u32()?).ok_or(OFPBAC_BAD_OUT_PORT)?;
                let action = Action::Output { port: output_port(port)?, max_len: b.u16()? };
                b.skip(6)?;
                Ok(action)
            },
            |a, e| {
                with!(a, Action::Output { port, max_len } => {
                    e.out.u32(port.to_u32());
                    e.out.u16(*max_len);
                    e.out.zeros(6);
                })
            },
        )
        .of_length(16),
    ],
    words: &[word("output", |p, _, value| parse_output(p, value))],
    print: |a, p| {
        with!(a, Action::Output { port, max_len } => {
            if *port < OfPort::MAX {
                p.word("output:");
            }
            p.port(*port);
            if *port == OfPort::CONTROLLER {
                put!(p.out, ":{max_len}");
            }
        })
    },
    check: |a, c| match a {
        Action::Output { port, .. } => c.outputs_to(*port),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

fn parse_output(p: &mut Parser, value: &str) -> Result<Action, TextError> {
    if let Some(port) = p.ports.parse(value) {
        return Ok(output_to(port));
    }
    if value.contains('=') {
        return parse_truncated(p, value);
    }
    if let Ok(source) = parse_subfield(value) {
        return Ok(Action::OutputReg { source, max_len: u16::MAX });
    }
    if value.contains('[') {
        return Err(parse_subfield(value).err().unwrap_or(TextError::new(String::new())));
    }
    bad!("{value}: output to unknown port")
}

pub(super) static OUTPUT_REG: Row = Row {
    name: "output",
    syntax: "output:FIELD[A..B]",
    summary: "Outputs the packet to the port whose number the field holds.",
    place: Place::Lists,
    forms: &[
        nicira(
            15,
            |b| {
                let (offset, count) = from_ofs_nbits(b.u16()?);
                let (header, max_len) = (b.u32()?, b.u16()?);
                b.zeros(6, OFPBAC_BAD_ARGUMENT)?;
                let source = checked(short_field(header)?, offset, count, false)?;
                Ok(Action::OutputReg { source, max_len })
            },
            |a, e| {
                with!(a, Action::OutputReg { source, max_len } if !e.is_long(source.field) => {
                    e.out.u16(ofs_nbits(*source));
                    e.field(source.field);
                    e.out.u16(*max_len);
                    e.out.zeros(6);
                })
            },
        )
        .of_length(24),
        nicira(
            32,
            |b| {
                let (offset, count) = from_ofs_nbits(b.u16()?);
                let max_len = b.u16()?;
                let field = read_field(b)?;
                b.zero_rest()?;
                Ok(Action::OutputReg { source: checked(field, offset, count, false)?, max_len })
            },
            |a, e| {
                with!(a, Action::OutputReg { source, max_len } => {
                    e.out.u16(ofs_nbits(*source));
                    e.out.u16(*max_len);
                    e.field(source.field);
                })
            },
        )
        .of_length(24),
    ],
    print: |a, p| {
        with!(a, Action::OutputReg { source, .. } => {
            p.word("output:");
            p.subfield(*source);
        })
    },
    check: |a, c| match a {
        Action::OutputReg { source, .. } => c.reads(source.field),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

/// An Ethernet header must be left.
const TRUNCATED_MIN: u32 = 14;

pub(super) static OUTPUT_TRUNC: Row = Row {
    name: "output",
    syntax: "output(port=PORT,max_len=BYTES)",
    summary: "Outputs the first bytes of the packet to a port.",
    place: Place::Lists,
    forms: &[nicira(
        39,
        |b| {
            let (port, max_len) = (OfPort(b.u16()?), b.u32()?);
            if max_len < TRUNCATED_MIN {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            Ok(Action::OutputTrunc { port, max_len })
        },
        |a, e| {
            with!(a, Action::OutputTrunc { port, max_len } => {
                e.out.u16(port.0);
                e.out.u32(*max_len);
            })
        },
    )],
    print: |a, p| {
        with!(a, Action::OutputTrunc { port, max_len } => {
            p.word("output(port=");
            p.port(*port);
            put!(p.out, ",max_len={max_len})");
        })
    },
    check: |a, c| match a {
        Action::OutputTrunc { port, .. } => c.outputs_to(*port),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

/// Reserved ports that stand for several ports, or for none. Text may not name them; an action on the wire
/// may, and outputs nothing.
fn cannot_truncate(port: OfPort) -> bool {
    matches!(
        port,
        OfPort::CONTROLLER | OfPort::TABLE | OfPort::NORMAL | OfPort::FLOOD | OfPort::ALL | OfPort::NONE
    )
}

fn parse_truncated(p: &Parser, text: &str) -> Result<Action, TextError> {
    let (mut port, mut max_len) = (None, None);
    for (key, value) in KeyValues::new(text) {
        match key {
            "port" => match p.ports.parse(value) {
                Some(known) if cannot_truncate(known) => {
                    return bad!("output to unsupported truncate port: {value}");
                }
                Some(known) => port = Some(known),
                None => return bad!("output to unknown truncate port: {value}"),
            },
            "max_len" => max_len = Some(u32_of(value)?),
            _ => return bad!("invalid key '{key}' in output_trunc argument"),
        }
    }
    match (port, max_len) {
        (_, Some(max_len @ 0..TRUNCATED_MIN)) => {
            bad!("max_len {max_len} is less than the minimum value {TRUNCATED_MIN}")
        }
        (Some(port), Some(max_len)) => Ok(Action::OutputTrunc { port, max_len }),
        _ => bad!("output: both port and max_len are needed"),
    }
}

pub(super) static GROUP: Row = Row {
    name: "group",
    syntax: "group:GROUP",
    summary: "Carries out a group.",
    forms: &[
        nicira(
            40,
            |b| {
                b.skip(2)?;
                Ok(Action::Group(b.u32()?))
            },
            |a, e| {
                with!(a, Action::Group(id) => {
                    e.out.zeros(2);
                    e.out.u32(*id);
                })
            },
        )
        .only(Version::V10, Version::V10),
        of11(22, |b| Ok(Action::Group(b.u32()?)), |a, e| with!(a, Action::Group(id) => e.out.u32(*id))),
    ],
    words: &[word("group", |_, _, value| Ok(Action::Group(u32_of(value)?)))],
    print: |a, p| with!(a, Action::Group(id) => put!(p.out, "group:{id}")),
    ..Row::PLAIN
};

/// The action for a bare port.
pub(super) fn output_to(port: OfPort) -> Action {
    Action::Output { port, max_len: if port == OfPort::CONTROLLER { u16::MAX } else { 0 } }
}
