//! What the log requires of a file system, as traits: the daemon implements them with real files, tests with
//! faulty ones.
//!
//! The calls are those of a POSIX file, because the guarantees are: a write may fail half way; written data
//! survives the process but not a power cut; only a successful sync makes it durable, of the file and, for a
//! new name, of the directory too.

use std::io;
use std::sync::Arc;

/// Bytes that can be read at any place.
pub trait ReadAt {
    /// Reads up to `buffer.len()` bytes at `offset` (in bytes from the start), at least one unless the end is
    /// there.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Bytes in all.
    fn size(&self) -> io::Result<u64>;
}

/// A file that a log is written to. Its methods may be called from several threads at once; the log never
/// writes at one place from two.
pub trait LogFile: ReadAt + Send + Sync {
    /// Writes a first part of `bytes` at `offset`, which is the end; says how many.
    ///
    /// # Errors
    /// Those of the system. Part of the bytes may have been written nevertheless.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Returns when the file's bytes and its size are on stable storage.
    ///
    /// # Errors
    /// Those of the system. After an error nothing is known about what has been written since the last
    /// success, and a later success says nothing about it either (Linux forgets that those pages were dirty).
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file off at `size` bytes.
    fn truncate(&self, size: u64) -> io::Result<()>;
}

/// The place of one database's file: opens it, and replaces it by another as a whole.
pub trait LogDirectory: Send + Sync {
    /// Opens the file as it is.
    fn open(&self) -> io::Result<Arc<dyn LogFile>>;

    /// Creates an empty file in the same directory, under a unique name.
    fn create_temporary(&self) -> io::Result<Box<dyn Temporary>>;

    /// Returns when replacements of the file are on stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// A file that will replace the database's. If it is dropped before, it is removed.
pub trait Temporary: Send {
    /// The file.
    fn file(&self) -> &Arc<dyn LogFile>;

    /// Gives it the database's name. Opening that name yields either the complete old file or the complete
    /// new one, whatever happens to the process; which one after a power cut is undetermined until
    /// [`LogDirectory::sync`].
    fn replace(self: Box<Self>) -> io::Result<()>;
}

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}
