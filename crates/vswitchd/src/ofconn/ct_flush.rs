//! What a client wants flushed of the connection tracker.

use datapath::conntrack::dump::{Filter, Partial, PartialTuple};
use openflow::message::{CtFlush, CtTuple};

/// The filter of the tracker for what a client says.
pub(crate) fn filter_of(flush: &CtFlush) -> Filter {
    let tuple = |t: &CtTuple| PartialTuple {
        src: t.src,
        dst: t.dst,
        src_port: t.src_port,
        dst_port: t.dst_port,
        icmp_id: t.icmp_id,
        icmp_type: t.icmp_type,
        icmp_code: t.icmp_code,
    };
    let partial = Partial {
        is_ipv6: flush.is_ipv6,
        protocol: flush.protocol,
        original: tuple(&flush.original),
        reply: tuple(&flush.reply),
    };
    let tuples = Some(partial).filter(|partial| *partial != Partial::default());
    // Who names a tuple and no zone means zone 0: ovs-dpctl(8), flush-conntrack.
    let zone = flush.zone.or(tuples.map(|_| 0));
    Filter { zone, tuples, ..Filter::default() }
}
