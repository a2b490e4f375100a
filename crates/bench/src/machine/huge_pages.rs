//! Huge pages for DPDK, given back when dropped, or by the next run where this one is killed.

use crate::machine::lease::{self, NR_HUGE_PAGES, Resource};
use crate::process::run;
use std::process::Command;

/// The peer's packet memory: 262,144 buffers and what DPDK needs beside.
const HUGE_PAGES: usize = 1200;

/// Huge pages for DPDK, given back when dropped.
pub struct HugePages {
    before: String,
    mounted: bool,
}

const MOUNT: &str = "/dev/hugepages";

impl HugePages {
    /// Makes sure that there are enough, and that they are mounted.
    pub fn provide() -> Result<HugePages, String> {
        let before = std::fs::read_to_string(NR_HUGE_PAGES).map_err(|e| format!("{NR_HUGE_PAGES}: {e}"))?;
        if before.trim().parse::<usize>().unwrap_or(0) < HUGE_PAGES {
            lease::note(&Resource::HugePages(before.trim()))?;
            std::fs::write(NR_HUGE_PAGES, HUGE_PAGES.to_string())
                .map_err(|e| format!("{NR_HUGE_PAGES}: {e}"))?;
        }
        let got = std::fs::read_to_string(NR_HUGE_PAGES).unwrap_or_default();
        if got.trim().parse::<usize>().unwrap_or(0) < HUGE_PAGES {
            return Err(format!(
                "the peer needs {HUGE_PAGES} huge pages of 2 MB, the kernel gave {}",
                got.trim()
            ));
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
