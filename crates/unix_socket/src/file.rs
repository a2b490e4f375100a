//! Files told apart by device and number, so that one with the same name is not mistaken for another.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and number of a file.
pub type FileId = (u64, u64);

/// The file that has this metadata.
pub fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Removes a file, which may be gone already or be another one by now.
pub fn remove(path: &Path, id: FileId) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if file_id(&found) == id => match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
