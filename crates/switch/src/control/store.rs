//! The control side of one table: its rules by place, and their limits.

use super::eviction::{Evictable, GivenUp, TableLimits};
use crate::rule::Rule;
use std::sync::Arc;

/// The control side of one table.
pub(super) struct RuleStore {
    pub matched_slot: u32,
    pub missed_slot: u32,
    /// By place; `None` for a free place.
    pub rules: Vec<Option<Arc<Rule>>>,
    free: Vec<u32>,
    /// Rules visible to clients.
    pub shown: usize,
    /// Rules that are removed but still linked.
    pub vanishing: usize,
    pub limits: TableLimits,
    /// The limits that apply once rules are ordered, and how many places are.
    pub coming: Option<(TableLimits, usize)>,
    pub evictable: Evictable,
    /// Orders of earlier limits, to be freed.
    pub given_up: Vec<GivenUp>,
}

impl RuleStore {
    pub fn new(matched_slot: u32, missed_slot: u32) -> RuleStore {
        RuleStore {
            matched_slot,
            missed_slot,
            rules: Vec::new(),
            free: Vec::new(),
            shown: 0,
            vanishing: 0,
            limits: TableLimits::default(),
            coming: None,
            evictable: Evictable::default(),
            given_up: Vec::new(),
        }
    }

    /// Allocates a free place.
    pub fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.rules.push(None);
            (self.rules.len() - 1) as u32
        })
    }

    /// Puts a rule at its place.
    pub fn put(&mut self, rule: &Arc<Rule>) {
        self.rules[rule.idx as usize] = Some(rule.clone());
        self.shown += usize::from(!rule.flags.hidden);
        if !rule.flags.hidden {
            self.evictable.add(rule, &self.limits);
        }
    }

    /// Puts back a rule whose place was vacated, and possibly reused and vacated again.
    pub fn put_back(&mut self, rule: &Arc<Rule>) {
        let at = self.free.iter().rposition(|i| *i == rule.idx).expect("its place is free again");
        self.free.remove(at);
        self.put(rule);
    }

    pub fn vacate(&mut self, idx: u32) {
        if let Some(rule) = self.rules[idx as usize].take() {
            self.shown -= usize::from(!rule.flags.hidden);
            self.evictable.remove(rule.serial);
            self.free.push(idx);
        }
    }

    pub fn is_full(&self) -> bool {
        self.limits.rules_max.is_some_and(|max| self.shown >= max as usize)
    }

    /// Whether there are more rules than allowed.
    pub fn is_over(&self) -> bool {
        self.limits.rules_max.is_some_and(|max| self.shown > max as usize)
    }
}
