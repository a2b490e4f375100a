//! Groups and meters: changes, descriptions and counters.

use base::OfPort;
use flow::{Action, Mf};

/// OFPG_ALL: every group, in deletes and requests.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// OFPG_ANY: no restriction to a group.
pub const GROUP_ANY: u32 = 0xffff_ffff;
/// The greatest number that a group may have (OFPG_MAX).
pub const GROUP_MAX: u32 = 0xffff_ff00;
/// OFPG_BUCKET_*: places and sets of buckets, in `insert-buckets` and `remove-buckets`. Numbers of buckets
/// are smaller.
pub const BUCKET_FIRST: u32 = 0xffff_fffd;
/// The last bucket.
pub const BUCKET_LAST: u32 = 0xffff_fffe;
/// All buckets.
pub const BUCKET_ALL: u32 = 0xffff_ffff;
/// The greatest number that a bucket may have.
pub const BUCKET_MAX: u32 = 0xffff_ff00;

/// OFPGC_*, with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum GroupCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
    InsertBucket = 3,
    RemoveBucket = 5,
    /// Modify, or add if the group does not exist (an extension).
    AddOrModify = 0x8000,
}

impl GroupCommand {
    /// All, with the words that messages use for them.
    pub const ALL: [(GroupCommand, &'static str); 6] = [
        (GroupCommand::Add, "ADD"),
        (GroupCommand::Modify, "MOD"),
        (GroupCommand::Delete, "DEL"),
        (GroupCommand::InsertBucket, "INSERT_BUCKET"),
        (GroupCommand::RemoveBucket, "REMOVE_BUCKET"),
        (GroupCommand::AddOrModify, "ADD_OR_MOD"),
    ];
}

/// OFPGT_*, with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum GroupType {
    #[default]
    All = 0,
    Select = 1,
    Indirect = 2,
    FastFailover = 3,
}

impl GroupType {
    /// All, with their names in text.
    pub const ALL: [(GroupType, &'static str); 4] = [
        (GroupType::All, "all"),
        (GroupType::Select, "select"),
        (GroupType::Indirect, "indirect"),
        (GroupType::FastFailover, "ff"),
    ];

    /// From the number on the wire.
    pub fn from_wire(number: u8) -> Option<GroupType> {
        Self::ALL.into_iter().map(|(kind, _)| kind).find(|&kind| kind as u8 == number)
    }
}

/// What a group does with a packet, or with its share of packets.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bucket {
    /// Its number. On the wire from 1.5 on, and in the extension to 1.0; before, its place in the list.
    pub id: u32,
    /// Share of packets (select groups); default 1, 0 in groups of other types.
    pub weight: u16,
    /// Used while this port is up (fast failover groups).
    pub watch_port: Option<OfPort>,
    /// Used while this group has a live bucket (fast failover groups).
    pub watch_group: Option<u32>,
    /// What to do.
    pub actions: Vec<Action>,
}

/// How a select group selects (NTR_SELECTION_METHOD); all empty: as the switch likes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupSelection {
    /// `hash` or `dp_hash`, at most 15 bytes.
    pub method: String,
    /// A number for the method.
    pub param: u64,
    /// Fields to hash, each with the bits that count.
    pub fields: Vec<(Mf, u128)>,
}

/// A group as its owner defines it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GroupDesc {
    /// Its number.
    pub group_id: u32,
    /// Its type.
    pub kind: GroupType,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// How it selects.
    pub selection: GroupSelection,
}

/// OFPT_GROUP_MOD and NXT_GROUP_MOD.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupCommand,
    /// Where to insert buckets, or which to remove: a number, or BUCKET_FIRST, BUCKET_LAST, BUCKET_ALL.
    pub command_bucket_id: u32,
    /// The group; a delete uses only its number.
    pub group: GroupDesc,
}

/// Counters of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Its number.
    pub group_id: u32,
    /// Flows and groups that refer to it.
    pub ref_count: u32,
    /// Packets and bytes.
    pub counts: (u64, u64),
    /// Seconds that it has existed; `u32::MAX` where unknown. On the wire from 1.3 on.
    pub duration_s: u32,
    /// And nanoseconds.
    pub duration_ns: u32,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// OFPM_CONTROLLER, the meter of packet-ins.
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// OFPM_SLOWPATH.
pub const METER_SLOWPATH: u32 = 0xffff_fffd;
/// OFPM_ALL.
pub const METER_ALL: u32 = 0xffff_ffff;
/// The greatest number that a meter may have (OFPM_MAX).
pub const METER_MAX: u32 = 0xffff_0000;

/// OFPMC_*, with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum MeterCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

bitflags::bitflags! {
    /// OFPMF_*.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct MeterFlags: u16 {
        /// Rates in kb/s.
        const KBPS = 1 << 0;
        /// Rates in packets/s.
        const PKTPS = 1 << 1;
        /// Bands have burst sizes.
        const BURST = 1 << 2;
        /// Keep statistics.
        const STATS = 1 << 3;
        /// Unknown flags are shown and refused.
        const _ = !0;
    }
}

/// What a band does with packets over its rate (OFPMBT_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum BandType {
    Drop,
    /// Raise the drop precedence by this much.
    DscpRemark {
        prec_level: u8,
    },
}

/// One band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// What it does.
    pub kind: BandType,
    /// The rate above which it applies, in the meter's unit.
    pub rate: u32,
    /// How much above it at once, in kilobits or packets.
    pub burst_size: u32,
}

/// A meter as its owner defines it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterConfig {
    /// Its number.
    pub meter_id: u32,
    /// Flags.
    pub flags: MeterFlags,
    /// Bands.
    pub bands: Vec<Band>,
}

/// OFPT_METER_MOD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterCommand,
    /// The meter; a delete uses only its number.
    pub meter: MeterConfig,
}

/// Counters of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct MeterStats {
    pub meter_id: u32,
    pub flow_count: u32,
    /// Packets and bytes that came in.
    pub counts: (u64, u64),
    pub duration_s: u32,
    pub duration_ns: u32,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}
