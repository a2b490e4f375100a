//! What the OpenFlow connections of all bridges share: their numbers, what they are to be told, changes that
//! outlived theirs, and the bounds of what they may make us do and hold.

use crate::ofproto::{Asynchronous, HeldByAll, LongChange, Report};
use std::collections::VecDeque;
use std::rc::Rc;
use switch::BridgeIdx;
use tokio::sync::Semaphore;
use transport::Budget;

/// Bytes that all connections together make us hold, for what has come and what waits to be sent. Beyond that
/// the connection that holds most is cut, and first of all one that takes nothing.
const HELD_MAX: usize = 256 << 20;

/// See the module documentation.
pub(crate) struct Connections {
    last_id: u64,
    /// What those that asked for it are to be told; see [`Vswitch::deliver`](crate::Vswitch::deliver).
    pub news: Vec<(BridgeIdx, Asynchronous)>,
    /// What those that watch rules have not been told yet.
    pub reports: VecDeque<Report>,
    /// Changes of tables whose connection ended before they were done.
    pub abandoned: VecDeque<(BridgeIdx, Box<LongChange>)>,
    /// Which may work for longer than a moment: one at a time, in the order in which they ask.
    pub long_turns: Rc<Semaphore>,
    /// What they make us hold.
    pub held: Rc<Budget>,
    /// Rules that dumps have found and not written yet.
    pub held_by_dumps: HeldByAll,
}

impl Connections {
    /// None so far.
    pub fn new() -> Connections {
        Connections {
            last_id: 0,
            news: Vec::new(),
            reports: VecDeque::new(),
            abandoned: VecDeque::new(),
            long_turns: Rc::new(Semaphore::new(1)),
            held: Budget::new(HELD_MAX),
            held_by_dumps: HeldByAll::default(),
        }
    }

    /// The number of the next connection, or of the next link to a controller: none is given out twice.
    pub fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
