//! The rules of a table by cookie, for `learn` actions that limit or delete what they have learned.
//!
//! Rules of one cookie form a list that runs through their places, so that a rule takes 8 bytes here, and
//! each different cookie an entry of a map.

use crate::rule::Rule;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// No place.
const NONE: u32 = u32::MAX;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Cookies {
    lists: HashMap<u64, List>,
    /// By place.
    links: Vec<Link>,
}

struct List {
    first: u32,
    len: u32,
}

/// The neighbours of a rule in its list.
#[derive(Clone)]
struct Link {
    before: u32,
    after: u32,
}

impl Cookies {
    /// Those of the rules at these places.
    pub fn of(rules: &[Option<Arc<Rule>>]) -> Cookies {
        let mut cookies = Cookies::default();
        rules.iter().flatten().filter(|rule| !rule.flags.hidden).for_each(|rule| cookies.add(rule));
        cookies
    }

    pub fn add(&mut self, rule: &Rule) {
        let place = rule.idx as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, Link { before: NONE, after: NONE });
        }
        let list = self.lists.entry(rule.cookie).or_insert(List { first: NONE, len: 0 });
        self.links[place] = Link { before: NONE, after: list.first };
        if let Some(second) = self.links.get_mut(list.first as usize) {
            second.before = rule.idx;
        }
        *list = List { first: rule.idx, len: list.len + 1 };
    }

    pub fn remove(&mut self, rule: &Rule) {
        let Entry::Occupied(mut entry) = self.lists.entry(rule.cookie) else { return };
        let Link { before, after } = self.links[rule.idx as usize];
        if let Some(next) = self.links.get_mut(after as usize) {
            next.before = before;
        }
        match self.links.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => entry.get_mut().first = after,
        }
        entry.get_mut().len -= 1;
        if entry.get().len == 0 {
            entry.remove();
        }
    }

    /// How many rules have a cookie.
    pub fn count(&self, cookie: u64) -> u32 {
        self.lists.get(&cookie).map_or(0, |list| list.len)
    }

    /// The place of a rule with a cookie.
    pub fn first(&self, cookie: u64) -> Option<u32> {
        self.lists.get(&cookie).map(|list| list.first)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.lists.capacity() * size_of::<(u64, List)>()
    }
}
