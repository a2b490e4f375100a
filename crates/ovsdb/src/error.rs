//! Errors, in the terms of RFC 7047 section 3.1 `<error>`: a name from its lists, and details for people.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

/// An error as clients get it: `{"error": NAME, "details": TEXT}`, and for bad JSON `"syntax"` with the part
/// that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The name: "constraint violation", "referential integrity violation", "syntax error", …
    pub name: Cow<'static, str>,
    /// What exactly went wrong, in a sentence.
    pub details: Option<String>,
    /// The JSON that was refused, cut to [`SYNTAX_BYTES_MAX`].
    pub syntax: Option<String>,
}

/// At most this much of a rejected piece of JSON is sent back.
pub const SYNTAX_BYTES_MAX: usize = 1024;

impl Error {
    /// An error with its details.
    pub fn new(name: &'static str, details: impl Into<String>) -> Error {
        Error { name: Cow::Borrowed(name), details: Some(details.into()), syntax: None }
    }

    /// An error that its name says all about.
    pub fn bare(name: &'static str) -> Error {
        Error { name: Cow::Borrowed(name), details: None, syntax: None }
    }

    /// "constraint violation".
    pub fn constraint(details: impl Into<String>) -> Error {
        Error::new("constraint violation", details)
    }

    /// "referential integrity violation".
    pub fn referential(details: impl Into<String>) -> Error {
        Error::new("referential integrity violation", details)
    }

    /// Its JSON.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        members.insert("error".into(), Value::from(self.name.as_ref()));
        if let Some(details) = &self.details {
            members.insert("details".into(), Value::from(details.as_str()));
        }
        if let Some(syntax) = &self.syntax {
            members.insert("syntax".into(), Value::from(syntax.as_str()));
        }
        Value::Object(members)
    }
}

/// "syntax error" about `json`.
pub fn syntax_error(json: &impl Serialize, details: impl Into<String>) -> Error {
    Error { syntax: Some(excerpt(json)), ..Error::new("syntax error", details) }
}

/// "constraint violation" about `json`.
pub fn constraint_error(json: &impl Serialize, details: impl Into<String>) -> Error {
    Error { syntax: Some(excerpt(json)), ..Error::constraint(details) }
}

/// The text of `json`, truncated if it is long. Formatting stops there, so that refusing a gigabyte costs
/// nothing.
fn excerpt(json: &impl Serialize) -> String {
    struct Bounded(Vec<u8>);
    impl std::io::Write for Bounded {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = SYNTAX_BYTES_MAX - self.0.len();
            if room == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            let taken = bytes.len().min(room);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut text = Bounded(Vec::new());
    let cut = serde_json::to_writer(&mut text, json).is_err();
    let mut text = String::from_utf8_lossy(&text.0).into_owned();
    if cut {
        text.push('…');
    }
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(syntax) = &self.syntax {
            write!(f, "syntax \"{syntax}\": ")?;
        }
        f.write_str(&self.name)?;
        if let Some(details) = &self.details {
            write!(f, ": {details}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_has_what_is_known() {
        assert_eq!(Error::bare("aborted").to_json(), json!({"error": "aborted"}));
        let error = syntax_error(&json!([1, "x"]), "expected integer");
        assert_eq!(
            error.to_json(),
            json!({"error": "syntax error", "details": "expected integer", "syntax": "[1,\"x\"]"})
        );
        assert_eq!(error.to_string(), "syntax \"[1,\"x\"]\": syntax error: expected integer");
    }

    #[test]
    fn a_long_value_is_cut() {
        let error = syntax_error(&json!(["ä".repeat(10_000)]), "too long");
        assert!(error.syntax.as_ref().unwrap().len() < SYNTAX_BYTES_MAX + 8);
    }
}
