//! Reading and writing numbers in network order, checked.

use crate::error::ErrorKind;

/// Reads from the front of a slice; if that is too short, the error is the one given at the start.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    data: &'a [u8],
    short: ErrorKind,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8], short: ErrorKind) -> Self {
        Reader { data, short }
    }

    /// The same bytes, with another error.
    pub fn with_error(self, short: ErrorKind) -> Self {
        Reader { short, ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.data
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], ErrorKind> {
        let (head, tail) = self.data.split_at_checked(n).ok_or(self.short)?;
        self.data = tail;
        Ok(head)
    }

    /// The next `n` bytes as a reader of their own.
    pub fn sub(&mut self, n: usize) -> Result<Reader<'a>, ErrorKind> {
        Ok(Reader { data: self.take(n)?, short: self.short })
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ErrorKind> {
        let (head, tail) = self.data.split_first_chunk::<N>().ok_or(self.short)?;
        self.data = tail;
        Ok(*head)
    }

    pub fn skip(&mut self, n: usize) -> Result<(), ErrorKind> {
        self.take(n).map(drop)
    }

    /// Skips bytes that must be zero.
    pub fn zeros(&mut self, n: usize, error: ErrorKind) -> Result<(), ErrorKind> {
        if self.take(n)?.iter().all(|&b| b == 0) { Ok(()) } else { Err(error) }
    }

    pub fn u8(&mut self) -> Result<u8, ErrorKind> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, ErrorKind> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, ErrorKind> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, ErrorKind> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A big-endian number of up to 16 bytes.
    pub fn number(&mut self, bytes: usize) -> Result<u128, ErrorKind> {
        Ok(self.take(bytes)?.iter().fold(0, |n, &b| n << 8 | u128::from(b)))
    }

    /// Text in a field of fixed length, up to the first zero byte; what is not UTF-8 is replaced.
    pub fn text(&mut self, n: usize) -> Result<String, ErrorKind> {
        let bytes = self.take(n)?;
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// An error unless everything was read.
    pub fn end(&self) -> Result<(), ErrorKind> {
        if self.data.is_empty() { Ok(()) } else { Err(self.short) }
    }
}

/// Writing to the end of a vector.
pub(crate) trait Put {
    fn u8(&mut self, n: u8);
    fn u16(&mut self, n: u16);
    fn u32(&mut self, n: u32);
    fn u64(&mut self, n: u64);
    fn zeros(&mut self, n: usize);
    /// A big-endian number with this many bytes, truncated at the front.
    fn number(&mut self, n: u128, bytes: usize);
    /// Text in a field of fixed length, cut to leave one zero byte at the end, never within a character.
    fn text(&mut self, text: &str, n: usize);
    /// Zeros until the length since `start` is a multiple of 8.
    fn pad8(&mut self, start: usize);
    /// Sets 16 bits written before.
    fn set_u16(&mut self, at: usize, n: u16);
}

impl Put for Vec<u8> {
    fn u8(&mut self, n: u8) {
        self.push(n);
    }

    fn u16(&mut self, n: u16) {
        self.extend_from_slice(&n.to_be_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_be_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_be_bytes());
    }

    fn zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }

    fn number(&mut self, n: u128, bytes: usize) {
        self.zeros(bytes.saturating_sub(16));
        self.extend_from_slice(&n.to_be_bytes()[16 - bytes.min(16)..]);
    }

    fn text(&mut self, text: &str, n: usize) {
        let mut end = text.len().min(n - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.extend_from_slice(&text.as_bytes()[..end]);
        self.zeros(n - end);
    }

    fn pad8(&mut self, start: usize) {
        self.zeros((self.len() - start).next_multiple_of(8) - (self.len() - start));
    }

    fn set_u16(&mut self, at: usize, n: u16) {
        self[at..at + 2].copy_from_slice(&n.to_be_bytes());
    }
}

/// Reads one after the other until nothing is left.
pub(super) fn read_list<T>(
    r: &mut Reader,
    mut read: impl FnMut(&mut Reader) -> Result<T, ErrorKind>,
) -> Result<Vec<T>, ErrorKind> {
    let mut list = Vec::new();
    while !r.is_empty() {
        list.push(read(r)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_ends_in_zero() {
        let mut out = Vec::new();
        out.text("aüb", 3);
        assert_eq!(out, b"a\0\0");
        let mut r = Reader::new(&out, ErrorKind::OFPBRC_BAD_LEN);
        assert_eq!(r.text(3).unwrap(), "a");
        assert_eq!(r.u8(), Err(ErrorKind::OFPBRC_BAD_LEN));
    }

    #[test]
    fn padding_counts_from_the_start_given() {
        let mut out = vec![1, 2, 3];
        out.u16(5);
        out.pad8(3);
        assert_eq!(out.len(), 11);
        out.pad8(3);
        assert_eq!(out.len(), 11);
    }
}
