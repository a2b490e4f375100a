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
//! Files: this one has the state; `tables` goes from table to table, with a visit for each lookup; `actions`
//! interprets actions one by one, `action_set` those of the set; `choice` chooses links; `encap` pushes and
//! removes outer headers; `learn` creates rules; `length` branches by packet length; `output` has ports,
//! patch ports and packet-ins; `ttl` handles TTLs; `group` has groups; `normal` is the learning switch;
//! `commit` emits the datapath's actions; `copies` has those on copies; `dropped` has lists without output;
//! `levels` bounds their nesting; `frozen` has what waits while a packet is extracted again.
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
mod tables;
mod ttl;

pub(crate) use entry::{packet, packet_in_bridge, packet_out, prefetch};
pub(crate) use ordered::action_set_order;

use self::dropped::{drop_at_last, has_output};
use self::levels::{LEVELS_MAX, levels};
use self::ordered::ActionSet;
use self::stack::Stack;
use crate::effect::Effect;
use crate::rule::Rule;
use crate::switch::Switch;
use crate::topology::{self, Bridge, BridgeIdx, Topology};
use crate::trace::Sink;
use base::rcu::Reader;
use base::{DropReason, OfPort, Version};
use datapath::hash::PacketHash;
use datapath::{DpAction, Scratch, Translation};
use flow::action::PacketInReason;
use flow::{FieldId, Key, Mask, Match, Mf};
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

/// DSCP in the type of service.
const DSCP_BITS: u64 = 0xfc;

/// The packet's DSCP in the datapath, which a meter may have remarked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dscp {
    /// Known, like any other field.
    Known,
    /// A meter may have remarked it, and no rule has set it since: it stays as it is.
    Remarked,
    /// A rule has set these bits of the type of service since, which has to be done whatever their value was
    /// before. The others stay as they are.
    SetAnew(u64),
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
    dscp: Dscp,
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
            dscp: Dscp::Known,
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
        if self.dscp != Dscp::Known {
            self.set_anew(block, word, bits);
        }
    }

    /// Notes what a write after a meter sets of the DSCP.
    #[cold]
    fn set_anew(&mut self, block: usize, word: usize, bits: u64) {
        let place = FieldId::NwTos.place();
        let is_there = (block, word) == (place.block.into(), place.word.into());
        let bits = bits >> place.shift & DSCP_BITS;
        if is_there && bits != 0 {
            let before = if let Dscp::SetAnew(before) = self.dscp { before } else { 0 };
            self.dscp = Dscp::SetAnew(before | bits);
        }
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
