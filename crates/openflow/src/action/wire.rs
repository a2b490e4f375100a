//! Decodes and encodes lists of actions and instructions, with the rows' forms.

use super::body::{Body, Encoder};
use super::checker::sets_connection;
use super::row::{APPLY_RANK, Form, Place, Row, Space};
use super::table::{form, instruction_form};
use crate::codec::bytes::{Put, Reader};
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use flow::{Action, Match};

/// Maximum nesting of actions in actions (`clone`), which bounds the stack of the recursive decoder: as many
/// as text may have in Open vSwitch, which has no bound here.
const DEPTH_MAX: u8 = 99;
/// Type of an experimenter's action or instruction.
const EXPERIMENTER: u16 = 0xffff;
/// The experimenter Nicira.
const NICIRA: u32 = 0x0000_2320;
/// The Open Networking Foundation.
const ONF: u32 = 0x4f4e_4600;
/// OFPIT_APPLY_ACTIONS.
const APPLY_ACTIONS: u16 = 4;

/// Refuses what no list may have, whatever it does to packets of which match: the first fault is reported, as
/// in Open vSwitch, and before those that [`super::check`] finds. Instructions must be in the order in which
/// OpenFlow 1.1 and later execute them, but Nicira's extension allows `write_metadata` anywhere on the wire.
fn verify(version: Version, actions: &[Action], instructions: bool) -> Result<(), ErrorKind> {
    let rank = |action: &Action| match action {
        Action::Meter(_) if version >= Version::V15 => APPLY_RANK,
        action => Row::of(action).place.rank(),
    };
    let mut before = None;
    for action in actions {
        if matches!(action, Action::Conjunction { .. }) {
            let is_other = |a: &Action| !matches!(a, Action::Conjunction { .. } | Action::Note(_));
            return if actions.iter().any(is_other) { Err(NXBAC_BAD_CONJUNCTION) } else { Ok(()) };
        }
        if matches!(action, Action::Nat(_)) || sets_connection(action) {
            return Err(OFPBAC_BAD_SET_ARGUMENT);
        }
        let rank = rank(action);
        if before.is_some_and(|before| rank < before || rank == before && rank != APPLY_RANK) {
            return Err(OFPBAC_UNSUPPORTED_ORDER);
        }
        if rank != APPLY_RANK && !instructions {
            return Err(OFPBIC_UNSUP_INST);
        }
        before = Some(rank);
    }
    Ok(())
}

/// Decodes the actions of a flow in OpenFlow 1.0, which take up all bytes.
pub(crate) fn read_flow_actions(version: Version, r: Reader) -> Result<Vec<Action>, ErrorKind> {
    let mut actions = Vec::new();
    append_actions(version, r, &mut actions, 0)?;
    verify(version, &actions, true)?;
    Ok(actions)
}

/// A list of actions, all of the bytes. Instructions in the form of actions are refused.
pub(crate) fn read_actions(version: Version, r: Reader) -> Result<Vec<Action>, ErrorKind> {
    if !r.len().is_multiple_of(8) {
        return Err(OFPBRC_BAD_LEN);
    }
    read_nested(version, r, 0, true)
}

fn read_nested(version: Version, r: Reader, depth: u8, is_list: bool) -> Result<Vec<Action>, ErrorKind> {
    let mut actions = Vec::new();
    append_actions(version, r, &mut actions, depth)?;
    if is_list {
        verify(version, &actions, false)?;
    }
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
        let (kind, length) = (r.u16()?, r.u16()?);
        // An unknown type is reported in preference to a bad length.
        let mut head = r;
        let form = match kind {
            EXPERIMENTER => {
                let space = match head.u32()? {
                    NICIRA => Space::Nicira,
                    ONF => Space::Onf,
                    _ => return Err(OFPBAC_BAD_VENDOR),
                };
                form(space, version, head.u16()?).ok_or(OFPBAC_BAD_VENDOR_TYPE)?
            }
            kind => form(Space::Standard, version, kind).ok_or(OFPBAC_BAD_TYPE)?,
        };
        if !form.has_length(length) {
            return Err(OFPBAC_BAD_LEN);
        }
        let mut body = Body { reader: r.sub(usize::from(length) - 4)?, version, depth, read_nested };
        if kind == EXPERIMENTER {
            body.skip(6)?;
        }
        actions.push((form.read)(&mut body)?);
    }
    Ok(())
}

/// Decodes the instructions of OpenFlow 1.1 and later, which take up all bytes, in order of execution and
/// with the actions to apply among them.
pub(crate) fn read_instructions(version: Version, mut r: Reader) -> Result<Vec<Action>, ErrorKind> {
    r = r.with_error(OFPBIC_BAD_LEN);
    // All are looked at before the first is read.
    let mut bodies: [Option<(Option<&Form>, Reader)>; 6] = [None; 6];
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, r.u16()?);
        if length < 8 || length % 8 != 0 {
            return Err(OFPBIC_BAD_LEN);
        }
        let mut body = r.sub(usize::from(length) - 4)?;
        let (form, rank) = match kind {
            EXPERIMENTER => return Err(OFPBIC_BAD_EXPERIMENTER),
            APPLY_ACTIONS => {
                body.skip(4)?;
                (None, APPLY_RANK)
            }
            kind => {
                // A length that no version has comes before the version, as in Open vSwitch.
                let (form, rank) = instruction_form(kind).ok_or(OFPBIC_UNKNOWN_INST)?;
                if !form.has_length(length) {
                    return Err(OFPBIC_BAD_LEN);
                }
                if !form.is_in(version) {
                    return Err(OFPBIC_UNKNOWN_INST);
                }
                (Some(form), rank)
            }
        };
        if bodies[usize::from(rank)].replace((form, body)).is_some() {
            return Err(OFPBIC_DUP_INST);
        }
    }
    let mut actions = Vec::with_capacity(bodies.len());
    for (form, reader) in bodies.into_iter().flatten() {
        match form {
            Some(form) => actions.push((form.read)(&mut Body { reader, version, depth: 0, read_nested })?),
            None => append_actions(version, reader, &mut actions, 0)?,
        }
    }
    verify(version, &actions, true)?;
    Ok(actions)
}

/// Writes an action in the version's own form if it has one, else in Nicira's, else as other actions.
fn in_some_form(encoder: &mut Encoder, action: &Action) {
    let row = Row::of(action);
    let version = encoder.version;
    let usable = |f: &&Form| f.space != Space::Instruction && f.is_written_in(version);
    let written = row.forms.iter().filter(usable).any(|form| put(encoder, form, action));
    if !written {
        (row.stand_in)(action, encoder);
    }
}

/// An action in one form: header, body, padding; `false`, and nothing written, where the form cannot hold it.
fn put(encoder: &mut Encoder, form: &Form, action: &Action) -> bool {
    let out = &mut *encoder.out;
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
    let is_written = (form.write)(action, &mut encoder.within());
    let out = &mut *encoder.out;
    if !is_written {
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
    let mut encoder = Encoder::new(out, version, matching, in_some_form);
    actions.iter().for_each(|action| encoder.action(action));
}

/// Appends actions as the instructions of OpenFlow 1.1 and later.
pub(crate) fn write_instructions(out: &mut Vec<u8>, version: Version, matching: &Match, actions: &[Action]) {
    // A meter is one in 1.3 and 1.4, an action in 1.5, and in earlier versions nothing.
    let is_form = |f: &Form| f.space == Space::Instruction && f.is_written_in(version);
    let has_form = |action: &Action| Row::of(action).forms.iter().any(is_form);
    let put_instructions = |out: &mut Vec<u8>, before_apply: bool| {
        let chosen = actions.iter().filter(|action| match Row::of(action).place {
            Place::Instruction(rank) => (rank < APPLY_RANK) == before_apply,
            _ => false,
        });
        for action in chosen {
            for form in Row::of(action).forms.iter().filter(|form| is_form(form)) {
                put(&mut Encoder::new(out, version, Some(matching), in_some_form), form, action);
            }
        }
    };
    put_instructions(out, true);
    if !actions.iter().all(has_form) {
        let start = out.len();
        out.u16(APPLY_ACTIONS);
        out.zeros(6);
        let mut encoder = Encoder::new(out, version, Some(matching), in_some_form);
        actions.iter().filter(|action| !has_form(action)).for_each(|action| encoder.action(action));
        out.set_u16(start + 2, (out.len() - start) as u16);
    }
    put_instructions(out, false);
}

/// The name of the first action of a flow, or within one, that the version has neither a form nor a stand-in
/// for: it is left out.
pub fn left_out(version: Version, actions: &[Action]) -> Option<&'static str> {
    actions.iter().find_map(|action| {
        let (row, mut out) = (Row::of(action), Vec::new());
        let is_instruction = |f: &Form| f.space == Space::Instruction && f.is_written_in(version);
        if row.forms.iter().any(is_instruction) {
            write_instructions(&mut out, version, &Match::any(), std::slice::from_ref(action));
        } else {
            write_actions(&mut out, version, None, std::slice::from_ref(action));
        }
        match action {
            _ if out.is_empty() => Some(row.name),
            Action::Clone(actions) | Action::WriteActions(actions) => left_out(version, actions),
            _ => None,
        }
    })
}
