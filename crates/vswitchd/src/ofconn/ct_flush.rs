//! Which tracked connections a client names.

use datapath::conntrack::dump::Filter;
use flow::CtTuples;
use openflow::message::CtFlush;

/// The filter of the tracker for what a client says.
pub(crate) fn filter_of(flush: &CtFlush) -> Filter {
    // One connection without a zone is that of zone 0, as ovs-dpctl(8) says. What names less of it is of all
    // zones, as Open vSwitch 3.1 does.
    let one = flush.tuples.of_one();
    let zone = flush.zone.or(one.map(|_| 0));
    let tuples = one.or(Some(flush.tuples).filter(|tuples| *tuples != CtTuples::default()));
    Filter { zone, tuples, ..Filter::default() }
}
