//! What `learn` actions with a limit or with `delete_learned` need: counts of the rules that learn with a
//! cookie and, for limits, of the rules that have it.
//!
//! Nothing is counted for cookies that no such action names, so that other flow-mods cost no more than a look
//! at an empty table.

use crate::rule::Rule;
use crate::topology::BridgeIdx;
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
    /// Rules with the cookie in the table, counted since one of them had a limit.
    rules: Option<u32>,
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
    /// Records a rule that was put in place. `count` counts the rules with a cookie, including this one. That
    /// takes long, and is done for limits alone.
    pub fn added(&mut self, rule: &Rule, count: impl Fn(Learned) -> u32) {
        if !self.counts.is_empty()
            && let Some(Counts { rules: Some(rules), .. }) = self.counts.get_mut(&own(rule))
        {
            *rules += 1;
        }
        for learn in &rule.actions.learns {
            let of = Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie };
            let counts = self.counts.entry(of).or_default();
            counts.deleting += u32::from(learn.deletes);
            if learn.limits {
                counts.limiting += 1;
                counts.rules.get_or_insert_with(|| count(of));
            }
        }
    }

    /// Records a rule that was removed.
    pub fn removed(&mut self, rule: &Rule) {
        if self.counts.is_empty() {
            return;
        }
        if let Some(Counts { rules: Some(rules), .. }) = self.counts.get_mut(&own(rule)) {
            *rules = rules.saturating_sub(1);
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

    /// How many rules have a cookie, if it is counted; otherwise 0.
    pub fn count(&self, of: Learned) -> u32 {
        self.counts.get(&of).and_then(|counts| counts.rules).unwrap_or(0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Control, FlowMod, RuleFilter};
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::action::Learn;
    use flow::{Action, Match};

    #[test]
    fn rules_are_counted_for_limits_alone() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let mut learning = Learning::default();
        let mut learn = |limit, count: &dyn Fn(Learned) -> u32| {
            let learn = Learn {
                table_id: 1,
                idle_timeout_s: 0,
                hard_timeout_s: 0,
                fin_idle_timeout_s: 0,
                fin_hard_timeout_s: 0,
                priority: 1,
                cookie: 7,
                send_flow_removed: false,
                delete_learned: true,
                limit,
                result: None,
                specs: Vec::new(),
            };
            let rule = FlowMod::add(Match::any(), vec![Action::Learn(Box::new(learn))]);
            control.flow_mod(bridge, &rule, 0).unwrap();
            learning.added(&control.rules(bridge, &RuleFilter::default())[0], count);
            learning.count(Learned { bridge, table_id: 1, cookie: 7 })
        };
        assert_eq!(learn(0, &|_| unreachable!("a million rules are not looked at for nothing")), 0);
        assert_eq!(learn(9, &|_| 5), 5);
        assert_eq!(learn(9, &|_| unreachable!("it is known")), 5);
    }
}
