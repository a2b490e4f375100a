//! The device manager: opens the drivers of interfaces, [watches](crate::port_watch) them, and releases
//! devices. It knows interfaces as they are configured, and nothing of bridges, rules or connections.
//!
//! A port is removed in three steps: workers give up its queues, its driver is passed to the
//! [janitor](crate::janitor), and the kernel takes its device down. Its name is not free before the last step
//! is done.

use crate::config::wanted::{Interface, PATCH, Wanted};
use crate::config::{Config, EnableDummy};
use crate::failures::Failures;
use crate::janitor::{Fate, Janitor};
use crate::plane::ForwardingPlane;
use crate::port_record::{PortRecord, Ports};
use base::{OfPort, PortNo};
use datapath::{Datapath, Pipeline, Removal};
use packet::{Pool, Port};
use ports::PortError;
use ports::files::FileDirs;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
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
    janitor: Janitor,
    /// What becomes of the devices of ports that are removed.
    pub(crate) removed: Fate,
    /// The mark of the devices that outlive the process, see [`ports::PortSpec::owner`]. Known with the
    /// database.
    owner: Option<String>,
    /// The directories with files that options of ports may name.
    files: FileDirs,
    /// The same of dummies: with `--enable-dummy` those below the working and the run directory.
    dummy_files: Option<FileDirs>,
    /// Ports that were taken out and will return, by their interfaces' names.
    pub(crate) returning: BTreeMap<String, Returning>,
    /// A plan may have more ports to add than the last.
    pub(crate) may_come: Rc<Notify>,
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

impl DeviceManager {
    /// Starts the janitor.
    pub fn new(config: &Config) -> io::Result<DeviceManager> {
        Ok(DeviceManager {
            ports: Ports::new(),
            failures: Failures::default(),
            watched: PortNo::default(),
            leaving: Vec::new(),
            janitor: Janitor::start()?,
            removed: Fate::Removed,
            owner: None,
            files: config.datapath.files.clone(),
            dummy_files: dummy_files(config),
            returning: BTreeMap::new(),
            may_come: Rc::new(Notify::new()),
            is_swept: false,
            lost: BTreeSet::new(),
        })
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

    /// The number of devices being released, whatever they wait for.
    pub fn leaving(&self) -> usize {
        self.janitor.waiting()
    }

    /// Whether no more can be released for now.
    pub fn is_full(&self) -> bool {
        self.janitor.is_full()
    }

    /// Whether an interface uses a kernel device, and one with that name is being released.
    pub fn is_leaving(&self, interface: &Interface) -> bool {
        interface.is_kernels() && self.janitor.is_leaving(interface.device())
    }

    /// Opens the driver of an interface. `None` for patch ports. The error is in Open vSwitch's words if it
    /// has any.
    pub fn open(
        &self,
        interface: &Interface,
        opening: Opening,
        pool: &'static Pool,
    ) -> Result<Option<Box<dyn Port>>, String> {
        if interface.kind == PATCH {
            return interface.patch_error().map_or(Ok(None), Err);
        }
        // A device that we did not create keeps its address.
        let own_mac = interface.mac.filter(|_| interface.makes_device() || !interface.is_kernels());
        let open = |mtu| {
            let spec = ports::PortSpec {
                mtu,
                mac: opening.local_mac.or(own_mac),
                owner: self.owner.clone(),
                ..self.spec(interface, opening.port_no)
            };
            ports::open(&spec, pool)
        };
        let opened = match open(interface.mtu_request) {
            Err(e) if interface.mtu_request.is_some() && !matches!(e, PortError::NoSuchInterface { .. }) => {
                // An MTU that cannot be set must not prevent the port from opening: it is tried again when
                // the port runs.
                open(None).map_err(|_| e)
            }
            opened => opened,
        };
        opened.map(Some).map_err(|e| open_error(&interface.name, &e))
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
        let links = match ports::netlink::links() {
            Ok(links) => links,
            Err(error) => {
                tracing::warn!(target: "netdev", "devices that an earlier process left are not looked for: {error}");
                return;
            }
        };
        let interfaces = wanted.bridges.values().flat_map(|b| b.interfaces());
        let kept: BTreeSet<&str> =
            interfaces.filter(|(_, i)| i.makes_device()).map(|(_, i)| i.device()).collect();
        for link in links.iter().filter(|link| link.alias == *owner && !kept.contains(link.name.as_str())) {
            tracing::debug!(target: "netdev", "{}: removed, an earlier process has left it", link.name);
            self.janitor.remove_device(&link.name, link.ifindex);
        }
    }

    /// Whether a lost device exists after all: another one with its name appeared before its port noticed.
    pub fn has_come_back(&mut self) -> bool {
        let lost = std::mem::take(&mut self.lost);
        let is_there = |links: Vec<ports::netlink::Link>| links.iter().any(|link| lost.contains(&link.name));
        !lost.is_empty() && ports::netlink::links().is_ok_and(is_there)
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

    /// Gives a port's driver up, which the kernel may take long for.
    pub fn give_up(&self, interface: &Interface, port: Box<dyn Port>, fate: Fate) {
        if interface.is_kernels() {
            self.janitor.take_port(interface.device(), port, fate);
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
        self.janitor.finish();
    }

    /// A driver's part of an interface.
    fn spec(&self, interface: &Interface, port_no: PortNo) -> ports::PortSpec {
        spec(interface, port_no, &self.files, self.dummy_files.as_ref())
    }
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
    use crate::config::{Database, Flags};
    use host::rundir::RunDir;

    fn manager() -> DeviceManager {
        DeviceManager::new(&Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()))).unwrap()
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
        let manager = manager();
        let pool = Pool::new(packet::PoolConfig { chunks: 64, ..packet::PoolConfig::default() }).unwrap();
        let mut patch = Interface::new("a", PATCH);
        let open =
            |patch: &Interface| manager.open(patch, Opening::default(), pool).map(|port| port.is_none());
        assert_eq!(open(&patch), Err("a: patch type requires valid 'peer' argument".into()));
        patch.options.insert("peer".into(), "a".into());
        assert_eq!(open(&patch), Err("a: patch peer must not be self".into()));
        patch.options.insert("peer".into(), "b".into());
        assert_eq!(open(&patch), Ok(true));
    }

    #[test]
    fn devices_that_an_earlier_process_left_are_looked_for_once_there_is_a_mark() {
        let mut manager = manager();
        assert!(!manager.wants_sweep() && !manager.outlive());
        manager.set_owner("crosspoint of a test that made nothing".into());
        assert!(manager.wants_sweep() && manager.outlive());
        manager.sweep(&Wanted::default());
        assert!(!manager.wants_sweep());
    }
}
