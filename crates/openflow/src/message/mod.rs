//! Messages in a form independent of the version. Fields that do not exist in a version have the value given
//! here when decoded, and are left out when encoded; what a version cannot express at all is an encoding
//! error.

mod ct_flush;
mod extension;
mod flow;
mod group;
mod packet;
mod port;
mod stats;
mod switch;

pub use ct_flush::*;
pub use extension::*;
pub use flow::*;
pub use group::*;
pub use packet::*;
pub use port::*;
pub use stats::*;
pub use switch::*;

use crate::error::OfError;
use crate::version::VersionSet;
use base::OfPort;

/// Default priority of a flow.
pub const DEFAULT_PRIORITY: u16 = 0x8000;
/// The table number that means all of them (OFPTT_ALL); in a flow-mod that adds, the switch chooses.
pub const TABLE_ALL: u8 = 0xff;
/// Default number of bytes of a packet sent to a controller (OFP_DEFAULT_MISS_SEND_LEN).
pub const DEFAULT_MISS_SEND_LEN: u16 = 128;

/// The flow encoding that a message used, so that the answer uses the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum FlowForm {
    /// The standard's for the version: `ofp_match` in OpenFlow 1.0, OXM from 1.2 on.
    #[default]
    Standard,
    /// The Nicira extension's, with NXM.
    Nxm,
}

/// Any message. Large ones are boxed: a match alone has more than a kilobyte.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// OFPT_HELLO: the versions offered.
    Hello(VersionSet),
    /// OFPT_ERROR.
    Error(OfError),
    /// OFPT_ECHO_REQUEST with data of any kind.
    EchoRequest(Vec<u8>),
    /// OFPT_ECHO_REPLY with the data of the request.
    EchoReply(Vec<u8>),
    /// OFPT_FEATURES_REQUEST.
    FeaturesRequest,
    /// OFPT_FEATURES_REPLY.
    FeaturesReply(SwitchFeatures),
    /// OFPT_GET_CONFIG_REQUEST.
    GetConfigRequest,
    /// OFPT_GET_CONFIG_REPLY.
    GetConfigReply(SwitchConfig),
    /// OFPT_SET_CONFIG.
    SetConfig(SwitchConfig),
    /// OFPT_PACKET_IN, NXT_PACKET_IN, NXT_PACKET_IN2.
    PacketIn(Box<PacketIn>),
    /// OFPT_FLOW_REMOVED, NXT_FLOW_REMOVED.
    FlowRemoved(Box<FlowRemoved>),
    /// OFPT_PORT_STATUS.
    PortStatus(PortStatus),
    /// OFPT_PACKET_OUT.
    PacketOut(Box<PacketOut>),
    /// OFPT_FLOW_MOD, NXT_FLOW_MOD.
    FlowMod(Box<FlowMod>),
    /// OFPT_PORT_MOD.
    PortMod(PortMod),
    /// OFPT_GROUP_MOD (1.1 and later), NXT_GROUP_MOD.
    GroupMod(Box<GroupMod>),
    /// OFPT_METER_MOD (1.3 and later).
    MeterMod(MeterMod),
    /// OFPT_TABLE_MOD (1.1 and later).
    TableMod(TableMod),
    /// OFPT_STATS_REQUEST, from 1.3 on OFPT_MULTIPART_REQUEST; NXST_*.
    StatsRequest(StatsRequest),
    /// The reply to one.
    StatsReply(StatsReply),
    /// OFPT_BARRIER_REQUEST.
    BarrierRequest,
    /// OFPT_BARRIER_REPLY.
    BarrierReply,
    /// OFPT_QUEUE_GET_CONFIG_REQUEST; `None`: all ports.
    QueueGetConfigRequest {
        /// The port.
        port: Option<OfPort>,
    },
    /// OFPT_QUEUE_GET_CONFIG_REPLY.
    QueueGetConfigReply {
        /// The port asked for.
        port: Option<OfPort>,
        /// Its queues.
        queues: Vec<QueueConfig>,
    },
    /// OFPT_ROLE_REQUEST (1.2 and later), NXT_ROLE_REQUEST.
    RoleRequest(RoleRequest),
    /// Its reply, in the same form.
    RoleReply(RoleRequest),
    /// OFPT_ROLE_STATUS (1.4 and later) or its extension to 1.3.
    RoleStatus(RoleStatus),
    /// OFPT_REQUESTFORWARD (1.4 and later) and its extensions: a group-mod or meter-mod of another
    /// controller, with its transaction id.
    RequestForward(u32, Box<Message>),
    /// OFPT_TABLE_STATUS (1.4 and later).
    TableStatus(TableStatus),
    /// OFPT_GET_ASYNC_REQUEST (1.3 and later).
    GetAsyncRequest,
    /// OFPT_GET_ASYNC_REPLY.
    GetAsyncReply(AsyncConfig),
    /// OFPT_SET_ASYNC, NXT_SET_ASYNC_CONFIG.
    SetAsync(AsyncChange),
    /// NXT_FLOW_MOD_TABLE_ID: whether OpenFlow 1.0 flow-mods carry a table in the high byte of the command.
    FlowModTableId(bool),
    /// NXT_SET_FLOW_FORMAT: how the switch sends flow-removed (and, of old, replies).
    SetFlowFormat(FlowForm),
    /// NXT_SET_PACKET_IN_FORMAT.
    SetPacketInFormat(PacketInForm),
    /// NXT_SET_CONTROLLER_ID.
    SetControllerId(u16),
    /// NXT_FLOW_AGE: tells nothing by itself but that ages are understood.
    FlowAge,
    /// NXT_FLOW_MONITOR_CANCEL, with the monitor's id.
    FlowMonitorCancel(u32),
    /// NXT_FLOW_MONITOR_PAUSED.
    FlowMonitorPaused,
    /// NXT_FLOW_MONITOR_RESUMED.
    FlowMonitorResumed,
    /// NXT_TLV_TABLE_REQUEST.
    TlvTableRequest,
    /// NXT_TLV_TABLE_REPLY.
    TlvTableReply(TlvTable),
    /// NXT_TLV_TABLE_MOD.
    TlvTableMod(TlvTableMod),
    /// NXT_RESUME: continues with a packet that `controller(pause)` stopped.
    Resume(Box<PacketIn>),
    /// NXT_CT_FLUSH_ZONE.
    CtFlushZone(u16),
    /// NXT_CT_FLUSH.
    CtFlush(Box<CtFlush>),
    /// OFPT_BUNDLE_CONTROL (1.4 and later) or its extension to 1.3.
    BundleControl(BundleControl),
    /// OFPT_BUNDLE_ADD_MESSAGE or its extension to 1.3.
    BundleAdd(BundleAdd),
}

impl Message {
    /// Whether controllers send it to switches. Hello, errors and echoes go in both directions.
    pub fn is_for_switch(&self) -> bool {
        use Message::*;
        !matches!(
            self,
            FeaturesReply(_)
                | GetConfigReply(_)
                | PacketIn(_)
                | FlowRemoved(_)
                | PortStatus(_)
                | StatsReply(_)
                | BarrierReply
                | QueueGetConfigReply { .. }
                | RoleReply(_)
                | RoleStatus(_)
                | RequestForward(..)
                | TableStatus(_)
                | GetAsyncReply(_)
                | FlowMonitorPaused
                | FlowMonitorResumed
                | TlvTableReply(_)
        )
    }

    /// The name as `ovs-ofctl` prints it, such as `OFPT_FLOW_MOD` or `NXT_PACKET_IN2`.
    pub fn name(&self) -> &'static str {
        use Message::*;
        match self {
            Hello(_) => "OFPT_HELLO",
            Error(_) => "OFPT_ERROR",
            EchoRequest(_) => "OFPT_ECHO_REQUEST",
            EchoReply(_) => "OFPT_ECHO_REPLY",
            FeaturesRequest => "OFPT_FEATURES_REQUEST",
            FeaturesReply(_) => "OFPT_FEATURES_REPLY",
            GetConfigRequest => "OFPT_GET_CONFIG_REQUEST",
            GetConfigReply(_) => "OFPT_GET_CONFIG_REPLY",
            SetConfig(_) => "OFPT_SET_CONFIG",
            PacketIn(p) => match p.form {
                PacketInForm::Standard => "OFPT_PACKET_IN",
                PacketInForm::Nxt => "NXT_PACKET_IN",
                PacketInForm::Nxt2 => "NXT_PACKET_IN2",
            },
            FlowRemoved(r) => match r.form {
                FlowForm::Standard => "OFPT_FLOW_REMOVED",
                FlowForm::Nxm => "NXT_FLOW_REMOVED",
            },
            PortStatus(_) => "OFPT_PORT_STATUS",
            PacketOut(_) => "OFPT_PACKET_OUT",
            FlowMod(m) => match m.form {
                FlowForm::Standard => "OFPT_FLOW_MOD",
                FlowForm::Nxm => "NXT_FLOW_MOD",
            },
            PortMod(_) => "OFPT_PORT_MOD",
            TableMod(_) => "OFPT_TABLE_MOD",
            GroupMod(_) => "OFPT_GROUP_MOD",
            MeterMod(_) => "OFPT_METER_MOD",
            RoleStatus(_) => "OFPT_ROLE_STATUS",
            RequestForward(..) => "OFPT_REQUESTFORWARD",
            TableStatus(_) => "OFPT_TABLE_STATUS",
            StatsRequest(r) => r.name(),
            StatsReply(r) => r.body.name(),
            BarrierRequest => "OFPT_BARRIER_REQUEST",
            BarrierReply => "OFPT_BARRIER_REPLY",
            QueueGetConfigRequest { .. } => "OFPT_QUEUE_GET_CONFIG_REQUEST",
            QueueGetConfigReply { .. } => "OFPT_QUEUE_GET_CONFIG_REPLY",
            RoleRequest(_) => "OFPT_ROLE_REQUEST",
            RoleReply(_) => "OFPT_ROLE_REPLY",
            GetAsyncRequest => "OFPT_GET_ASYNC_REQUEST",
            GetAsyncReply(_) => "OFPT_GET_ASYNC_REPLY",
            SetAsync(_) => "OFPT_SET_ASYNC",
            FlowModTableId(_) => "NXT_FLOW_MOD_TABLE_ID",
            SetFlowFormat(_) => "NXT_SET_FLOW_FORMAT",
            SetPacketInFormat(_) => "NXT_SET_PACKET_IN_FORMAT",
            SetControllerId(_) => "NXT_SET_CONTROLLER_ID",
            FlowAge => "NXT_FLOW_AGE",
            FlowMonitorCancel(_) => "NXT_FLOW_MONITOR_CANCEL",
            FlowMonitorPaused => "NXT_FLOW_MONITOR_PAUSED",
            FlowMonitorResumed => "NXT_FLOW_MONITOR_RESUMED",
            TlvTableRequest => "NXT_TLV_TABLE_REQUEST",
            TlvTableReply(_) => "NXT_TLV_TABLE_REPLY",
            TlvTableMod(_) => "NXT_TLV_TABLE_MOD",
            Resume(_) => "NXT_RESUME",
            CtFlushZone(_) => "NXT_CT_FLUSH_ZONE",
            CtFlush(_) => "NXT_CT_FLUSH",
            BundleControl(_) => "OFPT_BUNDLE_CONTROL",
            BundleAdd(_) => "OFPT_BUNDLE_ADD_MESSAGE",
        }
    }
}
