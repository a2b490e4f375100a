//! What has ended and waits to be freed, until no worker sees a version that shows it.

use base::Version;
use std::collections::VecDeque;

/// Maximum number of rules unlinked and freed at once, so that a turn stays below a millisecond.
pub(super) const RETIRED_AT_ONCE: usize = 1_000;

/// What is left to free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Only what workers may still see.
    Waiting,
    /// Something that can be freed right away: call [`Control::collect`] again.
    More,
}

/// Things that have ended, each with the first version without it, oldest first.
pub(super) struct Ended<T>(VecDeque<(Version, T)>);

impl<T> Default for Ended<T> {
    fn default() -> Ended<T> {
        Ended(VecDeque::new())
    }
}

impl<T> Ended<T> {
    pub fn push(&mut self, version: Version, gone: T) {
        self.0.push_back((version, gone));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.0.retain(|(_, gone)| is_kept(gone));
    }

    /// Unlinks at most `max` of those that ended in a version that nothing from `oldest` on shows.
    pub fn unlink(&mut self, oldest: Version, max: usize, mut unlink: impl FnMut(T)) -> Left {
        for _ in 0..max {
            match self.0.pop_front_if(|(version, _)| *version <= oldest) {
                Some((_, gone)) => unlink(gone),
                None => return Left::Nothing,
            }
        }
        Left::More
    }
}
