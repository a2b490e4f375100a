//! Appends records to a log so that a failure leaves no trace in it.
//!
//! A record is in the log when all of its bytes are; until then the log ends where it did before. If a write
//! fails half way, the partial record is cut off at once or, if even that fails, before the next record is
//! written. Either way the next record follows the last good one, and a process that is killed in between
//! leaves a torn tail, which is cut off when the file is opened.
//!
//! The partial data may contain complete records, and the system may have put them on the disk before they
//! were cut off: after a power cut, what was reported as failed would come back. So the cut is synced before
//! the failure is reported. If that fails, nothing done to this file helps for certain, and
//! [`Writer::may_come_back`] returns true from then on.

use super::file::LogFile;
use super::frame::{self, Magic};
use std::io;
use std::sync::Arc;

/// The end of a log.
pub struct Writer {
    file: Arc<dyn LogFile>,
    /// End of the last good record.
    size: u64,
    /// There may be bytes behind `size`.
    torn: bool,
    may_come_back: bool,
}

/// Where a record went, in bytes from the start of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte: the size of the log.
    pub end: u64,
}

impl Writer {
    /// Behind the first `size` bytes of `file`, which must be whole records. What is behind them (`torn`) is
    /// cut off before the first record is written.
    pub fn new(file: Arc<dyn LogFile>, size: u64, torn: bool) -> Writer {
        Writer { file, size, torn, may_come_back: false }
    }

    /// Bytes of good records.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn LogFile> {
        &self.file
    }

    /// A power cut may bring back records that were reported as not appended: they could not be cut off when
    /// their write failed, or the cut could not be synced.
    pub fn may_come_back(&self) -> bool {
        self.may_come_back
    }

    /// Appends a record. Once this returns, the record survives the process, but not yet a power cut.
    ///
    /// # Errors
    /// Those of the system; the log is unchanged, after a power cut too unless it [`may_come_back`]. Blocks
    /// for a sync then.
    ///
    /// [`may_come_back`]: Self::may_come_back
    pub fn append(&mut self, body: &[u8]) -> io::Result<Appended> {
        self.append_framed(&frame::record(Magic::Standalone, body))
    }

    /// Appends records that are framed already.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub fn append_framed(&mut self, records: &[u8]) -> io::Result<Appended> {
        self.mend()?;
        let start = self.size;
        if let Err(error) = write_all(&*self.file, start, records) {
            self.torn = true;
            // If the cut fails too, it is tried again before the next write.
            if self.mend().and_then(|()| self.file.sync()).is_err() {
                self.may_come_back = true;
            }
            return Err(error);
        }
        self.size += records.len() as u64;
        Ok(Appended { start, end: self.size })
    }

    /// Cuts off what is behind the last good record.
    ///
    /// # Errors
    /// Those of the system; nothing can be appended until it succeeds.
    pub fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.truncate(self.size)?;
            self.torn = false;
        }
        Ok(())
    }
}

/// Writes all of `bytes`, in as many pieces as the system wants.
pub(crate) fn write_all(file: &dyn LogFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                offset += n as u64;
                bytes = &bytes[n..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
