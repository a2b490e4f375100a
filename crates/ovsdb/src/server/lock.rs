//! Locks: names that one session at a time owns (RFC 7047 sections 4.1.8 to 4.1.10).

use super::session::SessionId;
use std::collections::{HashMap, HashSet, VecDeque};

/// All locks of a server.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Owner and waiting sessions, in order.
    queues: HashMap<String, VecDeque<SessionId>>,
    /// The sessions, owning or waiting, that requested the lock with "steal".
    thieves: HashSet<(SessionId, String)>,
    /// Locks stolen from a thief. It does not wait, and has yet to unlock them.
    lost: HashSet<(SessionId, String)>,
    /// Of each session that has any.
    of: HashMap<SessionId, Mine>,
}

/// What one session has, awaits or has lost.
#[derive(Debug, Default)]
struct Mine {
    names: HashSet<String>,
    counts: LockCounts,
}

/// A session's locks, by what happened to them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct LockCounts {
    /// It owns them.
    pub held: usize,
    /// It waits for them, for the first time or again.
    pub waiting: usize,
    /// It stole them, and another session then stole them from it.
    pub lost: usize,
}

/// Notifications for other sessions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It owns the lock now.
    Locked(SessionId, String),
    /// It owned the lock, and waits for it again, unless it was a thief itself.
    Stolen(SessionId, String),
}

impl Locks {
    /// Queues for a lock. Whether it is owned at once. `None`: the session has or awaits it already.
    pub(super) fn lock(&mut self, session: SessionId, name: &str) -> Option<bool> {
        let queue = self.queue_without(session, name)?;
        queue.push_back(session);
        let is_owner = queue.len() == 1;
        let mine = self.of.entry(session).or_default();
        mine.names.insert(name.to_owned());
        *(if is_owner { &mut mine.counts.held } else { &mut mine.counts.waiting }) += 1;
        Some(is_owner)
    }

    /// Takes a lock from its owner, which then is first in the queue or, if it had itself stolen the lock,
    /// has lost it. `None`: the session has or awaits it already.
    pub(super) fn steal(&mut self, session: SessionId, name: &str) -> Option<Option<News>> {
        let queue = self.queue_without(session, name)?;
        let victim = queue.front().copied();
        queue.push_front(session);
        let mine = self.of.entry(session).or_default();
        mine.names.insert(name.to_owned());
        mine.counts.held += 1;
        self.thieves.insert((session, name.to_owned()));
        Some(victim.map(|victim| {
            let stolen = (victim, name.to_owned());
            let is_lost = self.thieves.remove(&stolen);
            let counts = self.counts_mut(victim);
            counts.held -= 1;
            *(if is_lost { &mut counts.lost } else { &mut counts.waiting }) += 1;
            if is_lost {
                self.queues.entry(name.to_owned()).or_default().remove(1);
                self.lost.insert(stolen);
            }
            News::Stolen(victim, name.to_owned())
        }))
    }

    /// Owner and waiting sessions of a lock. `None`: this session is among them, or has yet to unlock it.
    fn queue_without(&mut self, session: SessionId, name: &str) -> Option<&mut VecDeque<SessionId>> {
        if self.lost.contains(&(session, name.to_owned())) {
            return None;
        }
        let queue = self.queues.entry(name.to_owned()).or_default();
        (!queue.contains(&session)).then_some(queue)
    }

    /// Gives a lock up, or the wait for it. `None`: the session has and awaits no such lock.
    pub(super) fn unlock(&mut self, session: SessionId, name: &str) -> Option<Option<News>> {
        let key = (session, name.to_owned());
        if self.lost.remove(&key) {
            self.counts_mut(session).lost -= 1;
            self.forget(session, name);
            return Some(None);
        }
        let queue = self.queues.get_mut(name)?;
        let at = queue.iter().position(|&s| s == session)?;
        queue.remove(at);
        self.thieves.remove(&key);
        let next = queue.front().copied();
        if next.is_none() {
            self.queues.remove(name);
        }
        let counts = self.counts_mut(session);
        *(if at == 0 { &mut counts.held } else { &mut counts.waiting }) -= 1;
        self.forget(session, name);
        Some(next.filter(|_| at == 0).map(|next| {
            let counts = self.counts_mut(next);
            counts.waiting -= 1;
            counts.held += 1;
            News::Locked(next, name.to_owned())
        }))
    }

    /// The session has nothing more to do with the lock.
    fn forget(&mut self, session: SessionId, name: &str) {
        if let Some(mine) = self.of.get_mut(&session) {
            mine.names.remove(name);
            if mine.names.is_empty() {
                self.of.remove(&session);
            }
        }
    }

    fn counts_mut(&mut self, session: SessionId) -> &mut LockCounts {
        &mut self.of.entry(session).or_default().counts
    }

    /// Whether the session owns the lock.
    pub(super) fn owns(&self, session: SessionId, name: &str) -> bool {
        self.queues.get(name).is_some_and(|queue| queue.front() == Some(&session))
    }

    /// The names that a session has, awaits or has lost.
    pub(super) fn of(&self, session: SessionId) -> Vec<String> {
        self.of.get(&session).into_iter().flat_map(|mine| &mine.names).cloned().collect()
    }

    /// How many there are of them.
    pub(super) fn count(&self, session: SessionId) -> usize {
        self.of.get(&session).map_or(0, |mine| mine.names.len())
    }

    /// How many of each kind. They are kept, since each change of a database may ask for those of all
    /// sessions.
    pub(super) fn counts(&self, session: SessionId) -> LockCounts {
        self.of.get(&session).map_or(LockCounts::default(), |mine| mine.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UuidGenerator;

    #[test]
    fn the_counts_of_a_session_are_those_of_its_names() {
        let mut random = UuidGenerator::from_seed(3);
        let mut below = |n: u64| random.next_u64() % n;
        let mut locks = Locks::default();
        for _ in 0..2_000 {
            let (session, name) = (SessionId(below(4)), format!("l{}", below(4)));
            match below(4) {
                0 => drop(locks.lock(session, &name)),
                1 => drop(locks.steal(session, &name)),
                _ => drop(locks.unlock(session, &name)),
            }
            for session in (0..4).map(SessionId) {
                let mut counts = LockCounts::default();
                for name in locks.of(session) {
                    if locks.lost.contains(&(session, name.clone())) {
                        counts.lost += 1;
                    } else if locks.owns(session, &name) {
                        counts.held += 1;
                    } else {
                        counts.waiting += 1;
                    }
                }
                assert_eq!(locks.counts(session), counts);
            }
        }
    }

    #[test]
    fn a_lock_goes_round_in_order_and_a_stolen_one_comes_back() {
        let [a, b, c] = [1, 2, 3].map(SessionId);
        let mut locks = Locks::default();
        assert_eq!(locks.lock(a, "l"), Some(true));
        assert_eq!(locks.lock(a, "l"), None);
        assert_eq!(locks.lock(b, "l"), Some(false));
        assert_eq!(locks.steal(c, "l"), Some(Some(News::Stolen(a, "l".into()))));
        assert!(locks.owns(c, "l") && !locks.owns(a, "l"));
        assert_eq!(locks.unlock(b, "l"), Some(None), "it only waited");
        assert_eq!(locks.unlock(c, "l"), Some(Some(News::Locked(a, "l".into()))));
        assert_eq!(locks.counts(a), LockCounts { held: 1, ..LockCounts::default() });
        assert_eq!(locks.unlock(a, "l"), Some(None));
        assert_eq!(locks.unlock(a, "l"), None);
        assert!(locks.queues.is_empty());
        assert_eq!(locks.steal(a, "l"), Some(None), "from nobody");
    }

    #[test]
    fn what_is_stolen_from_a_thief_is_lost_until_it_is_unlocked() {
        let [a, b, c] = [1, 2, 3].map(SessionId);
        let mut locks = Locks::default();
        assert_eq!(locks.steal(a, "l"), Some(None));
        assert_eq!(locks.steal(b, "l"), Some(Some(News::Stolen(a, "l".into()))));
        assert_eq!(locks.counts(a), LockCounts { lost: 1, ..LockCounts::default() });
        assert_eq!((locks.lock(a, "l"), locks.steal(a, "l")), (None, None), "it must unlock first");
        assert_eq!(locks.unlock(b, "l"), Some(None), "nobody waits");
        assert_eq!(locks.lock(c, "l"), Some(true));
        assert_eq!(locks.of(a), ["l"]);
        assert_eq!((locks.unlock(a, "l"), locks.unlock(a, "l")), (Some(None), None));
        assert!(locks.owns(c, "l"));
        assert_eq!(locks.unlock(c, "l"), Some(None));
        assert!(
            locks.queues.is_empty()
                && locks.of.is_empty()
                && locks.thieves.is_empty()
                && locks.lost.is_empty()
        );
    }
}
