//! Changes that take many turns of the control thread and become visible as one version.
//!
//! A transaction puts its changes in place invisibly, some at a time; publishes them all at once; and then
//! handles the consequences of each, again some at a time. If a change fails, those before it are undone,
//! also some at a time. The caller says when a turn is over, because only the caller has a clock.
//!
//! Between two turns, others may change ports, settings and addresses, each as a version of its own. So a
//! transaction's version lies far enough ahead, and no version in between shows what it has put in place.
//!
//! Until it is done, a transaction has the tables to itself. Code that changes rules, groups or meters
//! meanwhile first completes the transaction, however long that takes ([`Control::finish`]), or waits for it
//! so as not to hold up everybody ([`Control::is_changing`]). What packets want to learn waits here
//! ([`Control::apply`]). Functions that show tables ([`Control::dump`], [`Control::table_stats`],
//! [`Control::groups`]) show them half changed meanwhile.

use super::change::{
    AsChange, Change, Changes, Consequences, Made, Outcome, Pace, PacketOut, Phase, SlotAfter, Transaction,
    Translated, Turn, Underway, Walk,
};
use super::events::RemovedReason;
use super::headway::VERSIONS_AHEAD_MIN;
use super::state::{Control, Inner};
use crate::effect::Effect;
use crate::flow_mod::{Command, FlowModError, TABLE_ALL};
use crate::topology::BridgeIdx;
use base::Version;
use base::rcu::Reader;
use openflow::message::{GROUP_ALL, GroupCommand, METER_ALL};
use std::sync::Arc;

/// Versions that others may publish per step of a transaction.
const VERSIONS_PER_STEP: u64 = 16;
/// The minimum number of steps to assume.
const STEPS_MIN: u64 = 1 << 10;
/// The maximum, whatever a client's bundle seems to take.
const STEPS_MAX: u64 = 1 << 18;
/// With fewer versions left, the transaction is completed at once.
const VERSIONS_LEFT_MIN: u64 = VERSIONS_AHEAD_MIN / 2;
/// How many requests to learn wait during a transaction; more are refused and counted.
const DEFERRED_MAX: usize = 1 << 16;
impl Control {
    /// Whether a controller may send a packet with these actions.
    pub fn check_packet_out(&self, bridge: BridgeIdx, out: PacketOut<'_>) -> Result<(), FlowModError> {
        self.inner.check_packet_out(bridge, out)
    }

    /// Makes several changes of any kind at once, as one version: all or none.
    pub fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
    ) -> Outcome {
        self.enter_to_change();
        self.transactions += 1;
        self.inner.change_all(all, now_ms, &self.reader)
    }

    /// Makes the changes of a transaction at once.
    pub fn change_at_once(&mut self, changes: &dyn Changes, now_ms: u64) -> Outcome {
        self.change_all((0..).map_while(|at| changes.change(at)), now_ms)
    }

    /// Begins a transaction of about `steps` steps ([`Self::steps_of`]), which continues with
    /// [`Self::go_on`]. Any current transaction is completed first, and its outcome is discarded.
    pub fn begin(&mut self, changes: Arc<dyn Changes>, steps: usize, now_ms: u64) {
        self.finish();
        self.transactions += 1;
        let wanted = (steps as u64).clamp(STEPS_MIN, STEPS_MAX) * VERSIONS_PER_STEP;
        let ahead = self.headway.take(wanted, now_ms);
        let version = Version(self.inner.published().0 + ahead);
        let transaction = Some(Transaction::new(Some(version), now_ms));
        self.underway = Some(Underway { transaction, changes, outcome: None });
    }

    /// The maximum number of steps that a change takes, at a few hundred nanoseconds each.
    pub fn steps_of(&self, bridge: BridgeIdx, change: Change<'_>) -> usize {
        let Some(control) = self.inner.bridge(bridge) else { return 1 };
        match change {
            Change::Flow(fm) => {
                let is_loose = matches!(fm.command, Command::Modify | Command::Delete);
                let within = if is_loose { self.inner.count_within(bridge, fm, &self.reader) } else { 0 };
                1 + within + self.inner.overlap_looks(bridge, fm, &self.reader)
            }
            Change::Group(gm) if gm.command == GroupCommand::Delete => {
                let id = (gm.group.group_id != GROUP_ALL).then_some(gm.group.group_id);
                let groups = if id.is_none() { control.groups.by_id.len() } else { 1 };
                groups + control.groups.references.count_of(id)
            }
            Change::MeterDelete(mm) => {
                let id = (mm.meter.meter_id != METER_ALL).then_some(mm.meter.meter_id);
                let meters = if id.is_none() { control.meters.by_id.len() } else { 1 };
                meters + control.meters.references.count_of(id)
            }
            Change::Group(_) | Change::Packet(_) | Change::Nothing => 1,
        }
    }

    /// The same, from the sizes of tables: it does not look at their masks.
    pub fn steps_at_most(&self, bridge: BridgeIdx, change: Change<'_>) -> usize {
        match change {
            Change::Flow(fm)
                if matches!(fm.command, Command::Modify | Command::Delete) || fm.flags.check_overlap =>
            {
                let Some(control) = self.inner.bridge(bridge) else { return 1 };
                let tables = control.tables.iter();
                let covered = tables.filter(|(id, _)| fm.table_id == TABLE_ALL || **id == fm.table_id);
                1 + covered.map(|(_, store)| store.shown).sum::<usize>()
            }
            _ => self.steps_of(bridge, change),
        }
    }

    /// How many transactions have begun, at once or in turns. What is read in pieces belongs to one version
    /// if the number has not changed.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Whether a transaction is in progress, or its outcome has not been collected.
    pub fn is_changing(&self) -> bool {
        self.underway.is_some()
    }

    /// Does a turn of the current transaction, which ends soon after `is_over` returns true. `Done` with an
    /// empty outcome if there is none.
    pub fn go_on(&mut self, is_over: &mut dyn FnMut() -> bool) -> Turn {
        self.reader.quiescent();
        let Some(underway) = &mut self.underway else { return Turn::Done(Ok(Consequences::default())) };
        let mut turn = Turn::More;
        if let Some(transaction) = underway.transaction.take() {
            let changes = underway.changes.clone();
            let mut pace = Pace::new(is_over);
            let next = |at: usize| changes.change(at);
            match self.inner.turn(transaction, next, &mut pace, &self.reader) {
                Ok(outcome) => turn = Turn::Done(outcome),
                Err(transaction) => {
                    if let Phase::Ready = transaction.phase {
                        turn = Turn::Ready;
                    }
                    underway.transaction = Some(*transaction);
                }
            }
        } else if let Some(outcome) = underway.outcome.take() {
            turn = Turn::Done(outcome);
        }
        self.reader.quiescent();
        if let Turn::Done(_) = turn {
            self.underway = None;
        }
        turn
    }

    /// Completes the current transaction, however long that takes. [`Self::go_on`] returns its outcome.
    pub fn finish(&mut self) {
        let Some(underway) = &mut self.underway else { return };
        let changes = underway.changes.clone();
        while let Some(transaction) = underway.transaction.take() {
            let next = |at: usize| changes.change(at);
            match self.inner.turn(transaction, next, &mut Pace::none(), &self.reader) {
                Ok(outcome) => underway.outcome = Some(outcome),
                Err(transaction) => underway.transaction = Some(*transaction),
            }
        }
    }

    /// To be called before changing anything other than tables.
    pub(super) fn enter(&mut self) {
        self.reader.quiescent();
        let version = self.underway.as_ref().and_then(|u| u.transaction.as_ref()?.version);
        if version.is_some_and(|version| version.0 < self.inner.published().0 + VERSIONS_LEFT_MIN) {
            self.finish();
        }
    }

    /// To be called before changing tables.
    pub(super) fn enter_to_change(&mut self) {
        self.reader.quiescent();
        self.finish();
    }

    /// Whether an effect must wait for the current transaction.
    pub(super) fn defers(&mut self, effect: &Effect) -> bool {
        let is_under_way = self.underway.as_ref().is_some_and(|u| u.transaction.is_some());
        if !is_under_way || !matches!(effect, Effect::LearnRule(_) | Effect::FinTimeout(_)) {
            return false;
        }
        if self.inner.deferred.len() < DEFERRED_MAX {
            self.inner.deferred.push_back(effect.clone());
        } else {
            self.inner.learning.refused += 1;
        }
        true
    }
}

impl Inner {
    /// Makes changes at once.
    pub(super) fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
        reader: &Reader,
    ) -> Outcome {
        let mut all = all.into_iter();
        // Each is asked for once, in order, because there are no pauses.
        match self.turn(Transaction::new(None, now_ms), |_| all.next(), &mut Pace::none(), reader) {
            Ok(outcome) => outcome,
            Err(_) => unreachable!("it pauses only where others are served meanwhile"),
        }
    }

    /// Publishes what a transaction has done without changes of its own.
    pub(super) fn complete(&mut self, transaction: Transaction, reader: &Reader) {
        let none = |_| None::<(BridgeIdx, Change<'_>)>;
        let done = self.turn(transaction, none, &mut Pace::none(), reader);
        debug_assert!(done.is_ok_and(|outcome| outcome.is_ok()), "nothing of it can fail or pause");
    }

    /// Does another turn of a transaction. Returns the transaction if it is not done.
    fn turn<C: AsChange>(
        &mut self,
        mut transaction: Transaction,
        next: impl FnMut(usize) -> Option<(BridgeIdx, C)>,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Outcome, Box<Transaction>> {
        self.staging = transaction.version;
        let outcome = self.turn_as_of(&mut transaction, next, pace, reader);
        self.staging = None;
        outcome.ok_or_else(|| Box::new(transaction))
    }

    /// The phases, in order. `None`: the turn is over, or everything is ready to be published.
    fn turn_as_of<C: AsChange>(
        &mut self,
        transaction: &mut Transaction,
        mut next: impl FnMut(usize) -> Option<(BridgeIdx, C)>,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Option<Outcome> {
        let now_ms = transaction.now_ms;
        loop {
            match &mut transaction.phase {
                Phase::Changing => match self.make_changes(transaction, &mut next, pace, reader) {
                    Ok(Made::Whole) => transaction.phase = Phase::Orphans(Vec::new()),
                    Ok(Made::InPart) => return None,
                    Err(error) => transaction.phase = Phase::TakingBack(transaction.at, error),
                },
                Phase::Orphans(_) => {
                    if self.remove_orphans(transaction, pace, reader) == Made::InPart {
                        return None;
                    }
                    transaction.phase = Phase::Ready;
                    if transaction.version.is_some() {
                        return None;
                    }
                }
                Phase::Ready => {
                    let version = self.coming();
                    let mut batch = std::mem::take(&mut transaction.batch);
                    if self.publish_batch(&mut batch) {
                        transaction.phase = Phase::Following(version, batch.steps.into_iter());
                    } else {
                        transaction.phase =
                            Phase::Learning(Ok(std::mem::take(&mut transaction.consequences)));
                    }
                }
                Phase::Following(version, steps) => {
                    for step in steps {
                        self.follow(step, *version, now_ms);
                        if pace.is_over() {
                            return None;
                        }
                    }
                    transaction.phase = Phase::Learning(Ok(std::mem::take(&mut transaction.consequences)));
                }
                Phase::TakingBack(at, error) => {
                    let batch = &mut transaction.batch;
                    while let Some(step) = batch.steps.pop() {
                        let small_steps = step.small_steps();
                        self.undo(step, reader);
                        if pace.is_over_after(small_steps) {
                            return None;
                        }
                    }
                    while let Some(slot) = batch.slots.pop() {
                        self.slots.retire(slot);
                        if pace.is_over() {
                            return None;
                        }
                    }
                    self.forget_batch();
                    // Tables that it created remain, and are logged as of this version.
                    if transaction.version.is_some() || self.has_new_table {
                        self.publish();
                    }
                    transaction.phase = Phase::Learning(Err((*at, error.clone())));
                }
                Phase::Learning(outcome) => {
                    // Each as a version of its own, as if it came now.
                    self.staging = None;
                    while let Some(effect) = transaction.version.and_then(|_| self.deferred.pop_front()) {
                        self.apply_to_rules(&effect, now_ms, reader);
                        if pace.is_over() {
                            return None;
                        }
                    }
                    return Some(std::mem::replace(outcome, Ok(Consequences::default())));
                }
            }
        }
    }

    fn make_changes<C: AsChange>(
        &mut self,
        transaction: &mut Transaction,
        next: &mut impl FnMut(usize) -> Option<(BridgeIdx, C)>,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Result<Made, FlowModError> {
        while let Some((bridge, change)) = next(transaction.at) {
            let (now_ms, first) = (transaction.now_ms, transaction.batch.steps.len());
            let change = change.as_change();
            let made = match change {
                Change::Flow(fm) => self.change(bridge, fm, now_ms, transaction, pace, reader)?,
                Change::Group(gm) => self.change_group(bridge, gm, now_ms, transaction, pace, reader)?,
                Change::MeterDelete(mm) => self.delete_meters(bridge, mm, transaction, pace, reader)?,
                Change::Nothing => Made::Whole,
                Change::Packet(out) => {
                    let translated = Translated::from(self.translate_between(bridge, out, reader)?);
                    transaction.batch.keep(translated.bytes());
                    transaction.consequences.packets.push(translated);
                    Made::Whole
                }
            };
            transaction.batch.check_kept()?;
            if made == Made::InPart {
                return Ok(Made::InPart);
            }
            transaction.at += 1;
            transaction.walk = Walk::Start;
            let steps = transaction.batch.small_steps_from(first);
            if pace.is_over_after(steps.max(change.steps())) {
                return Ok(Made::InPart);
            }
        }
        Ok(Made::Whole)
    }

    /// Removes what removed rules had learned, if they asked for that (`delete_learned`).
    fn remove_orphans(
        &mut self,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Made {
        loop {
            let Phase::Orphans(orphans) = &mut transaction.phase else { return Made::Whole };
            let Some(of) = orphans.last().copied() else {
                let found = self.learning.take_orphans();
                if found.is_empty() {
                    return Made::Whole;
                }
                *orphans = found;
                continue;
            };
            let store = self.bridge(of.bridge).and_then(|control| control.tables.get(&of.table_id));
            let Some(rule) = store.and_then(|store| store.rule_of_cookie(of.cookie)).cloned() else {
                orphans.pop();
                continue;
            };
            let steps = rule.actions.steps();
            let (reason, batch) = (Some(RemovedReason::Delete), &mut transaction.batch);
            if !self.remove(rule, reason, SlotAfter::Retired, batch, reader)
                && let Phase::Orphans(orphans) = &mut transaction.phase
            {
                debug_assert!(false, "a table has the rules that the coming version shows");
                orphans.pop();
            }
            if pace.is_over_after(steps) {
                return Made::InPart;
            }
        }
    }
}
