//! What the texts of all messages share: their style, and the words of tables, flags, reasons and actions.

use crate::message::FlowRemovedReason;
use crate::text::PortNames;
use crate::version::Version;

/// How messages are written.
#[derive(Clone, Copy, Debug)]
pub struct MessageStyle<'a> {
    /// Version that the message came in.
    pub version: Version,
    /// Names of ports.
    pub ports: &'a PortNames,
    /// The level of detail: from 1 (`-m`) on, bytes are shown in full.
    pub verbosity: u8,
}

pub(super) fn table_name(table_id: u8) -> String {
    if table_id == 0xff { "ALL".to_string() } else { table_id.to_string() }
}

/// The names of the bits that are set, then the unnamed rest as a number; `0` if none is set.
pub(super) fn bit_names(bits: u32, names: &[(u32, &str)], separator: &str) -> String {
    let mut words: Vec<String> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_string()).collect();
    let unknown = names.iter().fold(bits, |rest, (bit, _)| rest & !bit);
    if unknown != 0 || words.is_empty() {
        words.push(hexadecimal(unknown));
    }
    words.join(separator)
}

/// For flow-removed and flow monitors.
pub(super) fn removed_reason(reason: FlowRemovedReason) -> &'static str {
    match reason {
        FlowRemovedReason::IdleTimeout => "idle",
        FlowRemovedReason::HardTimeout => "hard",
        FlowRemovedReason::Delete => "delete",
        FlowRemovedReason::GroupDelete => "group_delete",
        FlowRemovedReason::MeterDelete => "meter_delete",
        FlowRemovedReason::Eviction => "eviction",
    }
}

/// A number with its prefix, which 0 goes without.
pub(super) fn hexadecimal(number: u32) -> String {
    if number == 0 { "0".to_string() } else { format!("{number:#x}") }
}

/// The names of the actions in a bitmap of wire numbers.
pub(super) fn action_names(version: Version, bits: u32) -> String {
    const OF10: [(u32, &str); 12] = [
        (0, "output"),
        (11, "enqueue"),
        (1, "set_vlan_vid"),
        (2, "set_vlan_pcp"),
        (3, "strip_vlan"),
        (4, "mod_dl_src"),
        (5, "mod_dl_dst"),
        (6, "mod_nw_src"),
        (7, "mod_nw_dst"),
        (8, "mod_nw_tos"),
        (9, "mod_tp_src"),
        (10, "mod_tp_dst"),
    ];
    const LATER: [(u32, &str); 25] = [
        (0, "output"),
        (22, "group"),
        (1, "set_vlan_vid"),
        (2, "set_vlan_pcp"),
        (25, "set_field"),
        (18, "strip_vlan"),
        (17, "push_vlan"),
        (3, "mod_dl_src"),
        (4, "mod_dl_dst"),
        (5, "mod_nw_src"),
        (6, "mod_nw_dst"),
        (7, "mod_nw_tos"),
        (8, "mod_nw_ecn"),
        (9, "mod_tp_src"),
        (10, "mod_tp_dst"),
        (23, "mod_nw_ttl"),
        (24, "dec_ttl"),
        (13, "set_mpls_label"),
        (14, "set_mpls_tc"),
        (15, "set_mpls_ttl"),
        (16, "dec_mpls_ttl"),
        (19, "push_mpls"),
        (20, "pop_mpls"),
        (21, "set_queue"),
        (28, "move"),
    ];
    let table: &[(u32, &str)] = if version == Version::V10 { &OF10 } else { &LATER };
    let names: Vec<&str> = table.iter().filter(|(bit, _)| bits >> bit & 1 != 0).map(|row| row.1).collect();
    names.join(" ")
}
