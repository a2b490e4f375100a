//! Tables as configured by controllers and the database: names, limits and eviction, vacancy events.
//!
//! The database's name for a table takes precedence over controllers'. A table evicts if either enables it.
//! Sources: OpenFlow 1.4 sections 6.5 and 7.4.5; ovs-vswitchd.conf.db(5), Flow_Table.

use super::request::Handled;
use crate::ofproto::table_features::{self, MAX_ENTRIES, TABLES};
use crate::ofproto::{Asynchronous, OfConn, VacancyWatch};
use crate::own_changes::OwnChange;
use crate::plane::ForwardingPlane;
use crate::state::Vswitch;
use openflow::ErrorKind;
use openflow::Version;
use openflow::message::{TABLE_ALL, TableDesc, TableFeatures, TableMiss, TableMod, TableStatus, Vacancy};
use switch::BridgeIdx;
use switch::control::{TABLE_HIDDEN, TableLimits};

/// OFPTMPEF_OTHER, _IMPORTANCE, _LIFETIME: the criteria for eviction.
const EVICTION_FLAGS: u32 = 0b111;
/// OFPTFC_REPLACE and OFPTFC_MODIFY; the others would take tables away and bring them back.
const FEATURES_MODIFY: u8 = 1;

impl Vswitch {
    /// The name of a table; empty if it has none.
    pub(super) fn table_name(&self, bridge: BridgeIdx, table_id: u8) -> &str {
        let Some(bridge) = self.bridges.get(&bridge) else { return "" };
        let configured = bridge.settings.flow_tables.get(&table_id).and_then(|t| t.name.as_deref());
        configured.or_else(|| bridge.tables.get(&table_id).map(|t| t.name.as_str())).unwrap_or_default()
    }

    /// Maximum number of flows in a table.
    pub(super) fn table_size(&self, bridge: BridgeIdx, table_id: u8) -> u32 {
        let configured = self.bridges.get(&bridge).and_then(|b| b.settings.flow_tables.get(&table_id));
        configured.and_then(|t| t.flow_limit).unwrap_or(MAX_ENTRIES)
    }

    /// OFPT_TABLE_MOD. OpenFlow 1.3 has nothing to set by it.
    pub(super) fn table_mod(&mut self, bridge: BridgeIdx, version: Version, change: &TableMod) -> Handled {
        if change.table_id == TABLE_HIDDEN {
            return Err(ErrorKind::OFPTMFC_EPERM);
        }
        if version < Version::V14 {
            return self.plane.set_table_miss(bridge, version, change);
        }
        let tables = match change.table_id {
            TABLE_ALL => 0..=TABLES - 1,
            one => one..=one,
        };
        for table_id in tables {
            let now = self.vacancy(bridge, table_id);
            let Some(record) = self.bridges.get_mut(&bridge) else { return Ok(()) };
            let table = record.tables.entry(table_id).or_default();
            table.evicts = change.config & TableMod::EVICTION != 0;
            let is_watched = change.config & TableMod::VACANCY_EVENTS != 0;
            table.vacancy = is_watched.then(|| {
                let Vacancy { down, up, .. } = change.vacancy.unwrap_or_default();
                // What is awaited already stays so.
                let awaits_less = table.vacancy.map_or(now >= up, |watch| watch.awaits_less);
                VacancyWatch { down, up, awaits_less }
            });
            self.limit_table(bridge, table_id);
        }
        Ok(())
    }

    /// Puts in force how many flows a table may hold.
    fn limit_table(&mut self, bridge: BridgeIdx, table_id: u8) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let configured = record.settings.flow_tables.get(&table_id).cloned().unwrap_or_default();
        let by_controller = record.tables.get(&table_id).is_some_and(|t| t.evicts);
        let limits = TableLimits {
            rules_max: configured.flow_limit,
            evicts: configured.evicts || by_controller,
            groups: configured.groups,
        };
        self.change_by_itself(bridge, [OwnChange::Limit(table_id, limits)]);
    }

    /// Applies the database's settings for a bridge's tables. `before`: the tables that had settings until
    /// now.
    pub(crate) fn limit_tables(&mut self, bridge: BridgeIdx, before: impl IntoIterator<Item = u8>) {
        let now = self.bridges.get(&bridge).map(|b| b.settings.flow_tables.keys().copied().collect());
        let mut tables: std::collections::BTreeSet<u8> = now.unwrap_or_default();
        tables.extend(before);
        tables.into_iter().for_each(|table_id| self.limit_table(bridge, table_id));
    }

    /// The percentage of a table that is free.
    fn vacancy(&self, bridge: BridgeIdx, table_id: u8) -> u8 {
        let configured = self.bridges.get(&bridge).and_then(|b| b.settings.flow_tables.get(&table_id));
        // As in Open vSwitch, a table without a limit has one that nobody meets.
        let limit = u64::from(configured.and_then(|t| t.flow_limit).unwrap_or(u32::MAX));
        let active = self.plane.control.flow_count(bridge, table_id) as u64;
        (limit.saturating_sub(active) * 100).checked_div(limit).unwrap_or(100) as u8
    }

    /// A table's OFPMP_TABLE_DESC.
    fn table_desc(&self, bridge: BridgeIdx, table_id: u8) -> TableDesc {
        let mut desc = TableMod { table_id, eviction_flags: Some(EVICTION_FLAGS), ..TableMod::default() };
        if let Some(record) = self.bridges.get(&bridge) {
            let table = record.tables.get(&table_id);
            // What the database says is not a controller's to see.
            if table.is_some_and(|t| t.evicts) {
                desc.config |= TableMod::EVICTION;
            }
            if let Some(VacancyWatch { down, up, .. }) = table.and_then(|t| t.vacancy) {
                desc.config |= TableMod::VACANCY_EVENTS;
                desc.vacancy = Some(Vacancy { down, up, now: self.vacancy(bridge, table_id) });
            }
        }
        TableDesc(desc)
    }

    pub(super) fn table_descs(&self, bridge: BridgeIdx) -> Vec<TableDesc> {
        (0..TABLES).map(|table_id| self.table_desc(bridge, table_id)).collect()
    }

    /// Tells controllers of tables that have got fuller or emptier than they wanted to know of.
    pub(crate) fn tell_vacancy(&mut self, bridge: BridgeIdx) {
        let Some(record) = self.bridges.get(&bridge) else { return };
        let watched = record.tables.iter().filter_map(|(id, table)| Some((*id, table.vacancy?)));
        let crossed: Vec<(u8, bool)> = watched
            .filter_map(|(id, watch)| {
                let now = self.vacancy(bridge, id);
                let crossed = if watch.awaits_less { now < watch.down } else { now > watch.up };
                crossed.then_some((id, watch.awaits_less))
            })
            .collect();
        for (table_id, is_less) in crossed {
            let watch =
                self.bridges.get_mut(&bridge).and_then(|b| b.tables.get_mut(&table_id)?.vacancy.as_mut());
            if let Some(watch) = watch {
                watch.awaits_less = !is_less;
            }
            let reason = if is_less { TableStatus::VACANCY_DOWN } else { TableStatus::VACANCY_UP };
            let status = TableStatus { reason, desc: self.table_desc(bridge, table_id) };
            self.connections.news.push((bridge, Asynchronous::Table(status)));
        }
    }

    /// The features of all tables.
    pub(super) fn table_features(&self, bridge: BridgeIdx, version: Version) -> Vec<TableFeatures> {
        let mut all = table_features::all(version);
        let topology = self.plane.control.topology();
        let misses = topology.bridge(bridge).map(|found| &found.config.table_misses);
        for table in &mut all {
            if version < Version::V13 {
                let miss = misses.and_then(|misses| misses.get(&table.table_id));
                table.config = miss.copied().unwrap_or_default() as u32;
            }
            table.name = self.table_name(bridge, table.table_id).into();
            table.max_entries = self.table_size(bridge, table.table_id);
        }
        all
    }

    /// A controller's table features. Only names can be changed, and only if the database gives none.
    pub(super) fn set_table_features(
        &mut self,
        bridge: BridgeIdx,
        conn: &OfConn,
        features: &[TableFeatures],
    ) -> Handled {
        let mut new: Vec<(u8, &str)> = Vec::new();
        for table in features {
            if table.table_id >= TABLES {
                return Err(ErrorKind::OFPTFFC_BAD_TABLE);
            }
            if conn.version() >= Version::V15 && table.command > FEATURES_MODIFY {
                return Err(ErrorKind::OFPTFFC_EPERM);
            }
            if table.name == self.table_name(bridge, table.table_id) {
                continue;
            }
            let configured = self.bridges[&bridge].settings.flow_tables.get(&table.table_id);
            if configured.is_some_and(|t| t.name.is_some()) {
                return Err(ErrorKind::OFPTFFC_EPERM);
            }
            new.push((table.table_id, &table.name));
        }
        let record = self.bridges.get_mut(&bridge).expect("looked up above");
        for (table_id, name) in new {
            record.tables.entry(table_id).or_default().name = name.into();
        }
        Ok(())
    }
}

impl ForwardingPlane {
    /// What tables do with packets that match no flow. In OpenFlow 1.3, flows of priority 0 take that role.
    fn set_table_miss(&mut self, bridge: BridgeIdx, version: Version, change: &TableMod) -> Handled {
        if version == Version::V13 {
            return Ok(());
        }
        // As in Open vSwitch, the other bits are ignored.
        let miss = match change.config & 3 {
            1 => TableMiss::Continue,
            2 => TableMiss::Drop,
            _ => TableMiss::Controller,
        };
        let Some(found) = self.control.topology().bridge(bridge) else { return Ok(()) };
        let mut config = found.config.clone();
        // Connections truncate packets to the length that they want.
        config.miss_send_len = u16::MAX;
        let tables =
            if change.table_id == TABLE_ALL { 0..=TABLES - 1 } else { change.table_id..=change.table_id };
        config.table_misses.extend(tables.map(|table_id| (table_id, miss)));
        self.control.set_bridge(bridge, config).expect("it is there, looked up above");
        Ok(())
    }
}
