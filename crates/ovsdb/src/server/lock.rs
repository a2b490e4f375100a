//! Locks: names that one session at a time owns (RFC 7047 sections 4.1.8 to 4.1.10).

use super::SessionId;
use std::collections::{HashMap, VecDeque};

/// All locks of a server.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Who owns it, and who waits, in order.
    queues: HashMap<String, VecDeque<SessionId>>,
}

/// What others are to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It owns the lock now.
    Locked(SessionId, String),
    /// It owned the lock, and waits for it again.
    Stolen(SessionId, String),
}

impl Locks {
    /// Queues for a lock. Whether it is owned at once. `None`: the session has or awaits it already.
    pub(super) fn lock(&mut self, session: SessionId, name: &str) -> Option<bool> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&session) {
            return None;
        }
        queue.push_back(session);
        Some(queue.len() == 1)
    }

    /// Takes a lock from its owner, who then is the first to wait. `None`: the session has or awaits it already.
    pub(super) fn steal(&mut self, session: SessionId, name: &str) -> Option<Option<News>> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&session) {
            return None;
        }
        let victim = queue.front().map(|&victim| News::Stolen(victim, name.to_owned()));
        queue.push_front(session);
        Some(victim)
    }

    /// Gives a lock up, or the wait for it. `None`: the session has and awaits no such lock.
    pub(super) fn unlock(&mut self, session: SessionId, name: &str) -> Option<Option<News>> {
        let queue = self.queues.get_mut(name)?;
        let at = queue.iter().position(|&s| s == session)?;
        queue.remove(at);
        let next = queue.front().copied();
        if next.is_none() {
            self.queues.remove(name);
        }
        Some(next.filter(|_| at == 0).map(|next| News::Locked(next, name.to_owned())))
    }

    /// Whether the session owns the lock.
    pub(super) fn owns(&self, session: SessionId, name: &str) -> bool {
        self.queues.get(name).is_some_and(|queue| queue.front() == Some(&session))
    }

    /// The names that a session has or awaits.
    pub(super) fn of(&self, session: SessionId) -> Vec<String> {
        let queues = self.queues.iter().filter(|(_, queue)| queue.contains(&session));
        queues.map(|(name, _)| name.clone()).collect()
    }

    /// The number of locks that a session owns, has lost, and waits for; one lost counts as awaited.
    pub(super) fn counts(&self, session: SessionId) -> (usize, usize) {
        let queues = self.queues.values().filter(|queue| queue.contains(&session));
        queues.fold((0, 0), |(owned, awaited), queue| match queue.front() == Some(&session) {
            true => (owned + 1, awaited),
            false => (owned, awaited + 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(locks.counts(a), (1, 0));
        assert_eq!(locks.unlock(a, "l"), Some(None));
        assert_eq!(locks.unlock(a, "l"), None);
        assert!(locks.queues.is_empty());
        assert_eq!(locks.steal(a, "l"), Some(None), "from nobody");
    }
}
