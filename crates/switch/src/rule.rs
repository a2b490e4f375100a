//! Rules: what OpenFlow calls flow entries. Immutable: a modification makes a new rule with the old one's
//! slot. The versions at which a rule appears and vanishes are the classifier's.

use crate::shape::MiniMatch;
use crate::topology::BridgeIdx;
use base::OfPort;
use flow::action::{Learn, LearnSource, LearnTarget, SubField};
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
    /// Groups that they refer to, sorted.
    pub(crate) groups: Box<[u32]>,
    /// Meters that they refer to, sorted.
    pub(crate) meters: Box<[u32]>,
    /// What `learn` actions among them need to have counted.
    pub(crate) learns: Box<[CountedLearn]>,
    /// The clauses of conjunctions among them; if there are any, the list contains nothing else but notes.
    pub(crate) clauses: Box<[Clause]>,
}

/// A `learn` action whose rules are counted, by table and cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CountedLearn {
    pub table_id: u8,
    pub cookie: u64,
    /// The learned rules go when the last rule that learns them goes.
    pub deletes: bool,
    /// Their number is limited.
    pub limits: bool,
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
                limits: learn.limit > 0,
            }),
            Action::Clone(inner) => all.extend(counted_learns(inner)),
            _ => {}
        }
    }
    all
}

/// The clauses in a list.
pub(crate) fn clauses(list: &[Action]) -> Vec<Clause> {
    let clause = |action: &Action| match *action {
        Action::Conjunction { id, clause, n_clauses } => {
            Some(Clause { id, count: n_clauses, number: clause })
        }
        _ => None,
    };
    list.iter().filter_map(clause).collect()
}

impl Actions {
    /// Whether any of them outputs to the port.
    pub fn outputs_to(&self, port: OfPort) -> bool {
        fn any(list: &[Action], port: OfPort) -> bool {
            list.iter().any(|a| match a {
                Action::Output { port: p, .. }
                | Action::OutputTrunc { port: p, .. }
                | Action::Enqueue { port: p, .. } => *p == port,
                Action::Controller { .. } => port == OfPort::CONTROLLER,
                Action::WriteActions(inner) | Action::Clone(inner) => any(inner, port),
                _ => false,
            })
        }
        any(&self.list, port)
    }

    /// Whether any of them uses the group.
    pub fn uses_group(&self, group: u32) -> bool {
        self.groups.binary_search(&group).is_ok()
    }
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
