//! Bits of fields on the wire, as used by actions.

use super::body::Encoder;
use crate::codec::bytes::Reader;
use crate::codec::matching::{field_of, read_header, write_header};
use crate::error::ErrorKind::{self, *};
use flow::Mf;
use flow::action::SubField;
use flow::mf::NxmHeader;

/// The field of a header, without a mask, where an action has room for an experimenter's. Errors are those of
/// matches, as in Open vSwitch.
pub(super) fn read_field(r: &mut Reader) -> Result<Mf, ErrorKind> {
    let header = read_header(r).map_err(|_| OFPBMC_BAD_LEN)?;
    let field = field_of(header).ok_or(OFPBMC_BAD_FIELD)?;
    if header.has_mask() { Err(OFPBMC_BAD_MASK) } else { Ok(field) }
}

/// The field of a header of four bytes, as older actions have it: with the mask's bit, it is the same field.
pub(super) fn short_field(header: u32) -> Result<Mf, ErrorKind> {
    field_of(NxmHeader(u64::from(header) << 32)).ok_or(OFPBAC_BAD_SET_TYPE)
}

/// Bits of a field that are read, or written.
pub(super) fn checked(field: Mf, offset: u16, count: u16, write: bool) -> Result<SubField, ErrorKind> {
    let row = field.row();
    let in_field = count >= 1 && u32::from(offset) + u32::from(count) <= u32::from(row.subfield_bits);
    if !in_field {
        return Err(OFPBAC_BAD_SET_LEN);
    }
    if write && !row.writable {
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
    /// Appends the header of a field, as Nicira's actions have it in all versions: that of NXM, if there is
    /// one.
    pub(super) fn field(&mut self, field: Mf) {
        self.field_since(field, 0);
    }

    /// Appends the header of a field, as actions of the standard have it.
    pub(super) fn oxm_field(&mut self, field: Mf) {
        self.field_since(field, self.version.minor());
    }

    fn field_since(&mut self, field: Mf, minor: u8) {
        if let Some(wire) = field.wire(minor) {
            write_header(self.out, NxmHeader::new(wire, false, field.row().bytes.into()));
        }
    }

    /// Whether the field is an experimenter's: its header has eight bytes, for which older forms have no
    /// room.
    pub(super) fn is_long(&self, field: Mf) -> bool {
        field.wire(0).is_some_and(|wire| wire.class == 0xffff)
    }
}
