//! `ofp-parse-pcap`: the OpenFlow messages of a capture file.
//!
//! Each direction of a TCP connection over IPv4 is reassembled by sequence number. A capture cannot
//! retransmit: a segment that repeats bytes, or follows a gap, is left out and counted, and a warning gives
//! the count.

use super::client::{Failure, fail};
use super::context::Options;
use super::input::bytes_of;
use host::log::strftime;
use openflow::Header;
use openflow::codec::HEADER_LEN;
use openflow::text::{PortNames, bytes_text};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

/// Ports of OpenFlow unless others are named.
const PORTS: [u16; 2] = [6633, 6653];

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const IP_PROTOCOL_TCP: u8 = 6;
/// Flags that end a stream.
const FIN_OR_RST: u8 = 0x05;
const SYN: u8 = 0x02;

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Direction {
    source: (Ipv4Addr, u16),
    destination: (Ipv4Addr, u16),
}

/// The contents of a frame of a connection.
#[derive(PartialEq, Eq, Debug)]
struct Segment<'a> {
    direction: Direction,
    sequence: u32,
    flags: u8,
    payload: &'a [u8],
}

/// Bytes of a direction that wait for the rest of their message: fewer than 65,535 between two segments.
struct Stream {
    /// Number of the next byte.
    next: u32,
    waiting: Vec<u8>,
}

pub(super) fn ofp_parse_pcap(options: &Options) -> Result<ExitCode, Failure> {
    let path = options.word(1).unwrap_or("-");
    let mut ports = Vec::new();
    for word in options.args.words.iter().skip(2) {
        match word.parse::<u16>() {
            Ok(port) => ports.push(port),
            Err(_) => return fail!("{word}: not a TCP port (0 to 65535)"),
        }
    }
    if ports.is_empty() {
        ports.extend(PORTS);
    }
    let bytes = bytes_of(path)?;
    let mut is_first = true;
    let left_out = each_message(&bytes, &ports, |heard| {
        if !is_first {
            println!();
        }
        is_first = false;
        if options.args.timestamp {
            print!("{} ", time_of_day(heard.time_ns));
        }
        let (source, destination) = (heard.source, heard.destination);
        println!("{}.{} > {}.{}:", source.0, source.1, destination.0, destination.1);
        print!("{}", options.painted(&bytes_text(heard.message, PortNames::none(), options.args.more)));
    });
    let left_out = left_out.map_err(|why| Failure(format!("{path}: {why}")))?;
    if left_out > 0 {
        tracing::warn!(
            target: "ofctl",
            "{path}: left out {left_out} segments that repeat bytes, come after a gap or hold no OpenFlow"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// A message of a capture.
pub struct Heard<'a> {
    /// When its last byte was captured, in nanoseconds since the epoch.
    pub time_ns: u64,
    /// The sender: address and TCP port.
    pub source: (Ipv4Addr, u16),
    /// The receiver.
    pub destination: (Ipv4Addr, u16),
    /// The whole message.
    pub message: &'a [u8],
}

/// Shows every message in a capture file that comes from or goes to one of these TCP ports. How many segments
/// could not be used; `Err` says what is wrong with the file.
pub fn each_message(capture: &[u8], ports: &[u16], mut show: impl FnMut(Heard<'_>)) -> Result<u64, String> {
    let records = ports::pcap::file::parse(capture).map_err(|why| why.to_string())?;
    let mut streams = Streams::default();
    for record in &records {
        let Some(segment) = segment(record.frame) else { continue };
        let Direction { source, destination } = segment.direction;
        if ports.contains(&source.1) || ports.contains(&destination.1) {
            let time_ns = record.time_ns;
            streams.receive(&segment, |message| show(Heard { time_ns, source, destination, message }));
        }
    }
    Ok(streams.left_out)
}

/// Directions of connections, and what could not be used of them.
#[derive(Default)]
struct Streams {
    open: HashMap<Direction, Stream>,
    left_out: u64,
}

impl Streams {
    /// Takes the next segment of a capture, and shows each message that it completes.
    fn receive(&mut self, segment: &Segment<'_>, mut show: impl FnMut(&[u8])) {
        if segment.flags & SYN != 0 {
            let next = segment.sequence.wrapping_add(1);
            self.open.insert(segment.direction, Stream { next, waiting: Vec::new() });
            return;
        }
        // A capture may begin in the middle of a connection.
        let begin = || Stream { next: segment.sequence, waiting: Vec::new() };
        let stream = self.open.entry(segment.direction).or_insert_with(begin);
        if segment.sequence == stream.next {
            stream.next = stream.next.wrapping_add(segment.payload.len() as u32);
            stream.waiting.extend_from_slice(segment.payload);
            self.left_out += u64::from(!stream.show(&mut show));
        } else if !segment.payload.is_empty() {
            self.left_out += 1;
        }
        if segment.flags & FIN_OR_RST != 0 {
            self.open.remove(&segment.direction);
        }
    }
}

impl Stream {
    /// Shows the whole messages that wait. False if what follows them is no OpenFlow: it is thrown away.
    fn show(&mut self, show: &mut impl FnMut(&[u8])) -> bool {
        let mut rest = &self.waiting[..];
        let mut is_well = true;
        while let Some(header) = Header::parse(rest) {
            let length = usize::from(header.length);
            if length < HEADER_LEN {
                rest = &[];
                is_well = false;
                break;
            }
            let Some((message, after)) = rest.split_at_checked(length) else { break };
            show(message);
            rest = after;
        }
        let used = self.waiting.len() - rest.len();
        self.waiting.drain(..used);
        is_well
    }
}

/// The TCP segment of a frame; none if it is cut off, a fragment, or something else.
fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    let word = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let mut at = 12;
    while ETHERTYPES_VLAN.contains(&word(frame, at)?) {
        at += 4;
    }
    if word(frame, at)? != ETHERTYPE_IPV4 {
        return None;
    }
    let ip = frame.get(at + 2..)?;
    let (&version_and_length, &protocol) = (ip.first()?, ip.get(9)?);
    // More fragments, or not the first one.
    let is_fragment = word(ip, 6)? & 0x3fff != 0;
    if version_and_length >> 4 != 4 || protocol != IP_PROTOCOL_TCP || is_fragment {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*ip.get(at..)?.first_chunk::<4>()?));
    // Short frames are padded: the length counts.
    let tcp = ip.get(usize::from(version_and_length & 0xf) * 4..usize::from(word(ip, 2)?))?;
    let header_len = usize::from(tcp.get(12)? >> 4) * 4;
    Some(Segment {
        direction: Direction {
            source: (address(12)?, word(tcp, 0)?),
            destination: (address(16)?, word(tcp, 2)?),
        },
        sequence: u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?),
        flags: *tcp.get(13)?,
        payload: tcp.get(header_len.max(20)..)?,
    })
}

/// Hours, minutes, seconds and milliseconds of a day in UTC.
fn time_of_day(time_ns: u64) -> String {
    strftime("%H:%M:%S.###", Duration::from_nanos(time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: [u8; 8] = [1, 0, 0, 8, 0, 0, 0, 1];
    const BARRIER: [u8; 8] = [1, 18, 0, 8, 0, 0, 0, 2];

    fn frame(sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0, 0, 5, 8, 0]);
        frame.extend([0x45, 0, 0, 40 + payload.len() as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x0f, 0xa0, 0x19, 0xfd]);
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame.extend([0xee; 6]);
        frame
    }

    /// What is shown of segments: number of the first byte, flags, bytes.
    fn shown(segments: &[(u32, u8, &[u8])]) -> (Vec<Vec<u8>>, u64) {
        let mut streams = Streams::default();
        let mut shown = Vec::new();
        for &(sequence, flags, payload) in segments {
            let frame = frame(sequence, flags, payload);
            streams.receive(&segment(&frame).unwrap(), |message| shown.push(message.to_vec()));
        }
        (shown, streams.left_out)
    }

    #[test]
    fn a_segment_is_found_behind_a_tag_and_without_its_padding() {
        let frame = frame(7, 0x18, &HELLO);
        let found = segment(&frame).unwrap();
        assert_eq!(found.direction.source, (Ipv4Addr::new(10, 0, 0, 1), 4000));
        assert_eq!(found.direction.destination, (Ipv4Addr::new(10, 0, 0, 2), 6653));
        assert_eq!((found.sequence, found.flags, found.payload), (7, 0x18, &HELLO[..]));
    }

    #[test]
    fn frames_that_are_cut_off_anywhere_hold_no_segment() {
        let whole = frame(7, 0x18, &HELLO);
        for len in 0..whole.len() - 6 {
            assert_eq!(segment(&whole[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn messages_are_put_together_across_segments_and_numbers_that_wrap() {
        let begin = u32::MAX - 4;
        let (messages, left_out) = shown(&[
            (begin.wrapping_sub(1), SYN, &[]),
            (begin, 0x18, &HELLO[..5]),
            (0, 0x18, &[&HELLO[5..], &BARRIER].concat()),
        ]);
        assert_eq!(messages, [HELLO, BARRIER]);
        assert_eq!(left_out, 0);
    }

    #[test]
    fn repeated_bytes_and_bytes_after_a_gap_are_counted() {
        let (messages, left_out) =
            shown(&[(100, 0x18, &HELLO), (100, 0x18, &HELLO), (200, 0x18, &BARRIER), (108, 0x18, &BARRIER)]);
        assert_eq!(messages, [HELLO, BARRIER]);
        assert_eq!(left_out, 2);
    }

    #[test]
    fn a_message_shorter_than_its_header_is_thrown_away_and_counted() {
        let (messages, left_out) =
            shown(&[(100, 0x18, &[1, 0, 0, 7, 0, 0, 0, 1]), (108, 0x18, &BARRIER), (116, 0x11, &[])]);
        assert_eq!(messages, [BARRIER]);
        assert_eq!(left_out, 1);
    }

    #[test]
    fn times_are_of_the_day() {
        assert_eq!(time_of_day(1_001_005_000_000), "00:16:41.005");
        assert_eq!(time_of_day(86_399_999_000_000 + 86_400_000_000_000), "23:59:59.999");
    }
}
