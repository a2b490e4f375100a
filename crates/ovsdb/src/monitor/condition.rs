//! Which rows a monitor selects: those that match any of its conditions, or all if there are none
//! (ovsdb-server(7) section 4.1.12).
//!
//! Controllers send one clause per tenant or chassis, tens of thousands of them, and a row must not be
//! compared with each. Any of them suffices, so of those on one column few count: all "==" share one lookup,
//! and so do all "includes" of one element; of "<", and the like, the one that lets most rows through is
//! enough. There may be only [`OTHERS_MAX`] others.

use crate::execute::{Clause, Condition as Clauses, Function, elements_cost};
use crate::{Atom, ColumnIdx, Database, Datum, Error, Json, Row, TableIdx, TableSchema};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Clauses that each row is compared with, one by one: "includes" of several elements, and "excludes".
pub const OTHERS_MAX: usize = 100;

/// Clauses of a table, which take some microseconds each when they are read.
pub const CLAUSES_MAX: usize = 100_000;

/// Any of these.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Condition {
    /// Matches everything: `true`, or no condition.
    all: bool,
    /// Columns that equal one of these.
    equal: BTreeMap<ColumnIdx, HashSet<Datum>>,
    /// Columns that have one of these elements.
    elements: BTreeMap<ColumnIdx, HashSet<Atom>>,
    /// Columns that have one of these pairs.
    pairs: BTreeMap<ColumnIdx, HashSet<(Atom, Atom)>>,
    /// The one clause with such a function that lets most rows through.
    widest: BTreeMap<(ColumnIdx, Function), Clause>,
    others: Vec<Clause>,
    /// What it costs to check these, at most.
    others_cost: usize,
}

impl Condition {
    /// Matches every row.
    pub fn all() -> Condition {
        Condition { all: true, ..Condition::default() }
    }

    /// Reads the elements of a "where". `Err` "resources exhausted": there are too many, or too many of them
    /// cost time for each row.
    pub fn from_json(table: &TableSchema, clauses: &[Value]) -> Result<Condition, Error> {
        let exhausted = |details: String| Error::new("resources exhausted", details);
        if clauses.len() > CLAUSES_MAX {
            return Err(exhausted(format!("a monitor may have {CLAUSES_MAX} clauses for a table")));
        }
        let clauses = Clauses::read(table, &Json::Array(clauses.iter().map(Json::from).collect()), None)?;
        let mut condition = Condition { all: clauses.is_empty(), ..Condition::default() };
        clauses.into_iter().for_each(|clause| condition.add(clause));
        if condition.others.len() > OTHERS_MAX {
            let details = format!(
                "a monitor may have {OTHERS_MAX} clauses for a table that exclude elements, or include several"
            );
            return Err(exhausted(details));
        }
        Ok(condition)
    }

    fn add(&mut self, clause: Clause) {
        let (column, function, argument) = match clause {
            Clause::Constant(value) => return self.all |= value,
            Clause::Column { column, function, argument } => (column, function, argument),
        };
        match (function, argument.as_atom(), argument.as_map()) {
            (Function::Equal, ..) => drop(self.equal.entry(column).or_default().insert(argument)),
            (Function::Includes, Some(only), _) => {
                self.elements.entry(column).or_default().insert(only.clone());
            }
            (Function::Includes, _, [only]) => {
                self.pairs.entry(column).or_default().insert(only.clone());
            }
            (Function::Includes | Function::Excludes, ..) => {
                self.all |= argument.is_empty();
                let clause = Clause::Column { column, function, argument };
                self.others_cost += clause.cost();
                self.others.push(clause);
            }
            _ => self.widen(column, function, argument),
        }
    }

    /// A clause of which one per column and function suffices.
    fn widen(&mut self, column: ColumnIdx, function: Function, argument: Datum) {
        if let Some(Clause::Column { argument: widest, .. }) = self.widest.get(&(column, function)) {
            let is_wider = match function {
                Function::Less | Function::LessOrEqual => argument > *widest,
                Function::Greater | Function::GreaterOrEqual => argument < *widest,
                // Nothing equals both.
                _ => return self.all |= argument != *widest,
            };
            if !is_wider {
                return;
            }
        }
        self.widest.insert((column, function), Clause::Column { column, function, argument });
    }

    /// What it costs to check a row, at most, in clauses. A lookup reads the whole of a column.
    pub fn cost(&self, row: &Row) -> usize {
        let of_row = self.looked_up().map(|column| elements_cost(row.get(column)));
        self.least_cost() + of_row.sum::<usize>()
    }

    /// What it costs to check all rows of a table.
    pub fn cost_of_all(&self, database: &Database, table: TableIdx) -> usize {
        if self.looked_up().next().is_none() {
            return database.row_count(table).saturating_mul(self.least_cost());
        }
        database.rows(table).map(|row| self.cost(row)).fold(0, usize::saturating_add)
    }

    fn least_cost(&self) -> usize {
        if self.all { 1 } else { 1 + self.others_cost }
    }

    fn looked_up(&self) -> impl Iterator<Item = ColumnIdx> {
        let columns = self.equal.keys().chain(self.elements.keys()).chain(self.pairs.keys());
        columns.copied().filter(|_| !self.all)
    }

    /// Whether the condition selects this row.
    pub fn matches(&self, row: &Row) -> bool {
        self.all
            || self.equal.iter().any(|(column, arguments)| arguments.contains(row.get(*column)))
            || self
                .elements
                .iter()
                .any(|(column, any)| row.get(*column).as_set().iter().any(|e| any.contains(e)))
            || self
                .pairs
                .iter()
                .any(|(column, any)| row.get(*column).as_map().iter().any(|p| any.contains(p)))
            || self.widest.values().chain(&self.others).any(|clause| clause.matches(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schema, Uuid};
    use serde_json::json;

    #[track_caller]
    fn check(clauses: Value, expected: &[i64]) {
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": {
            "i": {"type": "integer"}, "o": {"type": {"key": "integer", "min": 0}},
            "s": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
            "m": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let table = &schema.tables()[0];
        let condition = Condition::from_json(table, clauses.as_array().unwrap()).unwrap();
        let matching: Vec<i64> = (0..6)
            .filter(|&i| {
                let mut row = Row::new(table, Uuid::ZERO);
                row.set(table.find("i").unwrap(), Datum::scalar(i));
                row.set(table.find("o").unwrap(), Datum::optional((i > 2).then_some(i)));
                row.set(table.find("s").unwrap(), Datum::set(0..i));
                row.set(table.find("m").unwrap(), Datum::map([("k", i.to_string()), ("l", "x".into())]));
                condition.matches(&row)
            })
            .collect();
        assert_eq!(matching, expected, "{clauses}");
    }

    #[test]
    fn what_it_costs_to_check_a_row_is_in_proportion_to_what_is_compared() {
        let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": {
            "s": {"type": {"key": "integer", "min": 0, "max": "unlimited"}}}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let table = &schema.tables()[0];
        let cost = |clauses: Value, elements: i64| {
            let mut row = Row::new(table, Uuid::ZERO);
            row.set(table.find("s").unwrap(), Datum::set(0..elements));
            Condition::from_json(table, clauses.as_array().unwrap()).unwrap().cost(&row)
        };
        let long = json!([["s", "includes", ["set", (0..10_000).collect::<Vec<i64>>()]]]);
        assert!(cost(long.clone(), 1) > 10_000);
        assert!(cost(json!([true, long[0]]), 1) == 1);
        for clause in [json!([["s", "==", 1]]), json!([["s", "includes", 1]])] {
            assert_eq!(cost(clause.clone(), 1), 1, "{clause}");
            assert!(cost(clause.clone(), 10_000) > 10_000, "{clause}");
        }
    }

    #[test]
    fn rows_that_match_any_clause_are_in() {
        check(json!([]), &[0, 1, 2, 3, 4, 5]);
        check(json!([true]), &[0, 1, 2, 3, 4, 5]);
        check(json!([false]), &[]);
        check(json!([["i", "==", 1], ["i", "==", 4], false]), &[1, 4]);
        check(json!([["i", "<", 1], ["i", ">=", 4]]), &[0, 4, 5]);
        check(json!([["i", "!=", 1]]), &[0, 2, 3, 4, 5]);
        check(json!([["o", "<=", 4]]), &[3, 4]);
        check(json!([["o", ">", 4]]), &[5]);
        check(json!([["o", "==", ["set", []]]]), &[0, 1, 2]);
        check(json!([["s", "includes", ["set", [1, 2]]]]), &[3, 4, 5]);
        check(json!([["s", "excludes", ["set", [1, 2]]]]), &[0, 1]);
        check(json!([["m", "includes", ["map", [["k", "3"]]]]]), &[3]);
        check(json!([["m", "excludes", ["map", [["k", "3"]]]]]), &[0, 1, 2, 4, 5]);
        check(json!([["s", "includes", 1], ["s", "includes", 3]]), &[2, 3, 4, 5]);
        check(json!([["s", "includes", ["set", []]]]), &[0, 1, 2, 3, 4, 5]);
        check(json!([["s", "excludes", ["set", [0, 9]]], ["s", "excludes", 4]]), &[0, 1, 2, 3, 4]);
        check(
            json!([["m", "includes", ["map", [["k", "3"]]]], ["m", "includes", ["map", [["l", "3"]]]]]),
            &[3],
        );
        check(
            json!([
                ["m", "includes", ["map", [["k", "3"], ["l", "x"]]]],
                ["m", "includes", ["map", [["k", "5"]]]]
            ]),
            &[3, 5],
        );
        check(json!([["i", "includes", 1], ["i", "includes", 2]]), &[1, 2]);
        check(json!([["i", "!=", 1], ["i", "!=", 1]]), &[0, 2, 3, 4, 5]);
        check(json!([["i", "!=", 1], ["i", "!=", 2]]), &[0, 1, 2, 3, 4, 5]);
        check(json!([["i", "<", 2], ["i", "<", 1], ["i", "<", 2]]), &[0, 1]);
        check(json!([["i", "<=", 1], ["i", "<=", 2], ["i", "<=", 1]]), &[0, 1, 2]);
        check(json!([["i", ">", 3], ["i", ">", 4], ["i", "<", 1]]), &[0, 4, 5]);
        check(json!([["i", ">=", 5], ["i", ">=", 4], ["i", "==", 0]]), &[0, 4, 5]);
        check(json!([["o", ">=", 5], ["o", ">=", 4]]), &[4, 5]);
        check(json!([["_uuid", "==", ["uuid", Uuid::ZERO.to_string()]]]), &[0, 1, 2, 3, 4, 5]);
    }
}
