//! MAC learning's bookkeeping: ages, limits, and what `fdb/show` shows.
//!
//! An address that the operator gave a port (`fdb/add`) stays there: it does not age, is not learned elsewhere, and gives way
//! to no other. It goes with its port.

use super::{Control, Inner};
use crate::changelog::word_table;
use crate::mac::MacTable;
use crate::slots::SlotReader;
use crate::switch::Effect;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use base::{PortNo, Version};
use std::collections::{HashMap, VecDeque};

/// What is known of an address.
struct Record {
    port: PortNo,
    slot: u32,
    learned_ms: u64,
    serial: u64,
    is_static: bool,
}

/// An address, as `fdb/show` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FdbEntry {
    /// Where.
    pub port: PortNo,
    /// VLAN.
    pub vlan: u16,
    /// Address.
    pub mac: u64,
    /// Milliseconds since it was last seen. `None`: the operator gave it.
    pub age_ms: Option<u64>,
}

/// What `fdb/stats-show` shows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FdbStats {
    /// Addresses now.
    pub current: usize,
    /// Those among them that the operator gave.
    pub statics: usize,
    /// Learned since the start.
    pub learned: u64,
    /// Forgotten for age.
    pub expired: u64,
    /// Forgotten for want of room.
    pub evicted: u64,
    /// Seen at another port than before.
    pub moved: u64,
}

/// The control side of one bridge's table.
#[derive(Default)]
pub(super) struct MacControl {
    records: HashMap<u64, Record>,
    /// Per port, its addresses in the order in which they were learned. Some are outdated: their serial says so.
    by_port: HashMap<PortNo, VecDeque<(u64, u64)>>,
    counts: HashMap<PortNo, usize>,
    /// Words of which an entry ended, to be unlinked.
    ended: VecDeque<(Version, u64)>,
    stats: FdbStats,
}

impl MacControl {
    fn remember_order(&mut self, port: PortNo, word: u64, serial: u64) {
        let queue = self.by_port.entry(port).or_default();
        if queue.len() > 2 * self.counts.get(&port).copied().unwrap_or(0) + 64 {
            let records = &self.records;
            queue.retain(|(word, serial)| records.get(word).is_some_and(|r| r.serial == *serial));
        }
        queue.push_back((word, serial));
    }

    pub fn collect(&mut self, macs: &MacTable, oldest: Version, reader: &Reader) {
        while let Some((version, word)) = self.ended.front().copied()
            && version <= oldest
        {
            macs.collect(word, oldest, reader);
            self.ended.pop_front();
        }
    }
}

impl Control {
    /// Takes note of what translations found out. One version for all of them; none if they change nothing.
    pub fn apply(&mut self, effects: &[Effect], now_ms: u64) {
        self.reader.quiescent();
        let mut changed = false;
        for effect in effects {
            match *effect {
                Effect::Learn { bridge, vlan, mac, port } => {
                    changed |= self.inner.learn(bridge, vlan, mac, port, now_ms, &self.reader);
                }
                Effect::FinTimeout(fin) => self.inner.lower_timeouts(fin),
            }
        }
        if changed {
            self.inner.publish();
        }
    }

    /// The addresses of a bridge, in order of VLAN and address.
    pub fn fdb_show(&self, bridge: BridgeIdx, now_ms: u64, slots: &dyn SlotReader) -> Vec<FdbEntry> {
        let Some(Some(control)) = self.inner.bridges.get(bridge.0 as usize) else { return Vec::new() };
        let mut all: Vec<_> = (control.macs.records.iter())
            .map(|(word, r)| FdbEntry {
                port: r.port,
                vlan: (word >> 48) as u16,
                mac: word & 0xffff_ffff_ffff,
                age_ms: (!r.is_static)
                    .then(|| now_ms.saturating_sub(slots.read(r.slot).last_used_ms.max(r.learned_ms))),
            })
            .collect();
        all.sort_by_key(|e| (e.vlan, e.mac));
        all
    }

    /// Forgets all addresses of a bridge but those that the operator gave.
    pub fn fdb_flush(&mut self, bridge: BridgeIdx) {
        self.reader.quiescent();
        if self.inner.flush_learned_macs(bridge, &self.reader) {
            self.inner.publish();
        }
    }

    /// Gives an address to a port, for good. The port that it had been given to before, if there was one.
    ///
    /// # Errors
    /// `NoSuchPort` where the port is not one of the bridge's.
    pub fn fdb_add(
        &mut self,
        bridge: BridgeIdx,
        vlan: u16,
        mac: u64,
        port: PortNo,
        now_ms: u64,
    ) -> Result<Option<PortNo>, NoSuchPort> {
        self.reader.quiescent();
        if self.inner.port_bridge(port) != Some(bridge) {
            return Err(NoSuchPort);
        }
        let word = word_table::mac(vlan, mac);
        let control = self.inner.bridge(bridge).ok_or(NoSuchPort)?;
        let before = control.macs.records.get(&word).filter(|r| r.is_static).map(|r| r.port);
        if before != Some(port) {
            self.inner.forget(bridge, word, &self.reader);
            self.inner.make_room(bridge, &self.reader);
            self.inner.remember(bridge, word, port, now_ms, true, &self.reader);
            self.inner.publish();
        }
        Ok(before)
    }

    /// Takes an address back that was given by [`Self::fdb_add`]. False where there is none.
    pub fn fdb_del(&mut self, bridge: BridgeIdx, vlan: u16, mac: u64) -> bool {
        self.reader.quiescent();
        let word = word_table::mac(vlan, mac);
        let Some(control) = self.inner.bridge(bridge) else { return false };
        let is_there = control.macs.records.get(&word).is_some_and(|r| r.is_static);
        if is_there {
            self.inner.forget(bridge, word, &self.reader);
            self.inner.publish();
        }
        is_there
    }

    /// Counts of a bridge.
    pub fn fdb_stats(&self, bridge: BridgeIdx) -> FdbStats {
        let Some(Some(control)) = self.inner.bridges.get(bridge.0 as usize) else {
            return FdbStats::default();
        };
        let statics = control.macs.records.values().filter(|r| r.is_static).count();
        FdbStats { current: control.macs.records.len(), statics, ..control.macs.stats }
    }

    /// Sets the totals to 0.
    pub fn fdb_clear_stats(&mut self, bridge: BridgeIdx) {
        if let Some(control) = self.inner.bridge(bridge) {
            control.macs.stats = FdbStats::default();
        }
    }
}

/// A port that is not one of the bridge's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchPort;

impl Inner {
    /// Whether it changed anything.
    fn learn(
        &mut self,
        bridge: BridgeIdx,
        vlan: u16,
        mac: u64,
        port: PortNo,
        now_ms: u64,
        reader: &Reader,
    ) -> bool {
        // The port may have gone while the effect was on its way.
        if self.port_bridge(port) != Some(bridge) {
            return false;
        }
        let word = word_table::mac(vlan, mac);
        let Some(control) = self.bridge(bridge) else { return false };
        match control.macs.records.get(&word) {
            Some(known) if known.port == port || known.is_static => return false,
            Some(_) => {
                control.macs.stats.moved += 1;
                self.forget(bridge, word, reader);
            }
            None => {
                if !self.make_room(bridge, reader) {
                    return false;
                }
            }
        }
        let control = self.bridge(bridge).expect("found above");
        control.macs.stats.learned += 1;
        self.remember(bridge, word, port, now_ms, false, reader);
        true
    }

    /// Sees to it that the table has a place. False where all are taken by addresses that stay.
    fn make_room(&mut self, bridge: BridgeIdx, reader: &Reader) -> bool {
        let Some(size) = self.topology.bridge(bridge).map(|b| b.config.mac_table_size.max(1)) else {
            return false;
        };
        let is_full = |inner: &mut Inner| inner.bridge(bridge).is_none_or(|c| c.macs.records.len() >= size);
        if is_full(self) {
            self.evict(bridge, reader);
        }
        !is_full(self)
    }

    /// A new entry, which holds from the coming version on.
    fn remember(
        &mut self,
        bridge: BridgeIdx,
        word: u64,
        port: PortNo,
        now_ms: u64,
        is_static: bool,
        reader: &Reader,
    ) {
        let aging_s = self.topology.bridge(bridge).map_or(0, |b| b.config.mac_aging_s);
        let (version, serial, slot) = (self.coming(), self.serial(), self.slots.allocate());
        let control = self.bridge(bridge).expect("the caller has found it");
        control.macs.records.insert(word, Record { port, slot, learned_ms: now_ms, serial, is_static });
        if !is_static {
            control.macs.remember_order(port, word, serial);
            *control.macs.counts.entry(port).or_default() += 1;
        }
        control.state.macs.insert(word, port, slot, version, reader);
        self.log.word(word_table::macs(bridge.0), word, version);
        if !is_static {
            self.timers.mac(bridge, word, serial, now_ms + u64::from(aging_s) * 1000);
        }
    }

    /// Ends an entry in the coming version.
    fn forget(&mut self, bridge: BridgeIdx, word: u64, reader: &Reader) {
        let version = self.coming();
        let Some(control) = self.bridge(bridge) else { return };
        let Some(record) = control.macs.records.remove(&word) else { return };
        control.state.macs.end(word, version, reader);
        control.macs.ended.push_back((version, word));
        if !record.is_static
            && let Some(count) = control.macs.counts.get_mut(&record.port)
        {
            *count -= 1;
        }
        self.slots.retire(record.slot);
        self.log.word(word_table::macs(bridge.0), word, version);
    }

    /// Makes room: the port with the most addresses loses the one learned first, so that a host that makes up addresses
    /// harms itself.
    fn evict(&mut self, bridge: BridgeIdx, reader: &Reader) {
        let Some(control) = self.bridge(bridge) else { return };
        let macs = &mut control.macs;
        let Some(port) = macs.counts.iter().max_by_key(|(port, n)| (**n, port.0)).map(|(p, _)| *p) else {
            return;
        };
        let Some(queue) = macs.by_port.get_mut(&port) else { return };
        while let Some((word, serial)) = queue.pop_front() {
            if macs.records.get(&word).is_some_and(|r| r.serial == serial) {
                macs.stats.evicted += 1;
                return self.forget(bridge, word, reader);
            }
        }
    }

    /// Forgets all addresses of a bridge. Whether there were any.
    pub(super) fn flush_all_macs(&mut self, bridge: BridgeIdx, reader: &Reader) -> bool {
        self.flush_macs(bridge, |_| true, reader)
    }

    /// The same, but for those that the operator gave.
    pub(super) fn flush_learned_macs(&mut self, bridge: BridgeIdx, reader: &Reader) -> bool {
        self.flush_macs(bridge, |r| !r.is_static, reader)
    }

    /// The same, of those behind a port.
    pub(super) fn flush_learned_macs_behind(
        &mut self,
        bridge: BridgeIdx,
        port: PortNo,
        reader: &Reader,
    ) -> bool {
        self.flush_macs(bridge, |r| r.port == port && !r.is_static, reader)
    }

    fn flush_macs(&mut self, bridge: BridgeIdx, which: impl Fn(&Record) -> bool, reader: &Reader) -> bool {
        let Some(control) = self.bridge(bridge) else { return false };
        let records = control.macs.records.iter();
        let words: Vec<u64> = records.filter(|(_, r)| which(r)).map(|(w, _)| *w).collect();
        for word in &words {
            self.forget(bridge, *word, reader);
        }
        !words.is_empty()
    }

    /// Forgets the addresses behind a port that goes, in every bridge: who was there is likely to be elsewhere soon, and other
    /// bridges have learned them from this one.
    pub(super) fn flush_macs_of_gone(&mut self, bridge: BridgeIdx, port: PortNo, reader: &Reader) {
        let Some(control) = self.bridge(bridge) else { return };
        let records = control.macs.records.iter();
        let words: Vec<u64> = records.filter(|(_, r)| r.port == port).map(|(w, _)| *w).collect();
        let bridges = (0..self.bridges.len() as u32).map(BridgeIdx);
        for (other, word) in bridges.flat_map(|b| words.iter().map(move |w| (b, *w))) {
            let stays = |r: &Record| r.is_static && other != bridge;
            if !self.bridge(other).is_none_or(|c| c.macs.records.get(&word).is_none_or(stays)) {
                self.forget(other, word, reader);
            }
        }
    }

    /// An address' time has come, or not yet. Whether it was forgotten.
    pub(super) fn age_mac(
        &mut self,
        bridge: BridgeIdx,
        word: u64,
        serial: u64,
        now_ms: u64,
        slots: &dyn SlotReader,
        reader: &Reader,
    ) -> bool {
        let Some(settings) = self.topology.bridge(bridge) else { return false };
        let aging_ms = u64::from(settings.config.mac_aging_s) * 1000;
        let Some(control) = self.bridge(bridge) else { return false };
        let Some(record) = control.macs.records.get(&word).filter(|r| r.serial == serial) else {
            return false;
        };
        let deadline = slots.read(record.slot).last_used_ms.max(record.learned_ms) + aging_ms;
        if now_ms < deadline {
            self.timers.mac(bridge, word, serial, deadline);
            return false;
        }
        control.macs.stats.expired += 1;
        self.forget(bridge, word, reader);
        true
    }
}
