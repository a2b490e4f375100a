//! Features of tables on the wire. Source: OpenFlow 1.3 section 7.3.5.5.

use super::bytes::{Put, Reader, read_list};
use super::property::write_property;
use crate::error::ErrorKind::{self, *};
use crate::message::{TableFeatures, TableInstructionFeatures};
use crate::version::Version;
use flow::Mf;

/// Properties of table features; the one after each is the same for the table-miss flow.
mod feature {
    pub const INSTRUCTIONS: u16 = 0;
    pub const NEXT_TABLES: u16 = 2;
    pub const WRITE_ACTIONS: u16 = 4;
    pub const APPLY_ACTIONS: u16 = 6;
    pub const MATCH: u16 = 8;
    pub const WILDCARDS: u16 = 10;
    pub const WRITE_SET_FIELD: u16 = 12;
    pub const APPLY_SET_FIELD: u16 = 14;
    pub const EXPERIMENTER: u16 = 0xfffe;
    /// Those that every table has: the ones above up to here, for flows other than table-miss.
    pub const REQUIRED: u32 = 0b0101_0101_0101_0101;
    /// Those for table-miss.
    pub const OF_MISS: u32 = 0b1010_0000_1010_1010;
}

pub(super) fn read_table_features(version: Version, r: &mut Reader) -> Result<TableFeatures, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBPC_BAD_LEN)?)?.with_error(OFPBPC_BAD_LEN);
    // The command is padding before OpenFlow 1.5.
    let (table_id, command) = (r.u8()?, r.u8()?);
    r.skip(4)?;
    let mut t = TableFeatures {
        table_id,
        command,
        name: r.text(32)?,
        metadata_match: r.u64()?,
        metadata_write: r.u64()?,
        config: r.u32()?,
        max_entries: r.u32()?,
        nonmiss: TableInstructionFeatures::default(),
        miss: None,
        matchable: Vec::new(),
        wildcards: Vec::new(),
    };
    let mut miss = TableInstructionFeatures::default();
    let mut seen = 0u32;
    // In OpenFlow 1.5 a request may name a table without describing it.
    let mut is_described = version < Version::V15;
    r = r.with_error(OFPBPC_BAD_LEN);
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        let mut body = r.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        r.skip((length.next_multiple_of(8) - length).min(r.len()))?;
        is_described = true;
        if kind >= feature::EXPERIMENTER {
            continue;
        }
        if kind < 16 {
            if seen & 1 << kind != 0 {
                return Err(OFPBPC_BAD_TYPE);
            }
            seen |= 1 << kind;
        }
        let target = if kind % 2 == 1 { &mut miss } else { &mut t.nonmiss };
        match kind & !1 {
            feature::INSTRUCTIONS => target.instructions = read_type_bits(&mut body)?,
            feature::NEXT_TABLES => target.next_tables = body.rest().to_vec(),
            feature::WRITE_ACTIONS => target.write_actions = read_type_bits(&mut body)?,
            feature::APPLY_ACTIONS => target.apply_actions = read_type_bits(&mut body)?,
            feature::MATCH => t.matchable = read_fields(&mut body)?,
            feature::WILDCARDS => t.wildcards = read_fields(&mut body)?,
            feature::WRITE_SET_FIELD => target.write_set_fields = read_fields(&mut body)?,
            feature::APPLY_SET_FIELD => target.apply_set_fields = read_fields(&mut body)?,
            // As in the stock switch, which reads only what it knows.
            _ => {}
        }
    }
    if is_described && seen & feature::REQUIRED != feature::REQUIRED {
        return Err(OFPTFFC_BAD_FEATURES);
    }
    if seen & feature::OF_MISS != 0 {
        copy_omitted(&mut miss, &t.nonmiss, seen);
        t.miss = Some(miss);
    }
    Ok(t)
}

/// What is not said of table-miss is the same as for other flows.
fn copy_omitted(miss: &mut TableInstructionFeatures, nonmiss: &TableInstructionFeatures, seen: u32) {
    let is_omitted = |kind: u16| seen & 2 << kind == 0;
    if is_omitted(feature::INSTRUCTIONS) {
        miss.instructions = nonmiss.instructions;
    }
    if is_omitted(feature::NEXT_TABLES) {
        miss.next_tables.clone_from(&nonmiss.next_tables);
    }
    if is_omitted(feature::WRITE_ACTIONS) {
        miss.write_actions = nonmiss.write_actions;
    }
    if is_omitted(feature::APPLY_ACTIONS) {
        miss.apply_actions = nonmiss.apply_actions;
    }
    if is_omitted(feature::WRITE_SET_FIELD) {
        miss.write_set_fields.clone_from(&nonmiss.write_set_fields);
    }
    if is_omitted(feature::APPLY_SET_FIELD) {
        miss.apply_set_fields.clone_from(&nonmiss.apply_set_fields);
    }
}

/// The headers of fields. A header whose length is not its field's belongs to no known field, and is skipped.
fn read_fields(r: &mut Reader) -> Result<Vec<u64>, ErrorKind> {
    let mut headers = read_list(r, super::matching::read_header)?;
    headers.retain(|header| {
        let (Some(mf), Some(length)) = (Mf::from_nxm(*header), header.payload_length()) else { return false };
        let bytes = usize::from(mf.row().bytes);
        length == bytes || header.has_mask() && length == 2 * bytes || matches!(mf, Mf::TunMetadata(_))
    });
    Ok(headers.into_iter().map(|header| header.0).collect())
}

/// A list of types (each with a length of its own, 4 or, with an experimenter, 8) as a bitmap.
fn read_type_bits(r: &mut Reader) -> Result<u32, ErrorKind> {
    let mut bits = 0;
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, usize::from(r.u16()?));
        r.skip(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
        bits |= 1 << kind.min(31);
    }
    Ok(bits)
}

pub(super) fn write_table_features(version: Version, out: &mut Vec<u8>, t: &TableFeatures) {
    debug_assert!(version >= Version::V13);
    let start = out.len();
    out.u16(0);
    out.u8(t.table_id);
    out.u8(if version >= Version::V15 { t.command } else { 0 });
    out.zeros(4);
    out.text(&t.name, 32);
    out.u64(t.metadata_match);
    out.u64(t.metadata_write);
    out.u32(t.config);
    out.u32(t.max_entries);
    let mut property = |kind: u16, body: &dyn Fn(&mut Vec<u8>)| write_property(out, kind, body);
    let types = |bits: u32| {
        move |out: &mut Vec<u8>| {
            for kind in (0..31u16).filter(|kind| bits & 1 << kind != 0) {
                out.u16(kind);
                out.u16(4);
            }
        }
    };
    let headers = |list: &[u64], out: &mut Vec<u8>| {
        list.iter().for_each(|&header| super::matching::write_header(out, flow::mf::NxmHeader(header)));
    };
    for (odd, f) in [(0, Some(&t.nonmiss)), (1, t.miss.as_ref())] {
        let Some(f) = f else { continue };
        property(feature::INSTRUCTIONS + odd, &types(f.instructions));
        property(feature::NEXT_TABLES + odd, &|out| out.extend_from_slice(&f.next_tables));
        property(feature::WRITE_ACTIONS + odd, &types(f.write_actions));
        property(feature::APPLY_ACTIONS + odd, &types(f.apply_actions));
        property(feature::WRITE_SET_FIELD + odd, &|out| headers(&f.write_set_fields, out));
        property(feature::APPLY_SET_FIELD + odd, &|out| headers(&f.apply_set_fields, out));
    }
    property(feature::MATCH, &|out| headers(&t.matchable, out));
    property(feature::WILDCARDS, &|out| headers(&t.wildcards, out));
    let length = (out.len() - start) as u16;
    out.set_u16(start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_of_table_miss_is_as_for_other_flows() {
        let nonmiss = TableInstructionFeatures {
            instructions: 6,
            next_tables: vec![5, 6],
            write_actions: 1,
            apply_actions: 3,
            ..TableInstructionFeatures::default()
        };
        let features = TableFeatures { nonmiss: nonmiss.clone(), ..TableFeatures::of(4) };
        let mut bytes = Vec::new();
        write_table_features(Version::V13, &mut bytes, &features);
        write_property(&mut bytes, feature::INSTRUCTIONS + 1, |out: &mut Vec<u8>| {
            out.u16(1);
            out.u16(4);
        });
        let length = bytes.len() as u16;
        bytes.set_u16(0, length);
        let read = read_table_features(Version::V13, &mut Reader::new(&bytes, OFPBPC_BAD_LEN)).unwrap();
        assert_eq!(read.miss, Some(TableInstructionFeatures { instructions: 2, ..nonmiss }));
    }
}
