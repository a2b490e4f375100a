//! What the machine did to a trial while it ran: time that the hypervisor took, and how often threads lost
//! their processor. A figure beside which much of either stands is worth less.

use serde::{Deserialize, Serialize};
use std::fs;
use std::time::Instant;

/// Share of a trial's processor time above which it is marked.
const STEAL_MAX: f64 = 0.01;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// How long it took.
    pub seconds: f64,
    /// Share of all processors' time that a hypervisor gave to others.
    pub steal: f64,
    /// Share in which the processors did anything at all.
    pub busy: f64,
    /// How often the kernel took the processor from a thread that wanted to go on, over all processes that
    /// were watched.
    pub preemptions: u64,
}

impl Watched {
    /// What to say about it beside the figure, if anything.
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

    /// What has happened since.
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
