//! Flow-mods, flow-removed, and flows in statistics.

use super::bytes::{Put, Reader};
use super::header::Codec;
use super::kind::{Kind, NICIRA, nxt};
use super::match10;
use super::matching::{read_match, read_nxm_match, write_match, write_nxm_match};
use super::oxs::{self, Oxs};
use crate::action::{read_flow_actions, read_instructions, write_actions, write_instructions};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    FlowFlags, FlowForm, FlowInfo, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats,
    FlowStatsRef, FlowStatsRequest, TABLE_ALL,
};
use crate::version::Version;
use base::OfPort;
use flow::{Action, Match};

/// "None" for buffers, groups and (in the 32-bit form) ports.
pub(super) const NONE32: u32 = u32::MAX;

/// The port of a filter: `None` for OFPP_NONE, which is OFPP_ANY in OpenFlow 1.1 and later.
pub(super) fn filter_port16(number: u16) -> Option<OfPort> {
    (number != OfPort::NONE.0).then_some(OfPort(number))
}

/// An invalid port number is always reported as an error of an action's port, as in Open vSwitch.
pub(super) fn filter_port32(number: u32) -> Result<Option<OfPort>, ErrorKind> {
    let port = OfPort::from_u32(number).ok_or(OFPBAC_BAD_OUT_PORT)?;
    Ok((port != OfPort::NONE).then_some(port))
}

pub(super) fn port32(port: Option<OfPort>) -> u32 {
    port.unwrap_or(OfPort::NONE).to_u32()
}

pub(super) fn port16(port: Option<OfPort>) -> u16 {
    port.unwrap_or(OfPort::NONE).0
}

/// OpenFlow 1.0's OFPFF_EMERG; no switch of today has an emergency table.
const EMERGENCY10: u16 = 1 << 2;

fn read_flags(
    version: Version,
    bits: u16,
    command: FlowModCommand,
    has_timeout: bool,
) -> Result<FlowFlags, ErrorKind> {
    let known = match version {
        Version::V10 | Version::V11 => FlowFlags::SEND_FLOW_REM | FlowFlags::CHECK_OVERLAP,
        Version::V12 => FlowFlags::SEND_FLOW_REM | FlowFlags::CHECK_OVERLAP | FlowFlags::RESET_COUNTS,
        _ => FlowFlags::all(),
    };
    let emergency = if version == Version::V10 { EMERGENCY10 } else { 0 };
    if bits & !known.bits() & !emergency != 0 {
        return Err(OFPFMFC_BAD_FLAGS);
    }
    if bits & emergency != 0 {
        return Err(if has_timeout { OFPFMFC_BAD_EMERG_TIMEOUT } else { OFPFMFC_TABLE_FULL });
    }
    let mut flags = FlowFlags::from_bits_truncate(bits);
    if version <= Version::V11 && command == FlowModCommand::Add {
        flags |= FlowFlags::RESET_COUNTS;
    }
    Ok(flags)
}

fn flags_bits(version: Version, flags: FlowFlags) -> u16 {
    match version {
        Version::V10 | Version::V11 => (flags & (FlowFlags::SEND_FLOW_REM | FlowFlags::CHECK_OVERLAP)).bits(),
        Version::V12 => (flags - FlowFlags::NO_PACKET_COUNTS - FlowFlags::NO_BYTE_COUNTS).bits(),
        _ => flags.bits(),
    }
}

pub(super) fn read_flow_mod(codec: &Codec, r: &mut Reader) -> Result<Box<FlowMod>, ErrorKind> {
    if codec.version != Version::V10 {
        return read_flow_mod12(codec.version, r);
    }
    let fixed = *r;
    r.skip(40)?;
    let common = read_common(r)?;
    let mut flow_mod = common.named(codec)?;
    flow_mod.matching = match10::read_normalized(&mut { fixed })?;
    if fits_exactly10(fixed)? {
        // A match without wildcards takes precedence over everything else.
        flow_mod.priority = u16::MAX;
    }
    common.finish(codec.version, r, flow_mod)
}

/// Whether an OpenFlow 1.0 match has no wildcards.
fn fits_exactly10(mut fixed: Reader) -> Result<bool, ErrorKind> {
    Ok(fixed.u32()? & match10::OFPFW_ALL == 0)
}

/// NXT_FLOW_MOD.
pub(super) fn read_nx_flow_mod(codec: &Codec, r: &mut Reader) -> Result<Box<FlowMod>, ErrorKind> {
    let common = read_common(r)?;
    let match_len = r.u16()?;
    r.skip(6)?;
    let mut filter = (0, 0);
    let matching = read_nxm_match(r, match_len, Some(&mut filter))?;
    if common.command & 0xff == FlowModCommand::Add as u16 && filter.1 != 0 {
        // Searching by cookie makes no sense if nothing is searched.
        return Err(NXBRC_NXM_INVALID);
    }
    let mut flow_mod = common.named(codec)?;
    flow_mod.form = FlowForm::Nxm;
    (flow_mod.cookie, flow_mod.cookie_mask) = filter;
    flow_mod.matching = matching;
    common.finish(codec.version, r, flow_mod)
}

fn read_command(codec: &Codec, command: u16) -> Result<(FlowModCommand, u8), ErrorKind> {
    let (number, table_id) =
        if codec.names_tables() { (command & 0xff, (command >> 8) as u8) } else { (command, TABLE_ALL) };
    let number = u8::try_from(number).map_err(|_| OFPFMFC_BAD_COMMAND)?;
    Ok((FlowModCommand::from_wire(number).ok_or(OFPFMFC_BAD_COMMAND)?, table_id))
}

/// The part from cookie to flags, which OpenFlow 1.0 and the Nicira form have in common.
struct Common {
    cookie: u64,
    command: u16,
    idle_timeout: u16,
    hard_timeout: u16,
    priority: u16,
    buffer_id: u32,
    out_port: u16,
    flags: u16,
}

fn read_common(r: &mut Reader) -> Result<Common, ErrorKind> {
    Ok(Common {
        cookie: r.u64()?,
        command: r.u16()?,
        idle_timeout: r.u16()?,
        hard_timeout: r.u16()?,
        priority: r.u16()?,
        buffer_id: r.u32()?,
        out_port: r.u16()?,
        flags: r.u16()?,
    })
}

/// Of several faults, the same is reported as in Open vSwitch: the match's before the command's, then those
/// of the actions, and the flags' last.
impl Common {
    /// A flow-mod without match, actions and flags.
    fn named(&self, codec: &Codec) -> Result<Box<FlowMod>, ErrorKind> {
        let (command, table_id) = read_command(codec, self.command)?;
        // All ones in a modify means: leave the cookie alone, and do not add.
        let new_cookie = (command == FlowModCommand::Add || self.cookie != u64::MAX).then_some(self.cookie);
        Ok(FlowMod {
            form: FlowForm::Standard,
            command,
            table_id,
            cookie: 0,
            cookie_mask: 0,
            new_cookie,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            priority: self.priority,
            buffer_id: (self.buffer_id != NONE32 && !command.is_delete()).then_some(self.buffer_id),
            out_port: filter_port16(self.out_port),
            out_group: None,
            flags: FlowFlags::empty(),
            importance: 0,
            matching: Match::any(),
            actions: Vec::new(),
        }
        .boxed())
    }

    /// Reads the actions, which are the rest, and the flags.
    fn finish(
        &self,
        version: Version,
        r: &mut Reader,
        mut flow_mod: Box<FlowMod>,
    ) -> Result<Box<FlowMod>, ErrorKind> {
        // From OpenFlow 1.1 on, even Nicira's form has instructions.
        flow_mod.actions = match version {
            Version::V10 => read_flow_actions(version, *r)?,
            version => read_instructions(version, *r)?,
        };
        r.skip(r.len())?;
        let has_timeout = self.idle_timeout != 0 || self.hard_timeout != 0;
        flow_mod.flags = read_flags(version, self.flags, flow_mod.command, has_timeout)?;
        Ok(flow_mod)
    }
}

fn read_flow_mod12(version: Version, r: &mut Reader) -> Result<Box<FlowMod>, ErrorKind> {
    let (cookie, cookie_mask, table_id) = (r.u64()?, r.u64()?, r.u8()?);
    let command = FlowModCommand::from_wire(r.u8()?);
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port, out_group) = (r.u32()?, r.u32()?, r.u32()?);
    let (flags, importance) = (r.u16()?, r.u16()?);
    // Of several faults, the same is reported as in Open vSwitch.
    let matching = read_match(r)?;
    // OpenFlow 1.1 has no "all tables"; later versions have it for deletions.
    let may_be_all = version > Version::V11 && command.is_some_and(FlowModCommand::is_delete);
    if table_id == TABLE_ALL && !may_be_all {
        return Err(OFPFMFC_BAD_TABLE_ID);
    }
    let out_port = filter_port32(out_port)?;
    let command = command.ok_or(OFPFMFC_BAD_COMMAND)?;
    let is_delete = command.is_delete();
    let is_add = command == FlowModCommand::Add;
    // In OpenFlow 1.1 a modify that does not search by cookie adds what it does not find, unless its cookie
    // is all ones.
    let adds = version == Version::V11 && !is_delete && cookie_mask == 0;
    let may_add = is_add || adds;
    let actions = read_instructions(version, *r)?;
    r.skip(r.len())?;
    let flags = read_flags(version, flags, command, false)?;
    Ok(FlowMod {
        form: FlowForm::Standard,
        command,
        table_id,
        cookie: if may_add { 0 } else { cookie & cookie_mask },
        cookie_mask: if may_add { 0 } else { cookie_mask },
        new_cookie: (is_add || adds && cookie != u64::MAX).then_some(cookie),
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id: (buffer_id != NONE32 && !is_delete).then_some(buffer_id),
        out_port,
        out_group: (is_delete && out_group != NONE32).then_some(out_group),
        flags,
        importance: if version >= Version::V14 { importance } else { 0 },
        matching,
        actions,
    }
    .boxed())
}

pub(super) fn write_flow_mod(codec: &Codec, out: &mut Vec<u8>, m: &FlowMod) -> Kind {
    let version = codec.version;
    let is_delete = m.command.is_delete();
    let header_cookie = match m.new_cookie {
        Some(cookie) => cookie,
        None if is_delete => 0,
        None => u64::MAX,
    };
    if m.form == FlowForm::Nxm {
        out.u32(NICIRA);
        out.u32(nxt::FLOW_MOD);
        out.u64(header_cookie);
        write_common(codec, out, m);
        let length_at = out.len();
        out.zeros(8);
        let length = write_nxm_match(out, &m.matching, 0, (m.cookie, m.cookie_mask));
        out.set_u16(length_at, length);
        match version {
            Version::V10 => write_actions(out, version, Some(&m.matching), &m.actions),
            version => write_instructions(out, version, &m.matching, &m.actions),
        }
        return Kind::Experimenter;
    }
    if version == Version::V10 {
        match10::write(out, &m.matching);
        out.u64(header_cookie);
        write_common(codec, out, m);
        write_actions(out, version, Some(&m.matching), &m.actions);
        return Kind::FlowMod;
    }
    let may_add = m.command == FlowModCommand::Add || version == Version::V11 && m.cookie_mask == 0;
    out.u64(m.new_cookie.filter(|_| may_add).unwrap_or(m.cookie));
    out.u64(m.cookie_mask);
    out.u8(m.table_id);
    out.u8(m.command as u8);
    [m.idle_timeout, m.hard_timeout, m.priority].into_iter().for_each(|n| out.u16(n));
    out.u32(m.buffer_id.unwrap_or(NONE32));
    out.u32(port32(m.out_port));
    out.u32(m.out_group.unwrap_or(NONE32));
    out.u16(flags_bits(version, m.flags));
    out.u16(if version >= Version::V14 { m.importance } else { 0 });
    write_match(version, out, &m.matching);
    write_instructions(out, version, &m.matching, &m.actions);
    Kind::FlowMod
}

fn write_common(codec: &Codec, out: &mut Vec<u8>, m: &FlowMod) {
    let table = if codec.names_tables() { u16::from(m.table_id) << 8 } else { 0 };
    out.u16(table | m.command as u16);
    [m.idle_timeout, m.hard_timeout, m.priority].into_iter().for_each(|n| out.u16(n));
    out.u32(m.buffer_id.unwrap_or(NONE32));
    out.u16(port16(m.out_port));
    out.u16(flags_bits(codec.version, m.flags));
}

pub(super) fn read_flow_removed(version: Version, r: &mut Reader) -> Result<Box<FlowRemoved>, ErrorKind> {
    let v10 = version == Version::V10;
    if version >= Version::V15 {
        return read_flow_removed15(r);
    }
    let matching10 = if v10 { Some(match10::read(r)?) } else { None };
    let (cookie, priority) = (r.u64()?, r.u16()?);
    let (reason, table_id) = (read_reason(r.u8()?)?, r.u8()?);
    let (duration_s, duration_ns, idle_timeout) = (r.u32()?, r.u32()?, r.u16()?);
    let hard_timeout = r.u16()?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let matching = match matching10 {
        Some(matching) => matching,
        None => read_match(r)?,
    };
    Ok(Box::new(FlowRemoved {
        form: FlowForm::Standard,
        reason,
        table_id: if v10 { 0 } else { table_id },
        cookie,
        priority,
        duration_s,
        duration_ns,
        idle_timeout,
        hard_timeout: if v10 { 0 } else { hard_timeout },
        packet_count,
        byte_count,
        matching,
    }))
}

fn read_flow_removed15(r: &mut Reader) -> Result<Box<FlowRemoved>, ErrorKind> {
    let (table_id, reason, priority) = (r.u8()?, read_reason(r.u8()?)?, r.u16()?);
    let (idle_timeout, hard_timeout, cookie) = (r.u16()?, r.u16()?, r.u64()?);
    let matching = read_match(r)?;
    let oxs = oxs::read(r)?;
    let (duration_s, duration_ns) = oxs.duration.unwrap_or((u32::MAX, u32::MAX));
    Ok(Box::new(FlowRemoved {
        form: FlowForm::Standard,
        reason,
        table_id,
        cookie,
        priority,
        duration_s,
        duration_ns,
        idle_timeout,
        hard_timeout,
        packet_count: oxs.packet_count.unwrap_or(u64::MAX),
        byte_count: oxs.byte_count.unwrap_or(u64::MAX),
        matching,
    }))
}

/// Counters of a flow in OpenFlow 1.5's list form.
fn oxs_of(duration: (u32, u32), idle_s: Option<u16>, counts: (u64, u64)) -> Oxs {
    Oxs {
        duration: Some(duration),
        idle_s: idle_s.map(u32::from),
        flow_count: None,
        packet_count: (counts.0 != u64::MAX).then_some(counts.0),
        byte_count: (counts.1 != u64::MAX).then_some(counts.1),
    }
}

pub(super) fn read_reason(number: u8) -> Result<FlowRemovedReason, ErrorKind> {
    FlowRemovedReason::from_wire(number).ok_or(NXBRC_BAD_REASON)
}

/// NXT_FLOW_REMOVED.
pub(super) fn read_nx_flow_removed(r: &mut Reader) -> Result<Box<FlowRemoved>, ErrorKind> {
    let (cookie, priority) = (r.u64()?, r.u16()?);
    let (reason, table) = (read_reason(r.u8()?)?, r.u8()?);
    let (duration_s, duration_ns, idle_timeout, match_len) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    Ok(Box::new(FlowRemoved {
        form: FlowForm::Nxm,
        reason,
        // The number plus one on the wire.
        table_id: table.saturating_sub(1),
        cookie,
        priority,
        duration_s,
        duration_ns,
        idle_timeout,
        hard_timeout: 0,
        packet_count,
        byte_count,
        matching: read_nxm_match(r, match_len, None)?,
    }))
}

pub(super) fn write_flow_removed(version: Version, out: &mut Vec<u8>, m: &FlowRemoved) -> Kind {
    let (nxm, v10) = (m.form == FlowForm::Nxm, version == Version::V10);
    if version >= Version::V15 && !nxm {
        out.u8(m.table_id);
        out.u8(m.reason as u8);
        [m.priority, m.idle_timeout, m.hard_timeout].into_iter().for_each(|n| out.u16(n));
        out.u64(m.cookie);
        write_match(version, out, &m.matching);
        oxs::write(out, oxs_of((m.duration_s, m.duration_ns), None, (m.packet_count, m.byte_count)));
        return Kind::FlowRemoved;
    }
    if nxm {
        out.u32(NICIRA);
        out.u32(nxt::FLOW_REMOVED);
    } else if v10 {
        match10::write(out, &m.matching);
    }
    out.u64(m.cookie);
    out.u16(m.priority);
    // Older versions know the first three reasons.
    out.u8(if v10 && m.reason as u8 > 2 { FlowRemovedReason::Delete as u8 } else { m.reason as u8 });
    out.u8(match (nxm, v10) {
        (true, _) => m.table_id.saturating_add(1),
        (false, true) => 0,
        (false, false) => m.table_id,
    });
    out.u32(m.duration_s);
    out.u32(m.duration_ns);
    out.u16(m.idle_timeout);
    let length_at = out.len();
    out.u16(if nxm || v10 { 0 } else { m.hard_timeout });
    out.u64(m.packet_count);
    out.u64(m.byte_count);
    if nxm {
        let length = write_nxm_match(out, &m.matching, 0, (0, 0));
        out.set_u16(length_at, length);
        return Kind::Experimenter;
    }
    if !v10 {
        write_match(version, out, &m.matching);
    }
    Kind::FlowRemoved
}

/// The body of OFPST_FLOW and OFPST_AGGREGATE requests, or of NXST_*.
pub(super) fn read_flow_stats_request(
    version: Version,
    form: FlowForm,
    r: &mut Reader,
) -> Result<Box<FlowStatsRequest>, ErrorKind> {
    let mut request = Box::new(FlowStatsRequest { form, ..FlowStatsRequest::default() });
    if form == FlowForm::Nxm {
        request.out_port = filter_port16(r.u16()?);
        let match_len = r.u16()?;
        request.table_id = r.u8()?;
        r.skip(3)?;
        let mut cookie = (0, 0);
        request.matching = read_nxm_match(r, match_len, Some(&mut cookie))?;
        (request.cookie, request.cookie_mask) = cookie;
    } else if version == Version::V10 {
        request.matching = match10::read_normalized(r)?;
        request.table_id = r.u8()?;
        r.skip(1)?;
        request.out_port = filter_port16(r.u16()?);
    } else {
        request.table_id = r.u8()?;
        r.skip(3)?;
        request.out_port = filter_port32(r.u32()?)?;
        let group = r.u32()?;
        request.out_group = (group != NONE32).then_some(group);
        r.skip(4)?;
        (request.cookie, request.cookie_mask) = (r.u64()?, r.u64()?);
        request.matching = read_match(r)?;
    }
    Ok(request)
}

pub(super) fn write_flow_stats_request(version: Version, out: &mut Vec<u8>, m: &FlowStatsRequest) {
    if m.form == FlowForm::Nxm {
        out.u16(port16(m.out_port));
        let length_at = out.len();
        out.u16(0);
        out.u8(m.table_id);
        out.zeros(3);
        let length = write_nxm_match(out, &m.matching, 0, (m.cookie, m.cookie_mask));
        out.set_u16(length_at, length);
    } else if version == Version::V10 {
        match10::write(out, &m.matching);
        out.u8(m.table_id);
        out.u8(0);
        out.u16(port16(m.out_port));
    } else {
        out.u8(m.table_id);
        out.zeros(3);
        out.u32(port32(m.out_port));
        out.u32(m.out_group.unwrap_or(NONE32));
        out.zeros(4);
        out.u64(m.cookie);
        out.u64(m.cookie_mask);
        write_match(version, out, &m.matching);
    }
}

/// Ages are on the wire plus one, 0 meaning unknown.
fn age_from_wire(age: u16) -> Option<u16> {
    age.checked_sub(1)
}

fn age_to_wire(age: Option<u16>) -> u16 {
    age.map_or(0, |age| age.saturating_add(1))
}

/// One entry of a flow statistics reply.
pub(super) fn read_flow_stats(
    version: Version,
    form: FlowForm,
    r: &mut Reader,
) -> Result<FlowStats, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    let r = &mut r;
    if version >= Version::V15 && form == FlowForm::Standard {
        return read_flow_stats15(version, r);
    }
    let mut info = FlowInfo { table_id: r.u8()?, ..FlowInfo::default() };
    r.skip(1)?;
    let v10 = version == Version::V10 && form == FlowForm::Standard;
    let mut matching = if v10 { match10::read(r)? } else { Match::any() };
    info.duration_s = r.u32()?;
    info.duration_ns = r.u32()?;
    info.priority = r.u16()?;
    info.idle_timeout = r.u16()?;
    info.hard_timeout = r.u16()?;
    let mut match_len = 0;
    if form == FlowForm::Nxm {
        match_len = r.u16()?;
        info.idle_age = age_from_wire(r.u16()?);
        info.hard_age = age_from_wire(r.u16()?);
    } else if v10 {
        r.skip(6)?;
    } else {
        let flags = r.u16()?;
        // The field is padding before OpenFlow 1.3.
        info.flags = FlowFlags::from_bits_truncate(if version >= Version::V13 { flags } else { 0 });
        info.importance = r.u16()?;
        r.skip(2)?;
    }
    info.cookie = r.u64()?;
    info.packet_count = r.u64()?;
    info.byte_count = r.u64()?;
    let actions: Vec<Action>;
    if form == FlowForm::Nxm {
        matching = read_nxm_match(r, match_len, None)?;
        actions = read_flow_actions(version, *r)?;
    } else if v10 {
        actions = read_flow_actions(version, *r)?;
    } else {
        matching = read_match(r)?;
        actions = read_instructions(version, *r)?;
    }
    Ok(FlowStats { info, matching, actions })
}

fn read_flow_stats15(version: Version, r: &mut Reader) -> Result<FlowStats, ErrorKind> {
    r.skip(2)?;
    let mut info = FlowInfo { table_id: r.u8()?, ..FlowInfo::default() };
    r.skip(1)?;
    (info.priority, info.idle_timeout, info.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    info.flags = FlowFlags::from_bits_truncate(r.u16()?);
    (info.importance, info.cookie) = (r.u16()?, r.u64()?);
    let matching = read_match(r)?;
    let oxs = oxs::read(r)?;
    (info.duration_s, info.duration_ns) = oxs.duration.unwrap_or((0, 0));
    info.idle_age = oxs.idle_s.map(|s| s.min(u16::MAX.into()) as u16);
    info.packet_count = oxs.packet_count.unwrap_or(u64::MAX);
    info.byte_count = oxs.byte_count.unwrap_or(u64::MAX);
    Ok(FlowStats { info, matching, actions: read_instructions(version, *r)? })
}

/// Appends one entry of a flow statistics reply.
pub(crate) fn write_flow_stats(version: Version, form: FlowForm, out: &mut Vec<u8>, flow: &FlowStatsRef) {
    let FlowStatsRef { info, matching, actions } = flow;
    let start = out.len();
    let v10 = version == Version::V10 && form == FlowForm::Standard;
    out.u16(0);
    if version >= Version::V15 && form == FlowForm::Standard {
        out.zeros(2);
        out.u8(info.table_id);
        out.u8(0);
        [
            info.priority,
            info.idle_timeout,
            info.hard_timeout,
            flags_bits(version, info.flags),
            info.importance,
        ]
        .into_iter()
        .for_each(|n| out.u16(n));
        out.u64(info.cookie);
        write_match(version, out, matching);
        let duration = (info.duration_s, info.duration_ns);
        oxs::write(out, oxs_of(duration, info.idle_age, (info.packet_count, info.byte_count)));
        write_instructions(out, version, matching, actions);
        let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
        return out.set_u16(start, length);
    }
    out.u8(info.table_id);
    out.u8(0);
    if v10 {
        match10::write(out, matching);
    }
    out.u32(info.duration_s);
    out.u32(info.duration_ns);
    [info.priority, info.idle_timeout, info.hard_timeout].into_iter().for_each(|n| out.u16(n));
    let length_at = out.len();
    if form == FlowForm::Nxm {
        out.u16(0);
        out.u16(age_to_wire(info.idle_age));
        out.u16(age_to_wire(info.hard_age));
    } else if v10 {
        out.zeros(6);
    } else {
        out.u16(if version >= Version::V13 { flags_bits(version, info.flags) } else { 0 });
        out.u16(if version >= Version::V14 { info.importance } else { 0 });
        out.zeros(2);
    }
    out.u64(info.cookie);
    out.u64(info.packet_count);
    out.u64(info.byte_count);
    if form == FlowForm::Nxm {
        let length = write_nxm_match(out, matching, 0, (0, 0));
        out.set_u16(length_at, length);
        write_actions(out, version, Some(matching), actions);
    } else if v10 {
        write_actions(out, version, Some(matching), actions);
    } else {
        write_match(version, out, matching);
        write_instructions(out, version, matching, actions);
    }
    // A reply message is cut between entries; one longer than any message is dealt with there.
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out.set_u16(start, length);
}
