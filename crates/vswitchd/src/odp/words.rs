//! The words shared by flows, actions and frames: ports, numbers, addresses, TCP flags.

use base::PortNo;

/// How ports are shown: by number, or by name if one is known.
pub type PortNames<'a> = &'a dyn Fn(PortNo) -> Option<String>;

/// Shows ports by number.
pub fn numbers(_: PortNo) -> Option<String> {
    None
}

pub(super) fn port(port: PortNo, names: PortNames<'_>) -> String {
    names(port).unwrap_or_else(|| port.to_string())
}

/// A number in hexadecimal with `0x`, zero without.
pub(super) fn hex(value: u128) -> String {
    if value == 0 { "0".into() } else { format!("{value:#x}") }
}

pub(super) fn mac(value: u128) -> String {
    let b = (value as u64).to_be_bytes();
    format!("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[2], b[3], b[4], b[5], b[6], b[7])
}

pub(super) fn ipv4(value: u128) -> String {
    std::net::Ipv4Addr::from(value as u32).to_string()
}

pub(super) fn ipv6(value: u128) -> String {
    std::net::Ipv6Addr::from(value).to_string()
}

/// The flags of TCP, lowest bit first.
pub(super) const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// The bits of a packet's connection tracking state, lowest first.
pub(super) const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// Parses `-fin+syn` into bits and a mask; `None` if it is not a list of signed names.
pub(super) fn signed(text: &str, names: &[&str]) -> Option<(u128, u128)> {
    let (mut value, mut mask, mut rest) = (0, 0, text.trim());
    while !rest.is_empty() {
        let name = rest.strip_prefix(['+', '-'])?;
        let end = name.find(['+', '-']).unwrap_or(name.len());
        let bit = 1 << names.iter().position(|known| *known == name[..end].trim())?;
        mask |= bit;
        value = if rest.starts_with('+') { value | bit } else { value & !bit };
        rest = &name[end..];
    }
    (mask != 0).then_some((value, mask))
}

/// `est|trk` as bits.
pub(super) fn either(text: &str, names: &[&str]) -> Option<u128> {
    text.split('|')
        .try_fold(0, |bits, word| Some(bits | 1 << names.iter().position(|name| *name == word.trim())?))
}

/// TCP flags by name, in the form for a full mask.
pub(super) fn tcp_flags(value: u128) -> String {
    let names = TCP_FLAGS.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1).map(|(_, name)| *name);
    match names.collect::<Vec<_>>().join("|") {
        text if text.is_empty() => hex(value),
        text => text,
    }
}

pub(super) fn decimal(value: u128) -> String {
    value.to_string()
}
