//! Changes of meters.
//!
//! As with groups, a modified meter is replaced, and deleting one also deletes the rules that refer to it.
//!
//! Source: OpenFlow 1.3 section 7.3.4.4.

use super::change::{Change, Made, Pace, Transaction, Walk};
use super::events::RemovedReason;
use super::numbered::NumberedControl;
use super::state::{Control, Inner};
use crate::changelog::word_table;
use crate::flow_mod::FlowModError;
use crate::meter::Meter;
use crate::topology::BridgeIdx;
use base::Version;
use base::rcu::Reader;
use datapath::meter::{BandSpec, MeterRef};
use openflow::ErrorKind;
use openflow::message::{BandType, METER_ALL, MeterCommand, MeterFlags, MeterMod};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Maximum number of meters of a bridge.
pub const METERS_MAX: u32 = 1_000_000;
/// Maximum number of bands of a meter.
pub const BANDS_MAX: u8 = 8;

impl Control {
    /// One meter-mod, as one version.
    pub fn meter_mod(
        &mut self,
        bridge: BridgeIdx,
        change: &MeterMod,
        now_ms: u64,
    ) -> Result<(), FlowModError> {
        self.enter_to_change();
        if change.command == MeterCommand::Delete {
            let all = [(bridge, Change::MeterDelete(change))];
            return self.inner.change_all(all, now_ms, &self.reader).map(drop).map_err(|(_, error)| error);
        }
        self.inner.set_meter(bridge, change, now_ms, &self.reader)
    }

    /// The meters of a bridge, ascending by number.
    pub fn meters(&self, bridge: BridgeIdx) -> impl Iterator<Item = &Arc<Meter>> {
        self.meters_in(bridge, 0..=u32::MAX)
    }

    /// The meters of a bridge with these numbers, ascending.
    pub fn meters_in(
        &self,
        bridge: BridgeIdx,
        ids: RangeInclusive<u32>,
    ) -> impl Iterator<Item = &Arc<Meter>> {
        let control = self.inner.bridge(bridge);
        control.into_iter().flat_map(move |c| c.meters.by_id.range(ids.clone()).map(|(_, meter)| meter))
    }

    /// How many rules refer to a meter.
    pub fn meter_references(&self, bridge: BridgeIdx, meter_id: u32) -> usize {
        let control = self.inner.bridge(bridge);
        control.map_or(0, |c| c.meters.references.count(meter_id))
    }
}

impl Inner {
    /// Adds or modifies a meter.
    fn set_meter(
        &mut self,
        bridge: BridgeIdx,
        change: &MeterMod,
        now_ms: u64,
        reader: &Reader,
    ) -> Result<(), FlowModError> {
        let refused = |kind| Err(FlowModError::Refused(kind));
        let Some(control) = self.bridge_mut(bridge) else { return Err(FlowModError::NoBridge(bridge)) };
        let config = &change.meter;
        if config.bands.len() > usize::from(BANDS_MAX) {
            return refused(ErrorKind::OFPMMFC_OUT_OF_BANDS);
        }
        let old = control.meters.by_id.get(&config.meter_id).cloned();
        match (change.command == MeterCommand::Add, &old) {
            (true, Some(_)) => return refused(ErrorKind::OFPMMFC_METER_EXISTS),
            (false, None) => return refused(ErrorKind::OFPMMFC_UNKNOWN_METER),
            (true, None) | (false, Some(_)) => {}
        }
        if old.is_none() && control.meters.by_id.len() >= METERS_MAX as usize {
            return refused(ErrorKind::OFPMMFC_OUT_OF_METERS);
        }
        // Open vSwitch wants a unit and a band, whatever the standard says.
        let units = MeterFlags::KBPS | MeterFlags::PKTPS;
        if !config.flags.intersects(units) {
            return refused(ErrorKind::OFPMMFC_BAD_FLAGS);
        }
        if config.bands.is_empty() {
            return refused(ErrorKind::OFPMMFC_OUT_OF_BANDS);
        }
        if config.bands.iter().any(|band| band.rate == 0) {
            return refused(ErrorKind::OFPMMFC_BAD_RATE);
        }
        if !(config.flags - (units | MeterFlags::BURST | MeterFlags::STATS)).is_empty() {
            return refused(ErrorKind::OFPMMFC_BAD_FLAGS);
        }
        let bands: Vec<BandSpec> = (config.bands.iter())
            .map(|band| BandSpec {
                rate: band.rate,
                // Also without the flag that says that there is one, as in Open vSwitch.
                burst_size: band.burst_size,
                prec_level: match band.kind {
                    BandType::Drop => None,
                    BandType::DscpRemark { prec_level } => Some(prec_level),
                },
            })
            .collect();
        let number = match &old {
            Some(old) => old.state.number,
            None => self.meter_numbers.take(),
        };
        let in_packets = config.flags.contains(MeterFlags::PKTPS);
        let state = MeterRef(Arc::new(datapath::meter::Meter::new(number, in_packets, &bands)));
        let created_ms = old.as_ref().map_or(now_ms, |old| old.created_ms);
        let new = Arc::new(Meter { bridge, config: config.clone(), created_ms, state });
        let version = self.coming();
        let control = self.bridge_mut(bridge).expect("looked up above");
        if let Some(old) = old {
            control.state.meters.end(&old, version, reader);
            control.meters.ended.push(version, old);
        }
        control.state.meters.insert(new.clone(), version, reader);
        control.meters.by_id.insert(config.meter_id, new);
        self.log.word(word_table::meters(bridge.0), u64::from(config.meter_id), version);
        self.publish();
        Ok(())
    }

    /// Deletes a meter, or all, with the rules that refer to them: first the rules, in several turns if there
    /// are many, then a meter in one.
    pub(super) fn delete_meters(
        &mut self,
        bridge: BridgeIdx,
        change: &MeterMod,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        if self.bridge_mut(bridge).is_none() {
            return Err(FlowModError::NoBridge(bridge));
        }
        transaction.batch.publishes = true;
        let (version, id) = (self.coming(), change.meter.meter_id);
        let first = if id == METER_ALL { 0 } else { id };
        let mut next = if let Walk::Numbers(next) = transaction.walk { next } else { Some(first) };
        while let Some(from) = next
            && let Some(control) = self.bridge_mut(bridge)
            && let Some((&meter_id, _)) = control.meters.by_id.range(from..).next()
            && (id == METER_ALL || id == meter_id)
        {
            while let Some(rule) = self.bridge_mut(bridge).and_then(|c| c.meters.references.first(meter_id)) {
                let steps = rule.actions.steps();
                self.remove_referring(rule, RemovedReason::MeterDelete, transaction, reader);
                if pace.is_over_after(steps) {
                    transaction.walk = Walk::Numbers(Some(meter_id));
                    return Ok(Made::InPart);
                }
            }
            self.end_meter(bridge, meter_id, version, reader);
            next = meter_id.checked_add(1).filter(|_| id == METER_ALL);
            if pace.is_over() {
                transaction.walk = Walk::Numbers(next);
                return Ok(Made::InPart);
            }
        }
        Ok(Made::Whole)
    }

    fn end_meter(&mut self, bridge: BridgeIdx, id: u32, version: Version, reader: &Reader) {
        let Some(control) = self.bridge_mut(bridge) else { return };
        let Some(meter) = control.meters.by_id.remove(&id) else { return };
        control.state.meters.end(&meter, version, reader);
        let number = meter.state.number;
        control.meters.ended.push(version, meter);
        self.meter_numbers.free.insert(number);
        self.log.word(word_table::meters(bridge.0), u64::from(id), version);
    }

    /// Releases the numbers of a removed bridge's meters.
    pub(super) fn forget_meters(&mut self, gone: &NumberedControl<Meter>) {
        self.meter_numbers.free.extend(gone.by_id.values().map(|meter| meter.state.number));
    }
}
