//! Creating, changing and removing interfaces.

use super::plan::misnumbered;
use crate::config::wanted::{self, Interface, PATCH};
use crate::device_manager::{OpenError, Opening, Returning};
use crate::janitor::Fate;
use crate::scheduler::Event;
use crate::state::{PortRecord, Vswitch, stable_mac};
use base::{OfPort, PortNo};
use openflow::message::PortReason;
use packet::{LinkState, Port, PortStatus};
use std::collections::BTreeSet;
use switch::{BridgeIdx, PortKind};

/// An interface's error behind its name: some of Open vSwitch's begin with it.
pub(super) fn without_name<'a>(name: &str, error: &'a str) -> &'a str {
    error.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(error)
}

impl Vswitch {
    /// Adds an interface, or remembers why it cannot be had. `number_before` is one that it had. False if its
    /// device is busy, and it must be added again.
    pub(super) fn add_interface(
        &mut self,
        bridge: &str,
        port: &wanted::Port,
        interface: &Interface,
        number_before: Option<OfPort>,
    ) -> bool {
        let name = &interface.name;
        // Its row forgets the number while it has none.
        let number = number_before.or_else(|| self.devices.failures.of_port(name));
        match self.try_add(bridge, port, interface, number) {
            Ok(_) => self.devices.failures.forget(name),
            Err(OpenError::Busy(by)) => {
                self.devices.await_device(interface, by);
                return false;
            }
            Err(OpenError::Refused(error)) => self.failed(bridge, interface, error, number),
        }
        self.devices.awaited.take_if(|(awaited, _)| awaited == name);
        true
    }

    fn failed(&mut self, bridge: &str, interface: &Interface, error: String, number: Option<OfPort>) {
        if self.devices.failures.note(interface, &error, number) {
            let (name, why) = (&interface.name, without_name(&interface.name, &error));
            tracing::warn!(target: "bridge", "bridge {bridge}: interface {name}: {why}");
        }
    }

    fn try_add(
        &mut self,
        bridge: &str,
        port: &wanted::Port,
        interface: &Interface,
        number_before: Option<OfPort>,
    ) -> Result<PortNo, OpenError> {
        let name = &interface.name;
        let not_added = |why: &str| format!("could not add network device {name} to ofproto ({why})");
        let idx = self.bridge_named(bridge).ok_or_else(|| not_added("there is no such bridge"))?.idx;
        let is_local = name == bridge;
        let returning = self.devices.returning.get(name).filter(|port| port.bridge == idx).cloned();
        let port_no = (returning.as_ref().map(|port| port.port_no))
            .filter(|port_no| !self.devices.ports.contains_key(port_no))
            .or_else(|| self.devices.free_port_no(&self.plane.control, interface, is_local))
            .ok_or_else(|| not_added("no port number is free"))?;
        let (options, mut refused) = self.devices.usable_options(interface, port_no);
        let mut used = Interface { options, ..interface.clone() };
        let mut instead = "it has the default";
        let device = self.open_device(idx, &used, port_no, is_local).or_else(|error| {
            let (OpenError::Refused(why), Some(before)) = (&error, &returning) else { return Err(error) };
            used.options = before.options.clone();
            (refused, instead) = (Some(why.clone()), "it keeps its previous options");
            match self.open_device(idx, &used, port_no, is_local) {
                Err(OpenError::Refused(_)) => Err(error),
                busy_or_opened => busy_or_opened,
            }
        })?;
        let of_port = if is_local {
            OfPort::LOCAL
        } else {
            let first = returning.as_ref().map(|port| port.of_port).or(interface.of_port_request);
            self.choose_of_port(idx, [first, number_before])
                .ok_or_else(|| not_added("no port number is free"))?
        };
        self.install(idx, port, interface, (port_no, of_port), device).map_err(|why| not_added(&why))?;
        if let Some(error) = &refused {
            tracing::warn!(target: "bridge", "bridge {bridge}: {error}; {instead}");
        }
        self.devices.with_record(port_no, |r| {
            r.device_options = used.options;
            r.options_error = refused;
        });
        // If it cannot be opened yet, it returns later.
        self.devices.returning.remove(name);
        if let Some(returning) = returning {
            self.plane.update_port(port_no, |spec| spec.config = returning.config);
        }
        tell_interface(bridge, "added", name, of_port);
        self.workers.tell(&self.devices.ports);
        Ok(port_no)
    }

    /// The driver of an interface. `None` for patch ports.
    fn open_device(
        &self,
        bridge: BridgeIdx,
        interface: &Interface,
        port_no: PortNo,
        is_local: bool,
    ) -> Result<Option<Box<dyn Port>>, OpenError> {
        let local_mac = self.bridges.get(&bridge).filter(|_| is_local).map(|b| b.mac);
        self.devices.open(interface, Opening { port_no, local_mac }, self.plane.dp.pool())
    }

    /// Gives a device to the switch and the datapath.
    fn install(
        &mut self,
        bridge: BridgeIdx,
        port: &wanted::Port,
        interface: &Interface,
        (port_no, of_port): (PortNo, OfPort),
        device: Option<Box<dyn Port>>,
    ) -> Result<(), String> {
        let name = &interface.name;
        let status = device.as_ref().map_or_else(|| PortStatus::up(stable_mac(name), 0), |d| d.status());
        let in_switch = switch::PortSpec {
            kind: match &device {
                None => PortKind::Patch { peer: None },
                Some(_) if of_port == OfPort::LOCAL => PortKind::Local,
                Some(_) => PortKind::Normal,
            },
            link_up: status.link == LinkState::Up,
            vlan: port.vlan.clone(),
            protected: port.protected,
            queue_dscp: port.queue_dscp.clone(),
            ..switch::PortSpec::new(port_no, of_port, name)
        };
        // The switch first: a packet that arrives at once must find its bridge.
        if let Err(e) = self.plane.control.add_port(bridge, in_switch) {
            device.into_iter().for_each(|d| self.devices.give_up(interface, d, Fate::Removed));
            return Err(e.to_string());
        }
        if let Some(device) = device
            && let Err(e) = self.plane.dp.add_port(port_no, device)
        {
            self.plane.control.remove_port(port_no).expect("added above");
            return Err(e.to_string());
        }
        self.plane.dp.reserve_slots(self.plane.control.slot_count());
        for (key, value) in &status.details {
            tracing::debug!(target: "netdev", "{name}: {key}={value}");
        }
        let record = PortRecord {
            port_name: port.name.clone(),
            created_ms: self.plane.now_ms(),
            numa: self.plane.dp.port(port_no).and_then(|port| port.numa_node()),
            ..PortRecord::new((bridge, port_no, of_port), interface, status)
        };
        self.devices.ports.insert(port_no, record);
        self.workers.scheduler.note(Event::Queues);
        self.counts.ports_added += 1;
        self.tell_port(port_no, PortReason::Add);
        self.ask_again(port_no);
        Ok(())
    }

    /// Asks a port that is new for what it was not opened with: what it refuses is its error.
    fn ask_again(&mut self, port_no: PortNo) {
        let Some(record) = self.devices.ports.get(&port_no) else { return };
        let Interface { mtu_request, mac, .. } = record.interface;
        let is_others = record.interface.is_kernels() && !record.interface.makes_device();
        let mtu_now = record.status.mtu;
        if let Some(mtu) = mtu_request.filter(|mtu| *mtu != mtu_now) {
            self.change_device(port_no, "mtu_request", |port| port.set_mtu(mtu));
        }
        if let Some(mac) = mac.filter(|_| is_others) {
            self.change_device(port_no, "mac", |port| port.set_mac(mac));
        }
    }

    /// Takes ports out, and what they made in the kernel. The devices go once workers have given them up.
    pub(crate) fn remove_ports(&mut self, numbers: &[PortNo]) {
        let mut records = Vec::with_capacity(numbers.len());
        let mut removed = Vec::with_capacity(numbers.len());
        for &port_no in numbers {
            self.tell_port(port_no, PortReason::Delete);
            let Some(record) = self.devices.ports.remove(&port_no) else { continue };
            self.counts.ports_removed += 1;
            removed.push(port_no);
            self.workers.scheduler.forget(port_no);
            if let Some(bridge) = self.bridges.get(&record.bridge) {
                tell_interface(&bridge.name, "deleted", &record.name, record.of_port);
            }
            if !record.is_patch() {
                records.push(record);
            }
        }
        self.plane.control.remove_ports(&removed).expect("every record has a port in the switch");
        let with_device: Vec<PortNo> = records.iter().map(|record| record.port_no).collect();
        match self.plane.dp.begin_removal(&with_device) {
            Ok(removal) => {
                let opened = |r: PortRecord| Interface { options: r.device_options, ..r.interface };
                self.devices.leave(removal, records.into_iter().map(opened).collect());
            }
            Err(error) => tracing::error!(target: "dpif", "failed to remove ports: {error}"),
        }
        self.devices.finish_leaving(&mut self.plane.dp);
    }

    /// Applies changed settings to a running interface, whose type and bridge stay. Returns whether it must
    /// be added again now: some drivers take options only when a device is opened, so the port was taken out.
    pub(super) fn change_interface(&mut self, port: &wanted::Port, interface: &Interface) -> bool {
        let Some(record) = self.devices.port_named(&interface.name) else { return false };
        let (port_no, old) = (record.port_no, record.interface.clone());
        // What was refused is asked for again at every change.
        let was_refused = !record.refused.is_empty();
        let needs_reopening = interface.kind != PATCH
            && (old.options != interface.options
                && self.devices.needs_reopening(&mut self.plane, port_no, interface)
                || old.spreads_flows != interface.spreads_flows);
        if needs_reopening {
            self.remove_to_return(port_no, port_no);
            return true;
        }
        if let Some(error) = interface.patch_error() {
            self.devices.with_record(port_no, |r| r.error = Some(error));
            return false;
        }
        self.devices.with_record(port_no, |r| {
            r.error = None;
            r.refused.clear();
            r.interface = interface.clone();
        });
        if old.rxq_affinity != interface.rxq_affinity {
            self.workers.scheduler.note(Event::Queues);
        }
        if (was_refused || old.mac != interface.mac)
            && let Some(mac) = interface.mac
            && self.devices.ports.get(&port_no).is_some_and(|r| r.of_port != OfPort::LOCAL)
        {
            self.change_device(port_no, "mac", |p| p.set_mac(mac));
        }
        if (was_refused || old.mtu_request != interface.mtu_request)
            && let Some(mtu) = interface.mtu_request
        {
            self.change_device(port_no, "mtu_request", |p| p.set_mtu(mtu));
        }
        self.devices.with_record(port_no, |r| r.port_name = port.name.clone());
        self.plane.update_port(port_no, |spec| {
            spec.vlan = port.vlan.clone();
            spec.protected = port.protected;
            spec.queue_dscp = port.queue_dscp.clone();
        });
        false
    }

    /// Takes a port out that comes back when its interface is next added, with this number in the datapath.
    pub(crate) fn remove_to_return(&mut self, port_no: PortNo, to: PortNo) {
        let (Some(record), Some(spec)) = (self.devices.ports.get(&port_no), self.plane.port_spec(port_no))
        else {
            return;
        };
        let returning = Returning {
            bridge: record.bridge,
            port_no: to,
            of_port: record.of_port,
            config: spec.config,
            options: record.device_options.clone(),
        };
        self.devices.returning.insert(record.name.clone(), returning);
        self.remove_ports(&[port_no]);
    }

    /// Gives ports other OpenFlow numbers, see [`misnumbered`]. Devices are not touched.
    pub(super) fn renumber(&mut self, wanted: &wanted::Bridge) {
        let moved = misnumbered(wanted, &self.running().ports, &BTreeSet::new());
        let mut specs = Vec::with_capacity(moved.len());
        for (port_no, number) in moved {
            let Some(spec) = self.plane.port_spec(port_no).cloned() else { continue };
            self.tell_port(port_no, PortReason::Delete);
            tell_interface(&wanted.name, "deleted", &spec.name, spec.of_port);
            self.plane.control.remove_port(port_no).expect("it is there, looked up above");
            specs.push((spec, number));
        }
        // Ports with a known number first: the others take what is left.
        specs.sort_by_key(|(_, number)| number.is_none());
        let requested: BTreeSet<OfPort> =
            wanted.interfaces().filter_map(|(_, i)| i.of_port_request).collect();
        for (spec, number) in specs {
            let (port_no, old) = (spec.port_no, spec.of_port);
            let Some(bridge) = self.devices.ports.get(&port_no).map(|r| r.bridge) else { continue };
            self.devices.with_record(port_no, |r| r.of_port = OfPort::NONE);
            let of_port = number.or_else(|| self.next_of_port(bridge, &requested)).unwrap_or(old);
            let spec = switch::PortSpec { of_port, ..spec };
            tell_interface(&wanted.name, "added", &spec.name, of_port);
            self.plane.control.add_port(bridge, spec).expect("nobody has the number");
            self.devices.with_record(port_no, |r| r.of_port = of_port);
            self.tell_port(port_no, PortReason::Add);
        }
        self.plane.dp.reserve_slots(self.plane.control.slot_count());
    }

    /// Changes something in a device. What it refuses is the interface's error until it is accepted.
    pub(super) fn change_device(
        &mut self,
        port_no: PortNo,
        what: &'static str,
        change: impl FnOnce(&mut dyn Port) -> Result<(), String>,
    ) {
        let events = self.devices.change(&mut self.plane, port_no, what, change);
        self.follow_devices(events);
    }

    /// The first preferred number that is free; otherwise any free one.
    fn choose_of_port(&mut self, bridge: BridgeIdx, best: [Option<OfPort>; 2]) -> Option<OfPort> {
        let free = best.into_iter().flatten().find(|n| self.port_numbered(bridge, *n).is_none());
        free.or_else(|| self.next_of_port(bridge, &BTreeSet::new()))
    }

    /// The next free number after the last one assigned, so that a number is not reused soon.
    fn next_of_port(&mut self, bridge: BridgeIdx, but: &BTreeSet<OfPort>) -> Option<OfPort> {
        let last = self.bridges.get(&bridge)?.last_of_port;
        let max = OfPort::MAX.0;
        let found = (last + 1..max)
            .chain(1..=last)
            .map(OfPort)
            .find(|n| !but.contains(n) && self.port_numbered(bridge, *n).is_none())?;
        self.bridges.get_mut(&bridge)?.last_of_port = found.0;
        Some(found)
    }
}

/// Logs what became of an interface, as scripts expect.
fn tell_interface(bridge: &str, what: &str, name: &str, number: OfPort) {
    tracing::info!(target: "bridge", "bridge {bridge}: {what} interface {name} on port {}", number.0);
}
