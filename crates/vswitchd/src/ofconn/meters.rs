//! Meters: changes, what other controllers are told of them, and the replies to requests about them.

use super::flow_mods;
use super::request::{Handled, Request};
use crate::ofproto::{Asynchronous, LongKind, OfConn};
use crate::plane::ForwardingPlane;
use crate::plane::SHORT_STEPS_MAX;
use crate::state::Vswitch;
use openflow::ErrorKind;
use openflow::message::{
    METER_ALL, Message, MeterCommand, MeterConfig, MeterFeatures, MeterFlags, MeterMod, MeterStats,
};
use std::sync::Arc;
use switch::control::{BANDS_MAX, Change, METERS_MAX};
use switch::{BridgeIdx, Meter};

impl Vswitch {
    pub(super) fn meter_mod(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        change: MeterMod,
    ) -> Handled {
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
        self.forward_meter_mod(bridge, request.xid, change);
        Ok(())
    }

    /// Tells the other controllers of a change that was made, those that want to know.
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
    fn meters_asked_for(&self, bridge: BridgeIdx, id: Option<u32>) -> Result<Vec<&Meter>, ErrorKind> {
        let is_all = id.is_none_or(|id| id == METER_ALL);
        let meters = self.control.meters(bridge).map(|meter| &**meter);
        let found: Vec<&Meter> = meters.filter(|m| is_all || id == Some(m.config.meter_id)).collect();
        if found.is_empty() && !is_all { Err(ErrorKind::OFPMMFC_UNKNOWN_METER) } else { Ok(found) }
    }

    pub(super) fn meter_configs(
        &self,
        bridge: BridgeIdx,
        id: Option<u32>,
    ) -> Result<Vec<MeterConfig>, ErrorKind> {
        Ok(self.meters_asked_for(bridge, id)?.into_iter().map(|meter| meter.config.clone()).collect())
    }

    pub(super) fn meter_stats(
        &self,
        bridge: BridgeIdx,
        id: Option<u32>,
    ) -> Result<Vec<MeterStats>, ErrorKind> {
        let stats = |meter: &Meter| {
            let (duration_s, duration_ns) = self.since(meter.created_ms);
            MeterStats {
                meter_id: meter.config.meter_id,
                flow_count: self.control.meter_references(bridge, meter.config.meter_id) as u32,
                counts: meter.state.counts(),
                duration_s,
                duration_ns,
                bands: meter.state.band_counts().collect(),
            }
        };
        Ok(self.meters_asked_for(bridge, id)?.into_iter().map(stats).collect())
    }
}

/// What meters can be.
pub(super) fn features() -> MeterFeatures {
    /// Of bands: OFPMBT_DROP and OFPMBT_DSCP_REMARK.
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
