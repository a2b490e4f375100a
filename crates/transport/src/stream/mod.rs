//! Byte streams by connection method: `unix:`, `tcp:` and `ssl:` connect, `punix:`, `ptcp:` and `pssl:`
//! listen.
//!
//! One type, [`Stream`], covers all of them, so that the database, controllers and the client programs need
//! not distinguish them. TLS is rustls' with the `ring` provider; [`Tls`] has its files and defines which
//! peers are trusted.
//!
//! Threads: any with a tokio runtime that has I/O and time. Connecting and TLS handshakes end by
//! [`HANDSHAKE_TIMEOUT`]; reading and writing have no limit here.

mod certificate;
mod connect;
mod kinds;
mod listener;
mod now;
mod suites;
mod target;
mod tls;

pub use host::log::os_text as reason;
pub use kinds::{HANDSHAKE_TIMEOUT, Stream, StreamError};
pub use listener::{Incoming, Listener, resolve};
pub use target::{ActiveTarget, Host, OPENFLOW_PORT, OVSDB_PORT, PassiveTarget, Target};
pub use tls::{Bootstrap, Tls, TlsFiles};

#[cfg(test)]
mod tests;
