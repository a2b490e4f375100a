//! A test bed: namespaces, guests and a switch that are up, and a generator that offers loads to them. Every
//! load is accounted for, and the machine watched meanwhile.

use super::generator::{Generator, Load};
use super::guest::{DESCRIPTORS, Guest};
use super::net::Net;
use super::switch::{Running, Setup, Switch, rules};
use super::topology::{End, Topology};
use super::traffic::Sent;
use crate::machine::watch::{Watch, Watched};
use crate::process::{Process, TempDir, wait_for};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Until a switch forwards.
const START: Duration = Duration::from_secs(20);
/// Where less than this share is lost of all that a generator can send, it was itself the limit.
const LOSS_OF_SWITCH: f64 = 0.001;

/// See the module's text.
pub struct Bed<'a> {
    // Dropped in this order: the switch leaves before its guests and its namespace do.
    running: Option<Box<dyn Running>>,
    guests: Vec<Process>,
    net: Net,
    topology: &'a Topology,
    generator: &'a dyn Generator,
    conditions: BTreeMap<String, String>,
    _dir: TempDir,
}

/// What became of one load.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The generator's account, with the drops that switch and kernel counted.
    pub sent: Sent,
    /// CPU time of the switch, where it is a process.
    pub switch_cpu_s: Option<f64>,
    /// CPU time of all guests.
    pub guest_cpu_s: f64,
    /// What the machine did.
    pub watched: Watched,
    /// Who else was the limit.
    pub limit: Option<String>,
}

impl Offered {
    /// Packets that came in time, per second.
    pub fn rate(&self) -> f64 {
        self.sent.received_in_time as f64 / self.sent.seconds
    }
}

impl<'a> Bed<'a> {
    /// Starts everything. Without a switch the topology is `direct`.
    pub fn start(
        topology: &'a Topology,
        switch: Option<&dyn Switch>,
        guest: &dyn Guest,
        generator: &'a dyn Generator,
        flows: u32,
    ) -> Result<Bed<'a>, String> {
        let dir = TempDir::new("bed")?;
        let nics: Vec<usize> = (0..topology.ports.len()).filter(|n| topology.ports[*n] == End::Nic).collect();
        let net = Net::new(&nics)?;
        let (mut guests, mut sockets) = (Vec::new(), BTreeMap::<usize, PathBuf>::new());
        for index in (0..topology.ports.len()).filter(|n| topology.ports[*n] == End::Guest) {
            let socket = dir.0.join(format!("vm{index}"));
            guests.push(guest.start(&socket)?);
            wait_for(&socket)?;
            sockets.insert(index, socket);
        }
        let mut conditions: BTreeMap<String, String> = [
            ("mtu", "1500".to_string()),
            ("rules", rules::kind(flows).to_string()),
            ("generator", generator.name().to_string()),
        ]
        .map(|(k, v)| (k.to_string(), v))
        .into();
        if topology.has_guests() {
            conditions.insert("guest".into(), guest.name().into());
            conditions.insert("descriptors".into(), DESCRIPTORS.to_string());
        }
        let setup = Setup { net: &net, topology, sockets: &sockets, flows };
        let running = switch.map(|switch| switch.start(&setup)).transpose()?;
        let mut bed = Bed { running, guests, net, topology, generator, conditions, _dir: dir };
        bed.wait()?;
        Ok(bed)
    }

    /// What must be equal in beds that are compared.
    pub fn conditions(&self) -> &BTreeMap<String, String> {
        &self.conditions
    }

    /// What the switch says it is.
    pub fn identity(&self) -> BTreeMap<String, String> {
        self.running.as_ref().map(|r| r.identity()).unwrap_or_default()
    }

    fn outputs(&self) -> Vec<String> {
        match self.topology.outputs() {
            outputs if outputs.is_empty() => vec!["e1".into()],
            outputs => outputs.iter().map(|n| format!("e{n}")).collect(),
        }
    }

    /// Waits until frames come through: guests connect, links come up, caches fill.
    fn wait(&mut self) -> Result<(), String> {
        let probe = Load { size: 64, flows: 1, rate: Some(200), seconds: 0.2, burst: None };
        let probe = match self.generator.refuses(&probe) {
            None => probe,
            Some(_) => Load { rate: None, ..probe },
        };
        let start = Instant::now();
        loop {
            let sent = self.generator.offer(&self.net, &self.outputs(), &probe)?;
            // All of them: a port that is just coming up takes the last few.
            if sent.account.received > 0 && sent.account.lost() == sent.account.not_sent {
                return Ok(());
            }
            self.check_alive()?;
            if start.elapsed() > START {
                let account = sent.account.text();
                return Err(format!("nothing forwards after {} s: {account}", START.as_secs()));
            }
        }
    }

    fn check_alive(&mut self) -> Result<(), String> {
        let is_dead = self.running.as_mut().is_some_and(|running| !running.is_alive());
        if is_dead { Err("the switch has died".into()) } else { Ok(()) }
    }

    /// Offers a load and accounts for it.
    pub fn offer(&mut self, load: &Load) -> Result<Offered, String> {
        if let Some(why) = self.generator.refuses(load) {
            return Err(why);
        }
        let drops = |bed: &Bed| -> Result<BTreeMap<String, u64>, String> {
            let mut all = bed.net.dropped()?;
            if let Some(running) = &bed.running {
                all.extend(running.dropped()?);
            }
            Ok(all)
        };
        let cpu = |bed: &Bed| {
            let guests: u64 = bed.guests.iter().map(Process::cpu_ns).sum();
            (bed.running.as_ref().and_then(|r| r.cpu_ns()), guests)
        };
        let pids: Vec<u32> = self.guests.iter().map(|g| g.0.id()).collect();
        let (before, cpu_before) = (drops(self)?, cpu(self));
        let watch = Watch::start(&pids);
        let mut sent = self.generator.offer(&self.net, &self.outputs(), load)?;
        let watched = watch.end();
        self.check_alive()?;
        let (after, cpu_after) = (drops(self)?, cpu(self));
        for (name, count) in after {
            let more = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
            if more > 0 {
                sent.account.dropped.insert(name, more);
            }
        }
        count_once(&mut sent.account.dropped, self.topology.ports.len());
        let account = &sent.account;
        let is_late = account.not_sent > account.offered / 1000;
        let is_unpaced = load.rate.is_none() && load.burst.is_none();
        let is_limit = is_late || (is_unpaced && account.loss() < LOSS_OF_SWITCH);
        let limit = is_limit.then(|| "the generator, which shares the processors".to_string());
        let switch_cpu_s = cpu_before.0.zip(cpu_after.0).map(|(b, a)| (a - b) as f64 / 1e9);
        let guest_cpu_s = (cpu_after.1 - cpu_before.1) as f64 / 1e9;
        Ok(Offered { sent, switch_cpu_s, guest_cpu_s, watched, limit })
    }
}

/// A switch's port at a kernel interface counts the kernel's drops with its own: what the kernel counted is taken from
/// the port's.
fn count_once(dropped: &mut BTreeMap<String, u64>, ports: usize) {
    for port in 0..ports {
        for direction in ["rx", "tx"] {
            let of_kernel =
                dropped.get(&format!("kernel p{port}: {direction}_dropped")).copied().unwrap_or(0);
            if let Some(count) = dropped.get_mut(&format!("switch {}: {direction}_dropped", port + 1)) {
                *count = count.saturating_sub(of_kernel);
            }
        }
    }
    dropped.retain(|_, count| *count > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_that_kernel_and_port_count_is_one_drop() {
        let counts =
            [("kernel p0: rx_dropped", 10), ("switch 1: rx_dropped", 12), ("switch 2: tx_dropped", 7)];
        let mut dropped: BTreeMap<String, u64> = counts.map(|(k, v)| (k.to_string(), v)).into();
        count_once(&mut dropped, 2);
        let counts =
            [("kernel p0: rx_dropped", 10), ("switch 1: rx_dropped", 2), ("switch 2: tx_dropped", 7)];
        assert_eq!(dropped, counts.map(|(k, v)| (k.to_string(), v)).into());
    }
}
