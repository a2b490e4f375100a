//! What `learn` actions with `delete_learned` need: how many rules learn with a cookie. How many have it is
//! known to their table, from the first rule on that counts them.

use crate::refused::{Learned, Refused};
use crate::rule::Rule;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Learning {
    /// How many rules learn with `delete_learned`.
    deleting: HashMap<Learned, u32>,
    /// Cookies for which the last rule that learns with `delete_learned` is gone.
    orphans: Vec<Learned>,
    /// Rules that could not be learned.
    pub refused: u64,
    /// Those that workers know of, and since when.
    pub refused_now: Refused,
    pub refused_since_ms: Option<u64>,
}

impl Learning {
    /// Records a rule that was put in place.
    pub fn added(&mut self, rule: &Rule) {
        for of in deleting(rule) {
            *self.deleting.entry(of).or_default() += 1;
        }
    }

    /// Records a rule that was removed.
    pub fn removed(&mut self, rule: &Rule) {
        for of in deleting(rule) {
            let Entry::Occupied(mut count) = self.deleting.entry(of) else { continue };
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                self.orphans.push(of);
            }
        }
    }

    /// The cookies whose rules must go, since no rule learns them any more.
    pub fn take_orphans(&mut self) -> Vec<Learned> {
        let mut orphans = std::mem::take(&mut self.orphans);
        orphans.retain(|of| !self.deleting.contains_key(of));
        orphans.sort_unstable();
        orphans.dedup();
        orphans
    }
}

/// What a rule learns and takes with it, once for each action.
fn deleting(rule: &Rule) -> impl Iterator<Item = Learned> {
    let learns = rule.actions.named().learns.iter().filter(|learn| learn.deletes);
    learns.map(|learn| Learned { bridge: rule.bridge, table_id: learn.table_id, cookie: learn.cookie })
}

#[cfg(test)]
mod tests {
    use crate::control::{Command, Control, FlowMod};
    use crate::topology::BridgeConfig;
    use base::hash::HashKey;
    use base::rcu::Domain;
    use flow::action::Learn;
    use flow::{Action, FieldId, Match};

    fn learning(cookie: u64, limit: u32) -> Action {
        Action::Learn(Box::new(Learn {
            table_id: 1,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            fin_idle_timeout_s: 0,
            fin_hard_timeout_s: 0,
            priority: 1,
            cookie,
            send_flow_removed: false,
            delete_learned: true,
            limit,
            result: None,
            specs: Vec::new(),
        }))
    }

    #[test]
    fn a_table_knows_the_rules_of_each_cookie_from_the_first_that_counts_them() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let mut state = 1u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for step in 0..3_000 {
            let matching = Match::any().with(FieldId::EthSrc, random(50).into());
            let fm = FlowMod {
                table_id: 1,
                new_cookie: Some(random(5)),
                ..FlowMod::add(matching.clone(), vec![])
            };
            let fm = match random(4) {
                0 => FlowMod { table_id: 1, ..FlowMod::delete(matching) },
                1 => FlowMod { command: Command::ModifyStrict, ..fm },
                _ => fm,
            };
            control.flow_mod(bridge, &fm, 0).unwrap();
            if step == 1_000 {
                let learns = FlowMod::add(Match::any(), vec![learning(9, 1)]);
                control.flow_mod(bridge, &learns, 0).unwrap();
            }
            let store = &control.inner.bridge(bridge).unwrap().tables[&1];
            for cookie in 0..6 {
                let all = store.rules.iter().flatten().filter(|rule| rule.cookie == cookie);
                let known = if step < 1_000 { 0 } else { all.count() as u32 };
                assert_eq!(control.learned_count(bridge, 1, cookie), known, "{cookie} after {step}");
                let first = store.rule_of_cookie(cookie);
                assert_eq!(
                    (first.is_some(), first.is_none_or(|rule| rule.cookie == cookie)),
                    (known > 0, true)
                );
            }
        }
    }

    /// A rule that took all that it had learned with it looked at each rule of the table for each cookie.
    #[test]
    fn a_chain_of_rules_that_take_one_another_with_them_goes_as_one() {
        let (_switch, mut control) = Control::new(Domain::new(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let link = |n: u64| {
            let matching = Match::any().with(FieldId::EthSrc, n.into());
            let actions = vec![learning(n + 1, 0)];
            FlowMod { table_id: 1, new_cookie: Some(n), ..FlowMod::add(matching, actions) }
        };
        (0..20_000).for_each(|n| control.flow_mod(bridge, &link(n), 0).unwrap());
        let version = control.inner.published();
        let first =
            FlowMod { table_id: 1, cookie: 0, cookie_mask: u64::MAX, ..FlowMod::delete(Match::any()) };
        control.flow_mod(bridge, &first, 0).unwrap();
        assert_eq!(control.flow_count(bridge, 1), 0);
        assert_eq!(control.inner.published(), version.next());
    }
}
