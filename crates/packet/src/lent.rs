//! Packets of which only the head has been copied: the tail is still in its sender's memory, lent until the burst has gone.
//!
//! From guest to guest a payload is so copied once, from one's memory into the other's. The head, up to [`HEAD_BYTES`], is copied
//! into the packet first, and is classified and delivered from there, since the sender can change its memory at any time.
//!
//! A lent burst lives within one call of [`RxQueue::rx_lend`](crate::RxQueue::rx_lend), which holds the sender's ring meanwhile:
//! 1. the driver receives heads, and notes in [`Tails`] where each tail is;
//! 2. the worker looks the packets up, by their heads and lengths alone, and fetches the tails of all packets that are to go anywhere
//!    but to one receiver that can copy them straight;
//! 3. that receiver copies ([`TxQueue::tx_lent`](crate::TxQueue::tx_lent)), the sender gets its buffers back ([`Lent::settle`]), and
//!    only then does anybody see a packet of the burst: whoever is killed at any moment has not delivered what the sender
//!    still holds, so that nothing is delivered twice.
//!
//! Invariant: a packet with a lent tail shows its head alone ([`Packet::data`]); to ask it for segments, to copy it, to cut it or to
//! take it apart panics. None outlives the burst.

use crate::{BURST, Batch, Borrower, Packet};
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Bytes of a lent packet that are copied before it is looked at.
pub const HEAD_BYTES: usize = 256;
/// Pieces of all tails of a burst at most.
const PIECES_MAX: usize = 2 * BURST;

/// A part of a tail in its sender's memory, which others write at any time.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Where it is.
    pub at: NonNull<u8>,
    /// Bytes.
    pub len: usize,
}

#[derive(Clone, Copy)]
struct Tail {
    first: u8,
    pieces: u8,
}

/// Where the tails of a burst are.
pub struct Tails {
    tails: ArrayVec<Tail, BURST>,
    pieces: ArrayVec<Piece, PIECES_MAX>,
}

impl Tails {
    /// None yet.
    #[inline(always)]
    #[allow(clippy::new_without_default)] // It is large, and shall not be moved.
    pub fn new() -> Tails {
        Tails { tails: ArrayVec::new_const(), pieces: ArrayVec::new_const() }
    }

    /// Whether no packet's tail is lent.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    /// Makes `packet`, which holds its head alone, one whose tail is these pieces. False, and the packet as it was, where it is a
    /// chain, would not fit one chunk whole, or the burst has more pieces than are kept.
    #[inline]
    pub fn lend(&mut self, packet: &mut Packet, pieces: impl Iterator<Item = Piece> + Clone) -> bool {
        let (mut count, mut len) = (0, 0usize);
        for piece in pieces.clone() {
            (count, len) = (count + 1, len.saturating_add(piece.len));
        }
        let fits = len <= packet.tailroom() && !packet.is_chained();
        if !fits || count > self.pieces.remaining_capacity() || self.tails.is_full() {
            return false;
        }
        packet.lend(self.tails.len(), len);
        self.tails.push(Tail { first: self.pieces.len() as u8, pieces: count as u8 });
        self.pieces.extend(pieces);
        true
    }

    #[inline(always)]
    fn of(&self, packet: &Packet) -> &[Piece] {
        let Some(idx) = packet.lent_idx() else { return &[] };
        let tail = self.tails[idx];
        &self.pieces[usize::from(tail.first)..usize::from(tail.first) + usize::from(tail.pieces)]
    }
}

/// A burst's lent tails on their way through the worker.
pub struct Lent<'a> {
    tails: &'a Tails,
    /// Gives the sender its buffers back; `None` once that was done.
    give_back: Option<&'a mut dyn FnMut()>,
    straight: u64,
}

impl<'a> Lent<'a> {
    /// Tails that are lent until `give_back` is called, which is once.
    ///
    /// # Safety
    /// All bytes of all pieces in `tails` can be read until then, or until the value is dropped; they may change meanwhile.
    pub unsafe fn new(tails: &'a Tails, give_back: &'a mut dyn FnMut()) -> Lent<'a> {
        Lent { tails, give_back: Some(give_back), straight: 0 }
    }

    /// Copies the packet's tail, if it is lent, into its own chunk: it is a packet like any other from then on. Panics where the
    /// sender has its buffers back.
    #[inline]
    pub fn fetch(&mut self, packet: &mut Packet) {
        if !packet.is_lent() {
            return;
        }
        let pieces = self.tails.of(packet);
        self.copy_pieces(pieces, packet.take_over_tail());
    }

    /// Copies the packet's tail, if it is lent, to the end of `to`, and counts it as copied straight.
    pub fn copy_straight(&mut self, packet: &Packet, to: &mut Vec<u8>) {
        let pieces = self.straight(packet).iter().copied().collect::<ArrayVec<Piece, PIECES_MAX>>();
        let before = to.len();
        to.resize(before + pieces.iter().map(|piece| piece.len).sum::<usize>(), 0);
        self.copy_pieces(&pieces, &mut to[before..]);
    }

    #[inline(always)]
    fn copy_pieces(&self, pieces: &[Piece], mut to: &mut [u8]) {
        assert!(self.give_back.is_some(), "a tail is fetched before its sender has it back");
        for piece in pieces {
            let (now, later) = to.split_at_mut(piece.len);
            // SAFETY: the piece can be read as long as its buffers were not given back, asserted above, as `new`'s caller has
            // vouched; what is borrowed to be written overlaps nobody else's memory.
            unsafe { std::ptr::copy_nonoverlapping(piece.at.as_ptr(), now.as_mut_ptr(), piece.len) };
            to = later;
        }
        assert!(to.is_empty(), "a tail is of the burst that it is fetched in");
    }

    /// Where the packet's tail is, for a receiver that copies it straight from there; counted as having done so. Nothing for a
    /// packet that is whole. Panics where the sender has its buffers back. The sum of the lengths is what `len()` exceeds the head by.
    #[inline]
    pub fn straight(&mut self, packet: &Packet) -> &[Piece] {
        if !packet.is_lent() {
            return &[];
        }
        assert!(self.give_back.is_some(), "a tail is copied before its sender has it back");
        self.straight += 1;
        let pieces = self.tails.of(packet);
        let len: usize = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, packet.len() - packet.data().len(), "a tail is of the burst that it is copied in");
        pieces
    }

    /// Gives the sender its buffers back, after fetching the tails of the packets that are `left`. Does nothing when that
    /// was done already.
    #[inline]
    pub fn settle(&mut self, left: &mut [Packet]) {
        if self.give_back.is_none() {
            debug_assert!(left.iter().all(|packet| !packet.is_lent()));
            return;
        }
        for packet in left {
            self.fetch(packet);
        }
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }

    /// Packets whose tails were copied straight.
    pub fn straight_packets(&self) -> u64 {
        self.straight
    }
}

/// Passes packets on that hold their heads alone, as such whose tails are lent: for a driver whose senders' memory is its own. The tail of
/// the packet at the same place in `batch`; an empty one where the packet is whole. Panics where one does not fit a chunk.
pub fn pass_on(batch: &mut Batch, tails: &[Vec<u8>], to: &mut dyn Borrower) {
    let mut noted = Tails::new();
    for (packet, tail) in batch.iter_mut().zip(tails).filter(|(_, tail)| !tail.is_empty()) {
        let piece = Piece { at: NonNull::from(&tail[..]).cast(), len: tail.len() };
        assert!(noted.lend(packet, std::iter::once(piece)), "a frame fits a chunk");
    }
    let mut give_back = || ();
    // SAFETY: the pieces are borrowed until this returns.
    let mut lent = unsafe { Lent::new(&noted, &mut give_back) };
    to.burst(batch, Some(&mut lent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, PoolCache, PoolConfig};

    fn cache() -> PoolCache {
        Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap().cache()
    }

    fn piece(bytes: &[u8]) -> Piece {
        Piece { at: NonNull::from(bytes).cast(), len: bytes.len() }
    }

    /// A packet with this head, of which the rest is lent.
    fn lent(cache: &mut PoolCache, tails: &mut Tails, head: &[u8], pieces: &[&[u8]]) -> Packet {
        let mut packet = cache.alloc().unwrap();
        packet.fill(head).unwrap();
        assert!(tails.lend(&mut packet, pieces.iter().map(|bytes| piece(bytes))));
        packet
    }

    #[test]
    fn a_lent_packet_shows_its_head_alone_until_its_tail_is_fetched() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut first = lent(&mut cache, &mut tails, b"head", &[b"tail", b" of two"]);
        let mut second = lent(&mut cache, &mut tails, b"another", &[b" one"]);
        assert_eq!((first.data(), first.len(), first.is_lent()), (&b"head"[..], 15, true));
        assert!(first.is_chained() && first.fill(b"x").is_none() && first.set_len(2).is_none());
        let mut returned = 0;
        let mut give_back = || returned += 1;
        // SAFETY: the pieces are constants.
        let mut burst = unsafe { Lent::new(&tails, &mut give_back) };
        assert_eq!(burst.straight(&second).len(), 1);
        burst.fetch(&mut first);
        burst.fetch(&mut first);
        burst.settle(std::slice::from_mut(&mut second));
        burst.settle(&mut []);
        assert_eq!(burst.straight_packets(), 1);
        assert_eq!(returned, 1);
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
        let mut give_back = || ();
        // SAFETY: the pieces are constants.
        let mut burst = unsafe { Lent::new(&tails, &mut give_back) };
        burst.fetch(&mut packet);
        assert_eq!(packet.data(), b"myheadtail");
        cache.free(packet);
    }

    #[test]
    fn what_does_not_fit_a_chunk_or_the_burst_is_not_lent_and_a_freed_one_leaves_nothing() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let mut packet = cache.alloc().unwrap();
        packet.fill(&[1; 256]).unwrap();
        let long = [0; 1537];
        assert!(!tails.lend(&mut packet, std::iter::once(piece(&long))));
        assert!(!tails.lend(&mut packet, std::iter::repeat_n(piece(&long[..1]), PIECES_MAX + 1)));
        assert!(tails.is_empty() && !packet.is_chained());
        assert!(tails.lend(&mut packet, std::iter::once(piece(&long[..1536]))));
        cache.free(packet);
        assert_eq!(cache.pool().stats().free, 64);
    }

    #[test]
    #[should_panic(expected = "before its sender has it back")]
    fn a_tail_that_was_given_back_is_not_read() {
        let mut cache = cache();
        let mut tails = Tails::new();
        let packet = lent(&mut cache, &mut tails, b"head", &[b"tail"]);
        let mut give_back = || ();
        // SAFETY: the pieces are constants.
        let mut burst = unsafe { Lent::new(&tails, &mut give_back) };
        burst.settle(&mut []);
        burst.straight(&packet);
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
