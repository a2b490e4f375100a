//! Statistics that are answered at once. Those of flows, which may number a million, are in `dump`; those of
//! groups and meters in `listing`.

use super::flow_mods::refusal;
use super::request::{Handled, check_table};
use super::requests::not_secondary;
use super::{groups, meters};
use crate::ofproto::{Dump, Listed, OfConn, Pending};
use crate::plane::ForwardingPlane;
use crate::state::{PortRecord, Vswitch};
use base::OfPort;
use host::program::OVS_VERSION;
use openflow::message::{
    FRAME_COUNTERS, FlowStatsRequest, PortStats, QueueConfig, QueueStats, StatsBody, StatsRequest,
    SwitchDesc, TableFeatures, TableStats,
};
use openflow::reply::write_reply;
use openflow::{ErrorKind, Version};
use std::collections::HashMap;
use switch::BridgeIdx;

/// Logs which ports a reply tells less of than there is.
fn tell_left_out(ports: &[PortStats], version: Version) {
    for port in ports {
        let left_out = port.custom_left_out(version);
        if left_out > 0 {
            tracing::debug!(
                target: "ofproto",
                "port {}: {left_out} of the device's {} counters do not fit into a message and were left out",
                port.port.0,
                port.custom.len()
            );
        }
    }
}

impl Vswitch {
    pub(super) fn stats_request(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        xid: u32,
        request: StatsRequest,
    ) -> Handled {
        let body = match request {
            StatsRequest::Flow(r) => return self.begin_dump(bridge, conn, xid, *r, false),
            StatsRequest::Aggregate(r) => return self.begin_dump(bridge, conn, xid, *r, true),
            // Open vSwitch's: controllers choose by these what they ask of a switch.
            StatsRequest::Desc => StatsBody::Desc(SwitchDesc {
                manufacturer: "Nicira, Inc.".into(),
                hardware: "Open vSwitch".into(),
                software: OVS_VERSION.into(),
                serial_number: self.bridges[&bridge].settings.dp_sn.clone().unwrap_or_else(|| "None".into()),
                datapath: self.bridges[&bridge].settings.dp_desc.clone().unwrap_or_else(|| "None".into()),
            }),
            StatsRequest::Table => StatsBody::Table(self.table_stats(bridge, conn.version())),
            StatsRequest::Port(port) => StatsBody::Port(self.port_stats(bridge, port)),
            StatsRequest::PortDesc(port) => {
                let ports = self.ports_of(bridge).filter(|p| port.is_none_or(|n| n == p.of_port));
                StatsBody::PortDesc(ports.filter_map(|p| self.plane.port_desc(p)).collect())
            }
            StatsRequest::Queue { port, queue_id } => {
                let queues = self.queues(bridge, port, queue_id)?;
                StatsBody::Queue(queues.into_iter().map(queue_stats).collect())
            }
            StatsRequest::Group(id) => return self.plane.list(bridge, conn, xid, Listed::GroupStats, id),
            StatsRequest::GroupDesc(id) => return self.plane.list(bridge, conn, xid, Listed::GroupDescs, id),
            StatsRequest::GroupFeatures => StatsBody::GroupFeatures(groups::features(conn.version())),
            StatsRequest::Meter(id) => return self.plane.list(bridge, conn, xid, Listed::MeterStats, id),
            StatsRequest::MeterConfig(id) => {
                return self.plane.list(bridge, conn, xid, Listed::MeterConfigs, id);
            }
            StatsRequest::TableDesc => StatsBody::TableDesc(self.table_descs(bridge)),
            StatsRequest::QueueDesc { port, queue_id } => {
                StatsBody::QueueDesc(self.queues(bridge, port, queue_id)?)
            }
            StatsRequest::MeterFeatures => StatsBody::MeterFeatures(meters::features()),
            StatsRequest::IpfixBridge | StatsRequest::IpfixFlow => {
                return Err(ErrorKind::NXST_NOT_CONFIGURED);
            }
            StatsRequest::TableFeatures { features, more } if features.is_empty() && !more => {
                StatsBody::TableFeatures(self.table_features(bridge, conn.version()))
            }
            StatsRequest::TableFeatures { features, .. } => {
                not_secondary(conn)?;
                self.set_table_features(bridge, conn, &features)?;
                StatsBody::TableFeatures(self.table_features(bridge, conn.version()))
            }
            StatsRequest::FlowMonitor(monitors) => return self.watch_flows(bridge, conn, xid, monitors),
        };
        let Some(codec) = conn.connection().codec() else { return Ok(()) };
        if let StatsBody::Port(ports) = &body {
            tell_left_out(ports, conn.version());
        }
        let mut bytes = Vec::new();
        write_reply(codec, xid, body, &mut bytes).map_err(|_| ErrorKind::OFPBRC_BAD_STAT)?;
        conn.connection().send_bytes(&bytes);
        Ok(())
    }

    fn begin_dump(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        xid: u32,
        mut request: FlowStatsRequest,
        aggregate: bool,
    ) -> Handled {
        let Vswitch { plane, connections, .. } = self;
        check_table(request.table_id)?;
        plane.control.place_options(bridge, &mut request.matching).map_err(|error| refusal(&error))?;
        let Some(codec) = conn.connection().codec() else { return Ok(()) };
        let (ticket, begun) = (plane.dp.request_fold(), plane.control.transactions());
        let dump = Dump::new(codec, xid, &request, aggregate, ticket, begun, &connections.held_by_dumps);
        conn.pending = Some(Pending::Dump(Box::new(dump)));
        Ok(())
    }

    fn table_stats(&self, bridge: BridgeIdx, version: Version) -> Vec<TableStats> {
        let known: HashMap<u8, _> =
            self.plane.control.table_stats(bridge).into_iter().map(|t| (t.table_id, t)).collect();
        let table = |features: TableFeatures| {
            let known = known.get(&features.table_id);
            let matched = known.map_or(0, |t| self.plane.slot(t.matched_slot).packets);
            let missed = known.map_or(0, |t| self.plane.slot(t.missed_slot).packets);
            TableStats {
                features,
                active_count: known.map_or(0, |t| t.active as u32),
                lookup_count: matched + missed,
                matched_count: matched,
            }
        };
        self.table_features(bridge, version).into_iter().map(table).collect()
    }

    /// The queues of one port or of all. Open vSwitch's dummies have one; queues of devices need QoS, which
    /// is missing.
    pub(super) fn queues(
        &self,
        bridge: BridgeIdx,
        port: Option<OfPort>,
        queue_id: Option<u32>,
    ) -> Result<Vec<QueueConfig>, ErrorKind> {
        if port.is_some_and(|port| self.port_numbered(bridge, port).is_none()) {
            return Err(ErrorKind::OFPQOFC_BAD_PORT);
        }
        let asked = self.ports_of(bridge).filter(|p| port.is_none_or(|number| number == p.of_port));
        let with_queues = asked.filter(|p| p.interface.is_dummy() && queue_id.is_none_or(|id| id == 0));
        let queue =
            |p: &PortRecord| QueueConfig { port: p.of_port, queue_id: 0, min_rate: None, max_rate: None };
        let queues: Vec<QueueConfig> = with_queues.map(queue).collect();
        if queue_id.is_some() && queues.is_empty() { Err(ErrorKind::OFPQOFC_BAD_QUEUE) } else { Ok(queues) }
    }

    /// For one port or for all; empty if the port does not exist.
    fn port_stats(&self, bridge: BridgeIdx, port: Option<OfPort>) -> Vec<PortStats> {
        match port {
            None => self.ports_of(bridge).map(|p| self.plane.stats_of(p)).collect(),
            Some(number) => {
                self.port_numbered(bridge, number).map(|p| self.plane.stats_of(p)).into_iter().collect()
            }
        }
    }
}

impl ForwardingPlane {
    fn stats_of(&self, record: &PortRecord) -> PortStats {
        let (duration_s, duration_ns) = self.since(record.created_ms);
        let mut port = PortStats { duration_s, duration_ns, ..PortStats::unknown(record.of_port) };
        for (name, value) in self.interface_statistics(record) {
            if let Some(n) = FRAME_COUNTERS.iter().position(|counter| *counter == name) {
                port.frames[n] = value;
            } else if is_of_the_device(&name, record.interface.is_dummy()) {
                port.custom.push((name, value));
            }
        }
        if let Some((rx, tx)) = self.patch_totals(record) {
            return PortStats {
                rx_packets: rx.packets,
                tx_packets: tx.packets,
                rx_bytes: rx.bytes,
                tx_bytes: tx.bytes,
                ..port
            };
        }
        let s = self.dp.port_stats(record.port_no);
        if record.interface.is_dummy() {
            // It has no device that could have errors, and Open vSwitch's does not count its drops.
            return PortStats {
                rx_packets: s.rx_packets,
                tx_packets: s.tx_packets,
                rx_bytes: s.rx_bytes,
                tx_bytes: s.tx_bytes,
                ..port
            };
        }
        PortStats {
            rx_packets: s.rx_packets,
            tx_packets: s.tx_packets,
            rx_bytes: s.rx_bytes,
            tx_bytes: s.tx_bytes,
            rx_dropped: s.rx_dropped,
            tx_dropped: s.tx_dropped,
            rx_errors: s.rx_errors,
            tx_errors: s.tx_errors,
            rx_frame_err: s.rx_frame_errors,
            rx_over_err: s.rx_over_errors,
            rx_crc_err: s.rx_crc_errors,
            collisions: s.collisions,
            ..port
        }
    }
}

/// Whether Open vSwitch reports that interface statistic as one of the device's own.
fn is_of_the_device(name: &str, is_dummy: bool) -> bool {
    const OF_ALL: [&str; 14] = [
        "collisions",
        "rx_bytes",
        "rx_crc_err",
        "rx_dropped",
        "rx_errors",
        "rx_frame_err",
        "rx_missed_errors",
        "rx_multicast_packets",
        "rx_over_err",
        "rx_packets",
        "tx_bytes",
        "tx_dropped",
        "tx_errors",
        "tx_packets",
    ];
    let is_of_the_dummy_alone = is_dummy && name.starts_with("ovs_");
    !OF_ALL.contains(&name) && !is_of_the_dummy_alone
}

/// The counters for a queue whose device has none.
fn queue_stats(queue: QueueConfig) -> QueueStats {
    QueueStats {
        port: queue.port,
        queue_id: queue.queue_id,
        tx_bytes: u64::MAX,
        tx_packets: u64::MAX,
        tx_errors: u64::MAX,
        duration_s: u32::MAX,
        duration_ns: u32::MAX,
    }
}
