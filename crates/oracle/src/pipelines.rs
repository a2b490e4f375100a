//! The switch as a pipeline that must not be cached, and with mistakes put in on purpose.

use crate::common::chance::Chance;
use crate::common::packets::HEADER;
use base::rcu::Reader;
use base::{OfPort, PortNo, Version};
use datapath::watch::{Marks, Sight, Sort, Watch};
use datapath::{FlowView, Pipeline, PortView, Translation, Visit};
use flow::{Depth, FieldId, Key, Mask};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switch::changelog::word_table;
use switch::{Effect, Switch};

/// Every packet is extracted in full and translated by itself: the reference.
pub struct Uncached(pub Arc<Switch>);

impl Pipeline for Uncached {
    type Effect = Effect;
    fn version(&self) -> Version {
        self.0.version()
    }
    fn port_view(&self, port: PortNo) -> Arc<PortView> {
        self.0.port_view(port)
    }
    fn ingress(&self, view: &PortView) -> (OfPort, Depth) {
        (view.get().0, Depth::Everything)
    }
    fn translate(&self, version: Version, key: &Key, reader: &Reader, out: &mut Translation<Effect>) {
        self.0.translate(version, key, reader, out);
        out.uncacheable = true;
    }
    fn touched(&self, _: FlowView<'_>, _: Version, _: Version, _: &Reader) -> bool {
        true
    }
}

/// A mistake put in on purpose.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mistake {
    /// None: the switch as it is.
    None,
    /// One bit of the mask is lost.
    MaskBitLost,
    /// A flow of an older version is taken for one of the newest.
    StaleVersion,
    /// A change is judged on the packet at hand.
    JudgedOnPacket,
    /// What was rewritten before a lookup is forgotten.
    RewritesForgotten,
    /// All flows of a sort are taken for one when changes are watched.
    MarksMixedUp,
    /// That a flow went through a group is forgotten.
    GroupForgotten,
    /// That the hash of a packet decided is forgotten.
    HashForgotten,
    /// That a packet's type decided is forgotten.
    PacketTypeForgotten,
    /// The way to the control thread of a packet that teaches something is cached.
    LessonCached,
    /// No mistake: at times packets are extracted more deeply than their rules ask for.
    DeeperAtTimes,
    /// No mistake: changes touch flows that they do not concern.
    TouchedAtTimes,
    /// A packet is extracted one level less deep than its rules ask for.
    TooShallow,
}

/// The switch with a mistake.
pub struct Mistaken {
    /// The switch.
    pub switch: Arc<Switch>,
    /// What is wrong.
    pub mistake: Mistake,
    /// Number of requests.
    asked: AtomicU64,
}

impl Mistaken {
    /// The switch with this mistake.
    pub fn new(switch: Arc<Switch>, mistake: Mistake) -> Arc<Mistaken> {
        Arc::new(Mistaken { switch, mistake, asked: AtomicU64::new(0) })
    }

    /// Any number below `n`.
    fn any(&self, n: u64) -> u64 {
        Chance::new(self.asked.fetch_add(1, Ordering::Relaxed)).below(n)
    }
}

impl Pipeline for Mistaken {
    type Effect = Effect;
    fn version(&self) -> Version {
        self.switch.version()
    }
    fn port_view(&self, port: PortNo) -> Arc<PortView> {
        self.switch.port_view(port)
    }
    fn ingress(&self, view: &PortView) -> (OfPort, Depth) {
        let (of_port, depth) = view.get();
        let read = match self.mistake {
            Mistake::TooShallow => Depth::ALL[(depth as usize).saturating_sub(1)],
            Mistake::DeeperAtTimes => Depth::ALL[(depth as usize + self.any(3) as usize).min(4)],
            _ => depth,
        };
        (of_port, read)
    }
    fn translate(&self, version: Version, key: &Key, reader: &Reader, out: &mut Translation<Effect>) {
        self.switch.translate(version, key, reader, out);
        match self.mistake {
            Mistake::MaskBitLost => lose_a_bit(&mut out.mask, &mut Chance::new(version.0)),
            Mistake::HashForgotten => out.mask.set(FieldId::DpHash, 0),
            Mistake::PacketTypeForgotten => out.mask.set(FieldId::PacketType, 0),
            Mistake::LessonCached => out.uncacheable = false,
            // The worker would notice by the mask.
            Mistake::TooShallow => {
                let port = PortNo(key.get64(FieldId::DpPort) as u32);
                let (_, depth) = self.ingress(&self.port_view(port));
                for f in FieldId::ALL.iter().filter(|f| f.depth() > depth) {
                    out.mask.set(*f, 0);
                }
            }
            _ => {}
        }
    }
    fn touched(&self, flow: FlowView<'_>, since: Version, now: Version, reader: &Reader) -> bool {
        match self.mistake {
            Mistake::StaleVersion => false,
            Mistake::TouchedAtTimes if self.any(3) == 0 => true,
            Mistake::JudgedOnPacket => {
                let mut all = flow.mask.clone();
                HEADER.iter().for_each(|f| all.add_exact(*f));
                self.switch.touched(FlowView { mask: &all, ..flow }, since, now, reader)
            }
            Mistake::RewritesForgotten => {
                let forget = |v: &Visit| match v.table < 1 << 31 {
                    true => Visit { rewrites_len: 0, ..*v },
                    false => *v,
                };
                let visits: Vec<Visit> = flow.visits.iter().map(forget).collect();
                self.switch.touched(FlowView { visits: &visits, ..flow }, since, now, reader)
            }
            Mistake::GroupForgotten => {
                let is_no_group = |v: &&Visit| v.table != word_table::groups(0);
                let visits: Vec<Visit> = flow.visits.iter().filter(is_no_group).copied().collect();
                self.switch.touched(FlowView { visits: &visits, ..flow }, since, now, reader)
            }
            _ => self.switch.touched(flow, since, now, reader),
        }
    }
    fn sight<'g>(&'g self, sort: Sort<'_>, watch: &mut Watch, now: Version, reader: &'g Reader) -> Sight<'g> {
        match self.mistake {
            // They are made where flows are judged one by one.
            Mistake::StaleVersion
            | Mistake::JudgedOnPacket
            | Mistake::RewritesForgotten
            | Mistake::GroupForgotten => Sight::NONE,
            _ => self.switch.sight(sort, watch, now, reader),
        }
    }
    fn marks(&self, watch: &Watch, flow: FlowView<'_>, reader: &Reader) -> Marks {
        match self.mistake {
            Mistake::MarksMixedUp => Marks::default(),
            _ => self.switch.marks(watch, flow, reader),
        }
    }
}

fn lose_a_bit(mask: &mut Mask, chance: &mut Chance) {
    let held: Vec<FieldId> = HEADER[1..].iter().copied().filter(|f| mask.get(*f) != 0).collect();
    if !held.is_empty() {
        let field = *chance.pick(&held);
        let bits: Vec<u32> = (0..128).filter(|b| mask.get(field) >> b & 1 != 0).collect();
        let lost = 1 << *chance.pick(&bits);
        mask.set(field, mask.get(field) & !lost);
    }
}
