//! `controller`: packet-ins with more parameters than an output to CONTROLLER has room for.

use super::body::{Body, Encoder};
use super::row::{Place, Row, nicira, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::{dotted_hex, u16_named, u32_of, write_dotted_hex};
use crate::text::{KeyValues, TextError, bad, put};
use base::OfPort;
use flow::Action;
use flow::action::PacketInReason;

pub(super) static CONTROLLER: Row = Row {
    name: "controller",
    syntax: "controller(max_len=BYTES,reason=REASON,id=ID,userdata=HEX,meter_id=METER,pause)",
    summary: "Sends the packet to a controller, with data of the rule's own; `pause` stops the pipeline until the \
              controller resumes it.",
    place: Place::Lists,
    forms: &[
        nicira(
            20,
            |b| {
                let (max_len, id, reason) = (b.u16()?, b.u16()?, b.u8()?);
                b.skip(1)?;
                let reason = reason_from_wire(reason)?;
                Ok(Action::Controller {
                    max_len,
                    reason,
                    id,
                    userdata: Vec::new(),
                    meter_id: None,
                    pause: false,
                })
            },
            |a, e| {
                with!(
                    a,
                    Action::Controller { max_len, reason, id, userdata, meter_id: None, pause: false }
                        if userdata.is_empty() => {
                        e.out.u16(*max_len);
                        e.out.u16(*id);
                        e.out.u8(*reason as u8);
                    }
                )
            },
        ),
        nicira(37, read_properties, write_properties).of_length_from(16),
    ],
    words: &[word("controller", |_, _, value| parse(value))],
    print: |a, p| {
        let Action::Controller { max_len, reason, id, ref userdata, meter_id, pause } = *a else {
            return false;
        };
        let out = &mut *p.out;
        if reason == PacketInReason::Action && id == 0 && userdata.is_empty() && meter_id.is_none() && !pause
        {
            put!(out, "CONTROLLER:{max_len}");
            return true;
        }
        out.push_str("controller(");
        if reason != PacketInReason::Action {
            put!(out, "reason={},", reason_name(reason));
        }
        if max_len != u16::MAX {
            put!(out, "max_len={max_len},");
        }
        if id != 0 {
            put!(out, "id={id},");
        }
        if !userdata.is_empty() {
            out.push_str("userdata=");
            write_dotted_hex(out, userdata);
            out.push(',');
        }
        if pause {
            out.push_str("pause,");
        }
        if let Some(id) = meter_id {
            put!(out, "meter_id={id},");
        }
        out.pop();
        out.push(')');
        true
    },
    ..Row::PLAIN
};

/// The name of a reason in the `controller` action and in packet-in messages.
pub(crate) fn reason_name(reason: PacketInReason) -> &'static str {
    match reason {
        PacketInReason::NoMatch => "no_match",
        PacketInReason::Action => "action",
        PacketInReason::InvalidTtl => "invalid_ttl",
        PacketInReason::ActionSet => "action_set",
        PacketInReason::Group => "group",
        PacketInReason::PacketOut => "packet_out",
    }
}

pub(crate) fn reason_from_wire(number: u8) -> Result<PacketInReason, ErrorKind> {
    match number {
        0 => Ok(PacketInReason::NoMatch),
        1 => Ok(PacketInReason::Action),
        2 => Ok(PacketInReason::InvalidTtl),
        3 => Ok(PacketInReason::ActionSet),
        4 => Ok(PacketInReason::Group),
        5 => Ok(PacketInReason::PacketOut),
        _ => Err(NXBRC_BAD_REASON),
    }
}

/// Properties of NXAST_CONTROLLER2.
mod property {
    pub const MAX_LEN: u16 = 0;
    pub const CONTROLLER_ID: u16 = 1;
    pub const REASON: u16 = 2;
    pub const USERDATA: u16 = 3;
    pub const PAUSE: u16 = 4;
    pub const METER_ID: u16 = 5;
}

fn read_properties(b: &mut Body) -> Result<Action, ErrorKind> {
    b.zeros(6, NXBRC_MUST_BE_ZERO)?;
    let (mut max_len, mut id, mut reason) = (u16::MAX, 0, PacketInReason::Action);
    let (mut userdata, mut pause, mut meter_id) = (Vec::new(), false, None);
    let len = b.len();
    let mut r = b.sub(len)?.with_error(OFPBPC_BAD_LEN);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut value = r.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        r.skip(length.next_multiple_of(8) - length)?;
        match kind {
            property::MAX_LEN => max_len = value.u16()?,
            property::CONTROLLER_ID => id = value.u16()?,
            property::REASON => reason = reason_from_wire(value.u8()?)?,
            property::USERDATA => userdata = value.take(value.len())?.to_vec(),
            property::PAUSE => pause = true,
            property::METER_ID => meter_id = Some(value.u32()?),
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    Ok(Action::Controller { max_len, reason, id, userdata, meter_id, pause })
}

fn write_properties(action: &Action, e: &mut Encoder) -> bool {
    let Action::Controller { max_len, reason, id, ref userdata, meter_id, pause } = *action else {
        return false;
    };
    e.out.zeros(6);
    // Open vSwitch counts the padding of 16 bits to the property's length.
    let padded = |n: u16| (u32::from(n) << 16).to_be_bytes();
    let mut property = |kind: u16, value: &[u8]| {
        let start = e.out.len();
        e.out.u16(kind);
        e.out.u16(4 + value.len() as u16);
        e.out.extend_from_slice(value);
        e.out.pad8(start);
    };
    if max_len != u16::MAX {
        property(property::MAX_LEN, &padded(max_len));
    }
    if id != 0 {
        property(property::CONTROLLER_ID, &padded(id));
    }
    if reason != PacketInReason::Action {
        property(property::REASON, &[reason as u8]);
    }
    if !userdata.is_empty() {
        property(property::USERDATA, userdata);
    }
    if pause {
        property(property::PAUSE, &[]);
    }
    if let Some(meter_id) = meter_id {
        property(property::METER_ID, &meter_id.to_be_bytes());
    }
    true
}

fn parse(text: &str) -> Result<Action, TextError> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len: u16_named(text, "max_len")? });
    }
    let (mut max_len, mut reason, mut id) = (u16::MAX, PacketInReason::Action, 0);
    let (mut userdata, mut meter_id, mut pause) = (Vec::new(), None, false);
    for (key, value) in KeyValues::new(text) {
        match key {
            "reason" => {
                let mut all = (0..).map_while(|number| reason_from_wire(number).ok());
                reason = match all.find(|&reason| reason_name(reason) == value) {
                    Some(reason) => reason,
                    None => return bad!("unknown reason \"{value}\""),
                }
            }
            "max_len" => max_len = u16_named(value, "max_len")?,
            "id" => id = u16_named(value, "id")?,
            "userdata" => match dotted_hex(value) {
                Some(bytes) => userdata = bytes,
                None => return bad!("bad hex digit in `controller' action `userdata'"),
            },
            "pause" => pause = true,
            "meter_id" => meter_id = Some(u32_of(value)?),
            _ => return bad!("unknown key \"{key}\" parsing controller action"),
        }
    }
    let plain =
        reason == PacketInReason::Action && id == 0 && userdata.is_empty() && !pause && meter_id.is_none();
    if plain {
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len });
    }
    Ok(Action::Controller { max_len, reason, id, userdata, meter_id, pause })
}
