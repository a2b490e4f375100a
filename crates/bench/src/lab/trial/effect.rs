//! How long until packets obey a change of the rules, and until the switch answers a request for statistics,
//! both over OpenFlow and while traffic runs: OFLOPS's questions.
//!
//! A rule above all others sends the traffic to one of two outputs in turn. The time runs from the sending of
//! the flow-mod to the first packet at the other output, by the generator's clock of receptions, which all
//! processes share; so it has the packet's own latency in it, and up to one distance of packets. Behind each
//! flow-mod a barrier is sent: a switch may answer that long before, or after, packets obey.

use super::{Outcome, Times, Trial};
use crate::connection::{Connection, encode, with_barrier};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::lab::meter::now_ns;
use crate::lab::traffic::SILENCE;
use crate::result::Better;
use crate::result::judged::{Judged, Question};
use crate::stats::{median, p99};
use base::OfPort;
use flow::{Action, FieldId, Match};
use openflow::message::{FlowMod, Message, StatsBody, StatsRequest};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Above the rules of the traffic.
const PRIORITY: u16 = 60_000;
/// The outputs in turn, by the generator's interfaces and the numbers of the switch's ports. The first is not
/// the one that the rules of the traffic lead to.
const OUTPUTS: [(&str, u16); 2] = [("e2", 3), ("e1", 2)];
/// Loads last this long at least: for some dozens of changes.
const SECONDS_MIN: f64 = 1.0;
/// No change takes longer than this.
const TIME: Duration = Duration::from_secs(10);
/// How often arrivals are looked for: only to know that the next change may come.
const LOOK: Duration = Duration::from_micros(500);
/// From an answer to the next change: the output that was left must have been silent.
const PAUSE: Duration = SILENCE.saturating_mul(2);

/// See the module documentation.
pub struct Effect;

impl Trial for Effect {
    fn name(&self) -> &'static str {
        "effect"
    }

    fn needs_openflow(&self) -> bool {
        true
    }

    fn sets_rates(&self) -> bool {
        false
    }

    fn judged(&self) -> Vec<Judged> {
        vec![
            Judged::new(
                Question::Time,
                "effect_us",
                "time from a flow-mod to the first packet that obeys it",
            ),
            Judged::new(
                Question::Own,
                "effect_p99_us",
                "p99 time from a flow-mod to the first packet that obeys it",
            ),
            Judged::new(Question::Own, "statistics_us", "time until statistics of all rules are answered"),
        ]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let load = Load { seconds: times.seconds.max(SECONDS_MIN), ..load.clone() };
        for _ in 0..times.turns {
            let mut connection = Connection::open(bed.daemon().ok_or("the switch takes no OpenFlow")?)?;
            let generator = bed.generator_pid().ok_or("the generator does not tell when packets come")?;
            let is_over = AtomicBool::new(false);
            let (offered, asked) = std::thread::scope(|scope| {
                let asker = scope.spawn(|| ask(&mut connection, generator, &is_over));
                let offered = bed.offer(&load);
                is_over.store(true, Ordering::Relaxed);
                (offered, asker.join().expect("changing rules does not panic"))
            });
            let (offered, asked) = (offered?, asked?);
            outcome.turn(&offered);
            outcome.latency_limit = outcome.latency_limit.take().or(offered.latency_limit.clone());
            let effects = effects(&asked.changes, &offered.sent.begun_ns);
            for (figure, values) in
                [("effect", &effects), ("statistics", &asked.statistics_us), ("barrier", &asked.barriers_us)]
            {
                if values.is_empty() {
                    return Err(format!("{} changes, and no figure of {figure}", asked.changes.len()));
                }
                outcome.push(&format!("{figure}_us"), "us", Better::Lower, median(values));
                outcome.push(&format!("{figure}_p99_us"), "us", Better::Lower, p99(values));
            }
            let timed = effects.len() as f64 / asked.changes.len() as f64;
            outcome.push("effects_timed_ratio", "ratio", Better::Higher, timed);
        }
        Ok(outcome)
    }
}

/// What was done while a load was offered.
#[derive(Default)]
struct Asked {
    /// When each change was sent, and the output that it leads to.
    changes: Vec<(u64, &'static str)>,
    /// How long the barrier behind each took.
    barriers_us: Vec<f64>,
    /// How long each request for statistics took.
    statistics_us: Vec<f64>,
}

/// Changes the rule and asks for statistics by turns until it is over. Each change waits until packets obey
/// the one before.
fn ask(connection: &mut Connection, generator: u32, is_over: &AtomicBool) -> Result<Asked, String> {
    let mut request = Vec::new();
    let aggregate = StatsRequest::Aggregate(Box::default());
    encode(0, &Message::StatsRequest(aggregate), &mut request)?;
    let mut asked = Asked::default();
    // The generator may need some time to make its frames.
    if !arrives(OUTPUTS[1].0, generator, is_over, Duration::MAX)? {
        return Ok(asked);
    }
    for (interface, port) in OUTPUTS.iter().cycle() {
        let messages = with_barrier([turned(*port)].into_iter())?;
        let sent_ns = now_ns();
        match connection.ask(&messages)? {
            Message::BarrierReply => asked.barriers_us.push(since_us(sent_ns)),
            other => return Err(format!("instead of the barrier's reply came {other:?}")),
        }
        asked.changes.push((sent_ns, interface));
        if !arrives(interface, generator, is_over, TIME)? {
            break;
        }
        let requested_ns = now_ns();
        match connection.ask(&request)? {
            Message::StatsReply(reply) if is_told(&reply.body) => {}
            other => return Err(format!("instead of statistics of rules came {other:?}")),
        }
        asked.statistics_us.push(since_us(requested_ns));
        std::thread::sleep(PAUSE);
    }
    Ok(asked)
}

fn since_us(start_ns: u64) -> f64 {
    (now_ns() - start_ns) as f64 / 1e3
}

fn is_told(body: &StatsBody) -> bool {
    matches!(body, StatsBody::Aggregate { stats, .. } if stats.flow_count > 0)
}

/// The rule that sends all that comes by the first port to another.
fn turned(port: u16) -> FlowMod {
    let matching = Match::any().with(FieldId::InPort, 1);
    let actions = vec![Action::Output { port: OfPort(port), max_len: 0 }];
    FlowMod { table_id: 0, priority: PRIORITY, matching, actions, ..FlowMod::add() }
}

/// Waits until packets come by this interface of the generator; false if it is over before.
fn arrives(interface: &str, generator: u32, is_over: &AtomicBool, within: Duration) -> Result<bool, String> {
    let path = format!("/proc/{generator}/net/dev");
    let count = || -> Result<u64, String> {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        received(&text, interface).ok_or_else(|| format!("{path} has no {interface}"))
    };
    let (start, before) = (Instant::now(), count()?);
    while count()? == before {
        if is_over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if start.elapsed() > within {
            return Err(format!("no packet obeyed a changed rule within {} s", within.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(true)
}

/// An interface's received packets in the text of `/proc/net/dev`.
fn received(text: &str, interface: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Microseconds from each change to the first packet at its output, if one came before the next change.
fn effects(changes: &[(u64, &'static str)], begun_ns: &BTreeMap<String, Vec<u64>>) -> Vec<f64> {
    let next = changes.iter().skip(1).map(|(sent_ns, _)| *sent_ns).chain([u64::MAX]);
    let one = |((sent_ns, interface), next_ns): (&(u64, &'static str), u64)| {
        let first = *begun_ns.get(*interface)?.iter().find(|at| *at >= sent_ns)?;
        (first < next_ns).then(|| (first - sent_ns) as f64 / 1e3)
    };
    changes.iter().zip(next).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_effect_with_the_first_packet_at_its_output_before_the_next_change() {
        let changes = [(10_000, "e2"), (50_000, "e1"), (90_000, "e2"), (130_000, "e1"), (170_000, "e2")];
        let begun = |name: &str, at: &[u64]| (name.to_string(), at.to_vec());
        // What began before a change is not its effect; the third change has none in time, the last one none.
        let begun_ns = [begun("e1", &[1_000, 57_000, 131_000]), begun("e2", &[14_000, 140_000])];
        assert_eq!(effects(&changes, &begun_ns.into()), [4.0, 7.0, 1.0]);
        assert_eq!(effects(&changes, &BTreeMap::new()), [0.0; 0]);
    }

    #[test]
    fn packets_of_an_interface_are_read() {
        let text = "Inter-|   Receive\n face |bytes    packets errs\n    e1:  600 10 0 0\n   e12: 60 1 0\n";
        assert_eq!(["e1", "e12", "e2"].map(|name| received(text, name)), [Some(10), Some(1), None]);
    }
}
