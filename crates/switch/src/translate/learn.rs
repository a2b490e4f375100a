//! `learn`: rules derived from packets.
//!
//! A worker only checks whether the rule already exists in the form that the packet requires. If so, the flow
//! can be cached like any other: it visits the learned rule, so that it is translated again when that goes,
//! and credits the slot that records when it was last learned. If not, the worker decides nothing: the packet
//! goes to the control thread unchanged ([`hand_over`]), which translates it, installs the rule, and only
//! then executes the rest. So the rule exists before the packet leaves, and for every packet after it. The
//! bounded ring of packet-ins limits how many wait. A rule that could not be added is not asked for again by
//! each packet ([`refused`](crate::refused)).
//!
//! As in Open vSwitch, lookups in the same translation do not see what it learns.

use super::Xlate;
use crate::changelog::word_table;
use crate::effect::{Effect, LearnedRule};
use crate::flow_mod::{Command, FlowMod};
use crate::refused::Learned;
use crate::rule::RuleFlags;
use crate::trace::Sink;
use base::OfPort;
use datapath::{DpAction, PacketInSpec, Translation};
use flow::action::{Learn, LearnSource, LearnTarget, PacketInReason, SubField};
use flow::options::{OptionMatch, Wide};
use flow::{Action, Key, Match, Mf};
use openflow::Version;
use openflow::text::{PortNames, actions_text, match_text};
use std::sync::Arc;

impl<'a, S: Sink> Xlate<'a, S> {
    #[inline(never)]
    pub(super) fn learn_rule(&mut self, learn: &Learn) {
        let (mut matching, actions) = self.learned(learn);
        if !self.trace.may_learn() {
            self.trace.warn(|| "suppressing side effects, so learn action ignored".to_string());
            return;
        }
        if self.bridge.options().place(&mut matching).is_err() {
            self.trace.warn(|| "the rule matches a tunnel option that is not mapped".to_string());
            return;
        }
        self.trace.detail(|| describe(learn, &matching, &actions));
        let table = self.bridge.state.table(learn.table_id);
        let priority = i32::from(learn.priority);
        let found = table.and_then(|t| t.rules.find_exact(&matching, priority, self.version, self.reader));
        // Learning changes neither flags nor timeouts of a rule.
        let known = found.map(|rule| &rule.data().rule);
        let known = known.filter(|rule| rule.cookie == learn.cookie && rule.actions.list[..] == actions[..]);
        let refusal = if known.is_none() { self.refusal(learn, found.is_none()) } else { None };
        let within = match (known, refusal) {
            (Some(rule), _) => {
                self.out.credits.extend(rule.learn_slot);
                if self.learned.is_some() {
                    self.out.effects.extend(rule.learn_slot.map(Effect::LearnedAgain));
                }
                self.visit_learned(learn.table_id, &matching);
                true
            }
            (None, Some(is_within)) => {
                self.visit_learned(learn.table_id, &matching);
                self.visit_word(word_table::ports(self.bridge.idx.0), word_table::REFUSED);
                is_within
            }
            // There is no flow, so there are no visits.
            (None, None) => {
                self.out.uncacheable = true;
                if self.by_worker {
                    // One will do: the packet is translated again, where rules are learned.
                    let learns =
                        |effect: &Effect| matches!(effect, Effect::ToLearn(idx) if *idx == self.bridge.idx);
                    if !self.out.effects.last().is_some_and(learns) {
                        self.out.effects.push(Effect::ToLearn(self.bridge.idx));
                    }
                    true
                } else {
                    self.learn_new(learn, matching, actions)
                }
            }
        };
        if let Some(result) = &learn.result {
            self.write_sub(result, within.into());
            self.report_bits(result);
        }
        if !within {
            self.trace.detail(|| "Limit exceeded, learn failed".to_string());
        }
    }

    /// Whether a worker knows that the rule, which is new or not, would be refused; if so, whether it would
    /// be within the limit.
    fn refusal(&self, learn: &Learn, is_new: bool) -> Option<bool> {
        if !self.by_worker {
            return None;
        }
        let of = Learned { bridge: self.bridge.idx, table_id: learn.table_id, cookie: learn.cookie };
        self.switch.refused.read(self.reader).of(of, learn.limit, is_new)
    }

    /// Requests the addition or modification of the rule; `false` if that would exceed the limit.
    fn learn_new(&mut self, learn: &Learn, matching: Match, actions: Vec<Action>) -> bool {
        let bridge = self.bridge.idx;
        if learn.limit != 0
            && let Some(learned) = self.learned
        {
            // Rules learned from this packet so far are not in the table yet.
            let is_like = |effect: &&Effect| match effect {
                Effect::LearnRule(rule) => {
                    (rule.bridge, rule.flow_mod.table_id, rule.flow_mod.new_cookie)
                        == (bridge, learn.table_id, Some(learn.cookie))
                }
                _ => false,
            };
            let taught = self.out.effects.iter().filter(is_like).count() as u32;
            if learned(bridge, learn.table_id, learn.cookie) + taught >= learn.limit {
                let Learn { table_id, cookie, limit, .. } = *learn;
                self.out.effects.push(Effect::LimitReached { bridge, table_id, cookie, limit });
                return false;
            }
        }
        let flow_mod = FlowMod {
            command: Command::ModifyStrict,
            table_id: learn.table_id,
            priority: learn.priority.into(),
            new_cookie: Some(learn.cookie),
            idle_timeout_s: learn.idle_timeout_s,
            hard_timeout_s: learn.hard_timeout_s,
            flags: RuleFlags {
                send_flow_removed: learn.send_flow_removed,
                learned: true,
                ..RuleFlags::default()
            },
            version: Version::V10,
            ..FlowMod::add(matching, actions)
        };
        let learned = LearnedRule { bridge, flow_mod, limit: learn.limit };
        self.out.effects.push(Effect::LearnRule(Box::new(learned)));
        true
    }

    /// Makes the flow depend on the learned rule, as if a packet that matches the rule had been looked up.
    fn visit_learned(&mut self, table_id: u8, matching: &Match) {
        let before = (self.key.clone(), self.written.clone(), self.any_written, self.noted, self.dscp);
        for b in matching.mask.0.present_blocks() {
            for w in 0..8 {
                let bits = matching.mask.0.word(b, w);
                if bits != 0 {
                    self.write(b, w, bits, matching.key.word(b, w));
                }
            }
        }
        self.visit_rules(table_id);
        (*self.key, *self.written, self.any_written, self.noted, self.dscp) = before;
    }

    /// The rule's match and actions, derived from the packet. What is read of the packet becomes part of the
    /// mask.
    fn learned(&mut self, learn: &Learn) -> (Match, Vec<Action>) {
        let (mut matching, mut actions) = (Match::any(), Vec::new());
        let (idle_timeout_s, hard_timeout_s) = (learn.fin_idle_timeout_s, learn.fin_hard_timeout_s);
        if idle_timeout_s != 0 || hard_timeout_s != 0 {
            actions.push(Action::FinTimeout { idle_timeout_s, hard_timeout_s });
        }
        for part in &learn.specs {
            let value = match &part.source {
                LearnSource::Value(value) => **value,
                LearnSource::Field(source) => match source.field {
                    Mf::TunMetadata(idx) => self.read_option(idx, source),
                    _ => Wide::from(self.read_sub(source)),
                },
            };
            match part.target {
                LearnTarget::Match(target) => add_match(&mut matching, &target, &value),
                LearnTarget::Load(target) => add_loads(&mut actions, target, &value),
                LearnTarget::Output => add_output(&mut actions, &value),
            }
        }
        matching.imply_packet_type();
        (matching, actions)
    }
}

fn add_match(matching: &mut Match, target: &SubField, value: &Wide) {
    let mask = Wide::low(target.count).shl(target.offset);
    let value = value.shl(target.offset);
    let Mf::TunMetadata(idx) = target.field else {
        return matching.add_mf(target.field, value.low_u128(), mask.low_u128());
    };
    let before = matching.options.get(idx);
    let or = |a: &Wide, b: &Wide| {
        let (a, b) = (a.to_be_bytes(), b.to_be_bytes());
        let bytes: Vec<u8> = a.iter().zip(b).map(|(a, b)| a | b).collect();
        Wide::from_be_bytes(&bytes).unwrap_or(Wide::ZERO)
    };
    let option = match before {
        Some(old) => OptionMatch { value: or(&old.value, &value), mask: or(&old.mask, &mask), ..*old },
        None => OptionMatch { idx, value, mask, bytes: None },
    };
    matching.options.set(option);
}

/// One load action has 64 bits.
fn add_loads(actions: &mut Vec<Action>, target: SubField, value: &Wide) {
    if let Mf::TunMetadata(idx) = target.field {
        let mask = Box::new(Wide::low(target.count).shl(target.offset));
        return actions.push(Action::SetOption { idx, value: Box::new(value.shl(target.offset)), mask });
    }
    let value = value.low_u128();
    for from in (0..target.count).step_by(64) {
        let count = (target.count - from).min(64);
        let part = (value >> from) as u64 & (u64::MAX >> (64 - count));
        let target = SubField { offset: target.offset + from, count, ..target };
        actions.push(Action::Load { target, value: part, as_set_field: false });
    }
}

/// Only ports to which a rule may output without a further argument.
fn add_output(actions: &mut Vec<Action>, port: &Wide) {
    let Ok(number) = u16::try_from(port.low_u128()) else { return };
    let port = OfPort(number);
    if port < OfPort::MAX || matches!(port, OfPort::IN_PORT | OfPort::FLOOD | OfPort::LOCAL | OfPort::ALL) {
        actions.push(Action::Output { port, max_len: 0 });
    }
}

/// The rule in the format of `ofproto/trace`.
fn describe(learn: &Learn, matching: &Match, actions: &[Action]) -> String {
    let mut text = format!("table={} ", learn.table_id);
    let m = match_text(matching, PortNames::none());
    if !m.is_empty() {
        text += &m;
        text.push(' ');
    }
    text += &format!("priority={}", learn.priority);
    if learn.cookie != 0 {
        text += &format!(" cookie={:#x}", learn.cookie);
    }
    if learn.idle_timeout_s != 0 {
        text += &format!(" idle={}", learn.idle_timeout_s);
    }
    if learn.hard_timeout_s != 0 {
        text += &format!(" hard={}", learn.hard_timeout_s);
    }
    if learn.send_flow_removed {
        text += " send_flow_rem";
    }
    text + " actions=" + &actions_text(actions, Version::V10, PortNames::none())
}

/// Passes the packet to the control thread for translation, if there is something to learn first.
pub(crate) fn hand_over(key: &Key, out: &mut Translation<Effect>) {
    let to_learn = |effect: &Effect| if let Effect::ToLearn(bridge) = effect { Some(*bridge) } else { None };
    let Some(bridge) = out.effects.iter().find_map(to_learn) else { return };
    let spec = PacketInSpec {
        bridge: bridge.0,
        table_id: 0,
        cookie: u64::MAX,
        reason: PacketInReason::Action,
        is_table_miss: false,
        is_without_rule: false,
        max_len: u16::MAX,
        controller_id: 0,
        userdata: Vec::new(),
        continuation: None,
        slow_path: true,
        is_tracked: true,
        state_id: 0,
        metadata: key.clone(),
    };
    out.effects.clear();
    out.credits.clear();
    out.actions.clear();
    out.actions.push(DpAction::PacketIn(Arc::new(spec)));
    out.uncacheable = true;
}
