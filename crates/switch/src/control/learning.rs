//! Rules that `learn` creates: the results of translations, and the counts that limits and `delete_learned`
//! need.
//!
//! Only cookies that some `learn` action with a limit or with `delete_learned` names are counted, so that
//! other flow-mods cost no more than a look at an empty table.

use super::batch::Change;
use super::{Control, Inner};
use crate::effect::{Effect, LearnedRule};
use crate::rule::Rule;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use std::collections::HashMap;

/// A cookie in a table of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Learned {
    pub bridge: BridgeIdx,
    pub table_id: u8,
    pub cookie: u64,
}

#[derive(Default)]
struct Counts {
    /// Rules that learn with a limit.
    limiting: u32,
    /// Rules that learn with `delete_learned`.
    deleting: u32,
    /// Rules with the cookie in the table.
    rules: u32,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Learning {
    counts: HashMap<Learned, Counts>,
    /// Cookies for which the last rule that learns with `delete_learned` is gone.
    orphans: Vec<Learned>,
    /// Rules that could not be learned.
    pub refused: u64,
}

impl Learning {
    /// Records a rule that was put in place. `count` counts the rules with a cookie, including this one.
    pub fn added(&mut self, rule: &Rule, count: impl Fn(Learned) -> u32) {
        if !self.counts.is_empty()
            && let Some(counts) = self.counts.get_mut(&own(rule))
        {
            counts.rules += 1;
        }
        for learn in &rule.actions.learns {
            let of = Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie };
            let counts =
                self.counts.entry(of).or_insert_with(|| Counts { rules: count(of), ..Counts::default() });
            counts.limiting += u32::from(learn.limits);
            counts.deleting += u32::from(learn.deletes);
        }
    }

    /// Records a rule that was removed.
    pub fn removed(&mut self, rule: &Rule) {
        if self.counts.is_empty() {
            return;
        }
        if let Some(counts) = self.counts.get_mut(&own(rule)) {
            counts.rules = counts.rules.saturating_sub(1);
        }
        for learn in &rule.actions.learns {
            let of = Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie };
            let Some(counts) = self.counts.get_mut(&of) else { continue };
            counts.limiting -= u32::from(learn.limits);
            counts.deleting -= u32::from(learn.deletes);
            if learn.deletes && counts.deleting == 0 {
                self.orphans.push(of);
            }
            if counts.limiting == 0 && counts.deleting == 0 {
                self.counts.remove(&of);
            }
        }
    }

    /// The cookies whose rules must go, since no rule learns them any more.
    pub fn take_orphans(&mut self) -> Vec<Learned> {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain(|of| self.counts.get(of).is_none_or(|counts| counts.deleting == 0));
        orphans.sort_unstable();
        orphans.dedup();
        orphans
    }
}

fn own(rule: &Rule) -> Learned {
    Learned { bridge: rule.bridge, table_id: rule.table_id, cookie: rule.cookie }
}

impl Control {
    /// The number of rules with a cookie in a table, if a `learn` action limits that number; otherwise 0.
    pub fn learned_count(&self, bridge: BridgeIdx, table_id: u8, cookie: u64) -> u32 {
        self.inner.learning.counts.get(&Learned { bridge, table_id, cookie }).map_or(0, |counts| counts.rules)
    }

    /// Rules that could not be learned because their table was full or the bridge gone.
    pub fn learn_refused(&self) -> u64 {
        self.inner.learning.refused
    }
}

impl Inner {
    /// Applies effects of a translation to rules.
    pub(super) fn apply_to_rules(&mut self, effect: &Effect, now_ms: u64, reader: &Reader) {
        match effect {
            Effect::FinTimeout(fin) => self.lower_timeouts(*fin),
            Effect::LearnRule(learned) => self.learn_rule(learned, now_ms, reader),
            // These change no rules.
            Effect::Learn { .. } | Effect::ToLearn(_) | Effect::LearnedAgain(_) | Effect::Failed(_) => {}
        }
    }

    /// Adds or modifies a rule as a translation requests.
    fn learn_rule(&mut self, learned: &LearnedRule, now_ms: u64, reader: &Reader) {
        let LearnedRule { bridge, flow_mod, limit } = learned;
        let of = Learned {
            bridge: *bridge,
            table_id: flow_mod.table_id,
            cookie: flow_mod.new_cookie.unwrap_or(0),
        };
        let full = *limit != 0 && self.learning.counts.get(&of).is_some_and(|counts| counts.rules >= *limit);
        if full || self.change_all([(*bridge, Change::Flow(flow_mod))], now_ms, reader).is_err() {
            self.learning.refused += 1;
        }
    }
}
