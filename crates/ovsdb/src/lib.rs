//! The database that configures the switch, as RFC 7047 describes it: schemas, values, transactions,
//! monitors, the sessions of its clients, and the format of its log file.
//!
//! No sockets, no files and no clock: bytes enter and leave through calls, the time is an argument, and a log
//! is written to an implementation of a trait. The daemon (crate `vswitchd`) does the rest.
//!
//! From the bottom up:
//!
//! - [`Uuid`] and [`UuidGenerator`]; [`Atom`], a single value; [`Datum`], a set or a map of them, which is
//!   what one column of one row holds.
//! - [`ColumnType`] with its [`BaseType`]s, and the [`Schema`] with its [`TableSchema`]s and
//!   [`ColumnSchema`]s. Tables and columns are found by name once and then named by [`TableIdx`] and
//!   [`ColumnIdx`].
//! - [`Row`], cheap to copy, and [`Database`]: rows by table. [`Database::snapshot`] is a copy at almost no
//!   cost.
//! - [`Transaction`]: changes by calls, all or nothing. [`Database::execute`]: changes by the operations of
//!   RFC 7047 section 5.2. Both end in the same commit, with its checks, and yield [`Changes`]: for each row
//!   that changed its old and its new version.
//! - [`text`]: values as the stock tools' command lines write them.
//!
//! ```
//! use ovsdb::{Database, Datum, Row, Schema, Uuid, UuidGenerator};
//!
//! let schema = serde_json::json!({"name": "Zoo", "version": "1.0.0", "tables": {
//!     "Animal": {"columns": {"name": {"type": "string"}, "legs": {"type": "integer"}}}}});
//! let schema = Schema::from_json(&schema)?;
//! let animal = schema.find("Animal").unwrap();
//! let legs = schema.table(animal).find("legs").unwrap();
//!
//! let mut ids = UuidGenerator::from_seed(1); // a server takes the system's randomness
//! let mut database = Database::new(schema);
//! let mut transaction = database.begin();
//! let mut cow = transaction.new_row(animal, ids.next_uuid());
//! cow.set(legs, Datum::scalar(4));
//! transaction.insert(animal, cow)?;
//! let changes = transaction.commit(&mut ids)?;
//! assert_eq!(changes.len(), 1);
//! # Ok::<(), ovsdb::Error>(())
//! ```

pub mod jsonrpc;
pub mod log;
pub mod monitor;
pub mod replica;
pub mod server;
pub mod storage;
pub mod text;

mod atom;
mod atom_text;
mod changes;
mod convert;
mod database;
mod datum;
mod datum_json;
mod error;
mod execute;
mod json;
mod row;
mod schema;
mod schemas;
mod symbols;
mod types;
mod uuid;

pub use atom::{Atom, AtomType, Real, is_identifier};
pub use changes::{Changes, RowChange};
pub use database::{Database, Snapshot, Transaction};
pub use datum::{Datum, Duplicate};
pub use error::{Error, constraint_error, syntax_error};
pub use execute::{Condition, Context, Execution, OpResult, Outcome, Principal, Reply, Room};
pub use json::Json;
pub use row::{Row, RowMap};
pub use schema::{ColumnIdx, ColumnReference, ColumnSchema, Schema, TableIdx, TableSchema};
pub use symbols::Symbols;
pub use types::{BaseType, ColumnType, Constraint, RefKind, Reference, UNLIMITED};
pub use uuid::{NotAUuid, UUID_LEN, Uuid, UuidGenerator};
