//! Disturbances of a trial by the machine: time that the hypervisor took, and how often threads lost their
//! processor. With much of either, a figure is worth less.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Share of a trial's processor time above which it is marked.
const STEAL_MAX: f64 = 0.01;
/// The same for the worst second of what takes many.
const STEAL_OF_SECOND_MAX: f64 = 0.1;
/// See [`Watch::look`].
const SECOND: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// How long it took.
    pub seconds: f64,
    /// Share of all processors' time that a hypervisor gave to others.
    pub steal: f64,
    /// The same in the worst second, where several turns were watched as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_of_second: Option<f64>,
    /// Share of time in which the processors were busy.
    pub busy: f64,
    /// How often the kernel preempted a thread that wanted to continue, over all watched processes.
    pub preemptions: u64,
}

impl Watched {
    /// A warning to accompany the figure, if necessary.
    pub fn warning(&self) -> Option<String> {
        let worst = self.steal_of_second.unwrap_or(0.0);
        let (share, of_second) = (self.steal * 100.0, worst * 100.0);
        let taken = format!("the hypervisor took {share:.1} % of the processors' time");
        match (self.steal > STEAL_MAX, worst > STEAL_OF_SECOND_MAX) {
            (_, true) => Some(format!("{taken}, and {of_second:.0} % in the worst second")),
            (true, false) => Some(taken),
            (false, false) => None,
        }
    }
}

/// A watch that was started.
pub struct Watch {
    start: Instant,
    ticks: [f64; 3],
    preemptions: u64,
    pids: Vec<u32>,
    /// When the last second began, the ticks then, and the most that was stolen in one.
    second: (Instant, [f64; 3], Option<f64>),
}

impl Watch {
    /// Starts to watch the machine, and these processes.
    pub fn start(pids: &[u32]) -> Watch {
        let pids = pids.to_vec();
        let (start, ticks) = (Instant::now(), ticks());
        Watch { start, ticks, preemptions: preemptions(&pids), pids, second: (start, ticks, None) }
    }

    /// Looks at the last second if it is over: of many turns, a short disturbance spoils one, and is nothing
    /// in the mean of all. To be called several times in each second.
    pub fn look(&mut self) {
        let (begun, before, most) = &mut self.second;
        if begun.elapsed() >= SECOND {
            let now = ticks();
            *most = Some(most.unwrap_or(0.0).max((now[0] - before[0]) / (now[2] - before[2]).max(1.0)));
            (*begun, *before) = (Instant::now(), now);
        }
    }

    /// The events since the start.
    pub fn end(&self) -> Watched {
        let [steal, idle, all] = ticks();
        let all = (all - self.ticks[2]).max(1.0);
        Watched {
            seconds: self.start.elapsed().as_secs_f64(),
            steal: (steal - self.ticks[0]) / all,
            steal_of_second: self.second.2,
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
        assert_eq!((seen.steal_of_second, Watched::default().warning()), (None, None));
        let short = Watched { steal: 0.001, steal_of_second: Some(0.3), ..seen };
        assert!(
            short.warning().unwrap().ends_with("0.1 % of the processors' time, and 30 % in the worst second")
        );
    }

    #[test]
    fn each_second_of_a_long_watch_is_looked_at() {
        let mut watch = Watch::start(&[]);
        watch.look();
        assert_eq!(watch.end().steal_of_second, None);
        // As if two seconds had passed, and a tenth of their ticks had been stolen in the first.
        let [steal, idle, all] = watch.ticks;
        let ago = |seconds: f64, watch: &mut Watch| {
            watch.second.0 = Instant::now() - SECOND;
            watch.second.1 = [steal - seconds * 20.0, idle, all - 200.0];
            watch.look();
        };
        ago(1.0, &mut watch);
        let most = watch.end().steal_of_second.unwrap();
        ago(0.0, &mut watch);
        assert!(most > 0.05 && watch.end().steal_of_second.unwrap() >= most, "{most}");
    }
}
