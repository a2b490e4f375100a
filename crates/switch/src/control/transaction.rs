//! Changes that take many turns of the control thread, and become visible as one version.
//!
//! A transaction puts its changes in place invisibly, some at a time; publishes them all at once; and then
//! does, again some at a time, what follows from each. If a change fails, those before it are taken back,
//! some at a time too. The caller says when a turn is over, for only it has a clock.
//!
//! Between two turns others may change ports, settings and addresses, each with a version of its own. So a
//! transaction's version lies far enough ahead, and no version in between sees what it has put in place.
//!
//! Tables are its own until it is done: whoever changes rules, groups or meters meanwhile has it finished
//! first, whatever that takes ([`Control::finish`]), or waits for it if he would rather not hold up everybody
//! ([`Control::is_changing`]). What packets want learned waits here ([`Control::apply`]). What shows tables
//! ([`Control::dump`], [`Control::table_stats`], [`Control::groups`]) shows them half changed meanwhile.

use super::batch::{AsChange, Batch, Change, Due, PacketOut, Step};
use super::flow_mod::FlowModError;
use super::walk::Walk;
use super::{Control, Inner};
use crate::effect::Effect;
use crate::flow_mod::{Command, FlowMod};
use crate::topology::BridgeIdx;
use base::Version;
use base::rcu::Reader;
use datapath::Translation;
use flow::Match;
use openflow::message::{GROUP_ALL, GroupCommand, METER_ALL};
use std::sync::Arc;

/// Versions that others may publish, for each step of a transaction. In a second a thread takes a hundred
/// million steps at the very most, so that versions pass by less than 2^31 in a second, which is the age that
/// no cached flow may reach.
const VERSIONS_PER_STEP: u64 = 16;
/// And for the smallest.
const STEPS_MIN: u64 = 1 << 10;
/// With fewer left, the transaction is finished at once.
const VERSIONS_LEFT_MIN: u64 = 1 << 10;
/// What packets want learned while a transaction goes on; more is refused, and counted.
const DEFERRED_MAX: usize = 1 << 16;
/// Small steps between two questions whether the turn is over.
const STEPS_BETWEEN: u32 = 16;

/// What comes of changes: what is to become of the packets among them, in order; or the number of the change
/// that failed, and why.
pub type Outcome = Result<Vec<Translation<Effect>>, (usize, FlowModError)>;

/// The changes of a transaction.
pub trait Changes: Send + Sync {
    /// The change of this number, from 0; `None` behind the last. It may be asked for several times.
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)>;
}

/// What a turn of a transaction has come to.
#[derive(Debug)]
pub enum Turn {
    /// There is more to do.
    More,
    /// All is in place, and the next turn makes it visible: the last moment for what must come before.
    Ready,
    /// It is done.
    Done(Outcome),
}

/// Asks now and then whether a turn is over.
pub(super) struct Pace<'a> {
    is_over: Option<&'a mut dyn FnMut() -> bool>,
    steps: u32,
}

impl Pace<'_> {
    /// There are no turns.
    pub fn none() -> Pace<'static> {
        Pace { is_over: None, steps: 0 }
    }

    /// Some small step was done. Whether the turn is over.
    pub fn is_over(&mut self) -> bool {
        let Some(is_over) = &mut self.is_over else { return false };
        self.steps += 1;
        self.steps.is_multiple_of(STEPS_BETWEEN) && is_over()
    }
}

/// Whether a change was made in this turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    Whole,
    InPart,
}

/// See the module's text.
pub(super) struct Transaction {
    /// `None` where there are no others meanwhile: the version to come.
    version: Option<Version>,
    now_ms: u64,
    /// The change that is being made, and how far that is.
    at: usize,
    pub walk: Walk,
    pub batch: Batch,
    packets: Vec<Translation<Effect>>,
    phase: Phase,
}

enum Phase {
    Changing,
    /// Removing what was learned by rules that are gone, cookie by cookie.
    Orphans(Vec<(BridgeIdx, FlowMod)>),
    Ready,
    Following(Version, std::vec::IntoIter<Step>),
    TakingBack(usize, FlowModError),
    /// What packets wanted learned meanwhile.
    Learning(Outcome),
}

/// A transaction that others may see in between, and where its changes come from.
pub(super) struct Underway {
    transaction: Option<Transaction>,
    changes: Arc<dyn Changes>,
    /// Once it is done.
    outcome: Option<Outcome>,
}

impl Transaction {
    pub fn new(version: Option<Version>, now_ms: u64) -> Transaction {
        Transaction {
            version,
            now_ms,
            at: 0,
            walk: Walk::Start,
            batch: Batch::default(),
            packets: Vec::new(),
            phase: Phase::Changing,
        }
    }
}

impl Control {
    /// Whether a controller might send a packet with these actions.
    pub fn check_packet_out(&self, bridge: BridgeIdx, out: PacketOut<'_>) -> Result<(), FlowModError> {
        self.inner.check_packet_out(bridge, out)
    }

    /// Several changes of any kind, as one version, at once: all of them or none.
    pub fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
    ) -> Outcome {
        self.enter_to_change();
        self.transactions += 1;
        self.inner.change_all(all, now_ms, &self.reader)
    }

    /// The changes of a transaction, made at once.
    pub fn change_at_once(&mut self, changes: &dyn Changes, now_ms: u64) -> Outcome {
        self.change_all((0..).map_while(|at| changes.change(at)), now_ms)
    }

    /// Begins a transaction of about so many steps ([`Self::steps_of`]), which goes on with [`Self::go_on`].
    /// One that is under way is finished first, and what came of it is forgotten.
    pub fn begin(&mut self, changes: Arc<dyn Changes>, steps: usize, now_ms: u64) {
        self.finish();
        self.transactions += 1;
        let ahead = (steps as u64).max(STEPS_MIN) * VERSIONS_PER_STEP;
        let version = Version(self.inner.published().0 + ahead);
        let transaction = Some(Transaction::new(Some(version), now_ms));
        self.underway = Some(Underway { transaction, changes, outcome: None });
    }

    /// How many steps a change takes at most, of some hundred nanoseconds each.
    pub fn steps_of(&self, bridge: BridgeIdx, change: Change<'_>) -> usize {
        let Some(Some(control)) = self.inner.bridges.get(bridge.0 as usize) else { return 1 };
        match change {
            Change::Flow(fm) if matches!(fm.command, Command::Modify | Command::Delete) => {
                1 + self.inner.count_within(bridge, fm, &self.reader)
            }
            Change::Group(gm) if gm.command == GroupCommand::Delete => {
                let id = (gm.group.group_id != GROUP_ALL).then_some(gm.group.group_id);
                let groups = if id.is_none() { control.groups.len() } else { 1 };
                groups + control.groups.references.count_of(id)
            }
            Change::MeterDelete(mm) => {
                let id = (mm.meter.meter_id != METER_ALL).then_some(mm.meter.meter_id);
                let meters = if id.is_none() { control.meters.len() } else { 1 };
                meters + control.meters.references.count_of(id)
            }
            Change::Flow(_) | Change::Group(_) | Change::Packet(_) | Change::Nothing => 1,
        }
    }

    /// How many transactions have begun, at once or in turns: what is read in pieces is of one version if
    /// none did meanwhile.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Whether a transaction is under way, or done and nobody has asked for its outcome.
    pub fn is_changing(&self) -> bool {
        self.underway.is_some()
    }

    /// A turn of the transaction under way, which ends soon after `is_over` says so. Done without outcome
    /// where there is none.
    pub fn go_on(&mut self, is_over: &mut dyn FnMut() -> bool) -> Turn {
        self.reader.quiescent();
        let Some(underway) = &mut self.underway else { return Turn::Done(Ok(Vec::new())) };
        let mut turn = Turn::More;
        if let Some(transaction) = underway.transaction.take() {
            let changes = underway.changes.clone();
            let mut pace = Pace { is_over: Some(is_over), steps: 0 };
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

    /// Finishes the transaction under way, however long that takes. Its outcome waits for [`Self::go_on`].
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

    /// Before anything but tables is changed.
    pub(super) fn enter(&mut self) {
        self.reader.quiescent();
        let version = self.underway.as_ref().and_then(|u| u.transaction.as_ref()?.version);
        if version.is_some_and(|version| version.0 < self.inner.published().0 + VERSIONS_LEFT_MIN) {
            self.finish();
        }
    }

    /// Before tables are changed.
    pub(super) fn enter_to_change(&mut self) {
        self.reader.quiescent();
        self.finish();
    }

    /// Whether an effect waits for the transaction that is under way.
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
    /// Changes at once.
    pub(super) fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
        reader: &Reader,
    ) -> Outcome {
        let mut all = all.into_iter();
        // Each is asked for once, in order, for nothing pauses.
        match self.turn(Transaction::new(None, now_ms), |_| all.next(), &mut Pace::none(), reader) {
            Ok(outcome) => outcome,
            Err(_) => unreachable!("it pauses only where others are served meanwhile"),
        }
    }

    /// Puts in force what a transaction has done without changes of its own.
    pub(super) fn complete(&mut self, transaction: Transaction, reader: &Reader) {
        let none = |_| None::<(BridgeIdx, Change<'_>)>;
        let done = self.turn(transaction, none, &mut Pace::none(), reader);
        debug_assert!(done.is_ok_and(|outcome| outcome.is_ok()), "nothing of it can fail or pause");
    }

    /// Another turn of a transaction. It comes back where it is not done.
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

    /// The phases, in order. `None`: the turn is over, or all is ready to be published.
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
                        transaction.phase = Phase::Learning(Ok(std::mem::take(&mut transaction.packets)));
                    }
                }
                Phase::Following(version, steps) => {
                    for step in steps {
                        self.follow(step, *version, now_ms);
                        if pace.is_over() {
                            return None;
                        }
                    }
                    transaction.phase = Phase::Learning(Ok(std::mem::take(&mut transaction.packets)));
                }
                Phase::TakingBack(at, error) => {
                    let batch = &mut transaction.batch;
                    while let Some(step) = batch.steps.pop() {
                        self.undo(step, reader);
                        if pace.is_over() {
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
                    // Tables that it made stay, and are logged as of this version.
                    if transaction.version.is_some() || self.has_new_table {
                        self.publish();
                    }
                    transaction.phase = Phase::Learning(Err((*at, error.clone())));
                }
                Phase::Learning(outcome) => {
                    // Each with a version of its own, as if it came now.
                    self.staging = None;
                    while let Some(effect) = transaction.version.and_then(|_| self.deferred.pop_front()) {
                        self.apply_to_rules(&effect, now_ms, reader);
                        if pace.is_over() {
                            return None;
                        }
                    }
                    return Some(std::mem::replace(outcome, Ok(Vec::new())));
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
            let now_ms = transaction.now_ms;
            let made = match change.as_change() {
                Change::Flow(fm) => self.change(bridge, fm, now_ms, transaction, pace, reader)?,
                Change::Group(gm) => self.change_group(bridge, gm, now_ms, transaction, pace, reader)?,
                Change::MeterDelete(mm) => self.delete_meters(bridge, mm, transaction, pace, reader)?,
                Change::Nothing => Made::Whole,
                Change::Packet(out) => {
                    transaction.packets.push(self.translate_between(bridge, out, reader)?);
                    Made::Whole
                }
            };
            if made == Made::InPart {
                return Ok(Made::InPart);
            }
            transaction.at += 1;
            transaction.walk = Walk::Start;
            if pace.is_over() {
                return Ok(Made::InPart);
            }
        }
        Ok(Made::Whole)
    }

    /// Removes what was learned by rules that are gone, if they said so (`delete_learned`).
    fn remove_orphans(
        &mut self,
        transaction: &mut Transaction,
        pace: &mut Pace<'_>,
        reader: &Reader,
    ) -> Made {
        loop {
            let Phase::Orphans(orphans) = &mut transaction.phase else { return Made::Whole };
            if orphans.is_empty() {
                let found = self.learning.take_orphans();
                if found.is_empty() {
                    return Made::Whole;
                }
                orphans.extend(found.iter().map(|of| {
                    let cookie_mask = u64::MAX;
                    let all = FlowMod::delete(Match::any());
                    let own = FlowMod { table_id: of.table_id, cookie: of.cookie, cookie_mask, ..all };
                    (of.bridge, own)
                }));
            }
            let Some((bridge, all)) = orphans.pop() else { continue };
            if self.delete_within(bridge, &all, transaction, pace, reader) == Made::InPart {
                let Phase::Orphans(orphans) = &mut transaction.phase else { return Made::Whole };
                orphans.push((bridge, all));
                return Made::InPart;
            }
            transaction.walk = Walk::Start;
        }
    }
}
