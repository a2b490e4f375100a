//! Configuration of tables. Sources: OpenFlow 1.3 section 7.3.4.3, 1.4 sections 7.3.4.1, 7.3.5.8 and 7.4.5.

use super::bytes::{Put, Reader};
use super::property::{EXPERIMENTER, read_property, unknown_property, whole_u32, write_property};
use crate::error::ErrorKind::{self, *};
use crate::message::{TableDesc, TableMod, TableStatus, Vacancy};
use crate::version::Version;

/// Properties (OFPTMPT_*).
const EVICTION: u16 = 2;
const VACANCY: u16 = 3;

pub(super) fn read_table_mod(version: Version, r: &mut Reader) -> Result<TableMod, ErrorKind> {
    let table_id = r.u8()?;
    r.skip(3)?;
    let mut m = TableMod { table_id, config: r.u32()?, ..TableMod::default() };
    if version >= Version::V14 {
        read_properties(r, &mut m, OfOthers::Refused)?;
    }
    Ok(m)
}

/// What happens to unknown properties.
#[derive(Clone, Copy, PartialEq)]
enum OfOthers {
    /// In changes to a table.
    Refused,
    /// In descriptions by a switch.
    Skipped,
}

fn read_properties(r: &mut Reader, m: &mut TableMod, others: OfOthers) -> Result<(), ErrorKind> {
    while !r.is_empty() {
        let (kind, value) = read_property(r)?;
        match kind {
            EVICTION => m.eviction_flags = Some(whole_u32(value)?),
            VACANCY => {
                let [down, up, now, _] = whole_u32(value)?.to_be_bytes();
                if others == OfOthers::Refused && (down > up || up > 100 || now != 0) {
                    return Err(OFPBPC_BAD_VALUE);
                }
                m.vacancy = Some(Vacancy { down, up, now });
            }
            _ if others == OfOthers::Skipped => {}
            EXPERIMENTER => match unknown_property(kind, value) {
                OFPBPC_BAD_EXP_TYPE => return Err(OFPBRC_BAD_TYPE),
                error => return Err(error),
            },
            _ => return Err(OFPBRC_BAD_TYPE),
        }
    }
    Ok(())
}

pub(super) fn write_table_mod(version: Version, out: &mut Vec<u8>, m: &TableMod) {
    out.u8(m.table_id);
    out.zeros(3);
    out.u32(m.config);
    if version >= Version::V14 {
        write_properties(out, m);
    }
}

fn write_properties(out: &mut Vec<u8>, m: &TableMod) {
    if let Some(flags) = m.eviction_flags {
        write_property(out, EVICTION, |out| out.u32(flags));
    }
    if let Some(vacancy) = m.vacancy {
        write_property(out, VACANCY, |out| {
            out.extend_from_slice(&[vacancy.down, vacancy.up, vacancy.now, 0]);
        });
    }
}

pub(super) fn read_table_desc(r: &mut Reader) -> Result<TableDesc, ErrorKind> {
    let length = usize::from(r.u16()?);
    let mut r = r.sub(length.checked_sub(2).ok_or(OFPBRC_BAD_LEN)?)?;
    let table_id = r.u8()?;
    r.skip(1)?;
    let mut desc = TableMod { table_id, config: r.u32()?, ..TableMod::default() };
    read_properties(&mut r, &mut desc, OfOthers::Skipped)?;
    Ok(TableDesc(desc))
}

pub(super) fn write_table_desc(out: &mut Vec<u8>, m: &TableDesc) {
    let start = out.len();
    out.u16(0);
    out.u8(m.0.table_id);
    out.u8(0);
    out.u32(m.0.config);
    write_properties(out, &m.0);
    out.set_u16(start, (out.len() - start) as u16);
}

pub(super) fn read_table_status(r: &mut Reader) -> Result<TableStatus, ErrorKind> {
    let reason = r.u8()?;
    if reason != TableStatus::VACANCY_DOWN && reason != TableStatus::VACANCY_UP {
        return Err(NXBRC_BAD_REASON);
    }
    r.skip(7)?;
    Ok(TableStatus { reason, desc: read_table_desc(r)? })
}

pub(super) fn write_table_status(out: &mut Vec<u8>, m: &TableStatus) {
    out.u8(m.reason);
    out.zeros(7);
    write_table_desc(out, &m.desc);
}
