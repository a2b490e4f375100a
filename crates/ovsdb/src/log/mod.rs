//! The file that a database lives in: a log of records, the schema first, then one per transaction.
//!
//! The format is `ovsdb-tool`'s, byte for byte in what matters: a line `OVSDB JSON <length> <SHA-1>`, then
//! that many bytes of JSON, the last of them a newline. [`frame`] defines this, [`Reader`] finds records and
//! damage, [`Writer`] appends them, and [`transaction`] turns a committed transaction into a record and back.
//!
//! This module opens no files: a file is any implementation of [`LogFile`]. The daemon uses real ones; the
//! tests use one that fails, tears and forgets.
//!
//! Source: ovsdb(5), "File Formats".

mod file;
pub mod frame;
mod reader;
pub mod transaction;

mod writer;

pub use file::{LogDirectory, LogFile, ReadAt, Temporary};
pub use frame::Magic;
pub use reader::{Damage, DamageKind, Found, ReadError, Reader, Record};
pub(crate) use writer::write_all;
pub use writer::{Appended, Writer};
