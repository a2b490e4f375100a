//! The JSON of updates: `<table-updates>` of RFC 7047 section 4.1.6, `<table-updates2>` of ovsdb-server(7)
//! section 4.1.14.
//!
//! Written directly as bytes: an update for 500 clients is made once, and the contents of 100,000 rows should
//! not become a tree of values first.

use super::history::Net;
use super::request::{Form, Select, Spec, TableSpec};
use crate::{Atom, ColumnType, Database, Datum, Row, Schema, TableIdx, TableSchema, Uuid};
use std::io::Write;

/// What happened to a row from a monitor's point of view.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Initial(&'a Row),
    Insert(&'a Row),
    Delete(&'a Row),
    Modify(&'a Row, &'a Row),
}

/// Composes `{TABLE: {UUID: …, …}, …}`, row by row in the order of tables.
struct Composer<'a> {
    schema: &'a Schema,
    form: Form,
    out: Vec<u8>,
    table: Option<TableIdx>,
}

/// All rows of the tables that are asked for initially.
pub fn initial(database: &Database, spec: &Spec) -> Vec<u8> {
    let mut composer = Composer::new(database.schema(), spec.form);
    for table in spec.tables.iter().filter(|t| t.select.initial) {
        for row in database.rows(table.table).filter(|row| table.condition.matches(row)) {
            composer.row(table, Kind::Initial(row));
        }
    }
    composer.finish().unwrap_or_else(|| b"{}".to_vec())
}

/// What [`initial`] costs, at most, in clauses that rows are compared with.
pub fn initial_work(database: &Database, spec: &Spec) -> usize {
    let tables = spec.tables.iter().filter(|t| t.select.initial);
    tables.map(|t| rows_work(database, t)).fold(0, usize::saturating_add)
}

/// What [`condition_change`] costs.
pub fn condition_change_work(database: &Database, before: &Spec, after: &Spec) -> usize {
    let tables = before.tables.iter().zip(&after.tables).filter(|(old, new)| old.condition != new.condition);
    let work = tables.flat_map(|(old, new)| [rows_work(database, old), rows_work(database, new)]);
    work.fold(0, usize::saturating_add)
}

fn rows_work(database: &Database, table: &TableSpec) -> usize {
    table.condition.cost_of_all(database, table.table)
}

/// The changes, `None` if nothing requested has changed; and what this cost.
pub fn changes(schema: &Schema, spec: &Spec, net: &Net) -> (Option<Vec<u8>>, usize) {
    let mut composer = Composer::new(schema, spec.form);
    let mut work = 0;
    // Both are in the order of tables.
    let mut tables = spec.tables.iter().peekable();
    net.for_each(|table, _, old, new| {
        while tables.peek().is_some_and(|t| t.table < table) {
            tables.next();
        }
        let monitored = tables.peek().filter(|t| t.table == table);
        let cost = |row: Option<&Row>| row.zip(monitored).map_or(1, |(row, t)| t.condition.cost(row));
        work += cost(old).max(cost(new));
        let Some(monitored) = monitored else { return };
        let old = old.filter(|row| monitored.condition.matches(row));
        let new = new.filter(|row| monitored.condition.matches(row));
        match (old, new) {
            (None, Some(new)) => composer.row(monitored, Kind::Insert(new)),
            (Some(old), None) => composer.row(monitored, Kind::Delete(old)),
            (Some(old), Some(new)) => composer.row(monitored, Kind::Modify(old, new)),
            (None, None) => {}
        }
    });
    (composer.finish(), work)
}

/// What a change of conditions shows and hides; `None` if nothing.
pub fn condition_change(database: &Database, before: &Spec, after: &Spec) -> Option<Vec<u8>> {
    let mut composer = Composer::new(database.schema(), after.form);
    for (old, new) in before.tables.iter().zip(&after.tables) {
        if old.condition == new.condition {
            continue;
        }
        for row in database.rows(new.table) {
            match (old.condition.matches(row), new.condition.matches(row)) {
                (false, true) => composer.row(new, Kind::Insert(row)),
                (true, false) => composer.row(new, Kind::Delete(row)),
                _ => {}
            }
        }
    }
    composer.finish()
}

impl<'a> Composer<'a> {
    fn new(schema: &'a Schema, form: Form) -> Composer<'a> {
        Composer { schema, form, out: Vec::new(), table: None }
    }

    fn row(&mut self, monitored: &TableSpec, kind: Kind<'_>) {
        let is_wanted = |select: Select| match kind {
            Kind::Initial(_) => select.initial,
            Kind::Insert(_) => select.insert,
            Kind::Delete(_) => select.delete,
            Kind::Modify(..) => select.modify,
        };
        if !is_wanted(monitored.select) {
            return;
        }
        let columns: Vec<usize> =
            monitored.columns.iter().filter(|c| is_wanted(c.select)).map(|c| c.column.index()).collect();
        if let Kind::Modify(old, new) = kind
            && columns.iter().all(|&c| old.columns()[c] == new.columns()[c])
        {
            return;
        }
        let schema = self.schema.table(monitored.table);
        let uuid = match kind {
            Kind::Initial(row) | Kind::Insert(row) | Kind::Delete(row) | Kind::Modify(_, row) => row.uuid(),
        };
        self.key(monitored.table, uuid);
        match self.form {
            Form::Plain => self.plain(schema, &columns, kind),
            Form::Conditional | Form::Since => self.conditional(schema, &columns, kind),
        }
    }

    /// `"TABLE":{"UUID":`, closing the table before.
    fn key(&mut self, table: TableIdx, uuid: Uuid) {
        match self.table {
            Some(current) if current == table => self.out.push(b','),
            current => {
                self.out.extend_from_slice(if current.is_some() { b"}," } else { b"{" });
                string(&mut self.out, &self.schema.table(table).name);
                self.out.extend_from_slice(b":{");
                self.table = Some(table);
            }
        }
        self.out.push(b'"');
        self.out.extend_from_slice(&uuid.text());
        self.out.extend_from_slice(b"\":");
    }

    fn plain(&mut self, schema: &TableSchema, columns: &[usize], kind: Kind<'_>) {
        let all = |_: usize| true;
        match kind {
            Kind::Initial(row) | Kind::Insert(row) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.columns(schema, row, columns, all);
            }
            Kind::Delete(row) => {
                self.out.extend_from_slice(b"{\"old\":");
                self.columns(schema, row, columns, all);
            }
            Kind::Modify(old, new) => {
                self.out.extend_from_slice(b"{\"new\":");
                self.columns(schema, new, columns, all);
                self.out.extend_from_slice(b",\"old\":");
                self.columns(schema, old, columns, |c| old.columns()[c] != new.columns()[c]);
            }
        }
        self.out.push(b'}');
    }

    fn conditional(&mut self, schema: &TableSchema, columns: &[usize], kind: Kind<'_>) {
        match kind {
            Kind::Initial(row) | Kind::Insert(row) => {
                let is_initial = matches!(kind, Kind::Initial(_));
                self.out.extend_from_slice(if is_initial { b"{\"initial\":" } else { b"{\"insert\":" });
                self.columns(schema, row, columns, |c| row.columns()[c] != schema.columns()[c].default);
            }
            Kind::Delete(_) => self.out.extend_from_slice(b"{\"delete\":null"),
            Kind::Modify(old, new) => {
                self.out.extend_from_slice(b"{\"modify\":{");
                let mut first = true;
                for &c in columns {
                    let (old, new) = (&old.columns()[c], &new.columns()[c]);
                    if old == new {
                        continue;
                    }
                    let column = &schema.columns()[c];
                    member(&mut self.out, &mut first, &column.name);
                    if column.kind.max == 1 {
                        datum(&mut self.out, new, &column.kind);
                    } else {
                        datum(&mut self.out, &old.symmetric_difference(new), &column.kind);
                    }
                }
                self.out.push(b'}');
            }
        }
        self.out.push(b'}');
    }

    fn columns(
        &mut self,
        schema: &TableSchema,
        row: &Row,
        columns: &[usize],
        is_shown: impl Fn(usize) -> bool,
    ) {
        self.out.push(b'{');
        let mut first = true;
        for &c in columns.iter().filter(|&&c| is_shown(c)) {
            let column = &schema.columns()[c];
            member(&mut self.out, &mut first, &column.name);
            datum(&mut self.out, &row.columns()[c], &column.kind);
        }
        self.out.push(b'}');
    }

    fn finish(mut self) -> Option<Vec<u8>> {
        self.table?;
        self.out.extend_from_slice(b"}}");
        Some(self.out)
    }
}

fn member(out: &mut Vec<u8>, first: &mut bool, name: &str) {
    if !std::mem::replace(first, false) {
        out.push(b',');
    }
    string(out, name);
    out.push(b':');
}

fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string can be written");
}

/// As [`Datum::to_json`], as text.
fn datum(out: &mut Vec<u8>, datum: &Datum, of: &ColumnType) {
    if of.is_map() {
        out.extend_from_slice(b"[\"map\",[");
        for (index, (key, value)) in datum.as_map().iter().enumerate() {
            out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
            atom(out, key);
            out.push(b',');
            atom(out, value);
            out.push(b']');
        }
        out.extend_from_slice(b"]]");
        return;
    }
    if let Some(only) = datum.as_atom() {
        return atom(out, only);
    }
    out.extend_from_slice(b"[\"set\",[");
    for (index, element) in datum.as_set().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        atom(out, element);
    }
    out.extend_from_slice(b"]]");
}

fn atom(out: &mut Vec<u8>, atom: &Atom) {
    match atom {
        Atom::Integer(value) => write!(out, "{value}").expect("a vector takes all"),
        Atom::Boolean(value) => write!(out, "{value}").expect("a vector takes all"),
        Atom::String(_) => string(out, atom.as_str().unwrap_or_default()),
        Atom::Uuid(uuid) => {
            out.extend_from_slice(b"[\"uuid\",\"");
            out.extend_from_slice(&uuid.text());
            out.extend_from_slice(b"\"]");
        }
        Atom::Real(_) => serde_json::to_writer(out, &atom.to_json()).expect("a number can be written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AtomType;

    #[test]
    fn data_are_written_as_their_json() {
        let set = ColumnType { max: u32::MAX, min: 0, ..ColumnType::scalar(AtomType::String) };
        let mut map = set.clone();
        map.value = Some(crate::BaseType::new(AtomType::Uuid));
        let reals = ColumnType { max: 9, ..ColumnType::scalar(AtomType::Real) };
        let uuid = Uuid::parse("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        let real = |value| Atom::Real(crate::Real::new(value).unwrap());
        for (value, kind) in [
            (Datum::EMPTY, &set),
            (Datum::EMPTY, &map),
            (Datum::scalar("a\"\n\u{1}é"), &set),
            (Datum::set(["b", "a"]), &set),
            (Datum::map([("k", uuid), ("l", uuid)]), &map),
            (Datum::map([("k", uuid)]), &map),
            (Datum::set([real(1.0), real(1.5), real(1e300), real(-0.1)]), &reals),
            (Datum::scalar(-5), &ColumnType::scalar(AtomType::Integer)),
            (Datum::scalar(true), &ColumnType::scalar(AtomType::Boolean)),
        ] {
            let mut out = Vec::new();
            datum(&mut out, &value, kind);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_json(kind).to_string());
        }
    }
}
