//! Mutations: new values from old ones (RFC 7047 section 5.1 `<mutation>`).

use crate::atom::{Atom, AtomType, Real};
use crate::datum::{Datum, Duplicate};
use crate::error::{Error, syntax_error};
use crate::execute::condition::unknown_column;
use crate::json::Json;
use crate::row::Row;
use crate::schema::{ColumnIdx, TableSchema};
use crate::symbols::Symbols;
use crate::text::English;
use crate::types::{BaseType, ColumnType, UNLIMITED};

/// One change of one column.
#[derive(Clone, Debug)]
pub struct Mutation {
    column: ColumnIdx,
    mutator: Mutator,
    argument: Datum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Insert,
    Delete,
}

impl Mutator {
    const ALL: [Mutator; 7] = [
        Mutator::Add,
        Mutator::Subtract,
        Mutator::Multiply,
        Mutator::Divide,
        Mutator::Remainder,
        Mutator::Insert,
        Mutator::Delete,
    ];

    fn name(self) -> &'static str {
        match self {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Remainder => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        }
    }
}

impl Mutation {
    /// Reads `[COLUMN, MUTATOR, VALUE]`.
    pub fn read(
        table: &TableSchema,
        json: &Json<'_>,
        symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Mutation, Error> {
        let Some([Json::String(name), Json::String(mutator), argument]) = json.as_array() else {
            return Err(syntax_error(json, "Parse error in mutation."));
        };
        let column = table.find(name).ok_or_else(|| unknown_column(json, table, name))?;
        let schema = table.column(column);
        if !schema.is_mutable {
            return Err(Error {
                syntax: syntax_error(json, "").syntax,
                ..Error::constraint(format!("Cannot mutate immutable column {name} in table {}.", table.name))
            });
        }
        let mutator = Mutator::ALL
            .into_iter()
            .find(|m| m.name() == mutator)
            .ok_or_else(|| Error::new("unknown mutator", format!("No mutator named {mutator}.")))?;
        let argument =
            read_argument(mutator, &schema.kind, argument, symbols).transpose()?.ok_or_else(|| {
                let mutator = mutator.name();
                let of = English(&schema.kind);
                let details = format!(
                    "Type mismatch: \"{mutator}\" operator may not be applied to column {name} of type {of}."
                );
                syntax_error(json, details)
            })?;
        Ok(Mutation { column, mutator, argument })
    }

    /// What it changes.
    pub fn column(&self) -> ColumnIdx {
        self.column
    }

    /// How many elements or pairs it adds or removes.
    pub fn argument_len(&self) -> usize {
        self.argument.len()
    }

    /// Applies it to `row` of `table`. `Err` "domain error", "range error" or "constraint violation".
    pub fn apply(&self, table: &TableSchema, row: &mut Row) -> Result<(), Error> {
        let of = &table.column(self.column).kind;
        let old = row.get(self.column);
        let new = match self.mutator {
            Mutator::Insert => old.union(&self.argument),
            Mutator::Delete => old.difference(&self.argument),
            _ => self.compute(old, of)?,
        };
        if new.len() < of.min as usize || new.len() > of.max as usize {
            return Err(Error::constraint(format!(
                "Attempted to store {} elements in {}.",
                new.len(),
                English(of)
            )));
        }
        if new != *old {
            row.set(self.column, new);
        }
        Ok(())
    }

    fn compute(&self, old: &Datum, of: &ColumnType) -> Result<Datum, Error> {
        let Some(operand) = self.argument.as_atom() else { return Ok(old.clone()) };
        let atoms: Result<Vec<Atom>, Error> = old
            .as_set()
            .iter()
            .map(|atom| {
                let result = self.compute_atom(atom, operand)?;
                of.key.check(&result)?;
                Ok(result)
            })
            .collect();
        Datum::unique_set(atoms?).map_err(|Duplicate| {
            Error::constraint(format!("Result of \"{}\" operation contains duplicates.", self.mutator.name()))
        })
    }

    fn compute_atom(&self, atom: &Atom, operand: &Atom) -> Result<Atom, Error> {
        let division_by_zero = || Error::new("domain error", "Division by zero.");
        let out_of_range = || {
            let details = format!("Result of \"{}\" operation is out of range.", self.mutator.name());
            Error::new("range error", details)
        };
        match (atom, operand) {
            (Atom::Integer(x), Atom::Integer(y)) => {
                let result = match self.mutator {
                    Mutator::Divide | Mutator::Remainder if *y == 0 => return Err(division_by_zero()),
                    Mutator::Add => x.checked_add(*y),
                    Mutator::Subtract => x.checked_sub(*y),
                    Mutator::Multiply => x.checked_mul(*y),
                    Mutator::Divide => x.checked_div(*y),
                    _ => x.checked_rem(*y),
                };
                result.map(Atom::Integer).ok_or_else(out_of_range)
            }
            (Atom::Real(x), Atom::Real(y)) => {
                let (x, y) = (x.get(), y.get());
                let result = match self.mutator {
                    Mutator::Divide if y == 0.0 => return Err(division_by_zero()),
                    Mutator::Add => x + y,
                    Mutator::Subtract => x - y,
                    Mutator::Multiply => x * y,
                    _ => x / y,
                };
                Real::new(result).map(Atom::Real).ok_or_else(out_of_range)
            }
            // The argument was read with the column's type.
            _ => Ok(atom.clone()),
        }
    }
}

/// The value that a mutator takes for a column of type `of`; `None` where the mutator does not fit the type.
fn read_argument(
    mutator: Mutator,
    of: &ColumnType,
    json: &Json<'_>,
    mut symbols: Option<&mut Symbols<'_>>,
) -> Option<Result<Datum, Error>> {
    let any_number = |key: &BaseType, value: &Option<BaseType>| ColumnType {
        key: key.clone(),
        value: value.clone(),
        min: 0,
        max: UNLIMITED,
    };
    match mutator {
        Mutator::Insert | Mutator::Delete if of.value.is_none() && of.is_scalar() => None,
        Mutator::Insert => Some(Datum::read(json, &ColumnType { min: 0, ..of.clone() }, symbols)),
        Mutator::Delete => {
            let whole = Datum::read(json, &any_number(&of.key, &of.value), symbols.as_deref_mut());
            // From a map, pairs or keys alone are deleted.
            if whole.is_err() && of.is_map() {
                return Some(Datum::read(json, &any_number(&of.key, &None), symbols));
            }
            Some(whole)
        }
        _ => {
            let fits = match of.key.kind {
                AtomType::Integer => true,
                AtomType::Real => mutator != Mutator::Remainder,
                _ => false,
            };
            // The operand need not satisfy the column's constraints; the result must.
            let operand = ColumnType::scalar(of.key.kind);
            (fits && of.value.is_none()).then(|| Datum::read(json, &operand, symbols))
        }
    }
}
