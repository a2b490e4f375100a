//! Role-based access control: what a client with a role may insert, change and delete.
//!
//! The table `RBAC_Role` has a row for each role, whose `permissions` map table names to rows (of
//! `RBAC_Permission`). Such a row says how a row of that table must name a client for the client to own it
//! (`authorization`), whether the client may insert and delete rows that it owns (`insert_delete`), and which
//! of their columns it may change (`update`). Everything for which a role has no permission is refused;
//! reading never is. A database without `RBAC_Role` has no restrictions, and neither has a role without a
//! name.
//!
//! A transaction is judged by the permissions and rows at the time of each of its operations, so its own
//! earlier operations count.
//!
//! Source: ovsdb-server of Open vSwitch 3.1 (ovsdb-server(7), ovn-architecture(7) "Role-Based Access
//! Controls", ovn-sb(5) "RBAC_Role", "RBAC_Permission").

use crate::atom::AtomType;
use crate::database::Database;
use crate::datum::Datum;
use crate::error::Error;
use crate::row::Row;
use crate::schema::{ColumnIdx, TableIdx, TableSchema};
use crate::types::UNLIMITED;

/// Whom a transaction is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Principal<'a> {
    /// The role that the remote gives its clients. Empty: they may do everything.
    pub role: &'a str,
    /// The client's identity, from its certificate. `None`: unknown, and with a role it may change nothing.
    pub client: Option<&'a str>,
}

impl Principal<'_> {
    /// A client that may do everything.
    pub const ROOT: Principal<'static> = Principal { role: "", client: None };

    /// "permission error": the role forbids what `act` says.
    pub(crate) fn refused(&self, act: &str) -> Error {
        // A client without a certificate is called as the stock server calls it.
        let (client, role) = (self.client.unwrap_or("(null)"), self.role);
        Error::new(
            "permission error",
            format!("RBAC rules for client \"{client}\" role \"{role}\" prohibit {act}"),
        )
    }

    /// Whether the role may do this to these rows of `table`. `Err`: "permission error".
    pub(super) fn check(
        &self,
        database: &Database,
        table: TableIdx,
        act: Act<'_>,
        rows: &[Row],
    ) -> Result<(), Error> {
        let Some(roles) = database.schema().find("RBAC_Role").filter(|_| !self.role.is_empty()) else {
            return Ok(());
        };
        let schema = database.schema().table(table);
        let is_permitted = self.client.is_some_and(|client| {
            Permission::find(database, roles, self.role, &schema.name)
                .is_some_and(|permission| permission.allows(act, client, schema, rows))
        });
        if is_permitted { Ok(()) } else { Err(self.refused(&act.on(&schema.name))) }
    }
}

/// What is done to rows.
#[derive(Clone, Copy)]
pub(super) enum Act<'a> {
    Insert,
    Delete,
    /// These columns are set.
    Update(&'a [ColumnIdx]),
    /// These columns are mutated.
    Mutate(&'a [ColumnIdx]),
}

impl Act<'_> {
    fn on(self, table: &str) -> String {
        match self {
            Act::Insert => format!("row insertion into table \"{table}\"."),
            Act::Delete => format!("row deletion from table \"{table}\"."),
            Act::Update(_) => format!("modification of table \"{table}\"."),
            Act::Mutate(_) => format!("mutate operation on table \"{table}\"."),
        }
    }
}

/// What a role may do with a table. A column that is missing, or not of the type that it has in OVN, permits
/// nothing.
struct Permission<'a> {
    schema: &'a TableSchema,
    row: &'a Row,
}

impl<'a> Permission<'a> {
    /// The permission of the first row of `roles` with this name.
    fn find(database: &'a Database, roles: TableIdx, role: &str, table: &str) -> Option<Permission<'a>> {
        let schema = database.schema().table(roles);
        let name = schema.find("name")?;
        // Roles are few.
        let has_name = |row: &&Row| row.get(name).keys().any(|key| key.as_str() == Some(role));
        let role = database.rows(roles).find(has_name)?;
        let permissions = schema.find("permissions")?;
        let column = schema.column(permissions);
        let references = column.references.iter().find(|reference| reference.in_values)?.table;
        let mut pairs = role.get(permissions).as_map().iter();
        let (_, row) = pairs.find(|(name, _)| name.as_str() == Some(table))?;
        let row = database.row(references, row.as_uuid()?)?;
        Some(Permission { schema: database.schema().table(references), row })
    }

    fn allows(&self, act: Act<'_>, client: &str, table: &TableSchema, rows: &[Row]) -> bool {
        let owns_all = || rows.iter().all(|row| self.authorizes(client, table, row));
        match act {
            Act::Insert => owns_all() && self.may_insert_and_delete(),
            Act::Delete => rows.is_empty() || owns_all() && self.may_insert_and_delete(),
            Act::Update(columns) | Act::Mutate(columns) => {
                let Some(modifiable) = strings(self.schema, self.row, "update") else { return false };
                let is_modifiable = |column: &ColumnIdx| {
                    let name = &*table.column(*column).name;
                    modifiable.keys().any(|key| key.as_str() == Some(name))
                };
                rows.is_empty() || owns_all() && columns.iter().all(is_modifiable)
            }
        }
    }

    fn may_insert_and_delete(&self) -> bool {
        let datum = typed(self.schema, self.row, "insert_delete", (AtomType::Boolean, None), 1);
        datum.and_then(Datum::as_bool).unwrap_or(false)
    }

    /// Whether a client owns a row of `table`: one of the columns that `authorization` names contains its
    /// name. `COLUMN:KEY` is a key of a map, and the empty string makes every client the owner.
    fn authorizes(&self, client: &str, table: &TableSchema, row: &Row) -> bool {
        let Some(owners) = strings(self.schema, self.row, "authorization") else { return false };
        owners.keys().filter_map(|name| name.as_str()).any(|name| {
            if name.is_empty() {
                return true;
            }
            let owner = if name.contains(':') {
                // Split as `strtok` does.
                let mut words = name.split(':').filter(|word| !word.is_empty());
                let (Some(column), Some(key)) = (words.next(), words.next()) else { return false };
                let map = (AtomType::String, Some(AtomType::String));
                typed(table, row, column, map, UNLIMITED).and_then(|datum| datum.get(key))
            } else {
                typed(table, row, name, (AtomType::String, None), 1).and_then(Datum::as_str)
            };
            owner == Some(client)
        })
    }
}

/// A column that is a set of strings.
fn strings<'a>(table: &TableSchema, row: &'a Row, column: &str) -> Option<&'a Datum> {
    typed(table, row, column, (AtomType::String, None), UNLIMITED)
}

/// The value of a row's column of that name, if its keys and values have these types and its maximum size is
/// `max`.
fn typed<'a>(
    table: &TableSchema,
    row: &'a Row,
    column: &str,
    (key, value): (AtomType, Option<AtomType>),
    max: u32,
) -> Option<&'a Datum> {
    let column = table.find(column)?;
    let kind = &table.column(column).kind;
    let is_it = kind.key.kind == key && kind.value.as_ref().map(|base| base.kind) == value && kind.max == max;
    is_it.then(|| row.get(column))
}
