//! A fixed rate, or all that goes, while rules of other flows are added and deleted over OpenFlow at a fixed
//! rate: what throughput, loss and latency are left.
//!
//! Rules are added one by one and deleted one by one, each by a flow-mod of its own; what is due is sent
//! every millisecond with a barrier behind it, and counts as made once that is answered. A switch that takes
//! fewer is shown by the figure, and by the longest wait for a barrier.

use super::{Outcome, Times, Trial};
use crate::connection::{Connection, with_barrier};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::lab::switch::rules;
use crate::result::Better;
use crate::result::judged::{Judged, Question};
use openflow::message::{FlowMod, FlowModCommand};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often what is due is sent.
const TICK: Duration = Duration::from_millis(1);
/// Maximum number of flow-mods before a barrier: a switch that was late must not be flooded.
const BEFORE_BARRIER: u64 = 1_000;
/// Maximum number of rules added before they are deleted.
const AT_ONCE: u64 = 100;

/// See the module documentation.
pub struct Changes {
    /// Its name in stored results.
    pub name: &'static str,
    /// Flow-mods per second.
    pub per_s: u32,
}

impl Trial for Changes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        vec![("flow_mods_per_s", self.per_s.to_string())]
    }

    fn needs_openflow(&self) -> bool {
        true
    }

    fn sets_rates(&self) -> bool {
        false
    }

    fn judged(&self) -> Vec<Judged> {
        vec![Judged::new(Question::Own, "barrier_max_ms", "longest answer to a barrier")]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        // Two changes at least: a rule comes and goes.
        let least = if self.per_s > 0 { 2.0 / f64::from(self.per_s) } else { 0.0 };
        let load = Load { seconds: times.seconds.max(least), ..load.clone() };
        for _ in 0..times.turns {
            let mut connection = Connection::open(bed.daemon().ok_or("the switch takes no OpenFlow")?)?;
            let is_over = AtomicBool::new(false);
            let (offered, made) = std::thread::scope(|scope| {
                let changer = scope.spawn(|| change(&mut connection, self.per_s, &is_over));
                let offered = bed.offer(&load);
                is_over.store(true, Ordering::Relaxed);
                (offered, changer.join().expect("changing rules does not panic"))
            });
            let offered = offered?;
            let made = made?;
            outcome.turn(&offered);
            // At full speed, latency is the length of the queues.
            if load.rate.is_some() {
                outcome.latency("", &offered);
            }
            if self.per_s > 0 {
                outcome.push("flow_mods_made_per_s", "1/s", Better::Higher, made.per_s);
                outcome.push("barrier_max_ms", "ms", Better::Lower, made.barrier_max.as_secs_f64() * 1e3);
            }
        }
        Ok(outcome)
    }
}

/// The result of the changes.
struct Made {
    per_s: f64,
    barrier_max: Duration,
}

/// Adds and deletes rules until it is over.
fn change(connection: &mut Connection, per_s: u32, is_over: &AtomicBool) -> Result<Made, String> {
    let (start, mut made, mut barrier_max) = (Instant::now(), 0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let due = due(per_s, start.elapsed()).min(made + BEFORE_BARRIER);
        if due > made {
            let messages = with_barrier((made..due).map(|n| flow_mod(n, per_s)))?;
            let sent = Instant::now();
            connection.until_barrier(&messages)?;
            barrier_max = barrier_max.max(sent.elapsed());
            made = due;
        }
        std::thread::sleep(TICK);
    }
    let share = made as f64 / due(per_s, start.elapsed()).max(1) as f64;
    Ok(Made { per_s: f64::from(per_s) * share, barrier_max })
}

/// Flow-mods that are due by now.
fn due(per_s: u32, elapsed: Duration) -> u64 {
    (elapsed.as_secs_f64() * f64::from(per_s)) as u64
}

/// The n-th one: some rules are added, these are deleted, and so on. They stay a tenth of a second, but few
/// at a time.
fn flow_mod(n: u64, per_s: u32) -> FlowMod {
    let at_once = u64::from(per_s / 10).clamp(1, AT_ONCE);
    let comes = (n / at_once).is_multiple_of(2);
    let command = if comes { FlowModCommand::Add } else { FlowModCommand::DeleteStrict };
    FlowMod { command, ..rules::changed((n % at_once) as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_rule_that_comes_goes_again_and_few_are_there_at_a_time() {
        for (per_s, most) in [(1, 1), (100, 10), (10_000, 100)] {
            let (mut there, mut seen) = (BTreeSet::new(), 0);
            for n in 0..1_000 {
                let change = flow_mod(n, per_s);
                let rule = format!("{:?}", change.matching);
                match change.command {
                    FlowModCommand::Add => assert!(there.insert(rule), "{n} of {per_s} is there"),
                    _ => assert!(there.remove(&rule), "{n} of {per_s} is not there"),
                }
                seen = seen.max(there.len());
            }
            assert_eq!((seen, there.len()), (most, 0), "{per_s}");
        }
    }

    #[test]
    fn as_many_are_due_as_the_rate_says() {
        let due = |per_s, ms| due(per_s, Duration::from_millis(ms));
        assert_eq!([due(0, 5_000), due(1, 1_999), due(1, 2_000), due(10_000, 3)], [0, 1, 2, 30]);
    }
}
