//! Which tracked connections a client names.

use datapath::conntrack::dump::Filter;
use flow::CtTuples;
use openflow::message::CtFlush;

/// The filter of the tracker for what a client says.
pub(crate) fn filter_of(flush: &CtFlush) -> Filter {
    let tuples = Some(flush.tuples).filter(|tuples| *tuples != CtTuples::default());
    // One connection without a zone is that of zone 0, as ovs-dpctl(8) says. What names less of it is of all
    // zones, as Open vSwitch 3.1 does.
    let zone = flush.zone.or(tuples.filter(CtTuples::whole_original).map(|_| 0));
    Filter { zone, tuples, ..Filter::default() }
}
