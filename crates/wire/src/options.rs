//! Options of IPv4 (RFC 791 section 3.1) and TCP (RFC 9293 section 3.1): both are kind, length, data,
//! with kind 0 ending the list and kind 1 filling a byte, and both have room for 40 bytes.

use crate::bytes::invalid;
use crate::{Result, WireError};

/// The most bytes of options that a 4-bit header length leaves: 15 · 4 - 20.
pub const OPTION_BYTES_MAX: usize = 40;

/// Up to 40 bytes of options, padded with zeros to a multiple of 4.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OptionBytes {
    len: u8,
    bytes: [u8; OPTION_BYTES_MAX],
}

impl OptionBytes {
    /// No options.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; OPTION_BYTES_MAX] };

    /// Copies the options and pads them. `None` past 40 bytes.
    pub fn new(options: &[u8]) -> Option<Self> {
        let mut out = Self::EMPTY;
        out.bytes.get_mut(..options.len())?.copy_from_slice(options);
        out.len = options.len().next_multiple_of(4) as u8;
        Some(out)
    }

    /// The bytes with their padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Length in bytes, a multiple of 4 in 0..=40.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the options.
    pub fn iter(&self) -> Options<'_> {
        Options::new("options", self.as_bytes())
    }
}

impl Default for OptionBytes {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl std::fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OptionBytes({:02x?})", self.as_bytes())
    }
}

/// One option other than end-of-list and no-operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlvOption<'a> {
    /// Kind, in IPv4 with its copied flag and class.
    pub kind: u8,
    /// What follows kind and length.
    pub data: &'a [u8],
}

/// Iterator over options. After an error it ends.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    layer: &'static str,
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    pub(crate) fn new(layer: &'static str, bytes: &'a [u8]) -> Self {
        Self { layer, rest: bytes }
    }

    fn step(&mut self) -> Result<Option<TlvOption<'a>>> {
        loop {
            let (kind, len) = match *self.rest {
                [] | [0, ..] => return Ok(None),
                [1, ..] => {
                    self.rest = &self.rest[1..];
                    continue;
                }
                [_] => {
                    return Err(WireError::Truncated { layer: self.layer, need: 2, have: 1 });
                }
                [kind, len, ..] => (kind, usize::from(len)),
            };
            if len < 2 {
                return invalid(self.layer, "option length", len as u64);
            }
            crate::bytes::need(self.layer, self.rest, len)?;
            let (option, rest) = self.rest.split_at(len);
            self.rest = rest;
            return Ok(Some(TlvOption { kind, data: &option[2..] }));
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<TlvOption<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.rest = &[];
        }
        step.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nop_and_end_are_skipped_and_the_rest_is_listed() {
        let bytes = [1, 2, 4, 5, 180, 1, 4, 2, 0, 99];
        let all: Vec<_> = Options::new("tcp", &bytes).map(|o| o.unwrap()).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].kind, all[0].data), (2, &[5, 180][..]));
        assert_eq!((all[1].kind, all[1].data), (4, &[][..]));
    }

    #[test]
    fn bad_lengths_are_an_error_and_the_end() {
        for bytes in [&[7, 0, 1, 1][..], &[7, 1], &[7, 5, 0], &[7]] {
            let mut options = Options::new("ipv4", bytes);
            assert!(options.next().unwrap().is_err());
            assert!(options.next().is_none());
        }
    }

    #[test]
    fn option_bytes_are_padded_and_bounded() {
        assert_eq!(OptionBytes::new(&[2, 4, 5, 180, 1]).unwrap().len(), 8);
        assert_eq!(OptionBytes::new(&[1; 40]).unwrap().len(), 40);
        assert!(OptionBytes::new(&[1; 41]).is_none());
    }
}
