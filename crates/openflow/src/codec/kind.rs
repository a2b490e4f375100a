//! The numbers of message types, statistics types and Nicira's subtypes, one row each.

use crate::version::Version;

/// The last N of OpenFlow 1.N to which a row applies.
macro_rules! until {
    () => {
        u8::MAX
    };
    ($last:literal) => {
        $last
    };
}

macro_rules! numbered {
    ($(#[$doc:meta])* $enum:ident: $number:ty { $($name:ident: $of10:expr, $later:expr, since $since:literal $(to $until:literal)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum $enum { $($name,)* }

        impl $enum {
            const ROWS: &'static [($enum, Option<$number>, Option<$number>, std::ops::RangeInclusive<u8>)] =
                &[$(($enum::$name, $of10, $later, $since..=until!($($until)?)),)*];

            fn number(
                row: &($enum, Option<$number>, Option<$number>, std::ops::RangeInclusive<u8>),
                version: Version,
            ) -> Option<$number> {
                match version {
                    Version::V10 => row.1,
                    later if row.3.contains(&later.minor()) => row.2,
                    _ => None,
                }
            }

            /// All of them, in the table's order.
            pub fn all() -> impl Iterator<Item = $enum> {
                Self::ROWS.iter().map(|row| row.0)
            }

            /// From a version's wire number.
            pub fn from_wire(version: Version, number: $number) -> Option<$enum> {
                Self::ROWS.iter().find(|row| Self::number(row, version) == Some(number)).map(|row| row.0)
            }

            /// The wire number in a version; `None` if it has none.
            pub fn to_wire(self, version: Version) -> Option<$number> {
                Self::number(&Self::ROWS[self as usize], version)
            }
        }
    };
}

numbered! {
    /// Types of messages: number in OpenFlow 1.0, number later, since (and to) which OpenFlow 1.N that holds.
    Kind: u8 {
        Hello: Some(0), Some(0), since 1;
        Error: Some(1), Some(1), since 1;
        EchoRequest: Some(2), Some(2), since 1;
        EchoReply: Some(3), Some(3), since 1;
        Experimenter: Some(4), Some(4), since 1;
        FeaturesRequest: Some(5), Some(5), since 1;
        FeaturesReply: Some(6), Some(6), since 1;
        GetConfigRequest: Some(7), Some(7), since 1;
        GetConfigReply: Some(8), Some(8), since 1;
        SetConfig: Some(9), Some(9), since 1;
        PacketIn: Some(10), Some(10), since 1;
        FlowRemoved: Some(11), Some(11), since 1;
        PortStatus: Some(12), Some(12), since 1;
        PacketOut: Some(13), Some(13), since 1;
        FlowMod: Some(14), Some(14), since 1;
        GroupMod: None, Some(15), since 1;
        PortMod: Some(15), Some(16), since 1;
        TableMod: None, Some(17), since 1;
        StatsRequest: Some(16), Some(18), since 1;
        StatsReply: Some(17), Some(19), since 1;
        BarrierRequest: Some(18), Some(20), since 1;
        BarrierReply: Some(19), Some(21), since 1;
        QueueGetConfigRequest: Some(20), Some(22), since 1 to 3;
        QueueGetConfigReply: Some(21), Some(23), since 1 to 3;
        RoleRequest: None, Some(24), since 2;
        RoleReply: None, Some(25), since 2;
        GetAsyncRequest: None, Some(26), since 3;
        GetAsyncReply: None, Some(27), since 3;
        SetAsync: None, Some(28), since 3;
        MeterMod: None, Some(29), since 3;
        RoleStatus: None, Some(30), since 4;
        TableStatus: None, Some(31), since 4;
        RequestForward: None, Some(32), since 4;
        BundleControl: None, Some(33), since 4;
        BundleAdd: None, Some(34), since 4;
    }
}

numbered! {
    /// Types of statistics, likewise.
    StatsKind: u16 {
        Desc: Some(0), Some(0), since 1;
        Flow: Some(1), Some(1), since 1;
        Aggregate: Some(2), Some(2), since 1;
        Table: Some(3), Some(3), since 1;
        Port: Some(4), Some(4), since 1;
        Queue: Some(5), Some(5), since 1;
        Group: None, Some(6), since 1;
        GroupDesc: None, Some(7), since 1;
        GroupFeatures: None, Some(8), since 2;
        Meter: None, Some(9), since 3;
        MeterConfig: None, Some(10), since 3;
        MeterFeatures: None, Some(11), since 3;
        TableFeatures: None, Some(12), since 3;
        PortDesc: Some(13), Some(13), since 1;
        TableDesc: None, Some(14), since 4;
        QueueDesc: None, Some(15), since 4;
        FlowMonitor: None, Some(16), since 4;
        Experimenter: Some(0xffff), Some(0xffff), since 1;
    }
}

/// The experimenter Nicira.
pub(super) const NICIRA: u32 = 0x0000_2320;
/// The experimenter Open Networking Foundation.
pub(super) const ONF: u32 = 0x4f4e_4600;

/// Subtypes of Nicira's messages (NXT_*).
pub(super) mod nxt {
    pub const ROLE_REQUEST: u32 = 10;
    pub const ROLE_REPLY: u32 = 11;
    pub const SET_FLOW_FORMAT: u32 = 12;
    pub const FLOW_MOD: u32 = 13;
    pub const FLOW_REMOVED: u32 = 14;
    pub const FLOW_MOD_TABLE_ID: u32 = 15;
    pub const SET_PACKET_IN_FORMAT: u32 = 16;
    pub const PACKET_IN: u32 = 17;
    pub const FLOW_AGE: u32 = 18;
    pub const SET_ASYNC_CONFIG: u32 = 19;
    pub const SET_CONTROLLER_ID: u32 = 20;
    pub const FLOW_MONITOR_CANCEL: u32 = 21;
    pub const FLOW_MONITOR_PAUSED: u32 = 22;
    pub const FLOW_MONITOR_RESUMED: u32 = 23;
    pub const TLV_TABLE_MOD: u32 = 24;
    pub const TLV_TABLE_REQUEST: u32 = 25;
    pub const TLV_TABLE_REPLY: u32 = 26;
    pub const RESUME: u32 = 28;
    pub const CT_FLUSH_ZONE: u32 = 29;
    pub const PACKET_IN2: u32 = 30;
    pub const GROUP_MOD: u32 = 31;
    pub const CT_FLUSH: u32 = 32;
    pub const SET_ASYNC_CONFIG2: u32 = 27;
    pub const REQUESTFORWARD: u32 = 132;
}

/// Subtypes of Nicira's statistics (NXST_*).
pub(super) mod nxst {
    pub const FLOW: u32 = 0;
    pub const AGGREGATE: u32 = 1;
    pub const FLOW_MONITOR: u32 = 2;
    pub const IPFIX_BRIDGE: u32 = 3;
    pub const IPFIX_FLOW: u32 = 4;
    pub const GROUP: u32 = 7;
    pub const GROUP_DESC: u32 = 8;
    pub const GROUP_FEATURES: u32 = 9;
}

/// Subtypes of the Open Networking Foundation's messages for OpenFlow 1.3 (ONFT_*).
pub(super) mod onft {
    pub const BUNDLE_CONTROL: u32 = 2300;
    pub const BUNDLE_ADD: u32 = 2301;
    pub const FLOW_MONITOR: u32 = 1870;
    pub const FLOW_MONITOR_PAUSED: u32 = 1871;
    pub const FLOW_MONITOR_RESUMED: u32 = 1872;
    pub const ROLE_STATUS: u32 = 1911;
    pub const REQUESTFORWARD: u32 = 2350;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_their_variants() {
        assert!(Kind::ROWS.iter().enumerate().all(|(i, row)| row.0 as usize == i));
        assert!(StatsKind::ROWS.iter().enumerate().all(|(i, row)| row.0 as usize == i));
        assert_eq!(Kind::from_wire(Version::V10, 18), Some(Kind::BarrierRequest));
        assert_eq!(Kind::from_wire(Version::V13, 18), Some(Kind::StatsRequest));
        assert_eq!(Kind::from_wire(Version::V12, 29), None);
    }
}
