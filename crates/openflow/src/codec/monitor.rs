//! Flow monitors on the wire: the Nicira extension (OpenFlow 1.0 to 1.3), the Open Networking Foundation's to
//! 1.3, and OpenFlow 1.4's own. Sources: OpenFlow 1.4 sections 7.3.5.17 and 7.4.6; ovs-ofctl(8).

use super::bytes::{Put, Reader};
use super::flows::{NONE32, filter_port16, filter_port32, port16, port32, read_reason};
use super::matching::{read_match, read_nxm_match, write_match, write_nxm_match};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    FlowEvent, FlowMonitorCommand, FlowMonitorFlags, FlowMonitorRequest, FlowRemovedReason, FlowUpdate,
    FlowUpdateFull,
};
use crate::version::Version;

/// OpenFlow 1.4's OFPFMF_NO_ABBREV, which Open vSwitch does not take, and OFPFMF_ONLY_OWN; the bits below are
/// those of the extension.
const NO_ABBREV14: u16 = 1 << 5;
const ONLY_OWN14: u16 = 1 << 6;

/// NXFME_ABBREV.
const ABBREVIATED: u16 = 3;
/// OpenFlow 1.4's OFPFME_*; the lower ones (initial, added, removed, modified) have bodies.
const ABBREVIATED14: u16 = 4;
const PAUSED14: u16 = 5;
const RESUMED14: u16 = 6;

/// Refuses what watches no event.
fn check(flags: FlowMonitorFlags) -> Result<FlowMonitorFlags, ErrorKind> {
    let events = FlowMonitorFlags::ADD | FlowMonitorFlags::DELETE | FlowMonitorFlags::MODIFY;
    if flags.intersects(events) { Ok(flags) } else { Err(OFPMOFC_BAD_FLAGS) }
}

/// Refuses a request that is shorter than what comes before its match, in all forms.
fn has_head(r: &Reader) -> Result<(), ErrorKind> {
    if r.len() < 16 { Err(OFPBRC_BAD_LEN) } else { Ok(()) }
}

/// NXST_FLOW_MONITOR.
pub(super) fn read_nx_request(r: &mut Reader) -> Result<FlowMonitorRequest, ErrorKind> {
    has_head(r)?;
    let id = r.u32()?;
    let flags = check(FlowMonitorFlags::from_bits(r.u16()?).ok_or(OFPMOFC_BAD_FLAGS)?)?;
    let (out_port, match_len, table_id) = (filter_port16(r.u16()?), r.u16()?, r.u8()?);
    r.zeros(5, NXBRC_MUST_BE_ZERO)?;
    let matching = read_nxm_match(r, match_len, None)?;
    Ok(FlowMonitorRequest {
        id,
        flags,
        out_port,
        out_group: None,
        table_id,
        matching,
        command: FlowMonitorCommand::Add,
    })
}

/// OFPST_FLOW_MONITOR, and its extension to 1.3.
pub(super) fn read_request(version: Version, r: &mut Reader) -> Result<FlowMonitorRequest, ErrorKind> {
    has_head(r)?;
    let id = r.u32()?;
    if version == Version::V13 {
        let flags = check(FlowMonitorFlags::from_bits(r.u16()?).ok_or(OFPMOFC_BAD_FLAGS)?)?;
        r.skip(2)?;
        let (out_port, table_id) = (filter_port32(r.u32()?)?, r.u8()?);
        r.zeros(3, NXBRC_MUST_BE_ZERO)?;
        let matching = read_match(r)?;
        let command = FlowMonitorCommand::Add;
        return Ok(FlowMonitorRequest { id, flags, out_port, out_group: None, table_id, matching, command });
    }
    let (port, out_group) = (r.u32()?, r.u32()?);
    let (bits, table_id, command) = (r.u16()?, r.u8()?, r.u8()?);
    let command = match command {
        0 => FlowMonitorCommand::Add,
        1 => FlowMonitorCommand::Modify,
        2 => FlowMonitorCommand::Delete,
        _ => return Err(OFPMOFC_BAD_COMMAND),
    };
    let mut flags = FlowMonitorFlags::from_bits_truncate(bits & (NO_ABBREV14 - 1));
    flags.set(FlowMonitorFlags::OWN, bits & ONLY_OWN14 != 0);
    let mut out_port = None;
    // Of one that goes, only its number counts.
    if command != FlowMonitorCommand::Delete {
        if bits & !(ONLY_OWN14 | (NO_ABBREV14 - 1)) != 0 {
            return Err(OFPMOFC_BAD_FLAGS);
        }
        check(flags)?;
        out_port = filter_port32(port)?;
    }
    let out_group = (out_group != NONE32).then_some(out_group);
    Ok(FlowMonitorRequest { id, flags, out_port, out_group, table_id, matching: read_match(r)?, command })
}

pub(super) fn write_request(version: Version, out: &mut Vec<u8>, m: &FlowMonitorRequest) {
    out.u32(m.id);
    if version >= Version::V14 {
        let own = if m.flags.contains(FlowMonitorFlags::OWN) { ONLY_OWN14 } else { 0 };
        out.u32(port32(m.out_port));
        out.u32(m.out_group.unwrap_or(NONE32));
        out.u16((m.flags - FlowMonitorFlags::OWN).bits() | own);
        out.u8(m.table_id);
        out.u8(m.command as u8);
        return write_match(version, out, &m.matching);
    }
    out.u16(m.flags.bits());
    if version == Version::V13 {
        let length_at = out.len();
        out.u16(0);
        out.u32(port32(m.out_port));
        out.u8(m.table_id);
        out.zeros(3);
        let match_at = out.len();
        write_match(version, out, &m.matching);
        // The length that the match itself gives, without its padding.
        let length = u16::from_be_bytes([out[match_at + 2], out[match_at + 3]]);
        return out.set_u16(length_at, length);
    }
    out.u16(port16(m.out_port));
    let length_at = out.len();
    out.u16(0);
    out.u8(m.table_id);
    out.zeros(5);
    let length = write_nxm_match(out, &m.matching, 0, (0, 0));
    out.set_u16(length_at, length);
}

fn entry<'a>(r: &mut Reader<'a>) -> Result<(u16, Reader<'a>), ErrorKind> {
    let (length, event) = (usize::from(r.u16()?), r.u16()?);
    Ok((event, r.sub(length.checked_sub(4).ok_or(OFPBRC_BAD_LEN)?)?))
}

fn abbreviated(mut r: Reader) -> Result<FlowUpdate, ErrorKind> {
    let xid = r.u32()?;
    r.end()?;
    Ok(FlowUpdate::Abbreviated { xid })
}

/// The reason for a deletion; meaningless for other events.
fn reason(event: FlowEvent, number: u16) -> Result<FlowRemovedReason, ErrorKind> {
    if event != FlowEvent::Deleted {
        return Ok(FlowRemovedReason::IdleTimeout);
    }
    read_reason(number.min(255) as u8)
}

/// An entry of NXST_FLOW_MONITOR.
pub(super) fn read_nx_update(version: Version, r: &mut Reader) -> Result<FlowUpdate, ErrorKind> {
    read_update13(version, r, true)
}

/// The extension to OpenFlow 1.3 has the numbers of Nicira's, with a match of the standard.
fn read_update13(version: Version, r: &mut Reader, nxm: bool) -> Result<FlowUpdate, ErrorKind> {
    let (event, mut r) = entry(r)?;
    let event = match event {
        0 => FlowEvent::Added,
        1 => FlowEvent::Deleted,
        2 => FlowEvent::Modified,
        ABBREVIATED => return abbreviated(r),
        _ => return Err(NXBRC_FM_BAD_EVENT),
    };
    let reason = reason(event, r.u16()?)?;
    let (priority, idle_timeout, hard_timeout, match_len) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
    let table_id = r.u8()?;
    r.skip(1)?;
    let cookie = r.u64()?;
    let matching = if nxm { read_nxm_match(&mut r, match_len, None)? } else { read_match(&mut r)? };
    let actions = if nxm {
        crate::action::read_flow_actions(version, r)?
    } else {
        crate::action::read_instructions(version, r)?
    };
    Ok(FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        reason,
        priority,
        idle_timeout,
        hard_timeout,
        table_id,
        cookie,
        matching,
        actions,
    })))
}

/// An entry of OFPST_FLOW_MONITOR, or of its extension to 1.3.
pub(super) fn read_update(version: Version, r: &mut Reader) -> Result<FlowUpdate, ErrorKind> {
    if version == Version::V13 {
        return read_update13(version, r, false);
    }
    let (event, mut r) = entry(r)?;
    let event = match event {
        0 => FlowEvent::Initial,
        1 => FlowEvent::Added,
        2 => FlowEvent::Deleted,
        3 => FlowEvent::Modified,
        ABBREVIATED14 => return abbreviated(r),
        PAUSED14 => return Ok(FlowUpdate::Paused),
        RESUMED14 => return Ok(FlowUpdate::Resumed),
        _ => return Err(NXBRC_FM_BAD_EVENT),
    };
    let table_id = r.u8()?;
    let reason = reason(event, r.u8()?.into())?;
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(4)?;
    let cookie = r.u64()?;
    let matching = read_match(&mut r)?;
    let actions = crate::action::read_instructions(version, r)?;
    Ok(FlowUpdate::Full(Box::new(FlowUpdateFull {
        event,
        reason,
        priority,
        idle_timeout,
        hard_timeout,
        table_id,
        cookie,
        matching,
        actions,
    })))
}

pub(crate) fn write_update(version: Version, out: &mut Vec<u8>, update: &FlowUpdate) {
    let start = out.len();
    let v14 = version >= Version::V14;
    out.u16(0);
    match update {
        FlowUpdate::Abbreviated { xid } => {
            out.u16(if v14 { ABBREVIATED14 } else { ABBREVIATED });
            out.u32(*xid);
        }
        FlowUpdate::Paused | FlowUpdate::Resumed => {
            out.u16(if *update == FlowUpdate::Paused { PAUSED14 } else { RESUMED14 });
            out.zeros(4);
        }
        FlowUpdate::Full(u) => {
            let reason = if u.event == FlowEvent::Deleted { u.reason as u8 } else { 0 };
            if v14 {
                out.u16(if u.event == FlowEvent::Initial { 0 } else { u.event as u16 + 1 });
                out.u8(u.table_id);
                out.u8(reason);
                [u.idle_timeout, u.hard_timeout, u.priority, 0, 0].into_iter().for_each(|n| out.u16(n));
                out.u64(u.cookie);
                write_match(version, out, &u.matching);
                crate::action::write_instructions(out, version, &u.matching, &u.actions);
            } else {
                let event = if u.event == FlowEvent::Initial { FlowEvent::Added } else { u.event };
                out.u16(event as u16);
                out.u16(reason.into());
                [u.priority, u.idle_timeout, u.hard_timeout].into_iter().for_each(|n| out.u16(n));
                let length_at = out.len();
                out.u16(0);
                out.u8(u.table_id);
                out.u8(0);
                out.u64(u.cookie);
                if version == Version::V13 {
                    let match_at = out.len();
                    write_match(version, out, &u.matching);
                    let length = u16::from_be_bytes([out[match_at + 2], out[match_at + 3]]);
                    out.set_u16(length_at, length);
                    crate::action::write_instructions(out, version, &u.matching, &u.actions);
                    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
                    return out.set_u16(start, length);
                }
                let length = write_nxm_match(out, &u.matching, 0, (0, 0));
                out.set_u16(length_at, length);
                crate::action::write_actions(out, version, Some(&u.matching), &u.actions);
            }
        }
    }
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out.set_u16(start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_watch_events_and_flags_that_there_are() {
        let request = |flags: u16, command: u8| {
            let mut bytes = vec![0, 0, 0, 1, 0, 0, 0, 10, 0xff, 0xff, 0xff, 0xff];
            bytes.u16(flags);
            bytes.extend([0xff, command, 0, 1, 0, 4, 0, 0, 0, 0]);
            read_request(Version::V14, &mut Reader::new(&bytes, OFPBRC_BAD_LEN)).map(drop)
        };
        // What there is, with actions: no event. Nothing abbreviated: not known to Open vSwitch.
        for (flags, expected) in [(0x01, false), (0x11, false), (0x02, true), (0x42, true), (0x22, false)] {
            assert_eq!(
                request(flags, 0),
                if expected { Ok(()) } else { Err(OFPMOFC_BAD_FLAGS) },
                "{flags:x}"
            );
            assert_eq!(request(flags, 2), Ok(()), "{flags:x}");
        }
    }
}
