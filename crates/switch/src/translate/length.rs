//! `check_pkt_larger`: the rest is translated twice, for longer packets and for all others, since a packet's
//! length is not part of its flow.
//!
//! As in Open vSwitch, the rest is that of the list with the action, plus the action set. Lists that led to
//! this one continue with the packet as it was before, once for all lengths.

use super::dropped::{drop_at_last, has_output};
use super::{BUCKETS_MAX, Xlate};
use crate::trace::Sink;
use base::DropReason;
use datapath::DpAction;
use flow::Action;
use flow::action::SubField;

impl<'a, S: Sink> Xlate<'a, S> {
    #[inline(never)]
    pub(super) fn check_pkt_larger(&mut self, length: u16, target: &SubField, rest: &'a [Action]) {
        // Each further such action in a list doubles the work.
        self.buckets += 2;
        if self.buckets > BUCKETS_MAX {
            self.trace.error(|| format!("over {BUCKETS_MAX} buckets and branches"));
            self.error = Some(DropReason::TranslationError);
            return;
        }
        if self.is_exhausted() {
            return;
        }
        self.commit();
        self.depth += 1;
        let (greater, exits) = self.branch(target, true, rest);
        let (others, others_exit) = self.branch(target, false, rest);
        self.depth -= 1;
        self.exit = exits && others_exit;
        // Both branches have executed it.
        self.action_set.clear();
        self.out.actions.push(DpAction::CheckPktLen { length, greater, others });
    }

    /// If the datapath cannot compare lengths, each packet is translated separately. A packet of unknown
    /// length counts as short.
    #[cold]
    #[inline(never)]
    pub(super) fn compare_length(&mut self, length: u16, target: &SubField) {
        self.is_slow();
        let is_larger = self.out.packet_len.is_some_and(|len| len > usize::from(length));
        self.write_sub(target, is_larger.into());
        self.report_bits(target);
    }

    /// What happens to packets for which the bit has this value; returns whether that ends in an `exit`.
    fn branch(&mut self, target: &SubField, is_larger: bool, rest: &'a [Action]) -> (Vec<DpAction>, bool) {
        let (set, stack) = (self.copied_action_set(), self.stack.clone());
        let actions = self.translated_apart(|x| {
            x.write_sub(target, is_larger.into());
            if rest.is_empty() {
                x.trace.nothing_to_do();
            }
            x.actions(rest);
            x.finish_pipeline();
        });
        (self.action_set, self.stack) = (set, stack);
        self.list_ends = false;
        (self.ended(actions), std::mem::take(&mut self.exit))
    }

    /// A list that outputs nothing drops, with the reason that was found.
    fn ended(&self, mut actions: Vec<DpAction>) -> Vec<DpAction> {
        if !has_output(&actions) {
            drop_at_last(&mut actions, self.drop_reason);
        }
        actions
    }
}
