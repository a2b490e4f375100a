//! Numbers of the tables that are looked up by one exact word. A visit to such a table has no rewrites, so it
//! stores the word itself for ports, groups and settings, and the word's hash for MAC addresses
//! ([`visit`](visit)).

use datapath::Visit;

/// Set in the numbers of all word tables.
pub const BIT: u32 = 1 << 31;
const MAC: u32 = BIT | 1 << 30;
const GROUP: u32 = BIT | 1 << 29;
const METER: u32 = BIT | 1 << 28;

/// The ports and settings of a bridge, looked up by [`port`], [`FLOOD`], [`SETTINGS`], [`FROZEN`] or
/// [`REFUSED`].
pub fn ports(bridge: u32) -> u32 {
    BIT | bridge
}

/// The groups of a bridge, looked up by number.
pub fn groups(bridge: u32) -> u32 {
    GROUP | bridge
}

/// The meters of a bridge, looked up by number.
pub fn meters(bridge: u32) -> u32 {
    METER | bridge
}

/// The datapath's ports, looked up by number.
pub const DP_PORTS: u32 = BIT | 0x3fff_ffff;

/// The MAC table of a bridge, looked up by [`mac`].
pub fn macs(bridge: u32) -> u32 {
    MAC | bridge
}

/// A visit to a word table. Words of ports and groups have 32 bits, and so have the hashes of addresses.
pub fn visit(table: u32, word: u64) -> Visit {
    Visit { table, rewrites_start: word as u16, rewrites_len: (word >> 16) as u16 }
}

/// The word in such a visit.
pub fn word_of(visit: &Visit) -> u64 {
    u64::from(visit.rewrites_len) << 16 | u64::from(visit.rewrites_start)
}

/// The bridge to whose addresses a table belongs; `None` for other word tables.
pub(crate) fn mac_bridge(table: u32) -> Option<u32> {
    (table & MAC == MAC).then_some(table & !MAC)
}

/// A port by its OpenFlow number.
pub fn port(of_port: u16) -> u64 {
    u64::from(of_port)
}

/// The set of ports to which packets are flooded.
pub const FLOOD: u64 = 1 << 16;
/// The configuration of the bridge as a whole.
pub const SETTINGS: u64 = 2 << 16;
/// The generation of the bridge's frozen states.
pub const FROZEN: u64 = 3 << 16;
/// The rules that could not be learned lately.
pub const REFUSED: u64 = 4 << 16;

/// A MAC address in a VLAN.
pub fn mac(vlan: u16, address: u64) -> u64 {
    u64::from(vlan) << 48 | address
}
