//! What a translation reports to a trace. Chosen at compile time, so that translation without a trace costs
//! nothing.

mod report;
mod steps;

pub use report::{Start, Texts, Traced, Wrong, trace};

use crate::rule::Rule;
use crate::translate::continuation::{Rest, Tracked};
use flow::{Action, Key};
use std::sync::Arc;

/// The result of a lookup in a table.
pub(crate) enum Found<'a> {
    Rule(&'a Arc<Rule>),
    /// No rule, and the packet is dropped.
    Nothing,
    /// No rule, and the packet goes to a controller.
    Miss,
    /// There was no lookup, since the packet is a fragment.
    Fragment,
}

/// A listener to a translation. Texts are passed as closures, so they are only created if there is a
/// listener.
pub(crate) trait Sink {
    /// Whether real packets are behind the translation, which then learns from them. A trace does not.
    const LEARNS: bool;
    /// Translation continues in this bridge; ends with [`Self::leave`] unless it is the first.
    fn bridge(&mut self, name: &str);
    /// A table was looked into; ends with [`Self::leave`].
    fn enter_table(&mut self, table_id: u8, found: Found<'_>);
    /// A bucket of a group is executed; ends with [`Self::leave`].
    fn enter_bucket(&mut self, bucket_id: u32);
    /// An action begins.
    fn begin_action(&mut self, action: &Action);
    /// The list of an action is empty.
    fn nothing_to_do(&mut self);
    /// The action set is executed; ends with [`Self::leave_action_set`].
    fn enter_action_set(&mut self);
    /// The end of the action set.
    fn leave_action_set(&mut self);
    /// The end of the innermost table, bucket or bridge.
    fn leave(&mut self);
    /// The effect of an action.
    fn detail(&mut self, text: impl FnOnce() -> String);
    /// Whether the translation may learn rules. A trace without a packet may not.
    fn may_learn(&self) -> bool {
        true
    }
    /// What happens to the packet instead of what the action says.
    fn fate(&mut self, text: impl FnOnce() -> String);
    /// Something that the author of the rules probably did not intend.
    fn warn(&mut self, text: impl FnOnce() -> String);
    /// Why the translation failed.
    fn error(&mut self, text: impl FnOnce() -> String);
    /// The flow is not cached, because its actions require that.
    fn slow(&mut self);
    /// The translation failed, for this reason.
    fn failed(&mut self, why: &'static str);
    /// Translation continues in a bridge where it was frozen; ends with [`Self::leave`].
    fn thaw(&mut self, bridge: &str, rest: &Rest);
    /// The next frozen actions belong to a rule of this table with this cookie.
    fn restore(&mut self, table_id: u8, cookie: u64);
    /// The packet comes back under a recirculation id; with `ct`, after it was tracked.
    fn recirculates(&mut self, id: u32, key: &Key, ct: Option<&Tracked<'_>>);
    /// The packet after the last action.
    fn end(&mut self, key: &Key);
}

/// No listener.
pub(crate) struct Quiet;

impl Sink for Quiet {
    const LEARNS: bool = true;
    #[inline(always)]
    fn bridge(&mut self, _: &str) {}
    #[inline(always)]
    fn enter_table(&mut self, _: u8, _: Found<'_>) {}
    #[inline(always)]
    fn enter_bucket(&mut self, _: u32) {}
    #[inline(always)]
    fn begin_action(&mut self, _: &Action) {}
    #[inline(always)]
    fn nothing_to_do(&mut self) {}
    #[inline(always)]
    fn enter_action_set(&mut self) {}
    #[inline(always)]
    fn leave_action_set(&mut self) {}
    #[inline(always)]
    fn leave(&mut self) {}
    #[inline(always)]
    fn detail(&mut self, _: impl FnOnce() -> String) {}
    #[inline(always)]
    fn fate(&mut self, _: impl FnOnce() -> String) {}
    #[inline(always)]
    fn warn(&mut self, _: impl FnOnce() -> String) {}
    #[inline(always)]
    fn error(&mut self, _: impl FnOnce() -> String) {}
    #[inline(always)]
    fn slow(&mut self) {}
    #[inline(always)]
    fn failed(&mut self, _: &'static str) {}
    #[inline(always)]
    fn thaw(&mut self, _: &str, _: &Rest) {}
    #[inline(always)]
    fn restore(&mut self, _: u8, _: u64) {}
    #[inline(always)]
    fn recirculates(&mut self, _: u32, _: &Key, _: Option<&Tracked<'_>>) {}
    #[inline(always)]
    fn end(&mut self, _: &Key) {}
}
