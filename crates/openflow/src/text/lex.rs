//! Key and value pairs: the outermost grammar of flows, action lists and actions' arguments.
//!
//! `key`, `key=value`, `key:value` and `key(value)`, separated by commas or white space. A value after `=` or
//! `:` ends at the next comma or white space outside parentheses; one in parentheses at the closing one,
//! after which `->target` may follow, which is kept in the value as `value)->target`.

/// Iterates over the pairs; a missing value is empty.
#[derive(Clone, Debug)]
pub struct KeyValues<'a> {
    rest: &'a str,
    len: usize,
    offset: usize,
}

const SEPARATORS: &[u8] = b", \t\r\n";

impl<'a> KeyValues<'a> {
    /// Over the pairs of a text.
    pub fn new(text: &'a str) -> KeyValues<'a> {
        KeyValues { rest: text, len: text.len(), offset: 0 }
    }

    /// Bytes before the pair that was given last.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// Bytes up to the delimiter of a value: one of `delimiters` outside parentheses.
fn value_len(text: &str, delimiters: &[u8]) -> usize {
    let mut depth = 0u32;
    for (i, b) in text.bytes().enumerate() {
        if depth == 0 && delimiters.contains(&b) {
            return i;
        }
        match b {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

impl<'a> Iterator for KeyValues<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let separator = |c: char| c.is_ascii() && SEPARATORS.contains(&(c as u8));
        let text = self.rest.trim_start_matches(separator);
        if text.is_empty() {
            self.rest = text;
            return None;
        }
        self.offset = self.len - text.len();
        let key_len =
            text.bytes().position(|b| b":=(".contains(&b) || SEPARATORS.contains(&b)).unwrap_or(text.len());
        let (key, rest) = text.split_at(key_len);
        let delimiter = rest.bytes().next();
        let after = rest.get(1..).unwrap_or("");
        let (value_delimiters, open): (&[u8], bool) = match delimiter {
            Some(b':' | b'=') => (SEPARATORS, false),
            Some(b'(') => (b")", true),
            _ => {
                self.rest = after;
                return Some((key, ""));
            }
        };
        let mut len = value_len(after, value_delimiters);
        if open && after[len..].starts_with(")->") {
            len += value_len(&after[len..], SEPARATORS);
        }
        self.rest = after.get(len + 1..).unwrap_or("");
        Some((key, &after[..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(&str, &str)> {
        KeyValues::new(text).collect()
    }

    #[test]
    fn pairs_are_split_at_commas_and_blanks_outside_parentheses() {
        assert_eq!(
            pairs("ip, in_port=1 nw_src:1.2.3.4"),
            [("ip", ""), ("in_port", "1"), ("nw_src", "1.2.3.4")]
        );
        assert_eq!(pairs("clone(a(1,2),b),c=(x, y)"), [("clone", "a(1,2),b"), ("c", "(x, y)")]);
        assert_eq!(pairs("x(15)->reg0[0],2"), [("x", "15)->reg0[0]"), ("2", "")]);
        assert_eq!(pairs(" ,\t\n"), []);
        assert_eq!(pairs("a(b"), [("a", "b")]);
        assert_eq!(pairs("=v"), [("", "v")]);
        assert_eq!(pairs("µ=ß,é(ü)"), [("µ", "ß"), ("é", "ü")]);
    }
}
