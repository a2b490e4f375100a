//! Atoms and data as text, in the syntax of the stock tools: `[1, 2]`, `{key=value}`, strings in quotes if
//! they are not plain words. [`Printed`] and [`Bare`] print, [`Reader`] parses.
//!
//! Source: ovs-vsctl(8), "Database Values"; error texts are those of the stock tools, since people search for
//! them.

use std::fmt;

use crate::atom_text::BareAtom;
use crate::{Atom, AtomType, BaseType, ColumnType, Datum, Real, Uuid};

pub use crate::atom_text::{Atomic, real};

/// A datum as `ovs-vsctl list` prints it. Brackets enclose sets that are empty or may have several elements.
pub struct Printed<'a>(pub &'a Datum, pub &'a ColumnType);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Printed(datum, of) = self;
        let enclosed = of.max > 1 || datum.is_empty();
        let (open, close) = if of.is_map() { ("{", "}") } else { ("[", "]") };
        if enclosed {
            f.write_str(open)?;
        }
        for (index, (key, value)) in elements(datum).enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            Atomic(key).fmt(f)?;
            if let Some(value) = value {
                write!(f, "={}", Atomic(value))?;
            }
        }
        if enclosed { f.write_str(close) } else { Ok(()) }
    }
}

/// A datum without brackets and quotes, elements separated by spaces: for scripts.
pub struct Bare<'a>(pub &'a Datum);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (key, value)) in elements(self.0).enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            BareAtom(key).fmt(f)?;
            if let Some(value) = value {
                write!(f, "={}", BareAtom(value))?;
            }
        }
        Ok(())
    }
}

fn elements(datum: &Datum) -> impl Iterator<Item = (&Atom, Option<&Atom>)> {
    let pairs = datum.as_map().iter().map(|(key, value)| (key, Some(value)));
    datum.as_set().iter().map(|atom| (atom, None)).chain(pairs)
}

/// The name of a type in messages: "string", "set of up to 4096 integers", "map of (string, string) pairs".
pub struct English<'a>(pub &'a ColumnType);

impl fmt::Display for English<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        if of.is_scalar() {
            return f.write_str(of.key.kind.name());
        }
        f.write_str(if of.is_map() { "map of " } else { "set of " })?;
        match (of.min, of.max) {
            (0, crate::UNLIMITED) => {}
            (min, crate::UNLIMITED) => write!(f, "{min} or more ")?,
            (0, max) => write!(f, "up to {max} ")?,
            (min, max) => write!(f, "{min} to {max} ")?,
        }
        match &of.value {
            None => write!(f, "{}s", of.key.kind),
            Some(value) => write!(f, "({}, {}) pairs", of.key.kind, value.kind),
        }
    }
}

/// Maximum number of elements in a range of integers, such as `1-100`.
pub const RANGE_MAX: i64 = 4096;

/// Whether `byte` ends a word without quotes.
pub fn is_delimiter(byte: u8) -> bool {
    b":=, []{}!<>".contains(&byte)
}

/// Splits the first word off `text`: up to a delimiter that is not in quotes. Quotes and backslashes stay in
/// it.
pub fn word(text: &str) -> Result<(&str, &str), String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut in_quotes = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if at + 1 == bytes.len() => return Err(format!("{text}: backslash at end of argument")),
            b'\\' => at += 1,
            byte if !in_quotes && is_delimiter(byte) => break,
            b'"' => in_quotes = !in_quotes,
            _ => {}
        }
        at += 1;
    }
    if in_quotes {
        return Err(format!("{text}: quoted string extends past end of argument"));
    }
    // A backslash takes the next byte with it, which may be the first of a multi-byte character.
    while !text.is_char_boundary(at) {
        at += 1;
    }
    Ok(text.split_at(at))
}

/// Parses values. `names`, if given, maps names such as `@port` to UUIDs.
#[derive(Default)]
pub struct Reader<'n> {
    names: Option<&'n mut dyn FnMut(&str) -> Uuid>,
}

impl<'n> Reader<'n> {
    /// One that knows no names.
    pub fn new() -> Reader<'n> {
        Reader::default()
    }

    /// One that has `names` ask for names.
    pub fn with_names(names: &'n mut dyn FnMut(&str) -> Uuid) -> Reader<'n> {
        Reader { names: Some(names) }
    }

    /// Reads one atom, which takes all of `text`, and checks its constraints.
    pub fn atom(&mut self, text: &str, of: &BaseType) -> Result<Atom, String> {
        let (atom, end) = self.atom_or_range(text, of)?;
        match end {
            None => Ok(atom),
            Some(_) => Err(format!("\"{text}\" is not a valid integer or range")),
        }
    }

    /// Reads a datum, which takes all of `text`, checks its number of elements and the constraints of its
    /// atoms.
    pub fn datum(&mut self, text: &str, of: &ColumnType) -> Result<Datum, String> {
        let (open, close) = if of.is_map() { ('{', '}') } else { ('[', ']') };
        let mut rest = text.trim_start_matches(' ');
        let mut end = None;
        if let Some(inner) = rest.strip_prefix(open) {
            end = Some(close);
            rest = inner.trim_start_matches(' ');
        } else if rest.is_empty() {
            let what = if of.is_map() { "map" } else { "set" };
            return Err(format!("use \"{open}{close}\" to specify the empty {what}"));
        }
        let mut atoms = Vec::new();
        let mut pairs = Vec::new();
        while let Some(&first) = rest.as_bytes().first() {
            if end.is_some_and(|end| first == end as u8) {
                break;
            }
            if is_delimiter(first) {
                return Err(format!("{text}: unexpected \"{}\" parsing {}", first as char, English(of)));
            }
            let (key, after) = word(rest)?;
            match &of.value {
                None => {
                    self.element(key, &of.key, &mut atoms)?;
                    rest = after;
                }
                Some(value) => {
                    let start = rest;
                    let key = self.atom(key, &of.key)?;
                    let after = after.trim_start_matches(' ');
                    let Some(after) = after.strip_prefix('=') else {
                        // The stock tools print the NUL that ends a string here, and with it their message
                        // ends.
                        return Err(match after.chars().next() {
                            Some(c) => format!("{start}: syntax error at \"{c}\" expecting \"=\""),
                            None => format!("{start}: syntax error at \""),
                        });
                    };
                    let (value_text, after) = word(after.trim_start_matches(' '))?;
                    pairs.push((key, self.atom(value_text, value)?));
                    rest = after;
                }
            }
            rest = rest.trim_start_matches(' ');
            if let Some(more) = rest.strip_prefix(',') {
                rest = more.trim_start_matches(' ');
            }
        }
        if let Some(end) = end {
            let Some(after) = rest.strip_prefix(end) else {
                return Err(format!("{text}: missing \"{end}\" at end of data"));
            };
            if !after.trim_start_matches(' ').is_empty() {
                return Err(format!("{text}: trailing garbage after \"{end}\""));
            }
        }
        let (count, what) = if of.is_map() { (pairs.len(), "pair(s)") } else { (atoms.len(), "value(s)") };
        if count < of.min as usize {
            return Err(format!("{text}: {count} {what} specified but the minimum number is {}", of.min));
        }
        if count > of.max as usize {
            return Err(format!("{text}: {count} {what} specified but the maximum number is {}", of.max));
        }
        if of.is_map() {
            Datum::unique_map(pairs).map_err(|_| format!("{text}: map contains duplicate key"))
        } else {
            Datum::unique_set(atoms).map_err(|_| format!("{text}: set contains duplicate value"))
        }
    }

    fn element(&mut self, text: &str, of: &BaseType, atoms: &mut Vec<Atom>) -> Result<(), String> {
        match self.atom_or_range(text, of)? {
            (Atom::Integer(start), Some(end)) => atoms.extend((start..=end).map(Atom::Integer)),
            (atom, _) => atoms.push(atom),
        }
        Ok(())
    }

    /// An atom or, for integers, the first and last of a range.
    fn atom_or_range(&mut self, text: &str, of: &BaseType) -> Result<(Atom, Option<i64>), String> {
        let mut range_end = None;
        let atom = match of.kind {
            AtomType::Integer => {
                let (start, end) = integer_or_range(text)?;
                range_end = end;
                Atom::Integer(start)
            }
            AtomType::Real => {
                let value = text.trim().parse::<f64>().ok().and_then(Real::new);
                Atom::Real(value.ok_or_else(|| format!("\"{text}\" is not a valid real number"))?)
            }
            AtomType::Boolean => match text {
                "true" | "yes" | "on" | "1" => Atom::Boolean(true),
                "false" | "no" | "off" | "0" => Atom::Boolean(false),
                _ => return Err(format!("\"{text}\" is not a valid boolean (use \"true\" or \"false\")")),
            },
            AtomType::String => Atom::from(unquote(text)?),
            AtomType::Uuid => match &mut self.names {
                Some(names) if text.starts_with('@') => Atom::Uuid(names(text)),
                _ => Atom::Uuid(Uuid::parse(text).ok_or_else(|| format!("\"{text}\" is not a valid UUID"))?),
            },
        };
        of.check(&atom).map_err(|e| e.to_string())?;
        if let Some(end) = range_end {
            of.check(&Atom::Integer(end)).map_err(|e| e.to_string())?;
            if atom.as_integer().and_then(|start| end.checked_sub(start)).is_none_or(|span| span >= RANGE_MAX)
            {
                return Err(format!("\"{text}\" is not a valid range"));
            }
        }
        Ok((atom, range_end))
    }
}

fn integer_or_range(text: &str) -> Result<(i64, Option<i64>), String> {
    let wrong = || format!("\"{text}\" is not a valid integer or range");
    if let Ok(value) = text.parse() {
        return Ok((value, None));
    }
    // The first character may be the sign of the first number.
    let at = text.char_indices().skip(1).find(|(_, c)| *c == '-').ok_or_else(wrong)?.0;
    let start: i64 = text[..at].parse().map_err(|_| wrong())?;
    let end: i64 = text[at + 1..].parse().map_err(|_| wrong())?;
    if end < start {
        return Err(format!("\"{text}\" is not a valid range. Range end cannot be before start."));
    }
    Ok((start, Some(end)))
}

/// The string that `text` stands for: quoted with JSON's escapes, or literal.
fn unquote(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(
            "An empty string is not valid as input; use \"\" to represent the empty string".to_owned()
        );
    }
    if !text.starts_with('"') {
        return Ok(text.to_owned());
    }
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Err(format!("{text}: missing quote at end of quoted string"));
    };
    unescape(inner).map_err(|why| format!("{text}: {why}"))
}

fn unescape(text: &str) -> Result<String, String> {
    if let Ok(string) = serde_json::from_str::<String>(&format!("\"{text}\""))
        && !string.contains('\0')
    {
        return Ok(string);
    }
    // The parser's errors speak of columns; say what is wrong in the words of the stock tools instead.
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {}
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    if digits.chars().count() < 4 {
                        return Err("quoted string ends within \\u escape".to_owned());
                    }
                    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                        return Err("malformed \\u escape".to_owned());
                    }
                    if digits == "0000" {
                        return Err("null bytes not supported in quoted strings".to_owned());
                    }
                }
                Some(other) => return Err(format!("bad escape \\{other}")),
                None => return Err("unexpected end of input in quoted string".to_owned()),
            },
            c if u32::from(c) < 0x20 => {
                return Err(format!("U+{:04X} must be escaped in quoted string", u32::from(c)));
            }
            '"' => return Err("quoted string may not include unescaped \"".to_owned()),
            _ => {}
        }
    }
    Err("malformed escaped surrogate pair".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Constraint;

    fn set_of(kind: AtomType, min: u32, max: u32) -> ColumnType {
        ColumnType { min, max, ..ColumnType::scalar(kind) }
    }

    fn map_of_strings() -> ColumnType {
        let value = Some(BaseType::new(AtomType::String));
        ColumnType { value, ..set_of(AtomType::String, 0, crate::UNLIMITED) }
    }

    /// What `text` is read as and printed again.
    fn round(text: &str, of: &ColumnType) -> Result<String, String> {
        let datum = Reader::new().datum(text, of)?;
        let printed = Printed(&datum, of).to_string();
        assert_eq!(Reader::new().datum(&printed, of), Ok(datum), "{printed}");
        Ok(printed)
    }

    #[test]
    fn sets_and_maps_are_read_in_every_form_and_printed_in_one() {
        let integers = set_of(AtomType::Integer, 0, 4096);
        for (text, printed) in [
            ("1,2", "[1, 2]"),
            ("[2 1]", "[1, 2]"),
            ("3  1 ,2", "[1, 2, 3]"),
            ("1,", "[1]"),
            ("[ ]", "[]"),
            ("5-7,+9", "[5, 6, 7, 9]"),
            ("-3--2", "[-3, -2]"),
        ] {
            assert_eq!(round(text, &integers).as_deref(), Ok(printed), "{text}");
        }
        let strings = map_of_strings();
        for (text, printed) in [
            ("{}", "{}"),
            ("a=b", "{a=b}"),
            ("a = b,c=\"x y\"", "{a=b, c=\"x y\"}"),
            ("{\"a=b\"=c}", "{\"a=b\"=c}"),
            ("a=true,b=1", "{a=\"true\", b=\"1\"}"),
            ("u=f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "{u=\"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"}"),
        ] {
            assert_eq!(round(text, &strings).as_deref(), Ok(printed), "{text}");
        }
        let optional = set_of(AtomType::String, 0, 1);
        assert_eq!(round("[]", &optional).as_deref(), Ok("[]"));
        assert_eq!(round("x", &optional).as_deref(), Ok("x"));
        let datum = Reader::new().datum("a=\"x y\",b=", &strings);
        assert!(datum.is_err());
        let datum = Reader::new().datum("a=\"x y\",b=c", &strings).unwrap();
        assert_eq!(Bare(&datum).to_string(), "a=x y b=c");
    }

    #[test]
    fn errors_are_those_of_the_stock_tools() {
        let integers = set_of(AtomType::Integer, 0, 4096);
        let bounded = ColumnType {
            key: BaseType { constraint: Constraint::Integer(0, 4095), ..BaseType::new(AtomType::Integer) },
            ..integers.clone()
        };
        let strings = map_of_strings();
        let string = ColumnType::scalar(AtomType::String);
        for (text, of, error) in [
            ("1,,2", &integers, "1,,2: unexpected \",\" parsing set of up to 4096 integers"),
            ("{1}", &integers, "{1}: unexpected \"{\" parsing set of up to 4096 integers"),
            ("[1", &integers, "[1: missing \"]\" at end of data"),
            ("[1]x", &integers, "[1]x: trailing garbage after \"]\""),
            ("1,1", &integers, "1,1: set contains duplicate value"),
            ("1-", &integers, "\"1-\" is not a valid integer or range"),
            ("5-3", &integers, "\"5-3\" is not a valid range. Range end cannot be before start."),
            (" ", &integers, "use \"[]\" to specify the empty set"),
            ("5000", &bounded, "constraint violation: 5000 is not in the valid range 0 to 4095 (inclusive)"),
            (
                "1-4999",
                &bounded,
                "constraint violation: 4999 is not in the valid range 0 to 4095 (inclusive)",
            ),
            ("{a}", &strings, "a}: syntax error at \"}\" expecting \"=\""),
            ("a", &strings, "a: syntax error at \""),
            ("a=b:c=d", &strings, "a=b:c=d: unexpected \":\" parsing map of (string, string) pairs"),
            ("a=b,a=c", &strings, "a=b,a=c: map contains duplicate key"),
            ("a b", &string, "a b: 2 value(s) specified but the maximum number is 1"),
            ("[]", &string, "[]: 0 value(s) specified but the minimum number is 1"),
            ("\"a", &string, "\"a: quoted string extends past end of argument"),
            ("\"a\"b", &string, "\"a\"b: missing quote at end of quoted string"),
            ("\"a\\q\"", &string, "\"a\\q\": bad escape \\q"),
            ("\"\\u0000\"", &string, "\"\\u0000\": null bytes not supported in quoted strings"),
            ("a\\", &string, "a\\: backslash at end of argument"),
        ] {
            assert_eq!(round(text, of), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn names_stand_for_uuids() {
        let uuid = Uuid::parse("f81d4fae-7dec-11d0-a765-00a0c91e6bf6").unwrap();
        let mut seen = Vec::new();
        let mut names = |name: &str| {
            seen.push(name.to_owned());
            uuid
        };
        let of = set_of(AtomType::Uuid, 0, 9);
        assert_eq!(Reader::with_names(&mut names).datum("@a", &of), Ok(Datum::scalar(uuid)));
        assert_eq!(seen, ["@a"]);
        assert_eq!(Reader::new().datum("@a", &of), Err("\"@a\" is not a valid UUID".into()));
    }

    #[test]
    fn reals_print_as_c_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.3"),
            (1e15, "1e+15"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e300, "1e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.0 / 3.0, "0.333333333333333"),
        ] {
            assert_eq!(real(value), text);
        }
    }
}
