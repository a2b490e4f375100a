//! What of this machine slows a switch down, or makes its figures worth little: each finding with what was
//! measured and the command that changes it.
//!
//! Findings are in the order of what they usually cost. Nothing is changed here. All is read from /proc and
//! /sys below a root that tests replace, so each finding can be provoked.
//!
//! Source: Linux, Documentation/admin-guide/kernel-parameters.txt, mm/hugetlbpage.rst, sysctl/kernel.rst,
//! pm/cpufreq.rst and hw-vuln.

use crate::numa::cpu_list;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Huge pages of 2 MiB that a switch with the pool's default size wants.
const HUGE_PAGES: u64 = 1_024;
/// Processors that a switch, a generator and a guest need to not share one.
const CPUS: usize = 4;
/// The share of stolen time, in thousandths, above which figures suffer.
const STEAL_PERMILLE: u64 = 1;

/// One thing that could be better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The subject, in one or two words.
    pub name: &'static str,
    /// What was measured.
    pub measured: String,
    /// The cost.
    pub effect: &'static str,
    /// The command, or the setting, that changes it.
    pub fix: String,
}

/// Time that the processors spent since boot, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ticks {
    /// Taken by the hypervisor for others.
    pub stolen: u64,
    /// In all.
    pub all: u64,
}

/// A machine: the directory below which its /proc and /sys are.
pub struct Machine(PathBuf);

impl Machine {
    /// The one that this runs on.
    pub fn here() -> Machine {
        Machine("/".into())
    }

    /// Another, for tests.
    pub fn at(root: &Path) -> Machine {
        Machine(root.into())
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_default().trim().to_string()
    }

    /// How the processors have spent their time.
    pub fn ticks(&self) -> Ticks {
        let stat = self.text("proc/stat");
        let first = stat.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal: what follows is counted in user already.
        let ticks = first.split_whitespace().skip(1).take(8).filter_map(|n| n.parse::<u64>().ok());
        let ticks: Vec<u64> = ticks.collect();
        Ticks { stolen: ticks.get(7).copied().unwrap_or(0), all: ticks.iter().sum() }
    }

    /// What could be improved. `since`: [`Self::ticks`] at an earlier time, or `None` for the time since
    /// boot.
    pub fn findings(&self, since: Ticks) -> Vec<Finding> {
        let found = [
            self.processors(),
            self.huge_pages(),
            self.steal(since),
            self.isolation(),
            self.frequency(),
            self.siblings(),
            self.page_tables(),
            self.balancing(),
            self.watchdog(),
        ];
        found.into_iter().flatten().collect()
    }

    fn online(&self) -> BTreeSet<usize> {
        cpu_list(&self.text("sys/devices/system/cpu/online"))
    }

    fn processors(&self) -> Option<Finding> {
        let count = self.online().len();
        (count < CPUS).then(|| Finding {
            name: "processors",
            measured: format!("{count} online"),
            effect: "Workers, guests and everything else share processors: rates vary, and packets wait.",
            fix: format!("give the machine {CPUS} processors or more"),
        })
    }

    fn huge_pages(&self) -> Option<Finding> {
        let of = |kib: u32| -> u64 {
            let dir = format!("sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
            self.text(&dir).parse().unwrap_or(0)
        };
        let (small, large) = (of(2_048), of(1_048_576));
        (small < HUGE_PAGES && large < 2).then(|| Finding {
            name: "huge pages",
            measured: format!("{small} of 2 MiB, {large} of 1 GiB"),
            effect: "Packets and flow caches lie in small pages: a lookup among many flows misses the TLB, \
                     and DPDK guests and peers do not start.",
            fix: format!("sysctl -w vm.nr_hugepages={HUGE_PAGES}"),
        })
    }

    fn steal(&self, since: Ticks) -> Option<Finding> {
        let now = self.ticks();
        let (stolen, all) =
            (now.stolen.saturating_sub(since.stolen), now.all.saturating_sub(since.all).max(1));
        (stolen * 1_000 / all >= STEAL_PERMILLE).then(|| Finding {
            name: "steal",
            measured: format!("{:.1} % of the processors' time", stolen as f64 * 100.0 / all as f64),
            effect: "The hypervisor takes the processors away: queues overflow meanwhile, and no figure \
                     repeats.",
            fix: "pin the virtual machine's processors on its host (virsh vcpupin), or leave the host alone \
                  while you measure"
                .into(),
        })
    }

    fn isolation(&self) -> Option<Finding> {
        let isolated = cpu_list(&self.text("sys/devices/system/cpu/isolated"));
        let tickless = cpu_list(&self.text("sys/devices/system/cpu/nohz_full"));
        let online = self.online();
        // Processor 0 is left to the rest of the machine.
        let workers: BTreeSet<usize> = online.iter().skip(1).copied().collect();
        (isolated.is_empty() && tickless.is_empty() && !workers.is_empty()).then(|| {
            let list = ranges(&workers);
            Finding {
                name: "isolation",
                measured: "no processor is isolated or without ticks".into(),
                effect: "Other processes, the timer and RCU interrupt workers for up to milliseconds.",
                fix: format!(
                    "boot with isolcpus={list} nohz_full={list} rcu_nocbs={list}, and set \
                     other_config:pmd-cpu-mask to these processors; other programs do not get them of \
                     themselves: taskset -c {} crosspoint bench run ...",
                    ranges(&online)
                ),
            }
        })
    }

    fn frequency(&self) -> Option<Finding> {
        let governor = self.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        (!governor.is_empty() && governor != "performance").then(|| Finding {
            name: "frequency",
            measured: format!("governor {governor}"),
            effect: "The clock speed follows the load: figures per second drift, and the first packets of a \
                     burst are slow.",
            fix: "cpupower frequency-set -g performance".into(),
        })
    }

    fn siblings(&self) -> Option<Finding> {
        let mut first_threads = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut shared = 0;
        for cpu in self.online() {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = cpu_list(&self.text(&path));
            if seen.contains(&cpu) {
                continue;
            }
            shared += usize::from(siblings.len() > 1);
            seen.extend(siblings);
            first_threads.insert(cpu);
        }
        (shared > 0).then(|| Finding {
            name: "hyper-threads",
            measured: format!("{shared} cores have two threads"),
            effect: "Two workers on one core get little more done than one.",
            fix: format!(
                "choose workers among one thread of each core: \
                 ovs-vsctl set Open_vSwitch . other_config:pmd-cpu-mask={} or a part of it",
                mask(&first_threads)
            ),
        })
    }

    fn page_tables(&self) -> Option<Finding> {
        let meltdown = self.text("sys/devices/system/cpu/vulnerabilities/meltdown");
        meltdown.contains("PTI").then(|| Finding {
            name: "mitigations",
            measured: format!("meltdown: {meltdown}"),
            effect: "Each system call costs more: it shows on AF_XDP, AF_PACKET and tap ports, and on waking.",
            fix: "boot with pti=off where no foreign code runs on this machine".into(),
        })
    }

    fn balancing(&self) -> Option<Finding> {
        let is_running = |entry: fs::DirEntry| {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            (comm.trim() == "irqbalance").then(|| entry.file_name().to_string_lossy().into_owned())
        };
        let entries = fs::read_dir(self.0.join("proc")).into_iter().flatten().flatten();
        let pid =
            entries.filter(|e| e.file_name().as_encoded_bytes()[0].is_ascii_digit()).find_map(is_running)?;
        Some(Finding {
            name: "interrupts",
            measured: format!("irqbalance runs (process {pid})"),
            effect: "It moves the interrupts of network cards to the processors of workers.",
            fix: "systemctl stop irqbalance, or name the workers' processors in IRQBALANCE_BANNED_CPULIST"
                .into(),
        })
    }

    fn watchdog(&self) -> Option<Finding> {
        (self.text("proc/sys/kernel/nmi_watchdog") == "1").then(|| Finding {
            name: "watchdog",
            measured: "kernel.nmi_watchdog is 1".into(),
            effect: "It takes a performance counter and interrupts every processor.",
            fix: "sysctl -w kernel.nmi_watchdog=0".into(),
        })
    }
}

/// In the format of the kernel's lists of processors: `1-3,5`.
pub fn ranges(cpus: &BTreeSet<usize>) -> String {
    let all: Vec<usize> = cpus.iter().copied().collect();
    let runs = all.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// In the format of `pmd-cpu-mask`: a bit per processor, however many there are.
pub fn mask(cpus: &BTreeSet<usize>) -> String {
    let digits = cpus.last().map_or(1, |last| last / 4 + 1);
    let digit = |n: usize| (0..4).map(|bit| u32::from(cpus.contains(&(4 * n + bit))) << bit).sum::<u32>();
    (0..digits).rev().fold("0x".into(), |text, n| format!("{text}{:x}", digit(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with nothing to find, and then what a test writes.
    struct Rig(tempfile::TempDir);

    impl Rig {
        fn perfect() -> Rig {
            let rig = Rig(tempfile::tempdir().unwrap());
            rig.write("sys/devices/system/cpu/online", "0-3");
            rig.write("sys/devices/system/cpu/isolated", "1-3");
            rig.write("sys/devices/system/cpu/nohz_full", "1-3");
            rig.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
            for cpu in 0..4 {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                rig.write(&path, &cpu.to_string());
            }
            rig.write("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n");
            rig.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024\n");
            rig.write("proc/stat", "cpu  100 0 50 9000 0 0 0 0 0 0\ncpu0 1 2 3\n");
            rig.write("proc/sys/kernel/nmi_watchdog", "0");
            rig.write("proc/17/comm", "sshd\n");
            rig
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// What is found once a file says something else: one finding.
        fn found(path: &str, text: &str) -> Finding {
            let rig = Rig::perfect();
            rig.write(path, text);
            let found = Machine::at(rig.0.path()).findings(Ticks::default());
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            found[0].clone()
        }
    }

    #[test]
    fn a_machine_with_nothing_to_find_has_no_finding() {
        let rig = Rig::perfect();
        assert_eq!(Machine::at(rig.0.path()).findings(Ticks::default()), []);
    }

    #[test]
    fn each_finding_can_be_provoked() {
        let cases = [
            ("sys/devices/system/cpu/online", "0-1", "processors", "2 online"),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "0",
                "huge pages",
                "0 of 2 MiB, 0 of 1 GiB",
            ),
            ("proc/stat", "cpu  100 0 50 700 0 0 0 150", "steal", "15.0 % of the processors' time"),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "schedutil",
                "frequency",
                "governor schedutil",
            ),
            (
                "sys/devices/system/cpu/vulnerabilities/meltdown",
                "Mitigation: PTI",
                "mitigations",
                "meltdown: Mitigation: PTI",
            ),
            ("proc/18/comm", "irqbalance\n", "interrupts", "irqbalance runs (process 18)"),
            ("proc/sys/kernel/nmi_watchdog", "1", "watchdog", "kernel.nmi_watchdog is 1"),
        ];
        for (path, text, name, measured) in cases {
            let found = Rig::found(path, text);
            assert_eq!((found.name, found.measured.as_str()), (name, measured));
        }
    }

    #[test]
    fn the_fix_names_this_machines_processors() {
        let rig = Rig::perfect();
        rig.write("sys/devices/system/cpu/isolated", "");
        rig.write("sys/devices/system/cpu/nohz_full", "");
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            rig.write(&path, siblings);
        }
        let found = Machine::at(rig.0.path()).findings(Ticks::default());
        let names: Vec<_> = found.iter().map(|f| f.name).collect();
        assert_eq!(names, ["isolation", "hyper-threads"]);
        assert!(
            found[0].fix.starts_with("boot with isolcpus=1-3 nohz_full=1-3 rcu_nocbs=1-3"),
            "{}",
            found[0].fix
        );
        assert!(found[0].fix.contains("taskset -c 0-3 crosspoint bench"), "{}", found[0].fix);
        assert!(found[1].fix.contains("pmd-cpu-mask=0x3 "), "{}", found[1].fix);
    }

    #[test]
    fn a_mask_has_a_bit_for_processors_beyond_any_machine_word() {
        assert_eq!(mask(&BTreeSet::from([0, 1, 5])), "0x23");
        assert_eq!(mask(&BTreeSet::from([4, 130])), format!("0x4{}10", "0".repeat(30)));
    }

    #[test]
    fn steal_is_that_of_the_time_since() {
        let rig = Rig::perfect();
        rig.write("proc/stat", "cpu  100 0 50 700 0 0 0 150");
        let machine = Machine::at(rig.0.path());
        let before = machine.ticks();
        assert_eq!(before, Ticks { stolen: 150, all: 1_000 });
        rig.write("proc/stat", "cpu  200 0 50 1600 0 0 0 150");
        assert_eq!(machine.findings(before), []);
    }

    #[test]
    fn processors_are_listed_as_the_kernel_does() {
        assert_eq!(ranges(&BTreeSet::from([1, 2, 3, 5, 8, 9])), "1-3,5,8-9");
    }
}
