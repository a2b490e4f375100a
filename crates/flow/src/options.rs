//! Tunnel options (Geneve's type-length-values) as fields: `tun_metadata0` to `tun_metadata63`.
//!
//! Idea: a table of each bridge ([`OptionTable`]; NXT_TLV_TABLE_MOD) maps options to fields, with their
//! lengths. The table also gives an option its place in the key: blocks [`B_TUN_META`] to the last contain
//! 256 bytes in 64 slots of four; an option takes as many free slots as it needs, wherever they are, so that
//! space never fragments. Those blocks are absent from the keys of packets without options, and absent blocks
//! are neither hashed, compared nor cleared: a bridge without a table pays nothing. A bit of
//! [`FieldId::TunMetadataPresent`] says that the option is present; the slots of an absent one are zero, and
//! so it reads as zero.
//!
//! A match from a message or a text knows no table. It carries its options outside the key, in
//! [`Match::options`](crate::Match). [`OptionTable::place`] moves them into the key when a bridge accepts the
//! match, and [`OptionTable::lift`] takes them out of it again when the bridge reports it.
//!
//! Source: ovs-fields(7), "Tunnel fields"; ovs-ofctl(8), "OpenFlow Switch Tunnel TLV Table Commands".

use crate::field::FieldId;
use crate::key::{B_TUN_META, Key};
use crate::matching::Match;
use crate::option_match::WORDS;
pub use crate::option_match::{OPTION_BYTES_MAX, OptionMatch, OptionMatches, Wide};

/// Fields, and so options of one bridge.
pub const OPTIONS_MAX: usize = 64;
/// Bytes of all options of one bridge together.
pub const OPTION_SPACE_BYTES: usize = 256;
const SLOTS: usize = OPTION_SPACE_BYTES / 4;

/// One row of a table: maps an option to a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mapping {
    /// Class of the option.
    pub class: u16,
    /// Type of the option.
    pub kind: u8,
    /// Its length: a multiple of 4, at most 124.
    pub bytes: u8,
    /// N of `tun_metadataN`, below 64.
    pub idx: u8,
}

/// Why a table cannot be changed so. Each is one error of the extension (NXTTMFC_*).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappingError {
    /// BAD_OPT_LEN.
    Length,
    /// BAD_FIELD_IDX.
    Field,
    /// TABLE_FULL: the options would take more than 256 bytes.
    Full,
    /// ALREADY_MAPPED: the field is mapped to another option.
    Mapped,
    /// DUP_ENTRY: the option is another field already.
    Duplicate,
}

/// Why a match or an action has no place in a bridge's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceError {
    /// The field is not mapped to an option there (NXFMFC_INVALID_TLV_FIELD).
    Unmapped,
    /// The option is shorter.
    TooLong,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Placed {
    mapping: Mapping,
    /// Slots of four bytes, the one with the least significant bits first.
    slots: Vec<u8>,
}

/// Maps a bridge's options to fields, and to places in the key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OptionTable {
    /// Ascending by field.
    rows: Vec<Placed>,
}

/// A place in the key: block, word, lowest bit.
type At = (usize, usize, u32);

fn slot_at(slot: u8) -> At {
    let slot = usize::from(slot);
    (B_TUN_META + slot / 16, slot % 16 / 2, if slot.is_multiple_of(2) { 32 } else { 0 })
}

impl OptionTable {
    /// Whether no option is mapped.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, ascending by field.
    pub fn mappings(&self) -> impl Iterator<Item = Mapping> {
        self.rows.iter().map(|r| r.mapping)
    }

    /// Number of bits of a field's option; `None` if it is not mapped.
    pub fn bits(&self, idx: u8) -> Option<u16> {
        self.row(idx).map(|r| u16::from(r.mapping.bytes) * 8)
    }

    fn row(&self, idx: u8) -> Option<&Placed> {
        self.rows.iter().find(|r| r.mapping.idx == idx)
    }

    /// The table with additional rows: all or none.
    pub fn with(&self, new: impl IntoIterator<Item = Mapping>) -> Result<OptionTable, MappingError> {
        let mut table = self.clone();
        for mapping in new {
            table.add(mapping)?;
        }
        Ok(table)
    }

    fn add(&mut self, mapping: Mapping) -> Result<(), MappingError> {
        if usize::from(mapping.bytes) > OPTION_BYTES_MAX || !mapping.bytes.is_multiple_of(4) {
            return Err(MappingError::Length);
        }
        if usize::from(mapping.idx) >= OPTIONS_MAX {
            return Err(MappingError::Field);
        }
        if self.row(mapping.idx).is_some() {
            return Err(MappingError::Mapped);
        }
        if self.rows.iter().any(|r| (r.mapping.class, r.mapping.kind) == (mapping.class, mapping.kind)) {
            return Err(MappingError::Duplicate);
        }
        let is_free = |slot: &u8| !self.rows.iter().any(|r| r.slots.contains(slot));
        let wanted = usize::from(mapping.bytes / 4);
        let slots: Vec<u8> = (0..SLOTS as u8).filter(is_free).take(wanted).collect();
        if slots.len() < wanted {
            return Err(MappingError::Full);
        }
        let at = self.rows.partition_point(|r| r.mapping.idx < mapping.idx);
        self.rows.insert(at, Placed { mapping, slots });
        Ok(())
    }

    /// The table without the rows of these fields; what is not mapped is not minded.
    pub fn without(&self, gone: &[u8]) -> OptionTable {
        OptionTable { rows: self.rows.iter().filter(|r| !gone.contains(&r.mapping.idx)).cloned().collect() }
    }

    /// The words of the key that contain bits of `mask` of the option: block, word, mask and value in that
    /// word. Empty if it is not mapped.
    pub fn words<'t>(
        &'t self,
        idx: u8,
        value: &'t Wide,
        mask: &'t Wide,
    ) -> impl Iterator<Item = (usize, usize, u64, u64)> + 't {
        let slots = self.row(idx).map_or(&[][..], |r| &r.slots);
        slots.iter().enumerate().filter(|(n, _)| mask.word(*n) != 0).map(move |(n, slot)| {
            let (block, word, shift) = slot_at(*slot);
            let bits = mask.word(n);
            (block, word, u64::from(bits) << shift, u64::from(value.word(n) & bits) << shift)
        })
    }

    /// The value of an option in a key; 0 if it is absent or not mapped.
    pub fn read(&self, key: &Key, idx: u8) -> Wide {
        let mut value = Wide::ZERO;
        for (n, slot) in self.row(idx).iter().flat_map(|r| r.slots.iter().enumerate()) {
            let (block, word, shift) = slot_at(*slot);
            value.words[WORDS - 1 - n] = (key.word(block, word) >> shift) as u32;
        }
        value
    }

    /// Checks whether `mask` (or `value`, if the mask is the whole option) has bits beyond the option.
    fn check(&self, idx: u8, value: &Wide, mask: &Wide) -> Result<u16, PlaceError> {
        let bits = self.bits(idx).ok_or(PlaceError::Unmapped)?;
        let used = if *mask == Wide::ONES { value } else { mask };
        if used.is_within(&Wide::low(bits)) { Ok(bits) } else { Err(PlaceError::TooLong) }
    }

    /// Whether an action may write this to an option.
    pub fn check_write(&self, idx: u8, value: &Wide, mask: &Wide) -> Result<(), PlaceError> {
        self.check(idx, value, mask).map(drop)
    }

    /// Moves what a match says of options into its key.
    pub fn place(&self, m: &mut Match) -> Result<(), PlaceError> {
        for option in m.options.iter() {
            self.check(option.idx, &option.value, &option.mask)?;
        }
        for option in std::mem::take(&mut m.options).iter() {
            for (block, word, bits, value) in self.words(option.idx, &option.value, &option.mask) {
                let old = m.key.word(block, word);
                m.key.set_word(block, word, old & !bits | value);
                m.mask.add_word(block, word, bits);
            }
            let present = 1 << option.idx;
            m.key.set_masked(FieldId::TunMetadataPresent, present, present);
            m.mask.add(FieldId::TunMetadataPresent, present);
        }
        Ok(())
    }

    /// Moves the options of a match out of its key again.
    pub fn lift(&self, m: &mut Match) {
        let present = m.mask.get(FieldId::TunMetadataPresent) as u64;
        for row in self.rows.iter().filter(|r| present >> r.mapping.idx & 1 != 0) {
            let Mapping { idx, bytes, .. } = row.mapping;
            let (value, mask) = (self.read(&m.key, idx), self.read(&m.mask.0, idx));
            let mask = if mask == Wide::low(u16::from(bytes) * 8) { Wide::ONES } else { mask };
            m.options.set(OptionMatch { idx, value, mask, bytes: Some(bytes) });
            for slot in &row.slots {
                let (block, word, shift) = slot_at(*slot);
                let rest = !(u64::from(u32::MAX) << shift);
                m.key.set_word(block, word, m.key.word(block, word) & rest);
                m.mask.0.set_word(block, word, m.mask.0.word(block, word) & rest);
            }
            m.key.set_masked(FieldId::TunMetadataPresent, 0, 1 << idx);
            m.mask.set(FieldId::TunMetadataPresent, m.mask.get(FieldId::TunMetadataPresent) & !(1 << idx));
        }
        let mask = std::mem::take(&mut m.mask).canonical();
        m.key = m.key.masked(&mask);
        m.mask = mask;
    }

    /// The options that a packet has, as a match of each.
    pub fn of_packet(&self, key: &Key) -> OptionMatches {
        let present = key.get64(FieldId::TunMetadataPresent);
        let mut found = OptionMatches::default();
        for Mapping { idx, bytes, .. } in self.mappings().filter(|m| present >> m.idx & 1 != 0) {
            found.set(OptionMatch { idx, value: self.read(key, idx), mask: Wide::ONES, bytes: Some(bytes) });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(idx: u8, bytes: u8) -> Mapping {
        Mapping { class: 0xffff, kind: idx, bytes, idx }
    }

    fn wide(text: &str) -> Wide {
        let digits = format!("{text:0>248}");
        let bytes: Vec<u8> =
            (0..124).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        Wide::from_be_bytes(&bytes).unwrap()
    }

    #[test]
    fn wide_numbers_shift_and_print_as_numbers_do() {
        let n = wide("123456789abcdef00112233445566778899aabbccddeeff");
        assert_eq!(n.to_string(), "0x123456789abcdef00112233445566778899aabbccddeeff");
        assert_eq!(n.byte_len(), 24);
        for bits in [0, 1, 31, 32, 33, 100, 700] {
            assert_eq!(n.shl(bits).shr(bits), n, "{bits}");
        }
        assert_eq!(n.shr(4).to_string(), "0x123456789abcdef00112233445566778899aabbccddeef");
        assert_eq!(Wide::from(7u128 << 120).low_u128(), 7 << 120);
        assert_eq!(Wide::from(5u128).shl(3), Wide::from(40u128));
        assert_eq!(Wide::low(992), Wide::ONES);
        assert_eq!(Wide::low(33).to_string(), "0x1ffffffff");
        assert_eq!(Wide::ZERO.to_string(), "0");
        assert!(Wide::from_be_bytes(&[1; 125]).is_none());
        assert_eq!(Wide::from_be_bytes(&[0, 0, 1, 2]), Some(Wide::from(0x102u128)));
    }

    #[test]
    fn rows_are_refused_with_the_error_that_says_why_and_space_does_not_fragment() {
        let table = OptionTable::default();
        assert_eq!(table.with([mapping(0, 6)]), Err(MappingError::Length));
        assert_eq!(table.with([mapping(0, 128)]), Err(MappingError::Length));
        assert_eq!(table.with([mapping(64, 4)]), Err(MappingError::Field));
        assert_eq!(table.with([mapping(3, 4), mapping(3, 4)]), Err(MappingError::Mapped));
        let same = Mapping { idx: 4, ..mapping(3, 4) };
        assert_eq!(table.with([mapping(3, 4), same]), Err(MappingError::Duplicate));
        let full = table.with((0..64).map(|idx| mapping(idx, 4))).unwrap();
        let every_other: Vec<u8> = (0..64).filter(|idx| idx % 2 == 0).collect();
        let half = full.without(&every_other);
        let long = half.with([mapping(0, 124)]).expect("31 of the 32 slots that are free");
        assert_eq!(long.with([mapping(2, 8)]), Err(MappingError::Full));
        assert!(long.with([mapping(2, 4)]).is_ok());
        assert!(long.with([mapping(2, 0)]).is_ok(), "an option without a value takes no space");
    }

    #[test]
    fn what_is_placed_is_lifted_the_same_and_matches_the_packets_that_have_it() {
        // Fields 1 and 3 lie around the gaps that others left.
        let filler = OptionTable::default().with([mapping(5, 4), mapping(6, 4), mapping(7, 4)]).unwrap();
        let table = filler.without(&[6]).with([mapping(1, 8), mapping(3, 124)]).unwrap();
        let long = wide(&"8b".repeat(124));
        let cases = [
            (1, Wide::from(0x1122_3344_5566_7788u128), Wide::ONES),
            (1, Wide::from(0x1200_0000_0000u128), Wide::from(0xff00_0000_0000u128)),
            (1, Wide::ZERO, Wide::ZERO),
            (3, long, Wide::ONES),
        ];
        for (idx, value, mask) in cases {
            let mut m = Match::any().with(FieldId::InPort, 3);
            m.options.set(OptionMatch { idx, value, mask, bytes: None });
            let written = m.clone();
            table.place(&mut m).unwrap();
            assert!(m.options.is_empty());
            let mut key = Key::default();
            key.set(FieldId::InPort, 3);
            assert!(!m.matches(&key), "the option is not there");
            key.set(FieldId::TunMetadataPresent, 1 << idx);
            for (block, word, bits, part) in table.words(idx, &value, &Wide::ONES) {
                key.set_word(block, word, key.word(block, word) & !bits | part);
            }
            assert_eq!(table.read(&key, idx), value);
            assert!(m.matches(&key), "{idx} {value} {mask}");
            assert_eq!(table.of_packet(&key).get(idx).map(|o| o.value), Some(value));
            table.lift(&mut m);
            assert_eq!(m, written);
        }
        let mut m = Match::any();
        m.options.set(OptionMatch { idx: 2, value: Wide::ZERO, mask: Wide::ZERO, bytes: None });
        assert_eq!(table.place(&mut m.clone()), Err(PlaceError::Unmapped));
        m.options.remove(2);
        m.options.set(OptionMatch { idx: 5, value: Wide::from(1u128 << 32), mask: Wide::ONES, bytes: None });
        assert_eq!(table.place(&mut m), Err(PlaceError::TooLong));
    }
}
