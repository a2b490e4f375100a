//! Values and masks of single fields, each in the notation of its row, and slices of fields
//! (`NXM_NX_REG0[0..15]`).

use super::value::{self, split_number, write_hex};
use super::{PortNames, Remark, TextError, bad, put};
use base::OfPort;
use flow::Mf;
use flow::action::SubField;
use flow::mf::{Format, Maskable};
use flow::options::Wide;

/// Names of the bits of `ct_state`, from bit 0 on.
pub(super) const CT_STATE: &[&str] = &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
/// All those bits: the default mask.
pub(super) const CT_STATE_ALL: u128 = (1 << CT_STATE.len()) - 1;
/// Names of the bits of `tcp_flags`, from bit 0 on.
pub(super) const TCP_FLAGS: &[&str] =
    &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
/// Names of the bits of `ipv6_exthdr`, from bit 0 on: OFPIEH_* of OpenFlow 1.3.
const EXTENSION_HEADERS: &[&str] =
    &["nonext", "esp", "auth", "dest", "frag", "router", "hop", "unrep", "unseq"];
/// Names of the bits of `tun_flags`.
pub(super) const TUN_FLAGS: &[&str] = &["oam"];
/// Names of the values of `ip_frag`, with value and mask.
const FRAGMENTS: [(&str, u128, u128); 5] =
    [("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];

/// The name under which `set_field` and errors know a field.
pub(crate) fn display_name(mf: Mf) -> String {
    match mf {
        Mf::NwSrc => "ip_src".to_string(),
        Mf::NwDst => "ip_dst".to_string(),
        _ => mf.name(),
    }
}

/// Parses `VALUE[/MASK]` of a field; `*` means no match. Bits of the value outside the mask may be set.
pub(crate) fn parse_value(mf: Mf, text: &str, ports: &PortNames) -> Result<(u128, u128), TextError> {
    if text == "*" {
        return Ok((0, 0));
    }
    let (value, mask) = match mf.row().format {
        Format::Decimal | Format::Hexadecimal => parse_integer(mf, text)?,
        Format::Ethernet => value::ethernet_masked(text)
            .ok_or_else(|| TextError::new(format!("{text}: invalid Ethernet address")))?,
        Format::Ipv4 => value::ipv4_masked(text)?,
        Format::Ipv6 => value::ipv6_masked(text)?,
        Format::Port => parse_port(mf, text, ports)?,
        Format::Frag => parse_fragments(text)?,
        Format::TunFlags => parse_flags(text, TUN_FLAGS, "tun_flags", "tunnel", mf.ones())?,
        Format::TcpFlags => parse_flags(text, TCP_FLAGS, "tcp_flags", "TCP", mf.ones())?,
        Format::CtState => parse_flags(text, CT_STATE, "ct_state", "ct_state", CT_STATE_ALL)?,
        Format::ExtHdr => parse_flags(text, EXTENSION_HEADERS, "ipv6_exthdr", "extension header", mf.ones())?,
        Format::PacketType => parse_packet_type(text)?,
    };
    if !fits(mf, value & mask) {
        return bad!("{text} is not a valid value for field {}", display_name(mf));
    }
    // Considers all its bytes, like the stock tool.
    let unused = u128::MAX.checked_shl(u32::from(mf.row().bytes) * 8).unwrap_or(0);
    let exact = mask | unused == u128::MAX;
    if mf.row().maskable == Maskable::No && !exact && mask != 0 {
        return bad!("{text}: invalid mask for field {}", display_name(mf));
    }
    Ok((value, mask & mf.ones()))
}

/// Whether the field can hold a value with all the bits that a rule asks for: if bits were cut off, the rule
/// would match more or other packets.
fn fits(mf: Mf, value: u128) -> bool {
    match mf {
        // OpenFlow 1.0: no tag. No tag; and the highest id with the bit for "present".
        Mf::DlVlan => mf.is_valid(value) || value == 0xffff || value == 0x1fff,
        // Both bits of the ECN may be given with it, and are left to their own field.
        Mf::NwTos => value <= 0xff,
        _ => mf.is_valid(value),
    }
}

fn parse_integer(mf: Mf, text: &str) -> Result<(u128, u128), TextError> {
    let bytes = u32::from(mf.row().bytes);
    let syntax = |what: &str| TextError::new(format!("{text}: bad syntax for {} {what}", display_name(mf)));
    let part = |text_part: &str, what: &str| -> Result<(u128, usize), TextError> {
        let (number, rest) = split_number(text_part).ok_or_else(|| syntax(what))?;
        if bytes < 16 && number >> (bytes * 8) != 0 {
            return bad!("{text}: {what} too large for {bytes}-byte field {}", display_name(mf));
        }
        Ok((number, text_part.len() - rest.len()))
    };
    let (number, len) = part(text, "value")?;
    match text[len..].strip_prefix('/') {
        None if len == text.len() => Ok((number, u128::MAX)),
        None => Err(syntax("value")),
        Some(mask_text) => {
            let (mask, len) = part(mask_text, "mask")?;
            if len == mask_text.len() { Ok((number, mask)) } else { Err(syntax("mask")) }
        }
    }
}

/// What the stock tools log about an invalid port number.
fn port_remark(text: &str) -> Option<Remark> {
    let number: u32 = text.parse().ok()?;
    let text = format!(
        "port {number} is outside the supported range 0 through ffff or 0xffffff00 through 0xffffffff"
    );
    Some(Remark { module: "ofp_port", text })
}

fn parse_port(mf: Mf, text: &str, ports: &PortNames) -> Result<(u128, u128), TextError> {
    match ports.parse(text) {
        Some(port) if mf == Mf::ActsetOutput => Ok((port.to_u32().into(), u128::MAX)),
        Some(port) => Ok((port.0.into(), u128::MAX)),
        // A 32-bit field; ports have 16 bits of it.
        None if mf.row().bytes == 4 => {
            let error = TextError::new(format!("{text}: port value out of range for {}", display_name(mf)));
            Err(TextError { warning: port_remark(text), ..error })
        }
        None => bad!("{text}: invalid or unknown port for {}", display_name(mf)),
    }
}

fn parse_fragments(text: &str) -> Result<(u128, u128), TextError> {
    if let Some(&(_, value, mask)) = FRAGMENTS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(text)) {
        return Ok((value, mask));
    }
    // The stock tool's own output of odd masks, and its words, missing parenthesis included.
    let (value, mask) = text.split_once('/').unwrap_or(("", ""));
    match (value::number(value, 3), value::number(mask, 3)) {
        (Some(value), Some(mask)) => Ok((value, mask)),
        _ => bad!(
            "{text}: unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\""
        ),
    }
}

/// `+set-unset`, `one|two`, or `VALUE[/MASK]` in numbers. `0` in the first two means no flags. `all`: the
/// known flags, all of which are matched if neither signs nor a mask are given.
fn parse_flags(
    text: &str,
    names: &[&str],
    field: &str,
    kind: &str,
    all: u128,
) -> Result<(u128, u128), TextError> {
    let bit = |name: &str| names.iter().position(|n| *n == name).map(|i| 1u128 << i);
    let unknown = |what: &str| TextError::new(format!("{what}: unknown {kind} flag(s)"));
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let (value, mask) = text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
        let parsed = value::number(value, all).zip(mask.map_or(Some(all), |m| value::number(m, all)));
        return match parsed {
            Some((value, mask)) if (value | mask) & !all == 0 => Ok((value, mask)),
            _ => Err(unknown(text)),
        };
    }
    if !text.starts_with(['+', '-']) {
        let mut value = 0;
        for name in text.split('|').filter(|name| !name.is_empty()) {
            value |= bit(name).ok_or_else(|| unknown(text))?;
        }
        return if value == 0 { Err(unknown(text)) } else { Ok((value, all)) };
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        if sign != '+' && sign != '-' {
            return bad!("{text}: {field} must be preceded by '+' (for SET) or '-' (NOT SET)");
        }
        let body = &rest[1..];
        let len = body.find(['+', '-']).unwrap_or(body.len());
        let name = &body[..len];
        let Some(bit) = bit(name) else { return Err(unknown(name)) };
        if mask & bit != 0 {
            return bad!("{name}: Each {kind} flag can be specified only once");
        }
        mask |= bit;
        if sign == '+' {
            value |= bit;
        }
        rest = &body[len..];
    }
    Ok((value, mask))
}

/// `(NAMESPACE,TYPE)`.
fn parse_packet_type(text: &str) -> Result<(u128, u128), TextError> {
    let syntax =
        |rest: &str, what: &str| TextError::new(format!("{rest}: bad syntax for packet type {what}"));
    let number = |text, what| match split_number(text) {
        Some((number, rest)) if number <= 0xffff => Ok((number, rest)),
        _ => Err(syntax(text, what)),
    };
    let inner = text.strip_prefix('(').ok_or_else(|| syntax(text, "missing '('"))?;
    let (namespace, rest) = number(inner, "ns")?;
    let kind_text = rest.strip_prefix(',').ok_or_else(|| syntax(inner, "missing ','"))?;
    let (kind, rest) = number(kind_text, "ns_type")?;
    match rest.strip_prefix(')') {
        Some("") => Ok((namespace << 16 | kind, u128::MAX)),
        Some(_) => bad!("{text}: not a valid packet type"),
        None => Err(syntax(kind_text, "missing ')'")),
    }
}

/// Appends a value and, unless the field is matched exactly, its mask, as `set_field` and `load` write them.
pub(crate) fn write_value(out: &mut String, mf: Mf, value: u128, mask: u128, ports: &PortNames) {
    let exact = mask == mf.ones();
    match mf.row().format {
        Format::Decimal | Format::Hexadecimal => {
            if mf.row().format == Format::Decimal {
                put!(out, "{value}");
            } else {
                write_hex(out, value);
            }
            if !exact {
                put!(out, "/{mask:#x}");
            }
        }
        Format::Ethernet => write_ethernet_masked(out, value as u64, mask as u64),
        Format::Ipv4 => value::write_ipv4(out, value as u32, mask as u32),
        Format::Ipv6 => value::write_ipv6(out, value, mask),
        // A part of a port's number names no port.
        Format::Port if !exact => put!(out, "{value}/{mask:#x}"),
        Format::Port => match OfPort::from_u32(value as u32) {
            Some(port) => ports.write(out, port),
            None => ports.write(out, OfPort(value as u16)),
        },
        Format::Frag => write_fragments(out, value, mask),
        Format::TunFlags => write_flags(out, TUN_FLAGS, value, mask, mf.ones(), false),
        Format::TcpFlags => write_flags(out, TCP_FLAGS, value, mask, mf.ones(), false),
        Format::CtState => write_flags(out, CT_STATE, value, mask, CT_STATE_ALL, false),
        Format::ExtHdr => write_extension_headers(out, value, mask),
        Format::PacketType => put!(out, "({},{})", value >> 16, packet_type_text(value & 0xffff)),
    }
}

pub(super) fn packet_type_text(number: u128) -> String {
    if number < 10 { number.to_string() } else { format!("{number:#x}") }
}

pub(super) fn write_ethernet_masked(out: &mut String, value: u64, mask: u64) {
    value::write_ethernet(out, value);
    if mask != 0xffff_ffff_ffff {
        out.push('/');
        value::write_ethernet(out, mask);
    }
}

pub(super) fn write_fragments(out: &mut String, value: u128, mask: u128) {
    match FRAGMENTS.iter().find(|(_, v, m)| (*v, *m) == (value, mask)) {
        Some((name, ..)) => out.push_str(name),
        None => put!(out, "<error>"),
    }
}

/// Appends which extension headers are matched, as flags.
pub(super) fn write_extension_headers(out: &mut String, value: u128, mask: u128) {
    write_flags(out, EXTENSION_HEADERS, value, mask, Mf::Ipv6ExtHdr.ones(), false);
}

/// Appends flags: `one|two` where every bit is matched, else `+one-two`, lowest bit first.
pub(super) fn write_flags(
    out: &mut String,
    names: &[&str],
    value: u128,
    mask: u128,
    ones: u128,
    always_signed: bool,
) {
    if mask & ones == ones && !always_signed {
        if value == 0 {
            out.push('0');
        }
        let mut first = true;
        for (i, name) in names.iter().enumerate().filter(|(i, _)| value >> i & 1 != 0) {
            put!(out, "{}{name}", if first { "" } else { "|" });
            debug_assert!(i < 128);
            first = false;
        }
        return;
    }
    for (i, name) in names.iter().enumerate().filter(|(i, _)| mask >> i & 1 != 0) {
        put!(out, "{}{name}", if value >> i & 1 != 0 { '+' } else { '-' });
    }
}

/// Names of fields.
pub fn field_names() -> impl Iterator<Item = String> {
    let aliases = |mf: Mf| mf.row().aliases.iter().map(|alias| alias.to_string());
    let names = Mf::all().flat_map(move |mf| std::iter::once(mf.name()).chain(aliases(mf)));
    names.chain(["tp_src", "tp_dst"].map(String::from))
}

/// Reads a slice of a field, `NAME[]`, `NAME[BIT]` or `NAME[FIRST..LAST]`, or `NAME` for the whole, at the
/// beginning of a text; gives it and what follows.
pub(crate) fn split_subfield(text: &str) -> Result<(SubField, &str), TextError> {
    let name_len = text.find(['[', '-']).unwrap_or(text.len());
    let name = &text[..name_len];
    let named = match name {
        "tp_src" => Some(Mf::TcpSrc),
        "tp_dst" => Some(Mf::TcpDst),
        _ => Mf::from_name(name),
    };
    let unknown = || TextError::unknown(format!("{text}: unknown field `{name}'"), name, field_names());
    let field = named.ok_or_else(unknown)?;
    let width = field.row().subfield_bits;
    let whole = SubField { field, offset: 0, count: width };
    let Some(inner) = text[name_len..].strip_prefix('[') else { return Ok((whole, &text[name_len..])) };
    let syntax =
        || TextError::new(format!("{text}: syntax error expecting [] or [<bit>] or [<start>..<end>]"));
    let (inner, rest) = inner.split_once(']').ok_or_else(syntax)?;
    if inner.is_empty() {
        return Ok((whole, rest));
    }
    let (first, last) = inner.split_once("..").unwrap_or((inner, inner));
    let bit = |t: &str| t.trim().parse::<u16>().map_err(|_| syntax());
    let (first, last) = (bit(first)?, bit(last)?);
    if first > last {
        return bad!("{text}: starting bit {first} is after ending bit {last}");
    }
    for (which, bit) in [("starting", first), ("ending", last)] {
        if bit >= width {
            return bad!("{text}: {which} bit {bit} is not valid because field is only {width} bits wide");
        }
    }
    Ok((SubField { field, offset: first, count: last - first + 1 }, rest))
}

/// Parses a text that consists of one slice of a field.
pub fn parse_subfield(text: &str) -> Result<SubField, TextError> {
    match split_subfield(text)? {
        (sub, "") => Ok(sub),
        (_, rest) => bad!("{text}: trailing garbage `{rest}' following subfield"),
    }
}

/// The value of some bits of a field in the format of Open vSwitch's trace: `value` is the whole field's,
/// which has so many bits.
pub fn subfield_value_text(sub: SubField, value: &Wide, bits: u16) -> String {
    let mut out = String::new();
    write_subfield(&mut out, sub);
    out.push_str(" is now ");
    if sub.offset == 0 && sub.count >= bits && !matches!(sub.field, Mf::TunMetadata(_)) {
        write_value(&mut out, sub.field, value.low_u128(), sub.field.ones(), PortNames::none());
    } else {
        put!(out, "{}", value.shr(sub.offset).and(&Wide::low(sub.count)));
    }
    out
}

/// Appends a slice of a field under its wire name.
pub(crate) fn write_subfield(out: &mut String, sub: SubField) {
    match sub.field.wire_name() {
        Some(name) => out.push_str(&name),
        None => out.push_str(&sub.field.name()),
    }
    if sub.offset == 0 && sub.count == sub.field.row().subfield_bits {
        out.push_str("[]");
    } else if sub.count == 1 {
        put!(out, "[{}]", sub.offset);
    } else {
        put!(out, "[{}..{}]", sub.offset, sub.offset + sub.count - 1);
    }
}

/// Parses the state of a connection's packet (`trk,est`), in the syntax of `ofproto/trace --ct-next`. `Err`
/// says what is wrong with it.
pub fn connection_state(text: &str) -> Result<u32, String> {
    let mut state = 0;
    for name in text.split([',', ' ']).filter(|name| !name.is_empty()) {
        let bit = CT_STATE.iter().position(|known| *known == name);
        state |= 1 << bit.ok_or_else(|| format!("{name}: unknown connection tracking state flag"))?;
    }
    let [new, est, rpl, inv, trk] = [0x01, 0x02, 0x08, 0x10, 0x20];
    let refusals = [
        (state != 0 && state & trk == 0, "If \"trk\" is unset, no other flags are set"),
        (state & inv != 0 && state & !(trk | inv) != 0, "when \"inv\" is set, only \"trk\" may also be set"),
        (state & new != 0 && state & est != 0, "\"new\" and \"est\" are mutually exclusive"),
        (state & new != 0 && state & rpl != 0, "\"new\" and \"rpy\" are mutually exclusive"),
    ];
    let set = CT_STATE.iter().enumerate().filter(|(bit, _)| state >> bit & 1 != 0);
    let shown = set.map(|(_, name)| *name).collect::<Vec<_>>().join("|");
    let why = refusals.iter().filter(|(is_wrong, _)| *is_wrong);
    let why: String = why.map(|(_, why)| format!("{shown}: invalid connection state: {why}\n")).collect();
    if why.is_empty() { Ok(state) } else { Err(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_read_and_written() {
        let cases = [
            ("NXM_NX_REG0[0..15]", "NXM_NX_REG0[0..15]"),
            ("reg0", "NXM_NX_REG0[]"),
            ("reg0[]", "NXM_NX_REG0[]"),
            ("reg0[0..31]", "NXM_NX_REG0[]"),
            ("eth_src[5]", "NXM_OF_ETH_SRC[5]"),
            ("metadata[]", "OXM_OF_METADATA[]"),
        ];
        for (text, expected) in cases {
            let mut out = String::new();
            write_subfield(&mut out, parse_subfield(text).unwrap());
            assert_eq!(out, expected);
        }
        for bad in ["", "foo", "reg0[", "reg0[1", "reg0[a]", "reg0[3..1]", "reg0[32]", "reg0[]x", "reg0[-1]"]
        {
            assert!(parse_subfield(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_are_read_in_each_notation() {
        let read = |text| parse_value(Mf::TcpFlags, text, PortNames::none());
        assert_eq!(read("+syn-ack"), Ok((2, 0x12)));
        assert_eq!(read("syn|ack"), Ok((0x12, 0xfff)));
        assert_eq!(read("0x3/0x7"), Ok((3, 7)));
        assert_eq!(read("+[200]"), Ok((0x200, 0x200)));
        for bad in ["", "|", "+", "foo", "+syn+syn", "+syn|ack", "syn,", "0x10000", "1/0x1001", "+é"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
