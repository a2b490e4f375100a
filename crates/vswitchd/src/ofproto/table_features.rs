//! The capabilities of tables, for OpenFlow 1.3's table features and the earlier table statistics. All tables
//! are alike except for the tables in which they may continue.
//!
//! A controller may send features in the request: the names in it are used.

use flow::Mf;
use flow::mf::{Maskable, NxmHeader};
use openflow::Version;
use openflow::message::{TableFeatures, TableInstructionFeatures};

/// Number of tables of a bridge.
pub(crate) const TABLES: u8 = 254;
/// The reported maximum number of rules in a table.
pub(crate) const MAX_ENTRIES: u32 = 1_000_000;
/// OFPIT_*: goto-table, write-metadata, write-, apply- and clear-actions, meter.
const INSTRUCTIONS: u32 = 0b111_1110;
const GOTO_TABLE: u32 = 1 << 1;
const METER: u32 = 1 << 6;
/// OFPAT_*: output, MPLS TTL (set, decrement), push and pop VLAN and MPLS, set-queue, group,
/// IP TTL (set, decrement), set-field.
const ACTIONS: u32 = 1 | 0xff << 15 | 1 << 23 | 1 << 24 | 1 << 25;
/// The actions of OpenFlow 1.1, in which each field is set by an action of its own.
const ACTIONS11: u32 = 0x01ff_e7ff;
/// The features of all tables.
pub(crate) fn all(version: Version) -> Vec<TableFeatures> {
    // Open vSwitch 3.1's tools could not parse fields that they do not know.
    let fields: Vec<Mf> = Mf::all().filter(|mf| *mf != Mf::Ipv6ExtHdr).collect();
    // Earlier versions have no headers, or too few.
    let minor = version.max(Version::V13).minor();
    let exact = |mf: &Mf| header(*mf, minor, false);
    let matchable: Vec<u64> = fields.iter().filter_map(|mf| header(*mf, minor, is_maskable(*mf))).collect();
    let writable: Vec<u64> = fields.iter().filter(|mf| mf.row().writable).filter_map(exact).collect();
    let wildcards: Vec<u64> = fields.iter().filter_map(exact).collect();
    let actions = if version == Version::V11 { ACTIONS11 } else { ACTIONS };
    // OpenFlow 1.5 has an action for it.
    let instructions = if version >= Version::V15 { INSTRUCTIONS & !METER } else { INSTRUCTIONS };
    let flows = |table_id: u8| TableInstructionFeatures {
        // The last table leads nowhere.
        instructions: if table_id + 1 < TABLES { instructions } else { instructions & !GOTO_TABLE },
        next_tables: (table_id + 1..TABLES).collect(),
        write_actions: actions,
        apply_actions: actions,
        write_set_fields: writable.clone(),
        apply_set_fields: writable.clone(),
    };
    let table = |table_id: u8| TableFeatures {
        table_id,
        name: String::new(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        command: 0,
        // Tables evict and tell of vacancy; as Open vSwitch's, they do not say so here.
        config: 0,
        max_entries: MAX_ENTRIES,
        nonmiss: flows(table_id),
        // The same, which Open vSwitch says all the same: controllers look for it.
        miss: Some(flows(table_id)),
        matchable: matchable.clone(),
        wildcards: wildcards.clone(),
    };
    (0..TABLES).map(table).collect()
}

fn is_maskable(mf: Mf) -> bool {
    mf.row().maskable == Maskable::Arbitrary
}

fn header(mf: Mf, minor: u8, has_mask: bool) -> Option<u64> {
    let bytes = usize::from(mf.row().bytes);
    Some(NxmHeader::new(mf.wire(minor)?, has_mask, if has_mask { 2 * bytes } else { bytes }).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::Codec;
    use openflow::message::StatsBody;
    use openflow::reply::write_reply;

    #[test]
    fn every_table_fits_into_the_reply_and_the_last_leads_nowhere() {
        let all = all(Version::V13);
        assert_eq!(all.len(), 254);
        assert!(all[253].nonmiss.next_tables.is_empty());
        assert!(all.iter().all(|table| table.miss.as_ref() == Some(&table.nonmiss)));
        assert!(all[0].matchable.len() > 60, "{}", all[0].matchable.len());
        let mut bytes = Vec::new();
        write_reply(Codec::new(Version::V13), 1, StatsBody::TableFeatures(all), &mut bytes).unwrap();
        assert!(bytes.len() < 1_300_000, "{}", bytes.len());
    }
}
