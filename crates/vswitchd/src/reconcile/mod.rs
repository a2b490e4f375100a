//! Makes the switch match its configuration: compares what runs with [`Wanted`], and applies the difference.
//!
//! A [`Reconciliation`] is a plan, made at once and executed step by step: between two steps the control
//! thread may serve others, so a thousand new ports hold up no connection. What is the same on both sides has
//! no step, so it is not touched. Steps name bridges and interfaces, not numbers, and look up what they
//! change when they are executed, so a device that disappears meanwhile affects only its own step.
//!
//! An interface that cannot be opened is recorded with its error ([`Failures`](crate::failures::Failures))
//! and retried by the next plan: there is one when the configuration changes and when the kernel reports a
//! new device. While another process has its device, or is giving it up, the step is tried again between
//! other work of the control thread, for as long as [`ports::Wait`] says.
//!
//! Order: devices that an earlier process left behind; settings of the switch as a whole; removals, so that
//! names, numbers and devices are free for additions (devices are removed on the janitor's thread, and a step
//! that needs a name waits for it); then bridges; then changes of existing interfaces; then numbers of ports
//! that differ from those requested; then new interfaces, a bridge's own before the others and those that
//! request a number before those that do not; last what depends on all of them: patch cables, and MTUs and
//! addresses of bridges.
//!
//! Files: `plan` makes the plan, from plain data; the others execute it.

mod bridges;
mod interfaces;
mod plan;
mod switch_wide;
#[cfg(test)]
mod tests;

pub use plan::{Reconciliation, Running};

use crate::config::Wanted;
use crate::config::wanted::{Interface, OfPortsBefore};
use crate::plane::TURN;
use crate::state::{PortRecord, Vswitch};
use base::OfPort;
use plan::{RunningBridge, RunningPort, Step};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// The results for the wanted interfaces, by name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// The result for an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Its OpenFlow number; `None` if it could not be opened.
    pub of_port: Option<OfPort>,
    /// What could not be done as requested.
    pub error: Option<String>,
}

/// How far a plan is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There are more steps.
    More,
    /// The next step, or the end, waits for a device to disappear or to be given up: try again in a moment.
    Waiting,
    /// Everything is done, except that the janitor may have devices yet.
    Done,
}

/// Makes the switch match the configuration. Blocks until everything is done, and devices are gone; see
/// [`Reconciliation`] for the alternative.
pub fn reconcile(vswitch: &mut Vswitch, wanted: &Wanted, before: &OfPortsBefore) -> Outcomes {
    let mut reconciliation =
        Reconciliation::plan(&vswitch.running(), wanted.clone().into(), before.clone().into());
    loop {
        match reconciliation.step(vswitch) {
            Progress::More => {}
            Progress::Waiting => std::thread::sleep(std::time::Duration::from_millis(1)),
            Progress::Done => {
                while vswitch.devices.leaving() > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                return reconciliation.outcomes(vswitch);
            }
        }
    }
}

impl Reconciliation {
    /// The removal of all bridges. Devices that an earlier process left are none of its business.
    pub fn of_all_bridges(vswitch: &Vswitch) -> Reconciliation {
        let wanted = Wanted { switch: vswitch.settings.clone(), ..Wanted::default() };
        let running = Running { wants_sweep: false, ..vswitch.running() };
        Reconciliation::plan(&running, wanted.into(), Default::default())
    }

    /// Carries out the next step.
    pub fn step(&mut self, vswitch: &mut Vswitch) -> Progress {
        // A new port may have the same name as one being removed.
        let is_settled = vswitch.devices.finish_leaving(&mut vswitch.plane.dp)
            & vswitch.workers.finish(&mut vswitch.plane, &vswitch.devices.ports);
        let is_settled = is_settled & !vswitch.go_on_with_own_changes(Instant::now() + TURN);
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
                vswitch.workers.tell_rules();
            }
            Some(Step::SetBridge(name)) => vswitch.set_bridge(&name, &self.wanted.bridges[&name]),
            Some(Step::Renumber(name)) => vswitch.renumber(&self.wanted.bridges[&name]),
            Some(Step::Change { bridge, port, interface }) => {
                let wanted = &self.wanted.bridges[&bridge].ports[&port];
                if vswitch.change_interface(wanted, &wanted.interfaces[&interface]) {
                    self.steps.push_front(Step::Add { bridge, port, interface });
                }
            }
            Some(Step::Add { bridge, port, interface }) => {
                let port = &self.wanted.bridges[&bridge].ports[&port];
                let number = self.number_before(&interface);
                if !vswitch.add_interface(&bridge, port, &port.interfaces[&interface], number) {
                    let port = port.name.clone();
                    self.steps.push_front(Step::Add { bridge, port, interface });
                    return Progress::Waiting;
                }
            }
            Some(Step::Settle) => {
                let wanted = self.wanted.interfaces();
                vswitch.devices.failures.keep_only(|name| wanted.contains_key(name));
                vswitch.devices.returning.retain(|name, _| wanted.contains_key(name.as_str()));
                vswitch.devices.awaited = None;
                vswitch.settle();
                vswitch.counts.reconfigures += 1;
            }
        }
        vswitch.deliver();
        match self.steps.is_empty() {
            false => Progress::More,
            true if vswitch.follow_mtus(Instant::now() + TURN) => Progress::More,
            true if !vswitch.devices.finish_leaving(&mut vswitch.plane.dp)
                || !vswitch.workers.finish(&mut vswitch.plane, &vswitch.devices.ports)
                || !vswitch.own_changes.is_empty() =>
            {
                Progress::Waiting
            }
            true => Progress::Done,
        }
    }

    /// Whether a step must wait for a device that is being released, by us or another process.
    fn must_wait(&self, step: &Step, vswitch: &mut Vswitch) -> bool {
        match step {
            Step::Remove(_) => vswitch.devices.is_full(),
            Step::Add { bridge, port, interface } => {
                let interface = &self.wanted.bridges[bridge].ports[port].interfaces[interface];
                vswitch.devices.is_leaving(interface) || vswitch.devices.must_await(interface)
            }
            _ => false,
        }
    }

    /// The result for each wanted interface.
    pub fn outcomes(&self, vswitch: &Vswitch) -> Outcomes {
        let interfaces = self.wanted.bridges.values().flat_map(|b| b.interfaces());
        let records: HashMap<&str, &PortRecord> =
            vswitch.devices.ports.values().map(|record| (record.name.as_str(), record)).collect();
        let outcome = |name: &str| vswitch.outcome_of(name, records.get(name).copied());
        interfaces.map(|(_, i)| (i.name.clone(), outcome(&i.name))).collect()
    }
}

impl Wanted {
    /// All interfaces by name, each with its bridge's name.
    pub(crate) fn interfaces(&self) -> HashMap<&str, (&str, &Interface)> {
        let all = self.bridges.values().flat_map(|b| b.interfaces().map(move |(_, i)| (b.name.as_str(), i)));
        all.map(|(bridge, i)| (i.name.as_str(), (bridge, i))).collect()
    }
}

impl Vswitch {
    /// What runs, as input for a plan.
    pub fn running(&self) -> Running<'_> {
        Running {
            wants_sweep: self.devices.wants_sweep(),
            switch: &self.settings,
            bridges: (self.bridges.values())
                .map(|b| RunningBridge { name: &b.name, settings: &b.settings, controllers: &b.controllers })
                .collect(),
            ports: (self.devices.ports.values())
                .filter_map(|record| {
                    let spec = self.plane.port_spec(record.port_no)?;
                    Some(RunningPort {
                        port_no: record.port_no,
                        of_port: record.of_port,
                        bridge: &self.bridges.get(&record.bridge)?.name,
                        name: &record.name,
                        port_name: &record.port_name,
                        interface: &record.interface,
                        is_broken: record.is_broken(),
                        is_refused: record.is_patch() && record.error.is_some(),
                        vlan: &spec.vlan,
                        protected: spec.protected,
                        queue_dscp: &spec.queue_dscp,
                    })
                })
                .collect(),
            failed: self.devices.failures.names().map(String::as_str).collect(),
        }
    }

    /// The first interface that is not as requested, and why, without its name once more.
    pub(crate) fn first_error(&self) -> Option<(String, String)> {
        let names =
            self.devices.failures.names().chain(self.devices.ports.values().map(|record| &record.name));
        let mut errors = names.filter_map(|name| Some((name.clone(), self.outcome(name).error?)));
        let (name, error) = errors.next()?;
        let why = interfaces::without_name(&name, &error).to_string();
        Some((name, why))
    }

    /// The result for an interface.
    pub fn outcome(&self, name: &str) -> Outcome {
        self.outcome_of(name, self.devices.port_named(name))
    }

    /// The result for an interface with this record.
    pub(crate) fn outcome_of(&self, name: &str, record: Option<&PortRecord>) -> Outcome {
        let failure = self.devices.failures.error(name).map(String::from);
        let complaint = record.and_then(|r| {
            let refused = r.options_error.as_ref().or(r.error.as_ref());
            let refused = refused.or_else(|| r.refused.values().next()).cloned();
            refused.or_else(|| r.interface.complaint.clone())
        });
        Outcome { of_port: record.map(|r| r.of_port), error: failure.or(complaint) }
    }
}
