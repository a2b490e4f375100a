//! Which tracked connections a client names.

use datapath::conntrack::dump::Filter;
use flow::CtTuples;
use openflow::message::CtFlush;

/// The filter of the tracker for what a client says.
pub(crate) fn filter_of(flush: &CtFlush) -> Filter {
    let tuples = Some(flush.tuples).filter(|tuples| *tuples != CtTuples::default());
    // A tuple without a zone means zone 0: ovs-dpctl(8), flush-conntrack.
    let zone = flush.zone.or(tuples.map(|_| 0));
    Filter { zone, tuples, ..Filter::default() }
}
