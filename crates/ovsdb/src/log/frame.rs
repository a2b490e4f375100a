//! A record as bytes: its header line, and the body whose length and hash that line holds.

use sha1::{Digest, Sha1};
use std::fmt;

/// Which of the two formats of OVSDB a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Magic {
    /// A database used by a single server; the only format that is served here.
    Standalone,
    /// A member of a cluster. It is recognised, so that the error can name it.
    Clustered,
}

impl Magic {
    /// As in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Magic::Standalone => "JSON",
            Magic::Clustered => "CLUSTER",
        }
    }
}

/// The SHA-1 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 20]);

impl Hash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha1::digest(bytes).into())
    }

    /// From a digest that has been fed all bytes.
    pub(super) fn from_digest(sha1: Sha1) -> Hash {
        Hash(sha1.finalize().into())
    }

    /// From 40 hexadecimal digits of either case.
    pub fn parse(text: &[u8]) -> Option<Hash> {
        let mut hash = [0; 20];
        if text.len() != 2 * hash.len() {
            return None;
        }
        for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16);
            *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
        }
        Some(Hash(hash))
    }
}

impl Hash {
    /// Its text, without an allocation: lower case, 40 bytes of ASCII.
    pub fn text(self) -> [u8; 40] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 40];
        for (digits, byte) in text.chunks_exact_mut(2).zip(self.0) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        text
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Maximum length of a header line, including its newline.
pub const HEADER_BYTES_MAX: usize = 128;

/// The first line of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The format.
    pub magic: Magic,
    /// Bytes of the body, its newline included; at least 1.
    pub body_bytes: u64,
    /// SHA-1 of the body, its newline included.
    pub hash: Hash,
}

impl Header {
    /// Parses a line without its newline. `None` if it is not a header.
    pub fn parse(line: &[u8]) -> Option<Header> {
        let rest = line.strip_prefix(b"OVSDB ")?;
        let magic = [Magic::Standalone, Magic::Clustered].into_iter().find_map(|magic| {
            let rest = rest.strip_prefix(magic.as_str().as_bytes())?.strip_prefix(b" ")?;
            Some((magic, rest))
        });
        let (magic, rest) = magic?;
        let blank = rest.iter().position(|&c| c == b' ')?;
        let digits = &rest[..blank];
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let body_bytes = std::str::from_utf8(digits).ok()?.parse().ok().filter(|&n| n > 0)?;
        Some(Header { magic, body_bytes, hash: Hash::parse(&rest[blank + 1..])? })
    }

    /// The line with its newline, for a body.
    pub fn of(magic: Magic, body: &[u8]) -> String {
        format!("OVSDB {} {} {}\n", magic.as_str(), body.len(), Hash::of(body))
    }
}

/// A record of `body`, which is JSON with its newline.
pub fn record(magic: Magic, body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(2 * HEADER_BYTES_MAX + body.len());
    write_record(&mut record, magic, |out| {
        out.extend_from_slice(body);
        true
    });
    record
}

/// Appends the record of the body that `write` appends, which is JSON with its newline. False, with nothing
/// appended, if that says so. The body, which may be large, is never there twice.
pub fn write_record(out: &mut Vec<u8>, magic: Magic, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = out.len();
    let body = start + HEADER_BYTES_MAX;
    out.resize(body, 0);
    if !write(out) {
        out.truncate(start);
        return false;
    }
    let end = out.len();
    debug_assert_eq!(out[body..].iter().position(|&c| c == b'\n'), (end - body).checked_sub(1));
    let hash = Hash::of(&out[body..]).text();
    // The header goes behind the body first, since its length is known only then.
    out.extend_from_slice(b"OVSDB ");
    out.extend_from_slice(magic.as_str().as_bytes());
    out.push(b' ');
    write_decimal(out, (end - body) as u64);
    out.push(b' ');
    out.extend_from_slice(&hash);
    out.push(b'\n');
    let header_bytes = out.len() - end;
    out.copy_within(end.., start);
    out.copy_within(body..end, start + header_bytes);
    out.truncate(start + header_bytes + end - body);
    true
}

/// Appends a number: one or two for each transaction, without memory of their own.
pub(super) fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_the_stock_tool_writes() {
        let body = b"{\"_date\":1795290969830,\"_comment\":\"compacted by ovsdb-tool 3.1.0\"}\n";
        let line = "OVSDB JSON 67 fd03881a5aaa9955276615643d81b50f4b99f282\n";
        assert_eq!(record(Magic::Standalone, body), [line.as_bytes(), body].concat());
        let header = Header::parse(line.trim_end().as_bytes()).unwrap();
        assert_eq!(header, Header { magic: Magic::Standalone, body_bytes: 67, hash: Hash::of(body) });
        assert_eq!(Header::of(Magic::Standalone, body), line);
    }

    #[test]
    fn what_is_not_exactly_a_header_is_none() {
        let hash = "fd03881a5aaa9955276615643d81b50f4b99f282";
        assert!(Header::parse(format!("OVSDB CLUSTER 67 {hash}").as_bytes()).is_some());
        for bad in [
            String::new(),
            "OVSDB JSON".into(),
            format!("OVSDB JSON 67 {hash} "),
            format!("OVSDB JSON 67  {hash}"),
            format!("OVSDB JSON 0 {hash}"),
            format!("OVSDB JSON -1 {hash}"),
            format!("OVSDB JSON +1 {hash}"),
            format!("OVSDB JSON 18446744073709551616 {hash}"),
            format!("OVSDB JSOX 67 {hash}"),
            format!("OVSDB JSON 67 {}", &hash[1..]),
            format!("OVSDB JSON 67 x{}", &hash[1..]),
            format!("ovsdb JSON 67 {hash}"),
        ] {
            assert_eq!(Header::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
