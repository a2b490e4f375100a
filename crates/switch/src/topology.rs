//! Bridges and ports as translations see them: an immutable snapshot per version, of shared parts.
//!
//! Changes here are rare (a person or a database makes them), so each creates a new snapshot that shares all
//! unchanged ports and bridges; the last few are kept until no worker can still be at their version. What is
//! large and changes often (rules, MAC addresses) is referenced by the bridge and has its own versions.

pub use crate::bridge_idx::BridgeIdx;
use crate::group::GroupTable;
use crate::mac::MacTable;
use crate::meter::MeterTable;
use crate::table::Table;
use base::{OfPort, PortNo, Version};
use flow::options::OptionTable;
use openflow::message::TableMiss;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// OpenFlow's port configuration bits (OFPPC_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct PortConfig {
    /// Administratively down: nothing in, nothing out.
    pub port_down: bool,
    /// Leave it out of the spanning tree. Only stored and reported.
    pub no_stp: bool,
    /// Drop packets that come in, except spanning tree.
    pub no_recv: bool,
    /// Drop spanning tree packets that come in.
    pub no_recv_stp: bool,
    /// Flooding leaves it out.
    pub no_flood: bool,
    /// Send nothing.
    pub no_fwd: bool,
    /// No packet-in for packets that come in here and match no rule.
    pub no_packet_in: bool,
}

/// The kind of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortKind {
    /// A port of the datapath.
    Normal,
    /// The bridge's own port (also one of the datapath).
    Local,
    /// One end of a patch cable; translation continues at the other end, if that exists and names this one.
    Patch {
        /// The other end.
        peer: Option<PortNo>,
    },
}

/// A set of VLAN ids, 4096 bits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VlanSet(Box<[u64; 64]>);

impl Default for VlanSet {
    fn default() -> Self {
        VlanSet(Box::new([0; 64]))
    }
}

impl FromIterator<u16> for VlanSet {
    fn from_iter<I: IntoIterator<Item = u16>>(vlans: I) -> Self {
        let mut set = VlanSet::default();
        for v in vlans {
            set.0[usize::from(v & 0xfff) / 64] |= 1 << (v % 64);
        }
        set
    }
}

impl VlanSet {
    /// Whether it has the VLAN (low 12 bits).
    pub fn contains(&self, vlan: u16) -> bool {
        self.0[usize::from(vlan & 0xfff) / 64] >> (vlan % 64) & 1 != 0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }
}

/// How a port takes part in VLANs (`vlan_mode` of ovs-vswitchd.conf.db(5)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum VlanMode {
    /// Tagged packets of the VLANs in `trunks`.
    #[default]
    Trunk,
    /// Untagged packets of one VLAN.
    Access,
    /// A trunk whose untagged packets belong to VLAN `tag`; packets of that VLAN leave tagged.
    NativeTagged,
    /// The same, but they leave untagged.
    NativeUntagged,
    /// All packets, tagged or not, are carried in VLAN `tag` under an additional tag.
    Dot1qTunnel,
}

/// When a packet of VLAN 0 leaves with a tag that contains only a priority (`other_config:priority-tags`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum PriorityTags {
    /// Never.
    #[default]
    Never,
    /// When its priority is not 0.
    IfNonzero,
    /// Always.
    Always,
}

/// A port's VLAN configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VlanConfig {
    /// Mode.
    pub mode: VlanMode,
    /// The VLAN of access, native and tunnel modes.
    pub tag: u16,
    /// VLANs of a trunk; `None` for all.
    pub trunks: Option<VlanSet>,
    /// Inner VLANs that a tunnel carries; `None` for all.
    pub cvlans: Option<VlanSet>,
    /// TPID of a tunnel's tag.
    pub qinq_tpid: u16,
    /// See [`PriorityTags`].
    pub priority_tags: PriorityTags,
}

impl Default for VlanConfig {
    fn default() -> Self {
        VlanConfig {
            mode: VlanMode::Trunk,
            tag: 0,
            trunks: None,
            cvlans: None,
            qinq_tpid: QINQ_TPID,
            priority_tags: PriorityTags::Never,
        }
    }
}

/// Default TPID of a tunnel's tag: IEEE 802.1ad.
const QINQ_TPID: u16 = 0x88a8;

/// The columns and keys of a row of table Port that configure VLANs, unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanColumns {
    /// `vlan_mode`.
    pub mode: Option<VlanMode>,
    /// `tag`.
    pub tag: Option<u16>,
    /// `trunks`; none for all.
    pub trunks: Vec<u16>,
    /// `cvlans`; none for all.
    pub cvlans: Vec<u16>,
    /// `other_config:qinq-ethtype`.
    pub qinq_tpid: u16,
    /// `other_config:priority-tags`.
    pub priority_tags: PriorityTags,
}

impl Default for VlanColumns {
    fn default() -> Self {
        VlanColumns {
            mode: None,
            tag: None,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            qinq_tpid: QINQ_TPID,
            priority_tags: PriorityTags::Never,
        }
    }
}

impl VlanConfig {
    /// The combined meaning of the columns: without a mode, a port with a tag is an access port, any other a
    /// trunk; a trunk has no tag, whatever the column says; other modes without a tag have VLAN 0.
    pub fn new(columns: &VlanColumns) -> VlanConfig {
        let implied = if columns.tag.is_some() { VlanMode::Access } else { VlanMode::Trunk };
        let mode = columns.mode.unwrap_or(implied);
        let tag = if mode == VlanMode::Trunk { 0 } else { columns.tag.unwrap_or(0) };
        let set = |vlans: &[u16]| (!vlans.is_empty()).then(|| vlans.iter().copied().collect());
        let (trunks, cvlans) = match mode {
            VlanMode::Access => (None, None),
            VlanMode::Dot1qTunnel => (None, set(&columns.cvlans)),
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                (set(&columns.trunks), None)
            }
        };
        VlanConfig {
            mode,
            tag,
            trunks,
            cvlans,
            qinq_tpid: columns.qinq_tpid,
            priority_tags: columns.priority_tags,
        }
    }
}

/// A port's configuration by the owner of the switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// The datapath's number, 1 to 65,535.
    pub port_no: PortNo,
    /// Number in the bridge, below 0xff00, or LOCAL.
    pub of_port: OfPort,
    /// Name.
    pub name: String,
    /// What kind of port it is.
    pub kind: PortKind,
    /// Configuration bits.
    pub config: PortConfig,
    /// Whether the link is up. A port whose link is down still sends; its driver drops the packets.
    pub link_up: bool,
    /// VLANs.
    pub vlan: VlanConfig,
    /// Packets from a protected port are not sent to another one, whichever action sends them.
    pub protected: bool,
    /// DSCP of IP packets that leave with a queue set, by the queue's number: 0 to 63 (column `dscp` of the
    /// table Queue).
    pub queue_dscp: BTreeMap<u32, u8>,
}

impl PortSpec {
    /// A trunk port of the datapath with its link up.
    pub fn new(port_no: PortNo, of_port: OfPort, name: &str) -> PortSpec {
        PortSpec {
            port_no,
            of_port,
            name: name.to_string(),
            kind: PortKind::Normal,
            config: PortConfig::default(),
            link_up: true,
            vlan: VlanConfig::default(),
            protected: false,
            queue_dscp: BTreeMap::new(),
        }
    }
}

/// A port in a snapshot.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its bridge.
    pub bridge: BridgeIdx,
    /// Its configuration.
    pub spec: PortSpec,
    /// Patch ports: counts packets that come in here (sent by the peer).
    pub rx_slot: u32,
    /// Patch ports: counts packets that go out here.
    pub tx_slot: u32,
}

/// How fragments of IP packets are handled.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Fragments {
    /// Matched like other packets, with transport ports (ICMP type and code) of 0, also in a first fragment.
    #[default]
    Normal,
    /// Dropped before the first table.
    Drop,
    /// Matched like other packets; a first fragment has its own transport ports.
    NxMatch,
}

/// The configuration of a bridge as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeConfig {
    /// Name.
    pub name: String,
    /// NORMAL forwards packets to reserved addresses.
    pub forward_bpdu: bool,
    /// VLANs in which no address is learned.
    pub flood_vlans: VlanSet,
    /// VLAN tags that NORMAL looks at, 1 or 2; further ones are payload (`other_config:vlan-limit`).
    pub vlan_limit: u8,
    /// Seconds after which an unused address is forgotten.
    pub mac_aging_s: u32,
    /// Maximum number of addresses.
    pub mac_table_size: usize,
    /// A table miss goes to the controllers (because one uses OpenFlow below 1.3); otherwise it is dropped.
    pub miss_to_controller: bool,
    /// What tables do with packets that match no rule, if a controller has set it (OpenFlow 1.1 and 1.2);
    /// otherwise `miss_to_controller` decides.
    pub table_misses: BTreeMap<u8, TableMiss>,
    /// How many bytes of a missed packet are sent to controllers.
    pub miss_send_len: u16,
    /// How fragments are handled.
    pub fragments: Fragments,
}

impl BridgeConfig {
    /// Open vSwitch's defaults.
    pub fn new(name: &str) -> BridgeConfig {
        BridgeConfig {
            name: name.to_string(),
            forward_bpdu: false,
            flood_vlans: VlanSet::default(),
            vlan_limit: 1,
            mac_aging_s: 300,
            mac_table_size: 8192,
            miss_to_controller: false,
            table_misses: BTreeMap::new(),
            miss_send_len: 128,
            fragments: Fragments::Normal,
        }
    }
}

/// The part of a bridge that all snapshots share.
pub(crate) struct BridgeState {
    pub tables: Box<[OnceLock<Table>]>,
    pub macs: MacTable,
    pub groups: GroupTable,
    pub meters: MeterTable,
}

impl BridgeState {
    #[inline]
    pub fn table(&self, table_id: u8) -> Option<&Table> {
        self.tables[usize::from(table_id)].get()
    }
}

/// A bridge in a snapshot.
#[derive(Clone)]
pub struct Bridge {
    /// Its number.
    pub idx: BridgeIdx,
    /// Its configuration.
    pub config: BridgeConfig,
    /// Ascending by number.
    ports: Vec<(u16, Arc<Port>)>,
    /// Which tunnel options map to which fields.
    options: Arc<OptionTable>,
    pub(crate) state: Arc<BridgeState>,
}

impl Bridge {
    pub(crate) fn new(idx: BridgeIdx, config: BridgeConfig, state: Arc<BridgeState>) -> Bridge {
        Bridge { idx, config, ports: Vec::new(), options: Arc::default(), state }
    }

    /// Which tunnel options map to which fields.
    pub fn options(&self) -> &OptionTable {
        &self.options
    }

    pub(crate) fn with_options(self, options: OptionTable) -> Bridge {
        Bridge { options: Arc::new(options), ..self }
    }

    /// A port by its OpenFlow number.
    #[inline]
    pub fn port(&self, of_port: OfPort) -> Option<&Port> {
        let at = self.ports.binary_search_by_key(&of_port.0, |p| p.0).ok()?;
        Some(&self.ports[at].1)
    }

    /// All ports, ascending by OpenFlow number.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().map(|p| &*p.1)
    }

    pub(crate) fn set_port(&mut self, of_port: OfPort, port: Option<Arc<Port>>) {
        let at = self.ports.binary_search_by_key(&of_port.0, |p| p.0);
        match (at, port) {
            (Ok(i), Some(port)) => self.ports[i].1 = port,
            (Ok(i), None) => drop(self.ports.remove(i)),
            (Err(i), Some(port)) => self.ports.insert(i, (of_port.0, port)),
            (Err(_), None) => {}
        }
    }
}

/// All bridges and ports at one version.
#[derive(Clone, Default)]
pub struct Topology {
    pub(crate) bridges: Vec<Option<Arc<Bridge>>>,
    pub(crate) ports: Vec<Option<Arc<Port>>>,
    /// Packets that come in are not forwarded.
    pub(crate) is_paused: bool,
}

impl Topology {
    /// A bridge by its number.
    #[inline]
    pub fn bridge(&self, idx: BridgeIdx) -> Option<&Arc<Bridge>> {
        self.bridges.get(idx.0 as usize)?.as_ref()
    }

    /// A port by the datapath's number.
    #[inline]
    pub fn port(&self, port_no: PortNo) -> Option<&Arc<Port>> {
        self.ports.get(port_no.0 as usize)?.as_ref()
    }

    /// All bridges.
    pub fn bridges(&self) -> impl Iterator<Item = &Arc<Bridge>> {
        self.bridges.iter().flatten()
    }

    /// A bridge by name.
    pub fn bridge_by_name(&self, name: &str) -> Option<&Arc<Bridge>> {
        self.bridges().find(|b| b.config.name == name)
    }
}

/// The newest snapshots, newest first, each with the version from which it is valid.
pub(crate) type History = Vec<(Version, Arc<Topology>)>;

/// The snapshot that is valid at `version`.
#[inline]
pub(crate) fn at(history: &History, version: Version) -> &Topology {
    let found = history.iter().find(|(since, _)| *since <= version);
    &found.unwrap_or_else(|| history.last().expect("a history is never empty")).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_set_has_what_was_put_in() {
        let set: VlanSet = [0, 5, 4095].into_iter().collect();
        assert!(set.contains(0) && set.contains(5) && set.contains(4095));
        assert!(!set.contains(6) && !set.contains(64));
        assert!(VlanSet::default().is_empty() && !set.is_empty());
    }
}
