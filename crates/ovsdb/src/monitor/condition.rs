//! Which rows a monitor selects: those that match any of its conditions, or all if there are none
//! (ovsdb-server(7) section 4.1.12).
//!
//! Controllers send one `==` per tenant, hundreds of them; those on one column share one lookup.

use crate::execute::Condition as Clauses;
use crate::{ColumnIdx, Datum, Error, Json, Row, TableSchema};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Any of these.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// Matches everything: `true`, or no condition.
    all: bool,
    /// Columns that equal one of these.
    equal: BTreeMap<ColumnIdx, HashSet<Datum>>,
    others: Option<Clauses>,
}

impl Condition {
    /// Matches every row.
    pub fn all() -> Condition {
        Condition { all: true, equal: BTreeMap::new(), others: None }
    }

    /// Reads the elements of a "where".
    pub fn from_json(table: &TableSchema, clauses: &[Value]) -> Result<Condition, Error> {
        let is_equality = |clause: &&Value| clause.get(1).and_then(Value::as_str) == Some("==");
        let (equalities, others): (Vec<&Value>, Vec<&Value>) = clauses.iter().partition(is_equality);
        let parse = |clauses: Vec<&Value>| {
            Clauses::read(table, &Json::Array(clauses.into_iter().map(Json::from).collect()), None)
        };
        let mut equal: BTreeMap<ColumnIdx, HashSet<Datum>> = BTreeMap::new();
        for (column, argument) in parse(equalities)?.equalities() {
            equal.entry(column).or_default().insert(argument.clone());
        }
        let others = if others.is_empty() { None } else { Some(parse(others)?) };
        let all = clauses.is_empty() || others.as_ref().is_some_and(Clauses::is_any_row);
        Ok(Condition { all, equal, others })
    }

    /// What it costs to check a row, at most, in clauses; equalities count as one.
    pub fn cost(&self) -> usize {
        1 + self.others.as_ref().map_or(0, Clauses::cost)
    }

    /// Whether the condition selects this row.
    pub fn matches(&self, row: &Row) -> bool {
        self.all
            || self.equal.iter().any(|(column, arguments)| arguments.contains(row.get(*column)))
            || self.others.as_ref().is_some_and(|others| others.matches_any(row))
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
        check(json!([["_uuid", "==", ["uuid", Uuid::ZERO.to_string()]]]), &[0, 1, 2, 3, 4, 5]);
    }
}
