//! A system for a virtual machine: a kernel, and a file system in memory with busybox, some modules of that
//! kernel and some programs of this machine. It boots in a second or two, and needs no disk.

use cpio::newc::{Builder, trailer};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The contents of the file system.
pub struct Contents<'a> {
    /// A directory with `boot/vmlinuz-*` and `lib/modules/*`, as Debian's kernel packages have them.
    pub kernel: &'a Path,
    /// Modules, by name. Their dependencies are included, and `/modules/order` lists all files in loading
    /// order.
    pub modules: &'a [&'a str],
    /// Programs, by path. Their shared libraries come along.
    pub programs: &'a [&'a str],
    /// The first program's text, a script for `/bin/busybox sh`.
    pub init: &'a str,
}

/// The paths of kernel and file system.
#[derive(Clone, Debug)]
pub struct Boot {
    /// For QEMU's `-kernel`.
    pub kernel: PathBuf,
    /// For QEMU's `-initrd`.
    pub initramfs: PathBuf,
}

impl Contents<'_> {
    /// Writes the file system. A concurrent reader of `initramfs` gets either the old one or the new one,
    /// complete.
    pub fn write(&self, initramfs: &Path) -> Result<Boot, String> {
        let kernel = only(&self.kernel.join("boot"), "vmlinuz")?;
        let new = initramfs.with_extension(format!("new-{}", std::process::id()));
        let said = |e: io::Error| format!("{}: {e}", new.display());
        let archive = self.archive()?;
        fs::write(&new, archive.finish().map_err(said)?).map_err(said)?;
        fs::rename(&new, initramfs).map_err(said)?;
        Ok(Boot { kernel, initramfs: initramfs.into() })
    }

    fn archive(&self) -> Result<Archive, String> {
        let modules = only(&self.kernel.join("lib/modules"), "")?;
        let mut archive = Archive::default();
        let mut order: Vec<PathBuf> = Vec::new();
        for name in self.modules {
            load_order(&modules, name, &mut order)?;
        }
        let mut names = Vec::new();
        for path in order {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            archive.add(&format!("modules/{name}"), &read(&path)?)?;
            names.push(name);
        }
        archive.add("modules/order", names.join("\n").as_bytes())?;
        archive.add("init", self.init.as_bytes())?;
        archive.add("bin/busybox", &read(Path::new("/bin/busybox"))?)?;
        for dir in ["proc", "sys", "dev", "tmp"] {
            archive.add_directory(dir)?;
        }
        let mut files = BTreeSet::new();
        for program in self.programs {
            files.extend(with_libraries(program)?);
        }
        for path in files {
            archive.add(path.trim_start_matches('/'), &read(Path::new(&path))?)?;
        }
        Ok(archive)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let said = |e: io::Error| format!("{}: {e}", dir.display());
    fs::read_dir(dir).map_err(said)?.map(|entry| entry.map(|e| e.path()).map_err(said)).collect()
}

/// The entry of a directory with this prefix.
fn only(dir: &Path, prefix: &str) -> Result<PathBuf, String> {
    let begins = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix));
    let found = entries(dir)?.into_iter().find(begins);
    found.ok_or_else(|| format!("{} holds no {prefix}*", dir.display()))
}

/// Puts a module into the list, behind those that it needs.
pub fn load_order(modules: &Path, name: &str, order: &mut Vec<PathBuf>) -> Result<(), String> {
    let file = format!("{name}.ko");
    let path = find(modules, &file)?.ok_or_else(|| format!("{} has no module {name}", modules.display()))?;
    if order.contains(&path) {
        return Ok(());
    }
    let bytes = read(&path)?;
    let key = b"\0depends=";
    let at = bytes.windows(key.len()).position(|w| w == key);
    let at = at.ok_or_else(|| format!("{} does not say what it needs", path.display()))?;
    let needs = bytes[at + key.len()..].split(|&b| b == 0).next().unwrap_or_default();
    for name in String::from_utf8_lossy(needs).split(',').filter(|name| !name.is_empty()) {
        load_order(modules, &name.replace('-', "_"), order)?;
    }
    order.push(path);
    Ok(())
}

fn find(dir: &Path, name: &str) -> Result<Option<PathBuf>, String> {
    for path in entries(dir)? {
        // `build` and `source` are links that lead out of the directory.
        if path.is_dir() && !path.is_symlink() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        // Within a module's file name, `-` and `_` are the same.
        } else if path.file_name().is_some_and(|n| n.to_string_lossy().replace('-', "_") == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// A program, its loader and its shared libraries.
fn with_libraries(program: &str) -> Result<Vec<String>, String> {
    let text = crate::process::run(Command::new("ldd").arg(program))?;
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned);
    Ok(paths.chain([program.to_owned()]).collect())
}

/// An archive as the kernel unpacks it.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    count: u32,
}

impl Archive {
    /// Adds a file, and the directories on the way to it.
    fn add(&mut self, path: &str, contents: &[u8]) -> Result<(), String> {
        for (at, _) in path.match_indices('/') {
            self.add_directory(&path[..at])?;
        }
        self.entry(path, 0o100_755, contents)
    }

    fn add_directory(&mut self, path: &str) -> Result<(), String> {
        if self.directories.insert(path.into()) { self.entry(path, 0o040_755, &[]) } else { Ok(()) }
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) -> Result<(), String> {
        self.count += 1;
        let len = u32::try_from(contents.len()).map_err(|_| format!("{path} is too large"))?;
        let builder = Builder::new(path).ino(self.count).mode(mode).nlink(1);
        let mut writer = builder.write(&mut self.bytes, len);
        io::Write::write_all(&mut writer, contents).map_err(|e| format!("{path}: {e}"))?;
        writer.finish().map_err(|e| format!("{path}: {e}"))?;
        Ok(())
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        trailer(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_what_they_need_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let drivers = dir.path().join("drivers/net");
        fs::create_dir_all(&drivers).unwrap();
        let module = |name: &str, needs: &str| {
            fs::write(drivers.join(name), format!("\0license=GPL\0depends={needs}\0")).unwrap();
        };
        module("virtio-net.ko", "net_failover,virtio");
        module("net_failover.ko", "failover");
        module("failover.ko", "");
        module("virtio.ko", "");
        let mut order = Vec::new();
        for name in ["virtio", "virtio_net"] {
            load_order(dir.path(), name, &mut order).unwrap();
        }
        let names: Vec<_> = order.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["virtio.ko", "failover.ko", "net_failover.ko", "virtio-net.ko"]);
        let why = load_order(dir.path(), "e1000", &mut order).unwrap_err();
        assert!(why.contains("has no module e1000"), "{why}");
    }

    #[test]
    fn an_archive_has_each_directory_once_and_before_its_files() {
        let mut archive = Archive::default();
        archive.add("bin/busybox", b"first").unwrap();
        archive.add("bin/ip", b"second!").unwrap();
        let bytes = archive.finish().unwrap();
        let mut names = Vec::new();
        let mut reader = io::Cursor::new(bytes);
        loop {
            let entry = cpio::newc::Reader::new(reader).unwrap();
            if entry.entry().is_trailer() {
                break;
            }
            names.push((entry.entry().name().to_string(), entry.entry().file_size()));
            reader = entry.finish().unwrap();
        }
        let expected = [("bin", 0), ("bin/busybox", 5), ("bin/ip", 7)];
        assert_eq!(names, expected.map(|(name, size)| (name.to_string(), size)));
    }
}
