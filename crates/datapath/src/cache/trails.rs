//! Where packets of an exact entry went that were tracked and came round again: their connection, and the
//! megaflow of the next round.
//!
//! Both are most likely the same for the next packet. A trail is a guess: whoever follows it looks whether
//! the connection and the megaflow are still those, and what the connection is marked with. Nothing else
//! decides where the packet goes, for the rest is as it was: packets of one exact entry come from one origin
//! and have the same bytes where a key has any, and a connection is translated alike as long as it is.

use crate::conntrack::Found;
use crate::conntrack::follow::Marked;
use base::region::{Region, prefetch_at};
use flow::extract::PlainKey;

/// See the module's text. All zeros is none: no connection has that generation.
#[derive(Clone, Copy, zerocopy::FromZeros)]
#[repr(C, align(64))]
pub struct Trail {
    pub(crate) connection: Found,
    label: [u64; 2],
    /// IPv4's after translation, as a plain key has them, and so are the ports.
    addresses: u64,
    ports: u32,
    mark: u32,
    /// The megaflow of the next round, and the number that it alone has had.
    pub next: u32,
    /// The exact entry of the next round, where that tracks the packet again. 0 where it is not known.
    pub exact: u32,
    pub next_serial: u64,
}

impl Trail {
    /// To a connection with these marks and, in the next round, with these addresses and ports, to a
    /// megaflow.
    pub(crate) fn new(
        connection: Found,
        Marked { mark, label }: Marked,
        addresses_and_ports: [u8; 12],
        (next, next_serial): (u32, u64),
    ) -> Trail {
        let [a, b, c, d, e, f, g, h, ports @ ..] = addresses_and_ports;
        let addresses = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let label = [(label >> 64) as u64, label as u64];
        let ports = u32::from_ne_bytes(ports);
        Trail { connection, label, addresses, ports, mark, next, exact: 0, next_serial }
    }

    /// What the connection was marked with.
    #[inline(always)]
    pub(crate) fn marked(&self) -> Marked {
        Marked { mark: self.mark, label: u128::from(self.label[0]) << 64 | u128::from(self.label[1]) }
    }

    /// Whether packets with this key get other addresses or ports.
    #[inline(always)]
    pub fn translates(&self, key: &PlainKey) -> bool {
        (key[2] ^ self.addresses) | (key[1] >> 32 ^ u64::from(self.ports)) != 0
    }

    /// Addresses and ports after translation, as they stand in a packet.
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

    /// Packets of an entry are tracked again, by this exact entry of the next round.
    pub fn set_exact(&mut self, entry: u32, exact: u32) {
        self.all[entry as usize].exact = exact;
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
