//! Disturbances of a trial by the machine: time that the hypervisor took, and how often threads lost their
//! processor. With much of either, a figure is worth less.

use super::handover::handover_cycles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Share of a trial's processor time above which it is marked.
const STEAL_MAX: f64 = 0.01;
/// The same for the worst of several turns, or of many seconds.
const STEAL_AT_WORST_MAX: f64 = 0.1;
/// See [`Watch::look`].
const SECOND: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// How long it took.
    pub seconds: f64,
    /// Share of all processors' time that a hypervisor gave to others.
    pub steal: f64,
    /// The same in the worst of several turns, or in the worst second where they were watched as one.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "steal_of_second")]
    pub steal_at_worst: Option<f64>,
    /// Share of time in which the processors were busy with what runs here, which stolen time is not.
    pub busy: f64,
    /// How often the kernel preempted a thread that wanted to continue, over all watched processes and those
    /// that they have started.
    pub preemptions: u64,
    /// Cycles for handing a cache line to another processor and back at the end of each turn: the least and
    /// the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover_cycles: Option<(f64, f64)>,
}

impl Watched {
    /// What the machine did in the turns of both.
    pub fn and(self, other: Watched) -> Watched {
        if self.seconds == 0.0 {
            return other;
        }
        let seconds = self.seconds + other.seconds;
        let mean = |of_a: f64, of_b: f64| (of_a * self.seconds + of_b * other.seconds) / seconds;
        let worst = |of: &Watched| of.steal_at_worst.unwrap_or(of.steal);
        Watched {
            seconds,
            steal: mean(self.steal, other.steal),
            steal_at_worst: Some(worst(&self).max(worst(&other))),
            busy: mean(self.busy, other.busy),
            preemptions: self.preemptions + other.preemptions,
            handover_cycles: [self.handover_cycles, other.handover_cycles]
                .into_iter()
                .flatten()
                .reduce(widest),
        }
    }

    /// A warning to accompany the figure, if necessary.
    pub fn warning(&self) -> Option<String> {
        let worst = self.steal_at_worst.unwrap_or(0.0);
        let (share, at_worst) = (self.steal * 100.0, worst * 100.0);
        let taken = format!("the hypervisor took {share:.1} % of the processors' time");
        match (self.steal > STEAL_MAX, worst > STEAL_AT_WORST_MAX) {
            (_, true) => Some(format!("{taken}, and {at_worst:.0} % at worst")),
            (true, false) => Some(taken),
            (false, false) => None,
        }
    }
}

/// The least of both, and the most.
pub fn widest(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// A watch that was started.
pub struct Watch {
    start: Instant,
    ticks: [f64; 3],
    pids: Vec<u32>,
    /// By thread, how often it was preempted: before, and when last seen.
    before: Preemptions,
    seen: Preemptions,
    /// When the last second began, the ticks then, and the most that was stolen in one.
    second: (Instant, [f64; 3], Option<f64>),
}

/// By thread.
type Preemptions = BTreeMap<String, u64>;

impl Watch {
    /// Starts to watch the machine, and these processes with those that they start.
    pub fn start(pids: &[u32]) -> Watch {
        let before = preemptions(pids);
        let (start, ticks) = (Instant::now(), ticks());
        let (pids, seen) = (pids.to_vec(), Preemptions::new());
        Watch { start, ticks, pids, before, seen, second: (start, ticks, None) }
    }

    /// Looks at the last second if it is over: of many turns, a short disturbance spoils one, and is nothing
    /// in the mean of all. To be called several times in each second.
    pub fn look(&mut self) {
        let (begun, before, most) = &mut self.second;
        if begun.elapsed() >= SECOND {
            let now = ticks();
            *most = Some(most.unwrap_or(0.0).max((now[0] - before[0]) / (now[2] - before[2]).max(1.0)));
            (*begun, *before) = (Instant::now(), now);
            // Those that end before the watch does take their count with them.
            self.seen.extend(preemptions(&self.pids));
        }
    }

    /// The events since the start. To see what handing over a cache line costs, it takes two processors for
    /// some milliseconds, up to a tenth of a second: whoever reads clocks and counters of the turn does so
    /// before.
    pub fn end(mut self) -> Watched {
        let seconds = self.start.elapsed().as_secs_f64();
        let (steal, busy) = shares(self.ticks, ticks());
        self.seen.extend(preemptions(&self.pids));
        let since = |(thread, count): (&String, &u64)| {
            count.saturating_sub(self.before.get(thread).copied().unwrap_or(0))
        };
        Watched {
            seconds,
            steal,
            steal_at_worst: self.second.2,
            busy,
            preemptions: self.seen.iter().map(since).sum(),
            handover_cycles: handover_cycles().map(|cycles| (cycles, cycles)),
        }
    }
}

/// The shares of the time between two readings that were stolen, and busy with what runs here. What others of
/// the hypervisor ran meanwhile is neither idle nor this machine's work.
fn shares(before: [f64; 3], after: [f64; 3]) -> (f64, f64) {
    let [steal, idle, all] = [0, 1, 2].map(|n| after[n] - before[n]);
    let all = all.max(1.0);
    (steal / all, 1.0 - (steal + idle) / all)
}

/// Ticks stolen, idle, and in all.
fn ticks() -> [f64; 3] {
    ticks_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn ticks_in(text: &str) -> [f64; 3] {
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let at = |n: usize| ticks.get(n).copied().unwrap_or(0.0);
    // user nice system idle iowait irq softirq steal
    [at(7), at(3) + at(4), (0..8).map(at).sum()]
}

fn preemptions(pids: &[u32]) -> Preemptions {
    family(pids).into_iter().flat_map(|pid| of_threads(pid, "nonvoluntary_ctxt_switches:")).collect()
}

/// These processes, and those that they have started.
fn family(pids: &[u32]) -> Vec<u32> {
    let mut all = pids.to_vec();
    let mut n = 0;
    while let Some(pid) = all.get(n) {
        let children = tasks(*pid).filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
            .collect();
        all.extend(children);
        n += 1;
    }
    all
}

/// How often a process's threads gave up or lost their processor.
pub fn context_switches(pid: u32) -> u64 {
    let count = |name| of_threads(pid, name).map(|(_, count)| count).sum::<u64>();
    count("nonvoluntary_ctxt_switches:") + count("voluntary_ctxt_switches:")
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
    tasks(pid).filter_map(of_task).collect()
}

/// A count in the status of each of a process's threads.
fn of_threads(pid: u32, name: &str) -> impl Iterator<Item = (String, u64)> {
    tasks(pid).filter_map(move |task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        Some((task.file_name().to_string_lossy().into_owned(), line.trim().parse().ok()?))
    })
}

fn tasks(pid: u32) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_nobody_s_work() {
        let ticks =
            |user, idle, steal| ticks_in(&format!("cpu {user} 0 10 {idle} 0 0 0 {steal} 0 0\ncpu0 1\n"));
        let (steal, busy) = shares(ticks(100, 50, 5), ticks(150, 70, 35));
        assert_eq!((steal, busy), (0.3, 0.5));
        assert_eq!(shares(ticks(1, 1, 1), ticks(1, 1, 1)), (0.0, 1.0));
    }
    use crate::process::{self, Process};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

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
        assert_eq!((seen.steal_at_worst, Watched::default().warning()), (None, None));
        let short = Watched { steal: 0.001, steal_at_worst: Some(0.3), ..seen };
        assert!(short.warning().unwrap().ends_with("0.1 % of the processors' time, and 30 % at worst"));
    }

    #[test]
    fn each_second_of_a_long_watch_is_looked_at() {
        let worst = |stolen: &[f64]| {
            let mut watch = Watch::start(&[]);
            watch.look();
            let [steal, idle, all] = watch.ticks;
            for share in stolen {
                // As if a second had passed, with so much of 200 ticks stolen.
                watch.second.0 = Instant::now() - SECOND;
                watch.second.1 = [steal - share * 200.0, idle, all - 200.0];
                watch.look();
            }
            watch.end().steal_at_worst
        };
        assert_eq!(worst(&[]), None);
        let most = worst(&[0.1]).unwrap();
        assert!(most > 0.05 && worst(&[0.1, 0.0]).unwrap() > 0.05, "{most}");
    }

    #[test]
    fn the_worst_of_several_turns_is_kept_beside_their_mean() {
        let turn = |steal| {
            let handover_cycles = Some((130.0 + steal, 130.0 + steal));
            let watched = Watched { seconds: 1.0, steal, busy: 0.5, preemptions: 2, ..Watched::default() };
            Watched { handover_cycles, ..watched }
        };
        let one = Watched::default().and(turn(0.3));
        assert_eq!(one, turn(0.3));
        let all = (0..29).fold(one, |all, _| all.and(turn(0.0)));
        assert!((all.steal - 0.01).abs() < 1e-9 && all.preemptions == 60, "{all:?}");
        assert_eq!((all.seconds, all.steal_at_worst), (30.0, Some(0.3)));
        assert_eq!(all.handover_cycles, Some((130.0, 130.3)));
        assert!(all.warning().unwrap().ends_with("1.0 % of the processors' time, and 30 % at worst"));
        let old = r#"{"seconds": 9, "steal": 0, "steal_of_second": 0.2, "busy": 1, "preemptions": 0}"#;
        assert_eq!(serde_json::from_str::<Watched>(old).unwrap().steal_at_worst, Some(0.2));
    }

    /// The leader of a group of processes, all of which end with the test.
    struct Group(Process);

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = process::run(Command::new("kill").args(["-9", "--", &format!("-{}", self.0.id())]));
        }
    }

    #[test]
    fn processes_that_a_watched_one_has_started_are_watched_to_their_end() {
        // Two that never give up the processor that they share: they lose it to each other.
        let loops = "sh -c 'while :; do :; done' & while :; do :; done";
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", loops]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let both = Group(Process::spawn(&mut command).unwrap());
        let mut watch = Watch::start(&[both.0.id()]);
        let of_child = |watch: &Watch| {
            let child = family(&watch.pids).get(1)?.to_string();
            preemptions(&watch.pids).get(&child).copied()
        };
        let start = Instant::now();
        while of_child(&watch).is_none_or(|lost| lost < 5) {
            assert!(start.elapsed().as_secs() < 60, "{:?}", family(&watch.pids));
            std::thread::sleep(Duration::from_millis(20));
        }
        watch.second.0 = Instant::now() - SECOND;
        watch.look();
        let child = family(&watch.pids)[1].to_string();
        let sum = |all: &Preemptions| all.values().sum::<u64>();
        let lost = sum(&watch.seen) - sum(&watch.before);
        assert!(watch.seen[&child] >= 5, "{:?}", watch.seen);
        drop(both);
        let watched = watch.end();
        assert!(watched.preemptions >= lost, "{watched:?}, {lost} before they ended");
    }
}
