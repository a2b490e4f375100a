//! Types of columns: what atoms they take, within which constraints, and how many (RFC 7047 section 3.2
//! `<type>` and `<base-type>`).

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use smol_str::SmolStr;

use crate::atom::{Atom, AtomType, Real, is_identifier};
use crate::atom_text::{Atomic, real};
use crate::datum::Datum;
use crate::error::{Error, syntax_error};
use crate::json::Json;

/// The type of atoms, with constraints.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseType {
    /// The type of the atoms.
    pub kind: AtomType,
    /// The allowed values ("enum"), if restricted. Then there is no other constraint.
    pub allowed: Option<Datum>,
    /// Within which bounds, or what UUIDs refer to.
    pub constraint: Constraint,
}

/// Constraints on an atom besides its type. Bounds are inclusive.
#[derive(Clone, Debug, PartialEq)]
pub enum Constraint {
    /// Anything.
    None,
    /// "minInteger" and "maxInteger".
    Integer(i64, i64),
    /// "minReal" and "maxReal"; `None` is no bound.
    Real(Option<Real>, Option<Real>),
    /// "minLength" and "maxLength" of a string, in characters.
    Length(u32, u32),
    /// "refTable" and "refType": the UUID is that of a row.
    Reference(Reference),
}

/// What UUIDs of a column refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The name of the table.
    pub table: SmolStr,
    /// What a reference means.
    pub kind: RefKind,
}

/// What a reference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    /// The row must be there; where its table is not a root table, the reference keeps it there.
    Strong,
    /// A reference to a row that is gone, goes.
    Weak,
}

/// The type of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnType {
    /// Elements of a set, or keys of a map.
    pub key: BaseType,
    /// Values of a map; `None`: it is a set.
    pub value: Option<BaseType>,
    /// The least number of elements: 0 or 1.
    pub min: u32,
    /// The largest number of elements, from 1; [`UNLIMITED`] is no limit.
    pub max: u32,
}

/// "unlimited".
pub const UNLIMITED: u32 = u32::MAX;

impl BaseType {
    /// Any atom of `kind`.
    pub fn new(kind: AtomType) -> BaseType {
        BaseType { kind, allowed: None, constraint: Constraint::None }
    }

    /// Whether there are constraints.
    pub fn has_constraints(&self) -> bool {
        self.allowed.is_some() || self.constraint != Constraint::None
    }

    /// What it refers to, if it is a reference.
    pub fn reference(&self) -> Option<&Reference> {
        if let Constraint::Reference(reference) = &self.constraint { Some(reference) } else { None }
    }

    /// Checks an atom, which is of its kind: "constraint violation" with the bounds.
    pub fn check(&self, atom: &Atom) -> Result<(), Error> {
        if let Some(allowed) = &self.allowed {
            return if allowed.contains(atom) { Ok(()) } else { Err(not_allowed(atom, allowed)) };
        }
        match (&self.constraint, atom) {
            (Constraint::Integer(min, max), Atom::Integer(value)) if value < min || value > max => {
                let range = match (*min, *max) {
                    (i64::MIN, max) => format!("greater than maximum allowed value {max}"),
                    (min, i64::MAX) => format!("less than minimum allowed value {min}"),
                    (min, max) => return Err(out_of_range(value, min, max)),
                };
                Err(Error::constraint(format!("{value} is {range}")))
            }
            (Constraint::Real(min, max), Atom::Real(value)) => check_real(*value, *min, *max),
            (Constraint::Length(min, max), Atom::String(text)) => check_length(text, *min, *max),
            _ => Ok(()),
        }
    }
}

fn out_of_range(
    value: impl std::fmt::Display,
    min: impl std::fmt::Display,
    max: impl std::fmt::Display,
) -> Error {
    Error::constraint(format!("{value} is not in the valid range {min} to {max} (inclusive)"))
}

fn check_real(value: Real, min: Option<Real>, max: Option<Real>) -> Result<(), Error> {
    let low = min.is_some_and(|min| value < min);
    let high = max.is_some_and(|max| value > max);
    if !low && !high {
        return Ok(());
    }
    let shown = |bound: Real| real(bound.get());
    match (min, max) {
        (Some(min), Some(max)) => Err(out_of_range(shown(value), shown(min), shown(max))),
        (Some(min), None) => Err(Error::constraint(format!(
            "{} is less than minimum allowed value {}",
            shown(value),
            shown(min)
        ))),
        (_, max) => {
            let max = shown(max.unwrap_or(Real::ZERO));
            Err(Error::constraint(format!("{} is greater than maximum allowed value {max}", shown(value))))
        }
    }
}

fn check_length(text: &str, min: u32, max: u32) -> Result<(), Error> {
    // There are at most as many characters as bytes: counting is needed only if the bytes are too many or too
    // few.
    let characters = text.chars().count();
    if characters < min as usize {
        return Err(Error::constraint(format!(
            "\"{text}\" length {characters} is less than minimum allowed length {min}"
        )));
    }
    if characters > max as usize {
        return Err(Error::constraint(format!(
            "\"{text}\" length {characters} is greater than maximum allowed length {max}"
        )));
    }
    Ok(())
}

fn not_allowed(atom: &Atom, allowed: &Datum) -> Error {
    let mut choices = String::new();
    for (index, choice) in allowed.keys().enumerate() {
        if index > 0 {
            choices.push_str(", ");
        }
        let _ = write!(choices, "{}", Atomic(choice));
    }
    Error::constraint(format!("{} is not one of the allowed values ([{choices}])", Atomic(atom)))
}

impl BaseType {
    /// Reads the JSON of a `<base-type>`.
    pub(crate) fn read(json: &Json<'_>) -> Result<BaseType, Error> {
        let members = match json {
            Json::String(name) => {
                let kind = AtomType::from_name(name)
                    .ok_or_else(|| syntax_error(json, format!("\"{name}\" is not an atomic-type")))?;
                return Ok(BaseType::new(kind));
            }
            Json::Object(members) => members,
            _ => return Err(syntax_error(json, "base-type must be a string or an object")),
        };
        let mut members = Members::new(json, members, What::Named("base-type"));
        let kind = members.string("type")?.ok_or_else(|| members.missing("type"))?;
        let kind = AtomType::from_name(kind)
            .ok_or_else(|| syntax_error(json, format!("\"{kind}\" is not an atomic-type")))?;
        let allowed = match members.take("enum") {
            Some(json) => {
                let any = ColumnType { key: BaseType::new(kind), value: None, min: 1, max: UNLIMITED };
                Some(Datum::read(json, &any, None)?)
            }
            None => None,
        };
        let constraint = match kind {
            _ if allowed.is_some() => Constraint::None,
            AtomType::Integer => integer_bounds(&mut members)?,
            AtomType::Real => real_bounds(&mut members)?,
            AtomType::String => length_bounds(&mut members)?,
            AtomType::Uuid => reference(&mut members)?,
            AtomType::Boolean => Constraint::None,
        };
        members.finish()?;
        Ok(BaseType { kind, allowed, constraint })
    }

    /// Its JSON: the name of its type if there are no constraints, otherwise an object.
    pub fn to_json(&self) -> Value {
        if !self.has_constraints() {
            return Value::from(self.kind.name());
        }
        let mut members = Map::new();
        members.insert("type".into(), Value::from(self.kind.name()));
        if let Some(allowed) = &self.allowed {
            let any = ColumnType { key: BaseType::new(self.kind), value: None, min: 1, max: UNLIMITED };
            members.insert("enum".into(), allowed.to_json(&any));
        }
        let mut insert = |name: &str, value: Value| members.insert(name.to_owned(), value);
        match &self.constraint {
            Constraint::None => {}
            Constraint::Integer(min, max) => {
                if *min != i64::MIN {
                    insert("minInteger", Value::from(*min));
                }
                if *max != i64::MAX {
                    insert("maxInteger", Value::from(*max));
                }
            }
            Constraint::Real(min, max) => {
                if let Some(min) = min {
                    insert("minReal", Atom::Real(*min).to_json());
                }
                if let Some(max) = max {
                    insert("maxReal", Atom::Real(*max).to_json());
                }
            }
            Constraint::Length(min, max) => {
                if *min != 0 {
                    insert("minLength", Value::from(*min));
                }
                if *max != UNLIMITED {
                    insert("maxLength", Value::from(*max));
                }
            }
            Constraint::Reference(reference) => {
                insert("refTable", Value::from(reference.table.as_str()));
                if reference.kind == RefKind::Weak {
                    insert("refType", Value::from("weak"));
                }
            }
        }
        Value::Object(members)
    }
}

fn integer_bounds(members: &mut Members<'_>) -> Result<Constraint, Error> {
    let min = members.integer("minInteger")?.unwrap_or(i64::MIN);
    let max = members.integer("maxInteger")?.unwrap_or(i64::MAX);
    if min > max {
        return Err(members.error("minInteger exceeds maxInteger"));
    }
    Ok(if (min, max) == (i64::MIN, i64::MAX) { Constraint::None } else { Constraint::Integer(min, max) })
}

fn real_bounds(members: &mut Members<'_>) -> Result<Constraint, Error> {
    let (min, max) = (members.real("minReal")?, members.real("maxReal")?);
    match (min, max) {
        (None, None) => Ok(Constraint::None),
        (Some(min), Some(max)) if min > max => Err(members.error("minReal exceeds maxReal")),
        (min, max) => Ok(Constraint::Real(min, max)),
    }
}

fn length_bounds(members: &mut Members<'_>) -> Result<Constraint, Error> {
    let mut length = |name: &str, default: u32| match members.integer(name)? {
        None => Ok(default),
        Some(value) => u32::try_from(value)
            .map_err(|_| members.error(&format!("{name} out of valid range 0 to {}", u32::MAX))),
    };
    let (min, max) = (length("minLength", 0)?, length("maxLength", UNLIMITED)?);
    if min > max {
        return Err(members.error("minLength exceeds maxLength"));
    }
    Ok(if (min, max) == (0, UNLIMITED) { Constraint::None } else { Constraint::Length(min, max) })
}

fn reference(members: &mut Members<'_>) -> Result<Constraint, Error> {
    let Some(table) = members.string("refTable")? else { return Ok(Constraint::None) };
    let kind = match members.string("refType")? {
        None | Some("strong") => RefKind::Strong,
        Some("weak") => RefKind::Weak,
        Some(_) => return Err(members.error("refType must be \"strong\" or \"weak\"")),
    };
    Ok(Constraint::Reference(Reference { table: SmolStr::new(table), kind }))
}

impl ColumnType {
    /// One atom of `kind`, without constraints.
    pub fn scalar(kind: AtomType) -> ColumnType {
        ColumnType { key: BaseType::new(kind), value: None, min: 1, max: 1 }
    }

    /// Whether it is a map type.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether it has exactly one atom.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && (self.min, self.max) == (1, 1)
    }

    /// Whether it has one atom or none.
    pub fn is_optional_scalar(&self) -> bool {
        self.value.is_none() && (self.min, self.max) == (0, 1)
    }

    /// The default value of a column of this type.
    pub fn default_datum(&self) -> Datum {
        match (self.min, &self.value) {
            (0, _) => Datum::EMPTY,
            (_, None) => Datum::default_scalar(self.key.kind),
            (_, Some(value)) => Datum::map([(self.key.kind.default_atom(), value.kind.default_atom())]),
        }
    }

    /// "exactly one member" or "0 to 4096 members", for messages.
    pub(crate) fn size_text(&self) -> String {
        match (self.min, self.max) {
            (1, 1) => "exactly one member".to_owned(),
            (min, max) => format!("{min} to {max} members"),
        }
    }

    /// The bases of keys and values.
    pub fn bases(&self) -> impl Iterator<Item = &BaseType> {
        std::iter::once(&self.key).chain(&self.value)
    }

    /// Reads the JSON of a `<type>`.
    pub(crate) fn read(json: &Json<'_>) -> Result<ColumnType, Error> {
        let members = match json {
            Json::String(_) => {
                return Ok(ColumnType { key: BaseType::read(json)?, value: None, min: 1, max: 1 });
            }
            Json::Object(members) => members,
            _ => return Err(syntax_error(json, "type must be a string or an object")),
        };
        let mut members = Members::new(json, members, What::Named("ovsdb type"));
        let key = members.take("key").ok_or_else(|| members.missing("key"))?;
        let key = BaseType::read(key)?;
        let value = members.take("value").map(BaseType::read).transpose()?;
        let min = match members.integer("min")? {
            None => 1,
            Some(min) => u32::try_from(min).map_err(|_| members.error("bad min or max value"))?,
        };
        let max = match members.take("max") {
            None => 1,
            Some(Json::String(text)) if text == "unlimited" => UNLIMITED,
            Some(max) => match Atom::from_json(max, AtomType::Integer, None) {
                Ok(Atom::Integer(max)) => u32::try_from(max).ok(),
                _ => None,
            }
            .ok_or_else(|| members.error("bad min or max value"))?,
        };
        members.finish()?;
        if min > 1 || max < 1 {
            return Err(syntax_error(json, "ovsdb type fails constraint checks"));
        }
        Ok(ColumnType { key, value, min, max })
    }

    /// Its JSON, as short as it can be.
    pub fn to_json(&self) -> Value {
        if self.is_scalar() && !self.key.has_constraints() {
            return self.key.to_json();
        }
        let mut members = Map::new();
        members.insert("key".into(), self.key.to_json());
        if let Some(value) = &self.value {
            members.insert("value".into(), value.to_json());
        }
        if self.min != 1 {
            members.insert("min".into(), Value::from(self.min));
        }
        if self.max == UNLIMITED {
            members.insert("max".into(), Value::from("unlimited"));
        } else if self.max != 1 {
            members.insert("max".into(), Value::from(self.max));
        }
        Value::Object(members)
    }
}

/// The JSON object that an error message about its members names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A named object.
    Named(&'static str),
    /// An operation of a transaction: its number, from 1, and the total.
    Operation(usize, usize),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Named(name) => f.write_str(name),
            What::Operation(number, total) => write!(f, "ovsdb operation {number} of {total}"),
        }
    }
}

/// A member of a JSON object.
pub(crate) type Member<'a> = (Cow<'a, str>, Json<'a>);

/// The members of a JSON object, taken one by one; members that are never taken are an error at the end.
pub(crate) struct Members<'a> {
    whole: &'a Json<'a>,
    left: Vec<(&'a str, &'a Json<'a>)>,
    what: What,
}

impl<'a> Members<'a> {
    /// The members of `whole`, which must be a `what`.
    pub(crate) fn new(whole: &'a Json<'a>, members: &'a [Member<'a>], what: What) -> Members<'a> {
        let left = members.iter().map(|(name, value)| (&**name, value)).collect();
        Members { whole, left, what }
    }

    /// The members of `whole` if it is an object.
    pub(crate) fn of(whole: &'a Json<'a>, what: What) -> Result<Members<'a>, Error> {
        match whole {
            Json::Object(members) => Ok(Members::new(whole, members, what)),
            // An operation's error does not say what it is about, as with the stock server.
            _ => match what {
                What::Named(_) => {
                    Err(syntax_error(whole, format!("Parsing {what} failed: Object expected.")))
                }
                What::Operation(..) => {
                    Err(Error::new("syntax error", format!("Parsing {what} failed: Object expected.")))
                }
            },
        }
    }

    /// The member `name`, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a Json<'a>> {
        let at = self.left.iter().position(|(n, _)| *n == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// The member `name`, which must be there.
    pub(crate) fn need(&mut self, name: &str) -> Result<&'a Json<'a>, Error> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    /// An optional member that must be a string. Some go to the log (comments, checksums), where no stock
    /// program reads a null byte.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<&'a str>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(json @ Json::String(text)) if text.contains('\0') => {
                Err(syntax_error(json, "null bytes not supported in strings"))
            }
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong_type(name)),
        }
    }

    /// An optional member that must be an `<id>` (RFC 7047 section 3.1).
    pub(crate) fn id(&mut self, name: &str) -> Result<Option<&'a str>, Error> {
        match self.string(name)? {
            Some(text) if !is_identifier(text) => Err(self.wrong_type(name)),
            text => Ok(text),
        }
    }

    /// An optional member that must be a boolean.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong_type(name)),
        }
    }

    /// An optional member that must be a whole number.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(json) => match Atom::from_json(json, AtomType::Integer, None) {
                Ok(Atom::Integer(value)) => Ok(Some(value)),
                _ => Err(self.wrong_type(name)),
            },
        }
    }

    fn real(&mut self, name: &str) -> Result<Option<Real>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(json) => match Atom::from_json(json, AtomType::Real, None) {
                Ok(Atom::Real(value)) => Ok(Some(value)),
                _ => Err(self.wrong_type(name)),
            },
        }
    }

    /// An optional member that must be an array.
    pub(crate) fn array(&mut self, name: &str) -> Result<Option<&'a [Json<'a>]>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Array(elements)) => Ok(Some(elements)),
            Some(_) => Err(self.wrong_type(name)),
        }
    }

    /// An optional member that must be an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<&'a [Member<'a>]>, Error> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Object(members)) => Ok(Some(members)),
            Some(_) => Err(self.wrong_type(name)),
        }
    }

    /// "Required … member is missing".
    pub(crate) fn missing(&self, name: &str) -> Error {
        self.failed(&format!("Required '{name}' member is missing."))
    }

    /// "Type mismatch for member …".
    pub(crate) fn wrong_type(&self, name: &str) -> Error {
        self.failed(&format!("Type mismatch for member '{name}'."))
    }

    /// A syntax error about the whole.
    pub(crate) fn error(&self, details: &str) -> Error {
        syntax_error(self.whole, details)
    }

    /// "Parsing … failed".
    pub(crate) fn failed(&self, why: &str) -> Error {
        syntax_error(self.whole, format!("Parsing {} failed: {why}", self.what))
    }

    /// An error where a member was not taken.
    pub(crate) fn finish(self) -> Result<(), Error> {
        match self.left.iter().map(|(name, _)| *name).min() {
            None => Ok(()),
            Some(name) if self.left.len() == 1 => {
                Err(self.failed(&format!("Member '{name}' is present but not allowed here.")))
            }
            Some(name) => Err(self.failed(&format!(
                "Member '{name}' and {} other member{} are present but not allowed here.",
                self.left.len() - 1,
                if self.left.len() == 2 { "" } else { "s" }
            ))),
        }
    }
}
