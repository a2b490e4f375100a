//! How far TCP sequence numbers are shifted when a helper has changed the length of what one end sends.
//!
//! What an end sent up to a position has one offset, what it sends after that another. A retransmitted line
//! is not counted again. Pure. Source: the same rules as in Linux's nf_conntrack_seqadj.

/// The shifts for what one end sends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Adjustment {
    /// Sequence number of the last segment that was changed.
    pub position: u32,
    pub before: i32,
    pub after: i32,
}

/// Whether `a` is after `b`.
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

impl Adjustment {
    /// Translates a sequence number of this end to what the other end sees.
    pub fn sent(&self, seq: u32) -> u32 {
        let offset = if is_after(seq, self.position) { self.after } else { self.before };
        seq.wrapping_add_signed(offset)
    }

    /// Translates an acknowledgement by the other end back to this end's sequence numbers.
    pub fn acknowledged(&self, ack: u32) -> u32 {
        let is_behind = is_after(ack.wrapping_add_signed(self.before.wrapping_neg()), self.position);
        let offset = if is_behind { self.after } else { self.before };
        ack.wrapping_add_signed(offset.wrapping_neg())
    }

    /// Records that the segment at `seq` becomes `by` bytes longer.
    pub fn lengthen(&mut self, seq: u32, by: i32) {
        if self.before == self.after || is_after(seq, self.position) {
            *self = Adjustment { position: seq, before: self.after, after: self.after.wrapping_add(by) };
        }
    }

    pub fn is_none(&self) -> bool {
        (self.before, self.after) == (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shifted_behind_what_was_changed_and_back_again() {
        let mut a = Adjustment::default();
        assert!(a.is_none());
        let first = u32::MAX - 99;
        a.lengthen(first, 3);
        a.lengthen(first, 3);
        let sent = [first - 50, first, first + 20, 5].map(|seq| a.sent(seq));
        assert_eq!(sent, [first - 50, first, first + 23, 8], "sent again, counted once");
        assert_eq!([first, first + 23, 8].map(|ack| a.acknowledged(ack)), [first, first + 20, 5]);
        a.lengthen(200, -7);
        assert_eq!([200, 220].map(|seq| a.sent(seq)), [203, 216], "the first change holds for it");
        assert_eq!([203, 216].map(|ack| a.acknowledged(ack)), [200, 220]);
        a.lengthen(500, 0);
        assert_eq!((a.before, a.after), (-4, -4));
    }
}
