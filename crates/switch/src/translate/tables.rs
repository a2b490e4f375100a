//! From table to table: each lookup with its visit, what a miss does, and the pipeline of a bridge.

use super::{ACTIONS_MAX, Cookie, DEPTH_MAX, Origin, RESUBMITS_MAX, Xlate};
use crate::changelog::{rule_table, word_table};
use crate::flow_mod::TABLE_HIDDEN;
use crate::table::Entry;
use crate::topology::Fragments;
use crate::trace::{Found, Sink};
use base::{DropReason, OfPort};
use datapath::{Rewrite, Visit};
use flow::action::PacketInReason;
use flow::{FieldId, Mask};
use openflow::message::TableMiss;

impl<'a, S: Sink> Xlate<'a, S> {
    /// Looks into a table and executes its rule. On a miss, does what the bridge's configuration says, if
    /// `honor_miss`.
    pub(super) fn table(&mut self, table_id: u8, honor_miss: bool) {
        self.table_from(table_id, honor_miss, None);
    }

    /// The same, for a lookup as if the packet had come from `in_port`.
    pub(super) fn table_from(&mut self, table_id: u8, honor_miss: bool, in_port: Option<OfPort>) {
        if self.unread {
            return self.freeze();
        }
        if self.is_exhausted() {
            return;
        }
        let deepens = u32::from(table_id <= self.origin.table_id);
        self.resubmits += 1;
        self.depth += deepens;
        self.enter(table_id, honor_miss, in_port);
        self.depth -= deepens;
    }

    /// Whether the translation has reached a limit, so that it ends or has failed. Not inlined, for the same
    /// reason as `lookup`.
    #[inline(never)]
    pub(super) fn is_exhausted(&mut self) -> bool {
        if self.depth >= DEPTH_MAX {
            self.trace.error(|| format!("over max translation depth {DEPTH_MAX}"));
            self.fail(DropReason::ResubmitDepth, "Recursion too deep");
        } else if self.resubmits >= RESUBMITS_MAX {
            self.trace.error(|| format!("over {RESUBMITS_MAX} resubmit actions"));
            self.fail(DropReason::ResubmitLimit, "Too many resubmits");
        } else if self.out.actions.len() >= ACTIONS_MAX {
            // As in Open vSwitch, this is no failure: the actions so far are executed, for one packet at a
            // time.
            self.trace.error(|| "resubmits yielded over 64 kB of actions".to_string());
            self.is_slow();
            self.exit = true;
            return true;
        }
        self.is_out_of_bounds() || self.error.is_some()
    }

    fn enter(&mut self, table_id: u8, honor_miss: bool, in_port: Option<OfPort>) {
        let saved = self.origin;
        let in_bucket = std::mem::take(&mut self.in_bucket);
        if self.is_fragment() {
            self.visit_word(word_table::ports(self.bridge.idx.0), word_table::SETTINGS);
            if self.bridge.config.fragments == Fragments::Drop {
                self.drop_reason = DropReason::Fragment;
                self.in_bucket = in_bucket;
                self.trace.enter_table(table_id, Found::Fragment);
                return self.trace.leave();
            }
        }
        let mut table_id = table_id;
        let entry = loop {
            let entry = match in_port {
                None => self.lookup(table_id),
                Some(port) => self.lookup_from(port, table_id),
            };
            if entry.is_some() || !honor_miss || !self.goes_on(table_id) {
                break entry;
            }
            self.trace.enter_table(table_id, Found::Nothing);
            self.trace.leave();
            table_id += 1;
        };
        match entry {
            Some(entry) => {
                self.trace.enter_table(table_id, Found::Rule(&entry.rule));
                self.origin = Origin { table_id, cookie: Cookie::Of(&entry.rule) };
                if let Cookie::Is(u64::MAX) = self.first_cookie {
                    self.first_cookie = self.origin.cookie;
                }
                self.actions(&entry.actions.list);
            }
            // Clients need not know that the hidden table is empty.
            None if honor_miss && table_id != TABLE_HIDDEN => {
                self.origin = Origin { table_id, cookie: Cookie::Missing };
                self.miss(table_id);
            }
            None => self.trace.enter_table(table_id, Found::Nothing),
        }
        self.trace.leave();
        self.origin = saved;
        self.in_bucket = in_bucket;
    }

    /// Whether a packet without a matching rule continues in the next table.
    #[inline(never)]
    fn goes_on(&mut self, table_id: u8) -> bool {
        self.visit_word(word_table::ports(self.bridge.idx.0), word_table::SETTINGS);
        let continues = self.bridge.config.table_misses.get(&table_id) == Some(&TableMiss::Continue);
        continues && table_id + 1 < TABLE_HIDDEN
    }

    #[inline(never)]
    fn miss(&mut self, table_id: u8) {
        self.drop_reason = DropReason::TableMiss;
        self.visit_word(word_table::ports(self.bridge.idx.0), word_table::SETTINGS);
        let tells = match self.bridge.config.table_misses.get(&table_id) {
            Some(TableMiss::Controller) => true,
            Some(TableMiss::Drop) => false,
            Some(TableMiss::Continue) | None => self.bridge.config.miss_to_controller,
        };
        if !tells {
            return self.trace.enter_table(table_id, Found::Nothing);
        }
        let in_port = self.in_port();
        self.visit_word(word_table::ports(self.bridge.idx.0), word_table::port(in_port.0));
        if self.bridge.port(in_port).is_some_and(|p| p.spec.config.no_packet_in) {
            return self.trace.enter_table(table_id, Found::Nothing);
        }
        self.trace.enter_table(table_id, Found::Miss);
        let max_len = self.bridge.config.miss_send_len;
        self.packet_in(max_len, PacketInReason::NoMatch, 0, &[]);
    }

    /// The pipeline of the current bridge, from table 0 to the action set.
    pub(super) fn pipeline(&mut self) {
        if self.unread {
            // It comes from another bridge, which has popped a label.
            self.freeze();
            self.freezing = Some(vec![self.step(0)]);
            return self.finish_pipeline();
        }
        self.enter(0, true, None);
        if let Cookie::Is(u64::MAX) = self.origin.cookie {
            // The action set belongs to the first rule.
            self.origin.cookie = self.first_cookie;
        }
        self.finish_pipeline();
    }

    pub(super) fn finish_pipeline(&mut self) {
        if self.freezing.is_none() {
            self.execute_action_set();
        }
        if self.freezing.is_some() {
            self.finish_freezing();
        }
    }

    /// Looks into a table of the current bridge. Not inlined: its second mask would add its size to the stack
    /// frame of each level of nested resubmits.
    #[inline(never)]
    pub(super) fn lookup(&mut self, table_id: u8) -> Option<&'a Entry> {
        if std::mem::take(&mut self.by_connection) {
            return self.lookup_by_connection(table_id);
        }
        if self.is_fragment() && self.bridge.config.fragments == Fragments::Normal {
            return self.lookup_without_ports(table_id);
        }
        self.lookup_as_it_is(table_id)
    }

    /// Whether the packet is a fragment; these bits are in every flow's mask.
    fn is_fragment(&self) -> bool {
        self.key.get64(FieldId::NwFrag) & 1 != 0
    }

    /// As if a rule had set the transport ports to 0, for this lookup only.
    fn lookup_without_ports(&mut self, table_id: u8) -> Option<&'a Entry> {
        let ports = [FieldId::TpSrc, FieldId::TpDst];
        let before = (self.written.clone(), self.any_written, ports.map(|port| self.key.get64(port)));
        ports.iter().for_each(|port| self.write_field(*port, 0));
        let found = self.lookup_as_it_is(table_id);
        let (written, any_written, values) = before;
        for (port, value) in ports.into_iter().zip(values) {
            self.key.set(port, value.into());
        }
        (*self.written, self.any_written, self.noted) = (written, any_written, None);
        found
    }

    fn lookup_as_it_is(&mut self, table_id: u8) -> Option<&'a Entry> {
        self.visit_rules(table_id);
        let table = self.bridge.state.table(table_id)?;
        let found = if self.any_written {
            let mut decided = Mask::wild();
            let found = table.lookup(self.version, self.key, &mut decided, self.reader, &mut self.out.steps);
            for b in decided.0.present_blocks() {
                for w in 0..8 {
                    self.need(b, w, decided.0.block(b).0[w]);
                }
            }
            found
        } else {
            table.lookup(self.version, self.key, &mut self.out.mask, self.reader, &mut self.out.steps)
        };
        match found {
            Some(entry) => self.out.credits.extend([table.matched_slot, entry.slot]),
            None => self.out.credits.push(table.missed_slot),
        }
        found
    }

    /// Records the lookup of one word in a word table.
    pub(super) fn visit_word(&mut self, table: u32, word: u64) {
        self.out.visits.push(self.switch.log.visit_of(table, word));
    }

    /// Records a lookup in a table of rules, with what was rewritten before.
    pub(super) fn visit_rules(&mut self, table_id: u8) {
        let table = rule_table(self.bridge.idx.0, table_id);
        if !self.any_written {
            return self.push_visit(table, 0, 0);
        }
        if let Some((start, len)) = self.noted {
            return self.push_visit(table, start.into(), len.into());
        }
        let start = self.out.rewrites.len();
        for b in self.written.0.present_blocks() {
            let (mask, value) = (self.written.0.block(b), self.key.block(b));
            for w in 0..8 {
                if mask.0[w] != 0 {
                    self.out.rewrites.push(Rewrite {
                        mask: mask.0[w],
                        value: value.0[w] & mask.0[w],
                        block: b as u8,
                        word: w as u8,
                    });
                }
            }
        }
        let len = self.out.rewrites.len() - start;
        self.push_visit(table, start, len);
        self.noted = Some((start as u16, len as u16));
    }

    fn push_visit(&mut self, table: u32, start: usize, len: usize) {
        match (u16::try_from(start), u16::try_from(len)) {
            (Ok(rewrites_start), Ok(rewrites_len)) => {
                self.out.visits.push(Visit { table, rewrites_start, rewrites_len });
            }
            // More was rewritten than a flow can record, so it could not be judged later.
            _ => self.out.uncacheable = true,
        }
    }
}
