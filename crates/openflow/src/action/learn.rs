//! `learn`: rules derived from packets.

use super::body::{Body, Encoder};
use super::checker::Checker;
use super::choice::short_target;
use super::parser::{Parser, Printer};
use super::row::{Place, Row, nicira, with, word};
use super::subfield::{checked, read_field, short_field};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::message::TABLE_ALL;
use crate::text::value::{self, number, u16_named, u32_of, u64_of};
use crate::text::{
    KeyValues, TextError, bad, display_name, parse_subfield, parse_value, put, split_subfield, write_value,
};
use flow::action::{Learn, LearnSource, LearnSpec, LearnTarget, SubField};
use flow::mf::Maskable;
use flow::options::Wide;
use flow::{Action, Match, Mf};

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;
const WRITE_RESULT: u16 = 4;

/// Bits of the word that begins a part: source, destination, number of bits.
mod spec {
    pub const FROM_VALUE: u16 = 1 << 13;
    pub const TO_MATCH: u16 = 0;
    pub const TO_LOAD: u16 = 1 << 11;
    pub const TO_OUTPUT: u16 = 2 << 11;
    pub const TO_MASK: u16 = 3 << 11;
    pub const BITS_MASK: u16 = 0x3ff;
}

/// Bytes of a field's header and an offset.
const FIELD_LEN: usize = 6;
/// Default priority of a learned rule.
const PRIORITY: u16 = 0x8000;

pub(super) static LEARN: Row = Row {
    name: "learn",
    syntax: "learn(table=TABLE,idle_timeout=S,hard_timeout=S,fin_idle_timeout=S,fin_hard_timeout=S,priority=N,\
             send_flow_rem,delete_learned,cookie=N,limit=N,result_dst=FIELD[BIT],FIELD[A..B]=SOURCE,\
             load:SOURCE->FIELD[A..B],output:FIELD[A..B])",
    summary: "Adds or modifies a rule made of the packet.",
    place: Place::Lists,
    forms: &[
        nicira(
            16,
            |b| read(b, false),
            |a, e| with!(a, Action::Learn(learn) if learn.limit == 0 && learn.result.is_none() => write(learn, e, false)),
        ).of_length_from(32),
        nicira(45, |b| read(b, true), |a, e| with!(a, Action::Learn(learn) => write(learn, e, true))).of_length_from(40),
    ],
    words: &[word("learn", |p, _, value| parse(p, value))],
    print: |a, p| with!(a, Action::Learn(learn) => print(learn, p)),
    check: |a, c| match a {
        Action::Learn(learn) => check(learn, c),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

fn check(learn: &Learn, c: &mut Checker) -> Result<(), ErrorKind> {
    // What the learned rule is known to match so far: fixed values satisfy the prerequisites of later ones.
    let mut learned = Match::any();
    for part in &learn.specs {
        if let LearnSource::Field(source) = part.source {
            c.reads(source.field)?;
        }
        let (LearnTarget::Match(target) | LearnTarget::Load(target)) = part.target else { continue };
        if matches!(part.target, LearnTarget::Load(_)) && !target.field.row().writable {
            c.is_read_only(target.field);
            return Err(OFPBAC_BAD_SET_ARGUMENT);
        }
        if !learned.has_prereq(target.field) {
            c.lacks_target(target.field, matches!(part.target, LearnTarget::Match(_)));
            return Err(OFPBAC_MATCH_INCONSISTENT);
        }
        if let (LearnTarget::Match(_), LearnSource::Value(value)) = (part.target, &part.source)
            && !matches!(target.field, Mf::TunMetadata(_))
        {
            let mask = super::subfield::ones(target.count) << target.offset;
            let is_whole = mask & target.field.ones() == target.field.ones();
            // A part of a field that is matched as a whole says nothing.
            if is_whole || target.field.row().maskable != Maskable::No {
                learned.add_mf(target.field, value.low_u128() << target.offset, mask);
            }
        }
    }
    Ok(())
}

fn read(b: &mut Body, long: bool) -> Result<Action, ErrorKind> {
    let (idle_timeout_s, hard_timeout_s, priority) = (b.u16()?, b.u16()?, b.u16()?);
    let (cookie, flags, table_id) = (b.u64()?, b.u16()?, b.u8()?);
    let zero = b.u8()?;
    let (fin_idle_timeout_s, fin_hard_timeout_s) = (b.u16()?, b.u16()?);
    let (mut limit, mut offset, mut result) = (0, 0, None);
    if long {
        (limit, offset) = (b.u32()?, b.u16()?);
        b.zeros(2, NXBAC_MUST_BE_ZERO)?;
    }
    let allowed = SEND_FLOW_REM | DELETE_LEARNED | if long { WRITE_RESULT } else { 0 };
    if zero != 0 || table_id == TABLE_ALL || flags & !allowed != 0 {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    if flags & WRITE_RESULT != 0 {
        result = Some(checked(read_field(b)?, offset, 1, true)?);
    } else if offset != 0 {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let specs = read_specs(b)?;
    Ok(Action::Learn(Box::new(Learn {
        table_id,
        idle_timeout_s,
        hard_timeout_s,
        fin_idle_timeout_s,
        fin_hard_timeout_s,
        priority,
        cookie,
        send_flow_removed: flags & SEND_FLOW_REM != 0,
        delete_learned: flags & DELETE_LEARNED != 0,
        limit,
        result,
        specs,
    })))
}

fn read_specs(b: &mut Body) -> Result<Vec<LearnSpec>, ErrorKind> {
    let mut specs = Vec::new();
    while b.len() >= 2 {
        let header = b.u16()?;
        if header == 0 {
            break;
        }
        let count = header & spec::BITS_MASK;
        let to = header & spec::TO_MASK;
        let from_value = header & spec::FROM_VALUE != 0;
        let valid = match to {
            spec::TO_MATCH | spec::TO_LOAD => true,
            spec::TO_OUTPUT => !from_value,
            _ => false,
        };
        if !valid {
            return Err(OFPBAC_BAD_ARGUMENT);
        }
        let values = usize::from(count).div_ceil(16) * 2;
        let source_len = if from_value { values } else { FIELD_LEN };
        let target_len = if to == spec::TO_OUTPUT { 0 } else { FIELD_LEN };
        if b.len() < source_len + target_len {
            return Err(OFPBAC_BAD_LEN);
        }
        let source = if from_value {
            // Bits above the count mean nothing, as in Open vSwitch.
            let value = Wide::from_be_bytes(b.take(values)?).ok_or(OFPBAC_BAD_ARGUMENT)?;
            LearnSource::Value(Box::new(value.and(&Wide::low(count))))
        } else {
            LearnSource::Field(read_bits(b, count)?)
        };
        let target = match to {
            spec::TO_MATCH => LearnTarget::Match(read_bits(b, count)?),
            spec::TO_LOAD => LearnTarget::Load(read_bits(b, count)?),
            _ => LearnTarget::Output,
        };
        specs.push(LearnSpec { source, target });
    }
    let len = b.len();
    b.zeros(len, OFPBAC_BAD_ARGUMENT)?;
    Ok(specs)
}

/// A field's header and the offset behind it.
fn read_bits(b: &mut Body, count: u16) -> Result<SubField, ErrorKind> {
    let field = short_field(b.u32()?)?;
    checked(field, b.u16()?, count, false)
}

fn write(learn: &Learn, e: &mut Encoder, long: bool) {
    let flag = |set: bool, bit: u16| if set { bit } else { 0 };
    e.out.u16(learn.idle_timeout_s);
    e.out.u16(learn.hard_timeout_s);
    e.out.u16(learn.priority);
    e.out.u64(learn.cookie);
    e.out.u16(
        flag(learn.send_flow_removed, SEND_FLOW_REM)
            | flag(learn.delete_learned, DELETE_LEARNED)
            | flag(learn.result.is_some(), WRITE_RESULT),
    );
    e.out.u8(learn.table_id);
    e.out.u8(0);
    e.out.u16(learn.fin_idle_timeout_s);
    e.out.u16(learn.fin_hard_timeout_s);
    if long {
        e.out.u32(learn.limit);
        e.out.u16(learn.result.map_or(0, |result| result.offset));
        e.out.u16(0);
        if let Some(result) = learn.result {
            e.field(result.field);
        }
    }
    for part in &learn.specs {
        let (count, to) = match (part.target, &part.source) {
            (LearnTarget::Match(target), _) => (target.count, spec::TO_MATCH),
            (LearnTarget::Load(target), _) => (target.count, spec::TO_LOAD),
            (LearnTarget::Output, LearnSource::Field(source)) => (source.count, spec::TO_OUTPUT),
            (LearnTarget::Output, LearnSource::Value(_)) => continue,
        };
        match &part.source {
            LearnSource::Field(source) => {
                e.out.u16(to | count);
                e.field(source.field);
                e.out.u16(source.offset);
            }
            LearnSource::Value(value) => {
                e.out.u16(to | count | spec::FROM_VALUE);
                let bytes = value.to_be_bytes();
                e.out.extend_from_slice(&bytes[bytes.len() - usize::from(count).div_ceil(16) * 2..]);
            }
        }
        if let LearnTarget::Match(target) | LearnTarget::Load(target) = part.target {
            e.field(target.field);
            e.out.u16(target.offset);
        }
    }
}

fn parse(p: &mut Parser, text: &str) -> Result<Action, TextError> {
    let mut learn = Learn {
        table_id: 1,
        idle_timeout_s: 0,
        hard_timeout_s: 0,
        fin_idle_timeout_s: 0,
        fin_hard_timeout_s: 0,
        priority: PRIORITY,
        cookie: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Vec::new(),
    };
    for (key, value) in KeyValues::new(text) {
        match key {
            "table" => match p.ports.parse_table(value) {
                Some(255) => return bad!("{text}: table id 255 not valid for `learn' action"),
                Some(table) => learn.table_id = table,
                None => return bad!("unknown table \"{value}\""),
            },
            "priority" => learn.priority = u16_named(value, key)?,
            "idle_timeout" => learn.idle_timeout_s = u16_named(value, key)?,
            "hard_timeout" => learn.hard_timeout_s = u16_named(value, key)?,
            "fin_idle_timeout" => learn.fin_idle_timeout_s = u16_named(value, key)?,
            "fin_hard_timeout" => learn.fin_hard_timeout_s = u16_named(value, key)?,
            "cookie" => learn.cookie = u64_of(value)?,
            "send_flow_rem" => learn.send_flow_removed = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = u32_of(value)?,
            "result_dst" => {
                let result = parse_subfield(value)?;
                if !result.field.row().writable {
                    return bad!("{value} is read-only");
                }
                if result.count != 1 {
                    return bad!("result_dst in 'learn' action must be a single bit");
                }
                learn.result = Some(result);
            }
            _ => learn.specs.push(parse_spec(p, text, key, value)?),
        }
    }
    Ok(Action::Learn(Box::new(learn)))
}

fn parse_spec(p: &Parser, text: &str, key: &str, value: &str) -> Result<LearnSpec, TextError> {
    if parse_subfield(key).is_ok() {
        let target = short_target(key, text)?;
        let source = match value {
            "" => LearnSource::Field(target),
            value => parse_source(p, text, key, value, target)?,
        };
        return Ok(LearnSpec { source, target: LearnTarget::Match(target) });
    }
    match key {
        "load" => parse_load(value),
        "output" => {
            let source = LearnSource::Field(short_target(value, text)?);
            Ok(LearnSpec { source, target: LearnTarget::Output })
        }
        key => bad!("{text}: unknown keyword {key}"),
    }
}

/// The right side of a match: another field's bits, or a value.
fn parse_source(
    p: &Parser,
    text: &str,
    key: &str,
    value: &str,
    target: SubField,
) -> Result<LearnSource, TextError> {
    let as_field = match parse_subfield(value) {
        Ok(source) if source.count == target.count => {
            return short_target(value, text).map(LearnSource::Field);
        }
        Ok(source) => {
            return bad!(
                "{text}: bit widths of {key} ({}) and {value} ({}) differ",
                source.count,
                target.count
            );
        }
        Err(error) => error,
    };
    let is_whole = is_whole(target);
    let as_value = if let Mf::TunMetadata(_) = target.field {
        match value::wide(value) {
            Some(Some(number)) if number.is_within(&Wide::low(target.count)) => Ok(number),
            _ => bad!("{text}: cannot parse integer value"),
        }
    } else if is_whole {
        parse_value(target.field, value, p.ports).and_then(|(number, mask)| {
            if mask == target.field.ones() {
                Ok(Wide::from(on_wire(target, number)))
            } else {
                bad!("{value}: wildcards not allowed here")
            }
        })
    } else {
        // The bit that says that there is a tag is none of the twelve, but goes with them in a match.
        let is_vid = target.field == Mf::VlanVid && target.offset == 0 && target.count == 12;
        match number(value, u128::MAX) {
            Some(n @ 0x1000..=0x1fff) if is_vid => Ok(Wide::from(n & 0xfff)),
            Some(n) if n & !super::subfield::ones(target.count) == 0 => Ok(Wide::from(n)),
            Some(n) => bad!("{text}: value {n:#x} does not fit into {} bits", target.count),
            None => bad!("{text}: cannot parse integer value"),
        }
    };
    match as_value {
        Ok(value) => Ok(LearnSource::Value(Box::new(value))),
        Err(error) => Err(TextError {
            warning: error.warning.clone(),
            ..TextError::new(format!(
                "{text}: {key} value {value} cannot be parsed as a subfield ({}) or an immediate value ({})",
                as_field.message, error.message
            ))
        }),
    }
}

/// Whether the slice covers the whole field. A port in OXM has more bits than the field that stores it.
fn is_whole(part: SubField) -> bool {
    part.offset == 0 && part.count >= part.field.bits()
}

/// A value of a whole field, with the field's number of bits on the wire: 32-bit ports have different
/// reserved numbers.
fn on_wire(part: SubField, value: u128) -> u128 {
    if part.count > part.field.bits() { base::OfPort(value as u16).to_u32().into() } else { value }
}

fn parse_load(value: &str) -> Result<LearnSpec, TextError> {
    let Some((from, to)) = value.split_once("->") else { return bad!("load: missing `->' in `{value}'") };
    if from.is_empty() {
        return bad!("load: missing source before `->' in `{value}'");
    }
    if from.starts_with(|c: char| c.is_ascii_digit()) {
        let Some(Some(number)) = value::wide(from) else {
            return bad!("load: garbage before `->' in `{value}'");
        };
        let target = short_target(to, value)?;
        if !number.is_within(&Wide::low(target.count)) {
            return bad!("{value}: value does not fit into {} bits", target.count);
        }
        let source = LearnSource::Value(Box::new(number));
        return Ok(LearnSpec { source, target: LearnTarget::Load(target) });
    }
    let (source, rest) = split_subfield(from)?;
    if !rest.is_empty() {
        return bad!("{value}: missing `->' following source");
    }
    short_target(from, value)?;
    let target = short_target(to, value)?;
    if source.count != target.count {
        return bad!(
            "{value}: source field is {} bits wide but destination is {} bits wide",
            source.count,
            target.count
        );
    }
    Ok(LearnSpec { source: LearnSource::Field(source), target: LearnTarget::Load(target) })
}

fn print(learn: &Learn, p: &mut Printer) {
    p.word("learn(table=");
    p.table(learn.table_id);
    let numbers = [
        ("idle_timeout", learn.idle_timeout_s, 0),
        ("hard_timeout", learn.hard_timeout_s, 0),
        ("fin_idle_timeout", learn.fin_idle_timeout_s, 0),
        ("fin_hard_timeout", learn.fin_hard_timeout_s, 0),
        ("priority", learn.priority, PRIORITY),
    ];
    for (name, number, _) in numbers.into_iter().filter(|(_, number, default)| number != default) {
        put!(p.out, ",{name}={number}");
    }
    p.word(if learn.send_flow_removed { ",send_flow_rem" } else { "" });
    p.word(if learn.delete_learned { ",delete_learned" } else { "" });
    if learn.cookie != 0 {
        put!(p.out, ",cookie={:#x}", learn.cookie);
    }
    if learn.limit != 0 {
        put!(p.out, ",limit={}", learn.limit);
    }
    if let Some(result) = learn.result {
        p.word(",result_dst=");
        p.subfield(result);
    }
    for part in &learn.specs {
        p.word(",");
        print_spec(part, p);
    }
    p.word(")");
}

fn print_spec(part: &LearnSpec, p: &mut Printer) {
    match (part.target, &part.source) {
        (LearnTarget::Match(target), LearnSource::Value(value)) => {
            let value_of_port =
                base::OfPort::from_u32(value.low_u128() as u32).map(|port| u128::from(port.0));
            let narrow =
                if target.count > target.field.bits() { value_of_port } else { Some(value.low_u128()) };
            let is_all = target.offset == 0 && target.count == target.field.row().subfield_bits;
            if let Mf::TunMetadata(_) = target.field
                && is_all
            {
                put!(p.out, "{}={value}", display_name(target.field));
            } else if let Some(narrow) = narrow.filter(|_| is_all || is_whole(target)) {
                put!(p.out, "{}=", display_name(target.field));
                write_value(p.out, target.field, narrow, target.field.ones(), p.ports);
            } else {
                p.subfield(target);
                put!(p.out, "={value}");
            }
        }
        (LearnTarget::Match(target), LearnSource::Field(source)) => {
            p.subfield(target);
            if source.field != target.field || source.offset != target.offset {
                p.word("=");
                p.subfield(*source);
            }
        }
        (LearnTarget::Load(target), source) => {
            p.word("load:");
            match source {
                LearnSource::Value(value) => put!(p.out, "{value}"),
                LearnSource::Field(source) => p.subfield(*source),
            }
            p.word("->");
            p.subfield(target);
        }
        (LearnTarget::Output, LearnSource::Field(source)) => {
            p.word("output:");
            p.subfield(*source);
        }
        // Neither text nor wire form can produce this.
        (LearnTarget::Output, LearnSource::Value(_)) => {}
    }
}
