//! Atoms as text, in the syntax of the stock tools.

use std::fmt;

use crate::atom::Atom;
use crate::uuid::{UUID_LEN, Uuid};

/// An atom as `ovs-vsctl list` prints it: strings are quoted unless they are plain words.
pub struct Atomic<'a>(pub &'a Atom);

impl fmt::Display for Atomic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Atom::String(text) if !is_word(text) => {
                fmt::Display::fmt(&serde_json::Value::from(text.as_str()), f)
            }
            other => BareAtom(other).fmt(f),
        }
    }
}

/// An atom without quotes, whatever it contains.
pub(crate) struct BareAtom<'a>(pub &'a Atom);

impl fmt::Display for BareAtom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Atom::String(text) => f.write_str(text),
            Atom::Integer(value) => fmt::Display::fmt(value, f),
            Atom::Real(value) => f.write_str(&real(value.get())),
            Atom::Boolean(value) => fmt::Display::fmt(value, f),
            Atom::Uuid(value) => fmt::Display::fmt(value, f),
        }
    }
}

/// Whether `text` can be parsed as a string without quotes.
pub(crate) fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
        && !matches!(text, "true" | "false")
        && text.get(..UUID_LEN).is_none_or(|start| Uuid::parse(start).is_none())
}

/// A real with up to 15 digits, as C's `%.15g` prints it.
pub fn real(value: f64) -> String {
    const DIGITS: i32 = 15;
    if value == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent was asked for");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        trim(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}
