//! Received frames: sorted by the generator's mark, flow and number into frames in order, late ones,
//! duplicates and foreign ones; frames of a capture, which have no room for a number, by their bytes.
//!
//! A frame's last [`STAMP`] bytes are a mark (16 bits), the trial (16), the source (4), the flow (20), the
//! frame's number within its flow (32) and the time at which it was due, in nanoseconds from the start (48).
//! Latency counts from that time, not from when the frame was sent: a generator or a switch that is held up
//! does not hide the wait (no coordinated omission).

use super::SILENCE;
use super::pattern::STAMP;
use crate::result::account::Account;
use hdrhistogram::Histogram;
use std::collections::HashMap;

const MARK: u16 = 0x5870;
/// Bits of the flow; the source is above them.
const FLOW_BITS: u32 = 20;
/// As many as a stamp can tell apart.
pub const SOURCES_MAX: usize = 1 << (24 - FLOW_BITS);
/// Beginnings that are kept of each end: traffic slower than [`SILENCE`] would have one for each frame.
const BEGINNINGS_MAX: usize = 10_000;
/// Words of 64 frames that are remembered at each end, of all flows together, and of one flow at most.
const WORDS: usize = 1 << 14;
const WORDS_OF_FLOW_MAX: usize = 1 << 10;
/// Latencies are distinguished up to this value.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Writes a frame's stamp.
pub fn stamp(frame: &mut [u8], trial: u16, (flow, source): (u32, u32), number: u32, due_ns: u64) {
    let flow = source << FLOW_BITS | flow;
    let at = frame.len() - STAMP;
    let stamp = &mut frame[at..];
    stamp[..2].copy_from_slice(&MARK.to_be_bytes());
    stamp[2..4].copy_from_slice(&trial.to_be_bytes());
    stamp[4..7].copy_from_slice(&flow.to_be_bytes()[1..]);
    stamp[7..11].copy_from_slice(&number.to_be_bytes());
    stamp[11..].copy_from_slice(&due_ns.to_be_bytes()[2..]);
}

/// A stamp: trial, flow and source, number, time.
type Stamp = (u16, (usize, usize), u32, u64);

/// The stamp of a frame with our mark.
fn read(frame: &[u8]) -> Option<Stamp> {
    let s = frame.get(frame.len().checked_sub(STAMP)?..)?;
    if s[..2] != MARK.to_be_bytes() {
        return None;
    }
    let flow = u32::from_be_bytes([0, s[4], s[5], s[6]]);
    let flow = ((flow & ((1 << FLOW_BITS) - 1)) as usize, (flow >> FLOW_BITS) as usize);
    let due = u64::from_be_bytes([0, 0, s[11], s[12], s[13], s[14], s[15], s[16]]);
    Some((u16::from_be_bytes([s[2], s[3]]), flow, u32::from_be_bytes([s[7], s[8], s[9], s[10]]), due))
}

#[derive(PartialEq, Eq, Debug)]
enum Came {
    InOrder,
    Late,
    Again,
}

/// Frames received at one end, by flow.
struct Flows {
    /// The number that is expected next.
    next: Vec<u32>,
    /// Which of the frames before it arrived: as many words for each flow, in which a frame's place is its
    /// number modulo the number of bits. A power of two, so that numbers may wrap.
    came: Vec<u64>,
    words: usize,
}

impl Flows {
    fn new(flows: usize) -> Flows {
        let words = (WORDS / flows.max(1)).clamp(1, WORDS_OF_FLOW_MAX);
        let words = if words.is_power_of_two() { words } else { words.next_power_of_two() / 2 };
        Flows { next: vec![0; flows], came: vec![0; flows * words], words }
    }

    fn see(&mut self, flow: usize, number: u32) -> Came {
        let (bits, next) = (self.words * 64, self.next[flow]);
        let came = &mut self.came[flow * self.words..][..self.words];
        let place = |number: u32| (number as usize % bits / 64, 1u64 << (number % 64));
        let ahead = i64::from(number.wrapping_sub(next) as i32);
        let (word, bit) = place(number);
        if ahead >= 0 {
            match ahead as usize >= bits {
                true => came.fill(0),
                false => {
                    (0..ahead as u32).map(|n| place(next.wrapping_add(n))).for_each(|(w, b)| came[w] &= !b)
                }
            }
            came[word] |= bit;
            self.next[flow] = number.wrapping_add(1);
            return Came::InOrder;
        }
        // One that is too far behind to be remembered must not make up for a lost one.
        if -ahead > bits as i64 || came[word] & bit != 0 {
            return Came::Again;
        }
        came[word] |= bit;
        Came::Late
    }
}

/// Frames of a capture, by their bytes: how many are yet to arrive.
pub type Expected = HashMap<Vec<u8>, i64>;

/// See the module documentation.
pub struct Receiver {
    /// By end.
    flows: Vec<Flows>,
    trial: u16,
    expected: Option<Expected>,
    /// By end: the source of the frames that belong there, if it is one.
    origins: Vec<Option<usize>>,
    /// Received, duplicated, reordered, foreign.
    pub account: Account,
    /// For all frames with a number.
    pub latency: Histogram<u64>,
    last_ns: u64,
    /// The longest time between two packets.
    pub gap_max_ns: u64,
    /// By end: when its last frame came.
    last_at: Vec<Option<u64>>,
    /// By end: when frames began to come after a silence.
    pub begun_ns: Vec<Vec<u64>>,
}

impl Receiver {
    /// For ends at which frames of these sources come, and this many flows.
    pub fn new(
        trial: u16,
        origins: Vec<Option<usize>>,
        flows: usize,
        expected: Option<Expected>,
    ) -> Result<Receiver, String> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).map_err(|e| e.to_string())?;
        let flows = if expected.is_some() { 0 } else { flows };
        let ends = origins.len();
        let flows = (0..ends).map(|_| Flows::new(flows)).collect();
        let account = Account::default();
        let (last_at, begun_ns) = (vec![None; ends], vec![Vec::new(); ends]);
        Ok(Receiver {
            flows,
            trial,
            expected,
            origins,
            account,
            latency,
            last_ns: 0,
            gap_max_ns: 0,
            last_at,
            begun_ns,
        })
    }

    /// A frame of a capture was sent.
    pub fn expect(&mut self, frame: &[u8], copies: i64) {
        if let Some(count) = self.expected.as_mut().and_then(|e| e.get_mut(frame)) {
            *count += copies;
        }
    }

    /// A frame that arrived at an end, this many nanoseconds after the start.
    pub fn see(&mut self, end: usize, frame: &[u8], now_ns: u64) {
        if let Some(expected) = &mut self.expected {
            match expected.get_mut(frame) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    self.account.received += 1;
                }
                Some(_) => self.account.duplicated += 1,
                None => self.account.foreign += 1,
            }
            return;
        }
        let Some((trial, (flow, source), number, due)) = read(frame) else {
            self.account.foreign += 1;
            return;
        };
        let is_astray = self.origins[end].is_some_and(|origin| origin != source);
        if trial != self.trial || is_astray || flow >= self.flows[end].next.len() {
            self.account.foreign += 1;
            return;
        }
        match self.flows[end].see(flow, number) {
            Came::InOrder => self.account.received += 1,
            Came::Late => {
                self.account.received += 1;
                self.account.reordered += 1;
            }
            Came::Again => self.account.duplicated += 1,
        }
        self.gap_max_ns = self.gap_max_ns.max(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
        let before = self.last_at[end].replace(now_ns);
        let is_beginning = before.is_none_or(|before| now_ns - before >= SILENCE.as_nanos() as u64);
        if is_beginning && self.begun_ns[end].len() < BEGINNINGS_MAX {
            self.begun_ns[end].push(now_ns);
        }
        self.latency.saturating_record(now_ns.saturating_sub(due));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_reordering_and_duplicates_are_told_apart() {
        use Came::{Again, InOrder, Late};
        let mut flows = Flows::new(10);
        let seen: Vec<Came> = [0, 1, 3, 2, 2, 3, 200, 199].into_iter().map(|n| flows.see(9, n)).collect();
        assert_eq!(seen, [InOrder, InOrder, InOrder, Late, Again, Again, InOrder, Late]);
        // Far behind, and each told apart; another flow has numbers of its own.
        assert_eq!([3, 5, 5].map(|n| flows.see(9, n)), [Again, Late, Again]);
        assert_eq!([0, 0].map(|n| flows.see(8, n)), [InOrder, Again]);
        // Too far behind to be remembered: it does not make up for a lost one.
        let bits = flows.words as u32 * 64;
        assert_eq!([199 + bits, 198, 199, 201].map(|n| flows.see(9, n)), [InOrder, Again, Again, Late]);
        assert_eq!(Flows::new(1 << 20).words, 1);
    }

    #[test]
    fn the_numbers_of_a_long_flow_start_again() {
        use Came::{Again, InOrder, Late};
        let mut flows = Flows::new(1);
        flows.next[0] = u32::MAX - 1;
        let seen: Vec<Came> = [u32::MAX, 0, u32::MAX - 1, 0].into_iter().map(|n| flows.see(0, n)).collect();
        assert_eq!(seen, [InOrder, InOrder, Late, Again]);
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_others_frames_are_foreign() {
        let mut frame = vec![0; 60];
        for source in [0, 1, 15] {
            stamp(&mut frame, 7, (1_048_575, source), 4_000_000_000, 1 << 47);
            assert_eq!(read(&frame), Some((7, (1_048_575, source as usize), 4_000_000_000, 1 << 47)));
        }
        let mut receiver = Receiver::new(8, vec![None], 10, None).unwrap();
        receiver.see(0, &frame, 0);
        receiver.see(0, &frame[..10], 0);
        stamp(&mut frame, 8, (3, 0), 0, 1_000);
        receiver.see(0, &frame, 5_000);
        receiver.see(0, &frame, 6_000);
        let account = &receiver.account;
        assert_eq!((account.foreign, account.received, account.duplicated), (2, 1, 1));
        assert_eq!((receiver.latency.min(), receiver.gap_max_ns), (4_000, 5_000));
    }

    #[test]
    fn frames_that_come_where_another_source_s_belong_are_foreign() {
        // Back where they were sent, or out of another pair's port.
        let mut receiver = Receiver::new(1, vec![Some(1), Some(0)], 10, None).unwrap();
        let mut frame = vec![0; 60];
        for (end, source) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            stamp(&mut frame, 1, (3, source), end, 0);
            receiver.see(end as usize, &frame, 0);
        }
        assert_eq!((receiver.account.received, receiver.account.foreign), (2, 2));
    }

    #[test]
    fn frames_that_come_after_a_silence_begin_anew_at_their_end() {
        let mut receiver = Receiver::new(1, vec![None; 2], 1, None).unwrap();
        let mut frame = vec![0; 60];
        for (number, (end, at_us)) in
            [(0, 10), (0, 1_900), (1, 2_500), (1, 2_600), (0, 3_900)].iter().enumerate()
        {
            stamp(&mut frame, 1, (0, 0), number as u32, 0);
            receiver.see(*end, &frame, at_us * 1_000);
        }
        assert_eq!(receiver.begun_ns, [vec![10_000, 3_900_000], vec![2_500_000]]);
    }

    #[test]
    fn frames_of_a_capture_are_known_by_their_bytes() {
        let (a, b) = (vec![1; 60], vec![2; 60]);
        let mut receiver =
            Receiver::new(1, vec![None], 2, Some(Expected::from([(a.clone(), 0), (b, 0)]))).unwrap();
        receiver.expect(&a, 1);
        for frame in [&a, &a, &vec![3; 60]] {
            receiver.see(0, frame, 0);
        }
        let account = &receiver.account;
        assert_eq!((account.received, account.duplicated, account.foreign), (1, 1, 1));
    }
}
