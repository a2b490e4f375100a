//! Statistics of tables. Up to OpenFlow 1.2 they include a table's capabilities, as bitmaps of fields,
//! actions and instructions. Sources: OpenFlow 1.0 section 5.3.5, 1.1 section A.3.5.3, 1.2 section A.3.5.3.

use super::bytes::{Put, Reader};
use crate::error::ErrorKind;
use crate::message::{TableFeatures, TableInstructionFeatures, TableStats};
use crate::version::Version;
use flow::Mf;
use flow::mf::NxmHeader;

/// Bits of instructions and actions that the versions have: no meter before 1.3, no set-field before 1.2.
const INSTRUCTIONS: u32 = 0b11_1111;
const ACTIONS11: u32 = 0x01ff_ffff;
/// OFPTC_TABLE_MISS_MASK.
const MISS_MASK: u32 = 3;

/// Fields of OpenFlow 1.0 and their wildcards (OFPFW_*).
const FIELDS10: [(Mf, u64); 12] = [
    (Mf::InPort, 1 << 0),
    (Mf::VlanVid, 1 << 1),
    (Mf::EthSrc, 1 << 2),
    (Mf::EthDst, 1 << 3),
    (Mf::EthType, 1 << 4),
    (Mf::NwProto, 1 << 5),
    (Mf::TcpSrc, 1 << 6),
    (Mf::TcpDst, 1 << 7),
    (Mf::NwSrc, 0x3f << 8),
    (Mf::NwDst, 0x3f << 14),
    (Mf::VlanPcp, 1 << 20),
    (Mf::NwTos, 1 << 21),
];
/// Those of OpenFlow 1.1 (OFPFMF_*).
const FIELDS11: [(Mf, u64); 15] = [
    (Mf::InPort, 1 << 0),
    (Mf::VlanVid, 1 << 1),
    (Mf::VlanPcp, 1 << 2),
    (Mf::EthType, 1 << 3),
    (Mf::NwTos, 1 << 4),
    (Mf::NwProto, 1 << 5),
    (Mf::TcpSrc, 1 << 6),
    (Mf::TcpDst, 1 << 7),
    (Mf::MplsLabel, 1 << 8),
    (Mf::MplsTc, 1 << 9),
    (Mf::EthSrc, 1 << 11),
    (Mf::EthDst, 1 << 12),
    (Mf::NwSrc, 1 << 13),
    (Mf::NwDst, 1 << 14),
    (Mf::Metadata, 1 << 15),
];
/// OFPXMC_OPENFLOW_BASIC, whose field numbers are the bits of OpenFlow 1.2: it has 0 to 35. Open vSwitch also
/// sets those of later versions' fields that have no other number; whoever reads them passes over these.
const OXM_BASIC: u16 = 0x8000;
const FIELDS12: u64 = (1 << 36) - 1;

/// A field's header without a mask.
fn header(mf: Mf) -> Option<u64> {
    Some(NxmHeader::new(mf.wire(Version::V12.minor())?, false, mf.row().bytes.into()).0)
}

fn field(header: &u64) -> Option<Mf> {
    Mf::from_nxm(NxmHeader(*header))
}

fn headers_of(table: &[(Mf, u64)], bits: u64) -> Vec<u64> {
    table.iter().filter(|row| bits & row.1 != 0).filter_map(|row| header(row.0)).collect()
}

fn bits_of(table: &[(Mf, u64)], headers: &[u64]) -> u64 {
    let has = |mf: Mf| headers.iter().any(|header| field(header) == Some(mf));
    table.iter().filter(|row| has(row.0)).map(|row| row.1).sum()
}

fn headers_of_oxm(bits: u64) -> Vec<u64> {
    let is_named = |wire: &flow::mf::Wire| {
        let bit = 1u64.checked_shl(wire.number.into()).unwrap_or(0);
        wire.class == OXM_BASIC && bits & FIELDS12 & bit != 0
    };
    let is_in = |mf: &Mf| mf.wire(Version::V12.minor()).is_some_and(|wire| is_named(&wire));
    Mf::all().filter(is_in).filter_map(header).collect()
}

fn bits_of_oxm(headers: &[u64]) -> u64 {
    let wires = headers.iter().filter_map(field).filter_map(|mf| mf.wire(Version::V12.minor()));
    let bits = wires.filter(|wire| wire.class == OXM_BASIC).map(|wire| 1u64.checked_shl(wire.number.into()));
    bits.flatten().fold(0, |all, bit| all | bit)
}

pub(super) fn read(version: Version, r: &mut Reader) -> Result<TableStats, ErrorKind> {
    let mut features = TableFeatures::of(r.u8()?);
    match version {
        Version::V10 => {
            r.skip(3)?;
            features.name = r.text(32)?;
            features.matchable = headers_of(&FIELDS10, u64::MAX);
            features.wildcards = headers_of(&FIELDS10, r.u32()?.into());
            features.max_entries = r.u32()?;
        }
        Version::V11 => {
            r.skip(7)?;
            features.name = r.text(32)?;
            features.wildcards = headers_of(&FIELDS11, r.u32()?.into());
            features.matchable = headers_of(&FIELDS11, r.u32()?.into());
            // A field that may be left out can be matched.
            add_missing(&mut features);
            features.nonmiss = TableInstructionFeatures {
                instructions: r.u32()? & INSTRUCTIONS,
                write_actions: r.u32()? & ACTIONS11,
                apply_actions: r.u32()? & ACTIONS11,
                ..TableInstructionFeatures::default()
            };
            features.config = r.u32()? & MISS_MASK;
            features.max_entries = r.u32()?;
        }
        Version::V12 => {
            r.skip(7)?;
            features.name = r.text(32)?;
            features.matchable = headers_of_oxm(r.u64()?);
            features.wildcards = headers_of_oxm(r.u64()?);
            add_missing(&mut features);
            let f = &mut features.nonmiss;
            (f.write_actions, f.apply_actions) = (r.u32()?, r.u32()?);
            f.write_set_fields = headers_of_oxm(r.u64()?);
            f.apply_set_fields = headers_of_oxm(r.u64()?);
            (features.metadata_match, features.metadata_write) = (r.u64()?, r.u64()?);
            features.nonmiss.instructions = r.u32()? & INSTRUCTIONS;
            features.config = r.u32()? & MISS_MASK;
            features.max_entries = r.u32()?;
        }
        _ => r.skip(3)?,
    }
    Ok(TableStats { features, active_count: r.u32()?, lookup_count: r.u64()?, matched_count: r.u64()? })
}

fn add_missing(features: &mut TableFeatures) {
    for header in &features.wildcards {
        if !features.matchable.contains(header) {
            features.matchable.push(*header);
        }
    }
}

pub(crate) fn write(version: Version, out: &mut Vec<u8>, t: &TableStats) {
    let features = &t.features;
    let f = &features.nonmiss;
    out.u8(features.table_id);
    match version {
        Version::V10 => {
            out.zeros(3);
            out.text(&features.name, 32);
            out.u32(bits_of(&FIELDS10, &features.wildcards) as u32);
            out.u32(features.max_entries);
        }
        Version::V11 => {
            out.zeros(7);
            out.text(&features.name, 32);
            out.u32(bits_of(&FIELDS11, &features.wildcards) as u32);
            out.u32(bits_of(&FIELDS11, &features.matchable) as u32);
            out.u32(f.instructions & INSTRUCTIONS);
            out.u32(f.write_actions & ACTIONS11);
            out.u32(f.apply_actions & ACTIONS11);
            out.u32(features.config & MISS_MASK);
            out.u32(features.max_entries);
        }
        Version::V12 => {
            out.zeros(7);
            out.text(&features.name, 32);
            out.u64(bits_of_oxm(&features.matchable));
            out.u64(bits_of_oxm(&features.wildcards));
            out.u32(f.write_actions);
            out.u32(f.apply_actions);
            out.u64(bits_of_oxm(&f.write_set_fields));
            out.u64(bits_of_oxm(&f.apply_set_fields));
            out.u64(features.metadata_match);
            out.u64(features.metadata_write);
            out.u32(f.instructions & INSTRUCTIONS);
            out.u32(features.config & MISS_MASK);
            out.u32(features.max_entries);
        }
        _ => out.zeros(3),
    }
    out.u32(t.active_count);
    out.u64(t.lookup_count);
    out.u64(t.matched_count);
}
