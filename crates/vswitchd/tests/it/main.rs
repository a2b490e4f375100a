//! The daemon as a library: its database server, and the configuration against its manual.

mod configuration;
mod kill;
mod ovsdb;
