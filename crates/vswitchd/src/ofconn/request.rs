//! Parameters and results of request handlers.

use crate::ofproto::OfConn;
use openflow::ErrorKind;
use openflow::connection::RequestHead;
use openflow::message::TABLE_ALL;
use std::time::Duration;

/// The result of [`Vswitch::serve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// Nothing to do until more bytes come, or are sent.
    Quiet,
    /// The turn is over, not the work.
    More,
    /// It waits for workers.
    Waiting,
    /// Close the connection once everything is sent.
    Closed,
}

/// A request as handlers see it.
pub(super) struct Request<'a> {
    pub xid: u32,
    pub head: &'a RequestHead,
}

/// A handler's result: done, or the error to return.
pub(super) type Handled = Result<(), ErrorKind>;

/// Tables that a client may name: 0 to 253 and "all".
pub(super) fn check_table(table_id: u8) -> Handled {
    if table_id == TABLE_ALL || table_id < 254 { Ok(()) } else { Err(ErrorKind::OFPBRC_BAD_TABLE_ID) }
}

/// How long a dump waits for the workers' counters.
pub(super) const FOLD_WAIT: Duration = Duration::from_millis(3_000);

/// Bytes that wait to be sent, beyond which an answer in pieces rests: so a client that does not read holds
/// little memory. A socket's buffer seldom has room for more.
pub(super) const WAITING_MAX: usize = 64 << 10;

/// Whether the next piece of a reply must wait until the previous ones are sent.
pub(super) fn rests(conn: &OfConn) -> bool {
    conn.connection().transmit().len() > WAITING_MAX
}
