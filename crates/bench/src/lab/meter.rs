//! Who uses the processors while a load is offered. A generator starts the meter right before its first frame
//! and ends it right after its last one: a switch that always polls would else also pay for the time in which
//! frames are prepared, or late ones are waited for.
//!
//! The kernel counts a running thread's time, and the machine's, by ticks (4 ms, and 10 ms, on most
//! machines): [`SECONDS_MIN`] is the least for which these counts say something. To read them takes well
//! below a millisecond, outside of a process's own time.

use crate::machine::watch::{Waits, Watch, Watched, context_switches};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// In less time the error of the clocks is above 4 %: whoever was metered has no CPU time.
pub const SECONDS_MIN: f64 = 0.1;

/// See the module documentation.
pub struct Meter {
    watch: Watch,
    before: Vec<Before>,
    start_ns: u64,
}

/// A process before the first frame.
struct Before {
    pid: u32,
    waits: Waits,
    context_switches: u64,
    cpu_ns: u64,
}

/// What was used between start and end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Used {
    /// Start and end, in nanoseconds of [`now_ns`].
    pub from_to_ns: (u64, u64),
    /// By the process's number.
    pub processes: BTreeMap<u32, OfProcess>,
    /// By the machine.
    pub watched: Watched,
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct OfProcess {
    /// CPU time of all its threads.
    pub cpu_s: f64,
    /// The share of the time for which its busiest thread waited for a processor.
    pub waited: f64,
    /// How often its threads gave up or lost their processor.
    pub context_switches: u64,
}

impl Meter {
    /// Starts to meter these processes, and the machine.
    pub fn start(pids: &[u32]) -> Meter {
        let watch = Watch::start(pids);
        let of = |pid: &u32| {
            let (waits, context_switches) = (Waits::of(*pid), context_switches(*pid));
            Before { pid: *pid, waits, context_switches, cpu_ns: 0 }
        };
        let mut before: Vec<Before> = pids.iter().map(of).collect();
        // Last, so that the rest is not in it.
        before.iter_mut().for_each(|of| of.cpu_ns = cpu_ns(of.pid));
        Meter { watch, before, start_ns: now_ns() }
    }

    /// What was used until now.
    pub fn end(self) -> Used {
        let end_ns = now_ns();
        let cpu_ns: Vec<u64> = self.before.iter().map(|of| cpu_ns(of.pid)).collect();
        let seconds = (end_ns - self.start_ns) as f64 / 1e9;
        let of = |(before, cpu_ns): (&Before, u64)| {
            let used = OfProcess {
                // One that has ended has no clock.
                cpu_s: cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9,
                waited: before.waits.of_busiest(seconds),
                context_switches: context_switches(before.pid).saturating_sub(before.context_switches),
            };
            (before.pid, used)
        };
        let processes = self.before.iter().zip(cpu_ns).map(of).collect();
        // Last, for its end takes the processors for a moment.
        Used { from_to_ns: (self.start_ns, end_ns), processes, watched: self.watch.end() }
    }
}

impl Used {
    /// Between start and end.
    pub fn seconds(&self) -> f64 {
        (self.from_to_ns.1 - self.from_to_ns.0) as f64 / 1e9
    }

    /// Whether there was enough time for the clocks.
    pub fn is_known(&self) -> bool {
        self.seconds() >= SECONDS_MIN
    }

    /// By a process; `None` if there was not enough time, or it was not metered.
    pub fn by(&self, pid: u32) -> Option<OfProcess> {
        self.processes.get(&pid).copied().filter(|_| self.is_known())
    }

    /// Time for which processors of the machine were busy; `None` if there was not enough time.
    pub fn busy_s(&self) -> Option<f64> {
        let busy_s = self.watched.busy * self.watched.seconds * processors() as f64;
        self.is_known().then_some(busy_s)
    }
}

/// The monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn cpu_ns(pid: u32) -> u64 {
    base::clock::process_cpu_time_ns(pid as i32).unwrap_or(0)
}

/// Processors of the machine, of which this process may have fewer.
pub fn processors() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()));
    text.lines().filter(is_one).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_that_always_runs_uses_one_processor_and_a_thread_that_has_ended_stays_counted() {
        let mut spinner = Process::spawn(Command::new("sh").args(["-c", "while :; do :; done"])).unwrap();
        let meter = Meter::start(&[spinner.id(), std::process::id()]);
        let spent = std::thread::spawn(|| {
            while base::clock::thread_cpu_ns() < 20_000_000 {
                std::hint::spin_loop();
            }
        });
        spent.join().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let used = meter.end();
        spinner.kill().unwrap();
        let of = |pid| used.by(pid).unwrap().cpu_s;
        let share = of(spinner.id()) / used.seconds();
        assert!(share > 0.0 && share <= 1.05, "{share}");
        assert!(of(std::process::id()) >= 0.02, "{used:?}");
        assert!(used.by(1).is_none() && used.busy_s().unwrap() > 0.0);
        let short = Used { from_to_ns: (0, 90_000_000), ..used };
        assert!(short.by(spinner.id()).is_none() && short.busy_s().is_none());
    }

    #[test]
    fn the_machine_has_all_its_processors_for_a_thread_that_is_bound_to_one() {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let all = text.lines().filter(|line| line.starts_with("processor")).count();
        let bound = std::thread::spawn(|| {
            packet::thread::pin(0);
            (processors(), std::thread::available_parallelism().unwrap().get())
        });
        assert_eq!(bound.join().unwrap(), (all, 1));
    }
}
