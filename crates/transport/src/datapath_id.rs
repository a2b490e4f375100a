//! Datapath ids as people write them.

/// Parses a datapath id: exactly 16 hexadecimal digits, or up to 16 after `0x`. `None` for anything else, and
/// for zero, which means "any".
pub fn parse_datapath_id(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let fits = digits.map_or(text.len() == 16, |d| (1..=16).contains(&d.len()));
    let digits = digits.unwrap_or(text);
    let is_plain = digits.chars().all(|c| c.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| *id != 0 && fits && is_plain)
}
