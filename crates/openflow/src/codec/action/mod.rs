//! Actions and instructions on the wire.
//!
//! An action is a type, a length (a multiple of 8, header included) and a body; type 0xffff is an experimenter's, and
//! most of those are Nicira's (NXAST_*), numbered in [`nx`]. Sources: OpenFlow 1.0 section 5.2.4, 1.3 sections 7.2.4
//! and 7.2.5; ovs-actions(7).

mod decode;
mod encode;
mod nicira;

pub(super) use decode::{read_actions, read_instructions};
pub(super) use encode::{write_actions, write_instructions};
pub(super) use nicira::reason_from_wire;

/// Numbers of OpenFlow 1.0's actions (OFPAT_*).
mod of10 {
    pub const OUTPUT: u16 = 0;
    pub const SET_VLAN_VID: u16 = 1;
    pub const SET_VLAN_PCP: u16 = 2;
    pub const STRIP_VLAN: u16 = 3;
    pub const SET_DL_SRC: u16 = 4;
    pub const SET_DL_DST: u16 = 5;
    pub const SET_NW_SRC: u16 = 6;
    pub const SET_NW_DST: u16 = 7;
    pub const SET_NW_TOS: u16 = 8;
    pub const SET_TP_SRC: u16 = 9;
    pub const SET_TP_DST: u16 = 10;
    pub const ENQUEUE: u16 = 11;
}

/// Numbers of OpenFlow 1.1's and later actions (OFPAT_*); those from SET_VLAN_VID to SET_MPLS_TC are 1.1's
/// alone.
mod of12 {
    pub const OUTPUT: u16 = 0;
    pub const SET_VLAN_VID: u16 = 1;
    pub const SET_VLAN_PCP: u16 = 2;
    pub const SET_DL_SRC: u16 = 3;
    pub const SET_DL_DST: u16 = 4;
    pub const SET_NW_SRC: u16 = 5;
    pub const SET_NW_DST: u16 = 6;
    pub const SET_NW_TOS: u16 = 7;
    pub const SET_NW_ECN: u16 = 8;
    pub const SET_TP_SRC: u16 = 9;
    pub const SET_TP_DST: u16 = 10;
    pub const SET_MPLS_LABEL: u16 = 13;
    pub const SET_MPLS_TC: u16 = 14;
    pub const SET_MPLS_TTL: u16 = 15;
    pub const DEC_MPLS_TTL: u16 = 16;
    pub const PUSH_VLAN: u16 = 17;
    pub const POP_VLAN: u16 = 18;
    pub const PUSH_MPLS: u16 = 19;
    pub const POP_MPLS: u16 = 20;
    pub const SET_QUEUE: u16 = 21;
    pub const GROUP: u16 = 22;
    pub const SET_NW_TTL: u16 = 23;
    pub const DEC_NW_TTL: u16 = 24;
    pub const SET_FIELD: u16 = 25;
    pub const COPY_FIELD: u16 = 28;
    pub const METER: u16 = 29;
}

/// Type of an experimenter's action or instruction.
const EXPERIMENTER: u16 = 0xffff;
/// The experimenter Nicira.
const NICIRA: u32 = 0x0000_2320;

/// Numbers of instructions (OFPIT_*).
mod instruction {
    pub const GOTO_TABLE: u16 = 1;
    pub const WRITE_METADATA: u16 = 2;
    pub const WRITE_ACTIONS: u16 = 3;
    pub const APPLY_ACTIONS: u16 = 4;
    pub const CLEAR_ACTIONS: u16 = 5;
    pub const METER: u16 = 6;
}

/// Numbers of Nicira's actions (NXAST_*).
mod nx {
    pub const RESUBMIT: u16 = 1;
    pub const SET_TUNNEL: u16 = 2;
    pub const SET_QUEUE: u16 = 4;
    pub const POP_QUEUE: u16 = 5;
    pub const REG_MOVE: u16 = 6;
    pub const REG_LOAD: u16 = 7;
    pub const NOTE: u16 = 8;
    pub const SET_TUNNEL64: u16 = 9;
    pub const RESUBMIT_TABLE: u16 = 14;
    pub const OUTPUT_REG: u16 = 15;
    pub const EXIT: u16 = 17;
    pub const DEC_TTL: u16 = 18;
    pub const FIN_TIMEOUT: u16 = 19;
    pub const CONTROLLER: u16 = 20;
    pub const DEC_TTL_CNT_IDS: u16 = 21;
    pub const WRITE_METADATA: u16 = 22;
    pub const PUSH_MPLS: u16 = 23;
    pub const POP_MPLS: u16 = 24;
    pub const SET_MPLS_TTL: u16 = 25;
    pub const DEC_MPLS_TTL: u16 = 26;
    pub const STACK_PUSH: u16 = 27;
    pub const STACK_POP: u16 = 28;
    pub const SAMPLE: u16 = 29;
    pub const SET_MPLS_LABEL: u16 = 30;
    pub const SET_MPLS_TC: u16 = 31;
    pub const OUTPUT_REG2: u16 = 32;
    pub const REG_LOAD2: u16 = 33;
    pub const CONJUNCTION: u16 = 34;
    pub const CONTROLLER2: u16 = 37;
    pub const SAMPLE2: u16 = 38;
    pub const OUTPUT_TRUNC: u16 = 39;
    pub const GROUP: u16 = 40;
    pub const SAMPLE3: u16 = 41;
    pub const CLONE: u16 = 42;
    pub const CT_CLEAR: u16 = 43;
    pub const RESUBMIT_TABLE_CT: u16 = 44;
    pub const DEC_NSH_TTL: u16 = 48;
    pub const CHECK_PKT_LARGER: u16 = 49;
    pub const DELETE_FIELD: u16 = 50;
    /// Known and not supported yet: multipath, bundle, bundle_load, learn, ct, nat, learn2, encap, decap. They are
    /// refused as if they were unknown (OFPBAC_BAD_VENDOR_TYPE).
    pub const UNSUPPORTED: [u16; 9] = [10, 12, 13, 16, 35, 36, 45, 46, 47];
}

/// Properties of NXAST_CONTROLLER2.
mod controller2 {
    pub const MAX_LEN: u16 = 0;
    pub const CONTROLLER_ID: u16 = 1;
    pub const REASON: u16 = 2;
    pub const USERDATA: u16 = 3;
    pub const PAUSE: u16 = 4;
    pub const METER_ID: u16 = 5;
}
