//! Bundles: several changes of a world that packets see at once, or not at all.

use super::chance::Chance;
use super::rules::{addition, random_rule};
use super::world::World;
use openflow::message::GroupMod;
use switch::control::{Change, FlowMod};

enum Part {
    Flow(Box<FlowMod>),
    Group(GroupMod),
}

impl World {
    /// A bundle of rules that come and go, and of groups: all of it is done, or nothing where a part is
    /// refused.
    pub(super) fn bundle(&mut self, chance: &mut Chance) {
        let (mut model, mut changed, mut parts) = (self.model.clone(), vec![], vec![]);
        for _ in 0..chance.below(4) + 2 {
            let bridge = usize::from(chance.one_in(3));
            let of_bridge = &mut model.bridges[bridge];
            let part = match chance.below(4) {
                0 => {
                    let Some((fm, gone)) = of_bridge.delete(chance) else { continue };
                    changed.extend(gone);
                    Part::Flow(Box::new(fm))
                }
                1 => Part::Group(of_bridge.change_group(chance)),
                _ => {
                    let (table, rule) = random_rule(of_bridge, chance, bridge);
                    let fm = addition(table, &rule);
                    changed.push(rule.matching.clone());
                    of_bridge.put(table, rule);
                    Part::Flow(Box::new(fm))
                }
            };
            parts.push((self.bridges[bridge], part));
        }
        let changes = parts.iter().map(|(bridge, part)| match part {
            Part::Flow(fm) => (*bridge, Change::Flow(fm)),
            Part::Group(gm) => (*bridge, Change::Group(gm)),
        });
        let is_done = match self.are_bundles_torn {
            false => self.control.change_all(changes, self.now_ms).is_ok(),
            true => changes.into_iter().all(|part| self.control.change_all([part], self.now_ms).is_ok()),
        };
        // Where packets find out whether a refused one has left something behind.
        self.changed.extend(changed);
        if is_done {
            self.model = model;
        }
    }
}
