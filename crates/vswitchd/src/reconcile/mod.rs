//! The switch becomes what it shall be: what runs is compared with [`Wanted`], and the difference is carried
//! out.
//!
//! A [`Reconciliation`] is a plan, made at once, and carried out step by step: between two steps the control
//! thread may serve others, so that a thousand new ports hold up no connection. What is the same on both
//! sides has no step, so it is not touched. Steps name bridges and interfaces, not numbers, and look for what
//! they change when they are carried out, so a device that goes away meanwhile harms no step but its own.
//!
//! An interface that cannot be had is remembered with its error ([`Failures`](crate::failures::Failures)),
//! and is tried again by the next plan: there is one when the configuration changes and when the kernel tells
//! of a new device.
//!
//! Order: devices that an earlier process left; settings of the switch as a whole; what goes, so that names,
//! numbers and devices are free for what comes (devices go on the janitor's thread, and a step that needs a
//! name waits for it); then bridges; then interfaces that stay and change; then numbers of ports that have
//! another than they ask for; then new ones, a bridge's own before the others and those that ask for a number
//! before those that do not; last what depends on all of them: patch cables, MTUs and addresses of bridges.
//!
//! Files: this one has the plan; `switch_wide`, `bridges` and `interfaces` carry it out.

mod bridges;
mod interfaces;
mod switch_wide;
#[cfg(test)]
mod tests;

use crate::config::Wanted;
use crate::config::wanted::{Interface, OfPortsBefore};
use crate::state::{PortRecord, Vswitch};
use base::{OfPort, PortNo};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Ports removed in one step. Each step waits until the workers have come round, which takes long where they
/// are flooding.
const REMOVED_AT_ONCE: usize = 128;

/// What became of the interfaces that are wanted, by name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// What became of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Its OpenFlow number; `None` where it could not be had.
    pub of_port: Option<OfPort>,
    /// What could not be done as asked.
    pub error: Option<String>,
}

/// One change. Names are those of bridges and interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Devices that an earlier process left and that are not wanted.
    Sweep,
    SetSwitchWide,
    /// Ports, together: workers are waited for once.
    Remove(Vec<PortNo>),
    RemoveBridge(String),
    AddBridge(String),
    SetBridge(String),
    /// OpenFlow numbers of a bridge's ports.
    Renumber(String),
    Change {
        bridge: String,
        port: String,
        interface: String,
    },
    Add {
        bridge: String,
        port: String,
        interface: String,
    },
    /// Patch cables, MTUs and addresses.
    Settle,
}

/// See the module's text.
pub struct Reconciliation {
    wanted: Wanted,
    before: OfPortsBefore,
    steps: VecDeque<Step>,
    /// Numbers that interfaces had which the plan takes away, for the case that they come back.
    numbers: OfPortsBefore,
}

/// How far a plan is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There are more steps.
    More,
    /// The next step, or the end, waits for a device to go: it is to be tried again in a moment.
    Waiting,
    /// All is done.
    Done,
}

/// Makes the switch what it shall be. Blocks until all is done, see [`Reconciliation`] for the other way.
pub fn reconcile(vswitch: &mut Vswitch, wanted: &Wanted, before: &OfPortsBefore) -> Outcomes {
    let mut reconciliation = Reconciliation::plan(vswitch, wanted, before);
    loop {
        match reconciliation.step(vswitch) {
            Progress::More => {}
            Progress::Waiting => std::thread::sleep(std::time::Duration::from_millis(1)),
            Progress::Done => return reconciliation.outcomes(vswitch),
        }
    }
}

impl Reconciliation {
    /// What is to be done.
    pub fn plan(vswitch: &Vswitch, wanted: &Wanted, before: &OfPortsBefore) -> Reconciliation {
        let mut r = Reconciliation {
            wanted: wanted.clone(),
            before: before.clone(),
            steps: VecDeque::new(),
            numbers: BTreeMap::new(),
        };
        if vswitch.devices.wants_sweep() {
            r.steps.push_back(Step::Sweep);
        }
        if vswitch.settings != wanted.switch {
            r.steps.push_back(Step::SetSwitchWide);
        }
        r.plan_removals(vswitch);
        for (name, bridge) in &r.wanted.bridges {
            match vswitch.bridge_named(name) {
                None => r.steps.push_back(Step::AddBridge(name.clone())),
                Some(found)
                    if found.settings != bridge.settings || found.controllers != bridge.controllers =>
                {
                    r.steps.push_back(Step::SetBridge(name.clone()));
                }
                Some(_) => {}
            }
        }
        r.plan_interfaces(vswitch);
        let failed = |name: &String| r.wanted.interface(name).is_none();
        if !r.steps.is_empty() || vswitch.failures.names().any(failed) {
            r.steps.push_back(Step::Settle);
        }
        r
    }

    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty()
    }

    /// Carries out the next step.
    pub fn step(&mut self, vswitch: &mut Vswitch) -> Progress {
        // What comes may be of the same name as what leaves.
        let is_settled = vswitch.finish_leaving() & vswitch.finish_workers();
        if !is_settled || self.steps.front().is_some_and(|step| self.must_wait(step, vswitch)) {
            return Progress::Waiting;
        }
        match self.steps.pop_front() {
            None => {}
            Some(Step::Sweep) => vswitch.devices.sweep(&self.wanted),
            Some(Step::SetSwitchWide) => vswitch.set_switch_wide(&self.wanted.switch),
            Some(Step::Remove(numbers)) => vswitch.remove_ports(&numbers),
            Some(Step::RemoveBridge(name)) => vswitch.remove_bridge(&name),
            Some(Step::AddBridge(name)) => {
                vswitch.add_bridge(&name, &self.wanted.bridges[&name]);
                vswitch.tell_rules();
            }
            Some(Step::SetBridge(name)) => vswitch.set_bridge(&name, &self.wanted.bridges[&name]),
            Some(Step::Renumber(name)) => vswitch.renumber(&self.wanted.bridges[&name]),
            Some(Step::Change { bridge, port, interface }) => {
                let port = &self.wanted.bridges[&bridge].ports[&port];
                vswitch.change_interface(port, &port.interfaces[&interface]);
            }
            Some(Step::Add { bridge, port, interface }) => {
                let port = &self.wanted.bridges[&bridge].ports[&port];
                let number = self.number_before(&interface);
                vswitch.add_interface(&bridge, port, &port.interfaces[&interface], number);
            }
            Some(Step::Settle) => {
                let wanted = &self.wanted;
                vswitch.failures.keep_only(|name| wanted.interface(name).is_some());
                vswitch.settle();
                vswitch.counts.reconfigures += 1;
            }
        }
        vswitch.deliver();
        match self.steps.is_empty() {
            false => Progress::More,
            // Whoever removed a port shall not find its device when he is told that this is in force.
            true if !vswitch.finish_leaving() || vswitch.devices.leaving() > 0 => Progress::Waiting,
            true if !vswitch.finish_workers() => Progress::Waiting,
            true => Progress::Done,
        }
    }

    /// Whether a device that is leaving is in a step's way.
    fn must_wait(&self, step: &Step, vswitch: &Vswitch) -> bool {
        match step {
            Step::Remove(_) => vswitch.devices.is_full(),
            Step::Add { bridge, port, interface } => {
                let interface = &self.wanted.bridges[bridge].ports[port].interfaces[interface];
                vswitch.devices.is_leaving(interface)
            }
            _ => false,
        }
    }

    /// The number that an interface had which is to be added.
    fn number_before(&self, interface: &str) -> Option<OfPort> {
        self.numbers.get(interface).or_else(|| self.before.get(interface)).copied()
    }

    /// What became of each interface that is wanted.
    pub fn outcomes(&self, vswitch: &Vswitch) -> Outcomes {
        let interfaces = self.wanted.bridges.values().flat_map(|b| b.interfaces());
        interfaces.map(|(_, i)| (i.name.clone(), vswitch.outcome(&i.name))).collect()
    }

    /// What runs and is not wanted, or not there or not of that type.
    fn plan_removals(&mut self, vswitch: &Vswitch) {
        let mut removed = Vec::new();
        for record in vswitch.ports.values() {
            let bridge = vswitch.bridges.get(&record.bridge).map(|b| b.name.as_str());
            let wanted = self.wanted.interface(&record.name);
            let stays = wanted.is_some_and(|(at, _, i)| Some(at) == bridge && !must_be_made_anew(record, i));
            if !stays {
                removed.push(record.port_no);
                if record.of_port != OfPort::LOCAL {
                    self.numbers.insert(record.name.clone(), record.of_port);
                }
            }
        }
        self.steps.extend(removed.chunks(REMOVED_AT_ONCE).map(|numbers| Step::Remove(numbers.to_vec())));
        for bridge in vswitch.bridges.values() {
            if !self.wanted.bridges.contains_key(&bridge.name) {
                self.steps.push_back(Step::RemoveBridge(bridge.name.clone()));
            }
        }
    }

    /// Interfaces that stay and change, then those that are new.
    fn plan_interfaces(&mut self, vswitch: &Vswitch) {
        let removals = self.steps.iter().filter_map(|s| if let Step::Remove(n) = s { Some(n) } else { None });
        let removed: BTreeSet<PortNo> = removals.flatten().copied().collect();
        let running: BTreeMap<&str, &PortRecord> = (vswitch.ports.values())
            .filter(|r| !removed.contains(&r.port_no))
            .map(|r| (r.name.as_str(), r))
            .collect();
        let mut new = Vec::new();
        for (bridge_name, bridge) in &self.wanted.bridges {
            for (port, interface) in bridge.interfaces() {
                let names = (bridge_name.clone(), port.name.clone(), interface.name.clone());
                match running.get(interface.name.as_str()) {
                    None => {
                        let is_local = interface.name == *bridge_name;
                        let number = interface.of_port_request.is_some();
                        let before = self.number_before(&interface.name);
                        let had_it = number && before == interface.of_port_request;
                        new.push(((!is_local, !had_it, !number, before.is_none()), names));
                    }
                    Some(record) => {
                        let spec = vswitch.port_spec(record.port_no);
                        let same = record.interface == *interface
                            && record.port_name == port.name
                            && spec.is_some_and(|s| s.vlan == port.vlan && s.protected == port.protected);
                        if !same {
                            let (bridge, port, interface) = names;
                            self.steps.push_back(Step::Change { bridge, port, interface });
                        }
                    }
                }
            }
        }
        for (name, bridge) in &self.wanted.bridges {
            if !vswitch.misnumbered(bridge, &removed).is_empty() {
                self.steps.push_back(Step::Renumber(name.clone()));
            }
        }
        new.sort_by(|(order, a), (other, b)| {
            order.cmp(other).then_with(|| natural(&a.2).cmp(&natural(&b.2)))
        });
        for (_, (bridge, port, interface)) in new {
            self.steps.push_back(Step::Add { bridge, port, interface });
        }
    }
}

/// Whether a port cannot become what is wanted: its type changes, or its device is gone.
fn must_be_made_anew(record: &PortRecord, wanted: &Interface) -> bool {
    record.interface.kind != wanted.kind || record.is_broken()
}

/// A name as people sort it: `p2` before `p10`.
fn natural(name: &str) -> (&str, u64) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (letters, name[letters.len()..].parse().unwrap_or(0))
}

impl Wanted {
    /// An interface by its name, with its bridge's name and its port.
    pub fn interface(&self, name: &str) -> Option<(&str, &crate::config::wanted::Port, &Interface)> {
        // A port's name is its interface's, but for bonds.
        let direct = self.bridges.values().find_map(|b| {
            let port = b.ports.get(name)?;
            Some((b.name.as_str(), port, port.interfaces.get(name)?))
        });
        direct.or_else(|| {
            let mut all = self.bridges.values().flat_map(|b| b.ports.values().map(move |p| (b, p)));
            all.find_map(|(b, p)| Some((b.name.as_str(), p, p.interfaces.get(name)?)))
        })
    }
}

impl Vswitch {
    /// The first interface that is not as it was asked for, and why.
    pub(crate) fn first_error(&self) -> Option<(String, String)> {
        let names = self.failures.names().chain(self.ports.values().map(|record| &record.name));
        names.map(|name| (name, self.outcome(name))).find_map(|(name, o)| Some((name.clone(), o.error?)))
    }

    /// What became of an interface.
    pub fn outcome(&self, name: &str) -> Outcome {
        self.outcome_of(name, self.port_named(name))
    }

    /// What became of an interface whose record is this.
    pub(crate) fn outcome_of(&self, name: &str, record: Option<&PortRecord>) -> Outcome {
        let failure = self.failures.error(name).map(String::from);
        let complaint = record.and_then(|r| {
            let refused = r.options_error.clone().or_else(|| r.error.clone());
            refused.or_else(|| r.interface.complaint.clone())
        });
        Outcome { of_port: record.map(|r| r.of_port), error: failure.or(complaint) }
    }
}
