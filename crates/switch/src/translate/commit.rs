//! At an output, turns the pipeline's changes to the packet into datapath actions.
//!
//! For every bit that an action of the rules or of the datapath has set, the output must see the pipeline's
//! value. No action is needed if the packet is known to have that value: because of the flow's mask or an
//! earlier Set. That one packet happens to have it is not enough, since another packet of the flow may not.

use super::{DSCP_BITS, Dscp, Xlate};
use crate::trace::Sink;
use base::DropReason;
use datapath::DpAction;
use flow::key::B_COMMON;
use flow::{FieldId, Key, Mask, Mf};

/// Header fields that can be set, in the order of the actions.
const FIELDS: &[FieldId] = &[
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::NwSrc,
    FieldId::NwDst,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::Ipv6Label,
    FieldId::NwTos,
    FieldId::NwTtl,
    FieldId::NwProto,
    FieldId::NdTarget,
    FieldId::ArpSha,
    FieldId::ArpTha,
    FieldId::NdReserved,
    FieldId::NdOptionsType,
    FieldId::TpSrc,
    FieldId::TpDst,
    FieldId::Mpls0,
    FieldId::NshFlags,
    FieldId::NshTtl,
    FieldId::NshSpi,
    FieldId::NshSi,
    FieldId::NshC1,
    FieldId::NshC2,
    FieldId::NshC3,
    FieldId::NshC4,
];

/// What is set after them and the tags: metadata in the datapath that is in no header.
const BESIDE_HEADERS: &[FieldId] = &[FieldId::SkbPriority, FieldId::PktMark];

/// Fields of network service headers.
const NSH: &[FieldId] = &[
    FieldId::NshFlags,
    FieldId::NshTtl,
    FieldId::NshSpi,
    FieldId::NshSi,
    FieldId::NshC1,
    FieldId::NshC2,
    FieldId::NshC3,
    FieldId::NshC4,
];

/// The blocks that contain any of them.
const FIELDS_BLOCKS: u16 = blocks(FIELDS) | blocks(BESIDE_HEADERS);

const fn blocks(fields: &[FieldId]) -> u16 {
    let (mut blocks, mut n) = (0, 0);
    while n < fields.len() {
        blocks |= 1 << fields[n].place().block;
        n += 1;
    }
    blocks
}

/// Blocks of the layers above Ethernet and VLAN, except the common one.
const UPPER_BLOCKS: [usize; 2] = [flow::key::B_IPV6, flow::key::B_RARE];

/// The labels that a key holds, outermost first.
const LABELS: [FieldId; 3] = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2];

/// Fields of the common block that a pushed label hides.
const HIDDEN_BY_MPLS: &[FieldId] = &[
    FieldId::NwDst,
    FieldId::NwSrc,
    FieldId::NwFrag,
    FieldId::NwProto,
    FieldId::TcpFlags,
    FieldId::TpDst,
    FieldId::TpSrc,
    FieldId::NwTos,
    FieldId::NwTtl,
];

impl<S: Sink> Xlate<'_, S> {
    /// Emits actions that make the packet match `key`.
    pub(super) fn commit(&mut self) {
        if !self.any_written {
            return;
        }
        while self.pushed.len() > self.labels {
            self.take_label_back();
        }
        if !self.commit_packet_type() {
            return;
        }
        // Registers are all that most rules write.
        let touched = self.written.0.present() | self.base_known.0.present();
        let touched = touched & FIELDS_BLOCKS;
        let start = self.out.actions.len();
        if touched != 0 {
            self.commit_fields(FIELDS, touched);
        }
        self.complete_nsh(start);
        self.commit_vlan();
        if touched != 0 {
            self.commit_fields(BESIDE_HEADERS, touched);
        }
    }

    /// `touched`: the blocks that may contain set fields.
    fn commit_fields(&mut self, fields: &[FieldId], touched: u16) {
        for &field in fields.iter().filter(|field| touched & 1 << field.place().block != 0) {
            let bits = self.written.get(field) | self.base_known.get(field);
            if bits != 0 && self.applies(field) {
                self.commit_field(field, bits);
            }
        }
    }

    /// If one field of a network service header is set, so is every other one that the flow matches, to its
    /// present value, as in Open vSwitch.
    fn complete_nsh(&mut self, start: usize) {
        let field_of = |action: &DpAction| match action {
            DpAction::Set { field, .. } if NSH.contains(field) => Some(*field),
            _ => None,
        };
        let first = self.out.actions[start..].iter().position(|action| field_of(action).is_some());
        let Some(first) = first.map(|n| start + n) else { return };
        let behind = self.out.actions[first..].iter().rev().take_while(|a| field_of(a).is_none()).count();
        let end = self.out.actions.len() - behind;
        let set: Vec<_> = self.out.actions.drain(first..end).collect();
        let complete = NSH.iter().filter_map(|field| {
            let there = set.iter().find(|action| field_of(action) == Some(*field)).cloned();
            let known = self.base_known.get(*field) | self.out.mask.get(*field);
            let ones = if *field == FieldId::NshTtl { 0x3f } else { field.ones() };
            let (value, mask) = (self.base.get(*field), field.ones());
            there.or((known & ones == ones).then_some(DpAction::Set { field: *field, value, mask }))
        });
        let complete: Vec<_> = complete.collect();
        self.out.actions.splice(first..first, complete);
    }

    /// Whether the packet in the datapath has the field. (Every flow's mask includes its Ethernet type and,
    /// for IP, its fragment bits.)
    fn applies(&mut self, field: FieldId) -> bool {
        use FieldId::*;
        let eth_type = self.key.get64(EthType);
        let ip = matches!(eth_type, 0x0800 | 0x86dd);
        match field {
            EthSrc | EthDst => self.is_ethernet(),
            NwSrc | NwDst => matches!(eth_type, 0x0800 | 0x0806 | 0x8035),
            NwProto => matches!(eth_type, 0x0806 | 0x8035),
            NwTos | NwTtl => ip,
            Ipv6Src | Ipv6Dst | Ipv6Label => eth_type == 0x86dd,
            ArpSha | ArpTha => matches!(eth_type, 0x0806 | 0x8035 | 0x86dd),
            NdTarget | NdReserved | NdOptionsType => eth_type == 0x86dd,
            TpSrc | TpDst => ip && self.read(NwFrag) & 2 == 0,
            Mpls0 => matches!(eth_type, 0x8847 | 0x8848),
            NshFlags | NshTtl | NshSpi | NshSi => eth_type == 0x894f,
            // Metadata of another type has no context headers at fixed positions.
            NshC1 | NshC2 | NshC3 | NshC4 => eth_type == 0x894f && self.read(NshMdtype) == 1,
            _ => true,
        }
    }

    fn commit_field(&mut self, field: FieldId, bits: u128) {
        let (bits, anew) = self.beyond_meters(field, bits);
        // Bits that only datapath actions have set revert to the packet's own value, which must therefore be
        // in the mask.
        let back = bits & !self.written.get(field);
        if back != 0 {
            let before = self.out.mask.get(field);
            self.out.mask.set(field, before | back);
        }
        let value = self.key.get(field);
        let known = (self.base_known.get(field) | self.out.mask.get(field)) & !anew;
        let agrees = known & !(self.base.get(field) ^ value);
        if bits & !agrees == 0 {
            return;
        }
        if field == FieldId::Mpls0 && self.amend_push(value as u32, bits as u32) {
            return self.note_base(field, bits);
        }
        // All bits at once: setting a whole field is cheaper than setting some of its bits.
        self.out.actions.push(DpAction::Set { field, value: value & bits, mask: bits });
        self.note_base(field, bits);
    }

    /// Of the bits of a field that actions have set, those to be committed, and those whose value a meter may
    /// have changed since.
    #[inline]
    fn beyond_meters(&mut self, field: FieldId, bits: u128) -> (u128, u128) {
        const DSCP: u128 = DSCP_BITS as u128;
        match self.dscp {
            Dscp::Remarked if field == FieldId::NwTos => (bits & !DSCP, 0),
            Dscp::SetAnew(since) if field == FieldId::NwTos => {
                // A copy cannot give back what the meter has made of it.
                self.irreversible = true;
                self.dscp = if since == DSCP_BITS { Dscp::Known } else { Dscp::Remarked };
                let since = u128::from(since);
                (bits & (!DSCP | since), since)
            }
            _ => (bits, 0),
        }
    }

    /// A label pushed by the last action is pushed with its final bits. False if another action came last, or
    /// the push does not belong to the current copy.
    fn amend_push(&mut self, value: u32, bits: u32) -> bool {
        match self.out.actions.get_mut(self.copy_start..).and_then(|own| own.last_mut()) {
            Some(DpAction::PushMpls { lse, .. }) => {
                *lse = *lse & !bits | value & bits;
                true
            }
            _ => false,
        }
    }

    /// Records that the packet now has the pipeline's value of these bits.
    pub(super) fn note_base(&mut self, field: FieldId, bits: u128) {
        let value = self.key.get(field);
        self.base.set_masked(field, value, bits);
        self.base_known.add(field, bits);
    }

    fn commit_vlan(&mut self) {
        const WORDS: [(usize, u64); 2] = [(2, 0xffff), (5, 0xffff_ffff_ffff_0000)];
        let changed = |m: &Mask| WORDS.iter().any(|(w, bits)| m.0.word(B_COMMON, *w) & bits != 0);
        if !changed(self.written) && !changed(self.base_known) {
            return;
        }
        self.read(FieldId::VlanTci);
        self.read(FieldId::VlanTpid);
        if self.vlan_moved {
            self.read(FieldId::VlanTci2);
            self.read(FieldId::VlanTpid2);
        }
        // Bits that the rules have not set revert to the packet's own, so they must be in the mask as well.
        for f in [FieldId::VlanTci, FieldId::VlanTpid, FieldId::VlanTci2, FieldId::VlanTpid2] {
            let back = self.base_known.get(f) & !self.written.get(f);
            self.out.mask.add(f, back);
        }
        // Outermost first.
        let (have, want) = (tags(self.base, &self.base_below), tags(self.key, &self.below));
        if have == want {
            return;
        }
        self.emit_tags(&have, &want);
        self.base_below.clone_from(&self.below);
        for f in [FieldId::VlanTci, FieldId::VlanTpid, FieldId::VlanTci2, FieldId::VlanTpid2] {
            if self.vlan_moved || matches!(f, FieldId::VlanTci | FieldId::VlanTpid) {
                self.note_base(f, f.ones());
            }
        }
    }

    /// Converts one stack of tags to another.
    fn emit_tags(&mut self, have: &[(u16, u16)], want: &[(u16, u16)]) {
        if have.len() == want.len() && have[1..] == want[1..] && have[0].0 == want[0].0 {
            let mask = u128::from(have[0].1 ^ want[0].1);
            let value = u128::from(want[0].1) & mask;
            self.out.actions.push(DpAction::Set { field: FieldId::VlanTci, value, mask });
            return;
        }
        // Tags that agree, from the innermost on, are kept.
        let same = have.iter().rev().zip(want.iter().rev()).take_while(|(h, w)| h == w).count();
        for _ in same..have.len() {
            self.out.actions.push(DpAction::PopVlan);
        }
        for (tpid, tci) in want[..want.len() - same].iter().rev() {
            let tpid = if *tpid == 0 { 0x8100 } else { *tpid };
            self.out.actions.push(DpAction::PushVlan { tpid, tci: *tci });
        }
    }

    /// Pushes a label; whatever followed the Ethernet header can no longer be reached.
    #[inline(never)]
    pub(super) fn push_mpls(&mut self, eth_type: u16) {
        self.commit();
        let old_type = self.read(FieldId::EthType);
        let is_mpls = matches!(old_type, 0x8847 | 0x8848) && !self.labels_are_gone();
        let ([first, second, _], count) = if is_mpls { self.labels_read() } else { ([0; 3], 0) };
        let lse = if count > 0 {
            if count == LABELS.len() {
                self.too_many_labels("push action can't be performed as it would have");
                return;
            }
            self.write_field(FieldId::Mpls2, u128::from(second));
            self.write_field(FieldId::Mpls1, u128::from(first));
            first as u32 & !0x100
        } else {
            let (mut tos, mut ttl) = (0, 64);
            if matches!(old_type, 0x0800 | 0x86dd) {
                self.need_mf(Mf::NwTos, DSCP_BITS.into());
                (tos, ttl) = (self.key.get64(FieldId::NwTos) & DSCP_BITS, self.read(FieldId::NwTtl));
            }
            let label = if old_type == 0x86dd { 2 } else { 0 };
            let ttl = if ttl == 0 { 64 } else { ttl as u32 };
            self.hide_upper_layers();
            label << 12 | (tos as u32 >> 2 & 7) << 9 | 0x100 | ttl
        };
        self.write_field(FieldId::Mpls0, u128::from(lse));
        self.write_field(FieldId::EthType, u128::from(eth_type));
        self.pushed.push(Box::new((self.base.clone(), self.base_known.clone())));
        self.labels = self.pushed.len();
        self.out.actions.push(DpAction::PushMpls { eth_type, lse });
        self.base_is_key();
        // What is hidden was not set, and is read again once it is uncovered.
        self.dscp = Dscp::Known;
    }

    /// Pops a label whose purpose is fulfilled: below it, the packet is what it was.
    #[inline(never)]
    fn take_label_back(&mut self) {
        let Some(beneath) = self.pushed.pop() else { return };
        let (base, known) = &*beneath;
        let eth_type = base.get64(FieldId::EthType) as u16;
        for &field in HIDDEN_BY_MPLS.iter().chain(&[FieldId::EthType]) {
            self.base.set(field, base.get(field));
            self.base_known.set(field, known.get(field));
        }
        for b in UPPER_BLOCKS {
            for w in 0..8 {
                self.base.set_word(b, w, base.word(b, w));
                self.base_known.0.set_word(b, w, known.0.word(b, w));
            }
        }
        self.out.actions.push(DpAction::PopMpls { eth_type });
    }

    fn hide_upper_layers(&mut self) {
        for &f in HIDDEN_BY_MPLS {
            self.write_field(f, 0);
        }
        for b in UPPER_BLOCKS {
            for w in 0..8 {
                self.write(b, w, u64::MAX, 0);
            }
        }
    }

    /// The packet's labels and Ethernet type are now the pipeline's.
    fn base_is_key(&mut self) {
        for &f in HIDDEN_BY_MPLS.iter().chain(&[FieldId::EthType]) {
            let bits = self.written.get(f);
            self.note_base(f, bits);
        }
        for b in UPPER_BLOCKS {
            for w in 0..8 {
                let bits = self.written.0.word(b, w);
                let value = self.base.word(b, w) & !bits | self.key.word(b, w) & bits;
                self.base.set_word(b, w, value);
                self.base_known.add_word(b, w, bits);
            }
        }
    }

    /// Pops the first label, or all of them if what follows is said not to be a label. After the last one,
    /// the packet must be read again before anything else looks at it.
    pub(super) fn pop_mpls(&mut self, eth_type: u16) {
        if !self.has_label() || self.labels_are_gone() {
            return;
        }
        self.commit();
        // There are no labels after the bottom of the stack, so this bit alone decides.
        self.need_mf(Mf::MplsBos, 1);
        let is_last_of_all = is_last(self.key.get64(FieldId::Mpls0));
        let second = if is_last_of_all { 0 } else { self.read(FieldId::Mpls1) };
        let third = if is_last_of_all || is_last(second) { 0 } else { self.read(FieldId::Mpls2) };
        // As in [`Self::labels_read`], a label that is zero altogether is none.
        let is_alone = !is_last_of_all && second == 0 && third == 0;
        if is_alone && self.read(FieldId::Mpls0) == 0 {
            return;
        }
        let is_bottom = is_last_of_all || is_alone;
        let ends = second == 0 || third == 0 || is_last(third);
        let is_label = matches!(eth_type, 0x8847 | 0x8848);
        if !is_label && !ends {
            self.too_many_labels("pop action can't be performed as it has");
            return;
        }
        let next_type = if is_label || is_bottom { eth_type } else { 0x8847 };
        self.write_field(FieldId::Mpls0, u128::from(second));
        self.write_field(FieldId::Mpls1, u128::from(third));
        self.write_field(FieldId::Mpls2, 0);
        self.write_field(FieldId::EthType, u128::from(next_type));
        self.out.actions.push(DpAction::PopMpls { eth_type: next_type });
        self.pushed.pop();
        self.labels = self.pushed.len();
        self.irreversible = true;
        self.base_is_key();
        if next_type != eth_type {
            self.pop_mpls(eth_type);
            return;
        }
        // A fourth label would not have been read either.
        self.unread = is_bottom && !is_label || !ends;
    }

    /// The labels, down to the bottom of the stack, and their number; without a bottom there are more.
    ///
    /// A trace may be given a label without the bottom's bit and nothing below it: as in Open vSwitch, labels
    /// that are zero altogether do not count then.
    fn labels_read(&mut self) -> ([u64; 3], usize) {
        let mut labels = [0; LABELS.len()];
        for (at, field) in LABELS.into_iter().enumerate() {
            labels[at] = self.read(field);
            if is_last(labels[at]) {
                return (labels, at + 1);
            }
        }
        (labels, labels.iter().filter(|label| **label != 0).count())
    }

    fn too_many_labels(&mut self, what: &str) {
        let limit = LABELS.len();
        self.trace.error(|| {
            format!("dropping packet on which an MPLS {what} more MPLS LSEs than the {limit} supported.")
        });
        self.fail(DropReason::MplsLabelLimit, "Too many MPLS labels");
    }

    /// Whether the last label was popped by an action that says that there is another: as in Open vSwitch,
    /// the packet has the Ethernet type of labels, and none.
    fn labels_are_gone(&self) -> bool {
        LABELS.into_iter().all(|field| self.written.get(field) == field.ones() && self.key.get(field) == 0)
    }
}

/// Whether a label stack entry is the bottom of its stack.
fn is_last(lse: u64) -> bool {
    lse & 0x100 != 0
}

/// All known tags, outermost first.
fn tags(key: &Key, below: &[(u16, u16)]) -> Vec<(u16, u16)> {
    let outer = (key.get64(FieldId::VlanTpid) as u16, key.get64(FieldId::VlanTci) as u16);
    let inner = (key.get64(FieldId::VlanTpid2) as u16, key.get64(FieldId::VlanTci2) as u16);
    let known = [outer, inner].into_iter().chain(below.iter().rev().copied());
    known.filter(|tag| tag.1 & 0x1000 != 0).collect()
}
