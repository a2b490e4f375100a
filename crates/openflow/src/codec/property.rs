//! Properties: a type, a length and a value, padded to eight bytes (OpenFlow 1.4, section 7.1 on).

use super::bytes::{Put, Reader};
use crate::error::ErrorKind::{self, *};

/// A property of an experimenter's, of buckets, groups and ports.
pub(super) const EXPERIMENTER: u16 = 0xffff;

/// A property: its type and the bytes after its header, with its padding skipped.
pub(super) fn read_property<'a>(r: &mut Reader<'a>) -> Result<(u16, Reader<'a>), ErrorKind> {
    *r = r.with_error(OFPBPC_BAD_LEN);
    let (kind, length) = (r.u16()?, usize::from(r.u16()?));
    let value = r.sub(length.checked_sub(4).ok_or(OFPBPC_BAD_LEN)?)?;
    r.skip(length.next_multiple_of(8) - length)?;
    Ok((kind, value))
}

/// The error of a property that nobody knows.
pub(super) fn unknown_property(kind: u16, mut value: Reader) -> ErrorKind {
    if kind != EXPERIMENTER {
        return OFPBPC_BAD_TYPE;
    }
    match (value.u32(), value.u32()) {
        (Ok(0), Ok(_)) => OFPBPC_BAD_EXPERIMENTER,
        (Ok(_), Ok(_)) => OFPBPC_BAD_EXP_TYPE,
        _ => OFPBPC_BAD_LEN,
    }
}

/// A value that is a number and nothing else.
pub(super) fn whole_u32(mut value: Reader) -> Result<u32, ErrorKind> {
    let number = value.u32()?;
    value.end()?;
    Ok(number)
}

/// Appends a property and its padding.
pub(super) fn write_property(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    let length = (out.len() - start) as u16;
    out.set_u16(start + 2, length);
    out.pad8(start);
}
