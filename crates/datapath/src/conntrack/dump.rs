//! What an operator can ask the tracker to do: list its connections one after the other, and remove them.
//!
//! A dump looks at some entries at a time, by number, so that its caller can do other work while it prints a
//! million of them. Connections that begin or end meanwhile may or may not appear.

use super::entry::Traits;
use super::tcp::Peers;
use super::tuple::{TCP, Tuple};
use super::{Helper, SHARDS, Tracker};
use flow::{CtTuple, CtTuples};
use std::ops::Range;

/// Equal shares of the index, whose use [`Tracker::occupancy`] counts.
pub const SHARES: usize = SHARDS;

/// A connection at one moment.
#[derive(Clone, Debug)]
pub struct Connection {
    pub original: Tuple,
    /// The tuple of what the other end sends.
    pub reply: Tuple,
    /// Original tuple of its parent, the connection that announced it.
    pub parent: Option<Tuple>,
    pub zone: u16,
    pub mark: u32,
    pub label: u128,
    pub timeout_s: u64,
    pub peers: Option<Peers>,
    pub helper: Option<Helper>,
}

/// Selects connections; a part that is not given matches any.
#[derive(Clone, Copy, Default, Debug)]
pub struct Filter {
    pub zone: Option<u16>,
    /// Value and mask.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    pub tuples: Option<CtTuples>,
}

/// Whether the filter selects a connection.
fn matches(meant: &CtTuples, c: &Connection) -> bool {
    meant.is_ipv6.is_none_or(|is_ipv6| is_ipv6 == c.original.is_ipv6)
        && meant.protocol.is_none_or(|protocol| protocol == c.original.protocol)
        && one_matches(&meant.original, &c.original)
        && one_matches(&meant.reply, &c.reply)
}

fn one_matches(meant: &CtTuple, t: &Tuple) -> bool {
    let [kind, code] = t.dst_port.to_be_bytes();
    let (is_icmp, ports) = (t.is_icmp(), (t.src_port, t.dst_port));
    meant.src.is_none_or(|src| src == t.src)
        && meant.dst.is_none_or(|dst| dst == t.dst)
        && meant.src_port.is_none_or(|port| !is_icmp && port == ports.0)
        && meant.dst_port.is_none_or(|port| !is_icmp && port == ports.1)
        && meant.icmp_id.is_none_or(|id| is_icmp && id == t.src_port)
        && meant.icmp_type.is_none_or(|wanted| is_icmp && wanted == kind)
        && meant.icmp_code.is_none_or(|wanted| is_icmp && wanted == code)
}

impl Filter {
    fn matches(&self, c: &Connection) -> bool {
        self.zone.is_none_or(|zone| zone == c.zone)
            && self.mark.is_none_or(|(value, mask)| (c.mark ^ value) & mask == 0)
            && self.label.is_none_or(|(value, mask)| (c.label ^ value) & mask == 0)
            && self.tuples.is_none_or(|tuples| matches(&tuples, c))
    }

    /// Tuple and zone, if they name a single connection.
    fn one(&self) -> Option<(Tuple, u16)> {
        let one = self.tuples?.of_one()?;
        let CtTuple { src, dst, src_port, dst_port, icmp_id, icmp_type, icmp_code } = one.original;
        let ports = match one.is_icmp() {
            true => (icmp_id?, u16::from_be_bytes([icmp_type?, icmp_code?])),
            false => (src_port?, dst_port?),
        };
        let tuple = Tuple {
            src: src?,
            dst: dst?,
            src_port: ports.0,
            dst_port: ports.1,
            protocol: one.protocol?,
            is_ipv6: one.is_ipv6?,
        };
        Some((tuple, self.zone?))
    }
}

impl Tracker {
    /// Connections in entries from number `at` on, of which it looks at no more than `count`. Sets `at` to
    /// where to continue, `None` at the end.
    pub fn connections(
        &self,
        at: &mut Option<u32>,
        count: u32,
        filter: &Filter,
        now_ms: u64,
    ) -> Vec<Connection> {
        let entries = self.next_entries(at, count);
        entries.filter_map(|idx| self.connection(idx, now_ms)).filter(|c| filter.matches(c)).collect()
    }

    /// At most `count` entries from number `at` on, which moves behind them.
    fn next_entries(&self, at: &mut Option<u32>, count: u32) -> Range<u32> {
        let taken = self.taken();
        let start = at.unwrap_or(0).max(taken.start);
        let end = start.saturating_add(count).min(taken.end);
        *at = (end < taken.end).then_some(end);
        start..end
    }

    /// All connections that the filter selects.
    pub fn all_connections(&self, filter: &Filter, now_ms: u64) -> Vec<Connection> {
        self.connections(&mut Some(0), u32::MAX, filter, now_ms)
    }

    fn connection(&self, idx: u32, now_ms: u64) -> Option<Connection> {
        let entry = self.entry(idx);
        let generation = entry.generation()?;
        let (original, reply, zone) = entry.tuples();
        let (traits, (annex, _)) = (entry.traits(), entry.annex());
        let helper = match traits {
            t if t.has(Traits::FTP) => Some(Helper::Ftp),
            t if t.has(Traits::TFTP) => Some(Helper::Tftp),
            _ => None,
        };
        let is_related = traits.has(Traits::RELATED) && annex != 0;
        let expiry_ms = entry.expiry_ms();
        let connection = Connection {
            original,
            reply,
            parent: is_related.then(|| self.entry(annex).forward()),
            zone,
            mark: entry.mark(),
            label: entry.label(),
            timeout_s: expiry_ms.saturating_sub(now_ms) / 1000,
            peers: (original.protocol == TCP).then(|| entry.peers()),
            helper,
        };
        (entry.is_still(generation) && expiry_ms > now_ms).then_some(connection)
    }

    /// Ends the connections that the filter selects, and returns how many.
    pub fn flush(&self, filter: &Filter, now_ms: u64) -> usize {
        self.flush_some(&mut Some(0), u32::MAX, filter, now_ms)
    }

    /// The same for some entries at a time, as [`Self::connections`] does it. A filter that names a single
    /// connection takes one call.
    pub fn flush_some(&self, at: &mut Option<u32>, count: u32, filter: &Filter, now_ms: u64) -> usize {
        if let Some((tuple, zone)) = filter.one() {
            *at = None;
            return self.flush_named(&tuple, zone, filter, now_ms).into();
        }
        let entries = self.next_entries(at, count);
        entries.filter(|idx| self.flush_one(*idx, filter, now_ms)).count()
    }

    fn flush_one(&self, idx: u32, filter: &Filter, now_ms: u64) -> bool {
        let Some(generation) = self.entry(idx).generation() else { return false };
        let is_meant = self.connection(idx, now_ms).is_some_and(|c| filter.matches(&c));
        is_meant && self.end(idx, generation)
    }

    /// Ends the connection with this tuple if mark and label are the filter's. Either direction names it; of
    /// a translated connection only the original one, as in Open vSwitch.
    pub(super) fn flush_named(&self, tuple: &Tuple, zone: u16, filter: &Filter, now_ms: u64) -> bool {
        let Some(found) = self.find(tuple, zone, now_ms) else { return false };
        let rest = Filter { tuples: None, ..*filter };
        let is_meant =
            |c: Connection| rest.matches(&c) && (!found.is_reply || c.reply == c.original.reversed());
        self.connection(found.entry, now_ms).is_some_and(is_meant) && self.end(found.entry, found.generation)
    }

    /// How many places are in use in one of the [`SHARES`] of the index.
    pub fn occupancy(&self, share: usize) -> u64 {
        self.index.occupancy(&self.entries, share, SHARES)
    }
}
