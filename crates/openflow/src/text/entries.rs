//! Lists of NXM and OXM entries by wire names: `NXM_OF_ETH_TYPE(0800), NXM_OF_IP_SRC_W(c0a80000/ffff0000)`,
//! `<any>` for none. A header without a name is shown in hexadecimal.

use super::{TextError, bad};
use crate::codec::bytes::Reader;
use crate::codec::matching::{COOKIE, read_header, write_header};
use crate::error::ErrorKind;
use flow::Mf;
use flow::mf::{NxmHeader, Wire};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The text for an empty list.
const NONE: &str = "<any>";

/// By name, a field's numbers and how many bytes its values have; `None` if that differs.
static WIRES: LazyLock<HashMap<String, (Wire, Option<usize>)>> = LazyLock::new(|| {
    let bytes = |wire: &Wire| match Mf::from_nxm(NxmHeader::new(*wire, false, 0))? {
        Mf::TunMetadata(_) => None,
        mf => Some(usize::from(mf.row().bytes)),
    };
    let fields = Mf::wire_names().map(|(name, wire)| (name, (wire, bytes(&wire))));
    fields.chain([(COOKIE.name.to_string(), (COOKIE, Some(8)))]).collect()
});

/// Encodes the entries in a text. Values and masks are as long as their field; the decoder checks what else
/// makes them valid, and that headers are known.
pub fn parse_entries(text: &str) -> Result<Vec<u8>, TextError> {
    let is_between = |c: char| c == ',' || c.is_ascii_whitespace();
    let text = text.trim_matches(is_between);
    let mut rest = text;
    let mut out = Vec::new();
    if rest == NONE {
        return Ok(out);
    }
    while !rest.is_empty() {
        let Some((name, body)) = rest.split_once('(') else {
            return bad!("{text}: missing ( at end of nx_match");
        };
        rest = entry(&mut out, text, name, body)?.trim_start_matches(is_between);
    }
    Ok(out)
}

/// Appends one entry of a text, whose header is a name or a number. Returns what comes behind it.
fn entry<'t>(out: &mut Vec<u8>, text: &str, name: &str, body: &'t str) -> Result<&'t str, TextError> {
    let named = WIRES.get(name).map(|wire| (wire, false));
    let named = named.or_else(|| Some((WIRES.get(name.strip_suffix("_W")?)?, true)));
    let number = if named.is_none() { header_of(name) } else { None };
    let (is_masked, bytes) = match (named, number) {
        (Some(((_, bytes), is_masked)), _) => (is_masked, *bytes),
        (None, Some(header)) => {
            let payload = header.payload_length().unwrap_or_default();
            (header.has_mask(), Some(if header.has_mask() { payload / 2 } else { payload }))
        }
        (None, None) => return bad!("{text}: unknown field `{name}'"),
    };
    let (value, mut rest) = hex(body);
    if let Some(bytes) = bytes.filter(|bytes| *bytes != value.len()) {
        return bad!("expected to read {bytes} bytes but got {}", value.len());
    }
    let mut mask = Vec::new();
    if is_masked {
        let Some(after) = rest.strip_prefix('/') else {
            return bad!("{text}: missing / in masked field {name}");
        };
        (mask, rest) = hex(after);
        if mask.len() != value.len() {
            return bad!("{}: hex digits expected", rest.chars().take(2).collect::<String>());
        }
    }
    let Some(rest) = rest.strip_prefix(')') else {
        return bad!("{text}: missing ) following field {name}");
    };
    let payload = value.len() + mask.len();
    match (named, number) {
        // The length is one byte, and an experimenter takes four of those bytes.
        (Some(_), _) if payload > 251 => {
            return bad!("{name}: {payload} bytes of value and mask are too many");
        }
        (Some(((wire, _), _)), _) => write_header(out, NxmHeader::new(*wire, is_masked, payload)),
        (None, number) => out.extend(
            number.iter().flat_map(|header| header.0.to_be_bytes().into_iter().take(header.header_length())),
        ),
    }
    out.extend(value);
    out.extend(mask);
    Ok(rest)
}

/// A header that is written as a number.
fn header_of(digits: &str) -> Option<NxmHeader> {
    let (bytes, rest) = hex(digits);
    let header = match bytes.as_slice() {
        [a, b, c, d] => NxmHeader(u64::from(u32::from_be_bytes([*a, *b, *c, *d])) << 32),
        [..] => NxmHeader(u64::from_be_bytes(bytes.as_slice().try_into().ok()?)),
    };
    (rest.is_empty() && bytes.len() == header.header_length()).then_some(header)
}

/// The whole bytes in hexadecimal at the start of a text, between which there may be blanks, and what comes
/// behind them.
fn hex(text: &str) -> (Vec<u8>, &str) {
    let digit = |at: Option<char>| Some(at?.to_digit(16)? as u8);
    let (mut bytes, mut rest) = (Vec::new(), text.trim_ascii_start());
    loop {
        let mut pair = rest.chars();
        let (Some(high), Some(low)) = (digit(pair.next()), digit(pair.next())) else { return (bytes, rest) };
        bytes.push(high << 4 | low);
        rest = pair.as_str().trim_ascii_start();
    }
}

/// An undecoded entry of a list.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// Class, number, has-mask bit and length.
    pub header: NxmHeader,
    /// The value.
    pub value: &'a [u8],
    /// The mask; empty without one.
    pub mask: &'a [u8],
}

impl RawEntry<'_> {
    /// Whether the value has bits outside the mask.
    pub fn is_beyond_mask(&self) -> bool {
        self.value.iter().zip(self.mask).any(|(value, mask)| value & !mask != 0)
    }

    fn text(&self) -> String {
        let same = |wire: &Wire| {
            (wire.class, wire.number, wire.experimenter)
                == (self.header.class(), self.header.number(), self.header.experimenter())
        };
        // The cookie shares its number with a field of another length.
        let is_cookie = same(&COOKIE) && self.value.len() == 8;
        let known = Mf::from_nxm(self.header).and_then(|_| WIRES.iter().find(|(_, (wire, _))| same(wire)));
        let name = match known {
            _ if is_cookie => COOKIE.name.to_string(),
            Some((name, _)) => name.clone(),
            None if self.header.is_experimenter() => format!("{:016x}", self.header.0),
            None => format!("{:08x}", self.header.0 >> 32),
        };
        let digits = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let suffix = if known.is_some() || is_cookie { "_W" } else { "" };
        match self.mask {
            [] => format!("{name}({})", digits(self.value)),
            mask => format!("{name}{suffix}({}/{})", digits(self.value), digits(mask)),
        }
    }
}

/// The entries of a list, up to the first truncated one.
pub fn raw_entries(bytes: &[u8]) -> impl Iterator<Item = RawEntry<'_>> {
    let mut r = Reader::new(bytes, ErrorKind::OFPBMC_BAD_LEN);
    std::iter::from_fn(move || {
        let header = read_header(&mut r).ok()?;
        let body = r.take(header.payload_length()?).ok()?;
        let (value, mask) = body.split_at(if header.has_mask() { body.len() / 2 } else { body.len() });
        Some(RawEntry { header, value, mask })
    })
}

/// The entries of a list in text.
pub fn entries_text(bytes: &[u8]) -> String {
    let entries: Vec<String> = raw_entries(bytes).map(|entry| entry.text()).collect();
    if entries.is_empty() { NONE.to_string() } else { entries.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_again() {
        for text in [
            "<any>",
            "NXM_OF_IN_PORT(fffe)",
            "OXM_OF_ETH_TYPE(0800), OXM_OF_IPV4_SRC_W(c0a80000/ffff0000)",
            "NXM_NX_COOKIE_W(84200000abcdef01/84200000ffffffff), NXM_NX_REG15(acebdf56)",
            "NXOXM_ET_ERSPAN_IDX(01020304)",
            "01020304(1111/3333)",
            "ffff020800002320(11112222)",
        ] {
            assert_eq!(entries_text(&parse_entries(text).unwrap()), text);
        }
    }

    #[test]
    fn what_is_no_entry_is_refused_by_name() {
        let error = |text: &str| parse_entries(text).unwrap_err().to_string();
        assert_eq!(error("NXM_OF_IN_PORT"), "NXM_OF_IN_PORT: missing ( at end of nx_match");
        assert_eq!(
            error("NXM_OF_IN_PORT(0001"),
            "NXM_OF_IN_PORT(0001: missing ) following field NXM_OF_IN_PORT"
        );
        assert_eq!(error("FOO(12)"), "FOO(12): unknown field `FOO'");
        assert!(error("NXM_OF_IN_PORT(0001) 1234(22)").contains("unknown field `1234'"));
        let long = format!("NXM_NX_TUN_METADATA0({})", "00".repeat(252));
        assert!(error(&long).contains("too many"));
    }

    #[test]
    fn values_and_masks_are_as_long_as_their_field() {
        let error = |text: &str| parse_entries(text).unwrap_err().to_string();
        for (text, why) in [
            ("NXM_OF_IN_PORT()", "expected to read 2 bytes but got 0"),
            ("NXM_OF_IN_PORT(1)", "expected to read 2 bytes but got 0"),
            ("NXM_OF_IN_PORT(000102)", "expected to read 2 bytes but got 3"),
            ("OXM_OF_IN_PORT(0001)", "expected to read 4 bytes but got 2"),
            ("NXM_NX_COOKIE(11)", "expected to read 8 bytes but got 1"),
            ("01020304(11/33)", "expected to read 2 bytes but got 1"),
            ("ffff020800002320(11)", "expected to read 4 bytes but got 1"),
            ("NXM_OF_IP_SRC_W(c0a80000/ff)", "): hex digits expected"),
            (
                "NXM_OF_IP_SRC_W(c0a80000)",
                "NXM_OF_IP_SRC_W(c0a80000): missing / in masked field NXM_OF_IP_SRC_W",
            ),
            (
                "NXM_OF_IP_SRC(c0a80000/ffff0000)",
                "NXM_OF_IP_SRC(c0a80000/ffff0000): missing ) following field NXM_OF_IP_SRC",
            ),
            (
                "NXM_OF_IN_PORT(0001) NXM_OF_ETH_TYPE(0800zz)",
                "NXM_OF_IN_PORT(0001) NXM_OF_ETH_TYPE(0800zz): missing ) following field NXM_OF_ETH_TYPE",
            ),
        ] {
            assert_eq!(error(text), why, "{text}");
        }
        for (text, read) in [
            ("NXM_OF_ETH_TYPE( 08 00 )", "NXM_OF_ETH_TYPE(0800)"),
            ("NXM_NX_TUN_METADATA0(112233)", "NXM_NX_TUN_METADATA0(112233)"),
        ] {
            assert_eq!(entries_text(&parse_entries(text).unwrap()), read);
        }
    }
}
