//! OpenFlow: the messages of every version in one semantic form, their encodings, and the state machine of a
//! connection. No I/O, no clock, no `unsafe`; bad input gives an [`OfError`], never a panic.
//!
//! - [`message`]: what messages mean, independent of the version. Code outside this crate works with these.
//! - [`Codec`]: bytes to [`Message`] and back, for one version and what a connection negotiated.
//! - [`Connection`]: framing, hello, liveness, on either side.
//! - [`reply`]: replies of any length (a dump of a million flows), split into messages as they fill.
//! - [`text`]: matches, actions, flows and messages in the syntax of ovs-ofctl(8), parsed and printed.
//! - [`check_actions`]: whether actions are compatible with a match; [`actions_table`]: all actions.
//! - [`error`]: the standard's errors in one table.
//!
//! Sources: OpenFlow 1.0.0 to 1.5.1 (Open Networking Foundation); the Nicira extensions as described in
//! ovs-fields(7) and ovs-actions(7).

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

pub use action::{actions_table, check_actions, check_actions_before, left_out};
pub use codec::{Codec, Header, Unencodable, is_of_pipeline};
pub use connection::{Connection, ConnectionConfig, Event, Side};
pub use error::{ErrorKind, OfError};
pub use message::Message;
pub use reply::ReplyWriter;
pub use version::{Version, VersionSet};
