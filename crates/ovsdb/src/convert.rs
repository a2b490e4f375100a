//! Conversion of a database to another schema, while it is in use or as a file (ovsdb-server(7) "Schema
//! Conversion").

use std::sync::Arc;

use crate::database::Database;
use crate::datum::Datum;
use crate::error::Error;
use crate::schema::{ColumnSchema, Schema};
use crate::uuid::UuidGenerator;

impl Database {
    /// A database of `schema` with the rows of this one, under the same names. Tables and columns that do not
    /// exist in `schema` are left out, new ones have their defaults, and column values are parsed again with
    /// their new type: an integer may become a real, or a set of one a scalar, if every row allows it. All
    /// constraints of `schema` hold; `Err` with the first that does not.
    pub fn convert(
        &self,
        schema: impl Into<Arc<Schema>>,
        ids: &mut UuidGenerator,
    ) -> Result<Database, Error> {
        let schema = schema.into();
        let mut converted = Database::new(Arc::clone(&schema));
        let mut transaction = converted.begin();
        for (new_table, new_schema) in schema.tables_with_idx() {
            let Some(old_table) = self.schema().find(&new_schema.name) else { continue };
            let old_schema = self.schema().table(old_table);
            let columns: Vec<_> = new_schema
                .named_columns()
                .filter_map(|(new, schema)| Some((old_schema.find(&schema.name)?, new, schema)))
                .collect();
            for old_row in self.rows(old_table) {
                let mut row = transaction.new_row(new_table, old_row.uuid());
                for &(old, new, schema) in &columns {
                    row.set(new, convert(old_row.get(old), old_schema.column(old), schema)?);
                }
                transaction.insert(new_table, row)?;
            }
        }
        transaction.commit(ids)?;
        Ok(converted)
    }
}

fn convert(datum: &Datum, old: &ColumnSchema, new: &ColumnSchema) -> Result<Datum, Error> {
    if old.kind == new.kind {
        return Ok(datum.clone());
    }
    Datum::from_json(&datum.to_json(&old.kind), &new.kind, None)
}
