//! The loads of a suite's grid: each runs on all its switches in turns, so that a slow minute of the machine
//! affects all.

mod grid;

pub use grid::loads;

use crate::lab::bed::{Bed, Parts};
use crate::lab::cable::Cable;
use crate::lab::generator::{self, Generator, Load as Offer};
use crate::lab::guest::{self, Guest, Rings};
use crate::lab::own_work::OwnWork;
use crate::lab::switch::{self, Ask, MTU_USUAL, Switch};
use crate::lab::topology::{self, End, Topology, Vnic};
use crate::lab::traffic::pattern::{Pattern, Protocol};
use crate::lab::trial::{self, Outcome, Times, Trial};
use crate::machine::huge_pages::HugePages;
use crate::result::{MISSES_MAX, Metric, PROCESSORS, Point};
use crate::suite::Mode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A switch under test (`None`: a direct connection) by its name, and its result: in the trial's form, and as
/// a point.
type Tried = (String, Option<Box<dyn Switch>>, Outcome, Point);

/// The topology with no switch.
const ALONE: &str = "loop";
/// For how many seconds each of two loads is offered to see the generator's own work, and the rate of the one
/// in short bursts where the load has none.
const OWN_WORK_S: f64 = 0.5;
const OWN_WORK_PPS: u64 = 50_000;
/// The longest frame of the usual MTU, and the MTU where frames are longer.
const FRAME_USUAL: u16 = 1_518;
const MTU_JUMBO: u16 = 9_000;

/// One combination of a grid, for all its switches.
#[derive(Clone)]
pub struct Load {
    /// From the suite.
    step: &'static str,
    /// Replaces the mode's number of turns.
    turns: Option<u32>,
    /// For the command that repeats it, as the operator gave them: `--quick --workers 2`.
    options: String,
    topology: &'static str,
    guest: &'static str,
    rings: Rings,
    /// From the suite; `None`: the operator chose the number.
    workers_wanted: Option<usize>,
    workers: usize,
    generator: String,
    pattern: Pattern,
    size: u16,
    flows: u32,
    /// Of a capture, each a flow: then sizes and flows of the grid say nothing.
    frames: Option<usize>,
    rules: u32,
    rate: u64,
    trial: &'static str,
    switches: Vec<String>,
    /// In place of veth pairs.
    cables: Vec<Cable>,
}

/// The result of a load.
#[derive(Default)]
pub struct Measured {
    /// A point for each switch.
    pub points: Vec<Point>,
    /// Why switches were left out.
    pub refused: Vec<String>,
    /// Deviations from the suite.
    pub notes: Vec<String>,
    /// Switches that failed, and why.
    pub failed: BTreeMap<String, String>,
}

/// A run's requests that override the suite's own choice.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Switches; all of the suite's if empty.
    pub switches: Vec<String>,
    /// Another generator.
    pub generator: Option<String>,
    /// Other traffic.
    pub traffic: Option<Pattern>,
    /// Workers of each switch, and queues of each port.
    pub workers: Option<usize>,
    /// Turns of each load.
    pub turns: Option<u32>,
    /// Interfaces of the machine in place of veth pairs.
    pub cables: Vec<Cable>,
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Turns of what generator and guest do alone, of which the best counts: no switch can be above it.
const CALIBRATION_TURNS: u32 = 3;

/// As many workers as are wanted, if the generator, a guest and the switch's other threads have a processor
/// each beside them: with less nobody has one of its own.
fn workers_here(wanted: usize, cpus: usize) -> usize {
    wanted.min(cpus.saturating_sub(3)).max(1)
}

fn times(mode: Mode) -> Times {
    match mode {
        Mode::Quick => Times { turns: 1, seconds: 0.3 },
        Mode::Normal => Times { turns: 5, seconds: 2.0 },
        Mode::Full => Times { turns: 5, seconds: 60.0 },
    }
}

impl Load {
    /// The part of a file's name that distinguishes it from other loads of its step.
    pub fn id(&self) -> String {
        let place = format!("{}.{}.{}.{}.{}", self.topology, self.guest, self.size, self.flows, self.rate);
        // A capture's path has characters that a file's name cannot have.
        let traffic = match &self.pattern.protocol {
            Protocol::Pcap(path) => {
                format!(".pcap-{}", path.file_stem().unwrap_or_default().to_string_lossy())
            }
            _ if self.pattern == Pattern::default() => String::new(),
            _ => format!(".{}", self.pattern),
        };
        let rules = if self.rules > 0 { format!(".{}rules", self.rules) } else { String::new() };
        format!("{place}{rules}{traffic}.{}", self.trial)
    }

    /// The name of the packets' way.
    pub fn topology(&self) -> &'static str {
        self.topology
    }

    /// How long it takes if each turn needs two seconds beside its loads, and a search has ten of them.
    pub fn planned(&self, mode: Mode) -> Duration {
        let trial = trial::list::find(self.trial);
        let Times { turns, seconds } = trial.map_or(times(mode), |trial| trial.times(times(mode)));
        let loads = f64::from(trial.map_or(1, Trial::loads));
        let turns = self.turns.unwrap_or(turns) * self.switches.len().max(1) as u32;
        Duration::from_secs_f64(f64::from(turns) * (2.0 + seconds * loads))
    }

    /// Runs it on all switches in turns, until it is interrupted.
    pub fn run(&self, suite: &str, mode: Mode, interrupted: &AtomicBool) -> Measured {
        let mut measured = Measured::default();
        let (Some(topology), Some(trial)) = (topology::find(self.topology), trial::list::find(self.trial))
        else {
            measured.failed.insert("all".into(), "the suite names what there is not".into());
            return measured;
        };
        let mut points;
        (points, measured.refused) = self.candidates(topology, trial);
        if let Some(wanted) = self.workers_wanted.filter(|wanted| *wanted > self.workers) {
            let text = format!("workers, and queues of each port: {} in place of {wanted}", self.workers);
            measured.notes.push(format!("{text}, since this machine has {} processors", cpus()));
        }
        if let Some(why) = self.too_short(mode) {
            measured.notes.push(why);
        }
        let cautions = points.iter().filter_map(|(_, switch, ..)| switch.as_deref()?.caution());
        let generator = generator::list::find(&self.generator).ok();
        let of_generator = generator.and_then(|generator| generator.caution());
        measured.notes.extend(cautions.chain(of_generator).map(str::to_string));
        // For all switches alike, whichever of them takes some.
        let pages = HugePages::provide();
        if let Err(why) = &pages {
            measured.notes.push(format!("no huge pages for any switch: {why}"));
        }
        let times = trial.times(times(mode));
        let times = Times { turns: self.turns.unwrap_or(times.turns), ..times };
        let mut own_work = None;
        for turn in 0..times.turns {
            // In each turn, like what it is subtracted from.
            let is_over = points.iter().all(|(name, ..)| measured.failed.contains_key(name))
                || interrupted.load(Ordering::Relaxed);
            if !is_over && (turn == 0 || own_work.is_some()) {
                match self.own_work(topology, times.seconds) {
                    Ok(found) => own_work = found,
                    Err(why) => measured.notes.push(format!("the generator alone: {why}")),
                }
            }
            for (name, switch, outcome, point) in &mut points {
                if measured.failed.contains_key(name) || interrupted.load(Ordering::Relaxed) {
                    continue;
                }
                eprint!("  turn {} of {}, {name}: ", turn + 1, times.turns);
                let with = (times.seconds, own_work.as_ref());
                match self.turn(topology, trial, switch.as_deref(), with, outcome, point) {
                    Ok(()) => eprintln!("{}", live(trial, outcome)),
                    Err(why) => {
                        eprintln!("failed");
                        measured.failed.insert(name.clone(), why);
                    }
                }
            }
        }
        for (name, _, outcome, mut point) in points.into_iter().filter(|(_, _, o, _)| !o.metrics.is_empty()) {
            point.warnings.extend(self.too_short(mode));
            measured.points.push(self.point(suite, name, outcome, point));
        }
        measured
    }

    /// Why nothing can be concluded from what a trial of this length finds.
    fn too_short(&self, mode: Mode) -> Option<String> {
        let seconds = times(mode).seconds;
        let is_search = trial::list::find(self.trial).is_some_and(Trial::is_search);
        (mode == Mode::Quick && is_search).then(|| {
            format!(
                "loads of {seconds} s and less are too short for {} to conclude on a rate without loss",
                self.trial
            )
        })
    }

    /// The switches of its points here: those that it names and that can do it, or `none` without a switch.
    pub fn measurable(&self) -> Vec<String> {
        let found = topology::find(self.topology).zip(trial::list::find(self.trial));
        let tried = found.map(|(topology, trial)| self.candidates(topology, trial).0).unwrap_or_default();
        tried.into_iter().map(|(name, ..)| name).collect()
    }

    /// Whether a switch that it names can be measured here.
    pub fn is_measurable(&self) -> bool {
        topology::find(self.topology).is_some_and(Topology::has_switch) && !self.measurable().is_empty()
    }

    /// The loads that say what its generator, and its guest, can do alone: of frames of the same size, flows
    /// and kind. A guest behind a tap device cannot be reached without a kernel between, and one that boots
    /// a system takes too long for a mere comparison.
    pub fn alone(&self) -> Vec<(String, Load)> {
        let mut alone = Vec::new();
        let of = |topology| Load {
            topology,
            trial: "max-rate",
            rules: 0,
            turns: Some(CALIBRATION_TURNS),
            rate: 0,
            workers: 1,
            workers_wanted: None,
            ..self.clone()
        };
        let frames = match self.pattern.protocol {
            Protocol::Imix => format!("a mix of sizes, {} flows", self.flows),
            Protocol::Pcap(_) => "frames of a capture".to_string(),
            _ if self.pattern == Pattern::default() => format!("{} bytes, {} flows", self.size, self.flows),
            _ => format!("{} bytes, {} flows, {}", self.size, self.flows, self.pattern),
        };
        alone.push((format!("generator {}, {frames}", self.generator), of(ALONE)));
        let has_guests = topology::find(self.topology).is_some_and(Topology::has_guests);
        let guest = guest::list::find(self.guest)
            .filter(|guest| has_guests && guest.vnic() == Vnic::VhostUser && guest.boots_within().is_zero());
        alone.extend(guest.map(|guest| {
            let name = format!("generator {} and guest {}, {frames}", self.generator, guest.name());
            (name, of("direct"))
        }));
        alone
    }

    /// The switches that can do it here, and why the others cannot.
    fn candidates(&self, topology: &Topology, trial: &dyn Trial) -> (Vec<Tried>, Vec<String>) {
        let (mut points, mut all_refused): (Vec<Tried>, Vec<String>) = (Vec::new(), Vec::new());
        let vnic = guest::list::find(self.guest).map_or(Vnic::VhostUser, |guest| guest.vnic());
        let generator = generator::list::find(&self.generator).ok();
        let is_foreign = generator.as_ref().is_some_and(|generator| !generator.sends_pattern());
        let is_paced = self.rate > 0 || trial.sets_rates();
        let offer = self.offer(0.0);
        let of_generator = generator.and_then(|generator| {
            generator
                .refuses_topology(topology, is_paced)
                .or_else(|| generator.refuses_flows(&offer, topology))
        });
        let ask = Ask { topology, vnic, pattern: &self.pattern, is_foreign, mtu: self.mtu() };
        let names = if topology.has_switch() { self.switches.clone() } else { vec!["none".to_string()] };
        for name in names {
            let found = if name == "none" { Ok(None) } else { switch::list::find(&name).map(Some) };
            let refused = match &found {
                Ok(Some(switch)) => switch.refuses(&ask),
                Ok(None) => None,
                Err(why) => Some(why.clone()),
            };
            let refused = refused
                .or_else(|| self.lacks_cables(topology))
                .or_else(|| of_generator.clone())
                .or_else(|| trial.refuses())
                .or_else(|| self.lacks_openflow(trial, found.as_ref().ok()?.as_deref()?))
                .or_else(|| guest::list::find(self.guest)?.refuses().filter(|_| topology.has_guests()));
            match (found, refused) {
                (Ok(switch), None) => {
                    let name = switch.as_ref().map_or(name, |switch| switch.name().to_string());
                    points.push((name, switch, Outcome::default(), Point::default()));
                }
                (_, why) => {
                    let why = why.unwrap_or_default();
                    all_refused.push(format!("{name} was not measured with {}: {why}", self.topology));
                }
            }
        }
        (points, all_refused)
    }

    /// Why the interfaces that the run names do not suffice.
    fn lacks_cables(&self, topology: &Topology) -> Option<String> {
        if let Some(missing) = Cable::missing(&self.cables) {
            return Some(missing);
        }
        let is_interface = |end: &&End| matches!(end, End::Nic | End::Idle);
        let of_ports = topology.ports.iter().filter(is_interface).count();
        let needed = if topology.ports.is_empty() { 1 } else { of_ports };
        let given = self.cables.len();
        (given > 0 && given < needed).then(|| format!("it needs {needed} cables, and --nic names {given}"))
    }

    /// Why a switch cannot have this table, or these changes to it.
    fn lacks_openflow(&self, trial: &dyn Trial, switch: &dyn Switch) -> Option<String> {
        let is_needed = self.rules > 0 || trial.needs_openflow();
        (is_needed && !switch.takes_openflow()).then(|| "it takes no OpenFlow".to_string())
    }

    fn turn(
        &self,
        topology: &Topology,
        trial: &dyn Trial,
        switch: Option<&dyn Switch>,
        (seconds, own_work): (f64, Option<&OwnWork>),
        outcome: &mut Outcome,
        point: &mut Point,
    ) -> Result<(), String> {
        let guest = guest::list::find(self.guest).ok_or("the suite names no guest that there is")?;
        let generator = generator::list::find(&self.generator)?;
        let parts = self.parts(topology, guest, generator.as_ref());
        let mut bed = Bed::start(Parts { switch, rules: self.rules, own_work, ..parts })?;
        let load = self.offer(seconds);
        let new = trial.run(&mut bed, &load, Times { turns: 1, seconds })?;
        outcome.add(Outcome { watched: bed.watched(), ..new });
        point.conditions = bed.conditions().clone();
        point.identity = bed.identity();
        Ok(())
    }

    /// The generator's own part of sending, if it can be known: where all of its ends are interfaces.
    fn own_work(&self, topology: &Topology, seconds: f64) -> Result<Option<OwnWork>, String> {
        let mut ends = topology.sources.iter().copied().chain(topology.outputs());
        let can_be_known = topology.has_switch() && ends.all(|n| topology.ports[n] == End::Nic);
        let Some(straight) = topology::find(ALONE).filter(|_| can_be_known) else { return Ok(None) };
        let guest = guest::list::find(self.guest).ok_or("the suite names no guest that there is")?;
        let generator = generator::list::find(&self.generator)?;
        let offer = self.offer(seconds.min(OWN_WORK_S));
        let short = Offer { rate: offer.rate.or(Some(OWN_WORK_PPS)), ..offer.clone() };
        let long = Offer { rate: None, ..offer };
        if generator.refuses_topology(straight, true).or(generator.refuses_flows(&short, straight)).is_some()
        {
            return Ok(None);
        }
        let mut bed = Bed::start(self.parts(straight, guest, generator.as_ref()))?;
        let (short, long) = (bed.offer(&short)?.sent.sending, bed.offer(&long)?.sent.sending);
        Ok(short.zip(long).map(|(short, long)| OwnWork::of(&short, &long)))
    }

    /// Those of a bed without a switch.
    fn parts<'a>(
        &'a self,
        topology: &'a Topology,
        guest: &'a dyn Guest,
        generator: &'a dyn Generator,
    ) -> Parts<'a> {
        Parts {
            topology,
            switch: None,
            guest,
            rings: self.rings,
            generator,
            flows: self.flows,
            rules: 0,
            pattern: &self.pattern,
            mtu: self.mtu(),
            workers: self.workers,
            cables: &self.cables,
            own_work: None,
        }
    }

    fn offer(&self, seconds: f64) -> Offer {
        let rate = Some(self.rate).filter(|rate| *rate > 0);
        let pattern = self.pattern.clone();
        Offer { size: self.size, flows: self.flows, rate, seconds, burst: None, pattern }
    }

    fn mtu(&self) -> u16 {
        if self.size > FRAME_USUAL { MTU_JUMBO } else { MTU_USUAL }
    }

    /// Bytes of a frame, or a description of its sizes.
    fn size(&self) -> String {
        match self.pattern.protocol {
            Protocol::Imix => "imix".into(),
            Protocol::Pcap(_) => "capture".into(),
            _ => self.size.to_string(),
        }
    }

    /// What distinguishes its points from those of other loads.
    fn labels(&self) -> BTreeMap<String, String> {
        let topology = topology::find(self.topology);
        let flows = self.frames.map_or_else(|| self.flows.to_string(), |frames| frames.to_string());
        let mut labels = vec![
            ("topology", self.topology.to_string()),
            ("size", self.size()),
            ("flows", flows),
            ("trial", self.trial.to_string()),
            ("copies", topology.map_or(1, Topology::copies).to_string()),
        ];
        if self.rules > 0 {
            labels.push(("rules", self.rules.to_string()));
        }
        labels.extend(trial::list::find(self.trial).map(Trial::labels).unwrap_or_default());
        if self.rate > 0 {
            labels.push(("offered_pps", self.rate.to_string()));
        }
        if topology.is_some_and(Topology::has_guests) {
            labels.push(("guest", self.guest.to_string()));
        }
        if self.pattern != Pattern::default() {
            labels.push(("traffic", self.pattern.to_string()));
        }
        labels.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
    }

    fn point(&self, suite: &str, switch: String, outcome: Outcome, mut point: Point) -> Point {
        point.suite = suite.into();
        point.switch = switch;
        point.labels = self.labels();
        point.warnings.extend(outcome.watched.warning());
        if !point.conditions.contains_key(PROCESSORS) {
            point.warnings.push(format!("generator, switch and guest share {} processors", cpus()));
        }
        for (is_warning, said) in
            trial::list::find(self.trial).map(|t| t.verdicts(&outcome.metrics)).unwrap_or_default()
        {
            eprintln!("  {}: {said}", point.switch);
            point.warnings.extend(is_warning.then(|| said.clone()));
            point.verdicts.push(said);
        }
        point.warnings.extend(of_new_flows(&outcome.metrics));
        point.metrics = outcome.metrics;
        point.account = Some(outcome.account);
        point.limit = outcome.limit;
        point.latency_limit = outcome.latency_limit;
        point.watched = Some(outcome.watched);
        point.command = format!("crosspoint bench run {suite}.{}{}", self.step, self.options);
        if point.switch != "none" {
            point.command += &format!(" --switch {}", point.switch);
        }
        point
    }
}

/// Each turn has a switch of its own, whose caches know no flow when the load begins: with many flows, or few
/// packets, first packets are a share of all.
fn of_new_flows(metrics: &BTreeMap<String, Metric>) -> Option<String> {
    let share = metrics.get("lookups_miss_ratio")?.median();
    let percent = share * 100.0;
    (share > MISSES_MAX)
        .then(|| format!("{percent:.1} % of the lookups were of new flows, whose cost is in the figures"))
}

/// The figure that an operator looks for first: the trial's own, or the rate.
fn live(trial: &dyn Trial, outcome: &Outcome) -> String {
    let own = trial.judged();
    let mut names = own.iter().map(|figure| &*figure.name).chain(["rate_pps"]);
    let found = names.find_map(|name| Some((name, outcome.metrics.get(name)?.values.last()?)));
    found.map(|(name, value)| format!("{name} {}", crate::stats::short(*value))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn loads_of(name: &str, mode: Mode, wanted: &Wanted) -> Vec<Load> {
        let suite = crate::suite::list::find(name).unwrap();
        let grids = suite
            .steps
            .iter()
            .filter_map(|s| if let crate::suite::Step::Grid(g) = s { Some(g) } else { None });
        grids.flat_map(|grid| loads(grid, mode, wanted)).collect()
    }

    #[test]
    fn another_version_takes_part_where_the_default_form_of_ours_does() {
        let wanted = Wanted { switches: vec!["crosspoint@/x".into()], ..Wanted::default() };
        for suite in crate::suite::list::suites() {
            for step in suite.steps {
                let crate::suite::Step::Grid(grid) = step else { continue };
                let has =
                    loads(grid, Mode::Quick, &wanted).iter().all(|load| load.switches == wanted.switches);
                assert_eq!(has, grid.switches.contains(&"crosspoint"), "{}.{}", suite.name, step.name());
                let has_switch = |name: &&str| topology::find(name).is_some_and(Topology::has_switch);
                let is_possible = has || !grid.topologies.iter().any(has_switch);
                assert_eq!(step.measures(&wanted.switches), is_possible, "{}.{}", suite.name, step.name());
            }
        }
        assert!(loads_of("rss-skew", Mode::Quick, &wanted)[0].switches.is_empty());
    }

    #[test]
    fn a_point_names_the_command_that_repeats_it_alone() {
        let wanted = Wanted {
            generator: Some("builtin-256".into()),
            traffic: Some("udp+l4".parse().unwrap()),
            workers: Some(2),
            turns: Some(7),
            ..Wanted::default()
        };
        let load = loads_of("latency", Mode::Quick, &wanted).remove(0);
        let point = load.point("latency", "bridge".into(), Outcome::default(), Point::default());
        assert_eq!(
            point.command,
            "crosspoint bench run latency.nic --quick --generator builtin-256 --traffic udp+l4 --workers 2 --turns 7 --switch bridge"
        );
        let load = loads_of("calibration", Mode::Normal, &Wanted::default()).remove(0);
        let point = load.point("calibration", "none".into(), Outcome::default(), Point::default());
        assert_eq!(point.command, "crosspoint bench run calibration.max");
    }

    #[test]
    fn a_point_with_many_first_packets_says_so() {
        let load = loads_of("latency", Mode::Quick, &Wanted::default()).remove(0);
        let warnings = |missed: f64| {
            let mut outcome = Outcome::default();
            outcome.push("lookups_miss_ratio", "ratio", crate::result::Better::Neither, missed);
            let point = load.point("latency", "bridge".into(), outcome, Point::default());
            point.warnings.iter().filter(|warning| warning.contains("new flows")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(warnings(0.047), ["4.7 % of the lookups were of new flows, whose cost is in the figures"]);
        assert!(warnings(0.001).is_empty());
    }

    #[test]
    fn frames_that_are_the_same_at_several_sizes_or_flows_are_one_load() {
        let dir = crate::process::TempDir::new("loads").unwrap();
        let capture = dir.0.join("x.pcap");
        crate::measure::frames::write_pcap(&capture, 3, crate::measure::frames::Order::Sequential).unwrap();
        let wanted = |traffic: &str| Wanted { traffic: Some(traffic.parse().unwrap()), ..Wanted::default() };
        let capture = format!("pcap={}", capture.display());
        for traffic in ["imix", &capture, "tcp-syn+ipv6"] {
            for suite in crate::suite::list::suites() {
                for step in suite.steps {
                    let crate::suite::Step::Grid(grid) = step else { continue };
                    let all = loads(grid, Mode::Normal, &wanted(traffic));
                    let distinct: BTreeSet<_> = all.iter().map(Load::labels).collect();
                    assert_eq!((distinct.len(), all.is_empty()), (all.len(), false), "{}", suite.name);
                }
            }
        }
        let labels = |traffic: &str| {
            let all = loads_of("packet-size", Mode::Normal, &wanted(traffic));
            let of = |name: &str| all.iter().map(|load| load.labels()[name].clone()).collect::<BTreeSet<_>>();
            (of("size").into_iter().collect::<Vec<_>>(), of("flows").into_iter().collect::<Vec<_>>())
        };
        assert_eq!(labels("imix").0, ["imix"]);
        assert_eq!(labels(&capture), (vec!["capture".to_string()], vec!["3".to_string()]));
    }

    #[test]
    fn what_a_generator_cannot_do_is_left_out_before_anything_is_started() {
        let refused = |suite: &str, topology: &str| -> String {
            let wanted = Wanted { generator: Some("testpmd-flowgen".into()), ..Wanted::default() };
            let mut loads = loads_of(suite, Mode::Quick, &wanted);
            loads.retain(|load| load.topology == topology);
            assert!(!loads[0].is_measurable());
            let trial = trial::list::find(loads[0].trial).unwrap();
            loads[0].candidates(topology::find(topology).unwrap(), trial).1.remove(0)
        };
        let at_a_rate = "crosspoint was not measured with P2P: dpdk-testpmd cannot be held to a rate";
        assert_eq!(refused("traffic", "P2P"), at_a_rate);
        assert!(refused("forwarding-table", "PV").contains("at one network interface only"));
        let one = Wanted { generator: Some("testpmd-txonly".into()), ..Wanted::default() };
        let load = loads_of("packet-size", Mode::Quick, &one).remove(0);
        let trial = trial::list::find(load.trial).unwrap();
        let why = load.candidates(topology::find("P2P").unwrap(), trial).1.remove(0);
        assert!(why.contains("testpmd-txonly sends one flow, not 100"), "{why}");
    }

    #[test]
    fn searches_of_a_quick_run_say_that_they_are_too_short() {
        for (suite, mode, is_short) in [
            ("native-vs-poll-mode", Mode::Quick, true),
            ("native-vs-poll-mode", Mode::Normal, false),
            ("load-curve", Mode::Quick, false),
        ] {
            let load = loads_of(suite, mode, &Wanted::default()).remove(0);
            let said = load.too_short(mode);
            assert_eq!(said.is_some_and(|s| s.contains("are too short for")), is_short, "{suite}");
        }
    }

    #[test]
    fn what_is_alone_is_the_generator_and_a_guest_that_it_can_reach() {
        let names = |suite: &str, guest: &str| -> Vec<String> {
            let loads = loads_of(suite, Mode::Quick, &Wanted::default());
            let load = loads.into_iter().find(|l| l.guest == guest && l.topology.contains('V')).unwrap();
            load.alone().into_iter().map(|(name, load)| format!("{name}: {}", load.topology)).collect()
        };
        let generator = |flows| format!("generator builtin, 64 bytes, {flows} flows: loop");
        let guest = "generator builtin and guest testpmd, 64 bytes, 10 flows: direct".to_string();
        assert_eq!(names("pvp-matrix", "testpmd"), [generator(10), guest]);
        for guest in ["qemu", "tap"] {
            let (suite, flows) = if guest == "tap" { ("forwarding-table", 100) } else { ("pvp-matrix", 10) };
            assert_eq!(names(suite, guest), [generator(flows)]);
        }
    }

    #[test]
    fn a_curve_of_a_quick_run_has_three_loads_and_other_steps_one() {
        let rates = |step: &str, mode| -> Vec<u64> {
            let loads = loads_of("load-curve", mode, &Wanted::default());
            loads.iter().filter(|l| l.step == step && l.topology == "P2P").map(|l| l.rate).collect()
        };
        assert_eq!(rates("nic", Mode::Quick), [10_000, 100_000, 400_000]);
        assert_eq!(rates("shares", Mode::Quick), [10_000]);
        assert_eq!(rates("nic", Mode::Normal).len(), 6);
    }

    #[test]
    fn workers_leave_processors_to_generator_guest_and_other_threads() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 64].map(|cpus| workers_here(4, cpus)), [1, 1, 1, 1, 2, 3, 4, 4]);
    }
}
