//! The plan: compares what runs with what is wanted, and turns the difference into steps. Plain data in,
//! plain data out.

use crate::config::Wanted;
use crate::config::wanted::{self, BridgeSettings, Controller, Interface, OfPortsBefore, SwitchWide};
use base::{OfPort, PortNo};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use switch::VlanConfig;

/// Ports removed per step. Each step waits until all workers have completed a pass, which takes long while
/// they are flooding.
const REMOVED_AT_ONCE: usize = 64;

/// One change. Names are those of bridges and interfaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
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

/// A plan, and how far it is: see [`super`].
pub struct Reconciliation {
    pub(super) wanted: Rc<Wanted>,
    before: Rc<OfPortsBefore>,
    pub(super) steps: VecDeque<Step>,
    /// Numbers that interfaces had which the plan takes away, for the case that they come back.
    numbers: OfPortsBefore,
}

/// What runs, to the extent that a plan depends on it.
pub struct Running<'a> {
    pub(super) wants_sweep: bool,
    pub(super) switch: &'a SwitchWide,
    pub(super) bridges: Vec<RunningBridge<'a>>,
    /// Ascending by their numbers in the datapath.
    pub(super) ports: Vec<RunningPort<'a>>,
    /// Interfaces that could not be had.
    pub(super) failed: Vec<&'a str>,
}

/// An existing bridge.
pub(super) struct RunningBridge<'a> {
    pub name: &'a str,
    pub settings: &'a BridgeSettings,
    pub controllers: &'a BTreeMap<String, Controller>,
}

/// An existing interface.
pub(super) struct RunningPort<'a> {
    pub port_no: PortNo,
    pub of_port: OfPort,
    /// Its bridge's name.
    pub bridge: &'a str,
    pub name: &'a str,
    pub port_name: &'a str,
    pub interface: &'a Interface,
    /// Its device is gone, or works no more.
    pub is_broken: bool,
    /// It is a patch port whose last change was refused: the port is unchanged although its row changed.
    pub is_refused: bool,
    pub vlan: &'a VlanConfig,
    pub protected: bool,
    pub queue_dscp: &'a BTreeMap<u32, u8>,
}

impl<'a> Running<'a> {
    fn bridge(&self, name: &str) -> Option<&RunningBridge<'a>> {
        self.bridges.iter().find(|bridge| bridge.name == name)
    }
}

impl Reconciliation {
    /// Makes the plan.
    pub fn plan(running: &Running<'_>, wanted: Rc<Wanted>, before: Rc<OfPortsBefore>) -> Reconciliation {
        let mut r = Reconciliation { wanted, before, steps: VecDeque::new(), numbers: BTreeMap::new() };
        if running.wants_sweep {
            r.steps.push_back(Step::Sweep);
        }
        if *running.switch != r.wanted.switch {
            r.steps.push_back(Step::SetSwitchWide);
        }
        let wanted = r.wanted.clone();
        let interfaces = wanted.interfaces();
        r.plan_removals(running, &interfaces);
        for (name, bridge) in &wanted.bridges {
            match running.bridge(name) {
                None => r.steps.push_back(Step::AddBridge(name.clone())),
                Some(found)
                    if *found.settings != bridge.settings || *found.controllers != bridge.controllers =>
                {
                    r.steps.push_back(Step::SetBridge(name.clone()));
                }
                Some(_) => {}
            }
        }
        r.plan_interfaces(running);
        let is_stale = |name: &&str| !interfaces.contains_key(*name);
        if !r.steps.is_empty() || running.failed.iter().any(is_stale) {
            r.steps.push_back(Step::Settle);
        }
        r
    }

    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty()
    }

    /// The previous number of an interface that is about to be added.
    pub(super) fn number_before(&self, interface: &str) -> Option<OfPort> {
        self.numbers.get(interface).or_else(|| self.before.get(interface)).copied()
    }

    /// Plans the removal of what is not wanted, does not exist any more, or has another type.
    fn plan_removals(&mut self, running: &Running<'_>, wanted: &HashMap<&str, (&str, &Interface)>) {
        let mut removed = Vec::new();
        for record in &running.ports {
            let wanted = wanted.get(record.name);
            let stays = wanted.is_some_and(|(at, i)| *at == record.bridge && !must_be_made_anew(record, i));
            if !stays {
                removed.push(record.port_no);
                if record.of_port != OfPort::LOCAL {
                    self.numbers.insert(record.name.into(), record.of_port);
                }
            }
        }
        self.steps.extend(removed.chunks(REMOVED_AT_ONCE).map(|numbers| Step::Remove(numbers.to_vec())));
        for bridge in &running.bridges {
            if !self.wanted.bridges.contains_key(bridge.name) {
                self.steps.push_back(Step::RemoveBridge(bridge.name.into()));
            }
        }
    }

    /// Interfaces that stay and change, then those that are new.
    fn plan_interfaces(&mut self, running: &Running<'_>) {
        let removals = self.steps.iter().filter_map(|s| if let Step::Remove(n) = s { Some(n) } else { None });
        let removed: BTreeSet<PortNo> = removals.flatten().copied().collect();
        let staying: BTreeMap<&str, &RunningPort<'_>> =
            (running.ports.iter()).filter(|r| !removed.contains(&r.port_no)).map(|r| (r.name, r)).collect();
        let mut new = Vec::new();
        for (bridge_name, bridge) in &self.wanted.bridges {
            for (port, interface) in bridge.interfaces() {
                let names = (bridge_name.clone(), port.name.clone(), interface.name.clone());
                match staying.get(interface.name.as_str()) {
                    None => {
                        let is_local = interface.name == *bridge_name;
                        let number = interface.of_port_request.is_some();
                        let before = self.number_before(&interface.name);
                        let had_it = number && before == interface.of_port_request;
                        new.push(((!is_local, !had_it, !number, before.is_none()), names));
                    }
                    Some(record) => {
                        let same = !record.is_refused
                            && *record.interface == *interface
                            && record.port_name == port.name
                            && *record.vlan == port.vlan
                            && record.protected == port.protected
                            && *record.queue_dscp == port.queue_dscp;
                        if !same {
                            let (bridge, port, interface) = names;
                            self.steps.push_back(Step::Change { bridge, port, interface });
                        }
                    }
                }
            }
        }
        for (name, bridge) in &self.wanted.bridges {
            if !misnumbered(bridge, &running.ports, &removed).is_empty() {
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

/// Whether a port cannot be changed into what is wanted: its type changes, or its device is gone.
fn must_be_made_anew(record: &RunningPort<'_>, wanted: &Interface) -> bool {
    record.interface.kind != wanted.kind || record.is_broken
}

/// A name as people sort it: `p2` before `p10`.
fn natural(name: &str) -> (&str, u64) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (letters, name[letters.len()..].parse().unwrap_or(0))
}

/// Which ports of a bridge must have other OpenFlow numbers: the requested one, or any that is free. `but`
/// are ports that are about to be removed.
///
/// A number belongs to the port that requests it; among several, to the one that has it, or else to the
/// first. A port that has it without requesting it gives way.
pub(super) fn misnumbered(
    wanted: &wanted::Bridge,
    ports: &[RunningPort<'_>],
    but: &BTreeSet<PortNo>,
) -> Vec<(PortNo, Option<OfPort>)> {
    let requests: BTreeMap<&str, OfPort> = (wanted.interfaces())
        .filter(|(_, i)| i.name != wanted.name)
        .filter_map(|(_, i)| Some((i.name.as_str(), i.of_port_request?)))
        .collect();
    if requests.is_empty() {
        return Vec::new();
    }
    let mut running: Vec<&RunningPort<'_>> = ports
        .iter()
        .filter(|p| p.bridge == wanted.name && !but.contains(&p.port_no) && p.of_port != OfPort::LOCAL)
        .collect();
    running.sort_by_key(|p| p.of_port);
    let mut owners: BTreeMap<OfPort, &str> = BTreeMap::new();
    for port in &running {
        if requests.get(port.name) == Some(&port.of_port) {
            owners.insert(port.of_port, port.name);
        }
    }
    let mut names: Vec<&str> = requests.keys().copied().collect();
    names.sort_by_key(|name| natural(name));
    for name in names {
        owners.entry(requests[name]).or_insert(name);
    }
    let mut moved = Vec::new();
    for port in &running {
        let mine = requests.get(port.name).filter(|n| owners[n] == port.name);
        match mine {
            Some(number) if *number != port.of_port => moved.push((port.port_no, Some(*number))),
            Some(_) => {}
            None if owners.contains_key(&port.of_port) => moved.push((port.port_no, None)),
            None => {}
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::Bridge;

    fn wanted(ports: &[&str]) -> Wanted {
        let mut bridge = Bridge::new("br0");
        ["br0"].iter().chain(ports).for_each(|name| drop(bridge.add(Interface::new(name, "dummy")).clone()));
        Wanted { bridges: [("br0".to_string(), bridge)].into(), ..Wanted::default() }
    }

    /// A switch that is what was wanted, with the ports numbered in the order of their names.
    fn running<'w>(wanted: &'w Wanted) -> Running<'w> {
        let bridge = &wanted.bridges["br0"];
        let port = |(n, (port, interface)): (usize, (&'w wanted::Port, &'w Interface))| RunningPort {
            port_no: PortNo(n as u32 + 1),
            of_port: if interface.name == "br0" { OfPort::LOCAL } else { OfPort(n as u16 + 1) },
            bridge: "br0",
            name: &interface.name,
            port_name: &port.name,
            interface,
            is_broken: false,
            is_refused: false,
            vlan: &port.vlan,
            protected: port.protected,
            queue_dscp: &port.queue_dscp,
        };
        Running {
            wants_sweep: false,
            switch: &wanted.switch,
            bridges: vec![RunningBridge {
                name: "br0",
                settings: &bridge.settings,
                controllers: &bridge.controllers,
            }],
            ports: bridge.interfaces().enumerate().map(port).collect(),
            failed: Vec::new(),
        }
    }

    fn steps(running: &Running<'_>, wanted: &Wanted) -> Vec<Step> {
        Reconciliation::plan(running, Rc::new(wanted.clone()), Default::default()).steps.into()
    }

    fn add(name: &str) -> Step {
        Step::Add { bridge: "br0".into(), port: name.into(), interface: name.into() }
    }

    #[test]
    fn what_runs_as_wanted_has_no_steps_and_each_difference_has_its_own() {
        let before = wanted(&["p1", "p2"]);
        assert_eq!(steps(&running(&before), &before), []);
        let number = running(&before).ports.iter().find(|p| p.name == "p1").map(|p| p.port_no).unwrap();
        let after = wanted(&["p2", "p10", "p9"]);
        let expected = [Step::Remove(vec![number]), add("p9"), add("p10"), Step::Settle];
        assert_eq!(steps(&running(&before), &after), expected, "p9 before p10");
        let none = Wanted::default();
        let removed = steps(&running(&before), &none);
        assert!(
            matches!(&removed[..], [Step::Remove(all), Step::RemoveBridge(_), Step::Settle] if all.len() == 3)
        );
    }

    #[test]
    fn a_broken_device_is_made_anew_and_one_that_failed_and_is_not_wanted_is_forgotten() {
        let same = wanted(&["p1"]);
        let mut broken = running(&same);
        let port = broken.ports.iter_mut().find(|p| p.name == "p1").unwrap();
        port.is_broken = true;
        let number = port.port_no;
        assert_eq!(steps(&broken, &same), [Step::Remove(vec![number]), add("p1"), Step::Settle]);
        let failed = Running { failed: vec!["p7"], ..running(&same) };
        assert_eq!(steps(&failed, &same), [Step::Settle]);
    }

    #[test]
    fn who_asks_for_a_number_gets_it_and_its_holder_another() {
        let before = wanted(&["p1", "p2"]);
        let mut after = before.clone();
        let bridge = after.bridges.get_mut("br0").unwrap();
        let asks = bridge.ports.get_mut("p2").unwrap().interfaces.get_mut("p2").unwrap();
        let held = running(&before).ports.iter().find(|p| p.name == "p1").map(|p| p.of_port).unwrap();
        asks.of_port_request = Some(held);
        let now = running(&before);
        assert!(steps(&now, &after).contains(&Step::Renumber("br0".into())));
        let moved = misnumbered(&after.bridges["br0"], &now.ports, &BTreeSet::new());
        let of = |name: &str| now.ports.iter().find(|p| p.name == name).map(|p| p.port_no).unwrap();
        assert_eq!(moved, [(of("p1"), None), (of("p2"), Some(held))]);
    }
}
