//! The switch as a whole: features, configuration, roles, asynchronous messages.

use super::PortDesc;
use crate::version::Version;

bitflags::bitflags! {
    /// OFPC_*: what the switch can do, with the numbers of OpenFlow 1.3 and, above them, 1.0's own.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct Capabilities: u32 {
        /// Flow statistics.
        const FLOW_STATS = 1 << 0;
        /// Table statistics.
        const TABLE_STATS = 1 << 1;
        /// Port statistics.
        const PORT_STATS = 1 << 2;
        /// From 1.1 on.
        const GROUP_STATS = 1 << 3;
        /// Reassembles IP fragments.
        const IP_REASM = 1 << 5;
        /// Queue statistics.
        const QUEUE_STATS = 1 << 6;
        /// 1.0 and 1.1: can match IP addresses of ARP packets.
        const ARP_MATCH_IP = 1 << 7;
        /// From 1.2 on.
        const PORT_BLOCKED = 1 << 8;
        /// 1.4.
        const BUNDLES = 1 << 9;
        /// 1.4.
        const FLOW_MONITORING = 1 << 10;
        /// 1.0: spanning tree (bit 3 on the wire there).
        const STP = 1 << 31;
    }
}

/// OFPT_FEATURES_REPLY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchFeatures {
    /// The bridge's identity.
    pub datapath_id: u64,
    /// How many packets it buffers.
    pub n_buffers: u32,
    /// How many tables it has.
    pub n_tables: u8,
    /// Auxiliary connection, 0 for the main one (1.3).
    pub auxiliary_id: u8,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Actions as a bitmap of OFPAT_* numbers (1.0).
    pub actions: u32,
    /// Ports, on the wire in 1.0 to 1.2 only: later versions ask for port descriptions.
    pub ports: Vec<PortDesc>,
}

impl SwitchFeatures {
    /// Whether a reply of this version contains all ports, as far as one can tell: it has room for another.
    /// If not, port descriptions must be asked for.
    pub fn has_all_ports(&self, version: Version) -> bool {
        /// A reply without ports.
        const BYTES: usize = 32;
        let port_bytes = if version == Version::V10 { 48 } else { 64 };
        version <= Version::V12 && BYTES + (self.ports.len() + 1) * port_bytes <= usize::from(u16::MAX)
    }
}

/// What happens to IP fragments (OFPC_FRAG_*), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u16)]
pub enum FragHandling {
    /// Nothing special.
    #[default]
    Normal = 0,
    /// Drop.
    Drop = 1,
    /// Reassemble.
    Reassemble = 2,
    /// Match first fragments on transport ports (Nicira extension).
    NxMatch = 3,
}

/// OFPT_GET_CONFIG_REPLY and OFPT_SET_CONFIG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// IP fragments.
    pub frag: FragHandling,
    /// Packets with a bad time to live go to the controller (OFPC_INVALID_TTL_TO_CONTROLLER, 1.1 and 1.2, and
    /// 1.0 by extension). `None` where the version cannot say.
    pub invalid_ttl_to_controller: Option<bool>,
    /// How many bytes of a packet are sent to the controller. 0xffff means all.
    pub miss_send_len: u16,
}

/// A controller's role, with the numbers of OpenFlow 1.2 and later (NXT_ROLE_REQUEST has others).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum Role {
    NoChange = 0,
    Equal = 1,
    Primary = 2,
    Secondary = 3,
}

/// Role request and reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleRequest {
    /// The role.
    pub role: Role,
    /// Generation id. `None` if a request asks for a role without one, if a reply has none (`u64::MAX` on the
    /// wire), and in the Nicira form.
    pub generation_id: Option<u64>,
    /// Whether it is NXT_ROLE_REQUEST.
    pub nicira: bool,
}

/// Which asynchronous messages a controller wants, as bitmaps of reasons. Element 0 is for primaries and
/// equals, element 1 for secondaries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AsyncConfig {
    /// Bits of OFPR_*.
    pub packet_in: [u32; 2],
    /// Bits of OFPPR_*.
    pub port_status: [u32; 2],
    /// Bits of OFPRR_*.
    pub flow_removed: [u32; 2],
    /// Bits of OFPCRR_* (1.4 and later).
    pub role_status: [u32; 2],
    /// Bits of OFPTR_* (1.4 and later).
    pub table_status: [u32; 2],
    /// Bits of OFPRFR_* (1.4 and later).
    pub request_forward: [u32; 2],
}

/// OFPT_SET_ASYNC and NXT_SET_ASYNC_CONFIG: what a controller changes of its [`AsyncConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsyncChange {
    /// The new bitmaps; 0 where none is given.
    pub config: AsyncConfig,
    /// Bitmap of OFPACPT_*: the bitmaps that are given, two for each kind of message, that of secondaries
    /// first. The others stay. Forms without properties give all.
    pub given: u16,
}

impl AsyncChange {
    /// All twelve bitmaps.
    pub const ALL: u16 = 0xfff;
}

impl AsyncConfig {
    /// The kinds of messages in the order of the numbers of OFPACPT_*.
    pub fn kinds(&mut self) -> [&mut [u32; 2]; 6] {
        [
            &mut self.packet_in,
            &mut self.port_status,
            &mut self.flow_removed,
            &mut self.role_status,
            &mut self.table_status,
            &mut self.request_forward,
        ]
    }

    /// This after a change.
    pub fn with(mut self, change: &AsyncChange) -> AsyncConfig {
        let mut new = change.config;
        for (kind, (masks, new)) in self.kinds().into_iter().zip(new.kinds()).enumerate() {
            for role in 0..2 {
                if change.given >> (2 * kind + 1 - role) & 1 != 0 {
                    masks[role] = new[role];
                }
            }
        }
        self
    }
}

/// Why a controller's role changed (OFPCRR_*), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum RoleReason {
    PrimaryRequest = 0,
    Config = 1,
    Experimenter = 2,
}

/// OFPT_ROLE_STATUS: the switch changed the role of this controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleStatus {
    /// The new role.
    pub role: Role,
    /// Why.
    pub reason: RoleReason,
    /// Generation id; `None` for "none".
    pub generation_id: Option<u64>,
}
