//! Where the tails of a burst's packets are that have not been copied: in their sender's memory ([`lent`]).
//!
//! [`lent`]: crate::lent

use crate::{BURST, Packet};
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Bytes of a lent packet that are copied before it is parsed.
pub const HEAD_BYTES: usize = 256;
/// Maximum number of pieces in all tails of a burst: segments of 64 KB in buffers of 2 KB take 33 each.
pub(crate) const PIECES_MAX: usize = 33 * BURST;

/// Maximum length of a tail: 64 KB of network packet and some link headers.
pub(crate) const LEN_MAX: usize = 65_536 + 256;

// [`Tails`] numbers tails by bits of a word, and pieces by 16 bits.
const _: () = assert!(BURST <= u64::BITS as usize && PIECES_MAX <= u16::MAX as usize);

/// A part of a tail in its sender's memory, which others write at any time.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Its address.
    pub at: NonNull<u8>,
    /// Bytes.
    pub len: usize,
}

impl Piece {
    /// These bytes, to be read as long as they are there.
    #[inline(always)]
    pub fn of(bytes: &[u8]) -> Piece {
        Piece { at: NonNull::from(bytes).cast(), len: bytes.len() }
    }
}

// SAFETY: it is an address and a length; code that reads there vouches that it may.
unsafe impl Send for Piece {}

#[derive(Clone, Copy)]
struct Tail {
    first: u16,
    pieces: u16,
}

/// Where the tails of a burst are. A receive queue has one, and shows it as long as its sender's buffers are
/// held.
pub struct Tails {
    tails: ArrayVec<Tail, BURST>,
    pieces: ArrayVec<Piece, PIECES_MAX>,
    /// By number: tails that a receiver has copied.
    straight: u64,
    /// Tails of senders without memory of their own.
    owned: Vec<Vec<u8>>,
}

impl Tails {
    /// None yet.
    #[inline(always)]
    #[allow(clippy::new_without_default)] // It is large, and shall not be moved.
    pub fn new() -> Tails {
        Tails { tails: ArrayVec::new_const(), pieces: ArrayVec::new_const(), straight: 0, owned: Vec::new() }
    }

    /// Forgets a burst.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.tails.clear();
        self.pieces.clear();
        self.straight = 0;
        self.owned.clear();
    }

    /// Whether no packet's tail is lent.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    /// Gives `packet`, which has only its head, a tail of these pieces. False, with the packet unchanged, if
    /// it is a chain, or the burst has more pieces than can be recorded.
    ///
    /// # Safety
    /// All bytes of the pieces must be readable until [`Self::clear`]; they may change meanwhile.
    #[inline]
    pub unsafe fn lend(&mut self, packet: &mut Packet, pieces: impl Iterator<Item = Piece>) -> bool {
        if packet.is_chained() || self.tails.is_full() {
            return false;
        }
        let first = self.pieces.len();
        let mut len = 0usize;
        for piece in pieces {
            len = len.saturating_add(piece.len);
            if self.pieces.is_full() || len > LEN_MAX {
                self.pieces.truncate(first);
                return false;
            }
            self.pieces.push(piece);
        }
        packet.lend(self.tails.len(), len);
        self.tails.push(Tail { first: first as u16, pieces: (self.pieces.len() - first) as u16 });
        true
    }

    /// The same with a tail of the driver's own, in parts of `part` bytes.
    pub fn lend_owned(&mut self, packet: &mut Packet, tail: Vec<u8>, part: usize) -> bool {
        // SAFETY: what a vector holds stays where it is, and this one is kept until `clear`.
        let is_lent = unsafe { self.lend(packet, tail.chunks(part).map(Piece::of)) };
        self.owned.push(tail);
        is_lent
    }

    /// Packets whose tails were copied straight, each counted once however many receivers it had.
    pub fn straight_packets(&self) -> u64 {
        self.straight.count_ones().into()
    }

    /// Notes that a receiver has copied the tail of this number.
    #[inline(always)]
    pub(crate) fn note_straight(&mut self, idx: usize) {
        self.straight |= 1 << idx;
    }

    /// The pieces of the packet's tail.
    #[inline(always)]
    pub(crate) fn of(&self, packet: &Packet) -> &[Piece] {
        let Some(idx) = packet.lent_idx() else { return &[] };
        let tail = self.tails[idx];
        &self.pieces[usize::from(tail.first)..usize::from(tail.first) + usize::from(tail.pieces)]
    }
}
