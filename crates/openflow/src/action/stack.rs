//! The stack of field values.

use super::body::{Body, Encoder};
use super::row::{Place, Row, nicira, with, word};
use super::subfield::{checked, read_field};
use crate::codec::bytes::Put;
use crate::error::ErrorKind;
use crate::text::{TextError, bad, split_subfield};
use flow::Action;
use flow::action::SubField;

fn read(b: &mut Body, write: bool) -> Result<SubField, ErrorKind> {
    let offset = b.u16()?;
    let field = read_field(b)?;
    let count = b.u16()?;
    b.zero_rest()?;
    checked(field, offset, count, write)
}

fn write(e: &mut Encoder, sub: SubField) {
    e.out.u16(sub.offset);
    e.field(sub.field);
    e.out.u16(sub.count);
}

/// Parses a text that consists of one slice of a field.
fn parse(text: &str) -> Result<SubField, TextError> {
    match split_subfield(text)? {
        (sub, "") => Ok(sub),
        (_, rest) => bad!("{rest}: trailing garbage following push or pop"),
    }
}

pub(super) static PUSH: Row = Row {
    name: "push",
    syntax: "push:FIELD[A..B]",
    summary: "Pushes the bits of a field onto the stack.",
    place: Place::Lists,
    forms: &[nicira(
        27,
        |b| Ok(Action::StackPush(read(b, false)?)),
        |a, e| with!(a, Action::StackPush(sub) => write(e, *sub)),
    )
    .of_length(24)],
    words: &[word("push", |_, _, value| Ok(Action::StackPush(parse(value)?)))],
    print: |a, p| {
        with!(a, Action::StackPush(sub) => {
            p.word("push:");
            p.subfield(*sub);
        })
    },
    check: |a, c| match a {
        Action::StackPush(source) => c.reads(source.field),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static POP: Row = Row {
    name: "pop",
    syntax: "pop:FIELD[A..B]",
    summary: "Pops the bits of a field off the stack.",
    place: Place::Lists,
    forms: &[nicira(
        28,
        |b| Ok(Action::StackPop(read(b, true)?)),
        |a, e| with!(a, Action::StackPop(sub) => write(e, *sub)),
    )
    .of_length(24)],
    words: &[word("pop", |_, _, value| Ok(Action::StackPop(parse(value)?)))],
    print: |a, p| {
        with!(a, Action::StackPop(sub) => {
            p.word("pop:");
            p.subfield(*sub);
        })
    },
    check: |a, c| match a {
        Action::StackPop(target) => c.writes(target.field),
        _ => Ok(()),
    },
    ..Row::PLAIN
};
