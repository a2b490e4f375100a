//! Meters: changes, notifying other controllers, and counters.

use super::flow_mods;
use super::request::{Handled, Request};
use crate::ofproto::{Asynchronous, LongKind, OfConn};
use crate::plane::ForwardingPlane;
use crate::plane::SHORT_STEPS_MAX;
use crate::state::Vswitch;
use openflow::message::{Message, MeterCommand, MeterFeatures, MeterFlags, MeterMod, MeterStats};
use std::sync::Arc;
use switch::control::{BANDS_MAX, Change, METERS_MAX};
use switch::{BridgeIdx, Meter};

impl Vswitch {
    pub(super) fn meter_mod(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        mut change: MeterMod,
    ) -> Handled {
        // Without a size of bursts it is the rate, and shown so.
        for band in change.meter.bands.iter_mut().filter(|band| band.burst_size == 0) {
            band.burst_size = band.rate;
        }
        if change.command == MeterCommand::Delete {
            let steps = self.plane.control.steps_of(bridge, Change::MeterDelete(&change));
            if steps > SHORT_STEPS_MAX {
                let what = LongKind::MeterDelete(Arc::new(change));
                return self.change_table(bridge, conn, request, what, steps);
            }
        }
        let now_ms = self.plane.now_ms();
        self.plane.control.meter_mod(bridge, &change, now_ms).map_err(|error| flow_mods::refusal(&error))?;
        self.report_rules(Some((conn, request.xid)));
        self.tell_vacancy(bridge);
        self.forward_meter_mod(bridge, request.xid, change);
        Ok(())
    }

    /// Notifies other controllers, if they asked for that, of a change.
    pub(super) fn forward_meter_mod(&mut self, bridge: BridgeIdx, xid: u32, change: MeterMod) {
        let told = Asynchronous::MeterMod(xid, Box::new(Message::MeterMod(change)));
        if let Some(record) = self.bridges.get_mut(&bridge) {
            // Earlier versions have no meters.
            let others = record.conns.values_mut().filter(|conn| conn.version() >= openflow::Version::V13);
            for conn in others {
                conn.tell(&told);
            }
        }
    }
}

impl ForwardingPlane {
    pub(super) fn meter_stats(&self, meter: &Meter) -> MeterStats {
        let (duration_s, duration_ns) = self.since(meter.created_ms);
        MeterStats {
            meter_id: meter.config.meter_id,
            flow_count: self.control.meter_references(meter.bridge, meter.config.meter_id) as u32,
            counts: meter.state.counts(),
            duration_s,
            duration_ns,
            bands: meter.state.band_counts().collect(),
        }
    }
}

/// The supported meter features.
pub(super) fn features() -> MeterFeatures {
    /// Bits for OFPMBT_DROP and OFPMBT_DSCP_REMARK.
    const BAND_TYPES: u32 = 1 << 1 | 1 << 2;
    let flags = MeterFlags::KBPS | MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS;
    MeterFeatures {
        max_meters: METERS_MAX,
        band_types: BAND_TYPES,
        capabilities: flags.bits().into(),
        max_bands: BANDS_MAX,
        max_color: 0,
    }
}
