//! Atoms and data as text, in the syntax of the stock tools (ovs-vsctl(8), "Values").

use std::fmt;

use crate::atom::Atom;

/// An atom as `ovs-vsctl list` prints it: strings are quoted unless they are plain words.
pub struct Atomic<'a>(pub &'a Atom);

impl fmt::Display for Atomic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Atom::String(text) if is_word(text) => f.write_str(text),
            Atom::String(text) => fmt::Display::fmt(&serde_json::Value::from(text.as_str()), f),
            Atom::Integer(value) => fmt::Display::fmt(value, f),
            Atom::Real(value) => fmt::Display::fmt(&value.get(), f),
            Atom::Boolean(value) => fmt::Display::fmt(value, f),
            Atom::Uuid(value) => fmt::Display::fmt(value, f),
        }
    }
}

/// Whether `text` is read back as a string without quotes.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
        && !matches!(text, "true" | "false")
}
