//! Packets and bytes in one word, so that a hit adds to both at once.

use packet::Packet;

/// Bytes in the low half, packets above. Must be folded once it [is full](Counts::is_full); until then there
/// is room for one more burst, of packets of less than 2^17 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, zerocopy::FromZeros)]
#[repr(transparent)]
pub struct Counts(u64);

const BYTES_BITS: u32 = 32;
/// The highest bits of both halves.
const FULL: u64 = 1 << 63 | 1 << (BYTES_BITS - 1);

impl Counts {
    /// Nothing.
    pub const NONE: Counts = Counts(0);

    /// Packets with a total of `bytes`.
    #[inline(always)]
    pub fn of(packets: u32, bytes: u32) -> Counts {
        Counts(u64::from(packets) << BYTES_BITS | u64::from(bytes))
    }

    /// One packet.
    #[inline(always)]
    pub fn one(packet: &Packet) -> Counts {
        Counts::of(1, packet.len() as u32)
    }

    /// Adds those of a burst at most.
    #[inline(always)]
    pub fn add(&mut self, more: Counts) {
        self.0 += more.0;
    }

    /// Adds the bits of others, which are full if one of them is.
    #[inline(always)]
    pub fn or(&mut self, other: Counts) {
        self.0 |= other.0;
    }

    /// Whether it must be folded before the next burst.
    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.0 & FULL != 0
    }

    /// Whether nothing was added.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Packets.
    #[inline(always)]
    pub fn packets(self) -> u64 {
        self.0 >> BYTES_BITS
    }

    /// Bytes.
    #[inline(always)]
    pub fn bytes(self) -> u64 {
        self.0 & ((1 << BYTES_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::BURST;

    #[test]
    fn counts_are_full_before_packets_of_any_length_make_them_overflow() {
        // The longest that a buffer's chain can be.
        const BYTES_MAX: u64 = (1 << 17) - 1;
        let (mut counts, mut added) = (Counts::default(), (0, 0));
        while !counts.is_full() {
            counts.add(Counts::of(BURST as u32, (BURST as u64 * BYTES_MAX) as u32));
            added = (added.0 + BURST as u64, added.1 + BURST as u64 * BYTES_MAX);
            assert_eq!((counts.packets(), counts.bytes()), added);
        }
        counts.add(Counts::of(BURST as u32, (BURST as u64 * BYTES_MAX) as u32));
        assert_eq!(
            (counts.packets(), counts.bytes()),
            (added.0 + BURST as u64, added.1 + BURST as u64 * BYTES_MAX)
        );
    }
}
