//! Numbered states of translations that wait for their packet to come back ([`crate::translate`] freezes and
//! thaws them).
//!
//! States are hash-consed: equal states have one number, so that flows share megaflows. Numbers count up from
//! one, and states are stored by number, in chunks that are allocated when they are needed. A hash table of
//! numbers finds them. All of it is written once: neither finding nor adding a state waits for a lock. When
//! three quarters of the numbers, or of the memory, are in use, the control thread begins a new generation.
//! The previous one stays until the next begins, for packets in flight. It is then freed some chunks at a
//! time, since freeing a quarter of a million states takes tens of milliseconds.
//!
//! Each bridge has its own generations. A controller that invents values which become part of states fills
//! only those of its own bridge and causes only that bridge's flows to be translated again: other bridges are
//! not affected.

use crate::topology::BridgeIdx;
use crate::translate::continuation::Rest;
use base::hash::HashKey;
use flow::Action;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Numbers of states per generation and bridge: more than Open vSwitch caches flows by default.
const STATES: usize = 1 << STATE_BITS;
const STATE_BITS: u32 = 18;
/// States whose memory is allocated at once.
const CHUNK: usize = 1 << 10;
/// Generations are numbered with the remaining bits.
const LAST_NUMBER: u32 = u32::MAX >> STATE_BITS;
/// Places in the hash table: at most half of them are in use.
const PLACES: usize = 2 * STATES;
/// Places tried per state.
const PROBES: usize = 64;
/// Bytes of states per generation and bridge: rules decide how much waits.
const BYTES_MAX: usize = 64 << 20;
/// Chunks of an old generation that are freed at once, in some milliseconds.
const CHUNKS_FREED: usize = 32;
/// With this many numbers in use, states that are only shown get no number, so as to leave room for those
/// that packets need.
const SHOWN_MAX: usize = STATES / 4;

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
        size_of::<Frozen>()
            + actions * size_of::<Action>()
            + stacked
            + self.fields.capacity() * size_of::<(u8, u8, u64)>()
    }
}

/// One generation of states of one bridge.
pub(crate) struct Generation {
    pub(crate) bridge: BridgeIdx,
    number: u32,
    /// Created with the first state: few bridges have any.
    table: OnceLock<Table>,
    used: AtomicUsize,
    /// Of the states in use, about.
    bytes: AtomicUsize,
}

type Chunk = Box<[OnceLock<Frozen>]>;

/// States by number, and their numbers by hash.
struct Table {
    chunks: Vec<OnceLock<Chunk>>,
    /// 0 for none.
    numbers: Box<[AtomicU32]>,
}

impl Table {
    fn new() -> Table {
        Table {
            chunks: (0..STATES / CHUNK).map(|_| OnceLock::new()).collect(),
            numbers: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The place of a state's number, which must not be beyond the last.
    fn place(&self, number: u32) -> &OnceLock<Frozen> {
        let chunk = self.chunks[number as usize / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        &chunk[number as usize % CHUNK]
    }

    fn get(&self, number: u32) -> Option<&Frozen> {
        self.chunks.get(number as usize / CHUNK)?.get()?[number as usize % CHUNK].get()
    }
}

impl Generation {
    fn new(bridge: BridgeIdx, number: u32) -> Generation {
        let (used, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Generation { bridge, number, table: OnceLock::new(), used, bytes }
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
        let table = self.table.get_or_init(Table::new);
        let places = (0..PROBES).map(|probe| &table.numbers[start.wrapping_add(probe) & (PLACES - 1)]);
        let mut places = places.peekable();
        while let Some(place) = places.peek() {
            let number = place.load(Ordering::Acquire);
            if number == 0 {
                break;
            }
            if table.get(number) == Some(&state) {
                return Some(self.id(number));
            }
            places.next();
        }
        places.peek()?;
        let number = self.add(table, state)?;
        let state = table.get(number);
        for place in places {
            // Released after the state is stored, so that whoever finds the number finds the state.
            match place.compare_exchange(0, number, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(self.id(number)),
                // Another worker was faster; its state may be the same.
                Err(other) if table.get(other) == state => return Some(self.id(other)),
                Err(_) => {}
            }
        }
        None
    }

    /// Stores a state under a number of its own.
    fn add(&self, table: &Table, state: Frozen) -> Option<u32> {
        if self.bytes.load(Ordering::Relaxed) > BYTES_MAX || self.used.load(Ordering::Relaxed) >= STATES {
            return None;
        }
        self.bytes.fetch_add(state.bytes(), Ordering::Relaxed);
        let number = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= STATES {
            return None;
        }
        table.place(number as u32).set(state).expect("each number is given out once");
        Some(number as u32)
    }

    /// Frees some of the states of a generation that nobody else has any more. Returns whether all are freed.
    pub(crate) fn free_some(&mut self) -> bool {
        let Some(table) = self.table.get_mut() else { return true };
        for _ in 0..CHUNKS_FREED {
            while table.chunks.pop_if(|chunk| chunk.get().is_none()).is_some() {}
            table.chunks.pop();
        }
        table.chunks.is_empty()
    }

    /// Never 0, which means "from a port".
    fn id(&self, number: u32) -> u32 {
        self.number << STATE_BITS | number
    }

    /// A number that distinguishes a trace's states from those of all other traces: each trace takes one.
    pub(crate) fn number_of_trace(&self) -> u32 {
        self.used.load(Ordering::Relaxed) as u32 + 1
    }

    /// Whether there is room for a state that is only shown.
    pub(crate) fn may_show(&self) -> bool {
        self.used.load(Ordering::Relaxed) < SHOWN_MAX
    }

    /// Whether the next generation should begin.
    fn is_nearly_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > STATES / 4 * 3
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
        new.bridges[at] = new.generation(bridge).map(|newest| OfBridge { newest, older: None });
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

    /// Those of a bridge, oldest first.
    pub fn of(&self, bridge: BridgeIdx) -> Vec<Arc<Generation>> {
        let of_bridge = self.bridges.get(bridge.0 as usize).and_then(Option::as_ref);
        of_bridge.iter().flat_map(|b| b.older.iter().chain([&b.newest])).cloned().collect()
    }

    /// The bridges whose next generation should begin.
    pub fn nearly_full(&self) -> impl Iterator<Item = BridgeIdx> {
        let is_full = |b: &Option<OfBridge>| b.as_ref().is_some_and(|b| b.newest.is_nearly_full());
        self.bridges.iter().enumerate().filter(move |(_, b)| is_full(b)).map(|(at, _)| BridgeIdx(at as u32))
    }

    /// Adds a new generation for a bridge, and drops all but the previous one.
    pub fn renewed(&self, bridge: BridgeIdx) -> Generations {
        let mut new = self.clone();
        if let Some(Some(of_bridge)) = new.bridges.get_mut(bridge.0 as usize) {
            of_bridge.older = None;
        }
        new = new.listed();
        let newest = new.generation(bridge);
        if let Some(Some(of_bridge)) = new.bridges.get_mut(bridge.0 as usize)
            && let Some(newest) = newest
        {
            let older = std::mem::replace(&mut of_bridge.newest, newest);
            of_bridge.older = Some(older);
        }
        new.listed()
    }

    /// A generation with a number that no other has now. `None`: all numbers are in use.
    fn generation(&mut self, bridge: BridgeIdx) -> Option<Arc<Generation>> {
        for _ in 0..=LAST_NUMBER {
            let number = self.next_number;
            self.next_number = if number >= LAST_NUMBER { 0 } else { number + 1 };
            if self.all.binary_search_by_key(&number, |g| g.number).is_err() {
                return Some(Arc::new(Generation::new(bridge, number)));
            }
        }
        None
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
        let at = self.all.binary_search_by_key(&(id >> STATE_BITS), |g| g.number).ok()?;
        self.all[at].table.get()?.get(id & (STATES as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(n: u64) -> Frozen {
        let rest = Rest { steps: vec![], action_set: vec![], stack: Default::default(), is_tracked: true };
        Frozen { bridge: BridgeIdx(0), rest, in_port: 1, trace: 0, hash_mask: 0, fields: vec![(0, 0, n)] }
    }

    #[test]
    fn a_bridge_has_as_many_states_as_fit_into_its_memory_and_they_are_freed_in_pieces() {
        let secret = HashKey::from_seed(1);
        let bridge = BridgeIdx(0);
        let mut all = Generations::default().with_bridge(bridge);
        let ids: Vec<u32> =
            (0..40_000).map(|n| all.newest(bridge).unwrap().intern(state(n), &secret).unwrap()).collect();
        assert_eq!(all.nearly_full().count(), 0);
        for (n, &id) in ids.iter().enumerate().step_by(97) {
            assert_eq!(all.find(id), Some(&state(n as u64)));
            assert_eq!(all.newest(bridge).unwrap().intern(state(n as u64), &secret), Some(id));
        }
        let mut old = all.of(bridge).remove(0);
        all = all.renewed(bridge);
        assert_eq!(all.find(ids[7]), Some(&state(7)), "for packets in flight");
        all = all.renewed(bridge);
        assert_eq!(all.find(ids[7]), None);
        let turns = std::iter::repeat_with(|| Arc::get_mut(&mut old).unwrap().free_some());
        assert_eq!(turns.take_while(|is_over| !is_over).count(), 40_000 / CHUNK / CHUNKS_FREED);
    }

    #[test]
    fn workers_that_add_the_same_states_at_once_get_the_same_numbers() {
        let secret = HashKey::from_seed(1);
        let generation = Generation::new(BridgeIdx(0), 3);
        let intern =
            || (0..5_000).map(|n| generation.intern(state(n), &secret).unwrap()).collect::<Vec<u32>>();
        std::thread::scope(|scope| {
            let others = [scope.spawn(intern), scope.spawn(intern)];
            let own = intern();
            assert!(others.into_iter().all(|other| other.join().unwrap() == own));
        });
    }
}
