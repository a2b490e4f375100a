//! Statistics (1.0 to 1.2), called multipart from 1.3 on.

use super::{
    AggregateStats, FlowForm, FlowMonitorRequest, FlowStats, FlowStatsRequest, FlowUpdate, GroupDesc,
    GroupStats, MeterConfig, MeterStats, PortDesc, PortStats, QueueConfig, QueueStats,
};
use base::OfPort;

/// A request.
#[derive(Clone, PartialEq, Debug)]
pub enum StatsRequest {
    /// OFPST_DESC.
    Desc,
    /// OFPST_FLOW, NXST_FLOW.
    Flow(Box<FlowStatsRequest>),
    /// OFPST_AGGREGATE, NXST_AGGREGATE.
    Aggregate(Box<FlowStatsRequest>),
    /// OFPST_TABLE.
    Table,
    /// OFPST_PORT; `None`: all.
    Port(Option<OfPort>),
    /// OFPST_QUEUE.
    Queue {
        /// `None`: all.
        port: Option<OfPort>,
        /// `None`: all.
        queue_id: Option<u32>,
    },
    /// OFPST_GROUP (1.1 and later); `None`: all.
    Group(Option<u32>),
    /// OFPST_GROUP_DESC.
    GroupDesc(Option<u32>),
    /// OFPST_GROUP_FEATURES.
    GroupFeatures,
    /// OFPST_METER (1.3 and later); `None`: all.
    Meter(Option<u32>),
    /// OFPST_METER_CONFIG.
    MeterConfig(Option<u32>),
    /// OFPST_METER_FEATURES.
    MeterFeatures,
    /// OFPST_TABLE_FEATURES; empty: ask only. `more` says that further parts follow.
    TableFeatures {
        /// New features.
        features: Vec<TableFeatures>,
        /// Whether further parts follow (OFPMPF_REQ_MORE).
        more: bool,
    },
    /// OFPST_PORT_DESC (1.3, and earlier by extension); `None`: all.
    PortDesc(Option<OfPort>),
    /// OFPST_TABLE_DESC (1.4).
    TableDesc,
    /// OFPST_QUEUE_DESC (1.4).
    QueueDesc {
        /// `None`: all.
        port: Option<OfPort>,
        /// `None`: all.
        queue_id: Option<u32>,
    },
    /// OFPST_FLOW_MONITOR (1.4), and its extensions to 1.3 and before.
    FlowMonitor(Vec<FlowMonitorRequest>),
    /// NXST_IPFIX_BRIDGE.
    IpfixBridge,
    /// NXST_IPFIX_FLOW.
    IpfixFlow,
}

impl StatsRequest {
    /// The name that `ovs-ofctl` prints.
    pub fn name(&self) -> &'static str {
        match self {
            StatsRequest::Desc => "OFPST_DESC",
            StatsRequest::Flow(r) => match r.form {
                FlowForm::Standard => "OFPST_FLOW",
                FlowForm::Nxm => "NXST_FLOW",
            },
            StatsRequest::Aggregate(r) => match r.form {
                FlowForm::Standard => "OFPST_AGGREGATE",
                FlowForm::Nxm => "NXST_AGGREGATE",
            },
            StatsRequest::Table => "OFPST_TABLE",
            StatsRequest::Port(_) => "OFPST_PORT",
            StatsRequest::Queue { .. } => "OFPST_QUEUE",
            StatsRequest::Group(_) => "OFPST_GROUP",
            StatsRequest::GroupDesc(_) => "OFPST_GROUP_DESC",
            StatsRequest::GroupFeatures => "OFPST_GROUP_FEATURES",
            StatsRequest::Meter(_) => "OFPST_METER",
            StatsRequest::MeterConfig(_) => "OFPST_METER_CONFIG",
            StatsRequest::MeterFeatures => "OFPST_METER_FEATURES",
            StatsRequest::TableFeatures { .. } => "OFPST_TABLE_FEATURES",
            StatsRequest::PortDesc(_) => "OFPST_PORT_DESC",
            StatsRequest::TableDesc => "OFPST_TABLE_DESC",
            StatsRequest::QueueDesc { .. } => "OFPST_QUEUE_DESC",
            StatsRequest::FlowMonitor(_) => "NXST_FLOW_MONITOR",
            StatsRequest::IpfixBridge => "NXST_IPFIX_BRIDGE",
            StatsRequest::IpfixFlow => "NXST_IPFIX_FLOW",
        }
    }
}

/// A reply, or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub struct StatsReply {
    /// Whether further parts follow (OFPSF_REPLY_MORE).
    pub more: bool,
    /// The content.
    pub body: StatsBody,
}

/// The content of a reply.
#[derive(Clone, PartialEq, Debug)]
pub enum StatsBody {
    /// OFPST_DESC.
    Desc(SwitchDesc),
    /// OFPST_FLOW, NXST_FLOW.
    Flow {
        /// The encoding.
        form: FlowForm,
        /// The flows.
        flows: Vec<FlowStats>,
    },
    /// OFPST_AGGREGATE, NXST_AGGREGATE.
    Aggregate {
        /// The encoding.
        form: FlowForm,
        /// The sums.
        stats: AggregateStats,
    },
    /// OFPST_TABLE.
    Table(Vec<TableStats>),
    /// OFPST_PORT.
    Port(Vec<PortStats>),
    /// OFPST_QUEUE.
    Queue(Vec<QueueStats>),
    /// OFPST_GROUP.
    Group(Vec<GroupStats>),
    /// OFPST_GROUP_DESC.
    GroupDesc(Vec<GroupDesc>),
    /// OFPST_GROUP_FEATURES.
    GroupFeatures(GroupFeatures),
    /// OFPST_METER.
    Meter(Vec<MeterStats>),
    /// OFPST_METER_CONFIG.
    MeterConfig(Vec<MeterConfig>),
    /// OFPST_METER_FEATURES.
    MeterFeatures(MeterFeatures),
    /// OFPST_TABLE_FEATURES.
    TableFeatures(Vec<TableFeatures>),
    /// OFPST_PORT_DESC.
    PortDesc(Vec<PortDesc>),
    /// OFPST_TABLE_DESC (1.4).
    TableDesc(Vec<TableDesc>),
    /// OFPST_QUEUE_DESC (1.4).
    QueueDesc(Vec<QueueConfig>),
    /// OFPST_FLOW_MONITOR (1.4), and its extensions to 1.3 and before.
    FlowMonitor(Vec<FlowUpdate>),
    /// NXST_IPFIX_BRIDGE.
    IpfixBridge(IpfixStats),
    /// NXST_IPFIX_FLOW.
    IpfixFlow(Vec<IpfixStats>),
}

impl StatsBody {
    /// The name that `ovs-ofctl` prints.
    pub fn name(&self) -> &'static str {
        match self {
            StatsBody::Desc(_) => "OFPST_DESC",
            StatsBody::Flow { form: FlowForm::Standard, .. } => "OFPST_FLOW",
            StatsBody::Flow { form: FlowForm::Nxm, .. } => "NXST_FLOW",
            StatsBody::Aggregate { form: FlowForm::Standard, .. } => "OFPST_AGGREGATE",
            StatsBody::Aggregate { form: FlowForm::Nxm, .. } => "NXST_AGGREGATE",
            StatsBody::Table(_) => "OFPST_TABLE",
            StatsBody::Port(_) => "OFPST_PORT",
            StatsBody::Queue(_) => "OFPST_QUEUE",
            StatsBody::Group(_) => "OFPST_GROUP",
            StatsBody::GroupDesc(_) => "OFPST_GROUP_DESC",
            StatsBody::GroupFeatures(_) => "OFPST_GROUP_FEATURES",
            StatsBody::Meter(_) => "OFPST_METER",
            StatsBody::MeterConfig(_) => "OFPST_METER_CONFIG",
            StatsBody::MeterFeatures(_) => "OFPST_METER_FEATURES",
            StatsBody::TableFeatures(_) => "OFPST_TABLE_FEATURES",
            StatsBody::PortDesc(_) => "OFPST_PORT_DESC",
            StatsBody::TableDesc(_) => "OFPST_TABLE_DESC",
            StatsBody::QueueDesc(_) => "OFPST_QUEUE_DESC",
            StatsBody::FlowMonitor(_) => "NXST_FLOW_MONITOR",
            StatsBody::IpfixBridge(_) => "NXST_IPFIX_BRIDGE",
            StatsBody::IpfixFlow(_) => "NXST_IPFIX_FLOW",
        }
    }
}

/// OFPST_DESC: the switch's manufacturer and so on. Each is truncated to 255 bytes (32 for the serial number)
/// on the wire.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SwitchDesc {
    /// Manufacturer.
    pub manufacturer: String,
    /// Hardware.
    pub hardware: String,
    /// Software.
    pub software: String,
    /// Serial number.
    pub serial_number: String,
    /// The bridge.
    pub datapath: String,
}

/// One table of a table statistics reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableStats {
    /// Its number and, in 1.0 to 1.2, its capabilities, to the extent that the version has them.
    pub features: TableFeatures,
    /// Flows.
    pub active_count: u32,
    /// Packets looked up.
    pub lookup_count: u64,
    /// Packets that hit a flow.
    pub matched_count: u64,
}

/// What a table does with a packet that matches nothing (OFPTC_TABLE_MISS_*, 1.1 and 1.2; 1.3 uses the flow
/// of priority 0 instead), with wire numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum TableMiss {
    #[default]
    Controller = 0,
    Continue = 1,
    Drop = 2,
}

/// OFPT_TABLE_MOD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableMod {
    /// Table, or [`super::TABLE_ALL`].
    pub table_id: u8,
    /// The bits as on the wire: miss behaviour (1.1, 1.2); deprecated (1.3); eviction 1 << 2 and vacancy 1 <<
    /// 3 (1.4).
    pub config: u32,
    /// The criteria for evicting flows (OFPTMPEF_*, 1.4).
    pub eviction_flags: Option<u32>,
    /// When to tell how full it is (1.4).
    pub vacancy: Option<Vacancy>,
}

impl TableMod {
    /// OFPTC_EVICTION: flows are evicted when the table is full.
    pub const EVICTION: u32 = 1 << 2;
    /// OFPTC_VACANCY_EVENTS: the switch tells when the table is nearly full.
    pub const VACANCY_EVENTS: u32 = 1 << 3;
}

/// Thresholds of vacancy, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Vacancy {
    /// Tell when less is free.
    pub down: u8,
    /// Tell when more is free.
    pub up: u8,
    /// How much is free now (in what a switch sends).
    pub now: u8,
}

/// One table of OFPST_TABLE_DESC.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableDesc(pub TableMod);

/// OFPT_TABLE_STATUS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatus {
    /// OFPTR_VACANCY_*.
    pub reason: u8,
    /// The table.
    pub desc: TableDesc,
}

impl TableStatus {
    /// Less is free than wanted.
    pub const VACANCY_DOWN: u8 = 3;
    /// Enough is free again.
    pub const VACANCY_UP: u8 = 4;
}

/// Counters of an IPFIX exporter: of a bridge, or of one collector set.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs)]
pub struct IpfixStats {
    pub total_flows: u64,
    pub current_flows: u64,
    pub packets: u64,
    pub ipv4_packets: u64,
    pub ipv6_packets: u64,
    pub error_packets: u64,
    pub ipv4_error_packets: u64,
    pub ipv6_error_packets: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub collector_set_id: u32,
}

/// A table's capabilities (1.3; some of them in the statistics of 1.0 to 1.2). Instructions and actions are
/// bitmaps of their numbers in 1.3 (experimenters in bit 31).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableFeatures {
    /// Table.
    pub table_id: u8,
    /// Name, truncated to 31 bytes on the wire.
    pub name: String,
    /// Bits of metadata that it can match.
    pub metadata_match: u64,
    /// Bits of metadata that it can write.
    pub metadata_write: u64,
    /// OFPTFC_* (1.5): what a request does with the table.
    pub command: u8,
    /// OFPTC_*; in 1.1 and 1.2 what happens to packets that match nothing ([`TableMiss`]).
    pub config: u32,
    /// Most flows it can hold.
    pub max_entries: u32,
    /// For flows other than the table-miss flow.
    pub nonmiss: TableInstructionFeatures,
    /// For the table-miss flow. `None`: the same.
    pub miss: Option<TableInstructionFeatures>,
    /// NXM/OXM headers that can be matched (has-mask bit if they can be masked).
    pub matchable: Vec<u64>,
    /// The ones among them that may be omitted; never with the has-mask bit.
    pub wildcards: Vec<u64>,
}

impl TableFeatures {
    /// A table that can do nothing.
    pub fn of(table_id: u8) -> TableFeatures {
        TableFeatures {
            table_id,
            name: String::new(),
            metadata_match: 0,
            metadata_write: 0,
            command: 0,
            config: 0,
            max_entries: 0,
            nonmiss: TableInstructionFeatures::default(),
            miss: None,
            matchable: Vec::new(),
            wildcards: Vec::new(),
        }
    }
}

/// The capabilities of a table's flows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TableInstructionFeatures {
    /// Bitmap of OFPIT_*.
    pub instructions: u32,
    /// Tables that they can go to.
    pub next_tables: Vec<u8>,
    /// Bitmap of OFPAT_* for write-actions.
    pub write_actions: u32,
    /// Bitmap of OFPAT_* for apply-actions.
    pub apply_actions: u32,
    /// OXM headers that set-field can write in write-actions.
    pub write_set_fields: Vec<u64>,
    /// And in apply-actions.
    pub apply_set_fields: Vec<u64>,
}

/// OFPST_GROUP_FEATURES; arrays by group type (all, select, indirect, fast failover).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GroupFeatures {
    /// Bitmap of types.
    pub types: u32,
    /// Bitmap of OFPGFC_*.
    pub capabilities: u32,
    /// Most groups.
    pub max_groups: [u32; 4],
    /// Bitmaps of OFPAT_*.
    pub actions: [u32; 4],
}

/// OFPST_METER_FEATURES.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MeterFeatures {
    /// Maximum number of meters; 0 means that there are none.
    pub max_meters: u32,
    /// Bitmap of OFPMBT_*.
    pub band_types: u32,
    /// Bitmap of OFPMF_*.
    pub capabilities: u32,
    /// Maximum number of bands per meter.
    pub max_bands: u8,
    /// Greatest colour value.
    pub max_color: u8,
}
