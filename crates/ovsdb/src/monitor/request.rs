//! What a client asks to monitor: `<monitor-requests>` of RFC 7047 section 4.1.5 and
//! `<monitor-cond-requests>` of ovsdb-server(7) section 4.1.12.

use super::condition::Condition;
use crate::error::syntax_error;
use crate::{ColumnIdx, Error, Schema, TableIdx, TableSchema};
use serde_json::{Map, Value};

/// Which of the three requests it was, which determines the form of updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `monitor`: `update`.
    Plain,
    /// `monitor_cond`: `update2`.
    Conditional,
    /// `monitor_cond_since`: `update3`.
    Since,
}

/// The kinds of updates that are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Select {
    pub initial: bool,
    pub insert: bool,
    pub delete: bool,
    pub modify: bool,
}

/// What one monitor selects.
#[derive(Clone, PartialEq, Debug)]
pub struct Spec {
    /// How its updates look.
    pub form: Form,
    /// Its tables, in the order of the schema.
    pub tables: Vec<TableSpec>,
}

/// What it selects in one table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableSpec {
    /// The table.
    pub table: TableIdx,
    /// Its columns, in the order of the table; each once.
    pub columns: Vec<ColumnSpec>,
    /// The kinds of change for which any of its columns is selected.
    pub select: Select,
    /// Its rows.
    pub condition: Condition,
}

/// A column, and the kinds of change for which it is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnSpec {
    pub column: ColumnIdx,
    pub select: Select,
}

impl Select {
    const ALL: Select = Select { initial: true, insert: true, delete: true, modify: true };
    const NONE: Select = Select { initial: false, insert: false, delete: false, modify: false };

    fn or(self, other: Select) -> Select {
        Select {
            initial: self.initial | other.initial,
            insert: self.insert | other.insert,
            delete: self.delete | other.delete,
            modify: self.modify | other.modify,
        }
    }
}

impl Form {
    /// The method of its updates.
    pub fn method(self) -> &'static str {
        match self {
            Form::Plain => "update",
            Form::Conditional => "update2",
            Form::Since => "update3",
        }
    }
}

impl Spec {
    /// Reads what maps tables to requests.
    pub fn from_json(form: Form, schema: &Schema, json: &Value) -> Result<Spec, Error> {
        let requests =
            json.as_object().ok_or_else(|| syntax_error(json, "monitor-requests must be object"))?;
        let mut tables = Vec::with_capacity(requests.len());
        for (name, json) in requests {
            let table = find(schema, name)?;
            let mut spec =
                TableSpec { table, columns: Vec::new(), select: Select::NONE, condition: Condition::all() };
            let mut wheres = Wheres::default();
            for request in one_or_more(json) {
                let request = Request::from_json(form, schema.table(table), request)?;
                request.add_to(&mut spec, schema.table(table), json)?;
                wheres.add(request.clauses);
            }
            spec.columns.sort_by_key(|c| c.column);
            spec.condition = wheres.condition(schema.table(table))?;
            tables.push(spec);
        }
        tables.sort_by_key(|t| t.table);
        Ok(Spec { form, tables })
    }

    /// The same with the conditions of a `monitor_cond_change`. Tables keep theirs that it does not name, or
    /// names without a request; of several requests for a table the last one counts. The updates of
    /// [`Form::Plain`] know no conditions.
    pub fn with_conditions(&self, schema: &Schema, json: &Value) -> Result<Spec, Error> {
        let requests = json
            .as_object()
            .ok_or_else(|| Error::new("syntax error", "monitor-cond-change-requests must be object"))?;
        let mut changed = self.clone();
        for (name, json) in requests {
            let table = find(schema, name)?;
            let refused = |details: String| Error::new("syntax error", details);
            let Some(spec) = changed.tables.iter_mut().find(|t| t.table == table) else {
                return Err(refused(format!("no table named {name} in monitor session")));
            };
            let requests = json
                .as_array()
                .ok_or_else(|| refused(format!("table {name} no monitor-cond-change JSON array")))?;
            for request in requests {
                let clauses = changed_clauses(schema.table(table), request)?;
                if self.form != Form::Plain {
                    spec.condition = Condition::from_json(schema.table(table), clauses)?;
                }
            }
        }
        Ok(changed)
    }
}

/// The clauses of a request to change a condition.
fn changed_clauses<'a>(table: &TableSchema, json: &'a Value) -> Result<&'a [Value], Error> {
    let (members, what) = members_of(table, json)?;
    let array = |member: &str| member_of(json, members, &what, member, Value::as_array);
    let (columns, clauses) = (array("columns")?, array("where")?);
    refuse_others(json, members, &what, &["columns", "where"])?;
    if columns.is_some() {
        return Err(syntax_error(json, "changing columns is unsupported"));
    }
    Ok(clauses.map(Vec::as_slice).unwrap_or_default())
}

/// The members of a request for a table, and what errors call it.
fn members_of<'a>(table: &TableSchema, json: &'a Value) -> Result<(&'a Map<String, Value>, String), Error> {
    let name = &table.name;
    let members = json.as_object().ok_or_else(|| {
        let details = format!("Parsing table {name} failed: Object expected.");
        syntax_error(json, details)
    })?;
    Ok((members, format!("table {name}")))
}

fn find(schema: &Schema, table: &str) -> Result<TableIdx, Error> {
    schema.find(table).ok_or_else(|| Error::new("syntax error", format!("no table named {table}")))
}

/// An array of requests, or, as clients of old have it, one.
fn one_or_more(json: &Value) -> &[Value] {
    match json {
        Value::Array(requests) => requests,
        request => std::slice::from_ref(request),
    }
}

/// The conditions of all requests for a table: any of them lets a row through, and one without clauses every
/// row.
#[derive(Default)]
struct Wheres {
    clauses: Vec<Value>,
    any_row: bool,
}

impl Wheres {
    fn add(&mut self, clauses: Option<&[Value]>) {
        let clauses = clauses.unwrap_or_default();
        self.any_row |= clauses.is_empty();
        self.clauses.extend_from_slice(clauses);
    }

    /// Clauses are checked even where they have no effect.
    fn condition(&self, table: &TableSchema) -> Result<Condition, Error> {
        let condition = Condition::from_json(table, &self.clauses)?;
        Ok(if self.any_row { Condition::all() } else { condition })
    }
}

/// One request for a table.
struct Request<'a> {
    columns: Option<(&'a Value, &'a [Value])>,
    select: Select,
    clauses: Option<&'a [Value]>,
}

impl<'a> Request<'a> {
    fn from_json(form: Form, table: &TableSchema, json: &'a Value) -> Result<Request<'a>, Error> {
        let (members, what) = members_of(table, json)?;
        let array = |member: &str| member_of(json, members, &what, member, Value::as_array);
        let columns = array("columns")?.map(|columns| (&members["columns"], columns.as_slice()));
        let select = member_of(json, members, &what, "select", |json| json.is_object().then_some(json))?;
        let clauses = if form == Form::Plain { None } else { array("where")?.map(Vec::as_slice) };
        let allowed: &[&str] =
            if form == Form::Plain { &["columns", "select"] } else { &["columns", "select", "where"] };
        refuse_others(json, members, &what, allowed)?;
        let select = select.map_or(Ok(Select::ALL), |json| Select::from_json(json, &what))?;
        Ok(Request { columns, select, clauses })
    }

    fn add_to(&self, spec: &mut TableSpec, table: &TableSchema, _json: &Value) -> Result<(), Error> {
        spec.select = spec.select.or(self.select);
        let mut add = |column: ColumnIdx, json: &Value| {
            if spec.columns.iter().any(|c| c.column == column) {
                let name = &table.column(column).name;
                return Err(syntax_error(json, format!("column {name} mentioned more than once")));
            }
            spec.columns.push(ColumnSpec { column, select: self.select });
            Ok(())
        };
        let Some((json, columns)) = self.columns else {
            // `_uuid` is the key of each row already.
            let all = table.columns_with_idx().map(|(column, _)| column).filter(|&c| c != ColumnIdx::UUID);
            return all.into_iter().try_for_each(|column| add(column, &Value::Null));
        };
        for name in columns {
            let Some(name) = name.as_str() else {
                return Err(syntax_error(json, "array of column names expected"));
            };
            let Some(column) = table.find(name) else {
                return Err(syntax_error(json, format!("{name} is not a valid column name")));
            };
            add(column, json)?;
        }
        Ok(())
    }
}

impl Select {
    fn from_json(json: &Value, of: &str) -> Result<Select, Error> {
        let what = format!("{of} select");
        let members = json.as_object().expect("the caller has looked");
        let flag = |member: &str| {
            member_of(json, members, &what, member, Value::as_bool).map(|flag| flag.unwrap_or(true))
        };
        let select = Select {
            initial: flag("initial")?,
            insert: flag("insert")?,
            delete: flag("delete")?,
            modify: flag("modify")?,
        };
        refuse_others(json, members, &what, &["initial", "insert", "delete", "modify"])?;
        Ok(select)
    }
}

fn member_of<'a, T>(
    json: &Value,
    members: &'a Map<String, Value>,
    what: &str,
    member: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    members
        .get(member)
        .map(|value| {
            read(value).ok_or_else(|| {
                syntax_error(json, format!("Parsing {what} failed: Type mismatch for member '{member}'."))
            })
        })
        .transpose()
}

fn refuse_others(
    json: &Value,
    members: &Map<String, Value>,
    what: &str,
    allowed: &[&str],
) -> Result<(), Error> {
    match members.keys().find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(syntax_error(
            json,
            format!("Parsing {what} failed: Member '{name}' is present but not allowed here."),
        )),
        None => Ok(()),
    }
}
