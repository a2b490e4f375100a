//! How many chunks the packets hold that wait for a worker, and whose packets they are.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// See the module documentation.
#[derive(Default)]
pub struct Held {
    /// Chunks of all packets.
    pub total: u64,
    by_bridge: HashMap<u32, u64>,
    /// In the packets' order.
    packets: VecDeque<(u32, u64)>,
    /// How many have been executed.
    executed: u64,
}

impl Held {
    /// A packet of a bridge waits.
    pub fn add(&mut self, bridge: u32, chunks: u64) {
        self.total += chunks;
        *self.by_bridge.entry(bridge).or_default() += chunks;
        self.packets.push_back((bridge, chunks));
    }

    /// So many chunks have been executed since the first packet came, those of whole packets.
    pub fn executed(&mut self, chunks: u64) {
        while self.executed < chunks
            && let Some((bridge, chunks)) = self.packets.pop_front()
        {
            self.executed += chunks;
            self.total -= chunks;
            if let Entry::Occupied(mut of_bridge) = self.by_bridge.entry(bridge) {
                *of_bridge.get_mut() -= chunks;
                if *of_bridge.get() == 0 {
                    of_bridge.remove();
                }
            }
        }
    }

    /// Chunks of a bridge's packets.
    pub fn of(&self, bridge: u32) -> u64 {
        self.by_bridge.get(&bridge).copied().unwrap_or(0)
    }
}
