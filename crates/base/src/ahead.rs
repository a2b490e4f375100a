//! Prepares memory in advance: that of growing regions before it is touched, and
//! that of scattered ones in huge pages once they are well filled.
//!
//! A worker fills its caches' arrays from the start. The first touch of a huge page costs at least 0.2 ms,
//! and 5 ms were seen in a virtual machine: longer than any pass of the worker's loop may take. So one thread
//! of the process checks, every [`PERIOD`], how much of each growing region is used, and populates it some
//! way ahead. A region whose elements are touched in random order begins with small pages; when its owner
//! reports that most of these are in use, the thread moves them together into huge ones.
//!
//! Threads: the owner of a growing region stores one word, [`Growth::in_use`]; the rest belongs to the
//! keeper's thread, which starts with the first region and ends some time after the last.

use crate::mapping::Mapping;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Between two looks at the regions, and while they grow.
const PERIOD: Duration = Duration::from_millis(20);
const PERIOD_OF_GROWTH: Duration = Duration::from_millis(1);
/// Populated at a time, so that a region that is dropped meanwhile does not wait.
const STEP: usize = 2 << 20;
/// Bytes populated ahead: half of what is in use, within these.
const LEAD_MIN: usize = 2 << 20;
const LEAD_MAX: usize = 16 << 20;

/// How far a region is used, and how far its memory is there. All in bytes from its start.
pub(crate) struct Growth {
    /// Gone with its region, whose owner thus never waits for the keeper to unmap it.
    mapping: Weak<Mapping>,
    len: usize,
    used: AtomicUsize,
    ready: AtomicUsize,
}

impl Growth {
    #[inline(always)]
    pub(crate) fn in_use(&self, bytes: usize) {
        self.used.store(bytes, Ordering::Relaxed);
    }

    /// How far memory must be populated for this much use.
    fn target(&self) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        (used + (used / 2).clamp(LEAD_MIN, LEAD_MAX)).min(self.len)
    }

    /// Populates the next step towards the target; says whether there was one to take, or `None` when the
    /// region is gone.
    fn advance(&self) -> Option<bool> {
        let mapping = self.mapping.upgrade()?;
        let (ready, target) = (self.ready.load(Ordering::Relaxed), self.target());
        if ready >= target {
            return Some(false);
        }
        let to = target.min(ready + STEP);
        mapping.populate(ready..to);
        self.ready.store(to, Ordering::Relaxed);
        Some(true)
    }
}

/// A region that moves from small pages into huge ones.
struct Gathering {
    mapping: Weak<Mapping>,
    len: usize,
    done: usize,
}

impl Gathering {
    /// Gathers the next huge page; `None` when nothing is left to do.
    fn advance(&mut self) -> Option<bool> {
        let mapping = self.mapping.upgrade()?;
        let to = self.len.min(self.done + STEP);
        if self.done == to {
            return None;
        }
        mapping.gather(self.done..to);
        self.done = to;
        Some(true)
    }
}

/// A region whose memory is made ready.
enum Kept {
    Growing(Arc<Growth>),
    Scattered(Gathering),
}

impl Kept {
    fn advance(&mut self) -> Option<bool> {
        match self {
            Kept::Growing(growth) => growth.advance(),
            Kept::Scattered(gathering) => gathering.advance(),
        }
    }
}

struct Keeper {
    regions: Vec<Kept>,
    runs: bool,
}

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper { regions: Vec::new(), runs: false });

fn keeper() -> std::sync::MutexGuard<'static, Keeper> {
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the region's `len` bytes populated ahead of their use from now on. The start is populated on return,
/// unless it is `unused` at first: then the first access has to wait once.
pub(crate) fn keep(mapping: &Arc<Mapping>, len: usize, unused: bool) -> Arc<Growth> {
    let growth = Arc::new(Growth {
        mapping: Arc::downgrade(mapping),
        len,
        used: AtomicUsize::new(0),
        ready: AtomicUsize::new(if unused { LEAD_MIN } else { 0 }),
    });
    while growth.advance() == Some(true) {}
    take_in(Kept::Growing(growth.clone()));
    growth
}

/// Moves the region's `len` bytes into huge pages.
pub(crate) fn gather(mapping: &Arc<Mapping>, len: usize) {
    take_in(Kept::Scattered(Gathering { mapping: Arc::downgrade(mapping), len, done: 0 }));
}

fn take_in(region: Kept) {
    let mut keeper = keeper();
    keeper.regions.push(region);
    if !keeper.runs {
        // Without the thread, memory is allocated when it is touched.
        keeper.runs = std::thread::Builder::new().name("memory-ahead".into()).spawn(run).is_ok();
    }
}

fn run() {
    let mut period = PERIOD;
    loop {
        std::thread::sleep(period);
        let mut regions = std::mem::take(&mut keeper().regions);
        period = PERIOD;
        // A step for each in turn: they grow together.
        regions.retain_mut(|region| {
            let advanced = region.advance();
            if advanced == Some(true) {
                period = PERIOD_OF_GROWTH;
            }
            advanced.is_some()
        });
        let mut keeper = keeper();
        keeper.regions.append(&mut regions);
        if keeper.regions.is_empty() {
            keeper.runs = false;
            return;
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use crate::region::Region;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    /// Bytes of the region that have memory, as the kernel says.
    fn resident<T: zerocopy::FromZeros>(region: &Region<T>) -> usize {
        let bytes = std::mem::size_of_val(&region[..]);
        let mut pages = vec![0u8; bytes / 4096];
        // SAFETY: the region is mapped over `bytes`, and there is a byte for each of its pages.
        let result = unsafe { libc::mincore(region.as_ptr() as *mut _, bytes, pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 != 0).count() * 4096
    }

    #[test]
    fn memory_is_there_ahead_of_its_use_and_no_further() {
        let region: Region<u64> = Region::growing(64 << 20).unwrap();
        let first = resident(&region);
        assert!((2 << 20..4 << 20).contains(&first), "{first}");
        region.in_use(4 << 20);
        let until = Instant::now() + Duration::from_secs(20);
        // 32 MB are in use, so 48 shall be there.
        while resident(&region) < 48 << 20 {
            assert!(Instant::now() < until, "{}", resident(&region));
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(resident(&region) <= 50 << 20, "{}", resident(&region));
    }

    #[test]
    fn a_region_that_is_not_used_costs_nothing_and_one_that_is_grows_as_others_do() {
        let region: Region<u64> = Region::growing_once_used(64 << 20).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(resident(&region), 0);
        region.in_use(512 << 10);
        let until = Instant::now() + Duration::from_secs(20);
        // 4 MB are in use, so 6 shall be there, of which the owner touches the first 2.
        while resident(&region) < 4 << 20 {
            assert!(Instant::now() < until, "{}", resident(&region));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kilobytes of the region that are in huge pages, as the kernel says.
    fn in_huge_pages<T: zerocopy::FromZeros>(region: &Region<T>) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (start, end) = (region.as_ptr() as usize, region.as_ptr_range().end as usize);
        let (mut is_ours, mut kilobytes) = (false, 0);
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((from, to)) = range
                && let [Ok(from), Ok(to)] = [from, to].map(|at| usize::from_str_radix(at, 16))
            {
                is_ours = from < end && start < to;
            } else if is_ours && let Some(count) = line.strip_prefix("AnonHugePages:") {
                kilobytes += count.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
            }
        }
        kilobytes
    }

    #[test]
    fn a_scattered_region_is_in_small_pages_until_it_is_to_be_in_huge_ones_and_keeps_what_it_holds() {
        let thp = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if thp.contains("[never]") || thp.is_empty() {
            return eprintln!("no huge pages on this machine");
        }
        let region: Region<AtomicU64> = Region::scattered(1 << 20).unwrap();
        let each = || region.iter().step_by(4096 / 8).enumerate();
        each().for_each(|(n, word)| word.store(n as u64, Relaxed));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(in_huge_pages(&region), 0);
        region.gather();
        let until = Instant::now() + Duration::from_secs(20);
        while in_huge_pages(&region) < 8 << 10 {
            assert!(Instant::now() < until, "{} kB", in_huge_pages(&region));
            // Who writes meanwhile loses nothing.
            region[1].fetch_add(1, Relaxed);
            region[7].fetch_add(1, Relaxed);
        }
        assert!(each().all(|(n, word)| word.load(Relaxed) == n as u64));
        assert_eq!(region[1].load(Relaxed), region[7].load(Relaxed));
    }

    #[test]
    fn it_ends_at_the_regions_end() {
        let region: Region<u64> = Region::growing(1 << 10).unwrap();
        region.in_use(1 << 10);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(region[1023], 0);
    }
}
