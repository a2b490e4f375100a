//! Groups on the wire.
//!
//! OpenFlow 1.1 to 1.4 use one form, 1.5 another in which buckets have numbers and properties. The extension
//! to 1.0 uses that of 1.5. Sources: OpenFlow 1.3 section 7.3.4.2, 1.5 sections 7.3.4.3 and 7.3.5.9.

use super::bytes::{Put, Reader, read_list};
use super::flows::NONE32;
use super::matching::{read_header, write_header};
use super::property::{EXPERIMENTER, read_property, write_property};
use crate::action::{read_actions, write_actions};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    BUCKET_ALL, BUCKET_MAX, Bucket, GroupCommand, GroupDesc, GroupMod, GroupSelection, GroupStats, GroupType,
};
use crate::version::Version;
use base::OfPort;
use flow::Mf;
use flow::mf::NxmHeader;

/// Properties of a bucket (OFPGBPT_*).
const WEIGHT: u16 = 0;
const WATCH_PORT: u16 = 1;
const WATCH_GROUP: u16 = 2;
/// The experimenter Netronome, and its one property.
const NETRONOME: u32 = 0x0000_154d;
/// Open vSwitch 2.4 had its number wrong.
const NETRONOME_WRONG: u32 = 0x0000_1540;
const SELECTION_METHOD: u32 = 1;
/// Length of the name of a selection method.
const METHOD_LEN: usize = 16;
/// Headers of fields are those of OpenFlow 1.5 in every version.
const FIELDS_MINOR: u8 = 5;

/// Whether buckets have numbers in a version.
fn has_bucket_ids(version: Version) -> bool {
    version >= Version::V15 || version == Version::V10
}

fn watch(number: u32, is_port: bool) -> Result<(Option<OfPort>, Option<u32>), ErrorKind> {
    if !is_port {
        return Ok((None, (number != NONE32).then_some(number)));
    }
    let port = OfPort::from_u32(number).ok_or(OFPGMFC_BAD_WATCH)?;
    Ok(((port != OfPort::NONE).then_some(port), None))
}

fn read_buckets(version: Version, kind: GroupType, mut r: Reader) -> Result<Vec<Bucket>, ErrorKind> {
    let mut buckets: Vec<Bucket> = Vec::new();
    r = r.with_error(OFPGMFC_BAD_BUCKET);
    while !r.is_empty() {
        let length = usize::from(r.u16()?);
        if length % 8 != 0 {
            return Err(OFPGMFC_BAD_BUCKET);
        }
        let mut b = r.sub(length.checked_sub(2).ok_or(OFPGMFC_BAD_BUCKET)?)?;
        let bucket = if has_bucket_ids(version) {
            read_bucket15(version, kind, &mut b)?
        } else {
            let mut bucket = Bucket { id: buckets.len() as u32, weight: b.u16()?, ..Bucket::default() };
            bucket.watch_port = watch(b.u32()?, true)?.0;
            bucket.watch_group = watch(b.u32()?, false)?.1;
            b.skip(4)?;
            bucket.actions = read_actions(version, b)?;
            bucket
        };
        if has_bucket_ids(version) && buckets.iter().any(|other| other.id == bucket.id) {
            return Err(OFPGMFC_BAD_BUCKET);
        }
        buckets.push(bucket);
    }
    Ok(buckets)
}

fn read_bucket15(version: Version, kind: GroupType, b: &mut Reader) -> Result<Bucket, ErrorKind> {
    let actions_len = usize::from(b.u16()?);
    let id = b.u32()?;
    if id > BUCKET_MAX {
        return Err(OFPGMFC_BAD_BUCKET);
    }
    let mut bucket = Bucket { id, weight: u16::from(kind == GroupType::Select), ..Bucket::default() };
    bucket.actions = read_actions(version, b.sub(actions_len)?)?;
    while !b.is_empty() {
        let (property, mut value) = read_property(b)?;
        match property {
            WEIGHT => bucket.weight = value.u16()?,
            WATCH_PORT => bucket.watch_port = watch(value.u32()?, true)?.0,
            WATCH_GROUP => bucket.watch_group = watch(value.u32()?, false)?.1,
            _ => return Err(OFPBPC_BAD_TYPE),
        }
    }
    Ok(bucket)
}

fn write_buckets(version: Version, out: &mut Vec<u8>, group: &GroupDesc) {
    for bucket in &group.buckets {
        let start = out.len();
        let port = bucket.watch_port.unwrap_or(OfPort::NONE).to_u32();
        out.u16(0);
        if has_bucket_ids(version) {
            out.u16(0);
            out.u32(bucket.id);
            let actions_at = out.len();
            write_actions(out, version, None, &bucket.actions);
            out.set_u16(start + 2, (out.len() - actions_at) as u16);
            if bucket.weight != u16::from(group.kind == GroupType::Select) {
                write_property(out, WEIGHT, |out| {
                    out.u16(bucket.weight);
                    out.zeros(2);
                });
            }
            if bucket.watch_port.is_some() {
                write_property(out, WATCH_PORT, |out| out.u32(port));
            }
            if let Some(watched) = bucket.watch_group {
                write_property(out, WATCH_GROUP, |out| out.u32(watched));
            }
        } else {
            out.u16(bucket.weight);
            out.u32(port);
            out.u32(bucket.watch_group.unwrap_or(NONE32));
            out.zeros(4);
            write_actions(out, version, None, &bucket.actions);
        }
        out.set_u16(start, (out.len() - start) as u16);
    }
}

fn read_selection(r: &mut Reader) -> Result<GroupSelection, ErrorKind> {
    let mut selection = GroupSelection::default();
    while !r.is_empty() {
        let (kind, mut value) = read_property(r)?;
        if kind != EXPERIMENTER {
            return Err(OFPBPC_BAD_TYPE);
        }
        if ![NETRONOME, NETRONOME_WRONG].contains(&value.u32()?) {
            return Err(OFPBPC_BAD_EXPERIMENTER);
        }
        if value.u32()? != SELECTION_METHOD {
            return Err(OFPBPC_BAD_EXP_TYPE);
        }
        value.skip(4)?;
        selection.method = value.text(METHOD_LEN)?;
        selection.param = value.u64()?;
        let is_known = match selection.method.as_str() {
            "hash" => true,
            // It uses the hash that the datapath computes.
            "dp_hash" => value.is_empty(),
            _ => false,
        };
        if !is_known {
            return Err(OFPBPC_BAD_VALUE);
        }
        while !value.is_empty() {
            let header = read_header(&mut value)?;
            let field = Mf::from_nxm(header).ok_or(OFPBMC_BAD_FIELD)?;
            let bytes = usize::from(field.row().bytes);
            if header.has_mask() || header.payload_length() != Some(bytes) || bytes > 16 {
                return Err(OFPBPC_BAD_LEN);
            }
            selection.fields.push((field, value.number(bytes)? & field.ones()));
        }
        let place = |field: &Mf| Mf::all().position(|other| other == *field);
        selection.fields.sort_by_key(|(field, _)| place(field));
    }
    Ok(selection)
}

fn write_selection(out: &mut Vec<u8>, selection: &GroupSelection) {
    if selection.method.is_empty() {
        return;
    }
    write_property(out, EXPERIMENTER, |out| {
        out.u32(NETRONOME);
        out.u32(SELECTION_METHOD);
        out.zeros(4);
        out.text(&selection.method, METHOD_LEN);
        out.u64(selection.param);
        for &(field, mask) in &selection.fields {
            if let Some(wire) = field.wire(FIELDS_MINOR) {
                let bytes = usize::from(field.row().bytes);
                write_header(out, NxmHeader::new(wire, false, bytes));
                // All ones means the whole field, even if the field is narrower than its bytes.
                out.number(if mask == field.ones() { u128::MAX } else { mask }, bytes);
            }
        }
    });
}

pub(super) fn read_group_mod(version: Version, r: &mut Reader) -> Result<Box<GroupMod>, ErrorKind> {
    let number = r.u16()?;
    let command = GroupCommand::ALL.into_iter().map(|(command, _)| command).find(|&c| c as u16 == number);
    let is_bucket_command = matches!(command, Some(GroupCommand::InsertBucket | GroupCommand::RemoveBucket));
    let kind = r.u8()?;
    r.skip(1)?;
    let mut group = GroupDesc { group_id: r.u32()?, ..GroupDesc::default() };
    // A command on buckets does not change the type.
    group.kind = match GroupType::from_wire(kind) {
        Some(kind) => kind,
        None if is_bucket_command => GroupType::All,
        None => return Err(OFPGMFC_BAD_TYPE),
    };
    let mut command_bucket_id = BUCKET_ALL;
    if has_bucket_ids(version) {
        let buckets_len = usize::from(r.u16()?);
        r.skip(2)?;
        command_bucket_id = r.u32()?;
        let in_range = command_bucket_id <= BUCKET_MAX || command_bucket_id > 0xffff_fffc;
        if !in_range || (command == Some(GroupCommand::InsertBucket) && command_bucket_id == BUCKET_ALL) {
            return Err(OFPGMFC_UNKNOWN_BUCKET);
        }
        group.buckets = read_buckets(version, group.kind, r.sub(buckets_len)?)?;
        group.selection = read_selection(r)?;
        let takes_method = group.kind == GroupType::Select
            && matches!(command, Some(GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify));
        if !group.selection.method.is_empty() && !takes_method {
            return Err(OFPBPC_BAD_VALUE);
        }
    } else {
        group.buckets = read_buckets(version, group.kind, *r)?;
        r.skip(r.len())?;
    }
    // Errors in the buckets are reported first, as in Open vSwitch.
    let command = command.filter(|_| !is_bucket_command || has_bucket_ids(version));
    let command = command.ok_or(OFPGMFC_BAD_COMMAND)?;
    check(command, &group)?;
    Ok(Box::new(GroupMod { command, command_bucket_id, group }))
}

/// Requirements that any group must meet, whatever else exists.
fn check(command: GroupCommand, group: &GroupDesc) -> Result<(), ErrorKind> {
    let defines = matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    let n = group.buckets.len();
    if group.kind == GroupType::Indirect && defines && n != 1 || command == GroupCommand::Delete && n > 0 {
        return Err(OFPGMFC_INVALID_GROUP);
    }
    for bucket in &group.buckets {
        let is_watched = bucket.watch_port.is_some() || bucket.watch_group.is_some();
        if bucket.weight != 0 && group.kind != GroupType::Select && command != GroupCommand::InsertBucket {
            return Err(OFPGMFC_INVALID_GROUP);
        }
        match group.kind {
            GroupType::All | GroupType::Indirect if is_watched => return Err(OFPGMFC_WATCH_UNSUPPORTED),
            GroupType::FastFailover if !is_watched => return Err(OFPGMFC_INVALID_GROUP),
            _ => {}
        }
    }
    if command == GroupCommand::RemoveBucket && n > 0 {
        return Err(OFPGMFC_BAD_BUCKET);
    }
    Ok(())
}

pub(super) fn write_group_mod(version: Version, out: &mut Vec<u8>, m: &GroupMod) {
    out.u16(m.command as u16);
    out.u8(m.group.kind as u8);
    out.u8(0);
    out.u32(m.group.group_id);
    if has_bucket_ids(version) {
        let length_at = out.len();
        out.zeros(4);
        out.u32(m.command_bucket_id);
        let start = out.len();
        write_buckets(version, out, &m.group);
        out.set_u16(length_at, (out.len() - start) as u16);
        write_selection(out, &m.group.selection);
    } else {
        write_buckets(version, out, &m.group);
    }
}

pub(super) fn read_group_desc(version: Version, r: &mut Reader) -> Result<GroupDesc, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    let kind = GroupType::from_wire(r.u8()?).ok_or(OFPGMFC_BAD_TYPE)?;
    r.skip(1)?;
    let mut group = GroupDesc { group_id: r.u32()?, kind, ..GroupDesc::default() };
    if has_bucket_ids(version) {
        let buckets_len = usize::from(r.u16()?);
        r.skip(6)?;
        group.buckets = read_buckets(version, kind, r.sub(buckets_len)?)?;
        group.selection = read_selection(&mut r)?;
    } else {
        group.buckets = read_buckets(version, kind, r)?;
    }
    Ok(group)
}

pub(super) fn write_group_desc(version: Version, out: &mut Vec<u8>, group: &GroupDesc) {
    let start = out.len();
    out.u16(0);
    out.u8(group.kind as u8);
    out.u8(0);
    out.u32(group.group_id);
    if has_bucket_ids(version) {
        let length_at = out.len();
        out.zeros(8);
        let buckets_at = out.len();
        write_buckets(version, out, group);
        out.set_u16(length_at, (out.len() - buckets_at) as u16);
        write_selection(out, &group.selection);
    } else {
        write_buckets(version, out, group);
    }
    out.set_u16(start, (out.len() - start) as u16);
}

/// Bytes before the first group of a list: 24 in Open vSwitch's extension to 1.0, fewer in other versions.
const LIST_HEAD_BYTES: usize = 24;

impl GroupDesc {
    /// Whether it fits into a message in every version: each version encodes buckets and actions with
    /// different lengths, so a group added in one version might not fit into a list in another.
    pub fn fits_a_message(&self) -> bool {
        let mut bytes = Vec::new();
        Version::ALL.into_iter().all(|version| {
            bytes.clear();
            write_group_desc(version, &mut bytes, self);
            LIST_HEAD_BYTES + bytes.len() <= usize::from(u16::MAX)
        })
    }
}

/// OpenFlow 1.3's form has a duration; the extension to 1.0 has it too.
fn has_duration(version: Version) -> bool {
    version >= Version::V13 || version == Version::V10
}

pub(super) fn read_group_stats(version: Version, r: &mut Reader) -> Result<GroupStats, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    r.skip(2)?;
    let (group_id, ref_count) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let counts = (r.u64()?, r.u64()?);
    let (duration_s, duration_ns) =
        if has_duration(version) { (r.u32()?, r.u32()?) } else { (u32::MAX, u32::MAX) };
    let buckets = read_list(&mut r, |r| Ok((r.u64()?, r.u64()?)))?;
    Ok(GroupStats { group_id, ref_count, counts, duration_s, duration_ns, buckets })
}

pub(super) fn write_group_stats(version: Version, out: &mut Vec<u8>, s: &GroupStats) {
    let start = out.len();
    out.zeros(4);
    out.u32(s.group_id);
    out.u32(s.ref_count);
    out.zeros(4);
    out.u64(s.counts.0);
    out.u64(s.counts.1);
    if has_duration(version) {
        out.u32(s.duration_s);
        out.u32(s.duration_ns);
    }
    for &(packets, bytes) in &s.buckets {
        out.u64(packets);
        out.u64(bytes);
    }
    out.set_u16(start, (out.len() - start) as u16);
}
