//! Bounds of what one translation remembers, and of how long it takes. Rules decide how often each action is
//! executed, and a list has thousands of them.

use super::Xlate;
use crate::trace::Sink;
use base::DropReason;
use flow::Action;

/// Maximum number of visits that a flow remembers, apart from those of the last list.
const VISITS_MAX: usize = 32_768;
/// Maximum number of effects, likewise: rules to learn, timeouts to set.
const EFFECTS_MAX: usize = 4_096;
/// Maximum number of actions that wait until a packet comes back.
const LEFT_MAX: usize = 16_384;
/// Maximum number of steps, apart from those of the last lookup and list: a subtable that was tried, an
/// action, or a bucket that was asked whether it is live. They take a few milliseconds.
const STEPS_MAX: u32 = 1 << 17;
/// A copy of the packet, for a bucket or a clone, takes as long as so many steps.
pub(super) const COPY_STEPS: u32 = 4;

impl<'a, S: Sink> Xlate<'a, S> {
    /// Whether it is more than a packet or its flow may take; then the translation has failed.
    pub(super) fn is_out_of_bounds(&mut self) -> bool {
        self.takes_too_long() || self.remembers_too_much()
    }

    fn takes_too_long(&mut self) -> bool {
        let is_too_long = self.out.steps > STEPS_MAX;
        if is_too_long {
            self.trace.error(|| format!("over {STEPS_MAX} masks tried and actions executed"));
            self.fail(DropReason::ResubmitLimit, "Too many resubmits");
            // Changes that do not touch the flow also decide how many steps there are.
            self.out.uncacheable = true;
        }
        is_too_long
    }

    fn remembers_too_much(&mut self) -> bool {
        let is_too_much = self.out.visits.len() > VISITS_MAX || self.out.effects.len() > EFFECTS_MAX;
        if is_too_much {
            self.trace.error(|| format!("over {VISITS_MAX} lookups or {EFFECTS_MAX} effects"));
            self.fail(DropReason::ResubmitLimit, "Too many resubmits");
            // A cached flow would have all of it.
            self.out.uncacheable = true;
        }
        is_too_much
    }

    /// Whether these actions may wait with those that do already; otherwise the translation has failed.
    pub(super) fn may_leave(&mut self, rest: &'a [Action]) -> bool {
        let waiting: usize = self.freezing.iter().flatten().map(|step| step.actions.len()).sum();
        let may_leave = waiting + rest.len() <= LEFT_MAX;
        if !may_leave {
            self.trace.error(|| format!("over {LEFT_MAX} actions wait for the packet to come back"));
            self.fail(DropReason::TranslationError, "Too many actions wait for a packet");
        }
        may_leave
    }
}
