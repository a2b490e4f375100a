//! Groups on the wire.
//!
//! OpenFlow 1.1 to 1.4 use one form, 1.5 another in which buckets have numbers and properties. The extension
//! to 1.0 uses that of 1.5. Sources: OpenFlow 1.3 section 7.3.4.2, 1.5 sections 7.3.4.3 and 7.3.5.9.

use super::bytes::{Put, Reader, read_list};
use super::flows::NONE32;
use super::matching::{check_mask, field_of, read_header, write_header};
use super::property::{EXPERIMENTER, read_property, unknown_property, whole_u32, write_property};
use crate::action::{read_actions, write_actions};
use crate::error::ErrorKind::{self, *};
use crate::message::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GroupCommand, GroupDesc, GroupMod,
    GroupSelection, GroupStats, GroupType,
};
use crate::version::Version;
use base::OfPort;
use flow::Mf;
use flow::mf::{Maskable, NxmHeader};
use std::collections::HashSet;

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

fn watched_port(number: u32) -> Result<Option<OfPort>, ErrorKind> {
    let port = OfPort::from_u32(number).ok_or(OFPGMFC_BAD_WATCH)?;
    Ok((port != OfPort::NONE).then_some(port))
}

fn watched_group(number: u32) -> Option<u32> {
    (number != NONE32).then_some(number)
}

/// The buckets of a group, whose type may be one that there is not.
fn read_buckets(version: Version, kind: Option<GroupType>, mut r: Reader) -> Result<Vec<Bucket>, ErrorKind> {
    let mut buckets: Vec<Bucket> = Vec::new();
    r = r.with_error(OFPGMFC_BAD_BUCKET);
    while !r.is_empty() {
        let length = usize::from(r.u16()?);
        let mut b = r.sub(length.checked_sub(2).ok_or(OFPGMFC_BAD_BUCKET)?)?;
        buckets.push(if has_bucket_ids(version) {
            read_bucket15(version, kind, &mut b)?
        } else {
            let (weight, port, group) = (b.u16()?, b.u32()?, b.u32()?);
            b.skip(4)?;
            let actions = read_actions(version, b)?;
            let (watch_port, watch_group) = (watched_port(port)?, watched_group(group));
            Bucket { id: buckets.len() as u32, weight, watch_port, watch_group, actions }
        });
    }
    let ids: HashSet<u32> = buckets.iter().map(|bucket| bucket.id).collect();
    if ids.len() == buckets.len() { Ok(buckets) } else { Err(OFPGMFC_BAD_BUCKET) }
}

fn read_bucket15(version: Version, kind: Option<GroupType>, b: &mut Reader) -> Result<Bucket, ErrorKind> {
    let actions_len = usize::from(b.u16()?);
    let id = b.u32()?;
    let actions = read_actions(version, b.sub(actions_len)?)?;
    let mut weight = u16::from(kind == Some(GroupType::Select));
    let (mut port, mut group) = (OfPort::NONE.to_u32(), NONE32);
    while !b.is_empty() {
        let (property, mut value) = read_property(b)?;
        match property {
            WEIGHT => weight = value.u16()?,
            WATCH_PORT => port = whole_u32(value)?,
            WATCH_GROUP => group = whole_u32(value)?,
            _ => return Err(unknown_property(property, value)),
        }
    }
    let (watch_port, watch_group) = (watched_port(port)?, watched_group(group));
    if id > BUCKET_MAX {
        return Err(OFPGMFC_BAD_BUCKET);
    }
    Ok(Bucket { id, weight, watch_port, watch_group, actions })
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

/// Whether a group is one that has a selection method, and the command one that says it.
fn takes_method(kind: Option<GroupType>, command: Option<GroupCommand>) -> Result<(), ErrorKind> {
    use GroupCommand::{Add, AddOrModify, Modify};
    match (kind, command) {
        (None, _) => Err(OFPGMFC_BAD_TYPE),
        (Some(GroupType::Select), Some(Add | Modify | AddOrModify)) => Ok(()),
        (Some(GroupType::Select), None) => Err(OFPGMFC_BAD_COMMAND),
        _ => Err(OFPBPC_BAD_VALUE),
    }
}

/// The properties of a group. `takes_method`: the error of one, if any, that may not have a selection method.
fn read_selection(r: &mut Reader, takes_method: Result<(), ErrorKind>) -> Result<GroupSelection, ErrorKind> {
    let mut selection = GroupSelection::default();
    while !r.is_empty() {
        let (kind, mut value) = read_property(r)?;
        let all = value;
        let is_method = kind == EXPERIMENTER
            && [NETRONOME, NETRONOME_WRONG].contains(&value.u32()?)
            && value.u32()? == SELECTION_METHOD;
        if !is_method {
            return Err(unknown_property(kind, all));
        }
        takes_method?;
        value.skip(4)?;
        let (name, param) = (value.take(METHOD_LEN)?, value.u64()?);
        selection.method = match name {
            [b'h', b'a', b's', b'h', 0, ..] => "hash",
            // It uses the hash that the datapath computes.
            [b'd', b'p', b'_', b'h', b'a', b's', b'h', 0, ..] if value.is_empty() => "dp_hash",
            _ => return Err(OFPBPC_BAD_VALUE),
        }
        .to_string();
        selection.param = param;
        read_fields(value.with_error(OFPBMC_BAD_LEN), &mut selection.fields)?;
        let place = |field: &Mf| Mf::all().position(|other| other == *field);
        selection.fields.sort_by_key(|(field, _)| place(field));
    }
    Ok(selection)
}

/// Fields to hash, with the masks of which bits of them in the place of values.
fn read_fields(mut r: Reader, fields: &mut Vec<(Mf, u128)>) -> Result<(), ErrorKind> {
    while !r.is_empty() {
        let header = read_header(&mut r)?;
        let payload = header.payload_length().ok_or(OFPBMC_BAD_LEN)?;
        let mut body = r.sub(payload)?;
        check_mask(header, body)?;
        if header.has_mask() {
            return Err(OFPBMC_BAD_MASK);
        }
        let field = field_of(header).ok_or(OFPBMC_BAD_FIELD)?;
        // No hash takes more of an option of a tunnel.
        if payload > 16 {
            return Err(OFPBPC_BAD_LEN);
        }
        let mask = body.number(payload)? & field.ones();
        if fields.iter().any(|(other, _)| *other == field) {
            return Err(OFPBMC_DUP_FIELD);
        }
        if field.row().maskable == Maskable::No && mask != 0 && mask != field.ones() {
            return Err(OFPBMC_BAD_MASK);
        }
        fields.push((field, mask));
    }
    Ok(())
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
                let bytes = match field {
                    // An option has no length of its own: as few as its bits need.
                    Mf::TunMetadata(_) => (u128::BITS - mask.leading_zeros()).div_ceil(8).max(1) as usize,
                    field => usize::from(field.row().bytes),
                };
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
    let kind = GroupType::from_wire(r.u8()?);
    r.skip(1)?;
    let mut group = GroupDesc { group_id: r.u32()?, ..GroupDesc::default() };
    let mut command_bucket_id = BUCKET_ALL;
    if has_bucket_ids(version) {
        let buckets_len = usize::from(r.u16()?);
        r.skip(2)?;
        command_bucket_id = r.u32()?;
        let names_one =
            command_bucket_id <= BUCKET_MAX || matches!(command_bucket_id, BUCKET_FIRST | BUCKET_LAST);
        let fits = match command {
            Some(GroupCommand::InsertBucket) => names_one,
            Some(GroupCommand::RemoveBucket) => names_one || command_bucket_id == BUCKET_ALL,
            _ => command_bucket_id == BUCKET_ALL,
        };
        if !fits {
            return Err(OFPGMFC_BAD_BUCKET);
        }
        group.buckets = read_buckets(version, kind, r.sub(buckets_len)?)?;
        group.selection = read_selection(r, takes_method(kind, command))?;
    } else {
        group.buckets = read_buckets(version, kind, *r)?;
        r.skip(r.len())?;
        if version >= Version::V13 && command == Some(GroupCommand::Delete) && !group.buckets.is_empty() {
            return Err(OFPGMFC_INVALID_GROUP);
        }
    }
    // Errors in the buckets are reported first, as in Open vSwitch.
    let is_single = command == Some(GroupCommand::Delete) || group.buckets.len() == 1;
    if kind == Some(GroupType::Indirect) && !is_single {
        return Err(OFPGMFC_INVALID_GROUP);
    }
    group.kind = kind.ok_or(OFPGMFC_BAD_TYPE)?;
    let command = command.ok_or(OFPGMFC_BAD_COMMAND)?;
    check(command, &group)?;
    Ok(Box::new(GroupMod { command, command_bucket_id, group }))
}

/// Requirements that buckets must meet, whatever else exists.
fn check(command: GroupCommand, group: &GroupDesc) -> Result<(), ErrorKind> {
    if command == GroupCommand::RemoveBucket && !group.buckets.is_empty() {
        return Err(OFPGMFC_BAD_BUCKET);
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
        group.buckets = read_buckets(version, Some(kind), r.sub(buckets_len)?)?;
        group.selection = read_selection(&mut r, takes_method(Some(kind), Some(GroupCommand::Add)))?;
    } else {
        group.buckets = read_buckets(version, Some(kind), r)?;
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
/// Bytes of a group's statistics before its buckets', and of each bucket's.
const STATS_BYTES: usize = 40;
const BUCKET_STATS_BYTES: usize = 16;

impl GroupDesc {
    /// Whether it fits into a message in every version: each version encodes buckets and actions with
    /// different lengths, so a group added in one version might not fit into a list in another.
    pub fn fits_a_message(&self) -> bool {
        let mut bytes = Vec::new();
        Version::ALL.into_iter().all(|version| {
            bytes.clear();
            write_group_desc(version, &mut bytes, self);
            // Statistics have an entry for each bucket, whatever is in it.
            let statistics = STATS_BYTES + BUCKET_STATS_BYTES * self.buckets.len();
            LIST_HEAD_BYTES + bytes.len().max(statistics) <= usize::from(u16::MAX)
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
