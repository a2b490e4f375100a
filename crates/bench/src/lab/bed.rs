//! A test bed: namespaces, guests and a switch that are up, and a generator that offers loads to them. Every
//! load is accounted for, and the machine watched meanwhile.

use super::cable::Cable;
use super::drops::{Counts, count_once};
use super::generator::{Generator, Load, Offering, Place, Stage};
use super::guest::{self, Guest, Rings};
use super::limit::{limit, of_generator, of_latency};
use super::net::Net;
use super::own_work::OwnWork;
use super::processors::{Processors, on, set_free};
use super::switch::{Running, Setup, Switch, rules};
use super::topology::{End, Topology, Vnic};
use super::traffic::Sent;
use super::traffic::pattern::Pattern;
use crate::daemon::Daemon;
use crate::machine::watch::Watched;
use crate::process::{Process, TempDir, wait_for};
use crate::result::{CPU_TIME, GENERATOR_TIME, OWN_WORK, PROCESSORS, WHILE_SENDING};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Until a switch forwards.
const START: Duration = Duration::from_secs(20);
/// How long a control thread is blocked, and the maximum share of a load's time.
const BLOCK_MS: u64 = 5_000;
const BLOCK_SHARE: f64 = 0.65;
/// How often late frames and counters are waited for before an account is given up.
const AGAIN_MAX: u32 = 10;
/// Until a process whose sockets are closed has ended.
const ENDING: Duration = Duration::from_millis(100);

/// The components of a bed.
pub struct Parts<'a> {
    /// The packets' way.
    pub topology: &'a Topology,
    /// `None` if the topology has no switch.
    pub switch: Option<&'a dyn Switch>,
    /// For topologies with guests.
    pub guest: &'a dyn Guest,
    /// The guests' rings, and those of a generator that plays a guest.
    pub rings: Rings,
    /// Outside.
    pub generator: &'a dyn Generator,
    /// Rules are made for these.
    pub flows: u32,
    /// The table has as many rules at least: those of other flows fill it up.
    pub rules: u32,
    /// The contents of the frames.
    pub pattern: &'a Pattern,
    /// For every interface and port.
    pub mtu: u16,
    /// Workers of the switch, and queues of its ports.
    pub workers: usize,
    /// In place of veth pairs.
    pub cables: &'a [Cable],
    /// The generator's own part of sending, if it is known.
    pub own_work: Option<&'a OwnWork>,
}

/// See the module documentation.
pub struct Bed<'a> {
    // Dropped in this order: the switch leaves before its guests and its namespace do.
    running: Option<Box<dyn Running>>,
    guests: BTreeMap<usize, Process>,
    offering: Box<dyn Offering>,
    net: Net,
    parts: Parts<'a>,
    sockets: BTreeMap<usize, PathBuf>,
    conditions: BTreeMap<String, String>,
    watched: Watched,
    /// If the machine has enough.
    processors: Option<Processors>,
    _dir: TempDir,
}

/// The result of one load.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The generator's account, with the drops that switch and kernel counted.
    pub sent: Sent,
    /// CPU time of the switch between the first frame and the last one, if it is a process and the time was
    /// long enough to tell.
    pub switch_cpu_s: Option<f64>,
    /// The same of all guests.
    pub guest_cpu_s: Option<f64>,
    /// The same of the whole machine, less the generator's own part: all of its CPU time where no more is
    /// known.
    pub machine_cpu_s: Option<f64>,
    /// Memory in use by the switch, if it is a process.
    pub switch_rss_bytes: Option<u64>,
    /// Lookups of the switch's caches by tier.
    pub caches: BTreeMap<String, u64>,
    /// Packets of each of its workers, if it has several.
    pub spread: Vec<u64>,
    /// How often the switch's threads gave up or lost their processor between the first frame and the last.
    pub context_switches: Option<u64>,
    /// The other limit of the rate, if any.
    pub limit: Option<String>,
    /// The other limit of the latency, if any.
    pub latency_limit: Option<String>,
}

impl Offered {
    /// Packets that came in time, per second.
    pub fn rate(&self) -> f64 {
        self.sent.received_in_time as f64 / self.sent.seconds
    }
}

/// A disturbance of a bed while a load is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upset {
    /// The switch ends in order and is started again.
    Restart,
    /// The switch is killed and started again.
    Kill,
    /// A guest is killed and started again.
    Guest,
    /// The last interface on the return path loses its link for half a second.
    Link,
    /// The switch's control thread is blocked for five seconds.
    Block,
}

impl Upset {
    /// Whether the counters of what is upset go with it.
    pub fn ends_counters(self) -> bool {
        matches!(self, Upset::Restart | Upset::Kill | Upset::Guest)
    }
}

/// The result of a load with a disturbance.
pub struct Upsetting {
    /// As in [`Offered`].
    pub sent: Sent,
    /// How long it took until all was as before: a switch that is started again has its rules then.
    pub took: Duration,
    /// The generator, if it could not keep the rate.
    pub limit: Option<String>,
}

impl<'a> Bed<'a> {
    /// Starts everything.
    pub fn start(parts: Parts<'a>) -> Result<Bed<'a>, String> {
        let topology = parts.topology;
        let dir = TempDir::new("bed")?;
        let of = |ends: &[End]| -> Vec<usize> {
            (0..topology.ports.len()).filter(|n| ends.contains(&topology.ports[*n])).collect()
        };
        let (is_loop, queues) = (topology.ports.is_empty(), parts.workers);
        let net = Net::new(&of(&[End::Nic, End::Idle]), is_loop, parts.mtu, queues, parts.cables)?;
        let vnic = parts.guest.vnic();
        if !topology.has_switch() && topology.has_guests() && vnic == Vnic::Tap {
            return Err("a guest behind a tap device cannot be reached without a kernel between".into());
        }
        let mut sockets = BTreeMap::new();
        if vnic == Vnic::VhostUser {
            sockets.extend(
                of(&[End::Guest, End::Station]).into_iter().map(|n| (n, dir.0.join(format!("vm{n}")))),
            );
        }
        let mut guests = BTreeMap::new();
        let processors = Processors::here(parts.workers, of(&[End::Guest]).len());
        for index in of(&[End::Guest]) {
            guests.insert(index, start_guest(&parts, &net, &sockets, index, processors.as_ref())?);
        }
        let stage = stage(&parts, &net, &sockets, processors.as_ref());
        let own: Vec<usize> = stage.cpu.into_iter().collect();
        let offering = on(&own, || parts.generator.start(&stage))?;
        for place in &stage.places {
            if let Place::Tap(name) = place {
                net.take_tap(name)?;
            }
        }
        let mut conditions = conditions(&parts);
        conditions.extend(processors.as_ref().map(|own| (PROCESSORS.to_string(), own.text())));
        conditions.extend(net.drivers()?.map(|drivers| ("interfaces".to_string(), drivers)));
        let mut bed = Bed {
            running: None,
            guests,
            offering,
            net,
            parts,
            sockets,
            conditions,
            watched: Watched::default(),
            processors,
            _dir: dir,
        };
        bed.start_switch()?;
        bed.wait()?;
        bed.learn()?;
        Ok(bed)
    }

    fn start_switch(&mut self) -> Result<(), String> {
        let Some(switch) = self.parts.switch else { return Ok(()) };
        let setup = Setup {
            net: &self.net,
            topology: self.parts.topology,
            sockets: &self.sockets,
            flows: self.parts.flows,
            pattern: self.parts.pattern,
            is_foreign: !self.parts.generator.sends_pattern(),
            mtu: self.parts.mtu,
            workers: self.parts.workers,
            has_processors: self.processors.is_some(),
        };
        let left = self.processors.as_ref().map(|own| own.switch.clone()).unwrap_or_default();
        let running = self.running.insert(on(&left, || switch.start(&setup))?);
        if let Some(pid) = running.forwarder().filter(|_| self.processors.is_none()) {
            set_free(pid)?;
        }
        if self.parts.rules > 0 {
            let daemon = running.daemon().ok_or("the switch takes no OpenFlow")?;
            rules::load_others(daemon, &setup, self.parts.rules)?;
        }
        Ok(())
    }

    /// Asks the switch and the kernel for conditions, which may still change during start-up.
    fn learn(&mut self) -> Result<(), String> {
        let Some(running) = &self.running else { return Ok(()) };
        let text = |(name, value): (&str, String)| (name.to_string(), value);
        self.conditions.extend(running.conditions().into_iter().map(text));
        self.conditions.insert("offloads".into(), self.net.offloads()?);
        Ok(())
    }

    /// Conditions that must be equal in compared beds.
    pub fn conditions(&self) -> &BTreeMap<String, String> {
        &self.conditions
    }

    /// What the machine did while loads were offered, those of a search and of its failed tries among them.
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// The switch's own identification.
    pub fn identity(&self) -> BTreeMap<String, String> {
        self.running.as_ref().map(|r| r.identity()).unwrap_or_default()
    }

    /// The switch's daemon, if it supports OpenFlow.
    pub fn daemon(&self) -> Option<&Daemon> {
        self.running.as_ref()?.daemon()
    }

    /// The switch's process, if it has one.
    pub fn switch_pid(&self) -> Option<u32> {
        Some(self.running.as_ref()?.process()?.id())
    }

    /// The generator's process, if it has one for all loads.
    pub fn generator_pid(&self) -> Option<u32> {
        self.offering.pid()
    }

    /// Why the generator cannot offer a load.
    pub fn refuses(&self, load: &Load) -> Option<String> {
        let stage = stage(&self.parts, &self.net, &self.sockets, self.processors.as_ref());
        self.parts.generator.refuses(load, &stage)
    }

    /// Waits until frames come through: guests connect, links come up, caches fill.
    fn wait(&mut self) -> Result<(), String> {
        let pattern = self.parts.pattern.clone();
        let size = pattern.size_min();
        let probe = Load { size, flows: 1, rate: Some(200), seconds: 0.1, burst: None, pattern };
        let probe = match self.refuses(&probe) {
            None => probe,
            Some(_) => Load { rate: None, ..probe },
        };
        if let Some(why) = self.refuses(&probe) {
            return Err(why);
        }
        let (start, limit) = (Instant::now(), START + self.parts.guest.boots_within());
        loop {
            self.offering.begin(&probe, &[])?;
            let sent = self.offering.finish()?;
            // All frames must return: a port that is just coming up takes the last few.
            if sent.account.received > 0 && sent.account.lost() == sent.account.not_sent {
                return Ok(());
            }
            // One that cannot be paced loses some even when all is up.
            if probe.rate.is_none() && sent.account.received > 0 {
                return Ok(());
            }
            self.check_alive()?;
            if start.elapsed() > limit {
                let account = sent.account.text();
                return Err(format!("nothing forwards after {} s: {account}", limit.as_secs()));
            }
        }
    }

    fn check_alive(&mut self) -> Result<(), String> {
        let has_ended = |process: &mut Process| process.0.try_wait().ok().flatten();
        if let Some(status) = self.running.as_mut().and_then(|running| has_ended(running.process_mut()?)) {
            return Err(format!("the switch has died: {status}"));
        }
        match self.guests.values_mut().find_map(has_ended) {
            Some(status) => Err(format!("a guest has died: {status}")),
            None => Ok(()),
        }
    }

    /// Drops that kernel, switch and guests have counted so far.
    fn drops(&self) -> Result<Counts, String> {
        let mut all = self.net.dropped()?;
        if let Some(running) = &self.running {
            all.extend(running.dropped()?);
        }
        for (index, guest) in &self.guests {
            let dropped = self.parts.guest.dropped(guest)?;
            all.extend(dropped.into_iter().map(|(why, n)| (format!("guest vm{index}: {why}"), n)));
        }
        Ok(all)
    }

    fn caches(&self) -> Counts {
        // They only help the reader; a switch that does not report them is measured all the same.
        self.running.as_ref().and_then(|r| r.caches().ok()).unwrap_or_default()
    }

    fn spread(&self) -> Vec<u64> {
        // See `caches`.
        self.running.as_ref().and_then(|r| r.spread().ok()).filter(|s| s.len() > 1).unwrap_or_default()
    }

    /// Offers a load and accounts for it.
    pub fn offer(&mut self, load: &Load) -> Result<Offered, String> {
        self.offer_to_the_living(load).map_err(|error| {
            // Its sockets are closed a moment before it has ended.
            std::thread::sleep(ENDING);
            match self.check_alive() {
                Err(died) if died != error => format!("{died}: {error}"),
                _ => error,
            }
        })
    }

    fn offer_to_the_living(&mut self, load: &Load) -> Result<Offered, String> {
        if let Some(why) = self.refuses(load) {
            return Err(why);
        }
        let (before, caches, spread) = (self.drops()?, self.caches(), self.spread());
        self.offering.begin(load, &self.pids())?;
        let mut sent = self.finish()?;
        self.check_alive()?;
        self.add_dropped(&mut sent, &before)?;
        let caches = self.caches().into_iter().map(|(tier, n)| {
            let old = caches.get(&tier).copied().unwrap_or(0);
            (tier, n.saturating_sub(old))
        });
        let caches = caches.collect();
        let spread = self.spread().iter().zip(&spread).map(|(a, b)| a.saturating_sub(*b)).collect();
        let used = &sent.used;
        let of_switch = self.switch_pid().and_then(|pid| used.by(pid));
        let waited = of_switch.map_or(0.0, |of| of.waited);
        let context_switches = of_switch.map(|of| of.context_switches);
        let limit = limit(load, &sent, self.parts.topology, waited, self.processors.is_some());
        let forwarder = self.running.as_ref().and_then(|running| running.forwarder());
        let switch_cpu_s = forwarder.and_then(|pid| used.by(pid)).map(|of| of.cpu_s);
        let guest_cpu_s = self.guests.values().map(|guest| Some(used.by(guest.id())?.cpu_s)).sum();
        let machine_cpu_s = used.busy_s().and_then(|busy_s| match self.parts.own_work {
            Some(own) => own.rest_of(busy_s, &sent),
            None => Some((busy_s - sent.cpu_s).max(0.0)),
        });
        let switch_rss_bytes =
            self.switch_pid().and_then(|pid| crate::daemon::status_bytes(pid, "VmRSS:").ok());
        Ok(Offered {
            sent,
            switch_cpu_s,
            guest_cpu_s,
            machine_cpu_s,
            switch_rss_bytes,
            caches,
            spread,
            context_switches,
            limit,
            latency_limit: of_latency(waited),
        })
    }

    fn finish(&mut self) -> Result<Sent, String> {
        let sent = self.offering.finish()?;
        self.watched = self.watched.and(sent.used.watched);
        Ok(sent)
    }

    /// The processes of switch and guests.
    fn pids(&self) -> Vec<u32> {
        self.guests.values().map(Process::id).chain(self.switch_pid()).collect()
    }

    /// Adds to the account what switch, kernel and guests have dropped since an earlier moment.
    fn add_dropped(&mut self, sent: &mut Sent, before: &Counts) -> Result<(), String> {
        let mut dropped = self.dropped_since(before, sent)?;
        // A stalled switch still has frames, and its counters are not those of one moment.
        for _ in 0..AGAIN_MAX {
            let mut account = sent.account.clone();
            account.dropped.extend(dropped.clone());
            if account.unexplained() == 0 {
                break;
            }
            let Some(again) = self.offering.again()? else { break };
            sent.account = again.account;
            dropped = self.dropped_since(before, sent)?;
        }
        sent.account.dropped.extend(dropped);
        Ok(())
    }

    fn dropped_since(&self, before: &Counts, sent: &Sent) -> Result<Counts, String> {
        let mut dropped = Counts::new();
        for (name, count) in self.drops()? {
            let more = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
            if more > 0 {
                dropped.insert(name, more);
            }
        }
        let twice = self.running.as_ref().map(|r| r.twice()).unwrap_or_default();
        count_once(&mut dropped, self.parts.topology.ports.len().max(2), twice, &sent.refused);
        Ok(dropped)
    }

    /// Offers a load and does something to the bed when a tenth of its time is over. Where switch and guests
    /// live on, their counters and the kernel's say what became of the frames; else they go with the process
    /// that had them.
    pub fn offer_while(&mut self, load: &Load, upset: Upset) -> Result<Upsetting, String> {
        if let Some(why) = self.refuses(load) {
            return Err(why);
        }
        let before = if upset.ends_counters() { None } else { Some(self.drops()?) };
        self.offering.begin(load, &self.pids())?;
        std::thread::sleep(Duration::from_secs_f64(load.seconds / 10.0));
        let start = Instant::now();
        let done = self.upset(upset, load.seconds);
        let took = start.elapsed();
        let mut sent = self.finish()?;
        done?;
        if let Some(before) = before {
            self.add_dropped(&mut sent, &before)?;
        }
        let limit = of_generator(load, &sent, self.processors.is_some());
        Ok(Upsetting { sent, took, limit })
    }

    fn upset(&mut self, upset: Upset, seconds: f64) -> Result<(), String> {
        match upset {
            Upset::Restart => {
                self.running = None;
                self.start_switch()
            }
            Upset::Kill => {
                self.running.as_mut().ok_or("there is no switch")?.kill()?;
                self.running = None;
                self.start_switch()
            }
            Upset::Guest => {
                let index = *self.guests.keys().next().ok_or("the topology has no guest")?;
                self.guests.remove(&index);
                if let Some(socket) = self.sockets.get(&index) {
                    let _ = std::fs::remove_file(socket);
                }
                let guest =
                    start_guest(&self.parts, &self.net, &self.sockets, index, self.processors.as_ref())?;
                self.guests.insert(index, guest);
                Ok(())
            }
            Upset::Block => {
                let ms = BLOCK_MS.min((seconds * 1e3 * BLOCK_SHARE) as u64);
                self.running.as_mut().ok_or("there is no switch")?.block(ms)
            }
            Upset::Link => {
                let outputs = self.parts.topology.outputs();
                let is_nic = |n: &&usize| self.parts.topology.ports[**n] == End::Nic;
                let last = *outputs.iter().rfind(is_nic).ok_or("no frames come back by a NIC")?;
                self.net.batch(&self.net.outside, &format!("link set e{last} down"))?;
                std::thread::sleep(Duration::from_millis(500));
                self.net.batch(&self.net.outside, &format!("link set e{last} up"))
            }
        }
    }

    /// Why that cannot be done here.
    pub fn refuses_upset(&self, upset: Upset) -> Option<String> {
        let is_process = self.switch_pid().is_some();
        match upset {
            Upset::Restart | Upset::Kill | Upset::Block if !is_process => {
                Some("the switch is part of the kernel".into())
            }
            Upset::Guest if self.guests.is_empty() => Some("the topology has no guest".into()),
            _ => None,
        }
    }
}

fn start_guest(
    parts: &Parts,
    net: &Net,
    sockets: &BTreeMap<usize, PathBuf>,
    index: usize,
    processors: Option<&Processors>,
) -> Result<Process, String> {
    let interface = format!("vm{index}");
    let nowhere = PathBuf::new();
    let socket = sockets.get(&index).unwrap_or(&nowhere);
    let (namespace, rings, mtu) = (&net.switch, parts.rings, parts.mtu);
    let queues = parts.guest.queues(parts.workers);
    // Guests have theirs in the order of their ports.
    let before = parts.topology.ports[..index].iter().filter(|end| **end == End::Guest).count();
    let cpu = processors.and_then(|own| own.guests.get(before).copied());
    let place = guest::Place { socket, interface: &interface, namespace, rings, mtu, queues, cpu };
    let own: Vec<usize> = cpu.into_iter().collect();
    let guest = on(&own, || parts.guest.start(&place))?;
    if sockets.contains_key(&index) {
        wait_for(socket)?;
        return Ok(guest);
    }
    let start = Instant::now();
    while net.batch(&net.switch, &format!("link set {interface} up")).is_err() {
        if start.elapsed() > START {
            return Err(format!("the guest made no interface {interface}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    net.without_offloads(&net.switch, &[interface])?;
    Ok(guest)
}

/// The generator's places, by the index of the port that each leads to.
fn stage<'n>(
    parts: &Parts,
    net: &'n Net,
    sockets: &BTreeMap<usize, PathBuf>,
    processors: Option<&Processors>,
) -> Stage<'n> {
    let cpu = processors.map(|own| own.generator);
    let (topology, vnic) = (parts.topology, parts.guest.vnic());
    let descriptors = parts.rings.rx.into();
    // Without a switch, the generator's places are all there is.
    let straight = |places, output| Stage {
        net,
        places,
        sources: vec![(0, false)],
        outputs: vec![output],
        copies: 1,
        descriptors,
        cpu,
    };
    if topology.ports.is_empty() {
        return straight(["e0", "e1"].map(|name| Place::Interface(name.into())).to_vec(), 1);
    }
    if !topology.has_switch() {
        return straight(sockets.values().map(|socket| Place::Backend(socket.clone())).collect(), 0);
    }
    let outputs = topology.outputs();
    let used: Vec<usize> =
        (0..topology.ports.len()).filter(|n| topology.sources.contains(n) || outputs.contains(n)).collect();
    let place = |n: &usize| match (topology.ports[*n], vnic) {
        (End::Station, Vnic::Tap) => Place::Tap(format!("vm{n}")),
        (End::Station, Vnic::VhostUser) => Place::Socket(sockets[n].clone()),
        _ => Place::Interface(format!("e{n}")),
    };
    let at = |n: &usize| used.iter().position(|u| u == n).unwrap_or(0);
    Stage {
        net,
        places: used.iter().map(place).collect(),
        sources: topology.sources.iter().map(|n| (at(n), topology.backward.contains(n))).collect(),
        outputs: outputs.iter().map(at).collect(),
        copies: topology.copies(),
        descriptors,
        cpu,
    }
}

fn conditions(parts: &Parts) -> BTreeMap<String, String> {
    let mut conditions: BTreeMap<String, String> = [
        ("mtu", parts.mtu.to_string()),
        (CPU_TIME, WHILE_SENDING.to_string()),
        ("rules", rules::kind(parts.pattern, !parts.generator.sends_pattern()).to_string()),
        ("generator", parts.generator.name().to_string()),
        ("direction", parts.topology.direction().to_string()),
    ]
    .map(|(k, v)| (k.to_string(), v))
    .into();
    if parts.own_work.is_some() {
        conditions.insert(GENERATOR_TIME.into(), OWN_WORK.into());
    }
    if parts.topology.has_guests() {
        conditions.insert("guest".into(), parts.guest.name().into());
        conditions.insert("vnic".into(), parts.guest.vnic().name().into());
        conditions.extend(parts.guest.conditions().into_iter().map(|(k, v)| (k.to_string(), v)));
        let Rings { rx, tx, burst } = parts.guest.rings(parts.rings);
        let descriptors = if rx == tx { rx.to_string() } else { format!("{rx} rx, {tx} tx") };
        conditions.insert("descriptors".into(), descriptors);
        conditions.insert("guest burst".into(), burst.to_string());
        if parts.workers > 1 {
            conditions.insert("guest queues".into(), parts.guest.queues(parts.workers).to_string());
        }
    }
    conditions
}
