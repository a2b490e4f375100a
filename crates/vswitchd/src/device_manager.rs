//! The device manager: decides how the drivers of interfaces are opened, [watches](crate::port_watch) them,
//! and releases devices. It knows interfaces as they are configured, and nothing of bridges, rules or
//! connections; what it decides is done by a [`Machine`], for which tests have one of their own.
//!
//! A port is removed in three steps: workers give up its queues, its driver is passed to the
//! [janitor](crate::janitor), and the kernel takes its device down. Its name is not free before the last step
//! is done.

use crate::config::wanted::{Interface, PATCH, Wanted};
use crate::config::{Config, EnableDummy};
use crate::failures::Failures;
use crate::janitor::Fate;
use crate::machine::Machine;
use crate::plane::ForwardingPlane;
use crate::port_record::{PortRecord, Ports};
use base::{OfPort, PortNo};
use datapath::{Datapath, Pipeline, Removal};
use packet::{Pool, Port};
use ports::files::FileDirs;
use ports::{Blocker, PortError, PortMemory, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;
use switch::{BridgeIdx, PortConfig};
use tokio::sync::Notify;

/// See the module documentation.
pub(crate) struct DeviceManager {
    pub(crate) ports: Ports,
    /// Interfaces that are wanted and could not be had.
    pub(crate) failures: Failures,
    /// The port that was looked at last.
    pub(crate) watched: PortNo,
    /// Ports whose queues workers have not all given up yet, as they were opened.
    leaving: Vec<(Removal, Vec<Interface>)>,
    pub(crate) machine: Box<dyn Machine>,
    /// What becomes of the devices of ports that are removed.
    pub(crate) removed: Fate,
    /// The mark of the devices that outlive the process, see [`ports::PortSpec::owner`]. Known with the
    /// database.
    owner: Option<String>,
    /// The directories with files that options of ports may name.
    files: FileDirs,
    /// The same of dummies: with `--enable-dummy` those below the working and the run directory.
    dummy_files: Option<FileDirs>,
    /// The memory that options of all ports may take together.
    memory: PortMemory,
    /// Ports that were taken out and will return, by their interfaces' names.
    pub(crate) returning: BTreeMap<String, Returning>,
    /// A plan may have more ports to add than the last.
    pub(crate) may_come: Rc<Notify>,
    /// Bridges whose internal ports may have to adopt the MTU of the others, each with the first that has not
    /// been looked at.
    pub(crate) behind_mtu: BTreeMap<BridgeIdx, OfPort>,
    /// The interface that a plan waits for, because another process has its device.
    pub(crate) awaited: Option<(String, Wait)>,
    /// Devices that an earlier process left were looked for.
    is_swept: bool,
    /// Names of devices that were lost since [`Self::has_come_back`] was last asked.
    pub(crate) lost: BTreeSet<String>,
}

/// What a returning port had and will have again.
#[derive(Clone, Debug)]
pub(crate) struct Returning {
    pub bridge: BridgeIdx,
    /// Its number in the datapath.
    pub port_no: PortNo,
    pub of_port: OfPort,
    pub config: PortConfig,
    /// Used if the port cannot be opened with its new options.
    pub options: BTreeMap<String, String>,
}

/// How a device is opened, apart from its interface's settings.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Opening {
    /// Its port's number.
    pub port_no: PortNo,
    /// Its bridge's own, with the bridge's address.
    pub local_mac: Option<[u8; 6]>,
}

/// Why an interface could not be opened.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum OpenError {
    /// Its device is busy: there will be another attempt.
    Busy(Blocker),
    /// In Open vSwitch's words if it has any.
    Refused(String),
}

impl From<String> for OpenError {
    fn from(why: String) -> OpenError {
        OpenError::Refused(why)
    }
}

impl DeviceManager {
    /// Without ports.
    pub fn new(config: &Config, machine: Box<dyn Machine>) -> DeviceManager {
        DeviceManager {
            ports: Ports::new(),
            failures: Failures::default(),
            watched: PortNo::default(),
            leaving: Vec::new(),
            machine,
            removed: Fate::Removed,
            owner: None,
            files: config.datapath.files.clone(),
            dummy_files: dummy_files(config),
            memory: PortMemory::default(),
            returning: BTreeMap::new(),
            behind_mtu: BTreeMap::new(),
            may_come: Rc::new(Notify::new()),
            awaited: None,
            is_swept: false,
            lost: BTreeSet::new(),
        }
    }

    /// From now on, devices that are created outlive this process: the next one finds them by this mark.
    pub fn set_owner(&mut self, owner: String) {
        self.owner = Some(owner);
    }

    /// Whether to look for devices that an earlier process left behind.
    pub fn wants_sweep(&self) -> bool {
        self.owner.is_some() && !self.is_swept
    }

    /// Whether devices that this process creates stay for the next one.
    pub fn outlive(&self) -> bool {
        self.owner.is_some()
    }

    /// Allows options of ports to name files below other directories.
    #[cfg(test)]
    pub fn set_files(&mut self, files: FileDirs) {
        self.files = files;
    }

    /// Allows options of ports that are opened from now on to take other memory.
    #[cfg(test)]
    pub fn set_memory(&mut self, memory: PortMemory) {
        self.memory = memory;
    }

    /// The number of devices being released, whatever they wait for.
    pub fn leaving(&self) -> usize {
        self.machine.leaving()
    }

    /// Whether no more can be released for now.
    pub fn is_full(&self) -> bool {
        self.machine.is_full()
    }

    /// Whether an interface's device takes time to go, and one with that name is being released.
    pub fn is_leaving(&self, interface: &Interface) -> bool {
        takes_time(interface) && self.machine.is_leaving(interface.device())
    }

    /// Whether it is too soon for another attempt to open an interface whose device was busy.
    pub fn must_await(&mut self, interface: &Interface) -> bool {
        let machine = &self.machine;
        self.awaited.as_mut().is_some_and(|(name, wait)| {
            *name == interface.name && wait.is_too_soon(Instant::now(), |by| machine.is_gone(by))
        })
    }

    /// An interface's device is busy. An attempt follows when [`Self::must_await`] says so.
    pub fn await_device(&mut self, interface: &Interface, by: Blocker) {
        let now = Instant::now();
        match &mut self.awaited {
            Some((name, wait)) if *name == interface.name => wait.go_on(by, now),
            awaited => *awaited = Some((interface.name.clone(), Wait::begin(by, now))),
        }
    }

    /// Whether there will be another attempt to open an interface whose device is busy. After an error there
    /// is not: it would hold up every plan.
    fn retries_busy(&self, interface: &Interface) -> bool {
        match &self.awaited {
            Some((name, wait)) if *name == interface.name => !wait.is_over(Instant::now()),
            _ => self.failures.error(&interface.name).is_none(),
        }
    }

    /// Opens the driver of an interface. `None` for patch ports.
    pub fn open(
        &self,
        interface: &Interface,
        opening: Opening,
        pool: &'static Pool,
    ) -> Result<Option<Box<dyn Port>>, OpenError> {
        if interface.kind == PATCH {
            return interface.patch_error().map_or(Ok(None), |why| Err(OpenError::Refused(why)));
        }
        let retries_busy = self.retries_busy(interface);
        // A device that we did not create keeps its address.
        let own_mac = interface.mac.filter(|_| interface.makes_device() || !interface.is_kernels());
        let open = |mtu| {
            let spec = ports::PortSpec {
                mtu,
                mac: opening.local_mac.or(own_mac),
                owner: self.owner.clone(),
                retries_busy,
                ..self.spec(interface, opening.port_no)
            };
            self.machine.open(&spec, pool)
        };
        let opened = match open(interface.mtu_request) {
            Err(e)
                if interface.mtu_request.is_some()
                    && !matches!(e, PortError::NoSuchInterface { .. } | PortError::Busy { .. }) =>
            {
                // An MTU that cannot be set must not prevent the port from opening: it is tried again when
                // the port runs.
                open(None).map_err(|_| e)
            }
            opened => opened,
        };
        opened.map(Some).map_err(|e| match e {
            PortError::Busy { by, .. } if retries_busy => OpenError::Busy(by),
            e => OpenError::Refused(open_error(&interface.name, &e)),
        })
    }

    /// The options that a new port is opened with, and why not with all that it has: of some a bad value
    /// costs the option alone, as in Open vSwitch, whose AF_XDP ports alone are refused for their number of
    /// queues.
    pub fn usable_options(
        &self,
        interface: &Interface,
        port_no: PortNo,
    ) -> (BTreeMap<String, String>, Option<String>) {
        let mut options = interface.options.clone();
        let mut refused = Vec::new();
        while let Err(error) =
            ports::check(&ports::PortSpec { options: options.clone(), ..self.spec(interface, port_no) })
            && let PortError::BadOption { option, .. } = &error
            && !interface.driver().is_some_and(|driver| driver.is_strict)
            && matches!(option.as_str(), "n_rxq" | "n_txq" | "numa_id")
            && options.remove(option).is_some()
        {
            refused.push(open_error(&interface.name, &error));
        }
        (options, (!refused.is_empty()).then(|| refused.join("; ")))
    }

    /// Whether a device opened for one interface also satisfies another's settings.
    pub fn have_same_effect(&self, runs: &Interface, wanted: &Interface, port_no: PortNo) -> bool {
        ports::have_same_effect(&self.spec(runs, port_no), &self.spec(wanted, port_no))
    }

    /// Problems with an interface's options.
    pub fn check(&self, interface: &Interface, port_no: PortNo) -> Result<(), String> {
        ports::check(&self.spec(interface, port_no)).map_err(|error| open_error(&interface.name, &error))
    }

    /// Removes devices that an earlier process left and that nothing is wanted of any more.
    pub fn sweep(&mut self, wanted: &Wanted) {
        self.is_swept = true;
        let Some(owner) = &self.owner else { return };
        let links = match self.machine.links() {
            Ok(links) => links,
            Err(error) => {
                tracing::warn!(target: "netdev", "cannot look for devices of an earlier process: {error}");
                return;
            }
        };
        let interfaces = wanted.bridges.values().flat_map(|b| b.interfaces());
        let kept: BTreeSet<&str> =
            interfaces.filter(|(_, i)| i.makes_device()).map(|(_, i)| i.device()).collect();
        for link in links.iter().filter(|link| link.alias == *owner && !kept.contains(link.name.as_str())) {
            tracing::debug!(target: "netdev", "{}: removed, an earlier process has left it", link.name);
            self.machine.remove_device(&link.name, link.ifindex);
        }
    }

    /// Whether a lost device exists after all: another one with its name appeared before its port noticed.
    pub fn has_come_back(&mut self) -> bool {
        let lost = std::mem::take(&mut self.lost);
        let is_there = |links: Vec<ports::netlink::Link>| links.iter().any(|link| lost.contains(&link.name));
        !lost.is_empty() && self.machine.links().is_ok_and(is_there)
    }

    /// Takes over the devices of ports whose queues workers have been told to give up.
    pub fn leave(&mut self, removal: Removal, interfaces: Vec<Interface>) {
        self.leaving.push((removal, interfaces));
    }

    /// Releases the devices of ports whose queues all workers have given up. Returns whether none is left.
    pub fn finish_leaving<P: Pipeline>(&mut self, dp: &mut Datapath<P>) -> bool {
        for (removal, interfaces) in std::mem::take(&mut self.leaving) {
            match dp.finish_removal(removal) {
                Ok(ports) => {
                    for (interface, port) in interfaces.iter().zip(ports) {
                        self.give_up(interface, port, self.removed);
                    }
                }
                Err(removal) => self.leaving.push((removal, interfaces)),
            }
        }
        self.leaving.is_empty()
    }

    /// Gives a port's driver up, for which the kernel or a guest may take long.
    pub fn give_up(&self, interface: &Interface, port: Box<dyn Port>, fate: Fate) {
        if takes_time(interface) {
            self.machine.take_port(interface.device(), port, fate);
        }
    }

    /// The end: all ports go, and what was given up is waited for.
    pub fn close(&mut self, plane: &mut ForwardingPlane, fate: Fate) {
        let records: Vec<PortRecord> =
            std::mem::take(&mut self.ports).into_values().filter(|r| !r.is_patch()).collect();
        let numbers: Vec<PortNo> = records.iter().map(|record| record.port_no).collect();
        match plane.dp.remove_ports(&numbers) {
            Ok(ports) => {
                for (record, port) in records.iter().zip(ports) {
                    self.give_up(&record.interface, port, fate);
                }
            }
            Err(error) => tracing::error!(target: "dpif", "the workers did not release the ports: {error}"),
        }
        self.machine.finish();
    }

    /// A driver's part of an interface.
    fn spec(&self, interface: &Interface, port_no: PortNo) -> ports::PortSpec {
        ports::PortSpec {
            memory: self.memory.clone(),
            loads_in_background: true,
            ..spec(interface, port_no, &self.files, self.dummy_files.as_ref())
        }
    }
}

/// Whether others decide how long its device takes to go: the kernel, or a guest whose rings are read until
/// their end.
fn takes_time(interface: &Interface) -> bool {
    interface.is_kernels() || interface.is_guests()
}

fn spec(
    interface: &Interface,
    port_no: PortNo,
    files: &FileDirs,
    dummy_files: Option<&FileDirs>,
) -> ports::PortSpec {
    let files = dummy_files.filter(|_| interface.is_dummy()).unwrap_or(files);
    ports::PortSpec {
        options: interface.options.clone(),
        files: files.clone(),
        spreads_flows: interface.spreads_flows,
        ..ports::PortSpec::new(&interface.name, &interface.kind, port_no)
    }
}

/// Whether drivers would accept the types and options of all interfaces. Returns the first that would be
/// refused, and the error; what only a device itself can refuse is not found.
pub fn check(config: &Config, wanted: &Wanted) -> Result<(), (String, String)> {
    let dummy_files = dummy_files(config);
    let interfaces = wanted.bridges.values().flat_map(|bridge| bridge.interfaces());
    for (_, interface) in interfaces.filter(|(_, interface)| interface.kind != PATCH) {
        ports::check(&spec(interface, PortNo(1), &config.datapath.files, dummy_files.as_ref()))
            .map_err(|error| (interface.name.clone(), open_error(&interface.name, &error)))?;
    }
    Ok(())
}

/// Tests name files in the directory that they run in, which is the run directory as a rule.
fn dummy_files(config: &Config) -> Option<FileDirs> {
    if config.dummy == EnableDummy::No {
        return None;
    }
    let here = std::env::current_dir().ok().filter(|dir| dir.parent().is_some());
    let dirs = here.into_iter().chain([config.run_dir.path().to_path_buf()]).filter(|dir| dir.is_dir());
    Some(FileDirs::new(dirs).unwrap_or_default())
}

/// In Open vSwitch's words if it has any.
fn open_error(name: &str, error: &PortError) -> String {
    match error {
        PortError::NoSuchInterface { .. } => format!("could not open network device {name} (No such device)"),
        PortError::Loopback { .. } => {
            format!("could not add network device {name} to ofproto (Invalid argument)")
        }
        PortError::BadOption { .. } => format!("{name}: could not set configuration ({error})"),
        _ => format!("could not open network device {name} ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::{self as config, Bridge};
    use crate::config::{Database, Flags};
    use host::rundir::RunDir;
    use packet::PoolConfig;
    use ports::netlink::Link;
    use std::cell::{Cell, RefCell};

    /// The reason why [`Fake`]'s devices are busy.
    const THEIRS: Blocker = Blocker { ifindex: 7, queue_id: None };

    /// A machine with these devices, which notes what is done to it.
    #[derive(Default)]
    struct Fake {
        links: Vec<Link>,
        done: RefCell<Vec<String>>,
        refuses_mtu: Cell<bool>,
        is_busy: Cell<bool>,
    }

    impl Machine for Rc<Fake> {
        fn open(&self, spec: &ports::PortSpec, _pool: &'static Pool) -> Result<Box<dyn Port>, PortError> {
            self.done.borrow_mut().push(format!("open {} mtu {:?} mac {:?}", spec.name, spec.mtu, spec.mac));
            if !self.links.iter().any(|link| link.name == spec.name) {
                return Err(PortError::NoSuchInterface { name: spec.name.clone() });
            }
            match spec.mtu {
                _ if self.is_busy.get() => {
                    self.done.borrow_mut().push(format!("busy, retries {}", spec.retries_busy));
                    Err(PortError::Busy { by: THEIRS, why: "theirs".into() })
                }
                Some(_) if self.refuses_mtu.get() => Err(PortError::Loopback { name: "no such MTU".into() }),
                _ => Ok(sink()),
            }
        }

        fn is_gone(&self, blocker: Blocker) -> bool {
            assert_eq!(blocker, THEIRS);
            !self.is_busy.get()
        }

        fn links(&self) -> Result<Vec<Link>, PortError> {
            Ok(self.links.clone())
        }

        fn take_port(&self, device: &str, _port: Box<dyn Port>, fate: Fate) {
            self.done.borrow_mut().push(format!("{device} {fate:?}"));
        }

        fn remove_device(&self, device: &str, ifindex: u32) {
            self.done.borrow_mut().push(format!("remove {device} {ifindex}"));
        }

        fn is_leaving(&self, _device: &str) -> bool {
            true
        }

        fn leaving(&self) -> usize {
            self.done.borrow().len()
        }

        fn last(&self) -> u64 {
            self.done.borrow().len() as u64
        }

        fn is_down(&self, _last: u64) -> bool {
            false
        }

        fn is_full(&self) -> bool {
            false
        }

        fn finish(&self) {}
    }

    /// A port that takes packets and gives none.
    fn sink() -> Box<dyn Port> {
        ports::open(&ports::PortSpec::new("sink", "null", PortNo(1)), pool()).unwrap()
    }

    fn on(machine: Fake) -> (DeviceManager, Rc<Fake>) {
        let machine = Rc::new(machine);
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        (DeviceManager::new(&config, Box::new(machine.clone())), machine)
    }

    fn manager() -> DeviceManager {
        on(Fake::default()).0
    }

    fn pool() -> &'static Pool {
        Pool::new(PoolConfig { chunks: 64, ..PoolConfig::default() }).unwrap()
    }

    fn link(name: &str, ifindex: u32, alias: &str) -> Link {
        Link { name: name.into(), ifindex, alias: alias.into(), ..Link::default() }
    }

    fn null(options: &[(&str, &str)]) -> Interface {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Interface { options, ..Interface::new("p1", "null") }
    }

    #[test]
    fn options_are_checked_without_a_device_and_told_from_those_that_change_nothing() {
        let manager = manager();
        let port_no = PortNo(1);
        assert_eq!(manager.check(&null(&[("size", "64")]), port_no), Ok(()));
        let error = manager.check(&null(&[("size", "x")]), port_no).unwrap_err();
        assert!(error.starts_with("p1: could not set configuration ("), "{error}");
        assert!(manager.have_same_effect(&null(&[]), &null(&[]), port_no));
        assert!(!manager.have_same_effect(&null(&[]), &null(&[("size", "64")]), port_no));
    }

    #[test]
    fn a_patch_port_has_no_device_and_needs_a_peer() {
        let (manager, machine) = on(Fake::default());
        let mut patch = Interface::new("a", PATCH);
        let open =
            |patch: &Interface| manager.open(patch, Opening::default(), pool()).map(|port| port.is_none());
        let refused = |why: &str| Err(OpenError::Refused(why.into()));
        assert_eq!(open(&patch), refused("a: patch type requires valid 'peer' argument"));
        patch.options.insert("peer".into(), "a".into());
        assert_eq!(open(&patch), refused("a: patch peer must not be self"));
        patch.options.insert("peer".into(), "b".into());
        assert_eq!(open(&patch), Ok(true));
        assert!(machine.done.borrow().is_empty());
    }

    #[test]
    fn an_mtu_that_a_device_refuses_does_not_keep_its_port_from_opening() {
        let (manager, machine) = on(Fake { links: vec![link("eth1", 7, "")], ..Fake::default() });
        machine.refuses_mtu.set(true);
        let wanted = |name| Interface {
            mtu_request: Some(9_000),
            mac: Some([2, 0, 0, 0, 0, 1]),
            ..Interface::new(name, "system")
        };
        assert!(manager.open(&wanted("eth1"), Opening::default(), pool()).is_ok());
        // It is not ours, so its address stays.
        let tried = ["open eth1 mtu Some(9000) mac None", "open eth1 mtu None mac None"];
        assert_eq!(machine.done.take(), tried);
        let error = manager.open(&wanted("eth2"), Opening::default(), pool()).err();
        let none = "could not open network device eth2 (No such device)";
        assert_eq!(error, Some(OpenError::Refused(none.into())));
        assert_eq!(machine.done.take(), ["open eth2 mtu Some(9000) mac None"], "no MTU will help");
    }

    #[test]
    fn devices_that_an_earlier_process_left_go_unless_they_are_wanted() {
        let mine = "crosspoint of this database";
        let links = vec![link("br0", 3, mine), link("old", 4, mine), link("eth0", 5, "another's")];
        let (mut manager, machine) = on(Fake { links, ..Fake::default() });
        assert!(!manager.wants_sweep() && !manager.outlive());
        manager.set_owner(mine.into());
        assert!(manager.wants_sweep() && manager.outlive());
        let mut bridge = Bridge::new("br0");
        bridge.ports.insert("br0".into(), config::Port::new("br0", [Interface::new("br0", "internal")]));
        let wanted = Wanted { bridges: [("br0".into(), bridge)].into(), ..Wanted::default() };
        manager.sweep(&wanted);
        assert_eq!(machine.done.take(), ["remove old 4"]);
        assert!(!manager.wants_sweep());
    }

    #[test]
    fn a_lost_device_has_come_back_if_there_is_one_of_its_name_and_is_asked_about_once() {
        let (mut manager, _) = on(Fake { links: vec![link("eth1", 9, "")], ..Fake::default() });
        assert!(!manager.has_come_back());
        manager.lost.insert("eth2".into());
        assert!(!manager.has_come_back());
        manager.lost.extend(["eth1".into(), "eth2".into()]);
        assert!(manager.has_come_back());
        assert!(!manager.has_come_back());
    }

    #[test]
    fn the_devices_of_the_kernel_and_of_guests_take_time_to_go() {
        let (manager, machine) = on(Fake::default());
        let [tap, guest, dummy] = [("tap1", "tap"), ("vm1", "dpdkvhostuserclient"), ("d1", "dummy")]
            .map(|(name, kind)| Interface::new(name, kind));
        manager.give_up(&tap, sink(), Fate::Left);
        manager.give_up(&guest, sink(), Fate::Removed);
        manager.give_up(&dummy, sink(), Fate::Removed);
        assert_eq!(*machine.done.borrow(), ["tap1 Left", "vm1 Removed"]);
        assert_eq!([&tap, &guest, &dummy].map(|i| manager.is_leaving(i)), [true, true, false]);
    }

    #[test]
    fn a_busy_device_is_awaited_between_attempts_and_not_again_after_it_has_failed() {
        let (mut manager, machine) = on(Fake { links: vec![link("eth1", 7, "")], ..Fake::default() });
        machine.is_busy.set(true);
        let eth1 = Interface { mtu_request: Some(9_000), ..Interface::new("eth1", "afxdp") };
        let open = |manager: &DeviceManager| manager.open(&eth1, Opening::default(), pool()).map(drop);
        assert!(!manager.must_await(&eth1));
        assert_eq!(open(&manager), Err(OpenError::Busy(THEIRS)));
        // Another MTU would not help.
        assert_eq!(machine.done.take(), ["open eth1 mtu Some(9000) mac None", "busy, retries true"]);
        manager.await_device(&eth1, THEIRS);
        assert!(manager.must_await(&eth1) && !manager.must_await(&Interface::new("eth2", "afxdp")));
        machine.is_busy.set(false);
        while manager.must_await(&eth1) {
            std::thread::yield_now();
        }
        assert_eq!(open(&manager), Ok(()));
        manager.awaited = None;
        // After an error, a plan tries it once.
        machine.is_busy.set(true);
        manager.failures.note(&eth1, "busy", None);
        machine.done.take();
        let why = "could not open network device eth1 (theirs)";
        assert_eq!(open(&manager), Err(OpenError::Refused(why.into())));
        assert_eq!(machine.done.borrow()[1], "busy, retries false");
    }
}
