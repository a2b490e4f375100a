//! Flow-mods: adding, modifying and deleting rules, alone or many as one version.
//!
//! A change is put in place invisibly for the coming version (see `transaction`). Strict commands cost the
//! same however many rules there are; loose ones look at the rules of every mask that includes all bits of
//! theirs, or at whole tables (see `walk`). So do additions that must not overlap others (see `overlap`).

use super::change::{Batch, Change, Gone, Made, Pace, SlotAfter, Step, Transaction, Walk};
use super::events::{RemovedReason, RuleEvent, RuleEventKind};
use super::state::{Control, Inner};
use super::store::bytes_of;
use super::validate;
use crate::flow_mod::{Command, FlowMod, FlowModError, TABLE_ALL, TABLE_HIDDEN};
use crate::refused::Learned;
use crate::rule::{Actions, Named, Rule, Timeouts};
use crate::table::Entry;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use flow::{Action, FieldId, Match};
use openflow::Version;
use std::sync::Arc;

/// Maximum number of rules, limited by the numbers of counters.
pub(super) const RULES_MAX: u32 = 16_000_000;

/// Whether when the rule was last learned decides when it ends: by its age, from the start or once a FIN was
/// seen.
fn may_end_by_its_age(fm: &FlowMod) -> bool {
    let fin = |action: &Action| matches!(action, Action::FinTimeout { hard_timeout_s: 1.., .. });
    fm.flags.learned && (fm.hard_timeout_s > 0 || fm.actions.iter().any(fin))
}

/// Whether the match uses fields internal to the datapath. (Matching packets that have not been recirculated
/// is allowed.)
fn has_hidden_fields(m: &Match) -> bool {
    m.key.get64(FieldId::RecircId) != 0 || m.mask.get(FieldId::DpHash) != 0
}

impl Control {
    /// One flow-mod, as one version.
    pub fn flow_mod(&mut self, bridge: BridgeIdx, fm: &FlowMod, now_ms: u64) -> Result<(), FlowModError> {
        self.flow_mods([(bridge, fm)], now_ms).map_err(|(_, error)| error)
    }

    /// Several flow-mods as one version: all or none. An error gives the index of the failed one (from 0) and
    /// the reason.
    pub fn flow_mods<'m>(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, &'m FlowMod)>,
        now_ms: u64,
    ) -> Result<(), (usize, FlowModError)> {
        self.change_all(all.into_iter().map(|(bridge, fm)| (bridge, Change::Flow(fm))), now_ms).map(drop)
    }
}

impl Inner {
    pub(super) fn change(
        &mut self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        now_ms: u64,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        if self.bridge_mut(bridge).is_none() {
            return Err(FlowModError::NoBridge(bridge));
        }
        if fm.table_id == TABLE_HIDDEN && !fm.flags.hidden {
            return Err(FlowModError::BadTableId(fm.table_id));
        }
        let placed;
        let fm = if fm.matching.options.is_empty() {
            fm
        } else {
            let mut own = fm.clone();
            self.option_table(bridge).place(&mut own.matching).map_err(FlowModError::in_match)?;
            placed = own;
            &placed
        };
        match fm.command {
            Command::Add => return self.add(bridge, fm, now_ms, transaction, pace, reader),
            Command::Modify | Command::ModifyStrict => {
                return self.modify(bridge, fm, now_ms, transaction, pace, reader);
            }
            Command::Delete => return self.delete_within(bridge, fm, transaction, pace, reader),
            Command::DeleteStrict => {
                for rule in self.select(bridge, fm, reader) {
                    self.remove(
                        rule,
                        Some(RemovedReason::Delete),
                        SlotAfter::Retired,
                        &mut transaction.batch,
                        reader,
                    );
                }
            }
        }
        Ok(Made::Whole)
    }

    pub(super) fn option_table(&self, bridge: BridgeIdx) -> &flow::options::OptionTable {
        self.topology.bridge(bridge).expect("the caller has looked").options()
    }

    fn add(
        &mut self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        now_ms: u64,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        let table_id = fm.added_to();
        if has_hidden_fields(&fm.matching) && !fm.flags.hidden {
            return Err(FlowModError::HiddenField);
        }
        validate::check(fm.version, &fm.matching, &fm.actions, table_id, self.known(bridge))?;
        let version = self.coming();
        self.table(bridge, table_id);
        let control = self.bridge_mut(bridge).expect("the caller has looked");
        let rules = &control.state.table(table_id).expect("made above").rules;
        let old = rules.find_exact(&fm.matching, fm.priority, version, reader).map(|r| r.data().rule.clone());
        if old.is_none() {
            if fm.flags.check_overlap
                && self.check_overlap(bridge, fm, transaction, pace, reader)? == Made::InPart
            {
                return Ok(Made::InPart);
            }
            if self.slots.in_use() >= RULES_MAX {
                return Err(FlowModError::TableFull);
            }
            if !fm.flags.hidden && self.table(bridge, table_id).is_full() {
                self.evict_rule(bridge, table_id, &mut transaction.batch, reader)
                    .ok_or(FlowModError::TableFull)?;
            }
        }
        let batch = &mut transaction.batch;
        let keeps_counts = old.is_some() && !fm.flags.reset_counts;
        let slot = match &old {
            Some(old) if keeps_counts => old.slot,
            _ => self.new_slot(batch),
        };
        let (mut old_actions, first_serial) = (None, old.as_ref().map_or(0, |old| old.first_serial));
        let mut unused_since_ms = now_ms;
        if let Some(old) = old {
            unused_since_ms = old.unused_since_ms;
            old_actions = Some(old.actions.clone()).filter(|actions| actions.list[..] != fm.actions[..]);
            let after = if keeps_counts { SlotAfter::LivesOn } else { SlotAfter::Inherited(slot) };
            self.remove(old, None, after, batch, reader);
        }
        let rule = Rule {
            bridge,
            table_id,
            priority: fm.priority,
            cookie: fm.new_cookie.unwrap_or(0),
            flags: fm.flags,
            timeouts: Timeouts::new(fm.idle_timeout_s, fm.hard_timeout_s),
            importance: fm.importance,
            created_ms: now_ms,
            unused_since_ms,
            modified_ms: now_ms,
            slot,
            learn_slot: may_end_by_its_age(fm).then(|| self.new_slot(batch)),
            matching: self.shapes.mini(&fm.matching),
            actions: self.actions.intern(&fm.actions),
            idx: 0,
            serial: 0,
            first_serial,
        };
        let rule = self.insert(rule, &fm.matching, batch, reader);
        self.note(RuleEvent { kind: RuleEventKind::Added, rule, old_actions }, batch);
        Ok(Made::Whole)
    }

    fn note(&self, event: RuleEvent, batch: &mut Batch) {
        if self.events.is_watched(event.rule.bridge) && !event.rule.flags.hidden {
            batch.events.push(event);
        }
    }

    fn modify(
        &mut self,
        bridge: BridgeIdx,
        fm: &FlowMod,
        now_ms: u64,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        let actions = self.actions.intern(&fm.actions);
        let modify = |inner: &mut Inner, old: Arc<Rule>, transaction: &mut Transaction| {
            inner.modify_rule(&old, fm, &actions, now_ms, &mut transaction.batch, reader)
        };
        let found = if let Walk::Overlap(_) = transaction.walk {
            // There was none to modify.
            Some(0)
        } else if fm.command == Command::ModifyStrict {
            let selected = self.select(bridge, fm, reader);
            for old in &selected {
                modify(self, old.clone(), transaction)?;
            }
            Some(selected.len())
        } else {
            self.for_each_within(bridge, fm, actions.steps(), transaction, pace, reader, modify)?
        };
        match found {
            None => Ok(Made::InPart),
            Some(0) if fm.new_cookie.is_some() && fm.cookie_mask == 0 => {
                self.add(bridge, fm, now_ms, transaction, pace, reader)
            }
            Some(_) => Ok(Made::Whole),
        }
    }

    fn modify_rule(
        &mut self,
        old: &Arc<Rule>,
        fm: &FlowMod,
        actions: &Arc<Actions>,
        now_ms: u64,
        batch: &mut Batch,
        reader: &Reader,
    ) -> Result<(), FlowModError> {
        validate::check(fm.version, &fm.matching, &fm.actions, old.table_id, self.known(old.bridge))?;
        let keeps_counts = !fm.flags.reset_counts;
        if !keeps_counts && self.slots.in_use() >= RULES_MAX {
            return Err(FlowModError::TableFull);
        }
        batch.check_kept()?;
        let slot = if keeps_counts { old.slot } else { self.new_slot(batch) };
        let after = if keeps_counts { SlotAfter::LivesOn } else { SlotAfter::Inherited(slot) };
        self.remove(old.clone(), None, after, batch, reader);
        if let Some(Step::Removed(gone)) = batch.steps.last_mut() {
            gone.learn_slot_lives_on = true;
        }
        let rule = Rule {
            // In OpenFlow 1.1 an addition sets the cookie, and a modification does not change it.
            cookie: fm.new_cookie.filter(|_| fm.version != Version::V11).unwrap_or(old.cookie),
            modified_ms: now_ms,
            slot,
            timeouts: old.timeouts.clone(),
            matching: old.matching.clone(),
            actions: actions.clone(),
            idx: 0,
            serial: 0,
            ..**old
        };
        let rule = self.insert(rule, &old.matching.to_match(), batch, reader);
        let old_actions = Some(old.actions.clone()).filter(|before| !Arc::ptr_eq(before, actions));
        if old_actions.is_some() || rule.cookie != old.cookie {
            self.note(RuleEvent { kind: RuleEventKind::Modified, rule, old_actions }, batch);
        }
        Ok(())
    }

    /// The number of masks in the tables that a command covers.
    pub(super) fn count_masks(&self, bridge: BridgeIdx, table_id: u8, reader: &Reader) -> usize {
        let Some(control) = self.bridge(bridge) else { return 0 };
        let tables = control.tables.keys().filter(|id| table_id == TABLE_ALL || **id == table_id);
        tables.filter_map(|id| control.state.table(*id)).map(|table| table.rules.count_masks(reader)).sum()
    }

    /// The number of rules whose masks include all bits of a loose command's; it cannot affect more.
    pub(super) fn count_within(&self, bridge: BridgeIdx, fm: &FlowMod, reader: &Reader) -> usize {
        let Some(control) = self.bridge(bridge) else { return 0 };
        let tables = control.tables.keys().filter(|id| fm.table_id == TABLE_ALL || **id == fm.table_id);
        let tables = tables.filter_map(|id| control.state.table(*id));
        tables.map(|table| table.rules.count_within(&fm.matching, reader)).sum()
    }

    /// The rules that a modification or deletion applies to.
    pub(super) fn select(&mut self, bridge: BridgeIdx, fm: &FlowMod, reader: &Reader) -> Vec<Arc<Rule>> {
        let version = self.coming();
        let Some(control) = self.bridge_mut(bridge) else { return Vec::new() };
        let strict = matches!(fm.command, Command::ModifyStrict | Command::DeleteStrict);
        let wanted = |rule: &Rule| fm.selects(rule);
        let mut selected = Vec::new();
        for (id, _) in control.tables.iter().filter(|(id, _)| fm.table_id == TABLE_ALL || **id == fm.table_id)
        {
            let rules = &control.state.table(*id).expect("a table with a store was made").rules;
            if strict {
                selected.extend(
                    (rules.find_exact(&fm.matching, fm.priority, version, reader))
                        .map(|r| &r.data().rule)
                        .filter(|r| wanted(r))
                        .cloned(),
                );
            } else {
                selected.extend(
                    (rules.iter_within(&fm.matching, version, reader))
                        .map(|r| &r.data().rule)
                        .filter(|r| wanted(r))
                        .cloned(),
                );
            }
        }
        selected
    }

    fn new_slot(&mut self, batch: &mut Batch) -> u32 {
        let slot = self.slots.allocate();
        batch.slots.push(slot);
        slot
    }

    /// Puts a rule in place for the coming version.
    fn insert(&mut self, mut rule: Rule, matching: &Match, batch: &mut Batch, reader: &Reader) -> Arc<Rule> {
        rule.serial = self.serial();
        if rule.first_serial == 0 {
            rule.first_serial = rule.serial;
        }
        let store = self.table(rule.bridge, rule.table_id);
        rule.idx = store.place();
        let rule = Arc::new(rule);
        store.put(&rule);
        self.link(&rule, matching, reader);
        self.refer(&rule);
        self.count_learned(&rule);
        batch.push(Step::Added(rule.clone()));
        rule
    }

    /// Makes lookups at the coming version find a rule.
    fn link(&mut self, rule: &Arc<Rule>, matching: &Match, reader: &Reader) {
        let version = self.coming();
        let control = self.bridge_mut(rule.bridge).expect("its table is there");
        let table = control.state.table(rule.table_id).expect("it was made for the rule");
        if !rule.actions.clauses.is_empty() {
            table.expect_conjunctions();
        }
        let entry = Entry { rule: rule.clone(), actions: rule.actions.clone(), slot: rule.slot };
        table.rules.insert(matching, rule.priority, version, entry, reader);
        self.depths.add(rule);
    }

    /// Prepares for what a rule may learn and must count.
    pub(super) fn count_learned(&mut self, rule: &Rule) {
        self.learning.added(rule);
        for learn in &rule.actions.named().learns {
            self.index_cookies(rule.bridge, learn.table_id);
        }
    }

    /// From now on, a table knows the rules of each cookie.
    pub(super) fn index_cookies(&mut self, bridge: BridgeIdx, table_id: u8) {
        if let Some(control) = self.bridge_mut(bridge)
            && control.by_cookie.insert(table_id)
            && let Some(store) = control.tables.get_mut(&table_id)
        {
            store.index_cookies();
        }
    }

    /// How many rules with a cookie there are in a table, if that is known; otherwise 0.
    pub(super) fn learned_count(&self, of: Learned) -> u32 {
        let store = self.bridge(of.bridge).and_then(|control| control.tables.get(&of.table_id));
        store.map_or(0, |store| store.count_of_cookie(of.cookie))
    }

    /// Hides a rule from the coming version on. `false`: it does not exist.
    pub(super) fn remove(
        &mut self,
        rule: Arc<Rule>,
        reason: Option<RemovedReason>,
        slot: SlotAfter,
        batch: &mut Batch,
        reader: &Reader,
    ) -> bool {
        let Some(was_seen) = self.hide(&rule, reader) else { return false };
        if !was_seen {
            self.depths.remove(&rule);
            batch.keep(2 * size_of::<Step>() + bytes_of(&rule));
        }
        self.table(rule.bridge, rule.table_id).vacate(rule.idx);
        self.forget_references(&rule);
        if let Some(reason) = reason {
            let kind = RuleEventKind::Removed(reason);
            self.note(RuleEvent { kind, rule: rule.clone(), old_actions: None }, batch);
        }
        self.learning.removed(&rule);
        batch.push(Step::Removed(Gone { rule, reason, slot, learn_slot_lives_on: false, was_seen }));
        true
    }

    /// Returns whether some version has shown it. One that none has shown is unlinked at once: many rules of
    /// one batch in the place of one another would each be looked at for every further one.
    fn hide(&mut self, rule: &Arc<Rule>, reader: &Reader) -> Option<bool> {
        let version = self.coming();
        let state = self.bridge_mut(rule.bridge)?.state.clone();
        let table = state.table(rule.table_id)?;
        let found = table.rules.find_exact(&rule.matching.to_match(), rule.priority, version, reader);
        let found = found.filter(|f| Arc::ptr_eq(&f.data().rule, rule))?;
        if found.appears() == version {
            return table.rules.withdraw(found, reader).then_some(false);
        }
        if !table.rules.remove(found, version) {
            return None;
        }
        self.table(rule.bridge, rule.table_id).vanishing += 1;
        Some(true)
    }

    /// Removes a rule that no version shows yet.
    pub(super) fn withdraw(&mut self, rule: &Arc<Rule>, reader: &Reader) {
        let Some(control) = self.bridge_mut(rule.bridge) else { return };
        let Some(table) = control.state.table(rule.table_id) else { return };
        let is_it = |entry: &Entry| Arc::ptr_eq(&entry.rule, rule);
        if let Some(found) = table.rules.find_linked(&rule.matching.to_match(), reader, is_it) {
            table.rules.withdraw(found, reader);
        }
    }

    /// Restores a rule that the coming version hides.
    pub(super) fn restore(&mut self, gone: &Gone, reader: &Reader) {
        let rule = &gone.rule;
        if !gone.was_seen {
            return self.link(rule, &rule.matching.to_match(), reader);
        }
        let Some(control) = self.bridge_mut(rule.bridge) else { return };
        let Some(table) = control.state.table(rule.table_id) else { return };
        let is_it = |entry: &Entry| Arc::ptr_eq(&entry.rule, rule);
        if let Some(found) = table.rules.find_linked(&rule.matching.to_match(), reader, is_it)
            && table.rules.restore(found)
        {
            self.table(rule.bridge, rule.table_id).vanishing -= 1;
        }
    }

    /// Records which groups and meters a rule refers to, once it is in place.
    pub(super) fn refer(&mut self, rule: &Arc<Rule>) {
        let Named { groups, meters, .. } = rule.actions.named();
        if !(groups.is_empty() && meters.is_empty())
            && let Some(control) = self.bridge_mut(rule.bridge)
        {
            control.groups.references.add(rule, groups);
            control.meters.references.add(rule, meters);
        }
    }

    pub(super) fn forget_references(&mut self, rule: &Rule) {
        let Named { groups, meters, .. } = rule.actions.named();
        if !(groups.is_empty() && meters.is_empty())
            && let Some(control) = self.bridge_mut(rule.bridge)
        {
            control.groups.references.remove(rule, groups);
            control.meters.references.remove(rule, meters);
        }
    }

    /// What rules of a bridge may refer to.
    pub(super) fn known(&self, bridge: BridgeIdx) -> validate::Known<'_> {
        let numbered = self.bridge(bridge).map(|c| (&c.groups, &c.meters));
        validate::Known { options: self.option_table(bridge), numbered, debugs: self.debugs }
    }

    /// Removes expired rules.
    pub(super) fn remove_expired(
        &mut self,
        rules: Vec<(Arc<Rule>, RemovedReason)>,
        now_ms: u64,
        reader: &Reader,
    ) {
        let mut transaction = Transaction::new(None, now_ms);
        for (rule, reason) in rules {
            self.remove(rule, Some(reason), SlotAfter::Retired, &mut transaction.batch, reader);
        }
        self.complete(transaction, reader);
    }

    /// Removes all rules of a bridge that is being removed.
    pub(super) fn remove_all_rules(&mut self, bridge: BridgeIdx, now_ms: u64, reader: &Reader) {
        let Some(control) = self.bridge_mut(bridge) else { return };
        // Looking for the few rules of the switch's own in a million places that are empty takes long.
        let stores = control.tables.values().filter(|store| !store.is_empty());
        let all: Vec<Arc<Rule>> = stores.flat_map(|s| s.rules.iter().flatten().cloned()).collect();
        let rules = all.into_iter().map(|r| (r, RemovedReason::Delete)).collect();
        self.remove_expired(rules, now_ms, reader);
    }

    /// The rule at a place, if it still has this serial number.
    pub(super) fn rule_at(
        &self,
        bridge: BridgeIdx,
        table_id: u8,
        idx: u32,
        serial: u64,
    ) -> Option<Arc<Rule>> {
        let store = self.bridge(bridge)?.tables.get(&table_id)?;
        store.rules.get(idx as usize)?.as_ref().filter(|r| r.serial == serial).cloned()
    }
}
