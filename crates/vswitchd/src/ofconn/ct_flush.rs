//! Which tracked connections a client names, and their removal for it.

use crate::ofproto::{OfConn, Pending};
use crate::plane::TURN;
use crate::state::Vswitch;
use datapath::conntrack::dump::Filter;
use flow::CtTuples;
use openflow::message::CtFlush;
use std::time::Instant;

/// The filter of the tracker for what a client says.
pub(crate) fn filter_of(flush: &CtFlush) -> Filter {
    // One connection without a zone is that of zone 0, as ovs-dpctl(8) says. What names less of it is of all
    // zones, as Open vSwitch 3.1 does.
    let one = flush.tuples.of_one();
    let zone = flush.zone.or(one.map(|_| 0));
    let tuples = one.or(Some(flush.tuples).filter(|tuples| *tuples != CtTuples::default()));
    Filter { zone, tuples, ..Filter::default() }
}

impl Vswitch {
    /// Begins to remove the connections that a filter selects. The request's number: few connections are gone
    /// at once, and it is done.
    pub(crate) fn flush_connections(&mut self, filter: Filter) -> u64 {
        let number = self.ct_flushes.begin(filter);
        if self.ct_flushes.go_on(&self.plane, Instant::now() + TURN) {
            self.urgent.notify_one();
        }
        number
    }

    /// Removes connections for a client, whose next requests wait until they are gone.
    pub(super) fn ct_flush(&mut self, conn: &mut OfConn, filter: Filter) {
        let number = self.flush_connections(filter);
        if !self.ct_flushes.is_done(number) {
            conn.pending = Some(Pending::CtFlush(number));
        }
    }
}
