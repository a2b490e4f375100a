//! Single values: integers, reals, booleans, strings and UUIDs (RFC 7047 section 3.2 `<atomic-type>`), and
//! their JSON (section 5.1 `<atom>`).
//!
//! An atom is 24 bytes, strings of up to 23 bytes included; longer strings are shared when they are copied.
//! Atoms of one type are totally ordered: numbers by value, strings by bytes, UUIDs by their text.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::{Number, Value, json};
use smol_str::SmolStr;

use crate::error::{Error, syntax_error};
use crate::json::Json;
use crate::symbols::Symbols;
use crate::uuid::Uuid;

/// A single value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// 64 bits with a sign.
    Integer(i64),
    /// A double that is neither infinite nor subnormal.
    Real(Real),
    /// True or false.
    Boolean(bool),
    /// UTF-8 without NUL bytes.
    String(SmolStr),
    /// The name of a row, or any other UUID.
    Uuid(Uuid),
}

/// The type of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomType {
    /// [`Atom::Integer`].
    Integer,
    /// [`Atom::Real`].
    Real,
    /// [`Atom::Boolean`].
    Boolean,
    /// [`Atom::String`].
    String,
    /// [`Atom::Uuid`].
    Uuid,
}

impl AtomType {
    /// All atom types.
    pub const ALL: [AtomType; 5] =
        [AtomType::Integer, AtomType::Real, AtomType::Boolean, AtomType::String, AtomType::Uuid];

    /// Its name in schemas.
    pub fn name(self) -> &'static str {
        match self {
            AtomType::Integer => "integer",
            AtomType::Real => "real",
            AtomType::Boolean => "boolean",
            AtomType::String => "string",
            AtomType::Uuid => "uuid",
        }
    }

    /// The type that a schema calls `name`.
    pub fn from_name(name: &str) -> Option<AtomType> {
        AtomType::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The default of a column of this type: 0, 0.0, false, the empty string, or zeros.
    pub fn default_atom(self) -> Atom {
        match self {
            AtomType::Integer => Atom::Integer(0),
            AtomType::Real => Atom::Real(Real::ZERO),
            AtomType::Boolean => Atom::Boolean(false),
            AtomType::String => Atom::String(SmolStr::default()),
            AtomType::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }
}

impl fmt::Display for AtomType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A finite double with a total order; there is no negative zero, so that what is equal also prints equal,
/// and nothing subnormal, which Open vSwitch's programs do not read: a database that holds such a number
/// would be lost for them.
#[derive(Clone, Copy, Debug)]
pub struct Real(f64);

impl Real {
    /// 0.0.
    pub const ZERO: Real = Real(0.0);

    /// `None` where `value` is infinite, subnormal or not a number.
    pub fn new(value: f64) -> Option<Real> {
        // Adding zero turns -0.0 into 0.0 and leaves every other value unchanged.
        (value.is_finite() && !value.is_subnormal()).then_some(Real(value + 0.0))
    }

    /// The double.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Real) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Real) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl Atom {
    /// Its type.
    pub fn kind(&self) -> AtomType {
        match self {
            Atom::Integer(_) => AtomType::Integer,
            Atom::Real(_) => AtomType::Real,
            Atom::Boolean(_) => AtomType::Boolean,
            Atom::String(_) => AtomType::String,
            Atom::Uuid(_) => AtomType::Uuid,
        }
    }

    /// A string.
    pub fn string(text: impl AsRef<str>) -> Atom {
        Atom::String(SmolStr::new(text))
    }

    /// The integer, if it is one.
    pub fn as_integer(&self) -> Option<i64> {
        if let Atom::Integer(value) = self { Some(*value) } else { None }
    }

    /// The real, if it is one.
    pub fn as_real(&self) -> Option<f64> {
        if let Atom::Real(value) = self { Some(value.get()) } else { None }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Atom::Boolean(value) = self { Some(*value) } else { None }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Atom::String(value) = self { Some(value) } else { None }
    }

    /// The UUID, if it is one.
    pub fn as_uuid(&self) -> Option<Uuid> {
        if let Atom::Uuid(value) = self { Some(*value) } else { None }
    }

    /// Its JSON: a number, a boolean, a string, or `["uuid", TEXT]`.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(value) => Value::from(*value),
            Atom::Real(value) => real_to_json(*value),
            Atom::Boolean(value) => Value::Bool(*value),
            Atom::String(value) => Value::String(value.as_str().to_owned()),
            Atom::Uuid(value) => json!(["uuid", value.to_string()]),
        }
    }

    /// Parses the JSON of an atom of type `kind`. A UUID may also be `["named-uuid", NAME]` if there are
    /// `symbols`, which give the name a UUID on its first use. Constraints are not checked.
    pub fn from_json(
        json: &Json<'_>,
        kind: AtomType,
        symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Atom, Error> {
        let wrong = || syntax_error(json, format!("expected {kind}"));
        match (kind, json) {
            (AtomType::Integer, Json::Number(number)) => {
                integer_from_json(number).map(Atom::Integer).ok_or_else(wrong)
            }
            (AtomType::Real, Json::Number(number)) => {
                number.as_f64().and_then(Real::new).map(Atom::Real).ok_or_else(wrong)
            }
            (AtomType::Boolean, Json::Bool(value)) => Ok(Atom::Boolean(*value)),
            (AtomType::String, Json::String(text)) if !text.contains('\0') => Ok(Atom::string(text)),
            (AtomType::String, Json::String(_)) => {
                Err(syntax_error(json, "null bytes not supported in strings"))
            }
            (AtomType::Uuid, _) => uuid_from_json(json, symbols).map(Atom::Uuid),
            _ => Err(wrong()),
        }
    }
}

/// A whole number of up to 64 bits, even if it is written with a zero fraction or an exponent.
fn integer_from_json(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let value = number.as_f64()?;
        // -2^63 itself is read as an integer; as a double it was rounded.
        let whole = number.is_f64() && value.fract() == 0.0;
        (whole && value.abs() < 2f64.powi(63)).then_some(value as i64)
    })
}

/// Whole reals print as integers, as the stock server does.
fn real_to_json(value: Real) -> Value {
    let value = value.get();
    if value.fract() == 0.0 && value.abs() < 2f64.powi(63) {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn uuid_from_json(json: &Json<'_>, symbols: Option<&mut Symbols<'_>>) -> Result<Uuid, Error> {
    match json.as_array() {
        Some([Json::String(class), Json::String(text)]) if class == "uuid" => {
            Uuid::parse(text).ok_or_else(|| syntax_error(json, format!("\"{text}\" is not a valid UUID")))
        }
        Some([Json::String(class), Json::String(name)]) if class == "named-uuid" && !is_identifier(name) => {
            Err(syntax_error(json, "named-uuid string is not a valid <id>"))
        }
        Some([Json::String(class), Json::String(name)]) if class == "named-uuid" => match symbols {
            Some(symbols) => Ok(symbols.reference(name)),
            None => Err(syntax_error(json, "named-uuid is not allowed here")),
        },
        _ => Err(syntax_error(json, "expected [\"uuid\", <string>]")),
    }
}

impl fmt::Debug for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Integer(value) => write!(f, "{value}"),
            Atom::Real(value) => write!(f, "{:?}", value.get()),
            Atom::Boolean(value) => write!(f, "{value}"),
            Atom::String(value) => write!(f, "{value:?}"),
            Atom::Uuid(value) => write!(f, "{value}"),
        }
    }
}

impl From<i64> for Atom {
    fn from(value: i64) -> Atom {
        Atom::Integer(value)
    }
}

impl From<bool> for Atom {
    fn from(value: bool) -> Atom {
        Atom::Boolean(value)
    }
}

impl From<Uuid> for Atom {
    fn from(value: Uuid) -> Atom {
        Atom::Uuid(value)
    }
}

impl From<&str> for Atom {
    fn from(value: &str) -> Atom {
        Atom::string(value)
    }
}

impl From<String> for Atom {
    fn from(value: String) -> Atom {
        Atom::String(SmolStr::from(value))
    }
}

/// Letters, digits and underscores, no digit first.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atom_is_three_words() {
        assert_eq!(size_of::<Atom>(), 24);
        assert_eq!(size_of::<Option<Atom>>(), 24);
    }

    fn read(kind: AtomType, json: &Value) -> Option<Atom> {
        Atom::from_json(&json.into(), kind, None).ok()
    }

    #[test]
    fn whole_numbers_are_integers_however_written() {
        for text in ["5", "5.0", "5e0", "0.5e1", "50e-1"] {
            let json: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(AtomType::Integer, &json), Some(Atom::Integer(5)), "{text}");
            assert_eq!(read(AtomType::Real, &json), Real::new(5.0).map(Atom::Real), "{text}");
        }
        for text in ["5.5", "9223372036854775808", "-9223372036854775809", "1e19", "true", "\"5\""] {
            let json: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(AtomType::Integer, &json), None, "{text}");
        }
        assert_eq!(read(AtomType::Integer, &json!(i64::MIN)), Some(Atom::Integer(i64::MIN)));
    }

    #[test]
    fn atoms_are_read_as_they_are_written() {
        let uuid = Uuid::parse("550e8400-e29b-41d4-a716-446655440000").unwrap();
        for atom in [
            Atom::Integer(i64::MAX),
            Atom::Real(Real::new(0.1).unwrap()),
            Atom::Real(Real::new(1e300).unwrap()),
            Atom::Boolean(true),
            Atom::string("a string of more than twenty-three bytes, ä"),
            Atom::Uuid(uuid),
        ] {
            assert_eq!(read(atom.kind(), &atom.to_json()), Some(atom.clone()));
        }
        assert_eq!(read(AtomType::String, &json!("a\0b")), None);
        assert_eq!(read(AtomType::Uuid, &json!(["uuid", "0"])), None);
        assert_eq!(read(AtomType::Uuid, &json!(["named-uuid", "x"])), None);
    }

    #[test]
    fn there_is_no_negative_zero_and_no_nan() {
        assert_eq!(Real::new(-0.0), Some(Real::ZERO));
        assert_eq!(Real::new(-0.0).unwrap().get().to_bits(), 0);
        assert_eq!(Real::new(f64::NAN), None);
        assert_eq!(Real::new(f64::INFINITY), None);
        assert_eq!((Real::new(1e-320), Real::new(-5e-324)), (None, None));
        assert!(Real::new(f64::MIN_POSITIVE).is_some());
    }
}
