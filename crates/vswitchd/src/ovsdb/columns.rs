//! Settings that are columns of a database: `db:DATABASE,TABLE,COLUMN` (ovsdb-server(1), "--remote").

use super::remote_options::{Dscp, Overrides};
use ovsdb::server::Server;
use ovsdb::{AtomType, ColumnIdx, Database, Row, TableIdx, TableSchema};
use std::time::Duration;

/// A column, by its names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ColumnName {
    pub(super) database: String,
    table: String,
    column: String,
    /// The original text.
    text: String,
}

/// A column that is there.
pub(super) struct Found<'a> {
    pub(super) database: &'a Database,
    table: TableIdx,
    column: ColumnIdx,
}

/// A remote that a column names.
#[derive(Clone, Debug)]
pub(super) struct ColumnRemote {
    pub(super) target: String,
    pub(super) overrides: Overrides,
    /// The row that it is in, to write its status to.
    pub(super) row: Option<(TableIdx, Row)>,
}

impl ColumnName {
    /// Parses `db:DATABASE,TABLE,COLUMN`. `None`: it does not have that form.
    pub(super) fn parse(text: &str) -> Option<Result<ColumnName, String>> {
        let names: Vec<&str> = text.strip_prefix("db:")?.split(',').collect();
        let [database, table, column] = names[..] else {
            return Some(Err(format!("\"{text}\": invalid syntax")));
        };
        Some(Ok(ColumnName {
            database: database.into(),
            table: table.into(),
            column: column.into(),
            text: text.into(),
        }))
    }

    /// The original text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The column itself: one of texts, or of references to rows that hold them.
    pub(super) fn find<'a>(&self, server: &'a Server) -> Result<Found<'a>, String> {
        let found = self.look_up(server)?;
        if !found.holds_text() && found.referenced().is_none() {
            let text = &self.text;
            return Err(format!("\"{text}\": the column holds neither strings nor references to rows"));
        }
        Ok(found)
    }

    /// The column itself, if it is one of texts.
    pub(super) fn find_text<'a>(&self, server: &'a Server) -> Result<Found<'a>, String> {
        let found = self.look_up(server)?;
        if !found.holds_text() {
            let ColumnName { table, column, text, .. } = self;
            return Err(format!(
                "\"{text}\": table \"{table}\" column \"{column}\" is not string or set of strings"
            ));
        }
        Ok(found)
    }

    fn look_up<'a>(&self, server: &'a Server) -> Result<Found<'a>, String> {
        let ColumnName { database: name, table, column, text } = self;
        let Some(database) = server.database(name) else {
            return Err(format!("\"{text}\": no database named {name}"));
        };
        let Some(table_idx) = database.schema().find(table) else {
            return Err(format!("\"{text}\": no table named {table}"));
        };
        let schema = database.schema().table(table_idx);
        let Some(column_idx) = schema.find(column) else {
            return Err(format!("\"{text}\": table \"{table}\" has no column \"{column}\""));
        };
        Ok(Found { database, table: table_idx, column: column_idx })
    }
}

impl Found<'_> {
    fn schema(&self) -> &TableSchema {
        self.database.schema().table(self.table)
    }

    fn holds_text(&self) -> bool {
        let kind = &self.schema().column(self.column).kind;
        kind.key.kind == AtomType::String && !kind.is_map()
    }

    /// The table that the column refers to.
    fn referenced(&self) -> Option<TableIdx> {
        let references = &self.schema().column(self.column).references;
        references.iter().find(|r| !r.in_values).map(|r| r.table)
    }

    /// The first string that is not empty.
    pub(super) fn string(&self) -> Option<String> {
        let atoms = self.database.rows(self.table).flat_map(|row| row.get(self.column).as_set());
        atoms.filter_map(|atom| atom.as_str()).find(|text| !text.is_empty()).map(str::to_owned)
    }

    /// The remotes that it names, in all rows.
    pub(super) fn remotes(&self) -> Vec<ColumnRemote> {
        let atoms = self.database.rows(self.table).flat_map(|row| row.get(self.column).as_set());
        let Some(table) = self.referenced() else {
            let named = |target: &str| ColumnRemote {
                target: target.to_owned(),
                overrides: Overrides::default(),
                row: None,
            };
            let targets = atoms.filter_map(|atom| atom.as_str());
            return targets.filter(|target| !target.is_empty()).map(named).collect();
        };
        let schema = self.database.schema().table(table);
        let rows = atoms.filter_map(|atom| self.database.row(table, atom.as_uuid()?));
        rows.filter_map(|row| remote(schema, table, row)).collect()
    }
}

/// Reads a row such as those of Manager. Columns that are not there, or not of the type that is expected,
/// count as empty.
fn remote(schema: &TableSchema, table: TableIdx, row: &Row) -> Option<ColumnRemote> {
    let datum = |name: &str| schema.find(name).map(|column| row.get(column));
    let milliseconds = |name: &str| {
        let value = datum(name)?.as_integer()?;
        Some(Duration::from_millis(u64::try_from(value).ok()?))
    };
    let target = datum("target")?.as_str()?;
    if target.is_empty() {
        return None;
    }
    Some(ColumnRemote {
        target: target.to_owned(),
        overrides: Overrides {
            max_backoff: milliseconds("max_backoff"),
            probe_interval: milliseconds("inactivity_probe").map(|probe| (!probe.is_zero()).then_some(probe)),
            read_only: datum("read_only").and_then(|d| d.as_bool()).unwrap_or(false),
            // The first one if the schema allows several: with no role its clients could do everything.
            role: datum("role").and_then(|d| d.keys().next()?.as_str()).unwrap_or_default().to_owned(),
            dscp: datum("other_config").and_then(|d| d.get("dscp")).map_or(Dscp::Default, Dscp::parse),
        },
        row: Some((table, row.clone())),
    })
}
