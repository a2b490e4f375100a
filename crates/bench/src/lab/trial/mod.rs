//! Procedures that measure a figure on a test bed.

pub mod back_to_back;
pub mod changes;
pub mod effect;
#[cfg(test)]
mod example;
pub mod fixed;
pub mod latency;
pub mod list;
pub mod max_rate;
pub mod mlr;
pub mod profile;
pub mod reset;
pub mod rfc2544;
pub mod soak;

use super::bed::{Bed, Offered};
use super::generator::Load;
use crate::machine::watch::Watched;
use crate::result::account::Account;
use crate::result::judged::{Judged, Question};
use crate::result::{Better, Metric};
use std::collections::BTreeMap;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Turns.
    pub turns: u32,
    /// Length of each.
    pub seconds: f64,
}

/// A kind of trial.
pub trait Trial: Sync {
    /// Its name in stored results.
    fn name(&self) -> &'static str;

    /// Why it cannot be run here, if it cannot.
    fn refuses(&self) -> Option<String> {
        None
    }

    /// Labels that distinguish its points from similar ones.
    fn labels(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Whether it talks to the switch like a controller.
    fn needs_openflow(&self) -> bool {
        false
    }

    /// Whether it offers rates of its own, also where the load gives none: then the generator must be one
    /// that can be held to a rate.
    fn sets_rates(&self) -> bool {
        true
    }

    /// Whether it looks for a rate without loss, on which loads of less than a second cannot conclude.
    fn is_search(&self) -> bool {
        false
    }

    /// Its own figures by which switches are judged, the one that matters most first; [`JUDGED`] has those
    /// that every trial with [`Outcome::turn`] and [`Outcome::latency`] has.
    fn judged(&self) -> Vec<Judged> {
        Vec::new()
    }

    /// Runs it with this load; its rate is the offered one where the trial does not look for one itself.
    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String>;
}

/// See [`Trial::judged`].
pub const JUDGED: &[Judged] = &[
    Judged::new(Question::Cost, "machine_cycles_per_packet", "cost of a packet to the machine"),
    Judged::new(Question::Cost, "cycles_per_packet", "cost of a packet to the switch"),
    Judged::new(Question::Rate, "rate_pps", "packets per second"),
    Judged::new(Question::Time, "latency_p99_us", "p99 latency"),
    Judged::new(Question::Own, "latency_p50_us", "median latency"),
];
/// The rate that a search looks for.
const LOSSLESS: Judged = Judged::new(Question::Rate, "lossless_pps", "rate without loss");

/// The result of a trial.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Figures, turn by turn.
    pub metrics: BTreeMap<String, Metric>,
    /// For the last turn, or for one that does not add up.
    pub account: Account,
    /// The other limit of the rate, if any.
    pub limit: Option<String>,
    /// For all turns.
    pub watched: Watched,
}

impl Outcome {
    /// Adds a turn's value of a figure.
    pub fn push(&mut self, name: &str, unit: &str, better: Better, value: f64) {
        let metric = self.metrics.entry(name.into()).or_insert_with(|| Metric::new(unit, better, Vec::new()));
        metric.values.push(value);
    }

    /// Adds what every turn has.
    pub fn turn(&mut self, offered: &Offered) {
        let (sent, rate) = (&offered.sent, offered.rate());
        // CPU time and packets are those between the first frame and the last one. Packets that come later
        // waited in queues at the end, and were worked on later: with them a switch that is behind would seem
        // cheaper. Those that it had finished by then and that nobody had seen yet are a ring's at most.
        let packets = Some(sent.received_in_time as f64).filter(|packets| *packets > 0.0);
        let cycles = |cpu_s: f64| packets.map(|packets| cpu_s * base::clock::tsc_hz() as f64 / packets);
        self.push("rate_pps", "1/s", Better::Higher, rate);
        self.push("loss", "ratio", Better::Lower, sent.account.loss());
        if sent.used.is_known() {
            self.push("cpu_generator", "processors", Better::Neither, sent.cpu_s / sent.seconds);
        }
        if let Some(cpu_s) = offered.switch_cpu_s {
            self.push("cpu_switch", "processors", Better::Neither, cpu_s / sent.seconds);
            if let Some(cycles) = cycles(cpu_s) {
                self.push("cycles_per_packet", "cycles", Better::Lower, cycles);
            }
            if cpu_s > 0.0 {
                // The inverse of the cost, which is what is judged.
                let rate = sent.received_in_time as f64 / cpu_s;
                self.push("packets_per_cpu_second", "1/s", Better::Neither, rate);
            }
        }
        if let Some(cycles) = offered.machine_cpu_s.and_then(cycles) {
            self.push("machine_cycles_per_packet", "cycles", Better::Lower, cycles);
        }
        let lookups: u64 = offered.caches.values().sum();
        for (tier, count) in offered.caches.iter().filter(|_| lookups > 0) {
            let share = *count as f64 / lookups as f64;
            self.push(&format!("lookups_{tier}_ratio"), "ratio", Better::Neither, share);
        }
        if let Some(count) = offered.context_switches {
            self.push("switches_per_s", "1/s", Better::Neither, count as f64 / sent.seconds);
        }
        let all: u64 = offered.spread.iter().sum();
        if let Some(most) = offered.spread.iter().max().filter(|_| all > 0) {
            self.push("busiest_worker_ratio", "ratio", Better::Lower, *most as f64 / all as f64);
        }
        if sent.sent_pps > 0.0 {
            self.push("sent_pps", "1/s", Better::Neither, sent.sent_pps);
        }
        if let Some(cpu_s) = offered.guest_cpu_s.filter(|cpu_s| *cpu_s > 0.0) {
            self.push("cpu_guest", "processors", Better::Neither, cpu_s / sent.seconds);
        }
        if self.account.offered == 0 || self.account.adds_up() {
            self.account = sent.account.clone();
        }
        self.limit = self.limit.take().or(offered.limit.clone());
        self.watch(sent.used.watched);
    }

    /// Adds what other turns of the same found.
    pub fn add(&mut self, other: Outcome) {
        for (name, metric) in other.metrics {
            match self.metrics.get_mut(&name) {
                Some(there) => there.values.extend(metric.values),
                None => {
                    self.metrics.insert(name, metric);
                }
            }
        }
        if self.account.offered == 0 || self.account.adds_up() {
            self.account = other.account;
        }
        self.limit = self.limit.take().or(other.limit);
        self.watch(other.watched);
    }

    /// Adds what the machine did.
    fn watch(&mut self, new: Watched) {
        let old = self.watched;
        let seconds = old.seconds + new.seconds;
        let mean = |a: f64, b: f64| (a * old.seconds + b * new.seconds) / seconds.max(1e-9);
        self.watched = Watched {
            seconds,
            steal: mean(old.steal, new.steal),
            busy: mean(old.busy, new.busy),
            preemptions: old.preemptions + new.preemptions,
        };
    }

    /// Adds the latencies of a turn.
    pub fn latency(&mut self, prefix: &str, offered: &Offered) {
        for (name, value) in &offered.sent.latency_us {
            self.push(&format!("{prefix}latency_{name}_us"), "us", Better::Lower, *value);
        }
    }
}
