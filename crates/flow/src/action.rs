//! The actions and instructions of OpenFlow that rules carry, in a form of no version.
//!
//! Decoders of every version produce these, the translator interprets them, the printer shows them in the
//! syntax of ovs-actions(7). Where two wire forms mean the same but print differently, there are two variants.

use crate::mf::Mf;
use crate::options::Wide;
use base::OfPort;

/// `count` bits of a field from bit `offset` on: `NXM_NX_REG0[0..15]`.
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
    /// A bucket of a group says so (1.4).
    Group = 4,
    /// A packet-out says so (1.4).
    PacketOut = 5,
}

/// Which way a sampled packet goes through the sampling port, the number on the wire (NX_ACTION_SAMPLE_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum SampleDirection {
    /// Not said.
    #[default]
    Default = 0,
    /// Into the switch.
    Ingress = 1,
    /// Out of the switch.
    Egress = 2,
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
    /// `set_field:VALUE[/MASK]->tun_metadataN`, and what `load` does to tunnel options; a mask of [`Wide::ONES`] is the
    /// whole option.
    SetOption { idx: u8, value: Box<Wide>, mask: Box<Wide> },
    /// `mod_tp_src`: source port of whatever transport protocol the packet has (OpenFlow 1.0 and 1.1; later versions
    /// have it as a set-field of the protocol that the match says).
    SetTpSrc(u16),
    /// `mod_tp_dst`, likewise.
    SetTpDst(u16),
    /// `mod_nw_ttl`.
    SetNwTtl(u8),
    /// `load:VALUE->FIELD[..]`.
    Load { target: SubField, value: u64 },
    /// `move:SOURCE->TARGET`.
    Move { source: SubField, target: SubField },
    /// `push:SOURCE`.
    StackPush(SubField),
    /// `pop:TARGET`.
    StackPop(SubField),
    /// `mod_vlan_vid`: sets the VLAN id, adding a tag where there is none (OpenFlow 1.0 semantics).
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
    /// `dec_ttl`, with the controllers to tell (`dec_ttl(1,2)`; empty: id 0).
    DecTtl(Vec<u16>),
    /// `dec_nsh_ttl`.
    DecNshTtl,
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
        /// NONE where it is not given.
        sampling_port: OfPort,
        direction: SampleDirection,
    },
    /// `fin_timeout(idle_timeout=..,hard_timeout=..)`: the rule's timeouts once TCP FIN or RST was seen.
    FinTimeout { idle_timeout_s: u16, hard_timeout_s: u16 },
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
}
