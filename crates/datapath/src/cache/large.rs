//! What bounds the memory that a cache takes beyond its number of flows.
//!
//! Entries, bodies and keys are bounded by their number. What a flow keeps beside them (actions, visits,
//! rewritten words) depends on the rules, and can be a megabyte: so all large flows together may take so
//! much, and none a whole lot of it. One beyond that is not cached, and each of its packets is translated. A
//! port may take as much as it leaves to others, so those with fewer large flows still cache theirs.

use super::config::CacheConfig;
use crate::action::DpAction;
use crate::pipeline::{Rewrite, Translation};
use crate::ports::InputIdx;
use crate::watch::Visit;

/// A flow is large if it keeps more than this beside its body.
pub(super) const LARGE_BYTES: usize = 1024;
/// Maximum that a flow keeps beside its body.
const FLOW_BYTES_MAX: usize = 128 << 10;
/// Maximum of all large flows together, and for each flow that there may be.
const ALL_BYTES_MAX: usize = 512 << 20;
const BYTES_PER_FLOW: usize = 16 << 10;

impl CacheConfig {
    /// Most bytes that large flows keep beside their bodies.
    pub(super) fn large_limit(&self) -> usize {
        (self.mega_limit() * BYTES_PER_FLOW).min(ALL_BYTES_MAX)
    }
}

/// What a flow has taken of the memory for large flows, and for which input port; nothing if it is small.
#[repr(C)]
#[derive(Clone, Copy, Default, zerocopy::FromZeros)]
pub(super) struct Taken {
    input: u32,
    bytes: u32,
}

/// The memory for large flows.
pub(super) struct Large {
    max: usize,
    taken: usize,
    by_input: Vec<usize>,
}

impl Large {
    pub fn new(max: usize) -> Large {
        Large { max, taken: 0, by_input: Vec::new() }
    }

    /// Whether a flow of a port may keep so much beside its body.
    #[inline(always)]
    pub fn has_room_for(&self, input: InputIdx, bytes: usize) -> bool {
        bytes <= LARGE_BYTES || self.has_room_for_large(input, bytes)
    }

    #[inline(never)]
    fn has_room_for_large(&self, input: InputIdx, bytes: usize) -> bool {
        let of_port = self.by_input.get(input.0 as usize).copied().unwrap_or(0);
        bytes <= FLOW_BYTES_MAX && of_port + bytes <= self.max.saturating_sub(self.taken + bytes)
    }

    /// Takes it.
    #[inline(always)]
    pub fn take(&mut self, input: InputIdx, bytes: usize) -> Taken {
        if bytes <= LARGE_BYTES { Taken::default() } else { self.take_large(input, bytes) }
    }

    #[inline(never)]
    fn take_large(&mut self, input: InputIdx, bytes: usize) -> Taken {
        let at = input.0 as usize;
        if at >= self.by_input.len() {
            self.by_input.resize(at + 1, 0);
        }
        self.by_input[at] += bytes;
        self.taken += bytes;
        Taken { input: input.0, bytes: bytes as u32 }
    }

    /// Gives it back.
    #[inline(always)]
    pub fn give_back(&mut self, taken: Taken) {
        if taken.bytes > 0 {
            self.by_input[taken.input as usize] -= taken.bytes as usize;
            self.taken -= taken.bytes as usize;
        }
    }
}

/// The bytes that a flow keeps beside its body; of a small one, perhaps fewer.
#[inline(always)]
pub(super) fn bytes_beside<E>(t: &Translation<E>, list: bool) -> usize {
    let actions = if list { t.actions.iter().map(DpAction::bytes).sum() } else { 0 };
    actions
        + t.credits.len() * size_of::<u32>()
        + t.visits.len() * size_of::<Visit>()
        + t.rewrites.len() * size_of::<Rewrite>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_takes_as_much_as_it_leaves_and_gets_back_what_it_gives_back() {
        let mut large = Large::new(1 << 20);
        let size = 64 << 10;
        let fill = |large: &mut Large, port| {
            let mut all = vec![];
            while large.has_room_for(InputIdx(port), size) {
                all.push(large.take(InputIdx(port), size));
            }
            all
        };
        let first = fill(&mut large, 1);
        assert_eq!(first.len(), 8);
        assert_eq!(fill(&mut large, 2).len(), 4);
        assert_eq!(fill(&mut large, 3).len(), 2);
        assert!(large.has_room_for(InputIdx(1), LARGE_BYTES) && !large.has_room_for(InputIdx(1), size));
        first.into_iter().for_each(|taken| large.give_back(taken));
        assert!(
            large.has_room_for(InputIdx(1), size) && !large.has_room_for(InputIdx(1), FLOW_BYTES_MAX + 1)
        );
        assert!(matches!(large.take(InputIdx(9), 7), Taken { bytes: 0, .. }));
    }
}
