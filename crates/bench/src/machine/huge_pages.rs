//! Huge pages: Open vSwitch with DPDK needs them, so everything compared with it gets them too.
//!
//! The kernel has one number of them for everybody. Who needs some is in a record, with the number before it
//! was raised; the last one to go restores that. A process that was killed needs none once its run has ended:
//! the next one to look at the record finds out.

use crate::machine::lease::{self, started};
use crate::process::run;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The peer's packet memory: 262,144 buffers and DPDK's other needs.
const HUGE_PAGES: usize = 1200;

/// The kernel's number of pages of 2 MB, whichever size it calls the usual one. `free` in place of `nr`: how
/// many of them nobody has.
const NUMBER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// How many of them are there only for as long as they are used, beside the number that was set last.
const SURPLUS: &str = "surplus_hugepages";
/// The record, in a directory that only root may write in.
const RECORD: &str = "/run/crosspoint-bench-huge-pages";
/// Where they are mounted if they are not.
const MOUNT: &str = "/dev/hugepages";

/// Huge pages that are needed until this is dropped.
pub struct HugePages {
    kernel: Kernel,
}

/// The sizes of explicit huge pages that a process has mapped: `2 MB`, or `none`. If this cannot be read, it
/// is unknown, with the reason.
pub fn taken_by(pid: u32) -> String {
    let path = format!("/proc/{pid}/smaps");
    match std::fs::read_to_string(&path) {
        Ok(text) => sizes_in(&text),
        Err(e) => format!("unknown ({path}: {e})"),
    }
}

fn sizes_in(smaps: &str) -> String {
    let sizes = smaps.lines().filter_map(|l| {
        let kb: u64 = l.strip_prefix("KernelPageSize:")?.split_whitespace().next()?.parse().ok()?;
        (kb > 64).then_some(kb)
    });
    let sizes: std::collections::BTreeSet<u64> = sizes.collect();
    let text = |kb: &u64| if *kb < 1 << 20 { format!("{} MB", kb >> 10) } else { format!("{} GB", kb >> 20) };
    let all: Vec<String> = sizes.iter().map(text).collect();
    if all.is_empty() { "none".into() } else { all.join(" and ") }
}

/// Huge pages of 2 MB, of whoever has them; 0 where the kernel has no such pages.
pub fn number() -> u64 {
    number_in(NUMBER).unwrap_or(0)
}

/// Whether this many huge pages of 2 MB are free.
pub fn are_free(pages: usize) -> bool {
    number_in(FREE).is_some_and(|free| free >= pages as u64)
}

fn number_in(file: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

impl HugePages {
    /// Ensures that there are enough for Open vSwitch with DPDK, and that they are mounted.
    pub fn provide() -> Result<HugePages, String> {
        HugePages::at_least(HUGE_PAGES)
    }

    /// The same for a given number. If the kernel has no room for them, nothing is changed.
    pub fn at_least(pages: usize) -> Result<HugePages, String> {
        let kernel = Kernel { number: NUMBER.into(), record: RECORD.into(), mount: Some(MOUNT) };
        kernel.take(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        self.kernel.give_back(Some(std::process::id()));
    }
}

/// Restores the number if those who raised it were killed. Returns a line about what was done.
pub fn sweep() -> Option<String> {
    let kernel = Kernel { number: NUMBER.into(), record: RECORD.into(), mount: Some(MOUNT) };
    if Path::new(RECORD).exists() { kernel.give_back(None) } else { None }
}

/// This process, as the record names it, with its run.
fn holder() -> String {
    let pid = std::process::id();
    let run = lease::current().map(|dir| format!(" {}", dir.display())).unwrap_or_default();
    format!("holder {pid} {}{run}", started(pid).unwrap_or_default())
}

/// Process, its start, and the directory of its run.
fn parts(holder: &str) -> Option<(u32, u64, Option<&str>)> {
    let mut words = holder.splitn(4, ' ').skip(1);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()))
}

/// Whether a holder lives, or its run does, which may be in another container.
fn is_alive(holder: &str) -> bool {
    parts(holder).is_some_and(|(pid, since, run)| {
        started(pid) == Some(since) || run.is_some_and(|dir| lease::is_held(Path::new(dir)))
    })
}

/// The files by which the number is set and recorded.
#[derive(Clone)]
struct Kernel {
    number: String,
    record: String,
    mount: Option<&'static str>,
}

impl Kernel {
    /// The number that was set last: what is still used of a larger one goes by itself, and must not stay
    /// because the number is restored to it.
    fn pages(&self) -> Result<usize, String> {
        let text = fs::read_to_string(&self.number).map_err(|e| format!("{}: {e}", self.number))?;
        let all: usize = text.trim().parse().map_err(|e| format!("{}: {e}", self.number))?;
        let surplus = Path::new(&self.number).with_file_name(SURPLUS);
        Ok(all.saturating_sub(number_in(&surplus.display().to_string()).unwrap_or(0) as usize))
    }

    fn set_pages(&self, pages: usize) -> Result<(), String> {
        fs::write(&self.number, pages.to_string()).map_err(|e| format!("{}: {e}", self.number))
    }

    fn take(self, pages: usize) -> Result<HugePages, String> {
        let mut record =
            Record::open(&self.record).map_err(|e| format!("huge pages are root's to set: {e}"))?;
        self.restore_if_last(&mut record)?;
        let before = self.pages()?;
        // Recorded before it is done.
        record.holders.push(holder());
        if before < pages {
            record.before.get_or_insert(before);
        }
        let is_unmounted = || {
            let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
            !mounts.contains(" hugetlbfs ")
        };
        let mount = self.mount.filter(|_| is_unmounted());
        record.is_mounted |= mount.is_some();
        record.save()?;
        let set = || self.set_pages(pages).and_then(|()| self.pages());
        let got = if before < pages { set().map(Some) } else { Ok(None) };
        if let Ok(Some(got)) = got {
            record.set = Some(got);
            record.save()?;
        }
        drop(record);
        // From here on, dropping it undoes what was done.
        let taken = HugePages { kernel: self };
        if let Some(got) = got?.filter(|got| *got < pages) {
            return Err(format!("{pages} huge pages of 2 MB are needed, the kernel gave {got}"));
        }
        if let Some(mount) = mount {
            let _ = fs::create_dir_all(mount);
            run(Command::new("mount").args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none", mount]))?;
        }
        Ok(taken)
    }

    /// For a process, which needs them no longer.
    fn give_back(&self, pid: Option<u32>) -> Option<String> {
        let mut record = Record::open(&self.record).ok()?;
        let own = pid.map(|pid| (pid, started(pid).unwrap_or_default()));
        let of = |holder: &String| parts(holder).map(|(pid, since, _)| (pid, since));
        if let Some(at) = record.holders.iter().position(|one| own.is_some() && of(one) == own) {
            record.holders.swap_remove(at);
        }
        let restored = self.restore_if_last(&mut record).ok().flatten();
        let _ = record.save();
        restored.map(|pages| format!("huge pages, {pages} again"))
    }

    /// Restores the number if no one who lives needs more. Returns it.
    fn restore_if_last(&self, record: &mut Record) -> Result<Option<usize>, String> {
        record.holders.retain(|holder| is_alive(holder));
        if !record.holders.is_empty() {
            return Ok(None);
        }
        if let Some(mount) = self.mount.filter(|_| record.is_mounted) {
            let _ = run(Command::new("umount").arg(mount));
        }
        record.is_mounted = false;
        let (before, set) = (record.before.take(), record.set.take());
        // If it is another one by now, somebody else has set it.
        let is_ours = |set| self.pages().is_ok_and(|pages| pages == set);
        let before = before.filter(|_| set.is_none_or(is_ours));
        before.map(|before| self.set_pages(before)).transpose()?;
        Ok(before)
    }
}

/// The record, which nobody else reads or writes until this is dropped.
struct Record {
    file: File,
    path: String,
    /// The number before it was raised.
    before: Option<usize>,
    /// What it was raised to.
    set: Option<usize>,
    is_mounted: bool,
    /// `holder PID SINCE`, one for each need.
    holders: Vec<String>,
}

impl Record {
    fn open(path: &str) -> Result<Record, String> {
        let error = |e: std::io::Error| format!("{path}: {e}");
        loop {
            let mut options = File::options();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(path).map_err(error)?;
            file.lock().map_err(error)?;
            // Its last user may have removed it meanwhile.
            let is_there =
                fs::metadata(path).is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino()));
            if !is_there {
                continue;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(error)?;
            return Ok(Record {
                file,
                path: path.into(),
                before: text.lines().find_map(|line| line.strip_prefix("before ")?.parse().ok()),
                set: text.lines().find_map(|line| line.strip_prefix("set ")?.parse().ok()),
                is_mounted: text.lines().any(|line| line == "mounted"),
                holders: text.lines().filter(|l| l.starts_with("holder ")).map(str::to_string).collect(),
            });
        }
    }

    fn save(&mut self) -> Result<(), String> {
        let mut text: String = self.holders.iter().map(|holder| format!("{holder}\n")).collect();
        text.extend(self.before.map(|before| format!("before {before}\n")));
        text.extend(self.set.map(|set| format!("set {set}\n")));
        text.extend(self.is_mounted.then_some("mounted\n"));
        let mut write = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            if text.is_empty() {
                return fs::remove_file(&self.path);
            }
            self.file.write_all(text.as_bytes())
        };
        write().map_err(|e| format!("{}: {e}", self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::TempDir;

    #[test]
    fn the_last_one_who_needs_pages_restores_the_number_before_the_first() {
        let dir = TempDir::new("huge-pages").unwrap();
        let file = |name: &str| dir.0.join(name).display().to_string();
        let kernel = Kernel { number: file("number"), record: file("record"), mount: None };
        let number = || fs::read_to_string(dir.0.join("number")).unwrap();
        fs::write(dir.0.join("number"), "8").unwrap();
        let first = kernel.clone().take(100).unwrap();
        let second = kernel.clone().take(50).unwrap();
        drop(first);
        assert_eq!(number(), "100");
        drop(second);
        assert_eq!((number().as_str(), dir.0.join("record").exists()), ("8", false));
        // One that has enough changes nothing, also if others have changed the number meanwhile.
        let modest = kernel.clone().take(4).unwrap();
        fs::write(dir.0.join("number"), "16").unwrap();
        drop(modest);
        assert_eq!(number(), "16");
        // One that was killed needs none.
        fs::write(dir.0.join("record"), format!("holder {} 1\nbefore 8\n", std::process::id())).unwrap();
        assert_eq!(kernel.give_back(None).as_deref(), Some("huge pages, 8 again"));
        assert_eq!((number().as_str(), dir.0.join("record").exists()), ("8", false));
    }

    #[test]
    fn pages_that_are_there_only_while_they_are_used_are_not_kept() {
        let dir = TempDir::new("surplus-pages").unwrap();
        let file = |name: &str| dir.0.join(name).display().to_string();
        let kernel = Kernel { number: file("number"), record: file("record"), mount: None };
        fs::write(dir.0.join("number"), "32").unwrap();
        fs::write(dir.0.join(SURPLUS), "32").unwrap();
        let taken = kernel.take(100).err().unwrap();
        assert_eq!(taken, "100 huge pages of 2 MB are needed, the kernel gave 68");
        assert_eq!(fs::read_to_string(dir.0.join("number")).unwrap(), "0");
    }

    #[test]
    fn a_number_that_somebody_else_has_set_meanwhile_stays() {
        let dir = TempDir::new("others-pages").unwrap();
        let file = |name: &str| dir.0.join(name).display().to_string();
        let kernel = Kernel { number: file("number"), record: file("record"), mount: None };
        let number = || fs::read_to_string(dir.0.join("number")).unwrap();
        fs::write(dir.0.join("number"), "8").unwrap();
        let taken = kernel.clone().take(100).unwrap();
        let more = kernel.take(200).unwrap();
        drop(taken);
        fs::write(dir.0.join("number"), "300").unwrap();
        drop(more);
        assert_eq!((number().as_str(), dir.0.join("record").exists()), ("300", false));
    }

    #[test]
    fn a_holder_whose_process_cannot_be_seen_lives_while_its_run_holds_its_directory() {
        let dir = TempDir::new("held").unwrap();
        let holder = format!("holder {} 1 {}", std::process::id(), dir.0.display());
        assert!(!is_alive(&holder) && is_alive(&super::holder()));
        let held = File::open(&dir.0).unwrap();
        held.lock().unwrap();
        assert!(is_alive(&holder));
        drop(held);
        assert!(!is_alive(&holder));
    }

    #[test]
    fn sizes_of_pages_are_those_that_a_process_has_mapped() {
        let area =
            |kb: u32| format!("7f00-7f01 rw-s 0 00:0f 1 /x\nSize: {kb} kB\nKernelPageSize: {kb:8} kB\n");
        assert_eq!(sizes_in(&area(4)), "none");
        assert_eq!(sizes_in(&[area(4), area(2048), area(2048)].concat()), "2 MB");
        assert_eq!(sizes_in(&[area(1 << 20), area(2048)].concat()), "2 MB and 1 GB");
        assert_eq!(taken_by(std::process::id()), "none");
        assert!(taken_by(0).starts_with("unknown (/proc/0/smaps: "));
    }
}
