//! Reads a log record by record, and diagnoses records that cannot be read.
//!
//! There are two cases. At the end of the file, such a record is the remainder of a write that a process or
//! machine did not finish: it was never reported as committed, so it is cut off. If a complete record
//! follows, committed data has been damaged, and cutting it off would lose what follows: a person must decide
//! about that. [`Reader::record_behind`] distinguishes the two.
//!
//! Memory: one window with the current record, so the size of the largest record or a quarter of a megabyte.

use super::file::ReadAt;
use super::frame::{HEADER_BYTES_MAX, Hash, Header, Magic};
use sha1::{Digest, Sha1};
use std::{fmt, io};

const CHUNK_BYTES: usize = 256 * 1024;

/// A record whose length and hash are right.
#[derive(Debug)]
pub struct Record<'a> {
    /// Where its header starts, in bytes from the start of the file.
    pub offset: u64,
    /// Where its body starts.
    pub body_offset: u64,
    /// The format that its header names.
    pub magic: Magic,
    /// The JSON, with the newline at its end.
    pub body: &'a [u8],
}

/// Why a record cannot be read. The texts, by `Display`, are those of the stock programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where the record starts, in bytes from the start of the file: everything before it is good.
    pub offset: u64,
    /// What is wrong with it.
    pub kind: DamageKind,
}

/// See [`Damage`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// Its first line is no header; this is its start.
    Header {
        /// The part of the line that was understood.
        line: String,
    },
    /// The file ends within its body.
    Short {
        /// Where the body starts.
        body_offset: u64,
        /// How long it should be.
        body_bytes: u64,
    },
    /// The body is not what was written.
    Hash {
        /// Where the body starts.
        body_offset: u64,
        /// How long it is.
        body_bytes: u64,
        /// The hash of the body.
        is: Hash,
        /// The hash in the header.
        should_be: Hash,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DamageKind::Header { line } => {
                write!(f, "parse error at offset {} in header line \"{line}\"", self.offset)
            }
            DamageKind::Short { body_offset, body_bytes } => {
                write!(f, "error reading {body_bytes} bytes starting at offset {body_offset} (End of file)")
            }
            DamageKind::Hash { body_offset, body_bytes, is, should_be } => write!(
                f,
                "{body_bytes} bytes starting at offset {body_offset} have SHA-1 hash {is} but should have hash {should_be}"
            ),
        }
    }
}

/// Why the next record is not there.
#[derive(Debug)]
pub enum ReadError {
    /// The system could not read.
    Io {
        /// Where, in bytes from the start of the file.
        offset: u64,
        /// Why.
        error: io::Error,
    },
    /// The bytes are there and are no record.
    Damaged(Damage),
}

/// What follows a damaged record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// No record: the damage is the torn end of the file.
    Nothing,
    /// A whole record, at this offset.
    Record(u64),
    /// So many lines that look like headers, from this offset on, that looking into each would take for ever.
    /// No interrupted write leaves that.
    Confusion(u64),
}

/// Reads the records of a log in order.
pub struct Reader<'a> {
    file: &'a dyn ReadAt,
    size: u64,
    offset: u64,
    window: Window,
}

impl<'a> Reader<'a> {
    /// For a log of its present length: what is appended later is not seen.
    pub fn new(file: &'a dyn ReadAt) -> io::Result<Reader<'a>> {
        Ok(Reader { file, size: file.size()?, offset: 0, window: Window::default() })
    }

    /// Where the next record starts, which is the end of the last good one.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes in the file when reading began.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next record; `None` at the end of the file.
    ///
    /// # Errors
    /// After damage, the same again: there is no way on from a record whose end is unknown.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        let offset = self.offset;
        if offset == self.size {
            return Ok(None);
        }
        let io = |error| ReadError::Io { offset, error };
        let damaged = |kind| ReadError::Damaged(Damage { offset, kind });
        let start = self.window.get(self.file, offset, HEADER_BYTES_MAX as u64, self.size).map_err(io)?;
        let line = start.iter().position(|&c| c == b'\n');
        let Some((header, line)) = line.and_then(|n| Some((Header::parse(&start[..n])?, n))) else {
            return Err(damaged(DamageKind::Header { line: understood(start) }));
        };
        let (body_offset, body_bytes) = (offset + line as u64 + 1, header.body_bytes);
        if body_bytes > self.size - body_offset {
            return Err(damaged(DamageKind::Short { body_offset, body_bytes }));
        }
        let body = self.window.get(self.file, body_offset, body_bytes, self.size).map_err(io)?;
        if (body.len() as u64) < body_bytes {
            // The file has been truncated meanwhile.
            return Err(damaged(DamageKind::Short { body_offset, body_bytes }));
        }
        let is = Hash::of(body);
        if is != header.hash {
            return Err(damaged(DamageKind::Hash { body_offset, body_bytes, is, should_be: header.hash }));
        }
        self.offset = body_offset + body_bytes;
        Ok(Some(Record { offset, body_offset, magic: header.magic, body }))
    }

    /// Looks for a whole record behind the damaged one that reading stopped at.
    pub fn record_behind(&mut self) -> io::Result<Found> {
        const START: &[u8] = b"OVSDB ";
        // An ordinary file is hashed once over at most.
        let mut budget = self.size.saturating_mul(4).saturating_add(1 << 20);
        let mut at = self.offset + 1;
        while at < self.size {
            let window = self.window.get(self.file, at, CHUNK_BYTES as u64, self.size)?;
            let Some(found) = window.windows(START.len()).position(|w| w == START) else {
                // A start may lie across the end of the window.
                at += (window.len().saturating_sub(START.len() - 1)).max(1) as u64;
                continue;
            };
            at += found as u64;
            let start = self.window.get(self.file, at, HEADER_BYTES_MAX as u64, self.size)?;
            let line = start.iter().position(|&c| c == b'\n');
            if let Some((header, line)) = line.and_then(|n| Some((Header::parse(&start[..n])?, n))) {
                let body_offset = at + line as u64 + 1;
                if header.body_bytes <= self.size - body_offset {
                    let Some(rest) = budget.checked_sub(header.body_bytes) else {
                        return Ok(Found::Confusion(at));
                    };
                    budget = rest;
                    if self.hash(body_offset, header.body_bytes)? == Some(header.hash) {
                        return Ok(Found::Record(at));
                    }
                }
            }
            at += START.len() as u64;
        }
        Ok(Found::Nothing)
    }

    /// Hashes a piece of the file without keeping it. `None` where the file ends before.
    fn hash(&self, mut offset: u64, mut bytes: u64) -> io::Result<Option<Hash>> {
        let mut sha1 = Sha1::new();
        let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(bytes).unwrap_or(CHUNK_BYTES))];
        while bytes > 0 {
            let want = buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
            let n = read_some(self.file, offset, &mut buffer[..want])?;
            if n == 0 {
                return Ok(None);
            }
            sha1.update(&buffer[..n]);
            offset += n as u64;
            bytes -= n as u64;
        }
        Ok(Some(Hash::from_digest(sha1)))
    }
}

/// The part of a line that the stock programs quote: up to the end of the second word if the first one is
/// right.
fn understood(start: &[u8]) -> String {
    let line = start.split(|&c| c == b'\n').next().unwrap_or(&[]);
    let mut line = String::from_utf8_lossy(line).into_owned();
    if let Some(rest) = line.strip_prefix("OVSDB ")
        && let Some(blank) = rest.find(' ')
    {
        line.truncate("OVSDB ".len() + blank);
    }
    line
}

/// A piece of the file, as long as what was asked for, or [`CHUNK_BYTES`].
#[derive(Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// `bytes` bytes at `offset`, fewer at the end of the file. Where the file is as long as `size` says, no
    /// memory is taken for bytes that it does not have.
    fn get(&mut self, file: &dyn ReadAt, offset: u64, bytes: u64, size: u64) -> io::Result<&[u8]> {
        let too_long = |_| io::Error::new(io::ErrorKind::OutOfMemory, "a record larger than the memory");
        let bytes = usize::try_from(bytes.min(size.saturating_sub(offset))).map_err(too_long)?;
        let skip = offset.checked_sub(self.offset).and_then(|n| usize::try_from(n).ok());
        match skip.filter(|&skip| skip <= self.bytes.len()) {
            Some(skip) if self.bytes.len() - skip >= bytes => return Ok(&self.bytes[skip..skip + bytes]),
            Some(skip) => drop(self.bytes.drain(..skip)),
            None => self.bytes.clear(),
        }
        self.offset = offset;
        let mut have = self.bytes.len();
        self.bytes.resize(bytes.max(CHUNK_BYTES), 0);
        while have < bytes {
            match read_some(file, offset + have as u64, &mut self.bytes[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) => {
                    self.bytes.truncate(have);
                    return Err(error);
                }
            }
        }
        self.bytes.truncate(have);
        Ok(&self.bytes[..bytes.min(have)])
    }
}

/// Reads what there is, past interruptions by signals.
pub(super) fn read_some(file: &dyn ReadAt, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read_at(offset, buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::record;
    use super::*;

    fn bodies(n: usize) -> Vec<Vec<u8>> {
        (0..n)
            .map(|i| format!("{{\"n\":{i},\"pad\":\"{}\"}}\n", "x".repeat(i * i * 97)).into_bytes())
            .collect()
    }

    fn log(bodies: &[Vec<u8>]) -> Vec<u8> {
        bodies.iter().flat_map(|body| record(Magic::Standalone, body)).collect()
    }

    /// Hands out a byte or a few at a time.
    struct Dribble<'a>(&'a [u8]);

    impl ReadAt for Dribble<'_> {
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(1 + offset as usize % 7);
            self.0.read_at(offset, &mut buffer[..n])
        }

        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
    }

    /// Offsets and bodies.
    type Bodies = Vec<(u64, Vec<u8>)>;

    fn read(file: &dyn ReadAt) -> (Bodies, Option<Damage>, Found) {
        let mut reader = Reader::new(file).unwrap();
        let mut records = Vec::new();
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push((record.offset, record.body.to_vec())),
                Ok(None) => return (records, None, Found::Nothing),
                Err(ReadError::Damaged(damage)) => {
                    assert_eq!(damage.offset, reader.offset());
                    return (records, Some(damage), reader.record_behind().unwrap());
                }
                Err(ReadError::Io { error, .. }) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn records_are_read_however_the_bytes_come() {
        let bodies = bodies(60);
        let bytes = log(&bodies);
        assert!(bytes.len() > 4 * CHUNK_BYTES, "{}", bytes.len());
        let (records, damage, _) = read(&&bytes[..]);
        assert_eq!(damage, None);
        assert_eq!(records.iter().map(|r| &r.1).collect::<Vec<_>>(), bodies.iter().collect::<Vec<_>>());
        for (offset, body) in &records {
            assert!(bytes[*offset as usize..].starts_with(&record(Magic::Standalone, body)));
        }
        let short = &bytes[..30_000];
        assert_eq!(read(&Dribble(short)), read(&short));
    }

    #[test]
    fn a_file_cut_anywhere_is_torn_at_the_record_it_was_cut_in() {
        let bodies = bodies(4);
        let bytes = log(&bodies);
        let mut ends = vec![0];
        for body in &bodies {
            ends.push(ends[ends.len() - 1] + record(Magic::Standalone, body).len());
        }
        for cut in 0..=bytes.len() {
            let (records, damage, behind) = read(&&bytes[..cut]);
            let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
            assert_eq!(records.len(), whole, "cut at {cut}");
            assert_eq!(damage.map(|d| d.offset), (!ends.contains(&cut)).then_some(ends[whole] as u64));
            assert_eq!(behind, Found::Nothing);
        }
    }

    #[test]
    fn any_changed_byte_is_found_and_what_is_behind_it_too() {
        let bodies = bodies(4);
        let bytes = log(&bodies);
        let (good, ..) = read(&&bytes[..]);
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            let (records, damage, behind) = read(&&bytes[..]);
            let hit = good.iter().rposition(|(offset, _)| *offset <= at as u64).unwrap();
            assert_eq!(records, good[..hit], "changed at {at}");
            assert_eq!(damage.unwrap().offset, good[hit].0, "changed at {at}");
            let next = good.get(hit + 1).map_or(Found::Nothing, |(offset, _)| Found::Record(*offset));
            assert_eq!(behind, next, "changed at {at}");
        }
    }

    #[test]
    fn a_record_behind_is_found_across_the_ends_of_windows() {
        let last = record(Magic::Standalone, b"{}\n");
        for lead in CHUNK_BYTES - 8..CHUNK_BYTES + 2 {
            let mut bytes = vec![b'O'; lead];
            bytes.extend_from_slice(&last);
            assert_eq!(read(&&bytes[..]).2, Found::Record(lead as u64));
        }
    }

    #[test]
    fn a_file_full_of_headers_is_refused_in_bounded_time() {
        let header = format!("OVSDB JSON 1000000 {}\n", "0".repeat(40));
        let bytes = header.repeat(40_000).into_bytes();
        assert!(matches!(read(&&bytes[..]).2, Found::Confusion(_)));
    }

    #[test]
    fn damage_is_told_in_the_words_of_the_stock_tool() {
        let text = |bytes: &[u8]| read(&bytes).1.unwrap().to_string();
        let good = record(Magic::Standalone, b"{}\n");
        assert_eq!(
            text(&good[..good.len() - 1]),
            "error reading 3 bytes starting at offset 54 (End of file)"
        );
        assert_eq!(text(b"OVSDB JSOX 67 abc\n"), "parse error at offset 0 in header line \"OVSDB JSOX\"");
        assert_eq!(text(b"garbage in\nsecond"), "parse error at offset 0 in header line \"garbage in\"");
        let mut bad = good.clone();
        bad[55] = b']';
        assert_eq!(
            text(&bad),
            "3 bytes starting at offset 54 have SHA-1 hash 74ff5e607fd76ac27f35ca866b2ea80398c2df36 but should \
             have hash 5f36b2ea290645ee34d943220a14b54ee5ea5be5"
        );
    }
}
