//! Ports whose devices appear, disappear and change: how an observed device, or a notification from the
//! kernel, changes its port. Consequences for other parts are events.
//!
//! A port whose device is gone stays, with its link down, until there is a device with that name again: then
//! it is reopened. A device that was replaced by another with its name also counts as gone, however quickly
//! that happened: the two have different indexes.

use crate::config::wanted::{Interface, PATCH};
use crate::device_manager::DeviceManager;
use crate::plane::ForwardingPlane;
use crate::port_record::PortRecord;
use base::PortNo;
use packet::{LinkState, Port};
use ports::netlink::LinkEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use switch::BridgeIdx;

/// Each port is checked once in this many calls of [`DeviceManager::watch_some`].
const WATCH_SHARE: usize = 10;
/// The first number for patch ports.
const PATCH_FIRST: u32 = 32_768;

/// What other parts must know about a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PortEvent {
    /// Its queues have changed or moved, so they must be placed.
    Queues,
    /// Controllers see it differently.
    Changed(PortNo),
    /// Internal ports of its bridge may have to adopt its MTU.
    Mtu(BridgeIdx),
}

impl DeviceManager {
    pub fn port_named(&self, name: &str) -> Option<&PortRecord> {
        self.ports.values().find(|p| p.name == name)
    }

    pub fn with_record(&mut self, port_no: PortNo, change: impl FnOnce(&mut PortRecord)) {
        if let Some(record) = self.ports.get_mut(&port_no) {
            change(record);
        }
    }

    /// The number in a dummy port's name, if it is free, so that tests can predict it; otherwise the lowest
    /// free one.
    pub fn free_port_no(
        &self,
        control: &switch::Control,
        interface: &Interface,
        is_local: bool,
    ) -> Option<PortNo> {
        let is_free = |n: &PortNo| {
            n.0 > 0 && n.0 <= 0xffff && !self.ports.contains_key(n) && !control.is_remembered(*n)
        };
        let digits = interface.name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let digits = digits.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let named = digits.parse().ok().map(|n: u32| {
            // A bridge's own port leaves the low numbers to the others.
            PortNo(if is_local { n.saturating_add(100) } else { n })
        });
        let named = named.filter(|n| interface.is_dummy() && is_free(n));
        named.or_else(|| {
            let first = match interface.kind.as_str() {
                _ if is_local => 100,
                // The end of a patch cable is not a port of Open vSwitch's datapath, so it leaves the numbers
                // that users see to real ports.
                PATCH => PATCH_FIRST,
                _ => 1,
            };
            (first..=0xffff).map(PortNo).find(is_free)
        })
    }

    /// Looks at a share of the ports, so that a thousand of them do not hold up the rest.
    pub fn watch_some(&mut self, plane: &mut ForwardingPlane) -> Vec<PortEvent> {
        let mut events = Vec::new();
        for _ in 0..self.ports.len().div_ceil(WATCH_SHARE) {
            let after = (Bound::Excluded(self.watched), Bound::Unbounded);
            let next = self.ports.range(after).next().or_else(|| self.ports.iter().next());
            let Some((&port_no, _)) = next else { break };
            self.watched = port_no;
            events.extend(self.watch(plane, port_no));
        }
        events
    }

    /// Looks at a port's device.
    pub fn watch(&mut self, plane: &mut ForwardingPlane, port_no: PortNo) -> Vec<PortEvent> {
        let mut events = Vec::new();
        let queues_before = plane.dp.rx_workers(port_no).len();
        if plane.dp.adopt_queues(port_no) != queues_before {
            events.push(PortEvent::Queues);
        }
        let Some(record) = self.ports.get_mut(&port_no) else { return events };
        let Some(port) = plane.dp.port(port_no) else { return events };
        let seen = record.observe(port.status(), port.numa_node());
        if seen.is_numa_changed {
            events.push(PortEvent::Queues);
        }
        if seen.is_visible {
            let link_up = record.status.link == LinkState::Up;
            plane.update_port(port_no, |spec| spec.link_up = link_up);
            events.push(PortEvent::Changed(port_no));
        }
        events.extend(seen.is_mtu_changed.then_some(PortEvent::Mtu(record.bridge)));
        events
    }

    /// A port's device is gone.
    pub fn port_gone(&mut self, plane: &mut ForwardingPlane, port_no: PortNo) -> Option<PortEvent> {
        let record = self.ports.get_mut(&port_no).filter(|record| !record.gone)?;
        record.gone = true;
        if record.interface.is_kernels() {
            self.lost.insert(record.interface.device().into());
        }
        record.status.link = LinkState::Down;
        tracing::warn!(target: "netdev", "{}: the device is gone", record.name);
        plane.update_port(port_no, |spec| spec.link_up = false);
        Some(PortEvent::Changed(port_no))
    }

    /// Takes note of what the kernel tells. Says too whether a port may come that could not before.
    pub fn hear(&mut self, plane: &mut ForwardingPlane, told: &[LinkEvent]) -> (Vec<PortEvent>, bool) {
        let (mut may_come, mut look) = (false, false);
        let (mut events, mut changed) = (Vec::new(), BTreeSet::new());
        for event in told {
            match event {
                LinkEvent::Gone { ifindex } => {
                    events.extend(self.devices_gone(plane, |r| r.status.ifindex == *ifindex));
                }
                LinkEvent::Changed(link) => {
                    for record in self.ports.values().filter(|r| r.interface.device() == link.name) {
                        match record.status.ifindex {
                            now if now == link.ifindex => _ = changed.insert(record.port_no),
                            0 => {}
                            // Another device of the name, or the one before: an event may be older than its
                            // port.
                            _ => look = true,
                        }
                    }
                    may_come |= self.waits_for(&link.name);
                }
                LinkEvent::Overrun => (may_come, look) = (true, true),
            }
        }
        if look {
            may_come |= self.look_for_devices(plane, &mut events);
        }
        // Its link may be down: groups leave it now, not when its turn comes to be looked at.
        events.extend(changed.into_iter().flat_map(|port_no| self.watch(plane, port_no)));
        (events, may_come)
    }

    /// Compares ports with the existing devices. True if a port waits for a device that exists.
    fn look_for_devices(&mut self, plane: &mut ForwardingPlane, events: &mut Vec<PortEvent>) -> bool {
        let there: BTreeMap<String, u32> = match self.machine.links() {
            Ok(links) => links.into_iter().map(|link| (link.name, link.ifindex)).collect(),
            Err(error) => {
                tracing::warn!(target: "bridge", "devices cannot be listed: {error}");
                return true;
            }
        };
        let is_gone = |r: &PortRecord| there.get(r.interface.device()) != Some(&r.status.ifindex);
        events.extend(self.devices_gone(plane, is_gone));
        there.keys().any(|device| self.waits_for(device))
    }

    /// Informs ports whose device is gone before a worker notices. Only devices that we did not create: the
    /// switch's own may have been moved to another network namespace, where they still work.
    fn devices_gone(
        &mut self,
        plane: &mut ForwardingPlane,
        is_gone: impl Fn(&PortRecord) -> bool,
    ) -> Vec<PortEvent> {
        let is_lost =
            |r: &&PortRecord| r.interface.is_others() && r.status.ifindex != 0 && !r.gone && is_gone(r);
        let gone: Vec<PortNo> = self.ports.values().filter(is_lost).map(|r| r.port_no).collect();
        gone.into_iter().filter_map(|port_no| self.port_gone(plane, port_no)).collect()
    }

    fn waits_for(&self, device: &str) -> bool {
        self.failures.wait_for(device)
            || self.ports.values().any(|r| r.interface.device() == device && r.is_broken())
    }

    /// Changes something in a device. What it refuses is the interface's error until it is accepted.
    pub fn change(
        &mut self,
        plane: &mut ForwardingPlane,
        port_no: PortNo,
        what: &'static str,
        change: impl FnOnce(&mut dyn Port) -> Result<(), String>,
    ) -> Vec<PortEvent> {
        let Some(device) = plane.dp.port_mut(port_no) else { return Vec::new() };
        let changed = change(device.as_mut());
        self.with_record(port_no, |record| match changed {
            Ok(()) => drop(record.refused.remove(what)),
            Err(why) => {
                let error = format!("{}: could not set {what} ({why})", record.name);
                if record.refused.insert(what, error.clone()).as_ref() != Some(&error) {
                    tracing::warn!(target: "bridge", "{error}");
                }
            }
        });
        self.watch(plane, port_no)
    }

    /// Gives new options to a running device, if it accepts them or they have the same effect as the present
    /// ones. An invalid option is an error, and nothing changes. Returns whether the device must be reopened
    /// for them, which loses its packets and everything learned about the port.
    pub fn needs_reopening(
        &mut self,
        plane: &mut ForwardingPlane,
        port_no: PortNo,
        interface: &Interface,
    ) -> bool {
        let Some(record) = self.ports.get(&port_no) else { return false };
        let runs = Interface { options: record.device_options.clone(), ..record.interface.clone() };
        let taken = if runs.options == interface.options || self.have_same_effect(&runs, interface, port_no) {
            Ok(true)
        } else {
            self.check(interface, port_no).and_then(|()| match plane.dp.port_mut(port_no) {
                Some(device) => device
                    .set_options(&interface.options)
                    .map_err(|why| format!("{}: could not set configuration ({why})", interface.name)),
                None => Ok(false),
            })
        };
        let needs = taken == Ok(false);
        self.with_record(port_no, |record| {
            if taken == Ok(true) {
                record.device_options = interface.options.clone();
            }
            record.options_error = taken.err();
            if let Some(error) = &record.options_error {
                tracing::warn!(target: "bridge", "{error}; it keeps its previous options");
            }
        });
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use crate::device_manager::Opening;
    use crate::machine::ThisMachine;
    use base::OfPort;
    use datapath::CacheConfig;
    use host::rundir::RunDir;
    use ports::netlink::Link;
    use switch::{BridgeConfig, PortSpec};

    /// A plane, and ports of its one bridge, with numbers from 1.
    fn with_ports(interfaces: &[Interface]) -> (ForwardingPlane, DeviceManager) {
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let flags = DatapathFlags { pool_packets: 256, ..DatapathFlags::default() };
        let mut plane = ForwardingPlane::new(&flags, CacheConfig::default()).unwrap();
        plane.dp.start_worker(None).unwrap();
        let bridge = plane.control.add_bridge(BridgeConfig::new("br0"));
        let mut devices = DeviceManager::new(&config, Box::new(ThisMachine::start().unwrap()));
        for (number, interface) in (1u16..).zip(interfaces) {
            let (port_no, of_port) = (PortNo(number.into()), OfPort(number));
            // The kernel's devices belong to the machine that runs the test: a dummy stands for each.
            let dummy = Interface::new(&interface.name, "dummy");
            let opening = Opening { port_no, local_mac: None };
            let device = devices.open(&dummy, opening, plane.dp.pool()).unwrap().unwrap();
            let numa = device.numa_node();
            let new = PortRecord::new((bridge, port_no, of_port), interface, device.status());
            let spec = PortSpec { link_up: true, ..PortSpec::new(port_no, of_port, &interface.name) };
            plane.control.add_port(bridge, spec).unwrap();
            plane.dp.add_port(port_no, device).unwrap();
            devices.ports.insert(port_no, PortRecord { numa, ..new });
        }
        (plane, devices)
    }

    #[test]
    fn a_device_that_goes_takes_the_link_of_its_port_down_and_is_told_of_once() {
        let names = ["eth1", "eth2"].map(|name| Interface::new(name, "system"));
        let (mut plane, mut devices) = with_ports(&names);
        let (one, two) = (PortNo(1), PortNo(2));
        devices.with_record(one, |r| r.status.ifindex = 7);
        devices.with_record(two, |r| r.status.ifindex = 8);
        let gone = [LinkEvent::Gone { ifindex: 7 }];
        assert_eq!(devices.hear(&mut plane, &gone), (vec![PortEvent::Changed(one)], false));
        assert_eq!(devices.hear(&mut plane, &gone), (vec![], false), "that is known");
        let is_up = |plane: &ForwardingPlane, port_no| plane.port_spec(port_no).unwrap().link_up;
        assert!(!is_up(&plane, one) && is_up(&plane, two));
        let device = |name: &str, ifindex| {
            [LinkEvent::Changed(Link { name: name.into(), ifindex, ..Link::default() })]
        };
        devices.with_record(one, |r| r.status.ifindex = 0);
        assert!(devices.hear(&mut plane, &device("eth1", 9)).1, "it can be opened again");
        assert!(!devices.hear(&mut plane, &device("eth3", 10)).1, "nobody waits for that");
        devices.failures.note(&Interface::new("eth3", "system"), "no such device", None);
        assert!(devices.hear(&mut plane, &device("eth3", 10)).1);
    }

    #[test]
    fn what_changes_of_a_device_is_an_event_and_what_it_refuses_an_error() {
        let (mut plane, mut devices) = with_ports(&[Interface::new("p1", "dummy")]);
        let port_no = PortNo(1);
        assert_eq!(devices.watch_some(&mut plane), [], "all is as it was");
        let bridge = devices.ports[&port_no].bridge;
        let events = devices.change(&mut plane, port_no, "mtu", |port| port.set_mtu(1_400));
        assert_eq!(events, [PortEvent::Mtu(bridge)]);
        let events = devices.change(&mut plane, port_no, "mac", |_| Err("no".into()));
        assert_eq!(events, []);
        assert_eq!(devices.ports[&port_no].refused["mac"], "p1: could not set mac (no)");
        devices.change(&mut plane, port_no, "mac", |_| Ok(()));
        assert!(devices.ports[&port_no].refused.is_empty(), "no longer true");
    }

    #[test]
    fn port_numbers_are_those_in_names_of_dummies_or_the_lowest_that_are_free() {
        let (mut plane, mut devices) =
            with_ports(&[Interface::new("a", "dummy"), Interface::new("b", "dummy")]);
        let free = |devices: &DeviceManager, plane: &ForwardingPlane, name, kind, is_local| {
            devices.free_port_no(&plane.control, &Interface::new(name, kind), is_local)
        };
        let number = |name, kind, is_local| free(&devices, &plane, name, kind, is_local);
        assert_eq!(number("p7", "dummy", false), Some(PortNo(7)));
        assert_eq!(number("p2", "dummy", false), Some(PortNo(3)), "it is taken");
        assert_eq!(number("eth7", "system", false), Some(PortNo(3)));
        assert_eq!(number("br5", "dummy", true), Some(PortNo(105)));
        assert_eq!(number("x", PATCH, false), Some(PortNo(PATCH_FIRST)));
        // Packets to addresses behind a port that is gone must not go to another.
        let bridge = devices.ports.remove(&PortNo(2)).unwrap().bridge;
        let learn = |mac| switch::Effect::Learn { bridge, vlan: 0, mac, port: PortNo(2) };
        plane.control.apply(&(0..5_000).map(learn).collect::<Vec<_>>(), 0);
        plane.control.remove_port(PortNo(2)).unwrap();
        assert_eq!(free(&devices, &plane, "p2", "dummy", false), Some(PortNo(3)));
        while plane.control.is_forgetting(bridge) {
            plane.control.collect();
        }
        assert_eq!(free(&devices, &plane, "p2", "dummy", false), Some(PortNo(2)));
    }
}
