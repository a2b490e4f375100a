//! Separate processors for generator and guests, if the machine has enough: then sharing one limits neither.
//! A thread's children run where the thread may run.

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
    let failed = |e: rustix::io::Errno| format!("binding to the processors {cpus:?}: {e}");
    let before = sched_getaffinity(None).map_err(failed)?;
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(failed)?;
    let started = start();
    sched_setaffinity(None, &before).map_err(failed)?;
    started
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use rustix::process::Pid;
    use std::process::Command;

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
            let pid = Pid::from_raw(process.id() as i32).unwrap();
            let set = sched_getaffinity(Some(pid)).unwrap();
            assert_eq!((0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect::<Vec<_>>(), [*cpu]);
            assert_eq!(allowed(), before);
        }
        assert_eq!(on(&[], || Ok(allowed())), Ok(before));
    }
}
