//! The files that a port's options may name.
//!
//! Options come from clients of the database, who are not root, while the switch may be. So a file is only
//! read or written below directories that the administrator named at start-up; the path from there follows no
//! symbolic link and never goes up; and the file must be a regular one: a FIFO could block the control
//! thread, and a device might never end. Nothing here blocks, and no file is changed before it is known to be
//! regular.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a file to be read: it is held in memory.
pub const READ_BYTES_MAX: u64 = 1 << 30;

/// How everything below the directories is opened.
const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Directories below which files may be named.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FileDirs(Arc<[Dir]>);

#[derive(PartialEq, Eq, Debug)]
struct Dir {
    /// The given path, made absolute, by which clients name it.
    given: PathBuf,
    /// Without symbolic links.
    real: PathBuf,
}

impl FileDirs {
    /// These directories as they are now; relative ones are below the process's working directory. The error
    /// names the one that is not a directory.
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>) -> Result<FileDirs, String> {
        let dir = |path: PathBuf| {
            let is = |why: &dyn std::fmt::Display| format!("{}: {}", path.display(), base::os_text(&why));
            let real = path.canonicalize().map_err(|e| is(&e))?;
            if !real.is_dir() {
                return Err(is(&"is not a directory"));
            }
            Ok(Dir { given: std::path::absolute(&path).map_err(|e| is(&e))?, real })
        };
        Ok(FileDirs(dirs.into_iter().map(dir).collect::<Result<Vec<_>, String>>()?.into()))
    }

    /// A regular file to read, and its length.
    pub(crate) fn read(&self, path: &str) -> Result<(File, usize), String> {
        let file = self.open(path, OFlags::RDONLY, Mode::empty())?;
        let len = file.metadata().map_err(|e| base::os_text(&e))?.len();
        if len > READ_BYTES_MAX {
            return Err(format!(
                "is longer than {} MB, and it would have to be held in memory",
                READ_BYTES_MAX >> 20
            ));
        }
        Ok((file, len as usize))
    }

    /// The same. Until the file is dropped, no port may write it alone.
    pub(crate) fn hold(&self, path: &str) -> Result<(File, usize), String> {
        let (file, len) = self.read(path)?;
        lock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok((file, len))
    }

    /// A regular file to write, empty.
    pub(crate) fn create(&self, path: &str) -> Result<File, String> {
        let file = self.open_to_append(path)?;
        file.set_len(0).map_err(|e| base::os_text(&e))?;
        Ok(file)
    }

    /// The same, for one port alone: not while another holds the file.
    pub(crate) fn create_alone(&self, path: &str) -> Result<File, String> {
        let file = self.open_to_append(path)?;
        lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0).map_err(|e| base::os_text(&e))?;
        Ok(file)
    }

    /// Two that write the same file must not overwrite each other's records.
    fn open_to_append(&self, path: &str) -> Result<File, String> {
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        self.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND, mode)
    }

    /// The path of a socket named by an option, which need not exist.
    pub(crate) fn path(&self, path: &str) -> Result<PathBuf, String> {
        let (at, name) = self.enter(path)?;
        match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_link(&stat) => return Err("is a symbolic link".into()),
            Ok(_) | Err(rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(system(e)),
        }
        let (dir, below) = self.locate(Path::new(path))?;
        Ok(below.into_iter().fold(dir.to_path_buf(), |at, name| at.join(name)))
    }

    /// The directory that a file is in, and the file's name.
    fn enter<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a Path), String> {
        let (dir, below) = self.locate(Path::new(path))?;
        let path_only = OFlags::PATH | OFlags::DIRECTORY | SAFE;
        let mut at: OwnedFd = rustix::fs::open(dir, path_only, Mode::empty()).map_err(system)?;
        let (name, between) = below.split_last().expect("`locate` finds a name");
        for name in between {
            at = rustix::fs::openat(&at, *name, path_only, Mode::empty()).map_err(system)?;
        }
        Ok((at, name))
    }

    fn open(&self, path: &str, flags: OFlags, mode: Mode) -> Result<File, String> {
        let (at, name) = self.enter(path)?;
        // Before it is opened: opening a device may do something already.
        match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => check_regular(&stat)?,
            Err(rustix::io::Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
            Err(e) => return Err(system(e)),
        }
        let file = rustix::fs::openat(&at, name, flags | SAFE, mode).map_err(system)?;
        // And after: it may have been exchanged.
        check_regular(&rustix::fs::fstat(&file).map_err(system)?)?;
        Ok(file.into())
    }

    /// The directory that `path` is below, and the names from there on.
    fn locate<'a>(&self, path: &'a Path) -> Result<(&Path, Vec<&'a Path>), String> {
        if self.0.is_empty() {
            return Err(
                "ports may name no files: start the switch with --pcap-dir=DIR to allow those below DIR"
                    .into(),
            );
        }
        let names = |rest: &'a Path| -> Option<Vec<&'a Path>> {
            let plain = |c: Component<'a>| match c {
                Component::Normal(name) => Some(Path::new(name)),
                _ => None,
            };
            rest.components().map(plain).collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
        };
        let below = |dir: &'_ Dir| {
            let rest = if path.is_absolute() {
                path.strip_prefix(&dir.given).or_else(|_| path.strip_prefix(&dir.real)).ok()?
            } else {
                path
            };
            names(rest)
        };
        let found = self.0.iter().find_map(|dir| Some((dir.real.as_path(), below(dir)?)));
        found.ok_or_else(|| {
            let dirs: Vec<String> = self.0.iter().map(|dir| dir.given.display().to_string()).collect();
            format!("must be below a directory that --pcap-dir names ({}), without \"..\"", dirs.join(", "))
        })
    }
}

fn lock(file: &File, operation: FlockOperation) -> Result<(), String> {
    rustix::fs::flock(file, operation).map_err(|e| match e {
        rustix::io::Errno::WOULDBLOCK => "is read or written by a port already".into(),
        e => system(e),
    })
}

fn system(e: rustix::io::Errno) -> String {
    base::os_text(&std::io::Error::from(e))
}

fn is_link(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

fn check_regular(stat: &rustix::fs::Stat) -> Result<(), String> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    Err(format!("is {what}: only regular files are used"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn regular_files_below_the_directories_are_read_and_written_and_nothing_else_is() {
        let (temporary, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (dir, outside) = (temporary.path(), other.path());
        std::fs::create_dir(dir.join("sub")).unwrap();
        std::fs::write(dir.join("sub/file"), "inside").unwrap();
        std::fs::write(outside.join("secret"), "outside").unwrap();
        symlink(outside.join("secret"), dir.join("link")).unwrap();
        symlink(outside, dir.join("away")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        let name = |path: &str| dir.join(path).to_str().unwrap().to_string();
        let allowed = FileDirs::new([dir.into()]).unwrap();
        // The second name is relative to the first directory.
        for path in [&*name("sub/file"), "sub/./file"] {
            assert_eq!(std::io::read_to_string(allowed.read(path).unwrap().0).unwrap(), "inside", "{path}");
        }
        let refused = |path: &str| {
            let (read, written) = (allowed.read(path).unwrap_err(), allowed.create(path).err());
            assert_eq!(written, Some(read.clone()), "{path}");
            read
        };
        let secret = outside.join("secret");
        let secret = secret.to_str().unwrap();
        for path in
            [secret, "/etc/passwd", "/dev/zero", "/", "", ".", "sub/../../x", &name("../x"), &name("")]
        {
            let why = refused(path);
            assert!(why.contains("--pcap-dir") && why.contains(dir.to_str().unwrap()), "{path}: {why}");
        }
        for (path, why) in
            [("link", "a symbolic link"), ("fifo", "a FIFO"), ("socket", "a socket"), ("sub", "a directory")]
        {
            assert_eq!(refused(path), format!("is {why}: only regular files are used"));
        }
        assert!(refused("away/secret").contains("Not a directory"));
        assert!(allowed.path("away/socket").unwrap_err().contains("Not a directory"));
        assert_eq!(allowed.path("link").unwrap_err(), "is a symbolic link");
        for socket in ["socket", "sub/new"] {
            assert_eq!(allowed.path(socket).unwrap(), dir.join(socket));
        }
        assert!(refused("sub/file/x").contains("Not a directory"));
        assert!(refused("nowhere/x").contains("No such file"));
        assert_eq!(std::fs::read(secret).unwrap(), b"outside");
        assert!(
            FileDirs::default()
                .read(&name("sub/file"))
                .unwrap_err()
                .contains("start the switch with --pcap-dir")
        );
        // What is not there is made, and what is there replaced.
        drop(allowed.create("new").unwrap());
        drop(allowed.create("sub/file").unwrap());
        assert_eq!(std::fs::read(dir.join("new")).unwrap(), b"");
        assert_eq!(std::fs::read(dir.join("sub/file")).unwrap(), b"");
    }

    #[test]
    fn a_directory_may_be_named_by_a_link_and_must_be_there() {
        let temporary = tempfile::tempdir().unwrap();
        let (real, link) = (temporary.path().join("real"), temporary.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        let allowed = FileDirs::new([link.clone()]).unwrap();
        for dir in [&real, &link] {
            drop(allowed.create(dir.join("x").to_str().unwrap()).unwrap());
        }
        assert!(FileDirs::new([real.join("none")]).unwrap_err().contains("none: No such file"));
        assert!(FileDirs::new([real.join("x")]).unwrap_err().contains("x: is not a directory"));
    }

    #[test]
    fn a_file_that_does_not_fit_in_memory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 42).unwrap();
        let allowed = FileDirs::new([dir.path().into()]).unwrap();
        assert!(allowed.read("huge").unwrap_err().contains("is longer than 1024 MB"));
    }
}
