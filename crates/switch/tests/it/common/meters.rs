//! Meters with a clock: buckets in whole numbers, by the standard's words, which share nothing with the
//! datapath's. OpenFlow 1.3 section 5.7; RFC 2597 for drop precedences.

use super::chance::Chance;
use super::model::ModelRule;
use super::packets::{draw_near, is_possible, random_packet};
use super::rules::METERS;
use super::world::World;
use datapath::meter::{Counts, MeterRef};
use flow::{Action, Key};
use openflow::message::{Band, BandType, MeterCommand, MeterConfig, MeterFlags, MeterMod};
use std::collections::BTreeMap;

/// What a world's meters let through.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rates {
    /// Less than comes at times.
    Tight,
    /// Whatever comes: for a comparison of runs in which packets come to a meter in other orders, since how
    /// many it drops depends on that.
    Ample,
}

/// The meters of all bridges at one time.
#[derive(Clone, Default, Debug)]
pub struct Clocked {
    pub now_ns: u64,
    meters: BTreeMap<(usize, u32), ModelMeter>,
}

#[derive(Clone, Debug)]
struct ModelMeter {
    /// Whose state it models: another one after a modification, which begins anew.
    of: MeterRef,
    config: MeterConfig,
    counts: Counts,
    bands: Vec<ModelBand>,
}

/// Tokens are billionths of a packet, or millionths of a bit.
#[derive(Clone, Debug)]
struct ModelBand {
    tokens: u128,
    size: u128,
    filled_ns: u64,
    counts: Counts,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    Pass,
    Drop,
    /// The new type of service.
    Tos(u8),
}

impl Clocked {
    /// Takes note of a bridge's meters: those that are new, or were changed, begin with full buckets.
    pub fn renew<'a>(&mut self, bridge: usize, all: impl Iterator<Item = (&'a MeterConfig, &'a MeterRef)>) {
        let mut old = std::mem::take(&mut self.meters);
        self.meters = old.clone().into_iter().filter(|((of, _), _)| *of != bridge).collect();
        for (config, state) in all {
            let at = (bridge, config.meter_id);
            let known = old.remove(&at).filter(|known| known.of == *state);
            let meter = known.unwrap_or_else(|| ModelMeter::new(config, state, self.now_ns));
            self.meters.insert(at, meter);
        }
    }

    /// A packet of so many bytes comes to a meter.
    pub fn judge(&mut self, bridge: usize, meter_id: u32, tos: u8, bytes: u16) -> Verdict {
        let now_ns = self.now_ns;
        let Some(meter) = self.meters.get_mut(&(bridge, meter_id)) else { return Verdict::Pass };
        meter.judge(now_ns, tos, bytes)
    }

    /// What each meter has counted, and each of its bands, beside what the switch's has.
    pub fn check_counts(&self) -> Result<(), String> {
        for (at, meter) in &self.meters {
            let bands: Vec<Counts> = meter.bands.iter().map(|band| band.counts).collect();
            let found: Vec<Counts> = meter.of.band_counts().collect();
            if (meter.of.counts(), &found) != (meter.counts, &bands) {
                return Err(format!("{at:?} counted {:?} {found:?}, not {meter:?}", meter.of.counts()));
            }
        }
        Ok(())
    }
}

impl ModelMeter {
    fn new(config: &MeterConfig, of: &MeterRef, now_ns: u64) -> ModelMeter {
        // Kilobits in millionths of a bit are as many as packets in billionths.
        let unit: u128 = 1_000_000_000;
        let bands = config.bands.iter().map(|band| {
            let burst = if band.burst_size > 0 { band.burst_size } else { band.rate };
            let size = u128::from(burst) * unit;
            ModelBand { tokens: size, size, filled_ns: now_ns, counts: (0, 0) }
        });
        ModelMeter { of: of.clone(), config: config.clone(), counts: (0, 0), bands: bands.collect() }
    }

    fn judge(&mut self, now_ns: u64, tos: u8, bytes: u16) -> Verdict {
        let count = |counts: &mut Counts| *counts = (counts.0 + 1, counts.1 + u64::from(bytes));
        count(&mut self.counts);
        let cost = match self.config.flags.contains(MeterFlags::PKTPS) {
            true => 1_000_000_000,
            false => u128::from(bytes) * 8 * 1_000_000,
        };
        let mut decides: Option<usize> = None;
        for (n, band) in self.bands.iter_mut().enumerate() {
            let rate = self.config.bands[n].rate;
            let came_in = u128::from(rate) * u128::from(now_ns - band.filled_ns);
            band.tokens = (band.tokens + came_in).min(band.size);
            band.filled_ns = now_ns;
            if band.tokens >= cost {
                band.tokens -= cost;
            } else if decides.is_none_or(|other| rate > self.config.bands[other].rate) {
                decides = Some(n);
            }
        }
        let Some(n) = decides else { return Verdict::Pass };
        count(&mut self.bands[n].counts);
        match self.config.bands[n].kind {
            BandType::Drop => Verdict::Drop,
            BandType::DscpRemark { prec_level } => Verdict::Tos(remarked(tos, prec_level)),
        }
    }
}

impl World {
    /// A meter is added, changed or deleted, with the rules that refer to it.
    pub(super) fn change_meters(&mut self, chance: &mut Chance) {
        let bridge = usize::from(chance.one_in(3));
        let (idx, meter_id) = (self.bridges[bridge], chance.below(METERS) as u32 + 1);
        let model = &mut self.model.bridges[bridge];
        let command = match model.meters.contains_key(&meter_id) {
            false => MeterCommand::Add,
            true if chance.one_in(4) => MeterCommand::Delete,
            true => MeterCommand::Modify,
        };
        let meter = random_meter(chance, meter_id, self.rates);
        self.control.meter_mod(idx, &MeterMod { command, meter }, self.now_ms).unwrap();
        model.meters = self.control.meters(idx).map(|m| (m.config.meter_id, m.state.clone())).collect();
        let all = self.control.meters(idx).map(|m| (&m.config, &m.state));
        self.clocked.renew(bridge, all);
        let refers = |r: &ModelRule| r.actions.contains(&Action::Meter(meter_id));
        let tables = &mut model.tables;
        self.changed.extend(tables.values().flatten().find(|r| refers(r)).map(|r| r.matching.clone()));
        if command == MeterCommand::Delete {
            tables.values_mut().for_each(|rules| rules.retain(|r| !refers(r)));
        }
    }

    /// A packet that is likely metered, and some time later.
    pub fn metered_packet(&mut self, chance: &mut Chance) -> Key {
        self.clocked.now_ns += *chance.pick(&[0, 0, 1, 7, 50, 300]) * 1_000_000;
        let mut key = self.packet(chance);
        let rules = self.model.bridges.iter().enumerate().flat_map(|(n, b)| Some((n, b.tables.get(&0)?)));
        let rules = rules.flat_map(|(n, rules)| rules.iter().map(move |rule| (n, rule)));
        let metered: Vec<(usize, &ModelRule)> =
            rules.filter(|(_, rule)| rule.actions.iter().any(|a| matches!(a, Action::Meter(_)))).collect();
        if !metered.is_empty() && !chance.one_in(4) {
            let (bridge, rule) = *chance.pick(&metered);
            key = random_packet(chance, bridge);
            draw_near(&mut key, &rule.matching);
            if !is_possible(&key) {
                return self.metered_packet(chance);
            }
            self.number_port(&mut key);
        }
        key
    }
}

/// Tight rates are such that some packets, milliseconds apart, exceed.
fn random_meter(chance: &mut Chance, meter_id: u32, rates: Rates) -> MeterConfig {
    if rates == Rates::Ample {
        let rate = 1_000_000 + chance.below(100) as u32;
        let band = Band { kind: BandType::Drop, rate, burst_size: 1_000_000 };
        return MeterConfig { meter_id, flags: MeterFlags::PKTPS, bands: vec![band] };
    }
    let in_packets = chance.one_in(2);
    let band = |chance: &mut Chance| Band {
        kind: match chance.below(2) {
            0 => BandType::Drop,
            _ => BandType::DscpRemark { prec_level: chance.below(3) as u8 },
        },
        rate: *chance.pick(if in_packets { &[1, 3, 7, 40] } else { &[1, 2, 9, 50] }),
        burst_size: *chance.pick(&[0, 1, 2, 5]),
    };
    let mut bands: Vec<Band> = (0..chance.below(3) + 1).map(|_| band(chance)).collect();
    // Of two bands with one rate it is open which decides.
    bands.sort_by_key(|band| band.rate);
    bands.dedup_by_key(|band| band.rate);
    let mut flags = if in_packets { MeterFlags::PKTPS } else { MeterFlags::KBPS };
    if chance.one_in(2) {
        flags |= MeterFlags::BURST;
    }
    MeterConfig { meter_id, flags, bands }
}

/// AF11 to AF43 are 10, 12, 14, 18, … 38: a class of four and a precedence of three.
fn remarked(tos: u8, by: u8) -> u8 {
    let dscp = tos >> 2;
    for class in 1..=4u8 {
        for precedence in 1..=3u8 {
            if dscp == 8 * class + 2 * precedence {
                let raised = u32::from(precedence) + u32::from(by);
                return (8 * class + 2 * raised.min(3) as u8) << 2 | tos & 3;
            }
        }
    }
    tos
}
