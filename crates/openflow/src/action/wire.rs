//! Reading and writing lists of actions and instructions, by the rows' forms.

use super::{APPLY_RANK, Form, Place, Row, Space, form};
use crate::codec::bytes::{Put, Reader};
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use base::OfPort;
use flow::{Action, Match};
use std::ops::{Deref, DerefMut};

/// How deep actions may lie in actions (`clone`): what a recursive reader allows itself of the stack.
const DEPTH_MAX: u8 = 16;
/// Type of an experimenter's action or instruction.
const EXPERIMENTER: u16 = 0xffff;
/// The experimenter Nicira.
const NICIRA: u32 = 0x0000_2320;
/// The Open Networking Foundation.
const ONF: u32 = 0x4f4e_4600;
/// OFPIT_APPLY_ACTIONS.
const APPLY_ACTIONS: u16 = 4;

/// The body of an action that is read.
pub(super) struct Body<'a> {
    reader: Reader<'a>,
    pub version: Version,
    /// How many actions this one lies in.
    depth: u8,
}

impl<'a> Deref for Body<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl DerefMut for Body<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl Body<'_> {
    /// The rest of the body as actions.
    pub fn actions(&mut self) -> Result<Vec<Action>, ErrorKind> {
        let mut actions = Vec::new();
        let len = self.len();
        let nested = self.sub(len)?;
        append_actions(self.version, nested, &mut actions, self.depth + 1)?;
        Ok(actions)
    }

    /// Skips all that is left.
    pub fn skip_rest(&mut self) -> Result<(), ErrorKind> {
        let len = self.len();
        self.skip(len)
    }

    /// Skips all that is left, which must be zero.
    pub fn zero_rest(&mut self) -> Result<(), ErrorKind> {
        let len = self.len();
        self.zeros(len, NXBRC_MUST_BE_ZERO)
    }

    /// A port in 16 bits to which an action may output.
    pub fn output_port(&mut self) -> Result<OfPort, ErrorKind> {
        output_port(OfPort(self.u16()?))
    }
}

/// A port to which an action may output.
pub(super) fn output_port(port: OfPort) -> Result<OfPort, ErrorKind> {
    let valid = port < OfPort::MAX || (port >= OfPort::IN_PORT && port != OfPort::NONE);
    if valid { Ok(port) } else { Err(OFPBAC_BAD_OUT_PORT) }
}

/// A list of actions, all of the bytes.
pub(crate) fn read_actions(version: Version, r: Reader) -> Result<Vec<Action>, ErrorKind> {
    let mut actions = Vec::new();
    append_actions(version, r, &mut actions, 0)?;
    Ok(actions)
}

fn append_actions(
    version: Version,
    mut r: Reader,
    actions: &mut Vec<Action>,
    depth: u8,
) -> Result<(), ErrorKind> {
    r = r.with_error(OFPBAC_BAD_LEN);
    if depth > DEPTH_MAX {
        return Err(OFPBAC_TOO_MANY);
    }
    while !r.is_empty() {
        let kind = r.u16()?;
        let length = usize::from(r.u16()?);
        if length < 8 || length % 8 != 0 {
            return Err(OFPBAC_BAD_LEN);
        }
        let mut body = Body { reader: r.sub(length - 4)?, version, depth };
        let form = match kind {
            EXPERIMENTER => {
                let (space, unknown) = match body.u32()? {
                    NICIRA => (Space::Nicira, OFPBAC_BAD_VENDOR_TYPE),
                    ONF => (Space::Onf, OFPBAC_BAD_VENDOR_TYPE),
                    _ => return Err(OFPBAC_BAD_VENDOR),
                };
                form(space, version, body.u16()?).ok_or(unknown)?
            }
            kind => form(Space::Standard, version, kind).ok_or(OFPBAC_BAD_TYPE)?,
        };
        actions.push(read_body(form, body, length)?);
    }
    Ok(())
}

/// The body of an action or instruction of so many bytes, and its padding.
fn read_body(form: &Form, mut body: Body, length: usize) -> Result<Action, ErrorKind> {
    let action = (form.read)(&mut body)?;
    let read = length - body.len();
    let padded = if form.space == Space::Nicira { read.max(16) } else { read }.next_multiple_of(8);
    if length == padded { Ok(action) } else { Err(OFPBAC_BAD_LEN) }
}

/// The instructions of OpenFlow 1.1 and later, all of the bytes, in the order in which they are carried out,
/// the actions to apply among them.
pub(crate) fn read_instructions(version: Version, mut r: Reader) -> Result<Vec<Action>, ErrorKind> {
    r = r.with_error(OFPBIC_BAD_LEN);
    let mut apply: Option<Reader> = None;
    let mut others: [Option<Action>; 6] = [const { None }; 6];
    while !r.is_empty() {
        let kind = r.u16()?;
        let length = usize::from(r.u16()?);
        if length < 8 || length % 8 != 0 {
            return Err(OFPBIC_BAD_LEN);
        }
        let mut body = r.sub(length - 4)?;
        if kind == EXPERIMENTER {
            return Err(OFPBIC_BAD_EXPERIMENTER);
        }
        if kind == APPLY_ACTIONS {
            body.skip(4)?;
            if apply.replace(body).is_some() {
                return Err(OFPBIC_DUP_INST);
            }
            continue;
        }
        let form = form(Space::Instruction, version, kind).ok_or(OFPBIC_UNKNOWN_INST)?;
        let mut body = Body { reader: body, version, depth: 0 };
        let action = (form.read)(&mut body)?;
        if (length - body.len()).next_multiple_of(8) != length {
            return Err(OFPBIC_BAD_LEN);
        }
        let rank = usize::from(Row::of(&action).place.rank());
        if others[rank].replace(action).is_some() {
            return Err(OFPBIC_DUP_INST);
        }
    }
    let mut actions = Vec::with_capacity(others.len());
    for (rank, action) in others.into_iter().enumerate() {
        actions.extend(action);
        if rank == usize::from(APPLY_RANK)
            && let Some(apply) = apply
        {
            append_actions(version, apply, &mut actions, 0)?;
        }
    }
    Ok(actions)
}

/// What an action is written to.
pub(super) struct Encoder<'a> {
    pub out: &'a mut Vec<u8>,
    pub version: Version,
    /// The match that comes before the actions, where there is one: it says which transport protocol
    /// `mod_tp_src` means, and whether there is a VLAN tag.
    pub matching: Option<&'a Match>,
}

impl Encoder<'_> {
    /// Appends an action in the version's own form where it has one, else in Nicira's, else as other actions.
    pub fn action(&mut self, action: &Action) {
        let row = Row::of(action);
        let usable = |f: &&Form| {
            f.space != Space::Instruction && f.is_in(self.version) && self.version <= f.written_until
        };
        let written = row
            .forms
            .iter()
            .filter(usable)
            .any(|form| put(self.out, self.version, self.matching, form, action));
        if !written {
            (row.stand_in)(action, self);
        }
    }

    /// Appends the actions of an action.
    pub fn actions(&mut self, actions: &[Action]) {
        write_actions(self.out, self.version, None, actions);
    }
}

/// An action in one form: header, body, padding; `false`, and nothing written, where the form cannot hold it.
fn put(out: &mut Vec<u8>, version: Version, matching: Option<&Match>, form: &Form, action: &Action) -> bool {
    let start = out.len();
    let experimenter = match form.space {
        Space::Nicira => Some(NICIRA),
        Space::Onf => Some(ONF),
        Space::Standard | Space::Instruction => None,
    };
    match experimenter {
        Some(id) => {
            out.u16(EXPERIMENTER);
            out.u16(0);
            out.u32(id);
            out.u16(form.number);
        }
        None => {
            out.u16(form.number);
            out.u16(0);
        }
    }
    if !(form.write)(action, &mut Encoder { out, version, matching }) {
        out.truncate(start);
        return false;
    }
    if experimenter.is_some() && out.len() - start < 16 {
        out.zeros(16 - (out.len() - start));
    }
    out.pad8(start);
    out.set_u16(start + 2, (out.len() - start) as u16);
    true
}

/// Appends actions.
pub(crate) fn write_actions(
    out: &mut Vec<u8>,
    version: Version,
    matching: Option<&Match>,
    actions: &[Action],
) {
    let mut encoder = Encoder { out, version, matching };
    actions.iter().for_each(|action| encoder.action(action));
}

/// Appends actions as the instructions of OpenFlow 1.1 and later.
pub(crate) fn write_instructions(out: &mut Vec<u8>, version: Version, matching: &Match, actions: &[Action]) {
    let is_instruction = |action: &Action| matches!(Row::of(action).place, Place::Instruction(_));
    let put_instructions = |out: &mut Vec<u8>, before_apply: bool| {
        let chosen = actions.iter().filter(|action| match Row::of(action).place {
            Place::Instruction(rank) => (rank < APPLY_RANK) == before_apply,
            _ => false,
        });
        for action in chosen {
            let forms = Row::of(action).forms.iter();
            for form in forms.filter(|f| f.space == Space::Instruction && f.is_in(version)) {
                put(out, version, Some(matching), form, action);
            }
        }
    };
    put_instructions(out, true);
    if !actions.iter().all(is_instruction) {
        let start = out.len();
        out.u16(APPLY_ACTIONS);
        out.zeros(6);
        // Runs of actions between instructions, so that none is copied.
        for run in actions.split(is_instruction) {
            write_actions(out, version, Some(matching), run);
        }
        out.set_u16(start + 2, (out.len() - start) as u16);
    }
    put_instructions(out, false);
}
