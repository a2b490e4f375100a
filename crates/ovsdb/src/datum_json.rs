//! The JSON of what a column holds (RFC 7047 section 5.1 `<value>`).

use serde_json::{Value, json};

use crate::atom::Atom;
use crate::datum::{Datum, Duplicate};
use crate::error::{Error, syntax_error};
use crate::json::Json;
use crate::symbols::Symbols;
use crate::types::{BaseType, ColumnType};

impl Datum {
    /// Its JSON for a column of type `of`, which says what an empty one is: an atom, `["set", […]]` or
    /// `["map", […]]`. Sets of one are written as their atom.
    pub fn to_json(&self, of: &ColumnType) -> Value {
        let pairs = self.as_map();
        if !pairs.is_empty() {
            let pairs = pairs.iter().map(|(key, value)| json!([key.to_json(), value.to_json()])).collect();
            return Value::Array(vec!["map".into(), Value::Array(pairs)]);
        }
        match self.as_set() {
            [] if of.is_map() => json!(["map", []]),
            [atom] => atom.to_json(),
            atoms => {
                Value::Array(vec!["set".into(), Value::Array(atoms.iter().map(Atom::to_json).collect())])
            }
        }
    }

    /// Reads the JSON of a column of type `of`, checks its number of elements and every constraint of its
    /// atoms. With `symbols`, UUIDs may be names (see [`Atom::from_json`]).
    pub fn from_json(
        json: &Value,
        of: &ColumnType,
        symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Datum, Error> {
        Datum::read(&json.into(), of, symbols)
    }

    /// As [`Datum::from_json`], for JSON that was parsed only to be read once.
    pub fn read(json: &Json<'_>, of: &ColumnType, symbols: Option<&mut Symbols<'_>>) -> Result<Datum, Error> {
        Datum::read_with_size(json, of, symbols, (of.min as usize, of.max as usize))
    }

    /// As [`Datum::from_json`], but of any size: what conditions, mutations and differences are about.
    pub fn from_json_any_size(
        json: &Value,
        of: &ColumnType,
        symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Datum, Error> {
        Datum::read_with_size(&json.into(), of, symbols, (0, usize::MAX))
    }

    fn read_with_size(
        json: &Json<'_>,
        of: &ColumnType,
        mut symbols: Option<&mut Symbols<'_>>,
        (min, max): (usize, usize),
    ) -> Result<Datum, Error> {
        let class = if of.is_map() { "map" } else { "set" };
        let elements = match json.as_array() {
            Some([Json::String(tag), Json::Array(elements)]) if tag == class => elements,
            Some([Json::String(tag), ..]) if tag == "set" && !of.is_map() => {
                return Err(syntax_error(json, "expected [\"set\", <array>]"));
            }
            _ if of.is_map() => return Err(syntax_error(json, "expected [\"map\", <array>]")),
            _ => {
                let atom = Atom::from_json(json, of.key.kind, symbols)?;
                of.key.check(&atom)?;
                return Ok(Datum::scalar(atom));
            }
        };
        let size = elements.len();
        if size < min || size > max {
            return Err(syntax_error(
                json,
                format!("{class} must have {} but {size} are present", of.size_text()),
            ));
        }
        let mut read = |json: &Json<'_>, base: &BaseType| {
            let atom = Atom::from_json(json, base.kind, symbols.as_deref_mut())?;
            base.check(&atom)?;
            Ok::<Atom, Error>(atom)
        };
        let datum = match &of.value {
            None => {
                let atoms: Result<Vec<Atom>, Error> = elements.iter().map(|e| read(e, &of.key)).collect();
                Datum::unique_set(atoms?)
            }
            Some(value) => {
                let pairs: Result<Vec<(Atom, Atom)>, Error> = elements
                    .iter()
                    .map(|pair| match pair.as_array() {
                        Some([k, v]) => Ok((read(k, &of.key)?, read(v, value)?)),
                        _ => Err(syntax_error(pair, "Parsing map element: expected 2-element array")),
                    })
                    .collect();
                Datum::unique_map(pairs?)
            }
        };
        datum.map_err(|Duplicate| {
            // So the stock server calls an error that it has no name for.
            let details = if of.is_map() { "map contains duplicate key" } else { "set contains duplicate" };
            Error::new("ovsdb error", details)
        })
    }
}
