//! Numbered states of translations that wait for their packet to come back ([`crate::translate`] freezes and
//! thaws them).
//!
//! States are hash-consed: equal states have one number, so that flows share megaflows. Numbers count up from
//! one, in a table of write-once slots: neither finding nor adding one waits for a lock. When three quarters
//! of the slots are in use, the control thread begins a new generation. The previous one stays until the next
//! begins, for packets in flight.
//!
//! Each bridge has its own generations. A controller that invents values which become part of states fills
//! only the slots of its own bridge and causes only that bridge's flows to be translated again: other bridges
//! are not affected.

use crate::topology::BridgeIdx;
use crate::translate::continuation::Rest;
use base::hash::HashKey;
use flow::Action;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// States per generation and bridge.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 13;
/// Generations are numbered with the remaining bits.
const LAST_NUMBER: u32 = u32::MAX >> SLOT_BITS;
/// Slots tried per state.
const PROBES: usize = 64;
/// Bytes of states per generation and bridge: rules decide how much waits.
const BYTES_MAX: usize = 64 << 20;
/// With this many slots in use, states that are only shown get no number, so as to leave room for those that
/// packets need.
const SHOWN_MAX: usize = SLOTS / 4;

/// A translation that is waiting.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frozen {
    pub bridge: BridgeIdx,
    pub rest: Rest,
    pub in_port: u16,
    /// The trace that it belongs to; 0 for none. A trace's states are separate: no packet comes back to them.
    pub trace: u32,
    /// Bits of the datapath's hash that the packet has when it comes back.
    pub hash_mask: u32,
    /// The pipeline's own fields, which extraction does not provide.
    pub fields: Vec<(u8, u8, u64)>,
}

impl Frozen {
    /// Memory that it takes, about.
    fn bytes(&self) -> usize {
        let Rest { steps, action_set, stack, .. } = &self.rest;
        let actions = steps.iter().map(|step| step.actions.len()).sum::<usize>() + action_set.len();
        let stacked: usize = stack.values().iter().map(|value| value.len()).sum();
        size_of::<Frozen>() + actions * size_of::<Action>() + stacked + self.fields.len() * 16
    }
}

/// One generation of states of one bridge.
pub(crate) struct Generation {
    number: u32,
    /// Created with the first state: few bridges have any.
    table: OnceLock<Table>,
    used: AtomicUsize,
    /// Of the states in use, about.
    bytes: AtomicUsize,
}

/// States by hash, and their slots by number.
struct Table {
    slots: Box<[OnceLock<(u32, Frozen)>]>,
    /// One more than the slot of each number; 0 for none.
    by_number: Box<[AtomicU32]>,
}

impl Table {
    fn new() -> Table {
        Table {
            slots: (0..SLOTS).map(|_| OnceLock::new()).collect(),
            by_number: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn get(&self, number: u32) -> Option<&Frozen> {
        let slot = self.by_number[number as usize].load(Ordering::Acquire).checked_sub(1)?;
        // The slot may belong to another worker's state, which has a number of its own.
        self.slots[slot as usize].get().filter(|(of, _)| *of == number).map(|(_, state)| state)
    }
}

impl Generation {
    fn new(number: u32) -> Generation {
        Generation { number, table: OnceLock::new(), used: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// The number of a state, which is added if it is new. `None` when there is no room.
    pub(crate) fn intern(&self, state: Frozen, secret: &HashKey) -> Option<u32> {
        struct Fold<'a>(u64, &'a HashKey);
        impl Hasher for Fold<'_> {
            fn finish(&self) -> u64 {
                self.0
            }
            fn write(&mut self, bytes: &[u8]) {
                for chunk in bytes.chunks(8) {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    self.0 = self.1.word(self.0, u64::from_le_bytes(word));
                }
            }
        }
        let mut hasher = Fold(0, secret);
        state.hash(&mut hasher);
        let start = hasher.finish() as usize;
        let mut state = state;
        let table = self.table.get_or_init(Table::new);
        for probe in 0..PROBES {
            let at = start.wrapping_add(probe) & (SLOTS - 1);
            let slot = &table.slots[at];
            if slot.get().is_none() {
                if self.bytes.load(Ordering::Relaxed) > BYTES_MAX {
                    return None;
                }
                let bytes = state.bytes();
                let number = self.used.fetch_add(1, Ordering::Relaxed) as u32 + 1;
                let place = table.by_number.get(number as usize)?;
                // Stored before any worker can see the state and look up its number.
                place.store(at as u32 + 1, Ordering::Release);
                match slot.set((number, state)) {
                    Ok(()) => {
                        self.bytes.fetch_add(bytes, Ordering::Relaxed);
                        return Some(self.id(number));
                    }
                    // Another worker was faster; its state may be the same.
                    Err((_, back)) => state = back,
                }
            }
            if let Some((number, there)) = slot.get()
                && *there == state
            {
                return Some(self.id(*number));
            }
        }
        None
    }

    /// Never 0, which means "from a port".
    fn id(&self, number: u32) -> u32 {
        self.number << SLOT_BITS | number
    }

    /// A number that distinguishes a trace's states from those of all other traces: each trace takes a slot.
    pub(crate) fn number_of_trace(&self) -> u32 {
        self.used.load(Ordering::Relaxed) as u32 + 1
    }

    /// Whether there is room for a state that is only shown.
    pub(crate) fn may_show(&self) -> bool {
        self.used.load(Ordering::Relaxed) < SHOWN_MAX
    }

    /// Whether the next generation should begin.
    fn is_nearly_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > SLOTS / 4 * 3
            || self.bytes.load(Ordering::Relaxed) > BYTES_MAX / 4 * 3
    }
}

/// The generations of a bridge that can be thawed.
#[derive(Clone)]
struct OfBridge {
    newest: Arc<Generation>,
    /// The previous one.
    older: Option<Arc<Generation>>,
}

/// All generations that can be thawed.
#[derive(Clone, Default)]
pub(crate) struct Generations {
    /// By bridge number.
    bridges: Vec<Option<OfBridge>>,
    /// The same, ordered by generation number.
    all: Vec<Arc<Generation>>,
    next_number: u32,
}

impl Generations {
    /// Adds a first generation for a bridge whose number another bridge may have had before.
    pub fn with_bridge(&self, bridge: BridgeIdx) -> Generations {
        let mut new = self.clone();
        let at = bridge.0 as usize;
        new.bridges.resize(new.bridges.len().max(at + 1), None);
        let newest = new.generation();
        new.bridges[at] = Some(OfBridge { newest, older: None });
        new.listed()
    }

    /// Removes those of a bridge.
    pub fn without_bridge(&self, bridge: BridgeIdx) -> Generations {
        let mut new = self.clone();
        if let Some(of_bridge) = new.bridges.get_mut(bridge.0 as usize) {
            *of_bridge = None;
        }
        new.listed()
    }

    /// The bridges whose next generation should begin.
    pub fn nearly_full(&self) -> impl Iterator<Item = BridgeIdx> {
        let is_full = |b: &Option<OfBridge>| b.as_ref().is_some_and(|b| b.newest.is_nearly_full());
        self.bridges.iter().enumerate().filter(move |(_, b)| is_full(b)).map(|(at, _)| BridgeIdx(at as u32))
    }

    /// Adds a new generation for a bridge, and drops all but the previous one.
    pub fn renewed(&self, bridge: BridgeIdx) -> Generations {
        let mut new = self.clone();
        let newest = new.generation();
        if let Some(Some(of_bridge)) = new.bridges.get_mut(bridge.0 as usize) {
            let older = std::mem::replace(&mut of_bridge.newest, newest);
            of_bridge.older = Some(older);
        }
        new.listed()
    }

    /// A generation with a number that no other has now.
    fn generation(&mut self) -> Arc<Generation> {
        loop {
            let number = self.next_number;
            self.next_number = if number >= LAST_NUMBER { 0 } else { number + 1 };
            if self.all.binary_search_by_key(&number, |g| g.number).is_err() {
                return Arc::new(Generation::new(number));
            }
        }
    }

    fn listed(mut self) -> Generations {
        let kept = self.bridges.iter().flatten().flat_map(|b| b.older.iter().chain([&b.newest]));
        self.all = kept.cloned().collect();
        self.all.sort_by_key(|g| g.number);
        self
    }

    pub(crate) fn newest(&self, bridge: BridgeIdx) -> Option<&Generation> {
        Some(&self.bridges.get(bridge.0 as usize)?.as_ref()?.newest)
    }

    pub(crate) fn find(&self, id: u32) -> Option<&Frozen> {
        let at = self.all.binary_search_by_key(&(id >> SLOT_BITS), |g| g.number).ok()?;
        self.all[at].table.get()?.get(id & (SLOTS as u32 - 1))
    }
}
