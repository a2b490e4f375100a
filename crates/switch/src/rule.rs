//! Rules: what OpenFlow calls flow entries. Immutable: a modification makes a new rule with the old one's
//! slot. The versions at which a rule appears and vanishes are the classifier's.

use crate::shape::MiniMatch;
use crate::topology::BridgeIdx;
use base::OfPort;
use flow::action::{CtZone, Learn, LearnSource, LearnTarget, SubField};
use flow::classifier::Clause;
use flow::{Action, Depth, Mf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Flags of a rule (OFPFF_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RuleFlags {
    /// Report its removal.
    pub send_flow_removed: bool,
    /// Refuse to add it if another rule of the same priority overlaps.
    pub check_overlap: bool,
    /// Reset its counters.
    pub reset_counts: bool,
    /// Do not count packets (accepted but ignored).
    pub no_packet_counts: bool,
    /// Do not count bytes (likewise).
    pub no_byte_counts: bool,
    /// Hide it from dumps and from controllers: a rule of the switch itself.
    pub hidden: bool,
    /// Created by `learn`.
    pub learned: bool,
}

/// A validated action list, shared by rules with equal lists.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Actions {
    /// In the order given.
    pub list: Box<[Action]>,
    /// How deep a packet must have been read for them.
    pub(crate) depth: Depth,
    /// Tables that they may go to, sorted.
    pub(crate) tables: Box<[u8]>,
    /// The clauses of conjunctions among them; if there are any, the list contains nothing else but notes.
    pub(crate) clauses: Box<[Clause]>,
    /// What few lists refer to.
    named: Option<Box<Named>>,
}

/// What actions refer to.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Named {
    /// Groups, sorted.
    pub groups: Vec<u32>,
    /// Meters, sorted.
    pub meters: Vec<u32>,
    /// What `learn` actions need to have counted.
    pub learns: Vec<CountedLearn>,
    /// Ports to which they output, sorted, if these are many.
    pub ports: Vec<OfPort>,
}

impl Named {
    const NONE: Named =
        Named { groups: Vec::new(), meters: Vec::new(), learns: Vec::new(), ports: Vec::new() };
}

/// A `learn` action whose rules are counted, by table and cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CountedLearn {
    pub table_id: u8,
    pub cookie: u64,
    /// The learned rules go when the last rule that learns them goes.
    pub deletes: bool,
}

/// The counted `learn` actions of a list.
pub(crate) fn counted_learns(list: &[Action]) -> Vec<CountedLearn> {
    let mut all = Vec::new();
    for action in list {
        match action {
            Action::Learn(learn) if learn.delete_learned || learn.limit > 0 => all.push(CountedLearn {
                table_id: learn.table_id,
                cookie: learn.cookie,
                deletes: learn.delete_learned,
            }),
            Action::Clone(inner) => all.extend(counted_learns(inner)),
            _ => {}
        }
    }
    all
}

/// The clauses in a list.
fn clauses(list: &[Action]) -> Vec<Clause> {
    let clause = |action: &Action| match *action {
        Action::Conjunction { id, clause, n_clauses } => {
            Some(Clause { id, count: n_clauses, number: clause })
        }
        _ => None,
    };
    list.iter().filter_map(clause).collect()
}

/// With more outputs than this, those who ask for a port do not look at each.
const OUTPUTS_LOOKED_AT: usize = 16;
/// Groups, meters and counted `learn` actions that a rule puts in place in a step.
const NAMED_PER_STEP: usize = 4;

impl Actions {
    /// A list with what is derived from it.
    pub(crate) fn new(list: &[Action], depth: Depth, mut tables: Vec<u8>, mut named: Named) -> Actions {
        fn sorted<T: Ord>(all: &mut Vec<T>) {
            all.sort_unstable();
            all.dedup();
            all.shrink_to_fit();
        }
        let mut count = 0;
        let has_many = outputs(list, &mut |_| {
            count += 1;
            count > OUTPUTS_LOOKED_AT
        });
        if has_many {
            outputs(list, &mut |port| {
                named.ports.push(port);
                false
            });
        }
        sorted(&mut tables);
        sorted(&mut named.groups);
        sorted(&mut named.meters);
        sorted(&mut named.ports);
        Actions {
            list: list.into(),
            depth,
            tables: tables.into(),
            clauses: clauses(list).into(),
            named: (named != Named::NONE).then(|| Box::new(named)),
        }
    }

    /// What they refer to.
    pub(crate) fn named(&self) -> &Named {
        const NONE: &Named = &Named::NONE;
        self.named.as_deref().unwrap_or(NONE)
    }

    /// The steps that it takes to put a rule with them in place, or to remove it.
    pub(crate) fn steps(&self) -> usize {
        let Named { groups, meters, learns, .. } = self.named();
        1 + (groups.len() + meters.len() + learns.len()) / NAMED_PER_STEP
    }

    /// Whether any of them outputs to the port.
    pub fn outputs_to(&self, port: OfPort) -> bool {
        match &self.named().ports[..] {
            [] => outputs(&self.list, &mut |to| to == port),
            ports => ports.binary_search(&port).is_ok(),
        }
    }

    /// Whether any of them uses the group.
    pub fn uses_group(&self, group: u32) -> bool {
        self.named().groups.binary_search(&group).is_ok()
    }
}

/// Visits the ports that actions output to, until `visit` returns true, and returns whether it did.
fn outputs(list: &[Action], visit: &mut impl FnMut(OfPort) -> bool) -> bool {
    list.iter().any(|action| match action {
        Action::Output { port, .. } | Action::OutputTrunc { port, .. } | Action::Enqueue { port, .. } => {
            visit(*port)
        }
        Action::Controller { .. } => visit(OfPort::CONTROLLER),
        Action::WriteActions(inner) | Action::Clone(inner) => outputs(inner, visit),
        _ => false,
    })
}

/// A bit for each tunnel option that actions use.
pub(crate) fn options_of(list: &[Action]) -> u64 {
    let of_field = |field: Mf| if let Mf::TunMetadata(idx) = field { 1 << idx } else { 0 };
    let of = |sub: &SubField| of_field(sub.field);
    list.iter().fold(0, |used, action| {
        used | match action {
            Action::SetOption { idx, .. } => 1 << idx,
            Action::DeleteField(field) => of_field(*field),
            Action::OutputReg { source, .. } | Action::StackPush(source) => of(source),
            Action::StackPop(target)
            | Action::Load { target, .. }
            | Action::CheckPktLarger { target, .. } => of(target),
            Action::Move { source, target } => of(source) | of(target),
            Action::Multipath(m) => of(&m.target),
            Action::Bundle(bundle) => bundle.target.as_ref().map_or(0, of),
            Action::Learn(learn) => options_of_learn(learn),
            Action::Ct(ct) => {
                let zone = if let CtZone::In(source) = &ct.zone { of(source) } else { 0 };
                zone | options_of(&ct.actions)
            }
            Action::WriteActions(inner) | Action::Clone(inner) => options_of(inner),
            _ => 0,
        }
    })
}

fn options_of_learn(learn: &Learn) -> u64 {
    let of = |sub: &SubField| if let Mf::TunMetadata(idx) = sub.field { 1 << idx } else { 0 };
    learn.specs.iter().fold(learn.result.as_ref().map_or(0, of), |used, part| {
        let source = if let LearnSource::Field(source) = &part.source { of(source) } else { 0 };
        let target = match &part.target {
            LearnTarget::Match(target) | LearnTarget::Load(target) => of(target),
            LearnTarget::Output => 0,
        };
        used | source | target
    })
}

/// When a rule expires. `fin_timeout` lowers them while the rule lives; only the control thread does so.
#[derive(Debug, Default)]
pub struct Timeouts {
    idle_s: AtomicU16,
    hard_s: AtomicU16,
}

impl Timeouts {
    /// From seconds; 0 for never.
    pub fn new(idle_s: u16, hard_s: u16) -> Timeouts {
        Timeouts { idle_s: idle_s.into(), hard_s: hard_s.into() }
    }

    /// Seconds without a packet after which it is removed; 0 for never.
    pub fn idle_s(&self) -> u16 {
        self.idle_s.load(Relaxed)
    }

    /// Seconds after it was added or modified at which it is removed; 0 for never.
    pub fn hard_s(&self) -> u16 {
        self.hard_s.load(Relaxed)
    }

    /// Lowers timeouts that are longer than these or never expire; 0 leaves one as it is. Returns whether
    /// anything changed.
    pub(crate) fn lower(&self, idle_s: u16, hard_s: u16) -> bool {
        let lower = |timeout: &AtomicU16, to: u16| {
            let now = timeout.load(Relaxed);
            let lowers = to != 0 && (now == 0 || now > to);
            if lowers {
                timeout.store(to, Relaxed);
            }
            lowers
        };
        let idle = lower(&self.idle_s, idle_s);
        lower(&self.hard_s, hard_s) || idle
    }
}

impl Clone for Timeouts {
    fn clone(&self) -> Timeouts {
        Timeouts::new(self.idle_s(), self.hard_s())
    }
}

/// A flow entry.
#[derive(Debug)]
pub struct Rule {
    /// Its bridge.
    pub bridge: BridgeIdx,
    /// Its table.
    pub table_id: u8,
    /// Higher wins. Controllers give 0 to 65,535, the switch's own may be higher.
    pub priority: i32,
    /// Opaque to the switch.
    pub cookie: u64,
    /// Flags.
    pub flags: RuleFlags,
    /// When it ends by itself.
    pub timeouts: Timeouts,
    /// Importance for eviction (OpenFlow 1.4).
    pub importance: u16,
    /// When it was added.
    pub created_ms: u64,
    /// From when it counts as unused, if no packet has used it: when it, or the rule that it replaced, was
    /// added.
    pub unused_since_ms: u64,
    /// When it was added or last modified.
    pub modified_ms: u64,
    /// Counter slot.
    pub slot: u32,
    /// For a learned rule with a hard timeout: the slot that records when it was last learned.
    pub learn_slot: Option<u32>,
    /// What it matches.
    pub matching: MiniMatch,
    /// What it does.
    pub actions: Arc<Actions>,
    /// Index in its table's list.
    pub(crate) idx: u32,
    /// Unique among all rules ever created.
    pub(crate) serial: u64,
    /// The serial number of the first of the rules that replaced one another up to this one.
    pub(crate) first_serial: u64,
}

impl Rule {
    /// Unique; rules that are added or modified later have greater numbers.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The serial number of the rule that this one replaced, or that this one did, and so on: its own if it
    /// replaced none. Who was told of that one knows this one.
    pub fn first_serial(&self) -> u64 {
        self.first_serial
    }

    /// How deep a packet must have been read to be matched and acted upon.
    pub(crate) fn depth(&self) -> Depth {
        self.matching.shape().depth().max(self.actions.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_outputs_are_found_alike() {
        let to = |port| Action::Output { port: OfPort(port), max_len: 0 };
        for count in [0, 1, 15, 16, 17, 2_000] {
            let mut list: Vec<Action> = (0..count).rev().map(|n| to(3 * n + 1)).collect();
            list.push(Action::Clone(vec![to(2), Action::WriteActions(vec![to(5)])]));
            let actions = Actions::new(&list, Depth::Metadata, Vec::new(), Named::default());
            let expected = |port: u16| port == 2 || port == 5 || port % 3 == 1 && port < 3 * count;
            assert!((1..7_000).all(|port| actions.outputs_to(OfPort(port)) == expected(port)), "{count}");
            assert_eq!(actions.named().ports.len(), if count < 15 { 0 } else { usize::from(count) + 2 });
        }
    }
}
