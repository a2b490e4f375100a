//! Where recirculated, tracked packets of an exact entry went: their connection, and the megaflow of the next
//! round.
//!
//! Both are most likely the same for the next packet. A trail is a hint: code that follows it checks whether
//! the connection and the megaflow are still the same, and how the connection is marked. Everything else that
//! decides where the packet goes is unchanged: packets of one exact entry come from one origin and agree on
//! all bytes that are part of a key, and a connection's translation never changes.

use crate::conntrack::Found;
use crate::conntrack::follow::Marked;
use base::region::{Region, prefetch_at};
use flow::extract::PlainKey;

/// See the module documentation. All zeros means no trail: no connection has that generation.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Trail {
    pub(crate) connection: Found,
    label: [u64; 2],
    /// Destination address and ports after translation, as in a plain key; the source address likewise.
    behind: u64,
    src: u32,
    mark: u32,
    /// The megaflow of the next round, and its serial number.
    pub next: u32,
    /// The exact entry of the next round, if that tracks the packet again; 0 if unknown.
    pub exact: u32,
    pub next_serial: u64,
}

impl Trail {
    /// A trail to a connection with these marks and to the megaflow that its packets hit in the next round,
    /// with these addresses and ports.
    pub(crate) fn new(
        connection: Found,
        Marked { mark, label }: Marked,
        addresses_and_ports: [u8; 12],
        (next, next_serial): (u32, u64),
    ) -> Trail {
        let [a, b, c, d, behind @ ..] = addresses_and_ports;
        let (src, behind) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(behind));
        let label = [(label >> 64) as u64, label as u64];
        Trail { connection, label, behind, src, mark, next, exact: 0, next_serial }
    }

    /// The connection's mark and label.
    #[inline(always)]
    pub(crate) fn marked(&self) -> Marked {
        Marked { mark: self.mark, label: u128::from(self.label[0]) << 64 | u128::from(self.label[1]) }
    }

    /// Whether packets with this key have their addresses or ports translated.
    #[inline(always)]
    pub fn translates(&self, key: &PlainKey) -> bool {
        (key[1] ^ self.behind) | (key[0] >> 32 ^ u64::from(self.src)) != 0
    }

    /// Addresses and ports after translation, in wire order.
    #[inline(always)]
    pub fn addresses_and_ports(&self) -> [u8; 12] {
        let mut all = [0; 12];
        all[..4].copy_from_slice(&self.src.to_le_bytes());
        all[4..].copy_from_slice(&self.behind.to_le_bytes());
        all
    }
}

/// Trails of plain packets' exact entries, by entry.
pub struct Trails {
    all: Region<Trail>,
    high: u32,
}

impl Trails {
    pub fn new(limit: usize) -> std::io::Result<Trails> {
        Ok(Trails { all: Region::new(limit + 1)?, high: 0 })
    }

    /// Prefetches one.
    #[inline(always)]
    pub fn prefetch(&self, entry: u32) {
        prefetch_at(&self.all, entry as usize);
    }

    #[inline(always)]
    pub fn get(&self, entry: u32) -> &Trail {
        &self.all[entry as usize]
    }

    /// Records the exact entry of the next round that tracks an entry's packets again.
    pub fn set_exact(&mut self, entry: u32, exact: u32) {
        self.all[entry as usize].exact = exact;
    }

    /// Records where packets of an entry went.
    pub(crate) fn set(&mut self, entry: u32, trail: Trail) {
        self.high = self.high.max(entry);
        self.all[entry as usize] = trail;
    }

    /// The entry belongs to another flow from now on.
    pub(super) fn forget(&mut self, entry: u32) {
        if entry <= self.high {
            self.all[entry as usize] = zerocopy::FromZeros::new_zeroed();
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.high as usize * size_of::<Trail>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_has_a_line() {
        assert_eq!(size_of::<Trail>(), 64);
    }
}
