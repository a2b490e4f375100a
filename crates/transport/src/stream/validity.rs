//! From when to when a certificate is valid.
//!
//! A certificate that is trusted because it was given (it signs itself) has no chain to verify, and may be of
//! X.509's first version, which the library that verifies chains does not read. Its validity is read here.
//!
//! Source: RFC 5280 sections 4.1 and 4.1.2.5; X.690 sections 8.1 and 11.7.

use std::ops::RangeInclusive;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Seconds since 1970 in which a certificate, given as DER, is valid. `None`: it cannot be read.
pub(super) fn validity(certificate: &[u8]) -> Option<RangeInclusive<i64>> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (fields, _) = element(certificate, SEQUENCE)?;
    let fields = element(fields, VERSION).map_or(fields, |(_, rest)| rest);
    let (_serial, rest) = element(fields, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (from, rest) = time(validity)?;
    let (to, _) = time(rest)?;
    Some(from..=to)
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
}
