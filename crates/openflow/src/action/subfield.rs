//! Bits of fields on the wire, as used by actions.

use super::wire::{Body, Encoder};
use crate::codec::bytes::Reader;
use crate::codec::matching::{read_header, write_header};
use crate::error::ErrorKind::{self, *};
use flow::Mf;
use flow::action::SubField;
use flow::mf::NxmHeader;

/// Converts errors of a match entry to those of an action that sets it.
pub(super) fn as_set_error(error: ErrorKind) -> ErrorKind {
    match error {
        OFPBMC_BAD_FIELD => OFPBAC_BAD_SET_TYPE,
        OFPBMC_BAD_LEN => OFPBAC_BAD_SET_LEN,
        OFPBMC_BAD_MASK | OFPBMC_BAD_WILDCARDS => OFPBAC_BAD_SET_MASK,
        OFPBMC_BAD_VALUE => OFPBAC_BAD_SET_ARGUMENT,
        other => other,
    }
}

/// Bits that are read.
pub(super) fn read_source(b: &mut Body, offset: u16, count: u16) -> Result<SubField, ErrorKind> {
    read_subfield(b, offset, count, false)
}

/// Bits that are written.
pub(super) fn read_target(b: &mut Body, offset: u16, count: u16) -> Result<SubField, ErrorKind> {
    read_subfield(b, offset, count, true)
}

fn read_subfield(b: &mut Body, offset: u16, count: u16, write: bool) -> Result<SubField, ErrorKind> {
    let header = read_field_header(b)?;
    checked(header, offset, count, write)
}

/// A field's header.
pub(super) fn read_field_header(r: &mut Reader) -> Result<NxmHeader, ErrorKind> {
    read_header(r).map_err(as_set_error)
}

/// The bits of the field that a header names.
pub(super) fn checked(
    header: NxmHeader,
    offset: u16,
    count: u16,
    write: bool,
) -> Result<SubField, ErrorKind> {
    let field = Mf::from_nxm(header).ok_or(OFPBAC_BAD_SET_TYPE)?;
    let row = field.row();
    if write && !row.writable {
        return Err(OFPBAC_BAD_SET_ARGUMENT);
    }
    // A tunnel option is as long as the bridge's table says; some say its length here, others the greatest.
    let fits = matches!(field, Mf::TunMetadata(_)) || header.payload_length() == Some(row.bytes.into());
    if header.has_mask() || !fits {
        return Err(OFPBAC_BAD_SET_LEN);
    }
    let in_field = count >= 1 && u32::from(offset) + u32::from(count) <= u32::from(row.subfield_bits);
    if !in_field {
        return Err(OFPBAC_BAD_SET_ARGUMENT);
    }
    Ok(SubField { field, offset, count })
}

/// Offset and number of bits in one word.
pub(super) fn ofs_nbits(sub: SubField) -> u16 {
    sub.offset << 6 | (sub.count - 1) & 0x3f
}

/// The two of [`ofs_nbits`].
pub(super) fn from_ofs_nbits(word: u16) -> (u16, u16) {
    (word >> 6, (word & 0x3f) + 1)
}

/// `count` one-bits at the bottom.
pub(super) fn ones(count: u16) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

impl Encoder<'_> {
    /// Appends the header of a field.
    pub(super) fn field(&mut self, field: Mf) {
        if let Some(wire) = field.wire(self.version.minor()) {
            write_header(self.out, NxmHeader::new(wire, false, field.row().bytes.into()));
        }
    }

    /// Whether the field is an experimenter's: its header has eight bytes, for which older forms have no
    /// room.
    pub(super) fn is_long(&self, field: Mf) -> bool {
        field.wire(self.version.minor()).is_some_and(|wire| wire.class == 0xffff)
    }
}
