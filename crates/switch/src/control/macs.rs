//! The control side of MAC learning: ages, limits, and the output of `fdb/show`.
//!
//! A static address, which the operator gave to a port (`fdb/add`), stays there: it does not age, is not
//! learned on another port, and is not evicted. It goes when its port goes.
//!
//! In a full table a new address takes the place of one behind the port that has the most. Which of these was
//! used longest ago is known only from counters, so the first few candidates are looked at. Where a setting
//! makes a table smaller, or an operator adds an address, they give way without a look.
//!
//! A million addresses may have to go at once: with their port, or because a setting changed. They are
//! forgotten in turns ([`Control::collect`]), the first of which belongs to the change itself. An address
//! whose port is gone leads nowhere meanwhile, so packets to it are flooded.

use super::ended::RETIRED_AT_ONCE;
use super::mac_records::{Doomed, FdbStats, Record, Which};
use super::state::{Control, Inner};
use crate::changelog::word_table;
use crate::slots::{SlotReader, unused};
use crate::topology::{BridgeConfig, BridgeIdx};
use base::PortNo;
use base::rcu::Reader;
use std::cmp::Reverse;

/// Maximum number of addresses looked at before one gives way.
const LOOKS_MAX: usize = 16;

/// An address, as `fdb/show` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdbEntry {
    /// The port.
    pub port: PortNo,
    /// VLAN.
    pub vlan: u16,
    /// The address.
    pub mac: u64,
    /// Milliseconds since it was last seen. `None` for a static address.
    pub age_ms: Option<u64>,
}

/// What `fdb/add` replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replaced {
    /// The address's previous port.
    pub port: PortNo,
    /// Whether it was static there; otherwise it was learned.
    pub is_static: bool,
}

impl Control {
    /// The addresses of a bridge: the static ones first, then the others, most recently seen last.
    pub fn fdb_show(&self, bridge: BridgeIdx, now_ms: u64, slots: &dyn SlotReader) -> Vec<FdbEntry> {
        let mut all = self.fdb_some(bridge, &mut Some(0), usize::MAX, now_ms, slots);
        all.sort_by_key(FdbEntry::rank);
        all
    }

    /// The addresses of a bridge in `max` places of its table, from `at` on, which becomes the place to
    /// continue at; `None` at the end. In no particular order.
    pub fn fdb_some(
        &self,
        bridge: BridgeIdx,
        at: &mut Option<usize>,
        max: usize,
        now_ms: u64,
        slots: &dyn SlotReader,
    ) -> Vec<FdbEntry> {
        let control = self.inner.bridge(bridge);
        let (Some(from), Some(control)) = (at.take(), control) else { return Vec::new() };
        let records = &control.macs.records;
        let until = from.saturating_add(max);
        *at = (until < records.places()).then_some(until);
        let entries = records.within(from..until.min(records.places())).map(|r| FdbEntry {
            port: r.port,
            vlan: (r.word >> 48) as u16,
            mac: r.word & 0xffff_ffff_ffff,
            age_ms: (!r.is_static)
                .then(|| now_ms.saturating_sub(slots.read(r.slot).last_used_ms.max(r.learned_ms))),
        });
        entries.collect()
    }

    /// Forgets the learned addresses of a bridge, in turns if they are many.
    pub fn fdb_flush(&mut self, bridge: BridgeIdx) {
        self.enter();
        if self.inner.flush_learned_macs(bridge, &self.reader) {
            self.inner.publish();
        }
    }

    /// Whether addresses of a bridge are still being forgotten, after a flush or a change of its ports or
    /// settings.
    pub fn is_forgetting(&self, bridge: BridgeIdx) -> bool {
        self.inner.doomed.iter().any(|doomed| doomed.bridge == bridge)
    }

    /// Whether addresses behind a removed port are still being forgotten: another port with its number would
    /// get their packets.
    pub fn is_remembered(&self, port: PortNo) -> bool {
        self.inner.doomed.iter().any(|doomed| doomed.which == Which::BehindGone(port))
    }

    /// A turn of forgetting. Returns whether there was anything to do.
    pub(super) fn go_on_forgetting(&mut self) -> bool {
        if self.inner.doomed.is_empty() {
            return false;
        }
        self.enter();
        if self.inner.forget_some(&self.reader) {
            self.inner.publish();
        }
        true
    }

    /// Adds a static address. Returns its previous port, unless it was already static on this one.
    ///
    /// # Errors
    /// `NoSuchPort` if the port does not belong to the bridge.
    pub fn fdb_add(
        &mut self,
        bridge: BridgeIdx,
        vlan: u16,
        mac: u64,
        port: PortNo,
        now_ms: u64,
    ) -> Result<Option<Replaced>, NoSuchPort> {
        self.enter();
        if self.inner.port_bridge(port) != Some(bridge) {
            return Err(NoSuchPort);
        }
        let word = word_table::mac(vlan, mac);
        let control = self.inner.bridge_mut(bridge).ok_or(NoSuchPort)?;
        let before =
            control.macs.records.get(word).map(|r| Replaced { port: r.port, is_static: r.is_static });
        if before == Some(Replaced { port, is_static: true }) {
            return Ok(None);
        }
        self.inner.forget(bridge, word, &self.reader);
        self.inner.make_room(bridge, now_ms, &unused, &self.reader);
        self.inner.remember(bridge, word, port, now_ms, true, &self.reader);
        self.inner.publish();
        Ok(before)
    }

    /// Removes a static address added by [`Self::fdb_add`]. False if there is none.
    pub fn fdb_del(&mut self, bridge: BridgeIdx, vlan: u16, mac: u64) -> bool {
        self.enter();
        let word = word_table::mac(vlan, mac);
        let Some(control) = self.inner.bridge_mut(bridge) else { return false };
        let is_there = control.macs.records.get(word).is_some_and(|r| r.is_static);
        if is_there {
            self.inner.forget(bridge, word, &self.reader);
            self.inner.publish();
        }
        is_there
    }

    /// Counts of a bridge.
    pub fn fdb_stats(&self, bridge: BridgeIdx) -> FdbStats {
        let Some(control) = self.inner.bridge(bridge) else {
            return FdbStats::default();
        };
        let statics = control.macs.records.statics().len();
        FdbStats { current: control.macs.records.len(), statics, ..control.macs.stats }
    }

    /// Resets the totals to 0.
    pub fn fdb_clear_stats(&mut self, bridge: BridgeIdx) {
        if let Some(control) = self.inner.bridge_mut(bridge) {
            control.macs.stats = FdbStats::default();
        }
    }
}

impl FdbEntry {
    /// Its place in `fdb/show`.
    pub fn rank(&self) -> (Reverse<u64>, u16, u64) {
        (Reverse(self.age_ms.unwrap_or(u64::MAX)), self.vlan, self.mac)
    }
}

/// The port does not belong to the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchPort;

impl Inner {
    /// Returns whether it changed anything.
    pub(super) fn learn(
        &mut self,
        bridge: BridgeIdx,
        word: u64,
        port: PortNo,
        now_ms: u64,
        slots: &dyn SlotReader,
        reader: &Reader,
    ) -> bool {
        // The port may have been removed while the effect was in transit.
        if self.port_bridge(port) != Some(bridge) {
            return false;
        }
        let Some(control) = self.bridge_mut(bridge) else { return false };
        match control.macs.records.get(word) {
            Some(known) if known.port == port => return false,
            Some(known) if known.is_static => {
                control.macs.stats.moves_refused += 1;
                return false;
            }
            Some(_) => {
                control.macs.stats.moved += 1;
                self.forget(bridge, word, reader);
            }
            None => {
                if !self.make_room(bridge, now_ms, slots, reader) {
                    return false;
                }
            }
        }
        let control = self.bridge_mut(bridge).expect("found above");
        control.macs.stats.learned += 1;
        self.remember(bridge, word, port, now_ms, false, reader);
        true
    }

    /// Ensures that the table has room: two addresses give way for one while it has more than it may have.
    /// False if static addresses take up all of it.
    fn make_room(&mut self, bridge: BridgeIdx, now_ms: u64, slots: &dyn SlotReader, reader: &Reader) -> bool {
        (0..2).all(|_| self.surplus(bridge, 1) == 0 || self.evict(bridge, now_ms, slots, reader))
    }

    /// How many addresses a bridge has too many if it gets `more`.
    fn surplus(&mut self, bridge: BridgeIdx, more: usize) -> usize {
        let size = self.topology.bridge(bridge).map_or(0, |b| b.config.mac_table_size.max(1));
        self.bridge_mut(bridge).map_or(0, |c| (c.macs.records.len() + more).saturating_sub(size))
    }

    /// Adds an entry that is valid from the coming version on.
    fn remember(
        &mut self,
        bridge: BridgeIdx,
        word: u64,
        port: PortNo,
        now_ms: u64,
        is_static: bool,
        reader: &Reader,
    ) {
        let (version, slot) = (self.coming(), self.slots.allocate());
        let control = self.bridge_mut(bridge).expect("the caller has found it");
        control.macs.records.insert(word, port, slot, now_ms, is_static);
        control.state.macs.insert(word, port, slot, version, reader);
        self.log.word(word_table::macs(bridge.0), word, version);
    }

    /// Ends an entry in the coming version.
    fn forget(&mut self, bridge: BridgeIdx, word: u64, reader: &Reader) {
        let version = self.coming();
        let Some(control) = self.bridge_mut(bridge) else { return };
        let Some(record) = control.macs.records.remove(word) else { return };
        control.state.macs.end(word, version, reader);
        control.macs.ended.push(version, word);
        self.slots.retire(record.slot);
        self.log.word(word_table::macs(bridge.0), word, version);
    }

    /// Makes room: the port with the most addresses loses one, so that a host that invents addresses harms
    /// only itself. It is one that is not in use, or, of those looked at, the one that was used longest ago.
    fn evict(&mut self, bridge: BridgeIdx, now_ms: u64, slots: &dyn SlotReader, reader: &Reader) -> bool {
        let Some(control) = self.bridge_mut(bridge) else { return false };
        let records = &mut control.macs.records;
        let mut first: Option<(u64, u64)> = None;
        for _ in 0..LOOKS_MAX {
            let Some(record) = records.first_to_give_way() else { break };
            let (word, used_ms) = (record.word, slots.read(record.slot).last_used_ms);
            if !record.is_in_use(used_ms, now_ms) {
                first = Some((used_ms, word));
                break;
            }
            records.spare(word, now_ms);
            if first.is_none_or(|(first_ms, _)| used_ms < first_ms) {
                first = Some((used_ms, word));
            }
        }
        let Some((_, word)) = first else { return false };
        control.macs.stats.evicted += 1;
        self.forget(bridge, word, reader);
        true
    }

    /// Forgets all addresses of a bridge at once, and what else must be forgotten.
    pub(super) fn flush_all_macs(&mut self, bridge: BridgeIdx, reader: &Reader) {
        self.flush_learned_macs(bridge, reader);
        while !self.doomed.is_empty() {
            self.forget_some(reader);
        }
        let statics = self.bridge_mut(bridge).map(|c| c.macs.records.statics().clone());
        statics.into_iter().flatten().for_each(|word| self.forget(bridge, word, reader));
    }

    /// Forgets the learned addresses of a bridge. Returns whether it changed anything yet.
    pub(super) fn flush_learned_macs(&mut self, bridge: BridgeIdx, reader: &Reader) -> bool {
        let left = self.bridge_mut(bridge).map_or(0, |c| c.macs.records.learned());
        self.doom(Doomed { bridge, which: Which::Learned, left }, reader)
    }

    /// The same for those behind a port.
    pub(super) fn flush_learned_macs_behind(&mut self, bridge: BridgeIdx, port: PortNo, reader: &Reader) {
        let left = self.bridge_mut(bridge).map_or(0, |c| c.macs.records.count_behind(port));
        self.doom(Doomed { bridge, which: Which::Behind(port), left }, reader);
    }

    /// The same for those behind a port that is gone, and the static ones.
    pub(super) fn flush_macs_of_gone(&mut self, bridge: BridgeIdx, port: PortNo, reader: &Reader) {
        let Some(control) = self.bridge_mut(bridge) else { return };
        let records = &control.macs.records;
        let is_behind = |word: &u64| records.get(*word).is_some_and(|r| r.port == port);
        let left = records.count_behind(port);
        let statics: Vec<u64> = records.statics().iter().copied().filter(is_behind).collect();
        statics.into_iter().for_each(|word| self.forget_everywhere(bridge, word, reader));
        self.doom(Doomed { bridge, which: Which::BehindGone(port), left }, reader);
    }

    /// Evicts what a smaller table has no room for.
    pub(super) fn shrink_macs(&mut self, bridge: BridgeIdx, reader: &Reader) {
        let left = self.surplus(bridge, 0);
        self.doom(Doomed { bridge, which: Which::Surplus, left }, reader);
    }

    /// Forgets the first of these now. Returns whether there were any.
    fn doom(&mut self, doomed: Doomed, reader: &Reader) -> bool {
        if doomed.left == 0 {
            return false;
        }
        // Few that are new need not wait for many.
        self.doomed.push_front(doomed);
        self.forget_some(reader)
    }

    /// Forgets some of the addresses that must be. Returns whether there were any.
    fn forget_some(&mut self, reader: &Reader) -> bool {
        let (mut work, mut has_changed) = (0, false);
        while work < RETIRED_AT_ONCE
            && let Some(next) = self.doomed.front_mut()
        {
            let Doomed { bridge, which, left } = *next;
            next.left = left.saturating_sub(1);
            work += if matches!(which, Which::BehindGone(_)) { self.bridges.len() } else { 1 };
            if left > 0 && self.forget_one(bridge, which, reader) {
                has_changed = true;
            } else {
                self.doomed.pop_front();
            }
        }
        has_changed
    }

    /// False: there is none of these.
    fn forget_one(&mut self, bridge: BridgeIdx, which: Which, reader: &Reader) -> bool {
        if which == Which::Surplus {
            return self.surplus(bridge, 0) > 0 && self.evict(bridge, 0, &unused, reader);
        }
        let Some(control) = self.bridge_mut(bridge) else { return false };
        let records = &control.macs.records;
        let record = match which {
            Which::Behind(port) | Which::BehindGone(port) => records.first_behind(port),
            Which::Learned | Which::Surplus => records.longest_unseen().map(|(record, _)| record),
        };
        let Some(&Record { word, .. }) = record else { return false };
        match which {
            Which::BehindGone(_) => self.forget_everywhere(bridge, word, reader),
            _ => self.forget(bridge, word, reader),
        }
        true
    }

    /// Forgets an address of a bridge, and where others have learned it.
    fn forget_everywhere(&mut self, bridge: BridgeIdx, word: u64, reader: &Reader) {
        for other in (0..self.bridges.len() as u32).map(BridgeIdx) {
            let record = self.bridge_mut(other).and_then(|c| c.macs.records.get(word));
            if record.is_some_and(|r| other == bridge || !r.is_static) {
                self.forget(other, word, reader);
            }
        }
    }

    /// When an address of any bridge may age out, by the present ageing times.
    pub(super) fn next_mac_deadline_ms(&self) -> Option<u64> {
        let bridges = self.bridges.iter().zip(&self.topology.bridges);
        let deadlines = bridges.filter_map(|(control, bridge)| {
            let (_, seen_ms) = control.as_ref()?.macs.records.longest_unseen()?;
            Some(seen_ms + aging_ms(&bridge.as_ref()?.config))
        });
        deadlines.min()
    }

    /// Forgets addresses of a bridge that were not seen for its ageing time, with no more than `looks`, from
    /// which it takes off those it has taken. Returns whether there were any.
    pub(super) fn age_macs(
        &mut self,
        bridge: BridgeIdx,
        now_ms: u64,
        looks: &mut usize,
        slots: &dyn SlotReader,
        reader: &Reader,
    ) -> bool {
        let Some(settings) = self.topology.bridge(bridge) else { return false };
        let aging_ms = aging_ms(&settings.config);
        let mut forgotten = false;
        while *looks > 0
            && let Some(control) = self.bridge_mut(bridge)
            && let Some((record, seen_ms)) = control.macs.records.longest_unseen()
            && now_ms >= seen_ms + aging_ms
        {
            *looks -= 1;
            let (word, seen_ms) = (record.word, slots.read(record.slot).last_used_ms.max(record.learned_ms));
            if now_ms < seen_ms + aging_ms {
                // Later than was known before, so this loop ends.
                control.macs.records.seen(word, seen_ms);
                continue;
            }
            control.macs.stats.expired += 1;
            self.forget(bridge, word, reader);
            forgotten = true;
        }
        forgotten
    }
}

fn aging_ms(config: &BridgeConfig) -> u64 {
    u64::from(config.mac_aging_s) * 1_000
}
