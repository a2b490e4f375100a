//! The frames of the demo's UDP traffic: of one size, one pair of addresses per flow, and a payload that says
//! what to do with them.
//!
//! The Ethernet addresses belong to no interface, so that the kernel's own stack ignores the frames when it
//! sees them. UDP goes without a checksum, so that a payload can change.

use std::net::Ipv4Addr;
use wire::compose::Compose;
use wire::ethernet::EthAddr;

const PAYLOAD: usize = 42;
const MAGIC: [u8; 4] = *b"xpnt";
const KIND: usize = PAYLOAD + 4;
/// The position of the number that a reply returns.
const STAMP: std::ops::Range<usize> = PAYLOAD + 8..PAYLOAD + 16;

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// To be counted.
    Stream = 1,
    /// To be counted and returned: the source limits how many are in flight.
    StreamEcho = 2,
    /// To be sent back.
    Probe = 3,
}

/// Addresses of flow number `n`, of 65,536.
pub fn addresses(n: u16) -> (Ipv4Addr, Ipv4Addr) {
    let [high, low] = n.to_be_bytes();
    (Ipv4Addr::new(10, 214, high, low), Ipv4Addr::new(10, 215, high, low))
}

/// The frame of a flow, of `len` bytes without its frame check sequence (at least 60), its payload empty.
pub fn compose(n: u16, len: usize) -> Result<Vec<u8>, String> {
    let (src, dst) = addresses(n);
    let (from, to) = (EthAddr([0x02, 0xc9, 0, 0, 0, 1]), EthAddr([0x02, 0xc9, 0, 0, 0, 2]));
    let mut frame = Compose::ethernet(from, to)
        .ipv4(src, dst)
        .udp(5001, 5002)
        .udp_checksum_zero()
        .frame_len(len)
        .build()
        .map_err(|e| format!("cannot make a frame: {e}"))?;
    let magic = frame.get_mut(PAYLOAD..PAYLOAD + 4).ok_or_else(|| format!("{len} bytes are too few"))?;
    magic.copy_from_slice(&MAGIC);
    Ok(frame)
}

/// Marks a frame.
pub fn mark(frame: &mut [u8], kind: Kind, stamp: u64) {
    frame[KIND] = kind as u8;
    frame[STAMP].copy_from_slice(&stamp.to_be_bytes());
}

/// Kind and stamp of a frame; `None` if it does not belong to this traffic.
pub fn read(frame: &[u8]) -> Option<(Kind, u64)> {
    if frame.get(PAYLOAD..PAYLOAD + 4)? != MAGIC {
        return None;
    }
    let kind = match frame.get(KIND)? {
        1 => Kind::Stream,
        2 => Kind::StreamEcho,
        3 => Kind::Probe,
        _ => return None,
    };
    Some((kind, u64::from_be_bytes(frame.get(STAMP)?.try_into().ok()?)))
}

/// Makes a frame that [`read`] knows its own reply. Addresses and ports change sides, so its sums stay right.
pub fn turn_round(frame: &mut [u8]) {
    for (first, second, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        let (head, tail) = frame.split_at_mut(second);
        head[first..first + len].swap_with_slice(&mut tail[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_differ_in_their_addresses_and_are_as_long_as_asked() {
        let (first, last) = (compose(0, 60).unwrap(), compose(9_999, 1514).unwrap());
        assert_eq!(first[26..34], [10, 214, 0, 0, 10, 215, 0, 0]);
        assert_eq!(last[26..34], [10, 214, 39, 15, 10, 215, 39, 15]);
        assert_eq!((first.len(), last.len()), (60, 1514));
    }

    #[test]
    fn a_mark_is_read_and_foreign_frames_are_not() {
        let mut frame = compose(7, 60).unwrap();
        assert_eq!(read(&frame), None);
        mark(&mut frame, Kind::Probe, 0x0102_0304_0506_0708);
        assert_eq!(read(&frame), Some((Kind::Probe, 0x0102_0304_0506_0708)));
        for len in 0..STAMP.end {
            assert_eq!(read(&frame[..len]), None);
        }
        frame[PAYLOAD] ^= 1;
        assert_eq!(read(&frame), None);
    }

    #[test]
    fn a_reply_goes_back_and_keeps_its_payload() {
        let mut frame = compose(258, 60).unwrap();
        mark(&mut frame, Kind::StreamEcho, 5);
        let mut reply = frame.clone();
        turn_round(&mut reply);
        assert_eq!(reply[..6], frame[6..12]);
        assert_eq!(reply[26..34], [10, 215, 1, 2, 10, 214, 1, 2]);
        assert_eq!((&reply[34..36], &reply[36..38]), (&frame[36..38], &frame[34..36]));
        assert_eq!(read(&reply), Some((Kind::StreamEcho, 5)));
    }
}
