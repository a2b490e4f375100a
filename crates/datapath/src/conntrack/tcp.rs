//! TCP's state machine: which segments belong to a connection, and how far it is.
//!
//! Each end has a state and a window. A segment is valid if it lies in the window that the tracker has seen
//! the other end offer, and if what it acknowledges is near what was sent (G. van Rooij, "Real Stateful TCP
//! Packet Filtering in IP Filter"; the same rules as in OpenBSD's pf and Open vSwitch). A connection that is
//! picked up midway is judged leniently, since its window scales were never seen. A segment is checked first,
//! then the states of both ends are updated.
//!
//! With `be_liberal` the window is not checked. Pure. Source: RFC 9293 section 3.3, RFC 7323.

use super::seen::Segment;
use super::timeouts::Phase;

pub(crate) const FIN: u16 = 1;
pub(crate) const SYN: u16 = 2;
pub(crate) const RST: u16 = 4;
const PSH: u16 = 8;
pub(crate) const ACK: u16 = 16;
const URG: u16 = 32;

/// The state of an end, in the order in which Open vSwitch numbers and prints them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum State {
    #[default]
    Closed,
    Listen,
    SynSent,
    SynRecv,
    Established,
    CloseWait,
    FinWait1,
    Closing,
    LastAck,
    FinWait2,
    TimeWait,
}

impl State {
    const ALL: [State; 11] = [
        State::Closed,
        State::Listen,
        State::SynSent,
        State::SynRecv,
        State::Established,
        State::CloseWait,
        State::FinWait1,
        State::Closing,
        State::LastAck,
        State::FinWait2,
        State::TimeWait,
    ];

    pub(crate) fn of(number: u8) -> State {
        State::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// As Open vSwitch prints it.
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::Listen => "LISTEN",
            State::SynSent => "SYN_SENT",
            State::SynRecv => "SYN_RECV",
            State::Established => "ESTABLISHED",
            State::CloseWait => "CLOSE_WAIT",
            State::FinWait1 => "FIN_WAIT_1",
            State::Closing => "CLOSING",
            State::LastAck => "LAST_ACK",
            State::FinWait2 => "FIN_WAIT_2",
            State::TimeWait => "TIME_WAIT",
        }
    }
}

/// What is known of an end's window scale.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scale {
    /// It offered no window scale.
    #[default]
    None,
    /// It scales by this many bits.
    By(u8),
    /// Its first segment was not seen.
    Unknown,
}

impl Scale {
    fn offered(option: Option<u8>) -> Scale {
        option.map_or(Scale::None, Scale::By)
    }

    fn bits(self) -> u8 {
        if let Scale::By(bits) = self { bits } else { 0 }
    }
}

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Peer {
    /// The next sequence number that it will send: one past the highest seen.
    pub next: u32,
    /// The highest sequence number that it may send.
    pub limit: u32,
    /// The largest window that it has offered.
    pub window: u32,
    pub scale: Scale,
    pub state: State,
}

/// Both ends: the one that opened the connection, and the other.
pub type Peers = [Peer; 2];

/// Both ends in the packed form of a connection's entry, as seen from the one that opened it, or the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// `next` (high) and `limit` (low) of this end, then of the other.
    pub numbers: [u64; 2],
    /// This end's window (high) and the other's.
    pub windows: u64,
    /// For this end (low 16 bits) and the other: scale (high 8 bits) and state.
    pub states: u32,
}

/// The encoding of a scale in [`Ends`]: this bit with the number of bits, or the other bit with the most bits
/// if it is unknown.
const SCALED: u32 = 0x80;
const SCALE_UNKNOWN: u32 = 0x40 | SCALE_MAX as u32;
/// Both bits, and the number of bits.
const SCALE_KIND: u32 = 0xc0;
const SCALE_BITS: u32 = 0x1f;

impl Ends {
    /// Packs them, as seen from the first.
    pub fn of(peers: &Peers) -> Ends {
        let [first, second] = peers;
        let numbers = |peer: &Peer| u64::from(peer.next) << 32 | u64::from(peer.limit);
        let state = |peer: &Peer| {
            let scale = match peer.scale {
                Scale::None => 0,
                Scale::By(bits) => SCALED | u32::from(bits),
                Scale::Unknown => SCALE_UNKNOWN,
            };
            scale << 8 | peer.state as u32
        };
        Ends {
            numbers: [numbers(first), numbers(second)],
            windows: u64::from(first.window) << 32 | u64::from(second.window),
            states: state(second) << 16 | state(first),
        }
    }

    /// The first end's view as the end `from` sees it, or the reverse: unchanged for 0, turned round for 1.
    #[inline(always)]
    pub fn seen_from(self, from: u32) -> Ends {
        let from = from & 1;
        Ends {
            numbers: if from == 0 { self.numbers } else { [self.numbers[1], self.numbers[0]] },
            windows: self.windows.rotate_left(32 * from),
            states: self.states.rotate_left(16 * from),
        }
    }

    /// Unpacks them.
    pub fn peers(&self) -> Peers {
        let peer = |numbers: u64, window: u32, state: u16| {
            let scale = match u32::from(state >> 8) {
                bits @ SCALED.. => Scale::By((bits & !SCALED) as u8),
                SCALE_UNKNOWN => Scale::Unknown,
                _ => Scale::None,
            };
            let state = State::of(state as u8);
            Peer { next: (numbers >> 32) as u32, limit: numbers as u32, window, scale, state }
        };
        [
            peer(self.numbers[0], (self.windows >> 32) as u32, self.states as u16),
            peer(self.numbers[1], self.windows as u32, (self.states >> 16) as u16),
        ]
    }

    /// Both ends after a segment from this one, if both are established and stay so; the same result as
    /// [`update`]. `None` if there is more to check, and `Some(None)` if the segment changes nothing.
    #[inline(always)]
    pub fn pass(&self, s: &Segment, is_liberal: impl FnOnce() -> bool) -> Option<Option<Ends>> {
        const SLACK: u32 = ACK_SLACK as u32;
        const BOTH_ESTABLISHED: u32 = (State::Established as u32) << 16 | State::Established as u32;
        if self.states & 0x00ff_00ff != BOTH_ESTABLISHED || s.flags & (ACK | SYN | FIN | RST) != ACK {
            return None;
        }
        // Only of one kind do both ends scale.
        let is_one_kind = (self.states ^ self.states >> 16) & SCALE_KIND << 8 == 0;
        let scale = if is_one_kind { SCALE_BITS } else { 0 };
        let (src_bits, dst_bits) = (self.states >> 8 & scale, self.states >> 24 & scale);
        let [(src_next, src_limit), (dst_next, dst_limit)] =
            self.numbers.map(|numbers| ((numbers >> 32) as u32, numbers as u32));
        let (src_window, dst_window) = ((self.windows >> 32) as u32, self.windows as u32);
        let (seq, end) = match s.len {
            0 => (src_next, src_next),
            len => (s.seq, s.seq.wrapping_add(len)),
        };
        // From here on, how far the acknowledgement is from the one that is furthest ahead.
        let behind = dst_next.wrapping_sub(s.ack).wrapping_add_signed(ACK_SLACK);
        // What is likely comes first: in order, and near what was sent whatever the scale.
        let is_in_window = at_least(src_limit, end)
            && (at_least(seq, src_next) || at_least(seq, src_next.wrapping_sub(dst_window << dst_bits)))
            && (behind <= 2 * SLACK || behind <= SLACK + (SLACK << src_bits));
        if !is_in_window && !is_liberal() {
            return None;
        }
        let window = u32::from(s.window);
        let offered = window << src_bits;
        let next = if at_least(end, src_next) { end } else { src_next };
        let is_further = at_least(s.ack.wrapping_add(offered), dst_limit);
        let limit = if is_further { s.ack.wrapping_add(offered.max(1)) } else { dst_limit };
        if next == src_next && limit == dst_limit && window <= src_window {
            return Some(None);
        }
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Some(Some(Ends {
            numbers: [both(next, src_limit), both(dst_next, limit)],
            windows: both(src_window.max(window), dst_window),
            states: self.states,
        }))
    }
}

/// How a segment relates to its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Part of a connection whose other end has answered. The phase, if any, renews its timeout.
    Valid(Option<Phase>),
    /// Part of a connection that has not been answered yet.
    StillNew(Phase),
    /// The first segment of a new connection with the same tuple; the old one is over.
    Another,
    Invalid,
}

/// How far acknowledgements may be behind or ahead of what was seen: a window and a segment.
const ACK_SLACK: i32 = 0xffff + 1500;
const SCALE_MAX: u8 = 14;

/// Whether `a` is at or after `b` in sequence space.
fn at_least(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// Whether the flags form a combination that no TCP sends.
fn flags_contradict(flags: u16) -> bool {
    let has = |bits| flags & bits != 0;
    has(SYN) && has(RST | FIN) || !has(SYN | ACK | RST) || !has(ACK) && has(FIN | PSH | URG)
}

/// A window in units of the scale, rounded up.
fn unscaled(window: u16, bits: u8) -> u32 {
    u32::from(window).div_ceil(1 << bits)
}

/// Whether a segment may be the first one seen of a connection: it opens one, or belongs to one in progress.
/// The answer to an opening segment does neither.
pub(crate) fn may_be_first(s: &Segment) -> bool {
    !flags_contradict(s.flags) && s.flags & (SYN | ACK) != SYN | ACK
}

/// Both ends after the first segment seen.
pub(crate) fn open(s: &Segment) -> Peers {
    let opens = s.flags & SYN != 0;
    let (scale, of_other) =
        if opens { (Scale::offered(s.scale), Scale::None) } else { (Scale::Unknown, Scale::Unknown) };
    let extra = 1 + u32::from(opens) + u32::from(s.flags & FIN != 0);
    let from = Peer {
        next: s.seq,
        limit: s.seq.wrapping_add(s.len).wrapping_add(extra),
        window: unscaled(s.window.max(1), scale.bits()),
        scale,
        state: State::SynSent,
    };
    [from, Peer { limit: 1, window: 1, scale: of_other, ..Peer::default() }]
}

/// Judges a segment from `peers[from]` and updates both ends.
pub(crate) fn update(peers: &mut Peers, from: usize, s: &Segment, be_liberal: bool) -> Verdict {
    let [mut src, mut dst] = [peers[from & 1], peers[from & 1 ^ 1]];
    let verdict = judge(&mut src, &mut dst, s, be_liberal);
    (peers[from & 1], peers[from & 1 ^ 1]) = (src, dst);
    verdict
}

fn judge(src: &mut Peer, dst: &mut Peer, s: &Segment, be_liberal: bool) -> Verdict {
    let has = |bits| s.flags & bits != 0;
    if flags_contradict(s.flags) {
        return Verdict::Invalid;
    }
    if s.flags & (SYN | ACK) == SYN {
        if src.state >= State::FinWait2 && dst.state >= State::FinWait2 {
            (src.state, dst.state) = (State::Closed, State::Closed);
            return Verdict::Another;
        }
        if src.state <= State::SynSent {
            src.state = State::SynSent;
            return Verdict::StillNew(Phase::TcpSynSent);
        }
    }
    let mut window = u32::from(s.window);
    let [mut src_bits, mut dst_bits] = match (src.scale, dst.scale) {
        _ if has(SYN) => [0, 0],
        (Scale::By(src), Scale::By(dst)) => [src, dst],
        (Scale::Unknown, Scale::Unknown) => [SCALE_MAX; 2],
        _ => [0, 0],
    };
    let mut seq = s.seq;
    let mut end = seq.wrapping_add(s.len).wrapping_add(has(SYN).into()).wrapping_add(has(FIN).into());
    let mut checks_ack = true;
    if src.state < State::SynSent {
        // The first segment seen from this end.
        if has(SYN)
            && let Some(bits) = agree_on_scale(src, dst, s)
        {
            [src_bits, dst_bits] = bits;
            window = unscaled(s.window, src_bits);
        }
        (src.next, src.state) = (seq, State::SynSent);
        let limit = end.wrapping_add((dst.window << dst_bits).max(1));
        if src.limit == 1 || at_least(limit, src.limit) {
            src.limit = limit;
            checks_ack = false;
        }
        src.window = src.window.max(window);
    }
    // An end that gives up while it connects has nothing to acknowledge; some say so with a 0.
    let acknowledges = has(ACK) && !(s.ack == 0 && s.flags & (ACK | RST) == ACK | RST);
    let ack = if acknowledges { s.ack } else { dst.next };
    if seq == end {
        // Without data, any sequence number will do.
        (seq, end) = (src.next, src.next);
    }
    let behind = if checks_ack { dst.next.wrapping_sub(ack) as i32 } else { 0 };
    let is_near = |at: u32| matches!(s.seq.wrapping_sub(at) as i32, -1..=1);
    let is_in_window = at_least(src.limit, end)
        && at_least(seq, src.next.wrapping_sub(dst.window << dst_bits))
        && (-ACK_SLACK..=ACK_SLACK << src_bits).contains(&behind)
        && (!has(RST) || is_near(src.next));
    let is_awkward =
        dst.state < State::SynSent || dst.state >= State::FinWait2 || src.state >= State::FinWait2;
    if !is_in_window && !be_liberal {
        let is_close = at_least(src.limit.wrapping_add(ACK_SLACK as u32), end)
            && at_least(seq, src.next.wrapping_sub(ACK_SLACK as u32));
        // Simultaneous opens, connections picked up midway, and stragglers after the close.
        if !(is_awkward && is_close) {
            return Verdict::Invalid;
        }
    }
    slide(src, dst, window, src_bits, end, ack);
    if has(FIN) && src.state < State::Closing {
        src.state = State::Closing;
    }
    let renews = is_in_window || be_liberal;
    if renews && has(ACK) {
        dst.state = match dst.state {
            State::SynSent => State::Established,
            State::Closing => State::FinWait2,
            other => other,
        };
    }
    if has(RST) {
        (src.state, dst.state) = (State::TimeWait, State::TimeWait);
    }
    Verdict::Valid(renews.then(|| phase(src.state, dst.state)))
}

/// The other end opens, too: both scale their windows, or neither does.
fn agree_on_scale(src: &mut Peer, dst: &mut Peer, s: &Segment) -> Option<[u8; 2]> {
    let Scale::By(other) = dst.scale else { return None };
    src.scale = Scale::offered(s.scale);
    if let Scale::By(own) = src.scale {
        return Some([own, other]);
    }
    (dst.window, dst.scale) = (dst.window << other, Scale::None);
    None
}

/// Updates what both ends may send.
fn slide(src: &mut Peer, dst: &mut Peer, window: u32, src_bits: u8, end: u32, ack: u32) {
    src.window = src.window.max(window);
    if at_least(end, src.next) {
        src.next = end;
    }
    let offered = window << src_bits;
    if at_least(ack.wrapping_add(offered), dst.limit) {
        dst.limit = ack.wrapping_add(offered.max(1));
    }
}

fn phase(a: State, b: State) -> Phase {
    let (least, most) = (a.min(b), a.max(b));
    if least >= State::FinWait2 {
        Phase::TcpClose
    } else if least >= State::Closing {
        Phase::TcpTimeWait
    } else if least < State::Established {
        Phase::TcpSynRecv
    } else if most >= State::Closing {
        Phase::TcpFinWait
    } else {
        Phase::TcpEstablished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An end of a connection that has sent up to 1,000 or thereabouts.
    fn peer() -> impl Strategy<Value = Peer> {
        let scale = prop_oneof![Just(Scale::None), Just(Scale::Unknown), (0..=14u8).prop_map(Scale::By)];
        let state = prop_oneof![8 => Just(State::Established), 1 => (0..11u8).prop_map(State::of)];
        (900..1_100u32, -50..70_000i32, prop_oneof![0..3u32, 0..70_000u32], scale, state).prop_map(
            |(next, room, window, scale, state)| {
                // Numbers wrap.
                let next = next.wrapping_sub(1_000);
                Peer { next, limit: next.wrapping_add_signed(room), window, scale, state }
            },
        )
    }

    fn segment() -> impl Strategy<Value = Segment> {
        let near =
            || prop_oneof![8 => (900..1_100u32).prop_map(|n| n.wrapping_sub(1_000)), 1 => any::<u32>()];
        let flags = prop_oneof![6 => Just(ACK), 2 => Just(ACK | PSH), 1 => 0..64u16];
        let len = prop_oneof![Just(0), Just(1), 0..70_000u32];
        (near(), near(), flags, any::<u16>(), len).prop_map(|(seq, ack, flags, window, len)| Segment {
            seq,
            ack,
            flags,
            window,
            len,
            scale: None,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::cases("datapath::tcp::pass", 20_000)))]
        /// The short way is taken for these segments of established connections, and leads where the long
        /// one does.
        #[test]
        fn a_segment_passes_as_it_is_judged(
            peers in [peer(), peer()],
            from in 0..2usize,
            segment in segment(),
            be_liberal: bool,
        ) {
            let before = Ends::of(&peers);
            prop_assert_eq!(before.peers(), peers);
            let mut after = peers;
            let verdict = update(&mut after, from, &segment, be_liberal);
            let are_established = |peers: &Peers| peers.iter().all(|peer| peer.state == State::Established);
            let is_plain = segment.flags & (ACK | SYN | FIN | RST) == ACK;
            let is_steady = is_plain && are_established(&peers) && verdict == Verdict::Valid(Some(Phase::TcpEstablished));
            let expected = is_steady.then(|| Ends::of(&after));
            let seen = before.seen_from(from as u32);
            let passed = seen.pass(&segment, || be_liberal);
            prop_assert!(passed != Some(Some(seen)), "what changes nothing is told so");
            prop_assert_eq!(passed.map(|ends| ends.unwrap_or(seen).seen_from(from as u32)), expected);
        }
    }
}
