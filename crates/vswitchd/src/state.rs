//! All that the control thread knows: the switch's writing half, the datapath, and per bridge and port what neither
//! of them keeps (names, addresses, connections).
//!
//! One structure, borrowed by one task at a time. Methods do their work and return: none waits for the outside world.

use crate::config::{BridgeFlags, Config, FailMode, PortFlags};
use crate::ofconn::{Asynchronous, OfConn};
use crate::schedule::Schedule;
use base::hash::HashKey;
use base::rcu::Domain;
use base::{OfPort, PortNo};
use datapath::{CacheConfig, Datapath};
use flow::{Action, Match};
use openflow::message::{PortReason, PortState, PortStatus as OfPortStatus};
use packet::{LinkState, Pool, PoolConfig, PortStatus};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortConfig, SlotStats, Switch, VlanConfig, VlanMode};

/// Why the switch could not be set up as asked.
#[derive(Debug)]
pub enum SetupError {
    /// No memory for packets.
    Pool(std::io::Error),
    /// The datapath or a worker could not be made.
    Datapath(datapath::DatapathError),
    /// A port could not be made.
    Port(String, ports::PortError),
    /// A port was made but could not be added.
    AddPort(String, String),
    /// There is no OpenFlow number left in the bridge, or no datapath port number.
    NoNumber(String),
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetupError::Pool(e) => write!(f, "no memory for packets ({e}); a smaller --pool-size may fit"),
            SetupError::Datapath(e) => write!(f, "the datapath could not be started: {e}"),
            SetupError::Port(name, e) => write!(f, "port {name}: {e}"),
            SetupError::AddPort(name, why) => write!(f, "port {name}: {why}"),
            SetupError::NoNumber(name) => write!(f, "port {name}: no port number is free"),
        }
    }
}

impl std::error::Error for SetupError {}

/// See the module's text.
pub struct Vswitch {
    pub(crate) control: Control,
    pub(crate) switch: Arc<Switch>,
    pub(crate) dp: Datapath<Switch>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) bridges: BTreeMap<BridgeIdx, Bridge>,
    pub(crate) ports: BTreeMap<PortNo, PortRecord>,
    pub(crate) schedule: Schedule,
    /// What connections that asked for it are to be told; see [`Self::deliver`].
    pub(crate) news: Vec<(BridgeIdx, Asynchronous)>,
    /// What packets that the control thread translated itself (packet-outs) add to slots.
    pub(crate) own_credits: HashMap<u32, SlotStats>,
    pub(crate) counts: Counts,
    /// Set by the command `exit`.
    pub(crate) exiting: bool,
}

/// Events of the control thread, for `coverage/show`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub openflow_received: u64,
    pub openflow_errors: u64,
    pub flow_mods: u64,
    pub packet_ins: u64,
    pub packet_ins_lost: u64,
    pub packet_outs: u64,
    pub effects: u64,
    pub flows_removed: u64,
    pub unixctl_received: u64,
}

/// A bridge.
pub(crate) struct Bridge {
    pub idx: BridgeIdx,
    pub name: String,
    pub datapath_id: u64,
    pub conns: BTreeMap<u64, OfConn>,
    pub next_conn: u64,
    /// The newest that a controller has named when it took a role.
    pub generation_id: Option<u64>,
}

/// A port.
pub(crate) struct PortRecord {
    pub port_no: PortNo,
    pub of_port: OfPort,
    pub bridge: BridgeIdx,
    pub name: String,
    pub kind: String,
    pub created_ms: u64,
    /// As last seen.
    pub status: PortStatus,
    /// The device is gone.
    pub gone: bool,
}

impl Vswitch {
    /// Makes pool, datapath, workers, bridges and ports.
    pub fn new(config: &Config) -> Result<Vswitch, SetupError> {
        let flags = &config.datapath;
        let pool = Pool::new(PoolConfig {
            chunks: flags.pool_packets,
            chunk_bytes: flags.pool_packet_bytes,
            ..PoolConfig::default()
        })
        .map_err(SetupError::Pool)?;
        let domain = Domain::new();
        let (switch, control) = Control::new(domain.clone(), HashKey::random());
        let defaults = CacheConfig::default();
        let cache = CacheConfig {
            flow_limit: flags.flow_limit.unwrap_or(defaults.flow_limit),
            max_idle_ms: flags
                .max_idle_ms
                .map_or(defaults.max_idle_ms, |ms| ms.min(u64::from(u32::MAX)) as u32),
        };
        let datapath_config = datapath::Config { cache, ..datapath::Config::default() };
        let mut dp = Datapath::new(pool, switch.clone(), domain.clone(), datapath_config)
            .map_err(SetupError::Datapath)?;
        let present = std::thread::available_parallelism().map_or(1, |n| n.get());
        let cpus: Vec<usize> = flags.cpus.iter().copied().filter(|&cpu| cpu < present).collect();
        if cpus.len() < flags.cpus.len() {
            tracing::warn!(
                target: "datapath",
                "pmd-cpu-mask names processors that are not there: of {:?} there are {cpus:?}", flags.cpus
            );
        }
        let places: Vec<Option<usize>> = if cpus.is_empty() {
            vec![None; flags.workers.max(1)]
        } else {
            cpus.into_iter().map(Some).collect()
        };
        for place in places {
            dp.start_worker(place).map_err(SetupError::Datapath)?;
        }
        let mut vswitch = Vswitch {
            control,
            switch,
            dp,
            domain,
            bridges: BTreeMap::new(),
            ports: BTreeMap::new(),
            schedule: Schedule::default(),
            news: Vec::new(),
            own_credits: HashMap::new(),
            counts: Counts::default(),
            exiting: false,
        };
        for bridge in &config.bridges {
            vswitch.add_bridge(bridge)?;
        }
        // Those that ask for a number first, so that the others do not take it.
        let (fixed, free): (Vec<_>, Vec<_>) = config.ports.iter().partition(|p| p.of_port.is_some());
        for port in fixed.into_iter().chain(free) {
            let bridge = config.bridge_of(port).map_err(|e| SetupError::AddPort(port.name.clone(), e))?;
            vswitch.add_port(port, bridge)?;
        }
        Ok(vswitch)
    }

    /// Now, on the clock that rules and counters go by.
    pub(crate) fn now_ms(&self) -> u64 {
        self.dp.now_ms()
    }

    fn add_bridge(&mut self, flags: &BridgeFlags) -> Result<(), SetupError> {
        let config = BridgeConfig {
            mac_aging_s: flags.mac_aging_s,
            mac_table_size: flags.mac_table_size,
            ..BridgeConfig::new(&flags.name)
        };
        let idx = self.control.add_bridge(config);
        let mac = local_mac(&flags.name);
        let mut id = [0; 8];
        id[2..].copy_from_slice(&mac);
        let datapath_id = flags.datapath_id.unwrap_or(u64::from_be_bytes(id));
        let bridge = Bridge {
            idx,
            name: flags.name.clone(),
            datapath_id,
            conns: BTreeMap::new(),
            next_conn: 0,
            generation_id: None,
        };
        self.bridges.insert(idx, bridge);
        tracing::info!(target: "bridge", "bridge {}: using datapath ID {datapath_id:016x}", flags.name);
        let local = PortFlags {
            name: flags.name.clone(),
            bridge: None,
            kind: flags.local.clone(),
            of_port: Some(OfPort::LOCAL),
            mtu: None,
            mac: Some(mac),
            tag: None,
            options: BTreeMap::new(),
        };
        self.add_port(&local, &flags.name)?;
        if flags.fail_mode == FailMode::Standalone {
            let normal = Action::Output { port: OfPort::NORMAL, max_len: 0 };
            let rule = FlowMod { priority: 0, ..FlowMod::add(Match::any(), vec![normal]) };
            let now_ms = self.now_ms();
            self.control
                .flow_mod(idx, &rule, now_ms)
                .expect("a rule that says NORMAL is valid in an empty table");
            self.dp.reserve_slots(self.control.slot_count());
        }
        Ok(())
    }

    /// Adds a port to the bridge of this name, which is there.
    pub(crate) fn add_port(&mut self, flags: &PortFlags, bridge: &str) -> Result<PortNo, SetupError> {
        let name = &flags.name;
        let none = || SetupError::NoNumber(name.clone());
        let idx = self.bridge_named(bridge).ok_or_else(none)?.idx;
        let port_no = self.free_port_no(flags).ok_or_else(none)?;
        let of_port = match flags.of_port {
            Some(of_port) => of_port,
            None => self.free_of_port(idx).ok_or_else(none)?,
        };
        let spec = ports::PortSpec {
            options: flags.options.clone(),
            mtu: flags.mtu,
            mac: flags.mac,
            ..ports::PortSpec::new(name, &flags.kind, port_no)
        };
        let port = ports::open(&spec, self.dp.pool()).map_err(|e| SetupError::Port(name.clone(), e))?;
        let status = port.status();
        let kind = port.kind().to_string();
        let add = |e: String| SetupError::AddPort(name.clone(), e);
        let vlan = match flags.tag {
            Some(tag) => VlanConfig { mode: VlanMode::Access, tag, ..VlanConfig::default() },
            None => VlanConfig::default(),
        };
        let in_switch = switch::PortSpec {
            kind: if of_port == OfPort::LOCAL { switch::PortKind::Local } else { switch::PortKind::Normal },
            link_up: status.link == LinkState::Up,
            vlan,
            ..switch::PortSpec::new(port_no, of_port, name)
        };
        // The switch first: a packet that comes in at once shall find its bridge.
        self.control.add_port(idx, in_switch).map_err(|e| add(e.to_string()))?;
        if let Err(e) = self.dp.add_port(port_no, port) {
            self.control.remove_port(port_no).expect("added above");
            return Err(add(e.to_string()));
        }
        self.dp.reserve_slots(self.control.slot_count());
        tracing::info!(target: "bridge", "bridge {bridge}: added interface {name} on port {}", of_port.0);
        for (key, value) in &status.details {
            tracing::info!(target: "netdev", "{name}: {key}={value}");
        }
        let record = PortRecord {
            port_no,
            of_port,
            bridge: idx,
            name: name.clone(),
            kind,
            created_ms: self.now_ms(),
            status,
            gone: false,
        };
        self.ports.insert(port_no, record);
        self.tell_port(port_no, PortReason::Add);
        Ok(port_no)
    }

    /// The number in a dummy port's name, if it is free, so that tests know it; else the lowest free one.
    fn free_port_no(&self, flags: &PortFlags) -> Option<PortNo> {
        let is_free = |n: &PortNo| n.0 > 0 && n.0 <= 0xffff && !self.ports.contains_key(n);
        let digits = flags.name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let named = digits.parse().ok().map(|n: u32| {
            // A bridge's own port leaves the low numbers to the others.
            PortNo(if flags.of_port == Some(OfPort::LOCAL) { n.saturating_add(100) } else { n })
        });
        let named = named.filter(|n| flags.kind == "dummy" && is_free(n));
        let first = if flags.of_port == Some(OfPort::LOCAL) { 100 } else { 1 };
        named.or_else(|| (first..=0xffff).map(PortNo).find(is_free))
    }

    fn free_of_port(&self, bridge: BridgeIdx) -> Option<OfPort> {
        let taken = |n: OfPort| self.port_numbered(bridge, n).is_some();
        (1..OfPort::MAX.0).map(OfPort).find(|n| !taken(*n))
    }

    pub(crate) fn bridge_named(&self, name: &str) -> Option<&Bridge> {
        self.bridges.values().find(|b| b.name == name)
    }

    pub(crate) fn port_named(&self, name: &str) -> Option<&PortRecord> {
        self.ports.values().find(|p| p.name == name)
    }

    /// A port by its OpenFlow number.
    pub(crate) fn port_numbered(&self, bridge: BridgeIdx, of_port: OfPort) -> Option<&PortRecord> {
        let port = self.control.topology().bridge(bridge)?.port(of_port)?;
        self.ports.get(&port.spec.port_no)
    }

    /// The ports of a bridge, ascending by OpenFlow number, so LOCAL last.
    pub(crate) fn ports_of(&self, bridge: BridgeIdx) -> impl Iterator<Item = &PortRecord> {
        let ports = self.control.topology().bridge(bridge).into_iter().flat_map(|b| b.ports());
        ports.filter_map(|p| self.ports.get(&p.spec.port_no))
    }

    /// What the switch is configured to do with a port.
    pub(crate) fn port_spec(&self, port: PortNo) -> Option<&switch::PortSpec> {
        Some(&self.control.topology().port(port)?.spec)
    }

    /// What a slot has counted, up to the last fold.
    pub(crate) fn slot(&self, slot: u32) -> SlotStats {
        let totals = self.dp.slot(slot);
        let own = self.own_credits.get(&slot).copied().unwrap_or_default();
        SlotStats {
            packets: totals.packets + own.packets,
            bytes: totals.bytes + own.bytes,
            last_used_ms: totals.last_used_ms.max(own.last_used_ms),
        }
    }

    /// Looks at a port's device, and tells of what changed.
    pub(crate) fn watch_port(&mut self, port_no: PortNo) {
        let Some(record) = self.ports.get_mut(&port_no) else { return };
        let Some(port) = self.dp.port(port_no) else { return };
        let mut status = port.status();
        if record.gone {
            status.link = LinkState::Down;
        }
        if status == record.status {
            return;
        }
        let seen = std::mem::replace(&mut record.status, status.clone());
        let name = &record.name;
        if status.error != seen.error
            && let Some(error) = &status.error
        {
            tracing::warn!(target: "netdev", "{name}: {error}");
        }
        let is_visible = |s: &PortStatus| (s.link, s.admin_up, s.mac, s.speed_bps);
        if is_visible(&seen) == is_visible(&status) {
            return;
        }
        if seen.link != status.link {
            let link = if status.link == LinkState::Up { "up" } else { "down" };
            tracing::info!(target: "netdev", "{name}: link state changed to {link}");
        }
        self.update_port(port_no, |spec| spec.link_up = status.link == LinkState::Up);
        self.tell_port(port_no, PortReason::Modify);
    }

    /// Changes what the switch does with a port.
    pub(crate) fn update_port(&mut self, port_no: PortNo, change: impl FnOnce(&mut switch::PortSpec)) {
        if let Some(mut spec) = self.port_spec(port_no).cloned() {
            change(&mut spec);
            self.control.modify_port(spec).expect("its numbers stay");
        }
    }

    /// Tells connections about a port.
    pub(crate) fn tell_port(&mut self, port_no: PortNo, reason: PortReason) {
        if let Some(record) = self.ports.get(&port_no)
            && let Some(desc) = self.port_desc(record)
        {
            self.news.push((record.bridge, Asynchronous::Port(OfPortStatus { reason, desc })));
        }
    }

    /// A port as OpenFlow describes it.
    pub(crate) fn port_desc(&self, record: &PortRecord) -> Option<openflow::message::PortDesc> {
        use openflow::message::{PortConfig as C, PortDesc, PortFeatures};
        let spec = self.port_spec(record.port_no)?;
        let PortConfig { port_down, no_recv, no_recv_stp, no_flood, no_fwd, no_packet_in } = spec.config;
        let bits = [
            (port_down || !record.status.admin_up, C::PORT_DOWN),
            (no_recv, C::NO_RECV),
            (no_recv_stp, C::NO_RECV_STP),
            (no_flood, C::NO_FLOOD),
            (no_fwd, C::NO_FWD),
            (no_packet_in, C::NO_PACKET_IN),
        ];
        let config = bits.iter().filter(|(set, _)| *set).map(|(_, bit)| *bit).collect();
        let link_up = record.status.link == LinkState::Up && !record.gone;
        let state = if link_up { PortState::LIVE } else { PortState::LINK_DOWN };
        let (current, speed_kbps) = features(record.status.speed_bps);
        Some(PortDesc {
            port: record.of_port,
            hw_addr: record.status.mac,
            name: record.name.clone(),
            config,
            state,
            current,
            advertised: PortFeatures::empty(),
            supported: PortFeatures::empty(),
            peer: PortFeatures::empty(),
            current_speed_kbps: speed_kbps,
            max_speed_kbps: 0,
        })
    }

    /// Seconds and nanoseconds since a moment on the datapath's clock.
    pub(crate) fn since(&self, then_ms: u64) -> (u32, u32) {
        let ms = self.now_ms().saturating_sub(then_ms);
        ((ms / 1000) as u32, (ms % 1000) as u32 * 1_000_000)
    }

    /// Tells connections what happened. Called after every piece of work, when no connection is borrowed.
    pub(crate) fn deliver(&mut self) {
        for (bridge, news) in std::mem::take(&mut self.news) {
            let Some(bridge) = self.bridges.get_mut(&bridge) else { continue };
            for conn in bridge.conns.values_mut() {
                if !conn.tell(&news) {
                    self.counts.packet_ins_lost += 1;
                }
            }
        }
    }
}

fn features(speed_bps: u64) -> (openflow::message::PortFeatures, u32) {
    use openflow::message::PortFeatures as F;
    let current = match speed_bps {
        10_000_000 => F::MB10_FULL,
        100_000_000 => F::MB100_FULL,
        1_000_000_000 => F::GB1_FULL,
        10_000_000_000 => F::GB10_FULL,
        40_000_000_000 => F::GB40_FULL,
        100_000_000_000 => F::GB100_FULL,
        1_000_000_000_000 => F::TB1_FULL,
        0 => F::empty(),
        _ => F::OTHER,
    };
    (current, (speed_bps / 1000).min(u64::from(u32::MAX)) as u32)
}

/// An Ethernet address for a bridge that is the same at every start: made of the machine's id and the bridge's name.
fn local_mac(name: &str) -> [u8; 6] {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    // FNV-1a: spread, not secret.
    let hash = machine
        .bytes()
        .chain(name.bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let b = hash.to_be_bytes();
    [b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]
}
