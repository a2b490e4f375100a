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
use super::traffic::Sent;
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

    /// About how many loads it offers in a turn.
    fn loads(&self) -> u32 {
        if self.is_search() { 10 } else { 1 }
    }

    /// How long and how often it runs where others take the usual times.
    fn times(&self, usual: Times) -> Times {
        usual
    }

    /// Its own figures by which switches are judged, the one that matters most first; [`JUDGED`] has those
    /// that every trial with [`Outcome::turn`] and [`Outcome::latency`] has.
    fn judged(&self) -> Vec<Judged> {
        Vec::new()
    }

    /// What its figures say in words, and whether a reader is to be warned of it.
    fn verdicts(&self, _metrics: &BTreeMap<String, Metric>) -> Vec<(bool, String)> {
        Vec::new()
    }

    /// Runs it with this load; its rate is the offered one where the trial does not look for one itself.
    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String>;
}

/// The limit of a search whose last word was a try that the generator could not offer.
const LATE: &str = "the generator, which was late for a higher rate";
/// How often such a try is made.
const TRIES_MAX: u32 = 3;

/// Offers a load of a search, and again if the generator was late: that says nothing about the switch.
fn offer_in_time(bed: &mut Bed, load: &Load) -> Result<Offered, String> {
    let mut offered = bed.offer(load)?;
    for _ in 1..TRIES_MAX {
        if !is_late(&offered.sent, 0.0) {
            break;
        }
        offered = bed.offer(load)?;
    }
    Ok(offered)
}

/// What was the limit of a try that lost more than is allowed, if not the switch.
fn of_loss(offered: &Offered, allowed: f64) -> Option<String> {
    match is_late(&offered.sent, allowed) {
        true => Some(LATE.into()),
        false => offered.limit.clone(),
    }
}

/// Whether more than the allowed share was lost, but only since the generator did not send in time. What a
/// device refused does not count: a switch behind it that has no room is a reason to refuse.
fn is_late(sent: &Sent, allowed: f64) -> bool {
    let account = &sent.account;
    let copies = account.copies.max(1);
    let refused: u64 = sent.refused.values().sum();
    let held_up = account.not_sent.saturating_sub(refused) * copies;
    let by_switch = account.lost().saturating_sub(held_up) as f64;
    let share = by_switch / (account.offered * copies).saturating_sub(held_up).max(1) as f64;
    held_up > 0 && account.loss() > allowed && share <= allowed
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
    /// The other limit of the latencies, if any.
    pub latency_limit: Option<String>,
    /// For all loads of all turns, as their [beds](Bed::watched) tell it.
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
        self.latency_limit = self.latency_limit.take().or(other.latency_limit);
        self.watched = self.watched.and(other.watched);
    }

    /// Adds the latencies of a turn.
    pub fn latency(&mut self, prefix: &str, offered: &Offered) {
        for (name, value) in &offered.sent.latency_us {
            self.push(&format!("{prefix}latency_{name}_us"), "us", Better::Lower, *value);
        }
        self.latency_limit = self.latency_limit.take().or(offered.latency_limit.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_is_late_where_the_generator_alone_is_the_reason_of_the_loss() {
        let late = |not_sent, lost: u64, refused, allowed| {
            let account =
                Account { offered: 1_000, not_sent, received: 1_000 - lost, copies: 1, ..Account::default() };
            is_late(
                &Sent { account, refused: [("e0".to_string(), refused)].into(), ..Sent::default() },
                allowed,
            )
        };
        assert!(late(10, 10, 0, 0.0) && !late(0, 0, 0, 0.0));
        // The switch lost one too, or had no room for those that its interface refused.
        assert!(!late(10, 11, 0, 0.0) && !late(10, 10, 10, 0.0));
        // Without the generator's own it would be little enough.
        assert!(late(10, 11, 0, 0.005) && !late(10, 20, 0, 0.005) && !late(3, 3, 0, 0.005));
    }
}
