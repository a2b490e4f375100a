//! Statistics of the machine, for the column `statistics` of table Open_vSwitch
//! (`other_config:enable-statistics`).
//!
//! Not by a crate: `procfs` parses every field of these files, but we need only a line or two of each, as
//! text and in the database's own formats.
//!
//! Source of the formats: ovs-vswitchd.conf.db(5); of the numbers: proc(5), statvfs(3).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Reads statistics on a thread of its own. A file system may not answer for long, or ever (a network mount
/// whose server is gone): that holds up nobody.
#[derive(Default)]
pub struct Sampler {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_reading: AtomicBool,
    latest: Mutex<Vec<(String, String)>>,
}

impl Sampler {
    /// Starts a reading ([`read`]). `false`: the one before is not done yet, so none was started.
    pub fn start(&self, run_dir: PathBuf) -> std::io::Result<bool> {
        self.start_with(move || read(&run_dir))
    }

    fn start_with(
        &self,
        read: impl FnOnce() -> Vec<(String, String)> + Send + 'static,
    ) -> std::io::Result<bool> {
        if self.shared.is_reading.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let run = move || {
            let pairs = read();
            *shared.latest.lock().unwrap_or_else(PoisonError::into_inner) = pairs;
            shared.is_reading.store(false, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("statistics".into()).spawn(run);
        if thread.is_err() {
            self.shared.is_reading.store(false, Ordering::Release);
        }
        thread.map(|_| true)
    }

    /// What was read last; nothing before the first reading is done.
    pub fn latest(&self) -> Vec<(String, String)> {
        self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All statistics, by key. Daemons are processes with a pid file in `run_dir`. May wait for a file system
/// that does not answer.
pub fn read(run_dir: &Path) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    if let Ok(cpus) = std::thread::available_parallelism() {
        pairs.push(("cpu".into(), cpus.to_string()));
    }
    pairs.extend(load_average().map(|v| ("load_average".into(), v)));
    pairs.extend(memory().map(|v| ("memory".into(), v)));
    pairs.extend(processes(run_dir));
    pairs.extend(file_systems().map(|v| ("file_systems".into(), v)));
    pairs
}

/// Peak memory of this process, in KiB.
pub fn peak_resident_kb() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Over 1, 5 and 15 minutes.
fn load_average() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let numbers: Vec<&str> = text.split_whitespace().take(3).collect();
    (numbers.len() == 3).then(|| numbers.join(","))
}

/// In KiB: total, used, used for caches, swap in all, swap used.
fn memory() -> Option<String> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let of = |key: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let (total, free) = (of("MemTotal")?, of("MemFree")?);
    let cache = of("Buffers").unwrap_or(0) + of("Cached").unwrap_or(0);
    let (swap, swap_free) = (of("SwapTotal").unwrap_or(0), of("SwapFree").unwrap_or(0));
    Some(format!("{total},{},{cache},{swap},{}", total.saturating_sub(free), swap.saturating_sub(swap_free)))
}

/// The daemons that run.
fn processes(run_dir: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(run_dir).into_iter().flatten().flatten();
    let of_file = |path: std::path::PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".pid")?.to_string();
        let pid = crate::daemonize::pid_of_running(&path).ok()?;
        Some((format!("process_{name}"), process(pid)?))
    };
    entries.filter_map(|entry| of_file(entry.path())).collect()
}

/// Virtual memory and resident memory in KiB, CPU time in ms, restarts, and ms since start, twice.
fn process(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks; after it the fields are numbered from 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let page_kib = rustix::param::page_size() as u64 / 1024;
    let (virtual_kib, resident_kib) = (field(23)? / 1024, field(24)? * page_kib);
    let tick_ms = 1000 / rustix::param::clock_ticks_per_second().max(1);
    let cpu_ms = (field(14)? + field(15)?) * tick_ms;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let up_ms = (uptime.split_whitespace().next()?.parse::<f64>().ok()? * 1000.0) as u64;
    let lives_ms = up_ms.saturating_sub(field(22)? * tick_ms);
    Some(format!("{virtual_kib},{resident_kib},{cpu_ms},0,{lives_ms},{lives_ms}"))
}

/// Each local, writable one: its mount point, KiB in all, KiB used.
fn file_systems() -> Option<String> {
    let text = fs::read_to_string("/proc/mounts").ok()?;
    let mut seen = Vec::new();
    let mut entries = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let (Some(device), Some(place), Some(_), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let is_writable = options.split(',').all(|o| o != "ro");
        if !device.starts_with('/') || !is_writable || seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let place = unescape(place);
        let Ok(fs) = rustix::fs::statvfs(place.as_str()) else { continue };
        let kib = |blocks: u64| blocks * fs.f_frsize / 1024;
        // A comma or a blank in the name would break the form.
        let shown = place.replace([',', ' ', '\t', '\n'], "_");
        entries.push(format!("{shown},{},{}", kib(fs.f_blocks), kib(fs.f_blocks.saturating_sub(fs.f_bfree))));
    }
    (!entries.is_empty()).then(|| entries.join(" "))
}

/// A name as it is: blanks and backslashes are octal numbers in `/proc/mounts`.
fn unescape(name: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(name.to_owned(), |name, (code, character)| name.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemonize::PidFile;

    #[test]
    fn every_key_has_the_form_that_the_manual_page_gives() {
        let dir = tempfile::tempdir().unwrap();
        let _held = PidFile::create(&dir.path().join("ovs-vswitchd.pid"), false).unwrap();
        // The number of a process that is gone is another's by now.
        std::fs::write(dir.path().join("gone.pid"), std::process::id().to_string()).unwrap();
        let pairs = read(dir.path());
        assert!(pairs.iter().all(|(k, _)| k != "process_gone"));
        let value = |key: &str| pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone()).unwrap();
        assert!(value("cpu").parse::<u32>().unwrap() > 0);
        assert_eq!(value("load_average").split(',').filter(|n| n.parse::<f64>().is_ok()).count(), 3);
        assert_eq!(value("memory").split(',').filter(|n| n.parse::<u64>().is_ok()).count(), 5);
        let process = value("process_ovs-vswitchd");
        assert_eq!(process.split(',').filter(|n| n.parse::<u64>().is_ok()).count(), 6, "{process}");
    }

    #[test]
    fn a_reading_that_does_not_end_keeps_what_was_read_before_and_no_other_begins() {
        let sampler = Sampler::default();
        let pair = |value: &str| vec![("cpu".to_string(), value.to_string())];
        let wait = |value: &str| {
            while sampler.latest() != pair(value) {
                std::thread::yield_now();
            }
        };
        assert!(sampler.latest().is_empty());
        assert!(sampler.start_with(move || pair("1")).unwrap());
        wait("1");
        // The thread of the first may still be about to end.
        while sampler.shared.is_reading.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (answers, answer) = std::sync::mpsc::channel::<()>();
        let hangs = move || {
            let _ = answer.recv();
            pair("2")
        };
        assert!(sampler.start_with(hangs).unwrap());
        assert!(!sampler.start_with(Vec::new).unwrap());
        assert_eq!(sampler.latest(), pair("1"));
        drop(answers);
        wait("2");
    }

    #[test]
    fn names_of_mount_points_are_read_as_the_kernel_escapes_them() {
        assert_eq!(unescape(r"/mnt/a\040b\134040"), r"/mnt/a b\040");
    }
}
