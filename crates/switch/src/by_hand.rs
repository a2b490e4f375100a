//! Manual overrides of translation, for an operator of a test switch: masks that match the whole packet
//! (`upcall/disable-megaflows`), and datapath flows that differ from the tables (`dpctl/add-flow` while
//! revalidation is paused).
//!
//! Workers consult it on a miss, and only if one flag says that there are any overrides.

use base::rcu::{Domain, RcuCell, Reader};
use datapath::{DpAction, Translation};
use flow::{Depth, FieldId, Key, Mask};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of manual flows.
pub const HAND_FLOWS_MAX: usize = 1_024;

/// A datapath flow that was added manually.
#[derive(Clone, PartialEq, Debug)]
pub struct HandFlow {
    /// The masked key.
    pub key: Key,
    /// What it matches; at least the input port.
    pub mask: Mask,
    /// What happens to its packets.
    pub actions: Vec<DpAction>,
}

/// All manual overrides.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ByHand {
    /// Every flow matches the whole packet.
    pub is_exact: bool,
    /// Flows that take precedence over the tables; the first match wins.
    pub flows: Vec<HandFlow>,
}

/// Fields of the datapath that are not in headers.
const METADATA: &[FieldId] = &[
    FieldId::InPort,
    FieldId::DpPort,
    FieldId::RecircId,
    FieldId::DpHash,
    FieldId::SkbPriority,
    FieldId::PktMark,
    FieldId::CtState,
    FieldId::CtZone,
    FieldId::CtMark,
    FieldId::CtLabel,
    FieldId::PacketType,
    FieldId::EthType,
    FieldId::NwFrag,
];

/// Everything that the datapath knows of a packet.
pub fn exact_mask() -> Mask {
    let mut mask = Mask::wild();
    let headers = FieldId::ALL.iter().filter(|field| field.depth() > Depth::Metadata);
    headers.chain(METADATA).for_each(|field| mask.add_exact(*field));
    mask
}

impl ByHand {
    /// The minimum depth to which packets must be read, whatever the tables need.
    pub(crate) fn depth(&self) -> Depth {
        if *self == ByHand::default() { Depth::Metadata } else { Depth::Everything }
    }

    /// Lets a manual flow decide. If none matches, the bits examined go into the mask.
    fn decide<E>(&self, key: &Key, out: &mut Translation<E>) -> bool {
        for flow in &self.flows {
            out.mask.unite(&flow.mask);
            if key.equal_under(&flow.key, &flow.mask) {
                out.actions.clone_from(&flow.actions);
                [FieldId::InPort, FieldId::DpPort, FieldId::RecircId, FieldId::EthType, FieldId::NwFrag]
                    .iter()
                    .for_each(|field| out.mask.add_exact(*field));
                return true;
            }
        }
        false
    }

    /// Narrows the tables' result to packets that no manual flow matches.
    fn narrow<E>(&self, out: &mut Translation<E>) {
        self.flows.iter().for_each(|flow| out.mask.unite(&flow.mask));
        if self.is_exact {
            out.mask.unite(&exact_mask());
        }
    }
}

/// [`ByHand`] in the form that workers share.
pub(crate) struct Shared {
    says_anything: AtomicBool,
    now: RcuCell<ByHand>,
}

impl Shared {
    pub fn new(domain: Arc<Domain>) -> Shared {
        Shared { says_anything: AtomicBool::new(false), now: RcuCell::new(domain, ByHand::default()) }
    }

    pub fn publish(&self, by_hand: ByHand) {
        let says_anything = by_hand != ByHand::default();
        self.now.publish(by_hand);
        // Release: a reader of the flag also sees the overrides.
        self.says_anything.store(says_anything, Ordering::Release);
    }

    /// Translates by `tables`, unless there are overrides.
    #[inline]
    pub fn translate<E>(
        &self,
        key: &Key,
        reader: &Reader,
        out: &mut Translation<E>,
        tables: impl FnOnce(&mut Translation<E>),
    ) {
        if !self.says_anything.load(Ordering::Acquire) {
            return tables(out);
        }
        let by_hand = self.now.read(reader);
        if !by_hand.decide(key, out) {
            tables(out);
            by_hand.narrow(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;

    fn flow(port: u128, to: u32) -> HandFlow {
        let (mut key, mut mask) = (Key::default(), Mask::wild());
        key.set(FieldId::DpPort, port);
        key.set(FieldId::EthDst, 7);
        mask.add_exact(FieldId::DpPort);
        mask.add_exact(FieldId::EthDst);
        HandFlow { key, mask, actions: vec![DpAction::Output(PortNo(to))] }
    }

    fn translated(by_hand: ByHand, key: &Key) -> Translation<()> {
        let domain = Domain::new();
        let shared = Shared::new(domain.clone());
        shared.publish(by_hand);
        let mut out = Translation::default();
        shared.translate(key, &domain.register(), &mut out, |out| {
            out.mask.add_exact(FieldId::DpPort);
            out.actions.push(DpAction::Output(PortNo(99)));
        });
        out
    }

    #[test]
    fn a_flow_put_in_by_hand_goes_before_the_tables_and_narrows_what_they_say() {
        let by_hand = ByHand { flows: vec![flow(1, 5)], ..ByHand::default() };
        let out = translated(by_hand.clone(), &flow(1, 0).key);
        assert_eq!(out.actions, [DpAction::Output(PortNo(5))]);
        assert_ne!(out.mask.get(FieldId::EthType), 0, "what a flow of the caches always holds");
        let out = translated(by_hand, &Key::default());
        assert_eq!(out.actions, [DpAction::Output(PortNo(99))]);
        assert_eq!(out.mask.get(FieldId::EthDst), FieldId::EthDst.ones(), "else it would hide the flow");
    }

    #[test]
    fn an_exact_mask_holds_headers_and_nothing_of_the_pipeline() {
        let out = translated(ByHand { is_exact: true, ..ByHand::default() }, &Key::default());
        assert_eq!(out.actions, [DpAction::Output(PortNo(99))]);
        for field in [FieldId::NwSrc, FieldId::TpDst, FieldId::CtState, FieldId::NdTarget] {
            assert_eq!(out.mask.get(field), field.ones());
        }
        assert_eq!(out.mask.get(FieldId::Metadata), 0);
        let out = translated(ByHand::default(), &Key::default());
        assert_eq!(out.mask.get(FieldId::NwSrc), 0);
    }
}
