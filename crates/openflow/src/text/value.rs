//! Numbers and addresses in text.

use super::{TextError, bad, put};
use flow::options::{OPTION_BYTES_MAX, Wide};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Parses an unsigned number in C's notation (`10`, `0x0a`, `012`) at the start of a text; returns it and the
/// rest. `None` if there is no number or it has more than 128 bits.
pub(crate) fn split_number(text: &str) -> Option<(u128, &str)> {
    let (radix, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', d, ..] if d.is_ascii_hexdigit() => (16, &text[2..]),
        [b'0', ..] => (8, text),
        _ => (10, text),
    };
    let len = digits.bytes().position(|b| !(b as char).is_digit(radix)).unwrap_or(digits.len());
    let number = u128::from_str_radix(&digits[..len], radix).ok()?;
    Some((number, &digits[len..]))
}

/// Parses `VALUE[/MASK]` of a tunnel option, numbers of up to 992 bits; the mask defaults to [`Wide::ONES`].
pub(crate) fn wide_masked(text: &str, field: &str) -> Result<(Wide, Wide), TextError> {
    let part = |part: &str, what: &str| match wide(part) {
        Some(Some(number)) => Ok(number),
        Some(None) => bad!("{text}: {what} too large for {OPTION_BYTES_MAX}-byte field {field}"),
        None => bad!("{text}: bad syntax for {field} {what}"),
    };
    match text.split_once('/') {
        None => Ok((part(text, "value")?, Wide::ONES)),
        Some((value, mask)) => Ok((part(value, "value")?, part(mask, "mask")?)),
    }
}

/// Parses a whole text as a number: `None` if it is not one, `Some(None)` if it has more than 992 bits.
pub(crate) fn wide(text: &str) -> Option<Option<Wide>> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let Some(digits) = digits else { return number(text, u128::MAX).map(|n| Some(Wide::from(n))) };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u8;
    let mut bytes: Vec<u8> =
        digits.as_bytes().rchunks(2).map(|d| d.iter().fold(0, |n, b| n << 4 | digit(*b))).collect();
    bytes.reverse();
    Some(Wide::from_be_bytes(&bytes))
}

/// A whole text as a number of at most `max`.
pub(crate) fn number(text: &str, max: u128) -> Option<u128> {
    match split_number(text) {
        Some((number, "")) if number <= max => Some(number),
        _ => None,
    }
}

pub(crate) fn u8_named(text: &str, name: &str) -> Result<u8, TextError> {
    number(text, u8::MAX.into())
        .map(|n| n as u8)
        .ok_or_else(|| TextError::new(format!("invalid {name} \"{text}\"")))
}

pub(crate) fn u16_named(text: &str, name: &str) -> Result<u16, TextError> {
    number(text, u16::MAX.into())
        .map(|n| n as u16)
        .ok_or_else(|| TextError::new(format!("invalid {name} \"{text}\"")))
}

pub(crate) fn u32_of(text: &str) -> Result<u32, TextError> {
    if text.is_empty() {
        return bad!("missing required numeric argument");
    }
    match number(text, u32::MAX.into()) {
        Some(n) => Ok(n as u32),
        None => bad!("invalid numeric format {text}"),
    }
}

pub(crate) fn u64_of(text: &str) -> Result<u64, TextError> {
    if text.is_empty() {
        return bad!("missing required numeric argument");
    }
    // As in C, a minus counts down from 2^64: `-1` is a mask of all ones.
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    match number(digits, u64::MAX.into()) {
        Some(n) if negative => Ok((n as u64).wrapping_neg()),
        Some(n) => Ok(n as u64),
        None => bad!("invalid numeric format {text}"),
    }
}

/// `VALUE[/MASK]` of 64 bits.
pub(crate) fn u64_masked(text: &str) -> Result<(u64, u64), TextError> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((u64_of(value)?, u64_of(mask)?)),
        None => Ok((u64_of(text)?, u64::MAX)),
    }
}

/// Six bytes in hexadecimal with colons between, as a number.
pub fn parse_ethernet(text: &str) -> Option<u64> {
    let mut address = 0;
    let mut parts = text.split(':');
    for _ in 0..6 {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        address = address << 8 | u64::from(u8::from_str_radix(part, 16).ok()?);
    }
    parts.next().is_none().then_some(address)
}

/// Appends an Ethernet address.
pub fn write_ethernet(out: &mut String, address: u64) {
    let b = address.to_be_bytes();
    put!(out, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[2], b[3], b[4], b[5], b[6], b[7]);
}

/// `ADDRESS[/MASK]`, the mask as an address or all ones.
pub(crate) fn ethernet_masked(text: &str) -> Option<(u128, u128)> {
    let (address, mask) = text.split_once('/').unwrap_or((text, "ff:ff:ff:ff:ff:ff"));
    Some((parse_ethernet(address)?.into(), parse_ethernet(mask)?.into()))
}

/// `ADDRESS[/MASK]`; the mask may be a prefix length or an address.
pub(crate) fn ipv4_masked(text: &str) -> Result<(u128, u128), TextError> {
    let (address, mask) = text.split_once('/').map_or((text, None), |(a, m)| (a, Some(m)));
    let Ok(ip) = address.parse::<Ipv4Addr>() else { return bad!("{text}: invalid IP address") };
    let mask = match mask {
        None => u32::MAX,
        Some(mask) if mask.contains('.') => match mask.parse::<Ipv4Addr>() {
            Ok(mask) => mask.to_bits(),
            Err(_) => return bad!("{text}: invalid IP address"),
        },
        Some(mask) => match mask.parse::<u32>() {
            Ok(len @ 0..=32) => u32::MAX.checked_shl(32 - len).unwrap_or(0),
            Ok(_) => return bad!("{text}: IPv4 network prefix bits not between 0 and 32, inclusive"),
            Err(_) => return bad!("{text}: invalid IP address"),
        },
    };
    Ok((ip.to_bits().into(), mask.into()))
}

/// Likewise.
pub(crate) fn ipv6_masked(text: &str) -> Result<(u128, u128), TextError> {
    let (address, mask) = text.split_once('/').map_or((text, None), |(a, m)| (a, Some(m)));
    let Ok(ip) = address.parse::<Ipv6Addr>() else { return bad!("{text}: invalid IPv6 address") };
    let mask = match mask {
        None => u128::MAX,
        Some(mask) if mask.contains(':') => match mask.parse::<Ipv6Addr>() {
            Ok(mask) => mask.to_bits(),
            Err(_) => return bad!("{text}: invalid IPv6 address"),
        },
        Some(mask) => match mask.parse::<u32>() {
            Ok(len @ 0..=128) => u128::MAX.checked_shl(128 - len).unwrap_or(0),
            Ok(_) => return bad!("{text}: IPv6 network prefix bits not between 0 and 128, inclusive"),
            Err(_) => return bad!("{text}: invalid IPv6 address"),
        },
    };
    Ok((ip.to_bits(), mask))
}

/// Appends an address and, unless it is all ones, its mask.
pub(crate) fn write_ipv4(out: &mut String, address: u32, mask: u32) {
    put!(out, "{}", Ipv4Addr::from_bits(address));
    if mask == u32::MAX {
    } else if mask.leading_ones() + mask.trailing_zeros() >= 32 {
        put!(out, "/{}", mask.leading_ones());
    } else {
        put!(out, "/{}", Ipv4Addr::from_bits(mask));
    }
}

/// Likewise.
pub(crate) fn write_ipv6(out: &mut String, address: u128, mask: u128) {
    write_ipv6_address(out, address);
    if mask == u128::MAX {
    } else if mask.leading_ones() + mask.trailing_zeros() >= 128 {
        put!(out, "/{}", mask.leading_ones());
    } else {
        out.push('/');
        write_ipv6_address(out, mask);
    }
}

/// In the format of inet_ntop(3), which writes mapped addresses and also compatible ones (`::1.2.3.4`) with
/// dots.
fn write_ipv6_address(out: &mut String, address: u128) {
    if address >> 32 == 0 && address > 0xffff {
        put!(out, "::{}", Ipv4Addr::from_bits(address as u32));
    } else {
        put!(out, "{}", Ipv6Addr::from_bits(address));
    }
}

/// Appends `0x..`, or `0` for zero, as C's `%#x`.
pub(crate) fn write_hex(out: &mut String, number: u128) {
    if number == 0 { out.push('0') } else { put!(out, "{number:#x}") }
}

/// Appends bytes in hexadecimal with dots between.
pub(crate) fn write_dotted_hex(out: &mut String, bytes: &[u8]) {
    for (i, b) in bytes.iter().enumerate() {
        put!(out, "{}{b:02x}", if i == 0 { "" } else { "." });
    }
}

/// Bytes in hexadecimal, two digits each, with or without dots between.
pub(crate) fn dotted_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    loop {
        while let [b'.' | b' ', more @ ..] = rest {
            rest = more;
        }
        let [high, low, more @ ..] = rest else { break };
        let digit = |b: &u8| (*b as char).to_digit(16);
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
        rest = more;
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_the_notations_of_c() {
        for (text, expected) in
            [("10", Some(10)), ("0x1F", Some(31)), ("010", Some(8)), ("0", Some(0)), ("0x", None)]
        {
            assert_eq!(number(text, 255), expected, "{text}");
        }
        for bad in ["", "256", "-1", "1x", "08", "0xg", "999999999999999999999999999999999999999999"] {
            assert_eq!(number(bad, 255), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["10.0.0.0/8", "1.2.3.4", "10.0.0.1/255.0.0.255", "0.0.0.0/1"] {
            let (value, mask) = ipv4_masked(text).unwrap();
            let mut out = String::new();
            write_ipv4(&mut out, value as u32, mask as u32);
            assert_eq!(out, text);
        }
        for text in
            ["1::/64", "::", "::1", "fe80::1/ff::ff", "::ffff:1.2.3.4", "::1.2.3.4", "1:2:3:4:5:6:7:8"]
        {
            let (value, mask) = ipv6_masked(text).unwrap();
            let mut out = String::new();
            write_ipv6(&mut out, value, mask);
            assert_eq!(out, text);
        }
        assert_eq!(parse_ethernet("1:2:3:4:5:6"), Some(0x010203040506));
        for bad in ["1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:666", "1:2:3:4:5:", "+1:2:3:4:5:6"] {
            assert_eq!(parse_ethernet(bad), None, "{bad}");
        }
    }

    #[test]
    fn dotted_bytes() {
        assert_eq!(dotted_hex("01.02ff"), Some(vec![1, 2, 255]));
        assert_eq!(dotted_hex(""), Some(vec![]));
        assert_eq!(dotted_hex("0"), None);
        assert_eq!(dotted_hex("0g"), None);
    }
}
