//! Counts the frames of one ring by size and by kind of address, in the categories that operators of guest
//! ports know.
//!
//! A burst is counted in a register and added to the ring's counters at its end. These are written by the
//! holder of the ring, and last as long as the port.

use base::Counter;
use packet::port::{FRAME_SIZES, FrameCounts};
use packet::{BURST, Packet};

/// Number of bits per size in a [`Tally`].
const BITS: u32 = u64::BITS / FRAME_SIZES as u32;
const _: () = assert!(BURST < 1 << BITS, "a burst of one size fits");

/// One burst's frames.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    /// Numbers of frames, the smallest size's lowest.
    sizes: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Those to multicast and broadcast addresses.
    groups: u64,
}

impl Tally {
    /// Counts a frame. Not more than a burst's.
    #[inline(always)]
    pub(super) fn add(&mut self, packet: &Packet) {
        let len = packet.len();
        self.sizes += 1 << (BITS * size_of_frame(len));
        self.packets += 1;
        self.bytes += len as u64;
        self.groups += u64::from(packet.data().first().copied().unwrap_or(0) & 1);
    }
}

/// The index of a length in [`FrameCounts::sizes`].
#[inline(always)]
fn size_of_frame(len: usize) -> u32 {
    // 64 to 127 bytes are 2, except 64 itself; each power of two is one more; 1024 and longer are 6, except
    // 1519 and longer.
    let power = (len | 32).ilog2().min(10) - 4;
    power - u32::from(len <= 64) + u32::from(len > 1518)
}

/// A ring's counters.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct RingCounts {
    packets: Counter,
    bytes: Counter,
    sizes: [Counter; FRAME_SIZES],
    multicast: Counter,
    broadcast: Counter,
    /// How often the guest was notified.
    pub(super) notifications: Counter,
}

impl RingCounts {
    /// Counts a burst, whose packets these are.
    #[inline(always)]
    pub(super) fn add(&self, tally: Tally, packets: &[Packet]) {
        debug_assert_eq!(tally.packets, packets.len() as u64);
        self.packets.add(tally.packets);
        self.bytes.add(tally.bytes);
        let mut left = tally.sizes;
        while left != 0 {
            let at = left.trailing_zeros() / BITS;
            let mask = ((1 << BITS) - 1) << (at * BITS);
            self.sizes[at as usize].add((left & mask) >> (at * BITS));
            left &= !mask;
        }
        if tally.groups > 0 {
            self.add_groups(packets);
        }
    }

    #[cold]
    fn add_groups(&self, packets: &[Packet]) {
        for packet in packets {
            match packet.data() {
                [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..] => self.broadcast.add(1),
                [first, ..] if first & 1 != 0 => self.multicast.add(1),
                _ => {}
            }
        }
    }

    pub(super) fn get(&self) -> FrameCounts {
        FrameCounts {
            packets: self.packets.get(),
            bytes: self.bytes.get(),
            sizes: std::array::from_fn(|n| self.sizes[n].get()),
            multicast: self.multicast.get(),
            broadcast: self.broadcast.get(),
            notifications: self.notifications.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolConfig};

    #[test]
    fn each_length_is_of_one_size() {
        let ends = [63, 64, 127, 255, 511, 1023, 1518, usize::MAX];
        for len in 0..70_000 {
            let expected = ends.iter().position(|end| len <= *end).unwrap();
            assert_eq!(size_of_frame(len) as usize, expected, "{len}");
        }
    }

    #[test]
    fn a_burst_of_one_size_and_one_of_all_are_counted_as_they_are() {
        let pool = Pool::new(PoolConfig { chunks: 96, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let counts = RingCounts::default();
        let lens = [60, 64, 65, 127, 128, 256, 512, 1024, 1518, 1519, 1600];
        for all in [vec![1518; BURST], lens.to_vec()] {
            let mut packets = Vec::new();
            for (n, len) in all.iter().enumerate() {
                let mut frame = vec![0; *len];
                frame[..6].copy_from_slice(&[[2; 6], [0xff; 6], [1; 6]][n % 3]);
                packets.push(cache.alloc_frame(&frame).unwrap());
            }
            let mut tally = Tally::default();
            packets.iter().for_each(|packet| tally.add(packet));
            counts.add(tally, &packets);
            packets.into_iter().for_each(|packet| cache.free(packet));
        }
        let n = BURST as u64;
        let seen = counts.get();
        assert_eq!(seen.sizes, [1, 1, 2, 1, 1, 1, n + 2, 2]);
        assert_eq!((seen.packets, seen.bytes), (n + 11, 1518 * n + lens.iter().sum::<usize>() as u64));
        // Of each three one is for everybody and one for a group.
        assert_eq!((seen.broadcast, seen.multicast), ((n + 1) / 3 + 4, n / 3 + 3));
    }
}
