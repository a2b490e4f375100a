//! Translation: what happens to a packet with this key at this version. A pure function.
//!
//! The state of a translation in progress ([`Xlate`]) is four keys: `orig`, the packet as it came in; `key`,
//! what the pipeline has made of it; `written`, the bits that actions have set, whose value is therefore the
//! same for every packet of the flow; and `base`, what the datapath's actions so far have made of it. From
//! these follow
//!
//! - the flow's mask: whatever decides anything goes through [`Xlate::need`], which adds the bits that are
//!   not `written`. A needless 1-bit in the mask costs speed; a missing one misforwards;
//! - the visits: each lookup records its table and the words that were rewritten before it;
//! - the Set actions: at an output, those `written` bits that `base` is not known to have.
//!
//! Files: this one has the state and the lookup; `actions` interprets actions one by one, `action_set` those
//! of the set; `choice` chooses links; `encap` pushes and removes outer headers; `learn` creates rules;
//! `length` branches by packet length; `output` has ports, patch ports and packet-ins; `ttl` handles TTLs;
//! `group` has groups; `normal` is the learning switch; `commit` emits the datapath's actions; `copies` has
//! those on copies; `dropped` has lists without output; `levels` bounds their nesting; `frozen` has what
//! waits while a packet is extracted again.
//!
//! Nested resubmits recurse, up to [`RESUBMITS_MAX`] levels. So functions on that path have small stack
//! frames; whatever is large is not inlined, or is on the heap. A test runs the deepest nesting on half of a
//! worker's stack.
//!
//! Threads: any number at once. Only the result is allocated, unless rules freeze or clone, cross a patch
//! cable, or use the stack, the action set or a packet-in.

mod action_set;
mod actions;
mod bounds;
mod choice;
mod commit;
mod connection;
pub(crate) mod continuation;
mod copies;
mod dropped;
mod encap;
mod entry;
pub(crate) mod frozen;
mod group;
pub(crate) mod learn;
mod length;
mod levels;
mod normal;
mod ordered;
mod output;
mod stack;
mod ttl;

pub(crate) use entry::{packet, packet_in_bridge, packet_out, prefetch};
pub(crate) use ordered::action_set_order;

use self::dropped::{drop_at_last, has_output};
use self::levels::{LEVELS_MAX, levels};
use self::ordered::ActionSet;
use self::stack::Stack;
use crate::changelog::{rule_table, word_table};
use crate::effect::Effect;
use crate::flow_mod::TABLE_HIDDEN;
use crate::rule::Rule;
use crate::switch::Switch;
use crate::table::Entry;
use crate::topology::{self, Bridge, BridgeIdx, Fragments, Topology};
use crate::trace::{Found, Sink};
use base::rcu::Reader;
use base::{DropReason, OfPort, Version};
use datapath::hash::PacketHash;
use datapath::{DpAction, Rewrite, Scratch, Translation, Visit};
use flow::action::PacketInReason;
use flow::{FieldId, Key, Mask, Match, Mf};
use openflow::message::TableMiss;
use std::sync::LazyLock;

/// Maximum nesting of resubmits to the same or an earlier table.
pub const DEPTH_MAX: u32 = 64;
/// Maximum number of resubmits in one translation.
pub const RESUBMITS_MAX: u32 = 4096;
/// Maximum nesting of clones, over all tables. They do not count for [`DEPTH_MAX`], as in Open vSwitch (where
/// more overflow the stack). One list nests 99 at most. With [`RESUBMITS_MAX`] levels of tables around them,
/// they take less than half of a worker's stack.
const CLONES_NESTED_MAX: u32 = 1024;
/// Maximum number of group buckets and length branches in one translation.
const BUCKETS_MAX: u32 = 16_384;
/// Maximum number of tags for which the key has no room. (Open vSwitch knows of none.)
const TAGS_BELOW_MAX: usize = 64;
/// Beyond this many datapath actions, no further table or group is looked up.
const ACTIONS_MAX: usize = 8192;

/// Where the actions being executed come from.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    table_id: u8,
    cookie: Cookie<'a>,
}

/// A rule's cookie, read lazily: few translations need it, and the rule may be in memory that they have not
/// touched yet.
#[derive(Clone, Copy)]
enum Cookie<'a> {
    Of(&'a Rule),
    Is(u64),
    /// Of a packet without a rule.
    Missing,
}

impl Cookie<'_> {
    fn get(self) -> u64 {
        match self {
            Cookie::Of(rule) => rule.cookie,
            Cookie::Is(cookie) => cookie,
            Cookie::Missing => 0,
        }
    }
}

impl Origin<'_> {
    /// For actions that belong to no rule.
    pub(crate) const NONE: Self = Origin { table_id: 0, cookie: Cookie::Is(u64::MAX) };

    /// Whether they belong to a table-miss rule.
    fn is_table_miss(&self) -> bool {
        match self.cookie {
            Cookie::Of(rule) => rule.priority == 0 && rule.matching.to_match() == Match::any(),
            Cookie::Is(_) | Cookie::Missing => false,
        }
    }

    /// Whether there is no rule.
    fn is_without_rule(&self) -> bool {
        matches!(self.cookie, Cookie::Missing)
    }
}

/// The number of rules with a cookie in a table of a bridge.
pub type LearnedCounts<'a> = dyn Fn(BridgeIdx, u8, u64) -> u32 + 'a;

/// The state used for translation: a switch at a version, protected by a reader.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot<'a> {
    pub switch: &'a Switch,
    pub version: Version,
    pub reader: &'a Reader,
    /// On the control thread: the number of rules with a cookie in a table, if some `learn` limits that
    /// number.
    pub learned: Option<&'a LearnedCounts<'a>>,
    /// Translation by a worker: it learns no rules, and only reports that there is one to learn.
    pub by_worker: bool,
}

impl<'a> Snapshot<'a> {
    pub fn new(switch: &'a Switch, version: Version, reader: &'a Reader) -> Self {
        Snapshot { switch, version, reader, learned: None, by_worker: false }
    }

    fn topology(self) -> &'a Topology {
        topology::at(self.switch.history.read(self.reader), self.version)
    }
}

/// A change of the packet's type that the next commit will make.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
enum Pending {
    /// None, except that an Ethernet header is removed if the packet has one and should not.
    #[default]
    No,
    /// Push an Ethernet header.
    Ethernet,
    /// Push a network service header, with these context headers if they have variable length.
    Nsh(Vec<u8>),
    /// Push a label.
    Mpls,
    /// Remove the first header; if it is a label, this Ethernet type says what follows.
    Decap(u16),
}

/// The datapath's packet below a label: its key, and which of its bits are known.
type Beneath = Box<(Key, Mask)>;

/// A translation in progress; see the module documentation.
pub(crate) struct Xlate<'a, S: Sink> {
    switch: &'a Switch,
    version: Version,
    reader: &'a Reader,
    learned: Option<&'a LearnedCounts<'a>>,
    by_worker: bool,
    topology: &'a Topology,
    out: &'a mut Translation<Effect>,
    trace: &'a mut S,
    key: &'a mut Key,
    written: &'a mut Mask,
    /// Whether `written` holds anything.
    any_written: bool,
    base: &'a mut Key,
    /// Bits of `base` that the actions so far have set.
    base_known: &'a mut Mask,
    /// Whether a VLAN tag was pushed or popped.
    vlan_moved: bool,
    /// Tags (TPID, TCI) for which the key has no room, innermost first: pushed tags have displaced them.
    below: Vec<(u16, u16)>,
    /// The same for `base`.
    base_below: Vec<(u16, u16)>,
    /// What is below each pushed label, so that a commit can pop labels that the pipeline's packet no longer
    /// has; and how many it has.
    pushed: Vec<Beneath>,
    labels: usize,
    /// The next commit's change to the packet's type.
    pending: Pending,
    /// The packet started with an Ethernet header.
    came_with_ethernet: bool,
    /// The datapath's actions so far include one that others cannot undo.
    irreversible: bool,
    /// Where the actions of the current copy begin.
    copy_start: usize,
    /// Rewrites recorded for the last visit, if nothing has been written since.
    noted: Option<(u16, u16)>,
    bridge: &'a Bridge,
    origin: Origin<'a>,
    /// The first rule's cookie.
    first_cookie: Cookie<'a>,
    depth: u32,
    /// Clones that are being executed, each within the one before.
    clones: u32,
    resubmits: u32,
    /// Buckets executed so far, and bucket liveness checks so far.
    buckets: u32,
    liveness: u32,
    stack: Stack,
    action_set: ActionSet<'a>,
    /// Actions in all copies of it so far.
    set_copied: usize,
    exit: bool,
    /// The list with the action ends here; the lists that led to it continue.
    list_ends: bool,
    /// The translation failed.
    error: Option<DropReason>,
    /// The reason, as a trace ends with it.
    failure: &'static str,
    /// The packet to report in that case.
    failed_key: Option<Box<Key>>,
    /// The next lookup uses the addresses of the packet's connection.
    by_connection: bool,
    /// Why nothing has been output yet.
    drop_reason: DropReason,
    /// The reason in packet-ins of `output:CONTROLLER`, which depends on where the action is.
    controller_reason: PacketInReason,
    /// The action is in a bucket of a group.
    in_bucket: bool,
    /// Inside an `output(port=patch,max_len=..)`.
    max_bytes: Option<u32>,
    /// An MPLS label was popped: what follows has not been read.
    unread: bool,
    /// The work that remains once the packet has been read again.
    freezing: Option<Vec<continuation::Step>>,
    /// Before that, the datapath must hash the packet.
    hashing: Option<PacketHash>,
    /// Bits of the packet's hash that are already known.
    hash_mask: u32,
    /// The tracker's result is in the packet's fields.
    is_tracked: bool,
    /// The packet in the datapath was tracked at this point, whether or not these fields show it.
    is_tracked_below: bool,
    /// The rest waits until a controller, which gets this packet-in, sends the packet back.
    pausing: Option<Box<datapath::PacketInSpec>>,
}

impl<'a, S: Sink> Xlate<'a, S> {
    #[inline(always)]
    fn new(
        at: Snapshot<'a>,
        bridge: &'a Bridge,
        of: &Key,
        scratch: &'a mut Scratch,
        out: &'a mut Translation<Effect>,
        trace: &'a mut S,
    ) -> Xlate<'a, S> {
        let Scratch { keys: [key, base], masks: [written, base_known] } = scratch;
        key.clone_from(of);
        base.clone_from(of);
        written.0.clear();
        base_known.0.clear();
        Xlate {
            came_with_ethernet: key.get(FieldId::PacketType) == 0,
            key,
            base,
            switch: at.switch,
            version: at.version,
            reader: at.reader,
            learned: at.learned,
            by_worker: at.by_worker,
            topology: at.topology(),
            out,
            trace,
            written,
            any_written: false,
            base_known,
            vlan_moved: false,
            below: Vec::new(),
            base_below: Vec::new(),
            pushed: Vec::new(),
            labels: 0,
            pending: Pending::No,
            irreversible: false,
            copy_start: 0,
            noted: None,
            bridge,
            origin: Origin::NONE,
            first_cookie: Origin::NONE.cookie,
            depth: 0,
            clones: 0,
            resubmits: 0,
            buckets: 0,
            liveness: 0,
            stack: Stack::default(),
            action_set: ActionSet::default(),
            set_copied: 0,
            exit: false,
            list_ends: false,
            by_connection: false,
            error: None,
            failure: "Invalid action",
            failed_key: None,
            drop_reason: DropReason::ActionDrop,
            controller_reason: PacketInReason::Action,
            in_bucket: false,
            max_bytes: None,
            unread: false,
            freezing: None,
            hashing: None,
            hash_mask: 0,
            is_tracked: false,
            is_tracked_below: false,
            pausing: None,
        }
    }

    /// Adds these bits to the mask.
    #[inline]
    fn need(&mut self, block: usize, word: usize, bits: u64) {
        let bits = if self.any_written { bits & !self.written.0.word(block, word) } else { bits };
        self.out.mask.add_word(block, word, bits);
    }

    /// Adds the field, of at most 64 bits, to the mask and returns its value.
    #[inline]
    fn read(&mut self, field: FieldId) -> u64 {
        let p = field.place();
        self.need(p.block.into(), p.word.into(), (field.ones() as u64) << p.shift);
        self.key.get64(field)
    }

    /// Adds these bits of the field to the mask.
    fn need_mf(&mut self, mf: Mf, bits: u128) {
        mf.for_words(bits, 0, |block, word, bits, _| self.need(block, word, bits));
    }

    /// Sets bits of one word. From here on they are the same for all packets of the flow, so the mask must
    /// already include whatever `value` was computed from.
    #[inline]
    fn write(&mut self, block: usize, word: usize, bits: u64, value: u64) {
        let old = self.key.word(block, word);
        self.key.set_word(block, word, old & !bits | value & bits);
        self.written.add_word(block, word, bits);
        self.any_written = true;
        self.noted = None;
    }

    fn write_field(&mut self, field: FieldId, value: u128) {
        let p = field.place();
        let (b, w) = (p.block.into(), p.word.into());
        if p.bits == 128 {
            self.write(b, w, u64::MAX, (value >> 64) as u64);
            self.write(b, w + 1, u64::MAX, value as u64);
        } else {
            self.write(b, w, (field.ones() as u64) << p.shift, (value as u64) << p.shift);
        }
    }

    fn write_mf(&mut self, mf: Mf, value: u128, mask: u128) {
        mf.for_words(mask, value, |block, word, bits, value| self.write(block, word, bits, value));
    }

    fn in_port(&self) -> OfPort {
        OfPort(self.key.get64(FieldId::InPort) as u16)
    }

    /// Records the lookup of one word in a word table.
    fn visit_word(&mut self, table: u32, word: u64) {
        self.out.visits.push(self.switch.log.visit_of(table, word));
    }

    /// Records a lookup in a table of rules, with what was rewritten before.
    fn visit_rules(&mut self, table_id: u8) {
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

    /// Looks into a table of the current bridge. Not inlined: its second mask would add its size to the stack
    /// frame of each level of nested resubmits.
    #[inline(never)]
    fn lookup(&mut self, table_id: u8) -> Option<&'a Entry> {
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

    /// Looks into a table and executes its rule. On a miss, does what the bridge's configuration says, if
    /// `honor_miss`.
    fn table(&mut self, table_id: u8, honor_miss: bool) {
        self.table_from(table_id, honor_miss, None);
    }

    /// The same, for a lookup as if the packet had come from `in_port`.
    fn table_from(&mut self, table_id: u8, honor_miss: bool, in_port: Option<OfPort>) {
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
    fn is_exhausted(&mut self) -> bool {
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
    fn pipeline(&mut self) {
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

    fn finish_pipeline(&mut self) {
        if self.freezing.is_none() {
            self.execute_action_set();
        }
        if self.freezing.is_some() {
            self.finish_freezing();
        }
    }

    /// Ends the translation of a packet that came in with this key.
    fn finish_of(mut self, key: &Key) {
        self.complete();
        if self.error.is_some() && S::LEARNS && self.switch.takes_failure() {
            self.failed_key = Some(Box::new(key.clone()));
        }
        self.end();
    }

    /// Ends the translation of any other packet.
    fn finish(&mut self) {
        self.complete();
        self.end();
    }

    /// Brings the actions into the form in which the datapath executes them. Adds a drop with a reason if
    /// nothing was output.
    fn complete(&mut self) {
        if self.error.is_some() {
            return;
        }
        if has_output(&self.out.actions) {
            self.finish_copies();
        }
        if !has_output(&self.out.actions) {
            drop_at_last(&mut self.out.actions, self.drop_reason);
        }
        if levels(&self.out.actions) > LEVELS_MAX {
            self.trace.error(|| format!("over {LEVELS_MAX} levels of datapath actions"));
            self.fail(DropReason::ResubmitDepth, "Recursion too deep");
        }
    }

    /// Ends the translation. A trace ends with `failure`.
    fn fail(&mut self, reason: DropReason, failure: &'static str) {
        self.error = Some(reason);
        self.failure = failure;
    }

    /// What has failed drops the packet.
    fn end(&mut self) {
        self.out.mask.set(FieldId::ActsetOutput, 0);
        if let Some(reason) = self.error {
            self.trace.end(self.key);
            self.trace.failed(self.failure);
            self.out.actions.clear();
            self.out.effects.clear();
            self.out.effects.extend(self.failed_key.take().map(Effect::Failed));
            self.out.actions.push(DpAction::Drop(reason));
            return;
        }
        self.trace.end(self.key);
    }

    /// Each packet of the flow must be translated separately.
    #[inline(never)]
    fn is_slow(&mut self) {
        self.out.uncacheable = true;
        self.trace.slow();
    }
}

/// Adds what every flow's mask includes.
fn always_needed(out: &mut Translation<Effect>, eth_type: u64) {
    static OF_IP_AND_OTHERS: LazyLock<[Mask; 2]> = LazyLock::new(|| {
        let mut others = Mask::wild();
        [FieldId::InPort, FieldId::DpPort, FieldId::RecircId, FieldId::EthType, FieldId::PacketType]
            .into_iter()
            .for_each(|field| others.add_exact(field));
        let mut of_ip = others.clone();
        of_ip.add(FieldId::NwFrag, 3);
        [of_ip, others]
    });
    let [of_ip, others] = &*OF_IP_AND_OTHERS;
    out.mask.unite(if matches!(eth_type, 0x0800 | 0x86dd) { of_ip } else { others });
}
