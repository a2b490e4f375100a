//! Packets with only their head copied: the tail is still in its sender's memory, lent until the burst is
//! finished.
//!
//! So a payload between guests is copied once, from one's memory into the other's. The head, up to
//! [`HEAD_BYTES`], is copied into the packet first, and is classified, changed and delivered from there,
//! since the sender can change its memory at any time.
//!
//! A lent burst passes through five steps:
//! 1. [`RxQueue::rx_begin`]: the driver receives heads, records in [`Tails`] where each tail is, and holds
//!    the sender's ring;
//! 2. the worker looks the packets up, by their heads and lengths alone, and fetches the tails of those that
//!    go anywhere other than to receivers that can copy them directly;
//! 3. [`TxQueue::tx_write`](crate::TxQueue::tx_write): those receivers copy, one after the other, and hold
//!    their rings;
//! 4. [`RxQueue::rx_end`]: the sender gets its buffers back, by [`Lent::settle`];
//! 5. [`TxQueue::tx_publish`](crate::TxQueue::tx_publish): the receivers see their packets. Not earlier:
//!    whichever process is killed at any moment, nothing has been delivered that the sender still holds, so
//!    nothing is delivered twice.
//!
//! Invariant: a packet with a lent tail shows only its head ([`Packet::data`]); a copy of it has a head of
//! its own and the same tail; asking it for segments, cutting it or taking it apart panics. None outlives the
//! burst.

use crate::pool::{CHUNK_BYTES_MIN, HEADROOM_BYTES};
use crate::rx_queue::RxQueue;
use crate::tails::LEN_MAX;
use crate::{Packet, PoolCache};
use arrayvec::ArrayVec;

pub use crate::tails::{HEAD_BYTES, Piece, Tails};

/// Maximum number of chunks for such a tail.
const CHUNKS_MAX: usize = LEN_MAX.div_ceil(CHUNK_BYTES_MIN - HEADROOM_BYTES);

/// A burst's lent tails in the worker. Accessing one after [`Self::settle`] panics.
pub struct Lent<'a> {
    sender: &'a mut dyn RxQueue,
}

impl<'a> Lent<'a> {
    /// The tails of the burst that was just received, if any is lent.
    #[inline(always)]
    pub fn of(sender: &'a mut dyn RxQueue) -> Option<Lent<'a>> {
        sender.tails().is_some().then_some(Lent { sender })
    }

    #[inline(always)]
    fn tails(&mut self) -> &mut Tails {
        self.sender.tails().expect("a tail is asked for before its sender has it back")
    }

    /// Copies the packet's tail, if it is lent, into the pool: from then on it is an ordinary packet. False,
    /// with the packet unchanged, if it needs more chunks than its own and the pool has none.
    #[inline]
    pub fn fetch(&mut self, packet: &mut Packet, cache: &mut PoolCache) -> bool {
        if !packet.is_lent() {
            return true;
        }
        let left = packet.len() - packet.data().len();
        let mut reader = PieceReader { pieces: self.tails().of(packet), used: 0 };
        if left > packet.tailroom() {
            return fetch_chain(packet, left, reader, cache);
        }
        reader.read(packet.take_over_tail(left));
        true
    }

    /// The same for several packets. Those for which the pool has no room remain lent: the caller frees them.
    #[inline]
    pub fn fetch_all(&mut self, packets: &mut [Packet], cache: &mut PoolCache) {
        for packet in packets {
            self.fetch(packet, cache);
        }
    }

    /// Copies the packet's tail, if it is lent, to the end of `to`, and counts it as copied straight.
    pub fn copy_straight(&mut self, packet: &Packet, to: &mut Vec<u8>) {
        let (before, pieces) = (to.len(), self.straight(packet));
        to.resize(before + pieces.iter().map(|piece| piece.len).sum::<usize>(), 0);
        PieceReader { pieces, used: 0 }.read(&mut to[before..]);
    }

    /// The location of the packet's tail, for a receiver that copies it directly; counts as having been
    /// copied. Empty for a packet that is whole. The pieces' lengths add up to the difference between `len()`
    /// and the head.
    #[inline]
    pub fn straight(&mut self, packet: &Packet) -> &[Piece] {
        let Some(idx) = packet.lent_idx() else { return &[] };
        let tails = self.tails();
        tails.note_straight(idx);
        let pieces = tails.of(packet);
        let len: usize = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, packet.len() - packet.data().len(), "a tail is of the burst that it is copied in");
        pieces
    }

    /// Returns the sender's buffers, once no tail is needed any more. Does nothing if that was done already.
    #[inline]
    pub fn settle(&mut self) {
        self.sender.rx_end();
    }
}

/// Fetches a tail of `left` bytes that takes further chunks.
#[cold]
fn fetch_chain(
    packet: &mut Packet,
    mut left: usize,
    mut reader: PieceReader<'_>,
    cache: &mut PoolCache,
) -> bool {
    let room = packet.tailroom();
    left -= room;
    // All of them first: a partly fetched packet is useless.
    let mut rest: ArrayVec<Packet, CHUNKS_MAX> = ArrayVec::new();
    while left > 0 {
        let Some(mut chunk) = cache.alloc() else {
            cache.free_all(&mut rest);
            return false;
        };
        let len = left.min(chunk.tailroom());
        chunk.set_len(len).expect("no longer than the room");
        left -= len;
        rest.push(chunk);
    }
    reader.read(packet.take_over_tail(room));
    for chunk in &mut rest {
        reader.read(chunk.data_mut());
    }
    // From the end, so that no append has to search for it.
    let mut chain: Option<Packet> = None;
    while let Some(mut chunk) = rest.pop() {
        if let Some(chain) = chain {
            chunk.append(chain);
        }
        chain = Some(chunk);
    }
    if let Some(chain) = chain {
        packet.append(chain);
    }
    true
}

/// Reads bytes across pieces, which can all be read and which others write.
struct PieceReader<'a> {
    pieces: &'a [Piece],
    /// Bytes read of the first one.
    used: usize,
}

impl PieceReader<'_> {
    /// Panics if the pieces have fewer bytes.
    #[inline]
    fn read(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            let piece = self.pieces.first().expect("a tail is of the burst that it is fetched in");
            let len = to.len().min(piece.len - self.used);
            let (now, later) = to.split_at_mut(len);
            // SAFETY: `used + len <= piece.len`.
            let from = unsafe { piece.at.add(self.used) };
            // SAFETY: the piece can be read until its `Tails` are cleared, as `Tails::lend`'s caller has
            // vouched, and they are borrowed here; memory that is borrowed mutably overlaps no other.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), now.as_mut_ptr(), len) };
            to = later;
            self.used += len;
            if self.used == piece.len {
                self.pieces = &self.pieces[1..];
                self.used = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tails::PIECES_MAX;
    use crate::{Batch, Pool, PoolCache, PoolConfig, RxOutcome};

    struct Sender {
        tails: Option<Tails>,
        ended: u32,
    }

    impl RxQueue for Sender {
        fn rx_burst(&mut self, _cache: &mut PoolCache, _batch: &mut Batch) -> RxOutcome {
            RxOutcome::Ok
        }

        fn tails(&mut self) -> Option<&mut Tails> {
            self.tails.as_mut()
        }

        fn rx_end(&mut self) {
            self.ended += u32::from(self.tails.take().is_some());
        }
    }

    fn cache() -> PoolCache {
        Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
    }

    /// A packet with this head, of which the rest is lent.
    fn lent(cache: &mut PoolCache, tails: &mut Tails, head: &[u8], pieces: &[&[u8]]) -> Packet {
        let mut packet = cache.alloc().unwrap();
        packet.fill(head).unwrap();
        // SAFETY: the tests' tails outlive their packets.
        assert!(unsafe { tails.lend(&mut packet, pieces.iter().map(|bytes| Piece::of(bytes))) });
        packet
    }

    fn bytes(packet: &Packet) -> Vec<u8> {
        packet.segments().flatten().copied().collect()
    }

    #[test]
    fn a_lent_packet_shows_its_head_alone_until_its_tail_is_fetched() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut first = lent(&mut cache, &mut tails, b"head", &[b"tail", b"", b" of two"]);
        let second = lent(&mut cache, &mut tails, b"another", &[b" one"]);
        assert_eq!((first.data(), first.len(), first.is_lent()), (&b"head"[..], 15, true));
        assert!(first.is_chained() && first.fill(b"x").is_none() && first.set_len(2).is_none());
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        assert_eq!(burst.straight(&second).len(), 1);
        assert!(burst.fetch(&mut first, &mut cache) && burst.fetch(&mut first, &mut cache));
        let mut both = [first, second];
        burst.fetch_all(&mut both, &mut cache);
        assert_eq!(burst.tails().straight_packets(), 1);
        burst.settle();
        burst.settle();
        assert_eq!(sender.ended, 1);
        assert!(Lent::of(&mut sender).is_none());
        let [first, second] = both;
        assert_eq!((first.data(), second.data()), (&b"headtail of two"[..], &b"another one"[..]));
        assert!(!first.is_lent() && !first.is_chained());
        cache.free(first);
        cache.free(second);
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn what_is_pushed_and_pulled_in_front_does_not_move_the_tail() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut packet = lent(&mut cache, &mut tails, b"head", &[b"tail"]);
        packet.push_front(2).unwrap();
        packet.data_mut()[..2].copy_from_slice(b"my");
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        let mut straight = packet.data().to_vec();
        burst.copy_straight(&packet, &mut straight);
        assert!(burst.fetch(&mut packet, &mut cache));
        assert_eq!((packet.data(), &straight[..]), (&b"myheadtail"[..], &b"myheadtail"[..]));
        cache.free(packet);
    }

    #[test]
    fn a_long_tail_takes_as_many_chunks_as_it_needs_or_none() {
        let mut cache = cache();
        // At the edges of a chunk (1792 bytes), in pieces that have others.
        for len in [1535, 1536, 1537, 3328, 3329, 8744, 65_280] {
            let tail: Vec<u8> = (0..len).map(|n: usize| (n % 251) as u8).collect();
            let parts: Vec<&[u8]> = tail.chunks(2036).collect();
            let mut tails = Tails::new();
            let head = [0xaa; HEAD_BYTES];
            let mut packet = lent(&mut cache, &mut tails, &head, &parts);
            packet.gso_size = 1448;
            let mut sender = Sender { tails: Some(tails), ended: 0 };
            let mut burst = Lent::of(&mut sender).unwrap();
            assert!(burst.fetch(&mut packet, &mut cache));
            assert_eq!((packet.len(), packet.gso_size), (HEAD_BYTES + len, 1448));
            assert_eq!(bytes(&packet), [&head[..], &tail[..]].concat(), "{len}");
            cache.free(packet);
            assert_eq!(cache.pool().stats().free, 64);
        }
        let mut tails = Tails::new();
        let tail = vec![7; 65_280];
        let mut packet = lent(&mut cache, &mut tails, b"head", &[&tail]);
        let mut others: Vec<_> = (0..30).map(|_| cache.alloc().unwrap()).collect();
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        assert!(!burst.fetch(&mut packet, &mut cache));
        assert!(packet.is_lent() && packet.data() == b"head" && packet.len() == 65_284);
        assert_eq!(cache.pool().stats().free, 33);
        others.drain(..).for_each(|other| cache.free(other));
        assert!(burst.fetch(&mut packet, &mut cache));
        assert_eq!(bytes(&packet), [&b"head"[..], &tail[..]].concat());
        cache.free(packet);
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn copies_have_a_head_each_and_the_same_tail_and_count_as_one() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let tail = [9; 1600];
        let mut packet = lent(&mut cache, &mut tails, &[1; 100], &[&tail[..700], &tail[700..]]);
        packet.push_front(4).unwrap();
        packet.data_mut()[..4].fill(2);
        let copy = packet.copy(&mut cache).unwrap();
        packet.data_mut()[..4].fill(3);
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        let mut both = [copy, packet];
        for packet in &both {
            assert_eq!((packet.len(), packet.data().len(), packet.is_lent()), (1704, 104, true));
            assert_eq!(burst.straight(packet).len(), 2);
        }
        burst.fetch_all(&mut both, &mut cache);
        assert_eq!(burst.tails().straight_packets(), 1);
        let wanted = |first: u8| [&[first; 4][..], &[1; 100], &tail].concat();
        assert_eq!((bytes(&both[0]), bytes(&both[1])), (wanted(2), wanted(3)));
        both.into_iter().for_each(|packet| cache.free(packet));
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    fn what_has_more_pieces_than_are_kept_or_is_too_long_is_not_lent_and_a_freed_one_leaves_nothing() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut packet = cache.alloc().unwrap();
        packet.fill(&[1; 256]).unwrap();
        let long = [0; 1537];
        let mut lend = |len: usize, pieces: usize| {
            // SAFETY: they are never read.
            let is_lent =
                unsafe { tails.lend(&mut packet, std::iter::repeat_n(Piece::of(&long[..len]), pieces)) };
            assert_eq!((is_lent, is_lent), (!tails.is_empty(), packet.is_chained()));
            is_lent
        };
        assert!(!lend(1, PIECES_MAX + 1) && !lend(1537, LEN_MAX / 1537 + 1));
        assert!(lend(1537, LEN_MAX / 1537));
        cache.free(packet);
        assert_eq!(cache.pool().stats().free, 64);
        tails.clear();
        assert!(tails.is_empty());
    }

    #[test]
    #[should_panic(expected = "before its sender has it back")]
    fn a_tail_that_was_given_back_is_not_read() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let packet = lent(&mut cache, &mut tails, b"head", &[b"tail"]);
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        burst.settle();
        burst.straight(&packet);
    }

    #[test]
    #[should_panic(expected = "before its sender has it back")]
    fn a_tail_that_was_given_back_is_not_fetched() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut packet = lent(&mut cache, &mut tails, b"head", &[b"tail"]);
        let mut sender = Sender { tails: Some(tails), ended: 0 };
        let mut burst = Lent::of(&mut sender).unwrap();
        burst.settle();
        burst.fetch(&mut packet, &mut cache);
    }

    #[test]
    #[should_panic(expected = "chunk index out of the pool")]
    fn a_lent_packet_has_no_segments_to_show() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let packet = lent(&mut cache, &mut tails, b"head", &[b"tail"]);
        packet.segments().count();
    }
}
