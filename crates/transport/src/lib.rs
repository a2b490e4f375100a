//! What goes between processes: streams (Unix, TCP, TLS) and the targets that name them, listening, when to
//! reconnect and to probe, deadlines on a clock that tests can bend, and the control socket's protocol.

pub mod clock;
pub mod jsonrpc;
pub mod reconnect;
pub mod unixctl;

mod accept;
mod budget;
mod closing;
mod datapath_id;
mod idle;
mod keep;
mod options;
mod outbox;
mod runtime;
mod stream;

pub use accept::{Place, Places, accept};
pub use budget::{Account, Budget};
pub use closing::Closing;
pub use datapath_id::parse_datapath_id;
pub use idle::{Idle, Idlers, Waits};
pub use keep::{CLOSED, Keep, keep_connected, tell_end, tell_silence};
pub use options::{CLIENT_TLS, MORE_TLS, take_tls};
pub use outbox::Outbox;
pub use runtime::runtime;
pub use stream::*;
