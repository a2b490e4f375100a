//! The two switches that `conntrack` measures, behind one face: packets in, cost and counters out.

use super::traffic::{COOKIES, Source};
use crate::machine::turns::turn;
use crate::measure::ovs_dpdk::OvsDpdk;
use crate::measure::rig::{Rig, Sample, settle};
use crate::measure::trial::{self, Meter, SINK, cycles};
use datapath::Config;
use datapath::conntrack::dump::Filter;
use openflow::text::{PortNames, parse_flow_file};
use std::time::{Duration, Instant};
use switch::control::{FlowMod, RuleFilter};

/// Maximum time for a capture that is played once.
const PLAYED_WITHIN: Duration = Duration::from_secs(120);
/// The peer's packet memory holds no more frames than this.
const PEER_FRAMES_MAX: u64 = 250_000;

/// Counters of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Packets received from the sources.
    pub received: u64,
    /// Packets sent to the sink.
    pub sent: u64,
    /// Packets of the rule with each cookie.
    pub by_rule: [u64; COOKIES],
}

impl Counts {
    /// The counts since an earlier moment.
    pub fn since(&self, before: &Counts) -> Counts {
        let mut by_rule = self.by_rule;
        by_rule.iter_mut().zip(&before.by_rule).for_each(|(now, before)| *now -= before);
        Counts { received: self.received - before.received, sent: self.sent - before.sent, by_rule }
    }
}

/// What packets cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Cycles per packet, of the CPU time spent on packets.
    pub cycles: f64,
    /// Packets per second of time. None if they came from a file: that is the file's rate.
    pub per_wall_second: Option<f64>,
    /// Lookups that no cache answered, for each packet.
    pub miss_ratio: f64,
}

impl From<Sample> for Cost {
    fn from(sample: Sample) -> Cost {
        Cost {
            cycles: sample.cycles_per_packet,
            per_wall_second: Some(sample.packets_per_wall_second),
            miss_ratio: sample.miss_ratio,
        }
    }
}

/// See the module documentation.
pub trait Side {
    /// As in rows.
    fn name(&self) -> &'static str;
    /// Plays captures to their end.
    fn play(&mut self, sources: &[Source]) -> Result<Cost, String>;
    /// Plays captures again and again, and measures for this time when all has settled.
    fn turn(&mut self, sources: &[Source], time: Duration) -> Result<Cost, String>;
    /// All packets so far.
    fn counts(&mut self) -> Result<Counts, String>;
    /// Connections that it knows.
    fn connections(&self) -> Result<u64, String>;
    /// Forgets all connections.
    fn forget(&mut self) -> Result<(), String>;
}

/// Crosspoint.
pub struct Ours(pub(super) Rig);

impl Ours {
    /// A switch with these rules.
    pub fn new(rules: &str) -> Result<Ours, String> {
        let mut rig = Rig::new(Config::default())?;
        rig.add_port(&trial::sink(SINK))?;
        let parsed = parse_flow_file(rules, None, PortNames::none()).map_err(|e| e.to_string())?;
        let mods = parsed.into_iter().map(|parsed| {
            let fm = parsed.flow_mod;
            FlowMod {
                table_id: fm.table_id,
                priority: fm.priority.into(),
                new_cookie: fm.new_cookie,
                ..FlowMod::add(fm.matching, fm.actions)
            }
        });
        rig.add_rules(&mods.collect::<Vec<_>>())?;
        Ok(Ours(rig))
    }

    /// Adds a capture that keeps its intervals, and ends.
    pub fn add_timed(&mut self, source: &Source) -> Result<(), String> {
        let spec = trial::source(source.port, &source.pcap);
        self.0.add_port(&spec.with("timed", "true").with("loop", "false"))
    }

    /// Adds captures that come as fast as the worker takes them.
    pub fn add(&mut self, sources: &[Source], repeats: bool) -> Result<(), String> {
        let spec =
            |s: &Source| trial::source(s.port, &s.pcap).with("loop", if repeats { "true" } else { "false" });
        sources.iter().try_for_each(|source| self.0.add_port(&spec(source)))
    }

    fn remove(&mut self, sources: &[Source]) -> Result<(), String> {
        sources.iter().try_for_each(|source| self.0.detach(source.port))
    }
}

impl Side for Ours {
    fn name(&self) -> &'static str {
        "crosspoint"
    }

    /// The worker sleeps before and after, so all its CPU time is these packets'.
    fn play(&mut self, sources: &[Source]) -> Result<Cost, String> {
        let packets: u64 = sources.iter().map(|s| s.frames).sum();
        let (before, start) = (Meter::read(&self.0), Instant::now());
        self.add(sources, false)?;
        // Until now files were read.
        let added = Meter::read(&self.0);
        let (sample, behind) = loop {
            let now = Meter::read(&self.0);
            let sample = now.since(&before);
            if sample.packets >= packets {
                break (sample, now.since(&added));
            }
            if start.elapsed() > PLAYED_WITHIN {
                return Err(format!("{} of {packets} packets were received in time", sample.packets));
            }
            self.0.pump();
            std::thread::sleep(Duration::from_micros(200));
        };
        self.remove(sources)?;
        // All packets of a short capture may have come before.
        let per_wall_second = Some(behind.packets_per_wall_second).filter(|_| behind.packets > 0);
        Ok(Cost { per_wall_second, ..sample.into() })
    }

    fn turn(&mut self, sources: &[Source], time: Duration) -> Result<Cost, String> {
        self.add(sources, true)?;
        self.0.warm_up(settle(1_000, time.as_millis() as u64));
        let sample = self.0.measure(time);
        self.remove(sources)?;
        Ok(sample.into())
    }

    fn counts(&mut self) -> Result<Counts, String> {
        if !self.0.datapath.fold(Duration::from_secs(30)) {
            return Err("counters did not come within 30 s".into());
        }
        let datapath = &self.0.datapath;
        let sent = datapath.port_counters(SINK).iter().map(|c| c.tx_packets.get()).sum();
        let mut counts = Counts { received: datapath.worker_stats(0).rx.get(), sent, ..Counts::default() };
        for rule in self.0.control.rules(self.0.bridge, &RuleFilter::default()) {
            counts.by_rule[rule.cookie as usize] = datapath.slot(rule.slot).packets;
        }
        Ok(counts)
    }

    fn connections(&self) -> Result<u64, String> {
        Ok(self.0.datapath.tracker().count().into())
    }

    fn forget(&mut self) -> Result<(), String> {
        self.0.datapath.tracker().flush(&Filter::default(), self.0.datapath.now_ms());
        Ok(())
    }
}

/// Open vSwitch, which runs only while it is asked for something.
pub struct Theirs {
    peer: OvsDpdk,
    /// The additional cost of a packet read from a file instead of memory, which is subtracted.
    pub of_file: f64,
}

impl Theirs {
    /// Starts it.
    pub fn start() -> Result<Theirs, String> {
        let peer = OvsDpdk::start()?;
        peer.isolate()?;
        peer.pause()?;
        Ok(Theirs { peer, of_file: 0.0 })
    }

    /// Replaces the rules, and forgets all connections.
    pub fn set_rules(&mut self, rules: &str) -> Result<(), String> {
        self.awake(|peer| {
            peer.set_rules(rules)?;
            peer.flush_connections()
        })
    }

    /// Whether these captures fit into memory, and so can be repeated.
    pub fn holds(sources: &[Source]) -> bool {
        sources.iter().map(|s| s.frames).sum::<u64>() <= PEER_FRAMES_MAX
    }

    fn awake<T>(&mut self, work: impl FnOnce(&mut OvsDpdk) -> Result<T, String>) -> Result<T, String> {
        self.peer.resume()?;
        let result = work(&mut self.peer);
        let paused = self.peer.pause();
        // What failed first says more.
        result.and_then(|result| paused.map(|()| result))
    }
}

fn ports_of(sources: &[Source]) -> Vec<(u16, &std::path::Path)> {
    sources.iter().map(|s| (s.port.0 as u16, s.pcap.as_path())).collect()
}

impl Side for Theirs {
    fn name(&self) -> &'static str {
        "ovs-dpdk"
    }

    /// Its thread polls before and after, which is taken off by the share of its cycles that it was busy.
    fn play(&mut self, sources: &[Source]) -> Result<Cost, String> {
        let packets: u64 = sources.iter().map(|s| s.frames).sum();
        let of_file = self.of_file;
        self.awake(|peer| {
            let ((received, missed), load) = (peer.lookups()?, peer.busy_reading()?);
            peer.set_sources(&ports_of(sources), false)?;
            let start = Instant::now();
            loop {
                let so_far = peer.packets_received()? - received;
                if so_far >= packets {
                    break;
                }
                if start.elapsed() > PLAYED_WITHIN {
                    return Err(format!("the peer received {so_far} of {packets} packets in time"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let (after, miss_ratio) = (peer.busy_reading()?, peer.lookups()?.1 - missed);
            let miss_ratio = miss_ratio as f64 / packets as f64;
            let (busy, idle) = ((after.1 - load.1) as f64, (after.2 - load.2) as f64);
            let all = cycles(after.0 - load.0) * busy / (busy + idle).max(1.0);
            Ok(Cost { cycles: all / packets as f64 - of_file, per_wall_second: None, miss_ratio })
        })
    }

    /// Captures that its memory does not hold are played from their files, once.
    fn turn(&mut self, sources: &[Source], time: Duration) -> Result<Cost, String> {
        if !Theirs::holds(sources) {
            return turn("ovs-dpdk", || self.play(sources));
        }
        self.awake(|peer| {
            peer.set_sources(&ports_of(sources), true)?;
            peer.warm_up(settle(1_000, time.as_millis() as u64))?;
            let sample = peer.measure(time)?;
            peer.stop_sources()?;
            Ok(sample.into())
        })
    }

    fn counts(&mut self) -> Result<Counts, String> {
        self.awake(|peer| {
            let (received, sent) =
                (peer.packets_received()?, peer.port_counters([("sink", "TX", "packets")])?[0]);
            let mut counts = Counts { received, sent, ..Counts::default() };
            for (cookie, packets) in peer.rule_packets()? {
                let of_rule =
                    counts.by_rule.get_mut(cookie as usize).ok_or("the peer has rules of others")?;
                *of_rule = packets;
            }
            Ok(counts)
        })
    }

    fn connections(&self) -> Result<u64, String> {
        self.peer.resume()?;
        let count = self.peer.connections();
        let paused = self.peer.pause();
        count.and_then(|count| paused.map(|()| count))
    }

    fn forget(&mut self) -> Result<(), String> {
        self.awake(|peer| peer.flush_connections())
    }
}
