//! Conditions: which rows an operation or a monitor is about (RFC 7047 section 5.1 `<condition>`,
//! ovsdb-server(7) "Notation").

use crate::atom::AtomType;
use crate::datum::Datum;
use crate::error::{Error, syntax_error};
use crate::json::Json;
use crate::row::Row;
use crate::schema::{ColumnIdx, TableSchema};
use crate::symbols::Symbols;
use crate::text::English;
use crate::types::{ColumnType, UNLIMITED};

/// Clauses on the columns of one table. Operations ask for rows that match all of them, monitors for rows
/// that match any.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    clauses: Vec<Clause>,
}

/// One clause.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Clause {
    /// `true` or `false`.
    Constant(bool),
    Column {
        column: ColumnIdx,
        function: Function,
        argument: Datum,
    },
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Function {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    Includes,
    Excludes,
}

/// So many bytes of a value cost as much as a clause,
pub(crate) const VALUE_BYTES: usize = 256;
/// fetching a row costs as much as so many clauses,
pub(crate) const ROW_WORK: usize = 3;
/// and copying an element of its sets and maps, or comparing one beyond the first, as much as so many.
pub(crate) const ELEMENT_WORK: usize = 2;

impl Function {
    fn from_name(name: &str) -> Option<Function> {
        Some(match name {
            "<" => Function::Less,
            "<=" => Function::LessOrEqual,
            "==" => Function::Equal,
            "!=" => Function::NotEqual,
            ">=" => Function::GreaterOrEqual,
            ">" => Function::Greater,
            "includes" => Function::Includes,
            "excludes" => Function::Excludes,
            _ => return None,
        })
    }

    fn is_order(self) -> bool {
        matches!(self, Function::Less | Function::LessOrEqual | Function::GreaterOrEqual | Function::Greater)
    }
}

impl Condition {
    /// Every row, by [`Condition::matches_all`].
    pub const ALL: Condition = Condition { clauses: Vec::new() };

    /// Reads a JSON array of clauses, each `[COLUMN, FUNCTION, VALUE]` or a boolean.
    pub fn read(
        table: &TableSchema,
        json: &Json<'_>,
        mut symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Condition, Error> {
        let clauses = json.as_array().ok_or_else(|| syntax_error(json, "array expected"))?;
        let clauses: Result<Vec<Clause>, Error> =
            clauses.iter().map(|clause| Clause::read(table, clause, symbols.as_deref_mut())).collect();
        Ok(Condition { clauses: clauses? })
    }

    /// Whether `row` satisfies every clause; with no clause, every row does.
    pub fn matches_all(&self, row: &Row) -> bool {
        self.clauses.iter().all(|clause| clause.matches(row))
    }

    /// Whether it has no clause.
    pub(crate) fn is_empty(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Its clauses.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Clause> {
        self.clauses.into_iter()
    }

    /// What it costs to find a row and to check it, at most.
    pub(crate) fn cost(&self) -> usize {
        ROW_WORK + self.clauses.iter().map(Clause::cost).sum::<usize>()
    }

    /// The columns that are asked for.
    pub fn columns(&self) -> impl Iterator<Item = ColumnIdx> {
        self.clauses.iter().filter_map(|clause| match clause {
            Clause::Column { column, .. } => Some(*column),
            Clause::Constant(_) => None,
        })
    }

    /// The columns that must equal something, and what.
    pub(crate) fn equalities(&self) -> impl Iterator<Item = (ColumnIdx, &Datum)> {
        self.clauses.iter().filter_map(|clause| match clause {
            Clause::Column { column, function: Function::Equal, argument } => Some((*column, argument)),
            _ => None,
        })
    }
}

impl Clause {
    fn read(
        table: &TableSchema,
        json: &Json<'_>,
        symbols: Option<&mut Symbols<'_>>,
    ) -> Result<Clause, Error> {
        let (name, function, argument) = match json {
            Json::Bool(value) => return Ok(Clause::Constant(*value)),
            Json::Array(parts) => match parts.as_slice() {
                [Json::String(name), Json::String(function), argument] => (name, function, argument),
                _ => return Err(syntax_error(json, "Parse error in condition.")),
            },
            _ => return Err(syntax_error(json, "Parse error in condition.")),
        };
        let column = table.find(name).ok_or_else(|| unknown_column(json, table, name))?;
        let of = &table.column(column).kind;
        let spelled = function;
        let function = Function::from_name(function)
            .ok_or_else(|| Error::new("unknown function", format!("No function named {function}.")))?;
        let argument = match function {
            _ if function.is_order() => {
                let is_one = of.is_scalar() || of.is_optional_scalar();
                if !is_one || !matches!(of.key.kind, AtomType::Integer | AtomType::Real) {
                    return Err(syntax_error(
                        json,
                        format!(
                            "Type mismatch: \"{spelled}\" operator may not be applied to column {name} of type {}.",
                            English(of)
                        ),
                    ));
                }
                Datum::read(argument, &ColumnType { min: 1, ..of.clone() }, symbols)?
            }
            Function::Includes if !of.is_scalar() => {
                Datum::read(argument, &ColumnType { min: 0, ..of.clone() }, symbols)?
            }
            Function::Excludes if !of.is_scalar() => {
                Datum::read(argument, &ColumnType { min: 0, max: UNLIMITED, ..of.clone() }, symbols)?
            }
            _ => Datum::read(argument, of, symbols)?,
        };
        Ok(Clause::Column { column, function, argument })
    }

    /// What it costs to check a row: 1, and more where the argument is long.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Clause::Constant(_) => 1,
            Clause::Column { argument, .. } => 1 + elements_cost(argument),
        }
    }

    /// Whether `row` satisfies it.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        let (column, function, argument) = match self {
            Clause::Constant(value) => return *value,
            Clause::Column { column, function, argument } => (*column, *function, argument),
        };
        let value = row.get(column);
        match function {
            Function::Equal => value == argument,
            Function::NotEqual => value != argument,
            Function::Includes => argument.is_included_in(value),
            Function::Excludes => argument.is_excluded_from(value),
            // A column that holds nothing is in no order with anything.
            _ if value.is_empty() => false,
            Function::Less => value < argument,
            Function::LessOrEqual => value <= argument,
            Function::GreaterOrEqual => value >= argument,
            Function::Greater => value > argument,
        }
    }
}

/// What it costs to compare a value with another, or to look for each of its elements there, besides the
/// clause: nothing for one that is short.
pub(crate) fn elements_cost(datum: &Datum) -> usize {
    datum.len().saturating_sub(1) * ELEMENT_WORK + datum.heap_bytes() / VALUE_BYTES
}

/// "unknown column".
pub(super) fn unknown_column(json: &Json<'_>, table: &TableSchema, name: &str) -> Error {
    let details = format!("No column {name} in table {}.", table.name);
    Error { name: "unknown column".into(), ..syntax_error(json, details) }
}
