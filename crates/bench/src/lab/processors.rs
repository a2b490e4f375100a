//! Separate processors for generator and guests, if the machine has enough: then sharing one limits neither.
//! A thread's children run where the thread may run.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The assignment of processors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processors {
    /// The generator's.
    pub generator: usize,
    /// One for each guest.
    pub guests: Vec<usize>,
    /// Processors for the switch, which binds its workers itself, and for everything else.
    pub switch: Vec<usize>,
}

impl Processors {
    /// Distributes this thread's processors, if they suffice for this many workers and guests.
    pub fn here(workers: usize, guests: usize) -> Option<Processors> {
        choose(&allowed(), workers, guests)
    }

    /// As in a condition.
    pub fn text(&self) -> String {
        match self.guests.len() {
            0 => "one of its own for the generator".into(),
            _ => "one of its own for the generator and for each guest".into(),
        }
    }
}

/// The last ones are the guests' and the generator's: switches have their workers on the first ones, after
/// one that is left to control threads and to the kernel.
fn choose(all: &[usize], workers: usize, guests: usize) -> Option<Processors> {
    let left = all.len().checked_sub(guests + 1).filter(|left| *left > workers)?;
    let (switch, rest) = all.split_at(left);
    let (generator, guests) = rest.split_first()?;
    Some(Processors { generator: *generator, guests: guests.to_vec(), switch: switch.to_vec() })
}

/// The processors on which this thread may run.
pub fn allowed() -> Vec<usize> {
    // If the kernel does not report the set, none are assigned.
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Starts something that may run only on these processors; anywhere, if the list is empty.
pub fn on<T>(cpus: &[usize], start: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    if cpus.is_empty() {
        return start();
    }
    let failed = |e: Errno| format!("binding to the processors {cpus:?}: {e}");
    let before = sched_getaffinity(None).map_err(failed)?;
    sched_setaffinity(None, &set_of(cpus)).map_err(failed)?;
    let started = start();
    sched_setaffinity(None, &before).map_err(failed)?;
    started
}

/// Lets all threads of a process run wherever this thread may. Where processors are shared, a thread that is
/// bound waits for the one that it is bound to, and others go where there is room: Open vSwitch and VPP can
/// only bind their workers.
pub fn set_free(pid: u32) -> Result<(), String> {
    let cpus = allowed();
    if cpus.is_empty() {
        return Ok(());
    }
    let path = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&path).map_err(|e| format!("{path}: {e}"))?;
    let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    for id in ids.filter_map(Pid::from_raw) {
        match sched_setaffinity(Some(id), &set_of(&cpus)) {
            // It has ended, or it is the kernel's own.
            Ok(()) | Err(Errno::SRCH | Errno::INVAL) => {}
            Err(e) => return Err(format!("letting {path}/{id} run on the processors {cpus:?}: {e}")),
        }
    }
    Ok(())
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use std::process::Command;

    fn processors_of(process: &Process) -> Vec<usize> {
        let set = sched_getaffinity(Pid::from_raw(process.id() as i32)).unwrap();
        (0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect()
    }

    #[test]
    fn generator_and_guests_have_the_last_processors_if_the_switch_has_enough() {
        let all: Vec<usize> = (0..8).collect();
        let chosen = choose(&all, 4, 2).unwrap();
        assert_eq!((chosen.generator, &chosen.guests[..]), (5, &[6, 7][..]));
        assert_eq!(chosen.switch, [0, 1, 2, 3, 4]);
        // One for control threads, one for the worker, one for the generator.
        let chosen = choose(&[0, 2, 4], 1, 0).unwrap();
        assert_eq!((chosen.generator, &chosen.switch[..]), (4, &[0, 2][..]));
        for (cpus, workers, guests) in [(2, 1, 0), (3, 1, 1), (6, 4, 1), (7, 4, 2), (0, 1, 0)] {
            assert_eq!(choose(&all[..cpus], workers, guests), None, "{cpus} {workers} {guests}");
        }
    }

    #[test]
    fn what_is_started_runs_where_it_shall_and_who_starts_it_where_it_did() {
        let before = allowed();
        for cpu in &before {
            let start = || Process::spawn(Command::new("sleep").arg("60"));
            let process = on(&[*cpu], start).unwrap();
            assert_eq!(processors_of(&process), [*cpu]);
            assert_eq!(allowed(), before);
            set_free(process.id()).unwrap();
            assert_eq!(processors_of(&process), before);
        }
        assert_eq!(on(&[], || Ok(allowed())), Ok(before));
    }
}
