//! The classic capture file: a header of 24 bytes, then records of a 16-byte header and the frame.
//!
//! Files of either byte order and with either magic number (microseconds, nanoseconds) can be read; files are
//! written with nanoseconds in the machine's own byte order. A file that is not an Ethernet capture, or is
//! truncated, is refused with the record and its position: a replay that silently lacked the end of its file
//! would measure something else.
//!
//! Not with `pcap-file`: the format is two headers of a fixed size, and errors here name the record and its
//! position. pcapng, which would be worth a crate, is refused with the command that converts it.
//!
//! Source: draft-ietf-opsawg-pcap (PCAP Capture File Format).

use std::io::{self, Write};

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const LINK_TYPE_ETHERNET: u32 = 1;
/// Bytes of a capture's header.
pub const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
/// No frame is longer: the snapshot length that capture programs use for "all of it".
const FRAME_LEN_MAX: usize = 262_144;

/// A frame of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its bytes, as many as were captured.
    pub frame: &'a [u8],
}

/// Reads a whole capture. The error names the record (from 1) and its offset in the file.
pub fn parse(bytes: &[u8]) -> Result<Vec<Record<'_>>, String> {
    Records::new(bytes)?.collect()
}

/// The frames of a capture, up to the first that is not one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    number: usize,
    is_big_endian: bool,
    fraction_ns: u64,
}

impl<'a> Records<'a> {
    /// Of a whole capture. The error is that of the file's header.
    pub fn new(bytes: &'a [u8]) -> Result<Records<'a>, String> {
        let header = bytes.get(..FILE_HEADER_LEN).ok_or("shorter than the header of a capture file")?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let is_big_endian = match u32::from_le_bytes(word(0)) {
            MAGIC_MICROSECONDS | MAGIC_NANOSECONDS => false,
            MAGIC_PCAPNG => return Err("pcapng, not classic pcap: convert it (editcap -F pcap)".into()),
            _ => true,
        };
        let mut records = Records { bytes, at: FILE_HEADER_LEN, number: 0, is_big_endian, fraction_ns: 1 };
        records.fraction_ns = match records.word(word(0)) {
            MAGIC_MICROSECONDS => 1000,
            MAGIC_NANOSECONDS => 1,
            magic => return Err(format!("not a capture file (magic number {magic:08x})")),
        };
        // The upper bits say how long the frame check sequence is.
        let link_type = records.word(word(20)) & 0xffff;
        if link_type != LINK_TYPE_ETHERNET {
            return Err(format!("link type {link_type}, and only Ethernet (1) can be replayed"));
        }
        Ok(records)
    }

    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn record(&mut self) -> Result<Record<'a>, String> {
        let at = self.at;
        // After an error there is nothing more.
        self.at = self.bytes.len();
        self.number += 1;
        let place = || format!("record {} at byte {at}", self.number);
        let (head, rest) = self.bytes[at..]
            .split_first_chunk::<RECORD_HEADER_LEN>()
            .ok_or_else(|| format!("{}: its header is cut off", place()))?;
        let word = |at: usize| self.word([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = word(8) as usize;
        if len > FRAME_LEN_MAX {
            return Err(format!("{}: {len} bytes, but a frame has at most {FRAME_LEN_MAX}", place()));
        }
        let frame = rest.get(..len).ok_or_else(|| format!("{}: cut off", place()))?;
        let time_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * self.fraction_ns;
        self.at = at + RECORD_HEADER_LEN + len;
        Ok(Record { time_ns, frame })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.at < self.bytes.len()).then(|| self.record())
    }
}

/// Writes a capture with nanosecond time stamps.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        let mut header = [0u8; FILE_HEADER_LEN];
        header[..4].copy_from_slice(&MAGIC_NANOSECONDS.to_ne_bytes());
        header[4..6].copy_from_slice(&2u16.to_ne_bytes()); // version 2.4
        header[6..8].copy_from_slice(&4u16.to_ne_bytes());
        header[16..20].copy_from_slice(&(FRAME_LEN_MAX as u32).to_ne_bytes());
        header[20..].copy_from_slice(&LINK_TYPE_ETHERNET.to_ne_bytes());
        out.write_all(&header)?;
        Ok(Writer { out })
    }

    /// Appends one frame, given in pieces, captured `time_ns` nanoseconds after 1970.
    pub fn write<'a>(
        &mut self,
        time_ns: u64,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let len = pieces.clone().map(<[u8]>::len).sum::<usize>() as u32;
        let mut head = [0u8; RECORD_HEADER_LEN];
        head[..4].copy_from_slice(&((time_ns / 1_000_000_000) as u32).to_ne_bytes());
        head[4..8].copy_from_slice(&((time_ns % 1_000_000_000) as u32).to_ne_bytes());
        head[8..12].copy_from_slice(&len.to_ne_bytes());
        head[12..].copy_from_slice(&len.to_ne_bytes());
        self.out.write_all(&head)?;
        for piece in pieces {
            self.out.write_all(piece)?;
        }
        Ok(())
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One frame of `len` bytes at 1 s and 2 units, with every word through `order`.
    fn capture(magic: u32, len: usize, order: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let mut bytes = order(magic).to_vec();
        bytes.extend([0; 12]);
        bytes.extend(order(65535));
        bytes.extend(order(1));
        for word in [1, 2, len as u32, len as u32] {
            bytes.extend(order(word));
        }
        bytes.extend((0..len).map(|i| i as u8));
        bytes
    }

    #[test]
    fn both_orders_and_both_resolutions_are_read() {
        for order in [u32::to_be_bytes as fn(u32) -> [u8; 4], u32::to_le_bytes] {
            let bytes = capture(0xa1b2_c3d4, 3, order);
            assert_eq!(parse(&bytes).unwrap(), [Record { time_ns: 1_000_002_000, frame: &[0, 1, 2] }]);
            let bytes = capture(0xa1b2_3c4d, 0, order);
            assert_eq!(parse(&bytes).unwrap(), [Record { time_ns: 1_000_000_002, frame: &[] }]);
        }
    }

    #[test]
    fn what_is_cut_off_or_no_capture_is_refused_with_its_place() {
        let bytes = capture(0xa1b2_c3d4, 60, u32::to_le_bytes);
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]).is_ok(), end == FILE_HEADER_LEN, "{end}");
        }
        assert_eq!(parse(&bytes[..99]).unwrap_err(), "record 1 at byte 24: cut off");
        assert!(parse(&[7; 100]).unwrap_err().contains("07070707"));
        let mut wifi = bytes.clone();
        wifi[20] = 105;
        assert!(parse(&wifi).unwrap_err().contains("105"));
        let mut huge = bytes;
        huge[35] = 0x7f;
        assert!(parse(&huge).unwrap_err().contains("a frame has at most"));
    }

    #[test]
    fn what_was_written_is_read() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        writer.write(5_000_000_007, [&[1u8, 2][..], &[3]].into_iter()).unwrap();
        writer.write(6_000_000_000, std::iter::once(&[9u8; 1514][..])).unwrap();
        writer.flush().unwrap();
        let records = parse(&file).unwrap();
        assert_eq!(records[0], Record { time_ns: 5_000_000_007, frame: &[1, 2, 3] });
        assert_eq!((records[1].time_ns, records[1].frame.len()), (6_000_000_000, 1514));
    }
}
