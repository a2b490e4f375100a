//! The database server with its sockets, against the stock clients, hostile ones, and many.

mod hostile;
mod rbac;
mod remotes;
mod rig;
mod stock;
