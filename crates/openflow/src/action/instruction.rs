//! The instructions of OpenFlow 1.1 and later.

use super::row::{Place, Row, instruction, nicira, of11, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::*;
use crate::text::value::{u32_of, u64_masked, write_hex};
use crate::text::{Protocols, bad, put};
use crate::version::Version;
use flow::Action;
use std::ops::RangeInclusive;

/// The meters that a switch may have: others are no meter, or one that packets meet without an instruction.
const METERS: RangeInclusive<u32> = 1..=0xffff_0000;

pub(super) static METER: Row = Row {
    name: "meter",
    syntax: "meter:METER",
    summary: "Sends the packet through a meter, which may drop it.",
    place: Place::Instruction(0),
    // As in Open vSwitch, the instruction is read in OpenFlow 1.1 and 1.2 too.
    forms: &[
        instruction(6, |b| Ok(Action::Meter(b.u32()?)), |a, e| with!(a, Action::Meter(id) => e.out.u32(*id)))
            .only(Version::V13, Version::V14)
            .since(Version::V11),
        of11(29, |b| Ok(Action::Meter(b.u32()?)), |a, e| with!(a, Action::Meter(id) => e.out.u32(*id)))
            .only(Version::V15, Version::V15),
    ],
    words: &[word("meter", |p, _, value| {
        p.only_in(Protocols::OF13_UP);
        Ok(Action::Meter(u32_of(value)?))
    })],
    print: |a, p| with!(a, Action::Meter(id) => put!(p.out, "meter:{id}")),
    check: |a, _| match a {
        Action::Meter(id) if !METERS.contains(id) => Err(OFPMMFC_INVALID_METER),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static CLEAR_ACTIONS: Row = Row {
    name: "clear_actions",
    syntax: "clear_actions",
    summary: "Empties the action set.",
    place: Place::Instruction(2),
    forms: &[instruction(
        5,
        |b| {
            b.skip(4)?;
            Ok(Action::ClearActions)
        },
        |a, e| with!(a, Action::ClearActions => e.out.zeros(4)),
    )],
    words: &[word("clear_actions", |_, _, _| Ok(Action::ClearActions))],
    ..Row::PLAIN
};

pub(super) static WRITE_ACTIONS: Row = Row {
    name: "write_actions",
    syntax: "write_actions(ACTION,...)",
    summary: "Adds actions to the action set, which is carried out when the pipeline ends.",
    place: Place::Instruction(3),
    forms: &[instruction(
        3,
        |b| {
            b.skip(4)?;
            let set = b.actions()?;
            if set.iter().any(|action| Row::of(action).place != Place::Anywhere) {
                return Err(OFPBAC_BAD_TYPE);
            }
            Ok(Action::WriteActions(set))
        },
        |a, e| {
            with!(a, Action::WriteActions(set) if !set.is_empty() => {
                e.out.zeros(4);
                set.iter().for_each(|action| e.action(action));
            })
        },
    )
    .of_length_from(8)],
    words: &[word("write_actions", |p, _, value| Ok(Action::WriteActions(p.nested(value, true)?)))],
    print: |a, p| with!(a, Action::WriteActions(set) => p.nested("write_actions", set)),
    check: |a, c| match a {
        Action::WriteActions(set) => c.nested(set, true),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static WRITE_METADATA: Row = Row {
    name: "write_metadata",
    syntax: "write_metadata:VALUE/MASK",
    summary: "Sets bits of the metadata field.",
    place: Place::Instruction(4),
    forms: &[
        instruction(
            2,
            |b| {
                b.skip(4)?;
                Ok(Action::WriteMetadata { value: b.u64()?, mask: b.u64()? })
            },
            |a, e| {
                with!(a, Action::WriteMetadata { value, mask } => {
                    e.out.zeros(4);
                    e.out.u64(*value);
                    e.out.u64(*mask);
                })
            },
        )
        .of_length(24),
        nicira(
            22,
            |b| {
                b.zeros(6, NXBRC_MUST_BE_ZERO)?;
                Ok(Action::WriteMetadata { value: b.u64()?, mask: b.u64()? })
            },
            |a, e| {
                with!(a, Action::WriteMetadata { value, mask } => {
                    e.out.zeros(6);
                    e.out.u64(*value);
                    e.out.u64(*mask);
                })
            },
        )
        .of_length(32),
    ],
    words: &[word("write_metadata", |p, _, value| {
        p.only_in(Protocols::NXM_OF11_UP);
        let (value, mask) = u64_masked(value)?;
        Ok(Action::WriteMetadata { value, mask })
    })],
    print: |a, p| {
        with!(a, Action::WriteMetadata { value, mask } => {
            p.word("write_metadata:");
            write_hex(p.out, (*value).into());
            if *mask != u64::MAX {
                p.word("/");
                write_hex(p.out, (*mask).into());
            }
        })
    },
    ..Row::PLAIN
};

/// OpenFlow 1.0 says it as a resubmit.
pub(super) static GOTO_TABLE: Row = Row {
    name: "goto_table",
    syntax: "goto_table:TABLE",
    summary: "Goes on in a later table.",
    place: Place::Instruction(5),
    forms: &[instruction(
        1,
        |b| Ok(Action::GotoTable(b.u8()?)),
        |a, e| with!(a, Action::GotoTable(table) => e.out.u8(*table)),
    )],
    words: &[word("goto_table", |p, _, value| match p.ports.parse_table(value) {
        Some(table) => Ok(Action::GotoTable(table)),
        None => bad!("unknown table \"{value}\""),
    })],
    stand_in: |a, e| {
        with!(a, Action::GotoTable(table) => {
            e.action(&Action::Resubmit { in_port: None, table: Some(*table), ct: false });
        })
    },
    print: |a, p| {
        with!(a, Action::GotoTable(table) => {
            p.word("goto_table:");
            p.table(*table);
        })
    },
    check: |a, c| match a {
        Action::GotoTable(next) => c.goes_to(*next),
        _ => Ok(()),
    },
};
