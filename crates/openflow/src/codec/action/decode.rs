//! Reading actions and instructions.

use super::nicira::read_nicira;
use super::{EXPERIMENTER, NICIRA, instruction, of10, of12};
use crate::codec::bytes::Reader;
use crate::codec::matching::{AnyEntry, read_entry};
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use base::OfPort;
use flow::options::Wide;
use flow::{Action, Mf};

/// How deep actions may lie in actions (`clone`): what a recursive reader allows itself of the stack.
const DEPTH_MAX: u8 = 16;

/// A list of actions, all of the bytes.
pub(in crate::codec) fn read_actions(version: Version, r: Reader) -> Result<Vec<Action>, ErrorKind> {
    let mut actions = Vec::new();
    append_actions(version, r, &mut actions, 0)?;
    Ok(actions)
}

pub(super) fn append_actions(
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
        let mut body = r.sub(length - 4)?;
        let action = if kind == EXPERIMENTER {
            if body.u32()? != NICIRA {
                return Err(OFPBAC_BAD_VENDOR);
            }
            let subtype = body.u16()?;
            read_nicira(version, subtype, &mut body, depth)?
        } else if version == Version::V10 {
            read_of10(kind, &mut body)?
        } else {
            read_of12(version, kind, &mut body)?
        };
        actions.push(action);
    }
    Ok(())
}

/// A port to which an action may output.
pub(super) fn output_port(port: OfPort) -> Result<OfPort, ErrorKind> {
    let valid = port < OfPort::MAX || (port >= OfPort::IN_PORT && port != OfPort::NONE);
    if valid { Ok(port) } else { Err(OFPBAC_BAD_OUT_PORT) }
}

fn read_of10(kind: u16, body: &mut Reader) -> Result<Action, ErrorKind> {
    let action = match kind {
        of10::OUTPUT => Action::Output { port: output_port(OfPort(body.u16()?))?, max_len: body.u16()? },
        of10::SET_VLAN_VID => {
            let vid = body.u16()?;
            if vid > 0xfff {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            body.skip(2)?;
            Action::SetVlanVid { vid, push_vlan_if_needed: true }
        }
        of10::SET_VLAN_PCP => {
            let pcp = body.u8()?;
            if pcp > 7 {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            body.skip(3)?;
            Action::SetVlanPcp { pcp, push_vlan_if_needed: true }
        }
        of10::STRIP_VLAN => {
            body.skip(4)?;
            Action::PopVlan
        }
        of10::SET_DL_SRC | of10::SET_DL_DST => {
            let value = body.number(6)?;
            body.skip(6)?;
            set_exactly(if kind == of10::SET_DL_SRC { Mf::EthSrc } else { Mf::EthDst }, value)
        }
        of10::SET_NW_SRC => set_exactly(Mf::NwSrc, body.u32()?.into()),
        of10::SET_NW_DST => set_exactly(Mf::NwDst, body.u32()?.into()),
        of10::SET_NW_TOS => {
            let tos = body.u8()?;
            if tos & 3 != 0 {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            body.skip(3)?;
            set_exactly(Mf::NwTos, tos.into())
        }
        of10::SET_TP_SRC | of10::SET_TP_DST => {
            let port = body.u16()?;
            body.skip(2)?;
            if kind == of10::SET_TP_SRC { Action::SetTpSrc(port) } else { Action::SetTpDst(port) }
        }
        of10::ENQUEUE => {
            let port = OfPort(body.u16()?);
            if port >= OfPort::MAX && port != OfPort::IN_PORT && port != OfPort::LOCAL {
                return Err(OFPBAC_BAD_OUT_PORT);
            }
            body.skip(6)?;
            Action::Enqueue { port, queue: body.u32()? }
        }
        _ => return Err(OFPBAC_BAD_TYPE),
    };
    body.end()?;
    Ok(action)
}

fn set_exactly(field: Mf, value: u128) -> Action {
    Action::SetField { field, value, mask: field.ones() }
}

fn read_of12(version: Version, kind: u16, body: &mut Reader) -> Result<Action, ErrorKind> {
    let action = match kind {
        of12::OUTPUT => {
            let port = OfPort::from_u32(body.u32()?).ok_or(OFPBAC_BAD_OUT_PORT)?;
            let max_len = body.u16()?;
            body.skip(6)?;
            Action::Output { port: output_port(port)?, max_len }
        }
        of12::SET_MPLS_TTL => {
            let ttl = body.u8()?;
            body.skip(3)?;
            Action::SetMplsTtl(ttl)
        }
        of12::DEC_MPLS_TTL => {
            body.skip(4)?;
            Action::DecMplsTtl
        }
        of12::PUSH_VLAN => {
            let tpid = body.u16()?;
            if tpid != 0x8100 && tpid != 0x88a8 {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            body.skip(2)?;
            Action::PushVlan(tpid)
        }
        of12::POP_VLAN => {
            body.skip(4)?;
            Action::PopVlan
        }
        of12::PUSH_MPLS => {
            let eth_type = mpls_type(body.u16()?)?;
            body.skip(2)?;
            Action::PushMpls(eth_type)
        }
        of12::POP_MPLS => {
            let eth_type = body.u16()?;
            body.skip(2)?;
            Action::PopMpls(eth_type)
        }
        of12::SET_QUEUE => Action::SetQueue(body.u32()?),
        of12::GROUP => Action::Group(body.u32()?),
        of12::SET_NW_TTL => {
            let ttl = body.u8()?;
            body.skip(3)?;
            Action::SetNwTtl(ttl)
        }
        of12::DEC_NW_TTL => {
            body.skip(4)?;
            Action::DecTtl(Vec::new())
        }
        of12::SET_FIELD if version >= Version::V12 => return read_set_field(body, version >= Version::V15),
        of12::COPY_FIELD if version >= Version::V15 => return read_copy_field(body),
        of12::METER if version >= Version::V15 => Action::Meter(body.u32()?),
        old if version == Version::V11 => read_of11(old, body)?,
        _ => return Err(OFPBAC_BAD_TYPE),
    };
    body.end()?;
    Ok(action)
}

/// What OpenFlow 1.1 has in place of set-field.
fn read_of11(kind: u16, body: &mut Reader) -> Result<Action, ErrorKind> {
    let (field, bytes) = match kind {
        of12::SET_VLAN_VID => {
            let vid = body.u16()?;
            body.skip(2)?;
            return if vid > 0xfff {
                Err(OFPBAC_BAD_ARGUMENT)
            } else {
                Ok(Action::SetVlanVid { vid, push_vlan_if_needed: false })
            };
        }
        of12::SET_VLAN_PCP => {
            let pcp = body.u8()?;
            body.skip(3)?;
            return if pcp > 7 {
                Err(OFPBAC_BAD_ARGUMENT)
            } else {
                Ok(Action::SetVlanPcp { pcp, push_vlan_if_needed: false })
            };
        }
        of12::SET_TP_SRC | of12::SET_TP_DST => {
            let port = body.u16()?;
            body.skip(2)?;
            return Ok(if kind == of12::SET_TP_SRC {
                Action::SetTpSrc(port)
            } else {
                Action::SetTpDst(port)
            });
        }
        of12::SET_MPLS_LABEL => {
            let label = body.u32()?;
            return if label > 0xf_ffff { Err(OFPBAC_BAD_ARGUMENT) } else { Ok(Action::SetMplsLabel(label)) };
        }
        of12::SET_MPLS_TC => {
            let tc = body.u8()?;
            body.skip(3)?;
            return if tc > 7 { Err(OFPBAC_BAD_ARGUMENT) } else { Ok(Action::SetMplsTc(tc)) };
        }
        of12::SET_DL_SRC => (Mf::EthSrc, 6),
        of12::SET_DL_DST => (Mf::EthDst, 6),
        of12::SET_NW_SRC => (Mf::NwSrc, 4),
        of12::SET_NW_DST => (Mf::NwDst, 4),
        of12::SET_NW_TOS => (Mf::NwTos, 1),
        of12::SET_NW_ECN => (Mf::NwEcn, 1),
        _ => return Err(OFPBAC_BAD_TYPE),
    };
    let value = body.number(bytes)?;
    body.skip(body.len())?;
    let outside = match field {
        Mf::NwTos => value & 3 != 0,
        Mf::NwEcn => value > 3,
        _ => false,
    };
    if outside { Err(OFPBAC_BAD_ARGUMENT) } else { Ok(set_exactly(field, value)) }
}

/// OFPAT_COPY_FIELD: bits, offsets, two OXM headers.
fn read_copy_field(body: &mut Reader) -> Result<Action, ErrorKind> {
    let (count, source, target) = (body.u16()?, body.u16()?, body.u16()?);
    body.skip(2)?;
    let source = super::nicira::subfield(body, source, count, false)?;
    let target = super::nicira::subfield(body, target, count, true)?;
    body.zeros(body.len(), NXBAC_MUST_BE_ZERO)?;
    Ok(Action::Move { source, target })
}

pub(super) fn mpls_type(eth_type: u16) -> Result<u16, ErrorKind> {
    if eth_type == 0x8847 || eth_type == 0x8848 { Ok(eth_type) } else { Err(OFPBAC_BAD_ARGUMENT) }
}

/// The errors of a match entry, said of a set-field action.
pub(super) fn as_set_error(error: ErrorKind) -> ErrorKind {
    match error {
        OFPBMC_BAD_FIELD => OFPBAC_BAD_SET_TYPE,
        OFPBMC_BAD_LEN => OFPBAC_BAD_SET_LEN,
        OFPBMC_BAD_MASK | OFPBMC_BAD_WILDCARDS => OFPBAC_BAD_SET_MASK,
        OFPBMC_BAD_VALUE => OFPBAC_BAD_SET_ARGUMENT,
        other => other,
    }
}

/// An OXM entry and its padding: OFPAT_SET_FIELD and NXAST_REG_LOAD2.
pub(super) fn read_set_field(body: &mut Reader, may_mask: bool) -> Result<Action, ErrorKind> {
    let entry = match read_entry(body).map_err(as_set_error)? {
        AnyEntry::Field(entry) => entry,
        AnyEntry::Option(option) => {
            if option.mask != Wide::ONES && !may_mask {
                return Err(OFPBAC_BAD_SET_MASK);
            }
            body.zeros(body.len(), OFPBAC_BAD_SET_ARGUMENT)?;
            let (value, mask) = (Box::new(option.value), Box::new(option.mask));
            return Ok(Action::SetOption { idx: option.idx, value, mask });
        }
    };
    if entry.masked && !may_mask {
        return Err(OFPBAC_BAD_SET_MASK);
    }
    let no_tag = entry.mf == Mf::VlanVid && (entry.value & 0x1000 == 0 || entry.mask & 0x1000 == 0);
    if !entry.mf.row().writable || entry.mf == Mf::InPortOxm || no_tag {
        return Err(OFPBAC_BAD_SET_ARGUMENT);
    }
    body.zeros(body.len(), OFPBAC_BAD_SET_ARGUMENT)?;
    Ok(Action::SetField { field: entry.mf, value: entry.value, mask: entry.mask })
}

/// Whether an action set may hold it. Most extensions may not be in one, since a set has no order but that of its kinds.
fn may_be_in_set(action: &Action) -> bool {
    !matches!(
        action,
        Action::Enqueue { .. }
            | Action::PopQueue
            | Action::StackPush(_)
            | Action::StackPop(_)
            | Action::Controller { .. }
            | Action::OutputReg { .. }
            | Action::OutputTrunc { .. }
            | Action::DeleteField(_)
            | Action::Note(_)
            | Action::Exit
            | Action::Sample { .. }
            | Action::Clone(_)
            | Action::Conjunction { .. }
            | Action::FinTimeout { .. }
            | Action::CheckPktLarger { .. }
    )
}

/// The instructions of OpenFlow 1.1 and later, all of the bytes, in the order in which they are carried out: meter,
/// apply-actions (as its actions), clear-actions, write-actions, write-metadata, goto-table.
pub(in crate::codec) fn read_instructions(version: Version, mut r: Reader) -> Result<Vec<Action>, ErrorKind> {
    r = r.with_error(OFPBIC_BAD_LEN);
    let mut seen = 0u32;
    let (mut meter, mut write, mut metadata, mut goto) = (None, None, None, None);
    let mut apply: Option<Reader> = None;
    let mut clear = false;
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
        if !(instruction::GOTO_TABLE..=instruction::METER).contains(&kind) {
            return Err(OFPBIC_UNKNOWN_INST);
        }
        if seen & 1 << kind != 0 {
            return Err(OFPBIC_DUP_INST);
        }
        seen |= 1 << kind;
        match kind {
            instruction::GOTO_TABLE => {
                goto = Some(Action::GotoTable(body.u8()?));
                body.skip(3)?;
            }
            instruction::WRITE_METADATA => {
                body.skip(4)?;
                metadata = Some(Action::WriteMetadata { value: body.u64()?, mask: body.u64()? });
            }
            instruction::METER => meter = Some(Action::Meter(body.u32()?)),
            _ => {
                body.skip(4)?;
                match kind {
                    instruction::WRITE_ACTIONS => {
                        let set = read_actions(version, body)?;
                        if !set.iter().all(may_be_in_set) {
                            return Err(OFPBAC_BAD_TYPE);
                        }
                        write = Some(Action::WriteActions(set));
                    }
                    instruction::APPLY_ACTIONS => apply = Some(body),
                    _ => {
                        clear = true;
                        body.end()?;
                    }
                }
                continue;
            }
        }
        body.end()?;
    }
    let mut actions = Vec::with_capacity(seen.count_ones() as usize);
    actions.extend(meter);
    if let Some(apply) = apply {
        append_actions(version, apply, &mut actions, 0)?;
    }
    actions.extend(clear.then_some(Action::ClearActions));
    actions.extend(write);
    actions.extend(metadata);
    actions.extend(goto);
    Ok(actions)
}
