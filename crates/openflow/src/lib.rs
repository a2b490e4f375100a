//! OpenFlow: the messages of every version in one semantic form, their encodings, and the state machine of a
//! connection. No I/O, no clock, no `unsafe`; bad input gives an [`OfError`], never a panic.
//!
//! - [`message`]: what the messages say, in a form of no version. Code outside this crate works with these.
//! - [`Codec`]: bytes to [`Message`] and back, for one version and what a connection agreed on.
//! - [`Connection`]: framing, hello, liveness, on either side.
//! - [`reply`]: replies of any length (a dump of a million flows), split into messages as they fill.
//! - [`text`]: matches, actions, flows and messages in the syntax of ovs-ofctl(8), read and written.
//! - [`check_actions`]: whether actions make sense after a match; [`actions_table`]: all there are.
//! - [`error`]: the errors of the standard in one table.
//!
//! Sources: OpenFlow 1.0.0 to 1.5.1 (Open Networking Foundation); the Nicira extensions as ovs-fields(7) and
//! ovs-actions(7) describe them. Versions 1.0 and 1.3 are spoken so far; the tables have rows for all.

mod action;
pub mod codec;
pub mod connection;
pub mod error;
pub mod message;
mod parts;
pub mod reply;
mod request;
pub mod text;
pub mod version;

pub use action::{actions_table, check_actions};
pub use codec::{Codec, Header, Unencodable};
pub use connection::{Connection, ConnectionConfig, Event, Side};
pub use error::{ErrorKind, OfError};
pub use message::Message;
pub use reply::ReplyWriter;
pub use version::{Version, VersionSet};
