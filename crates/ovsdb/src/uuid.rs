//! Names of rows and of transactions: 128 random bits in the text form of RFC 4122.

use base::hash::mixed;
use std::fmt;
use std::str::FromStr;

/// The name of a row, a database or a transaction. Its order by bytes is also the order of its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// The length of a UUID's text.
pub const UUID_LEN: usize = 36;

impl Uuid {
    /// All zeros: the default of a column of UUIDs, and the value for "no transaction yet".
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// Whether it is [`Uuid::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Uuid::ZERO
    }

    /// Reads `text`, hexadecimal digits of any case in groups of 8-4-4-4-12, nothing around them.
    pub fn parse(text: &str) -> Option<Uuid> {
        let text = text.as_bytes();
        if text.len() != UUID_LEN {
            return None;
        }
        let mut bytes = [0; 16];
        let (mut at, mut bad) = (0, 0);
        for (index, byte) in bytes.iter_mut().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
            }
            let (high, low) = (HEX_DIGITS[usize::from(text[at])], HEX_DIGITS[usize::from(text[at + 1])]);
            bad |= high | low;
            *byte = high << 4 | (low & 15);
            at += 2;
        }
        (bad < 16).then_some(Uuid(bytes))
    }

    /// Its text, without an allocation: lower case, 36 bytes of ASCII.
    pub fn text(self) -> [u8; UUID_LEN] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; UUID_LEN];
        let mut at = 0;
        for (index, byte) in self.0.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        text
    }

    /// Its first four bytes: what short forms of the stock tools show, and what tables are sharded by.
    pub fn head(self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

/// The value of each byte as a hexadecimal digit; 255 if it is not one.
const HEX_DIGITS: [u8; 256] = {
    let mut digits = [255; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error of [`Uuid::from_str`] for invalid text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAUuid;

impl fmt::Display for NotAUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a valid UUID")
    }
}

impl std::error::Error for NotAUuid {}

impl FromStr for Uuid {
    type Err = NotAUuid;

    fn from_str(text: &str) -> Result<Uuid, NotAUuid> {
        Uuid::parse(text).ok_or(NotAUuid)
    }
}

/// Makes random UUIDs (version 4) from a seed: equal seeds give equal UUIDs, for replays. A server seeds it
/// with 256 bits of the system's randomness.
///
/// xoshiro256** (Blackman and Vigna 2018): its period and its equidistribution make a repetition as unlikely
/// as for truly random bits. Not for secrets.
#[derive(Clone, Debug)]
pub struct UuidGenerator([u64; 4]);

impl UuidGenerator {
    /// A generator from 256 random bits. All zeros, a state that the generator would never leave, are
    /// replaced by another seed.
    pub fn new(seed: [u64; 4]) -> UuidGenerator {
        if seed == [0; 4] { UuidGenerator::from_seed(0) } else { UuidGenerator(seed) }
    }

    /// A generator from a short seed, for tests.
    pub fn from_seed(seed: u64) -> UuidGenerator {
        let mut state = seed;
        UuidGenerator(std::array::from_fn(|_| {
            // splitmix64: consecutive states never are all zero.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed(state)
        }))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// The next UUID.
    pub fn next_uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[6] = 0x40 | (bytes[6] & 0x0f); // version 4: random
        bytes[8] = 0x80 | (bytes[8] & 0x3f); // the variant of RFC 4122
        Uuid(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let mut generator = UuidGenerator::from_seed(7);
        for _ in 0..1000 {
            let uuid = generator.next_uuid();
            let text = uuid.to_string();
            assert_eq!(Uuid::parse(&text), Some(uuid));
            assert_eq!(Uuid::parse(&text.to_uppercase()), Some(uuid));
            assert_eq!((&text[14..15], uuid.0[8] >> 6), ("4", 2), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_uuid_is_refused() {
        let good = "550e8400-e29b-41d4-a716-446655440000";
        assert!(Uuid::parse(good).is_some());
        for bad in [
            "",
            "550e8400",
            &good[1..],
            &format!("{good}0"),
            &good.replace('-', "0"),
            &good.replace('5', "g"),
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
        assert_eq!(Uuid::parse("ééééééééé-e29b-41d4-a716-44665544"), None);
    }

    #[test]
    fn order_of_uuids_is_that_of_their_text() {
        let mut generator = UuidGenerator::from_seed(1);
        let mut uuids: Vec<Uuid> = (0..200).map(|_| generator.next_uuid()).collect();
        uuids.sort();
        let texts: Vec<String> = uuids.iter().map(Uuid::to_string).collect();
        assert!(texts.is_sorted());
    }

    #[test]
    fn a_seed_of_zeros_still_generates() {
        let mut generator = UuidGenerator::new([0; 4]);
        assert_ne!(generator.next_uuid(), generator.next_uuid());
    }
}
