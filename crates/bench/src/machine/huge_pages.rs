//! Huge pages, released on drop, or by the next run if this one is killed: Open vSwitch with DPDK needs them,
//! so everything compared with it gets them too.

use crate::machine::lease::{self, NR_HUGE_PAGES, Resource};
use crate::process::run;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The peer's packet memory: 262,144 buffers and DPDK's other needs.
const HUGE_PAGES: usize = 1200;

/// See the module documentation.
pub struct HugePages {
    before: String,
    mounted: bool,
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

static NOTED: Mutex<BTreeMap<&'static str, String>> = Mutex::new(BTreeMap::new());

/// Notes what a switch of this measurement has taken, for its rows.
pub fn note(switch: &'static str, pid: u32) {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).insert(switch, taken_by(pid));
}

/// The recorded sizes, by switch.
pub fn noted() -> BTreeMap<&'static str, String> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// Whether this many huge pages of the usual size are free.
pub fn are_free(pages: usize) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|l| l.strip_prefix("HugePages_Free:")?.trim().parse::<usize>().ok());
    free.is_some_and(|free| free >= pages)
}

const MOUNT: &str = "/dev/hugepages";

impl HugePages {
    /// Ensures that there are enough for Open vSwitch with DPDK, and that they are mounted.
    pub fn provide() -> Result<HugePages, String> {
        HugePages::at_least(HUGE_PAGES)
    }

    /// The same for a given number. If the kernel has no room for them, nothing is changed.
    pub fn at_least(pages: usize) -> Result<HugePages, String> {
        let before = std::fs::read_to_string(NR_HUGE_PAGES).map_err(|e| format!("{NR_HUGE_PAGES}: {e}"))?;
        if before.trim().parse::<usize>().unwrap_or(0) < pages {
            lease::note(&Resource::HugePages(before.trim()))?;
            std::fs::write(NR_HUGE_PAGES, pages.to_string()).map_err(|e| format!("{NR_HUGE_PAGES}: {e}"))?;
        }
        let got = std::fs::read_to_string(NR_HUGE_PAGES).unwrap_or_default();
        if got.trim().parse::<usize>().unwrap_or(0) < pages {
            let _ = std::fs::write(NR_HUGE_PAGES, before.trim());
            return Err(format!("{pages} huge pages of 2 MB are needed, the kernel gave {}", got.trim()));
        }
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let mounted = !mounts.contains(" hugetlbfs ");
        if mounted {
            let _ = std::fs::create_dir_all(MOUNT);
            lease::note(&Resource::Mount(MOUNT))?;
            run(Command::new("mount").args(["-t", "hugetlbfs", "none", MOUNT]))?;
        }
        Ok(HugePages { before, mounted })
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run(Command::new("umount").arg(MOUNT));
        }
        let _ = std::fs::write(NR_HUGE_PAGES, self.before.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
