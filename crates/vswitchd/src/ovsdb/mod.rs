//! The database server's sockets, files and thread, around the state machines of the crate `ovsdb`.

pub mod file;
