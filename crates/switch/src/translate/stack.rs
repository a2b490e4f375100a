//! The values that actions push and pop: each as its bytes with their number behind, so that what a value
//! takes is what it needs.

use flow::options::Wide;

/// Maximum number of bytes, as in Open vSwitch.
const BYTES_MAX: usize = 65_536;

/// A stack of values of up to 124 bytes.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Stack(Vec<u8>);

impl Stack {
    /// Pushes a big-endian number of at most 124 bytes. False if there is no room.
    pub(crate) fn push(&mut self, value: &[u8]) -> bool {
        let has_room = self.0.len() + value.len() < BYTES_MAX;
        if has_room {
            self.0.extend_from_slice(value);
            self.0.push(value.len() as u8);
        }
        has_room
    }

    pub(crate) fn pop(&mut self) -> Option<Wide> {
        let len = usize::from(self.0.pop()?);
        let value = self.0.split_off(self.0.len() - len);
        Wide::from_be_bytes(&value)
    }

    /// The values, lowest first.
    pub(crate) fn values(&self) -> Vec<&[u8]> {
        let mut values = Vec::new();
        let mut below = &self.0[..];
        while let [rest @ .., len] = below {
            let (rest, value) = rest.split_at(rest.len() - usize::from(*len));
            values.push(value);
            below = rest;
        }
        values.reverse();
        values
    }
}
