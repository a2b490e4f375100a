//! Columns that map numbers to rows: zones of connection tracking, queues of ports.

use super::row::{RowRef, Rows};
use datapath::conntrack::timeouts::Phase;
use ovsdb::{Atom, Uuid};
use std::collections::BTreeMap;

/// Timeouts of the zones that have a policy, of all datapaths: there is one tracker. Open vSwitch's
/// user-space tracker ignores some keys, and so does this one.
pub fn ct_timeouts_s(rows: &Rows, root: &RowRef<'_>) -> BTreeMap<u16, Vec<(Phase, u32)>> {
    let mut found = BTreeMap::new();
    let datapaths = references(root, "datapaths").into_iter();
    for datapath in datapaths.filter_map(|(_, uuid)| rows.get("Datapath", uuid)) {
        for (zone, uuid) in references(&datapath, "ct_zones") {
            let zone = zone.as_integer().and_then(|zone| u16::try_from(zone).ok());
            let row = rows.get("CT_Zone", uuid);
            let policy =
                row.and_then(|row| rows.referenced(&row, "timeout_policy", "CT_Timeout_Policy").next());
            let Some((zone, policy)) = zone.zip(policy) else { continue };
            let pairs = policy.get("timeouts").into_iter().flat_map(|d| d.as_map());
            let each = pairs.filter_map(|(key, seconds)| {
                let phase = Phase::ALL.iter().find(|phase| Some(phase.name()) == key.as_str())?;
                Some((*phase, u32::try_from(seconds.as_integer()?).ok()?))
            });
            found.insert(zone, each.collect());
        }
    }
    found
}

/// The DSCP of each of a port's queues that has one. A row of QoS without a type configures nothing.
pub fn queue_dscp(rows: &Rows, port: &RowRef<'_>) -> BTreeMap<u32, u8> {
    let Some(qos) = rows.referenced(port, "qos", "QoS").next() else { return BTreeMap::new() };
    if qos.text("type").unwrap_or_default().is_empty() {
        return BTreeMap::new();
    }
    let queues = references(&qos, "queues").into_iter();
    let marks = queues.filter_map(|(queue, uuid)| {
        let dscp = rows.get("Queue", uuid)?.integer("dscp")?;
        // The schema bounds both.
        Some((u32::try_from(queue.as_integer()?).ok()?, u8::try_from(dscp).ok()?))
    });
    marks.collect()
}

fn references(row: &RowRef<'_>, column: &str) -> Vec<(Atom, Uuid)> {
    let pairs = row.get(column).into_iter().flat_map(|d| d.as_map());
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_uuid()?))).collect()
}
