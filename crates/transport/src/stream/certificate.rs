//! From when to when a certificate is valid, and whose it is.
//!
//! A certificate that is trusted because it was given (it signs itself) has no chain to verify, and may be of
//! X.509's first version, which the library that verifies chains does not read. Its validity is read here.
//! That library does not tell the name of its owner either, by which the database server knows clients.
//!
//! Source: RFC 5280 sections 4.1, 4.1.2.4 and 4.1.2.5; X.690 sections 8.1 and 11.7; X.520 section 6.2.2.

use std::ops::RangeInclusive;

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;

/// 2.5.4.3, id-at-commonName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The validity of a certificate, given as DER, in seconds since 1970. `None`: it cannot be parsed.
pub(super) fn validity(certificate: &[u8]) -> Option<RangeInclusive<i64>> {
    let (validity, _) = validity_and_rest(certificate)?;
    let (from, rest) = time(validity)?;
    let (to, _) = time(rest)?;
    Some(from..=to)
}

/// The first common name of a certificate's subject; the certificate is DER. `None`: there is none, it is
/// empty, or not a text without NUL, which a comparison of C strings could confuse with another subject.
pub(super) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, rest) = validity_and_rest(certificate)?;
    let (mut names, _) = element(rest, SEQUENCE)?;
    while !names.is_empty() {
        let (mut attributes, others) = element(names, SET)?;
        while !attributes.is_empty() {
            let (attribute, next) = element(attributes, SEQUENCE)?;
            let (kind, value) = element(attribute, OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME {
                return text(value);
            }
            attributes = next;
        }
        names = others;
    }
    None
}

/// A nonempty string, if its type uses UTF-8 or ASCII.
fn text(value: &[u8]) -> Option<String> {
    let of = *value.first()?;
    let (bytes, _) = element(value, of)?;
    let is_text = match of {
        UTF8_STRING => true,
        PRINTABLE_STRING | TELETEX_STRING | IA5_STRING => bytes.is_ascii(),
        _ => false,
    };
    let is_usable = is_text && !bytes.is_empty() && !bytes.contains(&0);
    is_usable.then(|| String::from_utf8(bytes.to_vec()).ok()).flatten()
}

/// The contents of a certificate's validity, and the rest after it.
fn validity_and_rest(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (fields, _) = element(certificate, SEQUENCE)?;
    let fields = element(fields, VERSION).map_or(fields, |(_, rest)| rest);
    let (_serial, rest) = element(fields, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    element(rest, SEQUENCE)
}

/// The contents of the element that `bytes` begin with, which must have this tag, and what is behind it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    (first == tag).then_some(())?;
    rest.split_at_checked(length)
}

/// `YYMMDDHHMMSSZ`, of 1950 to 2049, or with a year of four digits.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest, year_digits) = match bytes.first()? {
        &UTC_TIME => element(bytes, UTC_TIME).map(|(text, rest)| (text, rest, 2))?,
        _ => element(bytes, GENERALIZED_TIME).map(|(text, rest)| (text, rest, 4))?,
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (year, others) = text.split_at(year_digits);
    let year: i64 = year.parse().ok()?;
    let year = match year_digits {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let mut part = (0..5).map(|n| others[2 * n..2 * n + 2].parse::<i64>().unwrap_or_default());
    let mut next = || part.next().unwrap_or_default();
    let (month, day, hour, minute, second) = (next(), next(), next(), next(), next());
    Some((days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second, rest))
}

/// In the Gregorian calendar. Years are counted from March, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719468 days lie between the first of March of year 0 and 1970.
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_since_1970() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 23), 20_780),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    #[test]
    fn both_forms_of_time_are_read_and_others_are_not() {
        let read = |tag: u8, text: &str| {
            let mut bytes = vec![tag, text.len() as u8];
            bytes.extend_from_slice(text.as_bytes());
            time(&bytes).map(|(seconds, _)| seconds)
        };
        assert_eq!(read(UTC_TIME, "700101000001Z"), Some(1));
        assert_eq!(read(UTC_TIME, "491231235959Z"), read(GENERALIZED_TIME, "20491231235959Z"));
        for bad in ["700101000001", "7001010000Z", "70010100000xZ", ""] {
            assert_eq!(read(UTC_TIME, bad), None, "{bad}");
        }
        assert_eq!(read(SEQUENCE, "700101000001Z"), None);
        assert_eq!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(validity(&[0x30, 0x03, 0x30, 0x80, 0]), None);
    }

    /// An element of DER, of fewer than 128 bytes.
    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        [&[tag, contents.len() as u8], contents].concat()
    }

    /// What `common_name` reads of a certificate whose owner has these attributes, each in a set of its own.
    fn name_of(attributes: &[(&[u8], u8, &[u8])]) -> Option<String> {
        let sets = attributes.iter().map(|(kind, of, value)| {
            let attribute = [der(OBJECT_IDENTIFIER, kind), der(*of, value)].concat();
            der(SET, &der(SEQUENCE, &attribute))
        });
        let owner = der(SEQUENCE, &sets.collect::<Vec<_>>().concat());
        let empty = der(SEQUENCE, &[]);
        let fields =
            [der(VERSION, &[]), der(INTEGER, &[7]), empty.clone(), empty.clone(), empty, owner].concat();
        common_name(&der(SEQUENCE, &der(SEQUENCE, &fields)))
    }

    #[test]
    fn the_first_common_name_counts_and_one_that_is_no_plain_text_is_none() {
        const COUNTRY: &[u8] = &[0x55, 0x04, 0x06];
        const BMP_STRING: u8 = 0x1e;
        let name =
            |of, value: &[u8]| name_of(&[(COUNTRY, PRINTABLE_STRING, b"CA"), (COMMON_NAME, of, value)]);
        for of in [UTF8_STRING, PRINTABLE_STRING, TELETEX_STRING, IA5_STRING] {
            assert_eq!(name(of, b"client-1").as_deref(), Some("client-1"), "{of}");
            for wrong in [&b""[..], b"client-1\0", b"\0", b"\xff"] {
                assert_eq!(name(of, wrong), None, "{of} {wrong:?}");
            }
        }
        assert_eq!(name(UTF8_STRING, "zoë".as_bytes()).as_deref(), Some("zoë"));
        assert_eq!(name(PRINTABLE_STRING, "zoë".as_bytes()), None);
        assert_eq!(name(BMP_STRING, b"c1"), None);
        let two = |first: &[u8]| {
            name_of(&[(COMMON_NAME, UTF8_STRING, first), (COMMON_NAME, UTF8_STRING, b"second")])
        };
        assert_eq!(two(b"first").as_deref(), Some("first"));
        assert_eq!(two(b""), None);
        assert_eq!(name_of(&[]), None);
        assert_eq!(name_of(&[(COUNTRY, PRINTABLE_STRING, b"CA")]), None);
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_anywhere_is_read_without_a_panic() {
        let key = [der(OBJECT_IDENTIFIER, COMMON_NAME), der(UTF8_STRING, b"x")].concat();
        let owner = der(SEQUENCE, &der(SET, &der(SEQUENCE, &key)));
        let times = [der(UTC_TIME, b"700101000001Z"), der(UTC_TIME, b"700101000002Z")].concat();
        let empty = der(SEQUENCE, &[]);
        let fields = [der(INTEGER, &[7]), empty.clone(), empty, der(SEQUENCE, &times), owner].concat();
        let whole = der(SEQUENCE, &der(SEQUENCE, &fields));
        assert_eq!(validity(&whole), Some(1..=2));
        assert_eq!(common_name(&whole).as_deref(), Some("x"));
        for at in 0..whole.len() {
            assert_eq!(common_name(&whole[..at]), None);
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = (validity(&changed), common_name(&changed));
            }
        }
    }
}
