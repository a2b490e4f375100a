//! The wanted configuration of the switch: bridges, ports and settings as plain data.
//!
//! Command-line flags define it once, the database again with every transaction; `reconcile` compares it with
//! what runs and changes only the difference. Values here have been checked: an invalid value in a row has
//! been replaced by the previous setting or the default, and reported as an [`Interface::complaint`] or in
//! the log.
//!
//! Bridges and interfaces are identified by name, which is unique in a switch. Equality decides what is left
//! alone, so nothing that is only reported belongs here.

use base::OfPort;
use datapath::conntrack::timeouts::Phase;
use datapath::placement::Policy;
use flow::action::SubField;
use openflow::VersionSet;
use ports::{Backing, Driver};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use switch::VlanConfig;
use transport::TlsFiles;

/// Everything that can be changed while the switch runs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// The switch as a whole.
    pub switch: SwitchWide,
    /// Bridges, by name.
    pub bridges: BTreeMap<String, Bridge>,
}

/// Default number of VLAN tags that rules and NORMAL examine.
pub const VLAN_LIMIT_DEFAULT: u8 = 1;

/// OpenFlow numbers that interfaces had before the switch was started, by the interfaces' names.
pub type OfPortsBefore = BTreeMap<String, OfPort>;

/// The default of `stats-update-interval`, and the least.
pub const STATS_INTERVAL_MS: u64 = 5_000;

/// Settings of the switch as a whole (`other_config` of the table Open_vSwitch).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchWide {
    /// The workers, and which queues they poll.
    pub workers: WorkerSettings,
    /// A switch that starts waits for its rules (`flow-restore-wait`).
    pub flow_restore_wait: bool,
    /// VLAN tags that rules and NORMAL look at, 1 or 2; `None`: 1 (`vlan-limit`).
    pub vlan_limit: Option<u8>,
    /// Keys and certificates (table SSL); `None`: those of the command line.
    pub tls: Option<TlsFiles>,
    /// Managers to which the database server connects through the bridges (table Manager, except those whose
    /// `connection_mode` is `out-of-band`).
    pub in_band_managers: BTreeSet<SocketAddrV4>,
    /// Seconds after which an unused OpenFlow bundle is discarded (`bundle-idle-timeout`).
    pub bundle_idle_s: Option<u32>,
    /// The directory of the sockets of type `dpdkvhostuser` (`vhost-sock-dir`), as it was in the first row
    /// that was read; `None`: none was read yet.
    pub vhost_sock_dir: Option<PathBuf>,
    /// Milliseconds between two updates of statistics in the database (`stats-update-interval`).
    pub stats_interval_ms: u64,
    /// Whether to write statistics of the machine to the database (`enable-statistics`).
    pub system_statistics: bool,
    /// Timeouts of connections in seconds, by the zone that they begin in (tables CT_Zone and
    /// CT_Timeout_Policy).
    pub ct_timeouts_s: BTreeMap<u16, Vec<(Phase, u32)>>,
}

impl Default for SwitchWide {
    fn default() -> Self {
        SwitchWide {
            workers: WorkerSettings::default(),
            flow_restore_wait: false,
            vlan_limit: None,
            tls: None,
            in_band_managers: BTreeSet::new(),
            bundle_idle_s: None,
            vhost_sock_dir: None,
            stats_interval_ms: STATS_INTERVAL_MS,
            system_statistics: false,
            ct_timeouts_s: BTreeMap::new(),
        }
    }
}

/// Settings of workers (`other_config` of the table Open_vSwitch).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSettings {
    /// Processors on which a worker runs, one each (`pmd-cpu-mask`); `None`: the workers it was started with.
    pub cpus: Option<Vec<usize>>,
    /// Megaflows per worker (`flow-limit`).
    pub flow_limit: Option<usize>,
    /// Milliseconds after which a cached flow that is not used goes (`max-idle`).
    pub max_idle_ms: Option<u64>,
    /// The longest sleep in microseconds (`pmd-maxsleep`); `Some(0)`: idle workers poll.
    pub sleep_max_us: Option<u64>,
    /// How receive queues are spread over workers (`pmd-rxq-assign`).
    pub rxq_policy: Policy,
    /// A worker with a queue bound to it takes no others (`pmd-rxq-isolate`).
    pub rxq_isolate: bool,
    /// Queues move by themselves when a worker is overloaded (`pmd-auto-lb`).
    pub auto_balance: AutoBalance,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        WorkerSettings {
            cpus: None,
            flow_limit: None,
            max_idle_ms: None,
            sleep_max_us: None,
            rxq_policy: Policy::default(),
            rxq_isolate: true,
            auto_balance: AutoBalance::default(),
        }
    }
}

/// When queues move by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoBalance {
    /// Whether it is on.
    pub is_on: bool,
    /// How often to check (`pmd-auto-lb-rebal-interval`, which is in minutes).
    pub interval_ms: u64,
    /// Busy for this percentage of the interval counts as overloaded (`pmd-auto-lb-load-threshold`).
    pub load_percent: u32,
    /// By what percentage the variance of the loads must fall (`pmd-auto-lb-improvement-threshold`).
    pub improvement_percent: u32,
}

impl Default for AutoBalance {
    fn default() -> AutoBalance {
        AutoBalance { is_on: false, interval_ms: 60_000, load_percent: 95, improvement_percent: 25 }
    }
}

/// What a bridge does while it has no connected controller.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FailMode {
    /// Switches like any learning switch: one rule of priority 0 says NORMAL.
    #[default]
    Standalone,
    /// Nothing but what rules say.
    Secure,
}

/// A bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bridge {
    /// Its name, which its sockets and its own interface carry.
    pub name: String,
    /// Settings that are no ports.
    pub settings: BridgeSettings,
    /// Controllers to connect to or to listen for, by target.
    pub controllers: BTreeMap<String, Controller>,
    /// Ports, by name. One whose interface has the bridge's name is its own, LOCAL.
    pub ports: BTreeMap<String, Port>,
}

/// Settings of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeSettings {
    /// See there.
    pub fail_mode: FailMode,
    /// Datapath id; by default derived from the bridge's Ethernet address (`other_config:datapath-id`).
    pub datapath_id: Option<u64>,
    /// The bridge's Ethernet address (`other_config:hwaddr`).
    pub hwaddr: Option<[u8; 6]>,
    /// Versions of OpenFlow that it speaks; `None`: all that the switch has.
    pub protocols: Option<VersionSet>,
    /// Seconds after which an unused MAC address is forgotten.
    pub mac_aging_s: u32,
    /// Maximum number of MAC addresses.
    pub mac_table_size: usize,
    /// Frames to reserved addresses are forwarded.
    pub forward_bpdu: bool,
    /// VLANs in which no address is learned.
    pub flood_vlans: BTreeSet<u16>,
    /// Do not add rules for controllers that are reached through the bridge.
    pub disable_in_band: bool,
    /// The queue for packets to and from those controllers (`other_config:in-band-queue`).
    pub in_band_queue: Option<u32>,
    /// How many packets may wait for a controller, unless its row says otherwise
    /// (`other_config:controller-queue-size`), 1 to 512.
    pub controller_queue_size: Option<u32>,
    /// Description and serial number that OpenFlow's description statistics give (`dp-desc`, `dp-sn`).
    pub dp_desc: Option<String>,
    /// See [`Self::dp_desc`].
    pub dp_sn: Option<String>,
    /// Settings of flow tables, by number (table Flow_Table).
    pub flow_tables: BTreeMap<u8, FlowTable>,
}

/// Settings of a flow table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FlowTable {
    /// Its name; `None`: what controllers give it.
    pub name: Option<String>,
    /// Maximum number of flows.
    pub flow_limit: Option<u32>,
    /// When it is full, a flow is evicted for a new one, which is refused otherwise.
    pub evicts: bool,
    /// The fields by which flows are grouped; the largest group loses a flow first.
    pub groups: Vec<SubField>,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        BridgeSettings {
            fail_mode: FailMode::default(),
            datapath_id: None,
            hwaddr: None,
            protocols: None,
            mac_aging_s: 300,
            mac_table_size: 8192,
            forward_bpdu: false,
            flood_vlans: BTreeSet::new(),
            disable_in_band: false,
            in_band_queue: None,
            controller_queue_size: None,
            dp_desc: None,
            dp_sn: None,
            flow_tables: BTreeMap::new(),
        }
    }
}

/// How packets that match no rule go to a controller (`other_config` and columns of the table Controller),
/// and how the connection to it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// `tcp:HOST[:PORT]`, `ssl:...`, `unix:FILE`, or passive: `ptcp:[PORT][:HOST]`, `pssl:...`, `punix:FILE`.
    pub target: String,
    /// `connection_mode`: not reached through the bridge's own ports. False: through them.
    pub out_of_band: bool,
    /// Longest wait between two attempts, in milliseconds, at least 1,000.
    pub max_backoff_ms: Option<u64>,
    /// Silence in milliseconds after which the peer is probed, at least 5,000; 0: never.
    pub inactivity_probe_ms: Option<u64>,
    /// Packet-ins per second, at least 100, if they are limited.
    pub rate_limit: Option<u32>,
    /// Packet-ins saved up for a burst, at least 25.
    pub burst_limit: Option<u32>,
    /// Packets that may wait to be read by the controller (`controller_queue_size`, or the bridge's
    /// `other_config:controller-queue-size`), 1 to 512.
    pub queue_size: Option<u32>,
    /// Whether it gets asynchronous messages about packets, rules and ports (`enable_async_messages`).
    pub async_messages: bool,
    /// `type=service`: like a management socket, it gets no unrequested messages.
    pub is_service: bool,
    /// DSCP of the connection's packets.
    pub dscp: u8,
}

impl Controller {
    /// A controller with the defaults.
    pub fn new(target: &str) -> Controller {
        Controller {
            target: target.into(),
            out_of_band: false,
            max_backoff_ms: None,
            inactivity_probe_ms: None,
            rate_limit: None,
            burst_limit: None,
            queue_size: None,
            async_messages: true,
            is_service: false,
            dscp: 48,
        }
    }
}

/// A port: its part in VLANs, and its interfaces. One of several is a bond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// VLANs.
    pub vlan: VlanConfig,
    /// It sends no packets to other protected ports, and gets none from them.
    pub protected: bool,
    /// DSCP of packets that leave with a queue set, by the queue's number (column `dscp` of the table Queue).
    pub queue_dscp: BTreeMap<u32, u8>,
    /// Its interfaces, by name.
    pub interfaces: BTreeMap<String, Interface>,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its type, as [`ports::open`] takes it, or `patch`.
    pub kind: String,
    /// OpenFlow port number that is asked for.
    pub of_port_request: Option<OfPort>,
    /// The requested MTU in bytes.
    pub mtu_request: Option<u32>,
    /// Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Processors that receive queues are bound to, by the queues' numbers (`other_config:pmd-rxq-affinity`).
    pub rxq_affinity: BTreeMap<usize, usize>,
    /// Each worker spreads flows over the transmit queues (`other_config:tx-steering=hash`).
    pub spreads_flows: bool,
    /// The driver's options; for a patch port those of the patch cable.
    pub options: BTreeMap<String, String>,
    /// A setting in the row that cannot be applied, in words. The rest of the interface is set up all the
    /// same.
    pub complaint: Option<String>,
}

impl Bridge {
    /// A bridge with the defaults and without ports.
    pub fn new(name: &str) -> Bridge {
        Bridge {
            name: name.into(),
            settings: BridgeSettings::default(),
            controllers: BTreeMap::new(),
            ports: BTreeMap::new(),
        }
    }

    /// Adds a port with one interface of the same name.
    pub fn add(&mut self, interface: Interface) -> &mut Port {
        let port = Port::new(&interface.name.clone(), [interface]);
        self.ports.entry(port.name.clone()).insert_entry(port).into_mut()
    }

    /// Its interfaces, each with its port.
    pub fn interfaces(&self) -> impl Iterator<Item = (&Port, &Interface)> {
        self.ports.values().flat_map(|port| port.interfaces.values().map(move |i| (port, i)))
    }
}

impl Port {
    /// A trunk of all VLANs.
    pub fn new(name: &str, interfaces: impl IntoIterator<Item = Interface>) -> Port {
        Port {
            name: name.into(),
            vlan: VlanConfig::default(),
            protected: false,
            queue_dscp: BTreeMap::new(),
            interfaces: interfaces.into_iter().map(|i| (i.name.clone(), i)).collect(),
        }
    }
}

impl Interface {
    /// An interface without options.
    pub fn new(name: &str, kind: &str) -> Interface {
        Interface {
            name: name.into(),
            kind: kind.into(),
            of_port_request: None,
            mtu_request: None,
            mac: None,
            rxq_affinity: BTreeMap::new(),
            spreads_flows: false,
            options: BTreeMap::new(),
            complaint: None,
        }
    }

    /// Its row in the table of drivers; patch ports and unknown types have none.
    pub fn driver(&self) -> Option<&'static Driver> {
        ports::driver(&self.kind)
    }

    /// What backs it.
    pub fn backing(&self) -> Option<Backing> {
        self.driver().map(|driver| driver.backing)
    }

    /// Whether it uses a kernel device.
    pub fn is_kernels(&self) -> bool {
        matches!(self.backing(), Some(Backing::Kernels | Backing::Own))
    }

    /// Whether the switch creates that device.
    pub fn makes_device(&self) -> bool {
        self.backing() == Some(Backing::Own)
    }

    /// Whether that device exists independently of the switch.
    pub fn is_others(&self) -> bool {
        self.backing() == Some(Backing::Kernels)
    }

    /// Whether a virtual machine is attached to it.
    pub fn is_guests(&self) -> bool {
        self.backing() == Some(Backing::Guest)
    }

    /// Whether it is a dummy.
    pub fn is_dummy(&self) -> bool {
        self.backing() == Some(Backing::Pretended)
    }

    /// Whether it is a dummy that the main thread polls in Open vSwitch, whose tests rely on that.
    pub fn is_by_main(&self) -> bool {
        self.is_dummy() && self.driver().is_some_and(|driver| !driver.is_pmd)
    }

    /// The name of that device.
    pub fn device(&self) -> &str {
        self.options.get("ifname").unwrap_or(&self.name)
    }

    /// Problems with the options of a patch port, in Open vSwitch's words.
    pub fn patch_error(&self) -> Option<String> {
        let name = &self.name;
        if self.kind != PATCH {
            None
        } else if self.peer().is_none() {
            Some(format!("{name}: patch type requires valid 'peer' argument"))
        } else if self.peer() == Some(name) {
            Some(format!("{name}: patch peer must not be self"))
        } else if self.options.len() > 1 {
            Some(format!("{name}: patch type takes only a 'peer' argument"))
        } else {
            None
        }
    }

    /// Patch ports: the name of the other end.
    pub fn peer(&self) -> Option<&str> {
        if self.kind == PATCH { self.options.get("peer").map(String::as_str) } else { None }
    }
}

/// The type of patch ports, which have no driver.
pub const PATCH: &str = "patch";
