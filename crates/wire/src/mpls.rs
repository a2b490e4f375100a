//! MPLS label stack entries (RFC 3032 section 2.1, RFC 5462).

use crate::Result;
use crate::bytes::{need, room};

/// Byte ranges of one entry.
pub mod field {
    use std::ops::Range;

    /// Label (20 bits), traffic class (3 bits), bottom of stack (1 bit), time to live (8 bits).
    pub const ENTRY: Range<usize> = 0..4;
    /// What follows the entry: another one, or the payload.
    pub const PAYLOAD: usize = 4;
}

/// Length of an entry in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

/// The largest label.
pub const LABEL_MAX: u32 = 0xf_ffff;

fn check(bytes: &[u8]) -> Result<()> {
    need("mpls", bytes, HEADER_LEN)
}

view!(
    /// A label stack entry and what follows it.
    MplsHeader, check
);

fields!(MplsHeader {
    /// The four bytes as a number.
    entry, set_entry: u32 at field::ENTRY;
});

impl<B: AsRef<[u8]>> MplsHeader<B> {
    /// Label: below 2^20.
    pub fn label(&self) -> u32 {
        self.entry() >> 12
    }

    /// Traffic class: 0..=7.
    pub fn tc(&self) -> u8 {
        (self.entry() >> 9 & 7) as u8
    }

    /// Bottom of the stack.
    pub fn bos(&self) -> bool {
        self.entry() & 0x100 != 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.entry() as u8
    }

    /// What follows the entry.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> MplsHeader<B> {
    /// Sets the label (its low 20 bits), keeps the rest.
    pub fn set_label(&mut self, label: u32) {
        self.set_entry(self.entry() & 0xfff | label << 12);
    }

    /// Sets the traffic class (its low three bits), keeps the rest.
    pub fn set_tc(&mut self, tc: u8) {
        self.set_entry(self.entry() & !0xe00 | u32::from(tc & 7) << 9);
    }

    /// Sets the bottom of the stack, keeps the rest.
    pub fn set_bos(&mut self, bos: bool) {
        self.set_entry(self.entry() & !0x100 | u32::from(bos) << 8);
    }

    /// Sets the time to live, keeps the rest.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.set_entry(self.entry() & !0xff | u32::from(ttl));
    }
}

/// An entry as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MplsRepr {
    /// Label: below 2^20, higher bits are ignored.
    pub label: u32,
    /// Traffic class: 0..=7, higher bits are ignored.
    pub tc: u8,
    /// Bottom of the stack.
    pub bos: bool,
    /// Time to live.
    pub ttl: u8,
}

impl MplsRepr {
    /// Reads the entry.
    pub fn parse<B: AsRef<[u8]>>(header: &MplsHeader<B>) -> Self {
        Self { label: header.label(), tc: header.tc(), bos: header.bos(), ttl: header.ttl() }
    }

    /// Bytes that [`Self::emit`] writes: 4.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the entry to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut header = MplsHeader(room("mpls", buffer, HEADER_LEN)?);
        header.set_entry(0);
        header.set_label(self.label);
        header.set_tc(self.tc);
        header.set_bos(self.bos);
        header.set_ttl(self.ttl);
        Ok(())
    }
}

/// Iterator over a label stack, up to its bottom or the last whole entry.
#[derive(Debug, Clone)]
pub struct LabelStack<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl<'a> LabelStack<'a> {
    /// `bytes` start with the outermost entry.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, ended: false }
    }

    /// What follows the entries taken so far: after the bottom, the payload.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether the bottom of the stack has been reached.
    pub fn reached_bottom(&self) -> bool {
        self.ended
    }
}

impl Iterator for LabelStack<'_> {
    type Item = MplsRepr;

    fn next(&mut self) -> Option<MplsRepr> {
        if self.ended {
            return None;
        }
        let header = MplsHeader::new(self.rest).ok()?;
        let entry = MplsRepr::parse(&header);
        self.ended = entry.bos;
        self.rest = &self.rest[HEADER_LEN..];
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;

    /// Label 16, class 0, ttl 64; label 1048575, class 5, bottom, ttl 255; one byte of payload.
    const STACK: [u8; 9] = [0x00, 0x01, 0x00, 0x40, 0xff, 0xff, 0xfb, 0xff, 0x45];

    #[test]
    fn a_literal_stack_reads_and_writes_back() {
        let mut stack = LabelStack::new(&STACK);
        let all: Vec<_> = stack.by_ref().collect();
        assert_eq!(
            all,
            [
                MplsRepr { label: 16, tc: 0, bos: false, ttl: 64 },
                MplsRepr { label: LABEL_MAX, tc: 5, bos: true, ttl: 255 },
            ]
        );
        assert!(stack.reached_bottom());
        assert_eq!(stack.rest(), [0x45]);
        let mut out = [0xee; 8];
        all[0].emit(&mut out).unwrap();
        all[1].emit(&mut out[4..]).unwrap();
        assert_eq!(out, STACK[..8]);
    }

    #[test]
    fn a_cut_stack_ends_without_bottom() {
        each_prefix(&STACK[..8], |short| {
            let mut stack = LabelStack::new(short);
            assert_eq!(stack.by_ref().count(), short.len() / 4);
            assert!(!stack.reached_bottom());
            assert_eq!(MplsHeader::new(short).is_ok(), short.len() >= 4);
        });
    }

    #[test]
    fn parts_of_the_entry_are_set_alone() {
        let mut header = MplsHeader::new([0xff; 4]).unwrap();
        header.set_tc(0);
        assert_eq!(header.entry(), 0xffff_f1ff);
        header.set_bos(false);
        assert_eq!(header.entry(), 0xffff_f0ff);
        header.set_label(1);
        assert_eq!(header.entry(), 0x0000_10ff);
        header.set_ttl(7);
        assert_eq!(header.entry(), 0x0000_1007);
        assert_eq!(header.payload(), []);
    }
}
