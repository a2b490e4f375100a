//! Where packets of an exact entry went that were tracked and came round again: their connection, and the
//! exact entry of the next round.
//!
//! Both are most likely the same for the next packet. A trail is a guess and is believed in nothing: whoever
//! follows it compares the connection's generation and marks, whether the origin still means the same, and
//! the next entry's key. The rest is as it was for the packet before: bytes that the keys do not have decide
//! nothing, and a connection is translated to the same addresses as long as it is.

use super::origins::Meanings;
use crate::conntrack::Found;
use crate::conntrack::follow::Marked;
use base::region::{Region, prefetch_at};
use flow::extract::{PLAIN_ORIGIN_SHIFT, PlainKey};

/// See the module's text. All zeros is none: no connection has that generation.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Trail {
    pub(crate) connection: Found,
    label: [u64; 2],
    /// When the port's origins had the meaning that `origin` has.
    pub meanings: Meanings,
    /// IPv4's, as the next round's key has them, and so are the ports.
    addresses: u64,
    ports: u32,
    mark: u32,
    /// What the next round's keys say of where their packets come from, see
    /// [`plain_origin`](super::FlowCache::plain_origin), shifted to the right.
    origin: u32,
    /// The exact entry of the next round.
    pub next: u32,
}

const ORIGIN: u64 = u64::MAX << PLAIN_ORIGIN_SHIFT;
const LOW: u64 = 0xffff_ffff;

impl Trail {
    /// Of a packet that had the key `after` in the next round, and what its connection was marked with.
    pub(crate) fn new(
        connection: Found,
        Marked { mark, label }: Marked,
        meanings: Meanings,
        after: &PlainKey,
        next: u32,
    ) -> Trail {
        Trail {
            connection,
            label: [(label >> 64) as u64, label as u64],
            meanings,
            addresses: after[2],
            ports: (after[1] >> 32) as u32,
            mark,
            origin: (after[3] >> PLAIN_ORIGIN_SHIFT) as u32,
            next,
        }
    }

    /// What the connection was marked with.
    #[inline(always)]
    pub(crate) fn marked(&self) -> Marked {
        Marked { mark: self.mark, label: u128::from(self.label[0]) << 64 | u128::from(self.label[1]) }
    }

    /// What the next round's keys say of where packets come from.
    pub fn origin(&self) -> u64 {
        u64::from(self.origin) << PLAIN_ORIGIN_SHIFT
    }

    /// The key in the next round of packets that have this one, at the depth of ports, in this round.
    #[inline(always)]
    pub fn key_after(&self, key: &PlainKey) -> PlainKey {
        let ports = key[1] & LOW | u64::from(self.ports) << 32;
        [key[0], ports, self.addresses, key[3] & !ORIGIN | self.origin()]
    }

    /// Whether packets with this key get other addresses or ports.
    #[inline(always)]
    pub fn translates(&self, key: &PlainKey) -> bool {
        (key[2] ^ self.addresses) | (key[1] >> 32 ^ u64::from(self.ports)) != 0
    }

    /// These addresses and ports, as they stand in a packet.
    #[inline(always)]
    pub fn addresses_and_ports(&self) -> [u8; 12] {
        let mut all = [0; 12];
        all[..8].copy_from_slice(&self.addresses.to_ne_bytes());
        all[8..].copy_from_slice(&self.ports.to_ne_bytes());
        all
    }
}

/// By exact entry, those of plain packets.
pub struct Trails {
    all: Region<Trail>,
    high: u32,
}

impl Trails {
    pub fn new(limit: usize) -> std::io::Result<Trails> {
        Ok(Trails { all: Region::new(limit + 1)?, high: 0 })
    }

    /// Has one fetched.
    #[inline(always)]
    pub fn prefetch(&self, entry: u32) {
        prefetch_at(&self.all, entry as usize);
    }

    #[inline(always)]
    pub fn get(&self, entry: u32) -> &Trail {
        &self.all[entry as usize]
    }

    /// Packets of an entry went there.
    pub(crate) fn set(&mut self, entry: u32, trail: Trail) {
        self.high = self.high.max(entry);
        self.all[entry as usize] = trail;
    }

    /// The entry is another flow's from now on.
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
