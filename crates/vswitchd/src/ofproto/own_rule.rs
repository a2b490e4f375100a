//! Rules that the switch itself owns.

use flow::Match;

/// A rule that says NORMAL for a match, above all that controllers may say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OwnRule {
    pub priority: i32,
    pub matching: Match,
    /// The queue that its packets leave by.
    pub queue_id: Option<u32>,
}
