//! A program that is started for each load, as CONTRIBUTING shows how to add a generator.

use super::{Generator, Load, Offering, Stage};
use crate::daemon::in_namespace;
use crate::lab::meter::Meter;
use crate::lab::topology::Topology;
use crate::lab::traffic::Sent;
use crate::process::run;
use std::path::Path;

/// A program that sends frames on one interface, and prints how many it has sent and how many came back.
pub struct Sender;

impl Generator for Sender {
    fn name(&self) -> &str {
        "sender"
    }

    /// Before anything is started: this one is at two interfaces, and always sends as fast as it can.
    fn refuses_topology(&self, topology: &Topology, is_paced: bool) -> Option<String> {
        (is_paced || !topology.is_pair())
            .then(|| "sender goes from one interface to another at full speed".into())
    }

    /// Each load, once the places are known.
    fn refuses(&self, load: &Load, _stage: &Stage) -> Option<String> {
        load.burst.is_some().then(|| "sender sends no bursts".into())
    }

    /// Its frames have addresses of their own: a switch gets one rule for each port.
    fn sends_pattern(&self) -> bool {
        false
    }

    fn start(&self, stage: &Stage) -> Result<Box<dyn Offering>, String> {
        let places = stage.interfaces().ok_or("interfaces only")?;
        let from_to = [places[stage.sources[0].0], places[stage.outputs[0]]].map(String::from);
        Ok(Box::new(Started { namespace: stage.net.outside.clone(), from_to, load: None }))
    }
}

struct Started {
    namespace: String,
    from_to: [String; 2],
    load: Option<(Load, Vec<u32>)>,
}

impl Offering for Started {
    fn begin(&mut self, load: &Load, pids: &[u32]) -> Result<(), String> {
        self.load = Some((load.clone(), pids.to_vec()));
        Ok(())
    }

    fn finish(&mut self) -> Result<Sent, String> {
        let (load, pids) = self.load.take().ok_or("nothing was begun")?;
        let mut command = in_namespace(Some(&self.namespace), Path::new("sender"));
        command.args(&self.from_to).args([load.size.to_string(), load.seconds.to_string()]);
        // Who uses the processors, by this program's start and end, since it does not tell when it sends.
        let meter = Meter::start(&pids);
        let printed = run(&mut command)?;
        let used = meter.end();
        let counts: Vec<u64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [offered, received] = counts[..] else { return Err(format!("sender printed {printed:?}")) };
        let mut sent = Sent { seconds: load.seconds, received_in_time: received, used, ..Sent::default() };
        (sent.account.offered, sent.account.received, sent.account.copies) = (offered, received, 1);
        Ok(sent)
    }

    /// It cannot count late packets.
    fn again(&mut self) -> Result<Option<Sent>, String> {
        Ok(None)
    }
}

#[test]
fn the_page_of_contributing_is_this_code() {
    let code = include_str!("example.rs").split("\n#[test]").next().unwrap();
    assert!(include_str!("../../../../../CONTRIBUTING.md").contains(&format!("```rust\n{code}```\n")));
    assert!(!Sender.sends_pattern() && Sender.name() == "sender");
}
