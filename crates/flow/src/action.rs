//! The actions and instructions of OpenFlow rules, independent of the version.
//!
//! Decoders of every version produce these, the translator interprets them, the printer shows them in the
//! syntax of ovs-actions(7). If two wire forms mean the same but print differently, there are two variants.

use crate::mf::Mf;
use crate::options::Wide;
use base::OfPort;

/// `count` bits of a field, starting at bit `offset`: `NXM_NX_REG0[0..15]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// The field.
    pub field: Mf,
    /// Lowest bit.
    pub offset: u16,
    /// Number of bits, 1 to the field's width.
    pub count: u16,
}

/// Why a packet goes to a controller (OFPR_*), the number on the wire for OpenFlow 1.3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInReason {
    /// No matching flow.
    NoMatch = 0,
    /// An action says so.
    Action = 1,
    /// Time to live was invalid.
    InvalidTtl = 2,
    /// The action set says so (1.4).
    ActionSet = 3,
    /// A bucket of a group outputs to the controller (1.4).
    Group = 4,
    /// A packet-out says so (1.4).
    PacketOut = 5,
}

/// The direction in which a sampled packet passes the sampling port, with wire numbers (NX_ACTION_SAMPLE_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum SampleDirection {
    /// Unspecified.
    #[default]
    Default = 0,
    /// Into the switch.
    Ingress = 1,
    /// Out of the switch.
    Egress = 2,
}

/// The fields of a hash that distributes packets over links (NX_HASH_FIELDS_*), with wire numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum HashFields {
    EthSrc = 0,
    /// Ethernet and IP addresses, VLAN, protocol and ports; both directions hash alike.
    SymmetricL4 = 1,
    /// IP addresses and TCP or SCTP ports; both directions hash alike.
    SymmetricL3L4 = 2,
    /// UDP ports too.
    SymmetricL3L4Udp = 3,
    NwSrc = 4,
    NwDst = 5,
    /// IP addresses; both directions hash alike.
    SymmetricL3 = 6,
}

/// How `multipath` maps a hash to a link (NX_MP_ALG_*), with wire numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum LinkChoice {
    ModuloN = 0,
    HashThreshold = 1,
    /// Highest random weight.
    Hrw = 2,
    IterHash = 3,
}

/// `multipath(..)`: chooses a link by a hash, and writes its number to a field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Multipath {
    pub fields: HashFields,
    pub basis: u16,
    pub algorithm: LinkChoice,
    /// Links minus one.
    pub max_link: u16,
    /// Argument of the algorithm.
    pub arg: u32,
    pub target: SubField,
}

/// How `bundle` chooses a member (NX_BD_ALG_*), the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum MemberChoice {
    /// The first that is up.
    ActiveBackup = 0,
    /// Highest random weight.
    Hrw = 1,
}

/// `bundle(..)` and `bundle_load(..)`: chooses one of the ports that are up, and outputs to it or writes its
/// number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Bundle {
    pub fields: HashFields,
    pub basis: u16,
    pub algorithm: MemberChoice,
    /// Where to write the number; `None`: output to it.
    pub target: Option<SubField>,
    pub members: Vec<OfPort>,
}

/// The source of a part of a learned rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LearnSource {
    /// The packet.
    Field(SubField),
    /// A constant in the action: the lowest bits of a number.
    Value(Box<Wide>),
}

/// The role of a part of a learned rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LearnTarget {
    /// Match these bits.
    Match(SubField),
    /// Load these bits.
    Load(SubField),
    /// Output to the port.
    Output,
}

/// One part of a learned rule.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct LearnSpec {
    pub source: LearnSource,
    pub target: LearnTarget,
}

/// `learn(..)`: adds or modifies a rule derived from the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub struct Learn {
    pub table_id: u8,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub fin_idle_timeout_s: u16,
    pub fin_hard_timeout_s: u16,
    pub priority: u16,
    pub cookie: u64,
    pub send_flow_removed: bool,
    /// The learned rules go when the last rule goes that learns with this cookie into this table.
    pub delete_learned: bool,
    /// Most rules with this cookie in the table; 0 for no limit.
    pub limit: u32,
    /// One bit: whether the rule could be learned within the limit.
    pub result: Option<SubField>,
    pub specs: Vec<LearnSpec>,
}

/// A property of an encapsulation in a network service header.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum NshProperty {
    /// Type of the metadata, 1 or 2.
    MdType(u8),
    Tlv {
        class: u16,
        kind: u8,
        value: Vec<u8>,
    },
}

/// The arguments of `ct`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ct {
    /// Commit a new connection.
    pub commit: bool,
    /// One that was opened from the other end is forgotten.
    pub force: bool,
    /// The zone in which to track it.
    pub zone: CtZone,
    /// Where a copy continues with the result.
    pub table: Option<u8>,
    /// The port whose helper watches the connection; 0 for none.
    pub alg: u16,
    /// Translation, and what is set in the connection.
    pub actions: Vec<Action>,
}

/// A zone of connection tracking.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CtZone {
    /// This number.
    Is(u16),
    /// The number in a field's 16 bits.
    In(SubField),
}

/// Which end of a connection is translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NatSide {
    /// The end that opens it.
    Src,
    /// The other.
    Dst,
}

/// Translation of a connection's addresses. Default: the existing translation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Nat {
    /// Which end of a new connection to translate.
    pub side: Option<NatSide>,
    /// Lowest and highest address.
    pub addresses: Option<(u128, u128)>,
    /// Whether they are IPv6 addresses.
    pub is_ipv6: bool,
    /// Lowest and highest port.
    pub ports: Option<(u16, u16)>,
    /// `persistent`.
    pub is_persistent: bool,
    /// `hash`.
    pub is_hash: bool,
    /// `random`.
    pub is_random: bool,
}

/// One action or instruction. Lists keep the order given; the codec puts instructions in theirs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Field names are those of ovs-actions(7).
pub enum Action {
    /// Output to a port, reserved ones included; `max_len` bytes go to CONTROLLER.
    Output { port: OfPort, max_len: u16 },
    /// Output to the port whose number a field holds.
    OutputReg { source: SubField, max_len: u16 },
    /// Output of at most `max_len` bytes.
    OutputTrunc { port: OfPort, max_len: u32 },
    /// The extended packet-in: `controller(max_len=..,reason=..,id=..,userdata=..,pause)`.
    Controller {
        max_len: u16,
        reason: PacketInReason,
        id: u16,
        userdata: Vec<u8>,
        meter_id: Option<u32>,
        pause: bool,
    },
    /// Output through a queue (OpenFlow 1.0).
    Enqueue { port: OfPort, queue: u32 },
    /// `set_field:VALUE[/MASK]->FIELD` and OpenFlow 1.0's `mod_*` (which print as such where 1.0 can).
    SetField { field: Mf, value: u128, mask: u128 },
    /// `set_field:VALUE[/MASK]->tun_metadataN`, and what `load` does to tunnel options; a mask of
    /// [`Wide::ONES`] is the whole option.
    SetOption { idx: u8, value: Box<Wide>, mask: Box<Wide> },
    /// `mod_tp_src`: source port of whichever transport protocol the packet has (OpenFlow 1.0 and 1.1; later
    /// versions use a set-field of the protocol in the match).
    SetTpSrc(u16),
    /// `mod_tp_dst`, likewise.
    SetTpDst(u16),
    /// `mod_nw_ttl`.
    SetNwTtl(u8),
    /// `load:VALUE->FIELD[..]`. It may have come as a set-field with a mask, and is then shown as that.
    Load { target: SubField, value: u64, as_set_field: bool },
    /// `move:SOURCE->TARGET`.
    Move { source: SubField, target: SubField },
    /// `push:SOURCE`.
    StackPush(SubField),
    /// `pop:TARGET`.
    StackPop(SubField),
    /// `mod_vlan_vid`: sets the VLAN id, adding a tag if there is none (OpenFlow 1.0 semantics).
    SetVlanVid { vid: u16, push_vlan_if_needed: bool },
    /// `mod_vlan_pcp`.
    SetVlanPcp { pcp: u8, push_vlan_if_needed: bool },
    /// `push_vlan:TPID`.
    PushVlan(u16),
    /// `strip_vlan` and `pop_vlan`.
    PopVlan,
    /// `push_mpls:TYPE`.
    PushMpls(u16),
    /// `pop_mpls:TYPE`.
    PopMpls(u16),
    /// `set_mpls_label`.
    SetMplsLabel(u32),
    /// `set_mpls_tc`.
    SetMplsTc(u8),
    /// `set_mpls_ttl`.
    SetMplsTtl(u8),
    /// `dec_mpls_ttl`.
    DecMplsTtl,
    /// `dec_ttl`, with the controllers to tell (`dec_ttl(1,2)`; without ids: 0).
    DecTtl(Option<Vec<u16>>),
    /// `dec_nsh_ttl`.
    DecNshTtl,
    /// `debug_recirc`, for tests: what follows waits until the packet comes back from the datapath.
    DebugRecirc,
    /// `debug_slow`, for tests: each packet of the flow is translated separately.
    DebugSlow,
    /// `set_tunnel` (32 bits) and `set_tunnel64`.
    SetTunnel { id: u64, wide: bool },
    /// `set_queue`.
    SetQueue(u32),
    /// `pop_queue`.
    PopQueue,
    /// `resubmit(PORT,TABLE[,ct])`; `None`: the current one.
    Resubmit { in_port: Option<OfPort>, table: Option<u8>, ct: bool },
    /// `goto_table`.
    GotoTable(u8),
    /// `write_metadata:VALUE[/MASK]`.
    WriteMetadata { value: u64, mask: u64 },
    /// `write_actions(...)`.
    WriteActions(Vec<Action>),
    /// `clear_actions`.
    ClearActions,
    /// `clone(...)`.
    Clone(Vec<Action>),
    /// `sample(probability=..,..)`, probability out of 65,535.
    Sample {
        probability: u16,
        collector_set_id: u32,
        obs_domain_id: u32,
        obs_point_id: u32,
        /// NONE by default.
        sampling_port: OfPort,
        direction: SampleDirection,
    },
    /// `fin_timeout(idle_timeout=..,hard_timeout=..)`: the rule's timeouts once TCP FIN or RST was seen.
    FinTimeout { idle_timeout_s: u16, hard_timeout_s: u16 },
    /// `ct(...)`.
    Ct(Box<Ct>),
    /// `nat(...)` within `ct`.
    Nat(Nat),
    /// `ct_clear`.
    CtClear,
    /// `delete_field:FIELD` (tunnel options).
    DeleteField(Mf),
    /// `check_pkt_larger(BYTES)->TARGET`.
    CheckPktLarger { length: u16, target: SubField },
    /// `note:..`: bytes that mean nothing.
    Note(Vec<u8>),
    /// `exit`.
    Exit,
    /// `conjunction(ID,K/N)`, `clause` from 0.
    Conjunction { id: u32, clause: u8, n_clauses: u8 },
    /// `group:ID`.
    Group(u32),
    /// `meter:ID`.
    Meter(u32),
    /// `learn(..)`.
    Learn(Box<Learn>),
    /// `multipath(..)`.
    Multipath(Box<Multipath>),
    /// `bundle(..)` and `bundle_load(..)`.
    Bundle(Box<Bundle>),
    /// `encap(HEADER(PROPERTY,..))`; the type is one of `packet_type`'s.
    Encap { packet_type: u32, header_size: u16, properties: Vec<NshProperty> },
    /// `decap(packet_type(ns=..,type=..))`; [`Action::USE_NEXT_PROTO`] by default.
    Decap { packet_type: u32 },
}

impl Action {
    /// The packet type of `decap()`: as the removed header says.
    pub const USE_NEXT_PROTO: u32 = 0xfffe;
}
