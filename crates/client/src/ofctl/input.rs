//! What commands read: files, standard input, and bytes in hexadecimal.

use super::client::{Failure, fail};
use host::log::os_text;
use std::io::Read;

/// The bytes of a file; `-` is standard input.
pub fn bytes_of(name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let result = match name {
        "-" => std::io::stdin().read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    match result {
        Ok(_) => Ok(bytes),
        Err(error) => fail!("{name}: open failed ({})", os_text(&error)),
    }
}

/// The text of a file. What is not UTF-8 is at most a comment, or a name that nothing has.
pub fn read_file(name: &str) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&bytes_of(name)?).into_owned())
}

/// Bytes in hexadecimal, with blanks anywhere.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let value = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

/// The same, or the stock tool's error.
pub fn hex(text: &str) -> Result<Vec<u8>, Failure> {
    from_hex(text).ok_or_else(|| Failure("Trailing garbage in packet data".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_may_stand_anywhere_in_hexadecimal_and_nothing_else() {
        assert_eq!(from_hex("01 0a0B"), Some(vec![1, 10, 11]));
        assert_eq!((from_hex("0"), from_hex("0g")), (None, None));
    }
}
