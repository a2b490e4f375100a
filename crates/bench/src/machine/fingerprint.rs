//! The machine of a figure, if it can be identified: enough to see whether two figures may be compared, and
//! why a figure may be worth little.

use super::huge_pages;
use crate::lab::processors::allowed;
use host::doctor::ranges;
use host::numa::cpu_list;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// See the module documentation. Fields that files of older runs lack are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fingerprint {
    /// Model name of the first processor.
    pub cpu: String,
    /// Processors that are online.
    pub cpus: usize,
    /// Caches of the first processor: `L1d 32K`.
    pub caches: Vec<String>,
    /// Kernel release.
    pub kernel: String,
    /// Cycles per second of the time stamp counter.
    pub tsc_hz: u64,
    /// The kernel's mitigations of processor flaws, by name.
    pub mitigations: BTreeMap<String, String>,
    /// Hypervisor, if there is one.
    pub hypervisor: Option<String>,
    /// Share of the time since boot in which a hypervisor gave the processors to others.
    pub steal_since_boot: f64,
    /// Huge pages of 2 MB.
    pub huge_pages: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Frequency policy; `none` if the machine shows none, as virtual machines do.
    pub governor: String,
    /// Processors that the kernel keeps free of other work.
    pub isolated: String,
    /// The processors that share a core with another.
    pub siblings: Vec<String>,
    /// The part of the kernel's command line that affects figures; the rest may be private.
    pub cmdline: String,
    /// Version of this program.
    pub crosspoint: String,
}

/// Beginnings of the kernel's parameters that bear on figures.
const PARAMETERS: &[&str] = &[
    "amd_iommu",
    "amd_pstate",
    "cpuidle",
    "default_hugepagesz",
    "hugepages",
    "idle=",
    "intel_idle",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "irqaffinity",
    "isolcpus",
    "maxcpus",
    "mitigations",
    "nohz",
    "nopti",
    "nosmt",
    "nr_cpus",
    "preempt",
    "processor.max_cstate",
    "rcu_nocb",
    "skew_tick",
    "spectre",
    "transparent_hugepage",
    "tsc",
];

impl Fingerprint {
    /// This machine's.
    pub fn here() -> Fingerprint {
        let cpuinfo = text("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
            Some(line.split_once(": ")?.1.to_string())
        };
        let stat = text("/proc/stat");
        let ticks: Vec<f64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let all: f64 = ticks.iter().take(8).sum();
        let memory = text("/proc/meminfo");
        let of_memory = |name: &str| {
            let line = memory.lines().find(|l| l.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        Fingerprint {
            cpu: field("model name").unwrap_or("unknown".into()),
            cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count().max(1),
            caches: caches(),
            kernel: text("/proc/sys/kernel/osrelease"),
            tsc_hz: base::clock::tsc_hz(),
            mitigations: in_dir("/sys/devices/system/cpu/vulnerabilities"),
            hypervisor: hypervisor(&cpuinfo),
            steal_since_boot: ticks.get(7).map_or(0.0, |steal| steal / all.max(1.0)),
            huge_pages: huge_pages::number(),
            memory_bytes: of_memory("MemTotal:").unwrap_or(0) * 1024,
            governor: or_none(text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            isolated: or_none(text("/sys/devices/system/cpu/isolated")),
            siblings: siblings(),
            cmdline: relevant(&text("/proc/cmdline")),
            crosspoint: env!("CARGO_PKG_VERSION").to_string(),
        }
    }

    /// What an operator may have changed since, and what bears on figures: its name, and both values.
    pub fn differences(&self, now: &Fingerprint) -> Vec<(&'static str, String, String)> {
        let of = |machine: &Fingerprint| {
            [
                ("governor", machine.governor.clone()),
                ("set of isolated processors", machine.isolated.clone()),
                ("set of hyper-threads", machine.siblings.join(", ")),
                ("kernel command line", machine.cmdline.clone()),
                ("set of mitigations", format!("{:?}", machine.mitigations)),
            ]
        };
        let pairs = of(self).into_iter().zip(of(now)).filter(|((_, was), (_, is))| was != is);
        let mut all: Vec<_> = pairs.map(|((what, was), (_, is))| (what, was, is)).collect();
        // The kernel itself takes a little more or less at each boot.
        let (was, is) = (self.memory_bytes, now.memory_bytes);
        if was.abs_diff(is) > was / 100 {
            all.push(("amount of memory", format!("{was} bytes"), format!("{is} bytes")));
        }
        all
    }

    /// Reasons to distrust figures of this machine, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(hypervisor) = &self.hypervisor {
            warnings.push(format!(
                "This is a virtual machine ({hypervisor}): its processors may be taken away at any time, and its clock speed is \
                 not known."
            ));
        }
        if self.cpus < 4 {
            warnings.push(format!(
                "{} processors: generator, switch and guest share them. Rates say little; costs per packet say more.",
                self.cpus
            ));
        }
        if self.isolated == "none" {
            warnings
                .push("No processor is isolated: other work of the machine interrupts the switch.".into());
        }
        warnings.extend(out_of_reach(&cpu_list(&self.isolated), &allowed()));
        if self.steal_since_boot > 0.001 {
            let share = self.steal_since_boot * 100.0;
            warnings.push(format!("A hypervisor took {share:.1} % of the processors' time since boot."));
        }
        warnings
    }
}

/// A process has isolated processors only if it is told to.
fn out_of_reach(isolated: &BTreeSet<usize>, allowed: &[usize]) -> Option<String> {
    let without: BTreeSet<usize> = isolated.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    // The switch's control threads have the first one.
    let wanted: BTreeSet<usize> = allowed.last().into_iter().chain(isolated).copied().collect();
    (!without.is_empty()).then(|| {
        let (without, wanted) = (ranges(&without), ranges(&wanted));
        format!(
            "Isolated processors ({without}) are not used: start the run with taskset -c {wanted}, or nothing runs on them."
        )
    })
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

/// The parameters of a kernel's command line that affect figures.
fn relevant(cmdline: &str) -> String {
    let is_one = |word: &&str| PARAMETERS.iter().any(|parameter| word.starts_with(parameter));
    cmdline.split_whitespace().filter(is_one).collect::<Vec<_>>().join(" ")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

fn in_dir(path: &str) -> BTreeMap<String, String> {
    let read = |entry: fs::DirEntry| {
        let value = fs::read_to_string(entry.path()).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), value.trim().to_string()))
    };
    fs::read_dir(path).into_iter().flatten().flatten().filter_map(read).collect()
}

fn caches() -> Vec<String> {
    let root = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let mut caches = Vec::new();
    for n in 0..8 {
        let read = |name: &str| {
            let text = fs::read_to_string(root.join(format!("index{n}/{name}"))).ok()?;
            Some(text.trim().to_string())
        };
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
            break;
        };
        let kind = match kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        caches.push(format!("L{level}{kind} {size}"));
    }
    caches
}

fn siblings() -> Vec<String> {
    let mut lists = Vec::new();
    for n in 0..1024 {
        let path = format!("/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list");
        let Ok(list) = fs::read_to_string(path) else { break };
        let list = list.trim().to_string();
        if list.contains([',', '-']) && !lists.contains(&list) {
            lists.push(list);
        }
    }
    lists
}

fn hypervisor(cpuinfo: &str) -> Option<String> {
    let flags = cpuinfo.lines().find(|l| l.starts_with("flags"))?;
    let is_guest = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let name = text("/sys/hypervisor/type");
    let vendor = text("/sys/class/dmi/id/sys_vendor");
    is_guest.then(|| [name, vendor].into_iter().find(|n| !n.is_empty()).unwrap_or("unnamed".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_processor_a_kernel_and_memory() {
        let here = Fingerprint::here();
        assert!(here.cpus > 0 && !here.kernel.is_empty() && here.memory_bytes > 1 << 20, "{here:?}");
        let json = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), here);
    }

    #[test]
    fn isolated_processors_that_the_run_may_not_use_are_named_with_the_way_to_them() {
        let of = |isolated: &str, allowed: &[usize]| out_of_reach(&cpu_list(isolated), allowed);
        assert_eq!(
            of("2-27", &[0, 1]).unwrap(),
            "Isolated processors (2-27) are not used: start the run with taskset -c 1-27, or nothing runs on them."
        );
        for (isolated, allowed) in [("2-3", &[1, 2, 3][..]), ("none", &[0, 1]), ("", &[0])] {
            assert_eq!(of(isolated, allowed), None, "{isolated}");
        }
    }

    #[test]
    fn of_the_kernels_command_line_only_what_bears_on_figures_is_kept() {
        let cmdline = "BOOT_IMAGE=/vmlinuz isolcpus=2-5 quiet secret=x default_hugepagesz=1G nohz_full=2-5";
        assert_eq!(relevant(cmdline), "isolcpus=2-5 default_hugepagesz=1G nohz_full=2-5");
    }

    #[test]
    fn files_of_older_runs_have_fewer_fields() {
        let old = r#"{"cpu": "x", "cpus": 2, "kernel": "6", "tsc_hz": 5}"#;
        let read: Fingerprint = serde_json::from_str(old).unwrap();
        assert_eq!((read.cpus, read.governor.as_str()), (2, ""));
        assert!(read.warnings()[0].contains("2 processors"));
    }
}
