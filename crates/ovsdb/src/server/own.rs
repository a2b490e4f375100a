//! `_Server`: the database in which a server lists its databases (ovsdb-server(5)).

use super::session::Now;
use super::state::{Hosted, Model, SERVER_DATABASE, Server};
use crate::{ColumnIdx, Database, Datum, Row, Schema, TableIdx};
use std::collections::HashMap;
use std::sync::LazyLock;

impl Server {
    pub(super) fn add_own_database(&mut self, now: Now) {
        let own = Hosted::new(Database::new(Schema::server()), None, Model::Standalone, &mut self.ids);
        self.databases.insert(SERVER_DATABASE.to_owned(), own);
        self.own_is_stale = true;
        self.update_own_database(now);
    }

    /// Makes its rows say what is.
    pub(super) fn update_own_database(&mut self, now: Now) {
        static COLUMNS: LazyLock<Columns> = LazyLock::new(Columns::new);
        // Checked at each flush, of which there may be thousands a second: comparing a long schema each time
        // would cost too much.
        if !std::mem::take(&mut self.own_is_stale) {
            return;
        }
        let columns = &*COLUMNS;
        let own = &self.databases[SERVER_DATABASE].database;
        let rows: HashMap<String, Row> = own
            .rows(columns.table)
            .map(|row| (row.get(columns.name).as_str().unwrap_or_default().to_owned(), row.clone()))
            .collect();
        let wanted: Vec<(String, Vec<(ColumnIdx, Datum)>)> =
            self.databases.iter().map(|(name, hosted)| (name.clone(), columns.of(name, hosted))).collect();
        let table = columns.table;
        self.commit_own(now, SERVER_DATABASE, |transaction, ids| {
            for (name, values) in &wanted {
                let mut row = match rows.get(name) {
                    Some(row) => row.clone(),
                    None => {
                        let row = transaction.new_row(table, ids.next_uuid());
                        transaction.insert(table, row.clone())?;
                        row
                    }
                };
                values.iter().for_each(|(column, datum)| row.set(*column, datum.clone()));
                transaction.replace(table, row);
            }
            for (_, row) in rows.iter().filter(|(name, _)| !wanted.iter().any(|(w, _)| w == *name)) {
                transaction.delete(table, row.uuid());
            }
            Ok(())
        })
        .expect("it is in memory, and its rows are as its schema says");
    }
}

struct Columns {
    table: TableIdx,
    name: ColumnIdx,
    model: ColumnIdx,
    connected: ColumnIdx,
    leader: ColumnIdx,
    schema: ColumnIdx,
}

impl Columns {
    fn new() -> Columns {
        let schema = Schema::server();
        let table = schema.find("Database").expect("the built-in schema has it");
        let find = |name| schema.table(table).find(name).expect("the built-in schema has it");
        Columns {
            table,
            name: find("name"),
            model: find("model"),
            connected: find("connected"),
            leader: find("leader"),
            schema: find("schema"),
        }
    }

    fn of(&self, name: &str, hosted: &Hosted) -> Vec<(ColumnIdx, Datum)> {
        vec![
            (self.name, Datum::scalar(name)),
            (self.model, Datum::scalar(hosted.model.name())),
            (self.connected, Datum::scalar(true)),
            (self.leader, Datum::scalar(hosted.model == Model::Standalone)),
            (self.schema, Datum::scalar(hosted.schema_json.get())),
        ]
    }
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Model::Standalone => "standalone",
            Model::Relay => "relay",
        }
    }
}
