//! Connection tracking: `ct` and `ct_clear`.
//!
//! Connections are looked up when packets arrive, not during translation. So `ct` becomes a datapath action,
//! and whatever depends on its result is deferred: with `table=`, a copy of the packet comes back with the
//! result, and continues in that table as a frozen state says. The rest of the list continues without the
//! result, with the connection tracking fields cleared.

use super::Xlate;
use super::continuation::{Step, Tracked};
use crate::table::Entry;
use crate::trace::Sink;
use datapath::DpAction;
use datapath::conntrack::nat::{Range, Side};
use datapath::conntrack::{Helper, Nat, Request};
use flow::action::{Ct, CtZone, NatSide};
use flow::key::B_CT;
use flow::{Action, FieldId};
use std::sync::Arc;

/// Words of the connection tracking block that contain mark and label.
const SETTABLE: [usize; 3] = [0, 1, 2];

/// A value and the bits to set.
type Setting = (u128, u128);

impl<'a, S: Sink> Xlate<'a, S> {
    #[inline(never)]
    pub(super) fn track(&mut self, ct: &'a Ct) {
        self.commit();
        let zone = match ct.zone {
            CtZone::Is(zone) => zone,
            CtZone::In(sub) => self.read_sub(&sub) as u16,
        };
        // Of several the last counts, as in Open vSwitch.
        let nat = ct.actions.iter().rev().find_map(|action| match action {
            Action::Nat(nat) => Some(nat),
            _ => None,
        });
        let (mark, label) = self.take_settings(&ct.actions);
        let helper = match ct.alg {
            21 => Some(Helper::Ftp),
            69 => Some(Helper::Tftp),
            _ => None,
        };
        let request = Request {
            zone,
            commit: ct.commit,
            force: ct.force,
            mark: mark.map(|(value, mask)| (value as u32, mask as u32)),
            label,
            nat: nat.map(translated),
            helper,
        };
        if ct.actions.is_empty() {
            self.trace.nothing_to_do();
        }
        self.irreversible = true;
        self.out.actions.push(DpAction::Ct(Arc::new(request)));
        self.is_tracked_below = true;
        if let Some(table) = ct.table {
            self.go_on_tracked(table, &Tracked { zone, nat, mark, label });
        }
        self.is_tracked = false;
        self.clear_connection();
        self.trace.detail(|| {
            "Sets the packet to an untracked state, and clears all the conntrack fields.".to_string()
        });
    }

    /// Values and masks of mark and label after the actions.
    fn take_settings(&mut self, actions: &'a [Action]) -> (Option<Setting>, Option<Setting>) {
        let words = SETTABLE.map(|word| (self.key.word(B_CT, word), self.written.0.word(B_CT, word)));
        // Mark and label of the packet can be read.
        SETTABLE.into_iter().for_each(|word| self.written.0.set_word(B_CT, word, 0));
        for action in actions {
            match action {
                Action::Nat(_) => self.trace.begin_action(action),
                _ => _ = self.actions(std::slice::from_ref(action)),
            }
        }
        let set = [FieldId::CtMark, FieldId::CtLabel].map(|field| {
            let mask = self.written.get(field);
            (mask != 0).then(|| (self.key.get(field) & mask, mask))
        });
        for (word, before) in SETTABLE.into_iter().zip(words) {
            self.restore_word(B_CT, word, before);
        }
        (set[0], set[1])
    }

    /// A copy continues in a table after tracking.
    fn go_on_tracked(&mut self, table: u8, tracked: &Tracked<'_>) {
        let (set, stack) = (self.copied_action_set(), self.stack.clone());
        let rest = self.freezing.take();
        let was_tracked = std::mem::replace(&mut self.is_tracked, true);
        // The state of the copy does not contain them, but the rest of the list may read them.
        let fields = [FieldId::DpHash, FieldId::ActsetOutput].map(|field| (field, self.key.get(field)));
        self.freezing = Some(vec![self.step(table)]);
        self.finish_freezing_tracked(Some(tracked));
        fields.into_iter().for_each(|(field, value)| self.key.set(field, value));
        self.trace.detail(|| {
            "A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table "
                .to_string()
                + &format!("{table}.")
        });
        self.is_tracked = was_tracked;
        (self.action_set, self.stack, self.freezing) = (set, stack, rest);
    }

    /// The packet continues in a table.
    pub(super) fn step(&self, table_id: u8) -> Step {
        Step { actions: vec![Action::GotoTable(table_id)], table_id, cookie: self.origin.cookie.get() }
    }

    /// For the rest of the list the packet counts as not tracked, whatever rules have set.
    #[inline(never)]
    pub(super) fn clear_connection(&mut self) {
        use FieldId::*;
        let of_all = [CtState, CtZone, CtMark, CtLabel, CtNwProto, CtTpSrc, CtTpDst];
        let of_either: &[FieldId] = match self.read(EthType) {
            0x0800 => &[CtNwSrc, CtNwDst],
            0x86dd => &[CtIpv6Src, CtIpv6Dst],
            _ => &[],
        };
        for &field in of_all.iter().chain(of_either) {
            self.write_field(field, 0);
        }
    }

    /// Whether the packet has the tuple of a connection.
    pub(super) fn has_connection(&mut self) -> bool {
        self.is_ip() && self.read(FieldId::CtNwProto) != 0
    }

    /// Looks into a table with the packet's addresses, protocol and ports replaced by those of its
    /// connection's original direction, for this lookup only. All of them become part of the mask: the effect
    /// of a table change on the flow is judged by values that all its packets share.
    #[inline(never)]
    pub(super) fn lookup_by_connection(&mut self, table_id: u8) -> Option<&'a Entry> {
        use FieldId::*;
        let addresses = match self.read(EthType) {
            0x0800 => [(NwSrc, CtNwSrc), (NwDst, CtNwDst)],
            _ => [(Ipv6Src, CtIpv6Src), (Ipv6Dst, CtIpv6Dst)],
        };
        let others = [(NwProto, CtNwProto), (TpSrc, CtTpSrc), (TpDst, CtTpDst)];
        let before = Box::new((self.key.clone(), self.written.clone(), self.any_written));
        for (field, of_connection) in addresses.into_iter().chain(others) {
            let values = [field, of_connection].map(|field| self.read_whole(field));
            self.write_field(field, values[1]);
            self.write_field(of_connection, values[0]);
        }
        let found = self.lookup(table_id);
        (*self.key, *self.written, self.any_written) = *before;
        self.noted = None;
        found
    }

    /// Adds the field, of any width, to the mask and returns its value.
    fn read_whole(&mut self, field: FieldId) -> u128 {
        let place = field.place();
        if place.bits <= 64 {
            return self.read(field).into();
        }
        self.need(place.block.into(), place.word.into(), u64::MAX);
        self.need(place.block.into(), usize::from(place.word) + 1, u64::MAX);
        self.key.get(field)
    }

    /// `ct_clear`.
    pub(super) fn forget_connection(&mut self) {
        if self.is_tracked {
            self.commit();
            self.out.actions.push(DpAction::CtClear);
            (self.is_tracked, self.is_tracked_below) = (false, false);
        }
        self.clear_connection();
    }

    /// Hides the tracking result from later readers of the packet, unless they may see it.
    pub(super) fn hide_connection(&mut self) {
        if self.is_tracked_below && !self.is_tracked {
            self.out.actions.push(DpAction::CtClear);
            self.is_tracked_below = false;
            // Whatever follows a copy may see it.
            self.irreversible = true;
        }
    }
}

fn translated(nat: &flow::action::Nat) -> Nat {
    let side = match nat.side {
        None => return Nat::Existing,
        Some(NatSide::Src) => Side::Src,
        Some(NatSide::Dst) => Side::Dst,
    };
    Nat::New(Range {
        side,
        addresses: nat.addresses,
        is_ipv6: nat.is_ipv6,
        ports: nat.ports,
        is_persistent: nat.is_persistent,
        is_hash: nat.is_hash,
        is_random: nat.is_random,
    })
}
