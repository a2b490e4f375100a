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

static WIRES: LazyLock<HashMap<String, Wire>> =
    LazyLock::new(|| Mf::wire_names().chain([(COOKIE.name.to_string(), COOKIE)]).collect());

/// Encodes the entries in a text. The decoder checks whether they are valid: values may have any length, and
/// headers may be unknown.
pub fn parse_entries(text: &str) -> Result<Vec<u8>, TextError> {
    let is_between = |c: char| c == ',' || c.is_ascii_whitespace();
    let mut rest = text.trim_matches(is_between);
    let mut out = Vec::new();
    if rest == NONE {
        return Ok(out);
    }
    while !rest.is_empty() {
        let Some((name, body)) = rest.split_once('(') else {
            return bad!("{rest}: missing ( at end of nx_match");
        };
        let Some((body, after)) = body.split_once(')') else {
            return bad!("{rest}: missing ) following field {name}");
        };
        entry(&mut out, name, body)?;
        rest = after.trim_start_matches(is_between);
    }
    Ok(out)
}

/// Appends one entry, whose header is a name or a number.
fn entry(out: &mut Vec<u8>, name: &str, body: &str) -> Result<(), TextError> {
    let (value, mask) = match body.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (body, None),
    };
    let bytes = |digits: &str| match hex(digits) {
        Some(bytes) => Ok(bytes),
        None => bad!("{name}({body}): `{digits}' is not a number of whole bytes in hexadecimal"),
    };
    let value = bytes(value)?;
    let mask = mask.map(bytes).transpose()?.unwrap_or_default();
    let payload = value.len() + mask.len();
    let is_masked = !mask.is_empty();
    match WIRES.get(name.strip_suffix("_W").filter(|_| is_masked).unwrap_or(name)) {
        // The length is one byte, and an experimenter takes four of those bytes.
        Some(_) if payload > 251 => return bad!("{name}: {payload} bytes of value and mask are too many"),
        Some(wire) => write_header(out, NxmHeader::new(*wire, is_masked, payload)),
        None => match hex(name) {
            Some(header) if header.len() == 4 || header.len() == 8 => out.extend(header),
            _ => return bad!("{name}({body}): unknown field `{name}'"),
        },
    }
    out.extend(value);
    out.extend(mask);
    Ok(())
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let value = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let pair = |pair: &[u8]| Some(value(pair[0])? << 4 | value(*pair.get(1)?)?);
    digits.as_bytes().chunks(2).map(pair).collect()
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
        let known = Mf::from_nxm(self.header).and_then(|_| WIRES.iter().find(|(_, wire)| same(wire)));
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
        assert!(error("NXM_OF_IN_PORT(1)").contains("not a number of whole bytes"));
        assert!(error("NXM_OF_IN_PORT(0001) 1234(22)").contains("unknown field `1234'"));
        let long = format!("NXM_NX_TUN_METADATA0({})", "00".repeat(252));
        assert!(error(&long).contains("too many"));
    }
}
