//! Disturbances of a trial by the machine: time that the hypervisor took, and how often threads lost their
//! processor. With much of either, a figure is worth less.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Share of a trial's processor time above which it is marked.
const STEAL_MAX: f64 = 0.01;

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// How long it took.
    pub seconds: f64,
    /// Share of all processors' time that a hypervisor gave to others.
    pub steal: f64,
    /// Share of time in which the processors were busy.
    pub busy: f64,
    /// How often the kernel preempted a thread that wanted to continue, over all watched processes.
    pub preemptions: u64,
}

impl Watched {
    /// A warning to accompany the figure, if necessary.
    pub fn warning(&self) -> Option<String> {
        let share = self.steal * 100.0;
        (self.steal > STEAL_MAX).then(|| format!("the hypervisor took {share:.1} % of the processors' time"))
    }
}

/// A watch that was started.
pub struct Watch {
    start: Instant,
    ticks: [f64; 3],
    preemptions: u64,
    pids: Vec<u32>,
}

impl Watch {
    /// Starts to watch the machine, and these processes.
    pub fn start(pids: &[u32]) -> Watch {
        let pids = pids.to_vec();
        Watch { start: Instant::now(), ticks: ticks(), preemptions: preemptions(&pids), pids }
    }

    /// The events since the start.
    pub fn end(&self) -> Watched {
        let [steal, idle, all] = ticks();
        let all = (all - self.ticks[2]).max(1.0);
        Watched {
            seconds: self.start.elapsed().as_secs_f64(),
            steal: (steal - self.ticks[0]) / all,
            busy: 1.0 - (idle - self.ticks[1]) / all,
            // Threads that have ended take their count with them.
            preemptions: preemptions(&self.pids).saturating_sub(self.preemptions),
        }
    }
}

/// Ticks stolen, idle, and in all.
fn ticks() -> [f64; 3] {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let at = |n: usize| ticks.get(n).copied().unwrap_or(0.0);
    // user nice system idle iowait irq softirq steal
    [at(7), at(3) + at(4), (0..8).map(at).sum()]
}

fn preemptions(pids: &[u32]) -> u64 {
    pids.iter().map(|pid| of_threads(*pid, "nonvoluntary_ctxt_switches:")).sum()
}

/// How often a process's threads gave up or lost their processor.
pub fn context_switches(pid: u32) -> u64 {
    of_threads(pid, "nonvoluntary_ctxt_switches:") + of_threads(pid, "voluntary_ctxt_switches:")
}

/// How long each thread of a process has run, and waited for a processor that others used, in nanoseconds.
pub struct Waits {
    pid: u32,
    before: BTreeMap<String, (u64, u64)>,
}

impl Waits {
    /// So far.
    pub fn of(pid: u32) -> Waits {
        Waits { pid, before: schedstat(pid) }
    }

    /// The share of these seconds for which the busiest thread waited.
    pub fn of_busiest(&self, seconds: f64) -> f64 {
        let since = |(thread, (ran, waited)): (String, (u64, u64))| {
            let (ran_before, waited_before) = self.before.get(&thread).copied().unwrap_or_default();
            (ran.saturating_sub(ran_before), waited.saturating_sub(waited_before))
        };
        let busiest = schedstat(self.pid).into_iter().map(since).max();
        busiest.map_or(0.0, |(_, waited)| waited as f64 / 1e9 / seconds.max(1e-9))
    }
}

/// By thread: time on a processor, and time in the run queue.
fn schedstat(pid: u32) -> BTreeMap<String, (u64, u64)> {
    let of_task = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let times = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((task.file_name().to_string_lossy().into_owned(), times))
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(of_task).collect()
}

/// A count in the status of each of a process's threads.
fn of_threads(pid: u32, name: &str) -> u64 {
    let of_task = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(of_task).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_shares_its_processor_waits() {
        use std::sync::mpsc::{Receiver, channel};
        // Two threads on one processor: one of them waits while the other runs.
        let spin = |end: Receiver<()>| {
            std::thread::spawn(move || {
                packet::thread::pin(0);
                while end.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    std::hint::spin_loop();
                }
            })
        };
        let (ends, threads): (Vec<_>, Vec<_>) =
            [channel(), channel()].into_iter().map(|(end, ends)| (end, spin(ends))).unzip();
        let start = Instant::now();
        let waits = Waits::of(std::process::id());
        let waited = || waits.of_busiest(start.elapsed().as_secs_f64());
        while start.elapsed().as_secs() < 20 && waited() < 0.2 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!((0.2..=1.0).contains(&waited()), "{}", waited());
        drop(ends);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(Waits::of(u32::MAX).of_busiest(1.0), 0.0);
    }

    #[test]
    fn a_watch_sees_time_pass_and_shares_stay_shares() {
        let watch = Watch::start(&[std::process::id()]);
        let end = Instant::now() + std::time::Duration::from_millis(50);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        let seen = watch.end();
        assert!(seen.seconds >= 0.05, "{seen:?}");
        assert!((0.0..=1.0).contains(&seen.steal) && (0.0..=1.0).contains(&seen.busy), "{seen:?}");
        assert!(Watched { steal: 0.5, ..seen }.warning().is_some());
    }
}
